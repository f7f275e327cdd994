"""``verticil party backup | restore | purge``: what a site keeps, gets back, and throws away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from verticil.cli.output import Format, FormatOption, emit, text_console
from verticil.cli.party import ConfigOption, app

__all__ = ["app"]  # whose commands stand in several modules

PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", help="Its first line is the passphrase; without it you are asked."),
]


def _passphrase(file: Path | None, *, twice: bool) -> str:
    from verticil.shared.errors import Misuse

    if file is None:
        return cast("str", typer.prompt("passphrase", hide_input=True, confirmation_prompt=twice, err=True))
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise Misuse("FILE_MISSING", f"{file}: cannot be read", hint="its first line is the passphrase") from None
    return lines[0] if lines else ""


@app.command(
    "backup", epilog="Example: verticil party backup --out clinic.backup --passphrase-file words --config party.toml"
)
def backup(
    out: Annotated[Path, typer.Option(help="File to make, readable by you only.")],
    passphrase_file: PassphraseOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Secret, keys, ledger, audit log and configuration in one encrypted file. The daemon may run. The tables are not in it."""
    from verticil.party.backup.backup import backup as make
    from verticil.party.config import load_party

    facts = make(load_party(config), out, _passphrase(passphrase_file, twice=True))
    if emit(facts, form=form):
        return
    console = text_console()
    console.print(
        f"wrote {facts['backup']}: {facts['files']} files, {facts['bytes']:,} bytes, {facts['ledger_rows']} ledger rows"
    )
    console.print(f"audit head {facts['audit_head'] or '(nothing is written there)'}: note it where the backup is not")


@app.command(
    "restore", epilog="Example: verticil party restore clinic.backup --dir clinic-again --passphrase-file words"
)
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    folder: Annotated[Path, typer.Option("--dir", help="Folder to make; an empty one is taken.")],
    passphrase_file: PassphraseOption = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(
            "--audit-log", help="state/audit.jsonl of the state that is lost: what it tells besides is charged."
        ),
    ] = None,
    form: FormatOption = Format.text,
) -> None:
    """Make a site's folder again. What was sent since the backup its ledger does not know: the daemon asks the miner."""
    from verticil.party.backup.backup import restore as make

    facts = make(file, folder, _passphrase(passphrase_file, twice=False), audit_log=audit_log)
    if emit(facts, form=form):
        return
    console = text_console()
    console.print(f"restored {facts['files']} files to {facts['folder']}; ledger rows: {facts['ledger_rows']}")
    for origin, path in cast("Mapping[str, str]", facts["elsewhere"]).items():
        console.print(f"{origin} is now {facts['folder']}/{path}: move it to where party.toml names it", markup=False)
    if facts["problem"]:
        console.print(f"[yellow]look here first[/]: {facts['problem']}")
    if facts.get("between_peers"):
        console.print(str(facts["between_peers"]), style="yellow", markup=False)
    console.print("stop the old node for good before you start this one: two of them keep two ledgers")


@app.command("purge", epilog="Example: verticil party purge --older-than 90 --config party.toml")
def purge(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Id or digest of a study that has ended.")
    ] = None,
    older_than: Annotated[
        int | None, typer.Option("--older-than", min=0, help="Only what was last worked on so many days ago.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list, with bytes.")] = False,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Delete what ended studies have left behind: spooled columns, copies, what peers sent. Never the ledger or the audit log."""
    from verticil.party.backup.purge import purge as delete
    from verticil.party.config import load_party

    facts = delete(load_party(config), study, older_than_days=older_than, dry_run=dry_run)
    if emit(facts, form=form):
        return
    console = text_console()
    for item in cast("Sequence[Mapping[str, object]]", facts["studies"]):
        console.print(f"{item['study']} ({str(item['digest'])[:12]})  {item['bytes']:,} bytes")
    console.print(f"{'would delete' if dry_run else 'deleted'} {facts['bytes']:,} bytes")

"""``verticil party export | import`` and ``verticil miner export | import``: files in place of a line between the two."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from verticil.cli.interruption import run_reading
from verticil.cli.output import Format, FormatOption, emit, say
from verticil.cli.party_site import ConfigOption, site_of

if TYPE_CHECKING:
    from verticil.miner.airgap.local_control import ControlRequest
    from verticil.shared.federation.airgap.exchange import Exported, Imported, StudyStage

Answer = TypeVar("Answer")

MinerConfigOption = Annotated[Path, typer.Option("--config", help="miner.toml.")]
OutOption = Annotated[Path, typer.Option(help="File to make.")]
PlainOption = Annotated[
    bool, typer.Option("--plain", help="Signed, but not sealed: whoever finds the file can read what is in it.")
]
OlderOption = Annotated[
    bool, typer.Option("--accept-older", help="The state here comes from a backup: go on from what the other side has.")
]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The bundle from the other side.")]


def party_export(
    out: OutOption,
    plain: PlainOption = False,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """For a site without a line to the miner: do what is approved, and write all there is to send into one file.

    In place of the daemon, which must not run. Export again where a file was lost: the next one says everything once more.
    """
    from verticil.party.airgap.exchange import export_bundle

    exported = run_reading(export_bundle(site_of(config), out, plain=plain))
    if not emit(exported, form=form):
        _show_export(exported, "the miner", "verticil miner import FILE")


def party_import(
    file: FileArgument,
    releases: Annotated[
        Path | None,
        typer.Option("--releases", help="Folder for the published releases in it: one each, named by its digest."),
    ] = None,
    accept_older: OlderOption = False,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """For a site without a line to the miner: take in what it tells in a file. Sends nothing."""
    from verticil.party.airgap.exchange import import_bundle, take_releases

    document = site_of(config)
    imported = run_reading(import_bundle(document, file, accept_older=accept_older))
    if releases is not None:
        taken = asyncio.run(take_releases(document, releases))
        imported = replace(imported, releases=tuple(str(path) for path in taken))
    if emit(imported, form=form):
        return
    _show_import(imported, "of the miner's")
    for path in imported.releases or ():
        say(f"wrote {path}; next: verticil release verify {path} --ca ca.crt")


def miner_export(
    party: Annotated[str, typer.Argument(metavar="PARTY", help="For which party, as in its certificate.")],
    out: OutOption,
    release: Annotated[
        list[str] | None,
        typer.Option("--release", metavar="STUDY", help="Put the published release of this study in, too."),
    ] = None,
    plain: PlainOption = False,
    config: MinerConfigOption = Path("miner.toml"),
    form: FormatOption = Format.text,
) -> None:
    """For a party without a line: write what it would be told into one file. The daemon may run."""
    from verticil.miner.airgap.local_control import ControlRequest
    from verticil.shared.federation.airgap.exchange import Exported

    request = ControlRequest(verb="export", file=out, party=party, releases=tuple(release or ()), plain=plain)
    exported = answered(config, request, Exported)
    if not emit(exported, form=form):
        _show_export(exported, f"party '{party}'", "verticil party import FILE")


def miner_import(
    file: FileArgument,
    accept_older: OlderOption = False,
    config: MinerConfigOption = Path("miner.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Take in what a party without a line sends in a file, as if it called. The daemon may run."""
    from verticil.miner.airgap.local_control import ControlRequest
    from verticil.shared.federation.airgap.exchange import Imported

    imported = answered(config, ControlRequest(verb="import", file=file, accept_older=accept_older), Imported)
    if not emit(imported, form=form):
        _show_import(imported, f"of party '{imported.party}'")


def answered(config: Path, request: ControlRequest, kind: type[Answer]) -> Answer:
    """What the miner does for its operator: by the daemon if one holds the state directory, else by one of the moment.

    Args:
        config: miner.toml.
        request: what is wanted.
        kind: of the answer.
    """
    from verticil.miner.airgap.local_control import ask_the_daemon, handle_offline
    from verticil.miner.config import load_miner
    from verticil.shared.core.errors import DataFault

    document = load_miner(config)
    try:
        answer = asyncio.run(handle_offline(document, request))
    except DataFault as error:
        if error.code != "STATE_LOCKED":
            raise
        answer = ask_the_daemon(document.state_directory, request)
    assert isinstance(answer, kind)
    return answer


def _show_export(exported: Exported, recipient: str, command: str) -> None:
    how = "sealed for it" if exported.sealed else "NOT sealed: whoever finds it can read it"
    say(f"wrote {exported.file}: bundle {exported.bundle}, {exported.bytes:,} bytes, {how}")
    for what, held in (exported.holds or {}).items():
        say(f"  {held.number:>4} {what}, {held.bytes:,} bytes")
    _show_studies(exported.studies)
    say(f"bring it to {recipient}: {command}")


def _show_import(imported: Imported, whose: str) -> None:
    again = ": was imported before, nothing is new" if imported.repeated else ""
    say(f"bundle {imported.bundle} {whose}{again}")
    if imported.skipped:
        numbers = ", ".join(map(str, imported.skipped))
        say(f"never arrived: {numbers}; this one says what they said")
    for refusal in imported.refused:
        hint = f" (hint: {refusal.hint})" if refusal.hint else ""
        say(f"refused: {refusal.what}: {refusal.code}: {refusal.message}{hint}")
    _show_studies(imported.studies)


def _show_studies(studies: tuple[StudyStage, ...]) -> None:
    for study in studies:
        state, stage = study.state.replace("_", " "), study.stage or ""
        words = stage if stage.startswith(state) else ": ".join(filter(None, (state, stage)))  # once, where they agree
        say(f"  {study.study} ({study.digest[:12]})  {words}")

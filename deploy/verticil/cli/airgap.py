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
    bool, typer.Option("--plain", help="Sign the file, but do not seal it: anybody who finds it can read it.")
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
    """Do what is approved at a site without a network connection, and write all there is to send into one file.

    It takes the daemon's place, which must not run. Export again where a file was lost: the next one has everything once more.
    """
    from verticil.party.airgap.exchange import export_bundle

    export = run_reading(export_bundle(site_of(config), out, plain=plain))
    if not emit(export, form=form):
        _show_export(export, "the miner", "verticil miner import FILE")


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
    """Take in a file from the miner at a site without a network connection. Sends nothing."""
    from verticil.party.airgap.exchange import import_bundle, take_releases

    document = site_of(config)
    result = run_reading(import_bundle(document, file, accept_older=accept_older))
    if releases is not None:
        release_folders = asyncio.run(take_releases(document, releases))
        result = replace(result, releases=tuple(str(path) for path in release_folders))
    if emit(result, form=form):
        return
    _show_import(result, "of the miner's")
    for path in result.releases or ():
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
    """Write all there is for a party without a network connection into one file. The daemon may run."""
    from verticil.miner.airgap.local_control import ControlRequest
    from verticil.shared.federation.airgap.exchange import Exported

    request = ControlRequest(verb="export", file=out, party=party, releases=tuple(release or ()), plain=plain)
    export = ask_miner(config, request, Exported)
    if not emit(export, form=form):
        _show_export(export, f"party '{party}'", "verticil party import FILE")


def miner_import(
    file: FileArgument,
    accept_older: OlderOption = False,
    config: MinerConfigOption = Path("miner.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Take in a file from a party without a network connection, as if it called. The daemon may run."""
    from verticil.miner.airgap.local_control import ControlRequest
    from verticil.shared.federation.airgap.exchange import Imported

    result = ask_miner(config, ControlRequest(verb="import", file=file, accept_older=accept_older), Imported)
    if not emit(result, form=form):
        _show_import(result, f"of party '{result.party}'")


def ask_miner(config: Path, request: ControlRequest, kind: type[Answer]) -> Answer:
    """Have the miner do something for its operator: by the daemon if one holds the state directory, else by one of the moment.

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


def _show_export(export: Exported, recipient: str, command: str) -> None:
    how = "sealed for it" if export.sealed else "NOT sealed: anybody who finds the file can read it"
    say(f"wrote {export.file}: bundle {export.bundle}, {export.bytes:,} bytes, {how}")
    for what, content in (export.holds or {}).items():
        say(f"  {content.number:>4} {what}, {content.bytes:,} bytes")
    _show_studies(export.studies)
    say(f"bring it to {recipient}: {command}")


def _show_import(result: Imported, whose: str) -> None:
    again = ": was imported before, nothing is new" if result.repeated else ""
    say(f"bundle {result.bundle} {whose}{again}")
    if result.skipped:
        numbers = ", ".join(map(str, result.skipped))
        say(f"never arrived: {numbers}; this one says what they said")
    for refusal in result.refused:
        hint = f" (hint: {refusal.hint})" if refusal.hint else ""
        say(f"refused: {refusal.what}: {refusal.code}: {refusal.message}{hint}")
    _show_studies(result.studies)


def _show_studies(studies: tuple[StudyStage, ...]) -> None:
    for study in studies:
        state, stage = study.state.replace("_", " "), study.stage or ""
        words = stage if stage.startswith(state) else ": ".join(filter(None, (state, stage)))  # once, where they agree
        say(f"  {study.study} ({study.digest[:12]})  {words}")

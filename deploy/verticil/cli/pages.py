"""Pages in a browser on this machine: ``verticil party ui``, ``verticil miner ui``, ``verticil study ui``.

A command prints an address with a token, serves until SIGTERM or Ctrl-C, and is the only process that holds a key.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.connection import CertificateOption, FederationOption
from verticil.cli.output import Format, FormatOption, emit, say
from verticil.cli.party_site import ApproverOption, ConfigOption, approver_name, site_of
from verticil.cli.party_study import KeyOption, ask_passphrase
from verticil.shared.core.errors import Misuse, Refusal

if TYPE_CHECKING:
    from verticil.party.config import PartyConfig
    from verticil.party.policy.decision_store import ApproverKey
    from verticil.shared.pages.server import PageServer


def party_ui(
    listen: Annotated[
        str | None,
        typer.Option(
            help="Loopback address, host:port; port 0 takes a free one. Default: \\[ui] listen, 127.0.0.1:8899."
        ),
    ] = None,
    decide: Annotated[
        bool, typer.Option("--decide", help="Take decisions in the page, of the person named with --as.")
    ] = False,
    approver: ApproverOption = None,
    key: KeyOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Show this site on a page that only this machine reaches, until Ctrl-C. Without --decide it changes nothing.

    The address holds a token: whoever has it can use the page for as long as the command runs. With --decide the approver's key
    stays in this process, and the passphrase of an encrypted key is asked here, once.
    """
    from verticil.cli.doctor import collect
    from verticil.party.config import PAGE_HINT
    from verticil.party.operator.page.pages import Officer, site_server
    from verticil.shared.documents.config import loopback_address

    document = site_of(config)
    if not decide and (approver is not None or key is not None):
        raise Misuse("USAGE", "--as and --key: expected with --decide", hint="add --decide, or leave them out")
    address = document.page if listen is None else loopback_address(listen, where="--listen", hint=PAGE_HINT)
    officer = None
    if decide:
        who = approver_name(approver)
        officer = Officer(name=who, key=officer_key(document, who, key))
    with site_server(config, address, officer=officer, doctor=collect) as server:
        may = f"decide as {officer.name}" if officer else "read the page"
        _serve(server, {"party": document.name}, may, form=form)


def officer_key(config: PartyConfig, name: str, key: Path | None) -> ApproverKey | None:
    """Read the key of who decides in a page, and refuse at once what would refuse every decision."""
    from verticil.party.policy.voting import approver_key

    own = approver_key(config, name, key, passphrase=ask_passphrase)
    listed = config.approver_keys.get(name)
    if config.policy.approvers and (own is None or own.public != listed):
        where = config.path.name
        actual = "none was found" if own is None else "the given one is another"
        hint = "give a name of [[approver]] with --as, and its file with --key"
        raise Refusal("NOT_APPROVED", f"'{name}' decides with the key that {where} lists for them: {actual}", hint=hint)
    return own


def miner_ui(
    config: Annotated[
        Path | None, typer.Option(help="miner.toml, of the operator: prints the address that the daemon serves.")
    ] = None,
    federation: FederationOption = Path("federation.toml"),
    certificate: CertificateOption = Path("analyst.crt"),
    listen: Annotated[
        str, typer.Option(help="With a certificate: loopback address, host:port; port 0 takes a free one.")
    ] = "127.0.0.1:8898",
    form: FormatOption = Format.text,
) -> None:
    """Show every study on a page, who holds it up and what is published; the address holds a token.

    With --config, the operator's page of the running miner (\\[ui] in miner.toml). Else a page of the analyst's own, with their
    certificate, until Ctrl-C: they may submit studies there and withdraw their own.
    """
    if config is not None:
        from verticil.miner.config import load_miner
        from verticil.miner.page.task import page_address

        document = load_miner(config)
        url = page_address(document)
        if not emit({"miner": document.name, "url": url}, form=form):
            say(f"{document.name}: open {url}")
            say("everybody who has this address can read the page, and end studies there", style="dim")
        return
    from verticil.analyst.miner_line import LineSource
    from verticil.miner.config import PAGE_HINT
    from verticil.miner.page.pages import miner_server
    from verticil.shared.documents.config import loopback_address

    source = LineSource(federation, certificate)
    with miner_server(source, loopback_address(listen, where="--listen", hint=PAGE_HINT)) as server:
        _serve(
            server, {"analyst": source.reader}, f"read the page, and submit and withdraw as {source.reader}", form=form
        )


def study_ui(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of studies.")],
    listen: Annotated[
        str, typer.Option(help="Loopback address, host:port; port 0 takes a free one.")
    ] = "127.0.0.1:8897",
    form: FormatOption = Format.text,
) -> None:
    """Design studies on a page, until Ctrl-C: see at once what each choice costs; writes the files that you save."""
    from verticil.design.pages import design_server
    from verticil.shared.documents.config import loopback_address, toml_text

    for file in files:
        toml_text(file)
    address = loopback_address(listen, where="--listen", hint="from another machine: ssh -L 8897:127.0.0.1:8897 HOST")
    with design_server(files, address) as server:
        _serve(server, {"studies": ", ".join(file.name for file in files)}, "change these files", form=form)


def _serve(server: PageServer, node: dict[str, str], may: str, *, form: Format) -> None:
    """Print the address at once, whoever reads this output, and serve until SIGTERM or Ctrl-C."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await server.serve(stop)

    if not emit({**node, "url": server.url}, form=form):
        say(f"{' '.join(node.values())}: open {server.url}")
        say(f"everybody who has this address can {may}; Ctrl-C ends it", style="dim")
    sys.stdout.flush()
    asyncio.run(main())
    emit({**node, "stopped": True}, form=form)

"""Pages in a browser on this machine: ``verticil party ui``, ``verticil miner ui``, ``verticil study ui``.

A command prints an address with a token, serves until SIGTERM or Ctrl-C, and is the only process that holds a key.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.connection import CertificateOption, FederationOption
from verticil.cli.output import Format, FormatOption, emit, say
from verticil.cli.party_site import ApproverOption, ConfigOption, approver_name, site_of
from verticil.cli.party_study import KeyOption, ask_key_passphrase
from verticil.shared.core.errors import Misuse, Refusal

if TYPE_CHECKING:
    from verticil.party.config import PartyConfig
    from verticil.party.policy.decision_store import ApproverKey
    from verticil.shared.pages.login import Login
    from verticil.shared.pages.server import PageServer


LoginOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE", help="Certificate (PEM) whose owner may open the page, in place of the token. May be repeated."
    ),
]
TlsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --login: certificate of the page itself, its key beside it as .key. Default: the node's own.",
    ),
]


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
    login: LoginOption = None,
    tls: TlsOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Show this site on a page that only this machine reaches, until Ctrl-C. Without --decide it changes nothing.

    The address holds a token: whoever has it can use the page for as long as the command runs. With --login the page is served
    over TLS to a browser that has this certificate, and to no other. With --decide the approver's key stays in this process, and
    the passphrase of an encrypted key is asked here, once.
    """
    from verticil.cli.doctor import collect
    from verticil.party.config import PAGE_HINT
    from verticil.party.operator.page.pages import Officer, site_server

    document = site_of(config)
    if not decide and (approver is not None or key is not None):
        raise Misuse("USAGE", "--as and --key: expected with --decide", hint="add --decide, or leave them out")
    if tls is not None and not login:
        raise Misuse(
            "USAGE", "--tls: expected with --login", hint="add --login with the certificate of who may open the page"
        )
    by_certificate = _login(
        login, tls or document.certificate, document.key if tls is None else tls.with_suffix(".key")
    )
    address = document.page if listen is None else _address(listen, hint=PAGE_HINT, has_tls=by_certificate is not None)
    officer = None
    if decide:
        who = approver_name(approver)
        officer = Officer(name=who, key=officer_key(document, who, key))
    with site_server(config, address, officer=officer, doctor=collect, login=by_certificate) as server:
        may = f"decide as {officer.name}" if officer else "read the page"
        _serve(server, {"party": document.name}, may, form=form)


def _login(people: Sequence[Path] | None, certificate: Path, key: Path) -> Login | None:
    """Return the login of those who have one of these certificates; None: the address holds a token."""
    if not people:
        return None
    from verticil.shared.federation.identity.pki import read_certificates
    from verticil.shared.pages.login import ServerFiles, login_of

    return login_of([read_certificates(path)[0] for path in people], ServerFiles(certificate=certificate, key=key))


def _address(listen: str, *, hint: str, has_tls: bool) -> tuple[str, int]:
    from verticil.shared.documents.config import loopback_address, socket_address

    where = "--listen"
    return socket_address(listen, where=where) if has_tls else loopback_address(listen, where=where, hint=hint)


def officer_key(config: PartyConfig, name: str, key: Path | None) -> ApproverKey | None:
    """Read the key of who decides in a page, and refuse at once what would refuse every decision."""
    from verticil.party.policy.voting import approver_key

    own = approver_key(config, name, key, passphrase=ask_key_passphrase)
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
            if document.page_certificates:
                say("analysts open the address without its last part, with their certificates", style="dim")
        return
    from verticil.analyst.miner_line import LineSource
    from verticil.miner.config import PAGE_HINT
    from verticil.miner.page.pages import miner_server
    from verticil.shared.federation.identity.identity import Role

    source = LineSource(federation, certificate)
    with miner_server(source, _address(listen, hint=PAGE_HINT, has_tls=False)) as server:
        may = "read the page"
        if source.role is Role.ANALYST:
            may += f", and submit and withdraw as {source.reader}"
        _serve(server, {str(source.role): source.reader}, may, form=form)


def study_ui(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of studies.")],
    listen: Annotated[
        str, typer.Option(help="Loopback address, host:port; port 0 takes a free one.")
    ] = "127.0.0.1:8897",
    form: FormatOption = Format.text,
) -> None:
    """Design studies on a page, until Ctrl-C: see at once what each choice costs; writes the files that you save."""
    from verticil.design.pages import design_server
    from verticil.shared.documents.config import toml_text

    for file in files:
        toml_text(file)
    address = _address(listen, hint="from another machine: ssh -L 8897:127.0.0.1:8897 HOST", has_tls=False)
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

    url = server.login_url or server.url
    if not emit({**node, "url": url}, form=form):
        say(f"{' '.join(node.values())}: open {url}")
        who = "whose browser has a certificate of --login" if server.login_url else "who has this address"
        say(f"everybody {who} can {may}; Ctrl-C ends it", style="dim")
    sys.stdout.flush()
    asyncio.run(main())
    emit({**node, "stopped": True}, form=form)

"""The pages of a running miner, in the daemon's own event loop, where ``[ui]`` of miner.toml says where.

The address, with its token, stands in ``state/page.url`` (mode 0600) for ``verticil miner ui`` to print. With ``certificates =
true`` they are served over TLS with the miner's own certificate, and an analyst's certificate opens pages of that analyst's. What
pages take is imported only here, and only then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509

from verticil.miner.config import MinerConfig
from verticil.miner.service.node import MinerNode
from verticil.miner.service.tasks import TASKS
from verticil.miner.storage.audit import MinerAudit
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.core.health import has_ended
from verticil.shared.core.permissions import not_permitted
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import check_validity, identity_of, load_credentials
from verticil.shared.federation.membership.current import FollowedCredentials
from verticil.shared.federation.transport.authorization import check_access, check_revoked
from verticil.shared.federation.transport.interface import Control
from verticil.shared.storage.disk import replace_file

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from verticil.miner.page.source import NodeSource
    from verticil.shared.pages.login import Login

_FILE: Final = "page.url"
_log = logging.getLogger(__name__)


async def _serve_pages(config: MinerConfig, node: MinerNode, audit: MinerAudit) -> None:
    """Serve the pages until cancelled; where they cannot be served, say so and leave the miner alone."""
    place = config.state_directory / _FILE
    place.unlink(missing_ok=True)
    if config.page is None:
        return
    from verticil.miner.airgap.exchange import Exchange
    from verticil.miner.page.pages import miner_server
    from verticil.miner.page.source import NodeSource

    source = NodeSource(config.name, node, audit, Exchange(config, node, audit=audit))
    try:
        server = miner_server(
            source,
            config.page,
            login=_login(config, node, source) if config.page_certificates else None,
            elsewhere="another port in [ui] listen",
        )
    except VerticilError as error:
        _log.warning("the pages are not served: %s", error)
        return
    with server:
        await asyncio.to_thread(replace_file, place, f"{server.url}\n".encode(), part=place.with_name(f".{_FILE}.part"))
        try:
            await server.serve(asyncio.Event())
        finally:
            place.unlink(missing_ok=True)


def _login(config: MinerConfig, node: MinerNode, source: NodeSource) -> Login:
    """Return the login of analysts by their certificates, which count here as they do for calls over a line."""
    from verticil.miner.page.pages import MinerPages
    from verticil.miner.page.source import AnalystSource
    from verticil.shared.pages.login import Login, ServerFiles

    first = load_credentials(config.certificate, config.key, config.federation)
    credentials = FollowedCredentials(first, config.federation)

    def server() -> ServerFiles:
        now = credentials.current()
        return ServerFiles(certificate=now.certificate, key=now.key)

    def admit(certificate: x509.Certificate) -> str:
        identity = identity_of(certificate)
        check_validity(certificate, at=node.session.clock(), what="the browser's certificate")
        check_revoked(certificate.serial_number, identity, node.session.revocations)
        check_access(identity, Control.submit_study.path, federation=config.federation.name)
        return identity.name

    def pages(name: str) -> Sequence[BaseRoute]:
        identity = Identity(federation=config.federation.name, role=Role.ANALYST, name=name)
        return MinerPages(AnalystSource(source, identity)).routes

    trusted = first.ca_pem.decode("ascii")
    return Login(server=server, trusted=trusted, admit=admit, routes_of=pages, token_too=True)


def page_address(config: MinerConfig) -> str:
    """Return the address of the pages that the running daemon serves.

    Raises:
        PeerFault: NOT_READY, it serves none.
        DataFault: STATE_READ_ONLY, another user's.
    """
    place: Path = config.state_directory / _FILE
    try:
        if has_ended(config.state_directory):  # a killed daemon leaves its address
            raise FileNotFoundError
        return place.read_text(encoding="ascii").strip()
    except OSError as error:
        where = 'say where in miner.toml: [ui] listen = "127.0.0.1:8898"; then start it again'
        hint = where if config.page is None else "start it: verticil miner run --config miner.toml"
        fault = PeerFault("NOT_READY", "the miner's daemon serves no page", hint=hint)
        raise not_permitted(error, place) or fault from None


TASKS.register("pages", _serve_pages)

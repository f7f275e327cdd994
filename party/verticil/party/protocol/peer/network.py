"""How a party reaches its peers and is reached by them: over gRPC, or however a simulation joins nodes of one process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from verticil.party.config import PartyConfig, PeerRule
from verticil.shared.errors import Misuse
from verticil.shared.identity.identity import Identity, Role
from verticil.shared.identity.pki import CredentialSource, check_serves
from verticil.shared.transport.authorization import EMPTY_DENY_LIST, RefusedCall, Revocations
from verticil.shared.transport.client import GrpcPeer, dial_peer
from verticil.shared.transport.interface import Peer, Service, bind
from verticil.shared.transport.metrics import Metrics
from verticil.shared.transport.server import RpcServer

_GRACE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class PeerNetwork(Protocol):
    """What joins the parties."""

    def dial(self, name: str) -> Peer:
        """A connection to a party; opened when it is first used.

        Raises:
            VerticilError: nobody knows where that party is.
        """
        ...

    def serve(self, service: Service) -> AbstractAsyncContextManager[int | None]:
        """Answer peers with `service` while the context lasts; it gives the port, if there is one."""
        ...


class GrpcNetwork:
    """`PeerNetwork` over gRPC with mutual TLS. Use it in one event loop.

    Args:
        config: party.toml and federation.toml: where the peers are.
        rule: where this party listens.
        credentials: ours, read once or followed.
        revocations: the deny-list by which peers are refused.
        metrics: count the calls of peers.
        on_refusal: told of each call that is refused for who its caller is.
    """

    def __init__(
        self,
        config: PartyConfig,
        rule: PeerRule,
        credentials: CredentialSource,
        revocations: Revocations = EMPTY_DENY_LIST,
        *,
        metrics: Metrics | None = None,
        on_refusal: Callable[[RefusedCall], None] | None = None,
    ) -> None:
        self._revocations = revocations
        self._federation = config.federation
        self._rule = rule
        self._credentials = credentials
        self._metrics = metrics
        self._on_refusal = on_refusal

    def dial(self, name: str) -> Peer:
        """See `PeerNetwork.dial`.

        Raises:
            Misuse: CONFIG_INVALID, federation.toml does not say where that party is.
        """
        address = self._federation.peers.get(name)
        if address is None:
            raise Misuse(
                "CONFIG_INVALID",
                f"federation.toml: [peers] does not name '{name}'",
                hint="every party of a study between peers has its host:port there",
            )
        identity = Identity(federation=self._federation.name, role=Role.PARTY, name=name)
        timeout = self._federation.idle_timeout_seconds
        return GrpcPeer(
            dial_peer(
                address,
                self._credentials,
                identity,
                idle_timeout_seconds=timeout,
                revocations=self._revocations,
            )
        )

    @contextlib.asynccontextmanager
    async def serve(self, service: Service) -> AsyncGenerator[int]:
        """See `PeerNetwork.serve`.

        Raises:
            Misuse: CONFIG_INVALID, the port is taken or the address is none of this machine.
            PeerFault: CERTIFICATE_INVALID, ours is none for servers.
        """
        check_serves(self._credentials.current())
        server = RpcServer(
            self._rule.listen,
            self._credentials,
            [bind(Peer, service)],
            revocations=self._revocations,
            idle_timeout_seconds=self._federation.idle_timeout_seconds,
            metrics=self._metrics,
            on_refusal=self._on_refusal,
        )
        try:
            port = await server.start()
            _log.info("serving peers on port %d", port)
            yield port
        finally:
            await server.stop(grace_seconds=_GRACE_SECONDS)

"""How a party reaches its peers and is reached by them: over gRPC, or however a simulation joins nodes of one process.

Asking peers: whom, what came of it, and who is waited for.

A call that cannot succeed now (the peer is not there yet, not reachable, busy) is a line for people that names the peer and what
is waited for. A call that will not succeed until a person acts at a peer ends the study here, and names the peer. What a peer
says is never taken for an error of this machine: whatever code it sends, this daemon goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeVar

from verticil.party.config import PartyConfig, PeerRule
from verticil.party.protocol.planning import PeerFailedError, WaitedForError
from verticil.party.protocol.retry import TRIED_AGAIN
from verticil.shared.core.errors import Misuse, PeerFault, VerticilError, from_code
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import CredentialSource, check_serves
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, RefusedCall, Revocations
from verticil.shared.federation.transport.client import Connection, GrpcPeer
from verticil.shared.federation.transport.errors_on_wire import shorten
from verticil.shared.federation.transport.interface import Peer, Service, bind
from verticil.shared.federation.transport.metrics import Metrics
from verticil.shared.federation.transport.server import RpcServer
from verticil.shared.federation.transport.version import greet

T = TypeVar("T")

MINER: Final = "the miner"

_GRACE_SECONDS: Final = 5.0
_WAITED_FOR: Final = TRIED_AGAIN | {
    "NOT_READY",
    "TLS_REFUSED",
    "CERTIFICATE_INVALID",
    "CERTIFICATE_REVOKED",
    "VERSION_UNSUPPORTED",
}
"""Time, or people at the other side, mend these; the study need not end."""

_log = logging.getLogger(__name__)


class PeerNetwork(Protocol):
    """What joins the parties."""

    def dial(self, name: str) -> Peer:
        """Return a connection to a party; the first use opens it.

        Raises:
            VerticilError: no file of this party says where that one is.
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
        on_refusal: receives each call that is refused for who its caller is.
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
            Connection(
                address,
                self._credentials,
                idle_timeout_seconds=timeout,
                target=identity,
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


class Peers:
    """The connections to peers, made when they are first used.

    Args:
        network: how peers are reached.
        federation: its name.
        clock: UTC now.
        revocations: the deny-list, to which peers' newer ones are added.
    """

    def __init__(
        self,
        network: PeerNetwork,
        federation: str,
        clock: Callable[[], dt.datetime],
        revocations: Revocations = EMPTY_DENY_LIST,
    ) -> None:
        self._revocations = revocations
        self._network = network
        self._federation = federation
        self._clock = clock
        self._open: dict[str, Peer] = {}
        self._trouble: dict[str, tuple[dt.datetime, VerticilError]] = {}

    async def ask(self, name: str, call: Callable[[Peer], Awaitable[T]], *, what: str) -> T:
        """Ask a peer.

        Args:
            name: of the party.
            call: the question.
            what: what is waited for, when it is not ready: ``the common list``.

        Raises:
            WaitedForError: not now.
            PeerFailedError: not until somebody acts.
        """
        return await self.receive_reply(f"'{name}'", self._ask_once(name, call), what=what, at_fault=f"party '{name}'")

    async def receive_reply(self, who: str, reply: Awaitable[T], *, what: str, at_fault: str) -> T:
        """Return the reply; turn errors into whom to wait for (see `ask`). An error that names no node names `at_fault`."""
        try:
            answer = await reply
        except VerticilError as error:
            if isinstance(error.__cause__, OSError):
                raise  # what came could not be stored: this machine's disk
            if error.code not in _WAITED_FOR:
                if not error.teller:
                    error = from_code(error.code, f"{at_fault}: {error.message}", hint=error.hint)
                raise PeerFailedError(error) from None
            raise WaitedForError(self._text(who, error, what)) from None
        self._trouble.pop(who, None)
        return answer

    def _text(self, who: str, error: VerticilError, what: str) -> str:
        if error.code == "NOT_READY":
            self._trouble.pop(who, None)
            return f"waiting for {who} {what}" if what.startswith("to ") else f"waiting for {what} from {who}"
        now = self._clock()
        since, last_text = self._trouble.get(who, (now, None))
        if last_text is None or last_text.code != error.code:
            self._trouble[who], last_text = (since, error), error
            _log.warning("%s: %s", who, error)
        when = f"{since:%H:%M} UTC" if now - since < dt.timedelta(hours=12) else f"{since:%Y-%m-%d %H:%M} UTC"
        purpose = "" if what.startswith("to ") else f", waiting for {what}"
        why = f"{last_text.message}; {last_text.hint}" if last_text.hint else last_text.message
        if error.code in {"UNREACHABLE", "DEADLINE"}:
            return f"cannot reach {who} since {when}{purpose} ({why})"
        return f"cannot work with {who} since {when}{purpose} ({error.code}: {why})"

    async def _ask_once(self, name: str, call: Callable[[Peer], Awaitable[T]]) -> T:
        peer = self._open.get(name)
        if peer is None:
            peer = self._network.dial(name)
            try:
                await self._greet(name, peer)
            except BaseException:
                await peer.close()
                raise
            if name in self._open:  # another study was faster
                await peer.close()
                peer = self._open[name]
            self._open[name] = peer
        return await call(peer)

    async def _greet(self, name: str, peer: Peer) -> None:
        number = self._revocations.number()
        reply = await greet(peer.hello, who=f"party '{name}'", at=self._clock, deny_list_number=number)
        if reply.federation != self._federation:
            raise PeerFault(
                "IDENTITY_REFUSED",
                f"it serves federation '{shorten(reply.federation, 63)}', expected '{self._federation}'",
            )
        if reply.deny_list:
            try:
                await asyncio.to_thread(self._revocations.offer, reply.deny_list)
            except PeerFault as fault:
                _log.warning("from '%s': %s", name, fault)
        _log.info("connected to '%s'", name)

    async def close(self) -> None:
        """Give all connections up."""
        connections, self._open = list(self._open.values()), {}
        await asyncio.gather(*(peer.close() for peer in connections))


async def all_of(tasks: Iterable[Awaitable[None]]) -> str | None:
    """Do all of them at the same time.

    Returns:
        None when all are done; else who is waited for.

    Raises:
        BaseException: the first of theirs, in order, once all have ended.
    """
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in results:
        if isinstance(outcome, BaseException) and not isinstance(outcome, WaitedForError):
            raise outcome
    return "; ".join(dict.fromkeys(str(outcome) for outcome in results if outcome is not None)) or None

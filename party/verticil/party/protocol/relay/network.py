"""`PeerNetwork` where some parties cannot be dialled: federation.toml says in [peers] who is reached how.

A party that is ``"relay"`` there is asked through the miner, by everybody; it listens nowhere and asks others as federation.toml
says of them, directly where they have an address. A party with an address serves those who dial it, and answers nothing that
comes through the miner. A party that has to do with a relayed one needs a sealing key, pinned in [sealing].
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from verticil.party.config import PartyConfig
from verticil.party.protocol.relay.client import RelayClient, RelayPeer
from verticil.party.protocol.relay.server import RelayServer
from verticil.party.protocol.with_peers.network import PeerNetwork
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.config import RELAY
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.transport.authorization import RefusedCall
from verticil.shared.federation.transport.interface import Coordinator, Peer, Service
from verticil.shared.federation.transport.sealing import Seals, load_sealing_key


def open_seals(config: PartyConfig) -> Seals:
    """Return a party's seals, with its own key checked against the pinned one.

    Raises:
        Misuse: CONFIG_INVALID, federation.toml pins no key of this party, or another one.
        DataFault: SECRET_MISSING.
        PeerFault: CERTIFICATE_INVALID, the file holds no private key.
    """
    key_pin = config.federation.sealing.get(config.name)
    if key_pin is None:
        raise Misuse(
            "CONFIG_INVALID",
            f"federation.toml: sealing.{config.name}: missing, and there are parties that are reached through the miner",
            hint=f"verticil pki seal {config.certificate.name} shows the key; put it into every site's federation.toml",
        )
    identity = Identity(federation=config.federation.name, role=Role.PARTY, name=config.name)
    return Seals(identity, load_sealing_key(config.sealing_key, key_pin), config.federation.sealing)


class RelayNetwork:
    """`PeerNetwork` over a direct one and the miner's relay. Use it in one event loop.

    Args:
        config: party.toml and federation.toml.
        direct: for the parties that can be dialled.
        dial: makes a connection to the miner.
        on_refusal: receives each call through the relay that is refused for who its caller is.

    Raises:
        VerticilError: as `open_seals`.
    """

    def __init__(
        self,
        config: PartyConfig,
        direct: PeerNetwork,
        dial: Callable[[], Coordinator],
        on_refusal: Callable[[RefusedCall], None] | None = None,
    ) -> None:
        self._federation = config.federation
        self._name = config.name
        self._relayed = config.peer is not None and config.peer.relay
        self._direct = direct
        self._on_refusal = on_refusal
        self._challenges: dict[str, bytes] = {}
        seals = open_seals(config)
        relayed_names = [name for name in seals.peers if self._relayed or self._federation.peers.get(name) == RELAY]
        idle = self._federation.idle_timeout_seconds
        self._post = RelayClient(seals, dial, patience_seconds=idle, relayed_peers=relayed_names)

    def dial(self, name: str) -> Peer:
        """See `PeerNetwork.dial`.

        Raises:
            VerticilError: as the direct network.
        """
        if self._federation.peers.get(name) != RELAY:
            return self._direct.dial(name)
        idle = self._federation.idle_timeout_seconds
        return RelayPeer(self._post, name, self._challenges, idle_timeout_seconds=idle)

    @contextlib.asynccontextmanager
    async def serve(self, service: Service) -> AsyncGenerator[int | None]:
        """See `PeerNetwork.serve`; gives no port for a party that listens nowhere.

        Raises:
            VerticilError: as the direct network, where the party listens.
        """
        async with contextlib.AsyncExitStack() as stack:
            port: int | None = None
            if not self._relayed:
                port = await stack.enter_async_context(self._direct.serve(service))
            answers = service if self._relayed else None
            answering = RelayServer(answers, self._federation.name, self._post, self._on_refusal)
            stack.push_async_callback(answering.close)
            stack.push_async_callback(_raise_ended, asyncio.create_task(self._post.run(answering), name="relay"))
            yield port


async def _raise_ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

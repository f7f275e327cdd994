"""A study between peers in one process: every party's own node, joined by memory in place of gRPC.

With a learned structure there is a miner too, which gets scores and holds no data; and where parties are reached through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from verticil.shared.core.errors import PeerFault
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    import datetime as dt

    from verticil.miner.service.node import MinerNode
    from verticil.shared.federation.identity.identity import Identity
    from verticil.shared.federation.transport.interface import Coordinator, Peer, Service
    from verticil.simulation.provision import Provisioned


WrapPeer: TypeAlias = "Callable[[str, str, Peer], Peer]"
"""For tests: put something between a party (first) and a peer that it asks (second)."""

_LOOK_SECONDS: Final = 0.02


class _Memory:
    """`PeerNetwork` of one party, over the services of all."""

    def __init__(self, services: MutableMapping[str, Service], identity: Identity, wrap: WrapPeer | None) -> None:
        self._services = services
        self._identity = identity
        self._wrap = wrap

    def dial(self, name: str) -> Peer:
        from verticil.shared.federation.transport.in_memory import InMemoryPeer

        if (service := self._services.get(name)) is None:
            raise PeerFault("UNREACHABLE", f"'{name}' does not serve its peers yet")
        line = InMemoryPeer(service, self._identity)
        return self._wrap(self._identity.name, name, line) if self._wrap is not None else line

    @contextlib.asynccontextmanager
    async def serve(self, service: Service) -> AsyncGenerator[None]:
        self._services[self._identity.name] = service
        try:
            yield None
        finally:
            del self._services[self._identity.name]


async def run_peers(
    nodes: Provisioned,
    study: Study,
    release: Path,
    *,
    is_seeded: bool,
    wrap: Callable[[str, Coordinator], Coordinator] | None = None,
    wrap_peer: WrapPeer | None = None,
    clock: Callable[[], dt.datetime] | None = None,
    step: Callable[[str], None] = lambda _line: None,
) -> int:
    """Serve the parties of provisioned folders in this event loop until every one of them has published.

    Args:
        nodes, study, is_seeded, wrap, clock, step: as for `run_federation`, which returns and raises the same.
        release: folder to make: the parties' releases are equal, and this is one of them.
        wrap_peer: see `WrapPeer`.
    """
    from verticil.shared.documents.config import RELAY
    from verticil.shared.federation.identity.pki import utc_now
    from verticil.shared.study.protocols import protocol_of
    from verticil.simulation.peers import load_everywhere, take_home, until_published

    now = clock if clock is not None else utc_now
    digest = await asyncio.to_thread(load_everywhere, nodes.parties, study, at=now(), unreviewed=True)
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        miner = None
        if protocol_of(study).searches_scores(study) or RELAY in nodes.peers.values():
            miner = await stack.enter_async_context(serving_miner(nodes, now))
        tasks = start_parties(
            nodes, miner, stop, between=True, is_seeded=is_seeded, wrap=wrap, wrap_peer=wrap_peer, clock=now
        )
        check = partial(raise_if_ended, tasks)
        try:
            await until_published(nodes.parties, digest, step=step, check=check, look_seconds=_LOOK_SECONDS)
        finally:
            stop.set()
            if miner is not None:
                miner.changes.close()
            await asyncio.gather(*tasks, return_exceptions=True)
    place = release.parent / "taken"
    folders, verification = await asyncio.to_thread(
        take_home, nodes.parties, digest, place, ca_certificate=nodes.ca_certificate.read_bytes()
    )
    next(iter(folders.values())).rename(release)
    shutil.rmtree(place)
    return verification.common_records


@contextlib.asynccontextmanager
async def serving_miner(
    nodes: Provisioned, clock: Callable[[], dt.datetime], *, is_seeded: bool = False
) -> AsyncGenerator[MinerNode]:
    """Serve the miner of provisioned folders, in this event loop, until the context ends.

    `is_seeded`: the manifest says so.
    """
    from verticil.miner.config import load_miner
    from verticil.miner.scheduler.learning import InlineLearning
    from verticil.miner.service.node import MinerNode, sealing_of
    from verticil.shared.federation.identity.pki import load_credentials
    from verticil.shared.federation.identity.signing import SigningKey

    config = load_miner(nodes.miner / "miner.toml")
    credentials = load_credentials(config.certificate, config.key, config.federation)
    async with MinerNode(
        config.state_directory,
        identity=credentials.identity,
        authority=credentials.ca_pem,
        signer=SigningKey.load(config.signing_key, config.certificate),
        executor=InlineLearning(clock=clock),
        limits=config.limits,
        randomized_days=config.randomized_days,
        sealing=sealing_of(config),
        simulation=True,
        seed_derived=is_seeded,
        clock=clock,
    ) as node:
        yield node


def start_parties(
    nodes: Provisioned,
    miner: MinerNode | None,
    stop: asyncio.Event,
    *,
    between: bool,
    is_seeded: bool,
    wrap: Callable[[str, Coordinator], Coordinator] | None,
    wrap_peer: WrapPeer | None = None,
    clock: Callable[[], dt.datetime],
) -> list[asyncio.Task[None]]:
    """Start the nodes of the parties; `between`: they reach each other, too."""
    from verticil.party.config import load_party
    from verticil.party.daemon import run_party
    from verticil.shared.federation.identity.pki import load_credentials
    from verticil.shared.federation.transport.in_memory import InMemoryCoordinator

    services: dict[str, Service] = {}
    tasks: list[asyncio.Task[None]] = []
    for name, folder in nodes.parties.items():
        party = load_party(folder / "party.toml")
        identity = load_credentials(party.certificate, party.key, party.federation).identity

        def dial(name: str = name, identity: Identity = identity) -> Coordinator:
            if miner is None:
                raise PeerFault("UNREACHABLE", "this federation has no miner")
            line = InMemoryCoordinator(miner.coordinator, identity)
            return wrap(name, line) if wrap is not None else line

        work = run_party(
            party,
            dial if miner else None,
            peers=_Memory(services, identity, wrap_peer) if between else None,
            stop=stop,
            simulation=True,
            seed_derived=is_seeded,
            clock=clock,
        )
        tasks.append(asyncio.create_task(work, name=name))
    return tasks


def raise_if_ended(parties: list[asyncio.Task[None]]) -> None:
    """Raise what ended a party, if one has ended."""
    for task in parties:
        if task.done():
            task.result()  # raises what ended the party

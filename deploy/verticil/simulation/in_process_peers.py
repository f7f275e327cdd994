"""A study between peers in one process: every party's own node, joined by memory in place of gRPC.

With a learned structure there is a miner too, which gets scores and holds no data; and where parties are reached through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from verticil.shared.errors import PeerFault

if TYPE_CHECKING:
    import datetime as dt

    from verticil.miner.service.node import MinerNode
    from verticil.shared.identity.identity import Identity
    from verticil.shared.study.document import Study
    from verticil.shared.transport.interface import Coordinator, Peer, Service
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
        from verticil.shared.transport.in_memory import InMemoryPeer

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
    made: Provisioned,
    study: Study,
    release: Path,
    *,
    seeded: bool,
    wrap: Callable[[str, Coordinator], Coordinator] | None = None,
    wrap_peer: WrapPeer | None = None,
    clock: Callable[[], dt.datetime] | None = None,
    step: Callable[[str], None] = lambda _line: None,
) -> int:
    """Serve the parties of provisioned folders in this event loop until every one of them has published.

    Args:
        made: the nodes' folders.
        study: the proposal.
        release: folder to make: the parties' releases are equal, and this is one of them.
        seeded: the secrets come from a seed; the manifest says so.
        wrap, step: as for `simulate`.
        wrap_peer: see `WrapPeer`.
        clock: UTC now, for tests; the machine's when absent.

    Returns:
        The number of common people.

    Raises:
        VerticilError: what ended the study or a node.
    """
    from verticil.shared.config import RELAY
    from verticil.shared.identity.pki import utc_now
    from verticil.shared.study.protocols import protocol_of
    from verticil.simulation.peers import load_everywhere, standing, take_home

    now = clock if clock is not None else utc_now

    digest = await asyncio.to_thread(load_everywhere, made.parties, study)
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        miner = None
        if protocol_of(study).searches_scores(study) or RELAY in made.peers.values():
            miner = await stack.enter_async_context(serving_miner(made, now))
        tasks = _parties(made, miner, stop, seeded=seeded, wrap=wrap, wrap_peer=wrap_peer, clock=now)
        told: dict[str, str] = {}
        try:
            while not (stands := await asyncio.to_thread(standing, made.parties, digest)).published:
                for name, stage in stands.stages.items():
                    if stage and told.get(name) != stage:
                        told[name] = stage
                        step(f"{name}: {stage}")
                for task in tasks:
                    if task.done():
                        task.result()  # raises what ended the party
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            stop.set()
            if miner is not None:
                miner.changes.close()
            await asyncio.gather(*tasks, return_exceptions=True)
    place = release.parent / "taken"
    folders, verified = await asyncio.to_thread(
        take_home, made.parties, digest, place, ca_certificate=made.ca_certificate.read_bytes()
    )
    next(iter(folders.values())).rename(release)
    shutil.rmtree(place)
    return verified.n_common


@contextlib.asynccontextmanager
async def serving_miner(made: Provisioned, clock: Callable[[], dt.datetime]) -> AsyncGenerator[MinerNode]:
    """The miner of provisioned folders, in this event loop, until the context ends."""
    from verticil.miner.config import load_miner
    from verticil.miner.scheduler.learning import InlineLearning
    from verticil.miner.service.node import MinerNode
    from verticil.shared.identity.pki import load_credentials
    from verticil.shared.identity.signing import SigningKey

    config = load_miner(made.miner / "miner.toml")
    credentials = load_credentials(config.certificate, config.key, config.federation)
    async with MinerNode(
        config.state_directory,
        identity=credentials.identity,
        authority=credentials.ca_pem,
        signer=SigningKey.load(config.signing_key, config.certificate),
        executor=InlineLearning(clock=clock),
        limits=config.limits,
        randomized_days=config.randomized_days,
        simulation=True,
        clock=clock,
    ) as node:
        yield node


def _parties(
    made: Provisioned,
    miner: MinerNode | None,
    stop: asyncio.Event,
    *,
    seeded: bool,
    wrap: Callable[[str, Coordinator], Coordinator] | None,
    wrap_peer: WrapPeer | None,
    clock: Callable[[], dt.datetime],
) -> list[asyncio.Task[None]]:
    from verticil.party.config import load_party
    from verticil.party.daemon import run_party
    from verticil.shared.identity.pki import load_credentials
    from verticil.shared.transport.in_memory import InMemoryCoordinator

    services: dict[str, Service] = {}
    tasks: list[asyncio.Task[None]] = []
    for name, folder in made.parties.items():
        party = load_party(folder / "party.toml")
        identity = load_credentials(party.certificate, party.key, party.federation).identity

        def dial(name: str = name, identity: Identity = identity) -> Coordinator:
            if miner is None:
                raise PeerFault("UNREACHABLE", "this federation has no miner")
            line = InMemoryCoordinator(miner.coordinator, identity)
            return wrap(name, line) if wrap is not None else line

        network = _Memory(services, identity, wrap_peer)
        work = run_party(
            party,
            dial if miner else None,
            peers=network,
            stop=stop,
            simulation=True,
            seed_derived=seeded,
            clock=clock,
        )
        tasks.append(asyncio.create_task(work, name=name))
    return tasks

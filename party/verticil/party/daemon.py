"""The party's daemon: dials the miner, asks for the desired state of its studies, and brings each of them there.

Promises
- To the miner the party only dials out. It polls (long poll), remembers what it is told, and works on each study in a task of its
  own (`verticil.party.protocol.engine`); a slow upload holds up neither the poll nor another study.
- With ``[peer]`` in party.toml it serves its peers (Model I), at a port or through the miner (`protocol.relay`), and works
  on the studies that its operator loaded (`protocol.peer`). A federation of peers that are all dialled needs no miner, and
  a party of it dials none.
- What people of the site write into the database (`party approve`, `party deny`, `party revoke`) is noticed within a third of a
  second, and breaks off a transfer that must not go on.
- Who may approve is followed in party.toml (`verticil.party.policy.voting`); the rest of it is read at the start.
- Renewed certificates and a new deny-list are taken up while it runs. The audit log says which certificate is shown, that it ends
  soon, and whom the party refused.
- A lost connection is dialled again with exponential backoff and full jitter, at first within half a second, at most 30
  seconds apart (attempt and wait together); a study's work goes on from its durable state. Whatever the other end says or is
  (wrong identity, version, federation, error codes of any kind) is waited out; only this machine's own configuration,
  state or expired certificate end the daemon, and say so.
- A study that cannot be served (policy, approval, data) is reported to the miner as failed, with code, message and
  hint, and the daemon goes on serving the others. A full disk, or a miner that is busy, is waited for.
- The process may be killed at any moment; the next one goes on. Two daemons on one state directory are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import hashlib
import logging
import os
from collections.abc import AsyncGenerator, Callable

import verticil.party.protocol.shipped.registrations  # noqa: F401  # pyright: ignore[reportUnusedImport]  # the registry's entries
from verticil.party.audit.log import Event, What, note_configuration
from verticil.party.config import PartyConfig, require_marked_authority
from verticil.party.dataset.sources.optional_packages import require_package
from verticil.party.dataset.sources.reading import Stop, stopped_by
from verticil.party.operator import commands
from verticil.party.operator.backup import BETWEEN_PEERS, is_just_restored
from verticil.party.operator.metrics import party_gauges
from verticil.party.operator.same_people import look_at_people
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.node.party_node import CoordinatorFactory, PartyNode, PeerNode
from verticil.party.protocol.node.registry import rounds_of_protocols
from verticil.party.protocol.randomization import Spool
from verticil.party.protocol.relay.network import RelayNetwork
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore
from verticil.party.protocol.with_peers.context import PeerContext, lacking_packages
from verticil.party.protocol.with_peers.network import GrpcNetwork, PeerNetwork, Peers
from verticil.party.site import Site
from verticil.party.storage.database import DaemonLock
from verticil.shared.core import logs
from verticil.shared.core.errors import Misuse
from verticil.shared.core.health import Vitals, require_room
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import CredentialSource, load_credentials, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.current import FollowedCredentials
from verticil.shared.federation.membership.revocation import FILE_NAME, DenyList
from verticil.shared.federation.refusals import Refusals, RefusedLine, audit_writer, expiry_notice
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, Revocations
from verticil.shared.federation.transport.client import Connection, GrpcCoordinator
from verticil.shared.federation.transport.interface import Coordinator
from verticil.shared.federation.transport.metrics import Metrics
from verticil.shared.release.statement import software_text

_log = logging.getLogger(__name__)


def dial(config: PartyConfig, credentials: CredentialSource, revocations: Revocations = EMPTY_DENY_LIST) -> Coordinator:
    """Open a connection to the miner over gRPC with mutual TLS. Call it in the event loop that uses it."""
    federation = config.federation
    connection = Connection(
        federation.miner_endpoint,
        credentials,
        idle_timeout_seconds=federation.idle_timeout_seconds,
        revocations=revocations,
    )
    return GrpcCoordinator(connection)


def _require_packages(config: PartyConfig) -> None:
    """Check that the packages are here that read the tables; and, without a miner, those for studies between peers."""
    for rule in config.datasets.values():
        require_package(rule)
    lacking = lacking_packages(config)
    if lacking is not None and config.federation.endpoint is None:
        raise lacking


def _look_at_the_start(site: Site, at: dt.datetime) -> None:
    """Say what the operator should know of the state before it is served; raises as `look_at_people`."""
    if site.config.peer is not None and is_just_restored(site.config, site.database):
        _log.warning("this state was restored from a backup: %s", BETWEEN_PEERS)
    look_at_people(site, at)


async def run_party(
    config: PartyConfig,
    coordinator_factory: CoordinatorFactory | None = None,
    *,
    peers: PeerNetwork | None = None,
    on_start: Callable[[int], None] | None = None,
    simulation: bool = False,
    seed_derived: bool = False,
    accept_older: bool = False,
    stop: asyncio.Event,
    clock: Callable[[], dt.datetime] = utc_now,
    vitals: Vitals | None = None,
) -> None:
    """Serve until `stop` is set.

    Args:
        config: party.toml.
        coordinator_factory: makes a connection to the miner for each attempt; None: over gRPC, where the federation has a miner.
        peers: joins this party with its peers; None: over gRPC, where party.toml has ``[peer]``.
        on_start: told the port at which peers are served.
        simulation: releases of studies between peers say that everything ran on one machine.
        seed_derived: they say that the parties' secrets come from a seed.
        accept_older: charge what the audit log, the miner or peers know and the ledger does not, in place of refusing to go on.
        stop: ends the daemon in good order.
        clock: UTC now.
        vitals: told when it serves, and how it is.

    Raises:
        Misuse: CONFIG_INVALID, automatic approval under an ordinary CA, `same_people` has a name that leads nowhere, there is
            neither a miner nor a ``[peer]`` table, or no miner and the packages that studies between peers take are not
            installed; FILE_MISSING.
        DataFault: SECRET_MISSING, STATE_CORRUPT, STATE_LOCKED, DISK_FULL.
        Refusal: LEDGER_OLDER, the state is older than what was sent.
        PeerFault: CERTIFICATE_INVALID, IDENTITY_REFUSED, TLS_REFUSED: of this party's own certificate.
    """
    credentials = load_credentials(
        config.certificate, config.key, config.federation, role=Role.PARTY, name=config.name, at=clock()
    )
    require_marked_authority(config, is_demo=credentials.is_demo)
    _require_packages(config)
    signing_key = SigningKey.load(config.signing_key, config.certificate)
    current_credentials = FollowedCredentials(credentials, config.federation, clock=clock)
    revocations = DenyList(
        credentials.ca_pem,
        [config.federation.ca_certificate.with_name(FILE_NAME)],
        path=config.state_directory / FILE_NAME,
    )
    if coordinator_factory is None:
        # Compiled kernels belong to the daemon's own folder: the program's may be read-only.
        os.environ.setdefault("NUMBA_CACHE_DIR", str(config.state_directory / "cache"))
        # Arrow's own pool keeps what it has freed, and asks for a gibibyte at once.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if coordinator_factory is None and config.federation.endpoint is not None:
        coordinator_factory = functools.partial(dial, config, current_credentials, revocations)
    metrics, refusals = Metrics(), Refusals()
    if peers is None and config.peer is not None:
        peers = GrpcNetwork(config, config.peer, current_credentials, revocations, metrics=metrics, on_refusal=refusals)
    if peers is not None and config.federation.relays and coordinator_factory is not None:
        peers = RelayNetwork(config, peers, coordinator_factory, refusals)
    if coordinator_factory is None and peers is None:
        raise Misuse(
            "CONFIG_INVALID",
            f"{config.path.name}: peer: missing, and federation '{config.federation.name}' has no miner",
            hint="say in [peer] where this party serves its peers: listen and advertise",
        )
    opening = functools.partial(Site.open, config, accept_older=accept_older)
    with await asyncio.to_thread(opening) as site, contextlib.closing(DaemonLock(config.state_directory)):
        await asyncio.to_thread(_look_at_the_start, site, clock())
        node = PartyContext(
            site=site,
            spool=Spool(config.state_directory / "spool"),
            signing_key=signing_key,
            revocations=revocations,
            authority=credentials.ca_pem,
            clock=clock,
        )
        between, rounds = None, rounds_of_protocols()

        def health() -> str:
            node.waiting.check()
            require_room(config.state_directory)
            return commands.condition(config, site.state.heartbeat(), clock())

        def listening(port: int | None) -> None:
            if port is not None and on_start is not None:
                on_start(port)
            if vitals is not None:
                vitals.serving(health)

        if peers is not None:
            peering = PeerContext(
                node=node,
                store=ArtifactStore(config.state_directory / "peer", site.database),
                peers=Peers(peers, config.federation.name, clock, revocations),
                coordinator=coordinator_factory,
                software="" if lacking_packages(config) else software_text(),
                simulation=simulation,
                seed_derived=seed_derived,
                rounds=rounds,
            )
            between = PeerNode(peering, peers, on_start=listening, accept_older=accept_older)

        def write(line: RefusedLine, at: dt.datetime) -> None:
            site.audit.record(Event(what=What.REFUSED, who=line.who, detail=line.detail), at)

        def look() -> None:
            note_configuration(site.audit, site.config.path, clock())
            note_certificate(site, current_credentials, clock())

        async with contextlib.AsyncExitStack() as ending:
            ending.enter_context(logs.fields(party=config.name))
            if config.metrics is not None:
                metrics.read(
                    functools.partial(
                        party_gauges, site, current_credentials, late=lambda: sum(item.late() for item in rounds)
                    )
                )
                ending.callback(metrics.serve(config.metrics).close)
            await ending.enter_async_context(audit_writer(refusals, write=write, look=look, clock=clock))
            if between is None:
                listening(None)
            await ending.enter_async_context(_reads_stopped_by(stop))
            await PartyNode(node, coordinator_factory, peers=between, accept_older=accept_older).run(stop)


@contextlib.asynccontextmanager
async def _reads_stopped_by(stop: asyncio.Event) -> AsyncGenerator[None]:
    """Break off reads of databases when the daemon stops: a thread that waits for a lock would hold it up."""
    reads = Stop()

    async def follow() -> None:
        await stop.wait()
        reads.set()

    with stopped_by(reads):
        following = asyncio.create_task(follow())
        try:
            yield
        finally:
            following.cancel()
            reads.set()


def note_certificate(site: Site, credentials: CredentialSource, at: dt.datetime) -> None:
    """Write into the audit log which certificate the daemon shows, and that it ends soon, if that is new."""
    now = credentials.current()
    site.audit.note(What.CERTIFICATE, hashlib.sha256(now.chain_pem).digest(), at)
    if (notice := expiry_notice(now, at)) is not None:
        site.audit.note(What.CERTIFICATE_ENDS, notice.sha256, at, detail=notice.detail)

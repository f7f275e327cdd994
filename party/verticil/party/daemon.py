"""The party's daemon: dials the miner, asks for the desired state of its studies, and brings each of them there.

Promises
- To the miner the party only dials out. It polls (long poll), remembers what it is told, and works on each study in a task of its
  own (`verticil.party.exchange.delivery`); a slow upload holds up neither the poll nor another study.
- With ``[peer]`` in party.toml it serves its peers (Model I), at a port or through the miner (`verticil.party.relay`), and works
  on the studies that its operator loaded (`verticil.party.peer`). A federation of peers that are all dialled needs no miner, and
  a party of it dials none.
- What people of the site write into the database (`party approve`, `party deny`, `party revoke`) is noticed within a third of a
  second, and breaks off a transfer that must not go on.
- Renewed certificates and a new deny-list are taken up while it runs.
- A lost connection is dialled again with exponential backoff and full jitter, at first within half a second, at most 30
  seconds apart (attempt and wait together); a study's work goes on from its durable state. Only what may pass by itself is
  dialled again (`DIALLED_AGAIN`): errors of configuration, identity or version end the daemon and say so.
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
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from verticil.party import office
from verticil.party.config import PartyConfig, load_party, require_marked_authority
from verticil.party.control.database import DaemonLock
from verticil.party.control.site import Site
from verticil.party.control.state import Heartbeat, stamp
from verticil.party.custody.reckoning import reckon
from verticil.party.evidence.audit import Event, What
from verticil.party.exchange.delivery import Delivery, Node
from verticil.party.exchange.disclosure import outward
from verticil.party.exchange.spool import Spool
from verticil.party.exchange.told import sub_model_event, task_of, understood
from verticil.party.gauges import party_gauges
from verticil.party.peer.calls import Peers
from verticil.party.peer.network import GrpcNetwork, PeerNetwork
from verticil.party.peer.node import PeerNode
from verticil.party.peer.shelf import Shelf
from verticil.party.peer.steps.turn import Work
from verticil.party.relay.network import RelayNetwork
from verticil.party.retry import DIALLED_AGAIN, ENDS_THE_DAEMON, TRIED_AGAIN, Backoff
from verticil.shared import logs
from verticil.shared.errors import InternalFault, Misuse, PeerFault, VerticilError
from verticil.shared.membership.current import FollowedCredentials
from verticil.shared.membership.revocation import FILE_NAME, DenyList
from verticil.shared.release.joint import software_text
from verticil.shared.transport.access import NOBODY_REVOKED, Revocations
from verticil.shared.transport.client import Connection
from verticil.shared.transport.coordinator import Coordinator
from verticil.shared.transport.errors_on_wire import to_detail, without_text
from verticil.shared.transport.identity import Role
from verticil.shared.transport.metrics import Metrics
from verticil.shared.transport.pki import CredentialSource, load_credentials, utc_now
from verticil.shared.transport.remote import GrpcCoordinator
from verticil.shared.transport.signing import SigningKey
from verticil.shared.transport.version import greet
from verticil.wire.v1 import coordinator_pb2

__all__ = ["Backoff", "CoordinatorFactory", "PartyNode", "dial", "probe", "run_party"]

CoordinatorFactory = Callable[[], Coordinator]

POLL_SECONDS: Final = 30
WATCH_SECONDS: Final = 0.3
BEAT_SECONDS: Final = 30
"""What the database can hold."""

_log = logging.getLogger(__name__)


def dial(config: PartyConfig, credentials: CredentialSource, revocations: Revocations = NOBODY_REVOKED) -> Coordinator:
    """A connection to the miner over gRPC with mutual TLS. Call it in the event loop that uses it."""
    federation = config.federation
    connection = Connection(
        federation.miner_endpoint,
        credentials,
        idle_timeout_seconds=federation.idle_timeout_seconds,
        revocations=revocations,
    )
    return GrpcCoordinator(connection)


async def run_party(
    config: PartyConfig,
    coordinator_factory: CoordinatorFactory | None = None,
    *,
    peers: PeerNetwork | None = None,
    started: Callable[[int], None] | None = None,
    simulation: bool = False,
    seed_derived: bool = False,
    accept_older: bool = False,
    stop: asyncio.Event,
    clock: Callable[[], dt.datetime] = utc_now,
) -> None:
    """Serve until `stop` is set.

    Args:
        config: party.toml.
        coordinator_factory: makes a connection to the miner for each attempt; None: over gRPC, where the federation has a miner.
        peers: joins this party with its peers; None: over gRPC, where party.toml has ``[peer]``.
        started: told the port at which peers are served.
        simulation: releases of studies between peers say that everything ran on one machine.
        seed_derived: they say that the parties' secrets come from a seed.
        accept_older: charge what the miner has and the ledger does not know, in place of refusing to go on.
        stop: ends the daemon in good order.
        clock: UTC now.

    Raises:
        Misuse: CONFIG_INVALID, automatic approval under an ordinary CA, or there is neither a miner nor a ``[peer]`` table;
            FILE_MISSING.
        DataFault: SECRET_MISSING, STATE_CORRUPT, STATE_LOCKED, DISK_FULL.
        Refusal: LEDGER_OLDER, the state is older than what was sent.
        PeerFault: CERTIFICATE_INVALID, IDENTITY_REFUSED, TLS_REFUSED, VERSION_UNSUPPORTED: what no retry mends.
    """
    credentials = load_credentials(
        config.certificate, config.key, config.federation, role=Role.PARTY, name=config.name, at=clock()
    )
    require_marked_authority(config, is_demo=credentials.is_demo)
    signing_key = SigningKey.load(config.signing_key, config.certificate)
    followed = FollowedCredentials(credentials, config.federation, clock=clock)
    revocations = DenyList(
        credentials.ca_pem,
        [config.federation.ca_certificate.with_name(FILE_NAME)],
        kept=config.state_directory / FILE_NAME,
    )
    if coordinator_factory is None:
        # Compiled kernels belong to the daemon's own folder: the program's may be read-only.
        os.environ.setdefault("NUMBA_CACHE_DIR", str(config.state_directory / "cache"))
    if coordinator_factory is None and config.federation.endpoint is not None:
        coordinator_factory = functools.partial(dial, config, followed, revocations)
    metrics = Metrics()
    if peers is None and config.peer is not None:
        peers = GrpcNetwork(config, config.peer, followed, revocations, metrics)
    if peers is not None and config.federation.relays and coordinator_factory is not None:
        peers = RelayNetwork(config, peers, coordinator_factory)
    if coordinator_factory is None and peers is None:
        raise Misuse(
            "CONFIG_INVALID",
            f"{config.path.name}: peer: missing, and federation '{config.federation.name}' has no miner",
            hint="say in [peer] where this party serves its peers: listen and advertise",
        )
    with await asyncio.to_thread(Site.open, config) as site, contextlib.closing(DaemonLock(config.state_directory)):
        await asyncio.to_thread(_note_start, site, clock())
        node = Node(
            site=site,
            spool=Spool(config.state_directory / "spool"),
            signing_key=signing_key,
            revocations=revocations,
            authority=credentials.ca_pem,
            clock=clock,
        )
        between = None
        if peers is not None:
            work = Work(
                node=node,
                shelf=Shelf(config.state_directory / "peer", site.database),
                peers=Peers(peers, config.federation.name, clock, revocations),
                coordinator=coordinator_factory,
                software=software_text(),
                simulation=simulation,
                seed_derived=seed_derived,
            )
            between = PeerNode(work, peers, started=started)
        with contextlib.ExitStack() as ending, logs.fields(party=config.name):
            if config.metrics is not None:
                metrics.read(functools.partial(party_gauges, site, followed))
                ending.callback(metrics.serve(config.metrics).close)
            await PartyNode(node, coordinator_factory, peers=between, accept_older=accept_older).run(stop)


def _note_start(site: Site, at: dt.datetime) -> None:
    """Write into the audit log with which configuration and certificate the daemon runs, if they are new."""
    site.note_configuration(at)
    site.audit.note(What.CERTIFICATE, hashlib.sha256(site.config.certificate.read_bytes()).digest(), at)


def probe(path: Path) -> str:
    """Whether the daemon of the party.toml at `path` lives; see `verticil.party.office.probe`."""
    return office.probe(load_party(path))


class PartyNode:
    """One running party.

    Args:
        node: opened state, spool, keys.
        coordinator_factory: makes a connection to the miner for each attempt; None: there is no miner.
        peers: its peers' side; None: it has no peers.
        backoff: waiting times between attempts.
        accept_older: see `run_party`.
    """

    def __init__(
        self,
        node: Node,
        coordinator_factory: CoordinatorFactory | None,
        *,
        peers: PeerNode | None = None,
        backoff: Backoff | None = None,
        accept_older: bool = False,
    ) -> None:
        self._accept_older = accept_older
        self._node = node
        self._state = node.site.state
        self._factory = coordinator_factory
        self._peers = peers
        self._backoff = backoff if backoff is not None else Backoff()
        self._problem = ""
        self._deliveries: dict[bytes, Delivery] = {}
        self._wake: dict[bytes, asyncio.Event] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; raises as `run_party`."""
        serving: list[asyncio.Task[None]] = [asyncio.create_task(self._watch())]
        if self._factory is not None:
            serving.append(asyncio.create_task(self._serve(self._factory)))
        else:
            serving.append(asyncio.create_task(self._beat_alone()))
        if self._peers is not None:
            serving.append(asyncio.create_task(self._peers.run()))
        stopping = asyncio.create_task(_until(stop))
        try:
            await asyncio.wait({*serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in serving:
                if task.done():
                    await task
        finally:
            for task in (*serving, stopping):
                task.cancel()
            await asyncio.gather(*serving, stopping, return_exceptions=True)
            await self._beat(connected=False, problem=self._problem, pid=0)
        _log.info("stopped")

    async def _serve(self, factory: CoordinatorFactory) -> None:
        while True:
            coordinator, pause = factory(), 0.0
            try:
                await self._session(coordinator)
            except VerticilError as error:
                if error.code not in DIALLED_AGAIN:
                    _log.error("cannot go on: %s", error)
                    await self._beat(connected=False, problem=error.code)
                    raise
                pause = self._backoff.next_seconds()
                _log.warning("%s; trying again in %.1f s", error, pause)
                await self._beat(connected=False, problem=error.code)
            finally:
                await coordinator.close()
            await asyncio.sleep(pause)

    async def _session(self, coordinator: Coordinator) -> None:
        """One connection: greet, then poll, work and watch until something breaks it."""
        epoch = await self._greet(coordinator)
        failure: list[VerticilError] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_caught(self._poll(coordinator, epoch, group, failure), failure))
        except ExceptionGroup:
            if failure:
                raise failure[0] from None
            raise
        finally:
            self._wake.clear()

    async def _greet(self, coordinator: Coordinator) -> int:
        """Begin a session; returns the epoch of the lease that the miner gives it."""
        number, session = self._node.revocations.number(), secrets.randbits(63) | 1
        reply = await greet(
            coordinator.hello, who="the miner", at=self._node.clock, deny_list_number=number, session=session
        )
        if reply.federation != self._node.site.config.federation.name:
            raise Misuse(
                "CONFIG_INVALID",
                f"the miner serves federation '{reply.federation}', expected '{self._node.site.config.federation.name}'",
                hint="check [miner] endpoint in federation.toml",
            )
        await self._hear_of_revoked(reply.deny_list)
        _log.info("connected to the miner")
        return reply.epoch

    async def _hear_of_revoked(self, deny_list: bytes) -> None:
        """Take the deny-list that the miner tells; a list that is not the authority's changes nothing."""
        if deny_list:
            try:
                await asyncio.to_thread(self._node.revocations.offer, deny_list)
            except PeerFault as fault:
                _log.warning("from the miner: %s", fault)

    # ---- polling

    async def _poll(
        self, coordinator: Coordinator, epoch: int, group: asyncio.TaskGroup, failure: list[VerticilError]
    ) -> None:
        known: dict[bytes, int] = {}  # empty on a new connection: the miner tells everything once
        heard: list[bytes] = []
        first = True  # until all has been told; nothing is sent before, for it may show that the ledger has forgotten something
        while True:
            request = coordinator_pb2.PollRequest(
                known=[coordinator_pb2.KnownStudy(study_digest=k, version=v) for k, v in known.items()],
                wait_seconds=0 if first else POLL_SECONDS,
                epoch=epoch,
                deny_list_number=self._node.revocations.number(),
            )
            reply = await coordinator.poll(request)
            first = first and bool(reply.tasks)
            self._backoff.reset()
            await self._hear_of_revoked(reply.deny_list)
            await self._beat(connected=True)
            for task in reply.tasks:
                fresh = task.study_digest not in known
                known[task.study_digest] = task.version
                if await self._remember(coordinator, task, fresh=fresh):
                    heard.append(task.study_digest)
            while heard and not first:
                self._rouse(coordinator, heard.pop(0), group, failure)

    async def _remember(self, coordinator: Coordinator, told: coordinator_pb2.StudyTask, *, fresh: bool) -> bool:
        """Store what the miner tells of a study; False when it is not a study that this party can understand."""
        try:
            name, authority = self._node.site.config.name, self._node.authority
            study = await asyncio.to_thread(understood, told, name, authority=authority)
        except VerticilError as error:
            _log.warning("study %s cannot be served: %s", told.study_digest[:32].hex(), error)
            report = coordinator_pb2.ReportRequest(study_digest=told.study_digest, failure=to_detail(outward(error)))
            with contextlib.suppress(VerticilError):
                await coordinator.report(report)
            return False
        task = task_of(told)

        def store() -> None:
            site, at = self._node.site, self._node.clock()
            if not self._state.knows(task.digest):
                site.audit.record(Event(what=What.STUDY_SEEN, who="miner", study=task.digest, study_id=study.id), at)
            self._remember_sub_model(told, study.id, at)
            self._state.remember(task, study.id, at)
            if study.publish is not None and len(told.review_manifest_sha256) == 32:
                site.minutes.ask_for_review(task.digest, told.review_manifest_sha256)
            if fresh:
                self._state.reconcile(task.digest, task.units_received)
            if told.HasField("deletion"):
                site.revocations.take_deletion(
                    task.digest, study.id, told.deletion, authority=self._node.authority, at=at
                )
            deletion = site.revocations.deletion(task.digest)
            deleted = deletion.artifacts if deletion is not None else ()
            reckon(site, task, deleted=tuple(deleted), accept_older=self._accept_older, at=at)

        await asyncio.to_thread(store)
        return True

    def _remember_sub_model(self, told: coordinator_pb2.StudyTask, study_id: str, at: dt.datetime) -> None:
        """Write down that a study goes on without parties, when that is news."""
        event, known = sub_model_event(told, study_id), self._state.knows(told.study_digest)
        if event and not (
            known and self._state.study(told.study_digest).task.effective_digest == told.effective_digest
        ):
            self._node.site.audit.record(event, at)

    async def _watch(self) -> None:
        """Rouse all studies when another process (approve, deny, load) has written to the database."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                changed = await asyncio.to_thread(self._node.site.database.changed)
            except VerticilError as error:
                if error.code in ENDS_THE_DAEMON:
                    raise
                continue
            if changed:
                await self._stop_transfers()
                for event in self._wake.values():
                    event.set()
                if self._peers is not None:
                    self._peers.rouse()

    async def _stop_transfers(self) -> None:
        """Somebody may have revoked or denied a study while it is being sent."""
        with contextlib.suppress(VerticilError):  # looked at again when the step is planned
            for digest in await asyncio.to_thread(self._node.site.revocations.stopped):
                if digest in self._deliveries:
                    self._deliveries[digest].stop_transfer()

    async def _beat_alone(self) -> None:
        """Without a miner nothing else tells that the daemon lives."""
        while True:
            await self._beat(connected=True)
            await asyncio.sleep(BEAT_SECONDS)

    # ---- working

    def _rouse(
        self, coordinator: Coordinator, digest: bytes, group: asyncio.TaskGroup, failure: list[VerticilError]
    ) -> None:
        if digest not in self._wake:
            self._wake[digest] = asyncio.Event()
            group.create_task(_caught(self._work(coordinator, digest, self._wake[digest]), failure))
        self._wake[digest].set()

    async def _work(self, coordinator: Coordinator, digest: bytes, wake: asyncio.Event) -> None:
        """Do a study's steps whenever something about it changed."""
        delivery = self._deliveries.setdefault(digest, Delivery(self._node, digest))
        backoff = Backoff()
        with logs.fields(study=digest.hex()[:12]):
            while True:
                await wake.wait()
                wake.clear()
                try:
                    while await delivery.step(coordinator):
                        backoff.reset()
                except VerticilError as error:
                    if await self._try_again(error, digest):
                        await _either(wake, backoff.next_seconds())
                        wake.set()
                except Exception as error:  # noqa: BLE001 (one study's fault must not stop the others; the text may hold data)
                    fault = without_text(error, method="study")
                    here = InternalFault(
                        "INTERNAL", fault.message.replace("the other side", "this party"), hint=fault.hint
                    )
                    await self._fail(digest, here)
                    await asyncio.sleep(backoff.next_seconds())  # a step that fails whatever is tried must not spin

    async def _try_again(self, error: VerticilError, digest: bytes) -> bool:
        """What an error means for a study. True: wait a while and repeat the step; False: the study's turn comes by itself."""
        if error.code in ENDS_THE_DAEMON - {"CONFIG_INVALID"}:  # one study's declaration must not stop the others
            raise error
        if error.code == "NOT_READY":
            return False  # the next version of the study's task rouses us
        record = await asyncio.to_thread(self._state.study, digest)
        if error.code in TRIED_AGAIN:
            _log.warning("%s; trying again", error)
            with contextlib.suppress(VerticilError):
                stage = f"trying again: {error.code}"
                await asyncio.to_thread(self._state.show, digest, stage, record.percent, at=self._node.clock())
            return True
        if record.failure is None:
            await self._fail(digest, error)
        else:
            # The miner does not want to hear of the failure: the study is gone, or has ended otherwise.
            _log.warning("the failure could not be told: %s", error)
            await asyncio.to_thread(self._state.failure_told, digest)
        return False

    async def _fail(self, digest: bytes, error: VerticilError) -> None:
        _log.error("the study cannot go on: %s", error)
        await asyncio.to_thread(self._node.fail, digest, error)
        self._wake[digest].set()

    async def _beat(self, *, connected: bool, problem: str = "", pid: int | None = None) -> None:
        self._problem = problem
        own = os.getpid() if pid is None else pid
        heartbeat = Heartbeat(pid=own, at=stamp(self._node.clock()), connected=connected, problem=problem)
        with contextlib.suppress(VerticilError):  # a full disk shows up where it matters
            await asyncio.to_thread(self._state.beat, heartbeat)


class _SessionOverError(Exception):
    """Ends the other tasks of a session; the error itself is kept beside it."""


async def _caught(work: Awaitable[None], failure: list[VerticilError]) -> None:
    try:
        await work
    except VerticilError as error:
        failure.append(error)
        raise _SessionOverError from None


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


async def _either(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()

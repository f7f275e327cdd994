"""One running party: dials the miner again and again, polls, and serves its peers beside.

Order within a connection: greet, then poll; nothing is sent for a study before the first poll has brought all, because that
may show that the ledger has forgotten something.

Nothing that a miner says ends the daemon. An error that it sends, a reply that is no reply or another federation's name closes
the connection, which is dialled again with backoff; a task that is none is refused, and the other studies go on. Replies that
come faster than they were asked for, or bring nothing new, are waited out (`Pace`). Only this machine's own faults end the
daemon: its configuration, its state, its certificate.

Of all studies between peers at this party there is one task for each, beside the service that answers the peers. A study's work
goes on whenever somebody of this site has written to the database, and else after a wait: nothing is pushed, so a peer's progress
is found by asking. The wait is short at first and grows, to a few seconds, with the time that nothing has changed at those who
are waited for, so that what they do is noticed after a fraction of the time that it took them. What goes wrong with one study is
recorded and sent to its peers; the others go on. A study that has ended is looked at again only when somebody of this site has
written to the database. So beside the studies one task asks for the receipts of what peers deleted after a revocation here: they
may come days later.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import secrets
from collections.abc import Callable
from typing import Final

from verticil.party.audit.log import Event, What
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.engine import Engine, keep_failure
from verticil.party.protocol.node.confirmations import collect_confirmations
from verticil.party.protocol.node.peer_reckoning import PeerReckoning
from verticil.party.protocol.node.registry import study_of_miner, study_of_parties
from verticil.party.protocol.node.service import PeerService
from verticil.party.protocol.node.task_ingest import end_forgotten, has_room, missing, read_proposal, remember
from verticil.party.protocol.outgoing_errors import redact_error
from verticil.party.protocol.retry import Backoff, Pace, between_looks, ends_the_daemon
from verticil.party.protocol.with_miner.study import CoordinatedStudy
from verticil.party.protocol.with_peers.context import PeerContext
from verticil.party.protocol.with_peers.network import PeerNetwork
from verticil.party.storage.studies import Heartbeat, stamp
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.membership.current import certificate_state
from verticil.shared.federation.transport.errors_on_wire import shorten, to_detail, without_text
from verticil.shared.federation.transport.interface import Coordinator
from verticil.shared.federation.transport.version import greet
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.states import State, is_final
from verticil.wire.v1 import coordinator_pb2

CoordinatorFactory = Callable[[], Coordinator]

POLL_SECONDS: Final = 30
WATCH_SECONDS: Final = 0.3
SWEEP_SECONDS: Final = 600
"""Between two looks for rounds of messages whose study is over, where nobody has written to the database."""
BEAT_SECONDS: Final = 30
STEADY_SECONDS: Final = 2.0
"""A connection that answers polls for so long has worked: the next one is dialled at once."""
FIRST_REPLIES: Final = 100
"""After so many replies that are full to the end, work begins though the miner may have more to send."""
MOST_TOLD: Final = 20_000
"""Studies that one connection may bring: what is known of them goes back with each poll."""
MOST_NAMED: Final = 200
"""Studies that the log names, each with what was wrong with it; of further ones the audit log has the count."""

_DIGEST_BYTES: Final = 32
_FINAL: Final = frozenset(int(state) for state in State if is_final(state))
_CONTESTED_SECONDS: Final = 300
"""Two daemons with one certificate take the session from each other: each waits longer and longer, until people stop one."""

_log = logging.getLogger(__name__)


class PeerNode:
    """The peers' side of a running party.

    Args:
        between: what all studies share.
        network: how peers reach this party.
        on_start: called when peers are served, with the port, where there is one.
        accept_older: write back what the peers prove that they have of this party, in place of refusing to go on.

    Attributes:
        between: as given.
    """

    def __init__(
        self,
        between: PeerContext,
        network: PeerNetwork,
        *,
        on_start: Callable[[int | None], None] | None = None,
        accept_older: bool = False,
    ) -> None:
        self.between = between
        self._network = network
        self._accept_older = accept_older
        self._on_start = on_start
        self._engine = Engine(between.node, functools.partial(study_of_parties, between), backoff=between_looks)
        self._changed = asyncio.Event()
        self._written = asyncio.Event()

    def wake(self) -> None:
        """Somebody of this site has written to the database."""
        self._changed.set()
        self._written.set()
        self._engine.wake_all()

    async def run(self) -> None:
        """Serve and work until cancelled.

        Raises:
            VerticilError: what no retry mends at this machine.
        """
        node, peers = self.between.node, self.between.peers
        service = PeerService(node, self.between.store, software=self.between.software, rounds=self.between.rounds)
        failure: list[VerticilError] = []
        try:
            async with self._network.serve(service) as port:
                if self._on_start is not None:
                    self._on_start(port)
                reckoning = PeerReckoning(self.between, accept_older=self._accept_older)
                await reckoning.begin()
                async with asyncio.TaskGroup() as group:
                    group.create_task(keep_failure(reckoning.run, failure))
                    group.create_task(keep_failure(self._collect_confirmations, failure))
                    while True:
                        for digest in await asyncio.to_thread(self._studies):
                            if not self._engine.knows(digest):
                                self._engine.wake(digest, group, failure)
                        await self._changed.wait()
                        self._changed.clear()
        except ExceptionGroup:
            if failure:
                raise failure[0] from None
            raise
        finally:
            self._engine.forget()
            await peers.close()

    async def _collect_confirmations(self) -> None:
        """Ask the peers for the receipts of what they deleted after a revocation of this party, until all have confirmed."""
        backoff = between_looks()
        while True:
            self._written.clear()
            try:
                is_complete = await collect_confirmations(self.between)
            except VerticilError as error:
                if ends_the_daemon(error):
                    raise
                _log.warning("%s; trying again", error)
                is_complete = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if is_complete else backoff.next_seconds()):
                    await self._written.wait()
                    backoff.reset()

    def _studies(self) -> list[bytes]:
        return [
            record.digest
            for record in self.between.node.site.state.studies()
            if not protocol_of(record.task.proposal_study).coordinated
        ]


class PartyNode:
    """One running party.

    Args:
        node: opened state, spool, keys.
        coordinator_factory: makes a connection to the miner for each attempt; None: there is no miner.
        peers: its peers' side; None: it has no peers.
        accept_older: see `run_party`.
    """

    def __init__(
        self,
        node: PartyContext,
        coordinator_factory: CoordinatorFactory | None,
        *,
        peers: PeerNode | None = None,
        accept_older: bool = False,
    ) -> None:
        self._accept_older = accept_older
        self._node = node
        self._state = node.site.state
        self._factory = coordinator_factory
        self._peers = peers
        self._backoff = Backoff()
        self._contested = Backoff(growth=4.0, longest_seconds=_CONTESTED_SECONDS)
        self._problem = ""
        self._warned = ""  # the words of the last warning since the miner was reached
        between = None if peers is None else peers.between
        self._engine = Engine(node, functools.partial(study_of_miner, node, between))
        self._named: set[tuple[bytes, str]] = set()

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
            await self._beat(is_connected=False, problem=self._problem, pid=0)
        _log.info("stopped")

    async def _serve(self, factory: CoordinatorFactory) -> None:
        while True:
            coordinator, pause = factory(), 0.0
            try:
                await self._session(coordinator)
            except VerticilError as error:
                if ends_the_daemon(error) or await self._has_expired(error):
                    _log.error("cannot go on: %s", error)
                    await self._beat(is_connected=False, problem=error.code)
                    raise
                is_replaced = error.code == "SESSION_REPLACED"
                pause = (self._contested if is_replaced else self._backoff).next_seconds()
                self._warn(str(error), pause)
                await self._beat(is_connected=False, problem=error.code)
            finally:
                await coordinator.close()
            await asyncio.sleep(pause)

    def _warn(self, problem: str, pause_seconds: float) -> None:
        """Log a warning, once for as long as the miner is away for the same reason; further attempts go to the debug log."""
        level = logging.DEBUG if problem == self._warned else logging.WARNING
        self._warned = problem
        _log.log(level, "%s; trying again in %.1f s, then with a longer pause", problem, pause_seconds)

    async def _has_expired(self, error: VerticilError) -> bool:
        """Return whether the connection failed because this party's own certificate has expired."""
        if error.code != "TLS_REFUSED" or error.teller:
            return False
        state = await asyncio.to_thread(certificate_state, self._node.site.config.certificate, self._node.clock())
        return state is not None and state.warning == 0

    async def _session(self, coordinator: Coordinator) -> None:
        """Serve one connection: greet, then poll, work and watch until something breaks it."""
        epoch = await self._greet(coordinator)
        failure: list[VerticilError] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    keep_failure(functools.partial(self._poll, coordinator, epoch, group, failure), failure)
                )
        except ExceptionGroup as unforeseen:
            if failure:
                raise failure[0] from None
            raise without_text(unforeseen, method="session") from None
        finally:
            self._engine.forget()

    async def _greet(self, coordinator: Coordinator) -> int:
        """Begin a session; returns the epoch of the lease that the miner gives it."""
        number, session = self._node.revocations.number(), secrets.randbits(63) | 1
        reply = await greet(
            coordinator.hello, who="the miner", at=self._node.clock, deny_list_number=number, session=session
        )
        if reply.federation != self._node.site.config.federation.name:
            raise PeerFault(
                "IDENTITY_REFUSED",
                f"the miner serves federation '{shorten(reply.federation, 63)}',"
                f" expected '{self._node.site.config.federation.name}'",
                hint="check [miner] endpoint in federation.toml",
            )
        await self._hear_of_revoked(reply.deny_list)
        _log.info("connected to the miner")
        return reply.epoch

    async def _hear_of_revoked(self, deny_list: bytes) -> None:
        """Take the deny-list that the miner sends; a list that is not the authority's changes nothing."""
        if deny_list:
            try:
                await asyncio.to_thread(self._node.revocations.offer, deny_list)
            except PeerFault as fault:
                await self._count_refusal(fault, "deny-list")

    async def _count_refusal(self, error: VerticilError, what: str, study: bytes = b"") -> bool:
        """Count what the miner said that does not hold; the log names each study once for each fault, the audit log counts.

        Returns:
            Whether it was named.
        """
        event = Event(what=What.REFUSED, who="miner", study=study, detail=f"{what}: {error.code}")
        await asyncio.to_thread(self._node.site.audit.refuse, event, self._node.clock())
        if (study, error.code) in self._named or len(self._named) >= MOST_NAMED:
            return False
        self._named.add((study, error.code))
        _log.warning("from the miner: %s %s: %s", what, study.hex()[:12], error)
        return True

    # ---- polling

    async def _poll(
        self, coordinator: Coordinator, epoch: int, group: asyncio.TaskGroup, failure: list[VerticilError]
    ) -> None:
        versions: dict[bytes, int] = {}  # empty on a new connection: the miner sends everything once
        digests_to_wake: list[bytes] = []
        unread: set[bytes] = set()  # there was no room for them
        pace, start, loop = Pace(), asyncio.get_running_loop().time(), asyncio.get_running_loop()
        missing_rounds: dict[bytes, int] = {}  # which it does not name any more; it is asked whether they have ended
        first = True  # nothing is sent before all has come, for it may show that the ledger has forgotten something
        while True:
            request = coordinator_pb2.PollRequest(
                known=[
                    coordinator_pb2.KnownStudy(study_digest=k, version=v)
                    for k, v in (missing_rounds | versions).items()
                ],
                wait_seconds=0 if first else POLL_SECONDS,
                epoch=epoch,
                deny_list_number=self._node.revocations.number(),
            )
            request_time = loop.time()
            reply = await coordinator.poll(request)
            tasks = [task for task in reply.tasks if versions.get(task.study_digest) != task.version]
            if first and not reply.tasks:
                missing_rounds = await asyncio.to_thread(missing, self._node, versions)
            for digest in missing_rounds.keys() & set(reply.forgotten):
                del missing_rounds[digest]
                await asyncio.to_thread(end_forgotten, self._node, digest)
                digests_to_wake.append(digest)
            first = first and bool(tasks) and pace.replies < FIRST_REPLIES
            if loop.time() - start >= STEADY_SECONDS:
                self._backoff.reset()
                self._warned = ""
            await self._hear_of_revoked(reply.deny_list)
            await self._beat(is_connected=True)
            for task in tasks:
                if len(task.study_digest) != _DIGEST_BYTES:
                    await self._count_refusal(PeerFault("MESSAGE_INVALID", "a digest has 32 bytes"), "task")
                    continue
                fresh = task.study_digest not in versions
                versions[task.study_digest] = task.version
                if await self._take_in(coordinator, task, unread, fresh=fresh):
                    digests_to_wake.append(task.study_digest)
            if len(versions) > MOST_TOLD:
                raise PeerFault("MESSAGE_INVALID", f"the miner lists more than {MOST_TOLD} studies")
            if unread:
                room = await asyncio.to_thread(has_room, self._node.site, self._node.clock())
                for digest in unread if room else ():
                    versions.pop(digest, None)  # so that the miner sends them again
                unread = unread if not room else set()
            while digests_to_wake and not first:
                self._engine.wake(digests_to_wake.pop(0), group, failure, functools.partial(_connect, coordinator))
            await pace.wait(news=bool(tasks) or not request.wait_seconds, seconds=loop.time() - request_time)

    async def _take_in(
        self, coordinator: Coordinator, task: coordinator_pb2.StudyTask, unread: set[bytes], *, fresh: bool
    ) -> bool:
        """Store what the miner sends of a study; False when it is not one that this party can understand and has room for."""
        node, digest = self._node, task.study_digest
        try:
            over = task.state in _FINAL
            if await asyncio.to_thread(self._is_left, task, over=over):
                if not over:
                    unread.add(digest)
                full = PeerFault(
                    "RESOURCE_EXHAUSTED", "more undecided studies than policy.max_open_studies are not kept"
                )
                await self._count_refusal(full, "further studies")
                return False
            study = await asyncio.to_thread(read_proposal, node, task)
        except VerticilError as error:
            return await self._not_taken(coordinator, error, digest, fresh=fresh)
        except Exception as error:  # noqa: BLE001 (a task that nobody foresaw must not stop the others)
            return await self._not_taken(coordinator, without_text(error, method="task"), digest, fresh=fresh)
        try:
            return await asyncio.to_thread(remember, node, task, study, fresh=fresh, accept_older=self._accept_older)
        except PeerFault as error:
            return await self._not_taken(coordinator, error, digest, fresh=fresh)

    async def _not_taken(self, coordinator: Coordinator, error: VerticilError, digest: bytes, *, fresh: bool) -> bool:
        """Refuse a task; the miner receives the reason, once on a connection and whenever the log names a new fault."""
        if await self._count_refusal(error, "study", digest) or fresh:
            report = coordinator_pb2.ReportRequest(study_digest=digest, failure=to_detail(redact_error(error)))
            with contextlib.suppress(VerticilError):
                await coordinator.report(report)
        return False

    def _is_left(self, task: coordinator_pb2.StudyTask, *, over: bool) -> bool:
        """Return whether a new study stays unread for lack of room; a task that reports columns of ours is always read."""
        site = self._node.site
        if task.units_received or task.HasField("deletion") or site.state.knows(task.study_digest):
            return False
        return not has_room(site, self._node.clock(), over=over)

    async def _watch(self) -> None:
        """Wake all studies when another process (approve, deny, load) has written to the database."""
        last_sweep, loop = -float(SWEEP_SECONDS), asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                has_changed = await asyncio.to_thread(self._node.site.database.changed)
                if self._peers is not None and (has_changed or loop.time() - last_sweep >= SWEEP_SECONDS):
                    last_sweep = loop.time()
                    for rounds in self._peers.between.rounds:
                        await asyncio.to_thread(
                            rounds.end_over, self._node.site, self._node.clock(), self._engine.knows
                        )
            except VerticilError as error:
                if ends_the_daemon(error):
                    raise
                continue
            if has_changed:
                await self._engine.stop_transfers()
                self._engine.wake_all()
                if self._peers is not None:
                    self._peers.wake()

    async def _beat_alone(self) -> None:
        """Show that the daemon lives where there is no miner, whose calls show it elsewhere."""
        while True:
            await self._beat(is_connected=True)
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self, *, is_connected: bool, problem: str = "", pid: int | None = None) -> None:
        self._problem = problem
        own = os.getpid() if pid is None else pid
        heartbeat = Heartbeat(pid=own, at=stamp(self._node.clock()), connected=is_connected, problem=problem)
        try:
            await asyncio.to_thread(self._state.beat, heartbeat)
            self._node.waiting.note("heartbeat", None)
        except VerticilError as error:
            self._node.waiting.note("heartbeat", error)


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


def _connect(coordinator: Coordinator, study: CoordinatedStudy) -> None:
    study.coordinator = coordinator

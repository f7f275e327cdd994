"""One running party: dials the miner again and again, polls, and serves its peers beside.

Order within a connection: greet, then poll; nothing is sent for a study before the first poll has told everything, because that
may show that the ledger has forgotten something.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Callable
from typing import Final

from verticil.party.control.state import Heartbeat, stamp
from verticil.party.exchange.delivery import Node
from verticil.party.exchange.disclosure import outward
from verticil.party.exchange.told import remember, understood
from verticil.party.peer.node import PeerNode
from verticil.party.retry import DIALLED_AGAIN, ENDS_THE_DAEMON, Backoff
from verticil.party.running.working import Working, caught
from verticil.shared.errors import Misuse, PeerFault, VerticilError
from verticil.shared.transport.coordinator import Coordinator
from verticil.shared.transport.errors_on_wire import to_detail
from verticil.shared.transport.version import greet
from verticil.wire.v1 import coordinator_pb2

__all__ = ["CoordinatorFactory", "PartyNode"]

CoordinatorFactory = Callable[[], Coordinator]

POLL_SECONDS: Final = 30
WATCH_SECONDS: Final = 0.3
BEAT_SECONDS: Final = 30
_CONTESTED_SECONDS: Final = 300
"""Two daemons with one certificate take the session from each other: each waits longer and longer, until people stop one."""

_log = logging.getLogger(__name__)


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
        self._contested = Backoff(growth=4.0, longest_seconds=_CONTESTED_SECONDS)
        self._problem = ""
        self._working = Working(node)

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
                replaced = error.code == "SESSION_REPLACED"
                pause = (self._contested if replaced else self._backoff).next_seconds()
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
                group.create_task(caught(self._poll(coordinator, epoch, group, failure), failure))
        except ExceptionGroup:
            if failure:
                raise failure[0] from None
            raise
        finally:
            self._working.forget()

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
                if await self._take_in(coordinator, task, fresh=fresh):
                    heard.append(task.study_digest)
            while heard and not first:
                self._working.rouse(coordinator, heard.pop(0), group, failure)

    async def _take_in(self, coordinator: Coordinator, told: coordinator_pb2.StudyTask, *, fresh: bool) -> bool:
        """Store what the miner tells of a study; False when it is not a study that this party can understand."""
        node = self._node
        try:
            study = await asyncio.to_thread(
                understood, told, node.site.config.name, authority=node.authority, revoked=node.revocations.since()
            )
        except VerticilError as error:
            _log.warning("study %s cannot be served: %s", told.study_digest[:32].hex(), error)
            report = coordinator_pb2.ReportRequest(study_digest=told.study_digest, failure=to_detail(outward(error)))
            with contextlib.suppress(VerticilError):
                await coordinator.report(report)
            return False
        await asyncio.to_thread(remember, node, told, study, fresh=fresh, accept_older=self._accept_older)
        return True

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
                await self._working.stop_transfers()
                self._working.rouse_all()
                if self._peers is not None:
                    self._peers.rouse()

    async def _beat_alone(self) -> None:
        """Without a miner nothing else tells that the daemon lives."""
        while True:
            await self._beat(connected=True)
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self, *, connected: bool, problem: str = "", pid: int | None = None) -> None:
        self._problem = problem
        own = os.getpid() if pid is None else pid
        heartbeat = Heartbeat(pid=own, at=stamp(self._node.clock()), connected=connected, problem=problem)
        with contextlib.suppress(VerticilError):  # a full disk shows up where it matters
            await asyncio.to_thread(self._state.beat, heartbeat)


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()

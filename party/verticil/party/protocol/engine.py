"""The one engine: each study in a task of its own, steps planned purely, done idempotently, failures handled once.

How a protocol is written
- A pure planner says what comes next (`verticil.party.protocol.planning.Plan`), from what this party remembers and nothing else.
- A `StudyRun` reads what is remembered (`planned`) and does one step (`act`). Every step leads to a state in which it is not
  planned again, or can be repeated without harm, because the process may be killed between any two statements.
- A step that cannot be done now raises one of `verticil.party.protocol.planning`, or returns whom it waits for.

What the engine promises, whatever the protocol
- A study's fault is that study's. It is written down once (`PartyContext.fail`), shown in ``status``, and the planner has it
sent; the
  others go on. Only what makes the whole daemon useless (`ends_the_daemon`) is raised; what another node says never is.
- What time or people elsewhere mend (`StudyRun.waited_out`) is tried again after a growing wait, and shown meanwhile.
- A full disk of this machine makes the daemon unhealthy while it lasts (`PartyContext.waiting`).
- When the table is another than the one that was approved, the data are dropped and the approval is asked for again.
- A transfer is broken off when the study is revoked or denied.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Set
from enum import Enum, StrEnum
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from verticil.party.audit.log import Event, What
from verticil.party.dataset.blinding import BlindingState
from verticil.party.policy.approval_checks import AUTOMATIC
from verticil.party.policy.rule_approval import approve_by_rule
from verticil.party.protocol.context import DatasetCache, PartyContext
from verticil.party.protocol.planning import (
    REST,
    AskedAgainError,
    LostError,
    PeerFailedError,
    Plan,
    StoppedError,
    WaitedForError,
)
from verticil.party.protocol.retry import TRIED_AGAIN, Backoff, ends_the_daemon, is_waited_out
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core import logs
from verticil.shared.core.errors import InternalFault, VerticilError
from verticil.shared.federation.audit import DAEMON
from verticil.shared.federation.transport.errors_on_wire import without_text

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Outcome(Enum):
    """What came of a step."""

    DONE = "done"
    WAITING = "waiting"
    ENDED = "ended"


class Meaning(Enum):
    """What an error of this party's step means for the study."""

    ENDS_THE_DAEMON = "only a person at this machine can mend it"
    OTHERS_TURN = "it is done when others have gone on"
    TRIED_AGAIN = "time, or people elsewhere, mend it"
    FAILS = "the study cannot go on here"
    UNTOLD = "the study had failed here, and the other side does not want to hear of it"


def meaning_of(error: VerticilError, *, waited_out: Set[str], has_failed: bool) -> Meaning:
    """Decide what an error means, in every protocol.

    Args:
        error: with which a step ended.
        waited_out: see `StudyRun`.
        has_failed: the study has failed here before.
    """
    if ends_the_daemon(error) and error.code != "CONFIG_INVALID":  # one study's declaration stops no other
        return Meaning.ENDS_THE_DAEMON
    if error.code == "NOT_READY":
        return Meaning.OTHERS_TURN
    if is_waited_out(error, waited_out):
        return Meaning.TRIED_AGAIN
    return Meaning.UNTOLD if has_failed else Meaning.FAILS


class Transfer:
    """A transfer that can be broken off from outside: a revocation or a denial must not wait for a slow line.

    Stopping is for good, as a revocation and a denial are: a transfer that was about to begin does not. The work runs in a task
    of its own, so that breaking it off ends the call that it waits in, and with it the stream: over gRPC the other side sees a
    cancelled call. What was acknowledged by then is what the other side has. All transfers of one study go through one of these.
    """

    def __init__(self) -> None:
        self._running: asyncio.Task[object] | None = None
        self._stopped = asyncio.Event()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:  # Any: what is sent into a coroutine is asyncio's affair
        """Wait for `work`.

        Raises:
            StoppedError: it was broken off by `stop`, or `stop` came before.
        """
        if self._stopped.is_set():
            work.close()
            raise StoppedError
        task = asyncio.ensure_future(work)
        self._running = task
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopped.is_set() and task.cancelled():
                raise StoppedError from None
            task.cancel()
            raise
        finally:
            self._running = None

    def stop(self) -> None:
        """Break the transfer off, if one runs, and let none begin any more."""
        self._stopped.set()
        if self._running is not None:
            self._running.cancel()


class StudyRun(ABC):
    """One study at this party under one protocol. Steps are done one after the other.

    A protocol writes `planned` and `act`; and, where it needs them, `rest`, `listen`, `overdue` and `untold`.

    Args:
        node: what all studies share.
        digest: SHA-256 of the proposal.

    Attributes:
        waited_out: codes that end no study: its step is tried again.
        looks_again: nothing wakes the study when those who are waited for go on: it is looked at again after a while.
        backoff: makes the waits between looks at it; None: the engine's.
        data: the people's data.
        transfer: what is under way to others.
        waited_for: who was waited for after the last step that ended so, and for what.
    """

    waited_out: ClassVar[Set[str]] = TRIED_AGAIN
    looks_again: bool = True
    backoff: Callable[[], Backoff] | None = None

    def __init__(self, node: PartyContext, digest: bytes) -> None:
        self.node = node
        self.site = node.site
        self.digest = digest
        self.data = DatasetCache(node)
        self.transfer = Transfer()
        self.waited_for = ""
        self._waiting: StrEnum | None = None
        self._for_people = False  # no rule approves it

    # ---- what a protocol writes

    @abstractmethod
    def plan(self) -> tuple[StudyRecord, Plan]:
        """Return what is remembered of the study and the step that follows from it. Blocks."""

    @abstractmethod
    async def act(self, step: StrEnum, record: StudyRecord) -> str | None:
        """Do a step.

        Returns:
            None when it is done; else who is waited for, and for what.

        Raises:
            VerticilError: the step failed; nothing that it did is lost, nothing that it should not do was done.
        """

    @abstractmethod
    async def rest(self, record: StudyRecord) -> Outcome:
        """Say what it means that no step is planned: others are waited for, or the study has ended here."""

    async def listen(self, record: StudyRecord) -> None:
        """Hear, while others are waited for, whether the study has ended at one of them.

        Raises:
            PeerFailedError: it has.
        """
        del record

    def overdue(self, record: StudyRecord, waiting: str) -> VerticilError | None:
        """Return what ends a study that is still waiting after its deadline; None: it may go on waiting."""
        del record, waiting
        return None

    async def untold(self) -> None:
        """Go on after the failure of this party could not be sent: the other side refuses it."""
        return

    # ---- what all protocols share

    async def step(self, *, only: Set[StrEnum] | None = None) -> Outcome:
        """Do the next step.

        Args:
            only: steps that are done; before another one nothing is. None: all.

        Returns:
            Whether something was done, others are waited for (`status` says for whom), or the study has ended here.

        Raises:
            VerticilError: of this party; what is a peer's fault has been recorded and is sent.
        """
        record, next_plan = await asyncio.to_thread(self._plan)
        self._waiting = None
        if next_plan.step.value == REST:
            return await self.rest(record)
        if only is not None and next_plan.step not in only:
            return Outcome.WAITING
        try:
            try:
                waiting = await self.act(next_plan.step, record)
            except WaitedForError as error:
                waiting = str(error)
            if waiting is None:
                return Outcome.DONE
            await self.listen(record)
        except AskedAgainError:
            self.data.drop()
            self._for_people = False
        except StoppedError:
            event = Event(what=What.TRANSFER_STOPPED, who=DAEMON, study=record.digest, study_id=record.study_id)
            await asyncio.to_thread(self.site.audit.record, event, self.node.clock())
        except LostError:
            pass  # what was lost is made or fetched again
        except PeerFailedError as failed:
            await self._fail(failed.error)
        else:
            return await self._wait(record, next_plan.step, waiting)
        return Outcome.DONE

    def _plan(self) -> tuple[StudyRecord, Plan]:
        record, next_plan = self.plan()
        if next_plan.step is not self._waiting:  # else who is waited for is shown on
            self.site.state.show(self.digest, next_plan.stage, at=self.node.clock())
        return record, next_plan

    async def _wait(self, record: StudyRecord, step: StrEnum, waiting: str) -> Outcome:
        """Show who is waited for, unless the study's deadline has passed."""
        if (late := self.overdue(record, waiting)) is not None:
            await self._fail(late)
            return Outcome.DONE
        self._waiting, self.waited_for = step, waiting
        await asyncio.to_thread(self.site.state.show, self.digest, waiting, at=self.node.clock())
        return Outcome.WAITING

    async def _fail(self, error: VerticilError) -> None:
        _log.error("the study has ended: %s", error)
        await asyncio.to_thread(self.node.fail, self.digest, error)

    @property
    def approves_itself(self) -> bool:
        """Whether the approval needs no person here (demo), or the site's rules have not been asked yet."""
        return self.site.config.policy.approval in {"auto", "rules"} and not self._for_people

    async def approve(self, record: StudyRecord) -> None:
        """Approve in the name of a rule, or of the demonstration; where no rule does, people are waited for."""
        at = self.node.clock()
        if self.site.config.policy.approval == "rules":
            self._for_people = await self.node.heavily(lambda: approve_by_rule(self.site.voting, record, at)) is None
            return
        holding = await self.data.read(record)
        await self.node.heavily(lambda: self.site.voting.approve(record, AUTOMATIC, at, holding=holding))

    def drop_data(self) -> None:
        """Drop the people's data, and what is on the disk of their linkage. Blocks."""
        self.data.drop()
        BlindingState(self.site.config.state_directory, self.digest).drop()

    def drop_columns(self) -> None:
        """Drop the people's data and the randomized columns that no other study sends: the study has ended here. Blocks."""
        self.drop_data()
        for sha256 in self.site.state.clear(self.digest):
            self.node.spool.discard(sha256)


R = TypeVar("R", bound=StudyRun)


class Engine(Generic[R]):
    """The studies under way, each in a task of its own. Belongs to one event loop.

    Args:
        node: the party.
        make: makes the work on a study, given its digest, and may block; kept while the engine is.
        backoff: waits between looks at a study; made anew for each.
    """

    def __init__(
        self, node: PartyContext, make: Callable[[bytes], R], *, backoff: Callable[[], Backoff] = Backoff
    ) -> None:
        self._node = node
        self._make = make
        self._backoff = backoff
        self._runs: dict[bytes, R] = {}
        self._wake: dict[bytes, asyncio.Event] = {}

    def knows(self, digest: bytes) -> bool:
        """Return whether the study has, or had, a task since `forget`."""
        return digest in self._wake

    def wake(
        self,
        digest: bytes,
        group: asyncio.TaskGroup,
        failure: list[VerticilError],
        ready: Callable[[R], None] = lambda _run: None,
    ) -> None:
        """Have a study worked on: something about it changed.

        Args:
            digest: the study.
            group: runs the study's task.
            failure: gets what ends the group's other tasks.
            ready: makes the work ready for the group.
        """
        if digest not in self._wake:
            self._wake[digest] = asyncio.Event()
            group.create_task(keep_failure(partial(self._carry_out, digest, self._wake[digest], ready), failure))
        self._wake[digest].set()

    def wake_all(self) -> None:
        """Wake every study: somebody of this site may have decided something."""
        for event in self._wake.values():
            event.set()

    def forget(self) -> None:
        """Forget the tasks: their group has ended."""
        self._wake.clear()

    async def stop_transfers(self) -> None:
        """Break off what is under way of studies that were revoked or denied."""
        with contextlib.suppress(VerticilError):  # looked at again when the step is planned
            for digest in await asyncio.to_thread(self._node.site.revocations.list_stopped):
                if digest in self._runs:
                    self._runs[digest].transfer.stop()

    async def _carry_out(self, digest: bytes, wake: asyncio.Event, ready: Callable[[R], None]) -> None:
        """Do a study's steps; between them, and after the end, wait for others, or for a word of this site's people."""
        if digest not in self._runs:
            self._runs[digest] = await asyncio.to_thread(self._make, digest)
        run, waited_for = self._runs[digest], ""
        backoff = (run.backoff or self._backoff)()
        ready(run)
        with logs.fields(study=digest.hex()[:12]):
            while True:
                wake.clear()
                tried_again = False
                try:
                    outcome = await run.step()
                    self._node.waiting.note(run.digest, None)
                except VerticilError as error:
                    self._node.waiting.note(run.digest, error)
                    outcome, tried_again = Outcome.WAITING, await self._went_wrong(run, wake, error)
                except Exception as error:  # noqa: BLE001 (one study's fault must not stop the others; the text may hold data)
                    fault = without_text(error, method="study")
                    message = fault.message.replace("the other side", "this party")
                    await self._fail(run, InternalFault("INTERNAL", message, hint=fault.hint))
                    outcome, tried_again = Outcome.WAITING, True  # a step that fails whatever is tried must not spin
                if outcome is Outcome.DONE:
                    backoff.reset()
                    continue
                if run.waited_for != waited_for:  # a part of what is waited for has come
                    waited_for = run.waited_for
                    backoff.reset()
                again = tried_again or run.looks_again
                again = again and outcome is not Outcome.ENDED  # it may still be revoked: a wake has it looked at
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(backoff.next_seconds() if again else None):
                        await wake.wait()

    async def _went_wrong(self, run: R, wake: asyncio.Event, error: VerticilError) -> bool:
        """Decide what an error of this party means for a study. Returns whether the step is tried again after a while."""
        state = self._node.site.state
        record = await asyncio.to_thread(state.study, run.digest)
        match meaning_of(error, waited_out=run.waited_out, has_failed=record.failure is not None):
            case Meaning.ENDS_THE_DAEMON:
                raise error
            case Meaning.OTHERS_TURN:
                return False  # the next version of the study's task wakes it
            case Meaning.TRIED_AGAIN:
                _log.warning("%s; trying again", error)
                why = f" (so says {error.teller})" if error.teller else f": {error.message}"
                stage = f"trying again: {error.code}{why}"
                with contextlib.suppress(VerticilError):
                    await asyncio.to_thread(state.show, run.digest, stage, record.percent, at=self._node.clock())
                return True
            case Meaning.FAILS:
                if not await self._fail(run, error):
                    return True
                wake.set()  # what is to be done about it is planned at once
            case Meaning.UNTOLD:
                _log.warning("the failure could not be reported: %s", error)
                await run.untold()
        return False

    async def _fail(self, run: R, error: VerticilError) -> bool:
        """Write down that the study cannot go on. Returns False when the disk is full: the same fault is found again."""
        _log.error("the study cannot go on: %s", error)
        try:
            await asyncio.to_thread(self._node.fail, run.digest, error)
        except VerticilError as full:
            _log.warning("the failure could not be written down: %s", full)
            return False
        return True


class _GroupOverError(Exception):
    """Ends the other tasks of a group; the error itself is kept beside it."""


async def keep_failure(work: Callable[[], Awaitable[None]], failure: list[VerticilError]) -> None:
    """Do the work; an error of ours is kept in `failure`, and ends the other tasks of the group.

    Args:
        work: is called when the task begins: one that is cancelled before leaves no coroutine that nobody awaits.
        failure: where the error is kept.
    """
    try:
        await work()
    except VerticilError as error:
        failure.append(error)
        raise _GroupOverError from None

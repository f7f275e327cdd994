"""All studies between peers at this party: one task for each, and the service that answers the peers.

A study's work goes on whenever somebody of this site has written to the database, and else after a wait: nothing is pushed, so
a peer's progress is found by asking. The wait is short at first and grows, to a few seconds, with the time that nothing has
changed at those who are waited for, so that what they do is noticed after a fraction of the time that it took them. What goes
wrong with one study is recorded and told to its peers; the others go on. Beside the studies one task asks for the receipts of
what peers deleted after a revocation here: a study that has ended is not looked at again, and its receipts may come days later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from typing import Final

from verticil.party.policy import approval
from verticil.party.protocol.peer.held import charge_held
from verticil.party.protocol.peer.network import PeerNetwork
from verticil.party.protocol.peer.service import Answers
from verticil.party.protocol.peer.steps.confirmation import collect_confirmations
from verticil.party.protocol.peer.steps.study import Outcome, PeerStudy
from verticil.party.protocol.peer.steps.turn import Work
from verticil.party.protocol.retry import TRIED_AGAIN, Backoff, ends_the_daemon
from verticil.shared import logs
from verticil.shared.errors import InternalFault, VerticilError
from verticil.shared.transport.errors_on_wire import without_text

FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 5.0
WAIT_GROWTH: Final = 1.3
"""The longest wait is reached after some ten seconds of asking in vain."""

_log = logging.getLogger(__name__)


class PeerNode:
    """The peers' side of a running party.

    Args:
        work: what all studies share.
        network: how peers reach this party.
        started: told when peers are served: the port, where there is one.
        accept_older: charge first what the peers sign that they have of this party.
        backoff: waits between looks at a study; made anew for each.
    """

    def __init__(
        self,
        work: Work,
        network: PeerNetwork,
        *,
        started: Callable[[int | None], None] | None = None,
        accept_older: bool = False,
        backoff: Callable[[], Backoff] = lambda: Backoff(
            first_seconds=FIRST_WAIT_SECONDS, growth=WAIT_GROWTH, longest_seconds=LONGEST_WAIT_SECONDS
        ),
    ) -> None:
        self._work = work
        self._network = network
        self._accept_older = accept_older
        self._started = started
        self._backoff = backoff
        self._wake: dict[bytes, asyncio.Event] = {}
        self._changed = asyncio.Event()
        self._written = asyncio.Event()

    def wake(self) -> None:
        """Somebody of this site has written to the database."""
        self._changed.set()
        self._written.set()
        for event in self._wake.values():
            event.set()

    async def run(self) -> None:
        """Serve and work until cancelled.

        Raises:
            VerticilError: what no retry mends at this machine.
        """
        service = Answers(self._work.node, self._work.shelf, software=self._work.software)
        failure: list[VerticilError] = []
        try:
            async with self._network.serve(service) as port, asyncio.TaskGroup() as group:
                if self._started is not None:
                    self._started(port)
                if self._accept_older:
                    others = await self._charged(
                        [name for name in self._work.node.site.config.federation.peers if name != self._work.me],
                        failure,
                    )
                    group.create_task(self._charged_later(others, failure))
                group.create_task(self._confirmed(failure))
                while True:
                    for digest in await asyncio.to_thread(self._studies):
                        if digest not in self._wake:
                            self._wake[digest] = asyncio.Event()
                            group.create_task(self._caught(digest, failure))
                    await self._changed.wait()
                    self._changed.clear()
        except ExceptionGroup:
            if failure:
                raise failure[0] from None
            raise
        finally:
            self._wake.clear()
            await self._work.peers.close()

    async def _charged(self, names: Collection[str], failure: list[VerticilError]) -> tuple[str, ...]:
        try:
            return await charge_held(self._work.node, self._work.peers, names)
        except VerticilError as error:
            failure.append(error)
            raise

    async def _charged_later(self, names: Collection[str], failure: list[VerticilError]) -> None:
        """Ask again those who did not answer, while this daemon runs."""
        backoff = self._backoff()
        while names:
            await asyncio.sleep(backoff.next_seconds())
            names = await self._charged(names, failure)

    async def _confirmed(self, failure: list[VerticilError]) -> None:
        """Ask the peers for the receipts of what they deleted after a revocation of this party, until all have confirmed."""
        backoff = self._backoff()
        while True:
            self._written.clear()
            try:
                done = await collect_confirmations(self._work)
            except VerticilError as error:
                if ends_the_daemon(error):
                    failure.append(error)
                    raise
                _log.warning("%s; trying again", error)
                done = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if done else backoff.next_seconds()):
                    await self._written.wait()
                    backoff.reset()

    def _studies(self) -> list[bytes]:
        return [
            record.digest
            for record in self._work.node.site.state.studies()
            if approval.parsed(record.task.proposal).model == "peer"
        ]

    async def _caught(self, digest: bytes, failure: list[VerticilError]) -> None:
        with logs.fields(study=digest.hex()[:12]):
            try:
                await self._carry_out(PeerStudy(self._work, digest), digest)
            except VerticilError as error:
                failure.append(error)
                raise

    async def _carry_out(self, study: PeerStudy, digest: bytes) -> None:
        backoff, wake, waited_for = self._backoff(), self._wake[digest], ""
        while True:
            wake.clear()
            try:
                outcome = await study.step()
                self._work.node.waiting.note(digest, None)
            except VerticilError as error:
                self._work.node.waiting.note(digest, error)
                outcome = await self._went_wrong(digest, error)
            except Exception as error:  # noqa: BLE001 (one study's fault must not stop the others; the text may hold data)
                fault = without_text(error, method="study")
                message = fault.message.replace("the other side", "this party")
                outcome = await self._fail(digest, InternalFault("INTERNAL", message, hint=fault.hint))
            if outcome is Outcome.ENDED:
                return
            if outcome is Outcome.DONE:
                backoff.reset()
                continue
            if study.waited_for != waited_for:  # a part of what is waited for has come
                waited_for = study.waited_for
                backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_seconds()):
                    await wake.wait()

    async def _went_wrong(self, digest: bytes, error: VerticilError) -> Outcome:
        """What an error of this party means for a study."""
        if ends_the_daemon(error) and error.code != "CONFIG_INVALID":
            raise error
        if error.code in TRIED_AGAIN:
            _log.warning("%s; trying again", error)
            with contextlib.suppress(VerticilError):
                state = self._work.node.site.state
                stage = f"trying again: {error.code}: {error.message}"
                await asyncio.to_thread(state.show, digest, stage, at=self._work.node.clock())
            return Outcome.WAITING
        return await self._fail(digest, error)

    async def _fail(self, digest: bytes, error: VerticilError) -> Outcome:
        _log.error("the study cannot go on: %s", error)
        with contextlib.suppress(VerticilError):  # a full disk: the same fault is found again
            await asyncio.to_thread(self._work.node.fail, digest, error)
        return Outcome.WAITING  # a step that fails whatever is tried must not spin

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
import functools
import logging
from collections.abc import Callable, Collection
from typing import Final

from verticil.party.policy import approval
from verticil.party.protocol.engine import Engine, caught
from verticil.party.protocol.peer.context import PeerContext
from verticil.party.protocol.peer.held import charge_held, collect_confirmations
from verticil.party.protocol.peer.network import PeerNetwork
from verticil.party.protocol.peer.service import Answers
from verticil.party.protocol.registry import study_of_parties
from verticil.party.protocol.retry import Backoff, ends_the_daemon
from verticil.shared.errors import VerticilError
from verticil.shared.study.protocols import protocol_of

FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 5.0
WAIT_GROWTH: Final = 1.3
"""The longest wait is reached after some ten seconds of asking in vain."""

_log = logging.getLogger(__name__)


class PeerNode:
    """The peers' side of a running party.

    Args:
        between: what all studies share.
        network: how peers reach this party.
        started: told when peers are served: the port, where there is one.
        accept_older: charge first what the peers sign that they have of this party.
        backoff: waits between looks at a study; made anew for each.
    """

    def __init__(
        self,
        between: PeerContext,
        network: PeerNetwork,
        *,
        started: Callable[[int | None], None] | None = None,
        accept_older: bool = False,
        backoff: Callable[[], Backoff] = lambda: Backoff(
            first_seconds=FIRST_WAIT_SECONDS, growth=WAIT_GROWTH, longest_seconds=LONGEST_WAIT_SECONDS
        ),
    ) -> None:
        self._between = between
        self._network = network
        self._accept_older = accept_older
        self._started = started
        self._backoff = backoff
        self._engine = Engine(between.node, functools.partial(study_of_parties, between), backoff=backoff)
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
        node, peers = self._between.node, self._between.peers
        service = Answers(node, self._between.shelf, software=self._between.software)
        failure: list[VerticilError] = []
        try:
            async with self._network.serve(service) as port:
                if self._started is not None:
                    self._started(port)
                silent: Collection[str] = ()
                if self._accept_older:
                    others = [name for name in node.site.config.federation.peers if name != node.me]
                    silent = await charge_held(node, peers, others)
                async with asyncio.TaskGroup() as group:
                    group.create_task(caught(self._charged_later(silent), failure))
                    group.create_task(caught(self._confirmed(), failure))
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

    async def _charged_later(self, names: Collection[str]) -> None:
        """Ask again those who did not answer, while this daemon runs."""
        backoff = self._backoff()
        while names:
            await asyncio.sleep(backoff.next_seconds())
            names = await charge_held(self._between.node, self._between.peers, names)

    async def _confirmed(self) -> None:
        """Ask the peers for the receipts of what they deleted after a revocation of this party, until all have confirmed."""
        backoff = self._backoff()
        while True:
            self._written.clear()
            try:
                done = await collect_confirmations(self._between)
            except VerticilError as error:
                if ends_the_daemon(error):
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
            for record in self._between.node.site.state.studies()
            if not protocol_of(approval.parsed(record.task.proposal)).coordinated
        ]

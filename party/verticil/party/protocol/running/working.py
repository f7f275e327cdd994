"""The studies that the miner asks for, each worked on in a task of its own until it waits for something.

A study's fault is that study's: it is told to the miner and the others go on. Only what makes the whole daemon useless
(`ends_the_daemon`) is raised; what the miner says never is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable

from verticil.party.protocol.central.delivery import Delivery
from verticil.party.protocol.central.node import Node
from verticil.party.protocol.retry import Backoff, ends_the_daemon, is_waited_out
from verticil.shared import logs
from verticil.shared.errors import InternalFault, VerticilError
from verticil.shared.transport.coordinator import Coordinator
from verticil.shared.transport.errors_on_wire import without_text

_log = logging.getLogger(__name__)


class Working:
    """Deliveries under way. Belongs to one event loop.

    Args:
        node: the party.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._state = node.site.state
        self._deliveries: dict[bytes, Delivery] = {}
        self._wake: dict[bytes, asyncio.Event] = {}

    def wake(
        self, coordinator: Coordinator, digest: bytes, group: asyncio.TaskGroup, failure: list[VerticilError]
    ) -> None:
        """Have a study worked on: something about it changed.

        Args:
            coordinator: the connection.
            digest: the study.
            group: runs the study's task, as long as the session.
            failure: gets what ends the session.
        """
        if digest not in self._wake:
            self._wake[digest] = asyncio.Event()
            group.create_task(caught(self._work(coordinator, digest, self._wake[digest]), failure))
        self._wake[digest].set()

    def wake_all(self) -> None:
        """Somebody may have decided something."""
        for event in self._wake.values():
            event.set()

    def forget(self) -> None:
        """The session is over, and its tasks with it."""
        self._wake.clear()

    async def stop_transfers(self) -> None:
        """Somebody may have revoked or denied a study while it is being sent."""
        with contextlib.suppress(VerticilError):  # looked at again when the step is planned
            for digest in await asyncio.to_thread(self._node.site.revocations.stopped):
                if digest in self._deliveries:
                    self._deliveries[digest].stop_transfer()

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
                    self._node.waiting.note(digest, None)
                except VerticilError as error:
                    self._node.waiting.note(digest, error)
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
        if (
            ends_the_daemon(error) and error.code != "CONFIG_INVALID"
        ):  # one study's declaration must not stop the others
            raise error
        if error.code == "NOT_READY":
            return False  # the next version of the study's task wakes us
        record = await asyncio.to_thread(self._state.study, digest)
        if is_waited_out(error):
            _log.warning("%s; trying again", error)
            with contextlib.suppress(VerticilError):
                says = f" (so says {error.teller})" if error.teller else ""
                stage = f"trying again: {error.code}{says}"
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


class _SessionOverError(Exception):
    """Ends the other tasks of a session; the error itself is kept beside it."""


async def caught(work: Awaitable[None], failure: list[VerticilError]) -> None:
    """Do the work; an error of ours is kept in `failure`, and ends the other tasks of the session."""
    try:
        await work
    except VerticilError as error:
        failure.append(error)
        raise _SessionOverError from None


async def _either(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()

"""Daemons as tasks of this process, whose worker threads end with them: of a process that is gone nothing goes on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_Work = set["Future[Any]"]

_WORK: contextvars.ContextVar[_Work] = contextvars.ContextVar("work")
_OF: weakref.WeakKeyDictionary[asyncio.Task[None], _Work] = weakref.WeakKeyDictionary()


class _Threads(ThreadPoolExecutor):
    """Knows for which daemon each piece of work is done."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:  # Any: as the standard library's
        future = super().submit(fn, *args, **kwargs)
        if (work := _WORK.get(None)) is not None:
            work.add(future)
            future.add_done_callback(work.discard)
        return future


def started(daemon: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A daemon's task, whose worker threads `ended` knows."""
    loop, context, work = asyncio.get_running_loop(), contextvars.copy_context(), _Work()
    if not isinstance(getattr(loop, "_default_executor", None), _Threads):
        loop.set_default_executor(_Threads())
    context.run(_WORK.set, work)
    task = loop.create_task(daemon, context=context)
    _OF[task] = work
    return task


async def ended(task: asyncio.Task[None]) -> None:
    """Wait until a daemon that was told to end, or cancelled, does nothing any more, however it ended."""
    await asyncio.gather(task, return_exceptions=True)
    while work := tuple(_OF.get(task, ())):
        await asyncio.to_thread(concurrent.futures.wait, work)


class IdleLearning:
    """An executor of studies whose learning is not the test's matter: a study stays where the last column has arrived."""

    async def run(self, job: object, progress: object) -> bytes:
        """Wait until cancelled."""
        del job, progress
        await asyncio.Event().wait()
        raise AssertionError

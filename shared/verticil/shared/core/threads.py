"""Blocking work of an event loop, in worker threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def to_the_end(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do blocking work in a thread. A thread cannot be stopped: when cancelled, wait for its end, then be cancelled."""

    def done() -> R:
        try:
            return work(*args, **kwargs)
        except StopIteration as error:  # out of a thread it would leave who awaits it waiting for ever
            raise RuntimeError("work ended with StopIteration") from error

    running = asyncio.ensure_future(asyncio.to_thread(done))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise

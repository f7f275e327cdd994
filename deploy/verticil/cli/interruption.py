"""Ctrl-C at a command whose event loop, or a thread of it, waits for a database: the first one ends it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def run_reading(work: Coroutine[Any, Any, T]) -> T:
    """Run what may read a party's tables, as `asyncio.run` does; Ctrl-C breaks off the reads that go on.

    `asyncio.run` alone would wait at the first Ctrl-C until the loop, or the thread that reads, comes back.

    Raises:
        KeyboardInterrupt: by Ctrl-C; and what `work` raises.
    """
    from verticil.party.dataset.sources.reading import Stop, stopped_by

    stop = Stop()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.default_int_handler(number, frame)

    by_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    is_ours = by_default and threading.current_thread() is threading.main_thread()
    if is_ours:
        signal.signal(signal.SIGINT, on_interrupt)
    try:
        with stopped_by(stop):
            return asyncio.run(work)
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

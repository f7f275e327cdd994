"""One read of a database, in a thread of its own: an end of the program breaks it off, and a person hears that it waits.

Promises: who reads waits for the database and for the end of the program at once. When the program ends (`Stop`, or Ctrl-C at a
command), the database is asked to break off, the connection is closed, and the reading ends within `_TO_CLOSE_SECONDS` whatever
the driver does: a thread that a driver holds is left behind, and ends with the process. An answer that takes longer than
`SAID_AFTER_SECONDS` is said once a read, one that takes longer than `LONGEST_SECONDS` is broken off. None of this looks at a
value; how long it takes is the database's affair.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from verticil.party.dataset.sources.source_table import DatasetRule, next_of
from verticil.shared.core.errors import DataFault

T = TypeVar("T")
SAID_AFTER_SECONDS: Final = 5.0
LONGEST_SECONDS: Final = 6 * 3600.0
_TO_CLOSE_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.05
_log = logging.getLogger(__name__)


class Stop:
    """The end of a program, for the reads that it has begun. Set once, for ever."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal may come while this very thread holds it
        self._is_set = False
        self._calls: set[Callable[[], None]] = set()

    def set(self) -> None:
        """Break off the reads that go on, and those that begin later."""
        with self._lock:
            self._is_set = True
            for call in tuple(self._calls):
                call()

    @contextlib.contextmanager
    def calling(self, call: Callable[[], None]) -> Generator[None]:
        """Call a function, which does not block, when the program ends; at once where it has."""
        with self._lock:
            self._calls.add(call)
            if self._is_set:
                call()
        try:
            yield
        finally:
            with self._lock:
                self._calls.discard(call)


_STOP: Final[ContextVar[Stop | None]] = ContextVar("verticil_stop_of_reads", default=None)


@contextlib.contextmanager
def stopped_by(stop: Stop) -> Generator[None]:
    """Let this stop break off what is read inside, in this task and the tasks and threads that it starts."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


class Cancel:
    """How what a database does for one read is broken off from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._call: Callable[[], object] | None = None
        self._is_over = False

    @contextlib.contextmanager
    def by(self, call: Callable[[], object] | None) -> Generator[None]:
        """Break off what goes on inside by this function of the connection, which is not called once the block is left.

        Raises:
            ReadOver: the read was broken off before.
        """
        with self._lock:
            if self._is_over:
                raise ReadOver
            self._call = call
        try:
            yield
        finally:
            with self._lock:
                self._call = None

    def end(self, worker: threading.Thread) -> None:
        """Break off again and again, as a request between two statements meets none, until the thread has ended."""
        for _ in range(round(_TO_CLOSE_SECONDS / _AGAIN_SECONDS)):
            with self._lock:
                self._is_over = True
                if self._call is not None:
                    with contextlib.suppress(Exception):  # of a driver: it has nothing to break off
                        self._call()
            worker.join(_AGAIN_SECONDS)
            if not worker.is_alive():
                return


class ReadOver(Exception):
    """A read was broken off before its connection was made."""


def read(
    rule: DatasetRule, items: Callable[[Cancel], Iterator[T]], *, longest_seconds: float | None = LONGEST_SECONDS
) -> Generator[T]:
    """Yield what a database yields; a thread of its own asks the database.

    Args:
        rule: of the table, for errors.
        items: yields, in that thread; told how others break it off.
        longest_seconds: that one answer may take; None: the database has a limit of its own.

    Raises:
        DataFault: DATA_INTERRUPTED, the program ends, or the answer took too long; and what `items` raises.
    """
    requests, answers, cancel = SimpleQueue[bool](), SimpleQueue["list[T] | BaseException | None"](), Cancel()

    def work() -> None:
        items_or_error = _start_at_request(items, cancel)
        while requests.get():
            try:
                answers.put(next_of(items_or_error))
            except BaseException as error:  # noqa: BLE001  raised anew where it is waited for
                answers.put(error)
        with contextlib.suppress(Exception):  # of a connection that is broken
            items_or_error.close()

    worker = threading.Thread(target=work, name="database", daemon=True)
    stop = _STOP.get() or Stop()
    worker.start()
    waits, is_said = False, False
    try:
        with stop.calling(lambda: answers.put(None)):
            while True:
                requests.put(True)
                waits, start = True, time.monotonic()
                while True:
                    limit = longest_seconds if is_said else SAID_AFTER_SECONDS
                    remaining_seconds = None if limit is None else max(limit - (time.monotonic() - start), 0.0)
                    try:
                        answer = answers.get(timeout=remaining_seconds)
                        break
                    except Empty:
                        pass
                    if is_said:
                        raise _too_long(rule, longest_seconds)
                    is_said = True
                    text = (
                        "%s: waiting for the database, which has not answered for %g seconds: is a table locked there?"
                    )
                    _log.warning(text, rule.name, SAID_AFTER_SECONDS)
                if answer is None:
                    raise _make_ended_fault(rule)
                waits = False
                if isinstance(answer, BaseException):
                    raise answer
                if not answer:
                    return
                yield answer[0]
    finally:
        requests.put(False)
        if waits:
            threading.Thread(target=cancel.end, args=(worker,), name="database-cancel", daemon=True).start()
        worker.join(_TO_CLOSE_SECONDS)


def _start_at_request(items: Callable[[Cancel], Iterator[T]], cancel: Cancel) -> Generator[T]:
    """Yield the items; the first request starts the database's work."""
    yield from items(cancel)


def _make_ended_fault(rule: DatasetRule) -> DataFault:
    return DataFault(
        "DATA_INTERRUPTED", f"{rule.name}: the program ends, the read was broken off", hint="it is read anew"
    )


def _too_long(rule: DatasetRule, seconds: float | None) -> DataFault:
    return DataFault(
        "DATA_INTERRUPTED",
        f"{rule.name}: the database has not answered for {seconds:g} seconds, the read was broken off",
        hint="name a table in place of a query that takes long; the read is tried again",
    )

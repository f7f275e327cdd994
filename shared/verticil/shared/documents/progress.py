"""How far a long step is, how fast it goes, how long the rest will take: counts of records, and nothing of what is in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import TypeVar

from verticil.shared.documents.json_document import Json

S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """What is told of a step.

    Attributes:
        step: what is done, as in ``drawing records``.
        done: records that are done.
        total: of how many; None: nobody knows yet.
        per_second: since the step began; 0 before anything was done.
    """

    step: str
    done: int
    total: int | None
    per_second: float

    @property
    def seconds_left(self) -> float | None:
        """At the rate so far; None where total or rate are not known."""
        return None if self.total is None or not self.per_second else (self.total - self.done) / self.per_second

    @property
    def text(self) -> str:
        """For people.

        >>> StepProgress(step="writing", done=3_000_000, total=10_000_000, per_second=400_000.0).text
        'writing: 3,000,000 of 10,000,000, 400,000 a second, 18 s left'
        >>> StepProgress(step="reading", done=3_000_000, total=None, per_second=0.0).text
        'reading: 3,000,000'
        """
        of = "" if self.total is None else f" of {self.total:,}"
        rate = f", {self.per_second:,.0f} a second" if self.per_second else ""
        remainder = "" if self.seconds_left is None else f", {self.seconds_left:,.0f} s left"
        return f"{self.step}: {self.done:,}{of}{rate}{remainder}"

    def document(self) -> dict[str, Json]:
        """Return the progress for programs: an event.

        >>> StepProgress(step="writing", done=1, total=3, per_second=2.0).document()
        {'event': 'progress', 'step': 'writing', 'done': 1, 'total': 3, 'per_second': 2.0, 'seconds_left': 1.0}
        """
        return {
            "event": "progress",
            "step": self.step,
            "done": self.done,
            "total": self.total,
            "per_second": round(self.per_second, 1),
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left, 1),
        }


Tell = Callable[[StepProgress], None]


class Meter:
    """Tells how far a step is, now and then and when it ends.

    Args:
        step, total: see `StepProgress`.
        tell: who hears it.
        every_seconds: that lie between two times at least.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        step: str,
        total: int | None,
        tell: Tell,
        *,
        every_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._step, self._total, self._tell = step, total, tell
        self._every, self._clock = every_seconds, clock
        self._began = self._told = clock()

    def at(self, done: int) -> None:
        """So many are done."""
        now = self._clock()
        if now - self._told < self._every and done != self._total:
            return
        self._told = now
        seconds = now - self._began
        rate = done / seconds if seconds > 0 else 0.0
        self._tell(StepProgress(step=self._step, done=done, total=self._total, per_second=rate))

    def over(self, pieces: Iterable[S]) -> Iterator[S]:
        """Yield the pieces one after the other, each counted when the next one is asked for."""
        n_done = 0
        for piece in pieces:
            yield piece
            n_done += len(piece)
            self.at(n_done)

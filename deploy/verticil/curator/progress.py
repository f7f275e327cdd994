"""How far a run of `synthesize` is: the stage in plain words, its per cent, and the time that is still to come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_STAGES: Final = {
    "counting": "counting",
    "estimating": "fitting the joint model",
    "searching": "searching a structure",
    "parameters": "computing intervals",
    "drawing": "drawing networks",
}
"""Stages of learning, in plain words."""
_COURSE: Final = {"estimating": 0.3, "parameters": 0.5, "writing": 0.2}
"""What follows noisy tables, with its shares of the time: ma2019 as drafted, 27,253 rows, ε = 1 and 5. Records are drawn and
written last."""
_LEAST_SHARE: Final = 0.05
"""Of a stage, below which its rate says nothing yet."""


class LearningProgress:
    """A line that says how far learning is, made anew with each per cent.

    Args:
        step: called with the words of each stage once.
        show: called with the whole line; None: nobody watches.
        has_course: the stages are those of learning from noisy tables without sampled graphs, so later ones can be foreseen.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        step: Callable[[str], None],
        show: Callable[[str], None] | None,
        *,
        has_course: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._step, self._show, self._has_course, self._clock = step, show, has_course, clock
        self._stages: set[str] = set()
        self._latest = ("", -1)
        self._began = clock()

    def report(self, stage: str, percent: int) -> None:
        """Say how far a stage is, as `learn` reports it."""
        if (stage, percent) == self._latest:
            return
        if stage != self._latest[0]:
            self._began = self._clock()
        self._latest = (stage, percent)
        words = _STAGES.get(stage, stage)
        if stage not in self._stages:
            self._stages.add(stage)
            self._step(words)
        if self._show is not None:
            self._show(f"{words}: {percent} %{self._time_left(stage, percent / 100)}")

    def _time_left(self, stage: str, share: float) -> str:
        """Return the words on the time to come: at this stage's rate, with later stages where they are foreseen."""
        if share < _LEAST_SHARE or (self._has_course and stage not in _COURSE):
            return ""
        whole = (self._clock() - self._began) / share
        left = whole * (1 - share)
        if not self._has_course:
            return f", about {left:.0f} s left in this step"
        places = list(_COURSE)
        later = sum(_COURSE[name] for name in places[places.index(stage) + 1 :])
        return f", about {left + whole * later / _COURSE[stage]:.0f} s left"

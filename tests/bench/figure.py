"""What one benchmark reports, and how its CPU seconds are taken.

CPU seconds and ratios against a named reference in the same run can be compared between machines under load; wall times cannot.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support

__all__ = ["Figure", "Status", "cpu_seconds", "not_run"]

Status = Literal["pass", "MISSED", "not run", "-"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table.

    Attributes:
        name: what was done, at which size.
        ours: our number, in `unit`; None: it was not measured.
        reference: the same number of the reference in the same run; None when there is none.
        ratio: how many times better ours is than the reference; None when there is none.
        target: what had to be reached, in words (``>= 50 times``); a dash when nothing had to.
        unit: ``CPU s``, ``M values / CPU s``, ...
        met: whether the target was reached; None when there is none, or where nothing was measured.
        at_least: the reference was broken off, so its number and the ratio are lower bounds.
        note: what the reference is, and what was scaled; why it was not measured.
    """

    name: str
    ours: float | None
    reference: float | None = None
    ratio: float | None = None
    target: str = "-"
    unit: str = "CPU s"
    met: bool | None = None
    at_least: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if not self.target or self.is_bounded == (self.met is None and self.ours is not None):
            raise ValueError(f"{self.name}: target {self.target!r} and met {self.met} do not go together")

    @property
    def is_bounded(self) -> bool:
        """Whether something had to be reached."""
        return self.target != "-"

    @property
    def status(self) -> Status:
        """What the table says: what is not measured has not passed."""
        if self.ours is None:
            return "not run"
        return "-" if self.met is None else "pass" if self.met else "MISSED"


def not_run(name: str, *, target: str, unit: str, why: str) -> Figure:
    """The line of a figure that cannot be measured here."""
    return Figure(name=name, ours=None, target=target, unit=unit, note=why)


def cpu_seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
    """The least CPU seconds (all threads of this process) of `repeats` runs of `work`, warm-up left to the caller."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best

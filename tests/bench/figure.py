"""What one benchmark reports, and how its CPU seconds are taken.

CPU seconds and ratios against a named reference in the same run can be compared between machines under load; wall times cannot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Figure", "cpu_seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table.

    Attributes:
        name: what was done, at which size.
        ours: our number, in `unit`.
        reference: the same number of the reference in the same run; None when there is none.
        ratio: how many times better ours is than the reference; None when there is none.
        target: what had to be reached, in words (``>= 50 times``).
        unit: ``CPU s``, ``M values / CPU s``, ...
        met: whether the target was reached; None when there is none.
        note: what the reference is, and what was scaled.
    """

    name: str
    ours: float
    reference: float | None
    ratio: float | None
    target: str
    unit: str
    met: bool | None = None
    note: str = ""


def cpu_seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
    """The least CPU seconds (all threads of this process) of `repeats` runs of `work`, warm-up left to the caller."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best

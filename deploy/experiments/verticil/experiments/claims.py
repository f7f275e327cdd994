"""What a paper says of its results, beside what stands here: found, or not found and why."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["found", "not found", "not asked"]
"""``not asked``: this run is too small to tell, as with one seed."""


def verdict_of(*, true: bool, reason: str, cannot: str = "") -> tuple[Verdict, str]:
    """Return the verdict of a claim, and its reason.

    Args:
        true: whether the run bears it out.
        reason: why not, if it does not.
        cannot: why the run cannot tell; empty: it can.
    """
    if cannot:
        return "not asked", cannot
    return ("found", "") if true else ("not found", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence of a paper, held against a run.

    Attributes:
        name: short, for programs.
        theirs: the sentence, in our words.
        ours: what the run gave, in words.
        verdict: whether the run bears it out.
        reason: why not, or why the run cannot tell; empty where the claim is found.

    Raises:
        ValueError: a claim that is not found has no reason.
    """

    name: str
    theirs: str
    ours: str
    verdict: Verdict
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.verdict == "found") == bool(self.reason):
            raise ValueError(f"claim '{self.name}': {self.verdict}, expected a reason unless it is found")

    def document(self) -> dict[str, str]:
        """Return the claim for numbers.json."""
        return dataclasses.asdict(self)

    def lines(self) -> tuple[str, ...]:
        """Return the claim for people: theirs, ours, and the verdict with its reason."""
        end = f": {self.reason}" if self.reason else ""
        return (f"theirs: {self.theirs}", f"  ours: {self.ours}", f"  {self.verdict}{end}")

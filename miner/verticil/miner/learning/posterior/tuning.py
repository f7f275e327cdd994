"""Tuned numbers of drawing graphs from columns and noisy tables, in one place.

Each field says what it does and which bench chose it. Code reads `TUNING`; a test that needs other numbers puts another value in
the place of a module's `TUNING`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Numbers of posteriors that were tuned, with their defaults."""

    sampled_records: int = 100_000
    """Records that a pair's shares are read from, where they are too much to compute. By judgement."""
    linked: float = 0.5
    """Probability from which on two variables are linked in the consensus. By judgement."""
    candidate_parents: int = 12
    """Candidates of a variable, where there are too many sets to look at all: those with the largest information, and one
    more, whichever. By judgement."""
    most_sets_of_all: int = 2**16
    """Sets of all variables up to which every variable is a candidate of every other: 25 variables with 3 parents. By
    judgement."""
    most_sets_of_all_plain: int = 2**19
    """The same for columns that are as they are, whose tables need no correction: 42 variables with 3 parents. Of 10,000
    records of ALARM, 37 variables, all sets take 89 CPU seconds in place of 28, and graphs weigh 13 nats more. By judgement;
    tests/bench/posterior_sampler.py measures it."""
    replicate_share: int = 5
    """A chain by the score of one replicate makes one step for so many steps of the study. By judgement;
    tests/bench/posterior_noise.py measures it."""
    least_replicate_steps: int = 100
    """Steps of a chain by the score of one replicate, at least. By judgement."""
    completed_tables: int = 10
    """Completed tables behind everything but the networks. By judgement."""
    draws: int = 200
    """Networks behind the bands of pairs: the standard error of an end is about a tenth of the deviation. By judgement."""
    predicted_networks: int = 1000
    """Networks behind a statistic: so many independent draws are hardly ever measured as fewer than 500
    (`diagnostics.worth_of`), which is what the paper asks for; 500 are half the time. By judgement."""
    least_factor: float = 1e-9
    """Contrast factor at least, so that nothing is divided by 0. By judgement."""
    cells_together: int = 2**18
    """Cells of tables that are corrected together. By judgement."""


TUNING: Final = Tuning()

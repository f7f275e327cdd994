"""Sets and intervals of a posterior from randomized columns hold a truth that the prior itself drew, as often as they say.

``tests/bench/posterior_coverage.py --network prior`` has the figures. Seeds are fixed, so the test raises no false alarm; with
others, bounds of four standard errors would raise one in 15,000."""

from __future__ import annotations

import numpy as np
import pytest

from support.prior_truth import LEVEL, held

REPLICATES = 40


@pytest.mark.slow
@pytest.mark.parametrize("score", ["dirichlet", "bdeu"])
def test_sets_and_intervals_hold_the_truth(score: str) -> None:
    every = [held(score, 2.0, seed) for seed in range(REPLICATES)]
    assert sum(each.agree for each in every) >= 0.9 * REPLICATES
    for difference in ([each.shares - LEVEL for each in every], [each.graph - each.mass for each in every]):
        error = np.std(difference, ddof=1) / np.sqrt(REPLICATES)
        assert error < 0.05
        assert abs(np.mean(difference)) <= 4 * error

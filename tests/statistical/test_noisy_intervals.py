"""Intervals of a release from noisy tables: measured families exactly, implied ones by the bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from support.noisy_tables import empty, redrawn, study, truth
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.shared.study.document import Study


def covered(of: Study, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Of how many cells the interval has the truth, and how many there are: measured ones, and implied ones."""
    model, tables = truth(), empty(of)
    inside, cells = np.zeros(2), np.zeros(2)
    for run in range(runs):
        measured = redrawn(tables, model, np.random.default_rng([17, run]))
        for family in learn_from_tables(measured, of).network.families:
            table = model.shares((*family.parents, family.child)).reshape(family.probability.shape)
            right = table / table.sum(axis=1, keepdims=True)
            known = ~np.isnan(family.interval_low)
            within = (family.interval_low <= right + 1e-9) & (right - 1e-9 <= family.interval_high)
            inside[int(family.implied)] += within[known].sum()
            cells[int(family.implied)] += known.sum()
    return inside, cells


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_intervals_of_measured_and_of_implied_families_cover_what_they_say() -> None:
    """Between .92 and .98 of 200 runs, each kind of family."""
    inside, cells = covered(study(), 200)
    assert (cells > 1000).all()
    assert ((inside / cells > 0.92) & (inside / cells < 0.98)).all(), inside / cells

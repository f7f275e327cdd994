"""Whether somebody has a value far beyond all others cannot be told from measured bins by more than the epsilon of a study.

A profile is measured of a table in which one person has nearly the largest value that the bounds permit, and of one in which that
person has a usual value. A release has the counts and the bins that follow. What would give the person away are the last bin, and
the count of the cell of that value. All else in a release follows from noisy tables, which `attack epsilon` attacks with these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from verticil.attack.bounds import epsilon_at_least
from verticil.curator.study import owners_study
from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study import profiled_columns
from verticil.shared.study.profiles import grid_of_variable, profile_of_variable, variable_with
from verticil.shared.study.reading import read_study_text
from verticil.shared.study.tables import set_sigmas

EPSILON, RUNS, N, FAR = 0.5, 120, 200, 990_000.0
STUDY = """
schema = 1
id = "far"
title = "Far"
purpose = "a test"
expires = 2099-01-01
[[party]]
name = "owner"
[[variable]]
party = "owner"
name = "cost"
type = "number"
decimals = 0
bins = "private"
bounds = [0, 1000000]
[[variable]]
party = "owner"
name = "ward"
categories = ["a", "b"]
[randomization_default]
scheme = "symmetric"
epsilon = 1
"""


def largest_bound(silent: bool = False) -> float:
    """The largest lower bound of epsilon, with a confidence of .999: the first half of the runs chooses thresholds."""
    study = owners_study(read_study_text(STUDY, Path(), by_owner=True), method="joint", epsilon=EPSILON, delta=1e-9)
    cost, sigma = study.schema[0], set_sigmas(study).profiles
    assert sigma is not None
    grid, rng = grid_of_variable(cost), np.random.default_rng(1)
    values = np.round(np.exp(rng.normal(6, 1, N)))
    cell = int(np.searchsorted(grid.edges, FAR, side="right")) - 1
    statistics: tuple[Callable[[Variable], float], ...] = (
        lambda found: (found.bins or (0.0,))[-1],
        lambda found: found.profile[cell],
    )
    seen = np.empty((len(statistics), 2, RUNS))
    for far in (0, 1):
        codes = np.searchsorted(grid.fine, [FAR if far else 400.5, *values[1:]], side="right")
        for run in range(RUNS):
            counts = profiled_columns.noisy_profile(cost, codes, rng.bytes(32), b"", sigma)
            measured = dataclasses.replace(cost, profile=counts)
            found = variable_with(measured, profile_of_variable(measured, 1e-3 if silent else sigma))
            seen[:, far, run] = [statistic(found) for statistic in statistics]
    bounds, half = [0.0], RUNS // 2
    for usual, far_values in seen:
        cut = (np.median(usual[:half]) + np.median(far_values[:half])) / 2
        hits = [int((part[half:] > cut).sum()) for part in (far_values, usual)]
        bounds.append(epsilon_at_least(hits[0], hits[1], RUNS - half, delta=1e-9, error=0.001 / len(seen)))
    return max(bounds)


def test_measured_bins_tell_no_more_of_a_far_value_than_the_epsilon() -> None:
    assert largest_bound() <= EPSILON


def test_a_profile_without_noise_would_give_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        draw = staticmethod(lambda key, label, shape, sigma: np.zeros(shape, np.int64))
        variance = staticmethod(discrete_gaussian.variance)

    monkeypatch.setattr(profiled_columns, "discrete_gaussian", Silent)
    assert largest_bound(silent=True) > EPSILON

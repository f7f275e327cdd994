"""Whether somebody has a value far beyond all others cannot be told from measured bins by more than the epsilon of a study.

A profile is measured of a table in which one person has nearly the largest value that the bounds permit, and of one in which that
person has a usual value. A release has the counts and the bins that follow. What would give the person away are the last bin, and
the count of the cell of that value. Whole releases are attacked, too: by these, by their records and by their network.
`attack epsilon` attacks the noise on profiles and tables together.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.attack.bounds import epsilon_at_least
from verticil.curator.study import owners_study
from verticil.curator.synthesis import synthesize
from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study import profiled_columns
from verticil.shared.study.profiles import grid_of_variable, profile_of_variable, variable_with
from verticil.shared.study.reading import read_study_text
from verticil.shared.study.tables import set_sigmas

EPSILON, RUNS, RUNS_OF_RELEASES, N, FAR = 0.5, 120, 48, 200, 990_000.0
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


Draw = Callable[[bool], Sequence[float]]


def cost_values() -> np.ndarray:
    """What people have besides the one, of whom the first is replaced."""
    return np.round(np.exp(np.random.default_rng(1).normal(6, 1, N)))


def far_cell(cost: Variable) -> int:
    """The cell of the grid that has the far value."""
    return int(np.searchsorted(grid_of_variable(cost).edges, FAR, side="right")) - 1


def of_profiles(silent: bool) -> Draw:
    """Draws of a profile: the last bin's end, and the count of the far value's cell."""
    study = owners_study(read_study_text(STUDY, Path(), by_owner=True), method="joint", epsilon=EPSILON, delta=1e-9)
    cost, sigma = study.schema[0], set_sigmas(study).profiles
    assert sigma is not None
    grid, rng, values = grid_of_variable(cost), np.random.default_rng(1), cost_values()

    def draw(is_far: bool) -> Sequence[float]:
        codes = np.searchsorted(grid.fine, [FAR if is_far else 400.5, *values[1:]], side="right")
        counts = profiled_columns.noisy_profile(cost, codes, rng.bytes(32), b"", sigma)
        measured = dataclasses.replace(cost, profile=counts)
        found = variable_with(measured, profile_of_variable(measured, 1e-3 if silent else sigma))
        return (found.bins or (0.0,))[-1], counts[far_cell(cost)]

    return draw


def of_releases(folder: Path) -> Draw:
    """Draws of all that is made of a table: the same of its profile, records far out, the largest one, the last bin's share."""
    study, seeds, values = read_study_text(STUDY, Path(), by_owner=True), itertools.count(1), cost_values()
    wards = np.where(values > 400, "a", "b")

    def draw(is_far: bool) -> Sequence[float]:
        people = pd.DataFrame({"cost": [FAR if is_far else 400.0, *values[1:]], "ward": ["b", *wards[1:]]})
        asked = {
            "epsilon": EPSILON,
            "delta": 1e-9,
            "seed": next(seeds),
            "state": folder / "state",
            "accept_noise": True,
        }
        made = synthesize(people, study, **asked)  # type: ignore[arg-type]
        cost, records = made.study.schema[0], made.records["cost"].astype(float)
        last = made.network.families[0].probability.reshape(-1, cost.n_states)[:, cost.n_bins - 1].mean()
        counted = cost.profile[far_cell(cost)]
        return (cost.bins or (0.0,))[-1], counted, (records > FAR / 2).sum(), records.max(), float(last)

    return draw


def largest_bound(draw: Draw, runs: int) -> float:
    """The largest lower bound of epsilon, with a confidence of .999: the first half of the runs chooses thresholds."""
    seen = np.array([[draw(bool(far)) for _ in range(runs)] for far in (0, 1)], dtype=np.float64)
    bounds, half = [0.0], runs // 2
    for usual, far in zip(*seen.transpose(0, 2, 1), strict=True):
        cut = (np.median(usual[:half]) + np.median(far[:half])) / 2
        hits = [int((part[half:] > cut).sum()) for part in (far, usual)]
        bounds.append(epsilon_at_least(hits[0], hits[1], runs - half, delta=1e-9, error=0.001 / seen.shape[2]))
    return max(bounds)


class Silent:
    """Noise that is none: what a profile would be that nobody charged."""

    draw = staticmethod(lambda key, label, shape, sigma: np.zeros(shape, np.int64))
    variance = staticmethod(discrete_gaussian.variance)


@pytest.mark.whole
def test_measured_bins_tell_no_more_of_a_far_value_than_the_epsilon() -> None:
    assert largest_bound(of_profiles(silent=False), RUNS) <= EPSILON


@pytest.mark.whole
def test_a_profile_without_noise_would_give_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiled_columns, "discrete_gaussian", Silent)
    assert largest_bound(of_profiles(silent=True), RUNS) > EPSILON


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_whole_releases_tell_no_more_of_a_far_value_than_the_epsilon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert largest_bound(of_releases(tmp_path / "honest"), RUNS_OF_RELEASES) <= EPSILON
    monkeypatch.setattr(profiled_columns, "discrete_gaussian", Silent)
    assert largest_bound(of_releases(tmp_path / "uncharged"), RUNS_OF_RELEASES) > EPSILON

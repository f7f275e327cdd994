"""``release.tabulate``: shares of combinations of categories, with an interval for each.

One column is as the release publishes it. The table of two columns is made to agree with the shares of both (`tables`); its
errors are those of people, randomization and noise. A release has no unbiased shares of three columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from verticil.analysis.published_shares import N_RECORDS, Measured, published_shares, seeded
from verticil.analysis.regression import check_level
from verticil.shared.core.arrays import Floats
from verticil.shared.core.errors import Misuse
from verticil.shared.release.drawing import ReleaseModels, variable_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tabulation:
    """Shares of all combinations, arrays with an axis for each column.

    Attributes:
        variables: positions of the columns.
        estimate, standard_error: NaN where the release does not say.
        low, high: ends of the intervals, cut to 0 and 1.
    """

    variables: tuple[int, ...]
    estimate: Floats
    standard_error: Floats
    low: Floats
    high: Floats


def tabulate(models: ReleaseModels, names: Sequence[str], *, level: float) -> Tabulation:
    """Return the share of each combination of categories of some columns, among the people that a release is about.

    Raises:
        Misuse: USAGE, a column is not in the release, or it has nothing that intervals could follow from.
    """
    check_level(level)
    for name in names:
        variable_of(models.schema, name, where="tabulate")
    if len(set(names)) < len(names) or len(names) not in (1, 2):
        raise Misuse(
            "USAGE",
            f"tabulate: got {len(names)} columns, expected one, or two different ones",
            hint="a release has no table of three columns that an interval could follow from",
        )
    return _by_tables(models, tuple(models.schema.index(name) for name in names), level)


def _by_tables(models: ReleaseModels, variables: tuple[int, ...], level: float) -> Tabulation:
    if len(variables) == 1:
        marginal = next(item for item in models.marginals if item.variable == variables[0])
        return _tabulation(variables, marginal.estimate, marginal.standard_error, level)
    pair = min(variables), max(variables)
    estimate = published_shares(models, variables, [pair]).two[pair]
    measured, generator = Measured(models), seeded()
    noise = measured.noise(variables, [pair], generator).two[pair].var(axis=0)
    square = _second_moment(measured, pair, generator)
    within = np.maximum(estimate, 0.0) if square is None else square
    n = measured.n_people
    people = np.maximum(within - np.clip(estimate, 0.0, 1.0) ** 2, 1 / n) / n
    error = np.sqrt(people + noise)
    if variables != pair:
        estimate, error = estimate.T, error.T
    return _tabulation(variables, estimate, error, level)


def _second_moment(measured: Measured, pair: tuple[int, int], generator: np.random.Generator) -> Floats | None:
    """Return the mean square of what a record counts in each cell: (K_first, K_second); None: nothing was randomized."""
    first, second = (measured.unit_of[v] for v in pair)
    if all(measured.units[unit].channel.is_identity for unit in (first, second)):
        return None
    records = measured.records(N_RECORDS, generator)
    released = {unit: measured.randomized(records, unit, generator) for unit in dict.fromkeys((first, second))}
    if first == second:
        return np.asarray((measured.weights(pair)[released[first]] ** 2).mean(axis=0))
    one, other = measured.weights(pair[:1])[released[first]], measured.weights(pair[1:])[released[second]]
    return np.asarray((one**2).T @ other**2 / len(one))


def _tabulation(variables: tuple[int, ...], estimate: Floats, error: Floats, level: float) -> Tabulation:
    half = NormalDist().inv_cdf((1 + level) / 2) * error
    low, high = np.clip(estimate - half, 0.0, 1.0), np.clip(estimate + half, 0.0, 1.0)
    return Tabulation(variables=variables, estimate=estimate, standard_error=error, low=low, high=high)

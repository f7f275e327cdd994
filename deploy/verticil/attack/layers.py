"""An attack on everything that a study with measured bins draws: profiles, tables, and tables in runs, of one person together.

A site counts the profiles of its people under a fresh secret, as when it approves; the bins follow from the noisy counts. The
tables of these bins get a miner's noise, and so do the tables in the runs that the noisy tables give. The two inputs differ in
one person, who is in other cells of every table. Whoever attacks knows all other people. What follows from the noise alone (bins,
runs) tells where to look, and the outcome is the sum of what the person adds to each table, weighted by one over the noise's
variance.

The claim is that of the one event for all of it (`verticil.shared.privacy.layered`), and the curve of the same event.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.attack.attack import Attack
from verticil.attack.columns import PARTY, fresh
from verticil.attack.events import Counts
from verticil.attack.noise import PARTS, discrete_weights
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.numerics.estimation.profiles import Grid, parts_of
from verticil.shared.numerics.joint.coarse import noised_in_sets
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable
from verticil.shared.privacy.accountant import cost_of, numerically
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.layered import LayeredCounts, layered_counts
from verticil.shared.study.document import Study
from verticil.shared.study.profiled_columns import measure
from verticil.shared.study.profiles import grid_of_variable, with_profiles
from verticil.shared.study.reading import read_study
from verticil.shared.study.tables import coarse_pairs, profiled

STUDY: Final = Path(__file__).with_name("layers.toml")
NAME: Final = "measured-bins"
ONE_SITE: Final = 0.001
"""Draws for each draw of the run: each has all of a study's noise."""
_PEOPLE: Final = 200  # besides the one, half of them in each of the person's two places
_VALUES: Final = ((20, 100, 0), (80, 900, 1))
"""What the person has in each column, under one input and under the other."""


def attacks() -> Iterator[Attack]:
    """Yield the attack on the study of `STUDY`."""
    study = read_study(STUDY)
    yield attack_on(study, layered_counts(study))


def attack_on(study: Study, event: LayeredCounts) -> Attack:
    """Return the attack on a study's noise.

    Args:
        study: of columns as in `STUDY`.
        event: what is claimed of it.
    """
    drawn = layered_counts(study)
    least = min(1 / sigma**2 for sigma, _, _ in drawn.sets)
    weights = [round(1 / sigma**2 / least) for sigma, _, _ in drawn.sets]
    shares, reach = _documented(drawn, weights)
    distance = float(np.abs(shares[0] - shares[1]).sum()) / 2
    points = (Cost(epsilon=numerically((event,), part * distance), delta=part * distance) for part in PARTS)

    def words(is_member: NDArray[np.bool_]) -> str:
        sums = np.flatnonzero(is_member)
        return f"{len(sums)} weighted sums, {sums[0] - reach} to {sums[-1] - reach}" if len(sums) else "none"

    def draw(generator: np.random.Generator, draws: int) -> Counts:
        counts = np.zeros((2, 2 * reach + 1), dtype=np.int64)
        for _ in range(draws):
            secret, key = fresh(generator).value, generator.bytes(32)
            for row in range(2):
                of_sets = _seen(study, drawn, row, secret, key)
                total = sum(weight * seen for weight, seen in zip(weights, of_sets, strict=True))
                counts[row, min(max(round(total), -reach), reach) + reach] += 1
        return counts

    return Attack(
        mechanism=NAME,
        over="site secrets",
        inputs=("the second place", "the first place"),
        claims=(cost_of(event), *points),
        draw=draw,
        words=words,
        documented=shares,
        weight=ONE_SITE,
        at_once=100,
    )


def _seen(study: Study, event: LayeredCounts, row: int, secret: bytes, key: bytes) -> tuple[float, float, float]:
    """Return what one draw shows of a person: of pairs, of runs, of profiles, more in the second place than in the first.

    As many others are in either place, so they are in no difference.

    Args:
        study: that is carried out.
        event: of its noise.
        row: of the counts; the person is in the second place in the first.
        secret: of the site.
        key: of the miner's noise.
    """
    values = np.array([_VALUES[1 - row], *(_VALUES[number % 2] for number in range(_PEOPLE))])
    places = profiled(study)
    codes: dict[str, Codes] = {
        variable.name: (
            _cells(grid_of_variable(variable), values[:, place]) if place in places else values[:, place]
        ).astype(np.uint16)
        for place, variable in enumerate(study.schema.variables)
    }
    data = {unit: hashlib.sha256(bytes([row])).digest() for unit in range(len(study.units))}
    own, counts = measure(study, PARTY, codes, data, proposal_digest=bytes(32), site_secret=secret)
    final = with_profiles(study, counts)
    columns = [own[name] for name in final.schema.names]
    units = [final.column_unit(index) for index in range(len(final.units))]
    exact = from_columns(columns, units, final.schema.n_states, parts=1)
    exact = dataclasses.replace(exact, orders=tuple(variable.order for variable in final.schema.variables))
    noisy = noised_in_sets(exact, coarse_pairs(study), key, sigma=event.sigma, coarse_sigma=event.coarse_sigma)
    assert noisy.coarse is not None  # as the study says
    first, second = ([int(column[number]) for column in columns] for number in (1, 2))
    runs = noisy.coarse.runs
    return (
        sum(_shows(table, first, second) for table in noisy.tables),
        sum(
            _shows(table, *([int(runs[unit][code]) for unit, code in enumerate(place)] for place in (first, second)))
            for table in noisy.coarse.tables
        ),
        sum(
            _profile_shows(grid_of_variable(final.schema[place]), final.schema[place].profile, place)
            for place in places
        ),
    )


def _shows(table: MeasuredTable, first: Sequence[int], second: Sequence[int]) -> float:
    """Return how many more a table counts in the second place than in the first; codes or runs of each unit."""
    before, after = (tuple(place[unit] for unit in table.units) for place in (first, second))
    return float(table.counts[after] - table.counts[before])


def _profile_shows(grid: Grid, counts: Sequence[int], place: int) -> float:
    """Return the same of a column's histograms."""
    before, after = (values[place] for values in _VALUES)
    shows = _between(grid.edges, counts[: grid.size], before, after)
    if len(counts) > grid.size:
        shows += _between(parts_of(grid, counts), counts[grid.size :], before, after)
    return shows


def _between(edges: Floats, counts: Sequence[int], before: float, after: float) -> float:
    first, second = (int(np.searchsorted(edges, value, side="right")) - 1 for value in (before, after))
    return float(counts[second] - counts[first])


def _cells(grid: Grid, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the finest cells of values that are no candidates, as a table's reader numbers them: one below is the first."""
    return np.searchsorted(grid.fine, values, side="right")


def _documented(event: LayeredCounts, weights: Sequence[int]) -> tuple[Floats, int]:
    """Return the probabilities of the weighted sum under either input, from -reach to reach, and the reach."""
    total, mean = np.ones(1), 0
    for (sigma, n_tables, _), weight in zip(event.sets, weights, strict=True):
        own = discrete_weights(sigma)
        spread = np.zeros((len(own) - 1) * weight + 1)
        spread[::weight] = own
        mean += weight * n_tables
        for _draw in range(2 * n_tables):
            total = np.convolve(total, spread)
    middle, reach = len(total) // 2, len(total) // 2 + mean
    shares = np.zeros((2, 2 * reach + 1))
    for row, shift in enumerate((mean, -mean)):
        shares[row, reach + shift - middle : reach + shift + middle + 1] = total
    return shares, reach

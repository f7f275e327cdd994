"""A joint model in the place of counted records: what searches and parameters ask of columns, answered by its tables.

Where a study has noise on its tables, nobody may look at the records again. So a family's counts are n times the shares that the
joint model has, and a search that knows nothing of all that finds its structure in them (`ModelScores`); the scores of pairs come
from the noisy tables themselves (`noisy_pair_scores`), with the tests and corrections that know the noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.scores import FamilyScores, PairScores
from verticil.miner.learning.scoring.tuning import TUNING as SCORING
from verticil.miner.learning.search.protocol import remember
from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.axes import plogp
from verticil.shared.numerics.estimation.independence import dependence_p_value
from verticil.shared.numerics.estimation.information import Link, links, plug_in_information
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, FamilyDesign, as_design, family_design
from verticil.shared.numerics.estimation.unit_axis import contrast_factor
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.numerics.model.joint import JointModel


class ModelTables(FamilyTables):
    """The families of a joint model, as if n people without randomization had been counted.

    Args:
        model: asked for shares.
        n: people.
        names: of the variables.
    """

    def __init__(self, model: JointModel, n: float, names: Sequence[str]) -> None:
        plain = [
            ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(k))) for v, k in enumerate(model.n_states)
        ]
        super().__init__({}, plain, model.n_states, names)
        self._model, self._n = model, n

    @property
    def n_records(self) -> int:
        """See the class; rounded."""
        return max(round(self._n), 1)

    def count_family(self, axes: Sequence[int]) -> tuple[Counts, FamilyDesign]:
        """Return the counts that the model expects, float64, and a design without randomization."""
        design = as_design([self.units[variable].channel for variable in axes])
        return self._n * self._model.shares(axes), design

    def count_ahead(self, families: Iterable[Sequence[int]], *, check: Callable[[], None] | None = None) -> None:
        """Count nothing: the model has all tables."""


class ModelScores(FamilyScores):
    """Scores of families by a joint model.

    `bic-noise` charges a probability more the more of it is noise: with lambda the contrast factors of the columns, sigma the
    noise on a cell of a pair and c the cells of the family, sqrt(1 + sigma^2 c / n) / prod lambda times. A greedy search gets
    the information that the model has.

    Args:
        tables: of the model.
        measured: what the model was estimated from.
    """

    def __init__(self, tables: ModelTables, noisy_tables: NoisyTables) -> None:
        super().__init__(tables)
        self.unrandomized = frozenset()  # no column is: another local optimum is no better a network
        self._measured = noisy_tables
        self._factor = {
            v: contrast_of(noisy_tables, place) for place, unit in enumerate(noisy_tables.units) for v in unit.variables
        }
        self._variance = max(table.sigma**2 for table in noisy_tables.tables)

    def likelihood(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the likelihood of the model's counts, nats."""
        key = tuple(sorted((*parents, child)))
        if key not in self._likelihoods:
            table, _ = self._tables.count_family(key)
            joint = plogp(table)
            remember(self._likelihoods, key, {v: joint - plogp(table.sum(axis=place)) for place, v in enumerate(key)})
        return self._likelihoods[key][child]

    def noise(self, members: Sequence[int]) -> float:
        """Return the noise factor of a family; see the class."""
        cells = math.prod(self._tables.n_states[v] for v in members)
        noise_factor = math.sqrt(1 + self._variance * cells / self._tables.n_records)
        return noise_factor / math.prod(self._factor[v] for v in members)

    def information(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the mutual information of a variable with the joint of its parents in the model, nats."""
        table, _ = self._tables.count_family((*parents, child))
        return plug_in_information(table.reshape(-1, table.shape[-1]))


def contrast_of(noisy_tables: NoisyTables, unit: int) -> float:
    """Return the contrast factor of a unit as it was randomized; 1 without."""
    axis = as_design([noisy_tables.units[unit].channel]).axes[0]
    return contrast_factor(axis)


def observed_of(noisy_tables: NoisyTables, axes: Sequence[int]) -> tuple[MeasuredTable, Floats, FamilyDesign] | None:
    """Return the measured table of a family's own units.

    Args:
        noisy_tables: all tables.
        axes: the family's variables: the parents ascending, then the child.

    Returns:
        The table, its counts in the design's order of axes, and the design; None: it was not measured. Of one unit the counts
        are the mean of its own table and the sums of others, and the table says how much noise they have.
    """
    design = family_design(noisy_tables.units, noisy_tables.n_states, axes)
    units = design.units
    if len(units) == 1:
        counts, variance = noisy_tables.one_way(units[0])
        return MeasuredTable(units=units, counts=counts, sigma=math.sqrt(variance)), counts, _whole(design)
    table = noisy_tables.table(sorted(units))
    if table is not None:
        order = np.argsort(np.argsort(units))
        return table, np.ascontiguousarray(table.counts.transpose(order)), _whole(design)
    return None


def _whole(design: FamilyDesign) -> FamilyDesign:
    """Return the design with every axis over all released codes of its unit: tables of whole units were measured."""
    axes = tuple(dataclasses.replace(axis, merged=None) for axis in design.axes)
    return dataclasses.replace(design, axes=axes)


def noisy_pair_scores(noisy_tables: NoisyTables, *, check: Callable[[], None] | None = None) -> PairScores:
    """Score all pairs of variables by their noisy tables; see `scores.pair_scores`.

    Args:
        noisy_tables: a table for every pair of units, and for every compound; a pair without one has no score.
        check: called between short pieces of work; may raise.
    """
    d = len(noisy_tables.n_states)
    level = SCORING.false_alarms / max(d * (d - 1) // 2, 1)
    information, p_value = np.zeros((d, d)), np.ones((d, d))
    pair_links: dict[tuple[int, int], Link] = {}
    by_noise: dict[float, dict[tuple[int, int], tuple[Counts, FamilyDesign]]] = {}
    for pair in itertools.combinations(range(d), 2):
        if check is not None:
            check()
        measurement = observed_of(noisy_tables, pair)
        if measurement is None:
            continue
        table, counts, design = measurement
        p = dependence_p_value(counts, design, noise_variance=table.sigma**2)
        p_value[pair] = p_value[pair[::-1]] = p
        if p < level:
            by_noise.setdefault(table.sigma, {})[pair] = counts, design
    for sigma, families in by_noise.items():
        new_links = links(list(families.values()), noise_variance=sigma**2, raise_if_cancelled=check)
        pair_links.update(zip(families, new_links, strict=True))
    for pair, link in sorted(pair_links.items()):
        information[pair] = information[pair[::-1]] = link.information
    significant = p_value < level
    for array in (information, p_value, significant):
        array.setflags(write=False)
    return PairScores(
        information=information,
        p_value=p_value,
        significant=significant,
        level=level,
        links=dict(sorted(pair_links.items())),
    )

"""The scores of pairs and of families, from randomized columns.

Pairs.

What a score is stands in `verticil.shared.numerics.estimation.information`, which test of independence is valid for which
randomization in `independence` beside it. Here all pairs are scored together: level `alpha` over all d(d-1)/2 pairs (Bonferroni).
Pairs of columns that were randomized one by one come from the tables of all pairs, which are counted in one pass; each other pair
is counted on its own.

Families, for searches that look at a variable with all its parents at once.

With N^ the EM-corrected counts of a family (`TUNING.em_steps` steps), N^_jk of parent configuration j and category k,

    bic       = sum_jk N^_jk log(N^_jk / N^_j) - (log n / 2) J (K - 1),
    bic-noise = the same with the penalty times c = 1 / prod lambda over the family's columns,

lambda the contrast factor of a column (`contrast_factor`; 1 without randomization). `bic` gives the best synthetic records where
noise is moderate, `bic-noise` by far the best structure (scores.md section 2). `information` is the mutual information of a
variable with the joint of its parents, debiased and tested as `verticil.shared.numerics.estimation.information` does it for
pairs.

`bdeu` is exact for data that are not randomized and wrong for corrected counts, which it takes for data: independent variables
become dependent with a posterior above .99 (scores.md section 5). So it is there for columns that are released as they are only.

Every table is counted and corrected once, whichever of its variables is asked for as the child. Where no column of a family is
randomized there is nothing to correct.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.counting import all_pair_tables, family_counts, family_table
from verticil.miner.learning.scoring.tuning import TUNING
from verticil.miner.learning.search.protocol import FamilyValue, remember
from verticil.shared.core.arrays import Codes, Counts, Floats
from verticil.shared.numerics.estimation.axes import plogp
from verticil.shared.numerics.estimation.estimators import em_projection
from verticil.shared.numerics.estimation.independence import (
    dependence_p_value,
    independence_p_value,
    independence_p_values,
)
from verticil.shared.numerics.estimation.information import Link, links
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, FamilyDesign, as_design, family_design
from verticil.shared.numerics.estimation.unit_axis import contrast_factor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairScores:
    """Scores of all pairs; every array but those of `links` is (d, d), symmetric, read-only.

    Attributes:
        information: nats, float64, >= 0; 0 on the diagonal and for pairs without significant information.
        p_value: of the test of independence, float64; 1 on the diagonal.
        significant: bool; p_value is below the level of one pair.
        level: level of one pair, `TUNING.false_alarms` / (d(d-1)/2).
        links: what was found of each significant pair (a, b), a < b.
    """

    information: Floats
    p_value: Floats
    significant: NDArray[np.bool_]
    level: float
    links: Mapping[tuple[int, int], Link]


def alone(units: Sequence[ColumnUnit]) -> list[int]:
    """Return the units of one variable each whose records have one code: those that the tables of all pairs are made of."""
    return [index for index, unit in enumerate(units) if unit.domain is None and unit.channel.codes_per_record == 1]


def pair_scores(
    columns: Sequence[Codes],
    units: Sequence[ColumnUnit],
    n_states: Sequence[int],
    *,
    check: Callable[[], None] | None = None,
) -> PairScores:
    """Count and score all pairs of the variables of some units.

    Args:
        columns: released codes of each unit; of a subset unit all codes of all records.
        units: how they were randomized.
        n_states: number of categories of each variable; every variable is in one unit.
        check: called between short pieces of work; may raise.

    Raises:
        ValueError: a column does not fit its unit.
    """
    d = len(n_states)
    level = TUNING.false_alarms / max(d * (d - 1) // 2, 1)
    single = sorted(alone(units), key=lambda index: units[index].variables)
    variables = [units[index].variables[0] for index in single]
    information, p_value = np.zeros((d, d)), np.ones((d, d))
    dependent_pairs: dict[tuple[int, int], tuple[Counts, FamilyDesign]] = {}
    if len(single) > 1 or d == 1:
        tables = all_pair_tables([columns[i] for i in single], [n_states[v] for v in variables], check=check)
        margins = [family_table([columns[i]], [n_states[v]]) for i, v in zip(single, variables, strict=True)]
        for a, of_a in enumerate(independence_p_values(tables.counts, margins)):
            others = variables[a + 1 :]
            p_value[variables[a], others] = p_value[others, variables[a]] = of_a
            for b in (np.flatnonzero(of_a < level) + a + 1).tolist():
                design = as_design([units[single[a]].channel, units[single[b]].channel])
                dependent_pairs[variables[a], variables[b]] = tables.table(a, b), design
    by_index: Mapping[int, Codes] = dict(enumerate(columns))
    with_tables = frozenset(variables)
    # Among those of the tables of all pairs there is nothing left to do, and with a thousand columns they are many.
    for pair in itertools.combinations(range(d), 2) if len(with_tables) < d else ():
        if with_tables.issuperset(pair):
            continue
        if check is not None:
            check()
        design = family_design(units, n_states, pair)
        counts = family_counts(by_index, design)
        p_value[pair] = p_value[pair[::-1]] = p = dependence_p_value(counts, design)
        if p < level:
            dependent_pairs[pair] = counts, design
    pair_links = dict(
        zip(dependent_pairs, links(list(dependent_pairs.values()), raise_if_cancelled=check), strict=True)
    )
    for (a, b), link in pair_links.items():
        information[a, b] = information[b, a] = link.information
    significant = p_value < level
    for array in (information, p_value, significant):
        array.setflags(write=False)
    return PairScores(information=information, p_value=p_value, significant=significant, level=level, links=pair_links)


class FamilyScores:
    """Scores of families, with a bounded memory.

    Args:
        tables: the released counts.
        level: of one test of independence, for `information`.
        steps: of the EM.

    Attributes:
        unrandomized: the variables whose columns are released as they are.
    """

    def __init__(self, tables: FamilyTables, *, level: float = 0.05, steps: int = TUNING.em_steps) -> None:
        self._tables, self._level, self._steps = tables, level, steps
        self.unrandomized = frozenset(
            unit.variables[0] for unit in tables.units if unit.domain is None and unit.channel.is_identity
        )
        self._sums: dict[tuple[int, ...], float] = {(): plogp(np.array([tables.n_records]))}
        self._likelihoods: dict[tuple[int, ...], dict[int, float]] = {}
        self._factors: dict[tuple[int, ...], float] = {}

    def score_by_name(self, score: str) -> FamilyValue:
        """Return the score that a study calls so.

        Raises:
            KeyError: there is none of this name.
        """
        return {"bic": self.bic, "bic-noise": self.bic_noise, "bdeu": self.bdeu}[score]

    def bic(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the BIC of a family; see the module."""
        return self.likelihood(child, parents) - self.penalty(child, parents)

    def bic_noise(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the BIC with a penalty for noise; see the module."""
        return self.likelihood(child, parents) - self.penalty(child, parents) * self.noise((*parents, child))

    def bdeu(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the Bayesian Dirichlet score with an equivalent sample of one record (scores.md section 5).

        Raises:
            ValueError: a column of the family is randomized.
        """
        counts, design = self._tables.count_family((*parents, child))
        if not all(axis.channel.is_identity for axis in design.axes):
            raise ValueError(f"variable {child} with the parents {parents}: a column of the family is randomized")
        from scipy.special import gammaln

        table = design.estimate(counts).reshape(-1, design.shape[-1])
        rows, cell = 1 / len(table), 1 / table.size
        configurations = gammaln(rows) - gammaln(rows + table.sum(axis=1))
        return float(configurations.sum() + (gammaln(cell + table) - gammaln(cell)).sum())

    def likelihood(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the log-likelihood of the EM-corrected counts, nats."""
        key = tuple(sorted((*parents, child)))
        if self.unrandomized.issuperset(key):
            rest = tuple(v for v in key if v != child)
            if key not in self._sums or rest not in self._sums:
                counts, _ = self._tables.count_family(key)
                remember(self._sums, key, plogp(counts))
                remember(self._sums, rest, plogp(counts.sum(axis=key.index(child))))
            return self._sums[key] - self._sums[rest]
        if key not in self._likelihoods:
            table = em_projection(*self._tables.count_family(key), iterations=self._steps)
            joint = plogp(table)
            remember(self._likelihoods, key, {v: joint - plogp(table.sum(axis=place)) for place, v in enumerate(key)})
        return self._likelihoods[key][child]

    def count_ahead(self, child: int, families: Sequence[tuple[int, ...]]) -> None:
        """Count in one pass what the scores of a variable with each of these sets of parents will be asked for."""
        keys = (tuple(sorted((*parents, child))) for parents in families)
        self._tables.count_ahead(key for key in keys if key not in self._sums and key not in self._likelihoods)

    def penalty(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the penalty of `bic`: half the logarithm of n for each free probability."""
        states = self._tables.n_states
        free = math.prod(states[parent] for parent in parents) * (states[child] - 1)
        return 0.5 * math.log(max(self._tables.n_records, 1)) * free

    def noise(self, members: Sequence[int]) -> float:
        """Return 1 over the product of the contrast factors of the units that hold the members."""
        key = tuple(sorted(members))
        if key not in self._factors:
            design = family_design(self._tables.units, self._tables.n_states, key)
            remember(self._factors, key, 1 / math.prod(contrast_factor(axis) for axis in design.axes))
        return self._factors[key]

    def information(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the mutual information of a variable with the joint of its parents, nats; 0 where it is not significant."""
        members = (*parents, child)
        counts, design = self._tables.count_family(tuple(sorted(members)) if len(parents) == 1 else members)
        if len(design.axes[-1].members) == 1 and all(axis.is_linear for axis in design.axes):
            pairs = counts.reshape(-1, counts.shape[-1])
            if not independence_p_value(pairs) < self._level:
                return 0.0
        return links([(counts, design)])[0].information

"""Scores of families from randomized counts, for searches that look at a variable with all its parents at once.

With N^ the EM-corrected counts of a family (`EM_STEPS` steps), N^_jk of parent configuration j and category k,

    bic       = sum_jk N^_jk log(N^_jk / N^_j) - (log n / 2) J (K - 1),
    bic-noise = the same with the penalty times c = 1 / prod lambda over the family's columns,

lambda the contrast factor of a column (`contrast_factor`; 1 without randomization). `bic` gives the best synthetic records where
noise is moderate, `bic-noise` by far the best structure (methods.md section 2). `information` is the mutual information of a
variable with the joint of its parents, debiased and tested as `verticil.shared.estimation.information` does it for pairs.

`bdeu` is exact for data that are not randomized and wrong for corrected counts, which it takes for data: independent variables
become dependent with a posterior above .99 (methods.md section 5). So it is there for columns that are released as they are only.

Every table is counted and corrected once, whichever of its variables is asked for as the child. Where no column of a family is
randomized there is nothing to correct.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from verticil.miner.learning.search.families import FamilyValue, remember
from verticil.miner.learning.tables import FamilyTables
from verticil.shared.estimation.axes import plogp
from verticil.shared.estimation.design import family_design
from verticil.shared.estimation.estimators import em_projection
from verticil.shared.estimation.independence import independence_p_value
from verticil.shared.estimation.information import links
from verticil.shared.estimation.unit_axis import contrast_factor

EM_STEPS: Final = 60


class FamilyScores:
    """Scores of families, with a bounded memory.

    Args:
        tables: the released counts.
        level: of one test of independence, for `information`.
        steps: of the EM.

    Attributes:
        unrandomized: the variables whose columns are released as they are.
    """

    def __init__(self, tables: FamilyTables, *, level: float = 0.05, steps: int = EM_STEPS) -> None:
        self._tables, self._level, self._steps = tables, level, steps
        self.unrandomized = frozenset(
            unit.variables[0] for unit in tables.units if unit.domain is None and unit.channel.is_identity
        )
        self._sums: dict[tuple[int, ...], float] = {(): plogp(np.array([tables.n_records]))}
        self._likelihoods: dict[tuple[int, ...], dict[int, float]] = {}
        self._factors: dict[tuple[int, ...], float] = {}

    def named(self, score: str) -> FamilyValue:
        """The score that a study calls so.

        Raises:
            KeyError: there is none of this name.
        """
        return {"bic": self.bic, "bic-noise": self.bic_noise, "bdeu": self.bdeu}[score]

    def bic(self, child: int, parents: tuple[int, ...]) -> float:
        """See the module."""
        return self.likelihood(child, parents) - self.penalty(child, parents)

    def bic_noise(self, child: int, parents: tuple[int, ...]) -> float:
        """See the module."""
        return self.likelihood(child, parents) - self.penalty(child, parents) * self.noise((*parents, child))

    def bdeu(self, child: int, parents: tuple[int, ...]) -> float:
        """The Bayesian Dirichlet score with an equivalent sample of one record (methods.md section 5).

        Raises:
            ValueError: a column of the family is randomized.
        """
        observed, design = self._tables.counted((*parents, child))
        if not all(axis.channel.is_identity for axis in design.axes):
            raise ValueError(f"variable {child} with the parents {parents}: a column of the family is randomized")
        from scipy.special import gammaln

        table = design.estimate(observed).reshape(-1, design.shape[-1])
        rows, cell = 1 / len(table), 1 / table.size
        configurations = gammaln(rows) - gammaln(rows + table.sum(axis=1))
        return float(configurations.sum() + (gammaln(cell + table) - gammaln(cell)).sum())

    def likelihood(self, child: int, parents: tuple[int, ...]) -> float:
        """Of the EM-corrected counts, nats."""
        key = tuple(sorted((*parents, child)))
        if self.unrandomized.issuperset(key):
            rest = tuple(v for v in key if v != child)
            if key not in self._sums or rest not in self._sums:
                counts, _ = self._tables.counted(key)
                remember(self._sums, key, plogp(counts))
                remember(self._sums, rest, plogp(counts.sum(axis=key.index(child))))
            return self._sums[key] - self._sums[rest]
        if key not in self._likelihoods:
            table = em_projection(*self._tables.counted(key), iterations=self._steps)
            joint = plogp(table)
            remember(self._likelihoods, key, {v: joint - plogp(table.sum(axis=place)) for place, v in enumerate(key)})
        return self._likelihoods[key][child]

    def count_ahead(self, child: int, families: Sequence[tuple[int, ...]]) -> None:
        """Count in one pass what the scores of a variable with each of these sets of parents will be asked for."""
        keys = (tuple(sorted((*parents, child))) for parents in families)
        self._tables.count_ahead(key for key in keys if key not in self._sums and key not in self._likelihoods)

    def penalty(self, child: int, parents: tuple[int, ...]) -> float:
        """Of `bic`: half the logarithm of n for each free probability."""
        states = self._tables.n_states
        free = math.prod(states[parent] for parent in parents) * (states[child] - 1)
        return 0.5 * math.log(max(self._tables.n_records, 1)) * free

    def noise(self, members: Sequence[int]) -> float:
        """1 over the product of the contrast factors of the units that hold the members."""
        key = tuple(sorted(members))
        if key not in self._factors:
            design = family_design(self._tables.units, self._tables.n_states, key)
            remember(self._factors, key, 1 / math.prod(contrast_factor(axis) for axis in design.axes))
        return self._factors[key]

    def information(self, child: int, parents: tuple[int, ...]) -> float:
        """Mutual information of a variable with the joint of its parents, nats; 0 where it is not significant."""
        members = (*parents, child)
        observed, design = self._tables.counted(tuple(sorted(members)) if len(parents) == 1 else members)
        if len(design.axes[-1].members) == 1 and all(axis.is_linear for axis in design.axes):
            pairs = observed.reshape(-1, observed.shape[-1])
            if not independence_p_value(pairs) < self._level:
                return 0.0
        return links([(observed, design)])[0].information

"""Scores of families for a posterior of structures: of records, of randomized columns, of a joint model of noisy tables.

One formula (`verticil.shared.numerics.posterior.randomized`), and per source the counts and how much of a record an interaction
has:

    records         the counts; f = 1
    randomized      EM-corrected counts; f = product of phi over the family's columns
    noisy tables    those of the joint model of each of some replicates (`from_tables`); f = 1, and the graphs are mixed

People of a replicate are drawn anew, randomized and counted with new noise, so what noise does to a model differs from
replicate to replicate, and the mixture has its uncertainty. On 12 random networks (six columns, 5,000 people, all pairs at a
total epsilon of 1) the mean log loss of "these two are linked" was .36 with it, .70 with the model's own tables tempered by
prod lambda^2 / (1 + sigma^2 c / n), c the family's cells, .53 with both, .56 with the model's tables as if they were records,
and .54 with the records themselves; at epsilon 3: .34, .58, .39, .52, .54. Weak links are lost by every score, least by the
mixture.

A set of variables is counted, and corrected, once for all families that it makes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from verticil.miner.learning.posterior.tuning import TUNING
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.tuning import TUNING as SCORING
from verticil.miner.learning.search.protocol import remember
from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.numerics.estimation.estimators import em_projection, em_start, em_tables
from verticil.shared.numerics.estimation.inverse_estimation import FamilyDesign
from verticil.shared.numerics.posterior.randomized import LocalScore, exact_scores, family_scores, left_of
from verticil.shared.numerics.posterior.released import can_be_unblinded
from verticil.shared.numerics.posterior.tuning import TUNING as SAMPLING


def local_score(name: str) -> LocalScore:
    """Return the score that a study calls so.

    Raises:
        ValueError: there is none of this name.
    """
    scores: tuple[LocalScore, ...] = ("bdeu", "dirichlet")
    for score in scores:
        if name == score:
            return score
    raise ValueError(f"there is no score '{name}' of a posterior")


class PosteriorScores:
    """The score of any family; see the module.

    Args:
        tables: the released counts, or a joint model's.
        score: ``bdeu`` or ``dirichlet``.
        whole: the tables are a joint model's, and count as they are.

    Attributes:
        tables: the released counts.
    """

    def __init__(
        self,
        tables: FamilyTables,
        score: LocalScore,
        *,
        whole: bool = False,
    ) -> None:
        self.tables, self._whole = tables, whole
        self._score: LocalScore = score
        self._known: dict[tuple[int, ...], tuple[float, ...] | dict[tuple[int, tuple[int, ...]], float]] = {}
        self._values: dict[tuple[int, tuple[int, ...]], float] = {}

    @property
    def are_plain(self) -> bool:
        """Whether they are of records as they are: nothing is corrected, and a table is only counted."""
        return not self._whole and all(unit.channel.is_identity for unit in self.tables.units)

    def joint(self) -> tuple[Counts, FamilyDesign] | None:
        """Return the released counts of all columns together; None: nothing is randomized, or graphs are sampled by scores."""
        d = len(self.tables.n_states)
        if (
            self._whole
            or self.are_plain
            or not 2 <= d <= SAMPLING.most_unblinded_variables
            or math.prod(self.tables.n_states) > SAMPLING.most_unblinded_cells
        ):
            return None
        design = self.tables.design(tuple(range(d)))
        return self.tables.count_family(tuple(range(d))) if can_be_unblinded(design) else None

    def __call__(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the information in nats; 0 without parents. See `verticil.miner.learning.search.protocol.FamilyValue`."""
        if not parents:
            return 0.0
        if (child, parents) not in self._values:
            remember(self._values, (child, parents), self._value(child, parents))
        return self._values[child, parents]

    def _value(self, child: int, parents: tuple[int, ...]) -> float:
        key = tuple(sorted((*parents, child)))
        if key not in self._known:
            self._keep(key, *self.temper_counts(key))
        values = self._known[key]
        if isinstance(values, tuple):
            return values[key.index(child)]
        place = {v: number for number, v in enumerate(key)}

        def score_here(v: int, some: tuple[int, ...]) -> float:
            return values[place[v], tuple(place[u] for u in some)]

        def more(v: int, some: tuple[int, ...]) -> float:
            """Return what a smaller family has more at its own f than at this one's."""
            return self(v, some) - score_here(v, some)

        def without(*left_out: int) -> tuple[int, ...]:
            return tuple(p for p in parents if p not in left_out)

        ways = [more(child, without(last)) for last in parents]
        for first, second in itertools.combinations(parents, 2):
            rest = without(first, second)
            link = more(second, tuple(sorted((*rest, first)))) - more(second, rest)
            ways.append(more(child, without(first)) + more(child, without(second)) - more(child, rest) - link)
        return score_here(child, parents) + max(ways)

    def _keep(self, key: tuple[int, ...], counts: Floats, factor: float) -> None:
        scores = exact_scores(counts, self._score) if factor == 1 else family_scores(counts, factor, self._score)
        remember(self._known, key, scores)

    def temper_counts(self, axes: tuple[int, ...]) -> tuple[Floats, float]:
        """Return the counts that a family is scored by, (K_1, .., K_m) in the order of its variables, and f."""
        released_counts, design = self.tables.count_family(axes)
        if self._whole:
            return np.asarray(released_counts, dtype=np.float64), 1.0
        if _is_plain(design):
            return design.estimate(released_counts), 1.0
        counts = em_projection(released_counts, design, iterations=SCORING.em_steps)
        return counts, _temper_factor(counts, design)

    def pseudo(self, cells: int) -> float:
        """Return the prior's count in each cell of a family's table of so many cells."""
        return 1 / cells if self._score == "bdeu" else 1.0

    def count_ahead(self, child: int, families: Sequence[tuple[int, ...]]) -> None:
        """Count in one pass, and correct together, what the scores of a variable with these sets of parents are asked for."""
        keys = [tuple(sorted((*parents, child))) for parents in families if parents]
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        self.tables.count_ahead(new)
        if self._whole:
            return
        alike: dict[tuple[object, ...], list[tuple[tuple[int, ...], Counts, FamilyDesign]]] = {}
        for key in new:
            released_counts, design = self.tables.count_family(key)
            if any(axis.cells is not None for axis in design.axes) or _is_plain(design):
                continue  # one by one, when it is asked for
            kind = (released_counts.shape, *(axis.forward is None for axis in design.axes))
            alike.setdefault(kind, []).append((key, released_counts, design))
        for members in alike.values():
            size = max(TUNING.cells_together // members[0][1].size, 1)
            for start in range(0, len(members), size):
                self._correct(members[start : start + size])

    def _correct(self, members: Sequence[tuple[tuple[int, ...], Counts, FamilyDesign]]) -> None:
        """Correct several tables of one shape by the EM."""
        n = max(float(members[0][1].sum()), 1.0)
        forward_stacks: list[Floats | None] = []
        for place in range(members[0][1].ndim):
            matrices = [design.axes[place].forward for _, _, design in members]
            forward_stacks.append(None if matrices[0] is None else np.stack([m for m in matrices if m is not None]))
        solutions = em_tables(
            np.stack([released_counts / n for _, released_counts, _ in members])[:, None],
            np.stack([em_start(released_counts, design) for _, released_counts, design in members])[:, None],
            forward_stacks,
            steps=SCORING.em_steps,
            accelerate=False,
        )
        for (key, _, design), table in zip(members, solutions[:, 0], strict=True):
            counts = n * design.arrange(table)
            self._keep(key, counts, _temper_factor(counts, design))


def _is_plain(design: FamilyDesign) -> bool:
    return all(axis.channel.is_identity for axis in design.axes)


def _temper_factor(counts: Floats, design: FamilyDesign) -> float:
    """Return f of a family of randomized columns."""
    shares = counts / counts.sum()
    factor = 1.0
    for axis in design.axes:
        others = tuple(place for place in range(counts.ndim) if place not in axis.members)
        factor *= left_of(axis, shares.sum(axis=others).ravel())
    return max(factor, TUNING.least_factor)

"""Algorithms 2 and 3 of PrivBayes: from noisy scores to the attribute-parent pairs of a network. They use no data.

What the paper leaves out or prints wrongly, and what is done here:

- The first pair is chosen among those with K_i K_j <= tau; Algorithm 2 has no such guard. Where no pair is that small, the
  network begins with one attribute.
- Attributes that Algorithm 2 looked at and did not take are placed by Algorithm 3, which runs until none is left (the paper
  counts d - k - 1 runs; they are d - k for k attributes in the first pair).
- Parents are added by decreasing score; a score that is not positive adds none, and one that would pass tau is passed over.
- An attribute with more than tau categories has its one-way table all the same.

Constraints (`verticil.shared.numerics.model.constraints`) hold: an edge that is not allowed is never there; a required one always
is, whatever tau; an attribute is placed once all that must stand before it are there. The attributes of the first pair are joined
by a complete graph in the order in which they were taken, so that one is taken only if all edges to it are allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Bools, Floats, Ints
from verticil.shared.numerics.model.constraints import Constraints
from verticil.shared.numerics.model.graph import Dag


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A network as PrivBayes builds it.

    Attributes:
        tables: the attributes of each table to measure: of the first pair in the order in which they were taken; then of each
            further one its parents, ascending, and last itself.
        dag: the same as a graph.
    """

    tables: tuple[tuple[int, ...], ...]
    dag: Dag


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rules:
    """What is allowed, and who must stand before whom: (d, d), [parent, child]."""

    allowed: Bools
    before: Bools
    required: Bools

    def ready(self, attribute: int, before: Sequence[int]) -> bool:
        """Return whether all that must stand before an attribute are placed."""
        waiting = self.before[:, attribute].copy()
        waiting[list(before)] = False
        return not waiting.any()

    def joins(self, attribute: int, before: Sequence[int]) -> bool:
        """Return whether an attribute may be the child of all that are placed."""
        return self.ready(attribute, before) and bool(self.allowed[list(before), attribute].all())


def learn_structure(
    scores: Ints | Floats,
    n_states: Sequence[int],
    *,
    tau: float,
    constraints: Constraints | None = None,
    most_attributes: int | None = None,
) -> Structure:
    """Algorithm 2, then Algorithm 3 until every attribute is placed.

    Args:
        scores: (d, d), symmetric, noisy.
        n_states: K of each attribute.
        tau: most cells of a table.
        constraints: what the network must and must not have; None: nothing.
        most_attributes: of a table; None: any number. With 2 the tables are those of pairs.

    Raises:
        ValueError: there is no attribute, or the constraints are of another number of them.

    >>> scores = np.array([[0, 9, 1], [9, 0, 5], [1, 5, 0]])
    >>> learn_structure(scores, (2, 2, 2), tau=4).tables
    ((1, 0), (1, 2))
    """
    rules = _rules(len(n_states), constraints)
    first = first_pair(scores, n_states, tau=tau, may=rules.joins, most_attributes=most_attributes)
    if not first:
        first = (next(v for v in range(len(n_states)) if rules.ready(v, ())),)
    order, tables = list(first), [first]
    parents: list[tuple[int, ...]] = [()] * len(n_states)
    for place, attribute in enumerate(first):
        parents[attribute] = tuple(sorted(first[:place]))
    while len(order) < len(n_states):
        child, subset = next_pair(scores, n_states, order, tau=tau, rules=rules, most_attributes=most_attributes)
        parents[child] = subset
        tables.append((*subset, child))
        order.append(child)
    return Structure(tables=tuple(tables), dag=Dag(parents=tuple(parents)))


def first_pair(
    scores: Ints | Floats,
    n_states: Sequence[int],
    *,
    tau: float,
    may: Callable[[int, Sequence[int]], bool] = lambda _attribute, _placed: True,
    most_attributes: int | None = None,
) -> tuple[int, ...]:
    """Algorithm 2: the attributes of the first attribute-parent pair (A_i, Pi).

    Of the two attributes of the best pair the one with the larger number is the parent A_j (the smaller, where only that is
    allowed); ties go to the first pair. Another one joins Pi while the table stays below tau.

    Args:
        scores, n_states, tau, most_attributes: see `learn_structure`.
        may: (attribute, those that are placed) -> whether it may be the child of all of them.

    Returns:
        (A_j, A_i, then whoever joined Pi); empty where no pair has at most tau cells or none is allowed.
    """
    d = len(n_states)
    most = most_attributes or d
    best: tuple[float, tuple[int, int]] | None = None
    for i in range(d):
        for j in range(i + 1, d):
            cells = n_states[i] * n_states[j]
            order = next(((u, v) for u, v in ((j, i), (i, j)) if may(u, ()) and may(v, (u,))), None)
            if order is None or cells > tau or most < 2:
                continue
            if best is None or scores[i, j] / cells > best[0]:
                best = (scores[i, j] / cells, order)
    if best is None:
        return ()
    attributes = list(best[1])
    room = tau / math.prod(n_states[v] for v in attributes)
    others = [v for v in range(d) if v not in attributes]
    weights = np.asarray(scores, dtype=np.float64) / np.outer(n_states, n_states)
    while others and len(attributes) < most:
        candidate = max(others, key=lambda v: float(weights[attributes, v].sum()))
        others.remove(candidate)
        if room / n_states[candidate] > 1 and may(candidate, attributes):
            room /= n_states[candidate]
            attributes.append(candidate)
    return tuple(attributes)


def next_pair(
    scores: Ints | Floats,
    n_states: Sequence[int],
    order: Sequence[int],
    *,
    tau: float,
    rules: Rules | None = None,
    most_attributes: int | None = None,
) -> tuple[int, tuple[int, ...]]:
    """Algorithm 3: the best further attribute and its parents, ascending, among those that are placed.

    Args:
        scores, n_states, tau, most_attributes: see `learn_structure`.
        order: attributes; not all.
        rules: of the constraints; None: there are none.
    """
    rules = rules or _rules(len(n_states), None)
    most = most_attributes or len(n_states)
    candidates: list[tuple[float, int, tuple[int, ...]]] = []
    for child in range(len(n_states)):
        if child in order or not rules.ready(child, order):
            continue
        subset = [p for p in order if rules.required[p, child]]
        cells = math.prod(n_states[p] for p in subset) * n_states[child]
        others = [p for p in order if p not in subset and rules.allowed[p, child] and scores[p, child] > 0]
        for parent in sorted(others, key=lambda p: (-scores[p, child], p)):
            if cells * n_states[parent] <= tau and len(subset) < most - 1:
                subset.append(parent)
                cells *= n_states[parent]
        candidates.append((float(sum(scores[p, child] for p in subset)), -child, tuple(sorted(subset))))
    _, negative, parents = max(candidates)
    return -negative, parents


def _rules(d: int, constraints: Constraints | None) -> Rules:
    if d == 0 or (constraints is not None and len(constraints.names) != d):
        raise ValueError(f"{d} attributes, expected at least one, and as many as the constraints are of")
    nothing: NDArray[np.bool_] = np.zeros((d, d), dtype=np.bool_)
    if constraints is None:
        return Rules(allowed=~np.eye(d, dtype=np.bool_), before=nothing, required=nothing)
    return Rules(allowed=constraints.allowed, before=constraints.before, required=constraints.required)

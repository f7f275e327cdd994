"""The probability of a graph exactly, for a few variables: its weight over the sum of the weights of all acyclic graphs.

The sum needs no list of the graphs. With Z(U) the sum over graphs of the variables U, and A_j(T) the sum of the weights of j's
parent sets within T, graphs in which at least the variables S have no children are counted by inclusion and exclusion:

    Z(U) = sum over S in U, not empty, of (-1)^(|S| + 1) Z(U - S) prod_{j in S} A_j(U - S),

3^d terms (Tian & He 2009, computing posterior probabilities of structural features in Bayesian networks, section 3, who do it
for features). No term is larger than the sum, so that little is lost to the signs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.posterior.parent_sets import ParentSets

MOST_VARIABLES = 12


def weight_table(sets: ParentSets) -> Floats:
    """(d, 2^d): the log weight of each parent set of each variable by its mask, -inf where it is not allowed.

    Raises:
        ValueError: more than `MOST_VARIABLES`.
    """
    d = sets.n_variables
    if d > MOST_VARIABLES:
        raise ValueError(f"{d} variables, expected at most {MOST_VARIABLES}")
    table = np.full((d, 2**d), -np.inf)
    for v in range(d):
        masks, weight = sets.of(v)
        table[v, masks.astype(np.int64)] = weight
    return table


def penalized(table: Floats, gamma: float) -> Floats:
    """The same with gamma less for each parent: the prior exp(-gamma |pa|) (equation 5, alpha = 1)."""
    sizes = np.array([mask.bit_count() for mask in range(table.shape[1])])
    return table - gamma * sizes


def log_total(table: Floats) -> float:
    """The logarithm of the sum over all acyclic graphs of the product of their weights.

    Args:
        table: (d, 2^d), see `weight_table`; the empty set is allowed everywhere.
    """
    d, n = table.shape
    within = table.copy()
    for bit in range(d):
        halves = within.reshape(d, -1, 2, 1 << bit)
        halves[:, :, 1] = np.logaddexp(halves[:, :, 1], halves[:, :, 0])
    bits = (np.arange(n) >> np.arange(d)[:, None]) & 1
    signs = np.where(bits.sum(axis=0) % 2, 1.0, -1.0)
    everything = np.arange(n)
    total = np.zeros(n)
    for u in range(1, n):
        childless = everything[1 : u + 1]
        childless = childless[(childless & u) == childless]
        rest = u ^ childless
        terms = total[rest] + np.where(bits[:, childless], within[:, rest], 0.0).sum(axis=0)
        largest = float(terms.max())
        total[u] = largest + math.log(float((signs[childless] * np.exp(terms - largest)).sum()))
    return float(total[-1])


def log_weight(table: Floats, graph: Dag) -> float:
    """Of a graph: the sum over its families."""
    return float(sum(table[v, sum(1 << u for u in parents)] for v, parents in enumerate(graph.parents)))


def turned_pairs(graph: Dag) -> Iterator[Dag]:
    """The graph and all that differ from it only in the direction of lone edges, of two variables without other neighbours.

    The paper's Table 3 sees them as one network. The first one has these edges from the lower variable to the higher.

    >>> [graph.parents for graph in turned_pairs(Dag(parents=((1,), (), ())))]
    [((), (0,), ()), ((1,), (), ())]
    """
    edges = graph.edges()
    degree = [sum(v in edge for edge in edges) for v in range(graph.n_variables)]
    alone = [tuple(sorted(edge)) for edge in edges if all(degree[v] == 1 for v in edge)]
    for turned in itertools.product((False, True), repeat=len(alone)):
        parents = list(graph.parents)
        for (low, high), other_way in zip(alone, turned, strict=True):
            parents[low], parents[high] = ((high,), ()) if other_way else ((), (low,))
        yield Dag(parents=tuple(parents))


def log_merged_weight(table: Floats, graph: Dag) -> float:
    """Of the graph together with those that `turned_pairs` sees as the same."""
    return float(np.logaddexp.reduce([log_weight(table, other) for other in turned_pairs(graph)]))

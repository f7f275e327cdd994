"""How far what was learned from moves graphs away from their prior.

Where it says next to nothing (an epsilon so small that nothing is left of the records, few people), a sample of graphs is one of
the prior, and whoever reads its probabilities has to know it. Of few variables the prior's probability of every edge is summed
over all graphs, and the largest difference from the sample's is the figure. Of more there is a bound: with R the range of the
scores of one variable's sets of parents, in nats, the probability of any event about its parents, given those of all other
variables, is moved by at most tanh(R / 4).
"""

from __future__ import annotations

import math

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.posterior.exact import exact_posterior
from verticil.shared.numerics.posterior.parent_sets import ParentSets
from verticil.shared.numerics.posterior.prior import StructurePrior


def edges_moved(edge_probability: Floats, prior: ParentSets) -> float | None:
    """Return the largest difference of an edge's probability from the prior's; None: the limits leave one graph.

    Args:
        edge_probability: (d, d), ``[parent, child]``.
        prior: the sets of parents, weighed by the prior alone; of at most `exact.MOST_EXACT` variables.
    """
    if len(prior.masks) == prior.n_variables:
        return None
    return float(np.abs(edge_probability - exact_posterior(prior).edge_probability).max())


def most_moved(sets: ParentSets, prior: StructurePrior) -> float | None:
    """Return the bound of the module, the largest of a variable; None: the limits leave one graph.

    Args:
        sets: weighed by prior and score.
        prior: of the graph.
    """
    if len(sets.masks) == sets.n_variables:
        return None
    by_size = np.array([prior.log(size) for size in range(sets.n_variables + 1)])
    score = sets.log_weight - by_size[[mask.bit_count() for mask in sets.masks.tolist()]]
    ranges = (float(np.ptp(score[sets.starts[v] : sets.starts[v + 1]])) for v in range(sets.n_variables))
    return math.tanh(max(ranges) / 4)

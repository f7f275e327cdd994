"""A family's conditional probabilities with their uncertainty, one-way shares, and the network's own marginals.

Two answers for every cell. `probability`, what is sampled from: MAP by the counts of the EM, or of another estimator that is
asked for, with a Dirichlet prior (`estimation.em_estimate` says why it is added once); always a distribution.
`estimate`: the ratio of unbiased counts N^_jk / N^_j, with a standard error by the delta method from the exact covariance
(sampling and randomization; Ma & Sivakumar, section 5). With theta = N^_jk / N^_j, m_jy = sum of the released counts with
child category y, weighted by the squares of the parents' inverses at j, and z the child's P^-1,

    Var(theta_jk) = sum_y m_jy (z_yk - theta_jk)^2 / N^_j^2,

which is G C_jj G^T of the covariance blocks written out (the term N^ N^^T / n drops out: the estimate is a ratio).

Intervals are Wald intervals, conditional on the structure; they are cut to [0, 1] at the end, never before. Where a column is
not randomized and no record is in the cell, the interval has no width. A configuration whose estimated count is below three of
its standard deviations is unstable and has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from verticil.shared.model.estimation import Estimator, em_estimate, marginal_estimate
from verticil.shared.model.kronecker import (
    Counts,
    apply_axes,
    estimate_counts,
    inverse_matrices,
    variance_total,
)
from verticil.shared.model.network import Family, Marginal, Network, Projection
from verticil.shared.model.transition import Transition

__all__ = ["MAX_CLIQUE_CELLS", "family_parameters", "marginal_parameters", "network_marginals"]

Floats = NDArray[np.float64]

UNSTABLE_BELOW = 3.0
"""Standard deviations of a parent configuration's estimated count."""

_ROUNDING = 1e-9
"""Share of the records: a count of zero that went through the inverse of another axis is zero only up to rounding."""

MAX_CLIQUE_CELLS = 2_000_000
"""Largest table that `network_marginals` builds."""


def family_parameters(
    observed: Counts,
    transitions: Sequence[Transition],
    child: int,
    parents: Sequence[int],
    *,
    prior_count: float,
    level: float,
    estimator: Estimator = em_estimate,
) -> Family:
    """Estimate the conditional probabilities of one variable.

    Args:
        observed: (K_parent_1, .., K_parent_Q, K_child), counts of released records, parents ascending.
        transitions: of each axis.
        child: position of the variable in the schema.
        parents: positions of its parents, ascending.
        prior_count: Dirichlet pseudo-count of every cell, for `probability` only.
        level: of the intervals.
        estimator: of the counts behind `probability`; the estimate and its intervals are the inverse's with any.

    Raises:
        ValueError: the shapes do not fit, there is no record, or the estimator gives a negative probability.
    """
    if observed.ndim != len(parents) + 1 or len(transitions) != observed.ndim:
        raise ValueError(
            f"family of variable {child}: {observed.ndim} axes and {len(transitions)} transitions, "
            f"expected {len(parents) + 1} for its {len(parents)} parents"
        )
    n_states = observed.shape[-1]
    n = float(observed.sum())
    fitted = estimator(observed, transitions, prior_count=prior_count).reshape(-1, n_states)
    counts = estimate_counts(observed, transitions).reshape(-1, n_states)
    of_parents = observed.sum(axis=-1)
    totals = counts.sum(axis=1)
    deviation = np.sqrt(variance_total(of_parents, transitions[:-1])).reshape(-1)
    present = totals > _ROUNDING * n
    unstable = ~present | (totals < UNSTABLE_BELOW * deviation)
    divisor = np.where(present, totals, np.nan)[:, None]
    estimate = counts / divisor
    standard_error = _standard_error(observed, transitions, estimate, divisor)
    low, high = _interval(estimate, standard_error, level)
    return Family(
        child=child,
        parents=tuple(parents),
        probability=_conditional(fitted),
        estimate=estimate,
        standard_error=standard_error,
        interval_low=np.where(unstable[:, None], np.nan, low),
        interval_high=np.where(unstable[:, None], np.nan, high),
        unstable=np.repeat(unstable[:, None], n_states, axis=1),
        projection=Projection(
            mass_moved=float(np.abs(counts - fitted).sum()) / (2 * n),
            negative_cells=int(np.count_nonzero(counts < -_ROUNDING * n)),
        ),
    )


def marginal_parameters(
    observed: Counts, transition: Transition, *, variable: int, model: Floats, level: float
) -> Marginal:
    """Estimate one variable's shares.

    Args:
        observed: (K,), counts of released records.
        transition: of the column.
        variable: position in the schema.
        model: (K,), the network's own shares (`network_marginals`).
        level: of the intervals.

    Raises:
        ValueError: there is no record.
    """
    share, standard_error = marginal_estimate(observed, transition)
    low, high = _interval(share, standard_error, level)
    return Marginal(
        variable=variable,
        estimate=share,
        standard_error=standard_error,
        interval_low=low,
        interval_high=high,
        model=model,
    )


def network_marginals(network: Network) -> list[Floats]:
    """The share of every category under the network, exact, by variable elimination among each variable's ancestors.

    Returns:
        For each variable (K,), float64, in schema order.

    Raises:
        ValueError: an elimination would need a table of more than `MAX_CLIQUE_CELLS` cells.
    """
    return [_marginal(network, variable) for variable in range(len(network.schema))]


def _conditional(fitted: Floats) -> Floats:
    """Rows to sum 1: (J, K); a parent configuration without mass gets the child's marginal."""
    totals = fitted.sum(axis=1, keepdims=True)
    marginal = fitted.sum(axis=0) / fitted.sum()
    rows: Floats = np.where(totals > 0, fitted / np.where(totals > 0, totals, 1.0), marginal)
    return rows


def _standard_error(observed: Counts, transitions: Sequence[Transition], estimate: Floats, divisor: Floats) -> Floats:
    *of_parents, of_child = transitions
    squares: list[Floats | None] = [None if matrix is None else matrix**2 for matrix in inverse_matrices(of_parents)]
    weights = apply_axes(observed, [*squares, None]).reshape(estimate.shape)
    inverse = of_child.inverse
    # The square, multiplied out: three passes over the table in place of one over J x K x K.
    square = (
        weights @ inverse**2 - 2 * estimate * (weights @ inverse) + estimate**2 * weights.sum(axis=1, keepdims=True)
    )
    error: Floats = np.sqrt(np.maximum(square, 0.0)) / divisor
    return error


def _interval(estimate: Floats, standard_error: Floats, level: float) -> tuple[Floats, Floats]:
    half = NormalDist().inv_cdf((1 + level) / 2) * standard_error
    return np.clip(estimate - half, 0.0, 1.0), np.clip(estimate + half, 0.0, 1.0)


def _marginal(network: Network, target: int) -> Floats:
    """Eliminate the ancestors of `target`, always the one whose elimination builds the smallest table."""
    n_states = network.schema.n_states
    relevant = {target}
    waiting = [target]
    while waiting:
        new = set(network.dag.parents[waiting.pop()]) - relevant
        relevant |= new
        waiting.extend(new)
    factors: list[tuple[tuple[int, ...], Floats]] = []
    for variable in sorted(relevant):
        scope = (*network.dag.parents[variable], variable)
        table = network.families[variable].probability.reshape([n_states[v] for v in scope])
        factors.append((scope, table))
    left = relevant - {target}
    while left:
        cliques = {v: _union(scope for scope, _ in factors if v in scope) for v in left}
        cells = {v: math.prod(n_states[u] for u in clique) for v, clique in cliques.items()}
        chosen = min(left, key=lambda v: (cells[v], v))
        if cells[chosen] > MAX_CLIQUE_CELLS:
            raise ValueError(
                f"the share of variable {target} needs a table of {cells[chosen]} cells, "
                f"expected at most {MAX_CLIQUE_CELLS}"
            )
        clique = cliques[chosen]
        joint = _product([factor for factor in factors if chosen in factor[0]], clique)
        factors = [factor for factor in factors if chosen not in factor[0]]
        factors.append((tuple(v for v in clique if v != chosen), joint.sum(axis=clique.index(chosen))))
        left.remove(chosen)
    share = _product(factors, (target,))
    share /= share.sum()
    return share


def _union(scopes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({variable for scope in scopes for variable in scope}))


def _product(factors: Sequence[tuple[tuple[int, ...], Floats]], clique: tuple[int, ...]) -> Floats:
    """The product of factors as one table with an axis for each variable of the clique."""
    result = np.ones((1,) * len(clique))
    for scope, table in factors:
        order = sorted(range(len(scope)), key=lambda axis: scope[axis])
        placed = table.transpose(order)
        sizes = iter(placed.shape)
        result = result * placed.reshape([next(sizes) if variable in scope else 1 for variable in clique])
    return result

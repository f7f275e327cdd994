"""Ma & Sivakumar's estimator with a Dirichlet prior: theta_ijk = (alpha_ijk + N^_ijk) / (alpha_ij + N^_ij), N^ from the inverse.

Alpha is one number for every cell (`prior_count`), or a table for a family (`prior_tables`). N^ is unbiased and may be negative:
where alpha does not lift a cell to 0 there is no probability, so a study ends there by name and nothing is sampled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Counts
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.estimation.estimators import ESTIMATORS, Estimator, inverse_estimate
from verticil.shared.numerics.estimation.inverse_estimation import Design
from verticil.shared.study.document import ParameterRule, Study


def estimator_of(rule: ParameterRule, child: str) -> Estimator:
    """Return the way from released counts to true ones that a study has for the family of a variable."""
    if rule.prior is None:
        return ESTIMATORS[rule.estimator].estimate
    alpha = _alpha(rule, child)

    def posterior_mean(table: Counts, design: Design, *, prior_count: float = 0.0) -> NDArray[np.float64]:
        """Return the posterior mean; the prior is the study's, whatever `prior_count`."""
        if isinstance(alpha, float):
            return inverse_estimate(table, design, prior_count=alpha)
        counts = inverse_estimate(table, design)
        sums: NDArray[np.float64] = counts.reshape(-1, counts.shape[-1]) + alpha
        sums *= float(counts.sum()) / float(sums.sum())
        return sums.reshape(counts.shape)

    return posterior_mean


def prior_mass(rule: ParameterRule, child: str, shape: tuple[int, ...]) -> float:
    """Pseudo-counts of all cells of a family together; its table is (parent configurations, categories)."""
    return float(np.broadcast_to(_alpha(rule, child), shape).sum())


def negative_counts(study: Study, child: str) -> DataFault:
    """Why a family of a study with the estimator ``inverse`` has no probabilities."""
    return DataFault(
        "LEARNING_FAILED",
        f"study '{study.id}': variable '{child}': an estimated count is negative with its prior, and the estimator 'inverse' "
        "leaves it so: no record can be drawn",
        hint="parameters.estimator 'em' gives probabilities from any counts; or allow fewer parents or a larger prior",
    )


def _alpha(rule: ParameterRule, child: str) -> float | NDArray[np.float64]:
    rows = dict(rule.prior_tables).get(child)
    assert rule.prior_count is not None  # `rules` checked it; of a study without a prior, no caller asks
    return rule.prior_count if rows is None else np.array(rows)

"""Analyses of several sets of records, one of each network that was sampled from a posterior of graphs.

A set comes from one network. The networks differ as far as people, noise and graph are not known. Each set is analysed by
itself, and `shared.numerics.posterior.combining` puts the results together (Raghunathan, Reiter & Rubin 2003). Sets here are
`LARGER` times as large as the people are many, so that next to nothing of a network is lost in its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from verticil.analysis.design import Design
from verticil.analysis.moments import Coefficients
from verticil.analysis.tables import count_people, seeded
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.core.errors import GateFailed
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.posterior.combining import Combined, of_full
from verticil.shared.numerics.posterior.statistics import fit_logistic
from verticil.shared.release.drawing import ReleaseModels
from verticil.shared.synthesis.synthesis import sample_codes

LARGER: Final = 10
MOST_RECORDS: Final = 200_000

Fit = Callable[[Sequence[Codes], Design], tuple[Floats, Floats]]


def draw_sets(models: ReleaseModels) -> Iterator[list[Codes]]:
    """Yield the records of each sampled network in turn, always the same ones."""
    generator = seeded()
    for network in models.sampled:
        support = rake(network, models.support)
        yield sample_codes(network, set_size(models), generator=generator, support=support)


def set_size(models: ReleaseModels) -> int:
    """Return how many records a set has."""
    return max(min(LARGER * count_people(models), MOST_RECORDS), 2)


def combine(models: ReleaseModels, estimates: Floats, variances: Floats, level: float) -> list[Combined]:
    """Combine the estimates of all sets, (M, p) both, to one of each column."""
    factor = set_size(models) / count_people(models)
    return [
        of_full(own.tolist(), variance.tolist(), level=level, factor=factor)
        for own, variance in zip(estimates.T, variances.T, strict=True)
    ]


def regress_sets(models: ReleaseModels, design: Design, level: float, *, fit: Fit | None = None) -> Coefficients:
    """Return the coefficients of a regression over all sets.

    Args:
        models: of a release with sampled networks.
        design: of the regression.
        level: of each interval.
        fit: the regression of one set; None: logistic.

    Raises:
        GateFailed: TOO_NOISY, the predictors do not determine the coefficients in one of the sets.
    """
    estimates, variances = (
        np.array(part) for part in zip(*((fit or fit_set)(own, design) for own in draw_sets(models)), strict=True)
    )
    combined = combine(models, estimates, variances, level)
    return Coefficients(
        estimate=np.array([item.estimate for item in combined]),
        standard_error=np.sqrt([item.variance for item in combined]),
        low=np.array([item.low for item in combined]),
        high=np.array([item.high for item in combined]),
    )


def fit_set(records: Sequence[Codes], design: Design) -> tuple[Floats, Floats]:
    """Return the logistic coefficients of one set and the variances that it gives them."""
    shape = [len(design.values), *(len(predictor.features) for predictor in design.predictors)]
    columns = [records[v].astype(np.intp) for v in design.variables]
    rows, weights = np.unique(np.ravel_multi_index(columns, shape), return_counts=True)
    codes = np.unravel_index(rows, shape)
    features = (predictor.features[own] for predictor, own in zip(design.predictors, codes[1:], strict=True))
    x = np.column_stack([np.ones(len(rows)), *features])
    has_rank = np.linalg.matrix_rank(x) == x.shape[1]
    if not has_rank or (estimate := fit_logistic(x, design.values[codes[0]], weights.astype(np.float64))) is None:
        raise GateFailed(
            "TOO_NOISY",
            "formula: in a set of records the predictors do not determine the coefficients",
            hint="leave columns with rare categories out",
        )
    share = 1 / (1 + np.exp(-x @ estimate))
    return estimate, np.diag(np.linalg.inv(x.T * (weights * share * (1 - share)) @ x))

"""Whether chains that started apart tell the same.

Split R-hat: each chain is cut into halves; with B the variance between the means of the parts and W the mean variance within,
sqrt(((n - 1) / n W + B) / W) (Gelman and others, Bayesian Data Analysis, 3rd edition, section 11.4; B here is that of a single
value). The effective size of a sample is its length over 1 + 2 times the sum of its autocorrelations, cut off where two in a row
are no longer positive together (Geyer 1992, section 3.3), all chains together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.arrays import Floats

MOST_R_HAT: Final = 1.05
MOST_DIFFERENCE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """What is known of a sample's chains.

    Attributes:
        r_hat: split R-hat of the graphs' log weights; 1 where nothing varies, infinite where only chains differ.
        edge_difference: the largest difference of an edge's share in one chain from its share in all.
        effective_size: of the log weights, graphs.
        agree: whether both are within `MOST_R_HAT` and `MOST_DIFFERENCE`, of at least two chains.
    """

    r_hat: float
    edge_difference: float
    effective_size: float
    agree: bool


def split_r_hat(traces: Floats) -> float:
    """See the module.

    Args:
        traces: (chains, n), at least 4 values of each.
    """
    half = traces.shape[1] // 2
    parts = np.concatenate([traces[:, :half], traces[:, -half:]])
    between, within = float(parts.mean(axis=1).var(ddof=1)), float(parts.var(axis=1, ddof=1).mean())
    if within == 0.0:
        return 1.0 if between == 0.0 else float("inf")
    return float(np.sqrt((half - 1) / half + between / within))


def effective_size(traces: Floats) -> float:
    """How many independent values tell as much; see the module.

    Args:
        traces: (chains, n), at least 4 values of each.
    """
    chains, n = traces.shape
    centred = traces - traces.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0) / n
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + (float(traces.mean(axis=1).var(ddof=1)) if chains > 1 else 0.0)
    if total == 0.0:
        return float(chains * n)
    correlation = 1 - (within - covariance) / total
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: ends[0] if len(ends) else len(pairs)])
    return float(chains * n / max(2 * pairs.sum() - 1, 1 / np.log10(max(chains * n, 10))))

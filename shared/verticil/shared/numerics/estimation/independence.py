"""Whether two variables are independent, tested on randomized columns.

Which test has an exact null (as n grows) depends on how the pair was randomized:

1. *Different units, one code a record.* Under randomization that is independent per unit, two variables that are independent
   stay so after it; so Pearson's chi-square test on the released pair needs no knowledge of the matrices. For a variable of a
   compound that holds where its marginal channel does not depend on the others (`design`); its merged released codes are tested.
2. *Subsets, or noise on the counts.* A record is a vector of shares of the released entries. Under independence the covariances
   of the two vectors factorise, so with the cross-covariance C and the covariances S_a, S_b of each vector
       n tr(S_a^+ C S_b^+ C^T)   is chi-square with rank(S_a) rank(S_b) degrees of freedom;
   for ordinary columns this is Pearson's statistic. Noise of variance s on every count is added to the covariance: after
   whitening by S_a and S_b it is diagonal in the eigenvectors of both sides' noise.
3. *Otherwise*: both are in one compound; or the marginal channel depends on another variable of the compound, which may depend
   on the other side, and then the released pair can be dependent although the variables are not. Wald's statistic on the
   corrected table, D = N^_xy - N^_x N^_y / n with the covariance of the weights that single records add to it, by Hotelling's F.

Rare categories are merged first (merging preserves independence), rarest first, until each has sqrt(n) records. A record of a
subset column has w entries, so an entry is in w times as many records as its share says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.numerics.estimation.inverse_estimation import Design, FamilyDesign, as_design

_TESTED_CELLS: Final = 256
"""Wald's test merges categories until it has at most so many cells: it inverts the covariance of all of them."""

_RANK: Final = 1e-9

FloatOrFloats = TypeVar("FloatOrFloats", float, Floats)


def independence_p_value(counts: Counts) -> float:
    """P-value of Pearson's chi-square test of independence, after merging rare categories.

    Categories of one column are merged, rarest first, until each has at least sqrt(n) records, so that no expected count is
    below 1; (K_a - 1)(K_b - 1) degrees of freedom of what is left. 1 when only one category is left in a column.

    >>> independence_p_value(np.array([[30, 10], [20, 40]])) < 1e-4
    True
    """
    n = float(counts.sum())
    if n <= 0:
        return 1.0
    table = _merge_rare(_merge_rare(counts, n).T, n)
    rows, columns = table.shape
    if min(rows, columns) < 2:
        return 1.0
    expected_counts = np.outer(table.sum(axis=1) / n, table.sum(axis=0))
    statistic = float(((table - expected_counts) ** 2 / expected_counts).sum())
    return float(_chi_square_tail(statistic, (rows - 1) * (columns - 1)))


def independence_p_values(counts: Counts, margins: Sequence[Counts]) -> Iterator[Floats]:
    """`independence_p_value` of all pairs of columns, the same numbers.

    How the categories of a column are merged depends on nothing but its own counts, so tables of one shape are tested together.

    Args:
        counts: the tables (a, b), a < b, one after the other, each (K_a, K_b) in C order.
        margins: of each column (K_a,), its counts.

    Yields:
        Of each column a its p-values with the columns behind it: (d - a - 1,).
    """
    n = float(margins[0].sum())
    states = np.array([len(margin) for margin in margins])
    merges = [_rare(margin, n) for margin in margins]
    sizes = np.array([size for _, size in merges])
    start = 0
    for a, (rows, n_rare) in enumerate(merges):
        behind = np.arange(a + 1, len(margins))
        starts = start + len(rows) * np.cumsum([0, *states[behind].tolist()])
        p_values = np.ones(len(behind))
        for k, size in sorted(set(zip(states[behind].tolist(), sizes[behind].tolist(), strict=True))):
            if n <= 0 or min(len(rows) - n_rare, k - size) < 1:
                continue
            alike = np.flatnonzero((states[behind] == k) & (sizes[behind] == size))
            columns = np.stack([merges[b][0] for b in behind[alike].tolist()])
            tables = counts[starts[alike, None] + np.arange(len(rows) * k)].reshape(len(alike), len(rows), k)
            tables = np.add.reduceat(tables[:, rows], [0, *range(n_rare, len(rows))], axis=1)
            tables = np.take_along_axis(tables, columns[:, None], axis=2)
            tables = np.add.reduceat(tables, [0, *range(size, k)], axis=2)
            # As in the test of one table, whose columns were its rows when they were merged.
            tables = np.ascontiguousarray(tables.transpose(0, 2, 1))
            expected_counts = (tables.sum(axis=2) / n)[:, :, None] * tables.sum(axis=1)[:, None]
            statistic = ((tables - expected_counts) ** 2 / expected_counts).reshape(len(alike), -1).sum(axis=1)
            p_values[alike] = _chi_square_tail(statistic, (len(rows) - n_rare) * (k - size))
        yield p_values
        start = int(starts[-1])


def dependence_p_value(table: Counts, design: Design, *, noise_variance: float = 0.0) -> float:
    """P-value of the test of independence that is valid for how the pair was randomized: see the module.

    Args:
        table, design, noise_variance: see `pair_information`.

    Returns:
        1 where there is nothing to test.
    """
    design = as_pair(design)
    design.fits(table)
    if table.sum() <= 0:
        return 1.0
    if len(design.axes) == 2 and all(axis.is_marginal for axis in design.axes):
        if noise_variance == 0 and all(axis.is_linear for axis in design.axes):
            return independence_p_value(table)
        return _shares_p_value(table, design, noise_variance)
    return _wald_p_value(table, design, noise_variance)


def as_pair(design: Design) -> FamilyDesign:
    """Return the design of two variables.

    Raises:
        ValueError: it is not of two.
    """
    design = as_design(design)
    if len(design.shape) != 2:
        raise ValueError(f"a design of {len(design.shape)} variables, expected a pair")
    return design


def kronecker_product(first: Floats, second: Floats) -> Floats:
    """Multiply two small matrices or vectors by Kronecker's product."""
    product: Floats = np.kron(first, second).astype(np.float64, copy=False)
    return product


def _shares_p_value(counts: Counts, design: FamilyDesign, noise_variance: float) -> float:
    n = float(counts.sum())
    merges = [
        _merging(counts.sum(axis=1 - place) * axis.channel.codes_per_record, n)
        for place, axis in enumerate(design.axes)
    ]
    whitenings, noises = [], []
    for place, (axis, merge) in enumerate(zip(design.axes, merges, strict=True)):
        shares = np.maximum(counts.sum(axis=1 - place), 0.0)
        shares = shares / shares.sum()
        whitening = _whitening(merge.T @ axis.covariance(shares) @ merge)
        centring = np.eye(merge.shape[1]) - np.outer(shares @ merge, np.ones(merge.shape[1]))
        noise = whitening.T @ centring @ (merge.T @ merge) @ centring.T @ whitening
        spread, directions = np.linalg.eigh(noise) if noise_variance else (np.zeros(len(noise)), np.eye(len(noise)))
        whitenings.append(whitening @ directions)
        noises.append(spread)
    table = merges[0].T @ counts @ merges[1]
    residual = table - np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    contrasts = whitenings[0].T @ residual @ whitenings[1]
    if contrasts.size == 0:
        return 1.0
    variance = n + noise_variance * np.outer(*noises)
    if noise_variance:  # noise of both one-way counts, multiplied: of second order, but not small where noise is strong
        of_a, of_b = (noise_variance * size * noise / n for size, noise in zip(counts.shape[::-1], noises, strict=True))
        variance = variance + np.outer(1 + of_a, 1 + of_b) - 1
    statistic = float((contrasts**2 / variance).sum())
    return float(_chi_square_tail(statistic, contrasts.size))


def _wald_p_value(observed_table: Counts, design: FamilyDesign, noise_variance: float) -> float:
    from scipy.special import fdtrc

    n = float(observed_table.sum())
    noise_variance *= 1 + noise_variance * observed_table.size / n**2  # of both one-way counts, multiplied
    estimate = design.estimate(observed_table)
    merges = [_merging(estimate.sum(axis=1 - place), n) for place in range(2)]
    merges = _at_most(merges, [estimate.sum(axis=1), estimate.sum(axis=0)])
    if min(merge.shape[1] for merge in merges) < 2:
        return 1.0
    table = merges[0].T @ estimate @ merges[1] / n
    centring = [
        np.eye(len(share)) - np.outer(share, np.ones(len(share))) for share in (table.sum(axis=1), table.sum(axis=0))
    ]
    # One row and one column less: those of D sum to 0.
    contrasts = kronecker_product(centring[0][:-1], centring[1][:-1])
    distance = contrasts @ table.ravel()
    covariance = contrasts @ _cell_moments(observed_table / n, design, merges, noise_variance / n) @ contrasts.T
    covariance -= np.outer(distance, distance)
    whitening = _whitening(covariance)
    rank = whitening.shape[1]
    if rank == 0 or n - rank < 1:
        return 1.0
    statistic = n * float(((whitening.T @ distance) ** 2).sum())
    return float(fdtrc(rank, n - rank, statistic * (n - rank) / (n * rank)))


def _cell_moments(shares: Floats, design: FamilyDesign, merges: list[Floats], noise_variance: float) -> Floats:
    """Second moments of the weights that one record adds to the merged cells of the corrected table: (m, m)."""
    if len(design.axes) == 2:
        parts = []
        for axis, merge in zip(design.axes, merges, strict=True):
            size = merge.shape[1]
            parts.append(axis.products(np.repeat(merge, size, axis=1), np.tile(merge, size)))
        size_a, size_b = (merge.shape[1] for merge in merges)
        by_side = (parts[0].T @ shares @ parts[1]).reshape(size_a, size_a, size_b, size_b)
        moments = by_side.transpose(0, 2, 1, 3).reshape(size_a * size_b, -1)
        gram = [
            (axis.dense_inverse @ merge).T @ (axis.dense_inverse @ merge)
            for axis, merge in zip(design.axes, merges, strict=True)
        ]
        return np.asarray(moments + noise_variance * kronecker_product(*gram), dtype=np.float64)
    (axis,) = design.axes
    both = kronecker_product(*merges)
    weights = axis.dense_inverse @ both
    moments = weights.T @ axis.joint_shares(shares) @ weights
    return np.asarray(moments + noise_variance * (weights.T @ weights), dtype=np.float64)


def _chi_square_tail(statistic: FloatOrFloats, degrees: int) -> FloatOrFloats:
    from scipy.special import gammaincc

    return cast("FloatOrFloats", gammaincc(degrees / 2, statistic / 2))


def _merge_rare(table: Counts, n: float) -> Counts:
    """Merge the rarest rows until each has at least sqrt(n) records; the merged row is the first."""
    order, size = _rare(table.sum(axis=1), n)
    rows: Counts = np.add.reduceat(table[order], [0, *range(size, len(order))], axis=0)
    return rows


def _merging(counts: Counts, n: float) -> Floats:
    """(K, m), 0/1: the same as a matrix."""
    return _run_merged(*_rare(counts, n))


def _rare(counts: Counts, n: float) -> tuple[NDArray[np.intp], int]:
    """Categories, rarest first, and how many of them are merged into one."""
    order = np.argsort(counts, kind="stable")
    # The merged category is the shortest run of rarest ones that reaches sqrt(n) and leaves only such that reach it alone.
    enough = math.sqrt(n)
    size = max(int((counts < enough).sum()), 1)
    while size < len(counts) and counts[order[:size]].sum() < enough:
        size += 1
    return order, size


def _run_merged(order: NDArray[np.intp], size: int) -> Floats:
    merge = np.zeros((len(order), len(order) - size + 1))
    merge[order, np.maximum(np.arange(len(order)) - size + 1, 0)] = 1.0
    return merge


def _at_most(merges: list[Floats], counts: list[Floats]) -> list[Floats]:
    """Merge on, rarest first, always on the longer side, until the table has at most `_TESTED_CELLS` cells."""
    sizes = [merge.shape[1] for merge in merges]
    while math.prod(sizes) > _TESTED_CELLS:
        sizes[sizes.index(max(sizes))] -= 1
    return [
        merge if merge.shape[1] == size else _run_merged(np.argsort(of_side, kind="stable"), len(of_side) - size + 1)
        for merge, size, of_side in zip(merges, sizes, counts, strict=True)
    ]


def _whitening(covariance: Floats) -> Floats:
    """(m, r) W of full rank with W^T S W = 1, by the eigenvectors of the correlations: (m, 0) when S is 0."""
    scale = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    scale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    values, vectors = np.linalg.eigh(scale[:, None] * covariance * scale)
    is_nonzero = values > _RANK * max(float(values.max(initial=0.0)), 0.0)
    whitening: Floats = scale[:, None] * vectors[:, is_nonzero] / np.sqrt(values[is_nonzero])
    return whitening

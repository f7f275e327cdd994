"""Distance between two data sets: total variation of all one-, two- and three-way tables.

The total variation distance of two tables of shares is half the sum of absolute differences: the largest difference in
the probability of any event that the table can express. `compare` puts the synthetic data's distances beside two yardsticks:
a bootstrap of the real data (the floor: what another sample of the same people would show) and independent columns (what a
release of the margins alone would reach). It needs the real joint data, so it runs only where somebody has them: in the
simulation.

`conditional_divergence` is the distance of one family's probabilities (Ma & Sivakumar, section 6.2) and
`conditional_kullback_leibler` that of two tables of counts; `k_marginal` is how NIST words a distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes, Counts, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """Total variation distances over all tables of one width.

    Attributes:
        ways: number of variables in a table.
        n_tables: how many tables.
        mean: mean distance.
        worst: largest distance.
        worst_table: positions of the variables of that table.
        tables, each: of each table the positions of its variables, and its distance.
    """

    ways: int
    n_tables: int
    mean: float
    worst: float
    worst_table: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...] = ()
    each: tuple[float, ...] = ()

    @property
    def order(self) -> list[int]:
        """Places in `tables`, the worst first."""
        return sorted(range(len(self.each)), key=lambda place: -self.each[place])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Distances to the real data, for 1, 2 and 3 ways: of the synthetic data, of a bootstrap, of independent columns."""

    synthetic: tuple[Distance, ...]
    bootstrap: tuple[Distance, ...]
    independent: tuple[Distance, ...]


def _shares(columns: Sequence[Codes], n_states: Sequence[int], members: tuple[int, ...]) -> NDArray[np.float64]:
    index = columns[members[0]].astype(np.int64)
    for member in members[1:]:
        index = index * n_states[member] + columns[member]
    size = int(np.prod([n_states[member] for member in members]))
    return np.bincount(index, minlength=size) / len(index)


def _product(columns: Sequence[Codes], n_states: Sequence[int], members: tuple[int, ...]) -> NDArray[np.float64]:
    table = np.ones(1)
    for member in members:
        table = np.multiply.outer(table, _shares(columns, n_states, (member,))).ravel()
    return table


def _summary(ways: int, scored_tables: list[tuple[float, tuple[int, ...]]]) -> Distance:
    worst, table = max(scored_tables)
    mean = sum(distance for distance, _ in scored_tables) / len(scored_tables)
    return Distance(
        ways=ways,
        n_tables=len(scored_tables),
        mean=mean,
        worst=worst,
        worst_table=table,
        tables=tuple(members for _, members in scored_tables),
        each=tuple(distance for distance, _ in scored_tables),
    )


def distances(
    real: Sequence[Codes],
    other: Sequence[Codes] | None,
    n_states: Sequence[int],
    *,
    ways: int,
    tables: Iterable[tuple[int, ...]] | None = None,
) -> Distance:
    """Return distances of all `ways`-way tables, or of some.

    Args:
        real: the real columns, each (n,), codes.
        other: the columns to compare, each (m,); None: independent columns with the real data's margins.
        n_states: K of each column.
        ways: 1 to d.
        tables: positions of the columns of each; None: all.

    >>> a = [np.array([0, 0, 1, 1], dtype=np.uint8), np.array([0, 0, 1, 1], dtype=np.uint8)]
    >>> distances(a, None, (2, 2), ways=2).mean  # [[.5, 0], [0, .5]] against four quarters
    0.5
    """
    scored_tables: list[tuple[float, tuple[int, ...]]] = []
    for members in combinations(range(len(real)), ways) if tables is None else tables:
        truth = _shares(real, n_states, members)
        table = _product(real, n_states, members) if other is None else _shares(other, n_states, members)
        scored_tables.append((float(np.abs(truth - table).sum() / 2), members))
    return _summary(ways, scored_tables)


def largest_difference(
    real: Sequence[Codes], other: Sequence[Codes], n_states: Sequence[int], members: tuple[int, ...]
) -> tuple[tuple[int, ...], float, float]:
    """Return the combination of categories whose shares differ most, and the shares. Arguments as for `distances`.

    >>> a, b = [np.array([0, 0, 1, 1], dtype=np.uint8)], [np.array([0, 2, 2, 2], dtype=np.uint8)]
    >>> largest_difference(a, b, (3,), (0,))
    ((2,), 0.0, 0.75)
    """
    mine, theirs = _shares(real, n_states, members), _shares(other, n_states, members)
    place = int(np.abs(mine - theirs).argmax())
    cell = np.unravel_index(place, [n_states[member] for member in members])
    return tuple(int(code) for code in cell), float(mine[place]), float(theirs[place])


def compare(
    real: Sequence[Codes], synthetic: Sequence[Codes], n_states: Sequence[int], *, generator: np.random.Generator
) -> Comparison:
    """Compare synthetic with real data; `generator` draws the bootstrap (as many records as are real)."""
    rows = generator.integers(0, len(real[0]), len(real[0]))
    bootstrap = [column[rows] for column in real]
    widths = [ways for ways in (1, 2, 3) if ways <= len(real)]
    return Comparison(
        synthetic=tuple(distances(real, synthetic, n_states, ways=ways) for ways in widths),
        bootstrap=tuple(distances(real, bootstrap, n_states, ways=ways) for ways in widths),
        independent=tuple(distances(real, None, n_states, ways=ways) for ways in widths),
    )


def conditional(counts: Ints | Floats) -> Floats:
    """Return theta_jk = N_jk / N_j, along the last axis; NaN where N_j is not positive."""
    totals = counts.sum(axis=-1, keepdims=True)
    theta: Floats = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    return theta


def conditional_divergence(true: Ints, theta: Floats) -> Floats:
    """Return the conditional Kullback-Leibler distance of a family's probabilities from those of some records.

        CKL = sum_j P(j) sum_k theta_jk ln(theta_jk / theta^_jk)

    Args:
        true: (K_parent_1, .., K_child), counts of the records.
        theta: (m, J, K), m estimates of the probabilities, all positive.

    Returns:
        (m,), nats.
    """
    rows = true.reshape(-1, true.shape[-1])
    exact = conditional(rows)
    weights = rows.sum(axis=1) / rows.sum()
    each: Floats = (weights[:, None] * exact * np.log(exact / theta)).sum(axis=(1, 2))
    return each


def conditional_kullback_leibler(real: Counts, other: Counts, *, smoothing: float = 0.5) -> float:
    """Return the mean Kullback-Leibler distance of one table's conditional probabilities from another's.

        sum_j P(j) sum_k P(k | j) ln(P(k | j) / Q(k | j)),    Q(k | j) = (M_jk + a) / (M_j + a K)

    Args:
        real: (J, K), counts of the real records: P.
        other: (J, K), counts of the others: Q.
        smoothing: a, added to each count of the others (1/2: Jeffreys' prior), so that a combination they lack costs no infinity.

    Returns:
        Nats; infinite where `smoothing` is 0 and the others lack a combination; NaN where there is no real record.

    >>> round(conditional_kullback_leibler(np.array([[3, 1], [0, 4]]), np.array([[1, 1], [0, 2]]), smoothing=0.0), 6)  # KL / 2
    0.065406
    """
    total = real.sum()
    if not total > 0:
        return float("nan")
    smooth_counts = other + smoothing
    row_totals = smooth_counts.sum(axis=-1, keepdims=True)
    theirs = np.divide(smooth_counts, row_totals, out=np.zeros(smooth_counts.shape), where=row_totals > 0)
    shares, own = real / total, conditional(real)
    present = real > 0
    with np.errstate(divide="ignore"):
        return float((shares[present] * np.log(own[present] / theirs[present])).sum())


def k_marginal(distance: Distance) -> float:
    """Return NIST's score of a mean distance: 1000 of equal tables, 0 where no record is alike.

    SDNist's k-marginal is (2 - mean L1) * 500 over tables of k columns; the clustering score of NIST's challenge of 2018 is a
    thousand times that of three columns, over drawn ones (Bao, He, Prasad, Hay & Machanavajjhala 2021).

    >>> k_marginal(Distance(ways=2, n_tables=1, mean=0.25, worst=0.25, worst_table=(0, 1)))
    750.0
    """
    return (2 - 2 * distance.mean) * 500

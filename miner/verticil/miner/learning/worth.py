"""What records of a joint model of noisy tables are worth, from the noise and the estimates alone.

Let M be the model, and T the people's tables as shares. The replicates of the intervals are models R of other people, drawn from
M, with tables P and the same noise. For each pair of columns, with d the total variation distance and x the product of margins:

* What noise does to the model is f = mean d(R, P). It would be the whole distance of M to the people if they were like M. P
  and not M, since people are not as a model expects: M knows some of what is theirs alone.
* M has less dependence than the people where noise hides it. The people's dependence is estimated without bias from the noisy
  table: with its row and column means taken away (C = I - J / K on both sides), and the same part of the product of margins,

      S = sum (C_a Y C_b - (q_a - 1 / K_a) (q_b - 1 / K_b)')^2 - sigma^2 (K_a - 1) (K_b - 1),

  whose expectation is the sum of squares of T - x(T). In distances it is r S^(1/2), with r the ratio that M has of d(M, x(M)) to
  the root of the same sum. That is `independent`; sums are over all pairs, so a pair of which little is known weighs little.
* What M lacks of the people's dependence comes beside what noise does: d^2 = f^2 + max(independent - d(M, x(M)), 0)^2.

Two faults of f are opposite: a replicate is a single fit, and M the mean of several; and P are of a model, which is smoother than
people.

A column's shares are off by the smaller of two estimates: the mean d of the replicates' shares to those of P, and the mean error
of shares that have the noise of all tables of the column together, cut at zero. ``tests/bench/worth.py`` compares all of it with
the distances that only an owner can measure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verticil.miner.learning.tuning import TUNING
from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.worth import NO_NEARER, Worth
from verticil.shared.numerics.model.joint import JointModel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Sums over some pairs of columns.

    Attributes:
        moved: of distances of replicates to the people whose tables they were fitted to.
        dependence: of distances of the model to the products of its margins.
        squares: of the squares behind these.
        measured: of the people's squares, without bias.
        n: pairs.
    """

    moved: float
    dependence: float
    squares: float
    measured: float
    n: int

    @property
    def independent(self) -> float:
        """Distance of independent columns to the people."""
        if self.squares <= TUNING.no_dependence or self.measured <= 0:
            return 0.0
        return min(self.dependence / self.n * math.sqrt(self.measured / self.squares), 1.0)

    @property
    def two_way(self) -> float:
        """Distance of the model to the people."""
        return min(math.hypot(self.moved / self.n, max(self.independent - self.dependence / self.n, 0.0)), 1.0)

    @property
    def strength_kept(self) -> float:
        """Which part of the people's dependence the model has."""
        return math.sqrt(self.squares / self.measured) if self.measured > 0 else 0.0


def can_state_worth(tables: NoisyTables) -> bool:
    """Return whether tables tell what records are worth: no column was randomized, each is its own unit, and a pair is there."""
    return not tables.is_randomized and len(tables.units) == len(tables.n_states) and bool(_measured_pairs(tables))


def moved_by_noise(replicate: JointModel, people: NoisyTables) -> Floats:
    """Return the distances of a replicate to the people that it was fitted to.

    Args:
        replicate: fitted to their tables with noise.
        people: their tables without noise.

    Returns:
        (pairs, 2): in each measured table of two columns, and the mean of both columns' own.
    """
    distances = []
    for pair in _measured_pairs(people):
        own, table = replicate.shares(pair), people.table(pair)
        assert table is not None
        theirs = table.counts / table.counts.sum()
        alone = [_distance(own.sum(axis=axis), theirs.sum(axis=axis)) for axis in (0, 1)]
        distances.append((_distance(own, theirs), sum(alone) / 2))
    return np.array(distances)


def estimate_worth(
    tables: NoisyTables, model: JointModel, moved: Sequence[Floats], names: Sequence[str]
) -> Worth | None:
    """Estimate what records of a joint model are worth.

    Args:
        tables: what was measured.
        model: of it.
        moved: see `moved_by_noise`; of some replicates.
        names: of the columns.

    Returns:
        None where the tables do not tell (`can_state_worth`), or there are no replicates.
    """
    n_states, n = tables.n_states, tables.people
    if not moved or not can_state_worth(tables):
        return None
    pairs = _measured_pairs(tables)
    by_noise, of_shares = np.mean(moved, axis=0).T
    shares = [tables.one_way(unit)[0] / n for unit in range(len(n_states))]
    rows = np.column_stack([by_noise, [_row(tables, model, shares, pair) for pair in pairs]])
    of_all = _sums(rows)
    of_column = [_sums(rows[[column in pair for pair in pairs]]) for column in range(len(n_states))]
    cut = [_noise_of_shares(shares[v], math.sqrt(tables.one_way(v)[1]) / n) for v in range(len(n_states))]
    return Worth(
        two_way=of_all.two_way,
        independent=of_all.independent,
        one_way=float(min(np.mean(of_shares), np.mean(cut))),
        drowned=tuple(
            name for name, own in zip(names, of_column, strict=True) if own.two_way >= NO_NEARER * own.independent
        ),
        weakened=tuple(
            name for name, own in zip(names, of_column, strict=True) if own.strength_kept < TUNING.strength_kept
        ),
    )


def _measured_pairs(tables: NoisyTables) -> list[tuple[int, int]]:
    """Return the pairs of columns that were measured."""
    columns = range(len(tables.n_states))
    return [pair for pair in itertools.combinations(columns, 2) if tables.table(pair) is not None]


def _sums(rows: Floats) -> _Pairs:
    moved, dependence, squares, measured = (float(total) for total in rows.sum(axis=0))
    return _Pairs(moved=moved, dependence=dependence, squares=squares, measured=measured, n=len(rows))


def _row(
    tables: NoisyTables,
    model: JointModel,
    shares: Sequence[Floats],
    pair: tuple[int, int],
) -> tuple[float, float, float]:
    """Return a pair's part of the sums of `_Pairs` but the first."""
    own = model.shares(pair)
    product = np.outer(own.sum(axis=1), own.sum(axis=0))
    measured = tables.table(pair)
    assert measured is not None
    noisy = measured.counts / tables.people
    centred = noisy - noisy.mean(axis=0) - noisy.mean(axis=1)[:, None] + noisy.mean()
    first, second = (shares[column] - shares[column].mean() for column in pair)
    a, b = own.shape
    noise = (measured.sigma / tables.people) ** 2 * (a - 1) * (b - 1)
    squares = float(((centred - np.outer(first, second)) ** 2).sum() - noise)
    return _distance(own, product), float(((own - product) ** 2).sum()), squares


def _distance(one: Floats, other: Floats) -> float:
    return float(np.abs(one - other).sum()) / 2


def _noise_of_shares(shares: Floats, deviation: float) -> float:
    """Return the mean distance of shares with noise, cut at zero and scaled to one, to the shares themselves."""
    whole = np.maximum(shares, 0.0)
    whole = whole / whole.sum() if whole.sum() > 0 else np.full(len(shares), 1 / len(shares))
    noisy = np.maximum(
        whole + deviation * np.random.default_rng(1).standard_normal((TUNING.worth_draws, len(whole))), 0.0
    )
    totals = noisy.sum(axis=1, keepdims=True)
    noisy = np.where(totals > 0, noisy / np.where(totals > 0, totals, 1.0), 1 / len(whole))
    return float(np.abs(noisy - whole).sum(axis=1).mean()) / 2

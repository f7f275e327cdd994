"""How far a joint model's records will be from the people, before there are any: from channels, noise and numbers alone.

Nothing is known of the people then, so typical ones stand in for them. With K categories of a column, q their shares, H the
sum of their square roots, and a, c two columns:

* Margins. q falls with a power of its rank such that H = K^`evenness` (1/2: all shares alike; 0: one category is all).
* Dependence. The cells of a pair's table are off the product m = q_a q_c by normal deviations T m. T is such that the pair's mean
  total variation distance to independence is D = `strength` (H_a H_c - 1)^(1/2), times a lognormal number of mean 1 whose
  logarithm has the standard deviation 1: most pairs hang together little, some much.
* What margins miss. The unbiased estimate of a column's shares through its channel C has the variance h / n given the people,
  h = (q C) B2 - q with B2 = `Channel.inverse_square`; noise on tables adds sigma^2 / n^2 times b, the column sums of B o B (B the
  inverse), averaged over the tables as `NoisyTables.one_way` does it. Some normal draws are brought to the nearest distribution
  as `one_way.one_way_shares` does; r is the deviation that has their mean absolute error. Records are nearer than that: a model's
  cells are not negative, and that says of a margin half as much again as the sums of the pairs do (`positive_cells`).
* What pairs miss beside. Unbiased, a cell has the variance

      v = rho (q_a (1 - q_a) h_c + h_a q_c (1 - q_c) + h_a h_c) / n + rho' sigma^2 / n^2 b_a b_c + `exact_miss` x^`crowding` m/n.

  The last part is there without noise, too: weighing stops at such a multiple of chance, and the more cells there are for each
  person (x, of all pairs), the less n records can meet all of them. Who knows how small a cell's dependence is misses
  T^2 m^2 v / (T^2 m^2 + v) of it: all of it where all is noise, and next to nothing of rare cells, as shares that cannot be
  negative do.

A deviation s is an absolute one of s (2 / pi)^(1/2) in the mean; half their sum over a table is its distance. The mean over all
pairs is E_2, M that of the margins alone. In a triple three pairs add up as deviations do, and three margins for two as they are,
for all of them lose to the same rare categories; what no pair shows comes beside (H_3 the mean of H_a H_b H_c):

    E_3^2 = 3 (E_2^2 - M^2) + (3/2 M)^2 + (F (H_3 - 1) n^(-3/8))^2.

Numbers in quotes stand in `Tuning`, as rho, rho' and F do. `evenness` is the mean of eight data sets: ma2018, by bins of equal
width and by those of a study, diabetes (both `tests/data`), asia, sachs, survey, hailfinder, random networks. `strength` is the
geometric mean of those and of 15 tables of KEEL. rho' and `positive_cells` are those by which records of ten tables (eight of
KEEL, ma2018, child; total epsilon .2, 1, 5) are predicted without much bias when their own shares and dependence stand for the
typical ones (``tests/bench/dependence.py``). The others are a fit, rounded, to distances of the first eight and of parts of them
(6 to 25 columns, 1,500 to 50,000 people). No table of ``tests/bench/joint.py`` but the survey of diabetes is among them. A study
cannot know who the people are: the pairs of these tables hang together .1 to 4.6 times as much as typical ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.channel import Channel
from verticil.shared.numerics.estimation.estimators import simplex
from verticil.shared.numerics.joint.tuning import TUNING
from verticil.shared.numerics.joint.worth import NO_NEARER

_ERROR: Final = 0.08
"""Standard error of the logarithm of `two_way` over `independent`, where records are measured at .7 of independent columns or
farther: the root of the mean of five tables' mean squares (13 dense rows). Nothing here was fitted to these tables.
``python tests/bench/joint.py --table FILE`` prints it, of stored dense rows."""
_DRAWS: Final = 100
_LEAST: Final = 1e-300  # of a square, so that nothing is divided by 0
_MEAN_ABSOLUTE: Final = math.sqrt(2 / math.pi)
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Expected mean total variation distances to the people, of as many records as there are people.

    Attributes:
        two_way: over the tables of all pairs of columns.
        three_way: of all triples, which is less certain; None: there are fewer than three columns.
        independent: two-way, of columns drawn on their own whose shares are as near as those of the records.
        one_way: over the single columns.
    """

    two_way: float
    three_way: float | None
    independent: float
    one_way: float

    @property
    def no_nearer(self) -> bool:
        """Whether records of no use for relations (`worth.NO_NEARER`) lie within one standard error of the prediction."""
        return self.two_way * math.exp(_ERROR) > NO_NEARER * self.independent


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """A typical column of a channel: q, H, h, b, the squares of r, and how many are like it."""

    shares: Floats
    roots: float
    scatter: Floats
    noise: Floats
    missed: Floats
    alike: int


def predict(
    channels: Sequence[Channel], n: int, *, sigma: float = 0.0, one_way_sigma: float = math.inf
) -> Prediction | None:
    """Predict the distances of a joint model's records to the people.

    Args:
        channels: of each unit that is randomized on its own; a compound counts as one column of its combinations.
        n: people, at least 1.
        sigma: standard deviation of the noise on each cell of the tables of all pairs, people; 0: none.
        one_way_sigma: the same of each column's own table, where it is measured beside the pairs'; infinity: it is not.

    Returns:
        None of fewer than two columns.
    """
    d = len(channels)
    if d < 2:
        return None
    columns = _columns(channels, n, sigma, one_way_sigma)
    sizes = np.array([channel.n_states for channel in channels], dtype=np.float64)
    crowding = float(sizes.sum() ** 2 - (sizes**2).sum()) / 2 / n
    exact = TUNING.exact_miss * crowding**TUNING.crowding / n
    sums = np.zeros(3)
    for place, first in enumerate(columns):
        for second in columns[place:]:
            pairs = first.alike * second.alike if first is not second else first.alike * (first.alike - 1) / 2
            if pairs:
                sums += pairs * _pair(first, second, n, sigma, exact)
    two, independent, margins = (float(s) for s in sums / math.comb(d, 2))
    three = None
    if d > 2:
        hidden = TUNING.hidden_triples_of_mixtures if sigma > 0 else TUNING.hidden_triples
        hidden *= (_mean_of_triples(columns) - 1) * n**-0.375
        three = math.sqrt(3 * (two**2 - margins**2) + (1.5 * margins) ** 2 + hidden**2)
    one = sum(column.alike * float(np.sqrt(column.missed).sum()) for column in columns) * _MEAN_ABSOLUTE / 2 / d
    # Beyond 1, the largest distance that there is, the sums only say that noise drowns everything.
    three = None if three is None else min(three, 1.0)
    return Prediction(two_way=min(two, 1.0), three_way=three, independent=min(independent, 1.0), one_way=min(one, 1.0))


def _columns(channels: Sequence[Channel], n: int, sigma: float, one_way_sigma: float) -> list[_Column]:
    """Return the different columns among some."""
    like = {channel.digest(): channel for channel in channels}
    alike = Counter(channel.digest() for channel in channels)
    others = sum(1 / channel.n_states for channel in channels) * (len(channels) - 1) / len(channels)
    found = []
    for digest, channel in like.items():
        shares = typical_shares(channel.n_states)
        inverse = channel.inverse
        scatter = np.maximum(shares @ channel.probabilities @ channel.inverse_square - shares, 0.0)
        noise = (inverse**2).sum(axis=0)
        precision = TUNING.positive_cells * others + (sigma / one_way_sigma) ** 2
        found.append(
            _Column(
                shares=shares,
                roots=float(np.sqrt(shares).sum()),
                scatter=scatter,
                noise=noise,
                missed=_missed(shares, scatter / n + (sigma / n) ** 2 * noise / precision),
                alike=alike[digest],
            )
        )
    return found


def typical_shares(n_states: int) -> Floats:
    """(K,) descending shares: powers of the rank whose square roots sum to K^`Tuning.evenness`."""
    ranks = np.arange(1, n_states + 1, dtype=np.float64)
    low, high = 0.0, 12.0
    for _ in range(50):
        middle = (low + high) / 2
        if np.sqrt(_falling(ranks, middle)).sum() > n_states**TUNING.evenness:
            low = middle
        else:
            high = middle
    return _falling(ranks, high)


def _falling(ranks: Floats, power: float) -> Floats:
    shares: Floats = ranks**-power
    shares /= shares.sum()
    return shares


def _missed(shares: Floats, variance: Floats) -> Floats:
    """Return the squares of r: (K,)."""
    k = len(shares)
    if k == 1 or not variance.any():
        return np.zeros(k)
    errors = np.random.default_rng(1).standard_normal((_DRAWS, k)) * np.sqrt(variance)
    errors = (errors - errors.mean(axis=1, keepdims=True)) * math.sqrt(k / (k - 1))  # the shares still sum to 1
    nearest = np.array([simplex(shares + error) for error in errors])
    missed: Floats = (np.abs(nearest - shares).mean(axis=0) / _MEAN_ABSOLUTE) ** 2
    return missed


def _pair(first: _Column, second: _Column, n: int, sigma: float, exact: float) -> Floats:
    """Distances of one pair's table: of the joint model, of independent columns, of the margins alone."""
    a, c = first.shares, second.shares
    product = np.outer(a, c)
    spread = (a * (1 - a), c * (1 - c))
    scatter = np.outer(spread[0] + first.scatter, spread[1] + second.scatter) - np.outer(*spread)
    variance = TUNING.scatter_factor / n * scatter + exact * product
    variance += TUNING.noise_factor * (sigma / n) ** 2 * np.outer(first.noise, second.noise)
    margins = np.outer(first.missed, c**2) + np.outer(a**2, second.missed)
    strength = 2 / _MEAN_ABSOLUTE * TUNING.strength * math.sqrt(max(first.roots * second.roots - 1, 0.0))
    joint = independent = 0.0
    for node, weight in zip(_NODES.tolist(), (_NODE_WEIGHTS / _NODE_WEIGHTS.sum()).tolist(), strict=True):
        dependence = np.maximum((strength * math.exp(node - 0.5) * product) ** 2, _LEAST)
        missed = dependence * variance / (dependence + variance)
        joint += weight * float(np.sqrt(missed + margins).sum())
        independent += weight * float(np.sqrt(dependence + margins).sum())
    found: Floats = _MEAN_ABSOLUTE / 2 * np.array([joint, independent, np.sqrt(margins).sum()])
    return found


def _mean_of_triples(columns: Sequence[_Column]) -> float:
    """Return the mean of the products of three columns' H: Newton's identity for the third elementary symmetric polynomial."""
    one, two, three = (sum(c.alike * c.roots**power for c in columns) for power in (1, 2, 3))
    return (one**3 - 3 * one * two + 2 * three) / 6 / math.comb(sum(c.alike for c in columns), 3)

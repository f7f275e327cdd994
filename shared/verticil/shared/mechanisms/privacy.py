"""What a randomization promises, and what it costs in accuracy: of a transition matrix, or of subset selection.

Promise: gamma, the largest ratio of two entries within one column (Evfimievski et al., as used by Ma & Sivakumar, section
4): whatever is released, the odds of one true category against another change by at most this factor. epsilon = ln gamma is
exactly the local differential privacy of one release of the column. Over independently released columns of the same record
gammas multiply and epsilons add. Everything is computed from the quantized matrix. Ma's Table 1 prints gamma = 9 for
p1 = .1, p2 = .25; that is a ratio within a row; by the definition it is 7.5.

A compound is one draw over combinations, so it has one gamma, which bounds the odds of anything about the tuple. What is
released of one member alone is a sum of columns of that matrix, so its gamma is at most the compound's (tested).

With subset selection (`subset`) what is released is a set. Its gamma is the largest ratio of the probabilities of one set
under two true categories, and every category is possible behind every set.

Cost: how wide the interval of a share becomes, and how many records a link between two columns is still worth.

This says nothing about correlated columns (only the total does) and nothing about who can link records.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Final, Protocol, TypeAlias

import numpy as np

from verticil.shared.mechanisms.subset import Subset
from verticil.shared.mechanisms.transition import SCALE, Transition

Mechanism: TypeAlias = Transition | Subset
"""How a unit is randomized."""

EPSILON_TOLERANCE: Final = 1e-9
"""Slack for comparing an epsilon with a limit: a declared epsilon of 3 comes back as 3 within a few units of 1e-16."""

_NEARLY: Final = 1 - Fraction(1, 10**9)
"""A gamma that reaches this part of its limit has reached it: quantization may leave it a hair below."""


class RandomizedUnit(Protocol):
    """What `column_privacy` needs to know of a study's unit."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables that are released in one draw."""
        ...

    @property
    def transition(self) -> Mechanism:
        """How they are randomized."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPrivacy:
    """The privacy measures of one released column.

    Attributes:
        variables: its variable, or those of a joint tuple.
        n_states: number of categories, K; of a joint tuple, of its combinations.
        k_measure: the smallest number of true categories behind a released one.
        gamma: largest change of odds; infinite when some released category excludes a true one.
        epsilon: ln gamma.
        kept: probability of being released unchanged, or of being in the released set; the smallest over the true categories.
        condition_number: of the matrix of single released codes, 2-norm.
        prior: what an attacker believed before.
        max_posterior: the most that he can believe afterwards.
    """

    variables: tuple[str, ...]
    n_states: int
    k_measure: int
    gamma: float
    epsilon: float
    kept: float
    condition_number: float
    prior: float
    max_posterior: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A privacy breach that a design must not allow: a belief of at most `prior` becomes one of `posterior` or more.

    By the amplification bound no release of a matrix allows it, nor the reverse for the complement, when
    gamma < posterior (1 - prior) / (prior (1 - posterior)) (Evfimievski et al.). It is a rule for what is released in one
    draw, or in several of known product gamma; it says nothing about columns that merely hang together.

    Attributes:
        prior: of the belief, before.
        posterior: of the belief, after; 0 < prior < posterior < 1.

    Raises:
        ValueError: the beliefs are not in that order.

    >>> Breach(prior=0.1, posterior=0.5).gamma_limit
    9.0
    """

    prior: float
    posterior: float

    def __post_init__(self) -> None:
        if not 0 < self.prior < self.posterior < 1:
            raise ValueError(f"got {self.prior:g} and {self.posterior:g}, expected 0 < prior < posterior < 1")

    @property
    def gamma_limit(self) -> float:
        """What gamma has to stay below."""
        return float(self._limit())

    def possible(self, ratio: Fraction | None) -> bool:
        """Return whether a release of this gamma (None: infinite) can be such a breach.

        A gamma that reaches the limit but for rounding counts: the limit of (0.1, 0.5) is 9, and so is a declared gamma of 9.
        """
        return ratio is None or ratio >= self._limit() * _NEARLY

    def _limit(self) -> Fraction:
        # The numbers as they were written: 0.1 is meant as a tenth.
        prior, posterior = Fraction(repr(self.prior)), Fraction(repr(self.posterior))
        return posterior * (1 - prior) / (prior * (1 - posterior))


def gamma(transition: Mechanism) -> Fraction | None:
    """Return the largest ratio of two weights within a column, exact; None: infinite. Columns that are never released
    do not count.

    The columns of subset selection are its sets.

    >>> from verticil.shared.mechanisms.transition import binary, quantize
    >>> round(float(gamma(quantize(binary(0.1, 0.25)))), 12)
    7.5
    """
    if isinstance(transition, Subset):
        return transition.gamma
    return _largest_ratio(transition.weights)


@functools.lru_cache(maxsize=4096)
def _largest_ratio(weights: tuple[tuple[int, ...], ...]) -> Fraction | None:
    """Kept: many columns of a wide study have the same matrix, and each step asks for all of them."""
    largest = Fraction(1)
    for column in zip(*weights, strict=True):
        low, high = min(column), max(column)
        if high == 0:
            continue
        if low == 0:
            return None
        largest = max(largest, Fraction(high, low))
    return largest


def epsilon(transition: Mechanism) -> float:
    """ln gamma; infinite when gamma is."""
    ratio = gamma(transition)
    return math.inf if ratio is None else math.log1p(ratio - 1)


def k_measure(transition: Mechanism) -> int:
    """Return the smallest number of true categories that can stand behind a released category, or set (Ma & Sivakumar,
    section 4).
    """
    if isinstance(transition, Subset):
        return transition.n_states  # no set has the probability 0
    columns = zip(*transition.weights, strict=True)
    return min(sum(1 for weight in column if weight) for column in columns if any(column))


def true_probability(transition: Mechanism) -> tuple[float, float]:
    """Return the probability that the true category is released, or is in the released set: the smallest and the
    largest over categories.
    """
    if isinstance(transition, Subset):
        return transition.keep, transition.keep
    diagonal = [row[state] for state, row in enumerate(transition.weights)]
    return min(diagonal) / SCALE, max(diagonal) / SCALE


def condition_number(transition: Mechanism) -> float:
    """Compute the 2-norm condition number of P; of a subset, of the matrix of its single codes.

    It bounds by how much inversion multiplies standard errors. The members of a set are not independent draws, so a subset's
    errors grow by 1 / `contrast_factor`, which is at most that.
    """
    return float(np.linalg.cond(transition.probabilities))


def max_posterior(prior: float, *, gamma: float | Fraction | None = None, epsilon: float | None = None) -> float:
    """Return the largest posterior belief in a property that had the given prior: prior gamma / (1 + prior (gamma -
    1)).

    Args:
        prior: 0 <= prior <= 1.
        gamma: >= 1, may be infinite.
        epsilon: ln gamma; exactly one of the two is given.

    Raises:
        ValueError: not exactly one is given, or a number is out of range.

    >>> round(max_posterior(0.15, gamma=9), 3)
    0.614
    """
    if (gamma is None) == (epsilon is None) or not 0 <= prior <= 1:
        raise ValueError(f"prior {prior:g}: expected a probability and exactly one of gamma and epsilon")
    odds = math.exp(-epsilon) if epsilon is not None else 1 / float(gamma if gamma is not None else 1)
    if not 0 <= odds <= 1:
        raise ValueError("gamma is below 1 or epsilon below 0")
    return prior / (prior + (1 - prior) * odds) if prior > 0 else 0.0


def column_privacy(unit: RandomizedUnit, *, prior: float = 0.15) -> ColumnPrivacy:
    """Compute all privacy measures of one unit."""
    transition = unit.transition
    ratio = gamma(transition)
    level = math.inf if ratio is None else float(ratio)
    return ColumnPrivacy(
        variables=unit.variables,
        n_states=transition.n_states,
        k_measure=k_measure(transition),
        gamma=level,
        epsilon=epsilon(transition),
        kept=true_probability(transition)[0],
        condition_number=condition_number(transition),
        prior=prior,
        max_posterior=max_posterior(prior, gamma=level),
    )


def total_epsilon(epsilons: Iterable[float]) -> float:
    """Sum the epsilon of all columns of a record; infinite if one is.

    >>> total_epsilon([1.5, 0.25])
    1.75
    """
    return math.fsum(epsilons)


def contrast_factor(transition: Mechanism) -> float:
    """Return by how much P shrinks a difference between two distributions, at the worst: its smallest singular value on
    contrasts.

    A contrast is a vector that sums to 0; P maps contrasts to contrasts. For the K-ary symmetric matrix this is 1 - K p, which
    is also 1 / condition number; for binary it is ``|1 - p1 - p2|``; for the identity 1. Variances of estimated contrasts grow
    by at most the inverse square.

    For subset selection it is the factor of the symmetric matrix with the same variance of estimated shares where all categories
    are equally frequent: (p - q) sqrt((K - 1) / (w (K - w))), p and q as in `subset`; 1 - K p again for sets of one.
    """
    n_states = transition.n_states
    if isinstance(transition, Subset):
        size = transition.size
        return (transition.keep - transition.other) * math.sqrt((n_states - 1) / (size * (n_states - size)))
    if n_states == 1:
        return 1.0
    # The first vector of the orthogonal basis is the constant one, the others span the contrasts.
    basis = np.linalg.qr(np.column_stack([np.ones(n_states), np.eye(n_states)[:, 1:]]))[0][:, 1:]
    return float(np.linalg.svd(basis.T @ transition.probabilities @ basis, compute_uv=False)[-1])


def half_width_of_share(transition: Mechanism, n: int, share: float | None = None, level: float = 0.95) -> float:
    """Half the width of the interval of one category's estimated share, at n records; the widest over the categories.

    With true shares pi (`share` for the category x, the rest evenly) and released shares f = pi P,
    Var = (sum_y f_y P^-1[y, x]^2 - pi_x^2) / n. For the symmetric matrix that is l (1 - l) / (n a^2) with a = 1 - K p and
    l = p + a share; for subset selection the same with a = p - q and l = q + a share (`channel` for its squares).

    Args:
        transition: how the column is randomized.
        n: number of records, >= 1.
        share: the category's true share; default 1/K.
        level: of the interval.

    Raises:
        ValueError: a number is out of range.
    """
    n_states = transition.n_states
    share = 1 / n_states if share is None else share
    if n < 1 or not 0 <= share <= 1 or not 0 < level < 1:
        raise ValueError(f"n = {n}, share = {share:g}, level = {level:g}: expected n >= 1 and probabilities")
    shares = np.full((n_states, n_states), (1 - share) / max(n_states - 1, 1))  # row x: category x has the share
    np.fill_diagonal(shares, share)
    second_moment = ((shares @ transition.probabilities) * transition.inverse_square.T).sum(axis=1)
    variance = max(float((second_moment - share**2).max()), 0.0) / n
    return NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance)

"""Privacy loss distributions: what many events cost together, closer than the plain sum and never less than the truth.

Two neighbouring tables make a mechanism answer with the distribution P or Q; the loss of an answer is L = ln(P / Q), infinite
where Q never gives it. A mechanism is (epsilon, delta) private if and only if, for both orders of the tables,

    delta(epsilon) = E[(1 - e^(epsilon - L))+] <= delta    (L under P; an infinite loss counts whole)

A pair whose delta(epsilon) is nowhere smaller than a mechanism's *dominates* it, and mechanisms that run one after the other,
also where a later one is chosen by what the earlier ones answered, are dominated by the product of their pairs, whose loss is the
sum of the independent losses (Y. Zhu, J. Dong, Y.-X. Wang, "Optimal accounting of differential privacy via characteristic
function", AISTATS 2022). Every loss here is the same in both orders of the tables, but for that of a sampled person who is added
or removed (`SampledGaussianLoss`): sums with such are computed in each order, and the larger result counts.

Every step rounds outward:

- Grid. Losses are put on multiples of a step so that the mass under P and the mass under Q of each stay what they are: both are
  split between the two grid points beside the loss. delta(epsilon) of the result is the true one at the grid points and linear in
  e^epsilon between them, where the true one is convex, so it is nowhere smaller (V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar,
  P. Manurangsi, "Connect the dots: tighter discrete approximations of privacy loss distributions", PoPETs 2022(4)). The share of
  the upper point is raised by what rounding may have taken. Tails that are left out count as an infinite loss.
- Tilt. The sum is taken of the losses under P(l) e^(theta l) / M, theta near the saddle point of what is asked, so that rounding
  errors are relative to delta and not to 1. The masses' relative errors are added up over the events and multiply the result.
- Sum. A few sums at a time are added by a Fourier transform. Its error in each coefficient is at most 8 u log2(size) of the
  masses' sum (u = 2^-53; N. J. Higham, "Accuracy and stability of numerical algorithms", section 24.1: each of the log2(size)
  passes multiplies by rounded roots of unity and adds). Errors of factors add up in products, and by Parseval's identity the
  error of the result in the Euclidean norm is that of its transform over sqrt(size). It is added, times the norm of the weights
  that the masses are summed with.
- Window. The transform folds what is beyond its window back into it. That mass is at most 2^-60 on each side by Chernoff's bound,
  taken of the very numbers that are transformed; where it is missing it is added with the largest weight there is.
- Closed forms where there are any: Gaussians together are one Gaussian. Pure losses never cost more than their plain sum.
- The last search ends at an epsilon for which the bound holds, at most 1e-12 of itself above one for which it does not.

The step is a power of two between 2^-13 and 2^-12 of the sum's standard deviation, so that more events, or larger ones, are put
on the same grid or on a coarser one that is part of it: bounds grow with the events, up to 1e-9 of themselves. Putting n losses
on it adds at most n step^2 / 4 to the variance: one part in 6,000 for 10,000 events.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.gaussian import analytic_delta

_UNIT: Final = 2.0**-53
_TAIL: Final = 14.0  # standard deviations
_BEYOND: Final = 2e-44  # 2 Phi(-14) = 1.6e-44
_LARGEST_MU: Final = 20.0  # losses above are beyond doubles' exponents: they are bounded by their moments alone
_LARGEST_PURE: Final = 500.0
_LEAST_DEVIATION: Final = 1e-100
_MOST_TILT: Final = 64.0  # over the standard deviation; a Gaussian's at delta = 1e-40 is 14
_OUTSIDE: Final = 2.0**-60  # of the tilted mass, beyond the window on each side
_AT_ONCE: Final = 8  # sums in one transform
_NEAR: Final = 1e-12  # relative, of the search for an epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class PureLoss:
    """Of any epsilon differentially private mechanism at the most: that of randomized response (see `ApproximateLoss`).

    Attributes:
        epsilon: finite, >= 0.

    Raises:
        ValueError: it is not. An infinite epsilon has no loss to add up: whoever meets one has nothing to promise.
    """

    epsilon: float

    def __post_init__(self) -> None:
        _check("epsilon", self.epsilon, 0 <= self.epsilon < math.inf, "a finite number that is not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateLoss:
    """Of any (epsilon, delta) differentially private mechanism at the most.

    With probability delta the loss is infinite, else it is that of randomized response (P. Kairouz, S. Oh, P. Viswanath, "The
    composition theorem for differential privacy", ICML 2015: it dominates all of them).

    Attributes:
        epsilon: finite, >= 0.
        delta: 0 < delta < 1; without a delta it is a `PureLoss`.

    Raises:
        ValueError: a number is out of its range.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _check("epsilon", self.epsilon, 0 <= self.epsilon < math.inf, "a finite number that is not negative")
        _check("delta", self.delta, 0 < self.delta < 1, "0 < delta < 1 (PureLoss is for delta = 0)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianLoss:
    """Of Gaussian noise: the loss is normal with mean mu^2 / 2 and variance mu^2 (Balle & Wang 2018, lemma 3).

    Attributes:
        mu: L2 sensitivity over the noise's standard deviation; finite, > 0.

    Raises:
        ValueError: it is not.
    """

    mu: float

    def __post_init__(self) -> None:
        _check("mu", self.mu, 0 < self.mu < math.inf, "a finite number > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussianLoss:
    """Of discrete Gaussian noise on one count that changes by a whole number: exact, no Gaussian stands for it.

    C. L. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020. The sum of up to 25 of
    them, each with a sigma of 3 or more, is the discrete Gaussian of the summed variance up to a factor of e^+-3e-38 in each
    weight (P. Kairouz, Z. Liu, T. Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
    aggregation", ICML 2021): far less than what the results are rounded up by.

    Attributes:
        sigma: parameter of the distribution, weights e^(-x^2 / 2 sigma^2); 0.5 to 2^17.
        change: by how much the count differs between neighbouring tables, at least 1.

    Raises:
        ValueError: a number is out of its range.
    """

    sigma: float
    change: int = 1

    def __post_init__(self) -> None:
        _check("sigma", self.sigma, 0.5 <= self.sigma <= 2**17, "0.5 to 131072")
        whole = self.change >= 1 and self.change % 1 == 0
        _check("change", self.change, whole, "a whole number, at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussianLoss:
    """Of one sum over people who are each taken with one chance, independently (Poisson), of vectors of norm 1 at most, with
    Gaussian noise: a step of DP-SGD (M. Abadi et al., "Deep learning with differential privacy", CCS 2016).

    A person who is replaced: (1 - q) N(0, s^2) + q N(1, s^2) against (1 - q) N(0, s^2) + q N(-1, s^2), which dominates every pair
    of vectors x, y of one person. For a >= 1 their delta is q E(1 - b e^-U - a e^-V)+ under N(x, s^2), b = (1 - q)(a - 1) / q,
    with U, V normal, means half their variances |x|^2 / s^2 and |x - y|^2 / s^2, covariance x(x - y) / s^2. It grows with both
    variances and with the covariance (its derivatives by them are expectations of second derivatives of (1 - .)+, which is
    convex: Gaussian interpolation), all of which are largest at x = 1, y = -1; for a < 1 the orders change places. One who is
    added or removed: y = 0 (Zhu, Dong & Wang 2022).

    Attributes:
        sigma: s, standard deviation of the noise on each number; 0.3 to 1000.
        rate: q, the chance of each person; 0 < q <= 1.
        replaced: tables are neighbours when one person is another; else when one person is added or removed.

    Raises:
        ValueError: a number is out of its range.
    """

    sigma: float
    rate: float
    replaced: bool = True

    def __post_init__(self) -> None:
        _check("sigma", self.sigma, 0.3 <= self.sigma <= 1000, "0.3 to 1000")
        _check("rate", self.rate, 1e-9 <= self.rate <= 1, "1e-9 to 1")

    def means(self, is_added: bool) -> tuple[float, float]:
        """Return the means of the sampled person's part under P and under Q, in standard deviations."""
        one = 1 / self.sigma
        return (one, -one) if self.replaced else (0.0, -one) if is_added else (one, 0.0)

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss, about."""
        most = 2 / self.sigma if self.replaced else 1 / self.sigma
        return min(most, 2 * self.rate * math.sqrt(math.expm1(1 / self.sigma**2)))


Loss: TypeAlias = PureLoss | ApproximateLoss | GaussianLoss | DiscreteGaussianLoss | SampledGaussianLoss
"""What one event costs."""


def epsilon_at(losses: Iterable[Loss] | Mapping[Loss, int], delta: float) -> float:
    """Find the least epsilon at which the losses together are (epsilon, delta) private, rounded up; infinite where
    there is none.

    Where all are pure or approximate it is never above the sum of their epsilons, if delta is at least the sum of their deltas.

    Args:
        losses: of the events, in any order; or how often each of them is there, as a Counter.
        delta: 0 <= delta < 1. At 0 only pure losses have an epsilon, their sum.

    Raises:
        ValueError: a number is out of its range.

    >>> round(epsilon_at([GaussianLoss(mu=0.1)] * 100, 1e-9), 4)
    6.1739
    >>> epsilon_at([PureLoss(epsilon=1.5), PureLoss(epsilon=0.25)], 0)
    1.75
    """
    _check("delta", delta, 0 <= delta < 1, "0 <= delta < 1")
    return _epsilon_at(_count(losses), float(delta))


def delta_at(losses: Iterable[Loss] | Mapping[Loss, int], epsilon: float) -> float:
    """Find the least delta at which the losses together are (epsilon, delta) private, rounded up, at most 1.

    Args:
        losses: of the events, in any order; or how often each of them is there, as a Counter.
        epsilon: finite, >= 0.

    Raises:
        ValueError: a number is out of its range.

    >>> delta_at([PureLoss(epsilon=1.5), PureLoss(epsilon=0.25)], 1.75)
    0.0
    """
    _check("epsilon", epsilon, 0 <= epsilon < math.inf, "a finite number that is not negative")
    return _delta_at(_count(losses), float(epsilon))


def _orders(times_of: frozenset[tuple[Loss, int]]) -> tuple[bool, ...]:
    """Return the orders of the tables that differ: whether the person is added."""
    differ = any(isinstance(loss, SampledGaussianLoss) and not loss.replaced for loss, _ in times_of)
    return (False, True) if differ else (False,)


@functools.lru_cache(maxsize=4096)
def _epsilon_at(times_of: frozenset[tuple[Loss, int]], delta: float) -> float:
    return max(_least_epsilon(_Together(times_of, is_added), delta) for is_added in _orders(times_of))


def _least_epsilon(together: _Together, delta: float) -> float:
    most = together.plain_sum if delta >= together.plain_delta else math.inf
    if most == 0 or delta <= together.infinite:
        return most
    finite = (delta - together.infinite) / (1 - together.infinite) * (1 - 4 * _UNIT)
    return min(_least(together.curve_for(delta=finite), finite, start=together.most_epsilon(finite)), most)


@functools.lru_cache(maxsize=4096)
def _delta_at(times_of: frozenset[tuple[Loss, int]], epsilon: float) -> float:
    return max(_least_delta(_Together(times_of, is_added), epsilon) for is_added in _orders(times_of))


def _least_delta(together: _Together, epsilon: float) -> float:
    if epsilon >= together.plain_sum:
        return together.infinite
    finite = together.curve_for(epsilon=epsilon)(epsilon)
    return min((together.infinite + (1 - together.infinite) * finite) * (1 + 4 * _UNIT), 1.0)


def _count(losses: Iterable[Loss] | Mapping[Loss, int]) -> frozenset[tuple[Loss, int]]:
    counts = Counter(losses)
    for loss, times in counts.items():
        _check(f"times of {loss}", times, times >= 0 and times % 1 == 0, "a whole number that is not negative")
    return frozenset((loss, int(times)) for loss, times in counts.items() if times)


class _Together:
    """The sum of independent losses, in one order of the tables.

    Attributes:
        plain_sum: of the epsilons, where all have one; else infinite.
        plain_delta: the sum of the deltas of approximate losses.
        infinite: probability that some approximate loss is infinite, rounded up.
        deviation: standard deviation of the finite losses, at the most.
    """

    def __init__(self, times_of: frozenset[tuple[Loss, int]], is_added: bool) -> None:
        pure: Counter[float] = Counter()
        subsampling: Counter[SampledGaussianLoss] = Counter()
        discrete: Counter[DiscreteGaussianLoss] = Counter()
        gaussian: list[Fraction] = []
        deltas: list[tuple[float, int]] = []
        for loss, times in times_of:
            if isinstance(loss, DiscreteGaussianLoss):
                discrete[loss] += times
            elif isinstance(loss, GaussianLoss):
                gaussian.append(times * Fraction(loss.mu) ** 2)
            elif isinstance(loss, SampledGaussianLoss):
                subsampling[loss] += times
            else:
                pure[loss.epsilon] += times
                if isinstance(loss, ApproximateLoss):
                    deltas.append((loss.delta, times))
        plain = sum(times * Fraction(epsilon) for epsilon, times in pure.items())
        self.plain_sum = math.inf if gaussian or discrete or subsampling else float(plain)
        self.plain_delta = min(float(sum(times * Fraction(delta) for delta, times in deltas)), 1.0)
        none = math.fsum(times * math.log1p(-delta) for delta, times in deltas)
        self.infinite = min(0.0 - math.expm1(none) * (1 + 16 * _UNIT), self.plain_delta, 1.0)
        # In one order whatever the set's: sums of doubles must not depend on it.
        self._pure = sorted((epsilon, times) for epsilon, times in pure.items() if epsilon)
        self._discrete = sorted(discrete.items(), key=lambda item: astuple(item[0]))
        self._mu = math.sqrt(sum(gaussian)) * (1 + 4 * _UNIT)
        self._epsilons = np.array([epsilon for epsilon, _ in self._pure])
        self._times = np.array([float(times) for _, times in self._pure])
        # Discrete Gaussian noise has no larger moments than the Gaussian (Canonne, Kamath & Steinke 2020).
        squares = [times * (loss.change / loss.sigma) ** 2 for loss, times in self._discrete]
        self._square = self._mu**2 + math.fsum(squares)
        spread = math.fsum(times * loss.deviation**2 for loss, times in subsampling.items())
        self.deviation = math.sqrt(self._square + spread + _dot(self._times, self._epsilons**2))
        self._step = 2.0 ** (math.frexp(self.deviation)[1] - 13)
        self._sampled: list[tuple[_Atoms, int]] = []
        if subsampling:
            # Such a loss reaches far beyond its deviation: the step has to leave few enough cells.
            widest = max(2 * (_TAIL / loss.sigma + 1 / loss.sigma**2) for loss in subsampling)
            self._step = max(self._step, 2.0 ** (math.frexp(widest)[1] - 17))
            items = sorted(subsampling.items(), key=lambda item: astuple(item[0]))
            self._sampled = [(_sampled_atoms(loss, self._step, is_added), times) for loss, times in items]

    def log_moment(self, theta: float) -> float:
        """ln E e^(theta L) of the finite losses, at the most; theta > 0."""
        up, down = (theta + 1) * self._epsilons, -theta * self._epsilons
        pure = np.logaddexp(up, down) - np.logaddexp(self._epsilons, 0.0)
        moment = theta * (theta + 1) / 2 * self._square + _dot(self._times, pure)
        for atoms, times in self._sampled:
            _, log_scale, relative = _tilt_atoms(atoms, 1, self._step, theta)
            moment += times * (log_scale + relative + 4 * _UNIT * abs(log_scale))
        return moment

    def chernoff(self, theta: float) -> float:
        """ln delta + theta epsilon, at the most: (1 - e^-x)+ <= e^(theta x) theta^theta / (1 + theta)^(1 + theta) for every x."""
        logarithm = self.log_moment(theta) - theta * math.log1p(1 / theta) - math.log1p(theta)
        terms = _dot(self._times, 2 + (2 * theta + 1) * self._epsilons)
        return logarithm + 1e-12 * (1 + abs(logarithm) + theta) + 8 * _UNIT * terms

    def tilt_for(self, delta: float) -> float:
        """theta for a delta."""
        return self._tilt(lambda theta: (self.chernoff(theta) - math.log(delta)) / theta)

    def most_epsilon(self, delta: float) -> float:
        """Return where Chernoff's bound reaches delta, or 0."""
        theta = self.tilt_for(delta)
        return max((self.chernoff(theta) - math.log(delta)) / theta, 0.0) * (1 + 1e-12) if theta else 0.0

    def curve_for(self, *, epsilon: float | None = None, delta: float | None = None) -> Callable[[float], float]:
        """Upper bounds of the finite losses' delta at any epsilon, close where either number is the one that is given."""
        if self.deviation == 0:
            return lambda _: 0.0
        if not self._pure and not self._discrete and not self._sampled:
            return functools.partial(_gaussian_delta, self._mu)
        theta = (
            self.tilt_for(delta or 1.0)
            if epsilon is None
            else self._tilt(lambda theta: self.chernoff(theta) - theta * epsilon)
        )
        chernoff = self.chernoff(theta)
        missing = math.fsum(times * atoms.missing for atoms, times in self._sampled)

        def by_moments(at: float) -> float:
            return math.exp(min(chernoff - theta * at * (1 - 1e-12), 0.0)) + missing

        largest = max([self._mu, *(loss.change / loss.sigma for loss, _ in self._discrete)])
        most = self._pure[-1][0] if self._pure else 0.0
        if largest > _LARGEST_MU or most > _LARGEST_PURE or self.deviation < _LEAST_DEVIATION:
            return by_moments
        by_sum = self._curve(theta)
        return lambda wanted: min(by_sum(wanted), by_moments(wanted))

    def _tilt(self, value: Callable[[float], float]) -> float:
        """Return where a function of theta is lowest; it serves only speed and closeness."""
        return _lowest(value, start=1 / self.deviation, most=_MOST_TILT / self.deviation) if self.deviation else 0.0

    def _curve(self, theta: float) -> Callable[[float], float]:
        step = self._step
        atoms_of = [(_pure_atoms(epsilon), times) for epsilon, times in self._pure]
        atoms_of += [(_discrete_atoms(loss), times) for loss, times in self._discrete]
        atoms_of += [(_gaussian_atoms(self._mu, step), 1)] if self._mu else []
        atoms_of += self._sampled
        scale, error, missing = 0.0, 1e-12, 0.0
        sums: list[_Tilted] = []
        for atoms, times in atoms_of:
            part, log_scale, relative = _tilt_atoms(atoms, times, step, theta)
            sums.append(part)
            scale += times * log_scale
            error += times * (relative + 4 * _UNIT * abs(log_scale)) + 4 * _UNIT * abs(scale)
            missing += times * atoms.missing
        while len(sums) > 1 or sums[0].times > 1:  # many short ones before few long ones
            sums.sort(key=lambda item: item.times * item.variance)
            sums = [_convolve(sums[start : start + _AT_ONCE]) for start in range(0, len(sums), _AT_ONCE)]
        (total,) = sums
        losses = (total.first + np.arange(len(total.mass))) * step
        factor = math.exp(error + _UNIT * len(losses))  # a sum of n numbers is off by n u of itself at the most

        def bound_at(epsilon: float) -> float:
            if scale - theta * epsilon > 300:
                return 1.0
            above = slice(int(np.searchsorted(losses, epsilon, side="right")), None)
            weights = np.exp(scale - theta * losses[above]) * -np.expm1(epsilon - losses[above])
            inside = _dot(total.mass[above], weights) + total.noise * math.sqrt(_dot(weights, weights))
            return (inside + total.folded * math.exp(scale - theta * epsilon)) * factor + missing

        return bound_at


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Atoms:
    """Losses of one event.

    Attributes:
        losses: (n,); each lies where the ratio of its masses says, or is a cell of the grid by a point inside it.
        under_p, under_q: (n,), their masses.
        error: relative, of each mass.
        missing: mass under P that is left out, to be counted as an infinite loss.
    """

    losses: Floats
    under_p: Floats
    under_q: Floats
    error: float
    missing: float = 0.0


def _pure_atoms(epsilon: float) -> _Atoms:
    """Return the atoms of randomized response."""
    less = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    more = 1 / (1 + math.exp(-epsilon))
    return _Atoms(
        losses=np.array([-epsilon, epsilon]),
        under_p=np.array([less, more]),
        under_q=np.array([more, less]),
        error=8 * _UNIT,
    )


def _discrete_atoms(loss: DiscreteGaussianLoss) -> _Atoms:
    """List the atoms of x = -r .. r, r >= 14 sigma + 1: P(X >= m) <= P(N(0, sigma^2) >= m - 1) (Canonne et al. 2020)."""
    sigma, change = float(loss.sigma), int(loss.change)
    reach = math.ceil(_TAIL * sigma) + 1
    noise = np.arange(-reach, reach + 1, dtype=np.float64)
    under = np.exp(-(noise**2) / (2 * sigma**2))
    total = math.fsum(under)
    return _Atoms(
        losses=(2 * noise * change + change**2) / (2 * sigma**2),
        under_p=under / total,
        under_q=np.exp(-((noise + change) ** 2) / (2 * sigma**2)) / total,
        error=4 * _UNIT * (2 + (_TAIL + 4 + change / sigma) ** 2 / 2),  # of the exponents
        missing=_BEYOND,
    )


def _gaussian_atoms(mu: float, step: float) -> _Atoms:
    """Return the atoms of the cells of the grid."""
    mean, reach = mu**2 / 2, _TAIL * mu
    edges: Floats = (
        np.arange(math.floor((mean - reach) / step), math.ceil((mean + reach) / step) + 1, dtype=np.float64) * step
    )
    under_p, error_p = _normal_cells((edges - mean) / mu)
    under_q, error_q = _normal_cells((edges + mean) / mu)
    inner = (edges[1:] + edges[:-1]) / 2
    return _Atoms(losses=inner, under_p=under_p, under_q=under_q, error=max(error_p, error_q), missing=_BEYOND)


def _sampled_atoms(loss: SampledGaussianLoss, step: float, is_added: bool) -> _Atoms:
    """List the atoms of the grid's cells: x, in standard deviations, lies between the two that have its ends for their
    loss.

    The loss grows with x. Its ends are found from e^(loss), which is a ratio of sums of e^(x / sigma), in closed form.
    """
    q, one, (mean_p, mean_q) = loss.rate, 1 / loss.sigma, loss.means(is_added)
    part = q * math.exp(-(one**2) / 2)

    def at(x: Floats) -> Floats:
        up = [np.log1p(q * np.expm1(mean * x - mean**2 / 2)) for mean in (mean_p, mean_q)]
        return np.asarray(up[0] - up[1])

    def where(losses: Floats) -> Floats:
        if (
            mean_p and mean_q
        ):  # odd; of a positive loss part (w - r / w) = (1 - q) (r - 1), r = e^loss, w = e^(x / sigma)
            half = (1 - q) * np.expm1(np.abs(losses)) / 2
            root = (half + np.sqrt(half**2 + part**2 * np.exp(np.abs(losses)))) / part
            return np.asarray(np.sign(losses) * np.log(root) * loss.sigma)
        sign = 1.0 if mean_p else -1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            noise = np.asarray(sign * np.log((np.expm1(sign * losses) + q) / part) * loss.sigma)
        return np.where(np.isnan(noise), -sign * math.inf, noise)

    low, high = at(np.array([-_TAIL, _TAIL + mean_p])).tolist()
    edges = np.unique(np.clip(where(np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step), -40.0, 40.0))
    middle = (edges[1:] + edges[:-1]) / 2
    masses, errors = list[Floats](), list[float]()
    normal, error = _normal_cells(edges)
    for mean in (mean_p, mean_q):
        shifted_normal, moved_error = _normal_cells(edges - mean) if mean else (normal, error)
        masses.append((1 - q) * normal + q * shifted_normal)
        errors.append(max(error, moved_error))
    # The ends are off by what moves the loss by this much at the most: both masses count as wrong by it.
    off = 64 * _UNIT * (1 + float(np.abs(edges).max()) * one)
    return _Atoms(
        losses=at(middle),
        under_p=masses[0],
        under_q=masses[1],
        error=max(errors) + off + 4 * _UNIT,
        missing=_BEYOND,
    )


def _normal_cells(edges: Floats) -> tuple[Floats, float]:
    """Return the standard normal mass between neighbouring edges, by the smaller tails; and its relative error."""
    tails = np.array([math.erfc(abs(edge) * math.sqrt(0.5)) / 2 for edge in edges.tolist()])
    cells = np.abs(np.diff(tails))
    larger = np.maximum(tails[1:], tails[:-1])
    across = np.flatnonzero((edges[:-1] < 0) & (edges[1:] > 0))
    cells[across] = 1 - tails[across] - tails[across + 1]
    larger[across] = 1.0
    reach = np.minimum(np.maximum(np.abs(edges[1:]), np.abs(edges[:-1])), 40.0)  # there tails are 0
    # A tail is e^(-x^2/2) times something slow, so a rounded x moves it by 2 x^2 u of itself.
    return cells, float((larger / cells * (2 + reach**2)).max()) * 4 * _UNIT


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tilted:
    """A measure on the grid under the common tilt, and how far below the true one it may be.

    Attributes:
        first: the least loss, in steps.
        mass: (n,), not negative.
        times: how many independent sums like this are meant.
        noise: of rounding, in the Euclidean norm.
        folded: mass that may be missing.
    """

    first: int
    mass: Floats
    times: int = 1
    noise: float = 0.0
    folded: float = 0.0

    def log_moment(self, tilt: float) -> float:
        """ln sum_i mass_i e^(tilt i), i the loss in steps, of one of them."""
        there = np.flatnonzero(self.mass)
        exponents = tilt * (self.first + there) + np.log(self.mass[there])
        most = float(exponents.max())
        return most + math.log(float(np.exp(exponents - most).sum()))

    @property
    def variance(self) -> float:
        """In steps^2, of one of them."""
        steps = np.arange(len(self.mass), dtype=np.float64)
        total = float(self.mass.sum())
        mean = _dot(self.mass, steps) / total
        return _dot(self.mass, (steps - mean) ** 2) / total


def _tilt_atoms(atoms: _Atoms, times: int, step: float, theta: float) -> tuple[_Tilted, float, float]:
    """Return losses on the grid and tilted; the logarithm of what their masses were divided by; their relative error."""
    low = np.floor((atoms.losses + 8 * _UNIT * np.abs(atoms.losses)) / step).astype(np.int64)
    # q / p is (1 - s) e^-low + s e^-(low + 1) of the cell's ends, s the share of the upper one.
    share = (1 - atoms.under_q / atoms.under_p * np.exp(low * step)) / -math.expm1(-step)
    share = np.clip(share + (2 * atoms.error + 8 * _UNIT) / -math.expm1(-step), 0.0, 1.0)
    first, n = int(low.min()), int(low.max() - low.min()) + 2
    mass: Floats = np.zeros(n)
    mass += np.bincount(low - first, weights=atoms.under_p * (1 - share), minlength=n)
    mass += np.bincount(low - first + 1, weights=atoms.under_p * share, minlength=n)
    exponents = theta * ((first + np.arange(n)) * step)
    most = float(exponents.max())
    log_scale = most + math.log(_dot(mass, np.exp(exponents - most)))
    in_a_cell = int(np.bincount(low - first).max())
    relative = atoms.error + _UNIT * (16 + 2 * in_a_cell + 2 * float(np.abs(exponents).max()) + 2 * abs(log_scale))
    return _Tilted(first=first, mass=mass * np.exp(exponents - log_scale), times=times), log_scale, relative


def _convolve(parts: Sequence[_Tilted]) -> _Tilted:
    """Sum independent sums, by one Fourier transform in a window with all but `_OUTSIDE` of it on each side."""
    if len(parts) == 1 and parts[0].times == 1:
        return parts[0]
    first, last = _window(parts)
    size = 1 << (max(last - first + 1, *(len(part.mass) for part in parts)) - 1).bit_length()
    unit = 8 * _UNIT * math.log2(size)
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    logarithm, relative, total = np.zeros(len(product)), np.zeros(len(product)), 0.0
    for part in parts:
        spectrum = np.fft.rfft(part.mass, size)
        sum_of_mass = max(float(part.mass.sum()), 1.0)
        # Of |x^t - y^t| <= t |x - y| max(|x|, |y|)^(t - 1), |x - y| <= wrong; above zero where the transform is zero.
        wrong = unit * sum_of_mass
        most = np.abs(spectrum) * (1 + 4 * _UNIT) + wrong
        logarithm += part.times * np.log(most)
        relative += part.times * (wrong / most + 4 * _UNIT)
        product *= _power(spectrum, part.times)
        total += part.times * math.log(sum_of_mass)
    wrongs = np.exp(np.minimum(logarithm, 1.0)) * relative
    norm = math.sqrt(2 * float((np.abs(product) ** 2).sum()) / size)
    rounding = math.sqrt(2 * float((wrongs**2).sum()) / size) + unit * norm + 1e-290
    shift = first - sum(part.times * part.first for part in parts)
    mass = np.roll(np.fft.irfft(product, size), -(shift % size))[: last - first + 1]
    factor = math.exp(min(total, 1.0)) * 1.01
    return _Tilted(
        first=first,
        mass=np.maximum(mass, 0.0),
        noise=factor * (rounding + sum(part.times * part.noise for part in parts)),
        folded=factor * (2 * _OUTSIDE + sum(part.times * part.folded for part in parts)),
    )


def _window(parts: Sequence[_Tilted]) -> tuple[int, int]:
    """Return the first and the last loss, in steps, with all but `_OUTSIDE` of the sum on each side between them."""
    deviation = math.sqrt(sum(part.times * part.variance for part in parts))
    least = sum(part.times * part.first for part in parts)
    most = least + sum(part.times * (len(part.mass) - 1) for part in parts)
    if not deviation:
        return least, most
    ends: list[float] = []
    for sign in (-1, 1):
        tilts = [sign * factor / deviation for factor in (3.0, 6.0, 9.0, 13.0)]
        moments = [math.fsum(part.times * part.log_moment(tilt) for part in parts) for tilt in tilts]
        bounds = [(moment - math.log(_OUTSIDE)) / tilt for moment, tilt in zip(moments, tilts, strict=True)]
        ends.append(min(bounds) if sign > 0 else max(bounds))
    return max(math.floor(ends[0]) - 1, least), min(math.ceil(ends[1]) + 1, most)


def _power(values: NDArray[np.complex128], times: int) -> NDArray[np.complex128]:
    """Raise to a whole power by squaring: each of the (times - 1) factors adds a rounding of at most sqrt(5) u."""
    result = np.ones_like(values)
    while times:
        if times & 1:
            result = result * values
        times >>= 1
        if times:
            values = values * values
    return result


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """`analytic_delta` rounded up: by what its logarithms may be off, and its series for tails below Phi(-30)."""
    most = mu / 2 - epsilon / mu
    tail = math.erfc(-most * math.sqrt(0.5)) / 2
    wrong = 1e-9 if most - mu < -30 else 32 * _UNIT * (4 + epsilon + most**2 + (most - mu) ** 2)
    return min(analytic_delta(1 / mu, epsilon) + tail * wrong, 1.0)


def _least(curve: Callable[[float], float], delta: float, *, start: float) -> float:
    """Find the least epsilon >= 0 with curve(epsilon) <= delta, rounded up by `_NEAR` of itself; by secants or halving."""

    def height(epsilon: float) -> float:
        return math.log(max(curve(epsilon), 1e-320) / delta)

    low, high = 0.0, max(start, 1e-300)
    at_low, at_high = height(low), height(high)
    if at_low <= 0:
        return 0.0
    while at_high > 0:
        low, at_low, high = high, at_high, 2 * high
        at_high = height(high)
    width, slow = high - low, 0
    while high - low > _NEAR * high:
        near = _NEAR * high / 2
        secant = low + (high - low) * at_low / (at_low - at_high)
        candidate = min(max(secant, low + near), high - near) if slow < 2 else (low + high) / 2
        if (excess := height(candidate)) <= 0:
            high, at_high = candidate, excess
        else:
            low, at_low = candidate, excess
        slow = slow + 1 if high - low > width / 2 else 0
        width = high - low
    return high


def _lowest(value: Callable[[float], float], *, start: float, most: float) -> float:
    """Find where a function of positive numbers is lowest, to a hundredth, between most / 2^40 and most; it has one
    minimum.
    """
    middle, at = start, value(start)
    factor = 4.0
    while factor > 1.01:
        has_moved = False
        for candidate in (middle * factor, middle / factor):
            if most / 2**40 <= candidate <= most and (lower := value(candidate)) < at:
                middle, at, has_moved = candidate, lower, True
                break
        if not has_moved:
            factor = math.sqrt(factor)
    return middle


def _dot(one: Floats, other: Floats) -> float:
    """Sum products, in the same order on every machine, whatever a library for vectors has there."""
    return float((one * other).sum())


def _check(name: str, number: float, holds: bool, range_words: str) -> None:
    if not holds:
        raise ValueError(f"{name} {number:g}, expected {range_words}")

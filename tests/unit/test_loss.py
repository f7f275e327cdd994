"""Composed privacy losses against closed forms and exact sums, never below them and at most 0.1 % above."""

from __future__ import annotations

import doctest
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest

from support.calibration import SIGMAS
from verticil.shared.mechanisms import loss
from verticil.shared.mechanisms.gaussian import analytic_delta, analytic_sigma
from verticil.shared.mechanisms.loss import (
    ApproximateLoss,
    DiscreteGaussianLoss,
    GaussianLoss,
    Loss,
    PureLoss,
    delta_at,
    epsilon_at,
)

CLOSE = 1e-3
"""How far above the exact epsilon a bound may be, relative."""
EXACT = 1e-11
"""Of the exact sums below, which are made with doubles; relative."""


def test_doctests():
    assert doctest.testmod(loss).failed == 0


def least(delta_of: Callable[[float], float], delta: float, high: float) -> float:
    """Where a decreasing function reaches delta, by halving."""
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle) <= delta else (middle, high)
    return high


def hockey_stick(masses: dict[float, float]) -> Callable[[float], float]:
    """delta(epsilon) of masses under P by their losses."""

    def delta_of(epsilon: float) -> float:
        return math.fsum(mass * -math.expm1(epsilon - at) for at, mass in masses.items() if at > epsilon)

    return delta_of


def responses(n: int, epsilon: float) -> dict[float, float]:
    """Losses of n randomized responses together, binomial: C(n, k) e^(k epsilon) / (1 + e^epsilon)^n at (2k - n) epsilon."""
    log_more = -math.log1p(math.exp(-epsilon))
    masses: dict[float, float] = {}
    for k in range(n + 1):
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        masses[(2 * k - n) * epsilon] = math.exp(ways + n * log_more - (n - k) * epsilon)
    return masses


def convolved(parts: Sequence[dict[float, float]]) -> dict[float, float]:
    """Losses of independent events together, every combination of theirs."""
    masses = {0.0: 1.0}
    for part in parts:
        found: dict[float, float] = {}
        for (one, p), (other, q) in itertools.product(masses.items(), part.items()):
            found[one + other] = found.get(one + other, 0.0) + p * q
        masses = found
    return masses


def discrete(sigma: float, change: int = 1, reach: float = 12) -> dict[float, float]:
    """Losses of one discrete Gaussian, |noise| <= reach sigma."""
    noise = range(-math.ceil(reach * sigma), math.ceil(reach * sigma) + 1)
    weights = [math.exp(-(x**2) / (2 * sigma**2)) for x in noise]
    total = math.fsum(weights)
    return {(2 * x * change + change**2) / (2 * sigma**2): w / total for x, w in zip(noise, weights, strict=True) if w}


def assert_bounds(losses: Counter[Loss] | Sequence[Loss], masses: dict[float, float], delta: float) -> None:
    exact = least(hockey_stick(masses), delta, max(masses))
    found = epsilon_at(losses, delta)
    assert exact * (1 - EXACT) <= found <= exact * (1 + CLOSE)


@pytest.mark.parametrize(("epsilon", "delta", "sigma"), SIGMAS)
def test_the_noise_for_an_epsilon_is_that_of_the_methods(epsilon, delta, sigma):
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at([GaussianLoss(mu=1 / middle)], epsilon) <= delta else (middle, high)
    assert high == pytest.approx(sigma, abs=1e-6)


@pytest.mark.parametrize("n", [1, 7, 400])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12, 1e-40])
def test_gaussians_together_are_one_gaussian(n, delta):
    losses = Counter({GaussianLoss(mu=0.3): n // 2, GaussianLoss(mu=0.4): n - n // 2})
    mu = math.sqrt(n // 2 * 0.09 + (n - n // 2) * 0.16)
    epsilon = epsilon_at(losses, delta)
    assert analytic_delta(1 / mu, epsilon) <= delta
    assert analytic_delta(1 / mu, epsilon * (1 - 1e-9)) >= delta * (1 - 1e-12)
    assert delta_at(losses, epsilon) == pytest.approx(delta, rel=1e-8)
    # The same as a sum: a pure loss too small to count makes it one.
    together = epsilon_at(losses + Counter({PureLoss(epsilon=1e-9): 1}), delta)
    assert epsilon * (1 - 1e-12) <= together <= epsilon * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("n", [1, 2, 5, 30, 300, 10_000])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_randomized_responses_against_the_binomial_sum(n, epsilon, delta):
    assert_bounds(Counter({PureLoss(epsilon=epsilon): n}), responses(n, epsilon), delta)


def test_two_kinds_of_responses_against_exact_fractions():
    """e^epsilon = 2 and 3, so that masses and delta are fractions: no double is in the reference."""
    losses = Counter({PureLoss(epsilon=math.log(2)): 3, PureLoss(epsilon=math.log(3)): 2})
    signs = list(itertools.product((1, -1), repeat=5))
    ratios = (2, 2, 2, 3, 3)
    for power in (Fraction(2), Fraction(9), Fraction(30), Fraction(60)):
        exact = Fraction(0)
        for sign in signs:
            odds = math.prod(Fraction(ratio) ** s for ratio, s in zip(ratios, sign, strict=True))
            mass = math.prod(Fraction(ratio if s > 0 else 1, ratio + 1) for ratio, s in zip(ratios, sign, strict=True))
            exact += mass * max(Fraction(0), 1 - power / odds)
        epsilon = math.log(power)
        assert float(exact) * (1 - EXACT) <= delta_at(losses, epsilon) <= float(exact) * (1 + CLOSE)


@pytest.mark.parametrize(("sigma", "change"), [(0.5, 1), (0.7, 1), (1.0, 1), (1.0, 3), (2.5, 2), (10.0, 1)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_one_discrete_gaussian_and_two(sigma, change, delta):
    one = discrete(sigma, change)
    assert_bounds([DiscreteGaussianLoss(sigma=sigma, change=change)], one, delta)
    both = [DiscreteGaussianLoss(sigma=sigma, change=change), DiscreteGaussianLoss(sigma=2 * sigma)]
    assert_bounds(both, convolved([one, discrete(2 * sigma)]), delta)


def test_different_losses_by_every_combination():
    draw = random.Random(5)
    for _ in range(6):
        epsilons = [draw.uniform(0.05, 1.5) for _ in range(5)]
        sigma = draw.uniform(0.5, 3)
        losses = [*(PureLoss(epsilon=epsilon) for epsilon in epsilons), DiscreteGaussianLoss(sigma=sigma)]
        parts = [*(responses(1, epsilon) for epsilon in epsilons), discrete(sigma)]
        assert_bounds(losses, convolved(parts), 10 ** draw.uniform(-12, -1))


def test_a_gaussian_and_a_response_by_the_mixture_of_two():
    """delta = q d(epsilon - 1) + (1 - q) d(epsilon + 1), q = e / (1 + e); d continued below zero by its symmetry."""
    more = 1 / (1 + math.exp(-1))

    def delta_of(epsilon: float) -> float:
        def one(at: float) -> float:
            return analytic_delta(2.0, at) if at >= 0 else 1 - math.exp(at) * (1 - analytic_delta(2.0, -at))

        return more * one(epsilon - 1) + (1 - more) * one(epsilon + 1)

    for delta in (1e-1, 1e-4, 1e-9, 1e-12):
        exact = least(delta_of, delta, 40.0)
        found = epsilon_at([GaussianLoss(mu=0.5), PureLoss(epsilon=1.0)], delta)
        assert exact * (1 - 1e-9) <= found <= exact * (1 + CLOSE)


def test_an_approximate_loss_is_its_epsilon_and_its_delta():
    one = ApproximateLoss(epsilon=1.0, delta=1e-6)
    assert epsilon_at([one], 1e-6) == 1.0
    assert epsilon_at([one], 0.99e-6) == math.inf
    assert delta_at([one], 1.0) == 1e-6
    assert delta_at([one], 0.5) == pytest.approx(1e-6 + (1 - 1e-6) * delta_at([PureLoss(epsilon=1.0)], 0.5), rel=1e-9)
    twenty = [one] * 20
    exact = -math.expm1(20 * math.log1p(-1e-6))
    assert exact <= delta_at(twenty, 20.0) <= 20e-6
    assert epsilon_at(twenty, 20e-6) <= 20
    beside = least(hockey_stick(responses(20, 1.0)), (1e-3 - exact) / (1 - exact), 20.0)
    assert beside <= epsilon_at(twenty, 1e-3) <= beside * (1 + CLOSE)


def test_pure_losses_never_cost_more_than_their_sum():
    draw = random.Random(2)
    for size in (1, 2, 3, 10, 50):
        epsilons = [draw.uniform(0, 3) for _ in range(size)]
        losses = [PureLoss(epsilon=epsilon) for epsilon in epsilons]
        assert epsilon_at(losses, 0) == math.fsum(epsilons)
        assert all(epsilon_at(losses, delta) <= math.fsum(epsilons) for delta in (1e-300, 1e-40, 1e-12, 1e-3))
        assert delta_at(losses, math.fsum(epsilons)) == 0
    assert epsilon_at([PureLoss(epsilon=1.0), GaussianLoss(mu=1.0)], 0) == math.inf
    assert epsilon_at([ApproximateLoss(epsilon=1.0, delta=1e-9)], 0) == math.inf


def test_nothing_costs_nothing():
    assert epsilon_at([], 0) == epsilon_at([], 1e-9) == delta_at([], 0) == 0
    assert epsilon_at([PureLoss(epsilon=0.0)] * 3, 0) == 0
    assert delta_at([PureLoss(epsilon=0.0)], 0) == 0
    assert epsilon_at(Counter({GaussianLoss(mu=1.0): 0}), 0) == 0
    assert epsilon_at([ApproximateLoss(epsilon=0.0, delta=1e-9)], 1e-9) == 0


def test_what_is_distinguished_with_less_than_delta_costs_nothing():
    assert epsilon_at([PureLoss(epsilon=0.1)] * 3, 0.3) == 0
    assert epsilon_at([GaussianLoss(mu=0.1)], 0.3) == 0


@pytest.mark.parametrize(
    "losses",
    [
        Counter({PureLoss(epsilon=0.001): 10_000, DiscreteGaussianLoss(sigma=50.0): 100}),
        [PureLoss(epsilon=40.0), GaussianLoss(mu=1.0)],
        [PureLoss(epsilon=900.0), PureLoss(epsilon=1.0)],
        [DiscreteGaussianLoss(sigma=0.5, change=9)],
        [DiscreteGaussianLoss(sigma=1.0, change=40)],
        [GaussianLoss(mu=30.0), PureLoss(epsilon=0.1)],
        [PureLoss(epsilon=1e-150), GaussianLoss(mu=1e-150)],
        [PureLoss(epsilon=1e-8), DiscreteGaussianLoss(sigma=2.0**13)],
    ],
)
def test_extreme_losses_have_bounds_that_fit_together(losses):
    for delta in (1e-60, 1e-30, 1e-9, 1e-2):
        epsilon = epsilon_at(losses, delta)
        assert 0 <= epsilon < math.inf
        assert delta_at(losses, epsilon * (1 + 1e-9)) <= delta * (1 + 1e-6)


def test_losses_beyond_doubles_exponents_are_bounded_by_their_moments():
    exact = least(lambda epsilon: analytic_delta(1 / 30.0, epsilon), 1e-9, 2000.0)
    assert exact <= epsilon_at([GaussianLoss(mu=30.0), PureLoss(epsilon=1e-6)], 1e-9) <= exact * 1.05


def test_three_hundred_different_events_lie_between_the_parts_and_their_sum():
    draw = random.Random(3)
    noise = [DiscreteGaussianLoss(sigma=draw.uniform(5, 300)) for _ in range(150)]
    answers = [PureLoss(epsilon=draw.uniform(0.001, 0.2)) for _ in range(150)]
    epsilon = epsilon_at([*noise, *answers], 1e-9)
    assert max(epsilon_at(noise, 1e-9), epsilon_at(answers, 1e-9)) < epsilon
    # The noise is hardly different from Gaussian noise of the same size, whose sum needs no grid.
    mu = math.sqrt(math.fsum(one.sigma**-2 for one in noise))
    assert epsilon_at(noise, 1e-9) == pytest.approx(epsilon_at([GaussianLoss(mu=mu)], 1e-9), rel=CLOSE)
    # Many small responses are nearly Gaussian, too, with the variance of their losses.
    assert epsilon == pytest.approx(
        epsilon_at([GaussianLoss(mu=math.sqrt(mu**2 + math.fsum(one.epsilon**2 for one in answers)))], 1e-9), rel=6e-2
    )


def test_a_transform_that_has_zeros():
    """Losses of +-log 3 are even: half of what the transform multiplies by is next to zero."""
    losses = Counter({PureLoss(epsilon=math.log(3)): 1000, PureLoss(epsilon=2 * math.log(3)): 1000})
    epsilon = epsilon_at(losses, 1e-9)
    assert math.isfinite(epsilon)
    assert delta_at(losses, epsilon) == pytest.approx(1e-9, rel=1e-6)


def test_counters_lists_and_generators_are_the_same():
    losses: list[Loss] = [PureLoss(epsilon=0.1), GaussianLoss(mu=0.2), PureLoss(epsilon=0.1)]
    expected = epsilon_at(losses, 1e-9)
    assert epsilon_at(Counter(losses), 1e-9) == epsilon_at(iter(losses), 1e-9) == expected


def test_the_same_question_is_answered_from_memory():
    losses = Counter({DiscreteGaussianLoss(sigma=37.0): 12})
    before = loss._epsilon_at.cache_info().hits
    assert epsilon_at(losses, 1e-9) == epsilon_at(list(losses.elements()), 1e-9)
    assert loss._epsilon_at.cache_info().hits == before + 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: PureLoss(epsilon=math.inf),
        lambda: PureLoss(epsilon=-0.1),
        lambda: PureLoss(epsilon=math.nan),
        lambda: ApproximateLoss(epsilon=math.inf, delta=0.1),
        lambda: ApproximateLoss(epsilon=1.0, delta=0.0),
        lambda: ApproximateLoss(epsilon=1.0, delta=1.0),
        lambda: GaussianLoss(mu=0.0),
        lambda: GaussianLoss(mu=math.inf),
        lambda: DiscreteGaussianLoss(sigma=0.49),
        lambda: DiscreteGaussianLoss(sigma=2.0**18),
        lambda: DiscreteGaussianLoss(sigma=1.0, change=0),
        lambda: DiscreteGaussianLoss(sigma=1.0, change=1.5),  # type: ignore[arg-type]
        lambda: epsilon_at([], 1.0),
        lambda: epsilon_at([], -1e-9),
        lambda: epsilon_at([], math.nan),
        lambda: delta_at([], math.inf),
        lambda: delta_at([], -1.0),
        lambda: delta_at(Counter({GaussianLoss(mu=1.0): -1}), 1.0),
    ],
)
def test_numbers_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match="expected"):
        make()


def test_the_grid_keeps_both_masses_and_is_nowhere_below():
    """Connecting the dots, on a grid so coarse that its error shows: exact on it, above between, and close."""
    step = 0.25
    atoms = loss._discrete_atoms(DiscreteGaussianLoss(sigma=2.0))
    part, log_scale, _ = loss._tilt_atoms(atoms, 1, step, 0.0)
    on_grid = {(part.first + i) * step: m * math.exp(log_scale) for i, m in enumerate(part.mass.tolist())}
    exact, found = hockey_stick(discrete(2.0)), hockey_stick(on_grid)
    for epsilon in np.arange(0, 2, step / 8).tolist():
        assert exact(epsilon) * (1 - EXACT) <= found(epsilon) * (1 + EXACT)
        if epsilon % step == 0:
            assert found(epsilon) == pytest.approx(exact(epsilon), rel=1e-9)
    assert math.fsum(on_grid.values()) == pytest.approx(1, abs=1e-12)
    assert math.fsum(m * math.exp(-at) for at, m in on_grid.items()) == pytest.approx(1, abs=1e-9)


def test_two_percent_of_the_gaussian_noise():
    """The discrete Gaussian of T tables needs at most 2 % more noise than the Gaussian (zCDP: some 14 %)."""
    for epsilon, n_tables in ((1.0, 20), (0.5, 300), (4.0, 10)):
        sigma = analytic_sigma(epsilon, 1e-9, sensitivity=math.sqrt(2 * n_tables))
        found = epsilon_at(Counter({DiscreteGaussianLoss(sigma=1.02 * sigma): 2 * n_tables}), 1e-9)
        assert 0.95 * epsilon < found <= epsilon


@pytest.mark.parametrize("times", [1, 3, 6])
def test_rounding_of_the_transform_stays_within_what_is_added_for_it(times):
    """Against exact convolutions in whole numbers; an error there is, so a bound of nothing is found."""
    generator = np.random.default_rng(times)
    whole = [generator.integers(0, 2**20, size=n) for n in (40, 300)]
    exact = np.array([1], dtype=object)
    for numbers in [whole[0].astype(object)] * times + [whole[1].astype(object)]:
        exact = np.convolve(exact, numbers)
    scale = Fraction(int(whole[0].sum())) ** times * int(whole[1].sum())
    parts = [
        loss._Tilted(first=-7 * k, mass=numbers / numbers.sum(), times=k)
        for numbers, k in zip(whole, (times, 1), strict=True)
    ]
    found = loss._convolve(parts)
    masses = [Fraction(int(one)) / scale for one in exact]
    offset = found.first + 7 * times * times + 7
    error = math.sqrt(sum(float(Fraction(one) - masses[offset + i]) ** 2 for i, one in enumerate(found.mass.tolist())))
    assert 0 < error <= found.noise < 1e-12
    assert float(sum(masses) - sum(masses[offset : offset + len(found.mass)])) <= found.folded

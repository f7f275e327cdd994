"""The exact sampler of the discrete Gaussian against decimals of 200 digits and the same bits; its limits; its calibration."""

from __future__ import annotations

import ast
import doctest
import hashlib
import inspect
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.mechanisms.discrete_gaussian import (
    LARGEST_SIGMA,
    LEAST_SIGMA,
    discrete_sigma,
    draw,
    variance,
    whole_numbers,
)
from verticil.shared.mechanisms.gaussian import analytic_sigma, derived_key, keystream
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, delta_at

KEY = bytes(range(32))
SIGMAS = [0.5, 0.8, 1.0, 3.7, 10.0, 30.1]


def test_doctests():
    assert doctest.testmod(discrete_gaussian).failed == 0


# ---- the reference: plain sums with 200 digits


@cache
def cumulative(sigma: float) -> tuple[Fraction, ...]:
    """S_j = P(|X| <= j), as far as 25 standard deviations: what is behind is below 1e-135."""
    with localcontext() as context:
        context.prec = 200
        exact = Fraction(sigma)
        scale = Decimal(exact.denominator) ** 2 / (2 * Decimal(exact.numerator) ** 2)
        weights = [(-scale * k * k).exp() for k in range(math.ceil(25 * sigma) + 3)]
        total = 2 * sum(weights) - weights[0]
        reached, found = Decimal(0), []
        for k, weight in enumerate(weights):
            reached += weight if k == 0 else 2 * weight
            found.append(Fraction(reached / total))
        return tuple(found)


def floor_of(sigma: float, j: int, bits: int) -> int:
    return math.floor(cumulative(sigma)[j] * 2**bits)


def expected(sigma: float, u: int, bits: int, *, negative: bool) -> int:
    uniform = Fraction(u, 2**bits)
    magnitude = sum(uniform >= s for s in cumulative(sigma))
    return -magnitude if negative else magnitude


def no_further(cell: int, k: int) -> int:
    raise AssertionError(f"cell {cell} asked for word {k}")


@pytest.mark.parametrize("sigma", SIGMAS)
def test_words_become_the_numbers_of_the_reference(sigma):
    words = np.random.default_rng(5).integers(0, 2**64, 2000, dtype=np.uint64)
    drawn = whole_numbers(words, sigma, no_further)
    for word, number in zip(words.tolist()[:300], drawn.tolist(), strict=False):
        assert number == expected(sigma, word >> 1, 63, negative=bool(word & 1))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_every_limit_between_two_numbers_is_where_it_belongs(sigma):
    """The words beside each S_j's own, without those that are another one's own."""
    limits = {floor_of(sigma, j, 63) for j in range(math.ceil(12 * sigma) + 3)}
    beside = sorted({limit + change for limit in limits for change in (-1, 1)} - limits - {-1, 2**63})
    assert len(beside) > 8
    words = np.array(beside, dtype=np.uint64) << np.uint64(1)
    assert whole_numbers(words, sigma, no_further).tolist() == [expected(sigma, u, 63, negative=False) for u in beside]


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("more", [1, 2])
def test_an_undecided_cell_takes_as_many_bits_as_it_needs(sigma, more):
    """U agrees with S_j in 63 bits, or in 127, and differs in the last of the next 64."""
    for j in (0, 1, math.ceil(3 * sigma)):
        bits = 63 + 64 * more
        for change in (-1, 1):
            u = floor_of(sigma, j, bits) + change
            asked: list[tuple[int, int]] = []

            def further(cell: int, k: int, *, u: int = u, asked: list[tuple[int, int]] = asked) -> int:
                asked.append((cell, k))
                return u >> 64 * (more - 1 - k) & (2**64 - 1)

            words = np.array([0, u >> 64 * more << 1 | 1], dtype=np.uint64)
            assert whole_numbers(words, sigma, further).tolist() == [0, expected(sigma, u, bits, negative=True)]
            assert asked == [(1, k) for k in range(more)]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_tail_has_no_end(sigma):
    """Three words of ones but for the last bits: beyond what 63 bits, and 127, can tell apart. Zeros follow."""
    last = 2**64 - 5

    def further(cell: int, k: int) -> int:
        assert cell == 0
        return (2**64 - 1, last)[k] if k < 2 else 0

    (number,) = whole_numbers(np.array([2**64 - 2], dtype=np.uint64), sigma, further)
    u = (2**127 - 1) << 64 | last
    assert number == expected(sigma, u, 191, negative=False)
    assert number > 12 * sigma


def test_a_sigma_is_the_fraction_that_the_double_is():
    """Two neighbouring doubles have other thresholds in their last bits."""
    one, two = (discrete_gaussian._thresholds(sigma).tolist() for sigma in (10.0, math.nextafter(10.0, 11.0)))
    assert one != two
    assert max(abs(a - b) for a, b in zip(one, two, strict=False)) < 2**13


@pytest.mark.parametrize("sigma", [LEAST_SIGMA, LARGEST_SIGMA])
def test_both_ends_can_be_drawn(sigma):
    drawn = draw(KEY, b"x", (1000,), sigma)
    assert 0 < np.abs(drawn).max() < 6 * sigma


def test_no_floating_point_shapes_the_draw():
    """The functions between words and numbers have no float, no division that makes one, and no floating-point type."""
    functions = (
        whole_numbers,
        *(getattr(discrete_gaussian, name) for name in ("_refine", "_cumulative", "_exponential")),
    )
    trees = [ast.parse(inspect.getsource(function)) for function in functions]
    trees.append(ast.parse(inspect.getsource(discrete_gaussian._thresholds.__wrapped__)))
    fractions = 0
    for tree in trees:
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
            assert not (isinstance(node, ast.Attribute) and node.attr in {"float64", "exp", "log", "sqrt"})
            fractions += isinstance(node, ast.Div)
    assert fractions == 2  # 1 / (2 * sigma**2) and 1 / sigma**2, of a Fraction
    with pytest.raises(AssertionError, match="float"):  # the planted fault: a float where a Fraction belongs
        discrete_gaussian._exponential(_NoFloat(0.5), 100)


class _NoFloat(float):
    def as_integer_ratio(self) -> tuple[int, int]:
        raise AssertionError("a float")


# ---- the key and the stream


def test_the_draws_are_those_of_the_stated_stream():
    """Word i of AES-256-CTR under the table's key, which the module's docstring states."""
    label, shape, sigma = b"family 1", (7, 5), 2.5
    sizes = b"".join(size.to_bytes(8, "big") for size in shape)
    table_key = derived_key(KEY, b"verticil/discrete-gaussian/v1", label, sizes, b"5/2")
    words = np.frombuffer(keystream(table_key)(8 * 35), dtype="<u8")
    np.testing.assert_array_equal(
        draw(KEY, label, shape, sigma), whole_numbers(words, sigma, no_further).reshape(shape)
    )


def test_a_long_table_is_one_stream(monkeypatch):
    whole = draw(KEY, b"x", (1000,), 3.0)
    monkeypatch.setattr(discrete_gaussian, "_CHUNK", 64)
    np.testing.assert_array_equal(draw(KEY, b"x", (1000,), 3.0), whole)


def test_further_words_are_of_the_cell_alone():
    table_key = bytes(32)
    further = discrete_gaussian._further
    words = [further(table_key, start, cell, k) for start, cell, k in ((0, 5, 0), (0, 5, 1), (0, 6, 0), (64, 5, 0))]
    assert len(set(words)) == 4
    assert further(table_key, 3, 2, 1) == words[1]
    stream = keystream(derived_key(table_key, b"verticil/discrete-gaussian/cell/v1", (5).to_bytes(8, "big")))(16)
    assert words[:2] == [int.from_bytes(stream[:8], "little"), int.from_bytes(stream[8:], "little")]


def test_draws_are_the_same_for_ever():
    """On every machine: the numbers of this version."""
    tables = [draw(KEY, b"x", (50, 20), sigma).astype("<i8") for sigma in (1.0, 3.7, 1e4)]
    found = [hashlib.sha256(table.tobytes()).hexdigest()[:16] for table in tables]
    assert found == ["fa06a219ddaabba0", "7e2ae9e11ef99a04", "96085731b9b55b57"]


def test_another_key_label_shape_or_sigma_is_another_draw():
    first = draw(KEY, b"x", (30, 20), 100.0)
    others = [
        draw(bytes(32), b"x", (30, 20), 100.0),
        draw(KEY, b"y", (30, 20), 100.0),
        draw(KEY, b"x", (20, 30), 100.0),
        draw(KEY, b"x", (600,), 100.0),
        draw(KEY, b"x", (30, 20), math.nextafter(100.0, 101.0)),
    ]
    limit = 6 / math.sqrt(600)  # a false alarm in 1e8
    assert all(abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < limit for other in others)
    np.testing.assert_array_equal(first, draw(KEY, b"x", (30, 20), 100.0))
    assert draw(KEY, b"x", (0, 3), 1.0).shape == (0, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: draw(b"short", b"x", (1,), 1.0),
        lambda: draw(KEY, b"x", (1,), 0.49),
        lambda: draw(KEY, b"x", (1,), 16_385.0),
        lambda: draw(KEY, b"x", (1,), math.nan),
        lambda: draw(KEY, b"x", (1,), math.inf),
        lambda: draw(KEY, b"x", (2**20, 2**20), 1.0),
        lambda: draw(KEY, b"x", (1,), 2.9, of_a_sum=True),
        lambda: whole_numbers(np.zeros(1, dtype=np.uint64), -1.0, no_further),
        lambda: discrete_sigma(1.0, 1e-9, 0),
        lambda: discrete_sigma(0.0, 1e-9, 1),
        lambda: discrete_sigma(math.inf, 1e-9, 1),
        lambda: discrete_sigma(1.0, 1.0, 1),
        lambda: discrete_sigma(1.0, 1e-31, 1),
        lambda: discrete_sigma(1e-5, 1e-9, 100),
    ],
)
def test_what_cannot_be_drawn_is_refused(make):
    with pytest.raises(ValueError, match="expected"):
        make()


def test_a_part_of_a_sum_is_the_same_draw():
    np.testing.assert_array_equal(draw(KEY, b"x", (50,), 3.0, of_a_sum=True), draw(KEY, b"x", (50,), 3.0))


# ---- how much


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0, 2.0, 2.999, 3.0, 20.0])
def test_the_variance_is_that_of_the_weights(sigma):
    shares = np.diff([0, *map(float, cumulative(sigma))])
    exact = math.fsum(share * k * k for k, share in enumerate(shares.tolist()))
    assert variance(sigma) == pytest.approx(exact, rel=1e-12)
    if sigma >= 1:
        assert -1e-12 < 1 - variance(sigma) / sigma**2 < 3e-7


@pytest.mark.parametrize(
    ("epsilon", "delta", "n_tables"),
    [(0.1, 1e-5, 15), (0.5, 1e-2, 1), (1.0, 1e-9, 1), (1.0, 1e-9, 15), (2.0, 1e-9, 7), (4.0, 1e-6, 3), (8.0, 1e-9, 30)],
)
def test_the_calibrated_noise_is_enough_and_hardly_more(epsilon, delta, n_tables):
    """Within .3 % of the continuous Gaussian's figure; the grid's step is up to .1 %."""
    sigma = discrete_sigma(epsilon, delta, n_tables)
    assert delta_at(Counter({DiscreteGaussianLoss(sigma=sigma): 2 * n_tables}), epsilon) <= delta
    continuous = analytic_sigma(epsilon, delta, sensitivity=math.sqrt(2 * n_tables))
    assert continuous <= sigma < 1.003 * continuous
    assert (math.frexp(sigma)[0] * 2**11).is_integer()


def test_the_calibration_is_that_of_two_cells_for_each_table():
    """By the definition: delta = E[(1 - e^(epsilon - L))+] over the noise on the two cells of one table."""
    sigma = discrete_sigma(1.0, 1e-4, 1)
    numbers = np.arange(-40 * math.ceil(sigma), 40 * math.ceil(sigma) + 1)
    weights = np.exp(-(numbers**2) / (2 * sigma**2))
    weights /= weights.sum()
    loss = (2 * numbers + 1) / (2 * sigma**2)
    both = np.add.outer(loss, loss)
    delta = float((np.outer(weights, weights) * np.maximum(-np.expm1(1.0 - both), 0)).sum())
    assert 0.99e-4 < delta <= 1e-4


def test_little_noise_is_never_less_than_the_least():
    assert discrete_sigma(40.0, 1e-3, 1) == LEAST_SIGMA

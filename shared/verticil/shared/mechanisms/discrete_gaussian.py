"""The discrete Gaussian: exact draws from a key with whole numbers only, and how much of it (epsilon, delta) takes.

The distribution is on the whole numbers, with weights e^(-x^2 / 2 sigma^2) (C. L. Canonne, G. Kamath, T. Steinke, "The discrete
Gaussian for differential privacy", NeurIPS 2020): what is added to a count is what the proof speaks of, with no rounding between.

Drawing: a sign, and a magnitude by inversion. With S_j = P(|X| <= j) and a uniform real number U whose bits come from the key,
|X| is the number of j with U >= S_j. The S_j are known as narrow intervals of whole numbers that hold them for certain, made
with directed rounding. The first 63 bits of U decide unless they are those of an S_j too; then as many more bits are drawn, and
the S_j made as much narrower, as it takes. So the draw is exact, not close: no floating-point number shapes it, and U has as many
bits as it needs. What is left is that of any sampler: the bits are AES-256's in counter mode, in place of random ones.

Why not by rejection, as Canonne, Kamath & Steinke draw (their algorithms 1 to 3): that is as exact and needs no table, but the
number of words and the time that a draw takes tell of the noise, and it is slow where nothing is compiled, as at a party. Here
every cell takes one word of 64 bits and the same steps; only an undecided one, one in 2^63 / 10 sigma, takes more. Nothing of
this depends on the data. The processor's cache can tell of the noise, as with any table. The tests hold their sampler beside it.

The stream: cell i of a table, in C order, has the i-th word of AES-256-CTR under the table's own key, its lowest bit the sign and
the others the first 63 bits of U. Further bits of a cell are those of a key of the cell's own. No word is used twice.

    table's key = HKDF-SHA-256(key, info = "verticil/discrete-gaussian/v1" ‖ L(label) ‖ L(shape) ‖ L(sigma))
    cell's key  = HKDF-SHA-256(table's key, info = "verticil/discrete-gaussian/cell/v1" ‖ L(i))

L(x) = length of x as uint32 big-endian ‖ x; shape = each size as uint64 big-endian; sigma = its numerator, "/", its denominator.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from verticil.shared.mechanisms.gaussian import analytic_sigma, derived_key, keystream
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, Loss, delta_at

LEAST_SIGMA: Final = 0.5
"""Less noise is never drawn."""
LARGEST_SIGMA: Final = 16_384.0
"""Beyond, the table of the S_j would be large and the counts below the noise anyway."""
LEAST_SIGMA_OF_A_SUM: Final = 3.0
"""Of each part of a sum: with less, the sum is no discrete Gaussian (P. Kairouz, Z. Liu, T. Steinke, "The distributed discrete
Gaussian mechanism for federated learning with secure aggregation", ICML 2021)."""
MOST_OF_A_SUM: Final = 25
"""Parts, each of `LEAST_SIGMA_OF_A_SUM` or more: the sum is one draw but for a factor 1 +- 1e-36 (accounting.md section 2.3)."""
LEAST_DELTA: Final = 1e-30
"""Far below it the bounds of sums of losses are coarse, or not finite."""
MAX_CELLS: Final = 2**32
"""Of one table."""

_BITS: Final = 63  # of U that a first word has
_FIGURES: Final = 2**11  # a calibrated sigma is a multiple of 2^-11 times a power of two above it: steps of .05 to .1 %
_STEPS: Final = 128  # of the calibration, at most
_CHUNK: Final = 2**20  # cells at a time
_PURPOSE: Final = b"verticil/discrete-gaussian/v1"
_OF_A_CELL: Final = b"verticil/discrete-gaussian/cell/v1"

Further: TypeAlias = Callable[[int, int], int]
"""(cell, k) -> the k-th further word of a cell, k = 0, 1, ..; 64 uniform bits."""


def draw(
    key: bytes, label: bytes, shape: tuple[int, ...], sigma: float, *, of_a_sum: bool = False
) -> NDArray[np.int64]:
    """Independent discrete Gaussian numbers, a function of the arguments alone: the same on every machine.

    Args:
        key: 32 bytes, secret.
        label: names the table; another one is another draw, and so are another shape and another sigma.
        shape: of the table, at most `MAX_CELLS` cells.
        sigma: `LEAST_SIGMA` to `LARGEST_SIGMA`; taken for the fraction that the double is.
        of_a_sum: the table is one contributor's part of a sum of several; sigma is then at least `LEAST_SIGMA_OF_A_SUM`.

    Returns:
        Of that shape, int64.

    Raises:
        ValueError: a number is out of its range, or the key is not 32 bytes.
    """
    if len(key) != 32:
        raise ValueError(f"key: {len(key)} bytes, expected 32")
    if of_a_sum and not sigma >= LEAST_SIGMA_OF_A_SUM:
        raise ValueError(f"sigma {sigma:g} of a part of a sum, expected at least {LEAST_SIGMA_OF_A_SUM:g}")
    cells = math.prod(shape)
    if cells > MAX_CELLS:
        raise ValueError(f"a table of {cells} cells, expected at most {MAX_CELLS}")
    numerator, denominator = _check_sigma(sigma).as_integer_ratio()
    sizes = b"".join(size.to_bytes(8, "big") for size in shape)
    table_key = derived_key(key, _PURPOSE, label, sizes, b"%d/%d" % (numerator, denominator))
    noise, stream = np.empty(cells, dtype=np.int64), keystream(table_key)
    for start in range(0, cells, _CHUNK):
        some = noise[start : start + _CHUNK]
        words = np.frombuffer(stream(8 * some.size), dtype="<u8")
        some[:] = whole_numbers(words, sigma, functools.partial(_further, table_key, start))
    return noise.reshape(shape)


def whole_numbers(words: NDArray[np.uint64], sigma: float, further: Further) -> NDArray[np.int64]:
    """Discrete Gaussian numbers from uniform words; see the module.

    Args:
        words: (n,), uint64, one of each cell.
        sigma: `LEAST_SIGMA` to `LARGEST_SIGMA`.
        further: the words of a cell that one does not decide; cells are counted from 0 in `words`.

    Returns:
        (n,), int64.

    Raises:
        ValueError: sigma is out of its range.
    """
    thresholds = _thresholds(_check_sigma(sigma))
    first = words >> np.uint64(1)
    magnitude = np.searchsorted(thresholds, first, side="left").astype(np.int64)
    # thresholds[j] = floor(2^63 S_j), so a first word above it is above S_j, and one below it is below; the last is 2^63 - 1.
    for cell in np.flatnonzero(thresholds[magnitude] == first).tolist():
        magnitude[cell] = _refine(_check_sigma(sigma), int(first[cell]), functools.partial(further, cell))
    return np.where(words & np.uint64(1), -magnitude, magnitude)


def variance(sigma: float) -> float:
    """Compute the variance of the distribution, to 1e-12 of itself.

    It is below sigma^2 by 8 pi^2 sigma^4 e^(-2 pi^2 sigma^2) (Poisson's summation): 2e-7 of it at sigma = 1, nothing from 3 on.

    >>> round(variance(0.5), 6), variance(100.0)
    (0.215013, 10000.0)
    """
    if sigma >= 3:
        return sigma**2
    numbers = np.arange(-40, 41, dtype=np.float64)
    weights = np.exp(-(numbers**2) / (2 * sigma**2))
    return math.fsum(weights * numbers**2) / math.fsum(weights)


@functools.lru_cache(maxsize=256)
def discrete_sigma(epsilon: float, delta: float, n_tables: int) -> float:
    """Find the least noise on each count of a party's tables that is (epsilon, delta) private for the replacement of
    one person.

    One person's row moves from one cell to another in each table: 2 T cells change by one. Their losses are summed by
    `verticil.shared.mechanisms.loss`, rounded up. Sigma has 11 significant bits, so that machines whose last digits differ agree
    on it: it is the first such number whose delta is small enough, from the continuous Gaussian's figure on upwards
    (`verticil.shared.mechanisms.gaussian.analytic_sigma` of sensitivity sqrt(2 T)).

    Args:
        epsilon: of everything that the party shares, finite, > 0.
        delta: with it; `LEAST_DELTA` <= delta < 1.
        n_tables: T, at least 1.

    Returns:
        At least `LEAST_SIGMA`.

    Raises:
        ValueError: a number is out of its range, or the noise would be beyond `LARGEST_SIGMA`.
    """
    if n_tables < 1:
        raise ValueError(f"{n_tables} tables, expected at least 1")
    if 0 < delta < LEAST_DELTA:
        raise ValueError(f"delta {delta:g}, expected at least {LEAST_DELTA:g}: what is below cannot be promised")
    sigma = _rounded_up(max(analytic_sigma(epsilon, delta, sensitivity=math.sqrt(2 * n_tables)), LEAST_SIGMA))
    for _ in range(_STEPS):
        if sigma > LARGEST_SIGMA:
            raise ValueError(
                f"noise of {sigma:.4g} people on each count of {n_tables} tables, expected at most {LARGEST_SIGMA:.4g}"
            )
        if delta_at(Counter({DiscreteGaussianLoss(sigma=sigma): 2 * n_tables}), epsilon) <= delta:
            return sigma
        sigma = _rounded_up(math.nextafter(sigma, math.inf))
    raise ValueError(
        f"delta {delta:g} at epsilon {epsilon:g}: no noise is proved to be enough, expected a larger delta"
    )


@functools.lru_cache(maxsize=256)
def discrete_sigmas(epsilon: float, delta: float, sets: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
    """Find the noise of several sets of a party's tables that are (epsilon, delta) private together.

    As `discrete_sigma`, but each set has a noise of its own: with T tables and noise of sigma a set has the part T / sigma^2 of
    the sum over all sets.

    Args:
        epsilon, delta: of all sets together; see `discrete_sigma`.
        sets: of each the number of its tables, at least 1, and its part, > 0; the parts add up to 1.

    Returns:
        The sigma of each set, at least `LEAST_SIGMA`.

    Raises:
        ValueError: as `discrete_sigma`.
    """
    if 0 < delta < LEAST_DELTA:
        raise ValueError(f"delta {delta:g}, expected at least {LEAST_DELTA:g}: what is below cannot be promised")
    scale = _rounded_up(analytic_sigma(epsilon, delta, sensitivity=math.sqrt(2)))
    for _ in range(_STEPS):
        sigmas = tuple(max(_rounded_up(scale * math.sqrt(n / part)), LEAST_SIGMA) for n, part in sets)
        if max(sigmas) > LARGEST_SIGMA:
            raise ValueError(f"noise of {max(sigmas):.4g} people on each count, expected at most {LARGEST_SIGMA:.4g}")
        losses: Counter[Loss] = Counter()
        for sigma, (n, _part) in zip(sigmas, sets, strict=True):
            losses[DiscreteGaussianLoss(sigma=sigma)] += 2 * n
        if delta_at(losses, epsilon) <= delta:
            return sigmas
        scale = _rounded_up(math.nextafter(scale, math.inf))
    raise ValueError(
        f"delta {delta:g} at epsilon {epsilon:g}: no noise is proved to be enough, expected a larger delta"
    )


def _rounded_up(sigma: float) -> float:
    fraction, exponent = math.frexp(sigma)
    return math.ldexp(math.ceil(fraction * _FIGURES), exponent) / _FIGURES


def _check_sigma(sigma: float) -> float:
    if not LEAST_SIGMA <= sigma <= LARGEST_SIGMA:
        raise ValueError(f"sigma {sigma:g}, expected {LEAST_SIGMA:g} to {LARGEST_SIGMA:g}")
    return sigma


def _further(table_key: bytes, start: int, cell: int, k: int) -> int:
    """Return the k-th further word of cell start + cell."""
    stream = keystream(derived_key(table_key, _OF_A_CELL, (start + cell).to_bytes(8, "big")))
    return int.from_bytes(stream(8 * (k + 1))[-8:], "little")


@functools.lru_cache(maxsize=16)
def _thresholds(sigma: float) -> NDArray[np.uint64]:
    """floor(2^63 S_j), j = 0, 1, .., up to the first that is 2^63 - 1; read-only."""
    guard = 96
    while True:
        intervals = _cumulative(Fraction(sigma), _BITS, guard)
        if all(lower == upper for lower, upper in intervals):
            break
        guard *= 2
    last = next(j for j, (lower, _) in enumerate(intervals) if lower == 2**_BITS - 1)
    thresholds = np.array([lower for lower, _ in intervals[: last + 1]], dtype=np.uint64)
    thresholds.setflags(write=False)
    return thresholds


def _refine(sigma: float, first: int, further: Callable[[int], int]) -> int:
    """Return the magnitude of a cell whose first 63 bits do not decide it."""
    u, bits, k = first, _BITS, 0
    while True:
        u, bits, k = u << 64 | further(k), bits + 64, k + 1
        intervals = _cumulative(Fraction(sigma), bits, 96)
        magnitude = next(j for j, (_, upper) in enumerate(intervals) if u <= upper)
        if u < intervals[magnitude][0]:
            return magnitude


def _cumulative(sigma: Fraction, bits: int, guard: int) -> list[tuple[int, int]]:
    """Bounds of floor(2^bits S_j), for j = 0, 1, .., until the lower one is 2^bits - 1.

    The weights follow from each other by the ratios e^(-(2k + 1) / 2 sigma^2), which follow from each other by e^(-1 / sigma^2).
    All are whole numbers in units of 2^-(bits + guard), once rounded down and once up.

    Args:
        sigma: exact.
        bits: of the result.
        guard: further bits behind the weights: 53 of them are lost at `LARGEST_SIGMA`.
    """
    unit = bits + guard
    one = 1 << unit
    ratio_low, ratio_high = _exponential(1 / (2 * sigma**2), unit)
    change_low, change_high = _exponential(1 / sigma**2, unit)
    low = high = one
    sums: list[tuple[int, int]] = [(one, one)]  # w_0 + 2 w_1 + .. + 2 w_j
    while True:
        low, high = low * ratio_low >> unit, -(-high * ratio_high >> unit)
        ratio_low, ratio_high = ratio_low * change_low >> unit, -(-ratio_high * change_high >> unit)
        sums.append((sums[-1][0] + 2 * low, sums[-1][1] + 2 * high))
        # The weights behind fall at least as fast as this ratio: a geometric series.
        if (rest := -(-2 * high * ratio_high // (one - ratio_high))) < 1 << guard // 2:
            break
    total_low, total_high = sums[-1][0], sums[-1][1] + rest
    most = (1 << bits) - 1  # S_j < 1
    bounds: list[tuple[int, int]] = []
    for below, above in sums:
        lower, upper = (below << bits) // total_high, min((above << bits) // total_low, most)
        bounds.append((lower, upper))
        if lower == most:
            break
    return bounds


def _exponential(exponent: Fraction, unit: int) -> tuple[int, int]:
    """Bounds of e^-exponent in units of 2^-unit, 0 < exponent <= 4: one over the series of e^exponent, whose terms are > 0."""
    p, q = exponent.as_integer_ratio()
    one = 1 << unit
    low = high = sum_low = sum_high = one
    n = 0
    while high > 1 or n < 8:
        n += 1
        low, high = low * p // (q * n), -(-high * p // (q * n))
        sum_low, sum_high = sum_low + low, sum_high + high
    sum_high += high  # the terms behind: each at most half of the one before it
    return one * one // sum_high, -(-one * one // sum_low)

"""Gaussian noise for what a party shares of its own raw data: how much, and how the rounded one is drawn (Model I, `share`).

Calibration: B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy: analytical calibration and
optimal denoising", ICML 2018, theorem 8. A statistic of L2 sensitivity D with noise of standard deviation s is (epsilon, delta)
private if and only if

    Phi(D / 2s - epsilon s / D) - e^epsilon Phi(-D / 2s - epsilon s / D) <= delta.

Sensitivity: one person's own columns are *replaced*. The number of common people is public (it decides whether there is a study
at all, and stands in every release), so nobody is ever added or removed: the tables that are still possible differ by a record
that moves from one cell to another, which is sqrt(2) in each table and sqrt(2 T) in T of them. Calibrating for add-or-remove,
sensitivity 1, would understate what is revealed by that factor. The released codes of other parties and the common list are not
the person's own columns and do not move. T is fixed by the study, so it does not matter that families depend on noisy scores.

Drawing: the continuous noise is rounded to a whole number. Counts are whole numbers, so a noisy count is the rounded noisy
count of the continuous mechanism: rounding is post-processing and costs nothing. It also leaves no low bits of a double that
would tell more than the noise hides (Mironov, CCS 2012). Two 64-bit words of AES-256 in counter mode are compared with integer
thresholds, the cumulative weights of the rounded Gaussian in units of 2^-128. What the thresholds' own rounding and the folded
tails add to delta is bounded in `sampling_slack` and taken off delta before calibration.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

MAX_CELLS: Final = 2**30
"""Cells that one key's noise is drawn for at most; `sampling_slack` counts them."""
LARGEST_SIGMA: Final = 16_384.0
"""Of the rounded Gaussian: beyond, the table of thresholds would be large and the counts below the noise anyway."""
LEAST_SIGMA: Final = 0.5
"""Less noise is never drawn: the formula of the weights is made for more."""

_TAIL: Final = 13.5  # standard deviations: 2 Phi(-13.5) = 1.6e-41, less than 2^-128 = 2.9e-39
_BITS: Final = 320  # of the fixed-point numbers behind the weights: 60 digits more than the thresholds need
_WORD: Final = 2**64
_SET_ASIDE: Final = 2.0**-20  # share of delta for the sampling


def analytic_delta(sigma: float, epsilon: float, *, sensitivity: float = 1.0) -> float:
    """The smallest delta of the Gaussian mechanism at this epsilon.

    Args:
        sigma: standard deviation of the noise, > 0.
        epsilon: >= 0.
        sensitivity: L2, > 0.
    """
    half, slope = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
    upper = _log_normal_cdf(half - slope)
    lower = epsilon + _log_normal_cdf(-half - slope)  # in log space: e^epsilon alone would overflow
    return math.exp(upper) * -math.expm1(min(lower - upper, 0.0))


def analytic_sigma(epsilon: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """The smallest standard deviation that is (epsilon, delta) private, rounded up in its last digits.

    Args:
        epsilon: finite, > 0.
        delta: 0 < delta < 1.
        sensitivity: L2, > 0.

    Raises:
        ValueError: a number is out of its range.

    >>> [round(analytic_sigma(epsilon, 1e-9), 6) for epsilon in (1, 8)]
    [5.495266, 0.792237]
    """
    if not (0 < epsilon < math.inf and 0 < delta < 1 and 0 < sensitivity < math.inf):
        raise ValueError(
            f"epsilon {epsilon:g}, delta {delta:g}, sensitivity {sensitivity:g}: "
            "expected finite numbers > 0, and delta below 1"
        )
    low, high = 0.0, 1.0
    while analytic_delta(high, epsilon) > delta:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if analytic_delta(middle, epsilon) > delta else (low, middle)
    return high * sensitivity


def share_sigma(epsilon: float, delta: float, n_tables: int) -> float:
    """Standard deviation of the noise on every count of a party's tables: sqrt(2 T) times that of sensitivity 1.

    See the module for the neighbouring relation. delta is used up to a millionth, which `sampling_slack` stays below.

    Args:
        epsilon, delta: of everything that the party shares in a study, together.
        n_tables: T, at least 1.

    Raises:
        ValueError: a number is out of its range, or the noise would be beyond `LARGEST_SIGMA`.
    """
    if n_tables < 1:
        raise ValueError(f"{n_tables} tables, expected at least 1")
    sigma = max(analytic_sigma(epsilon, delta * (1 - _SET_ASIDE), sensitivity=math.sqrt(2 * n_tables)), LEAST_SIGMA)
    if sigma > LARGEST_SIGMA:
        raise ValueError(
            f"noise of {sigma:.4g} people on each count of {n_tables} tables, expected at most {LARGEST_SIGMA:.4g}"
        )
    if sampling_slack(LARGEST_SIGMA, epsilon) > delta * _SET_ASIDE:
        raise ValueError(f"delta {delta:g} at epsilon {epsilon:g} is below what the sampling can promise")
    return sigma


def sampling_slack(sigma: float, epsilon: float) -> float:
    """What drawing by thresholds adds to delta at most, over `MAX_CELLS` cells: (1 + e^epsilon) cells tv.

    tv is the total variation between the drawn and the exact rounded Gaussian: each of the 2 b thresholds is off by less than
    2^-128, and the tails beyond b, together less than 2^-128, are folded into the last weights.

    >>> sampling_slack(100.0, 1.0) < 1e-25
    True
    """
    variation = (2 * _reach(sigma) + 1) * 2.0**-128
    return (1 + math.exp(min(epsilon, 700.0))) * MAX_CELLS * variation


def rounded_gaussian(key: bytes, label: bytes, shape: tuple[int, ...], sigma: float) -> NDArray[np.int64]:
    """Independent rounded Gaussian numbers, a function of the arguments alone.

    Args:
        key: 32 bytes, secret.
        label: names the table.
        shape: of the table; `sampling_slack` counts `MAX_CELLS` cells of one key.
        sigma: standard deviation before rounding, `LEAST_SIGMA` to `LARGEST_SIGMA`.
    """
    # The size behind the shape's is that of steps between whole numbers, which some versions could draw too.
    name = b"".join(size.to_bytes(4, "big") for size in (*shape, 1))
    stream = keystream(derived_key(key, b"verticil/share-table/v1", label, name))(16 * math.prod(shape))
    return whole_numbers(np.frombuffer(stream, dtype="<u8").reshape(-1, 2), sigma).reshape(shape)


def whole_numbers(words: NDArray[np.uint64], sigma: float) -> NDArray[np.int64]:
    """Rounded Gaussian numbers from uniform words.

    Args:
        words: (n, 2), uint64: u = words[:, 0] 2^64 + words[:, 1].
        sigma: standard deviation before rounding, `LEAST_SIGMA` to `LARGEST_SIGMA`.

    Returns:
        (n,), int64: #{j : u >= t_j} - b.
    """
    thresholds = rounded_gaussian_thresholds(sigma)
    high = np.array([threshold >> 64 for threshold in thresholds], dtype=np.uint64)
    first, second = words[:, 0], words[:, 1]
    passed = np.searchsorted(high, first, side="right")
    # A first word that equals a threshold's (one in 2^64 for each): there the second decides.
    for row in np.flatnonzero(passed != np.searchsorted(high, first, side="left")):
        u = int(first[row]) * _WORD + int(second[row])
        passed[row] = sum(threshold <= u for threshold in thresholds)
    return passed.astype(np.int64) - _reach(sigma)


@functools.lru_cache(maxsize=16)
def rounded_gaussian_thresholds(sigma: float) -> tuple[int, ...]:
    """Cumulative weights of the rounded Gaussian on -b .. b, in units of 2^-128: t_j = floor(2^128 P(X < j + 1 - b)).

    The weight of k is the integral of the density f over [k - 1/2, k + 1/2], by its Taylor series around k, in which the odd
    terms drop out: f(k) sum_m He_2m(k / sigma) (2 sigma)^-2m / ((2m)! (2m + 1)), He the Hermite polynomials. All in
    fixed-point numbers of 320 bits; the ratios f(k + 1) / f(k) follow from one exponential.

    Args:
        sigma: `LEAST_SIGMA` to `LARGEST_SIGMA`.

    Raises:
        ValueError: it is not.
    """
    if not LEAST_SIGMA <= sigma <= LARGEST_SIGMA:
        raise ValueError(f"sigma {sigma:g}, expected {LEAST_SIGMA:g} to {LARGEST_SIGMA:g}")
    exact = Fraction(sigma)
    one = 1 << _BITS
    half_step = int(one / (2 * exact))  # a = 1 / 2 sigma
    ratio, change = _exponential(-1 / (2 * exact**2)), _exponential(-1 / exact**2)
    density = one
    weights: list[int] = []
    for k in range(_reach(sigma) + 1):
        weights.append(density * _cell_integral(int(k * one / exact), half_step) >> _BITS)
        density = density * ratio >> _BITS
        ratio = ratio * change >> _BITS
    total = 2 * sum(weights) - weights[0]
    thresholds: list[int] = []
    reached = 0
    for weight in (*weights[:0:-1], *weights[:-1]):
        reached += weight
        thresholds.append((reached << 128) // total)
    return tuple(thresholds)


def _cell_integral(x: int, a: int) -> int:
    """sum_m c_2m / (2m + 1), c_n = He_n(x) a^n / n!; fixed-point numbers."""
    before, current = 1 << _BITS, x * a >> _BITS
    xa, aa = current, a * a >> _BITS
    total, n = before, 1
    while abs(before) > 1 or abs(current) > 1:
        before, current = current, (xa * current - aa * before >> _BITS) // (n + 1)
        n += 1
        if n % 2 == 0:
            total += current // (n + 1)
    return total


def _exponential(exponent: Fraction) -> int:
    """e to a number that is not positive, in fixed point."""
    with localcontext() as context:
        context.prec = 110  # 2^-320 is 1e-96
        value = (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
        return int(value * (1 << _BITS))


def _reach(sigma: float) -> int:
    """b: the largest number that is drawn."""
    return math.ceil(_TAIL * sigma)


def _log_normal_cdf(x: float) -> float:
    """ln Phi(x)."""
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    # The asymptotic series; at x = -30 its next term is 1e-10 of the sum.
    inverse = 1 / x**2
    series = 1 - inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse)))
    return -(x**2) / 2 - math.log(-x) - math.log(2 * math.pi) / 2 + math.log(series)


def keystream(key: bytes) -> Callable[[int], bytes]:
    """AES-256 in counter mode under a key that serves one table, so that a counter that begins at 0 never repeats under it.

    Returns:
        Gives the next so many bytes.
    """
    encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    return lambda size: encryptor.update(bytes(size))


def derived_key(key: bytes, purpose: bytes, *parts: bytes) -> bytes:
    """HKDF-SHA-256 of a key without salt, info = purpose ‖ length of a part as uint32 big-endian ‖ the part ‖ ..: 32 bytes."""
    info = purpose + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(key)

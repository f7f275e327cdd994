"""Gaussian noise for what a party shares of its own raw data: how much, and how it is drawn (Model I, `share`).

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

Sticky: the noise of a table is a function of a key and of the table's label, so that asking again gives nothing new. The key
depends on the site's secret, the study, the structure, the common list and the data (`share_key`): any change is a new draw, to
be charged again. The statement is computational in AES and HKDF, as that of `verticil.party.dataset.perturb` is.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
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


def share_key(
    site_secret: bytes,
    *,
    effective_digest: bytes,
    structure_sha256: bytes,
    common_sha256: bytes,
    data_fingerprint: bytes,
) -> bytes:
    """The key of a party's share noise in one study: 32 bytes.

        HKDF-SHA-256(site secret, info = "verticil/share/v1" ‖ L(effective) ‖ L(structure) ‖ L(common) ‖ L(data))

    without salt; L(x) = length of x as uint32 big-endian ‖ x.

    Args:
        site_secret: 32 bytes, made at ``party init``; never leaves.
        effective_digest: of the effective study.
        structure_sha256: of the structure; empty while pairs are scored.
        common_sha256: of the common list.
        data_fingerprint: of the party's own values of the common people, so that no two versions of the data share their noise.

    Raises:
        ValueError: the secret is not 32 bytes, or what names study, list or data is empty.
    """
    if len(site_secret) != 32:
        raise ValueError(f"site secret: {len(site_secret)} bytes, expected 32")
    if not (effective_digest and common_sha256 and data_fingerprint):
        raise ValueError("the study, the common list and the data must be named")
    return _hkdf(site_secret, b"verticil/share/v1", effective_digest, structure_sha256, common_sha256, data_fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareNoise:
    """The noise of one party in one study.

    Attributes:
        key: 32 bytes, see `share_key`. Whoever has it can take the noise out.
        epsilon, delta: of everything that the party shares, together.
        n_tables: T, the number of tables that noise is added to.
        sigma: standard deviation of the noise on each count, before it is rounded to a whole number.

    Raises:
        ValueError: see `share_sigma`; or the key is not 32 bytes.
    """

    key: bytes
    epsilon: float
    delta: float
    n_tables: int

    def __post_init__(self) -> None:
        if len(self.key) != 32:
            raise ValueError(f"key: {len(self.key)} bytes, expected 32")
        share_sigma(self.epsilon, self.delta, self.n_tables)

    def __repr__(self) -> str:
        return f"ShareNoise(epsilon={self.epsilon}, delta={self.delta}, n_tables={self.n_tables})"

    @property
    def sigma(self) -> float:
        """Standard deviation on each count."""
        return share_sigma(self.epsilon, self.delta, self.n_tables)

    def variance(self, parts: int = 1) -> float:
        """Variance of the drawn noise: sigma^2, and 1/12 of a unit for the rounding (Sheppard; exact to 1e-8 at sigma >= 1)."""
        return self.sigma**2 + 1 / (12 * parts**2)

    def add(self, label: bytes, counts: NDArray[np.float64], parts: int = 1) -> NDArray[np.float64]:
        """A table with its noise.

        Args:
            label: names the table; no two tables of a study may have the same.
            counts: whole multiples of 1/parts.
            parts: 1; or, where released sets of several categories count as fractions, the product of their sizes. The noise has
                the same steps as the counts, because what is added to a fraction must hide it.

        Returns:
            Of the same shape, float64: whole multiples of 1/parts, which can be negative.

        Raises:
            ValueError: the counts are not such multiples, the table is larger than `MAX_CELLS`, or `parts` makes the noise
                larger than `LARGEST_SIGMA`.
        """
        if counts.size > MAX_CELLS // self.n_tables or self.sigma * parts > LARGEST_SIGMA:
            raise ValueError(
                f"noise of {self.sigma:.4g} people in steps of 1/{parts} for a table of {counts.size} cells: "
                "the table or the number of steps is too large"
            )
        steps = np.rint(counts * parts)
        if not np.allclose(steps, counts * parts, rtol=0, atol=1e-6):
            raise ValueError(f"counts are not whole multiples of 1/{parts}")
        name = b"".join(size.to_bytes(4, "big") for size in (*counts.shape, parts))
        stream = _keystream(_hkdf(self.key, b"verticil/share-table/v1", label, name), 16 * counts.size)
        drawn = whole_numbers(np.frombuffer(stream, dtype="<u8").reshape(-1, 2), self.sigma * parts)
        # Added as whole numbers: a sum of two fractions would keep something of both in its last bits.
        return np.asarray((steps.astype(np.int64) + drawn.reshape(counts.shape)) / parts, dtype=np.float64)


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


def _keystream(key: bytes, size: int) -> bytes:
    # The key serves one table, so a counter that begins at 0 never repeats under it.
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def _hkdf(key: bytes, purpose: bytes, *parts: bytes) -> bytes:
    info = purpose + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(key)

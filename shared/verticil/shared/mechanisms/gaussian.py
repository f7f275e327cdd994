"""How much Gaussian noise (epsilon, delta) takes, and keys of noise.

Calibration: B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy: analytical calibration and
optimal denoising", ICML 2018, theorem 8. A statistic of L2 sensitivity D with noise of standard deviation s is (epsilon, delta)
private if and only if

    Phi(D / 2s - epsilon s / D) - e^epsilon Phi(-D / 2s - epsilon s / D) <= delta.

Sensitivity: one person's own columns are *replaced*. The number of common people is public (it decides whether there is a study
at all, and stands in every release), so nobody is ever added or removed: the tables that are still possible differ by a record
that moves from one cell to another, which is sqrt(2) in each table and sqrt(2 T) in T of them. Calibrating for add-or-remove,
sensitivity 1, would understate what is revealed by that factor. The released codes of other parties and the common list are not
the person's own columns and do not move. T is fixed by the study, so it does not matter that families depend on noisy scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def analytic_delta(sigma: float, epsilon: float, *, sensitivity: float = 1.0) -> float:
    """Compute the smallest delta of the Gaussian mechanism at this epsilon.

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
    """Find the smallest standard deviation that is (epsilon, delta) private, rounded up in its last digits.

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


def _log_normal_cdf(x: float) -> float:
    """Compute ln Phi(x), Phi the normal distribution's."""
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

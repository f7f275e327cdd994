"""Groups and kept libraries for ``dh-psi``: microseconds of CPU for a point that arrives as bytes, is checked and is blinded.

``python tests/bench/psi_groups.py``. What the product does (P-256 by `cryptography`, which is OpenSSL) stands first, everything
else beside it. A group takes its place only where a token costs at most half, and then as a mode of its own, because all parties
must use the same. X25519 alone does not say whether a token is on the curve or on its twist, which would be a bit of every id
that the parties, who have the linkage key, could compute; so the check is part of its price, by the criterion of Euler. Libraries
that are not installed are named.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator

from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_P = 2**255 - 19


def microseconds(work: Callable[[], object], n: int = 3000) -> float:
    """CPU time of a call, best of three."""
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        for _ in range(n):
            work()
        best = min(best, time.process_time() - started)
    return best / n * 1e6


def short_weierstrass(curve: ec.EllipticCurve) -> Callable[[], object]:
    """As the product does it: x and a parity, decoded and checked by OpenSSL, times the scalar."""
    point = ec.generate_private_key(curve).public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    key = ec.generate_private_key(curve)
    return lambda: key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(curve, point))


def on_curve(token: bytes) -> bool:
    """Whether the token is the coordinate of a point of Curve25519, not of its twist (RFC 7748; Euler's criterion)."""
    u = int.from_bytes(token, "little") & (2**255 - 1)
    return pow((u * u + 486662 * u + 1) * u, (_P - 1) // 2, _P) <= 1


def montgomery(*, checked: bool) -> Callable[[], object]:
    """X25519 by `cryptography`, with or without the check."""
    token = x25519.X25519PrivateKey.generate().public_key().public_bytes_raw()
    key = x25519.X25519PrivateKey.generate()
    plain: Callable[[], object] = lambda: key.exchange(x25519.X25519PublicKey.from_public_bytes(token))  # noqa: E731
    return (lambda: on_curve(token) and plain()) if checked else plain


def sodium(module: str, multiply: str, point: str, size: int) -> Callable[[], object]:
    """A group of libsodium by one of its bindings."""
    bound = importlib.import_module(module)
    token = getattr(bound, point)(os.urandom(size))
    scalar = (int.from_bytes(os.urandom(31), "little") | 1).to_bytes(32, "little")
    times = getattr(bound, multiply)
    return lambda: times(scalar, token)


def ways() -> Iterator[tuple[str, Callable[[], Callable[[], object]]]]:
    """What is compared."""
    yield "P-256, cryptography: the product", lambda: short_weierstrass(ec.SECP256R1())
    yield "secp256k1, cryptography", lambda: short_weierstrass(ec.SECP256K1())
    yield "Curve25519, cryptography, twist not told apart", lambda: montgomery(checked=False)
    yield "Curve25519, cryptography, on the curve", lambda: montgomery(checked=True)
    yield (
        "edwards25519, PyNaCl",
        lambda: sodium("nacl.bindings", "crypto_scalarmult_ed25519_noclamp", "crypto_core_ed25519_from_uniform", 32),
    )
    yield (
        "ristretto255, rbcl",
        lambda: sodium("rbcl", "crypto_scalarmult_ristretto255", "crypto_core_ristretto255_from_hash", 64),
    )


def main() -> None:
    """Print the table."""
    reference = 0.0
    for name, make in ways():
        try:
            spent = microseconds(make())
        except (ImportError, AttributeError) as missing:
            print(f"{name:48} not run: {missing}")
            continue
        reference = reference or spent
        print(f"{name:48} {spent:6.1f} us a point, {reference / spent:4.2f} times as fast")


if __name__ == "__main__":
    main()

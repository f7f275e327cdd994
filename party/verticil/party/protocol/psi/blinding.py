"""Linkage ``dh-psi``: ids as points of P-256, blinded by one secret scalar after the other.

    seed    = HMAC-SHA-256(HKDF(linkage key, "verticil/psi/v1" ‖ SHA-256 of the proposal), id)
    point   = the first of SHA-256("verticil/psi/point/v1" ‖ c ‖ seed), c = 0, 1, .., that is the x of a point
    token   = x of k · point                                          (a party's own list)
    token'  = x of k' · (a point whose x is the token)                (each further party)

x alone is enough: x(k·P) = x(k·-P), so the order of the parties does not matter and the x that all of them blinded is the same
for the same id (Meadows 1986; Huberman, Franklin, Hogg 1999). The group has prime order, so every x on the curve is a fair token,
and a token that is not one is refused by OpenSSL's decoding. Security: decisional Diffie-Hellman in P-256 and SHA-256 as a random
oracle, for parties that follow the protocol. The seed is keyed, so that a miner, which does not have the linkage key, cannot push
guesses of its own through the parties.

Trying until it fits takes a time that depends on the id. It is spent inside the site, over a whole list, before anything is sent;
nobody outside sees the time of one id. RFC 9380 has the constant-time map, which `cryptography` does not offer.

Exponentiations are spread over processes, because OpenSSL is called with the interpreter's lock held (measured: two threads are
no faster than one). Short lists stay in this process.
"""

from __future__ import annotations

import hashlib
import hmac
import multiprocessing
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Final, Self

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

TOKEN_BYTES: Final = 32
_CURVE: Final = ec.SECP256R1()
_POINT: Final = b"verticil/psi/point/v1"
_PIECE: Final = 1024
"""Points in one task of a worker: a third of a second."""
_WORTH_PROCESSES: Final = 8192
"""Points from which on starting processes pays."""
_MOST_PROCESSES: Final = 16

Tokens = NDArray[np.uint8]


class TokenInvalidError(Exception):
    """A token is not the x of a point. `position` is its place in the list."""

    def __init__(self, position: int) -> None:
        super().__init__(f"token {position} is not a point of P-256")
        self.position = position


class BlindingKey:
    """A secret scalar, drawn for one study and thrown away when its people are found.

    Args:
        secret: 32 bytes, big-endian, 1 to the group's order - 1.

    Raises:
        ValueError: it is not such a scalar.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != 32:
            raise ValueError(f"a blinding key of {len(secret)} bytes, expected 32")
        self._key = ec.derive_private_key(int.from_bytes(secret, "big"), _CURVE)
        self.secret = secret

    @classmethod
    def draw(cls) -> BlindingKey:
        """A new one, from the operating system."""
        return cls(ec.generate_private_key(_CURVE).private_numbers().private_value.to_bytes(32, "big"))

    def times(self, point: ec.EllipticCurvePublicKey) -> bytes:
        """x of the scalar times the point."""
        return self._key.exchange(ec.ECDH(), point)


def seeds(linkage_key: bytes, proposal_digest: bytes, ids: Iterable[str]) -> tuple[Tokens, NDArray[np.int64]]:
    """Keyed seeds of ids, ascending, so that a table in another order gives the same list.

    Args:
        linkage_key: 32 bytes, shared by the parties.
        proposal_digest: SHA-256 of the proposal.
        ids: normalised, distinct.

    Returns:
        seeds: (n, 32), uint8, ascending; rows: (n,), int64: the record of each. Both read-only.

    Raises:
        ValueError: key or digest are not 32 bytes, or two ids are equal.
    """
    if len(linkage_key) != 32 or len(proposal_digest) != 32:
        raise ValueError(
            f"linkage key of {len(linkage_key)} and digest of {len(proposal_digest)} bytes, expected 32 each"
        )
    info = b"verticil/psi/v1" + proposal_digest
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(linkage_key)
    macs = [hmac.digest(key, record_id.encode("utf-8"), "sha256") for record_id in ids]
    order = sorted(range(len(macs)), key=macs.__getitem__)
    if any(macs[order[i]] == macs[order[i + 1]] for i in range(len(order) - 1)):
        raise ValueError("two ids have the same seed: ids must be distinct")
    values = np.frombuffer(b"".join([macs[row] for row in order]), dtype=np.uint8).reshape(-1, TOKEN_BYTES)
    rows = np.array(order, dtype=np.int64)
    rows.setflags(write=False)
    return values, rows


def _point(seed: bytes) -> ec.EllipticCurvePublicKey:
    counter = 0
    while True:
        x = hashlib.sha256(_POINT + counter.to_bytes(4, "big") + seed).digest()
        try:
            return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, b"\x02" + x)
        except ValueError:  # every second x is none; so is one above the field's prime
            counter += 1


def blind_seeds(key: BlindingKey, data: bytes) -> bytes:
    """Tokens of a party's own seeds.

    Args:
        key: of this party.
        data: seeds, 32 bytes each.
    """
    return b"".join([key.times(_point(data[i : i + 32])) for i in range(0, len(data), TOKEN_BYTES)])


def blind_tokens(key: BlindingKey, data: bytes) -> bytes:
    """The tokens of another party, blinded once more, in the same order.

    Args:
        key: of this party.
        data: tokens, 32 bytes each.

    Raises:
        TokenInvalidError: one of them is not the x of a point.
    """
    made: list[bytes] = []
    for start in range(0, len(data), TOKEN_BYTES):
        try:
            point = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, b"\x02" + data[start : start + TOKEN_BYTES])
        except ValueError:
            raise TokenInvalidError(start // TOKEN_BYTES) from None
        made.append(key.times(point))
    return b"".join(made)


def _work(secret: bytes, own: bool, data: bytes) -> bytes | int:
    """One task. An error with arguments of its own does not survive the way between processes: its position does."""
    try:
        return (blind_seeds if own else blind_tokens)(BlindingKey(secret), data)
    except TokenInvalidError as error:
        return error.position


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for good: the pool's pipe is open at the other workers, too."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Pool:
    """Blinds lists, with several processes when that is worth it. Use as a context manager.

    Args:
        n_points: how many there are to blind.
        processes: at most so many; the cores that this process may use when absent.
    """

    def __init__(self, n_points: int, *, processes: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0)) if processes is None else processes
        self._processes = min(cores, _MOST_PROCESSES) if n_points >= _WORTH_PROCESSES else 1
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._processes > 1:
            # Not fork: this process has threads and an event loop.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._processes, mp_context=context, initializer=_end_with_parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    @property
    def slice_points(self) -> int:
        """How many points are best given to `blind` at a time: a few seconds of work."""
        return 4 * _PIECE * self._processes

    def blind(self, key: BlindingKey, data: bytes, *, own: bool) -> bytes:
        """Blind a slice of a list; blocks.

        Args:
            key: of this party.
            data: seeds of this party's own people, or another party's tokens.
            own: which of the two.

        Raises:
            TokenInvalidError: a token is not the x of a point.
        """
        size = _PIECE * TOKEN_BYTES
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        many = len(pieces)
        arguments: tuple[Sequence[bytes], Sequence[bool], Sequence[bytes]] = ([key.secret] * many, [own] * many, pieces)
        made = list(map(_work, *arguments) if self._pool is None else self._pool.map(_work, *arguments))
        for number, piece in enumerate(made):
            if isinstance(piece, int):
                raise TokenInvalidError(number * _PIECE + piece)
        return b"".join([piece for piece in made if isinstance(piece, bytes)])

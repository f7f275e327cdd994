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

`BlindingState` is the folder in which a party blinds the lists of one study, 0700, files 0600: its key and its half-made lists,
so that a kill costs seconds and changes nothing. The key is drawn once for a study, from the operating system; it is deleted when
this party's people are found, and from then on no id can be blinded for the study. A list is made in slices that are on the disk
before the next one is begun; the same key and the same input give the same bytes, so a party that was killed goes on where it
stood. The own list stays until the study ends: it says which of the party's records a token is.

The lists are sent and received in `verticil.party.protocol.central.alignment` and `verticil.party.protocol.with_peers.ring`.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from verticil.party.dataset.macs import Macs
from verticil.shared.core.errors import PeerFault
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.disk import replace_file
from verticil.shared.storage.durable import remove, remove_tree, rename, sync_directory, sync_file

TOKEN_BYTES: Final = 32
_CURVE: Final = ec.SECP256R1()
_POINT: Final = b"verticil/psi/point/v1"
_PIECE: Final = 1024
"""Points in one task of a worker: a third of a second."""
_WORTH_PROCESSES: Final = 8192
"""Points from which on starting processes pays."""
_MOST_PROCESSES: Final = 16

Tokens = NDArray[np.uint8]


FOLDER: Final = "linkage"
BLINDING_KEY: Final = "blinding.key"


class TokenInvalidError(Exception):
    """A token is not the x of a point. `position` is its place in the list."""

    def __init__(self, position: int) -> None:
        super().__init__(f"token {position} is not a point of P-256")
        self.position = position


def tokens_of(data: bytes) -> NDArray[np.bytes_]:
    """Return the tokens of a list: (n,), fixed-width byte strings, which compare like unsigned bytes.

    Trailing zeros are padding, which two of the same width share.
    """
    return np.frombuffer(data, dtype=f"S{TOKEN_BYTES}")


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
        """Draw a new key from the operating system."""
        return cls(ec.generate_private_key(_CURVE).private_numbers().private_value.to_bytes(32, "big"))

    def times(self, point: ec.EllipticCurvePublicKey) -> bytes:
        """x of the scalar times the point."""
        return self._key.exchange(ec.ECDH(), point)


def seed_macs(linkage_key: bytes, proposal_digest: bytes) -> Macs:
    """Return the object that computes the seed of each id.

    Args:
        linkage_key: 32 bytes, shared by the parties.
        proposal_digest: SHA-256 of the proposal.

    Raises:
        ValueError: key or digest are not 32 bytes.
    """
    if len(linkage_key) != 32 or len(proposal_digest) != 32:
        raise ValueError(
            f"linkage key of {len(linkage_key)} and digest of {len(proposal_digest)} bytes, expected 32 each"
        )
    info = b"verticil/psi/v1" + proposal_digest
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(linkage_key)
    return Macs(key, size=TOKEN_BYTES)


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
    """Blind another party's tokens once more, in the same order.

    Args:
        key: of this party.
        data: tokens, 32 bytes each.

    Raises:
        TokenInvalidError: one of them is not the x of a point.
    """
    points: list[bytes] = []
    for start in range(0, len(data), TOKEN_BYTES):
        try:
            point = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, b"\x02" + data[start : start + TOKEN_BYTES])
        except ValueError:
            raise TokenInvalidError(start // TOKEN_BYTES) from None
        points.append(key.times(point))
    return b"".join(points)


def _work(secret: bytes, own: bool, data: bytes) -> bytes | int:
    """Blind one slice of a list. An error with arguments of its own cannot cross processes; its position can."""
    try:
        return (blind_seeds if own else blind_tokens)(BlindingKey(secret), data)
    except TokenInvalidError as error:
        return error.position


def _end_with_parent() -> None:
    """End the worker when its parent dies; it would wait for good, because the other workers keep the pool's pipe open.

    The closed terminal of a node that goes on must not end it.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
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
        slices = list(map(_work, *arguments) if self._pool is None else self._pool.map(_work, *arguments))
        for number, piece in enumerate(slices):
            if isinstance(piece, int):
                raise TokenInvalidError(number * _PIECE + piece)
        return b"".join([piece for piece in slices if isinstance(piece, bytes)])


class BlindingState:
    """The folder of one study. Methods block, but for `blinded`.

    Args:
        state_directory: of the party.
        study: SHA-256 of the proposal.
    """

    def __init__(self, state_directory: Path, study: bytes) -> None:
        self._folder = state_directory / FOLDER / study.hex()

    def path(self, name: str) -> Path:
        """Return the path of a file of the study; create its folder when absent.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        with disk_faults(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / name

    def exists(self) -> bool:
        """Return whether any file of the study may exist."""
        return self._folder.exists()

    @property
    def has_key(self) -> bool:
        """Whether the study's key is there: drawn, and not yet forgotten."""
        return (self._folder / BLINDING_KEY).exists()

    def key(self) -> BlindingKey:
        """Return the study's key; the first call draws it and writes it to the disk.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
            PeerFault: ALIGNMENT_MISMATCH, the file is not a key.
        """
        path = self.path(BLINDING_KEY)
        if path.exists():
            try:
                return BlindingKey(path.read_bytes())
            except ValueError:
                raise PeerFault(
                    "ALIGNMENT_MISMATCH",
                    "alignment: the blinding key of this study is damaged",
                    hint="nothing was randomized; the study must be submitted again under a new id",
                ) from None
        key = BlindingKey.draw()
        self.note(BLINDING_KEY, key.secret)
        return key

    def forget_key(self) -> None:
        """Delete the key: this party's people are found. Repeatable."""
        if (path := self._folder / BLINDING_KEY).exists():
            remove(path)
            sync_directory(self._folder)

    def drop(self) -> None:
        """Delete everything: the study has ended. Repeatable."""
        remove_tree(self._folder, ignore_errors=True)

    def take(self, name: str) -> bytes | None:
        """Return a file's bytes, or None when the file is absent."""
        path = self._folder / name
        return path.read_bytes() if path.exists() else None

    def note(self, name: str, data: bytes) -> None:
        """Write a small file; whole and on the disk when it returns.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        path = self.path(name)
        with disk_faults(path):
            replace_file(path, data, part=path.with_name(f".{name}.part"))

    def accept(self, part_name: str, name: str) -> None:
        """Give a file that was checked the name under which it is believed."""
        rename(self._folder / part_name, self._folder / name)
        sync_directory(self._folder)

    def remove(self, name: str) -> None:
        """Delete a file that is not needed any more. Repeatable."""
        remove(self._folder / name)

    async def blind_into(
        self,
        name: str,
        data: bytes,
        *,
        own: bool,
        heavily: Callable[[Callable[[], bytes]], Awaitable[bytes]],
        progress: Callable[[int], Awaitable[None]],
    ) -> None:
        """Blind a list into the file `name`, going on with what is there of it.

        Args:
            name: of the file; when it is there, nothing is done.
            data: seeds of this party's own people, or another party's tokens.
            own: which of the two.
            heavily: runs CPU work in a thread; studies take turns there, slice by slice.
            progress: told the percentage.

        Raises:
            TokenInvalidError: a token is not the x of a point.
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        target = self.path(name)
        if target.exists():
            return
        part, key, n_points = target.with_name(f".{name}.part"), self.key(), len(data) // TOKEN_BYTES
        with Pool(n_points) as pool:
            # The last slice may be on the disk in name only, after a power cut: it is made again.
            n_stored = part.stat().st_size // TOKEN_BYTES if part.exists() else 0
            n_done = min(max(0, n_stored - pool.slice_points), n_points)
            while n_done < n_points:
                end = min(n_done + pool.slice_points, n_points)
                piece = data[n_done * TOKEN_BYTES : end * TOKEN_BYTES]

                tokens = await heavily(functools.partial(pool.blind, key, piece, own=own))
                await asyncio.to_thread(_append, part, n_done * TOKEN_BYTES, tokens)
                n_done = end
                await progress(100 * n_done // n_points)
        rename(part, target)
        sync_directory(target.parent)


def _append(path: Path, offset: int, data: bytes) -> None:
    with disk_faults(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        with open(descriptor, "wb") as file:
            file.truncate(offset)
            file.seek(offset)
            file.write(data)
            file.flush()
            sync_file(descriptor, path)

"""HMAC-SHA-256 of very many record ids under one key: tags, pseudonyms and seeds.

    mac = first `size` bytes of HMAC-SHA-256(key, prefix ‖ id as UTF-8)

Ids come in batches (`PackedIds`), so that no list of them is kept. `Macs` counts the ids that this process has asked for: as long
as they are few it asks `cryptography`, one by one, because loading the compiled kernel takes half a second; from then on
`mac_kernels`, where numba is installed. The bytes are the same.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import ClassVar, Final

import numpy as np
from cryptography.hazmat.primitives import hashes, hmac
from numpy.typing import NDArray

_WORTH_COMPILING: Final = 200_000
"""MACs from which on loading the kernel pays."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedIds:
    """Some ids as bytes.

    Attributes:
        data: uint8, their UTF-8 one after the other.
        ends: (n,), int64, where each ends in `data`; an empty one names nobody.
    """

    data: NDArray[np.uint8] = field(repr=False)
    ends: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, texts: Sequence[str]) -> PackedIds:
        """Texts; one with bytes that are no text becomes empty."""
        whole_text = "".join(texts)
        if whole_text.isascii():
            text_bytes = whole_text.encode("ascii")
            lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        else:
            pieces = [_utf8(text) for text in texts]
            text_bytes = b"".join(pieces)
            lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        return cls(data=np.frombuffer(text_bytes, dtype=np.uint8), ends=np.cumsum(lengths))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def empty(self) -> NDArray[np.bool_]:
        """(n,), which are empty."""
        return np.asarray(np.diff(self.ends, prepend=0) == 0)

    def texts(self) -> list[bytes]:
        """Return a list with each text by itself."""
        data, ends = self.data.tobytes(), self.ends.tolist()
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return b""


class Macs:
    """The MACs of batches of ids under one key.

    Args:
        key: 32 bytes.
        prefix: of every message.
        size: bytes of a MAC, at most 32.

    Attributes:
        n_asked: MACs that this process has asked for, of all keys.

    Raises:
        ValueError: the key is not 32 bytes.
    """

    n_asked: ClassVar[int] = 0

    def __init__(self, key: bytes, *, prefix: bytes = b"", size: int) -> None:
        if len(key) != 32:
            raise ValueError(f"a key of {len(key)} bytes, expected 32")
        self._key, self._prefix, self.size = key, prefix, size

    def of(self, ids: PackedIds) -> NDArray[np.uint8]:
        """(n, size), uint8: a MAC of each id."""
        Macs.n_asked += len(ids)
        if _is_kernel_worth_it(Macs.n_asked) and (kernels := load_kernel()) is not None:
            macs = np.empty((len(ids), self.size), dtype=np.uint8)
            key, prefix = (np.frombuffer(part, dtype=np.uint8) for part in (self._key, self._prefix))
            kernels.hmac_sha256(key, prefix, ids.data, ids.ends, macs)
            return macs
        mac_bytes = b"".join(_each(self._key, self._prefix, ids, self.size))
        return np.frombuffer(mac_bytes, dtype=np.uint8).reshape(-1, self.size)


def macs_of(key: bytes, ids: Iterable[str], *, size: int) -> NDArray[np.uint8]:
    """`Macs.of` of normalised ids that are all there; (n, size), uint8, read-only."""
    macs = Macs(key, size=size).of(PackedIds.of(list(ids)))
    macs.setflags(write=False)
    return macs


def _is_kernel_worth_it(n_asked: int) -> bool:
    """Return whether the kernel is to be used: it is loaded already, or so many MACs pay its loading."""
    return n_asked >= _WORTH_COMPILING or load_kernel.cache_info().currsize > 0


@functools.cache
def load_kernel() -> ModuleType | None:
    """Return the kernel; None where it cannot be imported, or where this machine or the cache makes it give other bytes.

    Wrong bytes would link nobody, or the wrong people, and nothing later would notice: so it is asked for what is known first.
    """
    try:
        kernels = importlib.import_module("verticil.party.dataset.mac_kernels")
    except (ImportError, RuntimeError):  # RuntimeError: numba finds no folder where it may store its cache
        return None
    return kernels if _is_right(kernels) else None


def _is_right(kernels: ModuleType) -> bool:
    """Return whether a kernel gives HMAC-SHA-256 of ids of one to four blocks, in every lane."""
    key, prefix = bytes(range(32)), b"known"
    ids = PackedIds.of([chr(97 + number) * (13 * number) for number in range(17)])
    macs = np.empty((len(ids), 32), dtype=np.uint8)
    kernels.hmac_sha256(np.frombuffer(key, np.uint8), np.frombuffer(prefix, np.uint8), ids.data, ids.ends, macs)
    return macs.tobytes() == b"".join(_each(key, prefix, ids, 32))


def _each(key: bytes, prefix: bytes, ids: PackedIds, size: int) -> Iterator[bytes]:
    """Yield the MACs of ids, one by one."""
    keyed_mac = hmac.HMAC(key, hashes.SHA256())
    keyed_mac.update(prefix)
    for text in ids.texts():
        own = keyed_mac.copy()
        own.update(text)
        yield own.finalize()[:size]

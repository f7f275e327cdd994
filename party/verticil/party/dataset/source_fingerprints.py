"""Fingerprints of a table's columns as they stand there: of ids and texts, whatever a study makes of them.

Whether data changed must not rest on a codebook. Fingerprints of codes answered, for bins and categories that somebody chose,
whether anybody moved from one to another; many codebooks together told a value. The fingerprint of a column tells that some text
of it, or who is in the table, is another one, and nothing finer.

    cell         = AES-256(k, exact key of the person ‖ key of the text), two numbers of 64 bits
    fingerprint  = SHA-256(number of columns ‖ for each: length of its name ‖ name ‖ rows ‖ sum of its cells modulo 2^64)

The sum does not depend on the order of rows: a multiset hash, MSet-Add-Hash with secret keys (Clarke, Devadas, van Dijk, Gassend
& Suh 2003). Keys of persons and texts are those of `person_keys`; all keys are derived from the site secret, and fingerprints
never leave the site. Rows without an id are in no fingerprint, as they are in no release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from verticil.party.dataset.local_person_keys import PersonMacs
from verticil.party.dataset.macs import PackedIds
from verticil.party.dataset.sources.source_table import TextColumn
from verticil.shared.storage.unlinked_files import Rows

_KEY: Final = np.dtype("<u8")  # eight bytes of a cell


def _as_words(keys: Rows) -> NDArray[np.uint64]:
    """Return keys of eight bytes, (n, 8), as what a cell has of each: (n,)."""
    return np.ascontiguousarray(keys).view(_KEY).reshape(-1)


def _derive_key(site_secret: bytes, label: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, None, label).derive(site_secret)


class SourceFingerprints:
    """Takes the columns of a table in batches.

    Args:
        site_secret: 32 bytes, never sent.
    """

    def __init__(self, site_secret: bytes) -> None:
        self._texts = PersonMacs(_derive_key(site_secret, b"verticil/cell-text/v1"))
        self._key = _derive_key(site_secret, b"verticil/source-fingerprint/v1")
        self._sums: dict[str, NDArray[np.uint64]] = {}
        self._n_rows = 0

    def take(self, persons: Rows, columns: Mapping[str, TextColumn], has_id: NDArray[np.bool_]) -> None:
        """Take some rows.

        Args:
            persons: (n, 8), uint8: the exact key of each row's person.
            columns: by local column, n rows each.
            has_id: (n,), rows that name somebody.
        """
        encryptor = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()  # noqa: S305 (a PRF of single blocks)
        everybody = bool(has_id.all())
        cells = np.empty((len(persons), 2), dtype=_KEY)
        cells[:, 0] = _as_words(persons)
        for name, column in columns.items():
            cells[:, 1] = _as_words(self._texts.macs(_pack_texts(column.distinct)))[column.index]
            some = cells if everybody else cells[has_id]
            words = np.frombuffer(encryptor.update(some.view(np.uint8).data), dtype=_KEY).reshape(-1, 2)
            total = words.sum(axis=0, dtype=np.uint64)
            self._sums[name] = total if name not in self._sums else self._sums[name] + total
        self._n_rows += int(np.count_nonzero(has_id))

    def of(self, names: Sequence[str]) -> bytes:
        """Return the fingerprint of some columns together, 32 bytes."""
        digest = hashlib.sha256(len(names).to_bytes(4, "big"))
        for name in names:
            text = name.encode("utf-8", "surrogatepass")
            digest.update(len(text).to_bytes(4, "big") + text + self._n_rows.to_bytes(8, "big"))
            digest.update(self._sums.get(name, np.zeros(2, np.uint64)).astype(_KEY).tobytes())
        return digest.digest()


def _pack_texts(texts: Sequence[str]) -> PackedIds:
    """Return texts as bytes; `PackedIds.of` would take one that is no text for an empty one."""
    whole_text = "".join(texts)
    if whole_text.isascii():
        return PackedIds.of(texts)
    pieces = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    return PackedIds(data=np.frombuffer(b"".join(pieces), dtype=np.uint8), ends=ends)

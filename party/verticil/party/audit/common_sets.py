"""Who was in earlier studies: so that two studies about nearly the same people do not tell the difference.

The attack. What is released for a common set A and for a set B of nearly the same people differs by what the few people say who
are in one of them only: two releases, each harmless, subtract to one about a handful. Sticky noise makes it sharper, because
everybody else's values are the same in both. Whoever chooses the other party's table chooses B.

What is kept. For each study whose common people this party accepted: 8 bytes of a keyed hash for each person, ascending, in
``state/common/DIGEST`` (mode 0600). The key comes from the site secret, so a file says nothing to whoever has no such secret,
and it holds no id; the site itself has the ids anyway. The newest 64 sets are kept (`MAX_SETS`; 8 MB for a million people
each), and the audit log says when one is dropped: a set that was dropped is not compared with any more.

What is compared. The people that are in exactly one of two sets, over all studies of this site and all of its data sets,
whatever was released then. The very same people are no difference. People are recognised by their normalised id: after a change
of the site secret, or of a study's rule of normalisation, they are other people here, and no difference is small.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from verticil.party.storage.database import Database
from verticil.shared.arrays import give_back, taken
from verticil.shared.disk import replace_file
from verticil.shared.nameless import kept
from verticil.shared.sorting import Sorter
from verticil.shared.storage.database import disk_faults

MAX_SETS: Final = 64
MEMORY_PEOPLE: Final = 1 << 20
"""People from which on their keys are sorted, and kept, outside memory: 8 MB."""

_BLOCK_BYTES: Final = 16
_PEOPLE_AT_ONCE: Final = 1 << 16
_log = logging.getLogger(__name__)

Keys = NDArray[np.uint64]
_KEY: Final = np.dtype("<u8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """An earlier study about nearly the same people.

    Attributes:
        digest: of its proposal.
        study_id: for people.
    """

    digest: bytes
    study_id: str


def difference(ours: Keys, theirs: Keys) -> int:
    """How many people are in exactly one of the two sets; both ascending and without repetition.

    >>> difference(np.array([1, 2, 5], np.uint64), np.array([2, 5, 9, 11], np.uint64))
    3
    """
    both = one = other = 0
    while one < len(ours) and other < len(theirs):
        some, others = ours[one : one + _PEOPLE_AT_ONCE], theirs[other : other + _PEOPLE_AT_ONCE]
        bound = min(some[-1], others[-1])
        some, others = (keys[: np.searchsorted(keys, bound, side="right")] for keys in (some, others))
        both += np.intersect1d(some, others, assume_unique=True).size
        one, other = one + len(some), other + len(others)
        give_back(some)
        give_back(others)
    return len(ours) + len(theirs) - 2 * both


class CommonSets:
    """The common sets of one site.

    Args:
        database: the site's.
        directory: the state directory.
        site_secret: never leaves.
    """

    def __init__(self, database: Database, directory: Path, *, site_secret: bytes) -> None:
        self._database = database
        self._directory = directory / "common"
        self._key = HKDF(hashes.SHA256(), 32, None, b"verticil/common-set/v1").derive(site_secret)

    def keys(self, tags: NDArray[np.uint8], rows: NDArray[np.int64] | None = None) -> Keys:
        """The keyed hashes of people, ascending: 8 bytes of AES over the tag, a permutation of one block each.

        Args:
            tags: (n, 14), uint8; see `verticil.party.dataset.perturb.record_tags`.
            rows: (m,) the people whose keys they are; None: all.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        n = len(tags) if rows is None else len(rows)
        sorter = Sorter(self._directory.parent, width=8, key_bytes=8, memory_rows=min(n, MEMORY_PEOPLE))
        encryptor = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()  # noqa: S305 (a PRF of single blocks)
        for start in range(0, n, _PEOPLE_AT_ONCE):
            stop = min(start + _PEOPLE_AT_ONCE, n)
            blocks = np.zeros((stop - start, _BLOCK_BYTES), dtype=np.uint8)
            blocks[:, : tags.shape[1]] = taken(tags, np.arange(start, stop) if rows is None else rows[start:stop])
            hashed = np.frombuffer(encryptor.update(blocks.data), dtype=_KEY).reshape(-1, 2)[:, 0]
            with disk_faults(self._directory):
                sorter.add(hashed.astype(">u8").view(np.uint8).reshape(-1, 8))
        ascending = (block.view(">u8").reshape(-1).astype(_KEY) for block in sorter.blocks())
        with disk_faults(self._directory):  # two are equal in one of 37 million sets of a million
            return kept(self._directory.parent if n > MEMORY_PEOPLE else None, n, ascending, _KEY)

    def similar(self, digest: bytes, keys: Keys, *, minimum: int) -> tuple[Similar, ...]:
        """Earlier studies whose people are not the same, but nearly: fewer than `minimum` are in one of the two only."""
        found: list[Similar] = []
        rows = self._database.rows(
            "SELECT c.digest, c.sha256, c.size, s.study_id FROM common_set c JOIN study s USING (digest)"
            " WHERE c.digest <> ? ORDER BY c.rowid",
            (digest,),
        )
        own = _sha256(keys)
        for other, sha256, size, study_id in rows:
            if sha256 == own or abs(cast("int", size) - keys.size) >= minimum:
                continue
            theirs = self._read(cast("bytes", other), cast("bytes", sha256))
            if theirs is not None and difference(keys, theirs) < minimum:
                found.append(Similar(digest=cast("bytes", other), study_id=cast("str", study_id)))
        return tuple(found)

    def keeps(self, digest: bytes, keys: Keys, similar: Sequence[Similar]) -> bool:
        """Whether `remember` has kept this very set of the study, with these similar ones."""
        rows = self._database.rows("SELECT sha256, near FROM common_set WHERE digest = ?", (digest,))
        return rows == [(_sha256(keys), _near(similar))] and self._path(digest).is_file()

    def remember(self, digest: bytes, keys: Keys, similar: Sequence[Similar]) -> tuple[bytes, ...]:
        """Keep the set of a study; on the disk when it returns. Repeating it changes nothing.

        Returns:
            Digests of the studies whose sets were dropped for it.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        target = self._path(digest)
        with disk_faults(target):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(target, _pieces(keys), part=target.with_suffix(".part"))
        with self._database.transaction():
            self._database.write(
                "INSERT INTO common_set VALUES (?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE"
                " SET sha256 = excluded.sha256, size = excluded.size, near = excluded.near",
                (digest, _sha256(keys), keys.size, _near(similar)),
            )
            query = "SELECT digest FROM common_set ORDER BY rowid DESC LIMIT -1 OFFSET ?"
            dropped = tuple(self._database.read(bytes, query, (MAX_SETS,)))
            for other in dropped:
                self._database.write("DELETE FROM common_set WHERE digest = ?", (other,))
        for other in dropped:
            self._path(other).unlink(missing_ok=True)
        return dropped

    def warnings(self) -> dict[bytes, tuple[str, ...]]:
        """For each study with such a warning: the ids of the earlier studies with nearly the same people."""
        names = self._database.by(bytes, str, "SELECT digest, study_id FROM study")
        near = self._database.by(bytes, tuple[str, ...], "SELECT digest, near FROM common_set WHERE near <> '[]'")
        return {
            digest: tuple(names.get(bytes.fromhex(other), other[:16]) for other in others)
            for digest, others in near.items()
        }

    def _path(self, digest: bytes) -> Path:
        return self._directory / digest.hex()

    def _read(self, digest: bytes, sha256: bytes) -> Keys | None:
        try:
            with self._path(digest).open("rb") as file:
                if hashlib.file_digest(file, "sha256").digest() == sha256:
                    return np.memmap(file, dtype=_KEY, mode="r") if file.tell() else np.empty(0, dtype=_KEY)
        except OSError:
            pass
        _log.warning("%s: lost or changed; nothing can be compared with it", os.fspath(self._path(digest)))
        return None


def _near(similar: Sequence[Similar]) -> str:
    return json.dumps([item.digest.hex() for item in similar])


def _pieces(keys: Keys) -> Iterator[memoryview]:
    """Their bytes, as they are kept."""
    for start in range(0, len(keys), _PEOPLE_AT_ONCE):
        some = keys[start : start + _PEOPLE_AT_ONCE]
        yield some.astype(_KEY, copy=False).data.cast("B")
        give_back(some)


def _sha256(keys: Keys) -> bytes:
    digest = hashlib.sha256()
    for piece in _pieces(keys):
        digest.update(piece)
    return digest.digest()

"""Who was in earlier studies: so that studies about nearly the same people do not tell the difference.

The attack. What is released for a common set A and for a set B of nearly the same people differs by what the few people say who
are in one of them only: two releases, each harmless, subtract to one about a handful. Sticky noise makes it sharper, because
everybody else's values are the same in both. Whoever chooses the other party's table chooses B. With exact counts three sets do
the same of which no two are near: U, U without S, and S with one person more, leave that person.

What is remembered. Of each distinct common set that this party accepted 8 bytes for each person, ascending, in ``state/common``
(mode 0600): the loose key of `verticil.party.dataset.local_person_keys`, so no rule of a study moves it. It comes from the site
secret: a file says nothing to whoever has no such secret, and it holds no id; the site itself has the ids anyway. The database
has the sum of the exact keys modulo 2^64, which tells whether two sets, or a sum of sets and another one, are the very same
people. A set has one place, however many studies are about it. No set is ever dropped: where all places are taken
(``policy.max_common_sets``), a study about other people is refused, or goes on without being remembered, as the policy says.

What is compared, over all studies of this site and all of its data sets, whatever was released then: the people that are in
exactly one of two sets, and the people that are left when three are added and subtracted (`set_sums`). The very same people are
no difference. What is not stopped: sums of more than three releases.

People are recognised by their ids as the table has them. After a change of the site secret they are other people here. Where the
file of a set is lost, a study with nearly as many people is taken for similar.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.audit.set_sums import Keys, count_left
from verticil.party.storage.database import Database
from verticil.shared.core.arrays import bytes_in_parts, key_numbers, sha256_of, taken
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.disk import replace_file
from verticil.shared.storage.sorting import Sorter
from verticil.shared.storage.unlinked_files import Rows, join_parts

MEMORY_PEOPLE: Final = 1 << 20
"""People from which on their keys are sorted, and kept, outside memory: 8 MB."""

_KEY_BYTES: Final = 8
_PEOPLE_AT_ONCE: Final = 1 << 16
_log = logging.getLogger(__name__)

_KEY: Final = np.dtype("<u8")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommonPeople:
    """The common people of a study, as a site recognises them. Secret.

    Attributes:
        keys: (n,), uint64, ascending: their loose keys, a key as often as people have it.
        exact_sum: of their exact keys, modulo 2^64.
    """

    keys: Keys = field(repr=False)
    exact_sum: int = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """Earlier studies whose people, with those of a new one, leave a handful.

    Attributes:
        digests: of their proposals; one, or two where three sets are added and subtracted.
        study_ids: for people.
    """

    digests: tuple[bytes, ...]
    study_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Set:
    """A set as the database has it."""

    digest: bytes
    sha256: bytes
    size: int
    exact_sum: bytes
    study_id: str

    @property
    def place(self) -> bytes:
        """The place of the file that names its people."""
        return self.sha256 + self.exact_sum


class CommonSets:
    """The common sets of one site.

    Args:
        database: the site's.
        directory: the state directory.
    """

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._directory = directory / "common"

    def people(self, keys: Rows, rows: NDArray[np.int64] | None = None) -> CommonPeople:
        """Return how the site recognises some people in every study.

        Args:
            keys: (n, 16), uint8; see `verticil.party.dataset.local_person_keys.PersonMacs.of`.
            rows: (m,) the people; None: all.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        n = len(keys) if rows is None else len(rows)
        exact = np.uint64(0)

        def loose() -> Iterator[Rows]:
            nonlocal exact
            for pairs in _parts(keys, rows, n):
                exact = exact + key_numbers(pairs[:, :_KEY_BYTES]).sum(dtype=np.uint64)
                yield pairs[:, _KEY_BYTES:]

        with np.errstate(over="ignore"):
            ascending = self._ascending(loose(), n)
        return CommonPeople(keys=ascending, exact_sum=int(exact))

    def _ascending(self, parts: Iterator[Rows], n: int) -> Keys:
        folder = self._directory.parent
        sorter = Sorter(folder, width=_KEY_BYTES, key_bytes=_KEY_BYTES, memory_rows=min(n, MEMORY_PEOPLE))
        for part in parts:
            with disk_faults(self._directory):
                sorter.add(part)
        with disk_faults(self._directory):  # two are equal by chance in one of 37 million sets of a million
            return join_parts(folder if n > MEMORY_PEOPLE else None, n, map(key_numbers, sorter.blocks()), _KEY)

    def similar(self, digest: bytes, people: CommonPeople, *, minimum: int) -> tuple[Similar, ...]:
        """Return earlier studies whose people leave, with these, fewer than `minimum`, and somebody.

        Args:
            digest: of the study's proposal; what is remembered of it is not compared with it.
            people: who they are.
            minimum: fewest people that may be left.
        """
        others = self._distinct(but=digest)
        read = functools.cache(self._read)  # each file once, however many sums it is in
        similar = [
            Similar(digests=(item.digest,), study_ids=(item.study_id,))
            for item in others
            if self._leaves_few([item], [], people, minimum=minimum, read=read)
        ]
        for one, two in combinations(others, 2):
            if (
                self._leaves_few([one, two], [], people, minimum=minimum, read=read)
                or self._leaves_few([one], [two], people, minimum=minimum, read=read)
                or self._leaves_few([two], [one], people, minimum=minimum, read=read)
            ):
                similar.append(Similar(digests=(one.digest, two.digest), study_ids=(one.study_id, two.study_id)))
        return tuple(similar)

    def _leaves_few(
        self,
        against: Sequence[_Set],
        along_with: Sequence[_Set],
        people: CommonPeople,
        *,
        minimum: int,
        read: Callable[[_Set], Keys | None],
    ) -> bool:
        """Tell whether the sets `against`, without these people and those `along_with`, leave few; sizes decide first."""
        size, exact = len(people.keys), people.exact_sum
        for sign, items in ((1, along_with), (-1, against)):
            size += sign * sum(item.size for item in items)
            exact += sign * sum(int.from_bytes(item.exact_sum, "big") for item in items)
        if abs(size) >= minimum or (size == 0 and exact % (1 << 64) == 0):  # nobody at all is left
            return False
        key_lists = [[read(item) for item in items] for items in (along_with, against)]
        added_keys, subtracted_keys = ([keys for keys in items if keys is not None] for items in key_lists)
        if len(added_keys) < len(along_with) or len(subtracted_keys) < len(against):
            return True
        return count_left([people.keys, *added_keys], subtracted_keys, enough=minimum) < minimum

    def places(self) -> int:
        """Return how many distinct sets are remembered."""
        return self._database.only(int, "SELECT COUNT(*) FROM (SELECT DISTINCT sha256, exact_sum FROM common_set)")

    def has_room(self, people: CommonPeople, most: int) -> bool:
        """Tell whether a set is remembered, or there is a place for it among `most`."""
        identity = (sha256_of(people.keys), _bytes_of(people.exact_sum))
        query = "SELECT 1 FROM common_set WHERE sha256 = ? AND exact_sum = ? LIMIT 1"
        return self._database.has(query, identity) or self.places() < most

    def keeps(self, digest: bytes, people: CommonPeople, similar: Sequence[Similar]) -> bool:
        """Tell whether `remember` has stored this very set for the study, with these similar ones."""
        rows = self._database.rows("SELECT sha256, exact_sum, near FROM common_set WHERE digest = ?", (digest,))
        sha256 = sha256_of(people.keys)
        return rows == [(sha256, _bytes_of(people.exact_sum), _near(similar))] and self._file(sha256).is_file()

    def remember(self, digest: bytes, people: CommonPeople, similar: Sequence[Similar]) -> None:
        """Store the set of a study; on the disk when it returns. Repeating it changes nothing.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        sha256 = sha256_of(people.keys)
        target = self._file(sha256)
        with disk_faults(target):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(target, bytes_in_parts(people.keys), part=target.with_suffix(".part"))
        with self._database.transaction():
            self._database.write(
                "INSERT INTO common_set (digest, sha256, size, near, exact_sum) VALUES (?, ?, ?, ?, ?) ON CONFLICT (digest)"
                " DO UPDATE SET sha256 = excluded.sha256, size = excluded.size, near = excluded.near,"
                " exact_sum = excluded.exact_sum",
                (digest, sha256, people.keys.size, _near(similar), _bytes_of(people.exact_sum)),
            )

    def warnings(self) -> dict[bytes, tuple[str, ...]]:
        """Return, for each study with such a warning, the ids of earlier studies whose people leave a handful with its own."""
        names = self._database.by(bytes, str, "SELECT digest, study_id FROM study")
        near = self._database.by(bytes, str, "SELECT digest, near FROM common_set WHERE near <> '[]'")

        def name_of(others: str | list[str]) -> str:
            other_names = [others] if isinstance(others, str) else others
            return " with ".join(names.get(bytes.fromhex(other), other[:16]) for other in other_names)

        return {digest: tuple(map(name_of, json.loads(text))) for digest, text in near.items()}

    def _distinct(self, *, but: bytes) -> list[_Set]:
        """Return each set once, with the first study that it is of, without the one of a study."""
        sets = self._database.read(
            _Set,
            "SELECT c.digest, c.sha256, c.size, c.exact_sum, s.study_id FROM common_set c"
            " JOIN study s USING (digest) WHERE c.digest <> ? ORDER BY c.rowid",
            (but,),
        )
        first: dict[bytes, _Set] = {}
        for item in sets:
            first.setdefault(item.place, item)
        return list(first.values())

    def _file(self, name: bytes) -> Path:
        return self._directory / name.hex()

    def _read(self, item: _Set) -> Keys | None:
        path = self._file(item.sha256)
        try:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").digest() == item.sha256:
                    return np.memmap(file, dtype=_KEY, mode="r") if file.tell() else np.empty(0, dtype=_KEY)
        except OSError:
            pass
        _log.warning("%s: lost or changed; a study with nearly as many people is taken for similar", os.fspath(path))
        return None


def _parts(table: Rows, rows: NDArray[np.int64] | None, n: int) -> Iterator[Rows]:
    """Return the rows of a table some at a time; `rows` says which, None: all."""
    for start in range(0, n, _PEOPLE_AT_ONCE):
        stop = min(start + _PEOPLE_AT_ONCE, n)
        yield taken(table, np.arange(start, stop) if rows is None else rows[start:stop])


def _near(similar: Sequence[Similar]) -> str:
    names = [[digest.hex() for digest in item.digests] for item in similar]
    return json.dumps([digests[0] if len(digests) == 1 else digests for digests in names])


def _bytes_of(exact_sum: int) -> bytes:
    return exact_sum.to_bytes(8, "big")

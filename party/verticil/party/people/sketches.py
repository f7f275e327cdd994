"""The sketches of a site's data sets, as they are stored, and the shares of people that they have in common.

What is stored. Of each data set that was read: the keys of its table's people at the last reading, and of everybody whom any of
its tables named that was read for a study, so that people who left the table are not forgotten. They are in ``state/people``
(mode 0600), in files named by their SHA-256, ascending; the database says which belong to which data set. A file says nothing
to whoever lacks the site secret, and holds no id. Sketches are in the site's backup and are never sent.

What is compared. A reading whose people are others than before is compared with the sketches of all other data sets at once;
the largest share of each pair stands in the database. So a charge asks the database alone, and whether it is refused rests on
the tables as they were last read, and on no study.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, cast

import numpy as np

from verticil.party.dataset.local_person_keys import Keys, PeopleOfTable
from verticil.party.people.sketch import Sketch, share
from verticil.party.storage.database import Database
from verticil.shared.core.arrays import bytes_in_parts, sha256_of
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.disk import replace_file

FOLDER: Final = "people"
_KEY: Final = np.dtype("<u8")


class Shares:
    """What the sketches of a site say of its data sets, as the database has it.

    Args:
        database: the site's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def datasets(self) -> frozenset[str]:
        """Return the names of the data sets that have a sketch."""
        return frozenset(self._database.read(str, "SELECT dataset FROM people_sketch"))

    def for_studies(self) -> frozenset[str]:
        """Return the names of the data sets whose tables were read for a study: whatever name it was charged under."""
        return frozenset(self._database.read(str, "SELECT dataset FROM people_sketch WHERE ever_exact <> x''"))

    def digest(self, datasets: Collection[str]) -> bytes | None:
        """Return what names the people of some data sets as they were last read; None: none of them has a sketch."""
        exact_keys = [
            exact
            for name in sorted(datasets)
            for exact in self._database.read(bytes, "SELECT exact FROM people_sketch WHERE dataset = ?", (name,))
        ]
        return (
            exact_keys[0]
            if len(exact_keys) == 1
            else hashlib.sha256(b"".join(exact_keys)).digest()
            if exact_keys
            else None
        )

    def of(self, dataset: str) -> dict[str, float]:
        """Return the share of people that a data set has in common with each other one that has a sketch."""
        query = (
            "SELECT other AS name, share FROM people_share WHERE one = ?1"
            " UNION ALL SELECT one AS name, share FROM people_share WHERE other = ?1"
        )
        return {cast("str", name): cast("float", value) for name, value in self._database.rows(query, (dataset,))}


class Sketches(Shares):
    """The sketches of one site.

    Args:
        database: the site's.
        directory: the state directory.
    """

    def __init__(self, database: Database, directory: Path) -> None:
        super().__init__(database)
        self._directory = directory / FOLDER

    def take(self, tables: Mapping[str, PeopleOfTable], *, for_study: bool = False) -> None:
        """Store the people of tables that were read; on the disk when it returns. Repeating it changes nothing.

        Args:
            tables: data set -> the keys of everybody in its table.
            for_study: for a study under way: its people stay known when they leave the table.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        for dataset, people in tables.items():
            with self._database.transaction():  # of several processes one writes and sweeps at a time
                self._take(dataset, Sketch.of(people), for_study=for_study)

    def _take(self, dataset: str, last: Sketch, *, for_study: bool) -> None:
        names, before = self._names_of(last), self._row(dataset)
        is_added = not for_study or before[4] == names[0]
        if before[:2] == names and is_added and self._holds(before[:4]):
            return
        ever, additions = self._read(before[2:4]), before[4]
        if for_study:
            ever, additions = last if ever is None else ever.with_more(last), names[0]
        ever_names = (b"", b"") if ever is None else self._names_of(ever)
        self._write(last, names)
        if ever is not None:
            self._write(ever, ever_names)
        stored_keys = self.of(dataset)
        others = sorted(self.datasets() - {dataset})
        ours = [last] if ever is None or ever_names == names else [last, ever]
        shares = {other: self._largest(other, ours, stored_keys.get(other, 0.0)) for other in others}
        self._database.write(
            "INSERT OR REPLACE INTO people_sketch VALUES (?, ?, ?, ?, ?, ?)", (dataset, *names, *ever_names, additions)
        )
        self._database.write("DELETE FROM people_share WHERE one = ?1 OR other = ?1", (dataset,))
        self._database.write_each(
            "INSERT INTO people_share VALUES (?, ?, ?)", [(dataset, other, value) for other, value in shares.items()]
        )
        self._sweep()

    def is_stored(self, dataset: str) -> bool:
        """Return whether the sketch of a data set is there and unharmed."""
        names = self._row(dataset)[:4]
        return bool(names[0]) and self._holds(names)

    def _largest(self, other: str, ours: Sequence[Sketch], known_share: float) -> float:
        """Return the largest share of people in common; where a file of the other is lost, at least what it was before."""
        row = self._row(other)
        theirs = [self._read(names) for names in dict.fromkeys([row[:2], row[2:4]])]
        largest = max((share(one, two) for one in ours for two in theirs if two is not None), default=Fraction(0))
        return float(largest) if self._holds(row[:4]) else max(float(largest), known_share)

    def _row(self, dataset: str) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        query = "SELECT exact, loose, ever_exact, ever_loose, added FROM people_sketch WHERE dataset = ?"
        rows = self._database.rows(query, (dataset,))
        return cast("tuple[bytes, bytes, bytes, bytes, bytes]", tuple(rows[0]) if rows else (b"",) * 5)

    def _names_of(self, sketch: Sketch) -> tuple[bytes, bytes]:
        exact = sha256_of(sketch.exact)
        if sketch.loose is None:
            return exact, b""
        return exact, exact if sketch.loose is sketch.exact else sha256_of(sketch.loose)

    def _write(self, sketch: Sketch, names: tuple[bytes, bytes]) -> None:
        for keys, name in zip((sketch.exact, sketch.loose), names, strict=True):
            if keys is None or self._is_whole(name):
                continue
            target = self._path(name)
            with disk_faults(target):
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(target, bytes_in_parts(keys), part=target.with_suffix(".part"))

    def _read(self, names: tuple[bytes, ...]) -> Sketch | None:
        exact, loose = names
        if not exact or (keys := self._keys(exact)) is None:
            return None
        return Sketch(exact=keys, loose=keys if loose == exact else self._keys(loose) if loose else None)

    def _keys(self, name: bytes) -> Keys | None:
        if not self._is_whole(name):
            return None
        with disk_faults(self._directory), self._path(name).open("rb") as file:
            empty = not file.seek(0, os.SEEK_END)
            return np.empty(0, dtype=_KEY) if empty else np.memmap(file, dtype=_KEY, mode="r")

    def _holds(self, names: tuple[bytes, ...]) -> bool:
        return all(self._is_whole(name) for name in names if name)

    def _is_whole(self, name: bytes) -> bool:
        try:
            with self._path(name).open("rb") as file:
                return hashlib.file_digest(file, "sha256").digest() == name
        except OSError:
            return False

    def _path(self, name: bytes) -> Path:
        return self._directory / name.hex()

    def _sweep(self) -> None:
        """Remove files that belong to no data set any more."""
        query = (
            "SELECT exact FROM people_sketch UNION SELECT loose FROM people_sketch"
            " UNION SELECT ever_exact FROM people_sketch UNION SELECT ever_loose FROM people_sketch"
        )
        file_names = {name.hex() for name in self._database.read(bytes, query)}
        for path in self._directory.glob("*"):
            if path.name not in file_names:
                path.unlink(missing_ok=True)

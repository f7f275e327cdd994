"""The catalogue's part for the publication gate: the release that waits, and the parties' countersignatures of it.

Promises are those of `catalogue`, whose transactions are used. A release whose manifest differs from the one that waited (it was
made anew after its files were damaged) waits anew: countersignatures of the other one are dropped in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

from verticil.miner.storage.records import ReleaseFile, StoredSignature

REVIEW_SCHEMA: Final = """
CREATE TABLE review (study BLOB PRIMARY KEY, manifest_sha256 BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE countersignature (study BLOB, party TEXT, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
"""


class ReviewTable:
    """Releases that wait and their countersignatures.

    Args:
        transaction: of the catalogue.
        grow: raises a study's version within a transaction.
    """

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
        grow: Callable[[sqlite3.Connection, bytes], None],
    ) -> None:
        self._transaction = transaction
        self._grow = grow

    def begin(self, study: bytes, manifest_sha256: bytes, files: Iterable[ReleaseFile]) -> bool:
        """Record that a release waits, and the files that the parties may fetch; False when it did already."""
        with self._transaction() as connection:
            held = connection.execute("SELECT manifest_sha256 FROM review WHERE study = ?", (study,)).fetchone()
            if held is not None and held["manifest_sha256"] == manifest_sha256:
                return False
            connection.execute("REPLACE INTO review VALUES (?, ?)", (study, manifest_sha256))
            connection.execute("DELETE FROM countersignature WHERE study = ?", (study,))
            connection.execute("DELETE FROM release_file WHERE study = ?", (study,))
            rows = [(study, file.path, file.size, file.sha256) for file in files]
            connection.executemany("INSERT INTO release_file VALUES (?, ?, ?, ?)", rows)
            self._grow(connection, study)
        return True

    def add(self, study: bytes, party: str, manifest_sha256: bytes, signed: StoredSignature) -> None:
        """Record a countersignature of the release that waits; the first one of a party stays."""
        with self._transaction() as connection:
            changed = connection.execute(
                "INSERT INTO countersignature SELECT ?, ?, ?, ?, ? WHERE EXISTS"
                " (SELECT 1 FROM review WHERE study = ? AND manifest_sha256 = ?) ON CONFLICT DO NOTHING",
                (study, party, signed.body, signed.signature, signed.certificate, study, manifest_sha256),
            ).rowcount
            if changed:
                self._grow(connection, study)

"""The catalogue's part for artifacts in transit: how much of each is on the disk, and how much is still to come.

Promises are those of `catalogue`, whose transactions are used. An upload that is finished is forgotten with the same transaction
that records its column (`Catalogue.add_column`).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from verticil.miner.storage.records import Upload


def _upload(row: sqlite3.Row) -> Upload:
    return Upload(
        upload_id=row["upload_id"],
        study=row["study"],
        unit=row["unit"],
        size=row["size"],
        sha256=row["sha256"],
        committed=row["committed"],
    )


class UploadTable:
    """Uploads of units.

    Args:
        connection, lock: of the catalogue, for reading.
        transaction: of the catalogue.
        grow: raises a study's version within a transaction.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        lock: threading.RLock,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
        grow: Callable[[sqlite3.Connection, bytes], None],
    ) -> None:
        self._connection = connection
        self._lock = lock
        self._transaction = transaction
        self._grow = grow

    def begin(self, study: bytes, upload_id: str, *, unit: int, size: int, sha256: bytes) -> Upload:
        """The upload with this id; another upload of the same unit is replaced by an empty one."""
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM upload WHERE study = ? AND unit = ? AND upload_id != ?", (study, unit, upload_id)
            )
            connection.execute(
                "INSERT INTO upload VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING",
                (upload_id, study, unit, size, sha256),
            )
            if connection.execute(
                "UPDATE study SET uploading = 1 WHERE digest = ? AND uploading = 0", (study,)
            ).rowcount:
                self._grow(connection, study)
            return _upload(connection.execute("SELECT * FROM upload WHERE upload_id = ?", (upload_id,)).fetchone())

    def find(self, upload_id: str) -> Upload | None:
        """The upload with this id; None when there is none or it is finished."""
        with self._lock:
            row = self._connection.execute("SELECT * FROM upload WHERE upload_id = ?", (upload_id,)).fetchone()
        return None if row is None else _upload(row)

    def of_study(self, study: bytes) -> tuple[Upload, ...]:
        """The study's uploads in transit."""
        with self._lock:
            rows = self._connection.execute("SELECT * FROM upload WHERE study = ?", (study,)).fetchall()
        return tuple(_upload(row) for row in rows)

    def outstanding_bytes(self) -> int:
        """What is still to come of all lists and artifacts that were begun: room that is promised and not yet used."""
        query = (
            "SELECT (SELECT coalesce(sum(size - committed), 0) FROM upload)"
            " + (SELECT coalesce(sum(size - committed), 0) FROM pseudonyms JOIN study ON study = digest"
            " WHERE complete = 0 AND linkage_removed = 0)"
        )
        with self._lock:
            return int(self._connection.execute(query).fetchone()[0])

    def commit(self, upload_id: str, committed: int) -> None:
        """Record that everything before `committed` is on disk."""
        with self._transaction() as connection:
            connection.execute("UPDATE upload SET committed = ? WHERE upload_id = ?", (committed, upload_id))

    def forget(self, upload_id: str) -> None:
        """Forget an upload whose bytes turned out to be wrong."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM upload WHERE upload_id = ?", (upload_id,))

"""The catalogue's part for whose a study is: by which names it is called, how many an analyst has, what the operator closed.

Promises are those of `catalogue`, whose transactions are used. A closure is never removed. What limits an analyst is counted here
from the studies themselves, so a restart forgets none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from verticil.shared.study.names import Named

SUBMISSION_SCHEMA: Final = """
CREATE INDEX study_by_submitter ON study (submitter, submitted_at);
CREATE TABLE closure (study BLOB PRIMARY KEY, reason TEXT NOT NULL, closed_at TEXT NOT NULL) WITHOUT ROWID;
"""
_NOT_ENDED: Final = (
    "withdrawn = 0 AND expired = 0 AND published_at IS NULL AND failure_code IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM denial WHERE denial.study = study.digest)"
)


class SubmissionTable:
    """Whose the studies are.

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

    def names(self) -> tuple[Named, ...]:
        """What every study is called, oldest first."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT digest, study_id, submitter FROM study ORDER BY sequence").fetchall()
        return tuple(Named(digest=row["digest"], study_id=row["study_id"], submitter=row["submitter"]) for row in rows)

    def not_ended(self, submitter: str) -> tuple[bytes, ...]:
        """Digests of an analyst's studies of which no end is recorded, oldest first; some may be overdue by the clock."""
        sql = f"SELECT digest FROM study WHERE submitter = ? AND {_NOT_ENDED} ORDER BY sequence"  # noqa: S608 constants
        with self._transaction() as connection:
            return tuple(row["digest"] for row in connection.execute(sql, (submitter,)))

    def since(self, submitter: str, moment: str) -> int:
        """How many studies an analyst has submitted after a moment (ISO 8601)."""
        with self._transaction() as connection:
            sql = "SELECT COUNT(*) FROM study WHERE submitter = ? AND submitted_at > ?"
            return int(connection.execute(sql, (submitter, moment)).fetchone()[0])

    def close(self, study: bytes, reason: str, at: str) -> bool:
        """Record that the miner's operator closed a study, which is withdrawn by this; False when it has ended already.

        Args:
            study: digest of the proposal.
            reason: what the operator wrote.
            at: ISO 8601.
        """
        with self._transaction() as connection:
            sql = f"UPDATE study SET withdrawn = 1 WHERE digest = ? AND {_NOT_ENDED}"  # noqa: S608 constants
            if connection.execute(sql, (study,)).rowcount == 0:
                return False
            connection.execute("INSERT INTO closure VALUES (?, ?, ?)", (study, reason, at))
            self._grow(connection, study)
        return True

"""The catalogue's part for parties that a study goes on without: who denied it while it can, and the sub-model that it became.

Promises are those of `catalogue`, whose transactions are used. The sub-model, its effective study and the miner's signed
statement are one fact: written in one transaction, once, and only while the study is at the version at which it was decided. So
a part that arrives in the meantime is never left out, and a miner that dies in the midst of the decision decides anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from verticil.miner.storage.records import StoredSignature

ABSENCE_SCHEMA: Final = """
CREATE TABLE declined (study BLOB, party TEXT, reason TEXT NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE sub_model (study BLOB PRIMARY KEY, decided_at TEXT NOT NULL, body BLOB NOT NULL, signature BLOB NOT NULL,
  certificate BLOB NOT NULL) WITHOUT ROWID;
"""


class AbsenceTable:
    """Denials that a quorum bears, and sub-models.

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

    def decline(self, study: bytes, party: str, reason: str) -> None:
        """Record that a party denied a study that may go on without it, and what the person wrote; the first reason stays."""
        with self._transaction() as connection:
            sql = "INSERT INTO declined VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            if connection.execute(sql, (study, party, reason)).rowcount:
                self._grow(connection, study)

    def decide(
        self, study: bytes, *, version: int, effective: bytes, digest: bytes, statement: StoredSignature, at: str
    ) -> bool:
        """Record the sub-model that a study became; False when it is decided already, or the study has changed since.

        Args:
            study: digest of the proposal.
            version: of the facts on which the decision rests.
            effective: canonical bytes of the sub-model's effective study; it takes the place of an earlier one.
            digest: of `effective`.
            statement: the miner's.
            at: when, ISO 8601.
        """
        with self._transaction() as connection:
            sql = (
                "UPDATE study SET effective = ?, effective_digest = ? WHERE digest = ? AND version = ? AND n_common IS NULL"
                " AND failure_code IS NULL AND withdrawn = 0 AND expired = 0"
                " AND NOT EXISTS (SELECT 1 FROM sub_model WHERE sub_model.study = study.digest)"
            )
            if connection.execute(sql, (effective, digest, study, version)).rowcount == 0:
                return False
            row = (study, at, statement.body, statement.signature, statement.certificate)
            connection.execute("INSERT INTO sub_model VALUES (?, ?, ?, ?, ?)", row)
            self._grow(connection, study)
        return True

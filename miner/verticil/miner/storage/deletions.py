"""The catalogue's part for what is taken back and deleted: who revoked a study, and what the miner signed that it deleted.

Promises are those of `catalogue`, whose transactions are used. A revocation is never removed. A statement of a deletion is
written in the transaction that says that the columns are gone, after they are; there is one for each party, and the first one
stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from verticil.miner.storage.records import StoredSignature

DELETION_SCHEMA: Final = """
CREATE TABLE revocation (study BLOB, party TEXT, reason TEXT NOT NULL, revoked_at TEXT NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE deletion (study BLOB, party TEXT, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
"""
UNSTATED: Final = (
    "EXISTS (SELECT 1 FROM revocation r WHERE r.study = study.digest AND NOT EXISTS"
    " (SELECT 1 FROM deletion d WHERE d.study = r.study AND d.party = r.party))"
)
"""A party revoked the study and has no statement yet."""


class DeletionTable:
    """Revocations and statements.

    Args:
        transaction: of the catalogue.
    """

    def __init__(self, transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> None:
        self._transaction = transaction

    def revoke(self, study: bytes, party: str, reason: str, at: str, *, ends: bool) -> None:
        """Record that a party took its approval back; the first reason stays.

        Args:
            study: digest of the proposal.
            party: who.
            reason: what the person wrote.
            at: ISO 8601.
            ends: the study has not ended yet: it is withdrawn by this.
        """
        with self._transaction() as connection:
            sql = "INSERT INTO revocation VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            if connection.execute(sql, (study, party, reason, at)).rowcount == 0:
                return
            if ends:
                connection.execute("UPDATE study SET withdrawn = 1 WHERE digest = ? AND published_at IS NULL", (study,))
            connection.execute("UPDATE study SET version = version + 1 WHERE digest = ?", (study,))

    def record(self, study: bytes, statements: Mapping[str, StoredSignature]) -> None:
        """The study's randomized columns are deleted, and this is what each party is told."""
        with self._transaction() as connection:
            connection.execute("UPDATE study SET columns_removed = 1 WHERE digest = ?", (study,))
            rows = [(study, party, item.body, item.signature, item.certificate) for party, item in statements.items()]
            sql = "INSERT INTO deletion VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
            if rows and connection.executemany(sql, rows).rowcount > 0:
                connection.execute("UPDATE study SET version = version + 1 WHERE digest = ?", (study,))

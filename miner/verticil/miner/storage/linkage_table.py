"""The catalogue's part for linkage ``order-commitment`` and ``dh-psi``: statements, row orders, blinded lists on their way.

Promises are those of `catalogue`, whose transactions are used: facts are added and never rewritten, but for offsets and for what
a list that starts afresh replaces. A fact that a party waits for makes the study's version grow.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from verticil.miner.storage.records import StoredBlinded, StoredSignature
from verticil.shared.alignment.merkle import NODE_BYTES, Tree

LINKAGE_SCHEMA: Final = """
CREATE TABLE commitment (study BLOB, party TEXT, n_records INTEGER NOT NULL, nodes BLOB NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE blinded (study BLOB, owner INTEGER, hop INTEGER, size INTEGER NOT NULL, sha256 BLOB NOT NULL,
  committed INTEGER NOT NULL, complete INTEGER NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL, PRIMARY KEY (study, owner, hop)) WITHOUT ROWID;
"""


def _signature(row: sqlite3.Row) -> StoredSignature:
    return StoredSignature(body=row["body"], signature=row["signature"], certificate=row["certificate"])


def _list(row: sqlite3.Row) -> StoredBlinded:
    return StoredBlinded(
        size=row["size"],
        sha256=row["sha256"],
        committed=row["committed"],
        complete=bool(row["complete"]),
        statement=_signature(row),
    )


class LinkageTable:
    """Statements and lists.

    Args:
        transaction: of the catalogue.
    """

    def __init__(self, transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> None:
        self._transaction = transaction

    @staticmethod
    def commitments(connection: sqlite3.Connection, study: bytes) -> Mapping[str, StoredSignature]:
        """What each party stated; part of the study's record."""
        query = "SELECT party, body, signature, certificate FROM commitment WHERE study = ?"
        return {row["party"]: _signature(row) for row in connection.execute(query, (study,)).fetchall()}

    @staticmethod
    def blinded(connection: sqlite3.Connection, study: bytes) -> Mapping[tuple[int, int], StoredBlinded]:
        """The blinded lists, by owner and hop; part of the study's record."""
        query = "SELECT * FROM blinded WHERE study = ?"
        return {(row["owner"], row["hop"]): _list(row) for row in connection.execute(query, (study,)).fetchall()}

    def add_commitment(
        self, study: bytes, party: str, signed: StoredSignature, *, tree: Tree | None, confirms: bool
    ) -> bool:
        """Record a party's statement; False when there is one: the first one stays.

        Args:
            study: proposal digest.
            party: who states it.
            signed: the statement.
            tree: of its row order; None with dh-psi.
            confirms: it also says that the party accepts the common list.
        """
        values = (signed.body, signed.signature, signed.certificate)
        nodes, n_records = (b"", 0) if tree is None else (b"".join(tree.nodes), tree.n_records)
        with self._transaction() as connection:
            sql = "INSERT INTO commitment VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
            if connection.execute(sql, (study, party, n_records, nodes, *values)).rowcount == 0:
                return False
            if confirms:
                connection.execute("INSERT INTO confirmation VALUES (?, ?) ON CONFLICT DO NOTHING", (study, party))
            self._grow(connection, study)
        return True

    def trees(self, study: bytes) -> dict[str, Tree]:
        """The row orders that the parties sent."""
        with self._transaction() as connection:
            query = "SELECT party, n_records, nodes FROM commitment WHERE study = ?"
            rows = connection.execute(query, (study,)).fetchall()
        return {
            row["party"]: Tree(
                n_records=row["n_records"],
                nodes=tuple(row["nodes"][i : i + NODE_BYTES] for i in range(0, len(row["nodes"]), NODE_BYTES)),
            )
            for row in rows
        }

    def begin(
        self, study: bytes, owner: int, hop: int, *, size: int, sha256: bytes, statement: StoredSignature
    ) -> StoredBlinded:
        """The list of that size and digest; another one that is not complete is replaced by an empty one."""
        with self._transaction() as connection:
            query = "SELECT * FROM blinded WHERE study = ? AND owner = ? AND hop = ?"
            row = connection.execute(query, (study, owner, hop)).fetchone()
            if row is None or (not row["complete"] and (row["size"], row["sha256"]) != (size, sha256)):
                values = (size, sha256, statement.body, statement.signature, statement.certificate)
                connection.execute(
                    "REPLACE INTO blinded VALUES (?, ?, ?, ?, ?, 0, 0, ?, ?, ?)", (study, owner, hop, *values)
                )
                row = connection.execute(query, (study, owner, hop)).fetchone()
        return _list(row)

    def commit(self, study: bytes, owner: int, hop: int, committed: int) -> None:
        """Record that everything before `committed` is on disk."""
        with self._transaction() as connection:
            sql = "UPDATE blinded SET committed = ? WHERE study = ? AND owner = ? AND hop = ? AND complete = 0"
            connection.execute(sql, (committed, study, owner, hop))

    def forget(self, study: bytes, owner: int, hop: int) -> None:
        """Forget a list whose bytes turned out to be wrong."""
        with self._transaction() as connection:
            sql = "DELETE FROM blinded WHERE study = ? AND owner = ? AND hop = ? AND complete = 0"
            connection.execute(sql, (study, owner, hop))

    def complete(self, study: bytes, owner: int, hop: int) -> None:
        """Record that the list is whole and checked."""
        with self._transaction() as connection:
            sql = "UPDATE blinded SET complete = 1 WHERE study = ? AND owner = ? AND hop = ? AND complete = 0"
            if connection.execute(sql, (study, owner, hop)).rowcount:
                self._grow(connection, study)

    @staticmethod
    def _grow(connection: sqlite3.Connection, study: bytes) -> None:
        connection.execute("UPDATE study SET version = version + 1 WHERE digest = ?", (study,))

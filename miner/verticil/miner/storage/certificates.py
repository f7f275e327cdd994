"""The catalogue's part for certificates: which one each party showed last, and approvals that a revoked one had signed.

Promises are those of `catalogue`, whose transactions are used. A void approval is deleted and its end noted, as one fact.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

CERTIFICATE_SCHEMA: Final = """
CREATE TABLE void_approval (study BLOB, party TEXT, revoked_at TEXT NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE party_certificate (party TEXT PRIMARY KEY, serial TEXT NOT NULL, not_before TEXT NOT NULL, not_after TEXT NOT NULL,
  carried_at TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A party's certificate.

    Attributes:
        party: whose.
        serial: lower-case hex.
        not_before, not_after: when it is valid, ISO 8601, UTC.
        carried_at: when the last file of the party's came, ISO 8601; empty: the party came over a line last.
    """

    party: str
    serial: str
    not_before: str
    not_after: str
    carried_at: str


class CertificateTable:
    """Certificates, and what became of approvals because of them.

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

    def void_approval(self, study: bytes, party: str, certificate: bytes, *, revoked_at: str) -> bool:
        """Drop a party's approval that was signed with this certificate, unless the study is effective already.

        Returns:
            Whether it was dropped; False: another one took its place, or it counts for good.
        """
        with self._transaction() as connection:
            sql = (
                "DELETE FROM approval WHERE study = ? AND party = ? AND certificate = ?"
                " AND EXISTS (SELECT 1 FROM study WHERE digest = ? AND effective_digest = x'')"
            )
            if not connection.execute(sql, (study, party, certificate, study)).rowcount:
                return False
            connection.execute("REPLACE INTO void_approval VALUES (?, ?, ?)", (study, party, revoked_at))
            self._grow(connection, study)
            return True

    def keep(self, seen: Iterable[Seen]) -> None:
        """Record the certificates that parties showed last."""
        rows = [(item.party, item.serial, item.not_before, item.not_after, item.carried_at) for item in seen]
        with self._transaction() as connection:
            connection.executemany("REPLACE INTO party_certificate VALUES (?, ?, ?, ?, ?)", rows)

    def seen(self) -> dict[str, Seen]:
        """The certificate that each party showed last."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT * FROM party_certificate").fetchall()
        return {row["party"]: Seen(**{name: row[name] for name in row.keys()}) for row in rows}  # noqa: SIM118 (a row's keys)

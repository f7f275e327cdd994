"""The catalogue's part for Model I with a learned structure: the parties' scores, and the structure that came of them.

A study here is an *effective* study, and has nothing to do with the studies of analysts: nobody submitted it, and the miner holds
no column and no pseudonym of it. Promises are those of `catalogue`, whose transactions are used. A study is forgotten when its
last valid day has passed.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import numpy as np

from verticil.miner.storage.records import Failure, ScoredStudy, StoredSignature
from verticil.shared.errors import PeerFault

MAX_STUDIES: Final = 1000
MAX_STUDIES_OF_ONE: Final = 250
"""Studies that one party was the first to bring: nobody can keep the others out."""

SCORE_SCHEMA: Final = """
CREATE TABLE scored_study (digest BLOB PRIMARY KEY, effective BLOB NOT NULL, expires TEXT NOT NULL, brought_by TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0, body BLOB, signature BLOB, certificate BLOB,
  failure_code TEXT, failure_message TEXT, failure_hint TEXT) WITHOUT ROWID;
CREATE TABLE score (study BLOB, party TEXT, information BLOB NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
"""


def _packed(scores: Sequence[int]) -> bytes:
    return np.array(scores, dtype="<u8").tobytes()


class ScoreTable:
    """Scores and structures.

    Args:
        transaction: of the catalogue.
        max_studies: studies at a time.
        max_studies_of_one: of these, studies that one party was the first to bring.
    """

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
        *,
        max_studies: int = MAX_STUDIES,
        max_studies_of_one: int = MAX_STUDIES_OF_ONE,
    ) -> None:
        self._transaction = transaction
        self._max_studies = max_studies
        self._max_studies_of_one = max_studies_of_one

    def put(self, digest: bytes, effective: bytes, *, expires: dt.date, party: str, scores: Sequence[int]) -> bool:
        """Record a party's scores of a study.

        Args:
            digest: of the effective study.
            effective: its canonical bytes.
            expires: its last valid day.
            party: who sends them; a party of the study.
            scores: 1e-9 nats, each below 2^63.

        Returns:
            False when they were there already.

        Raises:
            PeerFault: STUDY_MISMATCH, the party sent other scores before; RESOURCE_EXHAUSTED, too many studies.
        """
        information = _packed(scores)
        with self._transaction() as connection:
            query = "SELECT information FROM score WHERE study = ? AND party = ?"
            if (row := connection.execute(query, (digest, party)).fetchone()) is not None:
                if row["information"] != information:
                    raise PeerFault(
                        "STUDY_MISMATCH",
                        f"scores of party '{party}': not those that it sent before for the same effective study",
                        hint="the party's table or noise has changed; a new study is needed",
                    )
                return False
            if connection.execute("SELECT 1 FROM scored_study WHERE digest = ?", (digest,)).fetchone() is None:
                self._check_room(connection, party)
                connection.execute(
                    "INSERT INTO scored_study (digest, effective, expires, brought_by) VALUES (?, ?, ?, ?)",
                    (digest, effective, expires.isoformat(), party),
                )
            connection.execute("INSERT INTO score VALUES (?, ?, ?)", (digest, party, information))
        return True

    def _check_room(self, connection: sqlite3.Connection, party: str) -> None:
        total, own = connection.execute(
            "SELECT count(*), coalesce(sum(brought_by = ?), 0) FROM scored_study", (party,)
        ).fetchone()
        if total >= self._max_studies or own >= self._max_studies_of_one:
            raise PeerFault(
                "RESOURCE_EXHAUSTED",
                f"studies with scores: {total}, {own} of them brought by '{party}', "
                f"expected fewer than {self._max_studies} and {self._max_studies_of_one}",
                hint="they are forgotten as they expire; give studies an earlier last day",
            )

    def study(self, digest: bytes) -> ScoredStudy | None:
        """What is known of a study; None when nothing is."""
        with self._transaction() as connection:
            row = connection.execute("SELECT * FROM scored_study WHERE digest = ?", (digest,)).fetchone()
            if row is None:
                return None
            parties = connection.execute("SELECT party FROM score WHERE study = ?", (digest,)).fetchall()
        signed = failure = None
        if row["body"] is not None:
            signed = StoredSignature(body=row["body"], signature=row["signature"], certificate=row["certificate"])
        if row["failure_code"] is not None:
            failure = Failure(code=row["failure_code"], message=row["failure_message"], hint=row["failure_hint"])
        return ScoredStudy(
            digest=digest,
            effective=row["effective"],
            parties=frozenset(party["party"] for party in parties),
            structure=signed,
            failure=failure,
        )

    def scores(self, digest: bytes) -> dict[str, list[int]]:
        """The scores of a study, by party."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT party, information FROM score WHERE study = ?", (digest,)).fetchall()
        return {row["party"]: np.frombuffer(row["information"], dtype="<u8").tolist() for row in rows}

    def unfinished(self) -> tuple[bytes, ...]:
        """Digests of the studies with neither structure nor failure."""
        query = "SELECT digest FROM scored_study WHERE body IS NULL AND failure_code IS NULL"
        with self._transaction() as connection:
            return tuple(row["digest"] for row in connection.execute(query).fetchall())

    def finish(self, digest: bytes, structure: StoredSignature) -> None:
        """Record the structure; the first one stays."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE scored_study SET body = ?, signature = ?, certificate = ?"
                " WHERE digest = ? AND body IS NULL AND failure_code IS NULL",
                (structure.body, structure.signature, structure.certificate, digest),
            )

    def fail(self, digest: bytes, failure: Failure) -> None:
        """Record why there is no structure; the first end stays."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE scored_study SET failure_code = ?, failure_message = ?, failure_hint = ?"
                " WHERE digest = ? AND body IS NULL AND failure_code IS NULL",
                (failure.code, failure.message, failure.hint, digest),
            )

    def add_attempt(self, digest: bytes) -> int:
        """Count a search process that died without a word; returns how many there were."""
        with self._transaction() as connection:
            connection.execute("UPDATE scored_study SET attempts = attempts + 1 WHERE digest = ?", (digest,))
            row = connection.execute("SELECT attempts FROM scored_study WHERE digest = ?", (digest,)).fetchone()
        return 0 if row is None else int(row["attempts"])

    def forget_expired(self, today: dt.date) -> None:
        """Forget the studies whose last valid day lies before `today` (UTC)."""
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM score WHERE study IN (SELECT digest FROM scored_study WHERE expires < ?)",
                (today.isoformat(),),
            )
            connection.execute("DELETE FROM scored_study WHERE expires < ?", (today.isoformat(),))

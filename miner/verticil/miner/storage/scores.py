"""The catalogue's part for Model I with a learned structure: the parties' scores, and the structure that came of them.

A study here is an *effective* study, and has nothing to do with the studies of analysts: it was never submitted, and the miner
holds no column and no pseudonym of it. Promises are those of `catalogue`, whose transactions are used. A study is forgotten when
its last valid day has passed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

import numpy as np

from verticil.miner.storage.catalogue_tables import Table
from verticil.miner.storage.records import Failure, ScoredStudy, StoredSignature
from verticil.shared.core.errors import PeerFault
from verticil.shared.storage.database import Database

MAX_STUDIES: Final = 1000
MAX_STUDIES_OF_ONE: Final = 250
"""Studies that one party was the first to bring: no party can keep the others out."""


def _pack(scores: Sequence[int]) -> bytes:
    return np.array(scores, dtype="<u8").tobytes()


class ScoreTable(Table):
    """Scores and structures.

    Args:
        database: the catalogue's.
        max_studies: studies at a time.
        max_studies_of_one: of these, studies that one party was the first to bring.
    """

    def __init__(
        self,
        database: Database,
        *,
        max_studies: int = MAX_STUDIES,
        max_studies_of_one: int = MAX_STUDIES_OF_ONE,
    ) -> None:
        super().__init__(database)
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
        information = _pack(scores)
        with self._database.transaction():
            query = "SELECT information FROM score WHERE study = ? AND party = ?"
            if (former_scores := self._database.first(bytes, query, (digest, party))) is not None:
                if former_scores != information:
                    raise PeerFault(
                        "STUDY_MISMATCH",
                        f"scores of party '{party}': not those that it sent before for the same effective study",
                        hint="the party's table or noise has changed; a new study is needed",
                    )
                return False
            if not self._database.has("SELECT 1 FROM scored_study WHERE digest = ?", (digest,)):
                self._check_room(party)
                self._database.insert(
                    "scored_study", digest=digest, effective=effective, expires=expires.isoformat(), brought_by=party
                )
            self._database.insert("score", study=digest, party=party, information=information)
        return True

    def _check_room(self, party: str) -> None:
        total = self._database.only(int, "SELECT count(*) FROM scored_study")
        own = self._database.only(int, "SELECT count(*) FROM scored_study WHERE brought_by = ?", (party,))
        if total >= self._max_studies or own >= self._max_studies_of_one:
            raise PeerFault(
                "RESOURCE_EXHAUSTED",
                f"studies with scores: {total}, {own} of them brought by '{party}', "
                f"expected fewer than {self._max_studies} and {self._max_studies_of_one}",
                hint="they are forgotten as they expire; give studies an earlier last day",
            )

    def study(self, digest: bytes) -> ScoredStudy | None:
        """Return what is known of a study; None when nothing is."""
        database = self._database
        with database.view():
            return database.first(
                ScoredStudy,
                "SELECT * FROM scored_study WHERE digest = ?",
                (digest,),
                parties=frozenset(database.read(str, "SELECT party FROM score WHERE study = ?", (digest,))),
                structure=database.first(
                    StoredSignature, "SELECT * FROM scored_study WHERE digest = ? AND body IS NOT NULL", (digest,)
                ),
                failure=database.first(
                    Failure,
                    "SELECT failure_code AS code, failure_message AS message, failure_hint AS hint FROM scored_study"
                    " WHERE digest = ? AND failure_code IS NOT NULL",
                    (digest,),
                ),
            )

    def scores(self, digest: bytes) -> dict[str, list[int]]:
        """Return the scores of a study, by party."""
        rows = self._database.by(str, bytes, "SELECT party, information FROM score WHERE study = ?", (digest,))
        return {party: np.frombuffer(scores, dtype="<u8").tolist() for party, scores in rows.items()}

    def unfinished(self) -> tuple[bytes, ...]:
        """Return digests of the studies with neither structure nor failure."""
        query = "SELECT digest FROM scored_study WHERE body IS NULL AND failure_code IS NULL"
        return tuple(self._database.read(bytes, query))

    def finish(self, digest: bytes, structure: StoredSignature) -> None:
        """Record the structure; the first one stays."""
        self._database.write(
            "UPDATE scored_study SET body = ?, signature = ?, certificate = ?"
            " WHERE digest = ? AND body IS NULL AND failure_code IS NULL",
            (structure.body, structure.signature, structure.certificate, digest),
        )

    def fail(self, digest: bytes, failure: Failure) -> None:
        """Record why there is no structure; the first end stays."""
        with self._database.transaction():
            self._database.write(
                "UPDATE scored_study SET failure_code = ?, failure_message = ?, failure_hint = ?"
                " WHERE digest = ? AND body IS NULL AND failure_code IS NULL",
                (failure.code, failure.message, failure.hint, digest),
            )

    def add_attempt(self, digest: bytes) -> int:
        """Count a search process that died without a word; returns how many there were."""
        with self._database.transaction():
            self._database.write("UPDATE scored_study SET attempts = attempts + 1 WHERE digest = ?", (digest,))
            return self._database.first(int, "SELECT attempts FROM scored_study WHERE digest = ?", (digest,)) or 0

    def forget_expired(self, today: dt.date) -> None:
        """Forget the studies whose last valid day lies before `today` (UTC)."""
        with self._database.transaction():
            self._database.write(
                "DELETE FROM score WHERE study IN (SELECT digest FROM scored_study WHERE expires < ?)",
                (today.isoformat(),),
            )
            self._database.write("DELETE FROM scored_study WHERE expires < ?", (today.isoformat(),))

"""What the party remembers of each study, in its database.

State, never events: a row says where the study stands as the miner last told, and what this party has done about it.
Every method is one transaction that is on the disk when it returns, so the party may be killed between any two of them;
each of them can be repeated. The ledger stands apart (`verticil.party.policy.ledger`): it outlives studies.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, cast

from verticil.party.storage.database import Database
from verticil.shared.errors import Misuse, VerticilError, from_code
from verticil.shared.storage.rows import Row
from verticil.shared.study.names import Named, ambiguous, fits
from verticil.shared.study.states import State, is_final

_log = logging.getLogger(__name__)

WAITS: Final = "waiting for approval"
WAITS_AGAIN: Final = f"{WAITS} again"
"""The stage of a study whose approval was void; it goes on with the reason."""

_STUDY = (
    "s.digest, s.study_id, s.proposal, s.seen_at, s.version, s.remote_state, s.effective, s.effective_digest,"
    " s.remote_approved, s.pseudonyms_complete, s.alignment_confirmed, s.units_received, s.remote_failure,"
    " s.stage, s.percent, s.stage_at, s.n_common, s.common_sha256,"
    " a.body, d.sent, f.code, f.message, f.hint, f.sent,"
    " (SELECT COUNT(*) FROM vote v WHERE v.digest = s.digest), r.sent, s.rowid, s.submitter, s.ended_words, s.forgotten"
)
_FINAL = ", ".join(str(int(state)) for state in State if is_final(state))
_JOINED = (
    "FROM study s LEFT JOIN approval a USING (digest) LEFT JOIN denial d USING (digest) LEFT JOIN failure f USING (digest)"
    " LEFT JOIN revocation r USING (digest)"
)


def stamp(at: datetime) -> str:
    """A moment as it is written everywhere: UTC, whole seconds."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Where a study stands: what the miner last told of it (`StudyTask` of the wire contract).

    Between peers there is no miner. A study that this party's operator loaded has version 0; its state and its effective study
    are what this party found out itself, and `approved` means that a peer may have this party's approval.

    `submitter`, the analyst, and `ended_words`, why the study ended, are the miner's word; empty: it says nothing.
    """

    digest: bytes
    version: int
    state: int
    proposal: bytes
    effective: bytes
    effective_digest: bytes
    approved: bool
    pseudonyms_complete: bool
    alignment_confirmed: bool
    units_received: tuple[int, ...]
    failure: str
    submitter: str = ""
    ended_words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """A study as this party remembers it.

    Attributes:
        study_id: names it for people.
        seen_at: when this party first heard of it.
        task: what the miner last told.
        stage, percent, stage_at: what this party does about it, for people, and since when; empty: not known.
        n_common, common_sha256: of the confirmed common list; None before.
        approval: body of this party's approval; None before there are enough votes.
        n_votes: approvers who said yes so far.
        number: of the studies that this party heard of, in order.
        forgotten: what the miner knew and does not know any more: ``study``, ``revocation`` (it was told again), or empty.
        denial_sent: None: not denied.
        failure: why this party cannot go on; None: it can.
        failure_sent: whether the miner knows.
        revocation_sent: None: not revoked (`verticil.party.policy.revocation`).
    """

    study_id: str
    seen_at: str
    task: Task
    stage: str
    percent: int
    stage_at: str
    n_common: int | None
    common_sha256: bytes | None
    approval: bytes | None
    n_votes: int
    denial_sent: bool | None
    failure: VerticilError | None
    failure_sent: bool
    revocation_sent: bool | None = None
    number: int = 0
    forgotten: str = ""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the proposal, the study's name for programs."""
        return self.task.digest

    @property
    def named(self) -> Named:
        """What people call it."""
        return Named(digest=self.digest, study_id=self.study_id, submitter=self.task.submitter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A randomized unit in the spool.

    Attributes:
        unit: index in the study.
        effective_digest: of the effective study that it was made for.
        sha256, size: of its bytes.
        facts: what the ledger will say about it, as JSON.
        version_tag: that its noise was drawn with.
        receipt: body of the miner's signed receipt; None before.
    """

    unit: int
    effective_digest: bytes
    sha256: bytes
    size: int
    facts: str
    version_tag: bytes
    receipt: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The daemon's last sign of life; `pid` is 0 when it ended in good order."""

    pid: int
    at: str
    connected: bool
    problem: str


class PartyState:
    """The studies in a party's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remember(self, task: Task, study_id: str, at: datetime) -> None:
        """Store what the miner told. It takes the place of what was stored, also when a restored miner tells a lower version.

        The submitter that was told first stays: people have decided by it.
        """
        self._database.write(
            "INSERT INTO study (digest, study_id, proposal, seen_at, version, remote_state, effective, effective_digest,"
            " remote_approved, pseudonyms_complete, alignment_confirmed, units_received, remote_failure, submitter, ended_words,"
            " stage, percent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0)"
            " ON CONFLICT (digest) DO UPDATE SET version = excluded.version, remote_state = excluded.remote_state,"
            " effective = excluded.effective, effective_digest = excluded.effective_digest,"
            " remote_approved = excluded.remote_approved, pseudonyms_complete = excluded.pseudonyms_complete,"
            " alignment_confirmed = excluded.alignment_confirmed, units_received = excluded.units_received,"
            " remote_failure = excluded.remote_failure, ended_words = excluded.ended_words,"
            " submitter = CASE WHEN study.submitter = '' THEN excluded.submitter ELSE study.submitter END",
            (
                task.digest,
                study_id,
                task.proposal,
                stamp(at),
                task.version,
                task.state,
                task.effective,
                task.effective_digest,
                task.approved,
                task.pseudonyms_complete,
                task.alignment_confirmed,
                json.dumps(task.units_received),
                task.failure,
                task.submitter,
                task.ended_words,
            ),
        )

    def study(self, digest: bytes) -> StudyRecord:
        """The study with this digest.

        Raises:
            Misuse: STUDY_UNKNOWN.
        """
        rows = self._database.rows(f"SELECT {_STUDY} {_JOINED} WHERE s.digest = ?", (digest,))
        if not rows:
            raise _unknown(digest.hex())
        return _study(rows[0])

    def knows(self, digest: bytes) -> bool:
        """Whether this party has heard of the study before."""
        return bool(self._database.rows("SELECT 1 FROM study WHERE digest = ?", (digest,)))

    def studies(self, study_id: str | None = None) -> tuple[StudyRecord, ...]:
        """All studies, or those with this id, oldest first."""
        rows = self._database.rows(
            f"SELECT {_STUDY} {_JOINED} WHERE ?1 IS NULL OR s.study_id = ?1 ORDER BY s.rowid", (study_id,)
        )
        return tuple(_study(row) for row in rows)

    def undecided(self, since: datetime) -> tuple[int, int]:
        """Studies that the miner told and nobody here has decided: how many go on, and how many seen `since` have ended."""
        ended = f"(f.code IS NOT NULL OR s.remote_state IN ({_FINAL}))"
        (row,) = self._database.rows(
            f"SELECT COALESCE(SUM(NOT {ended}), 0), COALESCE(SUM({ended} AND s.seen_at > ?), 0)"  # noqa: S608 (whole numbers)
            " FROM study s LEFT JOIN failure f USING (digest)"
            " WHERE s.version > 0 AND NOT EXISTS (SELECT 1 FROM approval a WHERE a.digest = s.digest)"
            " AND NOT EXISTS (SELECT 1 FROM denial d WHERE d.digest = s.digest)",
            (stamp(since),),
        )
        return cast("tuple[int, int]", row)

    def miss(self, told: Collection[bytes]) -> tuple[StudyRecord, ...]:
        """Note which studies of the miner's it does not know any more.

        Args:
            told: digests of all studies that it knows.

        Returns:
            Those that it does not know, as they were before; one that was noted already has `forgotten`.
        """
        known = self.studies()
        missing = tuple(study for study in known if study.task.version and study.digest not in told)
        for study in missing:
            self.forgotten(study.digest, "study")
        for study in known:
            if study.forgotten == "study" and study.digest in told:  # the miner got its backup back
                self.forgotten(study.digest, "")
        return missing

    def forgotten(self, digest: bytes, what: Literal["study", "revocation", ""]) -> None:
        """The miner knew it, and does not know it any more; empty: it knows it."""
        self._database.write("UPDATE study SET forgotten = ? WHERE digest = ?", (what, digest))

    def told(
        self, digest: bytes, what: Literal["remote_approved", "pseudonyms_complete", "alignment_confirmed"]
    ) -> None:
        """The miner has acknowledged something (its next task says so too), or a peer is about to be told."""
        self._database.write(f"UPDATE study SET {what} = 1 WHERE digest = ?", (digest,))  # noqa: S608 (constant names)

    def find(self, name: str) -> StudyRecord:
        """The study with this id, or ANALYST/id, or the one whose digest begins with `name` (at least 8 hexadecimal digits).

        Ids are chosen by others, and a later study may have the id of the one that somebody has read, or an id that looks
        like the beginning of its digest. So a name that fits several studies fits none; a whole digest always fits one.

        Raises:
            Misuse: STUDY_UNKNOWN, none or several.
        """
        studies = {study.digest.hex(): study for study in self.studies()}
        if (whole := studies.get(name.lower())) is not None:
            return whole
        found = [study for study in studies.values() if fits(name, study.named)]
        if not found:
            raise _unknown(name)
        if len(found) > 1:
            raise ambiguous(name, [(study.named, State(study.task.state).words) for study in found])
        return found[0]

    def show(self, digest: bytes, stage: str, percent: int = 0, *, at: datetime) -> None:
        """Set what `status` shows, from now on, and log it; nothing is written when it shows that already, or why it is so."""
        was = self._database.rows("SELECT stage FROM study WHERE digest = ?", (digest,))
        changed = self._database.write(
            "UPDATE study SET stage = ?, percent = ?, stage_at = CASE WHEN stage = ? AND stage_at <> '' THEN stage_at ELSE ? END"
            " WHERE digest = ? AND (stage, percent) IS NOT (?, ?) AND NOT (? = ? AND stage LIKE ?)",
            (stage, percent, stage, stamp(at), digest, stage, percent, stage, WAITS, f"{WAITS_AGAIN}%"),
        )
        if changed and was != [(stage,)]:
            _log.info("%s", stage)

    # ---- between peers: this party itself says where the study stands

    def move(self, digest: bytes, state: State, failure: str = "") -> None:
        """The study's state, and the code of what ended it; nothing is written when it is that already."""
        self._database.write(
            "UPDATE study SET remote_state = ?, remote_failure = ?"
            " WHERE digest = ? AND (remote_state, remote_failure) IS NOT (?, ?)",
            (int(state), failure, digest, int(state), failure),
        )

    def agree(self, digest: bytes, effective: bytes, effective_digest: bytes) -> None:
        """Every party has approved: this is the study that is carried out."""
        self._database.write(
            "UPDATE study SET effective = ?, effective_digest = ? WHERE digest = ?",
            (effective, effective_digest, digest),
        )

    def agreed(self, effective_digest: bytes) -> StudyRecord | None:
        """The study that is carried out under this effective digest."""
        rows = self._database.rows(
            f"SELECT {_STUDY} {_JOINED} WHERE s.effective_digest = ? AND length(s.effective) > 0", (effective_digest,)
        )
        return _study(rows[0]) if rows else None

    # ---- the people's decisions

    def approve(self, digest: bytes, body: bytes, at: datetime) -> None:
        """Record the approval; it takes the place of an earlier one."""
        self._database.write("INSERT OR REPLACE INTO approval VALUES (?, ?, ?)", (digest, body, stamp(at)))

    def disapprove(self, digest: bytes, *, votes: bool = False) -> None:
        """Forget an approval that nobody else has and that does not hold any more; with `votes` those that made it, too."""
        with self._database.transaction():
            for table in ("approval", "vote") if votes else ("approval",):
                self._database.write(f"DELETE FROM {table} WHERE digest = ?", (digest,))  # noqa: S608 (constant names)

    def deny(self, digest: bytes, approver: str, reason: str, at: datetime) -> None:
        """Record a denial; votes and approval are void from now on."""
        with self._database.transaction():
            for table in ("vote", "approval"):
                self._database.write(f"DELETE FROM {table} WHERE digest = ?", (digest,))  # noqa: S608 (constant names)
            self._database.write(
                "INSERT INTO denial (digest, approver, reason, denied_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (digest, approver, reason, stamp(at)),
            )

    def denial_reason(self, digest: bytes) -> str:
        """What the person who denied wrote."""
        (row,) = self._database.rows("SELECT reason FROM denial WHERE digest = ?", (digest,))
        return cast("str", row[0])

    def denial(self, digest: bytes) -> tuple[str, str, str] | None:
        """Who denied, why, and when; None: nobody did."""
        rows = self._database.rows("SELECT approver, reason, denied_at FROM denial WHERE digest = ?", (digest,))
        return cast("tuple[str, str, str]", rows[0]) if rows else None

    def denial_told(self, digest: bytes) -> None:
        """The miner knows of the denial."""
        self._database.write("UPDATE denial SET sent = 1 WHERE digest = ?", (digest,))

    # ---- what the daemon did

    def fail(self, digest: bytes, error: VerticilError, at: datetime) -> None:
        """This party cannot go on with the study. The first failure stays."""
        self._database.write(
            "INSERT INTO failure (digest, code, message, hint, failed_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (digest, error.code, error.message, error.hint, stamp(at)),
        )

    def failure_told(self, digest: bytes) -> None:
        """The miner knows of the failure."""
        self._database.write("UPDATE failure SET sent = 1 WHERE digest = ?", (digest,))

    def confirm(self, digest: bytes, n_common: int, common_sha256: bytes) -> None:
        """The common list was recomputed and its size accepted."""
        self._database.write(
            "UPDATE study SET n_common = ?, common_sha256 = ? WHERE digest = ?", (n_common, common_sha256, digest)
        )

    def store_artifacts(self, digest: bytes, artifacts: Sequence[Artifact]) -> None:
        """Randomized units are in the spool; those of an earlier effective study are forgotten."""
        with self._database.transaction():
            for item in artifacts:
                self._database.write(
                    "INSERT OR REPLACE INTO artifact (digest, unit, effective_digest, sha256, size, facts, version_tag)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (digest, item.unit, item.effective_digest, item.sha256, item.size, item.facts, item.version_tag),
                )

    def artifacts(self, digest: bytes, effective_digest: bytes) -> dict[int, Artifact]:
        """The randomized units of a study, by unit."""
        rows = self._database.rows(
            "SELECT unit, effective_digest, sha256, size, facts, version_tag, receipt FROM artifact"
            " WHERE digest = ? AND effective_digest = ? AND NOT cleared ORDER BY unit",
            (digest, effective_digest),
        )
        return {cast("int", row[0]): _artifact(row) for row in rows}

    def receipts(self, digest: bytes) -> dict[str, bool]:
        """SHA-256 (hexadecimal) of every randomized unit of a study, also of those that were cleared: whether it is receipted."""
        rows = self._database.rows("SELECT sha256, receipt IS NOT NULL FROM artifact WHERE digest = ?", (digest,))
        return {cast("bytes", sha256).hex(): bool(receipted) for sha256, receipted in rows}

    def spooled(self) -> tuple[int, int]:
        """Randomized units of studies that have not ended: how many wait to be sent, and how many are receipted."""
        query = "SELECT COUNT(*) - COUNT(receipt), COUNT(receipt) FROM artifact WHERE NOT cleared"
        return cast("tuple[int, int]", self._database.rows(query)[0])

    def forget_artifact(self, digest: bytes, unit: int) -> None:
        """The spool does not hold this unit any more."""
        self._database.write("DELETE FROM artifact WHERE digest = ? AND unit = ?", (digest, unit))

    def clear(self, digest: bytes) -> tuple[bytes, ...]:
        """The study ended: its receipts stay, its artifacts need not stay in the spool.

        Returns:
            Digests of the artifacts that no other study waits to send.
        """
        with self._database.transaction():
            rows = self._database.rows(
                "SELECT sha256 FROM artifact WHERE digest = ? AND NOT cleared"
                " EXCEPT SELECT sha256 FROM artifact WHERE digest <> ? AND NOT cleared",
                (digest, digest),
            )
            self._database.write("UPDATE artifact SET cleared = 1 WHERE digest = ? AND NOT cleared", (digest,))
        return tuple(cast("bytes", sha256) for (sha256,) in rows)

    def reconcile(self, digest: bytes, units_received: Sequence[int]) -> None:
        """Forget receipts of units that the miner, on a new connection, says it does not have, or to have damaged."""
        kept = ", ".join(str(unit) for unit in units_received)
        self._database.write(
            f"UPDATE artifact SET receipt = NULL WHERE digest = ? AND NOT cleared AND unit NOT IN ({kept})",  # noqa: S608 (whole numbers)
            (digest,),
        )

    def receipted(self, digest: bytes, unit: int, receipt: bytes) -> None:
        """The miner has the unit and signed for it."""
        self._database.write("UPDATE artifact SET receipt = ? WHERE digest = ? AND unit = ?", (receipt, digest, unit))

    def beat(self, heartbeat: Heartbeat) -> None:
        """The daemon lives."""
        self._database.write(
            "INSERT OR REPLACE INTO heartbeat VALUES (1, ?, ?, ?, ?)",
            (heartbeat.pid, heartbeat.at, heartbeat.connected, heartbeat.problem),
        )

    def heartbeat(self) -> Heartbeat | None:
        """The daemon's last sign of life; None when it never ran."""
        rows = self._database.rows("SELECT pid, at, connected, problem FROM heartbeat")
        if not rows:
            return None
        pid, at, connected, problem = rows[0]
        return Heartbeat(
            pid=cast("int", pid), at=cast("str", at), connected=bool(connected), problem=cast("str", problem)
        )


def _unknown(name: str) -> Misuse:
    hint = "see `verticil party status`; a study appears when the daemon has heard of it"
    return Misuse("STUDY_UNKNOWN", f"study '{name}': this party does not know it", hint=hint)


def _study(row: Row) -> StudyRecord:
    task = Task(
        digest=cast("bytes", row[0]),
        proposal=cast("bytes", row[2]),
        version=cast("int", row[4]),
        state=cast("int", row[5]),
        effective=cast("bytes", row[6]),
        effective_digest=cast("bytes", row[7]),
        approved=bool(row[8]),
        pseudonyms_complete=bool(row[9]),
        alignment_confirmed=bool(row[10]),
        units_received=tuple(json.loads(cast("str", row[11]))),
        failure=cast("str", row[12]),
        submitter=cast("str", row[27]),
        ended_words=cast("str", row[28]),
    )
    code = cast("str | None", row[20])
    return StudyRecord(
        study_id=cast("str", row[1]),
        seen_at=cast("str", row[3]),
        task=task,
        stage=cast("str", row[13]),
        percent=cast("int", row[14]),
        stage_at=cast("str", row[15]),
        n_common=cast("int | None", row[16]),
        common_sha256=cast("bytes | None", row[17]),
        approval=cast("bytes | None", row[18]),
        denial_sent=None if row[19] is None else bool(row[19]),
        failure=None if code is None else from_code(code, cast("str", row[21]), hint=cast("str", row[22])),
        failure_sent=bool(row[23]),
        n_votes=cast("int", row[24]),
        revocation_sent=None if row[25] is None else bool(row[25]),
        number=cast("int", row[26]),
        forgotten=cast("str", row[29]),
    )


def _artifact(row: Row) -> Artifact:
    return Artifact(
        unit=cast("int", row[0]),
        effective_digest=cast("bytes", row[1]),
        sha256=cast("bytes", row[2]),
        size=cast("int", row[3]),
        facts=cast("str", row[4]),
        version_tag=cast("bytes", row[5]),
        receipt=cast("bytes | None", row[6]),
    )

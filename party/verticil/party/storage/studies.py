"""What the party remembers of each study, in its database.

State, never events: a row says where the study stands as the miner last reported, and what this party has done about it.
Every method is one transaction that is on the disk when it returns, so the party may be killed between any two of them;
each of them can be repeated. The ledger stands apart (`verticil.party.policy.ledger`): it outlives studies.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, NamedTuple

from verticil.party.storage.database import Database
from verticil.shared.core.errors import Misuse, VerticilError, from_code
from verticil.shared.storage.row_values import Cell
from verticil.shared.study.canonical import parse_canonical
from verticil.shared.study.document import Study
from verticil.shared.study.names import Named, ambiguous, fits
from verticil.shared.study.states import State, is_final

_log = logging.getLogger(__name__)

UNDER_WAY: Final = (
    "s.remote_state < ?1 AND NOT EXISTS (SELECT 1 FROM failure f WHERE f.digest = s.digest)"
    " AND NOT EXISTS (SELECT 1 FROM denial d WHERE d.digest = s.digest)"
    " AND NOT EXISTS (SELECT 1 FROM revocation r WHERE r.digest = s.digest)"
)
"""Says of a study `s`, where ?1 is `State.PUBLISHED`, that it has not ended, nor ended here."""
WAITS: Final = "waiting for approval"
WAITS_AGAIN: Final = f"{WAITS} again"
"""The stage of a study whose approval was void; it goes on with the reason."""

_STUDY = (
    "s.*, s.remote_state AS state, s.remote_approved AS approved, s.remote_failure AS failure, s.rowid AS number,"
    " a.body AS approval, d.sent AS denial_sent, COALESCE(f.sent, 0) AS failure_sent, r.sent AS revocation_sent,"
    " (SELECT COUNT(*) FROM vote v WHERE v.digest = s.digest) AS n_votes"
)
_FINAL = ", ".join(str(int(state)) for state in State if is_final(state))
_JOINED = (
    "FROM study s LEFT JOIN approval a USING (digest) LEFT JOIN denial d USING (digest) LEFT JOIN failure f USING (digest)"
    " LEFT JOIN revocation r USING (digest)"
)


def stamp(at: datetime) -> str:
    """Write a moment as it is written everywhere: UTC, whole seconds."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Where a study stands: what the miner last reported of it (`StudyTask` of the wire contract).

    Between peers there is no miner. A study that this party's operator loaded has version 0; its state and its effective study
    are what this party found out itself, and `approved` means that a peer may have this party's approval. It begins with the
    defaults.

    The study itself, a checked value, is `proposed`, `decided` or `latest`: whoever has the record has it.

    `submitter`, the analyst, and `ended_words`, why the study ended, are the miner's word; empty: it says nothing.
    """

    digest: bytes
    version: int
    state: int
    proposal: bytes
    effective: bytes = b""
    effective_digest: bytes = b""
    approved: bool = False
    pseudonyms_complete: bool = False
    alignment_confirmed: bool = False
    units_received: tuple[int, ...] = ()
    failure: str = ""
    submitter: str = ""
    ended_words: str = ""

    @property
    def proposal_study(self) -> Study:
        """The study as it was submitted, checked. Raises PeerFault: MESSAGE_INVALID."""
        return parse_canonical(self.proposal)

    @property
    def effective_study(self) -> Study:
        """The effective study, checked; there is one from the common decision on. Raises PeerFault: MESSAGE_INVALID."""
        return parse_canonical(self.effective)

    @property
    def latest(self) -> Study:
        """The effective study, and before there is one the study as it was submitted. Raises PeerFault: MESSAGE_INVALID."""
        return parse_canonical(self.effective or self.proposal)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """A study as this party remembers it.

    Attributes:
        study_id: names it for people.
        seen_at: when this party first heard of it.
        task: what the miner last reported.
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


class _Failure(NamedTuple):
    code: str
    message: str
    hint: str


class _Pair(NamedTuple):
    first: int
    second: int


class PartyState:
    """The studies in a party's database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._approval_versions: dict[bytes, int] = {}

    def remember(self, task: Task, study_id: str, at: datetime) -> None:
        """Store what the miner reported. It takes the place of what was stored, also when a restored miner has a lower version.

        The submitter that was reported first stays: people have decided by it.
        """
        fields: dict[str, Cell] = {
            "version": task.version,
            "remote_state": task.state,
            "effective": task.effective,
            "effective_digest": task.effective_digest,
            "remote_approved": task.approved,
            "pseudonyms_complete": task.pseudonyms_complete,
            "alignment_confirmed": task.alignment_confirmed,
            "units_received": json.dumps(task.units_received),
            "remote_failure": task.failure,
            "ended_words": task.ended_words,
        }
        updates = ", ".join(f"{name} = excluded.{name}" for name in fields)
        submitter = "CASE WHEN study.submitter = '' THEN excluded.submitter ELSE study.submitter END"
        self._database.insert(
            "study",
            digest=task.digest,
            study_id=study_id,
            proposal=task.proposal,
            seen_at=stamp(at),
            submitter=task.submitter,
            stage="",
            percent=0,
            conflict=f"(digest) DO UPDATE SET {updates}, submitter = {submitter}",
            **fields,
        )

    def study(self, digest: bytes) -> StudyRecord:
        """Return the study with this digest.

        Raises:
            Misuse: STUDY_UNKNOWN.
        """
        records = self._find_records("s.digest = ?", digest)
        if not records:
            raise unknown_study(digest.hex())
        return records[0]

    def _find_records(self, which: str, value: Cell) -> tuple[StudyRecord, ...]:
        query = f"SELECT {_STUDY} {_JOINED} WHERE {which} ORDER BY s.rowid"
        with self._database.view():
            records = self._database.read(StudyRecord, query, (value,), failure=None)
            failures = self._database.by(bytes, _Failure, "SELECT digest, * FROM failure")
        return tuple(
            replace(study, failure=from_code(end.code, end.message, hint=end.hint))
            if (end := failures.get(study.digest))
            else study
            for study in records
        )

    def knows(self, digest: bytes) -> bool:
        """Return whether this party has heard of the study before."""
        return self._database.has("SELECT 1 FROM study WHERE digest = ?", (digest,))

    def studies(self, study_id: str | None = None) -> tuple[StudyRecord, ...]:
        """List all studies, or those with this id, oldest first."""
        return self._find_records("?1 IS NULL OR s.study_id = ?1", study_id)

    def count_undecided(self, since: datetime) -> tuple[int, int]:
        """Studies of the miner's that no person here has decided: how many go on, and how many seen `since` have ended."""
        has_ended = f"(f.code IS NOT NULL OR s.remote_state IN ({_FINAL}))"
        return self._database.only(
            _Pair,
            f"SELECT COALESCE(SUM(NOT {has_ended}), 0) AS first, COALESCE(SUM({has_ended} AND s.seen_at > ?), 0) AS second"  # noqa: S608
            " FROM study s LEFT JOIN failure f USING (digest)"
            " WHERE s.version > 0 AND NOT EXISTS (SELECT 1 FROM approval a WHERE a.digest = s.digest)"
            " AND NOT EXISTS (SELECT 1 FROM denial d WHERE d.digest = s.digest)",
            (stamp(since),),
        )

    def miss(self, digests: Collection[bytes]) -> tuple[StudyRecord, ...]:
        """Note which studies of the miner's it does not know any more.

        Args:
            digests: digests of all studies that it knows.

        Returns:
            Those that it does not know, as they were before; one that was noted already has `forgotten`.
        """
        records = self.studies()
        missing = tuple(study for study in records if study.task.version and study.digest not in digests)
        for study in missing:
            self.set_missing(study.digest, "study")
        for study in records:
            if study.forgotten == "study" and study.digest in digests:  # the miner got its backup back
                self.set_missing(study.digest, "")
        return missing

    def set_missing(self, digest: bytes, what: Literal["study", "revocation", ""]) -> None:
        """Record since when the miner does not know the study any more; empty: it knows it."""
        self._database.write("UPDATE study SET forgotten = ? WHERE digest = ?", (what, digest))

    def mark_acknowledged(
        self, digest: bytes, what: Literal["remote_approved", "pseudonyms_complete", "alignment_confirmed"]
    ) -> None:
        """Record that the miner has acknowledged something (its next task says so too), or that a peer is about to receive
        it.
        """
        self._database.write(f"UPDATE study SET {what} = 1 WHERE digest = ?", (digest,))  # noqa: S608 (constant names)

    def approval_arrived(self, digest: bytes, version: int) -> None:
        """Store that the miner has this party's approval, from this version of the study on."""
        self.mark_acknowledged(digest, "remote_approved")
        self._approval_versions[digest] = version

    def approval_version(self, digest: bytes) -> int:
        """Return the version from which on the miner has this party's approval; 0: this process did not send it."""
        return self._approval_versions.get(digest, 0)

    def find(self, name: str) -> StudyRecord:
        """Return the study with this id, or ANALYST/id, or the one whose digest begins with `name` (at least 8 hexadecimal
        digits).

        Ids are chosen by others, and a later study may have the id of the one that somebody has read, or an id that looks
        like the beginning of its digest. So a name that fits several studies fits none; a whole digest always fits one.

        Raises:
            Misuse: STUDY_UNKNOWN, none or several.
        """
        studies = {study.digest.hex(): study for study in self.studies()}
        if (whole := studies.get(name.lower())) is not None:
            return whole
        matches = [study for study in studies.values() if fits(name, study.named)]
        if not matches:
            raise unknown_study(name)
        if len(matches) > 1:
            raise ambiguous(name, [(study.named, State(study.task.state).words) for study in matches])
        return matches[0]

    def show(self, digest: bytes, stage: str, percent: int = 0, *, at: datetime) -> None:
        """Set what `status` shows, from now on, and log it; nothing is written when it shows that already, or why it is so."""
        was = self._database.rows("SELECT stage FROM study WHERE digest = ?", (digest,))
        has_changed = self._database.write(
            "UPDATE study SET stage = ?, percent = ?, stage_at = CASE WHEN stage = ? AND stage_at <> '' THEN stage_at ELSE ? END"
            " WHERE digest = ? AND (stage, percent) IS NOT (?, ?) AND NOT (? = ? AND stage LIKE ?)",
            (stage, percent, stage, stamp(at), digest, stage, percent, stage, WAITS, f"{WAITS_AGAIN}%"),
        )
        if has_changed and was != [(stage,)]:
            _log.info("%s", stage)

    # ---- between peers: this party itself says where the study stands

    def move(self, digest: bytes, state: State, failure: str = "") -> None:
        """Record the study's state, and the code of what ended it; write nothing when it is that already."""
        self._database.write(
            "UPDATE study SET remote_state = ?, remote_failure = ?"
            " WHERE digest = ? AND (remote_state, remote_failure) IS NOT (?, ?)",
            (int(state), failure, digest, int(state), failure),
        )

    def agree(self, digest: bytes, effective: bytes, effective_digest: bytes) -> None:
        """Record that every party has approved, and the study that is carried out."""
        self._database.write(
            "UPDATE study SET effective = ?, effective_digest = ? WHERE digest = ?",
            (effective, effective_digest, digest),
        )

    def find_effective(self, effective_digest: bytes) -> StudyRecord | None:
        """Return the study that is carried out under this effective digest."""
        return next(
            iter(self._find_records("length(s.effective) > 0 AND s.effective_digest = ?", effective_digest)), None
        )

    # ---- what the daemon did

    def fail(self, digest: bytes, error: VerticilError, at: datetime) -> None:
        """Record that this party cannot go on with the study. The first failure stays."""
        self._database.write(
            "INSERT INTO failure (digest, code, message, hint, failed_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (digest, error.code, error.message, error.hint, stamp(at)),
        )

    def failure_told(self, digest: bytes) -> None:
        """Record that the miner knows of the failure."""
        self._database.write("UPDATE failure SET sent = 1 WHERE digest = ?", (digest,))

    def confirm(self, digest: bytes, n_common: int, common_sha256: bytes) -> None:
        """Record that the common list was recomputed and its size accepted."""
        self._database.write(
            "UPDATE study SET n_common = ?, common_sha256 = ? WHERE digest = ?", (n_common, common_sha256, digest)
        )

    def store_artifacts(self, digest: bytes, artifacts: Sequence[Artifact]) -> None:
        """Randomized units are in the spool; those of an earlier effective study are forgotten."""
        with self._database.transaction():
            for item in artifacts:
                self._database.insert("artifact", item, digest=digest, conflict="REPLACE")

    def artifacts(self, digest: bytes, effective_digest: bytes) -> dict[int, Artifact]:
        """Return the randomized units of a study, by unit."""
        query = "SELECT unit, * FROM artifact WHERE digest = ? AND effective_digest = ? AND NOT cleared ORDER BY unit"
        return self._database.by(int, Artifact, query, (digest, effective_digest))

    def receipts(self, digest: bytes) -> dict[str, bool]:
        """SHA-256 (hexadecimal) of every randomized unit of a study, also of those that were cleared: whether it is receipted."""
        query = "SELECT sha256, receipt IS NOT NULL FROM artifact WHERE digest = ?"
        return {
            sha256.hex(): is_receipted
            for sha256, is_receipted in self._database.by(bytes, bool, query, (digest,)).items()
        }

    def count_spooled(self) -> tuple[int, int]:
        """Randomized units of studies that have not ended: how many wait to be sent, and how many are receipted."""
        query = "SELECT COUNT(*) - COUNT(receipt) AS first, COUNT(receipt) AS second FROM artifact WHERE NOT cleared"
        return self._database.only(_Pair, query)

    def forget_artifact(self, digest: bytes, unit: int) -> None:
        """Record that the spool does not hold this unit any more."""
        self._database.write("DELETE FROM artifact WHERE digest = ? AND unit = ?", (digest, unit))

    def clear(self, digest: bytes) -> tuple[bytes, ...]:
        """Mark the artifacts of a study that ended: its receipts stay, its artifacts need not stay in the spool.

        Returns:
            Digests of the artifacts that no other study waits to send.
        """
        with self._database.transaction():
            digests = self._database.read(
                bytes,
                "SELECT sha256 FROM artifact WHERE digest = ? AND NOT cleared"
                " EXCEPT SELECT sha256 FROM artifact WHERE digest <> ? AND NOT cleared",
                (digest, digest),
            )
            self._database.write("UPDATE artifact SET cleared = 1 WHERE digest = ? AND NOT cleared", (digest,))
        return tuple(digests)

    def reconcile(self, digest: bytes, units_received: Sequence[int]) -> None:
        """Forget receipts of units that the miner, on a new connection, says it does not have, or to have damaged."""
        units_text = ", ".join(str(unit) for unit in units_received)
        self._database.write(
            f"UPDATE artifact SET receipt = NULL WHERE digest = ? AND NOT cleared AND unit NOT IN ({units_text})",  # noqa: S608 (whole numbers)
            (digest,),
        )

    def mark_receipted(self, digest: bytes, unit: int, receipt: bytes) -> None:
        """Record that the miner has the unit and signed for it."""
        self._database.write("UPDATE artifact SET receipt = ? WHERE digest = ? AND unit = ?", (receipt, digest, unit))

    def beat(self, heartbeat: Heartbeat) -> None:
        """Record that the daemon lives."""
        self._database.insert("heartbeat", heartbeat, one=1, conflict="REPLACE")

    def heartbeat(self) -> Heartbeat | None:
        """Return the daemon's last sign of life; None when it never ran."""
        return self._database.first(Heartbeat, "SELECT * FROM heartbeat")


def unknown_study(name: str) -> Misuse:
    """Return the error of a name that no study here has."""
    hint = "see `verticil party status`; a study appears when the daemon has heard of it"
    return Misuse("STUDY_UNKNOWN", f"study '{name}': this party does not know it", hint=hint)

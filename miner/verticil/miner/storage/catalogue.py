"""The catalogue: one SQLite file with every durable fact of every study.

Promises: a method that returns has its fact on the disk (WAL, ``synchronous=FULL``); each method is one transaction; repeating
one is harmless and changes no version; a version only grows. Facts are added and never rewritten, but for offsets, for what
an upload that starts afresh replaces, and for a column that was found damaged: its receipt stays, the digest of its file goes.
It stores no state, no file contents but documents and signatures, no data value. `scores`
has what Model I needs besides, `linkage_table` what linkage without pseudonyms needs.

All methods block; callers on an event loop use ``asyncio.to_thread``. One connection, one lock: SQLite has one writer anyway.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Final

from verticil.miner.storage.audit import Known
from verticil.miner.storage.certificates import CERTIFICATE_SCHEMA, CertificateTable
from verticil.miner.storage.deletions import DELETION_SCHEMA, UNSTATED, DeletionTable
from verticil.miner.storage.linkage_table import LINKAGE_SCHEMA, LinkageTable
from verticil.miner.storage.memory import FORGOTTEN_SCHEMA, ForgottenTable
from verticil.miner.storage.missing_parties import ABSENCE_SCHEMA, AbsenceTable
from verticil.miner.storage.records import (
    Closure,
    Failure,
    ReleaseFile,
    Revocation,
    StoredColumn,
    StoredList,
    StoredSignature,
    StudyRecord,
)
from verticil.miner.storage.reviews import REVIEW_SCHEMA, ReviewTable
from verticil.miner.storage.scores import SCORE_SCHEMA, ScoreTable
from verticil.miner.storage.store import full_disk_is_an_error
from verticil.miner.storage.submissions import SUBMISSION_SCHEMA, SubmissionTable
from verticil.miner.storage.uploads import UploadTable
from verticil.shared.durable import commit
from verticil.shared.errors import DataFault

SCHEMA_VERSION: Final = 5
"""Version 2 has the tables for scores besides, version 3 those for deletions, reviews and linkage, version 4 for sub-models,
version 5 for what operators closed; an older file gets them."""
_SCHEMA: Final = """
CREATE TABLE study (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, study_id TEXT NOT NULL, version INTEGER NOT NULL,
  proposal BLOB NOT NULL, submitter TEXT NOT NULL, submitted_at TEXT NOT NULL,
  effective BLOB NOT NULL DEFAULT x'', effective_digest BLOB NOT NULL DEFAULT x'',
  n_common INTEGER, common_sha256 BLOB NOT NULL DEFAULT x'',
  uploading INTEGER NOT NULL DEFAULT 0, learning TEXT, attempts INTEGER NOT NULL DEFAULT 0,
  failure_code TEXT, failure_message TEXT, failure_hint TEXT,
  withdrawn INTEGER NOT NULL DEFAULT 0, expired INTEGER NOT NULL DEFAULT 0, published_at TEXT,
  linkage_removed INTEGER NOT NULL DEFAULT 0, columns_removed INTEGER NOT NULL DEFAULT 0);
CREATE INDEX study_by_effective ON study (effective_digest);
CREATE TABLE approval (study BLOB, party TEXT, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE denial (study BLOB, party TEXT, reason TEXT NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE pseudonyms (study BLOB, party TEXT, size INTEGER NOT NULL, sha256 BLOB NOT NULL, committed INTEGER NOT NULL,
  complete INTEGER NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE bitmap (study BLOB, party TEXT, size INTEGER NOT NULL, sha256 BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE confirmation (study BLOB, party TEXT, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE upload (upload_id TEXT PRIMARY KEY, study BLOB NOT NULL, unit INTEGER NOT NULL, size INTEGER NOT NULL,
  sha256 BLOB NOT NULL, committed INTEGER NOT NULL, UNIQUE (study, unit)) WITHOUT ROWID;
CREATE TABLE stored_column (study BLOB, unit INTEGER, upload_id TEXT NOT NULL UNIQUE,
  artifact_sha256 BLOB NOT NULL, artifact_size INTEGER NOT NULL,
  n_records INTEGER NOT NULL, item_bytes INTEGER NOT NULL, column_sha256 BLOB NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL, PRIMARY KEY (study, unit)) WITHOUT ROWID;
CREATE TABLE release_file (study BLOB, path TEXT, size INTEGER NOT NULL, sha256 BLOB NOT NULL,
  PRIMARY KEY (study, path)) WITHOUT ROWID;
"""

_VERSION_5: Final = ";".join((SUBMISSION_SCHEMA, CERTIFICATE_SCHEMA, FORGOTTEN_SCHEMA))


def _signature(row: sqlite3.Row) -> StoredSignature:
    return StoredSignature(body=row["body"], signature=row["signature"], certificate=row["certificate"])


def _failure(row: sqlite3.Row) -> Failure | None:
    if row["failure_code"] is None:
        return None
    return Failure(code=row["failure_code"], message=row["failure_message"], hint=row["failure_hint"])


def _list(row: sqlite3.Row) -> StoredList:
    return StoredList(
        size=row["size"], sha256=row["sha256"], committed=row["committed"], complete=bool(row["complete"])
    )


def _column(row: sqlite3.Row) -> StoredColumn:
    return StoredColumn(
        unit=row["unit"],
        upload_id=row["upload_id"],
        artifact_sha256=row["artifact_sha256"],
        artifact_size=row["artifact_size"],
        n_records=row["n_records"],
        item_bytes=row["item_bytes"],
        column_sha256=row["column_sha256"],
        receipt=_signature(row),
    )


class Catalogue:
    """The facts in ``catalogue.sqlite``.

    Attributes:
        scores: the facts of studies between peers (Model I).
        deletions: who took what back, and what was deleted.
        reviews: releases that wait for countersignatures.
        linkage: row orders and blinded lists.
        absences: what became of studies without all of their parties.
        submissions: whose the studies are.
        certificates: those that parties showed last, and approvals that revoked ones had signed.
        forgotten: studies whose facts were lost.
        uploads: artifacts in transit.

    Args:
        path: the file; made when absent.

    Raises:
        DataFault: STATE_CORRUPT, the file is not a catalogue, or one of another version; DISK_FULL, nothing is harmed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self.scores = ScoreTable(self._transaction)
        self.deletions = DeletionTable(self._transaction)
        self.reviews = ReviewTable(self._transaction, self._grow)
        self.linkage = LinkageTable(self._transaction)
        self.absences = AbsenceTable(self._transaction, self._grow)
        self.submissions = SubmissionTable(self._transaction, self._grow)
        self.certificates = CertificateTable(self._transaction, self._grow)
        self.forgotten = ForgottenTable(self._transaction)
        self.uploads = UploadTable(self._connection, self._lock, self._transaction, self._grow)
        try:
            with full_disk_is_an_error(str(path)):
                version = self._open()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            problem = f"{path}: cannot be used as the miner's catalogue"
            raise DataFault("STATE_CORRUPT", problem, hint="restore the state directory from a backup") from error
        except BaseException:
            self._connection.close()
            raise
        if version != SCHEMA_VERSION:
            self._connection.close()
            raise DataFault(
                "STATE_CORRUPT",
                f"{path}: catalogue of version {version}, expected {SCHEMA_VERSION}",
                hint="start the version of verticil that wrote it",
            )

    def _open(self) -> int:
        """Prepare the connection, and the schema of a new file; the version of the schema."""
        for pragma in ("busy_timeout = 10000", "journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if version < SCHEMA_VERSION:
            with self._transaction():
                for schema in (
                    _SCHEMA,
                    SCORE_SCHEMA,
                    ";".join((DELETION_SCHEMA, REVIEW_SCHEMA, LINKAGE_SCHEMA)),
                    ABSENCE_SCHEMA,
                    _VERSION_5,
                )[version:]:
                    for statement in schema.split(";"):
                        self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            version = SCHEMA_VERSION
        return version

    def tables(self) -> frozenset[str]:
        """The names of all tables."""
        named = self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return frozenset(row["name"] for row in named)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._lock, full_disk_is_an_error("catalogue"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                with commit(self._path):
                    self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _change(self, study: bytes, sql: str, *values: object) -> bool:
        """One statement; when it changed a row, the study's version grows in the same transaction."""
        with self._transaction() as connection:
            changed = connection.execute(sql, values).rowcount > 0
            if changed:
                self._grow(connection, study)
        return changed

    @staticmethod
    def _grow(connection: sqlite3.Connection, study: bytes) -> None:
        connection.execute("UPDATE study SET version = version + 1 WHERE digest = ?", (study,))

    # -- reading -------------------------------------------------------------------------------------------------------------

    def digests(self) -> tuple[bytes, ...]:
        """Proposal digests of all studies, oldest first."""
        with self._lock:
            return tuple(
                row["digest"] for row in self._connection.execute("SELECT digest FROM study ORDER BY sequence")
            )

    def unsettled(self) -> tuple[bytes, ...]:
        """Digests of the studies with something left to do or to delete, oldest first."""
        query = (
            f"SELECT digest FROM study WHERE linkage_removed = 0 OR columns_removed = 0 OR {UNSTATED} ORDER BY sequence"  # noqa: S608 constants
        )
        with self._lock:
            return tuple(row["digest"] for row in self._connection.execute(query))

    def versions(self) -> dict[bytes, int]:
        """The version of every study, oldest first."""
        with self._lock:
            rows = self._connection.execute("SELECT digest, version FROM study ORDER BY sequence").fetchall()
        return {row["digest"]: row["version"] for row in rows}

    def known(self) -> Known:
        """How much is known of all studies."""
        versions = self.versions().values()
        return Known(studies=len(versions), versions=sum(versions))

    def with_effective(self, effective_digest: bytes) -> tuple[bytes, ...]:
        """Digests of the studies with this effective study, newest first (a proposal may equal what another became)."""
        with self._lock:
            query = "SELECT digest FROM study WHERE effective_digest = ? ORDER BY sequence DESC"
            return tuple(row["digest"] for row in self._connection.execute(query, (effective_digest,)))

    def study(self, digest: bytes) -> StudyRecord | None:
        """All facts of one study, read at one moment; None when it is unknown."""
        with self._lock:
            row = self._connection.execute("SELECT * FROM study WHERE digest = ?", (digest,)).fetchone()
            if row is None:
                return None

            def rows(table: str) -> list[sqlite3.Row]:
                return self._connection.execute(f"SELECT * FROM {table} WHERE study = ?", (digest,)).fetchall()  # noqa: S608 constants

            return StudyRecord(
                digest=digest,
                sequence=row["sequence"],
                study_id=row["study_id"],
                version=row["version"],
                proposal=row["proposal"],
                submitter=row["submitter"],
                submitted_at=row["submitted_at"],
                effective=row["effective"],
                effective_digest=row["effective_digest"],
                approvals={r["party"]: _signature(r) for r in rows("approval")},
                denials={r["party"]: r["reason"] for r in rows("denial")},
                lists={r["party"]: _list(r) for r in rows("pseudonyms")},
                bitmaps={r["party"]: (r["size"], r["sha256"]) for r in rows("bitmap")},
                n_common=row["n_common"],
                common_sha256=row["common_sha256"],
                confirmed=frozenset(r["party"] for r in rows("confirmation")),
                columns={r["unit"]: _column(r) for r in rows("stored_column") if r["column_sha256"]},
                damaged={r["unit"]: _column(r) for r in rows("stored_column") if not r["column_sha256"]},
                uploading=bool(row["uploading"]),
                learning=row["learning"],
                attempts=row["attempts"],
                failure=_failure(row),
                withdrawn=bool(row["withdrawn"]),
                expired=bool(row["expired"]),
                published_at=row["published_at"],
                linkage_removed=bool(row["linkage_removed"]),
                columns_removed=bool(row["columns_removed"]),
                revocations={
                    r["party"]: Revocation(reason=r["reason"], revoked_at=r["revoked_at"]) for r in rows("revocation")
                },
                deletions={r["party"]: _signature(r) for r in rows("deletion")},
                review_manifest=next((r["manifest_sha256"] for r in rows("review")), b""),
                countersignatures={r["party"]: _signature(r) for r in rows("countersignature")},
                commitments=LinkageTable.commitments(self._connection, digest),
                blinded=LinkageTable.blinded(self._connection, digest),
                declined={r["party"]: r["reason"] for r in rows("declined")},
                sub_model=next(map(_signature, rows("sub_model")), None),
                decided_at=next((r["decided_at"] for r in rows("sub_model")), None),
                closure=next((Closure(reason=r["reason"], closed_at=r["closed_at"]) for r in rows("closure")), None),
                void_approvals={r["party"]: r["revoked_at"] for r in rows("void_approval")},
            )

    # -- the study's life ----------------------------------------------------------------------------------------------------

    def add_study(self, digest: bytes, *, study_id: str, proposal: bytes, submitter: str, at: str) -> None:
        """Record a submission; one that is known already stays as it is."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO study (digest, study_id, version, proposal, submitter, submitted_at) VALUES (?, ?, 1, ?, ?, ?)"
                " ON CONFLICT (digest) DO NOTHING",
                (digest, study_id, proposal, submitter, at),
            )

    def add_approval(self, study: bytes, party: str, signed: StoredSignature) -> bool:
        """Record a party's approval; False when there is one: the first one stays."""
        values = (study, party, signed.body, signed.signature, signed.certificate)
        return self._change(study, "INSERT INTO approval VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", *values)

    def set_effective(self, study: bytes, effective: bytes, digest: bytes) -> None:
        """Record the effective study, once."""
        sql = "UPDATE study SET effective = ?, effective_digest = ? WHERE digest = ? AND effective_digest = x''"
        self._change(study, sql, effective, digest, study)

    def add_denial(self, study: bytes, party: str, reason: str) -> None:
        """Record a party's denial and what the person wrote; the first one stays."""
        self._change(study, "INSERT INTO denial VALUES (?, ?, ?) ON CONFLICT DO NOTHING", study, party, reason)

    def confirm(self, study: bytes, party: str) -> None:
        """Record that a party accepts the common list."""
        self._change(study, "INSERT INTO confirmation VALUES (?, ?) ON CONFLICT DO NOTHING", study, party)

    def set_learning(self, study: bytes, stage: str) -> None:
        """Record how far learning has come (``estimating``, then ``learning``); it never goes back."""
        behind = {"estimating": "learning IS NULL", "learning": "learning IS NULL OR learning = 'estimating'"}[stage]
        self._change(study, f"UPDATE study SET learning = ? WHERE digest = ? AND ({behind})", stage, study)  # noqa: S608 constants

    def add_attempt(self, study: bytes) -> int:
        """Count learning that came to nothing and is tried again; returns how often it did."""
        with self._transaction() as connection:
            connection.execute("UPDATE study SET attempts = attempts + 1 WHERE digest = ?", (study,))
            return int(connection.execute("SELECT attempts FROM study WHERE digest = ?", (study,)).fetchone()[0])

    def fail(self, study: bytes, failure: Failure) -> bool:
        """Record why the study failed; False when it has ended already: the first reason stays."""
        sql = (
            "UPDATE study SET failure_code = ?, failure_message = ?, failure_hint = ?"
            " WHERE digest = ? AND failure_code IS NULL AND published_at IS NULL AND withdrawn = 0 AND expired = 0"
            " AND NOT EXISTS (SELECT 1 FROM denial WHERE denial.study = study.digest)"
        )
        return self._change(study, sql, failure.code, failure.message, failure.hint, study)

    def withdraw(self, study: bytes) -> None:
        """Record that the analyst took an unpublished study back."""
        self._change(
            study, "UPDATE study SET withdrawn = 1 WHERE digest = ? AND withdrawn = 0 AND published_at IS NULL", study
        )

    def expire(self, study: bytes) -> None:
        """Record that an unpublished study's last day has passed."""
        self._change(
            study, "UPDATE study SET expired = 1 WHERE digest = ? AND expired = 0 AND published_at IS NULL", study
        )

    def publish(self, study: bytes, files: Iterable[ReleaseFile], *, at: str) -> bool:
        """Record the release and its files; False when the study ended otherwise before."""
        with self._transaction() as connection:
            sql = (
                "UPDATE study SET published_at = ? WHERE digest = ?"
                " AND published_at IS NULL AND withdrawn = 0 AND expired = 0 AND failure_code IS NULL"
                " AND NOT EXISTS (SELECT 1 FROM denial WHERE denial.study = study.digest)"
            )
            if connection.execute(sql, (at, study)).rowcount == 0:
                return False
            rows = [(study, file.path, file.size, file.sha256) for file in files]
            connection.executemany("REPLACE INTO release_file VALUES (?, ?, ?, ?)", rows)
            self._grow(connection, study)
        self.checkpoint()
        return True

    def checkpoint(self) -> None:
        """Move everything from the write-ahead log into the file itself: whoever loses the log then loses none of it."""
        with self._lock, full_disk_is_an_error("catalogue"):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def release_file(self, study: bytes, path: str) -> ReleaseFile | None:
        """A file of a published release by its exact name; None when the release has no such file."""
        with self._lock:
            query = "SELECT * FROM release_file WHERE study = ? AND path = ?"
            row = self._connection.execute(query, (study, path)).fetchone()
        return None if row is None else ReleaseFile(path=row["path"], size=row["size"], sha256=row["sha256"])

    def mark_linkage_removed(self, study: bytes) -> None:
        """Record that pseudonyms, bitmaps and staging files were deleted."""
        with self._transaction() as connection:
            connection.execute("UPDATE study SET linkage_removed = 1 WHERE digest = ?", (study,))
            connection.execute("DELETE FROM upload WHERE study = ?", (study,))
            connection.execute("UPDATE commitment SET nodes = x'' WHERE study = ?", (study,))

    # -- lists and alignment -------------------------------------------------------------------------------------------------

    def begin_list(self, study: bytes, party: str, *, size: int, sha256: bytes) -> StoredList:
        """The party's list of that size and digest; another one that is not complete is replaced by an empty one."""
        with self._transaction() as connection:
            query = "SELECT * FROM pseudonyms WHERE study = ? AND party = ?"
            row = connection.execute(query, (study, party)).fetchone()
            if row is None or (not row["complete"] and (row["size"], row["sha256"]) != (size, sha256)):
                connection.execute("REPLACE INTO pseudonyms VALUES (?, ?, ?, ?, 0, 0)", (study, party, size, sha256))
                row = connection.execute(query, (study, party)).fetchone()
        return _list(row)

    def commit_list(self, study: bytes, party: str, committed: int) -> None:
        """Record that everything before `committed` is on disk."""
        with self._transaction() as connection:
            sql = "UPDATE pseudonyms SET committed = ? WHERE study = ? AND party = ? AND complete = 0"
            connection.execute(sql, (committed, study, party))

    def forget_list(self, study: bytes, party: str) -> None:
        """Forget a list whose bytes turned out to be wrong."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM pseudonyms WHERE study = ? AND party = ? AND complete = 0", (study, party))

    def discard_list(self, study: bytes, party: str) -> None:
        """Forget a list, whole or not, of a party that the study went on without."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM pseudonyms WHERE study = ? AND party = ?", (study, party))

    def complete_list(self, study: bytes, party: str) -> None:
        """Record that the list is whole and checked."""
        self._change(
            study, "UPDATE pseudonyms SET complete = 1 WHERE study = ? AND party = ? AND complete = 0", study, party
        )

    def align(
        self, study: bytes, *, n_common: int, common_sha256: bytes, bitmaps: Mapping[str, tuple[int, bytes]]
    ) -> None:
        """Record the alignment, once: common count, digest of the common list, size and SHA-256 of each bitmap."""
        with self._transaction() as connection:
            sql = "UPDATE study SET n_common = ?, common_sha256 = ? WHERE digest = ? AND n_common IS NULL"
            if connection.execute(sql, (n_common, common_sha256, study)).rowcount == 0:
                return
            rows = [(study, party, size, sha256) for party, (size, sha256) in bitmaps.items()]
            connection.executemany("REPLACE INTO bitmap VALUES (?, ?, ?, ?)", rows)
            self._grow(connection, study)

    # -- columns -------------------------------------------------------------------------------------------------------------

    def add_column(self, study: bytes, column: StoredColumn) -> None:
        """Record a stored column and its receipt, and forget its upload; the first one stays, one that was damaged is whole."""
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE stored_column SET column_sha256 = ? WHERE study = ? AND unit = ? AND column_sha256 = x''",
                (column.column_sha256, study, column.unit),
            ).rowcount
            changed += connection.execute(
                "INSERT INTO stored_column VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    study,
                    column.unit,
                    column.upload_id,
                    column.artifact_sha256,
                    column.artifact_size,
                    column.n_records,
                    column.item_bytes,
                    column.column_sha256,
                    column.receipt.body,
                    column.receipt.signature,
                    column.receipt.certificate,
                ),
            ).rowcount
            connection.execute("DELETE FROM upload WHERE study = ? AND unit = ?", (study, column.unit))
            if changed:
                self._grow(connection, study)

    def lose_column(self, study: bytes, unit: int) -> None:
        """Record that a stored column was found damaged: it is waited for again, and learning begins anew with it."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE stored_column SET column_sha256 = x'' WHERE study = ? AND unit = ?", (study, unit)
            )
            connection.execute("UPDATE study SET learning = NULL WHERE digest = ?", (study,))
            self._grow(connection, study)

    def finished_upload(self, upload_id: str) -> tuple[bytes, StoredColumn] | None:
        """Study and column that an upload ended in; None when it has not."""
        with self._lock:
            query = "SELECT * FROM stored_column WHERE upload_id = ? AND column_sha256 <> x''"
            row = self._connection.execute(query, (upload_id,)).fetchone()
        return None if row is None else (row["study"], _column(row))

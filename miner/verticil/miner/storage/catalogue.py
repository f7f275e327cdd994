"""The catalogue: one SQLite file with every durable fact of every study.

Promises: a method that returns has its fact on the disk; each method is one transaction; repeating one is harmless and changes
no version; a version only grows. Facts are added and never rewritten, but for offsets, for what an upload that starts afresh
replaces, and for a column that was found damaged: its receipt stays, the digest of its file goes. It stores no state, no file
contents but documents and signatures, no data value. How the file is kept stands in `verticil.shared.storage.database`, its
tables in `schema`; `tables` has the parts beside the studies' own life, `scores` what Model I needs besides.

All methods block; callers on an event loop use ``asyncio.to_thread``. One connection, one lock: SQLite has one writer anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from verticil.miner.storage.audit import CatalogueSize
from verticil.miner.storage.catalogue_tables import (
    NOT_ENDED,
    STAYS,
    UNSTATED,
    AbsenceTable,
    CertificateTable,
    DeletionTable,
    ForgottenTable,
    LinkageTable,
    ListTable,
    ReviewTable,
    SubmissionTable,
    Table,
    UploadTable,
)
from verticil.miner.storage.records import (
    Bitmap,
    Closure,
    Failure,
    Hop,
    ReleaseFile,
    Revocation,
    StoredBlinded,
    StoredColumn,
    StoredList,
    StoredSignature,
    StudyRecord,
)
from verticil.miner.storage.schema import SCHEMA
from verticil.miner.storage.scores import ScoreTable
from verticil.shared.storage.database import Database

R = TypeVar("R")

_STUDIES_KNOWN: Final = 8
"""Studies whose stored columns are kept in memory."""
_FAIL: Final = "UPDATE study SET failure_code = ?, failure_message = ?, failure_hint = ? WHERE digest = ? AND "


class Catalogue(Table):
    """The facts in ``catalogue.sqlite``.

    Attributes:
        database: the file.
        scores: the facts of studies between peers (Model I).
        deletions: who took what back, and what was deleted.
        reviews: releases that wait for countersignatures.
        linkage: row orders.
        lists, blinded: lists on their way: of pseudonyms, by party; blinded ones, by owner and hop.
        absences: what became of studies without all of their parties.
        submissions: whose the studies are.
        certificates: those that parties showed last, and approvals that revoked ones had signed.
        forgotten: studies whose facts were lost.
        uploads: artifacts in transit.

    Args:
        path: the file; made when absent.

    Raises:
        DataFault: STATE_CORRUPT, the file is not a catalogue, or one of a newer version; DISK_FULL, nothing is harmed.
    """

    def __init__(self, path: Path) -> None:
        self.database = Database(path, SCHEMA)
        super().__init__(self.database)
        self._columns: dict[bytes, tuple[int, dict[int, StoredColumn]]] = {}
        self.scores = ScoreTable(self.database)
        self.deletions = DeletionTable(self.database)
        self.reviews = ReviewTable(self.database)
        self.linkage = LinkageTable(self.database)
        self.lists = ListTable(self.database, "pseudonyms", StoredList, ("party",))
        self.blinded = ListTable(self.database, "blinded", StoredBlinded, ("owner", "hop"))
        self.absences = AbsenceTable(self.database)
        self.submissions = SubmissionTable(self.database)
        self.certificates = CertificateTable(self.database)
        self.forgotten = ForgottenTable(self.database)
        self.uploads = UploadTable(self.database)

    def close(self) -> None:
        """Close the file of the catalogue."""
        self.database.close()

    # -- reading -------------------------------------------------------------------------------------------------------------

    def digests(self) -> tuple[bytes, ...]:
        """Return the proposal digests of all studies, oldest first."""
        return tuple(self.versions())

    def unsettled(self) -> tuple[bytes, ...]:
        """Return digests of the studies with something left to do or to delete, oldest first."""
        query = (
            f"SELECT digest FROM study WHERE linkage_removed = 0 OR columns_removed = 0 OR {UNSTATED} ORDER BY sequence"  # noqa: S608 constants
        )
        return tuple(self.database.read(bytes, query))

    def versions(self) -> dict[bytes, int]:
        """Return the version of every study, oldest first."""
        return self.database.by(bytes, int, "SELECT digest, version FROM study ORDER BY sequence")

    def version(self, digest: bytes) -> int | None:
        """Return the version of a study; None when it is unknown."""
        return self.database.first(int, "SELECT version FROM study WHERE digest = ?", (digest,))

    def known(self) -> CatalogueSize:
        """Return how much is known of all studies."""
        versions = self.versions().values()
        return CatalogueSize(studies=len(versions), versions=sum(versions))

    def with_effective(self, effective_digest: bytes) -> tuple[bytes, ...]:
        """Return digests of the studies with this effective study, newest first (a proposal may equal what another became)."""
        query = "SELECT digest FROM study WHERE effective_digest = ? ORDER BY sequence DESC"
        return tuple(self.database.read(bytes, query, (effective_digest,)))

    def study(self, digest: bytes) -> StudyRecord | None:
        """Return all facts of one study, read at one moment; None when it is unknown."""
        database, of_study = self.database, (digest,)

        def by_party(kind: type[R], table: str) -> dict[str, R]:
            return database.by(str, kind, f"SELECT party, * FROM {table} WHERE study = ?", of_study)  # noqa: S608 constants

        def reasons(table: str, what: str = "reason") -> dict[str, str]:
            return database.by(str, str, f"SELECT party, {what} FROM {table} WHERE study = ?", of_study)  # noqa: S608 constants

        with database.view():
            if (version := database.first(int, "SELECT version FROM study WHERE digest = ?", of_study)) is None:
                return None
            columns = self._columns_at(digest, version)
            query = "SELECT * FROM blinded WHERE study = ? ORDER BY owner, hop"
            hops = zip(database.read(Hop, query, of_study), database.read(StoredBlinded, query, of_study), strict=True)
            return database.only(
                StudyRecord,
                "SELECT * FROM study WHERE digest = ?",
                of_study,
                approvals=by_party(StoredSignature, "approval"),
                denials=reasons("denial"),
                lists=by_party(StoredList, "pseudonyms"),
                bitmaps=by_party(Bitmap, "bitmap"),
                confirmed=frozenset(database.read(str, "SELECT party FROM confirmation WHERE study = ?", of_study)),
                columns={unit: column for unit, column in columns.items() if column.column_sha256},
                damaged={unit: column for unit, column in columns.items() if not column.column_sha256},
                failure=database.first(
                    Failure,
                    "SELECT failure_code AS code, failure_message AS message, failure_hint AS hint FROM study"
                    " WHERE digest = ? AND failure_code IS NOT NULL",
                    of_study,
                ),
                revocations=by_party(Revocation, "revocation"),
                deletions=by_party(StoredSignature, "deletion"),
                review_manifest=database.first(bytes, "SELECT manifest_sha256 FROM review WHERE study = ?", of_study)
                or b"",
                countersignatures=by_party(StoredSignature, "countersignature"),
                commitments=by_party(StoredSignature, "commitment"),
                blinded={tuple(hop): entry for hop, entry in hops},
                declined=reasons("declined"),
                sub_model=database.first(StoredSignature, "SELECT * FROM sub_model WHERE study = ?", of_study),
                decided_at=database.first(str, "SELECT decided_at FROM sub_model WHERE study = ?", of_study),
                closure=database.first(Closure, "SELECT * FROM closure WHERE study = ?", of_study),
                void_approvals=reasons("void_approval", "revoked_at"),
            )

    def _columns_at(self, digest: bytes, version: int) -> dict[int, StoredColumn]:
        """Return the stored columns of a study, within a view of the database.

        A study has up to a thousand, and is asked for several times while each of them arrives: those that are known are not
        read again. Nothing of a column but its `column_sha256` changes, and the study's version with it.
        """
        known_at, columns = self._columns.pop(digest, (0, dict[int, StoredColumn]()))
        if known_at != version:
            names = "SELECT unit, column_sha256 FROM stored_column WHERE study = ?"
            there = self.database.by(int, bytes, names, (digest,))
            same_columns = {unit: column for unit, column in columns.items() if column.column_sha256 == there.get(unit)}
            query = "SELECT * FROM stored_column WHERE study = ?"
            if same_columns:
                for unit in there.keys() - same_columns.keys():
                    same_columns[unit] = self.database.only(StoredColumn, f"{query} AND unit = ?", (digest, unit))
                columns = {unit: same_columns[unit] for unit in there}
            else:
                columns = {column.unit: column for column in self.database.read(StoredColumn, query, (digest,))}
        if self.database.may_roll_back:
            return columns
        self._columns[digest] = version, columns
        if len(self._columns) > _STUDIES_KNOWN:
            self._columns.pop(next(iter(self._columns)))
        return columns

    # -- the study's life ----------------------------------------------------------------------------------------------------

    def add_study(self, digest: bytes, *, study_id: str, proposal: bytes, submitter: str, at: str) -> None:
        """Record a submission; one that is known already stays as it is."""
        self.database.insert(
            "study",
            digest=digest,
            study_id=study_id,
            version=1,
            proposal=proposal,
            submitter=submitter,
            submitted_at=at,
            conflict="(digest) DO NOTHING",
        )

    def add_approval(self, study: bytes, party: str, signed: StoredSignature) -> bool:
        """Record a party's approval; False when there is one: the first one stays."""
        return self._add(study, "approval", signed, party=party)

    def set_effective(self, study: bytes, effective: bytes, digest: bytes) -> None:
        """Record the effective study, once."""
        sql = "UPDATE study SET effective = ?, effective_digest = ? WHERE digest = ? AND effective_digest = x''"
        self._change(study, sql, effective, digest, study)

    def add_denial(self, study: bytes, party: str, reason: str) -> None:
        """Record a party's denial and what the person wrote; the first one stays."""
        self._add(study, "denial", party=party, reason=reason)

    def confirm(self, study: bytes, party: str) -> None:
        """Record that a party accepts the common list."""
        self._add(study, "confirmation", party=party)

    def set_learning(self, study: bytes, stage: str) -> None:
        """Record how far learning has come (``estimating``, then ``learning``); it never goes back."""
        behind = {"estimating": "learning IS NULL", "learning": "learning IS NULL OR learning = 'estimating'"}[stage]
        self._change(study, f"UPDATE study SET learning = ? WHERE digest = ? AND ({behind})", stage, study)  # noqa: S608 constants

    def add_attempt(self, study: bytes) -> int:
        """Count learning that came to nothing and is tried again; returns how often it did."""
        with self.database.transaction():
            self.database.write("UPDATE study SET attempts = attempts + 1 WHERE digest = ?", (study,))
            return self.database.only(int, "SELECT attempts FROM study WHERE digest = ?", (study,))

    def fail(self, study: bytes, failure: Failure) -> bool:
        """Record why the study failed; False when it has ended already: the first reason stays."""
        sql = _FAIL + NOT_ENDED
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
        with self.database.transaction():
            sql = f"UPDATE study SET published_at = ? WHERE digest = ? AND {NOT_ENDED}"  # noqa: S608 constants
            if not self._change(study, sql, at, study):
                return False
            for file in files:
                self.database.insert("release_file", file, study=study, conflict="REPLACE")
        self.checkpoint()
        return True

    def checkpoint(self) -> None:
        """Move everything from the write-ahead log into the file itself: it is kept when the log is lost."""
        self.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def release_file(self, study: bytes, path: str) -> ReleaseFile | None:
        """Return a file of a published release by its exact name; None when the release has no such file."""
        query = "SELECT * FROM release_file WHERE study = ? AND path = ?"
        return self.database.first(ReleaseFile, query, (study, path))

    def release_files(self, study: bytes) -> list[ReleaseFile]:
        """Return all files of a published release, by name; empty: it is not published."""
        query = (
            "SELECT release_file.* FROM release_file JOIN study ON study.digest = release_file.study"
            " WHERE release_file.study = ? AND study.published_at IS NOT NULL ORDER BY path"
        )
        return self.database.read(ReleaseFile, query, (study,))

    def mark_linkage_removed(self, study: bytes) -> None:
        """Record that pseudonyms, bitmaps and staging files were deleted."""
        with self.database.transaction():
            self.database.write("UPDATE study SET linkage_removed = 1 WHERE digest = ?", (study,))
            self.database.write("DELETE FROM upload WHERE study = ?", (study,))
            self.database.write("UPDATE commitment SET nodes = x'' WHERE study = ?", (study,))

    # -- alignment -----------------------------------------------------------------------------------------------------------

    def align(
        self, study: bytes, *, n_common: int, common_sha256: bytes, bitmaps: Mapping[str, tuple[int, bytes]]
    ) -> None:
        """Record the alignment, once: common count, digest of the common list, size and SHA-256 of each bitmap."""
        with self.database.transaction():
            sql = "UPDATE study SET n_common = ?, common_sha256 = ? WHERE digest = ? AND n_common IS NULL"
            if self._change(study, sql, n_common, common_sha256, study):
                rows = [(study, party, size, sha256) for party, (size, sha256) in bitmaps.items()]
                self.database.write_each("REPLACE INTO bitmap VALUES (?, ?, ?, ?)", rows)

    def begin_round(self, study: bytes) -> None:
        """Record that the miner's part of a round of masked tables is on the disk, once; from then on it must be there."""
        self._change(study, "UPDATE study SET uploading = 1 WHERE digest = ? AND uploading = 0", study)

    # -- columns -------------------------------------------------------------------------------------------------------------

    def add_column(self, study: bytes, column: StoredColumn) -> None:
        """Record a stored column and its receipt, and forget its upload; the first one stays, one that was damaged is whole."""
        with self.database.transaction():
            n_changed = self.database.write(
                "UPDATE stored_column SET column_sha256 = ? WHERE study = ? AND unit = ? AND column_sha256 = x''",
                (column.column_sha256, study, column.unit),
            )
            n_changed += self.database.insert("stored_column", column, study=study, conflict=STAYS)
            self.database.write("DELETE FROM upload WHERE study = ? AND unit = ?", (study, column.unit))
            if n_changed:
                self._grow(study)

    def lose_column(self, study: bytes, unit: int) -> None:
        """Record that a stored column was found damaged: it is waited for again, and learning begins anew with it."""
        with self.database.transaction():
            self.database.write(
                "UPDATE stored_column SET column_sha256 = x'' WHERE study = ? AND unit = ?", (study, unit)
            )
            self.database.write("UPDATE study SET learning = NULL WHERE digest = ?", (study,))
            self._grow(study)

    def finished_upload(self, upload_id: str) -> tuple[bytes, StoredColumn] | None:
        """Return study and column that an upload ended in; None when it has not."""
        query = "SELECT study, * FROM stored_column WHERE upload_id = ? AND column_sha256 <> x''"
        return next(iter(self.database.by(bytes, StoredColumn, query, (upload_id,)).items()), None)

"""The catalogue's parts beside the studies themselves.

Promises are those of `catalogue`, whose database they share: a method that returns has its fact on the disk, each is one
transaction, repeating one is harmless. A fact that somebody waits for makes the study's version grow in the same transaction.
Closures, revocations and denials are never removed; of statements and reasons the first one stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

from verticil.miner.storage.records import ReleaseFile, Seen, StoredList, StoredSignature, Upload
from verticil.shared.federation.alignment.merkle import NODE_BYTES, Tree
from verticil.shared.storage.database import Database
from verticil.shared.storage.row_values import Cell
from verticil.shared.study.names import Named

L = TypeVar("L", bound=StoredList)

NOT_ENDED: Final = (
    "withdrawn = 0 AND expired = 0 AND published_at IS NULL AND failure_code IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM denial WHERE denial.study = study.digest)"
)
"""No end of the study is recorded."""
UNSTATED: Final = (
    "EXISTS (SELECT 1 FROM revocation r WHERE r.study = study.digest AND NOT EXISTS"
    " (SELECT 1 FROM deletion d WHERE d.study = r.study AND d.party = r.party))"
)
"""A party revoked the study and has no statement yet."""
STAYS: Final = "DO NOTHING"
"""What a second fact of a kind changes: the first one stays."""


class Table:
    """A part of the catalogue.

    Args:
        database: the catalogue's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def _grow(self, study: bytes) -> None:
        """Raise a study's version, within a transaction."""
        self._database.write("UPDATE study SET version = version + 1 WHERE digest = ?", (study,))

    def _change(self, study: bytes, sql: str, *values: Cell) -> bool:
        """Run one statement; when it changed a row, the study's version grows in the same transaction."""
        with self._database.transaction():
            changed = self._database.write(sql, values) > 0
            if changed:
                self._grow(study)
        return changed

    def _add(self, study: bytes, table: str, *values: object, **columns: Cell) -> bool:
        """Add one row of a study, unless there is one; the study's version grows with it."""
        with self._database.transaction():
            added = self._database.insert(table, *values, study=study, conflict=STAYS, **columns) > 0
            if added:
                self._grow(study)
        return added


class ForgottenTable(Table):
    """Digests of the studies whose facts were lost, and which the operator ended."""

    def add(self, digests: frozenset[bytes], at: str) -> None:
        """Record that they are ended; the first time stays."""
        rows = [(digest, at) for digest in sorted(digests)]
        self._database.write_each("INSERT INTO forgotten VALUES (?, ?) ON CONFLICT DO NOTHING", rows)

    def among(self, digests: Iterable[bytes]) -> list[bytes]:
        """Return those of them that are among `digests`, in order."""
        ended_digests = self._database.read(bytes, "SELECT digest FROM forgotten")
        return sorted({*ended_digests}.intersection(digests))


class CertificateTable(Table):
    """Which certificate each party showed last, and approvals that a revoked one had signed."""

    def void_approval(self, study: bytes, party: str, certificate: bytes, *, revoked_at: str) -> bool:
        """Drop a party's approval that was signed with this certificate, unless the study is effective already.

        Returns:
            Whether it was dropped; False: another one took its place, or it counts for good.
        """
        with self._database.transaction():
            sql = (
                "DELETE FROM approval WHERE study = ? AND party = ? AND certificate = ?"
                " AND EXISTS (SELECT 1 FROM study WHERE digest = ? AND effective_digest = x'')"
            )
            if not self._change(study, sql, study, party, certificate, study):
                return False
            self._database.write("REPLACE INTO void_approval VALUES (?, ?, ?)", (study, party, revoked_at))
            return True

    def keep(self, showings: Iterable[Seen]) -> None:
        """Record the certificates that parties showed last."""
        with self._database.transaction():
            for item in showings:
                self._database.insert("party_certificate", item, conflict="REPLACE")

    def seen(self) -> dict[str, Seen]:
        """Return the certificate that each party showed last."""
        return self._database.by(str, Seen, "SELECT party, * FROM party_certificate")


class SubmissionTable(Table):
    """Whose the studies are: by which names they are called, how many an analyst has, what the operator closed.

    What limits an analyst is counted from the studies themselves, so a restart forgets none.
    """

    def names(self) -> tuple[Named, ...]:
        """Return what every study is called, oldest first."""
        return tuple(self._database.read(Named, "SELECT digest, study_id, submitter FROM study ORDER BY sequence"))

    def not_ended(self, submitter: str) -> tuple[bytes, ...]:
        """Return digests of an analyst's studies of which no end is recorded, oldest first; some may be overdue by the clock."""
        sql = f"SELECT digest FROM study WHERE submitter = ? AND {NOT_ENDED} ORDER BY sequence"  # noqa: S608 constants
        return tuple(self._database.read(bytes, sql, (submitter,)))

    def since(self, submitter: str, moment: str) -> int:
        """Return how many studies an analyst has submitted after a moment (ISO 8601)."""
        sql = "SELECT COUNT(*) FROM study WHERE submitter = ? AND submitted_at > ?"
        return self._database.only(int, sql, (submitter, moment))

    def close(self, study: bytes, reason: str, at: str) -> bool:
        """Record that the miner's operator closed a study, which is withdrawn by this; False when it has ended already.

        Args:
            study: digest of the proposal.
            reason: what the operator wrote.
            at: ISO 8601.
        """
        with self._database.transaction():
            sql = f"UPDATE study SET withdrawn = 1 WHERE digest = ? AND {NOT_ENDED}"  # noqa: S608 constants
            if not self._change(study, sql, study):
                return False
            self._database.insert("closure", study=study, reason=reason, closed_at=at)
        return True


class AbsenceTable(Table):
    """Parties that a study goes on without: who denied it while it can, and the sub-model that it became.

    The sub-model, its effective study and the miner's signed statement are one fact: written in one transaction, once, and only
    while the study is at the version at which it was decided. So a part that arrives in the meantime is never left out, and a
    miner that dies in the midst of the decision decides anew.
    """

    def decline(self, study: bytes, party: str, reason: str) -> None:
        """Record that a party denied a study that may go on without it, and what the person wrote; the first reason stays."""
        self._add(study, "declined", party=party, reason=reason)

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
        with self._database.transaction():
            sql = (
                "UPDATE study SET effective = ?, effective_digest = ? WHERE digest = ? AND version = ? AND n_common IS NULL"
                " AND failure_code IS NULL AND withdrawn = 0 AND expired = 0"
                " AND NOT EXISTS (SELECT 1 FROM sub_model WHERE sub_model.study = study.digest)"
            )
            if not self._change(study, sql, effective, digest, study, version):
                return False
            self._database.insert("sub_model", statement, study=study, decided_at=at)
        return True


class ReviewTable(Table):
    """Releases that wait, and the parties' countersignatures of them.

    A release whose manifest differs from the one that waited (it was made anew after its files were damaged) waits anew:
    countersignatures of the other one are dropped in the same transaction.
    """

    def begin(self, study: bytes, manifest_sha256: bytes, files: Iterable[ReleaseFile]) -> bool:
        """Record that a release waits, and the files that the parties may fetch; False when it did already."""
        with self._database.transaction():
            if self._waits(study, manifest_sha256):
                return False
            self._database.write("REPLACE INTO review VALUES (?, ?)", (study, manifest_sha256))
            self._database.write("DELETE FROM countersignature WHERE study = ?", (study,))
            self._database.write("DELETE FROM release_file WHERE study = ?", (study,))
            for file in files:
                self._database.insert("release_file", file, study=study)
            self._grow(study)
        return True

    def add(self, study: bytes, party: str, manifest_sha256: bytes, signed: StoredSignature) -> None:
        """Record a countersignature of the release that waits; the first one of a party stays."""
        with self._database.transaction():
            if self._waits(study, manifest_sha256):
                self._add(study, "countersignature", signed, party=party)

    def _waits(self, study: bytes, manifest_sha256: bytes) -> bool:
        query = "SELECT 1 FROM review WHERE study = ? AND manifest_sha256 = ?"
        return self._database.has(query, (study, manifest_sha256))


class DeletionTable(Table):
    """Who revoked a study, and what the miner signed that it deleted.

    A statement is written in the transaction that says that the columns are gone, after they are; there is one for each party.
    """

    def revoke(self, study: bytes, party: str, reason: str, at: str, *, ends: bool) -> None:
        """Record that a party took its approval back; the first reason stays.

        Args:
            study: digest of the proposal.
            party: who.
            reason: what the person wrote.
            at: ISO 8601.
            ends: the study has not ended yet: it is withdrawn by this.
        """
        with self._database.transaction():
            if self._add(study, "revocation", party=party, reason=reason, revoked_at=at) and ends:
                self._database.write(
                    "UPDATE study SET withdrawn = 1 WHERE digest = ? AND published_at IS NULL", (study,)
                )

    def record(self, study: bytes, statements: Mapping[str, StoredSignature]) -> None:
        """Record that the study's randomized columns are deleted, and the statements that the parties get."""
        with self._database.transaction():
            self._database.write("UPDATE study SET columns_removed = 1 WHERE digest = ?", (study,))
            new = [
                self._database.insert("deletion", item, study=study, party=party, conflict=STAYS)
                for party, item in statements.items()
            ]
            if any(new):
                self._grow(study)


class UploadTable(Table):
    """Artifacts in transit: how much of each is on the disk, and how much is still to come.

    An upload that is finished is forgotten with the same transaction that records its column (`Catalogue.add_column`).
    """

    def begin(self, study: bytes, upload_id: str, *, unit: int, size: int, sha256: bytes) -> Upload:
        """Begin the upload with this id; another upload of the same unit is replaced by an empty one."""
        with self._database.transaction():
            statement = "DELETE FROM upload WHERE study = ? AND unit = ? AND upload_id != ?"
            self._database.write(statement, (study, unit, upload_id))
            upload = Upload(upload_id=upload_id, study=study, unit=unit, size=size, sha256=sha256, committed=0)
            self._database.insert("upload", upload, conflict=STAYS)
            self._change(study, "UPDATE study SET uploading = 1 WHERE digest = ? AND uploading = 0", study)
            return self._database.only(Upload, "SELECT * FROM upload WHERE upload_id = ?", (upload_id,))

    def find(self, upload_id: str) -> Upload | None:
        """Return the upload with this id; None when there is none or it is finished."""
        return self._database.first(Upload, "SELECT * FROM upload WHERE upload_id = ?", (upload_id,))

    def of_study(self, study: bytes) -> tuple[Upload, ...]:
        """Return the study's uploads in transit."""
        return tuple(self._database.read(Upload, "SELECT * FROM upload WHERE study = ?", (study,)))

    def outstanding_bytes(self) -> int:
        """Return what is still to come of all lists and artifacts that were begun: room that is promised and not yet used."""
        query = (
            "SELECT (SELECT coalesce(sum(size - committed), 0) FROM upload)"
            " + (SELECT coalesce(sum(size - committed), 0) FROM pseudonyms JOIN study ON study = digest"
            " WHERE complete = 0 AND linkage_removed = 0)"
        )
        return self._database.only(int, query)

    def commit(self, upload_id: str, offset: int) -> None:
        """Record that everything before `offset` is on disk."""
        self._database.write("UPDATE upload SET committed = ? WHERE upload_id = ?", (offset, upload_id))

    def forget(self, upload_id: str) -> None:
        """Forget an upload whose bytes turned out to be wrong."""
        self._database.write("DELETE FROM upload WHERE upload_id = ?", (upload_id,))


class LinkageTable(Table):
    """Linkage ``order-commitment`` and ``dh-psi``: the parties' statements and row orders; none is rewritten."""

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
        nodes, n_records = (b"", 0) if tree is None else (b"".join(tree.nodes), tree.n_records)
        with self._database.transaction():
            added = self._add(study, "commitment", signed, party=party, n_records=n_records, nodes=nodes)
            if added and confirms:
                self._database.insert("confirmation", study=study, party=party, conflict=STAYS)
        return added

    def trees(self, study: bytes) -> dict[str, Tree]:
        """Return the row orders that the parties sent."""
        with self._database.view():
            counts = self._database.by(str, int, "SELECT party, n_records FROM commitment WHERE study = ?", (study,))
            nodes = self._database.by(str, bytes, "SELECT party, nodes FROM commitment WHERE study = ?", (study,))
        return {
            party: Tree(
                n_records=counts[party],
                nodes=tuple(data[i : i + NODE_BYTES] for i in range(0, len(data), NODE_BYTES)),
            )
            for party, data in nodes.items()
        }


class ListTable(Table, Generic[L]):
    """Lists on their way: a party's pseudonyms, or the blinded list of an owner behind a hop.

    Args:
        database: the catalogue's.
        name: of the table.
        kind: what a row is.
        keys: the columns that, besides the study, say which list a row is of; the methods take their values as `key`.
    """

    def __init__(self, database: Database, name: str, kind: type[L], keys: tuple[str, ...]) -> None:
        super().__init__(database)
        self._name, self._kind, self._keys = name, kind, keys
        self._where = " AND ".join(f"{column} = ?" for column in ("study", *keys))

    def find(self, study: bytes, key: tuple[Cell, ...]) -> L | None:
        """Return the list; None when nothing of it has come."""
        query = f"SELECT * FROM {self._name} WHERE {self._where}"  # noqa: S608 constants
        return self._database.first(self._kind, query, (study, *key))

    def begin(self, study: bytes, key: tuple[Cell, ...], new_list: L) -> L:
        """Begin the list of the announced size and digest; it replaces, empty, another one that is not complete."""
        with self._database.transaction():
            present_list = self.find(study, key)
            if present_list is None or (not present_list.complete and not present_list.is_same(new_list)):
                present_list = new_list
                columns = dict(zip(self._keys, key, strict=True))
                self._database.insert(self._name, present_list, study=study, conflict="REPLACE", **columns)
        return present_list

    def commit(self, study: bytes, key: tuple[Cell, ...], offset: int) -> None:
        """Record that everything before `offset` is on disk."""
        sql = f"UPDATE {self._name} SET committed = ? WHERE {self._where} AND complete = 0"  # noqa: S608 constants
        self._database.write(sql, (offset, study, *key))

    def forget(self, study: bytes, key: tuple[Cell, ...]) -> None:
        """Forget a list whose bytes turned out to be wrong."""
        sql = f"DELETE FROM {self._name} WHERE {self._where} AND complete = 0"  # noqa: S608 constants
        self._database.write(sql, (study, *key))

    def discard(self, study: bytes, key: tuple[Cell, ...]) -> None:
        """Forget a list, whole or not."""
        self._database.write(f"DELETE FROM {self._name} WHERE {self._where}", (study, *key))  # noqa: S608 constants

    def complete(self, study: bytes, key: tuple[Cell, ...]) -> None:
        """Record that the list is whole and checked."""
        sql = f"UPDATE {self._name} SET complete = 1 WHERE {self._where} AND complete = 0"  # noqa: S608 constants
        self._change(study, sql, study, *key)

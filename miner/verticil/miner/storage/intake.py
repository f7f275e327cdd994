"""Taking in what parties send: bytes at a committed offset, then a check of the whole, then a durable fact.

Promises: bytes are written at the committed offset and fsynced, then the offset is committed, then the caller may acknowledge,
so an acknowledged byte survives SIGKILL and a power cut, and bytes behind the offset (an abandoned write) are overwritten.
Nothing counts before it is verified whole: a pseudonym list by digest and order; an artifact by digest, header, record count,
range of codes and, where a record is a set of categories, their order. Finishing twice gives the same receipt, byte for byte.
Every call may be repeated at any time.

A blinded list (linkage ``dh-psi``) belongs to its owner and makes one hop after the other, see
`verticil.shared.federation.alignment.statements.sender`; tokens keep the order in which the owner sent them. The owner's own list
is strictly ascending, so its order says nothing; no list has a token twice. Whether a token is a point, the next party finds out
when it blinds it: the miner computes nothing with it.

It does not ask who sends and whether the study's state allows it: `verticil.miner.service` does, before it calls. All methods
block. Two streams for one upload are safe: the second to write finds that the offset has moved.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import rfc8785

from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.catalogue_tables import ListTable
from verticil.miner.storage.linkage import PSEUDONYM_BYTES, TOKEN_BYTES, first_disorder, read_list, repeated_tokens
from verticil.miner.storage.records import (
    StoredBlinded,
    StoredColumn,
    StoredList,
    StoredSignature,
    StudyRecord,
    Upload,
)
from verticil.miner.storage.store import (
    Store,
    StudyFiles,
    append_durably,
    full_disk_is_an_error,
    remove_durably,
    replace_durably,
)
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.federation.alignment.statements import sender
from verticil.shared.numerics.model.artifact import packed_size, unpack_parts
from verticil.shared.storage.row_values import Cell
from verticil.shared.study.approval import held_approval
from verticil.shared.study.document import Study
from verticil.shared.study.unit import Unit

L = TypeVar("L", bound=StoredList)


def _item_bytes(unit: Unit) -> int:
    return 1 if unit.transition.n_states <= 256 else 2


def _column_bytes(unit: Unit, n_records: int) -> int:
    return n_records * unit.transition.codes_per_record * _item_bytes(unit)


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _is_whole(path: Path, sha256: bytes) -> bool:
    try:
        return _sha256(path) == sha256
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.EIO}:
            raise
        return False


def _wrong_offset(what: str, offset: int, committed_offset: int) -> PeerFault:
    return PeerFault(
        "OFFSET_MISMATCH",
        f"{what}: data for offset {offset}, expected offset {committed_offset}",
        hint="ask for the committed offset and go on from there",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingList(Generic[L]):
    """A list on its way to the disk: a party's pseudonyms, or the blinded list of an owner behind a hop.

    Attributes:
        name: for messages.
        study: proposal digest.
        part, whole: its file while it arrives, and when it was checked.
        table, key: where its fact is.
        held: its fact in the record that the caller read; None: there was none.
        before: the fact of the list that must be complete before this one begins, of the same size; None: there is none.
        follows: whether there must be such a list.
        item_bytes: of one pseudonym or token.
        too_short: the problem of a list of {0} records where {1} are needed.
        changed: the hint for a sender that announces other bytes than those of a complete list.
        promised: what other uploads have still to send needs room before this list does.
        problem: what is wrong with the whole bytes; empty: nothing.
        sent_by: for the message of that; empty: the name says it.
    """

    name: str
    study: bytes
    part: Path
    whole: Path
    table: ListTable[L]
    key: tuple[Cell, ...]
    held: L | None
    before: StoredList | None = None
    follows: bool = False
    item_bytes: int
    too_short: str
    changed: str
    promised: bool = False
    problem: Callable[[Path, StoredList], str]
    sent_by: str = ""


class Intake:
    """Pseudonym lists, blinded lists and artifacts on their way to the disk.

    Args:
        store: files and quotas.
        catalogue: facts.
    """

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._table = threading.Lock()
        self._promising = threading.Lock()  # who asks for room sees what everybody before was promised
        self._ended: set[bytes] = set()

    @contextlib.contextmanager
    def _exclusive(self, study: bytes, path: Path) -> Generator[None]:
        """Hold the only writer of `path`, of a study whose files are not about to be deleted."""
        with self._table:
            lock = self._locks[os.fspath(path)]
        with lock:
            if study in self._ended:
                raise PeerFault("NOT_READY", "the study has ended", hint="poll for the state")
            yield

    def end(self, digest: bytes) -> None:
        """Take in nothing more of a study, and return when nothing of it is being written: its files may be deleted then."""
        below = os.path.join(self._store.study(digest).root, "")
        with self._table:
            self._ended.add(digest)
            locks = {name: lock for name, lock in self._locks.items() if name.startswith(below)}
        for lock in locks.values():
            with lock:
                pass
        with self._table:
            for name in locks:
                self._locks.pop(name, None)

    def used_bytes(self, record: StudyRecord, study: Study) -> int:
        """Return the number of bytes that the study has stored or been promised: lists, artifacts in transit, columns."""
        n = record.n_common or 0
        lists = sum(item.size for item in record.lists.values())
        transit = sum(
            item.size + _column_bytes(study.units[item.unit], n)
            for item in self._catalogue.uploads.of_study(record.digest)
        )
        lists += sum(item.size for item in record.blinded.values())
        return lists + transit + sum(_column_bytes(study.units[unit], n) for unit in record.columns)

    # -- lists ---------------------------------------------------------------------------------------------------------------

    def pseudonyms(self, record: StudyRecord, study: Study, party: str) -> ArrivingList[StoredList]:
        """Return the pseudonym list of a party.

        Args:
            record: facts of the study.
            study: the proposal.
            party: the sender.
        """
        files, position = self._store.study(record.digest), study.parties.index(party)
        return ArrivingList(
            name=f"pseudonym list of party '{party}'",
            study=record.digest,
            part=files.pseudonyms(position, complete=False),
            whole=files.pseudonyms(position, complete=True),
            table=self._catalogue.lists,
            key=(party,),
            held=record.lists.get(party),
            item_bytes=PSEUDONYM_BYTES,
            too_short="{0} records, expected at least {1} in common",
            changed="the table, its ids or the linkage key changed after it was sent; the study must be submitted anew",
            promised=True,
            problem=_problem_of_list,
        )

    def blinded(self, record: StudyRecord, study: Study, owner: int, hop: int) -> ArrivingList[StoredBlinded]:
        """Return the blinded list of an owner, by position in the study, behind a hop.

        Args:
            record: facts of the study.
            study: as it is carried out.
            owner: whose records.
            hop: station.
        """
        files = self._store.study(record.digest)
        return ArrivingList(
            name=f"blinded list of party '{study.parties[owner]}', hop {hop}",
            study=record.digest,
            part=files.blinded(owner, hop, complete=False),
            whole=files.blinded(owner, hop, complete=True),
            table=self._catalogue.blinded,
            key=(owner, hop),
            held=record.blinded.get((owner, hop)),
            before=record.blinded.get((owner, hop - 1)),
            follows=hop > 0,
            item_bytes=TOKEN_BYTES,
            too_short="fewer records than the {1} that are expected in common",
            changed="table or state of the party changed after it was sent; the study must be submitted anew",
            problem=lambda path, held: _problem_of_tokens(path, held, own=hop == 0),
            sent_by=f", sent by party '{sender(study.parties, owner, hop)}'",
        )

    def begin_list(
        self, arriving: ArrivingList[L], record: StudyRecord, study: Study, new_list: L, *, minimum: int
    ) -> L:
        """Say how much of a list is stored already; record that it begins when nothing is and there is room for it.

        Args:
            arriving: which list.
            record: facts of the study.
            study: the study.
            new_list: the list with the size and SHA-256 that its sender announces, and nothing of it stored.
            minimum: the smallest common count that the study and its approvals accept.

        Raises:
            PeerFault: MESSAGE_INVALID for a size that is no list, or not that of the hop before; NOT_READY, the hop before is not
                there; ARTIFACT_INVALID when another list is stored already; RESOURCE_EXHAUSTED.
            Refusal: LINKAGE_TOO_SMALL, the list alone is shorter than the minimum.
        """
        name, size, sha256, present_list = arriving.name, new_list.size, new_list.sha256, arriving.held
        if size % arriving.item_bytes or size == 0 or len(sha256) != 32:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"{name}: {size} bytes and a digest of {len(sha256)} bytes,"
                f" expected a positive multiple of {arriving.item_bytes} and 32",
            )
        if size < minimum * arriving.item_bytes:
            raise Refusal(
                "LINKAGE_TOO_SMALL",
                f"{name}: {arriving.too_short.format(size // arriving.item_bytes, minimum)}",
                hint="is the party's table whole? Otherwise the study asks for too many common records",
            )
        if arriving.follows:
            if arriving.before is None or not arriving.before.complete:
                raise PeerFault("NOT_READY", f"{name}: the hop before it is not there yet", hint="poll for the state")
            if arriving.before.size != size:
                raise PeerFault("MESSAGE_INVALID", f"{name}: {size} bytes, expected {arriving.before.size}, as it came")
        if present_list is not None and present_list.complete:
            if not present_list.is_same(new_list):
                raise PeerFault(
                    "ARTIFACT_INVALID",
                    f"{name}: another list is stored already, expected the same bytes",
                    hint=arriving.changed,
                )
            return present_list
        with self._exclusive(record.digest, arriving.part), self._promising:
            used_bytes = self.used_bytes(record, study) - (present_list.size if present_list else 0)
            offset = present_list.committed if present_list and present_list.is_same(new_list) else 0
            others = 0
            if arriving.promised:
                others = self._catalogue.uploads.outstanding_bytes() - (
                    present_list.size - present_list.committed if present_list else 0
                )
            self._store.ensure_room(
                name, needed_bytes=size - offset, used_bytes=used_bytes + offset, promised_bytes=others
            )
            self._store.study(record.digest).prepare()
            return arriving.table.begin(record.digest, arriving.key, new_list)

    def append_list(self, arriving: ArrivingList[L], *, sha256: bytes, offset: int, data: bytes) -> int:
        """Write and commit bytes of the list with this digest; returns the committed offset.

        Raises:
            PeerFault: OFFSET_MISMATCH, also when another list took its place; MESSAGE_INVALID, more bytes than announced.
            DataFault: DISK_FULL.
        """
        study, key = arriving.study, arriving.key
        with self._exclusive(study, arriving.part):
            present_list = arriving.table.find(study, key)
            if (
                present_list is None
                or present_list.complete
                or present_list.sha256 != sha256
                or present_list.committed != offset
            ):
                raise _wrong_offset(arriving.name, offset, present_list.committed if present_list else 0)
            self._append(
                arriving.part,
                offset,
                data,
                present_list.size,
                lambda committed: arriving.table.commit(study, key, committed),
            )
        return offset + len(data)

    def complete_list(self, arriving: ArrivingList[L]) -> None:
        """Check a list that has arrived, and record it. Repeating it is harmless.

        Raises:
            PeerFault: ARTIFACT_INVALID, digest or order are wrong, or tokens are there twice (the list is forgotten and may be
                sent again); OFFSET_MISMATCH, bytes are missing.
        """
        study, key, table = arriving.study, arriving.key, arriving.table
        with self._exclusive(study, arriving.part):
            present_list = table.find(study, key)
            if present_list is not None and present_list.complete:
                return
            if present_list is None or present_list.committed != present_list.size:
                raise _wrong_offset(
                    arriving.name,
                    present_list.size if present_list else 0,
                    present_list.committed if present_list else 0,
                )
            source = (
                arriving.part if arriving.part.exists() else arriving.whole
            )  # killed between the renaming and the fact
            if problem := arriving.problem(source, present_list):
                remove_durably(source)
                table.forget(study, key)
                raise PeerFault("ARTIFACT_INVALID", f"{arriving.name}{arriving.sent_by}: {problem}")
            if source == arriving.part:
                replace_durably(arriving.part, arriving.whole)
            table.complete(study, key)

    def discard_list(self, arriving: ArrivingList[L]) -> None:
        """Delete what came of the list of a party that the study went on without: the files, then the fact. Repeatable."""
        with self._exclusive(arriving.study, arriving.part):
            remove_durably(arriving.part)
            remove_durably(arriving.whole)
            arriving.table.discard(arriving.study, arriving.key)

    # -- artifacts -----------------------------------------------------------------------------------------------------------

    def begin_upload(
        self, record: StudyRecord, effective: Study, unit: int, *, size: int, sha256: bytes
    ) -> Upload | StoredColumn:
        """Say how much of a unit's artifact is stored, or return the stored column with its receipt.

        Raises:
            PeerFault: ARTIFACT_INVALID, the size does not fit the common count, or another artifact is stored already;
                RESOURCE_EXHAUSTED; NOT_READY, there is no alignment.
        """
        name = f"unit {unit} ({', '.join(effective.units[unit].variables)})"
        if record.n_common is None:
            raise PeerFault("NOT_READY", f"{name}: the common records are not known yet")
        column = record.columns.get(unit) or record.damaged.get(unit)
        if column is not None:
            if (column.artifact_sha256, column.artifact_size) != (sha256, size):
                raise PeerFault(
                    "ARTIFACT_INVALID",
                    f"{name}: another artifact is stored already, expected the same bytes",
                    hint="randomization is sticky: the same data and secret give the same bytes; was one of them changed?",
                )
            if unit in record.columns:
                return column
        channel = effective.units[unit].transition
        n_bytes = packed_size(record.n_common, channel.n_states, codes_per_record=channel.codes_per_record)
        if size != n_bytes or len(sha256) != 32:
            raise PeerFault(
                "ARTIFACT_INVALID",
                f"{name}: artifact of {size} bytes with a digest of {len(sha256)} bytes, expected {n_bytes} and 32",
                hint="an artifact holds the common records only, in common order",
            )
        identity = hashlib.sha256(
            record.digest + unit.to_bytes(4, "big") + size.to_bytes(8, "big") + sha256
        ).hexdigest()[:32]
        files = self._store.study(record.digest)
        with self._exclusive(record.digest, files.staging(unit)), self._promising:
            column_bytes = _column_bytes(effective.units[unit], record.n_common)
            earlier = next(
                (item for item in self._catalogue.uploads.of_study(record.digest) if item.unit == unit), None
            )
            used_bytes = self.used_bytes(record, effective) - (earlier.size + column_bytes if earlier else 0)
            offset = earlier.committed if earlier and earlier.upload_id == identity else 0
            self._store.ensure_room(
                name,
                needed_bytes=size - offset + column_bytes,
                used_bytes=used_bytes + offset,
                promised_bytes=self._catalogue.uploads.outstanding_bytes()
                - (earlier.size - earlier.committed if earlier else 0),
            )
            files.prepare()
            return self._catalogue.uploads.begin(record.digest, identity, unit=unit, size=size, sha256=sha256)

    def append_upload(self, upload_id: str, *, offset: int, data: bytes) -> int:
        """Write and commit bytes of an artifact; returns the committed offset.

        Raises:
            PeerFault: OFFSET_MISMATCH; MESSAGE_INVALID, more bytes than announced.
            DataFault: DISK_FULL.
        """
        upload = self._catalogue.uploads.find(upload_id)
        if upload is None:
            raise _wrong_offset("artifact", offset, 0)
        path = self._store.study(upload.study).staging(upload.unit)
        with self._exclusive(upload.study, path):
            upload = self._catalogue.uploads.find(upload_id)
            if upload is None or upload.committed != offset:
                raise _wrong_offset("artifact", offset, upload.committed if upload else 0)
            self._append(
                path, offset, data, upload.size, lambda committed: self._catalogue.uploads.commit(upload_id, committed)
            )
        return offset + len(data)

    def finish_upload(
        self,
        upload_id: str,
        record: StudyRecord,
        effective: Study,
        *,
        miner: str,
        received_at: str,
        sign: Callable[[bytes], StoredSignature],
    ) -> StoredColumn:
        """Verify an artifact, store its column, receipt it.

        Args:
            upload_id: from `begin_upload`.
            record: facts of the upload's study.
            effective: the effective study.
            miner: name that the receipt bears.
            received_at: ISO 8601, for the receipt.
            sign: signs the receipt's body.

        Raises:
            PeerFault: OFFSET_MISMATCH, bytes are missing; ARTIFACT_INVALID, digest, header, count, padding, a code or the order
                of a record's codes is wrong (the upload is forgotten and may begin again, also when acknowledged bytes are lost).
            DataFault: DISK_FULL.
        """
        files = self._store.study(record.digest)
        upload = self._catalogue.uploads.find(upload_id)
        if upload is None:
            return self._finished_column(upload_id)
        path = files.staging(upload.unit)
        with self._exclusive(record.digest, path):
            upload = self._catalogue.uploads.find(upload_id)
            if upload is None:
                return self._finished_column(upload_id)
            if upload.committed != upload.size or record.n_common is None:
                raise _wrong_offset("artifact", upload.size, upload.committed)
            unit = effective.units[upload.unit]
            try:
                column_sha256 = self._store_column(files, path, upload, unit, record.n_common)
            except PeerFault:
                remove_durably(path)
                self._catalogue.uploads.forget(upload_id)
                raise
            former = record.damaged.get(upload.unit)
            body = rfc8785.dumps(
                {
                    "artifact_sha256": upload.sha256.hex(),
                    "size": upload.size,
                    "n_records": record.n_common,
                    "party": unit.owner,
                    "unit": upload.unit,
                    "variables": list(unit.variables),
                    "effective_digest": record.effective_digest.hex(),
                    "proposal_digest": record.digest.hex(),
                    "miner": miner,
                    "received_at": received_at,
                    **_approved_by(record, unit.owner),
                }
            )
            column = StoredColumn(
                unit=upload.unit,
                upload_id=upload_id,
                artifact_sha256=upload.sha256,
                artifact_size=upload.size,
                n_records=record.n_common,
                item_bytes=_item_bytes(unit),
                column_sha256=column_sha256,
                receipt=sign(body) if former is None else former.receipt,
            )
            self._catalogue.add_column(record.digest, column)
            remove_durably(path)
        return column

    def _finished_column(self, upload_id: str) -> StoredColumn:
        upload = self._catalogue.finished_upload(upload_id)
        if upload is None:
            raise PeerFault("OFFSET_MISMATCH", "artifact: no such upload", hint="begin the upload again")
        return upload[1]

    def _store_column(self, files: StudyFiles, path: Path, upload: Upload, unit: Unit, n_common: int) -> bytes:
        name = f"unit {upload.unit} ({', '.join(unit.variables)})"
        if not path.exists() or path.stat().st_size < upload.size:
            raise PeerFault(
                "OFFSET_MISMATCH",
                f"{name}: the miner no longer has the bytes that it had acknowledged",
                hint="begin the upload again",
            )
        if _sha256(path) != upload.sha256:
            raise PeerFault(
                "ARTIFACT_INVALID",
                f"{name}: the bytes do not have the announced SHA-256",
                hint="begin the upload again",
            )
        artifact = np.memmap(path, dtype=np.uint8, mode="r")
        channel = unit.transition
        parts = unpack_parts(artifact, channel.n_states, n_common, codes_per_record=channel.codes_per_record)
        return _sha256(files.write_column(upload.unit, _item_bytes(unit), parts))

    def lose_damaged(self, record: StudyRecord) -> tuple[int, ...]:
        """Find the units whose stored column is not what was receipted; what is left of it is deleted, the receipt stays.

        The party may then upload the same artifact again, and no other.
        """
        files, lost_units = self._store.study(record.digest), list[int]()
        for unit, column in sorted(record.columns.items()):
            with self._exclusive(record.digest, files.staging(unit)):
                if not _is_whole(path := files.column(unit, column.item_bytes), column.column_sha256):
                    self._catalogue.lose_column(record.digest, unit)
                    remove_durably(path)
                    lost_units.append(unit)
        return tuple(lost_units)

    @staticmethod
    def _append(path: Path, offset: int, data: bytes, size: int, commit: Callable[[int], None]) -> None:
        if offset + len(data) > size:
            raise PeerFault("MESSAGE_INVALID", f"{offset + len(data)} bytes, expected at most the announced {size}")
        try:
            append_durably(path, offset, data)
        except FileNotFoundError:
            commit(0)  # somebody removed the file by hand: start over rather than never end
            raise _wrong_offset("staging file", offset, 0) from None
        commit(offset + len(data))

    def remove_abandoned(self, digest: bytes) -> None:
        """Delete staging files that belong to no upload; called when the miner starts."""
        staging = self._store.study(digest).root / "staging"
        if not staging.is_dir():
            return
        for path in staging.iterdir():
            with self._exclusive(digest, path):  # the ports may be open already, and an upload may have just begun
                uploads = self._catalogue.uploads.of_study(digest)
                if path not in {self._store.study(digest).staging(item.unit) for item in uploads}:
                    remove_durably(path)


def _approved_by(record: StudyRecord, party: str) -> dict[str, str]:
    """Say who approved at a party, in its own words."""
    approval = record.approvals.get(party)
    return {} if approval is None else {"approved_by": held_approval(approval.body).approver}


def _problem_of_list(path: Path, present_list: StoredList) -> str:
    if not path.exists() or path.stat().st_size != present_list.size or _sha256(path) != present_list.sha256:
        return "the bytes do not have the announced SHA-256"
    position = first_disorder(read_list(path))
    if position is not None:
        return f"record {position} is not above the one before, expected strictly ascending pseudonyms"
    return ""


def _problem_of_tokens(path: Path, present_list: StoredList, *, own: bool) -> str:
    if not path.exists() or path.stat().st_size != present_list.size:
        return "bytes are missing"
    if _sha256(path) != present_list.sha256:
        return "the bytes do not have the announced SHA-256"
    tokens = read_list(path, item_bytes=TOKEN_BYTES)
    position = first_disorder(tokens)
    if position is None:
        return ""
    with full_disk_is_an_error("sorted tokens"):
        n_repeated = repeated_tokens(tokens, folder=path.parent)
    if n_repeated:
        return f"{n_repeated} of {len(tokens)} tokens are there twice"
    return f"token {position} is not above the one before, expected an ascending list" if own else ""

"""What the miner no longer needs, and its deletion.

Rules
- A study that has ended loses its pseudonyms, bitmaps and whatever was in transit at once, and without a release its randomized
  columns, too.
- A published study keeps its randomized columns for `[retention] randomized_days`, so that the release can be made again from
  them, and then loses them. When a party revokes it loses them at once, those of the other parties as well: a study without
  one party's columns cannot be learned.
- The key of the noise on a study's tables, and the noisy tables, go with its columns. From then on nobody can take the noise out
  of what was published, not even who has the miner's disk; a study that is submitted again draws other noise, and is charged.
- Of masked tables no column was here. What there is of the round (keys, shares, messages) goes when every party has the opened
  tables (`verticil.miner.rules.rounds`), at the latest with the opened tables themselves, as columns do, but not within seven
  days of publication; when the study ends without a release, at once. Every party gets a statement of that.
- Each party whose columns were deleted gets a signed statement of what was deleted (`verticil.shared.release.formats.deletion`).
  Receipts, digests and the release stay.

The scheduler settles each study that has ended when it starts and every few seconds, by the clock that it was given. Files are
deleted before the catalogue says so; a miner that is killed between the two deletes again. Deleting is unlinking: it does not
overwrite blocks of a disk, nor reach into backups.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from verticil.miner.config import MinerConfig
from verticil.miner.rules.session import Session
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.forgotten_catalogue import check_memory
from verticil.miner.storage.records import StoredColumn, StoredSignature, StudyRecord
from verticil.miner.storage.store import Store, remove_durably
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import load_credentials, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.release.formats.deletion import Deletion, Why
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import is_final
from verticil.shared.study.unit import Unit

_LINKAGE: Final = ("pseudonyms", "alignment", "staging", "learning")
_ROUND_DAYS: Final = dt.timedelta(days=7)
"""After publication, at least, that a party has to get the opened tables, which it compares with the release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removable:
    """Something on the miner's disk that goes, now or on a day.

    Attributes:
        study_id: of which study; empty for a folder that belongs to none.
        folder: the study's.
        what: ``columns``, ``linkage``, ``release`` or ``folder``.
        size: bytes.
        why: for people.
        due: from when on; None: at once.
        is_due: that moment has come.
    """

    study_id: str
    folder: Path
    what: str
    size: int
    why: str
    due: dt.datetime | None
    is_due: bool


class Retention:
    """Settles studies that have ended.

    Args:
        session: the rules, facts and files.
        randomized_days: days after publication until the randomized columns are deleted.
    """

    def __init__(self, session: Session, *, randomized_days: int) -> None:
        self._session = session
        self._days = dt.timedelta(days=randomized_days)

    def settle(self, digest: bytes) -> None:
        """Delete what an ended study no longer needs; blocks. Repeatable."""
        session = self._session
        record = session.record(digest)
        files = session.store.study(digest)
        session.intake.end(digest)
        if not record.linkage_removed:
            files.remove_linkage()
            if record.published_at is None:
                remove_durably(files.release)
            session.catalogue.mark_linkage_removed(digest)
        if not self._is_due(self._due(record)):
            return
        parties_due = self._owed_statements(record)
        if record.columns_removed and not parties_due:
            return
        files.remove_columns()
        statements = {party: self._statement(record, party) for party in parties_due}
        session.catalogue.deletions.record(digest, statements)

    def _due(self, record: StudyRecord) -> dt.datetime | None:
        """Return when the randomized columns of an ended study go; None: at once."""
        if record.published_at is None or record.revocations:
            return None
        days = self._days
        if self._had_round(record) and self._session.store.study(record.digest).masked.exists():
            days = max(days, _ROUND_DAYS)  # some party has not said yet that it has the opened tables
        return dt.datetime.fromisoformat(record.published_at) + days

    def _is_due(self, due: dt.datetime | None) -> bool:
        return due is None or due <= self._session.clock()

    def _owed_statements(self, record: StudyRecord) -> tuple[str, ...]:
        """Return parties that get a statement of the deletion: those whose columns go now, and those that asked for it."""
        owners = () if record.columns_removed else [unit.owner for unit in self._units(record)]
        if self._had_round(record) and not record.columns_removed:
            owners = [*self._session.effective(record).parties]
        return tuple(name for name in dict.fromkeys([*owners, *record.revocations]) if name not in record.deletions)

    def _had_round(self, record: StudyRecord) -> bool:
        return record.uploading and opens_tables(self._session.effective(record))

    def _units(self, record: StudyRecord) -> list[Unit]:
        return [self._session.effective(record).units[unit] for unit in sorted(_columns_with_receipts(record))]

    def _statement(self, record: StudyRecord, party: str) -> StoredSignature:
        session = self._session
        reasons: dict[bool, Why] = {True: "ended", False: "retention"}
        body = encode(
            Deletion(
                study_digest=record.digest,
                study_id=record.study_id,
                party=party,
                artifacts={
                    unit: column.artifact_sha256
                    for unit, column in _columns_with_receipts(record).items()
                    if session.effective(record).units[unit].owner == party
                },
                why="revoked" if record.revocations else reasons[record.published_at is None],
                miner=session.identity.name,
                deleted_at=session.clock().replace(microsecond=0),
                masked=self._had_round(record),
            )
        )
        return session.sign(body)

    # ---- for the operator

    def survey(self) -> tuple[Removable, ...]:
        """Return everything that goes, now or later, oldest study first. Changes nothing."""
        session = self._session
        digests = session.catalogue.digests()
        records = [session.record(digest) for digest in digests]
        removable = [item for record in records if is_final(session.state(record)) for item in self._of(record)]
        digests_in_hex = {digest.hex() for digest in digests}
        strangers = [
            path for path in sorted((session.store.root / "studies").glob("*")) if path.name not in digests_in_hex
        ]
        why = "the catalogue knows no such study"
        return (
            *removable,
            *(
                Removable(study_id="", folder=path, what="folder", size=_size(path), why=why, due=None, is_due=True)
                for path in strangers
            ),
        )

    def _of(self, record: StudyRecord) -> list[Removable]:
        root, due = self._session.store.study(record.digest).root, self._due(record)
        if record.revocations:
            why = f"revoked by {', '.join(sorted(record.revocations))}"
        elif record.closure is not None:
            why = "closed by the operator"
        elif record.published_at is None:
            why = "the study ended without a release"
        else:
            why = f"published {record.published_at}, kept for {self._days.days} days"
        parts: list[tuple[str, int, str, dt.datetime | None]] = [
            ("linkage", sum(_size(root / name) for name in _LINKAGE), "the study has ended", None),
            ("columns", sum(_size(root / name) for name in ("columns", "tables", "masked")), why, due),
        ]
        if record.published_at is None:
            parts.append(("release", _size(root / "release"), why, None))
        return [
            Removable(
                study_id=record.study_id,
                folder=root,
                what=what,
                size=size,
                why=reason,
                due=moment,
                is_due=self._is_due(moment),
            )
            for what, size, reason, moment in parts
            if size
        ]

    def purge(self) -> tuple[Removable, ...]:
        """Delete what is due; returns what went. The miner must not run."""
        due_items = tuple(item for item in self.survey() if item.is_due)
        for digest in self._session.catalogue.unsettled():
            if is_final(self._session.state(self._session.record(digest))):
                self.settle(digest)
        for item in due_items:
            if item.what == "folder":
                remove_durably(item.folder)
        return due_items


def _columns_with_receipts(record: StudyRecord) -> dict[int, StoredColumn]:
    """Return what the parties have sent and hold receipts of, also where this disk has damaged it since."""
    return {**record.columns, **record.damaged}


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())


def purge(
    config: MinerConfig,
    *,
    dry_run: bool,
    clock: Callable[[], dt.datetime] = utc_now,
) -> tuple[Removable, ...]:
    """List what the miner no longer needs, now or later, or delete what is due.

    Args:
        config: miner.toml.
        dry_run: only list; a miner may run beside it.
        clock: UTC now.

    Returns:
        With `dry_run` everything that goes some day; else what was deleted.

    Raises:
        Misuse: FILE_MISSING, there is no state directory.
        DataFault: STATE_LOCKED, the miner runs (it deletes by itself); STATE_CORRUPT; CATALOGUE_OLDER.
        PeerFault: CERTIFICATE_INVALID; statements of deletions are signed.
    """
    if not (config.state_directory / "catalogue.sqlite").exists():
        raise Misuse("FILE_MISSING", f"{config.state_directory}: no miner's state there", hint="run the miner first")
    credentials = load_credentials(config.certificate, config.key, config.federation, role=Role.MINER, name=config.name)
    signer = SigningKey.load(config.signing_key, config.certificate)
    store = Store(
        config.state_directory,
        max_bytes_per_study=config.limits.max_bytes_per_study,
        disk_reserve_bytes=config.limits.disk_reserve_bytes,
    )
    with contextlib.ExitStack() as stack:
        if not dry_run:
            store.lock()
            stack.callback(store.unlock)
        check_memory(config.state_directory)
        catalogue = Catalogue(config.state_directory / "catalogue.sqlite")
        stack.callback(catalogue.close)
        session = Session(
            store=store,
            catalogue=catalogue,
            identity=credentials.identity,
            authority=credentials.ca_pem,
            sign=signer.sign,
            clock=clock,
        )
        retention = Retention(session, randomized_days=config.randomized_days)
        return retention.survey() if dry_run else retention.purge()

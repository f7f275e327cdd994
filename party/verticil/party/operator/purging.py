"""Purging: throwing away what ended studies have left behind at a site.

That is spooled columns, what peers sent, rounds of messages, copies of releases, caches.

What is deleted can be made again (randomization is sticky) or had again, or is of no use any more. Never deleted: the ledger,
the audit log, receipts, approvals, and the keyed hashes by which nearly equal sets of people are noticed; they are what the
site's account rests on. A study that has not ended is not touched. The daemon may run.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import verticil.party.protocol.shipped.registrations  # noqa: F401  # pyright: ignore[reportUnusedImport]  # the registry's entries
from verticil.party.audit.log import Event, What
from verticil.party.config import PartyConfig
from verticil.party.protocol.node.registry import files_of_protocols, folders_of_protocols
from verticil.party.protocol.randomization import Spool
from verticil.party.protocol.with_miner.countersigning import drop, folder_of
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import Misuse, Refusal
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.study.states import State, is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedStudy:
    """What an ended study had left behind."""

    study: str
    digest: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What was deleted, or with `dry_run` would be; bytes altogether."""

    studies: tuple[PurgedStudy, ...]
    bytes: int
    dry_run: bool


def purge(
    config: PartyConfig,
    study: str | None,
    *,
    older_than_days: int | None,
    dry_run: bool = False,
    at: dt.datetime | None = None,
) -> Purged:
    """Delete what ended studies have left behind.

    Args:
        config: party.toml.
        study: id or digest; None: all that ended.
        older_than_days: only studies that were last worked on so many days ago.
        dry_run: only list.
        at: now.

    Raises:
        Misuse: STUDY_UNKNOWN; USAGE, neither a study nor an age.
        Refusal: POLICY_REFUSED, the study has not ended.
        DataFault: STATE_CORRUPT, DISK_FULL.
    """
    if study is None and older_than_days is None:
        raise Misuse(
            "USAGE", "expected STUDY or --older-than", hint="studies that ended more than 90 days ago: --older-than 90"
        )
    now = at if at is not None else utc_now()
    with Site.open(config) as site:
        records = site.state.studies() if study is None else (site.state.find(study),)
        if study is not None and not _has_ended(records[0]):
            raise Refusal(
                "POLICY_REFUSED",
                f"study '{records[0].study_id}': it has not ended, {records[0].stage}",
                hint="say no to it first: verticil party deny, or verticil party revoke",
            )
        limit = now - dt.timedelta(days=older_than_days) if older_than_days is not None else None
        purges = [
            _one(site, record, dry_run=dry_run, at=now)
            for record in records
            if _has_ended(record) and _since(record, limit)
        ]
    nonempty_purges = tuple(item for item in purges if item.bytes)
    return Purged(studies=nonempty_purges, bytes=sum(item.bytes for item in nonempty_purges), dry_run=dry_run)


def _has_ended(record: StudyRecord) -> bool:
    return is_final(State(record.task.state)) or record.denial_sent is True or record.revocation_sent is True


def _since(record: StudyRecord, limit: dt.datetime | None) -> bool:
    if limit is None:
        return True
    at = dt.datetime.fromisoformat(record.stage_at or record.seen_at)
    return at.astimezone(dt.UTC) <= limit


def _one(site: Site, record: StudyRecord, *, dry_run: bool, at: dt.datetime) -> PurgedStudy:
    state = site.config.state_directory
    spool, store = Spool(state / "spool"), ArtifactStore(state / "peer", site.database)
    spool_files = [
        spool.path(item.sha256) for item in site.state.artifacts(record.digest, record.task.effective_digest).values()
    ]
    stored_files = store.leftovers(record.digest)
    copies = [path for path in folder_of(site, record.digest).rglob("*") if path.is_file()]
    of_protocols = files_of_protocols(state, record.digest)
    size = sum(path.stat().st_size for path in (*spool_files, *stored_files, *copies, *of_protocols) if path.is_file())
    if size and not dry_run:
        event = Event(what=What.PURGED, who="operator", study=record.digest, study_id=record.study_id, size=size)
        site.audit.record(event, at)
        for sha256 in site.state.clear(record.digest):
            spool.discard(sha256)
        store.clear(record.digest)
        for folder in folders_of_protocols():
            folder.discard(state, record.digest, at)
        drop(site, record.digest)
    return PurgedStudy(study=record.study_id, digest=record.digest.hex(), bytes=size)

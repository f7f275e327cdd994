"""A release that waits for countersignatures: fetched for this party's people, checked, signed (``[publish] countersign``).

Promises
- What is fetched is no larger than the study announces and party.toml allows; of what is refused nothing stays on the disk.
- What lies in the state directory for people to read is the release that the miner announced, whole. Whether it holds is checked
  offline, and again when somebody countersigns: signatures, receipts, every file's SHA-256, that it is the study that was
  approved, and what its protocol compares with what this party has (`ReleaseCheck`).
- A countersignature binds to the manifest's SHA-256. If the miner makes another release, the signature is forgotten and people
  are asked again.
- The copy is removed when the study has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from verticil.party.audit.log import Event, What
from verticil.party.policy.approval_checks import AUTOMATIC
from verticil.party.protocol.context import agreement
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import GateFailed, PeerFault, VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.interface import Coordinator
from verticil.shared.release.download import CHANGED, fetch_release
from verticil.shared.release.limits import release_limits
from verticil.shared.release.signatures import Countersignature
from verticil.shared.release.verification import VerifiedRelease, verify_release
from verticil.shared.study.document import Study
from verticil.shared.study.states import State

_HINT = "the daemon fetches it: verticil party status"

ReleaseCheck = Callable[[Site, StudyRecord, Study, Path], None]
"""Compares a release, whose signatures and digests hold, with what this party has of the study: (site, record, effective study,
folder). Raises GateFailed: RELEASE_INVALID; PeerFault: NOT_READY, what it is compared with is not on this disk."""


def folder_of(site: Site, digest: bytes) -> Path:
    """Return the folder of a release that waits for review."""
    return site.config.state_directory / "review" / digest.hex()


async def fetch(coordinator: Coordinator, site: Site, record: StudyRecord) -> None:
    """Fetch the release that waits.

    Raises:
        PeerFault: NOT_READY, it is another one by now (the next poll says which); RESOURCE_EXHAUSTED, it is larger than
            party.toml allows; those of the connection.
        GateFailed: RELEASE_INVALID, it is larger than the study lets it be.
        DataFault: DISK_FULL.
    """
    folder = folder_of(site, record.digest)
    await asyncio.to_thread(drop, site, record.digest)
    try:
        limits = release_limits(record.task.effective_study, record.n_common or 0, total=site.config.review_bytes)
        await fetch_release(coordinator, record.digest, folder, review=True, limits=limits)
    except VerticilError as error:
        if error.code in CHANGED:
            raise PeerFault(
                "NOT_READY", f"study '{record.study_id}': the release changed while it was fetched"
            ) from None
        raise
    await asyncio.to_thread(_accept, site, record, folder)


def _accept(site: Site, record: StudyRecord, folder: Path) -> None:
    review = site.decisions.review(record.digest)
    if review is None or _manifest_sha256(folder) != review.manifest_sha256:
        drop(site, record.digest)
        raise PeerFault(
            "NOT_READY", f"study '{record.study_id}': another release waits than the one that was announced"
        )
    site.decisions.mark_fetched(record.digest)


def check(site: Site, record: StudyRecord, compare: ReleaseCheck) -> tuple[Path, bytes, VerifiedRelease]:
    """Verify the release that waits, offline.

    Args:
        site: this party.
        record: the study.
        compare: its protocol's comparison with what this party has.

    Returns:
        Its folder, the SHA-256 of its manifest, and what it says.

    Raises:
        PeerFault: NOT_READY, none waits, or it is not here yet.
        GateFailed: RELEASE_INVALID, RELEASE_UNTRUSTED.
        PeerFault, GateFailed: as `compare`.
    """
    review = site.decisions.review(record.digest)
    folder = folder_of(site, record.digest)
    if review is None or record.task.state != State.REVIEW:
        raise PeerFault("NOT_READY", f"study '{record.study_id}': no release waits for a countersignature", hint=_HINT)
    if not review.fetched or not folder.is_dir():
        site.decisions.mark_fetched(record.digest, here=False)
        raise PeerFault("NOT_READY", f"study '{record.study_id}': the release has not arrived", hint=_HINT)
    authority = site.config.federation.authority()
    release = verify_release(folder, ca_certificate=authority, before_publication=True)
    if (actual_sha256 := _manifest_sha256(folder)) != review.manifest_sha256:
        raise GateFailed(
            "RELEASE_INVALID",
            f"{folder}: its manifest is {actual_sha256.hex()}, the miner announced another one",
            hint="do not countersign; ask the miner's operator which release is valid",
        )
    digests = (release.study_digest, release.effective_digest)
    if digests != (record.digest.hex(), record.task.effective_digest.hex()):
        raise GateFailed("RELEASE_INVALID", f"{folder}: it is of another study than the one that was approved here")
    compare(site, record, record.task.effective_study, folder)
    return folder, review.manifest_sha256, release


def countersign(
    site: Site, record: StudyRecord, key: SigningKey, approver: str, at: datetime, *, compare: ReleaseCheck
) -> VerifiedRelease:
    """Check the release and sign its manifest; the daemon sends the signature.

    Args:
        site: this party.
        record: the study.
        key: the party's signing key.
        approver: who has looked; whether they may is checked before.
        at: now, UTC.
        compare: see `check`.

    Raises:
        PeerFault, GateFailed: as `check`; NOT_READY also where the study was stopped here meanwhile.
        StoppedError, Refusal: as `verticil.party.protocol.context.agreement`: the approval does not hold any more.
    """
    agreement(site, record, at.date(), giver=approver == AUTOMATIC)
    _, manifest_sha256, release = check(site, record, compare)
    statement = Countersignature(
        study_digest=record.digest,
        manifest_sha256=manifest_sha256,
        party=site.config.name,
        approver=approver,
        signed_at=at,
    )
    signed = key.sign(encode(statement))
    event = Event(
        what=What.COUNTERSIGNATURE,
        who=approver,
        study=record.digest,
        study_id=record.study_id,
        sha256=manifest_sha256,
    )
    with site.database.transaction():
        if record.digest in site.revocations.list_stopped():
            raise PeerFault("NOT_READY", f"study '{record.study_id}': it was stopped here")
        site.audit.record(event, at)
        there = site.decisions.countersign(
            record.digest, manifest_sha256, (signed.body, signed.signature, signed.certificate)
        )
    if not there:
        raise PeerFault("NOT_READY", f"study '{record.study_id}': another release waits by now", hint=_HINT)
    return release


def drop(site: Site, digest: bytes) -> None:
    """Remove the copy of the release."""
    shutil.rmtree(folder_of(site, digest), ignore_errors=True)


def _manifest_sha256(folder: Path) -> bytes:
    return hashlib.sha256((folder / "manifest.json").read_bytes()).digest()

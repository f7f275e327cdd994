"""A release that waits for countersignatures: fetched for this party's people, checked, signed (``[publish] countersign``).

Promises
- What is fetched is no larger than the study announces and party.toml allows; of what is refused nothing stays on the disk.
- What lies in the state directory for people to read is the release that the miner told of, whole. Whether it holds is checked
  offline, and again when somebody countersigns: signatures, receipts, every file's SHA-256, that it is the study that was
  approved, that the columns of this party in it are those that it sent, and that what it says of them is what they say
  (`own_figures`).
- A countersignature binds to the manifest's SHA-256. If the miner makes another release, the signature is forgotten and people
  are asked again.
- The copy is removed when the study has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import cast

from verticil.party.audit.log import Event, What
from verticil.party.policy.approval import parsed
from verticil.party.protocol.central.own_figures import check_own_figures
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.arrays import Codes
from verticil.shared.errors import GateFailed, PeerFault, VerticilError
from verticil.shared.formats import artifact
from verticil.shared.identity.signing import SigningKey
from verticil.shared.record import encode
from verticil.shared.release.countersignature import Countersignature
from verticil.shared.release.limits import release_limits
from verticil.shared.release.verification import VerifiedRelease, verify_release
from verticil.shared.study.document import Study
from verticil.shared.study.states import State
from verticil.shared.transport.fetch import fetch_release
from verticil.shared.transport.interface import Coordinator

_HINT = "the daemon fetches it: verticil party status"


def folder_of(site: Site, digest: bytes) -> Path:
    """Where the release lies while it waits."""
    return site.config.state_directory / "review" / digest.hex()


async def fetch(coordinator: Coordinator, site: Site, record: StudyRecord) -> None:
    """Fetch the release that waits.

    Raises:
        PeerFault: NOT_READY, it is another one by now (the next poll tells which); RESOURCE_EXHAUSTED, it is larger than
            party.toml allows; those of the connection.
        GateFailed: RELEASE_INVALID, it is larger than the study lets it be.
        DataFault: DISK_FULL.
    """
    folder = folder_of(site, record.digest)
    await asyncio.to_thread(drop, site, record.digest)
    try:
        limits = release_limits(parsed(record.task.effective), record.n_common or 0, total=site.config.review_bytes)
        await fetch_release(coordinator, record.digest, folder, review=True, limits=limits)
    except VerticilError as error:
        if error.code in {"ARTIFACT_INVALID", "FILE_MISSING", "STUDY_WITHDRAWN", "STUDY_DENIED"}:
            raise PeerFault(
                "NOT_READY", f"study '{record.study_id}': the release changed while it was fetched"
            ) from None
        raise
    await asyncio.to_thread(_accept, site, record, folder)


def _accept(site: Site, record: StudyRecord, folder: Path) -> None:
    found = site.minutes.review(record.digest)
    if found is None or _manifest_sha256(folder) != found.manifest_sha256:
        drop(site, record.digest)
        raise PeerFault("NOT_READY", f"study '{record.study_id}': another release waits than the one that was told")
    site.minutes.fetched(record.digest)


def check(site: Site, record: StudyRecord) -> tuple[Path, bytes, VerifiedRelease]:
    """Verify the release that waits, offline.

    Returns:
        Its folder, the SHA-256 of its manifest, and what it says.

    Raises:
        PeerFault: NOT_READY, none waits, or it is not here yet.
        GateFailed: RELEASE_INVALID, RELEASE_UNTRUSTED.
        PeerFault: NOT_READY also when the columns that were sent are not on this disk; the daemon makes them again.
    """
    found = site.minutes.review(record.digest)
    folder = folder_of(site, record.digest)
    if found is None or record.task.state != State.REVIEW:
        raise PeerFault("NOT_READY", f"study '{record.study_id}': no release waits for a countersignature", hint=_HINT)
    if not found.fetched or not folder.is_dir():
        site.minutes.fetched(record.digest, here=False)
        raise PeerFault("NOT_READY", f"study '{record.study_id}': the release is not here yet", hint=_HINT)
    authority = site.config.federation.ca_certificate.read_bytes()
    verified = verify_release(folder, ca_certificate=authority, before_publication=True)
    if (got := _manifest_sha256(folder)) != found.manifest_sha256:
        raise GateFailed(
            "RELEASE_INVALID", f"{folder}: its manifest is {got.hex()}, the miner told another one", hint=_HINT
        )
    told = (verified.study_digest, verified.effective_digest)
    if told != (record.digest.hex(), record.task.effective_digest.hex()):
        raise GateFailed("RELEASE_INVALID", f"{folder}: it is of another study than the one that was approved here")
    _check_own_columns(site, record, folder)
    study = parsed(record.task.effective)
    check_own_figures(folder, study, site.config.name, _sent(site, record, study))
    return folder, found.manifest_sha256, verified


def countersign(site: Site, record: StudyRecord, key: SigningKey, approver: str, at: datetime) -> VerifiedRelease:
    """Check the release and sign its manifest; the daemon tells the miner.

    Args:
        site: this party.
        record: the study.
        key: the party's signing key.
        approver: who has looked; whether they may is checked before.
        at: now, UTC.

    Raises:
        PeerFault, GateFailed: as `check`.
    """
    _, manifest_sha256, verified = check(site, record)
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
        site.audit.record(event, at)
        there = site.minutes.countersign(
            record.digest, manifest_sha256, (signed.body, signed.signature, signed.certificate)
        )
    if not there:
        raise PeerFault("NOT_READY", f"study '{record.study_id}': another release waits by now", hint=_HINT)
    return verified


def drop(site: Site, digest: bytes) -> None:
    """Remove the copy."""
    shutil.rmtree(folder_of(site, digest), ignore_errors=True)


def _check_own_columns(site: Site, record: StudyRecord, folder: Path) -> None:
    """The receipts in the manifest for this party's units are of the bytes that it sent."""
    manifest = cast("dict[str, list[dict[str, str]]]", json.loads((folder / "manifest.json").read_bytes()))
    bodies = [cast("dict[str, object]", json.loads(receipt["body"])) for receipt in manifest["receipts"]]
    received = {body["unit"]: body["artifact_sha256"] for body in bodies if body["party"] == site.config.name}
    sent = site.state.artifacts(record.digest, record.task.effective_digest)
    wrong = [unit for unit, item in sent.items() if received.get(unit) != item.sha256.hex()]
    if wrong:
        raise GateFailed(
            "RELEASE_INVALID",
            f"{folder}: it was made from other columns of this party than those that were sent (units {wrong})",
        )


def _sent(site: Site, record: StudyRecord, study: Study) -> dict[int, Codes]:
    """The randomized columns that this party sent."""
    columns: dict[int, Codes] = {}
    for unit, item in site.state.artifacts(record.digest, record.task.effective_digest).items():
        path = site.config.state_directory / "spool" / item.sha256.hex()
        packed = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(packed).digest() != item.sha256:
            site.minutes.fetched(record.digest, here=False)
            raise PeerFault(
                "NOT_READY",
                f"study '{record.study_id}': a column that was sent is no longer on this disk, so the release cannot be compared",
                hint="the running daemon makes it again: verticil party status",
            )
        channel = study.units[unit].transition
        width = channel.codes_per_record
        columns[unit] = artifact.unpack(packed, channel.n_states, record.n_common or 0, codes_per_record=width)
    return columns


def _manifest_sha256(folder: Path) -> bytes:
    return hashlib.sha256((folder / "manifest.json").read_bytes()).digest()

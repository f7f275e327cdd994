"""From approved data to released bytes: what both protocols do before anything goes out.

`fill_spool` draws the noise of the units that are asked for, after the ledger has assessed all of them; `enter_in_ledger` writes
down each attempted send.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verticil.party.audit.log import Event, What
from verticil.party.dataset.local_dataset import Holding, datasets_of, randomize, statistics_of
from verticil.party.dataset.releases import Release
from verticil.party.policy import approval
from verticil.party.policy.ledger import audited
from verticil.party.protocol.central.spool import Spool
from verticil.party.protocol.planning import StoppedError
from verticil.party.site import Site
from verticil.party.storage.studies import Artifact, StudyRecord
from verticil.shared.audit import DAEMON
from verticil.shared.errors import Refusal
from verticil.shared.formats import artifact
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import sent_units


def fill_spool(
    site: Site,
    spool: Spool,
    record: StudyRecord,
    *,
    effective: Study,
    holding: Holding,
    rows: NDArray[np.int64],
    units: Collection[int],
    at: dt.datetime,
) -> None:
    """Randomize those of `units` that are not in the spool.

    Args:
        site: this party.
        spool: where released bytes go.
        record: the study.
        effective: the effective study.
        holding: the approved data.
        rows: the common people, in the common order.
        units: own units.
        at: now, for the audit log.

    Raises:
        Refusal: DATA_CHANGED, EPSILON_INFINITE, BUDGET_EXCEEDED; nothing was drawn.
        DataFault: DISK_FULL (before anything is drawn, when it can be foreseen), STATE_CORRUPT.
    """
    holding = holding.renumbered(approval.parsed(record.task.proposal), effective, site.config.name)
    every = site.releases(effective, holding)
    reserve(site, record, effective, every)
    releases = {index: release for index, release in every.items() if index in units}
    # All of them, before any is drawn.
    assessments = site.ledger.assess(list(releases.values()), site.config.policy, study_digest=record.digest)
    made: list[Artifact] = []
    there = site.state.artifacts(record.digest, record.task.effective_digest)
    channels = [effective.units[index].transition for index in releases if index not in there]
    spool.ensure_room(
        sum(
            artifact.packed_size(len(rows), channel.n_states, codes_per_record=channel.codes_per_record)
            for channel in channels
        )
    )
    for (index, release), assessment in zip(releases.items(), assessments, strict=True):
        if index in there:
            continue
        codes = randomize(
            holding,
            rows,
            effective,
            index,
            release=release,
            version_tag=assessment.version_tag,
            site_secret=site.site_secret,
        )
        packed = artifact.pack(codes, effective.units[index].transition.n_states)
        item = Artifact(
            unit=index,
            effective_digest=record.task.effective_digest,
            sha256=spool.put(packed),
            size=len(packed),
            facts=release.to_json(),
            version_tag=assessment.version_tag,
        )
        site.audit.record(unit_event(What.RANDOMIZED, record, item, charged=assessment.charge.epsilon), at)
        made.append(item)
    site.state.store_artifacts(record.digest, made)


def reserve(site: Site, record: StudyRecord, effective: Study, releases: Mapping[int, Release]) -> None:
    """Keep room for everything that the study sends and shares, of all data sets; raises as `Ledger.reserve`.

    Args:
        site: this party.
        record: the study.
        effective: the effective study.
        releases: of own units.
    """
    sent = sent_units(effective)
    site.ledger.reserve(
        record.digest,
        {index: release for index, release in releases.items() if index in sent},
        site.config.policy,
        shared=statistics_of(effective, site.config.name, datasets_of(releases)),
    )


def refill_spool(
    site: Site, spool: Spool, record: StudyRecord, *, effective: Study, holding: Holding, rows: NDArray[np.int64]
) -> None:
    """Make again what was sent and is no longer in the spool; nothing leaves, so nothing is charged. Arguments as `fill_spool`.

    Raises:
        Refusal: DATA_CHANGED, other bytes come out.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    holding = holding.renumbered(approval.parsed(record.task.proposal), effective, site.config.name)
    releases = site.releases(effective, holding)
    for index, item in site.state.artifacts(record.digest, record.task.effective_digest).items():
        if spool.holds(item.sha256):
            continue
        codes = randomize(
            holding,
            rows,
            effective,
            index,
            release=releases[index],
            version_tag=item.version_tag,
            site_secret=site.site_secret,
        )
        packed = artifact.pack(codes, effective.units[index].transition.n_states)
        if hashlib.sha256(packed).digest() != item.sha256:
            raise Refusal("DATA_CHANGED", f"study '{effective.id}': unit {index} cannot be made again as it was sent")
        spool.put(packed)


def enter_in_ledger(site: Site, record: StudyRecord, item: Artifact, recipient: str, at: dt.datetime) -> None:
    """Write the row of one attempted send, and its line in the audit log; the unit may leave when this returns. Further sends of
    the same bytes to the same recipient are counted, in both.

    Raises as `Ledger.record` and `Audit.record`; StoppedError, when the study was revoked or denied since the step was planned.
    """
    with (
        site.database.transaction()
    ):  # a decision comes before this row, and is found, or after it, and stops what follows
        if record.digest in site.revocations.stopped():
            raise StoppedError
        _enter(site, record, item, recipient, at)


def _enter(site: Site, record: StudyRecord, item: Artifact, recipient: str, at: dt.datetime) -> None:
    again = site.ledger.sent(record.digest, item.unit, recipient, item.sha256)
    if not site.ledger.columns_sent(record.digest):  # what was randomized by an earlier version has no reservation
        spooled = site.state.artifacts(record.digest, record.task.effective_digest)
        effective = approval.parsed(record.task.effective)
        reserve(site, record, effective, {unit: Release.from_json(held.facts) for unit, held in spooled.items()})
    charged = site.ledger.record(
        Release.from_json(item.facts),
        version_tag=item.version_tag,
        policy=site.config.policy,
        study_digest=record.digest,
        study_id=record.study_id,
        unit=item.unit,
        recipient=recipient,
        artifact_sha256=item.sha256,
        size=item.size,
        at=at,
    )
    said = unit_event(What.SEND, record, item, charged=charged.epsilon, recipient=recipient)
    if again and not charged:
        site.audit.again(said, at)
    else:
        release = Release.from_json(item.facts)
        told = audited(release, unit=item.unit, version_tag=item.version_tag, charged=charged)
        site.audit.record(replace(said, ledger=told), at)


def unit_event(
    what: What,
    record: StudyRecord,
    item: Artifact,
    *,
    charged: float | None = None,
    recipient: str = "",
    peer_event: bytes = b"",
) -> Event:
    """What the audit log says of a randomized unit."""
    release = Release.from_json(item.facts)
    return Event(
        what=what,
        who=DAEMON,
        study=record.digest,
        study_id=record.study_id,
        columns=release.variables,
        epsilon=release.epsilon,
        charged=charged,
        size=item.size,
        sha256=item.sha256,
        recipient=recipient,
        peer_event=peer_event,
    )

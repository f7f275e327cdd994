"""What the ledger is told of statistics, which have no column of their own: a row for each account whose people they are about.

Between peers a party computes them itself. With noise on tables (a study's ``tables``) a miner computes them from the randomized
columns, and everybody is told: they are charged in full before the first of those columns leaves, because what becomes of it is
out of the party's hands from then on.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterator
from typing import Final

from verticil.party.audit.log import What
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.local_dataset import origins
from verticil.party.policy.ledger_recovery import NO_DATA, ROUND
from verticil.party.policy.ledger_rows import Send, line_of, make_audit_fields
from verticil.party.protocol.planning import StoppedError
from verticil.party.site import Site
from verticil.party.storage.secret import secret_id
from verticil.party.storage.studies import StudyRecord
from verticil.shared.privacy.accounts import DEALER, OTHERS
from verticil.shared.privacy.events import PrivacyEvent, plan_events, to_json
from verticil.shared.study.document import Study
from verticil.shared.study.profiles import profiles_of

DEALER_TABLES: Final = "a dealer with its partner (tables)"
EVERYONE: Final = "everyone"
"""In place of a recipient, of what anybody may have."""


def statistics_of_each(
    site: Site, study: Study, event: PrivacyEvent, *, basis: bytes, noise: bytes, fingerprint: bytes
) -> list[ColumnDraw]:
    """Return the same for a party that may have no data any more: `fingerprint` names them."""
    places = origins(site.config, study)
    column_draws: list[ColumnDraw] = []
    for dataset in dict.fromkeys(place.account for place in places.values()):
        variables = tuple(name for name, place in places.items() if place.account == dataset)
        column_draws.append(
            ColumnDraw(
                variables=variables,
                dataset=dataset,
                sources=tuple(places[name].source for name in variables),
                codebook_digest=basis,
                transition_digest=noise,
                secret_id=secret_id(site.site_secret),
                fingerprint=fingerprint,
                event=event,
            )
        )
    return column_draws


def profile_draws(site: Site, study: Study, study_digest: bytes) -> Iterator[tuple[ColumnDraw, str]]:
    """Yield what a study with measured bins means for the ledger besides columns, and who is told: for each data set.

    Its profiles and tables are one draw (`verticil.shared.privacy.layered`), which leaves in part with the approval.

    Args:
        site: this party.
        study: with the party's own profiles.
        study_digest: of the proposal.

    Raises:
        Misuse, DataFault: party.toml does not say any more where the columns come from.
    """
    me = site.config.name
    counts = {
        name: own for name, own in profiles_of(study).items() if study.schema[study.schema.index(name)].owner == me
    }
    fingerprint = hashlib.sha256(json.dumps(counts, sort_keys=True).encode()).digest()
    for event in (item.event for item in plan_events(study, me) if item.unit is None):
        of_dealer = event.reader == DEALER.name
        basis = (
            hashlib.sha256(study_digest).digest() if of_dealer else study_digest
        )  # of each draw a delta is charged once
        noise = hashlib.sha256(to_json(event).encode("ascii")).digest()
        for column_draw in statistics_of_each(site, study, event, basis=basis, noise=noise, fingerprint=fingerprint):
            yield column_draw, DEALER_TABLES if of_dealer else EVERYONE


def charge_profiles(site: Site, record: StudyRecord, study: Study, at: dt.datetime) -> None:
    """Charge what `profile_draws` yields, once, before the approval with the profiles leaves.

    Args:
        site: this party.
        record: of the study.
        study: what was approved.
        at: now.

    Raises:
        StoppedError: the study was revoked or denied here.
        Refusal: BUDGET_EXCEEDED; APPROVAL_VOID, other profiles have left. Whatever is raised: nothing may leave.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    with site.database.transaction():
        if record.digest in site.revocations.list_stopped():
            raise StoppedError
        for column_draw, recipient in profile_draws(site, study, record.digest):
            send: Send = {
                "study_digest": record.digest,
                "study_id": record.study_id,
                "recipient": recipient,
                "artifact_sha256": b"",
                "size": 0,
                "at": at,
            }
            if site.ledger.holds(column_draw):
                continue
            charge = site.ledger.record_shared(column_draw, policy=site.config.policy, **send)
            row = make_audit_fields(column_draw, unit=None, charge=charge) | {ROUND: "profiles"}
            site.audit.record(line_of(What.SHARED, column_draw, charge, row, detail="profiles of numbers", **send), at)


def list_published(site: Site, study: Study, study_digest: bytes) -> list[ColumnDraw]:
    """Return the draws of columns that the miner alone reads, published to everybody and not in the ledger yet; by data
    set.

    Args:
        site: this party.
        study: the effective one.
        study_digest: of the proposal.

    Raises:
        Misuse, DataFault: party.toml does not say any more where the columns come from.
    """
    column_draws: list[ColumnDraw] = []
    for event in (item.event for item in plan_events(study, site.config.name) if item.event.reader == OTHERS):
        if not site.ledger.has_statistics(study_digest, event):
            noise = hashlib.sha256(to_json(event).encode("ascii")).digest()
            column_draws += statistics_of_each(site, study, event, basis=study_digest, noise=noise, fingerprint=NO_DATA)
    return column_draws


def charge_published(site: Site, study: Study, study_digest: bytes, at: dt.datetime) -> None:
    """Charge `list_published`, with a line of the audit log for each row; in the caller's transaction.

    Raises as `list_published`, `Ledger.record_shared` and `AuditLog.record`.
    """
    for column_draw in list_published(site, study, study_digest):
        send: Send = {
            "study_digest": study_digest,
            "study_id": study.id,
            "recipient": EVERYONE,
            "artifact_sha256": b"",
            "size": 0,
            "at": at,
        }
        charge = site.ledger.record_shared(column_draw, policy=site.config.policy, **send)
        row = make_audit_fields(column_draw, unit=None, charge=charge)
        line = line_of(What.SHARED, column_draw, charge, row, detail="noisy tables of the miner", **send)
        site.audit.record(line, at)

"""What the ledger is told of a masked study: that people were linked, and what a round tells whom, before anything is masked.

Promises
- A linkage is a row of its own, before this party's list leaves: who is common is told by it, whether a round follows or not, and
  no epsilon covers it. A data set's people are linked in at most ``max_linkages`` masked studies.
- All rows of a round are written with their lines of the audit log in one transaction, before the first message that is masked
  leaves: the tables for everybody, and for a dealer with its partner, and each column for these two. They name the round by its
  transcript T1, and stay when it ends early. The same again charges nothing; of one study no second round is charged, for an
  approval is for one.
- Killed anywhere, the next attempt writes what is missing. What the log tells already, the opening of the state has written back.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from verticil.party.audit.log import What
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.local_dataset import column_draw_of, origins
from verticil.party.policy.ledger_recovery import NO_DATA, ROUND
from verticil.party.policy.ledger_rows import Send, line_of, make_audit_fields
from verticil.party.protocol.planning import StoppedError
from verticil.party.protocol.randomization import reserve
from verticil.party.protocol.statistics import DEALER_TABLES, EVERYONE, profile_draws, statistics_of_each
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import Refusal
from verticil.shared.privacy.accounts import MASKED, NOTHING, Cost
from verticil.shared.privacy.events import Linkage, kind_of, plan_events, to_json
from verticil.shared.privacy.masked import ROUND_EVENTS
from verticil.shared.study.document import Study
from verticil.shared.study.tables import profiled

ROWS: Final = "a dealer with its partner (rows)"
PARTIES: Final = "the other parties (who is common)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow:
    """A row of the ledger that a round has.

    Attributes:
        column_draw: what is told.
        unit: index in the study; None: of no single unit.
        recipient: as in the ledger.
    """

    column_draw: ColumnDraw
    unit: int | None
    recipient: str


def tables_of_round(site: Site, study: Study, digest: bytes, t1: bytes) -> Iterator[RoundRow]:
    """Yield the rows of a round's tables: for everybody, and for a dealer with its partner.

    With measured bins they were charged with the approval, as one draw.

    Raises:
        Misuse, DataFault: party.toml or the tables do not say any more where the columns come from.
    """
    if profiled(study):
        for column_draw, recipient in profile_draws(site, study, digest):
            yield RoundRow(column_draw=column_draw, unit=None, recipient=recipient)
        return
    for event in (item.event for item in plan_events(study, site.config.name) if item.unit is None):
        public = event.reader == MASKED
        basis = t1 if public else hashlib.sha256(t1).digest()  # of each draw a delta is charged once
        noise = hashlib.sha256(to_json(event).encode("ascii")).digest()
        for column_draw in statistics_of_each(site, study, event, basis=basis, noise=noise, fingerprint=NO_DATA):
            yield RoundRow(column_draw=column_draw, unit=None, recipient=EVERYONE if public else DEALER_TABLES)


def rows_of_round(site: Site, study: Study, digest: bytes, t1: bytes) -> Iterator[RoundRow]:
    """Yield all rows of a round, of whatever data it was: `tables_of_round`, then each column; raises as that."""
    yield from tables_of_round(site, study, digest, t1)
    places = origins(site.config, study)
    for unit in study.units_of(site.config.name):
        column_draw = column_draw_of(study, unit, places=places, fingerprint=NO_DATA, site_secret=site.site_secret)
        yield RoundRow(column_draw=column_draw, unit=unit, recipient=ROWS)


def linkage_draws(site: Site, study: Study, digest: bytes) -> list[ColumnDraw]:
    """Return what linking a study's people means for the ledger, for each data set; raises as `tables_of_round`."""
    event = Linkage(mode=study.linkage.mode)
    return statistics_of_each(site, study, event, basis=digest, noise=b"", fingerprint=NO_DATA)


def charge_round(site: Site, record: StudyRecord, t1: bytes, at: dt.datetime) -> None:
    """Charge a round, once: to be called before its first message of step 2d, 3a, 3b or 6a is written, and again after a crash.

    Args:
        site: this party.
        record: the study; its units are in the spool.
        t1: the round's transcript, 32 bytes.
        at: now.

    Raises:
        StoppedError: the study was revoked or denied here.
        Refusal: BUDGET_EXCEEDED, EPSILON_INFINITE, DATA_CHANGED, limits were lowered or data changed since; APPROVAL_VOID,
            another round of this study was charged.
        DataFault: DISK_FULL, STATE_CORRUPT. Whatever is raised: nothing was written, and nothing may leave.
    """
    study = record.task.effective_study
    with site.database.transaction():
        if record.digest in site.revocations.list_stopped():
            raise StoppedError
        if site.ledger.rounds(record.digest, *ROUND_EVENTS) - {t1}:
            raise Refusal(
                "APPROVAL_VOID",
                f"study '{study.id}': another round of it was charged, and an approval is for one",
                hint="submit it again under a new id and approve it anew",
            )
        artifacts = site.state.artifacts(record.digest, record.task.effective_digest)
        items = {unit: artifacts[unit] for unit in study.units_of(site.config.name)}
        column_draws = {unit: ColumnDraw.from_json(item.facts) for unit, item in items.items()}
        reserve(site, record, study, column_draws)
        for row in tables_of_round(site, study, record.digest, t1):
            _enter(site, record, row.column_draw, t1, at, unit=None, recipient=row.recipient)
        for unit, column_draw in column_draws.items():
            _enter(site, record, column_draw, t1, at, unit=unit, recipient=ROWS, version_tag=items[unit].version_tag)


def _enter(
    site: Site,
    record: StudyRecord,
    column_draw: ColumnDraw,
    t1: bytes,
    at: dt.datetime,
    *,
    unit: int | None,
    recipient: str,
    version_tag: bytes = b"",
) -> None:
    """Enter one row with its line of the audit log; do nothing if it is there."""
    if site.ledger.has_row(record.digest, column_draw.variables, recipient, t1):
        return
    policy = site.config.policy
    send: Send = {
        "study_digest": record.digest,
        "study_id": record.study_id,
        "recipient": recipient,
        "artifact_sha256": t1,
        "size": 0,
        "at": at,
    }
    if unit is None:
        charge = site.ledger.record_shared(column_draw, policy=policy, **send)
    else:
        charge = site.ledger.record(column_draw, version_tag=version_tag, policy=policy, unit=unit, **send)
        column_draw = replace(column_draw, event=site.ledger.last_event())
    audit_fields = make_audit_fields(column_draw, unit=unit, version_tag=version_tag, charge=charge)
    _tell(site, column_draw, send, charge, audit_fields | {ROUND: t1.hex()})


def charge_linkage(site: Site, record: StudyRecord, at: dt.datetime) -> None:
    """Write down that the people of a masked study are linked, once: to be called before this party's list or commitment leaves.

    Raises:
        StoppedError: the study was revoked or denied here.
        Refusal: BUDGET_EXCEEDED, there is no room for another linkage.
        DataFault: DISK_FULL, STATE_CORRUPT; nothing was written, and nothing may leave.
    """
    study = record.task.latest
    with site.database.transaction():
        if record.digest in site.revocations.list_stopped():
            raise StoppedError
        for column_draw in linkage_draws(site, study, record.digest):
            if site.ledger.has_row(record.digest, column_draw.variables, PARTIES, b""):
                continue
            site.ledger.check_linkages(column_draw.dataset, site.config.policy, study_digest=record.digest)
            send: Send = {
                "study_digest": record.digest,
                "study_id": record.study_id,
                "recipient": PARTIES,
                "artifact_sha256": b"",
                "size": 0,
                "at": at,
            }
            people = site.ledger.people.digest(column_draw.dataset)
            site.ledger.write_row(column_draw, version_tag=b"", charge=NOTHING, unit=None, people=people, **send)
            _tell(site, column_draw, send, NOTHING, make_audit_fields(column_draw, unit=None))


def _tell(site: Site, column_draw: ColumnDraw, send: Send, charge: Cost, audit_fields: Mapping[str, object]) -> None:
    line = line_of(What.SHARED, column_draw, charge, audit_fields, detail=kind_of(column_draw.event).name, **send)
    site.audit.record(line, send["at"])

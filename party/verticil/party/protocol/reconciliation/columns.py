"""What the miner shows to have come from this party: columns that a ledger which was set back has forgotten (Model II).

The miner tells all of it when a party connects, before anything is sent. A unit that it has, or signed that it has deleted,
without a row here means that this state is older than what was sent (`verticil.party.protocol.reconciliation.forgotten`).

A miner's word alone is no send. It shows the approval that this party signed, and its own signed receipt of just this unit of the
study that was approved; a receipt of a study that this party did not approve is no proof. What it claims without both is never
charged and ends nothing: the study waits, and people read whose claim it is. What cannot be mended: sends that never became whole
at the miner (a unit that was begun and broken off).
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from verticil.party.local_dataset import column_draw_of, origins
from verticil.party.policy.ledger_recovery import NO_DATA
from verticil.party.protocol.reconciliation.forgotten import Forgotten, MissingRow
from verticil.party.protocol.reconciliation.reconciler import Verifier
from verticil.party.protocol.statistics import EVERYONE, list_published, profile_draws
from verticil.party.site import Site
from verticil.party.storage.studies import Task
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import NOTHING
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.canonical import parse_canonical
from verticil.shared.study.document import Study
from verticil.shared.study.tables import profiled
from verticil.wire.v1 import common_pb2, coordinator_pb2

RECIPIENT: Final = "miner"
"""The miner's name in the ledger."""
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_log = logging.getLogger(__name__)


def claim_words(names: Iterable[str]) -> str:
    """Return the words of a claim, for people."""
    return (
        f"the miner claims to have columns of this party ({', '.join(names)}) and shows no approval and receipt of them:"
        " nothing is charged, nothing is sent"
    )


def unknown_columns(site: Site, task: Task) -> tuple[str, ...]:
    """Return the variables of this party's units that the miner reports to have and the ledger does not know."""
    study = task.latest
    own = [study.units[unit].variables for unit in study.units_of(site.config.name) if unit in task.units_received]
    sent_columns = site.ledger.columns_sent(task.digest) if own else frozenset()
    return tuple(name for variables in own if variables not in sent_columns for name in variables)


def proven(
    site: Site,
    task: coordinator_pb2.StudyTask,
    *,
    deleted_units: Collection[int],
    authority: bytes,
    deny_list: Mapping[int, dt.datetime],
) -> frozenset[int]:
    """Return the units that the miner proves to have come from this party, by its leave.

    Args:
        site: this party.
        task: the task that the miner sent.
        deleted_units: units that it signed to have deleted; that is as good as a receipt.
        authority: the federation's, PEM.
        deny_list: the deny-list.
    """
    study, me = parse_canonical(task.effective or task.proposal), site.config.name
    receipts = dict(_receipts(task, study, me, authority=authority, deny_list=deny_list))
    try:
        approval = parse_approval(task.approval.body)
        # Signed with the certificate of that day; a renewed one may be younger than the decision.
        moments = [approval.approved_at, *receipts.values()]
        if not any(_is_signed(task.approval, authority, me, at=at, deny_list=deny_list) for at in moments):
            return frozenset()
    except PeerFault:
        return frozenset()
    if (approval.proposal_digest, approval.party) != (task.study_digest, me):
        return frozenset()
    approved_units = {(item.unit.variables, item.unit.transition.digest()) for item in approval.units}
    return frozenset(
        unit
        for unit in {*receipts, *deleted_units} & {*study.units_of(me)}
        if (study.units[unit].variables, study.units[unit].transition.digest()) in approved_units
    )


def _is_signed(
    signed: common_pb2.Signed, authority: bytes, name: str, *, at: dt.datetime, deny_list: Mapping[int, dt.datetime]
) -> bool:
    try:
        verify_signed(signed, authority, role=Role.PARTY, name=name, at=at, deny_list=deny_list)
    except PeerFault:
        return False
    return True


def _receipts(
    task: coordinator_pb2.StudyTask,
    study: Study,
    party: str,
    *,
    authority: bytes,
    deny_list: Mapping[int, dt.datetime],
) -> Iterator[tuple[int, dt.datetime]]:
    """Unit, and when it had come whole, of each receipt that holds and is about this party's columns of this study."""
    for signed in task.receipts:
        try:
            body = cast("dict[str, object]", json.loads(signed.body))
            at = dt.datetime.strptime(cast("str", body["received_at"]), _TIME).replace(tzinfo=dt.UTC)
            verify_signed(signed, authority, role=Role.MINER, at=at, deny_list=deny_list)
            unit = body["unit"]
            expected_body: dict[str, object] = {
                "proposal_digest": task.study_digest.hex(),
                "effective_digest": task.effective_digest.hex(),
                "party": party,
                "variables": list(study.units[unit].variables) if isinstance(unit, int) and unit >= 0 else None,
            }
            fits = (
                isinstance(body["artifact_sha256"], str) and {key: body[key] for key in expected_body} == expected_body
            )
        except (VerticilError, ValueError, LookupError, TypeError, RecursionError):
            continue
        if fits:
            yield cast("int", unit), at


def forgotten_columns(
    site: Site, task: coordinator_pb2.StudyTask, *, deleted_units: Collection[int], proved_units: Collection[int]
) -> Forgotten | None:
    """Compare what the miner has of a study with the ledger; what it claims and does not show is written to the log alone.

    Args:
        site: this party.
        task: the task that the miner sent.
        deleted_units: units that it signed to have deleted.
        proved_units: units that it shows to have come from this party, see `proven`; others count for nothing.

    Returns:
        What the ledger lacks, with the noisy tables that everybody is told of these columns; None: nothing.
    """
    study, digest = parse_canonical(task.effective or task.proposal), task.study_digest
    sent_columns, own = site.ledger.columns_sent(digest), study.units_of(site.config.name)
    there = sorted({*task.units_received, *deleted_units})
    unknown = [unit for unit in there if unit in own and study.units[unit].variables not in sent_columns]
    missing = [unit for unit in unknown if unit in proved_units]
    if unproved_names := [name for unit in unknown if unit not in proved_units for name in study.units[unit].variables]:
        _log.warning("study '%s': %s", study.id, claim_words(unproved_names))
    if not missing:
        return None
    names = ", ".join(name for unit in missing for name in study.units[unit].variables)

    def rows() -> Sequence[MissingRow]:
        places = origins(site.config, study)
        columns = [
            (
                unit,
                column_draw_of(study, unit, places=places, fingerprint=NO_DATA, site_secret=site.site_secret),
                RECIPIENT,
            )
            for unit in missing
        ]
        tables = [(None, column_draw, EVERYONE) for column_draw in list_published(site, study, digest)]
        return [
            MissingRow(column_draw=column_draw, unit=unit, charged=cost_of(column_draw.event), recipient=recipient)
            for unit, column_draw, recipient in (*columns, *tables)
        ]

    return Forgotten(
        study_digest=digest,
        study_id=study.id,
        holder="the miner",
        what=f"columns of this party ({names})",
        rows=rows,
    )


def forgotten_profiles(verifier: Verifier, task: coordinator_pb2.StudyTask) -> Forgotten | None:
    """Compare the profiles that left with this party's approval, which the miner shows, with the ledger.

    Returns:
        The rows that the ledger lacks; None: it lacks none, or no bins were measured.
    """
    site, proposal = verifier.site, parse_canonical(task.proposal)
    if not profiled(proposal) or not verifier.has_approved(task.approval, task.study_digest):
        return None
    try:
        study = parse_approval(task.approval.body).declared_in(proposal)
    except ValueError:
        return None  # it was never taken

    def rows() -> Sequence[MissingRow]:
        return [
            MissingRow(
                column_draw=column_draw,
                charged=NOTHING if site.ledger.holds(column_draw) else cost_of(column_draw.event),
                recipient=recipient,
            )
            for column_draw, recipient in profile_draws(site, study, task.study_digest)
            if not site.ledger.has_row(task.study_digest, column_draw.variables, recipient, b"")
        ]

    if not rows():
        return None
    what = "an approval of this party, with the profiles of its numbers"
    return Forgotten(study_digest=task.study_digest, study_id=study.id, holder="the miner", what=what, rows=rows)


def columns_from_miner(verifier: Verifier, task: coordinator_pb2.StudyTask) -> Sequence[Forgotten]:
    """Return what the miner shows to have of this party's columns, and the ledger lacks; see `Reconciler.from_miner`."""
    site = verifier.site
    deletion = site.revocations.deletion(task.study_digest)
    deleted_units = tuple(deletion.artifacts) if deletion is not None else ()
    proved_units = proven(
        site, task, deleted_units=deleted_units, authority=verifier.authority, deny_list=verifier.revoked
    )
    missing_rows = forgotten_columns(site, task, deleted_units=deleted_units, proved_units=proved_units)
    return tuple(item for item in (forgotten_profiles(verifier, task), missing_rows) if item is not None)

"""What this party does next for a study of Model II: a pure function of what the miner sent and what this party remembers.

Order rules
1. Agreement, review and ends are those of every study that a miner tells (`verticil.party.protocol.with_miner.plan`).
2. Pseudonyms go when every party has approved.
3. The common list is confirmed when the miner can send it and this party has recomputed it.
4. Randomization waits until the miner asks for units (every party has confirmed), and goes before the first send.
5. Units go one after the other, each after its row in the ledger.

Every step leads to a state in which it is not planned again, or can be repeated without harm; so a party that was killed
anywhere plans the same step again and goes on. No files, no clock, no network here.
"""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum

from verticil.party.policy.decision_store import Review
from verticil.party.protocol.planning import REST, Plan
from verticil.party.protocol.with_miner.plan import common
from verticil.party.storage.studies import StudyRecord
from verticil.shared.study.states import State


class Step(StrEnum):
    """One thing to do, beside those of `verticil.party.protocol.with_miner.plan.Step`."""

    REST = REST
    LINK = "link"
    CONFIRM = "confirm"
    RANDOMIZE = "randomize"
    SEND = "send"


def plan(
    record: StudyRecord,
    *,
    automatic: bool,
    own_units: Set[int],
    spooled_units: Set[int],
    receipted_units: Set[int],
    review: Review | None = None,
    countersigns: bool = False,
    unproven: str = "",
) -> Plan:
    """Return the next step for a study.

    Args:
        record: what is known of it.
        automatic: approval needs no person here (demo), or the site's rules have not been asked yet.
        own_units: this party's units.
        spooled_units: those of them that are randomized and in the spool for the present effective study.
        receipted_units: those of the spooled that the miner has signed for.
        review: the release that waits for countersignatures.
        countersigns: this party countersigns without a person (demo only).
        unproven: what the miner claims to have and does not prove; the study waits until it does.

    Returns:
        The step; `Step.REST` when it is others' turn.
    """
    missing = own_units - receipted_units - set(record.task.units_received)
    return common(
        record,
        automatic=automatic,
        leftovers=bool(spooled_units),
        review=review,
        countersigns=countersigns,
        unproven=unproven,
    ) or _after_approval(record, State(record.task.state), missing=missing, spooled_units=spooled_units)


def _after_approval(record: StudyRecord, state: State, *, missing: Set[int], spooled_units: Set[int]) -> Plan:
    task = record.task
    if not task.pseudonyms_complete:
        return Plan(step=Step.LINK, stage="linking")
    if not task.alignment_confirmed or record.n_common is None:
        return Plan(step=Step.CONFIRM, stage="linking")
    if state not in {State.PREPARING, State.UPLOADING}:
        waiting = "waiting for the other parties" if state < State.PREPARING else f"at the miner: {state.name.lower()}"
        return Plan(step=Step.REST, stage=waiting)
    if not missing:
        return Plan(step=Step.REST, stage="all columns sent")
    if missing - spooled_units:
        return Plan(step=Step.RANDOMIZE, stage="randomizing")
    return Plan(step=Step.SEND, stage="uploading")

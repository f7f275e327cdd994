"""What this party does next for a study with masked tables (Model III): a pure function of what it was told and remembers.

Order rules
1. Agreement, review and ends are those of every study that a miner tells (`verticil.party.protocol.with_miner.plan.common`).
2. When every party has approved, the parties link among themselves: lists go round (LIST), the common people are found (COMMON).
   The miner gets a signed number and a digest of the common order (COMMIT), and no list.
3. When all parties have said the same, the own units are randomized into the spool (RANDOMIZE). No unit leaves.
4. The round goes on (ROUND) until this party has the opened tables and has said so: before it looks at a release, and also when
   the miner was so fast that the study is published. What it made for others lies there for them until then.

Every step leads to a state in which it is not planned again, or can be repeated without harm; so a party that was killed
anywhere plans the same step again and goes on. No files, no clock, no network here.
"""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum
from typing import Final

from verticil.party.policy.decision_store import Review
from verticil.party.protocol.planning import REST, Plan
from verticil.party.protocol.with_miner import plan as told
from verticil.party.storage.studies import StudyRecord
from verticil.shared.study.states import State


class Step(StrEnum):
    """One thing to do, beside those of `verticil.party.protocol.with_miner.plan.Step`."""

    REST = REST
    LIST = "list"
    COMMON = "common"
    COMMIT = "commit"
    RANDOMIZE = "randomize"
    ROUND = "round"


FROM_PEERS: Final = frozenset({Step.LIST, Step.COMMON, Step.ROUND})
"""Steps that wait for other parties, who do not say when they have gone on: they are asked again."""


def plan(
    record: StudyRecord,
    *,
    automatic: bool,
    has_listed: bool,
    common: bool,
    own_units: Set[int],
    spooled_units: Set[int],
    has_finished: bool,
    has_begun: bool,
    leftovers: bool,
    review: Review | None = None,
    countersigns: bool = False,
    unproven: str = "",
) -> Plan:
    """Return the next step for a study.

    Args:
        record: what is known of it.
        automatic: approval needs no person here (demo), or the site's rules have not been asked yet.
        has_listed: this party has made what the others need to link.
        common: the common people are found and accepted.
        own_units: this party's units.
        spooled_units: those of them that are randomized and in the spool for the present effective study.
        has_finished: the round is over for this party, and what it made lies there for the others.
        has_begun: a round is on the disk.
        leftovers: something is kept that a study needs only while it goes on.
        review, countersigns, unproven: as of `verticil.party.protocol.with_miner.plan.common`.
    """
    state = State(record.task.state)
    has_stopped = record.failure is not None or record.denial_sent is not None or record.revocation_sent is not None
    if has_begun and not (has_finished or has_stopped) and state in {State.REVIEW, State.PUBLISHED}:
        return Plan(step=Step.ROUND, stage="fetching the opened tables")
    return told.common(
        record,
        automatic=automatic,
        leftovers=leftovers,
        review=review,
        countersigns=countersigns,
        unproven=unproven,
    ) or _after_approval(
        record,
        has_listed=has_listed,
        common=common,
        missing=own_units - spooled_units,
        has_finished=has_finished or (state > State.UPLOADING and not has_begun),
    )


def _after_approval(
    record: StudyRecord, *, has_listed: bool, common: bool, missing: Set[int], has_finished: bool
) -> Plan:
    task, state = record.task, State(record.task.state)
    if not common:
        return Plan(step=Step.COMMON if has_listed else Step.LIST, stage="linking")
    if not (task.pseudonyms_complete and task.alignment_confirmed):
        return Plan(step=Step.COMMIT, stage="linking")
    if state < State.PREPARING:
        return Plan(step=Step.REST, stage="waiting for the other parties")
    if has_finished:
        over = state > State.UPLOADING
        return Plan(step=Step.REST, stage=f"at the miner: {state.name.lower()}" if over else "the tables are opened")
    if missing:
        return Plan(step=Step.RANDOMIZE, stage="randomizing")
    return Plan(step=Step.ROUND, stage="masking tables")

"""What this party does next for any study that a miner tells: agreement, review, ends; the rest is its protocol's.

Order rules
1. After a denial or a failure of this party nothing is sent for the study but the news of it.
2. Without a recorded approval of this party nothing is sent, not even a pseudonym; only how many of its approvers have said
   yes may be sent. The approval goes first.
3. What the protocol does begins when every party has approved: the miner then sends the effective study, and this party has
   compared its own part with what it approved.
4. A release that waits for countersignatures is fetched, so that this party's people can look at it; what they signed is sent.
5. A study that ended at the miner asks for nothing; what is still kept for it is removed.
6. After a revocation, which may come at any time, what is kept is cleared and the miner informed, whatever the state.

Every step leads to a state in which it is not planned again, or can be repeated without harm; so a party that was killed
anywhere plans the same step again and goes on. No files, no clock, no network here.
"""

from __future__ import annotations

from enum import StrEnum

from verticil.party.policy.decision_store import Review
from verticil.party.protocol.planning import REST, Plan, awaiting_approval
from verticil.party.storage.studies import StudyRecord
from verticil.shared.study.states import State, is_final


class Step(StrEnum):
    """One thing to do for any study that a miner tells; each protocol has its own besides."""

    REST = REST
    CLEAR = "clear"
    TELL_DENIAL = "tell-denial"
    TELL_FAILURE = "tell-failure"
    TELL_REVOCATION = "tell-revocation"
    APPROVE = "approve"
    TELL_APPROVAL = "tell-approval"
    FETCH_REVIEW = "fetch-review"
    COUNTERSIGN = "countersign"
    TELL_COUNTERSIGNATURE = "tell-countersignature"


def common(
    record: StudyRecord,
    *,
    automatic: bool,
    leftovers: bool,
    review: Review | None,
    countersigns: bool,
    unproven: str,
) -> Plan | None:
    """Return the next step of any study that a miner runs: agreement, review, ends; None: its protocol decides.

    Args:
        leftovers: something is kept that a study needs only while it goes on.
        record: what is known of it.
        automatic: approval needs no person here (demo), or the site's rules have not been asked yet.
        review: the release that waits for countersignatures.
        countersigns: this party countersigns without a person (demo only).
        unproven: what the miner claims to have and does not prove; the study waits until it does.
    """
    state = State(record.task.state)
    if (over := _over(record, state, leftovers=leftovers)) is not None:
        return over
    if unproven:
        return Plan(step=Step.REST, stage=unproven)
    if record.approval is None:
        return _before_approval(record, automatic=automatic)
    if not (record.task.approved and record.task.effective):
        return _before_agreement(record)
    if state is State.REVIEW and review is not None:
        return _review(review, countersigns=countersigns)
    return None


def _over(record: StudyRecord, state: State, *, leftovers: bool) -> Plan | None:
    """Return what is left to do when nothing more is sent for the study; None: it goes on."""
    if record.revocation_sent is not None:
        return _plan_after_revocation(state, is_reported=record.revocation_sent, leftovers=leftovers)
    if is_final(state):
        return Plan(step=Step.CLEAR if leftovers else Step.REST, stage=_ending(record, state))
    if record.failure is not None or record.denial_sent is not None:
        return _given_up(record)
    return None


def _plan_after_revocation(state: State, *, is_reported: bool, leftovers: bool) -> Plan:
    after = " after its publication" if state is State.PUBLISHED else ""
    if leftovers:
        return Plan(step=Step.CLEAR, stage=f"revoked{after}")
    if is_reported:
        return Plan(step=Step.REST, stage=f"revoked{after}")
    return Plan(step=Step.TELL_REVOCATION, stage=f"revoked{after}, telling the miner")


def _before_agreement(record: StudyRecord) -> Plan:
    if not record.task.approved:
        return Plan(step=Step.TELL_APPROVAL, stage="sending the approval")
    return Plan(step=Step.REST, stage="waiting for the other parties' approval")


def _review(review: Review, *, countersigns: bool) -> Plan:
    if not review.fetched:
        return Plan(step=Step.FETCH_REVIEW, stage="fetching the release for review")
    if review.countersignature is None:
        step = Step.COUNTERSIGN if countersigns else Step.REST
        return Plan(step=step, stage="the release waits for your countersignature")
    if not review.sent:
        return Plan(step=Step.TELL_COUNTERSIGNATURE, stage="sending the countersignature")
    return Plan(step=Step.REST, stage="countersigned; waiting for the other parties")


def _ending(record: StudyRecord, state: State) -> str:
    if record.failure is not None and state is State.FAILED:
        return f"failed: {record.failure.code}"
    return f"failed: {record.task.failure}" if state is State.FAILED and record.task.failure else state.name.lower()


def _given_up(record: StudyRecord) -> Plan:
    if record.failure is not None:
        step = Step.REST if record.failure_sent else Step.TELL_FAILURE
        return Plan(step=step, stage=f"failed: {record.failure.code}")
    return Plan(step=Step.REST if record.denial_sent else Step.TELL_DENIAL, stage="denied")


def _before_approval(record: StudyRecord, *, automatic: bool) -> Plan:
    if automatic:
        return Plan(step=Step.APPROVE, stage="approving")
    return Plan(step=Step.REST, stage=awaiting_approval(record.n_votes))

"""What this party does next for any study that every party's operator loads: agreement, the common people, ends; pure.

Order rules
1. After a denial, a revocation or a failure of this party, or of a peer, or when the last day has passed, the study has ended
   here: what was made for it is dropped, and peers that ask receive the reason.
2. Peers are asked for the digest of what their operators loaded, and for their approval, from the first moment; nothing but this
   party's own digest is sent before it has approved, and nothing but its approval before every party has (AGREE makes the
   effective study).
3. With linkage order-commitment every party makes its commitment to its rows' order (LIST) and compares everybody's (COMMON);
   with dh-psi every party blinds everybody's list (LIST), and finds the common people when all are blinded (COMMON). Else the
   lists of pseudonyms pass along the parties in the study's order: the first serves its own, each next one what it has in
   common with that (LIST); the last one's is common to all and everybody takes it over (COMMON).
4. What follows is the protocol's own, until every party has made a statement. Then the release is assembled from all statements
   (ASSEMBLE), and published when all parties have signed the same manifest (SIGN).

Every step leads to a state in which it is not planned again, or can be repeated without harm; so a party that was killed
anywhere plans the same step again and goes on. No files, no clock, no network here.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum

from verticil.party.protocol.planning import REST, Plan, awaiting_approval
from verticil.shared.study.states import State, is_final


class Step(StrEnum):
    """One thing to do in any study between parties; each protocol has its own besides."""

    REST = REST
    END = "end"
    CLEAR = "clear"
    APPROVE = "approve"
    ASK = "ask"
    AGREE = "agree"
    LIST = "list"
    COMMON = "common"
    ASSEMBLE = "assemble"
    SIGN = "sign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What this party remembers of a study.

    Attributes:
        state: as it was written down last.
        party: this party.
        parties: all, in the study's order.
        expired: the last day has passed.
        automatic: approval needs no person here (demo), or the site's rules have not been asked yet.
        approved: this party has approved.
        n_votes: approvers who said yes so far.
        denied: this party has denied.
        revoked: this party has taken its approval back.
        failure: code of why this party cannot go on; empty: it can.
        approvals: peers whose approval is here.
        agreed: the effective study is made.
        committing: the parties commit to what is common, and pass no running list on.
        listed: this party's running list is here (the last party has none: its list is the common one), or its commitment, or
            all the lists that it has to blind are blinded.
        common: the common list is here and accepted.
        statements: parties whose signed statement is here, this one among them.
        assembled: the release's folder is there.
        signatures: parties whose signed manifest is here.
        leftovers: something is kept that an ended study does not need.
    """

    state: State
    party: str
    parties: tuple[str, ...]
    expired: bool = False
    automatic: bool = False
    approved: bool = False
    n_votes: int = 0
    denied: bool = False
    revoked: bool = False
    failure: str = ""
    approvals: Set[str] = frozenset()
    agreed: bool = False
    committing: bool = False
    listed: bool = False
    common: bool = False
    statements: Set[str] = frozenset()
    assembled: bool = False
    signatures: Set[str] = frozenset()
    leftovers: bool = False

    @property
    def peers(self) -> tuple[str, ...]:
        """The other parties, in the study's order."""
        return tuple(name for name in self.parties if name != self.party)


def until_common(facts: Facts) -> Plan | None:
    """Return the next step of any protocol between parties until the common people are found; None: they are."""
    if is_final(facts.state):
        return Plan(
            step=Step.CLEAR if facts.leftovers else Step.REST, state=facts.state, stage=_ending(facts, facts.state)
        )
    end = _end_of(facts)
    if end is not None:
        return Plan(step=Step.END, state=end, stage=_ending(facts, end))
    if not (facts.agreed and facts.approved):
        return _before_agreement(facts)
    if not facts.common:
        return _aligning(facts)
    return None


def _end_of(facts: Facts) -> State | None:
    if facts.revoked:
        return State.WITHDRAWN
    if facts.denied or facts.failure == "STUDY_DENIED":
        return State.DENIED
    if facts.failure:
        return State.EXPIRED if facts.failure == "STUDY_EXPIRED" else State.FAILED
    return State.EXPIRED if facts.expired else None


def _ending(facts: Facts, state: State) -> str:
    if facts.revoked and state is State.PUBLISHED:
        return "revoked after its publication"
    return f"failed: {facts.failure}" if state is State.FAILED and facts.failure else state.words


def _before_agreement(facts: Facts) -> Plan:
    if facts.automatic and not facts.approved:
        return Plan(step=Step.APPROVE, state=State.AWAITING_APPROVAL, stage="approving")
    if facts.approved and facts.approvals >= set(facts.peers):
        return Plan(step=Step.AGREE, state=State.AWAITING_APPROVAL, stage="agreeing")
    return Plan(
        step=Step.ASK,
        state=State.AWAITING_APPROVAL,
        stage="asking the peers" if facts.approved else awaiting_approval(facts.n_votes),
    )


def _aligning(facts: Facts) -> Plan:
    is_last = facts.party == facts.parties[-1] and not facts.committing
    step = Step.COMMON if is_last or facts.listed else Step.LIST
    return Plan(step=step, state=State.ALIGNING, stage="linking")


def publishing(facts: Facts) -> Plan:
    """Return the next step of any protocol between parties when every party's statement is here."""
    if not facts.assembled:
        return Plan(step=Step.ASSEMBLE, state=State.REVIEW, stage="assembling the release")
    return Plan(step=Step.SIGN, state=State.REVIEW, stage="comparing releases")

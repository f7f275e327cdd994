"""The states of a study's life (contract.md section 5), derived from durable facts and from nothing else.

No event moves a state: the same facts give the same state, so both sides agree again after any crash.

Order rules:

1. PUBLISHED is final: what is published cannot be recalled, whatever happens after.
2. Otherwise a side exit wins over every stage, in the order WITHDRAWN, DENIED, FAILED, EXPIRED. Expiry comes last because
   the clock brings it by itself: a study that failed stays FAILED when its day has passed.
3. Otherwise the stage is the first whose condition is not yet met, so a fact that comes too early moves nothing:
   - SUBMITTED until the study is offered to its parties;
   - AWAITING_APPROVAL until every party approved;
   - ALIGNING until every party's pseudonyms are complete, the common list is computed and every party confirmed it;
   - PREPARING until a first artifact arrives (or one has begun to; of masked tables, until the miner has begun its round);
   - UPLOADING until every unit is stored (of masked tables, until they are opened);
   - ESTIMATING, then LEARNING, then REVIEW as the job says, until published.

More facts never lead back to an earlier stage. A recorder takes no new facts into a study whose state is final.
"""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from verticil.shared.core.errors import Misuse


class State(enum.IntEnum):
    """The wire's numbers (`StudyState`); they are stored, so they are never renumbered."""

    SUBMITTED = 1
    AWAITING_APPROVAL = 2
    ALIGNING = 3
    PREPARING = 4
    UPLOADING = 5
    ESTIMATING = 6
    LEARNING = 7
    REVIEW = 8
    PUBLISHED = 9
    DENIED = 20
    EXPIRED = 21
    WITHDRAWN = 22
    FAILED = 23

    @property
    def words(self) -> str:
        """The state for people.

        >>> State(2).words
        'awaiting approval'
        """
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known for certain about one study.

    Attributes:
        parties: all parties of the study.
        offered: the parties can see the study.
        approvals: parties whose approval is recorded.
        denials: parties that denied.
        pseudonyms: parties whose list of pseudonyms is complete.
        aligned: the common list is computed.
        confirmed: parties that recomputed the common list and accept it.
        units_expected: units of the effective study; of masked tables, shares, one of each party.
        units_received: units stored and receipted; shares that were opened.
        uploading: an upload, or a round, has begun.
        estimating, learning, review: the job reached this stage.
        published: the release is signed and can be fetched.
        failure: error code of what ended the study; None when nothing did.
        withdrawn: the analyst cancelled it.
        expired: its last day has passed.

    Raises:
        ValueError: a fact is about somebody who is not a party, or there are more units than expected.
    """

    parties: AbstractSet[str]
    offered: bool = True
    approvals: AbstractSet[str] = frozenset()
    denials: AbstractSet[str] = frozenset()
    pseudonyms: AbstractSet[str] = frozenset()
    aligned: bool = False
    confirmed: AbstractSet[str] = frozenset()
    units_expected: int = 0
    units_received: int = 0
    uploading: bool = False
    estimating: bool = False
    learning: bool = False
    review: bool = False
    published: bool = False
    failure: str | None = None
    withdrawn: bool = False
    expired: bool = False

    def __post_init__(self) -> None:
        if not self.parties:
            raise ValueError("a study has at least one party")
        for name in ("approvals", "denials", "pseudonyms", "confirmed"):
            if strangers := getattr(self, name) - self.parties:
                raise ValueError(f"{name}: {sorted(strangers)} are not parties of the study")
        if not 0 <= self.units_received <= self.units_expected:
            raise ValueError(f"{self.units_received} units received, expected 0 to {self.units_expected}")


def derive(facts: Facts) -> State:
    """Return the state that follows from the facts.

    >>> derive(Facts(parties={"a", "b"}, approvals={"a"})).name
    'AWAITING_APPROVAL'
    """
    if facts.published:
        return State.PUBLISHED
    if facts.withdrawn:
        return State.WITHDRAWN
    if facts.denials:
        return State.DENIED
    if facts.failure is not None:
        return State.FAILED
    if facts.expired:
        return State.EXPIRED
    return _stage(facts)


def _stage(facts: Facts) -> State:
    everyone = facts.parties
    is_aligned = facts.aligned and facts.pseudonyms == everyone and facts.confirmed == everyone
    has_begun = facts.uploading or facts.units_received > 0
    unmet = (
        (State.SUBMITTED, facts.offered),
        (State.AWAITING_APPROVAL, facts.approvals == everyone),
        (State.ALIGNING, is_aligned),
        (State.PREPARING, has_begun),
        (State.UPLOADING, 0 < facts.units_expected == facts.units_received),
        (State.ESTIMATING, facts.learning or facts.review),
        (State.LEARNING, facts.review),
    )
    return next((state for state, is_met in unmet if not is_met), State.REVIEW)


def is_final(state: State) -> bool:
    """Return whether nothing follows this state."""
    return state in {State.PUBLISHED, State.DENIED, State.EXPIRED, State.WITHDRAWN, State.FAILED}


def require_open(study_id: str, state: State) -> None:
    """Refuse to say that a study was submitted which had ended before; one that is published is as good as submitted.

    Raises:
        Misuse: STUDY_OVER.
    """
    if is_final(state) and state is not State.PUBLISHED:
        raise Misuse(
            "STUDY_OVER",
            f"study '{study_id}': it ended before ({state.words}), and nothing was submitted",
            hint="change something in it, such as the title, and submit it as a new study",
        )


def require_withdrawn(study_id: str, state: State) -> None:
    """Refuse to pass over in silence that a study had ended otherwise before it could be withdrawn.

    Raises:
        Misuse: STUDY_OVER.
    """
    if state is State.WITHDRAWN or not is_final(state):
        return
    hint = "a published release cannot be recalled; a party can mark it: verticil party revoke"
    raise Misuse(
        "STUDY_OVER",
        f"study '{study_id}': it is over already ({state.words}), expected one that is under way",
        hint=hint if state is State.PUBLISHED else "there is nothing left to withdraw",
    )

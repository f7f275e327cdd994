"""What this party does next for a study between peers (Model I): a pure function of what it remembers.

Order rules
1. Agreement, the common people and ends are those of every study between parties (`verticil.party.protocol.with_peers.plan`).
2. A structure that is to be learned comes from scores of pairs: own columns that a peer scores are randomized (RANDOMIZE), peers'
   columns are pulled (PULL), the scores go to the miner (SCORE).
3. With the structure the columns that it needs follow, in the same two steps; no other column is ever randomized or pulled.
4. The parameters of the own variables are computed once and stored before a peer reads them (LEARN); everybody's are collected
   (COLLECT), and the release is made of them.

Every step leads to a state in which it is not planned again, or can be repeated without harm; so a party that was killed
anywhere plans the same step again and goes on. No files, no clock, no network here.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum

from verticil.party.protocol.planning import Plan
from verticil.party.protocol.with_peers.plan import Facts, publishing, until_common
from verticil.shared.study.states import State


class Step(StrEnum):
    """One thing to do, beside those of `verticil.party.protocol.with_peers.plan.Step`."""

    RANDOMIZE = "randomize"
    PULL = "pull"
    SCORE = "score"
    LEARN = "learn"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFacts(Facts):
    """What this party remembers of a study; the statements are signed parameters.

    Attributes:
        structure: the structure is known.
        wanted: units of peers that this party reads: for its scores where the structure is learned, for its parameters with it.
        received: those of peers' units that are here.
        needed: own units that somebody reads now.
        spooled: own units that are randomized.
    """

    structure: bool = False
    wanted: Set[int] = frozenset()
    received: Set[int] = frozenset()
    needed: Set[int] = frozenset()
    spooled: Set[int] = frozenset()


def plan(facts: PeerFacts) -> Plan:
    """Return the next step for a study.

    >>> plan(PeerFacts(state=State.SUBMITTED, party="a", parties=("a", "b"), approved=True)).step
    <Step.ASK: 'ask'>
    """
    return until_common(facts) or _exchange(facts) or _learning(facts)


def _exchange(facts: PeerFacts) -> Plan | None:
    """Return the step for the columns: own ones first, because peers wait for them."""
    scoring = not facts.structure
    if facts.party in facts.statements:
        # This party has what it needs; what its peers read must still be there for them.
        if facts.needed - facts.spooled:
            return Plan(step=Step.RANDOMIZE, state=State.LEARNING, stage="randomizing")
        return None
    if facts.needed - facts.spooled:
        return Plan(step=Step.RANDOMIZE, state=State.PREPARING, stage="randomizing")
    if facts.wanted - facts.received:
        return Plan(step=Step.PULL, state=State.UPLOADING, stage="exchanging columns")
    if scoring:
        return Plan(step=Step.SCORE, state=State.ESTIMATING, stage="scoring pairs")
    return None


def _learning(facts: PeerFacts) -> Plan:
    if facts.party not in facts.statements:
        return Plan(step=Step.LEARN, state=State.LEARNING, stage="learning")
    if facts.statements < set(facts.parties):
        return Plan(step=Step.COLLECT, state=State.LEARNING, stage="collecting parameters")
    return publishing(facts)

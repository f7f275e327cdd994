"""What a party does next for a study of the blank protocol: a pure function of what it remembers.

Order rules
1. Agreement, the common people and ends are those of every study between parties.
2. The party is charged and signs its statement (CHARGE) before its first message can be fetched.
3. Round follows round (ROUND), each when the messages of all others in the one before are here.
4. Everybody's statement is fetched (COLLECT); the release is made of them, and signed by all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from support.blank_protocol.study import ROUNDS
from verticil.party.protocol.planning import Plan
from verticil.party.protocol.with_peers.plan import Facts, publishing, until_common
from verticil.shared.study.states import State


class Step(StrEnum):
    """One thing to do, beside those of `verticil.party.protocol.with_peers.plan.Step`."""

    CHARGE = "charge"
    ROUND = "round"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlankFacts(Facts):
    """What this party remembers of a study.

    Attributes:
        rounds: how many rounds are whole here.
    """

    rounds: int = 0


def plan(facts: BlankFacts) -> Plan:
    """Return the next step for a study."""
    if (step := until_common(facts)) is not None:
        return step
    if facts.party not in facts.statements:
        return Plan(step=Step.CHARGE, state=State.PREPARING, stage="charging")
    if facts.rounds < ROUNDS:
        return Plan(step=Step.ROUND, state=State.UPLOADING, stage=f"round {facts.rounds + 1} of {ROUNDS}")
    if facts.statements < set(facts.parties):
        return Plan(step=Step.COLLECT, state=State.LEARNING, stage="collecting statements")
    return publishing(facts)

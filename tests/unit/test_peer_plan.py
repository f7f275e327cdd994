"""The planner of a study between peers: each rule of order, one fact at a time."""

from __future__ import annotations

import dataclasses
import itertools
from enum import StrEnum

import pytest

from verticil.party.protocol.peer.plan import PeerFacts, Step, plan
from verticil.party.protocol.with_peers.plan import Step as Between
from verticil.shared.study.states import State

START = PeerFacts(state=State.AWAITING_APPROVAL, party="b", parties=("a", "b", "c"))
LEARNED = {"wanted": frozenset({0}), "needed": frozenset({1})}


def steps_of_a_study(*, party: str, learned: bool) -> list[StrEnum]:
    """Let every step succeed, and write down which were planned."""
    facts = dataclasses.replace(START, party=party, structure=False)
    taken: list[StrEnum] = []
    while len(taken) < 50:
        found = plan(facts)
        taken.append(found.step)
        facts = dataclasses.replace(facts, state=found.state)
        match found.step:
            case Between.ASK:
                changed = {"approved": True, "approvals": frozenset(facts.peers)}
            case Between.AGREE:
                changed = {"agreed": True, "structure": not learned, **LEARNED}
            case Between.LIST:
                changed = {"listed": True}
            case Between.COMMON:
                changed = {"common": True}
            case Step.RANDOMIZE:
                changed = {"spooled": facts.needed, "leftovers": True}
            case Step.PULL:
                changed = {"received": facts.wanted}
            case Step.SCORE:
                changed = {"structure": True, "wanted": frozenset({0, 2}), "needed": frozenset({1, 3})}
            case Step.LEARN:
                changed = {"statements": frozenset({party})}
            case Step.COLLECT:
                changed = {"statements": frozenset(facts.parties)}
            case Between.ASSEMBLE:
                changed = {"assembled": True, "signatures": frozenset({party})}
            case Between.SIGN:
                changed = {"state": State.PUBLISHED}
            case Between.CLEAR:
                changed = {"leftovers": False}
            case _:
                return taken
        facts = dataclasses.replace(facts, **changed)
    raise AssertionError("the study never ends")


COLUMNS = [Step.RANDOMIZE, Step.PULL]
END = [Step.LEARN, Step.COLLECT, Between.ASSEMBLE, Between.SIGN, Between.CLEAR, Between.REST]


@pytest.mark.parametrize("party", ["a", "b", "c"])
def test_the_way_of_a_given_structure(party):
    lists = (
        [Between.COMMON] if party == "c" else [Between.LIST, Between.COMMON]
    )  # the last one's list is the common one
    assert steps_of_a_study(party=party, learned=False) == [Between.ASK, Between.AGREE, *lists, *COLUMNS, *END]


def test_a_learned_structure_needs_columns_twice():
    found = steps_of_a_study(party="a", learned=True)
    assert found == [Between.ASK, Between.AGREE, Between.LIST, Between.COMMON, *COLUMNS, Step.SCORE, *COLUMNS, *END]


def everything_there() -> list[PeerFacts]:
    """All combinations of what may be known, before anybody has approved everything."""
    flags = ["listed", "common", "structure", "assembled"]
    return [
        dataclasses.replace(START, **dict(zip(flags, values, strict=True)), spooled=frozenset({1}))
        for values in itertools.product((False, True), repeat=len(flags))
    ]


def test_nothing_but_questions_before_all_have_approved():
    for facts in everything_there():
        assert plan(facts).step is Between.ASK
        assert plan(dataclasses.replace(facts, automatic=True)).step is Between.APPROVE
        assert plan(dataclasses.replace(facts, approved=True, approvals=frozenset({"a"}))).step is Between.ASK
        assert plan(dataclasses.replace(facts, approvals=frozenset({"a", "c"}))).step is Between.ASK
        assert plan(dataclasses.replace(facts, approved=True, approvals=frozenset({"a", "c"}))).step is Between.AGREE


@pytest.mark.parametrize(
    ("fact", "state"),
    [
        ({"denied": True}, State.DENIED),
        ({"failure": "STUDY_DENIED"}, State.DENIED),
        ({"failure": "STUDY_EXPIRED"}, State.EXPIRED),
        ({"failure": "ARTIFACT_INVALID"}, State.FAILED),
        ({"expired": True}, State.EXPIRED),
    ],
)
def test_what_ends_a_study_comes_before_everything_else(fact, state):
    for facts in everything_there():
        ended = dataclasses.replace(facts, agreed=True, approved=True, **fact)
        assert (plan(ended).step, plan(ended).state) == (Between.END, state)
        after = dataclasses.replace(ended, state=state, leftovers=True)
        assert plan(after).step is Between.CLEAR
        assert plan(dataclasses.replace(after, leftovers=False)).step is Between.REST


def test_what_is_published_stays_so():
    for fact in ({"expired": True}, {"failure": "ARTIFACT_INVALID"}, {"denied": True}):
        found = plan(dataclasses.replace(START, state=State.PUBLISHED, **fact))
        assert (found.step, found.state, found.stage) == (Between.REST, State.PUBLISHED, "published")


def test_a_column_that_peers_still_read_is_made_again_after_learning():
    facts = dataclasses.replace(
        START,
        approved=True,
        agreed=True,
        listed=True,
        common=True,
        structure=True,
        needed=frozenset({1}),
        statements=frozenset({"b"}),
    )
    assert plan(facts).step is Step.RANDOMIZE
    assert plan(dataclasses.replace(facts, spooled=frozenset({1}))).step is Step.COLLECT


def test_what_people_read():
    assert plan(START).stage == "waiting for approval"
    assert plan(dataclasses.replace(START, n_votes=1)).stage == "waiting for approval (1 so far)"
    assert plan(dataclasses.replace(START, failure="DATA_UNREADABLE")).stage == "failed: DATA_UNREADABLE"

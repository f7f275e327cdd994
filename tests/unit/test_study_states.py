"""The state that follows from the facts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from verticil.shared.study.states import Facts, State, derive, is_final
from verticil.wire.v1 import common_pb2

PARTIES = frozenset({"a", "b"})
STEPS: list[tuple[dict[str, Any], State]] = [
    ({"offered": False}, State.SUBMITTED),
    ({"offered": True}, State.AWAITING_APPROVAL),
    ({"approvals": frozenset({"a"})}, State.AWAITING_APPROVAL),
    ({"approvals": PARTIES}, State.ALIGNING),
    ({"pseudonyms": PARTIES}, State.ALIGNING),
    ({"aligned": True}, State.ALIGNING),
    ({"confirmed": frozenset({"b"})}, State.ALIGNING),
    ({"confirmed": PARTIES, "units_expected": 3}, State.PREPARING),
    ({"uploading": True}, State.UPLOADING),
    ({"units_received": 2}, State.UPLOADING),
    ({"units_received": 3}, State.ESTIMATING),
    ({"estimating": True}, State.ESTIMATING),
    ({"learning": True}, State.LEARNING),
    ({"review": True}, State.REVIEW),
    ({"published": True}, State.PUBLISHED),
]


def histories() -> list[tuple[Facts, State]]:
    facts = Facts(parties=PARTIES)
    history = []
    for change, state in STEPS:
        facts = dataclasses.replace(facts, **change)
        history.append((facts, state))
    return history


def test_the_numbers_are_those_of_the_wire():
    wire = {name.removeprefix("STUDY_STATE_"): number for name, number in common_pb2.StudyState.items() if number}
    assert wire == {state.name: state.value for state in State}


def test_a_study_goes_through_all_stages():
    for facts, state in histories():
        assert derive(facts) is state
        assert is_final(state) == (state is State.PUBLISHED)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"denials": frozenset({"b"})}, State.DENIED),
        ({"failure": "LINKAGE_TOO_SMALL"}, State.FAILED),
        ({"withdrawn": True}, State.WITHDRAWN),
        ({"expired": True}, State.EXPIRED),
        ({"expired": True, "failure": "INTERNAL"}, State.FAILED),
        ({"failure": "INTERNAL", "denials": frozenset({"a"})}, State.DENIED),
        ({"denials": frozenset({"a"}), "withdrawn": True}, State.WITHDRAWN),
    ],
)
def test_side_exits_win_over_stages_but_not_over_publication(change: dict[str, Any], state: State):
    for facts, stage in histories():
        expected = State.PUBLISHED if stage is State.PUBLISHED else state
        assert derive(dataclasses.replace(facts, **change)) is expected
        assert is_final(expected)


def test_a_fact_that_comes_too_early_moves_nothing():
    early = Facts(parties=PARTIES, pseudonyms=PARTIES, aligned=True, confirmed=PARTIES, learning=True, review=True)
    assert derive(early) is State.AWAITING_APPROVAL
    assert derive(dataclasses.replace(early, approvals=PARTIES)) is State.PREPARING


def test_facts_about_strangers_are_refused():
    for name in ("approvals", "denials", "pseudonyms", "confirmed"):
        with pytest.raises(ValueError, match="not parties"):
            Facts(parties=PARTIES, **{name: frozenset({"c"})})
    with pytest.raises(ValueError, match="units received"):
        Facts(parties=PARTIES, units_received=1)
    with pytest.raises(ValueError, match="at least one party"):
        Facts(parties=frozenset())

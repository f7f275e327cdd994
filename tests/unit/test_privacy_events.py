"""Privacy events: kinds are registered, written and read back, costed and refused by name."""

from __future__ import annotations

import dataclasses
import math

import pytest

from verticil.shared.core.errors import Refusal
from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import compose, cost_of, finite
from verticil.shared.privacy.accounts import NOTHING, Account, Cost
from verticil.shared.privacy.events import (
    DiscreteGaussianCounts,
    EventKind,
    ExactStatistics,
    GaussianCounts,
    PrivacyEvent,
    RandomizedColumn,
    register,
)
from verticil.shared.study.document import ShareRule, Study


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unheard(PrivacyEvent):
    """Of no registered kind."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))


ALL = (
    RandomizedColumn(epsilon=1.0986122886681098),
    RandomizedColumn(epsilon=math.inf),
    GaussianCounts(epsilon=0.5, delta=3e-7, tables=7, sensitivity=math.sqrt(14)),
    GaussianCounts(epsilon=2.0, delta=1e-6),
    ExactStatistics(),
)


@pytest.mark.parametrize("event", ALL, ids=str)
def test_an_event_is_read_back_as_it_was_written(event: PrivacyEvent) -> None:
    assert events.from_json(events.to_json(event)) == event
    assert events.words(event)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"kind": "randomized-column", "epsilon": 1.0}',
        '{"kind": "randomized-column", "epsilon": "1", "relation": "replace one person", "sensitivity": null}',
        '{"kind": "randomized-column", "epsilon": true, "relation": "replace one person", "sensitivity": null}',
    ],
)
def test_what_is_no_event_of_its_kind_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="privacy event"):
        events.from_json(text)


def test_an_event_of_no_known_kind_is_refused_by_name_and_never_free() -> None:
    for refused, name in (
        (lambda: cost_of(Unheard()), "Unheard"),
        (lambda: events.to_json(Unheard()), "Unheard"),
        (lambda: events.from_json('{"kind": "of-the-future"}'), "of-the-future"),
    ):
        with pytest.raises(Refusal, match=f"privacy event '{name}': no kind of this name is known here") as caught:
            refused()
        assert caught.value.code == "POLICY_REFUSED"


def test_a_kind_is_registered_once_by_name_and_by_class(registry: None) -> None:
    kind = EventKind(
        name="unheard", event=Unheard, cost=lambda _: NOTHING, words=lambda _: "unheard", of_study=lambda *_: ()
    )
    register(kind)
    assert events.from_json(events.to_json(Unheard())) == Unheard()
    for taken in (
        dataclasses.replace(kind, name="another"),
        EventKind(
            name="unheard", event=PrivacyEvent, cost=lambda _: NOTHING, words=lambda _: "", of_study=lambda *_: ()
        ),
    ):
        with pytest.raises(ValueError, match="is registered already"):
            register(taken)


def test_costs_are_added_and_what_has_no_bound_is_in_no_finite_sum() -> None:
    costs = [cost_of(event) for event in ALL]
    assert math.isinf(cost_of(ExactStatistics()).epsilon)
    assert costs[:4] == [
        Cost(epsilon=1.0986122886681098),
        Cost(epsilon=math.inf),
        Cost(epsilon=0.5, delta=3e-7),
        Cost(epsilon=2.0, delta=1e-6),
    ]
    assert math.isinf(compose(costs).epsilon)
    assert finite(costs) == Cost(epsilon=math.fsum([1.0986122886681098, 0.5, 2.0]), delta=math.fsum([3e-7, 1e-6]))
    assert finite(reversed(costs)) == finite(costs)


def test_a_dry_run_names_what_there_is_no_room_for_and_charges_nothing() -> None:
    account = Account(spent=Cost(epsilon=2.0, delta=1e-6), kept=Cost(epsilon=1.0), limit=Cost(epsilon=5.0, delta=2e-6))
    assert account.dry_run(Cost(epsilon=2.0, delta=1e-6)) is None
    assert account.dry_run(Cost(epsilon=2.0, delta=1e-6)) is None
    shortage = account.dry_run(Cost(epsilon=2.1, delta=1e-6))
    assert shortage is not None
    assert (shortage.what, shortage.asked, shortage.kept, shortage.limit) == ("epsilon", 2.1, 1.0, 5.0)
    shortage = account.dry_run(Cost(epsilon=0.0, delta=1.1e-6))
    assert shortage is not None
    assert shortage.what == "delta"
    full = Account(spent=Cost(epsilon=9.0, delta=1.0), limit=Cost(epsilon=5.0, delta=2e-6))
    assert full.dry_run(NOTHING) is None  # what costs nothing may go, however full the account is


def test_a_study_plans_one_event_for_each_column_that_leaves_and_one_for_what_is_shared(release_study: Study) -> None:
    party = release_study.parties[0]
    columns = events.plan_events(release_study, party)
    assert [item.unit for item in columns] == list(release_study.units_of(party))
    assert all(type(item.event) is RandomizedColumn and item.readers == ("miner",) for item in columns)
    for rule, kind in (
        (ShareRule(epsilon=0.5, delta=3e-7, noise="discrete-gaussian"), DiscreteGaussianCounts),
        (ShareRule(), ExactStatistics),
    ):
        between_peers = dataclasses.replace(release_study, model="peer", share=rule)
        *_, shared = events.plan_events(between_peers, party)
        assert (type(shared.event), shared.unit) == (kind, None)
        if rule.epsilon is not None and rule.delta is not None:
            assert cost_of(shared.event) == Cost(epsilon=rule.epsilon, delta=rule.delta)
        assert set(release_study.parties) - {party} <= set(shared.readers)
        assert all(release_study.schema[release_study.schema.index(name)].owner == party for name in shared.variables)
        assert events.further(between_peers, party) == ()

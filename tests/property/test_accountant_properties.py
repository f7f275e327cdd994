"""The accountant, for whatever events hypothesis finds: their order, more of them, more tables, less noise, other readers."""

from __future__ import annotations

import dataclasses
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from verticil.shared.privacy.accountant import compose, cost_of, finite, finite_together, numerically, together
from verticil.shared.privacy.accounts import READERS
from verticil.shared.privacy.events import (
    DiscreteGaussianCounts,
    ExactStatistics,
    GaussianCounts,
    PrivacyEvent,
    PureMechanism,
    RandomizedColumn,
    from_json,
    to_json,
)

deltas = st.sampled_from([1e-9, 1e-7, 1e-5])
columns = st.builds(RandomizedColumn, epsilon=st.floats(0.01, 6.0))
rounded = st.builds(GaussianCounts, epsilon=st.floats(0.05, 4.0), delta=deltas, tables=st.integers(1, 30))
discrete = st.builds(
    DiscreteGaussianCounts, sigma=st.floats(4.0, 200.0), tables=st.integers(1, 30), delta=deltas,
    reader=st.sampled_from([reader.name for reader in READERS]),
)  # fmt: skip
pure = st.builds(PureMechanism, epsilon=st.floats(0.01, 2.0), mechanism=st.just("a mechanism"))
bounded = columns | rounded | discrete | pure
anything = bounded | st.just(ExactStatistics()) | st.just(RandomizedColumn(epsilon=math.inf))


@settings(max_examples=25, deadline=None)
@given(drawn=st.lists(anything, max_size=6), order=st.randoms(use_true_random=False))
def test_order_is_irrelevant_and_no_composition_is_above_the_sum(drawn: list[PrivacyEvent], order: object) -> None:
    shuffled = [*drawn]
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert together(shuffled) == together(drawn)
    plain = compose(map(cost_of, drawn))
    assert together(drawn).delta == plain.delta
    assert together(drawn).epsilon <= plain.epsilon * (1 + 1e-12)
    assert finite_together(drawn).epsilon <= finite(map(cost_of, drawn)).epsilon * (1 + 1e-12)
    assert numerically(drawn, min(plain.delta, 0.5)) <= finite(map(cost_of, drawn)).epsilon * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(drawn=st.lists(bounded, min_size=1, max_size=4), more=columns | pure | rounded)
def test_one_more_claim_costs_exactly_itself(drawn: list[PrivacyEvent], more: PrivacyEvent) -> None:
    before, after = together(drawn), together([*drawn, more])
    assert math.isclose(after.epsilon, before.epsilon + cost_of(more).epsilon, rel_tol=1e-12)
    assert math.isclose(after.delta, before.delta + cost_of(more).delta, rel_tol=1e-12)


@settings(max_examples=5, deadline=None)
@given(event=discrete, times=st.integers(1, 5))
def test_the_same_noise_more_often_costs_more_at_the_same_delta(event: DiscreteGaussianCounts, times: int) -> None:
    fewer, more = ([event] * count for count in (times, times + 1))
    assert numerically(fewer, 1e-6) <= numerically(more, 1e-6) * (1 + 1e-9)
    assert together(fewer).delta < together(more).delta
    assert together(more).epsilon >= cost_of(event).epsilon


@settings(max_examples=8, deadline=None)
@given(event=discrete, factor=st.floats(1.01, 3.0), more=st.integers(1, 20))
def test_less_noise_or_more_tables_cost_more(event: DiscreteGaussianCounts, factor: float, more: int) -> None:
    cost = cost_of(event).epsilon
    assert cost_of(dataclasses.replace(event, sigma=event.sigma * factor)).epsilon <= cost * (1 + 1e-9)
    assert cost_of(dataclasses.replace(event, tables=event.tables + more)).epsilon >= cost * (1 - 1e-9)
    assert cost_of(dataclasses.replace(event, delta=event.delta / 10)).epsilon >= cost * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(event=bounded)
def test_an_event_comes_back_as_it_was_at_the_same_cost(event: PrivacyEvent) -> None:
    again = from_json(to_json(event))
    assert again == event
    assert cost_of(again) == cost_of(event)


@settings(max_examples=15, deadline=None)
@given(drawn=st.lists(bounded, max_size=5))
def test_whoever_sees_more_is_charged_more(drawn: list[PrivacyEvent]) -> None:
    seen = [together(event for event in drawn if reader.sees(event.reader)) for reader in READERS]
    columns, public, dealer = seen
    assert columns == public  # what is published is a function of what readers of columns see: at most so much
    assert dealer.delta >= columns.delta
    assert dealer.epsilon >= columns.epsilon * (1 - 1e-9) or dealer.delta > columns.delta

"""What masked tables tell everybody, the miner, and a dealer of masks with its partner (model-three.md, section 6)."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma
from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import cost_of, together
from verticil.shared.privacy.accounts import COLUMNS, DEALER, KNOWN, PUBLIC, READERS, Cost, left_for
from verticil.shared.privacy.masked import CHECK, MaskedTables

TABLES = 78  # all pairs of 13 columns
DELTA = 1e-9


def tables(*, contributors: int, missing: int = 1, sigma: float | None = None, **changes: object) -> MaskedTables:
    """At t = 1 and a total of 1: what everybody is told, or who misses more draws than one."""
    event = MaskedTables(
        sigma=discrete_sigma(1.0, DELTA, TABLES) if sigma is None else sigma,
        tables=TABLES,
        delta=DELTA,
        epsilon=1.0 if missing == 1 else None,
        contributors=contributors,
        tolerate=1,
        missing=missing,
        checks=9,
    )
    return dataclasses.replace(event, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("contributors", "missing", "epsilon"), [(3, 2, 1.44), (4, 2, 1.24), (5, 2, 1.16), (4, 3, 1.78), (3, 1, 1.0)]
)
def test_who_knows_more_of_the_noise_than_is_tolerated_is_told_more(
    contributors: int, missing: int, epsilon: float
) -> None:
    cost = cost_of(tables(contributors=contributors, missing=missing))
    assert round(cost.epsilon, 2) == epsilon
    assert cost.delta == DELTA


def test_the_failure_of_checks_is_part_of_delta() -> None:
    event = tables(contributors=3)
    assert cost_of(event) == Cost(epsilon=1.0, delta=DELTA)
    loose = dataclasses.replace(event, checks=int(DELTA / CHECK / 2))  # half of delta is theirs
    assert 1.005 < cost_of(loose).epsilon < 1.05
    with pytest.raises(ValueError, match="checks at delta"):
        tables(contributors=3, delta=9 * CHECK)


@pytest.mark.parametrize(
    "sizes", [{"missing": 3}, {"missing": 0}, {"tolerate": 0}, {"tolerate": 2}, {"contributors": 1}]
)
def test_draws_that_cannot_be_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="draws missing of"):
        tables(**{"contributors": 3, "missing": 1} | sizes)


def test_each_draw_is_as_large_as_the_proof_of_their_sum_asks() -> None:
    assert tables(contributors=2, sigma=3.0).residual_sigma == 3.0  # one draw is left, which needs no sum
    with pytest.raises(ValueError, match="nothing is proved of their sum"):
        tables(contributors=4, sigma=3.0 * 1.7)
    assert tables(contributors=4, sigma=3.0 * 1.74).sum_sigma == pytest.approx(3.0 * 1.74 * (4 / 3) ** 0.5)


def test_an_event_is_read_back_as_it_was_written() -> None:
    event = tables(contributors=4, missing=2, reader=DEALER.name)
    assert events.from_json(events.to_json(event)) == event
    assert "besides the rows that they can read" in events.words(event)
    assert "for everybody, the miner too, while at most 1 of them" in events.words(tables(contributors=4))


def test_everybody_and_the_miner_are_charged_the_tables_and_not_the_dealer() -> None:
    event = tables(contributors=3)
    assert [reader for reader in READERS if reader.sees(event.reader)] == [COLUMNS, PUBLIC]
    assert together([event]) == cost_of(event)


def counted_by(names: tuple[str, ...]) -> dict[str, int]:
    """How often each account counts a draw that was charged for each of these, one after the other."""
    charged: list[str] = []
    for name in names:
        left = left_for(name, charged)
        charged += [] if left is None else [left]
    return {reader.name: sum(reader.sees(name) for name in charged) for reader in READERS}


def test_an_account_counts_a_draw_once_whoever_reads_it_first() -> None:
    read = {"columns": {"columns", "public", "dealer"}, "miner": {"columns", "dealer"}, "dealer": {"dealer"}}
    for size in (1, 2, 3, 4):
        for names in itertools.product(read, repeat=size):
            expected = set[str]().union(*(read[name] for name in names))
            assert counted_by(names) == {reader.name: int(reader.name in expected) for reader in READERS}, names
    assert left_for("columns", ["nobody"]) is None  # of a newer version, which every account counted
    assert {"masked", "columns-after-dealer", "miner-after-dealer"} < KNOWN

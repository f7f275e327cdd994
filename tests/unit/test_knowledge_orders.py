"""Orders of numbers: which bins they leave possible through others, what a study may state, and how written ones are checked."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from support.knowing import binned, order, ordered_schema
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.numerics.knowledge.checking import check_knowledge
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.knowledge.support import ordered_together, support
from verticil.shared.release.formats.table_files import write_csv, write_parquet
from verticil.shared.synthesis.ordered_numbers import ordered_numbers
from verticil.shared.synthesis.record_checks import read_records
from verticil.shared.synthesis.synthesis import decode

SCHEMA = ordered_schema(
    binned("a", (0, 3, 50, 60), "?"), binned("b", (0, 100, 200)), binned("c", (2, 10, 20), "?"), binned("d", (0, 1, 2))
)
CHAIN = (order("a", "b"), order("b", "c"))


@pytest.mark.parametrize("strict", [False, True])
def test_a_chain_leaves_the_bins_that_hold_such_numbers(strict: bool) -> None:
    """Against all combinations of whole numbers; d stands outside."""
    orders = tuple(dataclasses.replace(item, strict=strict) for item in CHAIN)
    table = support(Knowledge(orders=orders), SCHEMA).table((0, 1, 2))
    for bins in itertools.product(range(4), range(2), range(3)):
        ranges = [
            range(int(v.bins[code]), int(v.bins[code + 1])) if code < v.n_bins else [None]
            for v, code in zip(SCHEMA.variables[:3], bins, strict=True)
            if v.bins is not None
        ]
        expected = any(
            all(
                one is None or other is None or (one < other if strict else one <= other)
                for one, other in itertools.pairwise(numbers)
            )
            for numbers in itertools.product(*ranges)
        )
        assert bool(table[bins]) == expected, bins


def test_who_is_named_when_a_chain_is_impossible() -> None:
    found = support(Knowledge(orders=CHAIN), SCHEMA)
    assert found.conflict({0: 2, 2: 0}) == ("a b' and 'b c",)
    assert found.conflict({0: 2, 2: 2}) is None


def test_what_orders_connect() -> None:
    orders = (order("a", "b"), order("c", "d"), order("b", "c"))
    assert ordered_together(orders) == [("a", "b", "c", "d")]
    assert ordered_together(orders[:2]) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ((order("a", "b"), order("b", "c"), order("c", "a")), "it is part of a circle of orders"),
        (
            (order("v0", "v1"), *(order("v0", f"v{i}") for i in range(2, 6))),
            "it connects 6 variables, expected at most 5",
        ),
        ((order("a", "mean"),), "'mean' has means"),
    ],
)
def test_orders_that_no_study_may_state(orders, said: str) -> None:
    mean = dataclasses.replace(binned("mean", (0, 9), "?"), labels=("[0,9)", "?"), means=(4.0,))
    many = (binned(f"v{i}", (0, 5, 9)) for i in range(6))
    schema = ordered_schema(*SCHEMA.variables[:3], mean, *many) if "v0" in str(orders) or "mean" in said else SCHEMA
    with pytest.raises(Misuse) as caught:
        check_knowledge(Knowledge(orders=orders), schema, source="study.toml")
    assert said in caught.value.message


def test_mixed_real_and_whole_numbers_with_edges_that_are_no_decimals() -> None:
    schema = ordered_schema(
        binned("a", (1 / 3, 2 / 3, 5.0), integer=False),
        binned("b", (0, 4, 9)),
        binned("c", (0.5, 5.25, 9), integer=False),
    )
    orders = (order("a", "b"), order("b", "c", strict=True))
    n = 3000
    codes = [np.arange(n).astype(np.uint8) % 2, *[np.zeros(n, dtype=np.uint8)] * 2]
    found = ordered_numbers(schema, orders, codes, np.random.default_rng(1))
    a, b, c = (found[name][0] for name in "abc")
    assert (a <= b).all()
    assert (b < c).all()
    assert b.dtype == np.int64
    np.testing.assert_array_equal(a >= 2 / 3, codes[0] == 1)
    assert {float(x) for x in c} == {float(f"{x:.{found['c'][1]}f}") for x in c}
    again = ordered_numbers(schema, orders, codes, np.random.default_rng(1))
    np.testing.assert_array_equal(again["a"][0], a)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_written_numbers_are_held_against_the_orders(tmp_path, suffix: str) -> None:
    """Also where one is missing, and where bins are shared."""
    knowledge = Knowledge(orders=CHAIN)
    n = 400
    codes = [np.arange(n) % 2, np.zeros(n), 1 + np.arange(n) % 3 % 2, np.zeros(n)]
    columns = [column.astype(np.uint8) for column in codes]
    table = decode(SCHEMA, columns, np.random.default_rng(2), knowledge=knowledge)
    write = write_csv if suffix == ".csv" else write_parquet
    write(table, tmp_path / f"honest{suffix}")
    read = read_records(tmp_path / f"honest{suffix}", SCHEMA, n, knowledge)
    for one, other in zip(read, columns, strict=True):
        np.testing.assert_array_equal(one, other)
    planted = decode(SCHEMA, columns, np.random.default_rng(2))
    write(planted, tmp_path / f"planted{suffix}")
    with pytest.raises(GateFailed, match="does not meet the rule 'a b'"):
        read_records(tmp_path / f"planted{suffix}", SCHEMA, n, knowledge)


def test_records_without_such_numbers_end_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bins are impossible by the rules; whoever draws records keeps these."""
    from verticil.shared.synthesis import ordered_numbers as ordered

    monkeypatch.setattr(ordered, "_ROUNDS", 20)
    codes = [np.array([code], dtype=np.uint8) for code in (2, 0, 0, 0)]
    with pytest.raises(ValueError, match="no numbers in the bins of 1 records keep 'a b', 'b c'"):
        ordered_numbers(SCHEMA, CHAIN, codes, np.random.default_rng(1))

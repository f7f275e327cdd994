"""Opened tables less the contributors' noise are the tables of the people, exactly, and all checks pass, at every size."""

from __future__ import annotations

import pytest

from support.masked_arithmetic import arithmetic
from verticil.shared.masked.round import pair_products as pair_work

FIVE = {"a": (2, 3), "b": (64,), "c": (5 * 4, 2), "d": (17,), "e": (2,)}  # the first of "c" a compound of two columns


@pytest.mark.parametrize("parties", [2, 3, 4, 5])
def test_tables_of_any_number_of_parties_are_exact(parties):
    arithmetic({name: FIVE[name] for name in list(FIVE)[:parties]}, 600)


@pytest.mark.parametrize("k", [2, 3, 7, 16, 31, 32, 33, 63, 64])
def test_tables_of_any_width_are_exact(k):
    arithmetic({"a": (k, 2), "b": (k,), "c": (2, k)}, 10_000 if k in {2, 64} else 700)


def test_a_table_that_is_not_that_of_the_people_is_noticed(monkeypatch):
    """Rows that are masked as all 0 pass the check, and are in no table."""
    monkeypatch.setattr(pair_work, "add_one_hot", lambda words, codes, sizes: None)
    with pytest.raises(AssertionError, match="is not the one that is counted"):
        arithmetic({"a": (2,), "b": (3,)}, 600)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tables_of_three_million_people_are_exact():
    """188 one-hot columns in 13 units, over three parties."""
    arithmetic({"a": (20, 20, 20, 20, 2), "b": (11, 11, 11, 11), "c": (16, 16, 15, 15)}, 3_000_000)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tables_of_a_unit_of_many_categories_are_exact():
    arithmetic({"a": (4096,), "b": (3,), "c": (2, 5)}, 30_000)

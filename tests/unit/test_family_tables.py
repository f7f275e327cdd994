"""Families with a memory: the counts of the reference, whatever is remembered."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.tuning import tune
from verticil.miner.learning.scoring import counting
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.counting import design_tables, family_table, family_tables
from verticil.shared.core.errors import DataFault
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation import contingency
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, FamilyDesign, family_design

N_STATES = (3, 2, 4, 5, 9)
N = 3000
ALL_FAMILIES = [axes for size in (1, 2, 3) for axes in itertools.permutations(range(len(N_STATES)), size)]


def units() -> list[ColumnUnit]:
    """One compound of two variables, two single ones, one subset."""
    return [
        ColumnUnit(
            variables=(0, 1),
            domain=tuple(itertools.product(range(3), range(2))),
            channel=quantize(symmetric(6, epsilon=1.0)),
        ),
        ColumnUnit(variables=(2,), domain=None, channel=quantize(identity(4))),
        ColumnUnit(variables=(3,), domain=None, channel=quantize(symmetric(5, epsilon=2.0))),
        ColumnUnit(variables=(4,), domain=None, channel=subset_selection(9, epsilon=1.0, size=2)),
    ]


def released() -> dict[int, np.ndarray]:
    generator = np.random.default_rng(5)
    members = np.array(list(itertools.combinations(range(9), 2)), dtype=np.uint8)
    return {
        0: generator.integers(0, 6, N).astype(np.uint8),
        1: generator.integers(0, 4, N).astype(np.uint8),
        2: generator.integers(0, 5, N).astype(np.uint16),
        3: members[generator.integers(0, len(members), N)].ravel(),
    }


@pytest.fixture
def counts(monkeypatch) -> list[FamilyDesign]:
    """The families that tables count from here on."""
    counted: list[FamilyDesign] = []

    def noted(columns, designs, **options):
        counted.extend(designs)
        return design_tables(columns, designs, **options)

    monkeypatch.setattr("verticil.miner.learning.scoring.count_tables.design_tables", noted)
    return counted


@pytest.mark.parametrize("max_bytes", [0, 500, 2**20])
@pytest.mark.parametrize("ahead", [False, True])
def test_every_family_has_the_counts_of_the_reference(max_bytes, ahead):
    columns = released()
    tables = FamilyTables(columns, units(), N_STATES, max_bytes=max_bytes)
    if ahead:
        tables.count_ahead(ALL_FAMILIES[::3])
    for axes in ALL_FAMILIES + ALL_FAMILIES[::-1]:
        observed, of = tables.count_family(axes)
        design = family_design(units(), N_STATES, axes)
        np.testing.assert_array_equal(observed, contingency.family_counts(columns, design))
        assert of.units == design.units
        assert observed.flags.c_contiguous
        assert not observed.flags.writeable
        assert sum(table.nbytes for table in tables._known.values()) <= max_bytes


def test_a_family_is_counted_once_in_whatever_order_it_is_asked_for(counts):
    tables = FamilyTables(released(), units(), N_STATES)
    for axes in itertools.permutations((2, 3)):
        tables.count_family(axes)
    tables.count_family((2,))  # summed from the pair
    assert len(counts) == 1
    tables.count_ahead([(3, 2), (2, 4), (4, 2)])
    assert len(counts) == 3  # a subset's table is not transposed
    tables.count_family((2, 4))
    assert len(counts) == 3


def test_the_family_not_asked_for_longest_is_forgotten_first(counts):
    tables = FamilyTables(released(), units(), N_STATES, max_bytes=8 * (12 + 20))
    tables.count_family((0, 2))
    tables.count_family((2, 3))
    tables.count_family((0, 2))
    tables.count_family((3,))  # summed, and (2, 3) goes
    counted = len(counts)
    tables.count_family((0, 2))
    assert len(counts) == counted
    tables.count_family((2, 3))
    assert len(counts) == counted + 1


def test_a_table_over_the_limit_is_refused_with_the_way_out():
    columns = [np.zeros(4, np.uint16)] * 2
    with pytest.raises(DataFault, match="60000 x 60000 categories has a table of 3600000000 cells") as refused:
        family_table(columns, (60_000, 60_000))
    assert "fewer categories" in refused.value.hint


def test_counting_several_families_can_be_stopped():
    def stop() -> None:
        raise KeyboardInterrupt

    columns = [np.zeros(10, np.uint8)] * 2
    for method in ("kernel", "plain"):
        with pytest.raises(KeyboardInterrupt):
            family_tables(columns, (2, 2), [(0, 1)], method=method, check=stop)
    tables = FamilyTables(released(), units(), N_STATES)
    for families in ([(2, 3)], [(0, 2)], [(2, 4)]):
        with pytest.raises(KeyboardInterrupt):
            tables.count_ahead(families, check=stop)


def test_a_family_that_is_too_large_to_remember_is_left_for_later(monkeypatch, counts):
    tune(monkeypatch, counting, most_family_cells=10)
    tables = FamilyTables(released(), units(), N_STATES, max_bytes=100)
    tables.count_ahead([(2, 3), (3,)])
    assert len(counts) == 1
    with pytest.raises(DataFault, match="4 x 5 categories"):
        tables.count_family((2, 3))

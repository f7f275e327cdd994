"""Families with a memory: the counts of the reference, whatever is remembered; and families too large for a table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from verticil.miner.learning import counting
from verticil.miner.learning.counting import family_table, family_tables
from verticil.miner.learning.tables import FamilyTables, SparseTable, sparse_family_table
from verticil.shared.channels.subset import subset_selection
from verticil.shared.channels.transition import identity, quantize, symmetric
from verticil.shared.errors import DataFault
from verticil.shared.estimation import contingency
from verticil.shared.estimation.design import ColumnUnit, family_design

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


@pytest.mark.parametrize("max_bytes", [0, 500, 2**20])
@pytest.mark.parametrize("ahead", [False, True])
def test_every_family_has_the_counts_of_the_reference(max_bytes, ahead):
    columns = released()
    tables = FamilyTables(columns, units(), N_STATES, max_bytes=max_bytes)
    if ahead:
        tables.count_ahead(ALL_FAMILIES[::3])
    for axes in ALL_FAMILIES + ALL_FAMILIES[::-1]:
        counted = tables.family(axes)
        design = family_design(units(), N_STATES, axes)
        np.testing.assert_array_equal(counted.observed, contingency.family_counts(columns, design))
        assert counted.design.units == design.units
        assert counted.observed.flags.c_contiguous
        assert not counted.observed.flags.writeable
        assert tables.n_bytes <= max_bytes


def test_a_family_is_counted_once_in_whatever_order_it_is_asked_for():
    tables = FamilyTables(released(), units(), N_STATES)
    for axes in itertools.permutations((2, 3)):
        tables.family(axes)
    tables.family((2,))  # summed from the pair
    assert tables.n_counted == 1
    tables.count_ahead([(3, 2), (2, 4), (4, 2)])
    assert tables.n_counted == 3  # a subset's table is not transposed
    tables.family((2, 4))
    assert tables.n_counted == 3


def test_the_family_not_asked_for_longest_is_forgotten_first():
    tables = FamilyTables(released(), units(), N_STATES, max_bytes=8 * (12 + 20))
    tables.family((0, 2))
    tables.family((2, 3))
    tables.family((0, 2))
    tables.family((3,))  # summed, and (2, 3) goes
    counted = tables.n_counted
    tables.family((0, 2))
    assert tables.n_counted == counted
    tables.family((2, 3))
    assert tables.n_counted == counted + 1


def test_occupied_cells_of_a_family_are_those_of_its_table():
    tables = FamilyTables(released(), units(), N_STATES)
    for axes in [(2, 3), (0, 2, 1), (0, 3), (2,)]:
        np.testing.assert_array_equal(tables.occupied(axes).dense(), tables.family(axes).observed)
    with pytest.raises(DataFault, match="subset column"):
        tables.occupied((2, 4))


def test_a_table_over_the_limit_is_refused_with_the_way_out():
    columns = [np.zeros(4, np.uint16)] * 2
    with pytest.raises(DataFault, match="60000 x 60000 categories has a table of 3600000000 cells") as refused:
        family_table(columns, (60_000, 60_000))
    assert "sparse_family_table" in refused.value.hint
    sparse = sparse_family_table(columns, (60_000, 60_000))
    assert sparse.counts.tolist() == [4]
    with pytest.raises(DataFault, match="3600000000 cells") as refused:
        sparse.dense()
    assert "occupied cells" in refused.value.hint
    with pytest.raises(DataFault, match="expected at most 3"):
        sparse_family_table(columns, (2, 2)).dense(max_cells=3)


def test_more_cells_than_a_64_bit_number_has():
    generator = np.random.default_rng(3)
    columns = [generator.integers(0, 3, 5000).astype(np.uint16) * 20_000 for _ in range(6)]
    sparse = sparse_family_table(columns, [60_000] * 6)
    cells, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    np.testing.assert_array_equal(sparse.cells, cells)
    np.testing.assert_array_equal(sparse.counts, counts)
    assert sparse.n_cells == 60_000**6


def test_sparse_tables_are_summed_and_checked():
    columns = [np.array(c, np.uint8) for c in ([0, 1, 1, 0], [2, 2, 0, 1], [1, 1, 1, 1])]
    sparse = sparse_family_table(columns, (2, 3, 2))
    np.testing.assert_array_equal(
        sparse.marginal((2, 0)).dense(), contingency.family_table([columns[2], columns[0]], (2, 2))
    )
    assert len(sparse_family_table([np.zeros(0, np.uint8)], (2,)).counts) == 0
    with pytest.raises(ValueError, match="code 2"):
        sparse_family_table(columns, (2, 2, 2))
    with pytest.raises(ValueError, match="shape"):
        SparseTable(shape=(2, 2), cells=np.zeros((1, 1), np.uint16), counts=np.ones(1, np.int64))


def test_counting_several_families_can_be_stopped():
    def stop() -> None:
        raise KeyboardInterrupt

    columns = [np.zeros(10, np.uint8)] * 2
    for method in ("kernel", "plain"):
        with pytest.raises(KeyboardInterrupt):
            family_tables(columns, (2, 2), [(0, 1)], method=method, cancelled=stop)
    with pytest.raises(KeyboardInterrupt):
        sparse_family_table(columns, (2, 2), cancelled=stop)
    tables = FamilyTables(released(), units(), N_STATES)
    for families in ([(2, 3)], [(0, 2)], [(2, 4)]):
        with pytest.raises(KeyboardInterrupt):
            tables.count_ahead(families, cancelled=stop)


def test_a_family_that_is_too_large_to_remember_is_left_for_later(monkeypatch):
    monkeypatch.setattr(counting, "MAX_FAMILY_CELLS", 10)
    tables = FamilyTables(released(), units(), N_STATES, max_bytes=100)
    tables.count_ahead([(2, 3), (3,)])
    assert tables.n_counted == 1
    with pytest.raises(DataFault, match="4 x 5 categories"):
        tables.family((2, 3))

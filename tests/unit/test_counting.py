"""Counting: the kernels against the plain reference, over dtypes, sizes and table widths."""

import itertools

import numpy as np
import pytest

from verticil.miner.learning.scoring import counting
from verticil.miner.learning.scoring.counting import PairTables, all_pair_tables, family_table
from verticil.miner.learning.scoring.tuning import TUNING
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation import contingency
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, family_design

SIZES = (0, 1, 3, 4095, 4096, 4099, TUNING.block_records, TUNING.block_records + 5)
STATES = (
    (2, 3, 5),
    (2, 256, 7, 3),
    (300, 2, 300, 4),
    (2, 40_000, 3),
)  # uint8, mixed, a pair above 65,536 cells, one column wide


def columns_of(n_states: tuple[int, ...], n: int) -> list[np.ndarray]:
    generator = np.random.default_rng([n, *n_states])
    return [
        np.minimum(generator.geometric(0.2, n) - 1 if k < 10 else generator.integers(0, k, n), k - 1).astype(
            np.uint8 if k <= 256 else np.uint16
        )
        for k in n_states
    ]


@pytest.mark.parametrize("n_states", STATES)
@pytest.mark.parametrize("n", SIZES)
def test_pair_kernel_equals_plain_counting(n_states, n):
    columns = columns_of(n_states, n)
    kernel = all_pair_tables(columns, n_states, method="kernel")
    plain = all_pair_tables(columns, n_states, method="plain")
    np.testing.assert_array_equal(kernel.counts, plain.counts)
    assert kernel.n_records == n
    for a, b in itertools.combinations(range(len(n_states)), 2):
        table = contingency.pair_table(columns[a], columns[b], n_states[a], n_states[b])
        np.testing.assert_array_equal(kernel.table(a, b), table)
        np.testing.assert_array_equal(kernel.table(b, a), table.T)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("n_states", [(4,), (2, 3), (5, 2, 300), (2, 2, 3, 2)])
def test_family_kernel_equals_plain_counting(n_states, n):
    columns = columns_of(n_states, n)
    kernel = family_table(columns, n_states, method="kernel")
    np.testing.assert_array_equal(kernel, contingency.family_table(columns, n_states))
    assert kernel.shape == n_states
    assert kernel.sum() == n


def test_a_memory_mapped_column_is_counted(tmp_path):
    columns = columns_of((3, 4), 50_000)
    mapped = []
    for position, column in enumerate(columns):
        column.tofile(tmp_path / f"{position}.u8")
        mapped.append(np.memmap(tmp_path / f"{position}.u8", dtype=np.uint8, mode="r"))
    np.testing.assert_array_equal(
        all_pair_tables(mapped, (3, 4), method="kernel").counts, all_pair_tables(columns, (3, 4)).counts
    )


@pytest.mark.parametrize("method", ["kernel", "plain"])
def test_a_code_out_of_range_is_refused_before_it_is_an_index(method):
    columns = [np.array([0, 1, 2], np.uint8), np.array([0, 1, 3], np.uint8)]
    with pytest.raises(ValueError, match=r"code"):
        all_pair_tables(columns, (3, 3), method=method)
    with pytest.raises(ValueError, match=r"code"):
        family_table(columns, (3, 3), method=method)


@pytest.mark.parametrize(
    ("columns", "n_states"),
    [
        ([], []),
        ([np.zeros(3, np.uint8)], [2, 2]),
        ([np.zeros(3, np.uint8), np.zeros(2, np.uint8)], [2, 2]),
        ([np.zeros(3, np.int64), np.zeros(3, np.uint8)], [2, 2]),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns, n_states):
    with pytest.raises(ValueError, match="expected"):
        all_pair_tables(columns, n_states)


def test_tables_that_do_not_fit_in_memory_are_refused():
    with pytest.raises(ValueError, match=f"at most {TUNING.most_pair_cells}"):
        all_pair_tables([np.zeros(1, np.uint16)] * 2, (60_000, 60_000))


@pytest.mark.parametrize("method", ["kernel", "plain"])
def test_counting_can_be_stopped(method):
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        all_pair_tables(columns_of((2, 3), 10), (2, 3), method=method, check=stop)


def test_one_column_has_no_pairs():
    tables = all_pair_tables([np.zeros(5, np.uint8)], (2,))
    assert list(tables.pairs()) == []
    with pytest.raises(ValueError, match="shape"):
        PairTables(n_states=(2, 2), counts=np.zeros(3, np.int64), n_records=0)


@pytest.mark.parametrize("method", ["kernel", "plain"])
@pytest.mark.parametrize("axes", [(1, 2), (0, 1, 2), (2,)])
def test_families_of_compounds_are_counted_as_the_reference_counts_them(method, axes):
    domain = tuple(itertools.product(range(2), range(3)))
    units = [
        ColumnUnit(variables=(0, 1), domain=domain, channel=quantize(symmetric(6, epsilon=1.2))),
        ColumnUnit(variables=(2,), domain=None, channel=quantize(symmetric(4, epsilon=1.0))),
    ]
    columns = dict(enumerate(columns_of((6, 4), 5000)))
    design = family_design(units, (2, 3, 4), axes)
    table = counting.family_counts(columns, design, method=method)
    assert table.dtype == np.int64
    np.testing.assert_array_equal(table, contingency.family_counts(columns, design))


def test_families_of_subsets_are_counted_by_the_reference():
    units = [ColumnUnit(variables=(0,), domain=None, channel=subset_selection(9, epsilon=1.0, size=2))]
    columns = {0: np.array([0, 3, 3, 8], np.uint8)}
    table = counting.family_counts(columns, family_design(units, (9,), (0,)))
    assert table.tolist() == [0.5, 0, 0, 1.0, 0, 0, 0, 0, 0.5]

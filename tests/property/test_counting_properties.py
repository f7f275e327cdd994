"""Every kernel against the plain reference, on one thread and on two, in one pass and in many, from memory and from disk."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.tuning import tune
from verticil.miner.learning.scoring import column_groups as groups
from verticil.miner.learning.scoring import counting
from verticil.miner.learning.scoring.counting import all_pair_tables, family_tables, pair_groups
from verticil.miner.learning.scoring.tuning import TUNING
from verticil.shared.numerics.estimation import contingency

STATES = st.one_of(st.integers(1, 6), st.integers(1, 40), st.sampled_from((255, 256, 257, 1000)))
SHAPES = st.lists(STATES, min_size=1, max_size=9).filter(lambda states: sum(states) < 3000)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 4096 records, passes of 5000 cells, groups for any number of records: what else needs millions of records."""
    tune(monkeypatch, groups, block_records=4096, pass_cells=5000)
    tune(monkeypatch, counting, cover_records=0)


def columns_of(n_states: list[int], n: int, seed: int, *, wide: bool) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    drawn = []
    for k in n_states:
        codes = np.minimum(generator.geometric(generator.uniform(0.01, 0.99), n) - 1, k - 1)
        drawn.append(codes.astype(np.uint16 if wide or k > 256 else np.uint8))
    return drawn


@pytest.mark.whole
@given(
    n_states=SHAPES,
    n=st.sampled_from((0, 1, 5, 4096, 4099, 9000, 13_000)),
    seed=st.integers(0, 2**32),
    wide=st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pair_tables_are_those_of_plain_counting(small_blocks, n_states, n, seed, wide):
    columns = columns_of(n_states, n, seed, wide=wide)
    plain = all_pair_tables(columns, n_states, method="plain")
    for threads in (1, 2):
        kernel = all_pair_tables(columns, n_states, method="kernel", threads=threads)
        np.testing.assert_array_equal(kernel.counts, plain.counts)


@given(
    n_states=SHAPES,
    n=st.sampled_from((0, 3, 4097, 13_000)),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_families_are_those_of_plain_counting(small_blocks, n_states, n, seed, data):
    columns = columns_of(n_states, n, seed, wide=False)
    family = st.lists(st.integers(0, len(n_states) - 1), min_size=1, max_size=4, unique=True).filter(
        lambda axes: math.prod(n_states[a] for a in axes) <= 200_000
    )
    families = data.draw(st.lists(family, max_size=4))
    references = [contingency.family_table([columns[a] for a in f], [n_states[a] for a in f]) for f in families]
    for method, threads in itertools.product(("kernel", "plain", "auto"), (1, 2)):
        counted = family_tables(columns, n_states, families, method=method, threads=threads)
        for table, reference in zip(counted, references, strict=True):
            np.testing.assert_array_equal(table, reference)
            assert table.dtype == np.int64


@given(n_states=st.lists(st.one_of(STATES, st.sampled_from((40_000, 65_536))), max_size=24))
@settings(max_examples=100, deadline=None)
def test_groups_cover_every_pair_and_stay_small(n_states):
    found = pair_groups(n_states)
    assert {pair for group in found for pair in itertools.combinations(group, 2)} == set(
        itertools.combinations(range(len(n_states)), 2)
    )
    for group in found:
        assert list(group) == sorted(set(group))
        assert len(group) == 2 or math.prod(n_states[c] for c in group) <= TUNING.group_cells


@pytest.mark.parametrize("d", [3, 7, 15, 31])
def test_groups_of_2_to_the_m_minus_1_columns_are_a_steiner_triple_system(d):
    """Every pair in exactly one triple: d(d-1)/6 of them."""
    found = pair_groups([40] * d)
    assert len(found) == d * (d - 1) // 6
    assert {len(group) for group in found} == {3}


@pytest.mark.parametrize("states", [2, 20, 300])
def test_a_constant_column_fills_no_counter(states):
    """The largest count that a block can have in one cell."""
    n = 2 * TUNING.block_records + 4097
    columns = [np.zeros(n, np.uint16)] * 3
    tables = all_pair_tables(columns, [states] * 3, method="kernel", threads=2)
    assert tables.counts[0] == tables.counts.max() == n
    assert tables.counts.sum() == 3 * n


def test_the_widest_columns_are_counted():
    columns = [np.array([0, 65_535, 9], np.uint16), np.zeros(3, np.uint8), np.array([1, 0, 1], np.uint8)]
    states = (65_536, 1, 2)
    kernel = all_pair_tables(columns, states, method="kernel")
    np.testing.assert_array_equal(kernel.counts, all_pair_tables(columns, states, method="plain").counts)


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_columns_on_disk_are_counted_and_left_as_they_are(small_blocks, mode):
    with tempfile.TemporaryDirectory() as folder:
        columns = columns_of([3, 300, 5, 2], 10_000, 1, wide=False)
        mapped = []
        for position, column in enumerate(columns):
            column.tofile(Path(folder) / str(position))
            mapped.append(np.memmap(Path(folder) / str(position), dtype=column.dtype, mode=mode))
        if mode == "c":  # changes that are in memory alone
            mapped[0][5000] = columns[0][5000] = 1 - min(columns[0][5000], 1)
        expected = all_pair_tables(columns, (3, 300, 5, 2), method="plain").counts
        for _ in range(2):
            kernel = all_pair_tables(mapped, (3, 300, 5, 2), method="kernel", threads=2)
            np.testing.assert_array_equal(kernel.counts, expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("place", [0, 4096, 9999])
def test_a_code_out_of_range_is_found_in_any_block_and_thread(small_blocks, place, threads):
    columns = columns_of([3, 4, 5], 10_000, 2, wide=True)
    columns[1][place] = 256 + 1  # would be 1 if it were cut to 8 bits
    with pytest.raises(ValueError, match="code 257 in a column of 4 categories"):
        all_pair_tables(columns, (3, 4, 5), method="kernel", threads=threads)


def test_counting_on_two_threads_can_be_stopped(small_blocks):
    calls = []

    def stop_at_the_second_block() -> None:
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        all_pair_tables(
            columns_of([3, 4], 40_000, 2, wide=False),
            (3, 4),
            method="kernel",
            threads=2,
            check=stop_at_the_second_block,
        )
    assert len(calls) == 2


@pytest.mark.parametrize("d", [2, 3, 4, 6, 8, 16, 31, 33, 64, 100])
def test_any_number_of_columns_is_counted(d, small_blocks):
    """2^m - 1 columns, which triples cover exactly, and others, which they do not."""
    n_states = [2 + v % 4 for v in range(d)]
    columns = columns_of(n_states, 4099, d, wide=False)
    kernel = all_pair_tables(columns, n_states, method="kernel")
    np.testing.assert_array_equal(kernel.counts, all_pair_tables(columns, n_states, method="plain").counts)


@pytest.mark.parametrize("k", [256, 257, 4096, 65_535, 65_536])
def test_wide_columns_fall_back_from_triples_to_pairs(k, small_blocks):
    """From 257 categories codes are of 16 bits; three columns of 41 fill a group's 16-bit numbers, wider ones do not fit."""
    n_states = (k, 3, 2, 5)
    columns = columns_of(list(n_states), 9000, k, wide=False)
    columns[0][:2] = 0, k - 1
    kernel = all_pair_tables(columns, n_states, method="kernel", threads=2)
    np.testing.assert_array_equal(kernel.counts, all_pair_tables(columns, n_states, method="plain").counts)
    assert all(math.prod(n_states[c] for c in g) <= TUNING.group_cells or len(g) == 2 for g in pair_groups(n_states))


@pytest.mark.whole
def test_columns_on_disk_do_not_stay_in_memory(tmp_path, small_blocks):
    """Memory of the maps, by the system's account, between blocks of 4096 records and at the end: a page or two a column.

    Without giving it back, all 2 million bytes of a column would be there in the end.
    """
    n, n_states = 500 * 4096, (2, 3, 4)
    mapped = []
    for position, k in enumerate(n_states):
        np.resize(np.arange(k, dtype=np.uint8), n).tofile(tmp_path / f"{position}.codes")
        mapped.append(np.memmap(tmp_path / f"{position}.codes", dtype=np.uint8, mode="r"))

    def resident() -> int:
        total, inside = 0, False
        for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
            if "-" in line.split(" ")[0]:
                inside = str(tmp_path) in line
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1])
        return total

    assert sum(int(column[::512].sum()) for column in mapped) > 0
    assert resident() > 3 * 1900  # the account sees them: KiB
    seen: list[int] = []
    calls = iter(range(10**6))
    all_pair_tables(
        mapped,
        n_states,
        method="kernel",
        threads=1,
        check=lambda: seen.append(resident()) if next(calls) % 50 == 49 else None,
    )
    assert len(seen) == 10
    assert max(*seen, resident()) < 300

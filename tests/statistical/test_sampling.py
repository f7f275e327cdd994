"""Sampling against the network's tables. Seeds are fixed; every test has a false-alarm rate of 1e-6."""

import numpy as np
import pytest
from scipy.stats import chi2

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.vocabulary import SAMPLING
from verticil.shared.synthesis.category_draws import assign_by_rank_plain, category_boundaries, record_keys
from verticil.shared.synthesis.synthesis import sample_codes

N = 50_000
FALSE_ALARM = 1e-6
ROOT = np.array([[0.5, 0.3, 0.2]])
CHILD = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])  # rows: the parent's category
OTHER = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])


def network_of(*tables: np.ndarray) -> Network:
    """0 -> 1, 0 -> 2."""
    parents = ((), (0,), (0,))
    families = tuple(
        Family(
            child=child,
            parents=family,
            probability=table,
            estimate=table,
            standard_error=table,
            interval_low=table,
            interval_high=table,
            unstable=np.zeros(table.shape, dtype=np.bool_),
        )
        for child, (family, table) in enumerate(zip(parents, tables, strict=True))
    )
    variables = tuple(
        Variable(name=f"v{i}", owner="a", labels=tuple(map(str, range(table.shape[1]))))
        for i, table in enumerate(tables)
    )
    return Network(schema=Schema(variables=variables), dag=Dag(parents=parents), families=families)


def counts_of(a: np.ndarray, b: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return np.bincount(a.astype(int) * shape[1] + b, minlength=shape[0] * shape[1]).reshape(shape)


def rejects_table(counts: np.ndarray, table: np.ndarray) -> bool:
    """Null: the children of each row's records follow that row. Chi-square, J (K - 1) degrees of freedom, n = 50,000."""
    expected = counts.sum(axis=1, keepdims=True) * table
    statistic = ((counts - expected) ** 2 / expected).sum()
    return bool(chi2.sf(statistic, table.shape[0] * (table.shape[1] - 1)) < FALSE_ALARM)


def rejects_independence(a: np.ndarray, b: np.ndarray, given: np.ndarray) -> bool:
    """Null: a and b are independent given `given`. Sum of Pearson statistics over its categories."""
    statistic, freedom = 0.0, 0
    for value in np.unique(given):
        x, y = a[given == value], b[given == value]
        counts = counts_of(x, y, (int(a.max()) + 1, int(b.max()) + 1)).astype(float)
        expected = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
        statistic += float(((counts - expected) ** 2 / expected).sum())
        freedom += (counts.shape[0] - 1) * (counts.shape[1] - 1)
    return bool(chi2.sf(statistic, freedom) < FALSE_ALARM)


@pytest.mark.parametrize("path", ["plain", "compiled"])
@pytest.mark.parametrize("method", SAMPLING)
def test_records_follow_the_tables_and_a_transposed_table_is_noticed(method, path):
    """Dealt counts (systematic, without replacement) vary less than the null says: there the test errs on the quiet side only."""
    codes = sample_codes(
        network_of(ROOT, CHILD, OTHER), N, generator=np.random.default_rng(1), method=method, path=path
    )
    counts = counts_of(codes[0], codes[1], (3, 3))
    assert not rejects_table(np.bincount(codes[0])[None, :], ROOT)
    assert not rejects_table(counts, CHILD)
    assert not rejects_table(counts_of(codes[0], codes[2], (3, 2)), OTHER)
    transposed = CHILD.T / CHILD.T.sum(axis=1, keepdims=True)
    assert rejects_table(counts, transposed)
    planted = sample_codes(
        network_of(ROOT, transposed, OTHER), N, generator=np.random.default_rng(1), method=method, path=path
    )
    assert rejects_table(counts_of(planted[0], planted[1], (3, 3)), CHILD)


@pytest.mark.parametrize("path", ["plain", "compiled"])
def test_systematic_records_are_exchangeable_and_children_independent_given_the_parent(path):
    """Position in the file, and the other child, tell nothing more about a child than its parent does."""
    codes = sample_codes(network_of(ROOT, CHILD, OTHER), N, generator=np.random.default_rng(2), path=path)
    tenth = np.arange(N) * 10 // N
    assert not rejects_independence(codes[0], tenth, np.zeros(N, int))
    assert not rejects_independence(codes[1], tenth, codes[0])
    assert not rejects_independence(codes[2], tenth, codes[0])
    assert not rejects_independence(codes[1], codes[2], codes[0])
    # Neighbours: the category of one record against that of the next one with the same parent.
    first = codes[1][codes[0] == 0]
    assert not rejects_independence(first[:-1:2], first[1::2], np.zeros(len(first) // 2, int))


def test_the_shuffle_is_needed_and_the_same_keys_twice_are_noticed():
    """Planted faults: categories dealt out in record order; both children dealt out by one set of keys."""
    group = np.random.default_rng(3).integers(0, 3, N).astype(np.uint32)
    sizes = np.bincount(group)
    boundaries = category_boundaries(np.cumsum(CHILD, axis=1), sizes, np.full(3, 0.5))
    unshuffled = assign_by_rank_plain(group, np.arange(N, dtype=np.uint64), boundaries)
    assert rejects_independence(unshuffled, np.arange(N) * 10 // N, group)
    keys = record_keys(np.uint64(1), N)
    other = category_boundaries(np.cumsum(OTHER, axis=1), sizes, np.full(3, 0.5))
    one, two = assign_by_rank_plain(group, keys, boundaries), assign_by_rank_plain(group, keys, other)
    assert rejects_independence(one, two, group)


def test_small_groups_are_dealt_out_uniformly():
    """m = 3, one record of each of three categories: the 6 arrangements over 20,000 groups, chi-square with 5 degrees."""
    n_groups = 20_000
    group = np.repeat(np.arange(n_groups, dtype=np.uint32), 3)
    boundaries = np.tile(np.array([1, 2, 3]), (n_groups, 1))
    dealt = assign_by_rank_plain(group, record_keys(np.uint64(99), 3 * n_groups), boundaries).reshape(n_groups, 3)
    counts = np.bincount(dealt @ np.array([9, 3, 1]))
    counts = counts[counts > 0]
    assert len(counts) == 6
    assert chi2.sf(((counts - n_groups / 6) ** 2 / (n_groups / 6)).sum(), 5) > FALSE_ALARM

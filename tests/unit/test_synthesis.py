"""Synthetic records: systematic rounding, both paths, and decoding to labels and numbers."""

import numpy as np
import pandas as pd
import pytest

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.study.vocabulary import SAMPLING
from verticil.shared.synthesis import category_draws
from verticil.shared.synthesis import dealing_kernels as ranking
from verticil.shared.synthesis.category_draws import category_boundaries, record_keys
from verticil.shared.synthesis.synthesis import decode, sample_codes


def network_of(n_states: tuple[int, ...], parents: tuple[tuple[int, ...], ...], seed: int = 0) -> Network:
    """Sparse random tables: half of the cells are zero, the last category among them."""
    generator = np.random.default_rng(seed)
    families = []
    for child, family in enumerate(parents):
        n_rows = int(np.prod([n_states[p] for p in family], dtype=np.int64))
        table = generator.gamma(0.5, size=(n_rows, n_states[child])) * (
            generator.random((n_rows, n_states[child])) < 0.5
        )
        table[table.sum(axis=1) == 0, 0] = 1.0
        table /= table.sum(axis=1, keepdims=True)
        blank = np.full_like(table, np.nan)
        families.append(
            Family(
                child=child,
                parents=family,
                probability=table,
                estimate=blank,
                standard_error=blank,
                interval_low=blank,
                interval_high=blank,
                unstable=np.ones(table.shape, dtype=np.bool_),
            )
        )
    variables = tuple(
        Variable(name=f"v{i}", owner="a", labels=tuple(f"c{j}" for j in range(k))) for i, k in enumerate(n_states)
    )
    return Network(schema=Schema(variables=variables), dag=Dag(parents=parents), families=tuple(families))


NETWORKS = [
    network_of((2,), ((),)),
    network_of((3, 300, 4), ((1,), (), (0, 1)), seed=1),  # a parent that stands behind its child; uint16 codes
    network_of((8, 6, 5, 16, 9), ((), (0,), (0, 1), (1, 2), (0, 3)), seed=2),
]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("n", [0, 1, 17, 1000, 70_001])
@pytest.mark.parametrize("method", SAMPLING)
def test_the_compiled_path_draws_the_records_of_the_plain_path(network, n, method):
    plain = sample_codes(network, n, generator=np.random.default_rng(5), method=method, path="plain")
    compiled = sample_codes(network, n, generator=np.random.default_rng(5), method=method, path="compiled")
    for variable, one, two in zip(network.schema.variables, plain, compiled, strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.dtype == two.dtype == variable.code_dtype
        assert one.shape == (n,)


@pytest.mark.parametrize("sizes", [[1], [5, 0, 1], [40, 700, 3, 16, 17], [100_000]])
@pytest.mark.parametrize("n_states", [1, 2, 9])
def test_ranking_by_buckets_equals_sorting(sizes, n_states):
    generator = np.random.default_rng([*sizes, n_states])
    group = generator.permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(np.uint32)
    boundaries = np.sort(generator.integers(0, np.array(sizes)[:, None] + 1, (len(sizes), n_states)), axis=1)
    boundaries[:, -1] = sizes
    start = np.uint64(2**64 - 12)  # the counter wraps around
    np.testing.assert_array_equal(ranking.group_sizes(group, len(sizes)), sizes)
    np.testing.assert_array_equal(
        ranking.assign_by_rank(group, np.array(sizes), start, boundaries),
        category_draws.assign_by_rank_plain(group, record_keys(start, len(group)), boundaries),
    )


def test_plain_ranking_by_hand():
    group = np.array([0, 1, 0, 0, 1], np.uint32)
    keys = np.array([30, 5, 10, 20, 4], np.uint64)
    boundaries = np.array([[1, 3], [0, 2]])
    assert category_draws.assign_by_rank_plain(group, keys, boundaries).tolist() == [1, 1, 0, 1, 1]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("n", [1, 10, 999, 50_000])
def test_systematic_counts_differ_from_their_expectation_by_less_than_one(network, n):
    codes = sample_codes(network, n, generator=np.random.default_rng(n))
    for family in network.families:
        shape = [network.schema.n_states[v] for v in (*family.parents, family.child)]
        index = np.ravel_multi_index([codes[v] for v in (*family.parents, family.child)], shape)
        counts = np.bincount(index, minlength=int(np.prod(shape))).reshape(family.probability.shape)
        expected = counts.sum(axis=1, keepdims=True) * family.probability
        assert (np.abs(counts - expected) < 1 + 1e-9).all()
        assert not counts[family.probability == 0].any()


def test_systematic_rounding_is_unbiased():
    """Mean count over offsets on a fine grid = m p (closed form: the mean of floor(x + u) over u is x)."""
    p = np.array([0.02, 0.4, 0.0, 0.33, 0.25])
    offsets = (np.arange(20_000) + 0.5) / 20_000
    boundaries = category_boundaries(np.tile(np.cumsum(p), (20_000, 1)), np.full(20_000, 7), offsets)
    np.testing.assert_allclose(np.diff(boundaries, axis=1, prepend=0).mean(axis=0), 7 * p, atol=1e-4)


def test_boundaries_never_pass_the_group():
    boundaries = category_boundaries(np.array([[1.0 - 2**-53, 1.0]]), np.array([2**40]), np.array([1 - 2**-53]))
    assert boundaries.tolist() == [[2**40, 2**40]]


def test_same_generator_state_same_records():
    network = NETWORKS[2]
    one, two, other = (sample_codes(network, 500, generator=np.random.default_rng(s)) for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    with pytest.raises(ValueError, match="0 or more"):
        sample_codes(network, -1, generator=np.random.default_rng(0))


SCHEMA = Schema(
    variables=(
        Variable(name="sex", owner="a", labels=("Female", "Male", "never drawn")),
        Variable(name="age", owner="a", labels=("[17,25)", "[25,90.5)"), bins=(17, 25, 90.5), integer=True),
        Variable(name="rate", owner="a", labels=("[0,0.1)", "[0.1,2)"), bins=(0, 0.1, 2)),
        Variable(
            name="hours",
            owner="a",
            labels=("[0,1)", "[1,50)", "unknown", "more"),
            bins=(0, 1, 50),
            integer=True,
            other="more",
            missing=Missing(category="unknown", spellings=("",)),
        ),
    )
)


def decoded(n: int = 4000, seed: int = 1) -> tuple[list[np.ndarray], pd.DataFrame]:
    generator = np.random.default_rng(seed)
    codes = [generator.integers(0, k, n).astype(np.uint8) for k in (2, 2, 2, 4)]
    return codes, decode(SCHEMA, codes, generator)


def test_decoding_gives_the_columns_in_order_with_labels_as_categories():
    codes, table = decoded()
    assert list(table.columns) == ["sex", "age", "rate", "hours"]
    assert list(table["sex"].cat.categories) == ["Female", "Male", "never drawn"]
    np.testing.assert_array_equal(table["sex"].cat.codes, codes[0])
    assert decoded()[1].equals(table)


def test_whole_numbers_fill_the_bin_and_do_not_leave_it():
    codes, table = decoded()
    age = table["age"].to_numpy()
    assert age.dtype == np.int64
    assert set(age[codes[1] == 0]) == set(range(17, 25))
    assert set(age[codes[1] == 1]) == set(range(25, 91))  # 90.5 is not reached, 90 is


def test_other_numbers_stay_in_the_bin_and_are_rounded():
    codes, table = decoded()
    rate = table["rate"].to_numpy()
    low, high = np.array([0, 0.1])[codes[2]], np.array([0.1, 2])[codes[2]]
    assert ((rate >= low) & (rate < high)).all()
    np.testing.assert_array_equal(rate, np.round(rate, 4))  # 1,000 steps in the bin of width 0.1
    assert len(set(rate)) > 1000


def test_a_binned_variable_with_further_categories_becomes_text():
    codes, table = decoded()
    hours = table["hours"]
    assert pd.api.types.is_string_dtype(hours)
    assert set(hours[codes[3] == 0]) == {"0"}
    assert set(hours[codes[3] == 1]) == set(map(str, range(1, 50)))
    assert set(hours[codes[3] == 2]) == {"unknown"}
    assert set(hours[codes[3] == 3]) == {"more"}


def test_an_empty_table_keeps_its_columns_and_types():
    table = decode(SCHEMA, [np.zeros(0, np.uint8)] * 4, np.random.default_rng(0))
    assert len(table) == 0
    assert table["age"].dtype == np.int64
    assert pd.api.types.is_string_dtype(table["hours"])


def test_decoding_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="3 columns"):
        decode(SCHEMA, [np.zeros(1, np.uint8)] * 3, np.random.default_rng(0))
    hollow = Schema(variables=(Variable(name="x", owner="a", labels=("a", "b"), bins=(0.2, 0.8, 2), integer=True),))
    with pytest.raises(ValueError, match="no whole number"):
        decode(hollow, [np.zeros(1, np.uint8)], np.random.default_rng(0))


@pytest.mark.parametrize("integer", [True, False])
def test_the_256th_bin_is_a_bin_like_any_other(integer):
    """256 bins have codes of one byte, and the upper edge of the last one is edge 256."""
    edges = tuple(map(float, range(257)))
    variable = Variable(name="x", owner="a", labels=tuple(map(str, range(256))), bins=edges, integer=integer)
    codes = np.arange(256, dtype=np.uint8)
    numbers = decode(Schema(variables=(variable,)), [codes], np.random.default_rng(0))["x"].to_numpy()
    np.testing.assert_array_equal(np.floor(numbers), codes)

"""PrivBayes step by step, on examples worked by hand: the paper's Tables 2 to 6, and its Algorithms 1 to 4.

Bao, Xiao, Zhao, Zhang & Ding, JPC 11(3) 2021. What its tables leave out (rows that are dots) is filled in so that they add up.
Every step has its planted faults in ``tests/mutation/faults.toml``.
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from verticil.shared.numerics.estimation.contingency import pair_table
from verticil.shared.numerics.model.constraints import declared_constraints
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.numerics.privbayes.calibration import MEASUREMENTS, Noise
from verticil.shared.numerics.privbayes.distributions import agreeing, distributions, project
from verticil.shared.numerics.privbayes.fitting import Fitted, fit
from verticil.shared.numerics.privbayes.measuring import NoisyTable, automatic_tau, noisy_tables, shared_out
from verticil.shared.numerics.privbayes.scores import exact_scores, noisy_scores, score_of, scores_of_tables
from verticil.shared.numerics.privbayes.structure import Structure, first_pair, learn_structure, next_pair
from verticil.shared.synthesis.synthesis import sample_codes

KEY = bytes(range(32))


def schema_of(n_states: tuple[int, ...]) -> Schema:
    labels = [tuple(map(str, range(k))) for k in n_states]
    return Schema(variables=tuple(Variable(name=f"v{i}", owner="o", labels=of) for i, of in enumerate(labels)))


# ---- Algorithm 1: the score and what one person changes of it


def real_score(table: np.ndarray) -> Fraction:
    n = int(table.sum())
    if n == 0:
        return Fraction(0)
    rows, columns = table.sum(axis=1).tolist(), table.sum(axis=0).tolist()
    cells = itertools.product(range(len(rows)), range(len(columns)))
    return sum((abs(int(table[x, y]) - Fraction(rows[x] * columns[y], n)) for x, y in cells), Fraction(0)) / 2


def tables_of(n: int, shape: tuple[int, int]) -> list[np.ndarray]:
    """Every table of n records."""
    cells = shape[0] * shape[1]
    bars = itertools.combinations(range(n + cells - 1), cells - 1)
    return [np.diff([-1, *bar, n + cells - 1]).reshape(shape) - 1 for bar in bars]


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 3)])
def test_a_person_changes_the_score_by_less_than_two_and_three(shape: tuple[int, int]) -> None:
    """Every table of up to 5 records (3 where there are 9 cells), every record more, every other record instead."""
    largest = {"added": Fraction(0), "replaced": Fraction(0)}
    for n in range(6 if shape != (3, 3) else 4):
        for table in tables_of(n, shape):
            scores = []
            for cell in np.ndindex(shape):
                more = table.copy()
                more[cell] += 1
                scores.append((real_score(more), score_of(more)))
                change = abs(scores[-1][0] - real_score(table))
                assert change <= Fraction(2 * n, n + 1)
                assert abs(scores[-1][1] - score_of(table)) <= 2
                assert score_of(more) == int(real_score(more) + Fraction(1, 2))
                largest["added"] = max(largest["added"], change)
            apart = max(one[0] for one in scores) - min(one[0] for one in scores)
            assert apart <= Fraction(3 * n, n + 1)
            assert max(one[1] for one in scores) - min(one[1] for one in scores) <= 3
            largest["replaced"] = max(largest["replaced"], apart)
    assert largest["added"] > 1  # so 1, of the paper's other reading, would not do
    assert largest["replaced"] > 1


def test_an_unseen_pair_of_values_reaches_the_bound() -> None:
    table = np.zeros((3, 3), dtype=int)
    table[:2, :2] = 25  # independent
    more = table.copy()
    more[2, 2] = 1
    assert real_score(table) == 0
    assert real_score(more) == Fraction(2 * 100, 101)
    assert score_of(more) == 2


def test_scores_of_a_table_of_records() -> None:
    """Columns 0 and 1 are equal, 2 is independent of both: S = n/2 of two equal halves."""
    columns = [np.array(column, dtype=np.uint8) for column in ([0, 0, 1, 1] * 10, [0, 0, 1, 1] * 10, [0, 1] * 20)]
    assert exact_scores(columns, (2, 2, 2)).tolist() == [[0, 20, 0], [20, 0, 0], [0, 0, 0]]
    tables = {(a, b): pair_table(columns[a], columns[b], 2, 2) for a, b in ((0, 1), (0, 2), (1, 2))}
    assert scores_of_tables(tables, 3).tolist() == [[0, 20, 0], [20, 0, 0], [0, 0, 0]]


def test_noise_on_scores_is_the_asked_one() -> None:
    """1,200 draws at sigma 50: their standard deviation within 5 of its own standard errors, 50 / sqrt(2,400)."""
    columns = [np.zeros(1, dtype=np.uint8)] * 25
    found = noisy_scores(columns, [2] * 25, key=KEY, sigma=50.0)
    assert np.array_equal(found, found.T)
    assert not found.diagonal().any()
    assert np.array_equal(found, noisy_scores(columns, [2] * 25, key=KEY, sigma=50.0))
    more = [noisy_scores(columns, [2] * 25, key=bytes([k]) * 32, sigma=50.0)[np.triu_indices(25, 1)] for k in range(4)]
    assert abs(np.std(more) - 50) < 5 * 50 / np.sqrt(2400)


# ---- Algorithms 2 and 3


N_STATES = (2, 3, 2, 4, 2)
SCORES = np.array(
    [
        [0, 30, 24, 8, 2],
        [30, 0, 12, 40, 6],
        [24, 12, 0, 16, -3],
        [8, 40, 16, 0, 4],
        [2, 6, -3, 4, 0],
    ]
)


def test_the_first_pair_by_hand() -> None:
    """S / K K is largest for (0, 2), 24 / 4 = 6: A_i = 0, A_j = 2, and room for tau / 4.

    Next is the attribute with the largest sum of S / K K over those: 1 has 30/6 + 12/6 = 7, 3 has 8/8 + 16/8 = 3, 4 has -1/4.
    """
    assert first_pair(SCORES, N_STATES, tau=4) == (2, 0)
    assert first_pair(SCORES, N_STATES, tau=8) == (2, 0)  # 8 / 4 / 2 = 1 is no room: it must be above 1
    # 1 and then 3 are looked at first and have no room; 4, whose sum is -1/4, has.
    assert first_pair(SCORES, N_STATES, tau=12) == (2, 0, 4)
    assert first_pair(SCORES, N_STATES, tau=13) == (2, 0, 1)
    # With 1 the sums change: 3 has 3 + 40/12 = 6.33, 4 has -1/4 + 6/6; room 49 / 12 / 4 > 1.
    assert first_pair(SCORES, N_STATES, tau=49) == (2, 0, 1, 3)
    assert first_pair(SCORES, N_STATES, tau=3) == ()
    scores = SCORES.copy()
    scores[1, 4] = scores[4, 1] = 30  # with 1 taken 4 has -1/4 + 30/6, and 3 has 3 + 6/12: then there is no room for 3
    scores[1, 3] = scores[3, 1] = 6
    assert first_pair(scores, N_STATES, tau=49) == (2, 0, 1, 4)


def test_the_guard_keeps_pairs_above_tau_out() -> None:
    scores = SCORES.copy()
    scores[1, 3] = scores[3, 1] = 400  # 400 / 12 is the largest by far, in 12 cells
    assert first_pair(scores, N_STATES, tau=12)[:2] == (3, 1)
    assert first_pair(scores, N_STATES, tau=11)[:2] == (2, 0)


def test_further_pairs_by_hand() -> None:
    """After (2, 0) with tau = 12: 1 has 30 and 12 in 12 cells, 3 only one of 16 and 8, 4 only 0 with 2: 2 has -3."""
    assert next_pair(SCORES, N_STATES, (2, 0), tau=12) == (1, (0, 2))  # 30 + 12
    assert next_pair(SCORES, N_STATES, (2, 0), tau=11) == (1, (0,))  # 30
    # Then 3: its best, 1 with 40, makes 12 cells; nothing else fits. 4: 6 + 2, not 2 with -3.
    assert next_pair(SCORES, N_STATES, (2, 0, 1), tau=12) == (3, (1,))
    assert next_pair(SCORES, N_STATES, (2, 0, 1, 3), tau=12) == (4, (0, 1))
    assert next_pair(SCORES, N_STATES, (2, 0, 1, 3), tau=1000) == (4, (0, 1, 3))  # never 2
    # What does not fit is passed over, and a smaller one behind it is taken.
    assert next_pair(SCORES, N_STATES, (2, 0, 1, 3), tau=6) == (4, (1,))
    assert next_pair(SCORES, N_STATES, (2, 0, 3), tau=5) == (4, (0,))


def test_the_network_by_hand() -> None:
    """Three attributes in the first pair, so two are left for Algorithm 3: 1 with 30 + 12 before 3 with 16."""
    found = learn_structure(SCORES, N_STATES, tau=12)
    assert found.tables == ((2, 0, 4), (0, 2, 1), (1, 3))
    assert found.dag.parents == ((2,), (0, 2), (), (1,), (0, 2))
    assert {len(table) for table in learn_structure(SCORES, N_STATES, tau=1).tables} == {1}
    assert max(len(table) for table in learn_structure(SCORES, N_STATES, tau=1e9, most_attributes=2).tables) == 2


@pytest.mark.parametrize("seed", range(20))
def test_every_attribute_is_placed_and_constraints_hold(seed: int) -> None:
    generator = np.random.default_rng(seed)
    d = 8
    n_states = tuple(generator.integers(2, 6, d).tolist())
    scores = generator.normal(0, 30, (d, d))
    scores = np.triu(scores, 1) + np.triu(scores, 1).T
    names = [f"v{v}" for v in range(d)]
    limits = {"max_parents": d, "max_family_cells": 10**9}
    custom = declared_constraints(names, n_states, **limits, target="v2", sensitive=["v5", "v0"])
    declared = declared_constraints(
        names, n_states, **limits, required=[("v7", "v1"), ("v1", "v0")], forbidden=[("v3", "v4"), ("v4", "v3")],
        tiers=[["v6"], ["v2", "v3"]],
    )  # fmt: skip
    for constraints in (None, custom, declared):
        found = learn_structure(scores, n_states, tau=60, constraints=constraints)
        assert sorted({v for table in found.tables for v in table}) == list(range(d))
        first, *others = found.tables
        assert [table[-1] for table in others] == [v for v in (table[-1] for table in others) if v not in first]
        assert len(others) == d - len(first)
        if constraints is not None:
            assert constraints.violations(found.dag) == ()
        for table in found.tables:
            cells = np.prod([n_states[v] for v in table])
            assert cells <= 60 or len(table) == 1 or constraints is declared


# ---- Algorithm 4: measuring


def test_every_attribute_has_its_measurements_whatever_the_network_is() -> None:
    for n_attributes in (1, 2, 7, 13):
        for n_tables in range(1, n_attributes + 1):
            sizes = list(range(3, 3 + n_tables))
            shares = shared_out(sizes, n_attributes)
            assert sum(shares) == MEASUREMENTS * n_attributes
            assert max(shares) - min(shares) <= 1
            assert shares == sorted(shares)  # the larger table is measured more often


def test_a_measured_table_has_the_noise_that_it_says() -> None:
    """Two of three attributes' tables: 18 measurements of sigma 30 each; 800 cells within 5 standard errors."""
    columns = [np.zeros(7, dtype=np.uint8)] * 3
    pair, single = noisy_tables(columns, (20, 20, 20), [(0, 1), (0, 2)], key=KEY, sigma=30.0)
    assert pair.deviation == pytest.approx(30 / np.sqrt(MEASUREMENTS * 3 / 2), rel=1e-9)
    noise = np.concatenate([pair.counts.ravel(), single.counts.ravel()])
    noise[[0, 400]] -= 7
    assert abs(np.std(noise) - pair.deviation) < 5 * pair.deviation / np.sqrt(1600)
    assert abs(np.mean(noise)) < 5 * pair.deviation / np.sqrt(800)


def test_tau_is_where_an_average_cell_is_five_times_the_noise() -> None:
    assert automatic_tau(32_561, 20.0) == pytest.approx(325.61)
    assert automatic_tau(-3, 20.0) == 0


# ---- the paper's Tables 2 to 6

TABLE_2A = np.array([0.04, -0.1, 0.68, 0.08])  # [0, 4], [5, 9], all between, [95, 99]
TABLE_2B = np.array([[0.02, 0.02], [-0.1, 0], [0.38, 0.38], [-0.02, 0]])
TABLE_3A = [0.05, 0, 0.85, 0.1]
TABLE_3B = [[0.025, 0.025], [0, 0], [0.475, 0.475], [0, 0]]


def test_table_2_becomes_table_3() -> None:
    np.testing.assert_allclose(project(TABLE_2A, "clip"), TABLE_3A, atol=1e-12)
    np.testing.assert_allclose(project(TABLE_2B, "clip"), TABLE_3B, atol=1e-12)


def test_the_simplex_lowers_all_that_is_positive_by_the_same() -> None:
    """Of Table 2 (a), whose sum is .7: .04, .68 and .08 are lowered by .1 / 3, and divided by the sum."""
    expected = np.array([0.04 - 0.1 / 3, 0, 0.68 - 0.1 / 3, 0.08 - 0.1 / 3]) / 0.7
    np.testing.assert_allclose(project(TABLE_2A, "simplex"), expected, atol=1e-12)
    assert project(np.array([-1.0, -3.0]), "simplex").tolist() == [0.5, 0.5]


def test_table_3_becomes_table_4() -> None:
    """A cell of age sums one cell of (a) and two of (b), so (a) counts twice: (.1 + .1 + 0) / 3 = .067 of [95, 99]."""
    age, both = agreeing([((0,), np.array(TABLE_3A)), ((0, 1), np.array(TABLE_3B))], [1.0, 1.0])
    np.testing.assert_allclose(age, [0.05, 0, (2 * 0.85 + 0.95) / 3, 0.2 / 3], atol=1e-12)
    np.testing.assert_allclose(both[[0, 1, 3]], [[0.025, 0.025], [0, 0], [0.1 / 3, 0.1 / 3]], atol=1e-12)
    np.testing.assert_allclose(both.sum(axis=1), age, atol=1e-12)


def test_tables_agree_on_every_shared_margin() -> None:
    generator = np.random.default_rng(5)
    shape = (2, 3, 4, 2, 3)
    members = [(0, 1, 2), (2, 1, 3), (4, 2), (0, 3), (3,)]
    tables = [(of, generator.normal(10, 3, [shape[v] for v in of])) for of in members]
    values = agreeing(tables, [1.0, 2.0, 0.5, 1.0, 3.0])
    for (one, a), (two, b) in itertools.combinations(list(zip(members, values, strict=True)), 2):
        common = sorted(set(one) & set(two))
        margins = []
        for of, table in ((one, a), (two, b)):
            summed = table.sum(axis=tuple(axis for axis, v in enumerate(of) if v not in common))
            kept = [v for v in of if v in common]
            margins.append(summed.transpose([kept.index(v) for v in common]))
        np.testing.assert_allclose(margins[0], margins[1], atol=1e-9)
    for table in distributions(tables, [1.0] * 5, projection="simplex"):
        assert table.min() >= 0
        assert table.sum() == pytest.approx(1.0, abs=1e-12)


def table_4() -> Fitted:
    """The paper's Table 4 (.067 and not 1/15), as what a run found."""
    tables = (
        NoisyTable(attributes=(0,), counts=10_000 * np.array([0.05, 0, 0.883, 0.067]), deviation=1.0),
        NoisyTable(
            attributes=(0, 1),
            counts=10_000 * np.array([[0.025, 0.025], [0, 0], [0.4415, 0.4415], [0.0335, 0.0335]]),
            deviation=1.0,
        ),
    )
    structure = Structure(tables=((0,), (0, 1)), dag=Dag(parents=((), (0,))))
    return Fitted(
        structure=structure, tables=tables, distributions=tuple(table.counts / 10_000 for table in tables), tau=8.0,
        n_records=None, noise=None,
    )  # fmt: skip


def test_table_4_becomes_table_5_and_is_dealt_out() -> None:
    """10,000 records hold exactly the histograms 500, 0, 670 and 250, 250, 0, 0, 335, 335: each tuple took one from each."""
    found = table_4()
    age, grade = sample_codes(
        found.network(schema_of((4, 2))), 10_000, generator=np.random.default_rng(1), method="without-replacement",
        configurations=found.configuration_shares(),
    )  # fmt: skip
    assert np.bincount(age, minlength=4).tolist() == [500, 0, 8830, 670]
    both = np.bincount(2 * age.astype(int) + grade, minlength=8).tolist()
    assert both == [250, 250, 0, 0, 4415, 4415, 335, 335]
    # Table 6: what is left of the histograms when the first tuple of ([95, 99], 01) has been made.
    first = int(np.flatnonzero((age == 3) & (grade == 0))[0])
    left = np.delete(age, first), np.delete(grade, first)
    assert np.bincount(left[0], minlength=4).tolist() == [500, 0, 8830, 669]
    assert np.bincount(2 * left[0].astype(int) + left[1], minlength=8).tolist()[6:] == [334, 335]


def test_a_configuration_that_no_count_is_left_of_takes_the_childs_own_shares() -> None:
    family = table_4().network(schema_of((4, 2))).families[1]
    np.testing.assert_allclose(family.probability[1], [0.5, 0.5], atol=1e-12)
    assert family.unstable[1].all()
    # Half of 670 noisy people: sampling .25 / 670, and noise of 1 in each cell twice .5^2 / 670^2.
    np.testing.assert_allclose(family.standard_error[3], np.sqrt(0.25 / 670 + 2 * 0.25 / 670**2), rtol=1e-9)


# ---- whole runs

QUIET = Noise(relation="replace", scores=0.5, measurement=0.5, records=None)


def chain(n: int, seed: int = 3) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """0 -> 1 -> 2 -> 3, strong, and 4 alone."""
    generator = np.random.default_rng(seed)
    columns = [generator.integers(0, 3, n)]
    for _ in range(3):
        columns.append(np.where(generator.random(n) < 0.8, columns[-1], generator.integers(0, 3, n)))
    columns.append(generator.integers(0, 2, n))
    return [column.astype(np.uint8) for column in columns], (3, 3, 3, 3, 2)


def test_a_run_without_much_noise_gives_the_records_shares() -> None:
    columns, n_states = chain(5_000)
    found = fit(columns, n_states, key=KEY, noise=QUIET, tau=9)
    assert found.structure.dag.parents[4] == () or len(found.structure.dag.parents[4]) == 1
    skeleton = {frozenset(edge) for edge in found.structure.dag.edges()}
    assert {frozenset((0, 1)), frozenset((1, 2)), frozenset((2, 3))} <= skeleton
    network = found.network(schema_of(n_states))
    for family in network.families:
        scope = (*family.parents, family.child)
        index = np.ravel_multi_index([columns[v] for v in scope], [n_states[v] for v in scope])
        counts = np.bincount(index, minlength=family.probability.size).reshape(family.probability.shape)
        np.testing.assert_allclose(family.probability, counts / counts.sum(axis=1, keepdims=True), atol=0.005)
        assert ((family.interval_low <= family.estimate) & (family.estimate <= family.interval_high)).all()


def test_a_run_is_a_function_of_records_key_and_noise() -> None:
    columns, n_states = chain(300)
    noise = Noise(relation="add-remove", scores=20.0, measurement=40.0, records=15.0)
    one, same = (fit(columns, n_states, key=KEY, noise=noise) for _ in range(2))
    other = fit(columns, n_states, key=bytes(32), noise=noise)
    assert one.structure == same.structure
    assert all(np.array_equal(a, b) for a, b in zip(one.distributions, same.distributions, strict=True))
    assert one.n_records == same.n_records != other.n_records
    assert one.n_records != 300  # nothing rests on how many there are
    assert one.tau == pytest.approx(one.n_records / (5 * 40 / np.sqrt(12)))


def test_scores_from_outside_take_the_place_of_scoring() -> None:
    columns, n_states = chain(300)
    noise = Noise(relation="replace", scores=None, measurement=1.0, records=None)
    alone = fit(columns, n_states, key=KEY, noise=noise, scores=np.zeros((5, 5)), tau=0)
    assert alone.structure.dag.parents == ((), (), (), (), ())
    one = fit(columns[:1], n_states[:1], key=KEY, noise=noise)  # a single column has no pair to score
    assert one.structure.tables == ((0,),)
    with pytest.raises(ValueError, match="no scores and no noise for them"):
        fit(columns, n_states, key=KEY, noise=noise)
    with pytest.raises(ValueError, match="expected some where a record can be added"):
        Noise(relation="add-remove", scores=1.0, measurement=1.0, records=None)


POSSIBLE = {
    (0, 1): np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=np.bool_),
    (2, 3): np.array([[1, 0, 0], [1, 1, 1], [1, 1, 1]], dtype=np.bool_),
}


def zeros_of(members: Sequence[int]) -> np.ndarray | None:
    """Of two rules without a variable in common: a table over both axes of each that is inside."""
    found = np.ones([3] * len(members), dtype=np.bool_)
    for pair, table in POSSIBLE.items():
        if set(pair) <= set(members):
            first, second = (members.index(v) for v in pair)
            moved = table if first < second else table.T
            found &= moved.reshape([3 if axis in (first, second) else 1 for axis in range(len(members))])
    return None if found.all() else found


def known_people(n: int, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    columns = [generator.integers(0, 3, 3 * n)]
    for _ in range(3):
        columns.append(np.where(generator.random(3 * n) < 0.6, columns[-1], generator.integers(0, 3, 3 * n)))
    kept = POSSIBLE[0, 1][columns[0], columns[1]] & POSSIBLE[2, 3][columns[2], columns[3]]
    return [column[kept][:n].astype(np.uint8) for column in columns]


@pytest.mark.parametrize("projection", ["simplex", "clip"])
@pytest.mark.parametrize("consistent", [True, False])
def test_what_rules_leave_impossible_is_nothing_and_what_is_left_is_nearer(projection, consistent) -> None:
    """Mean distance of the tables of 20 runs, by the same noise with rules and without."""
    n, apart = 2_000, [0.0, 0.0]
    noise = Noise(relation="replace", scores=10.0, measurement=100.0, records=None)
    for seed in range(20):
        columns, key = known_people(n, seed), np.random.default_rng(seed).bytes(32)
        for place, zeros in enumerate((None, zeros_of)):
            found = fit(
                columns,
                (3,) * 4,
                key=key,
                noise=noise,
                tau=27,
                projection=projection,
                consistent=consistent,
                zeros=zeros,
            )
            for table, values in zip(found.tables, found.distributions, strict=True):
                index = np.ravel_multi_index([columns[v] for v in table.attributes], values.shape)
                true = np.bincount(index, minlength=values.size).reshape(values.shape) / n
                apart[place] += float(np.abs(values - true).sum())
                assert values.sum() == pytest.approx(1.0)
                assert values.min() >= 0
            for family in found.network(schema_of((3,) * 4)).families:
                inside = None if zeros is None else zeros((*family.parents, family.child))
                if inside is not None:
                    inside = inside.reshape(family.probability.shape)
                    inside = inside | ~inside.any(axis=1, keepdims=True)
                    for values in (family.probability, family.estimate, family.interval_high):
                        assert (np.nan_to_num(values)[~inside] == 0).all()
    assert apart[1] < 0.95 * apart[0]
    found = fit(known_people(n, 0), (3,) * 4, key=bytes(32), noise=noise, tau=27, zeros=zeros_of)
    agreed = [np.zeros(3), np.zeros(3)]
    for table, values in zip(found.tables, found.distributions, strict=True):
        if 1 in table.attributes:
            others = tuple(axis for axis, v in enumerate(table.attributes) if v != 1)
            agreed = [agreed[1], values.sum(axis=others)]
    np.testing.assert_allclose(agreed[0], agreed[1], atol=0.01)

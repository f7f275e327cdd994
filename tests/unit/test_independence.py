"""Tests of independence and information of any pair: closed forms, each statistic against another program, planted dependence."""

import itertools

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency

from verticil.miner.learning.scoring.counting import all_pair_tables
from verticil.miner.learning.scoring.scores import pair_scores
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation import independence
from verticil.shared.numerics.estimation.contingency import family_counts
from verticil.shared.numerics.estimation.independence import dependence_p_value, independence_p_value
from verticil.shared.numerics.estimation.information import links, pair_information, plug_in_information
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, as_design, family_design

TERNARY = quantize(symmetric(3, epsilon=1.5))
BINARY = quantize(binary(0.1, 0.25))


def single(variable, channel):
    return ColumnUnit(variables=(variable,), domain=None, channel=channel)


def pair_unit(channel, sizes=(2, 3), impossible=()):
    domain = tuple(c for c in itertools.product(*map(range, sizes)) if c not in impossible)
    return ColumnUnit(variables=(0, 1), domain=domain, channel=channel)


def irregular(n_states, seed=1):
    noise = np.random.default_rng(seed).dirichlet(np.ones(n_states), n_states)
    return quantize(0.6 * np.eye(n_states) + 0.4 * noise)


def drawn(unit, states, generator):
    """Released codes of one unit for the records' true states."""
    channel = unit.channel
    if channel.codes_per_record == 1:
        cumulative = channel.probabilities.cumsum(axis=1)[:, :-1]
        return (generator.random(len(states))[:, None] >= cumulative[states]).sum(axis=1).astype(np.uint8)
    order = generator.random((len(states), channel.n_states))
    inside = generator.random(len(states)) < channel.keep
    order[np.arange(len(states)), states] = np.where(inside, -1.0, 2.0)
    return np.sort(np.argsort(order, axis=1)[:, : channel.codes_per_record], axis=1).astype(np.uint8).ravel()


def test_the_statistic_of_shares_is_pearsons_for_ordinary_columns():
    observed = np.array([[120, 90, 70], [60, 100, 130]])
    found = independence._shares_p_value(observed, as_design([BINARY, TERNARY]), 0.0)
    assert found == pytest.approx(chi2_contingency(observed, correction=False).pvalue, rel=1e-9)


def test_the_statistic_of_shares_is_the_trace_of_its_definition():
    generator = np.random.default_rng(2)
    units = [single(0, subset_selection(8, epsilon=1.0)), single(1, TERNARY)]
    columns = {i: drawn(u, generator.integers(0, u.channel.n_states, 900), generator) for i, u in enumerate(units)}
    design = family_design(units, (8, 3), (0, 1))
    observed = family_counts(columns, design)
    u = np.eye(8)[columns[0].reshape(900, -1)].mean(axis=1)
    v = np.eye(3)[columns[1]]
    cross = (u - u.mean(axis=0)).T @ (v - v.mean(axis=0)) / 900
    # The product's S_a is what the true shares imply, the sample's covariance converges to it; here both are inserted.
    implied = design.axes[0].covariance(u.mean(axis=0))
    np.testing.assert_allclose(implied, np.cov(u.T, bias=True), atol=0.015)
    statistic = 900 * np.trace(
        np.linalg.pinv(implied, rcond=1e-9) @ cross @ np.linalg.pinv(np.cov(v.T, bias=True)) @ cross.T
    )
    assert dependence_p_value(observed, design) == pytest.approx(chi2.sf(statistic, 7 * 2), rel=1e-6)


def test_wald_is_near_pearson_where_both_hold():
    generator = np.random.default_rng(3)
    x = generator.integers(0, 2, 20_000)
    y = np.where(generator.random(20_000) < 0.03, x, generator.integers(0, 3, 20_000))
    units = [single(0, BINARY), single(1, TERNARY)]
    columns = {0: drawn(units[0], x, generator), 1: drawn(units[1], y, generator)}
    design = family_design(units, (2, 3), (0, 1))
    observed = family_counts(columns, design)
    pearson, wald = independence_p_value(observed), independence._wald_p_value(observed, design, 0.0)
    assert np.log(wald) == pytest.approx(np.log(pearson), abs=0.15)


def test_which_test_is_used(monkeypatch):
    used = []
    for name in ("independence_p_value", "_shares_p_value", "_wald_p_value"):
        monkeypatch.setattr(independence, name, lambda *_, name=name: used.append(name) or 0.5)
    lumpable = pair_unit(quantize(symmetric(6, epsilon=2.0)))
    other = single(2, BINARY)
    states = (2, 3, 2)
    for units, axes, noise in (
        ([single(0, BINARY), single(1, TERNARY)], (0, 1), 0.0),
        ([lumpable, other], (1, 2), 0.0),
        ([lumpable, other], (0, 1), 0.0),
        ([pair_unit(irregular(6)), other], (1, 2), 0.0),
        ([single(0, BINARY), single(1, TERNARY)], (0, 1), 5.0),
        ([pair_unit(subset_selection(6, epsilon=1.0, size=2)), other], (1, 2), 0.0),
        ([pair_unit(subset_selection(6, epsilon=1.0, size=2)), other], (0, 1), 0.0),
    ):
        design = family_design(units, states, axes)
        dependence_p_value(np.ones(design.released_shape), design, noise_variance=noise)
    assert used == [
        "independence_p_value", "independence_p_value", "_wald_p_value", "_wald_p_value", "_shares_p_value",
        "_shares_p_value", "_wald_p_value",
    ]  # fmt: skip


def test_released_columns_can_depend_where_the_variables_do_not():
    """b is independent of c, but its companion a is not, and a decides how well b is released: Pearson is fooled, Wald is not."""
    rows = np.zeros((6, 6))
    for a, b, a_out, b_out in itertools.product(range(2), range(3), range(2), range(3)):
        kept = (
            np.array([[0.9, 0.05, 0.05], [0.3, 0.6, 0.1], [0.3, 0.1, 0.6]])
            if a == 0
            else np.full((3, 3), 0.2) + 0.4 * np.eye(3)
        )
        rows[3 * a + b, 3 * a_out + b_out] = (0.8 if a == a_out else 0.2) * kept[b, b_out]
    unit, other = pair_unit(quantize(rows)), single(2, BINARY)
    generator = np.random.default_rng(4)
    n = 40_000
    c, b = generator.integers(0, 2, n), generator.integers(0, 3, n)
    a = np.where(generator.random(n) < 0.8, c, 1 - c)
    columns = {0: drawn(unit, 3 * a + b, generator), 1: drawn(other, c, generator)}
    design = family_design([unit, other], (2, 3, 2), (1, 2))
    observed = family_counts(columns, design)
    assert independence_p_value(observed.reshape(2, 3, 2).sum(axis=0)) < 1e-6
    assert dependence_p_value(observed, design) > 1e-3
    assert pair_information(observed, design, level=1e-3) == 0.0
    linked = family_design([unit, other], (2, 3, 2), (0, 2))
    assert dependence_p_value(family_counts(columns, linked), linked) < 1e-6


@pytest.mark.parametrize(
    ("unit", "n"),
    [(pair_unit(irregular(6)), 60_000), (pair_unit(subset_selection(6, epsilon=1.0, size=2)), 60_000),
     (pair_unit(quantize(symmetric(5, epsilon=2.5)), impossible=((1, 2),)), 60_000)],
)  # fmt: skip
def test_information_of_two_variables_of_one_compound(unit, n):
    generator = np.random.default_rng(5)
    weights = np.array([[4.0, 2, 1], [1, 2, 4]])
    joint = np.array([weights[c] for c in unit.domain])
    joint /= joint.sum()
    states = generator.choice(len(joint), n, p=joint)
    design = family_design([unit], (2, 3), (0, 1))
    observed = family_counts({0: drawn(unit, states, generator)}, design)
    truth = np.zeros((2, 3))
    for combination, share in zip(unit.domain, joint, strict=True):
        truth[combination] = share
    assert dependence_p_value(observed, design) < 1e-6
    assert pair_information(observed, design, level=0.01) == pytest.approx(plug_in_information(truth), rel=0.35)


def test_independent_pairs_have_hardly_any_information_however_they_were_randomized():
    """Untested, so that nothing is 0 for that: what noise looks like is taken off, of any pair of units."""
    generator = np.random.default_rng(6)
    cases = {
        "shares": ([single(0, subset_selection(8, epsilon=1.0)), single(1, TERNARY)], (8, 3), 20_000),
        "inside": ([pair_unit(irregular(6))], (2, 3), 4000),
        "inside a subset": ([pair_unit(subset_selection(6, epsilon=1.0, size=2))], (2, 3), 40_000),
        "companion": ([pair_unit(irregular(6)), single(2, TERNARY)], (2, 3, 3), 4000),
    }
    for name, (units, states, n) in cases.items():
        axes = (1, 2) if name == "companion" else (0, 1)
        design = family_design(units, states, axes)
        excess, families = [], []
        for _ in range(20):
            true = [generator.integers(0, k, n) for k in states]
            columns = {}
            for index, unit in enumerate(units):
                own = [true[v] for v in unit.variables]
                columns[index] = drawn(unit, own[0] if len(own) == 1 else own[0] * states[1] + own[1], generator)
            observed = family_counts(columns, design)
            excess.append(plug_in_information(design.estimate(observed)))
            families.append((observed, design))
        assert np.mean([link.information for link in links(families)]) < max(0.3 * np.mean(excess), 0.001), name


def test_noise_on_the_counts_is_in_the_test_and_in_the_information():
    generator = np.random.default_rng(7)
    n, variance = 5000, 40.0**2
    x, y = generator.integers(0, 3, n), generator.integers(0, 3, n)
    clean = np.zeros((3, 3))
    np.add.at(clean, (x, y), 1)
    p_values, families = [], []
    channels = [quantize(identity(3))] * 2
    for _ in range(400):
        noisy = clean + generator.normal(0, np.sqrt(variance), (3, 3))
        p_values.append(dependence_p_value(noisy, channels, noise_variance=variance))
        families.append((noisy, as_design(channels)))
    assert np.mean(np.array(p_values) < 0.05) < 0.1  # 0.05 expected, sd 0.011
    assert np.mean([independence_p_value(clean + generator.normal(0, 40, (3, 3))) < 0.05 for _ in range(100)]) > 0.6
    found = np.mean([link.information for link in links(families[:50], noise_variance=variance)])
    assert found < 0.5 * np.mean([plug_in_information(noisy) for noisy, _ in families[:50]])
    linked = clean + 600 * np.eye(3)
    released = [linked + generator.normal(0, 40, (3, 3)) for _ in range(20)]
    information = [pair_information(table, channels, level=1e-6, noise_variance=variance) for table in released]
    assert np.mean(information) == pytest.approx(plug_in_information(linked), rel=0.1)


def test_noise_inside_a_compound_and_beside_one():
    generator = np.random.default_rng(8)
    variance = 60.0**2
    for units, states, axes in (
        ([pair_unit(irregular(6))], (2, 3), (0, 1)),
        ([pair_unit(irregular(6)), single(2, TERNARY)], (2, 3, 3), (1, 2)),
    ):
        design = family_design(units, states, axes)
        share = np.full(states[:2], 1 / 6).ravel() @ units[0].channel.probabilities
        if len(units) == 2:
            share = np.outer(share, np.full(3, 1 / 3) @ TERNARY.probabilities)
        p_values = [
            dependence_p_value(
                generator.multinomial(8000, share.ravel() / share.sum()).reshape(design.released_shape)
                + generator.normal(0, np.sqrt(variance), design.released_shape),
                design,
                noise_variance=variance,
            )
            for _ in range(300)
        ]
        assert 0.01 < np.mean(np.array(p_values) < 0.05) < 0.1


def test_rare_categories_and_large_tables_are_merged():
    generator = np.random.default_rng(9)
    unit = ColumnUnit(
        variables=(0, 1),
        domain=tuple(itertools.product(range(30), range(20))),
        channel=quantize(symmetric(600, epsilon=6.0)),
    )
    design = family_design([unit], (30, 20), (0, 1))
    states = generator.integers(0, 600, 20_000)
    assert dependence_p_value(np.bincount(drawn16(unit, states, generator), minlength=600), design) > 1e-4
    diagonal = np.where(generator.random(20_000) < 0.5, (states // 20 % 20) + 20 * (states // 20), states)
    assert dependence_p_value(np.bincount(drawn16(unit, diagonal, generator), minlength=600), design) < 1e-6


def drawn16(unit, states, generator):
    keep = unit.channel.probabilities[0, 0]
    return np.where(
        generator.random(len(states)) < keep, states, generator.integers(0, unit.channel.n_states, len(states))
    )


def test_a_pair_of_plain_columns_scores_as_in_the_table_of_all_pairs():
    generator = np.random.default_rng(10)
    a = generator.integers(0, 3, 5000)
    b = np.where(generator.random(5000) < 0.5, a, generator.integers(0, 3, 5000))
    c = generator.integers(0, 2, 5000)
    columns = [column.astype(np.uint8) for column in (a, b, c)]
    channels = [TERNARY, TERNARY, BINARY]
    tables = all_pair_tables(columns, (3, 3, 2))
    units = [single(v, channel) for v, channel in enumerate(channels)]
    scored = pair_scores(columns, units, (3, 3, 2))
    for x, y in tables.pairs():
        assert independence_p_value(tables.table(x, y)) == scored.p_value[x, y]
        found = pair_information(tables.table(x, y), [channels[x], channels[y]], level=scored.level)
        assert found == scored.information[x, y]


def test_scores_of_mixed_units():
    """A compound (0, 2), a subset (3) and a plain column (1): 0 - 1 and 0 - 2 are linked, 3 follows 1."""
    generator = np.random.default_rng(11)
    n = 40_000
    v0 = generator.integers(0, 2, n)
    v1 = np.where(generator.random(n) < 0.7, v0, generator.integers(0, 2, n))
    v2 = np.where(generator.random(n) < 0.6, v0, generator.integers(0, 3, n))
    v3 = np.where(generator.random(n) < 0.8, 4 * v1, generator.integers(0, 8, n))
    units = [
        ColumnUnit(variables=(0, 2), domain=tuple(itertools.product(range(2), range(3))), channel=irregular(6)),
        single(1, BINARY),
        single(3, subset_selection(8, epsilon=1.0)),
    ]
    columns = [drawn(units[0], 3 * v0 + v2, generator), drawn(units[1], v1, generator), drawn(units[2], v3, generator)]
    scored = pair_scores(columns, units, (2, 2, 3, 8))
    assert scored.significant[0, 1]
    assert scored.significant[0, 2]
    assert scored.significant[1, 3]
    for (a, x), (b, y) in itertools.combinations(enumerate((v0, v1, v2, v3)), 2):
        truth = plug_in_information(np.histogram2d(x, y, bins=(x.max() + 1, y.max() + 1))[0])
        assert scored.information[a, b] == pytest.approx(truth, abs=0.03 + 0.25 * truth)
    calls = []
    pair_scores(columns, units, (2, 2, 3, 8), check=lambda: calls.append(1))
    assert len(calls) >= 6


def test_tables_without_records_say_nothing():
    design = family_design([pair_unit(irregular(6))], (2, 3), (0, 1))
    for observed in (np.zeros(6), np.array([5.0, 0, 0, 0, 0, 0])):
        assert 0 <= dependence_p_value(observed, design) <= 1
        assert pair_information(observed, design, level=1e-6) == 0.0
    with pytest.raises(ValueError, match="expected a pair"):
        dependence_p_value(np.ones(2), [BINARY])
    with pytest.raises(ValueError, match="has shape"):
        pair_information(np.ones((2, 2)), [BINARY, TERNARY], level=0.05)


def test_one_person_with_two_rare_values_is_no_dependence():
    """Expected are a thousandth of a person: chi-square alone would be a thousand; rare categories are merged first."""
    table = np.array([[4998, 4998, 1], [1, 1, 1]])
    assert chi2_contingency(table, correction=False).pvalue < 1e-100
    assert independence_p_value(table) > 0.05

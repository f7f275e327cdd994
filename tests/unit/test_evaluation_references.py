"""Metrics of fidelity and utility against statsmodels, scikit-learn, closed forms and hand cases, each named where it is used."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from verticil.evaluate.measures import logistic
from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.fidelity import (
    conditional_divergence,
    conditional_kullback_leibler,
    distances,
    k_marginal,
)
from verticil.evaluate.measures.propensity import Null, logistic_propensity, tree_propensity
from verticil.evaluate.measures.regression import (
    Coefficients,
    agreement,
    coefficients,
    interval_overlap,
    interval_overlap_or_none,
)
from verticil.evaluate.measures.univariate import chi_square, kolmogorov_smirnov, univariate
from verticil.evaluate.measures.utility import ALL_CLASSIFIERS, Labelled, area_under_curve, macro_f1, utility

SIZES = (3, 4, 2, 5)


def table(seed: int, n: int = 900, *, shift: float = 0.0, follows: bool = False) -> CodedTable:
    """Four columns, the third depends on the first two; a fifth follows from the second where it is asked for."""
    generator = np.random.default_rng(seed)
    a = generator.choice(3, n, p=[0.5, 0.3, 0.2])
    b = np.minimum(generator.integers(0, 4, n) + (generator.random(n) < shift), 3)
    c = generator.random(n) < 0.15 + 0.25 * (a == 1) + 0.1 * b
    d = generator.choice(5, n, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    codes = tuple(np.asarray(column, dtype=np.uint8) for column in (a, b, c, d, *([b // 2] if follows else [])))
    sizes = (*SIZES, *([2] if follows else []))
    return CodedTable(names=tuple("abcde"[: len(codes)]), codes=codes, n_states=sizes, values=(None,) * len(codes))


def dummies(*tables: CodedTable) -> np.ndarray:
    """Indicators without the first of each column, of pandas."""
    frame = pd.concat([pd.DataFrame(dict(zip(t.names, t.codes, strict=True))) for t in tables])
    return sm.add_constant(
        pd.get_dummies(frame.astype("category"), drop_first=True).to_numpy(dtype=float), has_constant="add"
    )


def test_a_category_that_decides_leaves_the_other_probabilities_as_they_are() -> None:
    """Category 0 of `a` is of class 0 alone; without its records category 1 of `b` is of class 1 alone; of the others c tells."""
    generator = np.random.default_rng(4)
    a, b, c = (generator.integers(0, 3, 600) for _ in range(3))
    target = (generator.random(600) < 0.3 + 0.2 * c).astype(float)
    target[b == 1], target[a == 0] = 1.0, 0.0
    fit = logistic.fit(logistic.indicators([a, b, c], [3, 3, 3]), target)
    rest = (a != 0) & (b != 1)
    assert (fit.probabilities[a == 0] == 0).all()
    assert (fit.probabilities[(a != 0) & (b == 1)] == 1).all()
    assert fit.rank == 7
    frame = pd.DataFrame({"a": a, "b": b, "c": c})[rest].astype("category")
    design = sm.add_constant(pd.get_dummies(frame, drop_first=True).to_numpy(dtype=float))
    reference = sm.GLM(target[rest], design, family=sm.families.Binomial()).fit(tol=1e-14, maxiter=100)
    np.testing.assert_allclose(fit.probabilities[rest], reference.fittedvalues, atol=1e-9)
    every = logistic.fit(logistic.indicators([a], [3]), (a == 0).astype(float))
    assert (every.probabilities == (a == 0)).all()
    assert np.isnan(every.coefficients).all()


def test_a_regression_asks_for_a_category_that_the_others_do_not_decide() -> None:
    """The most common category of `t` is that of everybody with 0 in `a`; which of the two others people have only `b` tells."""
    generator = np.random.default_rng(6)
    a, b = generator.integers(0, 2, 800), generator.integers(0, 2, 800)
    t = np.where(a == 0, 0, 1 + (generator.random(800) < 0.2 + 0.5 * b))
    codes = tuple(np.asarray(column, dtype=np.uint8) for column in (a, b, t))
    real = CodedTable(names=("a", "b", "t"), codes=codes, n_states=(2, 2, 3), values=(None,) * 3)
    first, second = coefficients((real, real), 2)
    determined = {name for name, value in zip(first.names, first.values, strict=True) if not np.isnan(value)}
    assert {name for name, _ in determined} >= {"b"}
    np.testing.assert_array_equal(first.values, second.values)


def test_pmse_is_that_of_statsmodels_and_its_rank_counts_no_column_that_follows() -> None:
    real, other = table(1, follows=True), table(2, 600, shift=0.3, follows=True)
    made = np.repeat([0.0, 1.0], [real.n, other.n])
    found = logistic_propensity(real, other)
    plain = [
        dataclasses.replace(t, names=t.names[:4], codes=t.codes[:4], n_states=SIZES, values=(None,) * 4)
        for t in (real, other)
    ]
    reference = sm.GLM(made, dummies(*plain), family=sm.families.Binomial()).fit(tol=1e-14, maxiter=100)
    assert found.value == pytest.approx(np.mean((reference.fittedvalues - 0.4) ** 2), abs=1e-12)
    assert (found.rank, found.n, found.maximum) == (1 + 2 + 3 + 1 + 4, 1500, pytest.approx(0.24))
    # Snoke 2018, section 3: (k - 1)(1 - c)^2 c / N and sqrt(2 (k - 1)) (1 - c)^2 c / N.
    assert found.conditional.mean == pytest.approx(10 * 0.6**2 * 0.4 / 1500, rel=1e-12)
    assert found.conditional.deviation == pytest.approx(math.sqrt(20) * 0.6**2 * 0.4 / 1500, rel=1e-12)
    assert found.independent.mean == pytest.approx(10 * 0.24 / 1500, rel=1e-12)
    assert found.ratio(found.independent) == pytest.approx(found.value * 1500 / 2.4)
    assert found.standardize(Null(mean=0.0, deviation=found.value)) == pytest.approx(1.0)
    assert math.isnan(found.ratio(Null(mean=0.0, deviation=0.0)))


def test_two_samples_of_one_population_have_the_null_of_independent_samples() -> None:
    """100 pairs: the mean ratio has a standard error of sqrt(2 / 10) / sqrt(100) = .045; four of them: 1 in 15,000 false alarms.
    Snoke's null, which takes the real records as given, is refused by the same bound."""
    found = [logistic_propensity(table(2 * k, 400), table(2 * k + 1, 400)) for k in range(100)]
    assert np.mean([one.ratio(one.independent) for one in found]) == pytest.approx(1.0, abs=0.18)
    assert np.mean([one.ratio(one.conditional) for one in found]) == pytest.approx(2.0, abs=0.36)


def test_a_step_of_newtons_is_that_of_least_squares_and_none_where_nothing_is_told() -> None:
    """Of an information with a direction that says nothing; of one of smallest numbers the step is no number, and not taken."""
    roots = np.random.default_rng(3).normal(size=(6, 4))
    information, gradient = roots @ roots.T, roots @ np.arange(4.0)
    by_least_squares = np.linalg.lstsq(information, gradient, rcond=1e-14)[0]
    np.testing.assert_allclose(logistic._newton_step(information, gradient), by_least_squares, rtol=1e-9)
    assert not logistic._newton_step(np.zeros((3, 3)), np.ones(3)).any()
    assert not np.isfinite(logistic._newton_step(5e-324 * np.eye(3), np.ones(3))).all()


def test_records_that_are_told_apart_have_the_largest_pmse() -> None:
    real = table(1)
    other = dataclasses.replace(real, codes=(*real.codes[:3], np.full(real.n, 4, dtype=np.uint8)))
    real = dataclasses.replace(real, codes=(*real.codes[:3], np.minimum(real.codes[3], 3)))
    found = logistic_propensity(real, other)
    assert found.value == pytest.approx(found.maximum, abs=1e-9)
    tree, _ = tree_propensity(real, other, generator=np.random.default_rng(1), permutations=0)
    assert tree.value == pytest.approx(tree.maximum)
    assert logistic_propensity(real, real).value == pytest.approx(0.0, abs=1e-20)


def test_a_tree_finds_what_only_two_columns_together_show_and_permutations_say_what_chance_does() -> None:
    real = table(1)
    tied = (real.codes[0] == 0).astype(np.uint8)
    crossed = np.random.default_rng(1).permutation(tied)
    real = dataclasses.replace(real, codes=(*real.codes[:2], tied, real.codes[3]))
    other = dataclasses.replace(real, codes=(*real.codes[:2], crossed, real.codes[3]))
    found, null = tree_propensity(real, other, generator=np.random.default_rng(3), permutations=50)
    same, chance = tree_propensity(table(1), table(7), generator=np.random.default_rng(3), permutations=50)
    logistic = logistic_propensity(real, other)
    assert logistic.value < 1e-20  # the margins are the same
    assert found.standardize(null) > 5
    assert abs(same.standardize(chance)) < 4
    assert null.error == pytest.approx(null.deviation / math.sqrt(50))
    assert found.rank == 0
    assert math.isnan(found.independent.mean)
    again, _ = tree_propensity(real, other, generator=np.random.default_rng(3), permutations=0)
    assert again == found


def test_tests_of_single_columns_are_those_of_two_definitions() -> None:
    """Chi square by its sum, and Kolmogorov-Smirnov by the distribution functions, each written out."""
    counts = np.array([30, 50, 0, 20]), np.array([10, 70, 0, 40])
    expected = [np.outer([100, 120], counts[0] + counts[1]) / 220]
    by_hand = sum((o - e) ** 2 / e for o, e in zip(np.ravel(counts), np.ravel(expected), strict=True) if e)
    assert chi_square(*counts).statistic == pytest.approx(by_hand, rel=1e-12)
    assert chi_square(*counts).degrees_of_freedom == 2
    assert chi_square(np.array([30, 10]), np.array([20, 20])).statistic == pytest.approx(2 * 5**2 / 25 + 2 * 5**2 / 15)
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=300), generator.normal(0.3, 1, 200)
    points = np.concatenate([a, b])
    furthest = max(abs((a <= x).mean() - (b <= x).mean()) for x in points)
    found = kolmogorov_smirnov(np.append(a, np.nan), b)
    assert found.statistic == pytest.approx(furthest, rel=1e-12)
    assert found.p_value < 0.05
    for nothing in (kolmogorov_smirnov(np.array([np.nan]), b), chi_square(np.array([5, 0]), np.array([3, 0]))):
        assert math.isnan(nothing.statistic)
        assert math.isnan(nothing.p_value)
    real, other = table(1), table(2, shift=0.5)
    real = dataclasses.replace(real, values=(real.codes[0] * 1.5, None, None, None))
    other = dataclasses.replace(other, values=(other.codes[0] * 1.5, None, None, None))
    columns = univariate(real, other)
    assert [column.kind for column in columns] == ["kolmogorov-smirnov", *["chi square"] * 3]
    assert columns[1].distance == pytest.approx(distances(real.codes, other.codes, SIZES, ways=1).worst)
    assert columns[1].test.p_value < 1e-6 < columns[3].test.p_value


def test_p_values_of_samples_of_one_population_are_a_half_on_average() -> None:
    """120 pairs of three columns of categories: a standard error of sqrt(1/12 / 360) = .0152; four of them."""
    values = [
        c.test.p_value
        for k in range(120)
        for c in univariate(table(2 * k, 300), table(2 * k + 1, 300))
        if c.name != "c"
    ]
    assert np.mean(values) == pytest.approx(0.5, abs=0.061)


def test_coefficients_are_those_of_statsmodels() -> None:
    real, other = table(1, follows=True), table(2, 700, shift=0.2, follows=True)
    found = coefficients((real, other), 2, least=1)
    assert [name for name, _ in found[0].names] == ["", "a", "a", "b", "b", "b", "d", "d", "d", "d"]  # e follows from b
    for of, mine in zip((real, other), found, strict=True):
        frame = pd.DataFrame(dict(zip(of.names, of.codes, strict=True)))
        design = sm.add_constant(np.column_stack([frame[name] == code for name, code in mine.names[1:]]).astype(float))
        reference = sm.Logit((frame["c"] == 0).astype(float), design).fit(disp=0, method="newton", tol=1e-13)
        assert mine.values == pytest.approx(reference.params.to_numpy(), abs=1e-9)
        assert mine.errors == pytest.approx(reference.bse.to_numpy(), abs=1e-9)
        low, high = mine.interval(0.95)
        assert np.column_stack([low, high]) == pytest.approx(reference.conf_int().to_numpy(), abs=1e-9)
    both = agreement(*found)
    assert both.difference == pytest.approx(np.abs(found[1].values - found[0].values) / found[0].errors)
    same = agreement(found[0], found[0])
    assert same.overlap == pytest.approx(1.0)
    assert same.overlap_or_none == pytest.approx(1.0)
    assert same.difference == pytest.approx(0.0)


def test_a_category_with_one_answer_has_no_coefficient_and_leaves_the_others_as_they_are() -> None:
    real = table(1)
    separated = real.codes[3] == 4
    c = np.where(separated, 1, real.codes[2]).astype(np.uint8)
    other = dataclasses.replace(real, codes=(*real.codes[:2], c, real.codes[3]))
    found = coefficients((real, other), 2, least=1)[1]
    without = other.rows(np.flatnonzero(~separated))
    reference = coefficients((real, without), 2, least=1)[1]
    assert math.isnan(found.values[found.names.index(("d", 4))])
    assert np.count_nonzero(np.isnan(found.values)) == 1
    known = ~np.isnan(found.values)
    assert found.values[known] == pytest.approx(reference.values[known], abs=1e-8)
    assert found.errors[known] == pytest.approx(reference.errors[known], abs=1e-8)
    both = agreement(coefficients((real, other), 2, least=1)[0], found)
    assert (both.overlap[~known].tolist(), both.overlap_or_none[~known].tolist()) == (
        [0.5],
        [0.0],
    )  # of a growing interval
    assert np.isnan(both.difference[~known]).all()
    grown = Coefficients(names=(("", 0),), values=np.array([0.0]), errors=np.array([1e9]))
    once = Coefficients(names=(("", 0),), values=np.array([0.0]), errors=np.array([1.0]))
    assert agreement(once, grown).overlap == pytest.approx(0.5)
    assert agreement(once, grown).overlap_or_none == pytest.approx(0.0, abs=1e-8)
    single = dataclasses.replace(real, codes=(*real.codes[:2], np.zeros(real.n, dtype=np.uint8), real.codes[3]))
    assert np.isnan(coefficients((real, single), 2)[1].values).all()


def test_rare_categories_share_a_coefficient_or_have_none() -> None:
    real = table(1)  # d: 47 records of code 4, c: 2 categories
    assert [code for name, code in coefficients((real, real), 2, least=60)[0].names if name == "d"] == [1, 2, 3]
    assert [code for name, code in coefficients((real, real), 2, least=100)[0].names if name == "d"] == [1, 2, 3]
    turned = dataclasses.replace(real, codes=(*real.codes[:3], (4 - real.codes[3]).astype(np.uint8)))
    compared = [code for name, code in coefficients((turned, turned), 2, least=1)[0].names if name == "d"]
    assert compared == [0, 1, 2, 3]  # with the most common one


def test_interval_overlaps_by_hand() -> None:
    """(0, 4) and (2, 3): (1/4 + 1)/2 and 2/5; equal widths: the same until they part; an end that is not known."""
    ends = lambda *of: (np.array([low for low, _ in of]), np.array([high for _, high in of]))  # noqa: E731
    first, second = (
        ends((0.0, 4.0), (0.0, 2.0), (0.0, 1.0), (math.nan, 1.0)),
        ends((2.0, 3.0), (1.0, 3.0), (2.0, 3.0), (0.0, 1.0)),
    )
    assert interval_overlap(first, second)[:3].tolist() == [0.625, 0.5, -1.0]
    assert interval_overlap_or_none(first, second)[:3].tolist() == [0.4, 0.5, 0.0]
    assert math.isnan(interval_overlap(first, second)[3])
    assert math.isnan(interval_overlap_or_none(first, second)[3])
    point = Coefficients(names=(("", 0),), values=np.array([1.0]), errors=np.array([0.0]))
    assert math.isnan(agreement(point, point).overlap[0])


def test_conditional_divergence_and_k_marginal_by_hand() -> None:
    real = np.array([[3, 1], [2, 2], [0, 0]])
    other = np.array([[1, 1], [1, 3], [4, 0]])
    expected = 0.5 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5)) + 0.5 * (0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert conditional_kullback_leibler(real, other, smoothing=0.0) == pytest.approx(expected, rel=1e-12)
    assert conditional_kullback_leibler(real, real, smoothing=0.0) == pytest.approx(0.0, abs=1e-15)
    lacking = np.array([[3, 0], [2, 2], [0, 0]])
    assert conditional_kullback_leibler(real, lacking, smoothing=0.0) == math.inf
    smoothed = 0.5 * (
        0.75 * math.log(0.75 * 8 / 7) + 0.25 * math.log(0.25 * 8)
    )  # (3.5, .5) / 4; the second row is equal
    assert conditional_kullback_leibler(real, lacking) == pytest.approx(smoothed, rel=1e-12)
    assert math.isnan(conditional_kullback_leibler(np.zeros((2, 2)), other))
    # Of several estimates at once, by the same sum; rows count as often as people are in them.
    counts, theta = np.array([[6, 2], [1, 1]]), np.array([[[0.5, 0.5], [0.5, 0.5]], [[0.75, 0.25], [0.5, 0.5]]])
    first = 0.8 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    assert conditional_divergence(counts, theta) == pytest.approx([first, 0.0], abs=1e-15)
    a, b = table(1), table(2, shift=0.4)
    # SDNist: (2 - mean over pairs of the sum of absolute differences of densities) * 500.
    frames = [pd.DataFrame(dict(zip(t.names, t.codes, strict=True))) for t in (a, b)]
    pairs = [(x, y) for i, x in enumerate(a.names) for y in a.names[:i]]
    losses = [
        frames[0]
        .value_counts([*pair], normalize=True)
        .sub(frames[1].value_counts([*pair], normalize=True), fill_value=0)
        .abs()
        .sum()
        for pair in pairs
    ]
    assert k_marginal(distances(a.codes, b.codes, SIZES, ways=2)) == pytest.approx(
        (2 - np.mean(losses)) * 500, abs=1e-9
    )


def test_scores_of_classifiers_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(5)
    features, target = generator.normal(size=(700, 4)), generator.integers(0, 3, 700)
    features[:, 0] += target
    training = Labelled(features=features[:400], target=target[:400])
    tested = Labelled(features=features[400:], target=target[400:])
    (found,) = utility(training, [tested], seed=1, classifiers=ALL_CLASSIFIERS)
    scaler = StandardScaler().fit(training.features)
    a, b = scaler.transform(training.features), scaler.transform(tested.features)
    tree = DecisionTreeClassifier(random_state=1).fit(a, training.target)
    network = MLPClassifier(random_state=1, early_stopping=True).fit(a, training.target)
    vectors = SVC().fit(a, training.target)
    for name, model in (("DT", tree), ("NN", network), ("SV", vectors)):
        predicted = model.predict(b)
        assert found.accuracy[name] == (predicted == tested.target).mean()
        assert found.f1[name] == pytest.approx(f1_score(tested.target, predicted, average="macro"), abs=1e-12)
    for name, model in (("DT", tree), ("NN", network)):
        reference = roc_auc_score(tested.target, model.predict_proba(b), multi_class="ovr", average="macro")
        assert found.auc[name] == pytest.approx(reference, abs=1e-12)
    assert min(found.auc.values()) > 0.5
    two = [dataclasses.replace(t, target=(t.target == 1).astype(np.int64)) for t in (training, tested)]
    (of_two,) = utility(two[0], [two[1]], seed=1, classifiers=["SV", "LR"])
    plain = SVC().fit(a, two[0].target)
    assert of_two.auc["SV"] == pytest.approx(roc_auc_score(two[1].target, plain.decision_function(b)), abs=1e-12)


def test_a_class_that_training_lacks_and_a_table_of_one_class_have_scores_that_say_so() -> None:
    scores = np.column_stack([np.linspace(0, 1, 6), np.linspace(1, 0, 6), np.full(6, -np.inf)])
    assert math.isnan(area_under_curve(np.zeros(6, dtype=np.int64), scores))
    assert area_under_curve(np.array([0, 1, 2, 0, 1, 2]), scores[:, [2, 2, 2]]) == 0.5
    assert macro_f1(np.array([[0, 2], [0, 2]])) == pytest.approx((0 + 2 / 3) / 2)
    assert macro_f1(np.array([[3, 1], [0, 0]])) == pytest.approx(6 / 7)  # a class that nobody has is none
    one = Labelled(features=np.zeros((5, 1)), target=np.ones(5, dtype=np.int64))
    (found,) = utility(one, [Labelled(features=np.zeros((4, 1)), target=np.array([0, 1, 1, 0]))], seed=1)
    assert set(found.auc.values()) == {0.5}

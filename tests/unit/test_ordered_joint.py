"""The order of numbers under noise: smooth steps, two resolutions, and places inside bins."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from support.noisy_tables import redrawn
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import holdout_weight as guard
from verticil.shared.numerics.joint.coarse import runs_of, summed
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import estimate
from verticil.shared.numerics.joint.noise import noised, noised_runs
from verticil.shared.numerics.joint.noisy_tables import NoisyTables, spread_over, sum_runs
from verticil.shared.numerics.joint.smooth_steps import basis_of
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.study.reading import read_study_text
from verticil.shared.synthesis.linked_places import places_in_bins, smooth_shape, values_at
from verticil.shared.synthesis.synthesis import decode_of_study

K, N = 16, 4_000
ORDERS = (tuple(range(K)), tuple(range(K)), ())
PAIRS = ((0, 1), (0, 2), (1, 2))
RANDOMIZED = f"""
schema = 1
id = "randomized"
title = "Two numbers"
purpose = "a test"
model = "central"
expires = 2099-01-01
party = [{{ name = "clinic" }}, {{ name = "insurer" }}]
linkage = {{ minimum_common_records = 10 }}
randomization_default = {{ scheme = "symmetric", epsilon = 1.0 }}
[[variable]]
party = "clinic"
name = "first"
type = "number"
bins = {list(range(K + 1))}
[[variable]]
party = "insurer"
name = "second"
type = "number"
bins = {list(range(K + 1))}
"""


def people(seed: int = 1) -> list[np.ndarray]:
    """Two numbers that hang together, in bins, and a column of three categories."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=N)
    second = 0.8 * first + 0.6 * rng.normal(size=N)
    cut = np.linspace(-2, 2, K - 1)
    third = (first + rng.normal(size=N) > 0).astype(np.uint16) + (rng.random(N) < 0.1)
    return [
        np.searchsorted(cut, first).astype(np.uint16),
        np.searchsorted(cut, second).astype(np.uint16),
        third.astype(np.uint16),
    ]


def exact(columns: list[np.ndarray]) -> NoisyTables:
    units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(k))) for v, k in enumerate((K, K, 3))]
    return dataclasses.replace(from_columns(columns, units, (K, K, 3), parts=1), orders=ORDERS)


def resolved(sigma: float, coarse: float, seed: int) -> NoisyTables:
    """Tables of both resolutions."""
    counts, key = exact(people()), bytes([seed]) * 32
    fine = noised(counts, sigma, key)
    return dataclasses.replace(fine, coarse=noised_runs(summed(counts, fine, PAIRS), coarse, key))


def distance(tables: NoisyTables) -> float:
    model, truth = estimate(tables, seed=1).model, exact(people())
    return float(np.mean([np.abs(model.shares(t.units) - t.counts / N).sum() / 2 for t in truth.tables]))


def test_a_run_has_about_a_fifth_of_the_people_and_what_is_in_no_order_stands_alone() -> None:
    shares = np.array([0.02] * 10 + [0.3, 0.05, 0.05, 0.1, 0.3])
    runs = runs_of(shares, range(14))
    sums = np.bincount(runs, weights=shares)
    assert runs[14] != runs[13]
    assert (np.bincount(runs)[np.bincount(runs) > 1] > 1).all()
    assert sums[:-1].max() <= 0.3 + 1e-9
    assert list(runs[:14]) == sorted(runs[:14])


def test_polynomials_are_orthonormal_complete_and_begin_with_a_line() -> None:
    shares = np.random.default_rng(1).dirichlet(np.ones(30))
    basis = basis_of(shares).astype(float)
    degree = np.arange(30)
    scale = np.where(degree > 1, 1 / (1 + ((degree - 1) / 2) ** 2), 1.0)
    weight = (shares + 1 / 30) / 2
    np.testing.assert_allclose((basis / scale).T @ np.diag(weight) @ (basis / scale), np.eye(30), atol=1e-4)
    assert np.ptp(np.diff(basis[:, 1])) == pytest.approx(0, abs=1e-5)
    assert np.linalg.matrix_rank(basis) == 30


def test_fine_counts_with_sums_are_the_least_squares_of_both() -> None:
    rng = np.random.default_rng(2)
    counts, runs, v, big = rng.normal(50, 9, (4, 3)), [np.array([0, 0, 1, 1]), np.array([0, 0, 1])], 81.0, 400.0
    sums = rng.normal(150, 20, (2, 2))
    found, left = spread_over(counts, v, runs, sums, big)
    cells, design = counts.ravel(), np.zeros((4, 12))
    for cell in range(12):
        design[runs[0][cell // 3] * 2 + runs[1][cell % 3], cell] = 1
    precision = np.eye(12) / v + design.T @ design / big
    wanted = np.linalg.solve(precision, cells / v + design.T @ sums.ravel() / big)
    np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-9)
    np.testing.assert_allclose(left.ravel(), np.diag(np.linalg.inv(precision)), rtol=1e-9)
    assert sum_runs(sum_runs(counts, runs[0], 0), runs[1], 1).sum() == pytest.approx(counts.sum())


@pytest.mark.whole
def test_smooth_steps_and_two_resolutions_bring_tables_nearer() -> None:
    """Five seeds. The distance in parts of that without the order was .73 with smooth steps at noise 25 (standard error .03), and
    .63 with both at noise 15 (.03): the bounds are at least four standard errors away."""
    for sigma, has_coarse, bound in ((25.0, False, 0.88), (15.0, True, 0.78)):
        ratios = []
        for seed in range(1, 6):
            one = noised(exact(people()), sigma, bytes([seed]) * 32)
            own = resolved(sigma / 0.8**0.5, sigma / 0.2**0.5, seed) if has_coarse else one
            ratios.append(distance(own) / distance(dataclasses.replace(one, orders=())))
        assert np.mean(ratios) < bound


def test_smooth_steps_bring_randomized_columns_nearer() -> None:
    """Columns that are randomized one by one with epsilon 3: .75 times the distance without the order (five seeds, each .02)."""
    sizes, ratios = (K, K, 3), []
    channels = [quantize(symmetric(size, epsilon=3.0)) for size in sizes]
    units = [ColumnUnit(variables=(v,), domain=None, channel=channel) for v, channel in enumerate(channels)]
    for seed in (1, 2):
        generator = np.random.default_rng(seed)
        drawn = [
            (generator.random((N, 1)) >= np.cumsum(channel.probabilities[codes], axis=1)).sum(axis=1).astype(np.uint16)
            for channel, codes in zip(channels, people(), strict=True)
        ]
        counts = from_columns(drawn, units, sizes)
        ratios.append(distance(dataclasses.replace(counts, orders=ORDERS)) / distance(counts))
    assert np.mean(ratios) < 0.88


def test_coarse_tables_say_more_of_single_columns_and_all_parts_of_them_go_along() -> None:
    tables = resolved(67.0, 134.0, 3)
    assert tables.coarse is not None
    alone = dataclasses.replace(tables, coarse=None)
    assert tables.one_way(2)[1] < alone.one_way(2)[1]
    combined = tables.combined()
    assert combined.coarse is None
    np.testing.assert_array_equal(combined.one_way(0)[0], tables.one_way(0)[0])
    fitted, held = next(guard.parts(tables, [1]))
    assert fitted.coarse is not None
    assert held.coarse is None
    again = redrawn(tables, estimate(tables, seed=1).model, np.random.default_rng(1))
    assert again.coarse is not None
    assert [t.sigma for t in again.coarse.tables] == [t.sigma for t in tables.coarse.tables]
    empty = tables.without(lambda chosen: np.zeros([tables.n_states[v] for v in chosen], np.bool_))
    assert empty.coarse is not None
    assert all((table.counts == 0).all() for table in empty.coarse.tables)
    with pytest.raises(ValueError, match="another shape"):
        dataclasses.replace(
            tables, coarse=dataclasses.replace(tables.coarse, runs=(np.arange(K),) * 2 + (np.arange(3),))
        )


def test_the_noise_of_runs_is_another_than_that_of_the_tables() -> None:
    counts, key = exact(people()), bytes(32)
    fine = noised(counts, 40.0, key)
    runs = dataclasses.replace(
        summed(counts, fine, PAIRS), runs=(np.arange(K), np.arange(K), np.arange(3)), tables=counts.tables
    )
    coarse = noised_runs(runs, 40.0, key)
    for own, other, exactly in zip(fine.tables, coarse.tables, counts.tables, strict=True):
        assert (
            abs(np.corrcoef((own.counts - exactly.counts).ravel(), (other.counts - exactly.counts).ravel())[0, 1]) < 0.5
        )


def variable(name: str, **more: object) -> Variable:
    labels = tuple(f"bin {n}" for n in range(K)) + (("none",) if "missing" in more else ())
    edges = tuple(float(edge) for edge in range(K + 1))
    return Variable(name=name, owner="o", labels=labels, bins=edges, **more)  # type: ignore[arg-type]


def test_places_inside_bins_go_together_as_the_numbers_do_and_leave_each_column_as_it_was() -> None:
    codes = people()
    schema = Schema(
        variables=(
            variable("first"),
            variable("second", missing=Missing(category="none", spellings=("",))),
            Variable(name="third", owner="o", labels=("a", "b", "c")),
        )
    )
    codes[1][:50] = K
    places = places_in_bins(schema, codes, np.random.default_rng(1), linked=True)
    even = places_in_bins(schema, codes, np.random.default_rng(1), linked=False)
    assert set(places) == {0, 1}
    middle = (codes[0] == 8) & (codes[1] < K)
    assert np.corrcoef(places[0][middle], codes[1][middle])[0, 1] > 0.1
    assert abs(np.corrcoef(even[0][middle], codes[1][middle])[0, 1]) < 0.1
    for code in range(2, 14):
        inside = np.sort(places[0][codes[0] == code])
        np.testing.assert_allclose(inside, (np.arange(len(inside)) + 0.5) / len(inside), atol=1.0 / len(inside))
    shape = smooth_shape(schema[0], codes[0])
    values = values_at(schema[0], codes[0], places[0], shape)
    assert (np.floor(values) == codes[0]).all()


@pytest.mark.parametrize("within_bins", ["linked", None])
def test_numbers_of_randomized_columns_lie_inside_bins_as_the_study_says(within_bins: str | None) -> None:
    study = read_study_text(RANDOMIZED, Path())
    assert not any(unit.transition.is_identity for unit in study.units)
    asked = dataclasses.replace(study, release=dataclasses.replace(study.release, within_bins=within_bins))
    codes = people()[:2]
    table = decode_of_study(asked, codes, np.random.default_rng(1))
    middle = (codes[0] == 8) & (codes[1] == 8)
    places = table[middle].astype(float) % 1
    assert (abs(places.corr().iloc[0, 1]) > 0.1) == (within_bins == "linked")


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_records_have_places_too(n: int) -> None:
    schema = Schema(variables=(variable("first"), variable("second")))
    codes = [np.full(n, 3, np.uint16), np.full(n, 5, np.uint16)]
    places = places_in_bins(schema, codes, np.random.default_rng(1), linked=True)
    assert all(((place >= 0) & (place < 1)).all() and len(place) == n for place in places.values())


def test_codes_and_categories_have_no_order_and_an_ordered_column_can_do_without() -> None:
    assert variable("age").order == tuple(range(K))
    assert dataclasses.replace(variable("age"), ordered=False).order == ()
    stage = Variable(
        name="s", owner="o", labels=("I", "II", "?"), kind="ordered", missing=Missing(category="?", spellings=("",))
    )
    assert stage.order == (0, 1)
    assert Variable(name="icd", owner="o", labels=("A", "B"), kind="category").order == ()

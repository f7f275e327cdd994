"""Bins that are measured: the grid is public, the bins follow from noisy counts, and a forged one is found."""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import verticil.api as vt
from verticil.curator.profiles import measure_profiles
from verticil.curator.study import owners_study
from verticil.curator.synthesis import Synthesized, synthesize
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.toml_table import Table
from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma, discrete_sigmas
from verticil.shared.numerics.estimation.profiles import BINS, Grid, grid_of, parts_of, profile_of
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import PUBLIC
from verticil.shared.privacy.events import DiscreteGaussianCounts, from_json, to_json
from verticil.shared.privacy.layered import LayeredCounts, layered_counts
from verticil.shared.release.verification import verify_release
from verticil.shared.study import canonical
from verticil.shared.study.codebook import variable_from
from verticil.shared.study.number_words import NumberWords, number_words
from verticil.shared.study.profiled_columns import grid_study, noisy_profile
from verticil.shared.study.profiles import grid_of_variable, profile_of_variable, variable_with, with_profiles
from verticil.shared.study.reading import read_study, read_study_text
from verticil.shared.study.tables import coarse_pairs, set_sigmas, set_sizes
from verticil.shared.study.typed_variables import even_bins, value_labels

STUDY = """
schema = 1
id = "alone"
title = "Alone"
purpose = "a test"
expires = 2030-01-01
[[party]]
name = "owner"
[randomization_default]
scheme = "symmetric"
epsilon = 1
[[variable]]
party = "owner"
name = "age"
type = "integer"
bins = "private"
bounds = [0, 120]
[[variable]]
party = "owner"
name = "cost"
type = "number"
decimals = 2
bins = "private"
bounds = [0, 1000000]
missing = { category = "unknown", spellings = [""] }
[[variable]]
party = "owner"
name = "ward"
type = "category"
categories = ["a", "b", "c"]
"""


def people(n: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(50, 18, n), 0, 99).astype(int)
    cost = np.round(np.exp(rng.normal(6 + age / 60, 1, n)), 2)
    cost[rng.random(n) < 0.2] = 0.0
    ward = np.where(age > 55, "a", np.where(cost > 500, "b", "c"))
    return pd.DataFrame({"age": age, "cost": cost, "ward": ward})


def counts_of(grid: Grid, values: np.ndarray, sigma: float, seed: int) -> list[int]:
    """The noisy histograms of some values."""
    rng = np.random.default_rng(seed)
    rest = values[~np.isin(values, grid.candidates)]
    cells = len(grid.edges) - 1
    places = np.searchsorted(grid.edges, rest, side="right") - 1
    between = np.bincount(places[(places >= 0) & (places < cells)], minlength=cells)
    outside = [int((rest < grid.edges[0]).sum()), int((rest >= grid.edges[-1]).sum())]
    exact = np.concatenate([between, outside, [int((values == point).sum()) for point in grid.candidates]])
    counts = (exact + np.rint(rng.normal(0, sigma, len(exact)))).astype(int).tolist()
    if len(grid.fine) > len(grid.edges):
        edges = parts_of(grid, counts)
        inside = rest[(rest >= edges[0]) & (rest < edges[-1])]
        exact = np.bincount(np.searchsorted(edges, inside, side="right") - 1, minlength=len(edges) - 1)
        counts += (exact + np.rint(rng.normal(0, sigma, len(exact)))).astype(int).tolist()
    return counts


@pytest.mark.parametrize(
    ("name", "bounds", "step"),
    [
        ("ages", (0.0, 120.0), 1.0),
        ("kelvin", (0.0, 1000.0), 0.01),
        ("costs", (0.0, 1e7), 0.01),
        ("both signs", (-100.0, 100.0), 0.1),
    ],
)
def test_bins_have_about_as_many_people_each_and_the_ends_are_those_of_the_people(
    name: str, bounds: tuple[float, float], step: float
) -> None:
    rng = np.random.default_rng(3)
    values = {
        "ages": np.clip(rng.normal(50, 15, 20_000), 0, 99).astype(int).astype(float),
        "kelvin": np.round(rng.normal(290, 8, 20_000), 2),
        "costs": np.round(np.exp(rng.normal(6, 1.5, 20_000)), 2),
        "both signs": np.round(rng.normal(0, 3, 20_000), 1),
    }[name]
    grid = grid_of(bounds, step=step, codes=True)
    found = profile_of(grid, counts_of(grid, values, 20.0, 1), 20.0)
    shares = np.histogram(np.clip(values, found.bins[0], found.bins[-1]), bins=found.bins)[0] / len(values)
    assert BINS - 4 <= len(shares) <= BINS + 6
    assert shares.max() < 2.5 / BINS
    assert np.quantile(values, 0.002) > found.bins[0] - 0.2 * np.ptp(values)
    assert np.quantile(values, 0.01) < found.bins[1]
    below = np.searchsorted(np.sort(values), found.edges) / len(values)
    assert np.abs(below - np.append(0, np.cumsum(found.shares))).max() < 0.03


def test_zero_and_a_usual_code_become_points_and_a_declared_one_is_one_whatever_is_counted() -> None:
    values = np.concatenate([np.zeros(2_000), np.full(900, 999.0), np.random.default_rng(1).uniform(10, 500, 7_000)])
    grid = grid_of((0.0, 5_000.0), step=0.1, codes=True, points=[77.0])
    assert profile_of(grid, counts_of(grid, values, 15.0, 2), 15.0).points == (0.0, 77.0, 999.0)
    ages = grid_of((0.0, 120.0), step=1.0, codes=True)
    assert 0.0 not in ages.candidates  # it has a cell of its own
    assert 999.0 in ages.candidates


def test_noise_on_people_who_lie_evenly_makes_no_hills() -> None:
    """20,000 people in 200 cells, a noise of 60: 10 draws were .007 from even, and .18 where runs were divided as counted."""
    values = np.floor(np.random.default_rng(1).uniform(0, 1_000, 20_000))
    grid = grid_of((0.0, 1_000.0), step=1.0, codes=False)
    away = []
    for seed in range(10):
        found = profile_of(grid, counts_of(grid, values, 60.0, seed), 60.0)
        away.append(np.abs(found.shares - np.diff(found.edges) / 1_000).sum() / 2)
    assert np.mean(away) < 0.05


def test_people_who_are_thinly_spread_are_not_cut_off() -> None:
    """Even cells of 24 people under a noise of 50: the mean distance of 20 draws was .13 (standard error .02); without a look at
    all the cells behind an end some draws had one cell."""
    values = np.floor(np.random.default_rng(1).uniform(-12_419, 13_140, 3_876))
    grid = grid_of((-12_419.0, 13_514.0), step=1.0, codes=False)
    missed = []
    for seed in range(20):
        found = profile_of(grid, counts_of(grid, values, 50.0, seed), 50.0)
        below = np.searchsorted(np.sort(values), found.edges[1:-1]) / len(values)
        missed.append(np.abs(below - np.cumsum(found.shares)[:-1]).max())
    assert np.mean(missed) < 0.25


def test_an_end_stays_at_the_bound_where_noise_could_hide_people_behind_it() -> None:
    """3,000 ages under a noise of 90 a cell: 20 draws cut off .37 of them in the mean without this, and nobody with it."""
    values = np.clip(np.random.default_rng(1).normal(50, 18, 3_000), 0, 99).astype(int).astype(float)
    grid = grid_of((0.0, 120.0), step=1.0, codes=True)
    lost = []
    for seed in range(20):
        bins = profile_of(grid, counts_of(grid, values, 90.0, seed), 90.0).bins
        lost.append(((values < bins[0]) | (values >= bins[-1])).mean() if bins else 0.0)
    assert np.max(lost) < 0.03


def test_cells_without_people_get_no_part_of_the_noise_around_them() -> None:
    """7,600 weights in a tenth of 1,000 cells under a noise of 115: 20 draws had .23 of the people where nobody is when each cell
    was smoothed with its neighbours alone and negative ones became 0; .09 in runs that are divided."""
    values = np.floor(np.random.default_rng(1).gamma(4, 25, 7_600))
    grid = grid_of((0.0, 1_000.0), step=1.0, codes=False)
    nobody = []
    for seed in range(20):
        found = profile_of(grid, counts_of(grid, values, 115.0, seed), 115.0)
        nobody.append(found.shares[found.edges[:-1] >= np.quantile(values, 0.999)].sum())
    assert np.mean(nobody) < 0.15


def test_noise_that_hides_a_wide_column_leaves_bins_of_its_grids_scale() -> None:
    cost = owners_study(read_study_text(STUDY, Path(), by_owner=True), method="joint", epsilon=1).schema[1]
    grid = grid_of_variable(cost)
    noise = np.rint(np.random.default_rng(2).normal(0, 5.0, grid.size)).astype(int).tolist()
    noise += [0] * (len(parts_of(grid, noise)) - 1)
    found = variable_with(dataclasses.replace(cost, profile=tuple(noise)), profile_of(grid, noise, 1_000.0))
    widths = np.diff(found.bins or ())
    assert found.bins == grid.even_bins
    assert len(widths) == BINS
    assert widths[-1] > 50 * widths[0]


def test_values_outside_the_bounds_are_counted_and_go_into_the_outer_bins() -> None:
    values = np.concatenate([np.random.default_rng(1).uniform(0, 100, 6_000), np.full(3_000, 250.0)])
    grid = grid_of((0.0, 100.0), step=0.1, codes=False)
    found = profile_of(grid, counts_of(grid, values, 10.0, 1), 10.0)
    assert found.above == pytest.approx(1 / 3, abs=0.02)
    assert found.shares[-1] > 0.3


@pytest.mark.parametrize(
    "values", [np.full(5_000, 7.0), np.concatenate([np.zeros(9_900), np.full(100, 3.0)]), np.empty(0)]
)
def test_a_column_of_one_value_or_of_nobody_has_bins_or_says_that_it_has_none(values: np.ndarray) -> None:
    grid = grid_of((0.0, 50.0), step=1.0, codes=True)
    found = profile_of(grid, counts_of(grid, values, 20.0, 4), 20.0)
    assert found.shares.sum() == pytest.approx(1.0)
    assert bool(found.bins) or not len(values)


def test_several_sets_of_tables_cost_what_is_asked_for_and_a_profile_that_is_not_charged_would_cost_more() -> None:
    study = owners_study(read_study_text(STUDY, Path(), by_owner=True), method="joint", epsilon=1, delta=1e-9)
    sizes, sigmas = set_sizes(study), set_sigmas(study)
    assert (sizes.pairs, sizes.coarse, sizes.profiles) == (3, 3, 3)  # of ages one histogram, of costs two
    event = layered_counts(study)
    assert cost_of(event).epsilon == 1.0
    assert from_json(to_json(event)) == event
    without = dataclasses.replace(event, profile_sigma=None, profiles=0)
    assert (
        cost_of(dataclasses.replace(without, epsilon=0.5)).epsilon < 1.0 - 0.01
    )  # what is left out is worth something
    stronger = dataclasses.replace(event, sigma=event.sigma * 0.95)
    assert cost_of(stronger).epsilon > 1.0
    assert event.profile_sigma is not None
    assert cost_of(dataclasses.replace(event, profile_sigma=event.profile_sigma / 2)).epsilon > 1.02
    both = dataclasses.replace(without, sigma=9.0, coarse_sigma=9.0, epsilon=0.01)
    assert cost_of(both) == cost_of(
        DiscreteGaussianCounts(sigma=9.0, tables=6, delta=1e-9, sensitivity=None, reader=PUBLIC.name)
    )
    assert sigmas.pairs is not None
    assert sigmas.pairs > discrete_sigma(1.0, 1e-9, 3)
    assert discrete_sigmas(1.0, 1e-9, ((3, 1.0),))[0] == pytest.approx(discrete_sigma(1.0, 1e-9, 3), rel=2e-3)


@pytest.mark.parametrize(
    "change", [{"tables": 0}, {"profiles": 0}, {"coarse_sigma": None}, {"sigma": 0.0}, {"delta": 1.0}]
)
def test_an_event_whose_parts_do_not_belong_together_is_refused(change: dict[str, float]) -> None:
    parts = {"coarse_sigma": 9.0, "coarse_tables": 2, "profile_sigma": 8.0, "profiles": 1}
    good = LayeredCounts(sigma=5.0, tables=3, delta=1e-9, epsilon=1.0, **parts)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"noise|epsilon"):
        dataclasses.replace(good, **change)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Synthesized, Path]:
    """A table, what was made of it, and the folder of its release."""
    folder = tmp_path_factory.mktemp("released")
    frame = people(5_000)
    frame.loc[:99, "cost"] = np.nan
    study = read_study_text(STUDY, Path(), by_owner=True)
    made = synthesize(frame, study, epsilon=20, delta=1e-9, state=folder / "state", out=folder / "out", seed=1)
    return frame, made, folder


@pytest.mark.whole
def test_a_table_becomes_codes_of_the_bins_that_are_measured(
    released: tuple[pd.DataFrame, Synthesized, Path],
) -> None:
    frame, result, _ = released
    cost = result.study.schema[1]
    assert cost.points == (0.0,)
    assert (result.records["cost"] == 0).mean() == pytest.approx(0.2, abs=0.02)
    real, made = frame["cost"].dropna(), result.records["cost"].dropna().astype(float)
    for part in (0.3, 0.5, 0.7, 0.9):
        assert (made < real.quantile(part)).mean() == pytest.approx(part, abs=0.03)
    ages = result.records["age"].astype(float)
    for age in (20, 40, 60, 80):
        assert (ages < age).mean() == pytest.approx((frame["age"] < age).mean(), abs=0.02)


def test_a_release_states_its_bins_and_one_whose_bins_were_moved_is_refused(
    released: tuple[pd.DataFrame, Synthesized, Path],
) -> None:
    _, result, folder = released
    ca = (folder / "out" / "ca.crt").read_bytes()
    verify_release(folder / "out" / "release", ca_certificate=ca)
    own = canonical.from_bytes(canonical.to_bytes(result.study), wire=False)
    assert own.schema == result.study.schema
    assert "bins of 2 columns (age, cost) are measured" in (folder / "out" / "release" / "report.html").read_text()
    age = own.schema[0]
    assert age.bounds == (0.0, 120.0)
    assert len(age.profile) > 120
    edges = list(age.bins or ())
    moved = dataclasses.replace(age, bins=(*edges[:1], edges[1] + 1, *edges[2:]))
    moved = dataclasses.replace(moved, labels=value_labels(moved))
    forged = dataclasses.replace(
        own, schema=dataclasses.replace(own.schema, variables=(moved, *own.schema.variables[1:]))
    )
    with pytest.raises(Misuse, match="not those that its noisy counts give"):
        canonical.from_bytes(canonical.to_bytes(forged), wire=False)


def test_a_release_says_of_each_number_how_it_was_made(released: tuple[pd.DataFrame, Synthesized, Path]) -> None:
    _, result, folder = released
    release = vt.load(folder / "out" / "release", ca=folder / "out" / "ca.crt")
    made = release.table().attrs["numbers"]
    report = html.unescape((folder / "out" / "release" / "report.html").read_text())
    assert list(made) == ["age", "cost"]
    cost = made["cost"]
    assert (
        cost["bins"]
        == f"{result.study.schema[1].n_bins}, measured with noise by 'owner' between the bounds 0 and 1000000"
    )
    assert (cost["points"], cost["inside"]) == (("0",), "by the noisy histogram, linked with other numbers")
    assert f"Bins: {cost['bins']}." in report
    assert f"Values with a category of their own: 0. Values inside a bin lie {cost['inside']}." in report


@pytest.mark.parametrize(
    ("change", "bins", "inside"),
    [
        ({"origin": "table"}, "2, taken from the table by a draft, which no noise covers", "evenly"),
        ({"origin": "public"}, "2, public knowledge, as the study's author states", "evenly"),
        ({"means": (30.0, 70.0)}, "2, declared by the study", "evenly around the declared mean of each bin"),
        ({"representatives": (30.0, 70.0)}, "2, declared by the study", "at the declared value of each bin"),
        ({"bounds": (0.0, 120.0)}, "2, to be measured with noise between the bounds 0 and 120", "evenly"),
    ],
)
def test_declared_numbers_say_where_their_bins_come_from(change: dict[str, object], bins: str, inside: str) -> None:
    study = read_study_text(STUDY, Path(), by_owner=True)
    age = dataclasses.replace(study.schema[0], bins=(0.0, 60.0, 120.0), labels=("[0,60)", "[60,120)"), bounds=None)
    schema = dataclasses.replace(study.schema, variables=(dataclasses.replace(age, **change),))
    declared = dataclasses.replace(study, schema=schema)
    assert number_words(declared)["age"] == NumberWords(bins=bins, points=(), inside=inside)
    linked = dataclasses.replace(declared, release=dataclasses.replace(declared.release, within_bins="linked"))
    expected = "by a smooth curve through the bins, linked with other numbers" if inside == "evenly" else inside
    assert number_words(linked)["age"].inside == expected


def test_a_profile_that_noise_hides_and_people_outside_the_bounds_are_said() -> None:
    study = owners_study(read_study_text(STUDY, Path(), by_owner=True), method="joint", epsilon=1, delta=1e-9)
    size = grid_of_variable(study.schema[0]).size
    nobody = with_profiles(study, {"age": [0] * size})
    words = number_words(nobody)["age"]
    assert words.bins.endswith("that follow from the bounds 0 and 120 alone, because the noise hid where people are")
    assert words.inside.startswith("by a smooth curve")
    cells = [500] * 120 + [0, 20_000] + [0] * (size - 122)
    assert number_words(with_profiles(study, {"age": cells}))["age"].bins.endswith(
        "about 25 % of the people lie outside"
    )


@pytest.mark.whole
def test_the_same_table_again_costs_nothing_and_has_the_same_bins(
    released: tuple[pd.DataFrame, Synthesized, Path],
) -> None:
    frame, first, folder = released
    study = read_study_text(STUDY, Path(), by_owner=True)
    again = synthesize(frame, study, epsilon=20, delta=1e-9, state=folder / "state", seed=1)
    assert again.spending.again
    assert first.study == again.study
    assert first.spending.cost.epsilon == 20.0


def test_fifty_people_are_hidden_in_the_noise_of_epsilon_one() -> None:
    """A noise of 18, 60 draws: by chance some cells have 4 standard deviations in 3 of them, and 3 in 20."""
    values = np.round(np.random.default_rng(1).uniform(0, 900, 50), 2)
    grid = grid_of((0.0, 1_000.0), step=0.01, codes=True)
    seen = [bool(profile_of(grid, counts_of(grid, values, 18.0, seed), 18.0).bins) for seed in range(60)]
    assert sum(seen) <= 4


def test_noise_that_hides_a_column_leaves_bins_of_equal_width() -> None:
    age = owners_study(read_study_text(STUDY, Path(), by_owner=True), method="joint", epsilon=1).schema[0]
    noise = np.rint(np.random.default_rng(1).normal(0, 100, grid_of_variable(age).size)).astype(int)
    measured = dataclasses.replace(age, profile=tuple(noise.tolist()))
    found = variable_with(measured, profile_of_variable(measured, 100.0))
    assert found.bins == even_bins((0.0, 120.0), 1.0)
    assert max(np.diff(found.bins or ())) - min(np.diff(found.bins or ())) <= 1


def test_the_noise_on_both_histograms_is_that_of_the_event() -> None:
    """By its mean square, false alarm 1e-6 (4.9 standard errors)."""
    study = owners_study(read_study_text(STUDY, Path(), by_owner=True), method="joint", epsilon=1, delta=1e-9)
    cost, sigma = study.schema[1], 50.0
    grid = grid_of_variable(cost)
    codes = np.full(4_000, np.searchsorted(grid.fine, 300.5, side="right"))
    counts = np.array(noisy_profile(cost, codes, bytes(32), b"", sigma))
    for edges, own in ((grid.edges, counts[: grid.size]), (parts_of(grid, counts.tolist()), counts[grid.size :])):
        noise = own.copy()
        noise[np.searchsorted(edges, 300.5, side="right") - 1] -= 4_000
        assert abs((noise**2).mean() / sigma**2 - 1) < 4.9 * math.sqrt(2 / len(noise)) + 3 / len(noise)


def test_a_measured_column_whose_order_is_switched_off_is_counted_in_no_runs() -> None:
    text = STUDY.replace('bins = "private"', 'bins = "private"\nordered = false')
    study = owners_study(read_study_text(text, Path(), by_owner=True), method="joint", epsilon=1, delta=1e-9)
    assert all(variable.bounds and not variable.order for variable in study.schema.variables[:2])
    assert coarse_pairs(study) == ()
    assert set_sizes(study).profiles == 3


def test_what_is_charged_depends_on_no_count() -> None:
    study = owners_study(read_study_text(STUDY, Path(), by_owner=True), method="joint", epsilon=1, delta=1e-9)
    few = dataclasses.replace(study.schema[0], bins=(0.0, 50.0, 120.0), labels=("[0,50)", "[50,120)"))
    other = dataclasses.replace(
        study, schema=dataclasses.replace(study.schema, variables=(few, *study.schema.variables[1:]))
    )
    assert coarse_pairs(other) == coarse_pairs(study)
    assert layered_counts(other) == layered_counts(study)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bounds = [0, 120]", "", "bounds: missing"),
        ("bounds = [0, 120]", "bounds = [120, 0]", "the lowest first"),
        ("bounds = [0, 120]", "bounds = [0, inf]", "two finite values"),
        ("bounds = [0, 120]", "bounds = [0, 60, 120]", "two finite values"),
        ('type = "integer"\nbins = "private"', 'bins = "private"', "type"),
        ('bins = "private"\nbounds = [0, 120]', "bins = [0, 60, 120]\nbounds = [0, 120]", "goes with bins"),
        ("bounds = [0, 120]", "bounds = [0, 120]\nmeans = [3]", "declared bins"),
    ],
)
def test_what_is_wrong_with_bounds_is_named(old: str, new: str, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        read_study_text(STUDY.replace(old, new, 1), Path(), by_owner=True)


@pytest.mark.parametrize(
    ("n", "highest", "words"),
    [(50, 120, "'age': the noise hides its profile"), (3_000, 40, "% of the people have values outside its bounds")],
)
def test_an_owner_reads_what_a_profile_lost(
    n: int, highest: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One secret, because the noise on 50 people looks like people in .04 of all."""
    monkeypatch.setattr("verticil.curator.state.read_secret", lambda _: SiteSecret(value=bytes(range(32))))
    study = read_study_text(STUDY.replace("bounds = [0, 120]", f"bounds = [0, {highest}]"), Path(), by_owner=True)
    made = synthesize(people(n), study, epsilon=1, delta=1e-9, state=tmp_path / "state", seed=1, accept_noise=True)
    assert any(words in warning for warning in made.warnings)


def test_only_an_owner_alone_may_leave_bins_to_be_measured(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    with pytest.raises(Misuse, match=r"goes with noise on tables"):
        read_study(tmp_path / "study.toml")
    study = read_study(tmp_path / "study.toml", by_owner=True)
    with pytest.raises(Misuse, match="noise on tables"):
        owners_study(study, method="privbayes", epsilon=1)
    rule = '[[knowledge.rule]]\nkind = "forbidden"\nall = [{ age = { below = 15 } }, { ward = "a" }]\n'
    with pytest.raises(Misuse, match="age"):
        owners_study(read_study_text(STUDY + rule, Path(), by_owner=True), method="joint", epsilon=1)


def test_private_bins_without_noise_are_answered_with_what_can_be_done() -> None:
    with pytest.raises(Misuse, match=r"bins = 'private' goes with noise.*verticil synthesize --epsilon 1"):
        owners_study(read_study_text(STUDY, Path(), by_owner=True), method="posterior", epsilon=math.inf)


def test_nothing_is_measured_where_nothing_is_asked(tmp_path: Path) -> None:
    plain = STUDY.replace('bins = "private"\nbounds = [0, 120]', "bins = [0, 40, 60, 120]").replace(
        'bins = "private"\nbounds = [0, 1000000]', "bins = [0, 10, 1000, 1000000]"
    )
    study = owners_study(read_study_text(plain, Path(), by_owner=True), method="joint", epsilon=1)
    assert grid_study(study, ()) == study
    assert measure_profiles(study, None, None, None) == (study, None, ())  # type: ignore[arg-type]


@pytest.mark.parametrize("decimals", [2, 6, 10])
@pytest.mark.parametrize("high", [1.0, 1e4, 1e8, 1e13])
def test_each_edge_that_a_grid_can_have_is_one_that_a_study_takes(decimals: int, high: float) -> None:
    """What is measured is charged first: a study that it makes may not be refused then."""
    edges = grid_of((0.0, high), step=10.0**-decimals, codes=True).fine.tolist()
    for place in range(0, len(edges) - 500, max(len(edges) // 8, 1)):
        table = {"party": "a", "name": "x", "type": "number", "decimals": decimals, "bins": edges[place : place + 500]}
        assert variable_from(Table(table, source="test")).n_bins == 499


def test_a_bin_that_would_hold_a_point_alone_is_part_of_the_next() -> None:
    """Gains of Adult: the first cell holds 0 alone, and an end stays at the bound."""
    text = STUDY.replace("bounds = [0, 120]", "bounds = [0, 10000]", 1)
    age = owners_study(read_study_text(text, Path(), by_owner=True), method="joint", epsilon=1).schema[0]
    grid = grid_of_variable(age)
    counts = np.rint(np.random.default_rng(3).normal(0, 90, grid.size)).astype(int)
    counts[len(grid.edges) + 1 + grid.candidates.index(0.0)] = 30_000
    counts[0] += 400
    first = counts.tolist()
    both = [*first, *([20] * (len(parts_of(grid, first)) - 1))]
    found = variable_with(dataclasses.replace(age, profile=tuple(both)), profile_of(grid, both, 90.0))
    assert 0.0 in found.points
    assert all(high - low > (0.0 <= low < 1.0) for low, high in itertools.pairwise(found.bins or ()))

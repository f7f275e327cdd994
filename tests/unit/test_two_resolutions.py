"""Two resolutions in studies of several organisations: what is charged, drawn, opened and read back (Models II and III)."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from support.masked_arithmetic import arithmetic
from support.masked_nodes import plan_for
from verticil.miner.learning.exact_tables import counted_tables, with_coarse
from verticil.miner.scheduler.job import ColumnFile
from verticil.miner.scheduler.table_noise import TableNoise
from verticil.miner.storage.noisy_table_files import read_tables, write_tables
from verticil.miner.storage.store import StudyFiles
from verticil.shared.core.errors import DataFault
from verticil.shared.masked.arithmetic.opening import deviation, sigma_each
from verticil.shared.masked.arithmetic.plan import CoarsePlan
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, delta_at
from verticil.shared.numerics.joint.estimate import estimate
from verticil.shared.numerics.joint.noisy_tables import sum_runs
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import COLUMNS, MASKED, OTHERS, PUBLIC
from verticil.shared.privacy.events import from_json, plan_events, to_json, words
from verticil.shared.privacy.layered import LayeredCounts
from verticil.shared.privacy.masked import MaskedLayers, tables_event
from verticil.shared.release.masked import opened_tables
from verticil.shared.study.document import Study
from verticil.shared.study.masked import plan_of
from verticil.shared.study.protocols import coarse_deviations
from verticil.shared.study.reading import read_study_text
from verticil.shared.study.tables import coarse_pairs, public_runs, set_sigmas, tables_of

N = 4_000
HEAD = """
schema = 1
id = "two"
title = "Two resolutions"
purpose = "a test"
expires = 2030-01-01
{model}
[randomization_default]
scheme = "symmetric"
epsilon = 4
[tables]
epsilon = 3
delta = 1e-9
resolution = "{resolution}"
"""
NUMBER = """
[[variable]]
party = "{party}"
name = "{name}"
type = "number"
decimals = 1
bins = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
"""
WARD = """
[[variable]]
party = "south"
name = "ward"
type = "category"
categories = ["a", "b", "c"]
"""


def study_in(model: str = "", resolution: str = "two", number: str = NUMBER) -> Study:
    """A study of two parties: two numbers, and a column without an order."""
    model_line = f'model = "{model}"' if model else ""
    columns = number.format(party="north", name="age") + number.format(party="south", name="cost") + WARD
    parties = '[[party]]\nname = "north"\n[[party]]\nname = "south"\n'
    return read_study_text(HEAD.format(model=model_line, resolution=resolution) + parties + columns, Path())


def columns_of(n: int = N) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    first = np.clip(rng.normal(6, 2.5, n), 0, 11.9)
    second = np.clip(first + rng.normal(0, 1.5, n), 0, 11.9)
    return [first.astype(np.uint8), second.astype(np.uint8), (first > 6).astype(np.uint8) + (second > 8)]


def noise_in(folder: Path, study: Study) -> TableNoise:
    """The miner's noise on a study's tables, drawn."""
    files = StudyFiles(folder)
    files.prepare()
    files.learning.mkdir(exist_ok=True)
    columns = []
    for unit, codes in enumerate(columns_of()):
        path = files.write_column(unit, 1, [codes])
        columns.append(ColumnFile(path=path, item_bytes=1, sha256=hashlib.sha256(path.read_bytes()).digest()))
    noise = TableNoise(files, study, columns, N)
    if not noise.has_noisy_tables():
        write_tables(noise.exact.path, counted_tables(columns_of(), study), noise.exact.binding)
        noise.draw(again=False)
    return noise


def test_a_miner_draws_both_sets_once_and_reads_them_back(tmp_path: Path) -> None:
    """The noise on runs by its mean square, false alarm 1e-6 (4.9 standard errors)."""
    study, plain = study_in(), study_in(resolution="one")
    noise = noise_in(tmp_path / "two", study)
    tables = read_tables(noise.noisy.path, study, N, noise.noisy.binding, noisy=True)
    assert tables.coarse is not None
    assert tuple(table.units for table in tables.coarse.tables) == coarse_pairs(study) == ((0, 1), (0, 2), (1, 2))
    exact, sigma = counted_tables(columns_of(), study), set_sigmas(study).coarse
    assert sigma is not None
    added = []
    for table in tables.coarse.tables:
        of = exact.table(table.units)
        assert of is not None
        sums = of.counts
        for axis, unit in enumerate(table.units):
            sums = sum_runs(sums, tables.coarse.runs[unit], axis)
        added.append((table.counts - sums).ravel())
        assert table.sigma == pytest.approx(sigma, rel=1e-6)
    cells = np.concatenate(added)
    assert abs((cells**2).mean() / sigma**2 - 1) < 4.9 * math.sqrt(2 / len(cells)) + 3 / len(cells)
    noise.noisy.path.unlink()
    again = noise_in(tmp_path / "two", study)
    other = read_tables(again.noisy.path, study, N, again.noisy.binding, noisy=True)
    for one, two in zip(tables.all_tables, other.all_tables, strict=True):
        np.testing.assert_array_equal(one.counts, two.counts)
    whole = again.noisy.path.read_bytes()
    for damaged in (whole[:-8], whole + bytes(8)):
        again.noisy.path.write_bytes(damaged)
        with pytest.raises(DataFault, match="not those that were written"):
            read_tables(again.noisy.path, study, N, again.noisy.binding, noisy=True)
    alone = noise_in(tmp_path / "one", plain)
    assert read_tables(alone.noisy.path, plain, N, alone.noisy.binding, noisy=True).coarse is None


@pytest.mark.whole
def test_the_model_is_fitted_to_randomized_columns_in_runs_too(tmp_path: Path) -> None:
    study = study_in()
    noise = noise_in(tmp_path, study)
    tables = read_tables(noise.noisy.path, study, N, noise.noisy.binding, noisy=True)
    model = estimate(tables, seed=1).model
    assert model.shares((0, 1)).sum() == pytest.approx(1)


@pytest.mark.parametrize(("model", "kind", "reader"), [("", LayeredCounts, OTHERS), ("masked", MaskedLayers, MASKED)])
def test_one_event_names_both_sets_and_costs_what_the_study_says(
    model: str, kind: type[LayeredCounts] | type[MaskedLayers], reader: str
) -> None:
    study = study_in(model)
    (event,) = (item.event for item in plan_events(study, "north") if item.event.reader == reader)
    assert isinstance(event, kind)
    assert (event.tables, event.coarse_tables, event.profiles) == (3, 3, 0)
    assert cost_of(event).epsilon == pytest.approx(3.0, rel=0.02)
    assert from_json(to_json(event)) == event
    assert "ranges of neighbouring categories" in words(event)
    both = Counter({DiscreteGaussianLoss(sigma=event.sigma): 6})
    assert event.coarse_sigma is not None
    both[DiscreteGaussianLoss(sigma=event.coarse_sigma)] += 6
    assert delta_at(both, 3.0) <= 1e-9 < delta_at(both, 2.95)
    assert cost_of(dataclasses.replace(event, coarse_sigma=event.coarse_sigma / 1.5)).epsilon > 3.1
    with pytest.raises(ValueError, match="without its noise"):
        dataclasses.replace(event, coarse_sigma=None)


@pytest.mark.parametrize(("model", "kind"), [("", LayeredCounts), ("masked", MaskedLayers)])
def test_profiles_of_parties_are_in_the_same_event_for_every_reader(
    model: str, kind: type[LayeredCounts] | type[MaskedLayers]
) -> None:
    """Without the profiles, or with less noise on them than is drawn, the stated epsilon would not be proved."""
    bounds = NUMBER.replace("bins = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]", 'bins = "private"\nbounds = [0, 12]')
    study = study_in(model, number=bounds)
    events = [item.event for item in plan_events(study, "north") if isinstance(item.event, kind)]
    event = events[0]
    assert event.reader in {PUBLIC.name, MASKED}
    assert all(reader.sees(event.reader) for reader in (COLUMNS, PUBLIC))
    assert event.profiles == 4
    assert event.profile_sigma is not None
    assert cost_of(event).epsilon == pytest.approx(3.0, rel=0.02)
    assert "histograms of numbers" in words(event)
    bolder = dataclasses.replace(event, profile_sigma=event.profile_sigma / 3)
    assert cost_of(bolder).epsilon > 3.3
    assert from_json(to_json(event)) == event


def test_studies_of_one_resolution_have_the_plan_and_event_of_before() -> None:
    study, two = study_in("masked", "one"), study_in("masked")
    assert plan_of(study, N).coarse is None
    assert type(tables_event(study)).__name__ == "MaskedTables"
    plan = plan_of(two, N)
    assert plan.coarse is not None
    assert plan.coarse.tables == coarse_pairs(two)
    assert plan.coarse.runs == tuple(tuple(runs.tolist()) for runs in public_runs(two))
    assert plan.opened == (*tables_of(two), *coarse_pairs(two))
    assert plan.shape_at(len(plan.tables)) == (6, 6)
    found = [plan.deviation_at(len(plan.tables) + index) for index in range(len(plan.coarse.tables))]
    assert found == pytest.approx(coarse_deviations(two))
    for wrong in (
        {"tables": ((0, 1), (0, 1))},
        {"tables": ((1, 0),)},
        {"runs": plan.coarse.runs[:-1]},
        {"runs": (plan.coarse.runs[0][:-1], *plan.coarse.runs[1:])},
        {"sigma_each": (1, 1)},
    ):
        with pytest.raises(ValueError, match=r"runs|sigma"):
            dataclasses.replace(plan, coarse=dataclasses.replace(plan.coarse, **wrong))


def test_shares_of_tables_in_runs_open_to_the_sums_with_their_noise() -> None:
    sizes = {"one": (5, 7), "two": (6,), "three": (4, 3)}
    sigma = (40.0).as_integer_ratio()
    runs = ((0, 0, 1, 1, 2), (0, 0, 0, 1, 1, 2, 3), (0, 1, 1, 1, 1, 2), (0, 1, 2, 3), (0, 1, 2))
    counted = len(plan_for(sizes, 500).counted)
    coarse = CoarsePlan(
        tables=((0, 1), (0, 2), (1, 4)), runs=runs, sigma=sigma, sigma_each=sigma_each(sigma, counted, 1)
    )
    arithmetic(sizes, 500, coarse)  # which compares what is opened with what is counted
    plan = plan_for(sizes, 500, coarse=coarse)
    assert plan.sigma_total == max(plan.deviation_at(0), deviation(coarse.sigma_each, counted))


def test_opened_tables_in_runs_that_do_not_fit_together_are_told() -> None:
    study = study_in("masked")
    exact, rng = counted_tables(columns_of(), study), np.random.default_rng(1)
    runs = public_runs(study)
    fine = [
        table.counts + rng.normal(0, deviation, table.counts.shape).round()
        for table, deviation in zip(exact.tables, [30.0] * 3, strict=True)
    ]
    coarse = []
    for units, size in zip(coarse_pairs(study), coarse_deviations(study), strict=True):
        table = exact.table(units)
        assert table is not None
        sums = sum_runs(sum_runs(table.counts, runs[units[0]], 0), runs[units[1]], 1)
        coarse.append(sums + rng.normal(0, size, sums.shape).round())
    noisy = [table.astype(np.int64) for table in fine], [table.astype(np.int64) for table in coarse]
    assert not [alarm for alarm in opened_tables(study, [*noisy[0], *noisy[1]], N).alarms if "ranges" in alarm]
    noisy[1][0][0] += 2_000
    shifted = opened_tables(study, [*noisy[0], *noisy[1]], N)
    assert any("in ranges of neighbouring categories" in alarm for alarm in shifted.alarms)
    both = with_coarse(study, exact, noisy[1])
    assert both.coarse is not None
    assert len(both.coarse.tables) == 3

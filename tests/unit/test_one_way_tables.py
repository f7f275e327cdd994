"""Tables of single columns beside those of pairs: where the shares that pairs give would drown, and nowhere else."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.documents import study_toml
from verticil.analyst.prediction import best_one_way_part, predict_study
from verticil.cli.main import main
from verticil.curator.plan import plan_of
from verticil.curator.study import owners_study, with_columns_measured
from verticil.curator.synthesis import synthesize
from verticil.miner.learning.exact_tables import counted_tables
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.joint.noise import noised
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.events import NoisyTables, from_json, plan_events, to_json, words
from verticil.shared.privacy.layered import LayeredCounts, layered_counts
from verticil.shared.release.verification import verify_release
from verticil.shared.study.document import Study, TablesRule
from verticil.shared.study.reading import read_study_text
from verticil.shared.study.tables import set_sizes, table_sigmas, tables_of

PLAIN = '[randomization_default]\nscheme = "none"\n'


def owners(*sizes: int, epsilon: float = 1.0, part: float | None = None) -> Study:
    """Read a study of one owner with a column of each size."""
    columns = [f"owner.c{place}: {' '.join(f'v{k}' for k in range(size))}" for place, size in enumerate(sizes)]
    own = "" if part is None else f"one_way_part = {part}\n"
    text = study_toml(*columns) + f"{PLAIN}[tables]\nepsilon = {epsilon}\ndelta = 1e-9\n{own}"
    return owners_study(read_study_text(text, Path(), by_owner=True), method="joint")


def test_single_columns_are_measured_where_they_drown_and_nothing_changes_where_pairs_are_measured_well() -> None:
    drowned, well = owners(*[16] * 16, epsilon=0.2), owners(*[16] * 16, epsilon=5.0)
    measured = with_columns_measured(drowned, 20_000)
    assert measured.tables is not None
    assert measured.tables.one_way_part == best_one_way_part(drowned, 20_000) > 0
    assert with_columns_measured(well, 20_000) == well
    assert with_columns_measured(owners(4, 4, epsilon=0.01), 1_000).tables == owners(4, 4, epsilon=0.01).tables
    before, after = predict_study(drowned, 20_000), predict_study(measured, 20_000)
    assert before is not None
    assert after is not None
    assert after.two_way < 0.9 * before.two_way
    assert after.one_way < 0.8 * before.one_way
    assert math.isclose(before.two_way, predict_study(owners(*[16] * 16, epsilon=0.2, part=0.0), 20_000).two_way)  # type: ignore[union-attr]


def test_a_part_that_is_stated_is_kept_and_the_plan_says_what_each_epsilon_gets() -> None:
    stated = owners(*[16] * 16, epsilon=0.2, part=0.25)
    assert with_columns_measured(stated, 20_000) == stated
    rows = plan_of(owners(*[16] * 16, epsilon=2.0), n=20_000).rows
    assert [row.one_way_part > 0 for row in rows] == [True, False, False]
    assert all(row.one_way_part == 0.25 for row in plan_of(stated, n=20_000).rows)


def test_the_sets_cost_together_what_is_asked_for() -> None:
    study = owners(3, 4, 5, 30, part=0.4)
    assert tables_of(study)[-4:] == ((0,), (1,), (2,), (3,))
    sizes = set_sizes(study)
    assert (sizes.pairs, sizes.columns, sizes.profiles) == (6, 4, 0)
    event = layered_counts(study)
    assert cost_of(event).epsilon == 1.0
    assert from_json(to_json(event)) == event
    without = dataclasses.replace(event, column_sigma=None, columns=0)
    assert cost_of(dataclasses.replace(without, epsilon=0.5)).epsilon < 0.9
    assert "column" not in to_json(without)  # as ledgers of before have it
    assert from_json(to_json(without)) == without
    with pytest.raises(ValueError, match="on 0 tables"):
        dataclasses.replace(event, columns=0)
    budget = [n / sigma**2 for n, sigma in ((sizes.pairs, table_sigmas(study)[0]), (4, table_sigmas(study)[-1]))]
    assert budget[1] / (sum(budget) + event.coarse_tables / (event.coarse_sigma or math.inf) ** 2) == pytest.approx(
        0.4, rel=0.01
    )


def test_two_sets_of_one_sigma_cost_what_their_tables_cost_together() -> None:
    """As one set of as many tables does."""
    one = LayeredCounts(
        sigma=20.0,
        tables=7,
        coarse_sigma=None,
        coarse_tables=0,
        profile_sigma=None,
        profiles=0,
        delta=1e-9,
        epsilon=0.1,
    )
    two = dataclasses.replace(one, tables=3, column_sigma=20.0, columns=4)
    assert cost_of(two) == cost_of(one)
    assert cost_of(dataclasses.replace(one, tables=3)).epsilon < 0.8 * cost_of(one).epsilon


def test_each_table_has_the_noise_of_its_set() -> None:
    """The squares of the noise over its variance: a standard error of 1.5 % of 9,000 cells, and 5 % of 800; at 6 of them a right
    draw is rejected less than once in a million."""
    study = owners(*[40] * 20, part=0.5)
    people = [np.random.default_rng(place).integers(0, 40, 500).astype(np.uint8) for place in range(20)]
    exact = counted_tables(people, study)
    sigmas = table_sigmas(study)
    assert sigmas[-1] < sigmas[0] / 2
    noisy = noised(exact, sigmas, bytes(32))
    for size in (1, 2):
        ratios = [
            ((a.counts - b.counts) / a.sigma).ravel()
            for a, b in zip(noisy.tables, exact.tables, strict=True)
            if len(a.units) == size
        ]
        squares = np.concatenate(ratios) ** 2
        assert squares.mean() == pytest.approx(1, abs=6 * math.sqrt(2 / len(squares)))
    counts, variance = noisy.one_way(3)
    assert variance < sigmas[-1] ** 2
    assert counts.shape == (40,)


@pytest.mark.parametrize("part", [-0.1, 1.0, 1.5])
def test_a_part_that_is_none_is_refused(part: float) -> None:
    with pytest.raises(Misuse, match=r"one_way_part: got .*expected a part of the budget"):
        owners(3, 4, 5, part=part)


RULE = "[tables]\nepsilon = 1\ndelta = 1e-9\none_way_part = 0.3\n"


def test_a_miner_measures_single_columns_and_the_event_says_so() -> None:
    text = study_toml("a.x: p q r", "b.y: p q r", "b.z: p q") + PLAIN + RULE
    study = read_study_text(text, Path())
    (event,) = (item.event for item in plan_events(study, "a") if isinstance(item.event, LayeredCounts))
    assert (event.tables, event.columns) == (3, 3)
    assert (event.sigma, event.column_sigma) == (table_sigmas(study)[0], table_sigmas(study)[-1])
    assert cost_of(event).epsilon == 1.0
    assert cost_of(dataclasses.replace(event, column_sigma=event.column_sigma and event.column_sigma / 2)).epsilon > 1.0
    assert "3 tables of one column" in words(event)
    assert from_json(to_json(event)) == event
    plain = read_study_text(text.replace("one_way_part = 0.3\n", ""), Path())
    (of_pairs,) = (item.event for item in plan_events(plain, "a") if isinstance(item.event, NoisyTables))
    assert "column" not in to_json(of_pairs)
    assert owners_study(study, method="privbayes").tables == TablesRule(epsilon=1.0, delta=1e-9, resolution="one")


def test_model_three_has_one_noise_for_all_tables() -> None:
    text = study_toml("a.x: p q r", "b.y: p q r", "c.z: p q", keys='model = "masked"\n') + RULE
    with pytest.raises(Misuse, match=r"one_way_part.*all tables have one noise"):
        read_study_text(text, Path())


def test_check_proposes_a_part_where_single_columns_would_drown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [f"{'ab'[place % 2]}.c{place}: {' '.join(f'v{k}' for k in range(16))}" for place in range(16)]
    text = study_toml(*columns) + PLAIN + "[tables]\nepsilon = 0.2\ndelta = 1e-9\n"
    (path := tmp_path / "study.toml").write_text(text)
    main(["study", "check", str(path), "--n", "20000", "--format", "json"])
    findings = {finding["code"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    part = float(findings["columns-unmeasured"]["hint"].split("one_way_part = ")[1].split(":")[0])
    assert part > 0
    path.write_text(f"{text}one_way_part = {part}\n")
    main(["study", "check", str(path), "--n", "20000", "--format", "json"])
    assert "columns-unmeasured" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_release_with_single_columns_verifies_and_its_shares_are_nearer(tmp_path: Path) -> None:
    """Ten columns of twelve categories, 2,000 people, epsilon .3: mean distances of single columns with and without a part."""
    rng, names = np.random.default_rng(1), [f"c{place}" for place in range(10)]
    shares = np.arange(12, 0, -1) / 78
    frame = pd.DataFrame({name: [f"v{code}" for code in rng.choice(12, 2_000, p=shares)] for name in names})
    missed = {}
    for part in (0.0, None):
        study = owners(*[12] * 10, epsilon=0.3, part=part)
        folder = tmp_path / f"{part}"
        made = synthesize(
            frame,
            study,
            state=tmp_path / f"state{part}",
            out=folder,
            accept_noise=True,
            seed=1,
            epsilon=0.3,
            delta=1e-9,
        )
        verify_release(folder / "release", ca_certificate=(folder / "ca.crt").read_bytes())
        assert made.study.tables is not None
        assert bool(made.study.tables.one_way_part) == (part is None)
        assert any("one_way_part" in line for line in made.changes) == (part is None)
        missed[part] = np.mean(
            [
                abs(
                    made.records[name]
                    .value_counts(normalize=True)
                    .sub(frame[name].value_counts(normalize=True), fill_value=0)
                ).sum()
                / 2
                for name in names
            ]
        )
    assert missed[None] < 0.95 * missed[0.0]

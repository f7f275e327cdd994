"""Designs under review: the power of the test of a wide set column, and what the report says of impossible combinations."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from verticil.analyst.lint import lint
from verticil.miner.learning.learn import learn
from verticil.shared.mechanisms.subset import Subset, subset_selection
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation.contingency import family_counts
from verticil.shared.numerics.estimation.independence import dependence_p_value
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, family_design
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.report.page import render
from verticil.shared.release.report.probabilities import RowCounts, count_rows
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.unit import Unit
from verticil.shared.synthesis.synthesis import sample_codes

RUNS = 800
LIMITS = {level: int(binom.isf(5e-7, RUNS, level)) for level in (0.05, 0.5)}


def drawn_sets(channel: Subset, states: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    order = generator.random((len(states), channel.n_states))
    order[np.arange(len(states)), states] = np.where(generator.random(len(states)) < channel.keep, -1.0, 2.0)
    return np.sort(np.argsort(order, axis=1)[:, : channel.size], axis=1).astype(np.uint8).ravel()


@pytest.mark.parametrize(("n_states", "n"), [(64, 4_000), (96, 9_000)])
def test_a_set_column_of_more_categories_than_the_root_of_the_records_is_tested(n_states: int, n: int):
    """n / K records are fewer than sqrt(n), but a category is in the sets of w n / K of them: nothing is too rare to test.

    The column decides the other one, so the p-value is tiny; when all categories were merged into one it was 1.
    """
    generator = np.random.default_rng(7)
    channel = subset_selection(n_states, epsilon=1.0)
    assert n / n_states < np.sqrt(n) < channel.size * n / n_states
    units = [
        ColumnUnit(variables=(0,), domain=None, channel=channel),
        ColumnUnit(variables=(1,), domain=None, channel=quantize(identity(16))),
    ]
    design = family_design(units, (n_states, 16), (0, 1))
    states = generator.integers(0, n_states, n)
    sets = drawn_sets(channel, states, generator)
    linked = {0: sets, 1: (states // (n_states // 16)).astype(np.uint8)}
    free = {0: sets, 1: generator.integers(0, 16, n).astype(np.uint8)}
    assert dependence_p_value(family_counts(linked, design), design) < 1e-4
    assert 0.001 < dependence_p_value(family_counts(free, design), design) < 1.0


def test_two_set_columns_of_few_records_do_not_raise_false_alarms():
    """P-values under independence: more below a level than the 1 - 5e-7 quantile of the binomial reject.

    With categories merged by their shares, 60 % were below .5 and 8 % below .05.
    """
    generator = np.random.default_rng(5)
    (
        n,
        n_states,
    ) = 300, 16
    channel = subset_selection(n_states, epsilon=1.0)
    units = [ColumnUnit(variables=(place,), domain=None, channel=channel) for place in range(2)]
    design = family_design(units, (n_states, n_states), (0, 1))
    shares = 0.7 ** np.arange(n_states)
    shares /= shares.sum()
    p_values = []
    for _ in range(RUNS):
        columns = {place: drawn_sets(channel, generator.choice(n_states, n, p=shares), generator) for place in range(2)}
        p_values.append(dependence_p_value(family_counts(columns, design), design))
    for level, limit in LIMITS.items():
        assert level * RUNS / 2 < sum(p_value < level for p_value in p_values) <= limit


@pytest.fixture
def content(release_study: Study, release_content: ReleaseContent) -> ReleaseContent:
    """One compound of five combinations; income is described given both of its variables, and two of its rows are unstable."""
    pair = Unit(
        variables=("smoker", "age"),
        owner="clinic",
        scheme="symmetric",
        transition=quantize(symmetric(5, epsilon=1.5)),
        impossible=((1, 0),),
    )
    others = tuple(unit for unit in release_study.units if unit.variables[0] not in pair.variables)
    study = dataclasses.replace(release_study, units=(pair, *others))
    families = list(release_content.network.families)
    assert families[2].parents == (0, 1)
    unstable = np.zeros(families[2].unstable.shape, dtype=np.bool_)
    unstable[[1, 4]] = True  # (age 0, smoker 1), which is impossible, and (age 2, smoker 0)
    families[2] = dataclasses.replace(families[2], unstable=unstable)
    stable = [
        family if place == 2 else dataclasses.replace(family, unstable=np.zeros_like(family.unstable))
        for place, family in enumerate(families)
    ]
    return dataclasses.replace(
        release_content,
        study=study,
        effective_digest=canonical.digest(study).hex(),
        network=dataclasses.replace(release_content.network, families=tuple(stable)),
    )


def test_impossible_rows_are_not_called_rare(content: ReleaseContent):
    # 1 + 3 + 3 x 2 + 1 + 2 rows
    assert count_rows(content) == RowCounts(possible=12, unstable=1, impossible=1)
    words = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", render(content))).split())
    assert "1 of 12 combinations of parent categories were too rare" in words
    assert "The study declares 1 more impossible: there is nothing to estimate in them." in words


def test_a_study_without_compounds_has_no_impossible_row(release_content: ReleaseContent):
    counts = count_rows(release_content)
    assert (counts.possible, counts.impossible) == (13, 0)
    assert "more impossible" not in render(release_content)


HEAD = """\
schema = 1
id = "homes"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "clinic"
[[variable]]
party = "clinic"
name = "marital"
categories = ["single", "married", "widowed"]
[[variable]]
party = "clinic"
name = "age"
categories = ["young", "old"]
[[variable]]
party = "clinic"
name = "ward"
categories = ["a", "b"]
[[randomization]]
jointly = ["marital", "age"]
impossible = [["widowed", "young"]]
scheme = "symmetric"
epsilon = 2.0
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[structure]
method = "given"
[structure.parents]
"""


def impossible_drawn(path: Path, parents: str) -> tuple[list[str], int]:
    """What `lint` says of impossible combinations, and how many synthetic records of 5,000 have one."""
    path.write_text(HEAD + parents, encoding="utf-8")
    study = read_study(path)
    generator = np.random.default_rng(3)
    combination = generator.choice(5, 4000, p=[0.3, 0.1, 0.2, 0.2, 0.2]).astype(np.uint8)
    result = learn([combination, generator.integers(0, 2, 4000).astype(np.uint8)], study)
    marital, age, _ = sample_codes(result.network, 5000, generator=generator)
    codes = [finding.code for finding in lint(study) if finding.code.startswith("impossible-")]
    return codes, int(((marital == 2) & (age == 0)).sum())


def test_it_is_said_when_synthetic_records_will_hold_impossible_combinations(tmp_path: Path):
    """Both columns as parents of a third one is not enough: each of them is then drawn on its own."""
    codes, drawn = impossible_drawn(tmp_path / "study.toml", 'ward = ["marital", "age"]\n')
    assert codes == ["impossible-not-joined"]
    assert drawn > 100
    assert impossible_drawn(tmp_path / "study.toml", 'age = ["marital"]\nward = ["age"]\n') == ([], 0)

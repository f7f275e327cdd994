"""Subset selection in a study: where it is offered, what it promises (against all sets), and how it is said."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import rfc8785

from support.studies import read
from verticil.analyst.lint import lint
from verticil.cli.main import main
from verticil.party.dataset.column_draws import Column
from verticil.party.limits.limits import Policy, find_objections
from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.subset import Subset, best_size, subset_selection
from verticil.shared.mechanisms.transition import SCALE, quantize, symmetric
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.privacy.study_table import study_table
from verticil.shared.study import canonical
from verticil.shared.study.approval import check_not_weaker
from verticil.shared.study.document import Study

LABELS = ", ".join(f'"w{i}"' for i in range(10))
HEAD = f"""\
schema = 1
id = "wards"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "clinic"
[[party]]
name = "insurer"
[[variable]]
party = "clinic"
name = "ward"
categories = [{LABELS}]
[[variable]]
party = "clinic"
name = "smoker"
categories = ["no", "yes"]
[[variable]]
party = "insurer"
name = "claims"
categories = ["none", "some"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
"""
WARD = '[[randomization]]\nvariables = ["ward"]\nscheme = "subset"\n'


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return read(tmp_path, HEAD + WARD + "epsilon = 1.0\n")


def test_the_best_size_is_taken_unless_one_is_given(tmp_path: Path, study: Study):
    assert study.units[0].transition == subset_selection(10, epsilon=1.0)
    assert study.units[0].transition.codes_per_record == best_size(10, 1.0)
    given = read(tmp_path, HEAD + WARD + "epsilon = 0.5\nsubset_size = 5\n").units[0].transition
    assert given == subset_selection(10, epsilon=0.5, size=5)


def test_a_compound_may_be_released_as_a_set_of_combinations(tmp_path: Path):
    joint = '[[randomization]]\njointly = ["ward", "smoker"]\nimpossible = [["w0", "yes"]]\nscheme = "subset"\nepsilon = 1\n'
    study = read(tmp_path, HEAD + joint)
    assert study.units[0].transition == subset_selection(19, epsilon=1.0)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (WARD + "epsilon = 1.01\n", "STUDY_INVALID", "epsilon: got 1.01, expected at most 1 with 'subset'"),
        (
            WARD.replace("ward", "smoker") + "epsilon = 1\n",
            "STUDY_INVALID",
            "'smoker' with 2 categories, expected at least 8",
        ),
        (WARD + "epsilon = 1\nsubset_size = 10\n", "STUDY_INVALID", "subset_size: got 10, expected 1 to 9"),
        (WARD + "epsilon = 1\nsubset_size = 0\n", "STUDY_INVALID", "subset_size: got 0, expected 1 to 9"),
        (WARD + "epsilon = 1\nsubset_size = 2.5\n", "STUDY_INVALID", "subset_size: got a number"),
        (WARD, "STUDY_INVALID", "epsilon: missing"),
        (WARD + "epsilon = 0\n", "STUDY_INVALID", "epsilon: got 0, expected a number > 0"),
        (WARD + "epsilon = nan\n", "STUDY_INVALID", "epsilon: got nan"),
        (WARD + "epsilon = 1e-300\n", "STUDY_INVALID", "cannot be told from no information"),
        (WARD + "epsilon = 1e-9\n", "MATRIX_SINGULAR", "column 'ward'"),
        (WARD + "epsilon = 1\nkeep = 0.5\n", "STUDY_INVALID", "keep: does not go with the scheme 'subset'"),
    ],
)
def test_bad_subsets_are_refused_with_reason(tmp_path: Path, more: str, code: str, words: str):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, HEAD + more)
    assert (caught.value.code, words in caught.value.message) == (code, True), caught.value.message


def test_where_it_is_not_offered_symmetric_is_the_hint(tmp_path: Path):
    for more in (WARD + "epsilon = 3\n", WARD.replace("ward", "smoker") + "epsilon = 1\n"):
        with pytest.raises(Misuse) as caught:
            read(tmp_path, HEAD + more)
        assert "use 'symmetric'" in caught.value.hint


def test_between_peers_the_released_column_must_keep_its_schema(tmp_path: Path):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, HEAD.replace('purpose = "test"', 'purpose = "test"\nmodel = "peer"') + WARD + "epsilon = 1\n")
    assert caught.value.code == "STUDY_INVALID"
    assert "with model 'peer' a received column is joined to a table" in caught.value.message
    assert "symmetric" in caught.value.hint


# ---- the promise ------------------------------------------------------------------------------------------------------


def probability_of_set(selection: Subset, members: tuple[int, ...], true: int) -> Fraction:
    """By the definition: all sets with the true category are alike, and so are all without it."""
    k, w, p = selection.n_states, selection.size, Fraction(selection.weight, SCALE)
    return p / math.comb(k - 1, w - 1) if true in members else (1 - p) / math.comb(k - 1, w)


@pytest.mark.parametrize(
    ("n_states", "size", "epsilon"), [(3, 1, 0.3), (4, 2, 1.0), (8, 2, 1.0), (8, 3, 0.5), (9, 5, 0.7)]
)
def test_gamma_is_the_largest_ratio_over_all_sets(n_states: int, size: int, epsilon: float):
    selection = subset_selection(n_states, epsilon=epsilon, size=size)
    largest = Fraction(1)
    total = [Fraction(0)] * n_states
    for members in itertools.combinations(range(n_states), size):
        column = [probability_of_set(selection, members, true) for true in range(n_states)]
        largest = max(largest, max(column) / min(column))
        total = [a + b for a, b in zip(total, column, strict=True)]
        assert sum(1 for chance in column if chance) == privacy.k_measure(selection)
    assert total == [1] * n_states
    assert privacy.gamma(selection) == largest
    assert epsilon - 1e-12 <= privacy.epsilon(selection) <= epsilon + 1e-15


def test_what_is_kept_is_the_chance_that_the_set_holds_the_true_category():
    selection = subset_selection(8, epsilon=1.0, size=3)
    sets = [s for s in itertools.combinations(range(8), 3) if 5 in s]
    chance = float(sum((probability_of_set(selection, s, 5) for s in sets), Fraction(0)))
    assert privacy.true_probability(selection) == pytest.approx((chance, chance), abs=1e-15)


def test_sets_of_one_have_the_figures_of_the_symmetric_matrix():
    selection, matrix = subset_selection(9, epsilon=1.0, size=1), quantize(symmetric(9, epsilon=1.0))
    for figure in (privacy.contrast_factor, privacy.condition_number, privacy.epsilon):
        assert figure(selection) == pytest.approx(figure(matrix), rel=1e-9)
    for share in (None, 0.02, 0.5):
        assert privacy.half_width_of_share(selection, 1000, share) == pytest.approx(
            privacy.half_width_of_share(matrix, 1000, share), rel=1e-9
        )
    assert privacy.true_probability(selection) == pytest.approx(privacy.true_probability(matrix), rel=1e-12)


def test_the_half_width_is_that_of_the_variance_of_an_indicator():
    # z = (1[in set] - q) / (p - q), so n Var = l (1 - l) / (p - q)^2 with l = q + (p - q) share.
    selection, n, share = subset_selection(16, epsilon=1.0), 5000, 0.1
    p, q = selection.keep, selection.other
    chance = q + (p - q) * share
    expected = 1.959963984540054 * math.sqrt(chance * (1 - chance) / n) / (p - q)
    assert privacy.half_width_of_share(selection, n, share) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("n_states", "epsilon", "grr", "subset"), [(8, 0.5, 18.2, 11.8), (16, 1.0, 5.66, 3.11), (64, 1.0, 21.9, 3.54)]
)
def test_a_rare_category_has_the_variance_of_the_design_notes(n_states: int, epsilon: float, grr: float, subset: float):
    # randomization.md 1.1, variance x n of a category of share 0.
    for channel, expected in (
        (quantize(symmetric(n_states, epsilon=epsilon)), grr),
        (subset_selection(n_states, epsilon=epsilon), subset),
    ):
        width = privacy.half_width_of_share(channel, 1, 0.0)
        assert (width / 1.959963984540054) ** 2 == pytest.approx(expected, rel=0.005)


def test_half_widths_agree_with_a_simulation_of_sets():
    # Null: an indicator of a category that is not the true one has variance q (1 - q) / (p - q)^2. n = 20,000 records; six
    # standard errors of the estimated variance are a false-alarm rate of 2e-9.
    selection, rng = subset_selection(8, epsilon=1.0, size=2), np.random.default_rng(7)
    p, q, n = selection.keep, selection.other, 20_000
    true_in = rng.random(n) < p
    others = np.where(true_in, selection.size - 1, selection.size)
    inside = rng.random(n) < others / (selection.n_states - 1)  # a category that is not the true one
    z = (inside - q) / (p - q)
    variance = q * (1 - q) / (p - q) ** 2
    spread = math.sqrt(((z - z.mean()) ** 4).mean() / n)
    assert abs(z.var() - variance) < 6 * spread
    assert abs(z.var() - 1.2 * variance) > 6 * spread  # a planted fault


# ---- bytes, declarations and words ------------------------------------------------------------------------------------


def test_a_subset_stands_in_the_bytes_in_place_of_a_matrix(study: Study):
    selection = study.units[0].transition
    assert isinstance(selection, Subset)
    unit = json.loads(canonical.to_bytes(study))["units"][0]
    assert "matrix" not in unit
    assert unit["subset"] == {"n_states": 10, "size": selection.size, "weight": str(selection.weight)}
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda u: u.update(scheme="symmetric"), "subset selection goes with the scheme 'subset'"),
        (lambda u: u["subset"].update(n_states=9), "the matrix is 9 x 9, expected 10 x 10"),
        (lambda u: u["subset"].update(size=10), "sets of 10 out of 10"),
        (lambda u: u["subset"].update(weight=str(2**64)), "and not always"),
        (lambda u: u["subset"].update(weight="-1"), "a weight is not a whole number"),
        (lambda u: u["subset"].update(weight=5), "weight: got a whole number, expected a string"),
        # p = 0.9 and sets of 2: gamma = 0.9 x 8 / (0.1 x 2) = 36
        (lambda u: u["subset"].update(weight=str(2**64 * 9 // 10)), "epsilon 3.58352"),
        (lambda u: u["subset"].update(extra=1), "extra: unknown key"),
        (lambda u: u.update(matrix=[["1"]]), "matrix: stands beside 'subset'"),
    ],
)
def test_foreign_subsets_are_checked(study: Study, change, words: str):
    value = json.loads(canonical.to_bytes(study))
    change(value["units"][0])
    with pytest.raises(PeerFault) as caught:
        canonical.from_bytes(rfc8785.dumps(value))
    assert words in caught.value.message


def test_a_declaration_of_either_kind_is_compared_by_gamma(study: Study):
    ours = study.units[0]
    matrix = dataclasses.replace(ours, scheme="symmetric", transition=quantize(symmetric(10, epsilon=0.9)))
    check_not_weaker(matrix, ours)
    check_not_weaker(ours, ours)
    with pytest.raises(Refusal, match="DECLARATION_WEAKER"):
        check_not_weaker(ours, matrix)


def test_the_statement_says_it_in_words(study: Study):
    statement = privacy_statement(study)
    column = statement.columns[0]
    size = best_size(10, 1.0)
    keep = size * math.e / (size * math.e + 10 - size)
    assert column.set_text == (
        f"is released as a set of {size} of the 10 categories that holds the true one {100 * keep:.0f} % of the time"
    )
    assert (column.k_measure, column.has_bound, column.is_unchanged) == (10, True, False)
    assert column.kept_least == column.kept_most == pytest.approx(keep, abs=1e-12)
    document = column.document()
    assert isinstance(document, dict)
    assert (document["subset_size"], document["released"]) == (size, column.set_text)
    others = statement.columns[1].document()
    assert isinstance(others, dict)
    assert not {"subset_size", "released", "read_by", "impossible_combinations"} & set(others)
    assert statement.epsilon_per_person == pytest.approx(1 + 2 + 2, abs=1e-9)


def test_the_table_and_the_findings_know_sets(study: Study):
    row = study_table(study).rows[0]
    assert (row.subset_size, row.scheme) == (best_size(10, 1.0), "subset")
    codes = {finding.code for finding in lint(study, n=1_000_000) if "ward" in finding.where}
    assert codes == set()  # neither ill-conditioned, nor relabelled, nor too noisy at so many records
    assert "too-noisy-for-links" in {finding.code for finding in lint(study, n=2000) if "ward" in finding.where}


def test_a_policy_counts_the_epsilon_of_a_subset(study: Study):
    columns = {name: Column(dataset="people", source=name) for name in ("ward", "smoker")}
    policy = Policy(
        approval="manual",
        approvers=(),
        approvers_needed=1,
        max_epsilon_per_column=0.9,
        max_epsilon_per_study=math.inf,
        max_epsilon_lifetime=math.inf,
        allow_infinite=(),
        minimum_common_records=1,
        minimum_parties=2,
        max_categories=50,
        deny_columns=(),
        recipients=("miner",),
        on_data_change="refuse",
        breach=privacy.Breach(prior=0.3, posterior=0.5),
    )
    messages = [objection.message for objection in find_objections(policy, study, "clinic", columns)]
    assert any("column 'ward': epsilon 1, expected at most 0.9" in message for message in messages)
    # gamma e = 2.718 against the limit (0.5 x 0.7) / (0.3 x 0.5) = 2.333
    assert any("column 'ward': gamma 2.71828, expected below 2.33333" in message for message in messages)


@pytest.mark.parametrize("command", ["check", "submit"])
def test_a_subset_of_836_categories_is_refused_before_anybody_works(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """At epsilon 1, 1,000 people are worth a third of one whose category is known. Nothing is connected to."""
    hopeless = HEAD.replace(LABELS, ", ".join(f'"w{i}"' for i in range(836))) + WARD + "epsilon = 1.0\n"
    (tmp_path / "study.toml").write_text(hopeless + "[linkage]\nminimum_common_records = 1000\n", encoding="utf-8")
    assert main(["study", command, str(tmp_path / "study.toml")]) == (6 if command == "check" else 2)
    said = " ".join("".join(capfd.readouterr()).split())
    assert "column 'ward'" in said
    assert "1,000 records are worth 0.33" in said

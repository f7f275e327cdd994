"""Studies between peers: structure and share rules, who reads what, what is charged, and what is refused with which words."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from pathlib import Path

import pytest
import rfc8785
from typer.testing import CliRunner

from support.documents import study_toml
from support.studies import read
from verticil.analyst.lint import lint
from verticil.cli.main import app
from verticil.party.dataset.column_draws import Column
from verticil.party.limits.limits import Policy, find_objections
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.toml_table import Table
from verticil.shared.mechanisms.privacy import Breach
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.privacy.study_table import study_table
from verticil.shared.study import canonical
from verticil.shared.study.document import ShareRule, Study
from verticil.shared.study.peer import read_by
from verticil.shared.study.protocol import Finding
from verticil.shared.study.protocols import sent_units
from verticil.shared.study.reading import read_declarations

# clinic: age, smoker; bank: income, debt; town: district. income has the parents age (remote) and debt; smoker has income
# (remote); debt has district (remote).
HEAD = study_toml(
    "clinic.age: young old",
    "clinic.smoker: no yes",
    "bank.income: low middle high",
    "bank.debt: none some",
    "town.district: north south west east",
    name="neighbours",
    epsilon=1.5,
    keys='model = "peer"\n',
)
GIVEN = """\
[structure]
method = "given"
[structure.parents]
smoker = ["income"]
income = ["debt", "age"]
debt = ["district"]
"""
LEARNED = '[structure]\nmethod = "genetic"\n'
NOISE = '[share]\nnoise = "discrete-gaussian"\nepsilon = 2.0\ndelta = 1e-9\nminimum_count = 5\n'
ROUNDED_NOISE = NOISE.replace("discrete-gaussian", "gaussian")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return read(tmp_path, HEAD + GIVEN + NOISE)


def test_a_given_structure_is_written_out_in_the_order_of_the_variables(study: Study):
    assert study.model == "peer"
    assert study.structure.parents == (
        ("age", ()),
        ("smoker", ("income",)),
        ("income", ("age", "debt")),
        ("debt", ("district",)),
        ("district", ()),
    )
    assert study.share == ShareRule(noise="discrete-gaussian", epsilon=2.0, delta=1e-9, minimum_count=5)
    assert study.given_dag == Dag(parents=((), (2,), (0, 3), (4,), ()))


def test_it_may_be_an_inline_table_and_the_model_central(tmp_path: Path):
    inline = '[structure]\nmethod = "given"\nparents = { debt = ["income"] }\n'
    study = read(tmp_path, HEAD.replace('model = "peer"', 'model = "central"') + inline)
    assert study.share is None
    assert dict(study.structure.parents or ())["debt"] == ("income",)
    assert sent_units(study) == (0, 1, 2, 3, 4)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_share_may_be_an_inline_table_and_may_be_left_out(tmp_path: Path):
    inline = 'share = { noise = "discrete-gaussian", epsilon = 2.0, delta = 1e-9, minimum_count = 5 }\n'
    expected = ShareRule(noise="discrete-gaussian", epsilon=2.0, delta=1e-9, minimum_count=5)
    assert read(tmp_path, inline + HEAD + GIVEN).share == expected
    assert read(tmp_path, HEAD + GIVEN).share == ShareRule()
    assert read(tmp_path, HEAD + GIVEN + "[share]\nminimum_count = 10\n").share == ShareRule(minimum_count=10)


def test_the_bytes_have_structure_and_share_and_come_back(study: Study, tmp_path: Path):
    document = json.loads(canonical.to_bytes(study))
    assert document["structure"]["parents"][2] == ["income", ["age", "debt"]]
    assert document["share"] == {"noise": "discrete-gaussian", "epsilon": 2.0, "delta": 1e-9, "minimum_count": 5}
    learned = read(tmp_path, HEAD + LEARNED)
    plain = json.loads(canonical.to_bytes(learned))
    assert plain["share"] == {"epsilon": None, "delta": None, "minimum_count": 0}
    assert "parents" not in plain["structure"]
    for one in (study, learned):
        assert canonical.from_bytes(canonical.to_bytes(one)) == one


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'debt = ["district"]',
            'debt = ["distrct"]',
            "structure.parents.debt: 'distrct' is not a variable of the study",
        ),
        ('debt = ["district"]', 'dept = ["district"]', "structure.parents.dept: not a variable of the study"),
        (
            'debt = ["district"]',
            'debt = "district"',
            "structure.parents.debt: got a string, expected a list of strings",
        ),
        ('debt = ["district"]', 'debt = ["age", "age"]', "'age' stands there twice"),
        ('debt = ["district"]', 'debt = ["debt"]', "there is a cycle: debt -> debt"),
        ('debt = ["district"]', 'debt = ["smoker"]', "there is a cycle: smoker -> debt -> income -> smoker"),
        ('debt = ["district"]', 'debt = ["income"]', "there is a cycle: income -> debt -> income"),
        ('debt = ["district"]', 'debt = ["age", "smoker", "district"]', "3 parents, expected at most 2"),
        (
            '"given"',
            '"given"\nmax_family_cells = 11',
            "the table of 'income' and its parents has 12 cells, expected at most 11",
        ),
        ('"given"', '"given"\nscore = "mutual-information"', "score: goes with a search"),
        ('"given"', '"given"\nseed = 3', "seed: goes with a search"),
        ('"given"', '"given"\nforbidden = [["age", "debt"]]', "forbidden: goes with a search"),
        ('"given"', '"given"\nrequired = []', "required: goes with a search"),
        (
            "[structure.parents]",
            "[structure.genetic]\npopulation = 5\n[structure.parents]",
            "genetic: goes with a search",
        ),
        ('"given"', '"genetic"', "parents: does not go with the method 'genetic'"),
        ('"given"', '"genetic"\nparent = 1', "parent: unknown key"),
        ("delta = 1e-9\n", "", "share.delta: missing: noise needs an epsilon and a delta"),
        ("epsilon = 2.0\n", "", "share.epsilon: missing: noise needs an epsilon and a delta"),
        ('noise = "discrete-gaussian"\n', "", "share.epsilon: goes with noise, and there is none"),
        ('"discrete-gaussian"', '"laplace"', "share.noise: got 'laplace', expected one of discrete-gaussian"),
        ("delta = 1e-9", "delta = 0", "share.delta: got 0, expected more than 0 and at most 0.01"),
        ("delta = 1e-9", "delta = 1e-200", "delta 1e-200, expected at least 1e-30"),
        ("delta = 1e-9", "delta = 0.011", "share.delta: got 0.011, expected more than 0 and at most 0.01"),
        ("delta = 1e-9", "delta = nan", "share.delta: got nan"),
        ("epsilon = 2.0", "epsilon = -1", "share.epsilon: got -1, expected a finite number > 0"),
        ("epsilon = 2.0", "epsilon = inf", "share.epsilon: got inf"),
        ("minimum_count = 5", "minimum_count = -5", "share.minimum_count: got -5"),
        ("minimum_count = 5", "minimum_cont = 5", "share.minimum_cont: unknown key"),
        ('model = "peer"', 'model = "central"', "share: goes with the model 'peer', got 'central'"),
    ],
)
def test_bad_peer_studies_are_refused_with_reason(tmp_path: Path, old: str, new: str, words: str):
    text = HEAD + GIVEN + NOISE
    assert old in text
    with pytest.raises(Misuse) as caught:
        read(tmp_path, text.replace(old, new, 1))
    assert caught.value.code == "STUDY_INVALID"
    assert words in caught.value.message


def test_misspelt_names_get_the_nearest_one(tmp_path: Path):
    for old, new in (('debt = ["district"]', 'debt = ["distrct"]'), ('debt = ["district"]', 'dept = ["district"]')):
        with pytest.raises(Misuse) as caught:
            read(tmp_path, HEAD + GIVEN.replace(old, new))
        assert caught.value.hint in {"did you mean 'district'?", "did you mean 'debt'?"}


def test_peers_are_at_least_two(tmp_path: Path):
    text = HEAD.replace('[[party]]\nname = "bank"\n[[party]]\nname = "town"\n', "")
    text = text.replace('"bank"', '"clinic"').replace('"town"', '"clinic"')
    with pytest.raises(Misuse, match="expected at least two with model 'peer'"):
        read(tmp_path, text + LEARNED)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("share"), "share: missing, expected what is done before parameters are shared"),
        (lambda d: d["share"].update(delta=None), "share.delta: missing, expected a number beside epsilon"),
        (lambda d: d["share"].update(epsilon=None), "share.epsilon: missing, expected a number beside delta"),
        (lambda d: d["share"].update(delta=0.5), "delta: got 0.5"),
        (lambda d: d["share"].update(noise="gaussian"), "share.noise: 'gaussian' is noise of programs before 1.0.0"),
        (lambda d: d["share"].pop("noise"), "share.noise: missing beside epsilon, as in studies of before 1.0.0"),
        (lambda d: d["share"].update(noise="laplace"), "noise: got 'laplace'"),
        (
            lambda d: d["share"].update(epsilon=None, delta=None),
            "share.epsilon: missing: noise 'discrete-gaussian' needs",
        ),
        (lambda d: d["structure"].pop("parents"), "'parents' go with the method 'given'"),
        (lambda d: d["structure"]["parents"].pop(), "the entries are not one for each variable"),
        (lambda d: d["structure"]["parents"].reverse(), "the entries are not one for each variable"),
        (lambda d: d["structure"]["parents"][2][1].reverse(), "or the parents are not in the order of the variables"),
        (lambda d: d["structure"]["parents"][2][1].append("debt"), "a parent stands there twice"),
        (lambda d: d["structure"]["parents"][2][1].append("x"), "'x' is not a variable of the study"),
        (
            lambda d: d["structure"]["parents"][4][1].append("smoker"),
            "a cycle: smoker -> district -> debt -> income -> smoker",
        ),
        (lambda d: d["structure"].update(forbidden=[["age", "debt"]]), "has no forbidden edges"),
    ],
)
def test_foreign_peer_studies_are_checked(study: Study, change, words: str):
    value = json.loads(canonical.to_bytes(study))
    change(value)
    with pytest.raises(PeerFault) as caught:
        canonical.from_bytes(rfc8785.dumps(value))
    assert words in caught.value.message


# ---- who reads what -----------------------------------------------------------------------------------------------------


def test_only_cross_parents_are_sent_and_only_to_those_who_need_them(study: Study):
    # Ma & Sivakumar, section 4: age is a parent of income (bank), income of smoker (clinic), district of debt (bank).
    assert [read_by(study, index) for index in range(5)] == [("bank",), (), ("clinic",), (), ("bank",)]
    assert sent_units(study) == (0, 2, 4)


def test_while_the_structure_is_unknown_everything_may_be_read(tmp_path: Path):
    study = read(tmp_path, HEAD + LEARNED + NOISE)
    assert read_by(study, 0) == ("bank", "town")
    assert sent_units(study) == (0, 1, 2, 3, 4)
    dag = Dag(parents=((), (2,), (0, 3), (4,), ()))
    # Scored by the parties before the owner, and read by those that need it: smoker, of the first party, is never sent.
    assert [read_by(study, index, dag) for index in range(5)] == [
        ("bank",), (), ("clinic",), ("clinic",), ("clinic", "bank"),
    ]  # fmt: skip
    assert sent_units(study, dag) == (0, 2, 3, 4)


def test_the_totals_count_what_is_sent(study: Study, tmp_path: Path):
    table = study_table(study)
    assert [row.read_by for row in table.rows] == [("bank",), (), ("clinic",), (), ("bank",)]
    assert dict(table.party_totals) == pytest.approx({"clinic": 1.5, "bank": 1.5, "town": 1.5})
    assert table.total_epsilon == pytest.approx(4.5)
    statement = privacy_statement(study)
    assert statement.epsilon_per_person == pytest.approx(4.5)
    assert statement.of_party("clinic") == pytest.approx(1.5)
    assert [column.is_sent for column in statement.columns] == [True, False, True, False, True]
    assert statement.columns[1].document()["read_by"] == []
    learned = read(tmp_path, HEAD + LEARNED)
    assert privacy_statement(learned).epsilon_per_person == pytest.approx(7.5)
    dag = Dag(parents=((), (2,), (0, 3), (4,), ()))
    assert privacy_statement(learned, dag).epsilon_per_person == pytest.approx(6.0)


def test_a_column_that_stays_at_home_has_no_bound_to_keep(tmp_path: Path):
    exact = '[[randomization]]\nvariables = ["smoker"]\nscheme = "none"\n'
    rule = "[breach]\nprior = 0.1\nposterior = 0.5\n"
    study = read(tmp_path, HEAD + exact + GIVEN + NOISE + rule)
    assert privacy_statement(study).has_bound
    with pytest.raises(Misuse, match="column 'smoker' has gamma infinite"):
        read(tmp_path, HEAD + exact + LEARNED + NOISE + rule)


# ---- findings -----------------------------------------------------------------------------------------------------------


def found(study: Study, code: str) -> list[Finding]:
    return [finding for finding in lint(study, n=30_000) if finding.code == code]


def test_a_study_with_noise_has_one_note(study: Study):
    assert [(f.severity, f.code) for f in lint(study, n=30_000)] == [("note", "unread")]
    (note,) = found(study, "unread")
    assert "no other party reads smoker, debt: they are not sent" in note.message


def test_parameters_without_noise_are_called_exact_functions_of_raw_data(tmp_path: Path):
    (given,) = found(read(tmp_path, HEAD + GIVEN), "exact-parameters")
    assert given.severity == "warning"
    assert (
        "the parameters that a party shares about its own columns are exact functions of its raw data" in given.message
    )
    (learned,) = found(read(tmp_path, HEAD + LEARNED), "exact-parameters")
    assert "the parameters and the scores of pairs" in learned.message
    assert found(read(tmp_path, HEAD + LEARNED), "read-while-learning")


def test_a_delta_of_a_hundredth_of_one_in_the_number_of_people_is_warned_of(tmp_path: Path):
    study = read(tmp_path, HEAD + GIVEN + NOISE.replace("1e-9", "1e-4"))
    for n, warned in ((100, False), (101, True), (10_000, True)):
        told = [finding for finding in lint(study, n=n) if finding.code == "delta-large"]
        assert [finding.severity for finding in told] == ["warning"] * warned
    assert "delta 0.0001 for 10,000 people" in told[0].message
    assert "with a chance of 100 %" in told[0].message
    assert not [finding for finding in lint(read(tmp_path, HEAD + GIVEN), n=10**6) if finding.code == "delta-large"]


def test_a_peer_that_needs_one_member_of_a_compound_is_named(tmp_path: Path):
    joint = '[[randomization]]\njointly = ["age", "smoker"]\nscheme = "symmetric"\nepsilon = 2\n'
    (finding,) = found(read(tmp_path, HEAD + joint + GIVEN + NOISE), "compound-read-in-part")
    assert finding.where == "columns 'age, smoker'"
    assert "'bank' needs 'age' only and gets the whole compound" in finding.message
    both = GIVEN.replace('smoker = ["income"]\n', "").replace('["debt", "age"]', '["smoker", "age"]')
    assert found(read(tmp_path, HEAD + joint + both + NOISE), "compound-read-in-part") == []


# ---- the party's side -----------------------------------------------------------------------------------------------------

OPEN = Policy(
    approval="manual",
    approvers=(),
    approvers_needed=1,
    max_epsilon_per_column=math.inf,
    max_epsilon_per_study=math.inf,
    max_epsilon_lifetime=math.inf,
    allow_infinite=(),
    minimum_common_records=1,
    minimum_parties=2,
    max_categories=50,
    deny_columns=(),
    recipients=("bank", "town"),
    on_data_change="refuse",
)
CLINIC = {name: Column(dataset="people", source=name) for name in ("age", "smoker")}


def objected(study: Study, **change: object) -> list[tuple[str, str]]:
    policy = dataclasses.replace(OPEN, **change)  # type: ignore[arg-type]  # any field
    return [(o.code, o.message) for o in find_objections(policy, study, "clinic", CLINIC)]


def test_the_other_parties_are_the_recipients(study: Study, tmp_path: Path):
    assert objected(study) == []
    assert objected(study, recipients=("bank",)) == [("POLICY_REFUSED", "model 'peer': town not in policy.recipients")]
    learned = read(tmp_path, HEAD + LEARNED + NOISE)
    ((code, message),) = objected(learned)
    assert code == "POLICY_REFUSED"
    assert "learned from scores that the miner gets" in message
    assert objected(learned, recipients=("bank", "town", "miner")) == []


def test_exact_parameters_need_a_permit(tmp_path: Path):
    study = read(tmp_path, HEAD + GIVEN)
    ((code, message),) = objected(study)
    assert code == "POLICY_REFUSED"
    assert "exact functions of this party's raw data" in message
    assert objected(study, allow_exact_parameters=True) == []


def test_the_noise_on_what_is_shared_has_a_limit(study: Study):
    assert objected(study, max_share_epsilon=2.0) == []
    ((code, message),) = objected(study, max_share_epsilon=1.9)
    assert (code, "share: epsilon 2 of the noise" in message) == ("BUDGET_EXCEEDED", True)


def test_only_units_that_somebody_reads_are_charged(study: Study, tmp_path: Path):
    assert objected(study, max_epsilon_per_study=3.5, max_epsilon_per_column=1.5) == []
    learned = read(tmp_path, HEAD + LEARNED + NOISE)
    ((code, message),) = objected(learned, recipients=("bank", "town", "miner"), max_epsilon_per_study=3.5)
    assert (code, "sums to 5, expected at most 3.5" in message) == ("BUDGET_EXCEEDED", True)
    exact = '[[randomization]]\nvariables = ["smoker"]\nscheme = "none"\n'
    assert objected(read(tmp_path, HEAD + exact + GIVEN + NOISE), breach=Breach(prior=0.1, posterior=0.5)) == []


def test_one_local_column_behind_two_names_counts_each_draw_once(tmp_path: Path):
    both = GIVEN.replace('["debt", "age"]', '["smoker", "age"]').replace('smoker = ["income"]\n', "")
    one = {name: Column(dataset="people", source="AGE") for name in ("age", "smoker")}
    single = read(tmp_path, HEAD + both + NOISE)
    policy = dataclasses.replace(OPEN, max_epsilon_per_column=2.0, breach=Breach(prior=0.1, posterior=0.5))
    messages = [o.message for o in find_objections(policy, single, "clinic", one)]
    assert any("stands behind 2 variables: epsilon sums to 3" in message for message in messages)
    # gammas e^1.5 multiply to e^3 = 20.09, above 9
    assert any("stands behind 2 variables: gamma multiplies to 20.0855" in message for message in messages)
    joint = '[[randomization]]\njointly = ["age", "smoker"]\nscheme = "symmetric"\nepsilon = 1.5\n'
    assert find_objections(policy, read(tmp_path, HEAD + joint + both + NOISE), "clinic", one) == ()


def test_a_party_declares_no_subset_between_peers(study: Study):
    text = '[[randomization]]\nvariables = ["age"]\nscheme = "symmetric"\nepsilon = 1.0\n'
    assert list(
        read_declarations(Table(tomllib.loads(text), source="party.toml").tables("randomization"), study, "clinic")
    ) == [0]
    wide = read_study_with_wide_district(study)
    subset = '[[randomization]]\nvariables = ["district"]\nscheme = "subset"\nepsilon = 1.0\n'
    with pytest.raises(Misuse, match=r"party\.toml: randomization\[1\]\.scheme: 'subset' releases a set"):
        read_declarations(Table(tomllib.loads(subset), source="party.toml").tables("randomization"), wide, "town")


def read_study_with_wide_district(study: Study) -> Study:
    """The study with eight districts, which subset selection would need."""
    value = json.loads(canonical.to_bytes(study))
    value["variables"][4]["labels"] = [f"d{i}" for i in range(8)]
    value["units"][4]["scheme"] = "none"
    value["units"][4]["matrix"] = [[str(2**64 if i == j else 0) for j in range(8)] for i in range(8)]
    return canonical.from_bytes(rfc8785.dumps(value))


# ---- study check ----------------------------------------------------------------------------------------------------------


def check(tmp_path: Path, text: str, *options: str) -> tuple[int, str]:
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["study", "check", str(path), "--n", "30000", *options], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_study_check_says_who_reads_what(tmp_path: Path):
    joint = '[[randomization]]\njointly = ["age", "smoker"]\nimpossible = [["young", "yes"]]\nscheme = "symmetric"\nepsilon = 2\n'
    code, text = check(tmp_path, HEAD + joint + GIVEN + NOISE)
    assert code == 0
    assert "read by" in text
    assert "age, smoker: one draw for all of them, over 3 combinations (1 impossible removed)" in text
    assert "the structure is given, so there is no miner" in text
    assert "Gaussian noise: epsilon 2, delta 1e-09 of one person at each party" in text
    assert "parameters that rest on fewer than 5 people are replaced" in text
    assert "all columns of one person that are sent: epsilon 5.00" in text
    assert "note unread structure.parents" in text


def test_a_note_is_no_finding_for_strict(tmp_path: Path):
    assert check(tmp_path, HEAD + GIVEN + NOISE, "--strict")[0] == 0
    code, text = check(tmp_path, HEAD + GIVEN, "--strict", "--format", "json")
    payload = json.loads(text)
    assert (code, payload["ok"], payload["model"]) == (6, False, "peer")
    assert payload["share"] == {"epsilon": None, "delta": None, "minimum_count": 0}
    assert payload["columns"][1]["read_by"] == []
    assert {finding["code"] for finding in payload["findings"]} == {"exact-parameters", "unread"}

"""study.toml and a party's declarations: what is read, and what is refused with which words."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from support.studies import read
from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.documents.toml_table import Table
from verticil.shared.mechanisms import privacy
from verticil.shared.study import canonical
from verticil.shared.study.protocols import disclosure
from verticil.shared.study.reading import read_declarations, read_study

EXAMPLE = Path(__file__).parents[1] / "vectors" / "study_example.toml"

SMALL = """\
schema = 1
id = "small"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "clinic"
[[party]]
name = "insurer"
[[variable]]
party = "clinic"
name = "ward"
categories = ["a", "b", "c"]
[[variable]]
party = "insurer"
name = "claims"
bins = [0, 1, 2.5, 10]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
"""


def test_the_worked_example_is_read_as_it_stands():
    study = read_study(EXAMPLE)
    assert (study.id, study.model, study.expires) == ("adult-income", "central", dt.date(2099, 12, 31))
    assert study.parties == ("census_bureau", "employer", "tax_office")
    assert study.linkage.normalise == ("nfkc", "trim")
    assert len(study.schema) == 13
    age = study.schema[0]
    assert age.labels[:2] == ("[17,25)", "[25,30)")
    assert (age.n_bins, age.n_states, age.integer, age.outside) == (8, 8, True, "clamp")
    country = study.schema[study.schema.index("native-country")]
    assert country.other == "elsewhere"
    assert country.missing is not None
    assert country.missing.spellings == ("?", "")
    assert study.structure.genetic.generations == 400
    assert study.structure.genetic.mutation_rate is None
    assert study.release.synthetic_records is None


def test_the_example_gets_the_epsilons_it_declares():
    study = read_study(EXAMPLE)
    declared = {"race": 2.0, "native-country": 2.0, "income": math.log(0.90 / 0.05)}  # largest ratio in a column
    for unit in study.units:
        assert privacy.epsilon(unit.transition) == pytest.approx(declared.get(unit.variables[0], 3.0), abs=1e-9)


def test_defaults_are_filled_in(tmp_path: Path):
    study = read(tmp_path, SMALL)
    assert study.title == "small"
    assert study.linkage.mode == "keyed-hash"
    assert study.linkage.minimum_common_records == 1000
    assert study.parameters.prior_count is None
    assert study.schema[1].labels == ("[0,1)", "[1,2.5)", "[2.5,10)")
    assert study.units_of("insurer") == (1,)


def test_a_number_outside_the_bins_never_fails_a_new_study_and_older_ones_keep_their_bytes(tmp_path: Path):
    """``outside = "error"`` is refused with a way out; what was submitted with it is read, and has the same digest."""
    text = SMALL.replace("bins = [0, 1, 2.5, 10]", 'bins = [0, 1, 2.5, 10]\noutside = "error"')
    with pytest.raises(
        Misuse, match="leave the key out: a number outside the bins goes into the nearest one"
    ) as caught:
        read(tmp_path, text)
    assert (caught.value.code, "variable[2].outside" in caught.value.message) == ("STUDY_INVALID", True)
    study = read(tmp_path, text.replace('"error"', '"clamp"'))
    assert study == read(tmp_path, SMALL)
    assert [variable.outside for variable in study.schema.variables] == ["error", "clamp"]  # beside categories as ever
    older = canonical.to_bytes(study).replace(b'"outside":"clamp"', b'"outside":"error"')
    assert canonical.to_bytes(canonical.from_bytes(older)) == older


def test_bins_append_other_and_missing(tmp_path: Path):
    text = SMALL.replace(
        "bins = [0, 1, 2.5, 10]", 'bins = [0, 1]\nother = "odd"\nmissing = { category = "none", spellings = [""] }'
    )
    assert read(tmp_path, text).schema[1].labels == ("[0,1)", "odd", "none")


@pytest.mark.parametrize(
    ("scheme", "first_row"),
    [
        ('scheme = "symmetric"\nkeep = 0.75', (0.75, 0.125, 0.125)),
        ('scheme = "symmetric"\nflip = 0.125', (0.75, 0.125, 0.125)),
        ('scheme = "symmetric"\ngamma = 6', (0.75, 0.125, 0.125)),
        ('scheme = "blocks"\nkeep = 0.75\ngroups = [["a", "c"], ["b"]]', (0.75, 0.0, 0.25)),
        ('scheme = "matrix"\nrows = [[0.5, 0.25, 0.25], [0, 1, 0], [0, 0, 1]]', (0.5, 0.25, 0.25)),
        ('scheme = "none"', (1.0, 0.0, 0.0)),
    ],
)
def test_each_scheme_gives_its_matrix(tmp_path: Path, scheme: str, first_row: tuple[float, ...]):
    study = read(tmp_path, SMALL + f'[[randomization]]\nvariables = ["ward"]\n{scheme}\n')
    assert study.units[0].transition.probabilities[0].tolist() == pytest.approx(first_row, abs=1e-15)
    assert study.units[1].scheme == "symmetric"


WARD = '[[randomization]]\nvariables = ["ward"]\n'


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("schema = 1", "schema = 2", "STUDY_INVALID", "schema: got 2, expected 1"),
        ('id = "small"', 'id = "Small study"', "STUDY_INVALID", "expected 1 to 63 of a-z"),
        ("expires = 2099-12-31", 'expires = "2099-12-31"', "STUDY_INVALID", "expires: not a date"),
        ("expires = 2099-12-31", "expires = 2099-12-31T10:00:00Z", "STUDY_INVALID", "expires: not a date"),
        ('name = "insurer"', 'name = "clinic"', "STUDY_INVALID", "'clinic' stands there 2 times"),
        ('party = "insurer"', 'party = "insurers"', "STUDY_INVALID", "'insurers' is not a [[party]]"),
        ('name = "insurer"', 'name = "in/surer"', "STUDY_INVALID", "expected 1 to 63 of A-Z"),
        ('party = "insurer"', 'party = "clinic"', "STUDY_INVALID", "'insurer' owns no variable"),
        ('["a", "b", "c"]', '["a", "b", "a"]', "STUDY_INVALID", "category 'a' is declared twice"),
        ('["a", "b", "c"]', '["a", " b"]', "STUDY_INVALID", "without blanks at its ends"),
        ('["a", "b", "c"]', '["a", "b\\u202ec"]', "STUDY_INVALID", "U+202E"),
        ('["a", "b", "c"]', '["a"]', "STUDY_INVALID", "1 categories, expected 2"),
        ('["a", "b", "c"]', '["a", "b"]\nbins = [1, 2, 3]', "STUDY_INVALID", "'ward' has both"),
        ('categories = ["a", "b", "c"]', "", "STUDY_INVALID", "'ward' has neither"),
        ('["a", "b", "c"]', '["a", "b"]\nother = "z"', "STUDY_INVALID", "'z' is not among the categories"),
        ('["a", "b", "c"]', '["a", "b"]\ninteger = true', "STUDY_INVALID", "goes with bins"),
        (
            '["a", "b", "c"]',
            '["a", "b"]\nmissing = { category = "a", spellings = ["b"] }',
            "STUDY_INVALID",
            "'b' is a category of its own",
        ),
        ("2.5, 10]", "2.5, 2.5]", "STUDY_INVALID", "expected increasing edges"),
        ("2.5, 10]", "2.5, inf]", "STUDY_INVALID", "not finite"),
        ("2.5, 10]", "2.5, 1e19]", "STUDY_INVALID", "a bin edge is beyond 1e+15"),
        ("[0, 1, 2.5", "[0, 1e-300, 2.5", "STUDY_INVALID", "bin 1 is 1e-300 wide"),
        ("2.5, 10]", "2.5, 10]\ninteger = true", "STUDY_INVALID", "expected whole edges"),
        ('name = "claims"', 'name = "ward"', "STUDY_INVALID", "'ward' is declared twice"),
        ("epsilon = 2.0", "epsilon = -1", "MATRIX_INVALID", "epsilon is -1"),
        ("epsilon = 2.0", "epsilon = true", "STUDY_INVALID", "got true/false, expected a number"),
        ("epsilon = 2.0", "epsilon = 2.0\ngamma = 3", "STUDY_INVALID", "epsilon and gamma, expected exactly one"),
        ("epsilon = 2.0", "", "STUDY_INVALID", "expected exactly one of epsilon, gamma, keep, flip"),
        ("epsilon = 2.0", "epsilon = 60", "STUDY_INVALID", "below 2^-64"),
        ("epsilon = 2.0", "epsilon = 1" + "0" * 400, "STUDY_INVALID", "too large"),
        ("epsilon = 2.0", "flip = 0.3333333333333333", "MATRIX_SINGULAR", "column 'ward'"),
        ("epsilon = 2.0", "epsilon = 2.0\np1 = 0.1", "STUDY_INVALID", "p1: does not go with the scheme 'symmetric'"),
        ('scheme = "symmetric"', 'scheme = "binary"', "STUDY_INVALID", "epsilon: does not go with"),
        ('scheme = "symmetric"', 'scheme = "symetric"', "STUDY_INVALID", "got 'symetric'"),
        ('scheme = "symmetric"', 'scheme = "subset"', "STUDY_INVALID", "'subset' for 'ward' with 3 categories"),
        ('scheme = "symmetric"', 'scheme = "two-level"', "STUDY_INVALID", "epsilon: does not go with"),
        ('purpose = "test"', 'purpose = "test"\nmodel = "pear"', "STUDY_INVALID", "model: got 'pear'"),
    ],
)
def test_bad_studies_are_refused_with_reason(tmp_path: Path, old: str, new: str, code: str, words: str):
    assert old in SMALL
    with pytest.raises(Misuse) as caught:
        read(tmp_path, SMALL.replace(old, new, 1))
    assert caught.value.code == code
    assert words in caught.value.message
    assert "study.toml" in caught.value.message


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ('[linkage]\nmode = "fuzzy"', "STUDY_INVALID", "mode: got 'fuzzy'"),
        ('[linkage]\nnormalise = ["trimm"]', "STUDY_INVALID", "got 'trimm'"),
        ("[linkage]\nminimum_common_records = 0", "STUDY_INVALID", "minimum_common_records: got 0"),
        ('[structure]\nmethod = "gready"', "STUDY_INVALID", "structure.method: got 'gready'"),
        ('[structure]\nmethod = "tree"\nscore = "bic"', "STUDY_INVALID", "'bic' does not go with the method 'tree'"),
        ("[structure]\nmax_parents = 2", "STUDY_INVALID", "max_parents: got 2 for 2 variables, expected at most 1"),
        ('[structure]\nprefer = "structure"\nmethod = "order"', "STUDY_INVALID", "prefer: goes with the method 'auto'"),
        (
            '[structure]\nmethod = "tree"\n[structure.order]\nexact = true',
            "STUDY_INVALID",
            "order: goes with the method",
        ),
        ('[structure]\nmethod = "hill-climb"\nscore = "bdeu"', "STUDY_INVALID", "'ward', 'claims' are randomized"),
        ('[structure]\ntarget = "ward"\nsensitive = ["ward"]', "STUDY_INVALID", "'ward' is the target too"),
        ('[structure]\ntarget = "ward"', "STUDY_INVALID", "'ward' without 'sensitive'"),
        ('[structure]\nsensitive = ["ward"]', "STUDY_INVALID", "stands without 'target'"),
        ('[structure]\ntiers = [["ward"], []]', "STUDY_INVALID", "a tier is empty"),
        ('[structure]\ntiers = [["ward", 2]]', "STUDY_INVALID", "tiers[1]: got a list, expected a list of strings"),
        (
            '[structure]\nrequired = [["ward", "claims"]]\ntiers = [["claims"], ["ward"]]',
            "STUDY_INVALID",
            "the required edge 'ward' -> 'claims': 'ward' stands in tier 2, 'claims' in the earlier tier 1",
        ),
        (
            '[structure]\nrequired = [["ward", "claims"]]\nforbidden = [["ward", "claims"]]',
            "STUDY_INVALID",
            "structure.forbidden has it",
        ),
        ('[structure]\nscore = "bik"', "STUDY_INVALID", "structure.score: got 'bik'"),
        ('[structure]\nscore = "bic"', "STUDY_INVALID", "'bic' does not go with the method 'auto', expected auto"),
        ('[structure]\nrequired = [["ward", "claim"]]', "STUDY_INVALID", "'claim' is not a variable"),
        (
            '[structure]\nmax_family_cells = 4\nrequired = [["ward", "claims"]]',
            "STUDY_INVALID",
            "'claims' with its required parents 'ward': 9 cells, study.toml: structure.max_family_cells is 4",
        ),
        (
            '[structure]\nmethod = "tree"\n[structure.genetic]\nselected = 2',
            "STUDY_INVALID",
            "goes with the method 'genetic'",
        ),
        ('[structure]\nforbidden = [["ward", "claim"]]', "STUDY_INVALID", "'claim' is not a variable"),
        ('[structure]\nforbidden = [["ward", "ward"]]', "STUDY_INVALID", "joins a variable to itself"),
        ('[structure]\nforbidden = [["ward"]]', "STUDY_INVALID", "forbidden[1]: a list of 1, expected one of 2"),
        ("[structure]\nmax_family_cells = 2", "STUDY_INVALID", "at least the 3 categories"),
        ("[structure.genetic]\nselected = 201", "STUDY_INVALID", "selected: got 201, expected 1 to 200"),
        ('[parameters]\nestimator = "mean"', "STUDY_INVALID", "got 'mean', expected one of em, inverse, clip, simplex"),
        ('[parameters]\nestimator = "inverse"', "STUDY_INVALID", "got 'inverse', whose counts can be negative"),
        ("[parameters]\ninterval_level = nan", "STUDY_INVALID", "interval_level: got nan"),
        ('[release]\nsynthetic_records = "all"', "STUDY_INVALID", 'expected "common" or a whole number'),
        (
            '[[randomization]]\njointly = ["ward", "claims"]\nscheme = "none"',
            "STUDY_INVALID",
            "'ward' belongs to 'clinic' and 'claims' to 'insurer', expected columns of one party",
        ),
        ('[[randomization]]\nvariables = ["ward"]\nallocate = 3', "STUDY_INVALID", "allocate: does not go here"),
        ('[[randomization]]\nvariables = ["wrad"]\nscheme = "none"', "STUDY_INVALID", "'wrad' is not a variable"),
        (WARD + 'scheme = "none"\n' + WARD + 'scheme = "none"', "STUDY_INVALID", "is in randomization[1] already"),
        (WARD + 'scheme = "binary"\np1 = 0.1\np2 = 0.1', "STUDY_INVALID", "'ward' with 3 categories, expected 2"),
        (WARD + 'scheme = "matrix"\nrows = [[1, 0], [0, 1]]', "STUDY_INVALID", "2 rows, expected 3"),
        (WARD + 'scheme = "matrix"\nrows = [[1, 0], [0, 1, 0], [0, 0, 1]]', "STUDY_INVALID", "row 1 has 2 numbers"),
        (
            WARD + 'scheme = "matrix"\nrows = [[0.9, 0, 0], [0, 1, 0], [0, 0, 1]]',
            "MATRIX_INVALID",
            "matrix row 1 sums to 0.9",
        ),
        (
            WARD + 'scheme = "matrix"\nrows = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]',
            "MATRIX_SINGULAR",
            "column 'ward'",
        ),
        (WARD + 'scheme = "blocks"\nkeep = 0.9\ngroups = [["a", "b"]]', "MATRIX_INVALID", "not a partition"),
        (WARD + 'scheme = "blocks"\nkeep = 0.9\ngroups = [["a", "x"]]', "STUDY_INVALID", "'x' is not a category"),
    ],
)
def test_bad_sections_are_refused_with_reason(tmp_path: Path, more: str, code: str, words: str):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, SMALL + more + "\n")
    assert (caught.value.code, words in caught.value.message) == (code, True), caught.value.message


@pytest.mark.parametrize("estimator", ["em", "clip", "simplex"])
def test_every_estimator_of_a_distribution_is_accepted(tmp_path: Path, estimator: str):
    study = read(tmp_path, SMALL + f'[parameters]\nestimator = "{estimator}"\n')
    assert study.parameters.estimator == estimator
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_a_study_with_the_inverse_is_not_taken_off_the_wire_either(tmp_path: Path):
    study = read(tmp_path, SMALL)
    bad = dataclasses.replace(study, parameters=dataclasses.replace(study.parameters, estimator="inverse"))
    with pytest.raises(PeerFault, match="whose counts can be negative"):
        canonical.from_bytes(canonical.to_bytes(bad))


DIRICHLET = '[parameters]\nestimator = "inverse"\nprior = "dirichlet"\nprior_count = 2.0\n'


@pytest.mark.parametrize(("more", "tables"), [
    ("", ()),
    ("prior_tables = {ward = [[1, 0.5, 2]]}", (("ward", ((1.0, 0.5, 2.0),)),)),
])  # fmt: skip
def test_the_inverse_with_a_dirichlet_prior_is_accepted(tmp_path: Path, more: str, tables: object):
    study = read(tmp_path, SMALL + DIRICHLET + more + "\n")
    rule = study.parameters
    assert (rule.estimator, rule.prior, rule.prior_count, rule.prior_tables) == ("inverse", "dirichlet", 2.0, tables)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_a_study_without_a_prior_says_nothing_of_it(tmp_path: Path):
    assert set(json.loads(canonical.to_bytes(read(tmp_path, SMALL)))["parameters"]) <= {
        "estimator", "prior_count", "interval_level",
    }  # fmt: skip


@pytest.mark.parametrize(("more", "words"), [
    ('[parameters]\nprior = "dirichlet"\nprior_count = 1.0', "with the estimator 'em', expected inverse"),
    ("[parameters]\nprior_tables = {ward = [[1, 1, 1]]}", "without a prior"),
    (DIRICHLET + "prior_tables = {ward = [[1, 1]]}", "1 rows, expected 1 (the structure is not given), each of 3 numbers"),
    (DIRICHLET + "prior_tables = {ward = [[1, 1, 1], [1, 1, 1]]}", "2 rows"),
    (DIRICHLET + "prior_tables = {ward = [[1, 1, -1]]}", "expected numbers above 0"),
    (DIRICHLET + 'prior_tables = {ward = [[1, 1, "x"]]}', "prior_tables.ward: got a list, expected a list of numbers"),
    (DIRICHLET + "prior_tables = {wart = [[1, 1, 1]]}", "prior_tables.wart: not a variable of the study"),
    (DIRICHLET.replace("prior_count = 2.0", ""), "prior_count: missing with a prior"),
    (DIRICHLET.replace("dirichlet", "uniform"), "got 'uniform', expected one of dirichlet"),
])  # fmt: skip
def test_a_prior_that_does_not_fit_is_refused(tmp_path: Path, more: str, words: str):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, SMALL + more + "\n")
    assert (caught.value.code, words in caught.value.message) == ("STUDY_INVALID", True), caught.value.message


def test_a_column_without_a_scheme_is_refused(tmp_path: Path):
    with pytest.raises(Misuse, match="'ward' is in no table"):
        read(tmp_path, SMALL.partition("[randomization_default]")[0])


def test_files_that_are_no_studies(tmp_path: Path):
    with pytest.raises(Misuse) as caught:
        read_study(tmp_path / "absent.toml")
    assert caught.value.code == "FILE_MISSING"
    for content in (b"\xff\xfe", b"id = ", b""):
        path = tmp_path / "bad.toml"
        path.write_bytes(content)
        with pytest.raises(Misuse) as caught:
            read_study(path)
        assert caught.value.code == "STUDY_INVALID"


def test_a_misspelt_schema_key_is_named(tmp_path: Path):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, SMALL.replace("schema", "shcema"))
    assert "shcema: unknown key" in caught.value.message
    assert "'schema'" in caught.value.hint


# ---- a party's own declarations ---------------------------------------------------------------------------------------


def tables(text: str) -> tuple[Table, ...]:
    return Table(tomllib.loads(text), source="party.toml").tables("randomization")


def test_a_stronger_declaration_replaces_the_unit():
    study = read_study(EXAMPLE)
    own = read_declarations(
        tables('[[randomization]]\nvariables = ["race"]\nscheme = "symmetric"\nepsilon = 1.5'), study, "census_bureau"
    )
    assert list(own) == [2]
    assert privacy.epsilon(own[2].transition) == pytest.approx(1.5, abs=1e-9)
    assert study.with_declaration(own).units[3] == study.units[3]


def test_equal_strength_is_allowed_and_weaker_is_refused():
    study = read_study(EXAMPLE)
    same = '[[randomization]]\nvariables = ["race"]\nscheme = "symmetric"\nepsilon = 2.0'
    assert read_declarations(tables(same), study, "census_bureau") == {2: study.units[2]}
    for weaker in ('scheme = "symmetric"\nepsilon = 2.01', 'scheme = "none"'):
        with pytest.raises(Refusal) as caught:
            read_declarations(tables(f'[[randomization]]\nvariables = ["race"]\n{weaker}'), study, "census_bureau")
        assert caught.value.code == "DECLARATION_WEAKER"
        assert "column 'race'" in caught.value.message


def test_declarations_for_other_studies_are_passed_over_but_not_misspellings():
    study = read_study(EXAMPLE)
    form = '[[randomization]]\nvariables = ["{}"]\nscheme = "symmetric"\nepsilon = 1.5'
    assert read_declarations(tables(form.format("diagnosis")), study, "census_bureau") == {}
    with pytest.raises(Misuse) as caught:
        read_declarations(tables(form.format("rase")), study, "census_bureau")
    assert caught.value.code == "CONFIG_INVALID"
    assert "'race'" in caught.value.hint
    with pytest.raises(Misuse, match="belongs to 'employer'"):
        read_declarations(tables(form.format("workclass")), study, "census_bureau")


def test_reading_imports_nothing_slow():
    code = (
        "import sys; import verticil.shared.study.reading, verticil.shared.study.canonical, verticil.analyst.lint;"
        "print([m for m in ('pandas', 'scipy', 'numba', 'grpc', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("mode", ["keyed-hash", "order-commitment", "dh-psi"])
def test_the_mode_of_linkage_is_read_and_stands_in_the_digest(tmp_path: Path, mode: str):
    """So an approval, which binds to the digest, binds to the mode."""
    plain, study = read(tmp_path, SMALL), read(tmp_path, SMALL + f'[linkage]\nmode = "{mode}"\n')
    assert study.linkage.mode == mode
    assert (canonical.digest(study) == canonical.digest(plain)) == (mode == "keyed-hash")


@pytest.mark.parametrize("mode", ["keyed-hash", "order-commitment", "dh-psi"])
def test_every_mode_of_linkage_serves_both_models(tmp_path: Path, mode: str):
    for model in ("central", "peer"):
        study = read(tmp_path, f'model = "{model}"\n{SMALL}[linkage]\nmode = "{mode}"\n')
        assert (study.model, study.linkage.mode) == (model, mode)
        assert disclosure(study).mode == mode


@pytest.mark.parametrize("label", ["=1+1", "@SUM(A1)", "+x", "-1-2", "--3"])
def test_a_category_that_a_spreadsheet_would_compute_is_refused_in_a_new_study_and_read_in_an_old_one(
    tmp_path: Path, label: str
) -> None:
    with pytest.raises(Misuse, match=r"begins with .* and is no number"):
        read(tmp_path, SMALL.replace('"c"]', f'"{label}"]'))
    numbers = read(tmp_path, SMALL.replace('"c"]', '"-3.5", "+2e3", "a=b"]'))
    ward = numbers.schema[0]
    old = dataclasses.replace(ward, labels=(*ward.labels[:4], label))
    schema = dataclasses.replace(numbers.schema, variables=(old, *numbers.schema.variables[1:]))
    kept = canonical.to_bytes(dataclasses.replace(numbers, schema=schema))
    assert canonical.from_bytes(kept).schema[0].labels[-1] == label


def test_a_column_name_that_a_spreadsheet_would_compute_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="'=ward' begins with '='"):
        read(tmp_path, SMALL.replace('name = "ward"', 'name = "=ward"'))

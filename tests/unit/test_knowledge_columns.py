"""Columns that follow from others and finer values: in the records, the files, what describes them, and when they are checked."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.knowing import CHILDREN, EARNER, GROWN, PLACE, content_that_knows, study_that_knows
from support.releases import content_of, random_mixture, release_study_of_two, with_joint, with_posterior
from verticil.cli.main import main
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.documents.json_document import parse
from verticil.shared.numerics.knowledge import columns as columns_module
from verticil.shared.numerics.knowledge.columns import columns, complete_network
from verticil.shared.numerics.knowledge.rules import Knowledge, Refinement
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats import joint as joint_format
from verticil.shared.release.formats import model_json
from verticil.shared.release.formats.bif import label_map
from verticil.shared.release.limits import release_limits
from verticil.shared.release.verification import _check_documents
from verticil.shared.study import canonical, rules
from verticil.shared.synthesis.record_checks import read_records
from verticil.shared.synthesis.synthesis import decode

NAMES = ["age", "grown", "smoker", "income", "weight", "region", "earner"]


def documents(folder: Path) -> str:
    """What verification says of the documents; the signature is others' tests."""
    try:
        _check_documents(folder, parse((folder / "manifest.json").read_bytes(), source="manifest.json"))
    except GateFailed as error:
        return error.message
    return ""


@pytest.fixture
def content() -> ReleaseContent:
    return content_that_knows()


def test_every_record_has_the_columns_that_follow_and_finer_values(content: ReleaseContent) -> None:
    table = content.synthetic
    assert list(table.columns) == NAMES
    grown = np.where(table["age"] < 18, "no", "yes")
    assert list(table["grown"]) == list(grown)
    assert list(table["earner"]) == list(np.where(grown == "yes", "some", "none"))
    assert set(table["grown"]) == set(table["earner"].map({"some": "yes", "none": "no"}))
    south = content.codes[4] == 1
    assert set(table["region"][south]) == {"south"}
    assert set(table["region"][~south]) == {"north", "east"}


def test_finer_values_have_the_published_weights() -> None:
    """Of 40,000 records of one property, 3 : 1; a normal bound of 5 deviations (false-alarm rate 6e-7)."""
    study, n = study_that_knows(), 40_000
    codes = [np.zeros(n, dtype=np.uint8) for _ in study.schema.variables]
    table = decode(study.schema, codes, np.random.default_rng(3), knowledge=study.knowledge)
    assert abs(int((table["region"] == "east").sum()) - n / 4) < 5 * np.sqrt(n * 3 / 16)
    again = decode(study.schema, codes, np.random.default_rng(3), knowledge=study.knowledge)
    assert table.equals(again)


def test_codes_of_all_columns_lead_back() -> None:
    study = study_that_knows()
    written = columns(study.knowledge, study.schema)
    generator = np.random.default_rng(1)
    codes = [generator.integers(0, k, 500).astype(np.uint8) for k in study.schema.n_states]
    out = written.draw_columns(codes, generator)
    assert written.published.names == tuple(NAMES)
    assert written.published[5].labels == ("north", "east", "south")
    for one, other in zip(written.read(out), codes, strict=True):
        np.testing.assert_array_equal(one, other)
    planted = [*out[:1], 1 - out[1], *out[2:]]
    with pytest.raises(ValueError, match="column 'grown' is not what follows from age"):
        written.read(planted)


def test_a_release_is_checked_whole(content: ReleaseContent, tmp_path: Path) -> None:
    folder = write_release(tmp_path / "release", content)
    assert documents(folder) == ""
    package = json.loads((folder / "datapackage.json").read_bytes())
    fields = {field["name"]: field for field in package["resources"][0]["schema"]["fields"]}
    assert list(fields) == NAMES
    assert fields["grown"]["verticil:owner"] == "clinic"
    assert fields["region"]["categories"] == ["north", "east", "south"]
    said = json.loads((folder / "model.json").read_bytes())
    assert said["knowledge"]["functions"][0]["variable"]["name"] == "grown"
    assert [variable["name"] for variable in said["variables"]] == list(content.study.schema.names)
    limits = release_limits(content.study, content.n_common, total=2**40).files
    assert all((folder / name).stat().st_size <= limits[name] for name in content.files)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.assign(grown="yes"), "column 'grown' is not what follows from age"),
        (lambda table: table.drop(columns="earner"), "has other columns than the study"),
        (lambda table: table.assign(region="north & east"), "an entry that is none of its categories"),
        (lambda table: table[["grown", *[name for name in NAMES if name != "grown"]]], "has other columns"),
    ],
)
def test_planted_records_are_refused(content: ReleaseContent, tmp_path: Path, change, said: str) -> None:
    """Written by a publisher whose own software does not look."""
    planted = dataclasses.replace(content)
    object.__setattr__(planted, "synthetic", change(content.synthetic))
    assert said in documents(write_release(tmp_path / "release", planted))


def test_records_that_break_a_rule_are_refused(tmp_path: Path) -> None:
    """Drawn without it: the network of the test knows no rule."""
    study = study_that_knows(rules=(CHILDREN,))
    plain = content_that_knows()
    planted = dataclasses.replace(plain, study=study, effective_digest=canonical.digest(study).hex())
    folder = write_release(tmp_path / "release", planted)
    with pytest.raises(GateFailed, match="does not meet the rule 'no child smokes'"):
        read_records(folder / "synthetic.csv", study.schema, len(plain.synthetic), study.knowledge)
    assert "does not meet the rule 'no child smokes'" in documents(folder)


def test_what_the_model_says_is_known_is_what_the_study_states(content: ReleaseContent, tmp_path: Path) -> None:
    folder = write_release(tmp_path / "release", content)
    document = json.loads((folder / "model.json").read_bytes())
    document["knowledge"]["functions"][0]["otherwise"] = "no"
    (folder / "model.json").write_text(json.dumps(document))
    assert "model.json: what it says is known of all records" in documents(folder)
    del document["knowledge"]
    (folder / "model.json").write_text(json.dumps(document))
    assert "model.json: what it says is known of all records" in documents(folder)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_more_records_have_them_too(content: ReleaseContent, tmp_path: Path, suffix: str) -> None:
    folder = write_release(tmp_path / "release", content)
    out = tmp_path / f"more{suffix}"
    assert main(["release", "sample", str(folder), "-n", "500", "--out", str(out), "--given", "age=[0,18)"]) == 0
    table = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    assert list(table.columns) == NAMES
    assert set(table["grown"]) == {"no"}
    assert set(table["region"]) == {"north", "east", "south"}


def test_with_a_joint_model_and_with_sets(content: ReleaseContent, tmp_path: Path) -> None:
    joint = with_joint(content, random_mixture(content.study.schema.n_states))
    assert documents(write_release(tmp_path / "joint", joint)) == ""
    sampled = write_release(tmp_path / "sampled", with_posterior(content))
    assert documents(sampled) == ""
    for number in (1, 2, 3):
        table = pd.read_csv(sampled / f"set-{number}.csv")
        assert list(table["grown"]) == list(np.where(table["age"] < 18, "no", "yes"))


def test_a_column_that_follows_costs_nothing() -> None:
    """Declared and randomized, `grown` costs its own column's epsilon; stated, nothing, and the others what they did."""
    study = study_that_knows()
    dag = content_that_knows().network.dag
    sent = dataclasses.replace(study.units[1], variables=("grown",))
    variables = (*study.schema.variables, GROWN.variable)
    whole = dataclasses.replace(
        release_study_of_two(),
        schema=dataclasses.replace(study.schema, variables=variables),
        units=(*study.units, sent),
    )
    rules.check(study, source="study.toml")
    before = privacy_statement(whole, dataclasses.replace(dag, parents=(*dag.parents, ())))
    after = privacy_statement(study, dag)
    own = before.columns[-1].epsilon
    assert own > 1
    bounded = [sum(column.epsilon for column in found.columns if column.has_bound) for found in (before, after)]
    assert bounded[0] - bounded[1] == pytest.approx(own, rel=1e-12)
    assert before.columns[:-1] == after.columns
    assert not any("grown" in column.variables for column in after.columns)


@pytest.mark.parametrize(
    ("refinements", "said"),
    [
        ((("south", "north & east", 1.0),), "is another category of 'region'"),
        ((("south", "a", 1.0), ("south", "a\u0085b", 1.0)), "no printed text"),
        ((PLACE.values[0],), "by another rule, too"),
    ],
)
def test_finer_values_that_mean_nothing(refinements, said: str) -> None:
    items: tuple[Refinement, ...] = (Refinement(name="r", variable="region", values=refinements),)
    if "too" in said:
        items = (*items, PLACE)
    study = dataclasses.replace(release_study_of_two(), knowledge=Knowledge(refinements=items))
    with pytest.raises(Misuse) as caught:
        rules.check(study, source="study.toml")
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("name", "program"), [("network.bifxml", "pgmpy"), ("network.bifxml", "pyagrum"), ("network.bif", "pyagrum")]
)
def test_a_network_that_is_opened_elsewhere_has_them_as_deterministic_nodes(
    content: ReleaseContent, request, difference, tmp_path: Path, name: str, program: str
) -> None:
    """Read by pgmpy and by pyAgrum, cell by cell; what they follow from in another order than the columns, too."""
    functions = (
        GROWN,
        dataclasses.replace(EARNER, of=("income", "grown"), values=(("<=50K", "yes", "some"), (">50K", "yes", "some"))),
    )
    study = dataclasses.replace(content.study, knowledge=Knowledge(functions=functions, refinements=(PLACE,)))
    content = dataclasses.replace(content, study=study, effective_digest=canonical.digest(study).hex())
    folder = write_release(tmp_path / "release", content)
    assert documents(folder) == ""
    complete = complete_network(content.network, study.knowledge)
    tokens = label_map(complete.schema)
    names, labels = complete.schema.names, tuple(variable.labels for variable in complete.schema.variables)
    if name == "network.bif":
        names, labels = tokens.variables, tokens.categories
    read = request.getfixturevalue(f"read_with_{program}")(folder / name)
    assert difference(complete, read, names, labels) <= 1e-9
    assert list(complete.schema.names) == NAMES
    earner, some = (names[6], labels[6][1]) if name == "network.bif" else ("earner", "some")
    assert read.parents[earner] == {names[3], names[1]}
    for income, grown in itertools.product(range(2), range(2)):
        row = read.row(earner, {names[3]: labels[3][income], names[1]: labels[1][grown]})
        assert row[some] == grown
    kept = model_json.read((folder / "model.json").read_bytes())
    assert kept.schema == study.schema


def test_the_nodes_of_the_model_are_what_the_study_states(content: ReleaseContent, tmp_path: Path) -> None:
    folder = write_release(tmp_path / "release", content)
    document = json.loads((folder / "model.json").read_bytes())
    grown = document["deterministic"][0]
    assert (grown["variable"]["name"], grown["parents"]) == ("grown", ["age"])
    assert grown["probability"] == [[1, 0], [0, 1], [0, 1]]
    grown["probability"][0] = [0, 1]
    (folder / "model.json").write_text(json.dumps(document))
    assert "deterministic: it is not what follows" in documents(folder)
    document["deterministic"] = []
    (folder / "model.json").write_text(json.dumps(document))
    assert "deterministic: it is not what follows" in documents(folder)
    plain = content_of(release_study_of_two())
    assert complete_network(plain.network, None) is plain.network
    folder = write_release(tmp_path / "plain", plain)
    document = json.loads((folder / "model.json").read_bytes())
    assert "deterministic" not in document
    (folder / "model.json").write_text(json.dumps({**document, "deterministic": [grown]}))
    assert "deterministic: it is not what follows" in documents(folder)


@pytest.mark.parametrize("name", ["model.json", "joint.bifxml", "posterior.json"])
def test_a_file_without_the_nodes_is_refused(content: ReleaseContent, tmp_path: Path, name: str) -> None:
    joint = random_mixture(content.study.schema.n_states)
    made = with_posterior(content) if name == "posterior.json" else with_joint(content, joint)
    folder = write_release(tmp_path / "release", made)
    if name == "joint.bifxml":
        (folder / name).write_bytes(joint_format.to_xmlbif(joint, content.study.schema))
    else:
        document = json.loads((folder / name).read_bytes())
        assert [node["variable"]["name"] for node in document.pop("deterministic")] == ["grown", "earner"]
        (folder / name).write_text(json.dumps(document))
    assert documents(folder).startswith(f"{name}: ")


def test_the_joint_models_file_has_them(content: ReleaseContent, read_with_pyagrum, tmp_path: Path) -> None:
    joint = with_joint(content, random_mixture(content.study.schema.n_states))
    read = read_with_pyagrum(write_release(tmp_path / "joint", joint) / "joint.bifxml")
    assert read.parents["earner"] == {"grown", "income"}
    assert read.row("grown", {"age": "[0,18)"}) == {"no": 1.0, "yes": 0.0}


def test_a_table_too_large_for_a_node_is_left_out_with_what_follows_from_it(
    content: ReleaseContent, monkeypatch
) -> None:
    study = content.study
    monkeypatch.setattr(columns_module, "MAX_NODE_CELLS", 7)  # grown has 6 cells, earner 8
    assert complete_network(content.network, study.knowledge).schema.names == (*NAMES[:6],)
    monkeypatch.setattr(columns_module, "MAX_NODE_CELLS", 5)
    assert complete_network(content.network, study.knowledge) is content.network

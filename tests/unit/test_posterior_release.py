"""A release of sampled graphs: posterior.json, the sets of records, who reads them back, and what verification finds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.releases import GRAPHS, random_network, release_study_of_two, with_posterior
from verticil.cli.main import main
from verticil.shared.core.errors import DataFault, GateFailed
from verticil.shared.documents.json_document import parse
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats import posterior as posterior_json
from verticil.shared.release.limits import release_limits
from verticil.shared.release.posterior import check_sets, posterior_files, set_file, sets_fault
from verticil.shared.release.records import draw_release_records
from verticil.shared.release.verification import _check_documents
from verticil.shared.synthesis.record_checks import FALSE_ALARMS, read_records, unlikely_family
from verticil.shared.synthesis.synthesis import _sample_in_turn

DIGESTS = {"study_digest": "ab", "effective_digest": "cd"}


@pytest.fixture(scope="module")
def content(release_content):
    return with_posterior(release_content)


@pytest.fixture(scope="module")
def folder(content, tmp_path_factory) -> Path:
    return write_release(tmp_path_factory.mktemp("posterior") / "release", content)


def refusal(folder: Path) -> str:
    """Of the documents; manifest and signature are others' tests."""
    try:
        _check_documents(folder, parse((folder / "manifest.json").read_bytes(), source="manifest.json"))
    except GateFailed as error:
        return error.message if error.code == "RELEASE_INVALID" else error.code
    return ""


def same(one: object, other: object) -> None:
    """Dataclasses with arrays: the same in every number, NaN with NaN."""
    if dataclasses.is_dataclass(one):
        assert type(one) is type(other)
        for field in dataclasses.fields(one):
            same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, tuple):
        assert isinstance(other, tuple)
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)
    elif isinstance(one, float | np.ndarray):
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


def test_what_is_written_is_read_back(content, folder):
    """All of it: as the value, as the networks of a folder, and as numbers that another program reads."""
    schema = content.study.schema
    read = posterior_json.read((folder / posterior_json.FILE).read_bytes(), schema)
    for name in ("source", "agreement", "edges", "consensus", "graphs", "distinct", "pairs", "predictive", "n_graphs"):
        same(getattr(content.posterior, name), getattr(read, name))
    for network, other, third in zip(
        content.posterior.networks, read.networks, posterior_json.read_networks(folder), strict=True
    ):
        assert network.dag == other.dag == third.dag
        for family, one, another in zip(network.families, other.families, third.families, strict=True):
            np.testing.assert_array_equal(family.probability, one.probability)
            np.testing.assert_array_equal(family.probability, another.probability)
            assert np.isnan(one.standard_error).all()
    document = json.loads((folder / posterior_json.FILE).read_bytes())
    assert document["networks"]["listed"][1][0]["parents"] == [1]
    assert [sum(row) for row in document["networks"]["listed"][0][2]["probability"]] == [2**24] * 6
    edges = {(edge["parent"], edge["child"]): edge["probability"] for edge in document["edges"]}
    assert edges["age", "smoker"] == pytest.approx(2 / 3)
    assert edges["smoker", "age"] == pytest.approx(1 / 3)
    assert [item["mean"] for item in document["predictive"]] == [0.4, None]
    assert document["predictive"][0]["draws"] == [0.2, None, 0.6]
    assert read.edge(3, 4).probability == 0.0


def test_the_sets_are_files_of_the_release(content, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    package = json.loads((folder / "datapackage.json").read_text())
    assert {set_file(1), set_file(2), set_file(3), posterior_json.FILE} <= manifest["files"].keys()
    assert not (folder / set_file(4)).exists()
    assert [item["path"] for item in package["resources"]][2:] == [set_file(1), set_file(2), set_file(3)]
    sets = [pd.read_csv(folder / set_file(number)) for number in (1, 2, 3)]
    assert [len(each) for each in sets] == [content.n_common] * 3
    assert not sets[0].equals(sets[1])
    assert refusal(folder) == ""


def test_a_release_without_its_posterior_does_not_verify(release_content, content, folder, tmp_path):
    """By study.json it must be there, or must not."""
    from verticil.shared.release.posterior import check_posterior_file

    written, dag, n = (folder / posterior_json.FILE).read_bytes(), content.network.dag, content.n_common
    for study, data, said in (
        (content.study, None, "by study.json posterior.json is missing"),
        (release_content.study, written, "by study.json posterior.json cannot be there"),
    ):
        with pytest.raises(GateFailed, match=said):
            check_posterior_file(folder, data, study, dag, n)
    assert check_posterior_file(folder, None, release_content.study, dag, n) is None


def test_records_are_shared_evenly_among_the_networks(content, folder):
    """Record i is of network i mod 3: smoker, a child of age in the first, is none in the second."""
    codes = read_records(folder / "synthetic.csv", content.study.schema, content.n_common)
    for place, network in enumerate(content.posterior.networks):
        age, smoker = codes[0][place::3], codes[1][place::3]
        table = np.zeros((3, 2))
        np.add.at(table, (age, smoker), 1)
        family = network.families[1] if network.dag.parents[1] else network.families[0]
        rows = table if network.dag.parents[1] else table.T
        share = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
        known = rows.sum(axis=1) > 30  # systematic rounding: within 1 record of each cell
        assert np.abs(share - family.probability)[known].max() < 0.05


def test_a_study_may_keep_the_consensus(release_content, tmp_path):
    made = with_posterior(release_content, sample_from="network")
    codes, synthetic = draw_release_records(made.network, made.study, made.n_common)
    made = dataclasses.replace(made, codes=codes, synthetic=synthetic)
    folder = write_release(tmp_path / "release", made)
    assert refusal(folder) == ""
    assert b"what is sampled from" in (folder / "model.json").read_bytes()
    other = with_posterior(release_content)
    assert (
        b"of the consensus; records come from" in (write_release(tmp_path / "other", other) / "model.json").read_bytes()
    )


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_planted_set_is_found(content, folder, number):
    """At the level of releases: a set of the next network in the place of one, a row turned, too few records."""
    study, n = content.study, content.n_common
    posterior = content.posterior
    assert sets_fault(folder, study, posterior, n) == ""
    turned = (*posterior.networks[1:], posterior.networks[0])
    said = sets_fault(folder, study, dataclasses.replace(posterior, networks=turned), n)
    assert f"were not drawn from network 1 of {posterior_json.FILE}" in said
    path = folder / set_file(number)
    kept = path.read_bytes()
    try:
        path.write_bytes(kept[: kept.rindex(b"\n", 0, -1) + 1])
        with pytest.raises(GateFailed, match=f"set-{number}.csv: has {n - 1} records, expected {n}"):
            sets_fault(folder, study, posterior, n)
        path.write_bytes(kept)
        frame = pd.read_csv(path)
        frame.assign(smoker=frame["smoker"].iloc[0]).to_csv(path, index=False)
        assert f"set-{number}.csv: column '" in sets_fault(folder, study, posterior, n)
    finally:
        path.write_bytes(kept)


def test_planted_records_are_found(content, folder):
    """The release's own records, of which every third is of one network: all of them from the first one are found."""
    _, frame = draw_release_records(
        content.network, content.study, content.n_common, sampled=content.posterior.networks[:1] * 3
    )
    made = dataclasses.replace(content, synthetic=frame)
    planted = write_release(folder.parent / "planted", made)
    assert "synthetic.csv: column" in refusal(planted)
    assert "were not drawn from network 2" in refusal(planted)


def test_honest_records_pass():
    """40 releases at the level 5e-7: one alarm has a probability below 2e-5."""
    variables = release_study_of_two().schema.variables
    networks = [random_network(variables, graph, seed=place) for place, graph in enumerate(GRAPHS)]
    for method in ("systematic", "independent"):
        for seed in range(20):
            codes = _sample_in_turn(networks, 500, np.random.default_rng(seed), method)
            for place, network in enumerate(networks):
                assert unlikely_family(network, [column[place::3] for column in codes], FALSE_ALARMS / 6) is None


def test_a_posterior_belongs_to_a_study_that_samples_graphs(content, release_content):
    with pytest.raises(ValueError, match="samples graphs, and no other one"):
        dataclasses.replace(release_content, posterior=content.posterior)
    with pytest.raises(ValueError, match="samples graphs, and no other one"):
        dataclasses.replace(content, posterior=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"networks": ()}, "0 networks, expected 3"),
        ({"consensus": Dag(parents=((),) * 5)}, "the consensus is not the graph of model.json"),
        ({"predictive": ()}, "the statistics are not those that the study names"),
        (
            {"graphs": ((Dag(parents=GRAPHS[0]), 0.6), (Dag(parents=GRAPHS[1]), 0.6))},
            "2 graphs with shares of 1.2 together",
        ),
        (
            {"graphs": ((Dag(parents=GRAPHS[0]), 0.0),) * 1001},
            "1001 graphs with shares of 0 together, expected at most 1000",
        ),
        ({"graphs": ((Dag(parents=((1, 2, 3), (), (), (), ())), 0.6),)}, "more than 2 parents"),
    ],
)
def test_what_is_no_posterior_of_the_study_is_refused(content, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(content, posterior=dataclasses.replace(content.posterior, **changes))


def test_what_is_forbidden_is_in_no_graph(content):
    """Verification reads the constraints of the study, for every network and every listed graph."""
    from verticil.shared.release.posterior import posterior_fault

    structure = dataclasses.replace(content.study.structure, forbidden=(("smoker", "age"),))
    study = dataclasses.replace(content.study, structure=structure)
    assert "does not permit" in posterior_fault(study, content.posterior, content.network.dag)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="x"), "format: got 'x'"),
        (lambda d: d.update(version=2), "version: got 2, this software reads 1"),
        (lambda d: d["variables"].reverse(), "they are not those of the study"),
        (lambda d: d.update(source="heaven"), "source: expected one of records"),
        (lambda d: d["networks"].update(unit=1.0), "expected 2"),
        (lambda d: d["networks"]["listed"][0].pop(), "4 tables, expected one for each of 5 variables"),
        (lambda d: d["networks"]["listed"][0][0].update(parents=[1]), "cycle"),
        (lambda d: d["networks"]["listed"][0][0].update(probability=[[1, 1, 1]]), "does not sum to 1"),
        (lambda d: d["networks"]["listed"][0][0].update(probability=[[1, 1]]), "expected 1 rows of 3 numbers"),
        (lambda d: d["edges"][0].update(probability=1.5), "got 1.5, expected 0 to 1"),
        (lambda d: d["edges"][0].update(parent="x"), "names no variable"),
        (lambda d: d["consensus"].pop(), "4 lists of parents, expected one for each of 5 variables"),
        (lambda d: d["pairs"][0].update(low=[[0.1]]), "expected 3 rows of 2 numbers"),
        (lambda d: d["pairs"][0].update(variables=["age"]), "expected two"),
        (lambda d: d["predictive"][0].update(interval=[1]), "expected null or two numbers"),
        (lambda d: d["graphs"]["listed"][0].update(share=-0.1), "expected 0 to 1"),
    ],
)
def test_what_is_no_posterior_is_refused(content, folder, change, message):
    document = json.loads((folder / posterior_json.FILE).read_bytes())
    change(document)
    with pytest.raises(GateFailed, match=message) as caught:
        posterior_json.read(json.dumps(document).encode(), content.study.schema)
    assert caught.value.code == "RELEASE_INVALID"


def test_networks_that_are_not_rounded_are_not_written(content):
    networks = [random_network(content.study.schema.variables, graph, rounded=False) for graph in GRAPHS]
    other = dataclasses.replace(content.posterior, networks=tuple(networks))
    with pytest.raises(ValueError, match="no multiple of 2"):
        posterior_json.write(other, content.study.schema, DIGESTS)


def test_what_is_fetched_may_be_so_large(content, release_content, folder):
    limits, others = (release_limits(c.study, c.n_common, total=2**30).files for c in (content, release_content))
    assert limits.keys() - others.keys() == {posterior_json.FILE, *map(set_file, (1, 2, 3))}
    for name in posterior_files(content.study):
        assert (folder / name).stat().st_size < limits[name]
    assert limits[set_file(1)] == limits["synthetic.csv"]
    assert posterior_files(release_content.study) == {}


def test_more_records_come_from_every_network(content, folder, tmp_path, capsys):
    """One network after the other, in equal parts; the consensus where it is asked for, and where evidence is given."""
    command = ["release", "sample", str(folder), "-n", "3001", "--seed", "4", "--format", "json", "--out"]
    assert main([*command, str(tmp_path / "all.csv")]) == 0
    assert json.loads(capsys.readouterr().out)["from"] == "posterior"
    codes = read_records(tmp_path / "all.csv", content.study.schema, 3001)
    for network, part in zip(
        content.posterior.networks, (slice(1001), slice(1001, 2001), slice(2001, 3001)), strict=True
    ):
        assert unlikely_family(network, [column[part] for column in codes], FALSE_ALARMS) is None
    assert main([*command, str(tmp_path / "one.csv"), "--from", "network"]) == 0
    assert "from" not in json.loads(capsys.readouterr().out)
    one = read_records(tmp_path / "one.csv", content.study.schema, 3001)
    assert unlikely_family(content.network, one, FALSE_ALARMS) is None
    assert unlikely_family(content.network, codes, FALSE_ALARMS) is not None
    assert main([*command, str(tmp_path / "given.csv"), "--given", "smoker=yes"]) == 0
    assert set(read_records(tmp_path / "given.csv", content.study.schema, 3001)[1].tolist()) == {1}
    capsys.readouterr()
    refused = [*command, str(tmp_path / "no.csv"), "--from", "posterior"]
    assert main([*refused, "--given", "smoker=yes"]) == 2
    assert "equal parts of each are no records" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_only_a_release_with_a_posterior_has_its_networks(release_content, tmp_path, capsys):
    folder = write_release(tmp_path / "plain", release_content)
    command = ["release", "sample", str(folder), "-n", "5", "--out", str(tmp_path / "x.csv"), "--from", "posterior"]
    assert main([*command, "--format", "json"]) == 2
    assert "has no posterior.json" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_sets_of_too_many_people_are_refused_before_any_work(content, release_content):
    check_sets(content.study, 1_000_000)
    check_sets(release_content.study, 10**9)
    with pytest.raises(DataFault, match="3 sets of 20000000 records with 5 variables have 300000000 cells") as caught:
        check_sets(content.study, 20_000_000)
    assert caught.value.code == "LEARNING_FAILED"
    assert "data_sets" in caught.value.hint

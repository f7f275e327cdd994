"""A release with a joint model: model.json and joint.bifxml hold it, every reader the same numbers, and a study can refuse it."""

from __future__ import annotations

import base64
import dataclasses
import doctest
import functools
import itertools
import json
import operator
import re
import warnings

import numpy as np
import pytest

from support.releases import random_mixture, random_records, with_joint
from verticil.shared.core.errors import DataFault, GateFailed
from verticil.shared.documents.json_document import JsonNode
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.model.joint import Mixture, WeightedRecords
from verticil.shared.numerics.model.network import PairEstimate
from verticil.shared.numerics.model.rounding import RESOLUTION, round_joint
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats import joint, model_json
from verticil.shared.release.limits import release_limits
from verticil.shared.release.report.page import render
from verticil.shared.study import canonical
from verticil.shared.study.document import CustomRule
from verticil.shared.study.unit import Unit
from verticil.shared.synthesis.marginals import DIFFERS, WITHIN, pair_accuracy

KINDS = {"mixture": random_mixture, "records": random_records}


@pytest.fixture(params=list(KINDS))
def content(request, release_content):
    return with_joint(release_content, KINDS[request.param](release_content.study.schema.n_states))


def same(one, other) -> None:
    assert type(one) is type(other)
    np.testing.assert_array_equal(one.weights, other.weights)
    if isinstance(one, Mixture):
        for mine, theirs in zip(one.probability, other.probability, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    else:
        np.testing.assert_array_equal(one.codes, other.codes)


def test_the_release_has_it_and_reads_it_back(content, release_content, tmp_path):
    folder = write_release(tmp_path / "joint", content)
    document = (folder / "model.json").read_bytes()
    assert model_json.read(document).schema == content.study.schema
    same(model_json.read_joint(document, content.study.schema), content.joint)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert joint.FILE in files
    plain = write_release(tmp_path / "plain", release_content)
    assert not (plain / joint.FILE).exists()
    written = (plain / "model.json").read_bytes()
    assert b'"joint"' not in written
    assert model_json.read_joint(written, content.study.schema) is None
    for name in ("network.bif", "network.bifxml", "labels.json", "study.json"):  # the network stays beside it
        assert (plain / name).read_bytes() == (folder / name).read_bytes()


def test_the_report_says_where_records_come_from_and_how_far_they_are(content, release_content):
    first, second = 0, 2
    shares = content.joint.shares((first, second))
    pair = PairEstimate(
        first=first, second=second, estimate=np.full((3, 2), 1 / 6), low=shares - 1e-3, high=shares + 1e-3, exact=False
    )
    shown = dataclasses.replace(
        content, pairs=(pair,), joint_facts={"reached": False, "share_of_the_model": 0.75, "tables_nearer": 1.83}
    )
    (known,) = shown.accuracy
    np.testing.assert_allclose(known.joint, shares, atol=1e-12)
    assert known.verdict == WITHIN
    assert pair_accuracy(content.network, (pair,), content.codes, 1234)[0].verdict == DIFFERS  # of the network
    words = " ".join(re.sub(r"<[^>]*>", "", render(shown)).split())
    kind = "a mixture of 6 products" if isinstance(content.joint, Mixture) else "40 weighted records"
    off = 100 * np.abs(shares - 1 / 6).sum() / 2
    for said in (
        f"The synthetic records come from {kind}",
        "The joint model fits its tables less closely than expected.",
        "The noisy tables themselves are estimated to be 1.8 times nearer to the people.",
        "The dependence that was found is kept to 75%",
        f"the joint model counts {off:.1f}% of the people in another combination",
        "Verdict on the joint model",
        "were drawn from the joint model",
        "joint.bifxml",
    ):
        assert said in words, said
    assert "0 of 1 differ by more than noise explains" in words
    units = tuple(
        dataclasses.replace(unit, transition=quantize(identity(unit.transition.n_states)))
        for unit in content.study.units
    )
    study = dataclasses.replace(content.study, units=units)
    exact = dataclasses.replace(shown, study=study, effective_digest=canonical.digest(study).hex())
    assert "less closely than expected" not in render(exact)
    plain = render(dataclasses.replace(release_content, pairs=(pair,)))
    assert "joint" not in re.sub(r"<style>.*?</style>", "", plain, flags=re.DOTALL).lower()


def test_the_document_by_hand(content):
    """Every number of model.json as the format's text says, without the reader."""
    part = joint.document(content.joint, content.study.schema)
    weights = np.array(part["weights"]) * part["unit"]
    for place, table in enumerate(part["tables"]):
        k = content.study.schema.n_states[place]
        if part["kind"] == "mixture":
            share = weights @ np.array(table["probability"]) * part["unit"]
        else:
            share = np.bincount(list(base64.b64decode(table["codes"])), weights=weights, minlength=k)
        np.testing.assert_allclose(share, content.joint.shares([place]), atol=1e-12)


@pytest.mark.parametrize("reader", ["pgmpy", "pyagrum"])
def test_other_programs_give_the_tables_of_pairs(hard_network, tmp_path, reader):
    """By their own inference or algebra of factors, on names that readers get wrong, one of them the root's own."""
    variables = list(hard_network.schema.variables)
    variables[1] = dataclasses.replace(variables[1], name="Component")
    schema = Schema(variables=tuple(variables))
    for model in (random_mixture(schema.n_states), random_records(schema.n_states)):
        path = tmp_path / joint.FILE
        path.write_bytes(joint.to_xmlbif(model, schema))
        for a, b in itertools.permutations(range(len(schema)), 2):
            shares = PROGRAMS[reader](path, schema, a, b)
            assert np.abs(shares - model.shares((a, b))).max() <= 1e-9


def _pgmpy(path, schema, a, b):
    from pgmpy.readwrite import XMLBIFReader

    model = XMLBIFReader(str(path)).get_model()
    names = [schema.names[v] for v in (a, b)]
    (root,) = set(model.nodes()) - set(schema.names)
    found = functools.reduce(operator.mul, (model.get_cpds(name).to_factor() for name in (root, *names)))
    found.marginalize([root])
    axes = [found.variables.index(name) for name in names]
    places = [
        [found.state_names[name].index(label) for label in schema.variables[schema.index(name)].labels]
        for name in names
    ]
    return np.transpose(found.values, axes)[np.ix_(*places)]


def _pyagrum(path, schema, a, b):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"builtin type \w+ has no __module__ attribute", DeprecationWarning)
        import pyagrum
    network = pyagrum.loadBN(str(path))
    inference = pyagrum.LazyPropagation(network)
    names = [schema.names[v] for v in (a, b)]
    inference.addJointTarget(set(names))
    inference.makeInference()
    found = inference.jointPosterior(set(names))
    return np.array(
        [[found[{names[0]: one, names[1]: two}] for two in schema[b].labels] for one in schema[a].labels], dtype=float
    )


PROGRAMS = {"pgmpy": _pgmpy, "pyagrum": _pyagrum}


def test_rounding_keeps_zeros_and_sums(content):
    for table in content.joint.probability if isinstance(content.joint, Mixture) else ():
        assert (table.sum(axis=1) == 1).all()
    assert content.joint.weights.sum() == 1
    assert (content.joint.weights * RESOLUTION % 1 == 0).all()
    same(round_joint(content.joint), content.joint)


def test_what_is_not_rounded_is_not_written(release_content):
    schema = release_content.study.schema
    third = Mixture(weights=np.full(3, 1 / 3), probability=random_mixture(schema.n_states, 3).probability)
    with pytest.raises(ValueError, match=r"no multiple of 2\^-24"):
        joint.document(third, schema)


def test_as_much_as_is_promised_fits_and_more_is_refused(monkeypatch):
    schema = Schema(variables=tuple(
        Variable(name=f"a & b {v}", owner="clinic", labels=tuple(f"<{code}>" for code in range(k)))
        for v, k in enumerate((300, 4, 30))
    ))  # fmt: skip
    monkeypatch.setattr(joint, "LIMIT", 600_000)
    for make, most in ((random_mixture, joint.most_components(schema)), (random_records, joint.most_records(schema))):
        assert most > 50
        assert 300_000 < len(joint.to_xmlbif(make(schema.n_states, most), schema)) <= joint.LIMIT
        assert joint.fits(make(schema.n_states, most), schema)
        assert not joint.fits(make(schema.n_states, most + 1), schema)
        with pytest.raises(DataFault, match="expected at most 1 MB: about") as caught:
            joint.to_xmlbif(make(schema.n_states, 2 * most), schema)
        assert caught.value.code == "LEARNING_FAILED"
        assert "network" in caught.value.hint


@pytest.mark.parametrize("n_states", [(2,) * 12, (20,) * 9, (2, 3) * 20, (60,) * 16])
def test_as_many_records_as_are_fitted_can_be_published(n_states):
    schema = Schema(variables=tuple(
        Variable(name=f"variable {v}", owner="hospital", labels=tuple(f"category {code}" for code in range(k)))
        for v, k in enumerate(n_states)
    ))  # fmt: skip
    assert atoms.n_atoms(n_states) <= joint.most_records(schema)


def test_more_records_than_a_column_can_have_categories():
    """In their own units, none lost."""
    codes = np.stack(np.unravel_index(np.arange(90_000), (300, 300)), axis=1).astype(np.uint16)
    model = round_joint(WeightedRecords(n_states=(300, 300), codes=codes, weights=np.full(90_000, 1 / 90_000)))
    assert model.weights.sum() == 1
    assert (model.weights > 0).all()


def test_records_of_wide_columns_are_kept_in_two_bytes():
    schema = Schema(variables=(Variable(name="x", owner="a", labels=tuple(map(str, range(300)))),))
    model = round_joint(
        WeightedRecords(n_states=(300,), codes=np.arange(300, dtype=np.uint16)[:, None], weights=np.full(300, 1 / 300))
    )
    same(joint.read(JsonNode(joint.document(model, schema), where="model.json: joint"), schema), model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part.update(kind="forest"), "kind: expected mixture or records"),
        (lambda part: part.update(unit=0.5), "unit: expected"),
        (lambda part: part["tables"].pop(), "expected one for each variable"),
        (lambda part: part["weights"].append(1), "not a distribution|shape|fit"),
        (lambda part: part["tables"][0].update(probability=[[1]], codes="?"), "expected 3 numbers in each row|Base64"),
        (lambda part: part["tables"][0].update(probability=[[1, 1, 1]], codes="/w=="), "for 6 components|same shape"),
    ],
)
def test_what_is_no_joint_model_is_refused(content, change, message):
    part = joint.document(content.joint, content.study.schema)
    change(part)
    with pytest.raises(GateFailed, match=message) as caught:
        joint.read(JsonNode(part, where="model.json: joint"), content.study.schema)
    assert caught.value.code == "RELEASE_INVALID"


def test_a_release_does_not_undo_what_its_study_keeps_apart(release_content):
    study = release_content.study
    model = random_mixture(study.schema.n_states)
    first, second, third = study.schema.names[:3]
    for change in (
        {"structure": dataclasses.replace(study.structure, custom=CustomRule(target=second, sensitive=(third,)))},
        {"structure": dataclasses.replace(study.structure, forbidden=((first, third),))},
        {"release": dataclasses.replace(study.release, sample_from="network")},
    ):
        other = dataclasses.replace(study, **change)
        digest = canonical.digest(other).hex()
        with pytest.raises(ValueError, match=r"the joint model: .*(network|edges)"):
            dataclasses.replace(release_content, study=other, effective_digest=digest, joint=model)
    pair = Unit(
        variables=(first, second), owner="clinic", scheme="matrix",
        transition=study.units[0].transition, impossible=((0, 1), (1, 1), (2, 1)),
    )  # fmt: skip
    units = (pair, *study.units[2:])
    other = dataclasses.replace(study, units=units)
    with pytest.raises(ValueError, match="a combination that the study declares impossible has a share"):
        dataclasses.replace(release_content, study=other, effective_digest=canonical.digest(other).hex(), joint=model)
    with pytest.raises(ValueError, match="its variables are not the study's"):
        dataclasses.replace(release_content, joint=random_mixture((2, 2)))


def test_what_is_fetched_may_be_so_much_larger(release_content):
    study = release_content.study
    without = dataclasses.replace(study, release=dataclasses.replace(study.release, sample_from="network"))
    limits, others = (release_limits(item, 1000, total=2**30).files for item in (study, without))
    assert limits[joint.FILE] == joint.LIMIT
    assert joint.FILE not in others
    assert limits["model.json"] > others["model.json"] + 0.99 * joint.LIMIT


def test_examples_in_the_docstrings():
    assert doctest.testmod(joint).failed == 0

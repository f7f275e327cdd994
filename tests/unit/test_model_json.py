"""model.json: complete, canonical, and refused when it does not hold."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import rfc8785

from verticil.shared.core.errors import GateFailed
from verticil.shared.numerics.model.network import Projection
from verticil.shared.release.formats import model_json
from verticil.shared.study.document import CustomRule


@pytest.fixture(scope="module")
def context(release_content):
    return model_json.ModelContext(
        study=release_content.study, study_digest="ab" * 32, effective_digest=release_content.effective_digest,
        n_common=release_content.n_common, search=release_content.search, simulation=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(release_content, context) -> bytes:
    return model_json.write(release_content.network, release_content.marginals, context)


def test_the_network_comes_back_as_it_was(release_content, data):
    network, again = release_content.network, model_json.read(data)
    assert again.schema == network.schema
    assert again.dag == network.dag
    for ours, theirs in zip(network.families, again.families, strict=True):
        for name in ("probability", "estimate", "standard_error", "interval_low", "interval_high", "unstable"):
            np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))


def test_the_bytes_are_canonical_and_the_same_again(release_content, context, data):
    assert rfc8785.dumps(json.loads(data)) == data
    assert model_json.write(release_content.network, release_content.marginals, context) == data


def test_what_a_cell_says(release_content, data):
    document = json.loads(data)
    assert document["structure"]["edges"] == [
        ["age", "smoker"],
        ["age", "income"],
        ["smoker", "income"],
        ["income", "region"],
    ]
    for ours, family in zip(release_content.network.families, document["families"], strict=True):
        for row, config in enumerate(ours.unstable):
            for state, unstable in enumerate(config):
                assert family["unstable"][row][state] is bool(unstable)
                assert (family["interval"][row][state] is None) == bool(unstable)
                if not unstable:
                    low, high = family["interval"][row][state]
                    assert 0 <= low <= high <= 1
    assert "conditional on the structure" in document["parameters"]["statement"]
    assert [variable["owner"] for variable in document["variables"]] == [
        "clinic",
        "clinic",
        "registry",
        "registry",
        "registry",
    ]
    assert [marginal["variable"] for marginal in document["marginals"]] == list(release_content.network.schema.names)


def test_every_parameter_and_share_has_an_error_and_an_interval(release_content, data):
    document = json.loads(data)
    for ours, family in zip(release_content.network.families, document["families"], strict=True):
        assert np.array(family["standard_error"], dtype=float).shape == ours.probability.shape
        for row, given in enumerate(ours.unstable):
            for state in np.flatnonzero(~given):
                assert family["standard_error"][row][state] > 0
                assert family["interval"][row][state] is not None
    for marginal, variable in zip(document["marginals"], document["variables"], strict=True):
        for key in ("estimate", "standard_error", "interval"):
            assert len(marginal[key]) == len(variable["labels"])
            assert None not in marginal[key]


def test_what_was_projected_is_said_and_read_back(release_content, context):
    network = release_content.network
    families = tuple(
        dataclasses.replace(family, projection=Projection(mass_moved=0.125 * position, negative_cells=position))
        for position, family in enumerate(network.families)
    )
    told = dataclasses.replace(network, families=families)
    data = model_json.write(told, release_content.marginals, context)
    document = json.loads(data)
    assert document["families"][3]["projection"] == {"mass_moved": 0.375, "negative_cells": 3}
    assert document["parameters"]["projection"]["estimator"] == "em"
    assert [family.projection for family in model_json.read(data).families] == [f.projection for f in families]
    for family in document["families"]:
        del family["projection"]  # a model of the first version
    old = model_json.read(json.dumps(document).encode())
    assert [family.projection for family in old.families] == [None] * len(families)


@pytest.mark.parametrize(
    ("estimator", "words"), [("em", "constrained EM"), ("clip", "set to 0"), ("simplex", "by least squares")]
)
def test_the_estimator_is_named(release_content, context, estimator, words):
    study = dataclasses.replace(
        context.study, parameters=dataclasses.replace(context.study.parameters, estimator=estimator)
    )
    data = model_json.write(
        release_content.network, release_content.marginals, dataclasses.replace(context, study=study)
    )
    parameters = json.loads(data)["parameters"]
    assert words in parameters["probability"]
    assert parameters["projection"]["estimator"] == estimator


def test_the_privacy_figures(data):
    """Closed forms: randomization.md section 1.1. The last column is sent as it is, so the total has no bound."""
    privacy = json.loads(data)["privacy"]
    age, smoker, income, weight, region = privacy["columns"]
    assert age["epsilon"] == pytest.approx(2.0, abs=1e-12)
    assert smoker["gamma"] == pytest.approx(7.5, abs=1e-12)  # Ma & Sivakumar Table 1, row C,F, by the column rule
    assert (smoker["kept_least"], smoker["kept_most"]) == pytest.approx((0.75, 0.9), abs=1e-12)
    assert income["posterior_of_prior_0.15"] == pytest.approx(0.15 * 9 / (1 + 0.15 * 8), abs=1e-12)
    assert weight["kept_least"] == pytest.approx(math.e / (math.e + 2), abs=1e-12)
    assert (region["bounded"], region["epsilon"], region["gamma"]) == (False, None, None)
    assert (privacy["bounded"], privacy["epsilon_per_person"]) == (False, None)
    numerator, denominator = map(int, smoker["gamma_exact"].split("/"))
    assert numerator / denominator == smoker["gamma"]


def _edit(change):
    def edited(data: bytes) -> bytes:
        document = json.loads(data)
        change(document)
        return json.dumps(document).encode()

    return edited


def _cycle(data: bytes) -> bytes:
    document = json.loads(data)
    parent, child = document["families"][0], document["families"][1]
    parent["parents"] = ["smoker"]
    for key in ("probability", "estimate", "standard_error", "interval", "unstable"):
        parent[key] = parent[key] * 2
    assert child["parents"] == ["age"]
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "not a JSON document"),
        (lambda data: b"\xff" + data, "not a JSON document"),
        (lambda data: b'{"format":1,"format":2}', "a key is repeated"),
        (lambda data: b'{"format":NaN}', "NaN is not JSON"),
        (lambda data: b"[" * 100_000, "nested too deeply"),
        (lambda data: b"[]", "expected an object"),
        (_edit(lambda d: d.update(format="other")), "expected 'verticil-model'"),
        (_edit(lambda d: d.update(version=2)), "this software reads 1"),
        (_edit(lambda d: d.pop("families")), "'families' is missing"),
        (_edit(lambda d: d["families"].pop()), "families"),
        (_edit(lambda d: d["families"][1]["parents"].append("nobody")), "names no variable"),
        (_edit(lambda d: d["families"][1]["probability"].pop()), "expected 3 rows of 2 numbers"),
        (_edit(lambda d: d["families"][1]["probability"][0].__setitem__(0, 0.9)), "does not sum to 1"),
        (_edit(lambda d: d["families"][1]["probability"][0].__setitem__(0, "x")), "expected a list of numbers"),
        (_edit(lambda d: d["families"][1]["interval"][0].__setitem__(0, [0.1])), "expected null or two numbers"),
        (_edit(lambda d: d["families"][1]["unstable"][0].__setitem__(0, 1)), "expected true or false"),
        (_edit(lambda d: d["families"][0]["parents"].append("region")), "expected 2 rows of 3 entries"),
        (_cycle, "cycle"),
        (_edit(lambda d: d["variables"][0].update(outside="?")), "expected error or clamp"),
        (_edit(lambda d: d["variables"][0].update(labels=["a", "a", "b"])), "not distinct"),
    ],
)
def test_what_does_not_hold_is_refused(data, damage, message):
    with pytest.raises(GateFailed, match=message) as caught:
        model_json.read(damage(data))
    assert (caught.value.code, caught.value.exit_code) == ("RELEASE_INVALID", 6)


@pytest.mark.parametrize("number", [b"1" + b"0" * 400, b"1e999", b"-1e999"])
def test_a_number_that_no_double_holds_is_refused(data, number):
    start = data.index(b'"estimate":[[') + len(b'"estimate":[[')
    end = data.index(b",", start)
    with pytest.raises(GateFailed, match="a double can hold") as caught:
        model_json.read(data[:start] + number + data[end:])
    assert caught.value.code == "RELEASE_INVALID"


def test_a_custom_network_is_stated_with_its_consequence(release_content, context, data):
    study = release_content.study
    rule = dataclasses.replace(
        study.structure, custom=CustomRule(target="income", sensitive=("region",), hide_from=("smoker",))
    )
    custom = dataclasses.replace(context, study=dataclasses.replace(study, structure=rule))
    stated = json.loads(model_json.write(release_content.network, release_content.marginals, custom))["structure"]
    assert stated["custom_network"]["target"] == "income"
    assert stated["custom_network"]["sensitive"] == ["region"]
    assert stated["custom_network"]["hidden_from"] == ["smoker"]
    assert "learns no more about the sensitive variables than 'income' tells" in stated["custom_network"]["consequence"]
    assert "custom_network" not in json.loads(data)["structure"]

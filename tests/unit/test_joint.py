"""Statements of parameters: exact, read back as foreign input, and assembled to the same release by everybody."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np
import pytest
import rfc8785

from verticil.shared.core.errors import PeerFault
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.release.content import FILES
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats import model_json
from verticil.shared.release.peer_assembly import assemble
from verticil.shared.release.statement import parse_statement, software_text, statement_body
from verticil.shared.study import canonical
from verticil.shared.study.document import ShareRule
from verticil.shared.study.structure_document import parse_structure, structure_body
from verticil.wire.v1 import common_pb2


def _sign(body: bytes) -> common_pb2.Signed:
    """Assembling does not look at signatures; the caller has."""
    return common_pb2.Signed(body=body, signature=b"s", certificate=b"c")


@pytest.fixture(scope="module")
def case(peer_case, peer_study):
    return peer_case(peer_study(share=ShareRule(minimum_count=60)))


@pytest.fixture(scope="module")
def bodies(case):
    return [
        statement_body(case.statement(party, minute=minute), case.study)
        for minute, party in enumerate(case.study.parties)
    ]


def _assemble(case, bodies):
    return assemble(
        case.study, b"p" * 32, case.structure, [_sign(body) for body in bodies], simulation=True, seed_derived=False
    )


def test_every_number_comes_back_exactly(case, bodies):
    for party, body in zip(case.study.parties, bodies, strict=True):
        ours, theirs = case.statement(party), parse_statement(body, case.study)
        assert (theirs.party, theirs.n_common, theirs.software) == (party, 3000, software_text())
        assert theirs.received == ours.received
        for mine, read in zip((*ours.families, *ours.marginals), (*theirs.families, *theirs.marginals), strict=True):
            for name in ("estimate", "standard_error", "interval_low", "interval_high"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(read, name))
        for mine, read in zip(ours.families, theirs.families, strict=True):
            np.testing.assert_array_equal(mine.probability, read.probability)
            np.testing.assert_array_equal(mine.unstable, read.unstable)
            np.testing.assert_array_equal(mine.replaced, read.replaced)
            assert mine.projection == read.projection
        assert np.isnan(theirs.marginals[0].model).all()
    assert any(np.isnan(family.estimate).any() for family in case.statement("clinic").families)  # NaN was among them


def test_two_parties_write_the_same_bytes(case, bodies, tmp_path):
    """From the same statements, in whatever order they came: byte-identical folders, tables and report included."""
    folders = [
        write_release(tmp_path / "one", _assemble(case, bodies)),
        write_release(tmp_path / "two", _assemble(case, bodies[::-1])),
    ]
    for name in (*FILES, "manifest.json"):
        first, second = ((folder / name).read_bytes() for folder in folders)
        assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest(), name


def test_what_is_assembled_is_what_was_stated(case, bodies):
    content = _assemble(case, bodies)
    assert content.published_text == "2026-11-21T10:02:00Z"  # the latest statement
    assert (content.n_common, len(content.synthetic), content.study_digest) == (3000, 300, (b"p" * 32).hex())
    assert content.provenance == {"model_marginals": "exact", "software": software_text()}
    assert dict(content.search) == {"method": "given"}
    for party in case.study.parties:
        for family in case.statement(party).families:
            np.testing.assert_allclose(
                content.network.families[family.child].probability, family.probability, atol=2**-24
            )
    # P(smoker) = sum over age of P(age) P(smoker | age), by hand
    age, smoker = content.network.families[0].probability[0], content.network.families[1].probability
    np.testing.assert_allclose(content.marginals[1].model, age @ smoker, atol=1e-12)


def test_as_many_records_as_common_people_by_default(peer_case, peer_study):
    study = peer_study()
    study = dataclasses.replace(study, release=dataclasses.replace(study.release, synthetic_records=None))
    case = peer_case(study, n=500)
    content = _assemble(case, [statement_body(case.statement(party), study) for party in study.parties])
    assert len(content.synthetic) == 500


def test_the_model_says_who_learned_what(case, bodies, tmp_path):
    folder = write_release(tmp_path / "r", _assemble(case, bodies))
    document = json.loads((folder / "model.json").read_text())
    assert document["study"]["model"] == "peer"
    origins = {f["child"]: (f["learned_by"], f["kind"], f["cross_parents"]) for f in document["families"]}
    assert origins == {
        "age": ("clinic", "local", []),
        "smoker": ("clinic", "local", []),
        "income": ("registry", "cross", ["age"]),
        "region": ("registry", "local", []),
        "claims": ("insurer", "cross", ["smoker", "income"]),
        "plan": ("insurer", "local", []),
    }
    peer = document["peer"]
    assert (peer["exact_parameters"], peer["share"], peer["minimum_count"]) == (True, None, 60)
    assert "exact functions of the raw data of their owner" in peer["statement"]
    assert [(c["variables"], c["read_by"]) for c in peer["columns"]] == [
        (["age"], ["registry"]), (["smoker"], ["insurer"]), (["income"], ["insurer"])
    ]  # fmt: skip
    network = model_json.read((folder / "model.json").read_bytes())
    assert (network.families[1].replaced == np.array(document["families"][1]["replaced"])).all()


@pytest.mark.parametrize("reader", ["pgmpy", "pyagrum"])
def test_other_programs_read_it(case, bodies, tmp_path, request, difference, reader):
    read = request.getfixturevalue(f"read_with_{reader}")
    folder = write_release(tmp_path / "r", _assemble(case, bodies))
    schema = case.study.schema
    network = model_json.read((folder / "model.json").read_bytes())
    labels = tuple(variable.labels for variable in schema.variables)
    assert difference(network, read(folder / "network.bifxml"), schema.names, labels) < 1e-6


def test_noise_is_told_with_its_size(peer_case, peer_study, tmp_path):
    case = peer_case(peer_study(share=ShareRule(noise="discrete-gaussian", epsilon=2.0, delta=1e-6)))
    bodies = [statement_body(case.statement(party), case.study) for party in case.study.parties]
    folder = write_release(tmp_path / "r", _assemble(case, bodies))
    for name in ("model.json", "manifest.json"):
        peer = json.loads((folder / name).read_text())["peer"]
        assert not peer["exact_parameters"]
        assert peer["share"]["noise"] == "discrete-gaussian"
        assert peer["statement"].startswith("Each party added discrete Gaussian noise to")
        assert (peer["share"]["epsilon"], peer["share"]["delta"]) == (2.0, 1e-6)
        assert "replace one person's columns" in peer["share"]["relation"]
        # Two tables each: sqrt(2 * 2) times the sigma of sensitivity 1, itself from the analytic formula.
        from verticil.shared.mechanisms.gaussian import analytic_sigma

        for row in peer["share"]["parties"]:
            assert row["tables"] == 2
            assert 1 <= row["sigma"] / (2 * analytic_sigma(2.0, 1e-6)) < 1.004


def test_a_learned_structure_goes_with_its_signature(peer_case, peer_study):
    given = peer_case(peer_study())
    rule = dataclasses.replace(given.study.structure, method="genetic", parents=None)
    study = dataclasses.replace(given.study, structure=rule)
    digest = canonical.digest(study)
    structure = parse_structure(
        structure_body(digest, given.structure.dag.parents, {"method": "genetic"}), study, digest
    )
    statements = []
    for party in study.parties:
        stated = given.statement(party)
        # Each party scores its columns with those of all later parties, and reads its cross parents besides.
        readers = {"clinic": (2, 3, 4, 5), "registry": (0, 4, 5), "insurer": (1, 2)}
        received = tuple(
            dataclasses.replace(_received(given, unit), unit=unit, owner=study.units[unit].owner)
            for unit in readers[party]
        )
        statements.append(
            dataclasses.replace(stated, effective_digest=digest, structure_sha256=structure.sha256, received=received)
        )
    signed = [_sign(statement_body(statement, study)) for statement in statements]
    content = assemble(
        study, b"p" * 32, structure, signed, simulation=True, seed_derived=False, structure_signed=_sign(structure.body)
    )
    assert dict(content.search) == {"method": "genetic"}
    with pytest.raises(ValueError, match="has a signature"):
        assemble(study, b"p" * 32, structure, signed, simulation=True, seed_derived=False)
    with pytest.raises(ValueError, match="another structure"):
        assemble(
            study, b"p" * 32, structure, signed, simulation=True, seed_derived=False, structure_signed=_sign(b"{}")
        )


def _received(case, unit):
    template = case.statement("registry").received[0]
    digest = hashlib.sha256(case.released[unit].tobytes()).digest()
    return dataclasses.replace(template, artifact_sha256=digest)


# ---- foreign input ---------------------------------------------------------------------------------------------------


def _changed(body: bytes, change) -> bytes:
    document = json.loads(body)
    change(document)
    return rfc8785.dumps(document)


def _set(*path_and_value):
    *path, last, value = path_and_value

    def change(document):
        for key in path:
            document = document[key]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("form", "verticil/parameters/v2"), "form"),
        (_set("party", "nobody"), "party"),
        (_set("party", "insurer"), "expected one for each of the 2 variables of 'insurer'"),
        (_set("effective_sha256", "ab" * 32), "effective_sha256"),
        (_set("n_common", 99), "n_common"),
        (_set("n_common", 3000.5), "n_common"),
        (_set("common_sha256", "AB" * 32), "64 lower-case"),
        (_set("structure_sha256", "ab"), "64 lower-case"),
        (_set("computed_at", "yesterday"), "expected a UTC time"),
        (_set("software", ""), "printable"),
        (_set("software", "x\x1b[2J"), "printable"),
        (_set("exact", False), "exact"),
        (_set("exact", 1), "exact"),
        (_set("extra", 1), "extra"),
        (_set("families", []), "families"),
        (_set("families", {}), "families"),
        (lambda d: d["families"].reverse(), "in the study's order"),
        (lambda d: d["families"].append(d["families"][0]), "in the study's order"),
        (lambda d: d["marginals"].pop(), "marginals"),
        (_set("families", 0, "child", 4), "in the study's order"),
        (_set("families", 0, "parents", [0, 0]), "ascending positions"),
        (_set("families", 0, "parents", [2]), "ascending positions"),
        (_set("families", 0, "parents", [17]), "ascending positions"),
        (_set("families", 0, "parents", "0"), "parents: got a string, expected a list"),
        (_set("families", 0, "probability", [[0.5, 0.5]]), r"probability has shape \(1, 2\), expected \(3, 2\)"),
        (_set("families", 0, "probability", 0, [0.5, 0.4]), "sum to 1"),
        (_set("families", 0, "probability", 0, [1.5, -0.5]), "sum to 1"),
        (_set("families", 0, "probability", 0, [None, 1.0]), "sum to 1"),
        (_set("families", 0, "probability", 0, ["0.5", 0.5]), "a double can hold"),
        (_set("families", 0, "probability", 0, [True, 0]), "a double can hold"),
        (_set("families", 0, "estimate", 0, [0.5]), "estimate: expected rows that are equally long"),
        (_set("families", 0, "standard_error", 0, [-1, 0]), "negative"),
        (_set("families", 0, "interval_low", 0, [2, 0]), "expected intervals"),
        (_set("families", 0, "interval_high", 0, [None, 1]), "expected intervals"),
        (_set("families", 0, "unstable", 0, [0, 1]), "true or false"),
        (_set("families", 0, "replaced", [[True]]), r"replaced has shape \(1, 1\)"),
        (_set("families", 0, "projection", {"mass_moved": -1, "negative_cells": 0}), "mass_moved"),
        (_set("families", 0, "projection", {"mass_moved": 0, "negative_cells": -1}), "negative_cells"),
        (_set("marginals", 0, "estimate", [0.5]), "expected 1 rows of 2"),
        (_set("marginals", 0, "standard_error", [None, -0.5]), "negative"),
        (_set("received", 0, "unit", 3), "owner"),
        (_set("received", 0, "unit", 9), "unit"),
        (_set("received", 0, "owner", "insurer"), "owner"),
        (_set("received", 0, "n_records", 2999), "n_records: got 2999, expected 3000"),
        (_set("received", 0, "sha256", "zz" * 32), "64 lower-case"),
        (lambda d: d["received"].append(d["received"][0]), "each unit once"),
    ],
)
def test_a_foreign_statement_is_read_with_suspicion(case, bodies, change, message):
    with pytest.raises(PeerFault, match=message) as caught:
        parse_statement(_changed(bodies[1], change), case.study)
    assert caught.value.code == "MESSAGE_INVALID"


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"form":1e999}', b"[" * 100_000, b" " * (2**25 + 1)])
def test_junk_is_one_clean_error(case, body):
    with pytest.raises(PeerFault) as caught:
        parse_statement(body, case.study)
    assert caught.value.code == "MESSAGE_INVALID"


def test_a_statement_has_one_form(case, bodies):
    """Blanks, another order of keys, 1.0 for 1: the same numbers, and refused."""
    spaced = json.dumps(json.loads(bodies[0])).encode()
    with pytest.raises(PeerFault, match="canonical form"):
        parse_statement(spaced, case.study)


def test_a_party_that_received_its_own_column_is_refused(case, bodies):
    change = _set("received", 0, {"unit": 2, "owner": "registry", "sha256": "00" * 32, "n_records": 3000})
    with pytest.raises(PeerFault, match="its own column"):
        parse_statement(_changed(bodies[1], change), case.study)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("common_sha256", "ab" * 32), "common list: 'insurer' states abab"),
        (_set("structure_sha256", "ab" * 32), "structure: 'insurer' states abab"),
        (_set("software", "verticil 9"), "software: 'insurer' states verticil 9"),
        (_set("received", []), r"units that 'insurer' read: got \(\), the structure asks for \(1, 2\)"),
        (_set("received", 0, "sha256", "ab" * 32), None),
    ],
)
def test_statements_that_do_not_belong_together_are_refused(case, bodies, change, message):
    changed = [*bodies[:2], _changed(bodies[2], change)]
    if message is None:  # one reader of a unit: nobody to compare with
        _assemble(case, changed)
        return
    with pytest.raises(PeerFault, match=message) as caught:
        _assemble(case, changed)
    assert caught.value.code == "STUDY_MISMATCH"


def test_other_numbers_of_people_are_shown(case, bodies):
    def fewer(document):
        document["n_common"] = 2000
        for received in document["received"]:
            received["n_records"] = 2000

    with pytest.raises(PeerFault, match="'insurer' states 2000, 'clinic' states 3000"):
        _assemble(case, [*bodies[:2], _changed(bodies[2], fewer)])


def test_two_readers_of_a_column_must_have_read_the_same(peer_case, peer_study):
    study = peer_study()
    parents = tuple((child, ("age",) if child in ("income", "plan") else of) for child, of in study.structure.parents)
    study = dataclasses.replace(study, structure=dataclasses.replace(study.structure, parents=parents))
    case = peer_case(study)
    bodies = [statement_body(case.statement(party), study) for party in study.parties]
    _assemble(case, bodies)
    with pytest.raises(PeerFault, match=r"unit 0 of 'clinic': 'insurer' read abab.*'registry' read"):
        _assemble(case, [*bodies[:2], _changed(bodies[2], _set("received", 0, "sha256", "ab" * 32))])


def test_other_parents_than_the_structure_s_are_refused(case, bodies, peer_case, peer_study):
    study = case.study
    parents = tuple((child, () if child == "plan" else of) for child, of in study.structure.parents)
    other = dataclasses.replace(study, structure=dataclasses.replace(study.structure, parents=parents))
    stated = peer_case(other).statement("insurer")
    mixed = dataclasses.replace(
        stated, effective_digest=canonical.digest(study), structure_sha256=case.structure.sha256
    )
    with pytest.raises(PeerFault, match="parents of variable 5"):
        _assemble(case, [*bodies[:2], statement_body(mixed, study)])


def test_each_party_states_once(case, bodies):
    for wrong in (bodies[:2], [*bodies[:2], bodies[1]], [*bodies, bodies[0]]):
        with pytest.raises(PeerFault, match="expected one of each of clinic, registry, insurer") as caught:
            _assemble(case, wrong)
        assert caught.value.code == "MESSAGE_INVALID"


def test_a_structure_of_another_study_is_no_structure_of_this_one(case):
    body = structure_body(canonical.digest(case.study), Dag(parents=((),) * 6).parents, {})
    assert parse_structure(body, case.study, canonical.digest(case.study)).sha256 != case.structure.sha256

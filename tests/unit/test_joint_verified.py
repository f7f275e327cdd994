"""A release with a joint model is checked: both files, the study, the records; by everybody, and by a party before it signs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from support.releases import random_mixture, random_records, with_joint
from verticil.shared.core.errors import GateFailed
from verticil.shared.documents.json_document import parse
from verticil.shared.numerics.model.joint import WeightedRecords
from verticil.shared.release import records
from verticil.shared.release.folder import writing
from verticil.shared.release.formats import joint
from verticil.shared.release.verification import _check_documents
from verticil.shared.synthesis.joint_records import joint_codes
from verticil.shared.synthesis.record_checks import FALSE_ALARMS, _all_among, unlikely_variables

N_STATES = (3, 2, 4, 2)
MODELS = {"mixture": random_mixture(N_STATES), "records": random_records(N_STATES)}
METHODS = ("systematic", "independent", "without-replacement")


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("method", METHODS)
def test_honest_records_pass_and_planted_ones_do_not(kind, method):
    """At the level 0.01, 60 times: by the bound, six false alarms or more have a probability below 4e-5."""
    model = MODELS[kind]
    alarms = 0
    for seed in range(60):
        codes = joint_codes(model, 300, generator=np.random.default_rng(seed), method=method, path="compiled")
        alarms += unlikely_variables(model, codes, 0.01) != ()
    assert alarms < 6
    codes = joint_codes(model, 2000, generator=np.random.default_rng(7), method=method)
    assert unlikely_variables(model, codes, FALSE_ALARMS) == ()
    shuffled = [*codes[:2], np.random.default_rng(0).permutation(codes[2]), codes[3]]
    reversed_codes = [2 - codes[0], *codes[1:]]
    for planted in (shuffled, reversed_codes, [column[:1].repeat(2000) for column in codes]):
        assert unlikely_variables(model, planted, FALSE_ALARMS) != ()


def test_a_record_that_is_none_of_the_weighted_ones():
    """Its pairs all occur: only the whole record does not."""
    codes = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]], dtype=np.uint16)
    model = WeightedRecords(n_states=(2, 2, 2), codes=codes, weights=np.full(4, 0.25))
    drawn = joint_codes(model, 400, generator=np.random.default_rng(1))
    assert unlikely_variables(model, drawn, FALSE_ALARMS) == ()
    drawn[2][0] ^= 1
    assert unlikely_variables(model, drawn, FALSE_ALARMS) == (0, 1, 2)


@pytest.mark.parametrize("n_states", [(3, 2, 4), (300,) * 9, (2,) * 70, (1, 2**16 - 1) * 5, (5,)], ids=str)
def test_known_records_are_told_apart_whatever_their_width(n_states):
    """Against sets of tuples; every record that differs from a known one in a single column is found, in each column."""
    generator = np.random.default_rng(3)
    records = np.stack([generator.integers(0, k, 200) for k in n_states], axis=1).astype(np.uint16)
    assert _all_among(list(records[generator.integers(0, 200, 1_000)].T), records)
    tuples = {tuple(row) for row in records.tolist()}
    for column, states in enumerate(n_states):
        other = records.copy()
        other[7, column] = (other[7, column] + 1) % states
        assert _all_among(list(other.T), records) == (tuple(other[7].tolist()) in tuples)


def test_one_variable_alone():
    model = random_mixture((3,))
    codes = joint_codes(model, 500, generator=np.random.default_rng(1), method="independent")
    assert unlikely_variables(model, codes, FALSE_ALARMS) == ()
    assert unlikely_variables(model, [(codes[0] + 1) % 3], FALSE_ALARMS) == (0,)


@pytest.fixture(params=list(MODELS))
def content(request, release_content):
    study = release_content.study
    make = random_mixture if request.param == "mixture" else random_records
    return with_joint(release_content, make(study.schema.n_states))


def refusal(folder: Path) -> str:
    """Of the documents; manifest and signature are others' tests."""
    try:
        _check_documents(folder, parse((folder / "manifest.json").read_bytes(), source="manifest.json"))
    except GateFailed as error:
        return error.message if error.code == "RELEASE_INVALID" else error.code
    return ""


def test_a_whole_release(content, tmp_path):
    assert refusal(writing.write_release(tmp_path / "honest", content)) == ""
    codes, frame = records.draw_release_records(content.network, content.study, content.n_common)
    other = dataclasses.replace(content, codes=codes, synthetic=frame)
    said = refusal(writing.write_release(tmp_path / "other", other))
    assert "the synthetic records were not drawn from the joint model" in said


def test_both_files_say_the_same(content, tmp_path):
    folder = writing.write_release(tmp_path / "release", content)
    written = (folder / joint.FILE).read_bytes()
    (folder / joint.FILE).write_bytes(written.replace(b"0.", b"0.0", 1))
    assert refusal(folder) == f"{joint.FILE}: it is not the joint model of model.json"
    (folder / joint.FILE).write_bytes(written)
    model = json.loads((folder / "model.json").read_bytes())
    del model["joint"]
    (folder / "model.json").write_text(json.dumps(model))
    assert "do not both have a joint model" in refusal(folder)


def test_a_study_of_the_network_has_none(content, tmp_path, monkeypatch):
    """Planted by a publisher whose own software does not look."""
    from verticil.shared.release import content as content_module
    from verticil.shared.study import canonical

    monkeypatch.setattr(content_module, "joint_fault", lambda study, model: "")
    study = dataclasses.replace(
        content.study, release=dataclasses.replace(content.study.release, sample_from="network")
    )
    planted = dataclasses.replace(content, study=study, effective_digest=canonical.digest(study).hex())
    assert refusal(writing.write_release(tmp_path / "release", planted)) == (
        "model.json: joint: the study's records come from the network"
    )


def test_how_much_records_of_an_earlier_release_come_from_each_is_what_is_there(release_content, tmp_path):
    """Releases of 1.0.0 say so where the study left it open."""
    from verticil.shared.study import canonical

    study = release_content.study
    assert not study.leaves_source_open  # it names prior_count
    opened = dataclasses.replace(study, parameters=dataclasses.replace(study.parameters, prior_count=None))
    plain = dataclasses.replace(release_content, study=opened, effective_digest=canonical.digest(opened).hex())
    mixed = with_joint(plain, random_records(study.schema.n_states))

    def refused(content, joint_share: float, network_share: float) -> str:
        folder = writing.write_release(tmp_path / f"{id(content)}, {joint_share}, {network_share}", content)
        model = json.loads((folder / "model.json").read_bytes())
        model["sampled_from"] = {"joint": joint_share, "network": network_share}
        (folder / "model.json").write_text(json.dumps(model))
        return refusal(folder)

    for share in (0.0, 0.4, 1.0):
        assert refused(mixed if share else plain, share, 1 - share) == ""
        assert "of the joint model" in refused(plain if share else mixed, share, 1 - share)
        assert "expected two shares of 1" in refused(mixed if share else plain, share, 1.1 - share)
    assert "it is not open" in refused(release_content, 0.0, 1.0)

"""Feature 32 in the study document: a deadline, read strictly, in the digest only of studies that declare one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.study import canonical
from verticil.shared.study.approval import check_own_part
from verticil.shared.study.document import LeftOut, QuorumRule, ShareRule
from verticil.shared.study.reading import read_study
from verticil.shared.study.rules import check
from verticil.shared.study.sub_model import narrow

STUDY = """schema = 1
id = "small"
purpose = "test"
expires = 2099-12-31
party = [{{ name = "clinic" }}, {{ name = "insurer" }}]
variable = [
  {{ party = "clinic", name = "ward", categories = ["a", "b"] }},
  {{ party = "insurer", name = "claims", categories = ["0", "1"] }},
]
randomization_default = {{ scheme = "symmetric", epsilon = 2.0 }}
{quorum}
"""


def read(tmp_path: Path, quorum: str):
    (tmp_path / "study.toml").write_text(STUDY.format(quorum=quorum))
    return read_study(tmp_path / "study.toml")


@pytest.mark.parametrize(("text", "seconds"), [("90min", 5400), ("72h", 259_200), ("14d", 1_209_600)])
def test_feature_32_a_deadline_is_read_and_comes_back_from_the_bytes(tmp_path, text, seconds):
    study = read(tmp_path, f'quorum = {{ deadline = "{text}" }}')
    assert study.quorum == QuorumRule(deadline_seconds=seconds)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_feature_32_only_studies_with_a_deadline_have_it_in_their_digest(tmp_path):
    without, with_one = read(tmp_path, ""), read(tmp_path, 'quorum = { deadline = "72h" }')
    assert "quorum" not in json.loads(canonical.to_bytes(without))
    assert canonical.digest(without) != canonical.digest(with_one)
    assert canonical.digest(dataclasses.replace(with_one, quorum=None)) == canonical.digest(without)


@pytest.mark.parametrize(
    ("quorum", "code", "words"),
    [
        ("quorum = { deadline = 72 }", "STUDY_INVALID", "deadline"),
        ('quorum = { deadline = "72" }', "STUDY_INVALID", "min, h, d"),
        ('quorum = { deadline = "0h" }', "STUDY_INVALID", "min, h, d"),
        ('quorum = { deadline = "9999d" }', "STUDY_INVALID", "quorum.deadline"),
        ("quorum = {}", "STUDY_INVALID", "deadline"),
        ('quorum = { deadline = "72h", dead = 1 }', "STUDY_INVALID", "dead"),
        ('quorum = { deadline = "72h", min = 1 }', "STUDY_INVALID", "quorum.min: got 1, expected 2 to 2"),
    ],
)
def test_feature_32_a_deadline_that_is_none_is_refused(tmp_path, quorum, code, words):
    with pytest.raises(Misuse, match=words) as caught:
        read(tmp_path, quorum)
    assert caught.value.code == code


def test_feature_32_bytes_of_a_peer_are_checked_too(tmp_path):
    study = read(tmp_path, 'quorum = { deadline = "72h" }')
    with pytest.raises(PeerFault, match=r"quorum\.deadline"):
        canonical.from_bytes(canonical.to_bytes(dataclasses.replace(study, quorum=QuorumRule(deadline_seconds=1))))


def test_feature_32_between_peers_a_minimum_is_refused_with_the_reason(tmp_path):
    study = read(tmp_path, 'quorum = { deadline = "72h", min = 2 }')
    assert study.quorum == QuorumRule(deadline_seconds=72 * 3600, minimum=2)
    with pytest.raises(Misuse, match="between peers every party is needed, because there is no miner") as caught:
        check(dataclasses.replace(study, model="peer", share=ShareRule()), source="study.toml")
    assert caught.value.code == "STUDY_UNSUPPORTED"
    assert "a deadline alone" in caught.value.hint


def test_no_party_takes_a_sub_model_without_itself(tmp_path):
    """It would else take the study of the others for its own, and go on without what it approved."""
    text = STUDY.format(quorum='quorum = { deadline = "72h", min = 2 }')
    text = text.replace('{ name = "insurer" }]', '{ name = "insurer" }, { name = "registry" }]')
    text = text.replace(
        "variable = [\n", 'variable = [\n  { party = "registry", name = "plan", categories = ["a", "b"] },\n'
    )
    (tmp_path / "study.toml").write_text(text)
    approved = read_study(tmp_path / "study.toml")
    without = narrow(approved, (LeftOut(party="insurer", missing="approval"),))
    check_own_part(approved, without, "clinic")
    with pytest.raises(PeerFault, match="tells a sub-model without 'insurer' to it"):
        check_own_part(approved, without, "insurer")


def test_a_prior_s_table_goes_with_the_party_that_is_left_out(tmp_path):
    text = STUDY.format(quorum='quorum = { deadline = "72h", min = 2 }') + (
        '[parameters]\nestimator = "inverse"\nprior = "dirichlet"\nprior_count = 1.0\n'
        "prior_tables = { ward = [[1, 2]], claims = [[3, 4]] }\n"
    )
    text = text.replace('{ name = "insurer" }]', '{ name = "insurer" }, { name = "registry" }]')
    text = text.replace(
        "variable = [\n", 'variable = [\n  { party = "registry", name = "plan", categories = ["a", "b"] },\n'
    )
    (tmp_path / "study.toml").write_text(text)
    without = narrow(read_study(tmp_path / "study.toml"), (LeftOut(party="insurer", missing="approval"),))
    assert without.parameters.prior_tables == (("ward", ((1.0, 2.0),)),)
    assert canonical.from_bytes(canonical.to_bytes(without)) == without

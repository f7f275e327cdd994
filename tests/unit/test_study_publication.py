"""The publication gate in a study's documents: read strictly, canonical only where it is used, refused between peers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from verticil.party.policy.decision_store import Review
from verticil.party.protocol.central.plan import plan
from verticil.party.protocol.with_miner.plan import Step
from verticil.party.storage.studies import StudyRecord, Task
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.study import canonical
from verticil.shared.study.document import PublishRule, Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State

EXAMPLE = Path(__file__).parent.parent / "vectors" / "study_example.toml"


def read(tmp_path: Path, publish: str) -> Study:
    path = tmp_path / "study.toml"
    path.write_text(EXAMPLE.read_text() + publish)
    return read_study(path)


@pytest.mark.parametrize(
    ("text", "rule", "needed"),
    [
        ("", None, 0),
        ('[publish]\ncountersign = "none"\n', None, 0),
        ('[publish]\ncountersign = "all"\n', PublishRule(), 3),
        ('[publish]\ncountersign = "quorum"\nquorum = 2\n', PublishRule(quorum=2), 2),
    ],
)
def test_the_gate_comes_back_from_the_wire_and_costs_nothing_where_it_is_not_used(tmp_path, text, rule, needed):
    study = read(tmp_path, text)
    assert (study.publish, study.countersignatures_needed) == (rule, needed)
    data = canonical.to_bytes(study)
    assert canonical.from_bytes(data) == study
    assert (b'"publish"' in data) == (rule is not None)
    assert (canonical.digest(study) == canonical.digest(read(tmp_path, ""))) == (rule is None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[publish]\ncountersign = "some"\n', "publish.countersign: got 'some', expected one of none, quorum, all"),
        ('[publish]\ncountersign = "quorum"\n', "publish.quorum: missing"),
        ('[publish]\ncountersign = "quorum"\nquorum = 4\n', "got 4, expected 1 to 3"),
        ('[publish]\ncountersign = "quorum"\nquorum = 0\n', "got 0, expected 1 to 3"),
        ('[publish]\ncountersign = "all"\nquorum = 2\n', "publish.quorum: stands beside"),
        ('[publish]\ncountersigned = "all"\n', "publish.countersigned: unknown key"),
    ],
)
def test_a_gate_that_cannot_be_kept_is_refused(tmp_path, text, words):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, text)
    assert (caught.value.code, caught.value.exit_code) == ("STUDY_INVALID", 2)
    assert words in caught.value.message


def test_between_peers_the_key_is_refused_with_the_reason(peer_study):
    study = peer_study(publish=PublishRule())
    with pytest.raises(PeerFault, match="between peers every party signs the release anyway"):
        canonical.from_bytes(canonical.to_bytes(study))


def record() -> StudyRecord:
    task = Task(
        digest=b"d" * 32, version=1, state=int(State.REVIEW), proposal=b"", effective=b"e", effective_digest=b"e" * 32,
        approved=True, pseudonyms_complete=True, alignment_confirmed=True, units_received=(0,), failure="",
    )  # fmt: skip
    return StudyRecord(
        study_id="s", seen_at="", task=task, stage="", percent=0, stage_at="", n_common=5, common_sha256=b"c" * 32, approval=b"a",
        n_votes=1, denial_sent=None, failure=None, failure_sent=False,
    )  # fmt: skip


def test_the_release_is_fetched_looked_at_by_people_and_the_signature_told():
    review = Review(manifest_sha256=b"m" * 32, fetched=False, body=None, signature=None, certificate=None, sent=False)
    fetched = dataclasses.replace(review, fetched=True)
    signed = dataclasses.replace(fetched, body=b"", signature=b"", certificate=b"")
    expected = [
        (review, False, Step.FETCH_REVIEW),
        (fetched, False, Step.REST),
        (fetched, True, Step.COUNTERSIGN),
        (signed, False, Step.TELL_COUNTERSIGNATURE),
        (dataclasses.replace(signed, sent=True), True, Step.REST),
    ]
    for known, automatic, step in expected:
        found = plan(
            record(),
            automatic=automatic,
            own_units={0},
            spooled_units={0},
            receipted_units={0},
            review=known,
            countersigns=automatic,
        )
        assert found.step == step
    denied = dataclasses.replace(record(), denial_sent=False)
    assert (
        plan(denied, automatic=False, own_units={0}, spooled_units={0}, receipted_units={0}, review=fetched).step
        is Step.TELL_DENIAL
    )

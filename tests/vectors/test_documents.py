"""Documents that an earlier program made: they are read, and written again byte for byte."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verticil.party.policy.decision_store import Vote
from verticil.party.storage.studies import stamp
from verticil.shared.documents.record import encode
from verticil.shared.federation.airgap.bundle import parse_statement as parse_carried
from verticil.shared.federation.airgap.exchange import load_journal, store_journal
from verticil.shared.federation.alignment.statements import blinded_body, common_body
from verticil.shared.release.formats.deletion import parse_deletion, parse_peer_deletion, parse_peer_holding
from verticil.shared.release.signatures import read_countersignature
from verticil.shared.release.statement import parse_statement, statement_body
from verticil.shared.study import canonical
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.reading import read_study
from verticil.shared.study.structure_document import parse_structure, structure_body
from verticil.shared.study.sub_model import parse_sub_model

MADE: dict[str, Any] = json.loads((Path(__file__).parent / "documents.json").read_text(encoding="utf-8"))
STUDIES: dict[str, dict[str, str]] = MADE["studies"]
BODIES: dict[str, bytes] = {name: text.encode() for name, text in MADE["documents"].items()}

READERS: dict[str, Callable[[bytes], object]] = {
    "carried": parse_carried,
    "carried_first": parse_carried,
    "countersignature": read_countersignature,
    "deletion": parse_deletion,
    "peer_deletion": parse_peer_deletion,
    "peer_deletion_parameters": parse_peer_deletion,
    "peer_holding": parse_peer_holding,
    "sub_model": parse_sub_model,
    "approval": parse_approval,
    "approval_levels": parse_approval,
    "sub_model_study": canonical.from_bytes,
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_file_of_before_has_the_digest_of_before(name: str, tmp_path: Path) -> None:
    made = STUDIES[name]
    (path := tmp_path / "study.toml").write_text(made["toml"], encoding="utf-8")
    study = read_study(path)
    body = canonical.to_bytes(study)
    assert body == made["body"].encode()
    assert hashlib.sha256(body).hexdigest() == canonical.digest(study).hex() == made["sha256"]
    assert canonical.from_bytes(body) == study


@pytest.mark.parametrize("name", READERS)
def test_a_statement_of_before_is_read_and_written_again(name: str) -> None:
    assert encode(READERS[name](BODIES[name])) == BODIES[name]


def test_a_party_s_parameters_of_before_are_read_and_written_again() -> None:
    study = canonical.from_bytes(STUDIES["given"]["body"].encode())
    statement = parse_statement(BODIES["parameters"], study)
    assert (statement.party, len(statement.families), statement.exact) == ("clinic", 2, False)
    assert statement_body(statement, study) == BODIES["parameters"]


def test_a_structure_of_before_is_read_and_written_again() -> None:
    study = canonical.from_bytes(STUDIES["learned"]["body"].encode())
    structure = parse_structure(BODIES["structure"], study, canonical.digest(study))
    assert structure_body(canonical.digest(study), structure.dag.parents, structure.search) == BODIES["structure"]


def test_what_parties_sign_while_they_align_and_vote_is_what_it_was() -> None:
    common, blinded = json.loads(BODIES["common"]), json.loads(BODIES["blinded"])
    study = bytes.fromhex(common["study"])
    sha256 = bytes.fromhex(common["common_sha256"])
    assert (
        common_body(mode="dh-psi", study=study, party="clinic", n_common=77, common_sha256=sha256) == BODIES["common"]
    )
    told = {key: blinded[key] for key in ("owner", "hop", "party", "size")}
    assert blinded_body(study=study, sha256=bytes.fromhex(blinded["sha256"]), **told) == BODIES["blinded"]
    at = dt.datetime(2026, 11, 21, 10, 4, 5, tzinfo=dt.UTC)
    vote = Vote(approver="lee", content=b"c" * 32, at=stamp(at), signature=b"")
    assert vote.body("clinic", "hearts") == BODIES["vote"]


def test_a_journal_of_before_is_read_and_written_again(tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_bytes(BODIES["journal"])
    journal = load_journal(tmp_path)
    assert [reference.number for reference in journal.made] == [1, 3]
    store_journal(tmp_path, journal)
    assert (tmp_path / "journal.json").read_bytes() == BODIES["journal"]

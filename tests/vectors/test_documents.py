"""Documents that an earlier program made: they are read, and written again byte for byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verticil.shared.airgap.bundle import parse_statement as parse_carried
from verticil.shared.formats.deletion import parse_deletion
from verticil.shared.formats.peer_deletion import parse_peer_deletion, parse_peer_holding
from verticil.shared.record import encode
from verticil.shared.release.countersignature import read_countersignature
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study
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

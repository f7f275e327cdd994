"""What programs before 1.0.0 made is refused by its name, with what to do, and left as it is. Databases: test_schemas.py."""

from __future__ import annotations

import importlib.metadata
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.releases import content_of, release_study_of_two
from verticil.cli.main import main
from verticil.party.operator.backup import restore
from verticil.party.operator.sealed_file import seal
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.documents.record import canonical_json
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats import model_json
from verticil.shared.release.manifest import sign_release
from verticil.shared.release.verification import verify_release
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study

WORDS = "four words of passphrase"
PEERS = """\
schema = 1
id = "example"
purpose = "test"
model = "peer"
expires = 2099-12-31
party = [{ name = "clinic" }, { name = "insurer" }]
linkage = { minimum_common_records = 100 }
variable = [
  { party = "clinic", name = "smoker", categories = ["no", "yes"] },
  { party = "insurer", name = "claims", categories = ["none", "some"] },
]
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "tree" }
"""


def backup_of(database: bytes) -> bytes:
    """A backup as the program makes it, of a party.toml and a database."""
    files = {"party.toml": b'schema = 1\nname = "clinic"\n', "state/party.sqlite": database}
    lines: list[bytes] = []
    for path, data in files.items():
        lines += [json.dumps({"path": path, "origin": "", "size": len(data)}).encode() + b"\n", data]
    return b"".join(
        seal([*lines, json.dumps({"files": len(files)}).encode() + b"\n"], WORDS, {"party": "clinic"}, cost=2**4)
    )


def test_a_backup_of_a_state_of_before_1_0_0_is_refused_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "party.sqlite")) as made:
        made.execute("CREATE TABLE study (digest BLOB PRIMARY KEY)")
        made.execute("PRAGMA user_version = 8")
    backup = tmp_path / "clinic.backup"
    backup.write_bytes(whole := backup_of((tmp_path / "party.sqlite").read_bytes()))
    folder = tmp_path / "restored"
    with pytest.raises(GateFailed, match=r"clinic\.backup: a backup of before version 1\.0\.0") as caught:
        restore(backup, folder, WORDS)
    assert (caught.value.code, caught.value.exit_code) == ("BACKUP_UNSUPPORTED", 6)
    assert "begin anew: `verticil party init` in another folder" in caught.value.hint
    assert not folder.exists()
    assert backup.read_bytes() == whole
    (words := tmp_path / "words").write_text(WORDS + "\n")
    words.chmod(0o600)
    command = ["party", "restore", str(backup), "--dir", str(folder), "--passphrase-file", str(words)]
    assert main(command) == 6
    assert "BACKUP_UNSUPPORTED" in capsys.readouterr().err
    assert not folder.exists()


def signed_release(folder: Path, pki: Path) -> Path:
    create_authority(pki, "trial")
    issue(pki, "miner", Role.MINER, pki, hosts=["localhost"])
    release = write_release(folder / "release", content_of(release_study_of_two()))
    key = SigningKey.load(pki / "miner.sign", pki / "miner.crt")
    sign_release(release, key, ca_certificate=(pki / "ca.crt").read_bytes())
    return release


def test_a_release_of_before_1_0_0_is_refused_whoever_signed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as before:
        before.setattr(importlib.metadata, "version", lambda _name: "0.1.0")
        release = signed_release(tmp_path, tmp_path / "pki")
    files = {path.name: path.read_bytes() for path in release.iterdir()}
    with pytest.raises(GateFailed, match=r"made by verticil 0\.1\.0; this version reads releases of 1\.0\.0") as caught:
        verify_release(release, ca_certificate=(tmp_path / "pki" / "ca.crt").read_bytes())
    assert (caught.value.code, caught.value.exit_code) == ("RELEASE_UNSUPPORTED", 6)
    assert "begin anew: publish the study again" in caught.value.hint
    assert main(["release", "verify", str(release), "--ca", str(tmp_path / "pki" / "ca.crt")]) == 6
    assert "RELEASE_UNSUPPORTED" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in release.iterdir()} == files


def test_a_model_of_before_1_0_0_is_refused_by_itself(tmp_path: Path) -> None:
    """The first programs did not say what a study costs each reader."""
    release = write_release(tmp_path / "release", content_of(release_study_of_two()))
    document = json.loads((release / "model.json").read_bytes())
    assert model_json.read(json.dumps(document).encode()).schema.names
    del document["privacy"]["accounts"]
    with pytest.raises(GateFailed, match=r"model\.json: of before version 1\.0\.0") as caught:
        model_json.read(json.dumps(document).encode())
    assert caught.value.code == "RELEASE_UNSUPPORTED"


@pytest.mark.parametrize("noise", ['noise = "gaussian"\n', ""], ids=["by name", "by default"])
def test_a_study_with_the_noise_of_before_1_0_0_is_refused_with_what_to_write(
    noise: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a file and in canonical form, where that noise was the one that a study named by naming none."""
    study = tmp_path / "study.toml"
    study.write_text(PEERS + f"[share]\n{noise}epsilon = 1.0\ndelta = 1e-6\n")
    assert main(["study", "check", str(study)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert 'noise = "discrete-gaussian"' in told
    study.write_text(PEERS + '[share]\nnoise = "discrete-gaussian"\nepsilon = 1.0\ndelta = 1e-6\n')
    document = json.loads(canonical.to_bytes(read_study(study)))
    document["share"].pop("noise")
    document["share"] |= {"noise": "gaussian"} if noise else {}
    with pytest.raises(Misuse, match=r"before 1\.0\.0") as caught:
        canonical.from_bytes(canonical_json(document), wire=False)
    assert (caught.value.code, caught.value.exit_code) == ("STUDY_UNSUPPORTED", 2)
    assert 'write noise = "discrete-gaussian"' in caught.value.hint

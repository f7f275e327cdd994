"""Coming back after expiry, revocation, a lost key or a lost machine: the runbook's commands, and what the authority refuses.

Each way ends with credentials that load and signatures that hold, and deletes no key.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.operator.page.page_model import overview
from verticil.party.site import Site
from verticil.party.storage.studies import Heartbeat, stamp
from verticil.pki.register import revoke
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.authority import create_authority, issue, open_authority
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import certificate_sha256, load_credentials, read_certificates, utc_now
from verticil.shared.federation.identity.signing import SigningKey

DAY = dt.timedelta(days=1)
ROLES = {"clinic": "party", "miner": "miner"}


class Federation:
    """An authority, and two nodes whose certificates were made some time ago."""

    def __init__(self, home: Path, run: Callable[..., Any], *, days: int) -> None:
        self.home, self.run, then = home, run, utc_now() - 100 * DAY
        create_authority(home / "ca", "fed", at=then)
        self.sha256 = certificate_sha256(read_certificates(home / "ca" / "ca.crt")[0])
        self.document = home / "federation.toml"
        self.document.write_text(
            f'schema = 1\nname = "fed"\nca_certificate = "ca/ca.crt"\nca_sha256 = "{self.sha256}"\n'
            '[miner]\nendpoint = "localhost:8443"\n'
        )
        for name, role in ROLES.items():
            hosts = ("localhost",) if name == "miner" else ()
            issue(home / "ca", name, Role(role), home / name, hosts=hosts, days=days, at=then)

    def keys(self, name: str) -> set[bytes]:
        return {path.read_bytes() for path in (self.home / name).iterdir() if path.suffix in {".key", ".sign", ".seal"}}

    def comes_back(self, name: str, *, request: tuple[object, ...]) -> dict[str, Any]:
        """Request, signature, installation: what `pki sign` says of it."""
        folder = self.home / name
        asked = self.run(*request)
        answer = self.home / "answer.signed"
        answer.unlink(missing_ok=True)
        signed: dict[str, Any] = self.run(
            "pki", "sign", folder / f"{name}.req", "--ca", self.home / "ca", "--yes", "--out", answer
        )
        assert signed["key_hash"] == asked["key_hash"]
        self.run("pki", "install", answer, "--dir", folder, "--fingerprint", self.sha256, "--federation", self.document)
        federation = load_federation(self.document)
        found = load_credentials(folder / f"{name}.crt", folder / f"{name}.key", federation, name=name)
        assert found.not_after > utc_now() + 80 * DAY
        SigningKey.load(folder / f"{name}.sign", folder / f"{name}.crt")
        assert not list(folder.glob("*.next.*"))
        return signed

    def new_keys(self, name: str) -> tuple[object, ...]:
        folder = self.home / name
        where = ("--dir", folder, "--federation", self.document)
        return ("pki", "request", name, "--role", ROLES[name], "--new-keys", *where)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def call(*arguments: object, code: int = 0) -> Any:
        assert main([*map(str, arguments), "--format", "json"]) == code
        shown = json.loads(capsys.readouterr().out)
        return shown["error"] if code else shown

    return call


@pytest.mark.parametrize("name", ROLES)
def test_an_expired_certificate_is_renewed_with_three_commands_and_a_look_at_the_key_hash(
    tmp_path: Path, run: Callable[..., Any], name: str
) -> None:
    federation = Federation(tmp_path, run, days=90)
    before = federation.keys(name)
    folder = tmp_path / name
    run("pki", "renew", folder / f"{name}.crt")
    asked = run("pki", "sign", folder / f"{name}.req", "--ca", tmp_path / "ca", code=2)
    assert "key hash not confirmed" in asked["message"]  # signed as knowingly as a first request
    signed = federation.comes_back(name, request=("pki", "renew", folder / f"{name}.crt"))
    assert signed["renewal"] is False
    assert "expired" in signed["notes"][0]
    assert federation.keys(name) == before


@pytest.mark.parametrize("name", ROLES)
def test_a_revoked_node_comes_back_with_new_keys_as_the_hints_say(
    tmp_path: Path, run: Callable[..., Any], name: str
) -> None:
    federation = Federation(tmp_path, run, days=190)
    folder, ca = tmp_path / name, tmp_path / "ca"
    before = federation.keys(name)
    run("pki", "revoke", name, "--ca", ca, "--yes")
    run("pki", "renew", folder / f"{name}.crt")
    refused = run("pki", "sign", folder / f"{name}.req", "--ca", ca, "--yes", code=5)
    assert refused["code"] == "CERTIFICATE_REVOKED"
    words = f"pki request {name} --role {ROLES[name]}"
    assert f"verticil {words} --new-keys" in refused["hint"]
    exists = run(*words.split(), *(("--host", "localhost") if name == "miner" else ()), "--dir", folder,
                 "--federation", federation.document, code=2)  # fmt: skip
    assert (exists["code"], f"verticil {words} --new-keys" in exists["hint"]) == ("FILE_EXISTS", True)
    run(*federation.new_keys(name))
    unconfirmed = run("pki", "sign", folder / f"{name}.req", "--ca", ca, code=2)
    assert "key hash not confirmed" in unconfirmed["message"]
    signed = federation.comes_back(name, request=federation.new_keys(name))
    assert "this name was revoked on" in signed["notes"][0]
    assert before < federation.keys(name)  # the old ones lie aside, with the day
    today = f"{utc_now():%Y-%m-%d}"
    assert {path.name for path in folder.glob("*.retired-*")} >= {
        f"{name}.retired-{today}.key", f"{name}.retired-{today}.sign"
    }  # fmt: skip
    if name == "miner":
        assert b"localhost" in read_certificates(folder / "miner.crt")[0].public_bytes(Encoding.DER)


def test_a_key_that_was_revoked_never_comes_back(tmp_path: Path, run: Callable[..., Any]) -> None:
    federation = Federation(tmp_path, run, days=190)
    folder, ca = tmp_path / "clinic", tmp_path / "ca"
    run("pki", "revoke", "clinic", "--ca", ca, "--yes")
    thief = tmp_path / "thief"
    thief.mkdir()
    for suffix in ("key", "sign"):  # whoever read the keys asks with them, as for the first time
        shutil.copy(folder / f"clinic.{suffix}", thief / f"clinic.next.{suffix}")
    run("pki", "request", "clinic", "--role", "party", "--dir", thief, "--federation", federation.document)
    for taken in ("key", "sign"):
        _with_key(thief / "clinic.req", folder, taken)
        refused = run("pki", "sign", thief / "clinic.req", "--ca", ca, "--yes", code=5)
        assert refused["code"] == "CERTIFICATE_REVOKED", taken


@pytest.mark.parametrize("lost", [("key",), ("sign",), ("key", "sign", "crt"), ("key", "sign", "seal", "crt", "req")])
def test_a_lost_key_is_replaced_after_the_old_certificate_was_revoked(
    tmp_path: Path, run: Callable[..., Any], lost: tuple[str, ...]
) -> None:
    federation = Federation(tmp_path, run, days=190)
    folder, ca = tmp_path / "clinic", tmp_path / "ca"
    for suffix in lost:
        (folder / f"clinic.{suffix}").unlink(missing_ok=True)
    left = federation.keys("clinic")
    if "crt" not in lost:
        missing = run("pki", "renew", folder / "clinic.crt", code=1)
        assert missing["code"] == "SECRET_MISSING"
        assert "verticil pki request clinic --role party --new-keys" in missing["hint"]
    run(*federation.new_keys("clinic"))
    taken = run("pki", "sign", folder / "clinic.req", "--ca", ca, "--yes", code=5)
    assert taken["code"] == "IDENTITY_REFUSED"
    assert "verticil pki revoke clinic" in taken["hint"]
    run("pki", "revoke", "clinic", "--ca", ca, "--yes")
    federation.comes_back("clinic", request=federation.new_keys("clinic"))
    assert left < federation.keys("clinic")


def test_a_new_machine_without_a_backup_joins_under_the_old_name(tmp_path: Path, run: Callable[..., Any]) -> None:
    federation = Federation(tmp_path, run, days=190)
    shutil.rmtree(tmp_path / "clinic")
    revoke(open_authority(tmp_path / "ca"), "clinic")
    signed = federation.comes_back("clinic", request=federation.new_keys("clinic"))
    assert "this name was revoked on" in signed["notes"][0]


def test_new_keys_keep_the_sealing_key_and_finish_an_installation_that_was_broken_off(
    tmp_path: Path, run: Callable[..., Any]
) -> None:
    """The certificate was in its place and its keys still waited when the process died: they are in use, not to be set aside."""
    federation = Federation(tmp_path, run, days=190)
    folder = tmp_path / "clinic"
    sealing = (folder / "clinic.seal").read_bytes()
    for suffix in ("key", "sign"):
        os.rename(folder / f"clinic.{suffix}", folder / f"clinic.next.{suffix}")
    in_use = federation.keys("clinic")
    run(*federation.new_keys("clinic"))
    load_credentials(folder / "clinic.crt", folder / "clinic.key", load_federation(federation.document))
    asked = json.loads((folder / "clinic.req").read_bytes())
    assert asked["sealing"]["key"] == run("pki", "seal", folder / "clinic.crt")["sealing_key"]
    assert (folder / "clinic.seal").read_bytes() == sealing
    assert in_use < federation.keys("clinic")
    again = federation.keys("clinic")
    run(*federation.new_keys("clinic"))  # asking again: what waited is set aside, for it lay beside keys that were read
    assert again < federation.keys("clinic")


def _with_key(request: Path, folder: Path, taken: str) -> None:
    """Rewrite a request so that one of its two keys is the revoked one, properly signed with it."""
    from verticil.pki import request as writing
    from verticil.shared.federation.identity.identity import Identity
    from verticil.shared.federation.identity.pki import load_private_key

    identity = Identity(federation="fed", role=Role.PARTY, name="clinic")
    own = {suffix: load_private_key(request.with_name(f"clinic.{suffix}"), what="key") for suffix in ("key", "sign")}
    own[taken] = load_private_key(folder / f"clinic.{taken}", what="key")
    request.write_bytes(writing._write_request(identity, (), own["key"], own["sign"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("heard", ["the deny-list", "a refusal"])
def test_party_status_and_the_page_say_revoked_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Callable[..., Any], heard: str
) -> None:
    federation = Federation(tmp_path, run, days=190)
    home = tmp_path / "site"
    run("party", "init", "--name", "clinic", "--dir", home, "--federation", federation.document)
    shutil.copytree(tmp_path / "clinic", home / "pki")
    run("linkage", "new-key", home / "secrets" / "linkage.key")
    toml = home / "party.toml"
    assert run("party", "status", "--config", toml)["certificate"]["command"].startswith("verticil pki renew ")
    if heard == "the deny-list":
        run("pki", "revoke", "clinic", "--ca", tmp_path / "ca", "--yes")
    else:  # whoever refuses a node tells it nothing more
        with Site.open(load_party(toml)) as site:
            site.state.beat(Heartbeat(pid=0, at=stamp(utc_now()), connected=False, problem="CERTIFICATE_REVOKED"))
        os.utime(home / "pki" / "clinic.crt", (0, 0))
    told = run("party", "status", "--config", toml)["certificate"]
    assert told["words"].startswith("was revoked")
    with Site.look(load_party(toml)) as site:
        (blocks,) = [item for item in overview(site, utc_now()).blocks if "was revoked" in item.what]
    assert (blocks.command, blocks.grave) == (told["command"], True)
    assert main(["party", "status", "--config", str(toml)]) == 0
    assert "was revoked" in capsys.readouterr().out
    if heard == "a refusal":
        run("pki", "revoke", "clinic", "--ca", tmp_path / "ca", "--yes")
    words = shlex.split(told["command"])[1:]  # it is typed as it stands
    run(*words)
    answer = tmp_path / "answer"
    run("pki", "sign", home / "pki" / "clinic.req", "--ca", tmp_path / "ca", "--yes", "--out", answer)
    where = ("--dir", home / "pki", "--federation", federation.document)
    run("pki", "install", answer, "--fingerprint", federation.sha256, *where)
    os.utime(home / "pki" / "clinic.crt", (later := (utc_now() + DAY).timestamp(), later))  # not in the same second
    assert run("party", "status", "--config", toml)["certificate"]["warning"] is None

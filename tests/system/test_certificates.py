"""Who may connect: no certificate, another authority's, another party's, another role's. Nothing of a refused one is stored."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import load_credentials, read_certificates
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.client import Connection, GrpcControl, GrpcCoordinator
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

TABLES = ("approval", "denial", "pseudonyms", "confirmation", "upload", "stored_column")


@pytest.fixture
def miner(make_nodes: Callable[..., Any]) -> Any:
    """A miner with one study that waits for approval, and no party."""
    nodes = make_nodes("gate")
    nodes.point_to(nodes.start_miner())
    nodes.digest = nodes.submit()
    return nodes


def stored(nodes: Any) -> dict[str, int]:
    path = nodes.made.miner / "state" / "catalogue.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as catalogue:
        return {table: catalogue.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}


def credentials_of(folder: Path, name: str) -> Any:
    federation = load_federation(folder / "federation.toml")
    return load_credentials(folder / "pki" / f"{name}.crt", folder / "pki" / f"{name}.key", federation)


async def refusal(nodes: Any, credentials: Any, use: Callable[[Connection], Any]) -> str:
    line = Connection(f"127.0.0.1:{nodes.port}", credentials)
    try:
        await use(line)
    except VerticilError as error:
        return error.code
    finally:
        await line.close()
    return "accepted"


def poll(line: Connection) -> Any:
    return GrpcCoordinator(line).poll(coordinator_pb2.PollRequest())


@pytest.mark.whole
async def test_no_certificate(miner: Any) -> None:
    context = ssl.create_default_context(cafile=str(miner.made.ca_certificate))
    context.set_alpn_protocols(["h2"])

    async def first_frame() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", miner.port, ssl=context)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        try:
            return await reader.readexactly(9)  # a server that accepted us would send its SETTINGS frame
        finally:
            writer.close()

    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await first_frame()
    assert set(stored(miner).values()) == {0}


@pytest.mark.whole
async def test_another_authoritys_certificate(miner: Any, tmp_path: Path) -> None:
    create_authority(tmp_path / "other", "trial")
    issue(tmp_path / "other", "clinic", Role.PARTY, tmp_path / "stranger" / "pki")
    genuine = credentials_of(miner.made.parties["clinic"], "clinic")
    shutil.copy(tmp_path / "other" / "ca.crt", tmp_path / "stranger" / "ca.crt")
    text = (
        (miner.made.parties["clinic"] / "federation.toml")
        .read_text()
        .replace(miner.made.ca_sha256, certificate_sha256(tmp_path / "other" / "ca.crt"))
    )
    (tmp_path / "stranger" / "federation.toml").write_text(text)
    stranger = credentials_of(tmp_path / "stranger", "clinic")
    mixed = type(stranger)(
        **{**fields(stranger), "ca_pem": genuine.ca_pem}
    )  # trusts the real miner, shows a foreign certificate
    assert await refusal(miner, mixed, poll) == "TLS_REFUSED"
    assert (
        await refusal(miner, stranger, poll) == "TLS_REFUSED"
    )  # and the other way round: it would not trust this miner
    assert set(stored(miner).values()) == {0}


async def test_a_party_acts_only_as_itself(miner: Any) -> None:
    insurer = credentials_of(miner.made.parties["insurer"], "insurer")
    clinic = credentials_of(miner.made.parties["clinic"], "clinic")
    signed = common_pb2.Signed(body=b"{}", signature=b"x" * 64, certificate=b"y")
    claim = coordinator_pb2.ReportRequest(study_digest=miner.digest, approval=signed)
    assert await refusal(miner, insurer, lambda line: GrpcCoordinator(line).report(claim)) == "CERTIFICATE_INVALID"
    upload = coordinator_pb2.BeginUploadRequest(effective_digest=miner.digest, unit=0, size=16, sha256=b"0" * 32)
    assert await refusal(miner, insurer, lambda line: GrpcCoordinator(line).begin_upload(upload)) != "accepted"
    analyst = credentials_of(miner.made.analyst, "analyst")
    assert await refusal(miner, analyst, poll) == "IDENTITY_REFUSED"
    listing = control_pb2.ListStudiesRequest()
    assert await refusal(miner, clinic, lambda line: GrpcControl(line).list_studies(listing)) == "IDENTITY_REFUSED"
    assert await refusal(miner, clinic, poll) == "accepted"
    assert set(stored(miner).values()) == {0}


async def test_feature_07_a_party_that_speaks_for_another_is_refused_and_noted(miner: Any) -> None:
    """The insurer's connection, with a statement that the clinic really signed, and one that only says so."""
    clinic, insurer = miner.made.parties["clinic"], miner.made.parties["insurer"]
    by_clinic, by_insurer = (
        SigningKey.load(node / "pki" / f"{name}.sign", node / "pki" / f"{name}.crt").sign(b'{"party":"clinic"}')
        for node, name in ((clinic, "clinic"), (insurer, "insurer"))
    )
    credentials = credentials_of(insurer, "insurer")
    codes = []
    for signed in (by_clinic, by_insurer):
        report = coordinator_pb2.ReportRequest(study_digest=miner.digest, approval=signed)
        codes.append(await refusal(miner, credentials, lambda line, r=report: GrpcCoordinator(line).report(r)))
    assert codes[0] == "IDENTITY_REFUSED"
    assert codes[1] != "accepted"
    assert set(stored(miner).values()) == {0}
    serial = read_certificates(insurer / "pki" / "insurer.crt")[0].serial_number
    (line,) = [line for line in miner.log("miner").splitlines() if "IDENTITY_REFUSED" in line]
    assert "Coordinator/Report by verticil://trial/party/insurer" in line  # who really called, and with what
    assert f"{serial:x}" in line
    assert '"level": "warning"' in line
    assert "'clinic', expected 'insurer'" in line


@pytest.mark.whole
def test_a_daemon_with_another_partys_certificate_does_not_start(miner: Any) -> None:
    clinic, insurer = miner.made.parties["clinic"], miner.made.parties["insurer"]
    for suffix in (".crt", ".key", ".sign"):
        shutil.copy(insurer / "pki" / f"insurer{suffix}", clinic / "pki" / f"clinic{suffix}")
    command = [
        sys.executable,
        "-m",
        "verticil.cli",
        "party",
        "run",
        "--config",
        str(clinic / "party.toml"),
        "--format",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 5
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "IDENTITY_REFUSED"
    assert "insurer" in error["message"]
    assert "clinic" in error["message"]
    assert set(stored(miner).values()) == {0}


def certificate_sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(path.read_text())).hexdigest()


def fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}

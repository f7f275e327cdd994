"""Who may ask a party between peers: another authority's certificate, another role's, and who answers at an address."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.transport.client import Connection, GrpcPeer
from verticil.shared.study.canonical import digest as digest_of
from verticil.shared.study.reading import read_study
from verticil.wire.v1 import peer_pb2


@pytest.fixture(scope="module")
def clinic(make_module_peers: Callable[..., Any]) -> Any:
    """The clinic alone: it has loaded the study and serves, and waits for the others. Tests only ask it."""
    peers = make_module_peers("gate")
    peers.load()
    peers.start_party("clinic")
    peers.until(lambda found: "insurer" in found.stages["clinic"])
    return peers


def credentials_of(folder: Path, name: str) -> Any:
    federation = load_federation(folder / "federation.toml")
    return load_credentials(folder / "pki" / f"{name}.crt", folder / "pki" / f"{name}.key", federation)


async def answer(peers: Any, credentials: Any, ask: Callable[[GrpcPeer], Any], *, expect: str = "clinic") -> str:
    """The code of the refusal, or "answered"."""
    identity = Identity(federation="trial", role=Role.PARTY, name=expect)
    peer = GrpcPeer(
        Connection(peers.addresses["clinic"], credentials, target=identity, idle_timeout_seconds=PATIENCE_SECONDS)
    )
    try:
        reply = ask(peer)
        if hasattr(reply, "__aiter__"):
            async for _ in reply:
                pass
        else:
            await reply
    except VerticilError as error:
        return error.code
    finally:
        await peer.close()
    return "answered"


def handshake(peers: Any) -> Callable[[GrpcPeer], Any]:
    study = read_study(peers.study)
    request = peer_pb2.GetStudyDigestRequest(study_id=study.id, study_digest=digest_of(study))
    return lambda peer: peer.get_study_digest(request)


def columns(peers: Any, unit: int) -> Callable[[GrpcPeer], Any]:
    digest = bytes.fromhex(peers.digest)
    return lambda peer: peer.get_column(peer_pb2.GetColumnRequest(effective_digest=digest, unit=unit))


async def test_only_parties_may_ask(clinic: Any) -> None:
    insurer = credentials_of(clinic.made.parties["insurer"], "insurer")
    assert await answer(clinic, insurer, handshake(clinic)) == "answered"
    analyst = credentials_of(clinic.made.analyst, "analyst")
    assert await answer(clinic, analyst, handshake(clinic)) == "IDENTITY_REFUSED"
    assert await answer(clinic, analyst, columns(clinic, 0)) == "IDENTITY_REFUSED"


async def test_nothing_is_served_before_everybody_has_approved(clinic: Any) -> None:
    insurer = credentials_of(clinic.made.parties["insurer"], "insurer")
    running = peer_pb2.GetPseudonymsRequest(
        effective_digest=bytes.fromhex(clinic.digest), list=peer_pb2.PSEUDONYM_LIST_RUNNING
    )
    assert await answer(clinic, insurer, lambda peer: peer.get_pseudonyms(running)) != "answered"
    assert await answer(clinic, insurer, columns(clinic, 0)) != "answered"


async def test_who_answers_at_an_address_must_be_who_was_meant(clinic: Any) -> None:
    insurer = credentials_of(clinic.made.parties["insurer"], "insurer")
    assert await answer(clinic, insurer, handshake(clinic), expect="tax_office") == "TLS_REFUSED"


async def test_another_authoritys_certificate(clinic: Any, tmp_path: Path) -> None:
    create_authority(tmp_path / "other", "trial")
    issue(tmp_path / "other", "insurer", Role.PARTY, tmp_path / "stranger" / "pki", hosts=("127.0.0.1",))
    shutil.copy(tmp_path / "other" / "ca.crt", tmp_path / "stranger" / "ca.crt")
    text = (clinic.made.parties["insurer"] / "federation.toml").read_text(encoding="utf-8")
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert((tmp_path / "other" / "ca.crt").read_text())).hexdigest()
    (tmp_path / "stranger" / "federation.toml").write_text(text.replace(clinic.made.ca_sha256, fingerprint))
    stranger = credentials_of(tmp_path / "stranger", "insurer")
    genuine = credentials_of(clinic.made.parties["insurer"], "insurer")
    values = {name: getattr(stranger, name) for name in stranger.__dataclass_fields__}
    mixed = type(stranger)(**{**values, "ca_pem": genuine.ca_pem})  # trusts the clinic, shows a foreign certificate
    assert await answer(clinic, mixed, handshake(clinic)) == "TLS_REFUSED"
    assert await answer(clinic, stranger, handshake(clinic)) == "TLS_REFUSED"  # it would not trust the clinic


async def test_no_certificate(clinic: Any) -> None:
    context = ssl.create_default_context(cafile=str(clinic.made.ca_certificate))
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    host, _, port = clinic.addresses["clinic"].rpartition(":")

    async def first_frame() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        try:
            return await reader.readexactly(9)  # a server that accepted us would send its SETTINGS frame
        finally:
            writer.close()

    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await first_frame()

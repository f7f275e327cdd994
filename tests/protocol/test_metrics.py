"""Features 34 and 35: what the page for a monitoring system says, where it is served, and request ids in the log."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from support.ports import free_port
from verticil.shared.core import logs
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.config import Federation, read_toml
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    Credentials,
    certificate_sha256,
    load_credentials,
    read_certificates,
)
from verticil.shared.federation.transport.client import REQUEST_ID, Connection, GrpcControl
from verticil.shared.federation.transport.interface import Control, bind
from verticil.shared.federation.transport.metrics import Gauge, Metrics, metrics_address
from verticil.shared.federation.transport.server import RpcServer
from verticil.wire.v1 import control_pb2


class Desk:
    """A control service that knows one study."""

    async def ListStudies(  # noqa: N802
        self, identity: Identity, request: control_pb2.ListStudiesRequest
    ) -> control_pb2.ListStudiesReply:
        logging.getLogger("verticil.desk").info("asked")
        return control_pb2.ListStudiesReply()

    async def CancelStudy(  # noqa: N802
        self, identity: Identity, request: control_pb2.CancelStudyRequest
    ) -> control_pb2.CancelStudyReply:
        raise Misuse("STUDY_UNKNOWN", "study: no study with this digest")

    async def SubmitStudy(self, identity: Identity, request: object) -> None: ...  # noqa: N802
    async def GetStudy(self, identity: Identity, request: object) -> None: ...  # noqa: N802
    async def GetRelease(self, identity: Identity, request: object) -> None: ...  # noqa: N802


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Credentials]:
    home = tmp_path_factory.mktemp("metrics")
    create_authority(home, federation="fed")
    issue(home, "miner", Role.MINER, home, hosts=["localhost", "127.0.0.1"])
    issue(home, "lee", Role.ANALYST, home)
    ca = home / "ca.crt"
    federation = Federation(
        name="fed",
        ca_certificate=ca,
        ca_sha256=certificate_sha256(read_certificates(ca)[0]),
        endpoint="localhost:1",
        idle_timeout_seconds=PATIENCE_SECONDS,
        chunk_bytes=1024,
    )
    return {name: load_credentials(home / f"{name}.crt", home / f"{name}.key", federation) for name in ("miner", "lee")}


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())


async def test_feature_35_calls_are_counted_by_rpc_and_code_and_nothing_else_is_told(
    credentials: dict[str, Credentials],
) -> None:
    metrics = Metrics()
    metrics.read(lambda: [Gauge(name="studies", help="Studies by state.", labels=("state",), values={("review",): 2})])
    server = RpcServer("127.0.0.1:0", credentials["miner"], [bind(Control, Desk())], metrics=metrics)
    port = await server.start()
    page = metrics.serve(("127.0.0.1", free_port()))  # which stays free when the page is closed
    connection = Connection(f"127.0.0.1:{port}", credentials["lee"])
    control = GrpcControl(connection)
    try:
        for _ in range(3):
            await control.list_studies(control_pb2.ListStudiesRequest())
        with pytest.raises(Misuse):
            await control.cancel_study(control_pb2.CancelStudyRequest(study_digest=b"canary" * 5))
        text = await asyncio.to_thread(scraped, page.port)
    finally:
        await connection.close()
        await server.stop(grace_seconds=0)
        page.close()
    assert 'verticil_rpc_total{code="OK",method="Control/ListStudies"} 3.0' in text
    assert 'verticil_rpc_total{code="STUDY_UNKNOWN",method="Control/CancelStudy"} 1.0' in text
    assert 'verticil_rpc_seconds_count{method="Control/ListStudies"} 3.0' in text
    assert 'verticil_rpc_bytes_total{direction="in",method="Control/CancelStudy"} 32.0' in text  # tag, length, 30 bytes
    assert 'verticil_studies{state="review"} 2.0' in text
    assert "canary" not in text
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(scraped, page.port)


async def test_every_call_has_a_request_id_in_the_log(
    credentials: dict[str, Credentials], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[dict[str, str]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(json.loads(logs.Formatter(as_json=True).format(record)))

    handler = Keep()
    logging.getLogger("verticil").addHandler(handler)
    caplog.set_level(logging.DEBUG, logger="verticil")
    server = RpcServer("127.0.0.1:0", credentials["miner"], [bind(Control, Desk())])
    connection = Connection(f"127.0.0.1:{await server.start()}", credentials["lee"])
    try:
        await GrpcControl(connection).list_studies(control_pb2.ListStudiesRequest())
        with pytest.raises(Misuse):
            await GrpcControl(connection).cancel_study(control_pb2.CancelStudyRequest())
    finally:
        logging.getLogger("verticil").removeHandler(handler)
        await connection.close()
        await server.stop(grace_seconds=0)
    asked = [line for line in seen if line["message"] == "asked"]
    assert [REQUEST_ID.fullmatch(line["request"]) is not None for line in asked] == [True]
    # The same failed call at both ends carries one id.
    refused = [line["request"] for line in seen if "STUDY_UNKNOWN" in line["message"] or "no study" in line["message"]]
    assert len(refused) == 2
    assert len(set(refused)) == 1
    assert refused[0] != asked[0]["request"]


@pytest.mark.parametrize("listen", ["0.0.0.0:9464", "192.0.2.7:9464", "example.org:9464", "[::]:9464"])
def test_the_page_is_refused_anywhere_but_on_loopback(tmp_path: Path, listen: str) -> None:
    (tmp_path / "miner.toml").write_text(f'schema = 1\n[metrics]\nlisten = "{listen}"\n')
    with pytest.raises(Misuse, match="loopback") as caught:
        metrics_address(read_toml(tmp_path / "miner.toml").table("metrics"))
    assert caught.value.code == "CONFIG_INVALID"


@pytest.mark.parametrize("listen", ["9464", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"])
def test_an_address_without_host_or_port_is_refused(tmp_path: Path, listen: str) -> None:
    (tmp_path / "miner.toml").write_text(f'schema = 1\n[metrics]\nlisten = "{listen}"\n')
    with pytest.raises(Misuse, match="expected host:port"):
        metrics_address(read_toml(tmp_path / "miner.toml").table("metrics"))


def test_the_page_is_off_unless_asked_for(tmp_path: Path) -> None:
    (tmp_path / "miner.toml").write_text("schema = 1\n")
    assert metrics_address(read_toml(tmp_path / "miner.toml").table("metrics", optional=True)) is None
    (tmp_path / "miner.toml").write_text('schema = 1\n[metrics]\nlisten = "127.0.0.1:9464"\n')
    assert metrics_address(read_toml(tmp_path / "miner.toml").table("metrics")) == ("127.0.0.1", 9464)


def test_a_taken_port_is_an_error_that_says_so() -> None:
    page = Metrics().serve(("127.0.0.1", 0))
    try:
        with pytest.raises(Misuse, match=f"cannot listen on 127.0.0.1:{page.port}"):
            Metrics().serve(("127.0.0.1", page.port))
    finally:
        page.close()


def test_what_cannot_be_read_is_left_out_of_the_page() -> None:
    def broken() -> list[Gauge]:
        raise PeerFault("NOT_READY", "not now")

    metrics = Metrics()
    metrics.read(broken)
    metrics.count_call("/verticil.wire.v1.Control/GetStudy", "OK", 0.01)
    page = metrics.serve(("127.0.0.1", 0))
    try:
        text = scraped(page.port)
    finally:
        page.close()
    assert "Control/GetStudy" in text
    assert "verticil_studies" not in text


def test_a_gauge_with_a_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="every value needs 1 labels"):
        Gauge(name="x", help="x", labels=("a",), values={(): 1.0})

"""Feature 30: a version works with itself and with the one before; anything else is refused, naming both and whom to upgrade.

Over real mutual TLS, with the miner's and a party's own services, and with peers that pretend to be of other versions.
"""

# ruff: noqa: N802 (a service's methods have the names of the wire contract)

from __future__ import annotations

import datetime as dt
import logging
from pathlib import Path

import grpc.aio
import pytest

from support import PATIENCE_SECONDS
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.documents.config import Federation
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    Credentials,
    certificate_sha256,
    load_credentials,
    read_certificates,
)
from verticil.shared.federation.transport.client import Connection, GrpcControl, client_channel
from verticil.shared.federation.transport.errors_on_wire import ERROR_KEY, from_detail
from verticil.shared.federation.transport.interface import Binding
from verticil.shared.federation.transport.server import RpcServer
from verticil.shared.federation.transport.version import (
    FIRST_VERSION,
    PROTOCOL_KEY,
    PROTOCOL_VERSION,
    agree,
    answer_hello,
    greet,
)
from verticil.wire.v1 import common_pb2, control_pb2

N = PROTOCOL_VERSION
NOW = dt.datetime(2026, 11, 21, 10, 0, 0, tzinfo=dt.UTC)


def request(version: int) -> common_pb2.HelloRequest:
    return common_pb2.HelloRequest(protocol_version=version)


def answering(version: int) -> object:
    """A node of some version."""

    async def hello(asked: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        return answer_hello(asked, federation="fed", lease_seconds=1, at=NOW, ours=version)

    return hello


@pytest.mark.parametrize(("caller", "answers"), [(7, 7), (7, 6), (6, 7)])
async def test_feature_30_n_works_with_n_and_n_minus_1(caller: int, answers: int) -> None:
    reply = await greet(answering(answers), who="the miner", at=lambda: NOW, ours=caller)  # type: ignore[arg-type]
    assert reply.protocol_version == min(caller, answers)


@pytest.mark.parametrize(
    ("caller", "answers", "older"),
    [
        (7, 5, "the answering side"),
        (5, 7, "the calling side"),
        (9, 7, "the answering side"),
        (0, 7, "the calling side"),
    ],
)
async def test_feature_30_n_minus_2_and_beyond_are_refused_naming_both(caller: int, answers: int, older: str) -> None:
    with pytest.raises(VerticilError) as caught:
        await answering(answers)(request(caller))  # type: ignore[operator]
    assert caught.value.code == "VERSION_UNSUPPORTED"
    assert f"version {caller}" in caught.value.message
    assert f"version {answers}" in caught.value.message
    assert f"upgrade verticil at {older}" in caught.value.hint
    assert caught.value.exit_code == 5


async def test_feature_30_a_node_of_before_1_0_0_is_refused_on_either_side() -> None:
    for caller, answers in ((FIRST_VERSION, FIRST_VERSION - 1), (FIRST_VERSION - 1, FIRST_VERSION)):
        with pytest.raises(VerticilError) as caught:
            await greet(answering(answers), who="the miner", at=lambda: NOW, ours=caller)  # type: ignore[arg-type]
        assert caught.value.code == "VERSION_UNSUPPORTED"
    assert agree(FIRST_VERSION, ours=FIRST_VERSION + 1) == FIRST_VERSION


async def test_feature_30_a_caller_refuses_what_it_does_not_speak_too() -> None:
    async def hello(_asked: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        return common_pb2.HelloReply(protocol_version=9)

    with pytest.raises(VerticilError) as caught:
        await greet(hello, who="party 'clinic'", at=lambda: NOW, ours=7)
    assert "party 'clinic' speaks protocol version 9, this side version 7 (and 6)" in caught.value.message
    assert "upgrade verticil at this side" in caught.value.hint


async def test_clocks_that_differ_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    for seconds, words in ((30, ""), (-90, "the clock of the miner is 90 s ahead of ours"), (90, "90 s behind ours")):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            here = NOW + dt.timedelta(seconds=seconds)
            await greet(answering(N), who="the miner", at=lambda here=here: here)  # type: ignore[arg-type, misc]
        assert words in caplog.text
        assert bool(words) is bool(caplog.records)


# --- every call tells the version, so Control is covered, too ---


class Desk:
    async def ListStudies(
        self, identity: Identity, request: control_pb2.ListStudiesRequest
    ) -> control_pb2.ListStudiesReply:
        return control_pb2.ListStudiesReply(studies=[control_pb2.StudySummary(title=identity.name)])


def credentials(home: Path, name: str) -> Credentials:
    federation = Federation(
        name="fed",
        ca_certificate=home / "ca.crt",
        ca_sha256=certificate_sha256(read_certificates(home / "ca.crt")[0]),
        endpoint="localhost:1",
        idle_timeout_seconds=PATIENCE_SECONDS,
        chunk_bytes=1024,
    )
    return load_credentials(home / f"{name}.crt", home / f"{name}.key", federation)


async def test_feature_30_control_calls_of_other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_authority(tmp_path, "fed")
    issue(tmp_path, "miner", Role.MINER, tmp_path, hosts=["localhost"])
    issue(tmp_path, "lee", Role.ANALYST, tmp_path)
    control = control_pb2.DESCRIPTOR.services_by_name["Control"]
    others = frozenset(method.name for method in control.methods) - {"ListStudies"}
    binding = Binding(descriptor=control, service=Desk(), omitted=others)
    server = RpcServer("127.0.0.1:0", credentials(tmp_path, "miner"), [binding])
    port = await server.start()
    channel = client_channel(f"localhost:{port}", credentials(tmp_path, "lee"))
    list_studies = channel.unary_unary("/verticil.wire.v1.Control/ListStudies")

    async def told(*metadata: tuple[str, str]) -> VerticilError | None:
        try:
            await list_studies(b"", timeout=PATIENCE_SECONDS, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            found = dict(error.trailing_metadata() or ())
            return from_detail(common_pb2.ErrorDetail.FromString(found[ERROR_KEY]))
        return None

    try:
        for version in (N, N + 1):
            assert await told((PROTOCOL_KEY, str(version))) is None
        for wrong in (None, str(N - 1), str(N + 2), "two", "", "9" * 40):
            error = await told(*(() if wrong is None else ((PROTOCOL_KEY, wrong),)))
            assert error is not None
            assert (error.code, f"version {N}" in error.message) == ("VERSION_UNSUPPORTED", True)
        line = Connection(f"localhost:{port}", credentials(tmp_path, "lee"))
        listed = await GrpcControl(line).list_studies(control_pb2.ListStudiesRequest())
        assert [study.title for study in listed.studies] == ["lee"]
        monkeypatch.setattr("verticil.shared.federation.transport.channel._METADATA", ((PROTOCOL_KEY, str(N + 2)),))
        with pytest.raises(VerticilError) as caught:
            await GrpcControl(line).list_studies(control_pb2.ListStudiesRequest())
        assert caught.value.code == "VERSION_UNSUPPORTED"
        await line.close()
    finally:
        await channel.close()
        await server.stop(grace_seconds=0)


def test_the_rule_is_symmetric() -> None:
    for ours in range(FIRST_VERSION, FIRST_VERSION + 4):
        for theirs in range(FIRST_VERSION, FIRST_VERSION + 4):
            if abs(ours - theirs) <= 1:
                assert agree(theirs, ours=ours) == agree(ours, ours=theirs) == min(ours, theirs)
            else:
                with pytest.raises(PeerFault):
                    agree(theirs, ours=ours)

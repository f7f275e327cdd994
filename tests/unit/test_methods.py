"""The tables of rpcs agree with the wire contract, and what answers agrees with the tables."""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from verticil.miner.service.control import Control as ControlService
from verticil.miner.service.coordinator import Coordinator as CoordinatorService
from verticil.party.protocol.node.service import PeerService
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.transport.authorization import ROLES
from verticil.shared.federation.transport.interface import (
    Calls,
    Control,
    Coordinator,
    Download,
    Peer,
    Unary,
    Upload,
    bind,
)
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

ANSWERED = ((Coordinator, CoordinatorService), (Control, ControlService), (Peer, PeerService))


@pytest.mark.parametrize(("calls", "service"), ANSWERED)
def test_a_service_answers_each_rpc_with_the_messages_of_the_contract(calls: type[Calls], service: type) -> None:
    for method in calls.methods():
        answer = getattr(service, method.name)
        hints = typing.get_type_hints(answer)
        reply, (identity, request) = hints.pop("return"), hints.values()
        assert identity is Identity
        if isinstance(method, Upload):
            assert typing.get_origin(request) is AsyncIterator, method.path
            assert typing.get_args(request) == (method.request,), method.path
        else:
            assert request is method.request, method.path
        if isinstance(method, Download):
            assert typing.get_origin(reply) in {AsyncIterator, AsyncGenerator}, method.path
            assert typing.get_args(reply)[0] is method.reply, method.path
        else:
            assert reply is method.reply, method.path
            assert inspect.iscoroutinefunction(answer), method.path


def test_every_rpc_has_roles() -> None:
    assert [path for path, roles in ROLES.items() if not roles] == []
    assert len([path for path in ROLES if path.startswith("/verticil.wire.v1.")]) == 31


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("get_deletion", Unary(peer_pb2.GetDeletionRequest, peer_pb2.GetSignatureReply, frozenset(Role))),
        ("get_column", Unary(peer_pb2.GetColumnRequest, peer_pb2.Part, frozenset(Role))),
        ("put_column", Upload(peer_pb2.Part, common_pb2.ChunkAck, frozenset(Role))),
        ("get_signature", None),
    ],
)
def test_a_table_that_differs_from_the_contract_does_not_load(name: str, entry: object) -> None:
    table = {key: item for key, item in vars(Peer).items() if key == "contract" or isinstance(item, Unary | Download)}
    type("Same", (Calls,), dict(table))
    changed = {key: item for key, item in {**table, name: entry}.items() if item is not None}
    different = "".join(word.capitalize() for word in name.split("_"))
    with pytest.raises(TypeError, match=f"differs from the wire contract in {different}$"):
        type("Other", (Calls,), changed)


def test_a_service_that_lacks_an_rpc_is_not_served() -> None:
    lacking = type("Lacking", (), {method.name: None for method in Control.methods() if method.name != "GetStudy"})
    with pytest.raises(TypeError, match="Lacking does not answer GetStudy of Control"):
        bind(Control, lacking())


def test_a_call_that_waits_on_purpose_has_longer() -> None:
    def poll(wait: int) -> float:
        return Coordinator.poll.deadline(coordinator_pb2.PollRequest(wait_seconds=wait))

    def take(wait: int) -> float:
        return Coordinator.take_relay.deadline(coordinator_pb2.TakeRelayRequest(wait_seconds=wait))

    assert [poll(0), poll(5), poll(60)] == [15, 20, 75]
    assert [take(0), take(5), take(60)] == [30, 30, 75]
    assert Coordinator.hello.deadline(common_pb2.HelloRequest()) == 10
    assert Peer.hello.deadline(common_pb2.HelloRequest()) == 30

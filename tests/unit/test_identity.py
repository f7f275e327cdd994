"""The identity URI (contract.md section 2) and who may call what."""

from __future__ import annotations

import pytest

from verticil.shared.core.errors import PeerFault
from verticil.shared.documents.toml_table import is_name
from verticil.shared.federation.identity.identity import Identity, Role, peer_host
from verticil.shared.federation.transport.authorization import ROLES, check_access
from verticil.wire.v1 import control_pb2, coordinator_pb2, peer_pb2


@pytest.mark.parametrize("role", list(Role))
def test_a_uri_reads_back_as_written(role: Role) -> None:
    identity = Identity(federation="adult-demo", role=role, name="census_bureau")
    assert identity.uri == f"verticil://adult-demo/{role.value}/census_bureau"
    assert Identity.parse(identity.uri) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "verticil://",
        "verticil://fed/party",
        "verticil://fed/party/a/b",
        "verticil://fed/party/a/",
        "verticil://fed//a",
        "verticil:///party/a",
        "verticil://fed/PARTY/a",
        "verticil://fed/admin/a",
        "verticil://fed/party/a b",
        "verticil://fed/party/a\n",
        "verticil://fed/party/..",
        "verticil://fed/party/é",
        "verticil://fed/party/" + "a" * 64,
        "VERTICIL://fed/party/a",
        "https://fed/party/a",
        " verticil://fed/party/a",
    ],
)
def test_any_other_form_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"expected"):
        Identity.parse(uri)


def test_every_identity_has_a_host_of_its_own_that_is_a_dns_name() -> None:
    uris = [f"verticil://{fed}/{role}/{name}" for fed in ("a", "b") for role in Role for name in ("a", "A", "b")]
    hosts = {peer_host(Identity.parse(uri)) for uri in uris}
    assert len(hosts) == len(uris)
    assert {(len(host), host.rpartition(".")[2]) for host in hosts} == {(49, "verticil")}
    assert all(is_name(label) for host in hosts for label in host.split("."))
    # printf verticil://fed/party/a | sha256sum | cut -c-40
    assert peer_host(Identity.parse("verticil://fed/party/a")) == "d4a445c69cfdaad03ae3b4b1053c7d3762f4f610.verticil"


def test_every_rpc_of_the_contract_is_in_the_table_and_parties_and_analysts_share_none() -> None:
    readers = {Role.ANALYST, Role.CONSUMER, Role.AUDITOR}  # which of them may what: tests/protocol/test_roles.py
    for file, service, roles in (
        (coordinator_pb2, "Coordinator", {Role.PARTY}),
        (control_pb2, "Control", readers),
        (peer_pb2, "Peer", {Role.PARTY}),
    ):
        for method in file.DESCRIPTOR.services_by_name[service].methods:
            allowed = ROLES[f"/verticil.wire.v1.{service}/{method.name}"]
            assert allowed
            assert allowed <= roles


@pytest.mark.parametrize(
    ("uri", "method", "accepted"),
    [
        ("verticil://fed/party/a", "/verticil.wire.v1.Coordinator/Poll", True),
        ("verticil://fed/analyst/a", "/verticil.wire.v1.Coordinator/Poll", False),
        ("verticil://fed/miner/a", "/verticil.wire.v1.Coordinator/Poll", False),
        ("verticil://fed/party/a", "/verticil.wire.v1.Control/CancelStudy", False),
        ("verticil://fed/analyst/a", "/verticil.wire.v1.Control/CancelStudy", True),
        ("verticil://other/party/a", "/verticil.wire.v1.Coordinator/Poll", False),
        ("verticil://fed/party/a", "/verticil.wire.v1.Coordinator/Unknown", False),
        ("verticil://fed/miner/a", "/grpc.health.v1.Health/Check", True),
        ("verticil://other/miner/a", "/grpc.health.v1.Health/Check", False),
    ],
)
def test_access_is_denied_by_default(uri: str, method: str, accepted: bool) -> None:
    identity = Identity.parse(uri)
    if accepted:
        check_access(identity, method, federation="fed")
        return
    with pytest.raises(PeerFault) as caught:
        check_access(identity, method, federation="fed")
    assert caught.value.code == "IDENTITY_REFUSED"

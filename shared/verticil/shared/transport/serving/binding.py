"""Services of the wire contract, each bound to the object that answers it."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.descriptor import ServiceDescriptor

from verticil.shared.transport.coordinator import ControlService, CoordinatorService
from verticil.shared.transport.peer import PeerService
from verticil.wire.v1 import control_pb2, coordinator_pb2, peer_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A service of the wire contract and the object that answers it.

    Attributes:
        descriptor: the service.
        service: has one method for each rpc, by name (see `coordinator`).
        omitted: rpcs that are not served.
    """

    descriptor: ServiceDescriptor
    service: object
    omitted: frozenset[str] = frozenset()


def bind_coordinator(service: CoordinatorService) -> Binding:
    """Serve `Coordinator` with `service`."""
    return Binding(descriptor=coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"], service=service)


def bind_control(service: ControlService) -> Binding:
    """Serve `Control` with `service`."""
    return Binding(descriptor=control_pb2.DESCRIPTOR.services_by_name["Control"], service=service)


def bind_peer(service: PeerService) -> Binding:
    """Serve `Peer` with `service`."""
    return Binding(descriptor=peer_pb2.DESCRIPTOR.services_by_name["Peer"], service=service)

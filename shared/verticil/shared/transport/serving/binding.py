"""Services of the wire contract, each bound to the object that answers it."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.descriptor import ServiceDescriptor

from verticil.shared.transport.methods import Calls, Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A service of the wire contract and the object that answers it.

    Attributes:
        descriptor: the service.
        service: has one method for each rpc, by name (see `coordinator`).
        omitted: rpcs that are not served.
    """

    descriptor: ServiceDescriptor
    service: Service
    omitted: frozenset[str] = frozenset()


def bind(calls: type[Calls], service: Service) -> Binding:
    """Answer what `calls` describes with `service`.

    Raises:
        TypeError: the service lacks a method.
    """
    missing = [method.name for method in calls.methods() if not hasattr(service, method.name)]
    if missing:
        raise TypeError(f"{type(service).__name__} does not answer {', '.join(missing)} of {calls.contract.name}")
    return Binding(descriptor=calls.contract, service=service)

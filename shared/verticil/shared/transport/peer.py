"""The service between parties (Model I), as the caller sees it and as the one who answers writes it.

Caller's side: `Peer` is what a party asks of another one. The module `remote` implements it over gRPC, `in_memory` over a
service object in the same process. Every method raises `VerticilError` and nothing else; every call is safe to repeat, because
nothing is pushed: a party writes nothing for another. What is not there yet is NOT_READY. The streams are pieces of a whole that
does not change while it is read; `parts` reads them to the end, resumes them and checks them.

Answering side: `PeerService` is what a party implements. Its methods have the shapes that `coordinator` describes: by the rpc's
name, with the caller's identity first. That the caller is a party of this federation is checked before (`access`); that it is a
party of the study, the successor in the alignment or a reader of the unit is the service's to check. A service must not block
the event loop.
"""

# A service's methods are called by the names of the wire contract.
# ruff: noqa: N802

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from verticil.shared.identity.identity import Identity
from verticil.wire.v1 import common_pb2, peer_pb2


class Peer(Protocol):
    """What a party asks of another party."""

    async def hello(self, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """Exchange versions; the first call of a session."""
        ...

    async def get_study_digest(self, request: peer_pb2.GetStudyDigestRequest) -> peer_pb2.GetStudyDigestReply:
        """Compare what both operators loaded, and learn what the other party has decided."""
        ...

    def get_pseudonyms(self, request: peer_pb2.GetPseudonymsRequest) -> AsyncIterator[peer_pb2.Part]:
        """Read the running or the final common list, from an offset. Close the iterator when leaving it early."""
        ...

    def get_column(self, request: peer_pb2.GetColumnRequest) -> AsyncIterator[peer_pb2.Part]:
        """Read a randomized unit, from an offset. Close the iterator when leaving it early."""
        ...

    def get_parameters(self, request: peer_pb2.GetParametersRequest) -> AsyncIterator[peer_pb2.Part]:
        """Read the other party's signed parameters, from an offset. Close the iterator when leaving it early."""
        ...

    async def get_signature(self, request: peer_pb2.GetSignatureRequest) -> peer_pb2.GetSignatureReply:
        """The other party's signature of the manifest that it assembled."""
        ...

    async def get_deletion(self, request: peer_pb2.GetDeletionRequest) -> peer_pb2.GetDeletionReply:
        """What the other party signs that it has deleted of the caller's."""
        ...

    async def close(self) -> None:
        """Give up the connection. Repeatable."""
        ...


class PeerService(Protocol):
    """What a party answers to its peers; see the module's docstring for the shape of a method."""

    async def Hello(self, identity: Identity, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """See `Peer.hello`."""
        ...

    async def GetStudyDigest(
        self, identity: Identity, request: peer_pb2.GetStudyDigestRequest
    ) -> peer_pb2.GetStudyDigestReply:
        """See `Peer.get_study_digest`."""
        ...

    def GetPseudonyms(self, identity: Identity, request: peer_pb2.GetPseudonymsRequest) -> AsyncIterator[peer_pb2.Part]:
        """See `Peer.get_pseudonyms`."""
        ...

    def GetColumn(self, identity: Identity, request: peer_pb2.GetColumnRequest) -> AsyncIterator[peer_pb2.Part]:
        """See `Peer.get_column`."""
        ...

    def GetParameters(self, identity: Identity, request: peer_pb2.GetParametersRequest) -> AsyncIterator[peer_pb2.Part]:
        """See `Peer.get_parameters`."""
        ...

    async def GetSignature(
        self, identity: Identity, request: peer_pb2.GetSignatureRequest
    ) -> peer_pb2.GetSignatureReply:
        """See `Peer.get_signature`."""
        ...

    async def GetDeletion(self, identity: Identity, request: peer_pb2.GetDeletionRequest) -> peer_pb2.GetDeletionReply:
        """See `Peer.get_deletion`."""
        ...

"""The service between parties (Model I): every rpc once, as `verticil.shared.transport.coordinator` has the miner's.

Every call is safe to repeat, because nothing is pushed: a party writes nothing for another. What is not there yet is NOT_READY.
The streams are pieces of a whole that does not change while it is read; `parts` reads them to the end, resumes them and checks
them.

The service object that answers has methods of the shapes that `coordinator` describes: by the rpc's name, with the caller's
identity first. That the caller is a party of this federation is checked before (`access`); that it is a party of the study, the
successor in the alignment or a reader of the unit is the service's to check. A service must not block the event loop.
"""

from __future__ import annotations

from typing import Final

from verticil.shared.identity.identity import Role
from verticil.shared.transport.methods import Calls, Download, Unary
from verticil.wire.v1 import common_pb2, peer_pb2

_PARTY: Final = frozenset({Role.PARTY})


class Peer(Calls):
    """What a party asks of another party."""

    contract = peer_pb2.DESCRIPTOR.services_by_name["Peer"]

    hello = Unary(common_pb2.HelloRequest, common_pb2.HelloReply, _PARTY)
    """Exchange versions; the first call of a session."""
    get_study_digest = Unary(peer_pb2.GetStudyDigestRequest, peer_pb2.GetStudyDigestReply, _PARTY)
    """Compare what both operators loaded, and learn what the other party has decided."""
    get_pseudonyms = Download(peer_pb2.GetPseudonymsRequest, peer_pb2.Part, _PARTY)
    """Read the running or the final common list, from an offset."""
    get_column = Download(peer_pb2.GetColumnRequest, peer_pb2.Part, _PARTY)
    """Read a randomized unit, from an offset."""
    get_parameters = Download(peer_pb2.GetParametersRequest, peer_pb2.Part, _PARTY)
    """Read the other party's signed parameters, from an offset."""
    get_signature = Unary(peer_pb2.GetSignatureRequest, peer_pb2.GetSignatureReply, _PARTY)
    """The other party's signature of the manifest that it assembled."""
    get_deletion = Unary(peer_pb2.GetDeletionRequest, peer_pb2.GetDeletionReply, _PARTY)
    """What the other party signs that it has deleted of the caller's."""

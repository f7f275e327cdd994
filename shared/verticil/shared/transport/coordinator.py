"""The two services of the miner: every rpc once, with its messages, the roles that may call it and its deadline.

A new rpc takes five steps: ``protos/``, the code generated from it (``python protos/generate.py``), its line here (or in `peer`),
the method of the service object that answers it, and its caller. Nothing else lists rpcs: calls over gRPC, within one process,
through the relay and in files, the retries, the role table and the server's dispatch are made of these lines.

Caller's side: `Coordinator` (a party) and `Control` (an analyst) are what a program calls, by attribute.

Answering side: a service object has one method for each rpc, called by the rpc's name in the wire contract with the caller's
identity, taken from the certificate, and the request:

- one request, one reply: ``async def Poll(self, identity, request) -> PollReply``;
- a stream of requests: ``async def PutChunks(self, identity, requests) -> ChunkAck`` where `requests` is an async
  iterator of messages. It may be left before its end (an early reply or an error ends the call). It raises DEADLINE when
  the caller makes no progress;
- a stream of replies: an async generator, ``async def GetRelease(self, identity, request)`` that yields ``ReleasePart``.

What a service raises reaches the caller: a `VerticilError` as it is, anything else as INTERNAL without its text. A caller
that goes away cancels the method (`asyncio.CancelledError`): clean up in ``finally`` and let it pass. Role and federation
are checked before a service is called (`access`); whether this party may do this to this study is the service's to check.
Nothing here blocks the event loop, and a service must not either.
"""

from __future__ import annotations

from typing import Final

from verticil.shared.errors import PeerFault
from verticil.shared.identity.identity import Role
from verticil.shared.transport.methods import Calls, Download, Unary, Upload
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

_PARTY: Final = frozenset({Role.PARTY})
_ANALYST: Final = frozenset({Role.ANALYST})
_READERS: Final = frozenset({Role.ANALYST, Role.CONSUMER, Role.AUDITOR})
_TAKERS: Final = frozenset({Role.ANALYST, Role.CONSUMER})


class AnsweredLater(PeerFault):
    """The request was taken, and its answer comes with what the miner tells next: there is no line to it, files are carried."""

    def __init__(self, what: str) -> None:
        super().__init__("NOT_READY", f"{what}: goes to the miner in a file, and so does the answer come")


class Coordinator(Calls):
    """What a party asks of the miner."""

    contract = coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"]

    hello = Unary(common_pb2.HelloRequest, common_pb2.HelloReply, _PARTY, seconds=10)
    """Exchange versions; the first call of a session. Short: without an answer, the next attempt is worth more than waiting."""
    poll = Unary(coordinator_pb2.PollRequest, coordinator_pb2.PollReply, _PARTY, seconds=15)
    """Wait at most ``wait_seconds`` for studies that are newer than what the party knows. Answered at once when the daemon is
    about to stop."""
    report = Unary(coordinator_pb2.ReportRequest, coordinator_pb2.ReportReply, _PARTY)
    """Tell the party's approval, denial, confirmation, failure or progress."""
    put_pseudonyms = Upload(coordinator_pb2.PutPseudonymsRequest, coordinator_pb2.PutPseudonymsReply, _PARTY)
    """Send (a part of) the party's pseudonyms, or ask for the committed offset."""
    get_alignment = Download(coordinator_pb2.GetAlignmentRequest, coordinator_pb2.AlignmentPart, _PARTY)
    """Read the bitmap over the party's pseudonyms, from an offset."""
    put_blinded = Upload(coordinator_pb2.PutBlindedRequest, coordinator_pb2.PutBlindedReply, _PARTY)
    """Send (a part of) a blinded list, or ask for the committed offset."""
    get_blinded = Download(coordinator_pb2.GetBlindedRequest, coordinator_pb2.BlindedPart, _PARTY)
    """Read the blinded list whose next station this party is, from an offset."""
    begin_upload = Unary(coordinator_pb2.BeginUploadRequest, coordinator_pb2.BeginUploadReply, _PARTY)
    """Begin or resume the upload of one unit."""
    put_chunks = Upload(common_pb2.Chunk, common_pb2.ChunkAck, _PARTY)
    """Send one stream of chunks; the reply says what is on the miner's disk."""
    finish_upload = Unary(coordinator_pb2.FinishUploadRequest, coordinator_pb2.FinishUploadReply, _PARTY)
    """Have the artifact verified and receipted."""
    get_release = Download(common_pb2.GetReleaseRequest, common_pb2.ReleasePart, _PARTY)
    """Read a file of a published release, from an offset."""
    put_scores = Unary(coordinator_pb2.PutScoresRequest, coordinator_pb2.PutScoresReply, _PARTY)
    """Model I: give the party's pair scores, and wait at most ``wait_seconds`` for the structure; again, only the latter.
    Answered at once when the daemon is about to stop."""
    put_relay = Unary(coordinator_pb2.PutRelayRequest, coordinator_pb2.PutRelayReply, _PARTY)
    """Model I: leave a sealed envelope for another party."""
    take_relay = Unary(coordinator_pb2.TakeRelayRequest, coordinator_pb2.TakeRelayReply, _PARTY)
    """Model I: wait at most ``wait_seconds`` for envelopes that others left for the party. Answered at once when the daemon is
    about to stop."""


class Control(Calls):
    """What an analyst or a consumer asks of the miner."""

    contract = control_pb2.DESCRIPTOR.services_by_name["Control"]

    submit_study = Unary(control_pb2.SubmitStudyRequest, control_pb2.SubmitStudyReply, _ANALYST)
    """Propose a study to the parties."""
    get_study = Unary(control_pb2.GetStudyRequest, control_pb2.GetStudyReply, _READERS)
    """Where a study stands; with ``wait_seconds``, when it has moved on."""
    list_studies = Unary(control_pb2.ListStudiesRequest, control_pb2.ListStudiesReply, _READERS)
    """All studies."""
    cancel_study = Unary(control_pb2.CancelStudyRequest, control_pb2.CancelStudyReply, _ANALYST)
    """Withdraw a study."""
    get_release = Download(common_pb2.GetReleaseRequest, common_pb2.ReleasePart, _TAKERS)
    """Read a file of a published release, from an offset."""

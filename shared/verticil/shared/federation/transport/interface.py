"""The interface between nodes: every rpc once, with its messages, the roles that may call it and its deadline.

A new rpc takes five steps: ``protos/``, the code generated from it (``python protos/generate.py``), its line in a table here, the
method of the service object that answers it, and its caller. Nothing else lists rpcs: calls over gRPC (`client`), within one
process (`in_memory`), through the relay and in files, the retries, the role table and the server's dispatch are made of these
lines. A table that differs from the wire contract does not load.

Caller's side: `Coordinator` (a party asks the miner), `Control` (an analyst asks it) and `Peer` (a party asks another) are what a
program calls. Each rpc is an attribute, which is two things: on the class its description, on an instance the call itself, with
the types of its messages. How a call travels is decided by the instance's class. Every call is safe to repeat. Between peers
nothing is pushed, so a party writes nothing for another; what is not there yet is NOT_READY, and the streams are pieces of a
whole that does not change while it is read (`fetch` reads them to the end, resumes them and checks them).

Answering side: a service object has one method for each rpc, called by the rpc's name in the wire contract with the caller's
identity, taken from the certificate, and the request:

- one request, one reply: ``async def Poll(self, identity, request) -> PollReply``;
- a stream of requests: ``async def PutChunks(self, identity, requests) -> ChunkAck`` where `requests` is an async
  iterator of messages. It may be left before its end (an early reply or an error ends the call). It raises DEADLINE when
  the caller makes no progress;
- a stream of replies: an async generator, ``async def GetRelease(self, identity, request)`` that yields ``ReleasePart``.

What a service raises reaches the caller: a `VerticilError` as it is, anything else as INTERNAL without its text. A caller
that goes away cancels the method (`asyncio.CancelledError`): clean up in ``finally`` and let it pass. Role and federation
are checked before a service is called (`authorization`); whether this party may do this to this study (is a party of it, the
successor in the alignment, a reader of the unit) is the service's to check. Nothing here blocks the event loop, and a service
must not either.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar, overload

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.identity.identity import Role
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2, peer_pb2

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
Messages: TypeAlias = Iterable[Q] | AsyncIterable[Q]
"""A stream of requests. A plain iterable is read in a worker thread, so it may read a file."""
AnyMethod: TypeAlias = "Method[Any, Any]"
Service: TypeAlias = object
"""What answers: an object with a method for each rpc, of the shape that the module describes."""

MESSAGE_LIMIT: Final = 4_194_304
"""Most bytes in one message, either way."""

_CALL_SECONDS: Final = 30.0
_WAIT_MARGIN_SECONDS: Final = 15.0


class Method(Generic[Q, R]):
    """One rpc.

    Args:
        request: the kind of its request, or of each request.
        reply: the kind of its reply, or of each reply.
        roles: who may call it.

    Attributes:
        name: in the wire contract.
        path: its full name.
        request, reply, roles: as given.
    """

    streams: ClassVar[tuple[bool, bool]]
    """Whether requests, and whether replies, are streams."""

    def __init__(self, request: type[Q], reply: type[R], roles: frozenset[Role]) -> None:
        self.name = self.path = ""
        self.request = request
        self.reply = reply
        self.roles = roles

    def __set_name__(self, owner: type[Calls], name: str) -> None:
        self.name = "".join(word.capitalize() for word in name.split("_"))
        self.path = f"/{owner.contract.full_name}/{self.name}"


class Unary(Method[Q, R]):
    """One request, one reply.

    Args:
        seconds: its deadline; a call that waits on purpose (``wait_seconds``) gets at least 15 seconds more than it waits.
    """

    streams = False, False

    def __init__(
        self, request: type[Q], reply: type[R], roles: frozenset[Role], *, seconds: float = _CALL_SECONDS
    ) -> None:
        super().__init__(request, reply, roles)
        self._seconds = seconds
        self._waits = "wait_seconds" in request.DESCRIPTOR.fields_by_name

    def deadline(self, request: Q) -> float:
        """Seconds that this call may take."""
        if not self._waits:
            return self._seconds
        wait: int = getattr(request, "wait_seconds")  # noqa: B009 (the kind of message is known to have it)
        return max(self._seconds, wait + _WAIT_MARGIN_SECONDS)

    @overload
    def __get__(self, calls: None, owner: type[Calls]) -> Self: ...
    @overload
    def __get__(self, calls: Calls, owner: type[Calls]) -> Callable[[Q], Coroutine[Any, Any, R]]: ...
    def __get__(self, calls: Calls | None, owner: type[Calls]) -> Self | Callable[[Q], Coroutine[Any, Any, R]]:
        return self if calls is None else functools.partial(calls.unary, self)


class Upload(Method[Q, R]):
    """A stream of requests, one reply, which may come before the stream's end. It has the connection's idle time."""

    streams = True, False

    @overload
    def __get__(self, calls: None, owner: type[Calls]) -> Self: ...
    @overload
    def __get__(self, calls: Calls, owner: type[Calls]) -> Callable[[Messages[Q]], Coroutine[Any, Any, R]]: ...
    def __get__(
        self, calls: Calls | None, owner: type[Calls]
    ) -> Self | Callable[[Messages[Q]], Coroutine[Any, Any, R]]:
        return self if calls is None else functools.partial(calls.send, self)


class Download(Method[Q, R]):
    """One request, a stream of replies. Close the generator when leaving it early. It has the connection's idle time."""

    streams = False, True

    @overload
    def __get__(self, calls: None, owner: type[Calls]) -> Self: ...
    @overload
    def __get__(self, calls: Calls, owner: type[Calls]) -> Callable[[Q], AsyncGenerator[R, None]]: ...
    def __get__(self, calls: Calls | None, owner: type[Calls]) -> Self | Callable[[Q], AsyncGenerator[R, None]]:
        return self if calls is None else functools.partial(calls.receive, self)


class Calls:
    """A service as its caller sees it. Every call raises `VerticilError` and nothing else, and is safe to repeat.

    A transport is a subclass that says how requests travel: `unary`, `send` and `receive`, for all methods of such a kind.

    Attributes:
        contract: the service in the wire contract.
    """

    contract: ClassVar[ServiceDescriptor]

    def __init_subclass__(cls) -> None:
        if "contract" not in cls.__dict__:
            return
        methods_here = {(m.name, m.streams, m.request.DESCRIPTOR, m.reply.DESCRIPTOR) for m in cls.methods()}
        methods_of_contract = {
            (m.name, (m.client_streaming, m.server_streaming), m.input_type, m.output_type)
            for m in cls.contract.methods
        }
        if different := {name for name, *_ in methods_here ^ methods_of_contract}:
            raise TypeError(f"{cls.__name__}: differs from the wire contract in {', '.join(sorted(different))}")

    @classmethod
    def methods(cls) -> Iterator[AnyMethod]:
        """Yield all rpcs of the service."""
        tables = [kind for kind in cls.__mro__ if "contract" in kind.__dict__]
        return (item for kind in tables for item in vars(kind).values() if isinstance(item, Method))

    async def unary(self, method: Unary[Q, R], request: Q) -> R:
        """Send one request and return the reply."""
        raise NotImplementedError(method.path)

    async def send(self, method: Upload[Q, R], requests: Messages[Q]) -> R:
        """Send a stream of requests and return the reply."""
        raise NotImplementedError(method.path)

    def receive(self, method: Download[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Send one request and yield the replies."""
        raise NotImplementedError(method.path)

    async def close(self) -> None:
        """Give up the connection. Repeatable."""


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
    list_masked = Unary(peer_pb2.ListMaskedRequest, peer_pb2.ListMaskedReply, _PARTY)
    """Model III: wait at most ``wait_seconds`` for messages of the round that the miner has made for the party. Answered at once
    when the daemon is about to stop."""
    get_masked = Download(peer_pb2.GetMaskedRequest, peer_pb2.Part, _PARTY)
    """Model III: read one of these messages, from an offset."""
    put_masked = Upload(coordinator_pb2.PutMaskedRequest, coordinator_pb2.PutMaskedReply, _PARTY)
    """Model III: send (a part of) a message of the round to the miner, or ask for the committed offset."""


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
    list_masked = Unary(peer_pb2.ListMaskedRequest, peer_pb2.ListMaskedReply, _PARTY)
    """Which messages of a round the other party has made for the caller."""
    get_masked = Download(peer_pb2.GetMaskedRequest, peer_pb2.Part, _PARTY)
    """Read one of these messages, from an offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A service of the wire contract and the object that answers it.

    Attributes:
        descriptor: the service.
        service: has one method for each rpc, by name.
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

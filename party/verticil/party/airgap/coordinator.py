"""`Coordinator` over files: requests go into a entries, and what was told last is read from another.

The party's steps run against it as against a connection (`protocol.central.study`). What they ask for is answered from
the last bundle that was taken in; what that does not say is NOT_READY, as where the miner is asked too early. What they send is
put into the outgoing entries; where the miner would acknowledge something for good, `AnsweredLater` is raised, so that nothing
counts as told before the miner's next bundle says so. An approval, a list or a column that was lost on its way is so sent again.

Progress is not carried: it would be old when it arrives. Studies between peers, and those with masked tables, are not carried.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import Message

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.federation.airgap.bundle import BundleEntries
from verticil.shared.federation.transport.chunks import make_chunks, plain_data
from verticil.shared.federation.transport.fetch import send_parts
from verticil.shared.federation.transport.interface import (
    AnsweredLater,
    Coordinator,
    Download,
    Messages,
    Unary,
    Upload,
)
from verticil.shared.storage.disk import write_fault
from verticil.wire.v1 import carried_pb2, common_pb2, coordinator_pb2

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
L = TypeVar("L", coordinator_pb2.PutPseudonymsRequest, coordinator_pb2.PutBlindedRequest)

_TELLS: Final = frozenset({"denial", "failure", "withdrawal", "countersign"})
"""Reports that this party remembers to have told."""


class OfflineCoordinator(Coordinator):
    """One export's, or one import's, `Coordinator`.

    Attributes:
        told: kind and study of the reports that are remembered when they have arrived.

    Args:
        answers: the content of the last bundle from the miner.
        outgoing: where requests go; None: nothing is sent.
    """

    def __init__(self, answers: BundleEntries, outgoing: BundleEntries | None) -> None:
        self.told: list[tuple[str, bytes]] = []
        self._answers = answers
        self._outgoing = outgoing
        self._uploads: dict[str, tuple[coordinator_pb2.BeginUploadRequest, Path]] = {}

    # ---- asked

    async def hello(self, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """See `Coordinator.hello`: the statement of a bundle says all of it."""
        del request
        raise AnsweredLater("a greeting")

    async def poll(self, request: coordinator_pb2.PollRequest) -> coordinator_pb2.PollReply:
        """See `Coordinator.poll`: what was told last."""
        del request
        return coordinator_pb2.PollReply(tasks=[item.entry.task for item in self._answers if item.what == "task"])

    async def get_alignment(
        self, request: coordinator_pb2.GetAlignmentRequest
    ) -> AsyncGenerator[coordinator_pb2.AlignmentPart, None]:
        """Get the alignment from the carried answers; see `Coordinator.get_alignment`."""
        for item in self._answers:
            if item.what == "alignment" and item.entry.alignment.study_digest == request.study_digest:
                part = coordinator_pb2.AlignmentPart.FromString(item.entry.alignment.facts.SerializeToString())
                if item.payload is None:
                    yield part
                    return
                for chunk in make_chunks(item.payload, offset=request.offset):
                    part.chunk.CopyFrom(chunk)
                    yield part
                    part.ClearField("statements")
                return
        raise self._not_told("the common people")

    async def get_blinded(
        self, request: coordinator_pb2.GetBlindedRequest
    ) -> AsyncGenerator[coordinator_pb2.BlindedPart, None]:
        """Get a blinded list from the carried answers; see `Coordinator.get_blinded`."""
        key = (request.study_digest, request.owner, request.hop)
        for item in self._answers:
            request_before, facts = item.entry.blinded_for_you.request, item.entry.blinded_for_you.facts
            if (
                item.what == "blinded_for_you"
                and (request_before.study_digest, request_before.owner, request_before.hop) == key
            ):
                source = item.payload if item.payload is not None else b""
                parts = send_parts(source, offset=request.offset, what="blinded list", sha256=facts.part.sha256)
                async for part in parts:
                    yield coordinator_pb2.BlindedPart(part=part, statement=facts.statement)
                return
        raise self._not_told(f"blinded list {request.owner}, hop {request.hop}")

    async def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncGenerator[common_pb2.ReleasePart, None]:
        """Get a file of the release from the carried answers; see `Coordinator.get_release`."""
        key = (request.study_digest, request.path, request.review)
        for item in self._answers:
            request_before = item.entry.file.request
            if item.what == "file" and (request_before.study_digest, request_before.path, request_before.review) == key:
                part = common_pb2.ReleasePart(size=item.entry.payload_size, sha256=item.entry.file.sha256)
                if item.payload is None or request.offset == part.size:
                    yield part
                    return
                for chunk in make_chunks(item.payload, offset=request.offset):
                    part.chunk.CopyFrom(chunk)
                    yield part
                return
        raise self._not_told("the release")

    # ---- sent

    async def report(self, request: coordinator_pb2.ReportRequest) -> coordinator_pb2.ReportReply:
        """Add a report to the bundle; see `Coordinator.report`."""
        what = request.WhichOneof("what") or "nothing"
        if what == "progress":
            return coordinator_pb2.ReportReply()
        self._send(carried_pb2.CarriedEntry(report=request))
        if what in _TELLS:
            self.told.append((what, request.study_digest))
        raise AnsweredLater(what)

    async def put_pseudonyms(
        self, requests: Messages[coordinator_pb2.PutPseudonymsRequest]
    ) -> coordinator_pb2.PutPseudonymsReply:
        """Add the pseudonyms to the bundle; see `Coordinator.put_pseudonyms`."""
        n_committed, complete = await self._list(
            requests, lambda head: carried_pb2.CarriedEntry(pseudonyms=head), what="pseudonym list"
        )
        return coordinator_pb2.PutPseudonymsReply(committed_offset=n_committed, complete=complete)

    async def put_blinded(
        self, requests: Messages[coordinator_pb2.PutBlindedRequest]
    ) -> coordinator_pb2.PutBlindedReply:
        """Add a blinded list to the bundle; see `Coordinator.put_blinded`."""
        n_committed, complete = await self._list(
            requests, lambda head: carried_pb2.CarriedEntry(blinded=head), what="blinded list"
        )
        return coordinator_pb2.PutBlindedReply(committed_offset=n_committed, complete=complete)

    async def _list(
        self, requests: Messages[L], make_entry: Callable[[L], carried_pb2.CarriedEntry], *, what: str
    ) -> tuple[int, bool]:
        """Take a list from a stream, its chunks at their offsets: how many bytes are there now, and whether all are."""
        head: L | None = None
        path = self._pouch().payload()
        async for request in _each(requests):
            if head is None:
                head = request
            elif request.HasField("chunk"):
                _append(path, request.chunk)
        if head is None:
            raise PeerFault("MESSAGE_INVALID", f"{what}: an empty stream")
        n_committed = _size(path)
        if n_committed == head.size:
            self._send(make_entry(head), path if head.size else None)
        return n_committed, n_committed == head.size

    async def begin_upload(self, request: coordinator_pb2.BeginUploadRequest) -> coordinator_pb2.BeginUploadReply:
        """Begin an upload into the bundle; see `Coordinator.begin_upload`."""
        for item in self._answers:
            if item.what == "receipt" and item.entry.receipt.upload == request:
                return coordinator_pb2.BeginUploadReply(receipt=item.entry.receipt.receipt)
        path = self._pouch().payload()
        upload_id = path.name
        self._uploads[upload_id] = (request, path)
        return coordinator_pb2.BeginUploadReply(upload_id=upload_id)

    async def put_chunks(self, chunks: Messages[common_pb2.Chunk]) -> common_pb2.ChunkAck:
        """Put chunks into the bundle; see `Coordinator.put_chunks`."""
        path: Path | None = None
        async for chunk in _each(chunks):
            path = self._uploads[chunk.upload_id][1]
            _append(path, chunk)
        return common_pb2.ChunkAck(committed_offset=0 if path is None else _size(path))

    async def finish_upload(self, request: coordinator_pb2.FinishUploadRequest) -> coordinator_pb2.FinishUploadReply:
        """Finish an upload into the bundle; see `Coordinator.finish_upload`."""
        upload, path = self._uploads.pop(request.upload_id)
        self._send(carried_pb2.CarriedEntry(column=upload), path if upload.size else None)
        raise AnsweredLater(f"unit {upload.unit}")

    # ---- not carried

    async def unary(self, method: Unary[Q, R], request: Q) -> R:
        """Refuse what is asked in a study between peers or with masked tables."""
        raise _not_carried()

    async def send(self, method: Upload[Q, R], requests: Messages[Q]) -> R:
        """Refuse what is sent in a study with masked tables."""
        raise _not_carried()

    def receive(self, method: Download[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Refuse what is read in a study with masked tables."""
        raise _not_carried()

    async def close(self) -> None:
        """Do nothing, because nothing is open."""

    # ---- pieces

    def _pouch(self) -> BundleEntries:
        if self._outgoing is None:
            raise AnsweredLater("what is sent")
        return self._outgoing

    def _send(self, entry: carried_pb2.CarriedEntry, payload: Path | None = None) -> None:
        entries = self._pouch()
        try:
            entries.add(entry, payload)
        except OSError as error:
            raise write_fault(error, entries.folder) from None

    def _not_told(self, what: str) -> PeerFault:
        return PeerFault("NOT_READY", f"{what}: the miner's last bundle does not tell it", hint="import a newer one")


async def _each(messages: Messages[Q]) -> AsyncGenerator[Q, None]:
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for message in messages:
            yield message


def _append(path: Path, chunk: common_pb2.Chunk) -> None:
    """Bytes of a stream, at their offset; what was there of an earlier attempt from there on is dropped."""
    try:
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(chunk.offset)
            file.truncate()
            file.write(plain_data(chunk))
    except OSError as error:
        raise write_fault(error, path) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _not_carried() -> Misuse:
    return Misuse(
        "STUDY_UNSUPPORTED",
        "a study between peers, or with masked tables, is not carried in files",
        hint="connect to the miner; for peers that cannot be dialled there is the relay: [peer] relay = true",
    )

"""What a party asked for in a bundle, done as if it called: through the service that answers calls, under its identity.

Access is checked as for a call (`InMemoryCoordinator`). Lists and columns go on from the committed offset, so a bundle that was
taken in halfway, by a process that was killed or a disk that was full, is simply taken in again. What the service refuses is
kept for the party's next answer; it stops nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from verticil.shared.airgap.bundle_entries import Item, Pouch
from verticil.shared.errors import PeerFault, VerticilError
from verticil.shared.transport.chunks import make_chunks
from verticil.shared.transport.errors_on_wire import to_detail
from verticil.shared.transport.interface import Coordinator
from verticil.wire.v1 import carried_pb2, common_pb2, coordinator_pb2

_OF_THIS_MACHINE: Final = frozenset(
    {"DISK_FULL", "FILES_EXHAUSTED", "STATE_LOCKED", "STATE_CORRUPT", "RESOURCE_EXHAUSTED", "INTERNAL", "UNREACHABLE"}
)
"""The bundle is not to blame: it is taken in again when this is mended."""


async def replay(coordinator: Coordinator, pouch: Pouch) -> list[carried_pb2.CarriedRefusal]:
    """Do everything that a bundle asks for.

    Args:
        coordinator: the service, under the party's identity.
        pouch: the bundle's content.

    Returns:
        What was refused.

    Raises:
        DataFault: DISK_FULL and others of this machine; it can be repeated.
        PeerFault: RESOURCE_EXHAUSTED, a quota or the disk's reserve.
    """
    refusals: list[carried_pb2.CarriedRefusal] = []
    for item in pouch:
        try:
            await _ask(coordinator, item)
        except VerticilError as error:
            if error.code in _OF_THIS_MACHINE:
                raise
            what, digest = _about(item)
            refusals.append(carried_pb2.CarriedRefusal(what=what, digest=digest, error=to_detail(error)))
    return refusals


def _about(item: Item) -> tuple[str, bytes]:
    entry = item.entry
    if item.what == "report":
        return entry.report.WhichOneof("what") or "report", entry.report.study_digest
    if item.what == "pseudonyms":
        return item.what, entry.pseudonyms.study_digest
    if item.what == "blinded":
        return item.what, entry.blinded.study_digest
    return item.what, entry.column.effective_digest


async def _ask(coordinator: Coordinator, item: Item) -> None:
    entry = item.entry
    if item.what == "report":
        await coordinator.report(entry.report)
    elif item.what == "pseudonyms":
        await _pseudonyms(coordinator, entry.pseudonyms, item.payload)
    elif item.what == "blinded":
        await _blinded(coordinator, entry.blinded, item.payload)
    elif item.what == "column":
        await _column(coordinator, entry.column, item.payload)
    else:
        raise PeerFault("MESSAGE_INVALID", f"a bundle's entry '{item.what}': is none that a party makes")


def _chunks(payload: Path | None, size: int, offset: int, upload_id: str = "") -> Iterator[common_pb2.Chunk]:
    held = 0 if payload is None else payload.stat().st_size
    if held != size:
        raise PeerFault("MESSAGE_INVALID", f"a bundle's entry has {held} bytes, expected {size}")
    return make_chunks(payload if payload is not None else b"", offset=offset, upload_id=upload_id)


async def _pseudonyms(
    coordinator: Coordinator, head: coordinator_pb2.PutPseudonymsRequest, payload: Path | None
) -> None:
    head.ClearField("chunk")

    def stream(offset: int) -> Iterator[coordinator_pb2.PutPseudonymsRequest]:
        yield head
        for chunk in _chunks(payload, head.size, offset):
            yield coordinator_pb2.PutPseudonymsRequest(chunk=chunk)

    reply = await coordinator.put_pseudonyms([head])
    while not reply.complete:
        before = reply.committed_offset
        reply = await coordinator.put_pseudonyms(stream(before))
        _further(before, reply.committed_offset, done=reply.complete)


async def _blinded(coordinator: Coordinator, head: coordinator_pb2.PutBlindedRequest, payload: Path | None) -> None:
    head.ClearField("chunk")

    def stream(offset: int) -> Iterator[coordinator_pb2.PutBlindedRequest]:
        yield head
        for chunk in _chunks(payload, head.size, offset):
            yield coordinator_pb2.PutBlindedRequest(chunk=chunk)

    reply = await coordinator.put_blinded([head])
    while not reply.complete:
        before = reply.committed_offset
        reply = await coordinator.put_blinded(stream(before))
        _further(before, reply.committed_offset, done=reply.complete)


async def _column(coordinator: Coordinator, begin: coordinator_pb2.BeginUploadRequest, payload: Path | None) -> None:
    reply = await coordinator.begin_upload(begin)
    if reply.HasField("receipt"):
        return
    offset = reply.committed_offset
    while offset < begin.size:
        chunks = _chunks(payload, begin.size, offset, reply.upload_id)
        committed = (await coordinator.put_chunks(chunks)).committed_offset
        _further(offset, committed, done=False)
        offset = committed
    await coordinator.finish_upload(coordinator_pb2.FinishUploadRequest(upload_id=reply.upload_id))


def _further(before: int, after: int, *, done: bool) -> None:
    if after <= before and not done:
        raise PeerFault("OFFSET_MISMATCH", f"a bundle's entry stays at byte {after}")

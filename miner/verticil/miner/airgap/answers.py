"""What a party would be told if it called, asked of the service under its identity and put into a pouch.

Everything it could ask for now is in it: each of its studies, the common people, the blinded lists whose next station it is, the
receipts of what is here, a release that waits for its countersignature, and the published ones that are asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, TypeVar, cast

from verticil.miner.rules.session import Session
from verticil.shared.airgap.bundle_entries import Pouch
from verticil.shared.alignment.statements import receiver
from verticil.shared.errors import PeerFault
from verticil.shared.study.states import State, is_final
from verticil.shared.transport.chunks import plain_data
from verticil.shared.transport.fetch import fetch_release
from verticil.shared.transport.interface import Coordinator
from verticil.wire.v1 import carried_pb2, common_pb2, coordinator_pb2

M = TypeVar("M")

_LINKED: Final = frozenset({State.ALIGNING, State.PREPARING, State.UPLOADING})


async def fill(
    pouch: Pouch,
    coordinator: Coordinator,
    session: Session,
    party: str,
    *,
    deny_list: bytes,
    releases: frozenset[bytes],
) -> None:
    """Put in all that the party would be told.

    Args:
        pouch: to be filled.
        coordinator: the service, under the party's identity.
        session: the miner's facts.
        party: its name.
        deny_list: DER; empty: there is none.
        releases: digests of the studies whose published release goes with it.

    Raises:
        PeerFault: NOT_READY, a release that is asked for is not published.
        OSError: the disk.
    """
    if deny_list:
        pouch.add(carried_pb2.CarriedEntry(deny_list=deny_list))
    for task in await _tasks(coordinator):
        pouch.add(carried_pb2.CarriedEntry(task=task))
        if State(task.state) in _LINKED:
            await _alignment(pouch, coordinator, task.study_digest)
            await _blinded(pouch, coordinator, session, task.study_digest, party)
        await _receipts(pouch, coordinator, session, task)
        if task.review_manifest_sha256 and not is_final(State(task.state)):
            await _release(pouch, coordinator, task.study_digest, review=True)
    for digest in sorted(releases):
        await _release(pouch, coordinator, digest, review=False)


async def _tasks(coordinator: Coordinator) -> list[coordinator_pb2.StudyTask]:
    known: list[coordinator_pb2.KnownStudy] = []
    tasks: list[coordinator_pb2.StudyTask] = []
    while found := (await coordinator.poll(coordinator_pb2.PollRequest(known=known))).tasks:
        tasks.extend(found)
        known = [coordinator_pb2.KnownStudy(study_digest=task.study_digest, version=task.version) for task in tasks]
    return tasks


async def _alignment(pouch: Pouch, coordinator: Coordinator, digest: bytes) -> None:
    facts: coordinator_pb2.AlignmentPart | None = None
    path = pouch.payload()
    request = coordinator_pb2.GetAlignmentRequest(study_digest=digest)
    with path.open("wb") as file, contextlib.suppress(_NotReadyError):
        async with contextlib.aclosing(_ready(coordinator.get_alignment(request))) as parts:
            async for part in parts:
                if part.HasField("chunk"):
                    file.write(plain_data(part.chunk))
                if facts is None:
                    part.ClearField("chunk")
                    facts = part
    if facts is not None:
        alignment = carried_pb2.CarriedAlignment(study_digest=digest, facts=facts)
        pouch.add(carried_pb2.CarriedEntry(alignment=alignment), path)


async def _blinded(pouch: Pouch, coordinator: Coordinator, session: Session, digest: bytes, party: str) -> None:
    study = session.proposal(session.record(digest))
    if study.linkage.mode != "dh-psi":
        return
    for owner in range(len(study.parties)):
        for hop in range(len(study.parties)):
            if receiver(study.parties, owner, hop) == party:
                request = coordinator_pb2.GetBlindedRequest(study_digest=digest, owner=owner, hop=hop)
                await _one_list(pouch, coordinator, request)


async def _one_list(pouch: Pouch, coordinator: Coordinator, request: coordinator_pb2.GetBlindedRequest) -> None:
    path, facts, size = pouch.payload(), coordinator_pb2.BlindedPart(), 1
    with path.open("wb") as file, contextlib.suppress(_NotReadyError):
        while file.tell() < size:
            asked = coordinator_pb2.GetBlindedRequest.FromString(request.SerializeToString())
            asked.offset = file.tell()
            async with contextlib.aclosing(_ready(coordinator.get_blinded(asked))) as parts:
                async for part in parts:
                    if part.part.HasField("chunk"):
                        file.write(plain_data(part.part.chunk))
                        part.part.ClearField("chunk")
                    facts, size = part, part.part.size
    if facts.HasField("part"):
        pouch.add(
            carried_pb2.CarriedEntry(blinded_for_you=carried_pb2.CarriedBlinded(request=request, facts=facts)), path
        )


async def _receipts(pouch: Pouch, coordinator: Coordinator, session: Session, task: coordinator_pb2.StudyTask) -> None:
    columns = session.record(task.study_digest).columns
    for unit in task.units_received:
        held = columns[unit]
        upload = coordinator_pb2.BeginUploadRequest(
            effective_digest=task.effective_digest, unit=unit, size=held.artifact_size, sha256=held.artifact_sha256
        )
        reply = await coordinator.begin_upload(upload)
        if reply.HasField("receipt"):
            receipt = carried_pb2.CarriedReceipt(upload=upload, receipt=reply.receipt)
            pouch.add(carried_pb2.CarriedEntry(receipt=receipt))


async def _release(pouch: Pouch, coordinator: Coordinator, digest: bytes, *, review: bool) -> None:
    folder = await fetch_release(coordinator, digest, pouch.folder / f"release-{digest.hex()[:16]}", review=review)
    for path in sorted(folder.iterdir()):
        request = common_pb2.GetReleaseRequest(study_digest=digest, path=path.name, review=review)
        file = carried_pb2.CarriedFile(request=request, sha256=hashlib.sha256(path.read_bytes()).digest())
        pouch.add(carried_pb2.CarriedEntry(file=file), path)


class _NotReadyError(Exception):
    """The party would be asked to wait."""


async def _ready(replies: AsyncIterator[M]) -> AsyncGenerator[M, None]:
    """What the service answers; `_NotReadyError` where it says that it is too early."""
    async with contextlib.aclosing(cast("AsyncGenerator[M, None]", replies)) as answer:
        try:
            async for reply in answer:
                yield reply
        except PeerFault as error:
            if error.code != "NOT_READY":
                raise
            raise _NotReadyError from None

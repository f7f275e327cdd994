"""Handing out a published release, file by file, from an offset.

Only a name that the catalogue lists for this release is ever opened, and only after publication; a party of the study that asks
to review it may read the release that waits for countersignatures.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from verticil.miner.rules.session import Session
from verticil.miner.service.transfer import send
from verticil.miner.storage.records import ReleaseFile
from verticil.shared.errors import Misuse, PeerFault
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2


async def release_parts(
    session: Session, request: common_pb2.GetReleaseRequest, *, to_party: bool = False
) -> AsyncGenerator[common_pb2.ReleasePart, None]:
    """The parts of one stream; at least one, so that an empty rest still tells size and SHA-256.

    Args:
        session: the rules.
        request: what is asked for.
        to_party: a party of the study asks.

    Raises:
        Misuse: STUDY_UNKNOWN; FILE_MISSING, the release has no such file.
        PeerFault: NOT_READY, not published yet; MESSAGE_INVALID, an offset behind the end.
        VerticilError: how the study ended, if it ended otherwise.
    """

    def look() -> ReleaseFile:
        record = session.record(request.study_digest)
        session.require(
            record, *([State.PUBLISHED, State.REVIEW] if to_party and request.review else [State.PUBLISHED])
        )
        file = session.catalogue.release_file(record.digest, request.path)
        if file is None:
            raise Misuse(
                "FILE_MISSING",
                f"release of study '{record.study_id}': no such file",
                hint="manifest.json lists the files",
            )
        if request.offset > file.size:
            raise PeerFault("MESSAGE_INVALID", f"{file.path}: offset {request.offset}, expected at most {file.size}")
        return file

    file = await asyncio.to_thread(look)
    part = common_pb2.ReleasePart(size=file.size, sha256=file.sha256)
    if request.offset == file.size:
        yield part
        return
    async for chunk in send(session.store.study(request.study_digest).release / file.path, request.offset):
        part.chunk.CopyFrom(chunk)
        yield part

"""Fetching a published release, file by file, each resumed where it broke off.

The folder appears under its name only when every file that the manifest lists has arrived with its size and SHA-256. That the
manifest itself is genuine is the next step and the caller's: ``verticil release verify``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final, Protocol, cast

from verticil.shared.disk import write_fault
from verticil.shared.durable import rename, sync_directory, sync_file
from verticil.shared.errors import Misuse, PeerFault
from verticil.shared.transport.chunks import plain_data
from verticil.wire.v1 import common_pb2

__all__ = ["ReleaseSource", "fetch_release"]

ATTEMPTS: Final = 5
"""Tries per file without a single new byte before giving up."""
MANIFEST_LIMIT: Final = 64 * 2**20
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""Of a file of a release. Whoever wrote the manifest may mean harm: no path, no NUL, nothing that a disk cannot name."""


class ReleaseSource(Protocol):
    """What `fetch_release` needs: a `Coordinator` or a `Control`."""

    def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncIterator[common_pb2.ReleasePart]:
        """Read a file of a published release, from an offset."""
        ...


async def fetch_release(source: ReleaseSource, study_digest: bytes, target: Path, *, review: bool = False) -> Path:
    """Fetch the release of a study into the new folder `target`.

    Args:
        source: the connection to the miner.
        study_digest: SHA-256 of the proposal, 32 bytes.
        target: the folder to make; it must not exist.
        review: fetch what waits for countersignatures; for parties of the study.

    Raises:
        Misuse: FILE_EXISTS; FILE_MISSING, nothing can be written there.
        PeerFault: UNREACHABLE and others of the connection; ARTIFACT_INVALID when a file is not what was announced.
        DataFault: DISK_FULL.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Misuse("FILE_EXISTS", f"{target}: exists already and is not empty", hint="name another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise write_fault(error, target) from None
    try:
        await _file(source, study_digest, "manifest.json", staging, review=review)
        for name, sha256 in _listed((staging / "manifest.json").read_bytes()).items():
            await _file(source, study_digest, name, staging, expected=sha256, review=review)
        await _file(source, study_digest, "manifest.sig", staging, review=review)
        if target.exists():
            target.rmdir()
        staging.chmod(0o755)
        sync_directory(staging)
        rename(staging, target)
        sync_directory(target.parent)
    except OSError as error:
        raise write_fault(error, target) from None
    finally:
        await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)
    return target


def _listed(manifest: bytes) -> dict[str, str]:
    try:
        files = cast("dict[str, dict[str, object]]", json.loads(manifest)["files"])
        listed = {name: str(entry["sha256"]) for name, entry in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PeerFault("ARTIFACT_INVALID", "manifest.json: not a manifest") from None
    for name in listed:
        if not _FILE_NAME.fullmatch(name):
            raise PeerFault("ARTIFACT_INVALID", "manifest.json: lists a path, expected plain file names")
    return listed


async def _file(
    source: ReleaseSource, digest: bytes, name: str, folder: Path, *, review: bool, expected: str | None = None
) -> None:
    offset, idle = 0, 0
    hasher = hashlib.sha256()
    with (folder / name).open("xb") as file:
        while True:
            before = offset
            size, announced = -1, b""
            try:
                request = common_pb2.GetReleaseRequest(study_digest=digest, path=name, offset=offset, review=review)
                async with aclosing(
                    cast("AsyncGenerator[common_pb2.ReleasePart, None]", source.get_release(request))
                ) as parts:
                    async for part in parts:
                        size, announced = part.size, part.sha256
                        if part.chunk.data:
                            if part.chunk.offset != offset:
                                raise PeerFault(
                                    "OFFSET_MISMATCH", f"{name}: chunk at offset {part.chunk.offset}, expected {offset}"
                                )
                            plain = plain_data(part.chunk)
                            file.write(plain)
                            hasher.update(plain)
                            offset += len(plain)
                        if expected is None and offset > MANIFEST_LIMIT:
                            raise PeerFault("ARTIFACT_INVALID", f"{name}: more than {MANIFEST_LIMIT} bytes")
            except PeerFault as error:
                idle = 0 if offset > before else idle + 1
                if error.code not in {"UNREACHABLE", "DEADLINE", "CHUNK_CORRUPT"} or idle >= ATTEMPTS:
                    raise
                await asyncio.sleep(min(5.0, 0.2 * 2**idle))
                continue
            if offset == size:
                break
            idle = 0 if offset > before else idle + 1
            if offset > size or idle >= ATTEMPTS:
                raise PeerFault("ARTIFACT_INVALID", f"{name}: got {offset} bytes, expected {size}")
        file.flush()
        sync_file(file.fileno(), folder / name)
    if hasher.digest() != announced or (expected is not None and hasher.hexdigest() != expected):
        raise PeerFault("ARTIFACT_INVALID", f"{name}: its SHA-256 is not the announced one")

"""Fetch a release file by file (`fetch_release`), each resumed where it broke off.

The folder appears under its name only when every file that the manifest lists has arrived with its size and SHA-256. A file of
which next to nothing comes for ten minutes is given up, in however many streams that is. That the manifest itself is genuine is
the next step and the caller's: ``verticil release verify``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final, NamedTuple, cast

from verticil.shared.core.errors import GateFailed, Misuse, PeerFault
from verticil.shared.federation.transport.chunks import plain_data
from verticil.shared.federation.transport.fetch import LEAST_BYTES, STREAM_SECONDS
from verticil.shared.federation.transport.interface import Control, Coordinator
from verticil.shared.release.limits import ReleaseLimits
from verticil.shared.storage.disk import write_fault
from verticil.shared.storage.durable import rename, sync_directory, sync_file
from verticil.wire.v1 import common_pb2

CHANGED: Final = frozenset({"ARTIFACT_INVALID", "FILE_MISSING", "NOT_READY", "STUDY_WITHDRAWN", "STUDY_DENIED"})
"""A release that waited for countersignatures, and was fetched so, is another one by now, or none."""
ATTEMPTS: Final = 5
"""Tries per file without a single new byte before giving up."""
MANIFEST_LIMIT: Final = 64 * 2**20
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""Of a file of a release. The manifest is foreign: no path, no NUL, nothing that a disk cannot name."""


async def fetch_release(
    source: Coordinator | Control,
    study_digest: bytes,
    target: Path,
    *,
    review: bool = False,
    limits: ReleaseLimits | None = None,
) -> Path:
    """Fetch the release of a study into the new folder `target`.

    Args:
        source: the connection to the miner.
        study_digest: SHA-256 of the proposal, 32 bytes.
        target: the folder to make; it must not exist.
        review: fetch what waits for countersignatures; for parties of the study.
        limits: what is larger is not fetched, and nothing of it stays on the disk.

    Raises:
        GateFailed: RELEASE_INVALID, a file is none of the study's release, or larger than the study lets it be.
        Misuse: FILE_EXISTS; FILE_MISSING, nothing can be written there.
        PeerFault: UNREACHABLE and others of the connection; DEADLINE, a file hardly gets on; ARTIFACT_INVALID when a file is
            not what was announced; RESOURCE_EXHAUSTED, all files together are larger than this machine takes.
        DataFault: DISK_FULL.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Misuse("FILE_EXISTS", f"{target}: exists already and is not empty", hint="name another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise write_fault(error, target) from None

    async def fetch(name: str, *, limit: int, expected: str | None = None) -> None:
        try:
            async with asyncio.timeout(STREAM_SECONDS) as deadline:
                await _fetch_one(
                    source, study_digest, name, deadline, folder=staging, review=review, limit=limit, expected=expected
                )
        except TimeoutError:
            slow = f"{name}: less than {LEAST_BYTES} bytes in {STREAM_SECONDS:g} s"
            raise PeerFault("DEADLINE", slow, hint="it is safe to try again") from None

    try:
        await fetch("manifest.json", limit=_own_limit("manifest.json", limits))
        for name, file_entry in _listed((staging / "manifest.json").read_bytes(), limits).items():
            await fetch(name, limit=file_entry.size, expected=file_entry.sha256)
        await fetch("manifest.sig", limit=_own_limit("manifest.sig", limits))
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


class _Listed(NamedTuple):
    size: int
    sha256: str


def _own_limit(name: str, limits: ReleaseLimits | None) -> int:
    return MANIFEST_LIMIT if limits is None else min(MANIFEST_LIMIT, limits.files[name])


def _listed(manifest: bytes, limits: ReleaseLimits | None) -> dict[str, _Listed]:
    try:
        files = cast("dict[str, dict[str, object]]", json.loads(manifest)["files"])
        entries = {name: _Listed(int(str(entry["bytes"])), str(entry["sha256"])) for name, entry in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PeerFault("ARTIFACT_INVALID", "manifest.json: not a manifest") from None
    for name in entries:
        if not _FILE_NAME.fullmatch(name):
            raise PeerFault("ARTIFACT_INVALID", "manifest.json: lists a path, expected plain file names")
    if limits is None:
        return entries
    for name, (size, _) in entries.items():
        if name not in limits.files:
            raise GateFailed(
                "RELEASE_INVALID", f"manifest.json: lists '{name}', which is no file of a release of the study"
            )
        if not 0 <= size <= limits.files[name]:
            raise GateFailed(
                "RELEASE_INVALID",
                f"{name}: {size} bytes, expected at most {limits.files[name]} by what the study announces",
                hint="do not countersign: deny the study, and ask the miner's operator",
            )
    if (total := sum(size for size, _ in entries.values())) > limits.total:
        raise PeerFault(
            "RESOURCE_EXHAUSTED",
            f"the release has {total} bytes, expected at most {limits.total} by this party's configuration",
            hint="if the study is meant to be so large: [review] max_megabytes in party.toml, and start the daemon again",
        )
    return entries


async def _fetch_one(
    source: Coordinator | Control,
    digest: bytes,
    name: str,
    deadline: asyncio.Timeout,
    *,
    folder: Path,
    review: bool,
    limit: int,
    expected: str | None,
) -> None:
    offset, idle, mark = 0, 0, 0
    hasher = hashlib.sha256()
    with (folder / name).open("xb") as file:
        while True:
            before = offset
            size, announced = -1, b""
            try:
                request = common_pb2.GetReleaseRequest(study_digest=digest, path=name, offset=offset, review=review)
                async with contextlib.aclosing(source.get_release(request)) as parts:
                    async for part in parts:
                        size, announced = part.size, part.sha256
                        if part.chunk.data:
                            if part.chunk.offset != offset:
                                raise PeerFault(
                                    "OFFSET_MISMATCH", f"{name}: chunk at offset {part.chunk.offset}, expected {offset}"
                                )
                            plain = plain_data(part.chunk)
                            if offset + len(plain) > limit:
                                raise PeerFault("ARTIFACT_INVALID", f"{name}: more than {limit} bytes")
                            file.write(plain)
                            hasher.update(plain)
                            offset += len(plain)
                        if offset - mark >= LEAST_BYTES:
                            mark = offset
                            deadline.reschedule(asyncio.get_running_loop().time() + STREAM_SECONDS)
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

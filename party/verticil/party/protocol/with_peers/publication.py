"""The release of a study between parties: assembled by every party from the same statements, signed by all.

The folder appears under its final name in ``releases`` whole, or not at all; without ``manifest.sig`` it is not published yet.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from verticil.party.protocol.planning import PeerFailedError
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.party.protocol.with_peers.context import PeerStudyContext
from verticil.party.protocol.with_peers.network import all_of
from verticil.party.site import Site
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.padding import pad
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.manifest import MANIFEST, SIGNATURE, write_signatures
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.durable import remove, remove_tree
from verticil.wire.v1 import peer_pb2

FOLDER: Final = "releases"
_MANIFEST_BYTES: Final = 1 << 18
"""Up to which a manifest is filled up; one message has room for it."""


def release_folder(site: Site, digest: bytes) -> Path:
    """Return the folder of a study's release, present or future."""
    return site.config.state_directory / FOLDER / digest.hex()


def write_and_sign(context: PeerStudyContext, content: ReleaseContent) -> None:
    """Write what was assembled, and sign its manifest; blocks.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    folder = release_folder(context.node.site, context.digest)
    with disk_faults(folder):
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        remove_tree(folder, ignore_errors=True)  # written by a process that was killed before it signed
        write_release(folder, content)
    manifest = (folder / MANIFEST).read_bytes()
    own = pad(context.node.signing_key.sign(manifest), limit_bytes=_MANIFEST_BYTES)
    context.store.put(context.digest, Kind.SIGNATURE, own, context.me)


async def collect_signatures(context: PeerStudyContext, missing: Sequence[str]) -> str | None:
    """Get the signatures of peers and compare what they signed with what this party assembled.

    Returns:
        None when all are here; else who is waited for.

    Raises:
        PeerFailedError: STUDY_MISMATCH, a peer assembled something else: both digests are shown.
    """
    own = await asyncio.to_thread(context.store.signed, context.digest, Kind.SIGNATURE, context.me)
    return await all_of(_collect(context, name, own.body) for name in missing)


async def _collect(context: PeerStudyContext, name: str, manifest: bytes) -> None:
    request = peer_pb2.GetSignatureRequest(effective_digest=context.effective_digest)
    reply = await context.peers.ask(name, lambda peer: peer.get_signature(request), what="the signature of its release")
    signed = reply.manifest
    try:
        context.node.verify(signed, role=Role.PARTY, name=name)
    except VerticilError as error:
        raise PeerFailedError(context.make_fault(error, name)) from None
    if signed.body != manifest:
        theirs, ours = hashlib.sha256(signed.body).hexdigest(), hashlib.sha256(manifest).hexdigest()
        raise PeerFailedError(
            PeerFault(
                "STUDY_MISMATCH",
                f"study '{context.record.study_id}': '{name}' assembled a release with the manifest {theirs},"
                f" '{context.me}' one with {ours}",
                hint="both have the same statements and versions: compare the machines; nothing was published",
            )
        )
    await asyncio.to_thread(context.store.put, context.digest, Kind.SIGNATURE, signed, name)


async def publish(context: PeerStudyContext) -> None:
    """Put all signatures beside the manifest. Repeatable.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
        LostError: a signature is not there any more.
    """

    def write() -> None:
        folder = release_folder(context.node.site, context.digest)
        signed = [context.store.signed(context.digest, Kind.SIGNATURE, name) for name in context.study.parties]
        remove(folder / SIGNATURE)
        with disk_faults(folder):
            write_signatures(folder, signed, ca_certificate=context.node.authority)

    await asyncio.to_thread(write)

"""The release of a study between peers: assembled by every party from the same statements, signed by all.

The folder appears under its final name in ``releases`` whole, or not at all; without ``manifest.sig`` it is not published yet.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from verticil.party.protocol.peer.artifact_store import Kind
from verticil.party.protocol.peer.calls import PeerFailedError, all_of
from verticil.party.protocol.peer.steps.turn import Turn, Work
from verticil.party.site import Site
from verticil.shared.durable import remove, remove_tree
from verticil.shared.errors import PeerFault, VerticilError
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import verify_signed
from verticil.shared.release.bundle import MANIFEST, SIGNATURE, write_release, write_signatures
from verticil.shared.release.peer_assembly import assemble
from verticil.shared.storage.database import disk_fault
from verticil.wire.v1 import common_pb2, peer_pb2

FOLDER: Final = "releases"


def release_folder(site: Site, digest: bytes) -> Path:
    """Where the release of a study is, or will be."""
    return site.config.state_directory / FOLDER / digest.hex()


def drop_release(site: Site, digest: bytes) -> None:
    """Remove what was assembled of a study that ended without a release."""
    remove_tree(release_folder(site, digest), ignore_errors=True)


async def assemble_release(work: Work, turn: Turn) -> None:
    """Write the release and sign its manifest.

    Raises:
        PeerFault: STUDY_MISMATCH, the statements do not belong together.
        DataFault: DISK_FULL, STATE_CORRUPT.
        LostError: a statement is not there any more.
    """
    await work.heavily(lambda: _assemble(work, turn))


def _assemble(work: Work, turn: Turn) -> None:
    structure = turn.structure
    if structure is None:
        raise ValueError("the structure is not known yet")
    signed = [
        common_pb2.Signed.FromString(work.shelf.read(turn.digest, Kind.STATEMENT, name)) for name in turn.study.parties
    ]
    learned = turn.study.structure.parents is None
    content = assemble(
        turn.study,
        turn.digest,
        structure,
        signed,
        simulation=work.simulation,
        seed_derived=work.seed_derived,
        structure_signed=common_pb2.Signed.FromString(work.shelf.read(turn.digest, Kind.STRUCTURE))
        if learned
        else None,
    )
    folder = release_folder(work.node.site, turn.digest)
    try:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        remove_tree(folder, ignore_errors=True)  # written by a process that was killed before it signed
        write_release(folder, content)
    except OSError as error:
        raise disk_fault(error, folder) from None
    manifest = (folder / MANIFEST).read_bytes()
    own = work.node.signing_key.sign(manifest).SerializeToString(deterministic=True)
    work.shelf.put(turn.digest, Kind.SIGNATURE, own, work.me)


async def collect_signatures(work: Work, turn: Turn, missing: Sequence[str]) -> str | None:
    """Get the signatures of peers and compare what they signed with what this party assembled.

    Returns:
        None when all are here; else who is waited for.

    Raises:
        PeerFailedError: STUDY_MISMATCH, a peer assembled something else: both digests are shown.
    """
    own = common_pb2.Signed.FromString(await asyncio.to_thread(work.shelf.read, turn.digest, Kind.SIGNATURE, work.me))
    return await all_of(_collect(work, turn, name, own.body) for name in missing)


async def _collect(work: Work, turn: Turn, name: str, manifest: bytes) -> None:
    request = peer_pb2.GetSignatureRequest(effective_digest=turn.effective_digest)
    reply = await work.peers.ask(name, lambda peer: peer.get_signature(request), what="the signature of its release")
    signed = reply.manifest
    try:
        node = work.node
        verify_signed(
            signed, node.authority, role=Role.PARTY, name=name, at=node.clock(), revoked=node.revocations.since()
        )
    except VerticilError as error:
        raise PeerFailedError(turn.named(error, name)) from None
    if signed.body != manifest:
        theirs, ours = hashlib.sha256(signed.body).hexdigest(), hashlib.sha256(manifest).hexdigest()
        raise PeerFailedError(
            PeerFault(
                "STUDY_MISMATCH",
                f"study '{turn.record.study_id}': '{name}' assembled a release with the manifest {theirs},"
                f" '{work.me}' one with {ours}",
                hint="both have the same statements and versions: compare the machines; nothing was published",
            )
        )
    await asyncio.to_thread(
        work.shelf.put, turn.digest, Kind.SIGNATURE, signed.SerializeToString(deterministic=True), name
    )


async def publish(work: Work, turn: Turn) -> None:
    """Put all signatures beside the manifest. Repeatable.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
        LostError: a signature is not there any more.
    """

    def write() -> None:
        folder = release_folder(work.node.site, turn.digest)
        signed = [
            common_pb2.Signed.FromString(work.shelf.read(turn.digest, Kind.SIGNATURE, name))
            for name in turn.study.parties
        ]
        remove(folder / SIGNATURE)
        try:
            write_signatures(folder, signed, ca_certificate=work.node.authority)
        except OSError as error:
            raise disk_fault(error, folder) from None

    await asyncio.to_thread(write)

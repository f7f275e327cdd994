"""The signatures of peers under messages of a round that this party keeps for ever: each asks for its own after a loss."""

from __future__ import annotations

from verticil.party.protocol.planning import LostError
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore, Kind
from verticil.shared.masked.round.proof import is_missing_in
from verticil.shared.masked.round.schedule import Kind as RoundKind
from verticil.wire.v1 import common_pb2, peer_pb2


def round_proof(store: ArtifactStore, digest: bytes, party: str) -> tuple[common_pb2.Signed, ...]:
    """Return a peer's own signatures under messages of a round; none: the round had not begun, or the file is harmed."""
    try:
        return tuple(peer_pb2.Held.FromString(store.read(digest, Kind.ROUND, party)).messages)
    except LostError:
        return ()


def keep_round_proof(
    store: ArtifactStore, digest: bytes, party: str, kind: RoundKind, signed: common_pb2.Signed
) -> None:
    """Keep a signature of a peer, durably, if it proves what those that are here do not.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    stored_proof = round_proof(store, digest, party)
    if is_missing_in(stored_proof, kind):
        store.put(digest, Kind.ROUND, peer_pb2.Held(messages=[*stored_proof, signed]), party)

"""How the studies of one protocol are reconciled with what others hold: each protocol brings its own `Reconciler`.

A protocol says for every kind of event that its studies cause (`verticil.shared.privacy.events`) where proof of it lies outside
of this site, and gives the functions that read the proof. A kind that no protocol speaks of is a fault of the program
(`kinds_without_evidence`), because a ledger that was set back would forget it.

Nothing here decides what a proof is: a signature of this party, or the holder's signature beside this party's signed approval.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verticil.party.protocol.reconciliation.forgotten import Forgotten
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.study.approval import parse_approval
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

if TYPE_CHECKING:
    from verticil.party.protocol.context import PartyContext
    from verticil.party.protocol.with_peers.artifact_store import ArtifactStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """What a proof is checked with.

    Attributes:
        site: this party.
        authority: the federation's, PEM.
        revoked: the deny-list, serial number -> since when.
    """

    site: Site
    authority: bytes
    revoked: Mapping[int, dt.datetime]

    @property
    def me(self) -> str:
        """The name of this party."""
        return self.site.config.name

    def is_own(self, signed: common_pb2.Signed) -> bool:
        """Return whether this party signed, whenever: its certificate may have ended, or been revoked, since."""
        try:
            verify_signed(signed, self.authority, role=Role.PARTY, name=self.me)
        except PeerFault:
            return False
        return True

    def has_approved(self, signed: common_pb2.Signed, digest: bytes) -> bool:
        """Return whether this is this party's own signed approval of a study."""
        try:
            approval = parse_approval(signed.body)
        except PeerFault:
            return False
        return (approval.proposal_digest, approval.party) == (digest, self.me) and self.is_own(signed)


def prove_nothing(*_: object) -> Sequence[Forgotten]:
    """Return that nobody of this kind holds a proof of this protocol's studies."""
    return ()


def show_nothing(*_: object) -> None:
    """Return that this party has nothing of a peer's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """What a protocol knows of proofs.

    Attributes:
        evidence: kind of event -> where its proof lies and what it is, for people; of every kind that its studies cause.
        from_miner: what the miner proves with a study that it tells. Blocks. Raises Misuse and DataFault where party.toml or the
            tables do not say any more where the columns came from.
        from_peer: what a peer proves, by its name and what it sent. Blocks. Raises VerticilError besides: it proves nothing.
        for_peer: what this party shows a peer of one study that both are in; None: it has nothing of that peer's. Blocks.
    """

    evidence: Mapping[str, str]
    from_miner: Callable[[Verifier, coordinator_pb2.StudyTask], Sequence[Forgotten]] = prove_nothing
    from_peer: Callable[[Verifier, str, peer_pb2.Held], Sequence[Forgotten]] = prove_nothing
    for_peer: Callable[[PartyContext, ArtifactStore, StudyRecord, str], peer_pb2.Held | None] = show_nothing


def kinds_without_evidence(kinds: Iterable[str], reconcilers: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the kinds of events of which no reconciler says where their proof lies.

    >>> kinds_without_evidence(["a", "b"], [{"a": "a receipt of the miner"}, {}])
    ('b',)
    """
    spoken_of = {kind for evidence in reconcilers for kind, words in evidence.items() if words}
    return tuple(kind for kind in kinds if kind not in spoken_of)

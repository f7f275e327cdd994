"""The protocols that this party can carry out: one line each.

How a protocol is added
1. `verticil.shared.study.protocols` gets its facts: who reads what, which studies are valid, how it is worded for people. Policy,
   approval, ledger, pages and commands take what they say of a study from there, so nothing else of the party changes.
2. A package beside `central` and `peer` writes the work on one study, a `StudyRun` (`verticil.party.protocol.engine`): a pure
   planner and its steps, whatever they are. It may build on `CentralStudy`, whose studies a miner sends, or on `PeerStudy`, whose
   studies every party's operator loads: that gives it loading, approval, the effective study, the common people, the ends and
   their news; a planner begins with ``until_common(facts) or ...``.
3. `register` it, here or, for a trial, before the party runs.

What a protocol has to keep
- The planner is a pure function of what this party remembers. Every step leads to a state in which it is not planned again, or
  can be repeated without harm: the process may be killed anywhere.
- Nothing of the table leaves before its row is in the ledger (`Ledger.record`, `Ledger.record_shared`), in the same transaction
  as what is sent, and what was sent once is sent again as it was (`ArtifactStore.put`).
- Whether and when this party answers depends on no value in its table.
- Of every kind of event that its studies cause it says where proof lies outside of this site, and reads that proof
  (`verticil.party.protocol.reconciliation`).
- What it keeps is cleared when the study ends (`StudyRun.drop_columns`, `ArtifactStore.clear`); `serves` says what peers may
  ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from verticil.party.policy.approval import parsed
from verticil.shared.core.registry import Registry
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    from verticil.party.protocol.central.study import CentralStudy
    from verticil.party.protocol.context import Node
    from verticil.party.protocol.peer.context import PeerContext
    from verticil.party.protocol.peer.study import PeerStudy
    from verticil.party.protocol.reconciliation.reconciler import Reconciler


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyProtocol:
    """What a party does for the studies of one protocol; exactly one of the first two is given.

    Attributes:
        told_by_miner: makes the work on a study that the miner sends, where the protocol is `coordinated`; else None. It
            gets what this party shares with its peers, too; None: party.toml has no ``[peer]``.
        between_parties: makes the work on a study that every party's operator loads, where it is not; else None.
        reconciler: what proves to a ledger that was set back what its studies had sent.
        serves: methods of the ``Peer`` service that answer for its studies. ``Hello``, ``GetStudyDigest`` and ``GetDeletion``
            answer for every study that no miner tells.
    """

    told_by_miner: Callable[[Node, bytes, PeerContext | None], CentralStudy] | None = None
    between_parties: Callable[[PeerContext, bytes], PeerStudy] | None = None
    reconciler: Reconciler
    serves: Set[str] = frozenset()

    def __post_init__(self) -> None:
        if (self.told_by_miner is None) == (self.between_parties is None):
            raise ValueError("a protocol is told by the miner or loaded by the parties' operators, one of the two")


PROTOCOLS: Final = Registry["Callable[[], PartyProtocol]"]("model")


def register(model: str, load: Callable[[], PartyProtocol]) -> None:
    """Add a protocol.

    Args:
        model: as studies name it.
        load: gives what the party does for it; called when a study needs it, so that nothing is imported before.

    Raises:
        ValueError: one of this name is registered already.
    """
    PROTOCOLS.register(model, load)


def party_protocol(study: Study) -> PartyProtocol:
    """What this party does for a study.

    Raises:
        Misuse: STUDY_UNSUPPORTED, this program does not have its protocol.
    """
    return PROTOCOLS.named(study.model)()


def study_of_miner(node: Node, between: PeerContext | None, digest: bytes) -> CentralStudy:
    """Return the work on a study that the miner sent, under its own protocol. Blocks."""
    make = party_protocol(parsed(node.site.state.study(digest).task.proposal)).told_by_miner
    if make is None:
        raise ValueError("no miner tells a study that its operators load")
    return make(node, digest, between)


def study_of_parties(between: PeerContext, digest: bytes) -> PeerStudy:
    """Return the work on a study that was loaded here, under its own protocol. Blocks."""
    make = party_protocol(parsed(between.node.site.state.study(digest).task.proposal)).between_parties
    if make is None:
        raise ValueError("a study that the miner tells is not carried out between parties")
    return make(between, digest)


def _central() -> PartyProtocol:
    from verticil.party.protocol.central.reconciler import RECONCILER
    from verticil.party.protocol.central.study import CentralStudy

    return PartyProtocol(told_by_miner=lambda node, digest, _: CentralStudy(node, digest), reconciler=RECONCILER)


def _peer() -> PartyProtocol:
    from verticil.party.protocol.peer.reconciler import RECONCILER
    from verticil.party.protocol.peer.study import PeerStudy

    return PartyProtocol(
        between_parties=PeerStudy,
        reconciler=RECONCILER,
        serves={"GetPseudonyms", "GetColumn", "GetParameters", "GetSignature"},
    )


def _masked() -> PartyProtocol:
    from verticil.party.protocol.masked.reconciler import RECONCILER
    from verticil.party.protocol.masked.study import MaskedStudy

    return PartyProtocol(
        told_by_miner=MaskedStudy,
        reconciler=RECONCILER,
        serves={"GetPseudonyms", "ListMasked", "GetMasked", "GetDeletion"},
    )


register("central", _central)
register("peer", _peer)
register("masked", _masked)

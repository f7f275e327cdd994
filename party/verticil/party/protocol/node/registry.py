"""The protocols that this party can carry out, by name. What the program ships is in
`verticil.party.protocol.shipped.registrations`.

How a protocol is added
1. `verticil.shared.study.protocols` gets its facts: who reads what, which studies are valid, how it is worded for people. Policy,
   approval, ledger, pages and commands take what they say of a study from there, so nothing else of the party changes.
2. A package beside `central` and `peer` writes the work on one study, a `StudyRun` (`verticil.party.protocol.engine`): a pure
   planner and its steps, whatever they are. It may build on `CoordinatedStudy`, whose studies a miner sends, or on
   `verticil.party.protocol.with_peers`, with which parties reach each other. No protocol imports another one.
3. `register` what the package hands over, a `PartyProtocol`: in `shipped`, or, for a trial, before the party runs.

What a protocol has to keep
- The planner is a pure function of what this party remembers. Every step leads to a state in which it is not planned again, or
  can be repeated without harm: the process may be killed anywhere.
- Nothing of the table leaves before its row is in the ledger (`Ledger.record`, `Ledger.record_shared`), in the same transaction
  as what is sent, and what was sent once is sent again as it was (`ArtifactStore.put`).
- Whether and when this party answers depends on no value in its table.
- Of every kind of event that its studies cause it says where proof lies outside of this site, and reads that proof
  (`verticil.party.protocol.reconciliation`).
- What it keeps is cleared when the study ends (`StudyRun.drop_columns`, `ArtifactStore.clear`, `ProtocolFolder`); `serves` says
  what peers may ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.engine import StudyRun
from verticil.party.protocol.reconciliation.reconciler import Reconciler
from verticil.party.protocol.with_miner.countersigning import ReleaseCheck
from verticil.party.protocol.with_miner.study import CoordinatedStudy
from verticil.party.protocol.with_peers.context import PeerContext
from verticil.party.protocol.with_peers.rounds import MessageRounds
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.registry import Registry
from verticil.shared.study.document import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolFolder:
    """A folder of a protocol's own in the state directory, with what must never be repeated. It is in no backup.

    Attributes:
        name: of the folder.
        files: the files of a study that the study's end has to delete, of the state directory and the study's digest.
        discard: deletes them, of the state directory, the digest and the time. Blocks. Raises DataFault: DISK_FULL.
        after_restore: ends what must not go on in a state that comes from a backup. Blocks. Raises DataFault: DISK_FULL,
            STATE_CORRUPT.
    """

    name: str
    files: Callable[[Path, bytes], tuple[Path, ...]]
    discard: Callable[[Path, bytes, datetime], None]
    after_restore: Callable[[Site, datetime], None]


def compare_nothing(site: Site, record: StudyRecord, study: Study, folder: Path) -> None:
    """Compare a release with nothing: the protocol's studies are countersigned as they are verified."""
    del site, record, study, folder


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
        compare: what this party compares a release with before it countersigns.
        rounds: makes the rounds of messages that its studies open at this party; None: they open none.
        folder: what it keeps beside spool and artifact store; None: nothing.
    """

    told_by_miner: Callable[[PartyContext, bytes, PeerContext | None], CoordinatedStudy] | None = None
    between_parties: Callable[[PeerContext, bytes], StudyRun] | None = None
    reconciler: Reconciler
    serves: Set[str] = frozenset()
    compare: ReleaseCheck = compare_nothing
    rounds: Callable[[], MessageRounds] | None = None
    folder: ProtocolFolder | None = None

    def __post_init__(self) -> None:
        if (self.told_by_miner is None) == (self.between_parties is None):
            raise ValueError(
                "a study of a protocol comes from the miner or from the parties' operators: expected one of the two"
            )


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
    """Return the protocol of a study, as this party follows it.

    Raises:
        Misuse: STUDY_UNSUPPORTED, this program does not have its protocol.
    """
    return PROTOCOLS.named(study.model)()


def study_of_miner(node: PartyContext, between: PeerContext | None, digest: bytes) -> CoordinatedStudy:
    """Return the work on a study that the miner sent, under its own protocol. Blocks."""
    make = party_protocol(node.site.state.study(digest).task.proposal_study).told_by_miner
    if make is None:
        raise ValueError("no miner sends a study that operators load")
    return make(node, digest, between)


def study_of_parties(between: PeerContext, digest: bytes) -> StudyRun:
    """Return the work on a study that was loaded here, under its own protocol. Blocks."""
    make = party_protocol(between.node.site.state.study(digest).task.proposal_study).between_parties
    if make is None:
        raise ValueError("a study that the miner sends is not carried out between parties")
    return make(between, digest)


def rounds_of_protocols() -> tuple[MessageRounds, ...]:
    """Make the rounds that studies may open at one party, for each protocol that has some."""
    return tuple(make() for load in PROTOCOLS if (make := load().rounds) is not None)


def folders_of_protocols() -> tuple[ProtocolFolder, ...]:
    """Return the folders of protocols in the state directory."""
    return tuple(folder for load in PROTOCOLS if (folder := load().folder) is not None)


def files_of_protocols(state_directory: Path, digest: bytes) -> tuple[Path, ...]:
    """Return the files of a study, in folders of protocols, that the study's end has to delete."""
    return tuple(path for folder in folders_of_protocols() for path in folder.files(state_directory, digest))

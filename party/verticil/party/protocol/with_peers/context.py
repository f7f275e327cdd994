"""What the steps of a study between peers work with: what all studies share, and one study as it stands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from verticil.party.config import PartyConfig
from verticil.party.local_dataset import LocalDataset
from verticil.party.protocol.context import PartyContext, Rows, StudyContext
from verticil.party.protocol.planning import LostError
from verticil.party.protocol.with_peers import blinded_lists
from verticil.party.protocol.with_peers import pseudonym_lists as lists
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore, Kind
from verticil.party.protocol.with_peers.network import Peers
from verticil.party.protocol.with_peers.rounds import MessageRounds
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import Misuse, PeerFault, VerticilError
from verticil.shared.core.installation import install_command
from verticil.shared.federation.transport.errors_on_wire import shorten
from verticil.shared.federation.transport.fetch import fetch_bytes, fetch_file
from verticil.shared.federation.transport.interface import Coordinator, Peer
from verticil.shared.study.document import Study
from verticil.shared.study.structure_document import Structure, given_structure, parse_structure
from verticil.wire.v1 import peer_pb2

R = TypeVar("R", bound=MessageRounds)


def known_structure(store: ArtifactStore, record: StudyRecord, effective: Study) -> Structure | None:
    """Return the structure that the study states, or the one that the miner signed; None before.

    Args:
        store: where the signed one is. It was verified before it was put there.
        record: a study that every party has approved.
        effective: the effective study.
    """
    structure = given_structure(effective, record.task.effective_digest)
    if structure is not None:
        return structure
    try:
        signed = store.signed(record.digest, Kind.STRUCTURE)
    except LostError:
        return None
    return parse_structure(signed.body, effective, record.task.effective_digest)


def lacking_packages(config: PartyConfig) -> Misuse | None:
    """Return the fault that ends a study between peers at a party without the packages to test pairs of columns and write the
    release.

    With a miner no party does either, so a masked study needs ``[peer]`` and none of these packages.

    Returns:
        None: they are installed, or there is no ``[peer]``.
    """
    absent = [name for name in ("pandas", "scipy") if find_spec(name) is None]
    if config.peer is None or not absent:
        return None
    return Misuse(
        "CONFIG_INVALID",
        f"{config.path.name}: [peer]: {' and '.join(absent)} not installed, expected for studies between peers",
        hint=f"{install_command('peer')}, or the image verticil-peer",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeerContext:
    """What all studies between peers share at this party.

    Attributes:
        node: this party.
        store: what peers sent, and what they receive.
        peers: the way to them.
        coordinator: makes a connection to the miner that searches structures; None: the federation has none.
        software: what decides a release's bytes here; empty: packages for that are not installed (`lacking_packages`).
        simulation, seed_derived: what releases say of themselves.
        search_wait_seconds: how long one question for the structure waits at the miner.
        rounds: the open rounds of each protocol that has some.
        silent: parties that have not said what they have of this one, after a start with ``--accept-older``; nothing is drawn for
            a study that one of them is in.
    """

    node: PartyContext
    store: ArtifactStore
    peers: Peers
    coordinator: Callable[[], Coordinator] | None
    software: str
    simulation: bool = False
    seed_derived: bool = False
    search_wait_seconds: int = 5
    rounds: tuple[MessageRounds, ...] = ()
    silent: set[str] = field(default_factory=set)

    def rounds_of(self, kind: type[R]) -> R:
        """Return the open rounds of one protocol, which handed them to the registry."""
        return next(rounds for rounds in self.rounds if isinstance(rounds, kind))

    def unheard(self, study: Study) -> str | None:
        """Say which peers of a study have to tell first what they have of this party; None: all have."""
        names = [name for name in study.parties if name in self.silent]
        if not names:
            return None
        return (
            f"waiting until {', '.join(repr(name) for name in names)} say what they have of this party (--accept-older)"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeerStudyContext(StudyContext):
    """A study between peers that every party has approved, as it stands when a step begins.

    Attributes:
        between: what all studies between peers share.
        known_structure: None before it is known.
    """

    between: PeerContext
    known_structure: Structure | None

    @property
    def store(self) -> ArtifactStore:
        """What peers sent, and what they receive."""
        return self.between.store

    @property
    def peers(self) -> Peers:
        """The way to them."""
        return self.between.peers

    @property
    def others(self) -> tuple[str, ...]:
        """The other parties, in the study's order."""
        return tuple(name for name in self.study.parties if name != self.me)

    async def fetch(
        self, name: str, call: Callable[[Peer, int], AsyncGenerator[peer_pb2.Part]], *, limit: int, what: str
    ) -> bytes:
        """Fetch what a peer sends in parts, of at most `limit` bytes, given the call from an offset; raises as
        `Peers.ask`.
        """
        return await self.peers.ask(
            name,
            lambda peer: fetch_bytes(lambda offset: call(peer, offset), limit_bytes=limit, what=what),
            what=what,
        )

    async def fetched_into(
        self,
        target: Path,
        name: str,
        call: Callable[[Peer, int], AsyncGenerator[peer_pb2.Part]],
        *,
        limit: int,
        what: str,
    ) -> bytes:
        """Fetch as `fetch` does, into a file, and return the SHA-256."""
        return await self.peers.ask(
            name,
            lambda peer: fetch_file(lambda offset: call(peer, offset), target, limit_bytes=limit, what=what),
            what=what,
        )

    def call_for_list(
        self, which: peer_pb2.PseudonymList.ValueType, owner: int = 0
    ) -> Callable[[Peer, int], AsyncGenerator[peer_pb2.Part]]:
        """Return the call for a list, for `fetch`."""
        return lambda peer, offset: peer.get_pseudonyms(
            peer_pb2.GetPseudonymsRequest(
                effective_digest=self.effective_digest, list=which, owner=owner, offset=offset
            )
        )

    @property
    def structure(self) -> Structure:
        """The structure; after it was found."""
        if self.known_structure is None:
            raise ValueError("the structure is not known yet")
        return self.known_structure

    def make_fault(self, error: VerticilError, party: str) -> PeerFault:
        """Return a fault of `party`, with its name."""
        return PeerFault(error.code, f"party '{party}': {shorten(error.message, 1000)}", hint=error.hint)

    async def common_people(self) -> tuple[LocalDataset, Rows]:
        """Return the approved data, and which records are the common people, in the common order."""
        holding = await self.read_approved()
        if self.data.rows is None:

            def find() -> Rows:
                common = self.store.read(self.digest, Kind.COMMON)
                if self.mode == "order-commitment":
                    if holding.row_order.root != common:
                        problem = "the order of this party's rows is not the one that all parties have committed to"
                        raise PeerFault("ALIGNMENT_MISMATCH", f"alignment: {problem}", hint="nothing was randomized")
                    return holding.everyone
                if self.mode == "dh-psi":
                    return blinded_lists.common_rows(holding.n_records, common)
                teller = self.study.parties[-1]
                return lists.accepted_rows(
                    holding.pseudonyms, common, teller=teller, running=None, minimum=self.minimum
                )

            self.data.rows = await self.node.heavily(find)
        return holding, self.data.rows

    async def raw(self) -> dict[int, Codes]:
        """Return the own columns of the common people: position of the variable -> (n_common,)."""
        holding, rows = await self.common_people()
        schema = self.study.schema
        return {position: holding.codes[schema[position].name][rows] for position in schema.owned_by(self.me)}

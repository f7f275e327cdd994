"""What the steps of a study between peers work with: what all studies share, one study as it stands, and its people's data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.local_dataset import Holding
from verticil.party.protocol.central.node import Node
from verticil.party.protocol.central.randomization import Agreed
from verticil.party.protocol.central.task_ingest import check_same_data
from verticil.party.protocol.peer import blinded, lists
from verticil.party.protocol.peer.artifact_store import Kind, Shelf
from verticil.party.protocol.peer.calls import Peers
from verticil.party.storage.studies import StudyRecord
from verticil.shared.errors import PeerFault, VerticilError
from verticil.shared.study.document import Study
from verticil.shared.study.structure_document import Structure
from verticil.shared.transport.coordinator import Coordinator
from verticil.shared.transport.errors_on_wire import shown

T = TypeVar("T")
Codes = NDArray[np.uint8] | NDArray[np.uint16]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """What all studies between peers share at this party.

    Attributes:
        node: this party.
        shelf: what peers told, and what they are told.
        peers: the way to them.
        coordinator: makes a connection to the miner that searches structures; None: the federation has none.
        software: what decides a release's bytes here.
        simulation, seed_derived: what releases say of themselves.
        search_wait_seconds: how long one question for the structure waits at the miner.
    """

    node: Node
    shelf: Shelf
    peers: Peers
    coordinator: Callable[[], Coordinator] | None
    software: str
    simulation: bool = False
    seed_derived: bool = False
    search_wait_seconds: int = 5

    @property
    def me(self) -> str:
        """This party's name."""
        return self.node.site.config.name

    async def heavily(self, work: Callable[[], T]) -> T:
        """Do CPU work in a thread; studies take turns."""
        async with self.node.heavy:
            return await asyncio.to_thread(work)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """A study that every party has approved, as it stands when a step begins.

    Attributes:
        record: what this party remembers.
        agreed: the approval, which still binds.
        structure: None before it is known.
    """

    record: StudyRecord
    agreed: Agreed
    structure: Structure | None

    @property
    def digest(self) -> bytes:
        """SHA-256 of the proposal."""
        return self.record.digest

    @property
    def study(self) -> Study:
        """The effective study."""
        return self.agreed.effective

    @property
    def effective_digest(self) -> bytes:
        """Names it on the wire."""
        return self.record.task.effective_digest

    @property
    def common(self) -> tuple[int, bytes]:
        """Size and SHA-256 of the common list; after it was accepted."""
        if self.record.n_common is None or self.record.common_sha256 is None:
            raise ValueError("the common list is not known yet")
        return self.record.n_common, self.record.common_sha256

    def named(self, error: VerticilError, party: str) -> PeerFault:
        """A fault of `party`, with its name."""
        return PeerFault(error.code, f"party '{party}': {shown(error.message, 1000)}", hint=error.hint)


class Data:
    """The people's data of one study: read once, checked against the approval each time, dropped when nothing needs them.

    Args:
        work: what all studies share.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._holding: Holding | None = None
        self._rows: NDArray[np.int64] | None = None

    def drop(self) -> None:
        """Forget them."""
        self._holding = self._rows = None

    async def read(self, record: StudyRecord) -> Holding:
        """The data as they are; raises as `Site.read`."""
        if self._holding is None:
            self._holding = await self._work.heavily(lambda: self._work.node.site.read(record))
        return self._holding

    async def approved(self, turn: Turn) -> Holding:
        """The data, if they are those that were approved.

        Raises:
            AskedAgainError, Refusal: APPROVAL_VOID, as `check_same_data`.
            DataFault, Misuse: as `Site.read`.
        """
        holding = await self.read(turn.record)
        await self._work.heavily(lambda: check_same_data(self._work.node, turn.record, turn.agreed, holding))
        return holding

    async def common(self, turn: Turn) -> tuple[Holding, NDArray[np.int64]]:
        """The approved data, and which records are the common people, in the common order."""
        holding = await self.approved(turn)
        if self._rows is None:
            site, shelf = self._work.node.site, self._work.shelf

            def find() -> NDArray[np.int64]:
                if turn.study.linkage.mode == "order-commitment":
                    return lists.ordered_rows(
                        holding.row_order.root, holding.order, shelf.read(turn.digest, Kind.COMMON)
                    )
                if turn.study.linkage.mode == "dh-psi":
                    return blinded.common_rows(holding.order, shelf.read(turn.digest, Kind.COMMON))
                return lists.accepted_rows(
                    holding.pseudonyms,
                    holding.order,
                    shelf.read(turn.digest, Kind.COMMON),
                    teller=turn.study.parties[-1],
                    running=None,
                    minimum=turn.agreed.minimum(site),
                )

            self._rows = await self._work.heavily(find)
        return holding, self._rows

    async def raw(self, turn: Turn) -> dict[int, Codes]:
        """The own columns of the common people: position of the variable -> (n_common,)."""
        holding, rows = await self.common(turn)
        schema = turn.study.schema
        return {position: holding.codes[schema[position].name][rows] for position in schema.owned_by(self._work.me)}

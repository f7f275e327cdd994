"""How this party finds the common people with the miner, in each mode of linkage.

All modes have the same three steps: `link` sends what the others need, `confirm` checks what the miner tells and accepts it,
`rows` says which records are common, in the common order, before anything is randomized.

What stands between a miner that lies and randomization
- ``keyed-hash``: the common list is recomputed from this party's own pseudonyms. It is not compared between the parties.
- ``order-commitment``: every party has signed the same row order, and this party's table has it.
- ``dh-psi``: every party has signed the same common list, and each of them holds all its tokens. As blinded lists are signed
  from hop to hop, a miner alone cannot make anybody common who is not at all parties; it can leave people out, down to the
  minimum.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.linkage import check_common_size, common_from_bitmap
from verticil.party.dataset.local_dataset import Holding
from verticil.party.protocol.central.node import Node
from verticil.party.protocol.central.randomization import Agreed
from verticil.party.protocol.central.upload import Alignment, fetch_alignment, send_pseudonyms
from verticil.party.storage.studies import StudyRecord
from verticil.shared.alignment.merkle import Tree
from verticil.shared.alignment.statements import check_common, common_body
from verticil.shared.errors import PeerFault
from verticil.shared.transport.coordinator import Coordinator
from verticil.wire.v1 import common_pb2, coordinator_pb2

T = TypeVar("T")
Rows = NDArray[np.int64]


class Heavily(Protocol):
    """Runs CPU work in a thread; studies take turns."""

    async def __call__(self, work: Callable[[], T]) -> T:
        """Run it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """One step of linking.

    Attributes:
        node: this party.
        coordinator: the connection.
        record: the study, as it stands.
        agreed: the approval, which still binds.
        holding: the approved data.
        heavily: runs CPU work.
        progress: told the percentage of what `link` does.
    """

    node: Node
    coordinator: Coordinator
    record: StudyRecord
    agreed: Agreed
    holding: Holding
    heavily: Heavily
    progress: Callable[[int], Awaitable[None]]

    @property
    def me(self) -> str:
        """This party's name."""
        return self.node.site.config.name

    @property
    def mode(self) -> str:
        """Of linkage."""
        return self.agreed.effective.linkage.mode

    @property
    def minimum(self) -> int:
        """Fewest common people."""
        return self.agreed.minimum(self.node.site)

    def statement(self, n_common: int, common_sha256: bytes) -> common_pb2.Signed:
        """This party's signed statement of the common list."""
        body = common_body(
            mode=self.mode, study=self.record.digest, party=self.me, n_common=n_common, common_sha256=common_sha256
        )
        return self.node.signing_key.sign(body)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accepted:
    """A common list that this party accepts.

    Attributes:
        n_common: people in it.
        common_sha256: names it.
        rows: the records, when nothing more has to be checked before they are randomized; else None.
        report: tells the miner.
    """

    n_common: int
    common_sha256: bytes
    rows: Rows | None
    report: coordinator_pb2.ReportRequest


class Linker(Protocol):
    """One mode of linkage."""

    async def link(self, turn: Turn) -> None:
        """Send what the others need; repeatable. Raises NOT_READY while it is another party's turn."""
        ...

    async def confirm(self, turn: Turn) -> Accepted:
        """Check the common list that the miner tells. Raises NOT_READY, ALIGNMENT_MISMATCH, LINKAGE_TOO_SMALL."""
        ...

    async def rows(self, turn: Turn) -> Rows:
        """The common records in the common order, after every check. Raises as `confirm`."""
        ...


def same_as_before(record: StudyRecord, told: Alignment) -> None:
    """Refuse a second common list for a study.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH.
    """
    if record.common_sha256 not in {None, told.common_sha256}:
        raise PeerFault(
            "ALIGNMENT_MISMATCH",
            f"study '{record.study_id}': the miner tells another common list than the one that was confirmed",
            hint="nothing is randomized for a second list",
        )


def signed_by_all(turn: Turn, told: Alignment) -> None:
    """Check that every party has signed the common list; raises as `check_common`."""
    check_common(
        told.statements,
        parties=turn.agreed.effective.parties,
        mode=turn.mode,
        study=turn.record.digest,
        n_common=told.n_common,
        common_sha256=told.common_sha256,
        authority=turn.node.authority,
        at=turn.node.clock(),
        revoked=turn.node.revocations.since(),
    )


class Pseudonyms:
    """``keyed-hash``."""

    async def link(self, turn: Turn) -> None:
        """Send the pseudonyms."""
        await send_pseudonyms(
            turn.coordinator,
            turn.record.digest,
            turn.holding.pseudonyms.reshape(-1).data,
            chunk_bytes=turn.node.site.config.federation.chunk_bytes,
            progress=turn.progress,
        )

    async def confirm(self, turn: Turn) -> Accepted:
        """Recompute the common list from the own pseudonyms."""
        told, rows = await self._found(turn)
        report = coordinator_pb2.ReportRequest(
            study_digest=turn.record.digest, confirmed_common_sha256=told.common_sha256
        )
        return Accepted(n_common=told.n_common, common_sha256=told.common_sha256, rows=rows, report=report)

    async def rows(self, turn: Turn) -> Rows:
        """See `Linker.rows`."""
        return (await self._found(turn))[1]

    async def _found(self, turn: Turn) -> tuple[Alignment, Rows]:
        holding = turn.holding
        told = await fetch_alignment(turn.coordinator, turn.record.digest, n_records=holding.n_records)
        same_as_before(turn.record, told)
        rows = await turn.heavily(
            lambda: common_from_bitmap(
                holding.pseudonyms,
                holding.order,
                told.bitmap,
                expected_sha256=told.common_sha256,
                n_common=told.n_common,
                minimum=turn.minimum,
            )
        )
        return told, rows


def row_order(node: Node, study: bytes, tree: Tree) -> common_pb2.Commitment:
    """This party's commitment to the order of its rows.

    Args:
        node: this party.
        study: SHA-256 of the proposal.
        tree: over its rows.
    """
    body = common_body(
        mode="order-commitment",
        study=study,
        party=node.site.config.name,
        n_common=tree.n_records,
        common_sha256=tree.root,
    )
    return common_pb2.Commitment(statement=node.signing_key.sign(body), nodes=tree.nodes, n_records=tree.n_records)


class RowOrder:
    """``order-commitment``."""

    async def link(self, turn: Turn) -> None:
        """Commit to the order of the table's rows."""
        commitment = row_order(turn.node, turn.record.digest, turn.holding.row_order)
        report = coordinator_pb2.ReportRequest(study_digest=turn.record.digest, commitment=commitment)
        await turn.coordinator.report(report)

    async def confirm(self, turn: Turn) -> Accepted:
        """Check that all parties have signed the order that the table has."""
        tree, rows = turn.holding.row_order, await self.rows(turn)
        report = coordinator_pb2.ReportRequest(study_digest=turn.record.digest, confirmed_common_sha256=tree.root)
        return Accepted(n_common=tree.n_records, common_sha256=tree.root, rows=rows, report=report)

    async def rows(self, turn: Turn) -> Rows:
        """All rows, in the table's order."""
        tree = turn.holding.row_order
        told = await fetch_alignment(turn.coordinator, turn.record.digest, n_records=0)
        same_as_before(turn.record, told)
        if (told.n_common, told.common_sha256) != (tree.n_records, tree.root):
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"study '{turn.record.study_id}': the miner tells another row order than that of this party's table",
                hint="nothing was randomized; were rows added, removed or moved after this party committed to their order?",
            )
        check_common_size(told.n_common, turn.minimum)
        signed_by_all(turn, told)
        return turn.holding.order

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
from typing import Protocol

from verticil.party.dataset.linkage import check_common_size, common_from_bitmap
from verticil.party.dataset.local_dataset import Holding
from verticil.party.protocol.central.upload import Alignment, fetch_alignment, send_pseudonyms
from verticil.party.protocol.context import Rows, StudyContext
from verticil.shared.alignment.statements import check_common
from verticil.shared.errors import PeerFault
from verticil.shared.transport.interface import Coordinator
from verticil.wire.v1 import coordinator_pb2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CentralContext(StudyContext):
    """One step of a study with a miner.

    Attributes:
        coordinator: the connection.
        holding: the approved data.
        progress: told the percentage of what `link` does.
    """

    coordinator: Coordinator
    holding: Holding
    progress: Callable[[int], Awaitable[None]]

    async def alignment(self, *, n_records: int) -> Alignment:
        """What the miner tells of the common people, if it is what this party confirmed, where it has; as `fetch_alignment`.

        Raises:
            PeerFault: also ALIGNMENT_MISMATCH, another list.
        """
        told = await fetch_alignment(self.coordinator, self.digest, n_records=n_records)
        self.require_same_common(
            told.common_sha256,
            "the miner tells another common list than the one that was confirmed",
            hint="nothing is randomized for a second list",
        )
        return told

    def signed_by_all(self, told: Alignment) -> None:
        """Check that every party has signed the common list; raises as `check_common`."""
        check_common(
            told.statements,
            parties=self.study.parties,
            mode=self.mode,
            study=self.digest,
            n_common=told.n_common,
            common_sha256=told.common_sha256,
            authority=self.node.authority,
            at=self.node.clock(),
            revoked=self.node.revocations.since(),
        )


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

    async def link(self, context: CentralContext) -> None:
        """Send what the others need; repeatable. Raises NOT_READY while it is another party's context."""
        ...

    async def confirm(self, context: CentralContext) -> Accepted:
        """Check the common list that the miner tells. Raises NOT_READY, ALIGNMENT_MISMATCH, LINKAGE_TOO_SMALL."""
        ...

    async def rows(self, context: CentralContext) -> Rows:
        """The common records in the common order, after every check. Raises as `confirm`."""
        ...


class Pseudonyms:
    """``keyed-hash``."""

    async def link(self, context: CentralContext) -> None:
        """Send the pseudonyms."""
        await send_pseudonyms(
            context.coordinator,
            context.digest,
            context.holding.pseudonyms.reshape(-1).data,
            chunk_bytes=context.node.site.config.federation.chunk_bytes,
            progress=context.progress,
        )

    async def confirm(self, context: CentralContext) -> Accepted:
        """Recompute the common list from the own pseudonyms."""
        told, rows = await self._found(context)
        report = coordinator_pb2.ReportRequest(study_digest=context.digest, confirmed_common_sha256=told.common_sha256)
        return Accepted(n_common=told.n_common, common_sha256=told.common_sha256, rows=rows, report=report)

    async def rows(self, context: CentralContext) -> Rows:
        """See `Linker.rows`."""
        return (await self._found(context))[1]

    async def _found(self, context: CentralContext) -> tuple[Alignment, Rows]:
        holding = context.holding
        told = await context.alignment(n_records=holding.n_records)
        rows = await context.node.heavily(
            lambda: common_from_bitmap(
                holding.pseudonyms,
                holding.order,
                told.bitmap,
                expected_sha256=told.common_sha256,
                n_common=told.n_common,
                minimum=context.minimum,
            )
        )
        return told, rows


class RowOrder:
    """``order-commitment``."""

    async def link(self, context: CentralContext) -> None:
        """Commit to the order of the table's rows."""
        commitment = context.row_order(context.holding)
        report = coordinator_pb2.ReportRequest(study_digest=context.digest, commitment=commitment)
        await context.coordinator.report(report)

    async def confirm(self, context: CentralContext) -> Accepted:
        """Check that all parties have signed the order that the table has."""
        tree, rows = context.holding.row_order, await self.rows(context)
        report = coordinator_pb2.ReportRequest(study_digest=context.digest, confirmed_common_sha256=tree.root)
        return Accepted(n_common=tree.n_records, common_sha256=tree.root, rows=rows, report=report)

    async def rows(self, context: CentralContext) -> Rows:
        """All rows, in the table's order."""
        tree = context.holding.row_order
        told = await context.alignment(n_records=0)
        if (told.n_common, told.common_sha256) != (tree.n_records, tree.root):
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"study '{context.record.study_id}': the miner tells another row order than that of this party's table",
                hint="nothing was randomized; were rows added, removed or moved after this party committed to their order?",
            )
        check_common_size(told.n_common, context.minimum)
        context.signed_by_all(told)
        return context.holding.order

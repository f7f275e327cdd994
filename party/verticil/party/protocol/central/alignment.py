"""How this party finds the common people with the miner, in each mode of linkage.

All modes have the same three steps: `link` sends what the others need, `confirm` checks what the miner answers and accepts it,
`rows` says which records are common, in the common order, before anything is randomized.

What stands between a miner that lies and randomization
- ``keyed-hash``: the common list is recomputed from this party's own pseudonyms. It is not compared between the parties.
- ``order-commitment``: every party has signed the same row order, and this party's table has it.
- ``dh-psi``: every party has signed the same common list, and each of them holds all its tokens. As blinded lists are signed
  from hop to hop, a miner alone cannot make anybody common who is not at all parties; it can leave people out, down to the
  minimum.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from verticil.party.dataset.gathered_records import MEMORY_ROWS
from verticil.party.dataset.pseudonyms import check_common_size, common_from_bitmap
from verticil.party.local_dataset import LocalDataset
from verticil.party.protocol.context import Rows, StudyContext
from verticil.party.protocol.with_miner.upload import Alignment, Progress, fetch_alignment, send_pseudonyms
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.alignment.statements import check_common
from verticil.shared.federation.transport.interface import Coordinator
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.unlinked_files import join_parts
from verticil.wire.v1 import coordinator_pb2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CentralContext(StudyContext):
    """One step of a study with a miner.

    Attributes:
        coordinator: the connection.
        holding: the approved data.
        progress: receives the percentage of what `link` does.
    """

    coordinator: Coordinator
    holding: LocalDataset
    progress: Progress

    async def alignment(self, *, n_records: int) -> Alignment:
        """Return what the miner sends of the common people, if it is what this party confirmed; raises as `fetch_alignment`.

        Raises:
            PeerFault: also ALIGNMENT_MISMATCH, another list.
        """
        message = await fetch_alignment(self.coordinator, self.digest, n_records=n_records)
        self.require_same_common(
            message.common_sha256,
            "the miner sends another common list than the one that was confirmed",
            hint="nothing is randomized for a second list",
        )
        return message

    def signed_by_all(self, alignment: Alignment) -> None:
        """Check that every party has signed the common list; raises as `check_common`."""
        check_common(
            alignment.statements,
            parties=self.study.parties,
            mode=self.mode,
            study=self.digest,
            n_common=alignment.n_common,
            common_sha256=alignment.common_sha256,
            authority=self.node.authority,
            at=self.node.clock(),
            deny_list=self.node.revocations.since(),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accepted:
    """A common list that this party accepts.

    Attributes:
        n_common: people in it.
        common_sha256: names it.
        rows: the records, when nothing more has to be checked before they are randomized; else None.
        report: the confirmation that the miner receives.
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
        """Check the common list that the miner sends. Raises NOT_READY, ALIGNMENT_MISMATCH, LINKAGE_TOO_SMALL."""
        ...

    async def rows(self, context: CentralContext) -> Rows:
        """Return the common records in the common order, after every check. Raises as `confirm`."""
        ...


class Pseudonyms:
    """Linker of studies with linkage ``keyed-hash``."""

    async def link(self, context: CentralContext) -> None:
        """Send the pseudonyms to the miner."""
        await send_pseudonyms(
            context.coordinator,
            context.digest,
            context.holding.pseudonyms.reshape(-1).data,
            chunk_bytes=context.node.site.config.federation.chunk_bytes,
            progress=context.progress,
        )

    async def confirm(self, context: CentralContext) -> Accepted:
        """Recompute the common list from the own pseudonyms."""
        alignment, rows = await self._find_rows(context)
        report = coordinator_pb2.ReportRequest(
            study_digest=context.digest, confirmed_common_sha256=alignment.common_sha256
        )
        return Accepted(n_common=alignment.n_common, common_sha256=alignment.common_sha256, rows=rows, report=report)

    async def rows(self, context: CentralContext) -> Rows:
        """Return the common rows; see `Linker.rows`."""
        return (await self._find_rows(context))[1]

    async def _find_rows(self, context: CentralContext) -> tuple[Alignment, Rows]:
        holding = context.holding
        alignment = await context.alignment(n_records=holding.n_records)
        rows = await context.node.heavily(
            lambda: common_from_bitmap(
                holding.pseudonyms,
                alignment.bitmap,
                expected_sha256=alignment.common_sha256,
                n_common=alignment.n_common,
                minimum=context.minimum,
                keep=functools.partial(_keep, context.node.site.config.state_directory),
            )
        )
        return alignment, rows


def _keep(folder: Path, n: int, parts: Iterable[Rows]) -> Rows:
    """Return the places of so many people as one array, outside memory where they are many; raises as `disk_faults`."""
    with disk_faults(folder):
        return join_parts(folder if n > MEMORY_ROWS else None, n, parts, np.dtype(np.int64))


class RowOrder:
    """Linker of studies with linkage ``order-commitment``."""

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
        """Return all rows, in the table's order."""
        tree = context.holding.row_order
        alignment = await context.alignment(n_records=0)
        if (alignment.n_common, alignment.common_sha256) != (tree.n_records, tree.root):
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"study '{context.record.study_id}': the miner sends another row order than that of this party's table",
                hint="nothing was randomized; were rows added, removed or moved after this party committed to their order?",
            )
        check_common_size(alignment.n_common, context.minimum)
        context.signed_by_all(alignment)
        n, folder = context.holding.n_records, context.node.site.config.state_directory
        parts = (np.arange(start, min(start + MEMORY_ROWS, n)) for start in range(0, n, MEMORY_ROWS))
        return await context.node.heavily(lambda: _keep(folder, n, parts))

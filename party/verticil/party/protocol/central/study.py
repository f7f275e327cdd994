"""One study with a miner at this party (Model II), from linkage to receipts: does the steps that `plan` plans.

Promises
- A unit's row is in the ledger, and its line in the audit log, on the disk, before its upload begins.
- What the miner sends is never believed: the common list is recomputed, the effective study compared, the receipt's
  signature and content checked.
- The people's data are read once for each study and kept (without ids) until its last unit is in the spool.

What every study that a miner tells has is in `verticil.party.protocol.with_miner.study`; what holds for every protocol is said
in `verticil.party.protocol.engine` and `verticil.party.protocol.context`.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, cast

from verticil.party.audit.log import What
from verticil.party.local_dataset import LocalDataset
from verticil.party.protocol.central.alignment import CentralContext, Linker, Pseudonyms, RowOrder
from verticil.party.protocol.central.blinded_ring import Ring
from verticil.party.protocol.central.plan import Step, plan
from verticil.party.protocol.central.review import check_release
from verticil.party.protocol.context import PartyContext, Rows, agreement
from verticil.party.protocol.planning import Plan
from verticil.party.protocol.randomization import enter_in_ledger, unit_event
from verticil.party.protocol.reconciliation.columns import RECIPIENT, claim_words, unknown_columns
from verticil.party.protocol.with_miner.countersigning import ReleaseCheck
from verticil.party.protocol.with_miner.study import CoordinatedStudy
from verticil.party.protocol.with_miner.upload import send_artifact
from verticil.party.storage.studies import Artifact, StudyRecord
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.transport.interface import AnsweredLater
from verticil.shared.study.document import Study
from verticil.wire.v1 import common_pb2

LINKERS: Final[Mapping[str, Linker]] = {
    "keyed-hash": Pseudonyms(),
    "order-commitment": RowOrder(),
    "dh-psi": Ring(),
}
"""Mode of linkage -> how it is done."""


class CentralStudy(CoordinatedStudy):
    """The work on one study with a miner.

    Args:
        node: what all studies share.
        digest: SHA-256 of the proposal.
    """

    def __init__(self, node: PartyContext, digest: bytes) -> None:
        super().__init__(node, digest)
        self._on_its_way: set[int] = set()  # units that were taken without a receipt, which comes with the next answer

    @property
    def compare(self) -> ReleaseCheck:
        """The function that compares a release; see `CoordinatedStudy.compare`."""
        return check_release

    def plan(self) -> tuple[StudyRecord, Plan]:
        """Return the record and the next step; see `StudyRun.plan`."""
        site = self.site
        record = site.state.study(self.digest)
        study = record.task.latest
        artifacts = site.state.artifacts(self.digest, record.task.effective_digest)
        unknown = unknown_columns(site, record.task)
        return record, plan(
            record,
            automatic=self.approves_itself,
            own_units=frozenset(study.units_of(self.node.me)),
            spooled_units=frozenset(artifacts),
            receipted_units=frozenset(unit for unit, item in artifacts.items() if item.receipt is not None)
            | self._on_its_way,
            review=site.decisions.review(self.digest),
            countersigns=site.config.policy.approval == "auto",
            unproven=claim_words(unknown) if unknown else "",
        )

    async def act(self, step: StrEnum, record: StudyRecord) -> str | None:
        """Do one step; see `StudyRun.act`."""
        match step:
            case Step.LINK:
                await self._link(record)
            case Step.CONFIRM:
                await self._confirm(record)
            case Step.RANDOMIZE:
                await self._randomize(record)
            case Step.SEND:
                await self._send(record)
            case _:
                return await super().act(step, record)
        return None

    # ---- linkage

    async def _link(self, record: StudyRecord) -> None:
        context = await self._context(record, "reading")
        await self._progress("linking")
        await self.transfer.run(LINKERS[context.mode].link(context))
        await asyncio.to_thread(self.site.state.mark_acknowledged, record.digest, "pseudonyms_complete")

    async def _confirm(self, record: StudyRecord) -> None:
        context = await self._context(record)
        accepted_list = await LINKERS[context.mode].confirm(context)
        if accepted_list.rows is not None:
            await self._accept_people(context, accepted_list.rows, accepted_list.common_sha256)
        self.data.rows = accepted_list.rows
        await asyncio.to_thread(
            self.site.state.confirm, record.digest, accepted_list.n_common, accepted_list.common_sha256
        )
        await self.coordinator.report(accepted_list.report)
        await asyncio.to_thread(self.site.state.mark_acknowledged, record.digest, "alignment_confirmed")

    async def _accept_people(self, context: CentralContext, rows: Rows, common_sha256: bytes) -> None:
        """Compare the common people with those of earlier studies, before anything about them leaves."""
        await self.node.heavily(lambda: context.accept_people(context.holding, rows, common_sha256))

    # ---- release

    async def _randomize(self, record: StudyRecord) -> None:
        context = await self._context(record, "randomizing")
        rows = await self._common_rows(context)
        await context.randomize(context.holding, rows, context.study.units_of(self.node.me))
        self.data.drop()

    async def common_people(self, record: StudyRecord) -> tuple[Study, LocalDataset, Rows]:
        """Return the common people; see `CoordinatedStudy.common_people`."""
        context = await self._context(record)
        return context.study, context.holding, await self._common_rows(context)

    async def _common_rows(self, context: CentralContext) -> Rows:
        if self.data.rows is None:
            rows = await LINKERS[context.mode].rows(context)
            common_sha256 = context.record.common_sha256
            if context.mode == "dh-psi" and common_sha256 is not None:  # only now this party knows them
                await self._accept_people(context, rows, common_sha256)
            self.data.rows = rows  # not before they were accepted: what breaks on the way is done again
        return self.data.rows

    async def _send(self, record: StudyRecord) -> None:
        """Send one unit that is not receipted yet. One at a time, so that a denial stops the next."""
        site = self.site
        await asyncio.to_thread(agreement, site, record, self.node.clock().date())
        artifacts = await asyncio.to_thread(site.state.artifacts, record.digest, record.task.effective_digest)
        there = set(record.task.units_received) | {unit for unit, item in artifacts.items() if item.receipt is not None}
        there |= self._on_its_way
        item = next(item for unit, item in artifacts.items() if unit not in there)
        if await asyncio.to_thread(site.ledger.has_sent, record.digest, item.unit, RECIPIENT, item.sha256):
            await self.make_again(record)  # what was sent once is sent again as it was, or not at all
        elif not await asyncio.to_thread(self.node.spool.holds, item.sha256):
            await asyncio.to_thread(site.state.forget_artifact, record.digest, item.unit)
            return  # it is randomized again: the same bytes
        await self._mark_uploaded(len(there), len(artifacts), 0)
        await asyncio.to_thread(enter_in_ledger, self.site, record, item, RECIPIENT, self.node.clock())
        sending = send_artifact(
            self.coordinator,
            effective_digest=record.task.effective_digest,
            unit=item.unit,
            path=self.node.spool.path(item.sha256),
            sha256=item.sha256,
            chunk_bytes=site.config.federation.chunk_bytes,
            progress=functools.partial(self._mark_uploaded, len(there), len(artifacts)),
        )
        try:
            receipt = await self.transfer.run(sending)
        except AnsweredLater:
            self._on_its_way.add(item.unit)
            return
        await self._accept_receipt(record, item, receipt)

    async def take_receipt(self, unit: int, receipt: common_pb2.Signed) -> bool:
        """Take in a receipt that comes by itself, for a unit that was sent before.

        Returns:
            Whether it is one that was waited for.

        Raises:
            PeerFault: STUDY_MISMATCH, it is not of what was sent.
        """
        record = await asyncio.to_thread(self.site.state.study, self.digest)
        artifacts = await asyncio.to_thread(self.site.state.artifacts, self.digest, record.task.effective_digest)
        item = artifacts.get(unit)
        if item is None or item.receipt is not None:
            return False
        await self._accept_receipt(record, item, receipt)
        return True

    async def _accept_receipt(self, record: StudyRecord, item: Artifact, receipt: common_pb2.Signed) -> None:
        self._check_receipt(receipt, item, record.study_id)
        signed = hashlib.sha256(receipt.body).digest()
        event = unit_event(What.RECEIPT, record, item, recipient=RECIPIENT, peer_event=signed)
        await asyncio.to_thread(self.site.audit.record, event, self.node.clock())
        await asyncio.to_thread(self.site.state.mark_receipted, record.digest, item.unit, receipt.body)

    # ---- reports

    async def _mark_uploaded(self, n_done: int, n_units: int, percent: int) -> None:
        await self._progress("uploading", (100 * n_done + percent) // n_units)

    def _check_receipt(self, receipt: common_pb2.Signed, item: Artifact, study_id: str) -> None:
        where = f"study '{study_id}': the receipt of unit {item.unit}"
        try:
            self.node.verify(receipt, role=Role.MINER)
            body = cast("object", json.loads(receipt.body))
        except (VerticilError, ValueError, RecursionError) as error:
            code = error.code if isinstance(error, VerticilError) else "not JSON"
            raise PeerFault("STUDY_MISMATCH", f"{where} is not one of this federation's miner ({code})") from None
        expected_body: dict[str, object] = {
            "artifact_sha256": item.sha256.hex(),
            "size": item.size,
            "party": self.node.me,
            "unit": item.unit,
            "effective_digest": item.effective_digest.hex(),
        }
        fields = cast("dict[str, object]", body) if isinstance(body, dict) else {}
        wrong = [name for name, value in expected_body.items() if fields.get(name) != value]
        if wrong:
            raise PeerFault("STUDY_MISMATCH", f"{where} differs from what was sent in {', '.join(wrong)}")

    # ---- what the steps share

    async def _context(self, record: StudyRecord, stage: str = "") -> CentralContext:
        """Return the study as it stands, with the data, if they are those that were approved; before that `stage` is
        reported.
        """
        agreed_study = await asyncio.to_thread(agreement, self.site, record, self.node.clock().date())
        if stage:
            await self._progress(stage)
        return CentralContext(
            node=self.node,
            record=record,
            agreed=agreed_study,
            data=self.data,
            coordinator=self.coordinator,
            holding=await self.data.read_approved(record, agreed_study),
            progress=functools.partial(self._progress, "linking"),
        )

"""One study with a miner at this party (Model II), from approval to receipts: does the steps that `session` plans.

Promises
- A unit's row is in the ledger, and its line in the audit log, on the disk, before its upload begins.
- What the miner sends is never believed: the common list is recomputed, the effective study compared, the receipt's
  signature and content checked.
- The people's data are read once for each study and kept (without ids) until its last unit is in the spool.

What holds for every protocol is said in `verticil.party.protocol.engine` and `verticil.party.protocol.context`.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Set
from enum import StrEnum
from typing import ClassVar, Final, cast

from verticil.party.audit.log import What
from verticil.party.policy import approval
from verticil.party.policy.approval import AUTOMATIC
from verticil.party.protocol.central import review
from verticil.party.protocol.central.alignment import CentralContext, Linker, Pseudonyms, Ring, RowOrder
from verticil.party.protocol.central.plan import Step, plan
from verticil.party.protocol.central.upload import send_artifact
from verticil.party.protocol.context import Node, Rows, agreement, ask_again
from verticil.party.protocol.disclosure import outward, told_objections
from verticil.party.protocol.engine import Outcome, StudyRun
from verticil.party.protocol.ledger_reconciliation import RECIPIENT, claim_words, unknown_columns
from verticil.party.protocol.planning import Plan
from verticil.party.protocol.randomization import enter_in_ledger, refill_spool, unit_event
from verticil.party.protocol.retry import TOWARDS_THE_MINER
from verticil.party.storage.studies import Artifact, StudyRecord
from verticil.shared.core.errors import PeerFault, Refusal, VerticilError
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.transport.errors_on_wire import to_detail
from verticil.shared.federation.transport.interface import AnsweredLater, Coordinator
from verticil.shared.study.states import State, is_final
from verticil.wire.v1 import common_pb2, coordinator_pb2

LINKERS: Final[Mapping[str, Linker]] = {
    "keyed-hash": Pseudonyms(),
    "order-commitment": RowOrder(),
    "dh-psi": Ring(),
}
"""Mode of linkage -> how it is done."""


class CentralStudy(StudyRun):
    """The work on one study with a miner.

    Args:
        node: what all studies share.
        digest: SHA-256 of the proposal.

    Attributes:
        coordinator: the connection to the miner; set before each step.
    """

    waited_out: ClassVar[Set[str]] = TOWARDS_THE_MINER
    looks_again = False
    coordinator: Coordinator

    def __init__(self, node: Node, digest: bytes) -> None:
        super().__init__(node, digest)
        self._told: tuple[Coordinator, coordinator_pb2.Progress] | None = None
        self._on_its_way: set[int] = set()  # units that were taken without a receipt, which comes with the next answer

    def planned(self) -> tuple[StudyRecord, Plan]:
        """See `StudyRun.planned`."""
        site = self.site
        record = site.state.study(self.digest)
        study = approval.parsed(record.task.effective or record.task.proposal)
        spooled = site.state.artifacts(self.digest, record.task.effective_digest)
        unknown = unknown_columns(site, record.task)
        return record, plan(
            record,
            automatic=self.approves_itself,
            own_units=frozenset(study.units_of(self.node.me)),
            spooled=frozenset(spooled),
            receipted=frozenset(unit for unit, item in spooled.items() if item.receipt is not None) | self._on_its_way,
            review=site.decisions.review(self.digest),
            countersigns=site.config.policy.approval == "auto",
            unproven=claim_words(unknown) if unknown else "",
        )

    async def act(self, step: StrEnum, record: StudyRecord) -> str | None:
        """See `StudyRun.act`: whatever is waited for, the miner's next task says."""
        actions: Mapping[StrEnum, Callable[[StudyRecord], Awaitable[None]]] = {
            Step.CLEAR: self._clear,
            Step.TELL_DENIAL: self._tell_denial,
            Step.TELL_FAILURE: self._tell_failure,
            Step.TELL_REVOCATION: self._tell_revocation,
            Step.APPROVE: self.approve,
            Step.TELL_APPROVAL: self._tell_approval,
            Step.LINK: self._link,
            Step.CONFIRM: self._confirm,
            Step.RANDOMIZE: self._randomize,
            Step.SEND: self._send,
            Step.FETCH_REVIEW: self._fetch_review,
            Step.COUNTERSIGN: self._countersign,
            Step.TELL_COUNTERSIGNATURE: self._tell_countersignature,
        }
        await actions[step](record)
        return None

    async def rest(self, record: StudyRecord) -> Outcome:
        """See `StudyRun.rest`: a study that has ended may still be revoked."""
        if is_final(State(record.task.state)):
            await asyncio.to_thread(self.drop_data)
        else:
            await self._tell_votes(record)
        return Outcome.WAITING

    async def untold(self) -> None:
        """See `StudyRun.untold`: the study is gone there, or has ended otherwise."""
        await asyncio.to_thread(self.site.state.failure_told, self.digest)

    # ---- decisions and ends

    async def _tell_votes(self, record: StudyRecord) -> None:
        """While the approval is waited for: what the policy says; of several approvers, or of one anew, how many have approved.

        It is sent at once, before anybody looks, and again on each connection and when it has changed.
        """
        if record.approval is not None or record.denial_sent is not None or record.failure is not None:
            return
        needed = self.site.approvers.now().needed
        progress = coordinator_pb2.Progress(stage="approving")
        if needed > 1 or record.task.approved:
            progress.approvers, progress.approvers_needed = record.n_votes, needed
        told = await asyncio.to_thread(told_objections, self.site, record, self.node.clock())
        if told is not None:
            progress.objections.CopyFrom(told)
        elif not progress.approvers_needed:
            return
        if self._told != (self.coordinator, progress):
            await self.coordinator.report(coordinator_pb2.ReportRequest(study_digest=record.digest, progress=progress))
            self._told = (self.coordinator, progress)

    async def _clear(self, record: StudyRecord) -> None:

        def clear() -> None:
            self.drop_columns()
            review.drop(self.site, record.digest)

        await asyncio.to_thread(clear)

    async def _tell_denial(self, record: StudyRecord) -> None:
        reason = await asyncio.to_thread(self.site.decisions.denial_reason, record.digest)
        report = coordinator_pb2.ReportRequest(study_digest=record.digest, denial=coordinator_pb2.Denial(reason=reason))
        await self.coordinator.report(report)
        await asyncio.to_thread(self.site.decisions.denial_told, record.digest)

    async def _tell_failure(self, record: StudyRecord) -> None:
        await asyncio.to_thread(self.drop_data)
        if record.failure is not None:
            report = coordinator_pb2.ReportRequest(
                study_digest=record.digest, failure=to_detail(outward(record.failure))
            )
            await self.coordinator.report(report)
        await asyncio.to_thread(self.site.state.failure_told, record.digest)

    async def _tell_revocation(self, record: StudyRecord) -> None:
        self.data.drop()
        revoked = await asyncio.to_thread(self.site.revocations.get, record.digest)
        if revoked is not None:
            said = coordinator_pb2.Withdrawal(reason=revoked.reason)
            await self.coordinator.report(coordinator_pb2.ReportRequest(study_digest=record.digest, withdrawal=said))
        await asyncio.to_thread(self.site.revocations.told, record.digest)

    async def _tell_approval(self, record: StudyRecord) -> None:
        try:
            await asyncio.to_thread(self.site.voting.check_binding, record, self.node.clock().date())
        except Refusal as error:
            if error.code != "APPROVAL_VOID":
                raise
            await asyncio.to_thread(ask_again, self.node, record, error.message)
            return
        signed = self.node.signing_key.sign(record.approval or b"")
        reply = await self.coordinator.report(
            coordinator_pb2.ReportRequest(study_digest=record.digest, approval=signed)
        )
        await asyncio.to_thread(self.site.state.approval_arrived, record.digest, reply.version)

    # ---- linkage

    async def _link(self, record: StudyRecord) -> None:
        context = await self._context(record, "reading")
        await self._progress("linking")
        await self.transfer.run(LINKERS[context.mode].link(context))
        await asyncio.to_thread(self.site.state.told, record.digest, "pseudonyms_complete")

    async def _confirm(self, record: StudyRecord) -> None:
        context = await self._context(record)
        accepted = await LINKERS[context.mode].confirm(context)
        self.data.rows = accepted.rows
        if accepted.rows is not None:
            await self._accept_people(context, accepted.rows, accepted.common_sha256)
        await asyncio.to_thread(self.site.state.confirm, record.digest, accepted.n_common, accepted.common_sha256)
        await self.coordinator.report(accepted.report)
        await asyncio.to_thread(self.site.state.told, record.digest, "alignment_confirmed")

    async def _accept_people(self, context: CentralContext, rows: Rows, common_sha256: bytes) -> None:
        """Compare the common people with those of earlier studies, before anything about them leaves."""
        await self.node.heavily(lambda: context.accept_people(context.holding, rows, common_sha256))

    # ---- release

    async def _randomize(self, record: StudyRecord) -> None:
        context = await self._context(record, "randomizing")
        rows = await self._common_rows(context)
        await context.randomize(context.holding, rows, context.study.units_of(self.node.me))
        self.data.drop()

    async def _common_rows(self, context: CentralContext) -> Rows:
        if self.data.rows is None:
            self.data.rows = await LINKERS[context.mode].rows(context)
            known = context.record.common_sha256
            if context.mode == "dh-psi" and known is not None:  # only now this party knows them
                await self._accept_people(context, self.data.rows, known)
        return self.data.rows

    async def _send(self, record: StudyRecord) -> None:
        """Send one unit that is not receipted yet. One at a time, so that a denial stops the next."""
        site = self.site
        await asyncio.to_thread(agreement, site, record, self.node.clock().date())
        spooled = await asyncio.to_thread(site.state.artifacts, record.digest, record.task.effective_digest)
        there = set(record.task.units_received) | {unit for unit, item in spooled.items() if item.receipt is not None}
        there |= self._on_its_way
        item = next(item for unit, item in spooled.items() if unit not in there)
        if await asyncio.to_thread(site.ledger.sent, record.digest, item.unit, RECIPIENT, item.sha256):
            await self._make_again(record)  # what was sent once is sent again as it was, or not at all
        elif not await asyncio.to_thread(self.node.spool.holds, item.sha256):
            await asyncio.to_thread(site.state.forget_artifact, record.digest, item.unit)
            return  # it is randomized again: the same bytes
        await self._uploaded(len(there), len(spooled), 0)
        await asyncio.to_thread(enter_in_ledger, self.site, record, item, RECIPIENT, self.node.clock())
        sending = send_artifact(
            self.coordinator,
            effective_digest=record.task.effective_digest,
            unit=item.unit,
            path=self.node.spool.path(item.sha256),
            sha256=item.sha256,
            chunk_bytes=site.config.federation.chunk_bytes,
            progress=functools.partial(self._uploaded, len(there), len(spooled)),
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
        spooled = await asyncio.to_thread(self.site.state.artifacts, self.digest, record.task.effective_digest)
        item = spooled.get(unit)
        if item is None or item.receipt is not None:
            return False
        await self._accept_receipt(record, item, receipt)
        return True

    async def _accept_receipt(self, record: StudyRecord, item: Artifact, receipt: common_pb2.Signed) -> None:
        self._check_receipt(receipt, item, record.study_id)
        signed = hashlib.sha256(receipt.body).digest()
        event = unit_event(What.RECEIPT, record, item, recipient=RECIPIENT, peer_event=signed)
        await asyncio.to_thread(self.site.audit.record, event, self.node.clock())
        await asyncio.to_thread(self.site.state.receipted, record.digest, item.unit, receipt.body)

    # ---- publication

    async def _fetch_review(self, record: StudyRecord) -> None:
        await self._make_again(record)
        await review.fetch(self.coordinator, self.site, record)

    async def _make_again(self, record: StudyRecord) -> None:
        """What was sent, where this disk has lost it: the release is compared with it."""
        spooled = await asyncio.to_thread(self.site.state.artifacts, record.digest, record.task.effective_digest)
        if all([await asyncio.to_thread(self.node.spool.holds, item.sha256) for item in spooled.values()]):
            return
        context = await self._context(record)
        rows = await self._common_rows(context)
        await self.node.heavily(
            lambda: refill_spool(
                self.site, self.node.spool, record, effective=context.study, holding=context.holding, rows=rows
            )
        )
        self.data.drop()

    async def _countersign(self, record: StudyRecord) -> None:
        at = self.node.clock()
        await self.node.heavily(lambda: review.countersign(self.site, record, self.node.signing_key, AUTOMATIC, at))

    async def _tell_countersignature(self, record: StudyRecord) -> None:
        found = await asyncio.to_thread(self.site.decisions.review, record.digest)
        if found is not None and found.countersignature is not None:
            body, signature, certificate = found.countersignature
            signed = common_pb2.Signed(body=body, signature=signature, certificate=certificate)
            try:
                await self.coordinator.report(
                    coordinator_pb2.ReportRequest(study_digest=record.digest, countersign=signed)
                )
            except PeerFault as error:
                if error.code not in {"STUDY_MISMATCH", "CERTIFICATE_INVALID"}:
                    raise
                # Another release waits by now, or the certificate it was signed with has ended: people are asked again.
                await asyncio.to_thread(self.site.decisions.forget_countersignature, record.digest)
                raise PeerFault("NOT_READY", error.message) from None
        await asyncio.to_thread(self.site.decisions.countersignature_told, record.digest)

    # ---- reports

    async def _uploaded(self, n_done: int, n_units: int, percent: int) -> None:
        await self._progress("uploading", (100 * n_done + percent) // n_units)

    def _check_receipt(self, receipt: common_pb2.Signed, item: Artifact, study_id: str) -> None:
        where = f"study '{study_id}': the receipt of unit {item.unit}"
        try:
            self.node.verify(receipt, role=Role.MINER)
            body = cast("object", json.loads(receipt.body))
        except (VerticilError, ValueError, RecursionError) as error:
            code = error.code if isinstance(error, VerticilError) else "not JSON"
            raise PeerFault("STUDY_MISMATCH", f"{where} is not one of this federation's miner ({code})") from None
        expected: dict[str, object] = {
            "artifact_sha256": item.sha256.hex(),
            "size": item.size,
            "party": self.node.me,
            "unit": item.unit,
            "effective_digest": item.effective_digest.hex(),
        }
        fields = cast("dict[str, object]", body) if isinstance(body, dict) else {}
        wrong = [name for name, value in expected.items() if fields.get(name) != value]
        if wrong:
            raise PeerFault("STUDY_MISMATCH", f"{where} differs from what was sent in {', '.join(wrong)}")

    # ---- what the steps share

    async def _context(self, record: StudyRecord, stage: str = "") -> CentralContext:
        """The study as it stands, with the data, if they are those that were approved; before that `stage` is reported."""
        agreed = await asyncio.to_thread(agreement, self.site, record, self.node.clock().date())
        if stage:
            await self._progress(stage)
        return CentralContext(
            node=self.node,
            record=record,
            agreed=agreed,
            data=self.data,
            coordinator=self.coordinator,
            holding=await self.data.approved(record, agreed),
            progress=functools.partial(self._progress, "linking"),
        )

    async def _progress(self, stage: str, percent: int = 0) -> None:
        await asyncio.to_thread(self.site.state.show, self.digest, stage, percent, at=self.node.clock())
        progress = coordinator_pb2.Progress(stage=stage, percent=percent)
        await self.coordinator.report(coordinator_pb2.ReportRequest(study_digest=self.digest, progress=progress))

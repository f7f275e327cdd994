"""One study at this party, from approval to receipts: does the steps that `verticil.party.protocol.central.plan` plans.

Promises
- Before every step that sends something the approval is checked again: study, own declaration, policy, expiry, and
  before the first pseudonym and before randomization the data (`verticil.party.policy.approval`).
- A unit's row is in the ledger, and its line in the audit log, on the disk, before its upload begins.
- A transfer is broken off at once when the study is revoked or denied (`Delivery.stop_transfer`).
- What the miner tells is never believed: the common list is recomputed, the effective study compared, the receipt's
  signature and content checked.
- Every step may be broken off and repeated. The people's data are read once for each study and kept (without ids) until
  its last unit is in the spool.

CPU work and the disk's waits happen in worker threads, one study at a time.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Set
from typing import Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from verticil.party.audit.log import Event, What
from verticil.party.backup.ledger_reconciliation import claim_words, unknown_units
from verticil.party.dataset.linkage import check_own_size
from verticil.party.dataset.local_dataset import Holding
from verticil.party.policy import approval
from verticil.party.policy.by_rule import approve_by_rule
from verticil.party.protocol.central import review
from verticil.party.protocol.central.alignment import Linker, Pseudonyms, RowOrder, Rows, Turn
from verticil.party.protocol.central.disclosure import outward, told_objections
from verticil.party.protocol.central.intersection_check import accept_common_people
from verticil.party.protocol.central.node import Node
from verticil.party.protocol.central.plan import Plan, Step, plan
from verticil.party.protocol.central.randomization import (
    Agreed,
    agreement,
    enter_in_ledger,
    fill_spool,
    refill_spool,
    unit_event,
)
from verticil.party.protocol.central.ring import Ring
from verticil.party.protocol.central.task_ingest import AskedAgainError, ask_again, check_same_data
from verticil.party.protocol.central.transfer import Stoppable, StoppedError
from verticil.party.protocol.central.upload import send_artifact
from verticil.party.protocol.psi.blinding_state import Workshop
from verticil.party.site import AUTOMATIC
from verticil.party.storage.studies import Artifact, StudyRecord
from verticil.shared.audit.chain import DAEMON
from verticil.shared.errors import PeerFault, Refusal, VerticilError
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import verify_signed
from verticil.shared.study.states import State, is_final
from verticil.shared.transport.coordinator import AnsweredLater, Coordinator
from verticil.shared.transport.errors_on_wire import to_detail
from verticil.wire.v1 import common_pb2, coordinator_pb2

T = TypeVar("T")

RECIPIENT: Final = "miner"


LINKERS: Final[Mapping[str, Linker]] = {
    "keyed-hash": Pseudonyms(),
    "order-commitment": RowOrder(),
    "dh-psi": Ring(),
}
"""Mode of linkage -> how it is done."""


class Delivery:
    """The work on one study. Steps are done one after the other; `step` says when there is nothing to do.

    Args:
        node: what all studies share.
        digest: SHA-256 of the proposal.
    """

    def __init__(self, node: Node, digest: bytes) -> None:
        self._node = node
        self._site = node.site
        self._digest = digest
        self._holding: Holding | None = None
        self._rows: NDArray[np.int64] | None = None
        self._told: tuple[Coordinator, coordinator_pb2.Progress] | None = None
        self._transfer = Stoppable()
        self._for_people = False  # no rule approves it
        self._on_its_way: set[int] = set()  # units that were taken without a receipt, which comes with the next answer

    def stop_transfer(self) -> None:
        """The study was revoked or denied: break off what is under way to the miner."""
        self._transfer.stop()

    async def step(self, coordinator: Coordinator, *, only: Set[Step] | None = None) -> bool:
        """Do the next step.

        Args:
            coordinator: the connection.
            only: steps that are done; before another one nothing is. None: all.

        Returns:
            Whether something was done; False: it is others' turn.

        Raises:
            VerticilError: the step failed; nothing that it did is lost, nothing that it should not do was done.
        """
        record, found = await asyncio.to_thread(self._plan)
        actions: Mapping[Step, Callable[[Coordinator, StudyRecord], Awaitable[None]]] = {
            Step.CLEAR: self._clear,
            Step.TELL_DENIAL: self._tell_denial,
            Step.TELL_FAILURE: self._tell_failure,
            Step.TELL_REVOCATION: self._tell_revocation,
            Step.APPROVE: self._approve,
            Step.TELL_APPROVAL: self._tell_approval,
            Step.LINK: self._link,
            Step.CONFIRM: self._confirm,
            Step.RANDOMIZE: self._randomize,
            Step.SEND: self._send,
            Step.FETCH_REVIEW: self._fetch_review,
            Step.COUNTERSIGN: self._countersign,
            Step.TELL_COUNTERSIGNATURE: self._tell_countersignature,
        }
        if found.step is Step.REST:
            if is_final(State(record.task.state)):
                await asyncio.to_thread(self._forget)
            else:
                await self._tell_votes(coordinator, record)
            return False
        if only is not None and found.step not in only:
            return False
        try:
            await actions[found.step](coordinator, record)
        except AskedAgainError:
            self._holding, self._rows, self._for_people = None, None, False
        except StoppedError:
            event = Event(what=What.TRANSFER_STOPPED, who=DAEMON, study=record.digest, study_id=record.study_id)
            await asyncio.to_thread(self._site.audit.record, event, self._node.clock())
        return True

    def _plan(self) -> tuple[StudyRecord, Plan]:
        record = self._site.state.study(self._digest)
        study = approval.parsed(record.task.effective or record.task.proposal)
        spooled = self._site.state.artifacts(self._digest, record.task.effective_digest)
        unknown = [name for variables in unknown_units(self._site, record.task) for name in variables]
        found = plan(
            record,
            automatic=self._site.config.policy.approval in {"auto", "rules"} and not self._for_people,
            own_units=frozenset(study.units_of(self._site.config.name)),
            spooled=frozenset(spooled),
            receipted=frozenset(unit for unit, item in spooled.items() if item.receipt is not None) | self._on_its_way,
            review=self._site.minutes.review(self._digest),
            countersigns=self._site.config.policy.approval == "auto",
            unproven=claim_words(unknown) if unknown else "",
        )
        self._site.state.show(self._digest, found.stage, at=self._node.clock())
        return record, found

    # ---- decisions and ends

    async def _tell_votes(self, coordinator: Coordinator, record: StudyRecord) -> None:
        """While the approval is waited for: what the policy says; of several approvers, or of one anew, how many have approved.

        It is told at once, before anybody looks, and again on each connection and when it has changed.
        """
        if record.approval is not None or record.denial_sent is not None or record.failure is not None:
            return
        needed = self._site.people.now().needed
        progress = coordinator_pb2.Progress(stage="approving")
        if needed > 1 or record.task.approved:
            progress.approvers, progress.approvers_needed = record.n_votes, needed
        told = await asyncio.to_thread(told_objections, self._site, record, self._node.clock())
        if told is not None:
            progress.objections.CopyFrom(told)
        elif not progress.approvers_needed:
            return
        if self._told != (coordinator, progress):
            await coordinator.report(coordinator_pb2.ReportRequest(study_digest=record.digest, progress=progress))
            self._told = (coordinator, progress)

    async def _clear(self, coordinator: Coordinator, record: StudyRecord) -> None:
        del coordinator

        def clear() -> None:
            self._forget()
            for sha256 in self._site.state.clear(record.digest):
                self._node.spool.discard(sha256)
            review.drop(self._site, record.digest)

        await asyncio.to_thread(clear)

    async def _tell_denial(self, coordinator: Coordinator, record: StudyRecord) -> None:
        reason = await asyncio.to_thread(self._site.state.denial_reason, record.digest)
        report = coordinator_pb2.ReportRequest(study_digest=record.digest, denial=coordinator_pb2.Denial(reason=reason))
        await coordinator.report(report)
        await asyncio.to_thread(self._site.state.denial_told, record.digest)

    async def _tell_failure(self, coordinator: Coordinator, record: StudyRecord) -> None:
        await asyncio.to_thread(self._forget)
        if record.failure is not None:
            report = coordinator_pb2.ReportRequest(
                study_digest=record.digest, failure=to_detail(outward(record.failure))
            )
            await coordinator.report(report)
        await asyncio.to_thread(self._site.state.failure_told, record.digest)

    async def _tell_revocation(self, coordinator: Coordinator, record: StudyRecord) -> None:
        self._holding = self._rows = None
        revoked = await asyncio.to_thread(self._site.revocations.get, record.digest)
        if revoked is not None:
            said = coordinator_pb2.Withdrawal(reason=revoked.reason)
            await coordinator.report(coordinator_pb2.ReportRequest(study_digest=record.digest, withdrawal=said))
        await asyncio.to_thread(self._site.revocations.told, record.digest)

    async def _approve(self, coordinator: Coordinator, record: StudyRecord) -> None:
        del coordinator  # nothing is told before there is an approval
        if self._site.config.policy.approval == "rules":
            rule = await self._heavily(lambda: approve_by_rule(self._site, record, self._node.clock()))
            self._for_people = rule is None
            return
        holding = await self._held(record)
        await self._heavily(lambda: self._site.approve(record, AUTOMATIC, self._node.clock(), holding=holding))

    async def _tell_approval(self, coordinator: Coordinator, record: StudyRecord) -> None:
        try:
            await asyncio.to_thread(self._site.check_binding, record, self._node.clock().date())
        except Refusal as error:
            if error.code != "APPROVAL_VOID":
                raise
            await asyncio.to_thread(ask_again, self._node, record, error.message)
            return
        signed = self._node.signing_key.sign(record.approval or b"")
        await coordinator.report(coordinator_pb2.ReportRequest(study_digest=record.digest, approval=signed))
        await asyncio.to_thread(self._site.state.told, record.digest, "remote_approved")

    # ---- linkage

    async def _link(self, coordinator: Coordinator, record: StudyRecord) -> None:
        agreed = await asyncio.to_thread(self._agreed, record)
        await self._progress(coordinator, "reading")
        holding = await self._approved_data(record, agreed)
        check_own_size(holding.n_records, agreed.minimum(self._site))
        await self._progress(coordinator, "linking")
        await self._transfer.run(
            LINKERS[agreed.effective.linkage.mode].link(self._turn(coordinator, record, agreed, holding))
        )
        await asyncio.to_thread(self._site.state.told, record.digest, "pseudonyms_complete")

    async def _confirm(self, coordinator: Coordinator, record: StudyRecord) -> None:
        agreed = await asyncio.to_thread(self._agreed, record)
        holding = await self._approved_data(record, agreed)
        turn = self._turn(coordinator, record, agreed, holding)
        accepted = await LINKERS[turn.mode].confirm(turn)
        self._rows = accepted.rows
        if accepted.rows is not None:
            await self._accept_people(turn, accepted.rows, accepted.common_sha256)
        await asyncio.to_thread(self._site.state.confirm, record.digest, accepted.n_common, accepted.common_sha256)
        await coordinator.report(accepted.report)
        await asyncio.to_thread(self._site.state.told, record.digest, "alignment_confirmed")

    async def _accept_people(self, turn: Turn, rows: Rows, common_sha256: bytes) -> None:
        """Compare the common people with those of earlier studies, before anything about them leaves."""
        site, at = self._site, self._node.clock()
        tags = turn.holding.tags[rows]
        await self._heavily(lambda: accept_common_people(site, turn.record, tags, common_sha256=common_sha256, at=at))

    def _turn(self, coordinator: Coordinator, record: StudyRecord, agreed: Agreed, holding: Holding) -> Turn:
        return Turn(
            node=self._node,
            coordinator=coordinator,
            record=record,
            agreed=agreed,
            holding=holding,
            heavily=self._heavily,
            progress=lambda percent: self._progress(coordinator, "linking", percent),
        )

    def _forget(self) -> None:
        """Drop the people's data, and what is on the disk of their linkage: the study has ended here."""
        self._holding = self._rows = None
        Workshop(self._site.config.state_directory, self._digest).drop()

    # ---- release

    async def _randomize(self, coordinator: Coordinator, record: StudyRecord) -> None:
        agreed = await asyncio.to_thread(self._agreed, record)
        await self._progress(coordinator, "randomizing")
        holding = await self._approved_data(record, agreed)
        rows = await self._common_rows(coordinator, record, agreed, holding)
        units = agreed.effective.units_of(self._site.config.name)
        await self._heavily(
            lambda: fill_spool(
                self._site,
                self._node.spool,
                record,
                effective=agreed.effective,
                holding=holding,
                rows=rows,
                units=units,
                at=self._node.clock(),
            )
        )
        self._holding = self._rows = None

    async def _common_rows(
        self, coordinator: Coordinator, record: StudyRecord, agreed: Agreed, holding: Holding
    ) -> Rows:
        if self._rows is None:
            turn = self._turn(coordinator, record, agreed, holding)
            self._rows = await LINKERS[turn.mode].rows(turn)
            if turn.mode == "dh-psi" and record.common_sha256 is not None:  # only now this party knows them
                await self._accept_people(turn, self._rows, record.common_sha256)
        return self._rows

    async def _send(self, coordinator: Coordinator, record: StudyRecord) -> None:
        """Send one unit that is not receipted yet. One at a time, so that a denial stops the next."""
        site = self._site
        await asyncio.to_thread(self._agreed, record)
        spooled = await asyncio.to_thread(site.state.artifacts, record.digest, record.task.effective_digest)
        there = set(record.task.units_received) | {unit for unit, item in spooled.items() if item.receipt is not None}
        there |= self._on_its_way
        item = next(item for unit, item in spooled.items() if unit not in there)
        if await asyncio.to_thread(site.ledger.sent, record.digest, item.unit, RECIPIENT, item.sha256):
            await self._make_again(coordinator, record)  # what was sent once is sent again as it was, or not at all
        elif not await asyncio.to_thread(self._node.spool.holds, item.sha256):
            await asyncio.to_thread(site.state.forget_artifact, record.digest, item.unit)
            return  # it is randomized again: the same bytes
        await self._uploaded(coordinator, len(there), len(spooled), 0)
        await asyncio.to_thread(enter_in_ledger, self._site, record, item, RECIPIENT, self._node.clock())
        sending = send_artifact(
            coordinator,
            effective_digest=record.task.effective_digest,
            unit=item.unit,
            path=self._node.spool.path(item.sha256),
            sha256=item.sha256,
            chunk_bytes=site.config.federation.chunk_bytes,
            progress=functools.partial(self._uploaded, coordinator, len(there), len(spooled)),
        )
        try:
            receipt = await self._transfer.run(sending)
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
        record = await asyncio.to_thread(self._site.state.study, self._digest)
        spooled = await asyncio.to_thread(self._site.state.artifacts, self._digest, record.task.effective_digest)
        item = spooled.get(unit)
        if item is None or item.receipt is not None:
            return False
        await self._accept_receipt(record, item, receipt)
        return True

    async def _accept_receipt(self, record: StudyRecord, item: Artifact, receipt: common_pb2.Signed) -> None:
        self._check_receipt(receipt, item, record.study_id)
        signed = hashlib.sha256(receipt.body).digest()
        event = unit_event(What.RECEIPT, record, item, recipient=RECIPIENT, peer_event=signed)
        await asyncio.to_thread(self._site.audit.record, event, self._node.clock())
        await asyncio.to_thread(self._site.state.receipted, record.digest, item.unit, receipt.body)

    # ---- publication

    async def _fetch_review(self, coordinator: Coordinator, record: StudyRecord) -> None:
        await self._make_again(coordinator, record)
        await review.fetch(coordinator, self._site, record)

    async def _make_again(self, coordinator: Coordinator, record: StudyRecord) -> None:
        """What was sent, where this disk has lost it: the release is compared with it."""
        spooled = await asyncio.to_thread(self._site.state.artifacts, record.digest, record.task.effective_digest)
        if all([await asyncio.to_thread(self._node.spool.holds, item.sha256) for item in spooled.values()]):
            return
        agreed = await asyncio.to_thread(self._agreed, record)
        holding = await self._approved_data(record, agreed)
        rows = await self._common_rows(coordinator, record, agreed, holding)
        await self._heavily(
            lambda: refill_spool(
                self._site, self._node.spool, record, effective=agreed.effective, holding=holding, rows=rows
            )
        )
        self._holding = self._rows = None

    async def _countersign(self, coordinator: Coordinator, record: StudyRecord) -> None:
        del coordinator
        at = self._node.clock()
        await self._heavily(lambda: review.countersign(self._site, record, self._node.signing_key, AUTOMATIC, at))

    async def _tell_countersignature(self, coordinator: Coordinator, record: StudyRecord) -> None:
        found = await asyncio.to_thread(self._site.minutes.review, record.digest)
        if found is not None and found.countersignature is not None:
            body, signature, certificate = found.countersignature
            signed = common_pb2.Signed(body=body, signature=signature, certificate=certificate)
            try:
                await coordinator.report(coordinator_pb2.ReportRequest(study_digest=record.digest, countersign=signed))
            except PeerFault as error:
                if error.code not in {"STUDY_MISMATCH", "CERTIFICATE_INVALID"}:
                    raise
                # Another release waits by now, or the certificate it was signed with has ended: people are asked again.
                await asyncio.to_thread(self._site.minutes.forget_countersignature, record.digest)
                raise PeerFault("NOT_READY", error.message) from None
        await asyncio.to_thread(self._site.minutes.countersignature_told, record.digest)

    # ---- telling

    async def _uploaded(self, coordinator: Coordinator, n_done: int, n_units: int, percent: int) -> None:
        await self._progress(coordinator, "uploading", (100 * n_done + percent) // n_units)

    def _check_receipt(self, receipt: common_pb2.Signed, item: Artifact, study_id: str) -> None:
        where = f"study '{study_id}': the receipt of unit {item.unit}"
        try:
            node = self._node
            verify_signed(receipt, node.authority, role=Role.MINER, at=node.clock(), revoked=node.revocations.since())
            body = cast("object", json.loads(receipt.body))
        except (VerticilError, ValueError, RecursionError) as error:
            code = error.code if isinstance(error, VerticilError) else "not JSON"
            raise PeerFault("STUDY_MISMATCH", f"{where} is not one of this federation's miner ({code})") from None
        expected: dict[str, object] = {
            "artifact_sha256": item.sha256.hex(),
            "size": item.size,
            "party": self._site.config.name,
            "unit": item.unit,
            "effective_digest": item.effective_digest.hex(),
        }
        fields = cast("dict[str, object]", body) if isinstance(body, dict) else {}
        wrong = [name for name, value in expected.items() if fields.get(name) != value]
        if wrong:
            raise PeerFault("STUDY_MISMATCH", f"{where} differs from what was sent in {', '.join(wrong)}")

    # ---- what the steps share

    def _agreed(self, record: StudyRecord) -> Agreed:
        return agreement(self._site, record, self._node.clock().date())

    async def _held(self, record: StudyRecord) -> Holding:
        if self._holding is None:
            self._holding = await self._heavily(lambda: self._site.read(record))
        return self._holding

    async def _approved_data(self, record: StudyRecord, agreed: Agreed) -> Holding:
        """The data, if they are those that were approved; raises as `check_same_data`."""
        holding = await self._held(record)
        await self._heavily(lambda: check_same_data(self._node, record, agreed, holding))
        return holding

    async def _heavily(self, work: Callable[[], T]) -> T:
        async with self._node.heavy:
            return await asyncio.to_thread(work)

    async def _progress(self, coordinator: Coordinator, stage: str, percent: int = 0) -> None:
        await asyncio.to_thread(self._site.state.show, self._digest, stage, percent, at=self._node.clock())
        progress = coordinator_pb2.Progress(stage=stage, percent=percent)
        await coordinator.report(coordinator_pb2.ReportRequest(study_digest=self._digest, progress=progress))

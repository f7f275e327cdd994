"""One study that a miner tells, at this party: what every protocol of such studies has. Agreement, review, ends and their news.

What a protocol adds: its planner (which begins with `verticil.party.protocol.with_miner.plan.common`), its own steps, and what
a release is compared with before this party countersigns it.

What holds for every protocol is said in `verticil.party.protocol.engine` and `verticil.party.protocol.context`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Set
from enum import StrEnum
from typing import ClassVar

from verticil.party.local_dataset import LocalDataset
from verticil.party.policy.approval_checks import AUTOMATIC
from verticil.party.protocol.context import PartyContext, Rows, ask_again
from verticil.party.protocol.engine import Outcome, StudyRun
from verticil.party.protocol.outgoing_errors import redact_error, told_objections
from verticil.party.protocol.randomization import refill_spool
from verticil.party.protocol.retry import TOWARDS_THE_MINER
from verticil.party.protocol.statistics import charge_profiles
from verticil.party.protocol.with_miner import countersigning
from verticil.party.protocol.with_miner.countersigning import ReleaseCheck
from verticil.party.protocol.with_miner.plan import Step
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.federation.transport.errors_on_wire import to_detail
from verticil.shared.federation.transport.interface import Coordinator
from verticil.shared.study.document import Study
from verticil.shared.study.states import State, is_final
from verticil.shared.study.tables import profiled
from verticil.wire.v1 import common_pb2, coordinator_pb2


class CoordinatedStudy(StudyRun):
    """The work on one study that a miner tells.

    Args:
        node: what all studies share.
        digest: SHA-256 of the proposal.

    Attributes:
        coordinator: the connection to the miner; set before each step.
    """

    waited_out: ClassVar[Set[str]] = TOWARDS_THE_MINER
    looks_again = False
    coordinator: Coordinator

    def __init__(self, node: PartyContext, digest: bytes) -> None:
        super().__init__(node, digest)
        self._told: tuple[Coordinator, coordinator_pb2.Progress] | None = None

    @property
    @abstractmethod
    def compare(self) -> ReleaseCheck:
        """What a release is compared with before this party countersigns it."""

    async def act(self, step: StrEnum, record: StudyRecord) -> str | None:
        """See `StudyRun.act`: whatever is waited for, the miner's next task says. A protocol does its own steps before these."""
        actions: Mapping[StrEnum, Callable[[StudyRecord], Awaitable[None]]] = {
            Step.CLEAR: self._clear,
            Step.TELL_DENIAL: self._tell_denial,
            Step.TELL_FAILURE: self._tell_failure,
            Step.TELL_REVOCATION: self._tell_revocation,
            Step.APPROVE: self.approve,
            Step.TELL_APPROVAL: self._tell_approval,
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

    async def take_receipt(self, unit: int, receipt: common_pb2.Signed) -> bool:
        """Take in a receipt that comes by itself, for a unit that was sent before.

        Returns:
            Whether it is one that was waited for; a protocol that sends no unit waits for none.

        Raises:
            PeerFault: STUDY_MISMATCH, it is not of what was sent.
        """
        del unit, receipt
        return False

    # ---- decisions and ends

    async def _tell_votes(self, record: StudyRecord) -> None:
        """While the approval is waited for: what the policy says; of several approvers, or of one anew, how many have approved.

        It is sent at once, before anybody looks, and again on each connection and when it has changed.
        """
        if record.approval is not None or record.denial_sent is not None or record.failure is not None:
            return
        n_needed = self.site.followed.approvers().needed
        progress = coordinator_pb2.Progress(stage="approving")
        if n_needed > 1 or record.task.approved:
            progress.approvers, progress.approvers_needed = record.n_votes, n_needed
        objections = await asyncio.to_thread(told_objections, self.site, record, self.node.clock())
        if objections is not None:
            progress.objections.CopyFrom(objections)
        elif not progress.approvers_needed:
            return
        if self._told != (self.coordinator, progress):
            await self.coordinator.report(coordinator_pb2.ReportRequest(study_digest=record.digest, progress=progress))
            self._told = (self.coordinator, progress)

    async def _clear(self, record: StudyRecord) -> None:

        def clear() -> None:
            self.drop_columns()
            countersigning.drop(self.site, record.digest)

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
                study_digest=record.digest, failure=to_detail(redact_error(record.failure))
            )
            await self.coordinator.report(report)
        await asyncio.to_thread(self.site.state.failure_told, record.digest)

    async def _tell_revocation(self, record: StudyRecord) -> None:
        self.data.drop()
        revocation = await asyncio.to_thread(self.site.revocations.get, record.digest)
        if revocation is not None:
            withdrawal = coordinator_pb2.Withdrawal(reason=revocation.reason)
            await self.coordinator.report(
                coordinator_pb2.ReportRequest(study_digest=record.digest, withdrawal=withdrawal)
            )
        await asyncio.to_thread(self.site.revocations.mark_reported, record.digest)

    async def _tell_approval(self, record: StudyRecord) -> None:
        try:
            approved = await asyncio.to_thread(self.site.voting.check_binding, record, self.node.clock().date())
        except Refusal as error:
            if error.code != "APPROVAL_VOID":
                raise
            await asyncio.to_thread(ask_again, self.node, record, error.message)
            return
        if profiled(approved):
            await asyncio.to_thread(charge_profiles, self.site, record, approved, self.node.clock())
        signed = self.node.signing_key.sign(record.approval or b"")
        reply = await self.coordinator.report(
            coordinator_pb2.ReportRequest(study_digest=record.digest, approval=signed)
        )
        self._told = None  # the miner has dropped it
        await asyncio.to_thread(self.site.state.approval_arrived, record.digest, reply.version)

    # ---- publication

    async def _fetch_review(self, record: StudyRecord) -> None:
        await self.make_again(record)
        await countersigning.fetch(self.coordinator, self.site, record)

    async def make_again(self, record: StudyRecord) -> None:
        """Make again what was randomized, where this disk has lost it: the same draws, or none."""
        artifacts = await asyncio.to_thread(self.site.state.artifacts, record.digest, record.task.effective_digest)
        if all([await asyncio.to_thread(self.node.spool.holds, item.sha256) for item in artifacts.values()]):
            return
        study, holding, rows = await self.common_people(record)
        await self.node.heavily(
            lambda: refill_spool(self.site, self.node.spool, record, effective=study, holding=holding, rows=rows)
        )
        self.data.drop()

    @abstractmethod
    async def common_people(self, record: StudyRecord) -> tuple[Study, LocalDataset, Rows]:
        """Return the effective study, the approved data, and which of its records are the common people."""

    async def _countersign(self, record: StudyRecord) -> None:
        at = self.node.clock()
        await self.node.heavily(
            lambda: countersigning.countersign(
                self.site, record, self.node.signing_key, AUTOMATIC, at, compare=self.compare
            )
        )

    async def _tell_countersignature(self, record: StudyRecord) -> None:
        review = await asyncio.to_thread(self.site.decisions.review, record.digest)
        if review is not None and review.countersignature is not None:
            body, signature, certificate = review.countersignature
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

    async def _progress(self, stage: str, percent: int = 0) -> None:
        await asyncio.to_thread(self.site.state.show, self.digest, stage, percent, at=self.node.clock())
        progress = coordinator_pb2.Progress(stage=stage, percent=percent)
        await self.coordinator.report(coordinator_pb2.ReportRequest(study_digest=self.digest, progress=progress))

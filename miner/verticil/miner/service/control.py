"""The service for analysts, consumers and auditors: submit, look, withdraw, fetch.

A consumer sees published studies only; any other one does not exist for them. Who may call what at all is decided before
(`verticil.shared.federation.transport.authorization`).

What is shown of a study in progress is who has done what, never anything that depends on data but the final common count,
and that only once every party has accepted it.
"""

# A service's methods are called by the names of the wire contract.
# ruff: noqa: N802

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final

from verticil.miner.rules.blocking_parties import APPROVAL, deadline, left_out, reporting_party
from verticil.miner.rules.certificates import Certificates
from verticil.miner.rules.leases import Changes, Leases
from verticil.miner.rules.session import Session, timestamp
from verticil.miner.rules.submission import Submissions
from verticil.miner.service.coordinator import MAX_WAIT_SECONDS, end_of
from verticil.miner.service.transfer import release_parts
from verticil.miner.storage.linkage import linked_parties
from verticil.miner.storage.records import StudyRecord
from verticil.miner.storage.worth import published_worth
from verticil.shared.core.errors import Misuse
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.study.names import choose, fits
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import State, is_final
from verticil.wire.v1 import common_pb2, control_pb2

_TAKING_IN: Final = frozenset({State.ALIGNING, State.PREPARING, State.UPLOADING})
"""The states in which the parties send what the miner stores."""


def _unknown() -> Misuse:
    return Misuse("STUDY_UNKNOWN", "study: no study with this id at this miner", hint="verticil study list shows all")


def _wire_state(state: State) -> common_pb2.StudyState.ValueType:
    return common_pb2.StudyState.ValueType(state.value)


class Control:
    """Answers `verticil.shared.federation.transport.interface.Control`.

    Args:
        session: the rules.
        submissions: takes studies in.
        changes: wakes callers that wait, and is notified of changes.
        leases: who is online, and how far each party is.
        certificates: what parties showed last.
        detail: stage of estimation and search of a study, for people; empty when it does not run.
    """

    def __init__(
        self,
        session: Session,
        submissions: Submissions,
        changes: Changes,
        leases: Leases,
        certificates: Certificates,
        *,
        detail: Callable[[bytes], str] = lambda _digest: "",
    ) -> None:
        self._session = session
        self._submissions = submissions
        self._changes = changes
        self._leases = leases
        self._certificates = certificates
        self._detail = detail

    async def SubmitStudy(
        self, identity: Identity, request: control_pb2.SubmitStudyRequest
    ) -> control_pb2.SubmitStudyReply:
        """Record a proposal. The same bytes again name the same study, in the state in which it is."""

        def submit() -> control_pb2.SubmitStudyReply:
            digest = self._submissions.submit(identity.name, request.proposal)
            state = self._session.state(self._session.record(digest))
            return control_pb2.SubmitStudyReply(study_digest=digest, state=_wire_state(state))

        reply = await asyncio.to_thread(submit)
        self._changes.notify()
        return reply

    async def GetStudy(self, identity: Identity, request: control_pb2.GetStudyRequest) -> control_pb2.GetStudyReply:
        """Return where a study stands; with ``wait_seconds``, once its version is not the known one, or after that time.

        Raises:
            Misuse: STUDY_UNKNOWN, none or several.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + min(request.wait_seconds, MAX_WAIT_SECONDS)

        def look() -> control_pb2.StudySummary:
            digest = request.study_digest or self._find(request.study_id, identity)
            return self._show(self._session.record(digest), identity)

        while True:
            generation = self._changes.generation
            summary = await asyncio.to_thread(look)
            if summary.version != request.known_version or self._changes.closed or loop.time() >= end:
                return control_pb2.GetStudyReply(study=summary)
            await self._changes.wait(generation, end - loop.time())

    async def ListStudies(
        self, identity: Identity, request: control_pb2.ListStudiesRequest
    ) -> control_pb2.ListStudiesReply:
        """Return all studies, oldest first."""

        def look() -> list[control_pb2.StudySummary]:
            records = [self._session.record(digest) for digest in self._session.catalogue.digests()]
            return [self._summary(record) for record in records if self._is_told_of(record, identity)]

        return control_pb2.ListStudiesReply(studies=await asyncio.to_thread(look))

    async def CancelStudy(
        self, identity: Identity, request: control_pb2.CancelStudyRequest
    ) -> control_pb2.CancelStudyReply:
        """Withdraw a study of this analyst's; whatever the miner holds of it is deleted.

        Raises:
            PeerFault: IDENTITY_REFUSED, another analyst's.
        """

        def cancel() -> State:
            self._session.cancel(identity.name, request.study_digest)
            return self._session.state(self._session.record(request.study_digest))

        state = await asyncio.to_thread(cancel)
        self._changes.notify()
        return control_pb2.CancelStudyReply(state=_wire_state(state))

    async def GetRelease(
        self, identity: Identity, request: common_pb2.GetReleaseRequest
    ) -> AsyncGenerator[common_pb2.ReleasePart, None]:
        """Stream a file of a published release."""
        if identity.role is Role.CONSUMER:

            def look() -> None:
                if not self._is_told_of(self._session.record(request.study_digest), identity):
                    raise _unknown()

            await asyncio.to_thread(look)
        async with contextlib.aclosing(release_parts(self._session, request)) as parts:
            async for part in parts:
                yield part

    def _find(self, name: str, identity: Identity) -> bytes:
        """Return the digest of the study that the caller means, of those that they may see."""
        studies = [
            study
            for study in self._session.catalogue.submissions.names()
            if fits(name, study) and self._is_told_of(self._session.record(study.digest), identity)
        ]
        match = choose(name, studies, caller=identity.name if identity.role is Role.ANALYST else "")
        if match is None:
            raise _unknown()
        return match.digest

    def _is_told_of(self, record: StudyRecord, identity: Identity) -> bool:
        return identity.role is not Role.CONSUMER or self._session.state(record) is State.PUBLISHED

    def _show(self, record: StudyRecord, identity: Identity) -> control_pb2.StudySummary:
        if not self._is_told_of(record, identity):
            raise _unknown()
        summary = self._summary(record)
        if self._session.state(record) is State.PUBLISHED:
            worth = published_worth(self._session.store.study(record.digest).release)
            if worth is not None:
                summary.worth.CopyFrom(
                    control_pb2.Worth(
                        two_way=worth.two_way,
                        independent=worth.independent,
                        one_way=worth.one_way,
                        drowned=worth.drowned,
                        weakened=worth.weakened,
                    )
                )
        return summary

    def _wait_for_room(self, state: State) -> str:
        """Return the detail of a study whose parties cannot send because the miner's disk is full; else nothing."""
        is_waiting = state in _TAKING_IN and self._session.store.is_full()
        return "waiting: DISK_FULL (the miner's disk)" if is_waiting else ""

    def _summary(self, record: StudyRecord) -> control_pb2.StudySummary:
        study, state = self._session.proposal(record), self._session.state(record)
        current, missing_of_absent = (
            self._session.current(record),
            {item.party: item.missing for item in left_out(record)},
        )
        linked_names = linked_parties(record, current)
        all_confirmed = record.confirmed.issuperset(current.parties)
        summary = control_pb2.StudySummary(
            study_id=record.study_id,
            study_digest=record.digest,
            submitter=record.submitter,
            version=record.version,
            state=_wire_state(state),
            title=study.title,
            stage_detail="" if is_final(state) else self._detail(record.digest) or self._wait_for_room(state),
            n_common=(record.n_common or 0) if all_confirmed else 0,
            effective_digest=record.effective_digest,
            countersignatures_needed=current.countersignatures_needed,
        )
        if (end := deadline(study, record)) is not None:
            summary.deadline = timestamp(end)
        missing, arrivals = self._session.missing(record), {*self._session.arrivals(record)}
        culprit = reporting_party(study, record.failure) if record.failure is not None else None
        for party in study.parties:
            units = current.units_of(party)
            progress, age = self._leases.progress(record.digest, party), self._leases.age_seconds(party)
            revocation = record.revocations.get(party)
            online, (standing, since) = self._leases.online(party), self._certificates.standing(party)
            if standing == "carried" and online:
                standing, since = "", ""
            status = summary.parties.add(
                party=party,
                online=online and standing not in {"revoked", "expired"},
                standing=standing,
                standing_since=since,
                approved=party in record.approvals,
                pseudonyms_complete=party in linked_names,
                alignment_confirmed=party in record.confirmed,
                units_received=len(arrivals & {party, *units}),
                units_expected=1 if opens_tables(current) else len(units),
                stage=progress.stage,
                percent=progress.percent,
                seen=age is not None,
                lease_age_seconds=int(age or 0),
                waiting_for=missing.get(party, ""),
                approvers=progress.approvers,
                approvers_needed=progress.approvers_needed,
                countersigned=party in record.countersignatures,
                revoked_at=revocation.revoked_at if revocation else "",
                revocation_reason=revocation.reason if revocation else "",
                left_out=missing_of_absent.get(party, ""),
                approval_void="" if party in record.approvals else record.void_approvals.get(party, ""),
            )
            if state is State.AWAITING_APPROVAL and missing.get(party) == APPROVAL and progress.objections is not None:
                items = [common_pb2.ErrorDetail(code=code, message=text) for code, text in progress.objections]
                status.objections.CopyFrom(common_pb2.Objections(items=items))
            if record.failure is not None and party == culprit:
                status.failure.code, status.failure.hint = record.failure.code, record.failure.hint
            elif record.failure is not None and record.failure.code == "DEADLINE_PASSED" and party in missing:
                status.failure.code = record.failure.code
            elif party in missing_of_absent:
                status.failure.code = "PARTY_LEFT_OUT"
            elif party in record.denials or party in record.declined:
                status.failure.code = "STUDY_DENIED"
        detail = end_of(record, state)
        if detail is not None:
            summary.failure.CopyFrom(detail)
        return summary

"""Where the miner's pages have their facts from: the node in this process, or the miner at the other end of a line."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from verticil.miner.airgap.exchange import Exchange
from verticil.miner.service.node import MinerNode
from verticil.miner.storage.audit import MinerAudit
from verticil.miner.storage.records import ReleaseFile, StudyRecord
from verticil.shared.core.errors import Misuse
from verticil.shared.federation.audit import AuditLine
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import require_reviewed
from verticil.shared.study.states import State, require_withdrawn
from verticil.wire.v1 import control_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEvent:
    """Something that happened to a study, and when (ISO 8601, UTC)."""

    at: str
    what: str


class Source(Protocol):
    """What the pages show, and what their reader may do.

    Attributes:
        node: the miner's name.
        reader: whose certificate it is read with; empty: the miner's operator reads.
        may_submit: the reader is an analyst, who submits studies and withdraws their own.
    """

    node: str
    reader: str
    may_submit: bool

    async def version(self) -> object:
        """Return what is equal as long as nothing has changed that a page shows."""
        ...

    async def studies(self) -> Sequence[control_pb2.StudySummary]:
        """Return all studies, oldest first."""
        ...

    async def study(self, digest: bytes) -> control_pb2.StudySummary:
        """Return one study; raises Misuse: STUDY_UNKNOWN."""
        ...

    async def proposal(self, digest: bytes) -> Study | None:
        """Return what a study asks; None: this reader is not told."""
        ...

    async def events(self, digest: bytes) -> Sequence[StudyEvent]:
        """Return what happened to a study, oldest first; nothing: this reader is not told."""
        ...

    async def files(self, digest: bytes) -> Sequence[ReleaseFile]:
        """Return the files of a published release with their digests; nothing: this reader is not told."""
        ...

    async def file(self, digest: bytes, path: str) -> bytes:
        """Return one of them; raises Misuse: FILE_MISSING."""
        ...

    async def log(self) -> Sequence[AuditLine]:
        """Return the lines of the miner's own log, oldest first."""
        ...

    async def end(self, digest: bytes, reason: str) -> None:
        """End a study: the operator closes it, the analyst withdraws their own."""
        ...

    async def submit(self, study: Study) -> bytes:
        """Propose a study to the parties; its digest."""
        ...


class NodeSource:
    """The running miner's own facts, for its operator, in the node's event loop. What blocks runs in a thread.

    Args:
        name: the miner's.
        node: the miner.
        audit: its log.
        exchange: ends studies, as ``verticil miner close`` does.
    """

    reader = ""
    may_submit = False

    def __init__(self, name: str, node: MinerNode, audit: MinerAudit, exchange: Exchange) -> None:
        self.node = name
        self._miner = node
        self._audit = audit
        self._exchange = exchange
        self._identity = node.session.identity  # the miner is told of every study, and owns none

    async def version(self) -> object:
        """Return how often the node has changed, and how far each party says that it is."""
        return self._miner.changes.generation, self._miner.leases.shown()

    async def studies(self) -> Sequence[control_pb2.StudySummary]:
        """Return all studies, oldest first."""
        return list((await self._miner.control.ListStudies(self._identity, control_pb2.ListStudiesRequest())).studies)

    async def study(self, digest: bytes) -> control_pb2.StudySummary:
        """Return one study; raises Misuse: STUDY_UNKNOWN."""
        request = control_pb2.GetStudyRequest(study_digest=digest)
        return (await self._miner.control.GetStudy(self._identity, request)).study

    async def proposal(self, digest: bytes) -> Study | None:
        """Return what a study asks."""
        return await asyncio.to_thread(lambda: self._miner.session.proposal(self._miner.session.record(digest)))

    async def events(self, digest: bytes) -> Sequence[StudyEvent]:
        """Return what happened to a study, oldest first."""
        return events_of(await asyncio.to_thread(self._miner.session.record, digest))

    async def files(self, digest: bytes) -> Sequence[ReleaseFile]:
        """Return the files of a published release with their digests."""
        return await asyncio.to_thread(self._miner.catalogue.release_files, digest)

    async def file(self, digest: bytes, path: str) -> bytes:
        """Return one of them; raises Misuse: FILE_MISSING."""

        def read() -> bytes:
            record = self._miner.session.record(digest)
            found = self._miner.catalogue.release_file(digest, path) if record.published_at else None
            if found is None:
                raise Misuse("FILE_MISSING", f"release of study '{record.study_id}': no such file")
            return (self._miner.store.study(digest).release / found.path).read_bytes()

        return await asyncio.to_thread(read)

    async def log(self) -> Sequence[AuditLine]:
        """Return the lines of the miner's own log, oldest first."""
        return await asyncio.to_thread(lambda: tuple(self._audit.entries()))

    async def end(self, digest: bytes, reason: str) -> None:
        """Close a study; raises as `Exchange.close`."""
        await self._exchange.close(digest.hex(), reason)

    async def submit(self, study: Study) -> bytes:
        """Refuse: a study has an analyst, who proposes it with their certificate."""
        raise Misuse("USAGE", "the miner's operator proposes no study", hint="an analyst does, with their certificate")


class AnalystSource(NodeSource):
    """The running miner's facts for an analyst whose certificate opened its page: what the miner tells them over a line, too.

    Args:
        base: the operator's.
        identity: the analyst's.
    """

    may_submit = True

    def __init__(self, base: NodeSource, identity: Identity) -> None:
        super().__init__(base.node, base._miner, base._audit, base._exchange)
        self.reader = identity.name
        self._identity = identity

    async def proposal(self, digest: bytes) -> Study | None:
        """Return what a study of this analyst's asks; None: another's."""
        record = await asyncio.to_thread(self._miner.session.record, digest)
        return await super().proposal(digest) if record.submitter == self.reader else None

    async def events(self, digest: bytes) -> Sequence[StudyEvent]:
        """Return nothing: the miner tells no analyst when each thing happened."""
        return ()

    async def log(self) -> Sequence[AuditLine]:
        """Return nothing: the log is the operator's."""
        return ()

    async def end(self, digest: bytes, reason: str) -> None:
        """Withdraw a study of this analyst's; raises as `Control.CancelStudy`, and STUDY_OVER."""
        request = control_pb2.CancelStudyRequest(study_digest=digest)
        state = (await self._miner.control.CancelStudy(self._identity, request)).state
        require_withdrawn((await self.study(digest)).study_id, State(state))

    async def submit(self, study: Study) -> bytes:
        """Propose a study to the parties; its digest. Raises as `Control.SubmitStudy`, and UNREVIEWED."""
        require_reviewed(study)
        request = control_pb2.SubmitStudyRequest(proposal=to_bytes(study))
        return (await self._miner.control.SubmitStudy(self._identity, request)).study_digest


def events_of(record: StudyRecord) -> tuple[StudyEvent, ...]:
    """Return what the catalogue knows of when something happened to a study, oldest first."""
    by = f" by {record.submitter}" if record.submitter else ""
    events = [StudyEvent(at=record.submitted_at, what=f"submitted{by}")]
    for party, signed in record.approvals.items():
        approval = parse_approval(signed.body)
        events.append(StudyEvent(at=_stamp(approval.approved_at), what=f"approved by {party} ({approval.approver})"))
    events += [
        StudyEvent(at=item.revoked_at, what=f"revoked by {party}: {item.reason}")
        for party, item in record.revocations.items()
    ]
    if record.closure is not None:
        events.append(StudyEvent(at=record.closure.closed_at, what=f"closed by the operator: {record.closure.reason}"))
    if record.decided_at:
        events.append(
            StudyEvent(at=record.decided_at, what="went on as a sub-model, without parties that were missing")
        )
    if record.published_at:
        events.append(StudyEvent(at=record.published_at, what="published"))
    return tuple(sorted(events, key=lambda event: event.at))


def _stamp(at: dt.datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"

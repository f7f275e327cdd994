"""One study with masked tables at this party (Model III): does the steps that `plan` plans.

Agreement, review, ends and what the miner is told are those of every study that a miner tells
(`verticil.party.protocol.with_miner.study`); the common people are found as between peers
(`verticil.party.protocol.with_peers.alignment`). In between is the round
(`verticil.shared.masked.round`), in which this party's units stay here.

Promises
- Nothing of the round is made before every party has approved, all say the same of the common people, and a sealing key is pinned
  for every contributor.
- A list leaves behind the ledger's row of the linkage, what depends on rows behind its charge of the round, and neither when this
  party's people have stopped the study.
- When the study ends, however, the round ends: everything of it but one line is deleted, before the end is told.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from functools import partial
from typing import Final

from verticil.party.dataset.pseudonyms import PSEUDONYM_BYTES
from verticil.party.local_dataset import LocalDataset
from verticil.party.protocol.context import PartyContext, Rows, agreement
from verticil.party.protocol.masked import rounds
from verticil.party.protocol.masked.exchange import Exchange
from verticil.party.protocol.masked.plan import FROM_PEERS, Step, plan
from verticil.party.protocol.masked.proofs import keep_round_proof
from verticil.party.protocol.masked.review import check_release
from verticil.party.protocol.masked.round_charge import charge_linkage, charge_round
from verticil.party.protocol.masked.rounds import (
    OpenRound,
    Rounds,
    SpooledPeople,
    credentials_of,
    folder_of,
    keyed_order,
)
from verticil.party.protocol.planning import Plan
from verticil.party.protocol.reconciliation.columns import claim_words, unknown_columns
from verticil.party.protocol.retry import between_looks
from verticil.party.protocol.with_miner.countersigning import ReleaseCheck
from verticil.party.protocol.with_miner.plan import Step as Told
from verticil.party.protocol.with_miner.study import CoordinatedStudy
from verticil.party.protocol.with_peers import alignment
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.party.protocol.with_peers.context import PeerContext, PeerStudyContext
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import Misuse
from verticil.shared.masked.round.round import Round
from verticil.shared.masked.round.secrets import random_of
from verticil.shared.study.document import Study
from verticil.shared.study.masked import plan_of
from verticil.wire.v1 import coordinator_pb2

_AGREES: Final = frozenset({Told.APPROVE, Told.TELL_APPROVAL})
"""With these this party binds itself to a round."""


_DRAWS: Final = frozenset({Step.LIST, Step.COMMON, Step.RANDOMIZE, Step.ROUND})
"""What these steps make must not be made anew where a peer may hold what was made before."""


class MaskedStudy(CoordinatedStudy):
    """The work on one study with masked tables.

    Args:
        node: what all studies share.
        digest: SHA-256 of the proposal.
        between: the way to the peers; None: party.toml does not say it, and the study can only be refused.
    """

    def __init__(self, node: PartyContext, digest: bytes, between: PeerContext | None) -> None:
        super().__init__(node, digest)
        self.backoff = between_looks
        self._between = between
        self._folder = folder_of(node.site.config.state_directory, digest)
        self._opened: OpenRound | None = None
        self._percent: tuple[object, int] | None = None

    @property
    def compare(self) -> ReleaseCheck:
        """The function that compares a release; see `CoordinatedStudy.compare`."""
        return check_release

    def plan(self) -> tuple[StudyRecord, Plan]:
        """Return the record and the next step; see `StudyRun.plan`."""
        site, between, me = self.site, self._between, self.node.me
        record = site.state.study(self.digest)
        study = record.task.latest
        items = between.store.items(self.digest) if between is not None else {}
        has_items = between is not None and between.store.holds(self.digest)
        artifacts = site.state.artifacts(self.digest, record.task.effective_digest)
        unknown = unknown_columns(site, record.task)
        has_begun = rounds.is_open(self._folder)
        next_plan = plan(
            record,
            automatic=self.approves_itself,
            has_listed=alignment.is_listed(items, study.parties) or self._is_last(study.parties, study.linkage.mode),
            common=(Kind.COMMON, "") in items and record.n_common is not None,
            own_units=frozenset(study.units_of(me)),
            spooled_units=frozenset(artifacts),
            has_finished=self._opened is not None and self._opened.round.is_finished,
            has_begun=has_begun,
            leftovers=bool(artifacts) or has_items or has_begun,
            review=site.decisions.review(self.digest),
            countersigns=site.config.policy.approval == "auto",
            unproven=claim_words(unknown) if unknown else "",
        )
        self.looks_again = next_plan.step in FROM_PEERS
        return record, next_plan

    def _is_last(self, parties: tuple[str, ...], mode: str) -> bool:
        """Return whether this party has no running list: its list is the common one."""
        return mode == "keyed-hash" and parties[-1] == self.node.me

    async def act(self, step: StrEnum, record: StudyRecord) -> str | None:
        """Do one step; see `StudyRun.act`."""
        if step in _AGREES:
            await asyncio.to_thread(self._check_ready, record)
        if step in _DRAWS and self._between is not None:
            waiting = self._between.unheard(record.task.proposal_study)
            if waiting is not None and self._opened is None:
                return waiting
        match step:
            case Step.LIST | Step.COMMON:
                await self._link_with_peers(record, lists=step is Step.LIST)
            case Step.COMMIT:
                await self._commit(await self._peer_context(record))
            case Step.RANDOMIZE:
                await self._randomize(record)
            case Step.ROUND:
                return await self._go_on(await self._peer_context(record))
            case _:
                return await super().act(step, record)
        return None

    # ---- before the round

    def _check_ready(self, record: StudyRecord) -> None:
        """Refuse a study in which this party could not take part, before it approves; blocks.

        Raises:
            Misuse: CONFIG_INVALID, party.toml has no [peer], or federation.toml lacks a sealing key.
            DataFault: SECRET_MISSING.
        """
        self._require_peers()
        credentials_of(self.node, record.task.proposal_study)

    def _require_peers(self) -> PeerContext:
        if self._between is None:
            raise Misuse(
                "CONFIG_INVALID",
                f"{self.site.config.path.name}: peer: missing, and in a study with masked tables the parties reach each other",
                hint="say in [peer] where this party serves its peers: listen and advertise, or relay = true",
            )
        return self._between

    async def _peer_context(self, record: StudyRecord) -> PeerStudyContext:
        """Return the study as it stands, for what it has in common with those between peers."""
        between = self._require_peers()
        agreed_study = await asyncio.to_thread(agreement, self.site, record, self.node.clock().date())
        return PeerStudyContext(
            node=self.node, record=record, agreed=agreed_study, data=self.data, between=between, known_structure=None
        )

    async def _link_with_peers(self, record: StudyRecord, *, lists: bool) -> None:
        """Make this party's part of the lists, or find the common people, behind the ledger's row of a linkage."""
        context = await self._peer_context(record)
        await context.read_approved()  # of other data, or too few, no list leaves, and nothing is charged
        await asyncio.to_thread(charge_linkage, self.site, record, self.node.clock())
        work = alignment.make_running_list if lists else alignment.take_common_list
        await self.transfer.run(work(context))

    async def _commit(self, context: PeerStudyContext) -> None:
        """Tell the miner how many people are common, and the digest of their order."""
        order = await self.node.heavily(lambda: self._order(context))
        commitment = context.commitment(context.common[0], order)
        await self.coordinator.report(coordinator_pb2.ReportRequest(study_digest=self.digest, commitment=commitment))
        await asyncio.to_thread(self.site.state.mark_acknowledged, self.digest, "pseudonyms_complete")
        await asyncio.to_thread(self.site.state.mark_acknowledged, self.digest, "alignment_confirmed")

    def _order(self, context: PeerStudyContext) -> bytes:
        """Return the digest of the common order, 32 bytes; blocks."""
        if context.mode != "keyed-hash":
            return context.common[1]
        pseudonyms = context.store.read(self.digest, Kind.COMMON)
        assert len(pseudonyms) == PSEUDONYM_BYTES * context.common[0]
        return keyed_order(self.site.linkage_key, self.digest, pseudonyms)

    async def _randomize(self, record: StudyRecord) -> None:
        context = await self._peer_context(record)
        await self._progress("randomizing")
        holding, rows = await context.common_people()
        await context.randomize(holding, rows, context.study.units_of(self.node.me))
        self.data.drop()

    async def common_people(self, record: StudyRecord) -> tuple[Study, LocalDataset, Rows]:
        """Return the common people; see `CoordinatedStudy.common_people`."""
        context = await self._peer_context(record)
        return context.study, *await context.common_people()

    # ---- the round

    async def _go_on(self, context: PeerStudyContext) -> str | None:
        if self._opened is None:
            await self.make_again(context.record)
            rounds = context.between.rounds_of(Rounds)
            self._opened = await self.node.heavily(
                lambda: rounds.open(context.effective_digest, lambda: self._open(context))
            )
        waiting = await self.transfer.run(
            Exchange(context=context, coordinator=self.coordinator, opened=self._opened).go_on()
        )
        await self._tell_progress(self._opened.round)
        return waiting

    def _open(self, context: PeerStudyContext) -> OpenRound:
        """Open this party's part of the round and begin it; blocks."""
        node, record, study = self.node, context.record, context.study
        round_plan = plan_of(study, context.common[0], proposal=self.digest)
        items = self.site.state.artifacts(self.digest, record.task.effective_digest)
        people = SpooledPeople(
            self._order(context),
            node.spool,
            [items[unit] for unit in study.units_of(node.me)],
            study,
            round_plan.n_people,
        )
        new_round = Round(
            self._folder,
            round_plan,
            node.me,
            credentials=credentials_of(node, study),
            people=people,
            charge=lambda t1: charge_round(self.site, record, t1, node.clock()),
            keep=partial(keep_round_proof, context.store, self.digest),
            clock=node.clock,
            random=random_of(
                node.site.config.state_directory,
                record.task.effective_digest,
                trial=node.site.config.policy.approval == "auto",  # accepted under a demonstration's authority only
            ),
        )
        new_round.begin()
        return OpenRound(new_round, self._folder)

    async def _tell_progress(self, of: Round) -> None:
        """Tell the miner how far the round is, when that has changed."""
        now = await asyncio.to_thread(lambda: of.progress)
        percent = (self.coordinator, 100 * now.done // max(now.expected, 1))
        if self._percent != percent:
            progress = coordinator_pb2.Progress(stage="uploading", percent=percent[1])
            await self.coordinator.report(coordinator_pb2.ReportRequest(study_digest=self.digest, progress=progress))
            self._percent = percent

    # ---- ends

    async def _end_round(self, record: StudyRecord) -> None:
        self._opened = None
        at = self.node.clock()
        if self._between is None:
            await asyncio.to_thread(rounds.end, self._folder, at)
        else:
            await asyncio.to_thread(self._between.rounds_of(Rounds).end, record.task.effective_digest, self._folder, at)

    async def _clear(self, record: StudyRecord) -> None:
        await self._end_round(record)
        if self._between is not None:
            await asyncio.to_thread(self._between.store.clear, record.digest)
        await super()._clear(record)

    async def _tell_denial(self, record: StudyRecord) -> None:
        await self._end_round(record)
        await super()._tell_denial(record)

    async def _tell_failure(self, record: StudyRecord) -> None:
        await self._end_round(record)
        await super()._tell_failure(record)

    async def _tell_revocation(self, record: StudyRecord) -> None:
        await self._end_round(record)
        await super()._tell_revocation(record)

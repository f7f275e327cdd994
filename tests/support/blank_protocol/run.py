"""The work of a party on one study of the blank protocol: does the steps that `plan` plans."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import fields
from enum import StrEnum

from support.blank_protocol.plan import BlankFacts, Step, plan
from support.blank_protocol.release import STATEMENT_BYTES, Taken, assemble, read_statement
from support.blank_protocol.rounds import FOLDER, OpenRounds, StudyMessages, content, discard, files_of
from support.blank_protocol.study import NAME, planned_event
from verticil.party.protocol.planning import PeerFailedError, Plan, WaitedForError
from verticil.party.protocol.statistics import EVERYONE
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.party.protocol.with_peers.context import PeerStudyContext
from verticil.party.protocol.with_peers.network import all_of
from verticil.party.protocol.with_peers.plan import Step as Between
from verticil.party.protocol.with_peers.shared_statistics import statistics, store_shared
from verticil.party.protocol.with_peers.study import BetweenStudy
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.transport.interface import Peer
from verticil.wire.v1 import common_pb2, peer_pb2

_MESSAGE_BYTES = 1024


class BlankStudy(BetweenStudy[BlankFacts]):
    """The work on one study of the blank protocol."""

    def read_facts(self, record: StudyRecord) -> BlankFacts:
        """See `BetweenStudy.read_facts`; whatever step comes next, peers may ask for the messages that are here."""
        common, state_directory = self.common_facts(record), self.site.config.state_directory
        rounds = 0
        if common.common and not record.failure and self.node.me in common.statements:
            messages = self._messages()
            self.between.rounds_of(OpenRounds).open(record.task.effective_digest, messages)
            rounds = messages.whole_rounds(common.parties)
        facts = {field.name: getattr(common, field.name) for field in fields(common)}
        has_leftovers = common.leftovers or bool(files_of(state_directory, self.digest))
        return BlankFacts(**{**facts, "leftovers": has_leftovers}, rounds=rounds)

    def next_step(self, facts: BlankFacts) -> Plan:
        """See `BetweenStudy.next_step`."""
        return plan(facts)

    async def carry_on(self, step: StrEnum, context: PeerStudyContext) -> str | None:
        """See `BetweenStudy.carry_on`."""
        match step:
            case Step.CHARGE:
                await self._charge(context)
            case Step.ROUND:
                return await self._exchange(context, self.facts.rounds + 1)
            case Step.COLLECT:
                missing = [name for name in context.others if name not in self.facts.statements]
                return await all_of(_collect(context, name) for name in missing)
            case Between.ASSEMBLE:
                await context.node.heavily(lambda: assemble(context))
            case _:
                raise ValueError(f"no step of the blank protocol: {step}")
        return None

    def drop_columns(self) -> None:
        """See `StudyRun.drop_columns`; the messages go, too."""
        super().drop_columns()
        discard(self.site.config.state_directory, self.digest, self.node.clock())

    def _messages(self) -> StudyMessages:
        return StudyMessages(self.site.config.state_directory / FOLDER / self.digest.hex(), self.node.me)

    async def _charge(self, context: PeerStudyContext) -> None:
        """Sign that this party takes part, and store that together with its rows in the ledger."""
        holding, _ = await context.common_people()
        n_common, common_sha256 = context.common
        (planned,) = planned_event(context.study, context.me)

        def charge() -> None:
            at = context.node.clock().replace(microsecond=0)
            statement = Taken(
                party=context.me, effective_sha256=context.effective_digest, n_common=n_common, signed_at=at
            )
            signed = context.node.signing_key.sign(encode(statement)).SerializeToString(deterministic=True)
            basis = hashlib.sha256(context.effective_digest + common_sha256).digest()
            noise = hashlib.sha256(NAME.encode()).digest()
            releases = statistics(context, holding, planned.event, basis=basis, noise=noise)
            store_shared(context, releases, kind=Kind.STATEMENT, name=context.me, content=signed, recipient=EVERYONE)

        await context.node.heavily(charge)

    async def _exchange(self, context: PeerStudyContext, number: int) -> str | None:
        """Put this party's message of a round in its place, and fetch the others'."""
        messages = self._messages()
        if not messages.path(number, context.me).is_file():
            await asyncio.to_thread(messages.keep, number, context.me, content(number, context.me))
        missing = [name for name in context.others if not messages.path(number, name).is_file()]
        return await all_of(_fetch(context, messages, number, name) for name in missing)


async def _fetch(context: PeerStudyContext, messages: StudyMessages, number: int, name: str) -> None:
    """Get a peer's message of a round, and keep it when it is the one that the protocol has there."""
    request = peer_pb2.ListMaskedRequest(effective_digest=context.effective_digest, have=range(number - 1))
    what, index = f"its message of round {number}", number - 1
    reply = await context.peers.ask(name, lambda peer: peer.list_masked(request), what=what)
    if index not in reply.index:
        raise WaitedForError(f"waiting for '{name}': {what}")

    def call(peer: Peer, offset: int) -> AsyncGenerator[peer_pb2.Part]:
        return peer.get_masked(
            peer_pb2.GetMaskedRequest(effective_digest=context.effective_digest, index=index, offset=offset)
        )

    data = await context.fetch(name, call, limit=_MESSAGE_BYTES, what=what)
    if data != content(number, name):
        raise PeerFailedError(PeerFault("MESSAGE_INVALID", f"party '{name}': {what} is not empty"))
    await asyncio.to_thread(messages.keep, number, name, data)


async def _collect(context: PeerStudyContext, name: str) -> None:
    """Get the statement of a peer, and keep it when it is one of this study."""

    def call(peer: Peer, offset: int) -> AsyncGenerator[peer_pb2.Part]:
        return peer.get_parameters(
            peer_pb2.GetParametersRequest(effective_digest=context.effective_digest, offset=offset)
        )

    body = await context.fetch(name, call, limit=STATEMENT_BYTES, what="its statement")
    try:
        signed = common_pb2.Signed.FromString(body)
        context.node.verify(signed, role=Role.PARTY, name=name)
        read_statement(signed.body, context.study, name)
    except VerticilError as error:
        raise PeerFailedError(context.make_fault(error, name)) from None
    await asyncio.to_thread(context.store.put, context.digest, Kind.STATEMENT, body, name)

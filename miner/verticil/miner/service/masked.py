"""Messages of rounds of masked tables, to and from the parties: files that only their recipient can open (`rules.rounds`).

A party gets what is sealed for it, and sends what the plan says that it sends to the miner, and nothing else. Nothing of a round
is computed here: a whole file is left for `Rounds.advance`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator

from verticil.miner.rules.leases import Changes
from verticil.miner.rules.rounds import OPEN, Arriving, OpenRound, Rounds
from verticil.miner.rules.session import Session
from verticil.miner.service.round_messages import RoundMessages, TakeIn
from verticil.miner.service.transfer import receive
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.transport.chunks import ChunkReader
from verticil.shared.federation.transport.fetch import send_parts
from verticil.shared.masked.round.round import Item
from verticil.shared.study.protocols import opens_tables
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2


class MaskedMessages(RoundMessages):
    """Answers for rounds.

    Args:
        session: the rules.
        rounds: what is open.
        changes: wakes those who wait, and is notified of what arrives.
    """

    def __init__(self, session: Session, rounds: Rounds, changes: Changes) -> None:
        self._session = session
        self._rounds = rounds
        self._changes = changes

    def _find(self, party: str, effective_digest: bytes) -> OpenRound | None:
        """Return the round; None: it has not begun, or every party has said that it has the opened tables. Blocks.

        Raises:
            Misuse: STUDY_UNKNOWN.
            PeerFault: PARTY_UNKNOWN; MESSAGE_INVALID, a study without a round; NOT_READY, too early.
            VerticilError: how the study ended.
        """
        record = self._session.of_effective(effective_digest, party)
        if not opens_tables(self._session.effective(record)):
            raise PeerFault("MESSAGE_INVALID", f"study '{record.study_id}': has no round of masked tables")
        self._session.require(record, *OPEN)
        return self._rounds.find(record.digest)

    async def list(
        self, party: str, request: peer_pb2.ListMaskedRequest, *, most_seconds: int
    ) -> peer_pb2.ListMaskedReply:
        """Tell which messages may leave for the party, but for those that it has; wait for one if there is none."""
        have = set(request.have)
        loop = asyncio.get_running_loop()
        end = loop.time() + min(request.wait_seconds, most_seconds)
        while True:
            generation = self._changes.generation
            open_round = await asyncio.to_thread(self._find, party, request.effective_digest)
            indices = () if open_round is None else await asyncio.to_thread(open_round.round.outgoing, party, have)
            if indices or self._changes.closed or loop.time() >= end:
                return peer_pb2.ListMaskedReply(index=indices)
            await self._changes.wait(generation, end - loop.time())

    async def get(self, party: str, request: peer_pb2.GetMaskedRequest) -> AsyncGenerator[peer_pb2.Part, None]:
        """Give a party a message that is sealed for it.

        Raises:
            PeerFault: NOT_READY, there is none; MESSAGE_INVALID, an offset behind its end.
            VerticilError: how the study ended, also when it ends between two parts.
        """
        name = f"message {request.index} of the round of masked tables"

        def look() -> Item:
            open_round = self._find(party, request.effective_digest)
            if open_round is None or request.index not in open_round.round.outgoing(party):
                raise PeerFault("NOT_READY", f"{name}: is not here for '{party}'", hint="ask which are")
            return open_round.round.sealed(request.index)

        item = await asyncio.to_thread(look)
        parts = send_parts(item.path, offset=request.offset, what=name, sha256=item.sha256)
        async with contextlib.aclosing(parts):
            async for part in parts:
                await asyncio.to_thread(self._find, party, request.effective_digest)
                yield part

    def begin(self, party: str, first: coordinator_pb2.PutMaskedRequest) -> TakeIn | None:
        """Begin a message that a party sends; None: all of it is here. Blocks.

        Raises:
            VerticilError: as `_find` and `Rounds.begin`; NOT_READY, the round has not begun.
        """
        open_round = self._find(party, first.effective_digest)
        if open_round is not None:
            arriving = self._rounds.begin(open_round, party, first.index, size=first.size, sha256=first.sha256)
            return None if arriving is None else functools.partial(self._take_in, arriving, first)
        record = self._session.of_effective(first.effective_digest, party)
        if record.learning is not None:
            return None  # it is deleted: every message has come, and who asks again was not told so
        raise PeerFault("NOT_READY", f"study '{record.study_id}': its round has not begun at the miner yet")

    async def _take_in(
        self, arriving: Arriving, first: coordinator_pb2.PutMaskedRequest, chunks: AsyncIterator[common_pb2.Chunk]
    ) -> coordinator_pb2.PutMaskedReply:
        """Take in (a part of) a message, from the committed offset; leave it for the round when it is whole."""
        reader = ChunkReader(offset=arriving.committed, size=first.size)
        offset = await receive(reader, chunks, arriving.append)
        if complete := offset == first.size:
            await asyncio.to_thread(arriving.complete)
            self._changes.notify()
        return coordinator_pb2.PutMaskedReply(committed_offset=offset, complete=complete)

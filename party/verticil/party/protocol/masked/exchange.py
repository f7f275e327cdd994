"""One look at a round: what can be made is made, what others made for this party is fetched, what is for the miner is sent there.

Between parties nothing is pushed; the miner never dials out, so what is for it is put there. Each message is a sealed file, whose
size is known beforehand from the plan: a longer one is not read to its end.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verticil.party.protocol.masked.rounds import OpenRound
from verticil.party.protocol.planning import PeerFailedError
from verticil.party.protocol.with_miner.upload import send_all
from verticil.party.protocol.with_peers.context import PeerStudyContext
from verticil.party.protocol.with_peers.network import all_of
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.transport.chunks import make_chunks
from verticil.shared.federation.transport.fetch import Call, fetch_file
from verticil.shared.federation.transport.interface import Coordinator, Peer
from verticil.shared.masked.round.round import Round
from verticil.shared.study.protocol import MINER
from verticil.wire.v1 import coordinator_pb2, peer_pb2

_WHAT = "messages of the round"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchange:
    """A look at a round.

    Attributes:
        context: the study, which every party has approved.
        coordinator: the connection to the miner.
        opened: this party's part of the round.
    """

    context: PeerStudyContext
    coordinator: Coordinator
    opened: OpenRound

    async def go_on(self) -> str | None:
        """Do everything that can be done now.

        Returns:
            None when something was done; else who is waited for.

        Raises:
            PeerFailedError: what a node sent is wrong, or it has ended the study: the round ends.
            PeerFault: those of the connection to the miner.
            Refusal: the data, or the approval, are not those that the round began with.
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        open_round = self.opened
        try:
            has_moved = await self.context.node.heavily(lambda: open_round.alone(Round.step))
        except PeerFault as error:
            raise PeerFailedError(error) from None
        # What was made for a slot leaves with it, and so does every question: it would tell when the work was done.
        await asyncio.sleep(await asyncio.to_thread(lambda: open_round.round.held_seconds))
        before = len(open_round.here) + len(open_round.at_miner)
        waiting = await all_of(self._from_peer(name) for name in self.context.others)
        try:
            await self._to_miner()
            await self._from_miner()
        except PeerFault as error:
            if error.code != "NOT_READY":  # the miner is about to begin
                raise
        if has_moved or len(open_round.here) + len(open_round.at_miner) > before:
            return None
        text = await asyncio.to_thread(lambda: f"masked tables: {open_round.round.progress}")
        return f"{text}; {waiting}" if waiting else text

    async def _from_peer(self, name: str) -> None:
        peers = self.context.peers

        async def list_messages(request: peer_pb2.ListMaskedRequest) -> peer_pb2.ListMaskedReply:
            return await peers.ask(name, lambda peer: peer.list_masked(request), what=_WHAT)

        async def fetch(index: int) -> None:
            def call(peer: Peer, offset: int) -> AsyncGenerator[peer_pb2.Part]:
                return peer.get_masked(self._request(index, offset))

            target, limit = self.opened.arriving(index), self.opened.round.limit(index)
            await self.context.fetched_into(target, name, call, limit=limit, what=_WHAT)

        await self._take(name, list_messages, fetch)

    async def _from_miner(self) -> None:
        async def fetch(index: int) -> None:
            call: Call = lambda offset: self.coordinator.get_masked(self._request(index, offset))  # noqa: E731
            target, limit = self.opened.arriving(index), self.opened.round.limit(index)
            await fetch_file(call, target, limit_bytes=limit, what=f"message {index} of the round from the miner")

        await self._take(MINER, self.coordinator.list_masked, fetch)

    async def _take(
        self,
        name: str,
        list_messages: Callable[[peer_pb2.ListMaskedRequest], Awaitable[peer_pb2.ListMaskedReply]],
        fetch: Callable[[int], Awaitable[None]],
    ) -> None:
        """Take in what a node has made for this one, and what can be taken in now."""
        open_round = self.opened
        missing = await asyncio.to_thread(open_round.alone, lambda of: of.missing(name))
        if not missing:
            return
        have = sorted(open_round.here)
        reply = await list_messages(
            peer_pb2.ListMaskedRequest(effective_digest=self.context.effective_digest, have=have)
        )
        for index in sorted(set(reply.index) & set(missing)):
            await fetch(index)
            try:
                await self.context.node.heavily(functools.partial(open_round.receive, index))
            except PeerFault as error:  # whatever is wrong with it, no other one will come in its place
                raise PeerFailedError(self.context.make_fault(error, name)) from None

    async def _to_miner(self) -> None:
        open_round, chunk_bytes = self.opened, self.context.node.site.config.federation.chunk_bytes
        for index in await asyncio.to_thread(open_round.round.outgoing, MINER, frozenset(open_round.at_miner)):
            item = await asyncio.to_thread(open_round.round.sealed, index)
            head = coordinator_pb2.PutMaskedRequest(
                effective_digest=self.context.effective_digest, index=index, size=item.size, sha256=item.sha256
            )

            def stream(
                offset: int, head: coordinator_pb2.PutMaskedRequest = head, path: Path = item.path
            ) -> Iterator[coordinator_pb2.PutMaskedRequest]:
                yield head
                for chunk in make_chunks(path, offset=offset, chunk_bytes=chunk_bytes):
                    yield coordinator_pb2.PutMaskedRequest(chunk=chunk)

            await send_all(
                self.coordinator.put_masked, head, stream, size=item.size, what=f"message {index} of the round"
            )
            open_round.at_miner.add(index)

    def _request(self, index: int, offset: int) -> peer_pb2.GetMaskedRequest:
        return peer_pb2.GetMaskedRequest(effective_digest=self.context.effective_digest, index=index, offset=offset)

"""What peers prove to have had of this party: asked when the daemon starts, and again until each has answered.

Whatever a peer shows of a study is read by the reconciler of that study's protocol. A proof of what the ledger lacks ends the
daemon (LEDGER_OLDER), or is written back with ``--accept-older``. A claim without proof is a line of the log. Peers that are away
are asked again with a growing pause, and one line of the log names them.

With ``--accept-older`` nothing is drawn anew for a study while a peer of it has not answered (`PeerContext.silent`): it may hold
the only proof of what this party had sent.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.node.registry import party_protocol
from verticil.party.protocol.planning import PeerFailedError, WaitedForError
from verticil.party.protocol.reconciliation.forgotten import Forgotten, reconcile
from verticil.party.protocol.reconciliation.reconciler import Verifier
from verticil.party.protocol.retry import TRIED_AGAIN, Backoff, ends_the_daemon
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore
from verticil.party.protocol.with_peers.context import PeerContext
from verticil.shared.core.errors import VerticilError
from verticil.shared.federation.transport.interface import Peer
from verticil.shared.study.canonical import parse_canonical
from verticil.wire.v1 import peer_pb2

LONGEST_PAUSE_SECONDS: Final = 600.0
"""Between two questions to a peer that does not answer."""
_REPLY_BYTES = 3_000_000
_MOST_STUDIES = 10_000

_log = logging.getLogger(__name__)


def held_of(node: PartyContext, store: ArtifactStore, caller: str, after: bytes) -> list[peer_pb2.Held]:
    """Return what this party has, or had, of `caller`, signed; studies in the order of their digests, as many as a reply holds.

    Args:
        node: this party.
        store: what peers sent.
        caller: asks for its own.
        after: the last digest that it received.
    """
    reply: list[peer_pb2.Held] = []
    size = 0
    for record in sorted(node.site.state.studies(), key=lambda record: record.digest):
        proposal = record.task.proposal_study
        if record.digest <= after or caller not in proposal.parties or caller == node.me:
            continue
        holding = party_protocol(proposal).reconciler.for_peer(node, store, record, caller)
        if holding is None:
            continue
        size += holding.ByteSize()
        if reply and size > _REPLY_BYTES:
            break
        reply.append(holding)
    return reply


def others_of(node: PartyContext) -> tuple[str, ...]:
    """Return the parties that may hold something of this one, as federation.toml names them. Blocks."""
    federation = node.site.config.federation
    of_studies = {name for record in node.site.state.studies() for name in record.task.proposal_study.parties}
    return tuple(sorted({*federation.peers, *federation.sealing, *of_studies} - {node.me}))


class PeerReckoning:
    """The question to all peers, what they prove to have had of this party.

    Args:
        between: the way to them.
        accept_older: write back what they prove, in place of refusing to go on.
    """

    def __init__(self, between: PeerContext, *, accept_older: bool) -> None:
        self._between = between
        self._accept_older = accept_older

    async def begin(self) -> None:
        """Name those who have to answer before something is drawn anew; see `PeerContext.silent`."""
        if self._accept_older:
            self._between.silent.update(await asyncio.to_thread(others_of, self._between.node))

    async def run(self) -> None:
        """Ask until all have answered.

        Raises:
            Refusal: LEDGER_OLDER.
            Misuse, DataFault: party.toml or the tables do not say any more where the columns came from; this machine's disk.
        """
        backoff = Backoff(longest_seconds=LONGEST_PAUSE_SECONDS)
        names, is_said = await asyncio.to_thread(others_of, self._between.node), False
        while names:
            names = await self._ask_all(names)
            if names and self._accept_older and not is_said:
                is_said = True
                _log.warning(
                    "waiting until %s say what they have of this party; they are asked again, and until then nothing is drawn"
                    " for studies that they are in",
                    ", ".join(f"'{name}'" for name in names),
                )
            if names:
                await asyncio.sleep(backoff.next_seconds())

    async def _ask_all(self, names: Collection[str]) -> tuple[str, ...]:
        """Ask several peers; returns those that have not answered."""
        replies = await asyncio.gather(*(self._ask(name) for name in names))
        return tuple(name for name, reply in zip(names, replies, strict=True) if not reply)

    async def _ask(self, name: str) -> bool:
        after, is_whole = b"", True
        for _ in range(_MOST_STUDIES):
            request = peer_pb2.GetDeletionRequest(study_digest=after, held=True)
            try:
                reply = await self._between.peers.ask(name, _question(request), what="its receipts of this party")
            except (WaitedForError, PeerFailedError):
                return False
            last = after
            for holding in reply.held:
                is_whole &= await asyncio.to_thread(self._settle, name, holding)
                last = hashlib.sha256(holding.proposal).digest()
            if last <= after:
                break
            after = last
        if is_whole:
            self._between.silent.discard(name)
        return is_whole

    def _settle(self, name: str, holding: peer_pb2.Held) -> bool:
        """Take in what a peer shows of one study; returns whether nothing of it waits for this party's approval. Blocks."""
        node = self._between.node
        verifier = Verifier(site=node.site, authority=node.authority, revoked=node.revocations.since())

        def counts(row: Forgotten) -> bool:
            return not row.needs_approval or node.has_approved(row.study_digest)

        try:
            reconciler = party_protocol(parse_canonical(holding.proposal)).reconciler
            prove = functools.partial(reconciler.from_peer, verifier, name, holding)
            return reconcile(node.site, prove, accept_older=self._accept_older, counts=counts, at=node.clock())
        except VerticilError as error:
            if ends_the_daemon(error):
                raise
            if error.code in TRIED_AGAIN:  # this machine's disk: it is asked again
                _log.warning("what '%s' has of this party cannot be written down: %s", name, error)
                return False
            _log.warning("'%s' claims to have something of this party and does not prove it: %s", name, error)
            return True


def _question(request: peer_pb2.GetDeletionRequest) -> Callable[[Peer], Awaitable[peer_pb2.GetDeletionReply]]:
    return lambda peer: peer.get_deletion(request)

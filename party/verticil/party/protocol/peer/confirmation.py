"""After a revocation here: asks every peer for its signed statement that it deleted what it had (`party.evidence.confirmations`).

A peer answers when the study has ended there and everything is gone; until then, and while it is away, it is asked again. What
one peer says, or does not say, holds up no other, and nothing that a peer says ends this daemon.
"""

from __future__ import annotations

import asyncio

from verticil.party.audit.confirmations import Awaited
from verticil.party.protocol.peer.context import PeerContext
from verticil.party.protocol.planning import PeerFailedError, WaitedForError
from verticil.wire.v1 import peer_pb2


async def collect_confirmations(context: PeerContext) -> bool:
    """Ask everybody who has not confirmed a revocation of this party.

    Returns:
        Whether all have.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    awaited = await asyncio.to_thread(context.node.site.confirmations.awaited)
    asked = [_ask(context, item, name) for item in awaited for name in item.missing]
    confirmed = all(await asyncio.gather(*asked))
    for item in awaited:
        if item.missing and not (await asyncio.to_thread(_now, context, item)).missing:
            await asyncio.to_thread(context.node.site.revocations.told, item.digest)
    return confirmed


async def _ask(context: PeerContext, awaited: Awaited, name: str) -> bool:
    request, node = peer_pb2.GetDeletionRequest(study_digest=awaited.digest), context.node
    try:
        reply = await context.peers.ask(
            name, lambda peer: peer.get_deletion(request), what="the receipt of what it deleted"
        )
    except (WaitedForError, PeerFailedError):
        return False
    return await asyncio.to_thread(
        node.site.confirmations.take,
        awaited,
        name,
        reply.deletion,
        authority=node.authority,
        at=node.clock(),
        revoked=node.revocations.since(),
    )


def _now(context: PeerContext, awaited: Awaited) -> Awaited:
    found = context.node.site.confirmations.of(awaited.digest)
    if found is None:
        raise AssertionError("a revocation is never removed")
    return found

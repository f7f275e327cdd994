"""After a revocation here: every peer is asked for its signed statement that it deleted what it had.

A peer answers when the study has ended there and everything is gone; until then, and while it is away, it is asked again. What
one peer says, or does not say, holds up no other, and nothing that a peer says ends this daemon.
"""

from __future__ import annotations

import asyncio

from verticil.party.policy.revocation import Awaited
from verticil.party.protocol.planning import PeerFailedError, WaitedForError
from verticil.party.protocol.with_peers.context import PeerContext
from verticil.wire.v1 import peer_pb2


async def collect_confirmations(context: PeerContext) -> bool:
    """Ask everybody who has not confirmed a revocation of this party.

    Returns:
        Whether all have.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    deletions = await asyncio.to_thread(context.node.site.revocations.list_awaited)
    requests = [_ask_confirmation(context, item, name) for item in deletions for name in item.missing]
    have_all = all(await asyncio.gather(*requests))
    remaining_digests = {
        item.digest for item in await asyncio.to_thread(context.node.site.revocations.list_awaited) if item.missing
    }
    for item in deletions:
        if item.missing and item.digest not in remaining_digests and not item.has_miner:
            await asyncio.to_thread(context.node.site.revocations.mark_reported, item.digest)
    return have_all


async def _ask_confirmation(context: PeerContext, deletion: Awaited, name: str) -> bool:
    request, node = peer_pb2.GetDeletionRequest(study_digest=deletion.digest), context.node
    try:
        reply = await context.peers.ask(
            name, lambda peer: peer.get_deletion(request), what="the receipt of what it deleted"
        )
    except (WaitedForError, PeerFailedError):
        return False
    return await asyncio.to_thread(
        node.site.revocations.take_confirmation,
        deletion,
        name,
        reply.deletion,
        authority=node.authority,
        at=node.clock(),
        deny_list=node.revocations.since(),
    )

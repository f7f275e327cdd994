"""The common people: the running list passes along the parties in the study's order, and the last one's is common to all."""

from __future__ import annotations

import asyncio

from verticil.party.control.holdings import Holding
from verticil.party.exchange.common_people import accept_common_people
from verticil.party.peer import lists
from verticil.party.peer.shelf import Kind
from verticil.party.peer.steps.turn import Data, Turn, Work
from verticil.party.records.linkage import PSEUDONYM_BYTES
from verticil.shared.errors import PeerFault
from verticil.shared.transport.parts import fetch_bytes
from verticil.wire.v1 import peer_pb2

__all__ = ["make_running_list", "take_common_list"]

_LARGEST_LIST = 2**31
"""Bytes of a list: 134 million people. Also of the common list, which cannot be longer than ours: a peer is told which limit it
broke, and a limit of our own size would tell how many people we have."""


async def make_running_list(work: Work, data: Data, turn: Turn) -> None:
    """Store what this party has in common with those before it, for its successor.

    Raises:
        WaitedForError: the predecessor's list is not there yet.
        PeerFailedError: it never will be.
        PeerFault: ALIGNMENT_MISMATCH.
        Refusal: APPROVAL_VOID, LINKAGE_TOO_SMALL.
    """
    holding = await data.approved(turn)
    running = await _running(work, turn, holding)
    await asyncio.to_thread(work.shelf.put, turn.digest, Kind.RUNNING, running)


async def take_common_list(work: Work, data: Data, turn: Turn) -> None:
    """Get the common list, check it, and store it for good.

    Raises:
        WaitedForError: it is not there yet.
        PeerFailedError: it never will be.
        PeerFault: ALIGNMENT_MISMATCH, it contradicts this party's lists, or is another one than was accepted before.
        Refusal: APPROVAL_VOID, LINKAGE_TOO_SMALL.
    """
    holding = await data.approved(turn)
    site, shelf, teller = work.node.site, work.shelf, turn.study.parties[-1]
    if teller == work.me:
        common, passed_on = await _running(work, turn, holding), None
    else:
        passed_on = await asyncio.to_thread(shelf.read, turn.digest, Kind.RUNNING)
        common = await _pull(work, turn, teller, peer_pb2.PSEUDONYM_LIST_COMMON)

    def accept() -> None:
        rows = lists.accepted_rows(
            holding.pseudonyms,
            holding.order,
            common,
            teller=teller,
            running=passed_on,
            minimum=turn.agreed.minimum(site),
        )
        sha256 = lists.sha256_of(common)
        if turn.record.common_sha256 not in {None, sha256}:
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"study '{turn.record.study_id}': '{teller}' tells another common list than the one that was accepted",
                hint="nothing is computed for a second list",
            )
        accept_common_people(site, turn.record, holding.tags[rows], common_sha256=sha256, at=work.node.clock())
        shelf.put(turn.digest, Kind.COMMON, common)
        site.state.confirm(turn.digest, len(common) // PSEUDONYM_BYTES, sha256)

    await work.heavily(accept)


async def _running(work: Work, turn: Turn, holding: Holding) -> bytes:
    """This party's list, as far as all parties before it have it, too."""
    minimum = turn.agreed.minimum(work.node.site)
    position = turn.study.parties.index(work.me)
    if position == 0:
        lists.check_size(holding.n_records, minimum)
        return holding.pseudonyms.tobytes()
    before = turn.study.parties[position - 1]
    told = await _pull(work, turn, before, peer_pb2.PSEUDONYM_LIST_RUNNING)
    return await work.heavily(lambda: lists.in_common(holding.pseudonyms, told, teller=before, minimum=minimum))


async def _pull(work: Work, turn: Turn, name: str, which: peer_pb2.PseudonymList.ValueType) -> bytes:
    what = "the common list" if which == peer_pb2.PSEUDONYM_LIST_COMMON else "the list of pseudonyms"
    return await work.peers.ask(
        name,
        lambda peer: fetch_bytes(
            lambda offset: peer.get_pseudonyms(
                peer_pb2.GetPseudonymsRequest(effective_digest=turn.effective_digest, list=which, offset=offset)
            ),
            limit_bytes=_LARGEST_LIST,
            what=what,
        ),
        what=what,
    )

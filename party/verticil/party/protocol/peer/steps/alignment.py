"""The common people: the running list passes along the parties in the study's order, and the last one's is common to all.

With linkage ``order-commitment`` no list passes: every party gives its signed commitment to the order of its rows to all
others, and each compares them all by itself.
"""

from __future__ import annotations

import asyncio

from google.protobuf.message import DecodeError

from verticil.party.dataset.linkage import PSEUDONYM_BYTES, check_common_size, check_own_size
from verticil.party.dataset.local_dataset import Holding
from verticil.party.protocol.central.alignment import row_order
from verticil.party.protocol.central.intersection_check import accept_common_people
from verticil.party.protocol.peer import lists
from verticil.party.protocol.peer.artifact_store import Kind
from verticil.party.protocol.peer.steps.turn import Data, Turn, Work
from verticil.shared.alignment.merkle import Tree, common_tree
from verticil.shared.alignment.statements import check_statement, common_body
from verticil.shared.errors import PeerFault
from verticil.shared.transport.parts import fetch_bytes
from verticil.wire.v1 import common_pb2, peer_pb2

_WHAT = {
    peer_pb2.PSEUDONYM_LIST_RUNNING: "the list of pseudonyms",
    peer_pb2.PSEUDONYM_LIST_COMMON: "the common list",
    peer_pb2.PSEUDONYM_LIST_COMMITMENT: "the order of its rows",
}
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
    if turn.study.linkage.mode == "order-commitment":
        check_own_size(holding.n_records, turn.agreed.minimum(work.node.site))
        commitment = row_order(work.node, turn.digest, holding.row_order).SerializeToString(deterministic=True)
        await asyncio.to_thread(work.shelf.put, turn.digest, Kind.COMMITMENT, commitment)
        return
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
    if turn.study.linkage.mode == "order-commitment":
        await _compare_orders(work, turn, holding)
        return
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


async def _compare_orders(work: Work, turn: Turn, holding: Holding) -> None:
    """Get every peer's commitment, and accept when all are this party's own."""
    peers = [name for name in turn.study.parties if name != work.me]
    told = [await _pull(work, turn, name, peer_pb2.PSEUDONYM_LIST_COMMITMENT) for name in peers]

    def accept() -> None:
        site, root = work.node.site, holding.row_order.root
        trees = {name: _tree(work, turn, name, data) for name, data in zip(peers, told, strict=True)}
        trees[work.me] = holding.row_order
        common = common_tree(turn.record.study_id, {name: trees[name] for name in turn.study.parties})
        check_common_size(common.n_records, turn.agreed.minimum(site))
        if turn.record.common_sha256 not in {None, root}:
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"study '{turn.record.study_id}': the rows are in another order than the one that was accepted",
                hint="nothing is computed for a second order",
            )
        accept_common_people(site, turn.record, holding.tags, common_sha256=root, at=work.node.clock())
        work.shelf.put(turn.digest, Kind.COMMON, root)
        site.state.confirm(turn.digest, common.n_records, root)

    await work.heavily(accept)


def _tree(work: Work, turn: Turn, name: str, data: bytes) -> Tree:
    """What a peer committed to, and signed."""
    what = f"row order of party '{name}'"
    try:
        commitment = common_pb2.Commitment.FromString(data)
        tree = Tree(n_records=commitment.n_records, nodes=tuple(commitment.nodes))
    except (DecodeError, ValueError) as error:
        problem = "not a commitment" if isinstance(error, DecodeError) else str(error)
        raise PeerFault("MESSAGE_INVALID", f"{what}: {problem}") from None
    body = common_body(
        mode="order-commitment", study=turn.digest, party=name, n_common=tree.n_records, common_sha256=tree.root
    )
    node = work.node
    check_statement(
        commitment.statement,
        body,
        authority=node.authority,
        party=name,
        at=node.clock(),
        what=what,
        revoked=node.revocations.since(),
    )
    return tree


async def _running(work: Work, turn: Turn, holding: Holding) -> bytes:
    """This party's list, as far as all parties before it have it, too."""
    minimum = turn.agreed.minimum(work.node.site)
    position = turn.study.parties.index(work.me)
    if position == 0:
        check_own_size(holding.n_records, minimum)
        return holding.pseudonyms.tobytes()
    before = turn.study.parties[position - 1]
    told = await _pull(work, turn, before, peer_pb2.PSEUDONYM_LIST_RUNNING)
    return await work.heavily(lambda: lists.in_common(holding.pseudonyms, told, teller=before, minimum=minimum))


async def _pull(work: Work, turn: Turn, name: str, which: peer_pb2.PseudonymList.ValueType) -> bytes:
    what = _WHAT[which]
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

"""The common people: the running list passes along the parties in the study's order, and the last one's is common to all.

With linkage ``order-commitment`` no list passes: every party gives its signed commitment to the order of its rows to all
others, and each compares them all by itself. With ``dh-psi`` blinded lists go round (`verticil.party.protocol.with_peers.ring`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Sequence

from google.protobuf.message import DecodeError

from verticil.party.dataset.pseudonyms import PSEUDONYM_BYTES, check_common_size
from verticil.party.local_dataset import LocalDataset
from verticil.party.protocol.with_peers import pseudonym_lists as lists
from verticil.party.protocol.with_peers import ring
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.party.protocol.with_peers.context import PeerStudyContext
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.alignment.merkle import Tree, common_tree
from verticil.wire.v1 import common_pb2, peer_pb2

_WHAT = {
    peer_pb2.PSEUDONYM_LIST_RUNNING: "the list of pseudonyms",
    peer_pb2.PSEUDONYM_LIST_COMMON: "the common list",
    peer_pb2.PSEUDONYM_LIST_COMMITMENT: "the order of its rows",
}
_LARGEST_LIST = 2**31
"""Bytes of a list: 134 million people. Also of the common list, which cannot be longer than ours: a peer reads which limit it
broke, and a limit of our own size would tell how many people we have."""


def is_listed(items: Collection[tuple[Kind, str]], parties: Sequence[str]) -> bool:
    """Return whether this party has made what the others wait for: `make_running_list` has nothing left to do.

    Args:
        items: of the study, in the artifact store.
        parties: of the study.
    """
    names_by_kind = {kind: {name for which, name in items if which is kind} for kind in Kind}
    own_lists = names_by_kind[Kind.RUNNING] or names_by_kind[Kind.COMMITMENT]
    return bool(own_lists) or len(names_by_kind[Kind.BLINDED] & names_by_kind[Kind.STEPS]) == len(parties)


async def make_running_list(context: PeerStudyContext) -> None:
    """Store what this party has in common with those before it, for its successor; with ``dh-psi`` see `ring.blind_lists`.

    Raises:
        WaitedForError: the predecessor's list is not there yet.
        PeerFailedError: it never will be.
        PeerFault: ALIGNMENT_MISMATCH.
        Refusal: APPROVAL_VOID, LINKAGE_TOO_SMALL.
    """
    if context.mode == "dh-psi":
        await ring.blind_lists(context)
        return
    holding = await context.read_approved()
    if context.mode == "order-commitment":
        await asyncio.to_thread(context.store.put, context.digest, Kind.COMMITMENT, context.row_order(holding))
        return
    running = await _running(context, holding)
    await asyncio.to_thread(context.store.put, context.digest, Kind.RUNNING, running)


async def take_common_list(context: PeerStudyContext) -> None:
    """Get the common list, check it, and store it for good; with ``dh-psi`` see `ring.find_common_people`.

    Raises:
        WaitedForError: it is not there yet.
        PeerFailedError: it never will be.
        PeerFault: ALIGNMENT_MISMATCH, it contradicts this party's lists, or is another one than was accepted before.
        Refusal: APPROVAL_VOID, LINKAGE_TOO_SMALL.
    """
    if context.mode == "dh-psi":
        await ring.find_common_people(context)
        return
    holding = await context.read_approved()
    if context.mode == "order-commitment":
        await _compare_orders(context, holding)
        return
    store, teller = context.store, context.study.parties[-1]
    if teller == context.me:
        common, passed_on = await _running(context, holding), None
    else:
        passed_on = await asyncio.to_thread(store.read, context.digest, Kind.RUNNING)
        common = await _pull(context, teller, peer_pb2.PSEUDONYM_LIST_COMMON)

    def accept() -> None:
        rows = lists.accepted_rows(
            holding.pseudonyms,
            common,
            teller=teller,
            running=passed_on,
            minimum=context.minimum,
        )
        sha256 = hashlib.sha256(common).digest()  # what names a list on the wire
        problem = f"'{teller}' sends another common list than the one that was accepted"
        context.require_same_common(sha256, problem, hint="nothing is computed for a second list")
        context.accept_people(holding, rows, sha256)
        store.put(context.digest, Kind.COMMON, common)
        context.node.site.state.confirm(context.digest, len(common) // PSEUDONYM_BYTES, sha256)

    await context.node.heavily(accept)


async def _compare_orders(context: PeerStudyContext, holding: LocalDataset) -> None:
    """Get every peer's commitment, and accept when all are this party's own."""
    commitments = [await _pull(context, name, peer_pb2.PSEUDONYM_LIST_COMMITMENT) for name in context.others]

    def accept() -> None:
        root = holding.row_order.root
        trees = {name: _tree(context, name, data) for name, data in zip(context.others, commitments, strict=True)}
        trees[context.me] = holding.row_order
        common = common_tree(context.record.study_id, {name: trees[name] for name in context.study.parties})
        check_common_size(common.n_records, context.minimum)
        problem = "the rows are in another order than the one that was accepted"
        context.require_same_common(root, problem, hint="nothing is computed for a second order")
        context.accept_people(holding, holding.everyone, root)
        context.store.put(context.digest, Kind.COMMON, root)
        context.node.site.state.confirm(context.digest, common.n_records, root)

    await context.node.heavily(accept)


def _tree(context: PeerStudyContext, name: str, data: bytes) -> Tree:
    """Return the tree that a peer committed to, and signed."""
    what = f"row order of party '{name}'"
    try:
        commitment = common_pb2.Commitment.FromString(data)
        tree = Tree(n_records=commitment.n_records, nodes=tuple(commitment.nodes))
    except (DecodeError, ValueError) as error:
        problem = "not a commitment" if isinstance(error, DecodeError) else str(error)
        raise PeerFault("MESSAGE_INVALID", f"{what}: {problem}") from None
    body = context.common_statement(name, tree.n_records, tree.root)
    context.node.check_statement(commitment.statement, body, party=name, what=what)
    return tree


async def _running(context: PeerStudyContext, holding: LocalDataset) -> bytes:
    """Return this party's list, reduced to the pseudonyms that all parties before it have, too."""
    minimum = context.minimum
    position = context.study.parties.index(context.me)
    if position == 0:
        return holding.pseudonyms.tobytes()
    before = context.study.parties[position - 1]
    list_before = await _pull(context, before, peer_pb2.PSEUDONYM_LIST_RUNNING)
    return await context.node.heavily(
        lambda: lists.in_common(holding.pseudonyms, list_before, teller=before, minimum=minimum)
    )


async def _pull(context: PeerStudyContext, name: str, which: peer_pb2.PseudonymList.ValueType) -> bytes:
    return await context.fetch(name, context.call_for_list(which), limit=_LARGEST_LIST, what=_WHAT[which])

"""What a party has of a peer, signed for the peer to charge: the way back for a ledger that comes from an old backup (Model I).

Between peers no party keeps account for another. But each knows by digest what it was given, also after the study has ended; it
signs that when the owner asks. ``verticil party run --accept-older`` asks all peers before anything else, and later again those
who did not answer; one of an earlier version of the program signs nothing.

A statement counts with the approval that this party itself had signed for the study, which the peer shows with it: a peer that
lies can make a party charge what it had approved to send, once, and nothing else.

After a revocation here: asks every peer for its signed statement that it deleted what it had
(`verticil.party.policy.revocation`).

A peer answers when the study has ended there and everything is gone; until then, and while it is away, it is asked again. What
one peer says, or does not say, holds up no other, and nothing that a peer says ends this daemon.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection

from verticil.party.dataset.releases import Release
from verticil.party.local_dataset import origins, release_of
from verticil.party.policy import approval
from verticil.party.policy.ledger_recovery import NO_DATA
from verticil.party.policy.revocation import Awaited
from verticil.party.protocol.context import Node
from verticil.party.protocol.ledger_reconciliation import mend
from verticil.party.protocol.peer.artifact_store import ArtifactStore, Item, Kind
from verticil.party.protocol.peer.context import PeerContext
from verticil.party.protocol.peer.network import Peers
from verticil.party.protocol.planning import PeerFailedError, WaitedForError
from verticil.party.protocol.statistics import EVERYONE, statistics_of_each
from verticil.shared.errors import PeerFault, VerticilError
from verticil.shared.formats.deletion import Deleted, PeerHolding, parse_peer_holding
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import verify_signed
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import NOTHING, Cost
from verticil.shared.privacy.events import planned
from verticil.shared.record import encode
from verticil.shared.study.approval import check_approval, parse_approval
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of
from verticil.shared.transport.interface import Peer
from verticil.wire.v1 import common_pb2, peer_pb2

_REPLY_BYTES = 3_000_000
_MOST_STUDIES = 10_000

_log = logging.getLogger(__name__)


def held_of(node: Node, store: ArtifactStore, caller: str, after: bytes) -> list[peer_pb2.Held]:
    """What this party has, or had, of `caller`, signed; studies in the order of their digests, as many as a reply holds.

    Args:
        node: this party.
        store: what peers sent.
        caller: asks for its own.
        after: the last digest that it received.
    """
    found: list[peer_pb2.Held] = []
    size = 0
    for record in sorted(node.site.state.studies(), key=lambda record: record.digest):
        proposal = approval.parsed(record.task.proposal)
        if record.digest <= after or protocol_of(proposal).coordinated or caller not in proposal.parties:
            continue
        known = {**store.dropped(record.digest), **store.items(record.digest)}
        units = {int(name): item for (kind, name), item in known.items() if kind is Kind.COLUMN}
        parameters = known.get((Kind.STATEMENT, caller))
        said = PeerHolding(
            study_digest=record.digest,
            party=caller,
            columns={unit: _named(item) for unit, item in units.items() if proposal.units[unit].owner == caller},
            parameters=None if parameters is None else _named(parameters),
            peer=node.site.config.name,
        )
        if not said.columns and said.parameters is None:
            continue
        held = peer_pb2.Held(
            statement=node.signing_key.sign(encode(said)),
            proposal=record.task.proposal,
            approval=common_pb2.Signed.FromString(store.approval(record.digest, caller)),
        )
        size += held.ByteSize()
        if found and size > _REPLY_BYTES:
            break
        found.append(held)
    return found


def _named(item: Item) -> Deleted:
    return Deleted(sha256=item.sha256, size=item.size)


async def charge_held(node: Node, peers: Peers, names: Collection[str]) -> tuple[str, ...]:
    """Charge what peers sign that they have of this party, and the ledger does not know.

    Returns:
        Those of `names` that have not answered.

    Raises:
        Misuse, DataFault: party.toml or the tables do not say any more where the columns came from; this machine's disk.
    """

    async def ask(name: str) -> bool:
        after = b""
        for _ in range(_MOST_STUDIES):
            request = peer_pb2.GetDeletionRequest(study_digest=after, held=True)
            try:
                reply = await peers.ask(name, _deleted(request), what="what it has of this party")
            except (WaitedForError, PeerFailedError) as error:
                _log.warning(
                    "'%s' does not say what it has of this party, and nothing of that is charged: %s", name, error
                )
                return False
            last = after
            for held in reply.held:
                await asyncio.to_thread(_charge, node, name, held)
                last = hashlib.sha256(held.proposal).digest()
            if last <= after:
                break
            after = last
        return True

    answered = await asyncio.gather(*(ask(name) for name in names))
    return tuple(name for name, heard in zip(names, answered, strict=True) if not heard)


def _deleted(request: peer_pb2.GetDeletionRequest) -> Callable[[Peer], Awaitable[peer_pb2.GetDeletionReply]]:
    return lambda peer: peer.get_deletion(request)


def _charge(node: Node, peer: str, held: peer_pb2.Held) -> None:
    site = node.site
    try:
        said, study = _checked(node, peer, held)
    except VerticilError as error:
        _log.warning("'%s' claims to have something of this party and does not prove it: %s", peer, error)
        return
    places = origins(site.config, study)
    with site.database.transaction():
        for unit, item in sorted(said.columns.items()):
            if unit in study.units_of(site.config.name) and not site.ledger.sent(
                said.study_digest, unit, peer, item.sha256
            ):
                release = release_of(study, unit, places=places, fingerprint=NO_DATA, site_secret=site.site_secret)
                sent = release.variables in site.ledger.columns_sent(said.study_digest)
                charged = NOTHING if sent else cost_of(release.event)
                _mend(node, study, said, release, unit=unit, item=item, charged=charged)
        for shared in [item.event for item in planned(study, site.config.name) if item.unit is None]:
            if said.parameters is not None and not site.ledger.has_statistics(said.study_digest, shared):
                # From what else they were computed nobody here remembers.
                releases = statistics_of_each(site, study, shared, basis=b"", noise=b"", fingerprint=NO_DATA)
                for release in releases:
                    _mend(node, study, said, release, unit=None, item=said.parameters, charged=cost_of(shared))


def _checked(node: Node, peer: str, held: peer_pb2.Held) -> tuple[PeerHolding, Study]:
    """The statement, and the study as this party had approved it.

    Raises:
        VerticilError: it is not the peer's, or not of a study that this party approved.
    """
    me = node.site.config.name
    node.verify(held.statement, role=Role.PARTY, name=peer)
    said, given = parse_peer_holding(held.statement.body), parse_approval(held.approval.body)
    # Whenever it was signed: a renewed certificate may be younger than the decision, and an older one has ended by now.
    verify_signed(held.approval, node.authority, role=Role.PARTY, name=me)
    proposal = approval.parsed(held.proposal)
    if (said.party, said.peer, said.study_digest) != (me, peer, hashlib.sha256(held.proposal).digest()):
        raise PeerFault("STUDY_MISMATCH", "statement of what is held: of another study, party or peer")
    check_approval(given, proposal, me)
    return said, proposal.with_declaration(given.declarations())


def _mend(
    node: Node, study: Study, said: PeerHolding, release: Release, *, unit: int | None, item: Deleted, charged: Cost
) -> None:
    mend(
        node.site,
        release,
        unit=unit,
        charged=charged,
        detail=f"as '{said.peer}' signed",
        study_digest=said.study_digest,
        study_id=study.id,
        recipient=EVERYONE if unit is None else said.peer,
        artifact_sha256=item.sha256,
        size=item.size,
        at=node.clock(),
    )


async def collect_confirmations(context: PeerContext) -> bool:
    """Ask everybody who has not confirmed a revocation of this party.

    Returns:
        Whether all have.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    awaited = await asyncio.to_thread(context.node.site.revocations.awaited)
    asked = [_confirmed(context, item, name) for item in awaited for name in item.missing]
    confirmed = all(await asyncio.gather(*asked))
    left = {item.digest for item in await asyncio.to_thread(context.node.site.revocations.awaited) if item.missing}
    for item in awaited:
        if item.missing and item.digest not in left and not item.has_miner:
            await asyncio.to_thread(context.node.site.revocations.told, item.digest)
    return confirmed


async def _confirmed(context: PeerContext, awaited: Awaited, name: str) -> bool:
    request, node = peer_pb2.GetDeletionRequest(study_digest=awaited.digest), context.node
    try:
        reply = await context.peers.ask(name, _deleted(request), what="the receipt of what it deleted")
    except (WaitedForError, PeerFailedError):
        return False
    return await asyncio.to_thread(
        node.site.revocations.take_confirmation,
        awaited,
        name,
        reply.deletion,
        authority=node.authority,
        at=node.clock(),
        revoked=node.revocations.since(),
    )

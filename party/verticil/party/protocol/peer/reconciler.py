"""What a party has of a peer, signed for the peer to charge: the way back for a ledger that comes from an old backup (Model I).

Between peers no party keeps account for another. But each knows by digest what it was given, also after the study has ended; it
signs that when the owner asks.

A statement counts with the approval that this party itself had signed for the study, which the peer shows with it: a peer that
lies can make a party charge what it had approved to send, once, and nothing else. The parameters prove all that is shared: its
noise is charged once for the study, whatever part left first. Scores alone are not proved: where a study ended between a
party's scores and its parameters, only the site's own audit log and backups know of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.local_dataset import column_draw_of, origins
from verticil.party.policy.ledger_recovery import NO_DATA
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.reconciliation.forgotten import Forgotten, MissingRow
from verticil.party.protocol.reconciliation.reconciler import Reconciler, Verifier
from verticil.party.protocol.statistics import EVERYONE, statistics_of_each
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore, Item, Kind
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import PeerFault
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import NOTHING, Cost
from verticil.shared.privacy.events import plan_events
from verticil.shared.release.formats.deletion import Deleted, PeerHolding, parse_peer_holding
from verticil.shared.study.approval import check_approval, parse_approval
from verticil.shared.study.canonical import parse_canonical
from verticil.shared.study.document import Study
from verticil.wire.v1 import common_pb2, peer_pb2

_SHARED = (
    "a peer's signed statement that it has this party's parameters, beside this party's approval; of scores without parameters"
    " nobody else has proof"
)
_EVIDENCE = {
    "randomized-column": "a peer's signed statement that it has the column, by SHA-256, beside this party's approval",
    "discrete-gaussian-counts": _SHARED,
    "exact-statistics": _SHARED,
}


def _for_peer(node: PartyContext, store: ArtifactStore, record: StudyRecord, caller: str) -> peer_pb2.Held | None:
    """Sign what this party has, or had, of `caller` in a study; None: nothing."""
    proposal = record.task.proposal_study
    items = {**store.list_dropped(record.digest), **store.items(record.digest)}
    units = {int(name): item for (kind, name), item in items.items() if kind is Kind.COLUMN}
    parameters = items.get((Kind.STATEMENT, caller))
    holding = PeerHolding(
        study_digest=record.digest,
        party=caller,
        columns={unit: _name_deletion(item) for unit, item in units.items() if proposal.units[unit].owner == caller},
        parameters=None if parameters is None else _name_deletion(parameters),
        peer=node.me,
    )
    if not holding.columns and holding.parameters is None:
        return None
    return peer_pb2.Held(
        statement=node.signing_key.sign(encode(holding)),
        proposal=record.task.proposal,
        approval=common_pb2.Signed.FromString(store.approval(record.digest, caller)),
    )


def _name_deletion(item: Item) -> Deleted:
    return Deleted(sha256=item.sha256, size=item.size)


def _from_peer(verifier: Verifier, peer: str, statement: peer_pb2.Held) -> Sequence[Forgotten]:
    site = verifier.site
    holding, study = _check_holding(verifier, peer, statement)
    columns = [
        (unit, item)
        for unit, item in sorted(holding.columns.items())
        if unit in study.units_of(site.config.name)
        and not site.ledger.has_sent(holding.study_digest, unit, peer, item.sha256)
    ]
    statistics = [item.event for item in plan_events(study, site.config.name) if item.unit is None]
    shared = [
        event
        for event in statistics
        if holding.parameters is not None and not site.ledger.has_statistics(holding.study_digest, event)
    ]
    if not columns and not shared:
        return ()

    def column_rows() -> Iterable[MissingRow]:
        places, sent_columns = origins(site.config, study), set(site.ledger.columns_sent(holding.study_digest))
        for unit, item in columns:
            column_draw = column_draw_of(study, unit, places=places, fingerprint=NO_DATA, site_secret=site.site_secret)
            charge = NOTHING if column_draw.variables in sent_columns else cost_of(column_draw.event)
            sent_columns.add(column_draw.variables)
            yield _row(column_draw, charge, item, unit=unit, recipient=peer)

    def shared_rows() -> Iterable[MissingRow]:
        for event in shared:
            assert holding.parameters is not None
            # From what else they were computed nobody here remembers.
            for column_draw in statistics_of_each(site, study, event, basis=b"", noise=b"", fingerprint=NO_DATA):
                yield _row(column_draw, cost_of(event), holding.parameters, unit=None, recipient=EVERYONE)

    names = [name for unit, _ in columns for name in study.units[unit].variables]
    words = [f"columns of this party ({', '.join(names)})"] if names else []
    return (
        Forgotten(
            study_digest=holding.study_digest,
            study_id=study.id,
            holder=f"'{peer}'",
            what=" and ".join([*words, *(["parameters of this party"] if shared else [])]),
            rows=lambda: [*column_rows(), *shared_rows()],
        ),
    )


def _row(column_draw: ColumnDraw, charge: Cost, item: Deleted, *, unit: int | None, recipient: str) -> MissingRow:
    return MissingRow(
        column_draw=column_draw,
        charged=charge,
        recipient=recipient,
        unit=unit,
        artifact_sha256=item.sha256,
        size=item.size,
    )


def _check_holding(verifier: Verifier, peer: str, holding_message: peer_pb2.Held) -> tuple[PeerHolding, Study]:
    """Return the statement, and the study as this party had approved it.

    Raises:
        VerticilError: it is not the peer's, or not of a study that this party approved.
    """
    verify_signed(holding_message.statement, verifier.authority, role=Role.PARTY, name=peer)
    holding, approval = (
        parse_peer_holding(holding_message.statement.body),
        parse_approval(holding_message.approval.body),
    )
    # Whenever it was signed: a renewed certificate may be younger than the decision, and an older one has ended by now.
    verify_signed(holding_message.approval, verifier.authority, role=Role.PARTY, name=verifier.me)
    proposal = parse_canonical(holding_message.proposal)
    digest = hashlib.sha256(holding_message.proposal).digest()
    if (holding.party, holding.peer, holding.study_digest) != (verifier.me, peer, digest):
        raise PeerFault("STUDY_MISMATCH", "statement of what is held: of another study, party or peer")
    check_approval(approval, proposal, verifier.me)
    return holding, approval.declared_in(proposal)


RECONCILER = Reconciler(evidence=_EVIDENCE, from_peer=_from_peer, for_peer=_for_peer)

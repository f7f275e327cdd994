"""What the miner and peers show of a study with masked tables: that people were linked, and that a round was charged (Model III).

Each of them keeps two short signatures of this party (`verticil.shared.masked.round.proof`), also after the study has ended. Only
this party can have made them, and they bind the proposal, the round's plan (and with it the effective study and the number of
people) and the transcript T1. So whoever shows them can make this party charge what it took part in, once, and nothing else.

- A hello, or this party's signed statement of the common people, proves the linkage: its row was written before either left. A
  peer that has found the common people signs so; that is its word, and counts where this party's approval is known.
- A message that leaves behind the charge proves the round of its T1: all rows are written back that `charge_round` writes.
- A hello of which this state has no round ends the study here: no second round begins under that approval.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.masked.proofs import round_proof
from verticil.party.protocol.masked.round_charge import PARTIES, linkage_draws, rows_of_round
from verticil.party.protocol.masked.rounds import folder_of
from verticil.party.protocol.reconciliation.columns import columns_from_miner
from verticil.party.protocol.reconciliation.forgotten import Forgotten, MissingRow
from verticil.party.protocol.reconciliation.reconciler import Reconciler, Verifier
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.federation.alignment.statements import parse_common
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.masked.round.proof import SignedMessage, read_signed_message, rounds_charged
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import NOTHING, Cost
from verticil.shared.privacy.masked import ROUND_EVENTS
from verticil.shared.release.formats.deletion import PeerHolding, parse_peer_holding
from verticil.shared.study.canonical import parse_canonical
from verticil.shared.study.document import Study
from verticil.shared.study.masked import plan_of
from verticil.shared.study.tables import profiled
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

_EVIDENCE = {
    **dict.fromkeys(
        ("masked-tables", "masked-layers"),
        "this party's signature under a message that left behind the charge of the round: at the miner and peers",
    ),
    "randomized-column": "the same: columns of a masked study are charged with the round",
    "linkage": "this party's signed hello, at the miner and each peer; its signed statement of the common people, at the miner; a"
    " peer's signed word that it has found them, beside this party's approval",
}


def messages_of_own(
    verifier: Verifier, signed: Iterable[common_pb2.Signed], *, proposal: bytes, effective: Study, n_common: int
) -> tuple[SignedMessage, ...]:
    """Return what this party signed of the round of just this study; what is not its own, or of another plan, is left out."""
    try:
        plan = plan_of(effective, n_common, proposal=proposal).digest
    except (VerticilError, ValueError):
        return ()
    own: list[SignedMessage] = []
    for item in signed:
        try:
            message = read_signed_message(item.body)
        except PeerFault:
            continue
        fits = (message.study, message.plan, message.sender) == (proposal, plan, verifier.me)
        if fits and verifier.is_own(item):
            own.append(message)
    return tuple(own)


def _from_miner(verifier: Verifier, task: coordinator_pb2.StudyTask) -> Sequence[Forgotten]:
    columns = columns_from_miner(verifier, task)
    if not task.HasField("commitment") or not verifier.is_own(task.commitment):
        return columns
    try:
        statement = parse_common(task.commitment.body)
    except PeerFault:
        return columns
    if (statement.study, statement.party) != (task.study_digest, verifier.me):
        return columns
    effective = parse_canonical(task.effective or task.proposal)
    messages = messages_of_own(
        verifier,
        task.round_messages,
        proposal=task.study_digest,
        effective=effective,
        n_common=statement.n_common,
    )
    rows = _find_unrecorded(verifier.site, task.study_digest, effective, messages, holder="the miner")
    return (*columns, *rows)


def _from_peer(verifier: Verifier, peer: str, statement: peer_pb2.Held) -> Sequence[Forgotten]:
    verify_signed(statement.statement, verifier.authority, role=Role.PARTY, name=peer)
    holding, digest = parse_peer_holding(statement.statement.body), hashlib.sha256(statement.proposal).digest()
    if (holding.party, holding.peer, holding.study_digest) != (verifier.me, peer, digest):
        raise PeerFault("STUDY_MISMATCH", "statement of what is held: of another study, party or peer")
    proposal, effective = parse_canonical(statement.proposal), parse_canonical(statement.effective)
    if verifier.me not in proposal.parties:
        raise PeerFault("STUDY_MISMATCH", "statement of what is held: of a study that this party is not in")
    messages = messages_of_own(
        verifier, statement.messages, proposal=digest, effective=effective, n_common=statement.n_common
    )
    if messages:
        return _find_unrecorded(verifier.site, digest, effective, messages, holder=f"'{peer}'")
    if not holding.linked:
        return ()
    # Of the proposal: which effective study it was is the peer's word alone.
    linkage_row = _linkage(verifier.site, digest, proposal, holder=f"'{peer}'")
    return () if linkage_row is None else (replace(linkage_row, needs_approval=True),)


def _find_unrecorded(
    site: Site, digest: bytes, study: Study, messages: Sequence[SignedMessage], *, holder: str
) -> Sequence[Forgotten]:
    """Compare what is proved with the ledger, and with the rounds that are on this disk."""
    rows = [linkage] if (linkage := _linkage(site, digest, study, holder=holder)) is not None else []
    recorded_rounds = site.ledger.rounds(digest, *ROUND_EVENTS)
    for t1 in rounds_charged(messages):
        if t1 not in recorded_rounds:
            rows.append(
                Forgotten(
                    study_digest=digest,
                    study_id=study.id,
                    holder=holder,
                    what="a message that this party signed in a round of masked tables",
                    rows=partial(_round_rows, site, study, digest, t1),
                )
            )
    if messages and not folder_of(site.config.state_directory, digest).exists():
        what = "a message of a round that this party signed"
        rows.append(
            Forgotten(study_digest=digest, study_id=study.id, holder=holder, what=what, rows=None, ends_study=True)
        )
    return rows


def _linkage(site: Site, digest: bytes, study: Study, *, holder: str) -> Forgotten | None:
    if site.ledger.is_linked(digest):
        return None

    def rows() -> Sequence[MissingRow]:
        return [
            MissingRow(column_draw=column_draw, charged=NOTHING, recipient=PARTIES)
            for column_draw in linkage_draws(site, study, digest)
        ]

    return Forgotten(
        study_digest=digest, study_id=study.id, holder=holder, what="a linkage of this party's people", rows=rows
    )


def _round_rows(site: Site, study: Study, digest: bytes, t1: bytes) -> Sequence[MissingRow]:
    return [
        MissingRow(
            column_draw=row.column_draw,
            charged=_charge_of(site, study, row.column_draw),
            recipient=row.recipient,
            unit=row.unit,
            artifact_sha256=t1,
            is_of_round=True,
        )
        for row in rows_of_round(site, study, digest, t1)
    ]


def _charge_of(site: Site, study: Study, column_draw: ColumnDraw) -> Cost:
    """Return what a row of a round was charged: nothing of tables with measured bins that were charged with the approval."""
    return NOTHING if profiled(study) and site.ledger.holds(column_draw) else cost_of(column_draw.event)


def _for_peer(node: PartyContext, store: ArtifactStore, record: StudyRecord, caller: str) -> peer_pb2.Held | None:
    """Show a peer its own signatures of a study, with the study and the number of people that they bind; None: there are none."""
    messages = round_proof(store, record.digest, caller)
    if not messages and record.n_common is None:
        return None
    holding = PeerHolding(
        study_digest=record.digest, party=caller, columns={}, parameters=None, peer=node.me, linked=True
    )
    return peer_pb2.Held(
        statement=node.signing_key.sign(encode(holding)),
        proposal=record.task.proposal,
        effective=record.task.effective or record.task.proposal,
        n_common=record.n_common or 0,
        messages=messages,
    )


RECONCILER = Reconciler(evidence=_EVIDENCE, from_miner=_from_miner, from_peer=_from_peer, for_peer=_for_peer)

"""Statistics of its own data that a party shares with all others: charged, written down and stored in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from verticil.party.audit.log import What
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.local_dataset import LocalDataset
from verticil.party.policy.ledger_rows import Send, line_of, make_audit_fields
from verticil.party.protocol.statistics import statistics_of_each
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.party.protocol.with_peers.context import PeerStudyContext
from verticil.shared.privacy.events import PrivacyEvent


def data_fingerprint(holding: LocalDataset) -> bytes:
    """Return the fingerprint of all own units: other values get other noise."""
    return hashlib.sha256(b"".join(value for _, value in sorted(holding.fingerprints.items()))).digest()


def statistics(
    context: PeerStudyContext, holding: LocalDataset, event: PrivacyEvent, *, basis: bytes, noise: bytes
) -> list[ColumnDraw]:
    """Return the entries of the ledger for sharing statistics: one for each data set that they come from.

    Args:
        context: the study.
        holding: the own data.
        event: what is drawn.
        basis: SHA-256 of what they are computed from besides the own data.
        noise: SHA-256 of what names the noise.
    """
    fingerprint = data_fingerprint(holding)
    return statistics_of_each(
        context.node.site, context.study, event, basis=basis, noise=noise, fingerprint=fingerprint
    )


def store_shared(
    context: PeerStudyContext,
    column_draws: Sequence[ColumnDraw],
    *,
    kind: Kind,
    name: str,
    content: bytes,
    recipient: str,
    along_with: bytes | None = None,
) -> None:
    """Put what is shared in the artifact store together with its rows in the ledger and the audit log: all or none.

    Args:
        context: the study.
        column_draws: what is drawn of each data set, see `statistics`; none: nothing of a table is in it.
        kind, name: of the item in the artifact store.
        content: the item.
        recipient: who gets it.
        along_with: see `Ledger.record_shared`.

    Raises:
        Refusal: APPROVAL_VOID, EPSILON_INFINITE, BUDGET_EXCEEDED.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    site = context.node.site
    with site.database.transaction():
        for column_draw in column_draws:
            send: Send = {
                "study_digest": context.digest,
                "study_id": context.record.study_id,
                "recipient": recipient,
                "artifact_sha256": hashlib.sha256(content).digest(),
                "size": len(content),
                "at": context.node.clock(),
            }
            charge = site.ledger.record_shared(column_draw, policy=site.config.policy, along_with=along_with, **send)
            row = make_audit_fields(column_draw, unit=None, charge=charge)
            shared = line_of(What.SHARED, column_draw, charge, row, detail=str(kind), **send)
            site.audit.record(shared, send["at"])
        context.store.put(context.digest, kind, content, name)

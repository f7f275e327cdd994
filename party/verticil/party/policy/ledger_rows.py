"""What a row of the privacy ledger says: for people, for who writes one, and in the line of the audit log that tells of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypedDict, Unpack, cast

from verticil.party.audit.log import Event, What
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.shared.core.errors import DataFault, Refusal, printable
from verticil.shared.federation.audit import DAEMON
from verticil.shared.privacy import events
from verticil.shared.privacy.accounts import NOTHING, Cost
from verticil.shared.privacy.events import PrivacyEvent

PARTS: Final = ("codebook_digest", "transition_digest", "secret_id", "fingerprint")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One row, for people: an attempted send, of which there may have been more (`Ledger.attempts`).

    Attributes:
        unit: index in the study; None: of no single unit, or of which is not known.
        drawn: the event, as text.
        epsilon, delta: what the accountant said then that it costs.
        charged, charged_delta: nothing when the same values had been charged before.
    """

    number: int
    at: str
    study_digest: str
    study_id: str
    unit: int | None
    variables: tuple[str, ...]
    dataset: str
    drawn: str
    epsilon: float
    delta: float
    charged: float
    charged_delta: float
    recipient: str
    artifact_sha256: str
    size: int

    @property
    def event(self) -> PrivacyEvent:
        """What was drawn.

        Raises:
            Refusal: POLICY_REFUSED, the kind of event is not known here.
            DataFault: STATE_CORRUPT, it is no event.
        """
        try:
            return events.from_json(self.drawn)
        except ValueError as error:
            hint = "restore your backup of the state directory"
            raise DataFault("STATE_CORRUPT", f"row {self.number} of the ledger: {error}", hint=hint) from None

    @property
    def kind(self) -> str:
        """The name of the kind of event, be it known here or not; raises DataFault as `event`."""
        try:
            return events.kind_of(self.event).name
        except Refusal:
            return str(json.loads(self.drawn)["kind"])

    @property
    def words(self) -> str:
        """The event in one sentence; of a kind that is not known here, what it cost when it was charged. Raises as `kind`."""
        try:
            return events.words(self.event)
        except Refusal:
            return (
                f"an event of the kind '{printable(self.kind)}', which no installed package knows: epsilon {self.epsilon:.4g}, "
                f"delta {self.delta:.4g}, as it was charged"
            )


class Send(TypedDict):
    """What a row says of the send itself: of which study (digest, and id for people), to whom, which bytes, when."""

    study_digest: bytes
    study_id: str
    recipient: str
    artifact_sha256: bytes
    size: int
    at: datetime


def line_of(
    what: What,
    column_draw: ColumnDraw,
    charge: Cost,
    ledger: Mapping[str, object],
    *,
    detail: str,
    **send: Unpack[Send],
) -> Event:
    """Return the line of the audit log that describes a ledger row.

    Args:
        what: of which kind.
        column_draw, charge: the row's.
        ledger: what it says besides (`make_audit_fields`).
        detail: see `Event`.
        send: the row's.
    """
    return Event(
        what=what,
        who=DAEMON,
        study=send["study_digest"],
        study_id=send["study_id"],
        columns=column_draw.variables,
        epsilon=column_draw.epsilon,
        charged=charge.epsilon,
        size=send["size"] or None,
        sha256=send["artifact_sha256"],
        recipient=send["recipient"],
        ledger=ledger,
        detail=detail,
    )


def make_audit_fields(
    column_draw: ColumnDraw, *, unit: int | None, version_tag: bytes = b"", charge: Cost = NOTHING
) -> dict[str, object]:
    """Return the fields of the audit log's line from which the ledger row can be read back.

    Digests and local names only; guessing the data from the fingerprint needs the site secret.
    """
    digests = {name: cast("bytes", getattr(column_draw, name)).hex() for name in PARTS}
    fields = {"unit": unit, "dataset": column_draw.dataset, "sources": list(column_draw.sources)}
    ledger_fields: dict[str, object] = {"event": events.document(column_draw.event)}
    if column_draw.source_fingerprint:
        ledger_fields["source_fingerprint"] = column_draw.source_fingerprint.hex()
    if charge.delta:
        ledger_fields["charged_delta"] = charge.delta
    return {**fields, **digests, "version_tag": version_tag.hex(), **ledger_fields}

"""What somebody proves that this party had sent and its ledger does not know: the daemon refuses, or the rows are written back.

A state directory that comes from an old backup, or from a virtual machine that was set back, has forgotten what was sent since.
The lifetime sum would be too small, and more would leave than the limits allow. But every row is in the ledger before the first
byte leaves, so a proof without a row means just this. The daemon then refuses to go on (LEDGER_OLDER, exit 3).

``verticil party run --accept-older`` writes the rows, charged in full, with lines of the audit log, in one transaction, and goes
on. Of what data they were nobody here remembers: the same columns, sent again, count as those of changed data. What is proved a
second time is in the ledger by then and changes nothing, however often a site is set back.

The clock of this machine decides nothing here: a row is missing or not, whenever it says that it was written.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from verticil.party.audit.log import Event, What
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.policy.ledger_recovery import OLDER_HINT, ROUND
from verticil.party.policy.ledger_rows import Send, line_of, make_audit_fields
from verticil.party.site import Site
from verticil.shared.core.errors import Refusal
from verticil.shared.federation.audit import DAEMON
from verticil.shared.privacy.accounts import Cost
from verticil.shared.study.states import State, is_final

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRow:
    """One row that the ledger had.

    Attributes:
        column_draw: without the fingerprint of data.
        charged: what it cost.
        recipient: as in the ledger.
        unit: index in the study; None: of no single unit.
        artifact_sha256: of the bytes, or T1 of a round; empty: nobody shows them.
        size: bytes; 0: nobody shows them.
        is_of_round: `artifact_sha256` is the transcript T1 of a round.
    """

    column_draw: ColumnDraw
    charged: Cost
    recipient: str
    unit: int | None = None
    artifact_sha256: bytes = b""
    size: int = 0
    is_of_round: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What one node proves of one study.

    Attributes:
        study_digest, study_id: of the proposal.
        holder: who proves it: ``the miner``, ``'south'``.
        what: what it proves, after "has" or "shows": ``columns of this party (age)``.
        rows: makes those that the ledger lacks; None: it lacks none. It raises Misuse or DataFault where party.toml or the tables
            do not say any more where the columns came from.
        ends_study: the study cannot go on here, because a round of it began that this state does not have.
        needs_approval: the proof is the holder's word alone: it counts only where this party's own approval is known.
    """

    study_digest: bytes
    study_id: str
    holder: str
    what: str
    rows: Callable[[], Sequence[MissingRow]] | None
    ends_study: bool = False
    needs_approval: bool = False


def reconcile(
    site: Site,
    prove: Callable[[], Sequence[Forgotten]],
    *,
    accept_older: bool,
    counts: Callable[[Forgotten], bool] = lambda _: True,
    at: dt.datetime,
) -> bool:
    """Compare what one node proves with the ledger, and `settle` it. Blocks.

    Both are one transaction: several nodes prove the same at once, and it is charged once.

    Args:
        site: this party.
        prove: reads the proof, and compares it with the ledger as it stands.
        accept_older: write the rows back in place of refusing.
        counts: whether something that is proved counts now.
        at: now.

    Returns:
        Whether all of it counted.

    Raises:
        VerticilError: as `prove` and `settle`; nothing was written.
    """
    with site.database.transaction():
        rows = prove()
        counted_rows = [row for row in rows if counts(row)]
        for row in counted_rows:
            settle(site, row, accept_older=accept_older, at=at)
    return len(counted_rows) == len(rows)


def settle(site: Site, missing_row: Forgotten, *, accept_older: bool, at: dt.datetime) -> None:
    """Refuse to go on with a ledger that lacks rows, or write them back; end a study whose round is not here. Blocks.

    Args:
        site: this party.
        missing_row: what is proved.
        accept_older: write the rows back in place of refusing.
        at: now.

    Raises:
        Refusal: LEDGER_OLDER.
        Misuse, DataFault: with `accept_older`, see `Forgotten.rows`; DISK_FULL, STATE_CORRUPT. Nothing was written.
    """
    if missing_row.rows is not None and not accept_older:
        raise Refusal(
            "LEDGER_OLDER",
            f"study '{missing_row.study_id}': {missing_row.holder} has {missing_row.what} that its ledger does not know:"
            " this state is older than what was sent",
            hint=f"{OLDER_HINT} charges what is missing in full",
        )
    rows = () if missing_row.rows is None else missing_row.rows()
    with site.database.transaction():
        for row in rows:
            _write_back(site, missing_row, row, at)
        if missing_row.ends_study:
            end_study(site, missing_row.study_digest, "this state is older than a round of masked tables of it", at)
    if rows:
        _log.warning(
            "study '%s': %s has %s that the ledger did not know; %d rows are written back",
            missing_row.study_id,
            missing_row.holder,
            missing_row.what,
            len(rows),
        )


def _write_back(site: Site, entry: Forgotten, row: MissingRow, at: dt.datetime) -> None:
    """Write one row and its line of the audit log; in the caller's transaction."""
    send: Send = {
        "study_digest": entry.study_digest,
        "study_id": entry.study_id,
        "recipient": row.recipient,
        "artifact_sha256": row.artifact_sha256,
        "size": row.size,
        "at": at,
    }
    audit_fields = make_audit_fields(row.column_draw, unit=row.unit, charge=row.charged)
    if row.is_of_round:
        audit_fields |= {ROUND: row.artifact_sha256.hex()}
    detail = f"shown by {entry.holder}"
    site.audit.record(
        line_of(What.LEDGER_MENDED, row.column_draw, row.charged, audit_fields, detail=detail, **send), at
    )
    site.ledger.write_row(row.column_draw, version_tag=b"", charge=row.charged, unit=row.unit, **send)


def end_study(site: Site, digest: bytes, why: str, at: dt.datetime) -> None:
    """End a study here whose round must not begin anew under the same approval; nothing where it has ended. Blocks."""
    if not site.state.knows(digest):
        return
    record = site.state.study(digest)
    if record.failure is not None or is_final(State(record.task.state)):
        return
    error = Refusal(
        "APPROVAL_VOID",
        f"study '{record.study_id}': {why}, and no round of masked tables is repeated",
        hint="submit the study again under a new id, with a new approval",
    )
    event = Event(what=What.FAILURE, who=DAEMON, study=digest, study_id=record.study_id, detail=error.code)
    site.audit.record(event, at)
    site.state.fail(digest, error, at)

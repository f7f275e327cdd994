"""A state database that has forgotten what the audit log beside it still tells: found whenever a state is opened.

Every charge is in the log before the bytes leave, in the transaction that writes the ledger's row. So charges in the log without
a row mean that the database is another than the one that the log was written with: it was lost and made anew, replaced by an
older copy, or lost its write-ahead log. Nothing goes on with such a ledger: LEDGER_OLDER, whatever the command.

One case is no loss: a process that was killed between the line and the end of its transaction leaves the line without the row,
at the end of the log. The row is written then as the line tells it, when the state is opened next: nothing had left, and the
same bytes, sent again, cost nothing.

With ``--accept-older`` the rows are written back from the lines, in one transaction together with a line that says so, which sets
the log's anchor again. Killed anywhere in it, the next attempt does the whole. A line tells all of its row. A log that is damaged
gives what can be read of it, and the line says what is wrong with it: a line whose row cannot be read is charged to each data set
that party.toml names, and statistics in such a line are charged as if they had been exact.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from verticil.party.audit.log import FILE_NAME, AuditLog, Event, What
from verticil.party.config import PartyConfig
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.policy.ledger import Ledger
from verticil.party.policy.ledger_rows import PARTS
from verticil.party.storage.database import FILE_NAME as DATABASE
from verticil.party.storage.database import Database, holds_nothing
from verticil.party.storage.secret import FILE_NAME as SECRET
from verticil.shared.core.errors import DataFault, GateFailed, Refusal
from verticil.shared.federation.audit import DAEMON, LOG_BROKEN, TORN_LINE, entries, verify
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.privacy import events
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import ExactStatistics, PrivacyEvent, RandomizedColumn
from verticil.shared.privacy.figures import finite_epsilon
from verticil.shared.storage.database import disk_fault

ROUND: Final = "round"
"""In a line: what all lines of its transaction have in common, whoever they name as the recipient: a word, or the transcript of
the round of a masked study."""
NO_DATA: Final = bytes(32)
"""In place of a fingerprint, where it is not known any more of what data something was."""
OLDER_HINT: Final = "restore the newest backup; only if there is none: verticil party run --accept-older"
_WITH_LOG: Final = (
    "restore the newest backup with this log: verticil party restore FILE --dir DIR --audit-log {log};"
    " only if there is none: verticil party run --accept-older charges what the log tells"
)

_CHARGES: Final = frozenset({str(What.SEND), str(What.SHARED), str(What.LEDGER_MENDED)})
_OF_A_NEW_STATE: Final = frozenset(
    {
        *(What.CONFIGURATION, What.CERTIFICATE, What.CERTIFICATE_ENDS, What.STUDY_SEEN, What.REFUSED, What.RESTORED),
        *(TORN_LINE, LOG_BROKEN),
    }
)
"""What can stand in a log whose database never came to know a line of it, because each process was killed with its first.
Everything else is said of studies that the database knows."""

_log = logging.getLogger(__name__)

_Key = tuple[str, tuple[str, ...], str, str]
"""Study, variables, recipient, SHA-256: of one thing to one recipient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charge:
    """What a line tells of a row.

    Attributes:
        key, event: what it is of.
        said: the line.
        epsilon, charged: as in the ledger.
    """

    key: _Key
    event: str
    said: Mapping[str, object]
    epsilon: float
    charged: float


def check_traces(directory: Path) -> None:
    """Refuse to make a state where an earlier one was; what `party init` left when it was broken off is none.

    Raises:
        Refusal: LEDGER_OLDER, an audit log without its database.
        DataFault: STATE_CORRUPT, other files of an earlier state; SECRET_MISSING, a database without its secret.
    """
    if not holds_nothing(directory):
        if not (directory / SECRET).exists():
            raise DataFault(
                "SECRET_MISSING",
                f"{directory / SECRET}: no site secret beside the state database",
                hint="restore it from your backup: with a new one all noise is drawn anew, and charged again",
            )
        return
    lines = _lines(_read(directory / FILE_NAME))
    if lines:
        raise _make_lost_refusal(directory, [charge for line in lines if (charge := _charge(line))])
    own = {SECRET, FILE_NAME, DATABASE, f"{DATABASE}-journal", f"{DATABASE}-shm"}
    traces = [path.name for path in directory.glob("*") if path.name not in own and not path.name.endswith(".part")]
    if (
        f"{DATABASE}-wal" in traces
        and (directory / DATABASE).exists()
        and not (directory / f"{DATABASE}-wal").stat().st_size
    ):
        traces.remove(f"{DATABASE}-wal")
    if traces:
        raise DataFault(
            "STATE_CORRUPT",
            f"{directory}: no state database, but what one leaves behind ({', '.join(sorted(traces)[:5])})",
            hint="restore your backup; if there is none, this is a new site: party init in a new folder, with lower limits",
        )


def open_database(config: PartyConfig, *, accept_older: bool = False, read_only: bool = False) -> Database:
    """Open the state database, if it knows every charge that the audit log tells.

    Args:
        config: party.toml.
        accept_older: write back what it does not know, in place of refusing.
        read_only: see `Database`.

    Raises:
        Refusal: LEDGER_OLDER.
        DataFault: STATE_CORRUPT, DISK_FULL.
    """
    directory = config.state_directory
    if holds_nothing(directory) and (lines := _lines(_read(directory / FILE_NAME))):
        if not accept_older:
            raise _make_lost_refusal(directory, [charge for line in lines if (charge := _charge(line))])
        Database(directory, create=True).close()
    database = Database(directory, read_only=read_only)
    try:
        _recall(database, config, accept_older=accept_older, read_only=read_only)
    except BaseException:
        database.close()
        raise
    return database


def _recall(database: Database, config: PartyConfig, *, accept_older: bool, read_only: bool) -> None:
    log, at = AuditLog(database, config.state_directory), utc_now()
    if log.agrees():
        return
    with database.transaction():
        data = _read(log.path)  # before the first look into the database, which may then only know more
        lines, head = _lines(data), log.head()
        ledger = Ledger(database)
        last = lines[head.number - 1] if 0 < head.number <= len(lines) else {}
        follows = last.get("hash") == head.hash.hex()
        new = lines[head.number :] if follows else lines  # no line up to the anchor can be one that is not known
        missing = _missing(new, ledger)
        is_lost = missing and not (follows and _one_transaction(new))
        if not is_lost and (head.number or all(line.get("event") in _OF_A_NEW_STATE for line in lines)):
            if not read_only:
                _write_back(ledger, missing, config.datasets, at)
                log.catch_up()
            return
        if not accept_older:
            raise _older(f"{database.path}: this state is older than the audit log beside it", log.path, missing)
        problem = _problem(data)
        _write_back(ledger, missing, config.datasets, at)
        detail = f"{len(missing)} charges read back from this log{problem and f', which does not hold: {problem}'}"
        _log.warning("the ledger was older than the audit log: %s", detail)
        log.record(Event(what=What.LEDGER_MENDED, who=DAEMON, detail=detail), at)


def _missing(lines: Sequence[Mapping[str, object]], ledger: Ledger) -> list[_Charge]:
    """Return what the lines state and the ledger lacks, in their order; a repeated attempt once, at the highest charge."""
    recorded_keys = {(row.study_digest, row.variables, row.recipient, row.artifact_sha256) for row in ledger.rows()}
    charges: dict[_Key, _Charge] = {}
    for line in lines:
        if (charge := _charge(line)) is not None and charge.key not in recorded_keys:
            charges[charge.key] = max(charges.get(charge.key, charge), charge, key=lambda item: item.charged)
    return list(charges.values())


def _one_transaction(lines: Sequence[Mapping[str, object]]) -> bool:
    """Return whether these are lines of one transaction that wrote charges, and nothing besides."""
    charges = [_charge(line) for line in lines if line.get("event") not in {TORN_LINE, LOG_BROKEN}]
    return len({charge and (charge.event, charge.key[0], _together(charge)) for charge in charges}) == 1


def _together(charge: _Charge) -> tuple[str, ...]:
    """Return what the lines of one transaction have in common besides the study: the round, or recipient and bytes."""
    ledger_fields = charge.said.get("ledger")
    of_round = cast("Mapping[str, object]", ledger_fields).get(ROUND) if isinstance(ledger_fields, Mapping) else None
    return (str(of_round),) if of_round else charge.key[2:]


def _write_back(ledger: Ledger, charges: Sequence[_Charge], datasets: Collection[str], at: dt.datetime) -> None:
    for charge in charges:
        fields, ledger_fields = charge.said, charge.said.get("ledger")
        try:
            column_draws, unit, version_tag, cost = _row(charge, cast("Mapping[str, object]", ledger_fields))
        except (AttributeError, KeyError, TypeError, ValueError):  # the line is damaged
            is_column = charge.event != What.SHARED
            event = RandomizedColumn(epsilon=charge.epsilon) if is_column else ExactStatistics()
            column_draws = [_bind_draw(charge, dataset, event) for dataset in datasets]
            unit, version_tag = None, b""
            cost = Cost(epsilon=charge.charged if is_column else math.inf, delta=0.0)
        for column_draw in column_draws:
            ledger.write_row(
                column_draw,
                charge=cost,
                version_tag=version_tag,
                study_digest=bytes.fromhex(charge.key[0]),
                study_id=str(fields.get("study_id", "")),
                unit=unit,
                recipient=charge.key[2],
                artifact_sha256=bytes.fromhex(charge.key[3]),
                size=size if isinstance(size := fields.get("bytes"), int) else 0,
                at=_time(fields.get("at"), at),
            )


def _row(charge: _Charge, ledger_fields: Mapping[str, object]) -> tuple[list[ColumnDraw], int | None, bytes, Cost]:
    digests = {name: bytes.fromhex(cast("str", ledger_fields[name])) for name in PARTS}
    sources = tuple(str(source) for source in cast("Sequence[object]", ledger_fields["sources"]))
    unit = None if ledger_fields["unit"] is None else int(cast("int", ledger_fields["unit"]))
    event = events.from_json(json.dumps(ledger_fields["event"]))
    cost = Cost(epsilon=charge.charged, delta=float(cast("float", ledger_fields.get("charged_delta", 0.0))))
    column_draw = ColumnDraw(
        variables=charge.key[1],
        dataset=str(ledger_fields["dataset"]),
        sources=sources,
        event=event,
        source_fingerprint=bytes.fromhex(str(ledger_fields.get("source_fingerprint", ""))),
        **digests,
    )
    return [column_draw], unit, bytes.fromhex(cast("str", ledger_fields["version_tag"])), cost


def _bind_draw(charge: _Charge, dataset: str, event: PrivacyEvent) -> ColumnDraw:
    return ColumnDraw(
        variables=charge.key[1],
        dataset=dataset,
        sources=(),
        codebook_digest=b"",
        transition_digest=b"",
        secret_id=b"",
        fingerprint=NO_DATA,
        event=event,
    )


def _charge(line: Mapping[str, object]) -> _Charge | None:
    """Return what a line says of the ledger; None: nothing."""
    columns, event = line.get("columns"), line.get("event")
    if event not in _CHARGES or not isinstance(columns, list):
        return None
    epsilon, charge = _epsilon(line.get("epsilon")), _epsilon(line.get("charged"))
    if charge is None and epsilon is None:
        return None
    variables = tuple(str(name) for name in cast("list[object]", columns))
    return _Charge(
        key=(_hex(line.get("study")), variables, str(line.get("recipient", "")), _hex(line.get("sha256"))),
        event=str(event),
        said=line,
        epsilon=epsilon if epsilon is not None else cast("float", charge),
        charged=charge if charge is not None else cast("float", epsilon),
    )


def _epsilon(value: object) -> float | None:
    if value == "infinite":
        return math.inf
    is_number = isinstance(value, int | float) and math.isfinite(value) and value >= 0
    return float(cast("float", value)) if is_number else None


def _hex(value: object) -> str:
    try:
        return bytes.fromhex(cast("str", value)).hex()
    except (TypeError, ValueError):
        return ""


def _time(value: object, otherwise: dt.datetime) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(cast("str", value))
    except (TypeError, ValueError):
        return otherwise


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise disk_fault(error, path) from None


def _lines(data: bytes) -> list[Mapping[str, object]]:
    return list(entries(data))


def _problem(data: bytes) -> str:
    """Return what is wrong with the log as it stands; empty: nothing."""
    try:
        verify(data, anchor_number=0, anchor_hash=b"", name=FILE_NAME)
    except GateFailed as error:
        return error.message
    return ""


def _make_lost_refusal(directory: Path, charges: Sequence[_Charge]) -> Refusal:
    return _older(
        f"{directory / DATABASE}: the state database is missing or empty, and an audit log is beside it",
        directory / FILE_NAME,
        charges,
    )


def _older(what: str, log: Path, charges: Sequence[_Charge]) -> Refusal:
    total = finite_epsilon([charge.charged for charge in charges])
    return Refusal(
        "LEDGER_OLDER",
        f"{what}; {len(charges)} charges in the log, epsilon {total:.4g} in all, are not in the ledger",
        hint=_WITH_LOG.format(log=log),
    )

"""Tables in PostgreSQL, read with its ADBC driver.

Promises: one read is one transaction, REPEATABLE READ and READ ONLY, so one state, and nothing that a query calls can write; rows
come in binary by COPY, a batch at a time. A dead connection is noticed within two minutes. Types that Arrow has no text for
(uuid, enumerations, json, inet, intervals, arrays and what else there is) are written as the server writes them, with settings
that are the same everywhere. What the server or its library says may quote rows, addresses and users, and is never passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote

import pyarrow as pa

from verticil.party.dataset.sources.reading import Cancel
from verticil.party.dataset.sources.source_table import DatasetRule, TablePart, unreadable
from verticil.party.dataset.sources.statement import NO_ROWS, quote_name, select
from verticil.party.dataset.sources.stream import (
    ARROW_ERRORS,
    first_that_applies,
    no_such_table,
    not_understood,
    parts_of_batches,
    translate_errors,
    writes,
)
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.foreign_files.limits import VALUE_BYTES

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection, Cursor

_WATCHED: Final = {
    "connect_timeout": "20",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "6",
    "application_name": "verticil",
}
"""What the URL may say otherwise; see the manual of libpq, section "Parameter Key Words"."""
_BATCH_BYTES: Final = 4 << 20
_DIRECT: Final = frozenset(
    {
        *("bool", "int2", "int4", "int8", "float4", "float8", "numeric"),
        *("date", "time", "timestamp", "timestamptz", "text", "varchar", "name"),
    }
)
"""Types that `verticil.party.dataset.sources.texts.text_column` writes."""
_TEXTS: Final = frozenset({"text", "varchar"})
"""Those of them that may be long."""
_SETTINGS: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
}
_LIMITS: Final = {"lock_timeout": "30s", "statement_timeout": "6h"}
"""How long a read waits for a lock that another program holds, and how long it takes; a time-out of the database's own counts."""
_UNREACHABLE: Final = {
    "password authentication failed": ("refuses the user or the password", ""),
    "no password supplied": ("wants a password", "password_file or password_env in [dataset.NAME] say where it is"),
    "pg_hba.conf": ("lets this user or machine not in", "its administrator adds a line to pg_hba.conf"),
    "could not translate host name": ("has an unknown host name", ""),
    "Connection refused": ("refuses connections: nothing listens there", ""),
    "timeout expired": ("does not answer", "is a firewall between?"),
    "does not exist": ("has no such database or user", ""),
    "SSL": ("cannot agree with this machine on TLS", "see sslmode and sslrootcert in the URL"),
    "certificate": ("has a certificate that does not hold", "see sslrootcert in the URL"),
    "too many": ("has no connection left", ""),
    "starting up": ("is starting up", ""),
    "shutting down": ("is shutting down", ""),
    "URI query parameter": ("has a URL with a parameter that libpq does not know", ""),
}
"""Words of libpq and of a server that speaks English -> ours."""


def header(rule: DatasetRule, cancel: Cancel) -> tuple[str, ...]:
    """Return the names of the columns; raises as `verticil.party.dataset.sources.open_source.header`."""
    return tuple(next(translate_errors(_columns(rule, cancel), _errors(), partial(_fault, rule, before_rows=True))))


def parts(rule: DatasetRule, column_names: Sequence[str], cancel: Cancel) -> Iterator[TablePart]:
    """Yield the rows; raises as `verticil.party.dataset.sources.open_source.read_parts`."""
    return translate_errors(_parts(rule, column_names, cancel), _errors(), partial(_fault, rule))


def _errors() -> tuple[type[Exception], ...]:
    from adbc_driver_manager import Error

    return Error, *ARROW_ERRORS


def _columns(rule: DatasetRule, cancel: Cancel) -> Iterator[list[str]]:
    with _open(rule) as connection, connection.cursor() as cursor, cancel.by(connection.adbc_cancel):
        yield _describe_columns(rule, cursor).names


def _parts(rule: DatasetRule, column_names: Sequence[str], cancel: Cancel) -> Iterator[TablePart]:
    with _open(rule) as connection, connection.cursor() as cursor, cancel.by(connection.adbc_cancel):
        kinds = {field.name: _kind(field) for field in _describe_columns(rule, cursor)}
        # A name that has gone by now is for the server to miss.
        columns = [_expression(quote_name(name), kinds.get(name, "name")) for name in column_names]
        cursor.execute(select(rule, columns))
        with cursor.fetch_record_batch() as batches:
            yield from parts_of_batches(rule, map(_plain, batches), column_names)


def _expression(name: str, kind: str) -> str:
    """Write what is asked for a column; the server cuts what is too long, so that it is seen to be and does not come.

    >>> _expression('"age"', "int4"), _expression('"note"', "text")
    ('"age"', 'left("note", 1048577) AS "note"')
    """
    if kind in _DIRECT - _TEXTS:
        return name
    text = name if kind in _TEXTS else f"CAST({name} AS text)"
    return f"left({text}, {VALUE_BYTES + 1}) AS {name}"


def _open(rule: DatasetRule) -> Connection:
    from adbc_driver_postgresql import dbapi

    assert rule.server is not None
    connection: Connection = dbapi.connect(_add_keepalives(rule.server.address()))
    return connection


def _add_keepalives(url: str) -> str:
    """Add to the URL the options that notice a dead connection.

    >>> _add_keepalives("postgresql://reader@db/clinic?connect_timeout=3").partition("?")[2][:36]
    'connect_timeout=3&keepalives_idle=30'
    >>> _add_keepalives("postgresql:///clinic")[:39]
    'postgresql:///clinic?connect_timeout=20'
    """
    place, _, query = url.partition("?")
    keys = {key for key, _ in parse_qsl(query, keep_blank_values=True)}
    more = "&".join(f"{key}={quote(value)}" for key, value in _WATCHED.items() if key not in keys)
    return f"{place}?{'&'.join(filter(None, (query, more)))}"


def _describe_columns(rule: DatasetRule, cursor: Cursor) -> pa.Schema:
    """Return the columns, from the beginning of a transaction that reads one state."""
    cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    settings = ", ".join(
        [
            *(f"set_config('{name}', '{value}', true)" for name, value in _SETTINGS.items()),
            *(_limit_setting(name, value) for name, value in _LIMITS.items()),
        ]
    )
    for statement in (f"SELECT {settings}", select(rule, None) + NO_ROWS):
        cursor.execute(statement)
        with cursor.fetch_record_batch() as batches:
            schema = batches.schema
            for _ in batches:
                pass
    return schema


def _limit_setting(name: str, value: str) -> str:
    """Return a statement that sets a limit where the database, its user or the URL sets none.

    >>> _limit_setting("lock_timeout", "30s")[:68]
    "set_config('lock_timeout', CASE current_setting('lock_timeout') WHEN"
    """
    setting = f"current_setting('{name}')"
    return f"set_config('{name}', CASE {setting} WHEN '0' THEN '{value}' ELSE {setting} END, true)"


def _kind(field: pa.Field) -> str:
    name: bytes = field.metadata[b"POSTGRESQL:type"]
    return name.decode()


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Numeric columns, which the driver gives as texts of a type of its own, as texts; not a number is null."""
    columns = [_numeric(one) if isinstance(one.type, pa.BaseExtensionType) else one for one in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _numeric(column: pa.ExtensionArray) -> pa.DictionaryArray:
    numbers = column.storage.dictionary_encode()
    texts = [None if text == "nan" else text for text in numbers.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(numbers.indices, pa.array(texts, pa.string()))


def _fault(rule: DatasetRule, error: Exception, *, before_rows: bool = False) -> DataFault:
    """Return the fault that an error means; `before_rows`: it came before any row was looked at, so the statement is
    wrong.
    """
    message = str(error)
    state = getattr(error, "sqlstate", None) or next(iter(re.findall(r"SQLSTATE: (\w{5})\s*$", message)), "")
    unknown = ("cannot be reached", "")
    why, hint = next((ours for theirs, ours in _UNREACHABLE.items() if theirs in message), unknown)
    cases = (
        (
            "Failed to connect" in message,
            _make_interrupted_fault(rule, why, hint or "see url in [dataset.NAME] of party.toml"),
        ),
        (state == "25006" or "in a read-only transaction" in message, writes(rule)),
        (
            state == "55P03" or "lock timeout" in message,
            _make_interrupted_fault(
                rule,
                "holds a lock on the table for longer than its lock_timeout, 30 s unless it says another",
                "a program that alters or loads the table has it; the read is tried again",
            ),
        ),
        (
            state == "57014" or "canceling statement" in message,
            _make_interrupted_fault(
                rule,
                "broke the reading off, as it does after a time-out",
                "raise statement_timeout of the database's user, or name a table in place of a query that takes long",
            ),
        ),
        (
            state in {"53100", "53400"} or "No space left" in message or "temp_file_limit" in message,
            _make_interrupted_fault(
                rule, "has no room for what the query sorts or joins", "temporary files are on the server"
            ),
        ),
        (before_rows and state in {"42P01", "3F000"}, no_such_table(rule)),
        (
            before_rows and state == "42501",
            unreadable(rule, "the database's user may not read it", hint="GRANT SELECT ON .. TO .."),
        ),
        (before_rows and state[:2] in {"42", "0A"}, not_understood(rule, "psql", code=f"SQLSTATE {state}")),
    )
    return first_that_applies(rule, cases)


def _make_interrupted_fault(rule: DatasetRule, why: str, hint: str) -> DataFault:
    return DataFault("DATA_INTERRUPTED", f"{rule.name}: the database {why}", hint=hint)

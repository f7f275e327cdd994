"""Tables in other databases, read with SQLAlchemy and the database's own driver.

Promises: one read is one statement in one transaction, which keeps a state as far as the database offers it (REPEATABLE READ,
else SERIALIZABLE); rows come a part at a time where the driver has cursors on the server; nothing is committed. Values have
the text of the Python type that the driver gives them (`verticil.party.dataset.sources.texts.text_of`), and none is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from verticil.party.dataset.sources.reading import Cancel
from verticil.party.dataset.sources.source_table import DatasetRule, TablePart
from verticil.party.dataset.sources.statement import NO_ROWS, select
from verticil.party.dataset.sources.stream import first_that_applies, not_understood, parts_of_rows, translate_errors
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.core.installation import install_package

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect, Engine

_ROWS_AHEAD: Final = 256
"""Rows that a driver may hold: each can have values up to the database's own limit."""
_LEVELS: Final = ("REPEATABLE READ", "SERIALIZABLE")
_LOCK_SECONDS: Final = 30
_LOCK_TIME_OUTS: Final = {
    "mysql": (
        f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}",
        f"SET SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}",
    ),
    "mariadb": (
        f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}",
        f"SET SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}",
    ),
    "mssql": (f"SET LOCK_TIMEOUT {_LOCK_SECONDS * 1000}",),
    "sqlite": (f"PRAGMA busy_timeout = {_LOCK_SECONDS * 1000}",),
}
"""By SQLAlchemy's name of a database: how long a read waits for a lock. Others wait as they are set up to."""
_LOCKED: Final = ("lock wait timeout", "lock request time out", "lock timeout", "database is locked", "table is locked")
"""What databases say in English of a lock that they waited for."""
_CANCELS: Final = ("cancel_safe", "cancel", "interrupt")
"""What drivers call it when another thread breaks off what a connection does."""
_NAMES: Final = "a URL begins with DATABASE+DRIVER, for instance mysql+pymysql"


def header(rule: DatasetRule, cancel: Cancel) -> tuple[str, ...]:
    """Return the names of the columns; raises as `verticil.party.dataset.sources.open_source.header`."""
    return next(translate_errors(_names(rule, cancel), _errors(), partial(_fault, rule, before_rows=True)))


def parts(rule: DatasetRule, column_names: Sequence[str], cancel: Cancel) -> Iterator[TablePart]:
    """Yield the rows; raises as `verticil.party.dataset.sources.open_source.read_parts`."""
    return translate_errors(_parts(rule, column_names, cancel), _errors(), partial(_fault, rule))


def _errors() -> tuple[type[Exception], ...]:
    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError, ValueError, OSError


def _names(rule: DatasetRule, cancel: Cancel) -> Iterator[tuple[str, ...]]:
    with _open_connection(rule, cancel) as connection:
        quote = connection.dialect.identifier_preparer.quote
        yield tuple(connection.exec_driver_sql(select(rule, None, quote=quote) + NO_ROWS).keys())


def _parts(rule: DatasetRule, column_names: Sequence[str], cancel: Cancel) -> Iterator[TablePart]:
    with _open_connection(rule, cancel) as connection:
        quote = connection.dialect.identifier_preparer.quote
        result = connection.exec_driver_sql(select(rule, [quote(name) for name in column_names], quote=quote))
        yield from parts_of_rows(rule, iter(result), column_names)


def dialect_of(rule: DatasetRule) -> Dialect:
    """Return how the database writes names, and its name; raises as `header`."""
    return _engine(rule).dialect


@contextmanager
def _open_connection(rule: DatasetRule, cancel: Cancel) -> Generator[Connection]:
    with _engine(rule).connect() as connection:
        below = connection.connection.dbapi_connection
        levels = () if below is None else connection.dialect.get_isolation_level_values(below)
        level = next((level for level in _LEVELS if level in levels), None)
        leveled_connection = connection if level is None else connection.execution_options(isolation_level=level)
        with cancel.by(_call_of(below)):
            for statement in _LOCK_TIME_OUTS.get(connection.dialect.name, ()):
                leveled_connection.exec_driver_sql(statement)
            yield leveled_connection.execution_options(stream_results=True, max_row_buffer=_ROWS_AHEAD)


def _call_of(connection: object) -> Callable[[], object] | None:
    """Return the driver's call that stops what its connection does; None: it has none."""
    candidates = (getattr(connection, name, None) for name in _CANCELS)
    return next((call for call in candidates if callable(call)), None)


def _engine(rule: DatasetRule) -> Engine:
    from sqlalchemy import create_engine
    from sqlalchemy.exc import NoSuchModuleError
    from sqlalchemy.pool import NullPool

    assert rule.server is not None
    url = rule.server.address()
    scheme = url.partition(":")[0]
    # It logs what went wrong while a connection was given back, with what the driver said, and that may quote rows.
    logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL + 1)
    try:
        return create_engine(url, poolclass=NullPool, hide_parameters=True)
    except NoSuchModuleError:
        missing = f"SQLAlchemy knows no database {scheme}"
    except ModuleNotFoundError as error:
        missing = f"{scheme} needs the driver {error.name}, which is not installed"
    raise Misuse(
        "CONFIG_INVALID",
        f"url in [dataset.NAME] of party.toml: {missing}",
        hint=f"{_NAMES}; {install_package('DRIVER')}",
    )


def _fault(rule: DatasetRule, error: Exception, *, before_rows: bool = False) -> DataFault:
    """Return the fault that an error means; `before_rows`: it came before any row was looked at, so the statement may be
    wrong.
    """
    from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

    has_statement = isinstance(error, DBAPIError) and error.statement is not None and not error.connection_invalidated
    unreachable = "the database cannot be reached, or it refuses every login"
    hint = "see url in [dataset.NAME] of party.toml: host, user, password, database"
    orig = str(getattr(error, "orig", "")).lower()
    cases = (
        (
            any(words in orig for words in _LOCKED),
            DataFault(
                "DATA_INTERRUPTED",
                f"{rule.name}: a program that writes to the database has locked it for too long",
                hint="the read is tried again",
            ),
        ),
        (
            before_rows and has_statement and isinstance(error, ProgrammingError | OperationalError),
            not_understood(rule, "the database's own program, as the same user"),
        ),
        (
            isinstance(error, DBAPIError) and error.statement is None,
            DataFault("DATA_INTERRUPTED", f"{rule.name}: {unreachable}", hint=hint),
        ),
    )
    return first_that_applies(rule, cases)

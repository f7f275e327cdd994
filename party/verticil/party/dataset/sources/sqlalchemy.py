"""Tables in other databases, read with SQLAlchemy and the database's own driver.

Promises: one read is one statement in one transaction, which keeps a state as far as the database offers it (REPEATABLE READ,
else SERIALIZABLE); rows come a part at a time where the driver has cursors on the server; nothing is committed. Values have
the text of the Python type that the driver gives them (`verticil.party.dataset.table.text_of`), and none is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from verticil.party.dataset.sources.statement import NO_ROWS, select
from verticil.party.dataset.sources.stream import first_that_applies, guarded, not_understood, parts_of_rows
from verticil.party.dataset.table import DatasetRule, TablePart
from verticil.shared.errors import DataFault, Misuse

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_ROWS_AHEAD: Final = 256
"""Rows that a driver may hold: each can have values up to the database's own limit."""
_LEVELS: Final = ("REPEATABLE READ", "SERIALIZABLE")
_NAMES: Final = "a URL begins with DATABASE+DRIVER, for instance mysql+pymysql; pip install DRIVER"


def header(rule: DatasetRule) -> tuple[str, ...]:
    """Raises as `verticil.party.dataset.table.header`."""
    return next(guarded(_names(rule), _errors(), partial(_fault, rule, asked=True)))


def parts(rule: DatasetRule, wanted: Sequence[str]) -> Iterator[TablePart]:
    """Raises as `verticil.party.dataset.table.read_parts`."""
    return guarded(_parts(rule, wanted), _errors(), partial(_fault, rule))


def _errors() -> tuple[type[Exception], ...]:
    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError, ValueError, OSError


def _names(rule: DatasetRule) -> Iterator[tuple[str, ...]]:
    with _connected(rule) as connection:
        quote = connection.dialect.identifier_preparer.quote
        yield tuple(connection.exec_driver_sql(select(rule, None, quote=quote) + NO_ROWS).keys())


def _parts(rule: DatasetRule, wanted: Sequence[str]) -> Iterator[TablePart]:
    with _connected(rule) as connection:
        quote = connection.dialect.identifier_preparer.quote
        result = connection.exec_driver_sql(select(rule, [quote(name) for name in wanted], quote=quote))
        yield from parts_of_rows(rule, iter(result), wanted)


@contextmanager
def _connected(rule: DatasetRule) -> Generator[Connection]:
    with _engine(rule).connect() as connection:
        below = connection.connection.dbapi_connection
        offered = () if below is None else connection.dialect.get_isolation_level_values(below)
        level = next((level for level in _LEVELS if level in offered), None)
        leveled = connection if level is None else connection.execution_options(isolation_level=level)
        yield leveled.execution_options(stream_results=True, max_row_buffer=_ROWS_AHEAD)


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
    raise Misuse("CONFIG_INVALID", f"url in [dataset.NAME] of party.toml: {missing}", hint=_NAMES)


def _fault(rule: DatasetRule, error: Exception, *, asked: bool = False) -> DataFault:
    """What an error means; `asked`: it came before any row was looked at, so it may be one of the statement."""
    from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

    stated = isinstance(error, DBAPIError) and error.statement is not None and not error.connection_invalidated
    unreachable = "the database cannot be reached, or lets nobody in"
    hint = "see url in [dataset.NAME] of party.toml: host, user, password, database"
    cases = (
        (
            asked and stated and isinstance(error, ProgrammingError | OperationalError),
            not_understood(rule, "the database's own program, as the same user"),
        ),
        (
            isinstance(error, DBAPIError) and error.statement is None,
            DataFault("DATA_INTERRUPTED", f"{rule.name}: {unreachable}", hint=hint),
        ),
    )
    return first_that_applies(rule, cases)

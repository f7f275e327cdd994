"""A node's one SQLite file: opened, migrated and kept so that SIGKILL at any moment leaves a whole state.

Promises
- WAL with ``synchronous = FULL``: a transaction that returned is on the disk, through `verticil.shared.storage.durable`.
- An older file is migrated when it is opened, once and in one transaction, after a copy of it was put beside it
  (``NAME.version-N``); a file of a newer version is refused by its version, one of before 1.0.0 by its lack of an application
  id (the number in the head of an SQLite file that says whose it is), and nothing is changed.
- A full disk or a lack of inodes is DISK_FULL, a lack of file handles FILES_EXHAUSTED, another writer STATE_LOCKED, a place that
  cannot be written to STATE_READ_ONLY, and a damaged file STATE_CORRUPT; nothing was written then. Other errors of SQLite are
  mistakes in the program and pass unchanged.

What the tables mean stands with those who use them. Rows are read into values (`Database.read`) and written from them
(`Database.insert`) by the names of columns, which are those of the values' fields (`verticil.shared.storage.row_values`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from verticil.shared.core.errors import DataFault
from verticil.shared.storage.disk import (
    files_exhausted,
    is_database_full,
    is_disk_full,
    looking_uri,
    unwritable,
    write_obstacle,
)
from verticil.shared.storage.durable import commit, rename, sync_directory, sync_file
from verticil.shared.storage.row_values import Cell, Row, columns_of, reader

R = TypeVar("R")
K = TypeVar("K")

Step = str | Callable[[sqlite3.Connection], None]

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DISK_REFUSES: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})
_UNUSABLE: Final = _DISK_REFUSES | {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """What a kind of database holds.

    Attributes:
        steps: step i makes version i + 1 of what version i left; a new database takes all of them. A step that shipped is
            never changed.
        application_id: stands in the head of each such file, and tells it from other files; 0 in those of before 1.0.0.
        what: the database, in words.
        disk: whose disk it lies on, in words.
        in_use: its name in messages once it is open, where they may leave the node; empty: its path.
        upgrade: what to do about an older file that may only be read.
        anew: what to do about a file of before 1.0.0, which no step upgrades.
    """

    steps: Sequence[Step]
    application_id: int
    what: str
    disk: str = "the disk"
    in_use: str = ""
    upgrade: str = "start the node: it upgrades an older state; a newer one needs the version that wrote it"
    anew: str = "begin anew in another folder; nothing was deleted"

    @property
    def version(self) -> int:
        """The newest version of the schema."""
        return len(self.steps)


class Database:
    """One connection, usable from several threads one after the other.

    Args:
        path: the file; made when absent, mode 0600.
        schema: what it holds.
        read_only: only look. SQLite then refuses to write, a transaction is one consistent view, and a database of an older
            version is an error. Nothing is made beside it (`verticil.shared.storage.disk.looking_uri`).

    Raises:
        DataFault: STATE_CORRUPT (not ours, damaged, of a newer version), STATE_UNSUPPORTED (of before 1.0.0), STATE_READ_ONLY,
            DISK_FULL.
    """

    def __init__(self, path: Path, schema: Schema, *, read_only: bool = False) -> None:
        self.path = path
        self._schema = schema
        self._read_only = read_only
        self._lock = threading.RLock()
        self._depth = 0
        self._undo: list[Callable[[], None]] = []
        self._where = str(path)
        with self._translate_errors():
            self._connection = sqlite3.connect(
                looking_uri(path) if read_only else path,
                uri=read_only,
                isolation_level=None,
                check_same_thread=False,
                timeout=10.0,
            )
            try:
                if read_only:
                    self._look()
                else:
                    self._open()
            except (sqlite3.OperationalError, UnicodeDecodeError) as error:  # a damaged name is no text
                self._connection.close()
                if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) != sqlite3.SQLITE_ERROR:
                    raise
                raise _make_damage_fault(path, f"cannot be used as {schema.what}") from error
            except BaseException:
                self._connection.close()
                raise
        self._seen = self._data_version()
        self._where = schema.in_use or str(path)

    def _open(self) -> None:
        version_in(self._connection, self.path, self._schema)  # before anything is written, be it the log's mode
        with disk_faults(self.path):
            os.chmod(self.path, 0o600)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        if version_in(self._connection, self.path, self._schema) == self._schema.version:
            return
        with self.transaction():
            version = version_in(self._connection, self.path, self._schema)  # another process may have been faster
            refuse_newer(self.path, version, self._schema)
            if 0 < version < self._schema.version:
                self._copy(version)
            for step in self._schema.steps[version:]:
                take(step, self._connection)
            self._connection.execute(f"PRAGMA application_id = {self._schema.application_id}")
            self._connection.execute(f"PRAGMA user_version = {self._schema.version}")

    def _look(self) -> None:
        self._connection.execute("PRAGMA query_only = ON")
        if (version := version_in(self._connection, self.path, self._schema)) != self._schema.version:
            raise DataFault(
                "STATE_CORRUPT",
                f"{self.path}: schema version {version}, expected {self._schema.version}",
                hint=self._schema.upgrade,
            )

    def _copy(self, version: int) -> None:
        """Put a copy of the file, as it is before a migration, beside it; one of an attempt that was broken off is replaced."""
        target = self.path.with_name(f"{self.path.name}.version-{version}")
        part = target.with_name(f"{target.name}.part")
        with disk_faults(target):
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                with (
                    contextlib.closing(sqlite3.connect(self.path)) as source,
                    contextlib.closing(sqlite3.connect(part)) as copy,
                ):
                    source.backup(copy)
                sync_file(descriptor, part)
            finally:
                os.close(descriptor)
            rename(part, target)
            sync_directory(target.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the file."""
        with self._lock:
            self._connection.close()

    def check(self) -> None:
        """Check the whole file, and that every table of this version is there. Only reads.

        Raises:
            DataFault: STATE_CORRUPT.
        """
        with self._lock, self._translate_errors():
            _check(self._connection, self.path, self._schema)

    @contextlib.contextmanager
    def transaction(self) -> Generator[None]:
        """Open a transaction: all or nothing, on the disk when the block ends. An inner one belongs to the outer one.

        Of a database that is only read: one view of it, whatever others write meanwhile; no writer is kept waiting.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT, STATE_LOCKED; nothing was written.
        """
        with self._lock, self._translate_errors():
            if self._depth:
                yield
                return
            self._connection.execute("BEGIN" if self._read_only else "BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
                if self._read_only:
                    self._connection.execute("ROLLBACK")
                else:
                    with commit(self.path):
                        self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    with contextlib.suppress(OSError):
                        for undo in reversed(self._undo):  # no other process writes yet
                            undo()
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._depth -= 1
                self._undo.clear()

    @contextlib.contextmanager
    def view(self) -> Generator[None]:
        """Open a view: all reads of the block see the database at one moment; nothing is written by it."""
        with self._lock, self._translate_errors():
            if self._depth or self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")

    @property
    def may_roll_back(self) -> bool:
        """Whether a transaction is under way, so that what is read may never have been."""
        return self._depth > 0

    def undo_with(self, undo: Callable[[], None]) -> None:
        """Have `undo` called if the transaction that is under way is rolled back: it takes back what is not in the database."""
        self._undo.append(undo)

    # -- writing -------------------------------------------------------------------------------------------------------------

    def write(self, statement: str, values: Sequence[Cell] = ()) -> int:
        """Run one statement in a transaction; returns the number of rows it changed."""
        with self.transaction():
            return self._connection.execute(statement, values).rowcount

    def write_each(self, statement: str, rows: Iterable[Sequence[Cell]]) -> int:
        """Run one statement for each row of values, in one transaction; returns the number of rows that changed."""
        with self.transaction():
            return max(self._connection.executemany(statement, rows).rowcount, 0)

    def insert(self, table: str, *values: object, conflict: str = "", **columns: Cell) -> int:
        """Insert one row in a transaction; returns the number of rows it changed.

        Args:
            table: a constant of the program.
            values: whose fields are columns (`verticil.shared.storage.row_values.columns_of`).
            conflict: ``DO NOTHING`` or ``DO UPDATE ...`` where a row with this key is there; ``REPLACE`` for a new one in its
                place; empty: that is an error.
            columns: the other columns.
        """
        cells = {name: cell for value in values for name, cell in columns_of(value).items()} | columns
        verb = "REPLACE" if conflict == "REPLACE" else "INSERT"
        rest = f" ON CONFLICT {conflict}" if conflict and conflict != "REPLACE" else ""
        statement = f"{verb} INTO {table} ({', '.join(cells)}) VALUES ({', '.join('?' * len(cells))}){rest}"
        return self.write(statement, tuple(cells.values()))

    # -- reading -------------------------------------------------------------------------------------------------------------

    def rows(self, statement: str, values: Sequence[Cell] = ()) -> list[Row]:
        """Return all rows of a query, as they are."""
        with self._lock, self._translate_errors():
            return self._connection.execute(statement, values).fetchall()

    def read(self, kind: type[R], statement: str, values: Sequence[Cell] = (), **fields: object) -> list[R]:
        """Return all rows of a query as values of `kind`: a data class or named tuple, or the type of a single column.

        Args:
            kind: what a row is.
            statement: the query.
            values: its parameters.
            fields: fields that are not in the row.

        Raises:
            DataFault: STATE_CORRUPT, a column holds something of another type.
        """
        with self._lock, self._translate_errors():
            cursor = self._connection.execute(statement, values)
            if not (rows := cursor.fetchall()):
                return []
            make = reader(kind, tuple(column[0] for column in cursor.description), fields, self._where)
            return [make(row) for row in rows]

    def first(self, kind: type[R], statement: str, values: Sequence[Cell] = (), **fields: object) -> R | None:
        """Return the first row of a query, as `read` gives it; None: there is none."""
        return next(iter(self.read(kind, statement, values, **fields)), None)

    def only(self, kind: type[R], statement: str, values: Sequence[Cell] = (), **fields: object) -> R:
        """Return the one row of a query that always has one, as `read` gives it."""
        (row,) = self.read(kind, statement, values, **fields)
        return row

    def has(self, statement: str, values: Sequence[Cell] = ()) -> bool:
        """Return whether a query has a row."""
        return bool(self.rows(statement, values))

    def by(self, key: type[K], kind: type[R], statement: str, values: Sequence[Cell] = ()) -> dict[K, R]:
        """Return the rows of a query, as `read` gives them, by their first column; of a single column's type: the second
        one.
        """
        with self._lock, self._translate_errors():
            cursor = self._connection.execute(statement, values)
            if not (rows := cursor.fetchall()):
                return {}
            names = tuple(column[0] for column in cursor.description)
            keys, makers = reader(key, names[:1], {}, self._where), reader(kind, names[1:], {}, self._where)
            return {keys(row[:1]): makers(row[1:]) for row in rows}

    def changed(self) -> bool:
        """Return whether another process has committed since the last call."""
        version = self._data_version()
        is_new, self._seen = version != self._seen, version
        return is_new

    def _data_version(self) -> int:
        return self.only(int, "PRAGMA data_version")

    def _translate_errors(self) -> contextlib.AbstractContextManager[None]:
        return translate_sqlite_errors(self.path, where=self._where, disk=self._schema.disk)


def take(step: Step, connection: sqlite3.Connection) -> None:
    """Take one step of a schema, in the transaction that is under way."""
    if not isinstance(step, str):
        step(connection)
        return
    pending = ""
    for line in step.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            connection.execute(pending)
            pending = ""


def _check(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    schema_query = "SELECT type, name FROM sqlite_schema"
    verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()
    absent: list[tuple[str, str]] = []
    if connection.execute("PRAGMA user_version").fetchone() == (schema.version,):
        with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
            for step in schema.steps:
                take(step, fresh)
            absent = sorted({*fresh.execute(schema_query)} - {*connection.execute(schema_query)})
    if verdict != ("ok",) or absent:
        raise _make_damage_fault(
            path, f"without {' '.join(absent[0])}" if absent else "its pages or indices are damaged"
        )


def _make_damage_fault(path: Path, problem: str) -> DataFault:
    hint = "restore your backup of the state directory"
    return DataFault("STATE_CORRUPT", f"{path}: {problem}", hint=hint)


def refuse_newer(path: Path, version: int, schema: Schema) -> None:
    """Check that this program knows a database's version.

    Raises:
        DataFault: STATE_CORRUPT, it does not.
    """
    if not 0 <= version <= schema.version:
        raise DataFault(
            "STATE_CORRUPT",
            f"{path}: schema version {version}, expected at most {schema.version}",
            hint="another version of verticil wrote it; use that version",
        )


@contextlib.contextmanager
def looking(path: Path) -> Generator[sqlite3.Connection]:
    """Open a connection that only looks at a database of any version.

    Raises:
        DataFault: as `translate_sqlite_errors`; STATE_CORRUPT also where it does not have what is looked for.
    """
    try:
        with (
            translate_sqlite_errors(path),
            contextlib.closing(sqlite3.connect(looking_uri(path), uri=True, timeout=10.0)) as connection,
        ):
            yield connection
    except sqlite3.DatabaseError as error:
        raise _make_damage_fault(path, "does not have the tables that are expected") from error


def version_in(connection: sqlite3.Connection, path: Path, schema: Schema) -> int:
    """Read the version of an open database's schema; 0: it has no tables, because its making was broken off.

    Raises:
        DataFault: STATE_UNSUPPORTED, a program before 1.0.0 made it; STATE_CORRUPT, it is another kind of file.
    """
    ((version,), (owner,)) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "application_id")
    )
    if version and not owner and schema.application_id:
        problem = f"{path}: {schema.what} of before version 1.0.0 of verticil, which this version does not read"
        raise DataFault("STATE_UNSUPPORTED", problem, hint=schema.anew)
    if version and owner != schema.application_id:
        raise _make_damage_fault(path, f"is not {schema.what}")
    return int(version)


def version_of(path: Path, schema: Schema) -> int:
    """Read the version of a database's schema; 0: it is missing, of zero length, or without tables (its making was broken off).

    Raises:
        DataFault: STATE_CORRUPT, STATE_READ_ONLY: it cannot be read; STATE_UNSUPPORTED, it is of before 1.0.0.
    """
    with disk_faults(path):
        if not path.exists() or not path.stat().st_size:
            return 0
    with looking(path) as connection:
        return version_in(connection, path, schema)


def inspect(path: Path, schema: Schema) -> int:
    """Check a whole database, of this version or an older one. Only reads.

    Returns:
        The version of its schema; 0 as in `version_of`.

    Raises:
        DataFault: STATE_CORRUPT, damaged or of a newer version; STATE_UNSUPPORTED, of before 1.0.0; STATE_READ_ONLY, it cannot be
            opened there.
    """
    version = version_of(path, schema)
    if path.exists() and path.stat().st_size:
        with looking(path) as connection:
            _check(connection, path, schema)
        refuse_newer(path, version, schema)
    return version


def disk_fault(error: OSError, path: Path) -> DataFault:
    """Return the error of this program for a failed write to `path`."""
    if (fault := _passing_fault(error, path)) is not None:
        return fault
    problem = f"{path}: cannot be written ({error.strerror})"
    return DataFault("STATE_CORRUPT", problem, hint="check the folder's owner and permissions")


def _passing_fault(error: OSError, path: Path, *, disk: str = "the disk") -> DataFault | None:
    """Return the error for a disk, a quota or file handles that are used up, or a read-only place; None for other errors."""
    if is_disk_full(error):
        return disk_full(str(path), disk=disk)
    return files_exhausted(error, path) or unwritable(error, path)


@contextlib.contextmanager
def disk_faults(path: Path) -> Generator[None]:
    """Turn what the operating system says about `path`, inside the block, into errors of this program.

    Raises:
        DataFault: as `disk_fault` gives it.
    """
    try:
        yield
    except OSError as error:
        raise disk_fault(error, path) from None


def disk_full(where: str, *, disk: str = "the disk") -> DataFault:
    """Return the error for an exhausted disk.

    Args:
        where: what could not be written.
        disk: whose, in words.
    """
    hint = "make room there; a running daemon then goes on by itself where it stopped"
    return DataFault("DISK_FULL", f"{where}: no space left on {disk}", hint=hint)


@contextlib.contextmanager
def translate_sqlite_errors(path: Path, *, where: str = "", disk: str = "the disk") -> Generator[None]:
    """Turn what SQLite says about a file and its disk, inside the block, into errors of this program.

    Args:
        path: the file.
        where: its name in messages; empty: the path.
        disk: whose disk it lies on, in words.

    Raises:
        DataFault: DISK_FULL, FILES_EXHAUSTED, STATE_LOCKED, STATE_READ_ONLY, STATE_CORRUPT.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        where = where or str(path)
        if is_database_full(error):
            raise disk_full(where, disk=disk) from None
        if code in _BUSY:
            raise DataFault("STATE_LOCKED", f"{where}: another process holds the database", hint="try again") from None
        if (refused := unwritable(error, path)) is not None:
            raise refused from None
        obstacle = write_obstacle(path) if code in _DISK_REFUSES else None
        if obstacle is not None and (fault := _passing_fault(obstacle, Path(where), disk=disk)) is not None:
            raise fault from None
        if code in _UNUSABLE:
            problem = f"{where}: cannot be used ({getattr(error, 'sqlite_errorname', 'damaged')})"
            raise DataFault("STATE_CORRUPT", problem, hint="restore your backup of the state directory") from None
        raise

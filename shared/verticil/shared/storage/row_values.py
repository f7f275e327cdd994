"""Rows of a database as values: the fields of a data class are the names of columns, and their types are checked.

A field holds text, bytes, a whole number, a number, whether something is so (0 or 1 in the database), a tuple (a list in JSON in
the database), or None where its type says so. A field that is a data class itself takes its columns from the same row.
"""

from __future__ import annotations

import functools
import json
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Final, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from verticil.shared.core.errors import DataFault

R = TypeVar("R")

Cell = str | bytes | int | float | None
Row = tuple[Cell, ...]

_PLAIN: Final = (str, bytes, int, float, bool)
_WORDS: Final = {str: "text", bytes: "bytes", int: "a whole number", float: "a number", bool: "0 or 1"}


class _Column(NamedTuple):
    """How a cell becomes a field's value."""

    kind: object
    optional: bool


def reader(kind: type[R], names: tuple[str, ...], fields: Mapping[str, object], where: str) -> Callable[[Row], R]:
    """Return a function that makes a value of `kind` from a row.

    Args:
        kind: a data class, a named tuple, or the type of the first column.
        names: of the row's columns; those that are no field are left out.
        fields: fields that are not in the row.
        where: the database, for messages.

    Raises:
        TypeError: a field that has no default is in neither; a mistake in the program.
    """
    if kind in _PLAIN or get_origin(kind) is tuple:
        return lambda row: cast("R", _value(row[0], _Column(kind, False), names[0], where))
    columns, inner = _places(cast("Hashable", kind), names, frozenset(fields))
    nested_readers = [(name, reader(of, names, {}, where)) for name, of in inner]

    def make(row: Row) -> R:
        values = {name: _value(row[place], column, name, where) for name, place, column in columns}
        return kind(**values, **{name: of(row) for name, of in nested_readers}, **fields)

    return make


@functools.cache
def _places(
    kind: type[object], names: tuple[str, ...], absent: frozenset[str]
) -> tuple[list[tuple[str, int, _Column]], list[tuple[str, type[object]]]]:
    """Return where each field's cell stands in a row, and the fields that are data classes; `absent`: fields not in the row."""
    places = {name: place for place, name in enumerate(names)}
    columns: list[tuple[str, int, _Column]] = []
    inner: list[tuple[str, type[object]]] = []
    for name, column in _columns(kind).items():
        if name in absent:
            continue
        if isinstance(column.kind, type) and is_dataclass(column.kind):
            if not column.optional:
                inner.append((name, column.kind))
        elif name in places:
            columns.append((name, places[name], column))
    return columns, inner


def _columns(kind: type[object]) -> Mapping[str, _Column]:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(hints)
    return {name: _column(hints[name]) for name in names}


def _column(hint: object) -> _Column:
    if get_origin(hint) in {Union, types.UnionType}:
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return _Column(kinds[0], len(kinds) < len(get_args(hint)))
    return _Column(hint, False)


def _value(cell: Cell, column: _Column, name: str, where: str) -> object:
    kind = column.kind
    if cell is None and column.optional:
        return None
    if kind is bool and cell in (0, 1):
        return bool(cell)
    if kind is float and isinstance(cell, (int, float)):
        return float(cell)
    if get_origin(kind) is tuple and isinstance(cell, str):
        return tuple(cast("Sequence[object]", json.loads(cell)))
    if isinstance(kind, type) and isinstance(cell, kind):
        return cell
    type_words = _WORDS.get(cast("type", kind), "a list") + (" or nothing" if column.optional else "")
    raise DataFault(
        "STATE_CORRUPT",
        f"{where}: column {name} holds {'nothing' if cell is None else _WORDS[type(cell)]}, expected {type_words}",
        hint="restore your backup of the state directory",
    )


def columns_of(value: object) -> dict[str, Cell]:
    """Return the columns that hold a data class's value; a field that is one itself gives its own columns."""
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is no data class")
    columns: dict[str, Cell] = {}
    for field in fields(value):
        inner: object = getattr(value, field.name)
        if is_dataclass(inner):
            columns |= columns_of(inner)
        elif isinstance(inner, tuple):
            columns[field.name] = json.dumps(inner)
        else:
            columns[field.name] = cast("Cell", inner)
    return columns

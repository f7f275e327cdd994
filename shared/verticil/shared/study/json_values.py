"""What a study's canonical JSON is made of, and two ways to read a value that may be null; knows nothing of studies."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from verticil.shared.config import Table

__all__ = ["Json", "is_null", "optional"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_Number = TypeVar("_Number", int, float, str)


def is_null(table: Table, key: str) -> bool:
    """Whether null stands at `key`."""
    return table.has(key) and table.raw(key) is None


def optional(table: Table, kind: type[_Number], key: str) -> _Number | None:
    """The value at `key`; None for null."""
    return None if is_null(table, key) else table.value(kind, key)

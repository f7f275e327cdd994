"""JSON documents of a release: strict reading of what somebody else may have written.

`parse` refuses what JSON leaves open (repeated keys, NaN, not UTF-8); `JsonNode` hands out typed values and says where a wrong
one stands. Every fault is a `GateFailed` with code ``RELEASE_INVALID``: a document of a release either holds or it does not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn, TypeAlias, cast

from verticil.shared.core.errors import GateFailed
from verticil.shared.documents.foreign_files.limits import DOCUMENT_VALUES

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What a JSON document can hold."""


def strict_json(data: bytes) -> object:
    """Return the value in `data`, without what JSON leaves open.

    Raises:
        ValueError: not UTF-8, not JSON, a key twice, NaN, more values than `DOCUMENT_VALUES`; in our own words: a parser's text
            quotes what it reads.
    """
    if sum(data.count(sign) for sign in (b",", b"[", b"{")) > DOCUMENT_VALUES:
        raise ValueError(f"more than {DOCUMENT_VALUES} values")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"it breaks off or is wrong at line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except _NotStrictError:
        raise
    except ValueError:
        raise ValueError("a number has too many digits") from None


class _NotStrictError(ValueError):
    """What JSON leaves open and we refuse; the text is ours."""


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _NotStrictError("a key is repeated")
    return values


def _no_constant(name: str) -> NoReturn:
    raise _NotStrictError(f"{name} is not JSON")


def parse(data: bytes, *, source: str) -> JsonNode:
    """Parse a JSON document whose root is an object.

    Args:
        data: the document.
        source: its name, for messages.

    Raises:
        GateFailed: RELEASE_INVALID.
    """
    try:
        root = strict_json(data)
    except ValueError as error:
        raise GateFailed("RELEASE_INVALID", f"{source}: not a JSON document: {error}") from None
    return JsonNode(root, where=source).object()


def to_text(document: Json) -> bytes:
    """Write a document for people and programs: indented, keys in the given order, UTF-8, ending in a line feed."""
    return (json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode("utf-8")


class JsonNode:
    """One value of a document while it is being read.

    Args:
        value: the parsed value.
        where: document and path, for messages.
    """

    def __init__(self, value: object, *, where: str) -> None:
        self.value = value
        self.where = where

    def fail(self, problem: str) -> NoReturn:
        """Raise `GateFailed` for this value."""
        raise GateFailed("RELEASE_INVALID", f"{self.where}: {problem}")

    def object(self) -> JsonNode:
        """Return this value, which must be an object."""
        if not isinstance(self.value, dict):
            self.fail("expected an object")
        return self

    def __getitem__(self, key: str) -> JsonNode:
        values = cast("dict[str, object]", self.object().value)
        if key not in values:
            self.fail(f"'{key}' is missing")
        return JsonNode(values[key], where=f"{self.where}: {key}")

    def get(self, key: str) -> JsonNode | None:
        """Return the value under `key`; None when it is absent or null."""
        value = cast("dict[str, object]", self.object().value).get(key)
        return None if value is None else JsonNode(value, where=f"{self.where}: {key}")

    def keys(self) -> tuple[str, ...]:
        """Return the keys of this object."""
        return tuple(cast("dict[str, object]", self.object().value))

    def items(self) -> tuple[JsonNode, ...]:
        """Return the items of this list."""
        if not isinstance(self.value, list):
            self.fail("expected a list")
        values = cast("list[object]", self.value)
        return tuple(JsonNode(value, where=f"{self.where}[{position}]") for position, value in enumerate(values))

    def __iter__(self) -> Iterator[JsonNode]:
        return iter(self.items())

    def text(self) -> str:
        """Return this value, which must be a string."""
        if not isinstance(self.value, str):
            self.fail("expected a string")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """Return this value, which must be a list of strings."""
        return tuple(item.text() for item in self.items())

    def integer(self) -> int:
        """Return this value, which must be a whole number, not negative."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < 0:
            self.fail("expected a whole number, not negative")
        return self.value

    def number(self) -> float:
        """Return this value, which must be a number."""
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            self.fail("expected a number")
        return self._float(self.value)

    def boolean(self) -> bool:
        """Return this value, which must be true or false."""
        if not isinstance(self.value, bool):
            self.fail("expected true or false")
        return self.value

    def floats(self) -> tuple[float, ...]:
        """Return this value, which must be a list of numbers; null becomes NaN."""
        if not isinstance(self.value, list):
            self.fail("expected a list of numbers")
        values = cast("list[object]", self.value)
        if not all(item is None or (isinstance(item, int | float) and not isinstance(item, bool)) for item in values):
            self.fail("expected a list of numbers or null")
        return tuple(float("nan") if item is None else self._float(cast("float", item)) for item in values)

    def _float(self, value: float) -> float:
        try:
            number = float(value)
        except OverflowError:  # a whole number of hundreds of digits
            number = float("inf")
        if not math.isfinite(number):
            self.fail("expected numbers that a double can hold")
        return number

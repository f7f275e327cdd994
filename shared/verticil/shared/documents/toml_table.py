"""A table of a TOML document, read strictly: what is unknown, missing or mistyped is an error that names file and key.

Values only: reading the file is `verticil.shared.documents.config`'s.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn, TypeVar, cast

from verticil.shared.core.errors import Misuse

T = TypeVar("T", bool, int, float, str)
_ABSENT: Final = object()
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_LARGEST: Final = 2**64
_NAMES: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def quoted(text: str) -> str:
    """Return a TOML basic string: JSON's escapes are those of TOML, but for DEL.

    >>> quoted('a"b')
    '"a\\\\"b"'
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class Table:
    """One TOML table while it is being read.

    Args:
        values: the parsed table.
        where: path of keys from the document's root, for messages; empty at the root.
        source: name of the document, for messages.
        code: error code of what is wrong here (`CONFIG_INVALID` or `STUDY_INVALID`).
        file: whether people write the document, so that what they leave out has a meaning.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        *,
        where: str = "",
        source: str,
        code: str = "CONFIG_INVALID",
        file: bool = False,
    ) -> None:
        self.source = source
        self.file = file
        self.where = where
        self.code = code
        self._values = values
        self._asked: set[str] = set()

    def fail(self, key: str, problem: str, *, hint: str = "") -> NoReturn:
        """Raise `Misuse` for `key` of this table."""
        raise Misuse(self.code, f"{self.source}: {self.path(key)}: {problem}", hint=hint)

    def path(self, key: str) -> str:
        """Return the key's full path, as in ``linkage.mode``."""
        return f"{self.where}.{key}" if self.where else key

    def has(self, key: str) -> bool:
        """Return whether the key is present (asking makes it a known key)."""
        self._asked.add(key)
        return key in self._values

    def _raw(self, key: str, default: object) -> object:
        self._asked.add(key)
        if key in self._values:
            return self._values[key]
        if default is _ABSENT:
            self.fail(key, "missing, expected a value")
        return default

    def value(self, kind: type[T], key: str, default: T | object = _ABSENT) -> T:
        """Return the value of `key`, which must be of `kind`; a whole number is accepted where a number is expected."""
        return self.typed(kind, self._raw(key, default), key)

    def typed(self, kind: type[T], raw: object, key: str) -> T:
        """`raw`, found at `key`, as `value` has it."""
        if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
            raw = self._float(key, raw)
        if not isinstance(raw, kind) or (kind is int and isinstance(raw, bool)):
            self.fail(key, f"got {kind_of(raw)}, expected {_NAMES[kind]}")
        if type(raw) is int and abs(raw) >= _LARGEST:  # such a number cannot even be shown as others are
            self.fail(key, "got a whole number of 2^64 or more, expected a smaller one")
        return raw

    def choice(self, key: str, allowed: Iterable[str], default: str | object = _ABSENT) -> str:
        """Return a string that must be one of `allowed`."""
        return self.one_of(self._raw(key, default), key, allowed)

    def one_of(self, raw: object, key: str, allowed: Iterable[str]) -> str:
        """`raw`, found at `key`, as `choice` has it."""
        options = list(allowed)
        text = self.typed(str, raw, key)
        if text not in options:
            near = difflib.get_close_matches(text, options, 1)
            self.fail(
                key,
                f"got '{text}', expected one of {', '.join(options)}",
                hint=f"did you mean '{near[0]}'?" if near else "",
            )
        return text

    def strings(self, key: str, default: list[str] | object = _ABSENT) -> tuple[str, ...]:
        """Return a list of strings."""
        return self.strings_in(self._raw(key, default), key)

    def strings_in(self, raw: object, key: str) -> tuple[str, ...]:
        """`raw`, found at `key`, as `strings` has it."""
        if not isinstance(raw, list) or not all(isinstance(item, str) for item in cast("list[object]", raw)):
            self.fail(key, f"got {kind_of(raw)}, expected a list of strings")
        return tuple(cast("list[str]", raw))

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers."""
        return self.numbers_in(self._raw(key, _ABSENT), key)

    def numbers_in(self, raw: object, key: str) -> tuple[float, ...]:
        """`raw`, found at `key`, as `numbers` has it."""
        items = cast("list[object]", raw) if isinstance(raw, list) else [None]
        if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in items):
            self.fail(key, f"got {kind_of(raw)}, expected a list of numbers")
        return tuple(self._float(key, cast("float", item)) for item in items)

    def _float(self, key: str, number: float) -> float:
        try:
            return float(number)
        except OverflowError:  # a whole number of more than 308 digits
            self.fail(key, "a number is too large")

    def rows(self, key: str, default: list[object] | object = _ABSENT) -> tuple[tuple[object, ...], ...]:
        """Return a list of lists, unchecked inside."""
        raw = self._raw(key, default)
        if not isinstance(raw, list) or not all(isinstance(item, list) for item in cast("list[object]", raw)):
            self.fail(key, f"got {kind_of(raw)}, expected a list of lists")
        return tuple(tuple(item) for item in cast("list[list[object]]", raw))

    def raw(self, key: str) -> object:
        """Return the parsed value, unchecked; None when absent."""
        return self._raw(key, None)

    def table(self, key: str, *, optional: bool = False) -> Table:
        """Return the table under `key`; when `optional` and absent, an empty one."""
        raw = self._raw(key, {} if optional else _ABSENT)
        if not isinstance(raw, dict):
            self.fail(key, f"got {kind_of(raw)}, expected a table")
        return self._inner(cast("dict[str, object]", raw), self.path(key))

    def tables(self, key: str, *, optional: bool = False) -> tuple[Table, ...]:
        """Return the array of tables under `key`, each with its number in its path (counted from 1)."""
        raw = self._raw(key, [] if optional else _ABSENT)
        if not isinstance(raw, list) or not all(isinstance(item, dict) for item in cast("list[object]", raw)):
            self.fail(key, f"got {kind_of(raw)}, expected [[{key}]] tables")
        return tuple(
            self._inner(item, f"{self.path(key)}[{number}]")
            for number, item in enumerate(cast("list[dict[str, object]]", raw), 1)
        )

    def named_tables(self, key: str) -> dict[str, Table]:
        """Return the tables under ``[key.NAME]``, by name; empty when absent."""
        raw = self._raw(key, {})
        if not isinstance(raw, dict) or not all(isinstance(v, dict) for v in cast("dict[str, object]", raw).values()):
            self.fail(key, f"got {kind_of(raw)}, expected [{key}.NAME] tables")
        return {
            name: self._inner(item, f"{self.path(key)}.{name}")
            for name, item in cast("dict[str, dict[str, object]]", raw).items()
        }

    def with_value(self, key: str, value: object) -> Table:
        """Return the table with another value at `key`, for what a document says by a name."""
        return self._inner({**self._values, key: value}, self.where)

    def _inner(self, values: Mapping[str, object], where: str) -> Table:
        return Table(values, where=where, source=self.source, code=self.code, file=self.file)

    def only(self, *keys: str) -> None:
        """Refuse every key but `keys`: said before values are read, a misspelt key is named and not called missing."""
        self._refuse_unknown(set(keys))

    def names(self) -> tuple[str, ...]:
        """Return all keys, for a table whose keys are names."""
        return tuple(self._values)

    def finish(self) -> None:
        """Refuse every key that was not asked for."""
        self._refuse_unknown(self._asked)

    def _refuse_unknown(self, known: set[str]) -> None:
        for key in self._values:
            if key not in known:
                near = difflib.get_close_matches(key, sorted(known), 1, 0.5)
                names_text = ", ".join(sorted(known))
                self.fail(
                    key, "unknown key", hint=f"did you mean '{near[0]}'?" if near else f"known keys here: {names_text}"
                )


def kind_of(raw: object) -> str:
    """Return what kind of value a document holds somewhere, for a message."""
    if isinstance(raw, bool):
        return "true/false"
    kinds: dict[type, str] = {
        int: "a whole number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "a table",
    }
    return kinds.get(type(raw), type(raw).__name__)


def is_name(text: str) -> bool:
    """Return whether `text` may name a federation or a node: 1 to 63 of ``A-Z a-z 0-9 _ -``, the first a letter or digit.

    >>> is_name("census_bureau"), is_name("a/b"), is_name("")
    (True, False, False)
    """
    return _NAME.fullmatch(text) is not None


def near_hint(name: str, names: Iterable[str]) -> str:
    """Return a hint that names what is nearest to `name`, whatever the case of its letters; empty when nothing is near."""
    folded = {other.casefold(): other for other in names}
    near = difflib.get_close_matches(name.casefold(), folded, 1, 0.5)
    return f"did you mean '{folded[near[0]]}'?" if near else ""

"""The condition on rows that a summary counts: ``where = "ward = 'surgery' and days >= 2"`` of party.toml.

A small language of its own, so that no text of party.toml becomes part of a statement: comparisons of a column with a number or a
text, ``in``, ``between``, ``is null``, joined by ``and``, ``or``, ``not`` and parentheses. There are no functions and no
statements within it. A server gets it as SQL that is written anew from what was read; over files it is looked at here. Both treat
an empty value as SQL treats null: a comparison with it is neither true nor false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from verticil.party.dataset.sources.source_table import TextColumn
from verticil.shared.core.arrays import Bools
from verticil.shared.documents.written_values.on_scale import value_text

MOST_LETTERS: Final = 1000
"""Longest condition."""
_MOST_DEEP: Final = 20
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")+")|(?P<number>-?[0-9]+(?:\.[0-9]+)?)(?![\w.])"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<sign><=|>=|<>|!=|[=<>(),]))"""
)
_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "between"})
Sign = Literal["=", "<>", "<", "<=", ">", ">="]
Literals: TypeAlias = str | float
Truth: TypeAlias = tuple[Bools, Bools]
"""Of some rows which are true, and which are false; a row may be neither."""
Reader: TypeAlias = Callable[[str, str], float | None]
"""Returns the number that a text is for a column; None: it is none."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of a column with a value."""

    column: str
    sign: Sign
    value: Literals


@dataclass(frozen=True, slots=True)
class OneOf:
    """A column whose value is among some."""

    column: str
    values: tuple[Literals, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column without a value."""

    column: str


@dataclass(frozen=True, slots=True)
class Negated:
    """A condition that does not hold."""

    inner: Condition


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions that all hold, or one of which holds."""

    word: Literal["and", "or"]
    parts: tuple[Condition, ...]


Condition: TypeAlias = Compared | OneOf | IsNull | Negated | Joined


def read_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        ValueError: it is none; in words.

    >>> read_condition("not days < 2")
    Negated(inner=Compared(column='days', sign='<', value=2.0))
    """
    if len(text) > MOST_LETTERS:
        raise ValueError(f"has {len(text):,} letters, expected at most {MOST_LETTERS:,}")
    return _Parser(text).read()


class _Parser:
    """Reads one condition from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            token = _TOKEN.match(text, place)
            if token is None:
                raise ValueError(
                    f"letter {place + 1} begins nothing that a condition has, expected COLUMN = 'TEXT', COLUMN >= NUMBER, "
                    "and, or, not, in (..), between, is null"
                )
            place = token.end()
            kind = str(token.lastgroup)
            word = token[kind]
            self._tokens.append(
                ("keyword", word.lower()) if kind == "word" and word.lower() in _WORDS else (kind, word)
            )
        self._place = self._deep = 0

    def read(self) -> Condition:
        condition = self._either()
        if self._place < len(self._tokens):
            raise ValueError(
                f"got '{self._tokens[self._place][1][:40]}' behind a whole condition, expected and, or, or its end"
            )
        return condition

    def _takes(self, *texts: str) -> bool:
        """Take the next token where it is one of some keywords or signs."""
        kind, text = self._next
        if kind in ("keyword", "sign") and text in texts:
            self._place += 1
            return True
        return False

    @property
    def _next(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "")

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise ValueError(f"got '{self._next[1][:40]}', expected '{text}'")

    def _either(self) -> Condition:
        return self._joined("or", self._both)

    def _both(self) -> Condition:
        return self._joined("and", self._one)

    def _joined(self, word: Literal["and", "or"], part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._takes(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _one(self) -> Condition:
        self._deep += 1
        if self._deep > _MOST_DEEP:
            raise ValueError(f"parts stand more than {_MOST_DEEP} deep in one another, expected fewer")
        try:
            if self._takes("not"):
                return Negated(self._one())
            if self._takes("("):
                inner = self._either()
                self._expect(")")
                return inner
            return self._comparison(self._column())
        finally:
            self._deep -= 1

    def _column(self) -> str:
        kind, text = self._next
        if kind not in ("word", "quoted"):
            raise ValueError(f"got '{text[:40]}', expected the name of a column, in \" \" where it is no plain word")
        self._place += 1
        if self._next == ("sign", "("):
            raise ValueError(f"'{text[:40]}(' calls a function, expected a column: a condition has no functions")
        return text[1:-1].replace('""', '"') if kind == "quoted" else text

    def _comparison(self, column: str) -> Condition:
        if self._takes("is"):
            is_not = self._takes("not")
            self._expect("null")
            return Negated(IsNull(column)) if is_not else IsNull(column)
        if self._takes("not"):
            return Negated(self._within(column))
        kind, text = self._next
        if kind == "sign" and text in ("=", "<>", "!=", "<", "<=", ">", ">="):
            self._place += 1
            sign: Sign = "<>" if text == "!=" else text  # type: ignore[assignment]  # of the signs above
            return Compared(column, sign, self._value())
        return self._within(column)

    def _within(self, column: str) -> Condition:
        if self._takes("between"):
            low = self._value()
            self._expect("and")
            return Joined("and", (Compared(column, ">=", low), Compared(column, "<=", self._value())))
        if not self._takes("in"):
            raise ValueError(
                f"got '{self._next[1][:40]}' behind column '{column[:40]}', expected =, <>, <, <=, >, >=, in, between, is"
            )
        self._expect("(")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        self._expect(")")
        return OneOf(column, tuple(values))

    def _value(self) -> Literals:
        kind, text = self._next
        if kind not in ("text", "number"):
            raise ValueError(f"got '{text[:40]}', expected a number or a text in ' '")
        self._place += 1
        if "\\" in text:
            raise ValueError("a text has a backslash, which databases read in different ways; expected none")
        return float(text) if kind == "number" else text[1:-1].replace("''", "'")


def columns_in(condition: Condition) -> tuple[str, ...]:
    """Return the columns that a condition looks at, each once."""
    return tuple(dict.fromkeys(_columns(condition)))


def _columns(condition: Condition) -> Iterator[str]:
    if isinstance(condition, Joined):
        for part in condition.parts:
            yield from _columns(part)
    elif isinstance(condition, Negated):
        yield from _columns(condition.inner)
    else:
        yield condition.column


def as_sql(condition: Condition, quote: Callable[[str], str]) -> str:
    """Write a condition as SQL, every part in parentheses.

    Args:
        condition: what to write.
        quote: how the database wants a name.

    >>> as_sql(read_condition("ward in ('A', 'it''s') or days > 1.5"), lambda name: f'"{name}"')
    '(("ward" IN (\\'A\\', \\'it\\'\\'s\\')) OR ("days" > 1.5))'
    """
    if isinstance(condition, Joined):
        return f"({f' {condition.word.upper()} '.join(as_sql(part, quote) for part in condition.parts)})"
    if isinstance(condition, Negated):
        return f"(NOT {as_sql(condition.inner, quote)})"
    if isinstance(condition, IsNull):
        return f"({quote(condition.column)} IS NULL)"
    if isinstance(condition, OneOf):
        return f"({quote(condition.column)} IN ({', '.join(map(_literal, condition.values))}))"
    return f"({quote(condition.column)} {condition.sign} {_literal(condition.value)})"


def _literal(value: Literals) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return value_text(None, value)


def holds(
    condition: Condition, columns: Mapping[str, TextColumn], number_of: Reader, moment_of: Reader, n_rows: int
) -> Bools:
    """Return of which rows of a file a condition is true.

    Args:
        condition: what to look at.
        columns: their texts, of all columns in it.
        number_of: returns the number of a column's text.
        moment_of: returns the moment of a text in the condition; None: the column is compared with it as text.
        n_rows: rows.
    """
    readers = _Readers(number_of, moment_of)
    return _truth(condition, columns, readers, n_rows)[0]


@dataclass(frozen=True, slots=True)
class _Readers:
    """What reads texts; see `holds`."""

    number_of: Reader
    moment_of: Reader


def _truth(condition: Condition, columns: Mapping[str, TextColumn], readers: _Readers, n_rows: int) -> Truth:
    if isinstance(condition, Joined):
        parts = [_truth(part, columns, readers, n_rows) for part in condition.parts]
        every, some = np.logical_and.reduce, np.logical_or.reduce
        trues, falses = [part[0] for part in parts], [part[1] for part in parts]
        return (every(trues), some(falses)) if condition.word == "and" else (some(trues), every(falses))
    if isinstance(condition, Negated):
        true, false = _truth(condition.inner, columns, readers, n_rows)
        return false, true
    column = columns[condition.column]
    verdicts = np.array([_verdict(condition, text, readers) for text in column.distinct], np.int8)[column.index]
    return verdicts == 1, verdicts == 0


def _verdict(condition: Compared | OneOf | IsNull, text: str, readers: _Readers) -> int:
    """Return 1 where a value meets a condition, 0 where it does not, -1 where it has none to compare."""
    if isinstance(condition, IsNull):
        return int(not text)
    values = condition.values if isinstance(condition, OneOf) else (condition.value,)
    sign = "=" if isinstance(condition, OneOf) else condition.sign
    verdicts = [_compare(text, sign, value, condition.column, readers) for value in values]
    return 1 if 1 in verdicts else min(verdicts)


def _compare(text: str, sign: str, value: Literals, column: str, readers: _Readers) -> int:
    if not text:
        return -1
    limit = readers.moment_of(column, value) if isinstance(value, str) else value
    if limit is None:
        return int(_SIGNS[sign](text, value))
    number = readers.number_of(column, text)
    return -1 if number is None else int(_SIGNS[sign](number, limit))


_SIGNS: Final[Mapping[str, Callable[[object, object], bool]]] = {
    "=": lambda one, other: one == other,
    "<>": lambda one, other: one != other,
    "<": lambda one, other: one < other,  # type: ignore[operator]  # two texts or two numbers
    "<=": lambda one, other: one <= other,  # type: ignore[operator]
    ">": lambda one, other: one > other,  # type: ignore[operator]
    ">=": lambda one, other: one >= other,  # type: ignore[operator]
}

"""One shape, written once: a document is a frozen dataclass, and its fields are the keys of its JSON or TOML form.

`write` and `read` go between a record and JSON values; `encode` and `decode` between a record and the canonical bytes (RFC 8785)
that are signed, or named by their SHA-256. One record has exactly one form: `decode` takes only what `encode` would write.
Reading is strict: an unknown, missing, repeated or mistyped key is one error that says where it stands, what was expected and
what kind of value is there; the value itself is shown only where there is a list of choices.

What the type of a field says:

- ``str``, ``bool``, ``int``, ``float``: as in JSON; where a number is expected, a whole number is one too.
- ``Literal[...]``: one of these texts. ``T | None``: null.
- ``Annotated[str, 80]``: at most so many letters. ``Annotated[bytes, 32]``: exactly so many bytes.
  ``Annotated[int, Within(0, 9)]``: a number between these, both included.
- ``Path``: its text. ``bytes``: lower-case hexadecimal digits. ``date``: YYYY-MM-DD. ``datetime``: UTC, as 2026-11-21T10:00:00Z.
- ``tuple[T, ...]``, ``tuple[A, B]``: a list. ``Mapping[str, T]``: an object. Another record: an object.

``Annotated[..., Key(...)]`` says the rest: another name in the document, that the key is `optional`, that the keys of a nested
record stand in line with the others (`inline`), the `choices` of a text, how a mapping is a list (`by`), or reading and writing
by functions.

A key is added in one place: a field of the document's dataclass, ``Annotated[TYPE, OPTIONAL] = DEFAULT``. Documents that do not
use it stay without it, so their bytes and digests stay; programs before it refuse the documents that do, by name. Everything else
follows from the field: the TOML file and the canonical form read it, `encode` writes it. What is left to do is a rule for its
value, its use, and a line for people. A class that is no document of its own (a variable, a matrix) is described with `describe`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, Union, cast

import rfc8785

from verticil.shared.core.errors import Misuse, PeerFault, VerticilError, printable
from verticil.shared.documents.json_document import Json, strict_json
from verticil.shared.documents.toml_table import Table, kind_of

Read: TypeAlias = Callable[[object, Table, str], Any]
"""Makes a value of what stands in a table at a key; fails through the table."""
Write: TypeAlias = Callable[[Any], Json]
T = TypeVar("T")

MAX_BYTES: Final = 16 * 2**20
"""Of a document, where nothing else is said."""
Sha256: TypeAlias = Annotated[bytes, 32]
_LARGEST: Final = 2**63
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Within:
    """The range of a number, both ends included."""

    least: float
    most: float

    def problem(self, number: float) -> str:
        """Say what is wrong with a number; empty: it lies in the range."""
        if self.least <= number <= self.most:  # never of NaN
            return ""
        return f"got {number:.17g}, expected {self.least:g} to {self.most:.17g}"


Count: TypeAlias = Annotated[int, Within(0, 2**53 - 1)]
"""A whole number that canonical JSON can carry, not negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is said of a field besides its type, in ``Annotated[TYPE, Key(...)]``.

    Attributes:
        name: of the key, where it is not the field's.
        optional: the key stands in a document only where the value is not the field's default, so that documents without it, and
            their digests, stay as they are.
        inline: the keys of this nested record stand among those of the record around it; or their names, with `read` and `write`.
        choices: what a text may be; looked at when a document is read.
        by: how a mapping stands as a list of objects: the name of its key and, unless its values are records, that of the value.
        form: what a list looks like, for a hint.
        read, write: in place of what the type says.
        beside: the field belongs to the value alone: no document has it, and whatever reads one leaves the default.
    """

    name: str = ""
    optional: bool = False
    inline: bool | tuple[str, ...] = False
    choices: Collection[str] | Callable[[], Collection[str]] = ()
    by: tuple[str, ...] = ()
    form: str = ""
    read: Read | None = None
    write: Write | None = None
    beside: bool = False


OPTIONAL: Final = Key(optional=True)
_PLAIN: Final = Key()
_DESCRIBED: Final[dict[type, Mapping[str, Key]]] = {}


def describe(kind: type, /, **said: Key) -> None:
    """Say what `Key` says, for the fields of a class that knows nothing of documents."""
    _DESCRIBED[kind] = said


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    key: str
    said: Key
    default: object
    read: Read
    write: Write
    inline: tuple[str, ...]


@functools.cache
def _fields(kind: type[Any]) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    keys_by_name = _DESCRIBED.get(kind, {})
    fields: list[_Field] = []
    for item in dataclasses.fields(kind):
        if not item.init:
            continue
        hint: Any = hints[item.name]
        limits: list[object] = []
        if typing.get_origin(hint) is Annotated:
            hint, *limits = typing.get_args(hint)
        key = next((each for each in limits if isinstance(each, Key)), keys_by_name.get(item.name, _PLAIN))
        if key.beside:
            continue
        if key.read is not None and key.write is not None:
            reader, writer = key.read, key.write
        elif key.inline:
            reader, writer = _inline(hint), write
        else:
            plain, writer = _codec(hint, key)
            reader = key.read or plain
        if key.form:
            reader = _formed(reader, key.form)
        for limit in limits:
            if not isinstance(limit, Key):
                reader = _limited(reader, limit)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        inline = key.inline if isinstance(key.inline, tuple) else keys(hint) if key.inline else ()
        fields.append(_Field(item.name, key.name or item.name, key, default, reader, writer, inline))
    return tuple(fields)


def out_of_range(record: Any) -> Iterator[tuple[str, str]]:
    """Yield the numbers of a record, and of the records in it, that do not lie in the ranges of their fields.

    Yields:
        The key, with those of the records around it (``genetic.population``), and what is wrong.
    """
    kind: Any = type(record)
    for name, ranges in _ranges(kind).items():
        value = getattr(record, name)
        if isinstance(ranges, Within):
            if value is not None and (problem := ranges.problem(value)):
                yield name, problem
        elif dataclasses.is_dataclass(value):
            yield from ((f"{name}.{key}", problem) for key, problem in out_of_range(value))


@functools.cache
def _ranges(kind: type[Any]) -> Mapping[str, Within | None]:
    """Return the range of each field; None: it may hold a record that has ranges itself."""
    found: dict[str, Within | None] = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        hints = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        ranges = [each for each in hints if isinstance(each, Within)]
        if ranges or any(map(dataclasses.is_dataclass, (hints[0], *typing.get_args(hints[0])))):
            found[name] = ranges[0] if ranges else None
    return found


def keys(kind: type, *, but: Collection[str] = ()) -> tuple[str, ...]:
    """Return the keys of a record, without those of the fields `but`."""
    names: list[str] = list(_mark(kind))
    for field in _fields(kind):
        if field.name not in but:
            names += field.inline or (field.key,)
    return tuple(names)


def _mark(kind: type) -> Mapping[str, str | int]:
    return cast("Mapping[str, str | int]", getattr(kind, "MARK", {}))


def write(record: Any) -> dict[str, Json]:
    """Return the keys of a record with their JSON values."""
    kind: Any = type(record)
    document: dict[str, Json] = dict(_mark(kind))
    for field in _fields(kind):
        value = getattr(record, field.name)
        if field.said.optional and value == field.default:
            continue
        if field.inline:
            document.update(cast("dict[str, Json]", field.write(value)))
        else:
            document[field.key] = field.write(value)
    return document


def read(kind: type[T], table: Table, *, also: Iterable[str] = (), given: Mapping[str, object] | None = None) -> T:
    """Read a record.

    Args:
        kind: its class.
        table: the keys. In a file that people write, an absent key is the field's default; else only optional ones may be absent.
        also: keys that the caller reads itself.
        given: fields that are known already; their keys are unknown ones, unless they are in `also`.

    Raises:
        Misuse: the table's code.
    """
    fields = read_fields(kind, table, also=also, given=given)
    try:
        return kind(**fields)
    except ValueError as error:
        problem = ": ".join(part for part in (table.source, table.where, str(error)) if part)
        raise Misuse(table.code, problem) from None


def read_fields(
    kind: type, table: Table, *, also: Iterable[str] = (), given: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Return the fields of a record, for another constructor; see `read`."""
    extra_fields = {} if given is None else given
    table.only(*keys(kind, but=extra_fields), *also)
    if not table.file:  # the mark of a file is checked when it is opened
        for name, target in _mark(kind).items():
            _check_mark(table, name, target)
    return {**_values(kind, table, extra_fields), **extra_fields}


def _values(kind: type, table: Table, known: Collection[str] = ()) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in _fields(kind):
        if field.name in known:
            continue
        if field.inline:
            values[field.name] = field.read(None, table, "")
        elif table.has(field.key):
            if field.said.optional and field.default is None and table.raw(field.key) is None:
                table.fail(field.key, "null, expected a value", hint="where there is none, the key is left out")
            values[field.name] = field.read(table.raw(field.key), table, field.key)
        elif (table.file or field.said.optional) and field.default is not MISSING:
            values[field.name] = field.default
        else:
            table.fail(field.key, "missing, expected a value")
    return values


def _check_mark(table: Table, name: str, expected: str | int) -> None:
    if isinstance(expected, str):
        table.choice(name, [expected])
    elif (actual := table.value(int, name)) != expected:
        table.fail(name, f"got {actual}, expected {expected}", hint="the other side runs a newer version")


# ---- bytes


def encode(record: object) -> bytes:
    """Return the canonical bytes of a record."""
    return canonical_json(write(record))


def canonical_json(value: Json) -> bytes:
    """`value` as RFC 8785 JSON."""
    return rfc8785.dumps(value)


def decode(
    kind: type[T],
    body: bytes,
    *,
    source: str,
    limit: int = MAX_BYTES,
    fault: Callable[[Misuse], VerticilError] | None = None,
) -> T:
    """Read the canonical bytes of a record, from anyone.

    Args:
        kind: its class.
        body: the bytes.
        source: what the document is, for messages.
        limit: most bytes.
        fault: makes the error; without it, what is wrong is the fault of the peer that sent the bytes.

    Raises:
        PeerFault: MESSAGE_INVALID; or what `fault` makes.
    """
    try:
        table = parse(body, source=source, limit=limit)
        record = read(kind, table)
        check_canonical(record, body, source=source)
    except Misuse as error:
        raise (fault or peer_fault)(error) from None
    return record


def check_canonical(record: object, body: bytes, *, source: str) -> None:
    """Check that `body` is what `encode` writes.

    Raises:
        Misuse: STUDY_INVALID.
    """
    try:
        same = encode(record) == body
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):  # a number in it is beyond what JSON carries exactly
        same = False
    if not same:
        raise Misuse(
            "STUDY_INVALID", f"{source}: not in canonical form", hint="submit study.toml with this version of verticil"
        )


def parse(data: bytes, *, source: str, limit: int = MAX_BYTES) -> Table:
    """Return the object in `data`, as a strict table.

    Raises:
        Misuse: STUDY_INVALID, more than `limit` bytes, not UTF-8, not JSON, a key twice, or not an object.
    """
    if len(data) > limit:
        raise Misuse("STUDY_INVALID", f"{source}: {len(data)} bytes, expected at most {limit}")
    try:
        value = strict_json(data)
    except ValueError as error:
        raise Misuse("STUDY_INVALID", f"{source}: not a JSON document: {error}") from None
    if not isinstance(value, dict):
        raise Misuse("STUDY_INVALID", f"{source}: expected a JSON object")
    return Table(cast("dict[str, object]", value), source=source, code="STUDY_INVALID")


def peer_fault(error: Misuse) -> PeerFault:
    """Return the same problem as the fault of the peer that sent the bytes. Its text can hold foreign text: short and
    printable.
    """
    return PeerFault("MESSAGE_INVALID", tame(error.message), hint=tame(error.hint))


def tame(text: str) -> str:
    """Text in which a foreign one may stand, for a message: short and printable."""
    return printable(text[:500])[:500]


# ---- what a type says


def _codec(hint: Any, said: Key = _PLAIN) -> tuple[Read, Write]:
    if said.choices:
        choices = said.choices
        return (lambda raw, table, name: table.one_of(raw, name, choices() if callable(choices) else choices)), _same
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda _, table, name: read(hint, table.table(name)), write
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _listed(inner[1], said.by) if said.by else _named(inner[1])
    return _GENERIC[origin](inner)


def _same(value: Any) -> Any:
    return value


def _scalar(kind: Any) -> tuple[Read, Write]:
    return lambda raw, table, name: table.typed(kind, raw, name), _same


def _date(raw: object, table: Table, name: str) -> dt.date:
    text = table.typed(str, raw, name)
    if _DATE.fullmatch(text):
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            pass
    return table.fail(name, "expected a date, YYYY-MM-DD")


def _time(raw: object, table: Table, name: str) -> dt.datetime:
    try:
        return dt.datetime.strptime(table.typed(str, raw, name), _TIME).replace(tzinfo=dt.UTC)
    except ValueError:
        return table.fail(name, "expected a UTC time such as 2026-11-21T10:00:00Z")


def time_text(at: dt.datetime) -> str:
    """Write a time as documents have it: UTC, whole seconds.

    Raises:
        ValueError: it has no zone.
    """
    if at.tzinfo is None:
        raise ValueError("a time in a document has a time zone")
    return at.astimezone(dt.UTC).strftime(_TIME)


def _bytes(raw: object, table: Table, name: str, *, size: int | None = None) -> bytes:
    text = table.typed(str, raw, name)
    if not _HEX.fullmatch(text) or (size is not None and len(text) != 2 * size):
        table.fail(name, f"expected {'' if size is None else f'{2 * size} '}lower-case hexadecimal digits")
    return bytes.fromhex(text)


_SCALARS: Final[dict[Any, tuple[Read, Write]]] = {
    **{kind: _scalar(kind) for kind in (bool, int, float, str)},
    object: (lambda raw, _, __: raw, _same),
    bytes: (_bytes, bytes.hex),
    Path: (lambda raw, table, name: Path(table.typed(str, raw, name)), str),
    dt.date: (_date, dt.date.isoformat),
    dt.datetime: (_time, time_text),
}


def _choice_of(choices: Collection[str]) -> Read:
    return lambda raw, table, name: table.one_of(raw, name, choices)


def _inline(kind: Any) -> Read:
    return lambda _, table, __: kind(**_values(kind, table))


def _formed(plain: Read, form: str) -> Read:
    """Read with a hint at the form, where there is none that is better."""

    def read_formed(raw: object, table: Table, name: str) -> object:
        try:
            return plain(raw, table, name)
        except Misuse as error:
            raise Misuse(error.code, error.message, hint=error.hint or f"expected {form}") from None

    return read_formed


def _limited(plain: Read, limit: Any) -> Read:
    if plain is _bytes:
        return functools.partial(_bytes, size=limit)

    def read_limited(raw: object, table: Table, name: str) -> object:
        value = plain(raw, table, name)
        if isinstance(limit, Within):
            if value is not None and (problem := limit.problem(value)):
                table.fail(name, problem)
        elif len(value) > limit:
            table.fail(name, f"{len(value)} letters, expected at most {limit}")
        return value

    return read_limited


def _optional(inner: tuple[Any, ...]) -> tuple[Read, Write]:
    plain, write_plain = _codec(next(item for item in inner if item is not types.NoneType))
    return (
        lambda raw, table, name: None if raw is None else plain(raw, table, name),
        lambda value: None if value is None else write_plain(value),
    )


def _items(raw: object, table: Table, name: str) -> list[object]:
    if not isinstance(raw, list):
        table.fail(name, f"got {kind_of(raw)}, expected a list")
    return cast("list[object]", raw)


def _list_of(hint: Any) -> tuple[Read, Write]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return (
            lambda _, table, name: tuple(read(hint, item) for item in table.tables(name)),
            lambda value: [write(item) for item in value],
        )
    if hint in (str, float):
        which = "strings" if hint is str else "numbers"
        return lambda raw, table, name: getattr(table, f"{which}_in")(raw, name), list
    if hint is int:
        return _whole_numbers, list
    plain, write_plain = _codec(hint)
    return (
        lambda raw, table, name: tuple(
            plain(item, table, f"{name}[{number}]") for number, item in enumerate(_items(raw, table, name), 1)
        ),
        lambda value: [write_plain(item) for item in value],
    )


def _whole_numbers(raw: object, table: Table, name: str) -> tuple[int, ...]:
    items = _items(raw, table, name)
    if not all(type(item) is int and abs(item) < _LARGEST for item in items):
        table.fail(name, "expected a list of whole numbers")
    return tuple(cast("list[int]", items))


def _row_of(codecs: list[tuple[Read, Write]]) -> tuple[Read, Write]:
    def read_row(raw: object, table: Table, name: str) -> tuple[object, ...]:
        items = _items(raw, table, name)
        if len(items) != len(codecs):
            table.fail(name, f"a list of {len(items)}, expected one of {len(codecs)}")
        return tuple(
            plain(item, table, f"{name}[{number}]")
            for number, ((plain, _), item) in enumerate(zip(codecs, items, strict=True), 1)
        )

    return read_row, lambda value: [of(item) for (_, of), item in zip(codecs, value, strict=True)]


def _named(hint: Any) -> tuple[Read, Write]:
    plain, write_plain = _codec(hint)

    def read_named(_: object, table: Table, name: str) -> dict[str, object]:
        inner = table.table(name)
        return {each: plain(inner.raw(each), inner, each) for each in inner.names()}

    return read_named, lambda value: {each: write_plain(item) for each, item in value.items()}


def _listed(hint: Any, by: tuple[str, ...]) -> tuple[Read, Write]:
    """Return the codec of a mapping from numbers, as a list of objects, ascending."""
    first, *others = by
    plain, write_plain = _codec(hint)

    def read_listed(_: object, table: Table, name: str) -> dict[int, object]:
        items: dict[int, object] = {}
        last = -1
        for item in table.tables(name):
            number = item.value(int, first)
            if number <= last:
                item.fail(first, "expected each number once, ascending")
            last = number
            if others:
                item.only(*by)
                items[number] = plain(item.raw(others[0]), item, others[0])
            else:
                items[number] = read(hint, item, also=(first,))
        return items

    def write_listed(value: Mapping[int, object]) -> Json:
        pairs = sorted(value.items())
        if others:
            return [{first: number, others[0]: write_plain(item)} for number, item in pairs]
        return [{first: number, **write(item)} for number, item in pairs]

    return read_listed, write_listed


def _annotated(inner: tuple[Any, ...]) -> tuple[Read, Write]:
    plain, write_plain = _codec(inner[0])
    return functools.reduce(_limited, inner[1:], plain), write_plain


def _tuple_of(inner: tuple[Any, ...]) -> tuple[Read, Write]:
    return _list_of(inner[0]) if inner[-1] is ... else _row_of([_codec(item) for item in inner])


_GENERIC: Final[dict[Any, Callable[[tuple[Any, ...]], tuple[Read, Write]]]] = {
    Annotated: _annotated,
    Literal: lambda inner: (_choice_of(inner), _same),
    Union: _optional,
    types.UnionType: _optional,
    tuple: _tuple_of,
}

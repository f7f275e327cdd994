"""A document is what the fields of its record say: it comes back from its bytes, and nothing else gets in."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.record import OPTIONAL, Count, Key, Sha256, Within, decode, encode, keys, read, write
from verticil.shared.documents.toml_table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A record inside of another one."""

    sha256: Sha256
    size: Annotated[Count, Key(name="bytes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A record that people may leave out, in part or whole."""

    chains: int | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """A field of every kind."""

    MARK: ClassVar = {"form": "test/v1"}

    name: Annotated[str, 12]
    why: Literal["ended", "revoked"]
    color: Annotated[str, Key(choices={"red": 1, "blue": 2})] = "red"
    level: Annotated[float, Within(0, 1)] = 0.5
    day: dt.date = dt.date(2030, 1, 2)
    at: dt.datetime
    parts: Annotated[Mapping[int, Part], Key(by=("unit",))]
    sums: Annotated[Mapping[int, Sha256], Key(by=("unit", "sha256"))]
    edges: Annotated[tuple[tuple[str, str], ...], Key(form='[["parent", "child"], ..]')] = ()
    rows: tuple[tuple[int, ...], ...] = ()
    last: Part | None
    inner: Annotated[Option, Key(inline=True)] = Option()
    tiers: Annotated[tuple[tuple[str, ...], ...], OPTIONAL] = ()
    option: Annotated[Option, OPTIONAL] = Option()


AT = dt.datetime(2026, 11, 21, 10, 4, 5, tzinfo=dt.UTC)
PART = Part(sha256=bytes(32), size=7)
ONE = Everything(
    name="n", why="ended", at=AT, parts={2: PART, 10: PART}, sums={0: bytes(32), 3: b"3" * 32}, last=None,
    edges=(("a", "b"), ("b", "c")), rows=((1, 2), ()), inner=Option(chains=3), tiers=(("a",), ()),
)  # fmt: skip
PLAIN = dataclasses.replace(ONE, tiers=())

texts = st.text(max_size=12)
digests = st.binary(min_size=32, max_size=32)
counts = st.integers(0, 2**53 - 1)
wholes = st.integers(-(2**53) + 1, 2**53 - 1)
parts = st.builds(Part, sha256=digests, size=counts)
options = st.builds(Option, chains=st.none() | wholes, exact=st.booleans())
records = st.builds(
    Everything,
    name=texts,
    why=st.sampled_from(["ended", "revoked"]),
    color=st.sampled_from(["red", "blue"]),
    level=st.floats(0, 1),
    day=st.dates(dt.date(1000, 1, 1)),
    at=st.datetimes(dt.datetime(1000, 1, 1)).map(lambda at: at.replace(microsecond=0, tzinfo=dt.UTC)),
    parts=st.dictionaries(counts, parts, max_size=3),
    sums=st.dictionaries(counts, digests, max_size=3),
    edges=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    rows=st.lists(st.lists(wholes, max_size=3).map(tuple), max_size=3).map(tuple),
    last=st.none() | parts,
    inner=options,
    tiers=st.lists(st.lists(texts, max_size=3).map(tuple), max_size=3).map(tuple),
    option=options,
)


def decoded(body: bytes) -> Everything:
    return decode(Everything, body, source="it")


def refused(body: bytes) -> str:
    """What is said of bytes that are refused."""
    with pytest.raises(PeerFault) as caught:
        decoded(body)
    assert caught.value.code == "MESSAGE_INVALID"
    assert caught.value.message.startswith("it: ")
    assert caught.value.message.isprintable()
    return f"{caught.value.message} ({caught.value.hint})"


@settings(max_examples=150, deadline=None)
@given(records)
def test_a_record_comes_back_from_its_bytes(record: Everything) -> None:
    body = encode(record)
    assert decoded(body) == record
    assert encode(decoded(body)) == body == rfc8785.dumps(write(record))


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(encode(ONE))
    change(document)
    return rfc8785.dumps(document)


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown key": (lambda d: d.update(nmae="x"), "nmae: unknown key (did you mean 'name'?)"),
    "unknown key inside": (lambda d: d["parts"][0].update(size=1), "parts[1].size: unknown key"),
    "unknown key in an item": (lambda d: d["sums"][0].update(size=1), "sums[1].size: unknown key"),
    "missing key": (lambda d: d.pop("at"), "at: missing, expected a value"),
    "missing key in line": (lambda d: d.pop("exact"), "exact: missing, expected a value"),
    "missing form": (lambda d: d.pop("form"), "form: missing"),
    "another form": (lambda d: d.update(form="test/v2"), "form: got 'test/v2', expected one of test/v1"),
    "a number for a text": (lambda d: d.update(name=1), "name: got a whole number, expected a string"),
    "a text for a number": (lambda d: d.update(level="1"), "level: got a string, expected a number"),
    "true for a number": (lambda d: d.update(chains=True), "chains: got true/false, expected a whole number"),
    "a text for a list": (lambda d: d.update(rows="x"), "rows: got a string, expected a list"),
    "a list for a record": (lambda d: d.update(last=[]), "last: got a list, expected a table"),
    "null where there is none": (lambda d: d.update(name=None), "name: got NoneType, expected a string"),
    "too long": (lambda d: d.update(name="x" * 13), "name: 13 letters, expected at most 12"),
    "another choice": (lambda d: d.update(why="endet"), "expected one of ended, revoked (did you mean 'ended'?)"),
    "a choice of a mapping": (lambda d: d.update(color="green"), "color: got 'green', expected one of red, blue"),
    "out of range": (lambda d: d.update(level=1.5), "level: got 1.5, expected 0 to 1"),
    "no day": (lambda d: d.update(day="2030-02-30"), "day: expected a date, YYYY-MM-DD"),
    "no time": (lambda d: d.update(at="2030-02-03"), "at: expected a UTC time such as"),
    "short digest": (lambda d: d["sums"][0].update(sha256="00"), "sums[1].sha256: expected 64 lower-case hexadecimal"),
    "digest in capitals": (lambda d: d["sums"][0].update(sha256="AB" * 32), "expected 64 lower-case hexadecimal digits"),
    "a row of three": (
        lambda d: d.update(edges=[["a", "b", "c"]]),
        'edges[1]: a list of 3, expected one of 2 (expected [["parent", "child"], ..])',
    ),
    "twice in a mapping": (lambda d: d["sums"].append(d["sums"][1]), "sums[3].unit: expected each number once, ascending"),
    "another order": (lambda d: d["parts"].reverse(), "parts[2].unit: expected each number once, ascending"),
    "a default of later": (lambda d: d.update(option={"chains": None, "exact": False}), "not in canonical form"),
    "beyond JSON": (lambda d: d.update(chains=-(2**53) + 1, rows=[[2**53]]), "not in canonical form"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_form_of_a_record_is_refused_with_its_place(name: str) -> None:
    change, words = REFUSED[name]
    document = json.loads(encode(ONE))
    change(document)
    assert words in refused(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not a JSON document"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"[]", "expected a JSON object"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":1,"a":1}', "a key is repeated"),
        (b"[" * 100_000, "nested too deeply"),
        (encode(ONE) + b"\n", "not in canonical form"),
        (b" " * (16 * 2**20 + 1), "expected at most 16777216"),
    ],
)
def test_bytes_that_are_no_canonical_json_are_refused(body: bytes, words: str) -> None:
    assert words in refused(body)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(encode(ONE)) - 1), st.integers(0, 9), st.binary(max_size=5))
def test_damaged_bytes_are_refused_or_another_record(start: int, length: int, new: bytes) -> None:
    body = encode(ONE)[:start] + new + encode(ONE)[start + length :]
    try:
        record = decoded(body)
    except PeerFault:
        refused(body)
    else:
        assert encode(record) == body
        assert (record == ONE) == (body == encode(ONE))


def test_a_key_that_came_later_stands_only_in_documents_that_use_it() -> None:
    assert "tiers" not in write(PLAIN)
    assert "option" not in write(PLAIN)
    assert write(ONE)["tiers"] == [["a"], []]
    assert set(write(ONE)) <= set(keys(Everything))
    assert decoded(encode(PLAIN)).tiers == ()


def test_a_file_leaves_out_what_is_usual_and_a_document_does_not() -> None:
    said = {
        "name": "n",
        "why": "ended",
        "at": "2026-11-21T10:04:05Z",
        "parts": [],
        "sums": [],
        "last": {"sha256": "00" * 32, "bytes": 1},
    }
    table = Table({**said, "option": {"exact": True}}, source="f.toml", file=True)
    found = read(Everything, table)
    assert (found.color, found.level, found.inner, found.option) == ("red", 0.5, Option(), Option(exact=True))
    with pytest.raises(Misuse, match=r"f\.json: form: missing"):
        read(Everything, Table(said, source="f.json"))
    with pytest.raises(Misuse, match=r"f\.json: option\.chains: missing"):
        read(Everything, Table({**json.loads(encode(ONE)), "option": {"exact": True}}, source="f.json"))


def test_no_message_shows_a_value_of_a_document() -> None:
    document = json.loads(encode(ONE))
    for key in document:
        if key in {"form", "why", "color"}:
            continue
        said = refused(rfc8785.dumps({**document, key: {"secret-of-a-person": "secret-of-a-person"}}))
        assert "secret-of-a-person: unknown key" in said or "secret-of-a-person" not in said


def test_a_constructor_s_own_rule_is_a_clean_error() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("expected an even number")

    with pytest.raises(Misuse, match="it: expected an even number"):
        read(Even, Table({"number": 3}, source="it"))

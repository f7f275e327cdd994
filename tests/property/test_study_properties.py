"""Properties of study documents: round trips, misspelt keys, and bytes from anyone."""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
import itertools
import json
import re
import tempfile
from pathlib import Path

import pytest
import rfc8785
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.study import canonical
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import Facts, State, derive, is_final
from verticil.shared.study.vocabulary import starts_a_formula

EXAMPLE = Path(__file__).parents[1] / "vectors" / "study_example.toml"
TEXT = EXAMPLE.read_text(encoding="utf-8")
STUDY = read_study(EXAMPLE)
BYTES = canonical.to_bytes(STUDY)
EVERYTHING = """\
schema = 1
id = "s"
purpose = "compounds, subsets and blocks of combinations"
expires = 2099-12-31
[[party]]
name = "a"
[[party]]
name = "b"
[[variable]]
party = "a"
name = "x"
categories = ["0", "1", "2"]
[[variable]]
party = "b"
name = "y"
categories = ["0", "1"]
[[variable]]
party = "a"
name = "z"
categories = ["0", "1", "2", "3"]
[[randomization]]
jointly = ["z", "x"]
impossible = [["3", "0"], ["0", "2"]]
SCHEME
[[randomization]]
variables = ["y"]
scheme = "symmetric"
epsilon = 1.0
"""
PEERS = """\
[structure]
method = "given"
[structure.parents]
x = ["y"]
z = ["x", "y"]
[share]
noise = "discrete-gaussian"
epsilon = 1.0
delta = 1e-6
minimum_count = 3
"""

plain = st.text(
    st.characters(exclude_categories=("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")), min_size=1, max_size=8
).filter(lambda text: not starts_a_formula(text))


def toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """TOML of a small study with any labels, bins and numbers."""
    names = draw(st.lists(plain, min_size=2, max_size=4, unique=True))
    lines = [
        "schema = 1",
        'id = "s"',
        f"purpose = {toml(draw(plain))}",
        f"expires = {draw(st.dates(dt.date(2000, 1, 1))).isoformat()}",
        "[[party]]",
        'name = "a"',
        "[[party]]",
        'name = "b"',
    ]
    for number, name in enumerate(names):
        lines += ["[[variable]]", f'party = "{"ab"[number % 2]}"', f"name = {toml(name)}"]
        if draw(st.booleans()):
            numbers = st.floats(-1e12, 1e12, allow_nan=False)
            edges = sorted(draw(st.lists(numbers, min_size=3, max_size=6, unique_by=lambda x: x + 0.0)))
            assume(all(high - low >= 1e-15 for low, high in itertools.pairwise(edges)))
            lines.append(f"bins = [{', '.join(map(repr, edges))}]")
            lines += draw(st.sampled_from([[], ['outside = "clamp"']]))
        else:
            labels = draw(st.lists(plain, min_size=2, max_size=5, unique=True))
            lines.append(f"categories = [{', '.join(map(toml, labels))}]")
            if draw(st.booleans()):
                lines.append(f"other = {toml(draw(st.sampled_from(labels)))}")
    lines += ["[randomization_default]", 'scheme = "symmetric"', f"epsilon = {draw(st.floats(0.01, 20))!r}"]
    lines += ["[release]", f"seed = {draw(st.integers(0, 2**53 - 1))}"]
    lines += ["[parameters]", f"prior_count = {draw(st.floats(1e-6, 1e6))!r}"]
    return "\n".join(lines) + "\n"


def read(text: str) -> Study:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.toml"
        path.write_text(text, encoding="utf-8")
        return read_study(path)


@settings(max_examples=30, deadline=None)
@given(documents())
def test_bytes_of_a_study_come_back(text: str):
    study = read(text)
    data = canonical.to_bytes(study)
    assert canonical.from_bytes(data) == study
    assert canonical.to_bytes(canonical.from_bytes(data)) == data


SMALL = {
    "subset": read(EVERYTHING.replace("SCHEME", 'scheme = "subset"\nepsilon = 0.8')),
    "peers": read('model = "peer"\n' + EVERYTHING.replace("SCHEME", 'scheme = "symmetric"\nepsilon = 0.8') + PEERS),
}
SMALL_BYTES = {name: canonical.to_bytes(study) for name, study in SMALL.items()}


def read_foreign(data: bytes) -> Study | None:
    """The study in `data`, or None when it was refused; anything but these two clean ends fails the test."""
    try:
        study = canonical.from_bytes(data)
    except PeerFault as error:
        fault = error
    else:
        assert canonical.to_bytes(study) == data
        return study
    assert fault.code == "MESSAGE_INVALID"
    assert fault.message.isprintable()
    return None


KEYS = [
    (match.start(1), match.group(1)) for match in re.finditer(r"^\[{0,2}([a-z_0-9.]+)(?: = |\]+)", TEXT, re.MULTILINE)
]


def misspelt(key: str, position: int, kind: str) -> str:
    position %= len(key)
    match kind:
        case "drop":
            return key[:position] + key[position + 1 :]
        case "double":
            return key[: position + 1] + key[position:]
        case "swap":
            return key[:position] + key[position + 1 : position + 2] + key[position] + key[position + 2 :]
        case _:
            return key[:position] + "x" + key[position + 1 :]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([(at, key) for at, key in KEYS if "." not in key]),
    st.integers(0, 30),
    st.sampled_from(["drop", "double", "swap", "replace"]),
)
def test_every_misspelt_key_is_named_with_the_nearest_known_key(where: tuple[int, str], position: int, kind: str):
    at, key = where
    wrong = misspelt(key, position, kind)
    known = {name for _, name in KEYS}
    assume(wrong and wrong not in known)
    with pytest.raises(Misuse) as caught:
        read(TEXT[:at] + wrong + TEXT[at + len(key) :])
    assert caught.value.code == "STUDY_INVALID"
    assert "study.toml: " in caught.value.message
    assert re.search(rf"(^|[.: ]){re.escape(wrong)}: unknown key", caught.value.message)
    suggested = re.search(r"did you mean '(.*)'", caught.value.hint)
    if suggested is None:
        assert key in caught.value.hint  # nothing is near: all known keys are listed
    else:  # another known key may be as near as the one that was meant ('p' is near p1 and p2)
        ratio = {name: difflib.SequenceMatcher(None, name, wrong).ratio() for name in (key, suggested.group(1))}
        assert suggested.group(1) == key or ratio[suggested.group(1)] >= ratio[key] - 0.1


def test_misspelt_keys_inside_inline_tables_and_named_tables():
    for right, wrong in (
        ("spellings", "speling"),
        ("structure.genetic", "structure.gentic"),
        ("category =", "catgory ="),
    ):
        with pytest.raises(Misuse) as caught:
            read(TEXT.replace(right, wrong, 1))
        assert "unknown key" in caught.value.message
        assert right.removeprefix("structure.").removesuffix(" =") in caught.value.hint


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, len(BYTES) - 1),
    st.integers(0, 12),
    st.one_of(
        st.binary(max_size=6), st.sampled_from([b"null", b"[]", b"{}", b"-1", b"1e999", b'"\\ud800"', b'""', b"true"])
    ),
)
def test_mutated_bytes_give_clean_errors_or_a_study_of_their_own(start: int, length: int, new: bytes):
    data = BYTES[:start] + new + BYTES[start + length :]
    study = read_foreign(data)
    assert (study == STUDY) == (data == BYTES)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(SMALL)),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 8),
    st.one_of(st.binary(max_size=4), st.sampled_from([b"null", b"[]", b"{}", b"-1", b"7", b'"x"', b"[0,0]", b"true"])),
)
def test_mutated_bytes_of_compounds_and_peers_give_clean_errors(name: str, where: float, length: int, new: bytes):
    whole = SMALL_BYTES[name]
    start = int(where * len(whole))
    data = whole[:start] + new + whole[start + length :]
    study = read_foreign(data)
    assert (study == SMALL[name]) == (data == whole)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([BYTES, *SMALL_BYTES.values()]), st.data())
def test_any_value_in_any_place_gives_a_clean_error(whole: bytes, data: st.DataObject):
    document = json.loads(whole)
    node, key = document, data.draw(st.sampled_from(sorted(document)))
    while isinstance(node[key], dict | list) and node[key] and data.draw(st.booleans()):
        node = node[key]
        key = data.draw(st.sampled_from(sorted(node)) if isinstance(node, dict) else st.integers(0, len(node) - 1))
    node[key] = data.draw(json_values)
    read_foreign(rfc8785.dumps(document))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | json_values.map(rfc8785.dumps))
def test_anything_at_all_gives_a_clean_error(data: bytes):
    for read_bytes in (canonical.from_bytes, parse_approval):
        with pytest.raises(PeerFault) as caught:
            read_bytes(data)
        assert caught.value.code == "MESSAGE_INVALID"


@given(st.floats(0.05, 3.0), st.floats(0.05, 3.0))
def test_two_different_matrices_have_two_digests(first: float, second: float):
    digests = {
        canonical.digest(
            STUDY.with_declaration(
                {1: dataclasses.replace(STUDY.units[1], transition=quantize(symmetric(2, epsilon=epsilon)))}
            )
        )
        for epsilon in (first, second)
    }
    same = quantize(symmetric(2, epsilon=first)) == quantize(symmetric(2, epsilon=second))
    assert len(digests) == (1 if same else 2)


PARTIES = frozenset({"a", "b", "c"})
subsets = st.frozensets(st.sampled_from(sorted(PARTIES)))
facts = st.builds(
    Facts,
    parties=st.just(PARTIES),
    offered=st.booleans(),
    approvals=subsets,
    denials=st.just(frozenset()) | subsets,
    pseudonyms=subsets,
    aligned=st.booleans(),
    confirmed=subsets,
    units_expected=st.just(4),
    units_received=st.integers(0, 4),
    uploading=st.booleans(),
    learning=st.booleans(),
    review=st.booleans(),
    published=st.booleans(),
    failure=st.none() | st.just("INTERNAL"),
    withdrawn=st.booleans(),
    expired=st.booleans(),
)


@settings(max_examples=300)
@given(facts, facts)
def test_more_facts_never_lead_back(one: Facts, other: Facts):
    union = {
        field.name: a | b if isinstance(a, frozenset | bool) else max(a, b) if isinstance(a, int) else a or b
        for field in dataclasses.fields(Facts)
        for a, b in [(getattr(one, field.name), getattr(other, field.name))]
    }
    before, after = derive(one), derive(Facts(**union))
    if not is_final(before):
        assert is_final(after) or after >= before
    else:
        assert is_final(after)
    if before is State.PUBLISHED:
        assert after is State.PUBLISHED

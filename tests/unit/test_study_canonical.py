"""The bytes of a study: one form, one digest, and nothing else gets in."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.record import MAX_BYTES
from verticil.shared.mechanisms.transition import binary, quantize
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study import canonical
from verticil.shared.study.document import GeneticRule, LinkageRule, ParameterRule, ReleaseRule, StructureRule, Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.unit import Unit

EXAMPLE = Path(__file__).parents[1] / "vectors" / "study_example.toml"

TINY = Study(
    id="tiny",
    title="Tiny",
    purpose="By hand",
    model="central",
    expires=dt.date(2030, 1, 2),
    parties=("a",),
    linkage=LinkageRule(mode="keyed-hash", normalise=("trim",), minimum_common_records=5),
    schema=Schema(variables=(Variable(name="x", owner="a", labels=("no", "yes")),)),
    units=(Unit(variables=("x",), owner="a", scheme="binary", transition=quantize(binary(0.25, 0.5))),),
    structure=StructureRule(
        method="genetic",
        score="mutual-information",
        max_parents=2,
        max_family_cells=100,
        seed=7,
        required=(),
        forbidden=(),
        genetic=GeneticRule(),
    ),
    parameters=ParameterRule(estimator="em", prior_count=0.5, interval_level=0.95),
    release=ReleaseRule(synthetic_records=None, seed=1),
)

# Written by hand: keys sorted, numbers as RFC 8785 has them, 2^64 = 18446744073709551616 split as 3/4, 1/4 and 1/2, 1/2.
TINY_BYTES = (
    b'{"expires":"2030-01-02","id":"tiny",'
    b'"linkage":{"minimum_common_records":5,"mode":"keyed-hash","normalise":["trim"]},"model":"central",'
    b'"parameters":{"estimator":"em","interval_level":0.95,"prior_count":0.5},"parties":["a"],"purpose":"By hand",'
    b'"release":{"seed":1,"synthetic_records":null},"schema":1,'
    b'"structure":{"forbidden":[],"genetic":{"generations":400,"mutation_rate":null,"population":200,"selected":10},'
    b'"max_family_cells":100,"max_parents":2,"method":"genetic","required":[],"score":"mutual-information","seed":7},'
    b'"title":"Tiny","units":[{"matrix":[["13835058055282163712","4611686018427387904"],'
    b'["9223372036854775808","9223372036854775808"]],"party":"a","scheme":"binary","variables":["x"]}],'
    b'"variables":[{"bins":null,"integer":false,"labels":["no","yes"],"missing":null,"name":"x","other":null,'
    b'"outside":"error","party":"a"}]}'
)


def test_the_bytes_are_those_written_by_hand():
    assert canonical.to_bytes(TINY) == TINY_BYTES
    assert canonical.digest(TINY) == hashlib.sha256(TINY_BYTES).digest()
    assert canonical.from_bytes(TINY_BYTES) == TINY


def test_the_example_comes_back_equal():
    study = read_study(EXAMPLE)
    data = canonical.to_bytes(study)
    again = canonical.from_bytes(data)
    assert again == study
    assert canonical.to_bytes(again) == data
    assert canonical.digest(again) == canonical.digest(study)


def test_everything_that_means_something_enters_the_digest():
    study = read_study(EXAMPLE)
    labels = study.schema[1]
    swapped = dataclasses.replace(labels, labels=tuple(reversed(labels.labels)))
    variants = [
        dataclasses.replace(study, expires=dt.date(2099, 12, 30)),
        dataclasses.replace(study, parties=tuple(reversed(study.parties))),
        dataclasses.replace(study, schema=Schema(variables=(study.schema[0], swapped, *study.schema.variables[2:]))),
        dataclasses.replace(study, structure=dataclasses.replace(study.structure, seed=8)),
        dataclasses.replace(study, linkage=dataclasses.replace(study.linkage, minimum_common_records=999)),
    ]
    digests = {canonical.digest(variant) for variant in [study, *variants]}
    assert len(digests) == len(variants) + 1


Document = dict[str, Any]


def edit(change: Callable[[Document], object]) -> bytes:
    value = json.loads(TINY_BYTES)
    change(value)
    return rfc8785.dumps(value)


def at(value: Document, *path: str | int) -> Document:
    for step in path:
        value = value[step]  # type: ignore[index,assignment]
    return value


def put(*path: str | int, to: Any) -> Callable[[Document], object]:
    return lambda value: at(value, *path[:-1]).__setitem__(path[-1], to)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a JSON document"),
        (b"\xff", "not a JSON document"),
        (b"[]", "expected a JSON object"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a":1,"a":2}', "a key is repeated"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b"9" * 5000, "not a JSON document"),
        (TINY_BYTES + b" ", "not in canonical form"),
        (TINY_BYTES.replace(b'"id":"tiny",', b'"id": "tiny",'), "not in canonical form"),
        (TINY_BYTES.replace(b"0.95", b"0.950"), "not in canonical form"),
        (edit(put("extra", to=1)), "extra: unknown key"),
        (edit(put("variables", 0, "kind", to="x")), "variables[1].kind: unknown key"),
        (edit(put("variables", 0, "labels", to=["no"])), "1 categories, expected 2"),
        (edit(put("variables", 0, "labels", to=["no", "no"])), "declared twice"),
        (edit(put("variables", 0, "labels", to=["no", "y\u0007s"])), "U+0007"),
        (edit(put("variables", 0, "bins", to=[0, 1, 2])), "the categories are not those of its bins"),
        (edit(put("variables", 0, "party", to="b")), "'b' is not a [[party]]"),
        (edit(put("units", 0, "party", to="b")), "is randomized by 'b'"),
        (edit(put("units", 0, "scheme", to="none")), "not one of the scheme 'none'"),
        (edit(put("units", 0, "scheme", to="symmetric")), "not one of the scheme 'symmetric'"),
        (edit(put("units", 0, "scheme", to="subset")), "subset selection goes with the scheme 'subset'"),
        (edit(put("units", 0, "subset", to={"n_states": 8, "size": 2, "weight": "1"})), "more often than by chance"),
        (edit(put("units", 0, "subset", to={"n_states": 9000, "size": 2, "weight": str(2**63)})), "got 9000"),
        (edit(put("units", 0, "impossible", to=[[0]])), "goes with several variables"),
        (edit(put("units", 0, "impossible", to=[[0, 0]])), "not one code for each of the variables"),
        (edit(put("units", 0, "impossible", to=[["no"]])), "impossible[1]: expected a list of whole numbers"),
        (edit(put("units", 0, "variables", to=["y"])), "the units do not hold every variable once"),
        (edit(put("units", 0, "variables", to=["x", "x"])), "the units do not hold every variable once"),
        (edit(put("units", to=[])), "the units do not hold every variable once"),
        (edit(put("units", 0, "matrix", to=[])), "at least one row"),
        (edit(put("units", 0, "matrix", 0, 0, to="-1")), "a weight is not"),
        (edit(put("units", 0, "matrix", 0, 0, to="01")), "a weight is not"),
        (edit(put("units", 0, "matrix", 0, 0, to="\u0661")), "a weight is not"),
        (edit(put("units", 0, "matrix", 0, 0, to=1)), "a weight is not"),
        (edit(put("units", 0, "matrix", 0, 0, to="1")), "sum to"),
        (edit(put("units", 0, "matrix", 0, to=["9223372036854775808"] * 2)), "condition number"),
        (edit(put("units", 0, "matrix", to=[["1"]] * 1000)), "expected at most 700000 cells"),
        (edit(put("expires", to="2030-02-30")), "expires: expected a date"),
        (edit(put("expires", to="20300102")), "expires: expected a date"),
        (edit(put("model", to="peer")), "share: missing, expected what is done before"),
        (
            edit(put("share", to={"delta": None, "epsilon": None, "minimum_count": 0})),
            "share: does not go with the model 'central'",
        ),
        (edit(put("structure", "parents", to=[["x", []]])), "'parents' go with the method 'given'"),
        (edit(put("structure", "parents", to=["x"])), "parents[1]: got a string, expected a list"),
        (edit(put("structure", "parents", to=[["x", [1]]])), "parents[1][2]: got a list, expected a list of strings"),
        (edit(put("structure", "method", to="given")), "'parents' go with the method 'given'"),
        (edit(put("structure", "seed", to=1.5)), "structure.seed: got a number"),
        (edit(put("structure", "seed", to=True)), "structure.seed: got true/false"),
        (edit(put("structure", "genetic", "population", to=10**9)), "population: got"),
        (edit(put("parameters", "prior_count", to=0)), "prior_count: got 0"),
        (edit(put("schema", to=2)), "schema: got 2"),
        (edit(lambda value: value.pop("id")), "id: missing"),
    ],
)
def test_foreign_bytes_are_refused_cleanly(data: bytes, words: str):
    with pytest.raises(PeerFault) as caught:
        canonical.from_bytes(data)
    assert caught.value.code == "MESSAGE_INVALID"
    assert words in caught.value.message


def test_sizes_are_limited():
    with pytest.raises(PeerFault, match="expected at most 16777216"):
        canonical.from_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(PeerFault, match="expected at most 1024"):
        canonical.from_bytes(edit(put("variables", to=[{}] * 1025)))


def test_the_callers_own_document_is_its_own_fault():
    with pytest.raises(Misuse) as caught:
        canonical.from_bytes(b"{}", source="stored study", wire=False)
    assert caught.value.code == "STUDY_INVALID"
    assert caught.value.message.startswith("stored study:")


def test_foreign_text_in_a_message_is_short_and_printable():
    with pytest.raises(PeerFault) as caught:
        canonical.from_bytes(edit(put("structure", "method", to="\u001b[31m" + "x" * 100_000)))
    assert len(caught.value.message) <= 500
    assert caught.value.message.isprintable()

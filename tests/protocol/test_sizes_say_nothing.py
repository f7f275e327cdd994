"""What peers send each other is as long as the study says: two federations that differ in values alone send the same lengths.

A relay at the miner, and whoever watches a line, sees how long sealed messages are. `Stepped` runs each protocol in one process.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.stepping import NAMES, REVIEWED, Stepped
from verticil.shared.federation.identity.padding import pad
from verticil.wire.v1 import common_pb2

LAST = {
    "central": {REVIEWED: lambda done, seen: done.reviewed},
    "peer": {"sign": lambda done, seen: "get_signature" in seen.streams},
    "exact": {"sign": lambda done, seen: "get_signature" in seen.streams},
    "masked": {
        "mask": lambda done, seen: done.masked,
        "open": lambda done, seen: done.shared,
        REVIEWED: lambda done, seen: done.reviewed,
    },
}


def lengths(federation: Stepped) -> Mapping[str, list[tuple[str, int]]]:
    """Of everything that a party gave its peers, and of every sealed message of a round, also to the miner."""
    copies = federation.stops(LAST[federation.protocol])
    found = {name: list(federation.seen[name].sizes) for name in NAMES}
    for name, folder in itertools.product(NAMES, [*copies.values(), federation.root]):
        found[name] += [(path.name, path.stat().st_size) for path in sorted(folder.glob(f"{name}/state/**/sent/*"))]
    return found


@pytest.mark.parametrize(
    "protocol", ["peer", "exact", *(pytest.param(name, marks=pytest.mark.slow) for name in ("central", "masked"))]
)
def test_lengths_of_messages_between_peers_do_not_depend_on_values(protocol: str, tmp_path: Path) -> None:
    one = Stepped(tmp_path / "one", protocol)
    other = one.twin(tmp_path / "other", seed=1)
    assert (one.root / "north" / "people.csv").read_text() != (other.root / "north" / "people.csv").read_text()
    first, second = lengths(one), lengths(other)
    for name in NAMES:
        if protocol == "masked":  # which messages lay there at a moment depends on the machine's speed
            there = {kind for kind, _ in first[name]} & {kind for kind, _ in second[name]} - {"list_masked"}
            sizes = [{item for item in found[name] if item[0] in there} for found in (first, second)]
            assert len(there) > 20
            assert sizes[0] == sizes[1]
        else:
            assert sorted(first[name]) == sorted(second[name]), (protocol, name)
    kinds = {kind for sizes in first.values() for kind, _ in sizes}
    assert {
        "central": kinds == set(),
        "peer": {"get_pseudonyms", "get_column", "get_parameters", "get_signature"} <= kinds,
        "exact": {"get_column", "get_parameters", "get_signature"} <= kinds,
        "masked": "get_masked" in kinds,
    }[protocol]


NUMBERS = [0, 1, 7, -1.0, 0.1, 1 / 3, -1.2345678901234567e-300, None, True, False, 2**53]


@pytest.mark.parametrize("length", [1, 60, 126, 127, 700, 16_300])
def test_a_signed_document_is_as_long_as_with_the_widest_numbers(length: int) -> None:
    """Also where the lengths of body and padding need another byte, and where the limit ends it."""

    def signed(number: object) -> common_pb2.Signed:
        body = json.dumps({"a": [number] * length, "b": "text"}, separators=(",", ":")).encode()
        return common_pb2.Signed(body=body, signature=b"s" * 64, certificate=b"c")

    longest = max(len(signed(number).body) for number in NUMBERS)
    for limit in (1 << 25, longest):
        made = [pad(signed(number), limit_bytes=limit) for number in NUMBERS]
        assert len({item.ByteSize() for item in made}) == 1
        again = [common_pb2.Signed.FromString(item.SerializeToString()) for item in made]
        assert [item.body for item in again] == [signed(number).body for number in NUMBERS]


def test_no_size_is_left_out_by_the_length_of_a_length() -> None:
    from verticil.shared.federation.identity.padding import _fields_of

    for size in itertools.chain(range(2, 400), range(16_380, 16_400)):
        assert common_pb2.Signed(padding=_fields_of(size)).ByteSize() == size

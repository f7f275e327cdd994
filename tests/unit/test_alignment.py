"""Intersection of pseudonym lists, against Python's own sets and sorting."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verticil.miner.storage.linkage import first_disorder, intersect

# Few different bytes, zero and 0x80 among them: collisions are frequent, and trailing zeros and signs would show.
pseudonym = st.lists(st.sampled_from([0, 1, 127, 128, 255]), min_size=16, max_size=16).map(bytes)
sparse = st.builds(
    lambda first, last: bytes([first]) + bytes(14) + bytes([last]), st.integers(0, 255), st.sampled_from([0, 128])
)
some_lists = st.lists(st.sets(pseudonym | sparse, max_size=40), min_size=1, max_size=4)


def as_array(items) -> np.ndarray:
    return np.array(sorted(items), dtype="S16")


def bits(bitmap: bytes, n: int) -> list[bool]:
    return [bool(bitmap[i // 8] >> (i % 8) & 1) for i in range(n)]


@settings(max_examples=200, deadline=None)
@given(lists=some_lists)
def test_the_common_people_are_those_of_pythons_sets(lists):
    alignment = intersect([as_array(items) for items in lists])
    common = sorted(set.intersection(*lists))
    assert alignment.n_common == len(common)
    assert alignment.common_sha256 == hashlib.sha256(b"".join(common)).digest()
    for items, bitmap in zip(lists, alignment.bitmaps, strict=True):
        ordered = sorted(items)
        assert len(bitmap) == -(-len(ordered) // 8)
        assert [item for item, chosen in zip(ordered, bits(bitmap, len(ordered)), strict=True) if chosen] == common
        assert not any(bits(bitmap, 8 * len(bitmap))[len(ordered) :])


@settings(max_examples=200, deadline=None)
@given(items=st.lists(pseudonym | sparse, max_size=30))
def test_disorder_is_found_where_it_is(items):
    expected = next((i for i in range(1, len(items)) if items[i] <= items[i - 1]), None)
    assert first_disorder(np.array(items, dtype="S16")) == expected


def test_lists_out_of_order_are_not_intersected():
    good = as_array([bytes([i]) * 16 for i in range(5)])
    with pytest.raises(ValueError, match="list 1 is not strictly ascending"):
        intersect([good, good[::-1]])
    with pytest.raises(ValueError, match="no list"):
        intersect([])


def test_lists_longer_than_a_block_are_whole(monkeypatch):
    from verticil.miner.storage import linkage as module

    monkeypatch.setattr(module, "_BLOCK", 7)
    one = {hashlib.sha256(bytes([i])).digest()[:16] for i in range(100)}
    two = {hashlib.sha256(bytes([i])).digest()[:16] for i in range(50, 150)}
    assert intersect([as_array(one), as_array(two)]).n_common == 50
    ordered = as_array(one)
    assert first_disorder(ordered) is None
    assert first_disorder(np.concatenate([ordered, ordered[-1:]])) == 100

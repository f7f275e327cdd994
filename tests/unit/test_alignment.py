"""Intersection of pseudonym lists, against Python's own sets and sorting."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verticil.miner.storage import linkage as module
from verticil.miner.storage.linkage import first_disorder, intersect, intersect_tokens, repeated_tokens
from verticil.shared.storage import sorting

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


@pytest.fixture(params=[3, 1 << 16])
def blocks(request, monkeypatch):
    """Lists of many blocks, and of one; tokens in many sorted runs, and in memory."""
    monkeypatch.setattr(module, "_BLOCK", request.param)
    monkeypatch.setattr(module, "_TOKENS_IN_MEMORY", 3 * request.param)
    monkeypatch.setattr(sorting, "_LEAST_OF_A_RUN", 2)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lists=some_lists)
def test_the_common_people_are_those_of_pythons_sets(blocks, lists):
    check(lists, [sorted(items) for items in lists], intersect([as_array(items) for items in lists]))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lists=some_lists, seed=st.integers(0, 2**32 - 1))
def test_tokens_in_their_owners_order_are_intersected_too(blocks, tmp_path, lists, seed):
    generator = np.random.default_rng(seed)
    listed = [[sorted(items)[i] for i in generator.permutation(len(items))] for items in lists]
    found = intersect_tokens([np.array(items, dtype="S16") for items in listed], folder=tmp_path)
    check(lists, listed, found)
    assert list(tmp_path.iterdir()) == []


def check(lists, listed, alignment):
    common = sorted(set.intersection(*lists))
    assert alignment.n_common == len(common)
    assert alignment.common_sha256 == hashlib.sha256(b"".join(common)).digest()
    for ordered, bitmap in zip(listed, alignment.bitmaps, strict=True):
        assert len(bitmap) == -(-len(ordered) // 8)
        chosen = [item for item, marked in zip(ordered, bits(bitmap, len(ordered)), strict=True) if marked]
        assert sorted(chosen) == common
        assert not any(bits(bitmap, 8 * len(bitmap))[len(ordered) :])


@settings(max_examples=200, deadline=None)
@given(items=st.lists(pseudonym | sparse, max_size=30))
def test_disorder_is_found_where_it_is(items):
    expected = next((i for i in range(1, len(items)) if items[i] <= items[i - 1]), None)
    assert first_disorder(np.array(items, dtype="S16")) == expected


@pytest.mark.parametrize("at", range(1, 10))
def test_lists_out_of_order_are_not_intersected(blocks, tmp_path, at):
    """Anywhere: in a block, between two, behind the last one that the lists have in common."""
    good = as_array([bytes([i]) * 16 for i in range(10)])
    turned = good.copy()
    turned[[at - 1, at]] = good[[at, at - 1]]
    for one, other, number in ((good, turned, 1), (turned, good, 0), (good[:2], turned, 1)):
        with pytest.raises(ValueError, match=f"list {number} is not strictly ascending"):
            intersect([one, other])
    twice = np.concatenate([good, good[at : at + 1]])
    with pytest.raises(ValueError, match="list 1 has a token twice"):
        intersect_tokens([good[::-1], twice], folder=tmp_path)
    for nothing in (lambda: intersect([]), lambda: intersect_tokens([], folder=tmp_path)):
        with pytest.raises(ValueError, match="no list"):
            nothing()


@pytest.mark.parametrize("memory", [1 << 20, 7, 50])
def test_repeated_tokens_are_counted_outside_memory_as_inside(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a set of Python counts them; also where all are one, and where there is none."""
    monkeypatch.setattr(module, "_TOKENS_IN_MEMORY", memory)
    monkeypatch.setattr(sorting, "_LEAST_OF_A_RUN", 3)
    generator = np.random.default_rng(0)
    for numbers in (generator.integers(0, 60, 100), generator.permutation(100), np.zeros(40, dtype=int), np.empty(0)):
        tokens = np.array([b"%032d" % n for n in numbers.astype(int).tolist()], dtype="S32")
        assert repeated_tokens(tokens, folder=tmp_path) == len(tokens) - len(set(tokens.tolist()))


def test_lists_longer_than_a_block_are_whole(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 7)
    one = {hashlib.sha256(bytes([i])).digest()[:16] for i in range(100)}
    two = {hashlib.sha256(bytes([i])).digest()[:16] for i in range(50, 150)}
    assert intersect([as_array(one), as_array(two)]).n_common == 50
    ordered = as_array(one)
    assert first_disorder(ordered) is None
    assert first_disorder(np.concatenate([ordered, ordered[-1:]])) == 100

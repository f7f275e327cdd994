"""dh-psi finds exactly the people whom all parties have, whatever the tables: the whole computation without a wire."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.linking import seeds
from verticil.miner.storage.linkage import intersect_tokens
from verticil.party.dataset.blinding import BlindingKey, blind_seeds, blind_tokens
from verticil.shared.federation.alignment.statements import sender

KEYS = [BlindingKey(bytes([0x11 * (number + 1)]) * 32) for number in range(4)]
TABLES = st.lists(
    st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=12, unique=True), min_size=2, max_size=4
)


@pytest.mark.whole
@settings(max_examples=20, deadline=None)
@given(tables=TABLES, shared=st.lists(st.text(min_size=1, max_size=5), max_size=6, unique=True))
def test_the_common_people_are_the_intersection_in_one_order_at_all_parties(tables, shared):
    tables = [list(dict.fromkeys([*table, *shared])) for table in tables]
    parties = tuple("abcd"[: len(tables)])
    full: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    for owner, table in enumerate(tables):
        values, where = seeds(bytes(32), b"s" * 32, table)
        tokens = np.frombuffer(blind_seeds(KEYS[owner], values.tobytes()), dtype="S32")
        order = np.argsort(tokens)
        hops = [KEYS[parties.index(sender(parties, owner, hop))] for hop in range(1, len(parties))]
        data = functools.reduce(lambda made, key: blind_tokens(key, made), hops, tokens[order].tobytes())
        full.append(np.frombuffer(data, dtype="S32"))
        rows.append(where[order])
    found = intersect_tokens(full, folder=Path())
    expected = set.intersection(*(set(table) for table in tables))
    assert found.n_common == len(expected)
    people = []
    for table, tokens, where, bitmap in zip(tables, full, rows, found.bitmaps, strict=True):
        marked = np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")[: len(tokens)])
        order = np.argsort(tokens[marked])
        assert hashlib.sha256(tokens[marked][order].tobytes()).digest() == found.common_sha256
        people.append([table[row] for row in where[marked[order]]])
    assert all(order == people[0] for order in people)
    assert set(people[0]) == expected

"""What peers tell of blinded lists (dh-psi) is refused unless it is right, and nothing but the stated error comes of it."""

from __future__ import annotations

import datetime as dt
import functools
import struct
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from verticil.party.dataset.blinding import TOKEN_BYTES
from verticil.party.protocol.with_peers.blinded_lists import (
    POSITION_BYTES,
    check_steps,
    list_problem,
    positions_problem,
)
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.alignment.statements import check_statement
from verticil.wire.v1 import common_pb2, peer_pb2

TOKENS = st.sampled_from(
    [
        bytes(TOKEN_BYTES),
        bytes(31) + b"\x01",
        b"\x01" + bytes(31),
        b"\x80" + bytes(31),
        b"\xff" * 31 + b"\x00",
        b"\xff" * 32,
    ]
) | st.binary(min_size=TOKEN_BYTES, max_size=TOKEN_BYTES)
LISTS = st.lists(TOKENS, max_size=8)
LIST_BYTES = st.builds(b"".join, LISTS) | st.builds(b"".join, st.builds(sorted, LISTS)) | st.binary(max_size=100)
SIGNED = st.builds(
    common_pb2.Signed,
    body=st.binary(max_size=40),
    signature=st.binary(max_size=70),
    certificate=st.binary(max_size=40),
)
STEPS = st.builds(
    peer_pb2.BlindedStep,
    size=st.integers(0, 2**64 - 1),
    sha256=st.binary(max_size=40),
    statement=SIGNED,
)


@settings(max_examples=200, deadline=None)
@given(data=LIST_BYTES)
def test_a_list_passes_if_and_only_if_it_is_ascending_tokens_and_none_twice(data):
    tokens = [data[at : at + TOKEN_BYTES] for at in range(0, len(data), TOKEN_BYTES)]
    right = (
        len(data) % TOKEN_BYTES == 0
        and all(one < next_one for one, next_one in pairwise(tokens))
        and bytes(TOKEN_BYTES) not in tokens
    )
    assert (list_problem(data) == "") == right


@settings(max_examples=200, deadline=None)
@given(
    told=st.lists(st.integers(0, 12) | st.integers(0, 2**32 - 1), max_size=8),
    rest=st.binary(max_size=3),
    n_tokens=st.integers(0, 12),
    n_common=st.integers(0, 8),
)
def test_places_pass_if_and_only_if_each_is_in_the_list_and_none_twice(told, rest, n_tokens, n_common):
    data = struct.pack(f"<{len(told)}I", *told) + rest
    right = (
        len(data) == POSITION_BYTES * n_common
        and all(place < n_tokens for place in told)
        and len(set(told)) == len(told)
    )
    assert (positions_problem(data, n_tokens=n_tokens, n_common=n_common) == "") == right


@settings(max_examples=100, deadline=None)
@example(told=[peer_pb2.BlindedStep(size=2**53)], owner=0, hop=0, authority=b"")
@given(
    told=st.lists(STEPS, max_size=4),
    owner=st.integers(0, 2),
    hop=st.integers(0, 2),
    authority=st.binary(max_size=40),
)
def test_steps_that_nobody_signed_are_refused_as_a_peers_fault(told, owner, hop, authority):
    try:
        check_steps(
            told,
            parties=("north", "south", "west"),
            study=bytes(32),
            owner=owner,
            hop=hop,
            check=functools.partial(check_statement, authority=authority, at=dt.datetime(2026, 11, 21, tzinfo=dt.UTC)),
        )
    except PeerFault as fault:
        assert fault.code == "MESSAGE_INVALID"  # noqa: PT017 (whatever else is raised is a fault of ours)
    else:
        raise AssertionError("a list passed that nobody signed")

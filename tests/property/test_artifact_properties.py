"""Every sequence of codes survives packing; arbitrary foreign bytes are either exactly an artifact or refused."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from verticil.shared.core.errors import PeerFault
from verticil.shared.numerics.model.artifact import pack, packed_size, unpack


@st.composite
def columns(draw):
    n_states = draw(st.one_of(st.integers(2, 300), st.integers(2, 65536)))
    codes = draw(st.lists(st.integers(0, n_states - 1), max_size=70))
    return np.array(codes, dtype=np.uint8 if n_states <= 256 else np.uint16), n_states


@given(columns())
def test_round_trip(column):
    codes, n_states = column
    artifact = pack(codes, n_states)
    assert len(artifact) == packed_size(len(codes), n_states)
    assert unpack(artifact, n_states, len(codes)).tolist() == codes.tolist()


@given(columns(), st.data())
def test_changed_bytes_give_other_codes_or_are_refused(column, data):
    """An artifact is canonical: whatever `unpack` accepts, `pack` writes again byte for byte."""
    codes, n_states = column
    artifact = bytearray(pack(codes, n_states))
    position = data.draw(st.integers(0, len(artifact) - 1))
    artifact[position] ^= data.draw(st.integers(1, 255))
    try:
        other = unpack(bytes(artifact), n_states, len(codes))
    except PeerFault as fault:
        assert fault.code == "ARTIFACT_INVALID"  # noqa: PT017  either outcome is right, none may be another error
    else:
        assert pack(other, n_states) == bytes(artifact)
        assert other.tolist() != codes.tolist()


@given(st.binary(max_size=80), st.integers(2, 65536), st.integers(0, 40))
def test_arbitrary_bytes_raise_nothing_else(raw, n_states, n_expected):
    try:
        codes = unpack(raw, n_states, n_expected)
    except PeerFault as fault:
        assert fault.code == "ARTIFACT_INVALID"  # noqa: PT017  see above
    else:
        assert pack(codes, n_states) == raw

"""The artifact's bytes against a packer that works on one Python integer, and foreign bytes that must be refused."""

import numpy as np
import pytest

from verticil.shared.core.errors import PeerFault
from verticil.shared.numerics.model.artifact import HEADER_BYTES, bits_per_code, pack, packed_size, unpack

STATES = sorted(
    {2, 3, 4, 5, 7, 8, 9, 16, 17, 255, 256, 257, *(2**b for b in range(9, 17)), *(2**b + 1 for b in range(9, 16))}
)
SIZES = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 64, 1001]


def draw(n, n_states, seed=0):
    dtype = np.uint8 if n_states <= 256 else np.uint16
    return np.random.default_rng(seed).integers(0, n_states, n).astype(dtype)


def reference(codes, n_states):
    """The contract's words, literally: bit p of the stream is bit p mod 8 of byte p // 8, as one little-endian integer."""
    bits = next(b for b in range(1, 17) if 2**b >= n_states)
    stream = sum(int(code) << (bits * i) for i, code in enumerate(codes))
    header = b"VTC1" + bytes([bits, 0, 0, 0]) + len(codes).to_bytes(8, "little")
    return header + stream.to_bytes((bits * len(codes) + 7) // 8, "little")


@pytest.mark.parametrize("n_states", STATES)
def test_feature_33_bytes_are_those_of_the_contract(n_states):
    for n in SIZES:
        codes = draw(n, n_states, seed=n)
        artifact = pack(codes, n_states)
        assert artifact == reference(codes, n_states)
        assert len(artifact) == packed_size(n, n_states)
        again = unpack(memoryview(artifact), n_states, n)
        assert again.dtype == codes.dtype
        assert again.tolist() == codes.tolist()


@pytest.mark.parametrize("n_states", [2, 5, 200, 300, 65536])
def test_more_codes_than_one_part(n_states):
    n = 2 * (1 << 18) + 13
    codes = draw(n, n_states)
    artifact = pack(codes, n_states)
    assert (unpack(artifact, n_states, n) == codes).all()
    # The tail behind the last whole part, against the reference of these codes alone: parts begin at a byte.
    assert (
        artifact[-len(reference(codes[-13:], n_states)) + HEADER_BYTES :]
        == reference(codes[-13:], n_states)[HEADER_BYTES:]
    )


def test_wide_codes_of_few_categories_pack_as_narrow_ones():
    codes = draw(100, 5)
    assert pack(codes.astype(np.uint16), 5) == pack(codes, 5)


def damaged(at, value, n_states=5, n=21):
    artifact = bytearray(pack(draw(n, n_states), n_states))
    artifact[at] = value
    return bytes(artifact)


def beyond(position, code, n=21):
    """An artifact of 5 categories with one code that is none of them: packed as if there were 8."""
    codes = draw(n, 5)
    codes[position] = code
    return pack(codes, 8)


GOOD = pack(draw(21, 5), 5)


@pytest.mark.parametrize(
    ("artifact", "problem"),
    [
        (b"", "0 bytes"),
        (GOOD[:-1], "bytes, expected"),
        (GOOD + b"\0", "bytes, expected"),
        (GOOD[:10], "10 bytes"),
        (damaged(0, ord("X")), "header"),
        (damaged(3, ord("2")), "header"),
        (damaged(4, 4), "header"),
        (damaged(5, 1), "header"),
        (damaged(8, 22), "header"),
        (damaged(15, 255), "header"),  # n = 2^63 and more: refused before anything is allocated
        (damaged(-1, 0x80), "padding"),
        (beyond(0, 7), "1 of 21 codes are not less"),
        (beyond(20, 5), "1 of 21 codes are not less"),
    ],
)
def test_foreign_bytes_are_refused(artifact, problem):
    with pytest.raises(PeerFault, match=problem) as caught:
        unpack(artifact, 5, 21)
    assert caught.value.code == "ARTIFACT_INVALID"


def test_every_single_bit_of_header_and_padding_counts():
    n_spare = -21 * 3 % 8
    assert n_spare == 1
    for bit in [*range(8 * HEADER_BYTES), 8 * len(GOOD) - 1]:
        flipped = bytearray(GOOD)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PeerFault):
            unpack(bytes(flipped), 5, 21)


@pytest.mark.parametrize(
    ("codes", "n_states"),
    [
        (np.array([5], dtype=np.uint8), 5),
        (np.array([[0]], dtype=np.uint8), 5),
        (np.array([0], dtype=np.int64), 5),
        (np.array([0], dtype=np.uint8), 1),
        (np.array([0], dtype=np.uint16), 65537),
    ],
)
def test_misuse_of_pack(codes, n_states):
    with pytest.raises(ValueError, match=r"code|categories"):
        pack(codes, n_states)


def test_bits():
    assert [bits_per_code(k) for k in (2, 3, 256, 257, 65535, 65536)] == [1, 2, 8, 9, 16, 16]


# ---- sets: several codes a record


@pytest.mark.parametrize(("n_states", "size"), [(8, 2), (9, 8), (16, 5), (300, 3), (300, 299)])
@pytest.mark.parametrize("n", [0, 1, 2, 101])
def test_sets_are_packed_as_their_codes_one_after_the_other(n_states, size, n):
    generator = np.random.default_rng(n)
    sets = [sorted(generator.permutation(n_states)[:size].tolist()) for _ in range(n)]
    codes = np.array(sets, dtype=np.uint8 if n_states <= 256 else np.uint16).reshape(-1)
    artifact = pack(codes, n_states)
    assert artifact == reference(codes, n_states)
    assert len(artifact) == packed_size(n, n_states, codes_per_record=size)
    assert unpack(artifact, n_states, n, codes_per_record=size).reshape(n, size).tolist() == sets


@pytest.mark.parametrize(
    ("sets", "problem"),
    [
        (
            [[0, 1, 2]] * 4 + [[1, 1, 2]],
            "1 of 5 records are not 3 categories in strictly ascending order, the first is record 4",
        ),
        ([[2, 1, 3]] + [[0, 1, 2]] * 4, "the first is record 0"),
        ([[0, 1, 2], [3, 4, 0], [0, 1, 2], [4, 4, 4], [0, 3, 4]], "2 of 5 records .* the first is record 1"),
        ([[0, 1, 2]] * 4, "bytes, expected 22 for 5 records of 3 times 3 bits"),
        ([[0, 1, 2]] * 6, "bytes, expected 22 for 5 records of 3 times 3 bits"),
        ([[0, 1, 7]] * 5, "5 of 15 codes are not less"),
    ],
)
def test_foreign_sets_are_refused(sets, problem):
    artifact = pack(np.array(sets, dtype=np.uint8).reshape(-1), 8)
    with pytest.raises(PeerFault, match=problem) as caught:
        unpack(artifact, 5, 5, codes_per_record=3)
    assert caught.value.code == "ARTIFACT_INVALID"


def test_sets_are_checked_over_the_border_of_two_parts():
    """Parts are checked by records, whatever the number of codes that are unpacked at a time."""
    n = (1 << 18) // 3 + 5
    codes = np.tile(np.arange(3, dtype=np.uint8), n)
    assert (unpack(pack(codes, 8), 8, n, codes_per_record=3) == codes).all()
    for record in ((1 << 18) // 3 - 1, (1 << 18) // 3, (1 << 18) // 3 + 1, n - 1):
        wrong = codes.copy()
        wrong[3 * record + 1] = 0
        with pytest.raises(PeerFault, match=rf"1 of {n} records .* the first is record {record} "):
            unpack(pack(wrong, 8), 8, n, codes_per_record=3)


def test_a_header_that_counts_records_is_not_one_that_counts_codes():
    artifact = bytearray(pack(np.tile(np.arange(2, dtype=np.uint8), 10), 8))
    artifact[8] = 10
    with pytest.raises(PeerFault, match="the header is not that of 10 records of 2 times 3 bits"):
        unpack(bytes(artifact), 8, 10, codes_per_record=2)

"""The artifact: the released codes of one unit as bytes, bit-packed (contract.md section 3).

    "VTC1"  uint8 bits  3 zero bytes  uint64 little-endian n  |  n codes of `bits` = ceil(log2 K) bits each

The codes are one bit stream, least significant bit first: bit p of the stream is bit p mod 8 of byte p // 8; the last byte is
filled with zeros. One sequence of codes therefore has exactly one artifact, and its SHA-256 names the codes. A unit that releases
a set of w categories per record has n = w codes per record: the members of each set in ascending order, record after record; so
a sequence of sets has exactly one artifact too.

`unpack` reads foreign bytes and trusts nothing in them; it allocates only after the length has been checked against the number
of records that is expected. Packing works on 64-bit words, eight (or four) codes at a time, and on a bounded part at a time.

>>> pack(np.array([1, 4, 2], dtype=np.uint8), 5)[16:].hex()
'a100'
>>> unpack(pack(np.array([1, 4, 2], dtype=np.uint8), 5), 5, 3).tolist()
[1, 4, 2]
>>> unpack(pack(np.array([1, 4, 0, 2], dtype=np.uint8), 5), 5, 2, codes_per_record=2).reshape(2, 2).tolist()
[[1, 4], [0, 2]]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes, give_back
from verticil.shared.core.errors import PeerFault
from verticil.shared.numerics.model.schema import MAX_STATES

Words = NDArray[np.uint64]

MAGIC: Final = b"VTC1"
HEADER_BYTES: Final = 16
_PART: Final = 1 << 18  # codes at a time; a multiple of 8, so that a part begins at a byte


def bits_per_code(n_states: int) -> int:
    """ceil(log2 K), 1 to 16.

    Raises:
        ValueError: K is not 2 to 65,536.

    >>> [bits_per_code(k) for k in (2, 3, 4, 5, 256, 257, 65536)]
    [1, 2, 2, 3, 8, 9, 16]
    """
    if not 2 <= n_states <= MAX_STATES:
        raise ValueError(f"{n_states} categories, expected 2 to {MAX_STATES}")
    return (n_states - 1).bit_length()


def packed_size(n_records: int, n_states: int, *, codes_per_record: int = 1) -> int:
    """Bytes of the artifact of `n_records` records, header included."""
    return HEADER_BYTES + (n_records * codes_per_record * bits_per_code(n_states) + 7) // 8


def pack(codes: Codes, n_states: int) -> bytes:
    """Return the artifact of `codes`.

    Args:
        codes: (n,), uint8 or uint16, each less than `n_states`.
        n_states: K.

    Raises:
        ValueError: shape or dtype does not fit, or a code is not less than K.
    """
    return b"".join(pack_parts([codes], codes.size, n_states))


def pack_parts(parts: Iterable[Codes], n_codes: int, n_states: int) -> Iterator[bytes]:
    """Return the artifact of codes that come in parts, piece by piece.

    Args:
        parts: as `pack` has them; of each but the last a multiple of 8 codes.
        n_codes: of all parts.
        n_states: K.

    Raises:
        ValueError: as `pack`; the parts are not of so many codes.
    """
    bits, n_done = bits_per_code(n_states), 0
    yield _header(bits, n_codes)
    for codes in parts:
        if codes.ndim != 1 or codes.dtype not in (np.dtype(np.uint8), np.dtype(np.uint16)):
            raise ValueError(f"codes {codes.dtype}{codes.shape}, expected uint8 or uint16 of one dimension")
        if codes.size and int(codes.max()) >= n_states:
            raise ValueError(f"a code is not less than the number of categories, {n_states}")
        if n_done % 8:
            raise ValueError(f"{n_done} codes before the last part, expected a multiple of 8")
        n_done += codes.size
        for start in range(0, codes.size, _PART):
            part = codes[start : start + _PART]
            yield _pack_part(part, bits)[: -(-part.size * bits // 8)].tobytes()
    if n_done != n_codes:
        raise ValueError(f"{n_done} codes, expected {n_codes}")


def unpack(
    artifact: bytes | memoryview | NDArray[np.uint8], n_states: int, n_expected: int, *, codes_per_record: int = 1
) -> Codes:
    """Read the codes in an artifact.

    Args:
        artifact: foreign bytes.
        n_states: K of the unit.
        n_expected: number of common records.
        codes_per_record: w of the unit.

    Returns:
        (n_expected * w,), uint8 up to 256 categories, else uint16, each less than K; those of one record strictly ascending.

    Raises:
        PeerFault: ARTIFACT_INVALID: the length, the header, the padding, a code or the order within a record is wrong.
    """
    n_codes, n_done = n_expected * codes_per_record, 0
    codes: Codes = np.empty(n_codes, np.uint8) if bits_per_code(n_states) <= 8 else np.empty(n_codes, np.uint16)
    for part in unpack_parts(artifact, n_states, n_expected, codes_per_record=codes_per_record):
        codes[n_done : n_done + part.size] = part
        n_done += part.size
    return codes


def unpack_parts(
    artifact: bytes | memoryview | NDArray[np.uint8], n_states: int, n_expected: int, *, codes_per_record: int = 1
) -> Iterator[Codes]:
    """Read as `unpack` does, part by part, of whole records; a wrong code is reported when all parts were given."""
    bits = bits_per_code(n_states)
    n_codes = n_expected * codes_per_record
    raw = artifact if isinstance(artifact, np.ndarray) else np.frombuffer(artifact, dtype=np.uint8)
    records = f"{n_expected} records of {bits if codes_per_record == 1 else f'{codes_per_record} times {bits}'} bits"
    if raw.size != (n_bytes := packed_size(n_expected, n_states, codes_per_record=codes_per_record)):
        raise _invalid(f"{raw.size} bytes, expected {n_bytes} for {records}")
    if raw[:HEADER_BYTES].tobytes() != _header(bits, n_codes):
        raise _invalid(f"the header is not that of {records} in format {MAGIC.decode()}")
    body = raw[HEADER_BYTES:]
    spare = -n_codes * bits % 8
    if spare and int(body[-1]) >> (8 - spare):
        raise _invalid(f"the last {spare} bits are padding and not all zero")
    n_wrong = n_disordered = 0
    first = -1
    step = max(_PART // codes_per_record // 8, 1) * 8 * codes_per_record  # a part begins at a byte, and at a record
    for start in range(0, n_codes, step):
        some = body[start * bits // 8 : -(-min(start + step, n_codes) * bits // 8)]
        part = _unpack_part(some, bits)[: n_codes - start]
        give_back(some)
        if n_states < 1 << bits:
            n_wrong += int(np.count_nonzero(part >= n_states))
        if codes_per_record > 1:
            sets = part.reshape(-1, codes_per_record)
            wrong = np.flatnonzero((sets[:, 1:] <= sets[:, :-1]).any(axis=1))
            n_disordered += wrong.size
            first = start // codes_per_record + int(wrong[0]) if wrong.size and first < 0 else first
        yield part
    if n_wrong:
        raise _invalid(f"{n_wrong} of {n_codes} codes are not less than the number of categories, {n_states}")
    if n_disordered:
        raise _invalid(
            f"{n_disordered} of {n_expected} records are not {codes_per_record} categories in strictly ascending order,"
            f" the first is record {first} (counted from 0)"
        )


def _header(bits: int, n_codes: int) -> bytes:
    return MAGIC + bytes((bits, 0, 0, 0)) + n_codes.to_bytes(8, "little")


def _invalid(problem: str) -> PeerFault:
    return PeerFault("ARTIFACT_INVALID", f"artifact: {problem}")


# Both directions work on groups of eight codes, which fill exactly `bits` bytes. A group of uint8 codes is one 64-bit word
# with a code in each byte; `_squeeze` moves neighbouring lanes together, doubling the lane until the word is one lane of
# 8 * bits bits. A group of uint16 codes is two words of four codes, joined afterwards into 8 * bits of 128 bits.


def _pack_part(codes: Codes, bits: int) -> NDArray[np.uint8]:
    lane = 8 if bits <= 8 else 16
    n_groups = -(-codes.size // 8)
    buffer = np.zeros(8 * n_groups, dtype=np.dtype(f"<u{lane // 8}"))
    buffer[: codes.size] = codes
    words = buffer.view("<u8").astype(np.uint64, copy=False)
    if bits < lane:
        words = _squeeze(words, bits, lane)
    if lane == 16 and bits < lane:
        low, high = words[0::2], words[1::2]
        halves = np.empty((n_groups, 2), dtype=np.uint64)
        halves[:, 0] = low | high << np.uint64(4 * bits)
        halves[:, 1] = high >> np.uint64(64 - 4 * bits)
        words = halves.reshape(-1)
    rows = words.astype("<u8", copy=False).view(np.uint8).reshape(n_groups, lane)
    return np.ascontiguousarray(rows[:, :bits]).reshape(-1)


def _unpack_part(data: NDArray[np.uint8], bits: int) -> Codes:
    lane = 8 if bits <= 8 else 16
    n_groups = -(-data.size // bits)
    rows = np.zeros((n_groups, lane), dtype=np.uint8)
    n_whole = data.size // bits
    rows[:n_whole, :bits] = data[: n_whole * bits].reshape(n_whole, bits)
    if n_whole < n_groups:
        rest = data[n_whole * bits :]
        rows[-1, : rest.size] = rest
    words = rows.reshape(-1).view("<u8").astype(np.uint64, copy=False)
    if lane == 16 and bits < lane:
        low, high = words[0::2], words[1::2]
        split = np.empty((n_groups, 2), dtype=np.uint64)
        split[:, 0] = low & np.uint64((1 << 4 * bits) - 1)
        split[:, 1] = low >> np.uint64(4 * bits) | high << np.uint64(64 - 4 * bits)
        words = split.reshape(-1)
    if bits < lane:
        words = _spread(words, bits, lane)
    return (
        words.astype("<u8", copy=False).view(np.dtype(f"<u{lane // 8}")).astype(np.dtype(f"u{lane // 8}"), copy=False)
    )


def _squeeze(words: Words, bits: int, lane: int) -> Words:
    """Lanes of `lane` bits with `bits` used -> one lane of 64 bits with all used bits together."""
    while lane < 64:
        even = _every_other(bits, lane)
        words = (words & even) | (words >> np.uint64(lane - bits) & even << np.uint64(bits))
        bits, lane = 2 * bits, 2 * lane
    return words


def _spread(words: Words, bits: int, lane: int) -> Words:
    """Undo what `_squeeze` did."""
    n_used, wide = bits * (64 // lane), 64
    while wide > lane:
        n_used, wide = n_used // 2, wide // 2
        even = _every_other(n_used, wide)
        words = (words & even) | (words << np.uint64(wide - n_used) & even << np.uint64(wide))
    return words


def _every_other(bits: int, lane: int) -> np.uint64:
    """Return a mask of the low `bits` bits of each even lane."""
    return np.uint64(sum(((1 << bits) - 1) << start for start in range(0, 64, 2 * lane)))

"""Linkage ``keyed-hash``: pseudonyms of record ids, and the common list that the miner's bitmap tells.

A pseudonym is the first 16 bytes of HMAC-SHA-256(linkage key, context ‖ id), where the context holds the digest of the
study's proposal: pseudonyms of two studies cannot be compared. Each party sends its pseudonyms in ascending order, so that
the order of its table does not show; the miner answers with a bitmap over that list and the SHA-256 of the common list. The
party recomputes the digest and does not trust the miner's order (contract.md section 2).

What it reveals: whoever holds the linkage key and sees pseudonyms can look up ids that it can guess; see the contract.

Does not: read ids (see `source`) or the key's file (see `keyfile`).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.macs import Macs, PackedIds
from verticil.shared.core.arrays import taken
from verticil.shared.core.errors import PeerFault, Refusal

PSEUDONYM_BYTES: Final = 16
_ROWS: Final = 1 << 16
_NO_DIGITS: Final = dict.fromkeys(set(range(128)) - set(range(ord("0"), ord("9") + 1)))

NORMALISATIONS: Final[dict[str, Callable[[str], str]]] = {
    "nfkc": lambda text: unicodedata.normalize("NFKC", text),
    "trim": str.strip,
    "casefold": str.casefold,
    "digits-only": lambda text: re.sub("[^0-9]", "", text),
}
"""Steps of `normalise_ids`. None strips leading zeros; digits-only keeps the ASCII digits (after nfkc, also wide ones)."""


def normalise_ids(ids: Iterable[str], steps: Sequence[str]) -> list[str]:
    """Apply the steps to the ids, in order.

    Raises:
        ValueError: a step is unknown.

    >>> normalise_ids([" ００７-ab "], ["nfkc", "trim", "casefold"]), normalise_ids(["00-7"], ["digits-only"])
    (['007-ab'], ['007'])
    """
    unknown = [step for step in steps if step not in NORMALISATIONS]
    if unknown:
        raise ValueError(f"unknown normalisation {unknown}, expected some of {list(NORMALISATIONS)}")
    result = list(ids)
    for step in steps:
        result = [NORMALISATIONS[step](text) for text in result]
    return result


def packed_ids(ids: Sequence[str], steps: Sequence[str]) -> PackedIds:
    """Ids as `normalise_ids` gives them, packed; one with bytes that are no text becomes empty, and names nobody.

    Where all are ASCII, the steps that change nothing there are left out, and no other one takes a regular expression.

    Raises:
        ValueError: a step is unknown.

    >>> packed_ids([" 7A ", "\\udcff", "ﬁ"], ["nfkc", "trim", "casefold"]).texts()
    [b'7a', b'', b'fi']
    """
    if not "".join(ids).isascii():
        return PackedIds.of(normalise_ids(ids, steps))
    normalise_ids((), steps)  # for its error
    texts = ids
    if "trim" in steps:
        texts = list(map(str.strip, texts))
    if "casefold" in steps:
        texts = list(map(str.lower, texts))
    if "digits-only" in steps:
        texts = [text.translate(_NO_DIGITS) for text in texts]
    return PackedIds.of(texts)


def linkage_context(proposal_digest: bytes) -> bytes:
    """Return the study context of pseudonyms: ``verticil/linkage/v1`` ‖ SHA-256 of the proposal.

    Raises:
        ValueError: the digest is not 32 bytes.
    """
    if len(proposal_digest) != 32:
        raise ValueError(f"proposal digest of {len(proposal_digest)} bytes, expected 32")
    return b"verticil/linkage/v1" + proposal_digest


def pseudonym_macs(key: bytes, context: bytes) -> Macs:
    """Return the object that computes the pseudonym of each id.

    Args:
        key: the linkage key, 32 bytes.
        context: see `linkage_context`.

    Raises:
        ValueError: the key is not 32 bytes.
    """
    return Macs(key, prefix=context, size=PSEUDONYM_BYTES)


Keep = Callable[[int, Iterable[NDArray[np.int64]]], NDArray[np.int64]]


def _in_memory(n: int, parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    del n
    whole = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    whole.setflags(write=False)
    return whole


def common_from_bitmap(
    values: NDArray[np.uint8],
    bitmap: bytes | memoryview,
    *,
    expected_sha256: bytes,
    n_common: int,
    minimum: int,
    keep: Keep = _in_memory,
) -> NDArray[np.int64]:
    """Select the own pseudonyms that all parties have, in the common order (ascending).

    Args:
        values: (n, 16), uint8, ascending.
        bitmap: bit i of byte j is pseudonym 8j + i; unused bits of the last byte are 0.
        expected_sha256: of the common pseudonyms one after the other, as the miner tells all parties.
        n_common: number of common records, as the miner tells it.
        minimum: the larger of the study's and the policy's smallest number.
        keep: see `marked_positions`.

    Returns:
        (n_common,), int64, read-only.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH, the miner's answer contradicts this party's own list.
        Refusal: LINKAGE_TOO_SMALL.
    """
    positions = marked_positions(bitmap, n_records=len(values), n_common=n_common, keep=keep)
    if digest_of(values, positions) != expected_sha256:
        raise _mismatch("the marked pseudonyms are not the common list that the miner announced")
    check_common_size(n_common, minimum)
    return positions


def digest_of(values: NDArray[np.uint8], positions: NDArray[np.int64]) -> bytes:
    """SHA-256 of some rows one after the other."""
    digest = hashlib.sha256()
    for start in range(0, len(positions), _ROWS):
        digest.update(taken(values, positions[start : start + _ROWS]).data)
    return digest.digest()


def marked_positions(
    bitmap: bytes | memoryview, *, n_records: int, n_common: int, keep: Keep = _in_memory
) -> NDArray[np.int64]:
    """List the places that a bitmap marks.

    Args:
        bitmap: bit i of byte j is place 8j + i; unused bits of the last byte are 0.
        n_records: length of the list.
        n_common: number of marked places, as the miner tells it.
        keep: makes one array, read-only, of so many places that come in parts.

    Returns:
        (n_common,), int64, ascending, read-only.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH.
    """
    bitmap_bytes = np.frombuffer(bitmap, dtype=np.uint8)
    if bitmap_bytes.size != (n_records + 7) // 8:
        raise _mismatch(f"bitmap of {bitmap_bytes.size} bytes for {n_records} records, expected {(n_records + 7) // 8}")
    if n_records % 8 and bitmap_bytes[-1] >> n_records % 8:
        raise _mismatch("the bitmap marks a record behind the end of the list")
    n_marked = int(np.bitwise_count(bitmap_bytes).sum(dtype=np.int64))
    if n_marked != n_common:
        raise _mismatch(f"the bitmap marks {n_marked} records, the miner reports {n_common}")

    def parts() -> Iterator[NDArray[np.int64]]:
        for start in range(0, bitmap_bytes.size, _ROWS // 8):
            bits = np.unpackbits(bitmap_bytes[start : start + _ROWS // 8], bitorder="little")
            yield 8 * start + np.flatnonzero(bits)

    return keep(n_common, parts())


def check_own_size(n_records: int, minimum: int) -> None:
    """Refuse to link a table that has fewer usable records than must be common; after the approval, of which no count is a part.

    Raises:
        Refusal: LINKAGE_TOO_SMALL.
    """
    if n_records < minimum:
        raise Refusal(
            "LINKAGE_TOO_SMALL",
            f"this party has {n_records} records to link, expected at least {minimum} in common",
            hint="is the table whole? `verticil party check` says which rows are left out",
        )


def check_common_size(n_common: int, minimum: int) -> None:
    """Refuse too few common people.

    Raises:
        Refusal: LINKAGE_TOO_SMALL.
    """
    if n_common < minimum:
        raise Refusal(
            "LINKAGE_TOO_SMALL",
            f"the parties have {n_common} records in common, expected at least {minimum}",
            hint="all parties must use the same linkage key, kind of id and normalisation; nothing was randomized",
        )


def _mismatch(problem: str) -> PeerFault:
    return PeerFault(
        "ALIGNMENT_MISMATCH",
        f"alignment: {problem}",
        hint="nothing was randomized; if it happens again, the miner and this party do not have the same list",
    )

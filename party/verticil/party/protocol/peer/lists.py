"""Lists of pseudonyms as they pass between peers: checked, intersected, and turned into rows of the own table.

A list is the pseudonyms one after the other, 16 bytes each, strictly ascending. Foreign bytes are trusted in nothing. Everything
is done on sorted numbers, without a Python object for each person.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.linkage import PSEUDONYM_BYTES, check_common_size
from verticil.shared.errors import PeerFault

Pseudonyms = NDArray[np.uint8]


def in_common(own: Pseudonyms, told: bytes, *, teller: str, minimum: int) -> bytes:
    """What this party's list has in common with a peer's running list.

    Args:
        own: (n, 16), uint8, strictly ascending.
        told: the peer's list.
        teller: the peer, for messages.
        minimum: fewest common people.

    Returns:
        A list.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH, `told` is not a list.
        Refusal: LINKAGE_TOO_SMALL.
    """
    theirs = _read(told, teller)
    found = own[_member(own, theirs)]
    check_common_size(len(found), minimum)
    return found.tobytes()


def accepted_rows(
    own: Pseudonyms, order: NDArray[np.int64], common: bytes, *, teller: str, running: bytes | None, minimum: int
) -> NDArray[np.int64]:
    """The rows of the own table that stand in the common list, in its order.

    Args:
        own, order: as `verticil.party.dataset.linkage.pseudonyms` returned them.
        common: the common list.
        teller: who told it, for messages.
        running: the list that this party passed on; the common list can only be a part of it. None: it passed none on.
        minimum: fewest common people.

    Returns:
        (n_common,), int64, read-only.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH, it is not a list, or not a part of this party's own or of `running`.
        Refusal: LINKAGE_TOO_SMALL.
    """
    theirs = _read(common, teller)
    check_common_size(len(theirs), minimum)
    for mine, what in (
        (own, "this party's list"),
        (None if running is None else _read(running, "here"), "the list that this party passed on"),
    ):
        if mine is not None and not bool(_member(theirs, mine).all()):
            raise _mismatch(f"the common list of '{teller}' is not a part of {what}")
    rows = order[_member(own, theirs)]
    rows.setflags(write=False)
    return rows


def ordered_rows(root: bytes, order: NDArray[np.int64], common: bytes) -> NDArray[np.int64]:
    """All rows of a table whose order is the one that was agreed on.

    Args:
        root: of the tree over the table's rows as they are.
        order: the rows, one after the other.
        common: the root that all parties have committed to.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH.
    """
    if root != common:
        raise _mismatch("the order of this party's rows is not the one that all parties have committed to")
    return order


def _read(told: bytes, teller: str) -> Pseudonyms:
    if len(told) % PSEUDONYM_BYTES:
        raise _mismatch(f"the list of '{teller}' has {len(told)} bytes, expected {PSEUDONYM_BYTES} for each record")
    values = np.frombuffer(told, dtype=np.uint8).reshape(-1, PSEUDONYM_BYTES)
    high, low = _words(values)
    rising = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
    if not bool(rising.all()):
        raise _mismatch(f"the list of '{teller}' is not in ascending order")
    return values


def _words(values: Pseudonyms) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    # Big-endian, so that numbers order as their bytes do.
    words = np.ascontiguousarray(values).view(">u8").astype(np.uint64).reshape(-1, 2)
    return words[:, 0], words[:, 1]


def _member(values: Pseudonyms, among: Pseudonyms) -> NDArray[np.bool_]:
    """Which of `values` are in `among`; both strictly ascending."""
    if len(values) == 0 or len(among) == 0:
        return np.zeros(len(values), dtype=np.bool_)
    both = np.concatenate([values, among])
    high, low = _words(both)
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    pairs = np.flatnonzero((high[1:] == high[:-1]) & (low[1:] == low[:-1]))
    found = np.zeros(len(both), dtype=np.bool_)
    found[order[pairs]] = True
    found[order[pairs + 1]] = True
    return found[: len(values)]


def sha256_of(values: bytes) -> bytes:
    """What names a list on the wire."""
    return hashlib.sha256(values).digest()


def _mismatch(problem: str) -> PeerFault:
    return PeerFault("ALIGNMENT_MISMATCH", f"alignment: {problem}", hint="nothing was randomized")

"""Lists of pseudonyms as they pass between peers: checked, intersected, and turned into rows of the own table.

A list is the pseudonyms one after the other, 16 bytes each, strictly ascending. Foreign bytes are trusted in nothing. Everything
is done on sorted numbers, without a Python object for each person.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.pseudonyms import PSEUDONYM_BYTES, check_common_size
from verticil.shared.core.errors import PeerFault
from verticil.shared.storage.sorting import keys_of

Pseudonyms = NDArray[np.uint8]


_BLOCK: Final = 1 << 16  # people who are looked at together


def in_common(own: Pseudonyms, peer_list: bytes, *, teller: str, minimum: int) -> bytes:
    """Return what this party's list has in common with a peer's running list.

    Args:
        own: (n, 16), uint8, strictly ascending.
        peer_list: the peer's list.
        teller: the peer, for messages.
        minimum: fewest common people.

    Returns:
        A list.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH, `peer_list` is not a list.
        Refusal: LINKAGE_TOO_SMALL.
    """
    theirs = _read(peer_list, teller)
    common = own[_member(own, theirs)]
    check_common_size(len(common), minimum)
    return common.tobytes()


def accepted_rows(
    own: Pseudonyms, common: bytes, *, teller: str, running: bytes | None, minimum: int
) -> NDArray[np.int64]:
    """Return the positions of the own pseudonyms that stand in the common list, in its order.

    Args:
        own: (n, 16), uint8, strictly ascending.
        common: the common list.
        teller: who sent it, for messages.
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
    rows = np.flatnonzero(_member(own, theirs))
    rows.setflags(write=False)
    return rows


def _read(data: bytes, teller: str) -> Pseudonyms:
    if len(data) % PSEUDONYM_BYTES:
        raise _mismatch(f"the list of '{teller}' has {len(data)} bytes, expected {PSEUDONYM_BYTES} for each record")
    values = np.frombuffer(data, dtype=np.uint8).reshape(-1, PSEUDONYM_BYTES)
    for start in range(0, len(values), _BLOCK):
        keys = keys_of(values[start : start + _BLOCK + 1], PSEUDONYM_BYTES)
        if bool((keys[1:] <= keys[:-1]).any()):
            raise _mismatch(f"the list of '{teller}' is not in ascending order")
    return values


def _member(values: Pseudonyms, among: Pseudonyms) -> NDArray[np.bool_]:
    """Return which of `values` are in `among`; both strictly ascending, and looked at block by block."""
    is_member, among_keys = np.zeros(len(values), dtype=np.bool_), keys_of(among, PSEUDONYM_BYTES)
    for start in range(0, len(values), _BLOCK):
        block_keys = keys_of(values[start : start + _BLOCK], PSEUDONYM_BYTES)
        first, last = np.searchsorted(among_keys, block_keys[[0, -1]]).tolist()
        if len(near := among_keys[first : last + 1]):
            at = np.minimum(np.searchsorted(near, block_keys), len(near) - 1)
            is_member[start : start + _BLOCK] = near[at] == block_keys
    return is_member


def _mismatch(problem: str) -> PeerFault:
    return PeerFault("ALIGNMENT_MISMATCH", f"alignment: {problem}", hint="nothing was randomized")

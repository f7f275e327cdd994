"""Blinded lists as they pass between peers (``dh-psi``): checked, shuffled, intersected, and followed back to their owners.

A list is tokens one after the other, 32 bytes each, strictly ascending. The ascending order *is* the shuffle: a token is the x
of a point times a scalar that only the party knows that blinded it, so the party that sent it the list cannot know which token
became which. The party itself remembers that (its order, see `sort_for_sending`), and with it the places of the common people are
followed back, from the last party that blinded a list to its owner, without a scalar.

Two lists that were not blinded by the same parties have no token in common, but by a chance of 2^-256 for each pair. So a token
that is seen twice was returned as it was given, and `in_both` finds it. Points at infinity have no x; the group's order is
prime, so no scalar makes one out of a token. Thirty-two zero bytes, as which some libraries write it, are refused by name.

Foreign bytes are trusted in nothing. Whether a token is a point, the party finds out that blinds it next. No I/O here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.blinding import TOKEN_BYTES, tokens_of
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.alignment.statements import blinded_body, sender
from verticil.wire.v1 import peer_pb2

POSITION_BYTES: Final = 4
Tokens = NDArray[np.bytes_]
Places = NDArray[np.uint32]


def list_problem(data: bytes) -> str:
    """Return what is wrong with the bytes of a list; empty when nothing is.

    >>> list_problem(bytes(32)), list_problem(b"b" * 32 + b"a" * 32)
    ('token 0 is the point at infinity', 'tokens are there twice, or not in ascending order')
    """
    if len(data) % TOKEN_BYTES:
        return f"{len(data)} bytes, expected a multiple of {TOKEN_BYTES}"
    tokens = tokens_of(data)
    if not bool((tokens[1:] > tokens[:-1]).all()):
        return "tokens are there twice, or not in ascending order"
    return "token 0 is the point at infinity" if data[:TOKEN_BYTES] == bytes(TOKEN_BYTES) else ""


def sort_for_sending(data: bytes) -> tuple[bytes, Places]:
    """Put a blinded list into the order in which it is sent.

    Args:
        data: the tokens in the order of what they were made of.

    Returns:
        The list; and (n,), uint32: of which token (of which own seed) each was made.
    """
    tokens = tokens_of(data)
    order = np.argsort(tokens)
    return tokens[order].tobytes(), order.astype("<u4")


def in_both(tokens: Tokens, other: Tokens) -> Tokens:
    """Return the tokens that are in both lists; all ascending."""
    if not tokens.size or not other.size:
        return tokens[:0]
    at = np.minimum(np.searchsorted(other, tokens), other.size - 1)
    common: Tokens = tokens[other[at] == tokens]
    return common


def places(tokens: Tokens, common: Tokens) -> Places:
    """Return where the common tokens stand in a list that has them all.

    >>> places(np.array([b"a", b"b", b"d"]), np.array([b"a", b"d"])).tolist()
    [0, 2]
    """
    return np.searchsorted(tokens, common).astype("<u4")


def positions_problem(data: bytes, *, n_tokens: int, n_common: int) -> str:
    """Return what is wrong with received places; empty when nothing is.

    Args:
        data: the places, 4 bytes each.
        n_tokens: length of the list in which they are places.
        n_common: how many there have to be.

    >>> positions_problem(np.array([1, 1], dtype="<u4").tobytes(), n_tokens=3, n_common=2)
    'a place is given twice'
    """
    if len(data) != POSITION_BYTES * n_common:
        return f"{len(data)} bytes, expected {POSITION_BYTES} for each of the common people"
    positions = np.frombuffer(data, dtype="<u4")
    if bool((positions >= n_tokens).any()):
        return "a place is behind the end of the list"
    is_marked = np.zeros(n_tokens, dtype=np.bool_)
    is_marked[positions] = True
    return "a place is given twice" if np.count_nonzero(is_marked) != n_common else ""


def trace_positions(positions: bytes, order: bytes) -> bytes:
    """Return the places in the list from which a list was made.

    Args:
        positions: in the list, checked.
        order: see `sort_for_sending`.
    """
    positions_before: Places = np.frombuffer(order, dtype="<u4")[np.frombuffer(positions, dtype="<u4")]
    return positions_before.tobytes()


def common_rows(n_records: int, seed_positions: bytes) -> NDArray[np.int64]:
    """Return the own records that are common, in the common order.

    Args:
        n_records: own people, each with a seed.
        seed_positions: the common people's places among the own seeds.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH, the table is shorter than it was.
    """
    positions = np.frombuffer(seed_positions, dtype="<u4")
    if bool((positions >= n_records).any()):
        raise PeerFault(
            "ALIGNMENT_MISMATCH",
            "alignment: this party's table does not have all the people any more that were found to be common",
            hint="nothing more is computed",
        )
    rows = positions.astype(np.int64)
    rows.setflags(write=False)
    return rows


def check_steps(
    steps: Sequence[peer_pb2.BlindedStep],
    *,
    parties: Sequence[str],
    study: bytes,
    owner: int,
    hop: int,
    check: Callable[..., None],
) -> None:
    """Check what every party that blinded a list so far has signed of it: each its part, and all the same number of tokens.

    Args:
        steps: the owner's own first.
        parties: of the study.
        study: SHA-256 of the proposal.
        owner: whose records, by position.
        hop: how many parties besides the owner have blinded it.
        check: checks one statement, see `verticil.party.protocol.context.Node.check_statement`.

    Raises:
        PeerFault: MESSAGE_INVALID, naming the party that is at fault.
    """
    name = parties[owner]
    teller = sender(parties, owner, hop)
    what = f"blinded list of party '{name}', sent by party '{teller}'"
    if len(steps) != hop + 1:
        raise PeerFault("MESSAGE_INVALID", f"{what}: signed by {len(steps)} parties, expected {hop + 1}")
    for number, step in enumerate(steps):
        party = sender(parties, owner, number)
        body = blinded_body(study=study, owner=name, hop=number, party=party, size=step.size, sha256=step.sha256)
        check(step.statement, body, party=party, what=what)
        if step.size != steps[0].size:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"blinded list of party '{name}', hop {number}, sent by party '{party}':"
                f" {step.size // TOKEN_BYTES} tokens, expected the {steps[0].size // TOKEN_BYTES} that it got",
                hint="nothing was randomized; that party's operator should look at its log",
            )

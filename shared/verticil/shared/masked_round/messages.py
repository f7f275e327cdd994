"""Every message of a round, in one list that follows from the plan: its place in it is its name on every node.

model-three.md, section 2. A message is sealed by its sender for one recipient and is a file at both. What a node may send
depends on which messages it has, and on nothing else that is not on its disk; `verticil.shared.masked_round.round` says how.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from verticil.shared.masked.plan import Plan

RUNS: Final = 2
"""Of the check, each with seeds and a toss of its own: what fails once with 3/p fails with 5e-19 (section 9)."""


class Kind(StrEnum):
    """Of a message; the comment is its number in section 2."""

    HELLO = "hello"  # 0a
    AGREED = "agreed"  # 0b
    SEED = "seed"  # 1a
    PRODUCT = "product"  # 1b
    STATEMENT = "statement"  # 2a
    AGREED_AGAIN = "agreed-again"  # 2c
    MASKED = "masked"  # 2d
    PACKET = "packet"  # 3a to the verifier, 3b to the dealer
    FITS = "fits"  # 3c
    CLOSED = "toss-closed"  # 3d
    OPEN = "toss-open"  # 3e
    TOLD = "toss-told"  # 3f
    EXPECTED = "expected"  # 3g
    W_SHARE = "w-share"  # 3h
    F_SHARE = "f-share"  # 3i
    DONE = "done"  # 4a
    SHARE = "share"  # 6a
    OPENED = "opened"  # 7a
    RECEIPT = "closed"  # 7b


PUBLIC: Final = frozenset({Kind.HELLO, Kind.AGREED, Kind.STATEMENT, Kind.AGREED_AGAIN, Kind.OPENED, Kind.RECEIPT})
"""Sealed to the recipient's pinned key: what they say is not secret."""
IN_SLOTS: Final = frozenset({Kind.EXPECTED, Kind.DONE, Kind.SHARE, Kind.OPENED})
"""Leave at the next full slot after they could (section 4.8)."""
CHARGED: Final = frozenset({Kind.MASKED, Kind.PACKET, Kind.SHARE})
"""Leave behind the ledger's charge."""


class Check(NamedTuple):
    """One run of the check of one party's rows (section 4.3).

    Attributes:
        pair: number of the pair of parties.
        owner: whose rows.
        verifier: has them under the mask.
        dealer: has the mask.
        run: from 0.
    """

    pair: int
    owner: str
    verifier: str
    dealer: str
    run: int

    def other(self, name: str) -> str:
        """Of verifier and dealer the other one."""
        return self.dealer if name == self.verifier else self.verifier


class Pair(NamedTuple):
    """Two parties whose tables are computed together, and who multiplies their masks.

    Attributes:
        number: place among the plan's pairs.
        first, second: the lesser and the greater name, compared as bytes.
        dealer: owns no column of the pair.
    """

    number: int
    first: str
    second: str
    dealer: str

    @property
    def parties(self) -> tuple[str, str]:
        """Both."""
        return self.first, self.second

    @property
    def nodes(self) -> tuple[str, str, str]:
        """Both, and the dealer."""
        return self.first, self.second, self.dealer

    def partner(self, name: str) -> str:
        """Of the two parties the other one."""
        return self.second if name == self.first else self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one node has to send to another one, once.

    Attributes:
        index: place in the list.
        kind: see `Kind`.
        sender, recipient: names.
        pair: number of the pair; -1: of none.
        owner: whose rows or mask it is about; empty: nobody's.
        run: of the check; -1: of none.
    """

    index: int
    kind: Kind
    sender: str
    recipient: str
    pair: int = -1
    owner: str = ""
    run: int = -1


def pairs_of(plan: Plan) -> tuple[Pair, ...]:
    """All pairs of parties, in the plan's order."""
    found = []
    for number, (both, dealer) in enumerate(zip(itertools.combinations(plan.parties, 2), plan.dealers, strict=True)):
        first, second = sorted(both, key=str.encode)
        found.append(Pair(number=number, first=first, second=second, dealer=dealer))
    return tuple(found)


def checks_of(plan: Plan) -> tuple[Check, ...]:
    """All runs of all checks; rows of `Plan.unchecked` have none."""
    return tuple(
        Check(pair=pair.number, owner=owner, verifier=pair.partner(owner), dealer=pair.dealer, run=run)
        for pair in pairs_of(plan)
        for owner in pair.parties
        if owner not in plan.unchecked
        for run in range(RUNS)
    )


def messages_of(plan: Plan) -> tuple[Message, ...]:
    """Every message of the round; see the module."""
    return tuple(
        Message(index=index, kind=kind, sender=sender, recipient=recipient, pair=pair, owner=owner, run=run)
        for index, (kind, sender, recipient, pair, owner, run) in enumerate(_listed(plan))
    )


_Row = tuple[Kind, str, str, int, str, int]


def _listed(plan: Plan) -> Iterator[_Row]:
    everybody = (*plan.parties, plan.miner)
    yield from _to_all(Kind.HELLO, everybody, everybody)
    yield from _to_all(Kind.AGREED, everybody, everybody)
    for pair in pairs_of(plan):
        for owner in pair.parties:
            yield Kind.SEED, owner, pair.dealer, pair.number, owner, -1
    for pair in pairs_of(plan):
        yield Kind.PRODUCT, pair.dealer, pair.second, pair.number, "", -1
    yield from _to_all(Kind.STATEMENT, plan.parties, everybody)
    yield from _to_all(Kind.AGREED_AGAIN, everybody, everybody)
    for pair in pairs_of(plan):
        for owner in pair.parties:
            yield Kind.MASKED, owner, pair.partner(owner), pair.number, owner, -1
    for check in checks_of(plan):
        yield from _of_check(check)
    for pair in pairs_of(plan):
        for sender, recipient in itertools.permutations(pair.nodes, 2):
            yield Kind.DONE, sender, recipient, pair.number, "", -1
    for party in plan.parties:
        yield Kind.SHARE, party, plan.miner, -1, "", -1
    for party in plan.parties:
        yield Kind.OPENED, plan.miner, party, -1, "", -1
    for party in plan.parties:
        yield Kind.RECEIPT, party, plan.miner, -1, "", -1


def _to_all(kind: Kind, senders: tuple[str, ...], recipients: tuple[str, ...]) -> Iterator[_Row]:
    for sender in senders:
        for recipient in recipients:
            if recipient != sender:
                yield kind, sender, recipient, -1, "", -1


def _of_check(check: Check) -> Iterator[_Row]:
    of = check.pair, check.owner, check.run
    both = check.verifier, check.dealer
    for reader in both:
        yield Kind.PACKET, check.owner, reader, *of
    for kind in (Kind.FITS, Kind.CLOSED, Kind.OPEN):
        for sender in both:
            yield kind, sender, check.other(sender), *of
    for sender in both:
        yield Kind.TOLD, sender, check.owner, *of
    for reader in both:
        yield Kind.EXPECTED, check.owner, reader, *of
    for kind in (Kind.W_SHARE, Kind.F_SHARE):
        for sender in both:
            yield kind, sender, check.other(sender), *of

"""Every message of a round, in one list that follows from the plan: its place in it is its name on every node.

model-three.md, sections 2 and 8. A message is sealed by its sender for one recipient and is a file at both. What a node may send
depends on which messages it has, and on nothing else that is not on its disk; `verticil.shared.masked.round.round` says how.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from verticil.shared.masked.arithmetic.check import RUNS
from verticil.shared.masked.arithmetic.plan import Plan


class Kind(StrEnum):
    """Of a message; the comment is its number in section 2, of those of a triple in section 8."""

    HELLO = "hello"  # 0a
    AGREED = "agreed"  # 0b
    SEED = "seed"  # 1a
    PRODUCT = "product"  # 1b
    STATEMENT = "statement"  # 2a
    AGREED_AGAIN = "agreed-again"  # 2c
    THERE = "all-there"  # 2e
    E_CLOSED = "e-closed"  # 2f and 2g, of e
    E_OPEN = "e-open"
    ALPHA = "alpha"  # 2h
    C_CLOSED = "c-closed"  # 2f and 2g, of the coefficients
    C_OPEN = "c-open"
    SUMS_CLOSED = "sums-closed"  # 2i
    SUMS_OPEN = "sums-open"  # 2j
    PASSED = "passed"  # 2k
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
SACRIFICE: Final = (
    Kind.E_CLOSED,
    Kind.E_OPEN,
    Kind.ALPHA,
    Kind.C_CLOSED,
    Kind.C_OPEN,
    Kind.SUMS_CLOSED,
    Kind.SUMS_OPEN,
)
"""Of a run, between the parties of a triple: each waits for both others' of the kind before, and comes after the own."""
CHARGED: Final = frozenset({Kind.MASKED, Kind.PACKET, Kind.SHARE})
"""Leave behind the ledger's charge."""


class About(NamedTuple):
    """What a message is about; -1 and empty: it is about none.

    Attributes:
        pair: number of the pair.
        table: index of a triple's table.
        owner: whose rows or mask.
        verifier: of a check.
        run: of a check.
    """

    pair: int = -1
    table: int = -1
    owner: str = ""
    verifier: str = ""
    run: int = -1


NOTHING_ELSE: Final = About()


class Check(NamedTuple):
    """One run of the check of one party's rows (section 4.3).

    Attributes:
        pair: number of the pair of parties.
        owner: whose rows.
        verifier: has them under the mask.
        dealer: has the mask.
        run: from 0.
        table: index of a triple's table, whose pair is -1; -1: of a pair.
    """

    pair: int
    owner: str
    verifier: str
    dealer: str
    run: int
    table: int = -1

    @property
    def about(self) -> About:
        """What its messages are about."""
        return About(self.pair, self.table, self.owner, self.verifier, self.run)

    def other(self, name: str) -> str:
        """Return of verifier and dealer the other one."""
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
    def about(self) -> About:
        """What its messages are about."""
        return About(pair=self.number)

    @property
    def parties(self) -> tuple[str, str]:
        """Both parties of the pair."""
        return self.first, self.second

    @property
    def nodes(self) -> tuple[str, str, str]:
        """Both, and the dealer."""
        return self.first, self.second, self.dealer

    def partner(self, name: str) -> str:
        """Return of the two parties the other one."""
        return self.second if name == self.first else self.first


class Triple(NamedTuple):
    """Three parties of each of which one unit is in a table (section 8).

    Attributes:
        table: its index.
        parties: i, j and k: the owners, in the order of their names as bytes.
        units: of each, its unit.
        dealer: the miner.
    """

    table: int
    parties: tuple[str, str, str]
    units: tuple[int, int, int]
    dealer: str

    @property
    def about(self) -> About:
        """What its messages are about."""
        return About(table=self.table)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The three, and the dealer."""
        return (*self.parties, self.dealer)

    @property
    def axes(self) -> tuple[int, ...]:
        """For each axis of the table, whose units ascend, its place among `parties`."""
        return tuple(self.units.index(unit) for unit in sorted(self.units))

    def others(self, name: str) -> tuple[str, ...]:
        """Return of the three parties the other two."""
        return tuple(other for other in self.parties if other != name)


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
        table: index of a triple's table; -1: of none.
        verifier: of the check; empty: of none.
    """

    index: int
    kind: Kind
    sender: str
    recipient: str
    pair: int = -1
    owner: str = ""
    run: int = -1
    table: int = -1
    verifier: str = ""

    @property
    def about(self) -> About:
        """Without who sends it to whom."""
        return About(self.pair, self.table, self.owner, self.verifier, self.run)

    @property
    def group(self) -> tuple[int, int]:
        """Numbers of pair and table."""
        return self.pair, self.table


def pairs_of(plan: Plan) -> tuple[Pair, ...]:
    """List all pairs of parties, in the plan's order."""
    pairs = []
    for number, (both, dealer) in enumerate(zip(itertools.combinations(plan.parties, 2), plan.dealers, strict=True)):
        first, second = sorted(both, key=str.encode)
        pairs.append(Pair(number=number, first=first, second=second, dealer=dealer))
    return tuple(pairs)


def triples_of(plan: Plan) -> tuple[Triple, ...]:
    """List all tables of three parties, in the plan's order."""
    triples = []
    for index, table in enumerate(plan.tables):
        owners = {plan.parties[plan.owners[unit]]: unit for unit in table}
        if len(owners) == 3:
            i, j, k = sorted(owners, key=str.encode)
            units = owners[i], owners[j], owners[k]
            triples.append(Triple(table=index, parties=(i, j, k), units=units, dealer=plan.miner))
    return tuple(triples)


def groups_of(plan: Plan) -> tuple[Pair | Triple, ...]:
    """List all whose masks are dealt together: pairs, then triples."""
    return (*pairs_of(plan), *triples_of(plan))


def checks_of(plan: Plan) -> tuple[Check, ...]:
    """List all runs of all checks; rows of `Plan.unchecked` have none."""
    of_pairs = [
        Check(pair=pair.number, owner=owner, verifier=pair.partner(owner), dealer=pair.dealer, run=run)
        for pair in pairs_of(plan)
        for owner in pair.parties
        if owner not in plan.unchecked
        for run in range(RUNS)
    ]
    of_triples = [
        Check(pair=-1, owner=owner, verifier=verifier, dealer=triple.dealer, run=run, table=triple.table)
        for triple in triples_of(plan)
        for owner, verifier in itertools.permutations(triple.parties, 2)
        if owner not in plan.unchecked
        for run in range(RUNS)
    ]
    return (*of_pairs, *of_triples)


def messages_of(plan: Plan) -> tuple[Message, ...]:
    """List every message of the round; see the module."""
    return tuple(
        Message(
            index=index,
            kind=kind,
            sender=sender,
            recipient=recipient,
            pair=about.pair,
            owner=about.owner,
            run=about.run,
            table=about.table,
            verifier=about.verifier,
        )
        for index, (kind, sender, recipient, about) in enumerate(_rows_of(plan))
    )


_Row = tuple[Kind, str, str, About]


def _rows_of(plan: Plan) -> Iterator[_Row]:
    everybody, groups = (*plan.parties, plan.miner), groups_of(plan)
    yield from _to_all(Kind.HELLO, everybody, everybody)
    yield from _to_all(Kind.AGREED, everybody, everybody)
    for group in groups:
        for owner in group.parties:
            yield Kind.SEED, owner, group.dealer, group.about._replace(owner=owner)
    for group in groups:
        yield Kind.PRODUCT, group.dealer, group.parties[-1], group.about
    yield from _to_all(Kind.STATEMENT, plan.parties, everybody)
    yield from _to_all(Kind.AGREED_AGAIN, everybody, everybody)
    for triple in triples_of(plan):
        yield from _of_sacrifice(triple)
    for group in groups:
        for owner, reader in itertools.permutations(group.parties, 2):
            yield Kind.MASKED, owner, reader, group.about._replace(owner=owner)
    for check in checks_of(plan):
        yield from _of_check(check)
    for group in groups:
        yield from _to_all(Kind.DONE, group.nodes, group.nodes, group.about)
    yield from _to_all(Kind.SHARE, plan.parties, (plan.miner,))
    yield from _to_all(Kind.OPENED, (plan.miner,), plan.parties)
    yield from _to_all(Kind.RECEIPT, plan.parties, (plan.miner,))


def _to_all(
    kind: Kind, senders: Sequence[str], recipients: Sequence[str], about: About = NOTHING_ELSE
) -> Iterator[_Row]:
    for sender in senders:
        for recipient in recipients:
            if recipient != sender:
                yield kind, sender, recipient, about


def _of_sacrifice(triple: Triple) -> Iterator[_Row]:
    three, about = triple.parties, triple.about
    yield from _to_all(Kind.THERE, three, three, about)
    for run in range(RUNS):
        for kind in SACRIFICE:
            yield from _to_all(kind, three, three, about._replace(run=run))
    yield from _to_all(Kind.PASSED, three, three, about)


def _of_check(check: Check) -> Iterator[_Row]:
    both = check.verifier, check.dealer
    for reader in both:
        yield Kind.PACKET, check.owner, reader, check.about
    for kind in (Kind.FITS, Kind.CLOSED, Kind.OPEN):
        for sender in both:
            yield kind, sender, check.other(sender), check.about
    for sender in both:
        yield Kind.TOLD, sender, check.owner, check.about
    for reader in both:
        yield Kind.EXPECTED, check.owner, reader, check.about
    for kind in (Kind.W_SHARE, Kind.F_SHARE):
        for sender in both:
            yield kind, sender, check.other(sender), check.about

"""The arithmetic of one three-way table in a round, block of rows by block: masks, what is dealt, the sacrifice, shares.

model-three.md, section 8: which words are derived of what. What is computed from them is in
`verticil.shared.masked.arithmetic.triples`; that rows are one-hot is checked as those of a pair are (`RowsWork`). Set 0 of the
masks hides the rows, set 1 + run is sacrificed in that run. Everything of three stands in the order of the parties' names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.core.arrays import AnyCodes
from verticil.shared.masked.arithmetic import triples
from verticil.shared.masked.arithmetic.derivation import Hasher, Of, RoundName, direction_field
from verticil.shared.masked.arithmetic.field import P, Words, add, subtract
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.arithmetic.products import add_one_hot
from verticil.shared.masked.arithmetic.streams import Field, block_rows, encode_fields, row_blocks, words
from verticil.shared.masked.arithmetic.triples import PRODUCTS, Three
from verticil.shared.masked.round.pair_products import People, RowsWork, bytes_of, words_of
from verticil.shared.masked.round.schedule import Triple
from verticil.shared.masked.round.secrets import SETS

COEFFICIENTS: Final = 2
"""Lists of them, for each product."""
SUMS: Final = COEFFICIENTS * len(PRODUCTS)


@dataclass(frozen=True, slots=True)
class OneUnit:
    """A party's people, of whom only one unit is looked at.

    Attributes:
        people: of the party.
        place: of the unit among its own.
    """

    people: People
    place: int

    @property
    def order(self) -> bytes:
        """Digest of the common order."""
        return self.people.order

    def codes(self, rows: slice) -> AnyCodes:
        """Return the codes of the unit: (rows, 1)."""
        return self.people.codes(rows)[:, self.place : self.place + 1]


class TripleWork:
    """Of one triple in one round.

    Args:
        plan: of the round.
        triple: three parties, and a unit of each.
        t0: the first transcript.
    """

    def __init__(self, plan: Plan, triple: Triple, t0: bytes) -> None:
        self.plan, self.triple, self.t0 = plan, triple, t0
        self._name = RoundName(study=plan.study, round=plan.round)
        self.sizes = tuple(plan.sizes[unit] for unit in triple.units)
        self.dealt_width = triples.row_width(self.sizes)
        self.width = self.dealt_width + sum(self.sizes)
        self.blocks = tuple(row_blocks(plan.n_people, block_rows(self.width)))

    def rows(self, owner: str, verifier: str) -> RowsWork:
        """Return the arithmetic of a party's masked rows, and of their check by one of the others."""
        return _Rows(self, owner, verifier)

    def place(self, name: str) -> int:
        """0, 1, 2 for i, j, k."""
        return self.triple.parties.index(name)

    def size(self, name: str) -> int:
        """Categories of a party's unit."""
        return self.sizes[self.place(name)]

    def own_unit(self, name: str, people: People) -> OneUnit:
        """Return what a party's people have in its unit of the table."""
        unit = self.triple.units[self.place(name)]
        return OneUnit(people, self.plan.owners[:unit].count(self.plan.owners[unit]))

    def _of(self, **fields: bytes | str | int) -> Of:
        return Of(transcript=self.t0, pair=self.triple.table, **fields)  # type: ignore[arg-type]

    # ---- masks, and what is dealt

    def seed_commitment(self, owner: str, number: int, seed: bytes, salt: bytes) -> bytes:
        """Return the commitment of message 0a, to the seed of one set: there is no transcript yet."""
        of = Of(pair=self.triple.table, direction=encode_fields(owner), part=encode_fields(owner, number))
        return self._name.commitment("seed", salt, seed, of)

    def mask(self, owner: str, number: int, seed: bytes, block: int) -> Words:
        """Return the mask of some rows, of one set: (rows, K)."""
        rows = self.blocks[block]
        of = self._of(direction=encode_fields(owner), block=block, part=number)
        return words(self._name.derive(seed, "mask", of), (rows.stop - rows.start, self.size(owner)))

    def shares(self, owner: str, number: int, seed: bytes) -> Iterator[Three]:
        """Return i's or j's shares of st, rt and rs, streams of its own seed, of each block of rows."""
        for block, rows in enumerate(self.blocks):
            st, rt, rs = (
                words(
                    self._name.derive(
                        seed,
                        "z",
                        self._of(direction=encode_fields(owner), block=block, part=encode_fields(product, number)),
                    ),
                    (rows.stop - rows.start, *shape),
                )
                for product, shape in enumerate(self._shapes)
            )
            yield st, rt, rs

    @property
    def _shapes(self) -> tuple[tuple[int, int], ...]:
        return tuple((self.sizes[one], self.sizes[other]) for one, other in PRODUCTS)

    def whole(self, owner: str, seed: bytes) -> Words:
        """Return i's or j's share of the sum of rst, of its own seed."""
        of = self._of(direction=encode_fields(owner), part=encode_fields("rst", 0))
        return words(self._name.derive(seed, "z", of), self.sizes)

    def dealt(self, seeds: Mapping[str, Sequence[bytes]]) -> Iterator[bytes]:
        """Return what the dealer sends to k: of each set and block its shares of st, rt and rs; then that of the sum of
        rst.
        """
        i, j, _ = self.triple.parties
        total = np.zeros(self.sizes, np.uint32)
        for number in range(SETS):
            streams = zip(*(self.shares(name, number, seeds[name][number]) for name in (i, j)), strict=True)
            for block, (first, second) in enumerate(streams):
                r, s, t = (self.mask(name, number, seeds[name][number], block) for name in self.triple.parties)
                parts = zip(triples.products_of((r, s, t)), first, second, strict=True)
                yield b"".join(bytes_of(triples.third_share(*part)) for part in parts)
                if number == 0:
                    total = add(total, triples.table_of(r, s, t))
        yield bytes_of(triples.third_share(total, self.whole(i, seeds[i][0]), self.whole(j, seeds[j][0])))

    def dealt_sizes(self) -> list[int]:
        """Bytes of its frames."""
        rows = [4 * self.dealt_width * (block.stop - block.start) for block in self.blocks]
        return [*(rows * SETS), 4 * int(np.prod(self.sizes))]

    def dealt_shares(self, frames: Iterable[bytes], number: int, name: str) -> Iterator[Three]:
        """k's shares of one set, of each block of rows, from the frames that came.

        Raises:
            PeerFault: MESSAGE_INVALID, another size, or words of p or more.
        """
        ends = np.cumsum([one * other for one, other in self._shapes])[:-1]
        for count, frame in enumerate(frames):
            block = count - number * len(self.blocks)
            if 0 <= block < len(self.blocks):
                rows = self.blocks[block].stop - self.blocks[block].start
                # of each product all its words, one product after the other
                flat = words_of(frame, (rows * self.dealt_width,), f"{name}, set {number}, block {block}")
                parts = zip(np.split(flat, ends * rows), self._shapes, strict=True)
                st, rt, rs = (part.reshape(rows, *shape) for part, shape in parts)
                yield st, rt, rs

    def dealt_committer(self, who: str, salt: bytes) -> Hasher:
        """Return the committer of all words that were dealt to k."""
        return self._name.committer("dealt", salt, sum(self.dealt_sizes()), self._of(part=who))

    # ---- the sacrifice

    def toss_commitment(self, who: str, run: int, which: str, opening: tuple[bytes, bytes], t1: bytes) -> bytes:
        """Return the commitment to one party's bytes of a toss, and their salt."""
        value, salt = opening
        of = Of(transcript=t1, pair=self.triple.table, run=run, part=encode_fields(who, which))
        return self._name.commitment("toss", salt, value, of)

    def e(self, tosses: Sequence[bytes], run: int, t1: bytes) -> int:
        """e, of the three parties' bytes."""
        return int(words(self._toss_key(tosses, run, "e", t1), (1,))[0])

    def _coefficients(self, tosses: Sequence[bytes], run: int, t1: bytes, block: int) -> Three:
        rows = self.blocks[block]
        st, rt, rs = (
            words(
                self._toss_key(tosses, run, encode_fields("c", product), t1, block),
                (COEFFICIENTS, rows.stop - rows.start, *shape),
            )
            for product, shape in enumerate(self._shapes)
        )
        return st, rt, rs

    def _toss_key(
        self, tosses: Sequence[bytes], run: int, part: bytes | str, t1: bytes, block: int | bytes = b""
    ) -> bytes:
        key = hashlib.sha256(encode_fields(*tosses)).digest()
        of = Of(transcript=t1, pair=self.triple.table, run=run, block=block, part=part)
        return self._name.derive(key, "toss", of)

    def alpha(self, owner: str, e: int, seeds: Sequence[bytes], run: int) -> Iterator[Words]:
        """e r - r' of each block of rows."""
        for block in range(len(self.blocks)):
            first, second = (self.mask(owner, number, seeds[number], block) for number in (0, 1 + run))
            yield triples.alpha(e, first, second)

    def sums(
        self,
        owner: str,
        run: int,
        *,
        e: int,
        tosses: Sequence[bytes],
        seeds: Sequence[bytes],
        shares: tuple[Iterator[Three], Iterator[Three]],
        alphas: Sequence[Iterator[Words]],
        t1: bytes,
    ) -> Words:
        """Return what a party's shares add up to in the sacrifice: (products, lists of coefficients); all three's are 0
        together.

        Args:
            owner: the party.
            run: of the sacrifice.
            e: as tossed.
            tosses: of the coefficients, of all three.
            seeds: of its own masks, of all sets.
            shares: of the products of both sets, of each block.
            alphas: of all three, of each block.
            t1: the second transcript.
        """
        totals = np.zeros((len(PRODUCTS), COEFFICIENTS), np.int64)
        for block, (first, second, r, s, t) in enumerate(zip(*shares, *alphas, strict=True)):
            totals += triples.sum_sacrifice(
                self.place(owner),
                e,
                (self.mask(owner, 0, seeds[0], block), self.mask(owner, 1 + run, seeds[1 + run], block)),
                (first, second),
                alphas=(r, s, t),
                coefficients=self._coefficients(tosses, run, t1, block),
            )
        return (totals % P).astype(np.uint32)

    def sums_commitment(self, who: str, run: int, sums: bytes, salt: bytes, t1: bytes) -> bytes:
        """Return the commitment to one party's sums."""
        of = Of(transcript=t1, pair=self.triple.table, run=run, part=who)
        return self._name.commitment("sum", salt, sums, of)

    # ---- multiplying

    def share(
        self,
        owner: str,
        seed: bytes,
        *,
        masked: Mapping[str, Iterator[Words]],
        shares: Iterator[Three],
        whole: Words,
        people: People,
    ) -> Words:
        """Return a party's part of the table, its axes as the plan's table has them.

        Args:
            owner: the party.
            seed: of the mask of its rows.
            masked: both others' masked rows, of each block.
            shares: of the products of the masks, of each block.
            whole: of the sum of rst.
            people: its people.
        """
        table, place, unit = np.zeros(self.sizes, np.uint32), self.place(owner), self.own_unit(owner, people)
        for block, (products, *theirs) in enumerate(zip(shares, *masked.values(), strict=True)):
            mask = self.mask(owner, 0, seed, block)
            own = mask.copy()
            add_one_hot(own, unit.codes(self.blocks[block]), (self.size(owner),))
            rows = dict(zip(masked, theirs, strict=True)) | {owner: own}
            u, v, w = (rows[name] for name in self.triple.parties)
            table = add(table, triples.share(place, (u, v, w), mask, products))
        return np.ascontiguousarray(subtract(table, whole).transpose(self.triple.axes))


class _Rows(RowsWork):
    """Masked rows of one party of a triple, for one who checks them."""

    def __init__(self, work: TripleWork, owner: str, verifier: str) -> None:
        super().__init__(work.plan, work.t0, work.triple.table, {owner: (work.size(owner),)}, work.width)
        self._work, self._verifier = work, verifier

    def direction(self, owner: str) -> bytes:
        """Return E(owner, verifier), the field of the direction."""
        return direction_field(owner, self._verifier)

    def _masking(self, owner: str) -> tuple[bytes, Field]:
        return encode_fields(owner), encode_fields(owner, 0)

    def mask(self, owner: str, seed: bytes, block: int) -> Words:
        """Return the mask of the rows, set 0: one for both readers."""
        return self._work.mask(owner, 0, seed, block)

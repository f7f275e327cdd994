"""The arithmetic of one pair of parties in a round, block of rows by block: masks, packets, shares of the check, products.

model-three.md, sections 3 and 4: which words are derived of what, and what is computed from them. What rows that are masked for
a pair and those of a triple have in common is in `RowsWork`. Nothing is held but one block of rows and the pair's table; what
goes to disk are sealed frames, one for each block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from verticil.shared.core.arrays import AnyCodes
from verticil.shared.core.errors import PeerFault
from verticil.shared.masked.arithmetic import check as checking
from verticil.shared.masked.arithmetic.derivation import Hasher, Of, RoundName, direction_field, pair_field, toss_key
from verticil.shared.masked.arithmetic.field import P, Words, add, check_words, negate, subtract
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.arithmetic.products import add_one_hot, of_words, of_words_and_codes
from verticil.shared.masked.arithmetic.streams import Field, block_rows, row_blocks, words
from verticil.shared.masked.round.schedule import Check, Pair
from verticil.shared.masked.round.secrets import CheckSecrets, PairSecrets


class People(Protocol):
    """A party's people, as it brings them to a round."""

    @property
    def order(self) -> bytes:
        """Digest of the common order, 32 bytes, equal at all parties."""
        ...

    def codes(self, rows: slice) -> AnyCodes:
        """Randomized codes of some of the common people, in the common order: (rows, own units), compounds numbered through."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tossed:
    """What a toss gives: the coefficients of one run of a check.

    Attributes:
        key: of its streams.
        columns: r, a word for each column of the owner.
    """

    key: bytes
    columns: Words


class RowsWork(ABC):
    """Masked rows, and their check.

    Args:
        plan: of the round.
        t0: the first transcript.
        pair: of X: E of a pair's names, or the index of a table.
        sizes: of whose rows there are, the categories of each unit.
        width: words of a row for which blocks are made.
    """

    def __init__(self, plan: Plan, t0: bytes, pair: Field, sizes: Mapping[str, tuple[int, ...]], width: int) -> None:
        self._name = RoundName(study=plan.study, round=plan.round)
        self._t0, self._field, self.sizes = t0, pair, sizes
        self.widths = {name: sum(of) for name, of in sizes.items()}
        self._n = plan.n_people
        self.blocks = tuple(row_blocks(plan.n_people, block_rows(width)))

    def _of(self, **fields: bytes | str | int) -> Of:
        return Of(transcript=self._t0, pair=self._field, **fields)  # type: ignore[arg-type]

    @abstractmethod
    def direction(self, owner: str) -> bytes:
        """E(from, to) of what `owner` tells who checks its rows."""

    def _masking(self, owner: str) -> tuple[bytes, Field]:
        """Direction and part of what is masked."""
        return self.direction(owner), owner

    # ---- masking (4.2)

    @abstractmethod
    def mask(self, owner: str, seed: bytes, block: int) -> Words:
        """R of some rows: (rows, width)."""

    def masks(self, owner: str, seed: bytes) -> Iterator[Words]:
        """R of each block."""
        return (self.mask(owner, seed, block) for block in range(len(self.blocks)))

    def masked(self, owner: str, seed: bytes, people: People) -> Iterator[bytes]:
        """U of each block of rows, as bytes."""
        for block, rows in enumerate(self.blocks):
            rows_of_block = self.mask(owner, seed, block)
            add_one_hot(rows_of_block, people.codes(rows), self.sizes[owner])
            yield bytes_of(rows_of_block)

    def masked_committer(self, owner: str, salt: bytes) -> Hasher:
        """Return the committer of U, as `RoundName.committer`."""
        direction, part = self._masking(owner)
        of = self._of(direction=direction, part=part)
        return self._name.committer("masked", salt, 4 * self._n * self.widths[owner], of)

    def masked_commitment(self, owner: str, salt: bytes, pieces: Iterable[bytes]) -> bytes:
        """Return the commitment to U, which comes in pieces."""
        digest = self.masked_committer(owner, salt)
        for piece in pieces:
            digest.update(piece)
        return digest.digest()

    # ---- the check (4.3)

    def a_share(self, owner: str, seed: bytes, run: int, block: int, part: str = "a") -> Words:
        """Return a share of a, or of a^2 (part ``b``), of some rows: (rows, units)."""
        of = self._of(direction=self.direction(owner), run=run, block=block, part=part)
        rows = self.blocks[block]
        return words(self._name.derive(seed, "check", of), (rows.stop - rows.start, len(self.sizes[owner])))

    def corrections(self, owner: str, secrets: CheckSecrets, run: int) -> Iterator[bytes]:
        """b_D of each block of rows, as bytes."""
        for block in range(len(self.blocks)):
            a_verifier = self.a_share(owner, secrets.verifier_seed, run, block)
            a_dealer = self.a_share(owner, secrets.dealer_seed, run, block)
            b_verifier = self.a_share(owner, secrets.verifier_seed, run, block, "b")
            yield bytes_of(checking.square_share(a_verifier, a_dealer, b_verifier))

    def packet_commitment(
        self, owner: str, reader: str, run: int, opening: tuple[bytes, bytes], pieces: Iterable[bytes] | None = None
    ) -> bytes:
        """Return the commitment to a packet, by its seed and salt: to the seed; the dealer's to E(seed, all words of
        b_D), which come in pieces.
        """
        seed, salt = opening
        of = self._of(direction=self.direction(owner), run=run, part=_read_by(owner, reader))
        if pieces is None:
            return self._name.commitment("packet", salt, seed, of)
        size = 4 * self._n * len(self.sizes[owner])
        head = len(seed).to_bytes(8, "big") + seed + size.to_bytes(8, "big")
        digest = self._name.committer("packet", salt, len(head) + size, of)
        digest.update(head)
        for piece in pieces:
            digest.update(piece)
        return digest.digest()

    def toss_commitment(self, check: Check, who: str, value: bytes, salt: bytes, t1: bytes) -> bytes:
        """Return the commitment to one node's bytes of a toss."""
        of = self._check_purpose(check, t1, part=_read_by(who, check.other(who)))
        return self._name.commitment("toss", salt, value, of)

    def _check_purpose(self, check: Check, t1: bytes, part: bytes | str = b"", block: int | bytes = b"") -> Of:
        return Of(
            transcript=t1,
            pair=self._field,
            direction=self.direction(check.owner),
            run=check.run,
            block=block,
            part=part,
        )

    def toss(self, check: Check, verifier: bytes, dealer: bytes, t1: bytes) -> Tossed:
        """Return the coefficients that both nodes' bytes give."""
        key = toss_key(verifier, dealer)
        columns = words(
            self._name.derive(key, "toss", self._check_purpose(check, t1, "r")), (self.widths[check.owner],)
        )
        return Tossed(key=key, columns=columns)

    def row_coefficients(self, check: Check, toss: Tossed, t1: bytes) -> Iterator[Words]:
        """rho of each block: (rows, units)."""
        for block, rows in enumerate(self.blocks):
            key = self._name.derive(toss.key, "toss", self._check_purpose(check, t1, "rho", block))
            yield words(key, (rows.stop - rows.start, len(self.sizes[check.owner])))

    def expected_commitments(
        self, check: Check, secrets: PairSecrets, toss: Tossed, t1: bytes, people: People
    ) -> tuple[bytes, bytes]:
        """Return the owner's commitments to the shares of w that the verifier, and the dealer, have to tell."""
        run, sizes = secrets.runs[check.run], self.sizes[check.owner]
        digests = [
            self.w_committer(check, reader, salt, t1)
            for reader, salt in ((check.verifier, run.verifier_w_salt), (check.dealer, run.dealer_w_salt))
        ]
        starts = np.cumsum(sizes, dtype=np.int64) - sizes
        for block, rows in enumerate(self.blocks):
            of_mask = self._linear(self.mask(check.owner, secrets.mask_seed, block), toss.columns, sizes)
            of_row: Words = toss.columns[people.codes(rows).astype(np.int64) + starts]
            a_verifier = self.a_share(check.owner, run.verifier_seed, check.run, block)
            a_dealer = self.a_share(check.owner, run.dealer_seed, check.run, block)
            digests[0].update(bytes_of(subtract(add(of_mask, of_row), a_verifier)))
            digests[1].update(bytes_of(subtract(negate(of_mask), a_dealer)))
        return digests[0].digest(), digests[1].digest()

    def _linear(self, block: Words, coefficients: Words, sizes: tuple[int, ...]) -> Words:
        sums: Words = checking.combine(block, coefficients[np.newaxis], sizes)[0]
        return sums

    def _both(self, block: Words, toss: Tossed, owner: str) -> tuple[Words, Words]:
        """z and z*: with r, and with its squares."""
        z, z_star = checking.combine(block, np.stack([toss.columns, checking.squares(toss.columns)]), self.sizes[owner])
        return z, z_star

    def w_committer(self, check: Check, reader: str, salt: bytes, t1: bytes) -> Hasher:
        """Return the committer of a reader's share of w, as `RoundName.committer`."""
        of = self._check_purpose(check, t1, part=_read_by(check.owner, reader))
        return self._name.committer("expected", salt, 4 * self._n * len(self.sizes[check.owner]), of)

    def w_commitment(self, check: Check, reader: str, salt: bytes, t1: bytes, pieces: Iterable[bytes]) -> bytes:
        """Return the commitment to a share of w, which comes in pieces."""
        digest = self.w_committer(check, reader, salt, t1)
        for piece in pieces:
            digest.update(piece)
        return digest.digest()

    def w_of_verifier(self, check: Check, seed: bytes, toss: Tossed, masked: Iterable[Words]) -> Iterator[bytes]:
        """w_j of each block: of U, less its share of a."""
        for block, rows in enumerate(masked):
            linear = self._linear(rows, toss.columns, self.sizes[check.owner])
            yield bytes_of(subtract(linear, self.a_share(check.owner, seed, check.run, block)))

    def w_of_dealer(self, check: Check, seed: bytes, toss: Tossed, mask_seed: bytes) -> Iterator[bytes]:
        """w_D of each block: of -R, less its share of a."""
        for block in range(len(self.blocks)):
            rows = self.mask(check.owner, mask_seed, block)
            linear = negate(self._linear(rows, toss.columns, self.sizes[check.owner]))
            yield bytes_of(subtract(linear, self.a_share(check.owner, seed, check.run, block)))

    def f_of_verifier(
        self, check: Check, seed: bytes, toss: Tossed, blocks: Iterable[tuple[Words, Words, Words]]
    ) -> int:
        """f_j, of each block's U, the dealer's share of w, and rho."""
        total = 0
        for block, (rows, theirs, rho) in enumerate(blocks):
            a, b = (self.a_share(check.owner, seed, check.run, block, part) for part in ("a", "b"))
            z, z_star = self._both(rows, toss, check.owner)
            total += checking.verifier_sum(add(subtract(z, a), theirs), a, b, z_star, rho)
        return total % P

    def f_of_dealer(
        self, check: Check, seed: bytes, toss: Tossed, blocks: Iterable[tuple[Words, Words, Words, Words]]
    ) -> int:
        """f_D, of each block's R, correction, the verifier's share of w, and rho."""
        total = 0
        for block, (mask, b, theirs, rho) in enumerate(blocks):
            a = self.a_share(check.owner, seed, check.run, block)
            z, z_star = map(negate, self._both(mask, toss, check.owner))
            total += checking.dealer_sum(add(subtract(z, a), theirs), a, b, z_star, rho)
        return total % P

    # ---- frames

    def blocks_of(self, frames: Iterable[bytes], width: int, name: str) -> Iterator[Words]:
        """Return the words of each block of rows that came in frames.

        Args:
            frames: one for each block.
            width: words of a row.
            name: of the message, for errors.

        Raises:
            PeerFault: MESSAGE_INVALID, another size, or words of p or more.
        """
        count = 0
        for count, (rows, frame) in enumerate(zip(self.blocks, frames, strict=True), 1):
            yield words_of(frame, (rows.stop - rows.start, width), f"{name}, block {count - 1}")


class PairWork(RowsWork):
    """Of one pair in one round.

    Args:
        plan: of the round.
        pair: of parties.
        t0: the first transcript.
    """

    def __init__(self, plan: Plan, pair: Pair, t0: bytes) -> None:
        sizes = {name: sizes_of(plan, name) for name in pair.parties}
        super().__init__(plan, t0, pair_field(pair.first, pair.second), sizes, sum(map(sum, sizes.values())))
        self._pair = pair

    def direction(self, owner: str) -> bytes:
        """E(from, to) of what `owner` tells its partner."""
        return direction_field(owner, self._pair.partner(owner))

    # ---- dealing (4.1)

    def seed_commitment(self, owner: str, seed: bytes, salt: bytes) -> bytes:
        """Return the commitment of message 0a: there is no transcript yet."""
        of = Of(pair=self._field, direction=self.direction(owner), part=owner)
        return self._name.commitment("seed", salt, seed, of)

    def mask(self, owner: str, seed: bytes, block: int) -> Words:
        """R of some rows: (rows, width)."""
        rows = self.blocks[block]
        key = self._name.derive(seed, "mask", self._of(direction=self.direction(owner), block=block))
        return words(key, (rows.stop - rows.start, self.widths[owner]))

    def own_product(self, seed: bytes) -> Words:
        """Return the lesser name's share of R_i^T R_j, of its own seed: (width of the lesser, width of the greater)."""
        shape = self.widths[self._pair.first], self.widths[self._pair.second]
        return words(self._name.derive(seed, "z", self._of()), shape)

    def dealt_product(self, first: bytes, second: bytes) -> Words:
        """Return the greater name's share, which the dealer makes of both seeds."""
        product = negate(self.own_product(first))
        for block in range(len(self.blocks)):
            product = add(
                product,
                of_words(self.mask(self._pair.first, first, block), self.mask(self._pair.second, second, block)),
            )
        return product

    # ---- multiplying (4.4)

    def share_of_first(self, seed: bytes, masked: Iterable[Words]) -> Words:
        """C_i = Z_i - R_i^T U_j, of the lesser name: (width of the lesser, width of the greater)."""
        share = self.own_product(seed)
        for block, rows in enumerate(masked):
            share = subtract(share, of_words(self.mask(self._pair.first, seed, block), rows))
        return share

    def share_of_second(self, product: Words, masked: Iterable[Words], people: People) -> Words:
        """C_j = Z_j + U_i^T Y_j, of the greater name: of the same shape."""
        share, sizes = product, self.sizes[self._pair.second]
        for rows, block in zip(self.blocks, masked, strict=True):
            share = add(share, of_words_and_codes(block, people.codes(rows), sizes))
        return share


def sizes_of(plan: Plan, party: str) -> tuple[int, ...]:
    """Categories of each unit of a party, in the plan's order."""
    position = plan.parties.index(party)
    return tuple(size for owner, size in zip(plan.owners, plan.sizes, strict=True) if owner == position)


def bytes_of(some: Words) -> bytes:
    """Words as they are sent: uint32, little-endian."""
    return np.ascontiguousarray(some, "<u4").tobytes()


def words_of(data: bytes, shape: tuple[int, ...], name: str) -> Words:
    """Words that came.

    Raises:
        PeerFault: MESSAGE_INVALID, not of this shape, or words of p or more.
    """
    if len(data) != 4 * int(np.prod(shape)):
        raise PeerFault(
            "MESSAGE_INVALID",
            f"{name}: {len(data)} bytes, expected {4 * int(np.prod(shape))} for {shape} words",
            hint="the sender computed it for another plan; the round ends",
        )
    numbers = np.frombuffer(data, "<u4").reshape(shape)
    check_words(numbers, name)
    return numbers


def _read_by(who: str, reader: str) -> bytes:
    """Return who commits, for whom."""
    return direction_field(who, reader)

"""A party's shares of all tables of a round, and what the miner opens of them (model-three.md, sections 4.5 and 4.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from verticil.shared.core.arrays import Ints
from verticil.shared.masked.arithmetic import opening
from verticil.shared.masked.arithmetic.derivation import Of, RoundName, pair_field
from verticil.shared.masked.arithmetic.field import P, Words, add, check_capacity, from_numbers
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.arithmetic.streams import block_rows, row_blocks, words
from verticil.shared.masked.round.pair_products import People, sizes_of
from verticil.shared.masked.round.schedule import Pair, pairs_of

_TOTAL_DEVIATIONS: Final = 40


def noise_of(plan: Plan, name: str, key: bytes, t1: bytes, index: int) -> Words | None:
    """Draw a contributor's noise for a table; None: it draws none.

    Args:
        plan: of the round.
        name: of the contributor.
        key: its noise key.
        t1: the second transcript.
        index: of the table.
    """
    table = plan.opened[index]
    if not (name in plan.counted if plan.crosses(table) else plan.parties[plan.owners[table[0]]] == name):
        return None
    key_of_table = RoundName(study=plan.study, round=plan.round).derive(
        key, "noise", Of(transcript=t1, pair=index, part=name)
    )
    return opening.noise(key_of_table, plan.shape_at(index), plan.sigma_at(index))


class ShareMaker:
    """Makes a party's shares, one table after the other.

    Args:
        plan: of the round.
        me: the party.
        t1: the second transcript.
        noise: key of its noise.
        padding: private key of its pads.
        paddings: public keys of all parties' pads.
        products: by number of the pair, this party's share of all its tables.
        triples: by index, its part of each table of three parties.
        people: its people.
    """

    def __init__(
        self,
        plan: Plan,
        me: str,
        t1: bytes,
        *,
        noise: bytes,
        padding: bytes,
        paddings: Mapping[str, bytes],
        products: Mapping[int, Words],
        people: People,
        triples: Mapping[int, Words] | None = None,
    ) -> None:
        self._plan, self._me, self._t1, self._noise = plan, me, t1, noise
        self._products, self._people, self._triples = products, people, triples or {}
        self._name = RoundName(study=plan.study, round=plan.round)
        key = X25519PrivateKey.from_private_bytes(padding)
        self._secrets = {
            name: key.exchange(X25519PublicKey.from_public_bytes(paddings[name])) for name in plan.parties if name != me
        }
        self._places = [plan.owners[:unit].count(plan.owners[unit]) for unit in range(len(plan.owners))]

    def frames(self) -> Iterator[bytes]:
        """Return the share of each table that is opened, as bytes."""
        own = self._own_tables()
        for index, table in enumerate(self._plan.opened):
            fine = self._plan.tables.index(table)
            share = own.get(fine, self._triples.get(fine))
            if share is None:
                share = self._cross(fine)
            if (runs := self._plan.runs_at(index)) is not None:
                share = _in_runs(share, runs)
            noise = noise_of(self._plan, self._me, self._noise, self._t1, index)
            if noise is not None:
                share = add(share, noise)
            pads = {name: self._pad(name, index, share.shape) for name in self._secrets}
            after = [pad for name, pad in pads.items() if self._me.encode() < name.encode()]
            before = [pad for name, pad in pads.items() if self._me.encode() > name.encode()]
            yield np.ascontiguousarray(opening.add_pads(share, after, before), "<u4").tobytes()

    def _pad(self, name: str, index: int, shape: tuple[int, ...]) -> Words:
        of = Of(transcript=self._t1, pair=index, direction=pair_field(self._me, name))
        return words(self._name.derive(self._secrets[name], "pad", of), shape)

    def _own_tables(self) -> dict[int, Words]:
        """Counts of the tables within this party."""
        plan = self._plan
        mine = {
            index: [self._places[unit] for unit in table]
            for index, table in enumerate(plan.tables)
            if not plan.crosses(table) and plan.parties[plan.owners[table[0]]] == self._me
        }
        sizes = sizes_of(plan, self._me)
        counts = {index: np.zeros(plan.shape_at(index), np.int64) for index in mine}
        for rows in row_blocks(plan.n_people, block_rows(sum(sizes))) if mine else ():
            codes = self._people.codes(rows).astype(np.int64)
            for index, places in mine.items():
                shape = tuple(sizes[place] for place in places)
                at = np.ravel_multi_index(tuple(codes[:, place] for place in places), shape)
                counts[index] += np.bincount(at, minlength=math.prod(shape)).reshape(shape)
        return {index: from_numbers(cells) for index, cells in counts.items()}

    def _cross(self, index: int) -> Words:
        """Return this party's part of a table of two parties; nothing of one in which it has no column."""
        plan, table = self._plan, self._plan.tables[index]
        owners = [plan.parties[plan.owners[unit]] for unit in table]
        if self._me not in owners or len(set(owners)) == 1:
            return np.zeros(plan.shape_at(index), np.uint32)
        pair = next(pair for pair in pairs_of(plan) if set(pair.parties) == set(owners))
        return self._block(pair, table, owners)

    def _block(self, pair: Pair, table: Sequence[int], owners: Sequence[str]) -> Words:
        rows, columns = (table[owners.index(name)] for name in pair.parties)
        block = self._products[pair.number][self._columns(rows), self._columns(columns)]
        return block if owners[0] == pair.first else np.ascontiguousarray(block.T)

    def _columns(self, unit: int) -> slice:
        """Return the columns of a unit within its party's one-hot columns."""
        sizes = sizes_of(self._plan, self._plan.parties[self._plan.owners[unit]])
        start = sum(sizes[: self._places[unit]])
        return slice(start, start + self._plan.sizes[unit])


def _in_runs(share: Words, runs: Sequence[Sequence[int]]) -> Words:
    """Return a share whose entries on each axis are added up over runs, in the field."""
    total = share.astype(np.uint64)
    for axis, own in enumerate(runs):
        moved = np.moveaxis(total, axis, 0)
        summed = np.zeros((max(own) + 1, *moved.shape[1:]), np.uint64)
        np.add.at(summed, np.asarray(own), moved)
        total = np.moveaxis(summed, 0, axis) % P
    return np.ascontiguousarray(total, np.uint32)


def opened_tables(plan: Plan, shares: Sequence[Iterator[Words]], noise: Callable[[int], Words | None]) -> list[Ints]:
    """Open all tables of the plan, with their noise: what the parties' shares, and the miner's noise, add up to.

    Args:
        plan: of the round.
        shares: of each party, table after table.
        noise: of the miner, by table; None: it draws none.

    Raises:
        Misuse: STUDY_UNSUPPORTED, a count with its noise might be read as another.
    """
    tables = []
    for index, parts in enumerate(zip(*shares, strict=True)):
        check_capacity(plan.n_people, plan.deviation_at(index))
        own = noise(index)
        tables.append(opening.open_sum([*parts, *([] if own is None else [own])]))
    return tables


def are_counts(plan: Plan, tables: Sequence[Ints]) -> bool:
    """Return whether every total is within 40 deviations of the number of people: uniform words are not, but for a
    chance of the room that this leaves in p; honest noise is, but for a chance below 10^-300. A function of what is
    published.
    """
    return all(
        abs(int(counts.sum()) - plan.n_people) <= _TOTAL_DEVIATIONS * plan.deviation_at(index) * math.sqrt(counts.size)
        for index, counts in enumerate(tables)
    )


def tables_from(plan: Plan, data: bytes) -> tuple[Ints, ...]:
    """Read the tables in the bytes of all frames.

    Raises:
        ValueError: they are of another size.
    """
    numbers = np.frombuffer(data, "<i8")
    shapes = [plan.shape_at(index) for index in range(len(plan.opened))]
    if numbers.size != sum(map(math.prod, shapes)):
        raise ValueError(f"{numbers.size} counts, expected {sum(map(math.prod, shapes))}")
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = np.split(numbers, ends)
    return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))


def in_range(tables: Sequence[Ints]) -> bool:
    """Return whether all counts are between -p/2 and p/2."""
    return all(bool(((table >= -(P // 2)) & (table <= P // 2)).all()) for table in tables)

"""Which records are held against which: one round for each seed, the same for every metric and every candidate.

The real table is cut into two halves at random. A candidate is held against the first half. Beside it are held, in the same way,
the second half (the floor: what another sample of the same people would show) and columns that are each like the real ones and
have nothing to do with each other (the baseline). All three have the same number of records, so that chance is the same in each.

Attackers have the whole candidate, and attack people of the first half and people of the holdout, whose records were not used.
Their floor is the second half, in which none of these people are; their baseline the first half itself, a copy of the records.
Nobody is attacked in two rounds, so that what chance makes of a candidate which has nothing to do with any of these people is
another chance in each (`figures`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from verticil.evaluate.measures.coded import CodedTable

SEEDS: Final = 5
TRAINING: Final = 10_000
TESTED: Final = 5_000
PUBLISHED: Final = 50_000
ATTACKED: Final = 1_000
"""Members, and as many others."""
LEAST_ATTACKED: Final = 20
"""In each round: of fewer chance tells more than any table."""

Kind = Literal["candidate", "floor", "baseline"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Play:
    """A table that is held against the real one.

    Attributes:
        name: of the candidate; `kind` of others.
        kind: what it is.
        table: of the round's number of records: what is compared and learned from.
        published: what an attacker has.
    """

    name: str
    kind: Kind
    table: CodedTable
    published: CodedTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """What one seed drew.

    Attributes:
        seed: of everything in it.
        real: real records that tables are held against; classifiers are trained on them for the floor.
        floor, independent: the same number of other real records, and of records with independent columns.
        members: of `real`, its first, who are attacked; in no other round.
        others: of the holdout, as many, who are attacked for comparison; in no other round. Nobody: there is no holdout, or
            there would be fewer than `LEAST_ATTACKED`.
        tested: what classifiers are tested on: of the holdout, `others` first; else of `floor`.
    """

    seed: int
    real: CodedTable
    floor: CodedTable
    independent: CodedTable
    members: CodedTable
    others: CodedTable
    tested: CodedTable

    def generator(self, purpose: int) -> np.random.Generator:
        """Return draws of one metric; the same whatever else runs."""
        return np.random.default_rng([self.seed, purpose])

    def references(self, *, is_attack: bool) -> tuple[Play, Play]:
        """Return floor and baseline; see the module."""
        worst = self.real if is_attack else self.independent
        return (
            Play(name="floor", kind="floor", table=self.floor, published=self.floor),
            Play(name="baseline", kind="baseline", table=worst, published=worst),
        )

    def candidate(self, name: str, table: CodedTable, *, most: int | None) -> Play:
        """Return a candidate in this round.

        Args:
            name: its name.
            table: all its records.
            most: of what an attacker has; None: all.
        """
        order = np.random.default_rng([self.seed, 2, *name.encode()]).permutation(table.n)
        synthetic = table if most is None or table.n <= most else table.rows(order[:most])
        return Play(name=name, kind="candidate", table=table.rows(order[: self.real.n]), published=synthetic)


def size_of(real: CodedTable, smallest: int, *, full: bool) -> int:
    """Return the size of each table in a round: at most half of the real ones, all of the smallest candidate and `TRAINING`."""
    return min(real.n // 2, smallest, real.n if full else TRAINING)


def rounds(
    real: CodedTable, holdout: CodedTable | None, *, size: int, seed: int, full: bool, number: int = SEEDS
) -> Iterator[Round]:
    """Draw the rounds.

    Args:
        real: all real records.
        holdout: further ones.
        size: records of each table; see `size_of`.
        seed: of the first round; the others follow.
        full: attack and test all, in place of `ATTACKED` and `TESTED`.
        number: how many.
    """
    most = None if full else TESTED
    n_attacked = min(
        size, real.n // number, *([] if full else [ATTACKED]), *([] if holdout is None else [holdout.n // number])
    )
    for place in range(number):
        generator = np.random.default_rng([seed + place, 1])
        order = _order(real.n, seed, place, number, generator)
        first, second = real.rows(order[:size]), real.rows(order[size : 2 * size])
        if holdout is not None:
            order = _order(holdout.n, seed, place, number, generator)
        test_records = second.rows(np.arange(size)[:most]) if holdout is None else holdout.rows(order[:most])
        n_others = 0 if holdout is None or n_attacked < LEAST_ATTACKED else n_attacked
        yield Round(
            seed=seed + place,
            real=first,
            floor=second,
            independent=_independent(second, generator),
            members=first.rows(np.arange(n_attacked)),
            others=test_records.rows(np.arange(n_others)),
            tested=test_records,
        )


def _order(n: int, seed: int, place: int, number: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return a random order that starts with records which no other round's starts with: n / number of them."""
    once = np.random.default_rng([seed, 3, n]).permutation(n)
    own = slice(place * (n // number), (place + 1) * (n // number))
    return np.concatenate([once[own], generator.permutation(np.delete(once, own))])


def _independent(table: CodedTable, generator: np.random.Generator) -> CodedTable:
    """Shuffle each column in an order of its own."""
    orders = [generator.permutation(table.n) for _ in table.names]
    return CodedTable(
        names=table.names,
        codes=tuple(column[order] for column, order in zip(table.codes, orders, strict=True)),
        n_states=table.n_states,
        values=tuple(
            None if column is None else column[order] for column, order in zip(table.values, orders, strict=True)
        ),
    )

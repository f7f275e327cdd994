"""The plan of a round of masked tables: all that is public about it, as one canonical document (model-three.md section 1).

Every contributor makes it by itself, of the effective study and of the number of people, and compares its digest with those of
all others before anything is masked. So a plan never comes from a peer as something to follow; what is checked here is that its
parts go together.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from verticil.shared.documents.record import OPTIONAL, Sha256, encode
from verticil.shared.masked.arithmetic.field import check_capacity
from verticil.shared.masked.arithmetic.opening import deviation, enough
from verticil.shared.mechanisms.discrete_gaussian import (
    LARGEST_SIGMA,
    LEAST_SIGMA,
    LEAST_SIGMA_OF_A_SUM,
    MOST_OF_A_SUM,
)

LEAST_PARTIES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CoarsePlan:
    """The tables that are opened a second time, in runs of neighbouring categories.

    Attributes:
        tables: pairs of units, each one of `Plan.tables`.
        runs: of each unit the run of each of its categories, numbered from 0.
        sigma, sigma_each: of these tables, as of `Plan`.
    """

    tables: tuple[tuple[int, ...], ...]
    runs: tuple[tuple[int, ...], ...]
    sigma: tuple[int, int]
    sigma_each: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is public about a round.

    Attributes:
        study: SHA-256 of the proposal.
        effective: SHA-256 of the effective study.
        round: 1 for the first.
        parties: in the study's order.
        miner: its name.
        operators: of every contributor, by its name.
        n_people: n, rows of the common list.
        linkage: mode, and with it the order of the people.
        owners: of each unit of the effective study the position of its party.
        sizes: of each unit its categories, K.
        tables: ascending positions of units, each table once.
        dealers: of each of `pairs`: a party's name, or the miner's.
        counted: contributors that draw noise across parties, in the order of `contributors`.
        tolerate: t, how many of them may know their noise or leave it out.
        epsilon, delta: of all tables, for whoever sees what is published.
        sigma: parameter of the noise that the statement rests on, people; the double as a ratio of whole numbers.
        sigma_each: that of each counted contributor, sigma_c; sigma_c^2 (N - t) >= sigma^2.
        unchecked: parties whose rows go unchecked, in the order of `parties`.
        slot_milliseconds: steps whose time could tell something leave at whole multiples of it (section 4.8).
        coarse: the second resolution; None: there is none.

    Raises:
        ValueError: parts do not go together.
        Misuse: STUDY_UNSUPPORTED, an opened count could be read wrongly (`check_capacity`).
    """

    MARK: ClassVar = {"form": "verticil/masked/v1"}

    study: Sha256
    effective: Sha256
    round: int
    parties: tuple[str, ...]
    miner: str
    operators: Mapping[str, str]
    n_people: int
    linkage: str
    owners: tuple[int, ...]
    sizes: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...]
    dealers: tuple[str, ...]
    counted: tuple[str, ...]
    tolerate: int
    epsilon: float
    delta: float
    sigma: tuple[int, int]
    sigma_each: tuple[int, int]
    unchecked: tuple[str, ...]
    slot_milliseconds: int
    coarse: Annotated[CoarsePlan | None, OPTIONAL] = None

    def __post_init__(self) -> None:
        self._check_names()
        self._check_tables()
        self._check_dealers()
        self._check_noise()
        for what, number in (("round", self.round), ("people", self.n_people), ("slot", self.slot_milliseconds)):
            _expect(number >= 1, f"{what} {number}, expected at least 1")
        check_capacity(self.n_people, self.sigma_total)

    def _check_names(self) -> None:
        _expect(len(self.parties) >= LEAST_PARTIES, f"{len(self.parties)} parties, expected at least {LEAST_PARTIES}")
        names = [name.encode() for name in self.contributors]  # a text that UTF-8 does not have is a ValueError
        _expect(all(names) and len(set(names)) == len(names), "two contributors have one name, or one has none")
        _expect(set(self.operators) == set(self.contributors), "the operators are not those of all contributors")
        _expect(_some_of(self.unchecked, self.parties), "the unchecked are not some parties, in their order")

    def _check_tables(self) -> None:
        units = len(self.owners)
        _expect(len(self.sizes) == units, f"{len(self.sizes)} sizes of {units} units")
        _expect(set(self.owners) == set(range(len(self.parties))), "the owners of units are not all parties")
        _expect(min(self.sizes) >= 1, "a unit without categories")
        for table in self.tables:
            inside = 1 <= len(table) <= 3 and table[0] >= 0 and table[-1] < units
            _expect(
                inside and all(one < other for one, other in itertools.pairwise(table)),
                f"table {table} is not one to three positions of {units} units, ascending",
            )
            owners = {self.owners[unit] for unit in table}
            _expect(len(table) < 3 or len(owners) != 2, f"table {table} is of three units of two parties")
            if len(owners) == 3:
                four = {self.operators[name] for name in (self.miner, *(self.parties[owner] for owner in owners))}
                _expect(
                    len(four) == 4, f"the owners of table {table} and the miner are not of four different operators"
                )
        _expect(len(set(self.tables)) == len(self.tables) > 0, "there is no table, or one stands there twice")
        if self.coarse is not None:
            pairs = {table for table in self.tables if len(table) == 2}
            own = self.coarse.tables
            _expect(0 < len(set(own)) == len(own) and pairs.issuperset(own), "the tables in runs are not some pairs")
            fits = [
                len(runs) == size and set(runs) == set(range(max(runs) + 1))
                for runs, size in zip(self.coarse.runs, self.sizes, strict=False)
            ]
            _expect(len(self.coarse.runs) == units and all(fits), "the runs are not those of all units' categories")

    def _check_dealers(self) -> None:
        _expect(len(self.dealers) == len(self.pairs), f"{len(self.dealers)} dealers of {len(self.pairs)} pairs")
        for pair, dealer in zip(self.pairs, self.dealers, strict=True):
            _expect(dealer in self.contributors, f"the dealer of {pair} is no contributor")
            three = {self.operators[name] for name in (*pair, dealer)}
            _expect(len(three) == 3, f"{pair} and their dealer '{dealer}' are not of three different operators")

    def _check_noise(self) -> None:
        n, t = len(self.counted), self.tolerate
        _expect(_some_of(self.counted, self.contributors), "the counted are not some contributors, in their order")
        _expect(len({self.operators[name] for name in self.counted}) == n <= MOST_OF_A_SUM, "too many are counted")
        most = min(n, len(self.parties)) - 1
        _expect(1 <= t <= most, f"tolerate {t} of {n} counted and {len(self.parties)} parties, expected 1 to {most}")
        _expect(0 < self.epsilon < math.inf and 0 < self.delta < 1, "epsilon and delta are no promise")
        for of in (self,) if self.coarse is None else (self, self.coarse):
            for (top, bottom), least in ((of.sigma, LEAST_SIGMA), (of.sigma_each, LEAST_SIGMA_OF_A_SUM)):
                _expect(top > 0 and bottom > 0, "a sigma is not above 0")
                sigma = top / bottom
                exact = sigma.as_integer_ratio() == (top, bottom)
                _expect(exact and least <= sigma <= LARGEST_SIGMA, f"sigma {top}/{bottom} is none that is drawn")
            is_enough = enough(of.sigma_each, of.sigma, n, t)
            _expect(is_enough, "what is left of the noise without those who are tolerated is below sigma")

    @property
    def contributors(self) -> tuple[str, ...]:
        """The parties and the miner."""
        return (*self.parties, self.miner)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of parties, in the order of `dealers`."""
        return tuple(itertools.combinations(self.parties, 2))

    def crosses(self, table: tuple[int, ...]) -> bool:
        """Return whether a table is of units of several parties."""
        return len({self.owners[unit] for unit in table}) > 1

    @property
    def opened(self) -> tuple[tuple[int, ...], ...]:
        """The units of each table that is opened: `tables`, then those in runs."""
        return self.tables if self.coarse is None else (*self.tables, *self.coarse.tables)

    def runs_at(self, index: int) -> tuple[tuple[int, ...], ...] | None:
        """Return the runs of each unit of an opened table; None: it has the categories themselves."""
        if self.coarse is None or index < len(self.tables):
            return None
        return tuple(self.coarse.runs[unit] for unit in self.opened[index])

    def shape_at(self, index: int) -> tuple[int, ...]:
        """Return the shape of an opened table."""
        runs = self.runs_at(index)
        if runs is None:
            return tuple(self.sizes[unit] for unit in self.tables[index])
        return tuple(max(own) + 1 for own in runs)

    def sigma_at(self, index: int) -> tuple[int, int]:
        """Return the parameter of one draw for an opened table: of each who is counted across parties, else of the owner."""
        of = self if self.coarse is None or index < len(self.tables) else self.coarse
        return of.sigma_each if self.crosses(self.opened[index]) else of.sigma

    def deviation_at(self, index: int) -> float:
        """Return the standard deviation of the noise on each count of an opened table, as it is drawn, people."""
        return deviation(self.sigma_at(index), len(self.counted) if self.crosses(self.opened[index]) else 1)

    @property
    def sigma_total(self) -> float:
        """The largest of the deviations of all tables, people."""
        return max(map(self.deviation_at, range(len(self.opened))))

    @property
    def digest(self) -> bytes:
        """SHA-256 of its canonical bytes, as hellos have it."""
        return hashlib.sha256(encode(self)).digest()


def _expect(good: bool, problem: str) -> None:
    if not good:
        raise ValueError(problem)


def _some_of(some: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return tuple(name for name in names if name in some) == some

"""The experiment: every way to synthetic records on every table, all with an epsilon at the same one, and what is measured of it.

Beside the ways stand two yardsticks: the synthesized records themselves (the paper's "original", and what every attack must find
out), and other real records of the same kind (what another sample of people is like: the best that synthetic records can be).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
import pandas as pd

from verticil.experiments.kipps.attacks import Attribute, Membership, attribute, membership
from verticil.experiments.kipps.datasets import DataSet
from verticil.experiments.kipps.measures import CLASSIFIERS, Fidelity, Learned, fidelity, learned

T = TypeVar("T")
Step = Callable[[str], None]
"""Called with what is being done, in words."""

PARTS: Final = ("table 1", "figure 2", "figure 3", "figure 4")
EPSILON: Final = 3.0
DELTA: Final = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How generators are trained: so many steps, of so many people on average."""

    steps: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every way is asked for.

    Attributes:
        epsilon, delta: of those that have them, for the replacement of one person.
        training: of generators.
        seed: of noise and records.
        n: how many records.
    """

    epsilon: float
    delta: float
    training: Training
    seed: int
    n: int

    @property
    def key(self) -> bytes:
        """32 bytes, drawn from the seed: nobody is protected here."""
        return np.random.default_rng([self.seed, 0xF]).bytes(32)


Make = Callable[[DataSet, pd.DataFrame, Asked], pd.DataFrame]
"""(the data set, the records to synthesize, what is asked for) -> synthetic records of all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSource:
    """One way to records.

    Attributes:
        name: short.
        words: for people.
        make: makes records; None: the yardstick of other real records.
        private: it has the epsilon; else nothing bounds what it tells.
        known: it knows the rules.
    """

    name: str
    words: str
    make: Make | None
    private: bool = True
    known: bool = False


REAL: Final = RecordSource(
    name="real records", words="the real records themselves", make=lambda _data, frame, _asked: frame, private=False
)
OTHERS: Final = RecordSource(name="other real records", words="real records of other people", make=None, private=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is run.

    Attributes:
        members: records that are synthesized, at most.
        others: real records beside, of each kind, at most; as many synthetic ones are compared and learned from, and as many
            members and others are attacked.
        permutations: of which records are synthetic, for what trees do by chance.
        classifiers: of Figure 2.
        training: of generators.
        people: who are in, of the attack on membership, and as many who are not; a copy is made of so few.
        shadows: copies that the attacker learns from.
        copies: how generators are trained for these.
    """

    members: int
    others: int
    permutations: int
    classifiers: tuple[str, ...]
    training: Training
    people: int
    shadows: int
    copies: Training


FULL: Final = Scale(
    members=20_000, others=4_000, permutations=20, classifiers=tuple(CLASSIFIERS),
    training=Training(steps=1000, batch=500), people=1000, shadows=3, copies=Training(steps=300, batch=100),
)  # fmt: skip
QUICK: Final = Scale(
    members=1_500, others=600, permutations=5, classifiers=tuple(CLASSIFIERS), training=Training(steps=60, batch=100),
    people=150, shadows=1, copies=Training(steps=20, batch=50),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A way on a table; None of a part that was not asked for, or that a yardstick has not.

    Attributes:
        data, way: names.
        records: that were synthesized.
        seconds: CPU seconds of making the records.
        fidelity: Table 1.
        learned: Figure 2.
        membership: Figure 3.
        attribute: Figure 4.
    """

    data: str
    way: str
    records: int
    seconds: float
    fidelity: Fidelity | None = None
    learned: Learned | None = None
    membership: Membership | None = None
    attribute: Attribute | None = None


def of_fidelity(value: Callable[[Fidelity], T]) -> Callable[[Row], T | None]:
    """Something of a row's Table 1; None where it has none."""
    return lambda row: None if row.fidelity is None else value(row.fidelity)


def of_learned(value: Callable[[Learned], T]) -> Callable[[Row], T | None]:
    """Something of a row's Figure 2."""
    return lambda row: None if row.learned is None else value(row.learned)


def of_membership(value: Callable[[Membership], T]) -> Callable[[Row], T | None]:
    """Something of a row's Figure 3."""
    return lambda row: None if row.membership is None else value(row.membership)


def of_attribute(value: Callable[[Attribute], T]) -> Callable[[Row], T | None]:
    """Something of a row's Figure 4."""
    return lambda row: None if row.attribute is None else value(row.attribute)


def parts_of(way: RecordSource, parts: Collection[str]) -> tuple[str, ...]:
    """Those of the asked parts that a way has: what the yardsticks show is not asked of them twice."""
    has = {OTHERS.name: {"table 1"}, REAL.name: set(PARTS) - {"table 1"}}.get(way.name, set(PARTS))
    return tuple(part for part in PARTS if part in has and part in parts)


def measured(
    data: DataSet,
    way: RecordSource,
    parts: Collection[str],
    scale: Scale,
    *,
    seed: int,
    tell: Step,
    clock: Callable[[], float],
) -> Row:
    """Make records in one way, and measure them.

    Args:
        data: the table.
        way: how.
        parts: some of `PARTS`.
        scale: how much.
        seed: of everything.
        tell: is told what is being done.
        clock: CPU seconds.
    """

    def step(text: str) -> None:
        tell(f"{data.name}, {way.name}: {text}")

    def made(frame: pd.DataFrame, of: int, training: Training) -> pd.DataFrame:
        assert way.make is not None
        return way.make(data, frame, Asked(epsilon=EPSILON, delta=DELTA, training=training, seed=of, n=len(frame)))

    asked = parts_of(way, parts)
    members, others, fresh = data.split(scale.members, scale.others, seed=seed)
    row = Row(data=data.name, way=way.name, records=len(members), seconds=0.0)
    if {"table 1", "figure 2", "figure 4"} & set(asked):
        step("making records")
        begun = clock()
        whole = fresh if way.make is None else made(members, seed, scale.training)
        row = replace(row, seconds=clock() - begun)
        step("comparing")
        published, real, tested = (data.coded(frame) for frame in (whole, members.iloc[: len(others)], others))
        few = published.rows(range(min(published.n, real.n)))
        if "table 1" in asked:
            compared = fidelity(data, real, few, seed=seed, permutations=scale.permutations)
            row = replace(row, fidelity=compared)
        if "figure 2" in asked:
            row = replace(row, learned=learned(data, few, tested, seed=seed, classifiers=scale.classifiers))
        if "figure 4" in asked:
            row = replace(row, attribute=attribute(data, published, real, tested, seed=seed))
    if "figure 3" in asked:
        found = membership(
            data,
            lambda frame, of: made(frame, of, scale.copies),
            people=scale.people,
            shadows=scale.shadows,
            seed=seed,
            tell=step,
        )
        row = replace(row, membership=found)
    return row

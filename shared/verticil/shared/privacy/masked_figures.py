"""The four figures of a masked study: what stands first wherever people decide or read about it (model-three.md, section 6).

1. (epsilon, delta) for everybody, and the coalitions that it covers, by name;
2. what the miner had before of these columns;
3. the floor, and the (epsilon, delta) beside it, with the names of who would have to work together;
4. whether the rows of partners are checked.

They are worded once, here: in `study check`, before an approval, in the ledger's listing, in a release and its report.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.knowledge.words import join_names
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.figures import column_epsilon, epsilon_words, total_epsilon
from verticil.shared.privacy.masked import dealer_event, known_draws, tables_event, together
from verticil.shared.study.document import Study
from verticil.shared.study.masked import covered_coalitions, noise_contributors, rule_of
from verticil.shared.study.protocol import MINER
from verticil.shared.study.protocols import opens_tables

_MOST: Final = 6
"""Coalitions, and pairs of a dealer with its partner, that are named; of more the number is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What a dealer with its partner could read, row by row.

    Attributes:
        names: of the two who would have to work together.
        owners: whose columns.
        columns: how many draws.
        epsilon: of all of them together; infinite: one has no bound.
    """

    names: tuple[str, str]
    owners: tuple[str, ...]
    columns: int
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FourFigures:
    """The figures of one study.

    Attributes:
        everybody: of all tables.
        tables: how many.
        counted: who draws noise across parties.
        tolerate: how many of them may know theirs, or leave it out.
        covered: coalitions that `everybody` covers, the first of them; smaller ones are covered, too.
        more: whether there are more.
        before: epsilon of what the miner was sent before of these columns; None: only each party's ledger knows.
        floor: who could read what, largest first.
        beside: what the tables tell such two; None: nothing that the rows do not.
        others: how many more may leave their noise out for that to hold.
        unchecked: parties whose rows nobody checks.
    """

    everybody: Cost
    tables: int
    counted: tuple[str, ...]
    tolerate: int
    covered: tuple[tuple[str, ...], ...]
    more: bool
    before: float | None
    floor: tuple[Floor, ...]
    beside: Cost | None
    others: int
    unchecked: tuple[str, ...]

    @property
    def words(self) -> tuple[str, str, str, str]:
        """Each figure in words."""
        return (_everybody(self), _before(self.before), _floor(self), _describe_checks(self.unchecked))

    def document(self) -> Json:
        """Write the figures for a release, which does not know what a miner had before."""
        return {
            "everybody": {"epsilon": self.everybody.epsilon, "delta": self.everybody.delta, "tables": self.tables},
            "counted": list(self.counted),
            "tolerate": self.tolerate,
            "covered": [list(names) for names in self.covered],
            "floor": [
                {
                    "names": list(item.names),
                    "owners": list(item.owners),
                    "columns": item.columns,
                    "epsilon": item.epsilon if math.isfinite(item.epsilon) else None,
                }
                for item in self.floor
            ],
            "beside": None
            if self.beside is None
            else {"epsilon": self.beside.epsilon, "delta": self.beside.delta, "others": self.others},
            "unchecked": list(self.unchecked),
        }


def four_figures(study: Study, *, party: str | None = None, before: float | None = None) -> FourFigures | None:
    """Compute the figures of a study.

    Args:
        study: with the declarations that are known.
        party: only of its columns, for its people; None: of all.
        before: what the miner was sent before of these columns, as its ledger says.

    Returns:
        None: the study is not masked.
    """
    if not opens_tables(study):
        return None
    event, less = tables_event(study), dealer_event(study)
    some = tuple(itertools.islice(covered_coalitions(study), _MOST + 1))
    floor: list[Floor] = []
    for names, read in together(study).items():
        units = [unit for unit in map(study.units.__getitem__, read) if party in (None, unit.owner)]
        owners = tuple(name for name in study.parties if name in {unit.owner for unit in units})
        if units:
            total = total_epsilon(column_epsilon(unit.transition) for unit in units)
            floor.append(Floor(names=names, owners=owners, columns=len(units), epsilon=total))
    return FourFigures(
        everybody=cost_of(event),
        tables=event.tables,
        counted=noise_contributors(study),
        tolerate=event.tolerate,
        covered=some[:_MOST],
        more=len(some) > _MOST,
        before=before,
        floor=tuple(sorted(floor, key=lambda item: -item.epsilon)),
        beside=None if less is None else cost_of(less),
        others=max(0, event.tolerate - known_draws(study)),
        unchecked=tuple(name for name in study.parties if name in rule_of(study).unchecked),
    )


def _write_cost(cost: Cost) -> str:
    return f"{epsilon_words(cost.epsilon)}, delta {cost.delta:.3g}"


def _everybody(figures: FourFigures) -> str:
    several = "; ".join(join_names(some) for some in figures.covered) + ("; and more" if figures.more else "")
    lazy = "one of them" if figures.tolerate == 1 else f"{figures.tolerate} of them in all"
    return (
        f"everybody: {_write_cost(figures.everybody)} for each person, of all {figures.tables} tables together, unless "
        f"somebody breaks the ciphers. {join_names(figures.counted)} draw the noise; {lazy} may be curious or leave it out. So "
        f"it holds against each of these, with outsiders: {several}{_against_no_two(figures)}. "
        f"A party that leaves noise out of its own tables has no such promise for its columns"
    )


def _against_no_two(figures: FourFigures) -> str:
    """Say what holds against single parties only."""
    parties = {name for some in figures.covered for name in some if name != MINER}
    if figures.more or any(len({*some} & parties) > 1 for some in figures.covered):
        return ""
    dealt = {frozenset(item.names) for item in figures.floor}
    each = all(frozenset(two) in dealt for two in itertools.combinations(sorted(parties), 2))
    why = ": any two are a dealer of masks and its partner" if each and len(parties) > 1 else ""
    return f"; that is against each single one, and against no two parties{why}"


def _before(epsilon: float | None) -> str:
    if epsilon is None:
        return (
            "the miner: the same, and what it was sent of these columns in studies before, which it keeps; each party's ledger "
            "says how much"
        )
    if epsilon == 0:
        return "the miner: the same; it was sent nothing of these columns before"
    return (
        f"the miner: the same, and what it was sent of these columns before, which it keeps: {epsilon_words(epsilon)}"
    )


def _floor(figures: FourFigures) -> str:
    pair_words = [
        f"{' with '.join(item.names)} (columns of {join_names(item.owners)}: {epsilon_words(item.epsilon)} over {item.columns})"
        for item in figures.floor[:_MOST]
    ]
    more = f"; and {len(figures.floor) - _MOST} more pairs" if len(figures.floor) > _MOST else ""
    others = "nobody else leaves" if not figures.others else f"at most {figures.others} more leave"
    tables = "" if figures.beside is None else f"{_write_cost(figures.beside)}, while {others} noise out"
    beside = tables and f"; beside it the tables tell such two {tables}"
    return (
        "the floor: a dealer of masks that works together with the partner it dealt to reads randomized columns row by row: "
        f"{'; '.join(pair_words)}{more}{beside}. Nothing else stops such two"
    )


def _describe_checks(names: Sequence[str]) -> str:
    if not names:
        return "checked: the rows of every party are checked by its partners, without being seen"
    return (
        f"not checked: the rows of {join_names(names)}. Such a party can learn exactly, in all columns of every partner, what "
        "about 20 people of its choice have, for each column of its own"
    )

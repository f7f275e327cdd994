"""What one draw randomizes: a column or a compound of one party, the matrix or the subset selection that it goes through.

A study holds its units (`study.document`); `study.schemes` makes them from what an analyst or a party declares.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Final

from verticil.shared.documents.json_document import Json
from verticil.shared.documents.record import OPTIONAL, Key
from verticil.shared.documents.toml_table import Table
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.mechanisms.transition import Transition
from verticil.shared.study.vocabulary import MAX_CELLS

_WEIGHT: Final = re.compile(r"0|[1-9][0-9]{0,19}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevel:
    """How a ``two-level`` matrix was declared. For the person who approves: its epsilon is that of the matrix.

    Attributes:
        groups: positions of categories, as declared.
        epsilon_group: of the response that reports the group.
        epsilon_within: of the response that reports the value within a group that was kept.
    """

    groups: tuple[tuple[int, ...], ...]
    epsilon_group: float
    epsilon_within: float

    @property
    def text(self) -> str:
        """Both numbers in words.

        >>> TwoLevel(groups=((0, 1), (2,)), epsilon_group=1.0, epsilon_within=0.5).text
        'epsilon 1 for the group (2 groups), 0.5 within it'
        """
        return f"epsilon {self.epsilon_group:.6g} for the group ({len(self.groups)} groups), {self.epsilon_within:.6g} within it"


def _schemes() -> Collection[str]:
    from verticil.shared.study.schemes import SCHEMES  # each scheme makes units

    return SCHEMES


def _read_channel(_: object, table: Table, __: str) -> Transition | Subset:
    """``matrix``, or ``subset`` in its place."""
    if table.has("subset"):
        selection = _read_subset(table.table("subset"))
        if table.has("matrix"):
            table.fail("matrix", "stands beside 'subset', expected one of the two")
        return selection
    rows = table.rows("matrix")
    if len(rows) ** 2 > MAX_CELLS:
        table.fail("matrix", f"{len(rows)} rows, expected at most {MAX_CELLS} cells")
    try:
        return Transition(weights=tuple(tuple(map(_weight, row)) for row in rows))
    except ValueError as error:
        return table.fail("matrix", str(error))


def _read_subset(table: Table) -> Subset:
    table.only("n_states", "size", "weight")
    try:
        weight = _weight(table.value(str, "weight"))
        selection = Subset(n_states=table.value(int, "n_states"), size=table.value(int, "size"), weight=weight)
    except ValueError as error:
        return table.fail("weight", str(error))
    if selection.n_states**2 > MAX_CELLS:
        table.fail("n_states", f"got {selection.n_states}, expected at most {MAX_CELLS} cells")
    return selection


def _write_channel(channel: Transition | Subset) -> Json:
    """Weights are whole numbers of units of 2^-64, as decimal strings: JSON numbers cannot hold them."""
    if isinstance(channel, Subset):
        return {"subset": {"n_states": channel.n_states, "size": channel.size, "weight": str(channel.weight)}}
    return {"matrix": [[str(weight) for weight in row] for row in channel.weights]}


def _weight(cell: object) -> int:
    if not isinstance(cell, str) or not _WEIGHT.fullmatch(cell):
        raise ValueError("a weight is not a whole number in decimal digits, as a string")
    return int(cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is randomized in one draw and shipped as one artifact: a column, or a compound of several columns, of one party.

    Attributes:
        variables: names, in the order of the product domain (first slowest); several of them are one compound. The order is
            the analyst's, not that of the schema.
        owner: the party.
        scheme: symmetric, binary, blocks, two-level, matrix, subset or none; for people, the channel says it all.
        transition: the matrix, quantized; or subset selection. Its categories are those of the column, or of a compound's domain.
        two_level: how it was declared; with the scheme two-level only.
        impossible: combinations of codes that are not in a compound's domain, ascending; none for a single column.
    """

    variables: tuple[str, ...]
    owner: Annotated[str, Key(name="party")]
    scheme: Annotated[str, Key(choices=_schemes)]
    transition: Annotated[
        Transition | Subset, Key(inline=("matrix", "subset"), read=_read_channel, write=_write_channel)
    ]
    two_level: Annotated[TwoLevel | None, OPTIONAL] = None
    impossible: Annotated[tuple[tuple[int, ...], ...], OPTIONAL] = ()

    @property
    def is_compound(self) -> bool:
        """Whether several columns are randomized in one draw."""
        return len(self.variables) > 1

    @property
    def text(self) -> str:
        """The unit in messages, as in ``column 'race'``."""
        return f"column{'s' if self.is_compound else ''} '{', '.join(self.variables)}'"

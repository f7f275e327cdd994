"""Which questions about a table are allowed without a person: codebooks, impossible combinations, ways of writing ids.

A codebook cuts a column into categories, and whoever may choose the cut chooses what is asked of each person. So rules approve
only what the site wrote down itself (``[codebook]`` in party.toml) or a person approved here before. Only the study, party.toml
and those approvals are looked at; never a table.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from verticil.party.dataset.releases import Column
from verticil.shared.model.schema import Variable
from verticil.shared.study.document import Study, Unit

_NOWHERE: Final = "in no [codebook] of party.toml and in no study that a person approved here"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCodebook:
    """How one local column is encoded; how values outside the bins are, is always the same and not said.

    Attributes:
        column: of the local table.
        labels: all categories in order; see `Variable`.
        bins: edges; None: categories.
        other: the category of what is not declared.
        missing: its category and spellings.
    """

    column: Column
    labels: tuple[str, ...]
    bins: tuple[float, ...] | None
    other: str | None
    missing: tuple[str, frozenset[str]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combinations:
    """Combinations of categories of several local columns that are declared impossible.

    Attributes:
        columns: of the local table, in the order of their names.
        impossible: one label of each column, in this order.
    """

    columns: tuple[Column, ...]
    impossible: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, columns: Iterable[Column], impossible: Iterable[tuple[str, ...]]) -> Combinations:
        """The same combinations, in whatever order the columns are given."""
        listed = tuple(columns)
        order = sorted(range(len(listed)), key=lambda place: (listed[place].dataset, listed[place].source))
        return cls(
            columns=tuple(listed[place] for place in order),
            impossible=frozenset(tuple(labels[place] for place in order) for labels in impossible),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is asked by a study, or may be asked.

    Attributes:
        columns: codebooks.
        combinations: lists of impossible combinations.
        normalise: steps applied to ids.
    """

    columns: frozenset[ColumnCodebook] = frozenset()
    combinations: frozenset[Combinations] = frozenset()
    normalise: frozenset[tuple[str, ...]] = frozenset()

    def __or__(self, other: Known) -> Known:
        return Known(
            columns=self.columns | other.columns,
            combinations=self.combinations | other.combinations,
            normalise=self.normalise | other.normalise,
        )

    @staticmethod
    def all_of(parts: Iterable[Known]) -> Known:
        """What stands in any of them."""
        return functools.reduce(operator.or_, parts, Known())


def codebook_of(variable: Variable, column: Column) -> ColumnCodebook:
    """The codebook of a study's variable, or of one that party.toml declares."""
    missing = variable.missing
    return ColumnCodebook(
        column=column,
        labels=variable.labels,
        bins=variable.bins,
        other=variable.other,
        missing=None if missing is None else (missing.category, frozenset(missing.spellings)),
    )


def asked(study: Study, party: str, columns: Mapping[str, Column]) -> Known:
    """What a study asks of a party.

    Args:
        study: the proposal.
        party: this party.
        columns: variable -> local column; a variable that is not in it is left out.
    """
    own = [study.schema[position] for position in study.schema.owned_by(party)]
    return Known(
        columns=frozenset(codebook_of(item, columns[item.name]) for item in own if item.name in columns),
        combinations=frozenset(
            _combinations(study, study.units[index], columns)
            for index in study.units_of(party)
            if study.units[index].impossible and all(name in columns for name in study.units[index].variables)
        ),
        normalise=frozenset([study.linkage.normalise]),
    )


def uncovered(study: Study, party: str, columns: Mapping[str, Column], known: Known) -> tuple[str, ...]:
    """What a study asks of a party and `known` does not hold, in words and without a value; nothing: rules may decide.

    Args:
        study: the proposal.
        party: this party.
        columns: variable -> local column, of all its variables.
        known: what party.toml says, and what people approved before.
    """
    found: list[str] = []
    for position in study.schema.owned_by(party):
        variable = study.schema[position]
        if codebook_of(variable, columns[variable.name]) not in known.columns:
            what = "bins" if variable.bins is not None else "categories"
            local = columns[variable.name].source
            found.append(f"column '{variable.name}': its {what} of the local column '{local}' stand {_NOWHERE}")
    for index in study.units_of(party):
        unit = study.units[index]
        if unit.impossible and _combinations(study, unit, columns) not in known.combinations:
            names = ", ".join(unit.variables)
            found.append(f"columns '{names}': the list of their impossible combinations stands {_NOWHERE}")
    if study.linkage.normalise not in known.normalise:
        steps = ", ".join(study.linkage.normalise) or "nothing"
        found.append(f"linkage.normalise ({steps}) stands {_NOWHERE}")
    return tuple(found)


def _combinations(study: Study, unit: Unit, columns: Mapping[str, Column]) -> Combinations:
    labels = [study.schema[study.schema.index(name)].labels for name in unit.variables]
    return Combinations.of(
        (columns[name] for name in unit.variables),
        (tuple(names[code] for names, code in zip(labels, codes, strict=True)) for codes in unit.impossible),
    )

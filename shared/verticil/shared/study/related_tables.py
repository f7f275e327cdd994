"""Related tables in a study: ``[[table]]`` and the ``[[variable]]`` tables that name one, read into slots and checked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.record import keys, read
from verticil.shared.documents.toml_table import Table, near_hint
from verticil.shared.numerics.knowledge.columns import narrow_knowledge
from verticil.shared.numerics.knowledge.rules import Condition, Rule
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.related.structure import Mask, possible_together
from verticil.shared.related.tables import (
    MOST_ROWS,
    ORDERING,
    RelatedTable,
    empty_code,
    is_structural,
    row_variables,
    slot_variables,
)
from verticil.shared.study.codebook import check_text, variable_from
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import PROTOCOLS, protocol_of
from verticil.shared.study.typed_variables import read_values
from verticil.shared.study.vocabulary import MAX_TEXT, MAX_VARIABLES, METHODS, fail

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_FILES: Final = frozenset({"people", "synthetic"})
"""Tables of a release that are no related ones."""


def read_related(study: Table) -> tuple[tuple[Variable, ...], tuple[RelatedTable, ...]]:
    """Read the columns of a study's file, those of related tables in slots behind the columns of people.

    Args:
        study: the whole file.

    Returns:
        The variables of the schema, and the related tables.

    Raises:
        Misuse: the table's code: two tables of one name, a column of an unknown table, more rows or columns than fit, or an order
            that orders nothing.
    """
    declarations = study.tables("variable")
    people = [item for item in declarations if not item.has("table")]
    by_table: dict[str, list[Table]] = {}
    for item in declarations:
        if item.has("table"):
            by_table.setdefault(item.value(str, "table"), []).append(item)
    declared = study.tables("table", optional=True)
    names = [item.value(str, "name") for item in declared]
    for item, name in zip(declared, names, strict=True):
        if names.count(name) > 1:
            item.fail("name", f"'{name[:MAX_TEXT]}' is the name of {names.count(name)} tables, expected one each")
    for name, items in by_table.items():
        if name not in names:
            hint = (
                near_hint(name, names) or f'declare it: [[table]] with name = "{name[:MAX_TEXT]}", party and max_rows'
            )
            items[0].fail("table", f"'{name[:MAX_TEXT]}' is no [[table]] of the study", hint=hint)
    variables = [variable_from(item) for item in people]
    related: list[RelatedTable] = []
    for item, name in zip(declared, names, strict=True):
        table, rows, gaps = _table(item, by_table.get(name, []))
        if len(variables) + len(table.names) > MAX_VARIABLES:
            item.fail(
                "max_rows",
                f"{table.max_rows} slots of {len(rows)} columns are {len(table.names)} columns, and the study has "
                f"{len(variables)} others; expected at most {MAX_VARIABLES} in all",
                hint="lower max_rows, or take columns out",
            )
        try:
            variables += slot_variables(table, rows, gaps)
        except ValueError as error:
            item.fail("name", str(error), hint="rename the category, or declare missing values")
        related.append(table)
    return tuple(variables), tuple(related)


def _table(item: Table, declarations: Sequence[Table]) -> tuple[RelatedTable, tuple[Variable, ...], tuple[float, ...]]:
    """Read one ``[[table]]``; return it with its columns as a row has them, and the edges of gaps, if it states some."""
    item.only(*keys(RelatedTable, but=("columns",)), "gaps")
    rows = tuple(map(variable_from, declarations))
    if not rows:
        item.fail(
            "name", "the table has no column", hint=f'add a [[variable]] with table = "{item.value(str, "name")}"'
        )
    columns = tuple(variable.name for variable in rows)
    for declaration, column in zip(declarations, columns, strict=True):
        if columns.count(column) > 1:
            declaration.fail("name", f"'{column}' is declared twice in one table")
    table = read(RelatedTable, item, also=("gaps",), given={"columns": columns})
    if problem := next(_problems(table, rows), None):
        item.fail(*problem)
    gaps: tuple[float, ...] = ()
    if item.has("gaps"):
        order = next((variable for variable in rows if variable.name == table.order), None)
        if order is None:
            item.fail("gaps", "goes with 'order', which names the column that rows are ordered by")
        gaps = read_values(item, "gaps", "number")
        if len(gaps) < 2 or gaps[0] != 0 or any(a >= b for a, b in itertools.pairwise(gaps)):
            item.fail("gaps", "expected two edges or more, ascending from 0: rows are in order, so no gap is negative")
    return table, rows, gaps


def _problems(table: RelatedTable, rows: Sequence[Variable]) -> Iterator[tuple[str, str]]:
    """Yield key and problem of what does not go together in a table."""
    if not 1 <= table.max_rows <= MOST_ROWS:
        yield "max_rows", f"got {table.max_rows}, expected 1 to {MOST_ROWS}"
    if table.keep not in ("first", "last", "random"):
        yield "keep", "expected first, last or random"
    if not _NAME.fullmatch(table.name) or table.name.casefold() in _FILES:
        yield (
            "name",
            f"got '{table.name[:MAX_TEXT]}', expected 1 to 63 of A-Z a-z 0-9 _ -, a letter first, and none of "
            f"{', '.join(sorted(_FILES))}: a release has files of these names",
        )
    for variable in rows:
        if variable.bounds is not None:
            yield "name", f"column '{variable.name}' has bins to be measured, expected declared ones in a related table"
        if variable.owner != table.party:
            yield (
                "party",
                f"column '{variable.name}' is of '{variable.owner}', expected '{table.party}' as of its table",
            )
    if table.order is None:
        return
    order = next((variable for variable in rows if variable.name == table.order), None)
    if order is None:
        yield (
            "order",
            f"'{table.order[:MAX_TEXT]}' is no column of the table, expected one of {', '.join(table.columns)}",
        )
    elif order.kind not in ORDERING:
        kind = "no type" if order.kind is None else f"the type '{order.kind}'"
        yield "order", f"'{table.order}' has {kind}, expected one of {', '.join(ORDERING)}: rows are ordered by values"


def of_all_slots(table: Table, key: str, related: Sequence[RelatedTable]) -> tuple[str, ...]:
    """Return the variables that a list names, ``visits.ward`` as that column in all slots.

    Raises:
        Misuse: the table's code, `jointly` names such a column.
    """
    columns = {f"{item.name}.{column}": item.slots_of(column) for item in related for column in item.columns}
    names: list[str] = []
    for name in table.strings(key):
        if name in columns and key == "jointly":
            table.fail(
                key, f"'{name}' is a column of a related table, expected columns of people", hint="use variables"
            )
        names += columns.get(name, (name,))
    return tuple(names)


def check_related(study: Study, *, source: str) -> None:
    """Check the related tables of a resolved study, also of one that came as bytes.

    Raises:
        Misuse: STUDY_INVALID; STUDY_UNSUPPORTED, the study asks for records or a protocol that keep no slots.
    """
    if not study.related:
        if study.tables is not None and study.tables.pairs != "structure":
            fail(
                f"{source}: tables.pairs", "goes with related tables ([[table]]), and there are none", hint="remove it"
            )
        return
    for name, count in ((table.name, [t.name for t in study.related].count(table.name)) for table in study.related):
        if count > 1:
            fail(f"{source}: table", f"'{name[:MAX_TEXT]}' is the name of {count} tables, expected one each")
    expected: list[str] = []
    for table in study.related:
        where = f"{source}: table '{table.name[:MAX_TEXT]}'"
        check_text(where, table.name)
        if table.party not in study.parties:
            fail(where, f"its party '{table.party[:MAX_TEXT]}' is not a [[party]] of the study")
        try:
            rows = row_variables(table, study.schema)
            own = [study.schema[study.schema.index(name)] for name in table.names]
            gap = own[1 + len(rows) + table.columns.index(table.order)] if table.order and table.max_rows > 1 else None
            slots = list(slot_variables(table, rows, gap.bins or () if gap is not None else ()))
        except (KeyError, ValueError):
            fail(where, "its slots are not among the variables of the study")
        if problem := next(_problems(table, rows), None):
            fail(f"{where}: {problem[0]}", problem[1])
        if [replace(v, origin=None) for v in slots] != [replace(v, origin=None) for v in own]:
            fail(where, "its slots are not those that follow from its columns")
        expected += table.names
    if list(study.schema.names[-len(expected) :]) != expected:
        fail(
            f"{source}: table", "the slots of related tables do not stand behind the columns of people, in their order"
        )
    if len(expected) == len(study.schema):
        fail(f"{source}: variable", "all columns are of related tables, expected one of the person at least")
    _check_model(study, source)


def _check_model(study: Study, source: str) -> None:
    """Check that the study is carried out in a way that keeps what slots mean."""
    if not protocol_of(study).counts_families:
        able = ", ".join(protocol.name for protocol in PROTOCOLS if protocol.counts_families)
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"{source}: model: '{study.model}' has no related tables ([[table]]): between peers nobody sees the tables that "
            "keep rows in their slots",
            hint=f"use one of {able}, or a summary of the rows as a column of the person",
        )
    if study.samples_graphs or METHODS[study.structure.method].whole_table or study.records_from != "joint":
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"{source}: records from '{study.records_from or study.structure.method}' do not keep what related tables "
            "([[table]]) mean: a slot beyond the count is empty",
            hint='leave [release] sample_from out, or write "joint"; with verticil synthesize use --method joint',
        )
    if study.refuses_joint:
        fail(f"{source}: structure", f"{study.refuses_joint} does not go with related tables ([[table]])")


@dataclass(frozen=True, slots=True)
class Possible:
    """What a study leaves possible: by what it states of all records, and by slots.

    Attributes:
        study: the study.
        support: what it states.
    """

    study: Study
    support: Support

    @property
    def restricts(self) -> bool:
        """Whether some combination of categories is impossible."""
        return bool(self.study.related) or self.support.restricts

    def zeros(self, members: Sequence[int]) -> Mask | None:
        """Return which combinations of some variables are possible, an axis for each; None: all."""
        known = self.support.zeros(members) if self.support.restricts else None
        slots = possible_together(self.study.related, self.study.schema, members)
        return known if slots is None else slots if known is None else known & slots


def slot_rules(study: Study, names: Collection[str]) -> Iterator[Rule]:
    """Yield what some columns of slots say of the number of rows, as rules: a filled slot has a row, an empty one has none."""
    for table in study.related:
        for number in range(1, table.max_rows + 1):
            for name in table.slot(number):
                if name in names:
                    yield from _slot_rules(table, study.schema[study.schema.index(name)], number)


def _slot_rules(table: RelatedTable, column: Variable, number: int) -> Iterator[Rule]:
    empty = column.labels[empty_code(column)]
    filled = tuple(label for label in column.labels if label != empty)
    counts = tuple(map(str, range(table.max_rows + 1)))
    for labels, rows in ((filled, counts[number:]), ((empty,), counts[:number])):
        if labels == filled or is_structural(column):
            yield Rule(
                name=f"{'a row' if labels == filled else 'no row'} in {column.name}",
                when=(Condition(variable=column.name, values=labels),),
                then=(Condition(variable=table.count, values=rows),),
            )


def people_study(study: Study) -> Study:
    """Return the study without its related tables: what it says of one row a person."""
    schema = people_schema(study)
    return replace(
        study,
        schema=schema,
        units=tuple(unit for unit in study.units if set(unit.variables) <= set(schema.names)),
        knowledge=study.knowledge and narrow_knowledge(study.knowledge, study.schema, schema.names),
        related=(),
        drafted={name: own for name, own in study.drafted.items() if "." not in name},
    )


def rows_study(study: Study, table: RelatedTable) -> Study:
    """Return a study of the rows of one related table as if each were a record, for who reads them."""
    own = next((own for name, own in study.drafted.items() if name.partition(".")[2] == table.name), None)
    schema = Schema(variables=row_variables(table, study.schema))
    return replace(study, schema=schema, related=(), drafted={} if own is None else {table.party: own})


def people_schema(study: Study) -> Schema:
    """Return the columns of people: those of no related table."""
    slots = {name for table in study.related for name in table.names}
    return Schema(variables=tuple(variable for variable in study.schema.variables if variable.name not in slots))

"""The rows of a related table, read and laid into slots: each row is encoded as the study says, then put where it belongs.

No value and no number of rows keeps the table from being used. What found no slot, and whom rows name that the table of people
does not have, is counted for the site's people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from verticil.party.dataset.encoding import style_of
from verticil.party.dataset.pseudonyms import normalise_ids
from verticil.party.dataset.source import Batch, read_batches
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.party.dataset.undeclared_values import draw
from verticil.shared.core.arrays import Bools, Codes, Floats
from verticil.shared.documents.written_values.reading import value_reader
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.related.laying import Laid, Places, Rows, Tags, lay
from verticil.shared.related.tables import RelatedTable, is_structural, row_variables

Find = Callable[[Sequence[str]], Places]
"""Returns the number of each person that ids as a table has them name, (m,); -1: nobody of the table of people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleOfRows:
    """Who is in the table of people.

    Attributes:
        find: returns their numbers.
        tags: (n, w) bytes that name each of them at this site, by number.
    """

    find: Find
    tags: Tags


def people_by_id(ids: Sequence[str], tags: Tags, normalise: Sequence[str]) -> PeopleOfRows:
    """Return people by their ids.

    Args:
        ids: normalised; the number of a person is the place here.
        tags: of each.
        normalise: steps applied to ids, as to these.
    """
    number_of = {name: number for number, name in enumerate(ids)}
    return PeopleOfRows(
        find=lambda texts: np.array([number_of.get(name, -1) for name in normalise_ids(texts, normalise)], np.intp),
        tags=tags,
    )


def people_by_tag(tags: Tags, tags_of: Callable[[Sequence[str]], Tags]) -> PeopleOfRows:
    """Return people whose ids are not kept, by their tags.

    Args:
        tags: (n, w), different ones.
        tags_of: returns the tag that each of some ids has, zeros where it names nobody.
    """

    own = np.ascontiguousarray(tags)
    number_of = {tag.tobytes(): number for number, tag in enumerate(own)}
    return PeopleOfRows(
        find=lambda texts: np.array([number_of.get(tag.tobytes(), -1) for tag in tags_of(texts)], np.intp), tags=own
    )


def read_rows(
    rule: DatasetRule,
    table: RelatedTable,
    schema: Schema,
    people: PeopleOfRows,
    *,
    key: bytes,
    watch: Callable[[Batch], None] = lambda batch: None,
) -> Laid:
    """Read a related table and lay its rows into slots.

    Args:
        rule: where it is; its id names the person.
        table, schema: of the study.
        people: in whose slots they go.
        key: secret of the site, see `laying.lay`.
        watch: is shown each batch of rows.

    Raises:
        DataFault, Misuse: as `source.read_records`.
    """
    variables = row_variables(table, schema)
    whose, order = [np.empty(0, np.intp)], [np.empty(0)]
    codes: dict[str, list[Codes]] = {variable.name: [] for variable in variables}
    undeclared: dict[str, list[Bools]] = {variable.name: [] for variable in variables if variable.other is None}
    for batch in read_batches(rule, variables):
        if not len(batch.index):
            continue
        watch(batch)
        whose.append(people.find(batch.ids)[batch.index])
        for name, column in batch.codes.items():
            codes[name].append(column)
        for name, is_undeclared in batch.undeclared.items():
            undeclared[name].append(is_undeclared)
        if table.order is not None:
            variable = variables[table.columns.index(table.order)]
            texts = batch.texts[rule.column(table.order).source]
            order.append(_values(rule, variable, texts.distinct)[texts.index])
    encoded = {v.name: np.concatenate([np.empty(0, v.code_dtype), *codes[v.name]]) for v in variables}
    is_open = {name: np.concatenate([np.empty(0, np.bool_), *parts]) for name, parts in undeclared.items()}
    values: Floats | None = None
    if table.order is not None:
        variable = variables[table.columns.index(table.order)]
        values = np.concatenate(order)
        values[encoded[variable.name] >= variable.n_valued] = np.nan
        values[is_open.get(variable.name, np.zeros(len(values), np.bool_))] = np.nan
        if (
            variable.other is None
        ):  # a value that cannot be read has no place in the order, and a category that is drawn
            is_open[variable.name] |= np.isnan(values) & (encoded[variable.name] < variable.n_valued)
    rows = Rows(people=np.concatenate(whose), codes=encoded, undeclared=is_open, order=values)
    return lay(table, schema, rows, people.tags, key=key)


def _values(rule: DatasetRule, variable: Variable, texts: Sequence[str]) -> Floats:
    """Return the values of some texts on the variable's scale; NaN: a text is none."""
    column = rule.column(variable.name)
    read = value_reader(variable.kind, style_of(variable, column.written))
    values = [read(column.recode.get(text, text)) for text in texts]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def drawn_codes(
    table: RelatedTable, schema: Schema, laid: Laid, tags: Tags, key_of: Callable[[str], bytes]
) -> Iterator[tuple[str, Codes]]:
    """Yield each column of a table with the codes of its people; where no category is declared one is drawn.

    Args:
        table, schema: of the study.
        laid: its rows.
        tags: (n, 14) of the people; see `perturb.record_tags`.
        key_of: returns the key by which the categories of a column are drawn (`undeclared_values`).
    """
    for name in table.names:
        variable, codes = schema[schema.index(name)], laid.codes[name]
        if name in laid.undeclared:
            n_states = variable.n_states - is_structural(variable)  # never a category that says that there is no row
            codes = np.where(laid.undeclared[name], draw(key_of(name), tags, n_states), codes)
        yield name, codes.astype(variable.code_dtype)


def counts_of(table: RelatedTable, laid: Laid) -> Iterator[str]:
    """Yield what the site's people may want to mend, in sentences with counts and no values."""
    if laid.n_unknown:
        yield f"table '{table.name}': {laid.n_unknown:,} of {laid.n_rows:,} rows are of people who are not in the table of people"
    if laid.n_beyond:
        yield (
            f"table '{table.name}': {laid.n_beyond:,} rows of {laid.n_people_beyond:,} people are beyond max_rows = "
            f"{table.max_rows} and are left out ({table.keep} rows are kept)"
        )
    if laid.n_unordered:
        yield (
            f"table '{table.name}': {laid.n_unordered:,} rows have no value in the order column '{table.order}' and come last"
        )
    if laid.n_without:
        yield f"table '{table.name}': {laid.n_without:,} of {len(next(iter(laid.codes.values()))):,} people have no row"

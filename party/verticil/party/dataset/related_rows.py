"""The rows of a related table, read and laid into slots: each row is encoded as the study says, then put where it belongs.

Rows are sorted by person: up to `MEMORY_ROWS` in memory, of more in a file without a name, so that memory grows with people and
slots and not with rows.

No value and no number of rows keeps the table from being used. What found no slot, and whom rows name that the table of people
does not have, is counted for the site's people.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.encoding import style_of
from verticil.party.dataset.gathered_records import MEMORY_ROWS, single
from verticil.party.dataset.macs import Macs
from verticil.party.dataset.perturb import TAG_BYTES
from verticil.party.dataset.pseudonyms import normalise_ids, packed_ids
from verticil.party.dataset.source import Batch, Remark, read_batches
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.party.dataset.undeclared_values import draw
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.documents.written_values.reading import value_reader
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.related.laying import Laid, Laying, Places, Rows, Tags
from verticil.shared.related.tables import RelatedTable, is_structural, row_variables
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.sorting import Sorter, keys_of

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


def tags_by(macs: Macs, normalise: Sequence[str]) -> Callable[[Sequence[str]], Tags]:
    """Return what makes the tag of each of some ids, zeros where an id names nobody.

    Args:
        macs: makes tags.
        normalise: steps applied to ids.
    """

    def tags_of(texts: Sequence[str]) -> Tags:
        ids = packed_ids(texts, normalise)
        return np.where(ids.empty[:, None], np.uint8(0), macs.of(ids)).astype(np.uint8)

    return tags_of


def people_by_tag(tags: Tags, tags_of: Callable[[Sequence[str]], Tags]) -> PeopleOfRows:
    """Return people whose ids are not kept, by their tags.

    Args:
        tags: (n, w), different ones.
        tags_of: returns the tag that each of some ids has, zeros where it names nobody.
    """

    own = np.ascontiguousarray(tags)
    keys = keys_of(own, own.shape[1])
    order = np.argsort(keys)
    ascending = keys[order]

    def find(texts: Sequence[str]) -> Places:
        wanted = np.ascontiguousarray(tags_of(texts))
        if not len(ascending) or not len(wanted):
            return np.full(len(wanted), -1, np.intp)
        names = keys_of(wanted, own.shape[1])
        place = np.minimum(np.searchsorted(ascending, names), len(ascending) - 1)
        return np.where(ascending[place] == names, order[place], -1)

    return PeopleOfRows(find=find, tags=own)


def read_rows(
    rule: DatasetRule,
    table: RelatedTable,
    schema: Schema,
    people: PeopleOfRows,
    *,
    key: bytes,
    folder: Path | None = None,
    watch: Callable[[Batch], None] = lambda batch: None,
) -> Laid:
    """Read a related table and lay its rows into slots.

    Args:
        rule: where it is; its id names the person.
        table, schema: of the study.
        people: in whose slots they go.
        key: secret of the site, see `laying.lay`.
        folder: where rows wait beyond `MEMORY_ROWS`; None: where the system has its temporary files.
        watch: is shown each batch of rows.

    Raises:
        DataFault, Misuse: as `source.read_records`; DISK_FULL, in the folder.
    """
    variables = row_variables(table, schema)
    open_columns = [variable.name for variable in variables if variable.other is None]
    place, layout = Path(tempfile.gettempdir()) if folder is None else folder, _Layout(variables, open_columns)
    sorter = Sorter(place, width=layout.width, key_bytes=layout.width, memory_rows=MEMORY_ROWS)
    n_rows = n_unordered = n_ragged = 0
    n_undeclared = Counter[str]()
    for batch in read_batches(rule, variables):
        n_ragged += batch.n_rows - len(batch.index)
        if not len(batch.index):
            continue
        watch(batch)
        n_undeclared.update({name: int(is_open.sum()) for name, is_open in batch.undeclared.items()})
        rows = _rows_of_batch(rule, table, variables, batch, people.find(batch.ids)[batch.index])
        n_unordered += 0 if rows.order is None else int(np.isnan(rows.order).sum())
        with disk_faults(place):
            sorter.add(layout.packed(rows, first=n_rows))
        n_rows += len(rows.people)
    laying = Laying(table, schema, people.tags, key=key, open_columns=open_columns)
    rest = np.empty((0, layout.width), np.uint8)
    with disk_faults(place):
        for block in sorter.blocks():
            together = np.concatenate([rest, block])
            whose = layout.people(together)
            end = int(np.searchsorted(whose, whose[-1]))  # the last person may have rows in the next block
            rest = together[end:]
            laying.take(layout.rows(together[:end], has_order=table.order is not None))
    laying.take(layout.rows(rest, has_order=table.order is not None))
    return laying.finish(n_rows, n_unordered=n_unordered, n_undeclared=n_undeclared, n_ragged=n_ragged)


def _rows_of_batch(
    rule: DatasetRule, table: RelatedTable, variables: Sequence[Variable], batch: Batch, whose: Places
) -> Rows:
    """Return a batch as rows of people."""
    undeclared, values = dict(batch.undeclared), None
    if table.order is not None:
        variable = variables[table.columns.index(table.order)]
        texts, codes = batch.texts[rule.column(table.order).source], batch.codes[variable.name]
        values = _values(rule, variable, texts.distinct)[texts.index]
        values[codes >= variable.n_valued] = np.nan
        if variable.other is None:
            values[undeclared[variable.name]] = np.nan
            # A value that cannot be read has no place in the order, and a category that is drawn.
            undeclared[variable.name] = undeclared[variable.name] | (np.isnan(values) & (codes < variable.n_valued))
    return Rows(people=whose, codes=batch.codes, undeclared=undeclared, order=values)


class _Layout:
    """Rows of people as bytes whose order is that in which they are laid: person, place in the order, categories.

    Args:
        variables: columns as a row has them.
        open_columns: those of them that have values without a category.
    """

    def __init__(self, variables: Sequence[Variable], open_columns: Sequence[str]) -> None:
        self._open = [variable.name for variable in variables if variable.name in open_columns]
        self._codes = {variable.name: np.dtype(variable.code_dtype).newbyteorder(">") for variable in variables}
        widths = [4, 8, *(1 for _ in self._open), *(kind.itemsize for kind in self._codes.values())]
        self._ends = np.cumsum([0, *widths]).tolist()
        self.width = self._ends[-1]

    def packed(self, rows: Rows, *, first: int) -> Tags:
        """Return rows of known people, (m, width); without an order their place is that in the source, from `first` on."""
        numbers = np.arange(first, first + len(rows.people), dtype=np.uint64)
        cells: list[NDArray[np.generic]] = [
            rows.people.astype(">u4"),
            (numbers if rows.order is None else _sortable(rows.order)).astype(">u8"),
            *(rows.undeclared[name].astype(np.uint8) for name in self._open),
            *(rows.codes[name].astype(kind) for name, kind in self._codes.items()),
        ]
        known = rows.people >= 0
        n_known = int(known.sum())  # none is a number, too
        parts = [
            np.ascontiguousarray(cell[known]).view(np.uint8).reshape(n_known, cell.dtype.itemsize) for cell in cells
        ]
        return np.concatenate(parts, axis=1)

    def people(self, packed: Tags) -> Places:
        """Return the person of each row."""
        return self._cells(packed, 0, np.dtype(">u4")).astype(np.intp)

    def rows(self, packed: Tags, *, has_order: bool) -> Rows:
        """Return the rows that were packed."""
        n_open = len(self._open)
        return Rows(
            people=self.people(packed),
            codes={
                name: cast("Codes", self._cells(packed, 2 + n_open + k, kind).astype(kind.newbyteorder("=")))
                for k, (name, kind) in enumerate(self._codes.items())
            },
            undeclared={
                name: self._cells(packed, 2 + k, np.dtype(np.uint8)).astype(np.bool_)
                for k, name in enumerate(self._open)
            },
            order=_unsorted(self._cells(packed, 1, np.dtype(">u8")).astype(np.uint64)) if has_order else None,
        )

    def _cells(self, packed: Tags, number: int, kind: np.dtype[np.generic]) -> NDArray[np.generic]:
        part = packed[:, self._ends[number] : self._ends[number + 1]]
        return np.frombuffer(part.tobytes(), dtype=kind)


_SIGN: Final = np.uint64(1 << 63)
_NOTHING: Final = np.uint64((1 << 64) - 1)


def _sortable(values: Floats) -> NDArray[np.uint64]:
    """Return numbers whose order is that of some values; NaN comes last.

    >>> _sortable(np.array([-1.0, -0.0, 0.0, 2.5])).argsort().tolist(), _unsorted(_sortable(np.array([-1.5, np.nan])))
    ([0, 1, 2, 3], array([-1.5,  nan]))
    """
    bits = (values + 0.0).view(np.uint64)
    return np.where(np.isnan(values), _NOTHING, np.where(bits & _SIGN, ~bits, bits | _SIGN))


def _unsorted(numbers: NDArray[np.uint64]) -> Floats:
    """Return the values of `_sortable`."""
    bits = np.where(numbers & _SIGN, numbers ^ _SIGN, ~numbers)
    return np.where(numbers == _NOTHING, np.nan, bits.view(np.float64))


def _values(rule: DatasetRule, variable: Variable, texts: Sequence[str]) -> Floats:
    """Return the values of some texts on the variable's scale; NaN: a text is none."""
    column = rule.column(variable.name)
    read = value_reader(variable.kind, style_of(variable, column.written))
    values = [read(column.recode.get(text, text)) for text in texts]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def fill_undeclared_codes(
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


def row_remarks(
    rule: DatasetRule, tables: Sequence[RelatedTable], schema: Schema, normalise: Sequence[str], *, folder: Path
) -> Iterator[Remark]:
    """Yield what becomes of the rows of a data set's related tables, for the site's people; nothing is kept.

    Args:
        rule: of the table of people.
        tables: related tables that it has.
        schema: of the study.
        normalise: steps applied to ids.
        folder: where rows wait beyond `MEMORY_ROWS`.

    Raises:
        DataFault, Misuse: as `read_rows`.
    """
    tags_of = tags_by(Macs(secrets.token_bytes(32), size=TAG_BYTES), normalise)
    sorter = Sorter(folder, width=TAG_BYTES, key_bytes=TAG_BYTES, memory_rows=MEMORY_ROWS)
    for batch in read_batches(rule, ()):
        tags = tags_of(batch.ids)[batch.index]
        with disk_faults(folder):
            sorter.add(np.ascontiguousarray(tags[tags.any(axis=1)]))
    with disk_faults(folder):
        tags = np.concatenate([np.empty((0, TAG_BYTES), np.uint8), *single(sorter.blocks(), TAG_BYTES)])
    people = people_by_tag(tags, tags_of)
    for table in tables:
        laid = read_rows(rule.tables[table.name], table, schema, people, key=secrets.token_bytes(32), folder=folder)
        for remark in counts_of(table, laid):
            yield replace(remark, message=f"{rule.tables[table.name].name}: {remark.message}")


def counts_of(table: RelatedTable, laid: Laid) -> Iterator[Remark]:
    """Yield what the site's people may want to mend, in sentences with counts and no values."""
    of_rows = f"of {laid.n_rows:,} rows"
    for count, words in (
        (laid.n_unknown, f"{of_rows} are of people who are not in the table of people"),
        (
            laid.n_beyond,
            f"rows of {laid.n_people_beyond:,} people are beyond max_rows = {table.max_rows} and are left out "
            f"({table.keep} rows are kept)",
        ),
        (laid.n_unordered, f"rows have no value in the order column '{table.order}' and come last"),
        (laid.n_tied, f"rows have the '{table.order}' of the person's row before; their categories order them"),
        (laid.n_ragged, "lines have too many or too few fields and are left out"),
        (laid.n_without, f"of {len(next(iter(laid.codes.values()))):,} people have no row"),
    ):
        if count:
            yield Remark(
                code="DATA_ROWS_UNUSED",
                message=f"table '{table.name}': {count:,} {words}",
                hint="it keeps no study from going on; max_rows and keep are the study's",
            )
    if laid.n_undeclared:
        columns = ", ".join(f"column '{name}' {n:,}" for name, n in laid.n_undeclared.items())
        yield Remark(
            code="DATA_CATEGORY_UNSEEN",
            message=f"table '{table.name}': {of_rows}, values without a declared category, in place of which one is drawn: "
            f"{columns}",
            hint="declare the category or `other` in the study, or add a recode in party.toml",
        )

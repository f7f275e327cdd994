"""Synthetic records as tables again: one of people, and one for each related table, with a made-up key that joins them.

A record has its rows in slots (`verticil.shared.related`). Its first row has a value of the order column; each further one has
the value of the row before plus a gap, which is not negative. So rows are in order, whatever was drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.knowledge.columns import columns
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.related.tables import RelatedTable, row_variables
from verticil.shared.study.document import IdentifierRule, Study
from verticil.shared.synthesis.identifier import key_texts
from verticil.shared.synthesis.typed_columns import number_of_writing, series_of

if TYPE_CHECKING:
    import pandas as pd

PEOPLE: Final = "people"
"""Name of the table with one row a person."""
ROW: Final = "row"
"""Column that counts the rows of a person, from 1."""
_MICROSECONDS: Final = 1e6


def key_rule(study: Study) -> IdentifierRule:
    """Return the key of people in the tables of a study: its identifier, else the number of the record."""
    taken = {*study.schema.names, *(column for table in study.related for column in table.columns), ROW}
    names = ("person", "person_number", "person_key")
    return study.identifier or IdentifierRule(name=next(name for name in names if name not in taken))


def row_column(table: RelatedTable) -> str:
    """Return the name of the column that counts a person's rows."""
    return ROW if ROW not in table.columns else "row_number"


def schemas_of(study: Study) -> dict[str, Schema]:
    """Return the columns of each table, people first, without the key and the numbers of rows."""
    slots = {name for table in study.related for name in table.names}
    published = columns(study.knowledge, study.schema).published.variables
    return {
        PEOPLE: Schema(variables=tuple(variable for variable in published if variable.name not in slots)),
        **{table.name: Schema(variables=row_variables(table, study.schema)) for table in study.related},
    }


def written_schemas(study: Study) -> dict[str, Schema]:
    """Return what is written of each table behind the key: of a related one the number of the row first."""
    schemas = schemas_of(study)
    for table in study.related:
        number = Variable(
            name=row_column(table),
            owner=table.party,
            labels=tuple(str(k) for k in range(table.max_rows + 1)),
            kind="integer",
            integer=True,
            points=tuple(map(float, range(table.max_rows + 1))),
        )
        schemas[table.name] = Schema(variables=(number, *schemas[table.name].variables))
    return schemas


def tables_of_records(frames: Iterable[pd.DataFrame], study: Study) -> Iterator[dict[str, pd.DataFrame]]:
    """Yield the tables of some records after the other.

    Args:
        frames: the records, or their pieces one after the other, with the columns of a release and without a key.
        study: has related tables.
    """
    import pandas as pd

    key, schemas, first = key_rule(study), schemas_of(study), 0
    for frame in frames:
        keys = np.array(key_texts(key, first, len(frame)), dtype=object)
        people = frame[list(schemas[PEOPLE].names)].reset_index(drop=True)
        people.insert(0, key.name, pd.Series(keys, dtype="str"))
        tables = {PEOPLE: people}
        for table in study.related:
            whose, numbers, rows = _rows_of(frame, table, study.schema)
            rows.insert(0, key.name, pd.Series(keys[whose], dtype="str"))
            rows.insert(1, row_column(table), numbers)
            tables[table.name] = rows
        yield tables
        first += len(frame)


def _rows_of(frame: pd.DataFrame, table: RelatedTable, schema: Schema) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Return, for all rows of some records, by person: the record, the number of the row from 1, and its columns."""
    import pandas as pd

    variables = row_variables(table, schema)
    counts = frame[table.count].to_numpy(dtype=np.int64)
    records, numbers, parts = list[np.ndarray](), list[np.ndarray](), list[pd.DataFrame]()
    value: Floats = np.full(len(frame), np.nan)
    for number in range(1, table.max_rows + 1):
        has_row = np.flatnonzero(counts >= number)
        columns_of: dict[str, pd.Series] = {}
        for variable, name in zip(variables, table.slot(number), strict=True):
            column = frame[name]
            if variable.name == table.order:
                read = _numbers(column, schema[schema.index(name)])
                value = read if number == 1 else value + read
                columns_of[variable.name] = _ordered(variable, value[has_row])
            else:
                columns_of[variable.name] = _plain(variable, column.iloc[has_row].reset_index(drop=True))
        records.append(has_row)
        numbers.append(np.full(len(has_row), number, dtype=np.int64))
        parts.append(pd.DataFrame(columns_of))
    filled = [part for part in parts if len(part)] or parts[:1]
    rows = pd.concat(filled, ignore_index=True)
    record, row_number = np.concatenate(records), np.concatenate(numbers)
    order = np.lexsort([row_number, record])
    return record[order], row_number[order], rows.iloc[order].reset_index(drop=True)


def _plain(variable: Variable, column: pd.Series) -> pd.Series:
    """Return a column of rows without the category of an empty slot."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        kept = [label for label in column.cat.categories if label in variable.labels]
        return column.cat.set_categories(kept)
    return column


def _ordered(variable: Variable, values: Floats) -> pd.Series:
    """Return the order column of rows, of values on its scale; NaN: a row without one."""
    codes = np.where(np.isnan(values), variable.n_valued, 0)
    numbers = np.where(np.isnan(values), 0.0, values)
    if variable.integer:
        numbers = np.rint(numbers)
    return series_of(variable, codes, number_of_writing(variable, numbers))


def _numbers(column: pd.Series, variable: Variable) -> Floats:
    """Return the values of a typed column on its scale; NaN where a record has none."""
    import pyarrow as pa

    if variable.kind in ("integer", "number"):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if variable.kind == "date":
        days = pa.array(column).cast(pa.int32()).cast(pa.float64())
        return np.asarray(days.to_numpy(zero_copy_only=False), dtype=np.float64)
    moments = column if variable.timezone is None else column.dt.tz_convert("UTC").dt.tz_localize(None)
    stamps = moments.to_numpy(dtype="datetime64[us]")
    return np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / _MICROSECONDS)

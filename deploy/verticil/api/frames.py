"""Data frames in and out: synthetic records with the types that their columns have, and tables of users as files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from verticil.shared.numerics.knowledge.columns import columns
from verticil.shared.release.drawing import ReleaseModels
from verticil.shared.synthesis.typed_columns import codes_of
from verticil.tables.frames import write_frame

if TYPE_CHECKING:
    import pandas as pd

    from verticil.shared.numerics.model.schema import Schema, Variable
    from verticil.shared.study.document import IdentifierRule

_UNUSUAL: Final = r"[^\w. -]"  # in the name of a file


def type_columns(frame: pd.DataFrame, models: ReleaseModels, *, as_bins: bool = False) -> pd.DataFrame:
    """Return the records of a release as they are written, by column: numbers are numbers, and what is missing is null.

    Args:
        frame: as `synthesis.synthesis.decode` makes it, or as it is read from the release.
        models: of the release.
        as_bins: a column of numbers becomes its bins, as ordered categories.

    Returns:
        A column with bins as ``Int64`` or ``Float64``, null where a record has no number, or with `as_bins` as an ordered
        categorical; any other as a categorical of its categories without the one that stands for missing, which is null.
    """
    study = models.study
    schema = columns(None if study is None else study.knowledge, models.schema).published
    return type_records(frame, schema, None if study is None else study.identifier, as_bins=as_bins)


def type_records(
    frame: pd.DataFrame, schema: Schema, identifier: IdentifierRule | None, *, as_bins: bool = False
) -> pd.DataFrame:
    """Return records with the key in front, where they have one; see `type_columns`.

    Args:
        frame, as_bins: as of `type_columns`.
        schema: of the records' columns.
        identifier: of the study; None: it has none.
    """
    import pandas as pd

    keys = {} if identifier is None else {identifier.name: frame[identifier.name].astype("string")}
    variables = {item.name: typed_column(frame[item.name], item, as_bins=as_bins) for item in schema.variables}
    return pd.DataFrame({**keys, **variables}, copy=False)


def typed_column(column: pd.Series, variable: Variable, *, as_bins: bool = False) -> pd.Series:
    """Return one column of records with its type; see `type_columns`."""
    import pandas as pd

    if variable.kind is not None and not (as_bins and variable.bins is not None):
        return _typed(column, variable)
    if variable.kind is not None:
        return _bins_of(column, variable)
    if variable.bins is None:
        labels = pd.CategoricalDtype(pd.Index(variable.labels, dtype="str"))
        categories = column.astype("str").astype(labels)
        return categories if variable.missing is None else categories.cat.remove_categories([variable.missing.category])
    texts = pd.api.types.is_string_dtype(column)
    numbers = pd.to_numeric(column, errors="coerce") if texts else column
    numbers = numbers.astype("Float64")
    if not as_bins:
        return numbers.astype("Int64") if variable.integer else numbers
    bins = variable.labels[: variable.n_bins]
    cut = pd.cut(numbers.astype("float64"), list(variable.bins), right=False, labels=list(bins), ordered=True)
    return pd.Series(cut, name=column.name)


def _typed(column: pd.Series, variable: Variable) -> pd.Series:
    """Return a typed column with the types of pandas: dates and times of day as Python's, in an object column."""
    import pandas as pd

    kind = variable.kind
    if kind in {"date", "time"}:
        values = [None if pd.isna(value) else value for value in column.astype(object)]
        return pd.Series(values, dtype=object, index=column.index)
    if kind == "datetime":
        return pd.Series(pd.to_datetime(column).dt.as_unit("us"))
    words = {variable.other, None if variable.missing is None else variable.missing.category} - {None}
    if kind == "ordered":
        missing = None if variable.missing is None else variable.missing.category
        labels = [label for label in variable.labels if label != missing]
        return column.astype(pd.CategoricalDtype(pd.Index(labels, dtype="str"), ordered=True))
    dtypes = {"integer": "Int64", "number": "Float64", "boolean": "boolean" if words else "bool"}
    return column.astype(pd.api.types.pandas_dtype(dtypes.get(str(kind), "string")))


def _bins_of(column: pd.Series, variable: Variable) -> pd.Series:
    """Return the bins and points of a typed column as ordered categories; null where it has no value."""
    import numpy as np
    import pandas as pd

    places, distinct = pd.factorize(column, use_na_sentinel=True)
    codes = np.append(codes_of(variable, distinct.tolist()), -1)[places]
    labels = list(variable.labels[: variable.n_valued])
    codes = np.where(codes < variable.n_valued, codes, -1)
    return pd.Series(
        pd.Categorical.from_codes(codes, categories=pd.Index(labels, dtype="str"), ordered=True), name=column.name
    )


def as_files(tables: Mapping[str, Path | str | pd.DataFrame], folder: Path) -> dict[str, Path]:
    """Return each table as a file: a frame is written to one of its own.

    Args:
        tables: party -> its table.
        folder: where frames are written.

    Raises:
        DataFault: DATA_UNREADABLE, see `write_frame`.
    """
    files: dict[str, Path] = {}
    for place, (name, table) in enumerate(tables.items()):
        if isinstance(table, str | Path):
            files[name] = Path(table)
            continue
        own = folder / str(place)  # whatever the names are, no file is that of another table, or elsewhere
        own.mkdir()
        files[name] = own / f"{re.sub(_UNUSUAL, '_', name)[:63]}.parquet"
        write_frame(table, files[name], name)
    return files

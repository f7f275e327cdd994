"""Data frames as Parquet files, which nodes read: columns that no file holds are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from verticil.shared.core.errors import DataFault, Misuse

if TYPE_CHECKING:
    import pandas as pd

_PROBLEMS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError)
_INSTEAD: Final = {"timedelta": ".dt.total_seconds()", "period": ".dt.to_timestamp()"}
"""What a type of pandas begins with that no table has, and what makes one of it that a table can have."""


def frame_hint(table: object) -> str:
    """Return what to give in place of a value that is no frame of pandas."""
    return "give table.to_pandas()" if hasattr(table, "to_pandas") else "give a path, or a data frame of pandas"


def check_is_frame(table: object, name: str) -> None:
    """Refuse what is no frame of pandas.

    Raises:
        Misuse: USAGE.
    """
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        problem = f"{name}: got a {type(table).__name__}, expected a file or a data frame"
        raise Misuse("USAGE", problem, hint=frame_hint(table))


def write_frame(table: pd.DataFrame, path: Path, name: str) -> None:
    """Write a frame to a Parquet file.

    Args:
        table: sparse columns become dense ones, and the intervals of `pandas.cut` texts in their order. An index that has a name
            is a column before the others; one without a name is left out.
        path: the file.
        name: whose table it is, for messages.

    Raises:
        Misuse: USAGE, it is no frame.
        DataFault: DATA_UNREADABLE, a column has a type that no table has, values of different types, a name that is no text,
            or the name of another one.
    """
    check_is_frame(table, f"the table of '{name}'")
    if any(type(column) is not str for column in table.columns):
        raise _fault(name, "a column's name is no text", "frame.columns = frame.columns.astype(str)")
    named = [level for level in table.index.names if isinstance(level, str) and level not in table.columns]
    table = table.reset_index(level=named) if named else table
    names = list(table.columns)
    if twice := [column for column in names if names.count(column) > 1]:
        problem = f"column '{twice[0]}' occurs {names.count(twice[0])} times, expected once"
        raise _fault(name, problem, "give each column a name of its own")
    for column, kind in table.dtypes.astype(str).items():
        instead = next((call for start, call in _INSTEAD.items() if kind.startswith(start)), None)
        if instead is not None:
            problem = f"column '{column}' has the type {kind}, expected texts, numbers, booleans or dates"
            raise _fault(name, problem, f"frame['{column}'] = frame['{column}']{instead}")
    plain = table.assign(**{column: _plain(table[column]) for column in names})
    try:
        plain.to_parquet(path, index=False)
    except _PROBLEMS as error:
        column = next((column for column in names if not _can_be_written(plain[column])), "?")
        problem = f"column '{column}' has values of different types, or of one that no Parquet file holds"
        hint = f"give it one type: numbers, or texts as by frame['{column}'] = frame['{column}'].astype(str)"
        raise _fault(name, f"{problem} ({type(error).__name__})", hint) from None


def _fault(name: str, problem: str, hint: str) -> DataFault:
    return DataFault("DATA_UNREADABLE", f"the table of '{name}': {problem}", hint=hint)


def _plain(column: pd.Series) -> pd.Series:
    """Return a column that a file holds, of one whose values are sparse or intervals."""
    import numpy as np
    import pandas as pd

    if isinstance(column.dtype, pd.SparseDtype):
        return pd.Series(np.asarray(column), index=column.index)
    if isinstance(column.dtype, pd.CategoricalDtype) and isinstance(column.dtype.categories.dtype, pd.IntervalDtype):
        return column.cat.rename_categories(str)
    return column.astype(str) if isinstance(column.dtype, pd.IntervalDtype) else column


def _can_be_written(column: pd.Series) -> bool:
    try:
        pa.Array.from_pandas(column)
    except _PROBLEMS:
        return False
    return True

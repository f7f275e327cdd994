"""Files of SPSS (.sav, .zsav), Stata (.dta) and SAS (.sas7bdat), read by pyreadstat (the extra ``formats``).

Values with a label become the label; missing codes and system missing values are empty; dates are written by ISO 8601.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from verticil.party.dataset.sources.source_table import (
    PART_ROWS,
    DatasetRule,
    TablePart,
    TextColumn,
    attempt,
    unreadable,
)
from verticil.party.dataset.sources.texts import text_of
from verticil.shared.documents.foreign_files.limits import STATISTICS_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

_KINDS: Final = {"sav": "SPSS", "dta": "Stata", "sas7bdat": "SAS"}


def header(rule: DatasetRule) -> tuple[str, ...]:
    """Return the names of the columns; raises as `open_source.header`."""
    _, meta = _read(rule, metadataonly=True)
    names = tuple(meta.column_names)
    if len(names) > STATISTICS_COLUMNS:
        raise unreadable(
            rule,
            f"{len(names):,} columns, expected at most {STATISTICS_COLUMNS:,}",
            hint="save the columns that the study needs in a file of their own",
        )
    return names


def parts(rule: DatasetRule, column_names: Sequence[str]) -> Iterator[TablePart]:
    """Yield the rows; raises as `open_source.read_parts`."""
    if not column_names:
        return
    # A file of SAS has none inside: they stand in a catalog of their own.
    labels = {} if rule.format == "sas7bdat" else {"apply_value_formats": True}
    start = 0
    while True:
        frame, _ = _read(rule, usecols=list(column_names), row_offset=start, row_limit=PART_ROWS, **labels)
        if not len(frame) and start:
            return
        yield TablePart(n_rows=len(frame), columns={name: _column(frame[name]) for name in column_names})
        start += len(frame)
        if len(frame) < PART_ROWS:
            return


def _read(rule: DatasetRule, **options: object) -> tuple[pd.DataFrame, Any]:
    import pyreadstat

    read: Callable[..., tuple[pd.DataFrame, Any]] = getattr(pyreadstat, f"read_{rule.format}")
    errors = (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, ValueError, OSError, UnicodeError, OverflowError)
    result = attempt(partial(read, str(rule.path), **options), *errors)
    if result is None:
        raise unreadable(
            rule, f"this is no file of {_KINDS[rule.format]}, or it is damaged", hint="save it again, or as .csv"
        )
    return result


def _column(column: pd.Series) -> TextColumn:
    import pandas as pd

    index, distinct = pd.factorize(column, use_na_sentinel=True)
    texts = [*(_text(value) for value in distinct), ""]
    places: dict[str, int] = {}
    merged = np.array([places.setdefault(text, len(places)) for text in texts], dtype=np.int32)
    return TextColumn(distinct=tuple(places), index=merged[index])


def _text(value: object) -> str:
    import pandas as pd

    if isinstance(value, pd.Timestamp):
        value = value.to_pydatetime()
    if isinstance(value, dt.datetime):  # of pandas 2 where years are too early for its nanoseconds
        return value.date().isoformat() if value.time() == value.time().min else text_of(value)
    if isinstance(value, np.generic):
        value = value.item()
    return text_of(value)

"""Tables of anybody, as texts: CSV, Parquet or a data frame.

Files are read by the node's own reader. Whatever the types are, a value becomes the text that the reader would make of it in a
Parquet file (whole numbers in decimal, also of floating point; booleans ``True`` and ``False``; null and NaN empty), so that
tables of different types can be compared. Errors name files, columns and counts, never a value.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.release import wording
from verticil.shared.release.signatures import read_document
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.tables.frames import check_is_frame
from verticil.tables.texts import TextColumn, TextTable, texts_of

if TYPE_CHECKING:
    import pandas as pd

LEAST_RECORDS: Final = 20
"""Of fewer nothing can be said: half of them are held against the other half."""


def table_of(source: Path | str | pd.DataFrame, *, name: str) -> TextTable:
    """Read a table.

    Args:
        source: a file that ends with .parquet or .pq, another file as CSV, or a frame.
        name: what messages call a frame.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE; DATA_EMPTY, fewer rows than `LEAST_RECORDS`.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        name = path.name
        table = texts_of(name, path)
    else:
        table = _of_frame(source, name)
    return check_table(table, name)


def release_folder(source: object) -> Path | None:
    """Return the folder of a release, also where the folder around it is given; None: this is something else.

    Raises:
        DataFault: DATA_FILE_MISSING, a folder is no release.
    """
    if not isinstance(source, str | Path) or not Path(source).is_dir():
        return None
    for folder in (Path(source), Path(source) / "release"):
        if (folder / "manifest.json").is_file() or (folder / "model.json").is_file():
            return folder
    raise DataFault(
        "DATA_FILE_MISSING",
        f"{source}: is a folder, expected a file, or the folder of a release",
        hint="a release has manifest.json, study.json and synthetic.parquet",
    )


def study_of_release(folder: Path) -> Study:
    """Read the study that a release was made for; the release is not verified.

    Raises:
        Misuse: FILE_MISSING, it has none.
        GateFailed: RELEASE_INVALID, it is no study.
    """
    if not (folder / "study.json").is_file():
        raise Misuse(
            "FILE_MISSING",
            f"{folder}: no study.json, expected the study whose categories and bins the release has",
            hint="give the study (--study), or fetch the release again",
        )
    return canonical.from_bytes(read_document(folder, "study.json"), source="study.json", wire=False)


def check_table(table: TextTable, name: str) -> TextTable:
    """Check that a table has enough records, and turn its notes into sentences.

    Raises:
        DataFault: DATA_EMPTY, fewer rows than `LEAST_RECORDS`.
    """
    if table.n_rows < LEAST_RECORDS:
        raise DataFault(
            "DATA_EMPTY",
            f"{name}: {wording.count(table.n_rows, 'row')}, expected at least {LEAST_RECORDS}",
            hint="with so few records the figures are mostly chance",
        )
    return table


def _of_frame(frame: pd.DataFrame, name: str) -> TextTable:
    import pandas as pd

    check_is_frame(frame, name)
    names = [str(column) for column in frame.columns]
    if twice := [column for column in names if names.count(column) > 1]:
        raise DataFault("DATA_UNREADABLE", f"{name}: column '{twice[0]}' occurs {names.count(twice[0])} times")
    columns: dict[str, TextColumn] = {}
    for place, column in enumerate(names):
        # factorize gives -1 to whatever pandas takes for missing, in every type of column.
        try:
            index, distinct = pd.factorize(frame.iloc[:, place])
        except TypeError:
            raise DataFault("DATA_UNREADABLE", f"{name}: column '{column}' has lists or tables as values") from None
        texts = [*map(_text, distinct), ""]
        place_of = {text: number for number, text in reversed(list(enumerate(texts)))}
        codes = np.array([place_of[text] for text in texts], dtype=np.int64)[index]
        counts = np.bincount(codes, minlength=len(texts))
        present = np.flatnonzero(counts)
        columns[column] = TextColumn(
            party=name,
            source=column,
            texts=[texts[number] for number in present.tolist()],
            counts=counts[present].tolist(),
            index=(np.cumsum(counts > 0) - 1)[codes],
        )
    return TextTable(columns=columns, n_rows=len(frame), notes=[])


def _text(value: object) -> str:
    """Write a value of a Parquet file as the node's reader does."""
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() else str(value)
    return str(value)

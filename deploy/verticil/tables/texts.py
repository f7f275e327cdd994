"""A table as texts: its columns, each with its distinct texts, how many rows have each, and the text of every row."""

from __future__ import annotations

import functools
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.sources.open_source import header, missing_columns, read_parts, rows_in_footer, twice
from verticil.party.dataset.sources.opening import count_lines
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.foreign_files.limits import TEXTS_BYTES
from verticil.tables.lost_lines import check_lines, comment_notes, ragged_notes, total_notes
from verticil.tables.reading import guess_reading

MAX_ROWS: Final = 20_000_000
"""Most rows of a table that is drafted or evaluated: it is held in memory as texts."""
MAX_CELLS: Final = 150_000_000
"""Most cells of such a table: some 24 bytes each while it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """One column of one party: distinct texts, how many rows have each, and for every row the position of its text."""

    party: str
    source: str
    texts: Sequence[str] = field(repr=False)
    counts: Sequence[int] = field(repr=False)
    index: NDArray[np.int64] = field(repr=False)

    @property
    def text_counts(self) -> TextCounts:
        """The rows of each text."""
        return TextCounts(self.texts, self.counts)

    @property
    def is_unique(self) -> bool:
        """Whether no two rows have the same text."""
        return len(self.texts) == len(self.index)


class TextCounts(Mapping[str, int]):
    """How many rows have each distinct text of a column. The table to look them up by text is made when somebody does.

    Args:
        texts: distinct.
        rows: of each.
    """

    def __init__(self, texts: Sequence[str], rows: Sequence[int]) -> None:
        self.texts, self.rows = texts, rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, text: str) -> int:
        return self._by_text[text]

    @functools.cached_property
    def _by_text(self) -> dict[str, int]:
        return dict(zip(self.texts, self.rows, strict=True))

    def without(self, some: Collection[str]) -> TextCounts:
        """Return the counts of all texts but some."""
        if not some:
            return self
        is_left = [text not in some for text in self.texts]
        texts, rows = list(itertools.compress(self.texts, is_left)), list(itertools.compress(self.rows, is_left))
        return TextCounts(texts, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """The table of one party.

    Attributes:
        columns: by the local column.
        n_rows: people, a row each.
        notes: what became no row, and what was guessed of the file, in sentences.
        rule: how the file is read; a frame has none.
    """

    columns: Mapping[str, TextColumn]
    n_rows: int
    notes: Sequence[str]
    rule: DatasetRule | None = None


def texts_of(
    party: str, path: Path, *, rule: DatasetRule | None = None, only: Collection[str] | None = None
) -> TextTable:
    """Read a table as the party's node reads it, with every value as text.

    Args:
        party: what to call it.
        path: the file.
        rule: how it is read; None: this is guessed.
        only: columns to read; None: all.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY; DATA_COLUMN_MISSING, one of `only` is not there.
    """
    rule = rule or guess_reading(path).rule
    names = header(rule)
    if only is not None and (absent := missing_columns(rule, names, list(only))) is not None:
        raise absent
    names = tuple(name for name in names if only is None or name in only)
    if several := [name for name, count in Counter(names).items() if count > 1]:
        raise twice(rule, several[0], names.count(several[0]))
    check_size(rule, rows_in_footer(rule), len(names))
    texts = {name: defaultdict[str, int](itertools.count().__next__) for name in names}  # the next place for a new text
    rows: dict[str, list[NDArray[np.int64]]] = {name: [] for name in names}
    n_rows = n_ragged = first_ragged = n_bytes = 0
    for part in read_parts(rule, names):
        n_rows += part.n_rows
        check_size(rule, n_rows, len(names))
        first_ragged = first_ragged or part.first_ragged or 0
        n_ragged += part.n_ragged
        for name, column in part.columns.items():
            n_before = len(texts[name])
            places = np.fromiter(
                map(texts[name].__getitem__, column.distinct), dtype=np.int64, count=len(column.distinct)
            )
            if len(texts[name]) > n_before:
                n_bytes += sum(map(sys.getsizeof, itertools.compress(column.distinct, (places >= n_before).tolist())))
            rows[name].append(places[column.index])
        if n_bytes > TEXTS_BYTES:
            problem = f"its distinct texts have more than {TEXTS_BYTES >> 20} MiB together"
            raise DataFault("DATA_UNREADABLE", f"{rule.name}: {problem}", hint="leave out columns of free text")
    lost: tuple[str, ...] = ()
    if rule.format == "csv" and (n_ragged or n_rows == 0 or count_lines(rule) > n_rows + 1):
        lost = check_lines(rule, n_rows, n_ragged, first_ragged)
    if n_rows == 0:
        raise DataFault("DATA_EMPTY", f"{rule.name}: the table has no rows")
    notes = [*lost, *ragged_notes(rule, n_rows, n_ragged, first_ragged)]
    columns: dict[str, TextColumn] = {}
    for name in names:
        index = np.concatenate(rows[name])
        counts = np.bincount(index, minlength=len(texts[name]))
        present = list(texts[name])
        if not counts.all():  # a part can name a text that none of its whole rows has
            present = [text for text, count in zip(present, counts.tolist(), strict=True) if count]
            index = (np.cumsum(counts > 0) - 1)[index]
        columns[name] = TextColumn(
            party=party, source=name, texts=present, counts=counts[counts > 0].tolist(), index=index
        )
    if rule.format == "csv" and names:
        first = columns[names[0]]
        notes += comment_notes(first.texts, first.counts)
        notes += total_notes(first.texts[int(first.index[-1])])
    return TextTable(columns=columns, n_rows=n_rows, notes=notes, rule=rule)


def check_size(rule: DatasetRule, n_rows: int, n_columns: int) -> None:
    """Check that a table can be held in memory as texts.

    Raises:
        DataFault: DATA_UNREADABLE, it has more than `MAX_ROWS` rows, or more than `MAX_CELLS` cells.
    """
    if n_rows > MAX_ROWS or n_rows * n_columns > MAX_CELLS:
        raise DataFault(
            "DATA_UNREADABLE",
            f"{rule.name}: {n_rows:,} rows and more of {n_columns} columns, expected at most {MAX_ROWS:,} rows and "
            f"{MAX_CELLS:,} cells",
            hint="give a random part of its rows, or fewer columns",
        )

"""The way to every table that a party may have: names and rows, by what ``[dataset.NAME]`` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verticil.party.dataset.sources import files
from verticil.party.dataset.table import DatasetRule, TablePart


def header(rule: DatasetRule) -> tuple[str, ...]:
    """See `verticil.party.dataset.table.header`."""
    return files.header(rule)


def parts(rule: DatasetRule, wanted: Sequence[str]) -> Iterator[TablePart]:
    """See `verticil.party.dataset.table.read_parts`."""
    return files.parts(rule, wanted)

"""Reading ``[codebook]`` of party.toml: what a study may ask of the site's table when rules approve it.

    [codebook]
    normalise = [["nfkc", "trim"]]             # of ids; each list is one way

    [[codebook.column]]
    source = "age"                             # of the table; the rest as under [[variable]] in a study
    bins = [17, 25, 35, 45, 100]
    missing = { category = "unknown", spellings = ["", "?"] }

    [[codebook.jointly]]                       # of columns that are randomized in one draw
    sources = ["marital", "relationship"]
    impossible = [["Never-married", "Husband"]]

A column may have several codebooks. Nothing here is read from the table; a study that fits none waits for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TypeVar, cast

from verticil.party.dataset.column_draws import Column
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.party.limits.rules import ColumnCodebook, Combinations, RequestFacts, codebook_of
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.toml_table import Table, near_hint
from verticil.shared.study.codebook import CODEBOOK_KEYS, codebook_from
from verticil.shared.study.vocabulary import NORMALISE_STEPS

T = TypeVar("T")


def known_from(table: Table, datasets: Mapping[str, DatasetRule]) -> RequestFacts:
    """Return what a ``[codebook]`` table permits.

    Args:
        table: the table; an absent one permits nothing.
        datasets: rule by name.

    Raises:
        Misuse: CONFIG_INVALID.
    """
    columns: set[ColumnCodebook] = set()
    for item in table.tables("column", optional=True):
        columns.add(_new(item, "source", _column(item, datasets), columns))
    combinations: set[Combinations] = set()
    for item in table.tables("jointly", optional=True):
        combinations.add(_new(item, "impossible", _combinations(item, datasets, columns), combinations))
    codebooks = RequestFacts(
        columns=frozenset(columns), combinations=frozenset(combinations), normalise=_normalise(table)
    )
    table.finish()
    return codebooks


def _new(table: Table, key: str, value: T, before: Set[T]) -> T:
    if value in before:
        table.fail(key, "stands there twice with the same content, expected once")
    return value


def _normalise(table: Table) -> frozenset[tuple[str, ...]]:
    ways: list[tuple[str, ...]] = []
    for number, way in enumerate(table.rows("normalise", []), 1):
        for step in way:
            if step not in NORMALISE_STEPS:
                hint = f"in lists, as in [[{', '.join(NORMALISE_STEPS[:2])}]]; the steps: {', '.join(NORMALISE_STEPS)}"
                table.fail("normalise", f"list {number} has '{step}', which is no step", hint=hint)
        ways.append(cast("tuple[str, ...]", way))
    return frozenset(ways)


def _column(table: Table, datasets: Mapping[str, DatasetRule]) -> ColumnCodebook:
    table.only("source", "dataset", *(key for key in CODEBOOK_KEYS if key != "bounds"))  # a node measures no bins
    source = table.value(str, "source")
    column = Column(dataset=_dataset(table, datasets, [source]), source=source)
    try:
        variable = codebook_from(table, name=source, owner="party")
    except Misuse as error:  # the same rules as in a study, in another file
        raise Misuse("CONFIG_INVALID", error.message, hint=error.hint) from None
    return codebook_of(variable, column)


def _combinations(table: Table, datasets: Mapping[str, DatasetRule], codebooks: Set[ColumnCodebook]) -> Combinations:
    table.only("sources", "dataset", "impossible")
    sources = table.strings("sources")
    if len(sources) < 2:
        table.fail("sources", f"{len(sources)} columns, expected two or more")
    dataset = _dataset(table, datasets, sources)
    columns = [Column(dataset=dataset, source=source) for source in sources]
    rows = table.rows("impossible")
    if not rows:
        table.fail("impossible", "no combination; columns without impossible ones need no table")
    for number, row in enumerate(rows, 1):
        if len(row) != len(columns) or not all(isinstance(label, str) for label in row):
            table.fail(
                "impossible", f"combination {number}: expected {len(columns)} labels, one of each of the sources"
            )
        for label, column in zip(cast("tuple[str, ...]", row), columns, strict=True):
            books = [book.labels for book in codebooks if book.column == column]
            if books and not any(label in labels for labels in books):
                table.fail(
                    "impossible",
                    f"combination {number}: '{label}' is no category of column '{column.source}' in [[codebook.column]]",
                    hint=near_hint(label, [name for labels in books for name in labels]),
                )
    return Combinations.of(columns, cast("tuple[tuple[str, ...], ...]", rows))


def _dataset(table: Table, datasets: Mapping[str, DatasetRule], sources: tuple[str, ...] | list[str]) -> str:
    if not table.has("dataset") and len(datasets) > 1:
        table.fail("dataset", f"missing, expected one of {', '.join(datasets)}")
    name = table.value(str, "dataset", next(iter(datasets)))
    if name not in datasets:
        table.fail("dataset", f"got '{name}', expected one of {', '.join(datasets)}")
    if datasets[name].id in sources:
        table.fail(
            "source" if table.has("source") else "sources", f"'{datasets[name].id}' names the person, and never leaves"
        )
    return name

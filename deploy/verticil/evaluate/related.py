"""Related tables of a release held against the real ones: rows per person, single columns, pairs in a row, transitions and gaps.

Real rows are laid in slots as the study says, so people are compared with people. Each figure stands beside two references, both
of real people. The floor is what two halves of them differ by, half as many each, the mean over `SEEDS` cuts. The baseline is a
useless table: the columns of each slot are dealt anew among the people who have it, each on its own.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np

from verticil.evaluate.resampling import SEEDS
from verticil.party.dataset.related_rows import PeopleOfRows, counts_of, people_by_id, read_rows
from verticil.party.dataset.source import read_records
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.related.figures import row_figures
from verticil.shared.related.structure import Slots, slots_of
from verticil.shared.related.tables import RelatedTable, is_structural
from verticil.shared.study.document import Study
from verticil.shared.study.related_tables import people_study, rows_study
from verticil.shared.synthesis.record_checks import read_records as read_synthetic
from verticil.tables.settings import rule_for

TITLES: Final[Mapping[str, str]] = {
    "people": "rows of a person",
    "columns": "single columns of a row, mean",
    "pairs": "pairs of columns of a row, mean",
    "transitions": "value of the next row, given the row's: mean difference of a share",
    "transitions_worst": "the same, the largest difference of values that 100 rows have",
    "gaps": "time to the next row",
}
"""Figures: total variation distances but for transitions."""
_LEAST_ROWS: Final = 100
"""Rows with a value whose next ones are compared for the largest difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedFigure:
    """One figure of one related table of a release.

    Attributes:
        table, candidate: which.
        figure: a key of `TITLES`.
        value, floor, baseline: NaN where nothing can be compared.
    """

    table: str
    candidate: str
    figure: str
    value: float
    floor: float
    baseline: float

    @property
    def title(self) -> str:
        """What the figure is, for people."""
        return TITLES[self.figure]

    @staticmethod
    def words(number: float) -> str:
        """Write a figure for people; a dash where there is none."""
        return f"{number:.4f}" if np.isfinite(number) else "–"


def compare_related(
    real: Path,
    tables: Mapping[str, Path],
    releases: Mapping[str, Path],
    study: Study,
    *,
    id_column: str,
    seed: int,
) -> tuple[list[RelatedFigure], list[str]]:
    """Compare the related tables of releases of one study with the real ones.

    Args:
        real: the table of people.
        tables: the related tables, by name.
        releases: folders, by name of the candidate.
        study: of the releases.
        id_column: names the person in all tables.
        seed: of the references.

    Returns:
        The figures, and what the reader has to know of the tables.

    Raises:
        Misuse: USAGE, a table is missing or none of the study, or no column names the person.
        DataFault: a table cannot be used.
    """
    names = [table.name for table in study.related]
    if unknown := [name for name in tables if name not in names]:
        problem = f"--table {unknown[0]}: the study has no [[table]] of this name"
        raise Misuse(
            "USAGE", problem, hint=near_hint(unknown[0], names) or f"its tables are {', '.join(names) or 'none'}"
        )
    if not id_column:
        raise Misuse(
            "USAGE", "--table without --id: no column names the person whose rows these are", hint="give --id COLUMN"
        )
    records: dict[str, list[Codes]] = {}
    for name, folder in releases.items():
        n = _n_records(folder)
        records[name] = read_synthetic(
            folder / "synthetic.parquet", study.schema, n, study.knowledge, identifier=study.identifier
        )
    rng, notes = np.random.default_rng(seed), list[str]()
    of_people = dataclasses.replace(people_study(study), drafted={})
    rule, _ = rule_for(of_people, study.parties[0], real, id_column)
    ids = read_records(rule, [], study.linkage.normalise).ids
    tags = np.arange(len(ids), dtype="<u4").view(np.uint8).reshape(-1, 4)
    people = people_by_id(ids, tags, study.linkage.normalise)
    figures: list[RelatedFigure] = []
    for table in study.related:
        if table.name not in tables:
            notes.append(f"the rows of '{table.name}' are not compared: give --table {table.name}=FILE")
            continue
        codes, own_notes = _real_codes(table, tables[table.name], study, people, id_column=id_column, rng=rng)
        notes += own_notes
        figures += _figures(table, study.schema, codes, records, rng)
    return figures, notes


def _n_records(folder: Path) -> int:
    from verticil.shared.documents.json_document import parse
    from verticil.shared.release.signatures import read_document

    return parse(read_document(folder, "manifest.json"), source="manifest.json")["synthetic_records"].integer()


def _real_codes(
    table: RelatedTable,
    path: Path,
    study: Study,
    people: PeopleOfRows,
    *,
    id_column: str,
    rng: np.random.Generator,
) -> tuple[list[Codes], list[str]]:
    """Return the codes of real people in the order of the schema, of columns of other tables zeros; and notes."""
    rule, remarks = rule_for(rows_study(study, table), table.party, path, id_column)
    laid = read_rows(rule, table, study.schema, people, key=bytes(32))
    n = len(people.tags)
    codes: list[Codes] = []
    for variable in study.schema.variables:
        own = laid.codes.get(variable.name, np.zeros(n, variable.code_dtype))
        if variable.name in laid.undeclared:
            drawn = rng.integers(0, variable.n_states - is_structural(variable), n)
            own = np.where(laid.undeclared[variable.name], drawn, own).astype(variable.code_dtype)
        codes.append(own)
    return codes, [*remarks, *(remark.message for remark in counts_of(table, laid))]


def _figures(
    table: RelatedTable,
    schema: Schema,
    real: Sequence[Codes],
    records: Mapping[str, Sequence[Codes]],
    rng: np.random.Generator,
) -> list[RelatedFigure]:
    slots, n = slots_of(table, schema), len(real[0])
    floors: list[dict[str, float]] = []
    for _ in range(SEEDS):
        order = rng.permutation(n)
        halves = [[column[half] for column in real] for half in (order[: n // 2], order[n // 2 :])]
        floors.append(_distances(table, schema, slots, *halves))
    baseline = _distances(table, schema, slots, real, _independent(slots, real, rng))
    return [
        RelatedFigure(
            table=table.name,
            candidate=name,
            figure=key,
            value=value,
            floor=float(np.mean([floor[key] for floor in floors])),
            baseline=baseline[key],
        )
        for name, codes in records.items()
        for key, value in _distances(table, schema, slots, real, codes).items()
    ]


def _independent(slots: Slots, real: Sequence[Codes], rng: np.random.Generator) -> list[Codes]:
    """Return people whose columns have nothing to do with each other: those of each slot are dealt among who has it."""
    codes = [column.copy() for column in real]
    for number, slot in enumerate(slots.columns):
        has_row = np.flatnonzero(real[slots.count] > number)
        for column in slot:
            codes[column][has_row] = rng.permutation(real[column][has_row])
    return codes


def _distances(
    table: RelatedTable, schema: Schema, slots: Slots, one: Sequence[Codes], other: Sequence[Codes]
) -> dict[str, float]:
    """Return all figures of two sets of people; `TITLES` says what they are. The first one is the real one."""
    first, second = row_figures(table, schema, one), row_figures(table, schema, other)
    rows = [_rows(slots, codes) for codes in (one, other)]
    sizes = [schema.n_states[column] for column in slots.columns[-1]]
    places = range(len(table.columns))
    differences: list[Floats] = []
    worst = [np.nan]
    for mine, theirs in zip(first.transitions, second.transitions, strict=True):
        known = ~(np.isnan(mine.shares) | np.isnan(theirs.shares))
        difference = np.abs(mine.shares - theirs.shares)
        differences.append(difference[known])
        worst.append(np.max(difference[known & (mine.counts >= _LEAST_ROWS)[:, None]], initial=0.0))
    together = np.concatenate([np.empty(0), *differences])
    return {
        "people": _distance(first.people, second.people),
        "columns": _mean(_distance(*(_shares(own, (place,), sizes) for own in rows)) for place in places),
        "pairs": _mean(
            _distance(*(_shares(own, pair, sizes) for own in rows)) for pair in itertools.combinations(places, 2)
        ),
        "transitions": float(together.mean()) if len(together) else np.nan,
        "transitions_worst": float(np.nanmax(worst)) if len(together) else np.nan,
        "gaps": np.nan if first.gaps is None or second.gaps is None else _distance(first.gaps[1], second.gaps[1]),
    }


def _rows(slots: Slots, codes: Sequence[Codes]) -> list[Codes]:
    """Return the codes of all rows from the second slot on, column by column; of one slot those of the first."""
    counts, first = codes[slots.count], min(1, len(slots.columns) - 1)
    numbers = range(first, len(slots.columns))
    return [
        cast("Codes", np.concatenate([codes[slots.columns[number][place]][counts > number] for number in numbers]))
        for place in range(len(slots.columns[0]))
    ]


def _shares(rows: Sequence[Codes], places: Sequence[int], sizes: Sequence[int]) -> Floats:
    shape = [sizes[place] for place in places]
    cells = np.ravel_multi_index([rows[place].astype(np.intp) for place in places], shape)
    counts = np.bincount(cells, minlength=int(np.prod(shape))).astype(np.float64)
    shares: Floats = counts / max(counts.sum(), 1.0)
    return shares


def _distance(one: Floats, other: Floats) -> float:
    return float(np.abs(one - other).sum()) / 2


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return float(np.mean(numbers)) if numbers else float("nan")


def documents(figures: Sequence[RelatedFigure]) -> list[Json]:
    """Return the figures for evaluation.json: null where nothing could be compared."""
    return [
        {
            "table": item.table,
            "candidate": item.candidate,
            "figure": item.figure,
            "title": TITLES[item.figure],
            **{
                key: round(value, 6) if np.isfinite(value) else None
                for key, value in (("value", item.value), ("floor", item.floor), ("baseline", item.baseline))
            },
        }
        for item in figures
    ]

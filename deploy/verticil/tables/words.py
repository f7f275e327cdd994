"""A profile of a table in words: a line a column, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verticil.shared.documents.written_values import on_scale
from verticil.shared.documents.written_values.dates import DatePattern
from verticil.shared.documents.written_values.reading import MOMENTS, NUMBERS
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.typed_variables import bin_labels
from verticil.tables.columns import PLURALS, ColumnProfile, TableProfile
from verticil.tables.ranges import FEWEST_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLine:
    """What is shown of one column.

    Attributes:
        name, type: of the column; of numbers with their unit and decimals.
        missing: share of the rows without a value, and the words for it.
        distinct: distinct texts.
        zeros: share of the rows that are zero; empty: none, or no numbers.
        becomes: what a draft proposes, or that it is left out.
        other: share of the people that no category is for.
        reasons: why it was left out first, then what else was decided and lost.
    """

    name: str
    type: str
    missing: str
    distinct: str
    zeros: str
    becomes: str
    other: str
    reasons: tuple[str, ...]


def column_lines(profile: TableProfile) -> Iterator[ColumnLine]:
    """Yield a line for each column, in the order of the table."""
    for item in profile.columns:
        reasons = tuple(column_reasons(item))
        yield ColumnLine(
            name=item.name,
            type=_type(item),
            missing=_missing(item),
            distinct=f"{item.n_distinct:,}",
            zeros=_share(_zeros(item)),
            becomes=_becomes(item),
            other=_share(item.other_share),
            reasons=(f"it is left out: {item.left_out}", *reasons) if item.left_out else reasons,
        )


def _type(item: ColumnProfile) -> str:
    details = [f"in {item.unit}"] * bool(item.unit)
    details += [f"{item.decimals} decimal{'s' * (item.decimals != 1)}"] * bool(
        item.kind == "number" and item.decimals is not None
    )
    return f"{item.kind} ({', '.join(details)})" if details else item.kind


def _missing(item: ColumnProfile) -> str:
    if not item.n_missing:
        return "-"
    words = ", ".join(
        f"'{text.strip()}'" if text.strip() else "empty" for text in dict.fromkeys((*item.missing, *item.strange))
    )
    return f"{_share(item.missing_share)} ({words or 'no values'})"


def _share(share: float) -> str:
    return "-" if not share else "<0.1%" if share < 0.001 else f"{share:.1%}"


def _zeros(item: ColumnProfile) -> float:
    if item.numbers is None or item.kind not in NUMBERS:
        return 0.0
    values, weights = item.numbers
    return float(weights[values == 0].sum()) / item.n_rows


def _becomes(item: ColumnProfile) -> str:
    if item.left_out:
        return "left out"
    if not item.bins and not item.points:
        return f"{len(item.categories)} categories"
    parts = [f"{len(item.bins) - 1} bins"] * bool(item.bins)
    parts += [f"{len(item.points)} point{'s' * (len(item.points) != 1)}"] * bool(item.points)
    return " and ".join(parts)


def value_text(item: ColumnProfile, value: float) -> str:
    """Write an edge or a point of a column as TOML has it: numbers, dates, date-times, times."""
    if item.kind == "datetime":
        return DatePattern.of("YYYY-MM-DDThh:mm:ss").write(value)
    return on_scale.value_text(None if item.kind in NUMBERS else item.kind, value)


def column_reasons(item: ColumnProfile, *, are_declared: bool = True) -> Iterator[str]:
    """Yield what is to be said of a column besides why it is left out, in sentences without its name.

    Args:
        item: the column.
        are_declared: whether its bins will be those of the study, and are not measured.
    """
    yield from item.reasons
    if item.left_out:
        return
    if item.written:
        signs = (
            ", with signs that programs do not write (such as \u2212 or < or a sign behind)"
            if item.written == "1234.5"
            else ""
        )
        yield f'it holds {PLURALS[item.kind]} written as {item.written}{signs}; in party.toml: written = "{item.written}"'
    if item.timezone or (item.kind == "time" and item.written and DatePattern.of(item.written).has_zone):
        yield f"its {PLURALS[item.kind]} have a zone: records have them in {item.timezone or 'UTC'}"
    for point in item.far:
        rows = _rows_of(item, point)
        yield (
            f"{value_text(item, point)} in {rows:,} rows ({rows / item.n_rows:.1%}) lies far from all others: it is a point of "
            "its own; if it is a code for unknown, name it in `missing`"
        )
    if item.bins and are_declared and item.kind in NUMBERS:
        labels = bin_labels(item.bins, item.kind)
        shape = Variable(name="x", owner="x", labels=(*labels, "unknown"), bins=item.bins)
        if wide := [labels[place] for place in shape.wide_bins]:
            yield (
                f"{', '.join(wide)} is much wider than the bins beside: divide it, or declare `means`; nothing else says where "
                "its numbers lie"
            )
    if 0 < item.n_missing < FEWEST_ROWS:
        yield f"{_rows(item.n_missing, 'no value')}, fewer than {FEWEST_ROWS}: such a row gets a category that is drawn"
    if item.kind in NUMBERS | MOMENTS and item.n_other:
        values = f"a value that fewer than {FEWEST_ROWS} rows have"
        yield f"{_rows(item.n_other, values)}: such a row gets a category that is drawn"


def _rows(n: int, what: str) -> str:
    return f"{n:,} row has {what}" if n == 1 else f"{n:,} rows have {what}"


def has_own_end(item: ColumnProfile) -> bool:
    """Return whether an outer end of a column's bins is the least or the largest number of the table: one person's."""
    if not item.bins or item.numbers is None:
        return False
    values, weights = item.binned_numbers
    ends = (item.bins[0], values[0], weights[0]), (item.bins[-1] - (item.kind == "integer"), values[-1], weights[-1])
    return any(bool(edge == end and n_rows < FEWEST_ROWS) for edge, end, n_rows in ends)


def _rows_of(item: ColumnProfile, point: float) -> int:
    if item.numbers is None:
        return 0
    values, weights = item.numbers
    return int(weights[values == point].sum())

"""The results as tables of words, for the terminal and for the page: of each table of people one, theirs beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from verticil.experiments.kipps import paper
from verticil.experiments.kipps.attacks import Attribute, Membership
from verticil.experiments.kipps.experiment import Row, of_attribute, of_fidelity, of_learned, of_membership
from verticil.experiments.kipps.measures import CLASSIFIERS, Fidelity, Learned

TITLES: Final = {
    "table 1": "Table 1: how like real records they are",
    "figure 2": "Figure 2: accuracy of classifiers that learned from them, on other people's real records",
    "figure 3": "Figure 3: accuracy of attacks on membership, ± two standard errors of a coin",
    "figure 4": "Figure 4: how often an attacker guesses an attribute rightly",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedTable:
    """A table: the first heading is of names, the others are of numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def of_part(part: str, rows: Sequence[Row]) -> list[PrintedTable]:
    """A part's tables, one for each table of people, and what the paper prints."""
    return [
        PrintedTable(
            title=data,
            headings=_HEADINGS[part],
            rows=tuple(
                (row.way, *cells) for row in rows if row.data == data and (cells := _CELLS[part](row)) is not None
            ),
        )
        for data in dict.fromkeys(row.data for row in rows)
    ] + [_PRINTED[part]]


def number(value: float | None, digits: int = 3) -> str:
    """A share without its 0; a dash where nothing could be computed.

    >>> number(0.25), number(-0.5), number(1.0), number(12.345), number(None), number(0.00001)
    ('.250', '-.500', '1.000', '12.3', '–', '.000')
    >>> number(-0.0001)
    '.000'
    """
    if value is None:
        return "–"
    if abs(value) >= 10:
        return f"{value:,.1f}"
    text = f"{round(value, digits) + 0.0:.{digits}f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def _fidelity(found: Fidelity) -> tuple[str, ...]:
    return (
        number(found.pmse),
        number(found.chance),
        number(found.logistic_ratio, 1),
        number(found.chi_square),
        number(found.chi_square_distance),
        number(found.ks),
        number(found.ks_statistic),
        number(found.overlap),
        number(found.difference, 2),
        number(found.median_difference, 2),
        number(found.distance),
        number(found.violations),
    )


def _learned(found: Learned) -> tuple[str, ...]:
    accuracies = (number(found.accuracy[name]) for name in CLASSIFIERS)
    return (*accuracies, number(found.mean), number(found.majority), number(found.mean_f1))


def _membership(found: Membership) -> tuple[str, ...]:
    error = f" ± {number(2 * found.error)}"
    return (
        number(found.outputs.accuracy) + error,
        number(found.outputs.auc),
        number(found.records.accuracy) + error,
        number(found.records.auc),
    )


def _attribute(found: Attribute) -> tuple[str, ...]:
    return (
        number(found.members),
        number(found.others),
        f"{number(found.beyond)} ± {number(2 * found.error)}",
        number(found.without_rules),
        number(found.rules_alone),
        number(found.most_common),
    )


_CELLS: Final[Mapping[str, Callable[[Row], tuple[str, ...] | None]]] = {
    "table 1": of_fidelity(_fidelity),
    "figure 2": of_learned(_learned),
    "figure 3": of_membership(_membership),
    "figure 4": of_attribute(_attribute),
}
_HEADINGS: Final = {
    "table 1": (
        "", "pMSE", "by chance", "logistic, ratio", "χ² p", "χ² distance", "KS p", "KS", "overlap", "std. diff.", "its median",
        "2-way", "break a rule",
    ),
    "figure 2": ("", *CLASSIFIERS, "mean", "most common", "mean F1"),
    "figure 3": ("", "as the paper's", "AUC", "and nearest", "AUC"),
    "figure 4": ("", "members", "others", "difference", "no rules", "rules alone", "most common"),
}  # fmt: skip
_PRINTED: Final = {
    "table 1": PrintedTable(
        title="theirs, over five tables, ε unknown; no overlap is above 1",
        headings=("", "pMSE", "χ² p", "KS p", "overlap", "std. diff."),
        rows=tuple(
            (name, *(f"{value:g}" for value in (row.pmse, row.chi_square, row.ks, row.overlap, row.difference)))
            for name, row in paper.TABLE_1.items()
        ),
    ),
    "figure 2": PrintedTable(
        title="theirs, mean accuracy on Adult, as far as the text says it",
        headings=("", "mean"),
        rows=tuple((name, number(value)) for name, value in paper.FIGURE_2["Adult"].items()),
    ),
    "figure 3": PrintedTable(
        title="theirs, mean over five tables",
        headings=("", "as the paper's"),
        rows=tuple((name, number(value, 2)) for name, value in paper.FIGURE_3.items()),
    ),
    "figure 4": PrintedTable(
        title="theirs, mean over five tables",
        headings=("", "members"),
        rows=tuple((name, number(value, 2)) for name, value in paper.FIGURE_4.items()),
    ),
}


def short(rows: Sequence[Row]) -> PrintedTable:
    """Of each way, the means over all tables of people: what the page begins with."""
    ways = list(dict.fromkeys(row.way for row in rows))

    def mean(way: str, of: Callable[[Row], float | None]) -> float | None:
        known = [value for row in rows if row.way == way and (value := of(row)) is not None]
        return sum(known) / len(known) if known else None

    asked: dict[str, Callable[[Row], float | None]] = {
        "pMSE": of_fidelity(lambda found: found.pmse),
        "2-way": of_fidelity(lambda found: found.distance),
        "overlap": of_fidelity(lambda found: found.overlap),
        "break a rule": of_fidelity(lambda found: found.violations),
        "accuracy": of_learned(lambda found: found.mean),
        "mean F1": of_learned(lambda found: found.mean_f1),
        "membership": of_membership(lambda found: found.records.accuracy),
        "attribute beyond": of_attribute(lambda found: found.beyond),
    }
    return PrintedTable(
        title="Means over the tables",
        headings=("", *asked),
        rows=tuple((way, *(number(mean(way, of)) for of in asked.values())) for way in ways),
    )

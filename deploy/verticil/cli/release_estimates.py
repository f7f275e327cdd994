"""``verticil release regress`` and ``verticil release tabulate``: effects and shares from a release, with intervals."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, plain_table, put, say
from verticil.shared.core.errors import Misuse

if TYPE_CHECKING:
    from verticil.analysis.moments import Coefficients
    from verticil.analysis.tabulation import Tabulation

_NUMBERS = ("estimate", "standard_error", "low", "high")
_SCALES = {"date": "days since 1970-01-01", "datetime": "seconds since 1970-01-01", "time": "seconds since midnight"}

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The release folder; its models are read, and nothing is verified.")
]
LevelOption = Annotated[float, typer.Option(help="Of each interval, such as 0.95.")]


def regress(
    folder: FolderArgument,
    formula: Annotated[str, typer.Argument(metavar="FORMULA", help='Such as "weight ~ age + ward".')],
    level: LevelOption = 0.95,
    form: FormatOption = Format.text,
) -> None:
    """Estimate a linear regression from a release's tables, with intervals that include the noise.

    Effects are not shrunk, as they are in the synthetic records. "smoker == 'yes' ~ age" is about the share of a category. Names
    with signs stand in backticks.
    """
    from verticil.analysis.regression import regress as estimate
    from verticil.shared.release.drawing import open_models

    models = open_models(folder)
    with _arguments_named("formula", "FORMULA"):
        result = estimate(models, formula, level=level)
    design = result.design
    rows = [{"coefficient": label, **row} for label, row in zip(design.labels, _rows(result.coefficients), strict=True)]
    payload = {"formula": formula, "level": level, "coefficients": rows, "reference": design.reference}
    if emit({**payload, "merged": list(design.merged)}, form=form):
        return
    say(formula)
    _print("coefficient", [[str(row["coefficient"])] for row in rows], rows, level)
    for variable in (models.schema[place] for place in design.numeric):
        if scale := _SCALES.get(variable.kind or "", variable.unit):
            say(f"{variable.name}: in {scale}", style="dim")
    for column, category in design.reference.items():
        say(f"{column}: compared with {category}", style="dim")
    if design.merged:
        say(f"too rare for a coefficient of their own: {', '.join(design.merged)}", style="dim")


def tabulate(
    folder: FolderArgument,
    columns: Annotated[list[str], typer.Argument(metavar="COLUMN..", help="One column, or two.")],
    level: LevelOption = 0.95,
    form: FormatOption = Format.text,
) -> None:
    """Estimate the share of each category, or of each combination of two columns' categories, with an interval of its own."""
    from verticil.analysis.tabulation import tabulate as estimate
    from verticil.shared.release.drawing import open_models

    models = open_models(folder)
    with _arguments_named("tabulate", "COLUMN"):
        result = estimate(models, columns, level=level)
    labels = [list(pair) for pair in itertools.product(*(models.schema[place].labels for place in result.variables))]
    rows = [
        {"categories": dict(zip(columns, pair, strict=True)), **row}
        for pair, row in zip(labels, _rows(result), strict=True)
    ]
    if emit({"columns": columns, "level": level, "shares": rows}, form=form):
        return
    say(f"share of all people: {' and '.join(columns)}")
    _print(columns, labels, rows, level)


def _rows(result: Coefficients | Tabulation) -> list[dict[str, float | None]]:
    """Return the numbers of each row; None: the release does not say."""
    arrays = [getattr(result, name).ravel().tolist() for name in _NUMBERS]
    return [
        {name: number if math.isfinite(number) else None for name, number in zip(_NUMBERS, numbers, strict=True)}
        for numbers in zip(*arrays, strict=True)
    ]


def _print(
    headings: str | Sequence[str], names: Sequence[Sequence[str]], rows: Sequence[Mapping[str, object]], level: float
) -> None:
    table = plain_table(
        *([headings] if isinstance(headings, str) else headings),
        right=("estimate", "standard error", f"{100 * level:g} % interval"),
    )
    for own, row in zip(names, rows, strict=True):
        estimate, error, low, high = (_text(row[name]) for name in _NUMBERS)
        table.add_row(*own, estimate, error, "-" if "-" in {low, high} else f"{low} to {high}")
    put(table)


def _text(number: object) -> str:
    return "-" if number is None else f"{number:.4g}"


@contextlib.contextmanager
def _arguments_named(word: str, argument: str) -> Generator[None]:
    """Name what is wrong by the argument that asked for it."""
    try:
        yield
    except Misuse as error:
        message = error.message.replace(f"{word}:", f"{argument}:", 1).replace("level:", "--level:", 1)
        raise Misuse(error.code, message, hint=error.hint.replace("release.query", "verticil release query")) from None

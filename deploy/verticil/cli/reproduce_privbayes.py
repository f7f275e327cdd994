"""``verticil reproduce privbayes``: PrivBayes (Bao et al. 2021) beside other ways to synthetic records, by NIST's scores."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from verticil.cli.output import Format, emit, errors_console, put, say
from verticil.cli.reproduce import progress, results_table, write_results
from verticil.experiments.privbayes import experiment, figures
from verticil.experiments.privbayes.experiment import Distance, Found, Row
from verticil.experiments.privbayes.lines import DELTA, LINES
from verticil.pki.files import free_folder, new_folder, removed_if_empty

_NOTES = (
    "higher is better; every line at the same total for the replacement of one person; clustering, classification and "
    "regression are 1,000,000 for equal records, the k-marginal score 1,000",
    "in place of the paper's Colorado census these are NIST's records of the American Community Survey, Massachusetts 2019, with "
    "city = PUMA, sex = SEX, income = PINCP",
    "the scores are NIST's as far as the paper's summary defines them; what is divided by what in the regression, the random "
    "events of the classification and the floor of their shares are ours (verticil.experiments.privbayes.nist)",
)


def run_privbayes(*, quick: bool, repeats: int | None, seed: int, out: Path | None, form: Format) -> None:
    """Run the experiment, print it, and write numbers and picture.

    Raises:
        Misuse: FILE_EXISTS.
    """
    scale = experiment.QUICK if quick else experiment.FULL
    if repeats is not None:
        scale = dataclasses.replace(scale, seeds=repeats)
    folder = new_folder(out or free_folder("privbayes"))
    begun, used = time.monotonic(), time.process_time()
    with removed_if_empty(folder):
        with progress(errors_console()) as tell:
            found = experiment.run(scale, seed=seed, tell=tell)
        spent = {"cpu_seconds": time.process_time() - used, "wall_seconds": time.monotonic() - begun}
        payload: dict[str, object] = {
            "paper": "privbayes",
            "seed": seed,
            "delta": DELTA,
            "scale": dataclasses.asdict(scale),
            "spent": spent,
            "records": found.records,
            "lines": {line.name: line.words for line in LINES},
            "rows": [dataclasses.asdict(row) for row in found.rows],
            "adult": [dataclasses.asdict(distance) for distance in found.adult],
            "notes": list(_NOTES),
        }
        title = f"{found.records:,} records of 24 columns, δ = {DELTA:g}, mean of {scale.seeds} seeds; higher is better"
        drawn = figures.draw_scores(found.rows, title)
        files = write_results(folder, payload, {f"scores.{name}": image for name, image in drawn.items()})
    payload["files"] = [str(path) for path in files]
    if emit(payload, form=form):
        return
    if quick:
        put("[bold]A quick run: few records and one seed; its numbers say little.[/]\n")
    _print(found, scale.seeds)
    for sentence in _NOTES:
        say(f"  {sentence}")
    say(f"\n{spent['cpu_seconds']:,.0f} CPU seconds, {spent['wall_seconds']:,.0f} seconds by the clock")
    say(f"written: {', '.join(map(str, files))}")


def _print(found: Found, seeds: int) -> None:
    epsilons = sorted({row.epsilon for row in found.rows if row.epsilon is not None})
    for score, what in figures.SCORES.items():
        shown = results_table(f"\n{what}, by total ε", "", "", *(f"{epsilon:g}" for epsilon in epsilons), left=2)
        for line in LINES:
            rows = [row for row in found.rows if row.line == line.name]
            cells = [_cell(rows, score, epsilon if line.private else None) for epsilon in epsilons]
            shown.add_row(line.name, line.words, *cells)
        best = [_best(found.rows, score, epsilon, seeds) for epsilon in epsilons]
        shown.add_row("", "the best of those with an ε, where it can be told", *best)
        put(shown)
    shown = results_table("\nCPU seconds of making the records, mean over all ε", "", "seconds")
    for line in LINES:
        shown.add_row(
            line.words, f"{statistics.mean(row.cpu_seconds for row in found.rows if row.line == line.name):.2f}"
        )
    put(shown)
    if found.adult:
        _print_adult(found.adult)


def _cell(rows: Sequence[Row], score: str, epsilon: float | None) -> str:
    return next(f"{getattr(row.mean, score):,.0f}" for row in rows if row.epsilon == epsilon)


def _best(rows: Sequence[Row], score: str, epsilon: float, seeds: int) -> str:
    """The short name of the line with the highest mean; empty where another way is less than two standard errors below it.

    Lines that differ in their sampler alone are one way.
    """
    first, *others = sorted(
        (row for row in rows if row.epsilon == epsilon), key=lambda row: getattr(row.mean, score), reverse=True
    )
    way = first.line.partition("-")[0]
    for other in others:
        apart = getattr(first.mean, score) - getattr(other.mean, score)
        error = (getattr(first.deviation, score) ** 2 + getattr(other.deviation, score) ** 2) ** 0.5 / seeds**0.5
        if other.line.partition("-")[0] != way and apart < 2 * error:
            return ""
    return way


def _print_adult(found: Sequence[Distance]) -> None:
    shown = results_table(
        f"\nUCI Adult, 32,561 x 13, PrivBayes, n records, δ = {DELTA:g}: mean total variation distance ± standard error",
        *("", "ε, relation", "2-way", "3-way", "CPU s"),
        left=2,
    )
    for distance in found:
        shown.add_row(
            distance.projection,
            f"{distance.epsilon:g}, {distance.relation}",
            _with_error(distance.two_way),
            _with_error(distance.three_way),
            f"{statistics.mean(distance.cpu_seconds):.2f}",
        )
    put(shown)


def _with_error(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.4f} ± {error:.4f}"

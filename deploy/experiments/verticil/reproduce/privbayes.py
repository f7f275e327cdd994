"""``verticil reproduce privbayes``: PrivBayes (Bao et al. 2021) beside other ways to synthetic records, by NIST's scores."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from verticil.cli.output import put, say
from verticil.curator.learning import records_of
from verticil.experiments.privbayes import experiment as privbayes
from verticil.experiments.privbayes import figures
from verticil.experiments.privbayes.claims import claims
from verticil.experiments.privbayes.datasets import CITY, COLORADO, INCOME, SEX, colorado
from verticil.experiments.privbayes.experiment import Distance, Results, Row
from verticil.experiments.privbayes.lines import DELTA, lines
from verticil.reproduce.experiment import (
    Experiment,
    Options,
    Workplace,
    image_files,
    print_claims,
    print_sentences,
    read_columns,
    results_table,
)

_NOTES = (
    "higher is better; every line at the same total for the replacement of one person; clustering, classification and "
    "regression are 1,000,000 for equal records, the k-marginal score 1,000",
    "the scores are NIST's as far as the paper's summary defines them; what is divided by what in the regression, the random "
    "events of the classification and the floor of their shares are ours (verticil.experiments.privbayes.nist)",
)
_STAND_IN = (
    "in place of the paper's Colorado census these are NIST's records of the American Community Survey, Massachusetts 2019, with "
    f"city = {CITY}, sex = {SEX}, income = {INCOME}; --colorado FILE runs on a table of yours"
)
_OWN = (
    f"the records are those of your file, with city = {COLORADO[0]}, sex = {COLORADO[1]}, income = {COLORADO[2]}; numbers are in "
    "20 ranges that are read off the records"
)


LINES = lines(lambda learned, study: records_of(learned, study)[0])
"""The ways that are compared; a federation's records are drawn as its miner draws those of a release."""


def experiment(options: Options) -> Experiment[Results]:
    """Choose the experiment.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_COLUMN_MISSING, DATA_CATEGORY_UNSEEN: the file is no such table.
    """
    table = None if options.colorado is None else colorado(read_columns(options.colorado))
    scale = privbayes.QUICK if options.quick else privbayes.FULL
    if options.repeats is not None:
        scale = dataclasses.replace(scale, seeds=options.repeats)
    notes = [_NOTES[0], _STAND_IN if table is None else _OWN, *_NOTES[1:]]

    def run(place: Workplace) -> Results:
        return privbayes.run(scale, seed=options.seed, tell=place.tell, lines=LINES, table=table)

    def tables(found: Results) -> dict[str, object]:
        return {
            "stand_in": table is None,
            "delta": DELTA,
            "scale": dataclasses.asdict(scale),
            "records": found.records,
            "lines": {line.name: line.words for line in LINES},
            "rows": [dataclasses.asdict(row) for row in found.rows],
            "adult": [dataclasses.asdict(distance) for distance in found.adult],
            "claims": [claim.document() for claim in claims(found.rows)],
            "notes": notes,
        }

    def pictures(found: Results) -> dict[str, bytes]:
        seeds = "one seed" if scale.seeds == 1 else f"mean of {scale.seeds} seeds"
        title = f"{found.records:,} records of {found.columns} columns, δ = {DELTA:g}, {seeds}; higher is better"
        return image_files({"scores": figures.draw_scores(found.rows, LINES, title)})

    def printed(found: Results) -> None:
        _print(found, scale.seeds)
        print_claims(claims(found.rows))
        print_sentences("", notes)

    return Experiment(
        title="privbayes",
        run=run,
        tables=tables,
        figures=pictures,
        printed=printed,
        warning="A quick run: few records and few seeds; its numbers say little." * options.quick,
    )


def _print(found: Results, seeds: int) -> None:
    epsilons = sorted({row.epsilon for row in found.rows if row.epsilon is not None})
    for score, what in figures.SCORES.items():
        shown = results_table(f"\n{what}, by total ε", "", "", *(f"{epsilon:g}" for epsilon in epsilons), left=2)
        for line in LINES:
            rows = [row for row in found.rows if row.line == line.name]
            cells = [_cell(rows, score, epsilon if line.private else None) for epsilon in epsilons]
            shown.add_row(line.name, line.words, *cells)
        if seeds > 1:
            best = [_best(found.rows, score, epsilon) for epsilon in epsilons]
            shown.add_row("", "the best of those with an ε, where it can be told", *best)
        put(shown)
    if seeds == 1:
        say("one seed: no deviation is known, and no way is named the best")
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


def _best(rows: Sequence[Row], score: str, epsilon: float) -> str:
    """Return the short name of the line with the highest mean; empty where another way is less than two standard errors below.

    Lines that differ in their sampler alone are one way. Each row has two seeds or more.
    """
    first, *others = sorted(
        (row for row in rows if row.epsilon == epsilon), key=lambda row: getattr(row.mean, score), reverse=True
    )
    way = first.line.partition("-")[0]
    for other in others:
        apart = getattr(first.mean, score) - getattr(other.mean, score)
        error = (getattr(first.error, score) ** 2 + getattr(other.error, score) ** 2) ** 0.5
        if other.line.partition("-")[0] != way and apart < 2 * error:
            return ""
    return way


def _print_adult(found: Sequence[Distance]) -> None:
    shown = results_table(
        f"\nUCI Adult, 32,561 x 13, PrivBayes, n records, δ = {DELTA:g}: mean total variation distance"
        + (" ± standard error" if len(found[0].two_way) > 1 else ", one seed"),
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
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values) / len(values) ** 0.5:.4f}"

"""``verticil reproduce hittmeir``: the experiments of Hittmeir, Mayer & Ekelhart (2022): ours, and the paper's in brackets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from verticil.cli.output import put, say
from verticil.experiments.figures import Form
from verticil.experiments.hittmeir import claims, figures, paper
from verticil.experiments.hittmeir.datasets import ADULT_SHORT
from verticil.experiments.hittmeir.measures import Attack, Correlations, Score
from verticil.experiments.hittmeir.paper import Printed, Results
from verticil.experiments.hittmeir.scale import FULL, QUICK, Runtime
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


def experiment(options: Options) -> Experiment[Results]:
    """Choose the experiments.

    Raises:
        Misuse: USAGE, no such table or figure.
        DataFault: the credit-card file cannot be read or is not such a table.
    """
    wanted = options.parts("hittmeir", paper.PARTS)
    cards = None if options.credit_card is None else read_columns(options.credit_card)
    scale = dataclasses.replace(QUICK if options.quick else FULL, repeats=options.repeats)

    def run(place: Workplace) -> Results:
        return paper.run(wanted, scale=scale, seed=options.seed, tell=place.tell, credit_card=cards)

    def tables(found: Results) -> dict[str, object]:
        results = claims.claims(found, quick=options.quick)
        return {
            "scale": dataclasses.asdict(scale),
            **_payload(found),
            "claims": [claim.document() for claim in results],
            "guessed": list(paper.GUESSED),
        }

    def printed(found: Results) -> None:
        print_found(found)
        print_claims(claims.claims(found, quick=options.quick))
        print_sentences("What the paper does not say, and what was done", paper.GUESSED)

    return Experiment(
        title="hittmeir",
        run=run,
        tables=tables,
        figures=_images,
        printed=printed,
        warning="A quick run: few records and generations; its numbers say nothing about the paper's." * options.quick,
    )


def _payload(found: Results) -> dict[str, object]:
    payload: dict[str, object] = {"simulated": sorted(found.simulated)}
    for part, runtimes in found.runtimes.items():
        payload[_key(part)] = {
            "rows": [dataclasses.asdict(row) for row in runtimes],
            "theirs": paper.RUNTIME_WORDS[part],
        }
    for part, scores in found.scores.items():
        payload[_key(part)] = {
            "rows": [_beside(dataclasses.asdict(row), paper.theirs_of_score(part, row)) for row in scores],
            "randomized": [dataclasses.asdict(row) for row in found.randomized.get(part, ())],
        }
    for part, attacks in found.attacks.items():
        payload[_key(part)] = {
            "rows": [_beside(dataclasses.asdict(row), paper.theirs_of_attack(part, row)) for row in attacks],
            "baseline_theirs": paper.BASELINES[part],
        }
    if found.correlations is not None:
        payload["figure_1"] = dataclasses.asdict(found.correlations)
    return payload


def _beside(ours: Mapping[str, object], theirs: Printed | None) -> dict[str, object]:
    return {**ours, "theirs": None if theirs is None else dataclasses.asdict(theirs)}


def _key(part: str) -> str:
    return part.replace(" ", "_")


def _images(found: Results) -> dict[str, bytes]:
    drawn: dict[str, Mapping[Form, bytes]] = {}
    for part, runtimes in found.runtimes.items():
        drawn[part] = figures.draw_runtimes(runtimes, title_of(found, part))
    for part, scores in found.scores.items():
        rows = (*scores, *(row for row in found.randomized.get(part, ()) if row.epsilon is not None))
        theirs = [average_theirs(part, row.accuracy, paper.theirs_of_score(part, row)) for row in rows]
        what = "average F2 score" if part == "table 7" else "average accuracy"
        drawn[part] = figures.draw_scores(rows, theirs, title_of(found, part), what)
    for part, attacks in found.attacks.items():
        theirs = [average_theirs(part, row.accuracy, paper.theirs_of_attack(part, row)) for row in attacks]
        drawn[part] = figures.draw_attacks(attacks, theirs, title_of(found, part))
    if found.correlations is not None:
        drawn["figure 1"] = figures.draw_correlations(found.correlations, ADULT_SHORT)
    return image_files(drawn)


def average_theirs(part: str, ours: Mapping[str, float], theirs: Printed | None) -> float | None:
    """Return the paper's average beside one of ours; None where it has none, or ours is over others."""
    return None if theirs is None or len(ours) != paper.n_averaged(part) else theirs.mean["average"]


def title_of(found: Results, part: str) -> str:
    """The title of a part; it says where records were made up."""
    return paper.TITLES[part] + (" (SIMULATED records of its shape)" if part in found.simulated else "")


def print_found(found: Results) -> None:
    """Print every part, in the paper's order."""
    if found.correlations is not None:
        _print_correlations(found.correlations)
    for part in paper.PARTS:
        title = title_of(found, part)
        if part in found.runtimes:
            _print_runtimes(title, part, found.runtimes[part])
        if part in found.scores:
            _print_scores(title, part, found.scores[part])
        if part == "table 7" and part in found.scores:
            _print_confusion(part, found.scores[part])
        if part in found.randomized:
            extra = "Not in the paper: columns randomized at epsilon, coarser ranges, k = 3"
            _print_scores(extra, part, found.randomized[part], published=False)
        if part in found.attacks:
            _print_attacks(title, part, found.attacks[part])


def _print_correlations(found: Correlations) -> None:
    shown = results_table(
        f"{paper.TITLES['figure 1']}: correlations of '{found.sensitive}' with '{found.target}', and with all others (absolute)",
        *("records", "with the target", "with all others"),
    )
    matrices = {
        "original": found.original,
        "from the ordinary network": found.ordinary,
        "from the custom network": found.custom,
    }
    for name, matrix in matrices.items():
        shown.add_row(name, f"{found.with_target(matrix):+.3f}", f"{found.with_sensitive(matrix):.3f}")
    put(shown)


def _print_runtimes(title: str, part: str, rows: Sequence[Runtime]) -> None:
    shown = results_table(
        f"\n{title}, {rows[0].records:,} records: CPU seconds",
        *("search", "k", "description", "generation", "edges"),
    )
    for row in rows:
        shown.add_row(row.method.value, str(row.k), f"{row.describe:.3f}", f"{row.generate:.4f}", str(row.edges))
    put(shown)
    say(f"theirs: {paper.RUNTIME_WORDS[part]}")


def _print_scores(title: str, part: str, rows: Sequence[Score], *, published: bool = True) -> None:
    what = ("F2 score" if part == "table 7" else "accuracy") + " in per cent" + ", theirs in brackets" * published
    shown = results_table(
        f"\n{title}{_without(rows[0])}: {what}; most common class {rows[0].majority:.1f}",
        *("trained on", *rows[0].accuracy, "average"),
    )
    for row in rows:
        theirs = paper.theirs_of_score(part, row) if published else None
        everything = ", all predictors" + ", the hidden variable too" * (part == "table 12")
        name = _score_name(row) + everything * (row.without != rows[0].without)
        shown.add_row(name, *row_cells(part, row.accuracy, row.deviation, row.average, theirs))
    put(shown)


def _without(row: Score) -> str:
    return f", predictors without {' and '.join(row.without)}" if row.without else ""


def _print_confusion(part: str, rows: Sequence[Score]) -> None:
    """Table VII as it is printed: TN and FP over FN and TP."""
    shown = results_table("TN FP over FN TP", *("trained on", "whose", *rows[0].confusion))
    for row in rows:
        theirs = paper.theirs_of_score(part, row)
        shown.add_row(_score_name(row), "ours", *map(_matrix, row.confusion.values()))
        if theirs is not None:
            shown.add_row("", "theirs", *(_matrix(theirs.confusion[name]) for name in row.confusion))
    put(shown)


def _print_attacks(title: str, part: str, rows: Sequence[Attack]) -> None:
    shown = results_table(
        f"\n{title}: accuracy in per cent, theirs in brackets; B, always the most common value, {rows[0].baseline:.1f} "
        f"({paper.BASELINES[part]:.1f})",
        *("attacker has", *rows[0].accuracy, "average"),
    )
    for row in rows:
        theirs = paper.theirs_of_attack(part, row)
        shown.add_row(_attack_name(row), *row_cells(part, row.accuracy, row.deviation, row.average, theirs))
    put(shown)
    beside = results_table(
        f"GCAP as the mean share, of records that were used and of others that were not; B of the others "
        f"{rows[0].others_baseline:.1f}",
        *("attacker has", "used", "not used", "disclosed beyond"),
    )
    for row in rows:
        shares = (row.members, row.others, row.members - row.others)
        beside.add_row(_attack_name(row), *(f"{value:.1f}" for value in shares))
    put(beside)


def _score_name(row: Score) -> str:
    if row.method is None:
        return "original"
    noise = "" if row.epsilon is None else f", epsilon = {row.epsilon:g}"
    return f"{row.trained_on if row.trained_on == 'custom' else row.method.value}, k = {row.k}{noise}"


def _attack_name(row: Attack) -> str:
    name = {"original": "original records", "ordinary": "ordinary network", "custom": "custom network"}[row.published]
    return name if row.epsilon is None else f"{name}, epsilon = {row.epsilon:g}"


def row_cells(
    part: str, ours: Mapping[str, float], deviation: Mapping[str, float], average: float, theirs: Printed | None
) -> list[str]:
    """Return a row's cells: ours, and in brackets theirs, each with the standard deviation where it has one.

    An average over fewer than the paper's says of how many each is.
    """
    cells: list[str] = []
    for name, value in {**ours, "average": average}.items():
        cell = _with_deviation(value, deviation.get(name))
        other = name == "average" and len(ours) != paper.n_averaged(part)
        if other:
            cell += f" of {len(ours)}"
        if theirs is not None:
            printed = theirs.mean.get(name)
            marked = f" of {paper.n_averaged(part)}" if other else ""
            cell += " (?)" if printed is None else f" ({_with_deviation(printed, theirs.deviation.get(name))}{marked})"
        cells.append(cell)
    return cells


def _with_deviation(value: float, deviation: float | None) -> str:
    return f"{value:.1f}" + (f"±{deviation:.1f}" if deviation else "")


def _matrix(cells: Sequence[Sequence[int]]) -> str:
    return "\n".join(" ".join(map(str, line)) for line in cells)

"""``verticil reproduce hittmeir``: the experiments of Hittmeir, Mayer & Ekelhart (2022), theirs beside ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from verticil.cli.files import new_folder
from verticil.cli.output import Format, emit, errors_console, text_console
from verticil.cli.results import free_folder, require, results_table, write_results
from verticil.shared.errors import DataFault, Misuse

if TYPE_CHECKING:
    from rich.console import Console

    from verticil.experiments.hittmeir.attacks import Attack
    from verticil.experiments.hittmeir.classifiers import Score
    from verticil.experiments.hittmeir.correlations import Correlations
    from verticil.experiments.hittmeir.datasets import Texts
    from verticil.experiments.hittmeir.paper import Found
    from verticil.experiments.hittmeir.runtime import Runtime

__all__ = ["run_hittmeir"]


def run_hittmeir(
    *,
    table: int | None,
    figure: int | None,
    credit_card: Path | None,
    quick: bool,
    seed: int,
    out: Path | None,
    form: Format,
) -> None:
    """Run the asked parts, print them, and write the numbers and pictures.

    Raises:
        Misuse: USAGE, no such table or figure, or an optional package is missing; FILE_EXISTS.
        DataFault: the credit-card file cannot be read or is not such a table.
    """
    for module, package in (("sklearn", "scikit-learn"), ("numba", "numba"), ("matplotlib", "matplotlib")):
        require(module, package, "reproduce hittmeir")
    from verticil.experiments.hittmeir import paper, published
    from verticil.experiments.hittmeir.scale import FULL, QUICK

    wanted = _wanted(paper.PARTS, table, figure)
    cards = None if credit_card is None else _read_card(credit_card)
    scale = QUICK if quick else FULL
    progress = errors_console()
    folder = new_folder(out or free_folder("hittmeir"))
    try:
        found = paper.run(
            wanted,
            scale=scale,
            seed=seed,
            step=lambda text: progress.print(text, markup=False, style="dim"),
            credit_card=cards,
        )
        payload: dict[str, object] = {
            "paper": "hittmeir",
            "seed": seed,
            "scale": dataclasses.asdict(scale),
            **_payload(found),
            "guessed": list(published.GUESSED),
        }
        files = write_results(folder, payload, _images(found))
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    payload["files"] = [str(path) for path in files]
    if emit(payload, form=form):
        return
    console = text_console()
    if quick:
        console.print("[bold]A quick run: few records and generations; its numbers say nothing about the paper's.[/]\n")
    _print_results(console, found)
    console.print("\n[bold]What the paper does not say, and what was done[/]")
    for sentence in published.GUESSED:
        console.print(f"  {sentence}", markup=False)
    console.print(f"\nwritten: {', '.join(map(str, files))}", markup=False)


def _wanted(parts: Sequence[str], table: int | None, figure: int | None) -> list[str]:
    asked = [f"table {table}"] * (table is not None) + [f"figure {figure}"] * (figure is not None)
    if unknown := [part for part in asked if part not in parts]:
        raise Misuse("USAGE", f"hittmeir: no {' and no '.join(unknown)}; there are {', '.join(parts)}")
    return asked or list(parts)


def _read_card(path: Path) -> Texts:
    import pandas as pd

    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise DataFault("DATA_FILE_MISSING", f"'{path}': no such file") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataFault("DATA_UNREADABLE", f"'{path}': cannot be read as CSV: {type(error).__name__}") from None
    return {str(name): table[name].to_numpy(dtype=object) for name in table.columns}


def _payload(found: Found) -> dict[str, object]:
    from verticil.experiments.hittmeir import paper, published

    payload: dict[str, object] = {"simulated": sorted(found.simulated)}
    for part, runtimes in found.runtimes.items():
        payload[_key(part)] = {
            "rows": [dataclasses.asdict(row) for row in runtimes],
            "theirs": published.RUNTIME_WORDS[part],
        }
    for part, scores in found.scores.items():
        rows = (*scores, *found.randomized.get(part, ()))
        payload[_key(part)] = {
            "rows": [{**dataclasses.asdict(row), "theirs": paper.theirs_of_score(part, row)} for row in scores],
            "randomized": [dataclasses.asdict(row) for row in rows[len(scores) :]],
        }
    for part, attacks in found.attacks.items():
        payload[_key(part)] = {
            "rows": [{**dataclasses.asdict(row), "theirs": paper.theirs_of_attack(part, row)} for row in attacks],
            "baseline_theirs": published.BASELINES[part],
        }
    if found.correlations is not None:
        payload["figure_1"] = dataclasses.asdict(found.correlations)
    return payload


def _key(part: str) -> str:
    return part.replace(" ", "_")


def _images(found: Found) -> dict[str, bytes]:
    from verticil.experiments.hittmeir import figures, paper, published
    from verticil.experiments.hittmeir.datasets import ADULT_SHORT

    images: dict[str, bytes] = {}
    forms: tuple[figures.Form, figures.Form] = ("svg", "png")
    for form in forms:
        for part, runtimes in found.runtimes.items():
            title = _title(found, part)
            images[f"{part.replace(' ', '-')}.{form}"] = figures.draw_runtimes(runtimes, title, form)
        for part, scores in found.scores.items():
            rows = (*scores, *(row for row in found.randomized.get(part, ()) if row.epsilon is not None))
            theirs = [None if row.without else paper.theirs_of_score(part, row).get("average") for row in rows]
            what = "average F2 score" if part == "table 7" else "average accuracy"
            images[f"{part.replace(' ', '-')}.{form}"] = figures.draw_scores(
                rows, theirs, _title(found, part), what, form
            )
        for part, attacks in found.attacks.items():
            averages = {name: cells["average"] for name, cells in published.ATTACKS[part].items()}
            images[f"{part.replace(' ', '-')}.{form}"] = figures.draw_attacks(
                attacks, averages, _title(found, part), form
            )
        if found.correlations is not None:
            images[f"figure-1.{form}"] = figures.draw_correlations(found.correlations, ADULT_SHORT, form)
    return images


def _title(found: Found, part: str) -> str:
    from verticil.experiments.hittmeir import paper

    return paper.TITLES[part] + (" (SIMULATED records of its shape)" if part in found.simulated else "")


def _print_results(console: Console, found: Found) -> None:
    if found.correlations is not None:
        _print_correlations(console, found.correlations)
    for part, runtimes in found.runtimes.items():
        _print_runtimes(console, _title(found, part), part, runtimes)
    for part, scores in found.scores.items():
        _print_scores(console, _title(found, part), part, scores)
        if extra := found.randomized.get(part):
            _print_scores(
                console, "Not in the paper: randomized columns, coarser ranges, k = 3", part, extra, published=False
            )
    for part, attacks in found.attacks.items():
        _print_attacks(console, _title(found, part), part, attacks)


def _print_correlations(console: Console, found: Correlations) -> None:
    from verticil.experiments.hittmeir import paper

    shown = results_table(
        f"{paper.TITLES['figure 1']}: mean absolute correlation of '{found.sensitive}' with all but '{found.target}'",
        *("original", "ordinary network", "custom network"),
        left=0,
    )
    shown.add_row(*(f"{found.with_sensitive(matrix):.3f}" for matrix in (found.original, found.ordinary, found.custom)))
    console.print(shown)


def _print_runtimes(console: Console, title: str, part: str, rows: Sequence[Runtime]) -> None:
    from verticil.experiments.hittmeir import published

    shown = results_table(
        f"\n{title}, {rows[0].records:,} records: CPU seconds",
        *("search", "k", "description", "generation", "edges"),
    )
    for row in rows:
        shown.add_row(row.method.value, str(row.k), f"{row.describe:.3f}", f"{row.generate:.4f}", str(row.edges))
    console.print(shown)
    console.print(f"theirs: {published.RUNTIME_WORDS[part]}", markup=False)


def _print_scores(console: Console, title: str, part: str, rows: Sequence[Score], *, published: bool = True) -> None:
    from verticil.experiments.hittmeir import paper

    what = ("F2 score" if part == "table 7" else "accuracy") + " in per cent" + ", theirs in brackets" * published
    shown = results_table(
        f"\n{title}: {what}; most common class {rows[0].majority:.1f}",
        *("trained on", *rows[0].accuracy, "average"),
    )
    for row in rows:
        theirs = paper.theirs_of_score(part, row) if published else {}
        cells = [_beside(value, theirs.get(name), row.deviation[name]) for name, value in row.accuracy.items()]
        shown.add_row(_score_name(row), *cells, _beside(row.average, theirs.get("average")))
    console.print(shown)


def _score_name(row: Score) -> str:
    if row.method is None:
        return "original" + (", without " + " and ".join(row.without) if row.without else "")
    noise = "" if row.epsilon is None else f", epsilon = {row.epsilon:g}"
    return f"{row.trained_on if row.trained_on == 'custom' else row.method.value}, k = {row.k}{noise}"


def _print_attacks(console: Console, title: str, part: str, rows: Sequence[Attack]) -> None:
    from verticil.experiments.hittmeir import paper, published

    shown = results_table(
        f"\n{title}: accuracy in per cent, theirs in brackets; B, always the most common value, {rows[0].baseline:.1f} "
        f"({published.BASELINES[part]:.1f})",
        *("attacker has", *rows[0].accuracy, "average"),
    )
    for row in rows:
        theirs = paper.theirs_of_attack(part, row)
        cells = [_beside(value, theirs.get(name), row.deviation[name]) for name, value in row.accuracy.items()]
        shown.add_row(_attack_name(row), *cells, _beside(row.average, theirs.get("average")))
    console.print(shown)
    beside = results_table(
        f"GCAP as the mean share, of records that were used and of others that were not; B of the others "
        f"{rows[0].others_baseline:.1f}",
        *("attacker has", "used", "not used", "disclosed beyond"),
    )
    for row in rows:
        shares = (row.members, row.others, row.members - row.others)
        beside.add_row(_attack_name(row), *(f"{value:.1f}" for value in shares))
    console.print(beside)


def _attack_name(row: Attack) -> str:
    name = {"original": "original records", "ordinary": "ordinary network", "custom": "custom network"}[row.published]
    return name if row.epsilon is None else f"{name}, epsilon = {row.epsilon:g}"


def _beside(ours: float, theirs: float | None, deviation: float = 0.0) -> str:
    text = f"{ours:.1f}" + (f"±{deviation:.1f}" if deviation else "")
    return text if theirs is None else f"{text} ({theirs:.1f})"

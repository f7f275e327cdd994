"""``verticil reproduce hittmeir``: the experiments of Hittmeir, Mayer & Ekelhart (2022), theirs beside ours."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from verticil.cli.files import new_folder
from verticil.cli.hittmeir_tables import print_found, title_of
from verticil.cli.output import Format, emit, errors_console, text_console
from verticil.cli.results import free_folder, progress, require, write_results
from verticil.shared.errors import DataFault, Misuse

if TYPE_CHECKING:
    from verticil.experiments.hittmeir.datasets import Texts
    from verticil.experiments.hittmeir.paper import Found, Printed


def run_hittmeir(
    *,
    table: int | None,
    figure: int | None,
    credit_card: Path | None,
    quick: bool,
    repeats: int | None,
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
    from verticil.experiments.hittmeir import paper
    from verticil.experiments.hittmeir.scale import FULL, QUICK

    wanted = _wanted(paper.PARTS, table, figure)
    cards = None if credit_card is None else _read_card(credit_card)
    scale = dataclasses.replace(QUICK if quick else FULL, repeats=repeats)
    folder = new_folder(out or free_folder("hittmeir"))
    begun, used = time.monotonic(), time.process_time()
    try:
        with progress(errors_console()) as tell:
            found = paper.run(wanted, scale=scale, seed=seed, tell=tell, credit_card=cards)
        spent = {"cpu_seconds": time.process_time() - used, "wall_seconds": time.monotonic() - begun}
        payload: dict[str, object] = {
            "paper": "hittmeir",
            "seed": seed,
            "scale": dataclasses.asdict(scale),
            "spent": spent,
            **_payload(found),
            "guessed": list(paper.GUESSED),
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
    print_found(console, found)
    console.print("\n[bold]What the paper does not say, and what was done[/]")
    for sentence in paper.GUESSED:
        console.print(f"  {sentence}", markup=False)
    console.print(f"\n{spent['cpu_seconds']:,.0f} CPU seconds, {spent['wall_seconds']:,.0f} seconds by the clock")
    console.print(f"written: {', '.join(map(str, files))}", markup=False)


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
    from verticil.experiments.hittmeir import paper

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


def _images(found: Found) -> dict[str, bytes]:
    from verticil.experiments.hittmeir import figures, paper
    from verticil.experiments.hittmeir.datasets import ADULT_SHORT

    drawn: dict[str, Mapping[figures.Form, bytes]] = {}
    for part, runtimes in found.runtimes.items():
        drawn[part] = figures.draw_runtimes(runtimes, title_of(found, part))
    for part, scores in found.scores.items():
        rows = (*scores, *(row for row in found.randomized.get(part, ()) if row.epsilon is not None))
        theirs = _averages([paper.theirs_of_score(part, row) for row in rows])
        what = "average F2 score" if part == "table 7" else "average accuracy"
        drawn[part] = figures.draw_scores(rows, theirs, title_of(found, part), what)
    for part, attacks in found.attacks.items():
        theirs = _averages([paper.theirs_of_attack(part, row) for row in attacks])
        drawn[part] = figures.draw_attacks(attacks, theirs, title_of(found, part))
    if found.correlations is not None:
        drawn["figure 1"] = figures.draw_correlations(found.correlations, ADULT_SHORT)
    return {f"{part.replace(' ', '-')}.{form}": image for part, forms in drawn.items() for form, image in forms.items()}


def _averages(printed: Sequence[Printed | None]) -> list[float | None]:
    return [None if row is None else row.mean["average"] for row in printed]

"""How close synthetic data come to the real joint data on the shipped federation: ``python tests/bench/accuracy.py``.

Runs the simulation with the shipped codebook, every column at the same epsilon (and once without randomization), with several
site secrets, and prints the mean total variation distances of all 1-, 2- and 3-way tables and the worst pair's; the 2-way
distance with its standard error over the secrets. Beside them the floor (a bootstrap of the real data) and independent columns.

``--beside PYTHON`` runs the same levels and secrets with another checkout's interpreter and its own shipped study, and says
whether our mean 2-way distance is at most its mean + 2 standard errors (of its mean); beside it the mean difference of the pairs
of runs with the same secret, with its own standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from verticil.simulation import simulate
from verticil.simulation.federations import adult

LEVELS = {"none": 'scheme = "none"', **{f"{e:g}": f'scheme = "symmetric"\nepsilon = {e}' for e in (3.0, 2.0, 1.0)}}


def study_at(level: str, estimator: str = "em", max_parents: int | None = None) -> str:
    """The shipped study with one scheme for every column."""
    text = adult.study_text()
    start, end = text.index("[randomization_default]"), text.index("[structure]")
    text = text[:start] + f"[randomization_default]\n{LEVELS[level]}\n\n" + text[end:]
    text = re.sub(r'^estimator = ".*?"', f'estimator = "{estimator}"', text, count=1, flags=re.MULTILINE)
    if max_parents is not None:
        text = re.sub(r"^max_parents = .*?$", f"max_parents = {max_parents}", text, count=1, flags=re.MULTILINE)
    return re.sub(r'^id = ".*?"', 'id = "accuracy"', text, count=1, flags=re.MULTILINE)


def error(values: list[float]) -> float:
    """Standard error of the mean."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def other(arguments: argparse.Namespace, level: str) -> list[float]:
    """The 2-way distance of every run of another checkout's program."""
    command = [arguments.beside, __file__, "--seeds", str(arguments.seeds), "--levels", level, "--json"]
    command += ["--estimator", arguments.estimator]
    if arguments.max_parents is not None:
        command += ["--max-parents", str(arguments.max_parents)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--levels", nargs="*", default=list(LEVELS), choices=list(LEVELS))
    parser.add_argument("--estimator", default="em", choices=("em", "clip", "simplex"))
    parser.add_argument("--max-parents", type=int, help="instead of the shipped study's")
    parser.add_argument("--beside", metavar="PYTHON", help="interpreter of another checkout, to compare with")
    parser.add_argument("--json", action="store_true", help="print nothing but the 2-way distance of every run")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    say(f"mean of {arguments.seeds} site secrets, estimator {arguments.estimator}")
    say(f"{'epsilon per column':20} {'1-way':>8} {'2-way':>8} {'+-':>7} {'3-way':>8} {'worst pair':>11} {'edges':>6}")
    distances: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        tables = adult.write_tables(Path(folder))
        for level in arguments.levels:
            text = study_at(level, arguments.estimator, arguments.max_parents)
            (study := Path(folder) / "study.toml").write_text(text, encoding="utf-8")
            runs = [simulate(study, tables, seed=seed, compare=True) for seed in range(1, arguments.seeds + 1)]
            found = [run.comparison for run in runs if run.comparison is not None]
            means = [statistics.fmean(one.synthetic[way].mean for one in found) for way in range(3)]
            distances = [one.synthetic[1].mean for one in found]
            worst = statistics.fmean(one.synthetic[1].worst for one in found)
            edges = statistics.fmean(len(run.network.dag.edges()) for run in runs)
            say(
                f"{level:20} {means[0]:8.4f} {means[1]:8.4f} {error(distances):7.4f} {means[2]:8.4f} {worst:11.4f} "
                f"{edges:6.1f}"
            )
            if arguments.beside:
                before = other(arguments, level)
                mean, allowed = statistics.fmean(before), statistics.fmean(before) + 2 * error(before)
                apart = [ours - theirs for ours, theirs in zip(distances, before, strict=True)]
                say(
                    f"{'  the other program':20} {'':8} {mean:8.4f} {error(before):7.4f} ours at most its mean + 2 standard "
                    f"errors: {'yes' if means[1] <= allowed else 'NO'}; ours - its {statistics.fmean(apart):+.4f} "
                    f"+- {error(apart):.4f}"
                )
    for name in ("bootstrap", "independent"):
        all_ways = getattr(found[-1], name)
        say(
            f"{name:20} {all_ways[0].mean:8.4f} {all_ways[1].mean:8.4f} {'':7} {all_ways[2].mean:8.4f} "
            f"{all_ways[1].worst:11.4f}"
        )
    if arguments.json:
        sys.stdout.write(json.dumps(distances))


if __name__ == "__main__":
    main()

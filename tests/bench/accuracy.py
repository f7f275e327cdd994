"""How close synthetic data come to the real joint data on the shipped federation: ``python tests/bench/accuracy.py``.

Runs the simulation with the shipped codebook, every column at the same epsilon (and once without randomization), with several
site secrets, and prints the mean total variation distances of all 1-, 2- and 3-way tables and the worst pair's. Beside them the
floor (a bootstrap of the real data) and independent columns.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
from pathlib import Path

from verticil.simulation import adult, simulate

LEVELS = {"none": 'scheme = "none"', **{f"{e:g}": f'scheme = "symmetric"\nepsilon = {e}' for e in (3.0, 2.0, 1.0)}}


def study_at(level: str, estimator: str = "em") -> str:
    """The shipped study with one scheme for every column."""
    text = adult.study_text()
    start, end = text.index("[randomization_default]"), text.index("[structure]")
    text = text[:start] + f"[randomization_default]\n{LEVELS[level]}\n\n" + text[end:]
    text = re.sub(r'^estimator = ".*?"', f'estimator = "{estimator}"', text, count=1, flags=re.MULTILINE)
    return re.sub(r'^id = ".*?"', 'id = "accuracy"', text, count=1, flags=re.MULTILINE)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--levels", nargs="*", default=list(LEVELS), choices=list(LEVELS))
    parser.add_argument("--estimator", default="em", choices=("em", "clip", "simplex"))
    arguments = parser.parse_args()
    print(f"mean of {arguments.seeds} site secrets, estimator {arguments.estimator}")
    print(f"{'epsilon per column':20} {'1-way':>8} {'2-way':>8} {'3-way':>8} {'worst pair':>11} {'edges':>6}")
    with tempfile.TemporaryDirectory() as folder:
        tables = adult.write_tables(Path(folder))
        for level in arguments.levels:
            (study := Path(folder) / "study.toml").write_text(study_at(level, arguments.estimator), encoding="utf-8")
            runs = [simulate(study, tables, seed=seed, compare=True) for seed in range(1, arguments.seeds + 1)]
            found = [run.comparison for run in runs if run.comparison is not None]
            means = [statistics.fmean(one.synthetic[way].mean for one in found) for way in range(3)]
            worst = statistics.fmean(one.synthetic[1].worst for one in found)
            edges = statistics.fmean(len(run.network.dag.edges()) for run in runs)
            print(f"{level:20} {means[0]:8.4f} {means[1]:8.4f} {means[2]:8.4f} {worst:11.4f} {edges:6.1f}", flush=True)
    for name in ("bootstrap", "independent"):
        distances = getattr(found[-1], name)
        print(
            f"{name:20} {distances[0].mean:8.4f} {distances[1].mean:8.4f} {distances[2].mean:8.4f} {distances[1].worst:11.4f}"
        )


if __name__ == "__main__":
    main()

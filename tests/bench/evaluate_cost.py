"""CPU seconds of one evaluation: ``python tests/bench/evaluate_cost.py [--rows 27253] [--holdout]``.

The people of tests/data/ma2019.csv.gz repeated to so many rows, 24 columns; a study that is drafted from them, and the release of
`synthesize` at epsilon 1, seed 1. The release is evaluated with all metrics, by its codebook and by value, with its plots and its
page, in a process of its own. Beside each metric stands the CPU time when it begins; the last line is the whole beside its bound.
With ``--holdout`` ten of a hundred rows are kept back, and all attacks are made; that has no bound. Making the release counts
nowhere. Exit code 1 where the bound is passed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import verticil.api as vt

BOUND = 30.0
"""CPU seconds, without attacks."""


def main() -> int:
    """Print the seconds; 1 where they are beyond the bound."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=27_253)
    parser.add_argument("--holdout", action="store_true")
    parser.add_argument("--made", type=Path, help=argparse.SUPPRESS)  # of the process that is measured
    arguments = parser.parse_args()
    if arguments.made is not None:
        return evaluate(arguments.made, has_holdout=arguments.holdout)
    data = Path(__file__).parents[1] / "data" / "ma2019.csv.gz"
    people = pd.read_csv(data, dtype=str, keep_default_na=False)
    people = people.iloc[np.arange(arguments.rows) % len(people)].reset_index(drop=True)
    is_held = np.random.default_rng(1).random(len(people)) < 0.1 * arguments.holdout
    with tempfile.TemporaryDirectory() as folder:
        real = Path(folder) / "people.csv"
        people[~is_held].to_csv(real, index=False)
        people[is_held].to_csv(real.with_name("others.csv"), index=False)
        draft = vt.study.draft({"owner": real}, title="Cost", purpose="Bench", public=True)
        vt.synthesize(real, draft, epsilon=1.0, seed=1, out=real.with_name("made"))
        # A process of its own: what was imported and compiled to make the release is not there yet.
        command = [sys.executable, __file__, "--made", folder, *(["--holdout"] if arguments.holdout else [])]
        return subprocess.run(command, check=False).returncode


def evaluate(folder: Path, *, has_holdout: bool) -> int:
    """Evaluate the release in a folder; the seconds are those of this process from its start."""
    evaluation = vt.evaluate(
        folder / "people.csv",
        folder / "made",
        holdout=folder / "others.csv" if has_holdout else None,
        progress=lambda what, _: print(f"{time.process_time():7.1f} s {what}", flush=True),
    )
    evaluation.write(folder / "page")
    seconds = time.process_time()
    bound = "" if has_holdout else f", bound {BOUND:g}"
    print(
        f"evaluate, {evaluation.facts['real_records']:,} x {len(evaluation.facts['columns'])}: {seconds:.1f} CPU s{bound}"
    )
    return int(not has_holdout and seconds > BOUND)


if __name__ == "__main__":
    sys.exit(main())

"""Pairs of which one column is a function of the other, through a whole study: ``python tests/bench/ma2019.py [--seeds 20]``.

The people of tests/data/ma2019.csv.gz, whose columns four parties hold (ma2019.toml: epsilon 2 a column, method auto), with
several site secrets. For each of `PAIRS`: the total variation distance of the synthetic records' table to the real one, in parts
of the distance of independent columns; the bound is one half, for every secret. Ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.reading import read_study
from verticil.simulation import simulate
from verticil.simulation.summary import synthetic_codes

HERE = Path(__file__).parent
PAIRS = (("PUMA", "DENSITY"), ("INDP", "INDP_CAT"), ("PINCP", "PINCP_DECILE"))
BOUND = 0.5


def pair(table: pd.DataFrame, first: Variable, second: Variable) -> NDArray[np.float64]:
    """Shares of the two variables' categories."""
    codes = [synthetic_codes(table[variable.name], variable) for variable in (first, second)]
    last = [variable.n_states - 1 - (variable.missing is not None) for variable in (first, second)]
    codes = [
        np.minimum(code, end) if variable.bins and code.max() >= variable.n_states else code
        for code, end, variable in zip(codes, last, (first, second), strict=True)
    ]
    flat = codes[0].astype(np.int64) * second.n_states + codes[1]
    counts = np.bincount(flat, minlength=first.n_states * second.n_states)
    return np.asarray(counts.reshape(first.n_states, -1) / len(table))


def main() -> int:
    """Print the distances; 1 where one is not below the bound."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    study = read_study(HERE / "ma2019.toml")
    people = pd.read_csv(HERE.parent / "data" / "ma2019.csv.gz", dtype=str, keep_default_na=False)
    people.insert(0, "id", [f"{row:05d}" for row in range(len(people))])
    tables = {
        party: people[["id", *(variable.name for variable in study.schema.variables if variable.owner == party)]]
        for party in study.parties
    }
    by_name = {variable.name: variable for variable in study.schema.variables}
    found: dict[tuple[str, str], list[float]] = {names: [] for names in PAIRS}
    for seed in range(1, arguments.seeds + 1):
        made = simulate(study, tables, seed=seed)
        for names in PAIRS:
            first, second = (by_name[name] for name in names)
            real, synthetic = pair(people, first, second), pair(made.synthetic, first, second)
            independent = np.outer(real.sum(axis=1), real.sum(axis=0))
            found[names].append(float(np.abs(real - synthetic).sum() / np.abs(real - independent).sum()))
        shown = ", ".join(f"{'-'.join(names)} {parts[-1]:.3f}" for names, parts in found.items())
        print(f"secret {seed}: {shown}; {len(made.network.dag.edges())} edges", flush=True)
    missed = 0
    for names, parts in found.items():
        above = sum(part >= BOUND for part in parts)
        missed += above
        print(
            f"{'-'.join(names):20} mean {statistics.fmean(parts):.3f}, worst {max(parts):.3f}, bound {BOUND}: {above} missed"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

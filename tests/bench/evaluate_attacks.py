"""How often attacks of `verticil evaluate` flag a table that is innocent, and one that leaks, on Adult; and what a run costs.

    OMP_NUM_THREADS=1 python tests/bench/evaluate_attacks.py [--runs 30 | --cost]

Each run draws disjoint people from Adult's 32,561 training rows: 6,000 real ones, 5,000 of a holdout, and 6,000 of whom the
synthetic table is (fresh). A leak puts real records in place of some of these, or into one column the values of the real records
that are nearest by all others. A figure is flagged where its verdict is not "floor"; stated is one of 100 for an innocent table.
It prints counts, writes evaluate_attacks.json beside this file, and ends with 1 where innocent tables are flagged more often than
the stated rate allows with a probability of .001.

``--cost`` prints the CPU seconds of each metric of one table, which is drawn from the training rows with replacement, against all
of these and the test rows as a holdout; and of GCAP alone.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binom

from verticil.evaluate.coding import coding
from verticil.evaluate.evaluation import evaluate
from verticil.evaluate.measures.disclosure import AttackedRecords, gcap
from verticil.evaluate.measures.neighbours import guesses, points
from verticil.evaluate.reading import table_of
from verticil.experiments.hittmeir import datasets

REAL, HOLDOUT, FRESH = 6_000, 5_000, 6_000
ATTACKS = ("membership", "attribution", "linkability", "singling_out")
COPIED = (0.02, 0.05)
STATED, ALLOWED = 0.01, 0.001
WRITTEN = Path(__file__).with_suffix(".json")


def overfit(real: pd.DataFrame, fresh: pd.DataFrame, column: str) -> pd.DataFrame:
    """One column from the real record nearest by all others."""
    coded = coding(table_of(real, name="real"), {"fresh": table_of(fresh, name="fresh")})
    published, asked = points(coded.real, coded.synthetic["fresh"])
    place = coded.real.column(column)
    (first,) = (
        guess.first for guess in guesses(asked, published, [None] * len(coded.real.names)) if guess.column == place
    )
    return fresh.assign(**{column: real[column].to_numpy()[first]})


def cost() -> None:
    """Print what a run costs."""
    data = datasets.adult()
    real, holdout = (pd.DataFrame({n: list(c) for n, c in rows.items()}) for rows in (data.train, data.test))
    synthetic = real.sample(frac=1, replace=True, random_state=1).reset_index(drop=True)
    for metric in ("membership", "attribution", "classifiers", "linkability", "singling_out"):
        begun = time.process_time()
        evaluate(real, {"drawn": synthetic}, holdout=holdout, only=[metric])
        print(
            f"{metric:15} {time.process_time() - begun:.1f} CPU s, {len(real):,} records, {len(real.columns)} columns"
        )
    columns = [np.unique(column, return_inverse=True)[1] for column in real.to_numpy().T.astype(str)]
    for n_keys in (5, 8, len(columns) - 1):
        attacked, published = (
            AttackedRecords(keys=tuple(column[rows] for column in columns[:n_keys]), sensitive=columns[-1][rows])
            for rows in (slice(13_000), slice(13_000, 26_000))
        )
        begun = time.process_time()
        gcap(attacked, published)
        print(f"GCAP, {n_keys:2} keys    {time.process_time() - begun:.2f} CPU s, 13,000 in 13,000 records")


def main() -> int:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--cost", action="store_true")
    options = parser.parse_args()
    if options.cost:
        cost()
        return 0
    runs = options.runs
    people = pd.DataFrame({name: list(column) for name, column in datasets.adult().train.items()})
    flagged: Counter[tuple[str, str]] = Counter()
    begun = time.process_time()
    for run in range(runs):
        order = np.random.default_rng(run).permutation(len(people))
        real, holdout, fresh = (
            people.iloc[part].reset_index(drop=True)
            for part in np.split(order[: REAL + HOLDOUT + FRESH], [REAL, REAL + HOLDOUT])
        )
        tables = {"fresh": fresh, "occupation overfit": overfit(real, fresh, "occupation")}
        for share in COPIED:
            n = int(share * FRESH)
            tables[f"{share:.0%} copied"] = pd.concat([real.iloc[:n], fresh.iloc[n:]], ignore_index=True)
        found = evaluate(real, tables, holdout=holdout, only=ATTACKS, seed=10 * run)
        for figure in found.figures:
            flagged[figure.candidate, figure.asked.key] += figure.verdict != "floor"
        for item in found.summaries:
            flagged[item.candidate, "any"] += bool(item.discloses)
        print(f"{run + 1} runs, {time.process_time() - begun:.0f} CPU s", flush=True)
    names = list(dict.fromkeys(name for name, _ in flagged))
    for name in names:
        print(f"{name:20}", *(f"{key} {flagged[name, key]}" for key in (*ATTACKS, "any")), f"of {runs}")
    innocent = sum(flagged["fresh", key] for key in ATTACKS)
    chance = float(binom.sf(innocent - 1, runs * len(ATTACKS), STATED))
    print(
        f"fresh: {innocent} of {runs * len(ATTACKS)} figures; so many or more in {chance:.3g} of cases at the stated rate"
    )
    document = {
        "data": f"Adult's training rows: {REAL:,} real, {HOLDOUT:,} of a holdout, {FRESH:,} synthetic",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("numpy", "scipy")},
        "runs": runs,
        "flagged": {name: {key: flagged[name, key] for key in (*ATTACKS, "any")} for name in names},
    }
    WRITTEN.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if chance < ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())

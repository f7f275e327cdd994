"""AIM, MST and PrivBayes as others have written them, on the table of Adult that `joint.py` is measured on.

``python tests/bench/joint_peers.py [--methods aim mst privbayes] [--seeds 1]`` makes an environment of its own in the user's
cache (``python -m venv`` and ``pip install dpmm==0.1.9``, whose AIM and MST are those of private-pgm, adapted), or takes
``--python``; it prints each run and writes joint_peers.json beside this file, with date and versions. AIM takes more than ten
minutes.

Add/remove, epsilon = 1, delta = 1e-9, their own defaults otherwise; as many records as there are. CPU seconds of fitting and
drawing, of their process alone.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from joint_data import Truth, adult
from other_environment import interpreter

VERSION = "0.1.9"
EPSILON, DELTA = 1.0, 1e-9
WRITTEN = Path(__file__).with_suffix(".json")

# Runs in the other environment: codes in, records and CPU seconds out.
THEIRS = """
import json, sys, time
from importlib.metadata import version
import numpy as np, pandas as pd
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM
from dpmm.models.priv_bayes import PrivBayesGM

method, seed, epsilon, delta, folder = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
table = pd.DataFrame(np.load(folder + "/codes.npy"))
table.columns = [str(column) for column in table.columns]
domain = dict(zip(table.columns, json.load(open(folder + "/n_states.json"))))
kind = {"aim": AIMGM, "mst": MSTGM, "privbayes": PrivBayesGM}[method]
np.random.seed(seed)
start = time.process_time()
model = kind(epsilon=epsilon, delta=delta, domain=domain, random_state=np.random.RandomState(seed), n_jobs=1)
model.fit(table)
made = model.generate(n_records=len(table))
seconds = time.process_time() - start
np.save(folder + "/made.npy", made[table.columns].to_numpy().astype(np.uint16))
print(json.dumps([seconds, {name: version(name) for name in ("dpmm", "numpy", "pandas", "scipy", "scikit-learn")}]))
"""


def environment(asked: str | None) -> Path:
    """The interpreter of the other environment, which is made where it is not there."""
    return interpreter("dpmm", f"dpmm=={VERSION}") if asked is None else Path(asked)


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--methods", nargs="*", default=["aim", "mst", "privbayes"], choices=("aim", "mst", "privbayes")
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--python", metavar="PATH", help="the interpreter of an environment that is there")
    options = parser.parse_args()
    python = environment(options.python)
    data = adult()
    truth = Truth(data.schema.n_states, data.columns)
    for method in options.methods:
        for seed in range(1, options.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                np.save(f"{folder}/codes.npy", np.column_stack(data.columns).astype(np.int64))
                Path(folder, "n_states.json").write_text(json.dumps(data.schema.n_states), encoding="utf-8")
                command = [
                    str(python),
                    "-W",
                    "ignore",
                    "-c",
                    THEIRS,
                    method,
                    str(seed),
                    str(EPSILON),
                    str(DELTA),
                    folder,
                ]
                threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
                run = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, **threads})
                seconds, versions = json.loads(run.stdout.splitlines()[-1])
                made = np.load(f"{folder}/made.npy")
            two, three = truth.to_records(list(made.T))
            print(f"{method:10} seed {seed}: 2-way {two:.4f}, 3-way {three:.4f}, {seconds:.1f} CPU s", flush=True)
            keep(
                method,
                seed,
                {"two_way": round(two, 5), "three_way": round(three, 5), "cpu_seconds": round(seconds, 1)},
                versions,
            )


def keep(method: str, seed: int, figures: dict[str, float], versions: dict[str, str]) -> None:
    """Write down one run, in place of an earlier one of the same seed."""
    written = json.loads(WRITTEN.read_text(encoding="utf-8")) if WRITTEN.exists() else {"runs": []}
    others = [run for run in written["runs"] if (run["method"], run["seed"]) != (method, seed)]
    day = dt.datetime.now(dt.UTC).date().isoformat()
    one = {"method": method, "seed": seed, **figures, "date": day, "versions": versions}
    found = {
        "data": "Adult, 32,561 x 13, see joint_data.adult",
        "privacy": {"relation": "add-remove", "epsilon": EPSILON, "delta": DELTA},
        "runs": sorted([*others, one], key=lambda run: (run["method"], run["seed"])),
    }
    WRITTEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

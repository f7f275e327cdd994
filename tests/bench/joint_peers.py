"""Other programs on the tables that `joint.py` is measured on: ``python tests/bench/joint_peers.py [--methods ..] [--data ..]``.

Each method is its authors' own program in an environment of its own, which is made in the user's cache (`python -m venv`, `pip
install`); code that is in no package is cloned beside it, at the commit named here. Nothing of it is copied into this project.

``aim``, ``mst``, ``privbayes``: dpmm 0.1.9, whose AIM and MST are those of private-pgm, adapted.
``private-pgm-aim``: AIM of private-pgm 1.3.0, from its repository, all pairs as workload. The package `mbi` 2.0.0 ships no
mechanisms, and that AIM cannot call its `estimate`, so the repository's own `mbi` is used.
``residual-planner``, ``grem-lnn``: ResidualPlanner with the code of "Efficient and Private Marginal Reconstruction with Local
Non-Negativity" (Mullins, Fuentes, Xiao, Kifer, Musco & Sheldon, NeurIPS 2024): tables of all pairs, truncated and rescaled, or
reconstructed without negative counts. They give tables and no records, so there are no triples.

Add/remove, delta = 1e-9, their own defaults otherwise; as many records as there are. The command prints the distances of `joint`,
and the CPU seconds of fitting and drawing, of their process alone. A run that needs more than ``--minutes`` CPU minutes is
stopped, and its row says that it did not end; a program that fails says so. Each run is written to joint_peers.json beside this
file, with date and versions.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joint import mean_error
from joint_data import Data, Truth
from joint_dense import TABLES
from other_environment import cache_folder, interpreter

DELTA = 1e-9
MINUTES = 30.0
WRITTEN = Path(__file__).with_suffix(".json")

# These run in the other environments. In: a folder with codes.npy and n_states.json. Out: made.npy (records) or tables.npz
# (shares of pairs); the last line of the output says CPU seconds and versions.
_BEGIN = """
import itertools, json, sys, time
from importlib.metadata import version
import numpy as np, pandas as pd
method, seed, epsilon, delta, folder, code = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), *sys.argv[5:7]
table = pd.DataFrame(np.load(folder + "/codes.npy"))
table.columns = [str(column) for column in table.columns]
domain = dict(zip(table.columns, json.load(open(folder + "/n_states.json"))))
np.random.seed(seed)
"""
_END = """
print(json.dumps([time.process_time() - start, {name: version(name) for name in packages}]))
"""
_DPMM = """
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM
from dpmm.models.priv_bayes import PrivBayesGM
packages = "dpmm", "numpy", "pandas", "scipy", "scikit-learn"
start = time.process_time()
kind = {"aim": AIMGM, "mst": MSTGM, "privbayes": PrivBayesGM}[method]
model = kind(epsilon=epsilon, delta=delta, domain=domain, random_state=np.random.RandomState(seed), n_jobs=1)
model.fit(table)
made = model.generate(n_records=len(table))
np.save(folder + "/made.npy", made[table.columns].to_numpy().astype(np.uint16))
"""
_PRIVATE_PGM = """
sys.path[:0] = [code + "/mechanisms", code + "/src"]
from aim import AIM
from mbi import Dataset, Domain
packages = "jax", "numpy", "scipy"
start = time.process_time()
data = Dataset(table.to_dict("list"), Domain.fromdict(domain))
workload = [(pair, 1.0) for pair in itertools.combinations(domain, 2)]
_, made = AIM(epsilon, delta, prng=np.random).run(data, workload, num_synth_rows=len(table))
made = pd.DataFrame(made.to_dict())
np.save(folder + "/made.npy", made[table.columns].to_numpy().astype(np.uint16))
"""
_RESIDUALS = """
sys.path.insert(0, code + "/src")
import torch
from rem.algebra import MarginalWorkload, VStack
from rem.cdp2adp import cdp_rho
from rem.dataset import Dataset
from rem.domain import Domain
from rem.mechanism import residualPlanner
from rem.reconstruction import gremLNN, gremMLE
packages = "torch", "numpy", "scipy"
torch.manual_seed(seed)
torch.set_num_threads(1)
start = time.process_time()
data = Dataset(df=table, domain=Domain.fromdict(domain))
pairs = list(itertools.combinations(domain, 2))
measured = residualPlanner(data=data, target_marginals=pairs, rho=cdp_rho(epsilon, delta))
given = dict(residuals=measured.residuals, res_answers=measured.z, res_sigmas=measured.z_sigmas)
wanted = VStack([MarginalWorkload(pair, data.domain) for pair in pairs])
if method == "grem-lnn":
    model = gremLNN(target_marginals=wanted, **given)
    model.solve(t=0.01)
    answers = model.getMarginals()
else:
    answers = gremMLE(target_marginals=wanted, **given).getMarginals(postprocessing="trunc+rescale")
shares = {f"{a},{c}": np.maximum(np.asarray(x, dtype=float), 0).ravel() for (a, c), x in zip(pairs, answers)}
np.savez(folder + "/tables.npz", **{pair: x / x.sum() for pair, x in shares.items()})
"""


@dataclass(frozen=True)
class Peer:
    """A program of others.

    Attributes:
        environment: its name in the cache.
        requirements: what pip installs there.
        program: the text that runs there.
        code: a repository that is cloned beside it, and its commit.
    """

    environment: str
    requirements: tuple[str, ...]
    program: str
    code: tuple[str, str] | None = None


_OF_DPMM = Peer("dpmm", ("dpmm==0.1.9",), _DPMM)
_OF_MBI = Peer(
    "mbi",
    ("mbi==2.0.0", "pandas", "matplotlib"),
    _PRIVATE_PGM,
    ("https://github.com/ryan112358/mbi", "361705d7f05f8c0ac4d5b3640e688eb4f692346e"),
)
_OF_REM = Peer(
    "rem",
    ("torch", "linear_operator", "tqdm", "pandas", "scipy"),
    _RESIDUALS,
    ("https://github.com/bcmullins/efficient-marginal-reconstruction", "ab6375f5b132b65fdc8e21665508ff5b6b36ca3a"),
)
PEERS = {
    "aim": _OF_DPMM,
    "mst": _OF_DPMM,
    "privbayes": _OF_DPMM,
    "private-pgm-aim": _OF_MBI,
    "residual-planner": _OF_REM,
    "grem-lnn": _OF_REM,
}


def cloned(code: tuple[str, str] | None) -> str:
    """The folder of published code, which is cloned where it is not there; empty where there is none to clone."""
    if code is None:
        return ""
    address, commit = code
    folder = cache_folder() / f"{address.rsplit('/', 1)[1]}-{commit[:12]}"
    if not folder.is_dir():
        subprocess.run(["git", "clone", "--quiet", address, str(folder)], check=True)
        subprocess.run(["git", "-C", str(folder), "checkout", "--quiet", commit], check=True)
    return str(folder)


def run(method: str, data: Data, truth: Truth, epsilon: float, seed: int, minutes: float) -> dict[str, Any]:
    """The figures of one run, or in `ended` why there are none."""
    peer = PEERS[method]
    python, code = interpreter(peer.environment, *peer.requirements), cloned(peer.code)
    limit = round(60 * minutes)
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/codes.npy", np.column_stack(data.columns).astype(np.int64))
        Path(folder, "n_states.json").write_text(json.dumps(data.schema.n_states), encoding="utf-8")
        program = _BEGIN + peer.program + _END
        arguments = [method, str(seed), str(epsilon), str(DELTA), folder, code]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        threads["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        done = subprocess.run(
            [str(python), "-W", "ignore", "-c", program, *arguments],
            capture_output=True,
            env={**os.environ, **threads},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)),
            check=False,
        )
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return {"ended": f"did not end in {minutes:g} CPU minutes"}
        if done.returncode:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            return {"ended": f"failed: {''.join(last)[:200]}"}
        seconds, versions = json.loads(done.stdout.splitlines()[-1])
        three = None
        if Path(folder, "made.npy").exists():
            two, three = truth.to_records(list(np.load(f"{folder}/made.npy").T))
        else:
            with np.load(f"{folder}/tables.npz") as tables:
                pairs = {(int(a), int(c)): tables[f"{a},{c}"] for a, c in (key.split(",") for key in tables.files)}
            two = float(np.mean([0.5 * np.abs(truth.tables[pair] - own).sum() for pair, own in pairs.items()]))
    found = {"two_way": round(two, 5), "three_way": None if three is None else round(three, 5)}
    return {"ended": "yes", **found, "cpu_seconds": round(seconds, 1), "versions": versions}


def stored() -> list[dict[str, Any]]:
    """The runs that are written down."""
    runs: list[dict[str, Any]] = json.loads(WRITTEN.read_text(encoding="utf-8"))["runs"] if WRITTEN.exists() else []
    return runs


def place(one: dict[str, Any]) -> tuple[str, float, str, int]:
    """What a run is of; a later one takes the place of an earlier one."""
    return one["data"], one["epsilon"], one["method"], one["seed"]


def keep(one: dict[str, Any]) -> None:
    """Write down one run."""
    others = [other for other in stored() if place(other) != place(one)]
    found = {
        "privacy": {"relation": "add-remove", "delta": DELTA},
        "data": "tables of joint_dense.TABLES, cut by joint_data",
        "runs": sorted([*others, one], key=place),
    }
    WRITTEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def markdown(runs: list[dict[str, Any]]) -> str:
    """The runs as a table: mean and standard error of the seeds."""
    lines = ["| data, total ε | method | pairs | triples | CPU s | runs |", "|---|---|---|---|---|---|"]
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for one in sorted(runs, key=place):
        groups.setdefault(place(one)[:3], []).append(one)
    for (name, epsilon, method), group in groups.items():
        ended = [one for one in group if one["ended"] == "yes"]
        if not ended:
            lines.append(f"| {name}, {epsilon:g} | {method} | {group[0]['ended']} | | | {len(group)} |")
            continue
        two, three = ([one[key] for one in ended if one[key] is not None] for key in ("two_way", "three_way"))
        seconds = sum(one["cpu_seconds"] for one in ended) / len(ended)
        distances = " | ".join(mean_error(values) if values else "-" for values in (two, three))
        lines.append(f"| {name}, {epsilon:g} | {method} | {distances} | {seconds:.0f} | {len(ended)} of {len(group)} |")
    return "\n".join(lines)


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--data", nargs="*", default=["adult"], choices=list(TABLES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="CPU minutes after which a run is stopped")
    parser.add_argument("--table", action="store_true", help="print what is written down as a table, no more")
    options = parser.parse_args()
    for name in [] if options.table else options.data:
        data = TABLES[name][0]()
        truth = Truth(data.schema.n_states, data.columns)
        for epsilon in options.epsilons:
            for method in options.methods:
                for seed in range(1, options.seeds + 1):
                    found = run(method, data, truth, epsilon, seed, options.minutes)
                    print(f"{name} {epsilon:g} {method} seed {seed}: {found}", flush=True)
                    day = dt.datetime.now(dt.UTC).date().isoformat()
                    keep({"data": name, "epsilon": epsilon, "method": method, "seed": seed, **found, "date": day})
    print(markdown(stored()))


if __name__ == "__main__":
    main()

"""Structures of a wide table, one search after the other, each in a process of its own: CPU seconds, peak memory, skeleton F1.

``python tests/bench/wide_structure.py [--copies 18] [--records 5000] [--epsilon E] [--only NAME]``

The table has 18 renamed copies of Hailfinder (56 variables each), chained: the last variable of a copy has one arrow to the first
root of the next one, which takes its state with probability 1/2 and is drawn as in Hailfinder otherwise. Four parties have as
many columns each. ``learn`` is the door that the miner's worker goes through; nothing of it is left out. ``--epsilon E``
randomizes every column by a symmetric matrix (told for information, without bounds of F1).

``--write FOLDER`` writes study.toml and the parties' tables instead, for ``verticil simulate``.

Exits with 1 where a bound is missed: memory of the process that counts and scores all pairs 1 GiB; F1 of ``order`` and
``tree`` .5; every other search ends, or stops at a limit that it names within `MOST_BEFORE_STOPPING`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_structures import Bif, Codes, randomized, read_bif, right_edges

from support.documents import study_toml
from verticil.shared.core.errors import VerticilError
from verticil.shared.study.reading import read_study

HAILFINDER = Path(__file__).parents[1] / "data" / "networks" / "hailfinder.bif"
PARTIES = ("north", "east", "south", "west")
SEARCHES = ("pairs", "order", "tree", "genetic", "greedy", "hill-climb", "auto")
LEAST_F1 = {"order": 0.5, "tree": 0.5}
MOST_PAIR_BYTES = 2**30
MOST_BEFORE_STOPPING = 30.0
"""CPU seconds until a search that is too large for the table has said so; the other searches take about as long or longer."""
COPIED = 0.5
"""How much the first root of a copy depends on the last variable of the copy before."""


def chained(copies: int) -> Bif:
    """The copies, chained by one arrow each."""
    one = read_bif(HAILFINDER)
    d = len(one.names)
    root = next(v for v in range(d) if not one.parents[v])
    names: list[str] = []
    parents: list[tuple[int, ...]] = []
    tables = []
    for copy in range(copies):
        names += [f"{name}_{copy + 1}" for name in one.names]
        for v in range(d):
            given, table = tuple(copy * d + p for p in one.parents[v]), one.tables[v]
            if copy and v == root:
                given = (copy * d - 1,)
                rows, columns = one.n_states[-1], one.n_states[root]
                taken = np.eye(columns)[np.arange(rows) % columns]
                table = COPIED * taken + (1 - COPIED) * one.tables[root]
            parents.append(given)
            tables.append(table)
    return Bif(names=tuple(names), n_states=one.n_states * copies, parents=tuple(parents), tables=tuple(tables))


def study_text(network: Bif, method: str, epsilon: float | None) -> str:
    """A study of four parties' columns."""
    d = len(network.names)
    columns = [
        f"{PARTIES[v * len(PARTIES) // d]}.{name}: {' '.join(f's{k}' for k in range(states))}"
        for v, (name, states) in enumerate(zip(network.names, network.n_states, strict=True))
    ]
    text = study_toml(*columns, name="wide", minimum=100, epsilon=epsilon)
    if epsilon is None:
        text += '[randomization_default]\nscheme = "none"\n'
    structure = f'[structure]\nmethod = "{method}"\nmax_parents = 2\nseed = 1\n'
    return f'{text}{structure}[release]\nsynthetic_records = 5000\nsample_from = "network"\n'


def write(folder: Path, network: Bif, columns: Codes, method: str, epsilon: float | None) -> None:
    """The study and a table of each party."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(study_text(network, method, epsilon))
    d, n = len(network.names), len(columns[0])
    labels = np.array([f"s{k}" for k in range(max(network.n_states))])
    for number, party in enumerate(PARTIES):
        own = [v for v in range(d) if v * len(PARTIES) // d == number]
        rows = np.column_stack([[f"person{i}" for i in range(n)], *(labels[columns[v]] for v in own)])
        lines = [",".join(["id", *(network.names[v] for v in own)]), *(",".join(row) for row in rows)]
        (folder / f"{party}.csv").write_text("\n".join(lines) + "\n")


def one(search: str, copies: int, records: int, epsilon: float | None, folder: Path) -> dict[str, object]:
    """One search, or ``pairs``: the scores of all pairs alone."""
    network = chained(copies)
    columns = network.sample(records, np.random.default_rng(1))
    path = folder / "study.toml"
    path.write_text(study_text(network, "tree" if search == "pairs" else search, epsilon))

    def work() -> object:
        study = read_study(path)
        released = columns if epsilon is None else randomized(columns, study, np.random.default_rng(2))
        if search == "pairs":
            from verticil.miner.learning.scoring.scores import pair_scores

            units = [study.column_unit(index) for index in range(len(study.units))]
            return pair_scores(released, units, study.schema.n_states)
        from verticil.miner.learning.learn import learn

        return learn(released, study)

    told: dict[str, object] = {"search": search}
    start = time.process_time()
    try:
        answer: object = work()
    except VerticilError as error:
        answer, told["stopped"] = None, str(error)
    told["cpu"] = time.process_time() - start
    told["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    from verticil.miner.learning.learn import LearnResult

    if isinstance(answer, LearnResult):
        told["edges"] = len(answer.network.dag.edges())
        told["f1"] = right_edges(answer.network.dag, network.edges())
    return told


def reported(name: str, options: argparse.Namespace) -> dict[str, object]:
    """One search in a process of its own."""
    command = [sys.executable, __file__, "--search", name, "--copies", str(options.copies)]
    command += ["--records", str(options.records)]
    command += [] if options.epsilon is None else ["--epsilon", str(options.epsilon)]
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}  # as the miner's worker has it
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return {"search": name, "broke": done.stderr.strip().splitlines()[-1] if done.stderr else str(done.returncode)}
    told: dict[str, object] = json.loads(done.stdout)
    return told


def outcome(told: dict[str, object], epsilon: float | None) -> str:
    """``met``, ``MISSED`` or ``-`` where nothing is asked."""
    name = str(told["search"])
    if "broke" in told:
        return "MISSED"
    if "stopped" in told:
        return "met" if name not in LEAST_F1 and float(str(told["cpu"])) <= MOST_BEFORE_STOPPING else "MISSED"
    if name == "pairs":
        return "met" if float(str(told["peak"])) * 2**20 <= MOST_PAIR_BYTES else "MISSED"
    if name in LEAST_F1 and epsilon is None:
        return "met" if float(str(told["f1"])) >= LEAST_F1[name] else "MISSED"
    return "met"


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--copies", type=int, default=18)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--only", choices=SEARCHES, action="append")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("--method", choices=SEARCHES[1:], default="order", help="of the study that --write makes")
    parser.add_argument("--search", choices=SEARCHES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        network = chained(options.copies)
        columns = network.sample(options.records, np.random.default_rng(1))
        write(options.write, network, columns, options.method, options.epsilon)
        return 0
    if options.search:
        with tempfile.TemporaryDirectory() as folder:
            told = one(options.search, options.copies, options.records, options.epsilon, Path(folder))
        print(json.dumps(told))
        return 0
    missed = False
    for name in options.only or SEARCHES:
        told = reported(name, options)
        missed |= (met := outcome(told, options.epsilon)) == "MISSED"
        figures = f"{told['cpu']:6.1f} CPU s {told['peak']:6.0f} MiB" if "cpu" in told else "broke off"
        f1 = f"  {told['edges']} edges, skeleton F1 {told['f1']:.3f}" if "f1" in told else ""
        said = f"  {told.get('stopped', told.get('broke', ''))}"
        print(f"{name:<11}{figures}{f1}  {met}{said.rstrip()}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Against DataSynthesizer 0.1.13: greedy, k = 2, Adult, 13 columns, no privacy noise.

It runs in an environment of its own: ``run.py --datasynthesizer`` makes one in the user's cache by ``python -m venv``
and ``pip install DataSynthesizer==0.1.13``, ``--datasynthesizer-python`` names one; without either these figures are not run.

Description: from a loaded table of texts (theirs: as pandas reads it) to parameters; reading, imports and the first compilation
excluded. Theirs takes 150 to 1,500 CPU seconds, by the versions under it; it is broken off after ``--datasynthesizer-cap`` of
them, and no sooner than the bound is decided: then its time and the ratio are lower bounds. Generation: as many records to arrays
in memory, ours codes, theirs a table of values, both from the network that our search finds: theirs is told it, so that its own
search need not come to an end. Both have the same columns; ours has its own ranges of numbers, at most 20 as theirs.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from figure import Figure, cpu_seconds, not_run
from other_environment import interpreter

from verticil.experiments.hittmeir import datasets
from verticil.experiments.hittmeir.synthesizer import Method, Recipe, describe, generate, warm_up
from verticil.shared.numerics.model.network import Network

VERSION = "0.1.13"
CAP = 300.0
FIGURES = (
    ("texts to parameters, Adult 32,561 x 13, greedy k=2", 1_000),
    ("parameters to records, Adult 32,561 x 13, greedy k=2", 100),
)

# Runs in the other environment; the table is there before the clock starts.
THEIRS = """
import json, os, sys
from importlib.metadata import version
import pandas as pd
from DataSynthesizer import DataDescriber as module
from DataSynthesizer.DataGenerator import DataGenerator

path, task = sys.argv[1:]
texts = dict.fromkeys(json.load(open(path + ".texts")), True)

def cpu():
    times = os.times()  # the search works in processes of its own, which are waited for
    return times.user + times.system + times.children_user + times.children_system

class Loaded(module.DataDescriber):
    def read_dataset_from_csv(self, file_name=None):
        self.df_input = table.copy()

table = pd.read_csv(path, skipinitialspace=True)
if task == "generate":
    network = [(child, parents) for child, parents in json.load(open(path + ".network"))]
    module.greedy_bayes = lambda *_, **__: network
describer = Loaded(category_threshold=20)
start = cpu()
describer.describe_dataset_in_correlated_attribute_mode(
    path, k=2, epsilon=0, attribute_to_is_categorical=texts, seed=1)
seconds = cpu() - start
if task == "generate":
    describer.save_dataset_description_to_file(path + ".description")
    generator = DataGenerator()
    start = cpu()
    generator.generate_dataset_in_correlated_attribute_mode(len(table), path + ".description", seed=1)
    seconds = cpu() - start
print(json.dumps([seconds, {name: version(name) for name in ("pandas", "numpy", "scikit-learn")}]))
"""


@dataclass(frozen=True, kw_only=True)
class Theirs:
    """CPU seconds of one task; of a task that was broken off those until then."""

    seconds: float
    finished: bool
    versions: str = ""


def environment(asked: str) -> Path:
    """The interpreter of the other environment; ``make`` makes it where it is not there."""
    return interpreter("datasynthesizer", f"DataSynthesizer=={VERSION}") if asked == "make" else Path(asked)


def theirs(python: Path, table: Path, task: str, cap: float) -> Theirs:
    """One task of theirs, broken off after `cap` CPU seconds."""
    with tempfile.TemporaryFile() as output:
        run = subprocess.Popen(
            [str(python), "-W", "ignore", "-c", THEIRS, str(table), task],
            stdout=output,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        try:
            while run.poll() is None:
                if (seconds := _session_seconds(run.pid)) > cap:
                    return Theirs(seconds=seconds, finished=False)
                time.sleep(1)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        if run.returncode:
            raise RuntimeError(f"DataSynthesizer ended with exit code {run.returncode}")
        output.seek(0)
        seconds, versions = json.loads(output.read().splitlines()[-1])
    return Theirs(
        seconds=seconds, finished=True, versions=", ".join(f"{name} {number}" for name, number in versions.items())
    )


def _session_seconds(session: int) -> float:
    """CPU seconds of all processes of a session and of those that they waited for; 0 where there is no /proc."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # has just ended
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def write_table(data: datasets.DataSet, network: Network, table: Path) -> None:
    """What they read: the records, the names of the columns of texts, and the network in the order of its search."""
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(data.train)
        writer.writerows(zip(*data.train.values(), strict=True))
    names, parents = network.schema.names, network.dag.parents
    texts = [variable.name for variable in data.fine.variables if variable.bins is None]
    families = [(names[v], [names[p] for p in parents[v]]) for v in network.dag.topological_order() if parents[v]]
    for suffix, content in (("texts", texts), ("network", families)):
        table.with_name(f"{table.name}.{suffix}").write_text(json.dumps(content), encoding="utf-8")


def figures() -> list[Figure]:
    """Both in the same run; ours the best of five, theirs once."""
    asked = os.environ.get("VERTICIL_DATASYNTHESIZER")
    if asked is None:
        why = "needs an environment with DataSynthesizer: --datasynthesizer or --datasynthesizer-python PATH"
        return [
            not_run(f"DataSynthesizer: {what}", target=f">= {times:,} times", unit="CPU s", why=why)
            for what, times in FIGURES
        ]
    data = datasets.adult()
    recipe = Recipe(method=Method.greedy, k=2)
    warm_up()

    def description() -> Network:
        return describe(datasets.encoded(data.fine, data.train), data.fine, recipe, seed=1).network

    network = description()
    described = cpu_seconds(description, repeats=5)
    generated = cpu_seconds(lambda: generate(network, data.n_records, seed=1), repeats=5)
    python = environment(asked)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "adult.csv"
        write_table(data, network, table)
        generation = theirs(python, table, "generate", float("inf"))
        cap = float(os.environ.get("VERTICIL_DATASYNTHESIZER_CAP", CAP))
        searched = theirs(python, table, "describe", max(cap, 1.1 * FIGURES[0][1] * described))
    measured = ((described, searched), (generated, generation))
    return [
        Figure(
            name=f"DataSynthesizer: {what}",
            ours=mine,
            reference=other.seconds,
            ratio=other.seconds / mine,
            target=f">= {times:,} times",
            met=other.seconds >= times * mine,
            at_least=not other.finished,
            note=f"DataSynthesizer {VERSION}, {generation.versions}, one run"
            + ("" if other.finished else ", broken off: its time and the ratio are lower bounds"),
        )
        for (what, times), (mine, other) in zip(FIGURES, measured, strict=True)
    ]

"""Against DataSynthesizer 0.1.13: greedy, k = 2, Adult, 13 columns, no privacy noise.

``python tests/bench/run.py --only datasynthesizer`` (about 150 CPU seconds) makes an environment for it on first use, by
``python -m venv ~/.cache/verticil-bench/datasynthesizer`` and ``pip install DataSynthesizer==0.1.13`` there; another one is taken
where VERTICIL_DATASYNTHESIZER names its folder.

Description: from a loaded table of texts (theirs: as pandas reads it) to parameters; reading, imports and the first compilation
excluded. Generation: as many records to arrays in memory, ours codes, theirs a table of values. Both have the same columns;
ours has its own ranges of numbers, at most 20 as theirs.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from figure import Figure, cpu_seconds

from verticil.experiments.hittmeir import datasets
from verticil.experiments.hittmeir.synthesizer import Method, Recipe, describe, generate, warm_up

VERSION = "0.1.13"

# Runs in the other environment; the table is there before the clock starts.
THEIRS = """
import json, os, sys
import pandas as pd
from DataSynthesizer.DataDescriber import DataDescriber
from DataSynthesizer.DataGenerator import DataGenerator

path, description = sys.argv[1:]
texts = dict.fromkeys(json.load(open(path + ".json")), True)

def cpu():
    times = os.times()  # the search works in processes of its own, which are waited for
    return times.user + times.system + times.children_user + times.children_system

class Loaded(DataDescriber):
    def read_dataset_from_csv(self, file_name=None):
        self.df_input = table.copy()

table = pd.read_csv(path, skipinitialspace=True)
describer = Loaded(category_threshold=20)
start = cpu()
describer.describe_dataset_in_correlated_attribute_mode(
    path, k=2, epsilon=0, attribute_to_is_categorical=texts, seed=1)
described = cpu() - start
describer.save_dataset_description_to_file(description)
generator = DataGenerator()
start = cpu()
generator.generate_dataset_in_correlated_attribute_mode(len(table), description, seed=1)
generated = cpu() - start
print(json.dumps([described, generated]))
"""


def environment() -> Path:
    """The interpreter of the other environment, made when it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))
    folder = Path(os.environ.get("VERTICIL_DATASYNTHESIZER", str(cache / "verticil-bench" / "datasynthesizer")))
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", f"DataSynthesizer=={VERSION}"], check=True)
    return python


def theirs(data: datasets.DataSet) -> tuple[float, float]:
    """CPU seconds of their description and generation."""
    python = environment()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "adult.csv"
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(data.train)
            writer.writerows(zip(*data.train.values(), strict=True))
        categories = [variable.name for variable in data.fine.variables if variable.bins is None]
        table.with_suffix(".csv.json").write_text(json.dumps(categories), encoding="utf-8")
        run = subprocess.run(
            [str(python), "-W", "ignore", "-c", THEIRS, str(table), str(Path(folder) / "description.json")],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    described, generated = json.loads(run.stdout.splitlines()[-1])
    return described, generated


def figures() -> list[Figure]:
    """Both in the same run; ours the best of five, theirs once."""
    data = datasets.adult()
    n = data.n_records
    recipe = Recipe(method=Method.greedy, k=2)
    warm_up()

    def ours() -> None:
        describe(datasets.encoded(data.fine, data.train), data.fine, recipe, seed=1)

    ours()
    network = describe(datasets.encoded(data.fine, data.train), data.fine, recipe, seed=1).network
    described, generated = (
        cpu_seconds(ours, repeats=5),
        cpu_seconds(lambda: generate(network, n, seed=1), repeats=5),
    )
    their_description, their_generation = theirs(data)
    return [
        Figure(
            name=f"{what}, Adult {n:,} x {len(data.fine)}, greedy k=2",
            ours=mine,
            reference=reference,
            ratio=reference / mine,
            target=f">= {times:,} times",
            unit="CPU s",
            met=reference >= times * mine,
            note=f"DataSynthesizer {VERSION}, {words}",
        )
        for what, mine, reference, times, words in (
            ("texts to parameters", described, their_description, 1_000, "one run"),
            ("parameters to records", generated, their_generation, 100, "one run; theirs are decoded, ours codes"),
        )
    ]

"""Wide tables through the miner's own learning: ``python tests/bench/wide_joint.py [--data people] [--columns 300]``.

100,000 people of 300 columns, made of parts (`DATA`), learned as the miner does (`verticil.miner.learning`), each column
randomized (epsilon 3), as it is, or with noise on the tables of all pairs (epsilon 1, delta 1e-9 together); the structure by
`--method`. The joint model is estimated, and then what a study gets that leaves open where its records come from: the joint model
or the network, for wide tables the one that `learning.blend` estimates to be nearer (`--alone`: not that).

Printed are CPU seconds and the most memory of the process that learned, and the mean total variation distance to the people's
tables, of pairs and of 300 triples, of as many records of the joint model, of the network, and of that `default`, beside
independent columns with the shares that the same measurements give. Each cell has a process of its own.

Bounds: `MEMORY` GiB, as for any table of up to 4,000 categories in all. `SECONDS` for the study with a joint model: 60 CPU
seconds are asked for the pairs of 100 columns, and 300 have nine times as many; the default makes three estimates more, in so
many times that. The default is in pairs at most `SLACK` times as far as the better of joint model and network. Ends with 1 where
one is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import joint_data
import numpy as np
from joint import DELTA, channels_of, drawn, from_network, independent, noised, note_of, released, sigma_for, study_of
from joint_data import Data, Truth

from verticil.experiments.hittmeir.synthesizer import warm_up
from verticil.miner.learning.blend import blended
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.learn import learn
from verticil.miner.learning.measured import counted_tables
from verticil.shared.joint.count import from_columns
from verticil.shared.joint.prediction import predict
from verticil.shared.study.document import ReleaseRule, StructureRule, TablesRule

MEMORY = 2.0
SECONDS = 60.0 * math.comb(300, 2) / math.comb(100, 2)
SLACK = 1.03
LEVELS = ("3", "none", "tables")
WAYS = ("joint", "network", "default", "independent")


def people(d: int, n: int) -> Data:
    """Blocks of ma2019's 24 columns: in each a person has some person's answers, with probability .7 one's of the age before."""
    base = joint_data.ma2019()
    rows, states = np.stack(base.columns, axis=1), base.schema.n_states
    age = base.schema.index("AGEP")
    alike = [np.flatnonzero(rows[:, age] == group) for group in range(states[age])]
    generator = np.random.default_rng([d, n])
    blocks: list[np.ndarray] = []
    while sum(block.shape[1] for block in blocks) < d:
        chosen = generator.integers(0, len(rows), n)
        if blocks:
            follows = generator.random(n) < 0.7
            for group, members in enumerate(alike):
                who = np.flatnonzero(follows & (blocks[-1][:, age] == group))
                if len(members):
                    chosen[who] = generator.choice(members, len(who))
        blocks.append(rows[chosen])
    return _cut("people", np.concatenate(blocks, axis=1), states * len(blocks), d)


def hailfinder(d: int, n: int) -> Data:
    """Copies of hailfinder; with probability .7 the root of one goes by the last column of the one before."""
    net = joint_data.read_bif(joint_data.TESTS / "data" / "networks" / "hailfinder.bif")
    generator = np.random.default_rng([d, n, 1])
    copies: list[np.ndarray] = []
    root = next(place for place, parents in enumerate(net.parents) if not parents)
    while len(copies) * len(net.n_states) < d:
        copy = np.stack(net.sample(n, generator), axis=1).astype(np.uint16)
        if copies:  # the arrow: who has the same category in the last column gets, mostly, a record with the same root
            before = copies[-1][:, -1] % net.n_states[root]
            order = np.lexsort((generator.random(n), before))
            sorted_copy = copy[np.lexsort((generator.random(n), copy[:, root]))]
            follows = generator.random(n) < 0.7
            arranged = np.empty_like(copy)
            arranged[order] = sorted_copy
            loose = np.flatnonzero(~follows)
            arranged[loose] = arranged[generator.permutation(loose)]
            copy = arranged
        copies.append(copy)
    return _cut("hailfinder", np.concatenate(copies, axis=1), tuple(net.n_states) * len(copies), d)


def chain(d: int, n: int) -> Data:
    """Ten categories each; a column is a copy of one of the five before it with probability .6, as in `joint.py`."""
    generator = np.random.default_rng(d)
    columns = [generator.integers(0, 10, n).astype(np.uint16)]
    for _ in range(1, d):
        before = columns[generator.integers(max(len(columns) - 5, 0), len(columns))]
        columns.append(np.where(generator.random(n) < 0.6, before, generator.integers(0, 10, n)).astype(np.uint16))
    return _cut("chain", np.stack(columns, axis=1), (10,) * d, d)


def _cut(name: str, codes: np.ndarray, states: tuple[int, ...], d: int) -> Data:
    """The first d columns."""
    schema = joint_data.schema_of([f"v{place}" for place in range(d)], states[:d])
    return Data(name=name, schema=schema, columns=[np.ascontiguousarray(codes[:, place]) for place in range(d)])


DATA: dict[str, Callable[[int, int], Data]] = {"people": people, "hailfinder": hailfinder, "chain": chain}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """The figures of a cell: distances by way, in pairs and triples; CPU seconds of the study and of the default; GiB."""

    distances: dict[str, tuple[float, float]]
    share: float
    seconds: float
    of_default: float
    memory: float
    categories: int
    predicted: float
    note: str

    def missed(self) -> list[str]:
        """Which bounds are missed."""
        pairs = {way: figures[0] for way, figures in self.distances.items()}
        found = []
        if self.memory > MEMORY:
            found.append("memory")
        if self.seconds > SECONDS or self.of_default > 3 * SECONDS:
            found.append("CPU seconds")
        if "default" in pairs and pairs["default"] > SLACK * min(pairs["joint"], pairs["network"]):
            found.append("the default")
        return found


def run(name: str, level: str, d: int, n: int, method: str, alone: bool) -> Cell:
    """One cell, in this process."""
    data = DATA[name](d, n)
    n_states = data.schema.n_states
    channels = channels_of(n_states, float(level) if level not in ("none", "tables") else None)
    study = study_of(data, channels)
    study = dataclasses.replace(
        study,
        structure=StructureRule(method=method, score="mutual-information", seed=1),
        release=ReleaseRule(sample_from="joint"),
    )
    columns = [column.astype(np.uint8) for column in released(data.columns, channels, 1)]
    warm_up()
    before = time.process_time()
    if level == "tables":
        study = dataclasses.replace(study, tables=TablesRule(epsilon=1.0, delta=DELTA))
        sigma = sigma_for(1.0, math.comb(d, 2), "replace")
        tables = noised(counted_tables(columns, study), sigma, "replace", 1)
        result = learn_from_tables(tables, study)
    else:
        sigma = 0.0
        tables = None
        result = learn(columns, study)
    seconds = time.process_time() - before
    joint = result.joint
    assert joint is not None
    default = joint
    if tables is None and not alone:
        units = [study.column_unit(place) for place in range(d)]
        tables = from_columns(columns, units, n_states)
    if tables is not None and not alone:
        default = blended(joint, result.network, tables, seed=study.structure.seed)
    of_default = time.process_time() - before - seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    truth = Truth(n_states, data.columns)
    of_joint, of_network = drawn(joint.model, n, 1), from_network(result.network, n, 1)
    records = {"joint": of_joint, "network": of_network}
    if not alone:
        records["default"] = (
            of_network if default.share == 0 else of_joint if default.share == 1 else drawn(default.model, n, 1)
        )
    distances = {way: truth.to_records(made) for way, made in records.items()}
    distances["independent"] = independent(joint, truth, n, 1)
    known = predict(channels, n, sigma=sigma)
    assert known is not None
    return Cell(
        distances=distances, share=default.share, seconds=seconds, of_default=of_default, memory=memory,
        categories=sum(n_states), predicted=known.two_way,
        note=f"{note_of(joint)}, {len(joint.model.weights)} parts, {joint.steps} steps, discrepancy {joint.discrepancy:.3f}",
    )  # fmt: skip


def text(title: str, cell: Cell) -> str:
    """A cell in words."""
    distances = "; ".join(f"{way} {two:.4f} / {three:.4f}" for way, (two, three) in cell.distances.items())
    missed = cell.missed()
    return (
        f"{title}, {cell.categories} categories: {distances}\n    joint model's share {cell.share:.2f}; CPU s {cell.seconds:.0f} "
        f"and {cell.of_default:.0f} for the default; {cell.memory:.2f} GiB; predicted / measured "
        f"{cell.predicted / cell.distances['joint'][0]:.2f}; {cell.note}\n    bounds: "
        + (f"MISSED {', '.join(missed)}" if missed else "met")
    )


def main() -> int:
    """Print the cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--levels", nargs="*", default=list(LEVELS))
    parser.add_argument("--columns", type=int, default=300)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--method", default="tree")
    parser.add_argument("--alone", action="store_true", help="joint model and network only")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # a cell, in this process
    options = parser.parse_args()
    if options.one:
        cell = run(*options.one, options.columns, options.people, options.method, options.alone)
        print(json.dumps(dataclasses.asdict(cell)))
        return 0
    missed = 0
    sizes = ["--columns", str(options.columns), "--people", str(options.people), "--method", options.method]
    sizes += ["--alone"] * options.alone
    for name, level in itertools.product(options.data, options.levels):
        made = subprocess.run(
            [sys.executable, __file__, *sizes, "--one", name, level], stdout=subprocess.PIPE, check=True
        )
        cell = Cell(**json.loads(made.stdout.splitlines()[-1]))
        missed += len(cell.missed())
        print(text(f"{name}, {options.columns} columns, {level}", cell), flush=True)
    print(f"{missed} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

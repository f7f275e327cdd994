"""Wide tables through the miner's own learning: ``python tests/bench/wide_joint.py [--data people] [--columns 300]``.

100,000 people of 300 columns, made of parts (`DATA`), learned as the miner does (`verticil.miner.learning`), each column
randomized (epsilon 3), as it is, or with noise on the tables of all pairs (epsilon 1, delta 1e-9 together); the structure by
`--method`.

Printed are CPU seconds and the most memory of the process that learned, and the mean total variation distance to the people's
tables, of `PAIRS` pairs and 300 triples, of as many records of the joint model and of the network, beside independent columns
with the shares that the same measurements give. Each cell is learned in a process of its own.

Bounds: `MEMORY` GiB, as for any table of up to 4,000 categories in all. `SECONDS` for the study with a joint model: 60 CPU
seconds are asked for the pairs of 100 columns, and 300 have nine times as many. Ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import joint_data
import numpy as np
from joint import DELTA, channels_of, drawn, from_network, independent, noised, note_of, released, sigma_for, study_of
from joint_data import Data, Truth
from numpy.typing import NDArray

from verticil.experiments.hittmeir.synthesizer import warm_up
from verticil.miner.learning.exact_tables import counted_tables
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.learn import learn
from verticil.shared.mechanisms.transition import Transition
from verticil.shared.numerics.joint.estimate import JointEstimate
from verticil.shared.numerics.joint.prediction import predict
from verticil.shared.numerics.model.network import Network
from verticil.shared.study.document import ReleaseRule, StructureRule, TablesRule

MEMORY = 2.0
SECONDS = 60.0 * math.comb(300, 2) / math.comb(100, 2)
PAIRS = 3_000
LEVELS = ("3", "none", "tables")


def people(d: int, n: int) -> Data:
    """Blocks of ma2019's 24 columns: in each a person has some person's answers, with probability .7 one's of the age before."""
    base = joint_data.ma2019()
    rows, states = np.stack(base.columns, axis=1), base.schema.n_states
    age = base.schema.index("AGEP")
    alike = [np.flatnonzero(rows[:, age] == group) for group in range(states[age])]
    generator = np.random.default_rng([d, n])
    blocks: list[NDArray[np.uint16]] = []
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


def copies_of(network: str, d: int, n: int) -> Data:
    """Copies of a network; with probability .7 the root of one goes by the last column of the one before."""
    net = joint_data.read_bif(joint_data.TESTS / "data" / "networks" / f"{network}.bif")
    generator = np.random.default_rng([d, n, 1])
    copies: list[NDArray[np.uint16]] = []
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
    return _cut(network, np.concatenate(copies, axis=1), tuple(net.n_states) * len(copies), d)


def chain(d: int, n: int) -> Data:
    """Ten categories each; a column is a copy of one of the five before it with probability .6, as in `joint.py`."""
    generator = np.random.default_rng(d)
    columns = [generator.integers(0, 10, n).astype(np.uint16)]
    for _ in range(1, d):
        before = columns[generator.integers(max(len(columns) - 5, 0), len(columns))]
        columns.append(np.where(generator.random(n) < 0.6, before, generator.integers(0, 10, n)).astype(np.uint16))
    return _cut("chain", np.stack(columns, axis=1), (10,) * d, d)


def _cut(name: str, codes: NDArray[np.uint16], states: tuple[int, ...], d: int) -> Data:
    """The first d columns."""
    schema = joint_data.schema_of([f"v{place}" for place in range(d)], states[:d])
    return Data(name=name, schema=schema, columns=[np.ascontiguousarray(codes[:, place]) for place in range(d)])


DATA: dict[str, Callable[[int, int], Data]] = {
    "people": people,
    "hailfinder": partial(copies_of, "hailfinder"),
    "alarm": partial(copies_of, "alarm"),
    "chain": chain,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """The figures of a cell: distances by way, in pairs and triples; CPU seconds of the study; GiB."""

    distances: dict[str, tuple[float, float]]
    seconds: float
    memory: float
    categories: int
    predicted: float
    note: str

    def missed(self) -> list[str]:
        """Which bounds are missed."""
        found = []
        if self.memory > MEMORY:
            found.append("memory")
        if self.seconds > SECONDS:
            found.append("CPU seconds")
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learned:
    """What the first process of a cell found."""

    joint: JointEstimate
    network: Network
    seconds: float
    memory: float


def learned(name: str, level: str, options: argparse.Namespace) -> Learned:
    """Learn a cell's study."""
    data = DATA[name](options.columns, options.people)
    study = dataclasses.replace(
        study_of(data, _channels(data, level)),
        structure=StructureRule(method=options.method, score="mutual-information", seed=1),
        release=ReleaseRule(sample_from="joint"),
    )
    columns = [column.astype(np.uint8) for column in released(data.columns, _channels(data, level), 1)]
    warm_up()
    before = time.process_time()
    if level == "tables":
        study = dataclasses.replace(study, tables=TablesRule(epsilon=1.0, delta=DELTA))
        tables = noised(counted_tables(columns, study), _sigma(data, level), "replace", 1)
        result = learn_from_tables(tables, study)
    else:
        result = learn(columns, study)
    seconds = time.process_time() - before
    assert result.joint is not None
    return Learned(
        joint=result.joint,
        network=result.network,
        seconds=seconds,
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )


def measured(name: str, level: str, options: argparse.Namespace, found: Learned) -> Cell:
    """How far records of each kind are from the people."""
    data, n = DATA[name](options.columns, options.people), options.people
    truth = Some(data.schema.n_states, data.columns)
    joint = found.joint
    records = {"joint": drawn(joint.model, n, 1), "network": from_network(found.network, n, 1)}
    distances = {way: truth.to_records(made) for way, made in records.items()}
    distances["independent"] = independent(joint, truth, n, 1)
    known = predict(_channels(data, level), n, sigma=_sigma(data, level))
    assert known is not None
    return Cell(
        distances=distances, seconds=found.seconds, memory=found.memory, categories=sum(data.schema.n_states),
        predicted=known.two_way,
        note=f"{note_of(joint)}, {len(joint.model.weights)} parts, discrepancy {joint.discrepancy:.3f}",
    )  # fmt: skip


def _channels(data: Data, level: str) -> list[Transition]:
    return channels_of(data.schema.n_states, float(level) if level not in ("none", "tables") else None)


def _sigma(data: Data, level: str) -> float:
    return sigma_for(1.0, math.comb(len(data.schema), 2), "replace") if level == "tables" else 0.0


class Some(Truth):
    """The tables of `PAIRS` pairs and of the triples: all pairs of 300 columns would take longer than what is measured."""

    def of(self, columns: Sequence[NDArray[np.generic]]) -> Mapping[tuple[int, ...], NDArray[np.float64]]:
        """The shares of these tables among some records."""
        pairs = list(itertools.combinations(range(len(self.n_states)), 2))
        chosen = np.random.default_rng(2).permutation(len(pairs))[:PAIRS]
        found = {}
        for key in [*(pairs[place] for place in sorted(chosen.tolist())), *self.triples]:
            shape = [self.n_states[variable] for variable in key]
            cells = np.ravel_multi_index([columns[variable].astype(np.intp) for variable in key], shape)
            found[key] = np.bincount(cells, minlength=math.prod(shape)) / len(cells)
        return found


def text(title: str, cell: Cell) -> str:
    """A cell in words."""
    distances = "; ".join(f"{way} {two:.4f} / {three:.4f}" for way, (two, three) in cell.distances.items())
    missed = cell.missed()
    return (
        f"{title}, {cell.categories} categories: {distances}\n    CPU s {cell.seconds:.0f}; {cell.memory:.2f} GiB; "
        f"predicted / measured {cell.predicted / cell.distances['joint'][0]:.2f}; {cell.note}\n    bounds: "
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
    parser.add_argument("--keep", type=Path, help="a folder for what cells learned; what is there is not learned again")
    parser.add_argument("--stop", action="store_true", help="when what is asked for is learned")
    parser.add_argument(
        "--one", nargs=3, help=argparse.SUPPRESS
    )  # a cell, in this process, and the file for what it learned
    options = parser.parse_args()
    if options.one:
        name, level, file = options.one
        Path(file).write_bytes(pickle.dumps(learned(name, level, options)))
        return 0
    missed = 0
    sizes = ["--columns", str(options.columns), "--people", str(options.people), "--method", options.method]
    with tempfile.TemporaryDirectory() as folder:
        for name, level in itertools.product(options.data, options.levels):
            file = (options.keep or Path(folder)) / "-".join([name, level, *sizes[1::2]])
            if not file.exists():
                command = [sys.executable, __file__, *sizes, "--one", name, level, str(file)]
                subprocess.run(command, check=True, env={"OPENBLAS_NUM_THREADS": "1", **os.environ})
            if options.stop:
                continue
            cell = measured(name, level, options, pickle.loads(file.read_bytes()))
            missed += len(cell.missed())
            print(text(f"{name}, {options.columns} columns, {level}", cell), flush=True)
    print(f"{missed} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

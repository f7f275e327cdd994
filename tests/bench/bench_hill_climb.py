"""Hill climbing against pyAgrum's: BIC and CPU seconds at the same categories and limits, on columns that are not randomized.

Ours is the product's way from columns to structure (`search_columns`), the scoring of all pairs in it; theirs is `learnDAG`
alone, on one thread, its table being loaded; what is compiled is compiled before. Theirs has no limit on a family's cells, so
ours is beyond any that occurs. Both structures are scored by one function, ours. The bound is theirs by greedy hill climbing,
without a prior; its local search with a tabu list stands in the note: with a limit of two parents it gave networks with three,
which are not compared.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from bench_structures import Codes, adult, read_bif, study_of
from figure import Figure, not_run

from verticil.miner.learning.scoring.scores import FamilyScores
from verticil.miner.learning.selection import SelectedStructure, search_columns
from verticil.miner.learning.structure import Search
from verticil.shared.mechanisms.transition import identity, quantize

DATA: Final = Path(__file__).parents[1] / "data"
NETWORKS: Final = ("asia", "cancer", "earthquake", "survey", "sachs", "child", "insurance", "alarm", "hailfinder")
NUMBERS: Final = {
    "ma2019": ("AGEP", "DENSITY", "INDP", "PINCP", "POVPIP", "PWGTP", "WGTP"),
    "diabetes": ("BMI", "MentHlth", "PhysHlth"),
}
SEEDS, RECORDS, BINS = range(3), 50_000, 10
MAX_PARENTS: Final = (2, 3)
EQUAL, MUCH = 1e-9, 1.0

Parents = Sequence[tuple[int, ...]]


def survey(name: str) -> tuple[tuple[int, ...], Codes]:
    """A table of tests/data; numbers in ranges of about as many records, what is no number a category of its own."""
    columns, n_states = [], []
    for column, texts in pd.read_csv(DATA / f"{name}.csv.gz", dtype=str).items():
        values: np.ndarray = texts.to_numpy()
        if column in NUMBERS[name]:
            numbers = pd.to_numeric(texts, errors="coerce").to_numpy()
            edges = np.unique(np.nanquantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1]))
            values = np.where(np.isnan(numbers), -1, np.searchsorted(edges, numbers, side="right"))
        labels, codes = np.unique(values, return_inverse=True)
        columns.append(codes.astype(np.uint8))
        n_states.append(len(labels))
    return tuple(n_states), columns


def cases() -> Iterator[tuple[str, list[tuple[tuple[int, ...], Codes]]]]:
    """Names of the data, and the tables that are called so: of a network one for each seed."""
    _, n_states, columns = adult()
    yield f"Adult, {len(columns)} columns", [(n_states, columns)]
    for name in NUMBERS:
        yield name, [survey(name)]
    for name in NETWORKS:
        network = read_bif(DATA / "networks" / f"{name}.bif")
        yield name, [(network.n_states, network.sample(RECORDS, np.random.default_rng(seed))) for seed in SEEDS]


def ours(n_states: Sequence[int], columns: Codes, max_parents: int) -> tuple[SelectedStructure, float]:
    """What the product finds, and its CPU seconds."""
    names = [f"v{v}" for v in range(len(columns))]
    study = study_of(names, n_states, 1.0, Search(method="hill-climb", score="bic"), "synthesis")
    study = dataclasses.replace(
        study,
        units=tuple(
            dataclasses.replace(unit, scheme="none", transition=quantize(identity(k)))
            for unit, k in zip(study.units, n_states, strict=True)
        ),
        structure=dataclasses.replace(study.structure, max_parents=max_parents, max_family_cells=2**26),
    )
    start = time.process_time()
    found = search_columns(columns, study, progress=lambda _stage, _percent: None)
    return found, time.process_time() - start


def theirs(n_states: Sequence[int], columns: Codes, max_parents: int, *, tabu: bool) -> tuple[Parents, float]:
    """The parents that pyAgrum finds, and its CPU seconds."""
    import pyagrum

    network = pyagrum.BayesNet()
    for v, k in enumerate(n_states):
        network.add(pyagrum.LabelizedVariable(f"v{v}", "", [str(code) for code in range(k)]))
    table = pd.DataFrame({f"v{v}": column.astype(str) for v, column in enumerate(columns)})
    learner = pyagrum.BNLearner(table, network)
    learner.setNumberOfThreads(1)
    learner.useScoreBIC().useNoPrior().setMaxIndegree(max_parents)
    if tabu:
        learner.useLocalSearchWithTabuList()
    else:
        learner.useGreedyHillClimbing()
    start = time.process_time()
    dag = learner.learnDAG()
    seconds = time.process_time() - start
    return [tuple(sorted(dag.parents(v))) for v in range(len(columns))], seconds


def bic(found: SelectedStructure, parents: Parents) -> float:
    """Of a structure in all records, nats."""
    scores = FamilyScores(found.tables)
    return sum(scores.bic(child, family) for child, family in enumerate(parents))


def figures() -> list[Figure]:
    """How far ours is above theirs, the worst of the seeds; CPU seconds where theirs needs much."""
    try:
        import pyagrum
    except ImportError:
        return [not_run("hill climbing against pyAgrum", target=f">= -{EQUAL:g}", unit="share", why="no pyAgrum here")]
    result: list[Figure] = []
    warm = True
    for name, tables in cases():
        for max_parents in MAX_PARENTS:
            above, seconds, tabus = [], [], []
            for n_states, columns in tables:
                if warm:
                    ours((2,) * 60, [(np.arange(RECORDS) % 2).astype(np.uint8)] * 60, 2)
                    warm = False
                found, our_seconds = ours(n_states, columns, max_parents)
                parents, their_seconds = theirs(n_states, columns, max_parents, tabu=False)
                by_tabu, _ = theirs(n_states, columns, max_parents, tabu=True)
                our_bic, their_bic = bic(found, found.result.dag.parents), bic(found, parents)
                above.append((our_bic - their_bic) / abs(their_bic))
                seconds.append((our_seconds, their_seconds))
                within = max(map(len, by_tabu)) <= max_parents
                tabus.append(
                    f"{(our_bic - bic(found, by_tabu)) / abs(their_bic):.1e}" if within else "beyond the limit"
                )
            where = f"{name}, {max_parents} parents"
            result.append(
                Figure(
                    name=f"{where}: BIC above pyAgrum's", ours=min(above), target=f">= -{EQUAL:g}", unit="share",
                    met=min(above) >= -EQUAL, note=f"pyAgrum {pyagrum.__version__}; above its tabu list: {', '.join(tabus)}",
                )
            )  # fmt: skip
            our_seconds, their_seconds = (sum(each) / len(seconds) for each in zip(*seconds, strict=True))
            slowest = max(seconds, key=lambda pair: pair[0] / pair[1])
            much = [pair for pair in seconds if pair[1] > MUCH]
            result.append(
                Figure(
                    name=f"{where}: mean time", ours=our_seconds, reference=their_seconds, ratio=slowest[1] / slowest[0],
                    target="< reference" if much else "-", met=all(a < b for a, b in much) if much else None,
                )
            )  # fmt: skip
    return result

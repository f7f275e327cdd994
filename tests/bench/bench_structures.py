"""Structures from randomized data: right edges on CHILD, and two-way distances on CHILD and Adult; means of five noise seeds.

CHILD is in tests/data; Adult is the one that the paper's experiments ship, both parts of it.
"""

from __future__ import annotations

import datetime as dt
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from figure import Figure
from numpy.typing import NDArray

from verticil.experiments.hittmeir import datasets
from verticil.miner.learning.scoring.counting import all_pair_tables
from verticil.miner.learning.selection import CANDIDATES, SelectedStructure, search_columns
from verticil.miner.learning.structure import Search
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation import estimators, parameters
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import GeneticRule, LinkageRule, ParameterRule, ReleaseRule, StructureRule, Study
from verticil.shared.study.unit import Unit
from verticil.shared.synthesis.synthesis import sample_codes

SEEDS = range(5)
CHILD_RECORDS = 50_000
ADULT_TARGETS = {3.0: 0.034, 2.0: 0.046, 1.0: 0.090}
F1_TARGETS = {3.0: 0.93, 2.0: 0.90}
AUTO = Search(method="auto", score="auto")
BY_STRUCTURE = "structure"

Codes = list[NDArray[np.uint8]]
Edges = set[frozenset[int]]


@dataclass(frozen=True, kw_only=True)
class Bif:
    """A network as a BIF file has it: names, numbers of states, and for each node its parents and (parents.., child) table."""

    names: tuple[str, ...]
    n_states: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[NDArray[np.float64], ...]

    def edges(self) -> Edges:
        return {frozenset((p, c)) for c, parents in enumerate(self.parents) for p in parents}

    def sample(self, n: int, generator: np.random.Generator) -> Codes:
        columns: dict[int, NDArray[np.int64]] = {}
        for child in Dag(parents=tuple(tuple(sorted(p)) for p in self.parents)).topological_order():
            given = tuple(columns[p] for p in self.parents[child])
            shares = np.broadcast_to(self.tables[child][given], (n, self.n_states[child]))
            above = generator.random(n)[:, None] >= shares.cumsum(axis=1)
            columns[child] = np.minimum(above.sum(axis=1), self.n_states[child] - 1)
        return [columns[v].astype(np.uint8) for v in range(len(self.names))]


def read_bif(path: Path) -> Bif:
    """A file of the Bayesian Network Repository."""
    text = path.read_text(encoding="utf-8")
    states = {
        found[1]: [state.strip() for state in found[2].split(",")]
        for found in re.finditer(r"variable\s+(\S+)\s*\{\s*type discrete \[ \d+ \] \{([^}]*)\}", text)
    }
    names = tuple(states)
    parents: dict[str, list[str]] = {}
    tables: dict[str, NDArray[np.float64]] = {}
    for found in re.finditer(r"probability \(\s*(\S+?)(?:\s*\|\s*([^)]*?))?\s*\)\s*\{(.*?)\n\}", text, re.DOTALL):
        child, body = found[1], found[3]
        of_child = [name.strip() for name in found[2].split(",")] if found[2] else []
        table = np.zeros([len(states[name]) for name in (*of_child, child)])
        for given, row in re.findall(r"(?:table|\(([^)]*)\))\s*([^;]*);", body):
            place = tuple(states[p].index(s.strip()) for p, s in zip(of_child, given.split(","), strict=False))
            table[place] = [float(number) for number in row.split(",")]
        parents[child], tables[child] = of_child, table / table.sum(axis=-1, keepdims=True)
    return Bif(
        names=names,
        n_states=tuple(len(states[name]) for name in names),
        parents=tuple(tuple(names.index(p) for p in parents[name]) for name in names),
        tables=tuple(tables[name] for name in names),
    )


def adult() -> tuple[tuple[str, ...], tuple[int, ...], Codes]:
    """Twelve columns of all 48,842 rows, in random order; education by its number, of which each category has one."""
    data = datasets.adult()
    assert data.test is not None
    rows = {name: np.concatenate([data.train[name], data.test[name]]) for name in data.train}

    def cut(name: str, *edges: int) -> NDArray[np.intp]:
        return np.searchsorted(edges, rows[name].astype(np.int64), side="right")

    columns: dict[str, NDArray[np.generic]] = {
        "age": cut("age", 22, 27, 32, 37, 45, 55, 65),
        "hours": cut("hours-per-week", 20, 35, 40, 50),
        "us": rows["native-country"] == "United-States",
        "gain": rows["capital-gain"] != "0",
    }
    for name in ("workclass", "education-num", "marital-status", "occupation", "relationship", "race", "sex", "income"):
        columns[name] = rows[name].astype(str)
    order = np.random.default_rng(0).permutation(len(rows["age"]))
    coded = [np.unique(values, return_inverse=True) for values in columns.values()]
    return (
        tuple(columns),
        tuple(len(labels) for labels, _ in coded),
        [codes[order].astype(np.uint8) for _, codes in coded],
    )


def study_of(names: Sequence[str], n_states: Sequence[int], epsilon: float, search: Search, prefer: str) -> Study:
    """Every column randomized with the same epsilon."""
    variables = tuple(
        Variable(name=name, owner="a", labels=tuple(map(str, range(k))))
        for name, k in zip(names, n_states, strict=True)
    )
    return Study(
        id="bench", title="", purpose="", model="central", expires=dt.date(2099, 1, 1), parties=("a",),
        linkage=LinkageRule(mode="keyed-hash", normalise=(), minimum_common_records=1),
        schema=Schema(variables=variables),
        units=tuple(
            Unit(
                variables=(v.name,), owner="a", scheme="symmetric",
                transition=quantize(symmetric(v.n_states, epsilon=epsilon)),
            )
            for v in variables
        ),
        structure=StructureRule(
            method=search.method, score=search.score, max_parents=2, max_family_cells=20_000, seed=1, required=(),
            forbidden=(), genetic=GeneticRule(), prefer=prefer,
        ),
        parameters=ParameterRule(estimator="em", prior_count=None, interval_level=0.95),
        release=ReleaseRule(synthetic_records=None, seed=1),
    )  # fmt: skip


def randomized(columns: Codes, study: Study, generator: np.random.Generator) -> Codes:
    """Randomized response, by shares."""
    released = []
    for column, unit in zip(columns, study.units, strict=True):
        cumulative = unit.transition.probabilities.cumsum(axis=1)[:, :-1]
        released.append((generator.random(len(column))[:, None] >= cumulative[column]).sum(axis=1).astype(np.uint8))
    return released


def distance(columns: Codes, study: Study, found: SelectedStructure) -> float:
    """Mean total variation distance of the two-way tables of as many synthetic records, parameters as the product has them."""
    families = []
    for child, given in enumerate(found.result.dag.parents):
        observed, design = found.tables.count_family((*given, child))
        families.append(
            parameters.family_parameters(
                observed,
                design,
                child,
                given,
                prior_count=None,
                level=0.95,
                estimator=estimators.ESTIMATORS["em"].estimate,
            )
        )
    network = Network(schema=study.schema, dag=found.result.dag, families=tuple(families))
    n, k = len(columns[0]), study.schema.n_states
    real = all_pair_tables(columns, k)
    made = all_pair_tables(sample_codes(network, n, generator=np.random.default_rng(1)), k)
    return statistics.fmean(
        0.5 * float(np.abs(real.table(*pair) - made.table(*pair)).sum()) / n for pair in real.pairs()
    )


def right_edges(dag: Dag, true: Edges) -> float:
    """F1 of the skeleton."""
    found = {frozenset(edge) for edge in dag.edges()}
    return 2 * len(found & true) / max(len(found) + len(true), 1)


@dataclass(kw_only=True)
class Trial:
    """What one way gave: a list entry for each seed."""

    distances: list[float]
    f1: list[float]
    cpu: list[float]


def trials(
    names: Sequence[str], n_states: Sequence[int], records: Sequence[Codes], epsilon: float, true: Edges
) -> dict[str, Trial]:
    """All candidates, ``auto``, and what it takes when structure is preferred, on every seed."""
    found: dict[str, Trial] = {}

    def note(name: str, measured: tuple[float, float], cpu: float) -> None:
        trial = found.setdefault(name, Trial(distances=[], f1=[], cpu=[]))
        trial.distances.append(measured[0])
        trial.f1.append(measured[1])
        trial.cpu.append(cpu)

    def searched(columns: Codes, search: Search, prefer: str = "synthesis") -> tuple[Study, SelectedStructure, float]:
        study = study_of(names, n_states, epsilon, search, prefer)
        start = time.process_time()
        result = search_columns(columns, study, progress=lambda _stage, _percent: None)
        return study, result, time.process_time() - start

    for seed in SEEDS:
        true_codes = records[seed % len(records)]
        study = study_of(names, n_states, epsilon, AUTO, "synthesis")
        columns = randomized(true_codes, study, np.random.default_rng(1000 + seed))
        measured: dict[Search, tuple[float, float]] = {}
        for search in CANDIDATES:
            study, result, cpu = searched(columns, search)
            measured[search] = distance(true_codes, study, result), right_edges(result.result.dag, true)
            note(search.text, measured[search], cpu)
        for name, prefer in (("auto", "synthesis"), (BY_STRUCTURE, "structure")):
            _, chosen, cpu = searched(columns, AUTO, prefer)
            note(name, measured[chosen.search], cpu)  # a chosen way finds in all records what it finds alone
    return found


def figures() -> Iterator[Figure]:
    """Skeleton F1 and distances."""
    child = read_bif(Path(__file__).parents[1] / "data" / "networks" / "child.bif")
    records = [child.sample(CHILD_RECORDS, np.random.default_rng(seed)) for seed in SEEDS]
    for epsilon, target in F1_TARGETS.items():
        found = trials(child.names, child.n_states, records, epsilon, child.edges())
        yield from _structure_figures(found, f"CHILD, n=50,000, epsilon {epsilon:g}", target)
    names, n_states, columns = adult()
    for epsilon, target in ADULT_TARGETS.items():
        found = trials(names, n_states, [columns], epsilon, set())
        yield from _distance_figures(found, f"Adult, 12 columns, n={len(columns[0]):,}, epsilon {epsilon:g}", target)


def _structure_figures(found: dict[str, Trial], where: str, target: float) -> list[Figure]:
    f1 = {name: statistics.fmean(trial.f1) for name, trial in found.items()}
    best = max((search.text for search in CANDIDATES), key=f1.__getitem__)
    gap = f1[best] - f1[BY_STRUCTURE]
    return [
        Figure(
            name=f"{where}: skeleton F1 of the best method", ours=f1[best], reference=None, ratio=None,
            target=f">= {target}", unit="F1", met=f1[best] >= target,
            note=", ".join(f"{name} {value:.3f}" for name, value in f1.items()),
        ),
        Figure(
            name=f"{where}: prefer structure, F1 below the best", ours=gap, reference=None, ratio=None,
            target="<= .05", unit="F1", met=gap <= 0.05,
        ),
        *_distance_figures(found, where, None),
    ]  # fmt: skip


def _distance_figures(found: dict[str, Trial], where: str, target: float | None) -> list[Figure]:
    means = {name: statistics.fmean(trial.distances) for name, trial in found.items()}
    best = min(means[search.text] for search in CANDIDATES)
    return [
        Figure(
            name=f"{where}: mean 2-way distance of auto", ours=means["auto"], reference=None, ratio=None,
            target="-" if target is None else f"<= {target}", unit="TVD",
            met=None if target is None else means["auto"] <= target,
            note=", ".join(f"{name} {value:.4f}" for name, value in means.items()),
        ),
        Figure(
            name=f"{where}: auto above the best candidate", ours=means["auto"] - best, reference=None, ratio=None,
            target="<= .002", unit="TVD", met=means["auto"] - best <= 0.002,
        ),
        Figure(
            name=f"{where}: auto, from columns to structure", ours=statistics.fmean(found["auto"].cpu), reference=None,
            ratio=None, target="-", unit="CPU s",
        ),
    ]  # fmt: skip

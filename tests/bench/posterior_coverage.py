"""How often intervals with and without the structure's uncertainty hold the truth: ``python tests/bench/posterior_coverage.py``.

A network of eight variables gives 2,000 records; the interval of 95 % of every P(X_b = j | X_a = i) of all 56 ordered pairs is
asked of

    sampled      graphs of the posterior, probabilities drawn with each;
    conditional  probabilities drawn given the consensus, as if it was known to be the graph.

The truth is the network's own. ``--setting`` own (records as they are), 3, 2, 1 (epsilon of every column), tables (noisy tables
of all pairs at a total epsilon of 1, delta 1e-6); ``--network`` see `network`: 1, or ``drawn``, or ``prior``: three binary
columns, their truth drawn from the prior itself (tests/support/prior_truth.py), randomized at an epsilon of ``--setting``; there
sets of graphs are held to the truth, too. Printed: the mean coverage over
pairs with its standard error over replicates, the least of a pair, how many pairs are below .90 by three standard errors of a
share of so many replicates (those of the consensus one by one), and the mean width. Ends with 1 where the sampled graphs' mean is
not between .93 and .97.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support
from support import prior_truth, studies
from verticil.miner.learning import from_tables
from verticil.miner.learning.posterior.draws import Concentrations, concentrations, networks
from verticil.miner.learning.posterior.graphs import Sampled
from verticil.miner.learning.search.protocol import UNINTERRUPTED
from verticil.miner.learning.selection import search_columns
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.mechanisms.gaussian import analytic_sigma
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.posterior.predictive import chosen_graphs, draw_records_along_edges, drawn_family
from verticil.shared.study.document import PosteriorRule, ReleaseRule, Study

N_STATES = (2, 2, 3, 2, 2, 2, 3, 2)
RECORDS, DRAWS, LEVEL, DELTA = 2_000, 400, 0.95, 1e-6
BOUNDS = (0.93, 0.97)  # of the mean coverage
PAIRS = list(itertools.permutations(range(len(N_STATES)), 2))


def network(of: Study, kind: str) -> Network:
    """``weak``, or a number: the network that is drawn with this seed. Rows of a drawn one are uniform on the simplex.
    ``drawn`` is another drawn one for each replicate, which `main` sees to.

    ``weak`` has the edges 0 -> 1, 0 -> 2, (1, 2) -> 3, 3 -> 4, 4 -> 5, (2, 5) -> 6, 6 -> 7, the log odds of a child moving by
    normal numbers times `effect`. A drawn one has each edge along a random order with probability .3, three parents at most.
    """
    rng = np.random.default_rng(1 if kind == "weak" else int(kind))
    dag = Dag(parents=((), (0,), (0,), (1, 2), (3,), (4,), (2, 5), (6,)))
    effect = (0, 1.2, 0.25, 0.5, 0.2, 0.9, 0.35, 0.12)
    if kind != "weak":
        order = rng.permutation(len(N_STATES)).tolist()
        linked = rng.random((len(order), len(order))) < 0.3
        before = [[order[j] for j in range(i) if linked[i, j]][:3] for i in range(len(order))]
        dag = Dag(parents=tuple(tuple(sorted(before[order.index(v)])) for v in range(len(order))))
    families = []
    for child, parents in enumerate(dag.parents):
        logits = np.zeros([N_STATES[v] for v in (*parents, child)]) + 0.4 * rng.standard_normal(N_STATES[child])
        for place in range(len(parents)):
            shape = [k if p in (place, len(parents)) else 1 for p, k in enumerate(logits.shape)]
            main = rng.standard_normal(shape)
            logits = logits + effect[child] * (main - main.mean(axis=place, keepdims=True))
        rows = np.exp(logits).reshape(-1, N_STATES[child])
        rows = (
            rows / rows.sum(axis=1, keepdims=True)
            if kind == "weak"
            else rng.dirichlet(np.ones(rows.shape[1]), len(rows))
        )
        families.append(dataclasses.replace(drawn_family(child, parents, 1e6 * rows, rng), probability=rows))
    return Network(schema=of.schema, dag=dag, families=tuple(families))


def conditionals(drawn: Iterator[Network]) -> list[Floats]:
    """For each pair (m, K_a, K_b): P(X_b | X_a) in each of m networks, by the joint distribution of all."""
    d, joints = len(N_STATES), []
    for each in drawn:
        joint = np.ones(N_STATES)
        for child, family in enumerate(each.families):
            scope = (*family.parents, child)
            table = family.probability.reshape([N_STATES[v] for v in scope])
            order = np.argsort(scope)
            joint = joint * table.transpose(order).reshape([N_STATES[v] if v in scope else 1 for v in range(d)])
        joints.append(joint)
    whole, found = np.stack(joints), []
    for a, b in PAIRS:
        table = whole.sum(axis=tuple(1 + v for v in range(d) if v not in (a, b)))
        table = table if a < b else table.transpose(0, 2, 1)
        found.append(table / table.sum(axis=2, keepdims=True))
    return found


def posterior(
    setting: str, study: Study, records: Sequence[Codes], rng: np.random.Generator
) -> tuple[Sampled, Concentrations]:
    """The graphs and the distribution of probabilities, as the product makes them."""
    if setting != "tables":
        released = []
        for column, unit in zip(records, study.units, strict=True):
            ends = np.cumsum(unit.transition.probabilities, axis=1)[:, :-1]
            released.append((rng.random(len(column))[:, None] >= ends[column]).sum(axis=1).astype(np.uint8))
        found = search_columns(released, study, progress=lambda *_: None, interruption=UNINTERRUPTED)
        assert found.sampled is not None
        return found.sampled, concentrations(found.sampled.scores, rng)
    units = tuple(study.column_unit(index) for index in range(len(study.units)))
    pairs = list(itertools.combinations(range(len(units)), 2))
    sigma = analytic_sigma(1.0, DELTA, sensitivity=math.sqrt(2 * len(pairs)))
    tables = []
    for a, b in pairs:
        cells = records[a].astype(int) * N_STATES[b] + records[b]
        counts = np.bincount(cells, minlength=N_STATES[a] * N_STATES[b]).reshape(N_STATES[a], N_STATES[b])
        tables.append(
            MeasuredTable(units=(a, b), counts=counts + sigma * rng.standard_normal(counts.shape), sigma=sigma)
        )
    caught: list[tuple[Sampled, Concentrations]] = []
    made = from_tables.posterior_of, from_tables.drawing
    from_tables.drawing = lambda _sample, of, *_: of  # type: ignore[assignment,misc,return-value]
    from_tables.posterior_of = lambda sampled, of, *_, **__: caught.append((sampled, of))  # type: ignore[assignment,func-returns-value]
    try:
        whole = NoisyTables(n_states=N_STATES, units=units, tables=tuple(tables), n_records=RECORDS)
        from_tables.learn_from_tables(whole, study)
    finally:
        from_tables.posterior_of, from_tables.drawing = made
    return caught[0]


def by_prior(epsilon: float, score: str, replicates: int, first: int) -> int:
    """Truth from the prior: intervals hold it as often as they say, and sets of graphs as often as they are probable.

    The bounds are three standard errors, so that of right posteriors one in 200 misses.
    """
    began = time.process_time()
    every = [prior_truth.held(score, epsilon, first + number) for number in range(replicates)]
    spent = (time.process_time() - began) / replicates
    shares, mass = np.array([each.shares for each in every]), np.array([each.mass for each in every])
    right = np.array([each.graph for each in every], dtype=np.float64)
    error, graph_error = (float(each.std(ddof=1)) / math.sqrt(replicates) for each in (shares, right - mass))
    met = abs(shares.mean() - prior_truth.LEVEL) <= 3 * error and abs((right - mass).mean()) <= 3 * graph_error
    print(
        f"prior  epsilon {epsilon:g}  {score:9} intervals {shares.mean():.3f} +- {error:.3f} "
        f"(width {np.mean([each.width for each in every]):.3f})  "
        f"sets of graphs {right.mean():.3f} of {mass.mean():.3f} +- {graph_error:.3f} "
        f"({np.mean([each.graphs for each in every]):.1f} of 25 graphs)  "
        f"chains disagree in {sum(not each.agree for each in every)}  "
        f"{replicates} replicates, {spent:.1f} CPU s each: {'pass' if met else 'MISS'}"
    )
    return 0 if met else 1


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--setting", default="own", choices=("own", "3", "2", "1", "tables"))
    parser.add_argument("--score", default="bdeu", choices=("bdeu", "dirichlet"))
    parser.add_argument("--network", default="1")
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    told = parser.parse_args()
    if told.network == "prior":
        return by_prior(float(told.setting), told.score, told.replicates, told.first)
    study = studies.study_of(
        studies.numbered(N_STATES),
        epsilon=float(told.setting) if told.setting.isdigit() else None,
        structure={"method": "posterior", "score": told.score, "max_parents": 3},
        posterior=PosteriorRule(steps=5_000),
        release=ReleaseRule(sample_from="posterior"),
    )
    held = {name: np.zeros((told.replicates, len(PAIRS))) for name in ("sampled", "conditional")}
    width = dict.fromkeys(held, 0.0)
    began = time.process_time()
    for number in range(told.replicates):
        rng = np.random.default_rng([told.first + number, 77])
        true = network(study, str(1_000 + told.first + number) if told.network == "drawn" else told.network)
        truth = [table[0] for table in conditionals(iter([true]))]
        records = draw_records_along_edges(true, RECORDS, rng).columns
        seeded = dataclasses.replace(study, structure=dataclasses.replace(study.structure, seed=number + 1))
        sampled, of = posterior(told.setting, seeded, records, rng)
        graphs = {"sampled": chosen_graphs(sampled.sample, DRAWS), "conditional": [sampled.result.dag] * DRAWS}
        for name, some in graphs.items():
            for place, draws in enumerate(conditionals(networks(some, of, study.schema, generator=rng))):
                low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
                held[name][number, place] = ((low <= truth[place]) & (truth[place] <= high)).mean()
                width[name] += float((high - low).mean()) / len(PAIRS) / told.replicates
    limit = 0.90 - 3 * math.sqrt(0.9 * 0.1 / told.replicates)
    spent = (time.process_time() - began) / told.replicates
    for name, shares in held.items():
        by_pair = shares.mean(axis=0)
        worst = PAIRS[int(by_pair.argmin())]
        error = shares.mean(axis=1).std(ddof=1) / math.sqrt(told.replicates)
        print(
            f"{told.network:4} {told.setting:6} {told.score:9} {name:11} mean {by_pair.mean():.3f} +- {error:.3f}  "
            f"least {by_pair.min():.3f} "
            f"(of {worst[1]} by {worst[0]})  below .90 {np.count_nonzero(by_pair < limit):2} of {len(PAIRS)}  "
            f"width {width[name]:.3f}  {told.replicates} replicates, {spent:.1f} CPU s each",
            flush=True,
        )
    by_pair = {name: shares.mean(axis=0) for name, shares in held.items()}
    for place in np.flatnonzero(by_pair["conditional"] < limit):
        a, b = PAIRS[place]
        shown = ", ".join(f"{name} {shares[place]:.3f}" for name, shares in by_pair.items())
        print(f"  below .90 where the consensus is taken for the graph: {b} by {a}: {shown}")
    met = BOUNDS[0] <= held["sampled"].mean() <= BOUNDS[1]
    print(f"mean of the sampled graphs between {BOUNDS[0]} and {BOUNDS[1]}: {'pass' if met else 'MISS'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

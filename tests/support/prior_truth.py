"""Truth drawn from the prior that a posterior is computed with, so that its sets hold the truth as often as they say.

A graph of three binary variables, all 25 alike; each row of a family Dirichlet, with the score's own count; people; columns that
are randomized anew. Over many such draws a set of graphs with the posterior probability p holds the true graph in p of them, and
an interval of 95 % its share in .95, if posterior and draws are right (Cook, Gelman & Rubin 2006)."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np

from support import studies
from support.released_posterior import graphs
from verticil.miner.learning.posterior.draws import drawing_with_counts
from verticil.miner.learning.search.protocol import UNINTERRUPTED
from verticil.miner.learning.selection import search_columns
from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.posterior.predictive import draw_records_along_edges, drawn_family
from verticil.shared.study.document import PosteriorRule, ReleaseRule

LEVEL, DRAWS = 0.95, 400
D = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one draw of truth, people and noise shows.

    Attributes:
        shares: of the twelve cells of the three pairs' tables, the share whose interval of `LEVEL` holds the truth.
        width: the mean width of these intervals.
        graph: whether the smallest set of the likeliest graphs with `LEVEL` holds the true one.
        mass: the probability of that set, at least `LEVEL`.
        graphs: how many it has.
        agree: whether the chains do.
    """

    shares: float
    width: float
    graph: bool
    mass: float
    graphs: int
    agree: bool


def held(score: str, epsilon: float, seed: int, *, people: int = 2_000, steps: int = 5_000) -> Held:
    """Draw truth and released columns, and compare the product's posterior with the truth.

    Args:
        score: ``bdeu`` or ``dirichlet``.
        epsilon: of each column.
        seed: of truth, people, noise, chains and probabilities.
        people: records.
        steps: of each chain.
    """
    rng, every = np.random.default_rng([seed, 39]), graphs(D)
    study = studies.study_of(
        studies.numbered((2,) * D),
        epsilon=epsilon,
        structure={"method": "posterior", "score": score, "max_parents": 2},
        posterior=PosteriorRule(steps=steps),
        release=ReleaseRule(sample_from="posterior"),
    )
    study = dataclasses.replace(study, structure=dataclasses.replace(study.structure, seed=seed + 1))
    graph = every[int(rng.integers(len(every)))]
    dag = Dag(parents=tuple(tuple(u for u in range(D) if mask >> u & 1) for mask in graph))
    families = []
    for child, parents in enumerate(dag.parents):
        rows = 2 ** len(parents)
        prior = np.full((rows, 2), 1 / (2 * rows) if score == "bdeu" else 1.0)
        families.append(drawn_family(child, parents, prior, rng))
    true = Network(schema=study.schema, dag=dag, families=tuple(families))
    columns = []
    for column, unit in zip(draw_records_along_edges(true, people, rng).columns, study.units, strict=True):
        ends = np.cumsum(unit.transition.probabilities, axis=1)[:, :-1]
        columns.append((rng.random(people)[:, None] >= ends[column]).sum(axis=1).astype(np.uint8))
    found = search_columns(columns, study, progress=lambda *_: None, interruption=UNINTERRUPTED).sampled
    assert found is not None
    assert found.drawn is not None
    assert found.scores is not None
    drawn = drawing_with_counts(found.drawn, found.scores, study, lambda: None)(DRAWS, rng)
    low, high = np.quantile([pair_shares(each) for each in drawn], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    truth = pair_shares(true)
    masks, counts = np.unique(found.sample.parents, axis=0, return_counts=True)
    order = np.argsort(-counts)
    mass = np.cumsum(counts[order]) / counts.sum()
    n = int(np.searchsorted(mass, LEVEL)) + 1
    return Held(
        shares=float(((low <= truth) & (truth <= high)).mean()),
        width=float((high - low).mean()),
        graph=graph in set(map(tuple, masks[order[:n]].tolist())),
        mass=float(mass[n - 1]),
        graphs=n,
        agree=found.sample.diagnostics.agree,
    )


def pair_shares(network: Network) -> Floats:
    """(12,): the cells of the tables of all three pairs."""
    joint = np.ones((2,) * D)
    for child, family in enumerate(network.families):
        scope = (*family.parents, child)
        table = family.probability.reshape((2,) * len(scope)).transpose(np.argsort(scope))
        joint = joint * table.reshape([2 if v in scope else 1 for v in range(D)])
    pairs = itertools.combinations(range(D), 2)
    return np.concatenate([joint.sum(axis=tuple(v for v in range(D) if v not in pair)).ravel() for pair in pairs])

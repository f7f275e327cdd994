"""How often the intervals of ``release query`` hold: ``python tests/bench/query_intervals.py [--runs 200] [--people 10000]``.

The people's records are drawn from a network, every column is randomized (symmetric, epsilon 1, 2 and 3, or not at all), and the
parameters are learned as the miner learns them, with the network's own structure given. Then queries with evidence that is no
row of a family are asked: of a cause given its effects, of an effect given a grandparent, and of two ends of a chain. Of each the
share of the 95 % intervals that hold the network's own answer, their mean half width, and the answers' root mean square error; of
so many runs a share has a standard error of .015 where it is .95.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.releases import release_study_of_two
from verticil.miner.learning.learn import learn
from verticil.shared.mechanisms.transition import Transition, identity, quantize, symmetric
from verticil.shared.numerics.model.elimination import derivatives
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release import query as asked
from verticil.shared.study.document import ReleaseRule, StructureRule, Study
from verticil.shared.study.unit import Unit
from verticil.shared.synthesis.synthesis import sample_codes

PARENTS = ((), (0,), (0, 1), (2,), (2, 3))
STATES = (2, 3, 3, 2, 2)
QUERIES = ((0, {2: 1, 4: 1}), (4, {0: 1}), (1, {3: 0, 4: 1}), (2, {1: 0, 4: 0}))


def truth() -> Network:
    generator = np.random.default_rng(4)
    variables = tuple(
        Variable(name=f"v{place}", owner="clinic", labels=tuple(f"c{code}" for code in range(k)))
        for place, k in enumerate(STATES)
    )
    families = []
    for child, parents in enumerate(PARENTS):
        rows = int(np.prod([STATES[p] for p in parents], dtype=int))
        table = 0.7 * generator.dirichlet(np.ones(STATES[child]), size=rows) + 0.3 / STATES[child]
        nothing = np.zeros_like(table)
        families.append(
            Family(
                child=child,
                parents=parents,
                probability=table,
                estimate=table,
                standard_error=nothing,
                interval_low=table,
                interval_high=table,
                unstable=nothing > 0,
            )
        )
    return Network(schema=Schema(variables=variables), dag=Dag(parents=PARENTS), families=tuple(families))


def study_of(schema: Schema, channels: list[Transition]) -> Study:
    named = tuple((schema.names[v], tuple(schema.names[p] for p in parents)) for v, parents in enumerate(PARENTS))
    return dataclasses.replace(
        release_study_of_two(),
        parties=("clinic",),
        schema=schema,
        units=tuple(
            Unit(variables=(name,), owner="clinic", scheme="matrix", transition=channel)
            for name, channel in zip(schema.names, channels, strict=True)
        ),
        structure=StructureRule(method="given", score="given", parents=named),
        release=ReleaseRule(sample_from="network"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--people", type=int, default=10_000)
    options = parser.parse_args()
    network = truth()
    answers = [derivatives(network, *query)[0] for query in QUERIES]
    answers = [answer / answer.sum() for answer in answers]
    print("epsilon  query                held  half width   rmse")
    for epsilon in (1.0, 2.0, 3.0, None):
        channels = [quantize(identity(k) if epsilon is None else symmetric(k, epsilon=epsilon)) for k in STATES]
        study = study_of(network.schema, channels)
        held, width, error = (np.zeros(len(QUERIES)) for _ in range(3))
        for run in range(options.runs):
            generator = np.random.default_rng((run, 7))
            records = sample_codes(network, options.people, generator=generator, method="independent")
            columns = []
            for column, channel in zip(records, channels, strict=True):
                cumulative = np.cumsum(channel.probabilities, axis=1)[column]
                drawn = (generator.random(len(column))[:, None] > cumulative).sum(axis=1)
                columns.append(np.minimum(drawn, channel.n_states - 1).astype(np.uint8))
            found = learn(columns, study).network
            for place, (target, evidence) in enumerate(QUERIES):
                together, slopes = derivatives(found, target, evidence)
                mass = together.sum()
                own = together / mass
                low, high = asked.delta_interval(found, own, {v: slope / mass for v, slope in slopes.items()}, 0.95)
                held[place] += np.mean((low <= answers[place]) & (answers[place] <= high))
                width[place] += np.mean(high - low) / 2
                error[place] += np.mean((own - answers[place]) ** 2)
        for place, (target, evidence) in enumerate(QUERIES):
            words = f"v{target} given " + ", ".join(f"v{v}" for v in evidence)
            share, half, root = (
                held[place] / options.runs,
                width[place] / options.runs,
                (error[place] / options.runs) ** 0.5,
            )
            print(
                f"{'none' if epsilon is None else f'{epsilon:g}':>7}  {words:18}  {share:.3f}      {half:.4f}  {root:.4f}"
            )


if __name__ == "__main__":
    main()

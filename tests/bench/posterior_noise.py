"""Which scores of noisy tables calibrate: ``python tests/bench/posterior_noise.py``.

Random networks of six columns give 5,000 people; all pairs are counted with noise of a total `--epsilon` (delta 1e-6), and a
joint model is estimated of them. Of every pair of columns the probability that they are linked is asked of graphs sampled by

    records    the people themselves;
    tempered   the model's tables, as many people as the noise leaves (`ModelScores.noise`);
    mixed      replicates of the model, each taken for records, the graphs mixed: what the product does, with twenty;
    both       replicates, each tempered;
    as data    the model's tables, taken for records.

Printed: the mean distance to what the records say, the Brier score and the log loss against the network, and, by what was
said, how often the two are linked. With epsilon 1 and 3, twelve networks: log loss .54/.54, .70/.58, .36/.34, .53/.39,
.56/.52."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support
from support import studies
from verticil.miner.learning import from_tables
from verticil.miner.learning.model_tables import ModelScores, ModelTables, noisy_pair_scores
from verticil.miner.learning.posterior.graphs import sampled_graphs
from verticil.miner.learning.posterior.scores import PosteriorScores
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.structure import search_problem
from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.gaussian import analytic_sigma
from verticil.shared.numerics.joint.estimate import estimate
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.study.document import PosteriorRule, ReleaseRule
from verticil.shared.study.related_tables import Possible

N_STATES = (2, 3, 2, 2, 3, 2)
PEOPLE, DELTA, D = 5_000, 1e-6, len(N_STATES)
PAIRS = list(itertools.combinations(range(D), 2))
BINS = ((0, 0.1), (0.1, 0.3), (0.3, 0.7), (0.7, 0.9), (0.9, 1.01))


class Tempered(PosteriorScores):
    """A joint model's tables for as many people as the noise leaves."""

    def __init__(self, tables: ModelTables, measured: NoisyTables) -> None:
        super().__init__(tables, "bdeu", whole=True)
        self._noise = ModelScores(tables, measured).noise

    def temper_counts(self, axes: tuple[int, ...]) -> tuple[Floats, float]:
        """See the class."""
        return super().temper_counts(axes)[0], min(self._noise(axes) ** -2, 1.0)


def truth(rng: np.random.Generator) -> tuple[list[tuple[int, ...]], Floats]:
    """The parents of every column and the joint distribution: none to two parents, the log odds move by .12 to 1."""
    joint, found = np.ones(N_STATES), []
    for child in range(D):
        k = min(child, int(rng.choice(3, p=[0.25, 0.5, 0.25])))
        parents: Sequence[int] = sorted(rng.choice(child, k, replace=False).tolist()) if k else []
        found.append(tuple(parents))
        scope = (*parents, child)
        logits = np.zeros([N_STATES[v] for v in scope]) + 0.4 * rng.standard_normal(N_STATES[child])
        for place in range(k):
            shape = [n if p in (place, k) else 1 for p, n in enumerate(logits.shape)]
            logits = logits + rng.choice([0.12, 0.25, 0.5, 1.0]) * rng.standard_normal(shape)
        rows = np.exp(logits)
        rows /= rows.sum(axis=-1, keepdims=True)
        joint = joint * rows.reshape([N_STATES[v] if v in scope else 1 for v in range(D)])
    return found, joint / joint.sum()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Which scores of noisy tables calibrate.")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--networks", type=int, default=12)
    told = parser.parse_args()
    study = studies.study_of(
        studies.numbered(N_STATES),
        structure={"method": "posterior", "score": "bdeu", "max_parents": 3},
        posterior=PosteriorRule(steps=3_000, chains=2),
        release=ReleaseRule(sample_from="posterior"),
    )
    units = tuple(study.column_unit(index) for index in range(D))
    sigma = analytic_sigma(told.epsilon, DELTA, sensitivity=math.sqrt(2 * len(PAIRS)))
    said: dict[str, list[float]] = {}
    linked: list[bool] = []
    for number in range(told.networks):
        rng = np.random.default_rng([number, 5])
        parents, joint = truth(rng)
        counts = rng.multinomial(PEOPLE, joint.ravel()).reshape(N_STATES)
        tables = []
        for pair in PAIRS:
            table = counts.sum(axis=tuple(v for v in range(D) if v not in pair)).astype(np.float64)
            noise = sigma * rng.standard_normal(table.shape)
            tables.append(MeasuredTable(units=pair, counts=table + noise, sigma=sigma))
        measured = NoisyTables(n_states=N_STATES, units=units, tables=tuple(tables), n_records=PEOPLE)
        found = estimate(measured, seed=number)
        models, _ = from_tables._replicates(
            found,
            measured,
            Possible(study, study.support()),
            (),
            seed=number,
            check=lambda: None,
            progress=lambda _: None,
        )
        own, *again = [ModelTables(model, PEOPLE, study.schema.names) for model in (found.model, *models)]
        pairs = noisy_pair_scores(measured)
        problem = search_problem(pairs.information, study)
        codes = np.repeat(np.array(list(np.ndindex(*N_STATES)), np.uint8), counts.ravel(), axis=0)
        people = FamilyTables(list(np.ascontiguousarray(codes.T)), units, N_STATES)
        ways: dict[str, list[PosteriorScores]] = {
            "records": [PosteriorScores(people, "bdeu")],
            "tempered": [Tempered(own, measured)],
            "mixed": [PosteriorScores(each, "bdeu", whole=True) for each in again],
            "both": [Tempered(each, measured) for each in again],
            "as data": [PosteriorScores(own, "bdeu", whole=True)],
        }
        for name, parts in ways.items():
            each = [sampled_graphs(part, problem, pairs, study).sample.skeleton_probability for part in parts]
            said.setdefault(name, []).extend(float(np.mean([one[pair] for one in each])) for pair in PAIRS)
        linked += [a in parents[b] for a, b in PAIRS]
    truly, best = np.array(linked), np.array(said["records"])
    for name, values in said.items():
        p = np.clip(np.array(values), 1e-3, 1 - 1e-3)
        brier, loss = ((p - truly) ** 2).mean(), -np.where(truly, np.log(p), np.log(1 - p)).mean()
        shown = []
        for low, high in BINS:
            here = (p >= low) & (p < high)
            shown.append(f"{p[here].mean():.2f}/{truly[here].mean():.2f} ({here.sum()})" if here.any() else "-")
        print(
            f"{name:9} to records {np.abs(p - best).mean():.3f}  brier {brier:.3f}  log {loss:.3f}  ",
            *shown,
            flush=True,
        )


if __name__ == "__main__":
    main()

"""The posterior of graphs from randomized columns against the exact one, in its corners.

``tests/bench/posterior_exact.py`` has all cells. References are those of `support.released_posterior`; seeds are fixed, so the
tests raise no false alarm. Scores of families, which more columns are sampled by, are held to the figure of a collider, too: a
family that is tempered whole misses it."""

from __future__ import annotations

import numpy as np
import pytest

from support import studies
from support.released_posterior import by_augmentation, by_importance, graphs
from verticil.miner.learning.posterior.scores import PosteriorScores
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.search.protocol import UNINTERRUPTED
from verticil.miner.learning.selection import search_columns
from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.posterior.sample import GraphSample
from verticil.shared.study.document import PosteriorRule, ReleaseRule, Study

D3 = np.array(graphs(3))
COLLIDER = (D3[:, 1] & 5 == 5) & ((D3[:, 0] >> 2 | D3[:, 2]) & 1 == 0)
FALSE_LINK = (D3[:, 0] >> 2 | D3[:, 2]) & 1 > 0
"""Between v0 and v2."""


def study_of(k: int, epsilon: float, score: str, steps: int = 4000) -> Study:
    return studies.study_of(
        studies.numbered((k,) * 3),
        epsilon=epsilon,
        structure={"method": "posterior", "score": score, "max_parents": 2},
        posterior=PosteriorRule(steps=steps),
        release=ReleaseRule(sample_from="posterior"),
    )


def released(study: Study, effects: tuple[float, float, float], n: int, seed: int) -> list[np.ndarray]:
    """v1 by v0 and v2, and v2 by v0: the log odds of the last category move by the effects, each code spread over -1 to 1."""
    rng, k = np.random.default_rng(seed), study.schema.n_states[0]
    code = np.linspace(-1, 1, k)

    def drawn(logits: Floats) -> np.ndarray:
        share = np.exp(logits[:, None] * code)
        return (rng.random(n)[:, None] >= (share / share.sum(axis=1, keepdims=True)).cumsum(axis=1)[:, :-1]).sum(axis=1)

    v0 = drawn(np.zeros(n))
    v2 = drawn(effects[2] * code[v0])
    v1 = drawn(effects[0] * code[v0] + effects[1] * code[v2])
    columns = []
    for column, unit in zip((v0, v1, v2), study.units, strict=True):
        ends = np.cumsum(unit.transition.probabilities, axis=1)[:, :-1]
        columns.append((rng.random(n)[:, None] >= ends[column]).sum(axis=1).astype(np.uint8))
    return columns


def shares(sample: GraphSample) -> Floats:
    place = {graph: number for number, graph in enumerate(map(tuple, D3.tolist()))}
    return np.bincount([place[tuple(graph)] for graph in sample.parents.tolist()], minlength=len(D3)) / sample.n_draws


def reference(study: Study, columns: list[np.ndarray]) -> tuple[Floats, float]:
    """The exact posterior, and how far the two halves of the work behind it differ."""
    counts = np.zeros(study.schema.n_states)
    np.add.at(counts, tuple(columns), 1)
    channels, score = [unit.transition.probabilities for unit in study.units], study.structure.score
    exact, apart = by_importance(counts, channels, score, draws=40_000, seed=1)
    if apart <= 0.02:
        return exact, apart
    return min((exact, apart), by_augmentation(counts, channels, score, sweeps=1500, seed=1), key=lambda each: each[1])


@pytest.mark.parametrize(
    ("score", "k", "epsilon", "n", "effects"),
    [
        pytest.param("bdeu", 2, 3.0, 5_000, (1.0, 1.0, 0.0), marks=pytest.mark.whole),
        ("bdeu", 2, 3.0, 50_000, (0.5, 0.5, 0.0)),
        pytest.param("bdeu", 2, 2.0, 5_000, (1.0, 0.5, 0.5), marks=pytest.mark.slow),
        pytest.param("bdeu", 3, 2.0, 5_000, (1.0, 1.0, 0.0), marks=pytest.mark.slow),
        pytest.param("bdeu", 3, 2.0, 2_000, (1.0, 1.0, 1.0), marks=pytest.mark.slow),
        pytest.param("bdeu", 2, 1.0, 5_000, (0.0, 0.0, 0.0), marks=pytest.mark.slow),
        pytest.param("dirichlet", 2, 3.0, 5_000, (1.0, 1.0, 0.0), marks=pytest.mark.slow),
        pytest.param("dirichlet", 2, 3.0, 50_000, (0.5, 0.5, 0.0), marks=pytest.mark.slow),
        pytest.param("dirichlet", 2, 2.0, 5_000, (1.0, 0.5, 0.5), marks=pytest.mark.slow),
        pytest.param("dirichlet", 2, 1.5, 5_000, (1.0, 0.0, 1.0), marks=pytest.mark.slow),
        pytest.param("dirichlet", 2, 1.0, 5_000, (0.0, 0.0, 0.0), marks=pytest.mark.slow),
    ],
)
def test_the_posterior_is_the_exact_one(
    score: str, k: int, epsilon: float, n: int, effects: tuple[float, float, float]
) -> None:
    study = study_of(k, epsilon, score)
    columns = released(study, effects, n, seed=1)
    exact, apart = reference(study, columns)
    found = search_columns(columns, study, progress=lambda *_: None, interruption=UNINTERRUPTED).sampled
    assert found is not None
    sample, ours = found.sample, shares(found.sample)
    assert sample.diagnostics.edge_difference < 0.05
    assert apart <= 0.02
    assert 0.5 * np.abs(ours - exact).sum() <= 0.06 + apart
    assert ours[COLLIDER].sum() == pytest.approx(exact[COLLIDER].sum(), abs=0.05 + apart)
    assert ours[FALSE_LINK].sum() == pytest.approx(exact[FALSE_LINK].sum(), abs=0.05 + apart)


@pytest.mark.parametrize("score", ["bdeu", "dirichlet"])
def test_scores_of_families_see_a_collider_too(score: str) -> None:
    """Where columns are many: no link between the parents is bought to get out of their noise."""
    study = study_of(2, 3.0, score)
    columns = released(study, (1.0, 1.0, 0.0), 5_000, seed=1)
    units = [study.column_unit(v) for v in range(3)]
    scores = PosteriorScores(FamilyTables(columns, units, (2, 2, 2)), "bdeu" if score == "bdeu" else "dirichlet")
    value = np.array(
        [sum(scores(v, tuple(u for u in range(3) if m >> u & 1)) for v, m in enumerate(g)) for g in D3.tolist()]
    )
    ours = np.exp(value - value.max())
    ours /= ours.sum()
    exact, _ = reference(study, columns)
    assert ours[COLLIDER].sum() == pytest.approx(exact[COLLIDER].sum(), abs=0.15)
    assert ours[FALSE_LINK].sum() == pytest.approx(exact[FALSE_LINK].sum(), abs=0.15)


def test_a_constant_column_says_nothing_and_two_columns_have_two_directions() -> None:
    study = study_of(2, 3.0, "bdeu", steps=1000)
    columns = released(study, (1.0, 1.0, 0.0), 2_000, seed=3)
    constant = [columns[0], columns[1], np.zeros(2_000, dtype=np.uint8)]
    found = search_columns(constant, study, progress=lambda *_: None, interruption=UNINTERRUPTED).sampled
    assert found is not None
    assert found.sample.skeleton_probability[0, 1] > 0.95
    assert 0.1 < found.sample.skeleton_probability[0, 2] < 0.6
    two = studies.study_of(
        studies.numbered((2, 2)),
        epsilon=3.0,
        structure={"method": "posterior", "score": "bdeu", "max_parents": 1},
        posterior=PosteriorRule(steps=2000),
        release=ReleaseRule(sample_from="posterior"),
    )
    found = search_columns(columns[:2], two, progress=lambda *_: None, interruption=UNINTERRUPTED).sampled
    assert found is not None
    assert found.sample.edge_probability[0, 1] == pytest.approx(0.5, abs=0.05)


@pytest.mark.whole
def test_where_nothing_is_left_of_the_records_the_prior_speaks() -> None:
    """At epsilon .01 a column of 500 people says nothing: each of the 25 graphs is as probable as the prior has it."""
    study = study_of(2, 0.01, "dirichlet", steps=500)
    columns = released(study, (1.0, 1.0, 0.0), 500, seed=3)
    found = search_columns(columns, study, progress=lambda *_: None, interruption=UNINTERRUPTED).sampled
    assert found is not None
    assert found.moved is not None
    assert found.moved < 0.05
    assert shares(found.sample).max() < 0.1
    assert shares(found.sample).min() > 0.01

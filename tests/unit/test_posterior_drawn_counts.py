"""Probabilities of few randomized columns are drawn with the graph's own true counts, and not family by family."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from support import studies
from verticil.miner.learning.learn import learn
from verticil.miner.learning.posterior.draws import concentrations, drawing, drawing_with_counts
from verticil.miner.learning.search.protocol import UNINTERRUPTED
from verticil.miner.learning.selection import search_columns
from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.study.document import PosteriorRule, Study

DRAWS = 1000


def chain() -> Study:
    """v0 -> v1 -> v2, and no other arrow; v0 and v2 as they are, v1 at epsilon 1."""
    study = studies.study_of(
        studies.numbered((2, 2, 2)),
        epsilon=1.0,
        structure={
            "method": "posterior",
            "score": "dirichlet",
            "max_parents": 1,
            "required": (("v0", "v1"), ("v1", "v2")),
        },
        posterior=PosteriorRule(steps=1000, data_sets=1, statistics=(("mle", "v2", "1", "v1", "1"),)),
    )
    plain = quantize(identity(2))
    units = tuple(
        dataclasses.replace(unit, scheme="none", transition=plain) if v != 1 else unit
        for v, unit in enumerate(study.units)
    )
    return dataclasses.replace(study, units=units)


def released(study: Study, n: int = 2000) -> list[np.ndarray]:
    """v1 is v0 but for one in ten, v2 is v1 but for three in ten."""
    rng = np.random.default_rng(11)
    v0 = rng.integers(0, 2, n)
    v1 = np.where(rng.random(n) < 0.1, 1 - v0, v0)
    v2 = np.where(rng.random(n) < 0.3, 1 - v1, v1)
    sent = rng.random(n) < study.units[1].transition.probabilities[v1, 1]
    return [column.astype(np.uint8) for column in (v0, sent, v2)]


def gibbs(counts: Floats, channel: Floats, sweeps: int, seed: int) -> Floats:
    """P(v2 = 1 | v1 = 1) by data augmentation in plain numpy, given the chain; 16 runs side by side."""
    rng, found, runs = np.random.default_rng(seed), [], 16
    shares = np.full((runs, 2, 2, 2), 1 / 8)
    for sweep in range(sweeps):
        true = np.zeros((runs, 2, 2, 2))
        for a, y, c in itertools.product(range(2), repeat=3):
            weight = shares[:, a, :, c] * channel[:, y]
            true[:, a, :, c] += rng.multinomial(int(counts[a, y, c]), weight / weight.sum(axis=1, keepdims=True))
        p0 = rng.standard_gamma(1 + true.sum(axis=(2, 3)))
        p1 = rng.standard_gamma(1 + true.sum(axis=3))
        p2 = rng.standard_gamma(1 + true.sum(axis=1))
        p0, p1, p2 = (each / each.sum(axis=-1, keepdims=True) for each in (p0, p1, p2))
        shares = p0[:, :, None, None] * p1[:, :, :, None] * p2[:, None]
        if sweep >= sweeps // 5:
            found.append(p2[:, 1, 1])
    return np.array(found)


def test_probabilities_are_those_given_all_released_columns() -> None:
    """Mean and spread of P(v2 | v1) are those of an independent sampler; drawn family by family, v0 tells nothing of v1.

    The effective size of either sample is some hundreds: means within .2 of a deviation, deviations within a fifth.
    """
    study = chain()
    columns = released(study)
    sampled = search_columns(columns, study, progress=lambda *_: None, interruption=UNINTERRUPTED).sampled
    assert sampled is not None
    assert sampled.drawn is not None
    assert sampled.scores is not None
    counts = np.zeros((2, 2, 2))
    np.add.at(counts, tuple(columns), 1)
    exact = gibbs(counts, study.units[1].transition.probabilities, 3000, seed=2)

    def drawn(by: object) -> Floats:
        made = by(DRAWS, np.random.default_rng(5))  # type: ignore[operator]
        return np.array([network.families[2].probability[1, 1] for network in made])

    ours = drawn(drawing_with_counts(sampled.drawn, sampled.scores, study, lambda: None))
    assert abs(ours.mean() - exact.mean()) < 0.2 * exact.std()
    assert ours.std() == pytest.approx(exact.std(), rel=0.2)
    of = concentrations(sampled.scores, np.random.default_rng(6))
    alone = drawn(drawing(sampled.sample, of, study, lambda: None))
    assert alone.std() > 1.25 * exact.std()
    found = learn(columns, study).posterior
    assert found is not None
    assert found.predictive[0].draws.std() < alone.std()  # though records of 2,000 are drawn on top

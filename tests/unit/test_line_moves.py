"""The compiled moves of annealing: logarithms to the last digit, and released cells that follow every move."""

from __future__ import annotations

import numpy as np
import pytest

from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.posterior.annealing import AnnealedFamily, Particles
from verticil.shared.numerics.posterior.line_moves import TINY, log_likelihood, padded

SHAPES = {
    "two of three": ((3, 2, 4), (0, 1, 0)),
    "collider": ((3, 2, 4), (0, 5, 0)),
    "child between": ((3, 2, 4), (2, 0, 2)),
    "all of three": ((2, 3, 4), (0, 1, 3)),
    "one category": ((3, 1, 2), (0, 1, 3)),
    "two of four": ((2, 3, 2, 3), (8, 1, 2, 0)),
    "three of four": ((2, 3, 2, 3), (0, 0, 3, 5)),
    "all of four": ((2, 3, 2, 2), (14, 0, 2, 6)),
}


def test_logarithms_are_exact_to_the_last_digit() -> None:
    rng = np.random.default_rng(1)
    value = np.concatenate([np.exp(rng.uniform(-690, 3, 4000)), 1 + rng.normal(size=1000) * 1e-8, [0.0, 1.0, TINY]])
    room, fraction, exponent = (np.empty(8) for _ in range(3))
    for each in value.tolist():
        after, counts = np.ones(8), np.zeros(8)
        after[3], counts[3] = each, 1.0
        found = log_likelihood(after, np.zeros(8), 1.0, counts, room, fraction, exponent)
        exact = np.log(max(each, TINY))
        assert abs(found - exact) <= 2 * np.spacing(abs(exact))


def test_the_likelihood_is_that_of_all_cells() -> None:
    rng = np.random.default_rng(2)
    size = padded(125)
    assert size == 128
    after, shift, counts = rng.dirichlet(np.ones(size)), rng.normal(size=size) * 1e-4, rng.poisson(20.0, size) * 1.0
    found = log_likelihood(after, shift, 0.3, counts, *(np.empty(size) for _ in range(3)))
    assert found == pytest.approx(float(counts @ np.log(np.maximum(after + 0.3 * shift, TINY))), rel=1e-13)


def particles(shape: tuple[int, ...], graph: tuple[int, ...], seed: int) -> Particles:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(20.0, shape).astype(np.float64)
    channels = [quantize(symmetric(k, flip=0.2)).probabilities if k > 1 else np.ones((1, 1)) for k in shape]
    families = []
    for v, mask in enumerate(graph):
        own = tuple(u for u in range(len(shape)) if mask >> u & 1)
        outside = tuple(u for u in range(len(shape)) if u not in (*own, v))
        table: Floats = counts.sum(axis=outside, keepdims=True)
        families.append(AnnealedFamily(child=v, parents=own, pseudo=1 / table.size, surrogate=table / 5))
    return Particles(counts, channels, families, 20, rng)


@pytest.mark.parametrize("name", SHAPES)
def test_released_cells_follow_every_move(name: str) -> None:
    """A family is moved on its own; then all is computed anew from the logarithms of its probabilities. The seed is fixed."""
    shape, graph = SHAPES[name]
    for f in range(len(shape)):
        swarm = particles(shape, graph, 3)
        before = swarm.logs[f].copy()
        swarm.move(f, np.full(20, 0.5))
        after, fit, theta = swarm.after.copy(), swarm.fit.copy(), swarm.theta[f].copy()
        assert (swarm.logs[f] != before).mean() > 0.5 or shape[f] == 1
        assert theta.sum(axis=1 + f) == pytest.approx(1.0, abs=1e-9)
        swarm.renew()
        assert after == pytest.approx(swarm.after, abs=1e-9)
        assert fit == pytest.approx(swarm.fit, abs=1e-5)
        assert theta == pytest.approx(swarm.theta[f], abs=1e-12)

"""Parameters that are drawn given a graph and the counts of the records: their means and variances."""

from __future__ import annotations

import math

import numpy as np
import pytest

from support.posterior import THREE
from verticil.experiments.martins.datasets import binary_schema
from verticil.experiments.martins.drawing import Prior, parameters_drawn
from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.graph import Dag


def counts_of(members: tuple[int, ...]) -> Floats:
    table = THREE.sum(axis=tuple(v for v in range(3) if v not in members)).astype(np.float64)
    return np.transpose(table, np.argsort(np.argsort(members)))


@pytest.mark.parametrize(("prior", "mass"), [(None, 1 / 8), (Prior(equivalent=None), 1.0), (Prior(equivalent=16), 2.0)])
def test_parameters_are_drawn_given_the_graph(prior: Prior | None, mass: float) -> None:
    """Means and variances of 4,000 draws are Dirichlet(a + N)'s: 5 standard errors, a false alarm in less than 1e-4.

    The same draws without the prior's mass, or with counts of other parents, are further away.
    """
    graph = Dag(parents=((), (), (0, 1)))
    generator = np.random.default_rng(3)
    drawn = list(parameters_drawn([graph] * 4000, counts_of, binary_schema(3), generator=generator, prior=prior))
    theta = np.array([network.families[2].probability for network in drawn])

    def furthest(table: Floats) -> float:
        mass_of_rows = table.sum(axis=1, keepdims=True)
        mean = table / mass_of_rows
        variance = mean * (1 - mean) / (mass_of_rows + 1)
        of_mean = np.abs(theta.mean(axis=0) - mean) / np.sqrt(variance / 4000)
        of_variance = np.abs(theta.var(axis=0) / variance - 1) / math.sqrt(2.5 / 4000)
        return float(np.maximum(of_mean, of_variance).max())

    table = counts_of((0, 1, 2)).reshape(4, 2)
    assert furthest(table + mass) < 5
    assert furthest(table + mass + 1) > 5
    assert furthest(counts_of((1, 0, 2)).reshape(4, 2) + mass) > 5

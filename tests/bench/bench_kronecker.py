"""Estimation axis by axis against the dense Kronecker product, and the constrained EM at the largest usual tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np
from figure import Figure, cpu_seconds
from numpy.typing import NDArray

from verticil.shared.mechanisms.transition import Transition, binary, quantize, symmetric
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.estimators import em_projection
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, as_design, family_design
from verticil.shared.numerics.estimation.parameters import family_parameters

N_RECORDS = 30_000


def released_table(transitions: list[Transition], seed: int) -> NDArray[np.int64]:
    """Counts of randomized records of an uneven distribution."""
    generator = np.random.default_rng(seed)
    shape = tuple(t.n_states for t in transitions)
    joint = generator.dirichlet(np.full(int(np.prod(shape)), 0.1)).reshape(shape)
    released = apply_axes(joint, [t.probabilities for t in transitions]).ravel()
    return generator.multinomial(N_RECORDS, released / released.sum()).reshape(shape)


def inverse_figure() -> Figure:
    """The inverse at 2^12 cells."""
    transitions = [quantize(binary(0.1, 0.2 + 0.01 * axis)) for axis in range(12)]
    observed = released_table(transitions, 1)
    answers: list[NDArray[np.float64]] = []

    def dense() -> None:
        matrix = reduce(np.kron, [t.probabilities for t in transitions])
        answers.append(np.linalg.solve(matrix.T, observed.ravel().astype(np.float64)))

    def many() -> None:
        for _ in range(200):
            as_design(transitions).estimate(observed)

    estimate = as_design(transitions).estimate(observed)
    ours = cpu_seconds(many) / 200
    reference = cpu_seconds(dense, repeats=1)
    difference = float(np.abs(estimate.ravel() - answers[0]).max() / N_RECORDS)
    return Figure(
        name="Kronecker inverse, 2^12 cells",
        ours=ours,
        reference=reference,
        ratio=reference / ours,
        target=">= 1000 times",
        unit="CPU s",
        met=reference / ours >= 1000 and difference < 1e-9,
        note=f"reference: np.kron of all axes, then np.linalg.solve; largest difference {difference:.0e} of n",
    )


def variance_figure() -> Figure:
    """The total variance of every estimated count of a family of 2^14 cells."""
    transitions = [quantize(binary(0.1, 0.2 + 0.01 * axis)) for axis in range(14)]
    observed = released_table(transitions, 2)

    def many() -> None:
        for _ in range(50):
            as_design(transitions).variance_total(observed)

    many()
    ours = cpu_seconds(many) / 50
    return Figure(
        name="variances of one family, 2^14 cells",
        ours=ours,
        reference=None,
        ratio=None,
        target="< 0.005 CPU s",
        unit="CPU s",
        met=ours < 0.005,
        note="estimate and second moments, axis by axis",
    )


def compound_figure() -> Figure:
    """All parameters of a family whose child and one parent are in a compound with a third variable outside."""
    domain = tuple((a, b, c) for a in range(16) for b in range(7) for c in range(2))
    units = [
        ColumnUnit(variables=(0, 1, 2), domain=domain, channel=quantize(symmetric(len(domain), epsilon=6))),
        ColumnUnit(variables=(3,), domain=None, channel=quantize(symmetric(15, epsilon=3))),
    ]
    design = family_design(units, (16, 7, 2, 15), (0, 3, 1))
    observed = np.random.default_rng(4).multinomial(N_RECORDS, np.full(design_cells := 16 * 7 * 15, 1 / design_cells))
    table = observed.reshape(design.released_shape)
    ours = cpu_seconds(lambda: family_parameters(table, design, 2, (0, 1), prior_count=0.5, level=0.95))
    return Figure(
        name="parameters of one family in a compound, 16 x 15 x 7",
        ours=ours,
        reference=None,
        ratio=None,
        target="-",
        unit="CPU s",
        note="child and one parent of 16 x 7 x 2 combinations randomized in one draw, marginal channel",
    )


def em_figure() -> Figure:
    """300 steps of the EM at 2^14 cells, not stopped early."""
    transitions = [quantize(binary(0.1, 0.2 + 0.01 * axis)) for axis in range(14)]
    observed = released_table(transitions, 2)
    ours = cpu_seconds(lambda: em_projection(observed, transitions, tolerance=0.0), repeats=2)
    return Figure(
        name="constrained EM, 2^14 cells, 300 steps",
        ours=ours,
        reference=None,
        ratio=None,
        target="< 1 CPU s",
        unit="CPU s",
        met=ours < 1,
    )


def family_figure() -> Figure:
    """All parameters of one family as large as a study usually allows."""
    transitions = [quantize(symmetric(n_states, epsilon=3)) for n_states in (16, 15, 7)]
    observed = released_table(transitions, 3)
    ours = cpu_seconds(lambda: family_parameters(observed, transitions, 2, (0, 1), prior_count=0.5, level=0.95))
    return Figure(
        name="parameters of one family, 16 x 15 x 7",
        ours=ours,
        reference=None,
        ratio=None,
        target="-",
        unit="CPU s",
        note="MAP-EM, unbiased estimate, standard errors and intervals",
    )


def figures() -> Iterator[Figure]:
    """Every figure of this part."""
    for made in (inverse_figure, variance_figure, em_figure, family_figure, compound_figure):
        yield made()

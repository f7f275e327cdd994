"""The learned Bayesian network: a graph, and for each variable its conditional probabilities with their uncertainty.

One layout everywhere: a family's table has the axes (parent_1, .., parent_Q, child), parents ascending by position in the
schema, C order; flattened to two axes it is (n_parent_configurations, n_states), short (J, K), the last parent fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats, read_only
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.schema import Schema

CONFIRMED: Final = 0.5
"""The strength from which on an edge is more than chance and noise explain; below, it is drawn dashed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """How far a family's counts had to be moved to become a distribution, the prior's mass included.

    Attributes:
        mass_moved: half the L1 distance between the unbiased counts and those behind `Family.probability`, as a share of the
            people.
        negative_cells: how many of the unbiased counts are negative.
    """

    mass_moved: float
    negative_cells: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """The conditional probabilities of one variable given its parents. All arrays have the shape (J, K).

    Attributes:
        child: position of the variable in the schema.
        parents: positions of its parents, ascending.
        probability: what is sampled from (by default MAP by the EM counts); rows sum to 1, no negative.
        estimate: the unbiased estimate from the inverse, not clipped; NaN where the parent configuration has no positive count.
        standard_error: total form (sampling and randomization), delta method; NaN where `estimate` is.
        interval_low, interval_high: from `estimate` and `standard_error`, then cut to [0, 1]; NaN where unstable.
        unstable: bool; the parent configuration's estimated count is below 3 of its standard deviations.
        projection: from `estimate`'s counts to those of `probability`; None where it is not known.
        replaced: bool; `probability` is a backed-off value, because too few people are in the cell to tell (`backoff`); what is
            estimated is then NaN. None: there was no such limit.
        implied: the family's own table was not measured: estimate and standard error are those of a joint model of the tables
            that were, by a parametric bootstrap.
    """

    child: int
    parents: tuple[int, ...]
    probability: Floats
    estimate: Floats
    standard_error: Floats
    interval_low: Floats
    interval_high: Floats
    unstable: NDArray[np.bool_]
    projection: Projection | None = None
    replaced: NDArray[np.bool_] | None = None
    implied: bool = False

    def __post_init__(self) -> None:
        for name in ("probability", "estimate", "standard_error", "interval_low", "interval_high"):
            array = read_only(getattr(self, name))
            if array.shape != self.unstable.shape or array.ndim != 2:
                raise ValueError(
                    f"family of variable {self.child}: {name} has shape {array.shape}, expected {self.unstable.shape}"
                )
            object.__setattr__(self, name, array)
        if self.replaced is not None and self.replaced.shape != self.unstable.shape:
            raise ValueError(f"family of variable {self.child}: replaced has shape {self.replaced.shape}")
        if not (self.probability >= 0).all() or not np.allclose(self.probability.sum(axis=1), 1.0, rtol=0, atol=1e-9):
            raise ValueError(f"family of variable {self.child}: a row of probabilities does not sum to 1 within 1e-9")


def sure_family(child: int, parents: tuple[int, ...], theta: Floats) -> Family:
    """Return a family with these probabilities, (J, K), and without standard errors."""
    unknown = np.full(theta.shape, np.nan)
    return Family(
        child=child,
        parents=parents,
        probability=theta,
        estimate=theta,
        standard_error=unknown,
        interval_low=unknown,
        interval_high=unknown,
        unstable=np.zeros(theta.shape, dtype=np.bool_),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairEstimate:
    """What is known of two variables together.

    Attributes:
        first, second: positions of the variables.
        estimate: (K_first, K_second), unbiased shares; can lie outside 0 to 1.
        low, high: ends of intervals that hold together, with the study's level for the whole table.
        exact: neither variable was randomized.
    """

    first: int
    second: int
    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairAccuracy:
    """How far a model is from what is known of two variables together; see `synthesis.shares`.

    Attributes:
        first, second: positions of the variables.
        estimate, low, high: (K_first, K_second), unbiased shares of all people and simultaneous intervals; NaN where not shown.
        network, synthetic: the same shares in the network and among the synthetic records.
        verdict: in words.
        worst: the combination that is farthest outside of its interval, or nearest to its end.
        joint: the shares in the joint model that records come from, which verdict and worst are about; None: from the network.
    """

    first: int
    second: int
    estimate: Floats
    low: Floats
    high: Floats
    network: Floats
    synthetic: Floats
    verdict: str
    worst: tuple[int, int]
    joint: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marginal:
    """A published one-way share of one variable. All arrays have the shape (K,).

    Attributes:
        variable: position in the schema.
        estimate: the unbiased estimate of each category's share, not clipped; NaN where too few people are in it to tell.
        standard_error: total form.
        interval_low, interval_high: from the unclipped estimate, then cut to [0, 1].
        model: the network's own share of each category.
    """

    variable: int
    estimate: Floats
    standard_error: Floats
    interval_low: Floats
    interval_high: Floats
    model: Floats

    def __post_init__(self) -> None:
        for name in ("estimate", "standard_error", "interval_low", "interval_high", "model"):
            object.__setattr__(self, name, read_only(getattr(self, name)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Network:
    """A Bayesian network over a schema.

    Attributes:
        schema: the variables.
        dag: the structure.
        families: one for each variable, in schema order.
    """

    schema: Schema
    dag: Dag
    families: tuple[Family, ...]

    def __post_init__(self) -> None:
        if len(self.families) != len(self.schema) or self.dag.n_variables != len(self.schema):
            raise ValueError(
                f"{len(self.families)} families and {self.dag.n_variables} nodes for {len(self.schema)} variables"
            )
        n_states = self.schema.n_states
        for child, family in enumerate(self.families):
            if family.child != child or family.parents != self.dag.parents[child]:
                raise ValueError(f"family {child} is of variable {family.child} with parents {family.parents}")
            family_shape = (int(np.prod([n_states[p] for p in family.parents], dtype=np.int64)), n_states[child])
            if family.probability.shape != family_shape:
                raise ValueError(
                    f"family of variable {child}: shape {family.probability.shape}, expected {family_shape}"
                )

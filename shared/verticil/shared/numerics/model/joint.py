"""A joint model of all variables: a mixture of products, or weighted records.

Both give the share of any combination of any variables, also given others, and both are a Bayesian network with one root that has
no name among the variables: the component, or the record. What draws from them is `synthesis.joint_records`, what makes them
`verticil.shared.numerics.joint`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats, read_only


def _check_weights(weights: Floats) -> None:
    if weights.ndim != 1 or not len(weights) or not (weights >= 0).all() or not abs(weights.sum() - 1) <= 1e-9:
        raise ValueError(f"{weights.size} weights that are not a distribution")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mixture:
    """A mixture of M products: within a component the variables are independent. Arrays are read-only.

    Attributes:
        weights: (M,), of the components; they sum to 1.
        probability: for each variable (M, K), its distribution in each component; rows sum to 1.

    Raises:
        ValueError: they are no distributions, or do not fit.
    """

    weights: Floats
    probability: tuple[Floats, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", read_only(self.weights))
        object.__setattr__(self, "probability", tuple(map(read_only, self.probability)))
        _check_weights(self.weights)
        for table in self.probability:
            if table.ndim != 2 or len(table) != len(self.weights) or not (table >= 0).all():
                raise ValueError(f"a table of shape {table.shape} for {len(self.weights)} components")
            if not np.allclose(table.sum(axis=1), 1.0, rtol=0, atol=1e-9):
                raise ValueError("a row of probabilities does not sum to 1 within 1e-9")

    @property
    def n_states(self) -> tuple[int, ...]:
        """Number of categories of each variable."""
        return tuple(table.shape[1] for table in self.probability)

    def shares(self, variables: Sequence[int]) -> Floats:
        """Compute the share of every combination of some variables: (K_first, K_second, ..), in their order.

        Args:
            variables: different ones.
        """
        order = sorted(range(len(variables)), key=lambda place: -self.n_states[variables[place]])
        halves: tuple[list[int], list[int]] = ([], [])
        sizes = [1, 1]
        for place in order:  # two halves of about the same number of cells: one product of two matrices
            half = int(sizes[1] < sizes[0])
            halves[half].append(place)
            sizes[half] *= self.n_states[variables[place]]
        first, right = (self._rows([variables[place] for place in half]) for half in halves)
        table = ((first * self.weights[:, None]).T @ right).reshape(
            [self.n_states[variables[place]] for half in halves for place in half]
        )
        return np.ascontiguousarray(table.transpose(np.argsort([*halves[0], *halves[1]])))

    def _rows(self, variables: Sequence[int]) -> Floats:
        """(M, product of the K): the distribution of the variables' combinations in each component."""
        rows = np.ones((len(self.weights), 1))
        for variable in variables:
            rows = (rows[:, :, None] * self.probability[variable][:, None, :]).reshape(len(rows), -1)
        return rows

    def weights_of(self, evidence: Mapping[int, int]) -> Floats:
        """(M,), of each component its weight times the probability of the evidence in it; together that of the evidence."""
        weights = self.weights.copy()
        for variable, code in evidence.items():
            weights *= self.probability[variable][:, code]
        return weights

    def condition_on(self, evidence: Mapping[int, int]) -> Mixture:
        """Return the model given that variables have these codes, which have probability 1 in it.

        Raises:
            ValueError: the evidence is impossible.
        """
        weights = self.weights_of(evidence)
        tables = list(self.probability)
        for variable, code in evidence.items():
            tables[variable] = np.zeros_like(tables[variable])
            tables[variable][:, code] = 1.0
        if not weights.sum() > 0:
            raise ValueError("the evidence is impossible")
        return Mixture(weights=weights / weights.sum(), probability=tuple(tables))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightedRecords:
    """Records with weights: a mixture whose components are single combinations of all variables. Arrays are read-only.

    Attributes:
        n_states: number of categories of each variable.
        codes: (A, d), uint16: the records.
        weights: (A,), of the records; they sum to 1.

    Raises:
        ValueError: the weights are no distribution, or do not fit the records; or a code is none.
    """

    n_states: tuple[int, ...]
    codes: NDArray[np.uint16]
    weights: Floats

    def __post_init__(self) -> None:
        codes = np.array(self.codes, dtype=np.uint16, order="C")
        codes.setflags(write=False)
        object.__setattr__(self, "codes", codes)
        object.__setattr__(self, "weights", read_only(self.weights))
        _check_weights(self.weights)
        if codes.shape != (len(self.weights), len(self.n_states)):
            raise ValueError(
                f"records of shape {codes.shape} for {len(self.weights)} weights and {len(self.n_states)} variables"
            )
        if (codes >= np.array(self.n_states)).any():
            raise ValueError("a record has a code that is none")

    def shares(self, variables: Sequence[int]) -> Floats:
        """Compute shares as `Mixture.shares` does."""
        shape = [self.n_states[variable] for variable in variables]
        cells = np.ravel_multi_index([self.codes[:, variable].astype(np.intp) for variable in variables], shape)
        counts = np.bincount(cells, weights=self.weights, minlength=math.prod(shape))
        return np.asarray(counts, dtype=np.float64).reshape(shape)

    def weights_of(self, evidence: Mapping[int, int]) -> Floats:
        """(A,), of each record its weight, 0 where it has other codes; together the probability of the evidence."""
        return np.where(self._fits(evidence), self.weights, 0.0)

    def _fits(self, evidence: Mapping[int, int]) -> NDArray[np.bool_]:
        fits = np.ones(len(self.codes), dtype=np.bool_)
        for variable, code in evidence.items():
            fits &= self.codes[:, variable] == code
        return fits

    def condition_on(self, evidence: Mapping[int, int]) -> WeightedRecords:
        """Condition as `Mixture.condition_on` does."""
        fits = self._fits(evidence)
        weights = self.weights[fits]
        if not weights.sum() > 0:
            raise ValueError("the evidence is impossible")
        return WeightedRecords(n_states=self.n_states, codes=self.codes[fits], weights=weights / weights.sum())


JointModel = Mixture | WeightedRecords

"""A compound: the codes of several columns of one record as one code, for one draw over their product domain.

The domain is the product of the columns' categories in C order (the first column slowest) without the combinations that the
study declares impossible; a combination's code is its position there. So a removed combination shifts the codes behind it: the
list is part of what a code means (`perturb.compound_digest`).

A record whose combination is declared impossible gets a possible one instead, which is drawn for it (`substitutes`): that
somebody has such a combination keeps no study from being answered.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Compound:
    """The columns of a compound and the domain of their combinations.

    Attributes:
        variables: names of the columns' variables, first slowest.
        n_states: number of categories of each.
        impossible: combinations of codes that are not in the domain, each once.

    >>> pair = Compound(variables=("a", "b"), n_states=(2, 3), impossible=((0, 1),))
    >>> a, b = np.array([0, 0, 0, 1], dtype=np.uint8), np.array([0, 1, 2, 0], dtype=np.uint8)
    >>> pair.encode({"a": a, "b": b}).tolist()
    [0, -1, 1, 2]
    >>> instead = pair.possible({"a": a, "b": b}, np.array([4, 3, 2, 1], dtype=np.uint8))
    >>> instead["a"].tolist(), instead["b"].tolist(), pair.codes(instead).tolist()
    ([0, 1, 0, 1], [0, 1, 2, 0], [0, 3, 1, 2])
    """

    variables: tuple[str, ...]
    n_states: tuple[int, ...]
    impossible: tuple[tuple[int, ...], ...] = ()

    @property
    def n_domain(self) -> int:
        """Number of combinations that have a code, D."""
        return math.prod(self.n_states) - len(self.impossible)

    def encode(self, columns: Mapping[str, Codes]) -> NDArray[np.int32]:
        """Return the code of each record's combination.

        Args:
            columns: (n,) codes of each of `variables`; others are not looked at.

        Returns:
            (n,), int32, 0 <= code < D; -1 where the combination is declared impossible.
        """
        positions = columns[self.variables[0]].astype(np.intp)
        for name, states in zip(self.variables[1:], self.n_states[1:], strict=True):
            positions *= states
            positions += columns[name]
        return _lookup(self.n_states, self.impossible).take(positions)

    def possible(self, columns: Mapping[str, Codes], substitutes: Codes) -> dict[str, Codes]:
        """Replace each combination that is declared impossible by another one.

        Args:
            columns: (n,) codes of each of `variables`.
            substitutes: (n,), codes of combinations, less than D; looked at where one is needed.

        Returns:
            (n,) codes of each of `variables`, read-only, in the dtypes of `columns`.
        """
        impossible = self.encode(columns) < 0
        cells = np.flatnonzero(_lookup(self.n_states, self.impossible) >= 0).take(substitutes)
        results: dict[str, Codes] = {}
        for name, codes in zip(self.variables, np.unravel_index(cells, self.n_states), strict=True):
            mixed_codes = np.where(impossible, codes, columns[name])
            column: Codes = (
                mixed_codes.astype(np.uint8) if columns[name].dtype == np.uint8 else mixed_codes.astype(np.uint16)
            )
            column.setflags(write=False)
            results[name] = column
        return results

    def codes(self, columns: Mapping[str, Codes]) -> Codes:
        """Return the code of each record's combination, in the dtype that perturbation takes.

        Returns:
            (n,), uint8 up to D = 256, else uint16.

        Raises:
            ValueError: a record has an impossible combination; who reads the table has put a `possible` one in its place.
        """
        combinations = self.encode(columns)
        if combinations.size and int(combinations.min()) < 0:
            raise ValueError("a record has a combination that is declared impossible")
        return combinations.astype(np.uint8) if self.n_domain <= 256 else combinations.astype(np.uint16)


@functools.lru_cache(maxsize=16)
def _lookup(n_states: tuple[int, ...], impossible: tuple[tuple[int, ...], ...]) -> NDArray[np.int32]:
    """Code of each cell of the product, in C order; -1 for the impossible ones."""
    possible = np.ones(n_states, dtype=np.bool_)
    for combination in impossible:
        possible[combination] = False
    lookup = np.where(possible, np.cumsum(possible).reshape(n_states) - 1, -1).astype(np.int32).reshape(-1)
    lookup.setflags(write=False)
    return lookup

"""One axis of an observed table: the released entries of a unit, and how they weigh on the cells of a family.

P is the unit's channel, D its true categories, L the combinations of the family's own variables in it, S (D x L) the 0/1 matrix
between them. An entry adds a row of Q = P^-1 S to the estimate of the L cells; `design` says when fewer entries than released
codes are needed. Here are Q and what the uncertainty needs: second moments of weights and of their sums, exact for one code a
record, for subsets as `Channel.products` has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.channel import Channel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitAxis:
    """One axis of an observed table.

    Its L cells are the combinations of the family's own variables of the unit, in C order. Its entries are the unit's released
    codes, or fewer where the marginal channel is used. Matrices are None where they would be the identity.

    Attributes:
        unit: index of the unit.
        members: which axes of the family the cells stand for, slowest first.
        shape: their numbers of categories.
        channel: of the unit.
        cells: (D,) the cell of each category of the unit; None: category and cell are the same.
        merged: (D,) the entry that each released code counts as; None: as it is.
    """

    unit: int
    members: tuple[int, ...]
    shape: tuple[int, ...]
    channel: Channel
    cells: NDArray[np.intp] | None = None
    merged: NDArray[np.intp] | None = None
    _cache: dict[str, Floats] = field(init=False, repr=False, default_factory=dict)

    @property
    def n_cells(self) -> int:
        """Number of cells, L."""
        return math.prod(self.shape)

    @property
    def n_entries(self) -> int:
        """M: the length of the observed axis."""
        return self.channel.n_states if self.merged is None else int(self.merged.max()) + 1

    @property
    def is_linear(self) -> bool:
        """Whether a record has one entry, so that `square` is the elementwise square of `inverse`."""
        return self.channel.codes_per_record == 1

    @property
    def is_marginal(self) -> bool:
        """Whether what is released depends on nothing but the cell: on no variable of the unit that is outside the family."""
        return self.cells is None or self.merged is not None or len(np.unique(self.cells)) == len(self.cells)

    @property
    def forward(self) -> Floats | None:
        """(D', M): probability of each entry given the category; D' = M categories are left where entries are merged."""
        if self.channel.is_identity:
            return None
        entry_codes = self.merged
        if entry_codes is None:
            return self.channel.probabilities
        return self._once(
            "forward", lambda: self.channel.probabilities[self._leaders()] @ np.eye(self.n_entries)[entry_codes]
        )

    @property
    def restore(self) -> Floats | None:
        """(M, D'): the inverse of `forward`."""
        if self.channel.is_identity:
            return None
        entry_codes = self.merged
        if entry_codes is None:
            return self.channel.inverse
        return self._once(
            "restore", lambda: self.channel.inverse[self._leaders()] @ np.eye(self.n_entries)[entry_codes]
        )

    @property
    def spread(self) -> Floats | None:
        """(D', L), 0/1: the cell of each category that is left."""
        cells = self.cells
        if cells is None:
            return None
        return self._once(
            "spread", lambda: np.eye(self.n_cells)[cells if self.merged is None else cells[self._leaders()]]
        )

    @property
    def inverse(self) -> Floats | None:
        """(M, L): Q of the module, `restore` times `spread`."""
        restore, spread = self.restore, self.spread
        if restore is None or spread is None:
            return spread if restore is None else restore
        return self._once("inverse", lambda: restore @ spread)

    @property
    def dense_inverse(self) -> Floats:
        """(M, L): `inverse`, also where it is the identity."""
        return np.eye(self.n_cells) if self.inverse is None else self.inverse

    @property
    def square(self) -> Floats | None:
        """(M, L): second moments of the cells' weights, as in `Channel.inverse_square`."""
        if self.channel.is_identity:
            return self.spread
        spread, inverse = self.spread, self.inverse
        if spread is None or inverse is None:
            return self.channel.inverse_square
        if self.is_linear:
            return self._once("square", lambda: inverse**2)
        if self.merged is None and int(spread.sum(axis=0).max()) == 1:
            return self._once("square", lambda: self.channel.inverse_square @ spread)
        return self._once("square", lambda: self.products(np.eye(self.n_cells), np.eye(self.n_cells)))

    @property
    def possible(self) -> NDArray[np.bool_] | None:
        """(L,): which cells stand for a combination that can be; None: all."""
        if self.cells is None:
            return None
        is_cell = np.zeros(self.n_cells, dtype=np.bool_)
        is_cell[self.cells] = True
        return None if is_cell.all() else is_cell

    def products(self, first: Floats, second: Floats) -> Floats:
        """(M, R): second moments of sums of the cells' weights; `first` and `second` are (L, R), see `Channel.products`."""
        if self.cells is not None:
            first, second = first[self.cells], second[self.cells]
        products = self.channel.products(first, second)
        return products if self.merged is None else products[self._leaders()]

    def child_products(self) -> Floats:
        """(M, L K): second moments of the cells (c, k) and (c, l) for every c, k and l, in this order; K of the last member."""
        n_states = self.shape[-1]
        single = np.eye(self.n_cells)
        first = np.repeat(single, n_states, axis=1)
        second = np.repeat(single.reshape(self.n_cells, -1, 1, n_states), n_states, axis=2).reshape(self.n_cells, -1)
        return self.products(first, second)

    def ratio_moments(self) -> tuple[Floats, Floats, Floats]:
        """(M, L) each: second moments of (c, k) with itself, of (c, k) with the sum over k, and of that sum with itself.

        Only where the last member shares the axis; alone, the sum is 1 for every record.
        """
        single = np.eye(self.n_cells)
        row = self._same_but_last()
        return self.products(single, single), self.products(single, row), self.products(row, row)

    def ratio_gains(self) -> tuple[Floats, Floats, Floats]:
        """(L,) each: the same for noise of variance 1 on every entry."""
        inverse = self.dense_inverse
        row = inverse @ self._same_but_last()
        return (inverse**2).sum(axis=0), (inverse * row).sum(axis=0), (row**2).sum(axis=0)

    def joint_shares(self, shares: Floats) -> Floats:
        """(M, M): mean product of a record's shares of two entries, given their means (M,): shares of the released records.

        What two members of a set have to do with each other is not in a table of counts, but follows from the true shares.
        """
        if self.is_linear:
            return np.asarray(np.diag(shares), dtype=np.float64)
        true = shares if self.restore is None else shares @ self.restore
        if self.merged is None:
            return self.channel.joint_shares(true)
        classes = np.eye(self.n_entries)[self.merged]
        return np.asarray(classes.T @ self.channel.joint_shares(classes @ (true / classes.sum(axis=0))) @ classes)

    def covariance(self, shares: Floats) -> Floats:
        """(M, M): covariance of a record's shares of the entries, given their means (M,); of a subset by true shares >= 0."""
        restore = self.restore
        if not self.is_linear and restore is not None and self.forward is not None:
            true = np.maximum(shares @ restore, 0.0)
            shares = true / true.sum() @ self.forward
        return np.asarray(self.joint_shares(shares) - np.outer(shares, shares), dtype=np.float64)

    def without_last(self) -> UnitAxis:
        """Return the same entries, and the cells summed over the last member."""
        cells = np.arange(self.n_cells, dtype=np.intp) if self.cells is None else self.cells
        return UnitAxis(
            unit=self.unit,
            members=self.members[:-1],
            shape=self.shape[:-1],
            channel=self.channel,
            cells=cells // self.shape[-1],
            merged=self.merged,
        )

    def _same_but_last(self) -> Floats:
        """(L, L), 0/1: the cells that differ in the last member only."""
        size = self.shape[-1]
        return np.asarray(np.kron(np.eye(self.n_cells // size), np.ones((size, size))), dtype=np.float64)

    def _leaders(self) -> NDArray[np.intp]:
        """(M,): the first released code of each entry."""
        return np.unique(self.merged, return_index=True)[1] if self.merged is not None else np.arange(self.n_entries)

    def _once(self, name: str, make: Callable[[], Floats]) -> Floats:
        if name not in self._cache:
            matrix = make()
            matrix.setflags(write=False)
            self._cache[name] = matrix
        return self._cache[name]


def contrast_factor(axis: UnitAxis) -> float:
    """Return how much of a contrast between categories the randomization leaves, 0 to 1.

    1 over the square root of the variance that the estimate of the cells has, in relation to counts without randomization, for
    true categories that are equally frequent. Of K-ary randomized response it is the eigenvalue on contrasts, 1 - K p.

    >>> from verticil.shared.numerics.estimation.inverse_estimation import as_design
    >>> from verticil.shared.mechanisms.transition import quantize, symmetric
    >>> round(contrast_factor(as_design([quantize(symmetric(4, flip=0.1))]).axes[0]), 9)
    0.6
    """
    channel, square = axis.channel, axis.square
    if channel.is_identity or square is None:
        return 1.0
    entries = channel.probabilities.mean(axis=0)
    if axis.merged is not None:
        entries = np.bincount(axis.merged, weights=entries, minlength=axis.n_entries)
    if axis.cells is None:
        shares = np.full(axis.n_cells, 1 / axis.n_cells)
    else:
        shares = np.bincount(axis.cells, minlength=axis.n_cells) / len(axis.cells)
    free = 1 - float(shares @ shares)
    noisy = float(entries @ square.sum(axis=1)) - float(shares @ shares)
    return 1.0 if free <= 0 else min(1.0, math.sqrt(free / noisy))

"""How the columns of a family were randomized: which released column stands for which variables, in every case of the paper.

A family's variables are spread over units: single columns, or compounds whose variables were randomized in one draw. Each touched
unit gives one axis of the observed table, with its M released entries. The cases of Ma & Sivakumar, section 5:

    (a) all variables are randomized on their own: one axis for each;
    (b) some parents are in one compound: they share an axis;
    (c) the child is in a compound with a parent: they share an axis, the last one;
    (d) a compound has variables outside the family.

All are one thing, a rectangular inverse for each axis. With S (D x L) the 0/1 matrix from a unit's D true categories to the L
cells of the family's own variables in it, Q = P^-1 S (M x L): corrected over the unit's whole domain, then summed out.
Combinations that are removed from a domain are in no row of S, so their columns of Q are empty and their counts exactly 0.

On (d) the paper proposes the marginal transition matrix R of the variables inside. There is one only where P S = S R, that is
where the released values of the variables inside do not depend on the true ones outside; then Q = S R^-1, the same estimate
from fewer released entries. It is verified on the whole numbers of P (`Channel.lumps`). Where it does not hold, the marginal
channel depends on the unknown P(outside | inside), and a matrix made from a guess of it is wrong; the whole domain is corrected.

This module is about matrices and layouts; `estimators` and `parameters` use them on tables.

The matrix that randomizes a whole table is the Kronecker product of its columns' matrices (Ma & Sivakumar, section 5). It is
never formed: each axis of the table is multiplied by its own K x K matrix, which costs K times the cells. For a row vector of
counts E[N~] = N P, so N^ = N~ P^-1 is unbiased. Its sum is that of N~, and summing it over an axis gives the estimate of the
smaller table, both because the rows of P^-1 sum to 1. Estimates can be negative; `estimators` projects them.

Covariance, with z_y the row of P^-1 that belongs to the released cell y (the weight that such a record adds to each cell):

    Cov_total[N^] = sum_y N~_y z_y z_y^T - N^ N^^T / n         sampling and randomization
    Cov_pram[N^]  = sum_y N~_y z_y z_y^T - diag(N^)            randomization alone, the records being fixed

which needs no true counts; with E[N~] in the place of N~ the second is exactly Theorem 2 of the paper. A column that is not
randomized has no matrix here (None), and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.mechanisms.channel import Channel
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.unit_axis import UnitAxis

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnUnit:
    """One released column.

    Attributes:
        variables: positions of its variables in the schema; several are a compound, the first slowest.
        domain: the combinations of codes that the column's categories stand for, in their order; None for a single variable.
        channel: how it was randomized.

    Raises:
        ValueError: the domain does not fit the variables or the channel.
    """

    variables: tuple[int, ...]
    domain: tuple[tuple[int, ...], ...] | None
    channel: Channel

    def __post_init__(self) -> None:
        if self.domain is None:
            if len(self.variables) != 1:
                raise ValueError(f"a column of the variables {self.variables} needs its domain")
        elif len(self.domain) != self.channel.n_states or any(len(c) != len(self.variables) for c in self.domain):
            raise ValueError(
                f"a domain of {len(self.domain)} combinations for {len(self.variables)} variables and a channel of "
                f"{self.channel.n_states} categories"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FamilyDesign:
    """The axes of a family's observed table, and how its estimate becomes a table of the family's own variables.

    Attributes:
        axes: of the observed table; `family_design` puts the child's last, and the child last among its members.
        shape: numbers of categories of the family's variables: the parents and, last, the child.
        allowed: of this shape: which combinations rules leave possible, whatever was randomized how; None: all.
    """

    axes: tuple[UnitAxis, ...]
    shape: tuple[int, ...]
    allowed: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if sorted(self._members()) != list(range(len(self.shape))):
            raise ValueError(f"the axes stand for the members {self._members()} of a family of {len(self.shape)}")

    @property
    def units(self) -> tuple[int, ...]:
        """Indices of the units whose columns are counted, in the order of the axes."""
        return tuple(axis.unit for axis in self.axes)

    @property
    def released_shape(self) -> tuple[int, ...]:
        """Shape of the observed table."""
        return tuple(axis.n_entries for axis in self.axes)

    def under(self, possible: NDArray[np.bool_] | None) -> FamilyDesign:
        """Return the same design where rules leave these combinations possible (of its shape; None: all)."""
        return self if possible is None else replace(self, allowed=possible)

    @property
    def possible(self) -> NDArray[np.bool_] | None:
        """Of the family's shape: which cells can be; None: all."""
        parts = [axis.possible for axis in self.axes]
        if all(part is None for part in parts):
            return self.allowed
        table = np.ones((), dtype=np.bool_)
        for axis, part in zip(self.axes, parts, strict=True):
            table = np.multiply.outer(table, np.ones(axis.n_cells, dtype=np.bool_) if part is None else part)
        return self.arrange(table) if self.allowed is None else self.arrange(table) & self.allowed

    @property
    def allowed_cells(self) -> NDArray[np.bool_] | None:
        """`allowed` with one axis of cells for each unit, as it was before `arrange`."""
        if self.allowed is None:
            return None
        return self.allowed.transpose(self._members()).reshape([axis.n_cells for axis in self.axes])

    @property
    def allowed_categories(self) -> NDArray[np.bool_] | None:
        """`allowed` with one axis for each unit, of the categories that an EM runs over."""
        cells = self.allowed_cells
        if cells is None:
            return None
        spread = [axis.spread for axis in self.axes]
        places = [np.arange(k) if s is None else s.argmax(axis=1) for k, s in zip(cells.shape, spread, strict=True)]
        return np.asarray(cells[np.ix_(*places)])

    @property
    def parents(self) -> FamilyDesign:
        """The design of the parents alone; its observed table is `parents_table`. At least one parent."""
        *others, last = self.axes
        rest = (last.without_last(),) if len(last.members) > 1 else ()
        return FamilyDesign(axes=(*others, *rest), shape=self.shape[:-1])

    def parents_table(self, table: Counts) -> Counts:
        """Return what `parents` estimates from: the observed table, summed over the child where it has an axis of its
        own.
        """
        return table if len(self.axes[-1].members) > 1 else table.sum(axis=-1)

    def fits(self, table: Counts) -> None:
        """Check the shape of an observed table.

        Raises:
            ValueError: it is not `released_shape`.
        """
        if table.ndim != len(self.axes):
            raise ValueError(f"{len(self.axes)} transitions for a table of {table.ndim} axes")
        if table.shape != self.released_shape:
            raise ValueError(f"the table has shape {table.shape}, expected {self.released_shape}")

    def arrange(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """Bring a table with one axis of cells for each unit into the family's shape, C order."""
        apart = table.reshape([states for axis in self.axes for states in axis.shape])
        members = self._members()
        order = sorted(range(len(members)), key=members.__getitem__)
        return np.ascontiguousarray(apart.transpose(order))

    def estimate(self, table: Counts) -> Floats:
        """Estimate the family's true counts without bias: (K_parent_1, .., K_child); cells may be negative.

        >>> from verticil.shared.mechanisms.transition import binary, quantize
        >>> as_design([quantize(binary(0.1, 0.25))]).estimate(np.array([64, 36])).round(9).tolist()
        [60.0, 40.0]
        """
        self.fits(table)
        return self.arrange(apply_axes(table, [axis.inverse for axis in self.axes]))

    def second_moment(self, table: Counts) -> Floats:
        """Sum over the records of the square of the weight that each adds to a cell: (K_parent_1, .., K_child).

        Where several categories of a subset's compound are one cell, its expectation given the true records.
        """
        self.fits(table)
        return self.arrange(apply_axes(table, [axis.square for axis in self.axes]))

    def variance_total(self, table: Counts) -> Floats:
        """Variance of each estimated count, over sampling and randomization: the diagonal of Cov_total."""
        n = max(float(table.sum()), 1.0)
        estimate = self.estimate(table)
        return np.maximum(self.second_moment(table) - estimate**2 / n, 0.0)

    def variance_pram(self, table: Counts) -> Floats:
        """Variance of each estimated count over the randomization alone: the diagonal of Cov_pram, cut at 0."""
        return np.maximum(self.second_moment(table) - self.estimate(table), 0.0)

    def noise_gain(self) -> Floats:
        """Variance of each estimated count when the cells of the observed table have independent noise of variance 1."""
        table = np.ones(())
        for axis in self.axes:
            gain = np.ones(axis.n_cells) if axis.inverse is None else (axis.inverse**2).sum(axis=0)
            table = np.multiply.outer(table, gain)
        return self.arrange(np.asarray(table, dtype=np.float64))

    def _members(self) -> tuple[int, ...]:
        return tuple(member for axis in self.axes for member in axis.members)


Design: TypeAlias = FamilyDesign | Sequence[Channel]
"""A design; or, where every variable was randomized on its own, the channel of each axis."""


def as_design(design: Design) -> FamilyDesign:
    """Channels of single variables as a design; a design as it is."""
    if isinstance(design, FamilyDesign):
        return design
    axes = (
        UnitAxis(unit=place, members=(place,), shape=(channel.n_states,), channel=channel)
        for place, channel in enumerate(design)
    )
    return FamilyDesign(axes=tuple(axes), shape=tuple(channel.n_states for channel in design))


def family_design(units: Sequence[ColumnUnit], n_states: Sequence[int], axes: Sequence[int]) -> FamilyDesign:
    """Return the design of one family.

    Args:
        units: the released columns; every variable of the family is in exactly one.
        n_states: number of categories of every variable of the schema.
        axes: positions of the family's variables in the schema: the parents, then the child.

    Returns:
        Its axes are in the order in which the parents first touch a unit, the child's unit last.

    Raises:
        ValueError: a variable is twice in the family, or not in exactly one unit; or a domain holds a code that is none.

    >>> from verticil.shared.mechanisms.transition import binary, identity, quantize
    >>> pair = ColumnUnit(variables=(0, 2), domain=((0, 0), (0, 1), (1, 0)), channel=quantize(identity(3)))
    >>> alone = ColumnUnit(variables=(1,), domain=None, channel=quantize(binary(0.1, 0.25)))
    >>> design = family_design([pair, alone], (2, 2, 2), (0, 1, 2))
    >>> design.units, design.released_shape, design.shape
    ((1, 0), (2, 3), (2, 2, 2))
    """
    holders = [[index for index, unit in enumerate(units) if variable in unit.variables] for variable in axes]
    if not axes or len(set(axes)) != len(axes) or any(len(indices) != 1 for indices in holders):
        raise ValueError(f"the variables {tuple(axes)} are not all different, or not in exactly one unit each")
    *of_parents, of_child = [index for (index,) in holders]
    unit_order = [*dict.fromkeys(index for index in of_parents if index != of_child), of_child]
    places = {variable: place for place, variable in enumerate(axes)}
    return FamilyDesign(
        axes=tuple(_unit_axis(index, units[index], n_states, places) for index in unit_order),
        shape=tuple(n_states[variable] for variable in axes),
    )


def _unit_axis(index: int, unit: ColumnUnit, n_states: Sequence[int], places: Mapping[int, int]) -> UnitAxis:
    inside = sorted((variable for variable in unit.variables if variable in places), key=places.__getitem__)
    shape = tuple(n_states[variable] for variable in inside)
    members = tuple(places[variable] for variable in inside)
    if unit.domain is None:
        if unit.channel.n_states != shape[0]:
            raise ValueError(
                f"unit {index}: a channel of {unit.channel.n_states} categories for a variable of {shape[0]}"
            )
        return UnitAxis(unit=index, members=members, shape=shape, channel=unit.channel)
    codes = np.array(unit.domain, dtype=np.intp)[:, [unit.variables.index(variable) for variable in inside]]
    cells = np.zeros(len(codes), dtype=np.intp)
    for column, states in zip(codes.T, shape, strict=True):
        if column.size and int(column.max()) >= states:
            raise ValueError(f"unit {index}: a combination has a code that is not below {states}")
        cells = cells * states + column
    distinct, classes = np.unique(cells, return_inverse=True)
    if len(distinct) == len(cells):
        in_order = np.array_equal(cells, np.arange(math.prod(shape)))
        return UnitAxis(
            unit=index, members=members, shape=shape, channel=unit.channel, cells=None if in_order else cells
        )
    entry_codes = classes.astype(np.intp) if unit.channel.lumps(classes.tolist()) else None
    return UnitAxis(unit=index, members=members, shape=shape, channel=unit.channel, cells=cells, merged=entry_codes)

"""Where the variables' probabilities and the units' released entries stand in one long row, and the way from one to the other.

A mixture's components are rows of S numbers, the probabilities of all variables one after another (S = sum of K). What they
would be released as are rows of E numbers, the entries of all units one after another: a unit of one variable has that variable's
probabilities times its channel; a compound has the product of its variables' probabilities over its domain, times its channel.
Then the released tables of all pairs of units are the blocks of one E x E matrix product, and a gradient goes the same way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit

Singles = NDArray[np.float32]
"""Single precision: a product of such rows has a relative error near 1e-6, far below the noise of any table of people."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """See the module.

    Attributes:
        n_states: number of categories of each variable.
        units: the columns as they were measured.
        runs: for each unit the run of each of its entries, where what is released are the sums of runs; empty: the entries.
        variables: the columns of each variable in a row of S.
        entries: the columns of each unit in a row of E.
        n_entries: E.
        ends: (d,) where each variable's columns end.
    """

    n_states: tuple[int, ...]
    units: tuple[ColumnUnit, ...]
    runs: tuple[NDArray[np.intp], ...] = ()
    variables: tuple[slice, ...] = field(init=False)
    entries: tuple[slice, ...] = field(init=False)
    n_entries: int = field(init=False)
    ends: NDArray[np.int64] = field(init=False)
    _domains: tuple[tuple[NDArray[np.intp], ...], ...] = field(init=False)
    _channels: tuple[Singles | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        width = [unit.channel.n_states for unit in self.units]
        if self.runs:
            width = [int(run.max()) + 1 for run in self.runs]
        object.__setattr__(self, "variables", _slices(self.n_states))
        object.__setattr__(self, "entries", _slices(width))
        object.__setattr__(self, "n_entries", sum(width))
        object.__setattr__(self, "ends", np.cumsum(self.n_states, dtype=np.int64))
        domains = tuple(
            tuple(
                np.array([codes[place] for codes in unit.domain], dtype=np.intp) + self.variables[variable].start
                for place, variable in enumerate(unit.variables)
            )
            if unit.domain is not None
            else ()
            for unit in self.units
        )
        object.__setattr__(self, "_domains", domains)
        channels = tuple(
            None if unit.channel.is_identity and self._is_fine(place) else self._single(place)
            for place, unit in enumerate(self.units)
        )
        object.__setattr__(self, "_channels", channels)

    def _is_fine(self, unit: int) -> bool:
        """Return whether each entry of a unit is a run of its own, in their order."""
        return not self.runs or np.array_equal(self.runs[unit], np.arange(len(self.runs[unit])))

    def _single(self, unit: int) -> Singles:
        """Return a unit's channel, (K, entries): its cells, or their sums over runs."""
        channel = self.units[unit].channel
        probabilities = np.eye(channel.n_states) if channel.is_identity else channel.probabilities
        if self.runs:
            probabilities = probabilities @ np.eye(int(self.runs[unit].max()) + 1)[self.runs[unit]]
        return np.ascontiguousarray(probabilities, dtype=np.float32)

    def released(self, rows: Singles, *, squared: bool = False) -> Singles:
        """Return what rows of probabilities are released as: (.., S) to (.., E).

        Args:
            rows: of S columns.
            squared: through the squares of the channels' cells, for the variance given the records.
        """
        out = np.empty((*rows.shape[:-1], self.n_entries), dtype=rows.dtype)
        for unit, columns, domain, channel in zip(self.units, self.entries, self._domains, self._channels, strict=True):
            true = _product(rows, domain) if domain else rows[..., self.variables[unit.variables[0]]]
            if channel is None:
                out[..., columns] = true
            else:
                matrix = channel.astype(rows.dtype, copy=False)
                np.matmul(true, matrix * matrix if squared else matrix, out=out[..., columns])
        return out

    def back(self, rows: Singles, gradient: Singles) -> Singles:
        """Return the gradient for rows of probabilities, (.., S), from the one for what they are released as, (.., E)."""
        out = np.zeros_like(rows)
        for unit, columns, domain, channel in zip(self.units, self.entries, self._domains, self._channels, strict=True):
            part = gradient[..., columns]
            if channel is not None:
                part = part @ channel.T.astype(rows.dtype, copy=False)
            if not domain:
                out[..., self.variables[unit.variables[0]]] = part
                continue
            for place, index in enumerate(domain):
                others = [other for at, other in enumerate(domain) if at != place]
                cells = part * _product(rows, others) if others else part
                member = self.variables[unit.variables[place]]
                sums = index[:, None] == np.arange(member.start, member.stop)
                out[..., member] = cells @ sums.astype(rows.dtype)
        return out


def _slices(widths: Sequence[int]) -> tuple[slice, ...]:
    ends = np.cumsum(widths).tolist()
    return tuple(slice(end - width, end) for end, width in zip(ends, widths, strict=True))


def _product(rows: Singles, places: Sequence[NDArray[np.intp]]) -> Singles:
    """Return the products of the columns of several variables, over the combinations of a domain."""
    product = rows[..., places[0]]
    for place in places[1:]:
        product = product * rows[..., place]
    return product

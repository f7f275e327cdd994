"""When a fit has come as near to the tables as their noise lets anybody tell: the discrepancy principle (Morozov, 1966).

Beyond that a model is fitted to the noise. The true model itself is not nearer to the tables than their variance, which is known:

* Noise on the tables: the discrepancy is X / N, X the sum over all N cells of (e - f)^2 / variance. The truth's is 1, give or
  take (2 / N)^.5, which in few cells hides more than there is to see; and a fit at its best, which has taken up some of the
  noise, is well below. What it has taken up are its degrees of freedom, df: the mean, over all noise there could be, of the sum
  over cells of noise * e / variance. They are measured (Ramani, Blu & Unser, 2008): a fit to tables that are moved by
  `Tuning.moved` standard deviations, up or down, has moved too, and df is how far with them. X + 2 df - N is the fit's squared
  error without bias (Stein, 1981), and its level does not matter for where it is least. Records are judged by absolute
  differences, to which what many small cells took up adds more: X + `Tuning.penalty` df is made least.
* Exact counts or randomized records: the people are who they are, so the variance is that of the randomization alone, *given the
  records*: V = e - (C o C)^T pi (C o C), per person (o: elementwise; of a released set of w entries e / w instead of e). A model
  matches margins at once, so what they say is taken out of the residual e - f: r q^T + q r^T, with q the model's margins and
  r = q minus those observed. The rest is compared with the part of the variance that remains then (`targets.degrees`). Cells
  weigh 1 / m, m = max(q q^T, .5 / n). Where both columns are as they are, V is `Tuning.exact_variance` times e.

That a variance is right can be seen from it: at a wrong one the fit stops at once or never.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.joint.layout import Singles
from verticil.shared.numerics.joint.targets import OtherTable, Targets, degrees, expected_table
from verticil.shared.numerics.joint.tuning import TUNING

_ROUNDING: Final = 1e-5  # of a cell's expected count: what sums of many cells in single precision are off by


class Discrepancy:
    """Measures one model after another against the targets of all resolutions.

    Attributes:
        goal: of the discrepancy: of records where to stop, with noise what chance lets the truth's be, two standard errors.
        needs_squares: whether `begin` wants the rows through the squared channels.
        discrepancy: of the last model.
        risk: the same of records; with noise what is made least.
    """

    def __init__(self, sets: Sequence[Targets]) -> None:
        self._targets = sets[0]
        self._noisy, self._cells = sets[0].noisy, sum(each.cells for each in sets)
        self.goal = 1 + 2 * math.sqrt(2 / self._cells) if self._noisy else 1.0
        self.needs_squares = not self._noisy
        self._degrees = math.nan if self._noisy else degrees(sets[0])

    def begin(self) -> None:
        """Begin with a model."""
        self._missed = self._variance = self._freedom = self._people = 0.0

    def turn_to(
        self, targets: Targets, released: Singles, squares: Singles | None, weights: Singles | None = None
    ) -> None:
        """Turn to the tables of one resolution.

        Args:
            targets: theirs.
            released: (m, E): the model's components as they would be released.
            squares: the same through the squared channels, where they are needed.
            weights: (m,) of the components, that sum to 1; None: all alike.
        """
        self._targets, self._released, self._squares, self._weights = targets, released, squares, weights
        self._margins = expected_table([released], weights)

    def add_pairs(self, block: slice, onward: slice, expected: Singles) -> None:
        """Add some rows of the tables of all pairs, from the diagonal on: (rows, columns), as the model has them released."""
        targets = self._targets
        weight = targets.weight[block, onward]
        residual = expected - targets.observed[block, onward]
        if targets.noisy:
            residual *= residual
            residual *= weight
            self._missed += _each_once(residual)
            return
        q = self._margins
        r = q - targets.margins
        residual -= r[block, None] * q[onward]
        residual -= q[block, None] * r[onward]
        scale = weight / np.maximum(q[block, None] * q[onward], np.float32(0.5 / targets.n))
        residual *= residual
        residual *= scale
        self._missed += _each_once(residual) * targets.n / self._degrees
        self._variance += _each_once(self._pair_variance(block, onward, expected) * scale)
        self._people += _each_once(expected * scale)

    def _pair_variance(self, block: slice, onward: slice, expected: Singles) -> Singles:
        targets, squares = self._targets, self._squares
        assert squares is not None
        per_record = targets.per_record
        own = squares[:, block]
        if self._weights is not None:
            own = own * (len(squares) * self._weights)[:, None]
        variance = own.T @ squares[:, onward]
        variance /= -len(squares)
        variance += expected / (per_record[block, None] * per_record[onward])
        exact = targets.plain[block, None] * targets.plain[onward]
        variance *= 1 - exact
        variance += exact * np.float32(TUNING.exact_variance) * expected
        return variance

    def add_other(self, other: OtherTable) -> None:
        """Add a table of one unit, or of three and more."""
        targets = self._targets
        places = [targets.layout.entries[unit] for unit in other.units]
        expected = expected_table([self._released[:, place] for place in places], self._weights)
        residual = (expected - other.shares).astype(np.float64)
        if targets.noisy:
            self._missed += float((residual**2 * other.weight).sum())
            return
        m = np.ones((), np.float64)
        for place in places:
            m = np.multiply.outer(m, self._margins[place].astype(np.float64))
        m = np.maximum(m, 0.5 / targets.n)
        if other.exact:
            variance = TUNING.exact_variance * expected.astype(np.float64)
        else:
            assert self._squares is not None
            sizes = math.prod(float(targets.per_record[place.start]) for place in places)
            square = expected_table([self._squares[:, place] for place in places], self._weights)
            variance = expected.astype(np.float64) / sizes - square
        self._missed += float((residual**2 / m).sum()) * targets.n
        self._variance += float((variance / m).sum())
        self._people += float((expected / m).sum())

    def add_twin(self, moved: Singles, block: bool, twins: int) -> None:
        """Add what a twin has of the move of some cells' tables.

        Args:
            moved: of each cell, how far e moved times how far f did, over the variance.
            block: of pairs, as in `add_pairs`.
            twins: how many there are.
        """
        both = _each_once(moved) if block else float(moved.sum(dtype=np.float64))
        self._freedom += both / (TUNING.moved**2 * twins)

    def end(self) -> None:
        """Measure the model that was added.

        Columns whose randomization moves next to nobody have a variance that single precision cannot tell from none, or from one
        below: they are as columns that are as they are.
        """
        if not self._noisy and self._variance <= _ROUNDING * self._people:
            self._variance = TUNING.exact_variance * self._people
        self.discrepancy = self._missed / (self._cells if self._noisy else self._variance)
        self.risk = self._missed + TUNING.penalty * self._freedom if self._noisy else self.discrepancy

    def is_over(self, step: int, best: int) -> bool:
        """Return whether a fit that is at a step, and was best at another one, stops."""
        if self._noisy:
            return step > TUNING.beyond[0] * best + TUNING.beyond[1]
        return self.discrepancy <= self.goal


def _each_once(cells: Singles | Floats) -> float:
    """Return the sum of a block's cells, those of the square on the diagonal, which are there twice, halved."""
    return float(cells.sum(dtype=np.float64)) - float(cells[:, : len(cells)].sum(dtype=np.float64)) / 2

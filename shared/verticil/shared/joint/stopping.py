"""When a fit has come as near to the tables as their noise lets anybody tell: the discrepancy principle (Morozov, 1966).

Beyond that a model is fitted to the noise. The true model itself is not nearer to the tables than their variance, which is known:

* Noise on the tables: the mean over all cells of (e - f)^2 / variance; the goal is `NOISE_GOAL`.
* Exact counts or randomized records: the people are who they are, so the variance is that of the randomization alone, *given the
  records*: V = e - (C o C)^T pi (C o C), per person (o: elementwise; of a released set of w entries e / w instead of e). A model
  matches margins at once, so what they say is taken out of the residual, Di = D - r q^T - q r^T with q the model's margins and r
  theirs minus the observed ones, and compared with the part of the variance that remains then (`targets.degrees`). Cells weigh
  1 / m, m = max(q q^T, .5 / n). Where both columns are as they are, V is `targets.EXACT_VARIANCE` times e.

That a variance is right can be seen from it: at a wrong one the fit stops at once or never.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from verticil.shared.joint.layout import Singles
from verticil.shared.joint.targets import EXACT_VARIANCE, OtherTable, Targets, degrees, expected_table

NOISE_GOAL: Final = 0.98
RECORDS_GOAL: Final = 1.0


class Discrepancy:
    """Measures one model after another against the targets.

    Attributes:
        goal: where to stop.
        needs_squares: whether `begin` wants the rows through the squared channels.
    """

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self.goal = NOISE_GOAL if targets.noisy else RECORDS_GOAL
        self.needs_squares = not targets.noisy
        self._degrees = math.nan if targets.noisy else degrees(targets)

    def begin(self, released: Singles, squares: Singles | None) -> None:
        """Begin with a model.

        Args:
            released: (m, E): its components, of equal weight, as they would be released.
            squares: the same through the squared channels, where they are needed.
        """
        self._released, self._squares = released, squares
        self._margins = released.mean(axis=0)
        self._missed = self._variance = 0.0

    def add_pairs(self, block: slice, onward: slice, expected: Singles) -> None:
        """Add some rows of the tables of all pairs, from the diagonal on: (rows, columns), as the model has them released."""
        targets = self._targets
        weight = targets.weight[block, onward]
        residual = expected - targets.shares[block, onward]
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

    def _pair_variance(self, block: slice, onward: slice, expected: Singles) -> Singles:
        targets, squares = self._targets, self._squares
        assert squares is not None
        per_record = targets.per_record
        variance = squares[:, block].T @ squares[:, onward]
        variance /= -len(squares)
        variance += expected / (per_record[block, None] * per_record[onward])
        exact = targets.plain[block, None] * targets.plain[onward]
        variance *= 1 - exact
        variance += exact * np.float32(EXACT_VARIANCE) * expected
        return variance

    def add_other(self, other: OtherTable) -> None:
        """Add a table of one unit, or of three and more."""
        targets = self._targets
        places = [targets.layout.entries[unit] for unit in other.units]
        expected = expected_table([self._released[:, place] for place in places])
        residual = (expected - other.shares).astype(np.float64)
        if targets.noisy:
            self._missed += float((residual**2 * other.weight).sum())
            return
        m = np.ones((), np.float64)
        for place in places:
            m = np.multiply.outer(m, self._margins[place].astype(np.float64))
        m = np.maximum(m, 0.5 / targets.n)
        if other.exact:
            variance = EXACT_VARIANCE * expected.astype(np.float64)
        else:
            assert self._squares is not None
            sizes = math.prod(float(targets.per_record[place.start]) for place in places)
            square = expected_table([self._squares[:, place] for place in places])
            variance = expected.astype(np.float64) / sizes - square
        self._missed += float((residual**2 / m).sum()) * targets.n
        self._variance += float((variance / m).sum())

    def end(self) -> float:
        """The discrepancy of the model that was added."""
        return self._missed / (self._targets.cells if self._targets.noisy else self._variance)


def _each_once(cells: Singles) -> float:
    """The sum of a block's cells, those of the square on the diagonal, which are there twice, halved."""
    return float(cells.sum(dtype=np.float64)) - float(cells[:, : len(cells)].sum(dtype=np.float64)) / 2

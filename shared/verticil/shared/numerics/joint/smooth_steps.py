"""Steps of a fit that keep neighbouring categories together, for columns whose categories have an order.

The logits of an ordered column move in the basis of orthonormal polynomials of its categories' ranks (under their noisy shares,
half mixed with equal ones), the r-th scaled by 1 / (1 + ((r - 1) / 2)^2) for r > 1. Adam takes steps of one length in every
coordinate, so a slope is learned before a curve, and a curve before what tells one category from the next, which is mostly noise
(P-splines: Eilers & Marx, 1996). The basis is complete: nothing is forbidden, and the stop decides how much of it is used.
Categories without a place in the order (missing, a point) have coordinates of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.joint.layout import Layout, Singles

RATE: Final = 0.15
"""Of a step in a smooth coordinate."""
Places: TypeAlias = "slice | NDArray[np.intp]"
"""Of some logits; a slice where they are neighbours, which is quicker."""
_LEAST: Final = 3
"""Ordered categories; fewer have nothing to be smooth about."""


@dataclass(frozen=True, slots=True, eq=False)
class SmoothSteps:
    """The coordinates of all logits, variable by variable.

    Attributes:
        places: of each ordered variable, where its ordered categories stand among the S logits.
        bases: of each, (k, k): columns are polynomials by degree, scaled.
        faster: (S,) what a step is multiplied by, in each coordinate.
    """

    places: tuple[Places, ...]
    bases: tuple[Singles, ...]
    faster: Singles

    def coordinates(self, gradient: Singles) -> Singles:
        """Return the gradient for the coordinates, from that for the logits, (.., S); in place."""
        for places, basis in zip(self.places, self.bases, strict=True):
            gradient[..., places] = gradient[..., places] @ basis
        return gradient

    def logits(self, step: Singles) -> Singles:
        """Return a step of the logits, from one of the coordinates, (.., S); in place."""
        step *= self.faster
        for places, basis in zip(self.places, self.bases, strict=True):
            step[..., places] = step[..., places] @ basis.T
        return step


def smooth_steps(
    layout: Layout, orders: Sequence[Sequence[int]], start: Sequence[Floats], rate: float
) -> SmoothSteps | None:
    """Return the coordinates of a fit; None: no variable has an order.

    Args:
        layout: of the logits.
        orders: of each variable the codes of its ordered categories.
        start: of each variable the shares of its categories.
        rate: of a step of a logit that is in no order.
    """
    places, bases = list[Places](), list[Singles]()
    faster = np.ones(sum(layout.n_states), np.float32)
    for columns, order, shares in zip(layout.variables, orders, start, strict=False):
        if len(order) < _LEAST:
            continue
        own = np.asarray(order, np.intp)
        first = columns.start + int(own[0])
        neighbours = np.array_equal(own, np.arange(own[0], own[0] + len(own)))
        places.append(slice(first, first + len(own)) if neighbours else own + columns.start)
        bases.append(basis_of(shares[own]))
        faster[places[-1]] = max(RATE / rate, 1.0)
    return SmoothSteps(tuple(places), tuple(bases), faster) if places else None


def basis_of(shares: Floats) -> Singles:
    """Return the polynomials of ordered categories, (k, k), the column r of degree r and scaled as the module says.

    Args:
        shares: (k,) of the categories; they need not sum to 1.
    """
    k = len(shares)
    even = np.full(k, 1 / k)
    weight = (np.maximum(shares, 0.0) / shares.sum() + even) / 2 if shares.sum() > 0 else even
    ranks = np.linspace(-1.0, 1.0, k)
    root = np.sqrt(weight)
    orthonormal, triangle = np.linalg.qr(legendre.legvander(ranks, k - 1) * root[:, None])
    found = orthonormal / root[:, None] * np.where(np.diag(triangle) < 0, -1.0, 1.0)
    degree = np.arange(k)
    scale = np.where(degree > 1, 1 / (1 + ((degree - 1) / 2) ** 2), 1.0)
    return np.ascontiguousarray(found * scale, np.float32)

"""Logistic regression on categories, by maximum likelihood: which records are the synthetic ones, and what a column depends on.

Categories make equations that depend on each other (a column that follows from another one), so the number of parameters is the
rank of the design, and of those equations that depend on others the later ones are left out. Records of both classes may be
separable; the probabilities then go to 0 and 1, and the iterations end when no probability moves any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Bools, Floats, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_RANK: Final = 1e-10  # of the largest eigenvalue: below it a direction is none
_STILL: Final = 1e-13  # largest move of a probability at the end
_MOST_STEPS: Final = 60
_MOST_HALVINGS: Final = 30
_LOSS: Final = 1e-9  # of the likelihood's logarithm, which rounding may cost a step
_SINGULAR: Final = 1e-14  # of the information's largest eigenvalue: no step is taken there
_SURE: Final = 1e-6  # of the largest pivot: above it no direction is left out
_TOLD: Final = (
    1e-9  # of the same: records of both classes tell a coefficient; a separable one is at 1e-13 when nothing moves
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """A logistic regression.

    Attributes:
        probabilities: (n,), of class 1.
        rank: number of parameters that can be told apart.
        coefficients: (w,), NaN where another value does as well, or only an infinite one does.
        covariance: (w, w) of them, the inverse of the information; NaN likewise.
    """

    probabilities: Floats
    rank: int
    coefficients: Floats
    covariance: Floats


def indicators(codes: Sequence[AnyCodes], n_states: Sequence[int]) -> csr_array:
    """Return (n, 1 + sum of K), a constant column and one of each category of each column, in their order."""
    from scipy.sparse import csr_array

    n, starts = len(codes[0]), 1 + np.concatenate([[0], np.cumsum(n_states)])
    places = np.column_stack(
        [np.zeros(n, dtype=np.int64)]
        + [column.astype(np.int64) + start for column, start in zip(codes, starts[:-1].tolist(), strict=True)]
    )
    width = places.shape[1]
    return csr_array(
        (np.ones(n * width), places.ravel(), np.arange(0, n * width + 1, width)), shape=(n, int(starts[-1]))
    )


def independent_columns(design: csr_array) -> Ints:
    """Return positions of the columns that do not follow from those before them.

    >>> from scipy.sparse import csr_array
    >>> independent_columns(csr_array(np.array([[1.0, 1, 0, 2], [1, 0, 1, 2], [1, 1, 0, 3]]))).tolist()
    [0, 1, 3]
    """
    remainder = (design.T @ design).toarray()
    scale = remainder.diagonal().copy()
    positions: list[int] = []
    for place in range(len(remainder)):
        pivot = remainder[place, place]
        if scale[place] > 0 and pivot > _RANK * scale[place]:
            remainder -= np.outer(remainder[:, place], remainder[place] / pivot)
            positions.append(place)
    return np.array(positions, dtype=np.int64)


def fit(design: csr_array, target: Floats) -> Fit:
    """Maximum likelihood by Newton's steps, halved where they would lose.

    Args:
        design: (n, w), a constant column among them.
        target: (n,), 0 or 1.
    """
    basis = _directions(design)
    rank = basis.shape[1]
    inside = _undecided(design, target)
    whole, design, target = target, design[inside], target[inside]
    if not len(target):  # a category decides every record
        nothing = np.full(len(basis), np.nan)
        return Fit(
            probabilities=whole, rank=rank, coefficients=nothing, covariance=np.full((len(basis), len(basis)), np.nan)
        )
    basis = basis if inside.all() else _directions(design)
    place = np.zeros(basis.shape[1])
    probabilities, likelihood = _likelihood(design @ (basis @ place), target)
    for _ in range(_MOST_STEPS):
        information = _information(design, basis, probabilities)
        step = _newton_step(information, basis.T @ (design.T @ (target - probabilities)))
        if not np.isfinite(step).all():  # the classes are told apart as far as numbers go
            break
        next_probabilities, next_likelihood = _likelihood(design @ (basis @ (place + step)), target)
        for _ in range(_MOST_HALVINGS):
            if next_likelihood >= likelihood - _LOSS * abs(likelihood):
                break
            step = step / 2
            next_probabilities, next_likelihood = _likelihood(design @ (basis @ (place + step)), target)
        furthest = float(np.abs(next_probabilities - probabilities).max())
        place, probabilities, likelihood = place + step, next_probabilities, next_likelihood
        if furthest < _STILL:
            break
    lengths, vectors = np.linalg.eigh(_information(design, basis, probabilities))
    is_determined = lengths > _TOLD * lengths[-1]
    known_basis = basis @ vectors[:, is_determined]
    all_probabilities = whole.astype(np.float64)
    all_probabilities[inside] = probabilities
    is_estimable = np.isclose((known_basis**2).sum(axis=1), 1.0, rtol=0, atol=1e-6)
    return Fit(
        probabilities=all_probabilities,
        rank=rank,
        coefficients=np.where(is_estimable, basis @ place, np.nan),
        covariance=np.where(
            np.outer(is_estimable, is_estimable), known_basis / lengths[is_determined] @ known_basis.T, np.nan
        ),
    )


def _undecided(design: csr_array, target: Floats) -> Bools:
    """Return (n,), whether no category of a record decides its class.

    Where all records of a category are of one class, the likelihood is largest at an infinite coefficient: their probabilities
    are 0 or 1, and they leave the other coefficients as they are. Without them another category may decide, and so on.
    """
    inside = np.ones(len(target), dtype=np.bool_)
    while True:
        counts, ones = (design.T @ weights for weights in (inside.astype(np.float64), inside * target))
        decided = (counts > 0) & ((ones == 0) | (ones == counts))
        if not decided.any():
            return inside
        inside &= (design @ decided.astype(np.float64)) == 0


def _directions(design: csr_array) -> Floats:
    """Return (w, rank), orthonormal: the directions in which coefficients can be told apart."""
    lengths, vectors = np.linalg.eigh((design.T @ design).toarray())
    directions: Floats = vectors[:, lengths > _RANK * lengths[-1]]
    return directions


def _information(design: csr_array, basis: Floats, probabilities: Floats) -> Floats:
    weights = probabilities * (1 - probabilities)
    scaled = design.copy()
    scaled.data *= np.repeat(weights, np.diff(design.indptr))
    matrix: Floats = basis.T @ (design.T @ scaled).toarray() @ basis
    return matrix


def _newton_step(information: Floats, gradient: Floats) -> Floats:
    """Solve for Newton's step, but for directions in which the information says next to nothing.

    By eigenvalues where records are nearly separable: the singular values of their information do not always converge.
    """
    try:
        lower = np.linalg.cholesky(information)
        if lower.diagonal().min() ** 2 > _SURE * lower.diagonal().max() ** 2:
            return np.asarray(np.linalg.solve(information, gradient), dtype=np.float64)
    except np.linalg.LinAlgError:
        pass
    lengths, vectors = np.linalg.eigh(information)
    is_determined = lengths > _SINGULAR * max(lengths[-1], 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        step: Floats = vectors[:, is_determined] @ ((vectors[:, is_determined].T @ gradient) / lengths[is_determined])
    return step


def _likelihood(scores: Floats, target: Floats) -> tuple[Floats, float]:
    """Return probabilities of class 1, and the logarithm of the likelihood."""
    softplus = np.logaddexp(0.0, scores)
    return np.exp(scores - softplus), float((target * scores - softplus).sum())

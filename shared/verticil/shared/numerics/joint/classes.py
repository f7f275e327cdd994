"""Mixtures in which each component belongs to one class of people, and has nothing that is impossible in it.

A division says, for each category of one variable, which categories of the others are possible: with 2 visits a third visit has
no ward. A component has one category of each division's variable, and probability 0 for all that is impossible beside it, so
that every record of the mixture is possible. Classes with many people get more components. How much a component weighs is fitted
like the probabilities are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Bools, Floats
from verticil.shared.numerics.joint.layout import Layout, Singles

Arrayed = NDArray[np.generic]

_LEAST: Final = 1e-4  # weight of a class at the start


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Division:
    """What goes with the categories of one variable.

    Attributes:
        variable: its position.
        allowed: (K, S): of each of its categories, which categories of all variables, one after another, are possible beside it;
            its own is the only one of its variable.
    """

    variable: int
    allowed: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Which class each component of several fits has.

    Attributes:
        possible: (fits, components, S): which categories a component can have.
        weights: (fits, components): at the start; those of a fit sum to 1.
    """

    possible: Bools
    weights: Singles


class Weighing:
    """The weights of the components of several fits, while they are fitted.

    Attributes:
        possible: (fits + twins, components, S): as of `Classes`; a twin has the classes of its fit.
        gradient: (fits + twins, components): for the weights.

    Args:
        classes: of the fits.
        twins: how many.
        state: where an earlier fit stood; None: at the start.
    """

    def __init__(self, classes: Classes, twins: int, state: Mapping[str, Arrayed] | None) -> None:
        self.possible = np.concatenate([classes.possible, classes.possible[:twins]])
        weights = np.concatenate([classes.weights, classes.weights[:twins]])
        own: dict[str, Arrayed] = {"weight_logits": np.log(weights)} if state is None else dict(state)
        self._logits = np.array(own["weight_logits"], dtype=np.float32)
        self._first, self._second = (
            np.array(own.get(name, np.zeros_like(weights)), dtype=np.float32)
            for name in ("weight_first", "weight_second")
        )
        self.gradient = np.zeros_like(weights)

    def weights(self) -> Singles:
        """Return (fits + twins, components): those of a fit sum to 1."""
        exponentials = np.exp(self._logits - self._logits.max(axis=1, keepdims=True))
        weights: Singles = exponentials / exponentials.sum(axis=1, keepdims=True)
        return weights

    def of_fits(self, fits: int) -> Singles:
        """Return the weights in the mean of all fits, one after another."""
        return (self.weights()[:fits] / np.float32(fits)).reshape(-1)

    def begin(self) -> None:
        """Set the gradient to zero, before the tables of each resolution add to it."""
        self.gradient = np.zeros_like(self.gradient)

    def take(self, released: Singles, gradient: Singles) -> None:
        """Add what the tables of pairs of one resolution say: half of the rows times the gradient for them."""
        self.gradient += 0.5 * np.einsum("fme,fme->fm", released, gradient)

    def arguments(self) -> tuple[Singles, Singles, Singles, Singles]:
        """Return the logarithms, the gradient for them and its two moments: what a step of Adam takes."""
        weights = self.weights()
        mean = (weights * self.gradient).sum(axis=1, keepdims=True)
        return self._logits, weights * (self.gradient - mean), self._first, self._second

    def state(self) -> dict[str, Singles]:
        """Return where the fit stands, for a checkpoint."""
        return {"weight_logits": self._logits, "weight_first": self._first, "weight_second": self._second}


def classes_of(
    divisions: Sequence[Division],
    layout: Layout,
    start: Sequence[Floats],
    *,
    fits: int,
    components: int,
    seed: Sequence[int],
) -> Classes:
    """Give each component a class.

    Args:
        divisions: at least one.
        layout: of the variables.
        start: the distribution of each variable; classes are as frequent as if the divisions were independent.
        fits, components: how many.
        seed: of the classes that few components cannot all have: each fit then has some of its own.
    """
    shares = [np.maximum(start[division.variable], _LEAST) for division in divisions]
    shares = [share / share.sum() for share in shares]
    width = layout.ends[-1]
    possible, weights = np.empty((fits, components, width), np.bool_), np.empty((fits, components), np.float32)
    for fit in range(fits):
        rng = np.random.default_rng([*seed, 9, fit])
        classes = _classes(shares, components, rng)
        for place, division in enumerate(divisions):
            allowed = division.allowed[classes[:, place]]
            possible[fit] = allowed if place == 0 else possible[fit] & allowed
        distinct, index, counts = np.unique(classes, axis=0, return_inverse=True, return_counts=True)
        own = np.prod([share[distinct[:, place]] for place, share in enumerate(shares)], axis=0)
        own = own / own.sum() / counts
        weights[fit] = own[index.reshape(-1)]
    return Classes(possible, weights)


def _classes(shares: Sequence[Floats], components: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return (components, divisions) categories: every class once where there is room, the others by their shares."""
    sizes = [len(share) for share in shares]
    n_classes = int(np.prod(sizes))
    if 2 * n_classes <= components:
        every = np.array(list(itertools.product(*map(range, sizes))), dtype=np.intp).reshape(n_classes, len(sizes))
        product = np.ones(1)
        for share in shares:
            product = np.multiply.outer(product, share).reshape(-1)
        rest = components - n_classes
        ends = np.cumsum(product) * rest
        more = np.searchsorted(ends, np.arange(rest) + rng.random(), side="right")
        return np.concatenate([every, every[np.minimum(more, n_classes - 1)]])
    return np.stack([_spread(share, components, rng) for share in shares], axis=1)


def _spread(share: Floats, components: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return a category for each component, each once and then as often as its share says, in a random order."""
    every = np.arange(min(len(share), components))
    rest = components - len(every)
    at = np.searchsorted(np.cumsum(share) * rest, np.arange(rest) + rng.random(), side="right")
    return rng.permutation(np.concatenate([every, np.minimum(at, len(share) - 1)]))


def independent_rows(rows: Singles, weights: Floats, start: Sequence[Floats], layout: Layout) -> tuple[Singles, Floats]:
    """Return a mixture of the same classes in which nothing else goes together.

    Args:
        rows: (m, S): of the fitted components; what is 0 in one is impossible in it.
        weights: (m,).
        start: the distribution of each variable.
        layout: of the variables.

    Returns:
        (c, S) rows and (c,) weights, one for each class.
    """
    possible, index = np.unique(rows > 0, axis=0, return_inverse=True)
    sums = np.bincount(index.reshape(-1), weights=weights, minlength=len(possible))
    own = np.where(possible, np.maximum(np.concatenate(list(start)), 1e-9), 0.0)
    for columns in layout.variables:
        own[:, columns] /= own[:, columns].sum(axis=1, keepdims=True)
    return own.astype(np.float32), sums / sums.sum()

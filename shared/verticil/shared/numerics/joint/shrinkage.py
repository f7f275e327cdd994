"""Tables of pairs with noise, shrunk towards independence: what a mixture is fitted to where few pairs hang together.

Of a table's squared distance D to the product of its columns' shares, margins taken out, noise explains (K_a - 1) (K_c - 1)
variances. The part that is left,

    g = max(0, 1 - (K_a - 1) (K_c - 1) / sum D^2 / variance),

is kept of D: the estimator of James & Stein (1961), positive part. Where most pairs have nothing to do with each other, as in a
network of many columns, a mixture of products has no other way to tell their noise from what there is. Where all hang together
by a few causes it has a better one, and loses what is taken away: `estimate` asks which it is.
"""

from __future__ import annotations

import numpy as np

from verticil.shared.numerics.joint.layout import Layout, Singles


def toward_independence(layout: Layout, shares: Singles, weight: Singles, margins: Singles) -> Singles:
    """Return the tables of all pairs, shrunk.

    Args:
        layout: of rows.
        shares: (E, E): as they were measured, of the people.
        weight: (E, E): 1 over the variance of each cell; 0 where nothing was measured.
        margins: (E,): of every unit, as it is released; sums to 1 in each.
    """
    found = shares.copy()
    for unit, first in enumerate(layout.entries[:-1]):
        onward = slice(first.stop, layout.n_entries)
        sizes = np.array([places.stop - places.start for places in layout.entries[unit + 1 :]])
        starts = np.cumsum(sizes) - sizes
        away = shares[first, onward] - margins[first, None] * margins[onward]
        away -= away.mean(axis=0)
        away -= np.repeat(np.add.reduceat(away, starts, axis=1) / sizes.astype(np.float32), sizes, axis=1)
        distance = np.add.reduceat((away * away * weight[first, onward]).sum(axis=0, dtype=np.float64), starts)
        degrees = (away.shape[0] - 1) * (sizes - 1)
        lost = np.minimum(degrees / np.maximum(distance, 1e-300), 1.0) * (distance > 0)
        away *= np.repeat(lost.astype(np.float32), sizes)
        found[first, onward] -= away
        found[onward, first] = found[first, onward].T
    return found

"""How numbers lie inside the bins of a column, where a study has that estimated (``[posterior] within_bins = "estimated"``).

What is learned from has codes alone, so what is known of a bin's inside is what the bins beside it say. With f = p / w the
density of a bin of share p and width w, and m its middle, the density inside is a straight line through (m, f) with the slope

    s_b = (f_(b+1) - f_(b-1)) / (m_(b+1) - m_(b-1)),

at the ends that to the one bin beside, and no steeper than that it falls to 0 at an edge of the bin. On t = 0 .. 1 over the bin
it is 1 + r (2 t - 1), the *tilt* r = s w / (2 f) between -1 and 1; its distribution function is r t^2 + (1 - r) t, its mean
1/2 + r/6.

The shares are those of a network. One that was drawn from a posterior has shares that were, so its tilts are a draw of the shape:
sets from M networks differ inside bins as far as the shares of bins are not known. How many are in a bin it does not change.
Columns that declare `means` or `representatives` have the declared shape, which nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.network import Network
from verticil.shared.study.document import Study
from verticil.shared.study.posterior import estimated_within
from verticil.shared.synthesis.marginals import model_shares

Tilts = Mapping[int, Floats]
"""Variable -> (M, bins): of each of M networks, of which record i is of network i mod M, the tilt of each bin."""


def tilts(edges: Floats, shares: Floats) -> Floats:
    """r of each bin; 0 where nobody is, and of a bin alone.

    Args:
        edges: (B + 1,), rising.
        shares: (B,), not negative; they need not sum to 1.

    >>> tilts(np.array([0.0, 1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])).round(3).tolist()
    [-0.2, -0.267, -1.0]
    """
    width, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    density = shares / width
    if len(shares) < 2:
        return np.zeros(len(shares))
    before, behind = np.maximum(np.arange(len(shares)) - 1, 0), np.minimum(np.arange(len(shares)) + 1, len(shares) - 1)
    slope = (density[behind] - density[before]) / (middle[behind] - middle[before])
    ratios = np.divide(slope * width, 2 * density, out=np.zeros(len(shares)), where=density > 0)
    return np.clip(ratios, -1.0, 1.0)


def tilts_of(networks: Sequence[Network], study: Study) -> Tilts:
    """Return the tilt of each column whose shape inside bins the study has estimated, by the networks' own shares of
    its bins.
    """
    estimated_columns = estimated_within(study)
    if not estimated_columns:
        return {}
    support = study.support()
    shares = [model_shares(network, support)[0] for network in networks]
    return {
        v: np.stack([tilts(np.array(study.schema[v].bins), each[v][: study.schema[v].n_bins]) for each in shares])
        for v in estimated_columns
    }

"""The distribution of every variable on its own: where a joint model starts, and the product it is held against."""

from __future__ import annotations

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.estimation.estimators import simplex
from verticil.shared.numerics.joint.noisy_tables import NoisyTables


def one_way_shares(tables: NoisyTables) -> tuple[Floats, ...]:
    """Return the share of every category of each variable, (K,): the unbiased estimate from all tables that have it, brought to
    the nearest distribution. A compound is estimated over its whole domain, and summed.
    """
    shares: list[Floats] = [np.empty(0)] * len(tables.n_states)
    for position, unit in enumerate(tables.units):
        counts, _ = tables.one_way(position)
        true = counts if unit.channel.is_identity else counts @ unit.channel.inverse
        true = simplex(true / true.sum()) if true.sum() > 0 else np.full(len(true), 1 / len(true))
        for place, variable in enumerate(unit.variables):
            codes = np.arange(len(true)) if unit.domain is None else np.array([c[place] for c in unit.domain])
            sums = np.bincount(codes, weights=true, minlength=tables.n_states[variable])
            shares[variable] = np.asarray(sums, dtype=np.float64)
    return tuple(share / share.sum() for share in shares)

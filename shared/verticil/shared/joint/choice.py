"""Which of two models of the same people comes nearer to tables that neither has seen: the joint model, or the network.

Both are fitted to a part A of what was measured (`guard.parts`), the network by the same search. With J and N their released
tables, D = J - N, f_B the tables of the rest, and W the weights of cells,

    beta = sum W D (f_B - N) / sum W D^2,

over all parts together. N + beta D is nearest to the rest by least squares, and beta >= 1/2 exactly where sum W (f_B - J)^2 <=
sum W (f_B - N)^2: where the joint model is the nearer one. The errors of A and B are independent, so in the mean the same holds
of the distances to what the tables of more people would show, and no model is rewarded for following the noise of what it saw.

Where the network says all that there is to say, the joint model repeats the chance of these people, and beta falls below 1/2;
where the network leaves out what the tables show, beta is near 1. Pairs decide; three columns and more have no say.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from verticil.shared.arrays import Floats
from verticil.shared.estimation.axes import apply_axes
from verticil.shared.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.model.joint import JointModel

Sums = tuple[float, float]
"""Of one part: the sums above and below the line of beta."""


def nearness(joint: JointModel, network: JointModel, held_out: NoisyTables) -> Sums:
    """sum W D (f_B - N) and sum W D^2 of one part, over its tables of two units and more.

    Args:
        joint: fitted to the other part.
        network: records of the network that was fitted to the other part, as many as its shares need to be exact, equal weights.
        held_out: the part that neither has seen. W is 1 over the variance of the noise on a cell. Without noise it is 1 over the
            root of m, the product of the joint model's margins: a cell's error is of the order of that root, so each cell weighs
            as in the sum of absolute differences, which is what records are judged by.
    """
    above = below = 0.0
    n = held_out.people
    for table in held_out.tables:
        if len(table.units) == 1:
            continue
        ours, theirs = (released_shares(model, held_out, table) for model in (joint, network))
        difference = ours - theirs
        weight: Floats | float = (
            (n / table.sigma) ** 2 if table.sigma > 0 else np.maximum(_product(ours), 0.5 / n) ** -0.5
        )
        above += float((weight * difference * (table.counts / n - theirs)).sum())
        below += float((weight * difference**2).sum())
    return above, below


def beta(sums: Sequence[Sums]) -> float:
    """How far from the network (0) towards the joint model (1) the nearest model lies; 1 where both are the same.

    >>> beta([(1.0, 4.0), (3.0, 4.0)])
    0.5
    """
    above, below = (sum(column) for column in zip(*sums, strict=True))
    return above / below if below > 0 else 1.0


def is_joint_nearer(sums: Sequence[Sums]) -> bool:
    """Whether records come from the joint model where a study leaves it open."""
    return beta(sums) >= 0.5


def released_shares(model: JointModel, tables: NoisyTables, table: MeasuredTable) -> Floats:
    """What a model expects of a measured table, noise apart: its shape, sums to 1 (of a compound to the share of its domain)."""
    units = [tables.units[unit] for unit in table.units]
    shares = model.shares([variable for unit in units for variable in unit.variables])
    of_units: list[Floats | None] = []
    for place, unit in enumerate(units):
        if unit.domain is not None:
            cells = tuple(np.array(unit.domain, dtype=np.intp).T)
            shares = shares[(*itertools.repeat(slice(None), place), *cells)]
        of_units.append(None if unit.channel.is_identity else unit.channel.probabilities)
    return apply_axes(shares, of_units)


def _product(table: Floats) -> Floats:
    """The product of a table's margins."""
    product: Floats = np.ones((), dtype=np.float64)
    for axis in range(table.ndim):
        others = tuple(other for other in range(table.ndim) if other != axis)
        product = np.multiply.outer(product, table.sum(axis=others))
    return product

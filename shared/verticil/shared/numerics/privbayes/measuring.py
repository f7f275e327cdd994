"""Algorithm 4 of PrivBayes, first half: the noisy tables of a network.

How many tables a network has follows from the noisy scores, so noise that is made for their number would be chosen by what was
drawn before, which the proof of one sum of losses does not cover. Here the measurements are fixed beforehand, `MEASUREMENTS` for
each attribute, whatever the network is: every table gets as many of them, the largest ones those that are left, and its counts
are the means. Of T tables of d attributes each has then the noise that it would have if it had been made for T tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Floats
from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.numerics.estimation.contingency import family_table
from verticil.shared.numerics.privbayes.calibration import MEASUREMENTS

AVERAGE_CELL: Final = 5.0
"""An average cell of a table holds at least so many times the noise: tau is n / (5 sigma_NC)."""

_RECORDS: Final = b"records"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTable:
    """The counts of some attributes, with noise.

    Attributes:
        attributes: of the axes.
        counts: float64, can be negative.
        deviation: standard deviation of the noise on each cell.
    """

    attributes: tuple[int, ...]
    counts: Floats
    deviation: float


def automatic_tau(n: float, deviation: float) -> float:
    """Return the most cells of a table at which its average cell is `AVERAGE_CELL` times the noise.

    The one place of the rule. The paper has none and tunes tau.

    Args:
        n: records, also with noise.
        deviation: of the noise on each cell; 0: there is none, and any size will do.

    >>> automatic_tau(1000, 10.0)
    20.0
    """
    return max(n, 0.0) / (AVERAGE_CELL * deviation) if deviation else np.inf


def counted_records(n: int, *, key: bytes, sigma: float) -> int:
    """Count the records with discrete Gaussian noise; can be negative."""
    return n + int(discrete_gaussian.draw(key, _RECORDS, (1,), sigma)[0])


def shared_out(sizes: Sequence[int], n_attributes: int) -> list[int]:
    """Return how many measurements each table gets; all of them together are `MEASUREMENTS` for each attribute.

    Args:
        sizes: cells of each table, at least one table and at most one for each attribute.
        n_attributes: d.

    >>> shared_out([4, 9, 6, 6, 2], 6)
    [14, 15, 15, 14, 14]
    """
    each, rest = divmod(MEASUREMENTS * n_attributes, len(sizes))
    largest = sorted(range(len(sizes)), key=lambda place: (-sizes[place], place))[:rest]
    return [each + (place in largest) for place in range(len(sizes))]


def noisy_tables(
    columns: Sequence[AnyCodes],
    n_states: Sequence[int],
    tables: Sequence[tuple[int, ...]],
    *,
    key: bytes,
    sigma: float,
) -> tuple[NoisyTable, ...]:
    """Measure tables; a function of the arguments alone.

    Args:
        columns: (n,) codes of each attribute.
        n_states: K of each.
        tables: attributes of each table, as of `Structure.tables`.
        key: 32 bytes, secret.
        sigma: parameter of the noise of one measurement.

    Raises:
        ValueError: a code is out of range, or as `discrete_gaussian.draw`.
    """
    shapes = [tuple(n_states[v] for v in attributes) for attributes in tables]
    copies = shared_out([int(np.prod(shape)) for shape in shapes], len(n_states))
    deviation = discrete_gaussian.variance(sigma) ** 0.5
    measurements: list[NoisyTable] = []
    for number, (attributes, shape, copy) in enumerate(zip(tables, shapes, copies, strict=True)):
        counts = family_table([columns[v] for v in attributes], shape)
        noise = discrete_gaussian.draw(key, b"table/%d" % number, (copy, *shape), sigma).sum(axis=0)
        measurements.append(
            NoisyTable(attributes=attributes, counts=counts + noise / copy, deviation=deviation / copy**0.5)
        )
    return tuple(measurements)

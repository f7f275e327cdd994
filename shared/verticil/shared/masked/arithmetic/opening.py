"""What is added to shares of tables before they leave, and what can be said of tables that are opened.

**Noise** (model-three.md section 4). Of N counted contributors, t may know their own noise or leave it out. Every one draws a
discrete Gaussian of parameter sigma_c for each cell of a table across parties, sigma_c^2 (N - t) >= sigma^2; a table within a
party gets one draw of sigma, its owner's. **Pads** are uniform words that two parties have in common: the one adds, the other
subtracts them, so that shares are uniform words and their sum is the table with its noise.

**Opened tables compared with each other** (`margin_alarms`), and with the number of people, never with exact counts. One draw
of parameter s is sub-Gaussian: E e^(lambda X) <= e^(lambda^2 s^2 / 2) (C. L. Canonne, G. Kamath, T. Steinke, "The discrete
Gaussian for differential privacy", NeurIPS 2020), and so is a sum of independent ones, with the sum v of their s^2: one
difference of two margins is beyond x with a chance of at most 2 e^(-x^2 / 2v). Noise that was left out moves no margin, it
brings them too near to each other:

    Q = sum over units, tables with it, categories of (c - mean of its tables)^2 / v  +  sum over tables of (total - n)^2 / v

with c a margin less its mean over categories, v the s^2 summed over what a margin adds up, the mean weighted by 1/v. In units
of s all these are orthogonal directions of the cells, so with Gaussian noise Q would be chi^2 with nu = sum over units (K -
1)(tables - 1) + tables degrees of freedom, and P(Q <= x nu) <= (x e^(1 - x))^(nu / 2) for x < 1, by E e^(-lambda Q) = (1 + 2
lambda)^(-nu / 2) at 1 + 2 lambda = 1/x. The noise of a cell is a discrete Gaussian, or a sum that is one but for a factor 1
+- 1e-36 (accounting.md section 2.3). Then this expectation is at most (1 + 2 e^(-2 pi^2 x s^2) + ..)^cells times that, by
Poisson's summation formula: where x >= 1/4 and s >= 3 a factor below 1 + 2e-19 for each cell. So x is never asked to be below
1/4; from some 70 degrees of freedom on the bound is small enough there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.core.errors import Misuse
from verticil.shared.masked.arithmetic.field import Words, add, from_numbers, signed, subtract
from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.mechanisms.discrete_gaussian import LARGEST_SIGMA, LEAST_SIGMA_OF_A_SUM, MOST_OF_A_SUM

Ratio = tuple[int, int]
"""Numerator and denominator."""

FALSE_ALARM: Final = 1e-6
"""Of all that is compared in one round."""
_LEAST_SHARE: Final = 0.25  # of Q's expectation: below, the bound is not proved


def sigma_each(sigma: Ratio, n_counted: int, tolerate: int) -> Ratio:
    """sigma_c: the least number that the sampler takes, a double, with sigma_c^2 (N - t) >= sigma^2. Found by whole numbers.

    Args:
        sigma: what has to be left, people.
        n_counted: N, at most `MOST_OF_A_SUM`.
        tolerate: t, 1 to N - 1.

    Raises:
        Misuse: `STUDY_UNSUPPORTED`; N or t is out of its range, or sigma_c of the sampler's for a part of a sum.
    """
    if not 1 <= tolerate < n_counted <= MOST_OF_A_SUM:
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"tolerate is {tolerate} where the noise of {n_counted} contributors counts: expected at least 1, fewer "
            f"than contributors, and at most {MOST_OF_A_SUM} contributors",
            hint="see [masked] tolerate, and whom all parties' policies name in noise_from",
        )
    own_sigma = sigma[0] / sigma[1] / math.sqrt(n_counted - tolerate)
    while own_sigma >= 1 and enough(own_sigma.as_integer_ratio(), sigma, n_counted, tolerate):
        own_sigma = math.nextafter(own_sigma, 0.0)
    while own_sigma >= 1 and not enough(own_sigma.as_integer_ratio(), sigma, n_counted, tolerate):
        own_sigma = math.nextafter(own_sigma, math.inf)
    if not LEAST_SIGMA_OF_A_SUM <= own_sigma <= LARGEST_SIGMA:
        low = own_sigma < LEAST_SIGMA_OF_A_SUM
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"noise of {own_sigma:.4g} people from each of {n_counted} contributors: expected {LEAST_SIGMA_OF_A_SUM:g} to "
            f"{LARGEST_SIGMA:g}",
            hint="a smaller epsilon or delta, or a larger tolerate" if low else "fewer tables",
        )
    return own_sigma.as_integer_ratio()


def enough(each: Ratio, sigma: Ratio, n_counted: int, tolerate: int) -> bool:
    """Return whether sigma_c^2 (N - t) >= sigma^2, by whole numbers.

    >>> enough((3, 1), (6, 1), 5, 1), enough((3, 1), (6_000_001, 1_000_000), 5, 1)
    (True, False)
    """
    return (each[0] * sigma[1]) ** 2 * (n_counted - tolerate) >= (sigma[0] * each[1]) ** 2


def deviation(sigma: Ratio, draws: int = 1) -> float:
    """Standard deviation of the noise of an opened cell, people: of N draws of sigma_c, or of one of sigma.

    A draw's own is its sigma from 3 on (`verticil.shared.mechanisms.discrete_gaussian.variance`).
    """
    return math.sqrt(draws) * sigma[0] / sigma[1]


def noise(key: bytes, shape: tuple[int, ...], sigma: Ratio) -> Words:
    """Draw one contributor's noise for a table, a function of the arguments.

    Args:
        key: 32 bytes, secret, of this one table.
        shape: of the table.
        sigma: of this draw; a double's ratio, `LEAST_SIGMA_OF_A_SUM` or more.

    Raises:
        ValueError: sigma is no double or out of the sampler's range, or the key is not 32 bytes.
    """
    parameter = sigma[0] / sigma[1]
    if Fraction(parameter) != Fraction(*sigma):
        raise ValueError(f"sigma {sigma[0]}/{sigma[1]} is no double, so nothing draws it")
    return from_numbers(discrete_gaussian.draw(key, b"", shape, parameter, of_a_sum=True))


def add_pads(share: Words, plus: Iterable[Words], minus: Iterable[Words]) -> Words:
    """Return a share as it may leave.

    Args:
        share: the own part of the table with the own noise.
        plus: pads with the parties that come after this one.
        minus: pads with those before.
    """
    for pad in plus:
        share = add(share, pad)
    for pad in minus:
        share = subtract(share, pad)
    return share


def open_sum(shares: Iterable[Words]) -> Ints:
    """Return the table with its noise: the sum of all shares, and of the opening node's noise, each below p/2 in size.

    Raises:
        ValueError: there are none.
    """
    words: Words | None = None
    for share in shares:
        words = share if words is None else add(words, share)
    if words is None:
        raise ValueError("no share of a table, expected one of each party")
    return signed(words)


class Alarm(NamedTuple):
    """Opened tables that do not fit together.

    Attributes:
        units: positions of those whose margin differs; none: the total.
        table: which table; None: all margins together are nearer to each other than their noise lets them be.
        other: from which other table it differs; None: from the number of people.
    """

    units: tuple[int, ...]
    table: int | None
    other: int | None


def margin_alarms(
    tables: Sequence[tuple[int, ...]], counts: Sequence[Ints], deviations: Sequence[float], n_people: int
) -> tuple[Alarm, ...]:
    """Report what opened tables show that honest ones show with a chance of `FALSE_ALARM` at most; see the module.

    Every margin of units that two tables have in common, category by category, every total with n, and Q are single comparisons,
    each at the same share of it.

    Args:
        tables: positions of each one's units, ascending.
        counts: of each, an axis for each unit.
        deviations: of each, of the noise on a cell (`deviation`), people, 3 or more.
        n_people: n.

    Raises:
        ValueError: the three are not of one length, or a table's axes are not its units'.
    """
    if any(len(units) != cells.ndim for units, cells in zip(tables, counts, strict=True)):
        raise ValueError("a table has more or fewer axes than units, expected as many")
    variances = [deviation**2 for deviation in deviations]
    having: dict[tuple[int, ...], list[int]] = {}
    for table, units in enumerate(tables):
        for size in range(1, len(units) + 1):
            for common in itertools.combinations(units, size):
                having.setdefault(common, []).append(table)
    margins = {
        units: _margins(units, [(tables[at], counts[at], variances[at]) for at in those])
        for units, those in having.items()
        if len(those) > 1
    }
    comparisons = len(tables) + 1 + sum(math.comb(len(part), 2) * part.shape[1] for part, _ in margins.values())
    level = FALSE_ALARM / comparisons
    most = math.sqrt(2 * math.log(2 / level))
    alarms: list[Alarm] = []
    spread, freedom = 0.0, len(tables)
    for table, (cells, variance) in enumerate(zip(counts, variances, strict=True)):
        off = float(cells.sum() - n_people) / math.sqrt(variance * cells.size)
        spread += off**2
        if abs(off) > most:
            alarms.append(Alarm((), table, None))
    for units, (sums, noisy) in margins.items():
        for at, table in enumerate(having[units]):
            beyond = np.abs(sums[at + 1 :] - sums[at]) > most * np.sqrt(noisy[at + 1 :] + noisy[at])[:, None]
            alarms += [Alarm(units, table, having[units][at + 1 + int(k)]) for k in np.flatnonzero(beyond.any(axis=1))]
        if len(units) == 1:
            contrasts = sums - sums.mean(axis=1, keepdims=True)
            away = contrasts - np.average(contrasts, axis=0, weights=1 / noisy)
            spread += float((away**2 / noisy[:, None]).sum())
            freedom += (sums.shape[1] - 1) * (len(sums) - 1)
    share = max(spread / max(freedom, 1), _LEAST_SHARE)
    if share < 1 and freedom / 2 * (math.log(share) + 1 - share) <= math.log(level):
        alarms.append(Alarm((), None, None))
    return tuple(alarms)


def _margins(units: tuple[int, ...], those: Sequence[tuple[tuple[int, ...], Ints, float]]) -> tuple[Floats, Floats]:
    """(tables, cells of the margin) and (tables,): each table's margin, and the s^2 that each of its cells adds up."""
    sums = [
        cells.sum(axis=tuple(axis for axis, unit in enumerate(having) if unit not in units)).ravel()
        for having, cells, _ in those
    ]
    variances = [variance * cells.size / part.size for (_, cells, variance), part in zip(those, sums, strict=True)]
    return np.array(sums, np.float64), np.array(variances)

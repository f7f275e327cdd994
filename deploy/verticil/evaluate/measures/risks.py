"""How often an attack succeeds, beyond how often it succeeds where it cannot: rates, risks and their intervals.

An attack on members succeeds in some cases because a good table tells about people in general. The same attack on people
whose records were not used shows how many (the control). What is left is the risk, as a share of what the control leaves (Giomi,
Boenisch, Wehmeyer & Tasnadi 2023, A unified framework for quantifying privacy risk in synthetic data):

    R = (r - r_control) / (1 - r_control)

Rates are the midpoints of Wilson's interval (1927), as there. A risk below zero is chance, and stays below zero here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats, Ints

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share of successes.

    Attributes:
        attacks, successes: how many; successes may be expected ones and so no whole number.
        value, error: midpoint and half the length of Wilson's interval; NaN of no attack.
    """

    attacks: int
    successes: float
    value: float
    error: float

    @property
    def share(self) -> float:
        """Successes by attacks; NaN of none."""
        return self.successes / self.attacks if self.attacks else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """An attack beside its control.

    Attributes:
        value: R; NaN where there is no attack, or none could fail on the control.
        low, high: its interval.
    """

    value: float
    low: float
    high: float


def rate(successes: float, attacks: int, *, confidence: float = CONFIDENCE) -> Rate:
    """Return Wilson's interval of a share.

    >>> found = rate(0, 100)
    >>> round(found.value, 4), round(found.value + found.error, 4)
    (0.0185, 0.037)
    """
    if not attacks:
        return Rate(attacks=0, successes=0.0, value=math.nan, error=math.nan)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    spread = successes * (attacks - successes) / attacks
    return Rate(
        attacks=attacks,
        successes=successes,
        value=(successes + z * z / 2) / (attacks + z * z),
        error=z / (attacks + z * z) * math.sqrt(max(spread, 0.0) + z * z / 4),
    )


def risk(attack: Rate, control: Rate) -> Risk:
    """Return what an attack does beyond its control; the interval from those of both, as errors add up.

    >>> round(risk(rate(100, 100), rate(50, 100)).value, 2), risk(rate(1, 1), rate(0, 0)).value
    (0.96, nan)
    """
    remainder = 1 - control.value
    if math.isnan(remainder) or math.isnan(attack.value) or remainder <= 0:
        return Risk(value=math.nan, low=math.nan, high=math.nan)
    value = (attack.value - control.value) / remainder
    error = math.hypot(attack.error / remainder, control.error * (attack.value - 1) / remainder**2)
    return Risk(value=value, low=value - error, high=value + error)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Separation:
    """How well a score tells members from others: the receiver operating characteristic.

    Attributes:
        false, true: (m,), ascending from 0 to 1: shares of others and of members that are taken for members, of each threshold.
    """

    false: Floats
    true: Floats

    @property
    def area(self) -> float:
        """The chance that a member's score is less than another's, of equals half: 1/2 without any advantage."""
        return float(np.trapezoid(self.true, self.false))

    @property
    def advantage(self) -> float:
        """The largest difference of the two shares (Yeom, Giacomelli, Fredrikson & Jha 2018); above zero by chance, too."""
        return float((self.true - self.false).max())

    def true_positive_rate(self, false: float) -> float:
        """Return the share of members that are found where so large a share of others is taken for members (Carlini et al. 2022).

        Between two thresholds a coin decides, so that ties do not matter.
        """
        at = int(np.searchsorted(self.false, false, side="right")) - 1
        if at + 1 == len(self.false):
            return float(self.true[at])
        part = (false - self.false[at]) / (self.false[at + 1] - self.false[at])
        return float(self.true[at] + part * (self.true[at + 1] - self.true[at]))


def separation(members: Floats | Ints, others: Floats | Ints) -> Separation:
    """Return the curve of a score that is low for members.

    Raises:
        ValueError: there are no members, or no others.

    >>> found = separation(np.array([0, 0, 3]), np.array([1, 3]))
    >>> found.area, found.true_positive_rate(0.1), round(found.true_positive_rate(0.75), 4)
    (0.75, 0.6666666666666666, 0.8333)
    """
    if not len(members) or not len(others):
        raise ValueError(f"{len(members)} members and {len(others)} others, expected at least one of each")
    thresholds = np.unique(np.concatenate([members, others]))
    true, false = (
        np.concatenate([[0.0], np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores)])
        for scores in (members, others)
    )
    return Separation(false=false, true=true)


def nearer(members: Ints, others: Ints) -> float:
    """Return the share of synthetic records that are nearer to a member's record than to another's, of equals half.

    Args:
        members, others: (n,), the distance of each synthetic record to the nearest of as many members and others.

    >>> nearer(np.array([0, 2, 3]), np.array([1, 2, 1]))
    0.5
    """
    return float(((members < others) + (members == others) / 2).mean())

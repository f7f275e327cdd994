"""The accountant: what privacy events cost together, and whether a budget has room for them.

Composition is basic: epsilons and deltas of one person are added, which holds for any events, in any order, whoever chose them
with knowledge of earlier ones. An infinite epsilon is no part of a finite sum: limits on sums say nothing of it, and what
permits it is asked apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from verticil.shared.channels.privacy import EPSILON_TOLERANCE
from verticil.shared.privacy.events import NOTHING, Cost, PrivacyEvent, kind_of


def cost_of(event: PrivacyEvent) -> Cost:
    """What one event costs.

    Raises:
        Refusal: POLICY_REFUSED, its kind is not registered.
    """
    return kind_of(event).cost(event)


def compose(costs: Iterable[Cost]) -> Cost:
    """What events cost together: infinite if one is.

    >>> compose([Cost(epsilon=1.5), Cost(epsilon=0.25, delta=1e-6)])
    Cost(epsilon=1.75, delta=1e-06)
    """
    listed = tuple(costs)
    return Cost(epsilon=math.fsum(cost.epsilon for cost in listed), delta=math.fsum(cost.delta for cost in listed))


def finite(costs: Iterable[Cost]) -> Cost:
    """What those of finite epsilon cost together; the rest is in no sum."""
    return compose(cost for cost in costs if math.isfinite(cost.epsilon))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What an account has no room for.

    Attributes:
        what: ``epsilon`` or ``delta``.
        asked: that would be charged.
        kept: of the room that there is, for others.
        limit: of the account.
    """

    what: str
    asked: float
    kept: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the people of one data set have been charged, and what they may be charged.

    Attributes:
        spent: finite costs that were charged.
        kept: what is to be charged to them yet by others.
        limit: for all of it together.
    """

    spent: Cost
    kept: Cost = NOTHING
    limit: Cost

    def dry_run(self, cost: Cost) -> Shortage | None:
        """What there is no room for if `cost` is charged; None: there is room. Nothing is charged by this."""
        for what in ("epsilon", "delta"):
            asked, spent, kept, limit = (getattr(item, what) for item in (cost, self.spent, self.kept, self.limit))
            if asked > 0 and spent + kept + asked > limit + EPSILON_TOLERANCE * min(limit, 1.0):
                return Shortage(what=what, asked=asked, kept=kept, limit=limit)
        return None

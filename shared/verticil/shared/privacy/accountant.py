"""The accountant: what privacy events cost, alone, together in a study, and over the studies of a person's life.

- An event's cost is its kind's to say (`verticil.shared.privacy.events`): (epsilon, delta), proved for the mechanism that runs.
- Within a study the losses of events that have a delta (noise on tables) are composed numerically, with outward rounding, at the
  sum of their deltas (`verticil.shared.mechanisms.loss`). Pure epsilons (randomized columns) are added to that: what holds
  without a delta is said without one, so it does not matter which columns were sent before a study stopped.
- Over studies epsilons and deltas are added (`compose`), which holds for any events, in any order, whoever chose them with
  knowledge of earlier ones: limits were approved as sums. `numerically` says what composing all of it would give, and decides
  nothing.

An infinite epsilon is no part of a finite sum: limits on sums say nothing of it, and what permits it is asked apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from verticil.shared.mechanisms import loss
from verticil.shared.mechanisms.loss import ApproximateLoss, Loss, PureLoss
from verticil.shared.privacy import layered as _layered  # noqa: F401  # pyright: ignore[reportUnusedImport]  # its kind
from verticil.shared.privacy import masked as _masked  # noqa: F401  # pyright: ignore[reportUnusedImport]  # its kind
from verticil.shared.privacy import privbayes as _privbayes  # noqa: F401  # pyright: ignore[reportUnusedImport]  # its kind
from verticil.shared.privacy.accounts import Cost, Reader, ReaderLimits
from verticil.shared.privacy.events import PrivacyEvent, kind_of


def cost_of(event: PrivacyEvent) -> Cost:
    """Return what one event costs.

    Raises:
        Refusal: POLICY_REFUSED, its kind is not registered.
    """
    return kind_of(event).cost(event)


def compose(costs: Iterable[Cost]) -> Cost:
    """Sum what events cost: infinite if one is.

    >>> compose([Cost(epsilon=1.5), Cost(epsilon=0.25, delta=1e-6)])
    Cost(epsilon=1.75, delta=1e-06)
    """
    all_costs = tuple(costs)
    return Cost(
        epsilon=math.fsum(cost.epsilon for cost in all_costs), delta=math.fsum(cost.delta for cost in all_costs)
    )


def finite(costs: Iterable[Cost]) -> Cost:
    """Sum what those of finite epsilon cost; the rest is in no sum."""
    return compose(cost for cost in costs if math.isfinite(cost.epsilon))


def together(events: Iterable[PrivacyEvent]) -> Cost:
    """Return what the events of one study cost together; raises as `cost_of`.

    Their deltas add up. Epsilon is never more than the sum, never less than that of any of them alone, and does not depend on
    their order.
    """
    all_events = tuple(events)
    plain = compose(map(cost_of, all_events))
    exact = [event for event in all_events if kind_of(event).losses is not None]
    if len(exact) < 2:
        return plain
    alone = compose(map(cost_of, exact))
    epsilon = max(loss.epsilon_at(_losses(Counter(exact)), alone.delta), *(cost_of(event).epsilon for event in exact))
    claims = (cost_of(event).epsilon for event in all_events if kind_of(event).losses is None)
    return Cost(epsilon=math.fsum([min(alone.epsilon, epsilon), *claims]), delta=plain.delta)


def finite_together(events: Iterable[PrivacyEvent]) -> Cost:
    """Return what those of finite epsilon cost together; the rest is in no sum."""
    return together(event for event in events if math.isfinite(cost_of(event).epsilon))


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """What an account's limits of one study do not permit.

    Attributes:
        key: of ``[policy]``.
        what: ``epsilon`` or ``delta``.
        asked: by the study.
        limit: that is stated; None: none is, and something is drawn for this very reader.
    """

    key: str
    what: str
    asked: float
    limit: float | None


def excess(reader: Reader, limits: ReaderLimits | None, events: Iterable[PrivacyEvent]) -> Excess | None:
    """Return what an account does not permit of one study; None: it permits it. What has no bound is in no sum, and is
    asked for apart.

    Args:
        reader: of the account.
        limits: of the account; None: none are stated.
        events: of the study.
    """
    all_events = tuple(events)
    cost = finite_together(event for event in all_events if reader.sees(event.reader))
    if limits is None:
        needs_limits = any(reader.needs_limits(event.reader) for event in all_events)
        return Excess(key=reader.keys[0], what="epsilon", asked=cost.epsilon, limit=None) if needs_limits else None
    what = cost.beyond(limits.study)
    if what is None:
        return None
    key = reader.keys[0 if what == "epsilon" else 1]
    return Excess(key=key, what=what, asked=getattr(cost, what), limit=getattr(limits.study, what))


def add_or_remove(events: Iterable[PrivacyEvent]) -> Cost | None:
    """Compose numerically what the events with noise on tables cost a person who is added or removed; None: there are
    none.

    It is shown beside the cost of replacing a person, because the literature counts so, and decides nothing.
    """
    losses: Counter[Loss] = Counter()
    deltas: list[float] = []
    for event in events:
        losses_of = kind_of(event).add_or_remove
        if losses_of is not None and (event_losses := losses_of(event)):
            losses.update(event_losses)
            deltas.append(cost_of(event).delta)
    delta = math.fsum(deltas)
    return Cost(epsilon=loss.epsilon_at(losses, delta), delta=delta) if deltas else None


def numerically(events: Iterable[PrivacyEvent], delta: float) -> float:
    """Epsilon of all events of finite epsilon, of whatever studies, at this delta, by numerical composition.

    Args:
        events: any.
        delta: 0 <= delta < 1.
    """
    finite_events = [event for event in events if math.isfinite(cost_of(event).epsilon)]
    plain = compose(map(cost_of, finite_events))
    if delta <= 0 or not finite_events:
        return plain.epsilon
    epsilon = loss.epsilon_at(_losses(Counter(finite_events)), delta)
    return min(epsilon, plain.epsilon) if plain.delta <= delta else epsilon


def _losses(times_of: Counter[PrivacyEvent]) -> Counter[Loss]:
    losses: Counter[Loss] = Counter()
    for event, times in times_of.items():
        losses_of, cost = kind_of(event).losses, cost_of(event)
        if losses_of is not None:
            for item, each in losses_of(event).items():
                losses[item] += each * times
        elif cost.delta > 0:
            losses[ApproximateLoss(epsilon=cost.epsilon, delta=cost.delta)] += times
        elif cost.epsilon > 0:
            losses[PureLoss(epsilon=cost.epsilon)] += times
    return losses

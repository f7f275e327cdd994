"""The privacy figures that limits, screens, checks and documents use: the door to them.

Outside `verticil.shared.mechanisms`, where mechanisms are measured, and this package nothing computes an epsilon, a delta or a
gamma, adds two of them, holds one against a limit, or says one that only stands in a study's keys. What does is found by
`tests/test_accountant_only.py`, which has the few exceptions with their reasons. All functions here are pure; what they say of
an event is what `verticil.shared.privacy.accountant` says it costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Final

from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.privacy import EPSILON_TOLERANCE, Mechanism
from verticil.shared.privacy.accountant import compose, cost_of, finite, together
from verticil.shared.privacy.accounts import COLUMNS, MASKED, NOTHING, OTHERS, Cost
from verticil.shared.privacy.events import PrivacyEvent, RandomizedColumn, plan_events, share_event
from verticil.shared.privacy.rounded_up import hundredths
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of

_LARGEST_EXPONENT: Final = 690.0  # e^690 is a double yet
_LARGEST_SHOWN: Final = 700.0
_LARGE_CHANCE: Final = 0.01  # of n delta: somebody's record may stand there as it is


def column_event(mechanism: Mechanism, reader: str = COLUMNS.name) -> RandomizedColumn:
    """Return the event of releasing one unit of a study.

    Args:
        mechanism: how it is randomized.
        reader: whom it is drawn for (`verticil.shared.privacy.events.column_reader`).
    """
    return RandomizedColumn(epsilon=privacy.epsilon(mechanism), reader=reader)


def column_epsilon(mechanism: Mechanism) -> float:
    """Return what releasing one unit costs each person, under the replacement of that person; infinite: there is no
    bound.

    >>> from verticil.shared.mechanisms.transition import quantize, symmetric
    >>> round(column_epsilon(quantize(symmetric(4, epsilon=2.0))), 6)
    2.0
    """
    return cost_of(column_event(mechanism)).epsilon


def column_gamma(mechanism: Mechanism) -> Fraction | None:
    """Return the worst ratio of anybody's odds after one unit is released to the odds before, exact; None: there is no
    bound.

    A. Evfimievski, J. Gehrke, R. Srikant, "Limiting privacy breaches in privacy preserving data mining", PODS 2003.
    """
    return privacy.gamma(mechanism)


def gamma_of_category(category: int, weights: Sequence[Sequence[int]]) -> Fraction | None:
    """Return the worst ratio of the odds of one true category; None: there is no bound.

    The largest over the categories is `column_gamma`.

    Args:
        category: the true one, a row of the matrix.
        weights: of the quantized matrix, (K, K): row by row.

    >>> gamma_of_category(0, ((3, 1), (2, 2)))
    Fraction(3, 2)
    """
    largest = Fraction(1)
    for cell, column in zip(weights[category], zip(*weights, strict=True), strict=True):
        if cell == 0:
            continue
        if (least := min(column)) == 0:
            return None
        largest = max(largest, Fraction(cell, least))
    return largest


def gamma_of_epsilon(epsilon: float) -> Fraction | None:
    """e^epsilon, the gamma of what has this epsilon; None: infinite. Above 690 it is e^690, which says certainty, too."""
    return None if math.isinf(epsilon) else Fraction(math.exp(min(epsilon, _LARGEST_EXPONENT)))


def odds(epsilon: float) -> float | None:
    """Return the same as a double, for people; None from an epsilon of 700 on, where no bound is of practical meaning.

    >>> odds(0.0), odds(math.inf)
    (1.0, None)
    """
    return math.exp(epsilon) if epsilon < _LARGEST_SHOWN else None


def odds_exceed(epsilon: float, factor: float) -> bool:
    """Return whether what has this epsilon may change somebody's odds by more than a factor; an infinite epsilon may.

    Args:
        epsilon: at least 0.
        factor: > 0.
    """
    return epsilon > math.log(factor)


def belief(prior: Fraction, gamma: Fraction) -> Fraction:
    """Return to what a belief can be raised at most by a report of this gamma: prior gamma / (1 + prior (gamma - 1)),
    exact.

    Args:
        prior: 0 to 1.
        gamma: at least 1.

    >>> belief(Fraction(1, 10), Fraction(9))
    Fraction(1, 2)
    """
    return prior * gamma / (1 + prior * (gamma - 1))


def posterior(prior: float, *, epsilon: float) -> float:
    """Return the same of an epsilon, as a double; of an infinite one 1, but for a prior of 0.

    Raises:
        ValueError: a number is out of range.
    """
    return privacy.max_posterior(prior, epsilon=epsilon)


def epsilon_words(epsilon: float | None) -> str:
    """Write an epsilon for people, rounded up to hundredths; None or infinite: there is no bound.

    >>> epsilon_words(2.731), epsilon_words(3.0), epsilon_words(None)
    ('epsilon 2.74', 'epsilon 3', 'no bound')
    >>> epsilon_words(0.001), epsilon_words(30.0), epsilon_words(1e-10)
    ('epsilon 0.001', 'epsilon 30', 'epsilon 1e-10')
    """
    if epsilon is None or math.isinf(epsilon):
        return "no bound"
    return f"epsilon {float(hundredths(epsilon)):g}"


def total_epsilon(epsilons: Iterable[float]) -> float:
    """Sum what columns of one person cost, by basic composition: infinite if one does.

    >>> total_epsilon([1.5, 0.25])
    1.75
    """
    return compose(Cost(epsilon=epsilon) for epsilon in epsilons).epsilon


def finite_epsilon(epsilons: Iterable[float]) -> float:
    """Sum what those of finite epsilon cost; the rest is in no sum.

    >>> finite_epsilon([1.5, math.inf, 0.25])
    1.75
    """
    return finite(Cost(epsilon=epsilon) for epsilon in epsilons).epsilon


def sent_epsilons(study: Study, party: str) -> tuple[float, ...]:
    """`column_epsilon` of each unit of a party that the study sends anywhere, or that somebody could read, in the study's order.

    Args:
        study: with the party's own declaration.
        party: one of its parties.
    """
    indices = frozenset(protocol_of(study).readable(study))
    return tuple(column_epsilon(study.units[index].transition) for index in study.units_of(party) if index in indices)


def share_cost(study: Study) -> Cost | None:
    """Return what a party's statistics between peers cost each of its people, at most over the parties; None: none are
    shared.

    Infinite where they are shared without noise.
    """
    if study.share is None:
        return None
    costs = list(map(cost_of, _share_events(study))) or [NOTHING]
    return Cost(epsilon=max(cost.epsilon for cost in costs), delta=max(cost.delta for cost in costs))


def tables_cost(study: Study) -> Cost | None:
    """Return what a study's noisy tables cost each person, for everybody, a miner that draws the noise apart; None: it
    asks for none.
    """
    events = (item.event for item in plan_events(study, study.parties[0]))
    return next((cost_of(event) for event in events if event.reader in {OTHERS, MASKED}), None)


def delta_words(n: int, delta: float) -> tuple[str, str] | None:
    """Return what is wrong with a delta for n people, and what to do; None: n delta is at most .01.

    Whoever publishes one person's record, drawn from n, as it is with the chance n delta keeps the promise (0, delta).

    >>> delta_words(1000, 1e-5), delta_words(1001, 1e-5)[0]
    (None, "delta 1e-05 for 1,001 people: publishing somebody's record as it is with a chance of 1 % would keep this promise")
    """
    if n * delta <= _LARGE_CHANCE:
        return None
    chance = min(100 * n * delta, 100.0)
    return (
        f"delta {delta:g} for {n:,} people: publishing somebody's record as it is with a chance of {chance:.3g} % would keep "
        "this promise",
        f"take far less than one in the number of people, 1e-9 for example: at most {_LARGE_CHANCE / n:.2g}",
    )


def shares_together(study: Study) -> Cost:
    """Return what all parties' statistics between peers cost a person who is at all of them; nothing where none are
    shared.
    """
    return NOTHING if study.share is None else together(_share_events(study))


def _share_events(study: Study) -> Iterator[PrivacyEvent]:
    """Return the event of each party that shares statistics."""
    return (share_event(study, party) for party in study.parties if protocol_of(study).shared_tables(study, party))


def epsilon_exceeds(epsilon: float, limit: float) -> bool:
    """Return whether a finite epsilon is above a limit, but for the rounding of doubles.

    Of an infinite one no limit on sums says anything: what permits it is asked apart.

    >>> epsilon_exceeds(3.0000000000000004, 3.0), epsilon_exceeds(3.001, 3.0), epsilon_exceeds(math.inf, 3.0)
    (False, True, False)
    """
    return math.isfinite(epsilon) and epsilon > limit + EPSILON_TOLERANCE


def delta_exceeds(delta: float, limit: float) -> bool:
    """Return whether a delta is above a limit."""
    return delta > limit

"""The plan of the budget: what a study will cost each person, for each reader, and how accurate its figures can be.

It follows from the study and a number of common people alone, before anyone works. The costs are the accountant's, of the events
that the study causes (`verticil.shared.privacy.events.plan_events`): approvals, ledgers and the release say the same of them.

Predicted error, of a one-way share at n common people, as half of its 95 % interval
- of a randomized column: of a share of 1/K, estimated with the inverse of the matrix. Chance in who is among the people is in it
  (`verticil.shared.mechanisms.privacy.half_width_of_share`, randomization.md 1.1).
- of a table with noise of standard deviation s on each count: 1.96 s / n, from the noise alone. n is public, so a share is its
  noisy count over n, and how many cells the table has does not matter.
Figures that combine cells or tables, as the probabilities of a family do, are less accurate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from types import MappingProxyType
from typing import Final

from verticil.shared.mechanisms.privacy import half_width_of_share
from verticil.shared.privacy.accountant import cost_of, excess, together
from verticil.shared.privacy.accounts import Reader, ReaderLimits
from verticil.shared.privacy.events import REPLACE_ONE, PlannedEvent, kind_of, plan_events, words
from verticil.shared.privacy.figures import epsilon_words
from verticil.shared.privacy.statement import AccountStatement, accounts_of, privacy_statement
from verticil.shared.study.document import Study

LEVEL: Final = 0.95
"""Of the intervals whose half widths are predicted."""

LimitsOf = Callable[[Reader], ReaderLimits | None]
"""The limits that a party states for an account; None: it states none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDraw:
    """An event, or the columns that are randomized for the same readers.

    Attributes:
        event: name of its kind.
        words: what it is, in one sentence.
        columns: variables of the party, in the study's order.
        read_by: who gets what is drawn.
        account: the reader that it is charged for.
        epsilon, delta: what it costs; infinite: no bound.
        sigma: standard deviation of the noise on each count, in people; None: it adds none to counts.
        half_width_least, half_width_most: of a one-way share, over its columns; None: nothing is predicted of it.
    """

    event: str
    words: str
    columns: tuple[str, ...]
    read_by: tuple[str, ...]
    account: str
    epsilon: float
    delta: float
    sigma: float | None
    half_width_least: float | None
    half_width_most: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAccount:
    """What a study costs each person for one reader.

    Attributes:
        account, reader: its name, and who that is.
        epsilon, delta: of everything that counts in the account; infinite: no bound.
        epsilon_add_or_remove, delta_add_or_remove: of the noise on tables, for a person who is added or removed; None: there is
            no such noise.
        epsilon_limit, delta_limit: what the party has published that a study may cost; None: nothing, or no limit.
        over: the limit that refuses the study, a key of ``[policy]``; None: none that is known.
        over_limit: what it permits; None: there is no such refusal, or the party states no limit of this account.
    """

    account: str
    reader: str
    epsilon: float
    delta: float
    epsilon_add_or_remove: float | None
    delta_add_or_remove: float | None
    epsilon_limit: float | None = None
    delta_limit: float | None = None
    over: str | None = None
    over_limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyPlan:
    """What one party is charged.

    Attributes:
        party: its name.
        accounts: of its people, one for each reader.
        draws: what the costs are of.
    """

    party: str
    accounts: tuple[PlannedAccount, ...]
    draws: tuple[PlannedDraw, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlan:
    """The plan of a study.

    Attributes:
        relation: which tables the costs compare.
        n: common people that errors are predicted for.
        level: of the intervals.
        parties: in the study's order.
        person: what all of it costs a person at all parties; what several record of one draw counts once.
    """

    relation: str
    n: int
    level: float
    parties: tuple[PartyPlan, ...]
    person: tuple[PlannedAccount, ...]


def budget_plan(
    study: Study, n: int | None = None, limits: Mapping[str, LimitsOf] = MappingProxyType({})
) -> BudgetPlan:
    """Return the plan of a study; between peers that learn the structure, of everything that may be sent.

    Args:
        study: the study.
        n: expected number of common people, >= 1; default the study's minimum.
        limits: party -> the limits that it has published; others' are not judged.

    Raises:
        ValueError: `n` is below 1.
    """
    n = study.linkage.minimum_common_records if n is None else n
    return BudgetPlan(
        relation=REPLACE_ONE,
        n=n,
        level=LEVEL,
        parties=tuple(_of_party(study, party, n, limits.get(party)) for party in study.parties),
        person=tuple(map(_account, privacy_statement(study).accounts)),
    )


def half_width_of_noise(sigma: float, n: int) -> float:
    """Half of the 95 % interval of a share of n people, from noise of standard deviation `sigma` on its count.

    >>> round(half_width_of_noise(20.0, 1000), 6)
    0.039199
    """
    return NormalDist().inv_cdf((1 + LEVEL) / 2) * sigma / n


def _of_party(study: Study, party: str, n: int, limits: LimitsOf | None) -> PartyPlan:
    events = plan_events(study, party)
    accounts: list[PlannedAccount] = []
    for item in accounts_of(item.event for item in events):
        account = _account(item)
        accounts.append(account if limits is None else _held_against(account, item.reader, events, limits(item.reader)))
    return PartyPlan(party=party, accounts=tuple(accounts), draws=_draws(study, events, n))


def _account(item: AccountStatement) -> PlannedAccount:
    return PlannedAccount(
        account=item.reader.name,
        reader=item.reader.words,
        epsilon=item.cost.epsilon,
        delta=item.cost.delta,
        epsilon_add_or_remove=None if item.beside is None else item.beside.epsilon,
        delta_add_or_remove=None if item.beside is None else item.beside.delta,
    )


def _held_against(
    account: PlannedAccount, reader: Reader, events: tuple[PlannedEvent, ...], limits: ReaderLimits | None
) -> PlannedAccount:
    """Return the account as the party judges it."""
    over = excess(reader, limits, (item.event for item in events))
    return replace(
        account,
        epsilon_limit=None if limits is None else _finite(limits.study.epsilon),
        delta_limit=None if limits is None else _finite(limits.study.delta),
        over=None if over is None else over.key,
        over_limit=None if over is None else over.limit,
    )


def _finite(limit: float) -> float | None:
    return limit if math.isfinite(limit) else None


def _draws(study: Study, events: tuple[PlannedEvent, ...], n: int) -> tuple[PlannedDraw, ...]:
    columns: dict[tuple[object, ...], list[PlannedEvent]] = {}
    for item in events:
        if item.unit is not None:
            is_finite = math.isfinite(cost_of(item.event).epsilon)
            columns.setdefault((kind_of(item.event).name, item.event.reader, item.readers, is_finite), []).append(item)
    rest = (_draw(item, n) for item in events if item.unit is None)
    return (*(_columns(study, group, n) for group in columns.values()), *rest)


def _columns(study: Study, group: list[PlannedEvent], n: int) -> PlannedDraw:
    """Columns that are randomized for the same readers; those without a bound apart."""
    cost, first = together(item.event for item in group), group[0]
    widths = [half_width_of_share(study.units[item.unit].transition, n) for item in group if item.unit is not None]
    names = tuple(name for item in group for name in item.variables)
    what = f"{len(names)} columns" if len(names) > 1 else "1 column"
    draws = "" if len(group) == len(names) else f", in {len(group)} draws" if len(group) > 1 else ", in one draw"
    return PlannedDraw(
        event=kind_of(first.event).name,
        words=f"{what} randomized{draws}: {epsilon_words(cost.epsilon)}",
        columns=names,
        read_by=first.readers,
        account=first.event.reader,
        epsilon=cost.epsilon,
        delta=cost.delta,
        sigma=None,
        half_width_least=min(widths),
        half_width_most=max(widths),
    )


def _draw(item: PlannedEvent, n: int) -> PlannedDraw:
    kind, cost = kind_of(item.event), cost_of(item.event)
    sigma = None if kind.deviation is None else kind.deviation(item.event)
    width = None if sigma is None else half_width_of_noise(sigma, n)
    return PlannedDraw(
        event=kind.name,
        words=words(item.event),
        columns=item.variables,
        read_by=item.readers,
        account=item.event.reader,
        epsilon=cost.epsilon,
        delta=cost.delta,
        sigma=sigma,
        half_width_least=width,
        half_width_most=width,
    )

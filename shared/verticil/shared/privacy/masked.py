"""Masked tables (Model III): what they tell everybody, and what they tell a dealer of masks together with a partner.

Every counted contributor draws noise for every table across parties, of such a size that what is left without t of them is what
the statement needs; a party draws all of it for its own tables (model-three.md, sections 4 and 6). So one event is of all
tables, for everybody and for the miner. A dealer with its partner knows its own draws and reads the randomized columns of a
party row by row: for these two the columns are charged, and the tables with the noise that they do not know.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from verticil.shared.masked.arithmetic.field import P
from verticil.shared.mechanisms.loss import ApproximateLoss, DiscreteGaussianLoss, Loss
from verticil.shared.mechanisms.privacy import epsilon
from verticil.shared.privacy.accounts import DEALER, MASKED, Cost
from verticil.shared.privacy.events import (
    DiscreteGaussianCounts,
    EventKind,
    PlannedEvent,
    RandomizedColumn,
    cost_at,
    register,
)
from verticil.shared.privacy.layered import check_sets, further_sets
from verticil.shared.study.document import Study
from verticil.shared.study.masked import list_exposures, noise_contributors, rule_of
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.tables import has_several_sets, tables_of, tables_sigma

CHECK: Final = (3 / P) ** 2
"""The chance at most that an ordered pair passes both checks with a row that is not one-hot (model-three.md, section 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedTables(DiscreteGaussianCounts):
    """Tables of randomized columns were opened, with noise that several contributors drew, each unseen by the others.

    Attributes:
        sigma: parameter of the noise that N - t of them draw together on a count across parties, and the owner alone on one of
            its own tables.
        contributors: N, that draw noise across parties.
        tolerate: t, that may know their noise or leave it out; 1 <= t < N.
        missing: how many draws this reader knows, or were left out: t for everybody, more for a dealer with its partner.
        checks: how often (m^2 + 12 T_3) a check of rows can fail, each with the probability `CHECK`; added to delta.
        reader: `MASKED`, everybody and the miner; or a dealer with its partner.

    Raises:
        ValueError: a parameter is out of its range.
    """

    tolerate: int
    missing: int
    checks: int
    reader: str = MASKED

    def __post_init__(self) -> None:
        if not 1 <= self.tolerate <= self.missing < self.contributors:
            raise ValueError(
                f"{self.missing} draws missing of {self.contributors}, {self.tolerate} tolerated: expected at least one "
                "tolerated, no fewer missing than tolerated, and fewer missing than there are"
            )
        DiscreteGaussianCounts.__post_init__(self)
        if not 0 < self.checks * CHECK < self.delta:
            raise ValueError(
                f"{self.checks} checks at delta {self.delta:g}: expected some, and a delta above {CHECK:g} each"
            )

    @property
    def draws(self) -> int:
        """How many draws make up a noise of parameter `sigma`: those of N - t."""
        return self.contributors - self.tolerate

    @property
    def residual_sigma(self) -> float:
        """The parameter of the noise that the reader does not know, people."""
        return self.sigma * math.sqrt((self.contributors - self.missing) / self.draws)

    @property
    def sum_sigma(self) -> float:
        """The parameter of the noise on a count across parties when nobody leaves theirs out, people."""
        return self.sigma * math.sqrt(self.contributors / self.draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedLayers(MaskedTables):
    """The same of several sets of tables, calibrated together (`privacy.layered`).

    Attributes:
        coarse_sigma: parameter of the noise on tables in runs of neighbouring categories, as `sigma`; None: none are opened.
        coarse_tables: how many.
        profile_sigma: that an owner draws alone on the profiles of its numbers; None: none are measured.
        profiles: how many histograms, of all parties.
    """

    coarse_sigma: float | None
    coarse_tables: int
    profile_sigma: float | None
    profiles: int

    def __post_init__(self) -> None:
        MaskedTables.__post_init__(self)
        check_sets((self.coarse_sigma, self.coarse_tables), (self.profile_sigma, self.profiles))


def together(study: Study) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return whose randomized columns two contributors could read who work together: one dealt masks to the other, or each to the
    other.

    Returns:
        (one, other) -> units, ascending.
    """
    units_of: dict[tuple[str, str], set[int]] = {}
    for item in list_exposures(study):
        pair, other = (item.dealer, item.partner), (item.partner, item.dealer)
        units_of.setdefault(other if other in units_of else pair, set()).update(item.units)
    return {pair: tuple(sorted(units)) for pair, units in units_of.items()}


def tables_event(study: Study) -> MaskedTables:
    """Return what a masked study tells everybody and the miner.

    Raises:
        ValueError: the study has no ``[tables]``.
    """
    if study.tables is None:
        raise ValueError(f"study '{study.id}' has no [tables]")
    tables, tolerate = tables_of(study), rule_of(study).tolerate
    event = MaskedTables(
        sigma=tables_sigma(study),
        tables=len(tables),
        delta=study.tables.delta,
        epsilon=study.tables.epsilon,
        contributors=len(noise_contributors(study)),
        tolerate=tolerate,
        missing=tolerate,
        checks=len(study.parties) ** 2 + 12 * sum(len(table) == 3 for table in tables),
        sensitivity=math.sqrt(2 * len(tables)),
    )
    if not has_several_sets(study):
        return event
    own: dict[str, Any] = {field.name: getattr(event, field.name) for field in fields(event)}
    own |= dict(further_sets(study))
    return MaskedLayers(**own)


def known_draws(study: Study) -> int:
    """Return how many of those who draw noise across parties are among a dealer and its partner, at the most."""
    draws = set(noise_contributors(study))
    return max(len(draws.intersection(pair)) for pair in together(study))


def dealer_event(study: Study) -> MaskedTables | None:
    """Return what the tables tell a dealer with its partner, beside the rows; None: the rows say all of it.

    Of the draws those of a dealer and its partner are known, at the most over all of them, and those that the statement tolerates
    are missing anyway. Where these two draw all noise, tables are a function of the randomized columns.
    """
    everybody, n_known = tables_event(study), known_draws(study)
    if n_known >= everybody.contributors:
        return None
    missing = max(n_known, everybody.tolerate)
    epsilon = everybody.epsilon if missing == everybody.tolerate else None
    return replace(everybody, missing=missing, epsilon=epsilon, reader=DEALER.name)


def _plan_events(study: Study, party: str) -> Iterator[PlannedEvent]:
    """Columns for a dealer with its partner, then the tables: two events of all parties' people, charged to those of each."""
    if not opens_tables(study):
        return
    own, pairs = study.units_of(party), together(study)
    for index in own:
        unit = study.units[index]
        readers = _name_pairs(pair for pair, units in pairs.items() if index in units)
        event = RandomizedColumn(epsilon=epsilon(unit.transition), reader=DEALER.name)
        yield PlannedEvent(event=event, variables=unit.variables, readers=readers, unit=index)
    names = tuple(study.schema[position].name for position in study.schema.owned_by(party))
    yield PlannedEvent(event=tables_event(study), variables=names, readers=("everyone",), joint=True)
    if (less := dealer_event(study)) is not None:
        readers = _name_pairs(pair for pair, units in pairs.items() if set(units) & set(own))
        yield PlannedEvent(event=less, variables=names, readers=readers, joint=True)


def _name_pairs(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{one} with {other}" for one, other in pairs)


def _losses(event: MaskedTables, changes: int = 2) -> Counter[Loss]:
    part = event.residual_sigma / event.sigma
    losses: Counter[Loss] = Counter({ApproximateLoss(epsilon=0.0, delta=event.checks * CHECK): 1})
    losses[DiscreteGaussianLoss(sigma=event.residual_sigma)] += changes * event.tables
    if isinstance(event, MaskedLayers):
        if event.coarse_sigma is not None:
            losses[DiscreteGaussianLoss(sigma=event.coarse_sigma * part)] += changes * event.coarse_tables
        if event.profile_sigma is not None:
            losses[DiscreteGaussianLoss(sigma=event.profile_sigma)] += changes * event.profiles
    return losses


@functools.lru_cache(maxsize=64)
def _cost(event: MaskedTables) -> Cost:
    return cost_at(_losses(event), event.delta, event.epsilon)


def _words(event: MaskedTables) -> str:
    cost = _cost(event)
    cost_words = f"epsilon {cost.epsilon:.4g}, delta {cost.delta:.4g}"
    if event.reader == MASKED:
        layers = _layers_words(event) if isinstance(event, MaskedLayers) else ""
        return (
            f"{event.tables} tables of randomized columns are opened with discrete Gaussian noise of standard deviation "
            f"{event.sum_sigma:.4g} on counts across parties, drawn by {event.contributors}, and {event.sigma:.4g} within one "
            f"party{layers}: {cost_words} for everybody, the miner too, while at most {event.tolerate} of them know theirs or "
            "leave it out. Nobody but a dealer with its partner sees a row"
        )
    return (
        f"a dealer of masks with its partner knows noise on the {event.tables} tables that others do not; what is left has a "
        f"standard deviation of {event.residual_sigma:.4g}: {cost_words} for these two, besides the rows that they can read"
    )


def _layers_words(event: MaskedLayers) -> str:
    """Say the further sets of tables."""
    parts = []
    if event.coarse_sigma is not None:
        across = event.coarse_sigma * event.sum_sigma / event.sigma
        parts.append(
            f"; {event.coarse_tables} of them once more in ranges of neighbouring categories, with {across:.4g} and "
            f"{event.coarse_sigma:.4g}"
        )
    if event.profile_sigma is not None:
        parts.append(f"; {event.profiles} histograms of numbers, with {event.profile_sigma:.4g}")
    return "".join(parts)


def _no_events(_study: Study, _party: str) -> Iterable[PlannedEvent]:
    """Return nothing: `_plan_events` yields the events of both kinds."""
    return ()


ROUND_EVENTS: Final = (MaskedTables, MaskedLayers)
"""What a round's tables are charged as."""
for _name, _kind in zip(("masked-tables", "masked-layers"), ROUND_EVENTS, strict=True):
    register(
        EventKind(
            name=_name,
            event=_kind,
            cost=_cost,
            words=_words,
            of_study=_plan_events if _kind is MaskedTables else _no_events,
            losses=_losses,
            add_or_remove=lambda event: _losses(event, 1),
            deviation=lambda event: event.sum_sigma,
        )
    )

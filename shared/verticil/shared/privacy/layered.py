"""The event of several sets of tables that one owner draws, each set with noise of its own, for one epsilon and delta together.

A study of one owner can measure the profile of each number, each column, all pairs, and pairs once more in runs of neighbours
(`verticil.shared.study.tables`). A later set is chosen by what the earlier ones gave, which the bound of their sum covers. The
event names each set, and what it costs is that of all of them: they are calibrated together, and are never drawn apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, Loss
from verticil.shared.privacy.accounts import PUBLIC
from verticil.shared.privacy.events import LATER, EventKind, PlannedEvent, PrivacyEvent, cost_at, register
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import measures_itself, protocol_of
from verticil.shared.study.tables import has_several_sets, set_sigmas, set_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredCounts(PrivacyEvent):
    """Discrete Gaussian noise was added to every count of up to four sets of tables; see the module.

    A person who is replaced moves from one cell to another in every table. The sensitivity is L2, over all tables.

    Attributes:
        sigma: parameter of the noise on each count of the tables of the study's pairs and triples, > 0.
        tables: how many, at least 1.
        coarse_sigma: the same of pairs in runs of neighbouring categories; None: none are measured.
        coarse_tables: how many.
        profile_sigma: the same of the profiles of numbers; None: none are measured.
        profiles: how many.
        column_sigma: the same of single columns; None: none are measured.
        columns: how many.
        delta: at which epsilon is told, 0 < delta < 1.
        epsilon: that the noise was calibrated for, which is what the event costs if it is proved to be enough.

    Raises:
        ValueError: a parameter is out of its range.
    """

    sigma: float
    tables: int
    coarse_sigma: float | None
    coarse_tables: int
    profile_sigma: float | None
    profiles: int
    delta: float
    epsilon: float
    column_sigma: float | None = field(default=None, metadata={LATER: True})
    columns: int = field(default=0, metadata={LATER: True})

    def __post_init__(self) -> None:
        for sigma, n_tables in self.sets:
            if not 0 < sigma < math.inf or n_tables < 1:
                raise ValueError(
                    f"noise of sigma {sigma:g} on {n_tables} tables, expected a finite sigma > 0 and a table"
                )
        if any((sigma is None) != (n_tables == 0) for sigma, n_tables in self._all_sets):
            raise ValueError("a set of tables without its noise, or noise without its tables")
        if not (0 < self.delta < 1 and 0 < self.epsilon < math.inf):
            raise ValueError(
                f"epsilon {self.epsilon:g} at delta {self.delta:g}, expected both > 0, finite, and delta < 1"
            )

    @property
    def sets(self) -> tuple[tuple[float, int], ...]:
        """Sigma and number of tables of each set that is measured."""
        return tuple((sigma, n) for sigma, n in self._all_sets if sigma is not None)

    @property
    def _all_sets(self) -> tuple[tuple[float | None, int], ...]:
        return (
            (self.sigma, self.tables),
            (self.column_sigma, self.columns),
            (self.coarse_sigma, self.coarse_tables),
            (self.profile_sigma, self.profiles),
        )


def _losses(event: LayeredCounts, changes: int = 2) -> Counter[Loss]:
    losses: Counter[Loss] = Counter()
    for sigma, n_tables in event.sets:
        losses[DiscreteGaussianLoss(sigma=sigma)] += changes * n_tables
    return losses


def _words(event: LayeredCounts) -> str:
    cost = cost_at(_losses(event), event.delta, event.epsilon)
    parts = [f"standard deviation {event.sigma:.4g} on {event.tables} tables of columns"]
    if event.column_sigma is not None:
        parts.append(f"{event.column_sigma:.4g} on {event.columns} tables of one column")
    if event.coarse_sigma is not None:
        parts.append(f"{event.coarse_sigma:.4g} on {event.coarse_tables} tables of ranges of neighbouring categories")
    if event.profile_sigma is not None:
        parts.append(f"{event.profile_sigma:.4g} on {event.profiles} histograms of numbers")
    return (
        f"discrete Gaussian noise was added to every count ({'; '.join(parts)}): together epsilon {cost.epsilon:.4g}, "
        f"delta {cost.delta:.4g}"
    )


def layered_counts(study: Study) -> LayeredCounts:
    """Return the event of a study whose tables are measured in several sets."""
    rule = study.tables
    sizes, sigmas = set_sizes(study), set_sigmas(study)
    assert rule is not None
    assert sigmas.pairs is not None  # there is always a table
    return LayeredCounts(
        sigma=sigmas.pairs,
        tables=sizes.pairs,
        coarse_sigma=sigmas.coarse,
        coarse_tables=sizes.coarse,
        profile_sigma=sigmas.profiles,
        profiles=sizes.profiles,
        column_sigma=sigmas.columns,
        columns=sizes.columns,
        delta=rule.delta,
        epsilon=rule.epsilon,
        sensitivity=math.sqrt(2 * (sizes.pairs + sizes.columns + sizes.coarse + sizes.profiles)),
        reader=PUBLIC.name,
    )


def _of_study(study: Study, party: str) -> Iterable[PlannedEvent]:
    if study.tables is None or measures_itself(study) or not has_several_sets(study) or protocol_of(study).coordinated:
        return
    names = tuple(study.schema[position].name for position in study.schema.owned_by(party))
    yield PlannedEvent(event=layered_counts(study), variables=names, readers=("everyone",), joint=True)


register(
    EventKind(
        name="layered-counts",
        event=LayeredCounts,
        cost=lambda event: cost_at(_losses(event), event.delta, event.epsilon),
        words=_words,
        of_study=_of_study,
        losses=_losses,
        add_or_remove=lambda event: _losses(event, 1),
        deviation=lambda event: event.sigma,
    )
)

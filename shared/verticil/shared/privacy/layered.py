"""The event of several sets of tables, each set with noise of its own, for one epsilon and delta together.

A study can measure the profile of each number, each column, all pairs, and pairs once more in runs of neighbouring categories
(`verticil.shared.study.tables`). An owner of all columns draws all of it; with a miner, the miner draws the noise on columns,
pairs and runs. A later set is chosen by what the earlier ones gave, which the bound of their sum covers. The event names each
set, and what it costs is that of all of them: they are calibrated together, and are never drawn apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypedDict

from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, Loss
from verticil.shared.privacy.accounts import OTHERS, PUBLIC
from verticil.shared.privacy.events import (
    LATER,
    WORD_OF_MINER,
    EventKind,
    PlannedEvent,
    PrivacyEvent,
    cost_at,
    register,
)
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import measures_itself, opens_tables, protocol_of
from verticil.shared.study.tables import has_several_sets, profiled, set_sigmas, set_sizes, tables_sigma


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
        for sigma, n_tables, _what in self.sets:
            if not 0 < sigma < math.inf or n_tables < 1:
                raise ValueError(
                    f"noise of sigma {sigma:g} on {n_tables} tables, expected a finite sigma > 0 and a table"
                )
        check_sets(
            (self.column_sigma, self.columns),
            (self.coarse_sigma, self.coarse_tables),
            (self.profile_sigma, self.profiles),
        )
        if not (0 < self.delta < 1 and 0 < self.epsilon < math.inf):
            raise ValueError(
                f"epsilon {self.epsilon:g} at delta {self.delta:g}, expected both > 0, finite, and delta < 1"
            )

    @property
    def sets(self) -> tuple[tuple[float, int, str], ...]:
        """Sigma and number of tables of each set that is measured, and what they are of."""
        all_sets = (
            (self.sigma, self.tables, "tables of columns"),
            (self.column_sigma, self.columns, "tables of one column"),
            (self.coarse_sigma, self.coarse_tables, "tables of ranges of neighbouring categories"),
            (self.profile_sigma, self.profiles, "histograms of numbers"),
        )
        return tuple((sigma, n, what) for sigma, n, what in all_sets if sigma is not None)


def check_sets(*sets: tuple[float | None, int]) -> None:
    """Check that each set has tables and noise, or neither.

    Args:
        sets: of each the parameter of its noise, and the number of its tables.

    Raises:
        ValueError: it has one of them.
    """
    for sigma, n_tables in sets:
        if (sigma is None) != (n_tables == 0) or (sigma is not None and not (0 < sigma < math.inf and n_tables > 0)):
            raise ValueError("a set of tables without its noise, or noise without its tables")


class SetParameters(TypedDict):
    """Parameters of an event, see `LayeredCounts`."""

    coarse_sigma: float | None
    coarse_tables: int
    profile_sigma: float | None
    profiles: int
    sensitivity: float


def further_sets(study: Study) -> SetParameters:
    """Return the parameters of an event that name the sets besides pairs and triples, and the sensitivity of all together."""
    sizes, sigmas = set_sizes(study), set_sigmas(study)
    return {
        "coarse_sigma": sigmas.coarse,
        "coarse_tables": sizes.coarse,
        "profile_sigma": sigmas.profiles,
        "profiles": sizes.profiles,
        "sensitivity": math.sqrt(2 * (sizes.pairs + sizes.columns + sizes.coarse + sizes.profiles)),
    }


def _losses(event: LayeredCounts, changes: int = 2) -> Counter[Loss]:
    losses: Counter[Loss] = Counter()
    for sigma, n_tables, _what in event.sets:
        losses[DiscreteGaussianLoss(sigma=sigma)] += changes * n_tables
    return losses


def _words(event: LayeredCounts) -> str:
    cost = cost_at(_losses(event), event.delta, event.epsilon)
    parts = [f"{sigma:.4g} on {n} {what}" for sigma, n, what in event.sets]
    by_miner = event.reader == OTHERS
    return (
        f"discrete Gaussian noise {'is added by the miner' if by_miner else 'was added'} to every count (standard deviation "
        f"{'; '.join(parts)}): "
        f"together epsilon {cost.epsilon:.4g}, delta {cost.delta:.4g}"
        f"{f' for everybody but the miner. {WORD_OF_MINER}' if by_miner else ''}"
    )


def layered_counts(study: Study) -> LayeredCounts:
    """Return the event of a study whose tables are measured in several sets."""
    rule, sizes = study.tables, set_sizes(study)
    assert rule is not None
    return LayeredCounts(
        **further_sets(study),
        sigma=tables_sigma(study),
        tables=sizes.pairs,
        column_sigma=set_sigmas(study).columns,
        columns=sizes.columns,
        delta=rule.delta,
        epsilon=rule.epsilon,
        reader=OTHERS if protocol_of(study).coordinated and not profiled(study) else PUBLIC.name,
    )


def _of_study(study: Study, party: str) -> Iterable[PlannedEvent]:
    if study.tables is None or measures_itself(study) or opens_tables(study) or not has_several_sets(study):
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

"""What a run of PrivBayes costs, and the noise for a wanted cost.

One event: discrete Gaussian noise on every whole-number score and on every cell of every measurement, and on the number of
records where it is not public (`verticil.shared.numerics.privbayes.calibration`: what a person changes of each, with the proofs).
Their losses are composed as one sum; which tables are measured follows from the scores, how many measurements are made does not.

Every account compares tables in which a person is replaced, so that its sums are of one relation: an event of which the epsilon
is about a person who is added or removed is charged what it costs a person who is replaced (more: two cells of each table change,
and a score by one more), and its own epsilon stands beside.

Of the budget, in the sense of sums of (change / sigma)^2, `SHARE_OF_SCORES` goes to the scores, `SHARE_OF_RECORDS` to the number
of records where it is counted, and the rest to the tables.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms.discrete_gaussian import LARGEST_SIGMA, LEAST_SIGMA
from verticil.shared.mechanisms.gaussian import analytic_sigma
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, Loss, delta_at
from verticil.shared.numerics.privbayes.calibration import (
    MEASUREMENTS,
    Noise,
    Relation,
    cells_changed,
    n_scores,
    score_change,
)
from verticil.shared.privacy.accounts import COLUMNS, PUBLIC, Cost
from verticil.shared.privacy.events import REPLACE_ONE, EventKind, PlannedEvent, PrivacyEvent, cost_at, register
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import measures_itself

SHARE_OF_SCORES: Final = 0.2
SHARE_OF_RECORDS: Final = 0.01
ADD_OR_REMOVE: Final = "add or remove one person"
"""Tables are neighbours when one has the record of one more person; how many people there are is not public."""

_RELATIONS: Final[dict[Relation, str]] = {"replace": REPLACE_ONE, "add-remove": ADD_OR_REMOVE}
_STEPS: Final = 128
_STEP: Final = 1 + 2**-10


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivBayesRun(PrivacyEvent):
    """PrivBayes was run on a whole table.

    Attributes:
        attributes: d.
        scores: noise on each of the d (d - 1) / 2 scores; None: the scores came from elsewhere and cost nothing here.
        measurement: on each cell of one measurement; there are `measurements`.
        measurements: of tables, all together.
        records: on the number of records; None: it is public.
        delta: at which epsilon is told, 0 < delta < 1.
        epsilon: that the noise was made for under `relation`, which is what the event costs a person under it if it is proved to
            be enough, and only then; None: it costs the least epsilon that is proved.

    Raises:
        ValueError: a parameter is out of its range, or the number of records does not fit the relation.
    """

    attributes: int
    scores: float | None
    measurement: float
    measurements: int
    records: float | None
    delta: float
    epsilon: float | None = None

    def __post_init__(self) -> None:
        sigmas = [sigma for sigma in (self.scores, self.measurement, self.records) if sigma is not None]
        if self.relation not in _RELATIONS.values() or (self.records is None) != (self.relation == REPLACE_ONE):
            raise ValueError(
                f"relation '{self.relation}' and noise on the number of records {self.records}: expected "
                f"'{REPLACE_ONE}' without, or '{ADD_OR_REMOVE}' with such noise"
            )
        if not (0 < self.delta < 1 and self.attributes >= 1 and self.measurements >= 1 and min(sigmas) >= LEAST_SIGMA):
            raise ValueError(
                f"{self.measurements} measurements for {self.attributes} attributes at delta {self.delta:g}, least noise "
                f"{min(sigmas):g}: expected at least one of each, 0 < delta < 1, and noise of {LEAST_SIGMA:g} or more"
            )
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise ValueError(f"noise for epsilon {self.epsilon:g}, expected a finite number > 0")


def run_event(
    noise: Noise, n_attributes: int, *, delta: float, epsilon: float | None = None, reader: str = COLUMNS.name
) -> PrivBayesRun:
    """Return the event of a run with this noise."""
    return PrivBayesRun(
        attributes=n_attributes,
        scores=noise.scores,
        measurement=noise.measurement,
        measurements=MEASUREMENTS * n_attributes,
        records=noise.records,
        delta=delta,
        epsilon=epsilon,
        relation=_RELATIONS[noise.relation],
        reader=reader,
    )


@functools.lru_cache(maxsize=64)
def noise_for(
    epsilon: float, delta: float, relation: Relation, n_attributes: int, *, with_scores: bool = True
) -> Noise:
    """Find the least noise, in steps of a thousandth, with which a run is proved to be (epsilon, delta) private.

    Args:
        epsilon: finite, > 0.
        delta: 0 < delta < 1.
        relation: which tables are neighbours.
        n_attributes: d, at least 1.
        with_scores: the run scores pairs; else scores come from elsewhere, and their share goes to the tables.

    Raises:
        ValueError: a number is out of its range, or the noise would be beyond what can be drawn.
    """
    unit = analytic_sigma(epsilon, delta)
    for _ in range(_STEPS):
        noise = _noise(unit, relation, n_attributes, with_scores=with_scores and n_attributes > 1)
        event = run_event(noise, n_attributes, delta=delta)
        if delta_at(_losses(event, relation), epsilon) <= delta:
            return noise
        unit *= _STEP
    raise ValueError(
        f"delta {delta:g} at epsilon {epsilon:g}: no noise is proved to be enough, expected a larger delta"
    )


def _noise(unit: float, relation: Relation, d: int, *, with_scores: bool) -> Noise:
    """Return the noise that a Gaussian of sensitivity 1 and this sigma stands for."""
    of_scores = SHARE_OF_SCORES if with_scores else 0.0
    of_records = SHARE_OF_RECORDS if relation == "add-remove" else 0.0

    def sigma(change: int, times: int, share: float) -> float:
        parameter = max(change * unit * math.sqrt(times / share), LEAST_SIGMA)
        if parameter > LARGEST_SIGMA:
            raise ValueError(
                f"noise of {parameter:.4g} people for {d} attributes, expected at most {LARGEST_SIGMA:.4g}: "
                "allow a larger epsilon"
            )
        return parameter

    return Noise(
        relation=relation,
        scores=sigma(score_change(relation), n_scores(d), of_scores) if with_scores else None,
        measurement=sigma(1, cells_changed(relation) * MEASUREMENTS * d, 1 - of_scores - of_records),
        records=sigma(1, 1, of_records) if of_records else None,
    )


def _losses(event: PrivBayesRun, relation: Relation) -> Counter[Loss]:
    losses: Counter[Loss] = Counter()
    losses[DiscreteGaussianLoss(sigma=event.measurement)] += cells_changed(relation) * event.measurements
    if event.scores is not None:
        losses[DiscreteGaussianLoss(sigma=event.scores, change=score_change(relation))] += n_scores(event.attributes)
    if event.records is not None and relation == "add-remove":  # who is replaced leaves their number as it is
        losses[DiscreteGaussianLoss(sigma=event.records)] += 1
    return losses


def _losses_of_replacement(event: PrivBayesRun) -> Counter[Loss]:
    return _losses(event, "replace")


def _losses_of_addition(event: PrivBayesRun) -> Counter[Loss]:
    """Return the losses for a person who is added or removed; none where the event promises nothing of that."""
    return _losses(event, "add-remove") if event.relation == ADD_OR_REMOVE else Counter()


def _cost(event: PrivBayesRun) -> Cost:
    """Return what a person who is replaced is charged, whatever the event's own relation is."""
    epsilon = event.epsilon if event.relation == REPLACE_ONE else None
    return cost_at(_losses_of_replacement(event), event.delta, epsilon)


def _words(event: PrivBayesRun) -> str:
    cost = _cost(event)
    scores = (
        ""
        if event.scores is None
        else f"every score of a pair of columns (standard deviation {event.scores:.4g}) and on "
    )
    words = f"epsilon {cost.epsilon:.4g}, delta {cost.delta:.4g} ({REPLACE_ONE})"
    if event.relation == ADD_OR_REMOVE:
        own = cost_at(_losses_of_addition(event), event.delta, event.epsilon)
        words = (
            f"and on the number of people (standard deviation {event.records or 0.0:.4g}): epsilon {own.epsilon:.4g}, delta "
            f"{own.delta:.4g} ({ADD_OR_REMOVE}); {words}"
        )
    return (
        f"PrivBayes was run: discrete Gaussian noise on {scores}every count of {event.measurements} measured tables (standard "
        f"deviation {event.measurement:.4g}){': ' if event.relation == REPLACE_ONE else ' '}{words}"
    )


def study_noise(study: Study) -> Noise:
    """Return the noise of a study of one owner whose structure is PrivBayes'.

    Raises:
        ValueError: the study asks for no noise on tables, or for more than can be drawn.
    """
    if study.tables is None:
        raise ValueError("the study asks for no noise on tables")
    relation: Relation = "add-remove" if study.privbayes.neighbours == "add-remove" else "replace"
    return noise_for(study.tables.epsilon, study.tables.delta, relation, len(study.schema))


def _of_study(study: Study, party: str) -> Iterable[PlannedEvent]:
    if study.tables is None or not measures_itself(study):
        return
    try:
        noise = study_noise(study)
    except ValueError as error:
        raise Misuse("STUDY_INVALID", f"study '{study.id}': tables: {error}") from None
    event = run_event(
        noise,
        len(study.schema),
        delta=study.tables.delta,
        epsilon=study.tables.epsilon,
        reader=PUBLIC.name,
    )
    names = tuple(study.schema[position].name for position in study.schema.owned_by(party))
    yield PlannedEvent(event=event, variables=names, readers=("everyone",))


register(
    EventKind(
        name="privbayes",
        event=PrivBayesRun,
        cost=_cost,
        words=_words,
        of_study=_of_study,
        has_own_words=True,
        losses=_losses_of_replacement,
        add_or_remove=_losses_of_addition,
    )
)

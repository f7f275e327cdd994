"""What training a generator by DP-SGD costs, and the noise for a wanted cost.

One event: discrete Gaussian noise on every count of each column, and Gaussian noise on every sum of gradients. In each step a
person takes part with one chance, independently of others and of other steps (Poisson); the gradient of a person has a norm of at
most what the noise is measured in. Their losses are composed as one sum. How many people there are is public; the number that
sums are divided by is, too, and does not depend on who was taken.

Of the budget, in the sense of sums of (change / sigma)^2, `SHARE_OF_COUNTS` goes to the counts if nothing else is asked for, and
the rest to the steps.
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
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, Loss, SampledGaussianLoss, delta_at
from verticil.shared.privacy.accounts import COLUMNS, PUBLIC, Cost
from verticil.shared.privacy.events import EventKind, PlannedEvent, PrivacyEvent, cost_at, register
from verticil.shared.study.document import Study

SHARE_OF_COUNTS: Final = 0.1
EVIDENCE: Final = {
    "generator-training": "nowhere: records and statement are not signed, so a folder that is set back forgets the charge; the "
    "same training again is the same draw"
}
"""Kind of event -> where its proof lies outside of the owner's folder, for people."""
_LEAST, _LARGEST = 0.3, 1000.0
_NEAR: Final = 1e-4  # relative, of the search for sigma


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorTraining(PrivacyEvent):
    """A generator was trained on a whole table by DP-SGD.

    M. Abadi et al., "Deep learning with differential privacy", CCS 2016.

    Attributes:
        steps: of training, at least 1.
        rate: chance of each person to take part in a step, 0 < rate <= 1.
        sigma: standard deviation of the noise on each number of a sum, over the norm that gradients are clipped to; 0.3 to 1000.
        tables: of one column each, of which every count has noise, at least 1.
        counts: the noise on each count, people.
        delta: at which epsilon is told, 0 < delta < 1.
        epsilon: that the noise was made for, which is what the event costs if it is proved to be enough, and only then; None: it
            costs the least epsilon that is proved.

    Raises:
        ValueError: a parameter is out of its range.
    """

    steps: int
    rate: float
    sigma: float
    tables: int
    counts: float
    delta: float
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if not (0 < self.delta < 1 and self.steps >= 1 and self.tables >= 1 and self.counts >= LEAST_SIGMA):
            raise ValueError(
                f"{self.steps} steps, {self.tables} tables with noise of {self.counts:g} people, at delta {self.delta:g}: "
                f"expected at least one of each, noise of {LEAST_SIGMA:g} or more, and 0 < delta < 1"
            )
        SampledGaussianLoss(sigma=self.sigma, rate=self.rate)
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise ValueError(f"noise for epsilon {self.epsilon:g}, expected a finite number > 0")


@functools.lru_cache(maxsize=64)
def training_for(
    epsilon: float,
    delta: float,
    *,
    steps: int,
    rate: float,
    tables: int,
    reader: str = COLUMNS.name,
    share: float = SHARE_OF_COUNTS,
) -> GeneratorTraining:
    """The training with the least noise on its steps, to a ten-thousandth, that is proved to be (epsilon, delta) private.

    Args:
        epsilon: finite, > 0.
        delta: 0 < delta < 1.
        steps, rate, tables, reader: as in `GeneratorTraining`.
        share: of the budget for the counts.

    Raises:
        ValueError: a number is out of its range, or more noise would be needed than there can be.
    """
    unit = analytic_sigma(epsilon, delta)
    counts = max(unit * math.sqrt(2 * tables / share), LEAST_SIGMA)

    def made(sigma: float) -> GeneratorTraining:
        return GeneratorTraining(
            steps=steps,
            rate=rate,
            sigma=sigma,
            tables=tables,
            counts=counts,
            delta=delta,
            epsilon=epsilon,
            reader=reader,
        )

    low, high = _LEAST, _LARGEST
    if counts > LARGEST_SIGMA or not _enough(made(high)):
        raise ValueError(
            f"epsilon {epsilon:g}, delta {delta:g} for {tables} counted columns and {steps} steps: no noise that can be drawn "
            "is enough: allow a larger epsilon"
        )
    while high > low * (1 + _NEAR):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _enough(made(middle)) else (middle, high)
    return made(high)


def votes_sigma(epsilon: float, delta: float, votes: int) -> float:
    """The standard deviation of Gaussian noise on each of so many counts that a person changes by one at most.

    Whatever is counted may hang by the counts before it: together they are one Gaussian mechanism (J. Dong, A. Roth, W. Su,
    "Gaussian differential privacy", 2022, corollary 3.3).
    """
    return math.sqrt(votes) * analytic_sigma(epsilon, delta)


def study_training(study: Study, *, steps: int, rate: float) -> GeneratorTraining:
    """The training of an owner's study, for everybody: with what its ``[tables]`` ask for.

    Raises:
        Misuse: STUDY_INVALID, no noise that can be drawn is enough.
        ValueError: the study asks for no noise on tables.
    """
    if study.tables is None:
        raise ValueError("the study asks for no noise on tables")
    try:
        return training_for(
            study.tables.epsilon,
            study.tables.delta,
            steps=steps,
            rate=rate,
            tables=len(study.schema),
            reader=PUBLIC.name,
        )
    except ValueError as error:
        raise Misuse("STUDY_INVALID", f"study '{study.id}': tables: {error}") from None


def _enough(event: GeneratorTraining) -> bool:
    assert event.epsilon is not None
    return delta_at(_losses(event), event.epsilon) <= event.delta


def _losses(event: GeneratorTraining, *, replaced: bool = True) -> Counter[Loss]:
    found: Counter[Loss] = Counter()
    found[DiscreteGaussianLoss(sigma=event.counts)] += event.tables * (2 if replaced else 1)
    found[SampledGaussianLoss(sigma=event.sigma, rate=event.rate, replaced=replaced)] += event.steps
    return found


def _cost(event: GeneratorTraining) -> Cost:
    return cost_at(_losses(event), event.delta, event.epsilon)


def _words(event: GeneratorTraining) -> str:
    cost = _cost(event)
    return (
        f"a generator was trained in {event.steps} steps, each person in a step with a chance of {event.rate:.4g}, with Gaussian "
        f"noise of {event.sigma:.4g} times the largest gradient, and discrete Gaussian noise of standard deviation "
        f"{event.counts:.4g} on every count of {event.tables} columns: epsilon {cost.epsilon:.4g}, delta {cost.delta:.4g}"
    )


def _of_no_study(_study: Study, _party: str) -> Iterable[PlannedEvent]:
    return ()


register(
    EventKind(
        name="generator-training",
        event=GeneratorTraining,
        cost=_cost,
        words=_words,
        of_study=_of_no_study,
        losses=_losses,
        add_or_remove=lambda event: _losses(event, replaced=False),
    )
)

"""Headline figures: each value beside what chance alone does and what the worst reference does, and where it lies between.

There is no threshold on any figure. The floor is what another sample of the same people shows, the baseline what a useless
table (or, of attacks, a copy of the records) shows; `position` is 0 at the floor and 1 at the baseline. Every seed holds all of
them against the same records, so what is compared is the difference of each seed. A value differs from a reference where the
mean difference is larger than the bound that the difference of one further seed keeps in 99 of 100 cases (the prediction
interval of a normal distribution whose mean and deviation are the seeds': Hahn & Meeker, Statistical Intervals, section 4.7).
The bound of a mean would be too small: the seeds share the candidate's records, so that what chance made of these is in all of
them. Not so of most attacks: every seed attacks other people, so that a candidate which has nothing to do with any of them
shows in each seed what it shows by chance anew, and the bound of a mean is taken (Student's).

A figure that could not be computed is NaN, with the reason, and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Family = Literal["fidelity", "utility", "disclosure", "knowledge"]
Verdict = Literal["floor", "between", "baseline", "unclear", "not computed"]

_SURE = 0.99

FAMILIES: tuple[Family, ...] = ("fidelity", "utility", "disclosure", "knowledge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A headline figure.

    Attributes:
        key: its name in documents and limits.
        title: for people.
        family: what it is about.
        better: which direction is good.
        says: what it is, in one sentence.
        floor, baseline: what these are, in words.
    """

    key: str
    title: str
    family: Family
    better: Literal["lower", "higher"]
    says: str
    floor: str
    baseline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was found of one candidate. Means over the seeds; NaN where nothing could be computed.

    Attributes:
        asked: which figure.
        candidate: whose.
        value, deviation: mean and standard deviation over the seeds.
        floor, floor_deviation, baseline: the same of the references.
        seeds: for how many it could be computed.
        position: 0 at the floor, 1 at the baseline; NaN where the two cannot be told apart.
        verdict: where it lies: like the floor, like the baseline (or worse), or between; unclear where these two are alike.
        reason: why it could not be computed, or tells nothing.
        by_value, by_value_floor: the same of values in place of a study's codebook, for which no verdict is given; NaN: there is
            no codebook, or the figure is about it alone.
    """

    asked: Asked
    candidate: str
    value: float
    deviation: float
    floor: float
    floor_deviation: float
    baseline: float
    seeds: int
    position: float
    verdict: Verdict
    reason: str = ""
    by_value: float = math.nan
    by_value_floor: float = math.nan


def figure(
    definition: Asked,
    candidate: str,
    values: Sequence[float],
    floor: Sequence[float],
    baseline: Sequence[float],
    *,
    reason: str = "",
    independent: bool = False,
) -> Figure:
    """Put a candidate's values beside the references'.

    Args:
        definition: which figure.
        candidate: whose.
        values, floor, baseline: one for each seed, the same seeds; NaN where it could not be computed.
        reason: why it could not, where that is known.
        independent: whether chance is another one in each seed, as where other people are attacked.
    """
    sign = 1.0 if definition.better == "lower" else -1.0
    seeds = [tuple(sign * value for value in seed) for seed in zip(values, floor, baseline, strict=True)]
    own = [seed[0] for seed in seeds if not math.isnan(seed[0])]
    low = [seed[1] for seed in seeds if not math.isnan(seed[1])]
    high = [seed[2] for seed in seeds if not math.isnan(seed[2])]
    position: float = math.nan
    verdict: Verdict = "not computed"
    complete = [seed for seed in seeds if not any(map(math.isnan, seed))]
    if not own:
        reason = reason or "there is nothing to compute it from"
    elif len(complete) < 2:
        reason = "there is nothing to hold it against"
    else:
        apart = _larger([worst - best for _, best, worst in complete], independent)
        worse = _larger([mine - best for mine, best, _ in complete], independent)
        better = _larger([worst - mine for mine, _, worst in complete], independent)
        if apart:
            position = (_mean(own) - _mean(low)) / (_mean(high) - _mean(low))
        reason = reason if apart else "floor and baseline cannot be told apart"
        verdict = ("floor" if apart else "unclear") if not worse else "between" if apart and better else "baseline"
    return Figure(
        asked=definition,
        candidate=candidate,
        value=_mean(own) * sign + 0.0,
        deviation=_deviation(own),
        floor=_mean(low) * sign + 0.0,
        floor_deviation=_deviation(low),
        baseline=_mean(high) * sign + 0.0,
        seeds=len(own),
        position=position,
        verdict=verdict,
        reason=reason,
    )


def worst_first(figures: Sequence[Figure]) -> list[tuple[Asked, tuple[Figure, ...]]]:
    """Return figures of all candidates, each figure once, those with the worst candidate first; what was not computed last."""
    rows: dict[str, list[Figure]] = {}
    for item in figures:
        rows.setdefault(item.asked.key, []).append(item)
    order = {"baseline": 0, "between": 1, "unclear": 2, "floor": 3, "not computed": 4}

    def rank(row: Sequence[Figure]) -> tuple[int, float]:
        worst = min(order[item.verdict] for item in row)
        return worst, -max((item.position for item in row if not math.isnan(item.position)), default=-math.inf)

    return [(row[0].asked, tuple(row)) for row in sorted(rows.values(), key=rank)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One candidate in short.

    Attributes:
        candidate: its name.
        distance: mean position of the figures of fidelity and utility, each taken as at most 1 and at least 0; NaN: none.
        useless: figures of fidelity and utility that are no better than the baseline.
        of_use: how many of these tell anything.
        discloses: figures of disclosure that are beyond the floor.
        of_disclosure: how many of these tell anything.
    """

    candidate: str
    distance: float
    useless: tuple[str, ...]
    of_use: int
    discloses: tuple[str, ...]
    of_disclosure: int

    @property
    def words(self) -> str:
        """What was counted of a candidate, for people."""
        attacks = f"{len(self.discloses)} of {self.of_disclosure} attacks beyond chance"
        return (
            f"{len(self.useless)} of {self.of_use} figures of use no better than useless, "
            f"{attacks if self.of_disclosure else 'no attack was made'}"
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """``disclosive``: an attack tells more of members than of others. ``useless``: most figures are at the baseline."""
        return ("disclosive",) * bool(self.discloses) + ("useless",) * (2 * len(self.useless) > self.of_use)


def summaries(figures: Sequence[Figure]) -> tuple[Summary, ...]:
    """Summarize the figures of each candidate, the most useful first."""
    by: dict[str, list[Figure]] = {}
    for item in figures:
        by.setdefault(item.candidate, []).append(item)
    all_summaries = [_summary(name, items) for name, items in by.items()]
    return tuple(sorted(all_summaries, key=lambda item: (math.isnan(item.distance), item.distance)))


def _summary(name: str, items: Sequence[Figure]) -> Summary:
    clear_items = [item for item in items if item.verdict not in {"unclear", "not computed"}]
    use = [item for item in clear_items if item.asked.family in {"fidelity", "utility"}]
    attacks = [item for item in clear_items if item.asked.family == "disclosure"]
    positions = [min(max(item.position, 0.0), 1.0) for item in use if not math.isnan(item.position)]
    return Summary(
        candidate=name,
        distance=_mean(positions),
        useless=tuple(item.asked.key for item in use if item.verdict == "baseline"),
        of_use=len(use),
        discloses=tuple(item.asked.key for item in attacks if item.verdict != "floor"),
        of_disclosure=len(attacks),
    )


def _larger(differences: Sequence[float], independent: bool) -> bool:
    """Return whether differences of at least two seeds exceed 0 by more than chance gives a further one, or their mean."""
    from scipy.special import stdtrit

    spread = (0 if independent else 1) + 1 / len(differences)
    reach = float(stdtrit(len(differences) - 1, _SURE)) * _deviation(differences) * math.sqrt(spread)
    return _mean(differences) > reach


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample; NaN of fewer than two values."""
    if len(values) < 2:
        return math.nan
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))

"""What Bao et al. say of their results, held against a run of ours.

A difference counts where it exceeds two standard errors, of the two means over the seeds; with one seed there is no standard
error, and nothing is told. "Small epsilon" is read as the smallest of the paper's own range, .5 to 4, and what is below it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from verticil.experiments.claims import Claim, Verdict, verdict_of
from verticil.experiments.privbayes.experiment import Row
from verticil.experiments.privbayes.lines import PROJECTIONS

LEAST: Final = 0.5
LARGEST: Final = 4.0
"""The paper's epsilons are between them."""
A_TENTH: Final = 0.1
"""Of what is missing to a resample of the real records: less is no "significant improvement" here."""
SLIGHT: Final = 20_000
"""Of a million: differences up to this are called slight."""

_ONE_SEED: Final = "with one seed there is no standard error"
_STAND_IN: Final = "the records are a survey of five cities, not Colorado's census, and "
_Cells = Mapping[tuple[str, float | None], Row]


def claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    """Return every result that the paper states, beside the rows of a run.

    Args:
        rows: of all lines.
    """
    cells = {(row.line, row.epsilon): row for row in rows}
    epsilons = sorted({row.epsilon for row in rows if row.epsilon is not None})
    inside = [epsilon for epsilon in epsilons if LEAST <= epsilon <= LARGEST]
    return (
        _utility(cells, epsilons),
        _without_replacement(cells, inside),
        *_small_epsilon(cells, [epsilon for epsilon in epsilons if epsilon <= LEAST]),
        _slight(cells, inside),
        _clustering_best(cells, inside),
        _regression(cells, inside),
    )


def _verdict(rows: Sequence[Row], *, true: bool, reason: str) -> tuple[Verdict, str]:
    """Return the verdict of a claim about these rows, and its reason."""
    cannot = _ONE_SEED if any(row.deviation is None for row in rows) else ""
    if not rows:
        cannot = f"this run has no epsilon that the claim is about (the paper's are {LEAST:g} to {LARGEST:g})"
    return verdict_of(true=true, reason=reason, cannot=cannot)


def _value(row: Row, score: str = "clustering") -> float:
    return float(getattr(row.mean, score))


def _apart(one: Row, other: Row, score: str = "clustering") -> tuple[float, float]:
    """Return by how much the first is higher, and the standard error of that."""
    errors = [0.0 if row.error is None else float(getattr(row.error, score)) for row in (one, other)]
    return _value(one, score) - _value(other, score), (errors[0] ** 2 + errors[1] ** 2) ** 0.5


def _gains(cells: _Cells, one: str, other: str, epsilons: Sequence[float]) -> str:
    """Return how much higher one line is than another, in thousands, in words."""
    told: list[str] = []
    for epsilon in epsilons:
        gain, error = _apart(cells[one, epsilon], cells[other, epsilon])
        known = cells[one, epsilon].error is not None
        told.append(f"{gain / 1e3:+.1f}" + (f" ± {error / 1e3:.1f}" if known else "") + f" at {epsilon:g}")
    return ", ".join(told)


def _utility(cells: _Cells, epsilons: Sequence[float]) -> Claim:
    rows = [cells[f"{projection}-dealt", epsilon] for projection in PROJECTIONS for epsilon in epsilons]
    rising = all(
        _value(cells[f"{projection}-dealt", low]) < _value(cells[f"{projection}-dealt", high])
        for projection in PROJECTIONS
        for low, high in itertools.pairwise(epsilons)
    )
    verdict, reason = _verdict(rows, true=rising, reason="the clustering score falls somewhere")
    curves = "; ".join(
        f"{projection} " + ", ".join(f"{_value(cells[f'{projection}-dealt', e]) / 1e3:.0f}" for e in epsilons)
        for projection in PROJECTIONS
    )
    return Claim(
        name="utility-grows",
        theirs="as ε grows, so does the data's utility",
        ours=f"clustering, dealt, in thousands, by ε = {', '.join(f'{e:g}' for e in epsilons)}: {curves}",
        verdict=verdict,
        reason=reason,
    )


def _without_replacement(cells: _Cells, epsilons: Sequence[float]) -> Claim:
    floor = _value(cells["resample", None])
    rows = [cells[f"{p}-{way}", e] for p in PROJECTIONS for way in ("dealt", "consistent") for e in epsilons]

    def significant(projection: str, epsilon: float) -> bool:
        dealt, consistent = (cells[f"{projection}-{way}", epsilon] for way in ("dealt", "consistent"))
        gain, error = _apart(dealt, consistent)
        return gain > 2 * error and gain > A_TENTH * (floor - _value(consistent))

    verdict, reason = _verdict(
        rows,
        true=all(significant(projection, epsilon) for projection in PROJECTIONS for epsilon in epsilons),
        reason="a gain counts here if it exceeds two standard errors and a tenth of what is missing to a resample of the real "
        "records, at every ε",
    )
    gains = "; ".join(f"{p}: {_gains(cells, f'{p}-dealt', f'{p}-consistent', epsilons)}" for p in PROJECTIONS)
    return Claim(
        name="without-replacement",
        theirs="sampling without replacement is a significant improvement",
        ours=f"clustering, without replacement less with, both from consistent tables, in thousands: {gains or 'no ε'}",
        verdict=verdict,
        reason=reason,
    )


def _small_epsilon(cells: _Cells, epsilons: Sequence[float]) -> Iterator[Claim]:
    """The paper's tables are clipped; ours by least squares stand beside them."""
    larger = sorted({epsilon for _, epsilon in cells if epsilon is not None and epsilon > LEAST})
    for projection in reversed(PROJECTIONS):
        one, other = f"{projection}-inconsistent", f"{projection}-dealt"
        rows = [cells[line, epsilon] for line in (one, other) for epsilon in epsilons]

        def better(epsilon: float, *, one: str = one, other: str = other) -> bool:
            gain, error = _apart(cells[one, epsilon], cells[other, epsilon])
            return cells[one, epsilon].error is not None and gain > 2 * error

        elsewhere = [f"{epsilon:g}" for epsilon in larger if better(epsilon)]
        verdict, reason = _verdict(
            rows,
            true=any(map(better, epsilons)) and all(better(e) for e in epsilons if e == LEAST),
            reason="at small ε the naive way is not better"
            + (
                f"; it is at ε = {', '.join(elsewhere)}, which is the other way round"
                if elsewhere
                else ", nor at others"
            ),
        )
        words = "clipped as in the paper" if projection == "clip" else "by least squares, which is ours"
        yield Claim(
            name=f"naive-at-small-epsilon-{projection}",
            theirs="at small ε naive sampling (with replacement, from tables as they are) is better than the optimal one",
            ours=f"tables {words}: clustering, naive less dealt, in thousands: "
            f"{_gains(cells, one, other, [*epsilons, *larger])}",
            verdict=verdict,
            reason=reason,
        )


def _slight(cells: _Cells, epsilons: Sequence[float]) -> Claim:
    pairs = [
        (cells[f"{projection}-consistent", epsilon], cells[f"{projection}-inconsistent", epsilon])
        for projection in PROJECTIONS
        for epsilon in epsilons
    ]
    most = {
        score: max((abs(_value(one, score) - _value(other, score)) for one, other in pairs), default=0.0)
        for score in ("clustering", "classification")
    }
    verdict, reason = _verdict(
        [row for pair in pairs for row in pair],
        true=max(most.values()) <= SLIGHT,
        reason=f"more than {SLIGHT:,} of a million",
    )
    return Claim(
        name="slight-differences",
        theirs="consistent or not, tables differ slightly in clustering and classification",
        ours=f"largest difference: clustering {most['clustering']:,.0f}, classification {most['classification']:,.0f} of a "
        "million",
        verdict=verdict,
        reason=reason,
    )


def _means(cells: _Cells, score: str, epsilons: Sequence[float]) -> list[float]:
    return [_value(cells[f"{projection}-dealt", epsilon], score) for projection in PROJECTIONS for epsilon in epsilons]


def _span(values: Sequence[float]) -> str:
    return f"{min(values) / 1e3:.0f} to {max(values) / 1e3:.0f}" if values else "none"


def _clustering_best(cells: _Cells, epsilons: Sequence[float]) -> Claim:
    found = {score: _means(cells, score, epsilons) for score in ("clustering", "classification", "regression")}
    best = all(
        one > max(others)
        for one, *others in zip(found["clustering"], found["classification"], found["regression"], strict=True)
    )
    verdict, reason = _verdict(
        [cells[f"{projection}-dealt", epsilon] for projection in PROJECTIONS for epsilon in epsilons],
        true=best,
        reason=_STAND_IN + "the scores have no common unit: how hard an event of the classification is, is ours",
    )
    return Claim(
        name="clustering-best",
        theirs="clustering (tables of few columns) is the best of the three scores",
        ours=f"PrivBayes, dealt, in thousands: {', '.join(f'{score} {_span(values)}' for score, values in found.items())}",
        verdict=verdict,
        reason=reason,
    )


def _regression(cells: _Cells, epsilons: Sequence[float]) -> Claim:
    regression, classification = (_means(cells, score, epsilons) for score in ("regression", "classification"))
    verdict, reason = _verdict(
        [cells[f"{projection}-dealt", epsilon] for projection in PROJECTIONS for epsilon in epsilons],
        true=all(one > other for one, other in zip(regression, classification, strict=True)),
        reason=_STAND_IN
        + "with so few the ranks of the regression vary between seeds by more than the ways differ; what its "
        "differences are divided by is ours",
    )
    return Claim(
        name="regression-above-classification",
        theirs="regression scores are far better than classification scores",
        ours=f"PrivBayes, dealt, in thousands: regression {_span(regression)}, classification {_span(classification)}",
        verdict=verdict,
        reason=reason,
    )

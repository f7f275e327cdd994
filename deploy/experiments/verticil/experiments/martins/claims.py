"""What Martins, Gonçalves & Galletti say of their results, held against a run of ours.

The figures' points are drawings that are not in the paper's text, so "most" is read as more than half of the replications and
"almost all" as nine in ten. A claim about PNAD is held against PNAD alone: of what stands in for it the run says what it gave,
and that the claim was not asked.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from verticil.experiments.claims import Claim, Verdict, verdict_of
from verticil.experiments.martins.experiment import Panel, Results
from verticil.experiments.martins.paper import PNAD_FIGURES, What

MOST: Final = 0.5
ALMOST_ALL: Final = 0.9
SIMILAR: Final = 0.1
"""Means of probabilities that differ by no more are called similar: theirs differ by .09 at most."""
MUCH: Final = 0.5
"""Of a distance: so much of the next way's, or less, is much closer."""
MORE: Final = 1.1
"""Of an overlap: so many times the next way's, or more, is considerably better."""
A_POINT: Final = 0.01
"""Mean width of an interval of p-values up to which it is practically a point."""
CONCLUSION: Final = 0.05
"""Below, a p-value says that the two depend on each other."""

_ONE: Final = "one replication says nothing of how often"


def claims(found: Results) -> tuple[Claim, ...]:
    """Return the paper's results that the parts of a run are about, beside what they gave."""
    of: dict[What, list[Panel]] = {"overlap": [], "mle": [], "p-value": []}
    for panel in found.panels:
        if panel.figure not in PNAD_FIGURES:
            of[panel.shown.what].append(panel)
    return (
        *(_networks(found) if found.estimated else ()),
        *(_overlaps(of["overlap"]) if of["overlap"] else ()),
        *(_estimates(of["mle"]) if of["mle"] else ()),
        *(_p_values(of["p-value"]) if of["p-value"] else ()),
        *_survey(found),
    )


def _verdict(replicates: int, *, true: bool, reason: str) -> tuple[Verdict, str]:
    """Return the verdict and its reason; of one replication none."""
    return verdict_of(true=true, reason=reason, cannot=_ONE if replicates < 2 else "")


def _replicates(panels: Sequence[Panel]) -> int:
    return min(len(panel.truths) for panel in panels)


def _networks(found: Results) -> Iterator[Claim]:
    cells = {(each.d, each.n, each.prior): each for each in found.estimated if each.score == "bdeu"}
    uniform = {(each.d, each.n, each.prior): each for each in found.estimated if each.score == "dirichlet"}
    replicates = found.replicates
    hits = [sum(each.found for each in one.values()) for one in (cells, uniform)]
    verdict, reason = _verdict(
        replicates, true=hits[0] >= ALMOST_ALL * replicates * len(cells), reason="in fewer than nine in ten"
    )
    yield Claim(
        name="true-network",
        theirs="in almost all cases the true network is the most probable one (Table 3: 5 to 10 of 10)",
        ours=f"{hits[0]} of {replicates * len(cells)} with BDeu(1), {hits[1]} with U(0, 1)",
        verdict=verdict,
        reason=reason,
    )

    def gap(one: dict[tuple[int, int, str], float]) -> float:
        return max(
            abs(one[d, n, "P1"] - one[d, n, "P2"]) for d, n, prior in one if prior == "P1" and (d, n, "P2") in one
        )

    means = {key: each.mean for key, each in cells.items() if each.mean is not None}
    both = {key: mean for key, mean in means.items() if all((*key[:2], prior) in means for prior in ("P1", "P2"))}
    apart = gap(both) if both else 0.0
    verdict, reason = _verdict(
        replicates if both else 0,
        true=apart <= SIMILAR,
        reason=f"more than {SIMILAR:g} apart, and the penalty is ahead; the paper names neither its parameters nor its gammas, "
        "ours are calibrated as its text says",
    )
    yield Claim(
        name="priors-alike",
        theirs="the uniform prior and the penalty give similar results (mean probabilities of Table 3 differ by .09 at most)",
        ours=f"with BDeu(1) they differ by up to {apart:.2f}",
        verdict=verdict,
        reason=reason,
    )


def _overlaps(panels: Sequence[Panel]) -> Iterator[Claim]:
    every = len(panels) * _replicates(panels)
    below = {
        way: sum(
            answer.value < (own.low or 0.0)
            for panel in panels
            for own, answer in zip(panel.answers["S1"], panel.answers[way], strict=True)
        )
        for way in ("S2", "S3")
    }
    verdict, reason = _verdict(
        _replicates(panels),
        true=min(below.values()) > MOST * every,
        reason="it cannot be in general: a set of a drawn network is √2 standard errors off, one of the fitted network one, so "
        "that overlaps of .71 and .80 are expected where both networks are right; S3 is below where three variables interact, "
        "which tables of two cannot tell",
    )
    yield Claim(
        name="overlaps",
        theirs="in most replications the overlap of S2 and of S3 lies below S1's interval",
        ours=f"S2 in {below['S2']} and S3 in {below['S3']} of {every}; mean overlap "
        + ", ".join(f"{way} {_mean(panels, way):.2f}" for way in ("S1", "S2", "S3")),
        verdict=verdict,
        reason=reason,
    )
    smaller, larger = ([panel for panel in panels if panel.figure == number] for number in (8, 2))
    if smaller and larger:
        scenarios = {panel.d for panel in smaller}
        at = [_mean([panel for panel in ones if panel.d in scenarios], "S1") for ones in (smaller, larger)]
        error = _error(smaller) + _error(larger)
        verdict, reason = _verdict(
            _replicates(panels),
            true=at[0] < at[1] - 2 * error,
            reason="an overlap is in units of the intervals, which have the records' number in them, and hardly depends on it",
        )
        yield Claim(
            name="overlaps-by-size",
            theirs="overlaps are smaller with 1,000 records than with 5,000 (Figures 8 and 2)",
            ours=f"S1, of 3 and 4 variables: {at[0]:.2f} and {at[1]:.2f}",
            verdict=verdict,
            reason=reason,
        )


def _estimates(panels: Sequence[Panel]) -> Iterator[Claim]:
    every, held = len(panels) * _replicates(panels), _held(panels, "S1")
    verdict, reason = _verdict(_replicates(panels), true=held >= ALMOST_ALL * every, reason="in fewer than nine in ten")
    yield Claim(
        name="estimates-held",
        theirs="the real records' estimate is in S1's interval in almost all cases",
        ours=f"in S1's {held} of {every}, in S2's {_held(panels, 'S2')}",
        verdict=verdict,
        reason=reason,
    )
    apart = {way: statistics.mean(_distances(panels, way)) for way in ("S1", "S2", "S3")}
    verdict, reason = _verdict(
        _replicates(panels), true=max(apart, key=apart.__getitem__) == "S3", reason="another way is further off"
    )
    yield Claim(
        name="s3-worst",
        theirs="S3 has the worst estimates",
        ours="mean distance to the real records' estimate: "
        + ", ".join(f"{way} {value:.2g}" for way, value in apart.items()),
        verdict=verdict,
        reason=reason,
    )


def _p_values(panels: Sequence[Panel]) -> Iterator[Claim]:
    every = len(panels) * _replicates(panels)
    agreeing = {way: _agreeing(panels, way) for way in ("S1", "S2", "S3")}
    apart = {way: statistics.mean(_distances(panels, way)) for way in ("S1", "S2", "S3")}
    verdict, reason = _verdict(
        _replicates(panels),
        true=apart["S1"] <= MUCH * min(apart["S2"], apart["S3"]),
        reason="not half as far off as the next; where two variables depend all ways are next to 0, and where they do not, a "
        "synthetic set's p-value is nearly uniform, whichever way it was drawn",
    )
    yield Claim(
        name="p-values-near",
        theirs="S1's mean p-value is much closer to the real records'",
        ours="mean distance: " + ", ".join(f"{way} {value:.2g}" for way, value in apart.items()),
        verdict=verdict,
        reason=reason,
    )
    verdict, reason = _verdict(
        _replicates(panels),
        true=agreeing["S1"] == every and max(agreeing["S2"], agreeing["S3"]) < every,
        reason="S1 agrees always, and so does S2: where variables depend, all three see it, and where they do not, the most "
        "probable network has no link between them"
        if agreeing["S1"] == agreeing["S2"] == every
        else "S1 does not agree always"
        if agreeing["S1"] < every
        else "another way agrees always, too",
    )
    yield Claim(
        name="p-values-agree",
        theirs="S1 always agrees with the conclusion of the real records' test, unlike S2 and S3",
        ours=f"of {every}: " + ", ".join(f"{way} {number}" for way, number in agreeing.items()),
        verdict=verdict,
        reason=reason,
    )
    dependent = [panel for panel in panels if panel.shown.variable == 1]  # Figure 4: X1 and X2, which are linked
    if dependent:
        width = statistics.mean(
            (answer.high or 0.0) - (answer.low or 0.0) for panel in dependent for answer in panel.answers["S2"]
        )
        verdict, reason = _verdict(
            _replicates(panels), true=width <= A_POINT, reason=f"wider than {A_POINT:g} on average"
        )
        yield Claim(
            name="s2-points",
            theirs="S2's intervals of p-values are practically points",
            ours=f"mean width where the variables depend (Figure 4): {width:.2g}",
            verdict=verdict,
            reason=reason,
        )


def _survey(found: Results) -> Iterator[Claim]:
    survey = found.survey
    if survey is None:
        return
    panels = [panel for panel in found.panels if panel.figure in PNAD_FIGURES]
    top = survey.networks[0][1]

    def verdict(*, true: bool, reason: str) -> tuple[Verdict, str]:
        cannot = "the records are a stand-in; --pnad FILE asks it of PNAD" if survey.stand_in else ""
        return verdict_of(true=true, reason=reason, cannot=cannot)

    decided, reason = verdict(
        true=top["P1"] < MOST and top["P1"] > top["P2"], reason="not so by our exact probabilities"
    )
    yield Claim(
        name="pnad-networks",
        theirs="no network is probable by itself (.256 and .131), and the penalty makes the most probable one more so",
        ours=f"the most probable one has {top['P1']:.3f} with the penalty, {top['P2']:.3f} without",
        verdict=decided,
        reason=reason,
    )
    for what, better, words in _BETTER if panels else ():
        chosen = [panel for panel in panels if panel.shown.what == what]
        values = {way: better(chosen, way) for way in ("S1", "S2", "S3")}
        margin = MORE if what == "overlap" else MUCH  # distances are negative here
        decided, reason = verdict(
            true=values["S1"] >= margin * max(values["S2"], values["S3"]), reason="S1 is not considerably better"
        )
        yield Claim(
            name=f"pnad-{what}",
            theirs=f"S1 is considerably better in all three statistics: here the {what} (Figures 6 and 7)",
            ours=f"{words}: " + ", ".join(f"{way} {abs(value):.2g}" for way, value in values.items()),
            verdict=decided,
            reason=reason,
        )
    estimates = [panel for panel in panels if panel.shown.what == "mle"]
    if estimates:
        apart = {
            prior: statistics.mean(_distances([panel for panel in estimates if panel.prior == prior], "S1"))
            for prior in ("P1", "P2")
        }
        decided, reason = verdict(true=apart["P1"] < apart["P2"] / 2, reason="not twice as near")
        yield Claim(
            name="pnad-priors",
            theirs="of S1's estimates those with the penalty are much better",
            ours=f"distance to the real records' estimate: {apart['P1']:.2g} with the penalty, {apart['P2']:.2g} without",
            verdict=decided,
            reason=reason,
        )


def _mean(panels: Sequence[Panel], way: str) -> float:
    return statistics.mean(answer.value for panel in panels for answer in panel.answers[way])


def _error(panels: Sequence[Panel]) -> float:
    """Return the standard error of S1's mean."""
    values = [answer.value for panel in panels for answer in panel.answers["S1"]]
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def _pairs(panels: Sequence[Panel], way: str) -> Iterator[tuple[float, float]]:
    """Yield what a way gives and what the real records do."""
    for panel in panels:
        for answer, truth in zip(panel.answers[way], panel.truths, strict=True):
            yield answer.value, truth


def _distances(panels: Sequence[Panel], way: str) -> list[float]:
    return [abs(value - truth) for value, truth in _pairs(panels, way)]


def _agreeing(panels: Sequence[Panel], way: str) -> int:
    return sum((value < CONCLUSION) == (truth < CONCLUSION) for value, truth in _pairs(panels, way))


def _held(panels: Sequence[Panel], way: str) -> int:
    return sum(
        answer.holds(truth) for panel in panels for answer, truth in zip(panel.answers[way], panel.truths, strict=True)
    )


def _nearness(panels: Sequence[Panel], way: str) -> float:
    return -statistics.mean(_distances(panels, way))


_BETTER: Final[tuple[tuple[What, Callable[[Sequence[Panel], str], float], str], ...]] = (
    ("overlap", _mean, "mean overlap"),
    ("mle", _nearness, "mean distance to the real records' estimate"),
    ("p-value", _nearness, "mean distance to the real records' p-value"),
)

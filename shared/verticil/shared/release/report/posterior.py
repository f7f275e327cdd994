"""What the report says of sampled graphs: how probable each arrow is, whether the chains agree, and how the sets are used.

Two words that must not be mixed up. The *probability* of an arrow is the share of the sampled graphs that have it: how far the
data, the prior and the score settle it. The *strength* of an arrow is how often it is found again when the records are drawn
again from themselves: how far another hundred people would have led to the same arrow. A release may have both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.release import wording
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.formats.posterior import SOURCES, Predicted, PublishedPosterior
from verticil.shared.release.posterior import posterior_remarks
from verticil.shared.study.posterior import estimated_within

_LEAST: Final = 0.01
"""Links of less probability are not shown."""
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Two columns: the probability of each direction with its Monte-Carlo error, of no link, and what the consensus has."""

    one: str
    other: str
    there: str
    back: str
    none: str
    consensus: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBand:
    """Two columns: the combination that the posterior is least sure of, its share and its interval."""

    names: tuple[str, str]
    categories: tuple[str, str]
    share: str
    interval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A predicted statistic in words; empty cells: it is defined on no set."""

    words: str
    mean: str
    interval: str
    undefined: str
    worth: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PosteriorView:
    """What is said.

    Attributes:
        agree: the chains do.
        prior_speaks: graphs are about as probable as before any data.
        exact: what was learned from are records as they are.
        source: what it was, in words.
        chains: numbers and lengths, in words.
        r_hat, difference, effective: the diagnostics.
        graphs: how many different graphs there are, and how probable the first of them is.
        prior: of graphs, in words.
        links: of at least `_LEAST`, the most probable first.
        hidden: links that are not shown.
        pairs: see `PairBand`.
        statistics: those that the study names.
        remarks: what is to be said beside, see `posterior.posterior_remarks`.
        sets: M.
        each: records of each set.
        missing: columns whose missing values were drawn with the graphs, and of how many records each.
        estimated, declared: columns with bins whose shape inside them is estimated for each network, or declared.
        in_records: whether the release's own records are of all M networks, and not of the consensus or a joint model.
    """

    agree: bool
    prior_speaks: bool
    exact: bool
    source: str
    chains: str
    r_hat: str
    difference: str
    effective: str
    graphs: str
    prior: str
    links: tuple[Link, ...]
    hidden: int
    pairs: tuple[PairBand, ...]
    statistics: tuple[Statistic, ...]
    remarks: tuple[str, ...]
    sets: int
    each: str
    missing: tuple[tuple[str, str], ...]
    estimated: tuple[str, ...]
    declared: tuple[str, ...]
    in_records: bool


def _size(draws: float) -> str:
    """Return how many independent draws there are, in words."""
    return f"{draws:,.0f}" if math.isfinite(draws) else "none"


def _worth(bulk: float, tail: float) -> str:
    """Return how many there are in bulk, and in the tails, in words."""
    return f"{_size(bulk)} ({_size(tail)} in the tails)"


def posterior_view(content: ReleaseContent) -> PosteriorView | None:
    """Return the view of the posterior; None: the study finds one graph."""
    posterior = content.posterior
    if posterior is None:
        return None
    rule, agreement = content.study.posterior, posterior.agreement
    links = sorted(_links(content, posterior), key=lambda item: -item[0])
    links_shown = tuple(link for chance, link in links if chance >= _LEAST)[:_SHOWN]
    first = wording.percent(posterior.graphs[0][1]) if posterior.graphs else "0%"
    names, within = content.study.schema.names, set(estimated_within(content.study))
    binned_variables = [v for v, variable in enumerate(content.study.schema.variables) if variable.n_bins]
    gamma = f"exp(−{rule.gamma:g} p^{rule.alpha:g}) for each column with p parents: fewer arrows"
    return PosteriorView(
        agree=agreement.agree,
        prior_speaks=agreement.prior_speaks,
        exact=posterior.source == "records",
        source=SOURCES[posterior.source],
        chains=f"{posterior.chains} chains of {posterior.steps:,} steps, of which the first {posterior.burn_in:,} were left out",
        r_hat=_figure(agreement.r_hat),
        difference=f"{100 * agreement.edge_difference:.1f} percentage points",
        effective=_worth(agreement.effective, agreement.tail),
        graphs=f"{wording.count(posterior.distinct, 'different graph')} among {posterior.n_graphs:,}; "
        f"the most frequent one has {first}",
        prior="all graphs alike" if rule.prior == "uniform" else gamma,
        links=links_shown,
        hidden=len(links) - len(links_shown),
        pairs=tuple(_pairs(content, posterior)),
        statistics=tuple(map(_statistic, posterior.predictive)),
        remarks=posterior_remarks(posterior, names),
        sets=len(posterior.networks),
        each=wording.count(len(content.synthetic), "record"),
        missing=tuple((names[v], wording.count(n, "record")) for v, n in posterior.missing or ()),
        estimated=tuple(names[v] for v in binned_variables if v in within),
        declared=tuple(names[v] for v in binned_variables if v not in within),
        in_records=content.study.records_from == "posterior",
    )


def _figure(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "not defined"


def _links(content: ReleaseContent, found: PublishedPosterior) -> Iterator[tuple[float, Link]]:
    """Yield, of each two columns that any graph links, the probability of a link, and the row."""
    names, edges = content.study.schema.names, {(edge.parent, edge.child): edge for edge in found.edges}
    kept = set(found.consensus.edges())
    for a, b in sorted({(min(pair), max(pair)) for pair in edges}):
        one, other = edges.get((a, b)), edges.get((b, a))
        there, back = (0.0 if edge is None else edge.probability for edge in (one, other))
        if back > there:
            a, b, one, other, there, back = b, a, other, one, back, there  # noqa: PLW2901  # the likelier direction first
        yield (
            there + back,
            Link(
                one=names[a],
                other=names[b],
                there=_with_error(there, math.nan if one is None else one.error),
                back=_with_error(back, math.nan if other is None else other.error),
                none=wording.percent(max(1 - there - back, 0.0)),
                consensus="→" if (a, b) in kept else "←" if (b, a) in kept else "–",
            ),
        )


def _with_error(probability: float, error: float) -> str:
    return "0%" if not probability else wording.with_error(probability, 0.0 if math.isnan(error) else error)


def _pairs(content: ReleaseContent, found: PublishedPosterior) -> Iterator[PairBand]:
    variables = content.study.schema.variables
    for pair in found.pairs:
        width = np.where(np.isnan(pair.low), -1.0, pair.high - pair.low)
        i, j = np.unravel_index(int(width.argmax()), width.shape)
        one, other = variables[pair.first], variables[pair.second]
        yield PairBand(
            names=(one.name, other.name),
            categories=(one.labels[i], other.labels[j]),
            share=wording.share(float(pair.estimate[i, j])),
            interval=wording.interval(float(pair.low[i, j]), float(pair.high[i, j])),
        )


_SAID: Final = {
    "chi-square": "p-value of the chi-square test of independence of {} and {}",
    "linear": "linear coefficient of {1} for {0}",
    "logistic": "logistic coefficient of {2} for {0} = {1}",
    "mean": "mean of {}",
    "mle": "share with {} = {}",
    "overlap": "overlap with the original's 95% interval, of the share with {} = {}",
}


def statistic_words(words: tuple[str, ...]) -> str:
    """Describe a statistic for people.

    >>> statistic_words(("mle", "smoker", "yes", "age", "old"))
    'share with smoker = yes, given age = old'
    >>> statistic_words(("linear", "income", "age", "region"))
    'linear coefficient of age for income, beside region'
    >>> statistic_words(("mean", "income", "region", "north"))
    'mean of income, given region = north'
    """
    name, *rest = words
    n_words = {"mean": 1, "logistic": 3}.get(name, 2)
    sentence, more = _SAID[name].format(*rest), rest[n_words:]
    if name in {"mean", "mle", "overlap"} and more:
        conditions = (f"{variable} = {label}" for variable, label in zip(more[::2], more[1::2], strict=True))
        return f"{sentence}, given {', '.join(conditions)}"
    return f"{sentence}, beside {', '.join(more)}" if more else sentence


def _statistic(item: Predicted) -> Statistic:
    n_undefined = sum(map(math.isnan, item.draws))
    has_mean = not math.isnan(item.mean)
    return Statistic(
        words=statistic_words(item.words),
        mean=f"{item.mean:.4g}" if has_mean else "",
        interval=f"{item.low:.4g} to {item.high:.4g}" if has_mean else "",
        undefined=f"{n_undefined:,} of {len(item.draws):,}" if n_undefined else "",
        worth=_worth(item.effective, item.tail),
    )

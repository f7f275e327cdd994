"""What a release says of one variable, of all people or of those of whom something is known.

The probabilities are those of what the release's records come from, or of the source that is named; of sampled graphs, of their
consensus. The interval is the network's, at the study's level and conditional on the structure, as all of a release are:

- *published*: it stands in the release, for a variable without evidence, and for one given exactly its parents;
- *delta*: by the delta method from the published standard errors of the network's parameters (Van Allen, Singh, Greiner & Hooper
  2008, "Quantifying the uncertainty of a belief net response"). With q_k = P(target = k | evidence), θ_vjs the parameters and
  d = ∂q_k/∂θ_vjs, rows are taken as independent and the cells of a row as correlated as those of a multinomial's:

      Var q_k = Σ_vj Σ_s SE_vjs² (d_s - Σ_r θ_vjr d_r)² / (1 - θ_vjs),

  which is their equation for Dirichlet rows where SE² is that of one, and exact for the row of a variable with two categories. A
  row of which nothing can be estimated counts as any distribution with its mean: SE² = θ (1 - θ).

A joint model has no intervals of its own: where its probability is outside, the two models differ by more than the noise explains
that the network's parameters have. The answer says so (`QueryAnswer.outside`). What a study states of records (rules) enters as
known.

A network can be too wide for exact elimination. Where only the derivatives are, there is no interval but a published one. Where
the probabilities are, too, a joint model answers alone, if records come from one or it is named: given evidence e its component c
has the weight w_c P(e | c) over their sum, which needs no table at all. The answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.json_document import parse
from verticil.shared.documents.view_models import document, left_out
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.model.elimination import TooWideError, condition_with_probability, derivatives, together
from verticil.shared.numerics.model.network import Network
from verticil.shared.release.drawing import ReleaseModels, evidence_of, variable_of
from verticil.shared.study.document import Source

_NOTHING_LEFT: Final = 1e-12
"""Of a row's probability beside a category's: its own slope is then 0, too."""
_SLACK: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One category: its probability in what was asked, the network's, and the network's interval; None: nothing can be said."""

    category: str
    probability: float
    network: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """What a release says of a variable.

    Attributes:
        target: its name.
        given: what is known of the people, by name: categories.
        source: what the probabilities are of: the ``joint`` model or the ``network``.
        interval: how the intervals were made: ``published``, ``delta``, or ``none``: there are none.
        interval_level: of the intervals.
        given_probability: how probable what is known is in the network; in the joint model where that has to answer alone.
        shares: one for each category.
        too_wide: which table of the network is too large: for the delta method, or, where `Share.network` is None, for any
            answer, so that the joint model answers alone; None: none is.
        outside: why a probability lies outside of its interval, and of which categories; None: none does.
    """

    target: str
    given: Mapping[str, str]
    source: Source
    interval: Literal["published", "delta", "none"]
    interval_level: float
    given_probability: float
    shares: tuple[Share, ...]
    too_wide: str | None = left_out()
    outside: str | None = left_out()

    def to_dict(self) -> dict[str, object]:
        """Return the answer as a document."""
        return dict(document(self))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OfNetwork:
    """What the network says, see `QueryAnswer`; `own` and the ends (K,), NaN where nothing can be said."""

    own: Floats
    given_probability: float
    interval: Literal["published", "delta", "none"]
    ends: tuple[Floats, Floats]
    too_wide: str | None = None


def query(
    models: ReleaseModels, target: str, given: Mapping[str, object], *, source: Source | None = None
) -> QueryAnswer:
    """Ask a release.

    Args:
        models: of the release.
        target: name of a variable.
        given: what is known, see `drawing.evidence_of`; empty: of all people.
        source: ``joint`` or ``network``; None: what the release's own records come from.

    Raises:
        Misuse: USAGE, no such variable, category or source; what is given has probability 0, or needs too large a table of the
            network, and no joint model answers.
    """
    schema, evidence = models.schema, evidence_of(models.schema, given)
    variable_of(schema, target, where="target")
    if target in given:
        raise Misuse("USAGE", f"given: '{target}' is asked for, expected other variables", hint="leave it out")
    if source == "posterior":
        raise Misuse(
            "USAGE", "source posterior: a query is of one model", hint="name the source network, the consensus"
        )
    source_models = models.source(source, given=True)
    position = schema.index(target)
    level = parse(models.document, source="model.json")["parameters"]["interval_level"].number()
    joint = models.joint if source_models == "joint" else None
    try:
        try:
            answer = _of_network(models, position, evidence, level)
        except TooWideError as error:
            if joint is None:
                raise
            nothing = np.full(schema[position].n_states, np.nan)
            interval = _published(models, position, evidence)
            answer = _OfNetwork(
                own=nothing,
                given_probability=float(joint.weights_of(evidence).sum()),
                interval="none" if interval is None else "published",
                ends=interval or (nothing, nothing),
                too_wide=str(error),
            )
        own_shares = answer.own if joint is None else joint.condition_on(evidence).shares([position])
    except ValueError as error:
        there = isinstance(error, TooWideError) and models.joint is not None
        hint = (
            "the joint model can answer: source joint (--from joint)"
            if there
            else "ask for less at once, or for what can be"
        )
        raise Misuse("USAGE", f"given: {error}", hint=hint) from None
    low, high = answer.ends
    labels = schema[position].labels
    return QueryAnswer(
        target=target,
        given={schema.names[v]: schema[v].labels[code] for v, code in evidence.items()},
        source=source_models,
        interval=answer.interval,
        interval_level=level,
        given_probability=answer.given_probability,
        shares=tuple(
            Share(
                category=label,
                probability=float(own_shares[code]),
                network=None if math.isnan(answer.own[code]) else float(answer.own[code]),
                interval=None if math.isnan(low[code]) else (float(low[code]), float(high[code])),
            )
            for code, label in enumerate(labels)
        ),
        too_wide=answer.too_wide,
        outside=_why_outside(labels, own_shares, answer, by_joint=joint is not None),
    )


def _why_outside(labels: Sequence[str], shares: Floats, answer: _OfNetwork, *, by_joint: bool) -> str | None:
    """Return why some probabilities lie outside of their intervals; None: none does."""
    low, high = answer.ends
    outside = [
        label
        for label, is_outside in zip(labels, (shares < low - _SLACK) | (shares > high + _SLACK), strict=True)
        if is_outside
    ]
    if not outside:
        return None
    reason = (
        "the interval is the network's; the joint model, which answers, sees all pairs of columns and differs from it by more "
        "than the noise of the network's parameters"
        if by_joint
        else "the interval is that of the unbiased estimate; the network's probability leans on tables with fewer parents"
    )
    return f"{', '.join(outside)}: {reason}"


def _of_network(models: ReleaseModels, target: int, evidence: Mapping[int, int], level: float) -> _OfNetwork:
    """Raises ValueError: it has probability 0; TooWideError: an answer needs too large a table, whatever its interval."""
    network, too_wide = models.network, None
    by = rake(network, models.support)
    rules = () if by is None else by.limits
    slopes: dict[int, Floats] | None = None
    if (interval := _published(models, target, evidence)) is None:
        try:
            shares, slopes = derivatives(network, target, evidence, rules)
        except TooWideError as error:
            shares, too_wide = together(network, target, evidence, rules), str(error)
    else:
        shares = together(network, target, evidence, rules)
    if not (mass := float(shares.sum())) > 0:
        what = "the evidence has" if not rules else "evidence and rules have"
        raise ValueError(f"{what} probability 0 under the network")
    every = condition_with_probability(network, {}, rules)[1] if rules else 1.0
    own, nothing = shares / mass, np.full(len(shares), np.nan)
    ends = (nothing, nothing) if interval is None else interval
    if slopes is not None:
        ends = delta_interval(network, own, {v: slope / mass for v, slope in slopes.items()}, level)
    return _OfNetwork(
        own=own,
        given_probability=mass / every if evidence else 1.0,
        interval="published" if interval is not None else "none" if slopes is None else "delta",
        ends=ends,
        too_wide=too_wide,
    )


def _published(models: ReleaseModels, target: int, evidence: Mapping[int, int]) -> tuple[Floats, Floats] | None:
    """Return the interval that the release itself has for this; None: it has none."""
    if not evidence:
        marginal = next((item for item in models.marginals if item.variable == target), None)
        return None if marginal is None else (marginal.interval_low, marginal.interval_high)
    family = models.network.families[target]
    if set(family.parents) != set(evidence):
        return None
    n_states = models.schema.n_states
    row = int(np.ravel_multi_index([evidence[v] for v in family.parents], [n_states[v] for v in family.parents]))
    return family.interval_low[row], family.interval_high[row]


def delta_interval(network: Network, own: Floats, slopes: Mapping[int, Floats], level: float) -> tuple[Floats, Floats]:
    """Return the interval by the delta method, from the derivatives of P(target = k, evidence) over P(evidence); see the
    module's text.
    """
    variance = np.zeros(len(own))
    for variable, joint in slopes.items():
        family = network.families[variable]
        theta = family.probability
        error = np.where(np.isnan(family.standard_error), theta * (1 - theta), family.standard_error**2)
        slope = joint - own[:, None, None] * joint.sum(axis=0)
        centred_slope = slope - (theta * slope).sum(axis=2, keepdims=True)
        complement = 1 - theta
        weight = np.divide(error, complement, out=np.zeros_like(error), where=complement > _NOTHING_LEFT)
        variance += (weight * centred_slope**2).sum(axis=(1, 2))
    half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(variance)
    return np.clip(own - half, 0.0, 1.0), np.clip(own + half, 0.0, 1.0)

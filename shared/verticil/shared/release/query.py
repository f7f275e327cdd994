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
that the network's parameters have. What a study states of records (rules) enters as known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

import numpy as np

from verticil.shared.arrays import Floats
from verticil.shared.errors import Misuse
from verticil.shared.json_document import parse
from verticil.shared.knowledge.raking import raked
from verticil.shared.model.elimination import conditioned, derivatives
from verticil.shared.model.network import Network
from verticil.shared.release.drawing import ReleaseModels, evidence_of, variable_of
from verticil.shared.study.document import Source
from verticil.shared.view import document

_NOTHING_LEFT: Final = 1e-12
"""Of a row's probability beside a category's: its own slope is then 0, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One category: its probability in what was asked, the network's, and the network's interval; None: nothing can be said."""

    category: str
    probability: float
    network: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a release says of a variable.

    Attributes:
        target: its name.
        given: what is known of the people, by name: categories.
        source: what the probabilities are of: the ``joint`` model or the ``network``.
        interval: how the intervals were made: ``published`` or ``delta``.
        interval_level: of the intervals.
        given_probability: how probable what is known is in the network.
        shares: one for each category.
    """

    target: str
    given: Mapping[str, str]
    source: Source
    interval: Literal["published", "delta"]
    interval_level: float
    given_probability: float
    shares: tuple[Share, ...]

    def to_dict(self) -> dict[str, object]:
        """The answer as a document."""
        return dict(document(self))


def query(models: ReleaseModels, target: str, given: Mapping[str, object], *, source: Source | None = None) -> Answer:
    """Ask a release.

    Args:
        models: of the release.
        target: name of a variable.
        given: what is known, see `drawing.evidence_of`; empty: of all people.
        source: ``joint`` or ``network``; None: what the release's own records come from.

    Raises:
        Misuse: USAGE, no such variable, category or source; what is given has probability 0, or needs too large a table.
    """
    schema, evidence = models.schema, evidence_of(models.schema, given)
    variable_of(schema, target, where="target")
    if target in given:
        raise Misuse("USAGE", f"given: '{target}' is asked for, expected other variables", hint="leave it out")
    if source == "posterior":
        raise Misuse(
            "USAGE", "source posterior: a query is of one model", hint="name the source network, the consensus"
        )
    chosen = models.source(source, given=True)
    position, network = schema.index(target), models.network
    by = raked(network, models.support)
    rules = () if by is None else by.limits
    try:
        together, slopes = derivatives(network, position, evidence, rules)
        if not (mass := float(together.sum())) > 0:
            what = "the evidence has" if not rules else "evidence and rules have"
            raise ValueError(f"{what} probability 0 under the network")
        every = conditioned(network, {}, rules)[1] if rules else 1.0
        own = asked = together / mass
        if chosen == "joint" and models.joint is not None:
            asked = models.joint.given(evidence).shares([position])
    except ValueError as error:
        raise Misuse("USAGE", f"given: {error}", hint="ask for less at once, or for what can be") from None
    root = parse(models.document, source="model.json")
    level = root["parameters"]["interval_level"].number()
    published = _published(models, position, evidence)
    low, high = (
        delta_interval(network, own, {v: slope / mass for v, slope in slopes.items()}, level)
        if published is None
        else published
    )
    return Answer(
        target=target,
        given={schema.names[v]: schema[v].labels[code] for v, code in evidence.items()},
        source=chosen,
        interval="delta" if published is None else "published",
        interval_level=level,
        given_probability=mass / every if evidence else 1.0,
        shares=tuple(
            Share(
                category=label,
                probability=float(asked[code]),
                network=float(own[code]),
                interval=None if math.isnan(low[code]) else (float(low[code]), float(high[code])),
            )
            for code, label in enumerate(schema[position].labels)
        ),
    )


def _published(models: ReleaseModels, target: int, evidence: Mapping[int, int]) -> tuple[Floats, Floats] | None:
    """The interval that the release itself has for this; None: it has none."""
    if not evidence:
        found = next((item for item in models.marginals if item.variable == target), None)
        return None if found is None else (found.interval_low, found.interval_high)
    family = models.network.families[target]
    if set(family.parents) != set(evidence):
        return None
    n_states = models.schema.n_states
    row = int(np.ravel_multi_index([evidence[v] for v in family.parents], [n_states[v] for v in family.parents]))
    return family.interval_low[row], family.interval_high[row]


def delta_interval(network: Network, own: Floats, slopes: Mapping[int, Floats], level: float) -> tuple[Floats, Floats]:
    """By the delta method, from the derivatives of P(target = k, evidence) over P(evidence); see the module's text."""
    variance = np.zeros(len(own))
    for variable, joint in slopes.items():
        family = network.families[variable]
        theta = family.probability
        error = np.where(np.isnan(family.standard_error), theta * (1 - theta), family.standard_error**2)
        slope = joint - own[:, None, None] * joint.sum(axis=0)
        centred = slope - (theta * slope).sum(axis=2, keepdims=True)
        left = 1 - theta
        weight = np.divide(error, left, out=np.zeros_like(error), where=left > _NOTHING_LEFT)
        variance += (weight * centred**2).sum(axis=(1, 2))
    half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(variance)
    return np.clip(own - half, 0.0, 1.0), np.clip(own + half, 0.0, 1.0)

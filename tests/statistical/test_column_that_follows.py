"""The shares of a column that nobody sent against the people's, through randomization, learning and drawing. Seeds are fixed.

Null: of n people, a set of s of the K categories of a column that is randomized by K-ary response, which keeps a category with p
and makes each other one with q. Of the reports f = s q + (p - q) share are in the set, so its unbiased share has the variance
f (1 - f) / (n (p - q)^2) at most; records are drawn by systematic rounding, which adds 1 / n at most for each category. Held to 5
standard errors: false-alarm rate 6e-7 a category, 4 categories.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support.studies import numbered, study_of
from verticil.curator.learning import records_of
from verticil.miner.learning.learn import learn
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.knowledge.rules import Function, Knowledge
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import ParameterRule, ReleaseRule, StructureRule

N, STATES, EPSILON = 20_000, (6, 3), 2.0
BANDS = {"0": "low", "1": "low", "2": "middle", "3": "middle", "4": "middle", "5": "high"}
BAND = Function(
    name="band", variable=Variable(name="band", owner="a", labels=("low", "middle", "high", "none")), position=2, of=("v0",),
    values=tuple(BANDS.items()),
)  # fmt: skip
WRONG = dataclasses.replace(BAND, values=tuple((v, {"low": "high", "high": "low"}.get(b, b)) for v, b in BAND.values))


@pytest.mark.parametrize(("function", "fits"), [(BAND, True), (WRONG, False)])
def test_shares_are_the_peoples_within_sampling_error(function: Function, fits: bool) -> None:
    generator = np.random.default_rng(11)
    first = generator.choice(6, N, p=[0.3, 0.2, 0.15, 0.15, 0.1, 0.1])
    columns = [first, np.where(generator.random(N) < 0.6, first // 2, generator.integers(0, 3, N))]
    made = study_of(
        numbered(STATES),
        structure=StructureRule(method="tree", score="mutual-information", seed=1),
        parameters=ParameterRule(),
        release=ReleaseRule(sample_from="network", seed=2),
    )
    channels = [quantize(symmetric(k, epsilon=EPSILON)) for k in STATES]
    units = tuple(dataclasses.replace(unit, transition=c) for unit, c in zip(made.units, channels, strict=True))
    study = dataclasses.replace(made, units=units, knowledge=Knowledge(functions=(function,)))
    released = [
        (generator.random(N)[:, None] >= c.probabilities.cumsum(axis=1)[codes][:, :-1]).sum(axis=1).astype(np.uint8)
        for codes, c in zip(columns, channels, strict=True)
    ]
    _, table = records_of(learn(released, study), study)
    p, q = channels[0].probabilities[0, :2]
    far = []
    for label, categories in (("low", (0, 1)), ("middle", (2, 3, 4)), ("high", (5,)), ("none", ())):
        share = float(np.isin(first, categories).mean())
        reported = len(categories) * q + (p - q) * share
        error = np.sqrt(reported * (1 - reported) / N) / (p - q)
        off = abs(float((table["band"] == label).mean()) - share)
        far.append(off > 5 * error + 6 / N)
    assert any(far) != fits

"""Knowledge: how many records break what a study states of all records, rule by rule."""

from __future__ import annotations

from typing import Final

import numpy as np

from verticil.evaluate.figures import Asked
from verticil.evaluate.metrics import INDEPENDENT, Measured, Metric, Setting
from verticil.evaluate.resampling import Play, Round
from verticil.shared.numerics.model.elimination import Factor


def _violations(this_round: Round, play: Play, setting: Setting) -> Measured:
    rules: dict[str, Factor] = {}
    if setting.support is not None:
        rules |= dict(zip(setting.support.names, setting.support.factors, strict=True))
    rules |= setting.functions
    violations = {
        name: table[tuple(play.table.codes[member] for member in scope)] == 0 for name, (scope, table) in rules.items()
    }
    anything = np.logical_or.reduce(list(violations.values()))
    shares = {name: float(own.mean()) for name, own in violations.items()}
    return Measured(
        values={"violations": float(anything.mean()), **{f"rule {name}": own for name, own in shares.items()}}
    )


METRICS: Final = (
    Metric(
        name="violations",
        family="knowledge",
        title="Records that break a rule",
        measure=_violations,
        says="Share of the records that break each rule of the study, and each column that follows from others and does not. "
        "Categories that the study does not declare break no rule.",
        figures=(
            Asked(
                key="violations",
                title="Records that break a rule",
                family="knowledge",
                better="lower",
                says="Share of the records that break at least one rule of the study.",
                floor="real records",
                baseline=INDEPENDENT,
            ),
        ),
        needs_rules=True,
    ),
)

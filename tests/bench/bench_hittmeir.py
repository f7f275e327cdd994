"""Utility and disclosure on Adult, nothing randomized: `verticil reproduce hittmeir`, Tables VI and X.

The rows that have a bound. Some minutes of CPU time, nearly all in scikit-learn's classifiers.
"""

from __future__ import annotations

import dataclasses

from figure import Figure

from verticil.experiments.hittmeir import datasets
from verticil.experiments.hittmeir.measures import SCENARIOS, accuracies, attacks
from verticil.experiments.hittmeir.scale import FULL
from verticil.experiments.hittmeir.synthesizer import Method

K = 3
BELOW, ABOVE = 0.5, 2.0
SEED = 1


def figures() -> list[Figure]:
    """Average accuracy of the five classifiers, and of the six attackers."""
    data = datasets.adult()
    scale = dataclasses.replace(FULL, degrees=(K,), epsilons=())
    scores = accuracies(data, scale=scale, seed=SEED, step=_silent)
    original = next(score for score in scores if score.trained_on == "original")
    result = [
        Figure(
            name=f"Adult, k={K}, {score.method.value}: average accuracy below training on the original",
            ours=original.average - score.average,
            target=f"<= {BELOW:g}" if score.method is Method.genetic else "-",
            unit="points",
            met=original.average - score.average <= BELOW if score.method is Method.genetic else None,
            note=f"five classifiers: {score.average:.2f} against {original.average:.2f}, always the most common class "
            f"{original.majority:.2f}; "
            + ", ".join(f"{name} {value:.1f}/{original.accuracy[name]:.1f}" for name, value in score.accuracy.items()),
        )
        for score in scores
        if score.method is not None
    ]
    for attack in attacks(data, SCENARIOS["table 10"], scale=scale, seed=SEED, step=_silent):
        custom = attack.published == "custom"
        result.append(
            Figure(
                name=f"Adult, k={FULL.custom_degree}, {attack.published}: average attack above baseline B",
                ours=attack.average - attack.baseline,
                target=f"<= {ABOVE:g}" if custom else "-",
                unit="points",
                met=attack.average - attack.baseline <= ABOVE if custom else None,
                note=f"{attack.average:.2f} against {attack.baseline:.2f}; "
                + ", ".join(f"{name} {value:.1f}" for name, value in attack.accuracy.items())
                + f"; mean GCAP {attack.gcap:.1f}",
            )
        )
    return result


def _silent(_: str) -> None:
    """Nobody watches the steps."""

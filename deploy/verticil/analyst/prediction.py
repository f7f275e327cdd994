"""The predicted error of a study's synthetic records, before anyone works: from the study and a number of people."""

from __future__ import annotations

import math
from typing import Final

from verticil.shared.numerics.joint.prediction import Prediction, predict
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import measures_itself, protocol_of, table_deviations

_MOST: Final = 4000  # categories of all draws together; joint models are for fewer


def predict_study(study: Study, n: int) -> Prediction | None:
    """Return how far records of a study's joint model will be from `n` people; None: it has none, or a far too large one."""
    channels = [unit.transition for unit in study.units]
    rules_it_out = study.records_from in {"network", "posterior"} or bool(study.refuses_joint)
    if rules_it_out or measures_itself(study) or not protocol_of(study).counts_families:
        return None
    if sum(channel.n_states for channel in channels) > _MOST:
        return None
    return predict(channels, n, sigma=_deviation(study))


def _deviation(study: Study) -> float:
    """Return the deviation of the noise on each count, people; where tables differ, the root of their mean square."""
    if study.tables is None:
        return 0.0
    deviations = table_deviations(study)
    return (
        deviations[0]
        if len(set(deviations)) == 1
        else math.sqrt(math.fsum(each**2 for each in deviations) / len(deviations))
    )


def prediction_text(result: Prediction) -> str:
    """Write the distances in words."""
    three = "" if result.three_way is None else f", {result.three_way:.2g} in tables of three"
    return f"{result.two_way:.2g} in tables of two columns{three} (independent columns: {result.independent:.2g} in those of two)"

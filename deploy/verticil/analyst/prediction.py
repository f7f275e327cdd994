"""The predicted error of a study's synthetic records, before anyone works: from the study and a number of people."""

from __future__ import annotations

from typing import Final

from verticil.shared.joint.prediction import Prediction, predict
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import measures_itself, protocol_of
from verticil.shared.study.tables import tables_deviation

_MOST: Final = 4000  # categories of all draws together; joint models are for fewer


def predicted(study: Study, n: int) -> Prediction | None:
    """How far records of a study's joint model will be from `n` people; None: it cannot have one, or a far too large one."""
    channels = [unit.transition for unit in study.units]
    rules_it_out = study.release.sample_from == "network" or bool(study.refuses_joint)
    if rules_it_out or measures_itself(study) or not protocol_of(study).counts_families:
        return None
    if sum(channel.n_states for channel in channels) > _MOST:
        return None
    return predict(channels, n, sigma=0.0 if study.tables is None else tables_deviation(study))


def prediction_text(found: Prediction) -> str:
    """The distances in words."""
    three = "" if found.three_way is None else f", {found.three_way:.2g} in tables of three"
    return f"{found.two_way:.2g} in tables of two columns{three} (independent columns: {found.independent:.2g} in those of two)"

"""The predicted error of a study's synthetic records, before anyone works: from the study and a number of people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from verticil.shared.numerics.joint.prediction import Prediction, predict
from verticil.shared.numerics.joint.worth import Worth, sentence
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Finding
from verticil.shared.study.protocols import measures_itself, protocol_of, table_deviations
from verticil.shared.study.tables import tables_of

_MOST: Final = 4000  # categories of all draws together; joint models are for fewer
_MOST_ONE_WAY: Final = 0.08
"""Mean error of single columns' shares above which records are of no use. All relations of a table of people together are worth
so much: independent columns are .08 to .11 from Adult, CMC, ma2019 and a made-up hospital in tables of two columns."""


def predict_study(study: Study, n: int) -> Prediction | None:
    """Return how far records of a study's joint model will be from `n` people; None: it has none, or a far too large one."""
    channels = [unit.transition for unit in study.units]
    rules_it_out = study.records_from in {"network", "posterior"} or bool(study.refuses_joint)
    if rules_it_out or measures_itself(study) or not protocol_of(study).counts_families:
        return None
    if sum(channel.n_states for channel in channels) > _MOST:
        return None
    return predict(channels, n, sigma=_deviation(study))


def drowned_shares(study: Study, n: int, prediction: Prediction | None) -> Finding | None:
    """Return an error where the noise on tables hides the shares of single columns from so many people; None: it does not.

    The error is the predicted mean total variation distance of a single column's shares; above `_MOST_ONE_WAY` the records are of
    no use. The hint says how many of the columns, those with the fewest categories, the same epsilon pays for: noise on a count
    grows with the square root of the number of tables.

    Args:
        study: whose tables get noise.
        n: people.
        prediction: of `predict_study` for both.
    """
    if study.tables is None or prediction is None or prediction.one_way <= _MOST_ONE_WAY:
        return None
    channels = sorted((unit.transition for unit in study.units), key=lambda channel: channel.n_states)
    sigma, n_tables = _deviation(study), len(tables_of(study))
    works = 0
    for count in range(2, len(channels)):
        fewer = predict(channels[:count], n, sigma=sigma * math.sqrt(math.comb(count, 2) / n_tables))
        if fewer is None or fewer.one_way > _MOST_ONE_WAY:
            break
        works = count
    return Finding(
        severity="error",
        code="columns-drown",
        where="tables.epsilon",
        message=f"the noise on {n_tables:,} tables of {n:,} people hides the shares of single columns: they would be "
        f"{100 * prediction.one_way:.2g} points off in the mean, expected at most {100 * _MOST_ONE_WAY:g}",
        hint=(f"{works} columns of few categories would work; or merge" if works else "merge")
        + " categories, raise epsilon, or find more people",
    )


def no_nearer(prediction: Prediction | None, n: int) -> Iterator[Finding]:
    """Yield a warning where records would be no nearer to the people than independent columns."""
    if prediction is None or not (worth := worth_of(prediction)).is_useless:
        return
    yield Finding(
        severity="warning",
        code="joint-no-nearer",
        where="release.sample_from",
        message=f"{sentence(worth)}; predicted distance to {n:,} people: {prediction_text(prediction)}",
        hint="fewer columns or categories, a larger epsilon, or more people (--n); else only each column's shares come through",
    )


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


def worth_of(result: Prediction) -> Worth:
    """Return what records will be worth, by the prediction."""
    return Worth(two_way=result.two_way, independent=result.independent, one_way=result.one_way, source="predicted")

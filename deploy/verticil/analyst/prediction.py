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
from verticil.shared.study.tables import set_sizes, tables_of

_MOST: Final = 4000  # categories of all draws together; joint models are for fewer
_MOST_ONE_WAY: Final = 0.08
"""Mean error of single columns' shares above which records are of no use. All relations of a table of people together are worth
so much: independent columns are .08 to .11 from Adult, CMC, ma2019 and a made-up hospital in tables of two columns."""

_PARTS: Final = (0.1, 0.2, 0.3)
"""Of the noise's budget, that tables of single columns can have. With .7 magic at epsilon .2, whose pairs hang together twice as
much as typical ones, was 13 % farther in pairs, though its single columns were twice as near: tests/bench/one_way.py."""
_WORTH_IT: Final = 0.15
"""By so much of itself the predicted distance has to be less, before single columns are measured: tests/bench/one_way.py."""
_LEAST_COLUMNS: Final = 3
"""Of fewer columns the one pair says all there is."""


def predict_study(study: Study, n: int) -> Prediction | None:
    """Return how far records of a study's joint model will be from `n` people; None: it has none, or a far too large one."""
    channels = [unit.transition for unit in study.units]
    rules_it_out = study.records_from in {"network", "posterior"} or bool(study.refuses_joint)
    if rules_it_out or measures_itself(study) or not protocol_of(study).counts_families:
        return None
    if sum(channel.n_states for channel in channels) > _MOST:
        return None
    sigma, own = _deviations(study)
    return predict(channels, n, sigma=sigma, one_way_sigma=own)


def best_one_way_part(study: Study, n: int) -> float:
    """Return the part of the noise's budget for tables of single columns with which records of `n` people come nearest.

    It is 0 where no part brings the prediction in tables of two columns nearer by `_WORTH_IT`, so nothing changes where pairs are
    measured well. The noise of a part is taken from that of the whole: a set of T tables has T / sigma^2 of the budget. Records
    are taken for those of the joint model, whatever the study draws them from: all methods share one measurement.

    Args:
        study: of one owner, with noise on tables and no part for single columns.
        n: people.
    """
    channels = [unit.transition for unit in study.units]
    if len(channels) < _LEAST_COLUMNS or sum(channel.n_states for channel in channels) > _MOST:
        return 0.0
    (sigma, _), share = _deviations(study), len(channels) / len(tables_of(study))
    without = predict(channels, n, sigma=sigma)
    if without is None:
        return 0.0
    best, nearest = 0.0, (1 - _WORTH_IT) * without.two_way
    for part in _PARTS:
        found = predict(channels, n, sigma=sigma / math.sqrt(1 - part), one_way_sigma=sigma * math.sqrt(share / part))
        if found is not None and found.two_way < nearest:
            best, nearest = part, found.two_way
    return best


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
    (sigma, own), n_tables = _deviations(study), set_sizes(study).pairs
    works = 0
    for count in range(2, len(channels)):
        fewer = predict(
            channels[:count],
            n,
            sigma=sigma * math.sqrt(math.comb(count, 2) / n_tables),
            one_way_sigma=own * math.sqrt(count / len(channels)),
        )
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
    """Yield a warning where records would be hardly nearer to the people than independent columns."""
    if prediction is None or not prediction.no_nearer:
        return
    yield Finding(
        severity="warning",
        code="joint-no-nearer",
        where="release.sample_from",
        message=f"{sentence(worth_of(prediction))}; predicted distance to {n:,} people: {prediction_text(prediction)}",
        hint="fewer columns or categories, a larger epsilon, or more people (--n); else only each column's shares come through",
    )


def _deviations(study: Study) -> tuple[float, float]:
    """Return the deviation of the noise on each count of pairs, and on those of single columns beside them, people.

    Where the tables of pairs differ, it is the root of their mean square. Of single columns that are not measured it is infinite.
    """
    if study.tables is None:
        return 0.0, math.inf
    deviations = table_deviations(study)
    n_pairs = set_sizes(study).pairs
    own = deviations[n_pairs] if len(deviations) > n_pairs else math.inf
    pairs = deviations[:n_pairs]
    if len(set(pairs)) == 1:
        return pairs[0], own
    return math.sqrt(math.fsum(each**2 for each in pairs) / n_pairs), own


def prediction_text(result: Prediction) -> str:
    """Write the distances in words."""
    three = "" if result.three_way is None else f", {result.three_way:.2g} in tables of three"
    return f"{result.two_way:.2g} in tables of two columns{three} (independent columns: {result.independent:.2g} in those of two)"


def worth_of(result: Prediction) -> Worth:
    """Return what records will be worth, by the prediction."""
    return Worth(two_way=result.two_way, independent=result.independent, one_way=result.one_way, source="predicted")

"""Utility: what classifiers learn from the table, tested on real records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from verticil.evaluate.figures import Asked
from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.utility import ALL_CLASSIFIERS, Labelled, macro_f1, utility
from verticil.evaluate.metrics import Measured, Metric, Setting
from verticil.evaluate.resampling import Play, Round

LEARNED: Final = 2_000
"""Records that classifiers learn from, and are tested on, without --full; the deviation over the seeds says what chance does."""
_NAMES: Final[Mapping[str, str]] = {
    "NB": "naive_bayes",
    "SV": "support_vectors",
    "KN": "nearest_neighbours",
    "RF": "random_forest",
    "LR": "logistic_regression",
    "DT": "decision_tree",
    "NN": "neural_network",
}


def _utility(this_round: Round, play: Play, setting: Setting) -> Measured:
    most = None if setting.full else LEARNED
    tested = this_round.tested.rows(np.arange(this_round.tested.n)[:most])
    test_records = label_records(tested, setting.target, *setting.telling)
    if play.kind == "baseline":
        return Measured(values=_of_majority(test_records, this_round.real.n_states[setting.target]))
    learned_table = this_round.real if play.kind == "floor" else play.table
    training = label_records(learned_table.rows(np.arange(learned_table.n)[:most]), setting.target, *setting.telling)
    (score,) = utility(
        training,
        [test_records],
        seed=this_round.seed,
        classifiers=ALL_CLASSIFIERS,
        n_classes=this_round.real.n_states[setting.target],
    )
    each = {"accuracy": score.accuracy, "f1": score.f1, "auc": score.auc}
    values = {kind: float(np.mean(list(of.values()))) for kind, of in each.items()}
    for kind, of in each.items():
        values |= {f"{kind}_{_NAMES[name]}": value for name, value in of.items()}
    return Measured(values=values)


def _of_majority(test_records: Labelled, n_classes: int) -> dict[str, float]:
    """Predict the most common class for everybody, with no order among records."""
    counts = np.bincount(test_records.target, minlength=n_classes)
    confusion = np.zeros((len(counts), len(counts)), dtype=np.int64)
    confusion[:, int(counts.argmax())] = counts
    share = float(counts.max() / counts.sum())
    areas = 0.5 if np.count_nonzero(counts) > 1 else float("nan")
    values = {"accuracy": share, "f1": macro_f1(confusion), "auc": areas}
    return {**values, **{f"{kind}_{name}": value for kind, value in values.items() for name in _NAMES.values()}}


def label_records(table: CodedTable, target: int, *without: int) -> Labelled:
    """Return records as classifiers take them: one column is what they learn to predict, others are left out."""
    return Labelled(features=table.features(target, *without), target=table.codes[target].astype(np.int64))


METRICS: Final = (
    Metric(
        name="utility",
        family="utility",
        title="Classifiers",
        measure=_utility,
        says=f"Seven classifiers of scikit-learn with its standard settings learn from at most {LEARNED:,} records of the table "
        "(floor: real records; --full: all), and are tested on as many real records that neither has. F1 is the mean "
        "over classes; AUC too, each class against the others.",
        figures=(
            Asked(
                key="accuracy",
                title="Accuracy of classifiers",
                family="utility",
                better="higher",
                says="Share of real records whose class is predicted rightly by classifiers that learned from the table; a "
                "mean of seven.",
                floor="classifiers that learned from real records",
                baseline="the most common class for everybody",
            ),
            Asked(
                key="auc",
                title="Ranking by classifiers (AUC)",
                family="utility",
                better="higher",
                says="How often classifiers that learned from the table rank a record of a class above one of another; a mean"
                " of seven.",
                floor="classifiers that learned from real records",
                baseline="no order",
            ),
        ),
    ),
)

"""Utility for machine learning: classifiers trained on one table, tested on others (Hittmeir, Mayer & Ekelhart 2022, section V).

Five classifiers of scikit-learn with its standard settings: Gaussian naive Bayes, support vectors, nearest neighbours, random
forest, logistic regression; and two more of KIPPS' tables (Kotal & Joshi 2024), a decision tree and a neural network, which here
stops early, on a tenth of the training records. Features are scaled as in the training table. Beside every accuracy stands the
share of the tested table's most common class, which is reached without looking at any feature.

Three short cuts change no result: equal rows are predicted once; equal training rows are one row with a weight where the method
takes weights (support vectors: the same optimum, so the same up to its tolerance); and between two classes the support vectors
decide by blocks of matrix products (the same sum in another order).

scikit-learn is needed here and nowhere else (the extra ``experiments``).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats

Labels = NDArray[np.int64]

CLASSIFIERS: Final = ("NB", "SV", "KN", "RF", "LR")
"""Naive Bayes, support vectors, nearest neighbours, random forest, logistic regression: Hittmeir's."""
ALL_CLASSIFIERS: Final = (*CLASSIFIERS, "DT", "NN")
"""And a decision tree and a neural network: KIPPS has these, and RF, KN and SV."""

_MERGE_BELOW: Final = 0.95  # share of distinct training rows under which equal ones are merged
_BLOCK_ROWS: Final = 256  # rows that are decided on at a time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labelled:
    """A table to learn from, or to test on.

    Attributes:
        features: (n, f), float64.
        target: (n,), class numbers from 0.
    """

    features: Floats
    target: Labels

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.target.shape != (len(self.features),) or not len(self.target):
            raise ValueError(
                f"features of shape {self.features.shape} and a target of {self.target.shape}, expected (n, f) and (n,), n > 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Utility:
    """How the classifiers do on one tested table.

    Attributes:
        confusion: for each classifier (C, C), records by true and predicted class.
        auc: for each classifier the area under its ROC curve: how often a record of a class has a higher score for that class
            than a record of another one, the mean over classes; NaN where the tested table has one class.
        majority: share of the tested table's most common class.
    """

    confusion: Mapping[str, NDArray[np.int64]]
    auc: Mapping[str, float]
    majority: float

    @property
    def accuracy(self) -> dict[str, float]:
        """Share of records predicted rightly, of each classifier."""
        return {name: float(np.trace(table) / table.sum()) for name, table in self.confusion.items()}

    @property
    def f1(self) -> dict[str, float]:
        """Mean over the tested table's classes of their F score (beta = 1), of each classifier."""
        return {name: macro_f1(table) for name, table in self.confusion.items()}

    @property
    def mean(self) -> float:
        """Mean accuracy of the classifiers."""
        return float(np.mean(list(self.accuracy.values())))


class _Classifier(Protocol):
    def fit(self, features: Floats, target: Labels, /, sample_weight: Floats | None = None) -> object: ...

    def predict(self, features: Floats, /) -> Labels: ...

    def predict_proba(self, features: Floats, /) -> Floats: ...

    @property
    def classes_(self) -> Labels: ...


class _SupportVectors(Protocol):
    def decision_function(self, features: Floats, /) -> Floats: ...

    @property
    def support_vectors_(self) -> Floats: ...

    @property
    def dual_coef_(self) -> Floats: ...

    @property
    def intercept_(self) -> Floats: ...

    @property
    def classes_(self) -> Labels: ...


def utility(
    training: Labelled,
    test_tables: Sequence[Labelled],
    *,
    seed: int,
    classifiers: Sequence[str] = CLASSIFIERS,
    n_classes: int = 0,
) -> tuple[Utility, ...]:
    """Train each classifier once and test it on each table.

    Args:
        training: what is learned from.
        test_tables: tables with the same features.
        seed: of the random forest, the tree and the network.
        classifiers: which of `ALL_CLASSIFIERS`.
        n_classes: of the confusion tables, at least; a rare class may be in none of the tables.

    Raises:
        ImportError: scikit-learn is not there.
        ValueError: an unknown classifier, or tables with other features.
    """
    if unknown := set(classifiers) - set(ALL_CLASSIFIERS):
        raise ValueError(f"unknown classifiers {sorted(unknown)}, expected some of {ALL_CLASSIFIERS}")
    if any(table.features.shape[1] != training.features.shape[1] for table in test_tables):
        raise ValueError("the tested tables have another number of features than the training table")
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(training.features)
    training_features = np.asarray(scaler.transform(training.features), dtype=np.float64)
    n_classes = max(n_classes, 1 + max(int(table.target.max()) for table in (training, *test_tables)))
    questions = [np.unique(scaler.transform(table.features), axis=0, return_inverse=True) for table in test_tables]
    confusion: list[dict[str, NDArray[np.int64]]] = [{} for _ in test_tables]
    areas: list[dict[str, float]] = [{} for _ in test_tables]
    for name in classifiers:
        predict = _train(name, training_features, training.target, seed)
        for table, (rows, of_row), tables, curve_areas in zip(test_tables, questions, confusion, areas, strict=True):
            answers = predict(rows)
            of = of_row.reshape(-1)
            counts = np.bincount(table.target * n_classes + answers.classes[of], minlength=n_classes**2)
            tables[name] = counts.reshape(n_classes, n_classes).astype(np.int64)
            # A class that the training table has not is as unlikely everywhere.
            scores = np.full((len(rows), n_classes), -np.inf)
            scores[:, answers.of] = answers.scores
            curve_areas[name] = area_under_curve(table.target, scores[of])
    return tuple(
        Utility(confusion=tables, auc=curve_areas, majority=float(np.bincount(table.target).max() / len(table.target)))
        for table, tables, curve_areas in zip(test_tables, confusion, areas, strict=True)
    )


def area_under_curve(target: Labels, scores: Floats) -> float:
    """Return the mean over classes of how often a class's records have the higher score for it, ties half.

    Args:
        target: (n,), true classes.
        scores: (n, C), of each class.

    Returns:
        NaN where all records are of one class.

    >>> scores = np.array([0.1, 0.4, 0.35, 0.8])
    >>> area_under_curve(np.array([0, 0, 1, 1]), np.column_stack([1 - scores, scores]))
    0.75
    """
    labels, class_areas = np.unique(target), list[float]()
    if len(labels) == 2 and np.isfinite(scores).any(axis=0).sum() == 2:
        labels = labels[1:]  # the two scores say the same, up to rounding
    for label in labels.tolist():
        _, place, counts = np.unique(scores[:, label], return_inverse=True, return_counts=True)
        own = np.bincount(place.reshape(-1)[target == label], minlength=len(counts)).astype(np.float64)
        others = counts - own
        below = np.cumsum(others) - others / 2
        if others.sum():
            class_areas.append(float((own * below).sum() / (own.sum() * others.sum())))
    return float(np.mean(class_areas)) if class_areas else float("nan")


def macro_f1(confusion: NDArray[np.int64]) -> float:
    """Return the mean over the classes that records have of the harmonic mean of precision and recall.

    >>> round(macro_f1(np.array([[3, 1, 0], [0, 2, 0], [0, 0, 0]])), 4)  # (6/7 + 4/5) / 2
    0.8286
    """
    both = confusion.sum(axis=0) + confusion.sum(axis=1)
    there = confusion.sum(axis=1) > 0
    return float((2 * confusion.diagonal()[there] / both[there]).mean())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Answers:
    """Of some rows: (n,) predicted classes, and (n, m) scores, larger is likelier, of the m classes `of`."""

    classes: Labels
    scores: Floats
    of: Labels


def _train(name: str, features: Floats, target: Labels, seed: int) -> Callable[[Floats], _Answers]:
    if (target == target[0]).all():  # most methods refuse a single class; there is nothing to learn
        only = target[:1]
        return lambda rows: _Answers(classes=np.repeat(only, len(rows)), scores=np.ones((len(rows), 1)), of=only)
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.tree import DecisionTreeClassifier

    if name == "SV":
        return _support_vectors(features, target)
    factories: dict[str, Callable[[], object]] = {
        "NB": GaussianNB,
        "KN": KNeighborsClassifier,
        "RF": lambda: RandomForestClassifier(random_state=seed),
        "LR": LogisticRegression,
        "DT": lambda: DecisionTreeClassifier(random_state=seed),
        "NN": lambda: MLPClassifier(early_stopping=_can_stratify(target), random_state=seed),
    }
    model = cast("_Classifier", factories[name]())
    with warnings.catch_warnings():
        # A network that still moves after its 200 rounds, or learns of fewer records than a batch has, is what it is.
        warnings.simplefilter("ignore", UserWarning)
        model.fit(features, target)

    def answers(rows: Floats) -> _Answers:
        scores = np.asarray(model.predict_proba(rows), dtype=np.float64)
        # Of these three scikit-learn predicts the first of the likeliest classes; the others it asks otherwise.
        classes = model.classes_[scores.argmax(axis=1)] if name in {"KN", "RF", "DT"} else model.predict(rows)
        return _Answers(classes=np.asarray(classes, dtype=np.int64), scores=scores, of=model.classes_)

    return answers


def _can_stratify(target: Labels) -> bool:
    """Return whether a tenth of the records can be set aside with some of each class."""
    counts = np.bincount(target)
    return bool(counts[counts > 0].min() >= 2 and len(target) >= 10 * np.count_nonzero(counts))


def _support_vectors(features: Floats, target: Labels) -> Callable[[Floats], _Answers]:
    from sklearn.svm import SVC

    variance = float(features.var())
    gamma = 1 / (features.shape[1] * variance) if variance > 0 else 1.0
    # gamma="scale" in numbers, because the merged rows have another variance than the records.
    model = SVC(cache_size=500, decision_function_shape="ovo").set_params(gamma=gamma)
    rows, labels, weights = _merge_rows(features, target) or (features, target, None)
    model.fit(rows, labels, sample_weight=weights)
    typed_model = cast("_SupportVectors", model)
    return _of_two_classes(typed_model, gamma) if len(typed_model.classes_) == 2 else _of_many_classes(typed_model)


def _of_many_classes(model: _SupportVectors) -> Callable[[Floats], _Answers]:
    """`predict` and `decision_function` of scikit-learn's SVC, from the decisions of its pairs of classes, taken once."""
    from sklearn.utils.multiclass import _ovr_decision_function  # pyright: ignore[reportPrivateUsage]

    n_classes = len(model.classes_)
    pairs = list(itertools.combinations(range(n_classes), 2))

    def answers(rows: Floats) -> _Answers:
        decisions = np.asarray(model.decision_function(rows), dtype=np.float64)
        votes = np.zeros((len(rows), n_classes))
        for place, (first, second) in enumerate(pairs):
            votes[:, first] += decisions[:, place] > 0
            votes[:, second] += decisions[:, place] <= 0
        scores = np.asarray(_ovr_decision_function(decisions < 0, -decisions, n_classes), dtype=np.float64)
        classes = np.asarray(model.classes_[votes.argmax(axis=1)], dtype=np.int64)
        return _Answers(classes=classes, scores=scores, of=model.classes_)

    return answers


def _of_two_classes(model: _SupportVectors, gamma: float) -> Callable[[Floats], _Answers]:
    """`predict` of scikit-learn's SVC, whose own takes five times as long: sum_i a_i exp(-gamma |x - x_i|^2) + b > 0."""
    vectors, weights = model.support_vectors_, model.dual_coef_[0]
    scaled_vectors, squares = 2 * gamma * vectors.T, gamma * (vectors**2).sum(axis=1)

    def answers(rows: Floats) -> _Answers:
        decisions = np.empty(len(rows))
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = rows[start : start + _BLOCK_ROWS]
            exponents = block @ scaled_vectors - squares - gamma * (block**2).sum(axis=1)[:, None]
            decisions[start : start + _BLOCK_ROWS] = np.exp(exponents, out=exponents) @ weights
        decisions += model.intercept_[0]
        return _Answers(
            classes=np.asarray(model.classes_[(decisions > 0).astype(np.int64)], dtype=np.int64),
            scores=np.column_stack([-decisions, decisions]),
            of=model.classes_,
        )

    return answers


def _merge_rows(features: Floats, target: Labels) -> tuple[Floats, Labels, Floats] | None:
    """Return the distinct training rows, their classes and how often each is there; None where most rows are distinct."""
    table: Floats = np.column_stack([features, target.astype(np.float64)])
    rows, counts = np.unique(table, axis=0, return_counts=True)
    if len(rows) >= _MERGE_BELOW * len(features):
        return None
    return rows[:, :-1], rows[:, -1].astype(np.int64), counts.astype(np.float64)

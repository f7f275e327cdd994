"""Utility for machine learning: classifiers trained on one table, tested on others (Hittmeir, Mayer & Ekelhart 2022, section V).

Five classifiers of scikit-learn with its standard settings: Gaussian naive Bayes, support vectors, nearest neighbours, random
forest, logistic regression. Features are scaled as in the training table. Beside every accuracy stands the share of the tested
table's most common class, which is reached without looking at any feature.

Three short cuts change no result: equal rows are predicted once; equal training rows are one row with a weight where the method
takes weights (support vectors: the same optimum, so the same up to its tolerance); and between two classes the support vectors
decide by blocks of matrix products (the same sum in another order).

scikit-learn is needed here and nowhere else (the extra ``experiments``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.arrays import Floats

Labels = NDArray[np.int64]

CLASSIFIERS: Final = ("NB", "SV", "KN", "RF", "LR")
"""Naive Bayes, support vectors, nearest neighbours, random forest, logistic regression."""

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
        majority: share of the tested table's most common class.
    """

    confusion: Mapping[str, NDArray[np.int64]]
    majority: float

    @property
    def accuracy(self) -> dict[str, float]:
        """Share of records predicted rightly, of each classifier."""
        return {name: float(np.trace(table) / table.sum()) for name, table in self.confusion.items()}

    @property
    def mean(self) -> float:
        """Mean accuracy of the classifiers."""
        return float(np.mean(list(self.accuracy.values())))


class _Classifier(Protocol):
    def fit(self, features: Floats, target: Labels, /, sample_weight: Floats | None = None) -> object: ...

    def predict(self, features: Floats, /) -> Labels: ...


class _SupportVectors(Protocol):
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
    tested: Sequence[Labelled],
    *,
    seed: int,
    classifiers: Sequence[str] = CLASSIFIERS,
    n_classes: int = 0,
) -> tuple[Utility, ...]:
    """Train each classifier once and test it on each table.

    Args:
        training: what is learned from.
        tested: tables with the same features.
        seed: of the random forest.
        classifiers: which of `CLASSIFIERS`.
        n_classes: of the confusion tables, at least; a rare class may be in none of the tables.

    Raises:
        ImportError: scikit-learn is not there.
        ValueError: an unknown classifier, or tables with other features.
    """
    if unknown := set(classifiers) - set(CLASSIFIERS):
        raise ValueError(f"unknown classifiers {sorted(unknown)}, expected some of {CLASSIFIERS}")
    if any(table.features.shape[1] != training.features.shape[1] for table in tested):
        raise ValueError("the tested tables have another number of features than the training table")
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(training.features)
    scaled = np.asarray(scaler.transform(training.features), dtype=np.float64)
    n_classes = max(n_classes, 1 + max(int(table.target.max()) for table in (training, *tested)))
    questions = [np.unique(scaler.transform(table.features), axis=0, return_inverse=True) for table in tested]
    confusion: list[dict[str, NDArray[np.int64]]] = [{} for _ in tested]
    for name in classifiers:
        predict = _trained(name, scaled, training.target, seed)
        for table, (rows, of_row), tables in zip(tested, questions, confusion, strict=True):
            predicted = predict(rows)[of_row.reshape(-1)]
            counts = np.bincount(table.target * n_classes + predicted, minlength=n_classes**2)
            tables[name] = counts.reshape(n_classes, n_classes).astype(np.int64)
    return tuple(
        Utility(confusion=tables, majority=float(np.bincount(table.target).max() / len(table.target)))
        for table, tables in zip(tested, confusion, strict=True)
    )


def f_score(confusion: NDArray[np.int64], *, beta: float = 2.0) -> float:
    """The F score of class 1 of two: the harmonic mean of precision and recall, recall weighted beta times as much.

    >>> round(f_score(np.array([[55626, 1224], [26, 86]])), 4)
    0.2446
    """
    (_, false_positive), (false_negative, true_positive) = confusion.tolist()
    weight = beta * beta
    divisor = (1 + weight) * true_positive + weight * false_negative + false_positive
    return (1 + weight) * true_positive / divisor if divisor else 0.0


def _trained(name: str, features: Floats, target: Labels, seed: int) -> Callable[[Floats], Labels]:
    if (target == target[0]).all():  # most methods refuse a single class; there is nothing to learn
        only = int(target[0])
        return lambda rows: np.full(len(rows), only, dtype=np.int64)
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    variance = float(features.var())
    gamma = 1 / (features.shape[1] * variance) if variance > 0 else 1.0
    made: dict[str, Callable[[], object]] = {
        "NB": GaussianNB,
        # gamma="scale" in numbers, because the merged rows have another variance than the records.
        "SV": lambda: SVC(cache_size=500).set_params(gamma=gamma),
        "KN": KNeighborsClassifier,
        "RF": lambda: RandomForestClassifier(random_state=seed),
        "LR": LogisticRegression,
    }
    model = cast("_Classifier", made[name]())
    merged = _merged(features, target) if name == "SV" else None
    if merged is None:
        model.fit(features, target)
    else:
        rows, labels, weights = merged
        model.fit(rows, labels, sample_weight=weights)
    if name == "SV" and len(set(target.tolist())) == 2:
        return _of_two_classes(cast("_SupportVectors", model), gamma)
    return lambda asked: np.asarray(model.predict(asked), dtype=np.int64)


def _of_two_classes(model: _SupportVectors, gamma: float) -> Callable[[Floats], Labels]:
    """`predict` of scikit-learn's SVC, whose own takes five times as long: sum_i a_i exp(-gamma |x - x_i|^2) + b > 0."""
    vectors, weights = model.support_vectors_, model.dual_coef_[0]
    scaled, squares = 2 * gamma * vectors.T, gamma * (vectors**2).sum(axis=1)

    def predict(asked: Floats) -> Labels:
        decided = np.empty(len(asked))
        for start in range(0, len(asked), _BLOCK_ROWS):
            block = asked[start : start + _BLOCK_ROWS]
            exponents = block @ scaled - squares - gamma * (block**2).sum(axis=1)[:, None]
            decided[start : start + _BLOCK_ROWS] = np.exp(exponents, out=exponents) @ weights
        return np.asarray(model.classes_[(decided + model.intercept_[0] > 0).astype(np.int64)], dtype=np.int64)

    return predict


def _merged(features: Floats, target: Labels) -> tuple[Floats, Labels, Floats] | None:
    """The distinct training rows, their classes and how often each is there; None where most rows are distinct."""
    table: Floats = np.column_stack([features, target.astype(np.float64)])
    joined, counts = np.unique(table, axis=0, return_counts=True)
    if len(joined) >= _MERGE_BELOW * len(features):
        return None
    return joined[:, :-1], joined[:, -1].astype(np.int64), counts.astype(np.float64)

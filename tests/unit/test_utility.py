"""Classifiers on tables whose answer is known; expected numbers are closed forms or scikit-learn's own, named where used."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from verticil.evaluate.measures.utility import CLASSIFIERS, Labelled, area_under_curve, utility


def table(n: int, seed: int, *, flip: float = 0.0, grid: int = 0) -> Labelled:
    """Two classes on both sides of x + y = 0, a share of them flipped."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(n, 2)) if not grid else generator.integers(-grid, grid + 1, (n, 2)).astype(float)
    target = (features.sum(axis=1) > 0).astype(np.int64) ^ (generator.random(n) < flip)
    return Labelled(features=features, target=target.astype(np.int64))


def test_every_classifier_learns_a_line_and_noise_bounds_it() -> None:
    clear, noisy = utility(table(600, 1), [table(800, 2), table(800, 3, flip=0.25)], seed=1)
    assert tuple(clear.accuracy) == CLASSIFIERS
    assert min(clear.accuracy.values()) > 0.95
    assert all(value == pytest.approx(0.75, abs=0.06) for value in noisy.accuracy.values())
    assert clear.mean == pytest.approx(np.mean(list(clear.accuracy.values())))
    assert clear.majority == pytest.approx(0.5, abs=0.07)
    assert all(int(counts.sum()) == 800 for counts in clear.confusion.values())


def test_merged_rows_give_the_same_support_vector_machine() -> None:
    training, tested = table(500, 4, flip=0.1, grid=4), table(400, 5, grid=6)
    scaler = StandardScaler().fit(training.features)
    plain = SVC().fit(scaler.transform(training.features), training.target)
    (found,) = utility(training, [tested], seed=1, classifiers=["SV"])
    assert found.accuracy["SV"] == (plain.predict(scaler.transform(tested.features)) == tested.target).mean()


def test_of_more_classes_support_vectors_are_those_of_scikit_learn() -> None:
    training, tested = (table(300, seed) for seed in (6, 7))
    classes = [(t.features[:, 0] > 0.5).astype(np.int64) + t.target for t in (training, tested)]
    scaler = StandardScaler().fit(training.features)
    plain = SVC().fit(scaler.transform(training.features), classes[0])
    three = [Labelled(features=t.features, target=own) for t, own in zip((training, tested), classes, strict=True)]
    (found,) = utility(three[0], three[1:], seed=1, classifiers=["SV"])
    rows = scaler.transform(tested.features)
    assert found.accuracy["SV"] == (plain.predict(rows) == classes[1]).mean() > 0.9
    assert found.auc["SV"] == pytest.approx(area_under_curve(classes[1], plain.decision_function(rows)))


def test_one_class_in_training_is_what_is_predicted() -> None:
    training = Labelled(features=np.zeros((5, 1)), target=np.ones(5, dtype=np.int64))
    tested = Labelled(features=np.zeros((4, 1)), target=np.array([1, 1, 1, 0]))
    (found,) = utility(training, [tested], seed=1)
    assert set(found.accuracy.values()) == {found.majority} == {0.75}
    assert found.confusion["NB"].tolist() == [[0, 1], [0, 3]]
    nothing = Labelled(features=np.zeros((2, 1)), target=np.zeros(2, dtype=np.int64))
    (rare,) = utility(nothing, [nothing], seed=1, classifiers=["NB"], n_classes=2)
    assert rare.confusion["NB"].tolist() == [[2, 0], [0, 0]]


def test_unfit_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown classifiers"):
        utility(table(9, 1), [table(9, 2)], seed=1, classifiers=["XX"])
    with pytest.raises(ValueError, match="features"):
        utility(table(9, 1), [Labelled(features=np.zeros((3, 1)), target=np.zeros(3, dtype=np.int64))], seed=1)
    with pytest.raises(ValueError, match="expected"):
        Labelled(features=np.zeros((3, 1)), target=np.zeros(2, dtype=np.int64))

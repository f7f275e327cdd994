"""How well the other columns of a table tell one of them: what a column to predict is chosen by."""

from __future__ import annotations

from typing import Final

import numpy as np

from verticil.evaluate.measures.coded import CodedTable

_LEAF: Final = 20  # records in a leaf, at least: as the tree of the propensity


def explained_share(table: CodedTable, target: int) -> float:
    """Return how much of a column's variation a tree explains that learned from the other columns.

        1 - sum (p - y)^2 / sum (p0 - y)^2

    over the records of the second half and the indicators y of all categories; p the tree's shares and p0 those of the column
    alone, both of the first half.

    Args:
        table: records in a random order.
        target: position of the column.

    Returns:
        At most 1; below 0 where the tree has learned chance; NaN is never returned.

    >>> codes = np.arange(200, dtype=np.uint8) % 2
    >>> table = CodedTable(names=("a", "b"), codes=(codes, codes), n_states=(2, 2), values=(None, None))
    >>> explained_share(table, 1)
    1.0
    """
    from sklearn.tree import DecisionTreeClassifier

    features, half = table.features(target), table.n // 2
    answers = np.eye(table.n_states[target])[table.codes[target]]
    alone = float(((answers[:half].mean(axis=0) - answers[half:]) ** 2).sum())
    tree = DecisionTreeClassifier(min_samples_leaf=_LEAF, random_state=0).fit(
        features[:half], table.codes[target][:half]
    )
    shares = np.zeros_like(answers[half:])
    shares[:, tree.classes_] = tree.predict_proba(features[half:])
    return 1 - float(((shares - answers[half:]) ** 2).sum()) / alone if alone > 0 else 0.0


def is_determined(table: CodedTable, target: int) -> bool:
    """Return whether another column, other than one that names each record, determines a column alone.

    >>> codes = np.arange(9, dtype=np.uint8)
    >>> table = CodedTable(names=("a", "b"), codes=(codes % 3, codes % 3 // 2), n_states=(3, 2), values=(None, None))
    >>> is_determined(table, 1), is_determined(table, 0)
    (True, False)
    """
    own = table.codes[target].astype(np.int64)
    for place, column in enumerate(table.codes):
        if place != target:
            pairs = np.bincount(
                column * np.int64(table.n_states[target]) + own,
                minlength=table.n_states[place] * table.n_states[target],
            )
            if (np.count_nonzero(pairs.reshape(table.n_states[place], -1), axis=1) <= 1).all():
                return True
    return False

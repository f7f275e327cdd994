"""All metrics, in the order in which they are computed and shown, and which column they ask for."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from verticil.evaluate.disclosure import METRICS as DISCLOSURE
from verticil.evaluate.fidelity import METRICS as FIDELITY
from verticil.evaluate.figures import FAMILIES, Asked
from verticil.evaluate.knowledge import METRICS as KNOWLEDGE
from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.prediction import explained_share, is_determined
from verticil.evaluate.metrics import Metric
from verticil.evaluate.utility import METRICS as UTILITY
from verticil.shared.core.errors import Misuse

METRICS: Final = (*FIDELITY, *UTILITY, *DISCLOSURE, *KNOWLEDGE)

_FEW: Final = 20  # categories of a column that classifiers predict unless another one is named
_TOLD_RECORDS: Final = 2_500  # that a column is chosen by, half to learn from
_LEAST_TOLD: Final = 0.05  # of a column's variation: below it nothing is told


def headline() -> tuple[Asked, ...]:
    """Return the figures of all metrics."""
    return tuple(definition for metric in METRICS for definition in metric.figures)


def select_metrics(only: Sequence[str]) -> tuple[Metric, ...]:
    """Select the metrics of some names or families, in their order; all where none is named.

    Raises:
        Misuse: USAGE, an unknown name.
    """
    names = [*FAMILIES, *(metric.name for metric in METRICS)]
    for name in only:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise Misuse(
                "USAGE",
                f"unknown metric '{name}'",
                hint=f"did you mean '{near[0]}'?" if near else f"expected some of {', '.join(names)}",
            )
    return tuple(metric for metric in METRICS if not only or metric.name in only or metric.family in only)


def target_of(table: CodedTable, binned: Collection[int] = (), follow: Collection[str] = ()) -> tuple[int, float]:
    """Choose the column to predict where nobody names one: the one that the others tell best.

    A column that another one determines alone is chosen only where the others tell next to nothing of the rest.

    Args:
        table: the real one.
        binned: positions of columns whose codes are bins of numbers, and none to be predicted.
        follow: names of columns that follow from others by a study, and are none to be predicted.

    Returns:
        Its position, and the share of its variation that a tree on the others explains.
    """
    sample = table.rows(np.random.default_rng(table.n).permutation(table.n)[:_TOLD_RECORDS])
    shares = {
        place: explained_share(sample, place)
        for place, name in enumerate(table.names)
        if place not in binned and name not in follow and 2 <= np.count_nonzero(np.bincount(table.codes[place])) <= _FEW
    }
    open_places = [place for place in shares if not is_determined(sample, place)]
    for places in (open_places, list(shares)):
        if places and shares[best := max(places, key=lambda place: shares[place])] >= _LEAST_TOLD:
            return best, shares[best]
    places = open_places or list(shares) or list(range(len(table.names)))
    best = max(places, key=lambda place: shares.get(place, 0.0))
    return best, shares.get(best, 0.0)

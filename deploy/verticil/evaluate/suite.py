"""All metrics, in the order in which they are computed and shown, and which column they ask for."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Final

from verticil.evaluate.disclosure import METRICS as DISCLOSURE
from verticil.evaluate.fidelity import METRICS as FIDELITY
from verticil.evaluate.figures import FAMILIES, Asked
from verticil.evaluate.knowledge import METRICS as KNOWLEDGE
from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.metrics import Metric
from verticil.evaluate.utility import METRICS as UTILITY
from verticil.shared.core.errors import Misuse

METRICS: Final = (*FIDELITY, *UTILITY, *DISCLOSURE, *KNOWLEDGE)

_FEW: Final = 20  # categories of a column that classifiers predict unless another one is named


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


def target_of(table: CodedTable, follow: Collection[str] = ()) -> int:
    """Return the column that is predicted where nobody names one: the last of those with few categories, numbers aside.

    Args:
        table: with the columns.
        follow: names of columns that follow from others, and are none to be predicted.

    >>> import numpy as np
    >>> codes = tuple(np.zeros(1, dtype=np.uint8) for _ in range(3))
    >>> target_of(CodedTable(names=("a", "b", "c"), codes=codes, n_states=(2, 9, 30), values=(None,) * 3))
    1
    """
    few = [
        place
        for place, (states, values) in enumerate(zip(table.n_states, table.values, strict=True))
        if values is None and 2 <= states <= _FEW and table.names[place] not in follow
    ]
    return few[-1] if few else len(table.names) - 1

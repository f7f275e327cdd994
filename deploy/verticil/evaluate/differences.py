"""Why a table that is near by a study's codebook is further from the real one by value: column by column, in words.

A release has the categories and bins of its study. What the real table has besides (values that the study takes together, numbers
inside a bin) no release can have, however good it is: that is for the study to change, not for the synthesis.
"""

from __future__ import annotations

from typing import Final

from verticil.evaluate.coding import Coding
from verticil.evaluate.measures.fidelity import distances

_LEAST: Final = 0.01  # of the records: a smaller difference is not explained
_MOST: Final = 5
_OTHERWISE: Final = "the real values are spread otherwise inside the study's categories"


def explain_differences(tables: Coding, name: str) -> list[str]:
    """Explain the columns that are further from the real ones by value than by the codebook.

    Args:
        tables: with `by_codebook` and `by_value`.
        name: of the candidate.

    Returns:
        Sentences, the largest difference first; none: no column differs by more.
    """
    if tables.by_codebook is None or tables.by_value is None:
        return []
    near, far = (
        distances(coded.real.codes, coded.synthetic[name].codes, coded.real.n_states, ways=1).each
        for coded in (tables.by_codebook, tables.by_value)
    )
    order = sorted(range(len(near)), key=lambda place: near[place] - far[place])
    gaps = [place for place in order if far[place] - near[place] >= _LEAST]
    columns = tables.real.names
    sentences = [
        f"{columns[place]}: distance {near[place]:.3f} by the codebook, {far[place]:.3f} by value: "
        f"{tables.reasons.get(columns[place]) or _OTHERWISE}"
        for place in gaps[:_MOST]
    ]
    more = f"{len(gaps) - _MOST} more columns are further by value than by the codebook"
    return sentences + [more] * (len(gaps) > _MOST)

"""What the report says of the rows of people: how many, which value follows which, and how much time lies between."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from verticil.shared.related.figures import row_figures
from verticil.shared.release import wording
from verticil.shared.release.content import ReleaseContent

_SHOWN: Final = 12
"""Most values of a column whose transitions the page shows."""


def related_view(content: ReleaseContent) -> list[Mapping[str, object]]:
    """Return a section for each related table; none of a study without them."""
    found: list[Mapping[str, object]] = []
    for table in content.study.related:
        figures = row_figures(table, content.study.schema, content.codes)
        mean = float(sum(number * share for number, share in enumerate(figures.people)))
        found.append(
            {
                "name": table.name,
                "most": table.max_rows,
                "keep": table.keep,
                "order": table.order,
                "mean": f"{mean:.2f}",
                "people": [(number, wording.share(share)) for number, share in enumerate(figures.people.tolist())],
                "gaps": None
                if figures.gaps is None
                else [(label, wording.share(share)) for label, share in zip(*figures.gaps, strict=True)],
                "transitions": [
                    {
                        "column": item.column,
                        "labels": item.labels,
                        "rows": [
                            (label, ["" if math.isnan(share) else wording.share(share) for share in row])
                            for label, row in zip(item.labels, item.shares.tolist(), strict=True)
                        ],
                    }
                    for item in figures.transitions
                    if len(item.labels) <= _SHOWN
                ],
                "hidden": [item.column for item in figures.transitions if len(item.labels) > _SHOWN],
            }
        )
    return found

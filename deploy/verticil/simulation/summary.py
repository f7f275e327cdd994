"""The headline figures of a release, read from its model.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

__all__ = ["release_summary"]


def release_summary(release: Path) -> dict[str, object]:
    """Variables, edges, epsilon per column and per person of a verified release.

    Args:
        release: the folder.
    """
    model = json.loads((release / "model.json").read_bytes())
    columns = cast("list[dict[str, object]]", model["privacy"]["columns"])
    epsilons = [column["epsilon"] for column in columns]
    finite = sorted({round(cast("float", epsilon), 4) for epsilon in epsilons if epsilon is not None})
    return {
        "variables": len(model["variables"]),
        "edges": len(model["structure"]["edges"]),
        "epsilon_per_column": {
            ", ".join(cast("list[str]", column["variables"])): column["epsilon"] for column in columns
        },
        "epsilon_range": [finite[0], finite[-1]] if finite else None,
        "epsilon_per_person": model["privacy"]["epsilon_per_person"],
    }

"""The headline figures of a release, read from its model.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast


def release_summary(release: Path) -> dict[str, object]:
    """Variables, edges, epsilon per column and per person of a verified release; between peers what covers the parameters.

    Args:
        release: the folder.
    """
    model = json.loads((release / "model.json").read_bytes())
    columns = cast("list[dict[str, object]]", model["privacy"]["columns"])
    epsilons = [column["epsilon"] for column in columns]
    peer = cast("dict[str, object] | None", model.get("peer"))
    finite = sorted({round(cast("float", epsilon), 4) for epsilon in epsilons if epsilon is not None})
    return {
        "variables": len(model["variables"]),
        "edges": len(model["structure"]["edges"]),
        "epsilon_per_column": {
            ", ".join(cast("list[str]", column["variables"])): column["epsilon"] for column in columns
        },
        "epsilon_range": [finite[0], finite[-1]] if finite else None,
        "epsilon_per_person": model["privacy"]["epsilon_per_person"],
        **({} if peer is None else {"exact_parameters": peer["exact_parameters"], "share": peer["share"]}),
    }


def parameters_text(release: Path) -> str:
    """What covers the parameters of a study between peers, which no epsilon of a column does; empty with a miner.

    Args:
        release: the folder.
    """
    summary = release_summary(release)
    if "share" not in summary:
        return ""
    share = cast("dict[str, float] | None", summary["share"])
    if share is None:
        return "no bound: they are exact functions of raw data"
    return f"epsilon {share['epsilon']:g}, delta {share['delta']:g} of one person at each party, besides the columns"


def pairs_text(release: Path) -> str:
    """What the tables of the pairs say of the network; empty where no pair was scored.

    Args:
        release: the folder.
    """
    search = json.loads((release / "model.json").read_bytes())["structure"]["search"]
    check = cast("dict[str, object] | None", search.get("pair_check"))
    if check is None:
        return ""
    lines = []
    if "worst_pair" in check:
        lines.append(
            f"worst of {check['significant_pairs']} significant pairs: {' x '.join(cast('list[str]', check['worst_pair']))}, "
            f"{check['distance']:.3f} from its estimated table; noise explains {check['distance_that_noise_explains']:.3f}"
        )
    if missing := cast("list[tuple[str, str, float]]", check["left_nearly_independent"]):
        pairs = ", ".join(f"{a} x {b} ({nats:.2f} nats)" for a, b, nats in missing)
        lines.append(f"linked, but nearly independent in the network: {pairs}")
    return "\n".join(lines)

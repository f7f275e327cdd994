"""The headline figures of a release, read from its model.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verticil.shared.view import inlined


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigures:
    """Between peers: whether parameters are exact, and the noise on what is shared besides columns; None: there is none."""

    exact_parameters: bool
    share: Mapping[str, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSummary:
    """The headline figures of a release.

    Attributes:
        epsilon_per_column, epsilon_per_person: None: without bound.
        epsilon_range: of the finite ones; None: there is none.
        peers: None with a miner.
    """

    variables: int
    edges: int
    epsilon_per_column: Mapping[str, float | None]
    epsilon_range: tuple[float, float] | None
    epsilon_per_person: float | None
    peers: PeerFigures | None = inlined()

    @property
    def parameters(self) -> str:
        """What covers the parameters of a study between peers, which no epsilon of a column does; empty with a miner."""
        if self.peers is None:
            return ""
        if (share := self.peers.share) is None:
            return "no bound: they are exact functions of raw data"
        return (
            f"epsilon {share['epsilon']:g}, delta {share['delta']:g} of one person at each party, besides the columns"
        )


def release_summary(release: Path) -> ReleaseSummary:
    """The headline figures of a verified release.

    Args:
        release: the folder.
    """
    model = json.loads((release / "model.json").read_bytes())
    columns, peer = model["privacy"]["columns"], model.get("peer")
    finite = sorted({round(column["epsilon"], 4) for column in columns if column["epsilon"] is not None})
    return ReleaseSummary(
        variables=len(model["variables"]),
        edges=len(model["structure"]["edges"]),
        epsilon_per_column={", ".join(column["variables"]): column["epsilon"] for column in columns},
        epsilon_range=(finite[0], finite[-1]) if finite else None,
        epsilon_per_person=model["privacy"]["epsilon_per_person"],
        peers=None if peer is None else PeerFigures(exact_parameters=peer["exact_parameters"], share=peer["share"]),
    )


def pairs_text(release: Path) -> str:
    """What the tables of the pairs say of the network; empty where no pair was scored.

    Args:
        release: the folder.
    """
    search = json.loads((release / "model.json").read_bytes())["structure"]["search"]
    check = search.get("pair_check")
    if check is None:
        return ""
    lines = []
    if "worst_pair" in check:
        lines.append(
            f"worst of {check['significant_pairs']} significant pairs: {' x '.join(check['worst_pair'])}, "
            f"{check['distance']:.3f} from its estimated table; noise explains {check['distance_that_noise_explains']:.3f}"
        )
    if missing := check["left_nearly_independent"]:
        pairs = ", ".join(f"{a} x {b} ({nats:.2f} nats)" for a, b, nats in missing)
        lines.append(f"linked, but nearly independent in the network: {pairs}")
    return "\n".join(lines)

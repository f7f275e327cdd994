"""What the report says of the step from unbiased estimates, which can be negative, to probabilities, which cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from verticil.shared.estimation.estimators import ESTIMATORS
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.report import wording

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRow:
    """One family, in words."""

    name: str
    given: tuple[str, ...]
    cells: str
    negative: str
    moved: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionSummary:
    """All families: their cells and negative cells together, the mean share of mass moved, and those with the most."""

    method: str
    cells: str
    negative: str
    mean: str
    rows: tuple[MovedRow, ...]


def summarize(content: ReleaseContent) -> ProjectionSummary | None:
    """Say how much was moved; None where the network does not know it for every family."""
    names = content.study.schema.names
    known = [(family, family.projection) for family in content.network.families if family.projection is not None]
    if not known or len(known) < len(content.network.families):
        return None
    most = sorted(known, key=lambda pair: (-pair[1].mass_moved, pair[0].child))[:_SHOWN]
    return ProjectionSummary(
        method=ESTIMATORS[content.study.parameters.estimator].words,
        cells=f"{sum(family.probability.size for family, _ in known):,}",
        negative=f"{sum(projection.negative_cells for _, projection in known):,}",
        mean=wording.percent(sum(projection.mass_moved for _, projection in known) / len(known)),
        rows=tuple(
            MovedRow(
                name=names[family.child],
                given=tuple(names[parent] for parent in family.parents),
                cells=f"{family.probability.size:,}",
                negative=f"{projection.negative_cells:,}",
                moved=wording.percent(projection.mass_moved),
            )
            for family, projection in most
        ),
    )

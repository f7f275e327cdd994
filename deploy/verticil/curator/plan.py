"""What `synthesize` would publish of a study, before a table is read: noise, distances, and what drowns in the noise.

Everything follows from the study and a number of people. A column's shares drown where half of the 95 % interval that the noise
alone gives a category is more than the average category's share. A relation drowns where the noise on one count of its table is
more than the average count.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from verticil.analyst.check import Judged
from verticil.analyst.lint import by_severity, lint_owner, warning
from verticil.analyst.prediction import drowned_shares, no_nearer, predict_study
from verticil.curator.study import owners_study, with_columns_measured
from verticil.shared.documents.view_models import document
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import origin_words
from verticil.shared.study.protocol import Finding
from verticil.shared.study.tables import coarse_pairs, profiled, set_sizes, table_sigmas, tables_of, tables_sigma

if TYPE_CHECKING:
    from verticil.shared.documents.json_document import Json
    from verticil.shared.numerics.joint.prediction import Prediction

_FACTORS: Final = (0.25, 1.0, 4.0)
_HALF_WIDTH: Final = 1.96  # standard deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """What one epsilon buys.

    Attributes:
        epsilon: of everything that is published, for the replacement of one person.
        sigma: standard deviation of the noise on each count of pairs, people.
        one_way_part: the part of the noise's budget that measures each column on its own; 0: none.
        prediction: how far records will be from the people, and independent columns; None: there is one column.
        drowned_columns: names of the columns whose shares drown.
        n_drowned_pairs: number of relations that drown.
        drowned_relations: names of the columns of which each relation drowns.
    """

    epsilon: float
    sigma: float
    one_way_part: float
    prediction: Prediction | None
    drowned_columns: tuple[str, ...]
    n_drowned_pairs: int
    drowned_relations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersPlan(Judged):
    """What one owner's release will be worth.

    Attributes:
        study, findings: that would be carried out; see `Judged`.
        n: number of people.
        n_tables: tables of pairs and triples of columns.
        n_coarse: pairs that are measured again in runs of neighbouring categories, for the relations of numbers.
        n_measured: numbers whose bins are measured.
        rows: by epsilon, ascending; the middle one is the study's.
    """

    n: int
    n_tables: int
    n_coarse: int
    n_measured: int
    rows: tuple[PlanRow, ...]

    def to_dict(self, *, strict: bool = False) -> dict[str, Json]:
        """Return the document of ``verticil study check --format json`` of a study of one owner."""
        return document(
            {
                "id": self.study.id,
                "digest": canonical.digest(self.study).hex(),
                "ok": self.spotless if strict else self.ok,
                "model": self.study.model,
                "n": self.n,
                "tables": self.n_tables,
                "coarse_tables": self.n_coarse,
                "measured_columns": self.n_measured,
                "by_epsilon": [dataclasses.asdict(row) for row in self.rows],
                "stated": describe_knowledge(self.study.knowledge, self.study.schema),
                "origins": list(origin_words(self.study)),
                "findings": [dataclasses.asdict(finding) for finding in self.findings],
            }
        )


def plan_of(study: Study, *, n: int | None = None) -> OwnersPlan:
    """Return what `synthesize` with the joint model would publish of a study, at a quarter, once and four times its epsilon.

    Args:
        study: of one organisation; it need not be reviewed.
        n: number of people; None: the study's minimum.

    Raises:
        Misuse: STUDY_INVALID or STUDY_UNSUPPORTED, what the study asks for does not go with noise on tables.
    """
    own = owners_study(study, method="joint")
    assert own.tables is not None  # with this method there is always noise
    people = n or study.linkage.minimum_common_records
    epsilons = [own.tables.epsilon * factor for factor in _FACTORS]
    studies = [
        with_columns_measured(dataclasses.replace(own, tables=dataclasses.replace(own.tables, epsilon=each)), people)
        for each in epsilons
    ]
    own = studies[1]
    rows = tuple(_row(each, people, epsilon) for each, epsilon in zip(studies, epsilons, strict=True))
    return OwnersPlan(
        study=own,
        n=people,
        n_tables=set_sizes(own).pairs,
        n_coarse=len(coarse_pairs(own)),
        n_measured=len(profiled(own)),
        rows=rows,
        findings=tuple(by_severity([*lint_owner(study, own, people), *_lost(own, rows[1], people)])),
    )


def _row(study: Study, n: int, epsilon: float) -> PlanRow:
    sizes = [unit.transition.n_states for unit in study.units]
    names = [", ".join(unit.variables) for unit in study.units]
    relations: list[list[tuple[int, ...]]] = [[] for _ in sizes]
    precision = [0.0 for _ in sizes]  # of a category's count, from all tables of its column together
    drowned = set[tuple[int, ...]]()
    for members, sigma in zip(tables_of(study), table_sigmas(study), strict=True):
        cells = math.prod(sizes[unit] for unit in members)
        for unit in members:
            precision[unit] += sizes[unit] / (cells * sigma**2)
            relations[unit] += [members] if len(members) > 1 else []
        if len(members) > 1 and sigma * cells > n:
            drowned.add(members)
    return PlanRow(
        epsilon=epsilon,
        sigma=tables_sigma(study),
        one_way_part=0.0 if study.tables is None else study.tables.one_way_part or 0.0,
        prediction=predict_study(study, n),
        drowned_columns=tuple(
            name
            for name, size, known in zip(names, sizes, precision, strict=True)
            if _HALF_WIDTH / math.sqrt(known) > n / size
        ),
        n_drowned_pairs=len(drowned),
        drowned_relations=tuple(
            name for name, tables in zip(names, relations, strict=True) if tables and drowned.issuperset(tables)
        ),
    )


def _lost(study: Study, row: PlanRow, n: int) -> Iterator[Finding]:
    """Yield what the study's own epsilon does not pay for."""
    drowned = drowned_shares(study, n, row.prediction)
    if drowned is not None:
        yield drowned
    elif row.drowned_columns:
        yield warning(
            "columns-drown",
            "tables.epsilon",
            f"the noise on {n:,} people hides the shares of single columns: {', '.join(row.drowned_columns)}",
            "merge their categories, leave columns out, or raise epsilon",
        )
    if row.drowned_relations:
        yield warning(
            "relations-drown",
            "tables.epsilon",
            f"the noise hides every relation of {', '.join(row.drowned_relations)}",
            "merge their categories, leave columns out, or raise epsilon",
        )
    yield from no_nearer(row.prediction, n)

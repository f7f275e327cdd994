"""What a study promises each person and what it can learn, before anyone works: all figures together, without data."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verticil.analyst.lint import lint
from verticil.analyst.models import ModelRow, compare_models
from verticil.analyst.prediction import predict_study
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.record import write
from verticil.shared.documents.view_models import document
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.privacy.masked_figures import four_figures
from verticil.shared.privacy.plan import BudgetPlan, budget_plan
from verticil.shared.privacy.study_table import StudyTable, study_table
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import origin_words
from verticil.shared.study.protocol import Finding
from verticil.shared.study.protocols import disclosure
from verticil.shared.study.tables import tables_noise

if TYPE_CHECKING:
    from verticil.shared.numerics.joint.prediction import Prediction
    from verticil.shared.privacy.masked_figures import FourFigures
    from verticil.shared.privacy.plan import LimitsOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A study with what is worth saying about it.

    Attributes:
        study: that was judged.
        findings: errors, warnings and notes, see `lint`.
    """

    study: Study
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Why the study cannot succeed as it stands."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def ok(self) -> bool:
        """Whether the study can be carried out."""
        return not self.errors

    @property
    def spotless(self) -> bool:
        """Whether there is no warning, either."""
        return all(finding.severity == "note" for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(Judged):
    """What was found.

    Attributes:
        table: a row of figures for each draw.
        plan: what the study costs a person, for each reader and party.
        prediction: how far the records of a joint model will be from the people; None: nothing is predicted.
        figures: of a masked study, what it promises; None of any other.
        models: the study by each model; none without noise on tables.
    """

    table: StudyTable
    plan: BudgetPlan
    prediction: Prediction | None
    figures: FourFigures | None
    models: tuple[ModelRow, ...]

    def to_dict(self, *, strict: bool = False) -> dict[str, Json]:
        """Return the document of ``verticil study check --format json``."""
        study, table = self.study, self.table
        return document(
            {
                "id": study.id,
                "digest": canonical.digest(study).hex(),
                "ok": self.spotless if strict else self.ok,
                "model": study.model,
                "n": table.n,
                "columns": [dataclasses.asdict(row) for row in table.rows],
                "breach": None if study.breach is None else dataclasses.asdict(study.breach),
                "share": None if study.share is None else write(study.share),
                "tables": None if study.tables is None else dataclasses.asdict(tables_noise(study)),
                "predicted_distance": None if self.prediction is None else dataclasses.asdict(self.prediction),
                "alignment": disclosure(study).document(),
                "stated": describe_knowledge(study.knowledge, study.schema),
                "origins": list(origin_words(study)),
                "epsilon_per_party": dict(table.party_totals),
                "epsilon_per_person": table.total_epsilon,
                "bytes_sent": table.bytes_sent,
                "budget": self.plan,
                "figures": None if self.figures is None else self.figures.document(),
                "models": [dataclasses.asdict(row) for row in self.models],
                "findings": [dataclasses.asdict(finding) for finding in self.findings],
            }
        )


def check(
    study: Study,
    *,
    n: int | None = None,
    today: dt.date | None = None,
    party_limits: Mapping[str, LimitsOf] | None = None,
    violations: Sequence[Finding] = (),
) -> Checked:
    """Check a study.

    Args:
        study: a study that was read.
        n: expected number of common people; None: the study's minimum.
        today: the day (UTC) to judge the expiry by; None: it is not judged.
        party_limits: what parties have published that they permit.
        violations: what of that the study breaks.
    """
    table = study_table(study, n)
    return Checked(
        study=study,
        findings=(*lint(study, n=n, today=today), *violations),
        table=table,
        plan=budget_plan(study, n, party_limits or {}),
        prediction=predict_study(study, table.n),
        figures=four_figures(study),
        models=() if study.tables is None else compare_models(study, table.n),
    )

"""``release.regress``: which way a regression goes, and its result as a value.

Linear regressions go by the published tables of pairs (`moments`). Where the release has sampled networks, records of each of
them (`sets`) serve for what tables cannot tell: logistic regressions, outcomes that some people lack, pairs that are not
published. A release without either has no interval that holds, and the error says what the release needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from verticil.analysis.design import Design, design_of
from verticil.analysis.formula import parse
from verticil.analysis.moments import Coefficients, regress_tables
from verticil.analysis.sets import regress_sets
from verticil.analysis.tables import Measured
from verticil.shared.core.errors import Misuse
from verticil.shared.release.drawing import ReleaseModels

Family = Literal["linear", "logistic"]
Way = Literal["tables", "sets"]
SAMPLED_HINT: Final = 'use a study with method = "posterior", whose releases have several sampled networks'


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regression:
    """A regression's result.

    Attributes:
        design: the columns in numbers, with what was merged.
        coefficients: with intervals, in the order of `Design.labels`.
        way: what they come from: the published ``tables``, or ``sets`` of records.
    """

    design: Design
    coefficients: Coefficients
    way: Way


def regress(models: ReleaseModels, formula: str, *, family: str, level: float) -> Regression:
    """Return a regression of the people that a release is about.

    Args:
        models: of the release.
        formula: see `formula.parse`.
        family: of `Family`.
        level: of each interval.

    Raises:
        Misuse: USAGE, the formula is wrong, or the release has nothing that intervals could follow from.
        GateFailed: TOO_NOISY, the noise does not allow it.
    """
    parsed = parse(formula)
    if family not in get_args(Family):
        raise Misuse("USAGE", f"family: got '{family}', expected one of {', '.join(get_args(Family))}")
    check_level(level)
    if family == "logistic" and parsed.event is None:
        raise Misuse(
            "USAGE",
            "family: a logistic regression needs a category that counts 1",
            hint="write the outcome as \"column == 'category'\"",
        )
    design = design_of(models, parsed)
    if family == "linear" and design.has_outcome.all():
        try:
            design, coefficients = regress_tables(Measured(models), design, level)
            return Regression(design=design, coefficients=coefficients, way="tables")
        except Misuse:
            if not models.sampled:
                raise
    if not models.sampled:
        reason = (
            "a logistic regression needs more than tables of pairs"
            if family == "logistic"
            else f"people without a value of '{parsed.outcome}' cannot be left out of tables of pairs"
        )
        hint = f'{SAMPLED_HINT}; or use family="linear"' if family == "logistic" else SAMPLED_HINT
        raise Misuse("USAGE", f"{reason}, and this release has no sampled networks", hint=hint)
    coefficients = regress_sets(models, design, level, logistic=family == "logistic")
    return Regression(design=design, coefficients=coefficients, way="sets")


def check_level(level: float) -> None:
    """Refuse a level that is no share, USAGE."""
    if not 0 < level < 1:
        raise Misuse("USAGE", f"level: got {level:g}, expected a share above 0 and below 1")

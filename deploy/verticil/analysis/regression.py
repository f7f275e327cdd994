"""``release.regress``: which way a regression goes, and its result as a value.

Linear regressions go by the published tables of pairs (`moments`). Logistic ones need more than pairs; they go by records of
every sampled network (`sets`). A release without what is needed has no interval that holds, and the error says what it needs.
Linear regressions never go by sets: there nominal 95 % intervals hold .88 (`tests/bench/release_regression.py --sets`).
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
    if family == "linear":
        if not design.has_outcome.all():
            raise Misuse(
                "USAGE",
                f"formula: some people have no value of '{parsed.outcome}', and tables of pairs cannot leave them out",
                hint="name a category that counts 1: \"column == 'category' ~ ..\"",
            )
        design, coefficients = regress_tables(Measured(models), design, level)
        return Regression(design=design, coefficients=coefficients, way="tables")
    if not models.sampled:
        raise Misuse(
            "USAGE",
            "a logistic regression needs more than tables of pairs, and this release has no sampled networks",
            hint=f'use family="linear", or {SAMPLED_HINT}',
        )
    return Regression(design=design, coefficients=regress_sets(models, design, level), way="sets")


def check_level(level: float) -> None:
    """Refuse a level that is no share, USAGE."""
    if not 0 < level < 1:
        raise Misuse("USAGE", f"level: got {level:g}, expected a share above 0 and below 1")

"""``release.regress``: a regression from a formula, and its result as a value.

Linear regressions go by the published tables of pairs (`moments`). A logistic regression needs more than pairs, and so do
products of columns. Records of sampled networks could answer, but their nominal 95 % intervals do not hold under noise: .93 of
all and .70 of one coefficient, .86 of linear ones (`tests/bench/release_regression.py --sets 20`). So neither is answered.
"""

from __future__ import annotations

from dataclasses import dataclass

from verticil.analysis.design import Design, design_of
from verticil.analysis.formula import parse
from verticil.analysis.moments import Coefficients, regress_tables
from verticil.analysis.published_shares import Measured
from verticil.shared.core.errors import Misuse
from verticil.shared.release.drawing import ReleaseModels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regression:
    """A regression's result.

    Attributes:
        design: the columns in numbers, with what was merged.
        coefficients: with intervals, in the order of `Design.labels`.
    """

    design: Design
    coefficients: Coefficients


def regress(models: ReleaseModels, formula: str, *, level: float) -> Regression:
    """Return a linear regression of the people that a release is about.

    Args:
        models: of the release.
        formula: see `formula.parse`.
        level: of each interval.

    Raises:
        Misuse: USAGE, the formula is wrong, or the release has nothing that intervals could follow from.
        GateFailed: TOO_NOISY, the noise does not allow it.
    """
    parsed = parse(formula)
    check_level(level)
    design = design_of(models, parsed)
    if not design.has_outcome.all():
        raise Misuse(
            "USAGE",
            f"formula: some people have no value of '{parsed.outcome}', and tables of pairs cannot leave them out",
            hint="name a category that counts 1: \"column == 'category' ~ ..\"",
        )
    design, coefficients = regress_tables(Measured(models), design, level)
    return Regression(design=design, coefficients=coefficients)


def check_level(level: float) -> None:
    """Refuse a level that is no share, USAGE."""
    if not 0 < level < 1:
        raise Misuse("USAGE", f"level: got {level:g}, expected a share above 0 and below 1")

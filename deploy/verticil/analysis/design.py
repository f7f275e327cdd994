"""The numbers that a regression uses: of every category of every column, before any record is looked at.

A bin counts as its declared mean, else its middle; a point as itself; a category as a column of 0 and 1 beside the most frequent
one. A category that the release cannot tell from empty (its share is below `VISIBLE` of its standard errors) has no coefficient
of its own: it counts as the most frequent category, and beside numbers as their mean.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.analysis.formula import Formula, Term
from verticil.shared.core.arrays import Bools, Floats
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.numerics.model.network import Marginal
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.release.drawing import ReleaseModels, evidence_of, variable_of

VISIBLE: Final = 3.0
"""Standard errors of its share by which a category is told from an empty one: as `unstable` in a release."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictor:
    """A column that explains.

    Attributes:
        variable: its position in the schema.
        features: (K, p), the numbers of each category.
        labels: (p,) names of the coefficients.
        mean: of the numbers, whose coefficient is the first; None: the column counts as categories.
    """

    variable: int
    features: Floats
    labels: tuple[str, ...]
    mean: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    """A regression in numbers; its first coefficient is that of the constant.

    Attributes:
        outcome: position of the column that is explained.
        values: (K,) what each of its categories counts.
        has_outcome: (K,) whether a person of this category has an outcome.
        predictors: the columns that explain.
        reference: name of a column of categories -> the category that the others are compared with.
        merged: categories without a coefficient of their own, as ``column[category]``.
    """

    outcome: int
    values: Floats
    has_outcome: Bools
    predictors: tuple[Predictor, ...]
    reference: dict[str, str]
    merged: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of all coefficients."""
        return ("Intercept", *(label for predictor in self.predictors for label in predictor.labels))

    @property
    def starts(self) -> list[int]:
        """Places where the coefficients of each predictor begin, and the number of all."""
        return list(itertools.accumulate((len(predictor.labels) for predictor in self.predictors), initial=1))

    def without(self, place: int) -> tuple[Design, Floats] | None:
        """Merge the category of a coefficient into its column's reference; of numbers into their mean.

        Returns:
            The design, and (p - 1, p), what turns x of this design into x of that one. None: the coefficient is of no category,
            or of the last one of its column.
        """
        starts = self.starts
        owner = int(np.searchsorted(starts, place, side="right")) - 1
        predictor = self.predictors[owner] if place else None
        if predictor is None or len(predictor.labels) == 1 or (predictor.mean is not None and place == starts[owner]):
            return None
        own = place - starts[owner]
        features = np.delete(predictor.features, own, axis=1)
        transform = np.delete(np.eye(starts[-1]), place, axis=0)
        if predictor.mean is not None:
            features[:, 0] += predictor.mean * predictor.features[:, own]
            transform[starts[owner], place] = predictor.mean
        label = predictor.labels[own]
        labels = tuple(each for each in predictor.labels if each != label)
        predictors = list(self.predictors)
        predictors[owner] = dataclasses.replace(predictor, features=features, labels=labels)
        return dataclasses.replace(self, predictors=tuple(predictors), merged=(*self.merged, label)), transform

    @property
    def numeric(self) -> tuple[int, ...]:
        """Positions of the columns that count as numbers of their own scale."""
        explained = (self.outcome,) * bool(np.any((self.values != 0) & (self.values != 1)))
        return (*explained, *(predictor.variable for predictor in self.predictors if predictor.mean is not None))

    @property
    def variables(self) -> tuple[int, ...]:
        """Positions of all columns, the outcome first."""
        return (self.outcome, *(predictor.variable for predictor in self.predictors))


def design_of(models: ReleaseModels, formula: Formula) -> Design:
    """Return the numbers of a formula.

    Raises:
        Misuse: USAGE, a column or category is not in the release, or the outcome has no numbers.
        GateFailed: TOO_NOISY, a column has fewer than two categories that the noise leaves visible.
    """
    schema = models.schema
    marginals = {item.variable: item for item in models.marginals}
    outcome = variable_of(schema, formula.outcome, where="formula")
    position = schema.index(formula.outcome)
    visible = is_visible(marginals[position], outcome)
    if formula.event is not None:
        code = evidence_of(schema, {formula.outcome: formula.event})[position]
        values = (np.arange(outcome.n_states) == code).astype(np.float64)
        has_outcome = np.ones(outcome.n_states, np.bool_)
    else:
        values, has_outcome = numbers_of(outcome), np.arange(outcome.n_states) < outcome.n_valued
        if not has_outcome.any():
            raise Misuse(
                "USAGE",
                f"formula: '{outcome.name}' has categories and no numbers",
                hint="name the category that counts 1: \"column == 'category' ~ ..\"",
            )
        values = np.where(has_outcome, values, _mean(values, has_outcome & visible, marginals[position]))
        has_outcome |= ~visible
    predictors: list[Predictor] = []
    reference: dict[str, str] = {}
    merged: list[str] = []
    for term in formula.terms:
        variable = variable_of(schema, term.column, where="formula")
        marginal = marginals[schema.index(term.column)]
        predictor, base = _predictor(term, variable, marginal)
        predictors.append(predictor)
        if base is not None:
            reference[term.column] = base
        has_number = (np.arange(variable.n_states) < variable.n_valued) & (base is None)
        hidden = np.flatnonzero(~is_visible(marginal, variable) & ~has_number)
        merged += [f"{variable.name}[{variable.labels[code]}]" for code in hidden.tolist()]
    return Design(
        outcome=position,
        values=values,
        has_outcome=has_outcome,
        predictors=tuple(predictors),
        reference=reference,
        merged=tuple(merged),
    )


def is_visible(marginal: Marginal, variable: Variable) -> Bools:
    """Return which categories the release tells from empty ones: (K,).

    Raises:
        GateFailed: TOO_NOISY, fewer than two.
    """
    share, error = np.nan_to_num(marginal.estimate), np.nan_to_num(marginal.standard_error)
    visible: Bools = (share > VISIBLE * error) & (share > 0)
    if visible.sum() < 2:
        raise GateFailed(
            "TOO_NOISY",
            f"column '{variable.name}': the noise leaves fewer than two of its {variable.n_states} categories visible",
            hint="leave the column out, or merge its categories in the study",
        )
    return visible


def numbers_of(variable: Variable) -> Floats:
    """Return what each category of a column counts as a number: (K,), NaN where it is a word.

    >>> numbers_of(Variable(name="age", owner="a", labels=("[0, 10)", "[10, 20)", "?"), bins=(0.0, 10.0, 20.0)))
    array([ 5., 15., nan])
    """
    numbers = np.full(variable.n_states, math.nan)
    if variable.bins is not None:
        edges = np.asarray(variable.bins, dtype=np.float64)
        whole = np.ceil(edges)
        middles = (whole[:-1] + whole[1:] - 1) / 2 if variable.integer else (edges[:-1] + edges[1:]) / 2
        declared = variable.means or variable.representatives
        numbers[: variable.n_bins] = middles if declared is None else declared
    numbers[variable.n_bins : variable.n_valued] = variable.points
    return numbers


def _predictor(term: Term, variable: Variable, marginal: Marginal) -> tuple[Predictor, str | None]:
    """Return a column's features, and its reference where it has categories."""
    visible = is_visible(marginal, variable)
    valued = np.arange(variable.n_states) < variable.n_valued
    if term.as_categories or not valued.any():
        reference = int(np.argmax(np.where(visible, marginal.estimate, -math.inf)))
        codes = [code for code in np.flatnonzero(visible).tolist() if code != reference]
        features, mean, labels = np.eye(variable.n_states)[:, codes], None, []
    else:
        reference, codes = None, np.flatnonzero(visible & ~valued).tolist()
        mean = _mean(numbers_of(variable), valued & visible, marginal)
        numbers = np.where(valued, numbers_of(variable), mean)
        numbers[codes] = 0.0
        features, labels = np.column_stack([numbers, np.eye(variable.n_states)[:, codes]]), [term.column]
    labels += [f"{term.column}[{variable.labels[code]}]" for code in codes]
    predictor = Predictor(variable=marginal.variable, features=features, labels=tuple(labels), mean=mean)
    return predictor, None if reference is None else variable.labels[reference]


def _mean(numbers: Floats, usable: Bools, marginal: Marginal) -> float:
    weights = np.where(usable, marginal.estimate, 0.0)
    return float((weights * np.where(usable, numbers, 0.0)).sum() / weights.sum()) if usable.any() else 0.0

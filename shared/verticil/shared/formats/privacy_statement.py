"""The privacy figures of a study as the documents of a release carry them: each column's, and the total of one person.

All figures come from the quantized matrices that the parties really sampled from. A column whose matrix has a zero that another
row does not have has no bound: its gamma and epsilon are null and `bounded` is false; a total with such a column is null too.

Gamma: A. Evfimievski, J. Gehrke, R. Srikant, "Limiting privacy breaches in privacy preserving data mining", PODS 2003.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from verticil.shared.formats.json_document import Json
from verticil.shared.model import privacy
from verticil.shared.model.transition import SCALE
from verticil.shared.study.document import Study, Unit

__all__ = ["PRIOR", "ColumnStatement", "PrivacyStatement", "privacy_statement"]

PRIOR = 0.15
"""The suspicion that the examples in the documents start from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatement:
    """What one randomized column tells about one person.

    Attributes:
        variables: the column, or the columns that were randomized in one draw.
        owner: the party.
        scheme: how the matrix was declared.
        two_level: both numbers of a two-level scheme in words; None for any other.
        n_states: K.
        k_measure: at least this many true categories are possible behind every released one.
        gamma: worst ratio of the odds after seeing the released value to the odds before; infinite without a bound.
        gamma_exact: the same as a ratio of whole numbers; None without a bound.
        epsilon: ln gamma; infinite without a bound.
        kept_least, kept_most: smallest and largest probability that a value is released as it is.
        condition_number: how much the inverse amplifies noise, at most.
        posterior: what a suspicion of `PRIOR` can become at most.
    """

    variables: tuple[str, ...]
    owner: str
    scheme: str
    two_level: str | None
    n_states: int
    k_measure: int
    gamma: float
    gamma_exact: str | None
    epsilon: float
    kept_least: float
    kept_most: float
    condition_number: float
    posterior: float

    @property
    def bounded(self) -> bool:
        """Whether there is a bound at all."""
        return math.isfinite(self.epsilon)

    @property
    def unchanged(self) -> bool:
        """Whether the values were sent as they are."""
        return self.kept_least == 1.0

    def document(self) -> Json:
        """The figures for a document."""
        return {
            "variables": list(self.variables),
            "owner": self.owner,
            "scheme": self.scheme,
            **({} if self.two_level is None else {"two_level": self.two_level}),
            "n_states": self.n_states,
            "bounded": self.bounded,
            "epsilon": self.epsilon if self.bounded else None,
            "gamma": self.gamma if self.bounded else None,
            "gamma_exact": self.gamma_exact,
            "k_measure": self.k_measure,
            "kept_least": self.kept_least,
            "kept_most": self.kept_most,
            "condition_number": self.condition_number,
            "posterior_of_prior_0.15": self.posterior,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyStatement:
    """All columns and their total.

    Attributes:
        columns: one for each unit of the study.
        epsilon_per_person: the sum over all columns; infinite when one of them has no bound.
        posterior_per_person: what a suspicion of `PRIOR` can become at most when all columns are taken together.
    """

    columns: tuple[ColumnStatement, ...]
    epsilon_per_person: float
    posterior_per_person: float

    @property
    def bounded(self) -> bool:
        """Whether the total has a bound."""
        return math.isfinite(self.epsilon_per_person)

    @property
    def unbounded_variables(self) -> tuple[str, ...]:
        """The variables without a bound."""
        return tuple(name for column in self.columns if not column.bounded for name in column.variables)

    def of_party(self, party: str) -> float:
        """The part of the total that comes from one party's columns."""
        return math.fsum(column.epsilon for column in self.columns if column.owner == party)

    def document(self) -> Json:
        """The figures for a document."""
        return {
            "statement": (
                "epsilon = ln gamma; gamma bounds, for every person, the ratio of anybody's odds about that person's "
                "true value after and before seeing the released one. epsilon_per_person is the sum over all columns "
                "and bounds what they tell together. null means that there is no bound."
            ),
            "epsilon_per_person": self.epsilon_per_person if self.bounded else None,
            "bounded": self.bounded,
            "columns": [column.document() for column in self.columns],
        }


def _column(unit: Unit) -> ColumnStatement:
    measures = privacy.column_privacy(unit, prior=PRIOR)
    exact = privacy.gamma(unit.transition)
    diagonal = [unit.transition.weights[state][state] for state in range(len(unit.transition.weights))]
    return ColumnStatement(
        variables=unit.variables,
        owner=unit.owner,
        scheme=unit.scheme,
        two_level=None if unit.two_level is None else unit.two_level.text,
        n_states=measures.n_states,
        k_measure=measures.k_measure,
        gamma=measures.gamma,
        gamma_exact=None if exact is None else str(exact),
        epsilon=measures.epsilon,
        kept_least=min(diagonal) / SCALE,
        kept_most=max(diagonal) / SCALE,
        condition_number=measures.condition_number,
        posterior=measures.max_posterior,
    )


def privacy_statement(study: Study) -> PrivacyStatement:
    """The figures of a study; of the effective one, for a statement about what was really sent."""
    columns = tuple(_column(unit) for unit in study.units)
    total = privacy.total_epsilon(column.epsilon for column in columns)
    return PrivacyStatement(
        columns=columns, epsilon_per_person=total, posterior_per_person=privacy.max_posterior(PRIOR, epsilon=total)
    )

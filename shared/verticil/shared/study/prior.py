"""Ma & Sivakumar's estimator with a Dirichlet prior: theta_ijk = (alpha_ijk + N^_ijk) / (alpha_ij + N^_ij), N^ from the inverse.

Alpha is one number for every cell (`prior_count`), or a table for a family (`prior_tables`). N^ is unbiased and may be negative:
where alpha does not lift a cell to 0 there is no probability, so a study ends there by name and nothing is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn, Protocol, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.config import Table
from verticil.shared.errors import DataFault
from verticil.shared.estimation.axes import Counts
from verticil.shared.estimation.design import Design
from verticil.shared.estimation.estimators import ESTIMATORS, Estimator, inverse_estimate
from verticil.shared.record import Json
from verticil.shared.study.document import ParameterRule, Study

PRIORS = ("dirichlet",)


class PriorFields(TypedDict):
    """The fields of a `ParameterRule` that say the prior."""

    prior: str | None
    prior_tables: tuple[tuple[str, tuple[tuple[float, ...], ...]], ...]


class Fail(Protocol):
    """Ends the check of a study."""

    def __call__(self, where: str, problem: str, *, hint: str = "") -> NoReturn:
        """Raise the fault that names `where` and the problem."""
        ...


def prior_from(table: Table, names: Sequence[str]) -> PriorFields:
    """The prior of the table ``parameters`` of a study, as a file or its canonical form has it; the variables are `names`."""
    tables: list[tuple[str, tuple[tuple[float, ...], ...]]] = []
    if table.has("prior_tables"):
        given = table.table("prior_tables")
        given.only(*names)
        for name in names:
            if given.has(name):
                rows = given.rows(name)
                if not all(
                    isinstance(cell, int | float) and not isinstance(cell, bool) for row in rows for cell in row
                ):
                    given.fail(name, "expected lists of numbers")
                tables.append((name, tuple(tuple(float(cast("float", cell)) for cell in row) for row in rows)))
    prior = table.choice("prior", PRIORS) if table.has("prior") else None
    return {"prior": prior, "prior_tables": tuple(tables)}


def prior_to_json(rule: ParameterRule) -> dict[str, Json]:
    """What `prior_from` reads; nothing for a study without."""
    if rule.prior is None:
        return {}
    tables: dict[str, Json] = {name: [list(row) for row in rows] for name, rows in rule.prior_tables}
    return {"prior": rule.prior, **({"prior_tables": tables} if tables else {})}


def check_prior(study: Study, fail: Fail) -> None:
    """Check a study's prior: where it may stand, and the shape and range of its tables."""
    rule, schema = study.parameters, study.schema
    if rule.prior is None:
        if rule.prior_tables:
            fail("parameters.prior_tables", "without a prior", hint="set parameters.prior = 'dirichlet'")
        if rule.estimator == "inverse":
            fail(
                "parameters.estimator",
                "got 'inverse', whose counts can be negative: no records can be drawn from such a model; "
                "expected em, clip or simplex",
                hint="keep em, whose release has the inverse's estimates beside; or add prior = 'dirichlet', with which the "
                "study ends where an estimated count is negative still",
            )
        return
    if rule.estimator != "inverse":
        fail("parameters.prior", f"with the estimator '{rule.estimator}', expected inverse", hint="leave the key out")
    if rule.prior_count is None:
        fail(
            "parameters.prior_count",
            "missing with a prior",
            hint="give its parameter alpha, for example prior_count = 1.0",
        )
    parents = None if study.structure.parents is None else dict(study.structure.parents)
    for name, rows in rule.prior_tables:
        where = f"parameters.prior_tables.{name}"
        child = schema.variables[schema.names.index(name)]
        configurations = 1
        if parents is not None:
            configurations = math.prod(schema.variables[schema.names.index(p)].n_states for p in parents[name])
        if len(rows) not in (1, configurations) or any(len(row) != child.n_states for row in rows):
            expected = f"1 or {configurations}" if parents is not None else "1 (the structure is not given)"
            fail(where, f"{len(rows)} rows, expected {expected}, each of {child.n_states} numbers")
        if not all(0 < cell <= 1e6 for row in rows for cell in row):
            fail(where, "expected numbers above 0, at most 1e6")


def estimator_of(rule: ParameterRule, child: str) -> Estimator:
    """The way from released counts to true ones that a study has for the family of a variable."""
    if rule.prior is None:
        return ESTIMATORS[rule.estimator].estimate
    alpha = _alpha(rule, child)

    def posterior_mean(observed: Counts, design: Design, *, prior_count: float = 0.0) -> NDArray[np.float64]:
        """The prior is the study's, whatever `prior_count`."""
        if isinstance(alpha, float):
            return inverse_estimate(observed, design, prior_count=alpha)
        counts = inverse_estimate(observed, design)
        lifted: NDArray[np.float64] = counts.reshape(-1, counts.shape[-1]) + alpha
        lifted *= float(counts.sum()) / float(lifted.sum())
        return lifted.reshape(counts.shape)

    return posterior_mean


def prior_mass(rule: ParameterRule, child: str, shape: tuple[int, ...]) -> float:
    """Pseudo-counts of all cells of a family together; its table is (parent configurations, categories)."""
    return float(np.broadcast_to(_alpha(rule, child), shape).sum())


def negative_counts(study: Study, child: str) -> DataFault:
    """Why a family of a study with the estimator ``inverse`` has no probabilities."""
    return DataFault(
        "LEARNING_FAILED",
        f"study '{study.id}': variable '{child}': an estimated count is negative with its prior, and the estimator 'inverse' "
        "leaves it so: no record can be drawn",
        hint="parameters.estimator 'em' gives probabilities from any counts; or allow fewer parents or a larger prior",
    )


def _alpha(rule: ParameterRule, child: str) -> float | NDArray[np.float64]:
    rows = dict(rule.prior_tables).get(child)
    assert rule.prior_count is not None  # `check_prior`; of a study without a prior, whoever asks knows it
    return rule.prior_count if rows is None else np.array(rows)

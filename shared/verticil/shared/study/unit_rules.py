"""What holds for the units of every resolved study: which variables they hold, their domains, matrices and schemes.

A unit's scheme is what the person who approves reads, so the matrix must be one of that scheme. The breach rule of a study is
checked here too, because it looks at every unit that is sent.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Final

from verticil.shared.channels.privacy import EPSILON_TOLERANCE, epsilon, gamma
from verticil.shared.channels.subset import LARGEST_EPSILON, LEAST_STATES, Subset
from verticil.shared.channels.transition import validate_matrix
from verticil.shared.study.document import Study, Unit
from verticil.shared.study.protocols import protocol_of, sent_units
from verticil.shared.study.schemes import SCHEMES
from verticil.shared.study.vocabulary import (
    MAX_CELLS,
    MAX_COMBINATIONS,
    MAX_TEXT,
    fail,
)

_LISTED: Final = 5
"""Columns named in one message."""


def check_units(study: Study, *, source: str) -> None:
    """Check that the units hold every variable once, each with a domain, a matrix and a scheme that fit.

    Args:
        study: the study; its variables are checked already.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID, STUDY_UNSUPPORTED, MATRIX_INVALID or MATRIX_SINGULAR.
    """
    schema = study.schema
    held = Counter(name for unit in study.units for name in unit.variables)
    if held != Counter(schema.names) or not all(unit.variables for unit in study.units):
        fail(f"{source}: randomization", "the units do not hold every variable once")
    first = [min(map(schema.index, unit.variables)) for unit in study.units]
    if first != sorted(first):
        fail(f"{source}: randomization", "the units are not in the order of their first variables")
    if (cells := sum(unit.transition.n_states**2 for unit in study.units)) > MAX_CELLS:
        fail(f"{source}: randomization", f"the matrices have {cells} cells, expected at most {MAX_CELLS} in all")
    for index, unit in enumerate(study.units):
        where = f"{source}: {unit.text}"
        _check_owner(study, unit, where)
        _check_domain(study, index, where)
        _check_scheme(study, unit, where)


def check_breach(study: Study, *, source: str) -> None:
    """Check every unit that is sent against the study's breach rule; without one, nothing.

    The structure must be one that `structure_rules` accepts: between peers it decides what is sent.

    Raises:
        Misuse: STUDY_INVALID.
    """
    rule = study.breach
    if rule is None:
        return
    found: list[str] = []
    for unit in (study.units[index] for index in sent_units(study)):
        ratio = gamma(unit.transition)
        if rule.possible(ratio):
            level = "infinite" if ratio is None else f"{float(ratio):.6g}"
            found.append(f"{unit.text} has gamma {level}")
    if found:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        fail(
            f"{source}: breach",
            f"{', '.join(found[:_LISTED])}{more}; expected gamma below {rule.gamma_limit:.6g}, "
            f"so that no belief of {rule.prior:g} becomes {rule.posterior:g}",
            hint=f"randomize more strongly (epsilon below {math.log(rule.gamma_limit):.4g}), or change the rule",
        )


def _check_owner(study: Study, unit: Unit, where: str) -> None:
    for name in unit.variables:
        owner = study.schema[study.schema.index(name)].owner
        if unit.owner != owner:
            fail(where, f"'{name}' is randomized by '{unit.owner[:MAX_TEXT]}', expected its party '{owner}'")


def _check_domain(study: Study, index: int, where: str) -> None:
    unit = study.units[index]
    states = [study.schema[study.schema.index(name)].n_states for name in unit.variables]
    if (combinations := math.prod(states)) > MAX_COMBINATIONS:
        fail(where, f"{combinations} combinations of categories, expected at most {MAX_COMBINATIONS}")
    for combination in unit.impossible:
        if len(combination) != len(states) or not all(0 <= c < k for c, k in zip(combination, states, strict=True)):
            fail(where, "an impossible combination is not one code for each of the variables")
    if any(not low < high for low, high in itertools.pairwise(unit.impossible)):
        fail(where, "the impossible combinations are not ascending")
    if unit.impossible and not unit.is_compound:
        fail(where, "an impossible combination goes with several variables, expected none for a single one")
    if unit.impossible and combinations - len(unit.impossible) < 2:
        fail(
            where,
            f"{len(unit.impossible)} of {combinations} combinations are impossible, expected at least 2 that are possible",
        )
    n_states, expected = unit.transition.n_states, combinations - len(unit.impossible)
    if n_states != expected:
        fail(where, f"the matrix is {n_states} x {n_states}, expected {expected} x {expected}")


def _check_scheme(study: Study, unit: Unit, where: str) -> None:
    if unit.scheme not in SCHEMES:
        fail(where, f"got the scheme '{unit.scheme[:MAX_TEXT]}', expected one of {', '.join(SCHEMES)}")
    if (unit.scheme == "two-level") != (unit.two_level is not None):
        fail(where, f"'two_level' goes with the scheme 'two-level' and with no other, got '{unit.scheme}'")
    if (unit.scheme == "subset") != isinstance(unit.transition, Subset):
        fail(where, f"subset selection goes with the scheme 'subset' and with no other, got '{unit.scheme}'")
    if isinstance(unit.transition, Subset):
        protocol_of(study).check_unit(unit, where=where)
        _check_subset(unit.transition, where)
    elif not SCHEMES[unit.scheme].is_one(unit, unit.transition, where):
        fail(where, f"the matrix is not one of the scheme '{unit.scheme}'")
    validate_matrix(unit.transition.probabilities, where=where)


def _check_subset(selection: Subset, where: str) -> None:
    level = epsilon(selection)
    if selection.n_states < LEAST_STATES or level > LARGEST_EPSILON + EPSILON_TOLERANCE:
        fail(
            where,
            f"'subset' with {selection.n_states} categories and epsilon {level:.6g}, expected at least {LEAST_STATES} "
            f"and at most {LARGEST_EPSILON:g}",
            hint="use 'symmetric'",
        )

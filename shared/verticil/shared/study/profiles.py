"""Bins that a study leaves to be measured (``bins = "private"``): their grid, and the bins that noisy counts give a variable."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.discrete_gaussian import variance
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.mechanisms.transition import SCALE, Transition, identity, quantize
from verticil.shared.numerics.estimation.profiles import Grid, Profile, grid_of, profile_of
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study
from verticil.shared.study.tables import set_sigmas
from verticil.shared.study.typed_variables import even_bins, next_written, value_labels, value_step, written_format
from verticil.shared.study.vocabulary import fail

_FEW_OUTSIDE: Final = 0.01
"""Of the people: fewer beyond the bounds of a variable change little."""


def grid_of_variable(variable: Variable) -> Grid:
    """Return the public grid of a variable with bounds; the edges of its equal widths are among those of the cells."""
    assert variable.bounds is not None
    step, codes = value_step(variable), variable.kind in {"integer", "number"}
    even = even_bins(variable.bounds, step, variable.kind, variable.format)
    grid = grid_of(variable.bounds, step=step, codes=codes, points=variable.points, also=even)
    return grid if variable.format is None else _written_grid(variable, grid)


def _written_grid(variable: Variable, grid: Grid) -> Grid:
    """Return a grid whose edges are each the next minute, day or month that the column's format can write.

    A value in this format stays on its side of the edge. A cell without such a moment is none.
    """
    ends = set(variable.bounds or ())

    def written(edges: Floats) -> Floats:
        return np.unique(
            [
                edge if edge in ends else next_written(edge, variable.kind, written_format(variable))
                for edge in edges.tolist()
            ]
        )

    return dataclasses.replace(grid, edges=written(grid.edges), fine=written(grid.fine))


def profile_of_variable(variable: Variable, deviation: float) -> Profile:
    """Return what the noisy counts of a variable say.

    Args:
        variable: with its profile.
        deviation: standard deviation of the noise on each count, people.

    Raises:
        ValueError: so many counts are not those of its grid.
    """
    return profile_of(grid_of_variable(variable), variable.profile, deviation)


def measured_profiles(study: Study) -> dict[int, Profile]:
    """Return the profile of each variable of a study whose bins were measured and are not hidden by noise, by position."""
    measured = {place: each for place, each in enumerate(study.schema.variables) if each.profile}
    deviation = deviation_of_counts(study) if measured else None
    if deviation is None:
        return {}
    found = {place: profile_of_variable(each, deviation) for place, each in measured.items()}
    return {place: profile for place, profile in found.items() if profile.bins}


def deviation_of_counts(study: Study) -> float | None:
    """Return the standard deviation of the noise on a count of profiles, people; None: none are measured."""
    sigma = None if study.tables is None else set_sigmas(study).profiles
    return None if sigma is None else math.sqrt(variance(sigma))


def share_outside(variable: Variable, profile: Profile, deviation: float) -> float:
    """Return the noisy share of the people beyond a variable's bounds; 0: so few that the noise alone could be them.

    Args:
        variable: with its profile.
        profile: that its noisy counts give.
        deviation: standard deviation of the noise on each count, people.
    """
    people = max(sum(variable.profile[: grid_of_variable(variable).size]), 1)
    outside = profile.below + profile.above
    return outside if outside > max(_FEW_OUTSIDE, 4 * deviation / people) else 0.0


def variable_with(variable: Variable, profile: Profile) -> Variable:
    """Return a variable with the bins and points that its profile says.

    Where the noise hides where its people are, it has bins of equal width between its bounds, or of as many cells of its grid
    where these are wider for larger numbers.
    """
    words = variable.labels[variable.n_valued :]
    bins = profile.bins
    if not bins or len(bins) + len(profile.points) + len(words) < 3:
        assert variable.bounds is not None
        grid = grid_of_variable(variable)
        even = even_bins(variable.bounds, value_step(variable), variable.kind, variable.format)
        bins = even if grid.is_even else grid.even_bins
    bins = _with_values(bins, profile.points, value_step(variable))
    found = dataclasses.replace(variable, bins=bins, points=profile.points, labels=("a", "b"))
    return dataclasses.replace(found, labels=(*value_labels(found), *words))


def _with_values(bins: Sequence[float], points: Sequence[float], step: float) -> tuple[float, ...]:
    """Return bins that each hold a value besides points: one that holds none is part of the next, the last of the one before.

    >>> _with_values((0.0, 1.0, 2.0, 9.0, 10.0), (0.0, 9.0), 1.0)
    (0.0, 2.0, 10.0)
    """
    edges = [bins[0]]
    for edge in bins[1:]:
        if round((edge - edges[-1]) / step) > sum(edges[-1] <= point < edge for point in points):
            edges.append(edge)
    if edges[-1] != bins[-1]:
        edges = [*(edges[:-1] or edges), bins[-1]]
    return tuple(edges)


def with_profiles(study: Study, profiles: Mapping[str, Sequence[int]]) -> Study:
    """Return a study with the bins that noisy counts give some of its columns, and with matrices of as many categories.

    A matrix of the scheme ``symmetric`` has the gamma that it had, or a little less.

    Args:
        study: that leaves the bins of these columns to be measured, and asks for noise on tables.
        profiles: noisy counts, by variable.

    Raises:
        ValueError: a column has no bounds, or so many counts are not those of its grid.
    """
    if not profiles:
        return study
    deviation = deviation_of_counts(study)
    changed: dict[str, Variable] = {}
    for name, counts in profiles.items():
        variable = study.schema[study.schema.index(name)]
        if variable.bounds is None or deviation is None:
            raise ValueError(f"variable '{name}' leaves no bins to be measured")
        measured = dataclasses.replace(variable, profile=tuple(counts))
        changed[name] = variable_with(measured, profile_of_variable(measured, deviation))
    variables = tuple(changed.get(variable.name, variable) for variable in study.schema.variables)
    units = tuple(
        dataclasses.replace(unit, transition=_resized(unit.transition, changed[unit.variables[0]].n_states))
        if unit.variables[0] in changed
        else unit
        for unit in study.units
    )
    return dataclasses.replace(study, schema=dataclasses.replace(study.schema, variables=variables), units=units)


def profiles_of(study: Study) -> dict[str, tuple[int, ...]]:
    """Return the noisy counts of each column whose bins were measured."""
    return {variable.name: variable.profile for variable in study.schema.variables if variable.profile}


def _resized(transition: Transition | Subset, n_states: int) -> Transition:
    """Return the matrix that keeps a value, or draws each other one alike, for another number of categories."""
    gamma = None if transition.is_identity else privacy.gamma(transition)
    if gamma is None:
        return quantize(identity(n_states))
    # rounded towards other values, so that gamma is not larger
    other = -(-SCALE * gamma.denominator // (gamma.numerator + (n_states - 1) * gamma.denominator))
    same = SCALE - (n_states - 1) * other
    rows = [[same if to == row else other for to in range(n_states)] for row in range(n_states)]
    return Transition(weights=tuple(map(tuple, rows)))


def check_profiles(study: Study, *, source: str) -> None:
    """Check measured bins against the noisy counts that they follow from.

    Args:
        study: the study; the noise on its tables is checked already.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID.
    """
    measured = [variable for variable in study.schema.variables if variable.profile]
    deviation = deviation_of_counts(study) if measured else None
    for variable in measured:
        where = f"{source}: variable '{variable.name}'"
        try:
            profile = None if deviation is None else profile_of_variable(variable, deviation)
        except ValueError as error:
            fail(f"{where}: profile", str(error))
        if profile is None or variable_with(variable, profile) != variable:
            fail(where, "its bins are not those that its noisy counts give")

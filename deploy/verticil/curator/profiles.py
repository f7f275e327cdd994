"""Bins that are measured: the table is read cell by cell of a public grid, counted with noise, and put into the bins that follow.

A study states the bounds of a number and no bins (``bins = "private"``). What is published says the bins, the noisy counts that
they follow from, and that they were measured. Where the noise hides a column, it has the equal widths that stood for its bins.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np

from verticil.curator.measuring import noise_key
from verticil.curator.reading import Table
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.arrays import Codes, Floats, Ints
from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.profiles import Grid, Profile, parts_of, profile_of
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study import rules
from verticil.shared.study.document import Study
from verticil.shared.study.profiles import grid_of_variable, variable_with
from verticil.shared.study.tables import profiled, set_sigmas

_FAR = 1e15  # farther than any edge may be


def grid_study(study: Study) -> Study:
    """Return a study whose measured columns have the cells of their grids as categories: to read the table by."""
    grids = {place: _grid_variable(study.schema[place]) for place in profiled(study)}
    return dataclasses.replace(study, schema=_schema_with(study, grids))


def measure_profiles(
    study: Study, table: Table, release: ColumnDraw, secret: SiteSecret
) -> tuple[Study, Table, tuple[str, ...]]:
    """Count the profiles, add noise, and put the table into the bins that follow; the ledger has been charged for it.

    Args:
        study: the owner's study.
        table: the people, by `grid_study`.
        release: the measurement of them.
        secret: of the owner.

    Returns:
        The study and the table with their bins, and what the owner should know.
    """
    places = profiled(study)
    if not places:
        return study, table, ()
    sigma = set_sigmas(study).profiles
    assert sigma is not None  # of each set that has tables
    deviation = math.sqrt(discrete_gaussian.variance(sigma))
    key, codes, found = noise_key(release, secret), list(table.codes), dict[int, Variable]()
    remarks: list[str] = []
    for place in places:
        variable, grid = study.schema[place], grid_of_variable(study.schema[place])
        label, cells = place.to_bytes(4, "big"), table.codes[place]
        first = _first_histogram(grid, cells)
        counts = first + discrete_gaussian.draw(key, b"profile" + label, first.shape, sigma)
        if len(grid.fine) > len(grid.edges):
            second = _second_histogram(grid, cells, parts_of(grid, counts.tolist()))
            counts = np.append(counts, second + discrete_gaussian.draw(key, b"parts" + label, second.shape, sigma))
        profile = profile_of(grid, counts.tolist(), deviation)
        found[place] = variable_with(dataclasses.replace(variable, profile=tuple(counts.tolist())), profile)
        codes[place] = _coarser(cells, grid, found[place])
        remarks += _remarks(found[place], profile, deviation / max(int(counts[: grid.size].sum()), 1))
    final = _with(study, found)
    rules.check(final, source="the owner's study with its measured bins")
    return final, dataclasses.replace(table, codes=tuple(codes)), tuple(remarks)


def with_bins_of(document: Study, study: Study) -> Study:
    """Return a study document whose bins are those that were measured for another study of the same columns, as if declared."""
    own = {variable.name: variable for variable in study.schema.variables if variable.profile}
    variables = tuple(
        dataclasses.replace(own[variable.name], owner=variable.owner, bounds=None, profile=())
        if variable.name in own
        else variable
        for variable in document.schema.variables
    )
    return dataclasses.replace(document, schema=dataclasses.replace(document.schema, variables=variables))


def _first_histogram(grid: Grid, codes: Codes) -> Ints:
    """Return the exact counts between edges, below and above them, and of the candidates."""
    n_fine = len(grid.fine) + 1  # with those below and above
    counts = np.bincount(codes, minlength=n_fine + len(grid.candidates))[: n_fine + len(grid.candidates)]
    between = np.add.reduceat(counts[1 : n_fine - 1], np.searchsorted(grid.fine, grid.edges[:-1]))
    return np.concatenate([between, counts[[0, n_fine - 1]], counts[n_fine:]]).astype(np.int64)


def _second_histogram(grid: Grid, codes: Codes, edges: Floats) -> Ints:
    """Return the exact counts of the parts that cells are divided into."""
    counts = np.bincount(codes, minlength=len(grid.fine) + 1)[1 : len(grid.fine)]
    return np.add.reduceat(counts, np.searchsorted(grid.fine, edges[:-1])).astype(np.int64)


def _grid_variable(variable: Variable) -> Variable:
    """Return the variable with the finest cells of its grid as bins, one more on each side, and its candidates as points."""
    grid = grid_of_variable(variable)
    words, n_cells = variable.labels[variable.n_valued :], len(grid.fine) + 1 + len(grid.candidates)
    return dataclasses.replace(
        variable,
        bins=(-_FAR, *grid.fine.tolist(), _FAR),
        points=grid.candidates,
        bounds=None,
        labels=(*(f"cell {number}" for number in range(n_cells)), *words),
    )


def _coarser(codes: Codes, grid: Grid, found: Variable) -> Codes:
    """Return codes of a grid's cells as codes of the bins and points that were found."""
    bins = np.asarray(found.bins, np.float64)
    lower = np.append(grid.fine[0], grid.fine)  # of each cell; of the one below, its upper edge
    to = list(np.clip(np.searchsorted(bins, lower, side="right") - 1, 0, found.n_bins - 1))
    for point in grid.candidates:
        is_point = point in found.points
        place = np.clip(np.searchsorted(bins, point, side="right") - 1, 0, found.n_bins - 1)
        to.append(found.n_bins + found.points.index(point) if is_point else place)
    to += range(found.n_valued, found.n_states)
    return np.asarray(to)[codes].astype(found.code_dtype)


def _remarks(variable: Variable, profile: Profile, noise: float) -> Iterator[str]:
    """Yield what a profile lost: all of it to the noise, or people outside the bounds.

    Args:
        variable: with its bins.
        profile: that they follow from.
        noise: standard deviation of the noise on a count, of all people.
    """
    if not profile.bins:
        yield (
            f"'{variable.name}': the noise hides its profile, so it has {variable.n_bins} bins of equal width between its "
            "bounds: allow a larger epsilon, or declare bins"
        )
    outside = profile.below + profile.above
    if outside > max(0.01, 4 * noise):
        yield (
            f"'{variable.name}': about {100 * outside:.2g} % of the people have values outside its bounds (counted with noise), "
            "which go into the outer bins: widen the bounds"
        )


def _schema_with(study: Study, variables: Mapping[int, Variable]) -> Schema:
    own = [variables.get(place, variable) for place, variable in enumerate(study.schema.variables)]
    return dataclasses.replace(study.schema, variables=tuple(own))


def _with(study: Study, variables: Mapping[int, Variable]) -> Study:
    """Return a study with other variables in some places, which are released as they are."""
    changed = {variable.name: variable for variable in variables.values()}
    units = tuple(
        dataclasses.replace(unit, transition=quantize(identity(changed[unit.variables[0]].n_states)))
        if unit.variables[0] in changed
        else unit
        for unit in study.units
    )
    return dataclasses.replace(study, schema=_schema_with(study, variables), units=units)

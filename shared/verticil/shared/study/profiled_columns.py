"""The columns whose bins a study leaves to be measured (``bins = "private"``).

They are read by cells of a public grid, counted with noise, and put into the bins that follow. Who holds a column measures it: an
owner alone with the rest of its tables, a party when it approves. A party's profiles are of all people of its tables, before
anybody is linked, and leave with the approval. Their noise follows from the site's secret, the study and the data, so the same
approval again has the same counts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Codes, Floats, Ints
from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.numerics.estimation.profiles import Grid, parts_of
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study
from verticil.shared.study.profiles import grid_of_variable, with_profiles
from verticil.shared.study.tables import profiled, set_sigmas

_PURPOSE: Final = b"verticil/party/profile/v1"
_FAR = 1e15  # farther than any edge may be


def grid_study(study: Study, places: Collection[int]) -> Study:
    """Return a study whose measured columns have the cells of their grids as categories: to read a table by.

    Args:
        study: whose units do not matter.
        places: positions of the columns.
    """
    variables = tuple(
        _grid_variable(variable) if place in places else variable
        for place, variable in enumerate(study.schema.variables)
    )
    return dataclasses.replace(study, schema=dataclasses.replace(study.schema, variables=variables))


def noisy_profile(variable: Variable, codes: Codes, key: bytes, label: bytes, sigma: float) -> tuple[int, ...]:
    """Count a column's histograms, and add noise; the counts are the same for the same arguments.

    Args:
        variable: with bounds.
        codes: of the people, by `grid_study`.
        key: 32 bytes, secret.
        label: names the column.
        sigma: parameter of the noise on each count, people.
    """
    grid = grid_of_variable(variable)
    first = _first_histogram(grid, codes)
    counts = first + discrete_gaussian.draw(key, b"profile" + label, first.shape, sigma)
    if len(grid.fine) > len(grid.edges):
        second = _second_histogram(grid, codes, parts_of(grid, counts.tolist()))
        counts = np.append(counts, second + discrete_gaussian.draw(key, b"parts" + label, second.shape, sigma))
    return tuple(counts.tolist())


def in_bins(codes: Mapping[str, Codes], study: Study, places: Collection[int]) -> dict[str, Codes]:
    """Return the codes of columns in the bins that their profiles gave.

    Args:
        codes: variable -> (n,), by `grid_study`.
        study: with these bins.
        places: positions of the columns that were measured.
    """
    measured = {study.schema[place].name: study.schema[place] for place in places}
    return {name: _coarser(own, measured[name]) if name in measured else own for name, own in codes.items()}


def own_profiled(study: Study, party: str) -> tuple[int, ...]:
    """Return the positions of this party's columns whose bins are measured."""
    return tuple(place for place in profiled(study) if study.schema[place].owner == party)


def study_to_read(study: Study, party: str) -> Study:
    """Return the study that this party's tables are read by: measured columns have the cells of their grids."""
    places = own_profiled(study, party)
    return grid_study(study, places) if places else study


def measure(
    study: Study,
    party: str,
    codes: Mapping[str, Codes],
    fingerprints: Mapping[int, bytes],
    *,
    proposal_digest: bytes,
    site_secret: bytes,
) -> tuple[Mapping[str, Codes], dict[str, tuple[int, ...]]]:
    """Return the people's codes in measured bins, and the noisy counts that the bins follow from.

    Args:
        study: the proposal.
        party: this one.
        codes: variable -> (n,), by `study_to_read`.
        fingerprints: of each unit's data.
        proposal_digest: of the study.
        site_secret: of this site.
    """
    places = own_profiled(study, party)
    if not places:
        return codes, {}
    sigma = set_sigmas(study).profiles
    assert sigma is not None  # of each set that has tables
    profiles: dict[str, tuple[int, ...]] = {}
    for place in places:
        variable = study.schema[place]
        said = json.dumps([variable.name, variable.bounds, variable.points, sigma], sort_keys=True).encode()
        data = fingerprints[study.unit_of(variable.name)]
        key = derived_key(site_secret, _PURPOSE, proposal_digest, data, said)
        profiles[variable.name] = noisy_profile(variable, codes[variable.name], key, b"", sigma)
    return in_bins(codes, with_profiles(study, profiles), places), profiles


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


def _coarser(codes: Codes, variable: Variable) -> Codes:
    """Return codes of a grid's cells as codes of the bins and points that were found."""
    grid, bins = grid_of_variable(variable), np.asarray(variable.bins, np.float64)
    lower = np.append(grid.fine[0], grid.fine)  # of each cell; of the one below, its upper edge
    to = list(np.clip(np.searchsorted(bins, lower, side="right") - 1, 0, variable.n_bins - 1))
    for point in grid.candidates:
        is_point = point in variable.points
        place = np.clip(np.searchsorted(bins, point, side="right") - 1, 0, variable.n_bins - 1)
        to.append(variable.n_bins + variable.points.index(point) if is_point else place)
    to += range(variable.n_valued, variable.n_states)
    return np.asarray(to)[codes].astype(variable.code_dtype)

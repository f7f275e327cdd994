"""Bins that an owner measures (`verticil.shared.study.profiled_columns`), and what it should know of them.

A study states the bounds of a number and no bins (``bins = "private"``). What is published says the bins, the noisy counts that
they follow from, and that they were measured. Where the noise hides a column, its bins follow from its bounds alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from verticil.curator.measuring import noise_key
from verticil.curator.reading import Table
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.storage.secret import SiteSecret
from verticil.shared.numerics.estimation.profiles import Profile
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study import rules
from verticil.shared.study.document import Study
from verticil.shared.study.profiled_columns import in_bins, noisy_profile
from verticil.shared.study.profiles import deviation_of_counts, profile_of_variable, share_outside, with_profiles
from verticil.shared.study.tables import profiled, set_sigmas


def measure_profiles(
    study: Study, table: Table, column_draw: ColumnDraw, secret: SiteSecret
) -> tuple[Study, Table, tuple[str, ...]]:
    """Count the profiles, add noise, and put the table into the bins that follow; the ledger has been charged for it.

    Args:
        study: the owner's study.
        table: the people, by `verticil.shared.study.profiled_columns.grid_study`.
        column_draw: the measurement of them.
        secret: of the owner.

    Returns:
        The study and the table with their bins, and what the owner should know.
    """
    places = profiled(study)
    if not places:
        return study, table, ()
    sigma = set_sigmas(study).profiles
    assert sigma is not None  # of each set that has tables
    key, deviation = noise_key(column_draw, secret), deviation_of_counts(study)
    assert deviation is not None
    counts = {
        study.schema[place].name: noisy_profile(
            study.schema[place], table.codes[place], key, place.to_bytes(4, "big"), sigma
        )
        for place in places
    }
    final = with_profiles(study, counts)
    rules.check(final, source="the owner's study with its measured bins")
    codes = in_bins(dict(zip(study.schema.names, table.codes, strict=True)), final, places)
    remarks = list[str]()
    for place in places:
        variable = final.schema[place]
        remarks += _remarks(variable, profile_of_variable(variable, deviation), deviation)
    return final, dataclasses.replace(table, codes=tuple(codes.values())), tuple(remarks)


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


def _remarks(variable: Variable, profile: Profile, deviation: float) -> Iterator[str]:
    """Yield what a profile lost: all of it to the noise, or people outside the bounds.

    Args:
        variable: with its bins.
        profile: that they follow from.
        deviation: standard deviation of the noise on a count.
    """
    if not profile.bins:
        yield (
            f"'{variable.name}': the noise hides its profile, so its {variable.n_bins} bins follow from its bounds alone: allow "
            "a larger epsilon, or declare bins"
        )
    if outside := share_outside(variable, profile, deviation):
        yield (
            f"'{variable.name}': about {100 * outside:.2g} % of the people have values outside its bounds (counted with noise), "
            "which go into the outer bins: widen the bounds"
        )

"""This party's columns whose bins a study leaves to be measured: their noisy profiles, and the people in the bins that follow.

The profiles are of all people of the party's tables, before anybody is linked, and leave with the approval. Their noise follows
from the site's secret, the study and the data, so the same approval again has the same counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from verticil.party.dataset.profiles import grid_study, in_bins, noisy_profile
from verticil.shared.core.arrays import Codes
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.study.document import Study
from verticil.shared.study.profiles import with_profiles
from verticil.shared.study.tables import profiled, set_sigmas

_PURPOSE: Final = b"verticil/party/profile/v1"


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

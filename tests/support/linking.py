"""What ids are called while parties link, as a party's list has it: ascending, and of which id each is."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.blinding import seed_macs
from verticil.party.dataset.macs import Macs, PackedIds
from verticil.party.dataset.perturb import record_tags
from verticil.party.dataset.pseudonyms import pseudonym_macs
from verticil.shared.storage.sorting import ascending

Listed = tuple[NDArray[np.uint8], NDArray[np.intp]]


def pseudonyms(key: bytes, context: bytes, ids: Iterable[str]) -> Listed:
    """(n, 16) pseudonyms, and the place of each one's id."""
    return _listed(pseudonym_macs(key, context), ids)


def seeds(linkage_key: bytes, proposal_digest: bytes, ids: Iterable[str]) -> Listed:
    """(n, 32) seeds, and the place of each one's id."""
    return _listed(seed_macs(linkage_key, proposal_digest), ids)


def _listed(macs: Macs, ids: Iterable[str]) -> Listed:
    values = macs.of(PackedIds.of(list(ids)))
    order = ascending(values, macs.size)
    return values[order], order


def records_of(tags: NDArray[np.uint8], tag_key: bytes, ids: Iterable[str]) -> list[int]:
    """Where each of these people is among a party's records, by their tags."""
    places = {tag.tobytes(): place for place, tag in enumerate(tags)}
    return [places[tag.tobytes()] for tag in record_tags(tag_key, ids)]

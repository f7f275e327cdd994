"""The people of one table or of several, with their columns: what a party's tables have of a study, before linkage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.gathered_records import MEMORY_ROWS, IdSpool, in_both
from verticil.party.dataset.local_person_keys import PeopleOfTable
from verticil.shared.core.arrays import Codes, taken, typed
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.unlinked_files import KeptRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class People:
    """A party's people in one study, by ascending link. Secret.

    Attributes:
        tags, keys, tables, codes, fingerprints, source_fingerprints, n_rows: see `local_dataset.LocalDataset`.
        links: (n, any), uint8, ascending: what `Macs` made of ids, or the number of each one's row in the (first) table.
        ids: what the (first) table has in its id column, where links are numbers.
    """

    tags: NDArray[np.uint8] = field(repr=False)
    links: NDArray[np.uint8] = field(repr=False)
    keys: NDArray[np.uint8] = field(repr=False)
    tables: Mapping[str, PeopleOfTable] = field(repr=False)
    codes: Mapping[str, Codes] = field(repr=False)
    fingerprints: Mapping[int, bytes] = field(repr=False)
    source_fingerprints: Mapping[int, bytes] = field(repr=False)
    n_rows: int
    ids: IdSpool | None = field(repr=False, default=None)

    def with_related(
        self,
        codes: Mapping[str, Codes],
        units: Mapping[int, str],
        *,
        fingerprints: Mapping[str, bytes],
        source_fingerprints: Mapping[str, bytes],
    ) -> People:
        """Return the people with the columns of slots.

        Args:
            codes, fingerprints, source_fingerprints: of these columns, by name.
            units: the column of each unit.
        """
        return replace(
            self,
            codes={**self.codes, **codes},
            fingerprints={**self.fingerprints, **{index: fingerprints[name] for index, name in units.items()}},
            source_fingerprints={
                **self.source_fingerprints,
                **{index: source_fingerprints[name] for index, name in units.items()},
            },
        )

    def names(self) -> Iterator[str]:
        """Yield the people's ids, in the order of the table, where links are numbers of rows."""
        if self.ids is None:
            return iter(())
        return self.ids.at(self.links.view(">u8").reshape(-1))


def join_people(one: People, other: People, folder: Path) -> People:
    """Return the people in both data sets, with the columns of both; raises as `disk_faults`."""
    with disk_faults(folder):
        n, places = in_both(one.tags, other.tags, folder, memory_rows=MEMORY_ROWS)
        ours = {
            "tags": one.tags,
            "links": one.links,
            "keys": one.keys,
            **{f"codes of {name}": codes for name, codes in one.codes.items()},
        }
        theirs = {f"codes of {name}": codes for name, codes in other.codes.items()}
        widths = {name: array.itemsize * math.prod(array.shape[1:]) for name, array in {**ours, **theirs}.items()}
        rows = KeptRows(folder if n > MEMORY_ROWS else None, n, widths)
        n_done = 0
        for here, there in places:
            for name, array in ours.items():
                rows.write(name, n_done, taken(array, here))
            for name, array in theirs.items():
                rows.write(name, n_done, taken(array, there))
            n_done += len(here)
        arrays = rows.arrays()
    codes = {
        name: typed(arrays[f"codes of {name}"].reshape(-1), column.itemsize)
        for name, column in {**one.codes, **other.codes}.items()
    }
    return People(
        tags=arrays["tags"],
        links=arrays["links"],
        keys=arrays["keys"],
        tables={**one.tables, **other.tables},
        codes=codes,
        fingerprints={**one.fingerprints, **other.fingerprints},
        source_fingerprints={**one.source_fingerprints, **other.source_fingerprints},
        n_rows=min(one.n_rows, other.n_rows),
        ids=one.ids,
    )

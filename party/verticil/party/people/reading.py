"""Reading tables for who is in them, and for nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from verticil.party.dataset.local_person_keys import PeopleOfTable, PersonMacs, TableKeys
from verticil.party.dataset.source import read_batches
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.party.people.sketches import Sketches
from verticil.shared.storage.database import disk_faults


def read_everybody(rule: DatasetRule, *, site_secret: bytes, folder: Path) -> PeopleOfTable:
    """Read the ids of a table.

    Args:
        rule: where it is.
        site_secret: of this site.
        folder: for what does not fit into memory.

    Raises:
        DataFault, Misuse: as `read_batches`; DISK_FULL, in the folder.
    """
    macs, keys = PersonMacs(site_secret), TableKeys(folder)
    for batch in read_batches(rule, ()):
        pairs, are_people = macs.of(batch.ids)
        with disk_faults(folder):
            keys.take(pairs[are_people])
    with disk_faults(folder):
        return keys.finish()


def sketch(sketches: Sketches, rules: Mapping[str, DatasetRule], *, site_secret: bytes, folder: Path) -> None:
    """Read tables, and store who is in them; raises as `read_everybody` and `Sketches.take`."""
    for name, rule in rules.items():
        sketches.take({name: read_everybody(rule, site_secret=site_secret, folder=folder)})

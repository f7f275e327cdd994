"""Sketching the people of a table of a million ids, and comparing it with another data set's sketch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from figure import Figure, cpu_seconds

from verticil.party.dataset.local_person_keys import PeopleOfTable, PersonMacs, TableKeys
from verticil.party.people.sketches import Sketches
from verticil.party.storage.database import Database

N_PEOPLE = 1_000_000
_AT_ONCE = 1 << 16


def ids(first: int) -> list[list[str]]:
    """So many ids of ten digits, in batches as a table is read."""
    texts = [f"{number * 7919 % 10**10:010d}" for number in range(first, first + N_PEOPLE)]
    return [texts[start : start + _AT_ONCE] for start in range(0, N_PEOPLE, _AT_ONCE)]


def people(folder: Path, batches: list[list[str]]) -> PeopleOfTable:
    """Compute the keys of a table's people."""
    macs, keys = PersonMacs(bytes(32)), TableKeys(folder)
    for batch in batches:
        keys.take(macs.of(batch)[0])
    return keys.finish()


def figures() -> Iterator[Figure]:
    """Storing a sketch, and comparing it with one of which half of the people are others, beside computing the keys."""
    with tempfile.TemporaryDirectory() as made:
        folder, texts = Path(made), ids(0)
        with Database(folder, create=True) as database:
            sketches = Sketches(database, folder)
            computing = cpu_seconds(lambda: people(folder, texts), repeats=2)
            sketches.take({"other": people(folder, ids(N_PEOPLE // 2))}, for_study=True)
            table = people(folder, texts)

            def take() -> None:
                sketches.take({"one": table}, for_study=True)
                database.write("DELETE FROM people_sketch WHERE dataset = 'one'")

            storing = cpu_seconds(take, repeats=2)
    yield Figure(
        name="people: a sketch of a million ids, stored and compared with another",
        ours=storing,
        reference=computing,
        ratio=computing / storing,
        target=">= 1 times",
        met=storing <= computing,
        note="computing the keys of the ids, which every reading of a table does anyway",
    )
    yield Figure(
        name="people: a million ids, from texts to the comparison",
        ours=computing + storing,
        target="<= 0.5 CPU s",
        met=computing + storing <= 0.5,
    )

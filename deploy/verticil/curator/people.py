"""Whose table it is: the owner's costs are added up over people, whatever their table is called and whichever study reads it.

The people of each measured table are sketched in the owner's state (`verticil.party.people`): their ids where the table has
them, else its whole rows as texts, of all columns of the file. A table with more than a third of the smaller one's people in
common with one that was measured before counts in the same account, by itself: an owner alone has nobody to ask. Of tables
without ids, rows that are alike count as the same person, so tables with few columns may be taken for the same people; the
sum is then too large, never too small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from verticil.curator.reading import Table, read_table
from verticil.curator.spending import dataset_of
from verticil.curator.state import CuratorState
from verticil.party.dataset.local_person_keys import KEY_BYTES, PeopleOfTable, PersonMacs
from verticil.party.dataset.sources.open_source import header, read_parts
from verticil.party.limits.same_people import SamePeople
from verticil.party.people.reading import read_everybody
from verticil.party.people.sketch import LIMIT, number_keys
from verticil.party.policy.ledger import Ledger
from verticil.party.storage.database import FILE_NAME as DATABASE
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.arrays import key_numbers
from verticil.shared.study.document import Study
from verticil.shared.study.related_tables import people_study
from verticil.tables.reading import guess_reading
from verticil.tables.settings import drafted_id, settings_of


def people_of(path: Path, *, id_column: str | None, secret: SiteSecret, folder: Path, sheet: str = "") -> PeopleOfTable:
    """Read who is in a table: its ids, or its whole rows.

    Args:
        path: CSV or Parquet, by its ending.
        id_column: column that names the person; None: there is none.
        secret: of the owner.
        folder: for what does not fit into memory.
        sheet: of a workbook; empty: the first one with rows.

    Raises:
        DataFault: the table cannot be read.
    """
    rule = replace(guess_reading(path, sheet=sheet).rule, id=id_column or "")
    if id_column is not None:
        return read_everybody(rule, site_secret=secret.value, folder=folder)
    macs, names = PersonMacs(secret.value), tuple(dict.fromkeys(header(rule)))
    keys = [np.empty(0, dtype=np.uint64)]
    for part in read_parts(rule, names):
        if part.n_rows:
            rows = zip(*(part.columns[name].texts() for name in names), strict=True)
            pairs, _ = macs.of([json.dumps(row) for row in rows])
            keys.append(key_numbers(pairs[:, :KEY_BYTES]))
    rows_of_table = number_keys(np.concatenate(keys))
    return PeopleOfTable(exact=rows_of_table, loose=rows_of_table)


def of_same_people(state: CuratorState, name: str, *others: str) -> tuple[CuratorState, str]:
    """Find the account of a table's people, whose sketch was taken.

    Args:
        state: of the owner.
        name: of the data set.
        others: names of which it is known otherwise that they are the same people.

    Returns:
        The state with one account for all of them; and the name that noise is drawn by: the data set's own where something was
        charged to it, else that of the first one of its people.
    """
    charged_names = state.ledger.people.list_charged()
    measured_names = charged_names | state.sketches.for_studies()
    same_people, new = {name}, {name, *others}
    while new:
        same_people |= new
        new = {
            other
            for one in new
            for other, share in state.sketches.of(one).items()
            if share > LIMIT and other in measured_names and other not in same_people
        }
    order = dict.fromkeys(row.dataset for row in state.ledger.rows())
    first = next((dataset for dataset in order if dataset in same_people), name)
    same = SamePeople(joined=dict.fromkeys(same_people - {first}, first))
    return replace(state, ledger=Ledger(state.database, same)), name if name in charged_names else first


def remarks_on(state: CuratorState, name: str, place: Path, folder: Path) -> Iterator[str]:
    """Yield what the owner should know of the account: other names of the same people, and other states beside the table.

    Args:
        state: as `of_same_people` returns it.
        name: of the data set.
        place: the table.
        folder: of the state.
    """
    charged_names = state.ledger.people.list_charged()
    others = [other for other in state.ledger.people.names(name) if other != name and other in charged_names]
    if others:
        name_list = ", ".join(f"'{other}'" for other in others)
        yield f"data set '{name}' is about the people of {name_list}: the costs of all of them are added up"
    for other in other_states(place, folder):
        yield (
            f"another state lies beside the table: {other}. What was charged there is not in the sum of {folder}; give --state"
            f" {other} to go on with it"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whose:
    """A table that was read, and the account of its people. Secret.

    Attributes:
        state: of the owner, with one account for all names of these people.
        dataset: the name that was given.
        name: by which noise is drawn; see `of_same_people`.
        table: its codes.
        everybody: who is in it.
        remarks: what the owner should know of the account.
    """

    state: CuratorState
    dataset: str
    name: str
    table: Table
    everybody: PeopleOfTable = field(repr=False)
    remarks: tuple[str, ...]

    def remember(self) -> None:
        """Keep these people known when they leave the table: something was charged for them."""
        self.state.sketches.take({self.dataset: self.everybody}, for_study=True)


def read_whose(
    state: CuratorState,
    path: Path,
    study: Study,
    *,
    dataset: str,
    id_column: str | None,
    place: Path,
    related: Mapping[str, Path] | None = None,
) -> Whose:
    """Read a table and find the account of its people.

    Args:
        state: of the owner.
        path: the table as a file.
        study: the owner's study.
        dataset: the name that was given to the data set.
        id_column: column that names the person; None: that of the study's draft, else each row is a person.
        place: where the table lies, of a frame where its file would.
        related: the file of each related table of the study.

    Raises:
        DataFault: as `read_table`; DISK_FULL, STATE_CORRUPT.
    """
    folder = state.database.path.parent
    settings = settings_of(people_study(study), study.parties[0])
    if id_column is None:
        id_column = drafted_id(guess_reading(path, sheet=settings.sheet).rule, settings) or None
    everybody = people_of(path, id_column=id_column, secret=state.secret, folder=folder, sheet=settings.sheet)
    state.sketches.take({dataset: everybody})
    state, name = of_same_people(state, dataset)
    table = read_table(path, study, dataset=name, id_column=id_column, secret=state.secret, related=related)
    if (other := dataset_of(state, name, table.fingerprint)) not in state.ledger.people.names(name):
        state, name = of_same_people(state, dataset, other)
    remarks = tuple(remarks_on(state, dataset, place, folder.parent))
    return Whose(state=state, dataset=dataset, name=name, table=table, everybody=everybody, remarks=remarks)


def other_states(place: Path, folder: Path) -> list[Path]:
    """Return the owners' states beside a table that are others than `folder`."""
    try:
        beside = [path.parent.parent for path in place.absolute().parent.glob(f"*/state/{DATABASE}")]
    except OSError:
        return []
    return sorted(path for path in beside if (path / "pki").is_dir() and path.resolve() != folder.resolve())

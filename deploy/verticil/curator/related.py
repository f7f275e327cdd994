"""Related tables of an owner: which file is which, and their rows in slots, as columns of people like any other."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from verticil.party.dataset import perturb
from verticil.party.dataset import undeclared_values as substitutes
from verticil.party.dataset.related_rows import PeopleOfRows, counts_of, fill_undeclared_codes, read_rows
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.study.document import Study
from verticil.shared.study.related_tables import rows_study
from verticil.tables.reading import check_is_file
from verticil.tables.settings import rule_for

if TYPE_CHECKING:
    import pandas as pd


_PURPOSE: Final = b"verticil/curator/kept-rows/v1"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlotColumns:
    """The columns of all slots of an owner's related tables. Secret.

    Attributes:
        codes: by name of the column, (n,) for each person.
        codebooks: SHA-256 of what decides them.
        sources: the local column that each comes from, with its table and slot.
        remarks: what the owner may want to mend; counts, no values.
    """

    codes: dict[str, Codes] = field(repr=False)
    codebooks: dict[str, bytes]
    sources: dict[str, str]
    remarks: tuple[str, ...]


def _require_names(tables: object) -> None:
    if not isinstance(tables, Mapping):
        name = type(tables).__name__
        problem = f"tables: got a {name}, expected a mapping from names of related tables to files or frames"
        raise Misuse("USAGE", problem, hint="write {'name': table}")


@contextlib.contextmanager
def files_of(tables: Mapping[str, Path | str | pd.DataFrame], study: Study) -> Generator[dict[str, Path]]:
    """Yield the file of each related table of a study; frames are written to files for the time being.

    Raises:
        Misuse: USAGE, the tables have no names, one is missing, or is none of the study.
        DataFault: DATA_FILE_MISSING.
    """
    from verticil.curator.reading import as_file

    _require_names(tables)
    names = [table.name for table in study.related]
    for name in tables:
        if name not in names:
            raise Misuse(
                "USAGE",
                f"--table {name}: the study '{study.id}' has no [[table]] of this name"
                + (f", expected {', '.join(names)}" if names else ""),
                hint=near_hint(name, names) or "name a related table of the study",
            )
    if missing := [name for name in names if name not in tables]:
        raise Misuse(
            "USAGE",
            f"study '{study.id}': no file for the related table '{missing[0]}'",
            hint=f"give it: --table {missing[0]}={missing[0]}.csv, in Python tables={{'{missing[0]}': ..}}",
        )
    with contextlib.ExitStack() as stack:
        paths = {name: stack.enter_context(as_file(table, f"table '{name}'")) for name, table in tables.items()}
        for path in paths.values():
            check_is_file(path)
        yield paths


def read_slots(
    study: Study,
    files: Mapping[str, Path],
    people: PeopleOfRows,
    *,
    dataset: str,
    id_column: str,
    secret: SiteSecret,
) -> SlotColumns:
    """Read the related tables of an owner's study into slots.

    Args:
        study: the owner's study.
        files: of its related tables, by name.
        people: of the table of people.
        dataset: its name.
        id_column: names the person in every table.
        secret: of the owner.

    Raises:
        DataFault: DATA_ID_MISSING, no column names the person; and as `read_records`.
    """
    found = SlotColumns(codes={}, codebooks={}, sources={}, remarks=())
    remarks: list[str] = []
    for table in study.related:
        path = files[table.name]
        if not id_column:
            raise DataFault(
                "DATA_ID_MISSING",
                f"{path.name}: nothing says which column names the person whose rows these are",
                hint="name it with --id; the table of people has it, too",
            )
        place = f"{table.party}.{table.name}"
        rule, guesses = rule_for(rows_study(study, table), table.party, path, id_column, guesses=False, place=place)
        key = derived_key(secret.value, _PURPOSE, f"{dataset} {table.name}".encode())
        laid = read_rows(rule, table, study.schema, people, key=key)
        remarks += (*guesses, *(remark.message for remark in counts_of(table, laid)))
        for number in range(1, table.max_rows + 1):
            for name, column in zip(table.slot(number), table.columns, strict=True):
                own = rule.column(column)
                found.sources[name] = f"{table.name}[{number}].{own.source}"
                variable = study.schema[study.schema.index(name)]
                found.codebooks[name] = perturb.codebook_digest(variable, own.recode, own.written)
        found.sources[table.count] = table.count
        found.codebooks[table.count] = perturb.codebook_digest(study.schema[study.schema.index(table.count)], {})

        def key_of(name: str) -> bytes:
            return substitutes.substitute_key(
                secret.value,
                dataset=dataset,
                source_columns=[found.sources[name]],
                codebook_digest=found.codebooks[name],
            )

        found.codes.update(fill_undeclared_codes(table, study.schema, laid, people.tags, key_of))
    return dataclasses.replace(found, remarks=tuple(remarks))

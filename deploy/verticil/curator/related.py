"""Related tables of an owner: which file is which, and their rows in slots, as columns of people like any other."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.party.dataset import perturb
from verticil.party.dataset import undeclared_values as substitutes
from verticil.party.dataset.related_rows import PeopleOfRows, counts_of, read_rows
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.related.laying import Laid
from verticil.shared.related.tables import RelatedTable, is_structural, row_variables
from verticil.shared.study.document import Study
from verticil.tables.reading import check_is_file
from verticil.tables.settings import rule_for

if TYPE_CHECKING:
    import pandas as pd

    from verticil.party.dataset.sources.source_table import DatasetRule

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


@contextlib.contextmanager
def files_of(tables: Mapping[str, Path | str | pd.DataFrame], study: Study) -> Generator[dict[str, Path]]:
    """Yield the file of each related table of a study; frames are written to files for the time being.

    Raises:
        Misuse: USAGE, a table is missing, or is none of the study.
        DataFault: DATA_FILE_MISSING.
    """
    from verticil.curator.reading import as_file

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
            hint=f"give it: --table {missing[0]}={missing[0]}.csv",
        )
    with contextlib.ExitStack() as stack:
        paths = {name: stack.enter_context(as_file(table)) for name, table in tables.items()}
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
        variables = row_variables(table, study.schema)
        of_rows = dataclasses.replace(study, schema=Schema(variables=variables), related=(), drafted={})
        rule, guesses = rule_for(of_rows, table.party, path, id_column)
        key = derived_key(secret.value, _PURPOSE, f"{dataset} {table.name}".encode())
        laid = read_rows(rule, table, study.schema, people, study.linkage.normalise, key=key)
        remarks += (*guesses, *counts_of(table, laid))
        for name, codes, codebook, source in slot_columns(
            study, table, laid, rule, people=people, dataset=dataset, secret=secret
        ):
            found.codes[name], found.codebooks[name], found.sources[name] = codes, codebook, source
    return dataclasses.replace(found, remarks=tuple(remarks))


def slot_columns(
    study: Study,
    table: RelatedTable,
    laid: Laid,
    rule: DatasetRule,
    *,
    people: PeopleOfRows,
    dataset: str,
    secret: SiteSecret,
) -> Iterator[tuple[str, Codes, bytes, str]]:
    """Yield name, codes, digest of the codebook and source of each column of a table, categories drawn where none is declared."""
    columns = {table.count: table.count} | {
        name: f"{table.name}[{number}].{rule.column(column).source}"
        for number in range(1, table.max_rows + 1)
        for name, column in zip(table.slot(number), table.columns, strict=True)
    }
    of_row = {
        name: column
        for number in range(1, table.max_rows + 1)
        for name, column in zip(table.slot(number), table.columns, strict=True)
    }
    for name, source in columns.items():
        variable, codes = study.schema[study.schema.index(name)], laid.codes[name]
        column = rule.column(of_row.get(name, name))
        codebook = perturb.codebook_digest(variable, column.recode, column.written)
        if name in laid.undeclared:
            key = substitutes.substitute_key(
                secret.value, dataset=dataset, source_columns=[source], codebook_digest=codebook
            )
            n_states = variable.n_states - is_structural(variable)
            codes = np.where(laid.undeclared[name], substitutes.draw(key, people.tags, n_states), codes)
        yield name, codes.astype(variable.code_dtype), codebook, source

"""The tables of a simulation, laid out as one file per party, so that the parties read them as they read any table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from verticil.analyst.draft import check_is_file, column_rules, dataset_rule
from verticil.party.dataset.sources.open_source import header, missing_columns, read_parts
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    import pandas as pd

    from verticil.simulation.provision import Site


Tables: TypeAlias = "Mapping[str, Path | str | pd.DataFrame | DatasetRule] | Path | str | pd.DataFrame"


def lay_out(folder: Path, study: Study, tables: Tables, *, id_column: str) -> list[Site]:
    """Write one file per party.

    Args:
        folder: where tables are written that are not files already.
        study: says whose column is whose.
        tables: as for `simulate`.
        id_column: name of the id column.

    Raises:
        Misuse: USAGE when a party has no table or a table no party.
        DataFault: DATA_FILE_MISSING; the one table cannot be read or lacks a column.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(tables, Mapping):
        for name in tables:
            if name not in study.parties:
                raise Misuse(
                    "USAGE", f"table of '{name}': no such party", hint=f"the parties are {', '.join(study.parties)}"
                )
        if missing := [name for name in study.parties if name not in tables]:
            raise Misuse("USAGE", f"no table for {', '.join(missing)}", hint="give each party a table: PARTY=FILE")
        return [_site(study, name, tables[name], folder, id_column) for name in study.parties]
    whole = _read(tables)
    if id_column not in whole.columns:
        whole = whole.assign(**{id_column: [f"{row:012d}" for row in range(len(whole))]})
    sites: list[Site] = []
    for name in study.parties:
        columns = [study.schema[position].name for position in study.schema.owned_by(name)]
        if absent := [column for column in columns if column not in whole.columns]:
            raise DataFault(
                "DATA_COLUMN_MISSING",
                f"{tables.name if isinstance(tables, Path) else 'table'}: no column {', '.join(map(repr, absent))}; "
                f"the table has {len(whole.columns)} columns",
                hint="is the first row a header with the study's names, and is the delimiter right?",
            )
        sites.append(_site(study, name, whole[[id_column, *columns]], folder, id_column))
    return sites


def _read(table: Path | str | pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    path = Path(table)
    check_is_file(path)
    rule = dataset_rule(path, "")
    names = header(rule)
    if (fault := missing_columns(rule, names, names)) is not None:
        raise fault
    parts = [{name: column.texts() for name, column in part.columns.items()} for part in read_parts(rule, names)]
    return pd.DataFrame({name: [text for part in parts for text in part.get(name, ())] for name in names}, dtype=str)


def _site(
    study: Study, name: str, table: Path | str | pd.DataFrame | DatasetRule, folder: Path, id_column: str
) -> Site:
    # Nothing is refused for its epsilon here: a simulation asks what a study would yield.
    own_names = tuple(study.schema[position].name for position in study.schema.owned_by(name))
    if isinstance(table, DatasetRule):
        rule = table
    elif isinstance(table, str | Path):
        check_is_file(path := Path(table))
        rule = dataset_rule(path, id_column)
    else:
        path = folder / f"{name}.parquet"
        table.to_parquet(path, index=False)
        rule = dataset_rule(path, id_column)
    from verticil.simulation.provision import Site

    rule = dataclasses.replace(rule, columns=column_rules(study, name, rule))
    return Site(name=name, table=rule, allow_infinite=own_names)

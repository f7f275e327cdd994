"""The tables of a simulation, laid out as one file per party, so that the parties read them as they read any table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from verticil.party.dataset.sources.open_source import header, missing_columns, read_parts
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.study.document import Study
from verticil.shared.study.related_tables import people_study, rows_study
from verticil.tables.frames import write_frame
from verticil.tables.reading import guess_reading
from verticil.tables.settings import Settings, settings_of, with_columns

if TYPE_CHECKING:
    import pandas as pd

    from verticil.simulation.provision import Site


Tables: TypeAlias = "Mapping[str, Path | str | pd.DataFrame | DatasetRule] | Path | str | pd.DataFrame"


def lay_out(folder: Path, study: Study, tables: Tables, *, id_column: str | None) -> list[Site]:
    """Write one file per party.

    Args:
        folder: where tables are written that are not files already.
        study: says whose column is whose.
        tables: as for `simulate`.
        id_column: name of the id column; None: that of the study's draft, else ``id``.

    Raises:
        Misuse: USAGE when a party has no table or a table no party.
        DataFault: DATA_FILE_MISSING; the one table cannot be read or lacks a column.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {name: settings_of(study, name) for name in study.parties}
    if id_column is None:
        id_column = next((item.id_column for item in settings.values() if item.id_column), "id")
    if isinstance(tables, Mapping):
        related = {name: table for name, table in tables.items() if name in _related_names(study)}
        tables = {name: table for name, table in tables.items() if name not in related}
        for name in tables:
            if name not in study.parties:
                raise Misuse(
                    "USAGE", f"table of '{name}': no such party", hint=f"the parties are {', '.join(study.parties)}"
                )
        if missing := [name for name in study.parties if name not in tables]:
            raise Misuse("USAGE", f"no table for {', '.join(missing)}", hint="give each party a table: PARTY=FILE")
        if missing := [name for name in _related_names(study) if name not in related]:
            raise Misuse(
                "USAGE",
                f"no table for {', '.join(missing)}, which the study has as related tables",
                hint=f"give each a file: {missing[0]}=FILE",
            )
        own = people_study(study)
        of_people = [_site(own, name, tables[name], folder, id_column) for name in study.parties]
        return [_with_related(study, site, related, folder) for site in of_people]
    if study.related:
        raise Misuse(
            "USAGE",
            f"one table for study '{study.id}', which has related tables, expected one for each party and related table",
            hint="give them by name: PARTY=FILE PARTY.TABLE=FILE",
        )
    whole = _read(tables, sheet=next((item.sheet for item in settings.values() if item.sheet), ""))
    if id_column not in whole.columns:
        whole = whole.assign(**{id_column: [f"{row:012d}" for row in range(len(whole))]})
    sites: list[Site] = []
    for name in study.parties:
        columns = [_column(settings[name], study.schema[place].name) for place in study.schema.owned_by(name)]
        if absent := [column for column in columns if column not in whole.columns]:
            raise DataFault(
                "DATA_COLUMN_MISSING",
                f"{tables.name if isinstance(tables, Path) else 'table'}: no column {', '.join(map(repr, absent))}; "
                f"the table has {len(whole.columns)} columns",
                hint="is the first row a header with the study's names, and is the delimiter right?",
            )
        sites.append(_site(study, name, whole[[id_column, *columns]], folder, id_column))
    return sites


def _related_names(study: Study) -> list[str]:
    """Return what tells a related table: ``PARTY.TABLE``."""
    return [f"{table.party}.{table.name}" for table in study.related]


def _with_related(
    study: Study, site: Site, tables: Mapping[str, Path | str | pd.DataFrame | DatasetRule], folder: Path
) -> Site:
    """Return a site with its related tables."""
    rules: dict[str, DatasetRule] = {}
    for table in (table for table in study.related if table.party == site.name):
        given = tables[f"{table.party}.{table.name}"]
        name = f"{table.party}.{table.name}"
        rules[table.name] = _rule(rows_study(study, table), site.name, given, folder / f"{name}.parquet", site.table.id)
    names = tuple(study.schema[position].name for position in study.schema.owned_by(site.name))
    return dataclasses.replace(site, table=dataclasses.replace(site.table, tables=rules), allow_infinite=names)


def _column(settings: Settings, variable: str) -> str:
    """Return the column of a variable."""
    return settings.columns[variable].source if variable in settings.columns else variable


def _read(table: Path | str | pd.DataFrame, *, sheet: str = "") -> pd.DataFrame:
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    rule = guess_reading(Path(table), sheet=sheet).rule
    names = header(rule)
    if (fault := missing_columns(rule, names, names)) is not None:
        raise fault
    parts = [{name: column.texts() for name, column in part.columns.items()} for part in read_parts(rule, names)]
    return pd.DataFrame({name: [text for part in parts for text in part.get(name, ())] for name in names}, dtype=str)


def _site(
    study: Study, name: str, table: Path | str | pd.DataFrame | DatasetRule, folder: Path, id_column: str
) -> Site:
    from verticil.simulation.provision import Site

    # Nothing is refused for its epsilon here: a simulation asks what a study would yield.
    own_names = tuple(study.schema[position].name for position in study.schema.owned_by(name))
    rule = _rule(study, name, table, folder / f"{name}.parquet", id_column)
    return Site(name=name, table=rule, allow_infinite=own_names)


def _rule(
    study: Study, name: str, table: Path | str | pd.DataFrame | DatasetRule, place: Path, id_column: str
) -> DatasetRule:
    """Return how a party reads a table; a frame is written to `place`."""
    if isinstance(table, DatasetRule):
        rule = table
    elif isinstance(table, str | Path):
        reading = guess_reading(Path(table), sheet=settings_of(study, name).sheet)
        rule = dataclasses.replace(reading.rule, id=id_column)
    else:
        write_frame(table, place, name)
        rule = DatasetRule(path=place, format="parquet", id=id_column)
    return with_columns(study, name, rule)

"""The tables of a simulation, laid out as one file per party, so that the parties read them as they read any table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from verticil.analyst.guess import dataset_rule, numbers_of
from verticil.party.dataset.table import ColumnRule, DatasetRule, header, missing_columns, read_parts
from verticil.shared.errors import DataFault, Misuse
from verticil.shared.study.document import Study
from verticil.simulation.provision import Site

if TYPE_CHECKING:
    import pandas as pd

    from verticil.simulation.in_process import Tables


def lay_out(folder: Path, study: Study, tables: Tables, *, id_column: str) -> list[Site]:
    """One file per party.

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
    _require_file(path)
    rule = dataset_rule(path, "")
    names = header(rule)
    if (fault := missing_columns(rule, names, names)) is not None:
        raise fault
    parts = [{name: column.texts() for name, column in part.columns.items()} for part in read_parts(rule, names)]
    return pd.DataFrame({name: [text for part in parts for text in part.get(name, ())] for name in names}, dtype=str)


def _require_file(path: Path) -> None:
    if not path.is_file():
        problem = "is a folder, expected a file" if path.is_dir() else "no such file"
        raise DataFault("DATA_FILE_MISSING", f"{path}: {problem}", hint="check the path that was given for the table")


def _site(study: Study, name: str, table: Path | str | pd.DataFrame, folder: Path, id_column: str) -> Site:
    # Nothing is refused for its epsilon here: a simulation asks what a study would yield.
    allowed = tuple(study.schema[position].name for position in study.schema.owned_by(name))
    if isinstance(table, str | Path):
        _require_file(path := Path(table))
    else:
        path = folder / f"{name}.parquet"
        table.to_parquet(path, index=False)
    rule = dataset_rule(path, id_column)
    return Site(
        name=name,
        table=path,
        id_column=id_column,
        format=rule.format,
        delimiter=rule.delimiter,
        encoding=rule.encoding,
        columns=_columns(study, name, rule),
        allow_infinite=allowed,
    )


def _columns(study: Study, party: str, rule: DatasetRule) -> dict[str, ColumnRule]:
    """Columns that the table has under the name that a draft gives to a column of two parties, or whose numbers need a way of
    writing. Columns that are not there are for the party to name."""
    names = set(header(rule))
    own = [study.schema[position] for position in study.schema.owned_by(party)]
    sources = {v.name: v.name if v.name in names else v.name.removeprefix(f"{party} ") for v in own}
    numbers = [v.name for v in own if v.bins is not None and sources[v.name] in names]
    texts: dict[str, set[str]] = {sources[name]: set() for name in numbers}
    for part in read_parts(rule, list(texts)) if texts else ():
        for source, column in part.columns.items():
            texts[source].update(column.distinct)
    rules = {
        name: ColumnRule(source=source, written=numbers_of(texts[source])[0] if name in numbers else "plain")
        for name, source in sources.items()
        if source in names
    }
    return {name: rule for name, rule in rules.items() if rule != ColumnRule(source=name)}

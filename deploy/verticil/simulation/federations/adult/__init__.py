"""The shipped Adult federation: its studies, and its tables unpacked to files; `SOURCE.md` says where they come from."""

from __future__ import annotations

import csv
import gzip
import io
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Final

PARTIES: Final = ("census_bureau", "employer", "tax_office")
ID_COLUMN: Final = "id"


_VARIABLES: Final = "#VARIABLES\n"


def study_text(model: str = "central") -> str:
    """Return the demonstration's study.toml for a protocol; one for each is shipped, some with a place for the variables."""
    texts = (path.read_text("utf-8") for path in files(__name__).iterdir() if path.name.endswith(".toml"))
    studies = {tomllib.loads(text)["model"]: text for text in texts}
    central = studies["central"]
    variables = central[central.index("# ---- variables") : central.index("# ---- randomization")]
    return studies[model].replace(_VARIABLES, variables)


def _table(party: str) -> str:
    return gzip.decompress((files(__name__) / f"{party}.csv.gz").read_bytes()).decode("utf-8")


def _ids(text: str) -> list[str]:
    rows = csv.reader(io.StringIO(text))
    position = next(rows).index(ID_COLUMN)
    return [row[position] for row in rows]


def common_ids() -> list[str]:
    """Return the ids that are in all three tables, ascending."""
    return sorted(set.intersection(*(set(_ids(_table(party))) for party in PARTIES)))


def write_tables(folder: Path, *, rows: int | None = None) -> dict[str, Path]:
    """Write each party's table as ``PARTY.csv`` into ``folder/PARTY``.

    Args:
        folder: where; the parties' folders are made.
        rows: keep only so many common people (the first by id, a choice that says nothing about them), and of the others
            the same part; None: everybody.

    Returns:
        The file of each party.
    """
    tables = {party: _table(party) for party in PARTIES}
    selected_ids: set[str] | None = None
    if rows is not None:
        common = common_ids()
        part = min(1.0, rows / len(common))
        others = sorted(set().union(*(_ids(text) for text in tables.values())) - set(common))
        selected_ids = {*common[:rows], *others[: round(part * len(others))]}
    paths: dict[str, Path] = {}
    for party, text in tables.items():
        path = folder / party / f"{party}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.splitlines(keepends=True)
        position = next(csv.reader([lines[0]])).index(ID_COLUMN)
        body = (
            lines[1:]
            if selected_ids is None
            else [line for line in lines[1:] if line.split(",")[position].strip() in selected_ids]
        )
        path.write_text("".join([lines[0], *body]), encoding="utf-8", newline="")
        paths[party] = path
    return paths

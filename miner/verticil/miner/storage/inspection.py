"""The miner's catalogue as `verticil doctor` looks at it: is it whole, of a known version, and not behind? Only reads."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from verticil.miner.storage.catalogue import SCHEMA_VERSION, Catalogue
from verticil.miner.storage.memory import CATALOGUE, check_memory
from verticil.shared.disk import looking_uri, unwritable
from verticil.shared.errors import DataFault


def inspect_catalogue(directory: Path) -> int:
    """Check the catalogue of a state directory.

    Returns:
        The version of its schema; 0: there is none yet, and nothing says that there was one.

    Raises:
        DataFault: STATE_CORRUPT, damaged or of a newer version; STATE_READ_ONLY, it cannot be opened there; CATALOGUE_OLDER.
    """
    path = directory / CATALOGUE
    version = 0
    if path.exists() and path.stat().st_size:
        try:
            with contextlib.closing(sqlite3.connect(looking_uri(path), uri=True, timeout=10)) as opened:
                (version,) = opened.execute("PRAGMA user_version").fetchone()
                (said,) = opened.execute("PRAGMA integrity_check(1)").fetchone()
                tables = {name for (name,) in opened.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        except sqlite3.DatabaseError as error:
            said, tables = type(error).__name__, set()
            if (refused := unwritable(error, path)) is not None:
                raise refused from None
        absent: frozenset[str] = frozenset()
        if version == SCHEMA_VERSION:
            with contextlib.closing(Catalogue(Path(":memory:"))) as empty:
                absent = empty.tables() - tables
        if said != "ok" or absent:
            problem = "is damaged" if said != "ok" else f"has no table {min(absent)}"
            hint = "restore the state directory from a backup"
            raise DataFault("STATE_CORRUPT", f"{path}: {problem}", hint=hint)
        if version > SCHEMA_VERSION:
            problem = f"{path}: catalogue of version {version}, expected at most {SCHEMA_VERSION}"
            raise DataFault("STATE_CORRUPT", problem, hint="start the version of verticil that wrote it")
    check_memory(directory)
    return int(version)

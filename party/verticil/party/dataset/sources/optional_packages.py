"""Packages that only one kind of table needs: there, or named with the extra that brings them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from verticil.party.dataset.sources.server import POSTGRESQL
from verticil.party.dataset.sources.source_table import STATISTICS, WORKBOOKS, DatasetRule
from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_command


@dataclass(frozen=True, slots=True, kw_only=True)
class _Package:
    module: str
    extra: str
    reads: str


_DUCKDB: Final = _Package(module="duckdb", extra="duckdb", reads="a DuckDB file")
_ADBC: Final = _Package(module="adbc_driver_postgresql", extra="postgresql", reads="PostgreSQL")
_CALAMINE: Final = _Package(module="python_calamine", extra="formats", reads="an Excel workbook or a spreadsheet")
_PYREADSTAT: Final = _Package(module="pyreadstat", extra="formats", reads="a file of SPSS, Stata or SAS")
_SQLALCHEMY: Final = _Package(module="sqlalchemy", extra="sqlalchemy", reads="this database")


def require_package(rule: DatasetRule) -> None:
    """Refuse a table whose package is not installed.

    Raises:
        Misuse: CONFIG_INVALID; also as `verticil.party.dataset.sources.server.Server.scheme`.
        DataFault: as that.
    """
    package = _DUCKDB if rule.format == "duckdb" else None
    package = _CALAMINE if rule.format in WORKBOOKS else _PYREADSTAT if rule.format in STATISTICS else package
    if rule.server is not None:
        package = _ADBC if rule.server.scheme() in POSTGRESQL else _SQLALCHEMY
    if package is not None:
        _require(package, f"{rule.name}: {package.reads}")


def require_duckdb(what: str) -> None:
    """Refuse what DuckDB does where it is not installed.

    Raises:
        Misuse: CONFIG_INVALID.
    """
    _require(_DUCKDB, what)


def _require(package: _Package, what: str) -> None:
    if find_spec(package.module) is None:
        problem = f"{what} needs {package.module.replace('_', '-')}, which is not installed"
        raise Misuse("CONFIG_INVALID", problem, hint=install_command(package.extra))

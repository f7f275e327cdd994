"""A party's parameters as a signed document: what each party of Model I sends to all others, and the release keeps as evidence.

A statement holds every number of the party's own families and shares exactly (a double as its shortest decimal, NaN as null),
so that all parties assemble the same network from the same statements. It also says what they rest on: the effective study, the
common list, the structure, and the randomized columns that were read, by their SHA-256.

`parse_statement` trusts nothing: one statement has exactly one form, every shape and range is checked against the study, and
whatever is wrong is one clean error.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib.metadata
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.record import (
    OPTIONAL,
    Count,
    Key,
    Sha256,
    decode,
    describe,
    encode,
    peer_fault,
    read,
    write,
)
from verticil.shared.documents.toml_table import Table
from verticil.shared.numerics.model.network import Family, Marginal
from verticil.shared.release.formats.model_json import numbers
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

MAX_STATEMENT_BYTES: Final = 32 * 2**20
"""About 250,000 parameters."""

_WHOLE: Final = 10**21  # where canonical JSON begins to write an exponent
_SOFTWARE_LETTERS: Final = 500
_FAMILY_TABLES: Final = ("probability", "estimate", "standard_error", "interval_low", "interval_high")
_MARGINAL_TABLES: Final = ("estimate", "standard_error", "interval_low", "interval_high")


# ---- tables of numbers


def _array(
    raw: object, table: Table, name: str, cell: Callable[[object, Table, str], object], kind: type
) -> NDArray[Any]:
    """Return a table as written, or one row of one: equally long lists of cells."""
    if not isinstance(raw, list):
        table.fail(name, "expected rows of cells")
    items = cast("list[object]", raw)
    if not (items and all(isinstance(row, list) for row in items)):
        return np.array([cell(item, table, name) for item in items], dtype=kind)
    rows = [[cell(item, table, name) for item in row] for row in cast("list[list[object]]", items)]
    if len({len(row) for row in rows}) != 1:
        table.fail(name, "expected rows that are equally long")
    return np.array(rows, dtype=kind)


def _number(cell: object, table: Table, name: str) -> float:
    if cell is None:
        return math.nan
    if type(cell) is float and math.isfinite(cell):
        return cell
    if type(cell) is int and abs(cell) < _WHOLE:  # canonical JSON writes whole doubles without a point
        return float(cell)
    return table.fail(name, "expected numbers that a double can hold, or null")


def _flag(cell: object, table: Table, name: str) -> bool:
    return cell if isinstance(cell, bool) else table.fail(name, "expected true or false in every cell")


def _read_flags(raw: object, table: Table, name: str) -> NDArray[np.bool_] | None:
    if raw is None and name == "replaced":
        return None
    flags = _array(raw, table, name, _flag, np.bool_)
    flags.setflags(write=False)
    return flags


_NUMBERS: Final = Key(read=functools.partial(_array, cell=_number, kind=np.float64), write=numbers)
_FLAGS: Final = Key(read=_read_flags, write=lambda flags: None if flags is None else flags.tolist())
describe(Family, **dict.fromkeys(_FAMILY_TABLES, _NUMBERS), unstable=_FLAGS, replaced=_FLAGS, implied=OPTIONAL)
describe(Marginal, **dict.fromkeys((*_MARGINAL_TABLES, "model"), _NUMBERS))


def _read_marginals(_: object, table: Table, name: str) -> tuple[Marginal, ...]:
    return tuple(read(Marginal, item, given={"model": np.empty(0)}) for item in table.tables(name))


def _write_marginals(marginals: tuple[Marginal, ...]) -> Json:
    return [{key: entry for key, entry in write(marginal).items() if key != "model"} for marginal in marginals]


# ---- the statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A randomized column that the party read.

    Attributes:
        unit: index of the unit.
        owner: who sent it.
        artifact_sha256: of the artifact, 32 bytes.
        n_records: in it.
    """

    unit: Count
    owner: str
    artifact_sha256: Annotated[Sha256, Key(name="sha256")]
    n_records: Count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartyStatement:
    """What one party learned.

    Attributes:
        party: who states it.
        effective_digest, common_sha256, structure_sha256: what it rests on, 32 bytes each.
        n_common: number of common people.
        computed_at: UTC, whole seconds.
        software: `software_text` of the party.
        received: the columns that it read, by unit, ascending.
        families: of its own variables, in schema order.
        marginals: of the same variables; their `model` is not stated.
        exact: the numbers are exact functions of raw data; else share noise covers them.
    """

    MARK: ClassVar = {"form": "verticil/parameters/v1"}

    party: str
    effective_digest: Annotated[Sha256, Key(name="effective_sha256")]
    n_common: Count
    common_sha256: Sha256
    structure_sha256: Sha256
    computed_at: dt.datetime
    software: Annotated[str, _SOFTWARE_LETTERS]
    received: tuple[Received, ...]
    families: tuple[Family, ...]
    marginals: Annotated[tuple[Marginal, ...], Key(read=_read_marginals, write=_write_marginals)]
    exact: bool


@functools.cache  # to look up a version reads and parses a file
def software_text() -> str:
    """Versions of what decides the bytes of a release; equal texts give equal releases from equal statements."""
    names = ("verticil", "numpy", "pandas", "pyarrow", "jinja2", "rfc8785")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def statement_body(statement: PartyStatement, study: Study) -> bytes:
    """Return the canonical bytes of a statement: what is signed.

    Args:
        statement: a party's own.
        study: the effective study.

    Raises:
        DataFault: LEARNING_FAILED, the statement is larger than `MAX_STATEMENT_BYTES`.
    """
    body = encode(statement)
    if len(body) > MAX_STATEMENT_BYTES:
        raise DataFault(
            "LEARNING_FAILED",
            f"study '{study.id}': the parameters take {len(body)} bytes, expected at most {MAX_STATEMENT_BYTES}",
            hint="fewer parents or categories: structure.max_family_cells limits a table",
        )
    return body


def parse_statement(body: bytes, study: Study) -> PartyStatement:
    """Read a statement and check everything that can be checked without the others.

    Args:
        body: from anyone; whose signature it carries is not checked here.
        study: the effective study.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    statement = decode(PartyStatement, body, source="statement of parameters", limit=MAX_STATEMENT_BYTES)
    try:
        _check(statement, study)
    except Misuse as error:
        raise peer_fault(error) from None
    return statement


def _fail(where: str, problem: str) -> NoReturn:
    raise Misuse("STUDY_INVALID", f"statement of parameters: {where}: {problem}")


def _check(statement: PartyStatement, study: Study) -> None:
    party = statement.party
    if party not in study.parties:
        _fail("party", f"got '{party}', expected one of {', '.join(study.parties)}")
    if statement.effective_digest != canonical.digest(study):
        _fail("effective_sha256", "of another study")
    least = max(1, study.linkage.minimum_common_records)
    if not least <= statement.n_common <= 2**40:
        _fail("n_common", f"got {statement.n_common}, expected {least} to {2**40}")
    noisy = study.share is not None and study.share.epsilon is not None
    if statement.exact == noisy:
        _fail("exact", f"got {str(statement.exact).lower()}, the study says {str(not noisy).lower()}")
    if not statement.software or not statement.software.isprintable():
        _fail("software", f"expected 1 to {_SOFTWARE_LETTERS} printable characters")
    own_variables = study.schema.owned_by(party)
    for key, positions in (
        ("families", tuple(family.child for family in statement.families)),
        ("marginals", tuple(marginal.variable for marginal in statement.marginals)),
    ):
        if positions != own_variables:
            _fail(
                key, f"expected one for each of the {len(own_variables)} variables of '{party}', in the study's order"
            )
    for number, item in enumerate(statement.received, 1):
        _check_received(item, study, statement, f"received[{number}]")
    units = [item.unit for item in statement.received]
    if units != sorted(set(units)):
        _fail("received", "expected each unit once, ascending")
    for number, family in enumerate(statement.families, 1):
        _check_family(family, study, f"families[{number}]")
    for number, marginal in enumerate(statement.marginals, 1):
        where = f"marginals[{number}]"
        _check_shapes(marginal, _MARGINAL_TABLES, (study.schema[marginal.variable].n_states,), where)
        _check_uncertainty(marginal, where)


def _check_received(item: Received, study: Study, statement: PartyStatement, where: str) -> None:
    if item.unit >= len(study.units):
        _fail(f"{where}.unit", f"got {item.unit}, expected 0 to {len(study.units) - 1}")
    if item.owner != (owner := study.units[item.unit].owner):
        _fail(f"{where}.owner", f"got '{item.owner}', expected '{owner}'")
    if item.owner == statement.party:
        _fail(f"{where}.owner", f"'{statement.party}' received its own column")
    if item.n_records != statement.n_common:
        _fail(f"{where}.n_records", f"got {item.n_records}, expected {statement.n_common}")


def _check_family(family: Family, study: Study, where: str) -> None:
    n_states = study.schema.n_states
    parents = family.parents
    if list(parents) != sorted(set(parents) - {family.child}) or any(not 0 <= p < len(n_states) for p in parents):
        _fail(f"{where}.parents", "expected ascending positions of other variables")
    shape = (math.prod(n_states[p] for p in parents), n_states[family.child])
    _check_shapes(family, (*_FAMILY_TABLES, "unstable"), shape, where)
    _check_uncertainty(family, where)
    if (projection := family.projection) is not None:
        if not 0 <= projection.mass_moved < math.inf:
            _fail(f"{where}.projection.mass_moved", "expected a finite number, not negative")
        if not 0 <= (cells := projection.negative_cells) <= 2**40:
            _fail(f"{where}.projection.negative_cells", f"got {cells}, expected 0 to {2**40}")


def _check_shapes(tables: Family | Marginal, names: tuple[str, ...], shape: tuple[int, ...], where: str) -> None:
    for name in names:
        if cast("Floats", getattr(tables, name)).shape != shape:
            rows = shape[0] if len(shape) == 2 else 1
            _fail(f"{where}.{name}", f"expected {rows} rows of {shape[-1]}")


def _check_uncertainty(tables: Family | Marginal, where: str) -> None:
    low, high = tables.interval_low, tables.interval_high
    if (tables.standard_error < 0).any():
        _fail(f"{where}.standard_error", "a number is negative")
    if not np.array_equal(np.isnan(low), np.isnan(high)) or (low < 0).any() or (high > 1).any() or (low > high).any():
        _fail(f"{where}.interval_low", "expected intervals within 0 to 1, low end first")

"""A party's parameters as a signed document: what each party of Model I sends to all others, and the release keeps as evidence.

A statement holds every number of the party's own families and shares exactly (a double as its shortest decimal, NaN as null),
so that all parties assemble the same network from the same statements. It also says what they rest on: the effective study, the
common list, the structure, and the randomized columns that were read, by their SHA-256.

`parse_statement` trusts nothing: one statement has exactly one form, every shape and range is checked against the study, and
whatever is wrong is one clean error.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.arrays import Floats
from verticil.shared.config import Table
from verticil.shared.errors import DataFault, Misuse
from verticil.shared.model.network import Family, Marginal, Projection
from verticil.shared.record import Json, canonical_json, parse, peer_fault
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

MAX_STATEMENT_BYTES: Final = 32 * 2**20
"""About 250,000 parameters."""

_FORM: Final = "verticil/parameters/v1"
_WHOLE: Final = 10**21  # where canonical JSON begins to write an exponent
_SOFTWARE_LETTERS: Final = 500
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_HEX: Final = frozenset("0123456789abcdef")
_FAMILY_TABLES: Final = ("probability", "estimate", "standard_error", "interval_low", "interval_high")
_MARGINAL_TABLES: Final = ("estimate", "standard_error", "interval_low", "interval_high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A randomized column that the party read.

    Attributes:
        unit: index of the unit.
        owner: who sent it.
        artifact_sha256: of the artifact, 32 bytes.
        n_records: in it.
    """

    unit: int
    owner: str
    artifact_sha256: bytes
    n_records: int


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

    party: str
    effective_digest: bytes
    n_common: int
    common_sha256: bytes
    structure_sha256: bytes
    computed_at: dt.datetime
    software: str
    received: tuple[Received, ...]
    families: tuple[Family, ...]
    marginals: tuple[Marginal, ...]
    exact: bool


def software_text() -> str:
    """Versions of what decides the bytes of a release; equal texts give equal releases from equal statements."""
    names = ("verticil", "numpy", "pandas", "pyarrow", "jinja2", "rfc8785")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def statement_body(statement: PartyStatement, study: Study) -> bytes:
    """The canonical bytes of a statement: what is signed.

    Args:
        statement: a party's own.
        study: the effective study.

    Raises:
        DataFault: LEARNING_FAILED, the statement is larger than `MAX_STATEMENT_BYTES`.
    """
    body = canonical_json(
        {
            "form": _FORM,
            "party": statement.party,
            "effective_sha256": statement.effective_digest.hex(),
            "n_common": statement.n_common,
            "common_sha256": statement.common_sha256.hex(),
            "structure_sha256": statement.structure_sha256.hex(),
            "computed_at": statement.computed_at.strftime(_TIME),
            "software": statement.software,
            "received": [
                {"unit": r.unit, "owner": r.owner, "sha256": r.artifact_sha256.hex(), "n_records": r.n_records}
                for r in statement.received
            ],
            "families": [_family_document(family) for family in statement.families],
            "marginals": [
                {"variable": m.variable, **{name: _numbers(getattr(m, name)) for name in _MARGINAL_TABLES}}
                for m in statement.marginals
            ],
            "exact": statement.exact,
        }
    )
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
    try:
        table = parse(body, source="statement of parameters", limit=MAX_STATEMENT_BYTES)
        statement = _statement(table, study)
        if statement_body(statement, study) != body:
            raise Misuse("STUDY_INVALID", "statement of parameters: not in canonical form")
    except Misuse as error:
        raise peer_fault(error) from None
    return statement


# ---- writing ----------------------------------------------------------------------------------------------------------


def _family_document(family: Family) -> dict[str, Json]:
    projection, replaced = family.projection, family.replaced
    return {
        "child": family.child,
        "parents": list(family.parents),
        **{name: _numbers(getattr(family, name)) for name in _FAMILY_TABLES},
        "unstable": family.unstable.tolist(),
        "replaced": None if replaced is None else replaced.tolist(),
        "projection": None
        if projection is None
        else {"mass_moved": projection.mass_moved, "negative_cells": projection.negative_cells},
    }


def _numbers(array: Floats) -> list[Json]:
    if array.ndim > 1:
        return [_numbers(row) for row in array]
    return [None if math.isnan(value) else value for value in cast("list[float]", array.tolist())]


# ---- reading ----------------------------------------------------------------------------------------------------------


def _statement(table: Table, study: Study) -> PartyStatement:
    table.choice("form", [_FORM])
    party = table.choice("party", study.parties)
    table.choice("effective_sha256", [canonical.digest(study).hex()])
    n_common = _whole(table, "n_common", least=max(1, study.linkage.minimum_common_records), most=2**40)
    owned = study.schema.owned_by(party)
    noisy = study.share is not None and study.share.epsilon is not None
    if (exact := table.value(bool, "exact")) == noisy:
        table.fail("exact", f"got {str(exact).lower()}, the study says {str(not noisy).lower()}")
    software = table.value(str, "software")
    if not 0 < len(software) <= _SOFTWARE_LETTERS or not software.isprintable():
        table.fail("software", f"expected 1 to {_SOFTWARE_LETTERS} printable characters")
    families = table.tables("families")
    marginals = table.tables("marginals")
    for key, items, name in (("families", families, "child"), ("marginals", marginals, "variable")):
        if tuple(item.value(int, name) for item in items) != owned:
            table.fail(key, f"expected one for each of the {len(owned)} variables of '{party}', in the study's order")
    statement = PartyStatement(
        party=party,
        effective_digest=_digest(table, "effective_sha256"),
        n_common=n_common,
        common_sha256=_digest(table, "common_sha256"),
        structure_sha256=_digest(table, "structure_sha256"),
        computed_at=_time(table, "computed_at"),
        software=software,
        received=tuple(_received(item, study, party, n_common) for item in table.tables("received")),
        families=tuple(_family(item, study) for item in families),
        marginals=tuple(_marginal(item, study) for item in marginals),
        exact=exact,
    )
    units = [received.unit for received in statement.received]
    if units != sorted(set(units)):
        table.fail("received", "expected each unit once, ascending")
    table.finish()
    return statement


def _received(table: Table, study: Study, party: str, n_common: int) -> Received:
    unit = _whole(table, "unit", least=0, most=len(study.units) - 1)
    owner = table.choice("owner", [study.units[unit].owner])
    if owner == party:
        table.fail("owner", f"'{party}' received its own column")
    received = Received(
        unit=unit,
        owner=owner,
        artifact_sha256=_digest(table, "sha256"),
        n_records=_whole(table, "n_records", least=n_common, most=n_common),
    )
    table.finish()
    return received


def _family(table: Table, study: Study) -> Family:
    n_states = study.schema.n_states
    child = table.value(int, "child")
    (parents,) = _integers(table, "parents", [table.raw("parents")])
    if list(parents) != sorted(set(parents) - {child}) or any(not 0 <= p < len(n_states) for p in parents):
        table.fail("parents", "expected ascending positions of other variables")
    shape = (math.prod(n_states[p] for p in parents), n_states[child])
    tables = {name: _table(table, name, shape) for name in _FAMILY_TABLES}
    _check_uncertainty(table, tables["standard_error"], tables["interval_low"], tables["interval_high"])
    try:
        family = Family(
            child=child,
            parents=parents,
            **tables,
            unstable=_flags(table, "unstable", shape),
            replaced=None if table.raw("replaced") is None else _flags(table, "replaced", shape),
            projection=None if table.raw("projection") is None else _projection(table.table("projection")),
        )
    except ValueError as error:
        table.fail("probability", str(error))
    table.finish()
    return family


def _projection(table: Table) -> Projection:
    mass = table.value(float, "mass_moved")
    if not 0 <= mass < math.inf:
        table.fail("mass_moved", "expected a finite number, not negative")
    projection = Projection(mass_moved=mass, negative_cells=_whole(table, "negative_cells", least=0, most=2**40))
    table.finish()
    return projection


def _marginal(table: Table, study: Study) -> Marginal:
    variable = table.value(int, "variable")
    n_states = study.schema[variable].n_states
    rows = {name: _table(table, name, (n_states,)) for name in _MARGINAL_TABLES}
    _check_uncertainty(table, rows["standard_error"], rows["interval_low"], rows["interval_high"])
    table.finish()
    return Marginal(variable=variable, model=np.full(n_states, np.nan), **rows)


def _check_uncertainty(table: Table, error: Floats, low: Floats, high: Floats) -> None:
    if (error < 0).any():
        table.fail("standard_error", "a number is negative")
    if not np.array_equal(np.isnan(low), np.isnan(high)) or (low < 0).any() or (high > 1).any() or (low > high).any():
        table.fail("interval_low", "expected intervals within 0 to 1, low end first")


def _table(table: Table, key: str, shape: tuple[int, ...]) -> Floats:
    """A table of numbers of exactly this shape; null is NaN."""
    rows = _grid(table, key, shape)
    cells: list[float] = []
    for row in rows:
        for cell in row:
            if cell is None:
                cells.append(math.nan)
            elif type(cell) is float and math.isfinite(cell):
                cells.append(cell)
            elif type(cell) is int and abs(cell) < _WHOLE:  # canonical JSON writes whole doubles without a point
                cells.append(float(cell))
            else:
                table.fail(key, "expected numbers that a double can hold, or null")
    return np.array(cells, dtype=np.float64).reshape(shape)


def _flags(table: Table, key: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    rows = _grid(table, key, shape)
    if any(type(cell) is not bool for row in rows for cell in row):
        table.fail(key, "expected true or false in every cell")
    flags = np.array(rows, dtype=np.bool_).reshape(shape)
    flags.setflags(write=False)
    return flags


def _grid(table: Table, key: str, shape: tuple[int, ...]) -> Sequence[Sequence[object]]:
    """The rows of a table as written; one row for one axis."""
    raw = table.raw(key)
    rows = [raw] if len(shape) == 1 else raw
    n_rows = shape[0] if len(shape) == 2 else 1
    if not isinstance(rows, list) or len(cast("list[object]", rows)) != n_rows:
        table.fail(key, f"expected {n_rows} rows of {shape[-1]}")
    grid = cast("list[object]", rows)
    if any(not isinstance(row, list) or len(cast("list[object]", row)) != shape[-1] for row in grid):
        table.fail(key, f"expected {n_rows} rows of {shape[-1]}")
    return cast("list[list[object]]", grid)


def _integers(table: Table, key: str, rows: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    result: list[tuple[int, ...]] = []
    for row in rows:
        if not isinstance(row, list) or any(type(cell) is not int for cell in cast("list[object]", row)):
            table.fail(key, "expected a list of whole numbers")
        result.append(tuple(cast("list[int]", row)))
    return tuple(result)


def _whole(table: Table, key: str, *, least: int, most: int) -> int:
    if not least <= (value := table.value(int, key)) <= most:
        table.fail(key, f"got {value}, expected {least}" + (f" to {most}" if most != least else ""))
    return value


def _digest(table: Table, key: str) -> bytes:
    text = table.value(str, key)
    if len(text) != 64 or set(text) - _HEX:
        table.fail(key, "expected 64 lower-case hexadecimal digits")
    return bytes.fromhex(text)


def _time(table: Table, key: str) -> dt.datetime:
    try:
        return dt.datetime.strptime(table.value(str, key), _TIME).replace(tzinfo=dt.UTC)
    except ValueError:
        return _refuse_time(table, key)


def _refuse_time(table: Table, key: str) -> NoReturn:
    table.fail(key, "expected a UTC time such as 2026-11-21T10:00:00Z")

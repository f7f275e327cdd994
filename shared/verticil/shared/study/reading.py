"""Strict reading of a study document, and of the declarations that a party adds to it.

`read_study` turns ``study.toml`` (contract.md section 1) into a resolved `Study`: defaults filled in, labels written out,
matrices quantized. Nothing is guessed: an unknown key at any level is an error that names file, key and the nearest known
key, and what the contract knows but this version does not do is refused by name. Whether the study is wise is for `lint`.
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, cast

from verticil.shared.config import Table, read_toml
from verticil.shared.errors import Refusal
from verticil.shared.model import privacy
from verticil.shared.model.schema import Missing, Schema, Variable
from verticil.shared.study import rules, schemes
from verticil.shared.study.document import (
    GeneticRule,
    LinkageRule,
    ParameterRule,
    ReleaseRule,
    StructureRule,
    Study,
    Unit,
)

__all__ = ["check_not_weaker", "read_declarations", "read_study"]


def read_study(path: Path) -> Study:
    """Read and resolve a study document.

    Args:
        path: the TOML file.

    Returns:
        The proposal, checked.

    Raises:
        Misuse: FILE_MISSING; STUDY_INVALID with file, key, expected and got; STUDY_UNSUPPORTED for what a later version does;
            MATRIX_INVALID or MATRIX_SINGULAR.
    """
    table = read_toml(path, code="STUDY_INVALID")
    table.only(
        "schema", "id", "title", "purpose", "model", "expires", "party", "linkage", "variable",
        "randomization_default", "randomization", "allocate", "breach", "structure", "parameters", "release",
    )  # fmt: skip
    model = table.choice("model", rules.MODELS, "central")
    rules.check_supported(rules.MODELS, model, where=f"{table.source}: model")
    schema = _schema(table)
    study_id = table.value(str, "id")
    study = Study(
        id=study_id,
        title=table.value(str, "title", study_id),
        purpose=table.value(str, "purpose"),
        model=cast("Literal['central', 'peer']", model),
        expires=_expires(table),
        parties=_parties(table),
        linkage=_linkage(table.table("linkage", optional=True)),
        schema=schema,
        units=_units(table, schema),
        structure=_structure(table.table("structure", optional=True)),
        parameters=_parameters(table.table("parameters", optional=True)),
        release=_release(table.table("release", optional=True)),
        breach=rules.breach_from(table, "breach"),
    )
    rules.check(study, source=table.source)
    return study


def read_declarations(tables: Sequence[Table], study: Study, party: str) -> dict[int, Unit]:
    """A party's own declarations for one study: its ``[[randomization]]`` tables of ``party.toml``.

    A party's file serves many studies, so a variable that this study does not have is passed over, unless its name is so
    near to one of the party's own columns that it may be a misspelling: then noise would silently stay weaker than meant.

    Args:
        tables: the tables, unread.
        study: the proposal.
        party: the party that declares.

    Returns:
        Index of unit -> the unit as declared; only of units that are declared.

    Raises:
        Misuse: CONFIG_INVALID (or whatever code the tables have), STUDY_UNSUPPORTED, MATRIX_INVALID, MATRIX_SINGULAR.
        Refusal: DECLARATION_WEAKER, a declared gamma is larger than the study's.
    """
    declared = _assign(tables)
    own = [study.schema[position].name for position in study.schema.owned_by(party)]
    units: dict[int, Unit] = {}
    for name, table in declared.items():
        if name not in study.schema:
            near = difflib.get_close_matches(
                name, [candidate for candidate in own if candidate not in declared], 1, 0.75
            )
            if near:
                table.fail(
                    "variables", f"'{name}' is not a variable of study '{study.id}'", hint=f"did you mean '{near[0]}'?"
                )
            continue
        variable = study.schema[study.schema.index(name)]
        if variable.owner != party:
            table.fail(
                "variables",
                f"'{name}' belongs to '{variable.owner}', expected a column of '{party}'",
                hint="a party declares noise for its own columns only",
            )
        unit = schemes.unit_for(table, variable)
        index = study.unit_of(name)
        check_not_weaker(unit, study.units[index])
        units[index] = unit
    return units


def check_not_weaker(declared: Unit, proposed: Unit) -> None:
    """A declaration must be at least as strong as the study's proposal: gamma not larger.

    Raises:
        Refusal: DECLARATION_WEAKER.
    """
    ours, theirs = privacy.gamma(declared.transition), privacy.gamma(proposed.transition)
    if theirs is not None and (ours is None or ours > theirs):
        got = "infinite" if ours is None else f"{float(ours):.6g}"
        raise Refusal(
            "DECLARATION_WEAKER",
            f"column '{declared.variables[0]}': declared gamma {got}, expected at most the study's {float(theirs):.6g}",
            hint="declare stronger noise, or remove the declaration",
        )


def _expires(table: Table) -> dt.date:
    raw = table.raw("expires")
    if type(raw) is not dt.date:  # a datetime is a date too
        table.fail(
            "expires",
            f"{'missing' if raw is None else 'not a date'}, expected a date such as 2030-12-31, without quotes",
        )
    return raw


def _parties(table: Table) -> tuple[str, ...]:
    names: list[str] = []
    for party in table.tables("party"):
        party.only("name")
        names.append(party.value(str, "name"))
    return tuple(names)


def _linkage(table: Table) -> LinkageRule:
    table.only("mode", "normalise", "minimum_common_records")
    mode = table.choice("mode", rules.LINKAGE_MODES, "keyed-hash")
    rules.check_supported(rules.LINKAGE_MODES, mode, where=f"{table.source}: linkage.mode")
    return LinkageRule(
        mode=mode,
        normalise=table.strings("normalise", ["nfkc", "trim"]),
        minimum_common_records=table.value(int, "minimum_common_records", 1000),
    )


def _schema(table: Table) -> Schema:
    variables = [_variable(item) for item in table.tables("variable")]
    try:
        return Schema(variables=tuple(variables))
    except ValueError as error:
        table.fail("variable", str(error))


def _variable(table: Table) -> Variable:
    table.only("party", "name", "categories", "bins", "integer", "outside", "other", "missing")
    name = table.value(str, "name")
    if table.has("categories") == table.has("bins"):
        table.fail(
            "categories",
            f"'{name}' has {'both' if table.has('bins') else 'neither'}, expected either categories or bins",
        )
    other = table.value(str, "other") if table.has("other") else None
    missing = _missing(table.table("missing")) if table.has("missing") else None
    bins = None
    if table.has("bins"):
        bins = tuple(edge + 0.0 for edge in table.numbers("bins"))  # -0.0 is 0
        appended = [category for category in (other, missing.category if missing else None) if category is not None]
        labels = rules.bin_labels(bins) + tuple(dict.fromkeys(appended))
    else:
        labels = table.strings("categories")
        for key in ("integer", "outside"):
            if table.has(key):
                table.fail(key, f"'{name}' has categories; this key goes with bins")
        for key, category in (("other", other), ("missing.category", missing.category if missing else None)):
            if category is not None and category not in labels:
                table.fail(
                    key, f"'{category}' is not among the categories of '{name}'", hint="declare it in categories"
                )
    return rules.make_variable(
        name=name,
        owner=table.value(str, "party"),
        labels=labels,
        bins=bins,
        integer=table.value(bool, "integer", False),
        outside=cast("Literal['error', 'clamp']", table.choice("outside", ("error", "clamp"), "error")),
        other=other,
        missing=missing,
        where=f"{table.source}: {table.where} '{name}'",
    )


def _missing(table: Table) -> Missing:
    table.only("category", "spellings")
    return Missing(category=table.value(str, "category"), spellings=table.strings("spellings"))


def _units(table: Table, schema: Schema) -> tuple[Unit, ...]:
    assigned = _assign(table.tables("randomization", optional=True))
    for name, item in assigned.items():
        if name not in schema:
            item.fail("variables", f"'{name}' is not a variable of the study", hint=_near(name, schema.names))
    default: Table | None = None
    if table.has("randomization_default"):
        default = table.table("randomization_default")
        schemes.check_keys(default)
    units = {
        variable.name: schemes.unit_for(rule, variable)
        for variable in schema.variables
        if (rule := assigned.get(variable.name, default)) is not None
    }
    left = [variable for variable in schema.variables if variable.name not in units]
    if table.has("allocate"):
        if default is not None:
            table.fail("allocate", "stands beside [randomization_default], expected one of the two")
        if not isinstance(table.raw("allocate"), dict):
            table.fail(
                "allocate",
                "expected a table",
                hint='[allocate] with rule = "equal-contrast" and total_epsilon = NUMBER',
            )
        explicit = tuple(units.values())
        units |= {u.variables[0]: u for u in schemes.allocated_units(table.table("allocate"), left, explicit)}
    elif left:
        table.fail("randomization", f"'{left[0].name}' is in no table, and there is no [randomization_default]")
    return tuple(units[variable.name] for variable in schema.variables)


def _assign(tables: Iterable[Table]) -> dict[str, Table]:
    """Which table randomizes which variable; a variable in two is an error."""
    assigned: dict[str, Table] = {}
    for table in tables:
        schemes.check_keys(table, "variables")
        names = table.strings("variables")
        if not names:
            table.fail("variables", "the list is empty, expected names of variables")
        for name in names:
            if name in assigned:
                table.fail(
                    "variables", f"'{name}' is in {assigned[name].where} already, expected one table for each variable"
                )
            assigned[name] = table
    return assigned


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1, 0.5)
    return f"did you mean '{near[0]}'?" if near else ""


def _structure(table: Table) -> StructureRule:
    table.only("method", "score", "max_parents", "max_family_cells", "seed", "required", "forbidden", "genetic")
    method = table.choice("method", rules.METHODS, "genetic")
    rules.check_supported(rules.METHODS, method, where=f"{table.source}: structure.method")
    genetic = table.table("genetic", optional=True)
    genetic.only("population", "selected", "generations", "mutation_rate")
    usual = GeneticRule()
    return StructureRule(
        method=method,
        score=table.choice("score", rules.SCORES, "mutual-information"),
        max_parents=table.value(int, "max_parents", 2),
        max_family_cells=table.value(int, "max_family_cells", 20_000),
        seed=table.value(int, "seed", 1),
        required=rules.edges_from(table, "required"),
        forbidden=rules.edges_from(table, "forbidden"),
        genetic=GeneticRule(
            population=genetic.value(int, "population", usual.population),
            selected=genetic.value(int, "selected", usual.selected),
            generations=genetic.value(int, "generations", usual.generations),
            mutation_rate=genetic.value(float, "mutation_rate") if genetic.has("mutation_rate") else None,
        ),
    )


def _parameters(table: Table) -> ParameterRule:
    table.only("estimator", "prior_count", "interval_level")
    return ParameterRule(
        estimator=table.choice("estimator", rules.ESTIMATORS, "em"),
        prior_count=table.value(float, "prior_count", 0.5),
        interval_level=table.value(float, "interval_level", 0.95),
    )


def _release(table: Table) -> ReleaseRule:
    table.only("synthetic_records", "seed")
    records = table.raw("synthetic_records")
    if records in (None, "common"):
        records = None
    elif isinstance(records, bool) or not isinstance(records, int):
        table.fail("synthetic_records", 'expected "common" or a whole number')
    return ReleaseRule(synthetic_records=records, seed=table.value(int, "seed", 1))

"""Strict reading of a study document, and of the declarations that a party adds to it.

`read_study` turns ``study.toml`` (contract.md section 1) into a resolved `Study`: defaults filled in, labels written out,
matrices quantized. Nothing is guessed: an unknown key at any level is an error that names file, key and the nearest known
key, and what the contract knows but this version does not do is refused by name. Whether the study is wise is for `lint`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from verticil.shared.core import plugins
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.config import path_in, read_toml, toml_table
from verticil.shared.documents.record import keys, read
from verticil.shared.documents.toml_table import Table, near_hint
from verticil.shared.numerics.knowledge.reading import read_knowledge
from verticil.shared.numerics.knowledge.row_rules import RowTable
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.knowledge.turtle import MAX_BYTES, read_turtle
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.related.tables import RelatedTable
from verticil.shared.study import rules, schemes, vocabulary
from verticil.shared.study.approval import check_not_weaker
from verticil.shared.study.document import (
    CustomRule,
    PosteriorRule,
    QuorumRule,
    ShareRule,
    StructureRule,
    Study,
    schema_of,
)
from verticil.shared.study.privbayes_rule import PrivBayesRule
from verticil.shared.study.protocols import PROTOCOLS, protocol_of
from verticil.shared.study.related_tables import of_all_slots, read_related
from verticil.shared.study.schemes import Domain, compound, compound_of, single
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import TABLE

_EXAMPLES: Final = {"epsilon": "epsilon = 1.0", "delta": "delta = 1e-9"}
_DURATION: Final = re.compile(r"([1-9][0-9]{0,4})(min|h|d)", re.ASCII)
_OWN_KEYS: Final = (
    "title", "model", "expires", "party", "variable", "randomization_default", "randomization", "allocate", "structure", "share",
    "quorum", "simulation", "knowledge", "draft", "table",
)  # fmt: skip
"""Keys of a study's file that stand otherwise in its canonical form, or not at all."""
_OF_CUSTOM: Final = ("target", "sensitive", "hide_from")
_OF_GIVEN: Final = ("method", "parents", "max_parents", "max_family_cells", *_OF_CUSTOM)


def read_study(path: Path, *, by_owner: bool = False) -> Study:
    """Read and resolve a study document.

    Args:
        path: the TOML file.
        by_owner: the owner of a whole table carries it out alone, whatever its model: ``[posterior]``, ``[privbayes]`` and
            ``one_way_part`` are read and not checked, because they apply to the owner's study, where they are checked.

    Returns:
        The proposal, checked.

    Raises:
        Misuse: FILE_MISSING; STUDY_INVALID with file, key, expected and got; STUDY_UNSUPPORTED for what a later version does;
            MATRIX_INVALID or MATRIX_SINGULAR.
    """
    return _study(read_toml(path, code="STUDY_INVALID"), path.parent, by_owner=by_owner)


def read_study_text(text: str, folder: Path, *, by_owner: bool = False, path: Path | None = None) -> Study:
    """`read_study` of a text; what it names is relative to `folder`, and messages name `path` where it was read from one."""
    source, place = ("study.toml", "") if path is None else (path.name, str(path))
    table = toml_table(text, source=source, path=place, code="STUDY_INVALID")
    return _study(table, folder, by_owner=by_owner)


def _study(table: Table, folder: Path, *, by_owner: bool = False) -> Study:
    derived_keys = ("schema", "parties", "units", "related", "left_out", "reviewed", "drafted")
    own = dict.fromkeys(("title", "model", "expires", "structure", "share", "quorum", "knowledge", *derived_keys))
    table.only(*keys(Study, but=own), *_OWN_KEYS)
    simulation_seed_from(table, "simulation")
    model = table.choice("model", PROTOCOLS.names, PROTOCOLS.names[0])
    columns, related = read_related(table)
    declared = schema_of(columns, table, "variable")
    if not declared.variables:
        table.fail("variable", "there is none, expected at least one", hint="declare each column in a [[variable]]")
    knowledge = _knowledge(table, declared, related, folder)
    following = _following(knowledge)
    schema = Schema(variables=tuple(variable for variable in declared.variables if variable.name not in following))
    study = read(
        Study,
        table,
        also=_OWN_KEYS,
        given={
            "title": table.value(str, "title", table.value(str, "id")),
            "model": model,
            "expires": _expires(table),
            "parties": _parties(table),
            "schema": schema,
            "units": _units(table, schema, model, knowledge, related),
            "structure": _structure(table.table("structure", optional=True), schema),
            "share": _share(table, model),
            "quorum": _quorum(table),
            "knowledge": knowledge,
            "related": related,
            "left_out": (),
            "reviewed": _is_reviewed(table, declared),
            "drafted": _drafted(table),
        },
    )
    study = dataclasses.replace(study, parameters=study.parameters.in_order_of(schema.names))
    if table.has("posterior") and not by_owner:
        _check_posterior_table(table.table("posterior"), study)
    applying = _of_any_model(study) if by_owner else study
    rules.check(applying, source=table.source)
    return study


def _of_any_model(study: Study) -> Study:
    """Return a study without what an owner alone may say; the owner's own study is checked with it."""
    variables = tuple(dataclasses.replace(each, bounds=None) for each in study.schema.variables)
    return dataclasses.replace(
        study,
        posterior=PosteriorRule(),
        privbayes=PrivBayesRule(),
        tables=study.tables and dataclasses.replace(study.tables, one_way_part=None),
        schema=dataclasses.replace(study.schema, variables=variables),
    )


def _is_reviewed(table: Table, schema: Schema) -> bool:
    """Return whether the author has reviewed the study; without ``[draft]`` it is no draft, unless a column is from a table."""
    if not table.has("draft"):
        return all(variable.origin != TABLE for variable in schema.variables)
    mark = table.table("draft")
    mark.only("reviewed", "table")
    return mark.value(bool, "reviewed")


def _drafted(table: Table) -> Mapping[str, Mapping[str, object]]:
    """Return ``[draft.table.PARTY]`` as it is written; who reads the tables reads it."""
    if not table.has("draft") or not table.table("draft").has("table"):
        return {}
    tables = table.table("draft").table("table")
    for party in tables.names():
        tables.table(party)  # is one
    return cast("Mapping[str, Mapping[str, object]]", table.table("draft").raw("table"))


def _check_posterior_table(table: Table, study: Study) -> None:
    """Check what the canonical form, in which every default is written, does not show."""
    if not study.samples_graphs:
        table.fail(
            "steps",
            f"[posterior] goes with structure.method 'posterior', got '{study.structure.method}'",
            hint="remove it, or let the owner of the whole table run verticil synthesize --method posterior",
        )
    for key in ("gamma", "alpha"):
        if table.has(key) and study.posterior.prior != "penalty":
            table.fail(key, f"goes with prior = 'penalty', got '{study.posterior.prior}'", hint="remove it")


def read_declarations(tables: Sequence[Table], study: Study, party: str) -> dict[int, Unit]:
    """Read a party's own declarations for one study: its ``[[randomization]]`` tables of ``party.toml``.

    A party's file serves many studies, so a variable that this study does not have is passed over, unless its name is so
    near to one of the party's own columns that it may be a misspelling: then noise would silently stay weaker than meant.
    A compound is declared as the study has it: the same variables in the same order, with the study's impossible combinations,
    which need not be written again. A declaration for a part of a compound, or for a compound of columns that the study
    randomizes singly, is an error and not passed over.

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
    tables_by_names = _assign(tables)
    names_in_tables = {name for names in tables_by_names for name in names}
    own = [
        study.schema[position].name
        for position in study.schema.owned_by(party)
        if study.schema[position].name not in names_in_tables
    ]
    units: dict[int, Unit] = {}
    for names, table in tables_by_names.items():
        if not any(name in study.schema for name in names):
            for name in names:
                if near := difflib.get_close_matches(name, own, 1, 0.75):
                    table.fail(
                        _key(names),
                        f"'{name}' is not a variable of study '{study.id}'",
                        hint=f"did you mean '{near[0]}'?",
                    )
            continue
        index = _declared_unit(table, names, study, party)
        domain = _domain(table, names, study.schema)
        if domain.is_compound:
            domain = _common_domain(table, domain, study.units[index])
        unit = schemes.unit_for(table, domain, study.knowledge)
        protocol_of(study).check_unit(unit, where=f"{table.source}: {table.path('scheme')}")
        check_not_weaker(unit, study.units[index])
        units[index] = unit
    return units


def _declared_unit(table: Table, names: tuple[str, ...], study: Study, party: str) -> int:
    """Return the unit that a party's table is for: it must hold exactly these variables, in this order."""
    for name in names:
        if name not in study.schema:
            hint = f"the table names other variables of study '{study.id}'; a compound is declared as the study has it"
            table.fail(_key(names), f"'{name}' is not a variable of study '{study.id}'", hint=hint)
        variable = study.schema[study.schema.index(name)]
        if variable.owner != party:
            table.fail(
                _key(names),
                f"'{name}' belongs to '{variable.owner}', expected a column of '{party}'",
                hint="a party declares noise for its own columns only",
            )
    index = study.unit_of(names[0])
    theirs = study.units[index].variables
    if theirs != names:
        names_text = ", ".join(f"'{name}'" for name in names)
        whole = f"jointly = {json.dumps(list(theirs), ensure_ascii=False)}"
        if len(theirs) > 1:
            problem = f"{names_text}: study '{study.id}' randomizes '{names[0]}' in the compound {', '.join(theirs)}"
            table.fail(_key(names), problem, hint=f"declare the whole compound, in its order: {whole}")
        table.fail(
            _key(names),
            f"{names_text} is no compound of study '{study.id}', which randomizes '{names[0]}' by itself",
            hint="declare each of its columns by itself: variables = [...]",
        )
    return index


def _common_domain(table: Table, domain: Domain, unit: Unit) -> Domain:
    """Return the study's domain: a party's `impossible` is that of the study, or is left out."""
    if not table.has("impossible"):
        return compound_of(domain.variables, unit.impossible)
    if domain.impossible != unit.impossible:
        table.fail(
            "impossible",
            f"{len(domain.impossible)} combinations that are not the {len(unit.impossible)} of the study",
            hint="leave the key out: the study's apply",
        )
    return domain


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


def _knowledge(table: Table, schema: Schema, related: Sequence[RelatedTable], base: Path) -> Knowledge | None:
    """``[knowledge]``: what is stated of all records; an absent table states nothing."""
    if not table.has("knowledge"):
        return None
    inner = table.table("knowledge")
    inner.only("rule", "file")
    tables = inner.tables("rule", optional=True)
    if inner.has("file"):
        path = _own_file(inner, base)
        values = {variable.name: variable.labels for variable in schema.variables}
        tables += read_turtle(_beginning(path, MAX_BYTES + 1), source=path.name, values=values)
    if not tables:
        inner.fail(
            "rule", "there is no rule, expected at least one [[knowledge.rule]] or a file", hint="remove [knowledge]"
        )
    rows = [
        RowTable(
            name=item.name,
            count=item.count,
            order=item.order,
            columns={column: item.slots_of(column) for column in item.columns},
        )
        for item in related
    ]
    return read_knowledge(tables, schema.variables, rows)


def _own_file(table: Table, base: Path) -> Path:
    """Return the file of a study's knowledge: it lies in the study's folder, and nothing elsewhere is opened."""
    path = path_in(table, "file", base)
    try:
        is_inside = path.resolve().is_relative_to(base.resolve())
    except (OSError, ValueError, RuntimeError):  # a loop of links, a null byte
        is_inside = False
    if not is_inside:
        table.fail("file", "lies outside the study's folder, expected a file in it", hint="copy it beside the study")
    return path


def _beginning(path: Path, most: int) -> bytes:
    """Read at most so many bytes of a file."""
    try:
        with path.open("rb") as file:
            return file.read(most)
    except FileNotFoundError:
        raise Misuse(
            "FILE_MISSING", f"{path}: no such file", hint="knowledge.file is relative to the study's"
        ) from None
    except (OSError, ValueError) as error:  # a folder, not permitted, a null byte in the name
        raise Misuse("FILE_MISSING", f"{path}: cannot be read ({error})") from None


def _following(knowledge: Knowledge | None) -> Collection[str]:
    return () if knowledge is None else [item.variable.name for item in knowledge.functions]


def _units(
    table: Table,
    schema: Schema,
    model: str,
    knowledge: Knowledge | None,
    related: Sequence[RelatedTable],
) -> tuple[Unit, ...]:
    tables_by_names = _assign(table.tables("randomization", optional=True), related)
    explicit: list[Unit] = []
    for names, item in tables_by_names.items():
        for name in names:
            if name in _following(knowledge):
                problem = f"[[randomization]] of '{name}', which follows from others: nobody sends it"
                item.fail(_key(names), problem, hint="remove it here; it costs nothing")
            if name not in schema:
                item.fail(_key(names), f"'{name}' is not a variable of the study", hint=near_hint(name, schema.names))
        domain = _domain(item, names, schema)
        explicit.append(schemes.unit_for(item, domain, knowledge))
    default: Table | None = None
    if table.has("randomization_default"):
        default = table.table("randomization_default")
        schemes.check_keys(default)
    elif (usual := PROTOCOLS.named(model).randomization_default) and not table.has("allocate"):
        default = Table(usual, source=table.source, code=table.code, where="randomization_default", file=True)
    names_in_tables = {name for names in tables_by_names for name in names}
    other_variables = [variable for variable in schema.variables if variable.name not in names_in_tables]
    others: Sequence[Unit] = ()
    if table.has("allocate"):
        if default is not None:
            table.fail("allocate", "stands beside [randomization_default], expected one of the two")
        if not isinstance(table.raw("allocate"), dict):
            table.fail(
                "allocate",
                "expected a table",
                hint='[allocate] with rule = "equal-contrast" and total_epsilon = NUMBER',
            )
        others = schemes.allocated_units(table.table("allocate"), other_variables, explicit)
    elif default is not None:
        others = [schemes.unit_for(default, single(variable), knowledge) for variable in other_variables]
    elif other_variables:
        table.fail(
            "randomization", f"'{other_variables[0].name}' is in no table, and there is no [randomization_default]"
        )
    return tuple(sorted([*explicit, *others], key=lambda unit: min(map(schema.index, unit.variables))))


def _assign(tables: Iterable[Table], related: Sequence[RelatedTable] = ()) -> dict[tuple[str, ...], Table]:
    """Return which table randomizes what: (variable,), or the variables of a compound; a variable in two tables is an
    error. ``visits.ward`` of a related table stands for that column in all slots.
    """
    tables_by_names: dict[tuple[str, ...], Table] = {}
    table_by_name: dict[str, Table] = {}
    for table in tables:
        schemes.check_keys(table, "variables", "jointly", "impossible")
        joint = table.has("jointly")
        if joint and table.has("variables"):
            table.fail("jointly", "stands beside 'variables', expected one of the two")
        if not joint and table.has("impossible"):
            table.fail("impossible", "goes with 'jointly', expected none beside 'variables'")
        key = "jointly" if joint else "variables"
        names = of_all_slots(table, key, related)
        if not names:
            table.fail(key, "the list is empty, expected names of variables")
        if joint and len(names) == 1:
            table.fail(key, f"'{names[0]}' alone, expected two variables or more", hint="use variables = [...]")
        for name in names:
            if name in table_by_name:
                table.fail(
                    key, f"'{name}' is in {table_by_name[name].where} already, expected one table for each variable"
                )
            table_by_name[name] = table
        tables_by_names.update({names: table} if joint else {(name,): table for name in names})
    return tables_by_names


def _domain(table: Table, names: tuple[str, ...], schema: Schema) -> Domain:
    first, *others = names
    return compound(table, names, schema) if others else single(schema[schema.index(first)])


def _key(names: Sequence[str]) -> str:
    return "jointly" if len(names) > 1 else "variables"


def _structure(table: Table, schema: Schema) -> StructureRule:
    table.only(*keys(StructureRule, but=("custom",)), *_OF_CUSTOM)
    if table.has("method") and (method := table.value(str, "method")) in plugins.names("verticil.generators"):
        table.fail(
            "method",
            f"got '{method}', a generator that needs the raw rows of a whole table, expected a method that learns a structure",
            hint=f"its owner alone can have it: verticil synthesize TABLE --method {method}",
        )
    # A study that tunes the genetic algorithm means it.
    method = table.choice("method", vocabulary.METHODS, "genetic" if table.has("genetic") else "auto")
    parents = None
    if method == "given":
        for key in table.names():
            if key not in _OF_GIVEN:
                table.fail(key, "goes with a search, expected none of it with the method 'given'", hint="remove it")
        parents = _parents(table.table("parents"), schema)
    elif table.has("parents"):
        table.fail("parents", f"does not go with the method '{method}'", hint='set method = "given"')
    d = len(schema)
    if table.has("max_parents") and (most := table.value(int, "max_parents")) >= d:
        table.fail(
            "max_parents",
            f"got {most} for {d} variables, expected at most {d - 1}: no variable is its own parent",
            hint=f"set max_parents = {min(2, d - 1)}",
        )
    if table.has("genetic") and method != "genetic":
        table.fail("genetic", f"goes with the method 'genetic', got '{method}'", hint="remove it")
    fields = {
        "method": method,
        "score": table.choice("score", vocabulary.scores(), vocabulary.METHODS[method].scores[0]),
        "parents": parents,
        "custom": _custom(table),
    }
    return read(StructureRule, table, also=("method", "score", "parents", *_OF_CUSTOM), given=fields)


def _custom(table: Table) -> CustomRule | None:
    """``target``, ``sensitive`` and ``hide_from``; None where none of them stands there."""
    if not table.has("target"):
        for key in ("sensitive", "hide_from"):
            if table.has(key):
                table.fail(
                    key,
                    "stands without 'target'",
                    hint="name the variable that the sensitive ones may depend on: target",
                )
        return None
    return CustomRule(
        target=table.value(str, "target"),
        sensitive=table.strings("sensitive", []),
        hide_from=table.strings("hide_from") if table.has("hide_from") else None,
    )


def _parents(table: Table, schema: Schema) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """``parents = { child = ["p1", "p2"], ... }``; a variable that is not named has none. Written in any order."""
    for child in table.names():
        if child not in schema:
            table.fail(child, "not a variable of the study", hint=near_hint(child, schema.names))
        names = table.strings(child)
        for position, name in enumerate(names):
            if name not in schema:
                table.fail(child, f"'{name}' is not a variable of the study", hint=near_hint(name, schema.names))
            if name in names[:position]:
                table.fail(child, f"'{name}' stands there twice, expected each parent once")
    return tuple((name, tuple(sorted(table.strings(name, []), key=schema.index))) for name in schema.names)


def _share(table: Table, model: str) -> ShareRule | None:
    """``[share]``: noise on a party's own counts, and the least count of a parameter, where parties share them."""
    if not PROTOCOLS.named(model).shares:
        if table.has("share"):
            those = " or ".join(f"'{protocol.name}'" for protocol in PROTOCOLS if protocol.shares)
            table.fail("share", f"goes with the model {those}, got '{model}'", hint="remove it, or set the model")
        return None
    share = table.table("share", optional=True)
    rule = read(ShareRule, share)
    if not share.has("noise"):
        for key in ("epsilon", "delta"):
            if share.has(key):
                share.fail(key, "goes with noise, and there is none", hint='add noise = "discrete-gaussian"')
        return rule
    for key in ("epsilon", "delta"):
        if not share.has(key):
            share.fail(key, "missing: noise needs an epsilon and a delta", hint="for example: " + _EXAMPLES[key])
    return rule


def _quorum(table: Table) -> QuorumRule | None:
    """``quorum = {deadline = "72h", min = 2}``; an absent key is no rule."""
    if not table.has("quorum"):
        return None
    rule = table.table("quorum")
    rule.only("deadline", *keys(QuorumRule, but=("deadline_seconds",)))
    text = rule.value(str, "deadline")
    match = _DURATION.fullmatch(text)
    if match is None:
        problem = f"got '{text[:40]}', expected a number and one of min, h, d"
        return rule.fail("deadline", problem, hint='for example: deadline = "72h"')
    seconds = int(match[1]) * {"min": 60, "h": 3600, "d": 86_400}[match[2]]
    return read(QuorumRule, rule, also=("deadline",), given={"deadline_seconds": seconds})


def simulation_seed_from(table: Table, key: str) -> int | None:
    """Return the seed of simulations of a study, as in ``simulation = {seed = 7}``; None: none is stated.

    It belongs to the file and not to the study: it enters no digest, and no node of a federation ever sees it.

    Raises:
        Misuse: the table's code.
    """
    rule = table.table(key, optional=True)
    rule.only("seed")
    if not rule.has("seed"):
        return None
    seed = rule.value(int, "seed")
    return seed if seed >= 0 else rule.fail("seed", f"got {seed}, expected at least 0")

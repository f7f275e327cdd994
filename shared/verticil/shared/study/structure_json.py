"""The rule for the structure in a study's canonical JSON; `canonical` has the rest and says what canonical means."""

from __future__ import annotations

from typing import TypeVar, cast

from verticil.shared.config import Table
from verticil.shared.record import Json
from verticil.shared.study import rules, vocabulary
from verticil.shared.study.document import CustomRule, GeneticRule, HillClimbRule, OrderRule, StructureRule

_Number = TypeVar("_Number", int, float, str)


def structure_to_json(rule: StructureRule) -> dict[str, Json]:
    """The rule as a JSON object; keys of later features stand there only where they are used."""
    genetic = rule.genetic
    document: dict[str, Json] = {
        "method": rule.method,
        "score": rule.score,
        "max_parents": rule.max_parents,
        "max_family_cells": rule.max_family_cells,
        "seed": rule.seed,
        "required": [list(edge) for edge in rule.required],
        "forbidden": [list(edge) for edge in rule.forbidden],
        "genetic": {
            "population": genetic.population,
            "selected": genetic.selected,
            "generations": genetic.generations,
            "mutation_rate": genetic.mutation_rate,
        },
    }
    if rule.parents is not None:
        document["parents"] = [[child, list(parents)] for child, parents in rule.parents]
    if rule.tiers:
        document["tiers"] = [list(tier) for tier in rule.tiers]
    if (custom := rule.custom) is not None:
        document["custom"] = {
            "target": custom.target,
            "sensitive": list(custom.sensitive),
            "hide_from": None if custom.hide_from is None else list(custom.hide_from),
        }
    if rule.prefer != vocabulary.PREFERENCES[0]:
        document["prefer"] = rule.prefer
    if (order := rule.order) != OrderRule():
        document["order"] = {
            "chains": order.chains,
            "moves": order.moves,
            "rounds": order.rounds,
            "exact": order.exact,
        }
    if (climb := rule.hill_climb) != HillClimbRule():
        document["hill_climb"] = {"tabu_length": climb.tabu_length, "patience": climb.patience}
    if rule.minimum_strength is not None:
        document["minimum_strength"] = rule.minimum_strength
    return document


def structure_from(table: Table) -> StructureRule:
    """Read what `structure_to_json` wrote; that it fits its study is checked elsewhere.

    Raises:
        Misuse: STUDY_INVALID.
    """
    genetic = table.table("genetic")
    rule = StructureRule(
        method=table.choice("method", vocabulary.METHODS),
        score=table.choice("score", vocabulary.scores()),
        max_parents=table.value(int, "max_parents"),
        max_family_cells=table.value(int, "max_family_cells"),
        seed=table.value(int, "seed"),
        required=rules.edges_from(table, "required"),
        forbidden=rules.edges_from(table, "forbidden"),
        genetic=GeneticRule(
            population=genetic.value(int, "population"),
            selected=genetic.value(int, "selected"),
            generations=genetic.value(int, "generations"),
            mutation_rate=optional(genetic, float, "mutation_rate"),
        ),
        parents=_parents(table) if table.has("parents") else None,
        tiers=rules.tiers_from(table, "tiers"),
        custom=_custom(table.table("custom")) if table.has("custom") else None,
        prefer=table.choice("prefer", vocabulary.PREFERENCES, vocabulary.PREFERENCES[0]),
        order=_order(table.table("order")) if table.has("order") else OrderRule(),
        hill_climb=_hill_climb(table.table("hill_climb")) if table.has("hill_climb") else HillClimbRule(),
        minimum_strength=table.value(float, "minimum_strength") if table.has("minimum_strength") else None,
    )
    genetic.finish()
    table.finish()
    return rule


def _custom(table: Table) -> CustomRule:
    custom = CustomRule(
        target=table.value(str, "target"),
        sensitive=table.strings("sensitive"),
        hide_from=None if is_null(table, "hide_from") else table.strings("hide_from"),
    )
    table.finish()
    return custom


def _order(table: Table) -> OrderRule:
    order = OrderRule(
        chains=optional(table, int, "chains"),
        moves=optional(table, int, "moves"),
        rounds=optional(table, int, "rounds"),
        exact=table.value(bool, "exact"),
    )
    table.finish()
    return order


def _hill_climb(table: Table) -> HillClimbRule:
    climb = HillClimbRule(
        tabu_length=table.value(int, "tabu_length"),
        patience=table.value(int, "patience"),
    )
    table.finish()
    return climb


def _parents(table: Table) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: list[tuple[str, tuple[str, ...]]] = []
    for row in table.rows("parents"):
        match row:
            case (str(child), list(parents)) if all(isinstance(name, str) for name in cast("list[object]", parents)):
                found.append((child, tuple(cast("list[str]", parents))))
            case _:
                table.fail("parents", 'expected lists, each ["child", ["parent", ..]]')
    return tuple(found)


def is_null(table: Table, key: str) -> bool:
    """Whether null stands at `key`."""
    return table.has(key) and table.raw(key) is None


def optional(table: Table, kind: type[_Number], key: str) -> _Number | None:
    """The value at `key`; None for null."""
    return None if is_null(table, key) else table.value(kind, key)

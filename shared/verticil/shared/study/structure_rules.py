"""What holds for the structure of every resolved study.

A structure that is given is checked as a searched one would be: a directed acyclic graph within the study's limits, that keeps
what a custom network promises.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Final, NoReturn

from verticil.shared.study.document import StructureRule, Study
from verticil.shared.study.vocabulary import (
    MAX_EXACT,
    MAX_SAFE,
    MAX_TEXT,
    METHODS,
    PREFERENCES,
    fail,
    scores,
)

_USUAL: Final = {field.name: field.default for field in fields(StructureRule)}


def edge_text(edge: tuple[str, str]) -> str:
    """An edge for messages."""
    return f"'{edge[0]}' -> '{edge[1]}'"


def near_hint(name: str, names: Iterable[str]) -> str:
    """A hint that names what is nearest to `name`; empty when nothing is near."""
    near = difflib.get_close_matches(name, list(names), 1, 0.5)
    return f"did you mean '{near[0]}'?" if near else ""


def check_structure(study: Study, *, source: str) -> None:
    """Check the rule for the structure, and the structure itself where it is given.

    Args:
        study: the study; its variables are checked already.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID or STUDY_UNSUPPORTED.
    """
    rules, rule = _Structure(study, source), study.structure
    known = {
        "method": (rule.method, METHODS),
        "score": (rule.score, scores()),
        "prefer": (rule.prefer, PREFERENCES),
    }
    for what, (value, names) in known.items():
        if value not in names:
            rules.fail(what, f"got '{value[:MAX_TEXT]}', expected one of {', '.join(names)}")
    rules.method()
    rules.numbers()
    rules.edges()
    if (rule.method == "given") != (rule.parents is not None):
        rules.fail("parents", f"'parents' go with the method 'given' and with no other, got '{rule.method}'")
    if rule.parents is not None:
        rules.given(rule.parents)


class _Structure:
    """The checks of one study's structure, part by part."""

    def __init__(self, study: Study, source: str) -> None:
        self.study = study
        self.source = source

    def fail(self, key: str, problem: str, *, hint: str = "") -> NoReturn:
        fail(f"{self.source}: structure.{key}", problem, hint=hint)

    def within(self, key: str, number: float, low: float, high: float) -> None:
        if not low <= number <= high:  # also for NaN
            self.fail(key, f"got {number:.17g}, expected {low:g} to {high:.17g}")

    def numbers(self) -> None:
        rule, genetic = self.study.structure, self.study.structure.genetic
        self.within("max_parents", rule.max_parents, 0, 20)
        self.within("max_family_cells", rule.max_family_cells, 2, 100_000_000)
        widest = max(self.study.schema.variables, key=lambda variable: variable.n_states)
        if widest.n_states > rule.max_family_cells:
            self.fail(
                "max_family_cells",
                f"got {rule.max_family_cells}, expected at least the {widest.n_states} categories of '{widest.name}'",
            )
        self.within("seed", rule.seed, 0, MAX_SAFE)
        self.within("genetic.population", genetic.population, 2, 10_000)
        self.within("genetic.selected", genetic.selected, 1, genetic.population)
        self.within("genetic.generations", genetic.generations, 1, 1_000_000)
        if genetic.mutation_rate is not None:
            self.within("genetic.mutation_rate", genetic.mutation_rate, 0, 1)
        for key, number, least, most in (
            ("chains", rule.order.chains, 1, 10_000),
            ("moves", rule.order.moves, 0, 100_000_000),
            ("rounds", rule.order.rounds, 0, 1_000_000),
        ):
            if number is not None:
                self.within(f"order.{key}", number, least, most)
        self.within("hill_climb.tabu_length", rule.hill_climb.tabu_length, 0, 1_000_000)
        self.within("hill_climb.patience", rule.hill_climb.patience, 1, 1_000_000)
        if rule.minimum_strength is not None:
            self.within("minimum_strength", rule.minimum_strength, 0, 1)

    def method(self) -> None:
        """Method, score and options that go together, and what a method asks of the data."""
        study, rule = self.study, self.study.structure
        if rule.score not in (able_of := METHODS[rule.method].scores):
            able = ", ".join(f"'{name}'" for name, method in METHODS.items() if rule.score in method.scores)
            self.fail(
                "score",
                f"'{rule.score}' does not go with the method '{rule.method}', expected {' or '.join(able_of)}",
                hint=f"'{rule.score}' goes with the method {able}",
            )
        for name, method in METHODS.items():
            for key in method.keys:
                if rule.method != name and getattr(rule, key) != _USUAL[key]:
                    self.fail(key, f"goes with the method '{name}', got '{rule.method}'", hint="remove it")
        if rule.minimum_strength is not None and rule.method == "given":
            self.fail("minimum_strength", "is about edges that are found: it goes with a search", hint="remove it")
        if rule.score == "bdeu":
            randomized = [name for unit in study.units if not unit.transition.is_identity for name in unit.variables]
            if randomized:
                shown = ", ".join(f"'{name}'" for name in randomized[:5]) + (" and others" if randomized[5:] else "")
                self.fail(
                    "score",
                    f"'bdeu' takes counts for data, and {shown} {'are' if randomized[1:] else 'is'} randomized: it would find "
                    "edges between independent columns",
                    hint="use 'bic' or 'bic-noise', which take the noise into account",
                )

    def edges(self) -> None:
        rule = self.study.structure
        for key, edges in (("required", rule.required), ("forbidden", rule.forbidden)):
            for edge in edges:
                for name in edge:
                    if name not in self.study.schema:
                        self.fail(
                            key,
                            f"'{name[:MAX_TEXT]}' is not a variable of the study",
                            hint=near_hint(name, self.study.schema.names),
                        )
                if edge[0] == edge[1]:
                    self.fail(key, f"{edge_text(edge)} joins a variable to itself")
            for text, count in Counter(map(edge_text, edges)).items():
                if count > 1:
                    self.fail(key, f"'{text}' stands there {count} times, expected once")
            if edges and rule.method == "given":
                self.fail(key, f"a structure that is given has no {key} edges, expected none")
        self.declarations()

    def declarations(self) -> None:
        """Tiers, the custom network, and all declarations together."""
        rule = self.study.structure
        if rule.tiers and rule.method == "given":
            self.fail("tiers", "a structure that is given has no tiers, expected none")
        if any(not tier for tier in rule.tiers):
            self.fail("tiers", "a tier is empty, expected names of variables in each")
        constraints = self.study.constraints(where=f"{self.source}: structure")
        if METHODS[rule.method].one_parent:
            for child, name in enumerate(self.study.schema.names):
                if len(needed := constraints.parents_required(child)) > 1:
                    self.fail("required", f"'{name}' has {len(needed)} required parents, a {rule.method} admits one")
        if rule.order.exact and (widest := max(map(len, constraints.blocks))) > MAX_EXACT:
            self.fail(
                "order.exact",
                f"{widest} variables may stand in any order, expected at most {MAX_EXACT}",
                hint="leave it out; the search over orders comes within .5 % of the best",
            )

    def given(self, entries: Sequence[tuple[str, Sequence[str]]]) -> None:
        rule, schema = self.study.structure, self.study.schema
        if tuple(child for child, _ in entries) != schema.names:
            self.fail("parents", "the entries are not one for each variable, in the order of the variables")
        for child, parents in entries:
            where = f"parents.{child}"
            for name in parents:
                if name not in schema:
                    self.fail(
                        where,
                        f"'{name[:MAX_TEXT]}' is not a variable of the study",
                        hint=near_hint(name, schema.names),
                    )
            positions = [schema.index(name) for name in parents]
            if positions != sorted(set(positions)):
                self.fail(where, "a parent stands there twice, or the parents are not in the order of the variables")
            if len(parents) > rule.max_parents:
                self.fail(
                    where,
                    f"{len(parents)} parents, expected at most {rule.max_parents}",
                    hint=f"remove parents, or set structure.max_parents = {len(parents)}",
                )
            cells = math.prod(schema.n_states[position] for position in (*positions, schema.index(child)))
            if cells > rule.max_family_cells:
                self.fail(
                    where,
                    f"the table of '{child}' and its parents has {cells} cells, expected at most {rule.max_family_cells}",
                    hint="remove parents, merge categories, or raise structure.max_family_cells",
                )
        if cycle := _cycle(dict(entries)):
            self.fail(
                "parents", f"there is a cycle: {' -> '.join(cycle)}, expected none", hint="remove one of the edges"
            )
        custom, dag = self.study.custom_network(where=f"{self.source}: structure"), self.study.given_dag
        if custom is not None and dag is not None and (leaks := custom.leaks(dag)):
            s, q = (schema.names[v] for v in leaks[0])
            self.fail(
                "parents",
                f"the custom network is not kept: '{s}' is not separated from '{q}' by the target "
                f"'{schema.names[custom.target]}' ({len(leaks)} such pairs)",
                hint="remove the edges that lead around the target",
            )


def _cycle(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """A cycle along the edges, its first variable again at its end; empty when there is none."""
    placed: set[str] = set()
    waiting = list(parents)
    while ready := [child for child in waiting if placed.issuperset(parents[child])]:
        placed.update(ready)
        waiting = [child for child in waiting if child not in placed]
    if not waiting:
        return []
    # Every variable that is left has a parent that is left: walking from parent to parent comes back.
    path = [waiting[0]]
    while (parent := next(name for name in parents[path[-1]] if name not in placed)) not in path:
        path.append(parent)
    around = path[path.index(parent) :][::-1]
    first = min(range(len(around)), key=lambda i: list(parents).index(around[i]))
    around = around[first:] + around[:first]
    return [*around, around[0]]

"""What holds for every resolved study, whether it was read from TOML or came as bytes from another node.

`check` looks at the value alone: names, ranges, sizes, ownership; the units, whose scheme is what the person who approves reads,
so that the matrix must be one of it; the structure, which where it is given is checked as a searched one would be; and the rules
for those who stay away or countersign. It does not judge whether the study is wise; that is for lint. What a study may name is in
`vocabulary`, what only one protocol asks of it in the protocol.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Final, NoReturn

from verticil.shared.core.name_lists import shortened
from verticil.shared.documents.record import Within, out_of_range
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.mechanisms.privacy import EPSILON_TOLERANCE, epsilon, gamma
from verticil.shared.mechanisms.subset import LARGEST_EPSILON, LEAST_STATES, Subset
from verticil.shared.mechanisms.transition import validate_matrix
from verticil.shared.numerics.estimation.estimators import ESTIMATORS
from verticil.shared.numerics.knowledge.checking import check_knowledge
from verticil.shared.numerics.model.constraints import Constraints
from verticil.shared.numerics.model.schema import Missing, Variable
from verticil.shared.study.codebook import check_letters, check_text
from verticil.shared.study.document import StructureRule, Study
from verticil.shared.study.inapplicable import refuse
from verticil.shared.study.posterior import check_posterior
from verticil.shared.study.privbayes import check_privbayes
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.related_tables import check_related
from verticil.shared.study.schemes import SCHEMES
from verticil.shared.study.table_rules import check_tables
from verticil.shared.study.typed_variables import problem_of, value_labels
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import (
    MAX_CELLS,
    MAX_COMBINATIONS,
    MAX_EXACT,
    MAX_GREEDY_FAMILIES,
    MAX_PURPOSE,
    MAX_TEXT,
    MAX_VARIABLES,
    METHODS,
    NORMALISE_STEPS,
    PREFERENCES,
    SAMPLING,
    SOURCES,
    fail,
    scores,
    starts_a_formula,
)

LEAST_PARTIES: Final = 2
"""A model of one party's columns is nothing that a federation is needed for, and its release would be that party's alone."""
_DEADLINE: Final = (60, 3650 * 86_400)
_USUAL: Final = {field.name: field.default for field in fields(StructureRule)}
_LISTED: Final = 5
"""Columns named in one message."""
_STUDY_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_KEY_FORMAT: Final = re.compile(r"[^%]*%(?:0(?:[1-9]|1[0-9]|20))?d[^%]*")
_PARTY: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
)  # what a certificate can carry, see shared.federation.identity


def check(study: Study, *, source: str) -> None:
    """Check a resolved study.

    Args:
        study: the study.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID, STUDY_UNSUPPORTED, MATRIX_INVALID or MATRIX_SINGULAR.
    """
    rules = _Rules(source)
    rules.head(study)
    rules.ranges(study)
    rules.linkage(study)
    for variable in study.schema.variables:
        rules.variable(variable, study.parties)
    rules.owners(study)
    check_related(study, source=source)
    if study.knowledge is not None:
        for function in study.knowledge.functions:
            rules.variable(function.variable, study.parties)
        check_knowledge(study.knowledge, study.schema, source=f"{source}: knowledge")
    _check_units(study, source=source)
    _check_structure(study, source=source)
    check_breach(study, source=source)
    check_tables(study, source=source)
    check_posterior(study, source=source)
    check_privbayes(study, source=source)
    _check_publish(study, source=source)
    rules.numbers(study)
    rules.identifier(study)
    check_quorum(study, source=source)
    protocol_of(study).check(study, source=source)


def is_party_name(text: str) -> bool:
    """Return whether `text` may name a party: what a certificate's URI can carry."""
    return _PARTY.fullmatch(text) is not None


class _Rules:
    """The checks, part by part; `source` starts every message."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, where: str, problem: str, *, hint: str = "") -> NoReturn:
        fail(f"{self.source}: {where}", problem, hint=hint)

    def distinct(self, where: str, names: Iterable[str]) -> None:
        for name, count in Counter(names).items():
            if count > 1:
                self.fail(where, f"'{name}' stands there {count} times, expected once")

    def ranges(self, study: Study) -> None:
        for where, problem in out_of_range(study):
            self.fail(where, problem)

    def head(self, study: Study) -> None:
        if not _STUDY_ID.fullmatch(study.id):
            self.fail("id", f"got '{study.id[:MAX_TEXT]}', expected 1 to 63 of a-z 0-9 -, not starting with -")
        check_text(f"{self.source}: title", study.title)
        check_text(f"{self.source}: purpose", study.purpose, limit=MAX_PURPOSE, lines=True)
        protocol_of(study)
        if not study.parties:
            self.fail("party", "there is no [[party]], expected at least one")
        for party in (*study.parties, *(item.party for item in study.left_out)):
            if not is_party_name(party):
                self.fail(
                    "party",
                    f"got the name '{party[:MAX_TEXT]}', expected 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit first",
                )
        self.distinct("party", study.parties)
        if not 1 <= len(study.schema) <= MAX_VARIABLES:
            self.fail("variable", f"{len(study.schema)} variables, expected 1 to {MAX_VARIABLES}")

    def linkage(self, study: Study) -> None:
        self.distinct("linkage.normalise", study.linkage.normalise)
        for step in study.linkage.normalise:
            if step not in NORMALISE_STEPS:
                self.fail(
                    "linkage.normalise", f"got '{step[:MAX_TEXT]}', expected some of {', '.join(NORMALISE_STEPS)}"
                )

    def identifier(self, study: Study) -> None:
        rule = study.identifier
        if rule is None:
            return
        for key, text in (("name", rule.name), ("format", rule.format)):
            check_text(f"{self.source}: identifier.{key}", text)
            if starts_a_formula(text):
                self.fail(f"identifier.{key}", f"'{text}' begins with '{text[0]}': spreadsheets take it for a formula")
        functions = () if study.knowledge is None else study.knowledge.functions
        if rule.name in {*study.schema.names, *(item.variable.name for item in functions)}:
            self.fail("identifier.name", f"'{rule.name}' is a variable of the study, expected a name of its own")
        if _KEY_FORMAT.fullmatch(rule.format) is None:
            problem = f"got '{rule.format}', expected one number in it, %d or with leading zeros as in P%06d"
            self.fail("identifier.format", problem, hint="at most 20 digits; no other % stands in it")

    def owners(self, study: Study) -> None:
        for party in study.parties:
            if not study.schema.owned_by(party):
                self.fail(
                    "party", f"'{party}' owns no variable", hint="remove the party, or add a [[variable]] that it holds"
                )

    def variable(self, variable: Variable, parties: Sequence[str]) -> None:
        where = f"variable '{variable.name}'"
        if variable.owner not in parties:
            self.fail(
                where,
                f"its party '{variable.owner[:MAX_TEXT]}' is not a [[party]] of the study, expected one of {', '.join(parties)}",
                hint="mend the name, or add a [[party]] with it",
            )
        extra = [variable.other] if variable.other is not None else []
        if variable.missing is not None:
            extra.append(variable.missing.category)
        for category in extra:
            if category not in variable.labels:
                self.fail(where, f"'{category[:MAX_TEXT]}' of other or missing is not a declared category")
        if variable.kind is not None:
            self.typed(where, variable)
        if variable.bins is None and not variable.points:
            if variable.integer or variable.outside != "error":
                self.fail(where, "integer and outside go with bins, expected neither beside categories")
        elif variable.labels != value_labels(variable) + tuple(dict.fromkeys(extra)):
            self.fail(where, "the categories are not those of its bins, then its points, other, and missing")
        if variable.missing is not None:
            self.spellings(where, variable.labels, variable.missing)

    def typed(self, where: str, variable: Variable) -> None:
        """Check what goes with a type, of a study that came as bytes."""
        if problem := problem_of(variable):
            self.fail(where, problem)

    def spellings(self, where: str, labels: Sequence[str], missing: Missing) -> None:
        if not 1 <= len(missing.spellings) <= 1000 or max(map(len, missing.spellings)) > MAX_TEXT:
            self.fail(f"{where}: missing.spellings", f"expected 1 to 1000 texts of at most {MAX_TEXT} letters")
        self.distinct(f"{where}: missing.spellings", missing.spellings)
        for spelling in missing.spellings:
            check_letters(f"{self.source}: {where}: missing.spellings", spelling, also="\t")
            if spelling in labels and spelling != missing.category:
                self.fail(f"{where}: missing.spellings", f"'{spelling}' is a category of its own")

    def numbers(self, study: Study) -> None:
        parameters = study.parameters
        if parameters.estimator not in ESTIMATORS:
            self.fail(
                "parameters.estimator",
                f"got '{parameters.estimator[:MAX_TEXT]}', expected one of {', '.join(ESTIMATORS)}",
            )
        _check_prior(study, source=self.source)
        if study.release.sampling not in SAMPLING:
            self.fail(
                "release.sampling", f"got '{study.release.sampling[:MAX_TEXT]}', expected one of {', '.join(SAMPLING)}"
            )
        self.pairs(study)
        self.sample_from(study)

    def sample_from(self, study: Study) -> None:
        """Check that knowledge keeps no two variables apart: a joint model has the dependence of every pair and would undo
        it.
        """
        rule = study.release.sample_from
        if rule not in (None, *SOURCES):
            self.fail("release.sample_from", f"got '{rule[:MAX_TEXT]}', expected one of {', '.join(SOURCES)}")
        if rule == "posterior" and not study.samples_graphs:
            self.fail(
                "release.sample_from",
                f"got 'posterior' with the method '{study.structure.method}', which finds one graph",
                hint="set structure.method = 'posterior', or use \"network\"",
            )
        if rule == "joint" and study.refuses_joint:
            self.fail(
                "release.sample_from",
                f"got 'joint' beside {study.refuses_joint}: a joint model of all tables would show the dependence that the study "
                "rules out",
                hint='use "network"',
            )

    def pairs(self, study: Study) -> None:
        pairs = study.release.pairs
        if len(pairs) > MAX_VARIABLES:
            self.fail("release.pairs", f"{len(pairs)} pairs, expected at most {MAX_VARIABLES}")
        for name in dict.fromkeys(name for pair in pairs for name in pair):
            if name not in study.schema:
                self.fail(
                    "release.pairs",
                    f"'{name[:MAX_TEXT]}' is not a variable of the study",
                    hint=near_hint(name, study.schema.names),
                )
        if len({frozenset(pair) for pair in pairs if pair[0] != pair[1]}) < len(pairs):
            self.fail("release.pairs", "a pair stands there twice, or is one variable, expected different pairs")


def _greedy_families(constraints: Constraints, max_parents: int) -> int:
    """Families that the greedy search looks at, about: of a set with a child the child must be placed last."""
    parents = constraints.allowed.sum(axis=0).tolist()
    return sum(math.comb(n, size := min(n, max_parents)) // (size + 1) for n in parents)


def _check_units(study: Study, *, source: str) -> None:
    """Check that the units hold every variable once, each with a domain, a matrix and a scheme that fit.

    Args:
        study: the study; its variables are checked already.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID, STUDY_UNSUPPORTED, MATRIX_INVALID or MATRIX_SINGULAR.
    """
    schema = study.schema
    counts = Counter(name for unit in study.units for name in unit.variables)
    if counts != Counter(schema.names) or not all(unit.variables for unit in study.units):
        fail(f"{source}: randomization", "the units do not hold every variable once")
    first = [min(map(schema.index, unit.variables)) for unit in study.units]
    if first != sorted(first):
        fail(f"{source}: randomization", "the units are not in the order of their first variables")
    if (cells := sum(unit.transition.n_states**2 for unit in study.units)) > MAX_CELLS:
        fail(f"{source}: randomization", f"the matrices have {cells} cells, expected at most {MAX_CELLS} in all")
    for index, unit in enumerate(study.units):
        where = f"{source}: {unit.text}"
        _check_owner(study, unit, where)
        _check_domain(study, index, where)
        _check_scheme(study, unit, where)


def check_breach(study: Study, *, source: str) -> None:
    """Check every unit that others can read against the study's breach rule; without one, nothing.

    The structure must be one that the rules accept: between peers it decides what is sent.

    Raises:
        Misuse: STUDY_INVALID.
    """
    rule = study.breach
    if rule is None:
        return
    breaches: list[str] = []
    for unit in (study.units[index] for index in protocol_of(study).readable(study)):
        ratio = gamma(unit.transition)
        if rule.possible(ratio):
            level = "infinite" if ratio is None else f"{float(ratio):.6g}"
            breaches.append(f"{unit.text} has gamma {level}")
    if breaches:
        fail(
            f"{source}: breach",
            f"{shortened(breaches, _LISTED)}; expected gamma below {rule.gamma_limit:.6g}, "
            f"so that no belief of {rule.prior:g} becomes {rule.posterior:g}",
            hint=f"randomize more strongly (epsilon below {math.log(rule.gamma_limit):.4g}), or change the rule",
        )


def _check_owner(study: Study, unit: Unit, where: str) -> None:
    for name in unit.variables:
        owner = study.schema[study.schema.index(name)].owner
        if unit.owner != owner:
            fail(where, f"'{name}' is randomized by '{unit.owner[:MAX_TEXT]}', expected its party '{owner}'")


def _check_domain(study: Study, index: int, where: str) -> None:
    unit = study.units[index]
    states = [study.schema[study.schema.index(name)].n_states for name in unit.variables]
    if (combinations := math.prod(states)) > MAX_COMBINATIONS:
        fail(where, f"{combinations} combinations of categories, expected at most {MAX_COMBINATIONS}")
    for combination in unit.impossible:
        if len(combination) != len(states) or not all(0 <= c < k for c, k in zip(combination, states, strict=True)):
            fail(where, "an impossible combination is not one code for each of the variables")
    if any(not low < high for low, high in itertools.pairwise(unit.impossible)):
        fail(where, "the impossible combinations are not ascending")
    if unit.impossible and not unit.is_compound:
        fail(where, "an impossible combination goes with several variables, expected none for a single one")
    if unit.impossible and combinations - len(unit.impossible) < 2:
        fail(
            where,
            f"{len(unit.impossible)} of {combinations} combinations are impossible, expected at least 2 that are possible",
        )
    n_states, n_states_of_domain = unit.transition.n_states, combinations - len(unit.impossible)
    if n_states != n_states_of_domain:
        fail(where, f"the matrix is {n_states} x {n_states}, expected {n_states_of_domain} x {n_states_of_domain}")


def _check_scheme(study: Study, unit: Unit, where: str) -> None:
    if unit.scheme not in SCHEMES:
        fail(where, f"got the scheme '{unit.scheme[:MAX_TEXT]}', expected one of {', '.join(SCHEMES)}")
    if (unit.scheme == "two-level") != (unit.two_level is not None):
        fail(where, f"'two_level' goes with the scheme 'two-level' and with no other, got '{unit.scheme}'")
    if (unit.scheme == "subset") != isinstance(unit.transition, Subset):
        fail(where, f"subset selection goes with the scheme 'subset' and with no other, got '{unit.scheme}'")
    if isinstance(unit.transition, Subset):
        protocol_of(study).check_unit(unit, where=where)
        _check_subset(unit.transition, where)
    elif not SCHEMES[unit.scheme].is_one(unit, unit.transition, where):
        fail(where, f"the matrix is not one of the scheme '{unit.scheme}'")
    validate_matrix(unit.transition.probabilities, where=where)


def _check_subset(selection: Subset, where: str) -> None:
    level = epsilon(selection)
    if selection.n_states < LEAST_STATES or level > LARGEST_EPSILON + EPSILON_TOLERANCE:
        fail(
            where,
            f"'subset' with {selection.n_states} categories and epsilon {level:.6g}, expected at least {LEAST_STATES} "
            f"and at most {LARGEST_EPSILON:g}",
            hint="use 'symmetric'",
        )


def edge_text(edge: tuple[str, str]) -> str:
    """Write an edge for messages."""
    return f"'{edge[0]}' -> '{edge[1]}'"


def _check_structure(study: Study, *, source: str) -> None:
    """Check the rule for the structure, and the structure itself where it is given.

    Args:
        study: the study; its variables are checked already.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID or STUDY_UNSUPPORTED.
    """
    rules, rule = _Structure(study, source), study.structure
    vocabulary = {
        "method": (rule.method, METHODS),
        "score": (rule.score, scores()),
        "prefer": (rule.prefer, PREFERENCES),
    }
    for what, (value, names) in vocabulary.items():
        if value not in names:
            rules.fail(what, f"got '{value[:MAX_TEXT]}', expected one of {', '.join(names)}")
    rules.method()
    rules.numbers()
    rules.edges()
    if (rule.method == "given") != (rule.parents is not None):
        rules.fail("parents", f"'parents' go with the method 'given' and with no other, got '{rule.method}'")
    if rule.parents is not None:
        rules.check_given(rule.parents)


class _Structure:
    """The checks of one study's structure, part by part."""

    def __init__(self, study: Study, source: str) -> None:
        self.study = study
        self.source = source

    def fail(self, key: str, problem: str, *, hint: str = "") -> NoReturn:
        fail(f"{self.source}: structure.{key}", problem, hint=hint)

    def numbers(self) -> None:
        rule, genetic = self.study.structure, self.study.structure.genetic
        widest = max(self.study.schema.variables, key=lambda variable: variable.n_states)
        if widest.n_states > rule.max_family_cells:
            self.fail(
                "max_family_cells",
                f"got {rule.max_family_cells}, expected at least the {widest.n_states} categories of '{widest.name}'",
            )
        if genetic.selected > genetic.population:
            self.fail("genetic.selected", Within(1, genetic.population).problem(genetic.selected))

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
        refuse(study, METHODS[rule.method].inapplicable, source=self.source)
        if rule.score == "bdeu" and not study.samples_graphs:
            randomized = [name for unit in study.units if not unit.transition.is_identity for name in unit.variables]
            if randomized:
                names_text = ", ".join(f"'{name}'" for name in randomized[:5]) + (
                    " and others" if randomized[5:] else ""
                )
                self.fail(
                    "score",
                    f"'bdeu' takes counts for data, and {names_text} {'are' if randomized[1:] else 'is'} randomized: "
                    f"it would find "
                    "edges between independent columns",
                    hint="use 'bic' or 'bic-noise', which take the noise into account, or the method 'posterior'",
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
                if len(parents := constraints.parents_required(child)) > 1:
                    self.fail("required", f"'{name}' has {len(parents)} required parents, a {rule.method} admits one")
        if (
            rule.method == "greedy"
            and (families := _greedy_families(constraints, rule.max_parents)) > MAX_GREEDY_FAMILIES
        ):
            self.fail(
                "method",
                f"the greedy search would count some {families} families of {len(self.study.schema)} variables with "
                f"{rule.max_parents} parents each, expected at most {MAX_GREEDY_FAMILIES}",
                hint="use the method 'order' or 'tree', which look at pairs only; or allow fewer parents, or declare tiers",
            )
        if rule.order.exact and (widest := max(map(len, constraints.blocks))) > MAX_EXACT:
            self.fail(
                "order.exact",
                f"{widest} variables may stand in any order, expected at most {MAX_EXACT}",
                hint="leave it out; the search over orders comes within .5 % of the best",
            )

    def check_given(self, entries: Sequence[tuple[str, Sequence[str]]]) -> None:
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
    """Return a cycle along the edges, its first variable again at its end; empty when there is none."""
    visited: set[str] = set()
    waiting = list(parents)
    while ready := [child for child in waiting if visited.issuperset(parents[child])]:
        visited.update(ready)
        waiting = [child for child in waiting if child not in visited]
    if not waiting:
        return []
    # Every variable that is left has a parent that is left: walking from parent to parent comes back.
    path = [waiting[0]]
    while (parent := next(name for name in parents[path[-1]] if name not in visited)) not in path:
        path.append(parent)
    around = path[path.index(parent) :][::-1]
    first = min(range(len(around)), key=lambda i: list(parents).index(around[i]))
    around = around[first:] + around[:first]
    return [*around, around[0]]


def _check_prior(study: Study, *, source: str) -> None:
    """Check a study's prior: where it may stand, and the shape and range of its tables."""
    rule, schema = study.parameters, study.schema
    if rule.prior is None:
        if rule.prior_tables:
            fail(f"{source}: parameters.prior_tables", "without a prior", hint="set parameters.prior = 'dirichlet'")
        if rule.estimator == "inverse":
            fail(
                f"{source}: parameters.estimator",
                "got 'inverse', whose counts can be negative: no records can be drawn from such a model; "
                "expected em, clip or simplex",
                hint="keep em, whose release has the inverse's estimates beside; or add prior = 'dirichlet', with which the "
                "study ends where an estimated count is negative still",
            )
        return
    if rule.estimator != "inverse":
        fail(
            f"{source}: parameters.prior",
            f"with the estimator '{rule.estimator}', expected inverse",
            hint="leave the key out",
        )
    if rule.prior_count is None:
        fail(
            f"{source}: parameters.prior_count",
            "missing with a prior",
            hint="give its parameter alpha, for example prior_count = 1.0",
        )
    parents = None if study.structure.parents is None else dict(study.structure.parents)
    for name, rows in rule.prior_tables:
        where = f"{source}: parameters.prior_tables.{name}"
        if name not in schema:
            fail(where, "not a variable of the study", hint=near_hint(name, schema.names))
        child = schema.variables[schema.names.index(name)]
        configurations = 1
        if parents is not None:
            configurations = math.prod(schema.variables[schema.names.index(p)].n_states for p in parents[name])
        if len(rows) not in (1, configurations) or any(len(row) != child.n_states for row in rows):
            target = f"1 or {configurations}" if parents is not None else "1 (the structure is not given)"
            fail(where, f"{len(rows)} rows, expected {target}, each of {child.n_states} numbers")
        if not all(0 < cell <= 1e6 for row in rows for cell in row):
            fail(where, "expected numbers above 0, at most 1e6")


def _check_publish(study: Study, *, source: str) -> None:
    """Check that the gate can be kept.

    Raises:
        Misuse: STUDY_INVALID.
    """
    if study.publish is None:
        return
    where = f"{source}: publish"
    quorum, n_parties = study.publish.quorum, len(study.parties)
    if quorum is not None and not 1 <= quorum <= n_parties:
        fail(f"{where}.quorum", f"got {quorum}, expected 1 to {n_parties}, the number of parties")


def check_quorum(study: Study, *, source: str) -> None:
    """Check that the rule can be kept, and that a sub-model keeps it.

    Raises:
        Misuse: STUDY_INVALID.
    """
    rule, where = study.quorum, f"{source}: quorum"
    names = [item.party for item in study.left_out]
    if len({*names, *study.parties}) != len(names) + len(study.parties):
        fail(f"{source}: left_out", "names a party twice, or one that is in the study")
    if study.left_out and (rule is None or rule.minimum is None):
        fail(f"{source}: left_out", "stands in a study that declares no quorum.min")
    if rule is None:
        return
    if not _DEADLINE[0] <= rule.deadline_seconds <= _DEADLINE[1]:
        fail(f"{where}.deadline in seconds", f"got {rule.deadline_seconds}, expected {_DEADLINE[0]} to {_DEADLINE[1]}")
    if rule.minimum is None:
        return
    n_declared = len(study.parties) + len(study.left_out)
    if not LEAST_PARTIES <= rule.minimum <= n_declared:
        fail(f"{where}.min", f"got {rule.minimum}, expected {LEAST_PARTIES} to {n_declared}, the number of parties")
    if len(study.parties) < rule.minimum:
        fail(
            f"{source}: left_out", f"leaves {len(study.parties)} parties, expected at least {rule.minimum} (quorum.min)"
        )
    signatures = None if study.publish is None else study.publish.quorum
    if signatures is not None and signatures > rule.minimum:
        fail(
            f"{source}: publish.quorum",
            f"got {signatures}, expected at most {rule.minimum}, the parties of the smallest sub-model (quorum.min)",
            hint='countersign = "all" asks all parties that are in the sub-model',
        )

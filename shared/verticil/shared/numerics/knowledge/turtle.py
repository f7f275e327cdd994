"""Knowledge as a graph in Turtle, read into the same tables that a study's ``[[knowledge.rule]]`` has.

What may stand in it: attributes (`k:Attribute` with `k:column`), whose values are texts or `skos:Concept`s with a
`skos:notation`, grouped by `skos:broader`; `k:FunctionalDependency`, `k:Order`, `k:SoftRule`; `k:replacedBy` with `k:refinement`;
and as implications shapes of SHACL (`sh:NodeShape` with the target `k:Record`) that are made of `sh:or`, `sh:and`, `sh:not`,
`sh:path`, `sh:in` and, where categories are addresses, `k:network` (W3C, Shapes Constraint Language, sections 4.6 and 4.8.3), so
that a validator of SHACL is a second opinion. Each clause of a shape's conjunctive form becomes a rule. Any other term of these
vocabularies is refused by name, and terms of others are passed over. Nothing is ever fetched: `owl:imports` is an error.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_command
from verticil.shared.documents.toml_table import Table
from verticil.shared.numerics.knowledge.addresses import read_range
from verticil.shared.numerics.knowledge.rules import MAX_RULES

if TYPE_CHECKING:
    from rdflib import Graph
    from rdflib.term import Node

MAX_BYTES: Final = 10 * 1024**2
"""Most bytes of a file of knowledge in Turtle."""
MAX_TRIPLES: Final = 100_000
K: Final = "urn:verticil:knowledge:"
"""The vocabulary of this project."""
SH: Final = "http://www.w3.org/ns/shacl#"
SKOS: Final = "http://www.w3.org/2004/02/skos/core#"
OWL: Final = "http://www.w3.org/2002/07/owl#"
RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS: Final = "http://www.w3.org/2000/01/rdf-schema#"
_TERMS: Final = {
    K: "Attribute FunctionalDependency Order SoftRule Record column determinant dependent map otherwise lower upper strict if "
    "then probability replacedBy refinement type network flag",
    SH: "NodeShape PropertyShape targetClass path in or and not name description message",
    SKOS: "Concept ConceptScheme inScheme notation broader prefLabel altLabel definition note",
    OWL: "Ontology",
}
"""What is understood, or says something to people only."""
_DEEPEST: Final = 50
_NO_ADDRESS: Final = re.compile(r'[\x00-\x20<>"{}|\\^`]')
Literal = tuple[bool, str, frozenset[str]]
"""Whether a variable is to have one of some values, or none of them (False)."""


@dataclass(frozen=True, slots=True)
class _Atom:
    variable: str
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Made:
    """Formulas that all hold, one of which holds, or one that does not."""

    how: str
    parts: tuple[_Atom | _Made, ...]


_Formula = _Atom | _Made


def read_turtle(data: bytes, *, source: str, values: Mapping[str, Sequence[str]]) -> tuple[Table, ...]:
    """Read the rules of a file in Turtle, as tables that `reading.read_knowledge` takes.

    Args:
        data: the file, or its first `MAX_BYTES` + 1 bytes.
        source: its name, for messages.
        values: the categories of each column of the study.

    Raises:
        Misuse: STUDY_INVALID with the line where one is known; USAGE, rdflib is not installed.
    """
    if len(data) > MAX_BYTES:
        raise Misuse("STUDY_INVALID", f"{source}: more than {MAX_BYTES // 1024**2} MB, expected less")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Misuse("STUDY_INVALID", f"{source}: not UTF-8 at byte {error.start}") from None
    graph = _parse(text, source)
    return tuple(_Reader(graph, text, source, values).tables())


def _parse(text: str, source: str) -> Graph:
    try:
        from rdflib import Graph
        from rdflib.plugins.parsers.notation3 import BadSyntax
    except ModuleNotFoundError:
        raise Misuse(
            "USAGE",
            f"{source}: reading Turtle needs rdflib, which is not installed",
            hint=f"{install_command('knowledge')}; or write [[knowledge.rule]] tables",
        ) from None

    class LimitedGraph(Graph):
        def add(self, triple: Any) -> LimitedGraph:
            if len(self) >= MAX_TRIPLES:
                raise OverflowError
            return super().add(triple)

    graph = LimitedGraph(bind_namespaces="none")
    try:
        graph.parse(data=text, format="turtle", publicID="urn:verticil:file:")
    except BadSyntax as error:
        problem = f"{source}: line {error.lines + 1}: not Turtle: {getattr(error, '_why', '')}"
        raise Misuse("STUDY_INVALID", problem[:400]) from None
    except IndexError:
        line = text.rstrip().count("\n") + 1
        raise Misuse("STUDY_INVALID", f"{source}: line {line}: not Turtle: it ends within a statement") from None
    except OverflowError:
        raise Misuse("STUDY_INVALID", f"{source}: more than {MAX_TRIPLES:,} triples, expected fewer") from None
    except RecursionError:
        raise Misuse("STUDY_INVALID", f"{source}: nested too deep, expected what people write") from None
    except Exception as error:  # noqa: BLE001 - whatever a parser makes of foreign text
        raise Misuse("STUDY_INVALID", f"{source}: not Turtle ({type(error).__name__})") from None
    return graph


class _Reader:
    def __init__(self, graph: Graph, text: str, source: str, values: Mapping[str, Sequence[str]]) -> None:
        from rdflib import URIRef

        self._graph, self._text, self._source, self._values = graph, text, source, values
        self._iri = URIRef
        self._used: set[Node] = set()
        self._addresses()
        self._known_terms()
        self._columns = {node: self._one(node, K + "column") for node in self._nodes_of_type(K + "Attribute")}

    def tables(self) -> Iterable[Table]:
        self._used.update(self._columns)
        tables = [
            *itertools.chain.from_iterable(
                self._shape(node) for node in self._nodes_of_type(SH + "NodeShape", only_iris=True)
            ),
            *(self._function(node) for node in self._nodes_of_type(K + "FunctionalDependency")),
            *(self._order(node) for node in self._nodes_of_type(K + "Order")),
            *(self._soft(node) for node in self._nodes_of_type(K + "SoftRule")),
            *self._groups(),
            *(self._property(node) for node in self._subjects(K + "replacedBy")),
        ]
        self._nothing_left()
        return tables

    # ---- what is there

    def _addresses(self) -> None:
        """Refuse an address with a character that none has (RFC 3987): the parser lets it through, and nothing can write it."""
        for triple in self._graph:
            for term in triple:
                if isinstance(term, self._iri) and (match := _NO_ADDRESS.search(term)) is not None:
                    pattern = re.compile(rf"<[^>]*{re.escape(match[0])}")
                    line = next((n for n, line in enumerate(self._text.splitlines(), 1) if pattern.search(line)), None)
                    where = f"{self._source}: " + (f"line {line}: " if line is not None else "")
                    problem = f"not Turtle: {match[0]!r} stands in the address {str(term)[:100]!r}, expected none of it"
                    raise Misuse(
                        "STUDY_INVALID", where + problem, hint="mend the address, or the @prefix that it begins with"
                    )

    def _known_terms(self) -> None:
        """Refuse what is in these vocabularies and is not understood, by name and line."""
        imports = self._iri(OWL + "imports")
        for subject, predicate, item in self._graph:
            if predicate == imports:
                self._fail(
                    subject, "owl:imports: nothing is ever fetched", at=imports, hint="put all of it into this file"
                )
            terms = (predicate, item) if predicate == self._iri(RDF + "type") else (predicate,)
            for term in terms:
                space = next((space for space in _TERMS if str(term).startswith(space)), None)
                if space is not None and str(term).removeprefix(space) not in _TERMS[space].split():
                    self._fail(
                        subject,
                        f"{self._short(term)} is not understood here",
                        at=term,
                        hint=f"of that vocabulary: {', '.join(_TERMS[space].split())}",
                    )

    def _nothing_left(self) -> None:
        """Refuse a shape that nothing reaches: it would be passed over unseen."""
        for term in ("path", "in", "or", "and", "not"):
            for node in self._subjects(SH + term):
                if node not in self._used:
                    problem = f"sh:{term} of no sh:NodeShape with an IRI: it would say nothing"
                    self._fail(node, problem, at=self._iri(SH + term), hint="give its subject the type sh:NodeShape")

    @staticmethod
    def _sort(nodes: Iterable[Node]) -> list[Node]:
        return sorted(set(nodes), key=str)

    def _subjects(self, predicate: str) -> list[Node]:
        return self._sort(self._graph.subjects(self._iri(predicate), None))

    def _nodes_of_type(self, kind: str, *, only_iris: bool = False) -> list[Node]:
        nodes = self._sort(self._graph.subjects(self._iri(RDF + "type"), self._iri(kind)))
        return [node for node in nodes if isinstance(node, self._iri) or not only_iris]

    def _objects(self, node: Node, predicate: str) -> list[Node]:
        return list(self._graph.objects(node, self._iri(predicate)))

    def _object(self, node: Node, predicate: str) -> Node | None:
        objects = self._objects(node, predicate)
        if len(objects) > 1:
            self._fail(node, f"{self._short(self._iri(predicate))} stands there {len(objects)} times, expected once")
        return objects[0] if objects else None

    def _require(self, node: Node, predicate: str) -> Node:
        if (value := self._object(node, predicate)) is None:
            self._fail(node, f"{self._short(self._iri(predicate))} is missing, expected a value")
        return value

    def _one(self, node: Node, predicate: str) -> str | None:
        value = self._object(node, predicate)
        return None if value is None else str(value)

    def _read_list(self, node: Node, predicate: str, head: Node) -> list[Node]:
        """Read the members of an RDF list."""
        first, end = RDF + "first", self._iri(RDF + "nil")
        heads: set[Node] = set()
        nodes: list[Node] = []
        while head != end:
            members = self._objects(head, first)
            if len(members) != 1 or head in heads:
                self._fail(
                    node, f"{self._short(self._iri(predicate))} is no list, expected ( .. )", at=self._iri(predicate)
                )
            heads.add(head)
            nodes += members
            head = self._require(head, RDF + "rest")
        return nodes

    def _short(self, term: Node) -> str:
        return term.n3(self._graph.namespace_manager) if isinstance(term, self._iri) else "a node without an IRI"

    def _fail(self, node: Node, problem: str, *, at: Node | None = None, hint: str = "") -> NoReturn:
        line = next((line for term in (at, node) if term is not None and (line := self._line(term))), None)
        where = f"{self._source}: " + (f"line {line}: " if line is not None else "")
        subject = f"{self._short(node)}: " if isinstance(node, self._iri) else ""
        raise Misuse("STUDY_INVALID", where + subject + problem, hint=hint)

    def _line(self, term: Node) -> int | None:
        """Return the first line on which a term stands, if its written form stands in the text."""
        texts = {self._short(term), f"<{term}>"} if isinstance(term, self._iri) else set[str]()
        for number, line in enumerate(self._text.splitlines(), 1):
            code = re.sub(r'"[^"]*"', '""', line).split(" #")[0]
            if any(re.search(rf"(?<![\w:-]){re.escape(text)}(?![\w-])", code) for text in texts):
                return number
        return None

    # ---- columns and values

    def _column(self, node: Node, attribute: Node | None) -> str:
        """Return the column of an attribute."""
        if attribute is None or attribute not in self._columns:
            name = "nothing" if attribute is None else self._short(attribute)
            self._fail(node, f"got {name}, expected a k:Attribute", at=attribute)
        column = self._columns[attribute]
        if column is None:
            self._fail(attribute, "k:column is missing, expected the column's name")
        return column

    def _text_of(self, value: Node) -> str:
        """Return a literal's text, or the notation of a concept."""
        from rdflib import Literal as Written

        if isinstance(value, Written):
            return str(value)
        return str(self._require(value, SKOS + "notation"))

    def _table(self, node: Node, kind: str, suffix: str = "", /, **values: object) -> Table:
        label = self._one(node, RDFS + "label") or self._one(node, SH + "name")
        name = {} if label is None else {"name": label + suffix}
        where = self._short(node) if isinstance(node, self._iri) else kind
        body = {"kind": kind, **name, **{key: value for key, value in values.items() if value is not None}}
        return Table(body, where=where, source=self._source, code="STUDY_INVALID", file=True)

    # ---- kinds

    def _function(self, node: Node) -> Table:
        determinant = self._require(node, K + "determinant")
        is_list = bool(self._objects(determinant, RDF + "first"))
        determinants = self._read_list(node, K + "determinant", determinant) if is_list else [determinant]
        rows = self._object(node, K + "map")
        values = [
            [self._text_of(cell) for cell in self._read_list(node, K + "map", row)]
            for row in ([] if rows is None else self._read_list(node, K + "map", rows))
        ]
        otherwise = self._object(node, K + "otherwise")
        return self._table(
            node,
            "function",
            column=self._column(node, self._require(node, K + "dependent")),
            of=[self._column(node, attribute) for attribute in determinants],
            values=values,
            otherwise=None if otherwise is None else self._text_of(otherwise),
        )

    def _order(self, node: Node) -> Table:
        lower, upper = (self._column(node, self._require(node, K + key)) for key in ("lower", "upper"))
        strict = self._one(node, K + "strict") or "false"
        if strict not in ("true", "false"):
            self._fail(node, f"k:strict is '{strict[:80]}', expected true or false")
        return self._table(node, "order", lower=lower, upper=upper, strict=strict == "true")

    def _groups(self) -> Iterable[Table]:
        """Read the groups of each attribute whose concepts have broader ones."""
        for attribute in self._columns:
            members = [
                node
                for node in self._subjects(SKOS + "inScheme")
                if self._one(node, SKOS + "inScheme") == str(attribute)
            ]
            concepts = [node for node in members if self._object(node, SKOS + "broader") is not None]
            groups: dict[str, list[str]] = {}
            for node in concepts:
                group = self._require(node, SKOS + "broader")
                if group in concepts:
                    self._fail(node, "its skos:broader has a broader one itself, expected groups of one level", at=node)
                groups.setdefault(self._text_of(group), []).append(self._text_of(node))
            if groups:
                yield self._table(attribute, "groups", column=self._column(attribute, attribute), groups=groups)

    def _property(self, node: Node) -> Table:
        if node not in self._columns:
            self._fail(node, "k:replacedBy of what is no k:Attribute", at=node)
        column = self._column(node, self._require(node, K + "replacedBy"))
        rows: list[list[object]] = []
        for row in self._read_list(node, K + "refinement", self._require(node, K + "refinement")):
            cells = self._read_list(node, K + "refinement", row)
            rows.append(
                [*map(self._text_of, cells[:2]), *(self._number(node, "refinement", cell) for cell in cells[2:])]
            )
        return self._table(node, "property", column=column, type=self._one(node, K + "type"), values=rows)

    def _number(self, node: Node, key: str, value: Node) -> float:
        try:
            return float(str(value))
        except ValueError:
            self._fail(node, f"k:{key}: got '{str(value)[:80]}', expected a number", at=self._iri(K + key))

    # ---- shapes

    def _shape(self, node: Node) -> Iterable[Table]:
        target = self._object(node, SH + "targetClass")
        if target is None and next(self._graph.subjects(None, node), None) is not None:
            return  # a part of another shape; `_nothing_left` sees whether it was one
        if target != self._iri(K + "Record"):
            name = "nothing" if target is None else self._short(target)
            self._fail(node, f"sh:targetClass is {name}, expected k:Record: a rule is about every record")
        clauses = dict.fromkeys(self._clauses(node, self._formula(node, 0)))
        flag = self._flag(node)
        if flag is not None and (len(clauses) != 1 or not all(self._sides(clause)[1] for clause in clauses)):
            problem = f"{len(clauses)} rules in one, expected an implication of conditions that all hold, which a flag can tell"
            self._fail(node, problem, at=self._iri(K + "flag"))
        for number, clause in enumerate(clauses, 1):
            when, then = self._sides(clause)
            suffix = "" if number == 1 else f" ({number})"
            if then:
                yield self._table(node, "implication", suffix, **{"if": when, "then": then, "flag": flag})
            else:
                yield self._table(node, "forbidden", suffix, all=when)

    def _soft(self, node: Node) -> Table:
        when, then = (self._formula(self._require(node, K + key), 0) for key in ("if", "then"))
        clauses = self._clauses(node, _Made("or", (_Made("not", (when,)), then)))
        if len(clauses) != 1:
            self._fail(
                node, f"{len(clauses)} rules in one, expected conditions that all hold, and one of some that follows"
            )
        sides = self._sides(clauses[0])
        probability = self._number(node, "probability", self._require(node, K + "probability"))
        parts = {"if": sides[0], "then": sides[1], "probability": probability, "flag": self._flag(node)}
        return self._table(node, "soft", "", **parts)

    def _flag(self, node: Node) -> str | None:
        """Return the column of a rule's flag."""
        attribute = self._object(node, K + "flag")
        return None if attribute is None else self._column(node, attribute)

    def _formula(self, node: Node, depth: int) -> _Formula:
        """Read what a shape asks of a record."""
        self._used.add(node)
        if depth > _DEEPEST:
            self._fail(node, f"shapes nested deeper than {_DEEPEST}, or in a circle")
        path = self._object(node, SH + "path")
        if path is not None:
            column = self._column(node, path)
            return _Atom(column, self._value_set(node, column, depth, top=True))
        if self._objects(node, SH + "in"):
            self._fail(
                node, "sh:in without sh:path, expected the attribute whose values these are", at=self._iri(SH + "in")
            )
        return _Made("and", tuple(self._parts(node, depth)))

    def _parts(self, node: Node, depth: int) -> Iterable[_Formula]:
        has_part = False
        for how in ("and", "or"):
            if (head := self._object(node, SH + how)) is not None:
                has_part = True
                members = self._read_list(node, SH + how, head)
                yield _Made(how, tuple(self._formula(member, depth + 1) for member in members))
        if (inner := self._object(node, SH + "not")) is not None:
            has_part = True
            yield _Made("not", (self._formula(inner, depth + 1),))
        if not has_part:
            self._fail(node, "a shape without sh:path, sh:or, sh:and and sh:not, expected one of them")

    def _value_set(self, node: Node, column: str, depth: int, *, top: bool = False) -> frozenset[str]:
        """Read the values that a shape of values permits."""
        self._used.add(node)
        if depth > _DEEPEST:
            self._fail(node, f"shapes nested deeper than {_DEEPEST}, or in a circle")
        if not top and self._objects(node, SH + "path"):
            self._fail(node, "sh:path within sh:path, expected shapes of values there", at=self._iri(SH + "path"))
        sets: list[frozenset[str]] = []
        if (head := self._object(node, SH + "in")) is not None:
            sets.append(frozenset(self._text_of(value) for value in self._read_list(node, SH + "in", head)))
        if (network := self._object(node, K + "network")) is not None:
            sets.append(self._of_network(node, column, self._text_of(network)))
        for how in ("and", "or"):
            if (head := self._object(node, SH + how)) is not None:
                inner = [self._value_set(each, column, depth + 1) for each in self._read_list(node, SH + how, head)]
                empty: frozenset[str] = frozenset()
                sets.append(empty.union(*inner) if how == "or" else inner[0].intersection(*inner) if inner else empty)
        if (inverse := self._object(node, SH + "not")) is not None:
            sets.append(frozenset(self._values.get(column, ())) - self._value_set(inverse, column, depth + 1))
        if not sets:
            self._fail(
                node,
                "sh:path without sh:in and k:network, expected the values that are meant",
                at=self._iri(SH + "path"),
            )
        return sets[0].intersection(*sets)

    def _of_network(self, node: Node, column: str, text: str) -> frozenset[str]:
        """Return the categories that are addresses of a network or a range."""
        try:
            addresses = read_range(text)
        except ValueError as error:
            self._fail(node, f"k:network: {error}", at=self._iri(K + "network"))
        labels = frozenset(label for label in self._values.get(column, ()) if addresses.holds(label))
        if not labels:
            self._fail(node, f"no category of '{column}' is an address of k:network", at=self._iri(K + "network"))
        return labels

    def _clauses(self, node: Node, formula: _Formula) -> list[tuple[Literal, ...]]:
        clauses = list(
            _conjunctive(formula, holds=True, limit=lambda: self._fail(node, f"more than {MAX_RULES} rules in one"))
        )
        return [clause for clause in clauses if not self._always(clause)]

    def _always(self, clause: Sequence[Literal]) -> bool:
        """Return whether a clause rules out nothing: some variable cannot have all that it would need to break it."""
        negations = [literal for literal in clause if not literal[0]]
        return any(
            not frozenset.intersection(*(values for _, name, values in negations if name == variable))
            for variable in {name for _, name, _ in negations}
        )

    def _sides(self, clause: Sequence[Literal]) -> tuple[dict[str, object], list[dict[str, object]]]:
        """Return when a rule holds, and one of what follows then, as the keys of its table."""
        when: dict[str, frozenset[str]] = {}
        then: dict[str, frozenset[str]] = {}
        for holds, variable, values in clause:
            if holds:
                then[variable] = then.get(variable, frozenset()) | values
            else:
                when[variable] = when.get(variable, values) & values
        if not when:  # one of several: where the first is not, one of the others is
            first = min(then, key=lambda name: list(self._values).index(name) if name in self._values else math.inf)
            return {first: {"not": self._in_order(first, then.pop(first))}}, self._alternatives(then)
        return {name: self._in_order(name, values) for name, values in when.items()}, self._alternatives(then)

    def _alternatives(self, then: Mapping[str, frozenset[str]]) -> list[dict[str, object]]:
        return [{name: self._in_order(name, values)} for name, values in then.items()]

    def _in_order(self, variable: str, values: frozenset[str]) -> list[str]:
        """Return the values in the column's order, and behind them those that it does not have."""
        own = list(self._values.get(variable, ()))
        return [value for value in own if value in values] + sorted(values - set(own))


def _conjunctive(formula: _Formula, *, holds: bool, limit: Any) -> list[tuple[Literal, ...]]:
    """Return the conjunctive form of a formula, or of its negation: clauses of which each has a literal that is met."""
    if isinstance(formula, _Atom):
        return [((holds, formula.variable, formula.values),)]
    if formula.how == "not":
        return _conjunctive(formula.parts[0], holds=not holds, limit=limit)
    parts = [_conjunctive(part, holds=holds, limit=limit) for part in formula.parts]
    if (formula.how == "and") == holds:
        return [clause for part in parts for clause in part]
    if math.prod(map(len, parts)) > MAX_RULES:
        limit()
    return [tuple(dict.fromkeys(itertools.chain(*choice))) for choice in itertools.product(*parts)]

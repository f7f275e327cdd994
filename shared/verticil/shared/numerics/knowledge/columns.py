"""The columns of a release's table: the schema's variables and those that follow from them, with the finer values of properties.

Synthetic records are drawn as codes of the schema's variables. What is written of them has besides, at its place, every variable
that is a function of others (looked up from their codes), and in place of a property one of its finer values, drawn from the
published weights. A flag of a rule is a variable as others are, which its party writes (`flag_codes`). `complete_network` is the
network with what follows from others in it, for programs that open it elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.knowledge.rules import Condition, Flag, Function, Knowledge, Refinement
from verticil.shared.numerics.knowledge.support import function_codes
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable

MAX_NODE_CELLS: Final = 100_000
"""Of the table of a variable that follows from others, where it is a node of a network; beyond, it is left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What is written of records, and how it hangs together with their codes.

    Attributes:
        schema: the variables that records are drawn of.
        published: the columns of the table, in their order.
    """

    schema: Schema
    published: Schema
    _functions: tuple[tuple[Function, NDArray[np.uint16]], ...]
    _finer: dict[str, _Finer]

    def draw_columns(self, codes: Sequence[Codes], generator: np.random.Generator) -> list[Codes]:
        """Return the codes of all columns, finer values drawn.

        Args:
            codes: (n,) of each variable of the schema.
            generator: draws the finer values; advanced where there are any.

        Returns:
            (n,) of each column, in the order of `published`.
        """
        columns = dict(zip(self.published.names, self.compute_columns(codes), strict=True))
        for name, finer in self._finer.items():
            columns[name] = finer.draw(columns[name], generator)
        return list(columns.values())

    def compute_columns(self, codes: Sequence[Codes]) -> list[Codes]:
        """Return the codes of all columns with properties as they are, for `draw_columns`; arguments as there."""
        columns = self._with_functions(dict(zip(self.schema.names, codes, strict=True)))
        return [columns[name] for name in self.published.names]

    def read(self, columns: Sequence[Codes]) -> list[Codes]:
        """Return the codes of the schema's variables, of records that are written.

        Args:
            columns: (n,) of each column, in the order of `published`.

        Raises:
            ValueError: a record has a value that does not follow from the others, in words that start with the column.
        """
        by_name = dict(zip(self.published.names, columns, strict=True))
        for name, finer in self._finer.items():
            by_name[name] = finer.property_of[by_name[name]]
        follows = self._with_functions({name: by_name[name] for name in self.schema.names})
        for function, _ in self._functions:
            name = function.variable.name
            if not np.array_equal(follows[name], by_name[name]):
                raise ValueError(f"column '{name}' is not what follows from {', '.join(function.of)}")
        return [by_name[name] for name in self.schema.names]

    def _with_functions(self, codes: dict[str, Codes]) -> dict[str, Codes]:
        for function, table in self._functions:
            codes[function.variable.name] = table[tuple(codes[name] for name in function.of)].astype(
                function.variable.code_dtype
            )
        return codes


@dataclass(frozen=True, slots=True, eq=False)
class _Finer:
    """Finer values of one variable's categories, those of a category side by side.

    Attributes:
        property_of: (values,), the category of each.
        ends: (values,), the category plus the share of its values up to this one.
        last: (categories,), the last value of each.
    """

    property_of: Codes
    ends: NDArray[np.float64]
    last: NDArray[np.intp]

    def draw(self, codes: Codes, generator: np.random.Generator) -> Codes:
        """Draw a finer value for each record, with the published weights."""
        places = np.searchsorted(self.ends, codes + generator.random(len(codes)), side="right")
        # A sum just below the next whole number may be rounded to it.
        return np.minimum(places, self.last[codes]).astype(np.uint16)


def columns(knowledge: Knowledge | None, schema: Schema) -> Columns:
    """Return the columns of a release.

    Args:
        knowledge: what is stated; None: the columns are the schema's variables.
        schema: the study's variables.
    """
    statements = Knowledge() if knowledge is None else knowledge
    variables = {variable.name: variable for variable in schema.variables}
    functions: list[tuple[Function, NDArray[np.uint16]]] = []
    for function in statements.functions:
        functions.append((function, function_codes(function, [variables[name] for name in function.of])))
        variables[function.variable.name] = function.variable
    finer = {item.variable: _finer(variables[item.variable], item) for item in statements.refinements}
    finer_variables = {
        item.variable: refined_variable(variables[item.variable], item) for item in statements.refinements
    }
    order = [finer_variables.get(name, variables[name]) for name in schema.names]
    for function in statements.functions:
        order.insert(function.position, function.variable)
    return Columns(schema, Schema(variables=tuple(order)), tuple(functions), finer)


def node_cells(knowledge: Knowledge | None, schema: Schema) -> dict[str, int]:
    """Return the variables that follow from others and are nodes of `complete_network`, and how many cells each one's
    table has.

    Not those whose table would have more than `MAX_NODE_CELLS`, nor those that follow from them.
    """
    sizes, cells_of = dict(zip(schema.names, schema.n_states, strict=True)), dict[str, int]()
    for function in () if knowledge is None else knowledge.functions:
        name, states = function.variable.name, function.variable.n_states
        cells = states * math.prod(sizes.get(of, MAX_NODE_CELLS) for of in function.of)
        if cells <= MAX_NODE_CELLS:
            sizes[name], cells_of[name] = states, cells
    return cells_of


def complete_network(network: Network, knowledge: Knowledge | None) -> Network:
    """Add to a network a deterministic node for each variable that follows from others: a table row is 1 at one
    category.

    Args:
        network: of the study's variables.
        knowledge: what is stated; None: the network is complete.

    Returns:
        Over the variables in the order of the release's columns; see `node_cells`.
    """
    schema = network.schema
    nodes = node_cells(knowledge, schema)
    if knowledge is None or not nodes:
        return network
    variables = {variable.name: variable for variable in (*schema.variables, *knowledge.variables)}
    order = [name for name in columns(knowledge, schema).published.names if name in schema.names or name in nodes]
    families: list[Family] = []
    for child, name in enumerate(order):
        if (function := knowledge.function(name)) is None:
            own = network.families[schema.index(name)]
            parents = tuple(order.index(schema.names[parent]) for parent in own.parents)
            families.append(dataclasses.replace(own, child=child, parents=parents))
            continue
        places = [order.index(of) for of in function.of]
        codes = function_codes(function, [variables[of] for of in function.of])
        ascending = codes.transpose(sorted(range(len(places)), key=places.__getitem__))
        rows = np.eye(variables[name].n_states)[ascending.reshape(-1)]
        families.append(
            Family(
                child=child,
                parents=tuple(sorted(places)),
                probability=rows,
                estimate=rows,
                standard_error=np.zeros_like(rows),
                interval_low=rows,
                interval_high=rows,
                unstable=np.zeros(rows.shape, dtype=np.bool_),
            )
        )
    return Network(
        schema=Schema(variables=tuple(variables[name] for name in order)),
        dag=Dag(parents=tuple(family.parents for family in families)),
        families=tuple(families),
    )


def narrow_knowledge(knowledge: Knowledge, schema: Schema, stay: Collection[str]) -> Knowledge | None:
    """Return what is left of knowledge about some variables: a rule that names another one goes, and nothing takes its
    place.

    A function stays if its party has a variable that stays, and it follows from variables that do. What other rules imply through
    a variable that goes is lost with them.

    Args:
        knowledge: about all variables.
        schema: all variables of the study.
        stay: names of those that stay, of the schema.

    Returns:
        None: nothing is left.
    """
    owners = {variable.owner for variable in schema.variables if variable.name in stay}
    names, functions = set(stay), list[Function]()
    for function in knowledge.functions:
        if function.variable.owner in owners and names.issuperset(function.of):
            functions.append(function)
            names.add(function.variable.name)
    order = [name for name in columns(knowledge, schema).published.names if name in names]

    def stays(*conditions: Condition) -> bool:
        return all(condition.variable in names for condition in conditions)

    rest = Knowledge(
        rules=tuple(item for item in knowledge.rules if stays(*item.when, *item.then)),
        orders=tuple(item for item in knowledge.orders if names.issuperset(item.variables)),
        functions=tuple(dataclasses.replace(item, position=order.index(item.variable.name)) for item in functions),
        groups=tuple(item for item in knowledge.groups if item.variable in names),
        refinements=tuple(item for item in knowledge.refinements if item.variable in names),
        soft=tuple(item for item in knowledge.soft if stays(*item.when, *item.then)),
        flags=tuple(item for item in knowledge.flags if item.variable in names and stays(*item.when)),
    )
    return rest if rest.names else None


def flag_codes(flag: Flag, variables: Mapping[str, Variable], codes: Mapping[str, Codes]) -> Codes:
    """Return the codes of a flag: 1 where all its conditions hold, else 0.

    Args:
        flag: of a rule.
        variables: by name, those of its conditions among them.
        codes: (n,) of each.

    Returns:
        (n,), uint8, read-only.
    """
    applies = np.ones(len(codes[flag.when[0].variable]), dtype=np.bool_)
    for condition in flag.when:
        among = np.array([label in condition.values for label in variables[condition.variable].labels])
        applies &= among[codes[condition.variable]]
    flags: Codes = applies.astype(np.uint8)
    flags.setflags(write=False)
    return flags


def refined_variable(variable: Variable, refinement: Refinement) -> Variable:
    """Return the variable with its finer values as categories; a category without any is its own."""
    labels = tuple(value for label in variable.labels for value, _ in _values(label, refinement))
    return dataclasses.replace(variable, labels=labels, other=None, missing=None)


def _values(label: str, refinement: Refinement) -> list[tuple[str, float]]:
    return [(value, weight) for own, value, weight in refinement.values if own == label] or [(label, 1.0)]


def _finer(variable: Variable, refinement: Refinement) -> _Finer:
    weights = [np.array([weight for _, weight in _values(label, refinement)]) for label in variable.labels]
    ends = [code + np.cumsum(own) / own.sum() for code, own in enumerate(weights)]
    for code, own in enumerate(ends):
        own[-1] = code + 1
    sizes = [len(own) for own in weights]
    return _Finer(
        np.repeat(np.arange(len(sizes), dtype=np.uint16), sizes),
        np.concatenate(ends),
        np.cumsum(sizes, dtype=np.intp) - 1,
    )

"""A joint model in a release: the key `joint` of model.json, and joint.bifxml, a network with one root that is no column.

In model.json probabilities are whole numbers of units of 2^-24 (`model.rounding`), so they are exact and short:

    {"kind": "mixture", "unit": 2^-24, "weights": [M numbers], "tables": [{"variable", "probability": [M rows of K numbers]}, ..]}
    {"kind": "records", "unit": 2^-24, "weights": [A numbers], "tables": [{"variable", "codes": text}, ..]}

The share of a combination is the sum over all components of the weight times the probability of each of its categories in the
component. A weighted record is a component in which each variable has one category for sure: its code, the position among the
variable's categories. `codes` is the Base64 (RFC 4648) of A codes, one byte each up to 256 categories, else two, the lower first.

joint.bifxml says the same in XMLBIF 0.3, for every program that queries Bayesian networks: the root's outcomes are the components
(``c0``, ``c1``, ..), and every column has the root as its only parent; the row of a weighted record is 1 at its code and else 0.
A column that follows from others has these as parents.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.json_document import Json, JsonNode
from verticil.shared.numerics.model.joint import JointModel, Mixture, WeightedRecords
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.rounding import RESOLUTION
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.release.formats.bif import escape, xml_definition, xml_rows, xml_variable, xmlbif

FILE: Final = "joint.bifxml"
LIMIT: Final = 20_000_000
"""Bytes of the file at most."""
_NUMBER: Final = 24  # bytes of a written one, and what is between
_OUTCOME: Final = 28  # bytes of a component's line
ROOT: Final = "component"

_STATEMENT: Final = {
    "mixture": "The share of a combination of categories is the sum over the components of the component's weight times the "
    "probabilities of the categories in it: a row of each table for each component, a column for each category.",
    "records": "The share of a combination of categories is the sum of the weights of the records that have it. codes: Base64 of "
    "each record's position among the variable's categories, one byte, above 256 categories two, the lower first.",
}


def most_components(schema: Schema) -> int:
    """Components that a mixture can have, to be published."""
    return (LIMIT - _head(schema)) // (_NUMBER * sum(schema.n_states) + _OUTCOME + _NUMBER)


def most_records(schema: Schema) -> int:
    """Weighted records that can be published."""
    return (LIMIT - _head(schema)) // (2 * sum(schema.n_states) + _OUTCOME + _NUMBER)


def fits(model: JointModel, schema: Schema) -> bool:
    """Return whether a joint model can be published, whatever its numbers are."""
    return len(model.weights) <= (most_components(schema) if isinstance(model, Mixture) else most_records(schema))


def _head(schema: Schema) -> int:
    """Bytes of the file for the columns themselves."""
    return 2000 + 3 * sum(len(xml_variable(variable).encode()) for variable in schema.variables)


def root_name(schema: Schema) -> str:
    """Return the name of the root in the file: one that no column has, without regard to case.

    >>> from verticil.shared.numerics.model.schema import Variable
    >>> root_name(Schema(variables=(Variable(name="Component", owner="a", labels=("no", "yes")),)))
    'component_2'
    """
    names_in_use = {name.casefold() for name in schema.names}
    names = itertools.chain([ROOT], (f"{ROOT}_{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in names_in_use)


def to_xmlbif(model: JointModel, schema: Schema, complete: Network | None = None) -> bytes:
    """Return the file as text.

    Args:
        model: rounded (`model.rounding.round_joint`).
        schema: its variables.
        complete: a network of these and of columns that follow from them, as which they are written too; None: there is none.

    Raises:
        DataFault: LEARNING_FAILED, it would be larger than `LIMIT`.
    """
    following = (
        () if complete is None else [f for f in complete.families if _name(complete, f.child) not in schema.names]
    )
    root = root_name(schema if complete is None else complete.schema)
    outcomes = "".join(f"  <OUTCOME>c{place}</OUTCOME>\n" for place in range(len(model.weights)))
    element = f'<VARIABLE TYPE="nature">\n  <NAME>{escape(root)}</NAME>\n{outcomes}</VARIABLE>'
    elements = [element, *map(xml_variable, schema.variables)]
    definitions = [
        xml_definition(root, (), xml_rows(model.weights[None, :])),
        *(xml_definition(name, (root,), _rows(model, place)) for place, name in enumerate(schema.names)),
    ]
    text = xmlbif(elements, definitions)
    if len(text) > LIMIT:
        what = "components" if isinstance(model, Mixture) else "records"
        most = most_components(schema) if isinstance(model, Mixture) else most_records(schema)
        raise DataFault(
            "LEARNING_FAILED",
            f"{FILE}: the joint model of {len(model.weights)} {what} would take {len(text) / 1e6:.1f} MB, "
            f"expected at most {LIMIT / 1e6:.0f} MB: about {most} {what} for {sum(schema.n_states)} categories",
            hint='use sample_from = "network", or merge categories',
        )
    if complete is None or not following:
        return text
    elements += [xml_variable(complete.schema[family.child]) for family in following]
    definitions += [
        xml_definition(_name(complete, f.child), [_name(complete, p) for p in f.parents], xml_rows(f.probability))
        for f in following
    ]
    return xmlbif(elements, definitions)


def _name(network: Network, variable: int) -> str:
    return network.schema[variable].name


def _rows(model: JointModel, variable: int) -> list[str]:
    if isinstance(model, Mixture):
        return xml_rows(model.probability[variable])
    n_states = model.n_states[variable]
    hot = [" ".join("1" if place == code else "0" for place in range(n_states)) for code in range(n_states)]
    return [" ".join(hot[code] for code in model.codes[:, variable])]  # a line for each would be many more bytes


def document(model: JointModel, schema: Schema) -> dict[str, Json]:
    """Return the value of the key in model.json; see the module's text.

    Args:
        model: rounded.
        schema: its variables.

    Raises:
        ValueError: it is not rounded.
    """
    kind = "mixture" if isinstance(model, Mixture) else "records"
    return {
        "kind": kind,
        "statement": _STATEMENT[kind],
        "unit": 1 / RESOLUTION,
        "weights": _units(model.weights[None, :])[0],
        "tables": [
            {"variable": name, "probability": _units(model.probability[place])}
            if isinstance(model, Mixture)
            else {"variable": name, "codes": _packed(model.codes[:, place], schema.n_states[place])}
            for place, name in enumerate(schema.names)
        ],
    }


def _units(table: Floats) -> list[list[Json]]:
    units = table * RESOLUTION
    if not (units == np.rint(units)).all():
        raise ValueError("a joint model is published rounded: a probability is no multiple of 2^-24")
    rows: list[list[Json]] = units.astype(np.int64).tolist()
    return rows


def _packed(codes: NDArray[np.uint16], n_states: int) -> str:
    return base64.b64encode(codes.astype(_width(n_states)).tobytes()).decode("ascii")


def _width(n_states: int) -> str:
    return "u1" if n_states <= 256 else "<u2"


def read(node: JsonNode, schema: Schema) -> JointModel:
    """Read the key of a model.json back: the model as it was written.

    Raises:
        GateFailed: RELEASE_INVALID, it is no joint model of these variables.
    """
    weights, tables = node["weights"], node["tables"].items()
    if node["unit"].number() * RESOLUTION != 1:
        node["unit"].fail(f"expected 2^-24, {1 / RESOLUTION!r}")
    if [table["variable"].text() for table in tables] != list(schema.names):
        node["tables"].fail("expected one for each variable, in their order")
    if (kind := node["kind"].text()) not in _STATEMENT:
        node["kind"].fail(f"expected {' or '.join(_STATEMENT)}")
    try:
        if kind == "mixture":
            return Mixture(
                weights=np.array(weights.floats()) / RESOLUTION,
                probability=tuple(
                    _probability(table["probability"], k) for table, k in zip(tables, schema.n_states, strict=True)
                ),
            )
        columns = [_codes(table["codes"], k) for table, k in zip(tables, schema.n_states, strict=True)]
        return WeightedRecords(
            n_states=schema.n_states,
            codes=np.stack(columns, axis=1),
            weights=np.array(weights.floats()) / RESOLUTION,
        )
    except ValueError as error:
        return node.fail(str(error))


def _probability(node: JsonNode, n_states: int) -> Floats:
    rows = [row.floats() for row in node]
    if any(len(row) != n_states for row in rows):
        node.fail(f"expected {n_states} numbers in each row")
    return np.array(rows, dtype=np.float64).reshape(-1, n_states) / RESOLUTION


def _codes(node: JsonNode, n_states: int) -> NDArray[np.uint16]:
    try:
        data = base64.b64decode(node.text(), validate=True)
    except binascii.Error:
        node.fail("expected Base64")
    return np.frombuffer(data, dtype=_width(n_states)).astype(np.uint16)

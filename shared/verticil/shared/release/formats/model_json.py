"""model.json: the published model, whole. Everything that a reader needs to use it, judge it and sample from it stands in here.

The document is canonical JSON (RFC 8785): the same model gives the same bytes. It holds the variables with their owners and
their categories in order, the graph, for every cell of every conditional table the probability that is sampled from, the
unbiased estimate, its standard error and interval, the one-way shares, and the privacy figures of each column and of one
person.

One layout for all tables: a table has a row for each configuration of the parents and a column for each category of the child;
configurations run through the parents' categories in order, the last parent fastest. null stands for what could not be
estimated.

In Model I (`peer`) it also says, for each table, which party learned it and from which columns of others, who read which
randomized column, and whether the numbers are exact functions of raw data.

Where synthetic records come from a joint model of all tables, the key `joint` holds it (`formats.joint`) and how it was fitted.
`worth` has the estimated distances of records to the people (`verticil.shared.numerics.joint.worth`).
Releases of 1.0.0 whose study left open what they come from have `sampled_from`, {"joint": share, "network": share}.
What a study states of all records, and nobody learned, `knowledge` repeats in the form of study.json: the variables that follow
from others are there and not among `variables`. `deterministic` has these as nodes, with the same layout of tables: with
`variables` and `families` they are a network of all columns.

Intervals are conditional on the structure: they say how well the numbers are known if the arrows are right, not how sure the
arrows are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import rfc8785
from numpy.typing import NDArray

from verticil.shared.core.errors import GateFailed
from verticil.shared.documents.json_document import Json, JsonNode, parse
from verticil.shared.documents.record import write as written
from verticil.shared.numerics.estimation.estimators import ESTIMATORS
from verticil.shared.numerics.estimation.parent_smoothing import RECORDS
from verticil.shared.numerics.joint.worth import KEY as WORTH
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Family, Marginal, Network, PairAccuracy, Projection
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.release.formats import joint
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of

FORMAT: Final = "verticil-model"
VERSION: Final = 1

STRUCTURE_STATEMENT: Final = (
    "Intervals and standard errors are conditional on the structure: "
    "they cover sampling and randomization, not the choice of edges."
)
_LAYOUT: Final = (
    "Tables have one row for each configuration of the parents (in the order of their categories, the last parent fastest) "
    "and one column for each category of the child. null: not estimable."
)

_LEANING: Final = (
    f"each row leans on the table with a parent less, which counts for {RECORDS:g} records, of randomized columns for as many "
    "more as their noise asks"
)


_PAIRS: Final = (
    "Shares of all people; a row for each category of the first variable, a column for each of the second. estimate: unbiased. "
    "interval: all of a table hold together with the interval level. The verdict is about the network. null: not shown, because "
    "the columns are not randomized and few people are in the cell."
)

_IMPLIED: Final = (
    "the family's own table was not measured: estimate, standard error and interval are those of the joint model of the tables "
    "that were, by a parametric bootstrap"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelContext:
    """What the document says besides the model itself.

    Attributes:
        study: the effective study.
        study_digest: of the proposal, lower-case hex.
        effective_digest: of the effective study, lower-case hex.
        n_common: how many people the model was estimated from.
        search: how the structure was found (method, seed, generations, fitness, ..).
        simulation: the study was simulated on one machine.
        pairs: how far the model is from what is known of pairs; the document has the key only where there are any.
        warnings: for people, what not to trust; the document has the key only where there are any.
        joint: what synthetic records were drawn from, rounded; None: from the network, and the document has no such key.
        joint_facts: how the joint model was fitted.
        complete: the network with nodes for the variables that follow from others; None: none does, and the document has no
            such key.
    """

    study: Study
    study_digest: str
    effective_digest: str
    n_common: int
    search: Mapping[str, Json]
    simulation: bool
    warnings: tuple[str, ...] = ()
    pairs: tuple[PairAccuracy, ...] = ()
    joint: JointModel | None = None
    joint_facts: Mapping[str, Json] = field(default_factory=dict)
    complete: Network | None = None


def write(network: Network, marginals: tuple[Marginal, ...], context: ModelContext) -> bytes:
    """Write model.json.

    Args:
        network: the model.
        marginals: the one-way shares to publish, one for each variable at most.
        context: study, digests and counts.

    Returns:
        Canonical JSON.
    """
    study = context.study
    names = network.schema.names
    statement = protocol_of(study).statement(study, network.dag)
    from_joint = context.joint is not None
    origin = (
        "of the network; records come from the joint model"
        if from_joint
        else "of the consensus; records come from the networks in posterior.json"
        if study.records_from == "posterior"
        else "what is sampled from"
    )
    document: dict[str, Json] = {
        "format": FORMAT,
        "version": VERSION,
        "study": {
            "id": study.id,
            "title": study.title,
            "purpose": study.purpose,
            "model": study.model,
            "study_digest": context.study_digest,
            "effective_digest": context.effective_digest,
        },
        "parties": list(study.parties),
        **({"parties_left_out": [written(item) for item in study.left_out]} if study.left_out else {}),
        "n_common": context.n_common,
        "simulation": context.simulation,
        **({"warnings": list(context.warnings)} if context.warnings else {}),
        "privacy": privacy_statement(study, network.dag).document(),
        "variables": [_variable(variable) for variable in network.schema.variables],
        "structure": {
            "edges": [[names[parent], names[child]] for parent, child in network.dag.edges()],
            "search": dict(context.search),
            **_custom_network(study),
        },
        "parameters": {
            "layout": _LAYOUT,
            "probability": f"{origin}: {ESTIMATORS[study.parameters.estimator].counts}; {_prior(study)}",
            "estimate": "unbiased: from the inverse of the randomization, not clipped, so it can lie outside 0 to 1",
            "standard_error": "of the estimate; sampling and randomization together",
            "interval": "from the estimate, then cut to 0 to 1; null where unstable",
            **(
                {
                    "replaced": "the probability is a backed-off value, because too few people are in the cell; not estimated"
                }
                if statement is not None and statement.replaces
                else {}
            ),
            "unstable": "the parent configuration's estimated count is below 3 of its standard deviations",
            **({"implied": _IMPLIED} if any(family.implied for family in network.families) else {}),
            "interval_level": study.parameters.interval_level,
            **({} if study.parameters.prior_count is None else {"prior_count": study.parameters.prior_count}),
            "statement": STRUCTURE_STATEMENT,
            "projection": {
                "estimator": study.parameters.estimator,
                "mass_moved": "half the L1 distance between the family's unbiased counts and those behind its probabilities, "
                "the prior's included, as a share of n_common",
                "negative_cells": "how many of the family's unbiased counts are negative",
            },
        },
        "families": [
            {**_family(family, names), **({} if statement is None else statement.of_family(family.child))}
            for family in network.families
        ],
        "marginals": [_marginal(marginal, names) for marginal in marginals],
    }
    if context.pairs:
        sentence = _PAIRS.replace("about the network", "about the joint model") if from_joint else _PAIRS
        document["pairs"] = {"statement": sentence, "tables": [_pair(pair, names) for pair in context.pairs]}
    facts = dict(context.joint_facts)
    if (worth := facts.pop(WORTH, None)) is not None:
        document[WORTH] = worth
    if context.joint is not None:
        document["joint"] = {**joint.document(context.joint, network.schema), "fit": facts}
    if statement is not None:
        document[statement.key] = statement.document()
    if study.knowledge is not None:
        document["knowledge"] = written(study.knowledge)
    if context.complete is not None and (nodes := deterministic(context.complete, network.schema)):
        document["deterministic"] = nodes
    return rfc8785.dumps(cast("dict[str, object]", document))  # type: ignore[arg-type]  # rfc8785 types its input as dict and list


def deterministic(complete: Network, schema: Schema) -> list[Json]:
    """Return the value of the key `deterministic`: the nodes of a network whose variables are not in the schema, each
    whole.
    """
    names = complete.schema.names
    return [
        {
            "variable": _variable(complete.schema[family.child]),
            "parents": [names[parent] for parent in family.parents],
            "probability": numbers(family.probability),
        }
        for family in complete.families
        if names[family.child] not in schema.names
    ]


def _prior(study: Study) -> str:
    count = study.parameters.prior_count
    return _LEANING if count is None else f"a prior of {count:g} records is added to every cell"


def _pair(pair: PairAccuracy, names: tuple[str, ...]) -> Json:
    return {
        "variables": [names[pair.first], names[pair.second]],
        "verdict": pair.verdict,
        "estimate": numbers(pair.estimate),
        "interval": _intervals(pair.low, pair.high),
        "network": numbers(pair.network),
        **({} if pair.joint is None else {"joint": numbers(pair.joint)}),
        "synthetic": numbers(pair.synthetic),
    }


def _custom_network(study: Study) -> dict[str, Json]:
    """Return what a custom network promises, in studies that ask for one."""
    if (custom := study.custom_network()) is None:
        return {}
    names = study.schema.names
    return {
        "custom_network": {
            "target": names[custom.target],
            "sensitive": [names[v] for v in custom.sensitive],
            "hidden_from": [names[v] for v in custom.hidden_from],
            "verified": "by d-separation on the edges above",
            "consequence": custom.promise(names),
        }
    }


def read(data: bytes) -> Network:
    """Read the network of a model.json back: schema, graph and all tables, as they were written.

    Raises:
        GateFailed: RELEASE_INVALID, when it is not such a document or its parts do not fit together; RELEASE_UNSUPPORTED, a
            program before 1.0.0 made it.
    """
    root = parse(data, source="model.json")
    if (actual := root["format"].text()) != FORMAT:
        root["format"].fail(f"got '{actual}', expected '{FORMAT}'")
    if (version := root["version"].integer()) != VERSION:
        root["version"].fail(f"got {version}, this software reads {VERSION}")
    if (privacy := root.get("privacy")) is not None and privacy.get("accounts") is None:
        raise GateFailed(
            "RELEASE_UNSUPPORTED",
            "model.json: of before version 1.0.0 of verticil, which this version does not read",
            hint="begin anew: publish the study again with 1.0.0; what is there stays",
        )
    try:
        schema = Schema(variables=tuple(_read_variable(node) for node in root["variables"]))
        families = tuple(_read_family(node, schema) for node in root["families"])
        dag = Dag(parents=tuple(family.parents for family in families))
        return Network(schema=schema, dag=dag, families=families)
    except ValueError as error:
        raise GateFailed("RELEASE_INVALID", f"model.json: {error}") from None


def read_joint(data: bytes, schema: Schema) -> JointModel | None:
    """Read the joint model of a model.json; None: records come from the network, and it has none.

    Args:
        data: the document; `read` has accepted it.
        schema: its variables.

    Raises:
        GateFailed: RELEASE_INVALID, it is no joint model of these variables.
    """
    node = parse(data, source="model.json").get("joint")
    return None if node is None else joint.read(node, schema)


def read_marginals(data: bytes, schema: Schema) -> tuple[Marginal, ...]:
    """Read the one-way shares of a model.json; those that are not told are NaN.

    Args:
        data: the document; `read` has accepted it.
        schema: its variables.

    Raises:
        GateFailed: RELEASE_INVALID, they are no shares of these variables.
    """
    marginals: list[Marginal] = []
    for node in parse(data, source="model.json")["marginals"]:
        variable = _position(node["variable"], schema)
        shape = (schema[variable].n_states,)
        ends = _read_numbers(node["interval"], (*shape, 2))
        marginals.append(
            Marginal(
                variable=variable,
                estimate=_read_numbers(node["estimate"], shape),
                standard_error=_read_numbers(node["standard_error"], shape),
                interval_low=ends[:, 0],
                interval_high=ends[:, 1],
                model=_read_numbers(node["model"], shape),
            )
        )
    return tuple(marginals)


def read_pairs(data: bytes, schema: Schema) -> tuple[PairAccuracy, ...]:
    """Read the shares of pairs of a model.json; none: nobody has tables of pairs. Arguments and errors as `read_marginals`.

    `PairAccuracy.worst` is not told in it, and is (0, 0).
    """
    root = parse(data, source="model.json").get("pairs")
    pairs: list[PairAccuracy] = []
    for node in () if root is None else root["tables"]:
        if len(node["variables"].texts()) != 2:
            node["variables"].fail("expected two names")
        first, second = (_position(name, schema) for name in node["variables"])
        shape = (schema[first].n_states, schema[second].n_states)
        ends, joint_node = _read_numbers(node["interval"], (*shape, 2)), node.get("joint")
        pairs.append(
            PairAccuracy(
                first=first,
                second=second,
                estimate=_read_numbers(node["estimate"], shape),
                low=ends[..., 0],
                high=ends[..., 1],
                network=_read_numbers(node["network"], shape),
                synthetic=_read_numbers(node["synthetic"], shape),
                verdict=node["verdict"].text(),
                worst=(0, 0),
                joint=None if joint_node is None else _read_numbers(joint_node, shape),
            )
        )
    return tuple(pairs)


def _position(name: JsonNode, schema: Schema) -> int:
    if name.text() not in schema:
        name.fail("names no variable of the document")
    return schema.index(name.text())


def _read_numbers(node: JsonNode, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Read a table of numbers; null, of one or of all that an entry holds, is NaN."""
    if node.value is None:
        return np.full(shape, math.nan)
    if not shape:
        return np.array(node.number())
    rows = [_read_numbers(item, shape[1:]) for item in node]
    if len(rows) != shape[0]:
        node.fail(f"got {len(rows)} entries, expected {shape[0]}")
    return np.array(rows, dtype=np.float64)


def _variable(variable: Variable) -> Json:
    entry = written(variable)
    owner = entry.pop("party")
    return {**entry, "owner": owner}


def _read_variable(node: JsonNode) -> Variable:
    bins, other, missing = node.get("bins"), node.get("other"), node.get("missing")
    representatives, means, origin = (node.get(key) for key in ("representatives", "means", "from"))
    outside = node["outside"].text()
    if outside not in ("error", "clamp"):
        node["outside"].fail(f"got '{outside}', expected error or clamp")
    return Variable(
        name=node["name"].text(),
        owner=node["owner"].text(),
        labels=node["labels"].texts(),
        bins=None if bins is None else bins.floats(),
        integer=node["integer"].boolean(),
        representatives=None if representatives is None else representatives.floats(),
        means=None if means is None else means.floats(),
        outside="clamp" if outside == "clamp" else "error",
        other=None if other is None else other.text(),
        missing=None
        if missing is None
        else Missing(category=missing["category"].text(), spellings=missing["spellings"].texts()),
        origin=None if origin is None else origin.text(),
        ordered=node.get("ordered") is None or node["ordered"].boolean(),
        **_read_type(node),
    )


def _read_type(node: JsonNode) -> dict[str, Any]:
    """Return what a variable with a type has besides; nothing of one without."""
    if (kind := node.get("type")) is None:
        return {}
    points, groups, decimals, bounds, profile, endings = (
        node.get(key) for key in ("points", "groups", "decimals", "bounds", "profile", "endings")
    )
    texts = {key: node.get(key) for key in ("unit", "format", "timezone", "group_by")}
    return {
        "kind": kind.text(),
        "points": () if points is None else points.floats(),
        "decimals": None if decimals is None else decimals.integer(),
        "bounds": None if bounds is None else _read_bounds(bounds),
        "profile": () if profile is None else _read_whole(profile),
        "endings": () if endings is None else tuple(map(_read_ending, endings)),
        "groups": () if groups is None else tuple(map(_read_group, groups)),
        **{key: None if value is None else value.text() for key, value in texts.items()},
    }


def _read_whole(node: JsonNode) -> tuple[int, ...]:
    values = node.floats()
    if not all(value.is_integer() for value in values):
        node.fail("a count is no whole number")
    return tuple(map(int, values))


def _read_bounds(node: JsonNode) -> tuple[float, float]:
    values = node.floats()
    if len(values) != 2:
        node.fail(f"got {len(values)} numbers, expected the lowest and the highest value")
    return values[0], values[1]


def _read_ending(node: JsonNode) -> tuple[str, float]:
    items = node.items()
    if len(items) != 2:
        node.fail(f"got {len(items)} entries, expected digits and their share")
    return items[0].text(), items[1].number()


def _read_group(node: JsonNode) -> tuple[str, tuple[str, ...]]:
    items = node.items()
    if len(items) != 2:
        node.fail(f"got {len(items)} entries, expected a category and its values")
    return items[0].text(), items[1].texts()


def numbers(array: NDArray[np.float64]) -> Any:
    """Return a table of numbers for a JSON document: nested lists; NaN becomes null."""
    if array.ndim > 1:
        return [numbers(row) for row in array]
    return [None if math.isnan(value) else value for value in cast("list[float]", array.tolist())]


def _intervals(low: NDArray[np.float64], high: NDArray[np.float64]) -> list[Json]:
    if low.ndim > 1:
        return [_intervals(low_row, high_row) for low_row, high_row in zip(low, high, strict=True)]
    pairs = zip(cast("list[float]", low.tolist()), cast("list[float]", high.tolist()), strict=True)
    return [None if math.isnan(first) or math.isnan(last) else [first, last] for first, last in pairs]


def _family(family: Family, names: tuple[str, ...]) -> dict[str, Json]:
    unstable = cast("list[list[bool]]", family.unstable.tolist())
    return {
        "child": names[family.child],
        "parents": [names[parent] for parent in family.parents],
        "probability": numbers(family.probability),
        "estimate": numbers(family.estimate),
        "standard_error": numbers(family.standard_error),
        "interval": _intervals(family.interval_low, family.interval_high),
        "unstable": unstable,
        # Only studies between peers can ask for it.
        **({} if family.replaced is None else {"replaced": cast("list[list[bool]]", family.replaced.tolist())}),
        **({"implied": True} if family.implied else {}),
        "projection": None
        if family.projection is None
        else {"mass_moved": family.projection.mass_moved, "negative_cells": family.projection.negative_cells},
    }


def _marginal(marginal: Marginal, names: tuple[str, ...]) -> Json:
    return {
        "variable": names[marginal.variable],
        "estimate": numbers(marginal.estimate),
        "standard_error": numbers(marginal.standard_error),
        "interval": _intervals(marginal.interval_low, marginal.interval_high),
        "model": numbers(marginal.model),
    }


def _read_family(node: JsonNode, schema: Schema) -> Family:
    child = _position(node["child"], schema)
    parents = tuple(_position(parent, schema) for parent in node["parents"])
    shape = (math.prod(schema[parent].n_states for parent in parents), schema[child].n_states)

    def table(key: str) -> NDArray[np.float64]:
        rows = [row.floats() for row in node[key]]
        if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
            node[key].fail(f"expected {shape[0]} rows of {shape[1]} numbers")
        return np.array(rows, dtype=np.float64).reshape(shape)

    intervals = [[_read_interval(cell) for cell in row] for row in node["interval"]]
    unstable = [[cell.boolean() for cell in row] for row in node["unstable"]]
    marks = node.get("replaced")
    is_replaced = None if marks is None else [[cell.boolean() for cell in row] for row in marks]
    for key, grid in (("interval", intervals), ("unstable", unstable), ("replaced", is_replaced)):
        if grid is None:
            continue
        if len(grid) != shape[0] or any(len(row) != shape[1] for row in grid):
            node[key].fail(f"expected {shape[0]} rows of {shape[1]} entries")
    ends = np.array(intervals, dtype=np.float64).reshape((*shape, 2))
    projection = node.get("projection")  # absent in models of the first version
    implied_node = node.get("implied")
    return Family(
        child=child,
        parents=parents,
        probability=table("probability"),
        estimate=table("estimate"),
        standard_error=table("standard_error"),
        interval_low=ends[..., 0],
        interval_high=ends[..., 1],
        unstable=np.array(unstable, dtype=np.bool_).reshape(shape),
        replaced=None if is_replaced is None else np.array(is_replaced, dtype=np.bool_).reshape(shape),
        implied=implied_node is not None and implied_node.boolean(),
        projection=None
        if projection is None
        else Projection(
            mass_moved=projection["mass_moved"].number(), negative_cells=projection["negative_cells"].integer()
        ),
    )


def _read_interval(cell: JsonNode) -> tuple[float, float]:
    if cell.value is None:
        return math.nan, math.nan
    ends = cell.floats()
    if len(ends) != 2:
        cell.fail("expected null or two numbers")
    return ends[0], ends[1]

"""posterior.json: what a study with sampled graphs publishes of them, whole; for other programs, too.

The outputs of Martins, Gonçalves & Galletti, section 2.3, that are no records: the posterior of the graph as the shares of the
graphs of a sample (1), and the draws (4), means and 98 % intervals (5) of the statistics that the study names. Besides the
probability of every edge with its Monte-Carlo error, how well the chains agree, and the M networks, each a graph of the sample
with probabilities drawn given it, that the sets of records (2, 3) come from: ``set-1.csv`` from the first, and so on.

`read` gives all of it, `read_networks` the networks of a folder of a release. Layout:

    {"format": "verticil-posterior", "version": 1, "study": {..digests}, "source": "records", "source_is": words,
     "variables": [names], "sample": {chains, steps, burn_in, every, graphs}, "diagnostics": {..},
     "edges": [{"parent", "child", "probability", "error"}, ..], "consensus": PARENTS,
     "graphs": {"distinct": number, "listed": [{"share", "parents": PARENTS}, ..]},
     "networks": {"unit": 2^-24, "listed": [[{"parents": [positions], "probability": rows}, .. one for each variable], ..]},
     "deterministic": [..], "missing": [{"variable", "records"}, ..], "pairs": [..],
     "predictive": [{"statistic": [words], "mean", "interval", "draws", "r_hat", "effective_draws", "effective_draws_tail"}, ..]}

PARENTS is a list for each variable, in their order, of its parents' positions in `variables`. A network's probabilities are
tables as in model.json, in whole numbers of units of 2^-24. Edges that are in no graph of the sample are not listed. `missing` is
there where missing values were unknowns of the sample: of so many records the variable's was drawn. `constant` names variables
that have one value in all released records, where there are some. `diagnostics` has ``moved_from_prior`` where it is known how
far what was learned from moves an edge's probability from that before any data. `deterministic` is that of
model.json, where that has one: the variables that follow from others by what the study states, as nodes of every network. Their
parents are the same in every graph, so neither `edges` nor PARENTS have them. null: a statistic that is not defined on the
records. The document is canonical JSON (RFC 8785): the same posterior gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np
import rfc8785

from verticil.shared.core.arrays import Floats
from verticil.shared.core.errors import GateFailed
from verticil.shared.documents.foreign_files.limits import DOCUMENT_BYTES
from verticil.shared.documents.foreign_files.reading import TooLargeError, read_at_most
from verticil.shared.documents.json_document import Json, JsonNode, parse
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network, PairEstimate, sure_family
from verticil.shared.numerics.model.rounding import RESOLUTION
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.release.formats import model_json

FILE: Final = "posterior.json"
FORMAT: Final = "verticil-posterior"
VERSION: Final = 1
MAX_GRAPHS: Final = 1000
"""Distinct graphs that are listed; of more, the most probable ones."""
LEVEL: Final = 0.98
"""Of the intervals of predicted statistics."""
LEAST_DRAWS: Final = 500
"""Independent draws that those of a statistic are to be worth (Martins, Gonçalves & Galletti, section 2.3)."""
MOST_R_HAT: Final = 1.01
"""That chains and draws of statistics are held to."""
LEAST_MOVE: Final = 0.05
"""By how much what was learned from moves the probability of an arrow, where it tells anything of graphs: chains that differ by
less are said to agree, so that less cannot be told from nothing."""

SOURCES: Final[Mapping[str, str]] = {
    "records": "records as they are: exact scores, and no differential privacy",
    "randomized": "randomized columns: scores of the records that the randomization leaves",
    "noisy-tables": "tables with noise: scores of a joint model of them",
}
"""What graphs were scored by."""
_STATEMENT: Final = (
    "Graphs in proportion to how probable they are given what was learned from. An edge's probability is the share of the graphs "
    "that have it; its error is what the length of the chains leaves open of that share."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How well the chains of a sample agree.

    Attributes:
        r_hat: rank-normalised split R-hat, the largest of the graphs' log weight and the least sure links; 1: no difference
            between chains and their halves.
        edge_difference: largest difference of an edge's probability between one chain and all.
        effective: independent draws that they are worth, in bulk.
        agree: whether the sample may be taken for the posterior.
        tail: independent draws that they are worth in the tails of the log weight.
        moved: how far what was learned from moves an arrow's probability from the prior's, at most; None: it is not known.
    """

    r_hat: float
    edge_difference: float
    effective: float
    agree: bool
    tail: float
    moved: float | None = None

    @property
    def prior_speaks(self) -> bool:
        """Whether graphs are about as probable as they were before any data."""
        return self.moved is not None and self.moved < LEAST_MOVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge: positions, the share of graphs that have it, and the Monte-Carlo standard error of that."""

    parent: int
    child: int
    probability: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A statistic of the records that the posterior predicts.

    Attributes:
        words: as the study names it.
        draws: one for each drawn network; NaN: not defined on its records.
        mean, low, high: of those that are defined: mean, and the shortest interval with 98 % of them; NaN: none is.
        r_hat: rank-normalised split R-hat of the draws, in the order of the chains; NaN: too few are defined.
        effective, tail: independent draws that they are worth, in bulk and in the tails.
    """

    words: tuple[str, ...]
    draws: tuple[float, ...]
    mean: float
    low: float
    high: float
    r_hat: float
    effective: float
    tail: float

    @property
    def is_enough(self) -> bool:
        """Whether the draws are worth `LEAST_DRAWS`, and their runs agree."""
        return self.r_hat <= MOST_R_HAT and min(self.effective, self.tail) >= LEAST_DRAWS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedPosterior:
    """All that is published.

    Attributes:
        source: a key of `SOURCES`.
        chains, steps, burn_in, every: so many chains of so many steps; the first `burn_in` of each are left out, of the others
            one of `every` is kept.
        n_graphs: graphs that were kept, of all chains together.
        agreement: of the chains.
        edges: those of any graph, by child, then parent.
        consensus: the graph of model.json.
        distinct: different graphs in the sample.
        graphs: the most probable ones, falling, with their shares.
        networks: M, each with its own graph; probabilities rounded (`model.rounding`), nothing else of a family is known.
        pairs: shares of two variables over the posterior of graph and probabilities; within `low` and `high` together with the
            study's level.
        predictive: what the study asks for.
        missing: (variable, records) where missing values were unknowns: of so many records the variable's value was one; None:
            a missing value is a category like another.
        constant: variables that have one value in all released records.
    """

    source: str
    chains: int
    steps: int
    burn_in: int
    every: int
    n_graphs: int
    agreement: Agreement
    edges: tuple[Edge, ...]
    consensus: Dag
    distinct: int
    graphs: tuple[tuple[Dag, float], ...]
    networks: tuple[Network, ...]
    pairs: tuple[PairEstimate, ...] = ()
    predictive: tuple[Predicted, ...] = ()
    missing: tuple[tuple[int, int], ...] | None = None
    constant: tuple[int, ...] = ()

    def edge(self, parent: int, child: int) -> Edge:
        """Return an edge by its positions; of one that no graph has, the probability is 0."""
        for edge in self.edges:
            if (edge.parent, edge.child) == (parent, child):
                return edge
        return Edge(parent=parent, child=child, probability=0.0, error=0.0)


def write(
    posterior: PublishedPosterior, schema: Schema, digests: Mapping[str, str], deterministic: Sequence[Json] = ()
) -> bytes:
    """Write posterior.json.

    Args:
        posterior: what is published.
        schema: its variables.
        digests: of the study, ``study_digest`` and ``effective_digest``.
        deterministic: see `model_json.deterministic`.

    Raises:
        ValueError: the networks are not rounded.
    """
    names, agreement = schema.names, posterior.agreement
    document: dict[str, Json] = {
        "format": FORMAT,
        "version": VERSION,
        "statement": _STATEMENT,
        "study": dict(digests),
        "source": posterior.source,
        "source_is": SOURCES[posterior.source],
        "variables": list(names),
        "sample": {
            "chains": posterior.chains,
            "steps": posterior.steps,
            "burn_in": posterior.burn_in,
            "every": posterior.every,
            "graphs": posterior.n_graphs,
        },
        "diagnostics": {
            "r_hat": _number(agreement.r_hat),
            "edge_difference": _number(agreement.edge_difference),
            "effective_draws": _number(agreement.effective),
            "agree": agreement.agree,
            "effective_draws_tail": _number(agreement.tail),
            **({} if agreement.moved is None else {"moved_from_prior": _number(agreement.moved)}),
        },
        "edges": [
            {
                "parent": names[e.parent],
                "child": names[e.child],
                "probability": e.probability,
                "error": _number(e.error),
            }
            for e in posterior.edges
        ],
        "consensus": _parents(posterior.consensus),
        "graphs": {
            "distinct": posterior.distinct,
            "listed": [{"share": share, "parents": _parents(dag)} for dag, share in posterior.graphs],
        },
        "networks": {"unit": 1 / RESOLUTION, "listed": [_network(network) for network in posterior.networks]},
        "pairs": [
            {
                "variables": [names[pair.first], names[pair.second]],
                "estimate": model_json.numbers(pair.estimate),
                "low": model_json.numbers(pair.low),
                "high": model_json.numbers(pair.high),
                "exact": pair.exact,
            }
            for pair in posterior.pairs
        ],
        "predictive": [
            {
                "statistic": list(item.words),
                "mean": _number(item.mean),
                "interval": None if math.isnan(item.low) else [item.low, item.high],
                "level": LEVEL,
                "draws": [_number(draw) for draw in item.draws],
                "r_hat": _number(item.r_hat),
                "effective_draws": _number(item.effective),
                "effective_draws_tail": _number(item.tail),
            }
            for item in posterior.predictive
        ],
    }
    if deterministic:
        document["deterministic"] = list(deterministic)
    if posterior.missing is not None:
        document["missing"] = [{"variable": names[v], "records": records} for v, records in posterior.missing]
    if posterior.constant:
        document["constant"] = [names[v] for v in posterior.constant]
    return rfc8785.dumps(cast("dict[str, object]", document))  # type: ignore[arg-type]  # as in model_json


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _parents(dag: Dag) -> list[list[int]]:
    return [list(parents) for parents in dag.parents]


def _network(network: Network) -> list[Json]:
    return [{"parents": list(family.parents), "probability": _units(family.probability)} for family in network.families]


def _units(table: Floats) -> list[list[int]]:
    units = table * RESOLUTION
    if not (units == np.rint(units)).all():
        raise ValueError("networks are published rounded: a probability is no multiple of 2^-24")
    return cast("list[list[int]]", units.astype(np.int64).tolist())


def read_networks(folder: Path) -> tuple[Network, ...]:
    """Return the M networks of a release, in the order of its sets.

    Args:
        folder: of the release; whether it is one that can be trusted is for `release.verification`.

    Raises:
        GateFailed: RELEASE_INVALID, posterior.json or model.json is none.
        FileNotFoundError: the release has no posterior.
    """
    try:
        model, posterior_bytes = (read_at_most(folder / name, DOCUMENT_BYTES) for name in ("model.json", FILE))
    except TooLargeError as error:
        raise GateFailed("RELEASE_INVALID", f"{folder}: model.json or {FILE} has {error}") from None
    return read(posterior_bytes, model_json.read(model).schema).networks


def read(data: bytes, schema: Schema, deterministic: Sequence[Json] | None = None) -> PublishedPosterior:
    """Read a posterior.json back, as it was written.

    Args:
        data: the document.
        schema: the variables of the study.
        deterministic: what the document must have for variables that follow from others; empty: no such key; None: it is not
            looked at.

    Raises:
        GateFailed: RELEASE_INVALID, it is no such document of these variables, has other ones that follow from them, or its
            parts do not fit together.
    """
    root = parse(data, source=FILE)
    if (actual := root["format"].text()) != FORMAT:
        root["format"].fail(f"got '{actual}', expected '{FORMAT}'")
    if (version := root["version"].integer()) != VERSION:
        root["version"].fail(f"got {version}, this software reads {VERSION}")
    if root["variables"].texts() != schema.names:
        root["variables"].fail("they are not those of the study")
    nodes = root.get("deterministic")
    if deterministic is not None and (None if nodes is None else nodes.value) != (list(deterministic) or None):
        root.fail("deterministic: not the variables that follow from others in model.json")
    if root["source"].text() not in SOURCES:
        root["source"].fail(f"expected one of {', '.join(SOURCES)}")
    positions = {name: position for position, name in enumerate(schema.names)}
    sample, agreement, unit = root["sample"], root["diagnostics"], root["networks"]["unit"]
    if unit.number() * RESOLUTION != 1:
        unit.fail(f"expected 2^-24, {1 / RESOLUTION!r}")
    try:
        return PublishedPosterior(
            source=root["source"].text(),
            chains=sample["chains"].integer(),
            steps=sample["steps"].integer(),
            burn_in=sample["burn_in"].integer(),
            every=sample["every"].integer(),
            n_graphs=sample["graphs"].integer(),
            agreement=Agreement(
                r_hat=_read_number(agreement["r_hat"]),
                edge_difference=_read_number(agreement["edge_difference"]),
                effective=_read_number(agreement["effective_draws"]),
                agree=agreement["agree"].boolean(),
                tail=_read_number(agreement["effective_draws_tail"]),
                moved=_read_number(agreement["moved_from_prior"])
                if "moved_from_prior" in agreement.keys()  # noqa: SIM118  # a node is no mapping
                else None,
            ),
            edges=tuple(_read_edge(node, positions) for node in root["edges"]),
            consensus=_read_dag(root["consensus"], schema),
            distinct=root["graphs"]["distinct"].integer(),
            graphs=tuple(
                (_read_dag(node["parents"], schema), _share(node["share"])) for node in root["graphs"]["listed"]
            ),
            networks=tuple(_read_network(node, schema) for node in root["networks"]["listed"]),
            pairs=tuple(_read_pair(node, positions, schema) for node in root["pairs"]),
            predictive=tuple(_read_predicted(node) for node in root["predictive"]),
            missing=None
            if (missing := root.get("missing")) is None
            else tuple((_position(node["variable"], positions), node["records"].integer()) for node in missing),
            constant=()
            if (constant := root.get("constant")) is None
            else tuple(_position(node, positions) for node in constant),
        )
    except ValueError as error:
        raise GateFailed("RELEASE_INVALID", f"{FILE}: {error}") from None


def _read_number(node: JsonNode) -> float:
    return math.nan if node.value is None else node.number()


def _share(node: JsonNode) -> float:
    share = node.number()
    return share if 0 <= share <= 1 else node.fail(f"got {share:g}, expected 0 to 1")


def _position(node: JsonNode, positions: Mapping[str, int]) -> int:
    name = node.text()
    return positions[name] if name in positions else node.fail("names no variable of the document")


def _read_edge(node: JsonNode, positions: Mapping[str, int]) -> Edge:
    parent, child = _position(node["parent"], positions), _position(node["child"], positions)
    return Edge(parent=parent, child=child, probability=_share(node["probability"]), error=_read_number(node["error"]))


def _read_dag(node: JsonNode, schema: Schema) -> Dag:
    lists = node.items()
    if len(lists) != len(schema):
        node.fail(f"{len(lists)} lists of parents, expected one for each of {len(schema)} variables")
    return Dag(parents=tuple(tuple(item.integer() for item in parents) for parents in lists))


def _read_network(node: JsonNode, schema: Schema) -> Network:
    items = node.items()
    if len(items) != len(schema):
        node.fail(f"{len(items)} tables, expected one for each of {len(schema)} variables")
    dag = Dag(parents=tuple(tuple(item.integer() for item in family["parents"]) for family in items))
    families: list[Family] = []
    for child, (item, parents) in enumerate(zip(items, dag.parents, strict=True)):
        rows = [row.floats() for row in item["probability"]]
        shape = (math.prod(schema[parent].n_states for parent in parents), schema[child].n_states)
        if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
            item["probability"].fail(f"expected {shape[0]} rows of {shape[1]} numbers")
        families.append(sure_family(child, parents, np.array(rows, dtype=np.float64).reshape(shape) / RESOLUTION))
    return Network(schema=schema, dag=dag, families=tuple(families))


def _read_pair(node: JsonNode, positions: Mapping[str, int], schema: Schema) -> PairEstimate:
    names = node["variables"].items()
    if len(names) != 2:
        node["variables"].fail("expected two")
    first, second = (_position(name, positions) for name in names)
    shape = (schema[first].n_states, schema[second].n_states)

    def table(key: str) -> Floats:
        rows: Sequence[Sequence[float]] = [row.floats() for row in node[key]]
        if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
            node[key].fail(f"expected {shape[0]} rows of {shape[1]} numbers")
        return np.array(rows, dtype=np.float64)

    return PairEstimate(
        first=first,
        second=second,
        estimate=table("estimate"),
        low=table("low"),
        high=table("high"),
        exact=node["exact"].boolean(),
    )


def _read_predicted(node: JsonNode) -> Predicted:
    interval = node.get("interval")
    ends = (math.nan, math.nan) if interval is None else interval.floats()
    if len(ends) != 2:
        node["interval"].fail("expected null or two numbers")
    return Predicted(
        words=node["statistic"].texts(),
        draws=node["draws"].floats(),
        mean=_read_number(node["mean"]),
        low=ends[0],
        high=ends[1],
        r_hat=_read_number(node["r_hat"]),
        effective=_read_number(node["effective_draws"]),
        tail=_read_number(node["effective_draws_tail"]),
    )

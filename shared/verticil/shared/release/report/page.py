"""Making report.html from the content of a release.

All arithmetic for the page is here and in `layout` and `wording`; the template only places it. Names and labels come from other
people: the template escapes everything it is given, the drawings included, and the page forbids scripts and outside addresses to
itself by a content security policy.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.joint.worth import read_worth, sentence
from verticil.shared.numerics.knowledge.words import EXPLAINED, HEADING, describe_knowledge
from verticil.shared.numerics.model.network import CONFIRMED
from verticil.shared.privacy.accounts import PUBLIC
from verticil.shared.privacy.events import NoisyTables
from verticil.shared.privacy.figures import odds_exceed
from verticil.shared.privacy.layered import LayeredCounts
from verticil.shared.privacy.statement import PRIOR, ColumnStatement, PrivacyStatement, privacy_statement
from verticil.shared.release import wording
from verticil.shared.release.content import COPIES, ReleaseContent
from verticil.shared.release.formats.model_json import STRUCTURE_STATEMENT
from verticil.shared.release.protocol import own_template, templates
from verticil.shared.release.protocols import RELEASES, release_protocol
from verticil.shared.release.report import layout, probabilities
from verticil.shared.release.report.cards import with_labels
from verticil.shared.release.report.joint import joint_view
from verticil.shared.release.report.numbers import HEIGHT, SIDE, WIDTH, Histogram, histogram, pair_maps
from verticil.shared.release.report.posterior import posterior_view
from verticil.shared.release.report.related import related_view
from verticil.shared.release.wording import remarks
from verticil.shared.study.draft_review import origin_words
from verticil.shared.study.number_words import NumberWords, number_words
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.sub_model import left_out_words
from verticil.shared.synthesis.table_columns import cell_counts

_SHOWN_ABOVE: Final = ("edge_strength", "edge_information", "minimum_strength", "weak_edges")
_SHOWN_CATEGORIES: Final = 40
_BAR_WIDTH: Final = 200.0
_LETTER: Final = 7.9  # width of an average letter of a node's name, in drawing units
_NAME_LETTERS: Final = 26
_WIDTH: Final = 1.3  # of an edge of unknown strength, as in the style sheet
_THIN, _THICK = 0.6, 2.4


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnVariable:
    """A variable in the drawing."""

    name: str
    full_name: str
    owner: str
    owner_index: int
    box: layout.Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge in the drawing."""

    parent: str
    child: str
    crosses: bool
    curve: layout.Curve
    strength: str | None
    information: str
    confirmed: bool
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One category: texts, and positions on a bar of `_BAR_WIDTH` units."""

    label: str
    estimate: str
    interval: str
    synthetic: str
    synthetic_width: float
    estimate_at: float | None
    low_at: float
    high_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares of one variable."""

    name: str
    owner: str
    owner_index: int
    bars: tuple[Bar, ...]
    histogram: Histogram | None
    unit: str | None
    n_hidden: int
    outside: int
    made: NumberWords | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One column of the privacy table, in words."""

    names: str
    owner: str
    owner_index: int
    n_states: int
    kept: str
    factor: str
    posterior: str
    epsilon: str
    bounded: bool
    unchanged: bool
    two_level: str | None
    released_set: str | None
    joint: str | None
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyRow:
    """A row of one party's contribution."""

    name: str
    owner_index: int
    columns: tuple[str, ...]
    epsilon: str


def render(content: ReleaseContent) -> str:
    """Render the page as HTML.

    Returns:
        HTML that needs nothing else: styles and drawings are inside, there is no script.
    """
    html = templates(_read).get_template("report.html.j2").render(style=_read("report.css"), **_values(content))
    return with_labels(html)


def _read(name: str) -> str:
    """Read a template: one of the report's own, or a protocol's under ``protocol/NAME``."""
    folder, _, protocol = name.rpartition("/")
    return RELEASES.named(protocol).template() if folder == "protocol" else own_template(name)


def _noisy_tables(statement: PrivacyStatement) -> dict[str, object] | None:
    """Describe the noise on the tables that everything was computed from: how many, how much, everybody's limit; None:
    there is none.
    """
    events = [item.planned.event for item in statement.events]
    event = next((each for each in events if isinstance(each, NoisyTables | LayeredCounts)), None)
    if event is None:
        return None
    (cost,) = (account.cost for account in statement.accounts if account.reader is PUBLIC)
    further = event.sets[1:] if isinstance(event, LayeredCounts) else ()
    sigma = "; ".join([f"{event.sigma:.4g}", *(f"{sigma:.4g} on {n} {what}" for sigma, n, what in further)])
    return {"number": event.tables, "sigma": sigma, "cost": wording.both(cost)}


def _worth(content: ReleaseContent) -> dict[str, object] | None:
    """Return what the records are worth in one sentence, and whether they are useless; None: nothing is known."""
    worth = read_worth(content.joint_facts)
    if worth is None:
        return None
    words = sentence(worth)
    return {"words": words[0].upper() + words[1:] + ".", "useless": worth.is_useless}


def _values(content: ReleaseContent) -> dict[str, object]:
    study, network = content.study, content.network
    statement = privacy_statement(study, network.dag)
    owner_index = {party: position for position, party in enumerate(study.parties)}
    edges, nodes, drawing = _network(content, owner_index)
    level, protocol = study.parameters.interval_level, protocol_of(study)
    return {
        "study": study,
        "content": content,
        "people": wording.count(content.n_common, "person", "people"),
        "worth": _worth(content),
        "records": wording.count(len(content.synthetic), "synthetic record"),
        "n_columns": wording.count(len(study.schema), "column"),
        "parties": [
            PartyRow(
                name=party,
                owner_index=owner_index[party],
                columns=tuple(study.schema[position].name for position in study.schema.owned_by(party)),
                epsilon=wording.epsilon(statement.of_party(party)),
            )
            for party in study.parties
        ],
        "rows": [_row(column, owner_index) for column in statement.sent_columns],
        "section": release_protocol(study).section(content, statement),
        "coordinated": protocol.coordinated,
        "alone": protocol.whole_table,
        "total": _total(statement),
        "bound": statement.bounds_everybody,
        "copies": _copies(content),
        "example": _example(statement),
        "unchanged": _unchanged(statement),
        "prior": wording.percent(PRIOR, 0),
        "alignment": statement.alignment,
        "origins": origin_words(study),
        "measured_bins": any(variable.bounds is not None for variable in study.schema.variables),
        "stated": describe_knowledge(study.knowledge, study.schema),
        "stated_heading": HEADING,
        "stated_explained": EXPLAINED,
        "further": [
            {"party": event.party, "readers": ", ".join(event.planned.readers), "words": event.words}
            for event in statement.events
        ],
        "together": any(event.counts for event in statement.events)
        and {
            "epsilon": wording.epsilon(statement.together.epsilon),
            "delta": wording.tiny(statement.together.delta) if statement.together.delta else "0",
        },
        "noisy": _noisy_tables(statement),
        "besides": protocol.statement(study, network.dag),
        "four": () if statement.masked is None else statement.masked.words,
        "costs": wording.costs(statement.accounts, coordinated=protocol.coordinated, alone=protocol.whole_table),
        "nodes": nodes,
        "edges": edges,
        "n_crossing": sum(edge.crosses for edge in edges),
        "strengths": bool(edges) and all(edge.strength is not None for edge in edges),
        "n_unconfirmed": sum(not edge.confirmed for edge in edges),
        "weak": _weak(content.search),
        "custom": _custom(content),
        "drawing": drawing,
        "left_out": [left_out_words(item) for item in study.left_out],
        "parents": [
            (
                node.full_name,
                node.owner,
                [study.schema[parent].name for parent in network.dag.parents[position]],
                [
                    f"{edge.strength}{f' ({edge.information})' if edge.information else ''}"
                    for edge in edges
                    if edge.child == node.full_name and edge.strength is not None
                ],
            )
            for position, node in enumerate(nodes)
        ],
        "shares": _shares(content, owner_index),
        "bar_width": _BAR_WIDTH,
        "maps": pair_maps(content),
        "sizes": {"width": WIDTH, "height": HEIGHT, "side": SIDE},
        "tables": probabilities.family_tables(content),
        "level": f"{100 * level:g}%",
        "structure_statement": STRUCTURE_STATEMENT,
        "pairs": probabilities.pair_rows(content),
        "joint": joint_view(content),
        "posterior": posterior_view(content),
        "related": related_view(content),
        "configurations": probabilities.count_rows(content),
        "remarks": remarks(content.study, network, content.marginals, content.n_common, content.search),
        "projection": wording.projection_in_words(content),
        "files": content.files,
        "facts": _facts(content),
    }


def _copies(content: ReleaseContent) -> str | None:
    """Describe how many synthetic records are those of people whom nobody equals, as the table's owner counted; None: no
    count.
    """
    n_copies = content.search.get(COPIES)
    if not isinstance(n_copies, int):
        return None
    count_words = wording.count(n_copies, "synthetic record equals", "synthetic records equal")
    return f"{count_words} the row of a person whom no other one in the table equals"


def _row(column: ColumnStatement, owner_index: Mapping[str, int]) -> Row:
    least, most = wording.at_least(column.kept_least), wording.at_least(column.kept_most)
    return Row(
        names=" with ".join(column.variables),
        owner=column.owner,
        owner_index=owner_index[column.owner],
        n_states=column.n_states,
        kept=least if least == most else f"{least} to {most}",
        factor=wording.factor(column.epsilon),
        posterior=wording.at_most(column.posterior),
        epsilon=wording.epsilon(column.epsilon),
        bounded=column.has_bound,
        unchanged=column.is_unchanged,
        two_level=column.two_level,
        released_set=_released_set(column),
        joint=_joint(column),
        readers=column.read_by or (),
    )


def _released_set(column: ColumnStatement) -> str | None:
    """Subset selection in words; None where one category was released."""
    if column.subset_size is None:
        return None
    share = wording.at_least(column.kept_least)
    return f"as a set of {column.subset_size} of its {column.n_states} categories that holds the true one {share} of the time"


def _joint(column: ColumnStatement) -> str | None:
    """Describe a compound in words; None for a single column."""
    if len(column.variables) == 1:
        return None
    were = "was" if column.impossible == 1 else "were"
    reduction = f", without {column.impossible:,} that {were} declared impossible" if column.impossible else ""
    return f"one draw over {column.n_states:,} combinations{reduction}"


def _total(statement: PrivacyStatement) -> dict[str, object]:
    return {
        "bounded": statement.has_bound,
        "epsilon": wording.epsilon(statement.epsilon_per_person),
        "factor": wording.factor(statement.epsilon_per_person),
        "posterior": wording.at_most(statement.posterior_per_person),
        "identifying": odds_exceed(statement.epsilon_per_person, 100),
        "unbounded": statement.unbounded_variables,
        "n_columns": wording.count(statement.n_sent, "column"),
    }


def _unchanged(statement: PrivacyStatement) -> dict[str, object]:
    """Return the columns without noise: what the page says of noise must not be said of them."""
    names = [name for column in statement.sent_columns if column.is_unchanged for name in column.variables]
    return {
        "names": names,
        "they": "it is" if len(names) == 1 else "they are",
        "every": all(column.is_unchanged for column in statement.sent_columns),
    }


def _example(statement: PrivacyStatement) -> Row | None:
    """Return the bounded column with the largest factor: the statement in words is about it."""
    bounded_columns = [column for column in statement.sent_columns if column.has_bound and column.epsilon > 0]
    if not bounded_columns:
        return None
    worst = max(bounded_columns, key=lambda column: column.epsilon)
    return _row(worst, {worst.owner: 0})


def _network(
    content: ReleaseContent, owner_index: Mapping[str, int]
) -> tuple[list[Edge], list[DrawnVariable], layout.Drawing]:
    schema, dag = content.study.schema, content.network.dag
    names = [_shortened(variable.name) for variable in schema.variables]
    owners = [_shortened(variable.owner) for variable in schema.variables]
    widths = [
        max(72.0, 22 + _LETTER * max(_letters(name), 0.85 * _letters(owner)))
        for name, owner in zip(names, owners, strict=True)
    ]
    drawing = layout.arrange(dag, widths)
    nodes = [
        DrawnVariable(
            name=name, full_name=variable.name, owner=variable.owner, owner_index=owner_index[variable.owner], box=box
        )
        for name, variable, box in zip(names, schema.variables, drawing.boxes, strict=True)
    ]
    strength = _of_edges(content.search, "edge_strength")
    information = _of_edges(content.search, "edge_information")
    edges = [
        Edge(
            parent=schema[curve.parent].name,
            child=schema[curve.child].name,
            crosses=schema[curve.parent].owner != schema[curve.child].owner,
            curve=curve,
            strength=None if edge_strength is None else wording.percent(edge_strength, 0),
            information="" if edge_information is None else f"{edge_information:.3g} nats",
            confirmed=edge_strength is None or edge_strength >= CONFIRMED,
            width=_WIDTH if edge_strength is None else _THIN + (_THICK - _THIN) * edge_strength,
        )
        for curve in drawing.curves
        for names_of in ((schema[curve.parent].name, schema[curve.child].name),)
        for edge_strength, edge_information in ((strength.get(names_of), information.get(names_of)),)
    ]
    return edges, nodes, drawing


def _of_edges(search: Mapping[str, Json], key: str) -> dict[tuple[str, str], float]:
    """Return a figure of edges by names, where the release has it."""
    figures: dict[tuple[str, str], float] = {}
    rows = search.get(key)
    for row in rows if isinstance(rows, Sequence) and not isinstance(rows, str) else ():
        match row:
            case (str(parent), str(child), int() | float() as figure):
                figures[parent, child] = float(figure)
            case _:
                raise ValueError(f"{key} is not a list of parent, child and number")
    return figures


def _weak(search: Mapping[str, Json]) -> tuple[str, list[str]] | None:
    """Return the minimum strength and the edges that were taken out for it; None where the study asks for none."""
    if not isinstance(minimum := search.get("minimum_strength"), int | float):
        return None
    weak = _of_edges(search, "weak_edges_taken_out")
    return wording.percent(minimum, 0), [
        f"{parent} → {child} ({wording.percent(s, 0)})" for (parent, child), s in weak.items()
    ]


def _custom(content: ReleaseContent) -> str | None:
    """Return what the custom network promises; None where the study asks for none. The content checks that it holds."""
    custom = content.study.custom_network()
    return None if custom is None else custom.promise(content.study.schema.names)


def _letters(text: str) -> float:
    """Return the width of a text in average letters; Chinese, Japanese and Korean letters are wide."""
    return sum(1.9 if unicodedata.east_asian_width(letter) in "WF" else 1.0 for letter in text)


def _shortened(text: str) -> str:
    return text if len(text) <= _NAME_LETTERS else text[: _NAME_LETTERS - 1] + "…"


def _shares(content: ReleaseContent, owner_index: Mapping[str, int]) -> list[Shares]:
    result: list[Shares] = []
    made = number_words(content.study)
    for position, (variable, marginal) in enumerate(
        zip(content.study.schema.variables, content.marginals, strict=True)
    ):
        counts = cell_counts([content.codes[position]], [variable.n_states])
        synthetic = cast("list[float]", (counts / max(1, counts.sum())).tolist())
        low = cast("list[float]", marginal.interval_low.tolist())
        high = cast("list[float]", marginal.interval_high.tolist())
        estimate = cast("list[float]", marginal.estimate.tolist())
        error = cast("list[float]", marginal.standard_error.tolist())
        top = max([value for value in (*synthetic, *high, *estimate) if not math.isnan(value)], default=1.0)
        scale = _BAR_WIDTH / max(top * 1.04, 1e-9)
        order = range(variable.n_states)
        largest = sorted(zip(synthetic, order, strict=True), key=lambda pair: (-pair[0], pair[1]))[:_SHOWN_CATEGORIES]
        indices = sorted(k for _, k in largest)
        bars = tuple(
            Bar(
                label=variable.labels[k],
                estimate=wording.with_error(estimate[k], error[k]),
                interval=wording.interval(low[k], high[k]),
                synthetic=wording.share(synthetic[k]),
                synthetic_width=synthetic[k] * scale,
                estimate_at=None if math.isnan(estimate[k]) else min(max(estimate[k], 0.0), 1.0) * scale,
                low_at=0.0 if math.isnan(low[k]) else low[k] * scale,
                high_at=0.0 if math.isnan(high[k]) else high[k] * scale,
            )
            for k in indices
        )
        outside = sum(not math.isnan(low[k]) and not low[k] <= synthetic[k] <= high[k] for k in order)
        result.append(
            Shares(
                name=variable.name,
                owner=variable.owner,
                owner_index=owner_index[variable.owner],
                bars=bars,
                histogram=histogram(variable, estimate, low, high, synthetic),
                unit=variable.unit,
                n_hidden=variable.n_states - len(bars),
                outside=outside,
                made=made.get(variable.name),
            )
        )
    return result


def _facts(content: ReleaseContent) -> list[tuple[str, str]]:
    """Return how the release was made, for readers who want to make it again."""
    study = content.study
    facts = [
        ("Published", content.published_text),
        ("Study", study.id),
        ("Digest of the study as proposed", content.study_digest),
        ("Digest of the study as carried out", content.effective_digest),
        *([("Seed of the structure search", str(study.structure.seed))] if study.structure.parents is None else []),
        ("Seed of the synthetic records", str(study.release.seed)),
    ]
    search = {key: value for key, value in content.search.items() if not key.startswith(_SHOWN_ABOVE)}
    for prefix, mapping in (
        ("Structure search", search),
        ("Joint model", content.joint_facts),
        ("Made with", content.provenance),
    ):
        facts.extend(_flat(prefix, mapping))
    return facts


def _flat(prefix: str, mapping: Mapping[str, Json]) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    for key, value in mapping.items():
        name = f"{prefix}: {key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            facts.extend(_flat(name, value))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            facts.append((name, ", ".join(_fact(item) for item in value) or "none"))
        else:
            facts.append((name, _fact(value)))
    return facts


def _fact(value: Json) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{key.replace('_', ' ')} {_fact(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " → ".join(_fact(item) for item in value)
    return str(value)

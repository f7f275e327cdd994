"""What a release says of how its structure was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.model.network import CONFIRMED
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    from verticil.miner.learning.held_out import PairCheck
    from verticil.miner.learning.scoring.edge_confidence import EdgeStrength
    from verticil.miner.learning.search.protocol import SearchResult
    from verticil.miner.learning.selection import Candidate
    from verticil.miner.learning.structure import Search

_CHOSEN_BY: Final[Mapping[str, str]] = {
    "synthesis": "the likelihood of the pairs of records held out, less the strong links left out; "
    "within one standard error of the best, the fewest parameters",
    "structure": "what finds the most right edges under this much noise",
}
_PEERS: Final = "the only candidate where nothing but scores of pairs is known"
_STRENGTH: Final = (
    "share of resamples of the randomized records in which the child's table is better with this parent than chance and noise "
    f"explain, beside the other confirmed parents, at a level of .05 for all pairs of variables together; "
    f"{CONFIRMED:g} or more: confirmed"
)
_INFORMATION: Final = (
    "conditional mutual information of child and parent given the other confirmed parents, nats, less what chance adds"
)
_OF_TABLES: Final = (
    "share of the times that people and noise are drawn again from the joint model in which the child's table has the better BIC "
    f"with this parent, beside its other parents; {CONFIRMED:g} or more: confirmed",
    "conditional mutual information of child and parent given the other parents in the joint model, nats",
)


def search_facts(
    study: Study,
    result: SearchResult,
    *,
    auto_search: Search | None = None,
    candidates: Sequence[Candidate] = (),
    pair_check: PairCheck | None = None,
    edge_strength: Mapping[tuple[int, int], EdgeStrength] | None = None,
    weak_edges: Mapping[tuple[int, int], EdgeStrength] | None = None,
) -> dict[str, Json]:
    """Return the facts, as JSON values.

    Args:
        study: the effective study.
        result: of the search.
        auto_search: what the method auto chose; only looked at there.
        candidates: what it chose from.
        pair_check: the network against the tables of the pairs; None: not known.
        edge_strength: of the edges that there are; None: not known.
        weak_edges: of those that were taken out, where the study asks for a minimum.
    """
    rule, names = study.structure, study.schema.names
    facts: dict[str, Json] = {
        "method": rule.method,
        "score": rule.score,
        "seed": result.seed,
        "generations": result.generations,
        "fitness": result.fitness,
        "dropped_edges": [[names[parent], names[child]] for parent, child in result.dropped_edges],
    }
    if result.cut_edges:
        facts["cut_edges"] = [[names[parent], names[child]] for parent, child in result.cut_edges]
    if rule.method == "auto" and auto_search is not None:
        facts["chosen"] = auto_search.text
        facts["chosen_by"] = _CHOSEN_BY[rule.prefer] if candidates else _PEERS
    if candidates:
        best = max(candidates, key=lambda candidate: candidate.held_out)
        facts["candidates"] = [
            {
                "method": candidate.search.method,
                "score": candidate.search.score,
                "edges": candidate.edges,
                "parameters": candidate.parameters,
                "held_out_log_likelihood": candidate.held_out,
                "behind_the_best": candidate.behind(best)[0],
                "standard_error": candidate.behind(best)[1],
                "strong_links_left_out_nats": candidate.missing,
            }
            for candidate in candidates
        ]
    if pair_check is not None:
        facts["pair_check"] = _pairs(pair_check, names)
    if edge_strength is not None:
        facts["edge_strength"] = [
            [*edge, round(value.strength, 4)] for edge, value in _name_edges(edge_strength, names)
        ]
        strength, information = (_STRENGTH, _INFORMATION) if study.tables is None else _OF_TABLES
        facts["edge_strength_is"] = strength
        facts["edge_information"] = [
            [*edge, round(value.information, 6)] for edge, value in _name_edges(edge_strength, names)
        ]
        facts["edge_information_is"] = information
    if rule.minimum_strength is not None:
        facts["minimum_strength"] = rule.minimum_strength
        facts["weak_edges_taken_out"] = [
            [*edge, round(value.strength, 4)] for edge, value in _name_edges(weak_edges or {}, names)
        ]
    return facts


def _name_edges(
    edges: Mapping[tuple[int, int], EdgeStrength], names: Sequence[str]
) -> list[tuple[tuple[str, str], EdgeStrength]]:
    return [((names[parent], names[child]), value) for (parent, child), value in edges.items()]


def _pairs(check: PairCheck, names: Sequence[str]) -> dict[str, Json]:
    facts: dict[str, Json] = {"significant_pairs": check.pairs}
    if check.worst is not None:
        facts["worst_pair"] = [names[variable] for variable in check.worst]
        facts["distance"] = round(check.distance, 4)
        facts["distance_that_noise_explains"] = round(check.noise, 4)
    facts["left_nearly_independent"] = [[names[a], names[b], round(nats, 4)] for a, b, nats in check.missing]
    return facts

"""What a release says of how its structure was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from verticil.shared.model.network import CONFIRMED
from verticil.shared.study.canonical import Json
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    from verticil.miner.learning.search.protocol import SearchResult
    from verticil.miner.learning.selection import Candidate
    from verticil.miner.learning.strength import EdgeStrength
    from verticil.miner.learning.structure import Search

__all__ = ["search_facts"]

_CHOSEN_BY: Final[Mapping[str, str]] = {
    "synthesis": "the largest likelihood of the pairs of records held out",
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


def search_facts(
    study: Study,
    result: SearchResult,
    *,
    chosen: Search | None = None,
    candidates: Sequence[Candidate] = (),
    edge_strength: Mapping[tuple[int, int], EdgeStrength] | None = None,
    weak_edges: Mapping[tuple[int, int], EdgeStrength] | None = None,
) -> dict[str, Json]:
    """The facts, as JSON values.

    Args:
        study: the effective study.
        result: of the search.
        chosen: what the method auto chose; only looked at there.
        candidates: what it chose from.
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
    if rule.method == "auto" and chosen is not None:
        facts["chosen"] = chosen.text
        facts["chosen_by"] = _CHOSEN_BY[rule.prefer] if candidates else _PEERS
    if candidates:
        facts["candidates"] = [
            {
                "method": candidate.search.method,
                "score": candidate.search.score,
                "edges": candidate.edges,
                "held_out_log_likelihood": candidate.held_out,
            }
            for candidate in candidates
        ]
    if edge_strength is not None:
        facts["edge_strength"] = [[*edge, round(told.strength, 4)] for edge, told in _named(edge_strength, names)]
        facts["edge_strength_is"] = _STRENGTH
        facts["edge_information"] = [[*edge, round(told.information, 6)] for edge, told in _named(edge_strength, names)]
        facts["edge_information_is"] = _INFORMATION
    if rule.minimum_strength is not None:
        facts["minimum_strength"] = rule.minimum_strength
        facts["weak_edges_taken_out"] = [
            [*edge, round(told.strength, 4)] for edge, told in _named(weak_edges or {}, names)
        ]
    return facts


def _named(
    edges: Mapping[tuple[int, int], EdgeStrength], names: Sequence[str]
) -> list[tuple[tuple[str, str], EdgeStrength]]:
    return [((names[parent], names[child]), told) for (parent, child), told in edges.items()]

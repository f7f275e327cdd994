"""What a release says of how its structure was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from verticil.shared.study.canonical import Json
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    from verticil.miner.learning.search.protocol import SearchResult
    from verticil.miner.learning.selection import Candidate
    from verticil.miner.learning.structure import Search

__all__ = ["search_facts"]

_CHOSEN_BY: Final[Mapping[str, str]] = {
    "synthesis": "the largest likelihood of the pairs of records held out",
    "structure": "what finds the most right edges under this much noise",
}
_PEERS: Final = "the only candidate where nothing but scores of pairs is known"
_STRENGTH: Final = (
    "share of resamples of the randomized records in which the child's table is still better with this parent"
)


def search_facts(
    study: Study,
    result: SearchResult,
    *,
    chosen: Search | None = None,
    candidates: Sequence[Candidate] = (),
    edge_strength: Mapping[tuple[int, int], float] | None = None,
) -> dict[str, Json]:
    """The facts, as JSON values.

    Args:
        study: the effective study.
        result: of the search.
        chosen: what the method auto chose; only looked at there.
        candidates: what it chose from.
        edge_strength: (parent, child) -> 0 to 1; None: not known.
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
        facts["edge_strength"] = [
            [names[parent], names[child], round(strength, 4)] for (parent, child), strength in edge_strength.items()
        ]
        facts["edge_strength_is"] = _STRENGTH
    return facts

"""A structure job (Model I) turns the parties' scores into a structure document. `search_structure` runs in the same places. It
gets the effective study and the parties' scores: no column, no pseudonym, no key. The same job gives the same bytes, also where
it was interrupted and goes on from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from verticil.miner.storage.checkpoint import CHECKPOINT_SECONDS, binding_of, resume
from verticil.shared.study import canonical
from verticil.shared.study.peer import scored_pairs
from verticil.shared.study.structure_document import NANONATS, structure_body

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureJob:
    """Everything that the search needs; a line for another process, as a `LearningJob`.

    Attributes:
        effective: canonical bytes of the effective study.
        scores: of every party, 1e-9 nats, in the order of `scored_pairs`.
        checkpoint, checkpoint_seconds: see `job.LearningJob`.
    """

    MARK: ClassVar = {"kind": "structure"}

    effective: bytes
    scores: Mapping[str, tuple[int, ...]]
    checkpoint: Path | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    @property
    def binding(self) -> bytes:
        """Of the search: SHA-256 of the study, of the scores and of the software that searches."""
        return binding_of({party: list(scores) for party, scores in sorted(self.scores.items())}, self.effective)


def search_structure(
    job: StructureJob, *, progress: Callable[[str, int], None], is_cancelled: Callable[[], bool]
) -> bytes:
    """Search the structure with the largest total information.

    Args:
        job: what to search.
        progress: called with stage and percent.
        is_cancelled: asked now and then; when it says so, the search stops.

    Returns:
        The canonical bytes of the structure (`verticil.shared.study.structure_document`), to be signed.

    Raises:
        LearningCancelled: `is_cancelled` said so.
        Misuse: STUDY_UNSUPPORTED.
    """
    from verticil.miner.learning.search_facts import search_facts
    from verticil.miner.learning.structure import find_structure, way_on_pairs

    study = canonical.from_bytes(job.effective, wire=False)
    d = len(study.schema)
    information = np.zeros((d, d), dtype=np.float64)
    for party in study.parties:
        for (a, b), nanonats in zip(scored_pairs(study, party), job.scores[party], strict=True):
            information[a, b] = information[b, a] = nanonats / NANONATS

    def report(share: float) -> None:
        progress("searching", int(100 * share))

    digest = canonical.digest(study)
    result = resume(
        lambda interruption: find_structure(information, study, progress=report, interruption=interruption),
        job.checkpoint,
        job.binding,
        is_cancelled=is_cancelled,
        what=f"study {digest.hex()}",
        seconds=job.checkpoint_seconds,
    )
    facts = search_facts(study, result, auto_search=way_on_pairs(study))
    return structure_body(digest, result.dag.parents, facts)

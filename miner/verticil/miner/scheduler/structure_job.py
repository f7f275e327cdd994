"""One search for a structure (Model I): what goes in, and the pure worker function that turns scores into a structure document.

Like `job`, `search_structure` runs in a process of its own or in a thread and is the same code in both. It gets the effective
study and the parties' scores: no column, no pseudonym, no key. The same job gives the same bytes, also where it was interrupted
and goes on from the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np

from verticil.miner.learning.search.protocol import Checkpoint, Keep, SearchResult
from verticil.miner.scheduler.search_facts import search_facts
from verticil.miner.storage.checkpoint import CHECKPOINT_SECONDS, binding_of, resumed
from verticil.shared.study import canonical
from verticil.shared.study.peer import scored_pairs
from verticil.shared.study.structure_document import NANONATS, structure_body

STRUCTURE_KIND: Final = "structure"
"""Tells the job's line from one of `LearningJob`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureJob:
    """Everything that the search needs.

    Attributes:
        effective: canonical bytes of the effective study.
        scores: of every party, 1e-9 nats, in the order of `scored_pairs`.
        checkpoint, checkpoint_seconds: see `job.LearningJob`.
    """

    effective: bytes
    scores: Mapping[str, Sequence[int]]
    checkpoint: Path | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    def to_json(self) -> bytes:
        """The job as one line of JSON, for another process."""
        return json.dumps(
            {
                "kind": STRUCTURE_KIND,
                "effective": self.effective.decode("utf-8"),
                "scores": {party: list(scores) for party, scores in self.scores.items()},
                "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
                "checkpoint_seconds": self.checkpoint_seconds,
            }
        ).encode("ascii")

    @classmethod
    def from_json(cls, line: bytes) -> StructureJob:
        """Read what `to_json` wrote (by the miner itself: not checked)."""
        values = cast("dict[str, object]", json.loads(line))
        checkpoint = cast("str | None", values["checkpoint"])
        return cls(
            effective=cast("str", values["effective"]).encode("utf-8"),
            scores=cast("dict[str, list[int]]", values["scores"]),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            checkpoint_seconds=cast("float", values["checkpoint_seconds"]),
        )

    @property
    def binding(self) -> bytes:
        """Of the search: SHA-256 of the study, of the scores and of the software that searches."""
        return binding_of({party: list(scores) for party, scores in sorted(self.scores.items())}, self.effective)


def search_structure(
    job: StructureJob, *, progress: Callable[[str, int], None], cancelled: Callable[[], bool]
) -> bytes:
    """Search the structure with the largest total information.

    Args:
        job: what to search.
        progress: told stage and percent.
        cancelled: asked now and then; when it says so, the search stops.

    Returns:
        The canonical bytes of the structure (`verticil.shared.study.structure_document`), to be signed.

    Raises:
        LearningCancelled: `cancelled` said so.
        Misuse: STUDY_UNSUPPORTED.
    """
    from verticil.miner.learning.structure import find_structure, way_on_pairs

    study = canonical.from_bytes(job.effective, wire=False)
    d = len(study.schema)
    information = np.zeros((d, d), dtype=np.float64)
    for party in study.parties:
        for (a, b), nanonats in zip(scored_pairs(study, party), job.scores[party], strict=True):
            information[a, b] = information[b, a] = nanonats / NANONATS

    def search(checkpoint: Checkpoint | None, keep: Keep | None) -> SearchResult:
        return find_structure(
            information,
            study,
            progress=lambda share: progress("searching", int(100 * share)),
            cancelled=cancelled,
            checkpoint=checkpoint,
            keep=keep,
        )

    digest = canonical.digest(study)
    result = resumed(search, job.checkpoint, job.binding, what=f"study {digest.hex()}", seconds=job.checkpoint_seconds)
    found = search_facts(study, result, chosen=way_on_pairs(study))
    return structure_body(digest, result.dag.parents, found)

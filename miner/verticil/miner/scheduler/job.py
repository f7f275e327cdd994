"""One learning job: what goes in, and the pure worker function that turns stored columns into an unsigned release folder.

`learn_and_write` runs in a process of its own (`worker`) or in a thread (`learning.InlineLearning`) and is the same code in
both. It gets paths, numbers and public documents: no key, no catalogue, no network. It reads the columns through memory maps,
after comparing their digests with those that were receipted, and writes only the job's target and checkpoint. The same job gives
the same release, but for the time of publication; where the search was interrupted, it goes on from the checkpoint.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, cast

import numpy as np

from verticil.miner.learning.search.protocol import Checkpoint, Keep
from verticil.miner.scheduler.search_facts import search_facts
from verticil.miner.storage.checkpoint import CHECKPOINT_SECONDS, binding_of, resumed
from verticil.miner.storage.records import StoredSignature
from verticil.shared.arrays import Codes
from verticil.shared.errors import DataFault
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

Progress = Callable[[str, int], None]
"""Stage and percent; never anything that depends on data."""

_BLOCK: Final = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """The stored column of one unit: codes without a header, `item_bytes` (1 or 2, little-endian) each."""

    path: Path
    item_bytes: int
    sha256: bytes


def _signed_to_json(item: StoredSignature) -> list[str]:
    return [item.body.hex(), item.signature.hex(), item.certificate.hex()]


def _signed_from_json(item: Sequence[str]) -> StoredSignature:
    body, signature, certificate = map(bytes.fromhex, item)
    return StoredSignature(body=body, signature=signature, certificate=certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningJob:
    """Everything that learning needs.

    Attributes:
        proposal_digest: of the study as submitted.
        effective: canonical bytes of the effective study.
        n_common: records in every column.
        columns: one for each unit, in order.
        receipts: the miner's, one for each unit, in order.
        proposal, sub_model: of a sub-model: canonical bytes of the study as submitted, and the miner's statement of it.
        target: the release folder to make; its parent exists.
        started_at: UTC; the release is not dated before it.
        simulation: everything runs on one machine.
        seed_derived: the parties' secrets come from a seed.
        checkpoint: where the search's checkpoints go, and are looked for; its folder exists. None: there are none.
        checkpoint_seconds: between two of them.
    """

    proposal_digest: bytes
    effective: bytes
    n_common: int
    columns: tuple[ColumnFile, ...]
    receipts: tuple[StoredSignature, ...]
    target: Path
    started_at: dt.datetime
    simulation: bool = False
    seed_derived: bool = False
    checkpoint: Path | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    proposal: bytes = b""
    sub_model: StoredSignature | None = None

    def to_json(self) -> bytes:
        """The job as one line of JSON, for another process."""
        return json.dumps(
            {
                "proposal_digest": self.proposal_digest.hex(),
                "effective": self.effective.decode("utf-8"),
                "n_common": self.n_common,
                "columns": [[str(item.path), item.item_bytes, item.sha256.hex()] for item in self.columns],
                "receipts": [_signed_to_json(item) for item in self.receipts],
                "proposal": self.proposal.decode("utf-8"),
                "sub_model": None if self.sub_model is None else _signed_to_json(self.sub_model),
                "target": str(self.target),
                "started_at": self.started_at.isoformat(),
                "simulation": self.simulation,
                "seed_derived": self.seed_derived,
                "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
                "checkpoint_seconds": self.checkpoint_seconds,
            }
        ).encode("ascii")

    @classmethod
    def from_json(cls, line: bytes) -> LearningJob:
        """Read what `to_json` wrote (by the miner itself: not checked)."""
        values = cast("dict[str, object]", json.loads(line))
        columns = cast("list[tuple[str, int, str]]", values["columns"])
        receipts = cast("list[tuple[str, str, str]]", values["receipts"])
        sub_model = cast("tuple[str, str, str] | None", values["sub_model"])
        checkpoint = cast("str | None", values["checkpoint"])
        return cls(
            proposal_digest=bytes.fromhex(cast("str", values["proposal_digest"])),
            effective=cast("str", values["effective"]).encode("utf-8"),
            n_common=cast("int", values["n_common"]),
            columns=tuple(
                ColumnFile(path=Path(path), item_bytes=size, sha256=bytes.fromhex(digest))
                for path, size, digest in columns
            ),
            receipts=tuple(map(_signed_from_json, receipts)),
            proposal=cast("str", values["proposal"]).encode("utf-8"),
            sub_model=None if sub_model is None else _signed_from_json(sub_model),
            target=Path(cast("str", values["target"])),
            started_at=dt.datetime.fromisoformat(cast("str", values["started_at"])),
            simulation=cast("bool", values["simulation"]),
            seed_derived=cast("bool", values["seed_derived"]),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            checkpoint_seconds=cast("float", values["checkpoint_seconds"]),
        )

    @property
    def binding(self) -> bytes:
        """Of the search: SHA-256 of the study, of the columns and of the software that searches."""
        return binding_of([self.n_common, *(item.sha256.hex() for item in self.columns)], self.effective)


def _open_column(column: ColumnFile, n_codes: int, name: str) -> Codes:
    digest = hashlib.sha256()
    try:
        with column.path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        codes: Codes = (
            np.memmap(column.path, dtype=np.uint8, mode="r")
            if column.item_bytes == 1
            else np.memmap(column.path, dtype="<u2", mode="r").view(np.uint16)
        )
    except (OSError, ValueError):
        raise DataFault("STATE_CORRUPT", f"stored column of '{name}': cannot be read") from None
    if digest.digest() != column.sha256 or codes.shape != (n_codes,):
        raise DataFault(
            "STATE_CORRUPT",
            f"stored column of '{name}': its bytes are not those that were receipted",
            hint="the miner's disk or somebody on it changed them, and again after the party sent them anew: its operator should"
            " look for the cause; then submit the study again under a new id",
        )
    return codes


def _columns(job: LearningJob, study: Study) -> list[Codes]:
    """The released codes of each unit, in order: (n,), or (n * w,) where a record is a set of w categories."""
    return [
        _open_column(column, job.n_common * unit.transition.codes_per_record, ", ".join(unit.variables))
        for column, unit in zip(job.columns, study.units, strict=True)
    ]


def learn_and_write(
    job: LearningJob,
    *,
    progress: Progress,
    cancelled: Callable[[], bool],
    clock: Callable[[], dt.datetime],
) -> None:
    """Learn the study's network from the stored columns and write the release folder, unsigned.

    Args:
        job: what to learn.
        progress: told stage and percent.
        cancelled: asked now and then; when it says so, learning stops.
        clock: UTC now, for the time of publication.

    Raises:
        LearningCancelled: `cancelled` said so.
        DataFault: STATE_CORRUPT, a column is not what was receipted; DISK_FULL.
        Misuse: STUDY_UNSUPPORTED, this version cannot learn it.
    """
    from verticil.miner.learning.learn import LearnResult, learn
    from verticil.shared.release.bundle import write_release
    from verticil.shared.release.content import ReleaseContent
    from verticil.shared.release.synthesis import released_records

    study = canonical.from_bytes(job.effective, wire=False)
    progress("reading", 0)
    columns = _columns(job, study)

    def search(checkpoint: Checkpoint | None, keep: Keep | None) -> LearnResult:
        return learn(columns, study, progress=progress, cancelled=cancelled, checkpoint=checkpoint, keep=keep)

    learned = resumed(
        search,
        job.checkpoint,
        job.binding,
        what=f"study {job.proposal_digest.hex()}",
        seconds=job.checkpoint_seconds,
    )
    progress("sampling", 0)
    codes, synthetic = released_records(learned.network, study, job.n_common)
    progress("writing", 0)
    write_release(
        job.target,
        ReleaseContent(
            study=study,
            study_digest=job.proposal_digest.hex(),
            effective_digest=canonical.digest(study).hex(),
            network=learned.network,
            marginals=learned.marginals,
            synthetic=synthetic,
            codes=codes,
            n_common=job.n_common,
            receipts=job.receipts,
            pairs=learned.pairs,
            proposal=job.proposal,
            sub_model=job.sub_model,
            provenance={
                "model_marginals": "exact" if learned.marginals_exact else "sampled",
                "python": platform.python_version(),
                **{name: version(name) for name in ("numpy", "numba", "pandas", "pyarrow", "scipy")},
            },
            search=search_facts(
                study,
                learned.search,
                chosen=learned.way,
                candidates=learned.candidates,
                pair_check=learned.pair_check,
                edge_strength=learned.edge_strength,
                weak_edges=learned.weak_edges,
            ),
            simulation=job.simulation,
            seed_derived=job.seed_derived,
            published_at=max(clock(), job.started_at).astimezone(dt.UTC).replace(microsecond=0),
        ),
    )
    progress("written", 100)

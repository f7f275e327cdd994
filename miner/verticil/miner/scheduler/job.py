"""The jobs of a child process: what goes in, and the pure worker function that does it.

A learning job turns stored columns into an unsigned release folder. A structure job stands in `structure_job`.

`learn_and_write` runs in a process of its own (`worker`) or in a thread (`learning.InlineLearning`) and is the same code in
both. It gets paths, numbers and public documents: no key, no catalogue, no network. It reads the columns through memory maps,
after comparing their digests with those that were receipted, and writes only the job's target and checkpoint. The same job
gives the same release, but for the time of publication; where the search was interrupted, it goes on from the checkpoint.

A study with noise on tables (``tables``) is learned in two jobs. A counting job counts its tables from the columns, exactly, and
gets no key; the miner adds the noise (`noise`). The learning job of such a study gets the noisy tables and no column, so whatever
it writes is a function of them and of the number of people.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np

from verticil.miner.storage.checkpoint import CHECKPOINT_SECONDS, binding_of, resume
from verticil.miner.storage.records import StoredSignature
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.progress import Meter, StepProgress
from verticil.shared.documents.record import parse, read
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    from verticil.miner.learning.publication import Origin
    from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.miner.scheduler.structure_job import StructureJob, search_structure

ReportProgress = Callable[[str, int], None]
"""Stage and percent; never anything that depends on data."""

_LONGEST: Final = 1 << 30  # bytes of a job

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """The stored column of one unit: codes without a header, `item_bytes` (1 or 2, little-endian) each."""

    path: Path
    item_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesFile:
    """A file of a study's tables (`verticil.miner.storage.noisy_table_files`), and the binding that it must have."""

    path: Path
    binding: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingJob:
    """Everything that counting a study's tables needs; a line for another process, as a `LearningJob`.

    Attributes:
        effective: canonical bytes of the effective study.
        n_common: records in every column.
        columns: one for each unit, in order.
        target: the file of exact tables to make.
    """

    MARK: ClassVar = {"kind": "counting"}

    effective: bytes
    n_common: int
    columns: tuple[ColumnFile, ...]
    target: TablesFile


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningJob:
    """Everything that learning needs. `record.encode` makes one line of it, for another process.

    Attributes:
        proposal_digest: of the study as submitted.
        effective: canonical bytes of the effective study.
        n_common: records in every column.
        columns: one for each unit, in order; none of a study with noise on tables.
        tables: the noisy tables of such a study.
        receipts: the miner's, one for each unit, in order.
        proposal, sub_model: of a sub-model: canonical bytes of the study as submitted, and the miner's statement of it.
        target: the release folder to make; its parent exists.
        started_at: UTC; the release is not dated before it.
        simulation: everything runs on one machine.
        seed_derived: the parties' secrets come from a seed.
        checkpoint: where the search's checkpoints go, and are looked for; its folder exists. None: there are none.
        checkpoint_seconds: between two of them.
    """

    MARK: ClassVar = {"kind": "learning"}

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
    tables: TablesFile | None = None

    @property
    def binding(self) -> bytes:
        """Of the search: SHA-256 of the study, of the columns or noisy tables, and of the software that searches."""
        tables = [] if self.tables is None else [hashlib.sha256(self.tables.path.read_bytes()).hexdigest()]
        return binding_of([self.n_common, *(item.sha256.hex() for item in self.columns), *tables], self.effective)


Job: TypeAlias = "LearningJob | CountingJob | StructureJob"


def job_from(line: bytes) -> Job:
    """Read what `record.encode` made of a job, in the miner's own process."""
    table = parse(line, source="job", limit=_LONGEST)
    kinds: dict[object, type[Job]] = {"structure": StructureJob, "counting": CountingJob}
    return read(kinds.get(table.raw("kind"), LearningJob), table)


def do_job(
    job: Job,
    *,
    progress: ReportProgress,
    is_cancelled: Callable[[], bool],
    clock: Callable[[], dt.datetime],
) -> bytes:
    """Do a job; arguments and errors as of `learn_and_write`, `count_tables` and `search_structure`.

    Returns:
        The structure's canonical bytes; empty after learning and counting.
    """
    if isinstance(job, StructureJob):
        return search_structure(job, progress=progress, is_cancelled=is_cancelled)
    if isinstance(job, CountingJob):
        count_tables(job, progress=progress, is_cancelled=is_cancelled)
        return b""
    learn_and_write(job, progress=progress, is_cancelled=is_cancelled, clock=clock)
    return b""


def _open_column(column: ColumnFile, n_codes: int, name: str) -> Codes:
    try:
        with column.path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").digest()
        codes: Codes = (
            np.memmap(column.path, dtype=np.uint8, mode="r")
            if column.item_bytes == 1
            else np.memmap(column.path, dtype="<u2", mode="r").view(np.uint16)
        )
    except (OSError, ValueError):
        raise DataFault("STATE_CORRUPT", f"stored column of '{name}': cannot be read") from None
    if sha256 != column.sha256 or codes.shape != (n_codes,):
        raise DataFault(
            "STATE_CORRUPT",
            f"stored column of '{name}': its bytes are not those that were receipted",
            hint="the miner's disk or somebody on it changed them, and again after the party sent them anew: its operator should"
            " look for the cause; then submit the study again under a new id",
        )
    return codes


def _columns(job: LearningJob | CountingJob, study: Study) -> list[Codes]:
    """Return the released codes of each unit, in order: (n,), or (n * w,) where a record is a set of w categories."""
    return [
        _open_column(column, job.n_common * unit.transition.codes_per_record, ", ".join(unit.variables))
        for column, unit in zip(job.columns, study.units, strict=True)
    ]


def count_tables(job: CountingJob, *, progress: ReportProgress, is_cancelled: Callable[[], bool]) -> None:
    """Count the tables of a study with noise on tables, exactly, into the job's target.

    Args:
        job: what to count.
        progress: called with stage and percent.
        is_cancelled: asked now and then; when it says so, counting stops.

    Raises:
        LearningCancelled: `is_cancelled` said so.
        DataFault: STATE_CORRUPT, a column is not what was receipted; DISK_FULL.
    """
    from verticil.miner.learning.exact_tables import counted_tables
    from verticil.miner.learning.search.protocol import Interruption
    from verticil.miner.storage.noisy_table_files import write_tables

    study = canonical.from_bytes(job.effective, wire=False)
    progress("counting", 0)
    tables = counted_tables(_columns(job, study), study, check=Interruption(cancelled=is_cancelled).check)
    write_tables(job.target.path, tables, job.target.binding)
    progress("counting", 100)


def learn_and_write(
    job: LearningJob,
    *,
    progress: ReportProgress,
    is_cancelled: Callable[[], bool],
    clock: Callable[[], dt.datetime],
) -> None:
    """Learn the study's network from the stored columns and write the release folder, unsigned.

    Args:
        job: what to learn.
        progress: called with stage and percent.
        is_cancelled: asked now and then; when it says so, learning stops.
        clock: UTC now, for the time of publication.

    Raises:
        LearningCancelled: `is_cancelled` said so.
        DataFault: STATE_CORRUPT, a column is not what was receipted; LEARNING_FAILED; DISK_FULL.
        Misuse: STUDY_UNSUPPORTED, this version cannot learn it.
    """
    from verticil.miner.learning.from_tables import learn_from_tables
    from verticil.miner.learning.learn import LearnResult, learn
    from verticil.miner.learning.publication import content_of, draw_published_records, publish_models
    from verticil.miner.learning.search.protocol import Interruption
    from verticil.miner.storage.noisy_table_files import read_tables
    from verticil.shared.release.folder.writing import write_release
    from verticil.shared.release.posterior import check_sets

    study = canonical.from_bytes(job.effective, wire=False)
    check_sets(study, job.n_common)
    progress("reading", 0)
    file = job.tables
    columns = _columns(job, study) if file is None else []
    tables = None if file is None else read_tables(file.path, study, job.n_common, file.binding, noisy=True)

    def search(interruption: Interruption) -> LearnResult:
        if tables is None:
            return learn(columns, study, progress=progress, interruption=interruption)
        return learn_from_tables(tables, study, progress=progress, interruption=interruption)

    result = resume(
        search,
        job.checkpoint,
        job.binding,
        is_cancelled=is_cancelled,
        what=f"study {job.proposal_digest.hex()}",
        seconds=job.checkpoint_seconds,
    )
    progress("sampling", 0)
    models = publish_models(result, study)
    n_records = study.release.synthetic_records or job.n_common
    drawing = _meter("sampling", "drawing records", n_records, progress)
    records = draw_published_records(result, models, study, job.n_common, folder=job.target.parent, progress=drawing.at)
    progress("writing", 0)
    content = content_of(result, models, records, study, _origin(job, study, tables, clock()))
    writing = _meter("writing", "writing tables", 2 * n_records, progress)
    write_release(job.target, content, progress=writing.at)
    progress("written", 100)


def _origin(job: LearningJob, study: Study, tables: NoisyTables | None, now: dt.datetime) -> Origin:
    """Say where what the job learned comes from; the release is not dated before the job."""
    from verticil.miner.learning.publication import Origin
    from verticil.shared.release.protocols import release_protocol

    tables_statement = None
    if tables is not None:
        tables_statement = release_protocol(study).opened(
            study, [table.counts for table in tables.all_tables], job.n_common
        )
    return Origin(
        study_digest=job.proposal_digest,
        n_common=job.n_common,
        published_at=max(now, job.started_at).astimezone(dt.UTC).replace(microsecond=0),
        receipts=job.receipts,
        proposal=job.proposal,
        sub_model=job.sub_model,
        opened=tables_statement,
        simulation=job.simulation,
        seed_derived=job.seed_derived,
        packages=("scipy",),
    )


def _meter(stage: str, step: str, total: int, progress: Callable[[str, int], None]) -> Meter:
    """Tell whoever waits how many per cent are done, and the log how fast it goes."""

    def tell(meter: StepProgress) -> None:
        progress(stage, 100 * meter.done // total)
        if meter.seconds_left:
            _log.info("%s", meter.text)

    return Meter(step, total, tell, every_seconds=10)

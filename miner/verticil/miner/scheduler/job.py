"""The jobs of a child process: what goes in, and the pure worker function that does it.

A learning job turns stored columns into an unsigned release folder.

`learn_and_write` runs in a process of its own (`worker`) or in a thread (`learning.InlineLearning`) and is the same code in
both. It gets paths, numbers and public documents: no key, no catalogue, no network. It reads the columns through memory maps,
after comparing their digests with those that were receipted, and writes only the job's target and checkpoint. The same job
gives the same release, but for the time of publication; where the search was interrupted, it goes on from the checkpoint.

A study with noise on tables (``tables``) is learned in two jobs. A counting job counts its tables from the columns, exactly, and
gets no key; the miner adds the noise (`noise`). The learning job of such a study gets the noisy tables and no column, so whatever
it writes is a function of them and of the number of people.

A structure job (Model I) turns the parties' scores into a structure document. `search_structure` runs in the same places. It
gets the effective study and the parties' scores: no column, no pseudonym, no key. The same job gives the same bytes, also where
it was interrupted and goes on from the checkpoint.

`search_facts` is what a release says of how its structure was found.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np

from verticil.miner.storage.checkpoint import CHECKPOINT_SECONDS, binding_of, resumed
from verticil.miner.storage.records import StoredSignature
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.progress import Meter
from verticil.shared.documents.progress import Progress as Told
from verticil.shared.documents.record import parse, read
from verticil.shared.numerics.model.network import CONFIRMED
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.peer import scored_pairs
from verticil.shared.study.structure_document import NANONATS, structure_body

if TYPE_CHECKING:
    from verticil.miner.learning.held_out import PairCheck
    from verticil.miner.learning.search.protocol import SearchResult
    from verticil.miner.learning.selection import Candidate
    from verticil.miner.learning.strength import EdgeStrength
    from verticil.miner.learning.structure import Search
    from verticil.shared.numerics.joint.estimate import JointEstimate
    from verticil.shared.numerics.model.joint import JointModel
    from verticil.shared.numerics.posterior.result import StructurePosterior
    from verticil.shared.release.formats.posterior import PublishedPosterior

Progress = Callable[[str, int], None]
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
    """A file of a study's tables (`verticil.miner.storage.measured`), and the binding that it must have."""

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
    progress: Progress,
    cancelled: Callable[[], bool],
    clock: Callable[[], dt.datetime],
) -> bytes:
    """Do a job; arguments and errors as of `learn_and_write`, `count_tables` and `search_structure`.

    Returns:
        The structure's canonical bytes; empty after learning and counting.
    """
    if isinstance(job, StructureJob):
        return search_structure(job, progress=progress, cancelled=cancelled)
    if isinstance(job, CountingJob):
        count_tables(job, progress=progress, cancelled=cancelled)
        return b""
    learn_and_write(job, progress=progress, cancelled=cancelled, clock=clock)
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
    """The released codes of each unit, in order: (n,), or (n * w,) where a record is a set of w categories."""
    return [
        _open_column(column, job.n_common * unit.transition.codes_per_record, ", ".join(unit.variables))
        for column, unit in zip(job.columns, study.units, strict=True)
    ]


def count_tables(job: CountingJob, *, progress: Progress, cancelled: Callable[[], bool]) -> None:
    """Count the tables of a study with noise on tables, exactly, into the job's target.

    Args:
        job: what to count.
        progress: called with stage and percent.
        cancelled: asked now and then; when it says so, counting stops.

    Raises:
        LearningCancelled: `cancelled` said so.
        DataFault: STATE_CORRUPT, a column is not what was receipted; DISK_FULL.
    """
    from verticil.miner.learning.measured import counted_tables
    from verticil.miner.learning.search.protocol import Interruption
    from verticil.miner.storage.measured import write_tables

    study = canonical.from_bytes(job.effective, wire=False)
    progress("counting", 0)
    tables = counted_tables(_columns(job, study), study, cancelled=Interruption(cancelled=cancelled).check)
    write_tables(job.target.path, tables, job.target.binding)
    progress("counting", 100)


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
        progress: called with stage and percent.
        cancelled: asked now and then; when it says so, learning stops.
        clock: UTC now, for the time of publication.

    Raises:
        LearningCancelled: `cancelled` said so.
        DataFault: STATE_CORRUPT, a column is not what was receipted; LEARNING_FAILED; DISK_FULL.
        Misuse: STUDY_UNSUPPORTED, this version cannot learn it.
    """
    from verticil.miner.learning.from_tables import learn_from_tables
    from verticil.miner.learning.learn import LearnResult, learn
    from verticil.miner.learning.search.protocol import Interruption
    from verticil.miner.storage.measured import read_tables
    from verticil.shared.release.bundle import write_release
    from verticil.shared.release.content import ReleaseContent
    from verticil.shared.release.posterior import check_sets
    from verticil.shared.release.protocols import release_protocol
    from verticil.shared.release.records import released_records

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

    learned = resumed(
        search,
        job.checkpoint,
        job.binding,
        cancelled=cancelled,
        what=f"study {job.proposal_digest.hex()}",
        seconds=job.checkpoint_seconds,
    )
    progress("sampling", 0)
    joint, joint_facts = published_joint(learned.joint, study)
    posterior = published_posterior(learned.posterior, study)
    sampled = () if posterior is None else posterior.networks
    n_records = study.release.synthetic_records or job.n_common
    codes, synthetic = released_records(
        learned.network,
        study,
        job.n_common,
        joint,
        sampled,
        folder=job.target.parent,
        progress=_meter("sampling", "drawing records", n_records, progress).at,
    )
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
            joint=joint,
            joint_facts=joint_facts,
            posterior=posterior,
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
            opened=None
            if tables is None
            else release_protocol(study).opened(study, [table.counts for table in tables.tables], job.n_common),
            published_at=max(clock(), job.started_at).astimezone(dt.UTC).replace(microsecond=0),
        ),
        progress=_meter("writing", "writing tables", 2 * n_records, progress).at,
    )
    progress("written", 100)


def _meter(stage: str, step: str, total: int, progress: Callable[[str, int], None]) -> Meter:
    """Tells whoever waits how many per cent are done, and the log how fast it goes."""

    def tell(told: Told) -> None:
        progress(stage, 100 * told.done // total)
        if told.seconds_left:
            _log.info("%s", told.text)

    return Meter(step, total, tell, every_seconds=10)


def published_joint(found: JointEstimate | None, study: Study) -> tuple[JointModel | None, dict[str, Json]]:
    """The joint model as a release has it, and what is said of it; None where the records come from the network.

    A model that would not keep what the study declares, or is too large, is not published: records come from the network then.
    Where the study leaves open what they come from, it is said how much of each they are (`sampled_from`).
    """
    from verticil.miner.learning.joint import asks_for_joint
    from verticil.shared.numerics.model.rounding import round_joint
    from verticil.shared.release.content import joint_fault
    from verticil.shared.release.formats.joint import fits

    if found is None or not asks_for_joint(study):
        return None, {}
    model = round_joint(found.model)
    published = found.share > 0 and not joint_fault(study, model) and fits(model, study.schema)
    share = round(found.share, 4) if published else 0.0
    facts: dict[str, Json] = {}
    if study.leaves_source_open:
        facts["sampled_from"] = {"joint": share, "network": round(1 - share, 4)}
    if not published:
        return None, facts
    facts |= {
        "kind": found.kind,
        "steps": found.steps,
        "discrepancy": round(found.discrepancy, 4),
        "reached": found.reached,
        "share_of_the_model": round(found.alpha, 4),
    }
    return model, facts


def published_posterior(found: StructurePosterior | None, study: Study) -> PublishedPosterior | None:
    """What a release has of sampled graphs, the networks rounded; None where the study samples none."""
    from verticil.shared.numerics.model.rounding import round_network
    from verticil.shared.release.formats.posterior import MAX_GRAPHS, Agreement, Edge, Predicted, PublishedPosterior

    if found is None:
        return None
    sample, chains = found.sample, found.sample.diagnostics
    distinct = sample.distinct()
    return PublishedPosterior(
        source=found.source,
        chains=study.posterior.chains,
        steps=sample.steps,
        burn_in=sample.burn_in,
        every=sample.every,
        n_graphs=sample.n_draws,
        agreement=Agreement(
            r_hat=chains.r_hat,
            edge_difference=chains.edge_difference,
            effective=chains.effective_size,
            agree=chains.agree,
            tail=chains.tail_size,
            moved=found.moved,
        ),
        edges=tuple(
            Edge(
                parent=parent,
                child=child,
                probability=float(sample.edge_probability[parent, child]),
                error=float(sample.edge_error[parent, child]),
            )
            for child, parent in np.argwhere(sample.edge_probability.T > 0).tolist()
        ),
        consensus=found.consensus,
        distinct=len(distinct),
        graphs=distinct[:MAX_GRAPHS],
        networks=tuple(map(round_network, found.networks)),
        pairs=found.pairs,
        predictive=tuple(
            Predicted(
                words=words,
                draws=tuple(told.draws.tolist()),
                mean=told.mean,
                low=told.low,
                high=told.high,
                r_hat=told.worth.r_hat,
                effective=told.worth.bulk,
                tail=told.worth.tail,
            )
            for words, told in zip(study.posterior.statistics, found.predictive, strict=True)
        ),
        missing=found.missing,
        constant=found.constant,
    )


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
    job: StructureJob, *, progress: Callable[[str, int], None], cancelled: Callable[[], bool]
) -> bytes:
    """Search the structure with the largest total information.

    Args:
        job: what to search.
        progress: called with stage and percent.
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

    def told(share: float) -> None:
        progress("searching", int(100 * share))

    digest = canonical.digest(study)
    result = resumed(
        lambda interruption: find_structure(information, study, progress=told, interruption=interruption),
        job.checkpoint,
        job.binding,
        cancelled=cancelled,
        what=f"study {digest.hex()}",
        seconds=job.checkpoint_seconds,
    )
    found = search_facts(study, result, chosen=way_on_pairs(study))
    return structure_body(digest, result.dag.parents, found)


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
    chosen: Search | None = None,
    candidates: Sequence[Candidate] = (),
    pair_check: PairCheck | None = None,
    edge_strength: Mapping[tuple[int, int], EdgeStrength] | None = None,
    weak_edges: Mapping[tuple[int, int], EdgeStrength] | None = None,
) -> dict[str, Json]:
    """The facts, as JSON values.

    Args:
        study: the effective study.
        result: of the search.
        chosen: what the method auto chose; only looked at there.
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
    if rule.method == "auto" and chosen is not None:
        facts["chosen"] = chosen.text
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
        facts["edge_strength"] = [[*edge, round(told.strength, 4)] for edge, told in _named(edge_strength, names)]
        strength, information = (_STRENGTH, _INFORMATION) if study.tables is None else _OF_TABLES
        facts["edge_strength_is"] = strength
        facts["edge_information"] = [[*edge, round(told.information, 6)] for edge, told in _named(edge_strength, names)]
        facts["edge_information_is"] = information
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


def _pairs(check: PairCheck, names: Sequence[str]) -> dict[str, Json]:
    facts: dict[str, Json] = {"significant_pairs": check.pairs}
    if check.worst is not None:
        facts["worst_pair"] = [names[variable] for variable in check.worst]
        facts["distance"] = round(check.distance, 4)
        facts["distance_that_noise_explains"] = round(check.noise, 4)
    facts["left_nearly_independent"] = [[names[a], names[b], round(nats, 4)] for a, b, nats in check.missing]
    return facts

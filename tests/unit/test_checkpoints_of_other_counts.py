"""A checkpoint is gone on with where everything that was counted is the same, to the last person; else the work begins anew."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support import studies
from support.noisy_tables import empty, redrawn, truth
from support.noisy_tables import study as noisy_study
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.learn import learn
from verticil.miner.learning.search.protocol import Checkpoint, ForeignCheckpoint, Interruption
from verticil.miner.scheduler.job import ColumnFile, LearningJob, TablesFile
from verticil.miner.scheduler.structure_job import StructureJob
from verticil.miner.storage.noisy_table_files import binding_of_tables, read_tables, write_tables
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.joint import checkpoints as work
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.posterior.parent_sets import ParentSets
from verticil.shared.study import canonical
from verticil.shared.study.document import PosteriorRule, Study

FOREIGN = (ForeignCheckpoint, work.ForeignCheckpoint)
N_STATES = (3, 2, 4, 2)
SEARCHES = ("auto", "genetic", "greedy", "hill-climb", "tree", "order", "posterior")


def study_of(method: str, **more: object) -> Study:
    rule = PosteriorRule(steps=400, data_sets=2) if method == "posterior" else None
    score = {"posterior": {"score": "bdeu"}, "hill-climb": {"score": "bic"}}.get(method, {})
    structure = {"method": method, "seed": 3, **score, **more}
    return studies.study_of(studies.numbered(N_STATES), epsilon=None, structure=structure, posterior=rule)


def people(n: int = 300) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    base = rng.random(n)
    return [((base + rng.random(n) / 2) % 1 * size).astype(np.uint8) for size in N_STATES]


def kept_by(run: Callable[[Interruption], object]) -> list[Checkpoint]:
    """All checkpoints of a whole run."""
    kept: list[Checkpoint] = []
    run(Interruption(keep=lambda make: kept.append(make())))
    assert kept
    return kept


@pytest.mark.parametrize("method", SEARCHES)
def test_a_search_goes_on_with_no_checkpoint_of_other_records(method: str) -> None:
    """One person has another value in one column."""
    study, columns = study_of(method), people()
    kept = kept_by(lambda interruption: learn(columns, study, interruption=interruption))
    learn(columns, study, interruption=Interruption(checkpoint=kept[-1]))  # of its own it is
    other = [column.copy() for column in columns]
    other[1][0] = 1 - other[1][0]
    for checkpoint in (kept[0], kept[-1]):
        with pytest.raises(FOREIGN):
            learn(other, study, interruption=Interruption(checkpoint=checkpoint))


def test_a_sample_of_graphs_is_of_the_very_weights() -> None:
    """The same sets of parents may be weighed otherwise by other counts."""
    starts, masks = np.arange(3), np.zeros(2, dtype=np.uint64)
    one, other = (
        ParentSets(n_variables=2, starts=starts, masks=masks, log_weight=np.array([0, w])) for w in (0.0, 0.5)
    )
    assert one.digest() != other.digest()


def measured() -> NoisyTables:
    return redrawn(empty(noisy_study()), truth(), np.random.default_rng(8))


def with_one_more(tables: NoisyTables, place: int) -> NoisyTables:
    """One count of one table is larger by one."""
    counts = tables.tables[place].counts.copy()
    counts.flat[0] += 1
    changed = dataclasses.replace(tables.tables[place], counts=counts)
    return dataclasses.replace(tables, tables=(*tables.tables[:place], changed, *tables.tables[place + 1 :]))


def test_neither_an_estimate_nor_a_search_of_it_goes_on_with_a_checkpoint_of_other_tables() -> None:
    tables, study = measured(), noisy_study(minimum_strength=None)
    kept = kept_by(lambda interruption: learn_from_tables(tables, study, interruption=interruption))
    stages = {
        "search" if any(name.startswith("search:") for name in checkpoint) else "joint": checkpoint
        for checkpoint in kept
    }
    assert set(stages) == {"joint", "search"}
    for checkpoint in stages.values():
        for place in (0, len(tables.tables) - 1):
            with pytest.raises(FOREIGN):
                learn_from_tables(with_one_more(tables, place), study, interruption=Interruption(checkpoint=checkpoint))


def test_the_file_of_a_checkpoint_belongs_to_the_very_columns_scores_and_tables(tmp_path: Path) -> None:
    effective = canonical.to_bytes(noisy_study())
    column = ColumnFile(path=tmp_path / "0", item_bytes=1, sha256=b"a" * 32)
    job = LearningJob(
        proposal_digest=bytes(32),
        effective=effective,
        n_common=300,
        columns=(column,),
        receipts=(),
        target=tmp_path / "release",
        started_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    )
    (tmp_path / "tables").write_bytes(b"counts")
    (tmp_path / "others").write_bytes(b"count5")
    tables, others = (TablesFile(path=tmp_path / name, binding=bytes(32)) for name in ("tables", "others"))
    jobs = [
        job,
        dataclasses.replace(job, columns=(dataclasses.replace(column, sha256=b"b" * 32),)),
        dataclasses.replace(job, n_common=301),
        dataclasses.replace(job, tables=tables),
        dataclasses.replace(job, tables=others),
    ]
    assert len({item.binding for item in jobs}) == len(jobs)
    scores = [StructureJob(effective=effective, scores={"north": (1, score)}) for score in (2, 3)]
    assert scores[0].binding != scores[1].binding


def test_tables_that_were_counted_from_other_columns_are_not_read(tmp_path: Path) -> None:
    study, tables = noisy_study(), measured()
    columns = [bytes([number]) * 32 for number in range(len(study.units))]
    binding = binding_of_tables(study, columns, tables.n_records, 1.0)
    write_tables(tmp_path / "tables", tables, binding)
    for other in (
        binding_of_tables(study, [*columns[:-1], bytes(32)], tables.n_records, 1.0),
        binding_of_tables(study, columns, tables.n_records + 1, 1.0),
        binding_of_tables(study, columns, tables.n_records, 2.0),
    ):
        with pytest.raises(DataFault, match="they are of another study"):
            read_tables(tmp_path / "tables", study, tables.n_records, other, noisy=True)

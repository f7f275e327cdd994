"""A search, or an estimate, in a process of its own, killed and stopped on the way: it goes on, and gives the same bytes."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import hashlib
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support import PATIENCE_SECONDS, held_search, studies
from verticil.miner.learning.search.protocol import Checkpoint
from verticil.miner.scheduler import learning
from verticil.miner.scheduler.job import ColumnFile, LearningJob, job_from
from verticil.miner.scheduler.learning import InlineLearning, SpawnedLearning, WorkerDied
from verticil.miner.scheduler.structure_job import StructureJob
from verticil.miner.storage.checkpoint import CheckpointFile
from verticil.shared.documents.record import encode
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study import canonical
from verticil.shared.study.document import (
    GeneticRule,
    ShareRule,
    Study,
)
from verticil.shared.study.peer import scored_pairs

NOW = dt.datetime(
    2098, 11, 21, tzinfo=dt.UTC
)  # no release is dated before its job began: equal bytes, whatever the clock
D, N = 8, 500


def study_of(model: str, generations: int, sample_from: str | None = None, *, d: int = D) -> Study:
    genetic = GeneticRule(population=30, selected=4, generations=generations)
    return studies.study_of(
        [Variable(name=f"v{i}", owner=("north", "south")[i % 2], labels=("x", "y", "z")) for i in range(d)],
        epsilon=3.0,
        model=model,
        structure={"max_parents": 3, "max_family_cells": 1000, "seed": 1, "genetic": genetic},
        release={"seed": 5, "sample_from": sample_from},
        share=ShareRule() if model == "peer" else None,
    )


def job_in(folder: Path, generations: int, sample_from: str | None = None, *, d: int = D) -> LearningJob:
    """`d` columns that follow each other, on disk."""
    folder.mkdir()
    generator = np.random.default_rng(4)
    base, columns = generator.integers(0, 3, N), []
    for unit in range(d):
        data = ((base + (generator.random(N) < 0.3)) % 3).astype(np.uint8).tobytes()
        path = folder / f"{unit}.u8"
        path.write_bytes(data)
        columns.append(ColumnFile(path=path, item_bytes=1, sha256=hashlib.sha256(data).digest()))
    return LearningJob(
        proposal_digest=bytes(32),
        effective=canonical.to_bytes(study_of("central", generations, sample_from, d=d)),
        n_common=N,
        columns=tuple(columns),
        receipts=(),
        target=folder / "release",
        started_at=NOW,
        checkpoint=folder / "checkpoint",
        checkpoint_seconds=0.05,
    )


def written(job: LearningJob) -> dict[str, bytes]:
    assert job.target.is_dir()
    return {path.name: path.read_bytes() for path in job.target.iterdir() if path.name != "report.html"}


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()}


def stored(job: LearningJob | StructureJob) -> Checkpoint:
    assert job.checkpoint is not None
    return CheckpointFile(job.checkpoint, job.binding, what="test").read() or {}


def generation(job: LearningJob | StructureJob) -> int:
    return int(stored(job)["generation" if isinstance(job, StructureJob) else "search:generation"])


def when_held(act: Callable[[], object]) -> Callable[[str, int], None]:
    """Progress that acts where `held_search` waits for it."""

    def progress(_stage: str, percent: int) -> None:
        if percent == held_search.HELD:
            act()

    return progress


def hold(patch: pytest.MonkeyPatch, when: str) -> None:
    """Let processes that learn from now on wait there."""
    patch.setenv(held_search.WHEN, when)
    patch.setenv("PYTHONPATH", str(Path(held_search.__file__).parents[1]))
    patch.setattr(learning, "_WORKER", held_search.__name__)


@pytest.mark.whole
async def test_feature_26_killed_stopped_and_resumed_it_writes_what_it_would_have_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(learning, "_STOP_SECONDS", PATIENCE_SECONDS)  # it ends by itself, however slow the machine
    generations = 20_000
    whole, job = job_in(tmp_path / "whole", generations), job_in(tmp_path / "stopped", generations)
    thread, executor = InlineLearning(clock=lambda: NOW), SpawnedLearning(tmp_path / "cache")
    await thread.run(whole, lambda _stage, _percent: None)
    before = children()

    def kill() -> None:
        (worker,) = children() - before
        os.kill(worker, signal.SIGKILL)

    hold(monkeypatch, "searching 5 0")
    with pytest.raises(WorkerDied) as death:
        await executor.run(job, when_held(kill))
    assert death.value.status == -signal.SIGKILL
    killed = generation(job)
    assert 0 < killed < generations

    hold(monkeypatch, "searching 40 0")
    running = asyncio.create_task(executor.run(job, when_held(lambda: running.cancel())))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert children() == before
    stopped = generation(job)
    assert killed < stopped < generations
    assert stopped >= 0.4 * generations - 1  # the one that was made because it was asked to stop, not an earlier one
    assert not job.target.exists()
    goes_on = "study " + "00" * 32 + ": the search goes on from its checkpoint"
    assert caplog.messages.count(goes_on) == 1  # the process said so through the miner's log; the killed one had none

    caplog.clear()
    told: list[int] = []
    await thread.run(job, lambda stage, percent: told.append(percent) if stage == "searching" else None)
    assert goes_on in caplog.messages
    assert min(told[1:]) >= 100 * stopped // generations
    assert written(job) == written(whole)


@pytest.mark.whole
async def test_killed_in_its_estimate_it_writes_what_it_would_have_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, job = (job_in(tmp_path / name, 100, "joint", d=8) for name in ("whole", "killed"))
    thread, executor = InlineLearning(clock=lambda: NOW), SpawnedLearning(tmp_path / "cache")
    await thread.run(whole, lambda _stage, _percent: None)
    assert "joint.bifxml" in written(whole)
    before = children()
    hold(monkeypatch, "estimating 0 3")
    kill = when_held(lambda: [os.kill(child, signal.SIGKILL) for child in children() - before])
    with pytest.raises(WorkerDied):
        await executor.run(dataclasses.replace(job, checkpoint_seconds=0), kill)  # one at every step
    assert not job.target.exists()
    assert job.checkpoint is not None
    torn = job.checkpoint.read_bytes()
    foreign = dict(stored(job)) | {"joint:work": np.zeros(32, dtype=np.uint8)}
    assert {name.partition(":")[0] for name in foreign} == {"joint", "search"}

    told: list[str] = []
    caplog.clear()
    caplog.set_level(logging.INFO)
    await thread.run(job, lambda stage, percent: told.append(f"{stage} {percent}"))
    assert "the search goes on from its checkpoint" in caplog.text
    assert told[told.index("parameters 100") + 1] != "estimating 0"
    assert written(job) == written(whole)

    for number, damage in enumerate(("torn", "foreign")):
        again = dataclasses.replace(job, target=tmp_path / str(number))
        if damage == "torn":
            job.checkpoint.write_bytes(torn[: len(torn) // 2])
        else:
            CheckpointFile(job.checkpoint, job.binding, what="test").write(foreign)
        caplog.clear()
        await thread.run(again, lambda _stage, _percent: None)
        assert "the search begins anew" in caplog.text
        assert written(again) == written(whole)


async def test_a_search_from_scores_goes_on_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    study, executor = study_of("peer", 3000), InlineLearning(clock=lambda: NOW)
    generator = np.random.default_rng(1)
    scores = {p: tuple(generator.integers(0, 10**8, len(scored_pairs(study, p))).tolist()) for p in study.parties}
    job = StructureJob(
        effective=canonical.to_bytes(study),
        scores=scores,
        checkpoint=tmp_path / "checkpoint",
        checkpoint_seconds=0.05,
    )
    assert job_from(encode(job)) == job
    whole = await executor.run(dataclasses.replace(job, checkpoint=None), lambda _stage, _percent: None)
    with monkeypatch.context() as patch:
        patch.setenv(held_search.WHEN, "searching 20 0")
        patch.setattr(learning, "do_job", held_search.do_job)
        running = asyncio.create_task(executor.run(job, when_held(lambda: running.cancel())))
        with pytest.raises(asyncio.CancelledError):
            await running
    assert 600 <= generation(job) < 3000
    caplog.clear()
    assert await executor.run(job, lambda _stage, _percent: None) == whole
    assert "the search goes on from its checkpoint" in caplog.text
    other = dataclasses.replace(job, scores={**scores, "north": tuple(s + 1 for s in scores["north"])})
    caplog.clear()
    await executor.run(other, lambda _stage, _percent: None)
    assert "the checkpoint is not used: it is of another search; the search begins anew" in caplog.text

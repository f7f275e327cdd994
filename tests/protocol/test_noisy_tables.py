"""A study with noise on tables at the miner: counted by one job, learned by another that sees no column and no key."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from support.miner_service import Federation, Keys, keys, make_study
from verticil.miner.scheduler.job import CountingJob, Job, LearningJob, ReportProgress
from verticil.miner.scheduler.learning import InlineLearning, WorkerDied
from verticil.shared.documents.record import encode
from verticil.shared.study.document import TablesRule
from verticil.shared.study.states import State

__all__ = ["keys"]


class Dying:
    """Counts, and dies without a word whenever something is to be learned."""

    def __init__(self, inner: InlineLearning) -> None:
        self.inner, self.jobs, self.noisy = inner, list[Job](), list[bytes]()

    async def run(self, given: Job, progress: ReportProgress) -> bytes:
        self.jobs.append(given)
        if isinstance(given, LearningJob):
            assert given.tables is not None
            self.noisy.append(given.tables.path.read_bytes())
            raise WorkerDied(-9)
        return await self.inner.run(given, progress)


async def test_the_noise_is_drawn_once_and_learning_gets_the_noisy_tables_alone(tmp_path: Path, keys: Keys) -> None:
    federation = Federation(tmp_path, keys)
    federation.node.close()
    federation.executor = executor = Dying(InlineLearning(clock=federation.clock))
    federation.node = federation.make()
    study = dataclasses.replace(make_study(), tables=TablesRule(epsilon=1.0, delta=1e-9))
    seen: list[str] = []
    async with federation.node:
        digest = await federation.to_upload(study)
        files = federation.node.store.study(digest)
        for party in federation.parties:
            for unit in study.units_of(party.name):
                receipt = await party.upload(digest, unit)
                seen.append(json.loads(receipt.body)["artifact_sha256"])
        await federation.party("north").until(digest, lambda task: task.state >= State.PUBLISHED)
        task = await federation.party("north").task(digest)
        assert (task.state, task.failure.code) == (State.FAILED, "LEARNING_FAILED")
        await federation.settled(digest, "columns_removed")
    assert [type(given) for given in executor.jobs] == [CountingJob, LearningJob, LearningJob, LearningJob]
    assert len(set(executor.noisy)) == 1
    for learning in executor.jobs[1:]:
        assert isinstance(learning, LearningJob)
        assert learning.columns == ()
        line = encode(learning).decode()
        assert not any(sha256 in line for sha256 in seen)
        assert all("artifact_sha256" not in json.loads(receipt.body) for receipt in learning.receipts)
        assert len(learning.receipts) == len(study.units)
    assert not (files.root / "tables").exists()  # the study has ended without a release

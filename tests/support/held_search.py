"""Learning that goes no farther than a test lets it: in a thread of the test, or as the learning process of the miner.

When enough is done and a checkpoint of it lies on the disk, `HELD` is told in place of the stage's percentage, and nothing goes
on until it is asked to stop, or killed. However slow who waits for that moment is, it does not pass. The stage stays what it was:
a learning process that is asked to stop leaves a checkpoint while it is searching, and ends at once in any other stage.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from verticil.miner.scheduler import job as jobs
from verticil.miner.scheduler import worker
from verticil.miner.storage.checkpoint import CheckpointFile

HELD: Final = -1
WHEN: Final = "HELD_WHEN"
"""Of the environment: ``STAGE PERCENT``, and for an estimate the steps that must be in the checkpoint."""


def do_job(
    job: jobs.Job, *, progress: Callable[[str, int], None], is_cancelled: Callable[[], bool], **more: Any
) -> bytes:
    """As `verticil.miner.scheduler.job.do_job`."""
    stage, percent, steps = os.environ[WHEN].split()

    def is_enough() -> bool:
        if isinstance(job, jobs.CountingJob) or job.checkpoint is None or not job.checkpoint.exists():
            return False
        kept = CheckpointFile(job.checkpoint, job.binding, what="test").read() or {}
        return int(steps) == 0 or int(kept.get("joint:guard 1.state/step", 0)) >= int(steps)

    def tell(now: str, done: int) -> None:
        progress(now, done)
        if now == stage and done >= int(percent) and is_enough():
            progress(now, HELD)
            while not is_cancelled():
                time.sleep(0.01)

    return _do_job(job, progress=tell, is_cancelled=is_cancelled, **more)


_do_job: Final = jobs.do_job

if __name__ == "__main__":
    jobs.do_job = do_job
    status = worker.main()
    sys.stderr.flush()
    os._exit(status)

"""The program ``verticil``, which notes its durable steps and is killed by SIGKILL right at one of them.

In the environment: ``STEPS``, a file to which each step is added, a line each; ``DIES_AT``, which of this process's steps is its
last, from 1; 0: none. Run by test_masked_kill.py.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from verticil.cli.main import run
from verticil.shared.storage import durable


def watcher(report: int, last: int) -> Callable[[durable.DurableStep], None]:
    """Notes steps, and takes the process's life."""
    lock, taken = threading.Lock(), 0

    def watch(step: durable.DurableStep) -> None:
        nonlocal taken
        with lock:
            taken += 1
            os.write(report, f"{step.moment} {step.kind} {step.path}\n".encode())
            if taken == last:
                os.kill(os.getpid(), signal.SIGKILL)

    return watch


if __name__ == "__main__":
    steps = os.open(os.environ["STEPS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with durable.watch_steps(watcher(steps, int(os.environ["DIES_AT"]))):
        run()

"""A worker without memory, threads or a process is named as that."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from verticil.miner.scheduler.learning import SpawnedLearning, WorkerDied
from verticil.miner.scheduler.worker import _in_words
from verticil.shared.core.errors import PeerFault


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "needs more than the 1000 bytes that a worker may use"),
        (ImportError("libx.so: failed to map segment from shared object"), "needs more than the 1000 bytes"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "needs more than the 1000 bytes"),
        (RuntimeError("can't start new thread"), "could start no thread"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "could start no thread"),
        (KeyError("a value of the table"), "learning ended with KeyError"),
    ],
)
def test_what_a_worker_lacks_is_named(error: Exception, words: str) -> None:
    said = _in_words(error, 1000)
    assert words in said["message"]
    assert "a value of the table" not in str(said)


@pytest.mark.parametrize(("number", "what"), [(errno.EAGAIN, "process"), (errno.ENOMEM, "memory")])
async def test_a_worker_that_cannot_be_started_is_waited_for(
    number: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    with pytest.raises(PeerFault, match=f"no {what} left for learning") as fault:
        await SpawnedLearning(tmp_path / "cache")._run(b"{}", lambda stage, percent: None)
    assert fault.value.code == "RESOURCE_EXHAUSTED"


def test_a_worker_that_the_system_killed_says_why() -> None:
    assert "lack of memory" in str(WorkerDied(-9))
    assert "lack of memory" not in str(WorkerDied(1))

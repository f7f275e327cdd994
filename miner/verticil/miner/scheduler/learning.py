"""Where a learning job, or a search for a structure, runs: in a process of its own (production) or in a thread (simulation).

Promises: the event loop is never busy with learning; cancelling the awaiting task ends the job (both stop at their next look, a
search leaves its checkpoint, and a process that has not ended after `_STOP_SECONDS` is killed); a process that outlives its miner
ends by itself, because its standard input ends; the process gets no key. A job that dies without a word is `WorkerDied`, which is
worth another attempt: it goes on from its checkpoint. What a job reports is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, cast

from verticil.miner.scheduler.job import Job, ReportProgress, do_job
from verticil.shared.core.errors import PeerFault, from_code
from verticil.shared.documents.record import encode

_log: Final = logging.getLogger(__name__)
_WORKER: Final = "verticil.miner.scheduler.worker"
_COMPILING: Final = "verticil.miner.learning.compiling"
_STOP_SECONDS: Final = 1.0
"""Far longer than a step of a search takes, with its checkpoint."""
_LINE_BYTES: Final = 16 * 2**20
"""Most bytes in a line that the process writes; the longest has a structure, twice four MiB as hexadecimal digits."""


class WorkerDied(Exception):
    """The learning process ended without saying how.

    Attributes:
        status: its exit status; negative: the signal that ended it.
    """

    def __init__(self, status: int) -> None:
        reason = ": the system killed it, most often for lack of memory" if status == -signal.SIGKILL else ""
        super().__init__(f"the learning process ended with status {status}{reason}")
        self.status = status


class Executor(Protocol):
    """Runs learning jobs and searches."""

    async def run(self, job: Job, progress: ReportProgress) -> bytes:
        """Run a job to its end. Cancel the task that awaits it to stop it.

        Args:
            job: what to learn, or to search.
            progress: called on the event loop.

        Returns:
            The canonical bytes of the structure that was searched; empty after learning.

        Raises:
            VerticilError: what the job reported.
            WorkerDied: it ended without a word.
        """
        ...


class InlineLearning:
    """Runs jobs in a thread of this process.

    Args:
        clock: UTC now, for the time of publication.
    """

    def __init__(self, *, clock: Callable[[], dt.datetime]) -> None:
        self._clock = clock

    async def run(self, job: Job, progress: ReportProgress) -> bytes:
        """Learn in the way that `Executor.run` says."""
        loop = asyncio.get_running_loop()
        stop = threading.Event()

        def tell(stage: str, percent: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(progress, stage, percent)

        running = asyncio.ensure_future(
            asyncio.to_thread(do_job, job, progress=tell, is_cancelled=stop.is_set, clock=self._clock)
        )
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()
            with contextlib.suppress(Exception):
                await running
            raise


class SpawnedLearning:
    """Runs each job in a fresh Python process.

    Args:
        cache: folder for compiled code, made when absent; NUMBA_CACHE_DIR of the environment goes first.
        processes: jobs at the same time; others wait.
        memory_bytes: data memory of one process.
    """

    def __init__(self, cache: Path, *, processes: int = 1, memory_bytes: int = 2_147_483_648) -> None:
        self._cache = cache
        self._slots = asyncio.Semaphore(processes)
        self._memory_bytes = memory_bytes

    async def run(self, job: Job, progress: ReportProgress) -> bytes:
        """Learn in the way that `Executor.run` says."""
        async with self._slots:
            return bytes.fromhex(await self._run(await asyncio.to_thread(encode, job), progress))

    async def compile_first(self) -> None:
        """Compile what studies need into an empty cache, in a process that gives way to every other; nothing fails with it.

        Where the environment names a cache, it is its owner's to fill.
        """
        if "NUMBA_CACHE_DIR" in os.environ or (self._cache.is_dir() and any(self._cache.iterdir())):
            return
        _log.info("compiling, once: what studies need, beside whatever else there is to do")
        nothing = asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", _COMPILING, stdin=nothing, stdout=nothing, stderr=nothing,
                env=await self._environment(), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            _log.warning(
                "compiled code is made when a study needs it: no process (%s)", errno.errorcode.get(error.errno or 0)
            )
            return
        try:
            if await process.wait() != 0:
                _log.warning(
                    "compiled code is made when a study needs it: the process ended with %s", process.returncode
                )
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _environment(self) -> dict[str, str]:
        """Return what a process gets, whose cache there is then."""
        # OpenBLAS takes memory for each of its threads and tries for ever when the limit leaves it none; our products are small.
        # Arrow's own pool asks for a gibibyte at once.
        ours = {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
        environment = {"NUMBA_CACHE_DIR": str(self._cache), **ours, **os.environ}
        await asyncio.to_thread(Path(environment["NUMBA_CACHE_DIR"]).mkdir, parents=True, exist_ok=True)
        return environment

    async def _run(self, line: bytes, progress: ReportProgress) -> str:
        """Have the line's job done; what the process returned, empty for a learning job."""
        process = await self._start(await self._environment())
        try:
            return await self._talk(process, line, progress)
        except asyncio.CancelledError:
            await self._stop(process)
            raise
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()
            if process.stdin is not None:
                process.stdin.close()

    async def _start(self, environment: dict[str, str]) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _WORKER,
                str(self._memory_bytes),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
                limit=_LINE_BYTES,
                start_new_session=True,  # Ctrl-C on a terminal is the miner's to handle
            )
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.ENOMEM}:
                raise
            what = "memory" if error.errno == errno.ENOMEM else "process"
            raise PeerFault(
                "RESOURCE_EXHAUSTED",
                f"this machine has no {what} left for learning",
                hint="the miner's operator can give its user or container more; it is tried again meanwhile",
            ) from None

    @staticmethod
    async def _stop(process: asyncio.subprocess.Process) -> None:
        """Ask the process to stop, and wait a little for it."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                if process.stdin is not None:
                    process.stdin.write(b"stop\n")
                    await process.stdin.drain()
                await process.wait()

    @staticmethod
    async def _talk(process: asyncio.subprocess.Process, line: bytes, progress: ReportProgress) -> str:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the learning process was made without pipes")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its exit status says more
            process.stdin.write(line + b"\n")
            await process.stdin.drain()
        async for answer in process.stdout:
            message = cast("dict[str, str | int]", json.loads(answer))
            if "code" in message:
                raise from_code(str(message["code"]), str(message["message"]), hint=str(message["hint"]))
            if message.get("done"):
                return str(message.get("result", ""))
            if "log" in message:
                _log.log(int(message["level"]), "%s", message["log"])
                continue
            progress(str(message["stage"]), int(message["percent"]))
        raise WorkerDied(await process.wait())

"""Node processes that this process has started, by name: what they say when they fail, their memory, their end.

Children are stopped politely, or by force; should this process be killed, they notice that their standard input has ended and
stop by themselves. A test or a drill may kill one outright and start it again under its name.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from verticil.shared.core.errors import InternalFault, VerticilError, from_code

LOOK_SECONDS: Final = 0.3


START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0


@dataclass(slots=True)
class Children:
    """The node processes, by name.

    Attributes:
        folder: for their logs, NAME.log.
        environment: what their environment has besides ours.
        running: those that were started and not killed.
        peak_memory_mib: of each, where the system tells.
    """

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    peak_memory_mib: dict[str, float] = field(default_factory=dict)

    async def start(self, name: str, *arguments: str, capture: bool = False) -> asyncio.subprocess.Process:
        """Start ``verticil ARGUMENTS``; with `capture` its standard output can be read, else it goes into the log."""
        log = (self.folder / f"{name}.log").open("ab")
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "verticil.cli",
                *arguments,
                "--with-parent",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if capture else log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches us; we stop the children in order
                env={**os.environ, **self.environment},
            )
        finally:
            log.close()
        self.running[name] = child
        return child

    async def start_party(self, name: str, folder: Path) -> None:
        """Start a party whose party.toml is in `folder`."""
        await self.start(name, "party", "run", "--config", str(folder / "party.toml"), "--format", "json")

    async def start_miner(self, folder: Path, *extra: str) -> int:
        """Start the miner whose miner.toml is in `folder`, and wait until it listens.

        Returns:
            The port.

        Raises:
            VerticilError: why it does not.
        """
        config = str(folder / "miner.toml")
        child = await self.start("miner", "miner", "run", "--config", config, "--format", "json", *extra, capture=True)
        assert child.stdout is not None
        line = await asyncio.wait_for(child.stdout.readline(), START_SECONDS)
        reply: dict[str, Any] = json.loads(line) if line else {}
        if "port" not in reply:
            await child.wait()
            if "error" in reply:
                raise from_code(
                    reply["error"]["code"], f"miner: {reply['error']['message']}", hint=reply["error"]["hint"]
                )
            self.check()
        return int(reply["port"])

    def check(self) -> None:
        """Raise when a child has ended by itself; look at every child's peak memory."""
        for name, child in self.running.items():
            if child.returncode is not None:
                raise self._failure(name, child.returncode)
        self.measure()

    def _failure(self, name: str, code: int) -> VerticilError:
        lines = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        for line in reversed(lines):
            with suppress(ValueError, KeyError, TypeError):
                error: dict[str, str] = json.loads(line)["error"]
                return from_code(error["code"], f"{name}: {error['message']}", hint=error.get("hint", ""))
        return InternalFault(
            "INTERNAL", f"{name} ended with exit code {code}", hint="run again with --keep and read its log"
        )

    def measure(self) -> None:
        """Look at every child's peak memory."""
        for name, child in self.running.items():
            with suppress(OSError, ValueError, StopIteration):
                status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii").splitlines()
                peak = next(line for line in status if line.startswith("VmHWM:"))
                self.peak_memory_mib[name] = max(self.peak_memory_mib.get(name, 0.0), int(peak.split()[1]) / 1024)

    async def kill(self, name: str) -> None:
        """SIGKILL, to this process alone: what it has started must notice by itself."""
        child = self.running.pop(name)
        child.kill()
        await self._wait_for_end(child)

    async def stop(self) -> dict[str, int]:
        """Stop every child: politely, then by force.

        Returns:
            The exit codes.
        """
        self.measure()
        for child in self.running.values():
            if child.returncode is None:
                child.terminate()
        for child in self.running.values():
            try:
                await asyncio.wait_for(child.wait(), STOP_SECONDS)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            await self._wait_for_end(child)
        codes = {name: child.returncode or 0 for name, child in self.running.items()}
        self.running.clear()
        return codes

    @staticmethod
    async def _wait_for_end(child: asyncio.subprocess.Process) -> None:
        await child.wait()
        if child.stdin is not None:
            child.stdin.close()
            with suppress(ConnectionError):
                await child.stdin.wait_closed()

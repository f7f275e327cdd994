"""The demonstration: three parties and a miner, or three peers, dialled or relayed: processes, mutual TLS, up to the release.

Nothing stays behind but the release (and, when asked, the federation's folder): children are stopped on success, on failure
and on Ctrl-C; should this process be killed, they notice that their standard input has ended and stop by themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from verticil.shared.config import RELAY, load_federation
from verticil.shared.errors import InternalFault, VerticilError, from_code
from verticil.shared.release.verification import VerifiedRelease
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.simulation import adult
from verticil.simulation.analyst import CarriedOut, carry_out
from verticil.simulation.peers import free_addresses, load_everywhere, standing, take_home
from verticil.simulation.provision import Provisioned, provision_demo, set_endpoint

__all__ = ["DemoResult", "run_demo"]

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 0.3

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What the demonstration reached.

    Attributes:
        releases: the verified release's folder; between peers every party's own, which are equal.
        federation: the nodes' folders, when they were kept.
        study: the effective study is in the release; this is the proposal.
        verified: what verification found.
        n_common: people at all three parties.
        wall_seconds: from the first step to the last.
        peak_memory_mib: of each process, where the system tells.
    """

    releases: Mapping[str, Path]
    federation: Path | None
    study: Study
    verified: VerifiedRelease
    n_common: int
    wall_seconds: float
    peak_memory_mib: Mapping[str, float]


@dataclass(slots=True)
class _Children:
    """The node processes, by name."""

    folder: Path
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    peak_memory_mib: dict[str, float] = field(default_factory=dict)

    async def start(self, name: str, *arguments: str, capture: bool = False) -> asyncio.subprocess.Process:
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
            )
        finally:
            log.close()
        self.running[name] = child
        return child

    def check(self) -> None:
        """Raise when a child has ended by itself."""
        for name, child in self.running.items():
            if child.returncode is not None:
                raise self._failure(name, child.returncode)

    def _failure(self, name: str, code: int) -> VerticilError:
        lines = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        for line in reversed(lines):
            with suppress(ValueError, KeyError, TypeError):
                error = cast("dict[str, str]", json.loads(line)["error"])
                return from_code(error["code"], f"{name}: {error['message']}", hint=error.get("hint", ""))
        return InternalFault(
            "INTERNAL", f"{name} ended with exit code {code}", hint="run again with --keep and read its log"
        )

    def measure(self) -> None:
        for name, child in self.running.items():
            with suppress(OSError, ValueError, StopIteration):
                status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii").splitlines()
                peak = next(line for line in status if line.startswith("VmHWM:"))
                self.peak_memory_mib[name] = max(self.peak_memory_mib.get(name, 0.0), int(peak.split()[1]) / 1024)

    async def stop(self) -> None:
        """Stop every child: politely, then by force."""
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
                await child.wait()
            if child.stdin is not None:
                child.stdin.close()
                with suppress(ConnectionError):
                    await child.stdin.wait_closed()


async def _listening(child: asyncio.subprocess.Process, children: _Children) -> int:
    assert child.stdout is not None
    line = await asyncio.wait_for(child.stdout.readline(), START_SECONDS)
    said = cast("dict[str, Any]", json.loads(line)) if line else {}
    if "port" not in said:
        await child.wait()
        if "error" in said:
            raise from_code(said["error"]["code"], f"miner: {said['error']['message']}", hint=said["error"]["hint"])
        children.check()
    return int(said["port"])


async def _run(made: Provisioned, release: Path, *, seed: int | None, step: Step, children: _Children) -> CarriedOut:
    port = await _start_miner(made, children, *(["--seed-derived"] if seed is not None else []))
    step(f"miner listens on 127.0.0.1:{port}, mutual TLS")
    for party, node in made.parties.items():
        await children.start(party, "party", "run", "--config", str(node / "party.toml"), "--format", "json")
    step(f"{len(made.parties)} parties started, each in a process of its own")

    def check() -> None:
        children.check()
        children.measure()

    return await carry_out(made.analyst, release, step=step, check=check)


async def _start_miner(made: Provisioned, children: _Children, *extra: str) -> int:
    """Start the miner and tell every node its port, which is returned."""
    config = str(made.miner / "miner.toml")
    miner = await children.start("miner", "miner", "run", "--config", config, "--format", "json", *extra, capture=True)
    port = await _listening(miner, children)
    federation = load_federation(made.analyst / "federation.toml").name
    for node in (*made.parties.values(), made.analyst):
        set_endpoint(
            node,
            federation,
            f"127.0.0.1:{port}",
            ca_sha256=made.ca_sha256,
            peers=made.peers,
            sealing=made.sealing,
        )
    return port


async def _run_peers(made: Provisioned, out: Path, *, step: Step, children: _Children) -> CarriedOut:
    """The parties alone, or behind a relay: each operator loads the study, and each party ends with the same release."""
    relayed = RELAY in made.peers.values()
    if relayed:
        port = await _start_miner(made, children)
        step(f"a miner as a blind relay listens on 127.0.0.1:{port}; it has no study, no column and none of the keys")
    digest = await asyncio.to_thread(load_everywhere, made.parties, made.analyst / "study.toml")
    step(f"the same study loaded at {len(made.parties)} parties, digest {digest[:12]}")
    for party, node in made.parties.items():
        await children.start(party, "party", "run", "--config", str(node / "party.toml"), "--format", "json")
    where = "none of them listens anywhere" if relayed else "there is no miner"
    step(f"{len(made.parties)} parties started, each in a process of its own; {where}")
    told: Mapping[str, str] = {}
    while True:
        children.check()
        children.measure()
        found = await asyncio.to_thread(standing, made.parties, digest)
        for party, stage in found.stages.items():
            if told.get(party) != stage:
                step(f"{party}: {stage}")
        told = found.stages
        if found.published:
            break
        await asyncio.sleep(LOOK_SECONDS)
    authority = made.ca_certificate.read_bytes()
    folders, verified = await asyncio.to_thread(
        take_home, made.parties, digest, out / "parties", ca_certificate=authority
    )
    step(f"{len(folders)} releases taken, verified, and equal")
    return CarriedOut(
        study=read_study(made.analyst / "study.toml"), n_common=verified.n_common, verified=verified, releases=folders
    )


def _addresses(*, relay: bool) -> dict[str, str]:
    return dict.fromkeys(adult.PARTIES, RELAY) if relay else free_addresses(adult.PARTIES)


async def _demo(
    out: Path,
    *,
    model: Literal["central", "peer"],
    relay: bool,
    rows: int | None,
    seed: int | None,
    keep: bool,
    step: Step,
) -> DemoResult:
    started = time.monotonic()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    workplace = Path(tempfile.mkdtemp(prefix="verticil-demo-"))
    root = workplace / "federation"
    children = _Children(folder=workplace)
    try:
        made = await asyncio.to_thread(
            provision_demo,
            root,
            endpoint="127.0.0.1:1" if model == "central" or relay else None,
            listen="127.0.0.1:0",
            hosts=("127.0.0.1", "localhost"),
            seed=seed,
            rows=rows,
            peers=None if model == "central" else _addresses(relay=relay),
        )
        step("certificates (ephemeral, marked), keys and three sites' tables laid out")
        if model == "central":
            done = await _run(made, out / "release", seed=seed, step=step, children=children)
        else:
            done = await _run_peers(made, out, step=step, children=children)
        shutil.copyfile(made.ca_certificate, out / "ca.crt")
    finally:
        await children.stop()
        for log in workplace.glob("*.log"):
            root.mkdir(exist_ok=True)
            os.replace(log, root / log.name)
        if keep:
            await asyncio.to_thread(shutil.move, root, out / "federation")
        await asyncio.to_thread(shutil.rmtree, workplace, ignore_errors=True)
    return DemoResult(
        releases=done.releases,
        federation=out / "federation" if keep else None,
        study=done.study,
        verified=done.verified,
        n_common=done.n_common,
        wall_seconds=time.monotonic() - started,
        peak_memory_mib=dict(children.peak_memory_mib),
    )


def run_demo(
    out: Path,
    *,
    model: Literal["central", "peer"] = "central",
    relay: bool = False,
    rows: int | None = None,
    seed: int | None = None,
    keep: bool = False,
    step: Step,
) -> DemoResult:
    """Run the demonstration.

    Args:
        out: an existing, empty folder; gets ``release`` (or, between peers, ``parties/NAME/release``), the authority's ``ca.crt``
            and, with `keep`, ``federation``.
        model: with a miner in the middle, or between peers.
        relay: between peers, none of whom can be dialled: what they tell each other passes through a miner, sealed.
        rows: how many common people; None: all.
        seed: derive the sites' secrets from it (the manifest says so); None: random.
        keep: keep the nodes' folders: configurations, keys, state, logs.
        step: told of every step.

    Raises:
        VerticilError: a node or the study failed, with its code.
        KeyboardInterrupt: SIGINT or SIGTERM; everything has been stopped and removed.
    """
    try:
        return asyncio.run(_demo(out, model=model, relay=relay, rows=rows, seed=seed, keep=keep, step=step))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None

"""Networks, disks, clocks and file descriptors that fail under a federation of processes; the release stays the same.

As for the kills: the same model, networks, synthetic records and randomized columns as undisturbed, each party charged once, each
audit chain whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.line import Line
from support.sameness import charged, differences, essence
from verticil.shared.study.reading import read_study
from verticil.simulation.in_process import run_federation
from verticil.simulation.provision import Provisioned, copy_federation

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1500)]
BYTES = 120_000
"""About what a party sends in one study."""


def slow(line: Line, _: random.Random) -> str:
    line.onward.delay_seconds = line.back.delay_seconds = 0.15
    return "line: every piece 150 ms late, both ways"


def narrow(line: Line, _: random.Random) -> str:
    line.onward.bytes_per_second = line.back.bytes_per_second = 40_000
    return "line: 40 kB/s, both ways"


def cut(line: Line, draw: random.Random) -> str:
    line.onward.cut_after = int(draw.uniform(0, BYTES))
    return "line: reset after a random number of bytes"


def cut_back(line: Line, draw: random.Random) -> str:
    line.back.cut_after = int(draw.uniform(0, 30_000))
    return "line: reset after a random number of bytes from the miner"


def corrupt(line: Line, draw: random.Random) -> str:
    line.onward.corrupt_after = int(draw.uniform(0, BYTES))
    return "line: one byte changed"


def corrupt_back(line: Line, draw: random.Random) -> str:
    line.back.corrupt_after = int(draw.uniform(0, 30_000))
    return "line: one byte from the miner changed"


def half_close(line: Line, draw: random.Random) -> str:
    line.onward.half_close_after = int(draw.uniform(0, BYTES))
    return "line: half closed"


FAULTS = [
    *((fault, seed) for fault in (cut, cut_back, corrupt, corrupt_back) for seed in range(6)),
    *((half_close, seed) for seed in range(3)),
    (slow, 0),
    (narrow, 0),
]


@pytest.mark.parametrize(("fault", "seed"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
async def test_feature_9_bad_lines_lose_nothing(
    fault: Callable[[Line, random.Random], str], seed: int, federation: Any, in_the_table: Callable[..., None]
) -> None:
    draw = random.Random(seed)
    async with federation.run() as run:
        names = {fault(line, draw) for line in run.lines.values()}
        lost = await federation.lost(run)
        happened = sum(line.onward.happened + line.back.happened for line in run.lines.values())
    in_the_table(names.pop(), times=happened or 1, lost=lost)


@pytest.mark.parametrize("way", ["onward", "back"])
@pytest.mark.parametrize("party", ["clinic", "insurer"])
async def test_feature_20_a_line_that_is_silent_one_way_is_given_up_and_dialled_again(
    way: str, party: str, federation: Any, in_the_table: Callable[..., None]
) -> None:
    async with federation.run(idle_seconds=3) as run:

        async def disturb() -> None:
            await run.until(lambda study: any(one.approved for one in study.parties))
            getattr(run.lines[party], way).hold()
            await asyncio.sleep(12)
            getattr(run.lines[party], way).release()

        lost = await federation.lost(run, disturb())
    in_the_table(f"line: black hole for 12 s, {'to' if way == 'onward' else 'from'} the miner", lost=lost)


async def test_feature_20_all_lines_cut_again_and_again(federation: Any, in_the_table: Callable[..., None]) -> None:
    async with federation.run() as run:

        async def disturb() -> None:
            for _ in range(5):
                await asyncio.gather(*(line.cut() for line in run.lines.values()))
                await asyncio.sleep(1)
                for line in run.lines.values():
                    line.restore()
                await asyncio.sleep(0.7)

        lost = await federation.lost(run, disturb())
    in_the_table("line: cut for a second, all parties at once", times=5, lost=lost)


@pytest.mark.parametrize("node", ["miner", "clinic"])
async def test_feature_36_a_full_disk_stops_and_then_goes_on(
    node: str, federation: Any, mounted: Callable[[Path], Any], in_the_table: Callable[..., None]
) -> None:
    with contextlib.ExitStack() as stack:
        disks: list[Any] = []

        def before(made: Provisioned) -> None:
            state = made.root / node / "state"
            shutil.move(state, aside := made.root / f"{node}-state")
            disks.append(stack.enter_context(mounted(state)))
            shutil.copytree(aside, state, dirs_exist_ok=True)
            config = made.miner / "miner.toml"
            config.write_text(config.read_text().replace("disk_reserve_bytes = 16777216", "disk_reserve_bytes = 0"))

        async with federation.run(before) as run:
            for line in run.lines.values():
                line.onward.delay_seconds = 0.1

            async def disturb() -> None:
                while node != "miner" and "connected to" not in (run.made.root / f"{node}.log").read_text():
                    await asyncio.sleep(0.05)  # one that starts on a full disk ends, and says so
                disks[0].fill()
                await asyncio.sleep(6)
                study = await run.state()
                disks[0].free()
                assert study is not None
                assert study.n_common == 0 or node != "miner"  # it got no further

            lost = await federation.lost(run, disturb())
    in_the_table(f"disk of the {'miner' if node == 'miner' else 'party'} full for 6 s", lost=lost)


@pytest.mark.parametrize("node", ["miner", "clinic"])
async def test_feature_20_no_file_descriptors_left_for_a_while(
    node: str, federation: Any, in_the_table: Callable[..., None]
) -> None:
    async with federation.run() as run:
        for line in run.lines.values():
            line.onward.delay_seconds = 0.1

        async def disturb() -> None:
            await run.until(lambda study: any(one.approved for one in study.parties))
            child = run.children.running[node]
            before = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)
            used = len(list(Path(f"/proc/{child.pid}/fd").iterdir()))
            resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (used, before[1]))
            await run.lines["clinic"].cut()  # it must dial, and be answered, anew
            run.lines["clinic"].restore()
            await asyncio.sleep(5)
            assert child.returncode is None
            resource.prlimit(child.pid, resource.RLIMIT_NOFILE, before)

        lost = await federation.lost(run, disturb())
    in_the_table("file descriptors exhausted for 5 s", lost=lost)


class Jumping:
    """A clock that everybody reads and that jumps now and then, backwards too, but never before the certificates begin."""

    def __init__(self, hours: float, *, every: int) -> None:
        self._draw, self._hours, self._every = random.Random(4), hours, every
        self._offset = dt.timedelta()
        self.reads = self.jumps = 0

    def __call__(self) -> dt.datetime:
        self.reads += 1
        if self.reads % self._every == 0:
            self._offset = dt.timedelta(hours=self._draw.uniform(0, self._hours))
            self.jumps += 1
        return dt.datetime.now(dt.UTC).replace(microsecond=0) + self._offset


@pytest.mark.parametrize(("hours", "every"), [(0.05, 3), (6.0, 5)])
async def test_a_clock_that_jumps_loses_nothing(
    hours: float, every: int, template: Any, tmp_path: Path, in_the_table: Callable[..., None]
) -> None:
    """One process, so that the clock can be ours; times of all nodes jump at once. Nobody's certificate is that short."""
    found = []
    clocks: list[Any] = [Jumping(0.0, every=10**9), Jumping(hours, every=every)]
    for number, clock in enumerate(clocks):
        made = copy_federation(template.template, tmp_path / f"run-{number}")
        study = read_study(made.analyst / "study.toml")
        await run_federation(made, study, tmp_path / f"release-{number}", is_seeded=True, clock=clock)
        ledger = {party: f"{cost:.9g}" for party, cost in charged(made.parties).items()}
        found.append({**essence(tmp_path / f"release-{number}"), **ledger})
    assert clocks[1].jumps > 3
    in_the_table(
        f"clock jumps by up to {hours:g} hours, either way", times=clocks[1].jumps, lost=differences(found[0], found[1])
    )

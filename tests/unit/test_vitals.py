"""What a daemon says of its health, and the two who read it: `judge` in Python and the containers' probe in a shell."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verticil.shared.core.errors import DataFault, PeerFault, Refusal, VerticilError
from verticil.shared.core.health import FILE_NAME, STALE_SECONDS, Vitals, Waiting, has_ended, judge, living

PROBE = Path(__file__).resolve().parents[2] / "deploy" / "verticil-probe"
AFTER = STALE_SECONDS + 100
FULL = DataFault("DISK_FULL", "state\\new: no space left", hint="make room there")
OLDER = Refusal("LEDGER_OLDER", "this state is older than what was sent", hint="restore the newest backup")


def probed(state: Path, *more: str) -> tuple[int, str]:
    done = subprocess.run([PROBE, state, *more], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def judged(state: Path) -> tuple[int, str]:
    """The same, as the probe would print it."""
    try:
        return 0, f"serving: {judge(state)}\n"
    except VerticilError as error:
        return error.exit_code, f"error {error.code}: {error.message}\n" + (
            f"hint: {error.hint}\n" if error.hint else ""
        )


async def lived(state: Path, said: str | VerticilError, *, ends: VerticilError | None = None) -> bytes:
    """The life of a daemon that serves; the file as it was while it lived."""

    def look() -> str:
        if isinstance(said, VerticilError):
            raise said
        return said

    with contextlib.suppress(type(ends) if ends is not None else KeyError):
        async with living(state, asyncio.Event()) as vitals:
            vitals.serving(look)
            alive = b""
            while not alive or b" NOT_READY" in alive:  # it is made before anything is written into it
                await asyncio.sleep(0.01)
                with contextlib.suppress(FileNotFoundError):
                    alive = (state / FILE_NAME).read_bytes()
            if ends is not None:
                raise ends
    return alive


def aged(state: Path, seconds: int) -> None:
    """The last sign of life is so old."""
    path = state / FILE_NAME
    facts = path.read_text().split(" ")
    facts[4] = str(int(facts[4]) - seconds)
    path.write_text(" ".join(facts))


def of_process(state: Path, process: int) -> None:
    path = state / FILE_NAME
    path.write_text(path.read_text().replace(f" {os.getpid()} ", f" {process} ", 1))


def no_process() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def another_boot(state: Path) -> None:
    path = state / FILE_NAME
    path.write_text(re.sub(r"[0-9a-f]{8}-", "00000000-", path.read_text(), count=1))


CASES: dict[str, tuple[str | VerticilError, Callable[[Path], object], int, str]] = {
    # what the daemon says, what happened then, exit code, what is read
    "serving": ("connected to the miner", lambda _: None, 0, "serving: connected to the miner"),
    "serving, a while ago": ("connected", lambda state: aged(state, STALE_SECONDS // 3), 0, "serving: connected"),
    "waiting for room": (FULL, lambda _: None, 1, "error DISK_FULL: state\\new: no space left\nhint: make room there"),
    "hanging": (
        "connected",
        lambda state: aged(state, AFTER),
        5,
        "error NOT_READY: the daemon hangs: no sign of life for 1",
    ),
    "hanging while it waits": (FULL, lambda state: aged(state, AFTER), 5, "error NOT_READY: the daemon hangs"),
    "dead": (
        "connected",
        lambda state: (aged(state, AFTER), of_process(state, no_process())),
        5,
        "error NOT_READY: the daemon is dead: its process is gone\nhint: start it",
    ),
    "dead a moment ago": (
        "connected",
        lambda state: of_process(state, no_process()),
        5,
        "error NOT_READY: the daemon is dead: its process is gone",
    ),
    "of before the machine was started": ("connected", another_boot, 5, "error NOT_READY: the daemon is dead"),
    "of the future": ("connected", lambda state: aged(state, -AFTER), 5, "error NOT_READY: the daemon hangs"),
    "of another version": (
        "connected",
        lambda state: (state / FILE_NAME).write_text("verticil-health 2 x\n\n\n"),
        5,
        "another version of verticil wrote it",
    ),
    "never served": ("connected", lambda state: (state / FILE_NAME).unlink(), 5, "no daemon has served here"),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_probe_and_the_healthcheck_say_the_same(case: str, tmp_path: Path) -> None:
    said, then, exit_code, expected = CASES[case]
    (tmp_path / FILE_NAME).write_bytes(await lived(tmp_path, said))
    then(tmp_path)
    before = None
    while before != (after := judged(tmp_path)):  # the seconds that are told may pass meanwhile
        before, (code, text) = after, probed(tmp_path)
    assert code == exit_code
    assert expected in text
    if case == "of another version":
        assert after[0] == code
    else:
        assert (code, text) == after


@pytest.mark.parametrize(
    ("ends", "exit_code", "expected"),
    [(OLDER, 3, "error LEDGER_OLDER: this state is older"), (None, 5, "error NOT_READY: the daemon was stopped")],
)
async def test_the_last_word_says_why_a_daemon_ended(
    ends: VerticilError | None, exit_code: int, expected: str, tmp_path: Path
) -> None:
    await lived(tmp_path, "connected", ends=ends)
    code, text = probed(tmp_path)
    assert (code, text) == judged(tmp_path)
    assert code == exit_code
    assert text.startswith(expected)


async def test_a_second_daemon_does_not_speak_for_the_first(tmp_path: Path) -> None:
    async with living(tmp_path, asyncio.Event()) as first:
        first.serving(lambda: "connected")
        while probed(tmp_path)[0]:
            await asyncio.sleep(0.01)
        with pytest.raises(DataFault):
            async with living(tmp_path, asyncio.Event()):
                raise DataFault("STATE_LOCKED", "another daemon runs on this state directory")
        assert probed(tmp_path) == (0, "serving: connected\n")


async def test_a_daemon_that_never_served_makes_no_file(tmp_path: Path) -> None:
    """`party init` would take it for the remains of a state."""
    with pytest.raises(DataFault):
        async with living(tmp_path, asyncio.Event()):
            raise DataFault("STATE_CORRUPT", "no state database")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("holds", [True, False])
async def test_a_process_of_another_container_lives_while_it_holds_the_file(tmp_path: Path, holds: bool) -> None:
    assert not has_ended(tmp_path), "none has served"
    alive = await lived(tmp_path, "connected")
    assert has_ended(tmp_path), "it was stopped"
    (tmp_path / FILE_NAME).write_bytes(alive)
    assert not has_ended(tmp_path)
    of_process(tmp_path, no_process())
    with (tmp_path / FILE_NAME).open("rb") as file:
        if holds:
            fcntl.flock(file, fcntl.LOCK_EX)
        assert has_ended(tmp_path) is not holds


async def test_a_full_disk_does_not_keep_a_daemon_from_saying_so(small_disk: Any) -> None:
    await lived(small_disk.path, "connected")
    size = (small_disk.path / FILE_NAME).stat().st_size
    small_disk.fill()
    alive = await lived(small_disk.path, FULL)
    assert b" 1 DISK_FULL\n" in alive
    assert len(alive) == size


def test_only_a_full_disk_of_this_machine_is_waited_for() -> None:
    waiting = Waiting()
    told = DataFault("DISK_FULL", "the miner's")
    told.teller = "the miner"
    for error in (told, PeerFault("UNREACHABLE", "the miner"), None):
        waiting.note("a study", error)
        waiting.check()
    waiting.note("a study", FULL)
    waiting.note("another", None)
    with pytest.raises(DataFault, match="no space left"):
        waiting.check()
    waiting.note("a study", None)
    waiting.check()


async def test_what_is_said_is_one_line_each_and_never_longer_than_the_file(tmp_path: Path) -> None:
    vitals = Vitals(tmp_path)
    vitals.serving(lambda: "ü\n" * 2000)
    await asyncio.to_thread(vitals._say)
    assert (tmp_path / FILE_NAME).stat().st_size == 1024
    assert judge(tmp_path).startswith("ü\\nü\\nü")
    vitals.end(None)


async def test_what_nobody_foresaw_is_said_and_does_not_silence_the_daemon(tmp_path: Path) -> None:
    well = False

    def look() -> str:
        if not well:
            raise ZeroDivisionError
        return "well again"

    async with living(tmp_path, asyncio.Event()) as vitals:
        vitals.serving(look)
        while probed(tmp_path)[0] != 1:
            await asyncio.sleep(0.01)
        assert "error INTERNAL: the health of the daemon cannot be determined: ZeroDivisionError" in probed(tmp_path)[1]
        well = True
        vitals.serving(look)
        while probed(tmp_path)[0]:
            await asyncio.sleep(0.01)
        assert probed(tmp_path) == (0, "serving: well again\n")


def cpu_seconds(*command: object) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*map(str, command)], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


async def test_ten_probes_cost_less_than_one_start_of_the_program(tmp_path: Path) -> None:
    """Measured: 1 to 2 ms each, and 500 ms and more."""
    (tmp_path / FILE_NAME).write_bytes(await lived(tmp_path, "connected"))
    probes = cpu_seconds("sh", "-c", f'for i in 1 2 3 4 5 6 7 8 9 10; do "{PROBE}" "{tmp_path}" || exit 1; done')
    assert probes < cpu_seconds(sys.executable, "-m", "verticil.cli", "--version")

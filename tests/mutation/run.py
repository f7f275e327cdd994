"""Plant known faults in a copy of the product; tests must notice: ``python tests/mutation/run.py [--only TEXT] [--jobs N]``.

`faults.toml` lists, for each source file, texts that stand in it exactly once, what replaces each, and the tests that must fail
then. The checkout is never written to. A fault is *killed* by a test that fails or hangs; one that is not is a *survivor*, and
has to say in the list (``survives``) why no test can notice it. First the named tests run on the copy as it is: they must pass.

Exit code 0 when every fault was killed or is a listed survivor; 1 when one is neither, or was killed though it is listed as a
survivor; 2 when the list does not fit the tree, the tests do not pass without a fault, or could not be run with one.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("faults.toml")
SOURCES = ("shared", "party", "miner", "deploy", "deploy/experiments")
HANG_SECONDS = 600
FAILED = 1  # pytest's exit code
MARKERS = re.findall(r'"-m", "(.*) and not experiments",', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
"""What no run by itself has, but for the experiments' tests: faults of theirs are planted, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One text of one source file, and what is written in its place.

    Attributes:
        file: the source, from the root of the tree.
        was, becomes: the two texts.
        tests: files, or tests of files (``FILE::TEST``), one of which must fail.
        survives: why no test can notice it; empty: one must.
    """

    file: str
    was: str
    becomes: str
    tests: tuple[str, ...]
    survives: str = ""

    def __str__(self) -> str:
        was, becomes = (" ".join(text.split()) for text in (self.was, self.becomes))
        return f"{self.file}: {was}  ->  {becomes or 'nothing'}"


def listed(path: Path = LIST) -> list[Fault]:
    """The faults of the list."""
    found: list[Fault] = []
    for file, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for entry in table["faults"]:
            texts = {key: entry.get(key, "") for key in ("was", "becomes", "survives")}
            if unknown := entry.keys() - texts.keys() - {"tests"}:
                raise SystemExit(f"{path.name}: {file}: unknown keys {sorted(unknown)}")
            found.append(Fault(file=file, tests=tuple(entry.get("tests", table["tests"])), **texts))
    return found


def problems(faults: Sequence[Fault], root: Path = ROOT) -> list[str]:
    """What in the list does not fit a tree."""
    found: list[str] = []
    for fault in faults:
        source = root / fault.file
        times = source.read_text(encoding="utf-8").count(fault.was) if source.is_file() else 0
        if times != 1:
            found.append(f"{fault}: the text stands {times} times in the file, expected once")
        if fault.was == fault.becomes:
            found.append(f"{fault}: nothing is changed")
        if not fault.tests:
            found.append(f"{fault}: no test is named")
        for target in fault.tests:
            file, _, name = target.partition("::")
            name = name.partition("[")[0]
            text = (root / file).read_text(encoding="utf-8") if (root / file).is_file() else None
            if text is None or (name and not re.search(rf"^(async )?def {re.escape(name)}\(", text, re.MULTILINE)):
                found.append(f"{fault}: there is no test {target}")
    twice = [
        one
        for one, other in itertools.combinations(faults, 2)
        if (one.file, one.was, one.becomes) == (other.file, other.was, other.becomes)
    ]
    return [*found, *(f"{fault}: listed twice" for fault in twice)]


class Copy:
    """A copy of the tree in which one fault at a time is planted."""

    def __init__(self, place: Path) -> None:
        self.root = place / "tree"
        self.compiled = place / "compiled"
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(".git", ".venv", "*_cache", "__pycache__"))

    def run(self, tests: Sequence[str], *, compiled: Path | None = None) -> tuple[int, str]:
        """Exit code and output of pytest; that of a failure when it hangs."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(self.root / name) for name in SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(compiled or self.compiled),
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-m",
            *MARKERS,
            *tests,
        ]
        try:
            ended = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return FAILED, f"hangs for {HANG_SECONDS} s"
        return ended.returncode, ended.stdout + ended.stderr

    def run_with(self, fault: Fault) -> tuple[int, str]:
        """Plant a fault, run its tests, take it out again."""
        path = self.root / fault.file
        text, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(text.replace(fault.was, fault.becomes), encoding="utf-8")
        try:
            with self._compiled_anew("@compiled" in text) as compiled:
                return self.run(fault.tests, compiled=compiled)
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # what was compiled of it before holds again

    @contextlib.contextmanager
    def _compiled_anew(self, needed: bool) -> Iterator[Path | None]:
        """numba looks at the file of a function only, not at those of the functions that it calls: nothing old may be used."""
        if not needed:
            yield None
            return
        with tempfile.TemporaryDirectory(dir=self.root.parent) as folder:
            yield Path(folder)


def judged(fault: Fault, code: int) -> str:
    """``killed``, ``survived``, or what is wrong."""
    if code not in (0, FAILED):
        return f"BROKEN (pytest ended with {code})"
    if fault.survives:
        return "survived, as listed" if code == 0 else "KILLED, BUT LISTED AS A SURVIVOR"
    return "SURVIVED" if code == 0 else "killed"


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Plants faults in a copy of the product; each must make a test fail.")
    parser.add_argument("--only", metavar="TEXT", default="", help="faults whose file or texts hold TEXT")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree that are worked on at a time (1)")
    options = parser.parse_args()
    faults = [fault for fault in listed() if options.only in str(fault)]
    if wrong := problems(faults):
        print("\n".join(wrong), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="verticil-mutation-") as folder:
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(options.jobs):
            copies.put(Copy(Path(folder) / str(number)))
        begun = time.monotonic()
        first = copies.get()
        targets = list(dict.fromkeys(target for fault in faults for target in fault.tests))
        code, output = first.run(targets)
        copies.put(first)
        print(
            f"without a fault: {output.rstrip().rpartition(chr(10))[2]}, {time.monotonic() - begun:.0f} s", flush=True
        )
        if code:
            print(output, file=sys.stderr)
            return 2

        def work(fault: Fault) -> tuple[str, str, float]:
            copy, at = copies.get(), time.monotonic()
            try:
                code, output = copy.run_with(fault)
            finally:
                copies.put(copy)
            return judged(fault, code), output, time.monotonic() - at

        verdicts: list[str] = []
        with ThreadPoolExecutor(options.jobs) as pool:
            for number, (fault, (verdict, output, seconds)) in enumerate(
                zip(faults, pool.map(work, faults), strict=True), 1
            ):
                verdicts.append(verdict)
                print(f"{number}/{len(faults)} {verdict}, {seconds:.0f} s: {fault}", flush=True)
                if fault.survives:
                    print(f"    because {fault.survives}", flush=True)
                if verdict.startswith("BROKEN"):
                    print(output, flush=True)
    counted = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
    print(f"{len(faults)} faults: " + ", ".join(f"{count} {verdict}" for verdict, count in counted.items()))
    if any(verdict.startswith("BROKEN") for verdict in verdicts):
        return 2
    return 0 if counted.keys() <= {"killed", "survived, as listed"} else 1


if __name__ == "__main__":
    sys.exit(main())

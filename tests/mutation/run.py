"""Plant known faults in a copy of the product; tests must notice: ``python tests/mutation/run.py [--only TEXT] [--keep FILE]``.

`faults.toml` lists, for each source file, texts that stand in it exactly once, what replaces each, and the tests that must fail
then. The checkout is never written to. A fault is *killed* by a test that fails or hangs; one that is not is a *survivor*, and
has to say in the list (``survives``) why no test can notice it. First the named tests run on the copy as it is: they must pass.

``--keep FILE`` writes each verdict into a file as soon as it is there, with the test that failed. A later run with that file does
not repeat a fault whose source and tests are the same, and begins every other one with the test that killed it before. So the
list can be run in pieces. A new file runs everything anew.

Tests run in processes that are forked from one which has imported the libraries, but nothing of the product.

Exit code 0 when every fault was killed or is a listed survivor; 1 when one is neither, or was killed though it is listed as a
survivor; 2 when the list does not fit the tree, the tests do not pass without a fault, or could not be run with one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import queue
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("faults.toml")
SOURCES = ("shared", "party", "miner", "deploy", "deploy/experiments")
HANG_SECONDS = 600
TEST_SECONDS = 120
"""Of one test with a fault: many times what the slowest takes. So a test that waits for what never comes is over soon."""
WHOLE_SECONDS = 20 * HANG_SECONDS  # all named tests, without a fault, on a busy machine
FAILED = 1  # pytest's exit code
NO_PYTEST = 70
"""Exit code of a process in which pytest itself ended with an error."""
GOOD = frozenset({"killed", "survived, as listed"})
MARKERS = re.findall(r'"-m", "(.*) and not experiments",', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
"""What no run by itself has, but for the experiments' tests: faults of theirs are planted, too."""
LIBRARIES = (
    "pytest",
    "numpy",
    "pandas",
    "scipy.stats",
    "numba",
    "grpc",
    "cryptography.x509",
    "typer.testing",
    "hypothesis",
)
"""What most tests import; it is imported once."""


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


def run_pytest(root: Path, environment: Mapping[str, str], arguments: Sequence[str], output: Path) -> None:
    """Run pytest in a copy of the tree and end this process with its exit code; what is printed goes into a file."""
    os.setsid()
    os.chdir(root)
    os.environ.update(environment)
    sys.dont_write_bytecode = True
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    code = NO_PYTEST
    try:
        import numba.core.config
        import pytest

        numba.core.config.reload_config()
        code = int(pytest.main(list(arguments)))
    except BaseException:  # noqa: BLE001 - whatever it is, no test has failed
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Copy:
    """A copy of the tree in which one fault at a time is planted."""

    def __init__(self, place: Path) -> None:
        self.root = place / "tree"
        self.compiled = place / "compiled"
        self.output = place / "output"
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(".git", ".venv", "*_cache", "__pycache__"))

    def run(
        self, tests: Sequence[str], *, compiled: Path | None = None, seconds: float = HANG_SECONDS
    ) -> tuple[int, str]:
        """Exit code and output of pytest; that of a failure when it takes longer than `seconds`, or a test than its time."""
        environment = {
            "PYTHONPATH": os.pathsep.join(str(self.root / name) for name in SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(compiled or self.compiled),
        }
        arguments = [
            *("-x", "-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of plugins that a library has imported
            *(() if seconds > HANG_SECONDS else ("-o", f"timeout={TEST_SECONDS}")),
            *("-m", *MARKERS, *tests),
        ]
        self.output.write_bytes(b"")
        process = multiprocessing.get_context("forkserver").Process(
            target=run_pytest, args=(self.root, environment, arguments, self.output)
        )
        process.start()
        process.join(seconds)
        hangs = process.exitcode is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # and what it started
        process.join()
        if hangs:
            return FAILED, f"hangs for {seconds} s"
        code = process.exitcode
        return -1 if code is None else code, self.output.read_text(encoding="utf-8", errors="replace")

    def run_with(self, fault: Fault, first: str = "") -> tuple[int, str]:
        """Plant a fault, run its tests, take it out again; `first` is the test that killed it before."""
        path = self.root / fault.file
        text, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(text.replace(fault.was, fault.becomes), encoding="utf-8")
        try:
            with self._compiled_anew("@compiled" in text) as compiled:
                if first and (ended := self.run((first,), compiled=compiled))[0] == FAILED:
                    return ended
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


class Kept:
    """The verdicts of a file, a line each; the last one of a fault holds."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.is_file() else []
        self._of = {record["fault"]: record for record in map(json.loads, lines)}

    def verdict(self, fault: Fault) -> str:
        """The verdict on a fault whose source and tests are as they were then; empty: there is none, or it was a bad one."""
        record = self._of.get(str(fault), {})
        same = record.get("digest") == digest(fault) and record.get("verdict") in GOOD
        return str(record["verdict"]) if same else ""

    def killer(self, fault: Fault) -> str:
        """The test that killed a fault before, if it still is where it was."""
        test = str(self._of.get(str(fault), {}).get("test", ""))
        return test if (ROOT / test.partition("::")[0]).is_file() else ""

    def write(self, fault: Fault, verdict: str, output: str, seconds: float) -> None:
        """Keep a verdict."""
        if self.path is None:
            return
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?::\w+(?:\[.*?\](?= - |$))?)", output, re.MULTILINE)
        record = {
            "fault": str(fault),
            "digest": digest(fault),
            "verdict": verdict,
            "test": failed.group(1) if failed and "::" in failed.group(1) else "",
            "seconds": round(seconds, 1),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def digest(fault: Fault) -> str:
    """What the verdict on a fault rests on: its texts, its source, and the files of its tests; hexadecimal SHA-256."""
    texts = [fault.was, fault.becomes, fault.survives, *fault.tests]
    files = dict.fromkeys([fault.file, *(target.partition("::")[0] for target in fault.tests)])
    texts += [_file_digest(file) for file in files]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@functools.cache
def _file_digest(file: str) -> str:
    """Hash a file once a run, before it is copied: many faults share files, and a later edit has no verdict yet."""
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()


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
    parser.add_argument("--keep", metavar="FILE", type=Path, help="verdicts of this run and of those before it")
    options = parser.parse_args()
    faults = [fault for fault in listed() if options.only in str(fault)]
    if wrong := problems(faults):
        print("\n".join(wrong), file=sys.stderr)
        return 2
    kept = Kept(options.keep)
    before = [(fault, kept.verdict(fault)) for fault in faults]
    verdicts = [verdict for _, verdict in before if verdict]
    to_run = [fault for fault, verdict in before if not verdict]
    if verdicts:
        print(f"{len(verdicts)} of {len(faults)} faults stand in {options.keep}", flush=True)
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(LIBRARIES))
    with tempfile.TemporaryDirectory(prefix="verticil-mutation-") as folder:
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(options.jobs):
            copies.put(Copy(Path(folder) / str(number)))
        begun = time.monotonic()
        first = copies.get()
        targets = list(dict.fromkeys(target for fault in to_run for target in fault.tests))
        code, output = first.run(targets, seconds=WHOLE_SECONDS) if targets else (0, "nothing to run")
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
                code, output = copy.run_with(fault, kept.killer(fault))
            finally:
                copies.put(copy)
            return judged(fault, code), output, time.monotonic() - at

        with ThreadPoolExecutor(options.jobs) as pool:
            for number, (fault, (verdict, output, seconds)) in enumerate(
                zip(to_run, pool.map(work, to_run), strict=True), 1
            ):
                verdicts.append(verdict)
                kept.write(fault, verdict, output, seconds)
                print(f"{number}/{len(to_run)} {verdict}, {seconds:.0f} s: {fault}", flush=True)
                if fault.survives:
                    print(f"    because {fault.survives}", flush=True)
                if verdict.startswith("BROKEN"):
                    print(output, flush=True)
    counted = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
    print(f"{len(faults)} faults: " + ", ".join(f"{count} {verdict}" for verdict, count in counted.items()))
    if any(verdict.startswith("BROKEN") for verdict in verdicts):
        return 2
    return 0 if counted.keys() <= GOOD else 1


if __name__ == "__main__":
    sys.exit(main())

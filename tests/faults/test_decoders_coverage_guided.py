"""Every decoder of the table under libFuzzer: documents that grow towards code that no document has reached yet.

Each decoder gets a process of its own (of `coverage_guided.py`), some seconds (VERTICIL_FUZZ_SECONDS, else 10), and a
limit of memory that the system enforces. It starts from the decoder's valid example. Skipped where atheris is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.coverage_guided import PLANTED

from support.decoders import NAMES

PROGRAM = Path(__file__).with_name("coverage_guided.py")
SECONDS = int(os.environ.get("VERTICIL_FUZZ_SECONDS", "10"))


pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.timeout(SECONDS + 400),
]


class Fuzzer:
    """The program, which is asked for one decoder after the other."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    def fuzz(self, name: str, seconds: int = SECONDS) -> tuple[int, str]:
        """How many documents the decoder was given, and what was found; empty: nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds} {name}\n")
        self._process.stdin.flush()
        place, _, code = self._process.stdout.readline().strip().rpartition(" ")
        told = (Path(place) / "told").read_text(errors="replace")
        count = re.search(r"number_of_executed_units: (\d+)", told)
        documents = [path.read_bytes()[:400] for path in (Path(place) / "found").iterdir()]
        return int(count[1]) if count else 0, "" if code == "0" and not documents else f"{told[-5000:]}\n{documents}"

    def close(self) -> None:
        self._process.communicate()  # it ends with its input
        self._log.close()


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzer]:
    if importlib.util.find_spec("atheris") is None:
        pytest.fail("atheris is not installed: pip install 'verticil[fuzz]'")
    found = Fuzzer(tmp_path_factory.mktemp("guided"))
    yield found
    found.close()


@pytest.mark.parametrize("name", NAMES)
def test_documents_that_reach_further(name: str, fuzzer: Fuzzer, in_the_table: Callable[..., None]) -> None:
    executions, found = fuzzer.fuzz(name)
    print(f"{name}: {executions} documents in {SECONDS} s")
    assert found == ""
    assert executions > 20
    in_the_table(
        "documents guided by coverage at every decoder", times=executions, lost=[], detail=f"{name}: {executions}"
    )


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, fuzzer: Fuzzer) -> None:
    _, found = fuzzer.fuzz(name, 60)
    assert ("KeyError" if "fault" in name else "MemoryError") in found

"""Every decoder of test_decoders.py under libFuzzer: documents that grow towards code that no document has reached yet.

Each decoder gets a process of its own (`coverage_guided.py`), some seconds of it (VERTICIL_FUZZ_SECONDS, 10 unless given), and a
limit of memory that the system enforces. It starts from the decoder's valid example. Skipped where atheris is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("coverage_guided.py")
SECONDS = int(os.environ.get("VERTICIL_FUZZ_SECONDS", "10"))


def named(program: Path, name: str) -> tuple[str, ...]:
    """A constant of a module beside this one: the names of the table, without a second list of them."""
    spec = importlib.util.spec_from_file_location(f"{program.stem}_names", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return tuple(getattr(module, name))


pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(SECONDS + 400),
    pytest.mark.skipif(
        importlib.util.find_spec("atheris") is None, reason="atheris is not installed: pip install 'verticil[fuzz]'"
    ),
]


def fuzzed(name: str, folder: Path, seconds: int = SECONDS) -> tuple[int, str]:
    """How many documents the decoder was given, and what was found; empty: nothing."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), name, str(folder), str(seconds)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    told = "\n".join(line for line in done.stdout.splitlines() if line)
    count = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    documents = [path.read_bytes()[:400] for path in (folder / "found").glob("*")]
    found = "" if done.returncode == 0 and not documents else f"{told[-3000:]}\n{done.stderr[-1500:]}\n{documents}"
    return int(count[1]) if count else 0, found


@pytest.mark.parametrize("name", named(Path(__file__).with_name("test_decoders.py"), "NAMES"))
def test_documents_that_reach_further(name: str, tmp_path: Path, in_the_table: Callable[..., None]) -> None:
    executions, found = fuzzed(name, tmp_path)
    print(f"{name}: {executions} documents in {SECONDS} s")
    assert found == ""
    assert executions > 20
    in_the_table(
        "documents guided by coverage at every decoder", times=executions, lost=[], detail=f"{name}: {executions}"
    )


@pytest.mark.parametrize("name", named(PROGRAM, "PLANTED"))
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    _, found = fuzzed(name, tmp_path, seconds=60)
    assert ("KeyError" if "fault" in name else "MemoryError") in found

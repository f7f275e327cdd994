"""A table of many gigabytes is linked, randomized and sent, a release drawn and fetched, where no process may have much memory.

Memory is limited by RLIMIT_DATA, which counts what a process has of its own, whether it is used or not: heap, stacks, anonymous
mappings. Pages of files that it has mapped do not count, as the kernel drops them when a machine has no more room; RLIMIT_AS
would count them, and a cgroup needs the right to make one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "bench" / "large_tables.py"


@pytest.mark.large
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("gigabytes", "people", "note_bytes", "data_mib"),
    [(2, 1_000_000, 1900, 700), (20, 1_000_000, 19_500, 700), (20, 10_000_000, 1900, 2048)],
)
def test_a_table_larger_than_memory_is_linked_randomized_and_sent(
    gigabytes: int, people: int, note_bytes: int, data_mib: int, tmp_path: Path
) -> None:
    """Most of its bytes are a text in each row that the study does not ask for, as letters in a table of a hospital."""
    command = [sys.executable, str(PROGRAM), "--people", str(people), "--note-bytes", str(note_bytes), "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--data-mib", str(data_mib), "--folder", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    print(done.stdout)
    assert (tmp_path / f"census_bureau-{people}-{note_bytes}.csv").stat().st_size >= gigabytes * 1e9 * 0.98
    assert done.returncode == 0, done.stdout

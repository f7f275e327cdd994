"""Feature 10: an upload that is faster than the miner's disk waits in no memory, at neither end.

Two real processes, mutual TLS, the product's own sending, receiving, writing and flushing; the disk is held up at every flush, so
that the sender could be far ahead. Whoever buffered without bound would grow by most of what is sent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from verticil.simulation.provision import OPEN_LIMITS, csv_site, provision

PROGRAM = Path(__file__).with_name("slow_disk.py")
MIB = 1 << 20


def upload(folder: Path, *, size: int, rate: int) -> tuple[int, int, float]:
    """Growth of the party and of the miner in bytes, and seconds."""
    (folder / "clinic.csv").write_text("id,smoker\n1,no\n")
    made = provision(
        folder / "federation",
        federation="trial",
        sites=[csv_site("clinic", folder / "clinic.csv")],
        limits=OPEN_LIMITS,
        endpoint="127.0.0.1:1",
        listen="127.0.0.1:0",
        hosts=("127.0.0.1",),
        seed=1,
    )
    command = [sys.executable, str(PROGRAM)]
    with subprocess.Popen(
        [*command, "miner", str(made.root), str(size), str(rate)], stdout=subprocess.PIPE, text=True
    ) as miner:
        try:
            assert miner.stdout is not None
            port = miner.stdout.readline().strip()
            sent = subprocess.run(
                [*command, "party", str(made.root), str(size), port], capture_output=True, text=True, check=True
            )
            received = json.loads(miner.stdout.readline())
        finally:
            miner.kill()
    party = json.loads(sent.stdout)
    assert party["sha256"] == received["sha256"]
    grown = f"party +{party['grown'] / MIB:.1f} MiB, miner +{received['grown'] / MIB:.1f} MiB"
    print(f"{size // MIB} MiB in {party['seconds']:.1f} s: {grown}")
    return party["grown"], received["grown"], party["seconds"]


@pytest.mark.whole
def test_feature_10_an_upload_into_a_slow_disk_grows_nothing(tmp_path: Path) -> None:
    size, rate = 64 * MIB, 16 * MIB
    party, miner, seconds = upload(tmp_path, size=size, rate=rate)
    assert seconds >= 0.9 * size / rate, "the disk was not slow"
    assert party < 40 * MIB
    assert miner < 40 * MIB


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_feature_10_two_gibibytes(tmp_path: Path) -> None:
    party, miner, _ = upload(tmp_path, size=2048 * MIB, rate=40 * MIB)
    assert party < 64 * MIB
    assert miner < 64 * MIB

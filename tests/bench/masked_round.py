"""CPU seconds, bytes and memory of a whole round of masked tables: ``python tests/bench/masked_round.py [--people N] [--large]``.

Three parties with 82, 44 and 62 one-hot columns in 13 units (Adult's, by equal width; the codes are random), third-party
dealers, every row checked twice, all tables of pairs: the nodes' own program, all four in one process, every message sealed,
signed, flushed to the disk, carried as a file and verified. So the CPU seconds are those of all nodes together, with sealing,
and the peak memory is at least that of the largest node. Payload is what the sealed messages hold, counted once; a relay
carries each twice. What is opened, less the noise, is compared with a count of the first table. `--large` takes 3,000,000
people (12 GB of disk, some minutes).

Bounds, of 32,561 people: payload 75 MB, 6 CPU s; of 300,000: 750 MB, 30 CPU s; of 3,000,000: peak memory 1 GiB. Ends with 1
where one is missed. Set OPENBLAS_NUM_THREADS=1: on a busy machine threads wait for each other, and waiting counts.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from masked_products import SIZES

from support.masked_nodes import MINER, Keys, Nodes, Table, plan_for
from verticil.shared.masked_round.messages import messages_of

PARTIES = ("north", "south", "east")
BOUNDS = {32_561: (75e6, 6.0, None), 300_000: (750e6, 30.0, None), 3_000_000: (None, None, 2**30)}
"""People -> payload in bytes, CPU seconds, peak memory in bytes."""


def main() -> int:
    """Run one size."""
    parser = argparse.ArgumentParser(description="a whole round of masked tables")
    parser.add_argument("--people", type=int, default=32_561)
    parser.add_argument("--large", action="store_true")
    said = parser.parse_args()
    n = 3_000_000 if said.large else said.people
    rng = np.random.default_rng(1)
    sizes = dict(zip(PARTIES, SIZES, strict=True))
    tables = {
        name: Table(np.stack([rng.integers(0, size, n, dtype=np.uint8) for size in of], axis=1))
        for name, of in sizes.items()
    }
    payload: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        nodes = Nodes(Path(folder), Keys(Path(folder), PARTIES), plan_for(sizes, n), tables)
        listed = messages_of(nodes.plan)

        def count(message: object, path: Path) -> Path:
            payload[str(listed[int(path.name.rpartition("-")[2])].kind)] += path.stat().st_size
            return path

        nodes.change = count
        begin = time.process_time()
        nodes.run()
        seconds = time.process_time() - begin
        opened = nodes.rounds[MINER].opened()
    if opened is None:
        print("the round did not end")
        return 1
    first = np.bincount(tables["north"].rows[:, 0].astype(np.int64) * sizes["north"][1] + tables["north"].rows[:, 1])
    furthest = float(np.abs(opened[0].ravel() - first).max()) / (nodes.plan.sigma[0] / nodes.plan.sigma[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    total = sum(payload.values())
    print(
        f"{n} people: {seconds:.2f} CPU s, {total / 1e6:.1f} MB in {len(listed)} messages, peak memory {peak / 2**20:.0f} MiB"
    )
    print(", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in payload.most_common(6)))
    print(f"the first table is {furthest:.1f} deviations of the noise off at most")
    most = BOUNDS.get(n, (None, None, None))
    missed = [
        bound for got, bound in zip((total, seconds, peak), most, strict=True) if bound is not None and got > bound
    ]
    return int(bool(missed) or furthest > 8)


if __name__ == "__main__":
    sys.exit(main())

"""CPU seconds of a round of masked tables: ``python tests/bench/masked_round.py``.

Three parties with 82, 44 and 62 one-hot columns in 13 units (Adult's, by equal width; the codes are random) and n people.
First the arithmetic alone, everything that the nodes compute in one process, each thing once but U, which is made wherever it
is read: dealing, masking, the check of all six directions in two runs (what the owner, the verifier and the dealer make of
it), multiplying, noise, pads and sums, of all 78 tables; with the commitments that the owner makes to what it expects,
without seals and disk. Opened tables less the noise are held against counts. Then a whole round with all four nodes in one
process: statements, seals, signatures, files, and everything that is made anew rather than kept. Ends with 1 where a bound is
missed. Set OPENBLAS_NUM_THREADS=1: on a busy machine threads wait for each other, and waiting counts.

``--triple K``: instead, three parties with one column of K categories each, Adult's people; a round with the table of all
three, and one without.
"""

from __future__ import annotations

import itertools
import resource
import sys
import tempfile
import time
from pathlib import Path

from figure import Figure

from support.masked_arithmetic import arithmetic
from support.masked_nodes import MINER, Keys, Nodes, plan_for, random_tables
from verticil.shared.masked_round.messages import Message

ADULT = 32_561
SIZES = {"north": (20, 20, 20, 20, 2), "south": (11, 11, 11, 11), "west": (16, 16, 15, 15)}


def whole_round(n: int) -> float:
    """CPU seconds of all nodes in one process."""
    with tempfile.TemporaryDirectory() as folder:
        nodes = Nodes(Path(folder), Keys(Path(folder), list(SIZES)), plan_for(SIZES, n), random_tables(SIZES, n))
        begun = time.process_time()
        nodes.run()
        took = time.process_time() - begun
        assert nodes.rounds[MINER].opened() is not None
    return took


def triple(categories: int) -> None:
    """What a three-way table adds to a round of its three pairs: CPU seconds of all nodes, and bytes of all messages."""
    sizes = dict.fromkeys(SIZES, (categories,))
    pairs = tuple(itertools.combinations(range(3), 2))
    for name, tables in (("pairs", pairs), ("pairs and the triple", (*pairs, (0, 1, 2)))):
        with tempfile.TemporaryDirectory() as folder:
            plan = plan_for(sizes, ADULT, tables=tables)
            nodes = Nodes(Path(folder), Keys(Path(folder), list(sizes)), plan, random_tables(sizes, ADULT))
            size, messages = 0, 0

            def count(_: Message, path: Path) -> Path:
                nonlocal size, messages
                size, messages = size + path.stat().st_size, messages + 1
                return path

            nodes.change = count
            begun = time.process_time()
            nodes.run()
            took = time.process_time() - begun
            assert nodes.rounds[MINER].opened() is not None
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"K = {categories}, {name}: {took:.2f} CPU s, {size / 1e6:.1f} MB in {messages} messages, {peak} MiB",
            flush=True,
        )


def main() -> int:
    """Print every figure as it is there."""
    if sys.argv[1:2] == ["--triple"]:
        triple(int(sys.argv[2]))
        return 0
    missed = False
    for name, n, bound in [("Adult", ADULT, 6.0), ("300,000 people", 300_000, 30.0)]:
        spent = arithmetic(SIZES, n)
        note = ", ".join(f"{step} {seconds:.2f}" for step, seconds in spent.items())
        for what, took, more in [("arithmetic", spent.total(), note), ("whole round, four nodes", whole_round(n), "")]:
            row = Figure(name=f"{name}, {what}", ours=took, target=f"<= {bound:g}", met=took <= bound, note=more)
            print(f"{row.status:7}{row.name}: {row.ours:.2f} CPU s (bound {row.target})  {row.note}", flush=True)
            missed |= not row.met
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

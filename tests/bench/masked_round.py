"""CPU seconds of a round of masked tables: ``python tests/bench/masked_round.py``.

Three parties with 82, 44 and 62 one-hot columns in 13 units (Adult's, by equal width; the codes are random) and n people.
First the arithmetic alone, everything that the nodes compute in one process, each thing once but U, which is made wherever it
is read: dealing, masking, the check of all six directions in two runs (what the owner, the verifier and the dealer make of
it), multiplying, noise, pads and sums, of all 78 tables; with the commitments that the owner makes to what it expects,
without seals and disk. Opened tables less the noise are held against counts. Then a whole round with all four nodes in one
process: statements, seals, signatures, files, and everything that is made anew rather than kept. Ends with 1 where a bound is
missed. Set OPENBLAS_NUM_THREADS=1: on a busy machine threads wait for each other, and waiting counts.

The bytes of all messages have a bound, too: 75 MB and 750 MB. ``--people N``: instead, a whole round of so many people.
``--triple K``: instead, three parties with one column of K categories each, Adult's people; a round with the table of all
three, and one without.
"""

from __future__ import annotations

import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from figure import Figure

from support.masked_arithmetic import arithmetic
from support.masked_nodes import MINER, Keys, Nodes, plan_for, random_tables
from verticil.shared.masked.round.schedule import Message

ADULT = 32_561
SIZES = {"north": (20, 20, 20, 20, 2), "south": (11, 11, 11, 11), "west": (16, 16, 15, 15)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole round, all nodes in one process: CPU seconds, bytes of all messages counted once, how many, and peak memory."""

    seconds: float
    size: int
    messages: int
    peak: int

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.size / 1e6:.1f} MB in {self.messages} messages, peak memory {self.peak / 2**20:.0f} MiB"


def whole_round(sizes: Mapping[str, Sequence[int]], n: int, **plan: object) -> Whole:
    """Run one; `plan` has other values of the plan."""
    with tempfile.TemporaryDirectory() as folder:
        nodes = Nodes(
            Path(folder), Keys(Path(folder), list(sizes)), plan_for(sizes, n, **plan), random_tables(sizes, n)
        )
        counted: list[int] = []

        def count(_: Message, path: Path) -> Path:
            counted.append(path.stat().st_size)
            return path

        nodes.change = count
        begun = time.process_time()
        nodes.run()
        took = time.process_time() - begun
        assert nodes.rounds[MINER].read_tables() is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Whole(seconds=took, size=sum(counted), messages=len(counted), peak=peak)


def triple(categories: int) -> None:
    """What a three-way table adds to a round of its three pairs: CPU seconds of all nodes, and bytes of all messages."""
    sizes = dict.fromkeys(SIZES, (categories,))
    pairs = tuple(itertools.combinations(range(3), 2))
    for name, tables in (("pairs", pairs), ("pairs and the triple", (*pairs, (0, 1, 2)))):
        found = whole_round(sizes, ADULT, tables=tables)
        print(f"K = {categories}, {name}: {found.seconds:.2f} CPU s, {found.text}", flush=True)


def main() -> int:
    """Print every figure as it is there."""
    if sys.argv[1:2] == ["--triple"]:
        triple(int(sys.argv[2]))
        return 0
    if sys.argv[1:2] == ["--people"]:
        found = whole_round(SIZES, int(sys.argv[2]))
        print(f"{sys.argv[2]} people: {found.seconds:.2f} CPU s, {found.text}")
        return 0
    missed = False
    for name, n, bound, most in [("Adult", ADULT, 6.0, 75e6), ("300,000 people", 300_000, 30.0, 750e6)]:
        spent = arithmetic(SIZES, n)
        whole = whole_round(SIZES, n)
        steps = ", ".join(f"{step} {seconds:.2f}" for step, seconds in spent.items())
        for what, took, more in [
            ("arithmetic", spent.total(), steps),
            ("whole round, four nodes", whole.seconds, whole.text),
        ]:
            row = Figure(name=f"{name}, {what}", ours=took, target=f"<= {bound:g}", met=took <= bound, note=more)
            print(f"{row.status:7}{row.name}: {row.ours:.2f} CPU s (bound {row.target})  {row.note}", flush=True)
            missed |= not row.met
        missed |= whole.size > most
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

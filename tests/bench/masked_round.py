"""CPU seconds of a round of masked tables: ``python tests/bench/masked_round.py``.

Three parties with 82, 44 and 62 one-hot columns in 13 units (Adult's, by equal width; the codes are random) and n people. First
the arithmetic alone, everything that the nodes compute in one process, each thing once: dealing, masking, the check of all six
directions in two runs (what the owner, the verifier and the dealer make of it), multiplying, noise, pads and sums, of all 78
tables; with the commitments that the owner makes to what it expects, without seals and disk. Opened tables less the noise are
held against counts. Then a whole round with all four nodes in one process: statements, seals, signatures, files, and everything
that is made anew rather than kept. Ends with 1 where a bound is missed. Set OPENBLAS_NUM_THREADS=1: on a busy machine threads
wait for each other, and waiting counts.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from figure import Figure

from support.masked_nodes import MINER, Keys, Nodes, Table, plan_for, random_tables
from verticil.shared.masked.field import P, Words, add, signed
from verticil.shared.masked.plan import Plan
from verticil.shared.masked_round.messages import RUNS, Check, Pair, pairs_of
from verticil.shared.masked_round.pair_work import PairWork, words_of
from verticil.shared.masked_round.secrets import Secrets, draw
from verticil.shared.masked_round.tables_work import ShareMaker, noise_of, opened_tables, shape_of

ADULT = 32_561
SIZES = {"north": (20, 20, 20, 20, 2), "south": (11, 11, 11, 11), "west": (16, 16, 15, 15)}
T1 = bytes(32)


class Clock:
    """CPU seconds by step."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        begun = time.process_time()
        yield
        self.spent[step] += time.process_time() - begun


def pair_shares(
    plan: Plan, pair: Pair, drawn: Mapping[str, Secrets], tables: Mapping[str, Table], clock: Clock
) -> list[Words]:
    """Both parties' shares of a pair's tables, after the checks of both."""
    work, number = PairWork(plan, pair, bytes(32)), str(pair.number)
    seeds = {name: drawn[name].pairs[number].mask_seed for name in pair.parties}
    with clock("dealing"):
        product = work.dealt_product(seeds[pair.first], seeds[pair.second])
    masked: dict[str, list[Words]] = {}
    for owner in pair.parties:
        with clock("masking"):
            frames = list(work.masked(owner, seeds[owner], tables[owner]))
            masked[owner] = list(work.blocks_of(frames, work.widths[owner], "masked"))
        for run in range(RUNS):
            check = Check(pair.number, owner, pair.partner(owner), pair.dealer, run)
            assert checked(work, check, masked[owner], drawn, tables[owner], clock) == 0
    with clock("multiplying"):
        return [
            work.share_of_first(seeds[pair.first], masked[pair.second]),
            work.share_of_second(product, masked[pair.first], tables[pair.second]),
        ]


def checked(
    work: PairWork,
    check: Check,
    masked: Sequence[Words],
    drawn: Mapping[str, Secrets],
    table: Table,
    clock: Clock,
) -> int:
    """f_j + f_D of one run."""
    secrets = drawn[check.owner].pairs[str(check.pair)]
    of, units = secrets.runs[check.run], len(work.sizes[check.owner])

    def read(frames: Sequence[bytes]) -> list[Words]:
        return [words_of(frame, (len(rows), units), "rows") for frame, rows in zip(frames, masked, strict=True)]

    with clock("check, owner"):
        corrections = list(work.corrections(check.owner, of, check.run))
        tossed = work.tossed(check, bytes(32), bytes(31) + b"\1", T1)
        work.expected(check, secrets, tossed, T1, table)
    with clock("check, verifier"):
        w_j = list(work.w_of_verifier(check, of.verifier_seed, tossed, masked))
    with clock("check, dealer"):
        w_d = list(work.w_of_dealer(check, of.dealer_seed, tossed, secrets.mask_seed))
    with clock("check, verifier"):
        w = [add(*both) for both in zip(read(w_j), read(w_d), strict=True)]
        rho = work.row_coefficients(check, tossed, T1)
        f = work.f_of_verifier(check, of.verifier_seed, tossed, zip(masked, w, rho, strict=True))
    with clock("check, dealer"):
        w = [add(*both) for both in zip(read(w_j), read(w_d), strict=True)]
        rho, masks = work.row_coefficients(check, tossed, T1), work.masks(check.owner, secrets.mask_seed)
        f += work.f_of_dealer(check, of.dealer_seed, tossed, zip(masks, read(corrections), w, rho, strict=True))
    return f % P


def arithmetic(n: int) -> Counter[str]:
    """CPU seconds of each step."""
    plan, tables, clock = plan_for(SIZES, n), random_tables(SIZES, n), Clock()
    drawn = {name: draw(plan, name, os.urandom) for name in plan.parties}
    products: dict[str, dict[int, Words]] = {name: {} for name in plan.parties}
    for pair in pairs_of(plan):
        for name, share in zip(pair.parties, pair_shares(plan, pair, drawn, tables, clock), strict=True):
            products[name][pair.number] = share
    paddings = {
        name: X25519PrivateKey.from_private_bytes(of.padding).public_key().public_bytes_raw()
        for name, of in drawn.items()
    }
    frames: list[list[Words]] = []
    with clock("noise, pads, own tables"):
        for name in plan.parties:
            maker = ShareMaker(
                plan,
                name,
                T1,
                noise=drawn[name].noise,
                padding=drawn[name].padding,
                paddings=paddings,
                products=products[name],
                people=tables[name],
            )
            frames.append(
                [
                    words_of(frame, shape_of(plan, table), "share")
                    for frame, table in zip(maker.frames(), plan.tables, strict=True)
                ]
            )
    with clock("opening"):
        opened = opened_tables(plan, [iter(some) for some in frames], lambda _: None)
    codes = np.concatenate([tables[name].rows for name in plan.parties], axis=1)
    for index, table in enumerate(plan.tables):
        shape = shape_of(plan, table)
        counted = np.bincount(
            np.ravel_multi_index(tuple(codes[:, list(table)].T), shape), minlength=int(np.prod(shape))
        )
        noise = [noise_of(plan, name, drawn[name].noise, T1, index) for name in plan.parties]
        known = sum(signed(part) for part in noise if part is not None)
        assert np.array_equal(opened[index] - known, counted.reshape(shape)), (
            f"table {index} is not the one that is counted"
        )
    return clock.spent


def whole_round(n: int) -> float:
    """CPU seconds of all nodes in one process."""
    with tempfile.TemporaryDirectory() as folder:
        nodes = Nodes(Path(folder), Keys(Path(folder), list(SIZES)), plan_for(SIZES, n), random_tables(SIZES, n))
        begun = time.process_time()
        nodes.run()
        took = time.process_time() - begun
        assert nodes.rounds[MINER].opened() is not None
    return took


def main() -> int:
    """Print every figure as it is there."""
    missed = False
    for name, n, bound in [("Adult", ADULT, 6.0), ("300,000 people", 300_000, 30.0)]:
        spent = arithmetic(n)
        note = ", ".join(f"{step} {seconds:.2f}" for step, seconds in spent.items())
        for what, took, more in [("arithmetic", spent.total(), note), ("whole round, four nodes", whole_round(n), "")]:
            row = Figure(name=f"{name}, {what}", ours=took, target=f"<= {bound:g}", met=took <= bound, note=more)
            print(f"{row.status:7}{row.name}: {row.ours:.2f} CPU s (bound {row.target})  {row.note}", flush=True)
            missed |= not row.met
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

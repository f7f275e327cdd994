"""The arithmetic of a round of masked tables in one process, without seals and disk; and whether the tables are right."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from support.masked_nodes import Table, plan_for, random_tables
from verticil.shared.masked.arithmetic.check import RUNS
from verticil.shared.masked.arithmetic.field import P, Words, signed
from verticil.shared.masked.arithmetic.plan import CoarsePlan, Plan
from verticil.shared.masked.round.opening import ShareMaker, noise_of, opened_tables
from verticil.shared.masked.round.pair_products import PairWork, words_of
from verticil.shared.masked.round.schedule import Check, Pair, pairs_of
from verticil.shared.masked.round.secrets import Secrets, draw

T1 = bytes(32)


class Clock:
    """CPU seconds by step."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        begun = time.process_time()
        yield
        self.spent.update({step: time.process_time() - begun})  # type: ignore[dict-item]  # seconds, in a counter


def pair_shares(
    plan: Plan, pair: Pair, drawn: Mapping[str, Secrets], tables: Mapping[str, Table], clock: Clock
) -> list[Words]:
    """Both parties' shares of a pair's tables, after the checks of both."""
    work, number = PairWork(plan, pair, bytes(32)), str(pair.number)
    seeds = {name: drawn[name].pairs[number].mask_seed for name in pair.parties}
    with clock("dealing"):
        product = work.dealt_product(seeds[pair.first], seeds[pair.second])

    def masked(owner: str) -> Iterator[Words]:
        """U, made anew wherever it is read."""
        return work.blocks_of(work.masked(owner, seeds[owner], tables[owner]), work.widths[owner], "masked")

    for owner in pair.parties:
        with clock("masking"):
            for _ in masked(owner):
                pass
        for run in range(RUNS):
            check = Check(pair.number, owner, pair.partner(owner), pair.dealer, run)
            assert checked(work, check, lambda owner=owner: masked(owner), drawn, tables[owner], clock) == 0
    with clock("multiplying"):
        return [
            work.share_of_first(seeds[pair.first], masked(pair.second)),
            work.share_of_second(product, masked(pair.first), tables[pair.second]),
        ]


def checked(
    work: PairWork,
    check: Check,
    masked: Callable[[], Iterator[Words]],
    drawn: Mapping[str, Secrets],
    table: Table,
    clock: Clock,
) -> int:
    """f_j + f_D of one run."""
    secrets = drawn[check.owner].pairs[str(check.pair)]
    of, units = secrets.runs[check.run], len(work.sizes[check.owner])

    def read(frames: list[bytes]) -> list[Words]:
        return list(work.blocks_of(frames, units, "rows"))

    with clock("check, owner"):
        corrections = list(work.corrections(check.owner, of, check.run))
        tossed = work.toss(check, bytes(32), bytes(31) + b"\1", T1)
        work.expected_commitments(check, secrets, tossed, T1, table)
    with clock("check, verifier"):
        w_j = list(work.w_of_verifier(check, of.verifier_seed, tossed, masked()))
    with clock("check, dealer"):
        w_d = list(work.w_of_dealer(check, of.dealer_seed, tossed, secrets.mask_seed))
    with clock("check, verifier"):
        rho = work.row_coefficients(check, tossed, T1)
        f = work.f_of_verifier(check, of.verifier_seed, tossed, zip(masked(), read(w_d), rho, strict=True))
    with clock("check, dealer"):
        rho, masks = work.row_coefficients(check, tossed, T1), work.masks(check.owner, secrets.mask_seed)
        rows = zip(masks, read(corrections), read(w_j), rho, strict=True)
        f += work.f_of_dealer(check, of.dealer_seed, tossed, rows)
    return f % P


def arithmetic(sizes: Mapping[str, Sequence[int]], n: int, coarse: CoarsePlan | None = None) -> Counter[str]:
    """Everything that the nodes of a round compute; that opened tables less the noise are those that are counted.

    Args:
        sizes: by party, the categories of its units.
        n: people.
        coarse: the second resolution of the plan.

    Returns:
        CPU seconds of each step.
    """
    plan, tables, clock = plan_for(sizes, n, coarse=coarse), random_tables(sizes, n), Clock()
    drawn = {name: draw(plan, name, os.urandom) for name in plan.contributors}
    products: dict[str, dict[int, Words]] = {name: {} for name in plan.parties}
    for pair in pairs_of(plan):
        for name, share in zip(pair.parties, pair_shares(plan, pair, drawn, tables, clock), strict=True):
            products[name][pair.number] = share
    paddings = {
        name: X25519PrivateKey.from_private_bytes(drawn[name].padding).public_key().public_bytes_raw()
        for name in plan.parties
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
                [words_of(frame, plan.shape_at(index), "share") for index, frame in enumerate(maker.frames())]
            )
    with clock("opening"):
        opened = opened_tables(
            plan,
            [iter(some) for some in frames],
            lambda index: noise_of(plan, plan.miner, drawn[plan.miner].noise, T1, index),
        )
    columns = [column for name in plan.parties for column in tables[name].rows.T]
    for index, table in enumerate(plan.opened):
        shape, runs = plan.shape_at(index), plan.runs_at(index)
        codes = [columns[unit] for unit in table]
        if runs is not None:
            codes = [np.asarray(own)[column] for own, column in zip(runs, codes, strict=True)]
        counted = np.bincount(np.ravel_multi_index(tuple(codes), shape), minlength=math.prod(shape))
        noise = [noise_of(plan, name, drawn[name].noise, T1, index) for name in plan.contributors]
        known = sum(signed(part) for part in noise if part is not None)
        assert np.array_equal(opened[index] - known, counted.reshape(shape)), (
            f"table {index} is not the one that is counted"
        )
    return clock.spent

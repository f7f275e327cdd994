"""CPU seconds and memory of tables over several parties of which nobody sees a row: ``python tests/bench/masked_products.py``.

Three parties with 82, 44 and 62 one-hot columns (Adult's, by equal width; the codes are random) and n people. For every pair a
dealer expands both masks and multiplies them, each party expands its mask and adds its one-hot codes, and each multiplies its
part with what it gets: block of rows by block of rows in one process, no network, no check of the partner. Of each pair the table
of the first units is held against a count. `--large` takes 3,000,000 people besides (a minute). Each size runs in a process
of its own, for its peak memory.

Then one product of two matrices of words, 32,561 x 82 and x 44, in four ways that must agree: ours, and three references: numpy's
product of whole numbers on limbs (no BLAS), a compiled loop over 64-bit products, and whole numbers of Python on the first rows,
scaled; and the product with codes, ours beside a compiled loop. Ends with 1 where a bound is missed. Set OPENBLAS_NUM_THREADS=1:
on a busy machine threads wait for each other, and waiting counts.
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence

import numpy as np
from figure import Figure, cpu_seconds
from numpy.typing import NDArray

from support.masked_reference import product
from verticil.shared.core.compiled import compiled
from verticil.shared.masked.arithmetic import field, products, streams
from verticil.shared.masked.arithmetic.field import P, Words

ADULT = 32_561
SIZES = ((20, 20, 20, 20, 2), (11, 11, 11, 11), (16, 16, 15, 15))  # 82, 44, 62
PLAIN_ROWS = 100  # of Python's whole numbers
Sums = NDArray[np.uint64]


@compiled
def loop_of_words(left: Words, right: Words, low: Sums, high: Sums) -> None:
    """Add the lower and the upper 32 bits of all products of 64 bits, each in a sum of its own."""
    for row in range(len(left)):
        for i in range(left.shape[1]):
            one = np.uint64(left[row, i])
            for j in range(right.shape[1]):
                both = one * np.uint64(right[row, j])
                low[i, j] += both & np.uint64(0xFFFFFFFF)
                high[i, j] += both >> np.uint64(32)


@compiled
def loop_of_codes(left: Words, places: NDArray[np.int64], sums: Sums) -> None:
    """Add each row to the sums of the categories that the person has."""
    for row in range(len(left)):
        for unit in range(places.shape[1]):
            for i in range(left.shape[1]):
                sums[places[row, unit], i] += left[row, i]


def with_loop(left: Words, right: Words) -> Words:
    low, high = (np.zeros((left.shape[1], right.shape[1]), np.uint64) for _ in range(2))
    loop_of_words(left, right, low, high)
    return ((low % P + 5 * (high % P)) % P).astype(np.uint32)


def with_codes_in_a_loop(left: Words, codes: NDArray[np.uint8], sizes: Sequence[int]) -> Words:
    sums = np.zeros((sum(sizes), left.shape[1]), np.uint64)
    loop_of_codes(left, codes + (np.cumsum(sizes) - sizes), sums)
    return (sums.T % P).astype(np.uint32)


def with_whole_numbers(left: Words, right: Words) -> Words:
    """32 by 16 bits: a sum of 2^16 rows fits in 64."""
    wide = left.T.astype(np.uint64)
    low, high = ((wide @ limbs.astype(np.uint64)) % P for limbs in (right & 0xFFFF, right >> 16))
    return ((low + 2**16 * high) % P).astype(np.uint32)


def three_parties(n: int, sizes: Sequence[Sequence[int]]) -> dict[str, float]:
    """Every pair of parties; CPU seconds of each step, and the peak of memory in MiB with the codes."""
    generator = np.random.default_rng(1)
    codes = [
        np.column_stack([generator.integers(0, k, n, dtype=np.uint8) for k in of_party]).astype(np.uint8)
        for of_party in sizes
    ]
    spent = dict.fromkeys(("dealing", "masking", "multiplying"), 0.0)
    for i, j in itertools.combinations(range(len(sizes)), 2):
        widths = sum(sizes[i]), sum(sizes[j])
        seeds = [streams.key_of(bytes(32), "seed", *direction) for direction in ((i, j), (j, i))]
        z, c = np.zeros(widths, np.uint32), np.zeros(widths, np.uint32)
        for number, rows in enumerate(streams.row_blocks(n, streams.block_rows(sum(widths)))):
            height = rows.stop - rows.start

            def mask(side: int, number: int = number, height: int = height) -> Words:
                return streams.words(streams.key_of(seeds[side], "mask", number), (height, widths[side]))  # noqa: B023

            begun = time.process_time()
            z = field.add(z, products.of_words(mask(0), mask(1)))
            dealt = time.process_time()
            u = [mask(0), mask(1)]
            products.add_one_hot(u[0], codes[i][rows], sizes[i])
            products.add_one_hot(u[1], codes[j][rows], sizes[j])
            masked = time.process_time()
            c = field.subtract(c, products.of_words(mask(0), u[1]))
            c = field.add(c, products.of_words_and_codes(u[0], codes[j][rows], sizes[j]))
            spent["multiplying"] += time.process_time() - masked
            spent["masking"] += masked - dealt
            spent["dealing"] += dealt - begun
        first = np.bincount(codes[i][:, 0].astype(int) * sizes[j][0] + codes[j][:, 0])
        opened = field.signed(field.add(z, c))[: sizes[i][0], : sizes[j][0]]
        assert np.array_equal(opened.ravel(), first), "a table is not the one that is counted"
    return {**spent, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def whole(name: str, n: int, sizes: Sequence[Sequence[int]], *, seconds: float, mebibytes: float) -> list[Figure]:
    """Measured in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        found = pool.apply(three_parties, (n, sizes))
    took = found["dealing"] + found["masking"] + found["multiplying"]
    parts = ", ".join(f"{step} {found[step]:.2f}" for step in ("dealing", "masking", "multiplying"))
    return [
        Figure(name=name, ours=took, target=f"<= {seconds:g}", met=took <= seconds, note=parts),
        Figure(
            name=f"{name}, peak memory",
            ours=found["MiB"],
            unit="MiB",
            target=f"<= {mebibytes:g}",
            met=found["MiB"] <= mebibytes,
            note="of the process, codes and libraries with it",
        ),
    ]


def one_product() -> list[Figure]:
    """Ours against the references."""
    generator = np.random.default_rng(2)
    left, right = (generator.integers(0, P, (ADULT, width), dtype=np.uint32) for width in (82, 44))
    codes = generator.integers(0, 11, (ADULT, 4), dtype=np.uint8)
    blocks = list(streams.row_blocks(ADULT, streams.block_rows(126)))

    def ours() -> Words:
        found = np.zeros((82, 44), np.uint32)
        for rows in blocks:
            found = field.add(found, products.of_words(left[rows], right[rows]))
        return found

    def ours_with_codes() -> Words:
        found = np.zeros((82, 44), np.uint32)
        for rows in blocks:
            found = field.add(found, products.of_words_and_codes(left[rows], codes[rows], SIZES[1]))
        return found

    for other in (with_loop, with_whole_numbers):
        assert np.array_equal(ours(), other(left, right)), other.__name__
    assert np.array_equal(ours_with_codes(), with_codes_in_a_loop(left, codes, SIZES[1]))
    few = left[:PLAIN_ROWS].tolist(), right[:PLAIN_ROWS].tolist()
    assert products.of_words(left[:PLAIN_ROWS], right[:PLAIN_ROWS]).tolist() == product(*few)
    took = cpu_seconds(ours)
    rivals = [
        ("numpy's whole numbers on limbs", cpu_seconds(lambda: with_whole_numbers(left, right), repeats=1), 10.0),
        ("a compiled loop", cpu_seconds(lambda: with_loop(left, right)), 0.0),
        (
            f"Python's whole numbers, {PLAIN_ROWS} rows scaled",
            cpu_seconds(lambda: product(*few), repeats=1) * ADULT / PLAIN_ROWS,
            100.0,
        ),
    ]
    found = [
        Figure(
            name="R_i^T R_j, 32,561 x (82, 44)",
            ours=took,
            reference=reference,
            ratio=reference / took,
            target=f">= {times:g} times" if times else "-",
            met=reference >= times * took if times else None,
            note=f"reference: {name}",
        )
        for name, reference, times in rivals
    ]
    with_codes, loop = cpu_seconds(ours_with_codes), cpu_seconds(lambda: with_codes_in_a_loop(left, codes, SIZES[1]))
    return [
        *found,
        Figure(
            name="U_i^T Y_j, the same",
            ours=with_codes,
            reference=loop,
            ratio=loop / with_codes,
            note="reference: a compiled loop",
        ),
    ]


def main() -> int:
    """Print every figure as it is there."""
    rows = [
        *whole("Adult, three pairs", ADULT, SIZES, seconds=1.0, mebibytes=500),
        *whole("300,000 x (82, 44)", 300_000, SIZES[:2], seconds=3.0, mebibytes=500),
    ]
    if "--large" in sys.argv[1:]:
        rows += whole("3,000,000, three pairs", 3_000_000, SIZES, seconds=100.0, mebibytes=500)
    rows += one_product()
    for row in rows:
        beside = "" if row.reference is None else f"  reference {row.reference:.3f}, ratio {row.ratio:.2f}"
        print(f"{row.status:7}{row.name}: {row.ours:.3f} {row.unit} (bound {row.target}){beside}  {row.note}")
    return int(any(row.status == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())

"""The check of rows against whole numbers of Python: honest rows pass, planted ones do not, and in a ring they would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from support import masked_reference as plain
from verticil.shared.masked.arithmetic import check, field, products, streams
from verticil.shared.masked.arithmetic.field import P, Words

EDGES = np.array([0, 1, 2**16 - 1, 2**16, P // 2, 2**32 - 2**16 - 1, P - 1], np.uint32)


def uniform(generator: np.random.Generator, *shape: int) -> Words:
    """Uniform words, and some of those where a carry is likely."""
    words = generator.integers(0, P, shape, dtype=np.uint32)
    some = generator.random(shape) < 0.2
    words[some] = generator.choice(EDGES, int(some.sum()))
    return words


# ---- the parts


@pytest.mark.parametrize(
    "sizes",
    [[2], [2, 3, 64], [32, 33, 1], [20, 20, 20, 20, 2], [5] * 40, [64, 65, 2], [1025, 3], [4096], [40_000]],
    ids=str,
)
def test_combined_words_are_those_of_whole_numbers(sizes):
    generator = np.random.default_rng(sum(sizes))
    for n, c in [(0, 1), (3, 1), (2, 2), (1, 5)]:
        words, coefficients = uniform(generator, n, sum(sizes)), uniform(generator, c, sum(sizes))
        found = check.combine(words, coefficients, sizes)
        assert found.tolist() == plain.combined(words.tolist(), coefficients.tolist(), sizes)
        assert found.dtype == np.uint32


@pytest.mark.parametrize("size", [1, 2, 32, 33, 64, 512, 513, 2**15, 2**16])
def test_combined_words_are_exact_at_the_largest(size):
    alike = np.full((1, size), P - 1, np.uint32)
    for most in (P - 1, 2**32 - 2**16 - 1):
        assert check.combine(alike, np.full((1, size), most, np.uint32), [size]).item() == size * (P - 1) * most % P


def test_what_does_not_fit_is_refused():
    words = np.zeros((3, 5), np.uint32)
    with pytest.raises(ValueError, match="5 columns and 5 coefficients, expected 6"):
        check.combine(words, words, [2, 4])
    with pytest.raises(ValueError, match="5 columns and 4 coefficients, expected 5"):
        check.combine(words, words[:, :4], [2, 3])
    many = np.zeros((1, 2**16 + 1), np.uint32)
    with pytest.raises(ValueError, match=f"a unit of {2**16 + 1} categories"):
        check.combine(many, many, [2**16 + 1])


@pytest.mark.parametrize("seed", range(6))
def test_sums_of_both_sides_are_those_of_whole_numbers(seed):
    generator = np.random.default_rng(seed)
    parts = [uniform(generator, 40, 3) for _ in range(5)]
    as_lists = [words.tolist() for words in parts]
    assert check.verifier_sum(*parts) == plain.verifier_sum(*as_lists)
    assert check.dealer_sum(*parts) == plain.dealer_sum(*as_lists)
    a, b, c = parts[:3]
    triples = zip(a.ravel().tolist(), b.ravel().tolist(), c.ravel().tolist(), strict=True)
    assert check.square_share(a, b, c).ravel().tolist() == [((x + y) ** 2 - z) % P for x, y, z in triples]
    assert check.squares(a).tolist() == [[x * x % P for x in row] for row in a.tolist()]


# ---- the whole check


def checked(rows: Words, sizes: Sequence[int], *, run: int = 0, error: Words | None = None, a_block: int = 9000) -> int:
    """f_j + f_D of these rows, by both sides as they would make it, block of rows by block of rows.

    Args:
        rows: (n, S): Y, what U - R is.
        error: (n, u), e: what the owner adds to the corrections.
    """
    r = streams.words(streams.key_of(bytes(32), "r", run), (1, sum(sizes)))
    both = np.concatenate([r, check.squares(r)])
    f = 0
    for number, part in enumerate(streams.row_blocks(len(rows), a_block)):
        y = rows[part]

        def words(name: str, width: int, number: int = number, n: int = len(y)) -> Words:
            return streams.words(streams.key_of(bytes(32), name, run, number), (n, width))

        mask = words("mask", sum(sizes))
        a_j, b_j, a_d, rho = (words(name, len(sizes)) for name in ("a_j", "b_j", "a_d", "rho"))
        b_d = check.square_share(a_j, a_d, b_j)
        if error is not None:
            b_d = field.add(b_d, error[part])
        z_j, star_j = check.combine(field.add(y, mask), both, sizes)
        z_d, star_d = check.combine(field.negate(mask), both, sizes)
        w = field.add(field.subtract(z_j, a_j), field.subtract(z_d, a_d))
        f += check.verifier_sum(w, a_j, b_j, star_j, rho) + check.dealer_sum(w, a_d, b_d, star_d, rho)
    return f % P


def honest(n: int, sizes: Sequence[int], seed: int = 1) -> Words:
    generator = np.random.default_rng(seed)
    codes = np.stack([generator.integers(0, k, n) for k in sizes], axis=1).astype(np.uint16)
    rows = np.zeros((n, sum(sizes)), np.uint32)
    products.add_one_hot(rows, codes, sizes)
    return rows


@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        *[(300, [k]) for k in range(2, 65)],
        (1, [2]),
        (10_000, [64, 2, 17]),
        (10_000, [8 * 7, 2]),  # the first a compound of two columns
        (10_000, [33 * 3, 5, 4 * 2 * 2]),
        (700, [2] * 30),
    ],
    ids=str,
)
def test_one_hot_rows_pass(n, sizes):
    assert checked(honest(n, sizes), sizes) == checked(honest(n, sizes), sizes, run=1) == 0


def test_blocks_that_are_all_0_pass():
    rows = honest(500, [3, 4])
    rows[::7, :3] = 0
    rows[3, 3:] = 0
    assert checked(rows, [3, 4]) == 0


def plant(where: int, column: int, value: int) -> Callable[[Words], None]:
    def planted(rows: Words) -> None:
        rows[where, :5] = 0
        rows[where, column] = value % P

    return planted


def two_ones(rows: Words) -> None:
    rows[20, :5] = [0, 1, 0, 1, 0]


def twenty_targets(rows: Words) -> None:
    rows[:, 7:] = 0
    for k in range(20):
        rows[10 * k, 7] = 2 ** (11 + k)


@pytest.mark.parametrize("block", [9000, 64], ids=["one-block", "many-blocks"])
@pytest.mark.parametrize(
    "planted",
    [
        *[
            plant(0, 0, 2),
            plant(399, 4, 2),
            plant(7, 1, 2**21),
            plant(7, 1, -1),
            plant(7, 1, 2**31),
            plant(7, 2, P // 2),
        ],
        two_ones,
        twenty_targets,
    ],
    ids=["2-first", "2-last", "2^21", "-1", "2^31", "p/2", "two-ones", "20-targets"],
)
def test_rows_of_another_weight_do_not_pass(planted, block):
    """Each with a chance of 3/p to be missed, in either run by itself."""
    sizes = [5, 2, 9]
    rows = honest(400, sizes)
    planted(rows)
    assert checked(rows, sizes, a_block=block) != 0
    assert checked(rows, sizes, run=1, a_block=block) != 0


@pytest.mark.parametrize("e", [1, 2, P - 1, 2**31])
def test_a_correction_that_is_off_does_not_pass(e):
    error = np.zeros((400, 3), np.uint32)
    error[250, 1] = e
    for rows in (honest(400, [5, 2, 9]), np.zeros((400, 16), np.uint32)):
        assert checked(rows, [5, 2, 9], error=error) != 0
        assert checked(rows, [5, 2, 9], error=error, run=1) != 0


def test_two_rows_whose_weights_cancel_do_not_pass():
    """Rows 2 and -1 of one column, and one row's block beside the other's: r is the same for all, rho is not."""
    rows = honest(400, [5, 2, 9])
    rows[[5, 6], :5] = 0
    rows[5, 0], rows[6, 0] = 2, P - 1
    assert checked(rows, [5, 2, 9]) != 0


def test_a_verifier_that_shifts_a_row_is_seen_whatever_the_value():
    """It adds -e_g: where the value is g the block is 0 and would pass. Its share w_j is another one for every value alike."""
    sizes, g = [4], 2
    r = streams.words(streams.key_of(bytes(32), "r", 0), (1, 4))
    for value in range(4):
        rows, shift = np.zeros((1, 4), np.uint32), np.zeros((1, 4), np.uint32)
        rows[0, value], shift[0, g] = 1, P - 1
        assert (checked(field.add(rows, shift), sizes) == 0) == (value == g)
        moved = field.subtract(*(check.combine(word, r, sizes) for word in (field.add(rows, shift), rows)))
        assert moved.item() == P - r[0, g]


# ---- why it holds


@pytest.mark.parametrize(("p", "worst", "bound"), [(5, 0.520, 0.600), (7, 0.388, 0.429), (11, 0.256, 0.273)])
def test_at_small_primes_the_worst_row_passes_as_often_as_is_said(p, worst, bound):
    """All y of one category with all e, and of two with e = 0, the worst of which is (1, 1); 0 and the unit vectors always."""
    shares = {
        **{((y,), e): plain.passing((y,), e, p) for y in range(p) for e in range(p)},
        **{(y, 0): plain.passing(y, 0, p) for y in itertools.product(range(p), repeat=2)},
    }
    fine = {case for case, share in shares.items() if share == 1}
    assert fine == {((0,), 0), ((1,), 0), ((0, 0), 0), ((0, 1), 0), ((1, 0), 0)}
    found = max(share for case, share in shares.items() if case not in fine)
    assert round(found, 3) == worst
    assert found <= bound
    assert shares[(1, 1), 0] == max(share for case, share in shares.items() if case not in fine and case[1] == 0)


def in_a_ring(y: NDArray[np.uint32], n: int) -> int:
    """In how many of n tosses one row passes where numbers are taken modulo 2^32."""
    generator = np.random.default_rng(3)
    r, rho = (generator.integers(0, 2**32, shape, dtype=np.uint32) for shape in ((n, len(y)), (n,)))
    z, star = (r * y).sum(axis=1, dtype=np.uint32), (r * r * y).sum(axis=1, dtype=np.uint32)
    return int(np.count_nonzero(rho * (z * z - star) == 0))


def test_a_ring_in_place_of_the_field_lets_a_row_pass():
    """A block with one 2^31: h = 2^31 r^2 is 0 for even r, rho h for even rho: three tosses in four, false alarm 1e-6."""
    n, y = 4000, np.array([0, 2**31, 0], np.uint32)
    passed = in_a_ring(y, n)
    assert stats.binomtest(passed, n, 0.75).pvalue > 1e-6
    assert stats.binomtest(passed, n, 0.5).pvalue < 1e-6
    assert in_a_ring(np.array([0, 1, 0], np.uint32), n) == n
    assert all(checked(y[None], [3], run=run) for run in range(200))

"""The field, its streams and its products against whole numbers of Python; two shares of a table; words that look uniform."""

from __future__ import annotations

import doctest
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray
from scipy import stats

from support.masked_reference import one_hot, product
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.masked.arithmetic import field, products, streams
from verticil.shared.masked.arithmetic.field import P, Words

KEY = bytes(range(32))
EDGES = np.array([0, 1, 4, 5, 2**16 - 1, 2**16, P // 2, P // 2 + 1, 2**32 - 2**16 - 1, P - 2, P - 1], np.uint32)


def test_doctests():
    assert doctest.testmod(field).failed == doctest.testmod(streams).failed == 0


# ---- the field


def test_sums_differences_and_numbers_are_those_of_whole_numbers():
    one, other = (side.ravel() for side in np.meshgrid(EDGES, EDGES))
    pairs = list(zip(one.tolist(), other.tolist(), strict=True))
    assert field.add(one, other).tolist() == [(a + b) % P for a, b in pairs]
    assert field.subtract(one, other).tolist() == [(a - b) % P for a, b in pairs]
    assert field.negate(EDGES).tolist() == [-a % P for a in EDGES.tolist()]
    numbers = np.array([0, 1, -1, P // 2, -(P // 2), 12_345, -12_345])
    assert field.signed(field.from_numbers(numbers)).tolist() == numbers.tolist()
    assert field.from_numbers(np.array([-1, P, -P - 1])).tolist() == [P - 1, 0, P - 1]
    for words in (field.add(one, other), field.subtract(one, other), field.negate(one), field.from_numbers(numbers)):
        assert words.dtype == np.uint32


def test_only_what_can_be_read_again_is_let_through():
    """p / 2 = 2147483645.5."""
    field.check_capacity(2_147_483_645, 0.0)
    field.check_capacity(2_147_483_645 - 32 * 1000, 1000.0)
    for n_people, sigma in [
        (2_147_483_646, 0.0),
        (2_147_483_645 - 32 * 1000 + 1, 1000.0),
        (1, float("inf")),
        (1, float("nan")),
        (1, -1.0),
        (0, 1.0),
    ]:
        with pytest.raises(Misuse, match=rf"^STUDY_UNSUPPORTED: counts of {n_people} people with noise") as told:
            field.check_capacity(n_people, sigma)
        assert told.value.hint


def test_words_from_elsewhere_that_are_none_are_told():
    field.check_words(EDGES, "shares")
    with pytest.raises(PeerFault, match=r"^MESSAGE_INVALID: shares of a table: 2 of 3 words are 2\^32 - 5 or more"):
        field.check_words(np.array([P, 1, 2**32 - 1], np.uint32), "shares of a table")


# ---- keys


def test_a_key_is_that_of_the_layout_in_words():
    parts = [b"verticil/masked/v1", b"pqr", "ä".encode(), b"", b"17"]
    info = b"".join(bytes(7) + bytes([length]) + part for length, part in zip([18, 3, 2, 0, 2], parts, strict=True))
    expected = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(KEY)
    assert streams.key_of(KEY, b"pqr", "ä", "", 17) == expected
    assert streams.key_of(bytes(32), b"pqr", "ä", "", 17) != expected


def test_no_two_lists_of_fields_have_one_key():
    lists: list[tuple[streams.Field, ...]] = [
        *[
            (),
            ("",),
            ("", ""),
            ("", "", ""),
            ("ab", "c"),
            ("a", "bc"),
            ("abc",),
            ("a", "b", "c"),
            ("c", "ab"),
            ("ab", "", "c"),
        ],
        *[("a", "b"), ("a" + "\0" * 7 + "\1b",), (streams.encode_fields("a", "b"),), (streams.encode_fields("ab"),)],
        *[
            (streams.encode_fields("a"), "b"),
            ("a", streams.encode_fields("b")),
            (streams.encode_fields(streams.encode_fields("a", "b")),),
        ],
        *[(1,), (0,), (10,), (1, 0), (1, 1), (11,), (2**64,), ("mask", 1, 2), ("mask", 12), ("mask", 2, 1), (b"\1",)],
    ]
    keys = {streams.key_of(KEY, *fields) for fields in lists}
    assert len(keys) == len(set(map(repr, lists))) == len(lists)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (("a", True), "field 2: bool, expected bytes, text"),
        ((-1,), "field 1: int"),
        ((1.0,), "field 1: float"),
        ((None,), "field 1: NoneType"),
        ((("a", "b"),), "field 1: tuple"),
    ],
)
def test_a_field_of_another_kind_is_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        streams.encode_fields(*fields)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_secrets_and_keys_have_32_bytes(length):
    with pytest.raises(ValueError, match=f"secret: {length} bytes, expected 32"):
        streams.key_of(bytes(length), "a")
    with pytest.raises(ValueError, match=f"key: {length} bytes, expected 32"):
        streams.words(bytes(length), (1,))
    with pytest.raises(ValueError, match=f"{2**32 + 1} words of one key"):
        streams.words(KEY, (2**32 + 1,))


# ---- words


def chacha(key: bytes, count: int) -> NDArray[np.uint32]:
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(4 * count)), "<u4")


def test_words_are_those_of_the_cipher():
    """The key stream of RFC 8439, appendix A.1, test vector 1: key, nonce and counter 0."""
    assert streams.words(bytes(32), (2, 2)).tolist() == [[0xADE0B876, 0x903DF1A0], [0xE56A5D40, 0x28BD8653]]
    assert np.array_equal(streams.words(KEY, (50, 400)), chacha(KEY, 20_000).reshape(50, 400))


def test_a_word_of_p_or_more_is_left_out_and_moves_its_own_block_only():
    """Word 46,364 of the stream of block 18,298 is p + 4: found by trying blocks in turn."""
    key, others = streams.key_of(KEY, 18298), [streams.key_of(KEY, 18297), streams.key_of(KEY, 18299)]
    drawn = chacha(key, 65_537)
    assert np.flatnonzero(drawn >= P).tolist() == [46364]
    assert np.array_equal(streams.words(key, (65_536,)), np.delete(drawn, 46364))
    assert np.array_equal(streams.words(key, (46365,)), np.delete(drawn, 46364)[:46365])
    for other in others:
        assert np.array_equal(streams.words(other, (65_536,)), chacha(other, 65_536))


def test_many_words_that_are_left_out_are_drawn_anew():
    drawn = np.random.default_rng(1).integers(P - 40, 2**32, 60_000, dtype=np.uint32)
    place = 0

    def stream(size: int) -> bytes:
        nonlocal place
        place += size
        return drawn.astype("<u4").tobytes()[place - size : place]

    kept = streams.accept_words(stream, 50_000)
    assert np.array_equal(kept, drawn[drawn < P][:50_000])
    kept[0] = 1


@pytest.mark.parametrize(
    ("n_rows", "width"), [(0, 5), (1, 1), (511, 10**6), (100_000, 188), (2**19 + 1, 1), (5000, 8192)]
)
def test_blocks_cover_all_rows_once_and_stay_small(n_rows, width):
    blocks = list(streams.row_blocks(n_rows, streams.block_rows(width)))
    assert [row for block in blocks for row in range(block.start, block.stop)] == list(range(n_rows))
    sizes = [block.stop - block.start for block in blocks]
    assert all(size * width <= max(2**19, 512 * width) and size <= products.MAX_ROWS for size in sizes)
    assert len(set(sizes[:-1])) <= 1
    assert all(size >= 512 for size in sizes[:-1])


# ---- words that look uniform

FALSE_ALARM = 1e-6
"""Of one call of `looks_uniform`; all calls here that must pass have fixed seeds and passed when they were written."""
N_WORDS = 2**18


def looks_uniform(one: Words, other: Words) -> bool:
    """Whether two sets of words could be independent and uniform; false alarm at most `FALSE_ALARM`.

    That 2^32 is not p moves a bit's chance by 1e-9, nothing beside the 1e-3 that 2^18 words tell. 77 tests at `FALSE_ALARM` / 77
    each: for either set the ones in each of the 32 bits (binomial), the 256 values in each of the 4 bytes (chi^2), and a word's
    lowest bit with the next word's highest (2 x 2, chi^2); between the sets how many bits differ (binomial), how many words are
    equal at one place and how many anywhere (Poisson).
    """
    p_values: list[float] = []
    for words in (one, other):
        n = words.size
        for bit in range(32):
            p_values.append(stats.binomtest(int((words >> np.uint32(bit) & 1).sum()), n).pvalue)
        for byte in range(4):
            p_values.append(stats.chisquare(np.bincount(words >> np.uint32(8 * byte) & 255, minlength=256)).pvalue)
        cells = np.bincount(2 * (words[:-1] & 1) + (words[1:] >> np.uint32(31)), minlength=4)
        p_values.append(stats.chisquare(cells).pvalue)
    n_differ = int(np.bitwise_count(one ^ other).sum())
    p_values.append(stats.binomtest(n_differ, 32 * one.size).pvalue)
    p_values.append(float(stats.poisson.sf(np.count_nonzero(one == other) - 1, one.size / P)))
    n_common = np.intersect1d(one, other).size
    p_values.append(float(stats.poisson.sf(n_common - 1, one.size * other.size / P)))
    assert len(p_values) == 77
    return min(p_values) >= FALSE_ALARM / len(p_values)


def block(number: int) -> Words:
    return streams.words(streams.key_of(KEY, "mask", number), (N_WORDS,))


def test_words_of_two_blocks_look_uniform():
    assert looks_uniform(block(0), block(1))
    assert looks_uniform(block(1), block(2))


def test_masked_codes_look_uniform_whoever_is_behind():
    """Two inputs that differ in one person, and one in which all are alike; each under a mask of its own."""
    codes = np.random.default_rng(2).integers(0, 64, (N_WORDS // 128, 2), dtype=np.uint8)
    twin = codes.copy()
    twin[5] = [63, 0] if twin[5, 0] != 63 else [0, 63]
    masked = []
    for number, people in enumerate([codes, twin, np.zeros_like(codes)]):
        mask = block(number).reshape(-1, 128)
        products.add_one_hot(mask, people, [64, 64])
        masked.append(mask.ravel())
    assert looks_uniform(masked[0], masked[1])
    assert looks_uniform(masked[1], masked[2])


@pytest.mark.parametrize(
    "planted",
    [
        lambda words: words >> np.uint32(1),
        lambda words: words & np.uint32(0x7FFFFFFF),
        lambda words: words % np.uint32(3 * 10**9),
        lambda words: words | (words << np.uint32(31)),
        lambda words: np.where(np.arange(words.size) % 64 == 0, words & np.uint32(3), words),
        lambda words: np.repeat(words[::2], 2)[: words.size],
        lambda words: block(0),
        lambda words: np.roll(block(0), 1),
        lambda words: field.add(block(0), words & np.uint32(1)),
        lambda words: np.concatenate([block(0)[:64], words[64:]]),
    ],
    ids=[
        *["31-bits-low", "31-bits-high", "folded", "a-bit-twice", "small-words", "each-twice", "repeated-block"],
        *["moved-block", "block-plus-a-bit", "beginning-repeated"],
    ],
)
def test_what_is_not_uniform_is_noticed(planted: Callable[[Words], Words]):
    assert not looks_uniform(block(0), planted(block(1)).astype(np.uint32))


# ---- products


def uniform(generator: np.random.Generator, n: int, width: int) -> Words:
    """Uniform words, and some rows of those where a carry is likely."""
    words = generator.integers(0, P, (n, width), dtype=np.uint32)
    some = generator.random((n, width)) < 0.2
    words[some] = generator.choice(EDGES, int(some.sum()))
    return words


@pytest.mark.parametrize("seed", range(12))
def test_products_of_any_shape_are_those_of_whole_numbers(seed, monkeypatch):
    generator = np.random.default_rng(seed)
    monkeypatch.setattr(products, "_CELLS", int(generator.choice([1, 7, 64, 2**20])))
    n, width_i, width_j = (int(generator.integers(1, most)) for most in (60, 20, 20))
    left, right = uniform(generator, n, width_i), uniform(generator, n, width_j)
    found = products.of_words(left, right)
    assert found.tolist() == product(left.tolist(), right.tolist())
    assert found.dtype == np.uint32
    assert products.of_words(left[:, ::2], right[:, ::-1]).tolist() == product(
        left[:, ::2].tolist(), right[:, ::-1].tolist()
    )


@pytest.mark.parametrize("n", [0, 1, products.MAX_ROWS])
def test_products_are_exact_at_the_largest_words_and_most_rows(n):
    """Rows all alike, so that the sums are known: n times one product. What doubles hold is asked of the bound itself besides."""
    assert products.MAX_ROWS * (2**16 - 1) ** 2 < products.MAX_ROWS * (P - 1) < 2**53
    alike = np.full((n, 2), P - 1, np.uint32)
    other = np.full((n, 3), 2**32 - 2**16 - 1, np.uint32)  # below p, the upper limb one less than the largest
    ones = np.full((n, 1), 2**16 - 1, np.uint32)
    assert (products.of_words(alike, other) == n * (P - 1) * (2**32 - 2**16 - 1) % P).all()
    assert (products.of_words(alike, ones) == n * (P - 1) * (2**16 - 1) % P).all()
    assert (products.of_words(ones, other) == n * (2**16 - 1) * (2**32 - 2**16 - 1) % P).all()
    assert products.of_words_and_codes(alike, np.zeros((n, 1), np.uint8), [2]).tolist() == [[n * (P - 1) % P, 0]] * 2


def test_a_block_of_more_rows_is_refused():
    many, codes = np.zeros((products.MAX_ROWS + 1, 1), np.uint32), np.zeros((products.MAX_ROWS + 1, 1), np.uint8)
    for call in (lambda: products.of_words(many, many), lambda: products.of_words_and_codes(many, codes, [1])):
        with pytest.raises(ValueError, match=f"blocks of {products.MAX_ROWS + 1} and .* rows"):
            call()
    with pytest.raises(ValueError, match="blocks of 3 and 4 rows"):
        products.of_words(many[:3], many[:4])
    with pytest.raises(ValueError, match="blocks of 3 and 4 rows"):
        products.of_words_and_codes(many[:3], codes[:4], [1])


def test_codes_that_do_not_fit_are_refused():
    words = np.zeros((4, 5), np.uint32)
    for codes, sizes, says in [
        (np.array([[0, 2]] * 4, np.uint8), [3, 2], "unit 1: 4 codes are beyond its 2 categories"),
        (np.array([[0, 1], [3, 1], [0, 0], [0, 0]], np.uint16), [3, 2], "unit 0: 1 codes are beyond its 3 categories"),
        (np.zeros((4, 1), np.uint8), [3, 2], r"codes of shape \(4, 1\) for 2 units"),
        (np.zeros(4, np.uint8), [5], r"codes of shape \(4,\) for 1 units"),
    ]:
        with pytest.raises(ValueError, match=says):
            products.of_words_and_codes(words, codes, sizes)
        with pytest.raises(ValueError, match=says):
            products.add_one_hot(words, codes, sizes)
    with pytest.raises(ValueError, match=r"words of shape \(4, 5\), expected \(4, 6\)"):
        products.add_one_hot(words, np.zeros((4, 2), np.uint8), [3, 3])
    assert not words.any()


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [([2], np.uint8), ([64], np.uint8), ([2, 64, 3], np.uint8), ([1, 5], np.uint16), ([300, 2], np.uint16)],
)
def test_codes_enter_as_their_one_hot_matrix(sizes, dtype):
    generator = np.random.default_rng(sum(sizes))
    codes = np.stack([generator.integers(0, size, 41) for size in sizes], axis=1).astype(dtype)
    plain, left = one_hot(codes.tolist(), sizes), uniform(generator, 41, 6)
    assert products.of_words_and_codes(left, codes, sizes).tolist() == product(left.tolist(), plain)
    mask = uniform(generator, 41, sum(sizes))
    mask[:5] = P - 1
    masked = mask.copy()
    products.add_one_hot(masked, codes, sizes)
    assert masked.tolist() == [
        [(a + b) % P for a, b in zip(*rows, strict=True)] for rows in zip(mask.tolist(), plain, strict=True)
    ]


# ---- two shares of a table


def shares(n: int, codes: list[NDArray[np.uint16]], sizes: list[list[int]]) -> tuple[Words, Words]:
    """C_i and C_j from masks that are made block by block, as the two parties make them; and Z_i, Z_j."""
    widths = [sum(side) for side in sizes]
    seeds = [bytes([side]) * 32 for side in (1, 2)]
    table = widths[0], widths[1]
    z_i = streams.words(streams.key_of(seeds[0], "z"), table)
    z, less, more = (np.zeros(table, np.uint32) for _ in range(3))
    for number, rows in enumerate(streams.row_blocks(n, streams.block_rows(sum(widths)))):
        height = rows.stop - rows.start
        r_i, r_j = (
            streams.words(streams.key_of(seed, "mask", number), (height, width))
            for seed, width in zip(seeds, widths, strict=True)
        )
        z = field.add(z, products.of_words(r_i, r_j))
        u_i, u_j = r_i.copy(), r_j.copy()
        products.add_one_hot(u_i, codes[0][rows], sizes[0])
        products.add_one_hot(u_j, codes[1][rows], sizes[1])
        less = field.add(less, products.of_words(r_i, u_j))
        more = field.add(more, products.of_words_and_codes(u_i, codes[1][rows], sizes[1]))
    return field.subtract(z_i, less), field.add(field.subtract(z, z_i), more)


@pytest.mark.parametrize(
    ("n", "sizes", "compound"),
    [
        (1, [[2], [2]], False),
        (700, [[2, 3], [64, 5]], False),
        (9000, [[64], [2, 7]], False),
        (3000, [[17, 2], [3, 4]], True),
        (20_000, [[8, 2, 31], [20]], True),
    ],
)
def test_two_shares_are_the_table_of_the_pair(n, sizes, compound):
    """With a compound, the two first columns of a side that has two are one unit, numbered through."""
    generator = np.random.default_rng(n)
    codes = [np.stack([generator.integers(0, k, n) for k in side], axis=1) for side in sizes]
    if compound:
        codes[0] = np.column_stack([codes[0][:, 0] * sizes[0][1] + codes[0][:, 1], codes[0][:, 2:]])
        sizes = [[sizes[0][0] * sizes[0][1], *sizes[0][2:]], sizes[1]]
    small = [side.astype(np.uint16) for side in codes]
    c_i, c_j = shares(n, small, sizes)
    opened = field.signed(field.add(c_i, c_j))
    offset = 0
    for unit, size in enumerate(sizes[0]):
        begins = 0
        for other, k in enumerate(sizes[1]):
            cells = codes[0][:, unit].astype(np.int64) * k + codes[1][:, other]
            counted = np.bincount(cells, minlength=size * k).reshape(size, k)
            assert np.array_equal(opened[offset : offset + size, begins : begins + k], counted)
            begins += k
        offset += size


def test_a_share_moves_with_noise_of_either_sign():
    codes = [np.zeros((600, 1), np.uint16)] * 2
    c_i, c_j = shares(600, codes, [[2], [2]])
    noise = np.array([[-700, 3], [-1, 0]])
    opened = field.signed(field.add(field.add(c_i, field.from_numbers(noise)), c_j))
    assert opened.tolist() == [[-100, 3], [-1, 0]]


def test_memory_does_not_grow_with_the_number_of_people():
    """Peak of what numpy has allocated, without the codes: three times the people, at most a twentieth more."""
    peaks = []
    for n in (10_000, 30_000):
        codes = [np.zeros((n, 2), np.uint16)] * 2
        shares(1, codes, [[47, 47], [47, 47]])
        tracemalloc.start()
        shares(n, codes, [[47, 47], [47, 47]])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.05 * peaks[0] < 60e6, peaks

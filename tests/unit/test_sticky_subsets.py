"""Sticky subset selection: what a set depends on, that it is a set, and what equal random numbers do.

Known answers stand in tests/vectors, the distribution in tests/statistical.
"""

import itertools
from collections import Counter

import numpy as np
import pytest

from verticil.party.dataset.perturb import record_tags
from verticil.party.dataset.subsets import members, select
from verticil.shared.mechanisms.subset import Subset, subset_selection
from verticil.shared.numerics.model.artifact import pack, unpack

SECRET = bytes(range(32))
IDS = [f"{i:06d}" for i in range(9_000)]
CHANNELS = {
    "8": subset_selection(8, epsilon=1.0),
    "sixteen": subset_selection(16, epsilon=0.5),
    "sets of one": Subset(n_states=9, size=1, weight=2**63),
    "all but one": Subset(n_states=9, size=8, weight=2**64 - 2**59),
    "256": subset_selection(256, epsilon=1.0),
    "300, two bytes": subset_selection(300, epsilon=1.0),
}


@pytest.fixture(scope="module")
def tags():
    return record_tags(SECRET, IDS)


def codes_of(n_states):
    return np.random.default_rng(0).integers(0, n_states, len(IDS)).astype(np.uint8 if n_states <= 256 else np.uint16)


@pytest.mark.parametrize("name", CHANNELS)
def test_any_row_order_gives_every_record_its_set(tags, name):
    subset = CHANNELS[name]
    codes = codes_of(subset.n_states)
    released = select(SECRET, tags, codes, subset).reshape(-1, subset.size)
    order = np.random.default_rng(1).permutation(len(IDS))
    shuffled = select(SECRET, tags[order], codes[order], subset).reshape(-1, subset.size)
    assert (shuffled == released[order]).all()
    part = order[:77]
    assert (select(SECRET, tags[part], codes[part], subset).reshape(-1, subset.size) == released[part]).all()
    back = shuffled[np.argsort(order)].reshape(-1)
    assert pack(back, subset.n_states) == pack(released.reshape(-1), subset.n_states)


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("n", [0, 1, 8192, 8193])
def test_sets_are_ascending_and_whole(tags, name, n):
    subset = CHANNELS[name]
    codes = codes_of(subset.n_states)[:n]
    released = select(SECRET, tags[:n], codes, subset)
    assert released.dtype == codes.dtype
    assert released.shape == (n * subset.size,)
    artifact = pack(released, subset.n_states)
    assert (unpack(artifact, subset.n_states, n, codes_per_record=subset.size) == released).all()


def test_secret_true_code_and_person_enter(tags):
    subset = CHANNELS["sixteen"]
    zeros = np.zeros(len(IDS), dtype=np.uint8)
    base = select(SECRET, tags, zeros, subset).reshape(-1, subset.size)
    others = [
        select(bytes(32), tags, zeros, subset),
        select(SECRET, tags, zeros + 1, subset),
        select(SECRET, record_tags(bytes(32), IDS), zeros, subset),
        select(SECRET, np.roll(tags, 1, axis=0), zeros, subset),
    ]
    # Two independent sets of 6 out of 16 are equal with probability about 1 / 8,008: of 9,000 records about one, 30 never.
    assert all(int((other.reshape(-1, subset.size) == base).all(axis=1).sum()) < 30 for other in others)


def test_arrays_need_not_be_contiguous_or_narrow(tags):
    subset = CHANNELS["8"]
    codes = codes_of(8)
    expected = select(SECRET, np.ascontiguousarray(tags[::3]), codes[::3].copy(), subset)
    assert (select(SECRET, tags[::3], codes[::3].astype(np.uint16), subset) == expected).all()


def numbers_in_rounds(*rounds):
    """The draws that `members` asks for, given; it also says which records asked in which round."""
    asked = []

    def draw(number, records):
        asked.append((number, records.tolist()))
        return np.array(rounds[number], dtype=np.uint64)[records]

    return draw, asked


LAST = 2**64 - 1


@pytest.mark.parametrize(
    ("code", "inside", "first", "expected", "n_rounds"),
    [
        (0, False, [9, 5, 3, 4], [2, 3], 1),
        (0, True, [9, 5, 3, 4], [0, 2], 1),
        (2, True, [9, 5, 3, 4], [2, 3], 1),
        (2, False, [9, 5, 3, 4], [1, 3], 1),
        (0, False, [9, 3, 3, 4], [1, 2], 1),  # equal, but both are chosen
        (0, False, [9, 2, 4, 4], [1, 2], 2),  # equal at the border: the next round decides
        (0, True, [9, 2, 2, 4], [0, 1], 2),
        (0, True, [9, 0, 5, 4], [0, 1], 1),  # as small as can be: still behind the true category
        (0, True, [9, 0, 0, 4], [0, 1], 2),
        (0, False, [9, LAST, LAST, 4], [1, 2], 2),  # as large as can be: still before the true category
        (0, False, [9, 7, LAST, 4], [1, 3], 1),
        (0, False, [LAST, 7, LAST, 4], [1, 3], 1),
    ],
)
def test_equal_numbers_are_drawn_again(code, inside, first, expected, n_rounds):
    """Sets of two of four categories; the second round's numbers are 1, 2, 3, 4: worked out by hand."""
    draw, asked = numbers_in_rounds([[50, 60, 70, 80], first], [[50, 60, 70, 80], [1, 2, 3, 4]])
    codes, kept = np.array([3, code], dtype=np.uint8), np.array([True, inside])
    assert members(draw, codes, kept, 2).tolist() == [[0, 3], expected]
    assert asked == [(0, [0, 1]), (1, [1])][:n_rounds]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_set_belongs_to_equally_many_draws(inside, size):
    """Brute force over numbers 0 .. 3 for each of four categories, ties and all: the exact form of "uniform"."""
    every = np.array(list(itertools.product(range(4), repeat=4)), dtype=np.uint64)
    # A second round without ties, uniform over all orders, decides those with a tie: 24 copies of each draw, one for each order.
    orders = np.array(list(itertools.permutations(range(1, 5))), dtype=np.uint64)
    draw, _ = numbers_in_rounds(np.repeat(every, 24, axis=0), np.tile(orders, (256, 1)))
    n = 24 * len(every)
    sets = members(draw, np.ones(n, dtype=np.uint8), np.full(n, inside), size)
    counted = Counter(map(tuple, sets.tolist()))
    possible = [s for s in itertools.combinations(range(4), size) if (1 in s) == inside]
    assert counted == dict.fromkeys(possible, n // len(possible))


@pytest.mark.parametrize(
    ("key", "n_tags", "codes"),
    [
        (SECRET[1:], 3, np.zeros(3, dtype=np.uint8)),
        (SECRET, 2, np.zeros(3, dtype=np.uint8)),
        (SECRET, 3, np.zeros(3, dtype=np.int64)),
        (SECRET, 3, np.array([0, 8, 0], dtype=np.uint8)),
    ],
)
def test_misuse(tags, key, n_tags, codes):
    with pytest.raises(ValueError, match=r"expected|not less"):
        select(key, tags[:n_tags], codes, CHANNELS["8"])

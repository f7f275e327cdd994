"""Dealing out categories: of the records with one configuration of the parents, how many get each, and which.

``systematic``: category k gets floor(m F_k + u) - floor(m F_{k-1} + u) of m records, F the cumulative probabilities and u one
uniform number for the configuration. Each count has the expectation m p_k and differs from it by less than 1.

``without-replacement`` is that of PrivBayes (Bao et al., JPC 11(3) 2021, Tables 5 and 6). The paper scales each table of the
network to a histogram of n records, draws a record in proportion to what is left, and takes one from every cell that it used. The
order of such draws does not matter: for each configuration of the parents the child's categories are the cards of a deck that is
dealt out. What the paper leaves open: expected counts become whole numbers together, systematically, so that a table sums to n
and each cell differs from its expectation by less than 1; a deck that is used up is begun again (parents that come from two
families meet as often as it happens, not as often as expected); a configuration without a deck takes its categories by systematic
rounding of its row.

Which records get which category is a uniform shuffle: each record has a 64-bit key, and the ranks of the keys within the
configuration decide. Whole numbers and comparisons alone: the same with numba (`dealing_kernels`) or without, on any machine.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats, Ints

Groups = NDArray[np.uint32]

BLOCK: Final = 65_536
"""Records for which random numbers are held at a time."""


def has_numba() -> bool:
    """Return whether the compiled twins can be had."""
    return find_spec("numba") is not None


def cumulative_rows(probability: Floats) -> Floats:
    """Cumulative probabilities, (J, K), that end with exactly 1 at the last possible category."""
    sums = np.cumsum(probability, axis=1)
    return np.asarray(sums / sums[:, -1:], dtype=np.float64)


def dealt(
    group: Groups, cumulative: Floats, shares: Floats | None, generator: np.random.Generator, *, use_compiled: bool
) -> NDArray[np.uint16]:
    """Categories of records, systematically, or without replacement where the groups' shares are given.

    Args:
        group: (n,) group of each record.
        cumulative: (J, K) of `cumulative_rows`.
        shares: (J,) probability of each group; None: systematic rounding.
        generator: advanced.
        use_compiled: whether numba does it.

    Returns:
        (n,).
    """
    sizes = group_sizes(group, len(cumulative), use_compiled=use_compiled)
    if shares is None:
        offsets = generator.random(len(cumulative))
        start = generator.integers(0, 2**64, dtype=np.uint64)
        boundaries = category_boundaries(cumulative, sizes, offsets)
    else:
        boundaries = deck_boundaries(cumulative, shares, sizes, generator, use_compiled=use_compiled)
        start = generator.integers(0, 2**64, dtype=np.uint64)
    return assign(group, start, boundaries, use_compiled=use_compiled)


def independent(group: Groups, cumulative: Floats, generator: np.random.Generator) -> NDArray[np.uint16]:
    """Categories of records, each drawn on its own; arguments as `dealt`."""
    result = np.empty(len(group), dtype=np.uint16)
    for start in range(0, len(group), BLOCK):
        piece = group[start : start + BLOCK]
        uniform = generator.random(len(piece))
        codes = np.zeros(len(piece), dtype=np.uint16)
        for k in range(cumulative.shape[1] - 1):
            codes += uniform >= cumulative[:, k][piece]
        result[start : start + BLOCK] = codes
    return result


def record_keys(start: np.uint64, n: int) -> NDArray[np.uint64]:
    """Return the keys of n records: SplitMix64 (Steele, Lea, Flood 2014) of a counter that begins at `start`; all
    distinct.

    >>> record_keys(np.uint64(1234567 + 0x9E3779B97F4A7C15), 2).tolist()
    [6457827717110365317, 3203168211198807973]
    """
    z = start + np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def group_sizes(group: Groups, n_groups: int, *, use_compiled: bool) -> Ints:
    """Number of records in each group, (J,)."""
    if use_compiled:
        from verticil.shared.synthesis import dealing_kernels as ranking

        return ranking.group_sizes(group, n_groups)
    return np.bincount(group, minlength=n_groups).astype(np.int64, copy=False)


def category_boundaries(cumulative: Floats, sizes: Ints, offsets: Floats) -> Ints:
    """Systematic rounding: the ranks at which each group's categories end.

    Args:
        cumulative: (J, K) cumulative probabilities; each row ends with 1.
        sizes: (J,) records in each group, m.
        offsets: (J,) uniform numbers in [0, 1), u.

    Returns:
        (J, K), int64: floor(m F_k + u), the last m.

    >>> category_boundaries(np.array([[0.25, 0.5, 1.0]]), np.array([10]), np.array([0.4])).tolist()
    [[2, 5, 10]]
    """
    boundaries = np.floor(sizes[:, None] * cumulative + offsets[:, None]).astype(np.int64)
    # m + u can round up to m + 1; and where F is 1 nothing is left for what follows.
    return np.where(cumulative >= 1.0, sizes[:, None], np.minimum(boundaries, sizes[:, None]))


def deck_boundaries(
    cumulative: Floats, shares: Floats, sizes: Ints, generator: np.random.Generator, *, use_compiled: bool
) -> Ints:
    """Dealing without replacement: the ranks at which each group's categories end.

    Args:
        cumulative: (J, K) cumulative probabilities; each row ends with 1.
        shares: (J,) probability of each group; sums to 1.
        sizes: (J,) records that are in each group.
        generator: advanced.
        use_compiled: whether numba does it.

    Returns:
        (J, K), int64; the last of each row is its size.

    >>> halves, generator = np.array([[0.5, 1.0]]), np.random.default_rng(1)
    >>> deck_boundaries(halves, np.ones(1), np.array([10]), generator, use_compiled=False).tolist()
    [[5, 10]]
    """
    n_groups, n_states = cumulative.shape
    means = np.cumsum(np.diff(cumulative, axis=1, prepend=0.0) * shares[:, None])[None, :]
    ends = category_boundaries(means / means[:, -1:], np.array([sizes.sum()]), generator.random((1,)))
    deck = np.diff(ends.ravel(), prepend=0).reshape(n_groups, n_states)
    cards = deck.sum(axis=1)
    rounds, remainder = np.divmod(sizes, np.maximum(cards, 1))
    remainder[cards == 0] = 0
    # What is left of the last round takes some cards of the deck: those of the lowest keys.
    group = np.repeat(np.arange(n_groups, dtype=np.uint32), cards)
    start = generator.integers(0, 2**64, dtype=np.uint64)
    in_remainder = assign(group, start, np.column_stack([remainder, cards]), use_compiled=use_compiled) == 0
    cell = np.repeat(np.arange(deck.size), deck.ravel())
    counts = rounds[:, None] * deck + np.bincount(cell[in_remainder], minlength=deck.size).reshape(deck.shape)
    boundaries = category_boundaries(cumulative, sizes, generator.random((n_groups,)))
    return np.where(cards[:, None] > 0, np.cumsum(counts, axis=1), boundaries)


def assign(group: Groups, start: np.uint64, boundaries: Ints, *, use_compiled: bool) -> NDArray[np.uint16]:
    """Give every record the category that its key's rank within its group falls into.

    Args:
        group: (n,) group of each record, 0 .. J-1.
        start: what the keys are made from (`record_keys`).
        boundaries: (J, K) ranks at which the categories end, ascending; the last is the group's size.
        use_compiled: whether numba does it.

    Returns:
        (n,) categories; the record with rank r has category #{k : boundaries[k] <= r}.
    """
    if use_compiled:
        from verticil.shared.synthesis import dealing_kernels as ranking

        return ranking.assign_by_rank(group, np.ascontiguousarray(boundaries[:, -1]), start, boundaries)
    return assign_by_rank_plain(group, record_keys(start, len(group)), boundaries)


def assign_by_rank_plain(group: Groups, keys: NDArray[np.uint64], boundaries: Ints) -> NDArray[np.uint16]:
    """Assign as `dealing_kernels.assign_by_rank` does, as its reference.

    Args:
        group, boundaries: see `assign`.
        keys: (n,) random keys, distinct.
    """
    by_key = np.argsort(keys)
    # Stable sorting of 16-bit numbers is a radix sort.
    group_by_key = group[by_key].astype(np.uint16 if len(boundaries) <= 65_536 else np.uint32, copy=False)
    order = by_key[np.argsort(group_by_key, kind="stable")]
    counts = np.diff(boundaries, axis=1, prepend=0)
    n_states = boundaries.shape[1]
    result = np.empty(len(group), dtype=np.uint16)
    result[order] = np.repeat(np.tile(np.arange(n_states, dtype=np.uint16), len(boundaries)), counts.ravel())
    return result

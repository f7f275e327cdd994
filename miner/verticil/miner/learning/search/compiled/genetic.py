"""The genetic algorithm of the paper, compiled; `genetic_operators` of the tests is the plain reference, with the same
random numbers.

Callers check shapes and values; a kernel checks nothing. Fitness is that of `restricted`, with no required parents.

The random numbers of all compiled searches are here: SplitMix64 (Steele, Lea, Flood 2014), as `draws.Draws` has it in plain
Python. The state is one 64-bit word in an array, so that a search can keep it and go on from it. The same numbers on every
machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.kernels import compiled


@compiled
def member(family: NDArray[np.int32], attribute: int) -> bool:
    """Whether `attribute` is in `family`."""
    for c in range(family.shape[0]):  # noqa: SIM110  # numba compiles the loop, not a generator
        if family[c] == attribute:
            return True
    return False


@compiled
def _preceding_outsider(
    stream: NDArray[np.uint64], order: NDArray[np.int32], place: int, family: NDArray[np.int32]
) -> int:
    """A random attribute that stands before `place` and is not in `family`; -1 when there is none (then nothing is drawn)."""
    size = 0
    for p in range(place):
        if not member(family, order[p]):
            size += 1
    if size == 0:
        return -1
    left = below(stream, size)
    for p in range(place):
        if not member(family, order[p]):
            if left == 0:
                return int(order[p])
            left -= 1
    return -1


@compiled
def first_generation(
    stream: NDArray[np.uint64], orders: NDArray[np.int32], families: NDArray[np.int32], pool: NDArray[np.int32]
) -> None:
    """Procedure Initialization for the whole population.

    Args:
        stream: (1,) state of the generator; advanced.
        orders: (P, d), families: (P, d, k); written.
        pool: (d,) scratch.
    """
    population, d, k = families.shape
    for i in range(population):
        order = orders[i]
        for f in range(d):
            order[f] = f
        for p in range(d - 1, 0, -1):
            q = below(stream, p + 1)
            order[p], order[q] = order[q], order[p]
        for place in range(d):
            family = families[i, order[place]]
            # Attributes before `place`, then those behind it: the draw starts with the first group where that suffices,
            # else it takes all of it and draws the rest from the second.
            for p in range(place):
                pool[p] = order[p]
            for p in range(place + 1, d):
                pool[p - 1] = order[p]
            low, high = (0, place) if place >= k else (place, d - 1)
            for c in range(low):
                family[c] = pool[c]
            for c in range(low, k):
                q = c + below(stream, high - c)
                pool[c], pool[q] = pool[q], pool[c]
                family[c] = pool[c]


@compiled
def next_generation(  # noqa: PLR0912, PLR0917  # one procedure of the paper; numba kernels take positions
    stream: NDArray[np.uint64],
    rate: float,
    selected: NDArray[np.int64],
    orders: NDArray[np.int32],
    families: NDArray[np.int32],
    new_orders: NDArray[np.int32],
    new_families: NDArray[np.int32],
) -> None:
    """Procedure Next Generation.

    Args:
        stream: (1,) state of the generator; advanced.
        rate: the mutation rate r.
        selected: (S,) the fittest of the old generation, best first.
        orders, families: (P, d) and (P, d, k), the old generation.
        new_orders, new_families: the same shapes; written.
    """
    population, d, k = families.shape
    elite = selected.shape[0]
    places = np.empty(d, dtype=np.int32)
    snapshot = np.empty(d, dtype=np.int32)
    # Element by element: assignments of whole slices take seconds to compile.
    for i in range(population):
        order = new_orders[i]
        one = other = selected[i] if i < elite else selected[below(stream, elite)]
        cut = d
        if i >= elite and unit(stream) < rate:
            other = selected[below(stream, elite)]
            cut = below(stream, d + 1)
        for f in range(d):
            order[f] = orders[one, f]
            source = one if f < cut else other
            for c in range(k):
                new_families[i, f, c] = families[source, f, c]
        if i < elite:
            continue
        # Order Flip
        for p in range(d):
            snapshot[p] = order[p]
            places[order[p]] = p
        for p in range(d):
            if unit(stream) < rate:
                f = snapshot[p]
                g = below(stream, d)
                places[f], places[g] = places[g], places[f]
                order[places[f]] = f
                order[places[g]] = g
        # Swap: repair, then mutation
        for f in range(d):
            family = new_families[i, f]
            place = places[f]
            for c in range(k):
                if places[family[c]] > place:
                    parent = _preceding_outsider(stream, order, place, family)
                    if parent >= 0:
                        family[c] = parent
            for c in range(k):
                if unit(stream) < rate:
                    parent = _preceding_outsider(stream, order, place, family)
                    if parent >= 0:
                        family[c] = parent


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32), np.uint64(11)
_UNIT = 2.0**-53


@compiled
def word(stream: NDArray[np.uint64]) -> np.uint64:
    """The next 64 bits; `stream`, (1,), is advanced."""
    stream[0] += _GOLDEN
    z = stream[0]
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    mixed: np.uint64 = z ^ (z >> _S31)
    return mixed


@compiled
def below(stream: NDArray[np.uint64], bound: int) -> int:
    """A whole number in 0 .. bound-1."""
    return np.int64(((word(stream) >> _S32) * np.uint64(bound)) >> _S32)  # type: ignore[return-value]  # int64 is numba's int


@compiled
def unit(stream: NDArray[np.uint64]) -> float:
    """A number in [0, 1)."""
    return np.float64(word(stream) >> _S11) * _UNIT

"""The compiled loops of counting and of the genetic algorithm. Nothing else in the miner is compiled.

Each kernel stands beside a plain reference that the tests compare it with: `shared.estimation.contingency` for counting,
`search.operators` for the genetic algorithm. Callers check shapes, codes and dtypes; a kernel checks nothing.

Compiled once per machine and kept on disk (`cache=True`, folder NUMBA_CACHE_DIR where it is set); no `parallel` (it costs
seconds to compile) and no `fastmath` (the same numbers on every machine).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["count_groups", "evaluate", "first_generation", "next_generation"]

P = ParamSpec("P")
R = TypeVar("R")

_STEP = 4096  # records whose cells are numbered before they are counted
_CACHED = 4096  # cells of which four tables fit into a first-level cache of 32 KiB
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32), np.uint64(11)
_S16, _S48, _LOW = np.uint64(16), np.uint64(48), np.uint64(0xFFFF)
_UNIT = 2.0**-53


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    return cast("Callable[P, R]", numba.njit(cache=True, nogil=True)(function))


@_compiled
def count_groups(  # noqa: PLR0912, PLR0917  # one loop and its unrolled middle; numba kernels take positions
    block: NDArray[np.uint8] | NDArray[np.uint16],
    n_states: NDArray[np.int64],
    members: NDArray[np.int64],
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    tables: NDArray[np.int64],
    scratch: NDArray[np.uint16],
) -> None:
    """Add the records of `block` to the tables of groups of columns.

    Records take turns between two or four tables, so that equal neighbours do not wait for each other's increment. These are
    of 16 bits, so that they stay near the processor; a block is so short that no count outgrows them.

    Args:
        block: (d, m) codes, m at most 2 * 65,532.
        n_states: (d,) number of categories.
        members: columns of all groups, one group after the other.
        starts: (G + 1,) where each group starts in `members`.
        offsets: (G + 1,) where the table of each group starts in `tables`.
        tables: (total cells,) each table in C order, its first column slowest; added to.
        scratch: (4, 65,536), zero; left zero.
    """
    m = block.shape[1]
    index = np.empty(_STEP, dtype=np.uint16)
    packed = index.view(np.uint64)
    for g in range(starts.shape[0] - 1):
        group = members[starts[g] : starts[g + 1]]
        table = tables[offsets[g] : offsets[g + 1]]
        cells = table.shape[0]
        if cells > _LOW + 1:
            for i in range(m):
                cell = np.int64(0)
                for c in group:
                    cell = cell * n_states[c] + np.int64(block[c, i])
                table[cell] += 1
            continue
        # Four tables where they stay in the first-level cache, else twice the same two.
        apart = 2 if cells <= _CACHED else 0
        one, two, three, four = (
            scratch[0, :cells],
            scratch[1, :cells],
            scratch[apart, :cells],
            scratch[apart + 1, :cells],
        )
        for start in range(0, m, _STEP):
            length = min(_STEP, m - start)
            codes = block[group[0], start : start + length]
            for i in range(length):
                index[i] = codes[i]
            for c in group[1:]:
                codes = block[c, start : start + length]
                width = np.uint16(n_states[c])
                for i in range(length):
                    index[i] = index[i] * width + codes[i]
            # Four indices a load: what bounds this loop is loads and stores, not arithmetic.
            quarter = length // 4
            for i in range(quarter):
                word = packed[i]
                one[word & _LOW] += np.uint16(1)
                two[(word >> _S16) & _LOW] += np.uint16(1)
                three[(word >> _S32) & _LOW] += np.uint16(1)
                four[word >> _S48] += np.uint16(1)
            for i in range(4 * quarter, length):
                one[index[i]] += np.uint16(1)
        for i in range(cells):
            table[i] += np.int64(one[i]) + np.int64(two[i])
            one[i] = two[i] = 0
        if apart:
            for i in range(cells):
                table[i] += np.int64(three[i]) + np.int64(four[i])
                three[i] = four[i] = 0


@_compiled
def _draw(stream: NDArray[np.uint64]) -> np.uint64:
    stream[0] += _GOLDEN
    z = stream[0]
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    word: np.uint64 = z ^ (z >> _S31)
    return word


@_compiled
def _below(stream: NDArray[np.uint64], bound: int) -> int:
    return np.int64(((_draw(stream) >> _S32) * np.uint64(bound)) >> _S32)  # type: ignore[return-value]  # int64 is numba's int


@_compiled
def _unit(stream: NDArray[np.uint64]) -> float:
    return np.float64(_draw(stream) >> _S11) * _UNIT


@_compiled
def _member(family: NDArray[np.int32], attribute: int) -> bool:
    for c in range(family.shape[0]):  # noqa: SIM110  # numba compiles the loop, not a generator
        if family[c] == attribute:
            return True
    return False


@_compiled
def _preceding_outsider(
    stream: NDArray[np.uint64], order: NDArray[np.int32], place: int, family: NDArray[np.int32]
) -> int:
    """A random attribute that stands before `place` and is not in `family`; -1 when there is none (then nothing is drawn)."""
    size = 0
    for p in range(place):
        if not _member(family, order[p]):
            size += 1
    if size == 0:
        return -1
    left = _below(stream, size)
    for p in range(place):
        if not _member(family, order[p]):
            if left == 0:
                return int(order[p])
            left -= 1
    return -1


@_compiled
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
            q = _below(stream, p + 1)
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
                q = c + _below(stream, high - c)
                pool[c], pool[q] = pool[q], pool[c]
                family[c] = pool[c]


@_compiled
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
        one = other = selected[i] if i < elite else selected[_below(stream, elite)]
        cut = d
        if i >= elite and _unit(stream) < rate:
            other = selected[_below(stream, elite)]
            cut = _below(stream, d + 1)
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
            if _unit(stream) < rate:
                f = snapshot[p]
                g = _below(stream, d)
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
                if _unit(stream) < rate:
                    parent = _preceding_outsider(stream, order, place, family)
                    if parent >= 0:
                        family[c] = parent


@_compiled
def evaluate(  # noqa: PLR0917  # numba kernels take positions
    orders: NDArray[np.int32],
    families: NDArray[np.int32],
    weights: NDArray[np.float64],
    n_states: NDArray[np.int64],
    max_family_cells: float,
    fitness: NDArray[np.float64],
) -> None:
    """Fitness of every individual: the sum of the weights of the parents that its network keeps.

    Args:
        orders, families: (P, d) and (P, d, k).
        weights: (d, d) weights[parent, child]; 0 where the edge is never used.
        n_states: (d,) number of categories.
        max_family_cells: a family with more cells loses its lightest parents until it fits.
        fitness: (P,); written.
    """
    population, d, k = families.shape
    places = np.empty(d, dtype=np.int32)
    kept = np.empty(k, dtype=np.int32)
    for i in range(population):
        for p in range(d):
            places[orders[i, p]] = p
        total = 0.0
        for f in range(d):
            size = 0
            cells = float(n_states[f])
            for c in range(k):
                g = families[i, f, c]
                if places[g] < places[f] and weights[g, f] > 0.0:
                    kept[size] = g
                    size += 1
                    cells *= n_states[g]
            while cells > max_family_cells and size > 0:
                worst = 0
                for c in range(1, size):
                    light, lightest = weights[kept[c], f], weights[kept[worst], f]
                    if light < lightest or (light == lightest and kept[c] > kept[worst]):
                        worst = c
                size -= 1
                kept[worst] = kept[size]
                cells = float(n_states[f])
                for c in range(size):
                    cells *= n_states[kept[c]]
            for c in range(size):
                total += weights[kept[c], f]
        fitness[i] = total

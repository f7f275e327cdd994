"""The genetic algorithm of the paper, compiled, with and without constraints; `genetic_operators` and `restricted_operators` of
the tests are the plain references, with the same random numbers.

Callers check shapes and values; a kernel checks nothing. `n_required` is (d,); the required parents of an attribute stand in the
first slots of its family and never change. `allowed` and `before` are (d, d), bool, ``[parent, child]`` and ``[a, b]``; `allowed`
leaves the required parents out. Both are None where nothing is constrained: numba compiles that apart, without the look-ups, as
the paper's own algorithm.

The random numbers of all compiled searches are here: SplitMix64 (Steele, Lea, Flood 2014), as `draws.Draws` has it in plain
Python. The state is one 64-bit word in an array, so that a search can keep it and go on from it. The same numbers on every
machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.compiled import compiled


@compiled
def member(family: NDArray[np.int32], attribute: int) -> bool:
    """Return whether `attribute` is in `family`."""
    for c in range(family.shape[0]):  # noqa: SIM110  # numba compiles the loop, not a generator
        if family[c] == attribute:
            return True
    return False


@compiled
def _preceding_outsider(  # noqa: PLR0917  # numba kernels take positions
    stream: NDArray[np.uint64],
    order: NDArray[np.int32],
    place: int,
    family: NDArray[np.int32],
    edge_allowed: NDArray[np.bool_] | None,
    child: int,
) -> int:
    """Return a random allowed attribute before `place` that is not in `family`; -1 when there is none (then nothing is drawn).

    `family` may leave the required parents out: `edge_allowed` does, too.
    """
    size = 0
    for p in range(place):
        if (edge_allowed is None or edge_allowed[order[p], child]) and not member(family, order[p]):
            size += 1
    if size == 0:
        return -1
    countdown = below(stream, size)
    for p in range(place):
        if (edge_allowed is None or edge_allowed[order[p], child]) and not member(family, order[p]):
            if countdown == 0:
                return int(order[p])
            countdown -= 1
    return -1


@compiled
def _breaks(order: NDArray[np.int32], before: NDArray[np.bool_], one: int, two: int) -> bool:
    """Return whether exchanging the attributes at the two places puts somebody before a predecessor."""
    low, high = (one, two) if one < two else (two, one)
    for p in range(low, high):  # noqa: SIM110  # numba compiles the loop, not a generator
        if before[order[low], order[p + 1]] or before[order[p], order[high]]:
            return True
    return False


@compiled
def first_generation(  # noqa: PLR0912, PLR0917  # one procedure of the paper; numba kernels take positions
    stream: NDArray[np.uint64],
    orders: NDArray[np.int32],
    families: NDArray[np.int32],
    n_required: NDArray[np.int64],
    edge_allowed: NDArray[np.bool_] | None,
    before: NDArray[np.bool_] | None,
) -> None:
    """Procedure Initialization for the whole population.

    Args:
        stream: (1,) state of the generator; advanced.
        orders: (P, d); written.
        families: (P, d, k), with the required parents; the slots behind them are written, -1 where nobody is left.
        n_required, edge_allowed, before: see the module.
    """
    population, d, _ = families.shape
    pending = np.empty(d, dtype=np.int32)
    pool = np.empty(d, dtype=np.int32)
    missing = np.empty(d, dtype=np.int64)
    for i in range(population):
        order = orders[i]
        for f in range(d):
            pending[f] = f
            missing[f] = 0
            for g in range(d):
                if before is not None and before[g, f]:
                    missing[f] += 1
        for p in range(d - 1, 0, -1):
            q = below(stream, p + 1)
            pending[p], pending[q] = pending[q], pending[p]
        for place in range(d):
            p = 0
            while pending[p] < 0 or missing[pending[p]] > 0:
                p += 1
            f = pending[p]
            order[place] = f
            pending[p] = -1
            for g in range(d):
                if before is not None and before[f, g]:
                    missing[g] -= 1
        for place in range(d):
            j = order[place]
            family = families[i, j, n_required[j] :]
            n_filled = 0
            # Attributes before `place` first, then those behind it, each group drawn from only where it is more than enough.
            for part in range(2):
                start, stop = (0, place) if part == 0 else (place + 1, d)
                size = 0
                for p in range(start, stop):
                    if edge_allowed is None or edge_allowed[order[p], j]:
                        pool[size] = order[p]
                        size += 1
                room = family.shape[0] - n_filled
                take = min(room, size)
                if part == 1 or size >= room:
                    for c in range(take):
                        q = c + below(stream, size - c)
                        pool[c], pool[q] = pool[q], pool[c]
                for c in range(take):
                    family[n_filled] = pool[c]
                    n_filled += 1
                if part == 0 and size >= room:
                    break
            for c in range(n_filled, family.shape[0]):
                family[c] = -1


@compiled
def next_generation(  # noqa: PLR0912, PLR0917  # one procedure of the paper; numba kernels take positions
    stream: NDArray[np.uint64],
    rate: float,
    fittest: NDArray[np.int64],
    orders: NDArray[np.int32],
    families: NDArray[np.int32],
    new_orders: NDArray[np.int32],
    new_families: NDArray[np.int32],
    n_required: NDArray[np.int64],
    edge_allowed: NDArray[np.bool_] | None,
    before: NDArray[np.bool_] | None,
) -> None:
    """Procedure Next Generation.

    Args:
        stream: (1,) state of the generator; advanced.
        rate: the mutation rate r.
        fittest: (S,) the fittest of the old generation, best first.
        orders, families: (P, d) and (P, d, k), the old generation.
        new_orders, new_families: the same shapes; written.
        n_required, edge_allowed, before: see the module.
    """
    population, d, k = families.shape
    elite = fittest.shape[0]
    places = np.empty(d, dtype=np.int32)
    snapshot = np.empty(d, dtype=np.int32)
    # Element by element: assignments of whole slices take seconds to compile.
    for i in range(population):
        order = new_orders[i]
        # Crossover: the first places are those of one parent, the rest those of the other.
        one = other = fittest[i] if i < elite else fittest[below(stream, elite)]
        cut = d
        if i >= elite and unit(stream) < rate:
            other = fittest[below(stream, elite)]
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
                if before is None or not _breaks(order, before, int(places[f]), int(places[g])):
                    places[f], places[g] = places[g], places[f]
                    order[places[f]] = f
                    order[places[g]] = g
        # Swap: repair, then mutation, of the slots behind the required parents
        for f in range(d):
            family = new_families[i, f, n_required[f] :]
            place = places[f]
            for c in range(family.shape[0]):
                if family[c] < 0 or places[family[c]] > place:
                    parent = _preceding_outsider(stream, order, place, family, edge_allowed, f)
                    if parent >= 0:
                        family[c] = parent
            for c in range(family.shape[0]):
                if unit(stream) < rate:
                    parent = _preceding_outsider(stream, order, place, family, edge_allowed, f)
                    if parent >= 0:
                        family[c] = parent


@compiled
def evaluate(  # noqa: PLR0917  # numba kernels take positions
    orders: NDArray[np.int32],
    families: NDArray[np.int32],
    n_required: NDArray[np.int64],
    weights: NDArray[np.float64],
    n_states: NDArray[np.int64],
    max_family_cells: float,
    fitness: NDArray[np.float64],
) -> None:
    """Return the fitness of every individual: the sum of the weights of the parents that its network keeps.

    Args:
        orders, families: (P, d) and (P, d, k).
        n_required: see the module.
        weights: (d, d) weights[parent, child]; 0 where the edge is kept only if it is required.
        n_states: (d,) number of categories.
        max_family_cells: a family with more cells loses its lightest parents that are not required until it fits.
        fitness: (P,); written.
    """
    population, d, k = families.shape
    places = np.empty(d, dtype=np.int32)
    parents = np.empty(k, dtype=np.int32)
    for i in range(population):
        for p in range(d):
            places[orders[i, p]] = p
        total = 0.0
        for f in range(d):
            required_cells = float(n_states[f])
            for c in range(n_required[f]):
                required_cells *= n_states[families[i, f, c]]
                total += weights[families[i, f, c], f]
            size = 0
            cells = required_cells
            for c in range(n_required[f], k):
                g = families[i, f, c]
                if g >= 0 and places[g] < places[f] and weights[g, f] > 0.0:
                    parents[size] = g
                    size += 1
                    cells *= n_states[g]
            while cells > max_family_cells and size > 0:
                worst = 0
                for c in range(1, size):
                    light, lightest = weights[parents[c], f], weights[parents[worst], f]
                    if light < lightest or (light == lightest and parents[c] > parents[worst]):
                        worst = c
                size -= 1
                parents[worst] = parents[size]
                cells = required_cells
                for c in range(size):
                    cells *= n_states[parents[c]]
            for c in range(size):
                total += weights[parents[c], f]
        fitness[i] = total


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32), np.uint64(11)
_UNIT = 2.0**-53


@compiled
def word(stream: NDArray[np.uint64]) -> np.uint64:
    """Return the next 64 bits; `stream`, (1,), is advanced."""
    stream[0] += _GOLDEN
    z = stream[0]
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    bits: np.uint64 = z ^ (z >> _S31)
    return bits


@compiled
def below(stream: NDArray[np.uint64], limit: int) -> int:
    """Return a whole number in 0 .. limit-1."""
    return np.int64(((word(stream) >> _S32) * np.uint64(limit)) >> _S32)  # type: ignore[return-value]  # int64 is numba's int


@compiled
def unit(stream: NDArray[np.uint64]) -> float:
    """Return a number in [0, 1)."""
    return np.float64(word(stream) >> _S11) * _UNIT

"""Searching orders, compiled. In the tests stand `order_weight` (plain) and the search through all orders.

Callers check shapes and values; a kernel checks nothing. Everywhere below:

- `candidates`, (d, d), int32: for each child its possible parents, heaviest first, of equals the smaller number first. A
  required parent is none of them, neither is one that does not fit alone.
- `heavy`, (d, d), float64: their weights, in that order; multiples of 2^-40, so that sums are exact.
- `limits`, (d, 4), int64, by variable: COUNT of its candidates; SLOTS, how many parents more than the required ones it may
  have; ROOM, what the product of their numbers of categories may be; STATES, its own number of categories. One array for all,
  because every array that is passed to an inner function costs.
- `before`, (d, d), bool: a precedes b in every order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.compiled.genetic_kernels import below, word
from verticil.shared.core.compiled import compiled

COUNT, SLOTS, ROOM, STATES = range(4)
_S54 = np.uint64(54)


@compiled
def best_parents(  # noqa: PLR0912, PLR0915, PLR0917  # one branch and bound; numba kernels take positions
    child: int,
    present: NDArray[np.uint8],
    candidates: NDArray[np.int32],
    heavy: NDArray[np.float64],
    limits: NDArray[np.int64],
    budget: int,
    best_set: NDArray[np.int64],
) -> float:
    """Return the largest weight of a set of present candidates within the limits.

    The heaviest ones that fill the slots are the answer where they fit. Where they do not, depth first over the candidates,
    heaviest first, cutting off what cannot beat the best set found: by the weights of the next candidates, as many as slots
    and cells admit. Exact, unless `budget` sets have been looked at: then the best of these.

    Args:
        child: whose parents.
        present: (d,), 1 for a variable that may be a parent now.
        candidates, heavy, limits: see the module.
        budget: how many sets to look at where the limit on cells binds.
        best_set: (d + 1,); written: how many parents, then the parents.

    Returns:
        their weight.
    """
    size = 0
    product = 1
    total = 0.0
    fits = True
    for i in range(limits[child, COUNT]):
        parent = candidates[child, i]
        if present[parent] and size < limits[child, SLOTS]:
            total += heavy[child, i]
            size += 1
            best_set[size] = parent
            if fits:
                product *= limits[parent, STATES]
                fits = product <= limits[child, ROOM]
    if fits:
        best_set[0] = size
        return total
    count = limits[child, COUNT]
    pool = np.empty(count, dtype=np.int64)
    m = 0
    for i in range(count):
        if present[candidates[child, i]]:
            pool[m] = i
            m += 1
    prefix = np.zeros(m + 1)
    fewest = np.empty(m + 1, dtype=np.int64)  # the smallest number of categories from here on
    fewest[m] = 2
    for i in range(m):
        prefix[i + 1] = prefix[i] + heavy[child, pool[i]]
    for i in range(m - 1, -1, -1):
        states = limits[candidates[child, pool[i]], STATES]
        fewest[i] = states if i == m - 1 or states < fewest[i + 1] else fewest[i + 1]
    path = np.empty(limits[child, SLOTS] + 1, dtype=np.int64)
    depth = 0
    product = 1
    total = 0.0
    best = -1.0
    n_looked = 0
    i = 0
    while True:
        more = 0
        if n_looked < budget:
            cells = product
            while more < limits[child, SLOTS] - depth and i + more < m:
                cells *= fewest[i]
                if cells > limits[child, ROOM]:
                    break
                more += 1
        if more > 0 and total + prefix[i + more] - prefix[i] > best:
            parent = candidates[child, pool[i]]
            if product * limits[parent, STATES] <= limits[child, ROOM]:
                path[depth] = i
                depth += 1
                product *= limits[parent, STATES]
                total += heavy[child, pool[i]]
                n_looked += 1
                if total > best:
                    best = total
                    best_set[0] = depth
                    for c in range(depth):
                        best_set[c + 1] = candidates[child, pool[path[c]]]
            i += 1
            continue
        if depth == 0:
            return best
        depth -= 1
        i = path[depth]
        product //= limits[candidates[child, pool[i]], STATES]
        total -= heavy[child, pool[i]]
        i += 1


@compiled
def _value(  # noqa: PLR0917  # numba kernels take positions
    child: int,
    present: NDArray[np.uint8],
    candidates: NDArray[np.int32],
    heavy: NDArray[np.float64],
    limits: NDArray[np.int64],
    budget: int,
) -> float:
    """Return what `best_parents` returns; kept small, because nearly all time of a search is spent here."""
    total = 0.0
    slots = limits[child, SLOTS]
    product = 1
    for i in range(limits[child, COUNT]):
        parent = candidates[child, i]
        if present[parent]:
            if slots == 0:
                break
            slots -= 1
            total += heavy[child, i]
            product *= limits[parent, STATES]
            if product > limits[child, ROOM]:
                best_set = np.empty(present.shape[0] + 1, dtype=np.int64)
                return best_parents(child, present, candidates, heavy, limits, budget, best_set)
    return total


@compiled
def order_values(  # noqa: PLR0917  # numba kernels take positions
    order: NDArray[np.int32],
    candidates: NDArray[np.int32],
    heavy: NDArray[np.float64],
    limits: NDArray[np.int64],
    budget: int,
    values: NDArray[np.float64],
    parents: NDArray[np.int64],
) -> float:
    """Find the best parents of every variable in an order.

    Args:
        order: (d,).
        candidates, heavy, limits, budget: see `best_parents`.
        values: (d,); written: the weight of each variable's parents.
        parents: (d, d + 1); written: how many, then which.

    Returns:
        the total weight.
    """
    d = order.shape[0]
    present = np.zeros(d, dtype=np.uint8)
    total = 0.0
    for place in range(d):
        v = int(order[place])
        values[v] = best_parents(v, present, candidates, heavy, limits, budget, parents[v])
        total += values[v]
        present[v] = 1
    return total


@compiled
def _may_move(order: NDArray[np.int32], before: NDArray[np.bool_], start: int, stop: int) -> bool:
    """Return whether the variable at `start` may be put at `stop`, those between moving up."""
    v = int(order[start])
    if start < stop:
        for p in range(start + 1, stop + 1):
            if before[v, order[p]]:
                return False
    else:
        for p in range(stop, start):
            if before[order[p], v]:
                return False
    return True


@compiled
def _move(order: NDArray[np.int32], start: int, stop: int) -> None:
    v = int(order[start])
    if start < stop:
        for p in range(start, stop):
            order[p] = order[p + 1]
    else:
        for p in range(start, stop, -1):
            order[p] = order[p - 1]
    order[stop] = v


@compiled
def anneal(  # noqa: PLR0912, PLR0915, PLR0917  # one loop; numba kernels take positions
    stream: NDArray[np.uint64],
    order: NDArray[np.int32],
    best_order: NDArray[np.int32],
    best: float,
    moves: int,
    temperature: float,
    cooling: float,
    drops: NDArray[np.float64],
    before: NDArray[np.bool_],
    candidates: NDArray[np.int32],
    heavy: NDArray[np.float64],
    limits: NDArray[np.int64],
    budget: int,
) -> tuple[float, float]:
    """Simulated annealing: a random variable goes to a random place, or two random variables change places.

    Only the variables between the two places are looked at again. A loss is accepted when it is smaller than the
    temperature times an exponential random number.

    Args:
        stream: (1,) state of the generator; advanced.
        order: (d,), d >= 2, the current order; changed.
        best_order: (d,), the best one of the chain; changed.
        best: its weight, -1 when there is none.
        moves: how many to try.
        temperature, cooling: before every move the temperature is multiplied by `cooling`.
        drops: (1024,) quantiles of the exponential distribution.
        before, candidates, heavy, limits, budget: see the module and `best_parents`.

    Returns:
        the weight of `best_order` and the last temperature.
    """
    d = order.shape[0]
    present = np.zeros(d, dtype=np.uint8)
    values = np.empty(d)
    fresh = np.empty(d)
    trial = np.empty(d, dtype=np.int32)
    current = 0.0
    for place in range(d):
        v = int(order[place])
        values[v] = _value(v, present, candidates, heavy, limits, budget)
        current += values[v]
        present[v] = 1
    if current > best:
        best = current
        for p in range(d):
            best_order[p] = order[p]
    for _ in range(moves):
        temperature *= cooling
        start = below(stream, d)
        stop = below(stream, d - 1)
        if stop >= start:
            stop += 1
        draw = word(stream)
        exchange = (draw & np.uint64(3)) == np.uint64(0)  # one move in four
        threshold = -temperature * drops[draw >> _S54]
        low, high = (start, stop) if start < stop else (stop, start)
        if not _may_move(order, before, start, stop):
            continue
        for p in range(low, high + 1):
            trial[p] = order[p]
        if exchange:
            # The other one's way back lies over the same variables, without the first.
            trial[start], trial[stop] = trial[stop], trial[start]
            other = order[stop]
            is_blocked = False
            for p in range(low + 1, high):
                if before[order[p], other] if stop > start else before[other, order[p]]:
                    is_blocked = True
                    break
            if is_blocked:
                continue
        elif start < stop:
            for p in range(start, stop):
                trial[p] = order[p + 1]
            trial[stop] = order[start]
        else:
            for p in range(start, stop, -1):
                trial[p] = order[p - 1]
            trial[stop] = order[start]
        for p in range(d):
            present[order[p]] = 1 if p < low else 0
        gain = 0.0
        for p in range(low, high + 1):
            v = int(trial[p])
            fresh[p] = _value(v, present, candidates, heavy, limits, budget)
            gain += fresh[p] - values[v]
            present[v] = 1
        if gain < threshold:
            continue
        for p in range(low, high + 1):
            order[p] = trial[p]
            values[order[p]] = fresh[p]
        current += gain
        if current > best:
            best = current
            for p in range(d):
                best_order[p] = order[p]
    return best, temperature


@compiled
def descend(  # noqa: PLR0912, PLR0915, PLR0917  # one loop; numba kernels take positions
    order: NDArray[np.int32],
    before: NDArray[np.bool_],
    candidates: NDArray[np.int32],
    heavy: NDArray[np.float64],
    limits: NDArray[np.int64],
    budget: int,
) -> float:
    """Put one variable after the other at its best place, until none can be put better.

    Passing a neighbour changes the parents of the two only, so that all places of a variable cost one walk each way.

    Args:
        order: (d,); changed.
        before, candidates, heavy, limits, budget: see the module and `best_parents`.

    Returns:
        the weight of the order.
    """
    d = order.shape[0]
    present = np.zeros(d, dtype=np.uint8)
    values = np.empty(d)
    idle = 0
    x = 0
    is_stale = True
    total = 0.0
    while idle < d:
        if is_stale:
            total = 0.0
            for p in range(d):
                present[p] = 0
            for p in range(d):
                v = int(order[p])
                values[v] = _value(v, present, candidates, heavy, limits, budget)
                total += values[v]
                present[v] = 1
            is_stale = False
        home = 0
        while order[home] != x:
            home += 1
        gain = 0.0
        best = home
        # Towards the end: whoever x passes loses it as a parent, x gains them.
        for p in range(d):
            present[order[p]] = 1 if p < home else 0
        others = 0.0
        for p in range(home + 1, d):
            v = int(order[p])
            if before[x, v]:
                break
            others += _value(v, present, candidates, heavy, limits, budget) - values[v]
            present[v] = 1
            mine = _value(x, present, candidates, heavy, limits, budget)
            if others + mine - values[x] > gain:
                gain = others + mine - values[x]
                best = p
        # Towards the beginning.
        for p in range(d):
            present[order[p]] = 1 if p < home else 0
        others = 0.0
        for p in range(home - 1, -1, -1):
            v = int(order[p])
            if before[v, x]:
                break
            present[v] = 0
            mine = _value(x, present, candidates, heavy, limits, budget)
            present[x] = 1
            others += _value(v, present, candidates, heavy, limits, budget) - values[v]
            present[x] = 0
            if others + mine - values[x] > gain:
                gain = others + mine - values[x]
                best = p
        if best != home:
            _move(order, home, best)
            is_stale = True
            idle = 0
        else:
            idle += 1
        x = (x + 1) % d
    return total


@compiled
def perturb(stream: NDArray[np.uint64], order: NDArray[np.int32], before: NDArray[np.bool_], moves: int) -> None:
    """Put `moves` random variables at random places, as far as `before` admits; `order`, (d,), is changed."""
    d = order.shape[0]
    for _ in range(moves):
        start, stop = below(stream, d), below(stream, d)
        if _may_move(order, before, start, stop):
            _move(order, start, stop)


@compiled
def fill_subsets(  # noqa: PLR0917  # numba kernels take positions
    table: NDArray[np.float64],
    first: int,
    last: int,
    block: NDArray[np.int32],
    base: NDArray[np.uint8],
    before: NDArray[np.bool_],
    candidates: NDArray[np.int32],
    heavy: NDArray[np.float64],
    limits: NDArray[np.int64],
    latest: NDArray[np.int8],
) -> None:
    """Fill in the best weight of every subset of a block, standing behind all earlier blocks.

    ``table[S] = max over v in S of table[S - v] + (best parents of v in base + S - v)``; v is last, so that nobody else of S
    has to come after it.

    Args:
        table: (2^b,), float64; entries below `first` are filled, `first` to `last` - 1 are written; -1 where no order exists.
        first, last: subsets, as numbers whose bit i is the member i of the block.
        block: (b,), the variables of the block.
        base: (d,), 1 for the variables of earlier blocks.
        before, candidates, heavy, limits: see the module.
        latest: (2^b,), int8, the member that is last in the best order of each subset; of equals the smaller one.
    """
    b = block.shape[0]
    present = base.copy()
    for subset in range(first, last):
        if subset == 0:
            table[0] = 0.0
            latest[0] = -1
            continue
        for i in range(b):
            present[block[i]] = (subset >> i) & 1
        best = -1.0
        last_one = -1
        for i in range(b):
            if (subset >> i) & 1 == 0 or table[subset ^ (1 << i)] < 0.0:
                continue
            v = int(block[i])
            possible = True
            for j in range(b):
                if (subset >> j) & 1 == 1 and before[v, block[j]]:
                    possible = False
                    break
            if not possible:
                continue
            present[v] = 0
            value = table[subset ^ (1 << i)] + _value(v, present, candidates, heavy, limits, 1 << 62)
            present[v] = 1
            if value > best:
                best = value
                last_one = i
        table[subset] = best
        latest[subset] = last_one

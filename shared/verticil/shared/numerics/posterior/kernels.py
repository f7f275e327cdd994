"""The compiled loops of the chains over graphs. Imports numba.

One step draws the parents of a few variables W anew, all together, given those of all others (Goudie and Mukherjee 2016; with
three variables it is the sampler of Martins, Gonçalves & Galletti). W's parents are taken away; D_w is w and its
descendants in what is left. Sets that meet D_w are not for w; the others are of one class for each part of W without w: those
members whose D the set meets. Who in W is whose ancestor follows from the classes alone, and a choice of classes makes no
cycle exactly where it makes none as a graph on W. So a graph H on W (there are 1, 3, 25 or 543) is drawn by its weight, the
product over W of the sum of the weights of the class that H names; then for each of W a set of its class by its weight.

A weight is m 2^(64 k), m in [1, 2^64): sums of weights that differ by hundreds of nats lose nothing that counts. Sets stand
by falling weight; where with the best sets of all others nothing is left that could weigh 2^-128 (`_NEGLIGIBLE`) of what stands
now, a table is not read any further.

Callers check shapes and values; a kernel checks nothing. Everywhere below `starts`, `masks`, `log_weight` are those of
`ParentSets`, `fraction` and `power` are m and k of the weights.
"""

from __future__ import annotations

import math

import numpy as np

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.core.compiled import compiled
from verticil.shared.numerics.posterior.parent_sets import Masks
from verticil.shared.numerics.posterior.tuning import TUNING

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_S58, _S30, _S27, _S31, _S11 = np.uint64(58), np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_GOLDEN, _MIX_1, _MIX_2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
_PLACES = np.zeros(64, dtype=np.int64)
for _place in range(64):
    _PLACES[(0x03F79D71B4CB0A89 << _place) % 2**64 >> 58] = _place
_SCALE = np.array([1.0, 2.0**-64, 2.0**-128, 0.0])
_NEGLIGIBLE = TUNING.negligible_bits
_LN2 = math.log(2.0)


@compiled
def unit(stream: Masks) -> float:
    """Draw a number in [0, 1), by SplitMix64 (Steele, Lea, Flood 2014); `stream`, (1,), is its state."""
    stream[0] += _GOLDEN
    z = stream[0]
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return float((z ^ (z >> _S31)) >> _S11) * 2.0**-53


@compiled
def normal_variate(stream: Masks) -> float:
    """Draw a standard normal variable (Box & Muller 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - unit(stream)))
    return radius * math.cos(2.0 * math.pi * unit(stream))


@compiled
def with_descendants(start: int, children: Masks) -> np.uint64:
    """Return a variable and all its descendants, as a mask."""
    mask = _ONE << np.uint64(start)
    front = mask
    while front != _ZERO:
        lowest = front & (~front + _ONE)
        front ^= lowest
        new = np.uint64(children[_PLACES[(lowest * _BRUIJN) >> _S58]]) & ~mask
        mask |= new
        front |= new
    return mask


@compiled
def set_parents(child: int, mask: np.uint64, parents: Masks, children: Masks) -> None:
    """Give a variable other parents, in `parents` and `children`."""
    bit = _ONE << np.uint64(child)
    difference = parents[child] ^ mask
    while difference != _ZERO:
        lowest = difference & (~difference + _ONE)
        difference ^= lowest
        children[_PLACES[(lowest * _BRUIJN) >> _S58]] ^= bit
    parents[child] = mask


@compiled
def class_sums(  # noqa: PLR0917  # numba kernels take positions
    variables: Ints,
    below: Masks,
    cut: Floats,
    starts: Ints,
    masks: Masks,
    fraction: Floats,
    power: Ints,
    log_weight: Floats,
    sums: Floats,
    firsts: Ints,
) -> None:
    """Sum the weight of each class of each chosen variable.

    Args:
        variables: (q,) W.
        below: (q,) D of each.
        cut: (q,) log weight under which a set need not be looked at.
        starts, masks, fraction, power, log_weight: see the module.
        sums: (q, 2^q); written: by class (bit j: the set meets D of the j-th) the sum in units of 2^(64 k).
        firsts: (q, 2^q); written: that k, of the class's heaviest set.
    """
    q = len(variables)
    for i in range(q):
        sums[i, :] = 0.0
        own = below[i]
        for s in range(starts[variables[i]], starts[variables[i] + 1]):
            if log_weight[s] < cut[i]:
                break
            mask = masks[s]
            if mask & own != _ZERO:
                continue
            kind = 0
            for j in range(q):
                if mask & below[j] != _ZERO:
                    kind |= 1 << j
            if sums[i, kind] == 0.0:
                firsts[i, kind] = power[s]
            sums[i, kind] += fraction[s] * _SCALE[min(firsts[i, kind] - power[s], 3)]


@compiled
def draw_set(  # noqa: PLR0917  # numba kernels take positions
    variable: int,
    own: int,
    kind: int,
    aim: float,
    first: int,
    below: Masks,
    starts: Ints,
    masks: Masks,
    fraction: Floats,
    power: Ints,
) -> int:
    """Return where the set stands at which the weights of a class, added up as `class_sums` adds them, exceed `aim`."""
    total = 0.0
    place = -1
    for s in range(starts[variable], starts[variable + 1]):
        mask = masks[s]
        if mask & below[own] != _ZERO:
            continue
        meets = 0
        for j in range(len(below)):
            if mask & below[j] != _ZERO:
                meets |= 1 << j
        if meets == kind:
            place = s
            total += fraction[s] * _SCALE[min(first - power[s], 3)]
            if total > aim:
                break
    return place


@compiled
def redraw(  # noqa: PLR0917  # numba kernels take positions
    variables: Ints,
    uniform: Floats,
    shapes: Ints,
    starts: Ints,
    masks: Masks,
    fraction: Floats,
    power: Ints,
    log_weight: Floats,
    parents: Masks,
    children: Masks,
    places: Ints,
    shares: Floats,
) -> None:
    """Redraw the parents of some variables: one step; see the module.

    Args:
        variables: (q,) W, distinct.
        uniform: (q + 1,) numbers in [0, 1): for H, then for the set of each.
        shapes: (graphs, q): all graphs on W, masks of each one's parents by position.
        starts, masks, fraction, power, log_weight: see the module.
        parents, children, places: (d,): the graph, its reverse, and where each variable's set stands; changed.
        shares: (graphs,); written: the weight of each H, the heaviest about 1.
    """
    q = len(variables)
    below = np.empty(q, dtype=np.uint64)
    cut = np.empty(q)
    sums, firsts = np.empty((q, 1 << q)), np.zeros((q, 1 << q), dtype=np.int64)
    slack = _NEGLIGIBLE * _LN2
    for i in range(q):
        slack += log_weight[starts[variables[i]]] - log_weight[places[variables[i]]]
    for i in range(q):
        cut[i] = log_weight[starts[variables[i]]] - slack
        set_parents(variables[i], _ZERO, parents, children)
    for i in range(q):
        below[i] = with_descendants(variables[i], children)
    class_sums(variables, below, cut, starts, masks, fraction, power, log_weight, sums, firsts)
    logs = np.empty((q, 1 << q))
    for i in range(q):
        for kind in range(1 << q):
            value = sums[i, kind]
            logs[i, kind] = math.log(value) + firsts[i, kind] * 64 * _LN2 if value > 0.0 else -math.inf
    top = -math.inf
    for h in range(len(shapes)):
        weight = 0.0
        for i in range(q):
            weight += logs[i, shapes[h, i]]
        shares[h] = weight
        top = max(top, weight)
    total = 0.0
    for h in range(len(shapes)):
        shares[h] = math.exp(shares[h] - top)
        total += shares[h]
    aim = uniform[0] * total
    shape = -1
    total = 0.0
    for h in range(len(shapes)):
        if shares[h] > 0.0:
            shape = h
            total += shares[h]
            if total > aim:
                break
    for i in range(q):
        kind = shapes[shape, i]
        aim = uniform[i + 1] * sums[i, kind]
        s = draw_set(variables[i], i, kind, aim, firsts[i, kind], below, starts, masks, fraction, power)
        places[variables[i]] = s
        set_parents(variables[i], masks[s], parents, children)


@compiled
def run(  # noqa: PLR0917  # numba kernels take positions
    steps: int,
    first_step: int,
    burn_in: int,
    every: int,
    shapes: Ints,
    nearby: Floats,
    starts: Ints,
    masks: Masks,
    fraction: Floats,
    power: Ints,
    log_weight: Floats,
    stream: Masks,
    parents: Masks,
    children: Masks,
    places: Ints,
    kept_parents: Masks,
    kept_weight: Floats,
) -> None:
    """Several steps of one chain: each draws so many groups anew that a variable has its turn once, on average.

    Args:
        steps: how many.
        first_step: how many the chain has made.
        burn_in, every: the graph after step t is kept where t > burn_in and t - burn_in is a multiple of `every`.
        shapes: see `redraw`.
        nearby: (d, d): row u says how often which other variables are chosen beside u: sums up to each, the last 1.
        starts, masks, fraction, power, log_weight: see the module.
        stream: (1,) of the random numbers; changed.
        parents, children, places: see `redraw`.
        kept_parents, kept_weight: (n, d) and (n,), zero; written: the graphs that these steps keep.
    """
    d, q = len(parents), shapes.shape[1]
    variables = np.empty(q, dtype=np.int64)
    uniform, shares = np.empty(q + 1), np.empty(len(shapes))
    draw = 0
    for t in range(first_step + 1, first_step + steps + 1):
        for _ in range((d + q - 1) // q):
            variables[0] = int(unit(stream) * d)
            size = 1
            while size < q:
                beside = variables[int(unit(stream) * size)]
                neighbour = np.searchsorted(nearby[beside], unit(stream), side="right")
                new = True
                for i in range(size):
                    new = new and variables[i] != neighbour
                if new:
                    variables[size] = neighbour
                    size += 1
            for i in range(q + 1):
                uniform[i] = unit(stream)
            redraw(
                variables, uniform, shapes, starts, masks, fraction, power, log_weight, parents, children, places, shares
            )  # fmt: skip
        if t > burn_in and (t - burn_in) % every == 0:
            kept_parents[draw] = parents
            for v in range(d):
                kept_weight[draw] += log_weight[places[v]]
            draw += 1


@compiled
def climb(  # noqa: PLR0917  # numba kernels take positions
    starts: Ints,
    masks: Masks,
    log_weight: Floats,
    parents: Masks,
    children: Masks,
    places: Ints,
) -> None:
    """Give the variable whose weight can grow most its heaviest set that makes no cycle, until no weight can grow."""
    d = len(parents)
    while True:
        gain, best, at = 0.0, -1, -1
        for v in range(d):
            below = with_descendants(v, children)
            s = starts[v]
            while masks[s] & below != _ZERO:
                s += 1
            if log_weight[s] - log_weight[places[v]] > gain:
                gain, best, at = log_weight[s] - log_weight[places[v]], v, s
        if best < 0:
            return
        places[best] = at
        set_parents(best, masks[at], parents, children)

"""The compiled loops of annealing: how the probabilities of a family move along lines. Imports numba.

`annealing` says what a line is. Logarithms take most of the time, so `log_likelihood` computes them in loops that a compiler
turns into vector instructions: the algorithm of fdlibm (Sun Microsystems 1993; e_log.c), exact to one unit in the last place.

Released cells are padded to a multiple of 8 (`padded`): there the likelihood is 1, and no line moves it. A kernel checks nothing.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.core.compiled import compiled, compiled_with_vectors
from verticil.shared.numerics.posterior.kernels import normal_variate, unit
from verticil.shared.numerics.posterior.parent_sets import Masks
from verticil.shared.numerics.posterior.tuning import TUNING

TINY: Final = 1e-300
_FAINT: Final = -600.0  # log length of a line from which on nothing on it changes the likelihood
_NARROW: Final = math.log(TUNING.narrowest_step)
_STEPS: Final = TUNING.line_steps

# A number is 2^k m with m in [sqrt(1/2), sqrt(2)): its bits plus _RAISED have k + 1023 above bit 52. Or-ed into the bits of 2^52
# that is 2^52 + k + 1023, a number.
_ROOT: Final = np.uint64(0x3FE6A09E667F3BCD)
_RAISED: Final = np.uint64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
_FRACTION: Final = np.uint64(0x000FFFFFFFFFFFFF)
_ABOVE: Final = np.uint64(52)
_WHOLE: Final = np.uint64(0x4330000000000000)
_WHOLE_VALUE: Final = 2.0**52 + 1023.0
_LN2_HIGH: Final = 6.93147180369123816490e-01
_LN2_LOW: Final = 1.90821492927058770002e-10
_L1: Final = 6.666666666666735130e-01
_L2: Final = 3.999999999940941908e-01
_L3: Final = 2.857142874366239149e-01
_L4: Final = 2.222219843214978396e-01
_L5: Final = 1.818357216161805012e-01
_L6: Final = 1.531383769920937332e-01
_L7: Final = 1.479819860511658591e-01


def padded(cells: int) -> int:
    """Return the next multiple of 8."""
    return -(-cells // 8) * 8


@compiled_with_vectors
def log_likelihood(  # noqa: PLR0917  # numba kernels take positions
    after: Floats, shift: Floats, way: float, released: Floats, room: Floats, fraction: Floats, exponent: Floats
) -> float:
    """Return the sum of ``released * log(after + way * shift)``, nats.

    Args:
        after: (C,) probabilities of the released cells.
        shift: (C,) how they change.
        way: by how much.
        released: (C,) counts.
        room, fraction, exponent: (C,); written.
    """
    n = len(after)
    bits, low, high = room.view(np.uint64), fraction.view(np.uint64), exponent.view(np.uint64)
    for i in range(n):
        value = after[i] + way * shift[i]
        room[i] = value if value > TINY else TINY  # max() is not turned into vectors
    for i in range(n):
        raised = bits[i] + _RAISED
        high[i] = (raised >> _ABOVE) | _WHOLE
        low[i] = (raised & _FRACTION) + _ROOT
    for i in range(n):
        f = fraction[i] - 1.0
        s = f / (2.0 + f)
        z = s * s
        w = z * z
        even = w * (_L2 + w * (_L4 + w * _L6))
        odd = z * (_L1 + w * (_L3 + w * (_L5 + w * _L7)))
        half = 0.5 * f * f
        k = exponent[i] - _WHOLE_VALUE
        room[i] = released[i] * (k * _LN2_HIGH + (f - (half - (s * (half + even + odd) + k * _LN2_LOW))))
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    for i in range(0, n, 4):
        first += room[i]
        second += room[i + 1]
        third += room[i + 2]
        fourth += room[i + 3]
    return (first + second) + (third + fourth)


@compiled
def _log_sum(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b))."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@compiled
def _push_axis(  # noqa: PLR0917  # numba kernels take positions
    values: Floats, before: int, behind: int, first: int, n_rows: int, channel: Floats, k: int, out: Floats
) -> None:
    """Randomize one axis of a table, which has the true categories `first` to `first` + `n_rows`.

    Args:
        values: of (before, n_rows, behind) in C order.
        before, behind: cells of the axes before and behind it.
        first, n_rows: see above.
        channel: rows true, columns released.
        k: released categories.
        out: of (before, k, behind); written.
    """
    for i in range(before * k * behind):
        out[i] = 0.0
    for i in range(before):
        for r in range(n_rows):
            source = (i * n_rows + r) * behind
            if behind == 1:
                value = values[source]
                for y in range(k):
                    out[i * k + y] += value * channel[first + r, y]
            else:
                for y in range(k):
                    share, aim = channel[first + r, y], (i * k + y) * behind
                    for b in range(behind):
                        out[aim + b] += share * values[source + b]


@compiled
def _places(shape: Ints, cell_step: Ints, cells: int) -> Ints:
    """Return the true cells of each cell of a family, in their order: (cells, categories of the variables outside)."""
    whole = 1
    for k in shape:
        whole *= k
    places, filled = np.empty((cells, whole // cells), np.int64), np.zeros(cells, np.int64)
    for joint in range(whole):
        left, cell = joint, 0
        for u in range(len(shape) - 1, -1, -1):
            cell += cell_step[u] * (left % shape[u])
            left //= shape[u]
        places[cell, filled[cell]] = joint
        filled[cell] += 1
    return places


@compiled
def _push_cells(  # noqa: PLR0917  # numba kernels take positions
    is_member: Ints, shape: Ints, cell_step: Ints, places: Ints, channels: Floats, rest: Floats, out: Floats
) -> None:
    """Randomize what each cell of a family stands for: the product of all other families, where the members have its categories.

    Args:
        is_member, shape, channels: see `move_family`.
        cell_step: (d,) cells of the family from one category of a member to the next, 0 of others.
        places: see `_places`.
        rest: (C,) that product, by true cell.
        out: (cells, padded C); written, by released cell.
    """
    d, whole = len(shape), len(rest)
    values, pushed, extent = np.empty(whole), np.empty(whole), np.empty(d, np.int64)
    for cell in range(len(out)):
        for u in range(d):
            extent[u] = 1 if is_member[u] else shape[u]
        for i in range(places.shape[1]):
            values[i] = rest[places[cell, i]]
        source, aim = values, pushed
        for turn in range(2):  # variables outside first: the table is smallest then
            for u in range(d):
                if is_member[u] == turn:
                    before, behind = 1, 1
                    for v in range(d):
                        if v < u:
                            before *= extent[v]
                        elif v > u:
                            behind *= extent[v]
                    first = (cell // cell_step[u]) % shape[u] if turn else 0
                    _push_axis(source, before, behind, first, extent[u], channels[u], shape[u], aim)
                    extent[u] = shape[u]
                    source, aim = aim, source
        out[cell, :whole] = source


@compiled
def move_family(  # noqa: PLR0912, PLR0915, PLR0917  # numba kernels take positions and have their loops in one place
    lines: int,
    child: int,
    is_member: Ints,
    shape: Ints,
    pseudo: float,
    least_pseudo: float,
    surrogate: Floats,
    stage: Floats,
    logs: Floats,
    theta: Floats,
    rest: Floats,
    rows: Floats,
    channels: Floats,
    released: Floats,
    after: Floats,
    fit: Floats,
    stream: Masks,
) -> None:
    """Move each particle along some lines of a family.

    Args:
        lines: how many.
        child: the family's.
        is_member: (d,) 1 for the child and its parents, else 0.
        shape: (d,) categories of each variable, two at least of the child.
        pseudo: the family's prior count of a cell.
        least_pseudo: the least of all families.
        surrogate: (cells,) M of the family.
        stage: (n,) of each particle.
        logs, theta: (n, cells) of the family, written: probabilities and their logarithms.
        rest: (n, C) product of the probabilities of all other families, by true cell.
        rows: (n, rows) probability of each row of the family.
        channels: (d, K, K) rows true, columns released.
        released: (padded C,) counts, 0 behind C.
        after: (n, padded C), written: probabilities of the released cells, 1 behind C.
        fit: (n,), written: the log likelihood.
        stream: (1,) of random numbers.
    """
    d, n, size = len(shape), len(stage), after.shape[1]
    if shape[child] < 2:
        return
    cell_step, row_step = np.zeros(d, np.int64), np.zeros(d, np.int64)
    n_cells, n_rows, n_true, n_members = 1, 1, 1, 0
    for u in range(d - 1, -1, -1):
        n_true *= shape[u]
        if is_member[u]:
            n_members += 1
            cell_step[u] = n_cells
            n_cells *= shape[u]
            if u != child:
                row_step[u] = n_rows
                n_rows *= shape[u]
    room, fraction, exponent, shift = np.empty(size), np.empty(size), np.empty(size), np.zeros(size)
    at, beside = np.zeros(d, np.int64), np.zeros(d, np.int64)
    pushed = np.zeros((n_cells if n_members < d else 0, size))
    places = _places(shape, cell_step, n_cells)
    axes = np.empty(d, np.int64)
    most = 1 << n_members
    cells, weight, log_size = np.empty(most, np.int64), np.empty(most), np.empty(most)
    own, now, new_logs = np.empty(most), np.empty(most), np.empty(most)
    wide = math.log(2.0 / least_pseudo + 3.0)
    for p in range(n):
        if n_members < d:
            _push_cells(is_member, shape, cell_step, places, channels, rest[p], pushed)
        for _ in range(lines):
            n_axes, cell, row = 0, 0, 0
            for u in range(d):
                if is_member[u]:
                    at[u] = int(unit(stream) * shape[u])
                    beside[u] = at[u]
                    if u == child or (shape[u] > 1 and unit(stream) < 0.5):
                        beside[u] = (at[u] + 1 + int(unit(stream) * (shape[u] - 1))) % shape[u]
                        axes[n_axes] = u
                        n_axes += 1
                    cell += cell_step[u] * at[u]
                    row += row_step[u] * at[u]
            m = 1 << n_axes
            least = math.inf
            for b in range(m):
                place, line, sign = cell, row, 1.0
                for j in range(n_axes):
                    if b >> j & 1:
                        u = axes[j]
                        place += cell_step[u] * (beside[u] - at[u])
                        line += row_step[u] * (beside[u] - at[u])
                        sign = -sign
                cells[b] = place
                weight[b] = sign / max(rows[p, line], TINY)
                least = min(least, abs(weight[b]))
            down, up, first, last = math.inf, math.inf, 0, 0
            for b in range(m):
                weight[b] /= least
                now[b] = logs[p, cells[b]]
                own[b] = pseudo - 1.0 + (1.0 - stage[p]) * surrogate[cells[b]]
                log_size[b] = math.log(abs(weight[b]))
                reach = now[b] - log_size[b]
                if weight[b] > 0.0:
                    if reach < down:
                        down, first = reach, b
                elif reach < up:
                    up, last = reach, b
            length = _log_sum(down, up)  # of the ways to the two ends
            if not length > _FAINT:
                continue
            # How the released cells change: all of a row changes alike where the family is of all variables.
            if n_members == d:
                shift[0] = weight[0] * rows[p, row]
                filled = 1
                for u in range(d):
                    for i in range(filled - 1, -1, -1):
                        value = shift[i]
                        for y in range(shape[u] - 1, -1, -1):
                            part = channels[u, at[u], y]
                            if beside[u] != at[u]:
                                part -= channels[u, beside[u], y]
                            shift[i * shape[u] + y] = value * part
                    filled *= shape[u]
            else:
                for c in range(n_true):
                    shift[c] = weight[0] * pushed[cells[0], c]
                for b in range(1, m):
                    for c in range(n_true):
                        shift[c] += weight[b] * pushed[cells[b], c]
            # Steps along the line: of the logit of the place between the ends.
            place_now, likely_now, way_now, is_moved = down - up, fit[p], 0.0, False
            far, near = math.exp(down), math.exp(up)
            density = place_now - 2.0 * _log_sum(0.0, place_now)
            for b in range(m):
                density += own[b] * now[b]
            for _turn in range(_STEPS):
                reach = math.exp(_NARROW + (wide - _NARROW) * unit(stream))
                place_new = place_now + reach * normal_variate(stream)
                if unit(stream) < 0.1:
                    place_new = -place_now
                below = -_log_sum(0.0, -place_new)
                above = below - place_new
                way = math.exp(length + below) - far if place_new < 0.0 else near - math.exp(length + above)
                other = below + above
                for b in range(m):
                    if b == first:
                        new_logs[b] = length + below + log_size[b]
                    elif b == last:
                        new_logs[b] = length + above + log_size[b]
                    else:
                        new_logs[b] = math.log(max(theta[p, cells[b]] + way * weight[b], TINY))
                    other += own[b] * new_logs[b]
                likely = log_likelihood(after[p], shift, way, released, room, fraction, exponent)
                gain = stage[p] * (likely - likely_now) + other - density
                if gain >= 0.0 or math.log(1.0 - unit(stream)) < gain:
                    place_now, way_now, likely_now, density, is_moved = place_new, way, likely, other, True
                    for b in range(m):
                        now[b] = new_logs[b]
            if is_moved:
                fit[p] = likely_now
                for b in range(m):
                    logs[p, cells[b]] = now[b]
                    theta[p, cells[b]] = math.exp(now[b])
                for c in range(n_true):
                    after[p, c] = max(after[p, c] + way_now * shift[c], 0.0)

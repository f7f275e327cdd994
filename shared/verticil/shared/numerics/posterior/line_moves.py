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
def push_axis(  # noqa: PLR0917  # numba kernels take positions
    values: Floats, before: int, behind: int, rows: Ints, n_rows: int, channel: Floats, k: int, out: Floats
) -> None:
    """Randomize one axis of a table.

    Args:
        values: of (before, n_rows, behind) in C order.
        before, behind: cells of the axes before and behind it.
        rows: the true categories that the axis has.
        n_rows: how many.
        channel: rows true, columns released.
        k: released categories.
        out: of (before, k, behind); written.
    """
    out[: before * k * behind] = 0.0
    for i in range(before):
        for r in range(n_rows):
            source, row = (i * n_rows + r) * behind, rows[r]
            if behind == 1:
                value = values[source]
                for y in range(k):
                    out[i * k + y] += value * channel[row, y]
            else:
                for y in range(k):
                    share, aim = channel[row, y], (i * k + y) * behind
                    for b in range(behind):
                        out[aim + b] += share * values[source + b]


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
    cell_step, row_step, joint_step = np.zeros(d, np.int64), np.zeros(d, np.int64), np.zeros(d, np.int64)
    one, two, three, n_members = 1, 1, 1, 0
    for u in range(d - 1, -1, -1):
        joint_step[u] = three
        three *= shape[u]
        if is_member[u]:
            n_members += 1
            cell_step[u] = one
            one *= shape[u]
            if u != child:
                row_step[u] = two
                two *= shape[u]
    loose = three // one
    room, fraction, exponent = np.empty(size), np.empty(size), np.empty(size)
    shift, values, pushed = np.zeros(size), np.empty(size), np.empty(size)
    at, beside, extent, step = (
        np.zeros(d, np.int64),
        np.zeros(d, np.int64),
        np.zeros(d, np.int64),
        np.zeros(d, np.int64),
    )
    axes, picked = np.empty(d, np.int64), np.empty(shape.max(), np.int64)
    loose_joint, loose_step = np.zeros(loose, np.int64), np.zeros(loose, np.int64)
    most = 1 << n_members
    cells, weight, log_size = np.empty(most, np.int64), np.empty(most), np.empty(most)
    own, now, new_logs = np.empty(most), np.empty(most), np.empty(most)
    wide = math.log(2.0 / least_pseudo + 3.0)
    for p in range(n):
        for _ in range(lines):
            n_axes, cell, row, joint = 0, 0, 0, 0
            for u in range(d):
                extent[u] = shape[u]
                if is_member[u]:
                    extent[u] = 1
                    at[u] = int(unit(stream) * shape[u])
                    beside[u] = at[u]
                    if u == child or (shape[u] > 1 and unit(stream) < 0.5):
                        beside[u] = (at[u] + 1 + int(unit(stream) * (shape[u] - 1))) % shape[u]
                        extent[u] = 2
                        axes[n_axes] = u
                        n_axes += 1
                    cell += cell_step[u] * at[u]
                    row += row_step[u] * at[u]
                    joint += joint_step[u] * at[u]
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
                            if extent[u] == 2:
                                part -= channels[u, beside[u], y]
                            shift[i * shape[u] + y] = value * part
                    filled *= shape[u]
            else:
                total = 1
                for u in range(d - 1, -1, -1):
                    step[u] = total
                    total *= extent[u]
                filled = 1
                for u in range(d):
                    if not is_member[u]:
                        for i in range(filled - 1, -1, -1):
                            for x in range(shape[u] - 1, -1, -1):
                                loose_joint[i * shape[u] + x] = loose_joint[i] + x * joint_step[u]
                                loose_step[i * shape[u] + x] = loose_step[i] + x * step[u]
                        filled *= shape[u]
                for b in range(m):
                    base, start = joint, 0
                    for j in range(n_axes):
                        if b >> j & 1:
                            u = axes[j]
                            base += joint_step[u] * (beside[u] - at[u])
                            start += step[u]
                    for i in range(filled):
                        values[start + loose_step[i]] = weight[b] * rest[p, base + loose_joint[i]]
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
                            for x in range(extent[u]):
                                picked[x] = x
                            if turn == 1:
                                picked[0] = at[u]
                                if extent[u] == 2:
                                    picked[1] = beside[u]
                            push_axis(source, before, behind, picked, extent[u], channels[u], shape[u], aim)
                            extent[u] = shape[u]
                            source, aim = aim, source
                shift[:three] = source[:three]
            # Steps along the line: of the logit of the place between the ends.
            place_now, likely_now, way_now, is_moved = down - up, fit[p], 0.0, False
            density = -_log_sum(0.0, place_now) - _log_sum(0.0, -place_now)
            for b in range(m):
                density += own[b] * now[b]
            for _turn in range(_STEPS):
                reach = math.exp(_NARROW + (wide - _NARROW) * unit(stream))
                place_new = place_now + reach * normal_variate(stream)
                if unit(stream) < 0.1:
                    place_new = -place_now
                below, above = -_log_sum(0.0, -place_new), -_log_sum(0.0, place_new)
                near_down, near_up = math.exp(length + below) - math.exp(down), math.exp(up) - math.exp(length + above)
                way = near_down if place_new < 0.0 else near_up
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
                if math.log(1.0 - unit(stream)) < gain:
                    place_now, way_now, likely_now, density, is_moved = place_new, way, likely, other, True
                    for b in range(m):
                        now[b] = new_logs[b]
            if is_moved:
                fit[p] = likely_now
                for b in range(m):
                    logs[p, cells[b]] = now[b]
                    theta[p, cells[b]] = math.exp(now[b])
                for c in range(three):
                    after[p, c] = max(after[p, c] + way_now * shift[c], 0.0)

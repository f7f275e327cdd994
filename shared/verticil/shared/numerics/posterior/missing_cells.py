"""The compiled loops of chains over graphs and unknown cells of records together. Imports numba.

A *key* is a set of variables whose table is counted: every set of parents, with its child and without. Of a key's table the
records that lack none of its variables are counted once (`tabulate` with `lacking` False), the others whenever cells have been
drawn anew.

Unknown cells are drawn given the graph with the probabilities integrated out: the cell of the variable v in a record is k with a
probability that is proportional to

    product over f = v and the children of v of (N_f(k) + a_f) / (N_pa(f)(k) + a_f K_f),

N the counts, by all other records, of the combination that the record's other cells and k make in the family and in its parents,
a_f the prior's count in a cell of the family. So a sweep over all cells leaves P(unknown cells | graph, known cells) as it is,
and needs no draw of probabilities.

Layout of keys everywhere below: key t has the variables ``members[spans[t] : spans[t + 1]]``, ascending, a step in one of them is
``strides`` cells, and its table stands in ``counts`` from ``places[t]`` on. Callers check; a kernel checks nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.core.compiled import compiled
from verticil.shared.numerics.posterior.kernels import unit
from verticil.shared.numerics.posterior.parent_sets import Masks

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_LN2 = math.log(2.0)
_ROUND = 2.0**36

Codes16 = NDArray[np.uint16]


@compiled
def cell_of(  # noqa: PLR0917  # numba kernels take positions
    key: int, row: Codes16, spans: Ints, members: Ints, strides: Ints, places: Ints
) -> int:
    """Return where a record stands in the table of a key."""
    cell = places[key]
    for i in range(spans[key], spans[key + 1]):
        cell += row[members[i]] * strides[i]
    return int(cell)


@compiled
def tabulate(  # noqa: PLR0917  # numba kernels take positions
    codes: Codes16,
    patterns: Masks,
    ends: Ints,
    keys: Masks,
    spans: Ints,
    members: Ints,
    strides: Ints,
    places: Ints,
    lacking: bool,
    counts: Ints,
) -> None:
    """Add records to the tables of all keys.

    Args:
        codes: (n, d) of records.
        patterns, ends: (p,): of the records from the end before to this one, the variables whose cells are not known, as a mask.
        keys: (t,): the variables of each key.
        spans, members, strides, places: see the module.
        lacking: count to a table the records that lack one of its variables; else those that lack none.
        counts: (cells of all tables,); changed.
    """
    for t in range(len(keys)):
        first, last = spans[t], spans[t + 1]
        start = 0
        for p in range(len(patterns)):
            if ((patterns[p] & keys[t]) != _ZERO) == lacking:
                for r in range(start, ends[p]):
                    cell = places[t]
                    for i in range(first, last):
                        cell += codes[r, members[i]] * strides[i]
                    counts[cell] += 1
            start = ends[p]


@compiled
def sum_terms(  # noqa: PLR0917  # numba kernels take positions
    counts: Ints, term_key: Ints, term_pseudo: Floats, places: Ints, numbers: Ints, terms: Floats
) -> None:
    """Sum ln G(a + N) - ln G(a) over a key's cells, for some terms.

    Args:
        counts, places: see the module.
        term_key, term_pseudo: (terms,): of which key, and a.
        numbers: which terms.
        terms: (terms,); written: nats.
    """
    for i in numbers:
        a, total = term_pseudo[i], 0.0
        empty = math.lgamma(a)
        for cell in range(places[term_key[i]], places[term_key[i] + 1]):
            if counts[cell] > 0:
                total += math.lgamma(a + counts[cell]) - empty
        terms[i] = total


@compiled
def weigh(  # noqa: PLR0917  # numba kernels take positions
    terms: Floats,
    whole: Ints,
    rest: Ints,
    prior: Floats,
    exponent: float,
    starts: Ints,
    sets: Masks,
    masks: Masks,
    fraction: Floats,
    power: Ints,
    log_weight: Floats,
    order: Ints,
) -> None:
    """Weigh all sets of parents, sorted as `kernels` takes them.

    Args:
        terms: see `sum_terms`.
        whole, rest, prior: (sets,): the terms of a set with its child and without, and the logarithm of its prior.
        exponent: the power of the weights.
        starts, sets: the sets in the order in which they are listed.
        masks, fraction, power, log_weight: (sets,); written, see `kernels`.
        order: (sets,); written: where the set of each place is listed.
    """
    for v in range(len(starts) - 1):
        first, last = starts[v], starts[v + 1]
        weight = np.empty(last - first)
        for s in range(first, last):
            value = (prior[s] + terms[whole[s]] - terms[rest[s]]) * exponent
            weight[s - first] = math.floor(value * _ROUND + 0.5) / _ROUND
        ranking = np.argsort(-weight, kind="mergesort")
        for s in range(first, last):
            at = ranking[s - first]
            binary = weight[at] / _LN2
            power[s] = math.floor(binary / 64)
            fraction[s] = 2.0 ** (binary - 64 * power[s])
            log_weight[s], masks[s], order[s] = weight[at], sets[first + at], first + at


@compiled
def touches(  # noqa: PLR0917  # numba kernels take positions
    whole: Ints,
    rest: Ints,
    spans: Ints,
    members: Ints,
    strides: Ints,
    families: Ints,
    n_families: Ints,
    cells: Ints,
    n_touched: Ints,
    step_whole: Ints,
    step_rest: Ints,
) -> None:
    """Return what a cell of each variable takes part in, by a graph.

    Args:
        whole, rest: (d,): see `sweep`.
        spans, members, strides: see the module.
        families, n_families: (d, d) and (d,), zero; written: of which families a variable is a member.
        cells, n_touched: (d, 2 d) and (d,), zero; written: the keys of those, each once.
        step_whole, step_rest: (d, d), zero; written: ``[v, f]``, the strides of v in the keys of f.
    """
    for f in range(len(whole)):
        for i in range(spans[whole[f]], spans[whole[f] + 1]):
            v = members[i]
            step_whole[v, f] = strides[i]
            families[v, n_families[v]] = f
            n_families[v] += 1
        for i in range(spans[rest[f]], spans[rest[f] + 1]):
            step_rest[members[i], f] = strides[i]
        for key in (whole[f], rest[f]):  # a table may be of one family and the parents of another
            for i in range(spans[key], spans[key + 1]):
                v = members[i]
                new = True
                for j in range(n_touched[v]):
                    new = new and cells[v, j] != key
                if new:
                    cells[v, n_touched[v]] = key
                    n_touched[v] += 1


@compiled
def sweep(  # noqa: PLR0917  # numba kernels take positions
    times: int,
    whole: Ints,
    rest: Ints,
    pseudo: Floats,
    n_states: Ints,
    rows: Ints,
    variables: Ints,
    spans: Ints,
    members: Ints,
    strides: Ints,
    places: Ints,
    counts: Ints,
    codes: Codes16,
    stream: Masks,
) -> None:
    """Draw every unknown cell anew, one after the other, so many times.

    Args:
        times: how often.
        whole, rest, pseudo: (d,): of each variable's family in the graph the key, that of its parents alone, and a_f.
        n_states: (d,)
        rows, variables: (cells,): which record's, and of which variable.
        spans, members, strides, places: see the module.
        counts: of all records with their cells as they are; of the families of the graph it is kept so.
        codes: (m, d) of the records with unknown cells; changed.
        stream: (1,) of the random numbers; changed.
    """
    d = len(n_states)
    families, n_families = np.zeros((d, d), dtype=np.int64), np.zeros(d, dtype=np.int64)
    touch_cells, n_touched = np.zeros((d, 2 * d), dtype=np.int64), np.zeros(d, dtype=np.int64)
    step_whole, step_rest = np.zeros((d, d), dtype=np.int64), np.zeros((d, d), dtype=np.int64)
    touches(
        whole, rest, spans, members, strides, families, n_families, touch_cells, n_touched, step_whole, step_rest
    )  # fmt: skip
    share = np.empty(n_states.max())
    for _ in range(times):
        for c in range(len(rows)):
            r, v = rows[c], variables[c]
            row = codes[r]
            now = np.int64(row[v])
            for j in range(n_touched[v]):
                counts[cell_of(touch_cells[v, j], row, spans, members, strides, places)] -= 1
            share[: n_states[v]] = 1.0
            for j in range(n_families[v]):
                f = families[v, j]
                at = cell_of(int(whole[f]), row, spans, members, strides, places) - now * step_whole[v, f]
                above = cell_of(int(rest[f]), row, spans, members, strides, places) - now * step_rest[v, f]
                top = 0.0
                for k in range(n_states[v]):
                    value = counts[at + k * step_whole[v, f]] + pseudo[f]
                    if f != v:
                        value /= counts[above + k * step_rest[v, f]] + pseudo[f] * n_states[f]
                    share[k] *= value
                    top = max(top, share[k])
                for k in range(n_states[v]):
                    share[k] /= top
            total = 0.0
            for k in range(n_states[v]):
                total += share[k]
            aim, k = unit(stream) * total - share[0], 0
            while aim >= 0.0 and k < n_states[v] - 1:
                k += 1
                aim -= share[k]
            row[v] = k
            for j in range(n_touched[v]):
                counts[cell_of(touch_cells[v, j], row, spans, members, strides, places)] += 1

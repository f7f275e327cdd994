"""The compiled loops of chains over graphs and true counts together, given the released counts. Imports numba.

One round has five steps, and each leaves the posterior as it is:

1. With the true counts as they are, every set of parents is weighed and each variable has its turn at new parents (`kernels`).
2. Probabilities are drawn from their Dirichlet distributions, given the graph and the true counts.
3. New parents and probabilities of one variable, then of two, are proposed without regard to true counts, and accepted by the
   likelihood of the released ones (Metropolis & Hastings): sets evenly, probabilities from a mixture q of Dirichlet(a + s M)
   over `SCALES`, M *surrogate* counts, the corrected counts times what the randomization leaves of the family. With l_s(M) the
   family's score by s M, a mixture's prior over q is 1 / sum_s w_s exp(s M log theta - l_s(M)), and theta' in place of theta has
   the log ratio log p(Y | theta') - log p(Y | theta) + log (prior / q)(theta') - log (prior / q)(theta). Where randomization is
   strong, true counts change slowly, and steps 1 and 2 alone do not leave a graph in any time; and with one scale a graph whose
   probabilities lie in the tail of its proposal is hardly ever left.
4. New parents and probabilities of one variable are proposed near those that it has, from Dirichlet(a + s W p), p the family's
   table by the graph's probabilities as they are, W the sum of M (`move_near`). Of wide families step 3 seldom proposes what
   fits the other families: of four columns of three categories a chain in four kept a link that does not exist.
5. The records of every released entry are shared out to true ones, given the probabilities.

Records are shared out axis by axis, because a column is randomized on its own: with x_1 .. x_(a-1) drawn,

    P(x_a | x_1 .. x_(a-1), y_a .. y_m) ~ P_a(x_a, y_a) sum over x_(a+1) .. x_m of pi_x prod_(b>a) P_b(x_b, y_b),

which costs the cells of the table times one axis, not times the cells.

Layout: the joint table of all d variables has the cells c in C order. Key t (a set of variables, see `cells`) has its table from
``places[t]`` on, and cell c of the joint table counts to ``index[t, c]``. Callers check; a kernel checks nothing.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.core.compiled import compiled
from verticil.shared.numerics.posterior.kernels import normal_variate, run, set_parents, unit, with_descendants
from verticil.shared.numerics.posterior.missing_cells import sum_terms, weigh
from verticil.shared.numerics.posterior.parent_sets import Masks
from verticil.shared.numerics.posterior.tuning import TUNING

SCALES: Final = TUNING.proposal_scales
_SHARES: Final = TUNING.proposal_shares

_ONE = np.uint64(1)
_FEW = TUNING.single_successes


@compiled
def log_gamma_variate(shape: float, stream: Masks) -> float:
    """Draw the logarithm of a Gamma(shape, 1) variable (Marsaglia & Tsang 2000); in logs, for shapes far below 1."""
    boost = 0.0
    if shape < 1.0:
        boost = math.log(1.0 - unit(stream)) / shape
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal_variate(stream)
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            if math.log(1.0 - unit(stream)) < 0.5 * x * x + d - d * v + d * math.log(v):
                return math.log(d * v) + boost


@compiled
def binomial_variate(n: int, p: float, stream: Masks) -> int:
    """Draw a Binomial(n, p) variable: by inversion where few are expected, else by rejection (BTRS; Hörmann 1993)."""
    if n <= 0 or p <= 0.0:
        return 0
    if p >= 1.0:
        return n
    if p > 0.5:
        return n - _below_half(n, 1.0 - p, stream)
    return _below_half(n, p, stream)


@compiled
def _below_half(n: int, p: float, stream: Masks) -> int:
    """`binomial_variate` for 0 < p <= 1/2."""
    ratio = p / (1.0 - p)
    if n * p < _FEW:
        while True:
            share, rest, k = math.exp(n * math.log1p(-p)), unit(stream), 0
            while rest > share and k < n:
                rest -= share
                k += 1
                share *= ratio * (n - k + 1) / k
            if rest <= share:  # else rounding has left a hair of the unit interval behind the last value
                return k
    spread = math.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha, sure = (2.83 + 5.1 / b) * spread, 0.92 - 4.2 / b
    mode = int((n + 1) * p)
    top = math.lgamma(mode + 1.0) + math.lgamma(n - mode + 1.0)
    while True:
        u, v = unit(stream) - 0.5, 1.0 - unit(stream)
        us = 0.5 - abs(u)
        if us <= 0.0:
            continue
        k = math.floor((2.0 * a / us + b) * u + n * p + 0.5)
        if k < 0 or k > n:
            continue
        if us >= 0.07 and v <= sure:
            return k
        limit = top - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0) + (k - mode) * math.log(ratio)
        if math.log(v * alpha / (a / (us * us) + b)) <= limit:
            return k


@compiled
def share_out(  # noqa: PLR0912, PLR0917  # numba kernels take positions and have their loops in one place
    counts: Ints, shares: Floats, n_states: Ints, channels: Floats, stream: Masks, true: Ints
) -> None:
    """Draw true counts given the released ones and the shares of the true cells.

    Args:
        counts: (C,) counts of the released cells.
        shares: (C,) of the true cells, up to a factor.
        n_states: (d,)
        channels: (d, K, K), K the most categories: ``[v, x, y]`` the probability that x is released as y.
        stream: (1,) of the random numbers; changed.
        true: (C,); written.
    """
    d, size = len(n_states), len(counts)
    ahead = np.zeros((d + 1, size))  # [a]: true entries up to column a, released ones behind it
    ahead[d] = shares
    post = 1
    for a in range(d - 1, 0, -1):
        k = n_states[a]
        pre = size // (post * k)
        for i in range(pre):
            for x in range(k):
                for y in range(k):
                    p = channels[a, x, y]
                    if p > 0.0:
                        for j in range(post):
                            ahead[a, (i * k + y) * post + j] += p * ahead[a + 1, (i * k + x) * post + j]
        post *= k
    now, then = counts.copy(), np.zeros(size, dtype=np.int64)
    weights = np.empty(n_states.max())
    pre = 1
    for a in range(d):
        k = n_states[a]
        post = size // (pre * k)
        then[:] = 0
        for i in range(pre):
            for y in range(k):
                for j in range(post):
                    n_left = now[(i * k + y) * post + j]
                    if n_left == 0:
                        continue
                    total = 0.0
                    for x in range(k):
                        weights[x] = channels[a, x, y] * ahead[a + 1, (i * k + x) * post + j]
                        total += weights[x]
                    if not total > 0.0:  # shares too small for a float
                        for x in range(k):
                            weights[x] = channels[a, x, y]
                            total += weights[x]
                    for x in range(k):
                        if n_left == 0:
                            break
                        n = (
                            n_left
                            if x == k - 1 or weights[x] >= total
                            else binomial_variate(int(n_left), weights[x] / total, stream)
                        )
                        then[(i * k + x) * post + j] += n
                        n_left -= n
                        total -= weights[x]
        now, then = then, now
        pre *= k
    true[:] = now


@compiled
def tabulate(keys: Ints, index: Ints, places: Ints, true: Ints, counts: Ints) -> None:
    """Sum the joint table to those of some keys, which are written to `counts`."""
    for t in keys:
        counts[places[t] : places[t + 1]] = 0
        for c in range(len(true)):
            counts[index[t, c]] += true[c]


@compiled
def draw_rows(  # noqa: PLR0917  # numba kernels take positions
    first: int, last: int, step: int, k: int, mass: Floats, stream: Masks, theta: Floats
) -> None:
    """Draw the rows of a family from Dirichlet distributions.

    Args:
        first, last: where the family's table stands in `mass` and `theta`.
        step, k: a step in the child, in cells; its categories.
        mass: counts with the prior's.
        stream: (1,) of the random numbers; changed.
        theta: written: logarithms of probabilities.
    """
    for base in range(first, last):
        if (base - first) // step % k:
            continue
        top = -math.inf
        for x in range(k):
            theta[base + x * step] = log_gamma_variate(mass[base + x * step], stream)
            top = max(top, theta[base + x * step])
        total = 0.0
        for x in range(k):
            total += math.exp(theta[base + x * step] - top)
        for x in range(k):
            theta[base + x * step] -= top + math.log(total)


@compiled
def log_likelihood(  # noqa: PLR0917  # numba kernels take positions
    log_shares: Floats, counts: Ints, n_states: Ints, channels: Floats, now: Floats, then: Floats
) -> float:
    """Return the logarithm of the released counts' probability, up to what no probability changes; nats.

    Args:
        log_shares: (C,) logarithms of the probabilities of the true cells.
        counts, n_states, channels: see `share_out`.
        now, then: (C,); written.
    """
    size, pre = len(counts), 1
    for c in range(size):
        now[c] = math.exp(log_shares[c])
    for a in range(len(n_states)):
        k = n_states[a]
        post = size // (pre * k)
        then[:] = 0.0
        for i in range(pre):
            for x in range(k):
                for y in range(k):
                    p = channels[a, x, y]
                    if p > 0.0:
                        for j in range(post):
                            then[(i * k + y) * post + j] += p * now[(i * k + x) * post + j]
        now, then = then, now
        pre *= k
    total = 0.0
    for c in range(size):
        if counts[c] > 0:
            total += counts[c] * math.log(max(now[c], 1e-300))
    return total


@compiled
def log_prior_over_proposal(tilt: float, evidence: Floats) -> float:
    """Return the logarithm of the prior of a family's probabilities over their proposal's density; see the module.

    Args:
        tilt: sum over cells of surrogate counts times log probabilities.
        evidence: (scales,) the family's score by the surrogate counts times each of `SCALES`.
    """
    top = -math.inf
    for i in range(len(SCALES)):
        top = max(top, SCALES[i] * tilt - evidence[i])
    total = 0.0
    for i in range(len(SCALES)):
        total += _SHARES[i] * math.exp(SCALES[i] * tilt - evidence[i] - top)
    return -(top + math.log(total))


@compiled
def drawn_scale(stream: Masks) -> float:
    """Draw the scale of one proposal."""
    u = unit(stream)
    for i in range(len(SCALES) - 1):
        u -= _SHARES[i]
        if u < 0.0:
            return SCALES[i]
    return SCALES[-1]


@compiled
def log_dirichlet(  # noqa: PLR0917  # numba kernels take positions
    first: int, last: int, step: int, k: int, mass: Floats, theta: Floats
) -> float:
    """Return the logarithm of the density of a family's rows by their Dirichlet distributions; arguments as of `draw_rows`."""
    value = 0.0
    for base in range(first, last):
        if (base - first) // step % k:
            continue
        total = 0.0
        for x in range(k):
            cell = base + x * step
            total += mass[cell]
            value += (mass[cell] - 1.0) * theta[cell] - math.lgamma(mass[cell])
        value += math.lgamma(total)
    return value


@compiled
def masses_about(  # noqa: PLR0917  # numba kernels take positions
    key: int, records: float, pseudo: float, log_shares: Floats, index: Ints, places: Ints, mass: Floats
) -> None:
    """Write a prior count, and so many records shared out as a joint table is, to each cell of a key's table.

    Args:
        key: of a family.
        records: how many.
        pseudo: the prior's count.
        log_shares: (C,) logarithms of the probabilities of the true cells.
        index, places: see the module.
        mass: (cells of all keys,); written.
    """
    mass[places[key] : places[key + 1]] = pseudo
    for c in range(len(log_shares)):
        mass[index[key, c]] += records * math.exp(log_shares[c])


@compiled
def count_free(variable: int, below: np.uint64, starts: Ints, sets: Masks) -> int:
    """Count how many sets of a variable make no cycle; `below`: it and its descendants."""
    n = 0
    for s in range(starts[variable], starts[variable + 1]):
        n += sets[s] & below == np.uint64(0)
    return n


@compiled
def free_set(variable: int, below: np.uint64, starts: Ints, sets: Masks, stream: Masks) -> int:
    """Draw one of the sets of `count_free`, each as often as another."""
    aim = int(unit(stream) * count_free(variable, below, starts, sets))
    for s in range(starts[variable], starts[variable + 1]):
        if sets[s] & below == np.uint64(0):
            if aim == 0:
                return s
            aim -= 1
    return -1


@compiled
def move_near(  # noqa: PLR0917  # numba kernels take positions
    v: int,
    likelihood: float,
    starts: Ints,
    sets: Masks,
    prior: Floats,
    whole: Ints,
    pseudo: Floats,
    steps_in: Ints,
    n_states: Ints,
    index: Ints,
    places: Ints,
    channels: Floats,
    released_counts: Ints,
    worth: Floats,
    stream: Masks,
    at: Ints,
    parents: Masks,
    children: Masks,
    theta: Floats,
    log_shares: Floats,
    mass: Floats,
    other: Floats,
    new_log_shares: Floats,
    now_cells: Floats,
    then_cells: Floats,
) -> float:
    """Propose new parents and probabilities of one variable near those that it has, and accept them or not; see the module.

    Args:
        v: the variable.
        likelihood: of the released counts now, nats.
        worth: (keys,): how many true records tell about as much of a key's table as the released ones.
        parents, children: (d,) of the graph; changed.
        theta: (d, cells of all keys): logarithms of each family's probabilities; changed.
        log_shares: (C,) of the true cells; changed.
        mass, other, new_log_shares, now_cells, then_cells: written.

    The others are as of `rounds`.

    Returns:
        The likelihood afterwards.
    """
    set_parents(v, np.uint64(0), parents, children)
    old, new = at[v], free_set(v, with_descendants(v, children), starts, sets, stream)
    set_parents(v, np.uint64(sets[old]), parents, children)
    key, old_key, scale, k = whole[new], whole[old], drawn_scale(stream), int(n_states[v])
    first, last, step = int(places[key]), int(places[key + 1]), int(steps_in[new])
    old_first, old_last, old_step = int(places[old_key]), int(places[old_key + 1]), int(steps_in[old])
    masses_about(int(key), float(scale * worth[key]), float(pseudo[new]), log_shares, index, places, mass)
    draw_rows(first, last, step, k, mass, stream, other)
    gain = prior[new] - prior[old] - log_dirichlet(first, last, step, k, mass, other)
    mass[first:last] = pseudo[new]
    gain += log_dirichlet(first, last, step, k, mass, other)
    for c in range(len(log_shares)):
        new_log_shares[c] = log_shares[c] + other[index[key, c]] - theta[v, index[old_key, c]]
    masses_about(int(old_key), float(scale * worth[old_key]), float(pseudo[old]), new_log_shares, index, places, mass)
    gain += log_dirichlet(old_first, old_last, old_step, k, mass, theta[v])  # of the way back
    mass[old_first:old_last] = pseudo[old]
    gain -= log_dirichlet(old_first, old_last, old_step, k, mass, theta[v])
    after = log_likelihood(new_log_shares, released_counts, n_states, channels, now_cells, then_cells)
    if math.log(1.0 - unit(stream)) >= gain + after - likelihood:
        return likelihood
    at[v] = new
    log_shares[:] = new_log_shares
    theta[v, first:last] = other[first:last]
    set_parents(v, np.uint64(sets[new]), parents, children)
    return after


@compiled
def rounds(  # noqa: PLR0912, PLR0915, PLR0917  # numba kernels take positions and have their loops in one place
    n_steps: int,
    first_step: int,
    burn_in: int,
    every: int,
    length: int,
    exponent: float,
    shapes: Ints,
    nearby: Floats,
    starts: Ints,
    sets: Masks,
    prior: Floats,
    whole: Ints,
    rest: Ints,
    whole_term: Ints,
    rest_term: Ints,
    pseudo: Floats,
    term_key: Ints,
    term_pseudo: Floats,
    steps_in: Ints,
    n_states: Ints,
    index: Ints,
    places: Ints,
    channels: Floats,
    released_counts: Ints,
    surrogate: Floats,
    evidence: Floats,
    stream: Masks,
    at: Ints,
    true: Ints,
    kept_parents: Masks,
    kept_weight: Floats,
    kept_true: Ints,
) -> None:
    """Several steps of one chain.

    Args:
        n_steps, first_step, burn_in, every: see `kernels.run`.
        length: rounds of a step; see the module.
        exponent: the power of the weights of graphs.
        shapes, nearby: see `kernels.run`.
        starts, sets, prior: the sets of parents as they are listed, and the logarithm of the prior of each.
        whole, rest, whole_term, rest_term, pseudo: (sets,): its keys and terms, and the prior's count; see `cells`.
        term_key, term_pseudo: see `cells.sum_terms`.
        steps_in: (sets,): a step in the child, in cells of its family's table.
        n_states, index, places, channels, released_counts: see the module and `share_out`.
        surrogate: (cells of all keys,): counts of true records that tell about as much as the released ones.
        evidence: (sets, scales): the score of each family by the surrogate counts times each of `SCALES`.
        stream: (1,) of the random numbers; changed.
        at: (d,): where the set of each variable is listed; changed.
        true: (C,); changed.
        kept_parents, kept_weight: (n, d) and (n,), zero; written: the graphs that these rounds keep.
        kept_true: (n, C); written: the true counts that each of them was drawn with.
    """
    d, n_sets = len(n_states), len(sets)
    counts, theta, shares = np.zeros(places[-1], dtype=np.int64), np.zeros((d, places[-1])), np.empty(len(true))
    new_theta, variables, new = np.zeros((2, places[-1])), np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    terms, every_term = np.zeros(len(term_key)), np.arange(len(term_key))
    every_key = np.arange(len(places) - 1)
    masks, fraction, log_weight = np.empty(n_sets, dtype=np.uint64), np.empty(n_sets), np.empty(n_sets)
    power, order = np.zeros(n_sets, dtype=np.int64), np.zeros(n_sets, dtype=np.int64)
    where, now = np.empty(n_sets, dtype=np.int64), np.empty(d, dtype=np.int64)
    parents, children = np.empty(d, dtype=np.uint64), np.empty(d, dtype=np.uint64)
    log_shares, new_log_shares = np.empty(len(true)), np.empty(len(true))
    mass, other, now_cells, then_cells = (
        np.zeros(places[-1]),
        np.zeros(places[-1]),
        np.empty(len(true)),
        np.empty(len(true)),
    )
    worth = np.array([surrogate[places[t] : places[t + 1]].sum() for t in range(len(places) - 1)])
    draw = 0
    for t in range(n_steps * length):
        step = first_step + t // length
        tabulate(every_key, index, places, true, counts)
        sum_terms(counts, term_key, term_pseudo, places, every_term, terms)
        weigh(
            terms, whole_term, rest_term, prior, exponent, starts, sets, masks, fraction, power, log_weight, order
        )  # fmt: skip
        for s in range(n_sets):
            where[order[s]] = s
        children[:] = np.uint64(0)
        for v in range(d):
            now[v] = where[at[v]]
            parents[v] = sets[at[v]]
            for u in range(d):
                if (parents[v] >> np.uint64(u)) & _ONE:
                    children[u] |= _ONE << np.uint64(v)
        keeps = t % length == length - 1 and step + 1 > burn_in and (step + 1 - burn_in) % every == 0
        run(
            1, step, burn_in if keeps else step + 1, every, shapes, nearby, starts, masks, fraction, power, log_weight, stream,
            parents, children, now, kept_parents[draw : draw + 1], kept_weight[draw : draw + 1],
        )  # fmt: skip
        if keeps:
            kept_true[draw] = true
            draw += 1
        for v in range(d):
            at[v] = order[now[v]]
        log_shares[:] = 0.0
        for v in range(d):
            key = whole[at[v]]
            for cell in range(places[key], places[key + 1]):
                mass[cell] = pseudo[at[v]] + counts[cell]
            draw_rows(
                int(places[key]), int(places[key + 1]), int(steps_in[at[v]]), int(n_states[v]), mass, stream, theta[v]
            )
            for c in range(len(true)):
                log_shares[c] += theta[v, index[key, c]]
        likelihood = log_likelihood(log_shares, released_counts, n_states, channels, now_cells, then_cells)
        for turn in range(2 * d):
            variables[0] = turn % d
            m = 1 + turn // d if d > 1 else 1
            if m == 2:
                variables[1] = (variables[0] + 1 + int(unit(stream) * (d - 1))) % d
            gain = 0.0
            for i in range(m):
                set_parents(variables[i], np.uint64(0), parents, children)
            for i in range(m):
                below = with_descendants(variables[i], children)
                new[i] = free_set(variables[i], below, starts, sets, stream)
                gain += math.log(count_free(variables[i], below, starts, sets))
                set_parents(int(variables[i]), np.uint64(sets[new[i]]), parents, children)
            for i in range(m):
                set_parents(variables[i], np.uint64(0), parents, children)
            for i in range(m):  # how often the way back is proposed
                below = with_descendants(variables[i], children)
                gain -= math.log(count_free(variables[i], below, starts, sets))
                set_parents(int(variables[i]), np.uint64(sets[at[variables[i]]]), parents, children)
            new_log_shares[:] = log_shares
            for i in range(m):
                v, old, key = variables[i], whole[at[variables[i]]], whole[new[i]]
                scale = drawn_scale(stream)
                for cell in range(places[key], places[key + 1]):
                    mass[cell] = pseudo[new[i]] + scale * surrogate[cell]
                draw_rows(
                    int(places[key]), int(places[key + 1]), int(steps_in[new[i]]), int(n_states[v]), mass, stream, other
                )
                tilt, tilt_now = 0.0, 0.0
                for cell in range(places[key], places[key + 1]):
                    tilt += surrogate[cell] * other[cell]
                    new_theta[i, cell] = other[cell]
                for cell in range(places[old], places[old + 1]):
                    tilt_now += surrogate[cell] * theta[v, cell]
                gain += prior[new[i]] + log_prior_over_proposal(tilt, evidence[new[i]])
                gain -= prior[at[v]] + log_prior_over_proposal(tilt_now, evidence[at[v]])
                for c in range(len(true)):
                    new_log_shares[c] += other[index[key, c]] - theta[v, index[old, c]]
            after = log_likelihood(new_log_shares, released_counts, n_states, channels, now_cells, then_cells)
            gain += after - likelihood
            if math.log(1.0 - unit(stream)) < gain:
                likelihood = after
                log_shares[:] = new_log_shares
                for i in range(m):
                    set_parents(variables[i], np.uint64(0), parents, children)
                for i in range(m):
                    set_parents(int(variables[i]), np.uint64(sets[new[i]]), parents, children)
                    at[variables[i]] = new[i]
                    for cell in range(places[whole[new[i]]], places[whole[new[i]] + 1]):
                        theta[variables[i], cell] = new_theta[i, cell]
        for v in range(d):
            likelihood = move_near(
                v, likelihood, starts, sets, prior, whole, pseudo, steps_in, n_states, index, places, channels, released_counts,
                worth, stream, at, parents, children, theta, log_shares, mass, other, new_log_shares, now_cells, then_cells,
            )  # fmt: skip
        for c in range(len(true)):
            shares[c] = math.exp(log_shares[c])
        share_out(released_counts, shares, n_states, channels, stream, true)

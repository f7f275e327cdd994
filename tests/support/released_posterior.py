"""The exact posterior of graphs given released counts, by two methods that share nothing with the product's chains.

`by_importance`: p(Y | G) = E_q[p(Y | theta) p(theta | G) / q(theta)], Y the released counts, multinomial. q is a mixture of
Dirichlet distributions about the corrected counts, with the prior's tails: where a row is hardly seen, probabilities near 0
weigh, and a bell shape about the mode has too little there.

`by_augmentation`: graph and true counts drawn in turn, in plain numpy, many chains at a time (Tanner & Wong 1987).

Each says how far two halves of its work differ, so that a reference that has not settled is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp

from verticil.shared.core.arrays import Floats

Parents = tuple[int, ...]
"""A mask of parents for each variable."""

_SCALES, _SHARES = (1.0, 0.5, 0.15), (0.5, 0.3, 0.2)
_BATCH = 4000


def graphs(d: int = 3) -> list[Parents]:
    """All acyclic graphs: 25 of three variables, 543 of four."""
    found: list[Parents] = []
    for masks in itertools.product(*([m for m in range(2**d) if not m >> v & 1] for v in range(d))):
        placed = 0
        for _ in range(d):
            for v in range(d):
                if masks[v] & ~placed == 0:
                    placed |= 1 << v
        if placed == 2**d - 1:
            found.append(masks)
    return found


def equivalence(graph: Parents) -> tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int, int]]]:
    """Skeleton and v-structures: graphs that share both say the same about independence (Verma & Pearl 1990)."""
    parents = [[u for u in range(len(graph)) if mask >> u & 1] for mask in graph]
    skeleton = frozenset((min(u, v), max(u, v)) for v, own in enumerate(parents) for u in own)
    colliders = frozenset(
        (a, v, b) for v, own in enumerate(parents) for a, b in itertools.combinations(own, 2) if (a, b) not in skeleton
    )
    return skeleton, colliders


def corrected(released: Floats, channels: Sequence[Floats]) -> Floats:
    """True counts that explain the released ones best: 400 steps of the EM."""
    n, shares = released.sum(), np.full(released.shape, 1 / released.size)
    for _ in range(400):
        ratio = np.divide(released / n, _pushed(shares[None], channels)[0], where=released > 0, out=0.0 * shares)
        for v, channel in enumerate(channels):
            ratio = np.moveaxis(np.moveaxis(ratio, v, -1) @ channel.T, -1, v)
        shares = shares * ratio
    true: Floats = n * shares
    return true


def by_importance(
    released: Floats, channels: Sequence[Floats], score: str, *, draws: int, seed: int
) -> tuple[Floats, float]:
    """The probability of each graph of `graphs`, and the total variation between the two halves of the draws.

    Args:
        released: (K_1, .., K_d).
        channels: rows true, columns released, of each variable.
        score: ``bdeu`` or ``dirichlet``; graphs are alike before any data.
        draws: of each graph; with BDeu of each class of graphs that say the same.
        seed: of the proposals.
    """
    every, rng = graphs(released.ndim), np.random.default_rng(seed)
    true = corrected(released, channels)
    left = []
    for v, channel in enumerate(channels):
        margin = true.sum(axis=tuple(u for u in range(true.ndim) if u != v)) / true.sum()
        share = (margin[:, None] * channel**2 / np.maximum(margin @ channel, 1e-300)).sum() - 1
        left.append(share / (len(channel) - 1))
    known: dict[object, list[float]] = {}
    for graph in every:
        key = equivalence(graph) if score == "bdeu" else graph
        if key not in known:
            known[key] = [_evidence(released, channels, graph, score, true, left, draws // 2, rng) for _ in range(2)]
    halves = np.array([known[equivalence(graph) if score == "bdeu" else graph] for graph in every]).T
    each = [np.exp(half - logsumexp(half)) for half in halves]
    whole = logsumexp(halves, axis=0)
    return np.exp(whole - logsumexp(whole)), float(0.5 * np.abs(each[0] - each[1]).sum())


def _evidence(
    released: Floats,
    channels: Sequence[Floats],
    graph: Parents,
    score: str,
    true: Floats,
    left: Sequence[float],
    draws: int,
    rng: np.random.Generator,
) -> float:
    d, parts = released.ndim, []
    for start in range(0, draws, _BATCH):
        m = min(_BATCH, draws - start)
        scale = rng.choice(_SCALES, size=m, p=_SHARES)
        log_shares, log_prior, log_q = np.zeros((m, *released.shape)), np.zeros(m), np.zeros((len(_SCALES), m))
        for v in range(d):
            members = [u for u in range(d) if graph[v] >> u & 1 or u == v]
            table = true.sum(axis=tuple(u for u in range(d) if u not in members))
            table = np.moveaxis(table, members.index(v), -1)
            rows = np.prod([left[u] for u in members]) * table.reshape(-1, released.shape[v])
            a = 1 / rows.size if score == "bdeu" else 1.0
            mass = a + scale[:, None, None] * rows
            # Gamma(a) = Gamma(a + 1) U^(1/a), in logs: a may be a hundredth
            logs = np.log(rng.standard_gamma(mass + 1)) + np.log(1 - rng.random(mass.shape)) / mass
            theta = logs - logsumexp(logs, axis=2, keepdims=True)
            for place, c in enumerate(_SCALES):
                log_q[place] += _dirichlet(a + c * rows, theta)
            log_prior += _dirichlet(np.full(rows.shape, a), theta)
            theta = np.moveaxis(theta.reshape(m, *table.shape), -1, 1 + members.index(v))
            log_shares += theta[(slice(None), *(slice(None) if u in members else None for u in range(d)))]
        likelihood = (np.log(np.maximum(_pushed(np.exp(log_shares), channels), 1e-300)) * released).reshape(m, -1)
        parts.append(likelihood.sum(axis=1) + log_prior - logsumexp(log_q, axis=0, b=np.array(_SHARES)[:, None]))
    return float(logsumexp(np.concatenate(parts)) - np.log(draws))


def _dirichlet(mass: Floats, theta: Floats) -> Floats:
    density: Floats = (gammaln(mass.sum(axis=1)) - gammaln(mass).sum(axis=1)).sum() + ((mass - 1) * theta).sum((1, 2))
    return density


def _pushed(shares: Floats, channels: Sequence[Floats]) -> Floats:
    for v, channel in enumerate(channels, start=1):
        shares = np.moveaxis(np.moveaxis(shares, v, -1) @ channel, -1, v)
    return shares


def by_augmentation(
    released: Floats, channels: Sequence[Floats], score: str, *, sweeps: int, seed: int, chains: int = 32
) -> tuple[Floats, float]:
    """The same by chains: half of them begin at the corrected counts, half at counts without dependence; see `by_importance`."""
    every, rng, shape = np.array(graphs(released.ndim)), np.random.default_rng(seed), released.shape
    d, size = released.ndim, released.size
    confused: Floats = np.ones((1, 1))
    for channel in channels:
        confused = np.asarray(np.kron(confused, channel), dtype=np.float64)
    joint = corrected(released, channels).ravel() / released.sum()
    apart = np.ones(shape)
    for v in range(d):
        apart = apart * joint.reshape(shape).sum(axis=tuple(u for u in range(d) if u != v), keepdims=True)
    shares = np.where(np.arange(chains)[:, None] % 2 == 0, joint, apart.ravel()) + 1e-12
    counted = np.zeros((2, len(every)))
    for sweep in range(sweeps):
        weights = shares[:, None, :] * confused.T  # (chains, released, true)
        weights /= weights.sum(axis=2, keepdims=True)
        true = rng.multinomial(released.ravel().astype(np.int64), weights).sum(axis=1).reshape(chains, *shape)
        value = np.zeros((chains, len(every)))
        tables: dict[tuple[int, int], Floats] = {}
        for v in range(d):
            for mask in np.unique(every[:, v]).tolist():
                members = [u for u in range(d) if mask >> u & 1 or u == v]
                table = true.sum(axis=tuple(1 + u for u in range(d) if u not in members))
                table = np.moveaxis(table, 1 + members.index(v), -1).reshape(chains, -1, shape[v])
                a = 1 / table[0].size if score == "bdeu" else 1.0
                k = shape[v]
                nats = (gammaln(a + table) - gammaln(a)).sum((1, 2))
                nats -= (gammaln(a * k + table.sum(axis=2)) - gammaln(a * k)).sum(axis=1)
                value[:, every[:, v] == mask] += nats[:, None]
                tables[v, mask] = table + a
        chosen = (value + rng.gumbel(size=value.shape)).argmax(axis=1)
        if sweep >= sweeps // 5:
            for half in (0, 1):
                counted[half] += np.bincount(chosen[half::2], minlength=len(every))
        logs = np.zeros((chains, *shape))
        for v in range(d):
            for mask in np.unique(every[chosen, v]).tolist():
                here = np.flatnonzero(every[chosen, v] == mask)
                mass = tables[v, mask][here]
                theta = np.log(rng.standard_gamma(mass + 1)) + np.log(1 - rng.random(mass.shape)) / mass
                theta -= logsumexp(theta, axis=2, keepdims=True)
                members = [u for u in range(d) if mask >> u & 1 or u == v]
                others = [shape[u] for u in members if u != v]
                theta = np.moveaxis(theta.reshape(len(here), *others, shape[v]), -1, 1 + members.index(v))
                logs[here] += theta[(slice(None), *(slice(None) if u in members else None for u in range(d)))]
        shares = np.exp(logs).reshape(chains, size) + 1e-300
    each = counted / counted.sum(axis=1, keepdims=True)
    whole = counted.sum(axis=0)
    return whole / whole.sum(), float(0.5 * np.abs(each[0] - each[1]).sum())

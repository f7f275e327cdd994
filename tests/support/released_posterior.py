"""The exact posterior of graphs given released counts, by methods that share nothing with the product's chains.

`by_importance`: p(Y | G) = E_q[p(Y | theta) p(theta | G) / q(theta)], Y the released counts, multinomial. q is a mixture of
Dirichlet distributions about the corrected counts, with the prior's tails: where a row is hardly seen, probabilities near 0
weigh, and a bell shape about the mode has too little there.

`by_augmentation`: graph and true counts drawn in turn, in plain numpy, many chains at a time (Tanner & Wong 1987).

`by_annealing`: p(Y | G) by the product's `anneal`, with other efforts and seeds, until two efforts agree;
`tests/unit/test_annealing.py` holds that to closed forms and to `by_augmentation`.

Each says how far two halves of its work differ, so that a reference that has not settled is none. Importance sampling, if it is
asked, is none either where the weights of a graph have too long a tail (Vehtari, Simpson, Gelman, Yao & Gabry 2024: k above .7):
halves can agree there, and both be too small, by 50 nats for three columns of five categories. So the tails of all graphs within
60 nats of the best are looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.posterior.annealing import AnnealedFamily, anneal

Parents = tuple[int, ...]
"""A mask of parents for each variable."""

_SCALES, _SHARES = (1.0, 0.5, 0.15), (0.5, 0.3, 0.2)
LONG_TAIL = 0.7
_FIRST = (4, 2)
_LEVELS = ((10, 10), (25, 25), (50, 60))
_FAR = 60.0  # nats below the best from which on the tail of a graph's weights says nothing


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
    released: Floats, channels: Sequence[Floats], score: str, *, draws: int, seed: int, by_tails: bool = False
) -> tuple[Floats, float]:
    """The probability of each graph of `graphs`, and the total variation between the two halves of the draws.

    Args:
        released: (K_1, .., K_d).
        channels: rows true, columns released, of each variable.
        score: ``bdeu`` or ``dirichlet``; graphs are alike before any data.
        draws: of each graph; with BDeu of each class of graphs that say the same.
        seed: of the proposals.
        by_tails: where the weights of a graph that counts have a long tail, the second value is 1.
    """
    every, true = graphs(released.ndim), corrected(released, channels)
    left = [_left(true, v, channel) for v, channel in enumerate(channels)]
    drawn, confused = _Draws(true, left, score, draws, seed), _joint_channel(channels)
    known: dict[object, tuple[float, float, float]] = {}
    for graph in every:
        key = equivalence(graph) if score == "bdeu" else graph
        if key not in known:
            weights = drawn.weights(graph, released, confused)
            first, second = (logsumexp(half) - np.log(draws // 2) for half in np.array_split(weights, 2))
            known[key] = (float(first), float(second), tail_of(weights))
    *halves, tails = np.array([known[equivalence(graph) if score == "bdeu" else graph] for graph in every]).T
    each = [np.exp(half - logsumexp(half)) for half in halves]
    whole = logsumexp(halves, axis=0)
    probability = np.exp(whole - logsumexp(whole))
    if by_tails and tails[whole > whole.max() - _FAR].max() > LONG_TAIL:
        return probability, 1.0
    return probability, float(0.5 * np.abs(each[0] - each[1]).sum())


def tail_of(log_weights: Floats) -> float:
    """The shape k of the generalised Pareto distribution of the largest weights (Zhang & Stephens 2009)."""
    ranked = np.sort(np.exp(log_weights - log_weights.max()))
    n = int(min(0.2 * len(ranked), 3 * np.sqrt(len(ranked))))
    above = ranked[-n:] - ranked[-n - 1]
    above = above[above > 0]
    if (n := len(above)) < 5:
        return 0.0 if np.ptp(ranked) < 1e-12 else np.inf
    places = 1 - np.sqrt((30 + int(np.sqrt(n))) / (np.arange(30 + int(np.sqrt(n))) + 0.5))
    rates = 1 / above[-1] + places / (3 * above[int(n / 4 + 0.5) - 1])
    shapes = np.log1p(-rates[:, None] * above).mean(axis=1)
    fits = n * (np.log(-rates / shapes) - shapes - 1)
    share = np.exp(fits - logsumexp(fits))
    return float((n * np.log1p(-float(share @ rates) * above).mean() + 5) / (n + 10))


def by_annealing(
    released: Floats, channels: Sequence[Floats], score: str, *, seed: int, enough: float = 0.004, work: float = 2e9
) -> tuple[Floats, float]:
    """The same by annealing with two chains, at two efforts; what it says of itself is the most that either pair differs by.

    There is no greater effort where two differ by no more than `enough`, nor where it would look at more than `work` cells; after
    one effort alone what it says of itself is 1. A small effort chooses graphs to begin with.
    """
    every, true = graphs(released.ndim), corrected(released, channels)
    left = [_left(true, v, channel) for v, channel in enumerate(channels)]
    classes: dict[object, list[int]] = {}
    for place, graph in enumerate(every):
        classes.setdefault(equivalence(graph), []).append(place)
    before, now = np.full((2, len(every), 2), -np.inf)
    waiting, whole, apart, spent = list(classes.values()), np.zeros(len(every)), 1.0, 0.0
    levels = (_FIRST, *_LEVELS)
    for level, (particles, sweeps) in enumerate(levels):
        if level > 0 and len(waiting) * particles * sweeps * spent > work:
            break
        rng, spent, before = np.random.default_rng([seed, level]), 0.0, now.copy()
        for places in waiting:
            families = [_families(every[place], true, left, score) for place in places]
            made = anneal(released, channels, families[0], chains=2, particles=particles, sweeps=sweeps, rng=rng)
            moves = made.moves
            for place, own in zip(places, families, strict=True):
                run = made if score == "bdeu" else made.tilted(families[0], own)
                if run.worth < 0.7 * made.worth:
                    run = anneal(released, channels, own, chains=2, particles=particles, sweeps=sweeps, rng=rng)
                now[place] = run.evidence
                moves += run.moves if run is not made else 0
            spent += 2 * moves * (released.size + 33) / sweeps / len(waiting)
        one, other, whole = (np.exp(value - logsumexp(value)) for value in (*now.T, logsumexp(now, axis=1)))
        if level > 1:
            last = np.exp(logsumexp(before, axis=1) - logsumexp(before))
            apart = 0.5 * float(max(np.abs(one - other).sum(), np.abs(whole - last).sum()))
            if apart <= enough:
                break
        margin = 12 if level > 0 else 24
        reach = now.max(axis=1) + 3 * np.abs(now[:, 0] - now[:, 1]) > now.mean(axis=1).max() - margin
        waiting = [places for places in waiting if reach[places].any()]
    return whole, apart


def _left(true: Floats, v: int, channel: Floats) -> float:
    """What the randomization leaves of a column's contrasts."""
    margin = true.sum(axis=tuple(u for u in range(true.ndim) if u != v)) / true.sum()
    share = (margin[:, None] * channel**2 / np.maximum(margin @ channel, 1e-300)).sum() - 1
    return float(share / (len(channel) - 1))


def _families(graph: Parents, true: Floats, left: Sequence[float], score: str) -> list[AnnealedFamily]:
    made: list[AnnealedFamily] = []
    for v, mask in enumerate(graph):
        members = [u for u in range(true.ndim) if mask >> u & 1 or u == v]
        table = true.sum(axis=tuple(u for u in range(true.ndim) if u not in members), keepdims=True)
        surrogate = np.prod([left[u] for u in members]) * table
        made.append(
            AnnealedFamily(
                child=v,
                parents=tuple(u for u in members if u != v),
                pseudo=1 / table.size if score == "bdeu" else 1.0,
                surrogate=surrogate,
            )
        )
    return made


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawn:
    """Probabilities of a family that were drawn.

    Attributes:
        theta: their logarithms, (draws, cells), 1 for variables outside the family.
        prior: (draws,) log density.
        proposal: (scales, draws) log density.
    """

    theta: Floats
    prior: Floats
    proposal: Floats


class _Draws:
    """Draws of the families of all graphs: a family has the same ones in each graph, of the same scales."""

    def __init__(self, true: Floats, left: Sequence[float], score: str, draws: int, seed: int) -> None:
        self.true, self.left, self.score, self.seed = true, left, score, seed
        self.scale = np.random.default_rng(seed).choice(_SCALES, size=draws, p=_SHARES)
        self.known: dict[tuple[int, int], _Drawn] = {}

    def of(self, v: int, mask: int) -> _Drawn:
        """Return those of a family."""
        if (v, mask) not in self.known:
            self.known[v, mask] = self._draw(v, mask)
        return self.known[v, mask]

    def _draw(self, v: int, mask: int) -> _Drawn:
        true, d, m = self.true, self.true.ndim, len(self.scale)
        rng = np.random.default_rng([self.seed, v, mask])
        members = [u for u in range(d) if mask >> u & 1 or u == v]
        table = np.moveaxis(true.sum(axis=tuple(u for u in range(d) if u not in members)), members.index(v), -1)
        rows = np.prod([self.left[u] for u in members]) * table.reshape(-1, true.shape[v])
        a = 1 / rows.size if self.score == "bdeu" else 1.0
        mass = a + self.scale[:, None, None] * rows
        # Gamma(a) = Gamma(a + 1) U^(1/a), in logs: a may be a hundredth
        logs = np.log(rng.standard_gamma(mass + 1)) + np.log(1 - rng.random(mass.shape)) / mass
        logs -= logsumexp(logs, axis=2, keepdims=True)
        proposal = np.stack([_dirichlet(a + c * rows, logs) for c in _SCALES])
        prior = _dirichlet(np.full(rows.shape, a), logs)
        logs = np.moveaxis(logs.reshape(m, *table.shape), -1, 1 + members.index(v))
        shape = tuple(k if u in members else 1 for u, k in enumerate(true.shape))
        return _Drawn(theta=logs.reshape(m, *shape), prior=prior, proposal=proposal)

    def weights(self, graph: Parents, released: Floats, confused: Floats) -> Floats:
        """The logarithms of the weights of a graph's draws; `confused` true by released cells."""
        families = [self.of(v, mask) for v, mask in enumerate(graph)]
        log_shares = np.zeros((len(self.scale), *released.shape))
        for family in families:
            log_shares += family.theta
        after = np.exp(log_shares, out=log_shares).reshape(len(self.scale), -1) @ confused
        likelihood = np.log(np.maximum(after, 1e-300)) @ released.ravel()
        prior = np.sum([family.prior for family in families], axis=0)
        proposal = np.sum([family.proposal for family in families], axis=0)
        made: Floats = likelihood + prior - logsumexp(proposal, axis=0, b=np.array(_SHARES)[:, None])
        return made


def _dirichlet(mass: Floats, theta: Floats) -> Floats:
    density: Floats = (gammaln(mass.sum(axis=1)) - gammaln(mass).sum(axis=1)).sum() + ((mass - 1) * theta).sum((1, 2))
    return density


def _joint_channel(channels: Sequence[Floats]) -> Floats:
    """True by released cells of the joint table."""
    confused: Floats = np.ones((1, 1))
    for channel in channels:
        confused = np.asarray(np.kron(confused, channel), dtype=np.float64)
    return confused


def _pushed(shares: Floats, channels: Sequence[Floats]) -> Floats:
    for v, channel in enumerate(channels, start=1):
        shares = np.moveaxis(np.moveaxis(shares, v, -1) @ channel, -1, v)
    return shares


def by_augmentation(
    released: Floats,
    channels: Sequence[Floats],
    score: str,
    *,
    sweeps: int,
    seed: int,
    chains: int = 32,
    enough: float = 0.0,
) -> tuple[Floats, float]:
    """The same by chains: half of them begin at the corrected counts, half at counts without dependence; see `by_importance`.

    At a half and at three quarters of the sweeps it ends where the halves differ by no more than `enough`.
    """
    every, rng, shape = np.array(graphs(released.ndim)), np.random.default_rng(seed), released.shape
    d, size = released.ndim, released.size
    confused = _joint_channel(channels)
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
        if sweep in {sweeps // 2, sweeps * 3 // 4} and _differ(counted) <= enough:
            break
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
    whole = counted.sum(axis=0)
    return whole / whole.sum(), _differ(counted)


def _differ(counted: Floats) -> float:
    """The total variation between two rows of counts."""
    each = counted / counted.sum(axis=1, keepdims=True)
    return float(0.5 * np.abs(each[0] - each[1]).sum())

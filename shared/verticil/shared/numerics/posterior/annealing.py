"""How probable released counts are given a graph, all probabilities integrated out: by annealing (Neal 2001; Del Moral, Doucet &
Jasra 2006).

Of a graph's families the probabilities theta have the prior p(theta), Dirichlet(a) in each row, and Y, the released counts, the
likelihood L(theta). Particles begin as draws of Dirichlet(a + M), M counts of true records that tell about as much as the
released ones, and go in stages b from 0 to 1 along

    p(theta) exp((1 - b) sum M log theta) L(theta)^b,

each stage so much further that the weights of a chain's particles are worth nine in ten of them. A stage has as many even parts
as sweeps, and a sweep moves theta after each: estimates spread less than with all sweeps at its end. At b = 0 the integral is
that of a Dirichlet distribution; the product of the mean weights of all parts, times that, is an estimate of p(Y | graph) without
bias, and the particles are theta given Y and the graph. Chains have particles of their own.

A sweep moves theta along lines: of a family the cells of a cube are taken, two categories of the child and two of each of
some parents, with signs by parity and each row over its probability, so that what the cells left out have in common stays as it
is. On the line prior and likelihood are known up to a constant; a step is a random one of the logit of the place between the two
ends, of a scale that is drawn, too: with a far below 1 most of the mass lies at the ends, where a cell is next to empty. So a
move costs the cells of the table whatever the number of records, and noise makes it no slower. True counts that are drawn in
turn with theta move by the share of a record that the randomization leaves of all columns together, which is thousands of turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.numerics.posterior.line_moves import TINY, move_family, padded
from verticil.shared.numerics.posterior.tuning import TUNING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnnealedFamily:
    """A family of a graph: its prior and its first proposal.

    Attributes:
        child: the variable.
        parents: of it, ascending.
        pseudo: the prior's count in each cell.
        surrogate: M, (K_1, .., K_d), 1 for variables that are not of the family.
    """

    child: int
    parents: tuple[int, ...]
    pseudo: float
    surrogate: Floats

    @property
    def members(self) -> tuple[int, ...]:
        """Variables of the family, ascending."""
        return tuple(sorted((*self.parents, self.child)))

    def evidence(self) -> float:
        """Return the score of the surrogate counts, nats."""
        a, m, k = self.pseudo, self.surrogate, self.surrogate.shape[self.child]
        rows = m.sum(axis=self.child)
        return float((gammaln(a + m) - gammaln(a)).sum() - (gammaln(k * a + rows) - gammaln(k * a)).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Annealed:
    """What annealing leaves of a graph.

    Attributes:
        evidence: (chains,) estimates of the logarithm of p(Y | graph), nats.
        shares: (chains, particles, K_1, .., K_d): the probabilities of the true cells by each particle.
        weight: (chains, particles): what a particle counts in its chain; of each the sum is 1.
        moves: of each particle.
    """

    evidence: Floats
    shares: Floats
    weight: Floats
    moves: int

    @property
    def worth(self) -> float:
        """How many particles of one weight tell as much, of all chains together."""
        return float((1 / (self.weight**2).sum(axis=1)).sum())

    def tilted(self, families: Sequence[AnnealedFamily], others: Sequence[AnnealedFamily]) -> Annealed:
        """Return the same particles for another graph that says the same about independence; see `log_density`."""
        shares = self.shares.reshape(-1, *self.shares.shape[2:])
        ratio = (log_density(shares, others) - log_density(shares, families)).reshape(self.weight.shape)
        value = np.log(np.maximum(self.weight, TINY)) + ratio
        total = np.logaddexp.reduce(value, axis=1)
        weight = np.exp(value - total[:, None])
        return Annealed(evidence=self.evidence + total, shares=self.shares, weight=weight, moves=0)


def log_density(shares: Floats, families: Sequence[AnnealedFamily]) -> Floats:
    """Return the log density of joint probabilities by a graph's prior, nats, up to what all graphs of its class share.

    Graphs that say the same about independence are models of the same joint distributions; they differ by the prior of these.
    From one to another an edge u -> v turns round whose two ends have the same other parents. So the density of the probabilities
    of the families over that of the joint ones is the product of P(row)^(K - 1) over the rows of all families, K categories of
    the child (Geiger & Heckerman 1997, where all edges are there). By BDeu's prior the densities are the same.

    Args:
        shares: (n, K_1, .., K_d).
        families: of the graph, one of each variable.
    """
    value = np.zeros(len(shares))
    for family in families:
        outside = tuple(1 + u for u in range(shares.ndim - 1) if u not in family.members)
        cells = np.log(np.maximum(shares.sum(axis=outside, keepdims=True), TINY))
        rows = np.logaddexp.reduce(cells, axis=1 + family.child, keepdims=True)
        k, a = shares.shape[1 + family.child], family.pseudo
        within = (a - 1) * (cells - rows).reshape(len(shares), -1).sum(axis=1)
        value += within - (k - 1) * rows.reshape(len(shares), -1).sum(axis=1)
        value += rows[0].size * (gammaln(k * a) - k * gammaln(a))
    return value


class Particles:
    """Probabilities of all families of a graph, for all particles of all chains; see the module."""

    def __init__(
        self,
        counts: Floats,
        channels: Sequence[Floats],
        families: Sequence[AnnealedFamily],
        n: int,
        rng: np.random.Generator,
    ) -> None:
        self.families, self.n, self.shape, self.moves = families, n, counts.shape, 0
        self.released = np.zeros(padded(counts.size))
        self.released[: counts.size] = counts.ravel()
        self.channels = np.zeros((counts.ndim, max(counts.shape), max(counts.shape)))
        for v, channel in enumerate(channels):
            self.channels[v, : len(channel), : len(channel)] = channel
        self.stream = rng.integers(0, 2**63, size=1, dtype=np.uint64)
        self.logs: list[Floats] = []
        for family in families:
            mass = np.broadcast_to(family.pseudo + family.surrogate, (n, *family.surrogate.shape))
            # Gamma(a) = Gamma(a + 1) U^(1/a), in logs: a may be a hundredth
            logs = np.log(rng.standard_gamma(mass + 1)) + np.log(1 - rng.random(mass.shape)) / mass
            self.logs.append(logs - np.logaddexp.reduce(logs, axis=1 + family.child, keepdims=True))
        self.renew()

    def renew(self) -> None:
        """Compute from the logarithms what follows from them."""
        self.logs = [np.ascontiguousarray(logs) for logs in self.logs]
        self.theta = [np.exp(logs) for logs in self.logs]
        self.after = np.ones((self.n, len(self.released)))
        shares = self.shares()
        for v, k in enumerate(self.shape):
            shares = np.moveaxis(np.moveaxis(shares, 1 + v, -1) @ self.channels[v, :k, :k], -1, 1 + v)
        cells = math.prod(self.shape)
        self.after[:, :cells] = shares.reshape(self.n, cells)
        self.fit = np.log(np.maximum(self.after, TINY)) @ self.released

    def shares(self) -> Floats:
        """(n, K_1, .., K_d), of the true cells."""
        shares = np.ones((self.n, *self.shape))
        for theta in self.theta:
            shares *= theta
        return shares

    def height(self) -> Floats:
        """(n,): how the logarithm of the density changes with the stage."""
        tilt = np.zeros(self.n)
        for family, logs in zip(self.families, self.logs, strict=True):
            tilt += (family.surrogate * logs).reshape(self.n, -1).sum(axis=1)
        return self.fit - tilt

    def choose(self, which: Ints) -> None:
        """Keep some particles, in this order."""
        self.logs = [logs[which] for logs in self.logs]
        self.renew()

    def sweep(self, stage: Floats, rng: np.random.Generator) -> None:
        """Move each cell of each family about once; `stage`, (n,), of each particle."""
        for f in rng.permutation(len(self.families)).tolist():
            self.move(f, stage)
        self.renew()

    def move(self, f: int, stage: Floats) -> None:
        """Move each particle along lines of the probabilities of family `f`; `stage`, (n,), of each particle."""
        family, d = self.families[f], len(self.shape)
        outside = tuple(1 + u for u in range(d) if u not in family.parents)
        rest = np.ones((self.n, *self.shape))
        for g, theta in enumerate(self.theta):
            if g != f:
                rest *= theta
        rows = (rest * self.theta[f]).sum(axis=outside).reshape(self.n, -1)
        lines = max(family.surrogate.size, TUNING.least_family_moves)
        self.moves += lines
        move_family(
            lines,
            family.child,
            np.array([u in family.members for u in range(d)], dtype=np.int64),
            np.array(self.shape, dtype=np.int64),
            family.pseudo,
            min(each.pseudo for each in self.families),
            family.surrogate.ravel(),
            stage,
            self.logs[f].reshape(self.n, -1),
            self.theta[f].reshape(self.n, -1),
            rest.reshape(self.n, -1),
            rows,
            self.channels,
            self.released,
            self.after,
            self.fit,
            self.stream,
        )


def anneal(
    counts: Floats,
    channels: Sequence[Floats],
    families: Sequence[AnnealedFamily],
    *,
    chains: int,
    particles: int,
    sweeps: int,
    rng: np.random.Generator,
) -> Annealed:
    """Estimate how probable released counts are given a graph; see the module.

    Args:
        counts: (K_1, .., K_d).
        channels: rows true, columns released, of each variable.
        families: of the graph, one of each variable in their order.
        chains: independent estimates.
        particles: of each.
        sweeps: of a stage.
        rng: of everything; advanced.
    """
    n = chains * particles
    swarm = Particles(counts, channels, families, n, rng)
    evidence = np.full(chains, sum(family.evidence() for family in families))
    stage, log_weight = np.zeros(chains), np.full((chains, particles), -math.log(particles))
    while (stage < 1).any():
        height = swarm.height().reshape(chains, particles)
        steps = [_step(height[c], np.exp(log_weight[c]), 1 - stage[c]) for c in range(chains)]
        ends = np.where(stage + steps < 1, stage + steps, 1.0)
        for turn in range(sweeps):
            if turn > 0:
                height = swarm.height().reshape(chains, particles)
            step = (ends - stage) / (sweeps - turn)
            stage = ends if turn + 1 == sweeps else stage + step
            log_weight += step[:, None] * height
            total = np.logaddexp.reduce(log_weight, axis=1)
            evidence += total
            log_weight -= total[:, None]
            weight = np.exp(log_weight)
            few = 1 / (weight**2).sum(axis=1) < TUNING.resampled_share * particles
            if few.any():
                which = np.arange(n).reshape(chains, particles)
                for c in np.flatnonzero(few).tolist():
                    marks = (rng.random() + np.arange(particles)) / particles
                    which[c] = c * particles + np.searchsorted(np.cumsum(weight[c]), marks).clip(0, particles - 1)
                    log_weight[c] = -math.log(particles)
                swarm.choose(which.ravel())
            swarm.sweep(np.repeat(stage, particles), rng)
    return Annealed(
        evidence=evidence,
        shares=swarm.shares().reshape(chains, particles, *counts.shape),
        weight=np.exp(log_weight),
        moves=swarm.moves,
    )


def _step(height: Floats, weight: Floats, most: float) -> float:
    """Return how much further the next stage is, at most `most`: the weights are worth `TUNING.stage_worth` of the particles."""

    def worth(step: float) -> float:
        gain = np.exp(step * (height - height.max()))
        return float((weight @ gain) ** 2 / (weight @ gain**2))

    if most <= 0 or worth(most) >= TUNING.stage_worth:
        return most
    low, high = 0.0, most
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if worth(middle) >= TUNING.stage_worth else (low, middle)
    return low

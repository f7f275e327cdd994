"""How probable released counts are given a graph, all probabilities integrated out: by annealing (Neal 2001; Del Moral, Doucet &
Jasra 2006).

Of a graph's families the probabilities theta have the prior p(theta), Dirichlet(a) in each row, and Y, the released counts, the
likelihood L(theta). Particles begin as draws of Dirichlet(a + M), M counts of true records that tell about as much as the
released ones, and go in stages b from 0 to 1 along

    p(theta) exp((1 - b) sum M log theta) L(theta)^b,

each stage so much further that the weights of a chain's particles are worth nine in ten of them. At b = 0 the integral is that
of a Dirichlet distribution; the product of the mean weights of all stages, times that, is an estimate of p(Y | graph) without
bias, and the particles are theta given Y and the graph. Chains have particles of their own.

Between stages theta moves along lines: of a family the cells of a cube are taken, two categories of the child and two of each of
some parents, with signs by parity and each row over its probability, so that what the cells left out have in common stays as it
is. On the line prior and likelihood are known up to a constant; a step is a random one of the logit of the place between the two
ends, of a scale that is drawn, too: with a far below 1 most of the mass lies at the ends, where a cell is next to empty. So a
move costs the cells of the table whatever the number of records, and noise makes it no slower. True counts that are drawn in
turn with theta move by the share of a record that the randomization leaves of all columns together, which is thousands of turns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import gammaln

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.numerics.posterior.tuning import TUNING

_TINY: Final = 1e-300
_FAINT: Final = -600.0  # log length of a line from which on nothing on it changes the likelihood


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
        shares: (chains, particles, C): the probabilities of the true cells by each particle.
        weight: (chains, particles): what a particle counts in its chain; of each the sum is 1.
        moves: of each particle.
    """

    evidence: Floats
    shares: Floats
    weight: Floats
    moves: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lines:
    """A line of each of n particles.

    Attributes:
        places: (m, n): the cells whose probabilities change.
        weight: (m, n): by how much.
        moved: (n, C): how the released cells' probabilities change; it may be written to.
    """

    places: Ints
    weight: Floats
    moved: Floats


class _Particles:
    """Probabilities of all families of a graph, for all particles of all chains; see the module."""

    def __init__(
        self,
        counts: Floats,
        channels: Sequence[Floats],
        families: Sequence[AnnealedFamily],
        n: int,
        rng: np.random.Generator,
    ) -> None:
        self.released, self.channels, self.families, self.rng, self.n = counts.ravel(), channels, families, rng, n
        self.shape, self.every, self.moves = counts.shape, np.arange(n), 0
        self.logs: list[Floats] = []
        for family in families:
            mass = np.broadcast_to(family.pseudo + family.surrogate, (n, *family.surrogate.shape))
            # Gamma(a) = Gamma(a + 1) U^(1/a), in logs: a may be a hundredth
            logs = np.log(rng.standard_gamma(mass + 1)) + np.log(1 - rng.random(mass.shape)) / mass
            self.logs.append(logs - np.logaddexp.reduce(logs, axis=1 + family.child, keepdims=True))
        self.renew()

    def renew(self) -> None:
        """Compute from the logarithms what follows from them."""
        self.theta = [np.exp(logs) for logs in self.logs]
        self.after = self._push(self.shares())
        self.room = self.after.copy()
        self.fit = self.likelihood(self.room)

    def shares(self) -> Floats:
        """(n, K_1, .., K_d), of the true cells."""
        shares = np.ones((self.n, *self.shape))
        for theta in self.theta:
            shares *= theta
        return shares

    def _push(self, shares: Floats) -> Floats:
        """(n, C), of the released cells."""
        for v, channel in enumerate(self.channels, start=1):
            shares = np.moveaxis(np.moveaxis(shares, v, -1) @ channel, -1, v)
        return shares.reshape(self.n, -1)

    def likelihood(self, after: Floats) -> Floats:
        """(n,), nats; `after` of the released cells, which is lost."""
        np.maximum(after, _TINY, out=after)
        return np.asarray(np.einsum("ij,j->i", np.log(after, out=after), self.released), dtype=np.float64)

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

    def sweep(self, stage: Floats) -> None:
        """Move each cell of each family about once; `stage`, (n,), of each particle."""
        for f in self.rng.permutation(len(self.families)).tolist():
            self._moves(f, stage)
        self.renew()

    def _moves(self, f: int, stage: Floats) -> None:
        family, rng, n, d = self.families[f], self.rng, self.n, len(self.shape)
        shape, child = family.surrogate.shape, family.child
        rest = np.ones((n, *self.shape))
        for g, theta in enumerate(self.theta):
            if g != f:
                rest *= theta
        rows = (rest * self.theta[f]).sum(axis=tuple(1 + u for u in range(d) if u not in family.parents)).reshape(n, -1)
        logs, theta = self.logs[f].reshape(n, -1), self.theta[f].reshape(n, -1)
        power = family.pseudo - 1 + (1 - stage)[:, None] * family.surrogate.ravel()
        steps = [math.prod(shape[u + 1 :]) for u in range(d)]
        along = [math.prod(shape[u] for u in family.parents if u > v) for v in range(d)]
        lines, nowhere = max(logs.shape[1], TUNING.least_family_moves), np.zeros(n, dtype=np.int64)
        self.moves += lines
        for _ in range(lines):
            cube = [u for u in family.parents if shape[u] > 1 and rng.random() < 0.5]
            at = {u: rng.integers(0, shape[u], n) for u in family.members}
            beside = {u: (at[u] + rng.integers(1, shape[u], n)) % shape[u] for u in (*cube, child)}
            cells: list[Ints] = []
            weights: list[Floats] = []
            signs: list[float] = []
            for bits in itertools.product((False, True), repeat=len(cube) + 1):
                here = {**at, **{u: beside[u] for u, bit in zip((*cube, child), bits, strict=True) if bit}}
                cells.append(sum((steps[u] * here[u] for u in family.members), nowhere))
                row = sum((along[u] * here[u] for u in family.parents), nowhere)
                weights.append(1 / np.maximum(rows[self.every, row], _TINY))
                signs.append(1.0 if sum(bits) % 2 == 0 else -1.0)
            places, sign, weight = np.stack(cells), np.array(signs)[:, None], np.stack(weights)
            weight /= weight.min(axis=0)
            if len(family.members) == d:  # the rest of a row is its probability
                row = sum((along[u] * at[u] for u in family.parents), nowhere)
                shift = (weight[0] * rows[self.every, row])[:, None]
                for u in range(d):
                    part = self.channels[u][at[u]]
                    if u in beside:
                        part = part - self.channels[u][beside[u]]
                    shift = (shift[:, :, None] * part[:, None, :]).reshape(n, -1)
            else:
                changes = np.zeros_like(theta)
                for cell, size, s in zip(places, weight, sign, strict=True):
                    changes[self.every, cell] += s * size
                shift = self._push(changes.reshape(n, *shape) * rest)
            self._along(_Lines(places=places, weight=sign * weight, moved=shift), logs, theta, power, stage)

    def _along(self, lines: _Lines, logs: Floats, theta: Floats, power: Floats, stage: Floats) -> None:
        """Some steps of each particle on its line.

        Args:
            lines: of each particle one.
            logs, theta: (n, cells): changed.
            power: (n, cells): of the probabilities in the density.
            stage: (n,)
        """
        every, rng, places, weight, shift = self.every, self.rng, lines.places, lines.weight, lines.moved
        now, value, size = logs[every, places], theta[every, places], np.log(np.abs(weight))
        own = power[every, places]
        reach = now - size
        low, high = np.where(weight > 0, reach, np.inf), np.where(weight > 0, np.inf, reach)
        first, last = low.argmin(axis=0), high.argmin(axis=0)
        down, up = low[first, every], high[last, every]  # logs of the ways to the two ends
        length = np.logaddexp(down, up)
        place, moves = down - up, length > _FAINT
        fit, way, best = self.fit, np.zeros(self.n), now
        density = (own * now).sum(axis=0) - np.logaddexp(0.0, place) - np.logaddexp(0.0, -place)
        wide = math.log(2 / self.families_least + 3)
        for _ in range(TUNING.line_steps):
            scale = np.exp(rng.uniform(math.log(0.02), wide, self.n))
            new = place + scale * rng.standard_normal(self.n)
            new = np.where(rng.random(self.n) < 0.1, -place, new)
            below, above = -np.logaddexp(0.0, -new), -np.logaddexp(0.0, new)
            to = np.where(new < 0, np.exp(length + below) - np.exp(down), np.exp(up) - np.exp(length + above))
            cells = np.log(np.maximum(value + to * weight, _TINY))
            cells[first, every] = length + below + size[first, every]
            cells[last, every] = length + above + size[last, every]
            other = (own * cells).sum(axis=0) + below + above
            np.multiply(shift, to[:, None], out=self.room)
            self.room += self.after
            likely = self.likelihood(self.room)
            gain = stage * (likely - fit) + other - density
            accepts = moves & (np.log(1 - rng.random(self.n)) < gain)
            place, way, fit = np.where(accepts, new, place), np.where(accepts, to, way), np.where(accepts, likely, fit)
            density, best = np.where(accepts, other, density), np.where(accepts, cells, best)
        logs[every, places], theta[every, places] = best, np.exp(best)
        shift *= way[:, None]
        self.after += shift
        np.maximum(self.after, 0.0, out=self.after)
        self.fit = fit

    @property
    def families_least(self) -> float:
        """The least prior count of a cell."""
        return min(family.pseudo for family in self.families)


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
        sweeps: between two stages.
        rng: of everything; advanced.
    """
    n = chains * particles
    swarm = _Particles(counts, channels, families, n, rng)
    evidence = np.full(chains, sum(family.evidence() for family in families))
    stage, log_weight = np.zeros(chains), np.full((chains, particles), -math.log(particles))
    while (stage < 1).any():
        height = swarm.height().reshape(chains, particles)
        for c in range(chains):
            weight = np.exp(log_weight[c])
            step = _step(height[c], weight, 1 - stage[c])
            stage[c] = 1.0 if step >= 1 - stage[c] else stage[c] + step
            log_weight[c] += step * height[c]
            total = np.logaddexp.reduce(log_weight[c])
            evidence[c] += total
            log_weight[c] -= total
        weight = np.exp(log_weight)
        few = 1 / (weight**2).sum(axis=1) < TUNING.resampled_share * particles
        if few.any():
            which = np.arange(n).reshape(chains, particles)
            for c in np.flatnonzero(few).tolist():
                marks = (rng.random() + np.arange(particles)) / particles
                which[c] = c * particles + np.searchsorted(np.cumsum(weight[c]), marks).clip(0, particles - 1)
                log_weight[c] = -math.log(particles)
            swarm.choose(which.ravel())
        for _ in range(sweeps):
            swarm.sweep(np.repeat(stage, particles))
    return Annealed(
        evidence=evidence,
        shares=swarm.shares().reshape(chains, particles, -1),
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

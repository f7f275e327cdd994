"""Records with weights: raking over all measured tables at once.

Atoms are records drawn from models: from a learned network, and from a fitted mixture, which excludes nothing. For every table in
turn, with pi the atoms' weights in the cells of its true categories, C its channels and f what was observed, each atom's weight
is multiplied by the entry of its cell in

    clip(C_a (f / e) C_c^T, 1 / 20, 20)^g,      e = C_a^T pi C_c.

Without a channel, and g = 1, this is iterative proportional fitting (Deming & Stephan, 1940), which goes on until the discrepancy
of all tables together is at the goal (`stopping`), or `sweeps`. Through channels it is one step of expectation maximization, slow
just as far as the channels blur, and

    g = max(0, 1 - .8 / chi) min(10, 1 / (2 lambda_a lambda_c)),      lambda = (tr C - 1) / (K - 1),

makes up for half of that, as far as the table's own discrepancy chi shows more than noise. Of a squared residual of chi times
what noise explains, the part 1 - 1 / chi is signal (the shrinkage of James & Stein, 1961): a table that is met as far as its
noise lets one tell is left alone while others go on. All tables together cannot tell that: they stop when the mean is right,
with some fitted to their noise and others not fitted.

Combinations that no atom has stay impossible, whatever the weights: that is how declared-impossible ones hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes, Bools, Floats, distinct_rows
from verticil.shared.mechanisms.channel import Channel
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import kernels
from verticil.shared.numerics.joint.checkpoints import Work
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.tuning import TUNING
from verticil.shared.numerics.model.joint import Mixture, WeightedRecords

Records = Callable[[int, np.random.Generator], Sequence[AnyCodes]]
"""Draws so many records: for each variable (n,) codes."""
Allowed = Callable[[Sequence[AnyCodes]], Bools]
"""Which of some records are possible: (n,)."""

AtomCodes = NDArray[np.uint16]

ATOMS: Final = 100_000
CELLS: Final = 9_600_000
"""Most atoms times categories and `OVERHEAD`: atoms are published, as the classes of a network's root, at two bytes for each."""
OVERHEAD: Final = 26  # categories that an atom's own line and weight take as many bytes as
_TIMES: Final = 20
"""How often records are drawn at most where rules throw some away."""
_FEW: Final = 0.1  # of the atoms; so many less will do
_BOUND: Final = 20.0  # of a factor: a cell that is all but empty is no reason for more
_EMPTY: Final = 1e-300  # no atom is in such a cell


@dataclass(frozen=True, slots=True, eq=False)
class Raked:
    """Weighted atoms.

    Attributes:
        model: the atoms with their weights.
        sweeps: over all tables.
        discrepancy: in the last sweep; 1 is to be reached.
        reached: whether it was.
    """

    model: WeightedRecords
    sweeps: int
    discrepancy: float
    reached: bool


def n_atoms(n_states: Sequence[int]) -> int:
    """Return how many atoms a model of these variables is made of."""
    return min(ATOMS, CELLS // (sum(n_states) + OVERHEAD))


def draw_atoms(
    sources: Sequence[Records],
    n: int,
    units: Sequence[ColumnUnit],
    *,
    rng: np.random.Generator,
    allowed: Allowed | None = None,
) -> tuple[AtomCodes, Floats]:
    """Draw atoms.

    Args:
        sources: of records; each gives as many.
        n: how many.
        units: of the columns; what is in no domain of a compound is left out.
        rng: source of all randomness.
        allowed: which records are possible; others are left out.

    Returns:
        (A, d), A at most n: different records, in lexicographic order; and (A,) the share of each among those drawn.

    Raises:
        ValueError: none is left.
    """
    found: list[AtomCodes] = []
    tried = left = n
    n_drawn = 0
    for _ in range(_TIMES):
        drawn = [
            np.stack([np.asarray(column, np.uint16) for column in source(math.ceil(tried / len(sources)), rng)], axis=1)
            for source in sources
        ]
        codes = np.concatenate(drawn)
        n_drawn += len(codes)
        possible = np.ones(len(codes), np.bool_)
        for unit in units:
            possible &= categories_of(codes, unit) >= 0
        if allowed is not None:
            possible &= allowed(list(codes.T))
        found.append(codes[possible][:left])
        left -= len(found[-1])
        if allowed is None or left < _FEW * n:
            break
        tried = min(math.ceil(left * len(codes) / max(len(found[-1]), 1)), n)
    kept = np.concatenate(found)
    if not len(kept):
        raise ValueError(f"of {n_drawn} records that were drawn none is possible")
    different, _, counts = distinct_rows(kept)
    return different, counts / counts.sum()


def categories_of(codes: AtomCodes, unit: ColumnUnit) -> NDArray[np.intp]:
    """Return the category of each record in a unit; -1: in none of a compound's domain."""
    if unit.domain is None:
        return codes[:, unit.variables[0]].astype(np.intp)
    domain = np.array(unit.domain, dtype=np.intp)
    shape = domain.max(axis=0) + 1
    own = codes[:, list(unit.variables)].astype(np.intp)
    inside = (own < shape).all(axis=1)
    place = np.full(math.prod(shape.tolist()), -1, np.intp)
    place[np.ravel_multi_index(tuple(domain.T), shape)] = np.arange(len(domain))
    found = place[np.ravel_multi_index(tuple(np.minimum(own, shape - 1).T), shape)]
    return np.where(inside, found, -1)


def rake(
    tables: NoisyTables,
    codes: AtomCodes,
    weights: Floats,
    *,
    sweeps: int = TUNING.sweeps,
    goal: float = 1.0,
    work: Work | None = None,
) -> Raked:
    """Weigh atoms so that they have the measured tables.

    Args:
        tables: exact or randomized counts.
        codes: (A, d) atoms, all possible.
        weights: (A,) where they begin.
        sweeps: at most.
        goal: where to stop; below 1 to go on although what is left may be noise, 0 until no table shows more than noise.
        work: progress, stopping and going on.

    Returns:
        The atoms, and how far they are from the tables.
    """
    work = work or Work()
    state = work.state()
    weights = np.array(weights if state is None else state["weights"], dtype=np.float64)
    done = 0 if state is None else int(state["sweep"])
    places = [categories_of(codes, unit).astype(np.int32) for unit in tables.units]
    steps = [
        _Step(tables, position) for position in range(len(tables.tables)) if len(tables.tables[position].units) > 1
    ]
    left, full = (sum(one) for one in zip(*(step.degrees for step in steps), strict=True)) if steps else (0.0, 0.0)
    while True:
        missed = variance = 0.0
        moved = False
        before = weights.copy()
        for step in steps:
            work.check()
            cells = step.cells(places)
            off, expected, factor = step.update(step.sums(cells, weights))
            missed += off * full / left if len(step.units) == 2 and left > 0 else off
            variance += expected
            if done < sweeps and factor is not None:
                kernels.multiply_weights(cells, weights, factor.ravel())
                moved = True
        discrepancy = missed / variance if variance > 0 else 0.0
        if discrepancy <= goal or done == sweeps or not moved:
            kept = before / before.sum()
            model = WeightedRecords(n_states=tables.n_states, codes=codes, weights=kept / kept.sum())
            return Raked(model, done, discrepancy, discrepancy <= 1)
        weights /= weights.sum()
        done += 1
        work.report(done, sweeps)
        work.keep({"weights": weights, "sweep": np.array(done)})


class _Step:
    """One table: how far weights are from it, and what they are multiplied by."""

    def __init__(self, tables: NoisyTables, position: int) -> None:
        table = tables.tables[position]
        channels = [tables.units[unit].channel for unit in table.units]
        self.units = table.units
        self.shape = tuple(channel.n_states for channel in channels)
        self._n = tables.people
        counts = np.ascontiguousarray(table.counts, dtype=np.float64)
        self._observed = np.maximum(counts, 0.0) / max(float(counts.sum()), 1.0)
        self.exact = all(channel.is_identity for channel in channels)
        self._channels = [None if channel.is_identity else channel.probabilities for channel in channels]
        self._back = [None if matrix is None else np.ascontiguousarray(matrix.T) for matrix in self._channels]
        self._squares = [None if matrix is None else matrix**2 for matrix in self._channels]
        self._per_record = math.prod(channel.codes_per_record for channel in channels)
        left = math.prod(map(contrast, channels))
        self._power = 1.0 if self.exact else min(TUNING.longest_step, 0.5 / max(left, 1e-9))
        sizes = [channel.n_states / channel.codes_per_record for channel in channels]
        self.degrees = (math.prod(size - 1 for size in sizes), math.prod(sizes) - 1) if len(sizes) == 2 else (0.0, 0.0)

    def cells(self, places: Sequence[kernels.Cells]) -> kernels.Cells:
        """Return each atom's cell: (A,)."""
        cells = places[self.units[0]].copy()
        for unit, size in zip(self.units[1:], self.shape[1:], strict=True):
            kernels.number_cells(cells, places[unit], size)
        return cells

    def sums(self, cells: kernels.Cells, weights: Floats) -> Floats:
        """Return the table of atoms with these weights."""
        found = np.zeros(self.shape)
        kernels.add_weights(cells, weights, found.ravel())
        return found

    def update(self, pi: Floats) -> tuple[float, float, Floats | None]:
        """Return the weighted squared residual, the variance, weighted alike, and what weights are multiplied by; None: left
        alone.
        """
        expected = apply_axes(pi, self._channels)
        total = float(expected.sum())
        share = expected / total
        variance = TUNING.exact_variance * share
        if not self.exact:
            variance = share / self._per_record - apply_axes(pi / total, self._squares)
        least = 0.5 / self._n
        if share.ndim == 2:
            missed, explained = kernels.compare_pair(share, self._observed, variance, least)
        else:
            m = np.ones((), np.float64)
            for axis in range(share.ndim):
                m = np.multiply.outer(m, share.sum(axis=tuple(other for other in range(share.ndim) if other != axis)))
            m = np.maximum(m, least)
            missed, explained = float(((share - self._observed) ** 2 / m).sum()), float((variance / m).sum())
        missed *= self._n
        left, full = self.degrees
        noise = explained * (left / full) if full > 0 else explained
        power = self._power * self._signal(missed, TUNING.left_alone * noise)
        if power == 0:
            return missed, explained, None
        ratio = self._observed / np.maximum(share, _EMPTY)
        return missed, explained, np.clip(apply_axes(ratio, self._back), 1 / _BOUND, _BOUND) ** power

    def _signal(self, missed: float, noise: float) -> float:
        """Return which part of a step is taken."""
        return 1.0 if self.exact else max(0.0, 1 - noise / max(missed, noise)) if noise > 0 else 1.0


def contrast(channel: Channel) -> float:
    """lambda: how much a channel leaves of the difference between two categories, on average."""
    k = channel.n_states
    matrix = channel.probabilities
    return max((float(np.trace(matrix)) - 1) / (k - 1), 0.0) if k > 1 else 1.0


def heaviest(model: WeightedRecords, n: int) -> WeightedRecords:
    """Return the n records that weigh most, or all."""
    if len(model.weights) <= n:
        return model
    chosen = np.sort(np.argsort(-model.weights, kind="stable")[:n])
    weights = model.weights[chosen] / model.weights[chosen].sum()
    return WeightedRecords(n_states=model.n_states, codes=model.codes[chosen], weights=weights)


def of_mixture(mixture: Mixture) -> Records:
    """Records of a mixture of products, each on its own."""

    def records(n: int, rng: np.random.Generator) -> list[AnyCodes]:
        component = rng.choice(len(mixture.weights), size=n, p=mixture.weights)
        return [draw_from_rows(table, component, rng).astype(np.uint16) for table in mixture.probability]

    return records


def draw_from_rows(rows: Floats, which: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return one code for each entry of `which`, from that row of probabilities."""
    edges = rows.cumsum(axis=1)
    edges[:, -1] = 1.0
    flat = (edges + np.arange(len(rows))[:, None]).ravel()
    codes = np.searchsorted(flat, rng.random(len(which)) + which, side="right") - which * rows.shape[1]
    return np.asarray(np.minimum(codes, rows.shape[1] - 1), dtype=np.intp)

"""Chains of graphs whose stationary distribution is the posterior, in the manner of a search: start, step, progress, result,
checkpoint, resume.

A state is a value and has no clock, files or threads of its own; the random numbers of a chain come from the seed and its number
alone. So a run that goes on from a checkpoint leaves the same graphs, and so does one on several threads.

How variables are drawn anew stands in `kernels`. A step does it so often that each variable has its turn once, on average. Which
ones are drawn together does not depend on the graph, so that the posterior stays what it is; those that the data link are more
often together than others, because it is their edges that can only be turned around together.

The first chain starts from the graph of required edges, the second from one that no other set of parents of a single variable
improves, the others from random orders with random sets. Before the first graph is kept the weights are raised to powers that
grow to 1: a chain that began in a poor corner leaves it while all graphs are still alike. Where chains end up in different
corners even so, they disagree, and `Diagnostics` says it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.numerics.posterior import kernels
from verticil.shared.numerics.posterior.exact import acyclic
from verticil.shared.numerics.posterior.parent_sets import Masks, ParentSets
from verticil.shared.numerics.posterior.sample import GraphSample
from verticil.shared.numerics.posterior.tuning import TUNING

Checkpoint = Mapping[str, NDArray[np.generic]]
"""A state as named arrays of plain numbers, to be written without pickle."""
Kept = tuple[Masks, Floats]
"""Graphs of all chains that are kept, (chains, n, d), and their log weights, (chains, n)."""


class Tables(NamedTuple):
    """Parent sets as the kernels take them, in their order; the fields are explained in `kernels`."""

    shapes: Ints
    nearby: Floats
    starts: Ints
    masks: Masks
    fraction: Floats
    power: Ints
    log_weight: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainsState:
    """Where the chains stand. Its arrays are never written again.

    Attributes:
        sets: what is sampled.
        tables: the same for the kernels.
        seed: the seed.
        done: steps of each chain.
        streams: (chains, 1), uint64, of the random numbers.
        parents: (chains, d), uint64, the graphs.
        places: (chains, d), int64, where each variable's set stands in `sets`.
        kept: the graphs that are kept so far, in pieces: their masks, (chains, n, d), and log weights, (chains, n).
    """

    sets: ParentSets
    tables: Tables
    seed: int
    done: int
    streams: Masks
    parents: Masks
    places: Ints
    kept: tuple[tuple[Masks, Floats], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """How graphs are sampled.

    Attributes:
        chains: how many.
        steps: of each, at least 20.
        together: how many variables a step draws anew, 1 to `TUNING.most_together`. With 1 a strong edge cannot be turned around:
        chains
            stay where they began; it is there to show that.
        threads: chains that run at the same time. The sample does not depend on it.
        discarded: steps of each chain before its first graph is kept; None: a fifth of all.
        thinning: steps from one graph that is kept to the next; None: such that at most 4,000 of each chain are.

    Raises:
        ValueError: a number is out of its range.
    """

    chains: int = TUNING.chains
    steps: int = TUNING.steps
    together: int = TUNING.together
    threads: int = field(default=1, compare=False, repr=False)
    discarded: int | None = field(default=None, repr=False)
    thinning: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= (self.discarded or 0) < self.steps or (self.thinning is not None and self.thinning < 1):
            raise ValueError(
                f"a burn-in of {self.discarded} steps of {self.steps}, a graph every {self.thinning} steps: expected a burn-in "
                "below the steps, and at least 1"
            )
        if self.chains < 1 or self.steps < 20 or not 1 <= self.together <= TUNING.most_together or self.threads < 1:
            raise ValueError(
                f"{self.chains} chains of {self.steps} steps, {self.together} variables together, {self.threads} threads: "
                f"expected at least 1, at least 20, 1 to {TUNING.most_together}, at least 1"
            )

    @property
    def burn_in(self) -> int:
        """Steps of each chain before its first graph is kept."""
        return self.steps // TUNING.burn_in_part if self.discarded is None else self.discarded

    @property
    def every(self) -> int:
        """Steps from one graph that is kept to the next: at most 4,000 of each chain are, unless `thinning` says it."""
        return self.thinning or math.ceil((self.steps - self.burn_in) / TUNING.kept_graphs)

    @property
    def n_graphs(self) -> int:
        """Number of graphs that a chain keeps, once all steps are done."""
        return self.n_kept(self.steps)

    def start(self, sets: ParentSets, seed: int) -> ChainsState:
        """Return the first graph of each chain."""
        d = sets.n_variables
        words = np.random.SeedSequence(seed).generate_state(self.chains, np.uint64).astype(np.uint64)
        parents, places = np.zeros((self.chains, d), dtype=np.uint64), np.zeros((self.chains, d), dtype=np.int64)
        for chain in range(self.chains):
            generator = np.random.default_rng([seed, chain])
            places[chain] = smallest(sets) if chain < 2 else random_graph(sets, generator)
            parents[chain] = sets.masks[places[chain]]
            if chain == 1:
                children = reversed_graph(parents[chain])
                kernels.climb(sets.starts, sets.masks, sets.log_weight, parents[chain], children, places[chain])
        return ChainsState(
            sets=sets,
            tables=self._tables(sets),
            seed=seed,
            done=0,
            streams=words.reshape(-1, 1),
            parents=parents,
            places=places,
            kept=(),
        )

    def step(self, state: ChainsState) -> ChainsState:
        """Some steps of every chain."""
        ends, power = self.stage(state.done)
        steps = min(self._block(state.sets), ends - state.done)
        if steps <= 0:
            return state
        tables = state.tables if power == 1.0 else _raise_weights(state.tables, power)
        n = self.n_kept(state.done + steps) - self.n_kept(state.done)
        kept_parents = np.zeros((self.chains, n, state.sets.n_variables), dtype=np.uint64)
        kept_weight = np.zeros((self.chains, n))
        streams, parents, places = state.streams.copy(), state.parents.copy(), state.places.copy()

        def advance(chain: int) -> None:
            kernels.run(
                steps, state.done, self.burn_in, self.every, *tables, streams[chain], parents[chain],
                reversed_graph(parents[chain]), places[chain], kept_parents[chain], kept_weight[chain],
            )  # fmt: skip

        advance_all(advance, self.chains, self.threads)
        return dataclasses.replace(
            state,
            done=state.done + steps,
            streams=streams,
            parents=parents,
            places=places,
            kept=(*state.kept, (kept_parents, kept_weight)),
        )

    def progress(self, state: ChainsState) -> float:
        """Share of the steps that is done."""
        return state.done / self.steps

    def result(self, state: ChainsState) -> GraphSample:
        """Return the graphs kept so far.

        Raises:
            ValueError: there are fewer than four of each chain.
        """
        return self.sample_of(state.kept, state.sets.n_variables, state.done)

    def checkpoint(self, state: ChainsState) -> Checkpoint:
        """Return the state as arrays; ``search`` says which settings and which parent sets it is of."""
        parents, weight = join_pieces(state.kept, self.chains, state.sets.n_variables)
        return sealed(
            self._mark(state.sets),
            seed=np.array(state.seed),
            done=np.array(state.done),
            streams=state.streams,
            places=state.places,
            kept_parents=parents,
            kept_weight=weight,
        )

    def resume(self, sets: ParentSets, checkpoint: Checkpoint) -> ChainsState:
        """Return the state that a checkpoint was made of.

        Raises:
            ValueError: it is of other settings or other parent sets, or incomplete.
        """
        names = ("seed", "done", "streams", "places", "kept_parents", "kept_weight")
        seed, done, streams, places, parents, weight = opened(checkpoint, self._mark(sets), "parent sets", *names)
        return ChainsState(
            sets=sets,
            tables=self._tables(sets),
            seed=int(seed),
            done=int(done),
            streams=streams.astype(np.uint64),
            parents=sets.masks[places.astype(np.int64)],
            places=places.astype(np.int64),
            kept=((parents.astype(np.uint64), weight.astype(np.float64)),),
        )

    def _mark(self, sets: ParentSets) -> bytes:
        own = "" if (self.discarded, self.thinning) == (None, None) else f" {self.discarded} {self.thinning}"
        return mark_of(self, own.encode() + sets.digest())

    def stage(self, step: int) -> tuple[int, float]:
        """Return the step with which the stage ends that the next step belongs to, and the power of the weights in it."""
        for stage in range(1, TUNING.burn_in_stages + 1):
            if step < (ends := self.burn_in * stage // TUNING.burn_in_stages):
                return ends, TUNING.first_power ** max(1 - stage / (TUNING.burn_in_stages - TUNING.stages_at_one), 0.0)
        return self.steps, 1.0

    def n_kept(self, step: int) -> int:
        """Return how many graphs of each chain are kept after so many steps."""
        return max((step - self.burn_in) // self.every, 0)

    def sample_of(self, pieces: Sequence[Kept], n_variables: int, step: int, *, change: float = 0.0) -> GraphSample:
        """Return the graphs that were kept in so many steps, chain by chain; `change`: see `GraphSample`.

        Raises:
            ValueError: there are fewer than four of each chain.
        """
        parents, weight = join_pieces(pieces, self.chains, n_variables)
        return GraphSample(
            parents=parents.reshape(-1, n_variables),
            log_weight=weight.reshape(-1),
            chain=np.repeat(np.arange(self.chains, dtype=np.int16), weight.shape[1]),
            steps=step,
            burn_in=self.burn_in,
            every=self.every,
            change=change,
        )

    def _tables(self, sets: ParentSets) -> Tables:
        fraction, power = scaled(sets.log_weight)
        return Tables(
            shapes=shapes_of(min(self.together, sets.n_variables)),
            nearby=nearby(sets),
            starts=sets.starts,
            masks=sets.masks,
            fraction=fraction,
            power=power,
            log_weight=sets.log_weight,
        )

    def _block(self, sets: ParentSets) -> int:
        widest = int(np.diff(sets.starts).max())
        return max(TUNING.block_sets // (self.chains * sets.n_variables * (widest + 1000)), 1)


def sealed(mark: bytes, **arrays: NDArray[np.generic]) -> Checkpoint:
    """Make a checkpoint; `mark` says of which settings and which data."""
    return {"search": np.frombuffer(mark, dtype=np.uint8), **{name: array.copy() for name, array in arrays.items()}}


def opened(checkpoint: Checkpoint, mark: bytes, data: str, *names: str) -> list[NDArray[np.generic]]:
    """Return the arrays `names` of a checkpoint of these settings and these data, which `data` names in messages.

    Raises:
        ValueError: it is of other settings or other data, or incomplete.
    """
    if missing := [name for name in ("search", *names) if name not in checkpoint]:
        raise ValueError(f"the checkpoint lacks {', '.join(missing)}")
    if checkpoint["search"].tobytes() != mark:
        raise ValueError(f"the checkpoint is of other settings or other {data}")
    return [checkpoint[name] for name in names]


def mark_of(chains: object, problem: bytes) -> bytes:
    """Return what names settings (a data class, by its representation) and the digest of the data."""
    return hashlib.sha256(repr(chains).encode() + problem).digest()


def advance_all(advance: Callable[[int], None], chains: int, threads: int) -> None:
    """Call `advance` with the number of each chain, several at the same time where there are threads."""
    if threads == 1:
        for chain in range(chains):
            advance(chain)
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="chains") as pool:
            list(pool.map(advance, range(chains)))


def join_pieces(pieces: Sequence[Kept], chains: int, n_variables: int) -> Kept:
    """Return the pieces of what was kept as one: masks, (chains, n, d), and log weights, (chains, n)."""
    parents = [np.empty((chains, 0, n_variables), dtype=np.uint64), *(piece[0] for piece in pieces)]
    weight = [np.empty((chains, 0)), *(piece[1] for piece in pieces)]
    return np.concatenate(parents, axis=1), np.concatenate(weight, axis=1)


def scaled(log_weight: Floats) -> tuple[Floats, Ints]:
    """Write weights as m 2^(64 k), 1 <= m < 2^64."""
    binary = log_weight / math.log(2.0)
    power = np.floor(binary / 64).astype(np.int64)
    return np.exp2(binary - 64 * power), power


def _raise_weights(tables: Tables, power: float) -> Tables:
    """Raise the weights to a power."""
    log_weight = tables.log_weight * power
    fraction, exponent = scaled(log_weight)
    return tables._replace(fraction=fraction, power=exponent, log_weight=log_weight)


def shapes_of(together: int) -> Ints:
    """Return all graphs on so many variables, (graphs, together), each variable's parents as a mask."""
    every = list(range(2**together))
    return np.array(list(acyclic([every] * together)), dtype=np.int64)


def nearby(sets: ParentSets) -> Floats:
    """Return how often variables are drawn beside each, see `kernels.run`: by how little a variable's weight falls
    where the other is made its parent, or the other way round; and a share evenly.
    """
    d = sets.n_variables
    if d == 1:
        return np.ones((1, 1))
    link = np.full((d, d), -np.inf)
    for v in range(d):
        masks, weight = sets.of(v)
        for u in range(d):
            having = (masks >> np.uint64(u)) & np.uint64(1)
            if having.any():
                link[u, v] = weight[having.argmax()] - weight[0]
    share = np.exp(np.maximum(np.maximum(link, link.T), -100 * TUNING.link_nats) / TUNING.link_nats)
    np.fill_diagonal(share, 0.0)
    even = (1 - np.eye(d)) / (d - 1)
    sums: Floats = (
        TUNING.linked_share * share / share.sum(axis=1, keepdims=True) + (1 - TUNING.linked_share) * even
    ).cumsum(axis=1)
    sums /= sums[:, -1:]
    return sums


def reversed_graph(parents: Masks) -> Masks:
    """(d,) masks of the children of each variable."""
    children = np.zeros(len(parents), dtype=np.uint64)
    for child, mask in enumerate(parents.tolist()):
        for parent in range(len(parents)):
            if mask >> parent & 1:
                children[parent] |= np.uint64(1 << child)
    return children


def smallest(sets: ParentSets) -> Ints:
    """Return each variable's smallest set: what all its sets have in common where there is nothing but required edges."""
    return np.array(
        [
            sets.starts[v] + min(range(len(masks)), key=lambda s: (masks[s].bit_count(), masks[s]))
            for v, masks in ((v, sets.of(v)[0].tolist()) for v in range(sets.n_variables))
        ],
        dtype=np.int64,
    )


def random_graph(sets: ParentSets, generator: np.random.Generator) -> Ints:
    """Draw an order, and of each variable one of the sets of its predecessors."""
    d = sets.n_variables
    places, waiting, before = np.zeros(d, dtype=np.int64), generator.permutation(d).tolist(), 0
    while waiting:
        for v in waiting:
            masks = sets.of(v)[0]
            possible = np.flatnonzero((masks & ~np.uint64(before)) == 0)
            if len(possible):
                places[v] = sets.starts[v] + generator.choice(possible)
                waiting.remove(v)
                before |= 1 << v
                break
        else:
            raise ValueError("every graph that the sets can make has a cycle")
    return places

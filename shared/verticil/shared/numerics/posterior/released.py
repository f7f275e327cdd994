"""Chains over graphs and true counts together: the posterior of the graph given columns that were randomized, exactly.

Released counts are no data of the true variables: their noise looks like dependence. What is sampled is

    P(graph, true counts | released counts) ~ P(graph) P(true counts | graph) P(released counts | true counts),

by data augmentation (Tanner & Wong 1987), with proposals that look past the true counts:
`unblinding` has the rounds. So the share of a graph among those kept is its probability given what was released, whatever its
structure: no score of a single family has that, because what one noisy column says of another is in no table of the two alone.

It holds where each record has one entry in every column, and the joint table of all columns is small: `can_be_unblinded`.

With some of the graphs the true counts are kept that they were drawn with: given both, probabilities are Dirichlet.

States, starts and checkpoints are as in `chains`: random numbers come from the seed and the chain alone, and a run that goes on
leaves the same graphs. Chains start apart: from counts without any dependence, from the corrected ones, and from mixtures.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Counts, Floats, Ints
from verticil.shared.numerics.estimation.estimators import em_projection
from verticil.shared.numerics.estimation.inverse_estimation import FamilyDesign
from verticil.shared.numerics.posterior import unblinding
from verticil.shared.numerics.posterior.chains import (
    Chains,
    Checkpoint,
    advance_all,
    join_pieces,
    mark_of,
    opened,
    random_graph,
    sealed,
    shapes_of,
    smallest,
)
from verticil.shared.numerics.posterior.incomplete import Incomplete, incomplete
from verticil.shared.numerics.posterior.local_scores import dirichlet_score
from verticil.shared.numerics.posterior.parent_sets import Masks, ParentSets
from verticil.shared.numerics.posterior.randomized import LocalScore, left_of
from verticil.shared.numerics.posterior.sample import GraphSample
from verticil.shared.numerics.posterior.tuning import TUNING


def can_be_unblinded(design: FamilyDesign) -> bool:
    """Return whether graphs and true counts of these columns can be sampled together.

    Args:
        design: of all variables, in their order.
    """
    few = (
        len(design.shape) <= TUNING.most_unblinded_variables and math.prod(design.shape) <= TUNING.most_unblinded_cells
    )
    return few and all(
        axis.is_linear
        and axis.cells is None
        and axis.members == (place,)
        and (axis.forward is None or axis.forward.shape == (design.shape[place],) * 2)
        for place, axis in enumerate(design.axes)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Released:
    """Released counts, and the graphs that the true ones may be from.

    Attributes:
        layout: of the tables of all families; it has no records.
        released: (C,), int64, of the joint table.
        corrected: (C,), estimated true counts, from which chains start.
        channels: (d, K, K), see `unblinding.share_out`.
        index: (keys, C), see `unblinding`.
        steps_in, surrogate, evidence: see `unblinding.rounds`.
        length: rounds of a step.
    """

    layout: Incomplete
    released: Ints
    corrected: Floats
    channels: Floats
    index: Ints = field(repr=False)
    steps_in: Ints = field(repr=False)
    surrogate: Floats = field(repr=False)
    evidence: Floats = field(repr=False)
    length: int

    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        hasher = hashlib.sha256(self.layout.digest())
        for array in (self.released, self.channels):
            hasher.update(array.tobytes())
        return hasher.digest()


def released_counts(observed_table: Counts, design: FamilyDesign, sets: ParentSets, score: LocalScore) -> Released:
    """Lay out released counts for the chains.

    Args:
        observed_table: of all variables, in their order; see `FamilyDesign.released_shape`.
        design: how they were randomized; `can_be_unblinded`.
        sets: sets of parents; their weights are the logarithm of their prior alone.
        score: of a family.
    """
    d, shape = len(design.shape), design.shape
    nothing = [np.zeros(0, dtype=np.uint16)] * d
    layout = incomplete(nothing, [None] * d, shape, sets, score)
    most = max(shape)
    channels = np.zeros((d, most, most))
    for v, (k, axis) in enumerate(zip(shape, design.axes, strict=True)):
        channels[v, :k, :k] = np.eye(k) if axis.forward is None else axis.forward
    codes = np.indices(shape).reshape(d, -1)
    index = np.empty((len(layout.keys), codes.shape[1]), dtype=np.int64)
    for t in range(len(layout.keys)):
        own = slice(layout.spans[t], layout.spans[t + 1])
        index[t] = layout.places[t] + layout.strides[own] @ codes[layout.members[own]]
    children = np.repeat(np.arange(d), np.diff(sets.starts))
    estimate = np.maximum(em_projection(observed_table, design, iterations=TUNING.count_em_steps), 0.0)
    factors = [
        left_of(axis, estimate.sum(axis=tuple(u for u in range(d) if u != v)) / estimate.sum())
        for v, axis in enumerate(design.axes)
    ]
    plain = [left_of(axis, np.full(k, 1 / k)) for k, axis in zip(shape, design.axes, strict=True)]
    surrogate = np.zeros(int(layout.places[-1]))
    for t in range(len(layout.keys)):
        factor = math.prod(factors[v] for v in layout.members[layout.spans[t] : layout.spans[t + 1]].tolist())
        np.add.at(surrogate, index[t], factor * estimate.ravel())
    evidence = np.zeros((len(sets.log_weight), len(TUNING.proposal_scales)))
    for place, child in enumerate(children.tolist()):
        key, pseudo = int(layout.whole[place]), float(layout.pseudo[place])
        members = layout.members[layout.spans[key] : layout.spans[key + 1]].tolist()
        table = surrogate[layout.places[key] : layout.places[key + 1]].reshape([shape[v] for v in members])
        rows = np.moveaxis(table, members.index(child), -1).reshape(-1, shape[child])
        evidence[place] = [dirichlet_score(scale * rows, pseudo=pseudo) for scale in TUNING.proposal_scales]
    steps_in = [
        layout.strides[start + layout.members[start:end].tolist().index(child)]
        for child, start, end in zip(
            children.tolist(), layout.spans[layout.whole], layout.spans[layout.whole + 1], strict=True
        )
    ]
    return Released(
        layout=layout,
        released=np.asarray(np.rint(observed_table), dtype=np.int64).ravel(),
        corrected=estimate.ravel(),
        surrogate=surrogate,
        evidence=evidence,
        channels=channels,
        index=index,
        steps_in=np.array(steps_in, dtype=np.int64),
        length=min(
            math.ceil(TUNING.count_rounds / _least_pair(plain)), max(TUNING.most_count_work // index.shape[1], 1)
        ),
    )


def _least_pair(shares: Sequence[float]) -> float:
    """Return the product of the two smallest shares."""
    return max(math.prod(sorted(shares)[:2]), 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleasedState:
    """Where the chains stand. Its arrays are never written again.

    Attributes:
        problem: what is sampled.
        done: rounds of each chain.
        streams: (chains, 1), uint64, of the random numbers.
        at: (chains, d), where each variable's set is listed.
        true: (chains, C), the true counts.
        kept: the graphs kept so far, (chains, n, d), and their log weights, (chains, n), in pieces.
        kept_true: true counts that were drawn with some of them, (chains, q, C), int32, in pieces.
    """

    problem: Released
    done: int
    streams: Masks
    at: Ints
    true: Ints
    kept: tuple[tuple[Masks, Floats], ...] = ()
    kept_true: tuple[NDArray[np.int32], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleasedSample:
    """Graphs, and with some of them the true counts that they were drawn with.

    Attributes:
        sample: the graphs.
        draws: (q,), ascending: places in the sample.
        true: (q, K_1, .., K_d), int32: the true counts of each.
    """

    sample: GraphSample
    draws: Ints
    true: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedChains:
    """How graphs and true counts are sampled; the methods are those of `chains.Chains`, for `Released` counts.

    Attributes:
        chains: how many.
        steps: rounds of each, at least 20.
        threads: chains that run at the same time. The sample does not depend on it.
        discarded, thinning: as of `chains.Chains`.
    """

    chains: int = TUNING.chains
    steps: int = TUNING.steps
    threads: int = field(default=1, compare=False, repr=False)
    discarded: int | None = None
    thinning: int | None = None

    @property
    def _plain(self) -> Chains:
        return Chains(chains=self.chains, steps=self.steps, discarded=self.discarded, thinning=self.thinning)

    def start(self, problem: Released, seed: int) -> ReleasedState:
        """Return the first graph and the first true counts of each chain."""
        layout = problem.layout
        sets, shape = layout.sets, layout.n_states
        words = np.random.SeedSequence(seed).generate_state(self.chains, np.uint64).astype(np.uint64).reshape(-1, 1)
        at = np.zeros((self.chains, sets.n_variables), dtype=np.int64)
        true = np.zeros((self.chains, len(problem.released)), dtype=np.int64)
        joint = np.maximum(problem.corrected, 0.0).reshape(shape) + 1 / len(problem.corrected)
        apart = np.ones(shape)
        for v in range(len(shape)):
            margin = joint.sum(axis=tuple(u for u in range(len(shape)) if u != v), keepdims=True)
            apart = apart * (margin / joint.sum())
        joint /= joint.sum()
        for chain in range(self.chains):
            generator = np.random.default_rng([seed, chain])
            at[chain] = smallest(sets) if chain < 2 else random_graph(sets, generator)
            share = float(chain) if chain < 2 else generator.random()
            shares = share * joint + (1 - share) * apart
            unblinding.share_out(
                problem.released, shares.ravel(), shape, problem.channels, words[chain], true[chain]
            )  # fmt: skip
        return ReleasedState(problem=problem, done=0, streams=words, at=at, true=true)

    def step(self, state: ReleasedState) -> ReleasedState:
        """Some rounds of every chain."""
        problem, plain = state.problem, self._plain
        ends, exponent = plain.stage(state.done)
        block = max(TUNING.block_cells // (self.chains * problem.length * problem.index.size), 1)
        n_steps = min(block, ends - state.done)
        if n_steps <= 0:
            return state
        layout, sets = problem.layout, problem.layout.sets
        n = plain.n_kept(state.done + n_steps) - plain.n_kept(state.done)
        parents = np.zeros((self.chains, n, sets.n_variables), dtype=np.uint64)
        weight, samples = np.zeros((self.chains, n)), np.zeros((self.chains, n, len(problem.released)), dtype=np.int64)
        streams, at, true = state.streams.copy(), state.at.copy(), state.true.copy()
        d = sets.n_variables
        shapes = shapes_of(min(plain.together, d))
        evenly = (1 - np.eye(d)).cumsum(axis=1) / max(d - 1, 1) if d > 1 else np.ones((1, 1))

        def advance(chain: int) -> None:
            unblinding.rounds(
                n_steps, state.done, plain.burn_in, plain.every, problem.length, exponent, shapes, evenly, sets.starts,
                sets.masks, sets.log_weight, layout.whole, layout.rest, layout.whole_term, layout.rest_term, layout.pseudo,
                layout.term_key, layout.term_pseudo, problem.steps_in, layout.n_states, problem.index, layout.places,
                problem.channels, problem.released, problem.surrogate, problem.evidence, streams[chain], at[chain],
                true[chain], parents[chain], weight[chain], samples[chain],
            )  # fmt: skip

        advance_all(advance, self.chains, self.threads)
        numbers = plain.n_kept(state.done) + 1 + np.arange(n)
        some = samples[:, numbers % self._apart() == 0].astype(np.int32)
        return dataclasses.replace(
            state,
            done=state.done + n_steps,
            streams=streams,
            at=at,
            true=true,
            kept=(*state.kept, (parents, weight)),
            kept_true=(*state.kept_true, some),
        )

    def _apart(self) -> int:
        """Return of how many graphs one has its true counts kept."""
        return max(math.ceil(self._plain.n_graphs * self.chains / max(TUNING.count_draws, 2 * self.chains)), 1)

    def progress(self, state: ReleasedState) -> float:
        """Share of the rounds that is done."""
        return state.done / self.steps

    def result(self, state: ReleasedState) -> ReleasedSample:
        """Return the graphs and true counts kept so far. Their log weight is that of the graph and the true counts
        together.

        Raises:
            ValueError: there are fewer than four of each chain.
        """
        sample = self._plain.sample_of(state.kept, state.at.shape[1], state.done)
        true = self._joined_true(state)
        apart, q = self._apart(), true.shape[1]
        draws = np.arange(self.chains)[:, None] * (sample.n_draws // self.chains) + apart * np.arange(1, q + 1) - 1
        shape = tuple(state.problem.layout.n_states.tolist())
        return ReleasedSample(sample=sample, draws=draws.reshape(-1), true=true.reshape(self.chains * q, *shape))

    def _joined_true(self, state: ReleasedState) -> NDArray[np.int32]:
        """(chains, q, C), the pieces as one."""
        nothing = np.empty((self.chains, 0, len(state.problem.released)), dtype=np.int32)
        return np.concatenate([nothing, *state.kept_true], axis=1)

    def checkpoint(self, state: ReleasedState) -> Checkpoint:
        """Return the state as arrays; ``search`` says which settings and which counts it is of."""
        parents, weight = join_pieces(state.kept, self.chains, state.at.shape[1])
        return sealed(
            mark_of(self, state.problem.digest()),
            done=np.array(state.done),
            streams=state.streams,
            at=state.at,
            true=state.true,
            kept_parents=parents,
            kept_weight=weight,
            kept_true=self._joined_true(state),
        )

    def resume(self, problem: Released, checkpoint: Checkpoint) -> ReleasedState:
        """Return the state that a checkpoint was made of.

        Raises:
            ValueError: it is of other settings or other counts, or incomplete.
        """
        names = ("done", "streams", "at", "true", "kept_parents", "kept_weight", "kept_true")
        found = opened(checkpoint, mark_of(self, problem.digest()), "counts", *names)
        done, streams, at, true, parents, weight, kept_true = found
        return ReleasedState(
            problem=problem,
            done=int(done),
            streams=streams.astype(np.uint64),
            at=at.astype(np.int64),
            true=true.astype(np.int64),
            kept=((parents.astype(np.uint64), weight.astype(np.float64)),),
            kept_true=(kept_true.astype(np.int32),),
        )

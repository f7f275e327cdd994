"""Graphs of few variables drawn by how probable each makes the released counts (`annealing`), with true counts.

Of graphs that say the same about independence one is annealed. Under BDeu all are alike (Heckerman, Geiger & Chickering 1995);
else P(Y | G') / P(Y | G) is the mean, given Y and G, of how the two priors differ in the density of the joint probabilities
(`annealing.log_density`). Where rows are rare few particles decide about it; G' is annealed on its own then.

Effort grows from level to level (`TUNING.levels`); a class goes on to the next one unless it is too improbable to count: its
estimates, raised by three times what they differ by between chains, lie `TUNING.margin_nats` nats below the best. Too little
effort makes an estimate too small, and how much so shows in the next level. It ends where no edge's probability has changed by
more than `TUNING.settled` since the level before, nor differs by more between chains, and where the graphs that chains draw would
agree; or where the work of `steps` is done, the first level apart.

Each chain draws graphs by its own estimates, all with the same number of steps. So chains that do not agree show what the
estimates leave open, and the change since the level before counts as such a difference (`Diagnostics.edge_difference`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.numerics.posterior import unblinding
from verticil.shared.numerics.posterior.annealing import Annealed, AnnealedFamily, anneal
from verticil.shared.numerics.posterior.chains import Chains, Checkpoint, mark_of, opened, sealed
from verticil.shared.numerics.posterior.exact import acyclic, edges_of
from verticil.shared.numerics.posterior.parent_sets import Masks, ParentSets
from verticil.shared.numerics.posterior.released import Released, ReleasedSample
from verticil.shared.numerics.posterior.tuning import TUNING


def can_be_annealed(sets: ParentSets, cells: int, steps: int) -> bool:
    """Return whether the table of all columns is neither tiny nor large, and graphs so few that steps pay for the first level."""
    if (
        not TUNING.least_annealed_cells <= cells <= TUNING.most_annealed_cells
        or math.prod(np.diff(sets.starts).tolist()) > TUNING.most_graphs**2
    ):
        return False
    paid = min(TUNING.step_work * steps / (TUNING.graph_work * cells**2), TUNING.most_graphs)
    return len(list(itertools.islice(_graphs(sets), TUNING.most_graphs + 1))) <= paid


def _graphs(sets: ParentSets) -> Iterator[tuple[int, ...]]:
    return acyclic([sorted(sets.of(v)[0].tolist()) for v in range(sets.n_variables)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """One class of graphs, annealed at one level.

    Attributes:
        kind: which class.
        level: which level.
        evidence: (graphs of the class, chains) nats.
        drawn: (graphs of the class, chains, q, C): probabilities of the true cells given the released counts and each graph.
        work: cells that its moves looked at.
    """

    kind: int
    level: int
    evidence: Floats
    drawn: Floats
    work: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnnealedState:
    """What is annealed so far. Its arrays are never written again.

    Attributes:
        problem: what is sampled.
        seed: the seed.
        graphs: (graphs, d), uint64, all that the sets can make.
        prior: (graphs,) the logarithm of each one's prior.
        kinds: (graphs,): the class of each.
        chains: how many.
        estimates: in the order in which they were made.
    """

    problem: Released
    seed: int
    graphs: Masks
    prior: Floats
    kinds: Ints
    chains: int
    estimates: tuple[Estimate, ...]

    @property
    def alike(self) -> Ints:
        """(graphs,): a number of each graph, the same of those whose evidence is the same."""
        return self.kinds if self.problem.layout.score == "bdeu" else np.arange(len(self.graphs))

    def at_level(self, level: int) -> Floats:
        """(graphs, chains): the newest estimates up to a level."""
        newest = np.full((len(self.graphs), self.chains), -np.inf)
        for each in self.estimates:
            if each.level <= level:
                newest[self.kinds == each.kind] = each.evidence
        return newest

    def probabilities(self, level: int) -> Floats:
        """(chains, graphs), by each chain's estimates up to a level."""
        value = self.at_level(level).T + self.prior
        share: Floats = np.exp(value - np.logaddexp.reduce(value, axis=1, keepdims=True))
        return share

    def drawn(self, graph: int) -> Floats:
        """(chains, q, C): probabilities of the true cells given the released counts and a graph, by its newest estimate."""
        kind = self.kinds[graph]
        newest = next(each for each in reversed(self.estimates) if each.kind == kind)
        own: Floats = newest.drawn[int((self.kinds[:graph] == kind).sum())]
        return own

    def waiting(self) -> tuple[int, tuple[int, ...]]:
        """Return the level of the newest estimate, and the classes that are still to be annealed at it."""
        level = self.estimates[-1].level if self.estimates else 0
        kinds = {each.kind for each in self.estimates if each.level == level}
        return level, tuple(kind for kind in self.worth_it(level) if kind not in kinds)

    def worth_it(self, level: int) -> tuple[int, ...]:
        """Return the classes that count at a level."""
        if level == 0:
            return tuple(range(int(self.kinds.max()) + 1))
        before = self.at_level(level - 1)
        mean = np.logaddexp.reduce(before, axis=1) - math.log(before.shape[1])
        reach = mean + 3 * before.std(axis=1)
        return tuple(np.unique(self.kinds[reach >= mean.max() - TUNING.margin_nats]).tolist())

    def change(self, level: int) -> float:
        """Return how much an edge's probability has changed since the level before, at most; 1 at the first."""
        if level == 0:
            return 1.0
        edges = edges_of(self.graphs).reshape(len(self.graphs), -1)
        now, before = (self.probabilities(each).mean(axis=0) @ edges for each in (level, level - 1))
        return float(np.abs(now - before).max())

    def spread(self, level: int) -> float:
        """Return how far chains' probabilities of alike graphs spread, at most, in standard deviations of whether one is drawn.

        R-hat of graphs that chains draw is about the square root of 1 plus the square of it.
        """
        each = self.probabilities(level) @ np.eye(int(self.alike.max()) + 1)[self.alike]
        mean = each.mean(axis=0)
        noise = np.sqrt(mean * np.maximum(1 - mean, 0))
        return float(np.divide(each.std(axis=0), noise, out=np.zeros_like(mean), where=noise > 0).max())

    def apart(self, level: int) -> float:
        """Return how much an edge's probability by a chain differs from that by all, at most."""
        each = self.probabilities(level) @ edges_of(self.graphs).reshape(len(self.graphs), -1)
        return float(np.abs(each - each.mean(axis=0)).max())


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnealedGraphs:
    """How graphs are sampled; the methods are those of `chains.Chains`, for `Released` counts.

    Attributes:
        chains: how many.
        steps: how much work there may be, in the steps of other chains.
        discarded, thinning: as of `chains.Chains`; they say how many graphs are kept.
    """

    chains: int = TUNING.chains
    steps: int = TUNING.steps
    discarded: int | None = None
    thinning: int | None = None
    levels: tuple[tuple[int, int], ...] = field(default=TUNING.levels, repr=False)

    @property
    def _plain(self) -> Chains:
        return Chains(chains=self.chains, steps=self.steps, discarded=self.discarded, thinning=self.thinning)

    def start(self, problem: Released, seed: int) -> AnnealedState:
        """Return the graphs, and no estimate of any."""
        sets = problem.layout.sets
        graphs = np.array(list(_graphs(sets)), dtype=np.uint64)
        weight = [dict(zip(*(array.tolist() for array in sets.of(v)), strict=True)) for v in range(sets.n_variables)]
        prior = np.array([sum(weight[v][mask] for v, mask in enumerate(graph)) for graph in graphs.tolist()])
        numbers: dict[object, int] = {}
        kinds = [numbers.setdefault(_said_by(graph), len(numbers)) for graph in graphs.tolist()]
        return AnnealedState(
            problem=problem,
            seed=seed,
            graphs=graphs,
            prior=prior,
            kinds=np.array(kinds, dtype=np.int64),
            chains=self.chains,
            estimates=(),
        )

    def step(self, state: AnnealedState) -> AnnealedState:
        """Anneal one class of graphs at one level."""
        level, waiting = state.waiting()
        if not waiting:
            level += 1
            waiting = state.worth_it(level)
        kind, problem = waiting[0], state.problem
        rng = np.random.default_rng([state.seed, level, kind])
        members = np.flatnonzero(state.kinds == kind).tolist()
        families = [_families(problem, graph) for graph in state.graphs[members].tolist()]
        runs = [self._anneal(problem, families[0], level, rng)]
        for other in families[1:]:
            run = runs[0] if problem.layout.score == "bdeu" else runs[0].tilted(families[0], other)
            if run.worth < TUNING.least_worth * runs[0].worth:
                run = self._anneal(problem, other, level, rng)
            runs.append(run)
        cells = len(problem.released)
        room = TUNING.most_drawn_cells // (len(state.graphs) * self.chains * cells)
        drawn = np.empty((len(runs), self.chains, max(min(TUNING.annealed_draws // self.chains, room), 4), cells))
        for own, run in zip(drawn, runs, strict=True):
            for c in range(self.chains):
                picked = rng.choice(run.weight.shape[1], size=own.shape[1], p=run.weight[c])
                own[c] = run.shares[c, picked].reshape(own.shape[1:])
        moves = sum({id(run): run.moves for run in runs}.values())
        work = float(moves * self.chains * self.levels[level][0] * (cells + TUNING.move_cells))
        evidence = np.stack([run.evidence for run in runs])
        new = Estimate(kind=kind, level=level, evidence=evidence, drawn=drawn, work=work)
        return dataclasses.replace(state, estimates=(*state.estimates, new))

    def _anneal(
        self, problem: Released, families: Sequence[AnnealedFamily], level: int, rng: np.random.Generator
    ) -> Annealed:
        shape, (particles, sweeps) = problem.layout.n_states.tolist(), self.levels[level]
        return anneal(
            problem.released.reshape(shape).astype(np.float64),
            [problem.channels[v, :k, :k] for v, k in enumerate(shape)],
            families,
            chains=self.chains,
            particles=particles,
            sweeps=sweeps,
            rng=rng,
        )

    def progress(self, state: AnnealedState) -> float:
        """Share of the work that is done; 1 where it is enough."""
        level, waiting = state.waiting()
        first, later = (
            sum(each.work for each in state.estimates if (each.level > 0) == is_later) for is_later in (False, True)
        )
        most = TUNING.step_work * self.steps
        if not waiting:
            is_settled = (
                level > 0
                and max(state.change(level), state.apart(level)) <= TUNING.settled
                and state.spread(level) <= TUNING.most_spread
            )
            if is_settled or level + 1 == len(self.levels) or later + self._ahead(state, level) > most:
                return 1.0
        return min((first + later) / (first + most), 0.99)

    def _ahead(self, state: AnnealedState, level: int) -> float:
        """Return the work of the next level; the second one is always done."""
        if level == 0:
            return -math.inf
        effort = [particles * sweeps for particles, sweeps in self.levels]
        last = {each.kind: each.work / effort[each.level] for each in state.estimates}
        return sum(last[kind] for kind in state.worth_it(level + 1)) * effort[level + 1]

    def result(self, state: AnnealedState) -> ReleasedSample:
        """Graphs drawn by the estimates so far, and true counts with some of them. The log weight is that of the graph.

        Raises:
            ValueError: fewer than four of each chain are kept.
        """
        plain, level = self._plain, state.waiting()[0]
        share, n = state.probabilities(level), plain.n_graphs
        log_weight = np.logaddexp.reduce(state.at_level(level), axis=1) - math.log(self.chains) + state.prior
        places = np.empty((self.chains, n), dtype=np.int64)
        generators = [np.random.default_rng([state.seed, len(self.levels), c]) for c in range(self.chains)]
        for c, rng in enumerate(generators):
            places[c] = rng.choice(len(state.graphs), size=n, p=share[c])
        sample = plain.sample_of(
            [(state.graphs[places], log_weight[places])],
            state.graphs.shape[1],
            self.steps,
            change=state.change(level),
        )
        apart = max(math.ceil(n * self.chains / max(TUNING.annealed_draws, 2 * self.chains)), 1)
        numbers = np.arange(apart - 1, n, apart)
        problem, counts = state.problem, np.zeros(len(state.problem.released), dtype=np.int64)
        true = np.empty((self.chains, len(numbers), len(counts)), dtype=np.int32)
        for c, rng in enumerate(generators):
            stream = rng.integers(0, 2**63, size=1, dtype=np.uint64)
            for i, place in enumerate(places[c, numbers].tolist()):
                drawn = state.drawn(place)[c]
                shares = drawn[rng.integers(0, len(drawn))]
                unblinding.share_out(
                    problem.released, shares, problem.layout.n_states, problem.channels, stream, counts
                )
                true[c, i] = counts
        draws = np.arange(self.chains)[:, None] * n + numbers
        shape = tuple(problem.layout.n_states.tolist())
        return ReleasedSample(sample=sample, draws=draws.reshape(-1), true=true.reshape(-1, *shape))

    def checkpoint(self, state: AnnealedState) -> Checkpoint:
        """Return the state as arrays; ``search`` says which settings and which counts it is of."""
        estimates = state.estimates
        return sealed(
            mark_of(self, state.problem.digest()),
            seed=np.array(state.seed),
            kinds=np.array([each.kind for each in estimates], dtype=np.int64),
            levels=np.array([each.level for each in estimates], dtype=np.int64),
            evidence=np.concatenate([np.empty((0, self.chains)), *(each.evidence for each in estimates)]),
            drawn=np.concatenate([each.drawn for each in estimates]) if estimates else np.empty(0),
            work=np.array([each.work for each in estimates], dtype=np.float64),
        )

    def resume(self, problem: Released, checkpoint: Checkpoint) -> AnnealedState:
        """Return the state that a checkpoint was made of.

        Raises:
            ValueError: it is of other settings or other counts, or incomplete.
        """
        names = ("seed", "kinds", "levels", "evidence", "drawn", "work")
        seed, kinds, levels, evidence, drawn, work = opened(
            checkpoint, mark_of(self, problem.digest()), "counts", *names
        )
        start = self.start(problem, int(seed))
        ends = np.cumsum(np.bincount(start.kinds)[kinds.astype(np.int64)])[:-1]
        parts = zip(
            kinds,
            levels,
            np.split(evidence.astype(np.float64), ends),
            np.split(drawn.astype(np.float64), ends),
            work,
            strict=False,
        )
        estimates = tuple(
            Estimate(kind=int(kind), level=int(level), evidence=each, drawn=shares, work=float(cells))
            for kind, level, each, shares, cells in parts
        )
        return dataclasses.replace(start, estimates=estimates)


def _families(problem: Released, graph: list[int]) -> list[AnnealedFamily]:
    """Return the families of a graph, with the surrogate counts of the chains."""
    layout = problem.layout
    sets, shape = layout.sets, layout.n_states.tolist()
    families: list[AnnealedFamily] = []
    for v, mask in enumerate(graph):
        place = int(sets.starts[v]) + sets.of(v)[0].tolist().index(mask)
        key = int(layout.whole[place])
        members = layout.members[layout.spans[key] : layout.spans[key + 1]].tolist()
        table = problem.surrogate[layout.places[key] : layout.places[key + 1]]
        families.append(
            AnnealedFamily(
                child=v,
                parents=tuple(u for u in members if u != v),
                pseudo=float(layout.pseudo[place]),
                surrogate=table.reshape([k if u in members else 1 for u, k in enumerate(shape)]),
            )
        )
    return families


def _said_by(graph: list[int]) -> object:
    """Links and colliders: graphs that share both say the same about independence (Verma & Pearl 1990)."""
    parents = [[u for u in range(len(graph)) if mask >> u & 1] for mask in graph]
    links = frozenset((min(u, v), max(u, v)) for v, own in enumerate(parents) for u in own)
    pairs = ((v, pair) for v, own in enumerate(parents) for pair in itertools.combinations(own, 2))
    return links, frozenset((v, pair) for v, pair in pairs if pair not in links)

"""Chains over graphs and the unknown cells of records together: the posterior of the graph where values are missing at random.

A record with an unknown cell is no record less, and its cell no category. What is sampled is

    P(graph, unknown cells | known cells) ~ P(graph) prod over variables of P(column | its parents' columns),

probabilities integrated out (`local_scores`), by rounds of two steps (data augmentation; Tanner & Wong 1987): some steps of the
chain over graphs (`kernels`) by the scores of the records as they are completed now, then every unknown cell some times given
the graph (`cells`). So the share of a graph among those kept is its probability given the known cells alone, where whether a cell
is known may depend on known cells of its record and on nothing else (missing at random; Rubin 1976).

Only records with an unknown cell are counted anew. States, starts and checkpoints are as in `chains`: random numbers come from
the seed and the chain, a run that goes on leaves the same graphs and cells. While weights are raised to powers below 1 cells
are drawn all the same; nothing of that time is kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes, Floats, Ints
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.numerics.posterior import kernels
from verticil.shared.numerics.posterior import missing_cells as cells
from verticil.shared.numerics.posterior.chains import (
    Chains,
    Checkpoint,
    mark_of,
    nearby,
    opened,
    random_graph,
    reversed_graph,
    sealed,
    shapes_of,
    smallest,
)
from verticil.shared.numerics.posterior.missing_cells import Codes16
from verticil.shared.numerics.posterior.parent_sets import Masks, ParentSets
from verticil.shared.numerics.posterior.randomized import LocalScore
from verticil.shared.numerics.posterior.sample import GraphSample
from verticil.shared.numerics.posterior.tuning import TUNING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Incomplete:
    """Records of which some cells are not known, and the graphs that they may be from. Layouts are those of `cells`.

    Attributes:
        sets: sets of parents; their weights are the logarithm of their prior alone.
        n_states: (d,) categories that a cell can have.
        n_records: all of them.
        codes: (m, d), uint16, of the records with unknown cells; 0 where it is not known.
        order: (m,): which of all records they are.
        rows, variables: (cells,): the record among those, and the variable, of each unknown cell; by record.
        score: of a family.
        patterns, ends: the records' unknown variables, see `cells.tabulate`.
    """

    sets: ParentSets
    n_states: Ints
    n_records: int
    codes: Codes16
    order: Ints
    rows: Ints
    variables: Ints
    score: LocalScore
    patterns: Masks = field(repr=False)
    ends: Ints = field(repr=False)
    keys: Masks = field(repr=False)
    spans: Ints = field(repr=False)
    members: Ints = field(repr=False)
    strides: Ints = field(repr=False)
    places: Ints = field(repr=False)
    whole: Ints = field(repr=False)
    rest: Ints = field(repr=False)
    pseudo: Floats = field(repr=False)
    term_key: Ints = field(repr=False)
    term_pseudo: Floats = field(repr=False)
    whole_term: Ints = field(repr=False)
    rest_term: Ints = field(repr=False)
    base: Ints = field(repr=False)

    @property
    def n_cells(self) -> int:
        """Number of unknown cells."""
        return len(self.rows)

    @property
    def looks(self) -> int:
        """What a round costs, about: looks at a cell of a record or a table."""
        return len(self.codes) * len(self.keys) // 4 + 4 * len(self.base)

    def completed(self, cells: Codes16) -> Codes16:
        """Return the records with the cells that were drawn, (cells,): (m, d)."""
        codes = self.codes.copy()
        codes[self.rows, self.variables] = cells
        return codes

    def table(self, codes: Codes16, variables: Sequence[int]) -> Ints:
        """Count how many of all records have each combination, with those that lacked a cell as they are in `codes`.

        Args:
            codes: (m, d), see `completed`.
            variables: ascending; a set of parents, or a family.
        """
        mask = np.uint64(sum(1 << v for v in variables))
        key = int(np.searchsorted(self.keys, mask))
        shape = tuple(self.n_states[list(variables)].tolist())
        rows = codes[np.repeat((self.patterns & mask) != 0, np.diff(self.ends, prepend=0))]
        cells = (
            np.ravel_multi_index(tuple(rows[:, v] for v in variables), shape) if shape else np.zeros(0, dtype=np.int64)
        )
        base = self.base[self.places[key] : self.places[key + 1]]
        return (base + np.bincount(cells, minlength=len(base))).reshape(shape)

    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        hasher = hashlib.sha256(self.sets.digest() + self.score.encode() + str(self.n_records).encode())
        for array in (self.n_states, self.codes, self.rows, self.variables, self.base):
            hasher.update(array.tobytes())
        return hasher.digest()


def incomplete(
    columns: Sequence[AnyCodes],
    unknown: Sequence[NDArray[np.bool_] | None],
    n_states: Sequence[int],
    sets: ParentSets,
    score: LocalScore,
) -> Incomplete:
    """Lay out records with unknown cells, and count those that have none, table by table.

    Args:
        columns: (n,) codes of each variable; anything where the cell is not known.
        unknown: (n,) of each variable: its cell is not known; None: all are.
        n_states: categories that a cell of each variable can have.
        sets: see `Incomplete`.
        score: see `Incomplete`.

    Raises:
        Misuse: STUDY_UNSUPPORTED, the tables of all sets are too large together.
        DataFault: LEARNING_FAILED, too many records have an unknown cell.
    """
    d, n = len(n_states), len(columns[0])
    codes, lacks = np.zeros((n, d), dtype=np.uint16), np.zeros(n, dtype=np.uint64)
    for v, (column, is_unknown) in enumerate(zip(columns, unknown, strict=True)):
        codes[:, v] = column if is_unknown is None else np.where(is_unknown, 0, column)
        if is_unknown is not None:
            lacks |= is_unknown.astype(np.uint64) << np.uint64(v)
    if (size := int((lacks != 0).sum()) * d) > TUNING.most_incomplete_cells:
        raise DataFault(
            "LEARNING_FAILED",
            f"posterior.missing 'augment': the records with a missing value have {size} values, "
            f"expected at most {TUNING.most_incomplete_cells}",
            hint="keep missing values as a category (missing = 'category')",
        )
    # Records that lack the same stand together; those that lack nothing first.
    order = np.argsort(lacks, kind="stable")
    codes, lacks = codes[order], lacks[order]
    patterns, ends = np.unique(lacks, return_counts=True)
    ends = np.cumsum(ends).astype(np.int64)
    first = int(ends[0]) if len(patterns) and not patterns[0] else 0
    lacks_some = [[v for v in range(d) if mask >> v & 1] for mask in lacks[first:].tolist()]
    children = np.repeat(np.arange(d), np.diff(sets.starts))
    families = sets.masks | (np.uint64(1) << children.astype(np.uint64))
    keys, at = np.unique(np.concatenate([families, sets.masks]), return_inverse=True)
    members = [[v for v in range(d) if mask >> v & 1] for mask in keys.tolist()]
    sizes = [math.prod(n_states[v] for v in each) for each in members]
    if (total := sum(sizes)) > TUNING.most_incomplete_cells:
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"posterior.missing 'augment': the tables of all families have {total} cells, "
            f"expected at most {TUNING.most_incomplete_cells}",
            hint="lower structure.max_parents or max_family_cells, or keep missing values as a category (missing = 'category')",
        )
    spans = np.cumsum([0, *map(len, members)])
    strides = [math.prod(n_states[v] for v in each[i + 1 :]) for each in members for i in range(len(each))]
    places = np.cumsum([0, *sizes])
    whole, rest = at[: len(families)].astype(np.int64), at[len(families) :].astype(np.int64)
    states = np.array(n_states, dtype=np.int64)
    bdeu = score == "bdeu"
    pseudo = 1 / np.diff(places)[whole] if bdeu else np.ones(len(whole))
    # A term is a table with a prior's count; that of the parents is the sum over the child's categories.
    above = 1 / np.diff(places)[rest] if bdeu else states[children].astype(np.float64)
    pairs = np.concatenate([np.stack([whole, pseudo], axis=1), np.stack([rest, above], axis=1)])
    terms, term_at = np.unique(pairs, axis=0, return_inverse=True)
    base = np.zeros(int(places[-1]), dtype=np.int64)
    problem = Incomplete(
        sets=sets,
        n_states=states,
        n_records=n,
        codes=codes[first:],
        order=order[first:].astype(np.int64),
        rows=np.repeat(np.arange(len(lacks_some)), [len(each) for each in lacks_some]).astype(np.int64),
        variables=np.array([v for each in lacks_some for v in each], dtype=np.int64),
        score=score,
        patterns=patterns[patterns != 0],
        ends=ends[patterns != 0] - first,
        keys=keys,
        spans=spans.astype(np.int64),
        members=np.array([v for each in members for v in each], dtype=np.int64),
        strides=np.array(strides, dtype=np.int64),
        places=places.astype(np.int64),
        whole=whole,
        rest=rest,
        pseudo=pseudo,
        term_key=terms[:, 0].astype(np.int64),
        term_pseudo=terms[:, 1].astype(np.float64),
        whole_term=term_at[: len(whole)].astype(np.int64),
        rest_term=term_at[len(whole) :].astype(np.int64),
        base=base,
    )
    cells.tabulate(
        codes, patterns, ends, keys, problem.spans, problem.members, problem.strides, problem.places, False, base
    )  # fmt: skip
    return problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """Where the chains stand. Its arrays are never written again.

    Attributes:
        problem: what is sampled.
        done: steps of each chain.
        streams: (chains, 1), uint64, of the random numbers.
        listed: (chains, d), where each variable's set is listed in `Incomplete.sets`.
        drawn: (chains, cells), uint16, the unknown cells.
        kept: the graphs kept so far, (chains, n, d), their log weights, (chains, n), and the cells kept so far,
            (chains, q, cells), in pieces.
    """

    problem: Incomplete
    done: int
    streams: Masks
    listed: Ints
    drawn: Codes16
    kept: tuple[tuple[Masks, Floats, Codes16], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompletedSample:
    """Graphs, and to some of them the cells that were drawn with them.

    Attributes:
        sample: the graphs. Their log weight is that of the graph and the completed records together.
        draws: (q,), ascending: places in the sample.
        cells: (q, cells), uint16: the unknown cells that were drawn with each, in the order of `Incomplete.rows`.
    """

    sample: GraphSample
    draws: Ints
    cells: Codes16


class _Work:
    """What a round writes to, and reads again in the next one only where it has written it before."""

    def __init__(self, problem: Incomplete, together: int) -> None:
        sets, n = problem.sets, len(problem.sets.masks)
        self.counts = np.empty_like(problem.base)
        self.terms = np.zeros(len(problem.term_key))
        self.masks, self.fraction, self.log_weight = sets.masks.copy(), np.empty(n), np.empty(n)
        self.power, self.order = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        unknown = np.bitwise_or.reduce(problem.patterns) if len(problem.patterns) else np.uint64(0)
        self.live = np.flatnonzero((problem.keys[problem.term_key] & unknown) != 0)
        self.shapes = shapes_of(min(together, sets.n_variables))
        self.counts[:] = problem.base
        self._sum(problem, np.arange(len(self.terms)))
        self._weigh(problem, 1.0)
        # Whom the records that lack nothing link: the same for every round, so that a resumed run chooses alike.
        visible_sets = dataclasses.replace(sets, masks=self.masks, log_weight=self.log_weight)
        self.nearby = nearby(visible_sets)

    def score(self, problem: Incomplete, codes: Codes16, exponent: float) -> None:
        """Count and weigh, with the unknown cells as they are in `codes`."""
        self.counts[:] = problem.base
        p = problem
        cells.tabulate(
            codes, p.patterns, p.ends, p.keys, p.spans, p.members, p.strides, p.places, True, self.counts
        )  # fmt: skip
        self._sum(problem, self.live)
        self._weigh(problem, exponent)

    def _sum(self, problem: Incomplete, numbers: Ints) -> None:
        cells.sum_terms(self.counts, problem.term_key, problem.term_pseudo, problem.places, numbers, self.terms)

    def _weigh(self, problem: Incomplete, exponent: float) -> None:
        cells.weigh(
            self.terms, problem.whole_term, problem.rest_term, problem.sets.log_weight, exponent, problem.sets.starts,
            problem.sets.masks, self.masks, self.fraction, self.power, self.log_weight, self.order,
        )  # fmt: skip

    def place(self, numbers: Ints) -> Ints:
        """Return where sets stand now that are listed there."""
        places = np.empty(len(self.order), dtype=np.int64)
        places[self.order] = np.arange(len(self.order))
        return places[numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletingChains:
    """How graphs and cells are sampled; the methods are those of `chains.Chains`, for `Incomplete` records.

    Attributes:
        chains: how many.
        steps: of each over graphs, at least 20.
    """

    chains: int = TUNING.chains
    steps: int = TUNING.steps

    @property
    def _plain(self) -> Chains:
        return Chains(chains=self.chains, steps=self.steps)

    def _round(self, problem: Incomplete) -> int:
        """Steps of a round."""
        return self._plain.every * min(max(problem.looks // TUNING.round_looks, 1), TUNING.longest_round)

    def _apart(self, problem: Incomplete) -> int:
        """Return of how many whole rounds one has its cells kept."""
        n = (self.steps - self._plain.burn_in) // self._round(problem)
        most = min(
            TUNING.completed_draws, max(TUNING.most_completed_bytes // (2 * max(problem.n_cells, 1)), 2 * self.chains)
        )
        return max(math.ceil(n * self.chains / most), 1)

    def start(self, problem: Incomplete, seed: int) -> State:
        """Return each chain's first graph, and cells drawn from the shares of each column's known ones."""
        d, sets = problem.sets.n_variables, problem.sets
        words = np.random.SeedSequence(seed).generate_state(self.chains, np.uint64).astype(np.uint64)
        graphs = np.zeros((self.chains, d), dtype=np.int64)
        cells = np.zeros((self.chains, problem.n_cells), dtype=np.uint16)
        work = _Work(problem, self._plain.together)
        alone = [np.bincount(problem.codes[:, v], minlength=k) for v, k in enumerate(problem.n_states)]
        for chain in range(self.chains):
            generator = np.random.default_rng([seed, chain])
            for v, k in enumerate(problem.n_states.tolist()):
                own = problem.variables == v
                shares = alone[v] + 1.0
                shares[0] -= own.sum()  # they stand as 0
                shares /= shares.sum()
                cells[chain, own] = generator.choice(k, size=int(own.sum()), p=shares)
            graphs[chain] = smallest(sets) if chain < 2 else random_graph(sets, generator)
            if chain == 1:
                work.score(problem, problem.completed(cells[chain]), 1.0)
                parents, places = sets.masks[graphs[chain]], work.place(graphs[chain])
                kernels.climb(sets.starts, work.masks, work.log_weight, parents, reversed_graph(parents), places)
                graphs[chain] = work.order[places]
        return State(problem=problem, done=0, streams=words.reshape(-1, 1), listed=graphs, drawn=cells)

    def step(self, state: State) -> State:
        """Some rounds of every chain."""
        problem = state.problem
        rounds = max(TUNING.block_looks // (self.chains * (problem.looks + 1)), 1)
        work, sets = _Work(problem, self._plain.together), problem.sets
        length, apart = self._round(problem), self._apart(problem)
        streams, graphs, values = state.streams.copy(), state.listed.copy(), state.drawn.copy()
        pieces: list[tuple[Masks, Floats, Codes16]] = []
        step = state.done
        for _ in range(rounds):
            if step >= self.steps:
                break
            ends, exponent = self._plain.stage(step)
            steps = min(length, ends - step)
            n = self._plain.n_kept(step + steps) - self._plain.n_kept(step)
            since = step + steps - self._plain.burn_in
            keeps = since > 0 and since % (length * apart) == 0
            parents = np.zeros((self.chains, n, sets.n_variables), dtype=np.uint64)
            weight = np.zeros((self.chains, n))
            samples = np.zeros((self.chains, int(keeps), problem.n_cells), dtype=np.uint16)
            for chain in range(self.chains):
                codes = problem.completed(values[chain])
                work.score(problem, codes, exponent)
                graph, places = sets.masks[graphs[chain]], work.place(graphs[chain])
                kernels.run(
                    steps, step, self._plain.burn_in, self._plain.every, work.shapes, work.nearby, sets.starts, work.masks,
                    work.fraction, work.power, work.log_weight, streams[chain], graph, reversed_graph(graph), places,
                    parents[chain], weight[chain],
                )  # fmt: skip
                graphs[chain] = work.order[places]
                samples[chain] = values[chain]
                at = graphs[chain]
                cells.sweep(
                    TUNING.cell_sweeps, problem.whole[at], problem.rest[at], problem.pseudo[at], problem.n_states,
                    problem.rows, problem.variables, problem.spans, problem.members, problem.strides, problem.places,
                    work.counts, codes, streams[chain],
                )  # fmt: skip
                values[chain] = codes[problem.rows, problem.variables]
            pieces.append((parents, weight, samples))
            step += steps
        piece = _join_pieces(pieces)
        return dataclasses.replace(
            state, done=step, streams=streams, listed=graphs, drawn=values, kept=(*state.kept, piece)
        )

    def progress(self, state: State) -> float:
        """Share of the steps that is done."""
        return state.done / self.steps

    def result(self, state: State) -> CompletedSample:
        """Return the graphs and cells kept so far.

        Raises:
            ValueError: there are fewer than four graphs of each chain.
        """
        problem, (parents, weight, samples) = state.problem, _join_pieces(state.kept)
        n, q = weight.shape[1], samples.shape[1]
        apart = self._apart(problem) * self._round(problem) // self._plain.every
        draws = np.arange(self.chains)[:, None] * n + apart * np.arange(1, q + 1) - 1
        return CompletedSample(
            sample=self._plain.sample_of([(parents, weight)], problem.sets.n_variables, state.done),
            draws=draws.reshape(-1),
            cells=samples.reshape(self.chains * q, problem.n_cells),
        )

    def checkpoint(self, state: State) -> Checkpoint:
        """Return the state as arrays; ``search`` says which settings and which records it is of."""
        problem = state.problem
        parents, weight, cells = _join_pieces(state.kept) if state.kept else _nothing(self.chains, problem)
        return sealed(
            mark_of(self, problem.digest()),
            done=np.array(state.done),
            streams=state.streams,
            listed=state.listed,
            drawn=state.drawn,
            kept_parents=parents,
            kept_weight=weight,
            kept_cells=cells,
        )

    def resume(self, problem: Incomplete, checkpoint: Checkpoint) -> State:
        """Return the state that a checkpoint was made of.

        Raises:
            ValueError: it is of other settings or other records, or incomplete.
        """
        names = ("done", "streams", "listed", "drawn", "kept_parents", "kept_weight", "kept_cells")
        found = opened(checkpoint, mark_of(self, problem.digest()), "records", *names)
        done, streams, listed, drawn, parents, weight, kept = found
        return State(
            problem=problem,
            done=int(done),
            streams=streams.astype(np.uint64),
            listed=listed.astype(np.int64),
            drawn=drawn.astype(np.uint16),
            kept=((parents.astype(np.uint64), weight.astype(np.float64), kept.astype(np.uint16)),),
        )


def _nothing(chains: int, problem: Incomplete) -> tuple[Masks, Floats, Codes16]:
    return (
        np.empty((chains, 0, problem.sets.n_variables), dtype=np.uint64),
        np.empty((chains, 0)),
        np.empty((chains, 0, problem.n_cells), dtype=np.uint16),
    )


def _join_pieces(pieces: Sequence[tuple[Masks, Floats, Codes16]]) -> tuple[Masks, Floats, Codes16]:
    parents, weight, cells = (list(each) for each in zip(*pieces, strict=True))
    return np.concatenate(parents, axis=1), np.concatenate(weight, axis=1), np.concatenate(cells, axis=1)

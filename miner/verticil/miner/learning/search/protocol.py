"""What a search for a structure is: a problem, a searcher that works in small steps, a result, a checkpoint.

A searcher is pure: it has no clock, no files and no threads; its random numbers come from the seed alone. Steps are short (well
below a second), so that `run_search` can report progress and stop between any two of them. A state is a value: it is never
written again, and `checkpoint` turns it into plain arrays that another process goes on from, to the same result. Where
checkpoints go, and how often one is made, is the caller's business: `run_search` offers one after every step.

`Remembered` has the values of families that a search asks for: each is asked for once, and rounded so that equal values are
equal. What is remembered is bounded; the oldest go first. It changes what a search costs, never what it finds.

"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.tuning import TUNING
from verticil.shared.core.errors import InternalFault
from verticil.shared.numerics.model.constraints import Constraints
from verticil.shared.numerics.model.graph import Dag

State = TypeVar("State")

Checkpoint = Mapping[str, NDArray[np.generic]]
"""A state as named arrays of plain numbers, to be written without pickle. ``search`` tells which method and problem it is of."""

Keep = Callable[[Callable[[], Checkpoint]], None]
"""Takes what makes a checkpoint, after every step; making it is left out where none is wanted now."""

_WEIGHT_UNIT: Final = 2.0**-40


class ForeignCheckpoint(ValueError):  # not an error of the search: it can begin anew
    """A checkpoint is of another method, other settings or another problem, or is incomplete."""


class LearningCancelled(Exception):  # not an error: somebody asked for it
    """The work was asked to stop, and stopped between two steps.

    Attributes:
        checkpoint: where the search stood; None when it was not searching.
    """

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        super().__init__()
        self.checkpoint = checkpoint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interruption:
    """How a search is stopped, and gone on with.

    Attributes:
        cancelled: is asked often; where it says so, the work stops with `LearningCancelled`.
        checkpoint: where an earlier run of the same search stopped; None to begin anew. The result is the same.
        keep: is offered a checkpoint after every step.
    """

    cancelled: Callable[[], bool] = lambda: False
    checkpoint: Checkpoint | None = None
    keep: Keep = lambda _make: None

    def check(self) -> None:
        """Stop where it is asked for, between two pieces of work that no checkpoint is made of.

        Raises:
            LearningCancelled: `cancelled` said so.
        """
        if self.cancelled():
            raise LearningCancelled


UNINTERRUPTED: Final = Interruption()


class Stages:
    """One checkpoint of several pieces of work, done in turn: where the one in hand stands, beside where those before it ended.

    Args:
        interruption: of all of them together.
    """

    def __init__(self, interruption: Interruption) -> None:
        self._whole = interruption
        self._name = ""
        self._before: dict[str, NDArray[np.generic]] = {}
        self._latest: Callable[[], Checkpoint] = dict

    @contextlib.contextmanager
    def stage(self, name: str) -> Generator[Interruption]:
        """Yield how the next piece of work is stopped, and gone on with.

        Its checkpoints are its own arrays.

        Args:
            name: without a colon; no other piece has it.

        Raises:
            LearningCancelled: the piece did; it brings the checkpoint of all, where it brought its own.
        """
        prefix = f"{name}:"
        self._before = self._join(self._latest())
        own_arrays = {
            key.removeprefix(prefix): array
            for key, array in (self._whole.checkpoint or {}).items()
            if key.startswith(prefix)
        }
        self._name, self._latest = name, lambda: own_arrays
        try:
            yield dataclasses.replace(self._whole, checkpoint=own_arrays or None, keep=self._offer_checkpoint)
        except LearningCancelled as stop:
            raise LearningCancelled(None if stop.checkpoint is None else self._join(stop.checkpoint)) from None

    def _offer_checkpoint(self, make: Callable[[], Checkpoint]) -> None:
        self._latest = make
        self._whole.keep(lambda: self._join(make()))

    def _join(self, own: Checkpoint) -> dict[str, NDArray[np.generic]]:
        return {**self._before, **{f"{self._name}:{key}": array for key, array in own.items()}}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchProblem:
    """What is searched: the DAG with the largest total weight of its edges, within limits on every family.

    Weights are rounded to multiples of 2^-40, so that sums are exact: equal networks have equal totals, in whatever order
    their edges are added. Methods with a score of their own (`greedy`, `hill_climb`) take everything but the weights from here.

    Attributes:
        weights: (d, d), float64, ``weights[parent, child]`` >= 0, nats; 0 on the diagonal and for an edge that must not be.
            An edge of weight 0 is in no result unless it is required.
        n_states: number of categories of each variable.
        max_parents: most parents of a variable; with 0 there is only the network without edges.
        max_family_cells: most cells of a family's table (parents and child).
        constraints: what every network must meet; None for nothing. Weights of edges that it does not allow become 0.

    Raises:
        ValueError: the parts do not fit each other, or required parents are more than the limits admit.
    """

    weights: NDArray[np.float64]
    n_states: tuple[int, ...]
    max_parents: int
    max_family_cells: int
    constraints: Constraints | None = None

    def __post_init__(self) -> None:
        d = len(self.n_states)
        weights = np.round(np.array(self.weights, dtype=np.float64) / _WEIGHT_UNIT) * _WEIGHT_UNIT
        if (
            weights.shape != (d, d)
            or not (weights >= 0).all()
            or not np.isfinite(weights).all()
            or weights.diagonal().any()
        ):
            raise ValueError(f"expected ({d}, {d}) finite weights >= 0 with a zero diagonal, got shape {weights.shape}")
        if d < 1 or self.max_parents < 0 or self.max_family_cells < 1:
            raise ValueError(
                f"{d} variables, {self.max_parents} parents, {self.max_family_cells} cells: expected at least 1, 0 and 1"
            )
        if self.constraints is not None:
            if len(self.constraints.names) != d:
                raise ValueError(f"constraints on {len(self.constraints.names)} variables, expected {d}")
            weights[~self.constraints.allowed] = 0.0
            for child in range(d):
                required_parents = self.required_parents(child)
                if required_parents and not self.fits(child, required_parents):
                    raise ValueError(
                        f"variable {child}: {len(required_parents)} required parents are more than the limits admit"
                    )
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    def required_parents(self, child: int) -> tuple[int, ...]:
        """Return parents that `child` has in every network, ascending."""
        return () if self.constraints is None else self.constraints.parents_required(child)

    def may_have(self, child: int) -> tuple[int, ...]:
        """Return parents that the constraints allow `child`, ascending, whatever their weights."""
        if self.constraints is None:
            return tuple(v for v in range(len(self.n_states)) if v != child)
        return tuple(np.flatnonzero(self.constraints.allowed[:, child]).tolist())

    def must_precede(self, child: int) -> frozenset[int]:
        """Return variables that an order puts before `child`; see `Constraints.before`."""
        return (
            frozenset()
            if self.constraints is None
            else frozenset(np.flatnonzero(self.constraints.before[:, child]).tolist())
        )

    def fits(self, child: int, parents: Sequence[int]) -> bool:
        """Return whether the family is within the limits on parents and cells; without parents it always is."""
        if not parents:
            return True
        cells = math.prod(self.n_states[v] for v in (*parents, child))
        return len(parents) <= self.max_parents and cells <= self.max_family_cells

    def digest(self) -> bytes:
        """Return the SHA-256 of everything that is searched."""
        digest = hashlib.sha256()
        digest.update(f"{self.n_states} {self.max_parents} {self.max_family_cells}".encode())
        digest.update(self.weights.tobytes())
        if self.constraints is not None:
            digest.update(self.constraints.allowed.tobytes() + self.constraints.required.tobytes())
            digest.update(f"{self.constraints.tiers} {self.constraints.custom}".encode())
        return digest.digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found.

    Attributes:
        dag: the network.
        fitness: what the method makes large, nats: the total weight of the edges, or the total of its own score.
        generations: steps made (generations of the genetic algorithm).
        dropped_edges: edges (parent, child) that the winner proposed and that were left out: of weight 0 (no significant
            information, or forbidden), or too many cells.
        seed: the seed.
        cut_edges: edges that were found and then left out, because the records do not bear them (`learning.parents_cut`).
    """

    dag: Dag
    fitness: float
    generations: int
    dropped_edges: tuple[tuple[int, int], ...]
    seed: int
    cut_edges: tuple[tuple[int, int], ...] = ()


class Searcher(Protocol[State]):
    """One way to search. A state belongs to the searcher that made it; a step returns a new one."""

    def start(self, problem: SearchProblem, seed: int) -> State:
        """Return the state before the first step."""
        ...

    def step(self, state: State) -> State:
        """Do one short piece of work."""
        ...

    def progress(self, state: State) -> float:
        """Return the share of the work that is done; 1 when there is nothing left to do."""
        ...

    def result(self, state: State) -> SearchResult:
        """Return the best network so far."""
        ...

    def checkpoint(self, state: State) -> Checkpoint:
        """Return the state as arrays."""
        ...

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> State:
        """Return the state that `checkpoint` was made of.

        Raises:
            ForeignCheckpoint: it is of another method, other settings or another problem.
        """
        ...


def run_search(
    searcher: Searcher[State],
    problem: SearchProblem,
    *,
    seed: int,
    progress: Callable[[float], None] | None = None,
    interruption: Interruption = UNINTERRUPTED,
) -> SearchResult:
    """Start, step until done, hand over the result.

    Args:
        searcher: how to search.
        problem: what to search.
        seed: any whole number >= 0.
        progress: is told the share that is done after every step.
        interruption: is asked before every step; its checkpoint is of the same searcher, problem and seed.

    Raises:
        LearningCancelled: `interruption` said so, or what a step asks did; it brings the checkpoint.
        ForeignCheckpoint: the checkpoint is of another search.
        InternalFault: INTERNAL, the network violates a limit or constraint: no such network is handed over.
    """
    checkpoint = interruption.checkpoint
    state = searcher.start(problem, seed) if checkpoint is None else searcher.resume(problem, checkpoint)
    while (share := searcher.progress(state)) < 1.0:
        if interruption.cancelled():
            raise LearningCancelled(searcher.checkpoint(state))
        try:
            state = searcher.step(state)
        except LearningCancelled:  # from within the step, which is as if it had not been
            raise LearningCancelled(searcher.checkpoint(state)) from None
        interruption.keep(functools.partial(searcher.checkpoint, state))
        if progress is not None:
            progress(share)
    result = searcher.result(state)
    if faults := violations(problem, result.dag):
        raise InternalFault("INTERNAL", f"the search broke its constraints: {'; '.join(faults)}")
    return result


def sealed(searcher: object, problem: SearchProblem, **arrays: NDArray[np.generic]) -> Checkpoint:
    """Make a checkpoint of `searcher` (a dataclass whose representation names its settings) on `problem`."""
    mark = hashlib.sha256(repr(searcher).encode() + problem.digest()).digest()
    return {"search": np.frombuffer(mark, dtype=np.uint8), **{name: array.copy() for name, array in arrays.items()}}


def open_checkpoint(
    searcher: object, problem: SearchProblem, checkpoint: Checkpoint, *names: str
) -> list[NDArray[np.generic]]:
    """Return the arrays `names` of a checkpoint.

    Raises:
        ForeignCheckpoint: it is of another method, other settings or another problem, or incomplete.
    """
    mark = sealed(searcher, problem)["search"]
    if "search" not in checkpoint or not np.array_equal(checkpoint["search"], mark):
        raise ForeignCheckpoint("the checkpoint is of another search")
    if missing := [name for name in names if name not in checkpoint]:
        raise ForeignCheckpoint(f"the checkpoint lacks {', '.join(missing)}")
    return [np.array(checkpoint[name]) for name in names]


def fitting_parents(problem: SearchProblem, child: int, parents: Sequence[int]) -> tuple[int, ...]:
    """Return the parents that a network keeps of those proposed for `child`, ascending.

    Parents of weight 0 go first; then the lightest one (of equals the one with the larger number), again and again until
    the family's table has at most `max_family_cells` cells. Required parents stay.

    >>> problem = SearchProblem(weights=np.array([[0, 0, 1.0], [0, 0, 2.0], [0, 0, 0]]), n_states=(4, 4, 4),
    ...                         max_parents=2, max_family_cells=16)
    >>> fitting_parents(problem, 2, (0, 1))
    (1,)
    """
    required_parents = problem.required_parents(child)
    remaining = sorted(
        (p for p in parents if problem.weights[p, child] > 0 and p not in required_parents),
        key=lambda p: (-problem.weights[p, child], p),
    )
    while (
        remaining
        and math.prod(problem.n_states[p] for p in (*required_parents, *remaining, child)) > problem.max_family_cells
    ):
        remaining.pop()
    return tuple(sorted((*required_parents, *remaining)))


def total_weight(problem: SearchProblem, dag: Dag) -> float:
    """Sum of the weights of all edges of `dag`; exact, because weights are multiples of 2^-40."""
    return float(sum(problem.weights[parent, child] for parent, child in dag.edges()))


def violations(problem: SearchProblem, dag: Dag) -> tuple[str, ...]:
    """Return what `dag` violates of the problem's limits and constraints, one sentence each; empty when it meets all."""
    names = [str(v) for v in range(len(problem.n_states))]
    if problem.constraints is not None:
        names = list(problem.constraints.names)
    faults = [
        f"'{names[child]}' has {len(parents)} parents and {math.prod(problem.n_states[v] for v in (*parents, child))} cells, "
        f"expected at most {problem.max_parents} and {problem.max_family_cells}"
        for child, parents in enumerate(dag.parents)
        if not problem.fits(child, parents)
    ]
    return tuple(faults) if problem.constraints is None else (*faults, *problem.constraints.violations(dag))


K = TypeVar("K")
V = TypeVar("V")


FamilyValue = Callable[[int, tuple[int, ...]], float]
"""(child, parents ascending) -> nats. A pure function of the data."""


def remember(memory: dict[K, V], key: K, value: V, *, most: int = TUNING.most_families) -> None:
    """Keep a value; where there are `most`, the one that was kept first goes.

    >>> known = {"a": 1, "b": 2}
    >>> remember(known, "c", 3, most=2)
    >>> known
    {'b': 2, 'c': 3}
    """
    if len(memory) >= most:
        del memory[next(iter(memory))]
    memory[key] = value


class Remembered:
    """A family value with a memory.

    Args:
        value: what to ask.
        unit: values are rounded to multiples of it, a power of two, so that sums are exact and ties are ties.

    >>> asked = []
    >>> value = Remembered(lambda child, parents: asked.append(child) or 0.3, unit=0.25)
    >>> value(1, (0,)), value(1, (0,)), asked
    (0.25, 0.25, [1])
    """

    def __init__(self, value: FamilyValue, *, unit: float) -> None:
        self._value, self._unit = value, unit
        self._known: dict[tuple[int, tuple[int, ...]], float] = {}

    def __call__(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the value of a family.

        Raises:
            ValueError: it is not a finite number.
        """
        key = (child, parents)
        if key not in self._known:
            value = float(self._value(child, parents))
            if not math.isfinite(value):
                raise ValueError(
                    f"variable {child} with the parents {parents}: the value is {value}, expected a finite number"
                )
            remember(self._known, key, round(value / self._unit) * self._unit)
        return self._known[key]

"""A network's probabilities by whole randomized records: expectation maximization over a tree of cliques.

The tables of pairs and of families are parts of what was released. A record's reports of all its columns together tell more: with
y the reports, C the channels and p a network,

    likelihood = prod over records of sum over x of p(x) prod over columns a of C_a(x_a, y_a),

and one step of expectation maximization (Dempster, Laird & Rubin 1977; of networks Lauritzen 1995) takes the place of each
family's table by how often each of its cells is expected given a record's reports, on average. What is expected is computed by
two passes over a tree of cliques of the moral graph, triangulated (Lauritzen & Spiegelhalter 1988), each report a likelihood of
its column.

Channels that blur make such steps short: of a contrast lambda of each column of a family, some prod lambda of the way is gone. So
a step is raised to the power of half the inverse of that product, at most `STRONGEST`, as in
`verticil.shared.numerics.joint.weighted_records`; where the likelihood falls, the step is taken back, and from then on half as
much is the most. The last of `STEPS` steps is a plain one, after which the likelihood cannot be lower.

A cell that is impossible in the network stays so.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.miner.learning import row_kernels
from verticil.miner.learning.row_kernels import Places
from verticil.shared.core.arrays import AnyCodes, Floats
from verticil.shared.numerics.estimation.design import ColumnUnit
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.estimate import too_few_records
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.model.network import Network

STEPS: Final = 20
STRONGEST: Final = 4.0
MOST_CELLS: Final = 40_000_000
"""Most cells of all cliques together times records: what takes some two CPU seconds."""
_FEWEST: Final = 1000  # records that as much as of so many is done for: the cells of a block are held in memory
_LARGEST_RATIO: Final = 20.0
_LEAST: Final = 1e-9  # probability that is not 0
_BLOCK: Final = 32  # records at a time, whose cells stay in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cliques:
    """A tree of cliques.

    Attributes:
        members: of each clique the variables, ascending; children before their parents, the root last.
        above: of each clique its parent's position; of the root itself.
        home: of each variable the first clique that holds its family.
    """

    members: tuple[tuple[int, ...], ...]
    above: tuple[int, ...]
    home: tuple[int, ...]

    def cells(self, n_states: Sequence[int]) -> int:
        """Return the number of cells of all cliques together."""
        return sum(math.prod(n_states[v] for v in members) for members in self.members)


def tree_of_cliques(parents: Sequence[Sequence[int]], n_states: Sequence[int]) -> Cliques:
    """Triangulate the moral graph, always by the variable whose clique is smallest, and join cliques by what they share most.

    Args:
        parents: of each variable.
        n_states: number of categories of each.

    >>> tree_of_cliques([(), (0,), (0,), (1, 2)], (2, 2, 2, 2)).members
    ((1, 2, 3), (0, 1, 2))
    """
    d = len(parents)
    near: list[set[int]] = [set() for _ in range(d)]
    for child, of in enumerate(parents):
        for a, b in itertools.combinations({child, *of}, 2):
            near[a].add(b)
            near[b].add(a)
    remaining, cliques = set(range(d)), list[frozenset[int]]()
    while remaining:
        variable = min(remaining, key=lambda v: (n_states[v] * math.prod(n_states[u] for u in near[v]), v))
        clique = frozenset(near[variable] | {variable})
        if not any(clique <= other for other in cliques):
            cliques.append(clique)
        for a, b in itertools.combinations(near[variable], 2):
            near[a].add(b)
            near[b].add(a)
        for other in near[variable]:
            near[other].discard(variable)
        remaining.discard(variable)
    joining_order, above = [0], {0: 0}  # a spanning tree of the largest common parts (Prim)
    nearest = dict.fromkeys(range(1, len(cliques)), 0)
    while nearest:
        new = max(nearest, key=lambda k: (len(cliques[k] & cliques[nearest[k]]), -k))
        above[new] = nearest.pop(new)
        joining_order.append(new)
        for k, old in nearest.items():
            if len(cliques[k] & cliques[new]) > len(cliques[k] & cliques[old]):
                nearest[k] = new
    order = joining_order[::-1]
    place = {clique: position for position, clique in enumerate(order)}
    members = tuple(tuple(sorted(cliques[k])) for k in order)
    families = [{child, *of} for child, of in enumerate(parents)]
    return Cliques(
        members=members,
        above=tuple(place[above[k]] for k in order),
        home=tuple(next(k for k, of in enumerate(members) if family <= set(of)) for family in families),
    )


def fit_rows(
    network: Network,
    columns: Sequence[AnyCodes],
    units: Sequence[ColumnUnit],
    *,
    steps: int = STEPS,
    check: Callable[[], None] = lambda: None,
) -> Network:
    """Return the network with the probabilities that whole records tell.

    Args:
        network: where it begins; its arrows stay.
        columns: released codes of each unit, (n,), or (n, w) of units whose records have w codes.
        units: how they were randomized.
        steps: of expectation maximization.
        check: is called between steps, and raises to stop.

    Returns:
        A network with other `probability` and otherwise the same families: its estimates and intervals are of the families'
        tables. The network itself, where no column is randomized, where some are compounds or released as sets, or where the
        records' cliques have more than `MOST_CELLS` cells.
    """
    if not can_be_fitted(network, len(columns[0]), units):
        return network
    work = _Rows(network, columns, units)
    best, strongest = -math.inf, STRONGEST
    best_tables, best_expected = work.tables, work.tables
    for step in range(steps):
        check()
        counts, likelihood = work.expect()
        if likelihood >= best:
            best, best_tables, best_expected = likelihood, work.tables, counts
        else:
            strongest = max(strongest / 2, 1.0)
        work.tables = work.move(best_tables, best_expected, strongest if step < steps - 1 else 1.0)
    families = tuple(
        dataclasses.replace(family, probability=work.rows_of(child)) for child, family in enumerate(network.families)
    )
    return dataclasses.replace(network, families=families)


def source_of_records(
    network: Network,
    columns: Sequence[AnyCodes],
    tables: NoisyTables,
    *,
    is_restricted: bool,
    check: Callable[[], None] = lambda: None,
) -> Network:
    """Return the network that a joint model's records are drawn from: by whole records, see `fit_rows`.

    It is the network itself where all records have to meet something that whole ones know nothing of (`is_restricted`), and where
    the tables are so wide that no records are weighed.
    """
    if is_restricted or too_few_records(tables):
        return network
    return fit_rows(network, columns, tables.units, check=check)


def can_be_fitted(network: Network, n: int, units: Sequence[ColumnUnit]) -> bool:
    """Return whether whole records are looked at: see `fit_rows`."""
    single = all(len(unit.variables) == 1 and unit.channel.codes_per_record == 1 for unit in units)
    if not single or all(unit.channel.is_identity for unit in units):
        return False
    n_states = network.schema.n_states
    largest = max(math.prod(n_states[v] for v in (f.child, *f.parents)) for f in network.families)
    n = max(n, _FEWEST)
    if n * largest > MOST_CELLS:
        return False
    return n * tree_of_cliques(network.dag.parents, n_states).cells(n_states) <= MOST_CELLS


class _Rows:
    """The records, the tree, and the families' tables, each with its child's axis last."""

    def __init__(self, network: Network, columns: Sequence[AnyCodes], units: Sequence[ColumnUnit]) -> None:
        self._states = network.schema.n_states
        self._scopes = [(*family.parents, family.child) for family in network.families]
        self.tables = [
            family.probability.reshape([self._states[v] for v in scope])
            for family, scope in zip(network.families, self._scopes, strict=True)
        ]
        by_variable = sorted(zip(units, columns, strict=True), key=lambda pair: pair[0].variables)
        self._codes = np.stack([np.asarray(column).ravel() for _, column in by_variable]).astype(np.int32)
        channels = [unit.channel for unit, _ in by_variable]
        widest = max(channel.probabilities.shape[1] for channel in channels)
        self._likelihood = np.zeros((sum(self._states), widest))
        self._first = np.concatenate([[0], np.cumsum(self._states)]).astype(np.int32)
        for start, channel in zip(self._first, channels, strict=False):
            rows, reports = channel.probabilities.shape
            self._likelihood[start : start + rows, :reports] = channel.probabilities
        contrast = [atoms.contrast(channel) for channel in channels]
        self._powers = [0.5 / max(math.prod(contrast[v] for v in scope), 1e-9) for scope in self._scopes]
        self._tree = tree_of_cliques(network.dag.parents, self._states)
        self._layout = _layout(self._tree, self._states)

    def expect(self) -> tuple[list[Floats], float]:
        """Return how often each cell of each family is expected, and the logarithm of the likelihood."""
        layout = self._layout
        sums = np.zeros(layout.starts[-1])
        likelihood = row_kernels.expect(
            self._codes, self._likelihood, self._first, self._potentials(), layout.starts, layout.above,
            layout.separators, layout.upward, layout.downward, layout.down_starts, layout.reports, layout.variables,
            layout.categories, layout.category_starts, sums, _BLOCK,
        )  # fmt: skip
        tables = []
        for child, scope in enumerate(self._scopes):
            members = self._tree.members[self._tree.home[child]]
            start = layout.starts[self._tree.home[child]]
            shape = [self._states[v] for v in members]
            table = sums[start : start + math.prod(shape)].reshape(shape)
            others = tuple(place for place, v in enumerate(members) if v not in scope)
            scope_order = sorted(scope)
            tables.append(table.sum(axis=others).transpose([scope_order.index(v) for v in scope]))
        return tables, float(likelihood)

    def _potentials(self) -> Floats:
        """Return the product of the families' tables that have their home in each clique."""
        potentials = np.ones(self._layout.starts[-1])
        for child, (scope, table) in enumerate(zip(self._scopes, self.tables, strict=True)):
            members = self._tree.members[self._tree.home[child]]
            start = self._layout.starts[self._tree.home[child]]
            shape = [self._states[v] for v in members]
            scope_order = sorted(scope)
            own = table.transpose([scope.index(v) for v in scope_order])
            own = own.reshape([self._states[v] if v in scope else 1 for v in members])
            cells = potentials[start : start + math.prod(shape)].reshape(shape)
            cells *= own
        return potentials

    def move(self, tables: list[Floats], expected_counts: list[Floats], strongest: float) -> list[Floats]:
        """Return tables after a step, raised to at most such a power."""
        new_tables = []
        for table, counts, strength in zip(tables, expected_counts, self._powers, strict=True):
            rows = counts.sum(axis=-1, keepdims=True)
            shares = np.divide(counts, rows, out=table.copy(), where=rows > 0)
            if (power := min(strength, strongest)) > 1:
                ratio = np.divide(shares, table, out=np.ones_like(table), where=table > 0)
                shares = np.maximum(table, _LEAST) * np.clip(ratio, 1 / _LARGEST_RATIO, _LARGEST_RATIO) ** power
                shares = np.where(table > 0, shares, 0.0)
                shares /= shares.sum(axis=-1, keepdims=True)
            new_tables.append(shares)
        return new_tables

    def rows_of(self, child: int) -> Floats:
        """Return (J, K), as a family has them."""
        return self.tables[child].reshape(-1, self._states[child])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """The tree in flat arrays: see `row_kernels.expect`, whose arguments they are."""

    starts: Places
    above: Places
    separators: Places
    upward: Places
    downward: Places
    down_starts: Places
    reports: Places
    variables: Places
    categories: Places
    category_starts: Places


def _layout(tree: Cliques, n_states: Sequence[int]) -> _Layout:
    cells = [_categories(members, n_states) for members in tree.members]
    shared = [
        tuple(v for v in members if v in tree.members[above]) if k < len(tree.members) - 1 else ()
        for k, (members, above) in enumerate(zip(tree.members, tree.above, strict=True))
    ]
    downward = [_number_cells(cells[above], of, n_states) for above, of in zip(tree.above[:-1], shared, strict=False)]
    at_home = [[v for v, home in enumerate(tree.home) if home == k] for k in range(len(tree.members))]
    categories = [cells[k][v] for k, of in enumerate(at_home) for v in of]
    return _Layout(
        starts=_starts([len(of[members[0]]) for members, of in zip(tree.members, cells, strict=True)]),
        above=np.array(tree.above, dtype=np.int32),
        separators=_starts([math.prod(n_states[v] for v in of) for of in shared]),
        upward=np.concatenate([_number_cells(of, common, n_states) for of, common in zip(cells, shared, strict=True)]),
        downward=np.concatenate([np.empty(0, dtype=np.int32), *downward]),
        down_starts=_starts([len(each) for each in downward]),
        reports=_starts([len(of) for of in at_home]),
        variables=np.array([v for of in at_home for v in of], dtype=np.int32),
        categories=np.concatenate(categories),
        category_starts=_starts([len(each) for each in categories]),
    )


def _categories(members: Sequence[int], n_states: Sequence[int]) -> dict[int, Places]:
    """Return of each member its category in every cell of a table of all of them, the last one fastest."""
    grid = np.indices([n_states[v] for v in members], dtype=np.int32)
    return {v: axis.ravel() for v, axis in zip(members, grid, strict=True)}


def _number_cells(cells: Mapping[int, Places], members: Sequence[int], n_states: Sequence[int]) -> Places:
    """Return the cell in a table of some members that each cell belongs to."""
    numbers = np.zeros(len(next(iter(cells.values()))), dtype=np.int32)
    for v in members:
        numbers = numbers * np.int32(n_states[v]) + cells[v]
    return numbers


def _starts(sizes: Sequence[int]) -> Places:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)

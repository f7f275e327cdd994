"""Exact inference in a discrete network by variable elimination: marginals, evidence, and the conditional network.

A factor is a table over some variables. Variables are eliminated one after the other, always the one whose elimination builds the
smallest table (min-weight; Koller & Friedman, Probabilistic Graphical Models, section 9.4). What is multiplied just before a
variable v is summed out is, normalised over v, its distribution given the variables that are still there; drawing in the
reverse order from these tables therefore draws from the joint distribution given the evidence, without rejection.

What is known of all records enters as more factors, tables of 0 and 1 over some variables (`verticil.shared.numerics.knowledge`):
then all of it is of the distribution given that they are met. What is neither above a variable of the evidence nor of such a
table keeps its own family, drawn last.

The cost is the largest table that is built; beyond `MAX_CLIQUE_CELLS` it is refused, never approximated.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.network import Network

Factor = tuple[tuple[int, ...], Floats]

MAX_CLIQUE_CELLS: Final = 2_000_000
"""Largest table that is built."""


class TooWideError(ValueError):
    """An elimination would need a table of more than `MAX_CLIQUE_CELLS` cells."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConditionalStep:
    """How one variable is drawn, given those drawn before it.

    Attributes:
        child: position of the variable.
        parents: positions of variables that are drawn earlier, ascending.
        probability: (product of the parents' states in C order, K), rows sum to 1. A row that cannot occur is uniform.
    """

    child: int
    parents: tuple[int, ...]
    probability: Floats


def network_marginals(network: Network, evidence: Sequence[Factor] = ()) -> list[Floats]:
    """Compute the share of every category under the network, exactly, by variable elimination among each variable's
    ancestors.

    Args:
        network: the model.
        evidence: tables of 0 and 1 that are met by every record; none: all records can be.

    Returns:
        For each variable (K,), float64, in schema order.

    Raises:
        TooWideError: see there.
        ValueError: no record meets what is given.
    """
    return [_shares(network, (variable,), evidence) for variable in range(len(network.schema))]


def network_pair(network: Network, first: int, second: int, evidence: Sequence[Factor] = ()) -> Floats:
    """Compute the joint shares of two variables under the network, exactly: (K_first, K_second); see
    `network_marginals`.
    """
    return _shares(network, (first, second), evidence)


def sum_out(factors: Sequence[Factor], n_states: Sequence[int], members: Sequence[int]) -> Floats:
    """Multiply factors, sum over all variables but some, and normalise: one axis for each of these, in their order.

    Args:
        factors: each a table over some variables, in their order.
        n_states: number of categories of each variable.
        members: the variables that stay, different ones, each in a factor.

    Raises:
        TooWideError: see there.
        ValueError: the product is 0 everywhere.
    """
    clique = tuple(sorted(members))
    table = total(factors, n_states, clique)
    product = table.transpose([clique.index(member) for member in members])
    if not (mass := product.sum()) > 0:
        raise ValueError("the rules have probability 0 under the network")
    return np.ascontiguousarray(product / mass)


def total(
    factors: Sequence[Factor], n_states: Sequence[int], clique: tuple[int, ...], *, whether: bool = False
) -> Floats:
    """Multiply factors and sum over all variables but some.

    Args:
        factors: each a table over some variables, in their order.
        n_states: number of categories of each variable.
        clique: the variables that stay, ascending.
        whether: it is asked only whether the sum is more than 0: then 1 stands for it, and nothing can overflow.

    Returns:
        One axis for each variable that stays; of length one where no factor has it.

    Raises:
        TooWideError: see there.
    """
    others = {variable for scope, _ in factors for variable in scope} - set(clique)
    return _product(_reduce(n_states, list(factors), others, whether=whether), clique)


def condition(
    network: Network, evidence: Mapping[int, int], factors: Sequence[Factor] = ()
) -> tuple[ConditionalStep, ...]:
    """Return the network given the evidence, as tables to draw from in order; see `condition_with_probability`."""
    return condition_with_probability(network, evidence, factors)[0]


def condition_with_probability(
    network: Network, evidence: Mapping[int, int], factors: Sequence[Factor] = ()
) -> tuple[tuple[ConditionalStep, ...], float]:
    """Return the network given the evidence and what is met by every record, and how probable that is.

    Args:
        network: the model.
        evidence: variable -> code; empty: the joint distribution itself, in another factorization.
        factors: tables of 0 and 1 that every record meets, each over some variables, in their order.

    Returns:
        One step for each variable that is not in the evidence, in drawing order; and the probability, under the network, of
        evidence and tables together.

    Raises:
        ValueError: a variable or code is out of range; or evidence and tables have probability 0.
        TooWideError: see there.
    """
    _check(network, evidence)
    everything = set(range(len(network.schema)))
    relevant = everything if not factors else _ancestors(network, {*evidence, *_union(scope for scope, _ in factors)})
    tables = [*_factors(network, relevant, evidence), *(_at(factor, evidence) for factor in factors)]
    steps, probability = _eliminate(network.schema.n_states, tables, relevant - set(evidence))
    if not probability > 0:
        what = "the evidence has" if not factors else "the rules have" if not evidence else "evidence and rules have"
        raise ValueError(f"{what} probability 0 under the network")
    steps.reverse()
    for child in network.dag.topological_order():
        if child not in relevant:
            ((scope, table),) = _factors(network, [child], evidence)
            rows = table.reshape(-1, network.schema.n_states[child])
            steps.append(ConditionalStep(child=child, parents=scope[:-1], probability=rows))
    return tuple(steps), probability


def family_shares(network: Network, factors: Sequence[Factor] = ()) -> tuple[dict[int, Floats], float]:
    """Compute the shares of every family's combinations given what is met by every record, and how probable that is,
    exactly.

    One elimination, then back through it: what was multiplied before a variable was summed out, times what the rest makes of the
    sum, is the joint distribution of its clique (Koller & Friedman, section 10.2, of the tree that elimination makes).

    Args:
        network: the model.
        factors: see `condition_with_probability`.

    Returns:
        Of each variable that is in a factor or above one (of all, without factors): (J, K), sums to 1; and the probability of
        the factors, 0 where no record meets them: then there are no shares.

    Raises:
        TooWideError: see there.
    """
    n_states = network.schema.n_states
    relevant = _ancestors(network, _union(scope for scope, _ in factors) or range(len(n_states)))
    elimination = _Elimination(n_states, [*_factors(network, relevant, {}), *factors], relevant)
    tables: list[Factor] = list(elimination.factors.values())
    steps: list[tuple[Sequence[int], tuple[int, ...], Floats]] = []
    while elimination.left:
        _, clique, inside, joint = elimination.step()
        tables.append(elimination.latest)
        steps.append((inside, clique, joint))
    there = list(elimination.factors)
    probability = math.prod(float(tables[place][1]) for place in there)
    if not probability > 0:
        return {}, 0.0
    shares: dict[int, Floats] = {place: np.ones(()) for place in there}
    for number, (inside, clique, joint) in zip(range(len(tables) - 1, -1, -1), reversed(steps), strict=False):
        table, sums = tables[number]
        rest = np.divide(shares[number], sums, out=np.zeros_like(sums), where=sums > 0)
        whole = joint * _product([(table, rest)], clique)
        for place in inside:
            scope = tables[place][0]
            own = whole.sum(axis=tuple(axis for axis, v in enumerate(clique) if v not in scope))
            order = sorted(range(len(scope)), key=lambda axis: scope[axis])
            shares[place] = own.transpose(np.argsort(order))
    return {v: shares[place].reshape(-1, n_states[v]) for place, v in enumerate(sorted(relevant))}, probability


def together(network: Network, target: int, evidence: Mapping[int, int], factors: Sequence[Factor] = ()) -> Floats:
    """Compute how probable each category of a variable is together with the evidence: (K,), exactly; see `derivatives`."""
    _check(network, evidence)
    relevant = sorted(_ancestors(network, {target, *evidence, *_union(scope for scope, _ in factors)}))
    tables = [*_factors(network, relevant, {}), *factors]
    return _with_evidence(tables, (target,), evidence, network.schema.n_states)


def _with_evidence(
    tables: Sequence[Factor], clique: tuple[int, ...], evidence: Mapping[int, int], n_states: Sequence[int]
) -> Floats:
    """Multiply tables where the evidence holds, 0 elsewhere, and sum over all variables but some: an axis for each."""
    outside = {variable: code for variable, code in evidence.items() if variable not in clique}
    inside = [((v,), np.eye(n_states[v])[code]) for v, code in evidence.items() if v in clique]
    order = tuple(sorted(clique))
    table = total([*(_at(factor, outside) for factor in tables), *inside], n_states, order)
    whole = np.broadcast_to(table, [n_states[v] for v in order])
    return whole.transpose([order.index(v) for v in clique])


def derivatives(
    network: Network, target: int, evidence: Mapping[int, int], factors: Sequence[Factor] = ()
) -> tuple[Floats, dict[int, Floats]]:
    """Compute how probable each category of a variable is together with the evidence, and the derivatives of that,
    exactly.

    A probability of a network is linear in each of its parameters (Castillo, Gutiérrez & Hadi 1997): its derivative is the same
    sum without the parameter's own table.

    Args:
        network: the model.
        target: a variable.
        evidence: variable -> code.
        factors: see `condition_with_probability`.

    Returns:
        (K,), P(target = k, evidence, factors), 0 where this cannot be; and for each variable that is in any of these or above
        one (K, J, S), its derivative by the variable's parameter of row j and category s.

    Raises:
        ValueError: a variable or code is out of range.
        TooWideError: see there.
    """
    _check(network, evidence)
    n_states = network.schema.n_states
    relevant = sorted(_ancestors(network, {target, *evidence, *_union(scope for scope, _ in factors)}))
    tables = [*_factors(network, relevant, {}), *factors]
    slopes: dict[int, Floats] = {}
    for place, variable in enumerate(relevant):
        family = (*network.dag.parents[variable], variable)
        others = [*tables[:place], *tables[place + 1 :]]
        if (cells := n_states[target] * math.prod(n_states[v] for v in family)) > MAX_CLIQUE_CELLS:
            raise TooWideError(
                f"the family of variable {variable} with variable {target} needs a table of {cells} cells, "
                f"expected at most {MAX_CLIQUE_CELLS}"
            )
        if target in family:
            own = np.eye(n_states[target]).reshape(-1, *(n_states[v] if v == target else 1 for v in family))
            table = _with_evidence(others, family, evidence, n_states)[None] * own
        else:
            table = _with_evidence(others, (target, *family), evidence, n_states)
        slopes[variable] = table.reshape(n_states[target], -1, n_states[variable])
    return _with_evidence(tables, (target,), evidence, n_states), slopes


def configuration_shares(steps: Sequence[ConditionalStep], n_states: Sequence[int]) -> list[Floats]:
    """Compute how probable each configuration of a step's parents is when records are drawn by these steps, exactly.

    Args:
        steps: in drawing order.
        n_states: number of categories of each variable.

    Returns:
        For each step (J,), float64, the rows of its table in order; sums to 1.

    Raises:
        TooWideError: see there.
    """
    above = {step.child: step.parents for step in steps}
    factor_of = {step.child: _step_factor(step, n_states) for step in steps}
    shares: list[Floats] = []
    for step in steps:
        relevant = _above(above, step.parents)
        factors = _reduce(n_states, [factor_of[v] for v in sorted(relevant)], relevant - set(step.parents))
        table = _product(factors, step.parents)
        shares.append((table / table.sum()).ravel())
    return shares


def _step_factor(step: ConditionalStep, n_states: Sequence[int]) -> Factor:
    scope = (*step.parents, step.child)
    return scope, step.probability.reshape([n_states[v] for v in scope])


def _check(network: Network, evidence: Mapping[int, int]) -> None:
    n_states = network.schema.n_states
    for variable, code in evidence.items():
        if not (0 <= variable < len(n_states) and 0 <= code < n_states[variable]):
            raise ValueError(f"evidence on variable {variable}, code {code}: out of range")


def _shares(network: Network, members: tuple[int, ...], factors: Sequence[Factor]) -> Floats:
    relevant = _ancestors(network, {*members, *_union(scope for scope, _ in factors)})
    return sum_out([*_factors(network, relevant, {}), *factors], network.schema.n_states, members)


def _ancestors(network: Network, targets: Iterable[int]) -> set[int]:
    return _above(dict(enumerate(network.dag.parents)), targets)


def _above(parents: Mapping[int, Sequence[int]], targets: Iterable[int]) -> set[int]:
    """Return the targets and everything above them; the rest sums to 1."""
    relevant = set(targets)
    waiting = list(relevant)
    while waiting:
        new = set(parents[waiting.pop()]) - relevant
        relevant |= new
        waiting.extend(new)
    return relevant


def _factors(network: Network, variables: Iterable[int], evidence: Mapping[int, int]) -> list[Factor]:
    n_states = network.schema.n_states
    factors: list[Factor] = []
    for variable in sorted(variables):
        scope = (*network.dag.parents[variable], variable)
        table = network.families[variable].probability.reshape([n_states[v] for v in scope])
        factors.append(_at((scope, table), evidence))
    return factors


def _at(factor: Factor, evidence: Mapping[int, int]) -> Factor:
    """Return a factor where some variables have the codes of the evidence; these then have no axis."""
    scope, table = factor
    return tuple(v for v in scope if v not in evidence), table[tuple(evidence.get(v, slice(None)) for v in scope)]


def _eliminate(
    n_states: Sequence[int], factors: list[Factor], variables: set[int]
) -> tuple[list[ConditionalStep], float]:
    """Eliminate all of `variables`; the steps in order of elimination, and what is left: the probability of the evidence."""
    steps: list[ConditionalStep] = []
    elimination = _Elimination(n_states, factors, variables)
    while elimination.left:
        child, clique, _, joint = elimination.step()
        parents = tuple(v for v in clique if v != child)
        rows = np.moveaxis(joint, clique.index(child), -1).reshape(-1, n_states[child])
        totals = rows.sum(axis=1, keepdims=True)
        rows = np.where(totals > 0, rows / np.where(totals > 0, totals, 1.0), 1 / n_states[child])
        steps.append(ConditionalStep(child=child, parents=parents, probability=rows))
    return steps, math.prod(float(table) for _, table in elimination.factors.values())


def _reduce(
    n_states: Sequence[int], factors: list[Factor], variables: set[int], *, whether: bool = False
) -> list[Factor]:
    elimination = _Elimination(n_states, factors, variables)
    while elimination.left:
        elimination.step(whether=whether)
    return list(elimination.factors.values())


class _Elimination:
    """Variables that are summed out of a product of factors, one after the other.

    What the next one would cost is known of every variable, and after a step only that of its clique is computed again: a
    network of a thousand variables is gone through in a thousand small steps.

    Args:
        n_states: number of categories of each variable.
        factors: the product.
        left: the variables to be summed out, each in a factor.

    Attributes:
        factors: those that are left, by number: made later, behind.
        left: the variables that are left.
        latest: the factor that the last step made.
    """

    def __init__(self, n_states: Sequence[int], factors: Sequence[Factor], variables: Iterable[int]) -> None:
        self.factors = dict(enumerate(factors))
        self.left = set(variables)
        self.latest: Factor
        self._n_states, self._made = n_states, len(factors)
        self._with: dict[int, set[int]] = {v: set() for v in self.left}
        for number, (scope, _) in self.factors.items():
            for v in self.left.intersection(scope):
                self._with[v].add(number)
        self._cells = {v: self._cost(v) for v in self.left}
        self._waiting = [(cells, v) for v, cells in self._cells.items()]
        heapq.heapify(self._waiting)

    def step(self, *, whether: bool = False) -> tuple[int, tuple[int, ...], Sequence[int], Floats]:
        """Sum out the variable whose clique has the fewest cells, of equals the smallest.

        Args:
            whether: see `total`.

        Returns:
            The variable, its clique, the numbers of the factors that had it, and their product.

        Raises:
            TooWideError: see there.
        """
        cells, variable = heapq.heappop(self._waiting)
        while (
            self._cells.get(variable) != cells
        ):  # of a variable that is gone, or of before a step that changed its clique
            cells, variable = heapq.heappop(self._waiting)
        if cells > MAX_CLIQUE_CELLS:
            raise TooWideError(
                f"eliminating variable {variable} needs a table of {cells} cells, expected at most {MAX_CLIQUE_CELLS}"
            )
        clique, inside = self._clique(variable), sorted(self._with[variable])
        joint = _product([self.factors.pop(number) for number in inside], clique)
        table = joint.sum(axis=clique.index(variable))
        self.latest = tuple(v for v in clique if v != variable), (table > 0).astype(np.float64) if whether else table
        self.factors[self._made] = self.latest
        self.left.remove(variable)
        del self._cells[variable]
        for v in self.left.intersection(clique):
            self._with[v].difference_update(inside)
            self._with[v].add(self._made)
            self._cells[v] = self._cost(v)
            heapq.heappush(self._waiting, (self._cells[v], v))
        self._made += 1
        return variable, clique, inside, joint

    def _clique(self, variable: int) -> tuple[int, ...]:
        return _union(self.factors[number][0] for number in self._with[variable])

    def _cost(self, variable: int) -> int:
        return math.prod(self._n_states[v] for v in self._clique(variable))


def _union(scopes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({variable for scope in scopes for variable in scope}))


def _product(factors: Sequence[Factor], clique: tuple[int, ...]) -> Floats:
    """Multiply factors to one table with an axis for each variable of the clique."""
    result = np.ones((1,) * len(clique))
    for scope, table in factors:
        order = sorted(range(len(scope)), key=lambda axis: scope[axis])
        axes = table.transpose(order)
        sizes = iter(axes.shape)
        result = result * axes.reshape([next(sizes) if variable in scope else 1 for variable in clique])
    return result

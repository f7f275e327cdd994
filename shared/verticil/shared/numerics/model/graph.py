"""Directed acyclic graphs over variables 0 .. d-1, given by the parents of each, and what they say about independence."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dag:
    """A directed acyclic graph.

    Attributes:
        parents: for each variable its parents, ascending, distinct.

    Raises:
        ValueError: a parent is out of range, repeated, or there is a cycle (the message names its variables).

    >>> Dag(parents=((), (0,), (0, 1))).topological_order()
    (0, 1, 2)
    >>> Dag(parents=((1,), (0,)))
    Traceback (most recent call last):
      ...
    ValueError: the graph has a cycle through the variables 0, 1
    """

    parents: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        d = len(self.parents)
        for child, family in enumerate(self.parents):
            if list(family) != sorted(set(family)) or any(not 0 <= parent < d or parent == child for parent in family):
                raise ValueError(
                    f"parents of variable {child} are {family}, expected ascending distinct others in 0..{d - 1}"
                )
        self.topological_order()

    @property
    def n_variables(self) -> int:
        """Number of variables, d."""
        return len(self.parents)

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Return all edges (parent, child), by child, then parent."""
        return tuple((parent, child) for child, family in enumerate(self.parents) for parent in family)

    def topological_order(self) -> tuple[int, ...]:
        """Return the order in which every variable stands behind its parents; ties by the smaller number."""
        children: list[list[int]] = [[] for _ in self.parents]
        missing = [len(family) for family in self.parents]
        for parent, child in self.edges():
            children[parent].append(child)
        ready = [v for v, count in enumerate(missing) if not count]  # ascending, so a heap
        order: list[int] = []
        while ready:
            variable = heapq.heappop(ready)
            order.append(variable)
            for child in children[variable]:
                missing[child] -= 1
                if not missing[child]:
                    heapq.heappush(ready, child)
        if len(order) < len(self.parents):
            cycle = self._cycle(set(order))
            raise ValueError(f"the graph has a cycle through the variables {', '.join(map(str, cycle))}")
        return tuple(order)

    def _cycle(self, before: set[int]) -> list[int]:
        start = next(v for v in range(len(self.parents)) if v not in before)
        path: list[int] = []
        while start not in path:
            path.append(start)
            start = next(parent for parent in self.parents[start] if parent not in before)
        return sorted(path[path.index(start) :])


def is_separated(dag: Dag, xs: Collection[int], ys: Collection[int], condition: Collection[int] = ()) -> bool:
    """Return whether `condition` d-separates `xs` from `ys` in `dag`.

    Then the two are independent given those variables in every distribution that factorizes along the graph. A path is
    blocked when one of its inner variables is given and not a collider, or a collider that neither is given nor has a
    descendant that is. Found by reachability over (variable, direction), linear in the edges (Koller and Friedman 2009,
    algorithm 3.1).

    Args:
        dag: the graph.
        xs, ys: two sets of variables.
        condition: the set that is conditioned on.

    Raises:
        ValueError: a variable is out of range, or in two of the sets.

    >>> chain, collider = Dag(parents=((), (0,), (1,))), Dag(parents=((), (0, 2), ()))
    >>> is_separated(chain, [0], [2], [1]), is_separated(chain, [0], [2])
    (True, False)
    >>> is_separated(collider, [0], [2], [1]), is_separated(collider, [0], [2])
    (False, True)
    """
    d = dag.n_variables
    sources, targets, conditions = set(xs), set(ys), set(condition)
    everything = sources | targets | conditions
    if len(everything) != len(sources) + len(targets) + len(conditions) or not everything <= set(range(d)):
        raise ValueError(f"expected three disjoint sets of variables in 0..{d - 1}")
    children: list[list[int]] = [[] for _ in range(d)]
    for parent, child in dag.edges():
        children[parent].append(child)
    colliders: set[int] = set()  # given, or with a descendant that is: a collider there lets through
    waiting = list(conditions)
    while waiting:
        variable = waiting.pop()
        if variable not in colliders:
            colliders.add(variable)
            waiting.extend(dag.parents[variable])
    states: set[tuple[int, bool]] = set()
    paths = [(variable, True) for variable in sources]  # (where, arrived against an arrow)
    while paths:
        variable, upward = state = paths.pop()
        if state in states:
            continue
        states.add(state)
        if variable in targets:
            return False
        if variable not in conditions:
            paths.extend((child, False) for child in children[variable])
        if (variable not in conditions) if upward else (variable in colliders):
            paths.extend((parent, True) for parent in dag.parents[variable])
    return True

"""Directed acyclic graphs over variables 0 .. d-1, given by the parents of each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Dag"]


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
        """All edges (parent, child), by child, then parent."""
        return tuple((parent, child) for child, family in enumerate(self.parents) for parent in family)

    def topological_order(self) -> tuple[int, ...]:
        """The order in which every variable stands behind its parents; ties by the smaller number."""
        order: list[int] = []
        placed: set[int] = set()
        waiting = list(range(len(self.parents)))
        while waiting:
            ready = next((v for v in waiting if placed.issuperset(self.parents[v])), None)
            if ready is None:
                raise ValueError(
                    f"the graph has a cycle through the variables {', '.join(map(str, self._cycle(placed)))}"
                )
            waiting.remove(ready)
            placed.add(ready)
            order.append(ready)
        return tuple(order)

    def _cycle(self, placed: set[int]) -> list[int]:
        start = next(v for v in range(len(self.parents)) if v not in placed)
        path: list[int] = []
        while start not in path:
            path.append(start)
            start = next(parent for parent in self.parents[start] if parent not in placed)
        return sorted(path[path.index(start) :])

"""Where the nodes and edges of a network go on paper: a small layered layout.

Arrows point down. Each node stands below all its parents; long edges bend around the nodes between; the order within the rows is
improved by medians, the positions by least squares with minimum distances (isotonic regression). It is a function of its
input alone: the same network is drawn the same way everywhere. Good for up to a hundred nodes or so; not a general graph
drawing program.

Method: K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system structures",
IEEE Trans. SMC 11(2), 1981.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from verticil.shared.numerics.model.graph import Dag

NODE_HEIGHT: Final = 42.0
_ROW_STEP: Final = 96.0
_GAP: Final = 26.0
_BEND_WIDTH: Final = 14.0
_MARGIN: Final = 14.0
_SWEEPS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A node: centre, width and height, in drawing units."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """An edge: an SVG path from the parent's lower side to the child's upper side, and a point near its middle."""

    parent: int
    child: int
    path: str
    middle: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A layout: boxes in the order of the variables, curves in the order of `Dag.edges`, and the size of the paper."""

    boxes: tuple[Box, ...]
    curves: tuple[Curve, ...]
    width: float
    height: float


def arrange(dag: Dag, widths: Sequence[float]) -> Drawing:
    """Lay a graph out.

    Args:
        dag: the graph.
        widths: width of each node's box.
    """
    layer = _layers(dag)
    linked_nodes = {node for edge in dag.edges() for node in edge}
    n_rows = max((layer[node] for node in linked_nodes), default=-1) + 1
    # Points are nodes, then one bend for each row that an edge crosses.
    size = list(widths)
    rows: list[list[int]] = [[] for _ in range(n_rows)]
    for node in sorted(linked_nodes):
        rows[layer[node]].append(node)
    chains: list[list[int]] = []
    for parent, child in dag.edges():
        chain = [parent]
        for row in range(layer[parent] + 1, layer[child]):
            chain.append(len(size))
            rows[row].append(len(size))
            size.append(_BEND_WIDTH)
        chains.append([*chain, child])
    above: list[list[int]] = [[] for _ in size]
    below: list[list[int]] = [[] for _ in size]
    for chain in chains:
        for upper, lower in itertools.pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    rows = _order(rows, above, below)
    x = _positions(rows, above, below, size)
    y = {point: _MARGIN + NODE_HEIGHT / 2 + number * _ROW_STEP for number, row in enumerate(rows) for point in row}
    _place_unlinked([node for node in range(dag.n_variables) if node not in linked_nodes], size, x, y, n_rows)

    left_edge = min((x[node] - size[node] / 2 for node in x), default=0.0) - _MARGIN
    right = max((x[node] + size[node] / 2 for node in x), default=0.0) + _MARGIN
    x = {point: value - left_edge for point, value in x.items()}
    boxes = tuple(Box(x=x[node], y=y[node], width=size[node], height=NODE_HEIGHT) for node in range(dag.n_variables))
    bottom = max((box.y for box in boxes), default=0.0) + NODE_HEIGHT / 2 + _MARGIN
    return Drawing(boxes=boxes, curves=tuple(_curves(chains, x, y, size)), width=right - left_edge, height=bottom)


def _layers(dag: Dag) -> list[int]:
    layer = [0] * dag.n_variables
    order = dag.topological_order()
    for node in order:
        layer[node] = max((layer[parent] + 1 for parent in dag.parents[node]), default=0)
    children: list[list[int]] = [[] for _ in range(dag.n_variables)]
    for parent, child in dag.edges():
        children[parent].append(child)
    for node in reversed(order):  # nodes without parents come down to their children
        if not dag.parents[node] and children[node]:
            layer[node] = min(layer[child] for child in children[node]) - 1
    return layer


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    best, fewest = rows, _crossings(rows, below)
    current = [list(row) for row in rows]
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for number in range(1, len(current)) if downwards else range(len(current) - 2, -1, -1):
            reference = current[number - 1 if downwards else number + 1]
            place = {point: position for position, point in enumerate(reference)}
            here = {point: position for position, point in enumerate(current[number])}
            current[number].sort(
                key=lambda p: (_median([place[q] for q in neighbours[p] if q in place], here[p]), here[p])
            )
        if (count := _crossings(current, below)) < fewest:
            best, fewest = [list(row) for row in current], count
    return best


def _median(values: list[int], otherwise: int) -> float:
    if not values:
        return float(otherwise)
    values = sorted(values)
    middle = len(values) // 2
    return float(values[middle]) if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def _crossings(rows: list[list[int]], below: list[list[int]]) -> int:
    count = 0
    for upper, lower in itertools.pairwise(rows):
        place = {point: position for position, point in enumerate(lower)}
        ends = [place[q] for p in upper for q in sorted(below[p], key=lambda q: place.get(q, 0)) if q in place]
        count += sum(1 for i, a in enumerate(ends) for b in ends[i + 1 :] if a > b)
    return count


def _positions(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], size: list[float]
) -> dict[int, float]:
    x: dict[int, float] = {}
    for row in rows:
        _settle(row, dict.fromkeys(row, 0.0), size, x)
    for sweep in range(_SWEEPS):
        order = rows if sweep % 2 == 0 else rows[::-1]
        for row in order:
            targets = {}
            for point in row:
                near = above[point] + below[point]
                targets[point] = sum(x[other] for other in near) / len(near) if near else x[point]
            _settle(row, targets, size, x)
    return x


def _settle(row: list[int], wanted: dict[int, float], size: list[float], x: dict[int, float]) -> None:
    """Nearest positions to the wanted ones, in least squares, that keep the order and the distances (pool adjacent violators)."""
    offsets = [0.0]
    for first, right in itertools.pairwise(row):
        offsets.append(offsets[-1] + (size[first] + size[right]) / 2 + _GAP)
    blocks: list[tuple[float, int]] = []  # mean, count
    for point, offset in zip(row, offsets, strict=True):
        blocks.append((wanted[point] - offset, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, count), (mean_before, count_before) = blocks.pop(), blocks.pop()
            total = count + count_before
            blocks.append(((mean * count + mean_before * count_before) / total, total))
    positions = [mean for mean, count in blocks for _ in range(count)]
    for point, value, offset in zip(row, positions, offsets, strict=True):
        x[point] = value + offset


def _place_unlinked(nodes: list[int], size: list[float], x: dict[int, float], y: dict[int, float], n_rows: int) -> None:
    """Nodes without edges stand in rows of their own, below all others."""
    left_edge = min((value - size[point] / 2 for point, value in x.items()), default=0.0)
    limit = max(left_edge + 720.0, max((value + size[point] / 2 for point, value in x.items()), default=0.0))
    edge, row = left_edge, float(n_rows)
    for node in nodes:
        if edge > left_edge and edge + size[node] > limit:
            edge, row = left_edge, row + 0.65
        x[node] = edge + size[node] / 2
        y[node] = _MARGIN + NODE_HEIGHT / 2 + row * _ROW_STEP
        edge += size[node] + _GAP


def _curves(chains: list[list[int]], x: dict[int, float], y: dict[int, float], size: list[float]) -> list[Curve]:
    leaving: dict[int, list[int]] = {}
    entering: dict[int, list[int]] = {}
    for number, chain in enumerate(chains):
        leaving.setdefault(chain[0], []).append(number)
        entering.setdefault(chain[-1], []).append(number)
    start, end = {}, {}
    for node, numbers in leaving.items():
        for place, number in enumerate(sorted(numbers, key=lambda n: x[chains[n][1]])):
            start[number] = x[node] + _port(place, len(numbers), size[node])
    for node, numbers in entering.items():
        for place, number in enumerate(sorted(numbers, key=lambda n: x[chains[n][-2]])):
            end[number] = x[node] + _port(place, len(numbers), size[node])
    curves: list[Curve] = []
    for number, chain in enumerate(chains):
        points = [(start[number], y[chain[0]] + NODE_HEIGHT / 2)]
        points += [(x[bend], y[bend]) for bend in chain[1:-1]]
        points.append((end[number], y[chain[-1]] - NODE_HEIGHT / 2 - 2))
        path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            pull = (y1 - y0) * 0.45
            path += f"C{x0:.1f},{y0 + pull:.1f} {x1:.1f},{y1 - pull:.1f} {x1:.1f},{y1:.1f}"
        half = len(points) // 2
        (x0, y0), (x1, y1) = points[half - 1], points[half]
        curves.append(Curve(parent=chain[0], child=chain[-1], path=path, middle=((x0 + x1) / 2, (y0 + y1) / 2)))
    return curves


def _port(place: int, count: int, width: float) -> float:
    """Return where on a node's side an edge begins or ends, from the side's middle: spread over at most 60 % of it."""
    step = min(18.0, 0.6 * width / max(count - 1, 1))
    return (place - (count - 1) / 2) * step

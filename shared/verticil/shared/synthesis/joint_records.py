"""Synthetic records from a joint model.

A joint model is a network with one root, the component or the weighted record (`model.joint`), so each way of drawing means what
it means for a network (`sampling_plan`):

``systematic``: components get whole numbers of the records by systematic rounding, the categories within each component too. Then
records are swapped: ten to thirty times for each record a random one is compared with a fresh draw from the model, and replaced
where that makes the sum over all cells of all pairs' tables

    sum (N - n G)^2 / (n G + 1),      N: counts of the records, G: the model's shares

smaller. What the drawing of few records loses in tables of pairs is nearly undone, and nothing but the model is looked at.
``independent``: each record on its own.
``without-replacement``: the tables of the root and of each variable given it, scaled to n records, are the decks that are dealt;
of weighted records those themselves are the cards. No record is swapped: a swap would put a dealt card back.

Evidence is the model's (`Mixture.condition_on`). Swaps are decided in whole numbers, of a model that was rounded for publication
(`model.rounding`) from shares that are exact sums: the same records with numba (`swapping_kernels`) or without, on any machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes, Floats, Ints
from verticil.shared.numerics.model.joint import JointModel, Mixture
from verticil.shared.study.document import Sampling
from verticil.shared.synthesis import category_draws

Places = NDArray[np.uint32]

_PROPOSALS: Final = 30
"""Swaps that are tried for each record."""
_MANY: Final = 10_000  # records; of more, the proposals for each fall to a third
_PAIR_LIMIT: Final = 3 * 10**8
"""Pairs of variables looked at in the swaps of one call; of wide tables with many records fewer swaps are tried."""
_COMPILED_FROM: Final = 10_000  # swaps; below, plain numpy is done before the compiled kernel is loaded
_UNIT: Final = 2.0**31
"""In one over this the cost of a record more in a cell is counted."""
_SHARE_UNIT: Final = 2.0**26
_COUNT_UNIT: Final = 2.0**10


def joint_codes(
    model: JointModel,
    n: int,
    *,
    generator: np.random.Generator,
    method: Sampling = "systematic",
    path: Literal["auto", "compiled", "plain"] = "auto",
) -> list[Codes]:
    """Draw records.

    Args:
        model: what is sampled from.
        n: number of records.
        generator: source of all randomness; advanced.
        method: see the module's text.
        path: ``compiled`` (needs numba), ``plain``, or whichever is there and quicker; the records are the same.

    Returns:
        One array (n,) of codes for each variable.

    Raises:
        ValueError: n is negative.
        ImportError: ``compiled`` without numba.
    """
    if n < 0:
        raise ValueError(f"{n} records, expected 0 or more")
    use_compiled = path == "compiled" or (
        path == "auto" and _proposals(n) >= _COMPILED_FROM and category_draws.has_numba()
    )
    source = _Source(model)
    if method == "independent":
        records = source.independent(n, generator)
    else:
        records = source.dealt(n, generator, deck=method == "without-replacement", use_compiled=use_compiled)
    if method == "systematic" and n:
        _swap(records, source, generator, use_compiled=use_compiled)
    return [
        column.astype(np.uint8) if k <= 256 else column.copy()
        for column, k in zip(records.T, model.n_states, strict=True)
    ]


def _proposals(n: int) -> int:
    """Return how many swaps are proposed: where there are few records each is worth more."""
    return max(_PROPOSALS * min(n, _MANY), _PROPOSALS // 3 * n)


class _Source:
    """Records of a joint model, (n, d) uint16."""

    def __init__(self, model: JointModel) -> None:
        self.model = model
        self.n_states = np.array(model.n_states, dtype=np.int64)
        self._root = category_draws.cumulative_rows(model.weights[None, :])
        rows = model.probability if isinstance(model, Mixture) else ()
        self._rows = [category_draws.cumulative_rows(table) for table in rows]

    def independent(self, n: int, generator: np.random.Generator) -> NDArray[np.uint16]:
        component = np.searchsorted(self._root[0], generator.random(n), side="right").astype(np.uint32)
        return self._fill([category_draws.independent(component, rows, generator) for rows in self._rows], component)

    def dealt(self, n: int, generator: np.random.Generator, *, deck: bool, use_compiled: bool) -> NDArray[np.uint16]:
        ends = category_draws.category_boundaries(self._root, np.array([n]), generator.random(1))
        counts = np.diff(ends[0], prepend=0)
        component = generator.permutation(np.repeat(np.arange(len(counts), dtype=np.uint32), counts))
        shares = self.model.weights if deck else None
        columns = [
            category_draws.dealt(component, rows, shares, generator, use_compiled=use_compiled) for rows in self._rows
        ]
        return self._fill(columns, component)

    def _fill(self, columns: Sequence[NDArray[np.uint16]], component: NDArray[np.uint32]) -> NDArray[np.uint16]:
        if isinstance(self.model, Mixture):
            return np.ascontiguousarray(np.stack(columns, axis=1))
        return self.model.codes[component]

    def pair_shares(self) -> Floats:
        """(S, S): the model's tables of all pairs a < b; of a rounded model whole numbers of 2^-50, whose sums are exact."""
        first = np.concatenate([[0], np.cumsum(self.n_states)])
        shares = np.zeros((first[-1], first[-1]))
        if isinstance(self.model, Mixture):
            rows = np.concatenate(self.model.probability, axis=1)
            return np.rint(self.model.weights[:, None] * rows * _SHARE_UNIT).T / _SHARE_UNIT @ rows
        for a, b in itertools.combinations(range(len(self.n_states)), 2):
            shares[first[a] : first[a + 1], first[b] : first[b + 1]] = self.model.shares((a, b))
        return shares


def _swap(records: NDArray[np.uint16], source: _Source, generator: np.random.Generator, *, use_compiled: bool) -> None:
    """Swap records for draws from the model where that brings the tables of pairs nearer; in place.

    With w = 1 / (nG + 1) a record more in a cell costs ((N + 1 - nG)^2 - (N - nG)^2) w = 2 (N - nG) w + w, one less
    w - 2 (N - nG) w. `above` holds 2 (N - nG) w and `weight` w, both in whole units, so that the order of a sum does not matter.
    """
    n, d = records.shape
    first = np.concatenate([[0], np.cumsum(source.n_states)])
    places = (records + first[:-1]).astype(np.uint32)
    count, swap = _count_plain, _swap_plain
    if use_compiled:
        from verticil.shared.synthesis import swapping_kernels as swapping

        count, swap = swapping.count, swapping.swap
    counts = np.zeros((first[-1], first[-1]), dtype=np.int64)
    count(places, counts)
    model_counts = np.rint(n * source.pair_shares() * _COUNT_UNIT) / _COUNT_UNIT
    above = np.rint(2 * (counts - model_counts) / (model_counts + 1) * _UNIT).astype(np.int64)
    weight = np.rint(_UNIT / (model_counts + 1)).astype(np.int64)
    del counts, model_counts
    n_swaps = min(_proposals(n), _PAIR_LIMIT // max(d * (d - 1) // 2, 1))
    for size in (min(n_swaps - start, category_draws.BLOCK) for start in range(0, n_swaps, category_draws.BLOCK)):
        at = generator.integers(0, n, size)
        swap(places, at, (source.independent(size, generator) + first[:-1]).astype(np.uint32), above, weight)
    records[:] = places - first[:-1]


def _count_plain(places: Places, counts: Ints) -> None:
    """Count as `swapping_kernels.count` does, as its reference."""
    for a, b in itertools.combinations(places.T.astype(np.int64), 2):
        np.add.at(counts, (a, b), 1)


def _swap_plain(places: Places, at: Ints, proposals: Places, above: Ints, weight: Ints) -> None:
    """Swap as `swapping_kernels.swap` does, as its reference."""
    a, b = np.triu_indices(places.shape[1], 1)
    for i, new in zip(at, proposals, strict=True):
        old = places[i]
        differs = (old[a] != new[a]) | (old[b] != new[b])
        old_cells, new_cells = (old[a[differs]], old[b[differs]]), (new[a[differs]], new[b[differs]])
        if (above[new_cells] + weight[new_cells]).sum() + (weight[old_cells] - above[old_cells]).sum() < 0:
            above[new_cells] += 2 * weight[new_cells]
            above[old_cells] -= 2 * weight[old_cells]
            places[i] = new

"""Plain counting of contingency tables with numpy: the reference beside the miner's kernels, and all that small jobs need.

Counts are of the released codes as they are. A record of a subset column is a set of w codes; it is counted in the cells of all
its members, as 1/w of a record in each (`channel`), so that a table still sums to the number of records.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes, Ints, give_back
from verticil.shared.numerics.estimation.inverse_estimation import FamilyDesign

_BLOCK = 4096  # records; of which indicators are held
_RECORDS = 2**17  # of which the cells are held
_PRODUCT_COST = 0.02  # of one multiplication in a matrix product, in increments of a count


def pair_table(a: AnyCodes, b: AnyCodes, n_states_a: int, n_states_b: int) -> Ints:
    """Count the pairs of two columns.

    Args:
        a, b: (n,), unsigned codes.
        n_states_a, n_states_b: numbers of categories.

    Returns:
        (n_states_a, n_states_b), int64.

    Raises:
        ValueError: the lengths differ, or a code is out of range.
    """
    return family_table([a, b], [n_states_a, n_states_b])


def family_table(columns: Sequence[AnyCodes], n_states: Sequence[int]) -> Ints:
    """Count the combinations of some columns.

    Args:
        columns: arrays (n,) of unsigned codes; a family's parents in ascending order, then its child.
        n_states: number of categories of each.

    Returns:
        One axis for each column, in their order; int64.

    Raises:
        ValueError: there is no column, the lengths differ, or a code is out of range.

    >>> family_table([np.array([0, 1, 1], np.uint8), np.array([2, 0, 0], np.uint8)], [2, 3]).tolist()
    [[0, 0, 1], [2, 0, 0]]
    """
    if not columns or len(columns) != len(n_states) or len({column.shape for column in columns}) != 1:
        raise ValueError(
            f"{len(columns)} columns and {len(n_states)} numbers of states, expected as many, of one length"
        )
    shape = tuple(int(states) for states in n_states)
    counts = np.zeros(math.prod(shape), dtype=np.int64)
    size = max(_RECORDS, len(counts))  # of a block; columns may be memory-mapped and larger than memory
    for start in range(0, len(columns[0]), size):
        index = np.zeros(len(columns[0][start : start + size]), dtype=np.int64)
        for position, (column, states) in enumerate(zip(columns, shape, strict=True)):
            codes = column[start : start + size]
            if int(codes.max()) >= states:
                raise ValueError(f"column {position}: code out of range, expected below {states}")
            index *= states
            index += codes
            give_back(codes)
        counts += np.bincount(index, minlength=len(counts))
    return counts.reshape(shape)


def design_columns(columns: Mapping[int, AnyCodes], design: FamilyDesign) -> list[AnyCodes]:
    """Return the codes of each axis of a family's observed table.

    Args:
        columns: released codes of each unit by its index, at least those of `FamilyDesign.units`: (n,), of a subset column
            (n w,), the members of a record one after the other.
        design: of the family.

    Returns:
        For each axis (n,) or (n, w), where the design merges entries in the merged entries; checked.

    Raises:
        ValueError: the columns have not the same number of records, or a code is out of range.
    """
    axis_codes: list[AnyCodes] = []
    for axis in design.axes:
        codes, width = columns[axis.unit], axis.channel.codes_per_record
        if codes.ndim != 1 or len(codes) % width:
            raise ValueError(f"unit {axis.unit}: {codes.shape} codes, expected {width} for each record")
        if codes.size and int(codes.max()) >= axis.channel.n_states:
            raise ValueError(f"unit {axis.unit}: code out of range, expected below {axis.channel.n_states}")
        if axis.merged is not None:
            codes = (axis.merged.astype(np.uint8) if axis.n_entries <= 256 else axis.merged.astype(np.uint16))[codes]
        give_back(columns[axis.unit])
        axis_codes.append(codes if width == 1 else codes.reshape(-1, width))
    if len({len(codes) for codes in axis_codes}) != 1:
        raise ValueError(f"columns of {[len(codes) for codes in axis_codes]} records, expected as many in each")
    return axis_codes


def family_counts(columns: Mapping[int, AnyCodes], design: FamilyDesign) -> NDArray[np.float64]:
    """Count the released records of a family.

    Args:
        columns, design: see `design_columns`.

    Returns:
        Of the shape `FamilyDesign.released_shape`; sums to the number of records; whole numbers unless a column is a subset's.

    Raises:
        ValueError: the columns have not the same number of records, or a code is out of range.
    """
    axis_codes = design_columns(columns, design)
    shape = design.released_shape
    widths = [axis.channel.codes_per_record for axis in design.axes]
    n_members = math.prod(widths)
    if n_members == 1:
        return family_table(axis_codes, shape).astype(np.float64)
    if n_members > _PRODUCT_COST * math.prod(shape):
        return _counts_by_product(axis_codes, shape) / n_members
    counts = np.zeros(shape, dtype=np.int64)
    for members in itertools.product(*map(range, widths)):
        member_codes = [codes if codes.ndim == 1 else codes[:, m] for codes, m in zip(axis_codes, members, strict=True)]
        counts += family_table(member_codes, shape)
    return counts / n_members


def _counts_by_product(
    axis_codes: Sequence[NDArray[np.unsignedinteger]], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Sums over records of products of indicators, as one matrix product of two halves of the axes; whole numbers, exact."""
    cut = min(range(len(shape)), key=lambda place: math.prod(shape[:place]) + math.prod(shape[place:]))
    total = np.zeros((math.prod(shape[:cut]), math.prod(shape[cut:])))
    for start in range(0, len(axis_codes[0]), _BLOCK):
        halves = []
        for axes in (range(cut), range(cut, len(shape))):
            half = np.ones((min(_BLOCK, len(axis_codes[0]) - start), 1))
            for axis in axes:
                codes = axis_codes[axis][start : start + _BLOCK]
                indicators = _indicators(codes, shape[axis])
                give_back(codes)
                half = (half[:, :, None] * indicators[:, None, :]).reshape(len(half), -1)
            halves.append(half)
        total += halves[0].T @ halves[1]
    return total.reshape(shape)


def _indicators(codes: NDArray[np.unsignedinteger], n_states: int) -> NDArray[np.float64]:
    """(n, n_states): how often each record has each code."""
    rows = codes.reshape(len(codes), -1)
    index = np.arange(len(codes))[:, None] * n_states + rows
    return np.bincount(index.ravel(), minlength=len(codes) * n_states).reshape(len(codes), n_states).astype(np.float64)

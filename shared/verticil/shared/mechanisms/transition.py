"""Transition matrices: what a randomized column does to a true category, in integers.

A transition matrix P is K x K; row = true category, column = released category, every row sums to 1 (Ma & Sivakumar,
section 3). What is declared in floating point is quantized once, each row by largest remainder on 2^64 with zeros kept
exact, and from then on the integers are the matrix: sampling compares 64-bit numbers with integer thresholds, and gamma
is a ratio of integers, so the privacy statement is about the very distribution that is sampled from.

The functions that make the declared matrices (`symmetric`, `binary`, `blocks`, `two_level`, `identity`) return float64 matrices;
`validate_matrix` says what is wrong with one; `quantize` makes the `Transition`. Privacy measures are in `privacy`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.core.errors import Misuse

SCALE: Final = 2**64
"""The weights of a row sum to this."""

CONDITION_LIMIT: Final = 1e6
"""A matrix whose 2-norm condition number is not below this counts as singular: its estimates would be noise."""

ROW_SUM_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A quantized transition matrix.

    Two transitions are equal when their weights are; derived arrays are computed once, on first use, and are read-only.

    Attributes:
        weights: row = true category, column = released category; whole numbers >= 0, each row sums to `SCALE`.

    Raises:
        ValueError: the weights are empty, not square, not whole numbers, negative, or a row does not sum to `SCALE`.

    >>> Transition(weights=((SCALE // 4 * 3, SCALE // 4), (0, SCALE))).probabilities.tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """

    weights: tuple[tuple[int, ...], ...]
    _cache: dict[str, Floats] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        n_states = len(self.weights)
        if n_states == 0:
            raise ValueError("a transition matrix has at least one row")
        for number, row in enumerate(self.weights, 1):
            if len(row) != n_states:
                raise ValueError(f"row {number} has {len(row)} weights, expected {n_states}")
            if any(type(weight) is not int or weight < 0 for weight in row):
                raise ValueError(f"row {number} has a weight that is not a whole number >= 0")
            if (total := sum(row)) != SCALE:
                raise ValueError(f"the weights of row {number} sum to {total}, expected {SCALE}")

    def __reduce__(self) -> tuple[object, ...]:
        # The weights are the value: arrays are derived again in the other process, and stay read-only there.
        return _restore, (self.weights,)

    @property
    def n_states(self) -> int:
        """Number of categories, K."""
        return len(self.weights)

    @property
    def is_identity(self) -> bool:
        """Whether every category is released as it is."""
        return all(row[position] == SCALE for position, row in enumerate(self.weights))

    @property
    def probabilities(self) -> Floats:
        """P as float64, shape (K, K), correctly rounded, read-only."""
        if "probabilities" not in self._cache:
            self._cache["probabilities"] = _readonly(np.array([[w / SCALE for w in row] for row in self.weights]))
        return self._cache["probabilities"]

    @property
    def inverse(self) -> Floats:
        """P^-1 as float64, shape (K, K), read-only: row = released category y, column = true category x.

        A released record y counts as ``inverse[y, x]`` records of true category x. Rows sum to 1, as those of P do.

        Raises:
            ValueError: P is singular (cannot happen to a matrix that passed `validate_matrix`).
        """
        if "inverse" not in self._cache:
            self._cache["inverse"] = _readonly(_inverse(self.probabilities))
        return self._cache["inverse"]

    @property
    def inverse_square(self) -> Floats:
        """The elementwise square of `inverse`, shape (K, K), read-only: see `channel`."""
        if "inverse_square" not in self._cache:
            self._cache["inverse_square"] = _readonly(self.inverse**2)
        return self._cache["inverse_square"]

    @property
    def codes_per_record(self) -> int:
        """Always one code a record."""
        return 1

    def products(self, first: Floats, second: Floats) -> Floats:
        """Second moments of sums of weights, exact for every single record: see `channel`."""
        products: Floats = (self.inverse @ first) * (self.inverse @ second)
        return products

    def joint_shares(self, shares: Floats) -> Floats:
        """Return the released shares on the diagonal: a record has one entry."""
        return np.diag(shares @ self.probabilities)

    def lumps(self, classes: Sequence[int]) -> bool:
        """Return whether the rows of one class have the same weight in each class: see `channel`.

        Whole numbers are compared. Quantizing moves a weight by less than one unit of 2^-64, so sums of m weights count as equal
        when they differ by m units at most: far less than float64 can hold.
        """
        sizes = [0] * (max(classes) + 1)
        for own in classes:
            sizes[own] += 1
        of_class: dict[int, list[int]] = {}
        for own, row in zip(classes, self.weights, strict=True):
            sums = [0] * len(sizes)
            for class_number, weight in zip(classes, row, strict=True):
                sums[class_number] += weight
            first = of_class.setdefault(own, sums)
            if any(abs(one - other) > size for one, other, size in zip(first, sums, sizes, strict=True)):
                return False
        return True

    def digest(self) -> bytes:
        """SHA-256 of the weights as compact JSON, a list of rows of decimal strings: 32 bytes."""
        text = json.dumps([[str(weight) for weight in row] for row in self.weights], separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).digest()

    def thresholds(self) -> tuple[NDArray[np.uint64], Codes]:
        """Thresholds for sampling from a uniform 64-bit number u.

        The released category is #{j : u >= t_j} over j = 0 .. K-2, t_j the sum of the row's first j+1 weights. A t_j of
        2^64 does not fit 64 bits, so the comparison is ``u > t_j - 1``; a t_j of 0, which always counts, is taken out of
        it (its limit is one that no u exceeds) and counted in `lead`.

        Returns:
            limits: (K, K-1), uint64; lead: (K,), uint8 up to 256 categories, else uint16;
            released = lead[row] + #{j : u > limits[row, j]}, exactly.

        >>> limits, lead = Transition(weights=((0, SCALE), (SCALE, 0))).thresholds()
        >>> limits.tolist() == [[SCALE - 1], [SCALE - 1]], lead.tolist()
        (True, [1, 0])
        """
        n_states = self.n_states
        limits = np.empty((n_states, n_states - 1), dtype=np.uint64)
        n_leading = [0] * n_states
        for true, row in enumerate(self.weights):
            cumulative = 0
            for j in range(n_states - 1):
                cumulative += row[j]
                limits[true, j] = (cumulative or SCALE) - 1
                if cumulative == 0:
                    n_leading[true] += 1
        if n_states <= 256:
            return limits, np.array(n_leading, dtype=np.uint8)
        return limits, np.array(n_leading, dtype=np.uint16)


def _restore(weights: tuple[tuple[int, ...], ...]) -> Transition:
    return Transition(weights=weights)


def _readonly(array: Floats) -> Floats:
    array.setflags(write=False)
    return array


def _inverse(matrix: Floats) -> Floats:
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        raise ValueError(f"the {len(matrix)} x {len(matrix)} transition matrix is singular") from None
    # Rows sum to 1 up to rounding times the condition number; they shall do so up to rounding, as sums of counts depend on it.
    corrected_inverse: Floats = inverse - (inverse.sum(axis=1, keepdims=True) - 1) / len(matrix)
    return corrected_inverse


def quantize(matrix: Floats) -> Transition:
    """Quantize each row by largest remainder on 2^64.

    Exact: the floats are taken as the fractions that they are, divided by the row's exact sum, and rounded down; the
    missing units go to the largest remainders, ties to the lower index. A probability of 0 stays 0 (its remainder is 0,
    and fewer units are missing than there are positive remainders). A positive one below 2^-64 can become 0; gamma then
    says infinite.

    Args:
        matrix: (K, K), float64, non-negative, row sums 1 (see `validate_matrix`).

    Raises:
        ValueError: not square, or an entry is negative or not finite, or a row is all zero.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all() or (matrix < 0).any():
        raise ValueError(f"expected a square matrix of finite numbers >= 0, got shape {matrix.shape}")
    return Transition(weights=tuple(_quantize_row([float(p) for p in row]) for row in matrix))


def _quantize_row(row: list[float]) -> tuple[int, ...]:
    ratios = [p.as_integer_ratio() for p in row]
    denominator = max(d for _, d in ratios)  # powers of two: the largest is a multiple of all
    numerators = [n * (denominator // d) for n, d in ratios]
    if (total := sum(numerators)) == 0:
        raise ValueError("a row of the matrix is all zero")
    parts = [divmod(n * SCALE, total) for n in numerators]
    missing = SCALE - sum(quotient for quotient, _ in parts)
    by_remainder = sorted(range(len(row)), key=lambda i: (-parts[i][1], i))
    larger = set(by_remainder[:missing])
    return tuple(quotient + (i in larger) for i, (quotient, _) in enumerate(parts))


def validate_matrix(matrix: Floats, *, where: str) -> None:
    """Check a declared matrix: square, finite, non-negative, rows summing to 1 within 1e-9, condition number below 1e6.

    Args:
        matrix: any array.
        where: what the message starts with, as in ``column 'ward'``.

    Raises:
        Misuse: MATRIX_INVALID, or MATRIX_SINGULAR when only the last check fails; rows are counted from 1.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise Misuse(
            "MATRIX_INVALID", f"{where}: matrix has shape {' x '.join(map(str, matrix.shape))}, expected K x K"
        )
    for number, row in enumerate(matrix, 1):
        if not np.isfinite(row).all():
            raise Misuse("MATRIX_INVALID", f"{where}: matrix row {number} has an entry that is not a finite number")
        if (lowest := float(row.min())) < 0:
            raise Misuse(
                "MATRIX_INVALID", f"{where}: matrix row {number} has the entry {lowest:g}, expected numbers >= 0"
            )
        if abs((total := math.fsum(row)) - 1) > ROW_SUM_TOLERANCE:
            raise Misuse(
                "MATRIX_INVALID",
                f"{where}: matrix row {number} sums to {total:.12g}, expected 1 within {ROW_SUM_TOLERANCE:g}",
                hint="a row holds the probabilities of what is released for one true category",
            )
    condition = float(np.linalg.cond(matrix))
    if (
        not condition < 1 / np.finfo(float).eps
    ):  # rounding: a singular matrix has any such number, or inf, by the machine
        condition = math.inf
    if not condition < CONDITION_LIMIT:  # also when it is inf or nan
        raise Misuse(
            "MATRIX_SINGULAR",
            f"{where}: the matrix is singular: condition number {condition:.3g}, expected below {CONDITION_LIMIT:g}",
            hint="two true categories have (almost) the same released distribution; keep more of the true value",
        )


def symmetric(
    n_states: int,
    *,
    epsilon: float | None = None,
    gamma: float | None = None,
    keep: float | None = None,
    flip: float | None = None,
    where: str = "symmetric",
) -> Floats:
    """Return the K-ary symmetric matrix (generalized randomized response), given by exactly one of four numbers.

    Args:
        n_states: K.
        epsilon: > 0; the diagonal is e^epsilon / (e^epsilon + K - 1).
        gamma: > 1; the same with gamma = e^epsilon.
        keep: probability of the true category, the diagonal.
        flip: probability of each single other category, at most 1 / (K - 1).
        where: what messages start with.

    Returns:
        (K, K), float64.

    Raises:
        Misuse: MATRIX_INVALID, the number is out of range.
        ValueError: not exactly one number is given, or `n_states` < 1.

    >>> symmetric(3, flip=0.15).round(12).tolist()
    [[0.7, 0.15, 0.15], [0.15, 0.7, 0.15], [0.15, 0.15, 0.7]]
    """
    numbers = {"epsilon": epsilon, "gamma": gamma, "keep": keep, "flip": flip}
    arguments = [name for name, number in numbers.items() if number is not None]
    if len(arguments) != 1 or n_states < 1:
        raise ValueError(
            f"{n_states} categories with {arguments or 'nothing'}: expected K >= 1 and one of epsilon, gamma, keep, flip"
        )
    diagonal, other = 1.0, 0.0
    if epsilon is not None:
        _check(where, "epsilon", epsilon, 0 < epsilon < math.inf, "a finite number > 0")
        odds = math.exp(-epsilon)  # never overflows
        diagonal, other = 1 / (1 + (n_states - 1) * odds), odds / (1 + (n_states - 1) * odds)
    elif gamma is not None:
        _check(where, "gamma", gamma, 1 < gamma < math.inf, "a finite number > 1")
        diagonal, other = gamma / (gamma + n_states - 1), 1 / (gamma + n_states - 1)
    elif keep is not None:
        _check(where, "keep", keep, 0 <= keep <= 1, "a probability")
        diagonal, other = keep, (1 - keep) / max(n_states - 1, 1)
    elif flip is not None:
        highest = 1 / max(n_states - 1, 1)
        _check(where, "flip", flip, 0 <= flip <= highest, f"a probability of at most 1/{max(n_states - 1, 1)}")
        diagonal, other = max(1 - (n_states - 1) * flip, 0.0), flip
    if n_states == 1:
        return np.ones((1, 1))
    matrix = np.full((n_states, n_states), other)
    np.fill_diagonal(matrix, diagonal)
    return matrix


def binary(p1: float, p2: float, *, where: str = "binary") -> Floats:
    """Return the 2 x 2 matrix with P(second released | first true) = p1 and P(first released | second true) = p2.

    Raises:
        Misuse: MATRIX_INVALID, a number is not a probability.

    >>> binary(0.25, 0.5).tolist()
    [[0.75, 0.25], [0.5, 0.5]]
    """
    for name, number in (("p1", p1), ("p2", p2)):
        _check(where, name, number, 0 <= number <= 1, "a probability")
    return np.array([[1 - p1, p1], [p2, 1 - p2]])


def blocks(
    groups: Sequence[Sequence[int]],
    n_states: int,
    *,
    epsilon: float | None = None,
    gamma: float | None = None,
    keep: float | None = None,
    flip: float | None = None,
    where: str = "blocks",
) -> Floats:
    """Return the block-diagonal matrix: within each group symmetric with the one given number, never across groups.

    The group is released exactly: gamma is infinite as soon as there are two groups. A group of one category is kept.

    Args:
        groups: positions of categories; every category in exactly one group.
        n_states: K.
        epsilon, gamma, keep, flip: see `symmetric`; exactly one, used for every group with the group's own size.
        where: what messages start with.

    Raises:
        Misuse: MATRIX_INVALID, the groups are not a partition of the categories, or the number is out of range.
        ValueError: not exactly one number is given.

    >>> blocks([(0, 2), (1,)], 3, keep=0.75).tolist()
    [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0], [0.25, 0.0, 0.75]]
    """
    _check_partition(groups, n_states, where)
    matrix = np.zeros((n_states, n_states))
    for group in groups:
        matrix[np.ix_(group, group)] = symmetric(
            len(group), epsilon=epsilon, gamma=gamma, keep=keep, flip=flip, where=where
        )
    return matrix


def two_level(
    groups: Sequence[Sequence[int]],
    n_states: int,
    *,
    epsilon_group: float,
    epsilon_within: float,
    where: str = "two-level",
) -> Floats:
    """Return the matrix of two symmetric responses one after the other: for the group, then for the value within it.

    The group is reported with the K-ary symmetric response of `epsilon_group` over the groups. If the reported group is the
    true one, the value within it is reported with the response of `epsilon_within` over the group's categories; if not, any
    category of the reported group, each as likely. No cell is zero, so nothing is released exactly (a study refuses epsilons
    that quantization or floating point would turn into a zero); `blocks` is the design whose group response is the identity.

    The epsilon of both together is that of the matrix (`privacy.epsilon`), neither of the two numbers nor their sum. With
    m = size of a group, p and q = probability of the true and of each other category within a group that was kept:
    max over the groups of {epsilon_within (m >= 2), epsilon_group + ln(m p), |epsilon_group + ln(m q)| (m >= 2)}.

    Args:
        groups: positions of categories; every category in exactly one group; at least two groups, one of them of two categories.
        n_states: K.
        epsilon_group: > 0.
        epsilon_within: > 0.
        where: what messages start with.

    Raises:
        Misuse: MATRIX_INVALID, the groups are not a partition of the categories, there is one level only, or a number is out
            of range.

    >>> two_level([(0, 1), (2,)], 3, epsilon_group=math.log(4), epsilon_within=math.log(3)).round(12).tolist()
    [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]]
    """
    _check_partition(groups, n_states, where)
    if len(groups) < 2 or max(map(len, groups)) < 2:
        raise Misuse(
            "MATRIX_INVALID",
            f"{where}: {len(groups)} groups of {n_states} categories, expected at least two groups, one of them of two or more",
            hint="with one level only, use 'symmetric'",
        )
    for name, number in (("epsilon_group", epsilon_group), ("epsilon_within", epsilon_within)):
        _check(where, name, number, 0 < number < math.inf, "a finite number > 0")
    between = symmetric(len(groups), epsilon=epsilon_group, where=where)
    matrix = np.empty((n_states, n_states))
    for i, true in enumerate(groups):
        for j, columns in enumerate(groups):
            matrix[np.ix_(true, columns)] = between[i, j] / len(columns)
        matrix[np.ix_(true, true)] = between[i, i] * symmetric(len(true), epsilon=epsilon_within, where=where)
    return matrix


def _check_partition(groups: Sequence[Sequence[int]], n_states: int, where: str) -> None:
    if sorted(state for group in groups for state in group) != list(range(n_states)):
        raise Misuse(
            "MATRIX_INVALID",
            f"{where}: the groups are not a partition: expected each of {n_states} categories in one group",
        )
    if not all(groups):
        raise Misuse("MATRIX_INVALID", f"{where}: a group is empty, expected at least one category")


def identity(n_states: int) -> Floats:
    """Return the matrix of a column that is not randomized: (K, K), float64."""
    return np.eye(n_states)


def _check(where: str, name: str, number: float, holds: bool, range_words: str) -> None:
    if not holds:
        raise Misuse("MATRIX_INVALID", f"{where}: {name} is {number:g}, expected {range_words}")

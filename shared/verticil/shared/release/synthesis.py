"""Synthetic records from a network: ancestral sampling, and codes back to labels and numbers.

``systematic`` (the default) rounds within each parent configuration: of the m records with one configuration of the parents,
category k gets floor(m F_k + u) - floor(m F_{k-1} + u), F the cumulative probabilities and u one uniform number for the
configuration. Each count has the expectation m p_k and differs from it by less than 1, so the sample is closer to the network
than independent draws, without the bias of largest remainders. Which records get which category is a uniform shuffle (each
record draws a 64-bit key; ranks of the keys within the configuration decide), so records stay exchangeable.

``independent`` draws every record on its own.

With evidence, records are drawn from the exact conditional distribution (`elimination.condition`); none is rejected. Many
records are drawn chunk by chunk (`sample_chunks`), so that memory stays flat; rounding is then systematic within each.

The same generator state gives the same records, with numba installed or without.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from verticil.shared.model.elimination import ConditionalStep, condition
from verticil.shared.model.network import Network
from verticil.shared.model.schema import Schema, Variable

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CHUNK",
    "Codes",
    "assign_by_rank_plain",
    "category_boundaries",
    "decode",
    "record_keys",
    "sample_chunks",
    "sample_codes",
]

Codes = NDArray[np.uint8] | NDArray[np.uint16]
Floats = NDArray[np.float64]
Method = Literal["systematic", "independent"]

_KERNEL_FROM: Final = 3_000_000  # cells; below, plain numpy is done before the compiled kernel is loaded
_BLOCK: Final = 65_536  # records

CHUNK: Final = 1_000_000
"""Records that `sample_chunks` draws at a time."""


def sample_codes(
    network: Network,
    n: int,
    *,
    generator: np.random.Generator,
    method: Method = "systematic",
    path: Literal["auto", "compiled", "plain"] = "auto",
    given: Mapping[int, int] | None = None,
) -> list[Codes]:
    """Draw records.

    Args:
        network: what is sampled from.
        n: number of records.
        generator: source of all randomness; advanced.
        method: see the module's text.
        path: ``compiled`` (needs numba), ``plain``, or whichever is there and quicker; the records are the same.
        given: evidence, variable -> code; every record has it.

    Returns:
        One array (n,) of codes for each variable, in schema order.

    Raises:
        ValueError: n is negative, or the evidence cannot be had (see `elimination.condition`).
        ImportError: ``compiled`` without numba.
    """
    return _draw(network, _steps(network, given), n, generator, method=method, path=path, given=given or {})


def sample_chunks(
    network: Network,
    n: int,
    *,
    generator: np.random.Generator,
    method: Method = "systematic",
    given: Mapping[int, int] | None = None,
) -> Iterator[list[Codes]]:
    """Draw records, `CHUNK` at a time; up to that many they are those of `sample_codes`. Arguments and errors are the same.

    Whoever uses the generator between two chunks (`decode` does) gets other records behind them, always the same.
    """
    steps = _steps(network, given)
    for start in range(0, max(n, 1), CHUNK):
        yield _draw(network, steps, min(CHUNK, n - start), generator, method=method, path="auto", given=given or {})


def _steps(network: Network, given: Mapping[int, int] | None) -> Sequence[ConditionalStep]:
    if given:
        return condition(network, given)
    families = network.families
    return [
        ConditionalStep(child=v, parents=families[v].parents, probability=families[v].probability)
        for v in network.dag.topological_order()
    ]


def _draw(
    network: Network,
    steps: Sequence[ConditionalStep],
    n: int,
    generator: np.random.Generator,
    *,
    method: Method,
    path: Literal["auto", "compiled", "plain"],
    given: Mapping[int, int],
) -> list[Codes]:
    if n < 0:
        raise ValueError(f"{n} records, expected 0 or more")
    compiled = path == "compiled" or (path == "auto" and n * len(network.schema) >= _KERNEL_FROM and _has_numba())
    n_states = network.schema.n_states
    drawn: dict[int, Codes] = {v: np.full(n, code, dtype=network.schema[v].code_dtype) for v, code in given.items()}
    for step in steps:
        group = np.zeros(n, dtype=np.uint32)
        for parent in step.parents:
            group *= np.uint32(n_states[parent])
            group += drawn[parent]
        cumulative = _cumulative(step.probability)
        draw = _systematic if method == "systematic" else _independent
        codes = draw(group, cumulative, generator, compiled=compiled)
        drawn[step.child] = codes.astype(network.schema[step.child].code_dtype, copy=False)
    return [drawn[variable] for variable in range(len(network.schema))]


def _has_numba() -> bool:
    from importlib.util import find_spec

    return find_spec("numba") is not None


def _cumulative(probability: Floats) -> Floats:
    """Cumulative probabilities, (J, K), that end with exactly 1 at the last possible category."""
    sums = np.cumsum(probability, axis=1)
    return np.asarray(sums / sums[:, -1:], dtype=np.float64)


def _systematic(
    group: NDArray[np.uint32], cumulative: Floats, generator: np.random.Generator, *, compiled: bool
) -> NDArray[np.uint16]:
    n_groups = len(cumulative)
    offsets = generator.random(n_groups)
    start = generator.integers(0, 2**64, dtype=np.uint64)
    if compiled:
        from verticil.shared.release import ranking

        sizes = ranking.group_sizes(group, n_groups)
        return ranking.assign_by_rank(group, sizes, start, category_boundaries(cumulative, sizes, offsets))
    sizes = np.bincount(group, minlength=n_groups).astype(np.int64, copy=False)
    keys = record_keys(start, len(group))
    return assign_by_rank_plain(group, keys, category_boundaries(cumulative, sizes, offsets))


def record_keys(start: np.uint64, n: int) -> NDArray[np.uint64]:
    """The keys of n records: SplitMix64 (Steele, Lea, Flood 2014) of a counter that begins at `start`; all distinct.

    >>> record_keys(np.uint64(1234567 + 0x9E3779B97F4A7C15), 2).tolist()
    [6457827717110365317, 3203168211198807973]
    """
    z = start + np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def category_boundaries(cumulative: Floats, sizes: NDArray[np.int64], offsets: Floats) -> NDArray[np.int64]:
    """Systematic rounding: the ranks at which each group's categories end.

    Args:
        cumulative: (J, K) cumulative probabilities; each row ends with 1.
        sizes: (J,) records in each group, m.
        offsets: (J,) uniform numbers in [0, 1), u.

    Returns:
        (J, K), int64: floor(m F_k + u), the last m.

    >>> category_boundaries(np.array([[0.25, 0.5, 1.0]]), np.array([10]), np.array([0.4])).tolist()
    [[2, 5, 10]]
    """
    boundaries = np.floor(sizes[:, None] * cumulative + offsets[:, None]).astype(np.int64)
    # m + u can round up to m + 1; and where F is 1 nothing is left for what follows.
    return np.where(cumulative >= 1.0, sizes[:, None], np.minimum(boundaries, sizes[:, None]))


def assign_by_rank_plain(
    group: NDArray[np.uint32], keys: NDArray[np.uint64], boundaries: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """Give every record the category that its key's rank within its group falls into; the reference of `ranking`.

    Args:
        group: (n,) group of each record, 0 .. J-1.
        keys: (n,) random keys, distinct.
        boundaries: (J, K) ranks at which the categories end, ascending; the last is the group's size.

    Returns:
        (n,) categories; the record with rank r has category #{k : boundaries[k] <= r}.
    """
    by_key = np.argsort(keys)
    # Stable sorting of 16-bit numbers is a radix sort.
    grouped = group[by_key].astype(np.uint16 if len(boundaries) <= 65_536 else np.uint32, copy=False)
    order = by_key[np.argsort(grouped, kind="stable")]
    counts = np.diff(boundaries, axis=1, prepend=0)
    n_states = boundaries.shape[1]
    result = np.empty(len(group), dtype=np.uint16)
    result[order] = np.repeat(np.tile(np.arange(n_states, dtype=np.uint16), len(boundaries)), counts.ravel())
    return result


def _independent(
    group: NDArray[np.uint32], cumulative: Floats, generator: np.random.Generator, *, compiled: bool
) -> NDArray[np.uint16]:
    del compiled  # memory-bound either way
    result = np.empty(len(group), dtype=np.uint16)
    for start in range(0, len(group), _BLOCK):
        piece = group[start : start + _BLOCK]
        uniform = generator.random(len(piece))
        codes = np.zeros(len(piece), dtype=np.uint16)
        for k in range(cumulative.shape[1] - 1):
            codes += uniform >= cumulative[:, k][piece]
        result[start : start + _BLOCK] = codes
    return result


def decode(schema: Schema, codes: Sequence[Codes], generator: np.random.Generator) -> pd.DataFrame:
    """Codes to a table that looks like the parties' own.

    A variable with categories becomes a pandas categorical of all its labels. A binned variable becomes numbers, uniform
    within the bin: whole numbers from the bin's lower edge (rounded up) to below its upper edge where `integer` is set, else
    decimals fine enough for 1,000 steps in the narrowest bin. A binned variable that also has an `other` or a `missing`
    category becomes text: numbers as written above, and that category's label.

    Args:
        schema: the variables.
        codes: one array (n,) for each.
        generator: places values within bins; advanced.

    Raises:
        ValueError: not one array for each variable, or a bin of an integer variable holds no whole number.
    """
    import pandas as pd

    if len(codes) != len(schema):
        raise ValueError(f"{len(codes)} columns of codes for {len(schema)} variables")
    columns: dict[str, pd.Series | pd.Categorical] = {}
    for variable, column in zip(schema.variables, codes, strict=True):
        if variable.bins is None:
            columns[variable.name] = pd.Categorical.from_codes(
                column.astype(np.int64), categories=pd.Index(variable.labels, dtype="str")
            )
            continue
        numbers, decimals = _numbers(variable, column, generator)
        if variable.n_states == variable.n_bins:
            columns[variable.name] = pd.Series(numbers)
        else:
            columns[variable.name] = pd.Series(_texts(variable, column, numbers, decimals), dtype="str")
    return pd.DataFrame(columns)


def _numbers(
    variable: Variable, column: Codes, generator: np.random.Generator
) -> tuple[NDArray[np.int64] | Floats, int]:
    """A number in each record's bin (records without a bin get one of the last bin), and its decimals."""
    edges = np.array(variable.bins, dtype=np.float64)
    bins = np.minimum(column, variable.n_bins - 1).astype(np.intp)  # `bins + 1` would wrap at the 256th bin
    if variable.integer:
        whole = np.ceil(edges).astype(np.int64)
        if (np.diff(whole) < 1).any():
            raise ValueError(f"variable '{variable.name}': a bin holds no whole number")
        return generator.integers(whole[bins], whole[bins + 1]), 0
    decimals = max(_decimals(edges), math.ceil(3 - math.log10(float(np.diff(edges).min()))))
    step = 10.0**-decimals
    low, high = edges[bins], edges[bins + 1]
    drawn = np.round(np.floor((low + (high - low) * generator.random(len(column))) / step) * step, decimals)
    return np.clip(drawn, low, np.nextafter(high, -np.inf)), decimals


def _decimals(edges: Floats) -> int:
    """Decimals that the edges are written with, at most 12."""
    return next((d for d in range(12) if np.array_equal(np.round(edges, d), edges)), 12)


def _texts(
    variable: Variable, column: Codes, numbers: NDArray[np.int64] | Floats, decimals: int
) -> NDArray[np.object_]:
    written = [f"{number:.{decimals}f}" for number in numbers.tolist()]
    texts = np.array(written, dtype=object)
    for code in range(variable.n_bins, variable.n_states):
        texts[column == code] = variable.labels[code]
    return texts

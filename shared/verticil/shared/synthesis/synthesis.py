"""Synthetic records from a network or a joint model, and codes back to labels and numbers.

From a network by ancestral sampling; from a joint model as `joint_records` says.

``systematic`` (the default) rounds within each parent configuration: the sample is closer to the network than independent draws,
without the bias of largest remainders, and records stay exchangeable. ``independent`` draws every record on its own.
``without-replacement`` deals records out of histograms as PrivBayes does. `sampling_plan` says how.

With evidence, records are drawn from the exact conditional distribution (`elimination.condition`); none is rejected. So it is
with what a study states of all records (`verticil.shared.numerics.knowledge`): they come from the network's distribution given
that they meet it. To draw along the edges, and to leave out at each what cannot be, would be another distribution, and can end
where nothing can be. Where the tables of the rules are too large, records are drawn without them and those that meet them are
kept, if one in fifty does (`LEAST_KEPT`): the same distribution again. A joint model's records meet them all
(`content.joint_fault`). Many records are drawn chunk by chunk (`sample_chunks`), so that memory stays flat; rounding is then
within each.

The same generator state gives the same records, with numba installed or without.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes, Codes, Floats
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.knowledge.columns import columns as columns_of
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.elimination import ConditionalStep, TooWideError, condition, configuration_shares
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import Sampling, Study
from verticil.shared.synthesis import category_draws
from verticil.shared.synthesis.endings import ending_weights, with_endings
from verticil.shared.synthesis.joint_records import joint_codes
from verticil.shared.synthesis.linked_places import (
    InsideBins,
    inside_bins,
    places_in_bins,
    smooth_shape,
    values_at,
)
from verticil.shared.synthesis.ordered_numbers import ordered_numbers
from verticil.shared.synthesis.table_columns import WrittenColumn, frame
from verticil.shared.synthesis.typed_columns import number_of_writing, place_points

if TYPE_CHECKING:
    import pandas as pd


_KERNEL_FROM: Final = 3_000_000  # cells; below, plain numpy is done before numba and the compiled kernel are loaded
_NEXT_KERNEL_FROM: Final = 100_000  # cells, where numba is loaded already: the kernel takes some 10 ms then

CHUNK: Final = 1_000_000
"""Records that `sample_chunks` draws at a time."""
LEAST_KEPT: Final = 0.02
"""Of records that are drawn without rules, the share that must meet them for the others to be thrown away."""
_TRIED: Final = 50_000  # records, always the same ones: by which that share is known


_Path = Literal["auto", "compiled", "plain"]
_Draw = Callable[[int, np.random.Generator, _Path], list[Codes]]


def sample_codes(
    source: Network | JointModel,
    n: int,
    *,
    generator: np.random.Generator,
    method: Sampling = "systematic",
    path: _Path = "auto",
    evidence: Mapping[int, int] | None = None,
    configurations: Sequence[Floats] | None = None,
    support: Support | None = None,
) -> list[Codes]:
    """Draw records.

    Args:
        source: what is sampled from.
        n: number of records.
        generator: source of all randomness; advanced.
        method: see the module's text.
        path: ``compiled`` (needs numba), ``plain``, or whichever is there and quicker; the records are the same.
        evidence: evidence, variable -> code; every record has it.
        configurations: for each variable (J,), the shares of its parents' configurations that histograms are scaled from
            (``without-replacement`` without evidence or rules); None: those that the network gives them.
        support: what every record meets; None: nothing. The records of a joint model meet it already.

    Returns:
        One array (n,) of codes for each variable, in schema order.

    Raises:
        RulesTooWideError: see there.
        ValueError: n is negative, the evidence cannot be had (see `elimination.condition`, `Mixture.condition_on`), or the
            network is too wide to be sampled without replacement (`elimination.configuration_shares`).
        ImportError: ``compiled`` without numba.
    """
    return _plan(source, evidence or {}, method, configurations, support)(n, generator, path)


def sample_chunks(
    source: Network | JointModel,
    n: int,
    *,
    generator: np.random.Generator,
    method: Sampling = "systematic",
    evidence: Mapping[int, int] | None = None,
    support: Support | None = None,
) -> Iterator[list[Codes]]:
    """Draw records, `CHUNK` at a time; up to that many they are those of `sample_codes`. Arguments and errors are the same.

    A caller that uses the generator between two chunks (`decode` does) gets other records behind them, always the same.
    """
    draw = _plan(source, evidence or {}, method, None, support)
    for start in range(0, max(n, 1), CHUNK):
        yield draw(min(CHUNK, n - start), generator, "auto")


class RulesTooWideError(ValueError):
    """Rules can neither be drawn by, nor are they met by enough of the records that are drawn without them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """What is the same for all chunks: the steps in order, and of each the shares of its parents' configurations.

    The shares are there for ``without-replacement`` alone.
    """

    method: Sampling
    steps: Sequence[ConditionalStep]
    shares: Sequence[Floats | None]


def no_numbers(error: ValueError) -> DataFault:
    """Say that no numbers keep the stated orders."""
    return DataFault("LEARNING_FAILED", str(error), hint="move the bins' edges, or take one of these out")


def sample_study_codes(
    source: Network | JointModel,
    study: Study,
    n: int,
    *,
    networks: Sequence[Network],
    generator: np.random.Generator,
    at_once: int,
) -> Iterator[tuple[list[Codes], int]]:
    """Draw the codes of a release's records, so many together, each time with the number of the first of them.

    Args:
        source: the joint model or the network.
        study: what says how they are drawn.
        n: records.
        networks: networks of a posterior, which they come from where the study says so: record i from network i mod M.
        generator: advanced.
        at_once: most records that are drawn together.

    Raises:
        DataFault: LEARNING_FAILED, the network is too wide to be sampled without replacement, or by the study's rules.
    """
    rule, support = study.release, study.support()
    try:
        if study.records_from == "posterior":
            at_once -= at_once % len(networks) if at_once < n else 0  # so that record i is of network i mod M
            for first in range(0, n, at_once):
                yield _sample_in_turn(networks, min(at_once, n - first), generator, rule.sampling, support), first
            return
        draw = _plan(source, {}, rule.sampling, None, rake(source, support))
        for first in range(0, max(n, 1), max(at_once, 1)):
            yield draw(min(at_once, n - first), generator, "auto"), first
    except RulesTooWideError as error:
        raise DataFault(
            "LEARNING_FAILED", f"release.sampling: {error}", hint="allow fewer parents, or rules over fewer variables"
        ) from None
    except ValueError as error:
        raise DataFault(
            "LEARNING_FAILED",
            f"release.sampling = '{rule.sampling}': {error}",
            hint='allow fewer parents, or keep sampling = "systematic", which needs no such table',
        ) from None


def decode_of_study(
    study: Study, codes: Sequence[Codes], generator: np.random.Generator, tilts: Mapping[int, Floats] | None = None
) -> pd.DataFrame:
    """Return the table that a study publishes of records, see `decode`.

    Raises:
        DataFault: LEARNING_FAILED, there are no numbers that keep the orders of the study's knowledge.
    """
    with_labels, knowledge = study.labels_missing_numbers, study.knowledge
    try:
        return decode(
            study.schema,
            codes,
            generator,
            with_labels=with_labels,
            knowledge=knowledge,
            tilts=tilts,
            inside=inside_bins(study),
        )
    except ValueError as error:
        raise no_numbers(error) from None


def _sample_in_turn(
    networks: Sequence[Network],
    n: int,
    generator: np.random.Generator,
    method: Sampling,
    support: Support | None = None,
) -> list[Codes]:
    codes: list[Codes] = [np.empty(n, dtype=variable.code_dtype) for variable in networks[0].schema.variables]
    for place, network in enumerate(networks):
        size = len(range(place, n, len(networks)))
        part = sample_codes(network, size, generator=generator, method=method, support=rake(network, support))
        for column, codes_of_part in zip(codes, part, strict=True):
            column[place :: len(networks)] = codes_of_part
    return codes


def _plan(
    source: Network | JointModel,
    evidence: Mapping[int, int],
    method: Sampling,
    configurations: Sequence[Floats] | None = None,
    support: Support | None = None,
) -> _Draw:
    if not isinstance(source, Network):
        model = source.condition_on(evidence) if evidence else source
        return lambda n, generator, path: joint_codes(model, n, generator=generator, method=method, path=path)
    families = source.families
    rules = () if support is None else support.limits
    try:
        steps: Sequence[ConditionalStep] = (
            condition(source, evidence, rules)
            if evidence or rules
            else [
                ConditionalStep(child=v, parents=families[v].parents, probability=families[v].probability)
                for v in source.dag.topological_order()
            ]
        )
    except TooWideError as error:
        if support is None or not rules:
            raise
        return _keep_possible(_plan(source, evidence, method, configurations), support, error)
    shares: Sequence[Floats | None] = [None] * len(steps)
    if method == "without-replacement" and configurations is not None and not (evidence or rules):
        shares = [configurations[step.child] for step in steps]
    elif method == "without-replacement":
        shares = configuration_shares(steps, source.schema.n_states)
    plan = _Plan(method=method, steps=steps, shares=shares)
    return lambda n, generator, path: _sample_by_steps(source, plan, n, generator, path=path, evidence=evidence)


def _keep_possible(draw: _Draw, support: Support, error: TooWideError) -> _Draw:
    """Draw records without rules, and keep those that meet them."""
    share = float(support.holds(draw(_TRIED, np.random.default_rng(0), "auto")).mean())
    if share < LEAST_KEPT:
        hard = [
            (name, scope)
            for name, (scope, table) in zip(support.names, support.factors, strict=True)
            if not table.all()
        ]
        names = support.schema.names
        raise RulesTooWideError(
            f"the rules {', '.join(repr(name) for name, _ in hard)} over the variables "
            f"{', '.join(repr(names[v]) for v in sorted({v for _, scope in hard for v in scope}))}: {error}; and of records "
            f"drawn without them {share:.2%} meet them, expected at least {LEAST_KEPT:.0%}"
        )

    def draw_possible(n: int, generator: np.random.Generator, path: _Path) -> list[Codes]:
        if n < 0:
            raise ValueError(f"{n} records, expected 0 or more")
        parts, n_left = [draw(0, generator, path)], n
        while n_left > 0:
            records = draw(min(math.ceil(1.1 * n_left / share) + 100, CHUNK), generator, path)
            meets = support.holds(records)
            parts.append([column[meets][:n_left] for column in records])
            n_left -= len(parts[-1][0])
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    return draw_possible


def _sample_by_steps(
    network: Network,
    plan: _Plan,
    n: int,
    generator: np.random.Generator,
    *,
    path: _Path,
    evidence: Mapping[int, int],
) -> list[Codes]:
    if n < 0:
        raise ValueError(f"{n} records, expected 0 or more")
    least = _NEXT_KERNEL_FROM if "numba" in sys.modules else _KERNEL_FROM
    use_compiled = path == "compiled" or (
        path == "auto" and n * len(network.schema) >= least and category_draws.has_numba()
    )
    n_states = network.schema.n_states
    columns: dict[int, Codes] = {
        v: np.full(n, code, dtype=network.schema[v].code_dtype) for v, code in evidence.items()
    }
    for step, shares in zip(plan.steps, plan.shares, strict=True):
        group = np.zeros(n, dtype=np.uint32)
        for parent in step.parents:
            group *= np.uint32(n_states[parent])
            group += columns[parent]
        cumulative = category_draws.cumulative_rows(step.probability)
        if plan.method == "independent":
            codes = category_draws.independent(group, cumulative, generator)
        else:
            codes = category_draws.dealt(group, cumulative, shares, generator, use_compiled=use_compiled)
        columns[step.child] = codes.astype(network.schema[step.child].code_dtype, copy=False)
    return [columns[variable] for variable in range(len(network.schema))]


def decode(
    schema: Schema,
    codes: Sequence[Codes],
    generator: np.random.Generator,
    *,
    with_labels: bool = False,
    knowledge: Knowledge | None = None,
    tilts: Mapping[int, Floats] | None = None,
    inside: InsideBins | None = None,
) -> pd.DataFrame:
    """Codes to a table that looks like the parties' own.

    A variable with categories becomes a pandas categorical of all its labels. A binned variable becomes numbers, uniform
    within the bin: whole numbers from the bin's lower edge (rounded up) to below its upper edge where `integer` is set, else
    decimals fine enough for 1,000 steps in the narrowest bin. Where the variable declares representatives, every record of a
    bin has the bin's; where it declares means, numbers are uniform below the bin's and uniform above it, so often that it is
    their mean. With `tilts` of a variable that declares neither they have these in place of an even spread. Where a binned
    variable has one more category, of missing or other values, such a record is null; with two, or with `with_labels`, the column
    is text: numbers as written above, and these categories' labels.

    With knowledge the table has besides the columns that follow from others, finer values in place of properties (see
    `knowledge.columns`), and numbers that keep the stated orders (see `ordered`).

    Args:
        schema: the variables.
        codes: one array (n,) for each.
        generator: places values within bins, and draws finer ones; advanced.
        with_labels: see above.
        knowledge: what the study states; None: nothing.
        tilts: see `within_bins.Tilts`.
        inside: places numbers that have no other shape; None: evenly.

    Raises:
        ValueError: not one array for each variable, a bin of an integer variable holds no whole number, or no numbers keep an
            order.
    """
    return frame(
        list(written_columns(schema, codes, generator, knowledge=knowledge, tilts=tilts, inside=inside)),
        with_labels=with_labels,
    )


def written_columns(
    schema: Schema,
    codes: Sequence[Codes],
    generator: np.random.Generator,
    *,
    knowledge: Knowledge | None = None,
    tilts: Mapping[int, Floats] | None = None,
    inside: InsideBins | None = None,
    first: int = 0,
    at_once: int | None = None,
) -> Iterator[WrittenColumn]:
    """Make what `decode` makes a table of, column by column; arguments and errors as there.

    Args:
        schema, codes, generator, knowledge, tilts, inside: see `decode`.
        first: number of the first record among those of the table.
        at_once: records whose numbers are drawn together, so that a column comes in parts of that many: the same numbers. None:
            each column comes whole.
    """
    if len(codes) != len(schema):
        raise ValueError(f"{len(codes)} columns of codes for {len(schema)} variables")
    release_columns = columns_of(knowledge, schema)
    ordered_columns = ordered_numbers(schema, () if knowledge is None else knowledge.orders, codes, generator)
    n = len(codes[0])
    values = {} if inside is None else _placed(schema, codes, generator, inside, without=ordered_columns)
    chances = {
        variable.name: generator.random(n) for variable in release_columns.published.variables if variable.endings
    }
    parts = [slice(start, start + (at_once or n)) for start in range(0, max(n, 1), at_once or max(n, 1))]
    for variable, column in zip(
        release_columns.published.variables, release_columns.draw_columns(codes, generator), strict=True
    ):
        tilt = (tilts or {}).get(schema.index(variable.name)) if variable.name in schema else None
        weights = ending_weights(variable, column) if variable.endings else np.empty((0, 0))
        for some in parts:
            if variable.bins is None:
                yield WrittenColumn(variable=variable, codes=column[some])
                continue
            if (own_numbers := ordered_columns.get(variable.name)) is not None:
                numbers, decimals = number_of_writing(variable, own_numbers[0][some]), own_numbers[1]
            else:
                placed = values.get(variable.name)
                numbers, decimals = (
                    _numbers(variable, column[some], generator, tilt, first=first + some.start)
                    if placed is None or tilt is not None
                    else _in_writing(variable, column[some], placed[some])
                )
                if variable.endings:
                    numbers = with_endings(variable, column[some], numbers, weights, chances[variable.name][some])
                if variable.kind is not None:
                    numbers = place_points(variable, column[some], numbers, first=first + some.start)
            yield WrittenColumn(variable=variable, codes=column[some], numbers=numbers, decimals=decimals)


def _placed(
    schema: Schema,
    codes: Sequence[Codes],
    generator: np.random.Generator,
    inside: InsideBins,
    *,
    without: Collection[str],
) -> dict[str, Floats]:
    """Return the value of each number of each record, before it is written, `without` columns that have theirs already."""
    found: dict[str, Floats] = {}
    for v, places in places_in_bins(schema, codes, generator, linked=inside.linked).items():
        shape = inside.shapes.get(v)
        if schema[v].name in without or (shape is None and not inside.linked):
            continue  # their places are drawn all the same: records of other columns stay as they were
        found[schema[v].name] = values_at(schema[v], codes[v], places, shape or smooth_shape(schema[v], codes[v]))
    return found


def _in_writing(variable: Variable, column: AnyCodes, values: Floats) -> tuple[NDArray[np.int64] | Floats, int]:
    """Return values inside bins as the column writes them, and its decimals."""
    edges = np.array(variable.bins, dtype=np.float64)
    bins = np.minimum(column, variable.n_bins - 1).astype(np.intp)
    low, high = edges[bins], edges[bins + 1]
    if variable.integer:
        return np.clip(np.floor(values), np.ceil(low), np.ceil(high) - 1).astype(np.int64), 0
    if variable.decimals is not None:
        step = 10.0**-variable.decimals
        cut = np.floor(values / step + 1e-9) * step
        return np.round(np.clip(cut, low, high - step), variable.decimals).astype(np.float64), variable.decimals
    return _in_steps(edges, values, low, high)


def numbers_of(
    variable: Variable, column: AnyCodes, generator: np.random.Generator, tilt: Floats | None = None
) -> Floats:
    """Return the numbers that `decode` writes for a column with bins, NaN where a record has none."""
    numbers, _ = _numbers(variable, column, generator, tilt)
    if variable.kind is not None:
        numbers = place_points(variable, column, numbers)
    return np.where(column < variable.n_valued, numbers.astype(np.float64), np.nan)


def _numbers(
    variable: Variable, column: AnyCodes, generator: np.random.Generator, tilt: Floats | None = None, *, first: int = 0
) -> tuple[NDArray[np.int64] | Floats, int]:
    """Return a number in each record's bin (records without a bin get one of the last bin), and its decimals.

    Records before `first` have theirs already; numbers are drawn in the order of records, so any parts have the same ones.
    """
    edges = np.array(variable.bins, dtype=np.float64)
    bins = np.minimum(column, variable.n_bins - 1).astype(np.intp)  # `bins + 1` would wrap at the 256th bin
    if variable.representatives is not None:
        representatives = np.array(variable.representatives, dtype=np.float64)
        return (
            (representatives.astype(np.int64)[bins], 0)
            if variable.integer
            else (representatives[bins], _decimals(representatives))
        )
    if variable.means is not None:
        return _around_means(edges, np.array(variable.means), bins, generator, integer=variable.integer)
    low, high = edges[bins], edges[bins + 1]
    if variable.integer:
        whole = np.ceil(edges).astype(np.int64)
        if (np.diff(whole) < 1).any():
            raise ValueError(f"variable '{variable.name}': a bin holds no whole number")
        if tilt is None:
            return generator.integers(whole[bins], whole[bins + 1]), 0
    place = generator.random(len(column)) if tilt is None else _tilt_places(bins, tilt, generator, first)
    return _in_writing(variable, column, low + (high - low) * place)


def _tilt_places(bins: NDArray[np.intp], tilt: Floats, generator: np.random.Generator, first: int = 0) -> Floats:
    """Return places 0 to 1 inside bins with the density 1 + r (2 t - 1): where r t^2 + (1 - r) t is uniform."""
    r, uniform = tilt[(first + np.arange(len(bins))) % len(tilt), bins], generator.random(len(bins))
    root = (1 - r) + np.sqrt((1 - r) ** 2 + 4 * r * uniform)
    return np.minimum(2 * uniform / np.maximum(root, np.finfo(np.float64).tiny), 1.0)


def decimals_of(edges: Floats) -> int:
    """Decimals of numbers inside these bins: see `decode`."""
    return max(_decimals(edges), math.ceil(3 - math.log10(float(np.diff(edges).min()))))


def _in_steps(edges: Floats, numbers: Floats, low: Floats, high: Floats) -> tuple[Floats, int]:
    decimals = decimals_of(edges)
    step = 10.0**-decimals
    cut = np.round(np.floor(numbers / step) * step, decimals)
    return np.clip(cut, low, np.nextafter(high, -np.inf)), decimals


def _around_means(
    edges: Floats, means: Floats, bins: NDArray[np.intp], generator: np.random.Generator, *, integer: bool
) -> tuple[NDArray[np.int64] | Floats, int]:
    """Numbers with the declared mean of each bin: uniform below it with probability `share`, else uniform from it on."""
    low, high = edges[:-1], edges[1:]
    if integer:  # of whole numbers `cut` is the first of the upper part; either part has one at least
        cut = np.clip(np.floor(means) + 1, low + 1, np.maximum(high - 1, low + 1))
        share = np.where(high - low > 1, (cut + high - 1 - 2 * means) / (high - low), 1.0)
    else:
        cut, share = means, (high - means) / (high - low)
    uniform, share = generator.random(len(bins)), share[bins]
    below = uniform < share
    start, stop = np.where(below, low[bins], cut[bins]), np.where(below, cut[bins], high[bins])
    place = np.where(below, uniform, uniform - share) / np.where(below, share, 1 - share)
    values = start + (stop - start) * place
    if integer:
        return np.minimum(np.floor(values), stop - 1).astype(np.int64), 0
    return _in_steps(edges, values, low[bins], high[bins])


def _decimals(edges: Floats) -> int:
    """Decimals that the edges are written with, at most 12."""
    return next((d for d in range(12) if np.array_equal(np.round(edges, d), edges)), 12)

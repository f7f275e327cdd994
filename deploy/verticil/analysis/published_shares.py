"""The published tables of some columns, made consistent, and draws of all that they leave open.

A release publishes unbiased shares of every column and of some pairs. Their errors have two parts, and both are simulated here:

- *people and randomization*: records are drawn from what the release's own come from, randomized by the channels that the
  study states, and weighed by normal numbers: a bootstrap of the sums over all people (as a multiplier bootstrap, van der Vaart
  & Wellner 1996, 3.6). Only second moments of the records enter, never the model's own shares of pairs, which are shrunk;
- *noise on tables*: drawn anew with the deviation that the study states, for each table that was measured. A column's share
  is the mean of all tables that have the column, weighted by precision, as the release computes it.

A pair's table is made to agree with the shares of its columns, which have less noise: what rows and columns differ by is spread
evenly over the cells. That keeps the table unbiased, and is the estimate with the least variance of both (their errors apart from
the shares of the columns are independent). Every step is linear, so draws go the same way as the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Codes, Floats, Ints
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.json_document import parse
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.release.drawing import ReleaseModels
from verticil.shared.study.protocols import table_deviations
from verticil.shared.study.tables import tables_of
from verticil.shared.synthesis.synthesis import sample_codes

N_DRAWS: Final = 1000
"""Of the errors of the tables: a standard error from so many is 2.2 % off."""
N_RECORDS: Final = 5_000
"""Drawn from the model, for the part of people and randomization."""
_SEED: Final = 20_260

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    """Shares of some columns and of pairs of them; of draws their errors, with one more axis in front.

    Attributes:
        one: variable -> (.., K).
        two: pair of variables, ascending -> (.., K_first, K_second); each sums to the shares of its columns.
    """

    one: Mapping[int, Floats]
    two: Mapping[Pair, Floats]


def published_shares(models: ReleaseModels, variables: Sequence[int], pairs: Sequence[Pair]) -> Shares:
    """Return the release's unbiased shares, made consistent.

    Raises:
        Misuse: USAGE, the release does not publish one of these.
    """
    schema = models.schema
    marginals = {item.variable: item.estimate for item in models.marginals}
    tables: dict[Pair, Floats] = {}
    for item in models.pairs:
        ascending = item.first < item.second
        tables[min(item.first, item.second), max(item.first, item.second)] = (
            item.estimate if ascending else item.estimate.T
        )
    missing_pairs = [pair for pair in pairs if pair not in tables or np.isnan(tables[pair]).any()]
    which = "this pair" if len(missing_pairs) == 1 else f"these {len(missing_pairs)} pairs"
    if missing_pairs or any(np.isnan(marginals[v]).any() for v in variables):
        names = ", ".join(f'["{schema.names[a]}", "{schema.names[b]}"]' for a, b in missing_pairs)
        raise Misuse(
            "USAGE",
            f"the release publishes no table of {which} of columns, from which intervals could follow: {names}"
            if missing_pairs
            else "the release leaves out shares of few people, so no interval can follow",
            hint="name these in `pairs = [..]` under [release] of the study; to an owner who runs it again that costs nothing. "
            "Studies between peers, and an owner's with PrivBayes, publish no pairs",
        )
    total = {v: _to_sum(marginals[v], 1.0) for v in variables}
    return Shares(one=total, two={(a, b): _consistent(tables[a, b], total[a], total[b], 1.0) for a, b in pairs})


def _to_sum(share: Floats, total: float) -> Floats:
    return np.asarray(share - (share.sum(axis=-1, keepdims=True) - total) / share.shape[-1], dtype=np.float64)


def _consistent(table: Floats, first: Floats, second: Floats, total: float) -> Floats:
    """Return a table whose rows sum to `first` and whose columns to `second`, which both sum to the total."""
    rows, columns = table.sum(axis=-1) - first, table.sum(axis=-2) - second
    excess = table.sum(axis=(-2, -1)) - total
    n_rows, n_columns = table.shape[-2:]
    even = (
        rows[..., :, None] / n_columns + columns[..., None, :] / n_rows - excess[..., None, None] / (n_rows * n_columns)
    )
    return np.asarray(table - even, dtype=np.float64)


class Measured:
    """How the tables of a release came about: its units, their channels, and the noise on each table.

    Args:
        models: of the release.

    Raises:
        Misuse: USAGE, intervals cannot follow from such a release.
    """

    def __init__(self, models: ReleaseModels) -> None:
        study = models.study
        if study is None:
            raise Misuse(
                "USAGE", f"{models.folder}: has no study.json, so its noise is not known", hint="fetch it again"
            )
        if any(unit.transition.codes_per_record > 1 for unit in study.units):
            raise Misuse(
                "USAGE",
                "a column of this study was sent as sets of categories; intervals are there for other columns alone",
                hint="release.marginals has shares with intervals",
            )
        if study.samples_graphs and study.posterior.missing == "augment":
            raise Misuse(
                "USAGE",
                "the study draws missing values, and its published shares do not say how far they depend on that",
                hint="use release.query, or a study that keeps missing values as a category",
            )
        self.models, self.study = models, study
        self.n_people = count_people(models)
        self.units = tuple(study.column_unit(index) for index in range(len(study.units)))
        self.unit_of = {variable: index for index, unit in enumerate(self.units) for variable in unit.variables}
        self.tables: dict[tuple[int, ...], float] = {}
        if study.tables is not None:
            self.tables = dict(zip(map(tuple, tables_of(study)), table_deviations(study), strict=True))

    def records(self, n: int, generator: np.random.Generator) -> list[Codes]:
        """Draw records one by one from what the release's own come from; of sampled graphs from their consensus."""
        source = self.models.joint or self.models.network
        support = rake(source, self.models.support)
        return sample_codes(source, n, generator=generator, method="independent", support=support)

    def randomized(self, records: Sequence[Codes], unit: int, generator: np.random.Generator) -> Ints:
        """Return the released code of each record in a unit: (n,)."""
        own = self.units[unit]
        if own.domain is None:
            codes = records[own.variables[0]].astype(np.int64)
        else:
            shape = [self.models.schema.n_states[v] for v in own.variables]
            places = np.full(math.prod(shape), -1, dtype=np.int64)
            places[np.ravel_multi_index(np.array(own.domain).T.tolist(), shape)] = np.arange(len(own.domain))
            codes = places[np.ravel_multi_index([records[v].astype(np.intp) for v in own.variables], shape)]
            codes = np.maximum(codes, 0)
        if own.channel.is_identity:
            return codes
        cumulative = np.cumsum(own.channel.probabilities, axis=1)[codes]
        released: Ints = (generator.random(len(codes))[:, None] > cumulative).sum(axis=1)
        return np.minimum(released, own.channel.n_states - 1).astype(np.int64)

    def weights(self, variables: Sequence[int]) -> Floats:
        """Return how a released code of the unit of these variables counts in each of their cells: (M, K_1, .., K_v)."""
        unit = self.units[self.unit_of[variables[0]]]
        shape = tuple(self.models.schema.n_states[v] for v in variables)
        states = np.arange(unit.channel.n_states)
        codes = [
            states if unit.domain is None else np.array(unit.domain)[:, unit.variables.index(v)] for v in variables
        ]
        cells = np.ravel_multi_index(codes, shape)
        spread = np.eye(math.prod(shape))[cells]
        return (spread if unit.channel.is_identity else unit.channel.inverse @ spread).reshape(-1, *shape)

    def noise(self, variables: Sequence[int], pairs: Sequence[Pair], generator: np.random.Generator) -> Shares:
        """Draw the errors of published shares by the noise on tables, `N_DRAWS` times."""
        n_states = self.models.schema.n_states
        if not self.tables:
            return Shares(
                one={v: np.zeros((N_DRAWS, n_states[v])) for v in variables},
                two={(a, b): np.zeros((N_DRAWS, n_states[a], n_states[b])) for a, b in pairs},
            )
        own_units = sorted({self.unit_of[v] for v in variables})
        tables = {
            units: sigma * generator.standard_normal((N_DRAWS, *(self.units[u].channel.n_states for u in units)))
            for units, sigma in self.tables.items()
            if len(units) <= 2 and set(units) <= set(own_units)
        }
        one_way = {unit: self._one_way(unit, tables, generator) / self.n_people for unit in own_units}
        one = {v: _to_sum(one_way[self.unit_of[v]] @ self.weights([v]), 0.0) for v in variables}
        two: dict[Pair, Floats] = {}
        for a, b in pairs:
            first, second = self.unit_of[a], self.unit_of[b]
            if first == second:
                table = np.tensordot(one_way[first], self.weights([a, b]), axes=(1, 0))
            else:
                cells = tables[min(first, second), max(first, second)] / self.n_people
                cells = cells if first < second else cells.swapaxes(1, 2)
                table = np.einsum("rij,ia,jb->rab", cells, self.weights([a]), self.weights([b]), optimize=True)
            two[a, b] = _consistent(table, one[a], one[b], 0.0)
        return Shares(one=one, two=two)

    def _one_way(self, unit: int, tables: Mapping[tuple[int, ...], Floats], generator: np.random.Generator) -> Floats:
        """Draw the noise on the counts of one unit: its mean over all tables, see `NoisyTables.one_way`.

        What tables of three columns share between two units is left out: their part in each is small.
        """
        n_states = self.units[unit].channel.n_states
        lines = {
            units: math.prod(self.units[other].channel.n_states for other in units if other != unit)
            for units in self.tables
            if unit in units
        }
        precision = {units: 1 / (lines[units] * self.tables[units] ** 2) for units in lines}
        total = sum(precision.values())
        noise = np.zeros((N_DRAWS, n_states))
        rest = 0.0
        for units, weight in precision.items():
            if units in tables:
                axes = tuple(1 + place for place, other in enumerate(units) if other != unit)
                noise += weight / total * tables[units].sum(axis=axes)
            else:
                rest += weight / total**2
        return noise + math.sqrt(rest) * generator.standard_normal(noise.shape)


def count_people(models: ReleaseModels) -> int:
    """Return how many people a release is about."""
    return parse(models.document, source="model.json")["n_common"].integer()


def seeded() -> np.random.Generator:
    """Return the generator of all draws: the same release gives the same intervals."""
    return np.random.Generator(np.random.PCG64(_SEED))

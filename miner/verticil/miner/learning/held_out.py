"""How well a model fits randomized records that it was not learned from: the composite pairwise likelihood.

    (1/n) mean over pairs (a, b) of sum_y f(y) log (P_a^T pi P_b)(y),

f the counts of the held-out released pair, pi the model's pair, P the channels (scores.md section 2): the model is
randomized, and nothing is corrected, so there is no bias of a correction. The pairs are those of *units*: a compound is one
column. It costs no privacy. It measures how well pairs are reproduced, not the joint distribution nor the graph.

The model's pairs are read from a sample, mixed with a little of independence so that no cell is impossible. Two models are
compared block by block of the records (`TUNING.blocks`): the differences of the blocks say how uncertain that of the means is.

`check_pairs` holds a network against the tables of all pairs: what it gets wrong beyond noise, and which links it leaves out.

Searches add up scores, and a network can be good on the whole and say of one pair, even of a function, that it is independent. So
the pairs of a sample of the network are compared with what the released tables of the significant pairs say (`PairScores.links`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.counting import all_pair_tables, family_counts, family_tables
from verticil.miner.learning.scoring.scores import PairScores
from verticil.miner.learning.scoring.tuning import TUNING as SCORING
from verticil.miner.learning.tuning import TUNING
from verticil.shared.core.arrays import Codes, Counts, Floats
from verticil.shared.numerics.estimation.axes import apply_axes, plogp
from verticil.shared.numerics.estimation.estimators import em_projection
from verticil.shared.numerics.estimation.information import Link, plug_in_information
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, family_design
from verticil.shared.numerics.estimation.parent_smoothing import backed_off
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.synthesis.marginals import no_records
from verticil.shared.synthesis.synthesis import sample_codes


class HeldOut:
    """Held-out records, counted once.

    Args:
        columns: released codes of each unit.
        units: how they were randomized.
        n_states: number of categories of each variable.
    """

    def __init__(self, columns: Sequence[Codes], units: Sequence[ColumnUnit], n_states: Sequence[int]) -> None:
        self._units, self._n_states = tuple(units), tuple(n_states)
        # Each unit as one variable of its own categories.
        self._whole = [
            ColumnUnit(variables=(index,), domain=None, channel=unit.channel) for index, unit in enumerate(units)
        ]
        n = len(columns[0]) // units[0].channel.codes_per_record if columns else 0
        edges = np.linspace(0, n, max(min(TUNING.blocks, n), 1) + 1).astype(int)
        self._counts: dict[tuple[int, ...], list[Counts]] = {}
        for first, last in itertools.pairwise(edges.tolist()):
            widths = [unit.channel.codes_per_record for unit in units]
            block = [column[first * w : last * w] for column, w in zip(columns, widths, strict=True)]
            for pair, table in self._count_pairs(block):
                self._counts.setdefault(pair, []).append(table)

    def likelihoods(self, sample: Sample) -> Floats:
        """Return the mean log-likelihood of one held-out record's pair, nats, in each block; larger is better.

        Args:
            sample: records of the model, see `sample_network`.
        """
        codes = [self._unit_codes(unit, sample) for unit in self._units]
        sizes = [unit.channel.n_states for unit in self._units]
        total: Floats = np.zeros(1)
        weight: Floats = np.zeros(1)
        with_impossible = [size + (unit.domain is not None) for size, unit in zip(sizes, self._units, strict=True)]
        model_tables = family_tables(codes, with_impossible, self._counts)
        for (pair, blocks), counts in zip(self._counts.items(), model_tables, strict=True):
            design = family_design(self._whole, sizes, pair)
            table = counts[tuple(slice(sizes[unit]) for unit in pair)].astype(np.float64)
            expected_shares = apply_axes(_mix_with_product(table), [axis.forward for axis in design.axes])
            logarithm = np.log(np.where(expected_shares > 0, expected_shares, 1.0))
            observed_counts = np.stack([block.ravel().astype(np.float64) for block in blocks])
            total = total + observed_counts @ logarithm.ravel()
            weight = weight + observed_counts.sum(axis=1)
        return total / np.maximum(weight, 1.0)

    def _count_pairs(self, columns: Sequence[Codes]) -> Iterator[tuple[tuple[int, ...], Counts]]:
        sizes = [unit.channel.n_states for unit in self._units]
        d = len(sizes)
        step = max(math.ceil(math.comb(d, 2) / TUNING.most_pairs), 1)
        some = itertools.islice(itertools.combinations(range(d), 2), 0, None, step)
        pairs: list[tuple[int, ...]] = list(some) if d > 1 else [(0,)]
        # A compound also says something about its own variables' pairs.
        alone = [(index,) for index, unit in enumerate(self._units) if unit.domain is not None and d > 1]
        single = all(unit.channel.codes_per_record == 1 for unit in self._units)
        cells = (sum(sizes) ** 2 - sum(k * k for k in sizes)) // 2
        if step > 1 and single:
            yield from zip(pairs, family_tables(columns, sizes, pairs, method="kernel"), strict=True)
            pairs = []
        elif d > 1 and single and cells <= SCORING.most_pair_cells:
            tables = all_pair_tables(columns, sizes)
            yield from ((pair, tables.table(*pair)) for pair in tables.pairs())
            pairs = []
        by_index = dict(enumerate(columns))
        for axes in (*pairs, *alone):
            if math.prod(sizes[unit] for unit in axes) <= SCORING.most_pair_cells:
                yield axes, family_counts(by_index, family_design(self._whole, sizes, axes))

    def _unit_codes(self, unit: ColumnUnit, sample: Sample) -> Codes:
        """Return what a unit's true category is in each sampled record; of an impossible combination one more than there are."""
        if unit.domain is None:
            return sample[unit.variables[0]]
        shape = [self._n_states[variable] for variable in unit.variables]
        place = np.full(math.prod(shape), len(unit.domain), dtype=np.uint16)
        place[np.ravel_multi_index(np.array(unit.domain).T.tolist(), shape)] = np.arange(len(unit.domain))
        return place[np.ravel_multi_index([sample[v].astype(np.int64) for v in unit.variables], shape)]


def quick_network(
    schema: Schema, dag: Dag, tables: FamilyTables, *, prior_count: float | None, support: Support | None = None
) -> Network:
    """Return a network with the probabilities that a comparison needs, and without uncertainty: everything else is NaN."""
    families: list[Family] = []
    for child, parents in enumerate(dag.parents):
        counts, design = tables.count_family((*parents, child))
        if support is not None:
            design = design.under(support.zeros((*parents, child)))
        table = em_projection(counts, design)
        if prior_count is None:
            table = backed_off(table, design)
        else:
            table = table.reshape(-1, design.shape[-1]) + max(prior_count, TUNING.least_prior_count)
        unknown = np.full(table.shape, np.nan)
        families.append(
            Family(
                child=child,
                parents=parents,
                probability=table / table.sum(axis=1, keepdims=True),
                estimate=unknown,
                standard_error=unknown,
                interval_low=unknown,
                interval_high=unknown,
                unstable=np.zeros(table.shape, dtype=np.bool_),
            )
        )
    return Network(schema=schema, dag=dag, families=tuple(families))


def _mix_with_product(table: Floats) -> Floats:
    """Return shares, mixed with the product of the one-way shares, of which none is 0."""
    share = table / max(float(table.sum()), 1.0)
    product = np.ones((1,) * table.ndim)
    for axis in range(table.ndim):
        one = share.sum(axis=tuple(other for other in range(table.ndim) if other != axis)) + TUNING.least_prior_count
        product = product * (one / one.sum()).reshape([-1 if other == axis else 1 for other in range(table.ndim)])
    return (1 - TUNING.independent_share) * share + TUNING.independent_share * product


Sample = Sequence[NDArray[np.unsignedinteger]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCheck:
    """What the tables of the pairs say of a network.

    Attributes:
        pairs: how many are significant and were looked at.
        worst: the pair whose table is the farthest from the estimated one beyond what noise explains; None without pairs.
        distance: total variation distance of its two tables.
        noise: what noise alone gives on average.
        missing: significant pairs that the network leaves nearly independent, and their information, nats; the largest first.
        strong: the sum of the information of those that are strong, nats.
    """

    pairs: int
    worst: tuple[int, int] | None
    distance: float
    noise: float
    missing: tuple[tuple[int, int, float], ...]
    strong: float


def sample_network(network: Network, *, seed: int, support: Support | None = None) -> Sample:
    """Return records of a network that meet what is stated of all: codes of each variable.

    Raises:
        DataFault: LEARNING_FAILED, there are none.
    """
    generator = np.random.Generator(np.random.Philox(seed))
    try:
        return sample_codes(network, TUNING.sampled_records, generator=generator, support=rake(network, support))
    except ValueError as error:
        raise no_records(error) from None


def check_pairs(sample: Sample, n_states: Sequence[int], pairs: PairScores) -> PairCheck:
    """Compare a sample of a network with the tables of all significant pairs."""
    worst: tuple[int, int] | None = None
    distance = noise = strong = 0.0
    missing: list[tuple[int, int, float]] = []
    few = TUNING.pairs_together * len(pairs.links) < math.comb(
        len(n_states), 2
    )  # of a wide table most pairs are independent
    tables = None if few else all_pair_tables(sample, n_states)
    network_tables = (
        family_tables(sample, n_states, pairs.links) if tables is None else itertools.starmap(tables.table, pairs.links)
    )
    for ((a, b), link), of_network in zip(pairs.links.items(), network_tables, strict=True):
        apart = 0.5 * float(np.abs(of_network / max(of_network.sum(), 1) - link.table).sum())
        if worst is None or apart - link.noise > distance - noise:
            worst, distance, noise = (a, b), apart, link.noise
        if plug_in_information(of_network) < TUNING.missing_share * link.information:
            missing.append((a, b, link.information))
            strong += link.information if _is_strong(link) else 0.0
    return PairCheck(
        pairs=len(pairs.links),
        worst=worst,
        distance=distance,
        noise=noise,
        missing=tuple(sorted(missing, key=lambda pair: -pair[2])),
        strong=strong,
    )


def _is_strong(link: Link) -> bool:
    return link.information >= min(
        TUNING.strong_nats, TUNING.strong_share * min(-plogp(link.table.sum(axis=side)) for side in range(2))
    )

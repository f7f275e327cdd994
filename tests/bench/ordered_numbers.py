"""What the order of numbers is worth under noise: ``python tests/bench/ordered_numbers.py [--epsilon .5 1 5] [--seeds 5]``.

One owner's tables get noise (add or remove one person, delta 1e-9), and three estimates are made of the same people: without the
order, with smooth steps, and with smooth steps and two resolutions, each at the same total. Printed are the mean total variation
distance of all tables of two columns, the part of Spearman's correlation that strongly linked numbers keep (those above .3), the
mean error of Spearman's correlation of all pairs of numbers, that of single columns, and CPU seconds. Numbers are cut as in
`joint_data`; ``--table FILE STUDY`` adds a table as an owner's study cuts it. ``--local`` measures columns that are randomized
one by one in place of tables with noise.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import joint_data
import numpy as np
from joint import channels_of, from_network, learned, released, sigma_for, study_of, units_of
from joint_data import NUMBERS, Data
from numpy.typing import NDArray

from verticil.curator.reading import read_table
from verticil.curator.study import owners_study
from verticil.party.storage.secret import SiteSecret
from verticil.shared.numerics.joint.coarse import pairs_with_order, summed
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import JointEstimate, estimate
from verticil.shared.numerics.joint.noise import noised, noised_runs
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.study.reading import read_study
from verticil.shared.study.tables import COARSE_PART

Floats = NDArray[np.float64]
Orders = tuple[tuple[int, ...], ...]
WAYS: Final = ("no order", "smooth", "smooth, two resolutions")
STRONG: Final = 0.3


def orders_of(data: Data) -> Orders:
    """The ordered categories of each column: ranges, in their order."""
    names = NUMBERS.get(data.name, ())
    return tuple(
        variable.order
        or (
            tuple(c for c, label in enumerate(variable.labels) if label.startswith("range "))
            if variable.name in names
            else ()
        )
        for variable in data.schema.variables
    )


def owners_table(file: Path, study: Path) -> Data:
    """A table as an owner's study cuts it."""
    own = owners_study(read_study(study, by_owner=True), method="joint")
    secret = SiteSecret(value=bytes(32))
    table = read_table(file, own, dataset=file.stem, id_column=None, secret=secret)
    return Data(name=study.stem, schema=own.schema, columns=[np.asarray(codes, np.uint16) for codes in table.codes])


def spearman(table: Floats, rows: Sequence[int], columns: Sequence[int]) -> float:
    """Spearman's correlation of two grouped numbers, among those who have both."""
    own = np.maximum(table[np.ix_(rows, columns)], 0.0)
    own = own / own.sum()
    first, second = own.sum(axis=1), own.sum(axis=0)
    ranks = [np.cumsum(share) - share / 2 for share in (first, second)]
    away = [rank - share @ rank for rank, share in zip(ranks, (first, second), strict=True)]
    spread = (first @ away[0] ** 2) * (second @ away[1] ** 2)
    return float(away[0] @ own @ away[1] / math.sqrt(spread)) if spread > 0 else 0.0


class Judge:
    """Measures models against the people."""

    def __init__(self, data: Data, orders: Orders) -> None:
        self.orders, n_states = orders, data.schema.n_states
        exact = from_columns(data.columns, units_of(channels_of(n_states, None)), n_states, parts=1)
        self.shares = {table.units: table.counts / data.n for table in exact.tables}
        numbers = [v for v, order in enumerate(orders) if order]
        self.real = {
            (a, c): spearman(self.shares[a, c], orders[a], orders[c]) for a, c in itertools.combinations(numbers, 2)
        }

    def figures(self, model: JointModel) -> tuple[float, float, float, float]:
        """Distance of pairs, part of Spearman's correlation kept, its mean error, distance of single columns."""
        made = {pair: model.shares(pair) for pair in self.shares}
        pairs = [np.abs(made[pair] - shares).sum() / 2 for pair, shares in self.shares.items()]
        found = {pair: spearman(made[pair], *(self.orders[v] for v in pair)) for pair in self.real}
        kept = [found[pair] / real for pair, real in self.real.items() if abs(real) > STRONG]
        missed = [abs(found[pair] - real) for pair, real in self.real.items()]
        single = [np.abs(made[pair].sum(axis=1) - shares.sum(axis=1)).sum() / 2 for pair, shares in self.shares.items()]
        return float(np.mean(pairs)), _mean(kept), _mean(missed), float(np.mean(single))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def estimates(data: Data, orders: Orders, epsilon: float, seed: int) -> Iterator[tuple[str, JointEstimate, float]]:
    """An estimate of each way, with its CPU seconds."""
    n_states = data.schema.n_states
    exact = from_columns(data.columns, units_of(channels_of(n_states, None)), n_states, parts=1)
    exact = dataclasses.replace(exact, n_records=None, relation="add-remove")
    key = np.random.default_rng([seed, 14]).bytes(32)
    pairs = [table.units for table in exact.tables]
    sigma = sigma_for(epsilon, len(pairs), "add-remove")
    coarse_pairs = pairs_with_order(orders, pairs)
    fine = dataclasses.replace(noised(exact, sigma / math.sqrt(1 - COARSE_PART), key), orders=orders)
    coarse = noised_runs(
        summed(exact, fine, coarse_pairs), sigma * math.sqrt(len(coarse_pairs) / len(pairs) / COARSE_PART), key
    )
    one = noised(exact, sigma, key)
    tables = (one, dataclasses.replace(one, orders=orders), dataclasses.replace(fine, coarse=coarse))
    for way, noisy in zip(WAYS, tables, strict=True):
        start = time.process_time()
        found = estimate(noisy, seed=seed)
        yield way, found, time.process_time() - start


def local_estimates(
    data: Data, orders: Orders, epsilon: float | None, seed: int
) -> Iterator[tuple[str, JointEstimate, float]]:
    """The same of columns that are randomized one by one."""
    n_states, channels = data.schema.n_states, channels_of(data.schema.n_states, epsilon)
    columns = released(data.columns, channels, seed)
    network = learned(study_of(data, channels), columns)
    tables = from_columns(columns, units_of(channels), n_states)
    for way, own in zip(WAYS[:2], ((), orders), strict=True):
        start = time.process_time()
        noisy: NoisyTables = dataclasses.replace(tables, orders=own)
        found = estimate(noisy, seed=seed, records=lambda n, _: list(from_network(network, n, seed)))
        yield way, found, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 5.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="data sets, by commas: adult, ma2019, cmc, shipped")
    parser.add_argument("--table", nargs=2, type=Path, action="append", default=[], metavar=("FILE", "STUDY"))
    parser.add_argument("--local", action="store_true")
    options = parser.parse_args()
    makers = {
        "adult": joint_data.adult,
        "ma2019": joint_data.ma2019,
        "cmc": joint_data.cmc,
        "shipped": lambda: joint_data.shipped()[0],
    }
    wanted = [name for name in options.only.split(",") if name] or ([] if options.table else ["adult", "ma2019", "cmc"])
    all_data = [makers[name]() for name in wanted] + [owners_table(*pair) for pair in options.table]
    for data in all_data:
        orders = orders_of(data)
        judge = Judge(data, orders)
        print(f"{data.name}: {data.n:,} people, {len(orders)} columns, {sum(map(bool, orders))} of them ordered")
        for epsilon in options.epsilon:
            figures: dict[str, list[tuple[float, ...]]] = {}
            for seed in range(1, options.seeds + 1):
                of = local_estimates if options.local else estimates
                for way, found, seconds in of(data, orders, epsilon, seed):
                    figures.setdefault(way, []).append((*judge.figures(found.model), seconds))
            for way, rows in figures.items():
                mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / math.sqrt(len(rows))
                print(
                    f"  epsilon {epsilon:<4g} {way:<24} pairs {mean[0]:.4f} +- {error[0]:.4f}  Spearman kept {mean[1]:.2f}  "
                    f"its error {mean[2]:.3f}  single columns {mean[3]:.4f}  CPU s {mean[4]:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

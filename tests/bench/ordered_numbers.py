"""What the order of numbers is worth under noise: ``python tests/bench/ordered_numbers.py [--epsilon .5 1 5] [--seeds 5]``.

One owner's tables get noise (add or remove one person, delta 1e-9), and three estimates are made of the same people: without the
order, with smooth steps, and with smooth steps and two resolutions, each at the same total. Printed are the mean total variation
distance of all tables of two columns, the part of Spearman's correlation that strongly linked numbers keep (those above .3), the
mean error of Spearman's correlation of all pairs of numbers, that of the standardised slopes of each number on all others, that
of single columns, and CPU seconds. Numbers are cut as in `joint_data`; ``--table FILE STUDY`` adds a table as an owner's study
cuts it. ``--local`` measures columns that are randomized one by one in place of tables with noise. ``--public-runs`` cuts runs as
masked tables do, by the study alone.

``--measured`` makes records of Adult and ma2019 by ``synthesize`` (replacement of a person, delta 1e-9): with bins that are
measured, and with what stood before, in pairs at the same total. Printed are the mean distance of all tables of two columns with
numbers in ten ranges of equal shares, the mean Kolmogorov distance of the numbers, the part of Spearman's correlation kept, the
error of the slopes, the share of records whose widest number is 0 less the people's, and CPU seconds. ``--plots DIR`` draws
histograms of the numbers and scatter plots, people beside records.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import joint_data
import numpy as np
import pandas as pd
from joint import channels_of, from_network, learned, released, sigma_for, study_of, units_of
from joint_data import NUMBERS, Data
from numpy.typing import NDArray

from verticil.curator.reading import read_table
from verticil.curator.study import owners_study
from verticil.curator.synthesis import synthesize
from verticil.experiments.hittmeir import datasets
from verticil.party.storage.secret import SiteSecret
from verticil.shared.numerics.joint.coarse import in_runs, pairs_with_order, runs_of, summed
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import JointEstimate, estimate
from verticil.shared.numerics.joint.noise import noised, noised_runs
from verticil.shared.numerics.joint.noisy_tables import CoarseTables, NoisyTables
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.study.reading import read_study, read_study_text
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

    def figures(self, model: JointModel) -> tuple[float, float, float, float, float]:
        """Distance of pairs, part of Spearman's correlation kept, its mean error, that of slopes, distance of single columns."""
        made = {pair: model.shares(pair) for pair in self.shares}
        pairs = [np.abs(made[pair] - shares).sum() / 2 for pair, shares in self.shares.items()]
        found = {pair: spearman(made[pair], *(self.orders[v] for v in pair)) for pair in self.real}
        kept = [found[pair] / real for pair, real in self.real.items() if abs(real) > STRONG]
        missed = [abs(found[pair] - real) for pair, real in self.real.items()]
        single = [np.abs(made[pair].sum(axis=1) - shares.sum(axis=1)).sum() / 2 for pair, shares in self.shares.items()]
        slopes = slope_error(self._correlations(self.shares), self._correlations(made))
        return float(np.mean(pairs)), _mean(kept), _mean(missed), slopes, float(np.mean(single))

    def _correlations(self, shares: Mapping[tuple[int, int], Floats]) -> Floats:
        """Pearson's correlations of the numbers' places in their order."""
        numbers = sorted({v for pair in self.real for v in pair})
        found = np.eye(len(numbers))
        for a, c in self.real:
            table = np.maximum(shares[a, c][np.ix_(self.orders[a], self.orders[c])], 0.0)
            places = [np.arange(size, dtype=np.float64) for size in table.shape]
            away = [place - (table.sum(axis=1 - axis) @ place) / table.sum() for axis, place in enumerate(places)]
            spread = [table.sum(axis=1 - axis) @ own**2 for axis, own in enumerate(away)]
            if spread[0] > 0 and spread[1] > 0:
                row, column = numbers.index(a), numbers.index(c)
                found[row, column] = found[column, row] = away[0] @ table @ away[1] / math.sqrt(spread[0] * spread[1])
        return found


def slope_error(real: Floats, made: Floats) -> float:
    """Mean absolute error of the standardised slopes of each number on all others, from two matrices of correlations."""
    errors = []
    for target in range(len(real)):
        others = [place for place in range(len(real)) if place != target]
        if others:
            slopes = [
                np.linalg.lstsq(c[np.ix_(others, others)], c[others, target], rcond=None)[0] for c in (real, made)
            ]
            errors += np.abs(slopes[0] - slopes[1]).tolist()
    return _mean(errors)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def estimates(
    data: Data, orders: Orders, epsilon: float, seed: int, *, public_runs: bool = False
) -> Iterator[tuple[str, JointEstimate, float]]:
    """An estimate of each way, with its CPU seconds."""
    n_states = data.schema.n_states
    exact = from_columns(data.columns, units_of(channels_of(n_states, None)), n_states, parts=1)
    exact = dataclasses.replace(exact, n_records=None, relation="add-remove")
    key = np.random.default_rng([seed, 14]).bytes(32)
    pairs = [table.units for table in exact.tables]
    sigma = sigma_for(epsilon, len(pairs), "add-remove")
    coarse_pairs = pairs_with_order(orders, pairs)
    fine = dataclasses.replace(noised(exact, sigma / math.sqrt(1 - COARSE_PART), key), orders=orders)
    coarse_sigma = sigma * math.sqrt(len(coarse_pairs) / len(pairs) / COARSE_PART)
    sums = summed(exact, fine, coarse_pairs)
    if public_runs:
        runs = tuple(runs_of(np.full(size, 1 / size), order) for size, order in zip(n_states, orders, strict=True))
        sums = CoarseTables(runs=runs, tables=tuple(in_runs(exact, runs, coarse_pairs)))
    coarse = noised_runs(sums, coarse_sigma, key)
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


MISSING: Final = "N"
Table = tuple[pd.DataFrame, tuple[str, ...], tuple[str, ...]]
"""A table, its columns of numbers, and those among them in which `MISSING` occurs."""


def table_of(name: str) -> Table:
    """Adult or ma2019, as texts."""
    texts = (
        datasets.adult().train
        if name == "adult"
        else joint_data.read_texts(joint_data.TESTS / "data" / "ma2019.csv.gz")
    )
    people = pd.DataFrame({column: values.astype(str) for column, values in texts.items()})
    numbers = NUMBERS[name]
    return people, numbers, tuple(column for column in numbers if (people[column] == MISSING).any())


def numbers_in(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The numbers of a table; missing ones are not a number."""
    return frame[list(names)].apply(pd.to_numeric, errors="coerce").astype(float)


def study_text(table: Table, *, measured: bool) -> str:
    """An owner's study that leaves the bins of its numbers to be measured, or declares what the estimator before had.

    Bounds are the numbers' range widened to powers of ten. Before: 20 bins of equal width from the least to the largest number,
    whose order is not used, one resolution, and numbers spread evenly inside bins.
    """
    people, names, with_missing = table
    text = 'schema = 1\nid = "numbers"\ntitle = "Numbers"\npurpose = "a bench"\nexpires = 2099-01-01\n[[party]]\nname = "owner"\n'
    for name in people:
        text += f'[[variable]]\nparty = "owner"\nname = "{name}"\n'
        if name not in names:
            text += f"categories = {sorted(set(people[name]))}\n"
            continue
        values = numbers_in(people, [name])[name].dropna()
        low, high = int(values.min()), int(values.max())
        text += 'type = "integer"\n'
        if measured:
            bounds = [-(10 ** len(str(-low))) if low < 0 else 0, 10 ** len(str(high))]
            text += f'bins = "private"\nbounds = {bounds}\n'
        else:
            edges = np.unique(np.rint(np.linspace(low, high + 1, joint_data.BINS + 1))).astype(int).tolist()
            text += f"bins = {edges}\nordered = false\n"
        if name in with_missing:
            text += f'missing = {{ category = "{MISSING}", spellings = ["{MISSING}"] }}\n'
    text += '[randomization_default]\nscheme = "symmetric"\nepsilon = 1\n'
    rules = '[tables]\nepsilon = 1.0\ndelta = 1e-9\nresolution = "one"\n[release]\nwithin_bins = "even"\n'
    return text if measured else text + rules


def records_of(table: Table, epsilon: float, seed: int, *, measured: bool) -> tuple[pd.DataFrame, float]:
    """Records of a table by one of the studies, and CPU seconds."""
    study = read_study_text(study_text(table, measured=measured), Path(), by_owner=True)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        made = synthesize(
            table[0], study, epsilon=epsilon, delta=1e-9, state=Path(folder) / "state", seed=seed, accept_noise=True
        )
        return made.records, time.process_time() - start


def coarse_shares(people: pd.DataFrame, records: pd.DataFrame, names: Sequence[str]) -> float:
    """Mean distance of all tables of two columns, numbers in ten ranges of equal shares that are cut on the people."""
    codes: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
    for column in people:
        both = [frame[column].astype(str) for frame in (people, records)]
        if column in names:
            real, made = (numbers_in(frame, [column])[column].to_numpy() for frame in (people, records))
            cuts = np.unique(np.nanquantile(real, np.arange(1, 10) / 10, method="inverted_cdf"))
            own = [np.where(np.isnan(v), len(cuts) + 1, np.searchsorted(cuts, v, side="right")) for v in (real, made)]
        else:
            places = {label: place for place, label in enumerate(sorted(set(both[0]) | set(both[1])))}
            own = [texts.map(places).to_numpy() for texts in both]
        for part, column_codes in zip(codes, own, strict=True):
            part.append(column_codes.astype(np.int64))
    distances = []
    for a, c in itertools.combinations(range(len(codes[0])), 2):
        width = max(part[c].max() for part in codes) + 1
        size = (max(part[a].max() for part in codes) + 1) * width
        shares = [np.bincount(part[a] * width + part[c], minlength=size) / len(part[a]) for part in codes]
        distances.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(distances))


def figures_of_numbers(table: Table, records: pd.DataFrame) -> tuple[float, ...]:
    """Distances of pairs over coarse ranges and of numbers (Kolmogorov), part of Spearman kept, error of slopes, zeros."""
    people, names, _ = table
    real, made = numbers_in(people, names), numbers_in(records, names)
    distances = []
    for name in names:
        own = [np.sort(frame[name].dropna()) for frame in (real, made)]
        at = np.union1d(*own)
        shares = [np.searchsorted(values, at, side="right") / len(values) for values in own]
        distances.append(np.abs(shares[0] - shares[1]).max())
    ranks = [frame.corr("spearman").to_numpy() for frame in (real, made)]
    strong = np.triu(np.abs(ranks[0]) > STRONG, 1)
    kept = _mean((ranks[1][strong] / ranks[0][strong]).tolist())
    slopes = slope_error(real.corr().to_numpy(), made.corr().to_numpy())
    widest = max(names, key=lambda name: real[name].max())
    zeros = (made[widest] == 0).mean() - (real[widest] == 0).mean()
    return coarse_shares(people, records, names), float(np.mean(distances)), kept, slopes, float(zeros)


def draw_plots(table: Table, records: pd.DataFrame, file: Path) -> None:
    """Draw a histogram of each number, and a scatter plot of the first with each other one, people beside records."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    people, names, _ = table
    both = [numbers_in(frame, names) for frame in (people, records)]
    figure, axes = plt.subplots(4, len(names), figsize=(4 * len(names), 16))
    for column, name in enumerate(names):
        is_wide = both[0][name].max() > 1_000
        scaled = [np.arcsinh(frame) / math.log(10) if is_wide else frame for frame in (frame[name] for frame in both)]
        edges = np.linspace(min(own.min() for own in scaled), max(own.max() for own in scaled), 60)
        first = names[0] if column else names[-1]
        for row, (own, frame, who) in enumerate(zip(scaled, both, ("people", "records"), strict=True)):
            axes[row, column].hist(own.dropna(), bins=edges)
            axes[row, column].set_title(f"{name}{', log scale' if is_wide else ''}: {who}")
            some = frame.sample(3_000, random_state=1)
            places = axes[2 + row, column]
            jitter = np.random.default_rng(1).uniform(-0.5, 0.5, (2, len(some)))
            places.scatter(some[first] + jitter[0], (own[some.index] if is_wide else some[name] + jitter[1]), s=2)
            places.set_title(f"{first}, {name}: {who}")
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=50)


def print_measured(names: Sequence[str], epsilons: Sequence[float], seeds: int, plots: Path | None) -> None:
    """Print a row for each table, epsilon and way, and what each pair of runs costs."""
    for name in names:
        table = table_of(name)
        records_of(table, 1.0, 99, measured=True)  # compiles
        for epsilon in epsilons:
            rows: dict[str, list[tuple[float, ...]]] = {"before": [], "measured": []}
            for seed in range(1, seeds + 1):
                for way, of_way in rows.items():
                    records, seconds = records_of(table, epsilon, seed, measured=way == "measured")
                    of_way.append((*figures_of_numbers(table, records), seconds))
                    print(f"  seed {seed}, {way}: {' '.join(f'{figure:.4f}' for figure in of_way[-1])}", flush=True)
                    if plots is not None and seed == 1:
                        draw_plots(table, records, plots / f"{name}-{way}-{epsilon:g}.png")
            for way, of_way in rows.items():
                mean, error = np.mean(of_way, axis=0), np.std(of_way, axis=0, ddof=1) / math.sqrt(seeds)
                print(
                    f"{name}, epsilon {epsilon:<4g} {way:<9} coarse pairs {mean[0]:.4f} +- {error[0]:.4f}  "
                    f"Kolmogorov {mean[1]:.4f} +- {error[1]:.4f} (the most {max(row[1] for row in of_way):.4f})  "
                    f"Spearman kept {mean[2]:.2f}  slopes {mean[3]:.3f}  zeros of the widest {mean[4]:+.4f}  CPU s {mean[5]:.1f}",
                    flush=True,
                )
            ratios = np.array(rows["measured"]) / np.array(rows["before"])
            print(
                f"  paired: coarse pairs {ratios[:, 0].mean():.3f}, CPU s {ratios[:, 5].mean():.2f} times", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 5.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="data sets, by commas: adult, ma2019, cmc, shipped")
    parser.add_argument("--table", nargs=2, type=Path, action="append", default=[], metavar=("FILE", "STUDY"))
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--public-runs", action="store_true")
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--plots", type=Path, help="with --measured: a folder")
    options = parser.parse_args()
    if options.measured:
        wanted = [name for name in options.only.split(",") if name] or ["adult", "ma2019"]
        print_measured(wanted, options.epsilon, options.seeds, options.plots)
        return
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
                if options.local:
                    of = local_estimates(data, orders, epsilon, seed)
                else:
                    of = estimates(data, orders, epsilon, seed, public_runs=options.public_runs)
                for way, found, seconds in of:
                    figures.setdefault(way, []).append((*judge.figures(found.model), seconds))
            for way, rows in figures.items():
                mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / math.sqrt(len(rows))
                print(
                    f"  epsilon {epsilon:<4g} {way:<24} pairs {mean[0]:.4f} +- {error[0]:.4f}  Spearman kept {mean[1]:.2f}  "
                    f"its error {mean[2]:.3f}  slopes {mean[3]:.3f}  single columns {mean[4]:.4f}  CPU s {mean[5]:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

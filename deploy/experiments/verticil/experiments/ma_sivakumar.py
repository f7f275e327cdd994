"""The experiments of Ma & Sivakumar, section 6, through the product's own randomization, counting and estimators.

Table 2: one data set of 20,000 records of the Fig. 2 network, kept fixed (its "S 0.50 (0.00)" says that theirs was), randomized
as Table 1 says, R times at the level of records; means and standard deviations of the inverse estimates. Figure 4: the same for
10,000 records of the Fig. 3 network, every variable binary symmetric with p; conditional Kullback-Leibler distances against p.
Figure 5: the distances against the number of records, 2,500 x 2^k, k = 1 .. 8, the first ones of 640,000; R draws of released
count tables, with the record-level path beside them.

Their data sets are not published: ours are drawn from the printed parameters, by seed. The same seed gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.evaluate.measures.fidelity import conditional
from verticil.experiments import accuracy, published
from verticil.experiments.published import FIGURE_2, FIGURE_3, Design, PrintedNetwork
from verticil.experiments.randomization import (
    Model,
    draw_records,
    drawn_tables,
    family_channels,
    released_columns,
    row_level_tables,
    true_table,
)
from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.privacy.figures import column_epsilon, column_gamma, total_epsilon

TABLE_2_RECORDS: Final = 20_000
FIGURE_4_RECORDS: Final = 10_000
FIGURE_4_LEVELS: Final = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
FIGURE_5_SIZES: Final = tuple(2_500 * 2**k for k in range(1, 9))
FIGURE_5_LEVELS: Final = (0.1, 0.2, 0.3, 0.4)
FIGURE_NODES: Final = ("C", "D", "F")

ROW_LEVEL_RUNS: Final = 10
"""Runs of figure 5's record-level path: as many as the paper's, the drawn tables having more."""
EM_RUNS: Final = 20
"""At most so many of figure 4's runs are also estimated by MAP-EM, which takes milliseconds a table."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Randomized:
    """One row of Table 1, with the measures of the matrix that is used.

    Attributes:
        variables, scheme, printed_gamma: see `published.Channel`.
        gamma, epsilon, k_measure: of the quantized matrix.
    """

    variables: tuple[str, ...]
    scheme: str
    printed_gamma: float
    gamma: float
    epsilon: float
    k_measure: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One parameter of Table 2. Deviations are standard deviations over randomizations of the same records.

    Attributes:
        node: the variable.
        state: its category, from 0.
        given: category of each parent, in the printed order.
        theta: the printed parameter, from which the records are drawn.
        paper_mean, paper_deviation: theirs over 5 runs; None for Model I, which they do not print.
        target: the parameter as learned from the records themselves; what the runs scatter around.
        mean, deviation: ours over the runs.
        expected_deviation: by Theorem 2 and the delta method.
        central_deviation: the same for Model II, where more is randomized.
        within: the mean is where it should be: |mean - target| < 4 expected_deviation / sqrt(runs) + 0.003.
        paper_within: so is theirs, up to their own draw of the records:
            |mean - theta| < 4 sqrt(expected_deviation^2 / 5 + theta (1 - theta) / N_j) + 0.005.
    """

    node: str
    state: int
    given: Mapping[str, int]
    theta: float
    paper_mean: float | None
    paper_deviation: float | None
    target: float
    mean: float
    deviation: float
    expected_deviation: float
    central_deviation: float
    within: bool
    paper_within: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table2:
    """Table 2.

    Attributes:
        model: which variables were randomized.
        records: in the data set.
        runs: randomizations.
        released: the randomized variables that leave their site.
        epsilon: of a record, the sum over `released`. For Model I it bounds only what a peer learns from these columns: the
            parameters of local variables are exact functions of the records.
        undefined: runs in which some parent configuration had no positive estimated count; they are left out of its cells.
        cells: in the order of the network's nodes, and of the printed lists.
    """

    model: Model
    records: int
    runs: int
    released: tuple[str, ...]
    epsilon: float
    undefined: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The conditional Kullback-Leibler distances of one node at one place of a figure, in nats.

    Attributes:
        node: the variable.
        p: each binary variable is flipped with this probability.
        records: in the data set.
        runs: randomizations.
        mean, deviation, median: of the inverse estimates' distances, clipped as `accuracy.CLIP` says.
        clipped: share of the runs in which something was clipped.
        theory: the expectation to second order, which knows no clipping.
        em_mean: of the MAP-EM estimates' distances, over the first `em_runs` runs; None where there are none.
        em_runs: see `em_mean`.
        row_level_mean, row_level_median: over `row_level_runs` record-level randomizations; None where `mean` is itself of such.
        row_level_runs: see `row_level_mean`.
    """

    node: str
    p: float
    records: int
    runs: int
    mean: float
    deviation: float
    median: float
    clipped: float
    theory: float
    em_mean: float | None = None
    em_runs: int = 0
    row_level_mean: float | None = None
    row_level_median: float | None = None
    row_level_runs: int = 0


def _silent(_: str) -> None: ...


def table_1() -> tuple[Randomized, ...]:
    """The randomization of Table 2, its privacy measured on the quantized matrices."""
    rows: list[Randomized] = []
    for channel in published.TABLE_1:
        ratio = column_gamma(channel.transition)
        rows.append(
            Randomized(
                variables=channel.variables,
                scheme=channel.scheme,
                printed_gamma=channel.printed_gamma,
                gamma=float("inf") if ratio is None else float(ratio),
                epsilon=column_epsilon(channel.transition),
                k_measure=privacy.k_measure(channel.transition),
            )
        )
    return tuple(rows)


def table_2(
    *,
    runs: int,
    seed: int,
    model: Model = Model.central,
    records: int = TABLE_2_RECORDS,
    progress: Progress = _silent,
) -> Table2:
    """Learn the parameters of the Fig. 2 network from `runs` randomizations of one data set.

    Args:
        runs: at least 2.
        seed: of the data set and the keys.
        model: which variables are randomized.
        records: size of the data set.
        progress: called with what is done, in words.
    """
    network, design = FIGURE_2, published.table_1_design()
    generator = np.random.default_rng([seed, 2])
    data = draw_records(network, records, generator)
    names = [node.name for node in network.nodes]
    progress(f"Table 2: {runs:,} randomizations of {records:,} records")
    released = row_level_tables(network, design, data, names, runs=runs, generator=generator, model=model)
    cells: list[Cell] = []
    undefined = np.zeros(runs, dtype=np.bool_)
    for name in names:
        true = true_table(network, data, name)
        channels = family_channels(network, design, name, model)
        theta = conditional(accuracy.estimated_rows(released[name][0], channels))
        undefined |= np.isnan(theta).any(axis=(1, 2))
        central = accuracy.expected_deviation(true, family_channels(network, design, name, Model.central))
        expected = accuracy.expected_deviation(true, channels)
        rows = true.reshape(-1, true.shape[-1])
        target, printed, of_parents = conditional(rows), network.theta(name), rows.sum(axis=1)
        mean, deviation = np.nanmean(theta, axis=0), np.nanstd(theta, axis=0, ddof=1)
        # As in the paper: all categories but the last, parent configuration fastest.
        for position, (state, j) in enumerate(np.ndindex(true.shape[-1] - 1, len(rows))):
            theirs = published.TABLE_2[name][position] if model is Model.central else None
            scatter = np.sqrt(
                expected[j, state] ** 2 / published.TABLE_2_RUNS
                + printed[j, state] * (1 - printed[j, state]) / of_parents[j]
            )
            given = np.unravel_index(j, true.shape[:-1]) if true.ndim > 1 else ()
            cells.append(
                Cell(
                    node=name,
                    state=state,
                    given={parent: int(code) for parent, code in zip(network.node(name).parents, given, strict=True)},
                    theta=float(printed[j, state]),
                    paper_mean=theirs[0] if theirs else None,
                    paper_deviation=theirs[1] / 100 if theirs else None,
                    target=float(target[j, state]),
                    mean=float(mean[j, state]),
                    deviation=float(deviation[j, state]),
                    expected_deviation=float(expected[j, state]),
                    central_deviation=float(central[j, state]),
                    within=bool(
                        abs(mean[j, state] - target[j, state]) < 4 * expected[j, state] / np.sqrt(runs) + 0.003
                    ),
                    paper_within=bool(abs(theirs[0] - printed[j, state]) < 4 * scatter + 0.005) if theirs else None,
                )
            )
    sent = released_columns(network, design, model)
    return Table2(
        model=model,
        records=records,
        runs=runs,
        released=sent,
        epsilon=total_epsilon(column_epsilon(design[name]) for name in sent),
        undefined=int(undefined.sum()),
        cells=tuple(cells),
    )


def figure_4(
    *,
    runs: int,
    seed: int,
    levels: tuple[float, ...] = FIGURE_4_LEVELS,
    records: int = FIGURE_4_RECORDS,
    progress: Progress = _silent,
) -> tuple[Point, ...]:
    """Distances against the randomization level, every run at the level of records.

    Args:
        runs: at least 2.
        seed: of the data set and the keys.
        levels: values of p.
        records: size of the data set.
        progress: called with what is done, in words.
    """
    network = FIGURE_3
    generator = np.random.default_rng([seed, 4])
    data = draw_records(network, records, generator)
    true = {name: true_table(network, data, name) for name in FIGURE_NODES}
    points: list[Point] = []
    for p in levels:
        progress(f"Figure 4: {runs:,} randomizations of {records:,} records with p = {p:g}")
        design = _uniform(network, p)
        released = row_level_tables(network, design, data, FIGURE_NODES, runs=runs, generator=generator)
        for name in FIGURE_NODES:
            channels = family_channels(network, design, name, Model.central)
            tables = released[name][0]
            points.append(
                _point(
                    accuracy.distances(true[name], tables, channels),
                    node=name,
                    p=p,
                    records=records,
                    theory=accuracy.expected_distance(true[name], channels),
                    em=accuracy.map_em_distances(true[name], tables[:EM_RUNS], channels),
                )
            )
    return tuple(points)


def figure_5(
    *,
    runs: int,
    seed: int,
    levels: tuple[float, ...] = FIGURE_5_LEVELS,
    sizes: tuple[int, ...] = FIGURE_5_SIZES,
    row_level_runs: int = ROW_LEVEL_RUNS,
    progress: Progress = _silent,
) -> tuple[Point, ...]:
    """Distances against the number of records.

    Args:
        runs: draws of released count tables for each point, at least 2.
        seed: of the data set, the draws and the keys.
        levels: values of p.
        sizes: ascending numbers of records; a smaller data set is the first records of the largest.
        row_level_runs: randomizations of all records beside; the sizes share them, as they share the records.
        progress: called with what is done, in words.
    """
    network = FIGURE_3
    generator = np.random.default_rng([seed, 5])
    progress(f"Figure 5: drawing {sizes[-1]:,} records")
    data = draw_records(network, sizes[-1], generator)
    points: list[Point] = []
    for p in levels:
        progress(
            f"Figure 5: p = {p:g}, {runs:,} draws of released tables for each of {len(sizes)} sizes, "
            f"{row_level_runs} randomizations of {sizes[-1]:,} records"
        )
        design = _uniform(network, p)
        released = row_level_tables(
            network, design, data, FIGURE_NODES, runs=row_level_runs, generator=generator, sizes=sizes
        )
        for name in FIGURE_NODES:
            channels = family_channels(network, design, name, Model.central)
            for number, n in enumerate(sizes):
                true = true_table(network, data, name, n=n)
                tables = drawn_tables(true, channels, runs=runs, generator=generator)
                points.append(
                    _point(
                        accuracy.distances(true, tables, channels),
                        node=name,
                        p=p,
                        records=n,
                        theory=accuracy.expected_distance(true, channels),
                        row_level=accuracy.distances(true, released[name][number], channels).each,
                    )
                )
    return tuple(points)


def slopes(points: tuple[Point, ...]) -> dict[str, dict[float, float]]:
    """Slope of ln(mean distance) against ln(records) over the upper half of the sizes, by node and p; -1 is expected."""
    found: dict[str, dict[float, float]] = {}
    for node, p in dict.fromkeys((point.node, point.p) for point in points):
        curve = [point for point in points if (point.node, point.p) == (node, p)]
        upper = curve[len(curve) // 2 :]
        found.setdefault(node, {})[p] = accuracy.log_slope(
            [point.records for point in upper], [point.mean for point in upper]
        )
    return found


def _uniform(network: PrintedNetwork, p: float) -> Design:
    return {node.name: quantize(symmetric(node.n_states, flip=p)) for node in network.nodes}


def _point(
    found: accuracy.Distances,
    *,
    node: str,
    p: float,
    records: int,
    theory: float,
    em: Floats | None = None,
    row_level: Floats | None = None,
) -> Point:
    return Point(
        node=node,
        p=p,
        records=records,
        runs=len(found.each),
        mean=float(found.each.mean()),
        deviation=float(found.each.std(ddof=1)),
        median=float(np.median(found.each)),
        clipped=found.clipped,
        theory=theory,
        em_mean=None if em is None else float(em.mean()),
        em_runs=0 if em is None else len(em),
        row_level_mean=None if row_level is None else float(row_level.mean()),
        row_level_median=None if row_level is None else float(np.median(row_level)),
        row_level_runs=0 if row_level is None else len(row_level),
    )

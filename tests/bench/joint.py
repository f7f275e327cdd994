"""How near records from a joint model come to the tables of the people: ``python tests/bench/joint.py``.

``--only TEXT ..`` runs the rows with all of these texts in their title, ``--seeds 5`` each. ``--results FILE`` appends every row
to a file of JSON lines. A row that the file has from as many seeds is not measured again, so a run that was stopped goes on.
``--table FILE`` prints the dense rows of such a file as a table.

The distance is the mean total variation distance of all two-way tables, and of all three-way ones (of 300 above 13 columns), to
those of the real records; `joint_data` says which and how they are cut. Every line is of some seeds of whatever is drawn at
random; each seed's figure is printed. A bound is met when the mean + 1 standard error is at most the bound, CPU seconds (of this
process, what was compiled before excluded) when the mean is. Ends with 1 where a bound is missed. Set OPENBLAS_NUM_THREADS=1: on
a busy machine threads wait for each other, and waiting counts.

Lines: ``joint`` the joint model's own tables; ``sampled`` as many records as there are people, drawn from it and swapped;
``network`` records of the network alone; ``independent`` columns drawn on their own, with the shares that the same noisy tables
or randomized columns give; ``tables`` the measured tables of pairs themselves, channels taken back and negative counts as 0;
``privbayes``. `joint_dense` has the rows of dense tables, with three learners. `joint_peers` has other programs, run in
environments of their own.

Where a network is the truth, the bound is a part of the distance of the network alone.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import joint_data
import numpy as np
from joint_data import Columns, Data, Truth
from numpy.typing import NDArray

from verticil.evaluate.measures.utility import Labelled, utility
from verticil.experiments.hittmeir.synthesizer import warm_up
from verticil.miner.learning.learn import learn
from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, delta_at
from verticil.shared.mechanisms.transition import Transition, identity, quantize, symmetric
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import JointEstimate, estimate
from verticil.shared.numerics.joint.noise import noised as with_noise
from verticil.shared.numerics.joint.noisy_tables import NoisyTables, Relation
from verticil.shared.numerics.joint.prediction import Prediction, predict
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.privbayes.fitting import fit
from verticil.shared.privacy.privbayes import noise_for
from verticil.shared.study.document import GeneticRule, LinkageRule, ParameterRule, ReleaseRule, StructureRule, Study
from verticil.shared.study.unit import Unit
from verticil.shared.synthesis.joint_records import joint_codes
from verticil.shared.synthesis.synthesis import sample_codes

DELTA = 1e-9
PREDICTED = (0.7, 1.3)
Pair = tuple[float, float]


@dataclass(kw_only=True)
class Line:
    """One line of the table.

    Attributes:
        row: data and privacy.
        method: see the module.
        bound: of the two- and three-way distance; None: nothing has to be reached; infinity: of this one nothing. In parts of
            `of`, where that is there.
        seconds_bound: of CPU seconds.
        predicted: what `study check` says before; two-way within `PREDICTED` of the measured mean, three-way for the record.
        of: the line whose figures of the same seed these are divided by.
        two, three: of each seed; not a number where the method has no triples.
        seconds: CPU seconds of each seed.
        notes: what the estimator says of each seed.
    """

    row: str
    method: str
    bound: Pair | None = None
    seconds_bound: float | None = None
    predicted: Prediction | None = None
    of: Line | None = None
    two: list[float] = field(default_factory=list)
    three: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, distances: Pair, seconds: float, note: str = "") -> None:
        """The figures of one seed."""
        self.two.append(distances[0])
        self.three.append(distances[1])
        self.seconds.append(seconds)
        self.notes.append(note)

    def values(self, ways: int) -> list[float]:
        """What is held against the bound, of each seed."""
        own = self.two if ways == 2 else self.three
        if self.of is None:
            return own
        other = self.of.two if ways == 2 else self.of.three
        return [mine / theirs for mine, theirs in zip(own, other, strict=True)]

    def verdicts(self) -> list[bool]:
        """Whether each bound is met."""
        found = []
        if self.bound is not None:
            bounds = zip((2, 3), self.bound, strict=True)
            found += [upper(self.values(ways)) <= bound for ways, bound in bounds if math.isfinite(bound)]
        if self.seconds_bound is not None:
            found.append(statistics.fmean(self.seconds) <= self.seconds_bound)
        if self.predicted is not None:
            low, high = PREDICTED
            found.append(low <= self.predicted.two_way / statistics.fmean(self.two) <= high)
        return found

    def text(self) -> str:
        """The line, and a second one with each seed's figures."""
        parts = []
        for ways in (2, 3):
            values = self.values(ways)
            if math.isnan(values[0]):
                continue
            part = f"{ways}-way {statistics.fmean(values):.4f} +- {error(values):.4f}"
            if self.bound is not None and math.isfinite(bound := self.bound[ways - 2]):
                part += f" (<= {bound:g}: {'met' if upper(values) <= bound else 'MISSED'})"
            parts.append(part)
        took = f"CPU s {statistics.fmean(self.seconds):.2f}"
        if self.seconds_bound is not None:
            took += f" (<= {self.seconds_bound:g}: {'met' if statistics.fmean(self.seconds) <= self.seconds_bound else 'MISSED'})"
        pairs = zip(self.two, self.three, strict=True)
        seeds = "  ".join(f"{two:.4f}" + ("" if math.isnan(three) else f"/{three:.4f}") for two, three in pairs)
        notes = "; ".join(dict.fromkeys(note for note in self.notes if note))
        parts_of = "" if self.of is None else f", in parts of {self.of.method}"
        if (known := self.predicted) is not None:
            two, three = (
                known.two_way / statistics.fmean(self.two),
                (known.three_way or 0.0) / statistics.fmean(self.three),
            )
            seeds += (
                f"\n    predicted 2-way {known.two_way:.4f}, {two:.2f} x measured ({PREDICTED[0]:g} to {PREDICTED[1]:g}: "
                f"{'met' if self.verdicts()[-1] else 'MISSED'}); 3-way {known.three_way or 0.0:.4f}, {three:.2f} x"
            )
        return f"{self.row:44} {self.method + parts_of:12} {'; '.join(parts)}; {took}\n    seeds {seeds}" + (
            f"\n    {notes}" if notes else ""
        )


def error(values: Sequence[float]) -> float:
    """Standard error of the mean; 0 of one value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def mean_error(values: Sequence[float]) -> str:
    """The mean, and of several values its standard error in units of the fourth decimal.

    >>> mean_error([0.02, 0.0204])
    '.0202 ± 2'
    """
    text = f"{statistics.fmean(values):.4f}".removeprefix("0")
    return f"{text} ± {1e4 * error(values):.0f}" if len(values) > 1 else text


def upper(values: Sequence[float]) -> float:
    """Mean + 1 standard error."""
    return statistics.fmean(values) + error(values)


@cache
def sigma_for(epsilon: float, n_tables: int, relation: Relation) -> float:
    """The noise on each cell of so many tables, of which a person changes one cell each, or two where one is replaced."""
    if relation == "replace":
        return discrete_gaussian.discrete_sigma(epsilon, DELTA, n_tables)
    low, high = 0.5, discrete_gaussian.discrete_sigma(epsilon, DELTA, n_tables)
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        enough = delta_at(Counter({DiscreteGaussianLoss(sigma=middle): n_tables}), epsilon) <= DELTA
        low, high = (low, middle) if enough else (middle, high)
    return high


def noised(tables: NoisyTables, sigma: float, relation: Relation, seed: int) -> NoisyTables:
    """The tables with discrete Gaussian noise on each cell; how many people there are is public where one is replaced."""
    public = tables.n_records if relation == "replace" else None
    exact = dataclasses.replace(tables, n_records=public, relation=relation)
    return with_noise(exact, sigma, np.random.default_rng([seed, 14]).bytes(32))


def units_of(channels: Sequence[Transition]) -> list[ColumnUnit]:
    """A unit for each column."""
    return [ColumnUnit(variables=(place,), domain=None, channel=channel) for place, channel in enumerate(channels)]


def channels_of(n_states: Sequence[int], epsilon: float | None) -> list[Transition]:
    """Every column with the same epsilon; None: as it is."""
    return [quantize(identity(k) if epsilon is None else symmetric(k, epsilon=epsilon)) for k in n_states]


def released(columns: Columns, channels: Sequence[Transition], seed: int) -> Columns:
    """The columns after randomization, drawn by shares."""
    generator = np.random.default_rng([seed, 0xE])
    found = []
    for column, channel in zip(columns, channels, strict=True):
        if not channel.is_identity:
            ends = channel.probabilities.cumsum(axis=1)[:, :-1]
            column = (generator.random(len(column))[:, None] >= ends[column]).sum(axis=1).astype(np.uint16)
        found.append(column)
    return found


def estimated(tables: NoisyTables, seed: int) -> JointEstimate:
    """The joint model."""
    return estimate(tables, seed=seed)


def drawn(model: JointModel, n: int, seed: int) -> list[NDArray[np.unsignedinteger]]:
    """Records by swapping."""
    return list(joint_codes(model, n, generator=np.random.default_rng([seed, 0x5])))


def model_tables(model: JointModel, truth: Truth) -> dict[tuple[int, ...], NDArray[np.float64]]:
    """The model's own tables."""
    return {key: model.shares(key).ravel() for key in truth.tables}


def truncated(tables: NoisyTables, truth: Truth) -> Pair:
    """The distance of the measured tables of pairs, channels taken back and negative shares as 0; they have no triples."""
    channels = [unit.channel for unit in tables.units]
    back = [None if channel.is_identity else channel.inverse for channel in channels]
    distances = []
    for table in tables.tables:
        shares = apply_axes(table.counts / tables.people, [back[unit] for unit in table.units])
        distances.append(0.5 * float(np.abs(np.maximum(shares, 0.0).ravel() - truth.tables[table.units]).sum()))
    return statistics.fmean(distances), math.nan


def independent(found: JointEstimate, truth: Truth, n: int, seed: int) -> Pair:
    """As many records with independent columns, of the margins that the same tables or randomized columns give."""
    generator = np.random.default_rng([seed, 0x1])
    columns = []
    for margin in found.start:
        ends = np.floor(np.cumsum(margin / margin.sum()) * n + generator.random()).astype(int)
        codes = np.repeat(np.arange(len(margin)), np.diff(np.minimum(ends, n), prepend=0))
        columns.append(
            generator.permutation(np.append(codes, np.full(n - len(codes), len(margin) - 1))).astype(np.uint16)
        )
    return truth.to_records(columns)


def note_of(found: JointEstimate) -> str:
    """What the estimator says."""
    nearer = "" if found.tables_nearer is None else f", its tables {found.tables_nearer:.2f} times nearer"
    missed = "" if found.reached else ", stop not reached"
    size = f"{found.size.fits} x {found.size.components}, {found.steps} steps"
    return f"{found.kind}, {size}, alpha {found.alpha:.2f}{missed}{nearer}"


def study_of(data: Data, channels: Sequence[Transition], *, like: Study | None = None, max_parents: int = 2) -> Study:
    """A study of these columns: of one party by the method auto, or as another."""
    schema = data.schema if like is None else like.schema
    units = tuple(
        Unit(variables=(v.name,), owner=v.owner, scheme="matrix", transition=channel)
        for v, channel in zip(schema.variables, channels, strict=True)
    )
    alone = ReleaseRule(sample_from="network")
    if like is not None:
        return dataclasses.replace(like, units=units, release=alone)
    import datetime as dt

    return Study(
        id="bench", title="", purpose="", model="central", expires=dt.date(2099, 1, 1), parties=("all",), schema=schema,
        linkage=LinkageRule(mode="keyed-hash", normalise=(), minimum_common_records=1), units=units,
        structure=StructureRule(
            method="auto", score="auto", max_parents=max_parents, genetic=GeneticRule(), seed=1,
        ),
        parameters=ParameterRule(), release=alone,
    )  # fmt: skip


def learned(study: Study, columns: Sequence[NDArray[np.unsignedinteger]]) -> Network:
    """The network alone."""
    fitting = [column.astype(v.code_dtype) for column, v in zip(columns, study.schema.variables, strict=True)]
    return learn(fitting, study).network


def from_network(network: Network, n: int, seed: int) -> Columns:
    """Its records."""
    return list(sample_codes(network, n, generator=np.random.default_rng([seed, 0x5])))


class Clock:
    """CPU seconds since the last look."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def __call__(self) -> float:
        now = time.process_time()
        taken, self._last = now - self._last, now
        return taken


Bars = dict[str, tuple[Pair | None, float | None]]
"""Of a method: the bound of the two distances, and of CPU seconds."""


def lines_of(title: str, methods: Sequence[str], bars: Bars) -> dict[str, Line]:
    """A line for each method."""
    found = {}
    for method in methods:
        bound, seconds = bars.get(method, (None, None))
        found[method] = Line(row=title, method=method, bound=bound, seconds_bound=seconds)
    return found


def curator(
    title: str,
    data: Data,
    epsilon: float,
    bars: Bars,
    seeds: Sequence[int],
    *,
    relation: Relation = "add-remove",
    local: float | None = None,
    of_independent: float | None = None,
    of_tables: float | None = None,
    opened: Callable[[NoisyTables, float, int], NoisyTables] | None = None,
) -> Iterator[Line]:
    """Noise on all pair tables of one owner's columns, or of columns that were randomized before.

    Args:
        title: of the row.
        data: the people.
        epsilon: of all tables together.
        bars: the bounds.
        seeds: of randomization, noise and fit.
        relation: of the noise.
        local: epsilon of each column before; None: columns are as they are.
        of_independent: the bound of the sampled records in parts of independent columns.
        of_tables: of their pairs in parts of the noisy tables themselves.
        opened: gives the exact tables the noise of a sigma, with a seed; None: one draw on each cell.
    """
    truth, n_states = Truth(data.schema.n_states, data.columns), data.schema.n_states
    channels = channels_of(n_states, local)
    sigma = sigma_for(epsilon, math.comb(len(n_states), 2), relation)
    methods = ("joint", "sampled", "independent", "tables", *(["network"] if "network" in bars else []))
    lines = lines_of(title, methods, bars)
    for seed in seeds:
        columns, clock = released(data.columns, channels, seed), Clock()
        exact = from_columns(columns, units_of(channels), n_states)
        tables = noised(exact, sigma, relation, seed) if opened is None else opened(exact, sigma, seed)
        found = estimated(tables, seed)
        taken = clock()
        mean = math.sqrt(statistics.fmean(table.sigma**2 for table in tables.tables))
        lines["sampled"].predicted = predict(channels, data.n, sigma=mean)
        lines["tables"].add(truncated(tables, truth), 0.0)
        lines["joint"].add(truth.distance(model_tables(found.model, truth)), taken, note_of(found))
        clock()
        records = drawn(found.model, data.n, seed)
        lines["sampled"].add(truth.to_records(records), taken + clock())
        lines["independent"].add(independent(found, truth, data.n, seed), 0.0)
        if "network" in lines:
            clock()
            network = learned(study_of(data, channels_of(n_states, None), max_parents=3), records)
            own = from_network(network, data.n, seed)
            lines["network"].add(truth.to_records(own), taken + clock())
    yield from lines.values()
    yield from beside(lines["sampled"], lines["independent"], of_independent)
    yield from beside(lines["sampled"], lines["tables"], of_tables, math.inf)


def local(
    title: str,
    data: Data,
    epsilon: float | None,
    bars: Bars,
    seeds: Sequence[int],
    *,
    like: Study | None = None,
    of_independent: float | None = None,
    of_network: float | None = None,
) -> Iterator[Line]:
    """Columns that are randomized on their own: the joint model beside the network alone."""
    truth, n_states = Truth(data.schema.n_states, data.columns), data.schema.n_states
    channels = channels_of(n_states, epsilon)
    study = study_of(data, channels, like=like)
    lines = lines_of(title, ("joint", "sampled", "network", "independent", "tables"), bars)
    lines["sampled"].predicted = predict(channels, data.n)
    for seed in seeds:
        columns, clock = released(data.columns, channels, seed), Clock()
        network = learned(study, columns)
        lines["network"].add(truth.to_records(from_network(network, data.n, seed)), clock())
        clock()
        found = estimate_with(columns, channels, n_states, network, seed)
        taken = clock()
        lines["tables"].add(truncated(from_columns(columns, units_of(channels), n_states), truth), 0.0)
        lines["joint"].add(truth.distance(model_tables(found.model, truth)), taken, note_of(found))
        clock()
        lines["sampled"].add(truth.to_records(drawn(found.model, data.n, seed)), taken + clock())
        lines["independent"].add(independent(found, truth, data.n, seed), 0.0)
    yield from lines.values()
    yield from beside(lines["sampled"], lines["independent"], of_independent)
    yield from beside(lines["sampled"], lines["network"], of_network)


def estimate_with(
    columns: Columns, channels: Sequence[Transition], n_states: Sequence[int], network: Network, seed: int
) -> JointEstimate:
    """The joint model of randomized columns, for which the network alone gives records."""

    def records(n: int, generator: np.random.Generator) -> Columns:
        return list(sample_codes(network, n, generator=generator))

    return estimate(from_columns(columns, units_of(channels), n_states), seed=seed, records=records)


def privbayes(title: str, data: Data, epsilon: float, bars: Bars, seeds: Sequence[int]) -> Iterator[Line]:
    """PrivBayes with its defaults, add/remove."""
    truth, n_states = Truth(data.schema.n_states, data.columns), data.schema.n_states
    noise = noise_for(epsilon, DELTA, "add-remove", len(n_states))
    line = Line(row=title, method="privbayes", bound=bars["privbayes"][0], seconds_bound=bars["privbayes"][1])
    for seed in seeds:
        clock = Clock()
        found = fit(data.columns, n_states, key=np.random.default_rng([seed, 15]).bytes(32), noise=noise)
        records = from_network(found.network(data.schema), data.n, seed)
        line.add(truth.to_records(records), clock(), f"tau {found.tau:.0f}")
    yield line


def classifiers(data: Data, target: str, bound: float, seeds: Sequence[int]) -> Iterator[Points]:
    """Five classifiers trained on the records, or on those of a joint model, tested on the people that are kept apart."""
    n_states = data.schema.n_states
    place = data.schema.index(target)
    sigma = sigma_for(1.0, math.comb(len(n_states), 2), "replace")

    def labelled(columns: Sequence[NDArray[np.unsignedinteger]]) -> Labelled:
        rest = [column for position, column in enumerate(columns) if position != place]
        return Labelled(features=np.column_stack(rest).astype(np.float64), target=columns[place].astype(np.int64))

    tested = [labelled(data.test)]
    points = Points(row="Adult, five classifiers, replacement 1", bound=bound)
    (original,) = utility(labelled(data.columns), tested, seed=1)
    points.original = {name: 100 * share for name, share in original.accuracy.items()}
    for seed in seeds:
        tables = from_columns(data.columns, units_of(channels_of(n_states, None)), n_states)
        found = estimated(noised(tables, sigma, "replace", seed), seed)
        (made,) = utility(labelled(drawn(found.model, data.n, seed)), tested, seed=seed)
        points.made.append({name: 100 * share for name, share in made.accuracy.items()})
    yield points


@dataclass(kw_only=True)
class Points:
    """Accuracies, per cent: of classifiers trained on the records, and on synthetic ones of each seed.

    Attributes:
        row: data and privacy.
        bound: of the mean number of points below the original; None: nothing has to be reached.
        original, made: see above.
    """

    row: str
    bound: float | None
    original: dict[str, float] = field(default_factory=dict)
    made: list[dict[str, float]] = field(default_factory=list)

    def below(self) -> list[float]:
        """By how many points the mean of the classifiers is below, of each seed."""
        before = statistics.fmean(self.original.values())
        return [before - statistics.fmean(one.values()) for one in self.made]

    def verdicts(self) -> list[bool]:
        """Whether the bound is met."""
        return [] if self.bound is None else [upper(self.below()) <= self.bound]

    def text(self) -> str:
        """Both, and the difference."""
        seeds = "\n".join("    seed: " + "  ".join(f"{name} {v:.1f}" for name, v in one.items()) for one in self.made)
        verdict = "" if self.bound is None else f"(<= {self.bound:g}: {'met' if self.verdicts()[0] else 'MISSED'})"
        return (
            f"{self.row:44} points below the original {statistics.fmean(self.below()):.2f} +- {error(self.below()):.2f} "
            f"{verdict}\n    original: "
            + "  ".join(f"{name} {v:.1f}" for name, v in self.original.items())
            + f"\n{seeds}"
        )


def large(
    title: str, d: int, k: int, epsilon: float, seconds: float, gib: float, foretold: bool, seeds: Sequence[int]
) -> Iterator[Line]:
    """So many columns of so many categories, 100,000 records: CPU seconds, and memory. Run it alone: memory is the process's.

    Where the prediction is not `foretold` it is printed and has no bound: a mixture is too small for so much (`joint.md`).
    """
    generator, n = np.random.default_rng(100), 100_000
    columns: Columns = [generator.integers(0, k, n).astype(np.uint16)]
    for _ in range(1, d):
        before = columns[generator.integers(max(len(columns) - 5, 0), len(columns))]
        kept = generator.random(n) < 0.6
        columns.append(np.where(kept, before, generator.integers(0, k, n)).astype(np.uint16))
    names = tuple(f"v{place}" for place in range(d))
    data = Data(name="large", schema=joint_data.schema_of(names, (k,) * d), columns=columns)
    for line in curator(title, data, epsilon, {"sampled": (None, seconds)}, seeds[:1]):
        if line.predicted is not None and not foretold:
            line.notes.append(f"predicted 2-way {line.predicted.two_way / line.two[0]:.2f} x measured")
            line.predicted = None
        yield line
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"    most memory of this process so far: {memory:.2f} GiB (bound {gib:g})")


Run = Callable[[Sequence[int]], "Iterator[Line] | Iterator[Points]"]


def rows() -> Iterator[tuple[str, Run]]:
    """Every row of the table: its title, and what makes its lines of some seeds."""
    adult, ma2019, cmc = cache(joint_data.adult), cache(joint_data.ma2019), cache(joint_data.cmc)
    shipped, parties = cache(joint_data.shipped), cache(partial(joint_data.four_parties, "ma2019_drafted.toml"))
    wide = cache(partial(joint_data.four_parties, "ma2019.toml"))

    def noisy(data: Callable[[], Data], title: str, epsilon: float, bars: Bars, **named: object) -> tuple[str, Run]:
        return title, lambda seeds: curator(title, data(), epsilon, bars, seeds, **named)

    bars: Bars = {
        "joint": ((0.022, 0.053), 5.0),
        "sampled": ((0.0225, 0.0555), 5.0),
        "network": ((0.0265, 0.062), 5.0),
    }
    yield noisy(adult, "Adult, add/remove 1", 1.0, bars)
    yield noisy(adult, "Adult, replacement 1", 1.0, {"sampled": ((0.0278, 0.065), 5.0)}, relation="replace")
    for epsilon, bound in ((0.5, (0.0335, 0.0745)), (2.0, (0.0152, 0.0435)), (4.0, (0.0115, 0.0370))):
        yield noisy(adult, f"Adult, add/remove {epsilon:g}", epsilon, {"sampled": (bound, 6.0)})
    yield noisy(ma2019, "ma2019, add/remove 1", 1.0, {"sampled": ((0.0665, 0.141), 6.0)})
    for epsilon in (1.0, 0.5, 2.0, 4.0):
        bars = {"sampled": ((0.084, 0.160) if epsilon == 1 else None, 2.0)}
        yield noisy(cmc, f"cmc, add/remove {epsilon:g}", epsilon, bars, of_independent=1.03)
    bounds = {None: (0.003, 0.017), 3.0: (0.0175, 0.039), 2.0: (0.034, 0.069), 1.0: (0.079, 0.142)}
    for level, bound in bounds.items():
        yield randomized(f"shipped, {said(level)}", shipped, level, {"sampled": (bound, 6.0)})
    for level, two in ((None, 0.007), (3.0, 0.031), (2.0, 0.059), (1.0, None)):
        bars = {"sampled": (None if two is None else (two, math.inf), 8.0)}
        of_independent = 1.0 if two is None else None
        yield randomized(f"ma2019 of four, {said(level)}", parties, level, bars, of_independent=of_independent)
        yield randomized(f"the same, up to 21 categories, {said(level)}", wide, level, {})
    for name in ("alarm", "insurance", "child"):
        for level in (None, 3.0, 2.0, 1.0):
            data = partial(unstudied, name)
            yield randomized(f"{name}, {said(level)}", data, level, {"sampled": (None, 8.0)}, of_network=0.92)
    bars = {"sampled": ((0.025, 0.059), 6.0)}
    yield noisy(adult, "Adult, local 6, tables add/remove 1", 1.0, bars, local=6.0)
    bars = {"privbayes": ((0.042, 0.087), 1.0)}
    title = "Adult, PrivBayes, add/remove 1"
    yield title, lambda seeds: privbayes(title, adult(), 1.0, bars, seeds)
    yield "Adult, five classifiers, replacement 1", lambda seeds: classifiers(adult(), "income", 1.0, seeds[:3])
    for d, k, epsilon, seconds, gib, foretold in (
        (100, 10, 1.0, 60.0, 1.0, True),
        (100, 10, 4.0, 60.0, 1.0, False),
        (200, 20, 1.0, 600.0, 2.0, True),
    ):
        title = f"{d} columns of {k}, add/remove {epsilon:g}"
        yield title, partial(large, title, d, k, epsilon, seconds, gib, foretold)
    import joint_dense

    yield from joint_dense.rows()


def randomized(
    title: str, made: Callable[[], tuple[Data, Study | None]], level: float | None, bars: Bars, **named: object
) -> tuple[str, Run]:
    """A row of columns that are randomized on their own."""

    def run(seeds: Sequence[int]) -> Iterator[Line]:
        data, study = made()
        yield from local(title, data, level, bars, seeds, like=study, **named)

    return title, run


def unstudied(name: str) -> tuple[Data, None]:
    """20,000 records of a network of tests/data/networks."""
    return joint_data.sampled(name, 20_000, seed=1), None


def said(level: float | None) -> str:
    """The randomization in words."""
    return "local none" if level is None else f"local {level:g}"


def beside(sampled: Line, other: Line, bound: float | None, of_triples: float | None = None) -> Iterator[Line]:
    """The sampled line again, in parts of another one; where a bound is given, which that of triples is, too."""
    if bound is not None:
        both = (bound, bound if of_triples is None else of_triples)
        yield dataclasses.replace(sampled, bound=both, seconds_bound=None, predicted=None, of=other, notes=[])


def figures(line: Line | Points) -> dict[str, object]:
    """A line as JSON: what it says, and which bounds it meets."""
    found = {key: value for key, value in vars(line).items() if key != "of"} | {"met": line.verdicts()}
    if isinstance(line, Line):
        found["of"] = None if line.of is None else line.of.method
        found["predicted"] = None if line.predicted is None else dataclasses.asdict(line.predicted)
        found["three"] = [None if math.isnan(value) else value for value in line.three]
    return found


def json_lines(path: Path | None) -> Iterator[dict[str, Any]]:
    """What a file of JSON lines has; a line that a stop cut off is left out."""
    for text in [] if path is None or not path.exists() else path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(text)


def append_line(path: Path, entry: Mapping[str, Any]) -> None:
    """Append a line, behind the end of one that a stop cut off."""
    is_cut = path.exists() and path.read_bytes()[-1:] not in {b"", b"\n"}
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * is_cut + json.dumps(entry) + "\n")


def stored(path: Path | None) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of a file of results, by title and number of seeds."""
    return {(row["title"], row["seeds"]): row for row in json_lines(path)}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=[], nargs="*", metavar="TEXT", help="rows whose title has all of these in it")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="append each row to this file, and skip what it has"
    )
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="print the dense rows of such a file as a table, no more"
    )
    options = parser.parse_args()
    if options.table is not None:
        import joint_dense

        print(joint_dense.markdown(stored(options.table).values()))
        return 0
    warm_up()
    for level in (None, 1.0):  # compiled once, outside what is timed
        list(local("", joint_data.sampled("asia", 20_000, seed=1), level, {}, [1]))
    list(curator("", joint_data.sampled("asia", 20_000, seed=1), 1.0, {"network": (None, None)}, [1]))
    missed, already = 0, stored(options.results)
    for title, run in rows():
        if not all(text.casefold() in title.casefold() for text in options.only):
            continue
        if (row := already.get((title, options.seeds))) is not None:
            print(f"{title}: measured before")
            missed += sum(not met for line in row["lines"] for met in line["met"])
            continue
        lines = []
        for line in run(range(1, options.seeds + 1)):
            print(line.text(), flush=True)
            missed += sum(not met for met in line.verdicts())
            lines.append(figures(line))
        if options.results is not None:
            append_line(options.results, {"title": title, "seeds": options.seeds, "lines": lines})
    print(f"{missed} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    import joint  # the same module for all that import it

    sys.exit(joint.main())

"""The experiment: every line at every epsilon, several seeds of noise each; and the distances on Adult."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from verticil.evaluate.measures.fidelity import distances
from verticil.experiments.privbayes.datasets import Table, adult, first, survey
from verticil.experiments.privbayes.lines import PROJECTIONS, Line, privbayes_records
from verticil.experiments.privbayes.nist import Scores, scores
from verticil.shared.numerics.privbayes.calibration import Relation
from verticil.shared.numerics.privbayes.distributions import Projection

Step = Callable[[str], None]
"""Called with what is being done, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is run.

    Attributes:
        rows: at most so many records; None: all.
        epsilons: totals, ascending.
        seeds: of noise and sampling, for each line and epsilon.
        adult_seeds: the same of the distances on Adult; 0: they are left out.
    """

    rows: int | None
    epsilons: tuple[float, ...]
    seeds: int
    adult_seeds: int


FULL: Final = Scale(rows=None, epsilons=(0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0), seeds=5, adult_seeds=5)
QUICK: Final = Scale(rows=600, epsilons=(1.0, 8.0), seeds=1, adult_seeds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line at an epsilon.

    Attributes:
        line: its name.
        epsilon: total; None: a yardstick, which has none.
        mean: of the seeds.
        deviation: between the seeds; None: there is one seed, which says nothing of it.
        seeds: how many.
        cpu_seconds: of making the records, the mean.
    """

    line: str
    epsilon: float | None
    mean: Scores
    deviation: Scores | None
    seeds: int
    cpu_seconds: float

    @property
    def error(self) -> Scores | None:
        """The standard error of the mean; None: there is one seed."""
        if self.deviation is None:
            return None
        values = dataclasses.asdict(self.deviation)
        return Scores(**{name: value / self.seeds**0.5 for name, value in values.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All rows, and the distances on Adult.

    Attributes:
        records: how many were real.
        columns: of them.
        rows: line by line.
        adult: simplex and clip.
    """

    records: int
    columns: int
    rows: tuple[Row, ...]
    adult: tuple[Distance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """Mean total variation distance of PrivBayes' records to the real ones, over all tables of two and of three columns.

    Attributes:
        projection: how negative counts are avoided.
        epsilon: total.
        relation: which tables are neighbours.
        two_way, three_way: of each seed.
        cpu_seconds: from codes to records, of each seed.
    """

    projection: str
    epsilon: float
    relation: str
    two_way: tuple[float, ...]
    three_way: tuple[float, ...]
    cpu_seconds: tuple[float, ...]


def run(scale: Scale, *, seed: int, tell: Step, lines: Sequence[Line], table: Table | None = None) -> Results:
    """Run the experiment.

    Args:
        scale: how much of it.
        seed: the first of the seeds; of the scores' columns and events in all.
        tell: is told what is being done.
        lines: which ways (`lines.lines`).
        table: the real records; None: the survey.
    """
    table = table or survey()
    table = table if scale.rows is None else first(table, scale.rows)
    rows = [
        _row(table, line, epsilon, range(seed, seed + scale.seeds), tell)
        for line in lines
        for epsilon in (scale.epsilons if line.private else (None,))
    ]
    found: list[Distance] = []
    for projection in PROJECTIONS if scale.adult_seeds else ():
        tell(f"Adult, PrivBayes, {projection}")
        seeds = range(seed, seed + scale.adult_seeds)
        found.append(adult_distance(1.0, relation="add-remove", projection=projection, seeds=seeds))
    return Results(records=table.n_records, columns=len(table.columns), rows=tuple(rows), adult=tuple(found))


def adult_distance(
    epsilon: float, *, relation: Relation, projection: Projection, seeds: Sequence[int], table: Table | None = None
) -> Distance:
    """PrivBayes on UCI Adult (32,561 x 13, numbers in 20 ranges), as many records as there are, against the real ones.

    Args:
        epsilon: total, with `lines.DELTA`.
        relation: which tables are neighbours.
        projection: how negative counts are avoided.
        seeds: of noise and sampling.
        table: another table in its place.
    """
    table = table or adult()
    found: list[tuple[float, float, float]] = []
    for seed in seeds:
        begun = time.process_time()
        made = privbayes_records(table, epsilon, seed, relation=relation, projection=projection)
        spent = time.process_time() - begun
        two, three = (distances(table.columns, made, table.schema.n_states, ways=ways).mean for ways in (2, 3))
        found.append((two, three, spent))
    two_way, three_way, seconds = zip(*found, strict=True)
    return Distance(
        projection=projection,
        epsilon=epsilon,
        relation=relation,
        two_way=two_way,
        three_way=three_way,
        cpu_seconds=seconds,
    )


def _row(table: Table, line: Line, epsilon: float | None, seeds: Sequence[int], tell: Step) -> Row:
    tell(line.words if epsilon is None else f"{line.words}, ε = {epsilon:g}")
    each: list[Scores] = []
    seconds = 0.0
    for seed in seeds:
        begun = time.process_time()
        made = line.draw(table, epsilon or 0.0, seed)
        seconds += time.process_time() - begun
        each.append(scores(table, made, seed=seeds[0]))
    names = [field.name for field in dataclasses.fields(Scores)]
    values = {name: [float(getattr(score, name)) for score in each] for name in names}
    return Row(
        line=line.name,
        epsilon=epsilon,
        mean=Scores(**{name: statistics.mean(found) for name, found in values.items()}),
        deviation=None
        if len(each) == 1
        else Scores(**{name: statistics.stdev(found) for name, found in values.items()}),
        seeds=len(each),
        cpu_seconds=seconds / len(seeds),
    )

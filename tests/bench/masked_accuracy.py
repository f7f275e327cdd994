"""How near records from masked tables come to the tables of the people: ``python tests/bench/masked_accuracy.py [--seeds 5]``.

Adult, 13 columns over three parties (5, 4 and 4), total epsilon for the replacement of a person at delta 1e-9, every column
randomized before with epsilon 6 (the floor), all pair tables. ``masked``: third-party dealers, the three parties counted, one
tolerated, so a table across parties has three draws of sigma_c, one within a party one of sigma (model-three.md, section 4.5).
``curator``: the same floor, one draw of sigma on every table, as somebody would whom all trust. ``columns``: Model II, the
columns randomized with the same total of epsilon 12 and of 39, and nothing else. ``demonstration``: the shipped study of masked
tables, whose ranges are others. What `study check` predicts stands beside what is measured, in all rows of masked tables.
Distances, records and bounds as in `joint`, whose code this is: a bound holds for the mean and one standard error of the seeds, a
prediction is met within 30 %. Ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import statistics
import sys
from collections.abc import Iterator, Sequence

import joint
import joint_data
from joint_data import Data, Truth

from verticil.analyst.prediction import predict_study
from verticil.shared.masked.arithmetic.opening import deviation, sigma_each
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.prediction import predict

FLOOR = 6.0
PARTIES = (0,) * 5 + (1,) * 4 + (2,) * 4
COUNTED, TOLERATE = 3, 1
BOUNDS = {0.5: (0.047, 0.096), 1.0: (0.0315, 0.071), 2.0: (0.0215, 0.054), 4.0: (0.0155, 0.043)}
"""Total epsilon -> the two- and the three-way distance."""
COLUMNS = (12.0, 39.0)


def masked(tables: NoisyTables, owners: Sequence[int], sigma: float, seed: int) -> NoisyTables:
    """The tables as they are opened: one draw within a party, `COUNTED` ones across."""
    each = sigma_each(sigma.as_integer_ratio(), COUNTED, TOLERATE)
    within = joint.noised(tables, sigma, "replace", seed)
    across = tables
    for contributor in range(COUNTED):
        drawn = joint.noised(tables, each[0] / each[1], "replace", 1000 * (contributor + 1) + seed)
        across = dataclasses.replace(
            across,
            tables=tuple(
                dataclasses.replace(table, counts=table.counts + noisy.counts - exact.counts)
                for table, noisy, exact in zip(across.tables, drawn.tables, tables.tables, strict=True)
            ),
        )
    opened = (
        one
        if len({owners[unit] for unit in one.units}) == 1
        else dataclasses.replace(other, sigma=deviation(each, COUNTED))
        for one, other in zip(within.tables, across.tables, strict=True)
    )
    return dataclasses.replace(within, tables=tuple(opened))


def rows(
    title: str, data: Data, owners: Sequence[int], epsilon: float, seeds: Sequence[int], bound: joint.Pair | None = None
) -> Iterator[joint.Line]:
    """Masked tables and a curator, by the same people, draws and floor; what is predicted from the noise of their tables."""
    n_states = data.schema.n_states
    truth, channels = Truth(n_states, data.columns), joint.channels_of(n_states, FLOOR)
    sigma = joint.sigma_for(epsilon, len(n_states) * (len(n_states) - 1) // 2, "replace")
    lines = joint.lines_of(title, ("masked", "curator", "independent"), {"masked": (bound, None)})
    for seed in seeds:
        columns = joint.released(data.columns, channels, seed)
        tables = from_columns(columns, joint.units_of(channels), n_states)
        for name, opened in (
            ("masked", masked(tables, owners, sigma, seed)),
            ("curator", joint.noised(tables, sigma, "replace", seed)),
        ):
            mean = math.sqrt(statistics.fmean(table.sigma**2 for table in opened.tables))
            lines[name].predicted = predict(channels, data.n, sigma=mean)
            clock = joint.Clock()
            found = joint.estimated(opened, seed)
            records = joint.drawn(found.model, data.n, seed)
            lines[name].add(truth.to_records(records), clock(), joint.note_of(found))
            if name == "masked":
                lines["independent"].add(joint.independent(found, truth, data.n, seed), 0.0)
    yield from lines.values()


def demonstration(seeds: Sequence[int]) -> Iterator[joint.Line]:
    """The shipped study; what is predicted of it is what `study check` says.

    Raises:
        ValueError: it is no more the study that is measured here.
    """
    data, study = joint_data.shipped("masked")
    owners = [study.parties.index(unit.owner) for unit in study.units]
    lines = list(rows("demonstration, total 1", data, owners, 1.0, seeds))
    if lines[0].predicted != predict_study(study, data.n):
        raise ValueError(
            "study check predicts of the shipped study what is not predicted of these tables: is it another?"
        )
    yield from lines


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="how near records from masked tables come to the people")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", type=float, nargs="*", default=list(BOUNDS), help="total epsilons")
    said = parser.parse_args()
    seeds, missed, data = range(1, said.seeds + 1), 0, joint_data.adult()
    found = (rows(f"adult, total {each:g}", data, PARTIES, each, seeds, BOUNDS[each]) for each in said.only)
    for line in itertools.chain(*found, demonstration(seeds)):
        print(line.text(), flush=True)
        missed += line.verdicts().count(False)
    for total in COLUMNS:
        each = total / len(data.schema.n_states)
        for line in joint.local(f"adult, columns, total {total:g}", data, each, {}, seeds):
            if line.method in {"network", "sampled"}:
                print(line.text(), flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())

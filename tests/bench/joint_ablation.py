"""What each part of the joint estimate buys: ``python tests/bench/joint_ablation.py [--seeds 3] [--results FILE]``.

Each part is switched off by itself. A figure is the distance in pairs without the part, over that with all parts, on the same
noise, the same network and the same seed: 1.05 says that records are 5 % farther without it. Records are drawn as for a release;
their mean total variation distance to the people's tables is measured (`joint_data.Truth`), for networks to those of the 20,000
records that were drawn from them. Noise is on all tables of pairs, add/remove, delta 1e-9; columns are randomized on their own.

Cells are the tables `PEOPLE` and the networks `NETWORKS`, each by `LEVELS`. A part is measured where it can act: on noise, on
columns, or on both. Of each part the command prints the mean over the cells of people and over those of networks, the standard
error of that mean (from the scatter of the cells, each of which is a mean of its seeds), the least and the greatest cell, and the
triples' means. A part that buys less than `ENOUGH` in both means is named, and the command ends with 1. The guard is named, too,
but stays whatever its means: it is there for its best case.

``--results FILE`` appends every cell and seed to a file of JSON lines and skips what is in there.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import joint_data
from joint import (
    append_line,
    channels_of,
    drawn,
    error,
    estimate_with,
    estimated,
    json_lines,
    learned,
    noised,
    released,
    sigma_for,
    study_of,
    units_of,
)
from joint_data import Data, Truth

from verticil.shared.numerics.joint import estimate, stopping
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import JointEstimate
from verticil.shared.numerics.joint.tuning import TUNING
from verticil.shared.synthesis import joint_records

PEOPLE: dict[str, Callable[[], Data]] = {
    "adult": joint_data.adult,
    "ma2019": joint_data.ma2019,
    "cmc": joint_data.cmc,
    "letter": joint_data.letter,
    "magic": joint_data.magic,
}
NETWORKS: dict[str, Callable[[], Data]] = {
    name: partial(joint_data.sampled, name, 20_000, seed=1) for name in ("alarm", "child", "insurance", "hailfinder")
}
LEVELS = ("central 1", "central 5", "local none", "local 3", "local 1")
ENOUGH = 1.03
NOISE, COLUMNS, EXACT = "noise", "columns", "columns that are as they are"
Patches = Callable[[], Sequence[Any]]


@dataclass(frozen=True)
class Part:
    """A part of the estimate.

    Attributes:
        name: what is switched off.
        acts_on: noise, columns or both; or columns that are as they are.
        off: makes the patches that switch it off.
    """

    name: str
    acts_on: tuple[str, ...]
    off: Patches


def _always(value: object) -> Callable[..., Any]:
    """A method that returns a value."""
    return lambda *_args, **_named: value


def _usual_size(self: Any) -> tuple[Any, ...]:
    return (self._can_publish(TUNING.usual),)


def _draw_without(place: int) -> Callable[..., Any]:
    """`weighted_records.draw_atoms` of one source where there are two."""
    original = atoms.draw_atoms

    def draw(sources: Sequence[Any], *args: Any, **named: Any) -> Any:
        return original(sources if len(sources) == 1 else [sources[1 - place]], *args, **named)

    return draw


def _tuned(module: ModuleType, **numbers: Any) -> Any:
    """A patch of a module's tuned numbers."""
    return mock.patch.object(module, "TUNING", dataclasses.replace(TUNING, **numbers))


_ESTIMATE = estimate._Estimate
PARTS = (
    Part("choice of the size", (NOISE, COLUMNS), lambda: [mock.patch.object(_ESTIMATE, "_sizes", _usual_size)]),
    Part(
        "averaging of fits",
        (NOISE, COLUMNS),
        lambda: [_tuned(estimate, sizes=tuple(dataclasses.replace(size, fits=1) for size in TUNING.sizes))],
    ),
    Part("shrinkage of tables", (NOISE,), lambda: [mock.patch.object(_ESTIMATE, "_is_nearer_shrunk", _always(False))]),
    Part("Stein's stop: the least X", (NOISE,), lambda: [_tuned(stopping, penalty=0.0)]),
    Part("guard", (NOISE, COLUMNS), lambda: [mock.patch.object(_ESTIMATE, "_alpha", _always(1.0))]),
    Part("records of the network", (COLUMNS,), lambda: [mock.patch.object(atoms, "draw_atoms", _draw_without(0))]),
    Part("records of the mixture", (COLUMNS,), lambda: [mock.patch.object(atoms, "draw_atoms", _draw_without(1))]),
    Part("weighing", (COLUMNS,), lambda: [mock.patch.object(_ESTIMATE, "_can_weigh", _always(False))]),
    Part("choice of the kind", (EXACT,), lambda: [mock.patch.object(_ESTIMATE, "_is_plain", _always(False))]),
    Part("tables met are left alone", (COLUMNS,), lambda: [_tuned(atoms, left_alone=0.0)]),
    Part("longer steps of weighing", (COLUMNS,), lambda: [_tuned(atoms, longest_step=1.0)]),
    Part("swapping of records", (NOISE, COLUMNS), lambda: [mock.patch.object(joint_records, "_swap", _always(None))]),
)
WHOLE = Part("all parts", (NOISE, COLUMNS), list)


def parts_of(level: str) -> list[Part]:
    """All parts together, and those that act at a level."""
    kinds = {NOISE} if level.startswith("central") else {COLUMNS, EXACT} if level.endswith("none") else {COLUMNS}
    return [WHOLE, *(part for part in PARTS if kinds & {*part.acts_on})]


def run_of(data: Data, level: str, seed: int) -> Callable[[], JointEstimate]:
    """The estimate of a cell and a seed: its noise or randomization, and the network, are drawn and learned once."""
    n_states, (kind, amount) = data.schema.n_states, level.split()
    if kind == "central":
        exact = from_columns(data.columns, units_of(channels_of(n_states, None)), n_states)
        sigma = sigma_for(float(amount), math.comb(len(n_states), 2), "add-remove")
        return partial(estimated, noised(exact, sigma, "add-remove", seed), seed)
    channels = channels_of(n_states, None if amount == "none" else float(amount))
    columns = released(data.columns, channels, seed)
    network = learned(study_of(data, channels), columns)
    return partial(estimate_with, columns, channels, n_states, network, seed)


def cell(name: str, data: Data, truth: Truth, level: str, seed: int, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The distances of each part's records, one seed."""
    run = run_of(data, level, seed)
    for part in parts_of(level):
        if part.name in wanted:
            with contextlib.ExitStack() as stack:
                for patch in part.off():
                    stack.enter_context(patch)
                found = run()
                two, three = truth.to_records(drawn(found.model, data.n, seed))
            yield {"name": name, "level": level, "seed": seed, "part": part.name, "two": two, "three": three}


Key = tuple[str, str, int, str]
Figures = dict[Key, tuple[float, float]]


def read(path: Path | None) -> Figures:
    """The distances in a file: by cell, level, seed and part."""
    return dict(map(_entry, json_lines(path)))


def _entry(one: dict[str, Any]) -> tuple[Key, tuple[float, float]]:
    return (one["name"], one["level"], one["seed"], one["part"]), (one["two"], one["three"])


def ratios(figures: Figures, part: Part, names: Sequence[str], place: int) -> dict[tuple[str, str], list[float]]:
    """Of each cell the distances without a part over those with all, one a seed; 0: pairs, 1: triples."""
    found: dict[tuple[str, str], list[float]] = {}
    for (name, level, seed, own), distances in sorted(figures.items()):
        if own == part.name and name in names:
            whole = figures[name, level, seed, WHOLE.name]
            found.setdefault((name, level), []).append(distances[place] / whole[place])
    return found


def summary(cells: dict[tuple[str, str], list[float]]) -> tuple[float, float]:
    """The mean over cells, and its standard error from the scatter of the cells, that of seeds within."""
    means = [statistics.fmean(values) for values in cells.values()]
    return statistics.fmean(means), error(means)


def report(figures: Figures) -> list[str]:
    """Print each part's line; return the parts that buy too little in both means."""
    print(
        "distance without the part / with all parts: mean ± standard error [least cell; greatest cell]; mean of triples"
    )
    too_little = []
    for part in PARTS:
        text, means = [f"{part.name:26}"], []
        for title, names in (("people", list(PEOPLE)), ("networks", list(NETWORKS))):
            cells = ratios(figures, part, names, 0)
            if not cells:
                continue
            mean, scatter = summary(cells)
            by_cell = sorted((statistics.fmean(values), *key) for key, values in cells.items())
            ends = "; ".join(f"{value:.2f} {name} {level}" for value, name, level in (by_cell[0], by_cell[-1]))
            triples, _ = summary(ratios(figures, part, names, 1))
            text.append(f"{title} {mean:.3f} ± {scatter:.3f} [{ends}] triples {triples:.3f}")
            means.append(mean)
        if means:
            print("  ".join(text), flush=True)
        if means and max(means) < ENOUGH:
            too_little.append(part.name)
    print(f"less than {100 * (ENOUGH - 1):.0f} % in both means: {', '.join(too_little) or 'none'}")
    return too_little


def main() -> int:
    """Print the ablation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[*PEOPLE, *NETWORKS], choices=[*PEOPLE, *NETWORKS])
    parser.add_argument("--levels", nargs="*", default=list(LEVELS), metavar="LEVEL", help="such as 'central 1'")
    parser.add_argument(
        "--parts", nargs="*", default=[part.name for part in PARTS], metavar="PART", help="some of them"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, metavar="FILE", help="append what is measured, and skip what is in it")
    options = parser.parse_args()
    figures = read(options.results)
    for name in options.data:
        data = (PEOPLE | NETWORKS)[name]()
        truth = Truth(data.schema.n_states, data.columns)
        for level in options.levels:
            for seed in range(1, options.seeds + 1):
                measured = {part for *where, part in figures if where == [name, level, seed]}
                chosen = {WHOLE.name, *options.parts} - measured
                wanted = [part.name for part in parts_of(level) if part.name in chosen]
                if not set(wanted) - {WHOLE.name}:
                    continue
                for one in cell(name, data, truth, level, seed, wanted):
                    figures |= dict([_entry(one)])
                    if options.results is not None:
                        append_line(options.results, one)
    too_little = [name for name in report(figures) if name != "guard"]
    return 1 if too_little else 0


if __name__ == "__main__":
    sys.exit(main())

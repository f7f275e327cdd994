"""How near the stop of the joint estimate is to the best stop there was: ``python tests/bench/joint_stop.py``.

A fit goes step by step (a mixture with noise on the tables), or sweep by sweep (weighted records of randomized columns), from
too little to too much, and `verticil.shared.numerics.joint.stopping` says where to stop, from the noise alone. Here the truth is
known: the people's own tables. Each fit is run again without a stop, to its last step or sweep, and its distance from the truth
is measured after each. The regret is

    distance where it stopped / least distance along the whole of the same path,

the distance being the mean total variation distance of all two-way tables. Data sets and their ranges are those of `joint_data`,
noise and randomization those of `joint`. ``--seeds 2`` of noise; ``--only TEXT`` takes some rows. Each regret is printed, and of
the rows' means the mean (at most 1.05) and the worst (at most 1.10); ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any
from unittest import mock

import joint_data
import numpy as np
from joint import channels_of, estimate_with, estimated, learned, noised, released, sigma_for, study_of, units_of
from joint_data import Data, Truth
from numpy.typing import NDArray

from verticil.shared.numerics.joint import estimate, mixture, stopping
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.checkpoints import Work
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import JointEstimate
from verticil.shared.numerics.joint.layout import Layout
from verticil.shared.numerics.joint.mixture import Fit
from verticil.shared.numerics.joint.tuning import TUNING
from verticil.shared.numerics.joint.weighted_records import Raked

MEAN, WORST = 1.05, 1.10
Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Path:
    """One fit.

    Attributes:
        discrepancy: where it stopped, by which a path is known.
        stopped: after how many steps or sweeps.
        distances: from the truth, after none, one, two, ..
    """

    discrepancy: float
    stopped: int
    distances: list[float]

    @property
    def regret(self) -> float:
        """See the module."""
        return self.distances[self.stopped] / min(self.distances)


class Pairs:
    """The truth's tables of pairs as one matrix."""

    def __init__(self, truth: Truth) -> None:
        self._n_states = truth.n_states
        ends = np.cumsum(truth.n_states)
        self._slices = [slice(end - k, end) for end, k in zip(ends.tolist(), truth.n_states, strict=True)]
        self._shares = np.zeros((ends[-1], ends[-1]))
        self._counted = np.zeros((ends[-1], ends[-1]), np.bool_)
        for key, table in truth.tables.items():
            if len(key) == 2:
                cells = self._slices[key[0]], self._slices[key[1]]
                self._shares[cells] = table.reshape(truth.n_states[key[0]], truth.n_states[key[1]])
                self._counted[cells] = True

    def distance(self, shares: NDArray[np.floating[Any]]) -> float:
        """The mean total variation distance of all pairs."""
        d = len(self._slices)
        return float(np.abs(shares - self._shares)[self._counted].sum()) / 2 / math.comb(d, 2)

    def of_components(self, rows: NDArray[np.float32]) -> float:
        """That of components of equal weight, (m, S)."""
        return self.distance(rows.T @ rows / len(rows))

    def of_atoms(self, codes: NDArray[np.uint16], weights: NDArray[np.float64]) -> float:
        """That of weighted records."""
        shares = np.zeros_like(self._shares)
        weights = weights / weights.sum()
        for b, second in enumerate(self._slices):
            for a, first in enumerate(self._slices[:b]):
                size = (self._n_states[a], self._n_states[b])
                cells = codes[:, a].astype(np.intp) * size[1] + codes[:, b]
                shares[first, second] = np.bincount(cells, weights=weights, minlength=math.prod(size)).reshape(size)
        return self.distance(shares)


def watched(run: Callable[[], JointEstimate], truth: Truth) -> Path:
    """The path that led to what an estimate publishes: each of its fits is followed once more, without a stop."""
    pairs, paths = Pairs(truth), []
    original_fit, original_rake = mixture.fit, atoms.rake

    def fit(*args: Any, **named: Any) -> Fit:
        found = original_fit(*args, **named)
        if named["size"].fits <= TUNING.of_parts.fits:  # of the guard, which publishes nothing
            return found
        layout: Layout = args[0][0].layout
        distances: list[float] = []

        def keep(make: Callable[[], Arrays]) -> None:
            logits = np.asarray(make()["watched.state/logits"], dtype=np.float32)[: named["size"].fits]
            rows = mixture.probabilities(layout, logits)
            distances.append(pairs.of_components(rows.reshape(-1, rows.shape[-1])))

        work = Work(keep_checkpoint=keep)
        with mock.patch.object(stopping.Discrepancy, "is_over", return_value=False):
            work.piece("watched", lambda: vars_of(original_fit(*args, **{**named, "work": work})))
        start = np.concatenate(list(args[1])).astype(np.float32)
        paths.append(Path(found.discrepancy, found.steps, [pairs.of_components(start[None]), *distances]))
        return found

    def rake(tables: Any, codes: Any, weights: Any, **named: Any) -> Raked:
        found = original_rake(tables, codes, weights, **named)
        distances = [pairs.of_atoms(codes, weights)]

        def keep(make: Callable[[], Arrays]) -> None:
            distances.append(pairs.of_atoms(codes, np.asarray(make()["watched.state/weights"], dtype=np.float64)))

        work = Work(keep_checkpoint=keep)
        rest = {**named, "work": work, "goal": -1.0, "sweeps": TUNING.sweeps}
        work.piece("watched", lambda: vars_of(original_rake(tables, codes, weights, **rest)))
        paths.append(Path(found.discrepancy, found.sweeps, distances))
        return found

    with mock.patch.object(estimate, "fit", fit), mock.patch.object(atoms, "rake", rake):
        published = run()
    return next(path for path in reversed(paths) if path.discrepancy == published.discrepancy)


def vars_of(_found: object) -> Arrays:
    """What a watched piece finds: nothing that is needed."""
    return {}


@dataclass
class Row:
    """One line.

    Attributes:
        title: data and privacy.
        paths: of each seed.
    """

    title: str
    paths: list[Path] = field(default_factory=list)

    @property
    def regret(self) -> float:
        """The mean of the seeds."""
        return statistics.fmean(path.regret for path in self.paths)

    def text(self) -> str:
        """The mean, and each seed's."""
        seeds = "; ".join(
            f"{path.regret:.3f}: {path.distances[path.stopped]:.4f} at {path.stopped}, best {min(path.distances):.4f} "
            f"at {int(np.argmin(path.distances))}"
            for path in self.paths
        )
        return f"{self.title:32} {self.regret:.3f}   {seeds}"


def noisy(data: Data, epsilon: float, seed: int) -> Path:
    """Noise on all tables of pairs, add/remove."""
    n_states = data.schema.n_states
    exact = from_columns(data.columns, units_of(channels_of(n_states, None)), n_states, parts=1)
    sigma = sigma_for(epsilon, math.comb(len(n_states), 2), "add-remove")
    tables = noised(exact, sigma, "add-remove", seed)
    return watched(lambda: estimated(tables, seed), Truth(n_states, data.columns))


def randomized(data: Data, epsilon: float, seed: int, *, like: Any = None) -> Path:
    """Columns randomized each on its own."""
    n_states = data.schema.n_states
    channels = channels_of(n_states, epsilon)
    columns = released(data.columns, channels, seed)
    network = learned(study_of(data, channels, like=like), columns)
    run = partial(estimate_with, columns, channels, n_states, network, seed)
    return watched(run, Truth(n_states, data.columns))


def rows() -> list[tuple[str, Callable[[int], Path]]]:
    """Every row: its title, and the path of a seed."""
    tables = {"adult": joint_data.adult, "ma2019": joint_data.ma2019, "cmc": joint_data.cmc}
    tables["child"] = partial(joint_data.sampled, "child", 20_000, seed=1)
    shipped = cache(joint_data.shipped)
    found: list[tuple[str, Callable[[int], Path]]] = []
    for name, made in tables.items():
        data = cache(made)
        found.append((f"{name}, tables 1", lambda seed, data=data: noisy(data(), 1.0, seed)))
    for level in (3.0, 2.0, 1.0):
        title = f"shipped, local {level:g}"
        found.append((title, lambda seed, level=level: randomized(shipped()[0], level, seed, like=shipped()[1])))
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose title has this in it")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    regrets: Sequence[float] = []
    for title, path_of in rows():
        if options.only.casefold() in title.casefold():
            row = Row(title, [path_of(seed) for seed in range(1, options.seeds + 1)])
            print(row.text(), flush=True)
            regrets = [*regrets, row.regret]
    mean, worst = statistics.fmean(regrets), max(regrets)
    met = mean <= MEAN and worst <= WORST
    print(f"mean {mean:.3f} (<= {MEAN:g}), worst {worst:.3f} (<= {WORST:g}): {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

"""How fast graphs are sampled, and whether chains agree: ``python tests/bench/posterior_sampler.py [--only TEXT] [--large]``.

Records are drawn from ALARM and Hailfinder (tests/data/networks), all of their 37 and 56 variables or the first of them; BDeu, a
uniform prior, at most three parents. CPU seconds have counting and scoring all sets of parents in them. `--large` adds 100,000
records. The reference of a redraw is a plain numpy one of the same step on the same tables (tests/support/posterior.py). Ends
with 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench_structures import read_bif
from figure import Figure, cpu_seconds
from run import report

from support.posterior import plain_redraw
from verticil.miner.learning.posterior.graphs import run_chains
from verticil.miner.learning.posterior.scores import PosteriorScores
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.search.protocol import UNINTERRUPTED
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.posterior import kernels
from verticil.shared.numerics.posterior.chains import Chains, reversed_graph
from verticil.shared.numerics.posterior.parent_sets import ParentSets, parent_sets
from verticil.shared.numerics.posterior.prior import StructurePrior
from verticil.shared.numerics.posterior.tuning import TUNING

REDRAWS = 20


def sets_of(name: str, records: int, variables: int) -> ParentSets:
    """All sets of up to three parents, scored from records of a network."""
    network = read_bif(Path(__file__).parents[1] / "data" / "networks" / f"{name}.bif")
    columns = network.sample(records, np.random.default_rng(1))[:variables]
    n_states = network.n_states[:variables]
    units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(n))) for v, n in enumerate(n_states)]
    scores = PosteriorScores(FamilyTables(columns, units, n_states), "bdeu")
    return parent_sets(
        scores,
        n_states,
        max_parents=3,
        max_family_cells=10**6,
        prior=StructurePrior(),
        count_ahead=scores.count_ahead,
    )


def redraws() -> list[Figure]:
    """Three variables of thirty drawn anew, from where a chain has come to."""
    sets, chains = sets_of("alarm", 10_000, 30), Chains(steps=200)
    state = chains.start(sets, seed=1)
    while chains.progress(state) < 1:
        state = chains.step(state)
    generator = np.random.default_rng(1)
    groups = [generator.choice(30, 3, replace=False) for _ in range(REDRAWS)]
    parents, places = state.parents[0], state.places[0]

    def ours() -> None:
        here, there = parents.copy(), places.copy()
        children, shares = reversed_graph(here), np.empty(25)
        for chosen in groups * 100:
            kernels.redraw(
                chosen, generator.random(4), state.tables.shapes, *state.tables[2:], here, children, there, shares
            )  # fmt: skip

    def reference() -> None:
        graph = parents.tolist()
        for chosen in groups:
            graph = plain_redraw(sets, graph, chosen.tolist(), generator)

    ours()
    speed, plain = 100 * REDRAWS / cpu_seconds(ours), REDRAWS / cpu_seconds(reference)
    return [
        Figure(
            name="redraws of three of 30 variables",
            ours=speed,
            reference=plain,
            ratio=speed / plain,
            target=">= 50 times",
            unit="redraws / CPU s",
            met=speed >= 50 * plain,
            note=f"{len(sets.masks) // 30} sets of parents a variable; reference: plain numpy",
        )
    ]


def whole(network: str, records: int, variables: int, most: float | None) -> list[Figure]:
    """Counts, scores, four chains of 20,000 steps: CPU seconds, R-hat, the largest difference between chains."""
    begun = time.process_time()
    sets = sets_of(network, records, variables)
    scored = time.process_time() - begun
    sample = run_chains(Chains(), sets, 1, None, UNINTERRUPTED)
    spent = time.process_time() - begun
    found, name = sample.diagnostics, f"{variables} variables of {network}, {records:,} records"
    shares = np.stack([edges(sample.parents[sample.chain == chain]) for chain in range(4)])
    apart = float(np.ptp(shares, axis=0).max())
    note = f"{scored:.1f} s of it counts and scores of {len(sets.masks):,} sets; effective size {found.effective_size:,.0f}"
    bounds = (
        ("-", "-", "-")
        if most is None
        else (f"<= {most:.0f}", f"<= {TUNING.most_r_hat}", f"<= {TUNING.most_difference}")
    )
    met = (spent <= (most or 0), found.r_hat <= TUNING.most_r_hat, apart <= TUNING.most_difference)
    return [
        Figure(name=f"{name}: {what}", ours=value, target=bound, unit=unit, met=None if most is None else ok, note=said)
        for what, value, bound, unit, ok, said in zip(
            ("4 chains of 20,000 steps", "R-hat", "most an edge differs between chains"),
            (spent, found.r_hat, apart),
            bounds,
            ("CPU s", "", ""),
            met,
            (note, "", ""),
            strict=True,
        )
    ]


def edges(parents: np.ndarray) -> np.ndarray:
    """(d, d), the share of the graphs that have each edge."""
    d = parents.shape[1]
    return np.stack([((parents >> np.uint64(u)) & np.uint64(1)).mean(axis=0) for u in range(d)])


PARTS: dict[str, Callable[[], list[Figure]]] = {
    "redraws": redraws,
    "15": lambda: whole("alarm", 30_000, 15, 20),
    "alarm": lambda: whole("alarm", 10_000, 37, 300),
    "40": lambda: whole("hailfinder", 10_000, 40, 300),
}


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", choices=list(PARTS))
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    figures: list[Figure] = []
    for name in options.only or PARTS:
        figures += PARTS[name]()
        print(f"{name} is measured", file=sys.stderr, flush=True)
    if options.large:
        figures += whole("alarm", 100_000, 37, None)
    print(report(figures))
    return 0 if all(figure.met is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())

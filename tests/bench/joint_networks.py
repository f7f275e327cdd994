"""Joint model or network, where the truth is known: ``python tests/bench/joint_networks.py [--networks child] [--seeds 5]``.

20,000 records of a network of tests/data/networks, their columns randomized with the same epsilon each or not at all, or the
tables of all pairs with noise of epsilon 1 and delta 1e-9 together (replacement). As many records of the joint model, of the
network alone; their mean total variation distance to the generating *network*, whose tables are exact: of all pairs, and of 300
triples. Printed beside them is the joint model's in parts of the network's, of the means over the seeds.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import statistics
import sys

import joint_data
import numpy as np
from joint import channels_of, drawn, from_network, noised, released, sigma_for, study_of, units_of
from joint_data import Truth

from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.learn import learn
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.study.document import ReleaseRule

TABLES = "tables"
LEVELS = ("none", "3", "2", "1", TABLES)
WAYS = ("joint", "network")


def cell(name: str, level: str, seed: int) -> list[tuple[float, float]]:
    """Distances of the records of `WAYS`, in pairs and in triples."""
    data = joint_data.sampled(name, 20_000, seed=seed)
    assert data.network is not None
    n_states = data.schema.n_states
    truth = Truth(n_states, data.columns)
    truth.tables = {key: joint_data.exact_share(data.network, key) for key in truth.tables}
    channels = channels_of(n_states, None if level in ("none", TABLES) else float(level))
    study = study_of(data, channels, max_parents=3 if level == TABLES else 2)
    study = dataclasses.replace(study, release=ReleaseRule(sample_from="joint"))
    columns = [c.astype(np.uint8) for c in released(data.columns, channels, seed)]
    tables = from_columns(columns, units_of(channels), n_states)
    if level == TABLES:
        tables = noised(tables, sigma_for(1.0, math.comb(len(n_states), 2), "replace"), "replace", seed)
        result = learn_from_tables(tables, study)
    else:
        result = learn(columns, study)
    assert result.joint is not None
    records = [drawn(result.joint.model, data.n, seed), from_network(result.network, data.n, seed)]
    return [truth.to_records(made) for made in records]


def main() -> int:
    """Print the cells."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="*", default=["alarm", "child", "insurance"])
    parser.add_argument("--levels", nargs="*", default=list(LEVELS), choices=LEVELS)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    for name, level in itertools.product(options.networks, options.levels):
        runs = [cell(name, level, seed) for seed in range(1, options.seeds + 1)]
        text = [f"{name:10} {level:6}"]
        for place, ways in ((0, 2), (1, 3)):
            means = [statistics.fmean(run[way][place] for run in runs) for way in range(len(WAYS))]
            part = means[0] / means[1]
            said = " ".join(f"{way} {mean:.4f}" for way, mean in zip(WAYS, means, strict=True))
            text.append(f"{ways}-way {said}, joint / network {part:.3f}")
        print("; ".join(text), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""All pairwise tables of 15 columns and a million records, against scikit-learn's mutual information per pair."""

from __future__ import annotations

import warnings
from itertools import combinations

import numpy as np
from figure import Figure, cpu_seconds

from verticil.miner.learning.counting import all_pair_tables
from verticil.miner.learning.scores import pair_scores
from verticil.shared.model.transition import quantize, symmetric

N_RECORDS = 1_000_000
N_STATES = (8, 2, 5, 4, 7, 6, 9, 15, 7, 4, 4, 2, 16, 3, 5)  # as in Adult, two more
N_REFERENCE_PAIRS = 10
TARGET = 50


def figures() -> list[Figure]:
    """Tables alone, and tables with the debiased information and the tests."""
    generator = np.random.default_rng(1)
    columns = [generator.choice(k, N_RECORDS, p=generator.dirichlet(np.ones(k))).astype(np.uint8) for k in N_STATES]
    transitions = [quantize(symmetric(k, epsilon=3.0)) for k in N_STATES]
    all_pair_tables(columns, N_STATES, method="kernel")  # compiles
    pair_scores(all_pair_tables(columns, N_STATES), transitions)  # imports scipy
    tables = cpu_seconds(lambda: all_pair_tables(columns, N_STATES))
    scored = cpu_seconds(lambda: pair_scores(all_pair_tables(columns, N_STATES), transitions))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own, on import
        from sklearn.metrics import mutual_info_score
    pairs = list(combinations(range(len(N_STATES)), 2))
    chosen = pairs[:: len(pairs) // N_REFERENCE_PAIRS][:N_REFERENCE_PAIRS]
    per_chosen = cpu_seconds(lambda: [mutual_info_score(columns[a], columns[b]) for a, b in chosen], repeats=1)
    reference = per_chosen * len(pairs) / len(chosen)
    note = (
        f"reference: sklearn.metrics.mutual_info_score, {len(chosen)} of the {len(pairs)} pairs timed in this run "
        f"({per_chosen:.2f} CPU s) and scaled to all"
    )
    return [
        Figure(
            name=name,
            ours=ours,
            reference=reference,
            ratio=reference / ours,
            target=f">= {TARGET} times",
            unit="CPU s",
            met=reference / ours >= TARGET,
            note=note,
        )
        for name, ours in (
            ("all pair tables, d=15, 1M records", tables),
            ("the same with information and tests", scored),
        )
    ]

"""Compiling what the first studies of a miner need, before one waits for it: ``python -m verticil.miner.learning.compiling``.

Every kernel is called once with the types that studies have, on a few records; numba keeps what it made (`shared.core.compiled`).
"""

from __future__ import annotations

import itertools
import os
from typing import Final

import numpy as np

from verticil.miner.learning.held_out import quick_network
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.counting import all_pair_tables
from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.order import OrderSearch
from verticil.miner.learning.search.protocol import SearchProblem, run_search
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import mixture
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.layout import Layout
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.synthesis.joint_records import joint_codes
from verticil.shared.synthesis.synthesis import sample_codes

_STATES: Final = (2, 3, 2, 3)


def compile_kernels() -> None:
    """Call the kernels of counting, searching, mixtures, weighing and drawing."""
    generator, d = np.random.default_rng(0), len(_STATES)
    columns = [generator.integers(0, k, 64, dtype=np.uint8) for k in _STATES]
    all_pair_tables(columns, _STATES, method="kernel")
    all_pair_tables([column.astype(np.uint16) for column in columns], _STATES, method="kernel")
    weights = np.ones((d, d)) - np.eye(d)
    problem = SearchProblem(weights=weights, n_states=_STATES, max_parents=2, max_family_cells=64)
    run_search(GeneticSearch(population=4, selected=2, generations=1), problem, seed=0)
    run_search(OrderSearch(chains=1, moves=10, rounds=1), problem, seed=0)
    units = [
        ColumnUnit(variables=(place,), domain=None, channel=quantize(symmetric(k, epsilon=1.0)))
        for place, k in enumerate(_STATES)
    ]
    codes = np.array(list(itertools.product(*map(range, _STATES))), dtype=np.uint16)
    tables = from_columns(columns, units, _STATES)
    schema = Schema(
        variables=tuple(
            Variable(name=f"v{place}", owner="all", labels=tuple(map(str, range(k)))) for place, k in enumerate(_STATES)
        )
    )
    families = FamilyTables(columns, units, _STATES, schema.names)
    network = quick_network(schema, Dag(parents=((), (0,), (), (1,))), families, prior_count=1.0)
    joint = atoms.rake(tables, codes, np.full(len(codes), 1 / len(codes)), sweeps=1, goal=0.0)
    layout = Layout(_STATES, tuple(units))
    rows = mixture.probabilities(layout, np.zeros((1, 1, sum(_STATES)), dtype=np.float32))
    mixture.through_softmax(layout, rows, rows.copy())
    joint_codes(joint.model, 64, generator=generator, path="compiled")
    sample_codes(network, 64, generator=generator, path="compiled")


if __name__ == "__main__":
    os.nice(19)  # whatever else there is to do goes first
    compile_kernels()

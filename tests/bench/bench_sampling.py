"""Drawing a million synthetic records of 15 variables."""

from __future__ import annotations

import numpy as np
from figure import Figure, cpu_seconds

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.synthesis.synthesis import sample_codes

N_RECORDS = 1_000_000
N_STATES = (8, 2, 5, 4, 7, 6, 9, 15, 7, 4, 4, 2, 16, 3, 5)
TARGET = 50.0


def network() -> Network:
    """A network with two parents for every variable from the third on, Dirichlet tables."""
    generator = np.random.default_rng(3)
    parents = tuple(
        tuple(sorted(generator.choice(v, size=min(v, 2), replace=False).tolist())) for v in range(len(N_STATES))
    )
    families = []
    for child, family in enumerate(parents):
        n_rows = int(np.prod([N_STATES[p] for p in family], dtype=np.int64))
        table = generator.dirichlet(np.ones(N_STATES[child]), size=n_rows)
        blank = np.full_like(table, np.nan)
        families.append(
            Family(
                child=child,
                parents=family,
                probability=table,
                estimate=blank,
                standard_error=blank,
                interval_low=blank,
                interval_high=blank,
                unstable=np.ones(table.shape, dtype=np.bool_),
            )
        )
    variables = tuple(
        Variable(name=f"v{i}", owner="a", labels=tuple(map(str, range(k)))) for i, k in enumerate(N_STATES)
    )
    return Network(schema=Schema(variables=variables), dag=Dag(parents=parents), families=tuple(families))


def figures() -> list[Figure]:
    """Compiled and plain path; the records are the same."""
    model = network()
    cells = N_RECORDS * len(N_STATES) / 1e6

    def draw(path: str) -> object:
        return sample_codes(model, N_RECORDS, generator=np.random.default_rng(1), path=path)

    draw("compiled")  # compiles
    compiled = cells / cpu_seconds(lambda: draw("compiled"))
    plain = cells / cpu_seconds(lambda: draw("plain"), repeats=1)
    return [
        Figure(
            name="systematic sampling, 1M records x 15",
            ours=compiled,
            reference=plain,
            ratio=compiled / plain,
            target=f">= {TARGET:g}",
            unit="M cells / CPU s",
            met=compiled >= TARGET,
            note="reference: our plain numpy path, the same records",
        )
    ]

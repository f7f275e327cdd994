"""Networks drawn from the posterior of their parameters, given graphs and the counts of the records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.numerics.posterior.predictive import drawn_family

FamilyCounts = Callable[[tuple[int, ...]], Floats]
"""Variables -> how many records have each combination of their categories, an axis for each in this order; may be fractions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Of the parameters: Dirichlet with the same mass in each cell of a row.

    Attributes:
        equivalent: BDeu's: so many records spread over the whole table; None: `pseudo` in every cell.
        pseudo: 1 is uniform, U(0, 1) for two categories.
    """

    equivalent: float | None = 1.0
    pseudo: float = 1.0

    def mass(self, shape: tuple[int, int]) -> float:
        """In a cell of a family's table of the shape (J, K)."""
        return self.pseudo if self.equivalent is None else self.equivalent / math.prod(shape)


def parameters_drawn(
    graphs: Iterable[Dag],
    counts: FamilyCounts,
    schema: Schema,
    *,
    generator: np.random.Generator,
    prior: Prior | None = None,
) -> Iterator[Network]:
    """For each graph a network, with its parameters drawn given the graph and the counts.

    Args:
        graphs: of the posterior.
        counts: of the records, not negative; is asked once for each family.
        schema: the variables.
        generator: of the parameters.
        prior: of the parameters; that of the graphs' scores. None: BDeu(1).

    Yields:
        Networks whose probabilities are the draw; they have no standard errors.
    """
    prior = prior or Prior()
    known: dict[tuple[int, tuple[int, ...]], Floats] = {}
    for graph in graphs:
        families: list[Family] = []
        for child, parents in enumerate(graph.parents):
            if (child, parents) not in known:
                table = np.asarray(counts((*parents, child)), dtype=np.float64).reshape(-1, schema[child].n_states)
                known[child, parents] = table + prior.mass(table.shape)
            families.append(drawn_family(child, parents, known[child, parents], generator))
        yield Network(schema=schema, dag=graph, families=tuple(families))

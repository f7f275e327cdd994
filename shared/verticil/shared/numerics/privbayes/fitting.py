"""PrivBayes as a whole: a table's codes to a network with everything that was measured for it.

Scores and tables are all that is taken from the records; what follows is a function of them. What it costs is said by
`verticil.shared.privacy.privbayes`, which also makes the `Noise` for a wanted (epsilon, delta).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Bools, Counts, Floats
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.inverse_estimation import Design, as_design
from verticil.shared.numerics.estimation.parameters import family_parameters
from verticil.shared.numerics.model.constraints import Constraints
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.numerics.privbayes.calibration import Noise
from verticil.shared.numerics.privbayes.distributions import Projection, Zeros, distributions, project
from verticil.shared.numerics.privbayes.measuring import NoisyTable, automatic_tau, counted_records, noisy_tables
from verticil.shared.numerics.privbayes.scores import noisy_scores
from verticil.shared.numerics.privbayes.structure import Structure, learn_structure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """What PrivBayes found.

    Attributes:
        structure: the tables' attributes, and the graph.
        tables: the noisy counts, one table each.
        distributions: the same as distributions, axes as in the tables.
        tau: most cells of a table.
        n_records: of the table; counted with noise where it is not public, and then possibly negative.
        noise: that was drawn.
        zeros: which combinations of some attributes rules leave possible; None: all.
    """

    structure: Structure
    tables: tuple[NoisyTable, ...]
    distributions: tuple[Floats, ...]
    tau: float
    n_records: int
    noise: Noise
    zeros: Zeros | None = None

    def network(self, schema: Schema, *, level: float = 0.95) -> Network:
        """Return the network, with the estimate and interval of each probability from the noisy counts.

        Args:
            schema: of the attributes.
            level: of the intervals: sampling and noise together.

        Raises:
            ValueError: the schema does not fit.
        """
        families = (self._family(child, schema, level) for child in range(len(schema)))
        return Network(schema=schema, dag=self.structure.dag, families=tuple(families))

    def configuration_shares(self) -> list[Floats]:
        """Return for each attribute the shares of its parents' configurations in its own table, (J,): the paper's
        histograms.
        """
        shares: list[Floats] = []
        for child, parents in enumerate(self.structure.dag.parents):
            place = self._place(child)
            shares.append(_arrange(self.tables[place].attributes, self.distributions[place], parents).ravel())
        return shares

    def _place(self, child: int) -> int:
        return next(
            place
            for place, attributes in enumerate(self.structure.tables)
            if child == attributes[-1] or (place == 0 and child in attributes)
        )

    def _family(self, child: int, schema: Schema, level: float) -> Family:
        place = self._place(child)
        table, parents = self.tables[place], self.structure.dag.parents[child]
        scope = (*parents, child)
        inside = None if self.zeros is None else self.zeros(table.attributes)
        noisy = table.counts if inside is None else np.where(inside, table.counts, 0.0)
        counts = _arrange(table.attributes, noisy, scope)
        ready = _arrange(table.attributes, self.distributions[place], scope) * max(float(counts.sum()), 1.0)

        def return_table(table: Counts, design: Design, *, prior_count: float = 0.0) -> Floats:
            del table, design, prior_count
            return ready

        design = as_design([quantize(identity(schema[v].n_states)) for v in scope])
        return family_parameters(
            counts,
            design.under(None if self.zeros is None else self.zeros(scope)),
            child,
            parents,
            prior_count=0.0,
            level=level,
            estimator=return_table,
            noise_variance=table.deviation**2 * table.counts.size / counts.size,
        )


def fit(
    columns: Sequence[AnyCodes],
    n_states: Sequence[int],
    *,
    key: bytes,
    noise: Noise,
    tau: float | None = None,
    projection: Projection = "simplex",
    consistent: bool = True,
    constraints: Constraints | None = None,
    scores: Floats | None = None,
    zeros: Zeros | None = None,
) -> Fitted:
    """Algorithms 1 to 4 on the records of one owner; a function of the arguments alone.

    Args:
        columns: (n,) codes of each attribute.
        n_states: K of each.
        key: 32 bytes, secret: of the noise; never of two tables of records.
        noise: how much.
        tau: most cells of a table, chosen without a look at the records; None: `automatic_tau`.
        projection: how negative counts are avoided.
        consistent: tables are made to agree with each other.
        constraints: what the network must and must not have.
        scores: (d, d), private already, in the place of Algorithm 1; needed where `noise` has none for scores.
        zeros: which combinations of some attributes rules leave possible: what stands in others is taken for noise. None: all.

    Raises:
        ValueError: the arguments do not fit each other, or as `discrete_gaussian.draw`.
    """
    n = len(columns[0])
    if noise.records is not None:
        n = counted_records(n, key=key, sigma=noise.records)
    if tau is None:
        tau = automatic_tau(n, noise.table())
    if scores is None:
        if noise.scores is None and len(n_states) > 1:
            raise ValueError("no scores and no noise for them, expected one of the two")
        matrix = noisy_scores(columns, n_states, key=key, sigma=noise.scores) if noise.scores else np.zeros((1, 1))
        scores = matrix.astype(np.float64)
    structure = learn_structure(scores, n_states, tau=tau, constraints=constraints)
    tables = noisy_tables(columns, n_states, structure.tables, key=key, sigma=noise.measurement)
    possible = [None if zeros is None else zeros(table.attributes) for table in tables]
    ready = _distributions(tables, projection, possible, consistent=consistent)
    return Fitted(
        structure=structure, tables=tables, distributions=ready, tau=tau, n_records=n, noise=noise, zeros=zeros
    )


def _distributions(
    tables: Sequence[NoisyTable], projection: Projection, possible: Sequence[Bools | None], *, consistent: bool
) -> tuple[Floats, ...]:
    if not consistent:
        return tuple(project(table.counts, projection, mask) for table, mask in zip(tables, possible, strict=True))
    noisy = [(table.attributes, table.counts) for table in tables]
    variances = [max(table.deviation**2, np.finfo(np.float64).tiny) for table in tables]
    return tuple(distributions(noisy, variances, projection=projection, possible=possible))


def _arrange(attributes: tuple[int, ...], values: Floats, scope: Sequence[int]) -> Floats:
    """Sum values to the attributes of the scope, in its order."""
    remaining = [v for v in attributes if v in scope]
    sums = values.sum(axis=tuple(axis for axis, v in enumerate(attributes) if v not in scope))
    return np.ascontiguousarray(sums.transpose([remaining.index(v) for v in scope]))

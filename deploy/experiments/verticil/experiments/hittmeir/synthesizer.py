"""What the experiments measure: columns of codes to a network, and a network to as many records, by the product's own numerics.

Description: counts of all pairs, their mutual information, the search, counts of the families, parameters. Generation:
`synthesis.sample_codes`. Both are timed in CPU seconds of this process, compilation excluded (`warm_up`).

Where nothing is randomized the fitness is the paper's: the plain mutual information of pairs (its footnote 5), neither corrected
for its bias nor tested, so that every node gets its k parents. Where columns are randomized (every one on its own, symmetric, the
same epsilon) everything is estimated from the released codes with the channel taken into account, and pairs without significant
information get no edge; the randomization is the parties' own `perturb` under keys that the experiment draws.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.experiments.hittmeir.joint_information import JointInformation
from verticil.miner.learning.compiling import compile_kernels
from verticil.miner.learning.scoring.counting import all_pair_tables, family_counts
from verticil.miner.learning.scoring.scores import pair_scores
from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.greedy import GreedySearch
from verticil.miner.learning.search.protocol import SearchProblem, SearchResult, run_search
from verticil.party.dataset.perturb import perturb, record_tags
from verticil.shared.core.arrays import Codes
from verticil.shared.mechanisms.transition import Transition, identity, quantize, symmetric
from verticil.shared.numerics.estimation.information import plug_in_information
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, family_design
from verticil.shared.numerics.estimation.parameters import family_parameters
from verticil.shared.numerics.model.constraints import declared_constraints
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.synthesis.synthesis import sample_codes

MAX_CELLS: Final = 10_000_000
"""Most cells of a family's table where nothing is randomized. The paper has no such limit, and no family here comes near it:
the largest, of Adult at k = 4, has 4 million."""

MAX_RANDOMIZED_CELLS: Final = 20_000
"""The same for randomized columns: the default of a study."""


class Method(StrEnum):
    """How the network is searched."""

    genetic = "genetic"
    greedy = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """A network that hides a variable (the paper's section IV)."""

    target: str
    sensitive: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How records are synthesized.

    Attributes:
        method: of the search.
        k: most parents.
        generations: of the genetic algorithm, e.
        custom: what the network hides; None: an ordinary one.
        epsilon: of every column; None: nothing is randomized.
    """

    method: Method = Method.genetic
    k: int
    generations: int = 400
    custom: Custom | None = None
    epsilon: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Described:
    """A network and what it cost.

    Attributes:
        network: structure and parameters.
        search: how the structure was found.
        seconds: CPU seconds from codes to parameters.
    """

    network: Network
    search: SearchResult
    seconds: float


def describe(columns: Sequence[Codes], schema: Schema, recipe: Recipe, *, seed: int) -> Described:
    """Learn a network.

    Args:
        columns: codes of each variable; where `recipe.epsilon` is given, released ones (`randomized`).
        schema: the variables.
        recipe: how.
        seed: of the search.

    Raises:
        ValueError: greedy search in randomized columns: its information is that of records as they are.
    """
    start = time.process_time()
    n_states = schema.n_states
    channels = _channels(schema, recipe.epsilon)
    units = [ColumnUnit(variables=(v,), domain=None, channel=channel) for v, channel in enumerate(channels)]
    max_cells = MAX_CELLS if recipe.epsilon is None else MAX_RANDOMIZED_CELLS
    constraints = None
    if recipe.custom is not None:
        constraints = declared_constraints(
            schema.names,
            n_states,
            max_parents=recipe.k,
            max_family_cells=max_cells,
            target=recipe.custom.target,
            sensitive=[recipe.custom.sensitive],
        )
    if recipe.method is not Method.genetic:
        weights = np.zeros((len(n_states), len(n_states)))
    elif recipe.epsilon is None:
        weights = _plain(columns, n_states)
    else:
        weights = pair_scores(columns, units, n_states).information
    problem = SearchProblem(
        weights=weights,
        n_states=n_states,
        max_parents=recipe.k,
        max_family_cells=max_cells,
        constraints=constraints,
    )
    if recipe.method is Method.genetic:
        result = run_search(GeneticSearch(generations=recipe.generations), problem, seed=seed)
    elif recipe.epsilon is None:
        result = run_search(GreedySearch(information=JointInformation(columns, n_states)), problem, seed=seed)
    else:
        raise ValueError("greedy search in randomized columns: expected the genetic one")
    by_index = dict(enumerate(columns))
    families = []
    for child, parents in enumerate(result.dag.parents):
        design = family_design(units, n_states, (*parents, child))
        families.append(
            family_parameters(
                family_counts(by_index, design),
                design,
                child,
                parents,
                prior_count=0.0 if recipe.epsilon is None else 0.5,
                level=0.95,
            )
        )
    network = Network(schema=schema, dag=result.dag, families=tuple(families))
    return Described(network=network, search=result, seconds=time.process_time() - start)


def generate(network: Network, n: int, *, seed: int) -> tuple[list[Codes], float]:
    """Draw n records in codes, and the CPU seconds that it took."""
    start = time.process_time()
    codes = sample_codes(network, n, generator=np.random.default_rng([seed, 0x5]))
    return codes, time.process_time() - start


def randomized(columns: Sequence[Codes], schema: Schema, epsilon: float, *, seed: int) -> list[Codes]:
    """Release every column of every record at `epsilon`, under keys that are drawn from the seed: nobody is protected here."""
    generator = np.random.default_rng([seed, 0xE])
    tags = record_tags(generator.bytes(32), map(str, range(len(columns[0]))))
    channels = _channels(schema, epsilon)
    return [
        perturb(generator.bytes(32), tags, column, channel) for column, channel in zip(columns, channels, strict=True)
    ]


def warm_up() -> None:
    """Load what is compiled, so that nothing is compiled while the clock runs."""
    compile_kernels()
    constraints = declared_constraints("abc", (2, 2, 2), max_parents=1, max_family_cells=8, target="a", sensitive=["b"])
    held = SearchProblem(
        weights=np.ones((3, 3)) - np.eye(3),
        n_states=(2, 2, 2),
        max_parents=1,
        max_family_cells=8,
        constraints=constraints,
    )
    run_search(GeneticSearch(population=4, selected=2, generations=1), held, seed=0)


def _plain(columns: Sequence[Codes], n_states: Sequence[int]) -> NDArray[np.float64]:
    """The mutual information of all pairs of columns that are not randomized: (d, d), symmetric, nats."""
    tables = all_pair_tables(columns, n_states)
    weights = np.zeros((len(n_states), len(n_states)))
    for a, b in tables.pairs():
        weights[a, b] = weights[b, a] = plug_in_information(tables.table(a, b))
    return weights


def _channels(schema: Schema, epsilon: float | None) -> list[Transition]:
    if epsilon is not None and not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon {epsilon}, expected a number above 0")
    return [quantize(identity(k) if epsilon is None else symmetric(k, epsilon=epsilon)) for k in schema.n_states]

"""Noise on tables (``[tables]``): which tables a study measures, and how much noise they carry.

The miner counts the randomized columns, adds noise once, and learns from the noisy tables alone. What it publishes is then a
function of them and of the number of people, so what it costs a person is what the tables cost: (epsilon, delta), whatever is
published. The miner itself has the columns; that it draws the noise, and publishes nothing else, is its word.

A person who is replaced moves from one cell to another in each of T tables: 2 T counts change by one, and the noise is
calibrated for that (`verticil.shared.mechanisms.discrete_gaussian.discrete_sigma`). What the randomization adds is not counted.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma, variance
from verticil.shared.related.structure import is_measured, slot_numbers
from verticil.shared.study.document import Study


def tables_of(study: Study) -> tuple[tuple[int, ...], ...]:
    """Return the tables that a study with ``[tables]`` measures, as ascending positions of units, in a fixed order.

    All pairs of units, then the three-way tables in the study's order; of a study with one unit, that unit's own table. A pair
    has all of a compound's combinations, so no compound needs a table of its own. Of a study with related tables the pairs are
    those that it measures (`TablesRule.pairs`).
    """
    n = len(study.units)
    pairs: tuple[tuple[int, ...], ...] = tuple(itertools.combinations(range(n), 2)) if n > 1 else ((0,),)
    if study.measures_by_structure:
        numbers = slot_numbers(study.related)
        slots = [{numbers.get(name) for name in unit.variables} for unit in study.units]
        pairs = tuple(
            units
            for units in pairs
            if any(is_measured(*both) for both in itertools.product(slots[units[0]], slots[units[-1]]))
        )
    triples = () if study.tables is None else study.tables.three_way
    return (*pairs, *(tuple(sorted(map(study.unit_of, names))) for names in triples))


def tables_sigma(study: Study) -> float:
    """Return the parameter of the discrete Gaussian noise on each count of the tables, in people.

    Raises:
        ValueError: the study has no ``[tables]``, or no noise is proved to be enough for what they ask.
    """
    if study.tables is None:
        raise ValueError("the study asks for no noise on tables")
    return discrete_sigma(study.tables.epsilon, study.tables.delta, len(tables_of(study)))


def tables_deviation(study: Study) -> float:
    """Return the standard deviation of one draw of the noise on each count, in people; raises as `tables_sigma`.

    What is on a count in all is for the protocol to say (`study.protocols.table_deviations`): there may be several draws.
    """
    return math.sqrt(variance(tables_sigma(study)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesNoise:
    """How much noise there is on how many counts.

    Attributes:
        tables: how many.
        cells: of all of them together.
        sigma: of the noise on each count, people.
    """

    tables: int
    cells: int
    sigma: float


def tables_noise(study: Study) -> TablesNoise:
    """Return the noise that a study asks for on its tables; raises as `tables_sigma`."""
    return TablesNoise(tables=len(tables_of(study)), cells=cells_of(study), sigma=tables_sigma(study))


def cells_of(study: Study) -> int:
    """Count the cells of all tables together."""
    sizes = [unit.transition.n_states for unit in study.units]
    return sum(math.prod(sizes[unit] for unit in table) for table in tables_of(study))

"""Noise on tables (``[tables]``): which tables a study measures, and how much noise they carry.

The miner counts the randomized columns, adds noise once, and learns from the noisy tables alone. What it publishes is then a
function of them and of the number of people, so what it costs a person is what the tables cost: (epsilon, delta), whatever is
published. The miner itself has the columns; that it draws the noise, and publishes nothing else, is its word.

A person who is replaced moves from one cell to another in each of T tables: 2 T counts change by one, and the noise is
calibrated for that (`verticil.shared.mechanisms.discrete_gaussian.discrete_sigma`). What the randomization adds is not counted.

One owner can measure four sets of tables, each with noise of its own, calibrated together:

1. with `bounds`, the profile of each number: one or two histograms over a public grid, from which its bins follow;
2. with `one_way_part`, each column on its own: where few people or many columns let the shares drown that pairs give;
3. the pairs and triples above;
4. with `resolution = "two"`, each pair with an ordered column once more in runs of neighbouring categories.

A set has the part T / sigma^2 of the sum over all sets: profiles `PROFILE_PART`, single columns `one_way_part` of the rest, runs
`COARSE_PART` of what is left then.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma, discrete_sigmas
from verticil.shared.numerics.estimation.profiles import n_histograms
from verticil.shared.numerics.joint.coarse import pairs_with_order, runs_of
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.related.structure import is_measured, slot_numbers
from verticil.shared.study.document import Study
from verticil.shared.study.typed_variables import EVEN_BINS, value_step


def tables_of(study: Study) -> tuple[tuple[int, ...], ...]:
    """Return the tables that a study with ``[tables]`` measures, as ascending positions of units, in a fixed order.

    All pairs of units, then the three-way tables in the study's order; of a study with one unit, that unit's own table. A pair
    has all of a compound's combinations, so no compound needs a table of its own. Of a study with related tables the pairs are
    those that it measures (`TablesRule.pairs`). With `one_way_part` each unit's own table stands behind them.
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
    own = ((unit,) for unit in range(n)) if measures_columns(study) else ()
    return (*pairs, *(tuple(sorted(map(study.unit_of, names))) for names in triples), *own)


def measures_columns(study: Study) -> bool:
    """Return whether each column is measured on its own, beside the pairs."""
    return study.tables is not None and bool(study.tables.one_way_part) and len(study.units) > 1


PROFILE_PART: Final = 0.05
COARSE_PART: Final = 0.2

Figure = TypeVar("Figure")


@dataclass(frozen=True, slots=True)
class OfSets(Generic[Figure]):
    """A figure for each set of tables: pairs and triples, single columns, the runs, the profiles."""

    pairs: Figure
    columns: Figure
    coarse: Figure
    profiles: Figure


def coarse_pairs(study: Study) -> tuple[tuple[int, ...], ...]:
    """Return the pairs of units that are measured in runs of neighbouring categories, too.

    A column whose bins are measured counts as ordered before they are, so that this depends on no count.
    """
    if study.tables is None or study.tables.resolution != "two":
        return ()
    variables = _single_variables(study)
    orders = [
        () if each is None else range(EVEN_BINS) if each.bounds and each.ordered else each.order for each in variables
    ]
    return pairs_with_order(orders, tables_of(study))


def public_runs(study: Study) -> tuple[NDArray[np.intp], ...]:
    """Return the run of each category of each unit by the study alone, as if each category had as many people.

    Bins that were measured, or that were cut into equal shares, have.
    """
    sizes = [unit.transition.n_states for unit in study.units]
    orders = [() if variable is None else variable.order for variable in _single_variables(study)]
    return tuple(runs_of(np.full(size, 1 / size), order) for size, order in zip(sizes, orders, strict=True))


def _single_variables(study: Study) -> list[Variable | None]:
    """Return the variable of each unit; None: of a compound, which has several."""
    return [None if unit.is_compound else study.schema[study.schema.index(unit.variables[0])] for unit in study.units]


def profiled(study: Study) -> tuple[int, ...]:
    """Return the positions of the variables whose bins are measured."""
    return tuple(place for place, variable in enumerate(study.schema.variables) if variable.bounds is not None)


def set_sizes(study: Study) -> OfSets[int]:
    """Return how many tables each set has."""
    variables = [study.schema[place] for place in profiled(study)]
    profiles = sum(n_histograms(each.bounds, value_step(each)) for each in variables if each.bounds is not None)
    columns = len(study.units) if measures_columns(study) else 0
    return OfSets(len(tables_of(study)) - columns, columns, len(coarse_pairs(study)), profiles)


def has_several_sets(study: Study) -> bool:
    """Return whether there is noise of more than one kind."""
    sizes = set_sizes(study)
    return sizes.columns > 0 or sizes.coarse > 0 or sizes.profiles > 0


def set_sigmas(study: Study) -> OfSets[float | None]:
    """Return the parameter of the noise on each count of each set, in people; None: the set is empty.

    Raises:
        ValueError: as `tables_sigma`.
    """
    if study.tables is None:
        raise ValueError("the study asks for no noise on tables")
    sizes = set_sizes(study)
    epsilon, delta = study.tables.epsilon, study.tables.delta
    if not has_several_sets(study):
        return OfSets(discrete_sigma(epsilon, delta, sizes.pairs), None, None, None)
    rest = 1 - (PROFILE_PART if sizes.profiles else 0)
    columns = rest * (study.tables.one_way_part or 0) if sizes.columns else 0.0
    coarse = (rest - columns) * (COARSE_PART if sizes.coarse else 0)
    pairs = (sizes.pairs, rest - columns - coarse)
    parts = [pairs, (sizes.columns, columns), (sizes.coarse, coarse), (sizes.profiles, 1 - rest)]
    sigmas = iter(discrete_sigmas(epsilon, delta, tuple((n, part) for n, part in parts if n)))
    return OfSets(*(next(sigmas) if n else None for n, _ in parts))


def tables_sigma(study: Study) -> float:
    """Return the parameter of the discrete Gaussian noise on each count of pairs and triples, in people.

    Raises:
        ValueError: the study has no ``[tables]``, or no noise is proved to be enough for what they ask.
    """
    sigma = set_sigmas(study).pairs
    assert sigma is not None
    return sigma


def table_sigmas(study: Study) -> tuple[float, ...]:
    """Return the parameter of the noise on each count of each of `tables_of`, in people; raises as `tables_sigma`.

    It is of one draw. What is on a count in all is for the protocol to say (`study.protocols.table_deviations`).
    """
    sizes, sigmas = set_sizes(study), set_sigmas(study)
    return (sigmas.pairs or 0.0,) * sizes.pairs + (sigmas.columns or 0.0,) * sizes.columns


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

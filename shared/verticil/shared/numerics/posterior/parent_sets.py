"""What a graph may give each variable: its possible sets of parents, each with its weight.

A graph's posterior is proportional to the product over its variables of exp(log weight), local score plus the prior's factor: who
has these tables needs neither data nor rules any more. Required parents are in every set of a variable, parents that tiers,
forbidden edges or a custom network exclude are in none.

Of many variables there are too many sets: with candidates, a variable has the sets of its candidates, and those with one parent
more from outside of them, so that a parent that only helps beside others is not lost.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.model.constraints import Constraints
from verticil.shared.numerics.posterior.local_scores import FamilyValue
from verticil.shared.numerics.posterior.prior import StructurePrior
from verticil.shared.numerics.posterior.tuning import TUNING

Masks = NDArray[np.uint64]
"""Sets of variables: bit u stands for variable u."""

MOST_VARIABLES: Final = 64
_UNIT: Final = 2.0**-36


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParentSets:
    """See the module. Weights are rounded to multiples of 2^-36, so that sums are exact and equal weights are equal.

    Attributes:
        n_variables: d, at most `MOST_VARIABLES`.
        starts: (d + 1,), int64: the sets of variable v stand in ``starts[v] : starts[v + 1]``.
        masks: (total,), uint64: bit u for the parent u.
        log_weight: (total,), nats; of each variable falling, of equals the smaller mask first.

    Raises:
        ValueError: the arrays do not fit each other, or a variable has no set.
    """

    n_variables: int
    starts: Ints
    masks: Masks
    log_weight: Floats

    def __post_init__(self) -> None:
        d = self.n_variables
        if not 1 <= d <= MOST_VARIABLES or self.starts.shape != (d + 1,) or (np.diff(self.starts) < 1).any():
            raise ValueError(f"{d} variables and starts of shape {self.starts.shape}, expected a set for each variable")
        if self.masks.shape != self.log_weight.shape or len(self.masks) != self.starts[-1] or self.starts[0] != 0:
            raise ValueError(f"{len(self.masks)} masks and {len(self.log_weight)} weights, expected {self.starts[-1]}")
        if not np.isfinite(self.log_weight).all():
            raise ValueError("expected finite weights")
        masks, weight = np.array(self.masks, dtype=np.uint64), np.round(self.log_weight / _UNIT) * _UNIT
        for v in range(d):
            part = slice(self.starts[v], self.starts[v + 1])
            order = np.lexsort((masks[part], -weight[part]))
            masks[part], weight[part] = masks[part][order], weight[part][order]
        starts = np.array(self.starts, dtype=np.int64)
        for name, array in (("starts", starts), ("masks", masks), ("log_weight", weight)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def of(self, variable: int) -> tuple[Masks, Floats]:
        """Return the sets of one variable, and their weights."""
        part = slice(self.starts[variable], self.starts[variable + 1])
        return self.masks[part], self.log_weight[part]

    def digest(self) -> bytes:
        """SHA-256 of the sets and their weights."""
        return hashlib.sha256(self.starts.tobytes() + self.masks.tobytes() + self.log_weight.tobytes()).digest()


def parent_sets(
    score: FamilyValue,
    n_states: Sequence[int],
    *,
    max_parents: int,
    max_family_cells: int,
    prior: StructurePrior,
    constraints: Constraints | None = None,
    candidates: Sequence[tuple[int, ...]] | None = None,
    count_ahead: Callable[[int, Sequence[tuple[int, ...]]], None] | None = None,
    raise_if_cancelled: Callable[[], None] | None = None,
    most_sets: int = TUNING.most_sets,
) -> ParentSets:
    """Score every set of parents that a variable may have.

    Args:
        score: of a family; a set whose score is minus infinity is left out.
        n_states: number of categories of each variable.
        max_parents: most parents of a variable.
        max_family_cells: most cells of a family's table (parents and child); a variable alone always fits.
        prior: of the graph.
        constraints: what every graph must meet; None for nothing.
        candidates: of each variable; see the module. None: every variable is a candidate of every other.
        count_ahead: is told a variable and all its sets before they are scored.
        raise_if_cancelled: called between short pieces of work; may raise.
        most_sets: most sets of all variables together.

    Raises:
        Misuse: STUDY_UNSUPPORTED, more variables or sets than can be held. STUDY_INVALID, a variable has no possible set: there
            is no graph.
    """
    d = len(n_states)
    if d > MOST_VARIABLES:
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"structure.method 'posterior': {d} variables, expected at most {MOST_VARIABLES}",
            hint="leave variables out, or use another method",
        )
    starts, masks, weights = [0], [np.empty(0, dtype=np.uint64)], [np.empty(0)]
    for child in range(d):
        if raise_if_cancelled is not None:
            raise_if_cancelled()
        outside: tuple[int, ...] = ()
        core: tuple[int, ...] = ()
        possible = tuple(v for v in range(d) if v != child)
        if constraints is not None:
            core = constraints.parents_required(child)
            possible = tuple(v for v in possible if constraints.allowed[v, child] and v not in core)
        if candidates is not None:
            outside = tuple(v for v in possible if v not in candidates[child])
            possible = tuple(v for v in possible if v in candidates[child])
        families: list[tuple[int, ...]] = []
        for family in _sets(child, core, possible, outside, n_states, max_parents, max_family_cells):
            families.append(family)
            if starts[-1] + len(families) > most_sets:
                raise Misuse(
                    "STUDY_UNSUPPORTED",
                    f"structure.method 'posterior': more than {most_sets} sets of parents of {d} variables with up to "
                    f"{max_parents} parents each, which is the most that can be held",
                    hint="lower structure.max_parents, or let each variable have fewer candidates",
                )
        if count_ahead is not None:
            count_ahead(child, families)
        values: list[float] = []
        for number, family in enumerate(families):
            if raise_if_cancelled is not None and number % 256 == 0:
                raise_if_cancelled()
            values.append(float(score(child, family)) + prior.log(len(family)))
        weight = np.array(values)
        is_finite = weight > -math.inf
        if not is_finite.any():
            name = child if constraints is None else f"'{constraints.names[child]}'"
            raise Misuse(
                "STUDY_INVALID",
                f"structure: variable {name} has no possible set of parents ({len(core)} required, at most {max_parents} "
                f"parents and {max_family_cells} cells of a family), so there is no graph",
                hint="raise max_parents or max_family_cells, or require fewer edges",
            )
        masks.append(np.array([sum(1 << v for v in family) for family in families], dtype=np.uint64)[is_finite])
        weights.append(weight[is_finite])
        starts.append(starts[-1] + int(is_finite.sum()))
    return ParentSets(
        n_variables=d,
        starts=np.array(starts, dtype=np.int64),
        masks=np.concatenate(masks),
        log_weight=np.concatenate(weights),
    )


def _sets(  # noqa: PLR0917  # a variable, who may be its parent, the limits
    child: int,
    core: tuple[int, ...],
    possible: tuple[int, ...],
    outside: tuple[int, ...],
    n_states: Sequence[int],
    max_parents: int,
    max_family_cells: int,
) -> Iterator[tuple[int, ...]]:
    """List the sets of a variable within the limits, each ascending."""
    room = max_parents - len(core)
    base = math.prod(n_states[v] for v in (*core, child))
    for size in range(room + 1):
        families: Iterator[tuple[int, ...]] = itertools.combinations(possible, size)
        if size:
            smaller = itertools.combinations(possible, size - 1)
            families = itertools.chain(families, ((*family, v) for family in smaller for v in outside))
        for family in families:
            if not (core or family) or base * math.prod(n_states[v] for v in family) <= max_family_cells:
                yield tuple(sorted(core + family))

"""What a metric is: of one table in one round, the numbers that are compared over seeds, and rows with more detail.

How it is computed stands in `verticil.evaluate.measures`; what of a round it is given in a module of its family (`fidelity`,
`utility`, `disclosure`, `knowledge`); all of them in their order in `suite`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from verticil.evaluate.figures import Asked, Family
from verticil.evaluate.resampling import Play, Round
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.elimination import Factor

Row = dict[str, float | int | str]

SAMPLE: Final = "another sample of the same people"
INDEPENDENT: Final = "columns that have nothing to do with each other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What metrics need besides the records.

    Attributes:
        labels: of each column, the label of each code.
        target: position of the column that is predicted and attacked.
        support: what the study's rules leave possible; None: there are none.
        functions: name -> of a column that follows from others: the positions of these and its own, and a table, 1 where it does.
        full: without limits.
        telling: positions of the columns that follow from the target by what the study states, and would tell it.
        parties: of each column, who holds it, "" where that is nobody; empty: nothing is known of parties.
    """

    labels: tuple[tuple[str, ...], ...]
    target: int
    support: Support | None
    functions: Mapping[str, Factor]
    full: bool
    telling: tuple[int, ...] = ()
    parties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of one table in one round.

    Attributes:
        values: numbers that are compared over the seeds.
        rows: details, for the first seed of a candidate.
    """

    values: Mapping[str, float]
    rows: Sequence[Row] = ()


Measure = Callable[[Round, Play, Setting], Measured]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric.

    Attributes:
        name: as in ``--only``.
        family: what it is about.
        title: for people.
        measure: computes it.
        says: how it is computed, for the page: sentences.
        figures: which of its values are headline figures.
        needs_rules: whether it needs a study whose knowledge states rules.
        other_people: whether each seed is about other people, so that chance is another one in each.
        by_value: whether it is computed by value, too, where a study's codebook is what counts.
    """

    name: str
    family: Family
    title: str
    measure: Measure
    says: str = ""
    figures: tuple[Asked, ...] = ()
    needs_rules: bool = False
    other_people: bool = False
    by_value: bool = False

    @property
    def attacks(self) -> bool:
        """Whether its references are those of attacks."""
        return self.family == "disclosure"

"""What Martins, Gonçalves & Galletti print: scenarios, tables, which figure shows what; and what is wrong in it.

The figures' points are drawings that are not in the text: what stands beside ours of them are the paper's sentences. Variables
are numbered from 1 in the paper and in all words, from 0 in the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from verticil.shared.numerics.model.graph import Dag

REPLICATES: Final = 10
LEVEL: Final = 0.98
REACHED: Final = 0.85
"""Section 3.1: gamma is the smallest with which the true network's posterior probability exceeds it."""
SETS: Final = 5
"""Of S2."""

GRAPH_COUNTS: Final = (
    1, 2, 25, 543, 29_281, 3_781_503, 1_138_779_265, 783_702_329_343, 1_213_442_454_842_881, 4_175_098_976_430_598_143,
)  # fmt: skip
"""Table 1, of 1 to 10 nodes, as printed."""

SIZES: Final[Mapping[int, tuple[int, ...]]] = {3: (500, 1000, 5000), 4: (1000, 5000), 7: (2000, 5000)}
"""Table 2: variables -> records."""

TRUE_GRAPHS: Final[Mapping[int, Dag]] = {
    3: Dag(parents=((), (0,), ())),
    4: Dag(parents=((), (0,), (3,), ())),
    7: Dag(parents=((), (0,), (), (2, 4), (5, 6), (), ())),
}
"""Table 2's networks."""

TRUE_SHARES: Final[Mapping[int, tuple[tuple[float, ...], ...]]] = {
    3: ((0.5,), (0.3, 0.7), (0.3,)),
    4: ((0.5,), (0.3, 0.7), (0.65, 0.35), (0.4,)),
    7: ((0.5,), (0.3, 0.7), (0.4,), (0.75, 0.4, 0.3, 0.6), (0.2, 0.5, 0.45, 0.8), (0.6,), (0.3,)),
}
"""P(X = 1) of each variable and configuration of its parents, the last parent fastest: ours. The paper says that they lie
between .2 and .8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Of Table 3.

    Attributes:
        found: in how many of 10 replications the true network was the most probable one.
        mean: of its posterior probability in those.
        others: the same mean in the other ones; None where there are none, or nothing is printed.
    """

    found: int
    mean: float
    others: float | None


TABLE_3: Final[Mapping[tuple[int, str, int], Cell]] = {
    (3, "P1", 500): Cell(found=9, mean=0.93, others=0.28),
    (3, "P1", 1000): Cell(found=9, mean=0.93, others=0.23),
    (3, "P1", 5000): Cell(found=9, mean=0.94, others=0.15),
    (3, "P2", 500): Cell(found=10, mean=0.87, others=None),
    (3, "P2", 1000): Cell(found=10, mean=0.88, others=None),
    (3, "P2", 5000): Cell(found=9, mean=0.85, others=0.42),
    (4, "P1", 1000): Cell(found=8, mean=0.89, others=0.19),
    (4, "P1", 5000): Cell(found=8, mean=0.86, others=0.17),
    (4, "P2", 1000): Cell(found=7, mean=0.82, others=0.16),
    (4, "P2", 5000): Cell(found=8, mean=0.86, others=0.20),
    (7, "P1", 2000): Cell(found=5, mean=0.69, others=0.23),
    (7, "P1", 5000): Cell(found=7, mean=0.70, others=0.22),
    (7, "P2", 2000): Cell(found=6, mean=0.71, others=0.30),
    (7, "P2", 5000): Cell(found=7, mean=0.72, others=0.15),
}
"""(variables, prior, records) -> what is printed. P1 is the penalty, P2 the uniform prior."""


# ---- PNAD: five binary variables of 5,651 households


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Of Tables 4 and 5.

    Attributes:
        theirs: the variable and its two categories.
        ours: what stands in for it in NIST's excerpt of the American Community Survey, and its two categories, code 1 first.
        shown: the category of theirs whose share Table 5 prints, and ours.
        code: ours of that one.
        share: theirs.
    """

    theirs: str
    ours: str
    shown: tuple[str, str]
    code: int
    share: float


PNAD_RECORDS: Final = 5651
TABLES_4_5: Final = (
    Column(
        theirs="house: rural or urban",
        ours="HOUSING_TYPE: group quarters (2, 3) or a housing unit (1)",
        shown=("urban", "housing unit"),
        code=0,
        share=0.79,
    ),
    Column(theirs="gender: female or male", ours="SEX: 1 or 2", shown=("male", "1"), code=1, share=0.59),
    Column(theirs="age: > 50 or <= 50", ours="AGEP: <= 50 or > 50", shown=("<= 50", "<= 50"), code=1, share=0.75),
    Column(
        theirs="race: white or brown/black",
        ours="RAC1P: 2 to 9 or 1",
        shown=("brown/black", "2 to 9"),
        code=1,
        share=0.74,
    ),
    Column(
        theirs="income: > or <= the minimum wage",
        ours="PINCP: <= or > its median",
        shown=("<= minimum wage", "<= median"),
        code=1,
        share=0.34,
    ),
)
"""The paper does not say which category is 1. That of X3 and X4 is the shown one, and of X1 the rural one:
P(X3 = 1 | X1 = 1) = .70 beside a share of .75, and P(X4 = 1 | X3 = 1) = .769 beside .74, fit nothing else."""

TABLE_6: Final = (
    (Dag(parents=((), (0, 4), (0,), (2,), (0, 3))), {"P1": 0.256, "P2": 0.131}),
    (Dag(parents=((2, 4), (0, 4), (3,), (4,), ())), {"P1": 0.057, "P2": 0.007}),
)
"""The two most probable networks and their probabilities."""


# ---- the figures

What = Literal["overlap", "mle", "p-value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """What a figure shows, for each of its scenarios.

    Attributes:
        what: the statistic.
        variable: of the share, whose category is 1; of a test the first one.
        given: of the share; of a test the second variable is its only key.
        scenarios: (variables, records), a row of panels each.
    """

    what: What
    variable: int
    given: Mapping[int, int]
    scenarios: tuple[tuple[int, int], ...]

    @property
    def words(self) -> str:
        """As in the paper.

        >>> FIGURES[2].words
        'overlap of the intervals of P(X2 = 1 | X1 = 0)'
        """
        if self.what == "p-value":
            return f"p-value of X{min(self.given) + 1} and X{self.variable + 1} being independent"
        given = ", ".join(f"X{v + 1} = {code}" for v, code in self.given.items())
        share = f"P(X{self.variable + 1} = 1{' | ' + given if given else ''})"
        return f"overlap of the intervals of {share}" if self.what == "overlap" else f"estimate of {share}"


_LARGE: Final = ((3, 5000), (4, 5000), (7, 5000))
_PNAD: Final = ((5, PNAD_RECORDS),)
FIGURES: Final[Mapping[int, PaperFigure]] = {
    2: PaperFigure(what="overlap", variable=1, given={0: 0}, scenarios=_LARGE),
    3: PaperFigure(what="mle", variable=1, given={0: 0}, scenarios=_LARGE),
    4: PaperFigure(what="p-value", variable=1, given={0: 0}, scenarios=_LARGE),
    5: PaperFigure(what="p-value", variable=4, given={0: 0}, scenarios=((7, 2000), (7, 5000))),
    8: PaperFigure(what="overlap", variable=1, given={0: 0}, scenarios=((3, 1000), (4, 1000))),
    9: PaperFigure(what="overlap", variable=2, given={}, scenarios=((3, 500), (3, 1000), (3, 5000))),
    10: PaperFigure(what="overlap", variable=2, given={3: 1}, scenarios=((4, 1000), (4, 5000))),
    11: PaperFigure(what="overlap", variable=3, given={2: 1, 4: 1}, scenarios=((7, 2000), (7, 5000))),
    12: PaperFigure(what="overlap", variable=4, given={5: 0, 6: 1}, scenarios=((7, 2000), (7, 5000))),
    13: PaperFigure(what="mle", variable=0, given={}, scenarios=((3, 500), (3, 1000), (3, 5000))),
    14: PaperFigure(what="mle", variable=2, given={3: 1}, scenarios=((4, 1000), (4, 5000))),
}
"""Of the simulated records; Figure 1 shows gamma."""

PNAD_FIGURES: Final[Mapping[int, tuple[PaperFigure, ...]]] = {
    6: (
        PaperFigure(what="overlap", variable=2, given={0: 1}, scenarios=_PNAD),
        PaperFigure(what="mle", variable=2, given={0: 1}, scenarios=_PNAD),
        PaperFigure(what="p-value", variable=2, given={0: 0}, scenarios=_PNAD),
    ),
    7: (
        PaperFigure(what="overlap", variable=3, given={2: 1}, scenarios=_PNAD),
        PaperFigure(what="mle", variable=3, given={2: 1}, scenarios=_PNAD),
        PaperFigure(what="p-value", variable=3, given={2: 0}, scenarios=_PNAD),
    ),
}

WHAT_WORDS: Final[Mapping[What, str]] = {
    "overlap": "overlap of the 95 % intervals of the real and the synthetic records",
    "mle": "estimates of shares, and how far they are from the real records'",
    "p-value": "p-values of independence, and how far they are from the real records'",
}
ERRATA: Final = (
    "Table 1 prints 2 graphs of two nodes: there are 3",
    "section 3.2 says U(0, 1) priors of the parameters; of three variables and the uniform prior of the graph Table 3's mean "
    "probabilities are near those with BDeu(1), the default of the R package of the paper's sampler, and not near those with "
    "U(0, 1); of four and seven variables neither is near all of them",
    "Figure 14's caption has n = 100 in its upper row, which no scenario of Table 2 has: n = 1000 here",
)

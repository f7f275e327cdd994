"""What one person changes of what PrivBayes measures, and the noise on it.

With C the counts of a pair of attributes, C_a and C_b its margins and n the records, the score is (total variation form)

    S = 1/2 sum_xy |C_xy - C_x C_y / n|.

A record (a, b) that is added to n others changes D = C - C_a C_b^T / n by n/(n+1) (e_a - C_a/n)(e_b - C_b/n)^T, a matrix of rank
one whose entries sum absolutely to 4 (1 - C_a(a)/n)(1 - C_b(b)/n) n/(n+1), so

    |change of S| <= 2 n/(n+1) < 2    a record is added or removed; reached by two unseen values in an independent table
    |change of S| <= 3 n/(n+1) < 3    a record is replaced, n those that stay: of the difference of two such matrices the part
                                      that both have cancels, and six with entries that sum to n/(n+1) are left

The paper's other reading, the largest difference over rectangles of values, is at most half of it; what holds here holds there.

Scores are published as whole numbers: S is rounded, and discrete Gaussian noise is added (`verticil.shared.mechanisms.
discrete_gaussian`). Rounding costs nothing: two numbers less than 2 (3) apart are rounded to whole numbers less than 3 (4) apart,
so at most 2 (3). It is done on whole numbers, S = sum |n C_xy - C_x C_y| / 2n, so that no floating-point number comes between.
A change of less than 2 (3) costs no more than one of 2 (3): the noise's likelihood ratio is monotone, so the best event against
it is x >= t, and P(X + k >= t) - e^epsilon P(X >= t) grows with k for each t.

Bao, Xiao, Zhao, Zhang & Ding, "Synthetic data generation with differential privacy via Bayesian networks", JPC 11(3) 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

Relation = Literal["replace", "add-remove"]
"""Which tables are neighbours: with another record in the place of one (their number is public), or with and without one."""

MEASUREMENTS: Final = 12
"""Independent noisy counts for each attribute, which the tables share among them
(`verticil.shared.numerics.privbayes.measuring`)."""


def score_change(relation: Relation) -> int:
    """Return by how much a person changes each whole-number score at most; see the module.

    >>> score_change("add-remove"), score_change("replace")
    (2, 3)
    """
    return 2 if relation == "add-remove" else 3


def cells_changed(relation: Relation) -> int:
    """Return how many cells of each table a person changes by one."""
    return 1 if relation == "add-remove" else 2


def n_scores(n_attributes: int) -> int:
    """Count the pairs that are scored, m = d (d - 1) / 2; one attribute is in all of them that a person can change."""
    return n_attributes * (n_attributes - 1) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of a run: parameters of discrete Gaussians.

    Attributes:
        relation: which tables are neighbours.
        scores: on each score, sigma_NL; None: scores are given from outside and get no more noise.
        measurement: on each cell of one measurement of a table; `MEASUREMENTS` of them for each attribute are made.
        records: on the number of records, where it is not public; None: it is.

    Raises:
        ValueError: the number of records is to be counted with noise under one relation alone, and is not.
    """

    relation: Relation
    scores: float | None
    measurement: float
    records: float | None

    def __post_init__(self) -> None:
        if (self.records is None) != (self.relation == "replace"):
            raise ValueError(
                f"noise on the number of records {self.records} under {self.relation}: expected some where a record can be "
                "added or removed, and none where their number is public"
            )

    def table(self, measurements: int = MEASUREMENTS) -> float:
        """sigma_NC: of the mean of some measurements of a table. Every table has `MEASUREMENTS` if each attribute has its own."""
        return self.measurement / math.sqrt(measurements)

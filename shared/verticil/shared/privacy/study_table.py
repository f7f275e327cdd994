"""What each draw of a study promises and what can be learned from it, from the study and a number of records alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.privacy.figures import total_epsilon
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.unit import TwoLevel

RECORDS_PER_CELL: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRow:
    """The promise and cost of one draw.

    Attributes:
        variable: its name; the names of a compound, joined by commas.
        is_compound: whether several columns are randomized in the draw.
        party: its owner.
        scheme: as declared.
        two_level: both numbers of a two-level scheme; None for any other.
        subset_size: how many categories a released set has; None where one category is released.
        impossible: how many combinations are removed from a compound.
        read_by: between peers, the parties that read it; None: it goes to the miner.
        masked: nobody reads it, but a dealer of masks with its partner could.
        n_states: K, or the number of a compound's combinations.
        gamma, epsilon: infinite when the column, or a part of it, is sent as it is.
        kept: probability of the true category, or that it is in the set; the smallest over the categories.
        condition_number: of the matrix.
        max_posterior: what a belief of 15 % can become at most.
        half_width: of the 95 % interval of a share of 1/K, at n records.
        effective_records: what n records are worth for a link with a like column.
        too_noisy: see `lint`'s module.
    """

    variable: str
    is_compound: bool
    party: str
    scheme: str
    two_level: TwoLevel | None
    subset_size: int | None
    impossible: int
    read_by: tuple[str, ...] | None
    masked: bool
    n_states: int
    gamma: float
    epsilon: float
    kept: float
    condition_number: float
    max_posterior: float
    half_width: float
    effective_records: float
    too_noisy: bool

    @property
    def is_sent(self) -> bool:
        """Whether it leaves its party at all, in whatever form."""
        return self.read_by is None or bool(self.read_by) or self.masked


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """The table of a study.

    Attributes:
        n: the number of records that the figures are for.
        rows: one for each unit of the study.
        party_totals: (party, epsilon of all its columns of one person that are sent).
        total_epsilon: of all columns of one person that are sent.
        bytes_sent: `Protocol.bytes_sent`.
    """

    n: int
    rows: tuple[ColumnRow, ...]
    party_totals: tuple[tuple[str, float], ...]
    total_epsilon: float
    bytes_sent: int


def study_table(study: Study, n: int | None = None) -> StudyTable:
    """Return what each column promises and can be learned from, and the totals per person.

    Args:
        study: the study.
        n: expected number of common people; default the study's minimum.

    Raises:
        ValueError: `n` is below 1.
    """
    n = study.linkage.minimum_common_records if n is None else n
    protocol = protocol_of(study)
    readable = protocol.readable(study)
    rows: list[ColumnRow] = []
    for index, unit in enumerate(study.units):
        column = privacy.column_privacy(unit)
        records = n * privacy.contrast_factor(unit.transition) ** 4  # see `family_records`; of the column with itself
        rows.append(
            ColumnRow(
                variable=", ".join(unit.variables),
                is_compound=unit.is_compound,
                party=unit.owner,
                scheme=unit.scheme,
                two_level=unit.two_level,
                subset_size=unit.transition.size if isinstance(unit.transition, Subset) else None,
                impossible=len(unit.impossible),
                read_by=protocol.read_by(study, index),
                masked=protocol.opens_tables and index in readable,
                n_states=column.n_states,
                gamma=column.gamma,
                epsilon=column.epsilon,
                kept=column.kept,
                condition_number=column.condition_number,
                max_posterior=column.max_posterior,
                half_width=privacy.half_width_of_share(unit.transition, n),
                effective_records=records,
                too_noisy=records < RECORDS_PER_CELL * column.n_states**2,
            )
        )
    totals = tuple(
        (party, total_epsilon(row.epsilon for row in rows if row.party == party and row.is_sent))
        for party in study.parties
    )
    total = total_epsilon(row.epsilon for row in rows if row.is_sent)
    size = protocol.bytes_sent(study, n)
    return StudyTable(n=n, rows=tuple(rows), party_totals=totals, total_epsilon=total, bytes_sent=size)


def family_records(study: Study, child: int, parents: tuple[int, ...], n: float) -> float:
    """Return how many unrandomized records n records are worth to the node that learns a family: n prod a^2 over its
    randomized columns.

    a is a column's `contrast_factor`, the association of the two categories that are hardest to tell apart. Exact for symmetric
    and binary matrices; a lower bound for the others, where some contrasts are kept better. A party that learns the family has
    its own columns raw.
    """
    members = {study.schema.names[v] for v in (*parents, child)}
    learner = protocol_of(study).learner(study, child)
    factors = [
        privacy.contrast_factor(unit.transition)
        for unit in study.units
        if members & set(unit.variables) and unit.owner != learner
    ]
    return n * math.prod(factor**2 for factor in factors)

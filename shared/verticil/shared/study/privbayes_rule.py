"""What a study's document says of PrivBayes: ``[privbayes]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from verticil.shared.documents.record import OPTIONAL, Key
from verticil.shared.study.vocabulary import NEGATIVE, NEIGHBOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivBayesRule:
    """How PrivBayes measures a whole table: ``[privbayes]``, with the method ``privbayes`` of an owner alone.

    Bao, Xiao, Zhao, Zhang & Ding 2021. Records are drawn as ``[release] sampling`` says: with "independent" and
    ``consistent = false`` naively, with "without-replacement" as the paper proposes.

    Attributes:
        tau: most cells of a table, chosen without a look at the records; None: what the noise allows.
        negative: how negative counts are avoided: ``simplex``, by least squares, or ``clip``, as in the paper.
        consistent: tables are made to agree with each other.
        neighbours: which tables epsilon compares: ``replace``: one person's row is replaced, and the number of people is public;
            ``add-remove``, as in the paper: a person is added or removed, and the number of people is counted with noise.
    """

    tau: Annotated[float | None, OPTIONAL] = None
    negative: Annotated[str, Key(optional=True, choices=NEGATIVE)] = NEGATIVE[0]
    consistent: Annotated[bool, OPTIONAL] = True
    neighbours: Annotated[str, Key(optional=True, choices=NEIGHBOURS)] = NEIGHBOURS[0]

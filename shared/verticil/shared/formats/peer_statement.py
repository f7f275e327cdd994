"""Who did what with whose data in a study of Model I, as the documents of a release say it.

Everything follows from the effective study and the structure: which party learned which family, from which columns of others;
which randomized column went to whom; and what noise covers the parameters, which come from raw data.

What must not be read into it: the epsilon of a randomized column is a promise against those who read the column. It says
nothing about the parameters, which their owner computed from raw values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from verticil.shared.channels.gaussian import share_sigma
from verticil.shared.formats.json_document import Json
from verticil.shared.model.graph import Dag
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import sent_units
from verticil.shared.study.recipients import readers, shared_tables

EXACT_STATEMENT: Final = (
    "The parameters of local variables are exact functions of the raw data of their owner. "
    "No differential privacy protects them. "
    "The parameters of cross variables are exact functions of the raw data of their owner and of the randomized columns that it "
    "read; no differential privacy protects the owner's data in them either."
)
"""Where the study asks for no share noise."""

NOISE_STATEMENT: Final = (
    "Each party added Gaussian noise to every count of its own tables before it computed anything that it shared. "
    "What one party shared is (epsilon, delta) differentially private for the replacement of one person's columns at that party. "
    "The number of common people is public and not covered. The randomized columns that a party sent are not part of this: "
    "their epsilons add to it, for whoever read them and by what others computed from them. "
    "For the columns of one person at all parties together, the parties' epsilons and deltas add up."
)
"""Where it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyOrigin:
    """Where a variable's parameters come from.

    Attributes:
        learned_by: the party that owns the variable and learned them.
        cross_parents: names of its parents at other parties; none: the variable is local.
    """

    learned_by: str
    cross_parents: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``local`` or ``cross`` (Ma & Sivakumar, section 4)."""
        return "cross" if self.cross_parents else "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentColumn:
    """A randomized column that left its party.

    Attributes:
        unit: index of the unit.
        variables: names.
        owner: who sent it.
        scored_by: who read it to score pairs, while the structure was learned.
        read_by: who read it to learn a family.
    """

    unit: int
    variables: tuple[str, ...]
    owner: str
    scored_by: tuple[str, ...]
    read_by: tuple[str, ...]

    @property
    def readers(self) -> tuple[str, ...]:
        """Everybody who read it."""
        return (*self.scored_by, *(party for party in self.read_by if party not in self.scored_by))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatement:
    """What noise covers the parameters.

    Attributes:
        epsilon, delta: of everything that one party shared.
        parties: party -> (number of its tables, standard deviation of the noise on each count before rounding).
    """

    epsilon: float
    delta: float
    parties: Mapping[str, tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatement:
    """All of it.

    Attributes:
        origins: of each variable, in schema order.
        sent: the columns that left their party, in the order of units.
        share: None: the parameters are exact functions of raw data.
        minimum_count: parameters that rest on fewer people were replaced; 0: none was.
    """

    origins: tuple[FamilyOrigin, ...]
    sent: tuple[SentColumn, ...]
    share: ShareStatement | None
    minimum_count: int

    @property
    def exact(self) -> bool:
        """Whether the parameters are exact functions of raw data."""
        return self.share is None

    @property
    def statement(self) -> str:
        """The plain statement."""
        return EXACT_STATEMENT if self.exact else NOISE_STATEMENT

    def document(self) -> Json:
        """For model.json and the manifest."""
        return {
            "exact_parameters": self.exact,
            "statement": self.statement,
            "share": None
            if self.share is None
            else {
                "noise": "gaussian",
                "epsilon": self.share.epsilon,
                "delta": self.share.delta,
                "relation": "replace one person's columns at one party; the number of common people is public",
                "parties": [
                    {"party": party, "tables": tables, "sigma": sigma}
                    for party, (tables, sigma) in self.share.parties.items()
                ],
            },
            "minimum_count": self.minimum_count,
            "columns": [
                {
                    "unit": column.unit,
                    "variables": list(column.variables),
                    "owner": column.owner,
                    "scored_by": list(column.scored_by),
                    "read_by": list(column.read_by),
                }
                for column in self.sent
            ],
        }


def peer_statement(study: Study, dag: Dag) -> PeerStatement:
    """The statement of a study of Model I with this structure.

    Raises:
        ValueError: the study is not of Model I.
    """
    if study.model != "peer" or study.share is None:
        raise ValueError(f"study '{study.id}' is of model '{study.model}', expected 'peer'")
    schema, rule = study.schema, study.share
    learned = study.structure.parents is None
    origins = tuple(
        FamilyOrigin(
            learned_by=variable.owner,
            cross_parents=tuple(schema[p].name for p in parents if schema[p].owner != variable.owner),
        )
        for variable, parents in zip(schema.variables, dag.parents, strict=True)
    )
    sent = tuple(
        SentColumn(
            unit=index,
            variables=study.units[index].variables,
            owner=study.units[index].owner,
            scored_by=readers(study, index, None) if learned else (),
            read_by=readers(study, index, dag),
        )
        for index in sent_units(study, dag)
    )
    share: ShareStatement | None = None
    if rule.epsilon is not None and rule.delta is not None:
        tables = {party: shared_tables(study, party) for party in study.parties}
        share = ShareStatement(
            epsilon=rule.epsilon,
            delta=rule.delta,
            parties={
                party: (count, share_sigma(rule.epsilon, rule.delta, count)) for party, count in tables.items() if count
            },
        )
    return PeerStatement(origins=origins, sent=sent, share=share, minimum_count=rule.minimum_count)

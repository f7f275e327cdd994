"""The protocol ``curator``: one organisation holds the whole table, and learns from tables of it that have noise.

Nobody else takes part: no column leaves, no people are looked for. The owner counts the pairs of columns, adds noise to the
counts (or runs PrivBayes, whose scores and tables have noise), and from then on looks at nothing but these. So whatever is
published is (epsilon, delta) differentially private for the replacement of one person; the number of people is public. That the
owner, the trusted curator, drew the noise as it says cannot be seen from outside.

With ``[privbayes] neighbours = "add-remove"`` the epsilon is about a person who is added or removed, and the number of people is
counted with noise: nothing that is published, and nothing that decides whether something is, comes from the exact one.

One study has no noise: one that samples graphs (`[structure] method = "posterior"`) and names no ``[tables]``. It is learned from
the records as they are, as Martins, Gonçalves & Galletti have it, promises nothing, and is charged without a bound.

A study of it is what `verticil.curator` made of a study document; nodes refuse it, and carry none out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Disclosure, Protocol, Statement
from verticil.shared.study.vocabulary import Inapplicable, fail

_STATEMENT: Final = (
    "One organisation held the whole table. It added discrete Gaussian noise to every count that it used before anything was "
    "learned, so all that is published is (epsilon, delta) differentially private for the replacement of one person's row. The "
    "number of people is public and not covered. That the noise was drawn rests on the organisation's word."
)
_COUNTED: Final = (
    "One organisation held the whole table. It added discrete Gaussian noise to every score and count that it used, and to the "
    "number of people, before anything was learned, so all that is published is (epsilon, delta) differentially private for a "
    "person whose row is added or removed. The accounts state what it costs a person whose row is replaced, and beside it this "
    "epsilon. That the table has people is public and not covered. That the noise was drawn rests on the organisation's word."
)


_EXACT: Final = (
    "One organisation held the whole table, and learned from its records as they are. No differential privacy protects anybody "
    "in what is published: the graphs and their probabilities, the parameters and the synthetic records follow from true values, "
    "without noise, and no epsilon bounds what they tell about a person."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorStatement(Statement):
    """What the noise promises, or that there is none; how much stands in the accounts of the privacy statement.

    Attributes:
        noise: the tables that everything was learned from have noise.
        counted: the number of people has noise, too.
    """

    key = "curator"

    noise: bool = True
    counted: bool = False

    @property
    def exact(self) -> bool:
        """Whether the parameters come from records as they are."""
        return not self.noise

    @property
    def parameters(self) -> str:
        """The noise on all that is published."""
        if self.exact:
            return "no bound: they follow from records as they are"
        return "the noise on the tables that everything was learned from"

    def document(self) -> Json:
        """Return the statement as a document."""
        return {
            "exact_parameters": self.exact,
            "statement": _EXACT if self.exact else _COUNTED if self.counted else _STATEMENT,
            "relation": "add or remove one person; the number of people is counted with noise"
            if self.counted
            else "replace one person; the number of people is public",
        }


def counts_people(study: Study) -> bool:
    """Return whether the number of people is no public one, but counted with noise."""
    return study.privbayes.neighbours == "add-remove"


class Curator(Protocol):
    """One owner of a whole table."""

    name = "curator"
    summary = "one organisation holds the whole table, adds noise to tables of it, and learns from these alone"
    coordinated = False
    shares = False
    counts_families = True
    inapplicable = MappingProxyType(
        dict.fromkeys(
            ("publish", "quorum"), Inapplicable(problem="there is nobody to wait for with the model 'curator'")
        )
    )
    whole_table = True
    sources = "counts of one table, with noise"
    privacy_note = (
        " No column left the organisation that holds the table; what covers everything published is in curator."
    )
    linkage: ClassVar = {
        "keyed-hash": Disclosure(
            mode="none",
            miner=None,
            parties="nothing: there is one table",
            together="nothing: there is one organisation",
        )
    }

    def read_by(self, study: Study, index: int, dag: Dag | None = None) -> tuple[str, ...]:
        """Return no party: nobody reads a column."""
        return ()

    def learner(self, study: Study, child: int) -> str:
        """Return the owner as the learner."""
        return study.schema.variables[child].owner

    def searches_scores(self, study: Study) -> bool:
        """Return False: the owner searches."""
        return False

    def not_permitted(self, study: Study, party: str, recipients: Collection[str]) -> Iterator[str]:
        """Yield one reason: no node carries the study out."""
        yield "model 'curator' is carried out by the owner of a whole table: verticil synthesize"

    def check(self, study: Study, *, source: str) -> None:
        """Check for one party, columns as they are, and noise on the tables."""
        super().check(study, source=source)
        if len(study.parties) != 1:
            fail(
                f"{source}: party", f"{len(study.parties)} parties with the model 'curator', expected the table's owner"
            )
        for unit in study.units:
            if unit.scheme != "none":
                fail(
                    f"{source}: {unit.text}",
                    "expected the scheme 'none': with the model 'curator' tables have the noise",
                )
        if study.tables is None and not study.samples_graphs:
            fail(f"{source}: tables", "missing, expected the epsilon and delta of the noise with the model 'curator'")

    def statement(self, study: Study, dag: Dag) -> CuratorStatement:
        """Return what the noise promises."""
        return CuratorStatement(noise=study.tables is not None, counted=counts_people(study))

    def learned_from(self, study: Study) -> str:
        """Counts with noise, or the records of a study that samples graphs without."""
        return self.sources if study.tables is not None else "the records of one table, as they are"

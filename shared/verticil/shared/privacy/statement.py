"""The privacy figures of a study as the documents of a release carry them: each column's, and the total of one person.

All figures come from the quantized matrices that the parties really sampled from. A compound is one entry: one draw was made for
all its columns. Between peers a column that nobody reads never leaves its site and counts in no total. A column whose matrix has
a zero that another row does not have has no bound: its gamma and epsilon are null and `has_bound` is false; a total with such a
column is null too. What finding the common people revealed stands beside the figures, which do not cover it. What else a study
drew of people's data (`verticil.shared.privacy.events.further`) is listed event by event, with what it costs together with the
columns; a release that lists another event, or another figure, does not verify.

For each reader (`verticil.shared.privacy.accounts`) the statement says what all of the study costs a person whose data are
replaced at all parties: the accountant's figure.

Gamma: A. Evfimievski, J. Gehrke, R. Srikant, "Limiting privacy breaches in privacy preserving data mining", PODS 2003.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from verticil.shared.documents.json_document import Json
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.privacy.accountant import add_or_remove, compose, cost_of, together
from verticil.shared.privacy.accounts import COLUMNS, DEALER, PUBLIC, READERS, Cost, Reader
from verticil.shared.privacy.events import (
    PlannedEvent,
    PrivacyEvent,
    RandomizedColumn,
    column_reader,
    document,
    further,
    plan_events,
    words,
)
from verticil.shared.privacy.masked_figures import FourFigures, four_figures
from verticil.shared.privacy.privbayes import ADD_OR_REMOVE
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Disclosure
from verticil.shared.study.protocols import disclosure, opens_tables, protocol_of

PRIOR = 0.15
"""The suspicion that the examples in the documents start from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatement:
    """What one randomized column tells about one person.

    Attributes:
        variables: the column, or the columns that were randomized in one draw.
        owner: the party.
        scheme: how the matrix was declared.
        two_level: both numbers of a two-level scheme in words; None for any other.
        subset_size: how many categories a released set has; None where one category is released.
        impossible: how many combinations of a compound were declared impossible; they are not among its categories.
        read_by: between peers, the parties that the column goes to, none of them: it never leaves its site; None: the miner.
        masked: nobody reads it, but a dealer of masks with its partner could.
        n_states: K; of a compound the number of its combinations.
        k_measure: at least this many true categories are possible behind every released one.
        gamma: worst ratio of the odds after seeing the released value to the odds before; infinite without a bound.
        gamma_exact: the same as a ratio of whole numbers; None without a bound.
        epsilon: ln gamma; infinite without a bound.
        kept_least, kept_most: smallest and largest probability that a value is released as it is, or is in the released set.
        condition_number: how much the inverse amplifies noise, at most; of a set, of its single categories.
        posterior: what a suspicion of `PRIOR` can become at most.
    """

    variables: tuple[str, ...]
    owner: str
    scheme: str
    two_level: str | None
    subset_size: int | None
    impossible: int
    read_by: tuple[str, ...] | None
    masked: bool
    n_states: int
    k_measure: int
    gamma: float
    gamma_exact: str | None
    epsilon: float
    kept_least: float
    kept_most: float
    condition_number: float
    posterior: float

    @property
    def has_bound(self) -> bool:
        """Whether there is a bound at all."""
        return math.isfinite(self.epsilon)

    @property
    def is_unchanged(self) -> bool:
        """Whether the values were sent as they are."""
        return self.kept_least == 1.0

    @property
    def is_sent(self) -> bool:
        """Whether the column leaves its site at all, in whatever form."""
        return self.read_by is None or bool(self.read_by) or self.masked

    @property
    def set_text(self) -> str | None:
        """What is released in place of one category, in words; None where one category is."""
        if self.subset_size is None:
            return None
        return (
            f"is released as a set of {self.subset_size} of the {self.n_states} categories "
            f"that holds the true one {100 * self.kept_least:.0f} % of the time"
        )

    def document(self) -> Json:
        """Write the figures for a document."""
        return {
            "variables": list(self.variables),
            "owner": self.owner,
            "scheme": self.scheme,
            **({} if self.two_level is None else {"two_level": self.two_level}),
            **({} if self.set_text is None else {"subset_size": self.subset_size, "released": self.set_text}),
            **({"impossible_combinations": self.impossible} if self.impossible else {}),
            **({} if self.read_by is None else {"read_by": list(self.read_by)}),
            **({"masked": True} if self.masked else {}),
            "n_states": self.n_states,
            "bounded": self.has_bound,
            "epsilon": self.epsilon if self.has_bound else None,
            "gamma": self.gamma if self.has_bound else None,
            "gamma_exact": self.gamma_exact,
            "k_measure": self.k_measure,
            "kept_least": self.kept_least,
            "kept_most": self.kept_most,
            "condition_number": self.condition_number,
            "posterior_of_prior_0.15": self.posterior,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStatement:
    """What else was drawn of the people at one party.

    Attributes:
        party: the party.
        planned: the event, of which variables, for whom.
    """

    party: str
    planned: PlannedEvent

    @property
    def cost(self) -> Cost:
        """What it costs each person."""
        return cost_of(self.planned.event)

    @property
    def counts(self) -> bool:
        """Whether it tells whoever reads columns anything."""
        return COLUMNS.sees(self.planned.event.reader)

    @property
    def words(self) -> str:
        """It in one sentence."""
        return words(self.planned.event)

    def document(self) -> Json:
        """Write the event for a document."""
        return {
            "party": self.party,
            "event": document(self.planned.event),
            "words": self.words,
            "variables": list(self.planned.variables),
            "read_by": list(self.planned.readers),
            "epsilon": _finite(self.cost.epsilon),
            "delta": self.cost.delta,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStatement:
    """What a whole study tells one reader of a person.

    Attributes:
        reader: who.
        cost: of replacing the person's data at all parties.
        beside: of adding or removing the person instead, of what was drawn on tables; None: nothing was.
    """

    reader: Reader
    cost: Cost
    beside: Cost | None

    def document(self) -> Json:
        """Write the account for a document."""
        return {
            "account": self.reader.name,
            "reader": self.reader.words,
            "epsilon": _finite(self.cost.epsilon),
            "delta": self.cost.delta,
            **(
                {}
                if self.beside is None
                else {"tables_add_or_remove": {"epsilon": self.beside.epsilon, "delta": self.beside.delta}}
            ),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyStatement:
    """All columns and their total.

    Attributes:
        columns: one for each unit of the study.
        epsilon_per_person: the sum over all columns that are sent; infinite when one of them has no bound.
        posterior_per_person: what a suspicion of `PRIOR` can become at most when all columns are taken together.
        alignment: what finding the common people revealed, to whom.
        note: what the protocol says besides.
        events: what else was drawn, of kinds that have no words of their own.
        accounts: what everything costs, for each reader that something is drawn for, or published to.
        masked: the four figures of a masked study, whose columns nobody reads; None: it is none.
        counted: the number of people is not public, but counted with noise.
    """

    columns: tuple[ColumnStatement, ...]
    epsilon_per_person: float
    posterior_per_person: float
    alignment: Disclosure
    note: str
    events: tuple[EventStatement, ...] = ()
    accounts: tuple[AccountStatement, ...] = ()
    masked: FourFigures | None = None
    counted: bool = False

    @property
    def together(self) -> Cost:
        """What columns and `events` cost one person together, for whoever reads columns, or could read them."""
        dealer = next((account.cost for account in self.accounts if account.reader is DEALER), None)
        if self.masked is not None and dealer is not None:
            return dealer
        columns = (cost_of(RandomizedColumn(epsilon=column.epsilon)) for column in self.sent_columns)
        return compose([*columns, *(event.cost for event in self.events if event.counts)])

    @property
    def has_bound(self) -> bool:
        """Whether the total has a bound."""
        return math.isfinite(self.epsilon_per_person)

    @property
    def bounds_everybody(self) -> bool:
        """Whether what is published tells everybody no more of a person than a finite epsilon."""
        return all(math.isfinite(item.cost.epsilon) for item in self.accounts if item.reader is PUBLIC)

    @property
    def unbounded_variables(self) -> tuple[str, ...]:
        """The variables without a bound."""
        return tuple(name for column in self.sent_columns if not column.has_bound for name in column.variables)

    @property
    def sent_columns(self) -> tuple[ColumnStatement, ...]:
        """The columns that leave their sites."""
        return tuple(column for column in self.columns if column.is_sent)

    @property
    def n_sent(self) -> int:
        """How many variables leave their sites."""
        return sum(len(column.variables) for column in self.sent_columns)

    def of_party(self, party: str) -> float:
        """Return the part of the total that comes from one party's columns."""
        return compose(
            cost_of(RandomizedColumn(epsilon=column.epsilon)) for column in self.sent_columns if column.owner == party
        ).epsilon

    def document(self) -> Json:
        """Write the figures for a document."""
        return {
            "statement": (
                "epsilon = ln gamma; gamma bounds, for every person, the ratio of anybody's odds about that person's "
                "true value after and before seeing the released one. epsilon_per_person is the sum over all columns "
                "and bounds what they tell together. null means that there is no bound."
                f"{self.note}"
            ),
            "epsilon_per_person": self.epsilon_per_person if self.has_bound else None,
            "bounded": self.has_bound,
            "columns": [column.document() for column in self.columns],
            "alignment": dict(self.alignment.document()),
            "accounts": self.accounts_document,
            **({} if self.events_document is None else {"events": self.events_document}),
            **({} if self.masked is None else {"masked": self.masked.document()}),
        }

    @property
    def accounts_document(self) -> Json:
        """What the documents say of `accounts`."""
        return {
            "statement": (
                "(epsilon, delta) of all of this study together, for the replacement of one person's data at all parties; the "
                f"number of people is {'counted with noise' if self.counted else 'public'}. null means that there is no bound."
            ),
            "list": [account.document() for account in self.accounts],
        }

    @property
    def events_document(self) -> Json:
        """What the documents say of `events`; None where there are none."""
        if not self.events:
            return None
        some = "" if all(event.counts for event in self.events) else " that whoever reads columns does not have already"
        if self.masked is not None:
            some = " that a dealer of masks with its partner has"
        return {
            "statement": (
                "What was drawn of people's data besides the columns. epsilon_per_person and delta_per_person are the sums over "
                f"all columns and all of these events{some}. null means that there is no bound."
            ),
            "epsilon_per_person": _finite(self.together.epsilon),
            "delta_per_person": self.together.delta,
            "list": [event.document() for event in self.events],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _column(study: Study, index: int, dag: Dag | None) -> ColumnStatement:
    unit = study.units[index]
    measures = privacy.column_privacy(unit, prior=PRIOR)
    exact = privacy.gamma(unit.transition)
    least, most = privacy.true_probability(unit.transition)
    return ColumnStatement(
        variables=unit.variables,
        owner=unit.owner,
        scheme=unit.scheme,
        two_level=None if unit.two_level is None else unit.two_level.text,
        subset_size=unit.transition.size if isinstance(unit.transition, Subset) else None,
        impossible=len(unit.impossible),
        read_by=protocol_of(study).read_by(study, index, dag),
        masked=opens_tables(study),
        n_states=measures.n_states,
        k_measure=measures.k_measure,
        gamma=measures.gamma,
        gamma_exact=None if exact is None else str(exact),
        epsilon=measures.epsilon,
        kept_least=least,
        kept_most=most,
        condition_number=measures.condition_number,
        posterior=measures.max_posterior,
    )


def privacy_statement(study: Study, dag: Dag | None = None) -> PrivacyStatement:
    """Compute the figures of a study.

    Args:
        study: the effective one, for a statement about what was really sent.
        dag: the structure, where peers learned it: by it the last columns are read. Without it every column counts as sent.
    """
    columns = tuple(_column(study, index, dag) for index in range(len(study.units)))
    reader = column_reader(study)
    column_events = [RandomizedColumn(epsilon=column.epsilon, reader=reader) for column in columns if column.is_sent]
    total, events = compose(map(cost_of, column_events)).epsilon, tuple(_events_of_one_person(column_events, study))
    return PrivacyStatement(
        columns=columns,
        epsilon_per_person=total,
        posterior_per_person=privacy.max_posterior(PRIOR, epsilon=total),
        alignment=disclosure(study),
        note=protocol_of(study).privacy_note,
        events=tuple(
            EventStatement(party=party, planned=item) for party in study.parties for item in further(study, party)
        ),
        accounts=accounts_of(events),
        masked=four_figures(study),
        counted=any(event.relation == ADD_OR_REMOVE for event in events),
    )


def accounts_of(events: Iterable[PrivacyEvent]) -> tuple[AccountStatement, ...]:
    """Return what events cost together, for each reader that something is drawn for, or published to.

    Args:
        events: of one study.
    """
    all_events = tuple(events)
    read = {event.reader for event in all_events}
    accounts: list[AccountStatement] = []
    for reader in READERS:
        if reader in {COLUMNS, PUBLIC} or reader.name in read:
            own_events = [event for event in all_events if reader.sees(event.reader)]
            accounts.append(
                AccountStatement(reader=reader, cost=together(own_events), beside=add_or_remove(own_events))
            )
    return tuple(accounts)


def _events_of_one_person(columns: Sequence[RandomizedColumn], study: Study) -> Iterator[PrivacyEvent]:
    """List what is drawn of a person who is at all parties."""
    yield from columns
    joint: set[PrivacyEvent] = set()  # one draw, which several ledgers record
    for item in (item for party in study.parties for item in plan_events(study, party) if item.unit is None):
        if not (item.joint and item.event in joint):
            yield item.event
        if item.joint:
            joint.add(item.event)

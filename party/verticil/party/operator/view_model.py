"""The view models of a site: what its commands and its page show of a study, as frozen values; no value of a table.

What several of them share is made here: a study's columns, what is asked of them, their noise and their cost. Each is written by
the function of this package that is named like the command, rendered as text by ``verticil.cli``, as JSON by
`verticil.shared.documents.view_models`, and by the local page. In JSON an epsilon without bound is null, but in the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

from verticil.party.config import PartyConfig
from verticil.party.limits.limits import Policy
from verticil.party.local_dataset import origins
from verticil.party.operator.accounts import peer_words, people_words
from verticil.party.policy import approval_checks
from verticil.party.policy.comparison import impossible_words, normalise_words, variable_words
from verticil.party.policy.ledger import Ledger
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.view_models import inlined, left_out
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.privacy.accountant import add_or_remove, cost_of, finite_together, together
from verticil.shared.privacy.accounts import COLUMNS, DEALER, PUBLIC, READERS, Cost, Reader
from verticil.shared.privacy.events import PrivacyEvent, further, kind_of, plan_events, words
from verticil.shared.privacy.figures import column_epsilon, share_cost, total_epsilon
from verticil.shared.privacy.masked_figures import four_figures
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import opens_tables, protocol_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Wider = TypeVar("Wider", bound="DataclassInstance")

COUNTS_TELL: Final = (
    "these counts are for this site's people alone: if you deny because of a count, or speak of it, you tell others something"
    " about the table; verticil party check --no-counts shows no counts"
)
"""What stands before counts of a table, wherever they are shown."""


# ---- parts of what is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyName:
    """Which study.

    Attributes:
        study: its id.
        digest: hexadecimal.
        submitter_by_miner: who submitted it by the miner's word, which nobody here can check; None: it names nobody.
    """

    study: str
    digest: str
    submitter_by_miner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What is wrong, or may be: code, message, hint."""

    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesView:
    """Places for the distinct sets of people that studies were about; see `verticil.party.audit.common_sets`."""

    used: int
    most: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to do when all are taken; nothing as long as there is room."""
        if self.used < self.most:
            return ()
        return (
            f"all {self.most} places for sets of common people are taken: a study about other people is refused, or with"
            " on_small_difference = 'warn' not remembered; a larger policy.max_common_sets makes room",
        )


def places_of(site: Site) -> PlacesView:
    """Count the places of a site that are taken."""
    return PlacesView(used=site.common_sets.places(), most=site.config.policy.max_common_sets)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnView:
    """One unit of this party: from which local columns, how randomized, who reads it.

    Attributes:
        variables, sources: names in the study and in the table.
        scheme: of its noise.
        categories: how many values the unit has.
        epsilon: None: without bound.
        kept: probability with which the true value is reported.
        two_level: both levels in words.
        impossible_combinations: how many a compound leaves out.
        subset_size: of the set that is sent.
        read_by: between peers: by which of them.
    """

    variables: tuple[str, ...]
    sources: tuple[str, ...]
    scheme: str
    categories: int
    epsilon: float | None
    kept: float
    two_level: str | None = left_out()
    impossible_combinations: int | None = left_out()
    subset_size: int | None = left_out()
    read_by: tuple[str, ...] | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedColumn(ColumnView):
    """A unit that is sent, and what is charged for it now."""

    charge_now: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInWords(ColumnView):
    """A unit in words.

    Attributes:
        leaves: whether it is sent at all.
        recipients: to whom.
        words: what happens to it, and what can be learned from it.
    """

    leaves: bool
    recipients: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountCost:
    """What a study costs the people of a data set on one account.

    An epsilon of None is without bound; a limit of None is infinite, or not stated.

    Attributes:
        account, reader: its name, and who that is.
        epsilon, delta: of the study, for the replacement of one person.
        epsilon_add_or_remove, delta_add_or_remove: of what is drawn on tables, as the literature counts; None: nothing is.
        epsilon_before, delta_before: lifetime sums.
        epsilon_after, delta_after: at most, when it is done.
        epsilon_study_limit, delta_study_limit, epsilon_limit, delta_limit: of one study, and for a lifetime.
        limits_stated: whether party.toml states any for this account; else nothing may be drawn for its reader alone.
        masked_epsilon_limit, masked_delta_limit: of all tables of one masked study, where those are permitted: they count here,
            and go without limits of this account's own.
    """

    account: str
    reader: str
    epsilon: float | None
    delta: float
    epsilon_add_or_remove: float | None = left_out()
    delta_add_or_remove: float | None = left_out()
    epsilon_before: float
    delta_before: float
    epsilon_after: float
    delta_after: float
    epsilon_study_limit: float | None
    delta_study_limit: float | None
    epsilon_limit: float | None
    delta_limit: float | None
    limits_stated: bool
    masked_epsilon_limit: float | None = left_out()
    masked_delta_limit: float | None = left_out()

    def figures(self) -> tuple[float | None, ...]:
        """Return what it costs, before any limit."""
        beside = (self.epsilon_add_or_remove, self.delta_add_or_remove)
        sums = (self.epsilon_before, self.delta_before, self.epsilon_after, self.delta_after)
        return (self.epsilon, self.delta, *beside, *sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """Epsilon and delta of a study for a data set, the lifetime sums before and at most after it, and their limits.

    Attributes:
        accounts: the same for each reader; what stands above is that of whoever reads columns.
        people: what party.toml says of the people (`accounts.people_words`).
        peers: what a peer would be told at most that reads columns and published tables; None: what `accounts` begins with.
    """

    dataset: str
    epsilon: float | None
    lifetime_before: float
    lifetime_after_at_most: float
    lifetime_limit: float | None
    delta: float
    delta_before: float
    delta_after_at_most: float
    delta_limit: float | None
    accounts: tuple[AccountCost, ...] = ()
    people: tuple[str, ...] | None = left_out()
    peers: str | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """A privacy event besides columns: its kind, in words, of which columns, for whom, at which cost; None: without bound."""

    event: str
    words: str
    columns: tuple[str, ...]
    recipients: tuple[str, ...]
    epsilon: float | None
    delta: float

    @property
    def text(self) -> str:
        """Return the event as a line for people."""
        return f"besides, of {', '.join(self.columns)}, to {', '.join(self.recipients)}: {self.words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of one column, or of several together, in words."""

    columns: tuple[str, ...]
    sources: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What a study asks of this party's tables: how each of its columns is encoded, and how ids are compared."""

    asked: tuple[Question, ...]
    normalise_words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareView:
    """What this party tells its peers besides columns.

    Attributes:
        exact: without noise.
        scores: of pairs of columns, to the miner, too.
        epsilon, delta: of the noise.
        minimum_count: parameters that rest on fewer people are replaced.
    """

    exact: bool
    scores: bool
    epsilon: float | None
    delta: float | None
    minimum_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedColumn:
    """A column that a peer has deleted."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedDeletion:
    """What a peer has signed: what it deleted, when, and whether it keeps the published release."""

    deleted_at: str
    columns: Mapping[str, DeletedColumn]
    parameters: bool
    keeps_release: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Whether a peer has confirmed the deletion after a revocation."""

    peer: str
    confirmed: bool
    deletion: SignedDeletion | None = inlined()


# ---- party status


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonView:
    """How the daemon is; `last_seen` and `problem` are its own last words."""

    running: bool
    last_seen: str | None
    connected: bool
    link: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Numbers of the last bundles in both directions, of a site whose files are carried, and when the last one passed."""

    exported: int | None
    imported: int | None
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSpent:
    """What was spent of one account of a data set's lifetime budget.

    Attributes:
        account, reader: its name, and who that is.
        epsilon_spent, delta_spent: the sums over studies, which count.
        epsilon_limit, delta_limit: for a lifetime; None: infinite, or not stated.
        limits_stated: whether party.toml states any for this account; else nothing may be drawn for its reader alone.
        masked_epsilon_limit, masked_delta_limit: of all tables of one masked study, where those are permitted: they count here,
            and go without limits of this account's own.
    """

    account: str
    reader: str
    epsilon_spent: float
    delta_spent: float
    epsilon_limit: float | None
    delta_limit: float | None
    limits_stated: bool
    masked_epsilon_limit: float | None = left_out()
    masked_delta_limit: float | None = left_out()

    def figures(self) -> tuple[float, ...]:
        """Return what was spent, before any limit."""
        return (self.epsilon_spent, self.delta_spent)

    @property
    def remaining(self) -> Cost:
        """What may still be spent; infinite where there is no limit."""
        epsilon, delta = (math.inf if most is None else most for most in (self.epsilon_limit, self.delta_limit))
        return Cost(epsilon=epsilon, delta=delta) - Cost(epsilon=self.epsilon_spent, delta=self.delta_spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was spent of a data set's lifetime budget; None: there is no limit.

    Attributes:
        accounts: the same for each reader; what stands above is that of whoever reads columns.
        people: what party.toml says of the people (`accounts.people_words`).
        peers: what a peer was told at most that reads columns and published tables; None: what `accounts` begins with.
    """

    dataset: str
    epsilon_spent: float
    epsilon_lifetime_limit: float | None
    accounts: tuple[AccountSpent, ...] = ()
    people: tuple[str, ...] | None = left_out()
    peers: str | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a study says, as this party declares its columns."""

    title: str
    purpose: str
    parties: tuple[str, ...]
    expires: str
    columns: tuple[ColumnView, ...]
    epsilon: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStatus(StudyName):
    """Where a study stands at this party.

    Attributes:
        state: the study's, in lower case.
        stage, percent, since: what this party does, how far, and since when.
        approvals, approvers_needed: votes.
        miner_forgot: what the miner does not know any more.
        proposal: None: it cannot be read with this table or declaration, as `objections` says.
    """

    state: str
    stage: str
    percent: int
    since: str | None
    seen_at: str
    approved: bool
    denied: bool
    revoked: bool
    approvals: int
    approvers_needed: int
    common_records: int | None
    miner_forgot: str | None
    failure: Notice | None
    ended_words_of_miner: str | None
    proposal: Proposal | None = inlined()
    objections: tuple[str, ...]
    share: ShareView | None = left_out()
    confirmations: tuple[Confirmation, ...] | None = left_out()


# ---- how shared parts are made


class NameKeys(TypedDict):
    """The fields of `StudyName`."""

    study: str
    digest: str
    submitter_by_miner: str | None


def name_keys(record: StudyRecord) -> NameKeys:
    """Return which study it is, as the fields of every `StudyName`."""
    return {
        "study": record.study_id,
        "digest": record.digest.hex(),
        "submitter_by_miner": record.task.submitter or None,
    }


def notice_of(error: VerticilError) -> Notice:
    """Return the notice that shows an error."""
    return Notice(code=error.code, message=error.message, hint=error.hint)


def number(value: float) -> float | None:
    """Return the number; None for infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def columns(config: PartyConfig, study: Study, charges: Mapping[int, float]) -> tuple[ColumnView, ...]:
    """Return this party's units: their local columns, randomization, readers, and what is charged of those in `charges`."""
    sources = {variable: place.source for variable, place in origins(config, study).items()}
    rows: list[ColumnView] = []
    for index in study.units_of(config.name):
        unit = study.units[index]
        readers = protocol_of(study).read_by(study, index)
        row = ColumnView(
            variables=tuple(unit.variables),
            sources=tuple(sources[variable] for variable in unit.variables),
            scheme=unit.scheme,
            categories=unit.transition.n_states,
            epsilon=number(column_epsilon(unit.transition)),
            kept=privacy.true_probability(unit.transition)[0],
            two_level=None if unit.two_level is None else unit.two_level.text,
            impossible_combinations=len(unit.impossible) or None,
            subset_size=unit.transition.size if isinstance(unit.transition, Subset) else None,
            read_by=None if readers is None else tuple(readers),
        )
        rows.append(widen(row, ChargedColumn, charge_now=number(charges[index])) if index in charges else row)
    return tuple(rows)


def widen(view: DataclassInstance, wider: type[Wider], **more: object) -> Wider:
    """Return a view model as one of a class that has more fields."""
    return wider(**{field.name: getattr(view, field.name) for field in fields(view)}, **more)


def cost(config: PartyConfig, site: Site, study: Study) -> tuple[CostView, ...]:
    """Return, for each data set, epsilon and delta of the study, the lifetime sums before and at most after it, and their
    limits.
    """
    places = origins(config, study)
    events: dict[str, list[PrivacyEvent]] = {
        places[study.units[index].variables[0]].account: [] for index in study.units_of(config.name)
    }
    for item in plan_events(study, config.name):
        for dataset in dict.fromkeys(places[name].account for name in item.variables):
            events[dataset].append(item.event)
    costs: list[CostView] = []
    for name, account_events in events.items():
        accounts = tuple(
            _account_cost(reader, config.policy, site.ledger.sum_charges(name, reader), account_events)
            for reader in shown_readers(config.policy, site.ledger, name, account_events)
        )
        columns = accounts[0]
        costs.append(
            CostView(
                dataset=name,
                epsilon=columns.epsilon,
                lifetime_before=columns.epsilon_before,
                lifetime_after_at_most=columns.epsilon_after,
                lifetime_limit=columns.epsilon_limit,
                delta=columns.delta,
                delta_before=columns.delta_before,
                delta_after_at_most=columns.delta_after,
                delta_limit=columns.delta_limit,
                accounts=accounts,
                people=people_words(config.policy.same_people, name),
                peers=told_peers(site.ledger, name, account_events),
            )
        )
    return tuple(costs)


def shown_readers(
    policy: Policy, ledger: Ledger, dataset: str, events: Iterable[PrivacyEvent] = ()
) -> tuple[Reader, ...]:
    """List the accounts that people see: of readers of columns, of everybody, and others where there is something to say."""
    read = {event.reader for event in events}
    return tuple(
        reader
        for reader in READERS
        if reader in {COLUMNS, PUBLIC}
        or (policy.limits_of(reader) is not None and (reader is not DEALER or policy.masked.allow))
        or reader.name in read
        or ledger.sum_charges(dataset, reader) != ledger.sum_charges(dataset)
    )


def _account_cost(reader: Reader, policy: Policy, spending: Cost, new_events: Iterable[PrivacyEvent]) -> AccountCost:
    limits, masked = policy.limits_of(reader), _masked_limits(reader, policy)
    events = [event for event in new_events if reader.sees(event.reader)]
    cost, bounded_cost, beside = together(events), finite_together(events), add_or_remove(events)
    return AccountCost(
        account=reader.name,
        reader=reader.words,
        epsilon=number(cost.epsilon),
        delta=cost.delta,
        epsilon_add_or_remove=None if beside is None else beside.epsilon,
        delta_add_or_remove=None if beside is None else beside.delta,
        epsilon_before=spending.epsilon,
        delta_before=spending.delta,
        epsilon_after=(spending + bounded_cost).epsilon,
        delta_after=(spending + bounded_cost).delta,
        epsilon_study_limit=None if limits is None else number(limits.study.epsilon),
        delta_study_limit=None if limits is None else number(limits.study.delta),
        epsilon_limit=None if limits is None else number(limits.lifetime.epsilon),
        delta_limit=None if limits is None else number(limits.lifetime.delta),
        limits_stated=limits is not None,
        masked_epsilon_limit=None if masked is None else masked.epsilon,
        masked_delta_limit=None if masked is None else masked.delta,
    )


def spending_of_each(site: Site) -> tuple[Spent, ...]:
    """Return what was spent of the lifetime budget of each data set of party.toml and of the ledger."""
    config, ledger = site.config, site.ledger
    return tuple(
        Spent(
            dataset=name,
            epsilon_spent=ledger.sum_charges(name).epsilon,
            epsilon_lifetime_limit=number(config.policy.max_epsilon_lifetime),
            accounts=tuple(
                account_spent(reader, config.policy, ledger.sum_charges(name, reader))
                for reader in shown_readers(config.policy, ledger, name)
            ),
            people=people_words(config.policy.same_people, name),
            peers=told_peers(ledger, name),
        )
        for name in account_names(site)
    )


def told_peers(ledger: Ledger, dataset: str, events: Iterable[PrivacyEvent] = ()) -> str | None:
    """Return the most that a peer learns that reads columns and published tables, with what a study draws; None: as said
    anyway.
    """

    def after(reader: Reader) -> Cost:
        return ledger.sum_charges(dataset, reader) + finite_together(
            event for event in events if reader.sees(event.reader)
        )

    return peer_words(after(COLUMNS), after(PUBLIC))


def account_names(site: Site) -> tuple[str, ...]:
    """Return the names of all accounts: of the data sets of party.toml, then of those of the ledger besides."""
    names = [*site.config.datasets, *site.ledger.datasets()]
    return tuple(dict.fromkeys(map(site.ledger.account, names)))


def _masked_limits(reader: Reader, policy: Policy) -> Cost | None:
    """Return what all tables of one masked study may tell a reader for whom they count, and need no limits of the
    account's own.
    """
    return policy.masked.most if reader is PUBLIC and policy.masked.allow else None


def account_spent(reader: Reader, policy: Policy, total: Cost) -> AccountSpent:
    """Return what was spent of an account."""
    limits, masked = policy.limits_of(reader), _masked_limits(reader, policy)
    return AccountSpent(
        account=reader.name,
        reader=reader.words,
        epsilon_spent=total.epsilon,
        delta_spent=total.delta,
        epsilon_limit=None if limits is None else number(limits.lifetime.epsilon),
        delta_limit=None if limits is None else number(limits.lifetime.delta),
        limits_stated=limits is not None,
        masked_epsilon_limit=None if masked is None else masked.epsilon,
        masked_delta_limit=None if masked is None else masked.delta,
    )


def further_events(study: Study, party: str) -> tuple[EventView, ...]:
    """Describe each event that a study draws of this party's data besides what its columns and its share noise say."""
    return tuple(
        EventView(
            event=kind_of(item.event).name,
            words=words(item.event),
            columns=tuple(item.variables),
            recipients=tuple(item.readers),
            epsilon=number(cost_of(item.event).epsilon),
            delta=cost_of(item.event).delta,
        )
        for item in further(study, party)
    )


def figure_words(site: Site, study: Study) -> tuple[str, ...] | None:
    """Describe the four figures of a masked study in words, for this party's people; None: it is none.

    What the miner had before of its columns is what this party's ledger charged for whoever reads columns.
    """
    if not opens_tables(study):
        return None
    sources: dict[str, set[str]] = {}
    for place in origins(site.config, study).values():
        sources.setdefault(place.account, set()).add(place.source)
    before = total_epsilon(site.ledger.told_of(name, columns) for name, columns in sources.items())
    figures = four_figures(study, party=site.config.name, before=before)
    return None if figures is None else figures.words


def questions(config: PartyConfig, study: Study) -> Questions:
    """Return what a study asks of this party's tables, in words: how each of its columns is encoded, and how ids are
    compared.
    """
    sources = {variable: place.source for variable, place in origins(config, study).items()}
    question_list: list[Question] = []
    for index in study.units_of(config.name):
        for name in study.units[index].variables:
            own = list(variable_words(study.schema[study.schema.index(name)]))
            if finer := study.knowledge and len(study.knowledge.properties(name)):
                own.append(
                    f"{finer} finer values that the study lists are written as their category, before anything else"
                )
            question_list.append(Question(columns=(name,), sources=(sources[name],), words=tuple(own)))
        if words := impossible_words(study, index):
            names = tuple(study.units[index].variables)
            question_list.append(
                Question(columns=names, sources=tuple(sources[name] for name in names), words=tuple(words))
            )
    return Questions(asked=tuple(question_list), normalise_words=normalise_words(study.linkage.normalise))


def total(review: approval_checks.Review) -> float:
    """Epsilon of one person: of the units that are sent."""
    sent_units = protocol_of(review.study).readable(review.study)
    return total_epsilon(
        column_draw.epsilon for index, column_draw in review.column_draws.items() if index in sent_units
    )


def share(study: Study) -> ShareView | None:
    """Return what this party sends its peers besides columns; None in a study with a miner."""
    rule, cost = study.share, share_cost(study)
    if rule is None or cost is None:
        return None
    exact = math.isinf(cost.epsilon)
    return ShareView(
        exact=exact,
        scores=study.structure.parents is None,
        epsilon=None if exact else cost.epsilon,
        delta=None if exact else cost.delta,
        minimum_count=rule.minimum_count,
    )

"""Privacy events: what a party does that tells something about its people, as data. The registry of their kinds.

An event holds the parameters of a mechanism and nothing that was computed from them: what it costs is the accountant's to say
(`verticil.shared.privacy.accountant`). The ledger keeps events, a study causes them (`plan_events`), and approvals, the ledger's
listing, reports and releases say them in the words of their kind.

Promises
- A kind is one subclass of `PrivacyEvent` and one call of `register`: its name, its cost, its words, and which events of it a
  study causes at a party. Nothing else in the program knows the kinds apart.
- An event of a kind that is not registered is refused by name, wherever it turns up: it is never taken to cost nothing. A ledger
  that has one still opens: what it cost was written down when it was charged, and counts (`verticil.party.policy.ledger_sums`).
- A kind of another package of this project is registered when an event of it is read: the package names in its entry points, in
  the group ``verticil.events``, the kind and the module that registers it (`verticil.shared.core.plugins`).
- An event is written as one JSON object with sorted keys, and read back equal: numbers as they are, infinity as "infinite".

The neighbouring relation of all kinds here is the replacement of one person: the number of people is public
(`verticil.shared.mechanisms.gaussian`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from verticil.shared.core import plugins
from verticil.shared.core.errors import Refusal
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.discrete_gaussian import LEAST_SIGMA_OF_A_SUM, MOST_OF_A_SUM, discrete_sigma
from verticil.shared.mechanisms.gaussian import analytic_sigma
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, GaussianLoss, Loss, delta_at, epsilon_at
from verticil.shared.mechanisms.shared_statistics_noise import DISCRETE
from verticil.shared.privacy.accounts import COLUMNS, DEALER, KNOWN, MASKED, MINER_ALONE, NOTHING, OTHERS, PUBLIC, Cost
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import measures_itself, opens_tables, protocol_of, recipients_of, sent_units
from verticil.shared.study.tables import has_several_sets, tables_of, tables_sigma

REPLACE_ONE: Final = "replace one person"
"""Tables are neighbours when the columns of one person are others; how many people there are is the same."""
_INFINITE: Final = "infinite"
LATER: Final = "later"
"""Metadata of a field that events had only later: where it has its default it is not written, as before."""
GROUP: Final = "verticil.events"
"""Of entry points: name of a kind -> the module that registers it."""

WORD_OF_MINER: Final = "This rests on the miner's word: it has the columns, draws the noise, and could publish without"

Parameter = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyEvent:
    """What was drawn from people's data: the parameters of one mechanism. A kind is a subclass, whose fields are its parameters.

    Attributes:
        sensitivity: by how much the statistics before the noise can differ between two neighbouring tables, in the norm of the
            mechanism; None: of no meaning for it, or not recorded.
        relation: which tables are neighbours.
        reader: who reads what is drawn, a name of `verticil.shared.privacy.accounts.KNOWN`.
    """

    sensitivity: float | None = None
    relation: str = REPLACE_ONE
    reader: str = COLUMNS.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomizedColumn(PrivacyEvent):
    """A value of each person was replaced by a random one (or by a set of them), independently: local differential privacy.

    Attributes:
        epsilon: ln gamma of the matrix that was sampled from (`verticil.shared.mechanisms.privacy`); infinite with a zero cell.
    """

    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Linkage(PrivacyEvent):
    """People were linked, and others were told who is common, whether anything of them is drawn then or not.

    Attributes:
        mode: of linkage.
    """

    mode: str
    reader: str = MASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianCounts(PrivacyEvent):
    """Gaussian noise, rounded to whole numbers, was added to every count of tables; the sensitivity is L2, over all the tables.

    Attributes:
        epsilon, delta: that the noise was calibrated for (`verticil.shared.mechanisms.gaussian.share_sigma`).
        tables: how many; None: not recorded.
    """

    epsilon: float
    delta: float
    tables: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussianCounts(PrivacyEvent):
    """Discrete Gaussian noise was added to every count of tables; the sensitivity is L2, over all the tables.

    A person who is replaced moves from one cell to another in every table, so 2 T counts change by 1, and the losses are those of
    2 T independent draws. Where several contribute, each draws noise of parameter sigma / sqrt(contributors), at least
    `LEAST_SIGMA_OF_A_SUM`; their sum is the discrete Gaussian of parameter sigma but for a factor far below what is rounded up.

    C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020; P. Kairouz, Z. Liu,
    T. Steinke, "The distributed discrete Gaussian mechanism", ICML 2021.

    Attributes:
        sigma: parameter of the noise on each count, > 0; of a sum, of all contributors together.
        tables: T, at least 1.
        delta: at which epsilon is told, 0 < delta < 1.
        epsilon: that sigma was calibrated for, which is what the event costs if it is proved to be enough, and only then; None:
            it costs the least epsilon that is proved.
        contributors: independent draws that are added up on each count, 1 to `MOST_OF_A_SUM`.
        sampler: name of the algorithm that drew.

    Raises:
        ValueError: a parameter is out of its range.
    """

    sigma: float
    tables: int
    delta: float
    epsilon: float | None = None
    contributors: int = 1
    sampler: str = DISCRETE

    def __post_init__(self) -> None:
        if not (0 < self.sigma < math.inf and 0 < self.delta < 1 and self.tables >= 1):
            raise ValueError(
                f"noise of sigma {self.sigma:g} on {self.tables} tables at delta {self.delta:g}: expected a finite sigma > 0, "
                "at least one table, and 0 < delta < 1"
            )
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise ValueError(f"noise for epsilon {self.epsilon:g}, expected a finite number > 0")
        each = self.sigma / math.sqrt(max(self.draws, 1))
        if not 1 <= self.contributors <= MOST_OF_A_SUM:
            raise ValueError(f"{self.contributors} contributors of noise, expected 1 to {MOST_OF_A_SUM}")
        if self.draws > 1 and each < LEAST_SIGMA_OF_A_SUM * (1 - 1e-12):
            raise ValueError(
                f"noise of sigma {each:.4g} of each of {self.contributors} contributors, expected at least "
                f"{LEAST_SIGMA_OF_A_SUM:g}: below it nothing is proved of their sum"
            )

    @property
    def draws(self) -> int:
        """How many draws make up a noise of parameter `sigma`."""
        return self.contributors


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyTables(DiscreteGaussianCounts):
    """A miner added discrete Gaussian noise to every count of tables of randomized columns, and publishes what follows from them.

    What the randomization adds to the noise is not counted: the bound holds for tables of raw columns, too. Nobody but the miner
    sees that the noise was drawn, and that nothing else is published.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PureMechanism(PrivacyEvent):
    """A mechanism of pure differential privacy was run: whatever comes out is at most e^epsilon times as likely for a neighbour.

    Attributes:
        epsilon: finite, > 0.
        mechanism: what it is called, for people.

    Raises:
        ValueError: epsilon is not positive, or infinite.
    """

    epsilon: float
    mechanism: str

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon {self.epsilon:g} of {self.mechanism}, expected a finite number > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactStatistics(PrivacyEvent):
    """Exact functions of the data were shared. No bound holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    """An event that a study causes at a party.

    Attributes:
        event: what will happen.
        variables: of which variables of the party, in the study's order.
        readers: who gets to see what is drawn, in the study's order: names of parties, or ``miner``.
        unit: index of the study's unit; None: it is of no single unit.
        joint: one draw of several parties' people, which each of their ledgers records: totals over parties count it once.
    """

    event: PrivacyEvent
    variables: tuple[str, ...]
    readers: tuple[str, ...]
    unit: int | None = None
    joint: bool = False


E = TypeVar("E", bound=PrivacyEvent)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind(Generic[E]):
    """A kind of privacy event.

    Attributes:
        name: in ledgers, audit logs and releases; for ever.
        event: its class.
        cost: what one event costs.
        words: one sentence on what it is and promises, for approvals, the ledger's listing and reports.
        of_study: the events of this kind that a study causes at one of its parties, from the study alone.
        has_own_words: whether screens and documents word this kind from the study's own keys (its units, its ``share``); of any
            other they list the events of a study, with `words`, under ``events``.
        losses: the privacy losses of one event, closer than `cost` tells, for numerical composition; None: `cost` is all.
        add_or_remove: the losses of one event for a person who is added or removed instead, told at the delta of `cost`, beside
            it, because the literature counts so; None, and no losses: it means nothing for this kind, or for this event.
        deviation: standard deviation of the noise on each count, for the plan of a study; None: it adds none to counts.
    """

    name: str
    event: type[E]
    cost: Callable[[E], Cost]
    words: Callable[[E], str]
    of_study: Callable[[Study, str], Iterable[PlannedEvent]]
    has_own_words: bool = False
    losses: Callable[[E], Counter[Loss]] | None = None
    add_or_remove: Callable[[E], Counter[Loss]] | None = None
    deviation: Callable[[E], float | None] | None = None


_KINDS: Final[dict[str, EventKind[Any]]] = {}


def register(kind: EventKind[E]) -> None:
    """Make a kind of event known.

    Args:
        kind: of a class that is no other kind's.

    Raises:
        ValueError: its name or its class is taken.
    """
    if kind.name in _KINDS or any(kind.event is other.event for other in _KINDS.values()):
        raise ValueError(f"the kind of privacy event '{kind.name}', or its class, is registered already")
    _KINDS[kind.name] = kind


def kind_names() -> tuple[str, ...]:
    """Return the names of all kinds that are registered, in order."""
    return tuple(_KINDS)


def kind_of(event: PrivacyEvent) -> EventKind[Any]:
    """Return the kind of an event.

    Raises:
        Refusal: POLICY_REFUSED, its class is not registered.
    """
    return _KINDS[name_of(type(event))]


def name_of(event: type[PrivacyEvent]) -> str:
    """Return the name of the kind that a class of events is.

    Raises:
        Refusal: POLICY_REFUSED, it is not registered.
    """
    name = next((kind.name for kind in _KINDS.values() if kind.event is event), None)
    if name is None:
        raise _unknown(event.__name__)
    return name


def words(event: PrivacyEvent) -> str:
    """Describe an event in one sentence; raises as `kind_of`."""
    return kind_of(event).words(event)


def plan_events(study: Study, party: str) -> tuple[PlannedEvent, ...]:
    """List everything that a study does with the data of one party's people: columns first, in the study's order.

    Args:
        study: with the party's own declaration.
        party: one of its parties.
    """
    return tuple(item for kind in _KINDS.values() for item in kind.of_study(study, party))


def further(study: Study, party: str) -> tuple[PlannedEvent, ...]:
    """List of `plan_events` what is worded from nothing else than the kind of event."""
    return tuple(item for item in plan_events(study, party) if not kind_of(item.event).has_own_words)


def to_json(event: PrivacyEvent) -> str:
    """Write an event as text; raises as `kind_of`.

    >>> print(to_json(RandomizedColumn(epsilon=1.5)))
    {"epsilon": 1.5, "kind": "randomized-column", "relation": "replace one person", "sensitivity": null}
    """
    return json.dumps(document(event), sort_keys=True, allow_nan=False)


def document(event: PrivacyEvent) -> dict[str, Parameter]:
    """Write an event as JSON values: its kind and its parameters; raises as `kind_of`."""
    values = {
        item.name: getattr(event, item.name)
        for item in dataclasses.fields(event)
        if not (item.metadata.get(LATER) and getattr(event, item.name) == item.default)
    }
    if event.reader == COLUMNS.name:
        del values["reader"]  # every event's, before there were accounts for others
    return {
        "kind": kind_of(event).name,
        **{name: _INFINITE if value == math.inf else value for name, value in values.items()},
    }


def from_json(text: str) -> PrivacyEvent:
    """Read what `to_json` wrote.

    Raises:
        Refusal: POLICY_REFUSED, its kind is not registered, or it has a parameter, or is of an account, that is not known here.
        ValueError: it is no event.
    """
    values: object = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("a privacy event is an object")
    parameters = cast("dict[str, Parameter]", values)
    name = parameters.pop("kind", None)
    kind = _find_kind(name) if isinstance(name, str) else None
    if kind is None:
        raise _unknown(str(name)[:100])
    types_of = typing.get_type_hints(kind.event)
    parameters.setdefault("reader", COLUMNS.name)
    if newer := sorted(parameters.keys() - types_of.keys()):
        raise _unreadable(kind.name, f"parameter '{newer[0][:40]}'")
    if parameters["reader"] not in KNOWN:
        raise _unreadable(kind.name, f"account '{str(parameters['reader'])[:40]}'")
    for item in dataclasses.fields(kind.event):
        if item.metadata.get(LATER):
            parameters.setdefault(item.name, cast("Parameter", item.default))
    if parameters.keys() != types_of.keys():
        raise ValueError(
            f"privacy event '{kind.name}': got the parameters {sorted(parameters)}, expected {sorted(types_of)}"
        )
    return cast("PrivacyEvent", kind.event(**{key: _parameter(parameters[key], types_of[key]) for key in types_of}))


def _find_kind(name: str) -> EventKind[Any] | None:
    """Find a kind by its name; its package is imported if need be."""
    if name not in _KINDS and name in plugins.names(GROUP):
        plugins.load(GROUP, name)
    return _KINDS.get(name)


def _parameter(value: Parameter, declaration: object) -> Parameter:
    """Read a parameter of an event's class, of exactly the type that the class declares."""
    of = declaration.__args__ if isinstance(declaration, types.UnionType) else (declaration,)
    if float in of and value == _INFINITE:
        return math.inf
    if float in of and type(value) is int:
        return float(value)
    if type(value) not in of:
        raise ValueError(f"a parameter of a privacy event is a {type(value).__name__}")
    return value


def _unreadable(name: str, what: str) -> Refusal:
    return Refusal(
        "POLICY_REFUSED",
        f"privacy event '{name}': its {what} is not known here, so nothing says what it costs",
        hint="a newer version of verticil wrote it: use that version",
    )


def _unknown(name: str) -> Refusal:
    return Refusal(
        "POLICY_REFUSED",
        f"privacy event '{name}': no kind of this name is known here, so nothing says what it costs",
        hint=f"known are {', '.join(_KINDS)}; use the version of verticil, or the extension, that has it",
    )


# ---- the product's kinds


def column_reader(study: Study) -> str:
    """Return the reader of a study's randomized columns: the miner alone where everything published follows from noisy tables."""
    if opens_tables(study):
        return DEALER.name
    return COLUMNS.name if study.tables is None else MINER_ALONE


def _columns(study: Study, party: str) -> Iterable[PlannedEvent]:
    indices = frozenset(sent_units(study))
    for index in study.units_of(party):
        if index in indices:
            unit = study.units[index]
            yield PlannedEvent(
                event=RandomizedColumn(epsilon=privacy.epsilon(unit.transition), reader=column_reader(study)),
                variables=unit.variables,
                readers=recipients_of(study, index),
                unit=index,
            )


def share_event(study: Study, party: str) -> DiscreteGaussianCounts | ExactStatistics:
    """Return the event of sharing statistics of a party's own data between peers: with the study's noise, or without."""
    rule = study.share
    if rule is None or rule.epsilon is None or rule.delta is None:
        return ExactStatistics()
    tables = protocol_of(study).shared_tables(study, party)
    return DiscreteGaussianCounts(
        sigma=discrete_sigma(rule.epsilon, rule.delta, tables),
        tables=tables,
        delta=rule.delta,
        epsilon=rule.epsilon,
        sensitivity=math.sqrt(2 * tables),
    )


def _shared(study: Study, party: str) -> Iterable[PlannedEvent]:
    if not protocol_of(study).shared_tables(study, party):
        return
    names = tuple(study.schema[position].name for position in study.schema.owned_by(party))
    readers = tuple(name for name in study.parties if name != party)
    yield PlannedEvent(
        event=share_event(study, party),
        variables=names,
        readers=(*readers, "miner") if protocol_of(study).searches_scores(study) else readers,
    )


def _shared_as(event: type[PrivacyEvent]) -> Callable[[Study, str], Iterable[PlannedEvent]]:
    """Return what a party shares besides columns, where it is an event of this class."""
    return lambda study, party: (item for item in _shared(study, party) if isinstance(item.event, event))


def _noisy_tables(study: Study, party: str) -> Iterable[PlannedEvent]:
    """Return one event of all parties' people; each party is charged all of it, though some tables have no column of
    its own.

    An owner of all columns draws it alone, and no miner reads them.
    """
    rule = study.tables
    alone = not protocol_of(study).coordinated
    if rule is None or measures_itself(study) or opens_tables(study) or has_several_sets(study):
        return  # of several sets: `privacy.layered`
    tables = len(tables_of(study))
    event = (DiscreteGaussianCounts if alone else NoisyTables)(
        sigma=tables_sigma(study),
        tables=tables,
        delta=rule.delta,
        epsilon=rule.epsilon,
        sensitivity=math.sqrt(2 * tables),
        reader=PUBLIC.name if alone else OTHERS,
    )
    names = tuple(study.schema[position].name for position in study.schema.owned_by(party))
    yield PlannedEvent(event=event, variables=names, readers=("everyone",), joint=True)


def _exact(study: Study, party: str) -> Iterable[PlannedEvent]:
    """Return what a party shares without noise; or what the owner of a whole table publishes of it without noise on
    tables.
    """
    yield from _shared_as(ExactStatistics)(study, party)
    if protocol_of(study).whole_table and study.tables is None:
        event = ExactStatistics(reader=PUBLIC.name)
        yield PlannedEvent(event=event, variables=study.schema.names, readers=("everyone",))


def _of_no_study(_study: Study, _party: str) -> Iterable[PlannedEvent]:
    return ()


def _discrete_losses(event: DiscreteGaussianCounts, n_changes: int | None = None) -> Counter[Loss]:
    # The weights of a sum are those of one draw but for a factor e^+-tau, tau = 5 sum_k e^(-2 pi^2 sigma_c^2 k / (k + 1)), below
    # 1.4e-38 for 25 contributors of sigma_c = 3: deltas are rounded up by 1e-12 of themselves, more than that over all counts.
    return Counter({DiscreteGaussianLoss(sigma=event.sigma): 2 * event.tables if n_changes is None else n_changes})


def cost_at(losses: Counter[Loss], delta: float, claim: float | None) -> Cost:
    """Return what losses cost together: the stated epsilon, if it is proved to be enough at this delta; else the least
    that is.
    """
    if claim is not None and delta_at(losses, claim) <= delta:
        return Cost(epsilon=claim, delta=delta)
    return Cost(epsilon=epsilon_at(losses, delta), delta=delta)


def _discrete_cost(event: DiscreteGaussianCounts) -> Cost:
    return cost_at(_discrete_losses(event), event.delta, event.epsilon)


def _gaussian_add_or_remove(event: GaussianCounts) -> Counter[Loss]:
    """Return the losses of the same noise, where a person is in one cell of each table: a sensitivity that is less by
    sqrt 2.
    """
    return Counter({GaussianLoss(mu=math.sqrt(0.5) / analytic_sigma(event.epsilon, event.delta)): 1})


def _discrete_words(event: DiscreteGaussianCounts) -> str:
    cost = _discrete_cost(event)
    whose = "" if event.contributors == 1 else f", the sum of what {event.contributors} contributed,"
    return (
        f"discrete Gaussian noise of standard deviation {event.sigma:.4g}{whose} was added to every count of {event.tables} "
        f"tables: epsilon {cost.epsilon:.4g}, delta {cost.delta:.4g}"
    )


def _table_words(event: NoisyTables) -> str:
    cost = _discrete_cost(event)
    return (
        f"the miner adds discrete Gaussian noise of standard deviation {event.sigma:.4g} to every count of {event.tables} tables "
        "of the randomized columns, and what is published follows from these and the number of people: epsilon "
        f"{cost.epsilon:.4g}, delta {cost.delta:.4g} for everybody but the miner. {WORD_OF_MINER}"
    )


def _column_words(event: RandomizedColumn) -> str:
    if math.isinf(event.epsilon):
        return "each person's value was randomized, and some values can be told from it for certain: no bound"
    return f"each person's value was randomized on its own: epsilon {event.epsilon:.4g}"


def _count_words(event: GaussianCounts) -> str:
    where = "" if event.tables is None else f" of {event.tables} tables"
    return f"Gaussian noise was added to every count{where}: epsilon {event.epsilon:.4g}, delta {event.delta:.4g}"


register(
    EventKind(
        name="randomized-column",
        event=RandomizedColumn,
        cost=lambda event: Cost(epsilon=event.epsilon),
        words=_column_words,
        of_study=_columns,
        has_own_words=True,
    )
)
register(
    EventKind(
        name="gaussian-counts",
        event=GaussianCounts,
        cost=lambda event: Cost(epsilon=event.epsilon, delta=event.delta),
        words=_count_words,
        of_study=_of_no_study,
        add_or_remove=_gaussian_add_or_remove,
    )
)
register(
    EventKind(
        name="discrete-gaussian-counts",
        event=DiscreteGaussianCounts,
        cost=_discrete_cost,
        words=_discrete_words,
        of_study=_shared_as(DiscreteGaussianCounts),
        has_own_words=True,
        losses=_discrete_losses,
        add_or_remove=lambda event: _discrete_losses(event, event.tables),
        deviation=lambda event: event.sigma,
    )
)
register(
    EventKind(
        name="noisy-tables",
        event=NoisyTables,
        cost=_discrete_cost,
        words=_table_words,
        of_study=_noisy_tables,
        losses=_discrete_losses,
        add_or_remove=lambda event: _discrete_losses(event, event.tables),
        deviation=lambda event: event.sigma,
    )
)
register(
    EventKind(
        name="pure-mechanism",
        event=PureMechanism,
        cost=lambda event: Cost(epsilon=event.epsilon),
        words=lambda event: f"{event.mechanism} was run: epsilon {event.epsilon:.4g}",
        of_study=_of_no_study,
    )
)
register(
    EventKind(
        name="exact-statistics",
        event=ExactStatistics,
        cost=lambda _: Cost(epsilon=math.inf),
        words=lambda _: "exact functions of the data were shared: no bound",
        of_study=_exact,
        has_own_words=True,
    )
)
register(
    EventKind(
        name="linkage",
        event=Linkage,
        cost=lambda _: NOTHING,
        words=lambda event: (
            f"people were linked by {event.mode}: who is common was told to others, which no epsilon covers"
        ),
        of_study=_of_no_study,
    )
)

"""The site's own limits, checked at the site, whatever the miner or the analyst says.

`find_objections` compares a study, with this party's own declaration in it, with the policy and lists everything that speaks
against it. It is a pure function: no files, no ledger. The lifetime budget and the rule on changed data need the ledger and
are checked there (`verticil.party.policy.ledger`). What is permitted here still needs an approval.

The privacy statement is that of randomization.md 1.1: epsilon = ln gamma, gamma the largest ratio of two entries within a
column of the matrix; the total per person is the sum over the units of that person. A zero cell makes epsilon infinite: such
a unit needs every one of its variables in `allow_infinite`, and is then left out of the finite sums (they would say nothing).

Of a masked study nobody reads a column but a dealer of masks with its partner: limits of single columns are those of the floor
then (`Policy.of_columns`), and what else it needs stands in `verticil.party.limits.masked`.

Between peers (model ``peer``) a unit that nobody reads is not sent: it is in no sum, and no limit on noise speaks of it. While
the structure is still to be learned, every unit may be read. What a party shares besides, parameters and scores, rests on its raw
data: as they are, which `allow_exact_parameters` has to permit, or with the study's Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from typing import Final, Literal

from verticil.party.dataset.column_draws import Column, column_of_source
from verticil.party.limits import masked
from verticil.party.limits.masked import NO_MASKS, MaskedPolicy
from verticil.party.limits.rules import Rule
from verticil.party.limits.same_people import NOTHING_SAID, SamePeople
from verticil.shared.core.errors import Refusal
from verticil.shared.mechanisms.privacy import Breach
from verticil.shared.privacy.accountant import cost_of, excess, finite_together
from verticil.shared.privacy.accounts import COLUMNS, DEALER, PUBLIC, READERS, Cost, Reader, ReaderLimits
from verticil.shared.privacy.events import PlannedEvent, column_reader, kind_of, plan_events
from verticil.shared.privacy.figures import column_epsilon, column_gamma, delta_exceeds, epsilon_exceeds, finite_epsilon
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import opens_tables, protocol_of

SHARE_DELTA: Final = 1e-6
"""The limit of delta in one study where party.toml states none."""
DELTA_STUDIES: Final = 10
"""Studies at the limit of delta for which a lifetime has room where party.toml states no lifetime limit."""
MAX_OPEN_STUDIES: Final = 100
MINIMUM_DIFFERENCE: Final = 100
"""People by which two common sets must differ where party.toml states nothing."""
MAX_COMMON_SETS: Final = 64
"""Distinct sets of common people that are remembered where party.toml states nothing: 8 MB each for a million people."""
RULE_APPROVALS: Final = 10
"""Studies that rules approve within 24 hours where party.toml states nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """What a policy says of single columns, and by which keys: the most epsilon, and variables that need no bound."""

    limit: float
    key: str
    infinite: tuple[str, ...]
    infinite_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The ``[policy]`` table of party.toml.

    Attributes:
        approval: ``manual``; ``rules``: the site's rules approve what they cover, people the rest; or ``auto`` (only under a CA
            with the demo marker).
        approvers: who may approve, each with a key of their own; empty: whoever may run the command, for the site.
        approvers_needed: how many different approvers a study needs.
        max_epsilon_per_column: limit for each unit, and for the sum over a study's units of one local column.
        max_epsilon_per_study: limit for the sum over this party's units of one study and, between peers, the noise on what it
            shares besides.
        max_epsilon_lifetime: limit for the sum of everything ever charged to one data set.
        allow_infinite: variables that may be sent with infinite epsilon.
        minimum_common_records: fewest common people, when the study asks for less.
        minimum_parties: fewest parties in a study.
        max_categories: most categories of a variable of this party.
        deny_columns: source columns, or the study's names of variables, that never leave.
        recipients: who may receive randomized columns: ``miner``, or the names of other parties with model ``peer``. A structure
            that is learned between peers needs ``miner`` too: it gets the scores.
        breach: what no unit, and no units of one local column together, may allow; None: no such rule. A variable in
            `allow_infinite` is no exception.
        on_data_change: what a second release of changed data is: refused, or accepted with the same or with fresh noise.
        allow_exact_parameters: whether parameters may be shared with peers that are exact functions of this party's raw data.
        rules: what is approved without a person, with ``rules``; none: nothing.
        minimum_rows: fewest rows of the local table, or of each table that a study uses, as they stand in the file.
        max_days: most days until a study's last valid one; None: any.
        max_share_epsilon, max_share_delta: limits for the epsilon and the delta of the noise on what is shared with peers;
            party.toml without the former means `max_epsilon_per_column`.
        max_delta_lifetime: limit for the sum of the deltas of everything that was ever shared of one data set.
        public, dealer: limits of the accounts of everybody and of a dealer of masks with the partner; None: party.toml states
            none, and nothing that is drawn for this reader goes. See `limits_of`.
        minimum_difference: people by which the common set of a study must differ from that of an earlier one, and from what two
            earlier ones give when they are added or subtracted, unless they are the same; 0: no such rule. See
            `verticil.party.audit.common_sets`.
        max_rule_approvals_per_day: studies that rules approve within any 24 hours; what is beyond waits for people.
        on_small_difference: whether a smaller difference, or a set that has no place, is told (log, status, audit log) or the
            study refused.
        max_common_sets: distinct sets of common people that are remembered; none is dropped for another one.
        masked: what is permitted of masked studies.
        same_people: which data sets are the same people, and which are counted apart.
        max_open_studies: most studies of a miner that are kept while nobody here has decided them; those that end undecided count
            for a day.
    """

    approval: Literal["manual", "rules", "auto"]
    approvers: tuple[str, ...]
    approvers_needed: int
    max_epsilon_per_column: float
    max_epsilon_per_study: float
    max_epsilon_lifetime: float
    allow_infinite: tuple[str, ...]
    minimum_common_records: int
    minimum_parties: int
    max_categories: int
    deny_columns: tuple[str, ...]
    recipients: tuple[str, ...]
    on_data_change: Literal["refuse", "sticky", "fresh"]
    breach: Breach | None = None
    allow_exact_parameters: bool = False
    max_share_epsilon: float = math.inf
    max_share_delta: float = SHARE_DELTA
    max_delta_lifetime: float = DELTA_STUDIES * SHARE_DELTA
    public: ReaderLimits | None = None
    dealer: ReaderLimits | None = None
    minimum_difference: int = MINIMUM_DIFFERENCE
    on_small_difference: Literal["warn", "refuse"] = "refuse"
    max_common_sets: int = MAX_COMMON_SETS
    max_open_studies: int = MAX_OPEN_STUDIES
    rules: tuple[Rule, ...] = ()
    minimum_rows: int = 1
    max_days: int | None = None
    max_rule_approvals_per_day: int = RULE_APPROVALS
    masked: MaskedPolicy = NO_MASKS
    same_people: SamePeople = NOTHING_SAID

    def of_columns(self, reader: str) -> ColumnRule:
        """Return the limits of each column that is drawn for this reader: under masks only a dealer with its partner could
        read it.
        """
        if reader == DEALER.name:
            return ColumnRule(
                limit=self.masked.floor,
                key="max_floor_epsilon_per_column",
                infinite=self.masked.raw,
                infinite_key="allow_raw_under_masks",
            )
        return ColumnRule(
            limit=self.max_epsilon_per_column,
            key="max_epsilon_per_column",
            infinite=self.allow_infinite,
            infinite_key="allow_infinite",
        )

    def limits_of(self, reader: Reader) -> ReaderLimits | None:
        """Return the limits of an account; None: party.toml states none."""
        if reader is PUBLIC:
            return self.public
        if reader is DEALER:
            return self.dealer
        return ReaderLimits(
            study=Cost(epsilon=self.max_epsilon_per_study, delta=math.inf),  # of each event with noise: max_share_delta
            lifetime=Cost(epsilon=self.max_epsilon_lifetime, delta=self.max_delta_lifetime),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """One thing that speaks against a study: a code of `Refusal`, a message and a hint, without data values.

    Attributes:
        told: the message as it may leave the site, where `message` names what only the site knows; empty: as `message`.
    """

    code: str
    message: str
    hint: str
    told: str = ""


def find_objections(
    policy: Policy, study: Study, party: str, columns: Mapping[str, Column], *, today: date | None = None
) -> tuple[Objection, ...]:
    """List everything in `study` that the policy does not permit.

    Args:
        policy: the site's limits.
        study: the proposal with this party's own declaration.
        party: this party's name.
        columns: variable -> column of the local table.
        today: UTC; None: how long the study is valid is not judged.

    Returns:
        Nothing when the policy permits the study; else one entry for each limit and variable, in the study's order.
    """
    return (
        *_object_to_study(policy, study, party, today),
        *_object_to_statistics(policy, study, party),
        *_object_to_variables(policy, study, party, columns),
        *_object_to_epsilon(policy, study, party),
        *_object_to_accounts(policy, study, party),
        *_object_to_masks(policy, study, party),
        *_object_to_columns(policy, study, party, columns),
        *_object_to_breach(policy, study, party, columns),
    )


def refuse(objections: Sequence[Objection], study_id: str) -> None:
    """Raise the first objection with the messages of all.

    Raises:
        Refusal: POLICY_REFUSED, BUDGET_EXCEEDED or EPSILON_INFINITE.
    """
    if objections:
        text = "; ".join(objection.message for objection in objections)
        raise Refusal(objections[0].code, f"study '{study_id}': {text}", hint=objections[0].hint)


def check_shared(policy: Policy, epsilon: float, reader: str = COLUMNS.name) -> None:
    """Refuse statistics that the policy does not let go.

    Args:
        policy: the limits.
        epsilon: of the noise on them; infinite: there is none.
        reader: who they are drawn for; others than whoever reads columns have limits of their own (`Policy.limits_of`).

    Raises:
        Refusal: EPSILON_INFINITE, BUDGET_EXCEEDED.
    """
    if math.isinf(epsilon) and not policy.allow_exact_parameters:
        raise Refusal(
            "EPSILON_INFINITE",
            "parameters without noise are exact functions of this party's raw data, and policy.allow_exact_parameters is false",
            hint="ask for share noise in the study, or permit exact parameters in party.toml",
        )
    if reader == COLUMNS.name and epsilon_exceeds(epsilon, policy.max_share_epsilon):
        raise Refusal(
            "BUDGET_EXCEEDED",
            f"shared parameters: epsilon {epsilon:.4g}, expected at most {policy.max_share_epsilon:g}",
            hint="the limit is policy.max_share_epsilon",
        )


def _object_to_study(policy: Policy, study: Study, party: str, today: date | None) -> list[Objection]:
    objections: list[Objection] = []
    days = 0 if today is None else (study.expires - today).days
    if policy.max_days is not None and days > policy.max_days:
        objections.append(
            _make_objection(f"valid for {days} more days, expected at most {policy.max_days}", "max_days")
        )
    strangers = protocol_of(study).not_permitted(study, party, policy.recipients)
    objections.extend(_make_objection(problem, "recipients") for problem in strangers)
    if len(study.parties) < policy.minimum_parties:
        objections.append(
            _make_objection(
                f"{len(study.parties)} parties, expected at least {policy.minimum_parties}", "minimum_parties"
            )
        )
    return objections


def _object_to_statistics(policy: Policy, study: Study, party: str) -> list[Objection]:
    """List objections to what a party shares besides randomized columns."""
    objections: list[Objection] = []
    for item in plan_events(study, party):
        if item.unit is not None:
            continue
        kind, cost = kind_of(item.event), cost_of(item.event)
        name, of = ("share", "the noise on shared parameters") if kind.has_own_words else (kind.name, "what is shared")
        if math.isinf(cost.epsilon):
            if not policy.allow_exact_parameters:
                objections.append(_without_bound(study, item))
            continue
        if item.event.reader != COLUMNS.name:
            continue  # held against the limits of its reader's account
        for what, value, limit, exceeds in (
            ("epsilon", cost.epsilon, policy.max_share_epsilon, epsilon_exceeds),
            ("delta", cost.delta, policy.max_share_delta, delta_exceeds),
        ):
            if exceeds(value, limit):
                most = getattr(policy, f"max_share_{what}")
                hint = (
                    f"ask for a smaller {name}.{what} in the study; the limit is policy.max_share_{what} in party.toml"
                )
                message = f"{name}: {what} {value:.4g} of {of}, expected at most {most:g}"
                objections.append(Objection(code="BUDGET_EXCEEDED", message=message, hint=hint))
    return objections


def _without_bound(study: Study, item: PlannedEvent) -> Objection:
    kind = kind_of(item.event)
    if not kind.has_own_words:
        hint = "set policy.allow_exact_parameters = true in party.toml"
        return Objection(code="POLICY_REFUSED", message=f"{kind.name}: {kind.words(item.event)}", hint=hint)
    what = "parameters" if study.structure.parents is not None else "parameters and scores"
    return Objection(
        code="POLICY_REFUSED",
        message=f"model 'peer' without share noise: the {what} that are shared are exact functions of this party's raw data",
        hint="ask for [share] noise in the study, or set policy.allow_exact_parameters = true in party.toml",
    )


def _object_to_variables(policy: Policy, study: Study, party: str, columns: Mapping[str, Column]) -> list[Objection]:
    objections: list[Objection] = []
    for position in study.schema.owned_by(party):
        variable = study.schema[position]
        names = [
            name
            for name in dict.fromkeys(
                local
                for own in (variable.name, columns[variable.name].source)
                for local in (own, column_of_source(own))
            )
            if name in policy.deny_columns
        ]
        if names:
            problem = f"variable '{variable.name}': column '{names[0]}' is in policy.deny_columns"
            report = f"variable '{variable.name}': its column is one of those that never leave (policy.deny_columns)"
            objections.append(replace(_make_objection(problem, "deny_columns"), told=report))
        if variable.n_states > policy.max_categories:
            problem = (
                f"variable '{variable.name}': {variable.n_states} categories, expected at most {policy.max_categories}"
            )
            objections.append(_make_objection(problem, "max_categories"))
    return objections


def _object_to_epsilon(policy: Policy, study: Study, party: str) -> list[Objection]:
    objections: list[Objection] = []
    rule = policy.of_columns(column_reader(study))
    for index in _readable_units(study, party):
        unit = study.units[index]
        name = ", ".join(unit.variables)
        epsilon = column_epsilon(unit.transition)
        forbidden = [variable for variable in unit.variables if variable not in rule.infinite]
        if math.isinf(epsilon) and forbidden:
            objections.append(
                Objection(
                    code="EPSILON_INFINITE",
                    message=f"column '{name}': scheme '{unit.scheme}' has infinite epsilon and is not in "
                    f"policy.{rule.infinite_key}",
                    hint=f"declare a scheme without zero cells, or put the variable into policy.{rule.infinite_key}",
                )
            )
        elif epsilon_exceeds(epsilon, rule.limit):
            objections.append(
                _budget(f"column '{name}': epsilon {epsilon:.4g}, expected at most {rule.limit:g}", rule.key)
            )
    items = [item for item in plan_events(study, party) if COLUMNS.sees(item.event.reader)]
    shared = [item for item in items if item.unit is None and math.isfinite(cost_of(item.event).epsilon)]
    what = "columns and shared parameters" if shared else "columns"
    total, limit = finite_together(item.event for item in items).epsilon, policy.max_epsilon_per_study
    if epsilon_exceeds(total, limit):
        objections.append(
            _budget(
                f"epsilon of this party's {what} sums to {total:.4g}, expected at most {limit:g}",
                "max_epsilon_per_study",
            )
        )
    return objections


def no_limit(reader: Reader) -> Objection:
    """Return the objection to something that is drawn for a reader whose account has no limits."""
    text = f"the study draws something for {reader.words}, and party.toml states no limit for this account"
    hint = f"to allow it, set {', '.join(f'policy.{key}' for key in reader.keys)} in party.toml"
    return Objection(code="BUDGET_EXCEEDED", message=text, hint=hint)


def _object_to_accounts(policy: Policy, study: Study, party: str) -> list[Objection]:
    """List objections to what a study draws on the other accounts; what is drawn for a reader needs that reader's own
    limits.
    """
    objections: list[Objection] = []
    events = [item.event for item in plan_events(study, party)]
    for reader in READERS:
        over = None if reader is COLUMNS else excess(reader, policy.limits_of(reader), events)
        if over is not None and over.limit is None:
            objections.append(no_limit(reader))
        elif over is not None:
            people = f"of this party's people for {reader.words}, expected at most {over.limit:g}"
            objections.append(_budget(f"{over.what} {over.asked:.4g} {people}", over.key))
    return objections


def _object_to_masks(policy: Policy, study: Study, party: str) -> list[Objection]:
    if not opens_tables(study):
        return []
    return [
        Objection(
            code=item.code, message=item.message, hint=item.hint or f"the limit is policy.{item.key} in party.toml"
        )
        for item in masked.against(policy.masked, study, party)
    ]


def _object_to_columns(policy: Policy, study: Study, party: str, columns: Mapping[str, Column]) -> list[Objection]:
    """List objections to one local column under several names: averaging the units' own noise takes it off again.

    A compound is one draw: what it tells of any of its columns is bounded by its whole epsilon, which counts once.
    """
    rule = policy.of_columns(column_reader(study))
    limit = rule.limit
    objections: list[Objection] = []
    for column, (variables, units) in _behind(study, party, columns).items():
        total = finite_epsilon([column_epsilon(study.units[index].transition) for index in units])
        if len(units) > 1 and epsilon_exceeds(total, limit):
            behind, sums = _stands_behind(column, variables), f"epsilon sums to {total:.4g}, expected at most {limit:g}"
            objection = _budget(f"{behind[0]}: {sums}", rule.key)
            objections.append(replace(objection, told=f"{behind[1]}: {sums}"))
    return objections


def _object_to_breach(policy: Policy, study: Study, party: str, columns: Mapping[str, Column]) -> list[Objection]:
    rule = policy.breach
    if rule is None:
        return []
    breaches: list[tuple[str, str, Fraction | None]] = []
    for index in _readable_units(study, party):
        unit = study.units[index]
        what = f"column '{', '.join(unit.variables)}': gamma"
        breaches.append((what, what, column_gamma(unit.transition)))
    for column, (variables, units) in _behind(study, party, columns).items():
        ratios = [column_gamma(study.units[index].transition) for index in units]
        finite = [ratio for ratio in ratios if ratio is not None]
        if len(ratios) > 1 and len(finite) == len(ratios) and not any(map(rule.possible, ratios)):
            inward, outward = _stands_behind(column, variables)
            product = math.prod(finite, start=Fraction(1))
            breaches.append((f"{inward}: gamma multiplies to", f"{outward}: gamma multiplies to", product))

    def objection(what: str, report: str, ratio: Fraction | None) -> Objection:
        is_too_large = (
            f" {'infinite' if ratio is None else f'{float(ratio):.6g}'}, expected below {rule.gamma_limit:.6g},"
            f" so that no belief of {rule.prior:g} becomes {rule.posterior:g}"
        )
        hint = "declare stronger noise with [[randomization]] in party.toml; the limit is policy.breach"
        return Objection(code="POLICY_REFUSED", message=what + is_too_large, hint=hint, told=report + is_too_large)

    return [objection(*item) for item in breaches if rule.possible(item[2])]


def _stands_behind(column: Column, variables: Sequence[str]) -> tuple[str, str]:
    """Return the texts on one local column under several names: for the site, which knows the column, and for others."""
    return (
        f"local column '{column.source}' stands behind {len(variables)} variables",
        f"one column stands behind the variables '{', '.join(variables)}'",
    )


def _readable_units(study: Study, party: str) -> tuple[int, ...]:
    """Return this party's units that leave it, or that somebody could read who works together with another."""
    readable = protocol_of(study).readable(study)
    return tuple(index for index in study.units_of(party) if index in readable)


def _behind(
    study: Study, party: str, columns: Mapping[str, Column]
) -> dict[Column, tuple[tuple[str, ...], tuple[int, ...]]]:
    """Return, for each local column, the variables that it stands behind and the sent units that they are in."""
    variables: dict[Column, list[str]] = {}
    units: dict[Column, list[int]] = {}
    for index in _readable_units(study, party):
        for variable in study.units[index].variables:
            variables.setdefault(columns[variable], []).append(variable)
            units.setdefault(columns[variable], []).append(index)
    return {column: (tuple(names), tuple(dict.fromkeys(units[column]))) for column, names in variables.items()}


def _make_objection(message: str, key: str) -> Objection:
    return Objection(code="POLICY_REFUSED", message=message, hint=f"the limit is policy.{key} in party.toml")


def _budget(message: str, key: str) -> Objection:
    hint = f"declare stronger noise with [[randomization]] in party.toml; the limit is policy.{key}"
    return Objection(code="BUDGET_EXCEEDED", message=message, hint=hint)

"""Rules by which a party approves by itself: ``approval = "rules"`` and ``[[policy.rule]]`` in party.toml.

A rule is a list of conditions that the site wrote down beforehand; it approves a study only when all of them hold, besides what
`verticil.party.policy.rule_approval` asks of every study. Every condition is one that this party can check itself, from the
study, party.toml and what was sent before; none looks at the table, so whether a rule approves says nothing about anybody in it.
Who submitted a study is no condition: a party has only the miner's word for it. Without a rule that holds, nothing is approved,
and the study waits for people. What has no finite epsilon (a column sent as it is, parameters shared without noise) is never
approved by a rule.

Which questions about a table are allowed without a person: codebooks, impossible combinations, ways of writing ids.

A codebook cuts a column into categories, and whoever may choose the cut chooses what is asked of each person. So rules approve
only what the site wrote down itself (``[codebook]`` in party.toml) or a person approved here before. Only the study, party.toml
and those approvals are looked at; never a table.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from verticil.party.dataset.column_draws import Column
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.privacy.accountant import compose, cost_of
from verticil.shared.privacy.accounts import COLUMNS
from verticil.shared.privacy.events import plan_events
from verticil.shared.privacy.figures import epsilon_exceeds
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import recipients_of, sent_units
from verticil.shared.study.unit import Unit

RULE_PREFIX: Final = "by rule "
"""How the approver of a rule's approval begins; no person may be called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        name: for people.
        columns: local columns of which any may leave.
        max_epsilon: limit for the sum over this party's columns of one study and, between peers, the noise on what is shared.
        parties: the only ones that may be in the study; empty: any.
        recipients: the only ones that may get columns; empty: whom the policy allows.
        max_days: the study's last day is at most so many days away; None: any.
        only_repeats: nothing may leave that is new: every column was sent before from the same data set and local columns, with
            the same codebook and matrix and under the same site secret. Whether the values have changed since is not asked here:
            then `on_data_change` of the policy applies.
    """

    name: str
    columns: tuple[str, ...]
    max_epsilon: float
    parties: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    max_days: int | None = None
    only_repeats: bool = False


def approver_name(rules: tuple[Rule, ...], rule: Rule) -> str:
    """Return the name of the approver when a rule approved.

    >>> rule = Rule(name="repeats", columns=(), max_epsilon=0.0)
    >>> approver_name((rule,), rule)
    "by rule 1 'repeats'"
    """
    return f"{RULE_PREFIX}{rules.index(rule) + 1} '{rule.name}'"


def against(
    rule: Rule,
    study: Study,
    party: str,
    *,
    sources: Mapping[str, str],
    repeats: bool | None,
    today: date,
) -> tuple[str, ...]:
    """List every condition of `rule` that does not hold.

    Args:
        rule: the rule.
        study: the proposal with this party's declaration.
        party: this party.
        sources: variable -> local column.
        repeats: whether every unit that is sent was sent before; None: not known, and `only_repeats` is not judged.
        today: UTC.

    Returns:
        Nothing, when the rule approves.
    """
    units = [index for index in study.units_of(party) if index in sent_units(study)]
    reasons: list[str] = []
    for index in units:
        for variable in study.units[index].variables:
            if sources[variable] not in rule.columns:
                reasons.append(f"local column '{sources[variable]}' is not in columns")
    items = [item for item in plan_events(study, party) if COLUMNS.sees(item.event.reader)]
    total = compose(cost_of(item.event) for item in items).epsilon
    if math.isinf(total):
        reasons.append("epsilon is infinite, which only a person may approve")
    elif epsilon_exceeds(total, rule.max_epsilon):
        reasons.append(f"epsilon {total:.4g}, expected at most {rule.max_epsilon:g}")
    if rule.parties:
        strangers = [name for name in study.parties if name != party and name not in rule.parties]
        reasons += [f"party '{name}' is not in parties" for name in strangers]
    if rule.recipients:
        getting = dict.fromkeys(name for index in units for name in recipients_of(study, index))
        reasons += [
            f"'{name}' gets columns and is not in recipients" for name in getting if name not in rule.recipients
        ]
    if rule.max_days is not None and (days := (study.expires - today).days) > rule.max_days:
        reasons.append(f"valid for {days} more days, expected at most {rule.max_days}")
    if rule.only_repeats and repeats is False:
        reasons.append("it sends what was not sent before")
    if rule.only_repeats and any(item.unit is None for item in plan_events(study, party)):
        what = "parameters between peers are" if study.tables is None else "a table with new noise is"
        reasons.append(f"{what} a new answer each time")
    return tuple(reasons)


# ---- codebooks

_NOWHERE: Final = "in no [codebook] of party.toml and in no study that a person approved here"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCodebook:
    """How one local column is encoded; how values outside the bins are, is always the same and not said.

    Attributes:
        column: of the local table.
        labels: all categories in order; see `Variable`.
        bins: edges; None: categories.
        other: the category of what is not declared.
        missing: its category and spellings.
        properties: (value, category) of finer values that a study lists, and of a flag (category, variable) of its conditions.
            party.toml can list none: people decide on them.
        typed: of a typed column its type, points, groups, and how values are grouped.
    """

    column: Column
    labels: tuple[str, ...]
    bins: tuple[float, ...] | None
    other: str | None
    missing: tuple[str, frozenset[str]] | None
    properties: frozenset[tuple[str, str]] = frozenset()
    typed: tuple[object, ...] = (None, (), (), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combinations:
    """Combinations of categories of several local columns that are declared impossible.

    Attributes:
        columns: of the local table, in the order of their names.
        impossible: one label of each column, in this order.
    """

    columns: tuple[Column, ...]
    impossible: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, columns: Iterable[Column], impossible: Iterable[tuple[str, ...]]) -> Combinations:
        """Return the same combinations, in whatever order the columns are given."""
        names = tuple(columns)
        order = sorted(range(len(names)), key=lambda place: (names[place].dataset, names[place].source))
        return cls(
            columns=tuple(names[place] for place in order),
            impossible=frozenset(tuple(labels[place] for place in order) for labels in impossible),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What is asked by a study, or may be asked.

    Attributes:
        columns: codebooks.
        combinations: lists of impossible combinations.
        normalise: steps applied to ids.
    """

    columns: frozenset[ColumnCodebook] = frozenset()
    combinations: frozenset[Combinations] = frozenset()
    normalise: frozenset[tuple[str, ...]] = frozenset()

    def __or__(self, other: RequestFacts) -> RequestFacts:
        return RequestFacts(
            columns=self.columns | other.columns,
            combinations=self.combinations | other.combinations,
            normalise=self.normalise | other.normalise,
        )

    @staticmethod
    def all_of(parts: Iterable[RequestFacts]) -> RequestFacts:
        """Return the union of several codebook sets."""
        return functools.reduce(operator.or_, parts, RequestFacts())


def codebook_of(variable: Variable, column: Column, study: Study | None = None) -> ColumnCodebook:
    """Return the codebook of a study's variable, or of one that party.toml declares (then there is no study)."""
    missing = variable.missing
    knowledge = None if study is None else study.knowledge
    properties = set() if knowledge is None else set(knowledge.properties(variable.name).items())
    if knowledge is not None and (flag := knowledge.flag(variable.name)) is not None:
        properties = {(label, condition.variable) for condition in flag.when for label in condition.values}
    return ColumnCodebook(
        column=column,
        labels=variable.labels,
        bins=variable.bins,
        typed=(variable.kind, variable.points, variable.groups, variable.group_by),
        other=variable.other,
        missing=None if missing is None else (missing.category, frozenset(missing.spellings)),
        properties=frozenset(properties),
    )


def questions_of(study: Study, party: str, columns: Mapping[str, Column]) -> RequestFacts:
    """Return what a study asks of a party.

    Args:
        study: the proposal.
        party: this party.
        columns: variable -> local column; a variable that is not in it is left out.
    """
    own = [study.schema[position] for position in study.schema.owned_by(party)]
    return RequestFacts(
        columns=frozenset(codebook_of(item, columns[item.name], study) for item in own if item.name in columns),
        combinations=frozenset(
            _combinations(study, study.units[index], columns)
            for index in study.units_of(party)
            if study.units[index].impossible and all(name in columns for name in study.units[index].variables)
        ),
        normalise=frozenset([study.linkage.normalise]),
    )


def list_uncovered(
    study: Study, party: str, columns: Mapping[str, Column], permitted_questions: RequestFacts
) -> tuple[str, ...]:
    """List what a study asks of a party and `permitted_questions` lacks, in words and without a value; empty: rules may decide.

    Args:
        study: the proposal.
        party: this party.
        columns: variable -> local column, of all its variables.
        permitted_questions: what party.toml says, and what people approved before.
    """
    reasons: list[str] = []
    for position in study.schema.owned_by(party):
        variable = study.schema[position]
        if codebook_of(variable, columns[variable.name], study) not in permitted_questions.columns:
            what = "bins" if variable.n_valued else "categories"
            local = columns[variable.name].source
            reasons.append(f"column '{variable.name}': its {what} of the local column '{local}' stand {_NOWHERE}")
    for index in study.units_of(party):
        unit = study.units[index]
        if unit.impossible and _combinations(study, unit, columns) not in permitted_questions.combinations:
            names = ", ".join(unit.variables)
            reasons.append(f"columns '{names}': the list of their impossible combinations stands {_NOWHERE}")
    if study.linkage.normalise not in permitted_questions.normalise:
        steps = ", ".join(study.linkage.normalise) or "nothing"
        reasons.append(f"linkage.normalise ({steps}) stands {_NOWHERE}")
    return tuple(reasons)


def _combinations(study: Study, unit: Unit, columns: Mapping[str, Column]) -> Combinations:
    labels = [study.schema[study.schema.index(name)].labels for name in unit.variables]
    return Combinations.of(
        (columns[name] for name in unit.variables),
        (tuple(names[code] for names, code in zip(labels, codes, strict=True)) for codes in unit.impossible),
    )

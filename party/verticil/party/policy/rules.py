"""Rules by which a party approves by itself: ``approval = "rules"`` and ``[[policy.rule]]`` in party.toml.

A rule is a list of conditions that the site wrote down beforehand; it approves a study only when all of them hold, besides what
`verticil.party.policy.by_rule` asks of every study. Every condition is one that this party can check itself, from the study,
party.toml and what was sent before; none looks at the table, so whether a rule approves says nothing about anybody in it. Who
submitted a study is no condition: a party has only the miner's word for it. Without a rule that holds, nothing is approved, and
the study waits for people. What has no finite epsilon (a column sent as it is, parameters shared without noise) is never
approved by a rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from verticil.shared.channels import privacy
from verticil.shared.privacy.accountant import compose, cost_of
from verticil.shared.privacy.events import planned
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import recipients_of, sent_units

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
    """Who approved, when a rule did.

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
    """Every condition of `rule` that does not hold.

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
    sent = [index for index in study.units_of(party) if index in sent_units(study)]
    found: list[str] = []
    for index in sent:
        for variable in study.units[index].variables:
            if sources[variable] not in rule.columns:
                found.append(f"local column '{sources[variable]}' is not in columns")
    drawn = planned(study, party)
    total = compose(cost_of(item.event) for item in drawn).epsilon
    if math.isinf(total):
        found.append("epsilon is infinite, which only a person may approve")
    elif total > rule.max_epsilon + privacy.EPSILON_TOLERANCE:
        found.append(f"epsilon {total:.4g}, expected at most {rule.max_epsilon:g}")
    if rule.parties:
        strangers = [name for name in study.parties if name != party and name not in rule.parties]
        found += [f"party '{name}' is not in parties" for name in strangers]
    if rule.recipients:
        getting = dict.fromkeys(name for index in sent for name in recipients_of(study, index))
        found += [f"'{name}' gets columns and is not in recipients" for name in getting if name not in rule.recipients]
    if rule.max_days is not None and (days := (study.expires - today).days) > rule.max_days:
        found.append(f"valid for {days} more days, expected at most {rule.max_days}")
    if rule.only_repeats and repeats is False:
        found.append("it sends what was not sent before")
    if rule.only_repeats and any(item.unit is None for item in drawn):
        found.append("parameters between peers are a new answer each time")
    return tuple(found)

"""What a site permits of masked studies (Model III), and what speaks against one before anybody approves it.

Whoever is named to deal masks or to draw noise counts only if a person confirmed the key that federation.toml pins for it: else
whoever writes federation.toml could invent parties that deal, or whose noise is counted (model-three.md, section 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.figures import delta_exceeds, epsilon_exceeds
from verticil.shared.privacy.masked import tables_event
from verticil.shared.study.document import Study
from verticil.shared.study.masked import list_exposures, noise_contributors, rule_of
from verticil.shared.study.protocols import opens_tables

FLOOR: Final = 6.0
"""The limit of epsilon for a column under masks where party.toml states none."""
LINKAGES: Final = 20
"""Masked studies in which a data set's people may be linked where party.toml states nothing."""
_NOT_NAMED: Final = "is not named there"
CONFIRM: Final = "ask them for the words of their key, by telephone, then: verticil party confirm-key NAME WORDS"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedPolicy:
    """The keys of ``[policy]`` that are about masked studies.

    Attributes:
        allow: whether any is permitted.
        most: epsilon and delta that all tables of one study may tell everybody; None: none are stated.
        floor: limit of epsilon for each column, which a dealer with its partner could read.
        confirmed: whose pinned key a person confirmed, and this party.
        differing: who has another pinned key than the one that was confirmed.
        dealers: who may deal masks of this party, of `confirmed`; None: all of those.
        noise: whose noise may be counted, of `confirmed`; None: of all of those.
        unchecked: whether the rows of others may go unchecked.
        raw: variables that may be masked without a bound.
        linkages: most masked studies in which one data set's people are linked.
    """

    allow: bool = False
    most: Cost | None = None
    floor: float = FLOOR
    confirmed: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    dealers: tuple[str, ...] | None = None
    noise: tuple[str, ...] | None = None
    unchecked: bool = False
    raw: tuple[str, ...] = ()
    linkages: int = LINKAGES

    def why_not(self, name: str, names: tuple[str, ...] | None) -> str | None:
        """Why somebody does not count among those whom a key of the policy names; None: they do."""
        if name in self.differing:
            return "has another pinned key than the one that was confirmed"
        if name not in self.confirmed:
            return "has no pinned key that a person here confirmed"
        return None if names is None or name in names else _NOT_NAMED


NO_MASKS: Final = MaskedPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """What speaks against a masked study: a code of `Refusal`, a message, the key of ``[policy]``, and what to do if not that."""

    code: str
    message: str
    key: str
    hint: str = ""


def against(policy: MaskedPolicy, study: Study, party: str) -> Iterator[Against]:
    """Say what speaks against a study, but for limits of single columns and of accounts; nothing of one that is not masked.

    Args:
        policy: of the site.
        study: with this party's own declaration.
        party: this party.
    """
    if not opens_tables(study):
        return
    if not policy.allow:
        yield _make_objection(
            "tables of masked columns would be computed, and policy.allow_masked is false", "allow_masked"
        )
    cost = cost_of(tables_event(study))
    if policy.most is None:
        what = "tables are opened for everybody, and party.toml states no limit of epsilon and delta for them"
        yield Against(code="BUDGET_EXCEEDED", message=what, key="max_masked_epsilon and policy.max_masked_delta")
    else:
        for what, value, limit, exceeds in (
            ("epsilon", cost.epsilon, policy.most.epsilon, epsilon_exceeds),
            ("delta", cost.delta, policy.most.delta, delta_exceeds),
        ):
            if exceeds(value, limit):
                message = f"tables: {what} {value:.4g} for everybody, expected at most {limit:g}"
                yield Against(code="BUDGET_EXCEEDED", message=message, key=f"max_masked_{what}")
    yield from _of_contributors(policy, study, party)
    unchecked_names = [name for name in rule_of(study).unchecked if name in study.parties and name != party]
    if unchecked_names and not policy.unchecked:
        what = (
            f"the rows of {', '.join(unchecked_names)} would go unchecked, and policy.allow_unchecked_partners is false"
        )
        yield _make_objection(what, "allow_unchecked_partners")


def _of_contributors(policy: MaskedPolicy, study: Study, party: str) -> Iterator[Against]:
    for item in list_exposures(study):
        if item.partner == party and (why := policy.why_not(item.dealer, policy.dealers)):
            partners = ", ".join(f"'{name}'" for name in item.owners)
            what = f"'{item.dealer}' would deal the masks of this party and {partners}, and {why}"
            yield _make_objection(what, "allowed_dealers", hint=_hint(why))
    drawing = noise_contributors(study)
    if party not in drawing:
        yield _make_objection(
            "the noise of this party is not counted", "noise_from", hint="ask for a study in which it is"
        )
    for name in drawing:
        if name != party and (why := policy.why_not(name, policy.noise)):
            yield _make_objection(
                f"the noise of '{name}' would be counted, and it {why}", "noise_from", hint=_hint(why)
            )


def _hint(why: str) -> str:
    """Return what to do where a key was not confirmed; nothing where the policy names others."""
    return "" if why == _NOT_NAMED else CONFIRM


def _make_objection(message: str, key: str, *, hint: str = "") -> Against:
    return Against(code="POLICY_REFUSED", message=message, key=key, hint=hint)

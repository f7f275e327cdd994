"""The rule for parties that stay away: ``[quorum] deadline = "72h"``, with ``min = K`` besides, in both forms of a study.

With a deadline alone every party of the study is needed, and one that is missing ends it by name. With `min`, Model II only, the
study goes on at the deadline with the parties that are there, if they are so many: as a sub-model, whose effective study says
who was left out (`sub_model`). The rule is part of the study's digest, so whoever approves the study approves every such
sub-model with it.

Between peers there is no sub-model: nobody stands between the parties who could fix, at one moment and for all of them, who is
left out. Two of them that saw a third one differently would learn from different people, and each sub-model more would be
another release about nearly the same people.
"""

from __future__ import annotations

import re
from typing import Final, cast, get_args

from verticil.shared.config import Table
from verticil.shared.record import Json
from verticil.shared.study.document import Absence, LeftOut, QuorumRule, Study
from verticil.shared.study.vocabulary import fail

LEAST_PARTIES: Final = 2
"""A model of one party's columns is nothing that a federation is needed for, and its release would be that party's alone."""
_DURATION: Final = re.compile(r"([1-9][0-9]{0,4})(min|h|d)", re.ASCII)
_DEADLINE: Final = (60, 3650 * 86_400)


def quorum_from(table: Table, key: str) -> QuorumRule | None:
    """The rule at `key`, as in ``quorum = {deadline = "72h", min = 2}``; an absent key is no rule.

    Raises:
        Misuse: the table's code.
    """
    if not table.has(key):
        return None
    rule = table.table(key)
    rule.only("deadline", "min")
    text = rule.value(str, "deadline")
    found = _DURATION.fullmatch(text)
    if found is None:
        return rule.fail(
            "deadline",
            f"got '{text[:40]}', expected a number and one of min, h, d",
            hint='for example: deadline = "72h"',
        )
    return QuorumRule(
        deadline_seconds=int(found[1]) * {"min": 60, "h": 3600, "d": 86_400}[found[2]],
        minimum=rule.value(int, "min") if rule.has("min") else None,
    )


def quorum_from_json(table: Table) -> QuorumRule:
    """The rule in a study's canonical form; raises as `quorum_from`."""
    quorum = QuorumRule(
        deadline_seconds=table.value(int, "deadline_seconds"),
        minimum=table.value(int, "min") if table.has("min") else None,
    )
    table.finish()
    return quorum


def quorum_to_json(rule: QuorumRule) -> Json:
    """The rule as it stands in a study's canonical form."""
    least: dict[str, Json] = {} if rule.minimum is None else {"min": rule.minimum}
    return {"deadline_seconds": rule.deadline_seconds, **least}


def left_out_from(table: Table, key: str) -> tuple[LeftOut, ...]:
    """Who was left out, in the canonical form of a sub-model's effective study; an absent key is nobody.

    Raises:
        Misuse: the table's code.
    """
    found: list[LeftOut] = []
    for item in table.tables(key, optional=True):
        missing = cast("Absence", item.choice("missing", get_args(Absence)))
        found.append(LeftOut(party=item.value(str, "party"), missing=missing))
        item.finish()
    return tuple(found)


def left_out_to_json(left_out: tuple[LeftOut, ...]) -> Json:
    """What `left_out_from` reads."""
    return [{"party": item.party, "missing": item.missing} for item in left_out]


def check_quorum(study: Study, *, source: str) -> None:
    """Check that the rule can be kept, and that a sub-model keeps it.

    Raises:
        Misuse: STUDY_INVALID.
    """
    rule, where = study.quorum, f"{source}: quorum"
    names = [item.party for item in study.left_out]
    if len({*names, *study.parties}) != len(names) + len(study.parties):
        fail(f"{source}: left_out", "names a party twice, or one that is in the study")
    if study.left_out and (rule is None or rule.minimum is None):
        fail(f"{source}: left_out", "stands in a study that declares no quorum.min")
    if rule is None:
        return
    if not _DEADLINE[0] <= rule.deadline_seconds <= _DEADLINE[1]:
        fail(f"{where}.deadline in seconds", f"got {rule.deadline_seconds}, expected {_DEADLINE[0]} to {_DEADLINE[1]}")
    if rule.minimum is None:
        return
    n_declared = len(study.parties) + len(study.left_out)
    if not LEAST_PARTIES <= rule.minimum <= n_declared:
        fail(f"{where}.min", f"got {rule.minimum}, expected {LEAST_PARTIES} to {n_declared}, the number of parties")
    if len(study.parties) < rule.minimum:
        fail(
            f"{source}: left_out", f"leaves {len(study.parties)} parties, expected at least {rule.minimum} (quorum.min)"
        )
    signatures = None if study.publish is None else study.publish.quorum
    if signatures is not None and signatures > rule.minimum:
        fail(
            f"{source}: publish.quorum",
            f"got {signatures}, expected at most {rule.minimum}, the parties of the smallest sub-model (quorum.min)",
            hint='countersign = "all" asks all parties that are in the sub-model',
        )

"""The review by rules: ``approval = "rules"``, before people are asked.

Promises
- Whether a rule approves is decided from the study, party.toml, the ledger and what people approved here before. The tables are
  read afterwards, for the approval itself; no value in them has a part in the answer.
- A rule approves nothing that was not foreseen: codebooks, impossible combinations and ways of writing ids stand in party.toml or
  were in a study that a person approved here (`verticil.party.limits.rules`).
- What it may cost at most has room in the lifetime budget, so that the table cannot show by what is left of it.
- At most `max_rule_approvals_per_day` studies are approved so within any 24 hours, also over restarts.
- Each review is a line of the audit log: which rule approved, or why none did.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from verticil.party.audit.log import Event, What
from verticil.party.dataset.column_draws import Column, ColumnDraw, Origins
from verticil.party.limits.limits import Objection, find_objections, refuse
from verticil.party.limits.rules import (
    RULE_PREFIX,
    RequestFacts,
    Rule,
    against,
    approver_name,
    codebook_of,
    list_uncovered,
    questions_of,
)
from verticil.party.local_dataset import column_draw_of, columns_of, origins
from verticil.party.policy import approval_checks
from verticil.party.policy.approval_checks import AUTOMATIC
from verticil.party.policy.planned_statistics import statistics_of
from verticil.party.policy.voting import Voting
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import Refusal, VerticilError
from verticil.shared.federation.audit import DAEMON
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import opens_tables, protocol_of

_DAY: Final = timedelta(hours=24)
_MOST_REASONS: Final = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the rules say of a study.

    Attributes:
        rule: the one that approves; None: it waits for people.
        why: no rule does; in words, without a value of the table.
    """

    rule: Rule | None
    why: tuple[str, ...] = ()


def approve_by_rule(voting: Voting, record: StudyRecord, at: datetime) -> Rule | None:
    """Let the rules of the policy decide, and write down what they said.

    Args:
        voting: of this party.
        record: the study.
        at: now, UTC.

    Returns:
        The rule that approved; None: none did, and people are asked.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT, STATE_LOCKED; nothing was decided.
    """
    if voting.config.policy.approval != "rules" or record.approval is not None:
        return None
    result = ruling(voting, record, at)
    if result.rule is not None:
        approver = approver_name(voting.config.policy.rules, result.rule)
        try:
            voting.approve(record, result.rule, at)
        except VerticilError as error:  # for people to read, or one of them was faster; the study waits for them
            result = Ruling(rule=None, why=(error.code,))
        else:
            _log.warning("study '%s' was approved %s", record.study_id, approver)
            return result.rule
    reasons = result.why[:_MOST_REASONS]
    more = [f"and {len(result.why) - len(reasons)} more"] if len(result.why) > len(reasons) else []
    outcome = f"none: {'; '.join([*reasons, *more])}"
    event = Event(what=What.RULE_REVIEW, who=DAEMON, study=record.digest, study_id=record.study_id, detail=outcome)
    voting.audit.record(event, at)
    _log.info("no rule approves study '%s': %s", record.study_id, "; ".join(reasons))
    return None


def ruling(voting: Voting, record: StudyRecord, at: datetime) -> Ruling:
    """Return what the rules say of a study now. Read no table but the headers of several; write nothing.

    Args:
        voting: of this party; where its secret was not opened, what was sent before is not judged.
        record: the study.
        at: now, UTC.
    """
    config, today = voting.config, at.date()
    try:
        study = approval_checks.with_own_randomization(config, record.task.proposal_study)
        approval_checks.check_expiry(study, today)
        columns = columns_of(config, study)
        refuse(find_objections(config.policy, study, config.name, columns, today=today), study.id)
        before = _list_column_draws(voting, study) if voting.secret.value else None
        if before is not None:
            _check_room(voting, study, before)
    except VerticilError as error:
        return Ruling(rule=None, why=(f"{error.code}: {error.message}",))
    why = list(
        list_uncovered(
            study, config.name, columns, RequestFacts.all_of([config.codebook, *_approved_by_people(voting)])
        )
    )
    if (limit := config.policy.max_rule_approvals_per_day) <= voting.decisions.approvals_by_rule(at - _DAY):
        why.append(
            f"rules have approved {limit} studies within 24 hours, the most of policy.max_rule_approvals_per_day"
        )
    if opens_tables(study):
        why.append(
            "the protection of its columns depends on the dealers of masks and on who draws noise, so a person decides"
        )
    sources = {variable: column.source for variable, column in columns.items()}
    repeats = None if before is None else all(again for _, again in before)
    results = [
        (rule, against(rule, study, config.name, sources=sources, repeats=repeats, today=today))
        for rule in config.policy.rules
    ]
    fitting = next((rule for rule, conditions in results if not conditions), None)
    if fitting is None:
        why += [f"rule '{rule.name}': {text}" for rule, conditions in results for text in conditions] or [
            "there is no rule"
        ]
    return Ruling(rule=None, why=tuple(why)) if why else Ruling(rule=fitting)


def find_rule_objections(voting: Voting, record: StudyRecord, at: datetime) -> tuple[Objection, ...]:
    """Return what keeps a study from approval here, before anybody looks at it: policy, codebooks, lifetime budget.

    It rests on the study, party.toml and the ledger. The budget is judged only where the ledger cannot tell whether the table has
    changed. Codebooks count where rules approve: what they do not have waits for people.

    Args:
        voting: of this party.
        record: the study.
        at: now, UTC.

    Raises:
        Refusal: DECLARATION_WEAKER.
        Misuse: party.toml does not serve the study.
        DataFault: as `columns_of`.
    """
    config = voting.config
    study = approval_checks.with_own_randomization(config, record.task.proposal_study)
    columns = columns_of(config, study)
    reasons = list(find_objections(config.policy, study, config.name, columns, today=at.date()))
    if config.policy.approval == "rules":
        own = [study.schema[position] for position in study.schema.owned_by(config.name)]
        codebooks = config.codebook.columns
        unknown = [item.name for item in own if codebook_of(item, columns[item.name], study) not in codebooks]
        reasons += [
            Objection(
                code="NOT_APPROVED",
                message=f"column '{name}': its categories or bins stand in no [codebook] of the party, so its people decide",
                hint="",
            )
            for name in unknown
        ]
    if config.policy.on_data_change == "refuse" and voting.secret.value:
        try:
            _check_room(voting, study, _list_column_draws(voting, study))
        except Refusal as error:
            message = (
                "what is left of a lifetime budget has no room for it (policy.max_epsilon_lifetime or max_delta_lifetime,"
                " or those of an account, max_public_epsilon_lifetime or max_public_delta_lifetime)"
            )
            reasons.append(Objection(code=error.code, message=error.message, hint=error.hint, told=message))
    return tuple(reasons)


def _list_column_draws(voting: Voting, study: Study) -> list[tuple[ColumnDraw, bool]]:
    """Return each unit that is sent, as far as it is known without the data, and whether the same draw was sent before."""
    places = origins(voting.config, study)
    column_draws: list[tuple[ColumnDraw, bool]] = []
    for index in study.units_of(voting.config.name):
        if index in protocol_of(study).readable(study):
            column_draw = column_draw_of(study, index, places=places, fingerprint=b"", site_secret=voting.secret.value)
            column_draws.append((column_draw, voting.ledger.drawn_before(column_draw)))
    return column_draws


def _check_room(voting: Voting, study: Study, before: Iterable[tuple[ColumnDraw, bool]]) -> None:
    """Refuse what may not fit: a draw that was sent before, or has room, costs nothing only where changed data are refused.

    Raises:
        Refusal: BUDGET_EXCEEDED.
    """
    free = voting.config.policy.on_data_change == "refuse"
    places = {name: place.account for name, place in origins(voting.config, study).items()}
    events_by_account = {
        name: list(events) for name, events in statistics_of(study, voting.config.name, places).items()
    }
    for column_draw, again in before:
        if not (free and (again or voting.ledger.is_kept(column_draw))):
            events_by_account.setdefault(column_draw.dataset, []).append(column_draw.event)
    for dataset, events in events_by_account.items():
        voting.ledger.check_room(dataset, events, voting.config.policy)


def _approved_by_people(voting: Voting) -> Iterable[RequestFacts]:
    """Return what the studies asked that people approved here, and did not take back."""
    for record in voting.state.studies():
        if record.approval is None or record.revocation_sent is not None or record.denial_sent is not None:
            continue
        try:
            earlier_approval = parse_approval(record.approval)
            if earlier_approval.approver == AUTOMATIC or earlier_approval.approver.startswith(RULE_PREFIX):
                continue
            study = record.task.proposal_study
        except VerticilError:  # of a version that this one does not read: it covers nothing
            continue
        origins = voting.decisions.get_origins(record.digest, approval_checks.content_of(record.approval))
        yield questions_of(study, voting.config.name, _columns(origins or {}))


def _columns(origins: Mapping[int, Origins]) -> dict[str, Column]:
    """Return the local columns as they were when the study was approved."""
    return {
        variable: Column(dataset=item.dataset, source=source)
        for item in origins.values()
        for variable, source in zip(item.variables, item.sources, strict=True)
    }

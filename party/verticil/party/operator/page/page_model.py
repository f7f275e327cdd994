"""What the pages of a site show: read from the site's state, in one view of it, and never written.

Everything is what ``party status | inbox | show | ledger | audit`` say, by the same functions: names, counts, epsilons, digests,
codes, and what people wrote. No value of a table, no record id, no key; the tables and the site's secrets are not even opened.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import shlex
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from verticil.party.limits.limits import Policy
from verticil.party.operator.accounts import one_for_all
from verticil.party.operator.commands import Status, status_of, study_status
from verticil.party.operator.pending_studies import PendingStudy, StudyInWords, in_words, pending, waits_for
from verticil.party.operator.plain_language import PRIOR
from verticil.party.operator.reports import (
    AuditVerified,
    BudgetView,
    LedgerView,
    SentRow,
    audit_lines,
    audit_verified,
    ledger_of,
    sends_of,
)
from verticil.party.operator.view_model import DaemonView, StudyStatus
from verticil.party.policy.ledger_rows import LedgerRow
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import VerticilError
from verticil.shared.federation.audit import AuditLine
from verticil.shared.federation.membership.current import CertificateState, certificate_state
from verticil.shared.pages.words import epsilon_text, when_text
from verticil.shared.privacy.accountant import compose
from verticil.shared.privacy.accounts import NOTHING, READERS, Cost
from verticil.shared.privacy.figures import belief, gamma_of_epsilon
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.states import State, is_final

_LITTLE_ROOM_BYTES: Final = 1 << 20
_CERTAIN: Final = Fraction(99, 100)
_NEWEST_LINES: Final = 300
_IN_FULL: Final = 10
"""So many studies that wait are shown with all their terms; of more the table has a line each."""
_STAGES: Final = (
    ("approval", (State.SUBMITTED, State.AWAITING_APPROVAL)),
    ("finding the common people", (State.ALIGNING,)),
    ("randomizing", (State.PREPARING,)),
    ("sending", (State.UPLOADING,)),
    ("learning", (State.ESTIMATING, State.LEARNING)),
    ("review", (State.REVIEW,)),
    ("published", (State.PUBLISHED,)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The audit log, where it holds; else what is wrong with it."""

    holds: AuditVerified | None = None
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What keeps the node from its work, and the command against it."""

    what: str
    command: str
    grave: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyLine:
    """In one word how a study is, and in a sentence what it waits for."""

    how: str
    words_of_state: str
    blocked_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """One study of the table of all; its title as it was submitted."""

    study: str
    digest: str
    title: str
    standing: StudyLine
    percent: int
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The first page: what waits (with the next command), what blocks, every study, the budget, and how the node is.

    Attributes:
        n_more: how many wait besides those of `waiting`.
    """

    party: str
    daemon: DaemonView
    waiting: tuple[tuple[PendingStudy, str], ...]
    n_more: int
    studies: tuple[StudyRow, ...]
    datasets: tuple[BudgetView, ...]
    audit: LogState
    blocks: tuple[Block, ...]
    certificates: tuple[tuple[str, CertificateState | None], ...]
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A step on the way to the release."""

    name: str
    over: bool
    now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who said what, when."""

    what: str
    who: str
    at: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """One study: what it asks in words, where it stands, who decided, what was sent and receipted, what can be done.

    Attributes:
        can: what people may decide now: ``approve``, ``deny``, ``countersign``, ``revoke``.
        voters: who has said yes.
        seen: see `seen_of`.
    """

    party: str
    study: StudyStatus
    standing: StudyLine
    objections: tuple[str, ...]
    words: StudyInWords | None
    identifying: bool
    waits_for: str
    stages: tuple[Stage, ...]
    earlier: str | None
    changes: tuple[str, ...]
    decisions: tuple[Decision, ...]
    sends: tuple[tuple[SentRow, bool], ...]
    commands: tuple[tuple[str, str], ...]
    can: tuple[str, ...]
    voters: tuple[str, ...]
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One send on the timeline of an account: what was charged, the sum after it, and what is left of the limit then."""

    row: LedgerRow
    charged: Cost
    spent: Cost
    left: Cost | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What was charged for the people of one data set on the account of one reader, oldest first."""

    dataset: str
    reader: str
    limit: Cost | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPage:
    """Everything that was ever sent."""

    party: str
    ledger: LedgerView
    timelines: tuple[Timeline, ...]
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """The newest lines of the audit log that have the words of a search, each with a text about it, and how many there are."""

    party: str
    search: str
    audit: LogState
    entries: tuple[tuple[AuditLine, str], ...]
    n_entries: int
    command: str


def overview(site: Site, now: dt.datetime) -> Overview:
    """Return what waits, what blocks, every study, the budget, and how the node is; raises as `status_of`."""
    status, log = status_of(site, now, in_full=False), _log_state(site)
    rows = [(record, waits_for(site, record)) for record in site.state.studies()]
    waiting = [record for record, waits in rows if waits]
    in_full = [pending(site, record, now) for record in waiting[:_IN_FULL]]
    return Overview(
        party=status.party,
        daemon=status.daemon,
        waiting=tuple((item, _command(site, _next(item.waits_for), item.digest[:16])) for item in in_full),
        n_more=len(waiting) - len(in_full),
        studies=tuple(_row(site, record, waits) for record, waits in reversed(rows)),
        datasets=ledger_of(site).datasets,
        audit=log,
        blocks=_blocks(site, status, log),
        certificates=(
            ("this node", status.certificate),
            ("the authority", certificate_state(site.config.federation.ca_certificate, now)),
        ),
        policy=site.config.policy,
    )


def study(site: Site, record: StudyRecord, now: dt.datetime) -> StudyPage:
    """Return the page of one study.

    Raises:
        DataFault: STATE_CORRUPT.
    """
    status = study_status(site.config, record)
    waits = waits_for(site, record)
    words: StudyInWords | None = None
    try:
        words = in_words(site, record, now)
        objections = words.objections
        earlier, differences = site.voting.changes(record)
    except VerticilError as error:  # it stands among the objections of `study_status` already, or belongs there
        before = status.objections if words is None else words.objections
        objections = tuple(dict.fromkeys([*before, f"{error.code}: {error.message}"]))
        earlier, differences = None, ()
    epsilon = None if status.proposal is None else status.proposal.epsilon
    decisions = _decisions(site, record)
    return StudyPage(
        party=site.config.name,
        study=status,
        standing=_standing(site, record, waits),
        objections=objections,
        words=words,
        identifying=words is not None and _identifying(epsilon),
        waits_for=waits,
        stages=_stages(State(record.task.state)),
        earlier=None if earlier is None else earlier.digest.hex(),
        changes=tuple(differences),
        decisions=decisions,
        sends=_sends(site, record),
        commands=_commands(site, record, waits),
        can=_acts(site, record, waits),
        voters=tuple(vote.approver for vote in site.decisions.votes(record.digest)),
        seen=seen_of(site, record),
    )


def seen_of(site: Site, record: StudyRecord) -> str:
    """Return a digest of everything that people have decided about a study here, and of its state: a form carries it, so that
    nobody decides about what has changed meanwhile.
    """
    text = repr((record.task.state, record.forgotten, record.failure and record.failure.code, _decisions(site, record)))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def ledger(site: Site) -> LedgerPage:
    """Everything that was ever sent, and what each data set may still spend; raises as `ledger_of`."""
    view = ledger_of(site)
    return LedgerPage(
        party=site.config.name, ledger=view, timelines=_timelines(site, view), command=_command(site, "ledger")
    )


def _timelines(site: Site, view: LedgerView) -> tuple[Timeline, ...]:
    """Return the timeline of each account that something was charged on; one for all readers where they are the same."""
    rows = [(row, _reader_name(row)) for row in site.ledger.rows()]
    timelines: list[Timeline] = []
    for budget in view.datasets:
        same = one_for_all(budget.accounts)
        for account in budget.accounts[:1] if same else budget.accounts:
            reader = next(item for item in READERS if item.name == account.account)
            limit = (
                None
                if account.epsilon_limit is None
                else Cost(epsilon=account.epsilon_limit, delta=account.delta_limit or 0.0)
            )
            steps: list[Step] = []
            spent = NOTHING
            for row, name in rows:
                if site.ledger.account(row.dataset) != budget.dataset or not (name is None or reader.sees(name)):
                    continue
                cost = Cost(epsilon=row.charged, delta=row.charged_delta)
                spent = compose([spent, cost]) if math.isfinite(cost.epsilon) else spent
                steps.append(Step(row=row, charged=cost, spent=spent, left=None if limit is None else limit - spent))
            words = "all readers" if same else account.reader
            timelines.append(Timeline(dataset=budget.dataset, reader=words, limit=limit, steps=tuple(steps)))
    return tuple(item for item in timelines if item.steps)


def _reader_name(row: LedgerRow) -> str | None:
    """Return for whom an event was drawn; None: it is of a kind that is not known here, so every account counts it."""
    try:
        return row.event.reader
    except VerticilError:
        return None


def audit(site: Site, search: str = "") -> AuditPage:
    """Return whether the audit log holds, and its newest lines that have every word of `search`; an unreadable log is a finding,
    not an error.
    """
    words = search.casefold().split()
    lines: list[AuditLine] = []
    state = _log_state(site)
    try:
        lines = list(audit_lines(site))
    except VerticilError as error:
        state = LogState(problem=error.message, hint=error.hint)
    lines = [line for line in lines if not words or _has(line, words)]
    return AuditPage(
        party=site.config.name,
        search=search,
        audit=state,
        entries=tuple((line, _about(line)) for line in lines[: -_NEWEST_LINES - 1 : -1]),
        n_entries=len(lines),
        command=_command(site, "audit verify"),
    )


# ---- the node


def _log_state(site: Site) -> LogState:
    try:
        return LogState(holds=audit_verified(site))
    except VerticilError as error:
        return LogState(problem=error.message, hint=error.hint)


def _has(line: AuditLine, words: list[str]) -> bool:
    text = " ".join([*(line.text(key) for key in line.said), line.columns]).casefold()
    return all(word in text for word in words)


def _about(line: AuditLine) -> str:
    """Describe what a line of the log is about, besides its event, study and person."""
    parts = {
        "": line.columns,
        "ε ": epsilon_text(line.number("epsilon")) if "epsilon" in line.said else "",
        "charged ": epsilon_text(line.number("charged")) if "charged" in line.said else "",
        "to ": line.text("recipient"),
        "bytes: ": line.text("bytes"),
    }
    return ", ".join(start + text for start, text in parts.items() if text)


def _blocks(site: Site, status: Status, log: LogState) -> tuple[Block, ...]:
    """List what keeps the node from its work, the worst first."""
    daemon, certificate = status.daemon, status.certificate
    blocks: list[Block] = []

    def block(what: str, command: str = "", *, grave: bool = True) -> None:
        blocks.append(Block(what=what, command=command and _command(site, command), grave=grave))

    if log.holds is None:
        block(f"The audit log does not hold. {log.problem}. {log.hint.capitalize()}.", "audit verify")
    if not daemon.running and status.carried is not None:
        pass  # files are carried: no daemon runs here, and none should
    elif not daemon.running:
        last_sign = f"last sign of life {when_text(daemon.last_seen)} UTC" if daemon.last_seen else "it never ran"
        block(
            f"The daemon does not run ({last_sign}): nothing is received or sent, and what is shown here may be old.",
            "run",
        )
    elif not daemon.connected:
        block(f"The daemon is not connected: {daemon.problem or 'starting'}.")
    if status.disk_free_bytes < _LITTLE_ROOM_BYTES:
        block("The disk of the state directory is full: the daemon cannot write down what it does, and waits for room.")
    if certificate is None:
        block("This node's certificate cannot be read: no connection can be made.")
    elif certificate.warning is not None:
        message = f"This node's certificate {certificate.words}; have a new one signed."
        blocks.append(Block(what=message, command=certificate.command, grave=certificate.warning == 0))
    policy = site.config.policy
    if policy.approvers_needed > 1 and not policy.approvers:
        block(
            f"party.toml asks for {policy.approvers_needed} approvals and names nobody: no study can be approved.",
            "approver add NAME",
        )
    for warning in status.warnings:
        block(f"{warning[:1].upper()}{warning[1:]}.", grave=False)
    return tuple(blocks)


# ---- one study


def _row(site: Site, record: StudyRecord, waits: str) -> StudyRow:
    try:
        title = json.loads(record.task.proposal)["title"]
    except (ValueError, KeyError, TypeError):  # its own page says what is wrong with it
        title = ""
    return StudyRow(
        study=record.study_id,
        digest=record.digest.hex(),
        title=title if isinstance(title, str) and title.isprintable() and title else record.study_id,
        standing=_standing(site, record, waits),
        percent=record.percent,
        since=record.stage_at or record.seen_at,
    )


def _standing(site: Site, record: StudyRecord, waits: str) -> StudyLine:
    state, failure = State(record.task.state), record.failure
    n_given = f"approvals given here: {record.n_votes} of {site.config.policy.approvers_needed}"
    if record.revocation_sent is not None:
        how, words, blocked_by = "ended", "revoked here", ""
    elif record.denial_sent is not None:
        how, words, blocked_by = "ended", "denied here", ""
    elif failure is not None:
        how, words, blocked_by = "failed", "failed here", f"{failure.code}: {failure.message}"
    elif is_final(state):
        how = {State.PUBLISHED: "done", State.FAILED: "failed"}.get(state, "ended")
        words, blocked_by = state.words, record.stage if state is State.FAILED else ""
    elif waits:
        how, words, blocked_by = "waiting", f"waits for your {waits}", n_given if waits == "approval" else ""
    else:
        how, words, blocked_by = "working", state.words, record.stage
    return StudyLine(how=how, words_of_state=words, blocked_by=blocked_by)


def _identifying(epsilon: float | None) -> bool:
    """Return whether the sum over a person's columns can make somebody as good as certain."""
    ratio = gamma_of_epsilon(math.inf if epsilon is None else epsilon)
    return ratio is None or belief(PRIOR, ratio) >= _CERTAIN


def _stages(state: State) -> tuple[Stage, ...]:
    """Return the stages to the release: which one is over, which one is current; a study that ended otherwise is at none."""
    at = next((place for place, (_, states) in enumerate(_STAGES) if state in states), None)
    over = len(_STAGES) if state is State.PUBLISHED else at or 0
    return tuple(Stage(name=name, over=place < over, now=place == at) for place, (name, _) in enumerate(_STAGES))


def _decisions(site: Site, record: StudyRecord) -> tuple[Decision, ...]:
    """List who add_decision what, when: votes, the approval, a denial, a countersignature, a revocation."""
    decisions: list[Decision] = []

    def add_decision(what: str, who: str, at: str, note: str = "") -> None:
        decisions.append(Decision(what=what, who=who, at=at, note=note))

    for vote in site.decisions.votes(record.digest):
        signed = "signed with the approver's key" if vote.signature else "for the site, without a key of their own"
        add_decision("yes", vote.approver, vote.at, signed)
    if record.approval is not None:
        approval = parse_approval(record.approval)
        note = f"valid until {approval.expires}; needs at least {approval.minimum_common_records:,} common people"
        add_decision("approved", approval.approver, f"{approval.approved_at:%Y-%m-%dT%H:%M:%SZ}", note)
    if (denial := site.decisions.denial(record.digest)) is not None:
        add_decision("denied", denial[0], denial[2], denial[1])
    review = site.decisions.review(record.digest)
    if review is not None:
        note = f"release with manifest {review.manifest_sha256.hex()[:16]}"
        what = "asked to countersign" if review.countersignature is None else "countersigned"
        add_decision(what, "", "", note)
    if (revocation := site.revocations.get(record.digest)) is not None:
        after = " (after the publication: copies of the release cannot be recalled)" if revocation.published else ""
        add_decision("revoked", revocation.who, revocation.revoked_at, revocation.reason + after)
        if (deletion := revocation.deletion) is not None:
            note = f"signed that {len(deletion.artifacts)} columns are deleted"
            add_decision("deleted", f"miner '{deletion.miner}'", f"{deletion.deleted_at:%Y-%m-%dT%H:%M:%SZ}", note)
        if (pending_deletion := site.revocations.awaited_of(record.digest)) is not None:
            for name, confirmation in pending_deletion.confirmed.items():
                note = f"signed that {len(confirmation.columns)} columns are deleted"
                add_decision("deleted", f"party '{name}'", f"{confirmation.deleted_at:%Y-%m-%dT%H:%M:%SZ}", note)
            for name in pending_deletion.missing:
                add_decision("not confirmed", f"party '{name}'", "", "has not signed yet that it deleted what it had")
    return tuple(decisions)


def _sends(site: Site, record: StudyRecord) -> tuple[tuple[SentRow, bool], ...]:
    receipts = site.state.receipts(record.digest)
    return tuple((row, receipts.get(row.sha256, False)) for row in sends_of(site, record.digest))


# ---- what people can decide


def _acts(site: Site, record: StudyRecord, waits: str) -> tuple[str, ...]:
    acts = {"approval": ("approve", "deny"), "countersignature": ("countersign", "deny")}.get(waits, ())
    may_revoke = record.approval is not None and record.revocation_sent is None and record.denial_sent is None
    return (*acts, "revoke") if may_revoke else acts


def _commands(site: Site, record: StudyRecord, waits: str) -> tuple[tuple[str, str], ...]:
    """List what can be done about a study in a terminal: (what it does, the command)."""
    name = record.digest.hex()[:16]
    commands: list[tuple[str, str]] = []

    def offer(what: str, command: str, *more: str) -> None:
        commands.append((what, _command(site, command, name, *more)))

    if waits == "approval":
        offer("Hold the table against it; counts only, nothing leaves", "check")
        offer("Write what would leave into a folder, and look at it", "preview", "--out", "preview")
        voters = {vote.approver for vote in site.decisions.votes(record.digest)}
        for approver in [who for who in site.config.policy.approvers if who not in voters] or [""]:
            offer("Approve", "approve", *(("--as", approver) if approver else ()))
        offer("Refuse, for good; the analyst reads the reason", "deny", "--reason", "WHY")
    elif waits:
        offer("Verify the release that waits, and find its report", "countersign", "--look")
        offer("Countersign it", "countersign")
        offer("Refuse it, for good", "countersign", "--refuse", "WHY")
    if "revoke" in _acts(site, record, waits):
        offer("Take the approval back, for good", "revoke", "--reason", "WHY")
    return tuple(commands)


def _next(waits: str) -> str:
    return "show" if waits == "approval" else "countersign --look"


def _command(site: Site, command: str, *arguments: str) -> str:
    words = [shlex.quote(word) for word in arguments]
    return " ".join(["verticil party", command, *words, "--config", shlex.quote(str(site.config.path))])

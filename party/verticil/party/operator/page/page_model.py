"""What the page shows: read from the site's state, in one view of it, and never written; and its HTML.

Everything is what ``party status | inbox | show | ledger | audit`` say, by the same functions: names, counts, epsilons, digests,
codes, and what people wrote. No value of a table, no record id, no key; the tables and the site's secrets are not even opened.

A page is one self-contained document without script, form, image or outside address. Every text is escaped (autoescape), whoever
wrote it: titles of studies, names of people, labels, messages. The style sheet is inline, and its hash is the only thing that the
content security policy lets a browser use.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import hashlib
import math
import re
import shlex
from dataclasses import dataclass, fields
from fractions import Fraction
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from verticil.party.limits.limits import Policy
from verticil.party.operator import accounts
from verticil.party.operator.commands import Status, status_of, study_status
from verticil.party.operator.pending_studies import PendingStudy, StudyInWords, in_words, waiting
from verticil.party.operator.plain_language import PRIOR
from verticil.party.operator.reports import (
    AuditVerified,
    BudgetView,
    LedgerView,
    SentRow,
    audit_lines,
    audit_verified,
    ledger_of,
)
from verticil.party.operator.view_model import CostView, DaemonView, StudyStatus
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import VerticilError
from verticil.shared.federation.audit import AuditLine
from verticil.shared.federation.membership.current import CertificateState, certificate_state
from verticil.shared.numerics.knowledge.words import EXPLAINED, HEADING
from verticil.shared.privacy.figures import belief, gamma_of_epsilon
from verticil.shared.release import wording
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.protocols import PROTOCOLS
from verticil.shared.study.states import State, is_final

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from jinja2 import Environment

_LITTLE_ROOM_BYTES: Final = 1 << 20
_CERTAIN: Final = Fraction(99, 100)
_NEWEST_LINES: Final = 300
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
class Overview:
    """The first page: what waits (with the next command), what blocks, every study, the budget, and how the node is."""

    party: str
    daemon: DaemonView
    waiting: tuple[tuple[PendingStudy, str], ...]
    studies: tuple[tuple[StudyStatus, StudyLine], ...]
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
    """One study: what it asks in words, where it stands, who decided, what was sent and receipted, what can be done."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPage:
    """Everything that was ever sent."""

    party: str
    ledger: LedgerView
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """The newest lines of the audit log, each with a text about it, and how many there are."""

    party: str
    audit: LogState
    entries: tuple[tuple[AuditLine, str], ...]
    n_entries: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why there is nothing to show."""

    party: str = ""
    said: str


def overview(site: Site, now: dt.datetime) -> Overview:
    """Return what waits, what blocks, every study, the budget, and how the node is; raises as `status_of`."""
    status, log = status_of(site, now), _log_state(site)
    pending = waiting(site, now)
    waits = {item.digest: item.waits_for for item in pending}
    return Overview(
        party=status.party,
        daemon=status.daemon,
        waiting=tuple((item, _command(site, _next(item.waits_for), item.digest[:16])) for item in pending),
        studies=tuple((item, _standing(item, waits.get(item.digest, ""))) for item in reversed(status.studies)),
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
    waits = next((item.waits_for for item in waiting(site, now) if item.digest == status.digest), "")
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
    return StudyPage(
        party=site.config.name,
        study=status,
        standing=_standing(status, waits),
        objections=objections,
        words=words,
        identifying=words is not None and _identifying(epsilon),
        waits_for=waits,
        stages=_stages(State(record.task.state)),
        earlier=None if earlier is None else earlier.digest.hex(),
        changes=tuple(differences),
        decisions=_decisions(site, record),
        sends=_sends(site, record),
        commands=_commands(site, record, waits),
    )


def ledger(site: Site) -> LedgerPage:
    """Everything that was ever sent, and what each data set may still spend; raises as `ledger_of`."""
    return LedgerPage(party=site.config.name, ledger=ledger_of(site), command=_command(site, "ledger"))


def audit(site: Site) -> AuditPage:
    """Return whether the audit log holds, and its newest lines; an unreadable log is a finding, not an error."""
    lines: list[AuditLine] = []
    state = _log_state(site)
    try:
        lines = list(audit_lines(site))
    except VerticilError as error:
        state = LogState(problem=error.message, hint=error.hint)
    return AuditPage(
        party=site.config.name,
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


def _standing(status: StudyStatus, waits: str) -> StudyLine:
    state, failure = State[status.state.upper()], status.failure
    n_given = f"{status.approvals} of {status.approvers_needed} approvals given here"
    if status.revoked:
        how, words, blocked_by = "ended", "revoked here", ""
    elif status.denied:
        how, words, blocked_by = "ended", "denied here", ""
    elif failure is not None:
        how, words, blocked_by = "failed", "failed here", f"{failure.code}: {failure.message}"
    elif is_final(state):
        how = {State.PUBLISHED: "done", State.FAILED: "failed"}.get(state, "ended")
        words, blocked_by = state.words, status.stage if state is State.FAILED else ""
    elif waits:
        how, words, blocked_by = "waiting", f"waits for your {waits}", n_given if waits == "approval" else ""
    else:
        how, words, blocked_by = "working", state.words, status.stage
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
    rows = ledger_of(site).rows
    return tuple((row, receipts.get(row.sha256, False)) for row in rows if row.digest == record.digest.hex())


# ---- commands


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
    if record.approval is not None and record.revocation_sent is None and record.denial_sent is None:
        offer("Take the approval back, for good", "revoke", "--reason", "WHY")
    return tuple(commands)


def _next(waits: str) -> str:
    return "show" if waits == "approval" else "countersign --look"


def _command(site: Site, command: str, *arguments: str) -> str:
    words = [shlex.quote(word) for word in arguments]
    return " ".join(["verticil party", command, *words, "--config", shlex.quote(str(site.config.path))])


# ---- HTML


def _read(name: str) -> str:
    return (files("verticil.party.operator.page") / "templates" / name).read_text(encoding="utf-8")


_STYLE: Final = _read("page.css")
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def render(template: str, model: DataclassInstance, *, root: str, shown_at: str) -> str:
    """Render a page as HTML.

    Args:
        template: its name, without ending.
        model: what it shows.
        root: relative address of the overview, as in ``../``.
        shown_at: when the state was read.
    """
    page = _environment().get_template(f"{template}.html.j2")
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    beside = {"stated_heading": HEADING, "stated_explained": EXPLAINED}
    return page.render({**values, **beside}, style=_STYLE, root=root, shown_at=shown_at, page=template)


def _protocol_text(model: str) -> str:
    return PROTOCOLS.named(model).summary


def _finite(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _one_for_all(value: Any) -> bool:
    return accounts.one_for_all(value)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters: dict[str, Any] = {
        "besides": besides,
        "each_account": accounts.each_account,
        "epsilon": epsilon_text,
        "finite": _finite,
        "greek": greek,
        "left": wording.left,
        "pair": pair_text,
        "protocol": _protocol_text,
        "sentence": sentence,
        "size": size_text,
        "unstated": accounts.not_stated,
        "when": when_text,
    }
    environment.filters.update(filters)
    environment.tests["one_for_all"] = _one_for_all
    return environment


def epsilon_text(value: float | None) -> str:
    """Write an epsilon, rounded up to two digits.

    >>> epsilon_text(2.001), epsilon_text(None), epsilon_text(math.inf)
    ('2.01', 'no limit', 'no limit')
    """
    return wording.epsilon(math.inf if value is None else float(value))


def pair_text(epsilon: float | None, delta: float | None) -> str:
    """Write an epsilon with its delta, where there is one.

    >>> pair_text(2.001, 1e-6), pair_text(2.0, 0.0), pair_text(2.0, None)
    ('2.01, δ 1e-06', '2.00', '2.00')
    """
    return epsilon_text(epsilon) + (f", δ {delta:g}" if delta and math.isfinite(delta) else "")


def greek(words: str) -> str:
    """Words with the letters that the page has for both numbers.

    >>> greek("epsilon 1.00, delta 1e-06")
    'ε 1.00, δ 1e-06'

    >>> greek("add max_public_epsilon and another")  # a key of party.toml stays what has to be written there
    'add max_public_epsilon and another'
    """
    return re.sub(r"\bdelta ", "δ ", re.sub(r"\bepsilon ", "ε ", words))


def besides(row: CostView | BudgetView) -> tuple[str, ...]:
    """Describe the accounts of a data set in words, under its figures."""
    same = accounts.same_words(row.accounts) if accounts.one_for_all(row.accounts) else ()
    of_accounts = accounts.numerical_words(row) if isinstance(row, BudgetView) else accounts.beside_words(row)
    return (*same, *of_accounts, *(row.people or ()), *filter(None, (row.peers,)))


def sentence(words: str) -> str:
    """Words as a sentence, in which no line ends before a percent sign.

    >>> sentence("a true 'yes' is kept 85 % of the time")
    "A true 'yes' is kept 85\\xa0% of the time."
    """
    return f"{words[:1].upper()}{words[1:]}.".replace(" %", "\N{NO-BREAK SPACE}%")


def size_text(n_bytes: int) -> str:
    """Write a number of bytes.

    >>> size_text(516), size_text(3_000_000)
    ('516 bytes', '2.9 MiB')
    """
    if n_bytes < 10_240:
        return f"{n_bytes:,} bytes"
    return f"{n_bytes / 1024:,.1f} KiB" if n_bytes < 1 << 20 else f"{n_bytes / (1 << 20):,.1f} MiB"


def when_text(stamp: str) -> str:
    """Write a stamp of the state, for people; always UTC.

    >>> when_text("2026-11-21T17:31:06Z")
    '2026-11-21 17:31:06'
    """
    return stamp[:19].replace("T", " ")

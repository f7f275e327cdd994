"""What the page shows, as plain values: read from the site's state, in one view of it, and never written.

Everything is what ``party status | inbox | show | ledger | audit`` tell, by the same functions: names, counts, epsilons, digests,
codes, and what people wrote. No value of a table, no record id, no key; the tables and the site's secrets are not even opened.
"""

from __future__ import annotations

import datetime as dt
import math
import shlex
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, cast

from verticil.party.audit.log import AuditLog
from verticil.party.operator.commands import status_of, study_status
from verticil.party.operator.page.rendering import epsilon_text, when_text
from verticil.party.operator.pending_studies import in_words, waiting
from verticil.party.operator.plain_language import PRIOR, ratio_of
from verticil.party.operator.reports import ledger_of
from verticil.party.operator.view_model import Facts
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.errors import VerticilError
from verticil.shared.membership.current import certificate_facts
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.states import State, is_final

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


def overview(site: Site, now: dt.datetime) -> Facts:
    """What waits, what blocks, every study, the budget, and how the node is; raises as `status_of`."""
    status, log = status_of(site, now), _log_state(site)
    asked = waiting(site, now)
    waits = {str(item["digest"]): str(item["waits_for"]) for item in asked}
    studies = cast("Sequence[Facts]", status["studies"])
    for item in asked:
        item["next"] = _command(site, _next(str(item["waits_for"])), str(item["digest"])[:16])
    return {
        **status,
        "waiting": asked,
        "studies": [{**item, **_standing(item, waits.get(str(item["digest"]), ""))} for item in reversed(studies)],
        "datasets": ledger_of(site)["datasets"],
        "audit": log,
        "blocks": _blocks(site, status, log),
        "certificates": [
            {"whose": "this node", "facts": status["certificate"]},
            {"whose": "the authority", "facts": certificate_facts(site.config.federation.ca_certificate, now)},
        ],
        "policy": site.config.policy,
    }


def study(site: Site, record: StudyRecord, now: dt.datetime) -> Facts:
    """One study: what it asks in words, where it stands, who decided, what was sent, what can be done.

    Raises:
        DataFault: STATE_CORRUPT.
    """
    facts = study_status(site.config, record)
    waits = next((str(item["waits_for"]) for item in waiting(site, now) if item["digest"] == facts["digest"]), "")
    words: Facts | None = None
    try:
        words = in_words(site, record, now)
        facts["objections"] = words["objections"]
        earlier, changed = site.changes(record)
    except VerticilError as error:  # it stands among the objections of `study_status` already, or belongs there
        said = f"{error.code}: {error.message}"
        facts["objections"] = list(dict.fromkeys([*cast("Sequence[str]", facts["objections"]), said]))
        earlier, changed = None, ()
    return {
        **facts,
        **_standing(facts, waits),
        "words": words,
        "identifying": words is not None and _identifying(facts.get("epsilon")),
        "waits_for": waits,
        "stages": _stages(State(record.task.state)),
        "earlier": None if earlier is None else earlier.digest.hex(),
        "changes": changed,
        "decisions": _decisions(site, record),
        "sends": _sends(site, record),
        "commands": _commands(site, record, waits),
    }


def ledger(site: Site) -> Facts:
    """Everything that was ever sent, and what each data set may still spend; raises as `ledger_of`."""
    return {**ledger_of(site), "command": _command(site, "ledger")}


def audit(site: Site) -> Facts:
    """Whether the audit log holds, and its newest lines; an unreadable log is a finding, not an error."""
    found: list[Mapping[str, object]] = []
    state = _log_state(site)
    try:
        found = list(AuditLog(site.database, site.config.state_directory).entries())
    except VerticilError as error:
        state = {**state, "ok": False, "problem": error.message, "hint": error.hint}
    return {
        "party": site.config.name,
        "audit": state,
        "entries": [_entry(said) for said in found[: -_NEWEST_LINES - 1 : -1]],
        "n_entries": len(found),
        "command": _command(site, "audit verify"),
    }


# ---- the node


def _log_state(site: Site) -> Facts:
    try:
        found = AuditLog(site.database, site.config.state_directory).verify()
    except VerticilError as error:
        return {"ok": False, "problem": error.message, "hint": error.hint}
    return {
        "ok": True,
        "lines": found.n_lines,
        "head": found.head.hex(),
        "torn": list(found.torn),
        "unfinished_bytes": found.unfinished_bytes,
    }


def _entry(said: Mapping[str, object]) -> dict[str, str]:
    """A line of the log as texts: of one that was tampered with, nothing can be relied on."""
    columns = said.get("columns")
    parts = {
        "": ", ".join(map(str, cast("list[object]", columns))) if isinstance(columns, list) else "",
        "ε ": epsilon_text(said["epsilon"]) if "epsilon" in said else "",
        "charged ": epsilon_text(said["charged"]) if "charged" in said else "",
        "to ": str(said.get("recipient", "")),
        "bytes: ": str(said.get("bytes", "")),
    }
    return {
        **{key: str(said.get(key, "")) for key in ("n", "at", "event", "who", "study_id", "detail")},
        "about": ", ".join(start + text for start, text in parts.items() if text),
    }


def _blocks(site: Site, status: Mapping[str, object], log: Mapping[str, object]) -> list[Facts]:
    """What keeps the node from its work, the worst first."""
    daemon = cast("Mapping[str, object]", status["daemon"])
    certificate = cast("Mapping[str, object] | None", status["certificate"])
    found: list[Facts] = []

    def block(what: str, command: str = "", *, grave: bool = True) -> None:
        found.append({"what": what, "command": command and _command(site, command), "grave": grave})

    if not log["ok"]:
        block(f"The audit log does not hold. {log['problem']}. {str(log['hint']).capitalize()}.", "audit verify")
    if not daemon["running"] and status["carried"] is not None:
        pass  # files are carried: no daemon runs here, and none should
    elif not daemon["running"]:
        seen = f"last sign of life {when_text(str(daemon['last_seen']))} UTC" if daemon["last_seen"] else "it never ran"
        block(
            f"The daemon does not run ({seen}): nothing is received or sent, and what is shown here may be old.", "run"
        )
    elif not daemon["connected"]:
        block(f"The daemon is not connected: {daemon['problem'] or 'starting'}.")
    if cast("int", status["disk_free_bytes"]) < _LITTLE_ROOM_BYTES:
        block("The disk of the state directory is full: the daemon cannot write down what it does, and waits for room.")
    if certificate is None:
        block("This node's certificate cannot be read: no connection can be made.")
    elif certificate["warning"] is not None:
        said = f"This node's certificate {certificate['words']}; have a new one signed."
        found.append({"what": said, "command": certificate["command"], "grave": certificate["warning"] == 0})
    policy = site.config.policy
    if policy.approvers_needed > 1 and not policy.approvers:
        block(
            f"party.toml asks for {policy.approvers_needed} approvals and names nobody: no study can be approved.",
            "approver add NAME",
        )
    for warning in cast("Sequence[str]", status["warnings"]):
        block(f"{warning[:1].upper()}{warning[1:]}.", grave=False)
    return found


# ---- one study


def _standing(facts: Mapping[str, object], waits: str) -> Facts:
    """In one word how a study is, and in a sentence what it waits for."""
    state = State[str(facts["state"]).upper()]
    failure = cast("Mapping[str, object] | None", facts["failure"])
    given = f"{facts['approvals']} of {facts['approvers_needed']} approvals given here"
    if facts["revoked"]:
        how, words, blocked_by = "ended", "revoked here", ""
    elif facts["denied"]:
        how, words, blocked_by = "ended", "denied here", ""
    elif failure is not None:
        how, words, blocked_by = "failed", "failed here", f"{failure['code']}: {failure['message']}"
    elif is_final(state):
        how = {State.PUBLISHED: "done", State.FAILED: "failed"}.get(state, "ended")
        words, blocked_by = state.words, str(facts["stage"]) if state is State.FAILED else ""
    elif waits:
        how, words, blocked_by = "waiting", f"waits for your {waits}", given if waits == "approval" else ""
    else:
        how, words, blocked_by = "working", state.words, str(facts["stage"])
    return {"how": how, "words_of_state": words, "blocked_by": blocked_by}


def _identifying(epsilon: object) -> bool:
    """Whether the sum over a person's columns can make somebody as good as certain."""
    ratio = ratio_of(float(epsilon) if isinstance(epsilon, int | float) else math.inf)
    return ratio is None or PRIOR * ratio / (1 + PRIOR * (ratio - 1)) >= _CERTAIN


def _stages(state: State) -> list[Facts]:
    """The way to the release: which step is over, which one it is at; a study that ended otherwise is at none."""
    at = next((place for place, (_, states) in enumerate(_STAGES) if state in states), None)
    over = len(_STAGES) if state is State.PUBLISHED else at or 0
    return [{"name": name, "over": place < over, "now": place == at} for place, (name, _) in enumerate(_STAGES)]


def _decisions(site: Site, record: StudyRecord) -> list[Facts]:
    """Who said what, when: votes, the approval, a denial, a countersignature, a revocation."""
    found: list[Facts] = []

    def decided(what: str, who: str, at: str, note: str = "") -> None:
        found.append({"what": what, "who": who, "at": at, "note": note})

    for vote in site.minutes.votes(record.digest):
        signed = "signed with the approver's key" if vote.signature else "for the site, without a key of their own"
        decided("yes", vote.approver, f"{vote.at:%Y-%m-%dT%H:%M:%SZ}", signed)
    if record.approval is not None:
        given = parse_approval(record.approval)
        note = f"valid until {given.expires}; needs at least {given.minimum_common_records:,} common people"
        decided("approved", given.approver, f"{given.approved_at:%Y-%m-%dT%H:%M:%SZ}", note)
    if (denial := site.state.denial(record.digest)) is not None:
        decided("denied", denial[0], denial[2], denial[1])
    review = site.minutes.review(record.digest)
    if review is not None:
        note = f"release with manifest {review.manifest_sha256.hex()[:16]}"
        what = "asked to countersign" if review.countersignature is None else "countersigned"
        decided(what, "", "", note)
    if (taken := site.revocations.get(record.digest)) is not None:
        after = " (after the publication: copies of the release cannot be recalled)" if taken.published else ""
        decided("revoked", taken.who, taken.revoked_at, taken.reason + after)
        if (said := taken.deletion) is not None:
            note = f"signed that {len(said.artifacts)} columns are deleted"
            decided("deleted", f"miner '{said.miner}'", f"{said.deleted_at:%Y-%m-%dT%H:%M:%SZ}", note)
        if (awaited := site.confirmations.of(record.digest)) is not None:
            for name, confirmed in awaited.confirmed.items():
                note = f"signed that {len(confirmed.columns)} columns are deleted"
                decided("deleted", f"party '{name}'", f"{confirmed.deleted_at:%Y-%m-%dT%H:%M:%SZ}", note)
            for name in awaited.missing:
                decided("not confirmed", f"party '{name}'", "", "has not signed yet that it deleted what it had")
    return found


def _sends(site: Site, record: StudyRecord) -> list[Facts]:
    receipts = site.state.receipts(record.digest)
    rows = cast("Sequence[Facts]", ledger_of(site)["rows"])
    return [
        {**row, "receipted": receipts.get(str(row["sha256"]), False)}
        for row in rows
        if row["digest"] == record.digest.hex()
    ]


# ---- commands


def _commands(site: Site, record: StudyRecord, waits: str) -> list[tuple[str, str]]:
    """What can be done about a study in a terminal: (what it does, the command)."""
    name = record.digest.hex()[:16]
    found: list[tuple[str, str]] = []

    def offer(what: str, command: str, *more: str) -> None:
        found.append((what, _command(site, command, name, *more)))

    if waits == "approval":
        offer("Hold the table against it; counts only, nothing leaves", "check")
        offer("Write what would leave into a folder, and look at it", "preview", "--out", "preview")
        voted = {vote.approver for vote in site.minutes.votes(record.digest)}
        for approver in [who for who in site.config.policy.approvers if who not in voted] or [""]:
            offer("Approve", "approve", *(("--as", approver) if approver else ()))
        offer("Refuse, for good; the analyst reads the reason", "deny", "--reason", "WHY")
    elif waits:
        offer("Verify the release that waits, and find its report", "countersign", "--look")
        offer("Countersign it", "countersign")
        offer("Refuse it, for good", "countersign", "--refuse", "WHY")
    if record.approval is not None and record.revocation_sent is None and record.denial_sent is None:
        offer("Take the approval back, for good", "revoke", "--reason", "WHY")
    return found


def _next(waits: str) -> str:
    return "show" if waits == "approval" else "countersign --look"


def _command(site: Site, command: str, *arguments: str) -> str:
    words = [shlex.quote(word) for word in arguments]
    return " ".join(["verticil party", command, *words, "--config", _quoted(site.config.path)])


def _quoted(path: object) -> str:
    return shlex.quote(str(path))

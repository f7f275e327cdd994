"""Where a study stands, in words and as a document: per party and stage who holds it up, and why.

Everything is made of the miner's closed lists of words, counts and ages; nothing that is said depends on anybody's data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from verticil.shared.documents.json_document import Json
from verticil.shared.release.worth import worth_document, worth_of_study
from verticil.shared.study.states import State, is_final

if TYPE_CHECKING:
    from verticil.wire.v1.control_pb2 import PartyStatus, StudySummary

_CANNOT_COME: Final = frozenset({"revoked", "expired"})
_PARTS: Final = {
    "approval": "its approval",
    "linkage": "its pseudonyms",
    "confirmation": "its confirmation of the common list",
    "columns": "its columns",
    "messages": "its messages of the round",
}


def age_text(seconds: int) -> str:
    """Write an age for people to read.

    >>> age_text(9), age_text(200), age_text(9000), age_text(200_000)
    ('9 s', '3 min', '2 h', '2 d')
    """
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def name_study(study: StudySummary) -> str:
    """Return what people call a study: ANALYST/id, where the miner says who submitted it."""
    return f"{study.submitter}/{study.study_id}" if study.submitter else study.study_id


def why(party: PartyStatus) -> str:
    """Say what the study waits for at a party, in words; empty: nothing."""
    if party.left_out:
        return f"left out: its {party.left_out} was missing" if party.left_out != "denial" else "left out: it denied"
    if party.failure.code:
        return f"failed: {party.failure.code}" + (f" ({party.failure.hint})" if party.failure.hint else "")
    if party.standing and (party.waiting_for in _PARTS or party.standing in _CANNOT_COME):
        return _why_not_online(party)
    if not party.waiting_for:
        return ""
    progress = f"{party.stage}, {party.percent} %" if party.percent else party.stage
    again = party.approved and party.stage == "approving"  # its table is another than the one that was approved
    words = {
        "approval": f"waiting for approval{votes(party)}{_policy(party)}{_void(party)}",
        "linkage": progress if party.stage in {"reading", "linking"} else "waiting for its pseudonyms",
        "confirmation": "waiting for it to confirm the common list",
        "denial": "denied; the study goes on at its deadline without it, if its quorum is there",
        "columns": progress if party.stage in {"randomizing", "uploading"} else "waiting for its columns",
        "messages": progress if party.stage in {"randomizing", "masking"} else "waiting for its messages of the round",
    }
    text = words.get(party.waiting_for, f"waiting: {party.waiting_for}")
    text = f"waiting for its new approval{votes(party)}" if again else text
    if party.online:
        return text
    last_contact = (
        f"last heard of {age_text(party.lease_age_seconds)} ago"
        if party.seen
        else "not heard of since the miner started"
    )
    return f"{text}; offline, {last_contact}"


def reasons(study: StudySummary) -> dict[str, str]:
    """Say for each party what the study waits for there; of a study that has ended only what went wrong."""
    is_over = is_final(State(study.state))
    return {
        party.party: "" if is_over and not (party.failure.code or party.left_out) else why(party)
        for party in study.parties
    }


def _why_not_online(party: PartyStatus) -> str:
    """Say what is missing of a party that is revoked or expired, or whose files are carried: nobody waits for a line to it."""
    part, day = _PARTS.get(party.waiting_for, ""), party.standing_since[:10]
    if party.standing == "carried":
        return f"comes with its next file: {part}; the last one came on {day}{_void(party)}"
    how = "joins anew with new keys" if party.standing == "revoked" else "renews its certificate"
    missing = f"; missing until it {how}: {part}" if part else ""
    return f"{party.standing} on {day}{missing}{_void(party)}"


def _policy(party: PartyStatus) -> str:
    """Say what the party's policy says, the first thing of it in full; empty: it has not told."""
    if not party.HasField("objections"):
        return ""
    items = list(party.objections.items)
    if not items:
        return ", which its policy permits"
    refusals = [item for item in items if item.code != "NOT_APPROVED"]
    first = (refusals or items)[0]
    what = "its policy does not permit it" if refusals else "its people decide"
    more = f" (and {len(items) - 1} more)" if len(items) > 1 else ""
    return f"; {what}: {first.code}: {first.message}{more}"


def objections(study: StudySummary) -> list[str]:
    """Say why parties do not approve, as their policies say, for people."""
    return [f"{party.party}: {item.code}: {item.message}" for party in study.parties for item in party.objections.items]


def _void(party: PartyStatus) -> str:
    if not party.approval_void:
        return ""
    return f"; it had approved with a certificate that was revoked on {party.approval_void[:10]}, and approves anew"


def votes(party: PartyStatus) -> str:
    """Say how many of the approvers that are needed have approved, in words; empty: one person does."""
    return f" ({party.approvers} of {party.approvers_needed})" if party.approvers_needed else ""


def summary_payload(study: StudySummary) -> dict[str, Json]:
    """Return a study's status for ``--format json``."""
    failure, words = study.failure, reasons(study)
    return {
        "id": study.study_id,
        "submitter": study.submitter or None,
        "digest": study.study_digest.hex(),
        "effective_digest": study.effective_digest.hex() or None,
        "state": State(study.state).words,
        "detail": study.stage_detail,
        "title": study.title,
        "deadline": study.deadline or None,
        "common_records": study.n_common or None,
        "failure": {"code": failure.code, "message": failure.message, "hint": failure.hint} if failure.code else None,
        "parties_left_out": [party.party for party in study.parties if party.left_out],
        "parties": [_party_payload(party) | {"why": words[party.party]} for party in study.parties],
        **({} if (worth := worth_of_study(study)) is None else {"worth": worth_document(worth)}),
    }


def _party_payload(party: PartyStatus) -> dict[str, Json]:
    return {
        "party": party.party,
        "online": party.online,
        "lease_age_seconds": party.lease_age_seconds if party.seen else None,
        "approved": party.approved,
        "approvers": party.approvers if party.approvers_needed else None,
        "approvers_needed": party.approvers_needed or None,
        "objections": [{"code": item.code, "message": item.message} for item in party.objections.items]
        if party.HasField("objections")
        else None,
        "pseudonyms": party.pseudonyms_complete,
        "alignment_confirmed": party.alignment_confirmed,
        "units_received": party.units_received,
        "units_expected": party.units_expected,
        "stage": party.stage,
        "percent": party.percent,
        "standing": party.standing or None,
        "standing_since": party.standing_since or None,
        "waiting_for": (party.waiting_for or None) if party.standing not in _CANNOT_COME else None,
        "missing": party.waiting_for or None,
        "approval_void": party.approval_void or None,
        "left_out": party.left_out or None,
        "failure": {"code": party.failure.code, "hint": party.failure.hint} if party.failure.code else None,
        "revoked_at": party.revoked_at or None,
        "revocation_reason": party.revocation_reason or None,
    }


def revocations(study: StudySummary) -> list[str]:
    """Say who took an approval back, for people; what was published before cannot be recalled, and this says so."""
    is_published = State(study.state) is State.PUBLISHED
    after = "; what was published cannot be recalled" if is_published else ""
    return [
        f"revoked by {party.party} on {party.revoked_at[:10]}: {party.revocation_reason}{after}"
        for party in study.parties
        if party.revoked_at
    ]


def state_of(study: StudySummary) -> str:
    """Return the state and the stage, in words."""
    return State(study.state).words + (f"  {study.stage_detail}" if study.stage_detail else "")


def changes(study: StudySummary, last_lines: dict[str, str]) -> Iterator[str]:
    """Yield a line for each change of the study, or of what is waited for at a party, since the last time.

    Args:
        study: as it is now.
        last_lines: what was said of the study and of each party last; brought up to date.
    """
    for name, text in ((study.study_id, state_of(study)), *reasons(study).items()):
        if last_lines.get(name, "") != text:
            last_lines[name] = text
            yield f"{name}: {text or 'nothing is waited for'}"
    for line in objections(study):
        if line not in last_lines:
            last_lines[line] = ""
            yield line

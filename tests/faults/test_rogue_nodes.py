"""A party between a rogue miner and an honest study: the table of lies, and what each of them ends in.

The rogue miner is a gRPC server with mutual TLS and a genuine miner's certificate. Behind it stands a real miner, so that
everything is true but the lie. Each lie ends in a named refusal, in a wait, or in nothing; the daemon lives, serves an honest
study afterwards, and its ledger and audit log hold. Without the marker a few lies run, `pytest -m faults tests/faults` runs all.

To add a lie, add a row: the call, how its answer is changed, and the words of the log in which it ends ("" when it ends in
nothing and the study goes on). Releases and receipts that lie stand in
`test_rogue_releases.py`, rogue peers in `test_rogue_peers.py`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import party_session as session
from support import peer_session as peers
from support.rogue_miner import EARLY, ESCAPES, Lie, RogueMiner, ends_well, fields, reply, rows, signed_by
from verticil.shared.documents.record import canonical_json, encode
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.shared.study.sub_model import SubModel
from verticil.wire.v1 import common_pb2, coordinator_pb2

pki = session.pki
DIGEST = b"\x07" * 32


# ---- the miner


def tasks(change: Callable[[Any], object], *states: State) -> Callable[[RogueMiner, Any], Any]:
    """Change every task in a reply to a poll, or those in these states."""

    def lie(_rogue: RogueMiner, reply: Any) -> Any:
        found = [task for task in reply.tasks if not states or task.state in states]
        for task in found:
            change(task)
        return reply if found else None

    return lie


def more_tasks(make: Callable[[RogueMiner], list[Any]]) -> Callable[[RogueMiner, Any], Any]:
    def lie(rogue: RogueMiner, message: Any) -> Any:
        message.tasks.extend(make(rogue))
        return message

    return lie


def task(**values: Any) -> Any:
    made = coordinator_pb2.StudyTask(study_digest=DIGEST, version=1, state=2)
    fields(**values)(made)
    return made


def other_study(text: str) -> bytes:
    return canonical.to_bytes(read_study_text(text))


def read_study_text(text: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.toml"
        path.write_text(text)
        return read_study(path)


def told(text: str, **values: Any) -> Any:
    proposal = other_study(text)
    return task(study_digest=hashlib.sha256(proposal).digest(), proposal=proposal, **values)


def back(first: State, second: State) -> Callable[[RogueMiner, Any], Any]:
    """Say that the study has ended, then that it goes on."""

    def lie(rogue: RogueMiner, message: Any) -> Any:
        for item in message.tasks:
            if item.state == State.PREPARING and not rogue.seen:
                rogue.seen["ended"] = True
                item.state = first
                item.version = 1
                return message
            if rogue.seen:
                item.state = second
                return message
        return None

    return lie


def another_study(change: Callable[[Any], Any]) -> Callable[[RogueMiner, Any], Any]:
    """The effective study is told changed, under its own digest."""

    def lie(_rogue: RogueMiner, message: Any) -> Any:
        if not any(item.effective for item in message.tasks):
            return None
        session.another_effective(change)(message)
        return message

    return lie


def receipt(change: Callable[[dict[str, Any]], None]) -> Callable[[RogueMiner, Any], Any]:
    """A genuine signature of the miner below another receipt."""

    def lie(rogue: RogueMiner, message: Any) -> Any:
        body = json.loads(message.receipt.body)
        change(body)
        message.receipt.CopyFrom(signed_by("miner", canonical_json(body))(rogue))
        return message

    return lie


def by_other(rogue: RogueMiner, message: Any) -> Any:
    message.receipt.CopyFrom(signed_by("south", message.receipt.body)(rogue))
    return message


def invented(rogue: RogueMiner) -> list[Any]:
    rogue.seen["n"] = rogue.seen.get("n", 0) + 1
    return [told(session.STUDY.replace('"trial"', f'"invented-{rogue.seen["n"]}-{i}"', 1), state=23) for i in range(5)]


def deletion(make: Callable[[RogueMiner], Any]) -> Callable[[RogueMiner, Any], Any]:
    def lie(rogue: RogueMiner, message: Any) -> Any:
        for item in message.tasks:
            item.deletion.CopyFrom(make(rogue))
        return message if message.tasks else None

    return lie


def sub_model(make: Callable[[RogueMiner, Any], Any]) -> Callable[[RogueMiner, Any], Any]:
    """The study is told to go on without south."""

    def lie(rogue: RogueMiner, message: Any) -> Any:
        for item in message.tasks:
            item.sub_model.CopyFrom(make(rogue, item))
        return message if message.tasks else None

    return lie


def left_out_nobody(rogue: RogueMiner, item: Any) -> Any:
    body = encode(
        SubModel(
            proposal_digest=item.study_digest,
            effective_digest=item.effective_digest,
            left_out=(),
            decided_at=dt.datetime(2026, 11, 21, tzinfo=dt.UTC),
        )
    )
    return signed_by("north", body)(rogue)


def empty_parts(_rogue: RogueMiner, part: Any) -> Any:
    bare = coordinator_pb2.AlignmentPart(
        n_common=part.n_common, common_sha256=part.common_sha256, bitmap_size=part.bitmap_size
    )
    return [bare] * 50


def in_pieces(_rogue: RogueMiner, part: Any) -> Any:
    return [part, part]


HASTE = "trying again"
LIES: dict[str, Lie] = {
    # error codes, one of each family, in a greeting, in polls, in reports, at uploads
    **{
        f"{code} in a poll": Lie(rpc="Poll", change=code, says=f"{code}: the miner says: ", default=code == "STATE_CORRUPT")
        for code in ("STATE_CORRUPT", "LEDGER_OLDER", "CONFIG_INVALID", "SECRET_MISSING", "RELEASE_INVALID", "STUDY_DENIED",
                     "INTERNAL", "NOT_READY", "CERTIFICATE_REVOKED", "USAGE")
    },
    **{f"{code} in a greeting": Lie(rpc="Hello", change=code, says=f"{code}: the miner says: ")
       for code in ("CONFIG_INVALID", "LEDGER_OLDER", "IDENTITY_REFUSED", "STUDY_OVER")},
    **{f"{code} in a report": Lie(rpc="Report", change=code, says=f"{code}: the miner says: ", default=code == "LEDGER_OLDER")
       for code in ("STATE_CORRUPT", "LEDGER_OLDER", "CERTIFICATE_INVALID", "STUDY_UNKNOWN")},
    "SECRET_MISSING at the pseudonyms": Lie(rpc="PutPseudonyms", change="SECRET_MISSING", says=HASTE),
    "CONFIG_INVALID at an upload": Lie(rpc="BeginUpload", change="CONFIG_INVALID", says=HASTE, spent=2.0),
    "STATE_CORRUPT at the end of an upload": Lie(rpc="FinishUpload", change="STATE_CORRUPT", says=HASTE, spent=2.0),
    # greetings
    "another federation": Lie(rpc="Hello", change=reply(federation=ESCAPES + "x" * 5000), says="the miner serves"),
    "a version of the far future": Lie(rpc="Hello", change=reply(protocol_version=2**31), says="VERSION_UNSUPPORTED"),
    "a clock in the year 10000": Lie(rpc="Hello", change=reply(server_time_ms=2**62), says="the clock of the miner"),
    "a deny-list that is none": Lie(rpc="Hello", change=reply(deny_list=b"\xff" * 99), says="deny-list"),
    "a deny-list that is none, in every poll": Lie(rpc="Poll", change=reply(deny_list=b"{}"), says="deny-list"),
    # tasks
    "a digest of another length": Lie(
        rpc="Poll", change=more_tasks(lambda _: [task(study_digest=b"x" * 9)]), says="MESSAGE_INVALID"),
    "a digest of another proposal": Lie(rpc="Poll", change=more_tasks(lambda _: [task(proposal=b"{}")]), says="STUDY_MISMATCH"),
    "a proposal that is no study": Lie(
        rpc="Poll", says="MESSAGE_INVALID", default=True,
        change=more_tasks(lambda _: [task(study_digest=_sha256(b"{}"), proposal=b"{}")])),
    "a proposal of ten thousand brackets": Lie(
        rpc="Poll", says="MESSAGE_INVALID",
        change=more_tasks(lambda _: [task(study_digest=_sha256(b"[" * 10_000), proposal=b"[" * 10_000)])),
    "a proposal of bytes that are no text": Lie(
        rpc="Poll", says="MESSAGE_INVALID",
        change=more_tasks(lambda _: [task(study_digest=_sha256(b"\xff\xfe"), proposal=b"\xff\xfe")])),
    "a study of other parties": Lie(
        rpc="Poll", says="PARTY_UNKNOWN",
        change=more_tasks(lambda _: [told(session.STUDY.replace("north", "east"))])),
    "a study between peers": Lie(
        rpc="Poll", says="STUDY_MISMATCH",
        change=more_tasks(lambda _: [told(peers.STUDY)])),
    "no such state": Lie(rpc="Poll", change=tasks(fields(state=77), *EARLY), says="no such task"),
    "version 0": Lie(rpc="Poll", change=tasks(fields(version=0), *EARLY), says="no such task"),
    "the largest version": Lie(rpc="Poll", change=tasks(fields(version=2**64 - 1), *EARLY), says="no such task"),
    "units that nobody has": Lie(
        rpc="Poll", change=tasks(fields(units_received=[7, 2**32 - 1])), says="units are reported", default=True),
    "units of the other party": Lie(rpc="Poll", change=tasks(fields(units_received=[2, 3])), says="units are reported"),
    "a thousand units": Lie(rpc="Poll", change=tasks(fields(units_received=[0] * 1000)), says="units are reported"),
    "an effective study that is none": Lie(
        rpc="Poll", change=tasks(fields(effective=b"{}", effective_digest=DIGEST), *EARLY), says="MESSAGE_INVALID"),
    "an effective study of another digest": Lie(
        rpc="Poll", change=tasks(lambda item: setattr(item, "effective", item.proposal)), says="STUDY_MISMATCH"),
    "an effective study with another matrix": Lie(rpc="Poll", change=another_study(session.weaker_own), says="STUDY_MISMATCH"),
    "an effective study of another last day": Lie(rpc="Poll", change=another_study(session.later_expiry), says="STUDY_MISMATCH"),
    "an effective study of fewer people": Lie(rpc="Poll", change=another_study(session.smaller_minimum), says="STUDY_MISMATCH"),
    "a failure with a screen full of escapes": Lie(
        rpc="Poll", says="",
        change=tasks(fields(failure=common_pb2.ErrorDetail(code=ESCAPES, message=ESCAPES * 999, hint=ESCAPES)))),
    # ends and other states
    "published, then uploading": Lie(
        rpc="Poll", change=back(State.PUBLISHED, State.UPLOADING), says="has ended here", default=True),
    "withdrawn, then preparing": Lie(rpc="Poll", change=back(State.WITHDRAWN, State.PREPARING), says="has ended here"),
    "expired, then aligning": Lie(rpc="Poll", change=back(State.EXPIRED, State.ALIGNING), says="has ended here"),
    "denied, then awaiting approval": Lie(rpc="Poll", change=back(State.DENIED, State.AWAITING_APPROVAL), says="has ended here"),
    "failed, then uploading": Lie(rpc="Poll", change=back(State.FAILED, State.UPLOADING), says="has ended here"),
    "uploading from the first moment": Lie(
        rpc="Poll", change=tasks(fields(state=State.UPLOADING), *EARLY), says=""),
    # statements
    "an unsigned sub-model of {}": Lie(
        rpc="Poll", change=sub_model(lambda _, __: common_pb2.Signed(body=b"{}")), says="", default=True),
    "a sub-model that north signed": Lie(rpc="Poll", change=sub_model(left_out_nobody), says=""),
    "an unsigned deletion": Lie(rpc="Poll", change=deletion(lambda _: common_pb2.Signed(body=b"{}")), says="CERTIFICATE_INVALID"),
    "a deletion that south signed": Lie(rpc="Poll", change=deletion(signed_by("south", b"{}")), says="IDENTITY_REFUSED"),
    "a deletion of nothing": Lie(rpc="Poll", change=deletion(signed_by("miner", b"{}")), says="deletion is not accepted"),
    "a review of nothing": Lie(rpc="Poll", change=tasks(fields(review_manifest_sha256=b"x" * 31)), says=""),
    # polls without end
    "a new version in each reply": Lie(
        rpc="Poll", says="", change=more_tasks(lambda rogue: [_counted(rogue)])),
    "five invented studies in each reply": Lie(rpc="Poll", change=more_tasks(invented), says=""),
    # the common list
    "too few common people": Lie(rpc="GetAlignment", change=reply(n_common=3), says="ALIGNMENT_MISMATCH"),
    "more common people than there are": Lie(rpc="GetAlignment", change=reply(n_common=2**63), says="ALIGNMENT_MISMATCH"),
    "a bitmap of another size": Lie(rpc="GetAlignment", change=reply(bitmap_size=2**62), says="ALIGNMENT_MISMATCH"),
    "a foreign common list": Lie(rpc="GetAlignment", change=reply(common_sha256=DIGEST), says="ALIGNMENT_MISMATCH", default=True),
    "a bitmap twice": Lie(rpc="GetAlignment", change=in_pieces, says="OFFSET_MISMATCH"),
    "a bitmap of parts without a byte": Lie(rpc="GetAlignment", change=empty_parts, says="a part without a byte", default=True),
    "an empty bitmap": Lie(rpc="GetAlignment", change=lambda *_: [], says="the bitmap broke off"),
    "pseudonyms beyond their end": Lie(
        rpc="PutPseudonyms", change=reply(committed_offset=2**63, complete=False), says="OFFSET_MISMATCH"),
    "pseudonyms that never arrive": Lie(
        rpc="PutPseudonyms", change=reply(committed_offset=0, complete=False), says="stays at or near byte 0"),
    # uploads and receipts
    "an upload beyond its end": Lie(rpc="BeginUpload", change=reply(committed_offset=2**63), says="OFFSET_MISMATCH", spent=2.0),
    "a receipt before anything was sent": Lie(
        rpc="BeginUpload", change=reply(receipt=common_pb2.Signed(body=b"{}")), says="STUDY_MISMATCH", spent=2.0),
    "a receipt without a signature": Lie(
        rpc="FinishUpload", says="STUDY_MISMATCH", spent=2.0, default=True,
        change=lambda _, message: (message.receipt.ClearField("signature"), message)[1]),
    "a receipt that south signed": Lie(rpc="FinishUpload", change=by_other, says="STUDY_MISMATCH", spent=2.0),
    "a receipt of another unit": Lie(
        rpc="FinishUpload", change=receipt(lambda body: body.update(unit=1 - body["unit"])), says="STUDY_MISMATCH", spent=2.0),
    "a receipt of another party": Lie(
        rpc="FinishUpload", change=receipt(lambda body: body.update(party="south")), says="STUDY_MISMATCH", spent=2.0),
    "a receipt of minus one byte": Lie(
        rpc="FinishUpload", change=receipt(lambda body: body.update(size=-1)), says="STUDY_MISMATCH", spent=2.0),
}  # fmt: skip


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _counted(rogue: RogueMiner) -> Any:
    rogue.seen["n"] = rogue.seen.get("n", 0) + 1
    return task(study_digest=_sha256(b"{}"), proposal=b"{}", version=rogue.seen["n"])


@pytest.mark.parametrize("name", rows(LIES))
async def test_a_lie_of_the_miner_ends_in_a_named_refusal_a_wait_or_nothing(
    name: str, tmp_path: Path, pki: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await ends_well(LIES[name], tmp_path, pki, caplog)

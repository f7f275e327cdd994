"""A party between a rogue miner and an honest study: the table of lies, and what each of them ends in.

The rogue miner is a gRPC server with mutual TLS and a genuine miner's certificate. Behind it stands a real miner, so that
everything is true but the lie. Each lie ends in a named refusal, in a wait, or in nothing; the daemon lives, serves an honest
study afterwards, and its ledger and audit log hold. Without the marker a few lies run, `pytest -m faults tests/faults` runs all.

To add a lie, add a row: the call, how its answer is changed, and the words of the log in which it ends ("" when it ends in
nothing and the study goes on). Releases and receipts that lie stand in
`test_rogue_releases.py`, rogue peers in `test_rogue_peers.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from verticil.party import daemon
from verticil.party.policy.policy import MAX_OPEN_STUDIES
from verticil.party.site import Site
from verticil.shared.config import load_federation
from verticil.shared.errors import from_code
from verticil.shared.identity.pki import load_credentials
from verticil.shared.identity.signing import SigningKey
from verticil.shared.record import canonical_json, encode
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.shared.study.sub_model import SubModel
from verticil.shared.transport.coordinator import Coordinator
from verticil.shared.transport.serving.binding import bind
from verticil.shared.transport.serving.server import RpcServer
from verticil.wire.v1 import common_pb2, coordinator_pb2


def _neighbour(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "protocol" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"rogue_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


session = _neighbour("test_party_session")
peers = _neighbour("test_peer_session")
pki = session.pki
ESCAPES = "\x1b[2J\x1b]0;approved\x07\u202e"
CONTROL = "\x1b\x07\u202e"
DIGEST = b"\x07" * 32
ENOUGH_SECONDS = 45.0


# ---- the miner


class RogueMiner:
    """Answers as the real miner does, but for the lie, which is told to north."""

    def __init__(self, federation: Any) -> None:
        self.federation = federation
        self.lie: Lie | None = None
        self.told = 0
        self.seen: dict[str, Any] = {}

    def __getattr__(self, rpc: str) -> Any:
        real = lambda: getattr(self.federation.node.coordinator, rpc)  # noqa: E731 (looked up at each call)
        if rpc in {"GetAlignment", "GetBlinded", "GetRelease"}:

            async def many(identity: Any, request: Any) -> AsyncIterator[Any]:
                async for part in real()(identity, request):
                    for changed in self._parts(rpc, part):
                        yield changed

            return many

        async def one(identity: Any, request: Any) -> Any:
            if self.lie is not None and self.lie.rpc == rpc and isinstance(self.lie.change, str):
                self.told += 1
                raise from_code(
                    self.lie.change, f"{ESCAPES}lies of the miner", hint="verticil party run --accept-older"
                )
            reply = await real()(identity, request)
            return next(iter(self._parts(rpc, reply)))

        return one

    def _parts(self, rpc: str, reply: Any) -> Iterator[Any]:
        if self.lie is None or self.lie.rpc != rpc or isinstance(self.lie.change, str):
            return iter([reply])
        changed = self.lie.change(self, reply)
        if changed is None:
            return iter([reply])
        self.told += 1
        return iter([changed] if not isinstance(changed, list) else changed)


@dataclass(frozen=True, kw_only=True)
class Lie:
    """One lie of the miner.

    Attributes:
        rpc: in the answer to this call.
        change: makes the lie of the true answer (None: it stays true), or a code with which the call fails.
        says: words of the log in which it ends; empty: the study goes on to its end.
        spent: what the ledger says when it has ended.
        default: it is told without the marker, too.
    """

    rpc: str
    change: Callable[[RogueMiner, Any], Any] | str
    says: str
    spent: float = 0.0
    default: bool = False


def tasks(change: Callable[[Any], object], *states: State) -> Callable[[RogueMiner, Any], Any]:
    """Change every task in a reply to a poll, or those in these states."""

    def lie(_rogue: RogueMiner, reply: Any) -> Any:
        found = [task for task in reply.tasks if not states or task.state in states]
        for task in found:
            change(task)
        return reply if found else None

    return lie


def fields(**values: Any) -> Callable[[Any], None]:
    """Set fields of a message."""

    def change(message: Any) -> None:
        for name, value in values.items():
            if isinstance(value, list):
                del getattr(message, name)[:]
                getattr(message, name).extend(value)
            elif hasattr(value, "DESCRIPTOR"):
                getattr(message, name).CopyFrom(value)
            else:
                setattr(message, name, value)

    return change


def reply(**values: Any) -> Callable[[RogueMiner, Any], Any]:
    """Set fields of a whole reply."""

    def lie(_rogue: RogueMiner, message: Any) -> Any:
        fields(**values)(message)
        return message

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
        session._another_effective(change)(message)
        return message

    return lie


def signed_by(name: str, body: bytes) -> Callable[[RogueMiner], Any]:
    def sign(rogue: RogueMiner) -> Any:
        pki_folder = rogue.federation.pki
        return SigningKey.load(pki_folder / f"{name}.sign", pki_folder / f"{name}.crt").sign(body)

    return sign


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


EARLY = (State.SUBMITTED, State.AWAITING_APPROVAL)
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
        rpc="Poll", change=tasks(fields(units_received=[7, 2**32 - 1])), says="units are told", default=True),
    "units of the other party": Lie(rpc="Poll", change=tasks(fields(units_received=[2, 3])), says="units are told"),
    "a thousand units": Lie(rpc="Poll", change=tasks(fields(units_received=[0] * 1000)), says="units are told"),
    "an effective study that is none": Lie(
        rpc="Poll", change=tasks(fields(effective=b"{}", effective_digest=DIGEST), *EARLY), says="MESSAGE_INVALID"),
    "an effective study of another digest": Lie(
        rpc="Poll", change=tasks(lambda item: setattr(item, "effective", item.proposal)), says="STUDY_MISMATCH"),
    "an effective study with another matrix": Lie(rpc="Poll", change=another_study(session._weaker_own), says="STUDY_MISMATCH"),
    "an effective study of another last day": Lie(rpc="Poll", change=another_study(session._later_expiry), says="STUDY_MISMATCH"),
    "an effective study of fewer people": Lie(rpc="Poll", change=another_study(session._smaller_minimum), says="STUDY_MISMATCH"),
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


def rows(table: dict[str, Any]) -> list[Any]:
    return [pytest.param(name, marks=() if lie.default else pytest.mark.faults) for name, lie in table.items()]


@contextlib.asynccontextmanager
async def rogue_miner(root: Path, folder: Path, **options: Any) -> AsyncIterator[RogueMiner]:
    """Two parties; south is served by the miner, north by the rogue in front of it, over gRPC."""
    federation = options.pop("federation", session.Federation)(root, folder, approval=options.pop("approval", "auto"))
    rogue = RogueMiner(federation)
    for name, policy in options.items():
        federation.set_up(name, approval="manual", policy=policy)
    await federation.start_miner()
    miner = root / "rogue"
    miner.mkdir()
    (miner / "federation.toml").write_text((root / "north" / "federation.toml").read_text())
    (miner / "ca.crt").write_bytes((folder / "ca" / "ca.crt").read_bytes())
    own = load_credentials(folder / "miner.crt", folder / "miner.key", load_federation(miner / "federation.toml"))
    server = RpcServer("127.0.0.1:0", own, [bind(Coordinator, rogue)])
    port = await server.start()
    path = root / "north" / "federation.toml"
    path.write_text(path.read_text().replace("localhost:1", f"localhost:{port}"))
    stop = asyncio.Event()
    federation.stops["north"] = stop
    try:
        federation.start("south")
        federation.tasks["north"] = asyncio.create_task(daemon.run_party(federation.config("north"), stop=stop))
        yield rogue
    finally:
        await federation.stop()
        federation.node.changes.close()
        await server.stop(grace_seconds=0)
        await federation.stop_miner()


async def until(true: Callable[[], bool], north: asyncio.Task[None]) -> None:
    async with asyncio.timeout(ENOUGH_SECONDS):
        while not true():
            if north.done():
                north.result()
            await asyncio.sleep(0.02)


def spent(rogue: RogueMiner) -> float:
    return sum(row.charged for row in rogue.federation.ledger("north"))


@pytest.mark.parametrize("name", rows(LIES))
async def test_a_lie_of_the_miner_ends_in_a_named_refusal_a_wait_or_nothing(
    name: str, tmp_path: Path, pki: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await ends_well(LIES[name], tmp_path, pki, caplog)


async def ends_well(lie: Lie, root: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Tell the lie, see it end as its row says, and carry an honest study out."""
    async with rogue_miner(root, folder) as rogue:
        federation, north = rogue.federation, rogue.federation.tasks["north"]
        rogue.lie = lie
        first = await federation.submit()
        if lie.says:
            await until(lambda: rogue.told > 0 and lie.says in caplog.text, north)
            assert spent(rogue) <= lie.spent
        else:
            await until(lambda: rogue.told > 0, north)
            await federation.until(first, State.ESTIMATING)
        rogue.lie = None
        honest = await federation.submit(session.STUDY.replace('"trial"', '"honest"', 1))
        await federation.until(honest, State.ESTIMATING)
        assert not north.done()
        await federation.stop()
        assert spent(rogue) == pytest.approx(4.0)  # the two columns, once
        with Site.open(federation.config("north")) as site:
            lines = site.audit.verify().n_lines
            texts = [json.dumps(entry) for entry in site.audit.entries()]
            shown = [f"{record.stage} {record.failure}" for record in site.state.studies()]
        assert lines < 100 + MAX_OPEN_STUDIES
        assert not any("accept-older" in text for text in texts)
        assert not any(letter in text for text in shown for letter in CONTROL)
    written = [
        record.getMessage() for record in caplog.records if ".serving." not in record.name
    ]  # that is the rogue's own
    assert not any("unexpected error" in text for text in written)
    assert not any(letter in text for text in written for letter in CONTROL)
    assert all("the miner says: verticil party run" in text for text in written if "accept-older" in text)

"""Model I with a rogue peer: the table of its lies, and how each ends at the others.

South tells what no honest party tells. Each lie ends the study at who hears it by a named fault in which south stands, or is
waited out; it is never an error of the victim's own, nothing is computed from it, nobody is charged twice, and an honest study
between the same parties is published afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import peer_session as peers
from verticil.shared.core.errors import from_code
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.chunks import make_chunks, plain_data
from verticil.shared.federation.transport.errors_on_wire import from_detail, to_detail
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2, peer_pb2

pki = peers.pki
make = peers.make
ESCAPES = "\x1b[2J\x1b]0;approved\x07\u202e"
CONTROL = "\x1b\x07\u202e"


@dataclass(frozen=True, kw_only=True)
class Lie:
    """One lie of south.

    Attributes:
        rpc: in the answer to this call.
        change: makes the lie of the true reply, or of the true parts of a stream; a code: the call fails with it.
        ends: code with which the study ends at `victim`; empty: it is waited out, and `says` is shown meanwhile.
        says: a part of what is shown.
        victim: who hears the lie.
        default: it is told without the marker, too.
    """

    rpc: str
    change: Callable[[Any], Any] | str
    ends: str = ""
    says: str = "'south'"
    victim: str = "north"
    default: bool = False


class RogueWire(peers.Wire):
    """The way from one party to another; south lies."""

    lie: Lie | None = None

    def _lies(self, rpc: str) -> Lie | None:
        lie = RogueWire.lie
        return lie if lie is not None and (self._name, self._caller, rpc) == ("south", lie.victim, lie.rpc) else None

    async def _unary(self, rpc: str, request: Any) -> Any:
        lie = self._lies(rpc)
        if lie is not None and isinstance(lie.change, str):
            error = from_code(lie.change, f"{ESCAPES}no", hint="verticil party run --accept-older")
            raise _over_the_wire(error)
        reply = await getattr(super(), rpc)(request)
        return lie.change(reply) if lie is not None and not isinstance(lie.change, str) else reply

    async def hello(self, request: Any) -> Any:
        return await self._unary("hello", request)

    async def get_study_digest(self, request: Any) -> Any:
        return await self._unary("get_study_digest", request)

    async def get_signature(self, request: Any) -> Any:
        return await self._unary("get_signature", request)

    async def _stream(self, rpc: str, request: Any) -> AsyncGenerator[peer_pb2.Part]:
        lie = self._lies(rpc)
        if lie is not None and isinstance(lie.change, str):
            raise _over_the_wire(from_code(lie.change, "no"))
        async with contextlib.aclosing(super()._stream(rpc, request)) as parts:
            found = [part async for part in parts]
        for part in found if lie is None else lie.change(found):  # type: ignore[operator]
            yield part


def _over_the_wire(error: Any) -> Any:
    return from_detail(to_detail(error), teller="party 'south'")


def whole(change: Callable[[bytes], bytes]) -> Callable[[list[Any]], list[Any]]:
    """Change what a stream carries, and announce the digest of that."""

    def lie(found: list[Any]) -> list[Any]:
        data = change(b"".join(plain_data(part.chunk) for part in found if part.HasField("chunk")))
        size, sha256 = len(data), hashlib.sha256(data).digest()
        made = [peer_pb2.Part(size=size, sha256=sha256, chunk=chunk) for chunk in make_chunks(data, offset=0)]
        return made or [peer_pb2.Part(size=0, sha256=sha256)]

    return lie


def each(**values: Any) -> Callable[[list[Any]], list[Any]]:
    def lie(found: list[Any]) -> list[Any]:
        for part in found:
            for name, value in values.items():
                setattr(part, name, value)
        return found

    return lie


def reply(**values: Any) -> Callable[[Any], Any]:
    def lie(message: Any) -> Any:
        for name, value in values.items():
            if hasattr(value, "DESCRIPTOR"):
                getattr(message, name).CopyFrom(value)
            else:
                setattr(message, name, value)
        return message

    return lie


def packed(found: list[Any]) -> list[Any]:
    for part in found:
        part.chunk.encoding = common_pb2.ENCODING_ZLIB
    return found


SIGN: dict[str, SigningKey] = {}


def parameters(change: Callable[[dict[str, Any]], None]) -> Callable[[list[Any]], list[Any]]:
    """Parameters that south has signed, and that no honest party computes."""

    def other(data: bytes) -> bytes:
        document = json.loads(common_pb2.Signed.FromString(data).body)
        change(document)
        body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        return SIGN["south"].sign(body).SerializeToString()

    return whole(other)


def _numbers(value: Any, number: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(item, number) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item, number) for item in value]
    return number if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def families(number: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(families=_numbers(document["families"], number))


SELF = common_pb2.Signed(body=b"{}", signature=bytes(64), certificate=b"x")
LIES: dict[str, Lie] = {
    **{f"{code} in a greeting": Lie(rpc="hello", change=code, ends=code, says="party 'south' says")
       for code in ("STATE_CORRUPT", "LEDGER_OLDER", "CONFIG_INVALID", "SECRET_MISSING")},
    "another federation": Lie(rpc="hello", change=reply(federation=ESCAPES * 900), ends="IDENTITY_REFUSED"),
    "a version of the far future": Lie(rpc="hello", change=reply(protocol_version=2**31)),
    "another digest": Lie(rpc="get_study_digest", change=reply(study_digest=b"x" * 40), ends="STUDY_MISMATCH"),
    "no digest": Lie(rpc="get_study_digest", change=reply(study_digest=b""), ends="STUDY_MISMATCH"),
    "software with escapes": Lie(rpc="get_study_digest", change=reply(software=ESCAPES * 9000)),
    "an approval of nothing": Lie(rpc="get_study_digest", change=reply(approval=SELF), ends="CERTIFICATE_INVALID", default=True),
    "an end with escapes": Lie(
        rpc="get_study_digest", ends="STUDY_WITHDRAWN",
        change=reply(failure=common_pb2.ErrorDetail(code="STATE_CORRUPT", message=ESCAPES * 99, hint="rm -r state"))),
    "a list of half a pseudonym": Lie(
        rpc="get_pseudonyms", change=whole(lambda data: data[:-7]), victim="west", ends="ALIGNMENT_MISMATCH"),
    "a list upside down": Lie(
        rpc="get_pseudonyms", change=whole(lambda data: data[::-1]), victim="west", ends="ALIGNMENT_MISMATCH"),
    "a list twice": Lie(rpc="get_pseudonyms", change=whole(lambda data: data * 2), victim="west", ends="ALIGNMENT_MISMATCH"),
    "an empty list": Lie(rpc="get_pseudonyms", change=whole(lambda _: b""), victim="west", ends="LINKAGE_TOO_SMALL", says=""),
    "a list of 2^62 bytes": Lie(rpc="get_pseudonyms", change=each(size=2**62), victim="west", ends="ARTIFACT_INVALID"),
    "a list with a digest of five bytes": Lie(
        rpc="get_pseudonyms", change=each(sha256=b"short"), victim="west", ends="MESSAGE_INVALID"),
    "a list that is not what its digest says": Lie(
        rpc="get_pseudonyms", change=each(sha256=bytes(32)), victim="west", ends="ARTIFACT_INVALID"),
    "a list of parts without a byte": Lie(
        rpc="get_pseudonyms", victim="west", ends="MESSAGE_INVALID", default=True,
        change=lambda found: [peer_pb2.Part(size=found[0].size, sha256=found[0].sha256)] * 60),
    "no list at all": Lie(rpc="get_pseudonyms", change=lambda _: [], victim="west", ends="MESSAGE_INVALID"),
    "a list that is said to be packed": Lie(rpc="get_pseudonyms", change=packed, victim="west", says="CHUNK_CORRUPT"),
    "a column of one person": Lie(rpc="get_column", change=whole(lambda data: data[:17]), victim="west", ends="ARTIFACT_INVALID"),
    "a column that is none": Lie(rpc="get_column", change=whole(lambda _: b"{}"), victim="west", ends="ARTIFACT_INVALID"),
    "a column of other codes than others get": Lie(
        rpc="get_column", victim="west", ends="STUDY_WITHDRAWN",
        change=whole(lambda data: data[:40] + b"\xff" * (len(data) - 40))),
    "CONFIG_INVALID for a column": Lie(rpc="get_column", change="CONFIG_INVALID", victim="west", ends="CONFIG_INVALID"),
    "parameters that nobody signed": Lie(rpc="get_parameters", change=whole(lambda _: b"\xff" * 99), ends="MESSAGE_INVALID"),
    "parameters of another list": Lie(rpc="get_parameters", change=parameters(lambda said: said.update(n_common=-1)), ends="*"),
    "parameters that are NaN": Lie(rpc="get_parameters", change=parameters(families(float("nan"))), ends="*", default=True),
    "negative parameters": Lie(rpc="get_parameters", change=parameters(families(-1)), ends="*"),
    "parameters beyond all bounds": Lie(rpc="get_parameters", change=parameters(families(10**400)), ends="*"),
    "parameters that are words": Lie(rpc="get_parameters", change=parameters(families(ESCAPES)), ends="*"),
    "parameters without families": Lie(rpc="get_parameters", change=parameters(lambda said: said.update(families=[])), ends="*"),
    "a signature of something else": Lie(
        rpc="get_signature", ends="STUDY_MISMATCH",
        change=lambda _: peer_pb2.GetSignatureReply(manifest=SIGN["south"].sign(b"{}"))),
    "a signature of the miner": Lie(
        rpc="get_signature", ends="*",
        change=lambda said: peer_pb2.GetSignatureReply(manifest=SIGN["miner"].sign(said.manifest.body))),
    "no signature": Lie(rpc="get_signature", ends="CERTIFICATE_INVALID", change=lambda _: peer_pb2.GetSignatureReply()),
}  # fmt: skip


ROWS = [pytest.param(name, marks=() if lie.default else pytest.mark.faults) for name, lie in LIES.items()]


@pytest.mark.parametrize("name", ROWS)
async def test_a_lie_of_a_peer_is_that_peers_fault(
    name: str, make: Any, pki: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lie = LIES[name]
    SIGN.update({who: SigningKey.load(pki / f"{who}.sign", pki / f"{who}.crt") for who in ("south", "miner")})
    monkeypatch.setattr(peers, "Wire", RogueWire)
    monkeypatch.setattr(RogueWire, "lie", lie)
    federation = make()
    federation.load()
    federation.open()
    await federation.run()
    record = federation.record(lie.victim)
    if lie.ends:
        assert record.failure is not None
        assert record.failure.code == lie.ends or lie.ends == "*"
        assert record.failure.code != "INTERNAL"
        assert lie.says in record.failure.message
    else:
        assert record.failure is None
        assert lie.says in record.stage
    assert record.task.state != State.PUBLISHED
    assert not any(letter in f"{record.stage} {record.failure}" for letter in CONTROL)
    assert "unexpected error" not in caplog.text
    assert not any(letter in entry.getMessage() for entry in caplog.records for letter in CONTROL)

    monkeypatch.setattr(RogueWire, "lie", None)
    federation.close()
    federation.study_file.write_text(peers.STUDY.replace('"peers"', '"honest"', 1))
    federation.load()
    federation.open()
    await federation.run()
    for party in federation.parties.values():
        assert party.record.task.state == State.PUBLISHED
        assert party.site.audit.verify().n_lines < 100
    charged = [row.charged for row in federation.ledger("north") if row.recipient == "south"]
    assert sum(charged) == pytest.approx(2.0)  # the column that south reads, once

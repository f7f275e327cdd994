"""Between peers: raw values of one site never reach another, and a randomized column reaches only those who need it.

The traffic is captured at the production interface, before TLS; chunk data are inflated first. What lies on each party's disk is
searched after a run of real processes.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from verticil.shared.study.reading import read_study
from verticil.simulation import simulate
from verticil.wire.v1 import common_pb2, peer_pb2

CANARY_VALUE = "kanarienvogel-77"
CANARY_ID = "canary-4711-id"
NEEDLES = tuple(
    needle
    for text in (CANARY_VALUE, CANARY_ID)
    for needle in (text.encode(), text.encode().hex().encode(), text.upper().encode(), text.encode("utf-16-le"))
)


def hits(blob: bytes) -> list[bytes]:
    return [needle for needle in NEEDLES if needle in blob]


class Tape:
    """Everything that any two parties tell each other, and who read which column from whom."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []
        self.columns: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.lists: set[tuple[str, str, int]] = set()

    def between(self, caller: str, answerer: str, line: Any) -> Any:
        return _Recorder(self, caller, answerer, line)

    def note(self, message: Message) -> None:
        self.blobs.append(message.SerializeToString())
        chunk = getattr(message, "chunk", None)
        if isinstance(chunk, common_pb2.Chunk) and chunk.encoding == common_pb2.ENCODING_ZLIB:
            self.blobs.append(zlib.decompress(chunk.data))


class _Recorder:
    def __init__(self, tape: Tape, caller: str, answerer: str, inner: Any) -> None:
        self._tape, self._caller, self._answerer, self._inner = tape, caller, answerer, inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name == "close":
            return method

        def call(request: Any) -> Any:
            self._tape.note(request)
            reply = method(request)
            if not hasattr(reply, "__aiter__"):
                return self._one(reply)
            return self._many(request, reply)

        return call

    async def _one(self, reply: Any) -> Message:
        message: Message = await reply
        self._tape.note(message)
        return message

    async def _many(self, request: Any, parts: Any) -> AsyncIterator[Message]:
        async for part in parts:
            self._tape.note(part)
            if isinstance(request, peer_pb2.GetColumnRequest):
                self._tape.columns[self._answerer, self._caller].add(request.unit)
            if isinstance(request, peer_pb2.GetPseudonymsRequest):
                self._tape.lists.add((self._answerer, self._caller, request.list))
            yield part


@pytest.fixture
def planted(tmp_path: Path, write_tables_of_peers: Callable[..., dict[str, Path]]) -> dict[str, Path]:
    return write_tables_of_peers(tmp_path / "tables", 2000, canary_id=CANARY_ID, canary_value=CANARY_VALUE)


def test_no_canary_between_peers_and_columns_only_where_they_are_needed(
    tmp_path: Path, planted: dict[str, Path], peer_study_text: str
) -> None:
    (path := tmp_path / "study.toml").write_text(peer_study_text, encoding="utf-8")
    tape = Tape()
    result = simulate(path, planted, out=tmp_path / "out" / "release", wrap_peer=tape.between)
    assert result.n_common > 1000
    assert [blob[:80] for blob in tape.blobs if hits(blob)] == []
    names = {
        pair: {name for unit in units for name in read_study(path).units[unit].variables}
        for pair, units in tape.columns.items()
    }
    assert names == {
        ("clinic", "insurer"): {"smoker", "age"},
        ("clinic", "tax_office"): {"age"},
        ("tax_office", "insurer"): {"income"},
    }
    running, common = peer_pb2.PSEUDONYM_LIST_RUNNING, peer_pb2.PSEUDONYM_LIST_COMMON
    assert tape.lists == {  # each whole list is seen by the next party only; the common one comes from the last
        ("clinic", "insurer", running),
        ("insurer", "tax_office", running),
        ("tax_office", "clinic", common),
        ("tax_office", "insurer", common),
    }
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) > 9
    assert [path.name for path in files if hits(path.read_bytes())] == []


@pytest.mark.slow
def test_no_canary_on_any_disk_or_in_any_log(
    planted: dict[str, Path], make_peers: Callable[..., Any], tmp_path: Path
) -> None:
    peers = make_peers("planted", tables=planted)
    peers.load()
    peers.start()
    peers.releases(tmp_path / "releases")
    peers.stop()
    logs = list(peers.made.root.glob("*.log"))
    assert len(logs) == 3
    folders = [*peers.made.parties.values(), tmp_path / "releases"]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert [str(path) for path in (*logs, *files) if hits(path.read_bytes())] == []

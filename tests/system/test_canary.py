"""A value and an id planted in a party's table are searched for in everything that leaves the party, and must not be there.

The traffic is captured at the production interface, where every message is serialized, before TLS makes it unreadable; chunk
data are inflated first. The miner's disk, all logs and the release are searched after a run of real processes.

"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import urllib.request
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

from support import PATIENCE_SECONDS
from support.pages import Address, Visitor, every_page, served
from verticil.cli.doctor import collect
from verticil.party.operator.page.pages import Officer, site_server
from verticil.party.protocol.masked.rounds import SpooledPeople
from verticil.shared.core.errors import VerticilError
from verticil.shared.study.reading import read_study
from verticil.simulation import simulate
from verticil.wire.v1 import common_pb2

CANARY_VALUE = "kanarienvogel-77"
CANARY_ID = "canary-4711-id"
NEEDLES = tuple(
    needle
    for text in (CANARY_VALUE, CANARY_ID)
    for needle in (text.encode(), text.encode().hex().encode(), text.upper().encode(), text.encode("utf-16-le"))
)


def hits(blob: bytes) -> list[bytes]:
    return [needle for needle in NEEDLES if needle in blob]


def files_with_a_canary(*folders: Path) -> list[str]:
    return [str(path) for folder in folders for path in folder.rglob("*") if path.is_file() and hits(path.read_bytes())]


class Recorder:
    """Everything that one party says, as bytes; what it is told is recorded too."""

    def __init__(self, inner: Any, tape: list[bytes]) -> None:
        self._inner, self._tape = inner, tape

    def _note(self, message: Message) -> Message:
        self._tape.append(message.SerializeToString())
        for chunk in (message, getattr(message, "chunk", None)):
            if isinstance(chunk, common_pb2.Chunk) and chunk.encoding == common_pb2.ENCODING_ZLIB:
                self._tape.append(zlib.decompress(chunk.data))
        return message

    def _noted(self, messages: Any) -> Any:
        async def later() -> AsyncIterator[Message]:
            async for message in messages:
                yield self._note(message)

        return later() if hasattr(messages, "__aiter__") else (self._note(message) for message in messages)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name == "close":
            return method

        def call(argument: Any) -> Any:
            single = isinstance(argument, Message)
            sent = self._note(argument) if single else self._noted(argument)
            reply = method(sent)
            if hasattr(reply, "__aiter__"):
                return self._noted(reply)

            async def one() -> Message:
                return self._note(await reply)

            return one()

        return call


@pytest.fixture
def planted(tmp_path: Path, write_federation_tables: Callable[..., dict[str, Path]]) -> dict[str, Path]:
    tables = write_federation_tables(tmp_path / "tables", 2000, canary_id=CANARY_ID, canary_value=CANARY_VALUE)
    for party, needles in {"clinic": (CANARY_ID, CANARY_VALUE), "insurer": (CANARY_ID,)}.items():
        assert all(needle in tables[party].read_text() for needle in needles)
    return tables


@pytest.fixture
def planted_at_three(tmp_path: Path, write_tables_of_peers: Callable[..., dict[str, Path]]) -> dict[str, Path]:
    return write_tables_of_peers(tmp_path / "tables", 2000, canary_id=CANARY_ID, canary_value=CANARY_VALUE)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 1000 + CANARY_ID.encode() + b"y")
    assert files_with_a_canary(tmp_path) == [str(tmp_path / "log")]


def test_no_canary_in_traffic_or_release(tmp_path: Path, planted: dict[str, Path], open_study_text: str) -> None:
    (study := tmp_path / "study.toml").write_text(open_study_text, encoding="utf-8")
    tape: list[bytes] = []
    result = simulate(study, planted, out=tmp_path / "out" / "release", wrap=lambda _, line: Recorder(line, tape))  # type: ignore[arg-type,return-value]
    assert result.n_common > 1000
    assert sum(map(len, tape)) > 16 * 2 * 1900  # both parties' pseudonyms at the least
    assert [blob[:80] for blob in tape if hits(blob)] == []
    assert files_with_a_canary(tmp_path / "out") == []


def site_pages(party_toml: Path) -> list[str]:
    """What each page of a site says to somebody who decides there, and what would leave."""
    officer = Officer(name="officer", key=None)
    with served(site_server(party_toml, ("127.0.0.1", 0), officer=officer, doctor=collect)) as server:
        visitor = Visitor(server)
        studies = {link for link in visitor.page().links if link.startswith("study/")}
        pages = every_page(visitor, *(f"{study.partition('#')[0]}preview" for study in studies))
    assert {"ledger", "audit", "health"} <= pages.keys()
    assert len(pages) >= 7
    return list(pages.values())


def metrics_pages(log: Path) -> list[str]:
    """The page of the daemon that writes to `log`."""
    ports = re.findall(r"metrics on 127\.0\.0\.1, port (\d+)", log.read_text())
    return [
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS).read().decode()
        for port in ports
    ]


@pytest.mark.whole
def test_no_canary_and_no_column_in_what_nodes_with_masked_tables_tell_each_other(
    tmp_path: Path, masked_study_text: str, planted_at_three: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor a digest of a column: who has the digest of something tries what it can be (model-three.md, section 9)."""
    columns: list[Any] = []

    def noted(self: SpooledPeople, rows: slice) -> Any:
        found = plain(self, rows)
        columns.append(np.array(found))
        return found

    plain = SpooledPeople.codes
    monkeypatch.setattr(SpooledPeople, "codes", noted)
    (study := tmp_path / "study.toml").write_text(masked_study_text, encoding="utf-8")
    tape: list[bytes] = []
    line: Callable[..., Any] = lambda *given: Recorder(given[-1], tape)  # noqa: E731
    result = simulate(study, planted_at_three, out=tmp_path / "out" / "release", wrap=line, wrap_peer=line)
    assert result.n_common > 1000
    states = sum(variable.n_states for variable in read_study(study).schema.variables)
    assert sum(map(len, tape)) > 2 * 4 * result.n_common * states  # every party's masked rows, to two others
    files = [path.read_bytes() for path in files_in(tmp_path / "out")]
    assert [blob[:80] for blob in (*tape, *files) if hits(blob)] == []
    forms = [codes.astype(kind) for codes in columns for kind in ("u1", "<u2", "<u4")]
    needles = {part[:64].tobytes() for codes in forms for part in (codes, *codes.T)}
    digests = [hashlib.sha256(part.tobytes()) for codes in forms for part in (codes, *codes.T)]
    needles |= {said for digest in digests for said in (digest.digest(), digest.hexdigest().encode())}
    assert len(columns) >= len(planted_at_three)
    assert [blob[:80] for blob in (*tape, *files) if any(needle in blob for needle in needles)] == []


@pytest.mark.whole
def test_feature_2_no_canary_on_the_miners_disk_in_any_log_or_metric(
    planted: dict[str, Path], make_nodes: Callable[..., Any], open_study_text: str
) -> None:
    no_canary_after(make_nodes("planted", tables=planted, study=open_study_text))


@pytest.mark.whole
def test_no_canary_on_the_miners_disk_in_any_log_or_metric_with_masked_tables_through_a_relay(
    planted_at_three: dict[str, Path], make_nodes: Callable[..., Any]
) -> None:
    no_canary_after(make_nodes("planted", tables=planted_at_three, masked=True, relay=True))


def no_canary_after(nodes: Any) -> None:
    for config in (nodes.made.miner / "miner.toml", *(home / "party.toml" for home in nodes.made.parties.values())):
        config.write_text(config.read_text() + '\n[metrics]\nlisten = "127.0.0.1:0"\n[ui]\nlisten = "127.0.0.1:0"\n')
    nodes.point_to(nodes.start_miner())
    for party in nodes.made.parties:
        nodes.start_party(party)
    nodes.publish(nodes.submit())
    pages = [page for log in nodes.made.root.glob("*.log") for page in metrics_pages(log)]
    shown = [text for name in nodes.made.parties for text in site_pages(nodes.made.parties[name] / "party.toml")]
    (address,) = nodes.made.miner.rglob("page.url")
    shown += every_page(Visitor(Address(address.read_text().strip()))).values()
    assert sum("published" in page for page in shown) >= 2 * len(nodes.made.parties)
    assert [page for page in shown if hits(page.encode())] == []
    nodes.stop()
    assert len(pages) == 1 + len(nodes.made.parties)
    assert all("verticil_studies" in page for page in pages)
    assert sum("Coordinator/Poll" in page for page in pages) == 1  # the miner counts calls, the parties serve none
    assert sum("verticil_epsilon_lifetime{" in page for page in pages) == len(nodes.made.parties)
    assert [page for page in pages if hits(page.encode())] == []
    assert files_with_a_canary(nodes.made.miner) == []
    assert [path.name for path in nodes.made.root.glob("*.log") if hits(path.read_bytes())] == []
    for party in nodes.made.parties.values():  # what the parties themselves keep: no copy of the table
        assert files_with_a_canary(party) == []


def test_no_canary_leaves_where_the_study_does_not_declare_it(
    tmp_path: Path, planted: dict[str, Path], study_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Among categories, among numbers, in rows that are left out: nothing fails for it, and nothing of it is said."""
    text = planted["clinic"].read_text()
    text = text.replace(",no,", f",{CANARY_VALUE},", 1).replace(",40,", f",{CANARY_VALUE},", 1)
    planted["clinic"].write_text(text + text.splitlines()[-1] + f"\n{CANARY_ID},no,40\n")
    (study := tmp_path / "study.toml").write_text(study_text, encoding="utf-8")
    tape: list[bytes] = []
    result = simulate(study, planted, out=tmp_path / "out" / "release", wrap=lambda _, line: Recorder(line, tape))  # type: ignore[arg-type,return-value]
    assert result.n_common > 1000
    assert [blob[:80] for blob in tape if hits(blob)] == []
    assert files_with_a_canary(tmp_path / "out") == []
    assert not hits("".join(capsys.readouterr()).encode())


BROKEN: dict[str, tuple[Callable[[str], str], str]] = {
    "absent column": (lambda text: text.replace("smoker", CANARY_VALUE, 1), "DATA_COLUMN_MISSING"),
    "no header": (lambda text: text.partition("\n")[2].replace(",no,", f",{CANARY_VALUE},", 1), "DATA_COLUMN_MISSING"),
    "another kind of file": (lambda text: f"PAR1{text}", "DATA_UNREADABLE"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_no_canary_in_error_texts(tmp_path: Path, planted: dict[str, Path], study_text: str, fault: str) -> None:
    change, code = BROKEN[fault]
    planted["clinic"].write_text(change(planted["clinic"].read_text()))
    (study := tmp_path / "study.toml").write_text(study_text, encoding="utf-8")
    tape: list[bytes] = []
    with pytest.raises(VerticilError) as caught:
        simulate(study, planted, wrap=lambda _, line: Recorder(line, tape))  # type: ignore[arg-type,return-value]
    assert caught.value.code == code
    assert not hits(str(caught.value).encode())
    assert [blob[:80] for blob in tape if hits(blob)] == []
    error: BaseException | None = caught.value
    seen: list[str] = []
    while error is not None:
        seen.append(repr(error))
        error = error.__cause__ or error.__context__
    assert not hits("".join(seen).encode())


def test_no_canary_in_the_commands_output(tmp_path: Path, planted: dict[str, Path], study_text: str) -> None:
    planted["clinic"].write_text(f"PAR1{planted['clinic'].read_text()}")
    (tmp_path / "study.toml").write_text(study_text, encoding="utf-8")
    data = [argument for party, path in planted.items() for argument in ("--data", f"{party}={path}")]
    command = [sys.executable, "-m", "verticil.cli", "simulate", "study.toml", *data, "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "DATA_UNREADABLE"
    assert not hits(done.stdout + done.stderr)

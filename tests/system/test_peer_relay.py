"""Peers that nobody can dial: the same release through a miner that sees nothing of it, whatever is killed on the way.

In one process with the real miner, party and relay, where every envelope is captured; then as real processes without a port.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from verticil.party.config import load_party
from verticil.party.protocol.relay.network import open_seals
from verticil.shared.documents.config import RELAY
from verticil.shared.numerics.model.artifact import HEADER_BYTES, MAGIC
from verticil.shared.study.reading import read_study
from verticil.simulation.in_memory_peers import run_peers
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision
from verticil.wire.v1 import common_pb2, peer_pb2, relay_pb2

CANARY_VALUE = "kanarienvogel-79"
CANARY_ID = "canary-4713-id"
PARTIES = ("clinic", "insurer", "tax_office")
OF_THE_RUN = {"manifest.json", "manifest.sig", "report.html", "datapackage.json"}
"""Files with times of the run or signatures of its short-lived keys in them."""


class Tape:
    """Everything that any party tells the miner."""

    def __init__(self) -> None:
        self.methods: set[str] = set()
        self.blobs: list[bytes] = []
        self.envelopes: list[tuple[str, str, bytes]] = []

    def between(self, name: str, line: Any) -> Any:
        return _Recorder(self, name, line)


class _Recorder:
    def __init__(self, tape: Tape, party: str, inner: Any) -> None:
        self._tape, self._party, self._inner = tape, party, inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name == "close":
            return method

        async def call(request: Any) -> Any:
            self._tape.methods.add(name)
            self._tape.blobs.append(request.SerializeToString())
            if name == "put_relay":
                self._tape.envelopes.append((self._party, request.recipient, request.sealed))
            reply = await method(request)
            self._tape.blobs.append(reply.SerializeToString())
            return reply

        return call


def run(
    folder: Path, tables: dict[str, Path], study: str, relayed: Iterable[str], tape: Tape
) -> tuple[Provisioned, Path]:
    """One study in this process with secrets from a seed; the nodes' folders and the release."""
    addresses = {name: f"localhost:{port}" for port, name in enumerate(PARTIES, 2)}
    made = provision(
        folder / "federation",
        federation="trial",
        sites=[csv_site(party, path) for party, path in tables.items()],
        limits=OPEN_LIMITS,
        endpoint="localhost:1",
        listen="127.0.0.1:0",
        hosts=("localhost",),
        seed=5,
        peers={**addresses, **dict.fromkeys(relayed, RELAY)},
    )
    (document := folder / "study.toml").write_text(study, encoding="utf-8")
    work = run_peers(made, read_study(document), folder / "release", is_seeded=True, wrap=tape.between)
    asyncio.run(work)
    return made, folder / "release"


def content(release: Path) -> dict[str, bytes]:
    """What does not depend on when and with which certificates it was made."""
    found = {path.name: path.read_bytes() for path in release.iterdir()}
    for name in OF_THE_RUN:
        found.pop(name)
    manifest = json.loads((release / "manifest.json").read_bytes())
    files = {name: entry for name, entry in manifest["files"].items() if name not in OF_THE_RUN}
    found["files of the manifest"] = json.dumps([files, manifest["study"]], sort_keys=True).encode()
    return found


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, write_tables_of_peers: Callable[..., dict[str, Path]]) -> Any:
    folder = tmp_path_factory.mktemp("people")
    return write_tables_of_peers(folder, 2000, canary_id=CANARY_ID, canary_value=CANARY_VALUE)


@pytest.fixture(scope="module")
def direct(people: dict[str, Path], peer_study_text: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    tape = Tape()
    _, release = run(tmp_path_factory.mktemp("direct"), people, peer_study_text, (), tape)
    assert tape.envelopes == []
    return content(release)


def opened(made: Provisioned, tape: Tape) -> tuple[bytes, list[bytes]]:
    """What the parties told each other, opened with their own keys: all of it, and the data of its chunks, inflated."""
    seals = {name: open_seals(load_party(folder / "party.toml")) for name, folder in made.parties.items()}
    plain: list[bytes] = []
    chunks: list[bytes] = []
    streams: set[bytes] = set()
    for source, recipient, sealed in tape.envelopes:
        message = relay_pb2.RelayMessage.FromString(seals[recipient].open(source, sealed))
        plain.append(message.SerializeToString())
        if message.request.method in {"GetColumn", "GetPseudonyms", "GetParameters"}:
            streams.add(message.call)
        elif message.call in streams and message.reply.data:
            chunk = peer_pb2.Part.FromString(message.reply.data).chunk
            chunks.append(zlib.decompress(chunk.data) if chunk.encoding == common_pb2.ENCODING_ZLIB else chunk.data)
    return b"\n".join([*plain, *chunks]), chunks


def pieces(data: bytes, length: int) -> list[bytes]:
    """Some of it, from all over."""
    return [data[start : start + length] for start in range(0, len(data) - length, max(1, len(data) // 20))]


@pytest.mark.whole
def test_feature_13_the_miner_sees_nothing_and_the_release_is_the_same(
    people: dict[str, Path], direct: dict[str, bytes], peer_study_text: str, tmp_path: Path
) -> None:
    """All that the miner is told, and all that is on its disk, is searched for values, ids, pseudonyms, columns, parameters."""
    tape = Tape()
    made, release = run(tmp_path, people, peer_study_text, PARTIES, tape)
    assert content(release) == direct
    assert tape.methods >= {"put_relay", "take_relay"}
    assert {pair[:2] for pair in tape.envelopes} == {(a, b) for a in PARTIES for b in PARTIES if a != b}
    plain, chunks = opened(made, tape)
    columns = [chunk[HEADER_BYTES:] for chunk in chunks if chunk.startswith(MAGIC)]
    lists = [chunk for chunk in chunks if len(chunk) % 16 == 0 and len(chunk) > 16_000 and chunk not in columns]
    assert (len(columns), len(lists)) == (4, 4), (
        "smoker and age, age, income; two running lists and the common one twice"
    )
    ids = [line.split(b",")[0] for line in people["insurer"].read_bytes().splitlines()[1:]]
    private = {
        "values and ids": [CANARY_VALUE.encode(), CANARY_ID.encode(), *ids[:50]],
        "columns": [piece for column in columns for piece in pieces(column, 16)],
        "pseudonyms": [whole[start : start + 16] for whole in lists for start in range(0, len(whole), 1600)],
        "parameters": [b"probability", b"estimate"],
    }
    disk = [path.read_bytes() for path in made.miner.rglob("*") if path.is_file()]
    seen = b"\n".join([*tape.blobs, *disk])
    assert len(disk) > 3
    for what, needles in private.items():
        assert [needle for needle in needles if needle in seen] == [], what
    for what in ("columns", "pseudonyms", "parameters"):  # whoever has the recipients' keys finds what is told
        assert [needle for needle in private[what] if needle not in plain] == [], what
    assert [needle for needle in private["values and ids"] if needle in plain] == []


@pytest.mark.slow
def test_feature_14_dh_psi_between_peers_through_the_miner_shows_it_no_token(
    write_tables_of_peers: Callable[..., dict[str, Path]], peer_study_text: str, tmp_path: Path
) -> None:
    """Whole daemons: the miner has no token, and whoever can open the envelopes finds no id."""
    tables = write_tables_of_peers(tmp_path, 250, canary_id=CANARY_ID, canary_value=CANARY_VALUE)
    study = peer_study_text.replace('mode = "keyed-hash"', 'mode = "dh-psi"').replace("= 1000", "= 100")
    tape = Tape()
    made, release = run(tmp_path, tables, study, PARTIES, tape)
    assert json.loads((release / "model.json").read_bytes())["privacy"]["alignment"]["mode"] == "dh-psi"
    plain, chunks = opened(made, tape)
    lists = {
        bytes(chunk) for chunk in chunks if len(chunk) % 32 == 0 and len(chunk) > 6000 and not chunk.startswith(MAGIC)
    }
    assert len(lists) >= 9, "three parties, three hops"
    tokens = [token for whole in lists for token in (whole[start : start + 32] for start in range(0, len(whole), 640))]
    seen = b"\n".join([*tape.blobs, *(path.read_bytes() for path in made.miner.rglob("*") if path.is_file())])
    ids = [line.split(b",")[0] for line in tables["insurer"].read_bytes().splitlines()[1:]]
    assert [token for token in tokens if token in seen] == []
    assert [token for token in tokens if token not in plain] == []
    assert [needle for needle in [CANARY_VALUE.encode(), CANARY_ID.encode(), *ids[:50]] if needle in seen + plain] == []


@pytest.mark.whole
def test_feature_12_some_are_dialled_and_some_are_not(
    people: dict[str, Path], direct: dict[str, bytes], peer_study_text: str, tmp_path: Path
) -> None:
    """The clinic asks the insurer through the miner; the insurer dials the clinic; two that are dialled need no miner."""
    tape = Tape()
    _, release = run(tmp_path, people, peer_study_text, ("insurer",), tape)
    assert content(release) == direct
    assert {pair[:2] for pair in tape.envelopes} == {
        ("clinic", "insurer"),
        ("insurer", "clinic"),
        ("tax_office", "insurer"),
        ("insurer", "tax_office"),
    }


# --- real processes ---


def learned(model: bytes) -> dict[str, object]:
    """The parameters; whether everything ran in one process stands in the model, too."""
    document = json.loads(model)
    assert isinstance(document.pop("simulation"), bool)
    return dict(document)


def listening(pid: int) -> list[str]:
    """TCP sockets of a process that wait for connections."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
    ]
    return [fields[1] for fields in lines if fields[3] == "0A" and fields[9] in inodes]


def asked_for(node: Path) -> int:
    """How many columns were asked for, from a party's ledger."""
    with closing(sqlite3.connect(f"file:{next((node / 'state').glob('*.sqlite'))}?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM ledger WHERE recipient <> ''").fetchone()[0])


@pytest.mark.slow
def test_feature_12_processes_without_a_port_publish_whatever_is_killed(
    make_peers: Callable[..., Any],
    slow_proxy: type,
    people: dict[str, Path],
    direct: dict[str, bytes],
    tmp_path: Path,
) -> None:
    """The miner is killed while lists pass, and a party while its columns do; the line to the miner is slow."""
    peers = make_peers("relayed", seed=5, tables=people, miner=True, relayed=PARTIES)
    with ExitStack() as stack:
        peers.start_miner()
        proxy = stack.enter_context(slow_proxy(peers.port, bytes_per_second=60_000))
        peers.reach(miner_port=proxy.port)
        peers.load()
        peers.start()
        peers.until(lambda found: "list" in found.stages["insurer"] + found.stages["tax_office"])
        assert {name: listening(child.pid) for name, child in peers.processes.items() if name != "miner"} == {
            name: [] for name in PARTIES
        }
        assert listening(peers.processes["miner"].pid)
        peers.kill("miner")
        peers.start_miner()
        peers.until(lambda _: asked_for(peers.made.parties["clinic"]) > 0)
        peers.kill("clinic")
        peers.start_party("clinic")
        for release in peers.releases(tmp_path / "releases").values():
            assert learned((release / "model.json").read_bytes()) == learned(direct["model.json"])
            assert (release / "synthetic.csv").read_bytes() == direct["synthetic.csv"]
    assert set(peers.stop().values()) == {0}
    logs = [path.read_bytes() for path in peers.made.root.glob("*.log")]
    assert not any(needle in log for log in logs for needle in (CANARY_ID.encode(), CANARY_VALUE.encode()))

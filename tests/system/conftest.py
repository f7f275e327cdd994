"""Small federations of real processes: two parties and a miner, three peers, or these with a miner that searches structures.

Mutual TLS on loopback, and slow proxies.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from support import PATIENCE_SECONDS
from support.ports import free_port
from verticil.shared.documents.config import RELAY, load_federation
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.transport.client import Connection, GrpcControl
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.simulation.peers import StudyProgress, load_everywhere, standing, take_home
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision, set_endpoint
from verticil.wire.v1 import common_pb2, control_pb2

T = TypeVar("T")

STUDY = """schema = 1
id = "hearts"
title = "Smoking and claims"
purpose = "test"
model = "central"
expires = 2099-12-31

[[party]]
name = "clinic"
[[party]]
name = "insurer"

[linkage]
mode = "keyed-hash"
normalise = ["nfkc", "trim"]
minimum_common_records = 1000

[[variable]]
party = "clinic"
name = "smoker"
categories = ["no", "yes"]

[[variable]]
party = "clinic"
name = "age"
bins = [0, 30, 45, 60, 75, 120]
integer = true

[[variable]]
party = "clinic"
name = "town"
categories = ["north", "south", "elsewhere"]
other = "elsewhere"

[[variable]]
party = "insurer"
name = "claims"
categories = ["0", "1-2", "3+"]

[[variable]]
party = "insurer"
name = "plan"
categories = ["basic", "plus", "gold", "family"]

[randomization_default]
scheme = "symmetric"
epsilon = 3.0

[structure]
method = "genetic"
score = "mutual-information"
max_parents = 2
seed = 7
[structure.genetic]
generations = 40

[parameters]
estimator = "em"

[release]
synthetic_records = 2000
seed = 7
sample_from = "network"
"""
"""Without a joint model, whose estimate takes longer than all the rest; `open_study_text` has one."""

PEER_STUDY = (
    STUDY.split("[randomization_default]", maxsplit=1)[0]
    .replace('id = "hearts"', 'id = "hearts-peers"')
    .replace('model = "central"', 'model = "peer"')
    .replace('name = "insurer"\n\n[linkage]', 'name = "insurer"\n[[party]]\nname = "tax_office"\n\n[linkage]')
    + """[[variable]]
party = "tax_office"
name = "income"
categories = ["low", "middle", "high"]

[randomization_default]
scheme = "symmetric"
epsilon = 3.0

[structure]
method = "given"
[structure.parents]
town = ["age"]
claims = ["smoker", "age"]
income = ["age"]
plan = ["claims", "income"]

[share]
minimum_count = 5

[release]
synthetic_records = 2000
seed = 7
"""
)
"""Cross parents: smoker and age go to the insurer, age to the tax office, income to the insurer. Town and plan go nowhere."""

MASKED_STUDY = (
    PEER_STUDY.split("[randomization_default]", maxsplit=1)[0]
    .replace('id = "hearts-peers"', 'id = "hearts-masked"')
    .replace('model = "peer"', 'model = "masked"')
    + """[tables]
epsilon = 4.0
delta = 1e-9

[structure]
method = "auto"

[release]
synthetic_records = 2000
seed = 7
"""
)
"""Six columns of three parties, 15 tables; every column is randomized with the epsilon of a masked study that says nothing."""


def write_tables(folder: Path, n: int, *, canary_id: str = "", canary_value: str = "") -> dict[str, Path]:
    """Two tables about mostly the same people; a canary, where given, is the last person's id and town."""
    generator = np.random.default_rng(11)
    smoker = generator.random(n) < 0.3
    age = generator.integers(18, 95, n)
    town = generator.choice(["north", "south", "west"], n)
    claims = np.minimum(2, generator.poisson(0.4 + 1.2 * smoker + (age > 60)))
    plan = generator.integers(0, 4, n)
    ids = [f"p{number:07d}" for number in generator.permutation(n)]
    if canary_id:
        ids[-1] = canary_id
    paths = {"clinic": folder / "clinic.csv", "insurer": folder / "insurer.csv"}
    folder.mkdir(parents=True, exist_ok=True)
    with paths["clinic"].open("w", encoding="utf-8") as file:
        file.write("id,smoker,age,town,note\n")
        for row in range(n - n // 50):
            file.write(f"{ids[row]},{'yes' if smoker[row] else 'no'},{age[row]},{town[row]},{canary_value}\n")
        file.write(f"{ids[-1]},no,40,{canary_value or 'north'},{canary_value}\n")
    with paths["insurer"].open("w", encoding="utf-8") as file:
        file.write("id,claims,plan\n")
        for row in generator.permutation(np.arange(n // 50, n)):
            file.write(
                f"{ids[row]},{['0', '1-2', '3+'][claims[row]]},{['basic', 'plus', 'gold', 'family'][plan[row]]}\n"
            )
    return paths


def write_peer_tables(folder: Path, n: int, *, canary_id: str = "", canary_value: str = "") -> dict[str, Path]:
    """`write_tables`, and a tax office's table about the people of the insurer and a few more."""
    paths = write_tables(folder, n, canary_id=canary_id, canary_value=canary_value)
    generator = np.random.default_rng(12)
    paths["tax_office"] = folder / "tax_office.csv"
    ids = [line.split(",", 1)[0] for line in paths["insurer"].read_text(encoding="utf-8").splitlines()[1:]]
    with paths["tax_office"].open("w", encoding="utf-8") as file:
        file.write("id,income\n")
        for record in (*sorted(ids), *(f"q{number}" for number in range(n // 50))):
            file.write(f"{record},{generator.choice(['low', 'middle', 'high'])}\n")
    return paths


def addresses_for(names: Iterable[str]) -> dict[str, str]:
    """A port of this machine for each of them."""
    return {name: f"127.0.0.1:{free_port()}" for name in names}


class Processes:
    """Node processes of one federation; every one of them is gone when the test ends."""

    def __init__(self, made: Provisioned) -> None:
        self.made = made
        self.environment = dict(os.environ)
        self.program = ("-m", "verticil.cli")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = 0

    def log(self, name: str) -> str:
        return (self.made.root / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, *self.program, *arguments, "--format", "json", "--with-parent"]
        with (self.made.root / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=self.environment
            )
        self.processes[name] = child
        return child

    def start_party(self, name: str) -> None:
        self._start(name, "party", "run", "--config", str(self.made.parties[name] / "party.toml"))

    def start_miner(self, *extra: str) -> int:
        """Start it and wait until it listens; on a restart on the same port."""
        config = self.made.miner / "miner.toml"
        if not self.port:
            config.write_text(config.read_text().replace('"127.0.0.1:0"', f'"127.0.0.1:{free_port()}"', 1))
        child = self._start("miner", "miner", "run", "--config", str(config), *extra)
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, self.log("miner")
        self.port = int(json.loads(line)["port"])
        return self.port

    def kill(self, name: str) -> None:
        child = self.processes.pop(name)
        child.send_signal(signal.SIGKILL)
        self._reap(child)

    @staticmethod
    def _reap(child: subprocess.Popen[bytes]) -> None:
        child.wait(timeout=PATIENCE_SECONDS)
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()

    def stop(self) -> dict[str, int]:
        """Stop all politely; their exit codes."""
        for child in self.processes.values():
            child.terminate()
        codes = {}
        for name, child in self.processes.items():
            try:
                self._reap(child)
            except subprocess.TimeoutExpired:
                child.kill()
                self._reap(child)
            codes[name] = child.returncode
        self.processes.clear()
        return codes


class Peers(Processes):
    """Parties without a miner, or with one that only searches structures. Their study is loaded at each of them."""

    def __init__(self, made: Provisioned, study: Path) -> None:
        super().__init__(made)
        self.study = study
        self.digest = ""
        self.addresses: dict[str, str] = {}

    def reach(self, *, miner_port: int = 0, **addresses: str) -> None:
        """Let every party dial the miner and some of its peers at other addresses (a proxy's)."""
        name = load_federation(self.made.analyst / "federation.toml").name
        port = miner_port or self.port
        miner = f"127.0.0.1:{port}" if port else None
        for node in (*self.made.parties.values(), self.made.analyst):
            peers = {**self.addresses, **addresses}
            set_endpoint(node, name, miner, ca_sha256=self.made.ca_sha256, peers=peers, sealing=self.made.sealing)
        for party, address in addresses.items():
            config = self.made.parties[party] / "party.toml"
            listens = f'advertise = "{self.addresses[party]}"'
            config.write_text(config.read_text().replace(listens, f'advertise = "{address}"'))

    def load(self) -> str:
        self.digest = load_everywhere(self.made.parties, self.study)
        return self.digest

    def start(self) -> None:
        for name in self.made.parties:
            self.start_party(name)

    def until(self, done: Callable[[StudyProgress], bool], *, seconds: float = PATIENCE_SECONDS) -> StudyProgress:
        """Look at the parties until `done`; a failure of the study is raised."""
        end = time.monotonic() + seconds
        while not done(found := standing(self.made.parties, self.digest)):
            for name, child in self.processes.items():
                assert child.poll() is None, self.log(name)
            assert time.monotonic() < end, f"nothing after {seconds} s: {found}"
            time.sleep(0.05)
        return found

    def releases(self, place: Path) -> dict[str, Path]:
        """Wait until all have published; every party's release, verified and equal."""
        self.until(lambda found: found.published)
        authority = self.made.ca_certificate.read_bytes()
        return take_home(self.made.parties, self.digest, place, ca_certificate=authority)[0]


class Nodes(Processes):
    """Two parties and a miner, or three of a study of masked tables."""

    def __init__(self, made: Provisioned, study: Path) -> None:
        super().__init__(made)
        self.study = read_study(study)

    def point_to(self, port: int) -> None:
        """Let every node dial this port."""
        name = load_federation(self.made.analyst / "federation.toml").name
        for node in (*self.made.parties.values(), self.made.analyst):
            set_endpoint(
                node,
                name,
                f"127.0.0.1:{port}",
                ca_sha256=self.made.ca_sha256,
                peers=self.made.peers,
                sealing=self.made.sealing,
                miner_sealing=self.made.miner_sealing,
            )

    def control(self, use: Callable[[GrpcControl], Awaitable[T]]) -> T:
        """Run one conversation of the analyst's with the miner."""

        async def run() -> T:
            federation = load_federation(self.made.analyst / "federation.toml")
            pki = self.made.analyst / "pki"
            credentials = load_credentials(pki / "analyst.crt", pki / "analyst.key", federation)
            control = GrpcControl(Connection(f"127.0.0.1:{self.port}", credentials))
            try:
                return await use(control)
            finally:
                await control.close()

        return asyncio.run(run())

    def submit(self) -> bytes:
        request = control_pb2.SubmitStudyRequest(proposal=to_bytes(self.study))
        return self.control(lambda control: control.submit_study(request)).study_digest

    def wait(
        self, digest: bytes, done: Callable[[control_pb2.StudySummary], bool], *, seconds: float = PATIENCE_SECONDS
    ) -> control_pb2.StudySummary:
        """Follow the study until `done`, or until it has ended."""

        async def follow(control: GrpcControl) -> control_pb2.StudySummary:
            end, version = time.monotonic() + seconds, 0
            while True:
                request = control_pb2.GetStudyRequest(study_digest=digest, known_version=version, wait_seconds=1)
                study = (await control.get_study(request)).study
                version = study.version
                if done(study) or study.state >= common_pb2.STUDY_STATE_PUBLISHED:
                    return study
                assert time.monotonic() < end, f"nothing after {seconds} s: {study}"

        return self.control(follow)

    def publish(self, digest: bytes) -> control_pb2.StudySummary:
        study = self.wait(digest, lambda found: found.state == common_pb2.STUDY_STATE_PUBLISHED)
        assert study.state == common_pb2.STUDY_STATE_PUBLISHED, study
        return study


class SlowProxy:
    """A TCP proxy that forwards towards its target at `bytes_per_second` once that is set, and everything back at once.

    With `back` it is the other way round, and slow only after so many bytes. Where it is slow, it passes nothing on while `held`,
    which is asked before every piece, says so.
    """

    def __init__(
        self,
        target: int,
        *,
        bytes_per_second: int = 0,
        back: int | None = None,
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        self._target, self.bytes_per_second, self._back, self.held = target, bytes_per_second, back, held
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.port = 0

    def __enter__(self) -> SlowProxy:
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_SECONDS)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(task := asyncio.ensure_future(self._connection(reader, writer)))
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        try:
            # return_exceptions is not used: the first side that ends ends both
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back, limited=self._back is None))
                group.create_task(self._pump(onward, writer, limited=self._back is not None))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in (writer, back):
                end.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, limited: bool) -> None:
        while data := await source.read(1024):
            while limited and self.bytes_per_second and not self._back and self.held():
                await asyncio.sleep(0.02)
            sink.write(data)
            await sink.drain()
            if limited and self._back:
                self._back = max(0, self._back - len(data))
            elif limited and self.bytes_per_second:
                await asyncio.sleep(len(data) / self.bytes_per_second)
        raise ConnectionResetError


def _maker(folder: Path, made: list[Nodes]) -> Callable[..., Nodes]:
    def make(
        name: str = "federation",
        *,
        n: int = 3000,
        seed: int = 1,
        tables: dict[str, Path] | None = None,
        study: str = STUDY,
        masked: bool = False,
        relay: bool = False,
    ) -> Nodes:
        root = folder / name
        paths = tables or (write_peer_tables if masked else write_tables)(folder / f"{name}-tables", n)
        federation = provision(
            root,
            federation="trial",
            sites=[csv_site(party, path) for party, path in paths.items()],
            limits=OPEN_LIMITS,
            endpoint="127.0.0.1:1",
            listen="127.0.0.1:0",
            hosts=("127.0.0.1",),
            seed=seed,
            peers=(dict.fromkeys(paths, RELAY) if relay else addresses_for(paths)) if masked else None,
            masked=masked,
        )
        (document := root / "analyst" / "study.toml").write_text(
            MASKED_STUDY if masked and study == STUDY else study, encoding="utf-8"
        )
        made.append(Nodes(federation, document))
        return made[-1]

    return make


def _peer_maker(folder: Path, made: list[Processes]) -> Callable[..., Peers]:
    def make(
        name: str,
        *,
        n: int = 3000,
        seed: int = 1,
        tables: dict[str, Path] | None = None,
        study: str = PEER_STUDY,
        miner: bool = False,
        relayed: Iterable[str] = (),
    ) -> Peers:
        root = folder / name
        paths = tables or write_peer_tables(folder / f"{name}-tables", n)
        addresses = {**addresses_for(paths), **dict.fromkeys(relayed, RELAY)}
        federation = provision(
            root,
            federation="trial",
            sites=[csv_site(party, path) for party, path in paths.items()],
            limits=OPEN_LIMITS,
            endpoint="127.0.0.1:1" if miner else None,
            listen="127.0.0.1:0",
            hosts=("127.0.0.1",),
            seed=seed,
            peers=addresses,
        )
        (document := root / "analyst" / "study.toml").write_text(study, encoding="utf-8")
        peers = Peers(federation, document)
        peers.addresses = addresses
        made.append(peers)
        return peers

    return make


@pytest.fixture
def make_peers(tmp_path: Path) -> Iterator[Callable[..., Peers]]:
    """Lay out a federation of three peers with `n` people; same seed, same secrets."""
    made: list[Processes] = []
    yield _peer_maker(tmp_path, made)
    for peers in made:
        peers.stop()


@pytest.fixture(scope="module")
def make_module_peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Peers]]:
    """The same for a whole module."""
    made: list[Processes] = []
    yield _peer_maker(tmp_path_factory.mktemp("peers"), made)
    for peers in made:
        peers.stop()


@pytest.fixture(scope="session")
def learned_study_text() -> str:
    """The study between peers, with a structure that a miner searches; the search takes a second or two."""
    structure = PEER_STUDY[PEER_STUDY.index("[structure]") : PEER_STUDY.index("[share]")]
    return PEER_STUDY.replace(
        structure,
        """[structure]
method = "genetic"
max_parents = 2
seed = 7
[structure.genetic]
generations = 4000

""",
    )


@pytest.fixture(scope="session")
def peer_study_text() -> str:
    return PEER_STUDY


@pytest.fixture(scope="session")
def masked_study_text() -> str:
    return MASKED_STUDY


@pytest.fixture(scope="session")
def write_tables_of_peers() -> Callable[..., dict[str, Path]]:
    return write_peer_tables


@pytest.fixture
def make_nodes(tmp_path: Path) -> Iterator[Callable[..., Nodes]]:
    """Lay out a federation of `n` people; same seed, same secrets."""
    made: list[Nodes] = []
    yield _maker(tmp_path, made)
    for nodes in made:
        nodes.stop()


@pytest.fixture(scope="module")
def make_module_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Nodes]]:
    """The same for a whole module."""
    made: list[Nodes] = []
    yield _maker(tmp_path_factory.mktemp("module"), made)
    for nodes in made:
        nodes.stop()


@pytest.fixture
def take_over() -> Iterator[Callable[[Provisioned], Nodes]]:
    """Run the nodes of a federation with a miner that lies there already."""
    taken: list[Nodes] = []

    def take(made: Provisioned) -> Nodes:
        taken.append(Nodes(made, made.analyst / "study.toml"))
        return taken[-1]

    yield take
    for nodes in taken:
        nodes.stop()


@pytest.fixture(scope="session")
def study_text() -> str:
    return STUDY


@pytest.fixture(scope="session")
def open_study_text() -> str:
    """The same study, but what its records come from is left open: a joint model is estimated, too."""
    return STUDY.replace('sample_from = "network"\n', "")


@pytest.fixture(scope="session")
def write_federation_tables() -> Callable[..., dict[str, Path]]:
    return write_tables


@pytest.fixture(scope="session")
def slow_proxy() -> type[SlowProxy]:
    return SlowProxy

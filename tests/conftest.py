"""What several test files need: random networks, a whole release, two other programs that read networks, a small disk."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import itertools
import json
import logging
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

# One thread for products of matrices, as in the miner's worker: workers that share two cores wait for each other's otherwise.
# Before numpy is imported, which reads it then.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

from support.releases import (
    HARD_LABELS,
    PeerCase,
    content_of,
    draw_peer_case,
    peer_study_of_three,
    random_network,
    release_study_of_two,
)
from verticil.shared.core import logs
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.release.content import ReleaseContent
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    from support.postgresql import PostgreSQL

collect_ignore = ["data"]  # states made by programs before, and the scripts that made them with those programs

# What numba compiles lies beside the sources, for this process and all that tests start: once for the whole run.
os.environ.setdefault("NUMBA_CACHE_DIR", "")

# Every run tries the same examples, but for constants of the modules that happen to be loaded, which take part in them.
# `--hypothesis-profile=explore` tries others. What is found becomes an `@example` of its test.
# How long an example takes is the machine's affair.
own_time = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("repeatable", own_time, derandomize=True)
hypothesis.settings.register_profile("explore", own_time, derandomize=False, max_examples=500)
hypothesis.settings.load_profile("repeatable")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Take what is there before the first test, which stays to the end, out of what the collector of garbage walks through."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests: first those with processes, then those that read the sources.

    The first are the longest, and no worker shall be left alone with one at the end. The second share what is parsed, so they
    stand together, for one worker.
    """
    items.sort(key=lambda item: ("system" not in item.path.parts, not hasattr(getattr(item, "module", None), "parsed")))


@pytest.fixture(autouse=True)
def no_log_of_another_test() -> Iterator[None]:
    """A program that ran in this process logs to the standard error of its test; nobody else shall."""
    yield
    root = logging.getLogger()
    if ours := [handler for handler in root.handlers if isinstance(handler.formatter, logs.Formatter)]:
        for handler in ours:
            root.removeHandler(handler)
        root.setLevel(logging.WARNING)
        logging.getLogger("verticil").setLevel(logging.NOTSET)
        logging.captureWarnings(capture=False)


@dataclass(frozen=True)
class ReadNetwork:
    """A network as another program has read it."""

    states: dict[str, tuple[str, ...]]
    parents: dict[str, frozenset[str]]
    row: Callable[
        [str, Mapping[str, str]], dict[str, float]
    ]  # child, category of each parent -> probability of each category


@pytest.fixture(scope="session")
def make_network() -> Callable[..., Network]:
    return random_network


@pytest.fixture(scope="session")
def hard_network() -> Network:
    """Names and labels of every kind that some reader gets wrong."""
    variables = (
        Variable(name="my var", owner="clinic", labels=HARD_LABELS),
        Variable(name="a&b", owner="clinic", labels=("A", "a", "A_2")),
        Variable(name="MY-VAR", owner="registry", labels=HARD_LABELS[:5]),
        Variable(name="probability", owner="registry", labels=("True", "nan")),
    )
    return random_network(variables, ((1, 2), (2, 3), (), (2,)))


@pytest.fixture(scope="session")
def release_study() -> Study:
    """Two parties, five variables: a bound for each but the last, which is sent as it is."""
    return release_study_of_two()


@pytest.fixture(scope="session")
def release_content(release_study: Study) -> ReleaseContent:
    """A whole release of `release_study`, its numbers random, as a simulation makes it: without receipts."""
    return content_of(release_study)


@pytest.fixture(scope="session")
def peer_study() -> Callable[..., Study]:
    """Makes a study of Model I: three parties with two variables each, a given structure with two cross variables."""
    return peer_study_of_three


@pytest.fixture(scope="session")
def peer_case() -> Callable[..., PeerCase]:
    """Draws the columns of a peer study and randomizes them."""
    return draw_peer_case


def _with_pgmpy(path: Path) -> ReadNetwork:
    from pgmpy.readwrite import BIFReader, XMLBIFReader

    model = (XMLBIFReader if path.suffix == ".bifxml" else BIFReader)(str(path)).get_model()
    tables = {table.variable: table for table in model.get_cpds()}

    def row(child: str, given: Mapping[str, str]) -> dict[str, float]:
        table = tables[child]
        names = table.state_names
        index = tuple(names[parent].index(given[parent]) for parent in table.variables[1:])
        return {label: float(table.values[(position, *index)]) for position, label in enumerate(names[child])}

    return ReadNetwork(
        states={name: tuple(table.state_names[name]) for name, table in tables.items()},
        parents={name: frozenset(table.variables[1:]) for name, table in tables.items()},
        row=row,
    )


def _with_pyagrum(path: Path) -> ReadNetwork:
    with warnings.catch_warnings():
        # of its SWIG wrapper, at the first import on Python 3.12 and newer
        warnings.filterwarnings("ignore", r"builtin type \w+ has no __module__ attribute", DeprecationWarning)
        import pyagrum

    network = pyagrum.loadBN(str(path))
    names = {network.variable(node).name(): node for node in network.nodes()}
    states = {name: tuple(network.variable(node).labels()) for name, node in names.items()}

    def row(child: str, given: Mapping[str, str]) -> dict[str, float]:
        values = network.cpt(names[child])[dict(given)] if given else network.cpt(names[child]).tolist()
        return {label: float(value) for label, value in zip(states[child], values, strict=True)}

    return ReadNetwork(
        states=states,
        parents={
            name: frozenset(network.variable(p).name() for p in network.parents(node)) for name, node in names.items()
        },
        row=row,
    )


@pytest.fixture(scope="session")
def read_with_pgmpy() -> Callable[[Path], ReadNetwork]:
    """Reads a ``.bif`` or ``.bifxml`` file with pgmpy."""
    return _with_pgmpy


@pytest.fixture(scope="session")
def read_with_pyagrum() -> Callable[[Path], ReadNetwork]:
    """Reads a ``.bif`` or ``.bifxml`` file with pyAgrum."""
    return _with_pyagrum


@pytest.fixture(scope="session", params=["pgmpy", "pyagrum"])
def read_elsewhere(request: pytest.FixtureRequest) -> Callable[[Path], ReadNetwork]:
    """Reads with one, then with the other program."""
    read: Callable[[Path], ReadNetwork] = request.getfixturevalue(f"read_with_{request.param}")
    return read


def largest_difference(
    network: Network, read: ReadNetwork, names: tuple[str, ...], labels: tuple[tuple[str, ...], ...]
) -> float:
    """Compares cell by cell, by label; `names` and `labels` are what our variables and categories are called there."""
    schema = network.schema
    assert set(read.states) == set(names)
    worst = 0.0
    for family in network.families:
        child = family.child
        assert set(read.states[names[child]]) == set(labels[child])
        assert read.parents[names[child]] == {names[parent] for parent in family.parents}
        configurations: Iterator[tuple[int, ...]] = itertools.product(
            *(range(schema[p].n_states) for p in family.parents)
        )
        for configuration, ours in zip(configurations, family.probability, strict=True):
            given = {names[p]: labels[p][code] for p, code in zip(family.parents, configuration, strict=True)}
            theirs = read.row(names[child], given)
            worst = max(worst, *(abs(theirs[label] - p) for label, p in zip(labels[child], ours, strict=True)))
    return worst


@pytest.fixture(scope="session")
def difference() -> Callable[..., float]:
    return largest_difference


@pytest.fixture
def steps_of() -> Iterator[Callable[[str], list[str]]]:
    """What the parties that run in this process tell their logs of their studies, at INFO; by party."""
    stream, logger = io.StringIO(), logging.getLogger("verticil")
    handler, level = logging.StreamHandler(stream), logger.level
    handler.setFormatter(logs.Formatter(as_json=True))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def told(party: str) -> list[str]:
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        return [
            line["message"]
            for line in lines
            if line["level"] == "info" and line.get("party") == party and "study" in line
        ]

    yield told
    logger.setLevel(level)
    logger.removeHandler(handler)


@contextlib.contextmanager
def suppress_full(leave: int) -> Iterator[None]:
    """Where all room is taken, a node that writes meanwhile may have taken the last of it."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC or leave:
            raise


class SmallDisk:
    """A file system of 8 MiB that can be filled: what is written to it then meets the operating system's own ENOSPC."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / ".ballast"

    def fill(self, *, leave: int = 0) -> None:
        """Take all room but `leave` bytes."""
        room = shutil.disk_usage(self.path).free - leave
        with self._ballast.open("wb", buffering=0) as file, suppress_full(leave):
            while room > 0:
                room -= file.write(bytes(min(room, 1 << 16)))

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A server of the session's own; for tests with the marker `machine`."""
    from support.postgresql import started

    with started() as server:
        yield server


LEFT_OUT = "the tests that need it have the marker 'machine': .ci/run --core does without"


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Finds a program of a package in ``.ci/packages``; for tests with the marker `machine`."""

    def found(name: str) -> str:
        return shutil.which(name) or pytest.fail(f"{name} is not installed, see .ci/packages; {LEFT_OUT}")

    return found


@contextlib.contextmanager
def _mounted(path: Path) -> Iterator[SmallDisk]:
    path.mkdir(parents=True, exist_ok=True)
    options = f"size=8m,mode=0700,uid={os.getuid()},gid={os.getgid()}"
    command = ["mount", "-t", "tmpfs", "-o", options, "verticil-test", str(path)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.fail(f"a disk of its own needs the right to mount; {LEFT_OUT}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small file system at ``tmp_path / "disk"``; for tests with the marker `machine`."""
    with _mounted(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture(scope="session")
def mounted() -> Callable[[Path], contextlib.AbstractContextManager[SmallDisk]]:
    """Mounts a small file system at a path; the context's end removes it."""
    return _mounted

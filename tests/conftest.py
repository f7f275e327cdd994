"""What several test files need: random networks, a whole release, two other programs that read networks, a small disk."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
import io
import itertools
import json
import logging
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from verticil.party.dataset.perturb import perturb, record_tags
from verticil.party.protocol.peer.learner import learn_families, share_noise
from verticil.shared import logs
from verticil.shared.channels.transition import binary, identity, quantize, symmetric
from verticil.shared.model.graph import Dag
from verticil.shared.model.network import Family, Marginal, Network
from verticil.shared.model.rounding import round_network
from verticil.shared.model.schema import Missing, Schema, Variable
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.statement import PartyStatement, Received, software_text
from verticil.shared.release.synthesis import sample_codes
from verticil.shared.study import canonical
from verticil.shared.study.document import (
    GeneticRule,
    LinkageRule,
    ParameterRule,
    ReleaseRule,
    ShareRule,
    StructureRule,
    Study,
    Unit,
)
from verticil.shared.study.recipients import reads
from verticil.shared.study.structure_document import Structure, given_structure

collect_ignore = ["data"]  # states made by programs before, and the scripts that made them with those programs

# Every run tries the same examples, but for constants of the modules that happen to be loaded, which take part in them.
# `--hypothesis-profile=explore` tries others. What is found becomes an `@example` of its test.
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.register_profile("explore", derandomize=False, max_examples=500)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests with processes begin: they are the longest, and no worker shall be left alone with one at the end."""
    items.sort(key=lambda item: "system" not in item.path.parts)


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


HARD_LABELS = (
    "<=50K",
    ">50K",
    "a&b",
    "[17,25)",
    "(0,10]",
    "a  b",
    "'q' \"x\"",
    "é ü 漢",
    "a;b|c(d){e}",
    "//",
    "/*",
    "table",
    "?",
    "1e-5",
)


@dataclass(frozen=True)
class ReadNetwork:
    """A network as another program has read it."""

    states: dict[str, tuple[str, ...]]
    parents: dict[str, frozenset[str]]
    row: Callable[
        [str, Mapping[str, str]], dict[str, float]
    ]  # child, category of each parent -> probability of each category


def random_network(
    variables: tuple[Variable, ...], parents: tuple[tuple[int, ...], ...], *, seed: int = 1, rounded: bool = True
) -> Network:
    generator = np.random.default_rng(seed)
    schema = Schema(variables=variables)
    families = []
    for child, family in enumerate(parents):
        n_rows = int(np.prod([schema[p].n_states for p in family], dtype=np.int64))
        probability = generator.dirichlet(np.full(schema[child].n_states, 0.4), size=n_rows)
        error = np.sqrt(probability * (1 - probability) / 200) + 0.01
        estimate = probability + error * generator.normal(size=probability.shape)
        unstable = np.repeat(generator.random((n_rows, 1)) < 0.2, schema[child].n_states, axis=1)
        low, high = (np.where(unstable, np.nan, np.clip(estimate + z * error, 0, 1)) for z in (-1.96, 1.96))
        estimate[unstable & (generator.random(unstable.shape) < 0.3)] = np.nan
        families.append(
            Family(
                child=child, parents=family, probability=probability, estimate=estimate, standard_error=error,
                interval_low=low, interval_high=high, unstable=unstable,
            )
        )  # fmt: skip
    network = Network(schema=schema, dag=Dag(parents=parents), families=tuple(families))
    return round_network(network) if rounded else network


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


def _study() -> Study:
    schema = Schema(
        variables=(
            Variable(name="age", owner="clinic", labels=("[0,18)", "[18,65)", "[65,120)"), bins=(0, 18, 65, 120), integer=True),
            Variable(name="smoker", owner="clinic", labels=("no", "yes")),
            Variable(name="income", owner="registry", labels=("<=50K", ">50K"), ),
            Variable(
                name="weight", owner="registry", labels=("[0,50)", "[50,300)", "unknown"), bins=(0, 50, 300),
                missing=Missing(category="unknown", spellings=("?", "")),
            ),
            Variable(name="region", owner="registry", labels=("north & east", "south")),
        )
    )  # fmt: skip
    matrices = (
        symmetric(3, epsilon=2.0),
        binary(0.1, 0.25),
        symmetric(2, gamma=9),
        symmetric(3, epsilon=1.0),
        identity(2),
    )
    return Study(
        id="heart", title="Hearts and incomes", purpose="Find out", model="central", expires=dt.date(2099, 12, 31),
        parties=("clinic", "registry"),
        linkage=LinkageRule(mode="keyed-hash", normalise=("nfkc", "trim"), minimum_common_records=100),
        schema=schema,
        units=tuple(
            Unit(variables=(variable.name,), owner=variable.owner, scheme="matrix", transition=quantize(matrix))
            for variable, matrix in zip(schema.variables, matrices, strict=True)
        ),
        structure=StructureRule(
            method="genetic", score="mutual-information", max_parents=2, max_family_cells=20_000, seed=7,
            required=(), forbidden=(), genetic=GeneticRule(),
        ),
        parameters=ParameterRule(estimator="em", prior_count=0.5, interval_level=0.95),
        release=ReleaseRule(synthetic_records=None, seed=7),
    )  # fmt: skip


@pytest.fixture(scope="session")
def release_study() -> Study:
    """Two parties, five variables: a bound for each but the last, which is sent as it is."""
    return _study()


def _release_content(study: Study) -> ReleaseContent:
    schema, n = study.schema, 400
    network = random_network(schema.variables, ((), (0,), (0, 1), (), (2,)), seed=1)
    generator = np.random.default_rng(2)
    codes = tuple(generator.integers(0, variable.n_states, n).astype(np.uint8) for variable in schema.variables)
    columns: dict[str, object] = {}
    for variable, code in zip(schema.variables, codes, strict=True):
        labels = pd.Categorical.from_codes(code.astype(np.int8), list(variable.labels))
        columns[variable.name] = np.array([5, 40, 80])[code] if variable.name == "age" else labels
    columns["weight"] = np.array([42.5, 77.1, np.nan])[codes[3]]
    marginals = []
    for position, variable in enumerate(schema.variables):
        share = np.bincount(codes[position], minlength=variable.n_states) / n
        estimate = share - 0.05 * (np.arange(variable.n_states) == 0)
        marginals.append(
            Marginal(
                variable=position, estimate=estimate, standard_error=np.full(variable.n_states, 0.01), model=share,
                interval_low=np.clip(estimate - 0.02, 0, 1), interval_high=np.clip(estimate + 0.02, 0, 1),
            )
        )  # fmt: skip
    return ReleaseContent(
        study=study, study_digest="ab" * 32, effective_digest=canonical.digest(study).hex(),
        network=network, marginals=tuple(marginals), synthetic=pd.DataFrame(columns), codes=codes, n_common=1234,
        receipts=(), provenance={"numpy": "2.0.0"}, search={"method": "genetic", "seed": 7, "fitness": 0.25},
        simulation=True, seed_derived=False, published_at=dt.datetime(2026, 11, 21, 10, 0, 0, tzinfo=dt.UTC),
    )  # fmt: skip


@pytest.fixture(scope="session")
def release_content(release_study: Study) -> ReleaseContent:
    """A whole release of `release_study`, its numbers random, as a simulation makes it: without receipts."""
    return _release_content(release_study)


def _peer_study(**changes: object) -> Study:
    variables = (
        Variable(name="age", owner="clinic", labels=("young", "middle", "old")),
        Variable(name="smoker", owner="clinic", labels=("no", "yes")),
        Variable(name="income", owner="registry", labels=("low", "high")),
        Variable(name="region", owner="registry", labels=("north", "south")),
        Variable(name="claims", owner="insurer", labels=("none", "some", "many")),
        Variable(name="plan", owner="insurer", labels=("basic", "full")),
    )
    schema = Schema(variables=variables)
    parents = (("age", ()), ("smoker", ("age",)), ("income", ("age",)), ("region", ("income",)))
    parents += (("claims", ("smoker", "income")), ("plan", ("claims",)))  # type: ignore[assignment]  # longer than the first
    epsilons = (2.0, 2.5, 1.5, 2.0, 2.0, 2.0)
    study = Study(
        id="peers", title="Smoking, income and claims", purpose="Find out together", model="peer", expires=dt.date(2099, 12, 31),
        parties=("clinic", "registry", "insurer"),
        linkage=LinkageRule(mode="keyed-hash", normalise=("nfkc", "trim"), minimum_common_records=100),
        schema=schema,
        units=tuple(
            Unit(
                variables=(variable.name,), owner=variable.owner, scheme="symmetric",
                transition=quantize(symmetric(variable.n_states, epsilon=epsilon)),
            )
            for variable, epsilon in zip(variables, epsilons, strict=True)
        ),
        structure=StructureRule(
            method="given", score="mutual-information", max_parents=2, max_family_cells=20_000, seed=7,
            required=(), forbidden=(), genetic=GeneticRule(), parents=parents,
        ),
        parameters=ParameterRule(estimator="em", prior_count=0.5, interval_level=0.95),
        release=ReleaseRule(synthetic_records=300, seed=7),
        share=ShareRule(),
    )  # fmt: skip
    return dataclasses.replace(study, **changes)  # type: ignore[arg-type]  # the fields are the tests' to choose


@pytest.fixture(scope="session")
def peer_study() -> Callable[..., Study]:
    """Makes a study of Model I: three parties with two variables each, a given structure with two cross variables."""
    return _peer_study


@dataclass(frozen=True)
class PeerCase:
    """What all parties of a peer study hold and read, on one machine."""

    study: Study
    raw: Mapping[int, NDArray[np.uint8]]
    released: Mapping[int, NDArray[np.unsignedinteger]]

    @property
    def n_common(self) -> int:
        return len(self.raw[0])

    @property
    def structure(self) -> Structure:
        structure = given_structure(self.study, canonical.digest(self.study))
        assert structure is not None
        return structure

    def columns(
        self, party: str, dag: Dag | None
    ) -> tuple[dict[int, NDArray[np.uint8]], dict[int, NDArray[np.unsignedinteger]]]:
        """The raw and the received columns of a party."""
        own = {v: self.raw[v] for v in self.study.schema.owned_by(party)}
        return own, {unit: self.released[unit] for unit in reads(self.study, party, dag)}

    def statement(self, party: str, *, minute: int = 0, key: bytes = bytes(32)) -> PartyStatement:
        """What a party states; its signature is the test's."""
        structure = self.structure
        own, remote = self.columns(party, structure.dag)
        noise = share_noise(key, self.study, party)
        families, marginals = learn_families(own, remote, self.study, party, structure.dag, noise=noise)
        return PartyStatement(
            party=party, effective_digest=canonical.digest(self.study), n_common=self.n_common,
            common_sha256=hashlib.sha256(b"common").digest(), structure_sha256=structure.sha256,
            computed_at=dt.datetime(2026, 11, 21, 10, minute, tzinfo=dt.UTC), software=software_text(),
            received=tuple(
                Received(
                    unit=unit, owner=self.study.units[unit].owner, n_records=self.n_common,
                    artifact_sha256=hashlib.sha256(codes.tobytes()).digest(),
                )
                for unit, codes in sorted(remote.items())
            ),
            families=families, marginals=marginals, exact=noise is None,
        )  # fmt: skip


def _peer_case(study: Study, *, n: int = 3000, seed: int = 5) -> PeerCase:
    generator = np.random.default_rng(seed)
    dag = given_structure(study, canonical.digest(study))
    network = random_network(
        study.schema.variables, dag.dag.parents if dag else tuple(() for _ in study.schema), seed=seed
    )
    raw = dict(enumerate(sample_codes(network, n, generator=generator, method="independent")))
    tags = record_tags(generator.bytes(32), map(str, range(n)))
    released = {}
    for index, unit in enumerate(study.units):
        domain = {combination: code for code, combination in enumerate(study.domain_of(index))}
        members = [raw[study.schema.index(name)] for name in unit.variables]
        codes = np.array([domain[tuple(map(int, row))] for row in zip(*members, strict=True)], dtype=np.uint8)
        released[index] = perturb(generator.bytes(32), tags, codes, unit.transition)
    return PeerCase(study=study, raw=raw, released=released)


@pytest.fixture(scope="session")
def peer_case() -> Callable[..., PeerCase]:
    """Draws the columns of a peer study and randomizes them."""
    return _peer_case


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


class SmallDisk:
    """A file system of 8 MiB that can be filled: what is written to it then meets the operating system's own ENOSPC."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / ".ballast"

    def fill(self, *, leave: int = 0) -> None:
        """Take all room but `leave` bytes."""
        room = shutil.disk_usage(self.path).free - leave
        with self._ballast.open("wb", buffering=0) as file:
            while room > 0:
                room -= file.write(bytes(min(room, 1 << 16)))

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)


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

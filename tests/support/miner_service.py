"""A miner's node on a folder, and parties that make each call of the protocol by hand."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import hashlib
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from support import PATIENCE_SECONDS
from support.studies import study_of
from verticil.miner.config import ServiceLimits
from verticil.miner.rules.rounds import Sealing
from verticil.miner.scheduler.learning import Executor, InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, Revocations
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.numerics.model.artifact import pack
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study import canonical
from verticil.shared.study.approval import Approval, declared_units
from verticil.shared.study.document import (
    GeneticRule,
    Study,
)
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

PARTIES = ("north", "south", "west")


N_COMMON = 300


NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
"""When the certificates are issued, and where every clock begins, however late in a long run."""


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> dt.datetime:
        return self.now


@dataclasses.dataclass
class Keys:
    authority: bytes
    signing: dict[str, SigningKey]


def make_keys(folder: Path) -> Keys:
    """Of every caller."""
    create_authority(folder / "ca", "trial", at=NOW)
    signing = {}
    for name, role in (("miner", Role.MINER), *((party, Role.PARTY) for party in PARTIES)):
        hosts = ("localhost",) if role is Role.MINER else ()
        files = issue(folder / "ca", name, role, folder / name, hosts=hosts, at=NOW)
        signing[name] = SigningKey.load(files.signing_key, files.certificate)
    return Keys(authority=(folder / "ca" / "ca.crt").read_bytes(), signing=signing)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("pki"))


def make_study(*, study_id: str = "trial", minimum: int = 10, expires: dt.date | None = None, states: int = 3) -> Study:
    labels = tuple(f"c{k}" for k in range(states))
    genetic = GeneticRule(population=20, selected=4, generations=10)
    return study_of(
        [Variable(name=f"{party}_{letter}", owner=party, labels=labels) for party in PARTIES for letter in "ab"],
        epsilon=3.0,
        id=study_id,
        expires=expires or (NOW + dt.timedelta(days=30)).date(),
        linkage={"normalise": ("trim",), "minimum_common_records": minimum},
        structure={"max_family_cells": 1000, "seed": 1, "genetic": genetic},
        release={"seed": 5},
    )


def pseudonyms_of(party: str, n_common: int = N_COMMON) -> NDArray[np.bytes_]:
    """Everybody's common pseudonyms and some of the party's own, ascending; independent of the project's code."""
    names = [f"common {i}" for i in range(n_common)] + [f"{party} {i}" for i in range(40 + len(party))]
    return np.sort(np.array([hashlib.sha256(name.encode()).digest()[:16] for name in names], dtype="S16"))


def codes_of(unit: int, n_states: int = 3) -> NDArray[np.uint8]:
    """Released codes; column 2i+1 follows column 2i, so there is something to learn."""
    base = np.random.default_rng(unit // 2).integers(0, n_states, N_COMMON)
    noise = np.random.default_rng(100 + unit).random(N_COMMON) < 0.2
    return ((base + noise * (unit % 2)) % n_states).astype(np.uint8)


class Party:
    """A party's side of the protocol, one call at a time."""

    def __init__(self, node: MinerNode, keys: Keys, name: str) -> None:
        self.name = name
        self.keys = keys
        self.identity = Identity(federation="trial", role=Role.PARTY, name=name)
        self.wire = InMemoryCoordinator(node.coordinator, self.identity)
        self.pseudonyms = pseudonyms_of(name)

    async def poll(self, *, wait: int = 0, known: dict[bytes, int] | None = None) -> coordinator_pb2.PollReply:
        request = coordinator_pb2.PollRequest(
            wait_seconds=wait,
            known=[coordinator_pb2.KnownStudy(study_digest=d, version=v) for d, v in (known or {}).items()],
        )
        return await self.wire.poll(request)

    async def task(self, digest: bytes) -> coordinator_pb2.StudyTask:
        return next(task for task in (await self.poll()).tasks if task.study_digest == digest)

    async def until(
        self, digest: bytes, reached: Callable[[coordinator_pb2.StudyTask], bool]
    ) -> coordinator_pb2.StudyTask:
        """Long-poll until the study is as wanted: no sleeping, the miner wakes the poll."""
        known: dict[bytes, int] = {}
        while True:
            for task in (await self.poll(wait=30, known=known)).tasks:
                known[task.study_digest] = task.version
                if task.study_digest == digest and reached(task):
                    return task

    def approval(self, study: Study, *, signer: str | None = None, minimum: int = 10) -> common_pb2.Signed:
        mine = study.units_of(self.name)
        body = encode(
            Approval(
                proposal_digest=canonical.digest(study),
                party=self.name,
                units=declared_units({index: study.units[index] for index in mine}, dict.fromkeys(mine, "ab" * 32)),
                minimum_common_records=minimum,
                approver="a person",
                approved_at=NOW,
                expires=study.expires,
            )
        )
        return self.keys.signing[signer or self.name].sign(body)

    async def approve(self, study: Study, **changes: object) -> None:
        signed = self.approval(study, **changes)  # type: ignore[arg-type]
        await self.wire.report(coordinator_pb2.ReportRequest(study_digest=canonical.digest(study), approval=signed))

    def list_messages(self, digest: bytes, *, offset: int = 0) -> Iterator[coordinator_pb2.PutPseudonymsRequest]:
        data = self.pseudonyms.tobytes()
        yield coordinator_pb2.PutPseudonymsRequest(
            study_digest=digest, size=len(data), sha256=hashlib.sha256(data).digest()
        )
        for start in range(offset, len(data), 1024):
            yield coordinator_pb2.PutPseudonymsRequest(chunk=chunk(data, start, 1024))

    async def link(self, digest: bytes) -> None:
        reply = await self.wire.put_pseudonyms(self.list_messages(digest))
        assert reply.complete

    async def alignment(self, digest: bytes, offset: int = 0) -> tuple[coordinator_pb2.AlignmentPart, bytes]:
        data = b""
        async for part in self.wire.get_alignment(
            coordinator_pb2.GetAlignmentRequest(study_digest=digest, offset=offset)
        ):
            last = part
            data += zlib.decompress(part.chunk.data) if part.chunk.encoding else part.chunk.data
        return last, data

    async def confirm(self, digest: bytes) -> None:
        await self.until(digest, lambda task: task.pseudonyms_complete)
        while True:
            version = (
                await self.task(digest)
            ).version  # before the question: a change between the two is not waited for
            try:
                part, bitmap = await self.alignment(digest)
                break
            except VerticilError as error:
                assert error.code == "NOT_READY"  # noqa: PT017
                await self.poll(wait=30, known={digest: version})
        mask = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little", count=len(self.pseudonyms)).astype(
            bool
        )
        common = self.pseudonyms[mask]
        digest_of_common = hashlib.sha256(common.tobytes()).digest()
        assert (part.n_common, part.common_sha256) == (len(common), digest_of_common)
        request = coordinator_pb2.ReportRequest(study_digest=digest, confirmed_common_sha256=digest_of_common)
        await self.wire.report(request)

    async def begin(self, task: coordinator_pb2.StudyTask, unit: int, data: bytes) -> coordinator_pb2.BeginUploadReply:
        return await self.wire.begin_upload(
            coordinator_pb2.BeginUploadRequest(
                effective_digest=task.effective_digest, unit=unit, size=len(data), sha256=hashlib.sha256(data).digest()
            )
        )

    async def upload(self, digest: bytes, unit: int) -> common_pb2.Signed:
        data = pack(codes_of(unit), 3)
        begun = await self.begin(await self.task(digest), unit, data)
        if not begun.HasField("receipt"):
            await self.wire.put_chunks(
                [chunk(data, at, 7, begun.upload_id) for at in range(begun.committed_offset, len(data), 7)]
            )
        finished = await self.wire.finish_upload(coordinator_pb2.FinishUploadRequest(upload_id=begun.upload_id))
        return finished.receipt


def chunk(data: bytes, start: int, size: int, upload_id: str = "") -> common_pb2.Chunk:
    plain = data[start : start + size]
    return common_pb2.Chunk(upload_id=upload_id, offset=start, data=plain, crc32=zlib.crc32(plain))


class Federation:
    """A miner on a folder with its callers; `reopen` is a crash and a restart."""

    def __init__(self, directory: Path, keys: Keys, **options: object) -> None:
        self.directory, self.keys, self.options = directory, keys, options
        self.clock = Clock()
        self.executor: Executor = InlineLearning(clock=self.clock)
        self.limits = ServiceLimits(disk_reserve_bytes=0)
        self.free: Callable[[Path], int] = lambda _path: 2**40
        self.monotonic = 0.0
        self.revocations: Revocations = EMPTY_DENY_LIST
        self.sealing: Sealing | None = None
        self.randomized_days = 30
        self.node = self.make()

    def make(self) -> MinerNode:
        return MinerNode(
            self.directory,
            identity=Identity(federation="trial", role=Role.MINER, name="miner"),
            authority=self.keys.authority,
            signer=self.keys.signing["miner"],
            executor=self.executor,
            limits=self.limits,
            randomized_days=self.randomized_days,
            sealing=self.sealing,
            clock=self.clock,
            monotonic=lambda: self.monotonic,
            free_bytes=lambda path: self.free(path),
            revocations=self.revocations,
        )

    def party(self, name: str) -> Party:
        return Party(self.node, self.keys, name)

    @property
    def parties(self) -> list[Party]:
        return [self.party(name) for name in PARTIES]

    def control(self, name: str = "anna", role: Role = Role.ANALYST) -> InMemoryControl:
        return InMemoryControl(self.node.control, Identity(federation="trial", role=role, name=name))

    async def submit(self, study: Study, analyst: str = "anna") -> bytes:
        request = control_pb2.SubmitStudyRequest(proposal=canonical.to_bytes(study))
        return (await self.control(analyst).submit_study(request)).study_digest

    async def summary(self, digest: bytes) -> control_pb2.StudySummary:
        return (await self.control().get_study(control_pb2.GetStudyRequest(study_digest=digest))).study

    async def to_upload(self, study: Study) -> bytes:
        """Take a new study to where parties upload."""
        digest = await self.submit(study)
        for party in self.parties:
            await party.approve(study)
        for party in self.parties:
            await party.link(digest)
        for party in self.parties:
            await party.confirm(digest)
        return digest

    async def publish(self, study: Study) -> bytes:
        """Take a new study to its end."""
        digest = await self.to_upload(study)
        for party in self.parties:
            for unit in study.units_of(party.name):
                await party.upload(digest, unit)
        await self.party("north").until(digest, lambda task: task.state >= State.PUBLISHED)
        return digest

    async def settled(self, digest: bytes, fact: str) -> None:
        """Let the scheduler work until a fact that no version tells of is recorded."""
        self.node.changes.notify()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not getattr(await asyncio.to_thread(self.node.catalogue.study, digest), fact):
                pass

    @contextlib.asynccontextmanager
    async def restarted(self) -> AsyncIterator[None]:
        """End the node without any orderly step that a SIGKILL would not have, and open another one on the same folder."""
        self.node.close()
        self.node = self.make()
        async with self.node:
            yield


@pytest.fixture
def federation(tmp_path: Path, keys: Keys) -> Iterator[Federation]:
    made = Federation(tmp_path / "state", keys)
    yield made
    made.node.close()


async def refused(call: object) -> str:
    """The code with which a call is refused."""
    try:
        await call  # type: ignore[misc]
    except VerticilError as error:
        return error.code
    return "accepted"

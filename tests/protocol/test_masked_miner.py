"""A masked study at the miner: what its parties say of the people they found, its part of the round, and learning.

The parties are rounds on folders of their own that this test drives; between the two passes what passes over the wire.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from support.masked_nodes import Table
from support.miner_service import PARTIES, Federation, Keys, chunk, codes_of, keys, make_study
from verticil.miner.rules.rounds import Sealing
from verticil.miner.scheduler.job import Job, LearningJob, Progress
from verticil.miner.scheduler.learning import InlineLearning
from verticil.shared.alignment.statements import common_body
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import verify_signed
from verticil.shared.masked.plan import Plan
from verticil.shared.masked_round.mail import Credentials
from verticil.shared.masked_round.messages import messages_of
from verticil.shared.masked_round.round import Round
from verticil.shared.study.document import MaskedRule, Study, TablesRule
from verticil.shared.study.masked import plan_of
from verticil.shared.study.states import State
from verticil.shared.transport.fetch import fetch_file
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

__all__ = ["keys"]

N = 300
MINER = "miner"


def masked_study(**changed: object) -> Study:
    study = dataclasses.replace(make_study(), model="masked", tables=TablesRule(epsilon=1.0, delta=1e-9))
    return dataclasses.replace(study, **changed)  # type: ignore[arg-type]  # fields of a study


class Learning:
    """Learns, and keeps what it was asked to."""

    def __init__(self, inner: InlineLearning) -> None:
        self.inner, self.jobs, self.tables = inner, list[Job](), list[bytes]()

    async def run(self, given: Job, progress: Progress) -> bytes:
        self.jobs.append(given)
        assert isinstance(given, LearningJob)
        assert given.tables is not None
        self.tables.append(given.tables.path.read_bytes())
        return await self.inner.run(given, progress)


class Masked:
    """A federation whose miner and parties have sealing keys, and the parties' side of a round."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder, self.keys = folder, keys
        self.sealing = {name: X25519PrivateKey.generate() for name in (*PARTIES, MINER)}
        self.pinned = {name: key.public_key().public_bytes_raw() for name, key in self.sealing.items()}
        self.federation = Federation(folder / "state", keys)
        self.federation.node.close()
        self.federation.sealing = Sealing(key=self.sealing[MINER], pinned=self.pinned)
        self.federation.executor = self.learning = Learning(InlineLearning(clock=self.federation.clock))
        self.federation.node = self.federation.make()
        self.rounds: dict[str, Round] = {}
        self.told: dict[str, set[int]] = {}
        self.change: Callable[[str, int, bytes], bytes] = lambda _party, _index, data: data

    @property
    def node(self) -> object:
        return self.federation.node

    def verify(self, signed: common_pb2.Signed, name: str) -> None:
        role = Role.MINER if name == MINER else Role.PARTY
        verify_signed(signed, self.keys.authority, role=role, name=name)

    async def submitted(self, study: Study) -> bytes:
        digest = await self.federation.submit(study)
        for party in self.federation.parties:
            await party.approve(study)
        return digest

    async def found(self, digest: bytes, name: str, *, n_common: int = N, order: bytes = b"o" * 32) -> None:
        """A party says what people it found with the others."""
        body = common_body(mode="keyed-hash", study=digest, party=name, n_common=n_common, common_sha256=order)
        said = common_pb2.Commitment(statement=self.keys.signing[name].sign(body), n_records=n_common)
        request = coordinator_pb2.ReportRequest(study_digest=digest, commitment=said)
        await self.federation.party(name).wire.report(request)

    async def aligned(self, study: Study) -> bytes:
        digest = await self.submitted(study)
        for name in PARTIES:
            await self.found(digest, name)
        await self.federation.party("north").until(digest, lambda task: task.state >= State.UPLOADING)
        return digest

    def plan(self, digest: bytes) -> Plan:
        record = self.federation.node.session.record(digest)
        return plan_of(self.federation.node.session.effective(record), N, proposal=digest)

    def clock(self) -> dt.datetime:
        """Time passes with every question, so that slots come."""
        self.federation.clock.now += dt.timedelta(milliseconds=200)
        return self.federation.clock.now

    def begin(self, digest: bytes) -> None:
        """The parties' parts of the round."""
        plan = self.plan(digest)
        study = self.federation.node.session.effective(self.federation.node.session.record(digest))
        for name in PARTIES:
            rows = np.stack([codes_of(unit).astype(np.int64) for unit in study.units_of(name)], axis=1)
            self.rounds[name] = Round(
                self.folder / "parties" / name,
                plan,
                name,
                credentials=Credentials(
                    signing=self.keys.signing[name], sealing=self.sealing[name], pinned=self.pinned, verify=self.verify
                ),
                people=Table(rows),
                clock=self.clock,
            )
            self.rounds[name].begin()
            self.told.setdefault(name, set())

    async def put(self, digest: bytes, name: str, index: int, data: bytes, *, upto: int | None = None) -> bool:
        """A message to the miner, from the committed offset on; whether it is whole."""
        effective = self.federation.node.session.record(digest).effective_digest
        head = coordinator_pb2.PutMaskedRequest(
            effective_digest=effective, index=index, size=len(data), sha256=hashlib.sha256(data).digest()
        )
        wire = self.federation.party(name).wire
        asked = await wire.put_masked([head])
        if asked.complete:
            return True
        end = len(data) if upto is None else upto
        pieces = [chunk(data[:end], at, 512) for at in range(asked.committed_offset, end, 512)]
        stream = [head, *(coordinator_pb2.PutMaskedRequest(chunk=piece) for piece in pieces)]
        return (await wire.put_masked(stream)).complete

    async def get(self, digest: bytes, name: str, index: int, target: Path) -> None:
        effective = self.federation.node.session.record(digest).effective_digest
        wire = self.federation.party(name).wire
        await fetch_file(
            lambda offset: wire.get_masked(
                peer_pb2.GetMaskedRequest(effective_digest=effective, index=index, offset=offset)
            ),
            target,
            limit_bytes=1 << 30,
            what="message",
        )

    async def listed(self, digest: bytes, name: str, have: set[int], *, wait: int = 0) -> tuple[int, ...]:
        effective = self.federation.node.session.record(digest).effective_digest
        request = peer_pb2.ListMaskedRequest(effective_digest=effective, have=sorted(have), wait_seconds=wait)
        return tuple((await self.federation.party(name).wire.list_masked(request)).index)

    def between(self) -> None:
        """What the parties have for each other passes once."""
        for source, target in itertools.permutations(PARTIES, 2):
            wanted = set(self.rounds[target].missing(source))
            for index in wanted & set(self.rounds[source].outgoing(target)):
                copy = self.folder / f"carried-{index}"
                shutil.copyfile(self.rounds[source].sealed(index).path, copy)
                self.rounds[target].receive(index, copy)

    async def exchange(self, digest: bytes, *, to_miner: bool = True) -> None:
        """Every party does what it can, and all that is there passes once."""
        for name, node in self.rounds.items():
            node.step()
            for index in node.outgoing(MINER, self.told[name]) if to_miner else ():
                data = self.change(name, index, node.sealed(index).path.read_bytes())
                assert await self.put(digest, name, index, data)
                self.told[name].add(index)
            wanted = node.missing(MINER)
            have = {item.index for item in messages_of(self.plan(digest)) if item.index not in wanted}
            for index in await self.listed(digest, name, have):
                target = self.folder / f"got-{index}"
                await self.get(digest, name, index, target)
                node.receive(index, target)
        self.between()
        self.clock()
        self.federation.node.changes.notify()
        await asyncio.sleep(0.01)

    async def run(self, digest: bytes, until: Callable[[], bool] | None = None) -> None:
        for _ in range(3000):
            if until() if until else all(node.finished for node in self.rounds.values()):
                return
            await self.exchange(digest)
        raise AssertionError("the round does not come to its end")

    async def state(self, digest: bytes) -> tuple[State, str]:
        task = await self.federation.party("north").task(digest)
        return State(task.state), task.failure.code

    async def ended(self, digest: bytes) -> tuple[State, str]:
        await self.federation.party("north").until(digest, lambda task: task.state >= State.PUBLISHED)
        return await self.state(digest)


@pytest.fixture
def masked(tmp_path: Path, keys: Keys) -> Iterator[Masked]:
    made = Masked(tmp_path, keys)
    yield made
    made.federation.node.close()


@pytest.mark.parametrize("dealer", ["party", "miner"])
async def test_a_masked_study_is_learned_from_opened_tables_and_no_column_comes(masked: Masked, dealer: str) -> None:
    study = masked_study(masked=MaskedRule(dealer=dealer))  # type: ignore[arg-type]
    federation = masked.federation
    async with federation.node:
        digest = await masked.aligned(study)
        files = federation.node.store.study(digest)
        masked.begin(digest)
        await masked.run(digest)
        assert await masked.ended(digest) == (State.PUBLISHED, "")
        record = federation.node.session.record(digest)
        assert not record.columns
        [job] = masked.learning.jobs
        assert isinstance(job, LearningJob)
        assert (job.columns, job.receipts) == ((), ())
        summary = await federation.summary(digest)
        assert [(party.units_received, party.units_expected) for party in summary.parties] == [(1, 1)] * 3
        assert summary.n_common == N
    opened = masked.rounds["north"].opened()
    assert opened is not None
    counts = np.concatenate([table.ravel() for table in opened])
    assert masked.learning.tables[0].endswith(counts.astype("<i8").tobytes())
    assert not (files.root / "columns").exists() or not any((files.root / "columns").iterdir())

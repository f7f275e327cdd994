"""A masked study at the miner: what its parties say of the people they found, its part of the round, and learning.

The parties are rounds on folders of their own that this test drives; between the two passes what passes over the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import functools
import hashlib
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from support import PATIENCE_SECONDS
from support.masked_nodes import Table
from support.miner_service import PARTIES, Federation, Keys, chunk, codes_of, keys, make_study, refused
from verticil.miner.airgap.exchange import replay
from verticil.miner.rules import rounds
from verticil.miner.rules.rounds import Sealing
from verticil.miner.scheduler.job import Job, LearningJob, ReportProgress
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.metrics import miner_gauges
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.federation.airgap.bundle import BundleEntries
from verticil.shared.federation.alignment.statements import common_body
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.federation.transport import fetch
from verticil.shared.federation.transport.chunks import make_chunks
from verticil.shared.federation.transport.fetch import fetch_file
from verticil.shared.federation.transport.in_memory import InMemoryCoordinator
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round.round import Round
from verticil.shared.masked.round.schedule import Kind, messages_of
from verticil.shared.masked.round.sealed_messages import Credentials
from verticil.shared.release.formats.deletion import parse_deletion
from verticil.shared.storage import durable
from verticil.shared.study.document import MaskedRule, QuorumRule, Study, TablesRule
from verticil.shared.study.masked import plan_of
from verticil.shared.study.states import State
from verticil.wire.v1 import carried_pb2, common_pb2, coordinator_pb2, peer_pb2

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

    async def run(self, given: Job, progress: ReportProgress) -> bytes:
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
        while self.federation.node.rounds.find(digest) is None:  # it is open a moment after that is written down
            await asyncio.sleep(0.01)
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
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (until() if until else all(node.is_finished for node in self.rounds.values())):
                await self.exchange(digest)

    async def live(self, digest: bytes, kills: Killer) -> None:
        """The parties go on until everybody has the tables, or the miner is killed."""
        node = self.federation.node
        files = node.store.study(digest)
        while not kills.dead:
            record = await asyncio.to_thread(node.session.record, digest)
            if not self.rounds and record.n_common is not None:
                self.begin(digest)
            if record.learning is not None and not files.masked.exists():
                return
            if self.rounds and node.rounds.find(digest) is not None:
                await self.exchange(digest)
            else:
                node.changes.notify()
                await asyncio.sleep(0.01)

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


@pytest.mark.whole
@pytest.mark.parametrize("dealer", ["party", pytest.param("miner", marks=pytest.mark.whole)])
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
    opened = masked.rounds["north"].read_tables()
    assert opened is not None
    counts = np.concatenate([table.ravel() for table in opened])
    assert masked.learning.tables[0].endswith(counts.astype("<i8").tobytes())
    assert not (files.root / "columns").exists() or not any((files.root / "columns").iterdir())


@pytest.mark.whole
async def test_learning_begins_when_the_slot_of_the_opened_tables_has_come(masked: Masked) -> None:
    federation = masked.federation
    async with federation.node:
        digest = await masked.aligned(masked_study())
        masked.begin(digest)
        shares = {item.index: item.sender for item in messages_of(masked.plan(digest)) if item.kind is Kind.SHARE}
        for index, name in shares.items():
            masked.told[name].add(index)  # it keeps its share for now

        def may_leave() -> bool:
            return all(index in masked.rounds[name].outgoing(MINER) for index, name in shares.items())

        await masked.run(digest, may_leave)
        made = {index: masked.rounds[name].sealed(index).path.read_bytes() for index, name in shares.items()}
        for index, name in shares.items():  # from here on the clock stands
            assert await masked.put(digest, name, index, made[index])
        advance: Any = functools.partial(asyncio.to_thread, federation.node.rounds.advance, digest)
        await advance()
        opened = federation.node.rounds.find(digest)
        assert opened is not None
        assert opened.round.read_tables() is not None
        held = opened.round.held_seconds
        assert held > 0
        await advance()
        assert federation.node.session.record(digest).learning is None
        federation.clock.now += dt.timedelta(seconds=held + 0.001)
        await advance()
        assert federation.node.session.record(digest).learning is not None


async def test_the_parties_lists_must_be_one_and_nobody_sends_the_miner_another(masked: Masked) -> None:
    study, federation = masked_study(), masked.federation
    async with federation.node:
        digest = await masked.submitted(study)
        north = federation.party("north")
        with pytest.raises(PeerFault, match="expected neither lists nor columns at the miner"):
            await north.link(digest)
        await masked.found(digest, "north")
        await masked.found(digest, "north")  # again: nothing new
        assert await refused(masked.found(digest, "north", n_common=N + 1)) == "STUDY_MISMATCH"
        forged = common_body(mode="keyed-hash", study=digest, party="south", n_common=N, common_sha256=b"o" * 32)
        said = common_pb2.Commitment(statement=masked.keys.signing["north"].sign(forged), n_records=N)
        request = coordinator_pb2.ReportRequest(study_digest=digest, commitment=said)
        assert await refused(federation.party("south").wire.report(request)) == "MESSAGE_INVALID"
        await masked.found(digest, "south")
        summary = await federation.summary(digest)
        assert [party.waiting_for for party in summary.parties] == ["", "", "linkage"]
        await masked.found(digest, "west", order=b"p" * 32)
        assert await masked.ended(digest) == (State.FAILED, "ALIGNMENT_MISMATCH")
        failure = (await north.task(digest)).failure
        assert "party 'north' has another common list than 'west'" in failure.message

        few = await masked.submitted(masked_study(title="few"))
        for name in PARTIES:
            await masked.found(few, name, n_common=9)
        assert await masked.ended(few) == (State.FAILED, "LINKAGE_TOO_SMALL")


async def test_a_miner_or_a_party_without_a_pinned_key_is_named_at_submission(masked: Masked) -> None:
    federation = masked.federation
    federation.node.close()
    pinned = {name: key for name, key in masked.pinned.items() if name != "south"}
    federation.sealing = Sealing(key=masked.sealing[MINER], pinned=pinned)
    federation.node = federation.make()
    with pytest.raises(Misuse, match="pins no sealing key of party 'south'"):
        await federation.submit(masked_study())
    await federation.submit(make_study())  # other studies need none
    federation.node.close()
    federation.sealing = None
    federation.node = federation.make()
    with pytest.raises(Misuse, match="of the miner, of party 'north'"):
        await federation.submit(masked_study())


async def test_only_the_sender_sends_a_message_of_its_size_and_goes_on_where_it_was(masked: Masked) -> None:
    federation = masked.federation
    async with federation.node:
        digest = await masked.aligned(masked_study())
        masked.begin(digest)
        opened = federation.node.rounds.find(digest)
        assert opened is not None
        north = masked.rounds["north"]
        north.step()
        hello = north.outgoing(MINER)[0]
        data = north.sealed(hello).path.read_bytes()
        assert await refused(masked.put(digest, "south", hello, data)) == "NOT_OWNER"
        assert await refused(masked.put(digest, "north", 10_000, data)) == "NOT_OWNER"
        assert (
            await refused(masked.put(digest, "north", hello, bytes(opened.round.limit(hello) + 1))) == "MESSAGE_INVALID"
        )
        effective = federation.node.session.record(digest).effective_digest
        lie = coordinator_pb2.PutMaskedRequest(
            effective_digest=effective, index=hello, size=len(data), sha256=bytes(32), chunk=chunk(data, 0, len(data))
        )
        assert await refused(federation.party("north").wire.put_masked([lie])) == "ARTIFACT_INVALID"
        theirs = masked.rounds["south"]
        theirs.step()
        assert await refused(masked.get(digest, "south", hello, masked.folder / "stolen")) == "NOT_READY"

        # Half of it, a restart, the rest; then the same again is no news.
        assert not await masked.put(digest, "north", hello, data, upto=600)
        arriving = federation.node.store.study(digest).masked / "arriving"
        assert [path.stat().st_size for path in arriving.iterdir()] == [600]
    async with federation.restarted():
        while federation.node.rounds.find(digest) is None:
            await asyncio.sleep(0.01)
        effective = federation.node.session.record(digest).effective_digest
        head = coordinator_pb2.PutMaskedRequest(
            effective_digest=effective, index=hello, size=len(data), sha256=hashlib.sha256(data).digest()
        )
        asked = await federation.party("north").wire.put_masked([head])
        assert (asked.committed_offset, asked.complete) == (600, False)
        assert await masked.put(digest, "north", hello, data)
        assert await masked.put(digest, "north", hello, data)
        opened = federation.node.rounds.find(digest)
        assert opened is not None
        while not (summary := await federation.summary(digest)).stage_detail.endswith(" UTC for south, west"):
            await asyncio.sleep(0.01)
        assert [party.waiting_for for party in summary.parties] == ["", "messages", "messages"]
        assert "agreeing on the plan: " in summary.stage_detail
        assert "bytes, 0 of 3 pairs, waiting since 2" in summary.stage_detail
        gauges = {
            gauge.name: gauge.values
            for gauge in miner_gauges(
                federation.node.session,
                federation.node.leases,
                federation.node.relay,
                masked.folder,
                cast("Any", FixedCredentials(federation.clock.now)),
                rounds=federation.node.rounds,
                detail=federation.node.scheduler.detail,
            )
        }
        assert gauges["masked_messages"]["done",] >= 1
        assert gauges["masked_bytes"][()] >= len(data)
        assert gauges["masked_late_messages"][()] == 0
        assert set(gauges["masked_waiting_seconds"]) == {("south",), ("west",)}

        # Another message in its place ends the round, and says whose it is.
        other = bytearray(data)
        other[-1] ^= 1
        assert await masked.put(digest, "north", hello, bytes(other))
        assert await masked.ended(digest) == (State.FAILED, "MESSAGE_INVALID")
        failure = (await federation.party("south").task(digest)).failure
        assert "north" in failure.message + failure.hint
        await federation.settled(digest, "columns_removed")
        assert not federation.node.store.study(digest).masked.exists()
        assert await refused(masked.put(digest, "south", hello, data)) == "MESSAGE_INVALID"


async def test_a_message_that_comes_too_early_waits_as_a_file(masked: Masked) -> None:
    federation = masked.federation
    async with federation.node:
        digest = await masked.aligned(masked_study())
        masked.begin(digest)
        north = masked.rounds["north"]
        while len(north.outgoing(MINER)) < 2:  # its hello, and that it agrees, which needs the hellos of all
            await masked.exchange(digest, to_miner=False)
        hello, agreed = north.outgoing(MINER)[:2]
        for index in (agreed, hello):
            assert await masked.put(digest, "north", index, north.sealed(index).path.read_bytes())
        opened = federation.node.rounds.find(digest)
        assert opened is not None
        while opened.progress.waiting_for != ("south", "west"):
            await asyncio.sleep(0.01)
        assert [path.name.partition("-")[0] for path in (opened.folder / "arrived").iterdir()] == [str(agreed)]
        masked.told["north"] = {agreed, hello}
        while list((opened.folder / "arrived").glob(f"{agreed}-*")):
            await masked.exchange(digest)
        assert await masked.state(digest) == (State.UPLOADING, "")


async def test_a_second_message_in_one_place_is_not_kept_and_ends_the_round_before_it_is_awaited(
    masked: Masked,
) -> None:
    federation = masked.federation
    async with federation.node:
        digest = await masked.aligned(masked_study())
        masked.begin(digest)
        masked.rounds["north"].step()
        wanted = (Kind.AGREED, "north", MINER)
        agreed = next(m for m in messages_of(masked.plan(digest)) if (m.kind, m.sender, m.recipient) == wanted)
        assert await masked.put(digest, "north", agreed.index, b"one")
        assert await masked.put(digest, "north", agreed.index, b"one"), "the same again is no news"
        opened = federation.node.rounds.find(digest)
        assert opened is not None
        opened.whole.clear()  # as after a restart
        assert await masked.put(digest, "north", agreed.index, b"one")
        with federation.node.rounds._advancing[digest]:  # what follows waits
            assert await masked.put(digest, "north", agreed.index, b"two")
            assert len(list((opened.folder / "arrived").iterdir())) == 1
            assert not list((opened.folder / "arriving").iterdir())
            assert await refused(masked.put(digest, "north", agreed.index, b"three")) == "NOT_READY"
        assert await masked.ended(digest) == (State.FAILED, "MESSAGE_INVALID")
        failure = (await federation.party("south").task(digest)).failure
        assert "it came twice, and not the same bytes" in failure.message
        assert "'north'" in failure.hint


async def test_a_message_on_its_way_ends_with_the_study(masked: Masked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "make_chunks", functools.partial(make_chunks, chunk_bytes=64))
    federation = masked.federation
    async with federation.node:
        digest = await masked.aligned(masked_study())
        hello = next(m for m in messages_of(masked.plan(digest)) if (m.sender, m.recipient) == (MINER, "north"))
        while not await masked.listed(digest, "north", set(), wait=1):
            pass
        effective = federation.node.session.record(digest).effective_digest
        request = peer_pb2.GetMaskedRequest(effective_digest=effective, index=hello.index)
        async with contextlib.aclosing(federation.party("north").wire.get_masked(request)) as parts:
            first = await anext(parts)
            assert 64 == len(first.chunk.data) < first.size
            withdrawal = coordinator_pb2.Withdrawal(reason="no more")
            report = coordinator_pb2.ReportRequest(study_digest=digest, withdrawal=withdrawal)
            await federation.party("west").wire.report(report)
            assert await refused(anext(parts)) == "STUDY_WITHDRAWN"


def test_a_file_that_is_taken_away_beside_a_look_has_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "message"
    path.write_bytes(b"12345")
    assert rounds._size(path) == 5
    path.unlink()
    monkeypatch.setattr(Path, "exists", lambda _: True)  # so said a look before
    assert rounds._size(path) == 0


async def test_files_that_are_carried_take_no_part_in_a_masked_study_but_may_deny_it(masked: Masked) -> None:
    study, federation = masked_study(), masked.federation
    digest = await federation.submit(study)
    north = federation.party("north")
    entries = BundleEntries.anew(masked.folder / "carried")
    denial = coordinator_pb2.Denial(reason="not by file")
    for report in (
        coordinator_pb2.ReportRequest(study_digest=digest, approval=north.approval(study)),
        coordinator_pb2.ReportRequest(study_digest=digest, denial=denial),
    ):
        entries.add(carried_pb2.CarriedEntry(report=report))
    session = federation.node.session
    refusals = await replay(InMemoryCoordinator(federation.node.offline, north.identity), entries, session)
    assert [(item.what, item.error.code) for item in refusals] == [("approval", "STUDY_UNSUPPORTED")]
    assert "its tables are masked" in refusals[0].error.message
    assert (await masked.state(digest))[0] is State.DENIED


@dataclasses.dataclass(frozen=True)
class FixedCredentials:
    """A certificate that ends."""

    not_after: dt.datetime

    def current(self) -> FixedCredentials:
        return self


async def test_a_revocation_deletes_what_there_is_of_the_round_and_every_party_gets_that_signed(masked: Masked) -> None:
    federation = masked.federation
    async with federation.node:
        digest = await masked.aligned(masked_study())
        masked.begin(digest)
        for _ in range(3):
            await masked.exchange(digest)
        folder = federation.node.store.study(digest).masked
        while not folder.exists():
            await asyncio.sleep(0.01)
        withdrawal = coordinator_pb2.Withdrawal(reason="no more")
        await federation.party("west").wire.report(
            coordinator_pb2.ReportRequest(study_digest=digest, withdrawal=withdrawal)
        )
        await federation.settled(digest, "columns_removed")
        assert not folder.exists()
        for party in federation.parties:
            task = await party.task(digest)
            said = parse_deletion(task.deletion.body)
            assert (task.state, said.masked, said.artifacts, said.why) == (State.WITHDRAWN, True, {}, "revoked")
        assert await refused(masked.listed(digest, "north", set())) == "STUDY_WITHDRAWN"


@pytest.mark.whole
async def test_opened_tables_stay_for_who_has_not_got_them_though_nothing_is_kept_after_publication(
    masked: Masked,
) -> None:
    federation = masked.federation
    federation.node.close()
    federation.randomized_days = 0
    federation.node = federation.make()
    async with federation.node:
        digest = await masked.aligned(masked_study())
        masked.begin(digest)
        opened = {item.index for item in messages_of(masked.plan(digest)) if item.kind is Kind.OPENED}
        west = masked.rounds["west"]
        missing = west.missing
        west.missing = lambda name: tuple(set(missing(name)) - opened)  # type: ignore[method-assign]
        await masked.run(digest, lambda: all(masked.rounds[name].is_finished for name in ("north", "south")))
        assert await masked.ended(digest) == (State.PUBLISHED, "")
        west.missing = missing  # type: ignore[method-assign]
        await masked.run(digest)
        assert west.read_tables() is not None
        await federation.settled(digest, "columns_removed")


async def test_a_round_does_not_outlive_a_restored_disk(masked: Masked) -> None:
    federation = masked.federation
    async with federation.node:
        digest = await masked.aligned(masked_study())
        while federation.node.rounds.find(digest) is None:
            await asyncio.sleep(0.01)
        folder = federation.node.store.study(digest).masked
    shutil.rmtree(folder)  # a backup of the state has none
    async with federation.restarted():
        assert await masked.ended(digest) == (State.FAILED, "STATE_CORRUPT")
        assert "its round of masked tables is gone" in (await federation.party("north").task(digest)).failure.message


async def test_who_lets_a_round_wait_past_the_deadline_is_named(masked: Masked) -> None:
    federation = masked.federation
    study = masked_study(quorum=QuorumRule(deadline_seconds=3600, minimum=2), masked=MaskedRule(dealer="miner"))
    async with federation.node:
        digest = await masked.submitted(study)
        for name in ("north", "south"):
            await masked.found(digest, name)
        federation.clock.now += dt.timedelta(hours=2)
        federation.node.changes.notify()
        assert await masked.ended(digest) == (State.FAILED, "DEADLINE_PASSED")
        message = (await federation.party("north").task(digest)).failure.message
        assert "party 'west' (linkage)" in message
        assert "a second linkage would tell who is missing from the first" in message

        second = await masked.aligned(dataclasses.replace(study, title="second"))
        masked.rounds.clear()
        masked.begin(second)
        for name in ("north", "south"):
            masked.rounds[name].step()
            [hello, *_] = masked.rounds[name].outgoing(MINER)
            await masked.put(second, name, hello, masked.rounds[name].sealed(hello).path.read_bytes())
        opened = federation.node.rounds.find(second)
        assert opened is not None
        while opened.progress.waiting_for != ("west",):
            await asyncio.sleep(0.01)
        federation.clock.now += dt.timedelta(hours=2)
        federation.node.changes.notify()
        assert await masked.ended(second) == (State.FAILED, "DEADLINE_PASSED")
        assert "party 'west' (messages)" in (await federation.party("north").task(second)).failure.message


class Killed(BaseException):
    """What a killed process does not do any more."""


class Killer:
    """Kills the miner once at every kind of durable step that its part of a round takes: right before it and right after it."""

    def __init__(self, root: Path) -> None:
        self.root, self.seen, self.dead = root, set[tuple[str, ...]](), False

    def __call__(self, step: durable.DurableStep) -> None:
        if not step.path.is_relative_to(self.root):
            return
        if self.dead:
            raise Killed
        place = re.sub(r"[0-9a-f]{16,}|\d+", "N", str(step.path.relative_to(self.root)))
        if "masked" not in place and "tables" not in place and "catalogue" not in place:
            return
        what = (step.kind, step.moment, place)
        if what not in self.seen:
            self.seen.add(what)
            self.dead = True
            raise Killed


@pytest.mark.whole
async def test_a_miner_that_is_killed_at_any_durable_step_opens_the_same_tables(masked: Masked) -> None:
    federation = masked.federation
    study = masked_study(masked=MaskedRule(dealer="miner", count_miner=True))
    async with federation.node:
        digest = await masked.submitted(study)
        for name in PARTIES:
            await masked.found(digest, name)
    kills, over = Killer(federation.directory), False
    with durable.watch_steps(kills):
        while not over:
            kills.dead = False
            try:
                node = federation.node = federation.make()
            except Killed:
                continue
            try:
                await node.__aenter__()
                await masked.live(digest, kills)
            except Killed:
                pass
            tasks = [*node._work, *node.scheduler._jobs.values(), *node.scheduler._driven.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            over, kills.dead = not kills.dead, False
            node.close()
    federation.node = federation.make()
    assert federation.node.session.record(digest).learning is not None
    opened = [node.read_tables() for node in masked.rounds.values()]
    first = opened[0]
    assert first is not None
    counts = np.concatenate([table.ravel() for table in first]).astype("<i8").tobytes()
    for other in opened:
        assert other is not None
        assert np.concatenate([table.ravel() for table in other]).astype("<i8").tobytes() == counts
    noisy = federation.node.store.study(digest).noisy_tables.read_bytes()
    assert noisy.endswith(counts)
    assert len(kills.seen) > 30

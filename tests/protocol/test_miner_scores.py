"""Model I with a learned structure: the miner as a coordinator without data, driven by messages, in memory and over gRPC.

Three parties with two variables each send made-up scores. The best structure is known from brute force over all orders.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS, studies
from support.refusals import fails
from verticil.miner.config import ServiceLimits
from verticil.miner.scheduler.job import Job, ReportProgress, job_from
from verticil.miner.scheduler.learning import Executor, InlineLearning, SpawnedLearning, WorkerDied
from verticil.miner.scheduler.structure_job import StructureJob
from verticil.miner.service.node import MinerNode
from verticil.miner.service.scores import MAX_INFORMATION
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.records import Failure, StoredSignature
from verticil.miner.storage.scores import ScoreTable
from verticil.shared.core.errors import DataFault, Misuse, VerticilError
from verticil.shared.documents.config import Federation
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import certificate_sha256, load_credentials, read_certificates
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.shared.federation.transport.client import Connection, GrpcCoordinator
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.federation.transport.interface import Coordinator, bind
from verticil.shared.federation.transport.server import RpcServer
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study import canonical
from verticil.shared.study.document import (
    GeneticRule,
    ShareRule,
    Study,
)
from verticil.shared.study.peer import scored_pairs
from verticil.shared.study.structure_document import Structure, parse_structure
from verticil.wire.v1 import control_pb2, coordinator_pb2

PARTIES = ("north", "south", "west")
NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
D = 6

# Made-up information in nats, asymmetric in nothing: a chain 0-3-1-4-2-5 and some weaker pairs.
INFORMATION = {
    (0, 3): 0.5,
    (1, 3): 0.4,
    (1, 4): 0.3,
    (2, 4): 0.2,
    (2, 5): 0.1,
    (0, 1): 0.07,
    (3, 5): 0.05,
    (0, 5): 0.02,
}


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    create_authority(folder, "trial", at=NOW)
    for name, role in (("miner", Role.MINER), ("anna", Role.ANALYST), *((party, Role.PARTY) for party in PARTIES)):
        issue(folder, name, role, folder, hosts=["127.0.0.1"] if role is Role.MINER else [], at=NOW)
    return folder


def make_study(*, model: str = "peer", generations: int = 60, expires: dt.date | None = None, **rule: object) -> Study:
    genetic = GeneticRule(population=30, selected=5, generations=generations)
    forbidden = (("north_a", "south_b"),)
    structure = {"max_family_cells": 27, "seed": 1, "forbidden": forbidden, "genetic": genetic, **rule}
    return studies.study_of(
        [Variable(name=f"{p}_{letter}", owner=p, labels=("yes", "no", "unknown")) for p in PARTIES for letter in "ab"],
        epsilon=1.0,
        id="trial",
        model=model,
        expires=expires or (NOW + dt.timedelta(days=30)).date(),
        linkage={"normalise": ("trim",), "minimum_common_records": 10},
        structure=structure,
        release={"seed": 5},
        share=ShareRule() if model == "peer" else None,
    )


def scores_of(study: Study, party: str) -> list[int]:
    return [round(INFORMATION.get(pair, 0.0) * 1e9) for pair in scored_pairs(study, party)]


def request(
    study: Study, party: str, *, wait: int = 0, scores: list[int] | None = None
) -> coordinator_pb2.PutScoresRequest:
    return coordinator_pb2.PutScoresRequest(
        effective=canonical.to_bytes(study),
        information=scores_of(study, party) if scores is None else scores,
        wait_seconds=wait,
    )


def best_fitness(study: Study) -> float:
    """The largest total weight of any network within the limits, over all orders: each child takes its best predecessors."""
    names = study.schema.names
    forbidden = {(names.index(a), names.index(b)) for a, b in study.structure.forbidden}

    def weight(parent: int, child: int) -> float:
        pair = (min(parent, child), max(parent, child))
        return 0.0 if (parent, child) in forbidden else INFORMATION.get(pair, 0.0)

    def total(order: tuple[int, ...]) -> float:
        return sum(
            sum(sorted((weight(p, child) for p in order[:place]), reverse=True)[: study.structure.max_parents])
            for place, child in enumerate(order)
        )

    return max(total(order) for order in itertools.permutations(range(D)))


class Trial:
    """A miner on a folder; `reopened` is a crash and a restart."""

    def __init__(self, directory: Path, pki: Path) -> None:
        self.directory, self.pki, self.now = directory, pki, NOW
        self.executor: Executor = InlineLearning(clock=lambda: self.now)
        self.authority = (pki / "ca.crt").read_bytes()
        self.node = self.make()

    def make(self) -> MinerNode:
        return MinerNode(
            self.directory,
            identity=Identity(federation="trial", role=Role.MINER, name="miner"),
            authority=self.authority,
            signer=SigningKey.load(self.pki / "miner.sign", self.pki / "miner.crt"),
            executor=self.executor,
            limits=ServiceLimits(disk_reserve_bytes=0),
            randomized_days=30,
            clock=lambda: self.now,
        )

    def reopen(self, executor: Executor | None = None) -> MinerNode:
        self.node.close()
        self.executor = executor or self.executor
        self.node = self.make()
        return self.node

    def wire(self, name: str) -> InMemoryCoordinator:
        return InMemoryCoordinator(self.node.coordinator, Identity(federation="trial", role=Role.PARTY, name=name))

    async def put(self, study: Study, party: str, *, wait: int = 0) -> coordinator_pb2.PutScoresReply:
        return await self.wire(party).put_scores(request(study, party, wait=wait))

    def structure(self, study: Study, reply: coordinator_pb2.PutScoresReply) -> Structure:
        """The structure of a reply, verified as a party does."""
        assert not reply.waiting_for
        assert not reply.HasField("failure")
        assert verify_signed(reply.structure, self.authority, role=Role.MINER).name == "miner"
        return parse_structure(reply.structure.body, study, canonical.digest(study))


@pytest.fixture
def trial(tmp_path: Path, pki: Path) -> Iterator[Trial]:
    made = Trial(tmp_path / "state", pki)
    yield made
    made.node.close()


# --- from scores to a structure -------------------------------------------------------------------------------------------------


async def test_when_all_scores_are_there_everybody_gets_the_same_signed_structure(trial: Trial) -> None:
    study = make_study()
    async with trial.node:
        assert list((await trial.put(study, "south")).waiting_for) == ["north", "west"]
        assert list((await trial.put(study, "north")).waiting_for) == ["west"]
        waiting = [asyncio.create_task(trial.put(study, party, wait=60)) for party in ("north", "south")]
        replies = [
            await trial.put(study, "west", wait=60),
            *await asyncio.gather(*waiting),
            await trial.put(study, "north"),
        ]
    assert len({reply.SerializeToString() for reply in replies}) == 1
    structure = trial.structure(study, replies[0])
    search = structure.search
    assert set(search) == {"method", "score", "seed", "generations", "fitness", "dropped_edges"}
    assert (search["method"], search["score"], search["seed"]) == ("genetic", "mutual-information", 1)
    assert search["fitness"] == pytest.approx(best_fitness(study), abs=1e-9)
    assert (0, 3) not in structure.dag.edges()  # forbidden in this direction only
    assert (3, 0) in structure.dag.edges()


async def test_the_miner_holds_scores_and_nothing_else_of_such_a_study(trial: Trial) -> None:
    study = make_study()
    async with trial.node:
        before = sorted(path.name for path in trial.directory.rglob("*"))
        for party in PARTIES:
            reply = await trial.put(study, party, wait=60 if party == "west" else 0)
        trial.structure(study, reply)
        assert sorted(path.name for path in trial.directory.rglob("*")) == before
        assert trial.node.catalogue.digests() == ()
        assert (await trial.wire("north").poll(coordinator_pb2.PollRequest())).tasks == []


async def test_limits_of_the_study_are_kept(trial: Trial) -> None:
    study = make_study(max_parents=1, forbidden=(("north_a", "south_b"), ("south_b", "north_a")))
    async with trial.node:
        for party in PARTIES:
            reply = await trial.put(study, party, wait=60 if party == "west" else 0)
    structure = trial.structure(study, reply)
    assert max(len(parents) for parents in structure.dag.parents) == 1
    assert structure.search["fitness"] == pytest.approx(best_fitness(study), abs=1e-9)
    assert not {(0, 3), (3, 0)} & set(structure.dag.edges())


async def test_over_grpc_it_answers_alike(trial: Trial) -> None:
    study = make_study()
    ca = trial.pki / "ca.crt"
    federation = Federation(
        name="trial",
        ca_certificate=ca,
        ca_sha256=certificate_sha256(read_certificates(ca)[0]),
        endpoint=None,
        idle_timeout_seconds=PATIENCE_SECONDS,
        chunk_bytes=1024,
    )

    def credentials(name: str):
        return load_credentials(trial.pki / f"{name}.crt", trial.pki / f"{name}.key", federation)

    server = RpcServer("127.0.0.1:0", credentials("miner"), [bind(Coordinator, trial.node.coordinator)])
    async with trial.node, contextlib.AsyncExitStack() as stack:
        port = await server.start()
        stack.push_async_callback(server.stop, grace_seconds=1)
        wires: dict[str, Coordinator] = {}
        for party in PARTIES:
            wires[party] = GrpcCoordinator(Connection(f"127.0.0.1:{port}", credentials(party)))
            stack.push_async_callback(wires[party].close)
        assert list((await wires["north"].put_scores(request(study, "north"))).waiting_for) == ["south", "west"]
        replies = await asyncio.gather(*(wires[p].put_scores(request(study, p, wait=30)) for p in PARTIES))
        analyst = GrpcCoordinator(Connection(f"127.0.0.1:{port}", credentials("anna")))
        stack.push_async_callback(analyst.close)
        with fails("IDENTITY_REFUSED", "PutScores", "expected role party"):
            await analyst.put_scores(request(study, "north"))
        with fails("STUDY_MISMATCH"):
            await wires["west"].put_scores(request(study, "west", scores=[7]))
        assert {reply.structure.body for reply in replies} == {(await trial.put(study, "west")).structure.body}
    trial.structure(study, replies[0])


@pytest.mark.whole
async def test_a_process_of_its_own_finds_the_same_as_a_thread(tmp_path: Path) -> None:
    study = make_study()
    job = StructureJob(
        effective=canonical.to_bytes(study), scores={party: tuple(scores_of(study, party)) for party in PARTIES}
    )
    assert job_from(encode(job)) == job
    stages: list[tuple[str, int]] = []
    spawned = await SpawnedLearning(tmp_path / "cache").run(job, lambda stage, percent: stages.append((stage, percent)))
    assert spawned == await InlineLearning(clock=lambda: NOW).run(job, lambda _stage, _percent: None)
    assert {stage for stage, _ in stages} == {"searching"}
    greedy = make_study(method="greedy")
    bad = dataclasses.replace(job, effective=canonical.to_bytes(greedy))
    with pytest.raises(VerticilError, match="'greedy' needs tables of whole families"):
        await InlineLearning(clock=lambda: NOW).run(bad, lambda _stage, _percent: None)


# --- what is refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "party", "scores", "code", "text"),
    [
        (make_study(model="central"), "north", None, "MESSAGE_INVALID", "has model 'central'"),
        (
            make_study(method="given", forbidden=(), parents=tuple((n, ()) for n in make_study().schema.names)),
            "north",
            None,
            "MESSAGE_INVALID",
            "structure.method 'given'",
        ),
        (make_study(), "east", [1], "PARTY_UNKNOWN", "party 'east' is not in it"),
        (make_study(), "north", [1] * 8, "MESSAGE_INVALID", "8 numbers, expected 9"),
        (make_study(), "west", [1, 2], "MESSAGE_INVALID", "2 numbers, expected 1"),
        (make_study(), "west", [], "MESSAGE_INVALID", "0 numbers, expected 1"),
        (make_study(), "west", [MAX_INFORMATION + 1], "MESSAGE_INVALID", "larger than 20000000000"),
        (make_study(), "west", [2**64 - 1], "MESSAGE_INVALID", "larger than"),
        (make_study(expires=NOW.date() - dt.timedelta(days=1)), "west", None, "STUDY_EXPIRED", "last valid day"),
    ],
)
async def test_what_is_not_scores_of_a_study_between_peers_is_refused(
    trial: Trial, study: Study, party: str, scores: list[int] | None, code: str, text: str
) -> None:
    async with trial.node:
        with fails(code, text):
            await trial.wire(party).put_scores(request(study, party, scores=scores))
        assert trial.node.catalogue.scores.study(canonical.digest(study)) is None


async def test_what_is_not_a_study_in_canonical_form_is_refused(trial: Trial) -> None:
    good = canonical.to_bytes(make_study())
    async with trial.node:
        for bad in (b"", b"{}", good + b" ", good[:-1], bytes(2**21 + 1)):
            with fails("MESSAGE_INVALID", "effective study"):
                await trial.wire("north").put_scores(coordinator_pb2.PutScoresRequest(effective=bad))


async def test_a_party_cannot_take_its_scores_back(trial: Trial) -> None:
    study = make_study()
    async with trial.node:
        await trial.put(study, "west")
        for scores in ([5], [6]):
            with fails("STUDY_MISMATCH", "scores of party 'west'", "not those that it sent before"):
                await trial.wire("west").put_scores(request(study, "west", scores=scores))
        assert list((await trial.put(study, "west")).waiting_for) == ["north", "south"]
        await trial.put(study, "north")
        trial.structure(study, await trial.put(study, "south", wait=60))
        with fails("STUDY_MISMATCH"):
            await trial.wire("west").put_scores(request(study, "west", scores=[5]))


async def test_a_study_between_peers_is_not_submitted(trial: Trial) -> None:
    control = InMemoryControl(trial.node.control, Identity(federation="trial", role=Role.ANALYST, name="anna"))
    async with trial.node:
        with fails("STUDY_UNSUPPORTED", "no miner carries it out", "verticil party load"):
            await control.submit_study(control_pb2.SubmitStudyRequest(proposal=canonical.to_bytes(make_study())))
        assert trial.node.catalogue.digests() == ()


# --- crashes, failures, ends ----------------------------------------------------------------------------------------------------


async def test_a_restart_after_every_step_leads_to_the_same_structure(trial: Trial) -> None:
    study = make_study()
    for party in PARTIES:
        await trial.put(study, party)  # no search runs in a node that was never entered
        trial.reopen()
    async with trial.node:  # now it does, though nobody asks
        reply = await trial.put(study, "north", wait=60)
    async with trial.reopen():
        again = await trial.put(study, "south")
    assert again == reply
    job = StructureJob(
        effective=canonical.to_bytes(study), scores={party: tuple(scores_of(study, party)) for party in PARTIES}
    )
    undisturbed = await InlineLearning(clock=lambda: NOW).run(job, lambda _stage, _percent: None)
    assert trial.structure(study, reply).body == undisturbed


class Scripted:
    """An executor that does what a list says, one item a search; then it searches in a thread."""

    def __init__(self, *script: Exception | asyncio.Event) -> None:
        self.script = list(script)
        self.begun = 0

    async def run(self, job: Job, progress: ReportProgress) -> bytes:
        self.begun += 1
        if self.script:
            item = self.script.pop(0)
            if isinstance(item, Exception):
                raise item
            item.set()
            await asyncio.Event().wait()
        return await InlineLearning(clock=lambda: NOW).run(job, progress)


async def test_leaving_while_a_search_runs_stops_it_and_the_next_start_begins_anew(trial: Trial) -> None:
    study, begun = make_study(), asyncio.Event()
    async with trial.reopen(Scripted(begun)):
        for party in PARTIES:
            await trial.put(study, party)
        asked = asyncio.create_task(trial.put(study, "north", wait=60))
        await begun.wait()
        assert not asked.done()
        trial.node.changes.close()  # as the daemon does when it is to stop
        assert not (await asked).HasField("structure")
    async with trial.reopen(Scripted()):
        trial.structure(study, await trial.put(study, "north", wait=60))


async def test_an_endless_search_does_not_keep_the_miner_from_answering_or_ending(trial: Trial) -> None:
    endless = GeneticRule(population=10_000, selected=10, generations=1_000_000)
    study, other = make_study(genetic=endless), make_study()
    async with asyncio.timeout(None) as patience, trial.node:
        for party in PARTIES:
            await trial.put(study, party)
        for party in PARTIES:
            reply = await trial.put(other, party, wait=60 if party == "west" else 0)
        trial.structure(other, reply)
        assert not (await trial.put(study, "north")).HasField("structure")
        patience.reschedule(asyncio.get_running_loop().time() + PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        ([Misuse("STUDY_UNSUPPORTED", "not this one", hint="another")], "STUDY_UNSUPPORTED", "not this one"),
        ([WorkerDied(-9)] * 3, "LEARNING_FAILED", "ended 3 times without a result, last with status -9"),
        ([ValueError("canary-7f3a")], "LEARNING_FAILED", "ended with ValueError"),
    ],
)
async def test_a_search_that_fails_is_told_to_everybody_for_ever(
    trial: Trial, script: list[Exception], code: str, text: str
) -> None:
    study, executor = make_study(), Scripted(*script)
    async with trial.reopen(executor):
        for party in PARTIES:
            reply = await trial.put(study, party, wait=60 if party == "west" else 0)
        assert (reply.failure.code, reply.HasField("structure"), list(reply.waiting_for)) == (code, False, [])
        assert text in reply.failure.message
        assert "canary" not in str(reply)
        assert await trial.put(study, "north") == reply
    async with trial.reopen(executor):
        assert await trial.put(study, "south", wait=60) == reply
    assert executor.begun == len(script)


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_process_that_dies_is_tried_again(trial: Trial, deaths: int) -> None:
    study = make_study()
    async with trial.reopen(Scripted(*[WorkerDied(-9)] * deaths)):
        for party in PARTIES:
            reply = await trial.put(study, party, wait=60 if party == "west" else 0)
        trial.structure(study, reply)


async def test_a_full_disk_is_waited_for(trial: Trial) -> None:
    study = make_study()
    executor = Scripted(DataFault("DISK_FULL", "no space"))
    async with trial.reopen(executor):
        for party in PARTIES:
            await trial.put(study, party)
        asked = asyncio.create_task(trial.put(study, "west", wait=60))
        while not asked.done():
            trial.node.changes.notify()  # the loop looks at every change, and now and then without one
            await asyncio.to_thread(lambda: None)
        trial.structure(study, asked.result())
    assert executor.begun == 2


async def test_a_study_is_forgotten_after_its_last_day(trial: Trial) -> None:
    study = make_study(expires=NOW.date())
    table = trial.node.catalogue.scores
    async with trial.node:
        for party in PARTIES:
            reply = await trial.put(study, party, wait=60 if party == "west" else 0)
        trial.structure(study, reply)
        other = make_study(seed=2, expires=NOW.date())
        asked = asyncio.create_task(trial.put(other, "north", wait=60))
        while table.study(canonical.digest(other)) is None:
            await asyncio.to_thread(lambda: None)
        trial.now += dt.timedelta(days=1)
        while not asked.done():  # a waiting party is told
            trial.node.changes.notify()
            await asyncio.to_thread(lambda: None)
        with fails("STUDY_EXPIRED"):
            asked.result()
        with fails("STUDY_EXPIRED"):
            await trial.put(study, "north")
        while table.study(canonical.digest(study)) is not None:  # the miner's own look forgets it
            trial.node.changes.notify()
            await asyncio.to_thread(lambda: None)
        assert table.scores(canonical.digest(study)) == {}


# --- the table ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    made = Catalogue(tmp_path / "catalogue.sqlite")
    yield made
    made.close()


def test_nobody_can_fill_the_table_and_what_is_there_stays(catalogue: Catalogue) -> None:
    table = ScoreTable(catalogue.database, max_studies=5, max_studies_of_one=3)

    def put(number: int, party: str) -> bool:
        return table.put(bytes([number]) * 32, b"{}", expires=NOW.date(), party=party, scores=[number])

    assert [put(number, "north") for number in range(3)] == [True] * 3
    with fails("RESOURCE_EXHAUSTED", "3, 3 of them brought by 'north'"):
        put(3, "north")
    assert put(3, "south")
    assert put(4, "south")
    assert put(4, "north")  # another's study
    assert not put(0, "north")
    with fails("RESOURCE_EXHAUSTED", "expected fewer than 5"):
        put(5, "west")
    table.forget_expired(NOW.date() + dt.timedelta(days=1))
    assert put(5, "west")


def test_the_first_end_stays(catalogue: Catalogue) -> None:
    table = catalogue.scores
    signed = [StoredSignature(body=b, signature=b"s", certificate=b"c") for b in (b"first", b"second")]
    failures = [Failure(code="INTERNAL", message=m, hint="") for m in ("first", "second")]
    ends: Mapping[bytes, tuple[Callable[[bytes], None], ...]] = {
        b"a" * 32: (lambda d: table.finish(d, signed[0]), lambda d: table.finish(d, signed[1])),
        b"b" * 32: (lambda d: table.fail(d, failures[0]), lambda d: table.finish(d, signed[1])),
        b"c" * 32: (lambda d: table.finish(d, signed[0]), lambda d: table.fail(d, failures[1])),
    }
    for digest, both in ends.items():
        table.put(digest, b"{}", expires=NOW.date(), party="north", scores=[1])
        assert table.unfinished() == (digest,)
        for end in both:
            end(digest)
        known = table.study(digest)
        assert known is not None
        first = known.structure.body if known.structure else known.failure.message.encode() if known.failure else b""
        assert (first, known.structure is None or known.failure is None) == (b"first", True)
    assert table.unfinished() == ()

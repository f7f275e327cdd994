"""The miner's daemon on a loopback port with mutual TLS, and its learning process on its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS, miner_daemon, studies
from support.miner_daemon import NOW, Daemon, connection
from verticil.miner.config import ServiceLimits, load_miner
from verticil.miner.daemon import run_miner
from verticil.miner.scheduler import learning
from verticil.miner.scheduler.job import LearningJob, job_from
from verticil.miner.scheduler.learning import SpawnedLearning, WorkerDied
from verticil.miner.scheduler.structure_job import StructureJob
from verticil.miner.service.coordinator import Coordinator
from verticil.miner.service.metrics import miner_gauges
from verticil.miner.service.node import MinerNode
from verticil.miner.storage.audit import MinerAudit
from verticil.miner.storage.records import StoredSignature
from verticil.shared.core.errors import DataFault, PeerFault, VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.client import GrpcControl, GrpcCoordinator
from verticil.shared.federation.transport.health import check_health
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study import canonical
from verticil.shared.study.document import (
    GeneticRule,
    ShareRule,
    Study,
)
from verticil.shared.study.peer import scored_pairs
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

folder = miner_daemon.folder


def searched_study(*, population: int, generations: int) -> Study:
    """A study between two peers whose structure takes as long as is wanted."""
    genetic = GeneticRule(population=population, selected=10, generations=generations)
    return studies.study_of(
        [Variable(name=f"v{i}", owner=("north", "south")[i % 2], labels=("x", "y")) for i in range(12)],
        epsilon=3.0,
        id="long",
        model="peer",
        structure={"max_parents": 3, "max_family_cells": 1000, "seed": 1, "genetic": genetic},
        release={"seed": 5},
        share=ShareRule(),
    )


async def test_feature_07_it_serves_each_role_its_own_writes_down_whom_it_refused_and_ends_in_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polled, poll = asyncio.Event(), Coordinator.Poll

    async def seen(
        self: Coordinator, identity: Identity, request: coordinator_pb2.PollRequest
    ) -> coordinator_pb2.PollReply:
        polled.set()
        return await poll(self, identity, request)

    monkeypatch.setattr(Coordinator, "Poll", seen)
    async with Daemon(load_miner(folder / "miner.toml")) as port:
        analyst, party = connection(folder, "anna", port), connection(folder, "north", port)
        await check_health(analyst)
        assert not (await GrpcControl(analyst).list_studies(control_pb2.ListStudiesRequest())).studies
        hello = await GrpcCoordinator(party).hello(common_pb2.HelloRequest(protocol_version=2))
        assert hello.federation == "trial"
        for call in (
            GrpcControl(party).list_studies(control_pb2.ListStudiesRequest()),
            GrpcCoordinator(analyst).poll(coordinator_pb2.PollRequest()),
        ):
            with pytest.raises(PeerFault) as caught:
                await call
            assert caught.value.code == "IDENTITY_REFUSED"
        # a party that waits in a poll is answered when the daemon stops, not cut off after the grace
        assert not polled.is_set()
        waiting = asyncio.create_task(GrpcCoordinator(party).poll(coordinator_pb2.PollRequest(wait_seconds=60)))
        await polled.wait()
    assert not (await waiting).tasks
    log = MinerAudit(folder / "state")
    assert log.verify().n_lines == 3
    shown, *refused = log.entries()
    assert (shown.text("event"), shown.text("who")) == ("certificate", "daemon")
    assert sorted((line.text("who"), line.text("detail").partition(",")[0]) for line in refused) == [
        ("verticil://trial/analyst/anna", "IDENTITY_REFUSED Coordinator/Poll"),
        ("verticil://trial/party/north", "IDENTITY_REFUSED Control/ListStudies"),
    ]
    await analyst.close()
    await party.close()


@pytest.mark.whole
async def test_it_answers_while_searches_take_all_processors(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two searches that never end: an event loop that waited for either would never answer."""
    monkeypatch.setattr(learning, "_STOP_SECONDS", PATIENCE_SECONDS)  # they end by themselves, however slow the machine
    executor = SpawnedLearning(tmp_path / "cache", processes=2)
    study = searched_study(population=10_000, generations=1_000_000)
    searching = [asyncio.Event(), asyncio.Event()]
    jobs = [
        asyncio.create_task(
            executor.run(
                StructureJob(
                    effective=canonical.to_bytes(study),
                    scores={party: [10**8] * len(scored_pairs(study, party)) for party in study.parties},
                    checkpoint=tmp_path / str(number),
                    checkpoint_seconds=0.5,
                ),
                lambda _stage, _percent, begun=begun: begun.set(),
            )
        )
        for number, begun in enumerate(searching)
    ]
    async with Daemon(load_miner(folder / "miner.toml")) as port:
        probe = connection(folder, "north", port)
        await check_health(probe)
        both = asyncio.gather(*(begun.wait() for begun in searching))
        await asyncio.wait([both, *jobs], return_when=asyncio.FIRST_COMPLETED)
        assert not any(job.done() for job in jobs)
        for _ in range(20):
            await check_health(probe)
        await probe.close()
    assert not any(job.done() for job in jobs)
    for job in jobs:
        job.cancel()
    ended = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(one) for one in ended] == [asyncio.CancelledError] * 2
    assert (tmp_path / "0").stat().st_size > 0  # stopped, each has left its checkpoint
    assert (tmp_path / "1").stat().st_size > 0


async def test_a_second_daemon_on_the_same_state_is_refused(folder: Path) -> None:
    config = load_miner(folder / "miner.toml")
    async with Daemon(config):
        with pytest.raises(DataFault) as caught:
            await run_miner(config, stop=asyncio.Event())
        assert caught.value.code == "STATE_LOCKED"
    async with Daemon(config):
        pass


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("pki/miner.crt", "pki/north.crt", "IDENTITY_REFUSED"),
        ("pki/miner.crt", "pki/absent.crt", "FILE_MISSING"),
        ("pki/miner.key", "pki/north.key", "CERTIFICATE_INVALID"),
        ("pki/miner.sign", "pki/absent.sign", "SECRET_MISSING"),
        ("pki/miner.sign", "pki/north.sign", "CERTIFICATE_INVALID"),
        ('name = "miner"', 'name = "other"', "IDENTITY_REFUSED"),
    ],
)
async def test_it_does_not_start_with_what_is_not_its_own(folder: Path, old: str, new: str, code: str) -> None:
    text = (folder / "miner.toml").read_text()
    (folder / "wrong.toml").write_text(
        text.replace(f'"{old}"' if "=" not in old else old, f'"{new}"' if "=" not in new else new)
    )
    with pytest.raises(VerticilError) as caught:
        await run_miner(load_miner(folder / "wrong.toml"), stop=asyncio.Event())
    assert caught.value.code == code


def job(folder: Path) -> LearningJob:
    return LearningJob(
        proposal_digest=bytes(32),
        effective=b'{"not": "a study \xc3\xa9"}',
        n_common=3,
        columns=(),
        receipts=(StoredSignature(body=b"1", signature=b"\xff", certificate=b"\x00"),),
        target=folder / "release",
        started_at=NOW,
        simulation=True,
    )


def test_a_job_survives_its_way_to_the_process(tmp_path: Path) -> None:
    assert job_from(encode(job(tmp_path))) == job(tmp_path)
    assert b"\n" not in encode(job(tmp_path))


@pytest.mark.whole
async def test_what_the_process_reports_is_raised(tmp_path: Path) -> None:
    with pytest.raises(VerticilError) as caught:
        await SpawnedLearning(tmp_path / "cache").run(job(tmp_path), lambda _stage, _percent: None)
    assert caught.value.code == "STUDY_INVALID"


async def test_a_process_that_cannot_be_started_at_all_has_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WorkerDied) as caught:
        await SpawnedLearning(tmp_path / "cache").run(job(tmp_path), lambda _stage, _percent: None)
    assert caught.value.status == 1


async def test_feature_35_the_page_tells_how_much_memory_the_relay_takes_and_may_take(
    tmp_path: Path, folder: Path
) -> None:
    config = load_miner(folder / "miner.toml")
    credentials = load_credentials(config.certificate, config.key, config.federation)
    node = MinerNode(
        tmp_path,
        identity=credentials.identity,
        authority=credentials.ca_pem,
        signer=SigningKey.load(config.signing_key, config.certificate),
        executor=SpawnedLearning(tmp_path / "cache", processes=1, memory_bytes=1 << 30),
        limits=ServiceLimits(max_relay_bytes=1 << 20),
        randomized_days=1,
    )
    async with node:
        await node.relay.take("south", coordinator_pb2.TakeRelayRequest())
        node.relay.put("north", "south", b"sealed")
        found = {
            g.name: g.values
            for g in miner_gauges(
                node.session,
                node.leases,
                node.relay,
                tmp_path,
                credentials,
                rounds=node.rounds,
                detail=node.scheduler.detail,
            )
        }
    assert (found["relay_bytes"], found["relay_bytes_limit"]) == ({(): 6.0 + 256}, {(): float(1 << 20)})

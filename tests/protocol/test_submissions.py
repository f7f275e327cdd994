"""Whose a study is at the miner: limits of each analyst, ids of their own, and the operator who closes one.

The miner is that of `test_miner_service`, driven by messages; the operator's command reaches a real daemon.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support import miner_daemon as daemons
from support import miner_service as service
from verticil.analyst.federation import Connection, find_study
from verticil.cli.main import main
from verticil.miner.airgap import local_control
from verticil.miner.config import ServiceLimits, load_miner
from verticil.miner.storage.audit import MinerAudit
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.transport.client import GrpcControl, GrpcCoordinator
from verticil.shared.study import canonical
from verticil.shared.study.states import State
from verticil.wire.v1 import control_pb2, coordinator_pb2

keys, make_study, PARTIES, NOW = service.keys, service.make_study, service.PARTIES, service.NOW
folder = daemons.folder


@pytest.fixture
def federation(tmp_path: Path, keys: Any) -> Iterator[Any]:
    made = service.Federation(tmp_path / "state", keys)
    yield made
    made.node.close()


def limited(federation: Any, **limits: int) -> None:
    """The same state directory under other limits: what a restart with another miner.toml does."""
    federation.node.close()
    federation.limits = ServiceLimits(disk_reserve_bytes=0, **limits)
    federation.node = federation.make()


async def named(federation: Any, name: str, analyst: str = "anna", role: Role = Role.ANALYST) -> bytes:
    found = await federation.control(analyst, role).get_study(control_pb2.GetStudyRequest(study_id=name))
    return found.study.study_digest


async def test_an_analyst_has_a_limit_of_open_studies_that_a_restart_does_not_lift(federation: Any) -> None:
    limited(federation, max_open_studies_per_analyst=2)
    first = await federation.submit(make_study(study_id="s1"))
    await federation.submit(make_study(study_id="s2"))
    for again in range(2):
        with pytest.raises(PeerFault, match="2 studies are open, expected at most 2") as caught:
            await federation.submit(make_study(study_id="s3"))
        assert caught.value.code == "RESOURCE_EXHAUSTED"
        assert "verticil study cancel" in caught.value.hint
        if not again:
            federation.node.close()
            federation.node = federation.make()
    assert await federation.submit(make_study(study_id="s1")) == first  # the same proposal is no other study
    await federation.submit(make_study(study_id="s3", minimum=20), "mia")  # another analyst has room of their own
    await federation.control().cancel_study(control_pb2.CancelStudyRequest(study_digest=first))
    await federation.submit(make_study(study_id="s3"))
    assert len(federation.node.catalogue.digests()) == 4


async def test_an_analyst_has_a_limit_of_submissions_a_day_whatever_became_of_them(federation: Any) -> None:
    limited(federation, max_daily_studies_per_analyst=3)
    for number in range(3):
        digest = await federation.submit(make_study(study_id=f"s{number}"))
        await federation.control().cancel_study(control_pb2.CancelStudyRequest(study_digest=digest))
        assert await federation.submit(make_study(study_id=f"s{number}")) == digest
    for passed in (dt.timedelta(), dt.timedelta(hours=23, minutes=59)):
        federation.clock.now = NOW + passed
        with pytest.raises(PeerFault, match="3 studies were submitted within 24 hours") as caught:
            await federation.submit(make_study(study_id="s3"))
        assert caught.value.code == "RESOURCE_EXHAUSTED"
    federation.clock.now = NOW + dt.timedelta(days=1)
    await federation.submit(make_study(study_id="s3"))


async def test_without_a_word_in_miner_toml_there_are_limits(federation: Any) -> None:
    outcomes = [await service.refused(federation.submit(make_study(study_id=f"s{number}"))) for number in range(22)]
    assert outcomes == ["accepted"] * 20 + ["RESOURCE_EXHAUSTED"] * 2


async def test_an_id_cannot_be_squatted_and_a_name_of_several_studies_is_refused_with_the_candidates(
    federation: Any,
) -> None:
    hers = await federation.submit(dataclasses.replace(make_study(study_id="hearts"), title="Mia's"), "mia")
    his = await federation.submit(make_study(study_id="hearts"), "lee")
    with pytest.raises(Misuse) as caught:
        await federation.submit(dataclasses.replace(make_study(study_id="hearts"), title="Lee's second"), "lee")
    assert caught.value.code == "STUDY_EXISTS"
    assert await named(federation, "hearts", "lee") == await named(federation, "lee/hearts", "mia") == his
    assert await named(federation, "hearts", "mia") == await named(federation, hers.hex()[:16], "lee") == hers
    with pytest.raises(Misuse, match="2 studies have this name") as caught:
        await named(federation, "hearts", "ann")
    assert caught.value.code == "STUDY_UNKNOWN"
    assert all(
        f"{who}/hearts {digest.hex()[:16]}" in caught.value.hint for who, digest in (("lee", his), ("mia", hers))
    )
    for name in ("ann/hearts", "lungs", "lee/lungs", hers.hex()[:7], "/hearts"):
        with pytest.raises(Misuse, match="no study with this id"):
            await named(federation, name, "lee")
    with pytest.raises(Misuse, match="no study with this id"):  # a consumer is told of published ones only
        await named(federation, "hearts", "eve", Role.CONSUMER)
    tasks = {task.study_digest: task.submitter for task in (await federation.party("north").poll()).tasks}
    assert tasks == {hers: "mia", his: "lee"}


async def test_a_partys_command_finds_a_study_by_the_analysts_name_and_with_an_older_miner_by_the_id_alone(
    federation: Any,
) -> None:
    hers = await federation.submit(dataclasses.replace(make_study(study_id="hearts"), title="Mia's"), "mia")
    his = await federation.submit(make_study(study_id="hearts"), "lee")
    north = federation.party("north")
    connection = Connection(identity=north.identity, control=None, coordinator=north.wire)
    assert await find_study(connection, "lee/hearts") == his
    assert await find_study(connection, hers.hex()) == hers
    with pytest.raises(Misuse, match="2 studies have this name"):
        await find_study(connection, "hearts")
    with pytest.raises(Misuse, match="no study 'eve/hearts' with this party"):
        await find_study(connection, "eve/hearts")
    tasks = (await north.poll()).tasks
    for task in tasks:
        task.ClearField("submitter")

    class Older:
        async def poll(self, request: object) -> coordinator_pb2.PollReply:
            del request
            return coordinator_pb2.PollReply(tasks=tasks)

    older = Connection(identity=north.identity, control=None, coordinator=Older())  # type: ignore[arg-type]
    assert await find_study(older, "hearts") == his  # the newest, as ever


async def test_an_analyst_who_uses_an_id_again_finds_the_newest(federation: Any) -> None:
    old = await federation.submit(make_study(study_id="hearts"), "lee")
    await federation.control("lee").cancel_study(control_pb2.CancelStudyRequest(study_digest=old))
    new = await federation.submit(dataclasses.replace(make_study(study_id="hearts"), title="again"), "lee")
    for caller in ("lee", "mia"):
        assert await named(federation, "hearts", caller) == await named(federation, "lee/hearts", caller) == new
    assert await named(federation, old.hex(), "lee") == old


async def test_what_the_operator_closes_ends_for_everybody_with_the_reason_and_its_columns_go(federation: Any) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)
        await federation.party("north").upload(digest, 0)
        held = federation.node.store.study(digest).root / "columns"
        assert list(held.iterdir())
        federation.node.submissions.close(digest, "not agreed with us")
        federation.node.changes.notify()
        task = await federation.party("south").until(digest, lambda task: task.state == State.WITHDRAWN)
        said = (task.failure.code, task.failure.message)
        assert said == ("STUDY_WITHDRAWN", "closed by the miner's operator: not agreed with us")
        summary = await federation.summary(digest)
        assert (summary.state, summary.failure.code, summary.failure.message) == (State.WITHDRAWN, *said)
        assert await service.refused(federation.party("north").upload(digest, 1)) == "STUDY_WITHDRAWN"
        task = await federation.party("north").until(digest, lambda task: task.HasField("deletion"))
        assert json.loads(task.deletion.body)["why"] == "ended"
    assert not held.exists()
    async with federation.restarted():
        assert (await federation.summary(digest)).failure.message == said[1]
        with pytest.raises(Misuse) as caught:
            federation.node.submissions.close(digest, "again")
        assert caught.value.code == "STUDY_OVER"
        for reason in ("", "two\nlines", "x" * 501):
            with pytest.raises(Misuse, match="the reason"):
                federation.node.submissions.close(digest, reason)


async def test_a_published_study_cannot_be_closed(federation: Any) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.publish(study)
        with pytest.raises(Misuse, match=r"over already \(published\)") as caught:
            federation.node.submissions.close(digest, "too late")
        assert caught.value.code == "STUDY_OVER"
        assert (await federation.summary(digest)).state == State.PUBLISHED


@pytest.mark.parametrize("runs", [True, False])
async def test_the_operator_closes_a_study_by_a_command_beside_the_daemon_or_without_one(
    folder: Path, runs: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_control, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    miner_toml, study_id = folder / "miner.toml", f"closed-{str(runs).lower()}"
    study = dataclasses.replace(make_study(study_id=study_id), expires=dt.date(2099, 1, 1))
    command = ["miner", "close", f"anna/{study_id}", "--reason", "not agreed", "--config", str(miner_toml)]
    command += ["--format", "json"]

    async def submitted(port: int) -> bytes:
        line = daemons.connection(folder, "anna", port)
        reply = await GrpcControl(line).submit_study(control_pb2.SubmitStudyRequest(proposal=canonical.to_bytes(study)))
        await line.close()
        return reply.study_digest

    async def closed() -> int:
        return await asyncio.to_thread(main, command)

    async with daemons.Daemon(load_miner(miner_toml)) as port:
        digest = await submitted(port)
        if runs:
            assert await closed() == 0
    if not runs:
        assert await closed() == 0
    assert json.loads(capsys.readouterr().out)["digest"] == digest.hex()
    assert await closed() == 2  # STUDY_OVER
    assert "STUDY_OVER" in capsys.readouterr().out
    async with daemons.Daemon(load_miner(miner_toml)) as port:
        line = daemons.connection(folder, "north", port)
        tasks = (await GrpcCoordinator(line).poll(coordinator_pb2.PollRequest())).tasks
        await line.close()
    task = next(task for task in tasks if task.study_digest == digest)
    assert (task.submitter, task.failure.code) == ("anna", "STUDY_WITHDRAWN")
    assert task.failure.message == "closed by the miner's operator: not agreed"
    log = MinerAudit(folder / "state")
    lines = [line for line in log.entries() if digest.hex() in line.text("detail")]
    assert log.verify().n_lines >= 1
    assert [(line.text("event"), line.text("who"), line.text("detail")) for line in lines] == [
        ("study-closed", "operator", f"anna/{study_id} {digest.hex()}: not agreed")
    ]

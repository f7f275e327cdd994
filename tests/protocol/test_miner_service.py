"""The miner's services, driven by messages through the in-memory transport: a whole study, every wrong call, every restart.

Three parties with two columns each. The party's side is written out here with plain numpy and the wire messages, so that the
miner is not tested against this project's own party.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from support import PATIENCE_SECONDS, miner_service
from support.miner_service import (
    N_COMMON,
    NOW,
    PARTIES,
    Federation,
    Keys,
    Party,
    chunk,
    codes_of,
    make_study,
    pseudonyms_of,
    refused,
)
from verticil.miner.airgap.exchange import fill
from verticil.miner.config import ServiceLimits
from verticil.miner.scheduler.job import ColumnFile, Job, LearningJob, ReportProgress
from verticil.miner.scheduler.learning import InlineLearning, SpawnedLearning, WorkerDied
from verticil.pki.register import revoke
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.federation.airgap.bundle import BundleEntries
from verticil.shared.federation.identity.authority import create_authority, issue, open_authority
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.shared.federation.membership.revocation import DenyList
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.model.artifact import pack
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.pages.study_status import why
from verticil.shared.release.download import fetch_release
from verticil.shared.release.verification import verify_release
from verticil.shared.release.worth import worth_of_study
from verticil.shared.study import canonical
from verticil.shared.study.approval import Approval, declared_units
from verticil.shared.study.document import PublishRule, QuorumRule
from verticil.shared.study.states import State
from verticil.shared.study.unit import Unit
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

federation, keys = miner_service.federation, miner_service.keys


async def test_a_study_from_submission_to_a_verified_release(federation: Federation, tmp_path: Path) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)
        assert (await federation.summary(digest)).n_common == N_COMMON
        receipts = {
            unit: await party.upload(digest, unit)
            for party in federation.parties
            for unit in study.units_of(party.name)
        }
        north = federation.party("north")
        task = await north.until(digest, lambda task: task.state == State.PUBLISHED)
        assert list(task.units_received) == [0, 1]

        folder = await fetch_release(north.wire, digest, tmp_path / "party")
        own_worth = worth_of_study(await federation.summary(digest))
        await fetch_release(federation.control("somebody"), digest, tmp_path / "analyst")
    verified = verify_release(folder, ca_certificate=federation.keys.authority)
    assert own_worth == verified.worth
    assert (verified.receipts, verified.common_records, verified.simulation) == (6, N_COMMON, False)
    for name in (*verified.files, "manifest.json", "manifest.sig"):
        assert (folder / name).read_bytes() == (tmp_path / "analyst" / name).read_bytes()

    body = json.loads(receipts[3].body)
    assert verify_signed(receipts[3], federation.keys.authority, role=Role.MINER, name="miner").name == "miner"
    assert body["artifact_sha256"] == hashlib.sha256(pack(codes_of(3), 3)).hexdigest()
    assert (body["party"], body["unit"], body["variables"], body["n_records"]) == ("south", 3, ["south_b"], N_COMMON)
    assert (body["proposal_digest"], body["miner"]) == (digest.hex(), "miner")


async def test_published_studies_lose_linkage_at_once_and_columns_after_the_days(federation: Federation) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.publish(study)
        await federation.settled(digest, "linkage_removed")
    files = federation.node.store.study(digest)
    assert sorted(path.name for path in files.root.iterdir()) == ["columns", "release"]
    federation.node = federation.make()
    for age, kept in ((dt.timedelta(days=29, hours=23), True), (dt.timedelta(days=30, minutes=5), False)):
        federation.clock.now = NOW + age
        await federation.node.scheduler.advance(digest)
        assert (files.root / "columns").exists() is kept
    assert (files.root / "release" / "model.json").is_file()
    assert (await federation.summary(digest)).state == State.PUBLISHED


@pytest.mark.parametrize("stage", range(10))
async def test_a_restart_at_any_point_converges_to_the_same_columns(federation: Federation, stage: int) -> None:
    """The miner is closed and opened again after each step in turn; columns and receipts must be those of the step itself."""
    study = make_study()
    digest = canonical.digest(study)
    names = [(party, unit) for party in PARTIES for unit in study.units_of(party)]
    steps: list[tuple[str, str, int]] = [("submit", "", 0)]
    steps += [("approve", party, 0) for party in PARTIES] + [("link", party, 0) for party in PARTIES]
    steps += [("confirm", party, 0) for party in PARTIES] + [("upload", party, unit) for party, unit in names]

    async def do(step: tuple[str, str, int]) -> None:
        what, name, unit = step
        if what == "submit":
            assert await federation.submit(study) == digest
        elif what == "approve":
            await federation.party(name).approve(study)
        elif what == "link":
            await federation.party(name).link(digest)
        elif what == "confirm":
            await federation.party(name).confirm(digest)
        else:
            await federation.party(name).upload(digest, unit)

    cuts = [position for position in range(len(steps)) if position % 10 == stage]
    start = 0
    for cut in [*cuts, len(steps)]:
        async with federation.restarted():
            if start:
                await do(steps[start - 1])  # what was acknowledged is said again: nothing may change
            for step in steps[start:cut]:
                await do(step)
            if cut == len(steps):
                await federation.party("north").until(digest, lambda task: task.state == State.PUBLISHED)
        start = cut
    federation.node = federation.make()
    record = federation.node.catalogue.study(digest)
    assert record is not None
    expected = {unit: hashlib.sha256(codes_of(unit).tobytes()).digest() for unit in range(6)}
    assert {unit: column.column_sha256 for unit, column in record.columns.items()} == expected


async def test_an_upload_goes_on_at_the_committed_offset_after_a_crash(federation: Federation) -> None:
    study = make_study()
    data = pack(codes_of(0), 3)
    async with federation.node:
        digest = await federation.to_upload(study)
        north = federation.party("north")
        begun = await north.begin(await north.task(digest), 0, data)
        acknowledged = await north.wire.put_chunks(
            [chunk(data, 0, 30, begun.upload_id), chunk(data, 30, 20, begun.upload_id)]
        )
        assert acknowledged.committed_offset == 50
    # a write that was under way when the process died: bytes behind the committed offset
    staging = federation.node.store.study(digest).staging(0)
    with staging.open("ab") as file:
        file.write(b"abandoned")
    async with federation.restarted():
        north = federation.party("north")
        again = await north.begin(await north.task(digest), 0, data)
        assert (again.upload_id, again.committed_offset) == (begun.upload_id, 50)
        first = await north.upload(digest, 0)
        assert await north.upload(digest, 0) == first
    assert not staging.exists()
    async with federation.restarted():
        north = federation.party("north")
        assert await north.upload(digest, 0) == first
        finished = await north.wire.finish_upload(coordinator_pb2.FinishUploadRequest(upload_id=begun.upload_id))
        assert finished.receipt == first


async def test_only_the_owner_uploads_and_only_what_was_approved(federation: Federation) -> None:
    study = make_study()
    data = pack(codes_of(0), 3)
    async with federation.node:
        digest = await federation.submit(study)
        north, south = federation.party("north"), federation.party("south")
        # nobody has approved: no effective study, nothing to upload into
        assert await refused(north.begin(await north.task(digest), 0, data)) == "STUDY_UNKNOWN"
        assert await refused(north.link(digest)) == "NOT_READY"
        for party in federation.parties:
            await party.approve(study)
        task = await north.task(digest)
        assert await refused(north.begin(task, 0, data)) == "NOT_READY"
        for party in federation.parties:
            await party.link(digest)
        for party in federation.parties:
            await party.confirm(digest)
        assert await refused(south.begin(task, 0, data)) == "NOT_OWNER"
        assert await refused(north.begin(task, 2, data)) == "NOT_OWNER"
        assert await refused(north.begin(task, 99, data)) == "MESSAGE_INVALID"
        begun = await north.begin(task, 0, data)
        assert await refused(south.wire.put_chunks([chunk(data, 0, 10, begun.upload_id)])) == "NOT_OWNER"
        finish = coordinator_pb2.FinishUploadRequest(upload_id=begun.upload_id)
        assert await refused(south.wire.finish_upload(finish)) == "NOT_OWNER"
        task.effective_digest = bytes(32)
        assert await refused(north.begin(task, 0, data)) == "STUDY_UNKNOWN"
        stranger = Party(federation.node, federation.keys, "north")
        stranger.wire = InMemoryCoordinator(
            federation.node.coordinator, Identity(federation="trial", role=Role.PARTY, name="east")
        )
        assert not (await stranger.poll()).tasks
        for call in (
            stranger.wire.report(coordinator_pb2.ReportRequest(study_digest=digest, denial=coordinator_pb2.Denial())),
            stranger.wire.put_pseudonyms(north.list_messages(digest)),
            stranger.alignment(digest),
            stranger.begin(await north.task(digest), 0, data),
        ):
            assert await refused(call) == "PARTY_UNKNOWN"
    assert federation.node.store.study(digest).staging(0).exists() is False


async def test_wrong_artifacts_are_refused_and_may_be_sent_again(federation: Federation) -> None:
    study = make_study()
    good = pack(codes_of(0), 3)
    out_of_range = pack(np.full(N_COMMON, 3, np.uint8), 4)
    assert len(out_of_range) == len(good)  # both 2 bits a code
    async with federation.node:
        digest = await federation.to_upload(study)
        north = federation.party("north")
        task = await north.task(digest)

        async def send(data: bytes, announced: bytes) -> str:
            begun = await north.begin(task, 0, announced)
            await north.wire.put_chunks([chunk(data, 0, len(data), begun.upload_id)])
            return await refused(
                north.wire.finish_upload(coordinator_pb2.FinishUploadRequest(upload_id=begun.upload_id))
            )

        assert await send(out_of_range, out_of_range) == "ARTIFACT_INVALID"
        header = b"VTC2" + good[4:]
        assert await send(header, header) == "ARTIFACT_INVALID"
        assert await send(bytes(len(good)), good) == "ARTIFACT_INVALID"  # not the announced bytes
        assert await refused(north.begin(task, 0, good[:-1])) == "ARTIFACT_INVALID"
        assert await refused(north.begin(task, 0, good + b"\0")) == "ARTIFACT_INVALID"
        begun = await north.begin(task, 0, good)
        assert begun.committed_offset == 0
        early = coordinator_pb2.FinishUploadRequest(upload_id=begun.upload_id)
        assert await refused(north.wire.finish_upload(early)) == "OFFSET_MISMATCH"
        assert await refused(north.wire.put_chunks([chunk(good, 10, 10, begun.upload_id)])) == "OFFSET_MISMATCH"
        assert await refused(north.wire.put_chunks([])) == "MESSAGE_INVALID"
        assert await refused(north.wire.put_chunks([chunk(good, 0, 10, "../../etc/passwd")])) == "OFFSET_MISMATCH"
        broken = chunk(good, 10, 10, begun.upload_id)
        broken.crc32 ^= 1
        assert await refused(north.wire.put_chunks([chunk(good, 0, 10, begun.upload_id), broken])) == "CHUNK_CORRUPT"
        assert (await north.begin(task, 0, good)).committed_offset == 10  # the good chunk before it counts
        record = federation.node.catalogue.study(digest)
        assert record is not None
        assert not record.columns
        await north.upload(digest, 0)
        assert await refused(north.begin(task, 0, out_of_range)) == "ARTIFACT_INVALID"


async def test_pseudonym_lists_are_checked(federation: Federation) -> None:
    study = make_study(minimum=200)
    async with federation.node:
        digest = await federation.submit(study)
        for party in federation.parties:
            await party.approve(study)
        north = federation.party("north")
        good = north.pseudonyms
        assert await refused(north.wire.put_pseudonyms([])) == "MESSAGE_INVALID"

        async def send(pseudonyms: NDArray[np.bytes_]) -> str:
            north.pseudonyms = pseudonyms
            return await refused(north.wire.put_pseudonyms(north.list_messages(digest)))

        assert await send(good[::-1]) == "ARTIFACT_INVALID"
        assert await send(np.concatenate([good[:5], good[4:]])) == "ARTIFACT_INVALID"  # one is there twice
        assert await send(good[:199]) == "LINKAGE_TOO_SMALL"
        question = coordinator_pb2.PutPseudonymsRequest(study_digest=digest, size=17 * 200, sha256=bytes(32))
        assert await refused(north.wire.put_pseudonyms([question])) == "MESSAGE_INVALID"
        north.pseudonyms = good
        first = list(north.list_messages(digest))
        assert (await north.wire.put_pseudonyms(first[:1])).committed_offset == 0
        assert (await north.wire.put_pseudonyms(first[:3])).committed_offset == 2048
        assert (await north.wire.put_pseudonyms(first[:1])).committed_offset == 2048
        assert (await north.wire.put_pseudonyms(list(north.list_messages(digest, offset=2048)))).complete
        assert (await north.wire.put_pseudonyms(first)).complete
        assert await send(good[:-1]) == "ARTIFACT_INVALID"  # another list than the one that is stored


async def test_too_few_common_people_fail_the_study_without_telling_how_many(federation: Federation) -> None:
    study = make_study(minimum=10)
    async with federation.node:
        digest = await federation.submit(study)
        for party in federation.parties:
            await party.approve(study, minimum=N_COMMON + 1)  # a party may ask for more than the study
        for party in federation.parties:
            await party.link(digest)
        task = await federation.party("north").until(digest, lambda task: task.state == State.FAILED)
        assert task.failure.code == "LINKAGE_TOO_SMALL"
        assert str(N_COMMON + 1) in task.failure.message
        assert f"{N_COMMON} " not in task.failure.message
        assert (await federation.summary(digest)).n_common == 0
        assert await refused(federation.party("north").alignment(digest)) == "LINKAGE_TOO_SMALL"
        await federation.settled(digest, "columns_removed")
        assert not (federation.node.store.study(digest).root / "pseudonyms").exists()


async def test_approvals_count_only_when_the_party_signed_them(federation: Federation) -> None:
    study = make_study()
    other = make_study(study_id="another")
    weaker = Unit(
        variables=study.units[0].variables,
        owner="north",
        scheme="symmetric",
        transition=quantize(symmetric(3, epsilon=4.0)),
    )
    async with federation.node:
        digest = await federation.submit(study)
        north = federation.party("north")
        assert await refused(north.approve(study, signer="south")) == "IDENTITY_REFUSED"
        assert await refused(north.approve(study, signer="miner")) == "IDENTITY_REFUSED"
        forged = north.approval(study)
        forged.body = forged.body.replace(b"a person", b"b person")
        request = coordinator_pb2.ReportRequest(study_digest=digest, approval=forged)
        assert await refused(north.wire.report(request)) == "MESSAGE_INVALID"
        request = coordinator_pb2.ReportRequest(study_digest=digest, approval=north.approval(other))
        assert await refused(north.wire.report(request)) == "STUDY_MISMATCH"
        request = coordinator_pb2.ReportRequest(
            study_digest=digest, approval=north.approval(study.with_declaration({0: weaker}))
        )
        assert await refused(north.wire.report(request)) in {"STUDY_MISMATCH", "DECLARATION_WEAKER"}
        assert await refused(north.wire.report(coordinator_pb2.ReportRequest(study_digest=digest))) == "MESSAGE_INVALID"
        assert await refused(north.wire.report(coordinator_pb2.ReportRequest(study_digest=b"?"))) in {
            "STUDY_UNKNOWN",
            "MESSAGE_INVALID",
        }
        record = federation.node.catalogue.study(digest)
        assert record is not None
        assert not record.approvals
        await north.approve(study)
        await north.approve(study)
        assert await refused(north.approve(study, minimum=11)) == "STUDY_MISMATCH"
        assert (await north.task(digest)).approved


async def test_a_stronger_declaration_makes_the_effective_study(federation: Federation) -> None:
    study = make_study()
    stronger = dataclasses.replace(study.units[0], transition=quantize(symmetric(3, epsilon=1.0)))
    async with federation.node:
        digest = await federation.submit(study)
        for party in federation.parties:
            body = encode(
                Approval(
                    proposal_digest=digest,
                    party=party.name,
                    units=declared_units(
                        {i: stronger if i == 0 else study.units[i] for i in study.units_of(party.name)},
                        dict.fromkeys(study.units_of(party.name), "00" * 32),
                    ),
                    minimum_common_records=10,
                    approver="a person",
                    approved_at=NOW,
                    expires=study.expires,
                )
            )
            signed = federation.keys.signing[party.name].sign(body)
            await party.wire.report(coordinator_pb2.ReportRequest(study_digest=digest, approval=signed))
        task = await federation.party("west").task(digest)
    effective = canonical.from_bytes(task.effective)
    assert effective == study.with_declaration({0: stronger})
    assert task.effective_digest == hashlib.sha256(task.effective).digest()
    assert task.proposal == canonical.to_bytes(study)


async def test_side_exits_are_told_and_delete_what_was_stored(federation: Federation) -> None:
    async with federation.node:
        denied = make_study(study_id="denied")
        digest = await federation.to_upload(denied)
        await federation.party("north").upload(digest, 0)
        denial = coordinator_pb2.ReportRequest(
            study_digest=digest, denial=coordinator_pb2.Denial(reason="not\nlike this")
        )
        await federation.party("south").wire.report(denial)
        task = await federation.party("north").until(digest, lambda task: task.state == State.DENIED)
        assert (task.failure.code, task.failure.message) == ("STUDY_DENIED", "party 'south': not\\nlike this")
        await federation.settled(digest, "columns_removed")
        assert not any(path.is_file() for path in federation.node.store.study(digest).root.rglob("*"))
        assert await refused(federation.party("north").begin(task, 1, pack(codes_of(1), 3))) == "STUDY_DENIED"

        failed = await federation.submit(make_study(study_id="failed"))
        detail = common_pb2.ErrorDetail(code="DATA_CHANGED", message="the table changed", hint="approve again")
        await federation.party("west").wire.report(coordinator_pb2.ReportRequest(study_digest=failed, failure=detail))
        unknown = common_pb2.ErrorDetail(code="WHATEVER")
        report = coordinator_pb2.ReportRequest(study_digest=failed, failure=unknown)
        assert await refused(federation.party("west").wire.report(report)) == "MESSAGE_INVALID"
        summary = await federation.summary(failed)
        assert (summary.state, summary.failure.code) == (State.FAILED, "DATA_CHANGED")
        assert summary.failure.message == "party 'west': the table changed"

        withdrawn = await federation.submit(make_study(study_id="withdrawn"))
        request = control_pb2.CancelStudyRequest(study_digest=withdrawn)
        assert await refused(federation.control("berta").cancel_study(request)) == "IDENTITY_REFUSED"
        for _ in range(2):
            assert (await federation.control().cancel_study(request)).state == State.WITHDRAWN
        assert await refused(federation.party("north").approve(make_study(study_id="withdrawn"))) == "STUDY_WITHDRAWN"


async def test_the_last_valid_day_ends_a_study(federation: Federation) -> None:
    async with federation.node:
        digest = await federation.submit(make_study(expires=NOW.date()))
        north = federation.party("north")
        federation.clock.now = NOW.replace(hour=23, minute=59, second=59)
        assert (await north.task(digest)).state == State.AWAITING_APPROVAL
        federation.clock.now = NOW.replace(hour=0) + dt.timedelta(days=1)
        assert await refused(north.approve(make_study(expires=NOW.date()))) == "STUDY_EXPIRED"
        federation.node.changes.notify()
        task = await north.until(digest, lambda task: task.failure.code != "")
        assert (task.state, task.failure.code) == (State.EXPIRED, "STUDY_EXPIRED")
        assert await refused(federation.submit(make_study(study_id="late", expires=NOW.date()))) == "STUDY_EXPIRED"


async def test_submission_is_strict_and_repeatable(federation: Federation) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.submit(study)
        assert await federation.submit(study, "berta") == digest
        assert len((await federation.control().list_studies(control_pb2.ListStudiesRequest())).studies) == 1
        assert await refused(federation.submit(dataclasses.replace(study, title="B"))) == "STUDY_EXISTS"
        for bad in (b"", b"{}", b"[" * 100_000, canonical.to_bytes(study) + b" ", b"x" * 2_000_000):
            call = federation.control().submit_study(control_pb2.SubmitStudyRequest(proposal=bad))
            assert await refused(call) == "MESSAGE_INVALID"
        await federation.control().cancel_study(control_pb2.CancelStudyRequest(study_digest=digest))
        second = await federation.submit(dataclasses.replace(study, title="B"))
        newest = (await federation.control().get_study(control_pb2.GetStudyRequest(study_id=study.id))).study
        assert (newest.study_digest, newest.title) == (second, "B")
        assert (
            await refused(federation.control().get_study(control_pb2.GetStudyRequest(study_id="?"))) == "STUDY_UNKNOWN"
        )


async def test_quota_and_disk_reserve_are_checked_up_front(tmp_path: Path, keys: Keys) -> None:
    federation = Federation(tmp_path, keys)
    federation.node.close()
    artifact, column = len(pack(codes_of(0), 3)), N_COMMON
    lists = sum(len(pseudonyms_of(party)) * 16 for party in PARTIES)
    federation.limits = ServiceLimits(
        max_bytes_per_study=lists + 2 * column + artifact + column - 1, disk_reserve_bytes=1000
    )
    federation.node = federation.make()
    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)
        north = federation.party("north")
        federation.free = lambda _path: 1300
        data = pack(codes_of(0), 3)
        assert await refused(north.begin(await north.task(digest), 0, data)) == "RESOURCE_EXHAUSTED"
        assert (await federation.summary(digest)).stage_detail == ""
        federation.free = lambda _path: 999
        assert (await federation.summary(digest)).stage_detail == "waiting: DISK_FULL (the miner's disk)"
        federation.free = lambda _path: 2**30
        assert (await federation.summary(digest)).stage_detail == ""
        await north.upload(digest, 0)
        await north.upload(digest, 1)
        south = federation.party("south")
        assert await refused(south.upload(digest, 2)) == "RESOURCE_EXHAUSTED"
        assert not federation.node.store.study(digest).staging(2).exists()


async def test_polls_wait_wake_and_tell_only_what_is_new(federation: Federation) -> None:
    async with federation.node:
        north = federation.party("north")
        waiting = asyncio.create_task(north.poll(wait=60))
        await asyncio.sleep(0)
        digest = await federation.submit(make_study())
        reply = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert [task.study_digest for task in reply.tasks] == [digest]
        assert reply.lease_seconds > 60
        known = {digest: reply.tasks[0].version}
        assert not (await north.poll(known=known)).tasks
        # a miner whose state was restored from a backup tells its older version, too
        assert (await north.poll(known={digest: 10_000})).tasks
        progress = coordinator_pb2.Progress(stage="reading", percent=40)
        await north.wire.report(coordinator_pb2.ReportRequest(study_digest=digest, progress=progress))
        assert not (await north.poll(known=known)).tasks
        status = (await federation.summary(digest)).parties[0]
        assert (status.stage, status.percent, status.online) == ("reading", 40, True)
        nonsense = coordinator_pb2.Progress(stage="<script>", percent=4)
        report = coordinator_pb2.ReportRequest(study_digest=digest, progress=nonsense)
        assert await refused(north.wire.report(report)) == "MESSAGE_INVALID"
        federation.monotonic += 89
        assert (await federation.summary(digest)).parties[0].online
        federation.monotonic += 2
        assert not (await federation.summary(digest)).parties[0].online
        waiting = asyncio.create_task(north.poll(wait=60, known=known))
        await asyncio.sleep(0)
        assert (await federation.summary(digest)).parties[0].online  # the poll has arrived
        federation.node.changes.close()
        assert not (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).tasks


async def test_feature_21_online_is_true(federation: Federation) -> None:
    """A lease is as old as the last thing that arrived; what is left of an earlier session neither keeps nor ends it."""

    async def greet(party: Party, session: int) -> common_pb2.HelloReply:
        return await party.wire.hello(common_pb2.HelloRequest(protocol_version=2, session=session))

    async def poll(party: Party, epoch: int, *, wait: int = 0) -> coordinator_pb2.PollReply:
        known = [coordinator_pb2.KnownStudy(study_digest=digest, version=version)]
        return await party.wire.poll(coordinator_pb2.PollRequest(known=known, wait_seconds=wait, epoch=epoch))

    async with federation.node:
        digest = await federation.submit(make_study())
        version = (await federation.summary(digest)).version
        north = federation.party("north")

        async def status() -> tuple[bool, int]:
            found = (await federation.summary(digest)).parties[0]
            return found.online, found.lease_age_seconds

        assert not (await federation.summary(digest)).parties[0].seen
        first = await greet(north, 7)
        assert (first.lease_seconds, first.heartbeat_seconds) == (90, 45)
        assert (await greet(north, 7)).epoch == first.epoch  # the same call, repeated
        parked = asyncio.create_task(poll(north, first.epoch, wait=60))
        await asyncio.sleep(0)
        assert await status() == (True, 0)
        # The node is gone without a word; its call is still served. Nobody is there, and that is what is said.
        federation.monotonic += 90
        assert await status() == (False, 90)
        # It comes back. The end of the old call, now or ever so late, changes nothing.
        second = await greet(north, 8)
        assert second.epoch > first.epoch
        assert await status() == (True, 0)
        assert await refused(parked) == "SESSION_REPLACED"
        assert await status() == (True, 0)
        federation.monotonic += 60
        assert (
            await refused(poll(north, first.epoch)) == "SESSION_REPLACED"
        )  # of a second daemon with the same certificate
        assert await status() == (True, 60)
        await poll(north, second.epoch)
        assert await status() == (True, 0)
        # Somebody looks with the party's certificate (`verticil release fetch`): no daemon lives by that.
        federation.monotonic += 90
        await north.poll()
        assert await status() == (False, 90)
    async with federation.restarted():
        again = federation.party("north")
        await poll(again, second.epoch)  # gRPC has repeated the poll by itself at the restarted miner
        assert (await federation.summary(digest)).parties[0].online
        assert (await greet(again, 9)).epoch > second.epoch


async def test_feature_22_the_status_says_who_blocks_and_why(federation: Federation) -> None:
    study = make_study()

    async def waited_for() -> dict[str, str]:
        return {party.party: party.waiting_for for party in (await federation.summary(digest)).parties}

    async with federation.node:
        digest = await federation.submit(study)
        north, south, west = federation.parties
        assert await waited_for() == dict.fromkeys(PARTIES, "approval")
        votes = coordinator_pb2.Progress(stage="approving", approvers=1, approvers_needed=2)
        await south.wire.report(coordinator_pb2.ReportRequest(study_digest=digest, progress=votes))
        await north.approve(study)
        await west.approve(study)
        assert await waited_for() == {"north": "", "south": "approval", "west": ""}
        found = (await federation.summary(digest)).parties[1]
        assert (found.approvers, found.approvers_needed) == (1, 2)
        await south.approve(study)
        assert await waited_for() == dict.fromkeys(PARTIES, "linkage")
        assert why((await federation.summary(digest)).parties[1]) == "waiting for its pseudonyms"
        await south.wire.report(coordinator_pb2.ReportRequest(study_digest=digest, progress=votes))  # of a new approval
        found = (await federation.summary(digest)).parties[1]
        assert why(found) == "waiting for its new approval (1 of 2)"
        await south.approve(study)
        federation.monotonic += 200
        await north.poll()
        assert why((await federation.summary(digest)).parties[1]) == (
            "waiting for its pseudonyms; offline, last heard of 3 min ago"
        )
        await north.link(digest)
        await west.link(digest)
        assert await waited_for() == {"north": "", "south": "linkage", "west": ""}
        await south.link(digest)
        await north.confirm(digest)
        await west.confirm(digest)
        assert await waited_for() == {"north": "", "south": "confirmation", "west": ""}
        await south.confirm(digest)
        assert await waited_for() == dict.fromkeys(PARTIES, "columns")
        for unit in study.units_of("north"):
            await north.upload(digest, unit)
        assert await waited_for() == {"north": "", "south": "columns", "west": "columns"}
        failure = common_pb2.ErrorDetail(code="BUDGET_EXCEEDED", message="no", hint="declare stronger noise")
        await west.wire.report(coordinator_pb2.ReportRequest(study_digest=digest, failure=failure))
        told = {
            party.party: (party.failure.code, party.failure.hint)
            for party in (await federation.summary(digest)).parties
        }
        assert told == {"north": ("", ""), "south": ("", ""), "west": ("BUDGET_EXCEEDED", "declare stronger noise")}


@pytest.mark.parametrize("stage", ["approval", "linkage", "confirmation", "columns"])
async def test_feature_32_a_deadline_ends_a_study_and_names_who_is_missing(federation: Federation, stage: str) -> None:
    study = dataclasses.replace(make_study(), quorum=QuorumRule(deadline_seconds=3600))
    async with federation.node:
        digest = await federation.submit(study)
        present = [federation.party("north"), federation.party("south")]
        everybody = [*present, federation.party("west")]
        order = ("approval", "linkage", "confirmation", "columns")

        async def act(party: Party, what: str) -> None:
            if what == "approval":
                await party.approve(study)
            elif what == "linkage":
                await party.link(digest)
            elif what == "confirmation":
                await party.confirm(digest)
            else:
                for unit in study.units_of(party.name):
                    await party.upload(digest, unit)

        for what in order[: order.index(stage) + 1]:
            for party in present if what == stage else everybody:
                await act(party, what)
        assert (await federation.summary(digest)).deadline == (NOW + dt.timedelta(hours=1)).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )
        federation.clock.now = NOW + dt.timedelta(minutes=59, seconds=59)
        await federation.node.scheduler.advance(digest)
        assert (await federation.summary(digest)).state < State.PUBLISHED
        federation.clock.now = NOW + dt.timedelta(hours=1)
        federation.node.changes.notify()
        task = await present[0].until(digest, lambda task: task.failure.code != "")
        assert (task.state, task.failure.code) == (State.FAILED, "DEADLINE_PASSED")
        assert f"missing: party 'west' ({stage})" in task.failure.message
        assert "north" not in task.failure.message
        told = {party.party: party.failure.code for party in (await federation.summary(digest)).parties}
        assert told == {"north": "", "south": "", "west": "DEADLINE_PASSED"}


async def test_feature_32_a_deadline_does_not_end_what_waits_for_nobody(federation: Federation) -> None:
    study = dataclasses.replace(make_study(), quorum=QuorumRule(deadline_seconds=3600))
    async with federation.node:
        digest = await federation.publish(study)
        federation.clock.now = NOW + dt.timedelta(hours=2)
        await federation.node.scheduler.advance(digest)
        assert (await federation.summary(digest)).state == State.PUBLISHED


async def test_feature_36_room_is_refused_up_front_and_promised_once(tmp_path: Path, keys: Keys) -> None:
    """Two uploads at once are not promised the same free bytes; what is refused leaves nothing behind and may come later."""
    federation = Federation(tmp_path, keys)
    federation.limits = ServiceLimits(disk_reserve_bytes=1000)
    federation.node.close()
    federation.node = federation.make()
    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)
        north, south = federation.party("north"), federation.party("south")
        data = pack(codes_of(0), 3)
        room = 1000 + len(data) + N_COMMON  # for one artifact and its column, above the reserve
        federation.free = lambda _path: room + len(data) // 2
        assert (await north.begin(await north.task(digest), 0, data)).committed_offset == 0
        other = pack(codes_of(2), 3)
        with pytest.raises(VerticilError) as caught:
            await south.begin(await south.task(digest), 2, other)
        assert caught.value.code == "RESOURCE_EXHAUSTED"
        assert f"needs {len(other) + N_COMMON} bytes" in caught.value.message
        assert "reserve of 1000" in caught.value.message
        assert not federation.node.store.study(digest).staging(2).exists()
        federation.free = lambda _path: 2**30
        await north.upload(digest, 0)
        await south.upload(digest, 2)


async def test_versions_are_exchanged(federation: Federation) -> None:
    async with federation.node:
        north = federation.party("north")
        reply = await north.wire.hello(common_pb2.HelloRequest(protocol_version=2, software_version="0"))
        assert (reply.federation, reply.protocol_version) == ("trial", 2)
        assert await refused(north.wire.hello(common_pb2.HelloRequest(protocol_version=4))) == "VERSION_UNSUPPORTED"


async def test_feature_37_a_consumer_is_told_of_published_studies_only(federation: Federation) -> None:
    """An auditor sees where every study stands and takes nothing; a consumer knows of no study before it is published."""
    consumer, auditor = federation.control("registry", Role.CONSUMER), federation.control("court", Role.AUDITOR)

    async def seen(control: InMemoryControl) -> list[str]:
        async def fetch() -> None:
            async for _ in control.get_release(common_pb2.GetReleaseRequest(study_digest=digest, path="manifest.json")):
                pass

        listed = (await control.list_studies(control_pb2.ListStudiesRequest())).studies
        found = await refused(control.get_study(control_pb2.GetStudyRequest(study_digest=digest)))
        return [str(len(listed)), found, await refused(fetch())]

    async with federation.node:
        study = make_study()
        digest = await federation.to_upload(study)
        assert await seen(consumer) == ["0", "STUDY_UNKNOWN", "STUDY_UNKNOWN"]
        assert await seen(auditor) == ["1", "accepted", "IDENTITY_REFUSED"]
        for party in federation.parties:
            for unit in study.units_of(party.name):
                await party.upload(digest, unit)
        await federation.party("north").until(digest, lambda task: task.state == State.PUBLISHED)
        assert await seen(consumer) == ["1", "accepted", "accepted"]
        assert await seen(auditor) == ["1", "accepted", "IDENTITY_REFUSED"]
        cancel = control_pb2.CancelStudyRequest(study_digest=digest)
        for reader in (consumer, auditor):
            assert await refused(reader.cancel_study(cancel)) == "IDENTITY_REFUSED"
            assert await refused(reader.submit_study(control_pb2.SubmitStudyRequest())) == "IDENTITY_REFUSED"


async def test_feature_29_parties_are_told_a_newer_deny_list(federation: Federation, tmp_path: Path) -> None:
    create_authority(tmp_path / "ca", "trial")
    for name in ("one", "two"):
        issue(tmp_path / "ca", name, Role.PARTY, tmp_path / name)
        path, _, _ = revoke(open_authority(tmp_path / "ca"), name)
    federation.node.close()
    federation.revocations = DenyList((tmp_path / "ca" / "ca.crt").read_bytes(), [path])
    federation.node = federation.make()
    newest = federation.revocations.newer_than(0)
    assert newest
    async with federation.node:
        wire = federation.party("north").wire
        for number, told in ((0, newest), (1, newest), (2, b"")):
            hello = common_pb2.HelloRequest(protocol_version=2, deny_list_number=number)
            assert (await wire.hello(hello)).deny_list == told
            assert (await wire.poll(coordinator_pb2.PollRequest(deny_list_number=number))).deny_list == told


async def test_release_files_are_served_by_their_listed_name_only(federation: Federation) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)

        async def fetch(path: str, offset: int = 0, name: str = "anna") -> list[common_pb2.ReleasePart]:
            request = common_pb2.GetReleaseRequest(study_digest=digest, path=path, offset=offset)
            return [part async for part in federation.control(name).get_release(request)]

        assert await refused(fetch("manifest.json")) == "NOT_READY"
        for party in federation.parties:
            for unit in study.units_of(party.name):
                await party.upload(digest, unit)
        await federation.party("north").until(digest, lambda task: task.state == State.PUBLISHED)
        whole = await fetch("model.json")
        size = whole[0].size
        assert sum(len(plain_of(part)) for part in whole) == size
        assert hashlib.sha256(b"".join(map(plain_of, whole))).digest() == whole[0].sha256
        (rest,) = await fetch("model.json", size - 1)
        assert (len(plain_of(rest)), rest.size) == (1, size)
        (end,) = await fetch("model.json", size)
        assert (end.size, end.chunk.data) == (size, b"")
        assert await refused(fetch("model.json", size + 1)) == "MESSAGE_INVALID"
        for path in ("../catalogue.sqlite", "/etc/passwd", "", ".", "columns/000.u8", "model.json/"):
            assert await refused(fetch(path)) == "FILE_MISSING"


def plain_of(part: common_pb2.ReleasePart) -> bytes:
    return zlib.decompress(part.chunk.data) if part.chunk.encoding else part.chunk.data


class Unreliable:
    """An executor whose process dies without a word some times, and then learns in a thread."""

    def __init__(self, deaths: int, clock: Callable[[], dt.datetime]) -> None:
        self.deaths, self.inner = deaths, InlineLearning(clock=clock)

    async def run(self, job: Job, progress: ReportProgress) -> bytes:
        if self.deaths:
            self.deaths -= 1
            raise WorkerDied(-9)
        return await self.inner.run(job, progress)


@pytest.mark.parametrize(("deaths", "end"), [(2, State.PUBLISHED), (3, State.FAILED)])
async def test_a_learning_process_that_dies_is_tried_again_thrice(
    tmp_path: Path, keys: Keys, deaths: int, end: State
) -> None:
    federation = Federation(tmp_path, keys)
    federation.node.close()
    federation.executor = Unreliable(deaths, federation.clock)
    federation.node = federation.make()
    study = make_study()
    async with federation.node:
        digest = await federation.publish(study)
        task = await federation.party("north").task(digest)
        assert task.state == end
        assert task.failure.code == ("" if end is State.PUBLISHED else "LEARNING_FAILED")


def flip(column: Path) -> None:
    data = bytearray(column.read_bytes())
    data[7] ^= 1
    column.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], None]] = {"a flipped bit": flip, "a lost file": Path.unlink}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_column_that_is_damaged_on_disk_is_asked_for_again(federation: Federation, damage: str) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)
        units = [(party, unit) for party in federation.parties for unit in study.units_of(party.name)]
        receipts = [await party.upload(digest, unit) for party, unit in units[:-1]]
        files = federation.node.store.study(digest)
        DAMAGE[damage](files.column(0, 1))
        flip(files.column(3, 1))
        await units[-1][0].upload(digest, units[-1][1])
        north, south = federation.party("north"), federation.party("south")
        task = await north.until(digest, lambda task: bool(task.units_damaged))
        await south.until(digest, lambda task: bool(task.units_damaged))  # each column is looked at by itself
        assert (task.state, list(task.units_received), list(task.units_damaged)) == (State.UPLOADING, [1], [0])
        waiting = {party.party: party.waiting_for for party in (await federation.summary(digest)).parties}
        assert waiting == {"north": "columns", "south": "columns", "west": ""}
        assert await refused(north.begin(task, 0, pack(codes_of(5), 3))) == "ARTIFACT_INVALID"  # the same bytes or none
    async with federation.restarted():
        north, south = federation.party("north"), federation.party("south")
        assert await north.upload(digest, 0) == receipts[0]
        assert await south.upload(digest, 3) == receipts[3]
        task = await north.until(digest, lambda task: task.state >= State.PUBLISHED)
        assert (task.state, list(task.units_received), list(task.units_damaged)) == (State.PUBLISHED, [0, 1], [])


async def test_a_disk_that_damages_columns_again_and_again_ends_the_study_by_name(
    federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    def looked() -> int:
        """How many passes over the columns are over: each finds one that is damaged, and logs it at its end."""
        return sum("was damaged on this disk" in record.getMessage() for record in caplog.records)

    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)
        units = [(party, unit) for party in federation.parties for unit in study.units_of(party.name)]
        for party, unit in units[:-1]:
            await party.upload(digest, unit)
        files, north = federation.node.store.study(digest), federation.party("north")
        (last, unit), ends = units[-1], []
        for turn, damaged in enumerate((0, 1, 0), 1):
            flip(files.column(damaged, 1))
            await last.upload(digest, unit)
            while turn < 3 and looked() < turn:
                await asyncio.sleep(0.01)
            task = await north.until(
                digest,
                lambda task, n=damaged, t=turn: (t < 3 and n in task.units_damaged) or task.state >= State.PUBLISHED,
            )
            ends.append((list(task.units_damaged), task.failure.code))
            last, unit = north, damaged
        assert ends == [([0], ""), ([1], ""), ([], "STATE_CORRUPT")]
        assert "again after the party sent them anew" in task.failure.hint


async def test_a_release_that_was_signed_but_not_recorded_is_published_as_it_is(federation: Federation) -> None:
    """Killed between the renaming of the folder and the fact: the next start publishes the same bytes."""
    async with federation.node:
        digest = await federation.publish(make_study())
    signature = federation.node.store.study(digest).release / "manifest.sig"
    signed = signature.read_bytes()
    forget_publication(federation.directory)
    async with federation.restarted():
        await federation.party("north").until(digest, lambda task: task.state == State.PUBLISHED)
        assert signature.read_bytes() == signed


async def test_a_release_that_does_not_hold_is_made_anew(federation: Federation) -> None:
    async with federation.node:
        digest = await federation.publish(make_study())
    release = federation.node.store.study(digest).release
    (release / "manifest.sig").unlink()
    forget_publication(federation.directory)
    async with federation.restarted():
        await federation.party("north").until(digest, lambda task: task.state == State.PUBLISHED)
        verify_release(release, ca_certificate=federation.keys.authority)


def forget_publication(directory: Path) -> None:
    with contextlib.closing(sqlite3.connect(directory / "catalogue.sqlite")) as connection, connection:
        connection.execute("UPDATE study SET published_at = NULL")
        connection.execute("DELETE FROM release_file")


@pytest.mark.whole
async def test_the_spawned_process_learns_the_same_as_the_thread(tmp_path: Path, keys: Keys) -> None:
    released = {}
    for name in ("thread", "process"):
        federation = Federation(tmp_path / name, keys)
        federation.node.close()
        if name == "process":
            federation.executor = SpawnedLearning(tmp_path / "cache")
        federation.node = federation.make()
        async with federation.node:
            digest = await federation.publish(make_study())
        release = federation.node.store.study(digest).release
        released[name] = {
            path.name: path.read_bytes() for path in release.iterdir() if path.name.startswith(("model", "syn"))
        }
    assert released["thread"] == released["process"]


def endless_job(folder: Path) -> LearningJob:
    """A job that never ends: its first column is a pipe that nobody writes to."""
    os.mkfifo(folder / "pipe")
    study = make_study()
    return LearningJob(
        proposal_digest=bytes(32),
        effective=canonical.to_bytes(study),
        n_common=N_COMMON,
        columns=tuple(ColumnFile(path=folder / "pipe", item_bytes=1, sha256=bytes(32)) for _ in study.units),
        receipts=(),
        target=folder / "release",
        started_at=NOW,
    )


def child_processes() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


@pytest.mark.whole
async def test_cancelling_kills_the_learning_process_at_once(tmp_path: Path) -> None:
    reading = asyncio.Event()
    others = child_processes()
    run = SpawnedLearning(tmp_path / "cache").run(endless_job(tmp_path), lambda stage, _percent: reading.set())
    task = asyncio.create_task(run)
    await reading.wait()
    children = child_processes() - others
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children
    assert not child_processes() & children


@pytest.mark.whole
async def test_the_learning_process_ends_with_its_miner(tmp_path: Path) -> None:
    """When the miner is gone, however it went, the process's standard input ends, and so does the process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "verticil.miner.scheduler.worker",
        str(2**31),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(encode(endless_job(tmp_path)) + b"\n")
    assert json.loads(await process.stdout.readline())["stage"] == "reading"
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == 1
    assert await process.stdout.read() == b""


@pytest.mark.whole
async def test_leaving_while_a_process_learns_kills_it_and_the_next_start_learns_anew(
    tmp_path: Path, keys: Keys
) -> None:
    federation = Federation(tmp_path, keys)
    federation.node.close()
    reading, others = asyncio.Event(), child_processes()

    class Endless(SpawnedLearning):
        async def run(self, job: Job, progress: ReportProgress) -> bytes:
            del job, progress
            return await super().run(endless_job(tmp_path), lambda _stage, _percent: reading.set())

    federation.executor = Endless(tmp_path / "cache")
    federation.node = federation.make()
    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)
        for party in federation.parties:
            for unit in study.units_of(party.name):
                await party.upload(digest, unit)
        await reading.wait()
        children = child_processes() - others
    assert children
    assert not child_processes() & children
    federation.executor = InlineLearning(clock=federation.clock)
    async with federation.restarted():
        task = await federation.party("north").until(digest, lambda task: task.state >= State.PUBLISHED)
        assert task.state == State.PUBLISHED


# -- what a reviewer tried ---------------------------------------------------------------------------------------------------


async def turns(n: int = 200) -> None:
    """Let everything that is ready go on, worker threads included."""
    for _ in range(n):
        await asyncio.to_thread(lambda: None)


async def test_what_cannot_be_deleted_is_tried_again_now_and_then_not_without_end(federation: Federation) -> None:
    """An ended study whose files cannot be deleted must not keep the miner busy, nor the other studies from going on."""
    async with federation.node:
        digest = await federation.to_upload(make_study())
        columns = federation.node.store.study(digest).root / "columns"
        columns.rename(columns.with_name("elsewhere"))
        columns.symlink_to("elsewhere")  # which shutil.rmtree refuses
        await federation.control().cancel_study(control_pb2.CancelStudyRequest(study_digest=digest))
        await federation.settled(digest, "linkage_removed")
        await turns()
        generation = federation.node.changes.generation
        await turns()
        assert federation.node.changes.generation == generation
        assert not federation.node.catalogue.study(digest).columns_removed
        columns.unlink()
        await federation.settled(digest, "columns_removed")


async def test_a_release_that_is_published_while_it_is_put_into_a_bundle_is_left_for_the_next_one(
    federation: Federation, tmp_path: Path
) -> None:
    study = dataclasses.replace(make_study(), publish=PublishRule())
    async with federation.node:
        digest = await federation.to_upload(study)
        for party in federation.parties:
            for unit in study.units_of(party.name):
                await party.upload(digest, unit)
        north = federation.party("north")
        await north.until(digest, lambda task: bool(task.review_manifest_sha256))
        service, signature = federation.node.offline, federation.node.store.study(digest).release / "manifest.sig"
        coordinator, answer = InMemoryCoordinator(service, north.identity), service.GetRelease

        def last(who: Identity, request: common_pb2.GetReleaseRequest) -> AsyncIterator[common_pb2.ReleasePart]:
            if request.path == signature.name:  # the last countersignature comes in between
                signature.write_bytes(signature.read_bytes() + b" ")
            return answer(who, request)

        for get, held in ((answer, {"task", "file"}), (last, {"task"})):
            vars(service)["GetRelease"] = get
            entries = BundleEntries.anew(tmp_path / str(len(held)))
            await fill(entries, coordinator, federation.node.session, "north", deny_list=b"", releases=frozenset())
            assert {entry.what for entry in entries} - {"receipt", "alignment"} == held


class PausingKey:
    """A signing key that pauses when it signs a manifest, in a worker thread."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self.reached, self.go_on = threading.Event(), threading.Event()

    def sign(self, body: bytes) -> common_pb2.Signed:
        if body.startswith(b"{\n"):
            self.reached.set()
            assert self.go_on.wait(PATIENCE_SECONDS)
        return self._key.sign(body)


async def test_a_study_withdrawn_while_its_release_is_signed_leaves_nothing(federation: Federation) -> None:
    """A thread cannot be stopped: what it writes after the cancellation must not come back after the deletion."""
    federation.node.close()
    key = PausingKey(federation.keys.signing["miner"])
    federation.keys = dataclasses.replace(federation.keys, signing={**federation.keys.signing, "miner": key})  # type: ignore[dict-item]
    federation.node = federation.make()
    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)
        for party in federation.parties:
            for unit in study.units_of(party.name):
                await party.upload(digest, unit)
        assert await asyncio.to_thread(key.reached.wait, PATIENCE_SECONDS)
        await federation.control().cancel_study(control_pb2.CancelStudyRequest(study_digest=digest))
        await turns(20)
        key.go_on.set()
        await federation.settled(digest, "columns_removed")
        await turns(20)
        assert (await federation.summary(digest)).state == State.WITHDRAWN
        assert not any(path.is_file() for path in federation.node.store.study(digest).root.rglob("*"))


async def test_a_clock_that_was_set_back_does_not_spoil_the_release(federation: Federation) -> None:
    """A receipt is never later than the publication, or no reader would accept the release."""
    study = make_study()
    async with federation.node:
        digest = await federation.to_upload(study)
        for party in federation.parties:
            for unit in study.units_of(party.name):
                if unit == len(study.units) - 1:
                    federation.clock.now -= dt.timedelta(seconds=40)
                await party.upload(digest, unit)
        task = await federation.party("north").until(digest, lambda task: task.state >= State.PUBLISHED)
        assert (task.state, task.failure.message) == (State.PUBLISHED, "")


async def test_of_studies_with_one_id_submitted_at_once_one_is_under_way(federation: Federation) -> None:
    async with federation.node:
        studies = [dataclasses.replace(make_study(), title=f"Trial {number}") for number in range(12)]
        codes = await asyncio.gather(*(refused(federation.submit(study)) for study in studies))
        assert sorted(codes) == ["STUDY_EXISTS"] * 11 + ["accepted"]


async def test_of_different_approvals_sent_at_once_one_counts_and_the_others_are_told(federation: Federation) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.submit(study)
        north = federation.party("north")
        codes = await asyncio.gather(*(refused(north.approve(study, minimum=10 + n)) for n in range(8)))
        assert sorted(codes) == ["STUDY_MISMATCH"] * 7 + ["accepted"]
        recorded = json.loads(federation.node.catalogue.study(digest).approvals["north"].body)
        assert recorded["minimum_common_records"] == 10 + codes.index("accepted")
        assert await refused(north.approve(study, minimum=recorded["minimum_common_records"])) == "accepted"


@pytest.mark.slow
async def test_a_declaration_that_makes_the_study_too_large_to_tell_is_refused(federation: Federation) -> None:
    """Else no poll of any party of the study would be answered any more: its reply would be above 4 MiB."""
    k = 420
    study = make_study()
    variable = dataclasses.replace(study.schema.variables[0], labels=tuple(f"c{i}" for i in range(k)))
    plain = dataclasses.replace(study.units[0], scheme="none", transition=quantize(np.eye(k)))
    noisy = dataclasses.replace(study.units[0], transition=quantize(symmetric(k, epsilon=5.0)))
    study = dataclasses.replace(
        study,
        schema=Schema(variables=(variable, *study.schema.variables[1:])),
        units=(plain, *study.units[1:]),
    )
    declared = study.with_declaration({0: noisy})
    assert len(canonical.to_bytes(study)) < 2**20 < 3 * 2**20 < len(canonical.to_bytes(declared)) < 2**22
    async with federation.node:
        digest = await federation.submit(study)
        north = federation.party("north")
        approval = Approval(
            proposal_digest=digest,
            party="north",
            units=declared_units({0: noisy, 1: study.units[1]}, dict.fromkeys((0, 1), "ab" * 32)),
            minimum_common_records=10,
            approver="a person",
            approved_at=NOW,
            expires=study.expires,
        )
        statement = encode(approval)
        report = coordinator_pb2.ReportRequest(
            study_digest=digest, approval=federation.keys.signing["north"].sign(statement)
        )
        assert await refused(north.wire.report(report)) == "MESSAGE_INVALID"
        for party in federation.parties:
            await party.approve(study)
        assert (await north.poll()).ByteSize() < 4 * 2**20
        assert (await north.task(digest)).state == State.ALIGNING


async def test_one_party_cannot_take_every_place_for_streams(tmp_path: Path, keys: Keys) -> None:
    federation = Federation(tmp_path, keys)
    federation.node.close()
    federation.limits = ServiceLimits(disk_reserve_bytes=0, max_concurrent_uploads=3)
    federation.node = federation.make()
    async with federation.node:
        digest = await federation.to_upload(make_study())
        north, data = federation.party("north"), pack(codes_of(0), 3)
        begun = await north.begin(await north.task(digest), 0, data)
        endless = asyncio.Event()

        async def stalled() -> AsyncIterator[common_pb2.Chunk]:
            yield chunk(data, 0, 7, begun.upload_id)
            await endless.wait()

        streams = [asyncio.create_task(north.wire.put_chunks(stalled())) for _ in range(6)]
        await turns(20)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await federation.party("south").upload(digest, 2)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


async def test_a_chunk_above_the_limit_is_refused_before_the_next_one_is_taken(federation: Federation) -> None:
    async with federation.node:
        digest = await federation.to_upload(make_study())
        north = federation.party("north")
        begun = await north.begin(await north.task(digest), 0, pack(codes_of(0), 3))
        sent = 0

        async def large() -> AsyncIterator[common_pb2.Chunk]:
            nonlocal sent
            for _ in range(8):
                sent += 1
                yield common_pb2.Chunk(upload_id=begun.upload_id, data=bytes(4_000_000))

        assert await refused(north.wire.put_chunks(large())) == "CHUNK_CORRUPT"
        assert sent == 1

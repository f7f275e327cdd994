"""Feature 32 at the miner: a study whose quorum goes on without a party, in every way in which it may and may not."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support import miner_service as service
from verticil.miner.rules.quorum import at_deadline
from verticil.miner.storage.records import StudyRecord
from verticil.party.dataset.order_commitment import order_key, order_tree
from verticil.shared.core.errors import DataFault, GateFailed, VerticilError
from verticil.shared.documents.record import canonical_json
from verticil.shared.federation.alignment.statements import common_body
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.release.manifest import sign_release
from verticil.shared.release.verification import verify_release
from verticil.shared.storage import durable
from verticil.shared.study import canonical
from verticil.shared.study.document import CustomRule, LeftOut, PublishRule, QuorumRule, Study
from verticil.shared.study.states import State
from verticil.shared.study.sub_model import parse_sub_model
from verticil.wire.v1 import common_pb2, coordinator_pb2

keys, federation = service.keys, service.federation
HOUR = dt.timedelta(hours=1)
LATE = service.NOW + HOUR


def make_study(**changes: Any) -> Study:
    return dataclasses.replace(service.make_study(), quorum=QuorumRule(deadline_seconds=3600, minimum=2), **changes)  # type: ignore[arg-type]


def with_structure(**changes: Any) -> Study:
    study = make_study()
    return dataclasses.replace(study, structure=dataclasses.replace(study.structure, **changes))  # type: ignore[arg-type]


def of_two(study: Study) -> Study:
    """What the analyst would have written without south."""
    stay = ("north", "west")
    return dataclasses.replace(
        study,
        parties=stay,
        schema=Schema(variables=tuple(item for item in study.schema.variables if item.owner in stay)),
        units=tuple(unit for unit in study.units if unit.owner in stay),
        quorum=None,
    )


async def to_publication(federation, digest: bytes, names: tuple[str, ...], units: dict[str, tuple[int, ...]]) -> Path:
    parties = [federation.party(name) for name in names]
    for party in parties:
        await party.link(digest)
    for party in parties:
        await party.confirm(digest)
    for party in parties:
        for unit in units[party.name]:
            await party.upload(digest, unit)
    await parties[0].until(digest, lambda task: task.state >= State.PUBLISHED)
    return federation.node.store.study(digest).release


async def deny(party, digest: bytes) -> None:
    denial = coordinator_pb2.Denial(reason="not our purpose")
    await party.wire.report(coordinator_pb2.ReportRequest(study_digest=digest, denial=denial))


async def code_of(awaitable) -> str:
    with pytest.raises(VerticilError) as caught:
        await awaitable
    return caught.value.code


def record(federation, digest: bytes) -> StudyRecord:
    found = federation.node.catalogue.study(digest)
    assert found is not None
    return found


async def past_the_deadline(federation, digest: bytes) -> coordinator_pb2.StudyTask:
    federation.clock.now = LATE
    federation.node.changes.notify()
    return await federation.party("north").until(digest, lambda task: task.state != State.AWAITING_APPROVAL)


UNITS = {"north": (0, 1), "west": (2, 3)}


async def test_feature_32_a_sub_model_is_the_release_of_the_smaller_study(federation, keys, tmp_path: Path) -> None:
    study = make_study()
    other = service.Federation(tmp_path / "two", keys)
    other.clock.now = LATE
    async with other.node:
        digest_of_two = await other.submit(of_two(study))
        for name in UNITS:
            await other.party(name).approve(of_two(study))
        expected = await to_publication(other, digest_of_two, tuple(UNITS), UNITS)

    async with federation.node:
        digest = await federation.submit(study)
        for name in UNITS:
            await federation.party(name).approve(study)
        federation.clock.now = LATE - dt.timedelta(seconds=1)
        await federation.node.scheduler.advance(digest)
        assert (await federation.summary(digest)).state == State.AWAITING_APPROVAL
        task = await past_the_deadline(federation, digest)
        assert task.state == State.ALIGNING
        effective = canonical.from_bytes(task.effective)
        assert (effective.parties, effective.left_out) == (
            ("north", "west"),
            (LeftOut(party="south", missing="approval"),),
        )
        told = parse_sub_model(task.sub_model.body)
        assert (told.proposal_digest, told.decided_at) == (digest, LATE)
        release = await to_publication(federation, digest, tuple(UNITS), UNITS)

        # The late party is told so by name, once and for all; nothing of it is taken.
        south = federation.party("south")
        refusals = [
            await code_of(south.approve(study)),
            await code_of(south.wire.put_pseudonyms(south.list_messages(digest))),
            await code_of(south.alignment(digest)),
            await code_of(south.begin(task, 0, b"x")),
        ]
        assert refusals == ["PARTY_LEFT_OUT"] * 4
        late = await south.task(digest)
        assert (late.state, late.failure.code) == (State.FAILED, "PARTY_LEFT_OUT")
        assert "party 'south' (at the deadline it had not approved it)" in late.failure.message
        assert not late.effective
        withdrawal = coordinator_pb2.Withdrawal(reason="late")
        await deny(south, digest)  # no news any more, and no harm
        await south.wire.report(coordinator_pb2.ReportRequest(study_digest=digest, withdrawal=withdrawal))
        summary = await federation.summary(digest)
        assert summary.state == State.PUBLISHED
        assert [(p.party, p.left_out, p.failure.code) for p in summary.parties] == [
            ("north", "", ""),
            ("south", "approval", "PARTY_LEFT_OUT"),
            ("west", "", ""),
        ]

    same = ("synthetic.csv", "network.bif", "network.bifxml", "labels.json")
    assert [(release / name).read_bytes() for name in same] == [(expected / name).read_bytes() for name in same]
    model, model_of_two = (json.loads((folder / "model.json").read_bytes()) for folder in (release, expected))
    assert model.pop("parties_left_out") == [{"party": "south", "missing": "approval"}]
    for document in (model, model_of_two):
        del document["study"]
    assert model == model_of_two
    report = (release / "report.html").read_text()
    assert "This is a sub-model." in report
    assert "party &#39;south&#39; (at the deadline it had not approved it)" in report
    assert "sub-model" not in (expected / "report.html").read_text()
    assert not (expected / "proposal.json").exists()
    assert verify_release(release, ca_certificate=keys.authority).parties_left_out == ("south",)
    assert verify_release(expected, ca_certificate=keys.authority).parties_left_out == ()
    _check_that_meddling_is_seen(release, keys, tmp_path / "meddled")


def _check_that_meddling_is_seen(release: Path, keys, folder: Path) -> None:
    """Whoever signs for the miner can still not publish a sub-model that the proposal does not permit."""

    def changed(what) -> str:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(release, folder)
        manifest = json.loads((folder / "manifest.json").read_bytes())
        what(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        sign_release(folder, keys.signing["miner"], ca_certificate=keys.authority)
        with pytest.raises(GateFailed) as caught:
            verify_release(folder, ca_certificate=keys.authority)
        return caught.value.message

    def other_statement(manifest) -> None:
        body = json.loads(manifest["sub_model"]["body"])
        body["left_out"][0]["missing"] = "linkage"
        manifest["sub_model"]["body"] = json.dumps(body, sort_keys=True, separators=(",", ":"))

    def other_proposal(manifest) -> None:
        proposal = json.loads((folder / "proposal.json").read_bytes())
        del proposal["quorum"]["min"]
        data = canonical_json(proposal)
        (folder / "proposal.json").write_bytes(data)
        manifest["files"]["proposal.json"] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    assert "parties_left_out" in changed(lambda manifest: manifest.pop("parties_left_out"))
    assert "signature" in changed(other_statement)
    assert "expected the study's digest" in changed(other_proposal)


async def test_feature_32_who_approved_and_sent_no_whole_list_is_left_out(federation) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.submit(study)
        for party in federation.parties:
            await party.approve(study)
        full = (await federation.party("north").task(digest)).effective_digest
        for name in UNITS:
            await federation.party(name).link(digest)
        south = federation.party("south")
        await south.wire.put_pseudonyms(list(south.list_messages(digest))[:3])
        assert 0 < record(federation, digest).lists["south"].committed < len(south.pseudonyms.tobytes())
        federation.clock.now = LATE
        federation.node.changes.notify()
        task = await federation.party("north").until(digest, lambda task: task.effective_digest != full)
        assert canonical.from_bytes(task.effective).left_out == (LeftOut(party="south", missing="linkage"),)
        while "south" in record(federation, digest).lists:  # the decision is polled before its list is discarded
            await asyncio.sleep(0.01)
        files = federation.node.store.study(digest)
        assert {path.name for path in (files.root / "pseudonyms").iterdir()} == {"00.list", "02.list"}
        assert await code_of(south.link(digest)) == "PARTY_LEFT_OUT"
        for name in UNITS:
            await federation.party(name).confirm(digest)
        for name, units in UNITS.items():
            for unit in units:
                await federation.party(name).upload(digest, unit)
        task = await federation.party("north").until(digest, lambda task: task.state >= State.PUBLISHED)
        assert task.state == State.PUBLISHED
        assert record(federation, digest).n_common == service.N_COMMON


async def test_feature_32_a_list_that_comes_while_it_is_decided_is_deleted_too(federation, monkeypatch) -> None:
    """The last part of south's list is written between the decision and the miner's next look."""
    study = make_study()

    looked = asyncio.Event()

    async def not_now(work) -> None:
        """In place of the miner's own look, which would come in between: here it looks when the test says so."""
        looked.set()

    async with federation.node:
        digest = await federation.submit(study)
        for party in federation.parties:
            await party.approve(study)
        for name in UNITS:
            await federation.party(name).link(digest)
        south, intake = federation.party("south"), federation.node.scheduler._session.intake
        await south.wire.put_pseudonyms(list(south.list_messages(digest))[:3])
        held = record(federation, digest).lists["south"]
        monkeypatch.setattr(federation.node.scheduler, "_visit_all", not_now)
        federation.node.changes.notify()
        await looked.wait()  # one look is over before the next one begins
        died = False

        def die(step: durable.DurableStep) -> None:
            nonlocal died
            if not died and step.kind == "remove" and step.path.name == "01.part":
                died = True
                raise DataFault("DISK_FULL", "for a moment")

        with durable.watch_steps(die):
            federation.clock.now = LATE
            await federation.node.scheduler.advance(digest)
        found = record(federation, digest)
        assert (died, found.sub_model is not None, "south" in found.lists) == (True, True, True)
        data = south.pseudonyms.tobytes()
        arriving = intake.pseudonyms(found, study, "south")
        intake.append_list(arriving, sha256=held.sha256, offset=held.committed, data=data[held.committed :])
        intake.complete_list(arriving)
        await federation.node.scheduler.advance(digest)
        assert "south" not in record(federation, digest).lists
        folder = federation.node.store.study(digest).root / "pseudonyms"
        assert {path.name for path in folder.iterdir()} == {"00.list", "02.list"}


async def test_feature_32_a_party_that_commits_to_no_row_order_is_left_out(federation) -> None:
    study = make_study()
    study = dataclasses.replace(study, linkage=dataclasses.replace(study.linkage, mode="order-commitment"))
    ids = [f"person {number}" for number in range(service.N_COMMON)]
    async with federation.node:
        digest = await federation.submit(study)
        tree = order_tree(order_key(bytes(32), digest), ids)
        for party in federation.parties:
            await party.approve(study)

        def commitment(name: str) -> coordinator_pb2.ReportRequest:
            body = common_body(
                mode="order-commitment",
                study=digest,
                party=name,
                n_common=tree.n_records,
                common_sha256=tree.root,
            )
            said = common_pb2.Commitment(
                statement=federation.keys.signing[name].sign(body), n_records=tree.n_records, nodes=tree.nodes
            )
            return coordinator_pb2.ReportRequest(study_digest=digest, commitment=said)

        for name in UNITS:
            await federation.party(name).wire.report(commitment(name))
        assert record(federation, digest).n_common is None, "it waits for south"
        task = await past_linkage(federation, digest)
        assert canonical.from_bytes(task.effective).left_out == (LeftOut(party="south", missing="linkage"),)
        south = federation.party("south")
        assert await code_of(south.wire.report(commitment("south"))) == "PARTY_LEFT_OUT"
        assert record(federation, digest).commitments.keys() == {"north", "west"}
        for name in UNITS:
            party = federation.party(name)
            told = await common_of(party, digest)
            assert (told.n_common, told.common_sha256) == (tree.n_records, tree.root)
            assert len(told.statements) == 2, "of those that the study went on with"
            request = coordinator_pb2.ReportRequest(study_digest=digest, confirmed_common_sha256=tree.root)
            await party.wire.report(request)
        for name, units in UNITS.items():
            for unit in units:
                await federation.party(name).upload(digest, unit)
        task = await federation.party("north").until(digest, lambda task: task.state >= State.PUBLISHED)
        assert task.state == State.PUBLISHED
        release = federation.node.store.study(digest).release
        verified = verify_release(release, ca_certificate=federation.keys.authority)
        assert verified.common_records == service.N_COMMON


async def common_of(party, digest: bytes) -> coordinator_pb2.AlignmentPart:
    """What the miner tells of the common rows, when it has compared them."""
    while True:
        version = (await party.task(digest)).version
        try:
            return (await party.alignment(digest))[0]
        except VerticilError as error:
            assert error.code == "NOT_READY"  # noqa: PT017
            await party.poll(wait=30, known={digest: version})


async def past_linkage(federation, digest: bytes) -> coordinator_pb2.StudyTask:
    north = federation.party("north")
    full = (await north.task(digest)).effective_digest
    federation.clock.now = LATE
    federation.node.changes.notify()
    return await north.until(digest, lambda task: task.effective_digest != full)


async def test_feature_32_a_ring_that_has_begun_leaves_nobody_out(federation) -> None:
    study = make_study()
    study = dataclasses.replace(study, linkage=dataclasses.replace(study.linkage, mode="dh-psi"))
    async with federation.node:
        digest = await federation.submit(study)
        for party in federation.parties:
            await party.approve(study)
        federation.clock.now = LATE
        federation.node.changes.notify()
        task = await federation.party("north").until(digest, lambda task: task.failure.code != "")
        assert task.failure.code == "DEADLINE_PASSED"
        assert "needs the keys of all who began it" in task.failure.message


async def test_feature_32_a_denial_that_the_quorum_bears_is_an_absence(federation) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.submit(study)
        for party in federation.parties:
            if party.name != "south":
                await party.approve(study)
        await deny(federation.party("south"), digest)
        summary = await federation.summary(digest)
        assert (summary.state, summary.parties[1].waiting_for) == (State.AWAITING_APPROVAL, "denial")
        assert await code_of(federation.party("south").approve(study)) == "STUDY_DENIED"
        task = await past_the_deadline(federation, digest)
        assert canonical.from_bytes(task.effective).left_out == (LeftOut(party="south", missing="denial"),)
        await deny(federation.party("west"), digest)  # one that is in the sub-model ends it, as ever
        assert (await federation.summary(digest)).state == State.DENIED


async def test_feature_32_a_second_denial_is_more_than_the_quorum_bears(federation) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.submit(study)
        await deny(federation.party("south"), digest)
        await deny(federation.party("west"), digest)
        assert (await federation.summary(digest)).state == State.DENIED


NEEDED = {
    "required": ({"required": (("south_a", "west_a"),)}, "structure.required names 'south_a'"),
    "tiers": ({"tiers": (("north_a",), ("south_b",))}, "structure.tiers names 'south_b'"),
    "custom": ({"custom": CustomRule(target="north_a", sensitive=("south_a",))}, "structure.custom names 'south_a'"),
}


@pytest.mark.parametrize("case", NEEDED)
async def test_feature_32_a_structure_that_names_the_missing_party_fails_by_name(federation, case: str) -> None:
    changes, words = NEEDED[case]
    study = with_structure(**changes)
    async with federation.node:
        digest = await federation.submit(study)
        for name in UNITS:
            await federation.party(name).approve(study)
        task = await past_the_deadline(federation, digest)
        assert (task.state, task.failure.code) == (State.FAILED, "DEADLINE_PASSED")
        assert f"{words}, a column of party 'south'" in task.failure.message
        assert not task.effective


async def test_feature_32_too_few_is_a_named_failure(federation) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.submit(study)
        await federation.party("north").approve(study)
        task = await past_the_deadline(federation, digest)
        assert (task.state, task.failure.code) == (State.FAILED, "DEADLINE_PASSED")
        assert "1 parties would remain, fewer than quorum.min = 2" in task.failure.message


@pytest.mark.parametrize("stage", ["confirmation", "columns", "second"])
async def test_feature_32_after_the_common_list_or_a_first_decision_nobody_is_left_out(federation, stage: str) -> None:
    study = make_study()
    async with federation.node:
        digest = await federation.submit(study)
        for party in federation.parties:
            if (stage, party.name) != ("second", "south"):
                await party.approve(study)
        if stage == "second":
            assert (await past_the_deadline(federation, digest)).state == State.ALIGNING
            await federation.party("north").link(digest)
            assert (await federation.summary(digest)).deadline == f"{LATE + HOUR:%Y-%m-%dT%H:%M:%SZ}"
        else:
            for party in federation.parties:
                await party.link(digest)
            for party in federation.parties:
                if (stage, party.name) != ("confirmation", "south"):
                    await party.confirm(digest)
        federation.clock.now = LATE + HOUR
        federation.node.changes.notify()
        task = await federation.party("north").until(digest, lambda task: task.failure.code != "")
        assert (task.state, task.failure.code) == (State.FAILED, "DEADLINE_PASSED")
        why = "nobody is left out twice" if stage == "second" else "the common list is fixed"
        assert why in task.failure.message


class DiedError(BaseException):
    """A node that is no more; nothing of the project catches it."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_feature_32_a_miner_that_dies_at_the_decision_decides_once(federation, moment: str) -> None:
    """Before the commit nothing is decided, and it is decided from what is then known; after it, it stands."""
    study = make_study()

    async def prepared() -> bytes:
        async with federation.node:
            digest = await federation.submit(study)
            for name in UNITS:
                await federation.party(name).approve(study)
            return digest

    digest = asyncio.run(prepared())
    federation.clock.now = LATE
    federation.node = federation.make()

    def dies(step: durable.DurableStep) -> None:
        if (step.kind, step.moment) == ("commit", moment):
            raise DiedError

    with durable.watch_steps(dies), pytest.raises(DiedError):
        federation.node.scheduler._update_state(digest)
    federation.node.close()
    federation.node = federation.make()
    decided = record(federation, digest)
    assert (decided.sub_model is not None) == bool(decided.effective_digest) == (moment == "after")
    if moment == "before":
        # The missing approval has come in the meantime: nobody is left out.
        federation.clock.now = LATE - dt.timedelta(seconds=1)

        async def late() -> None:
            async with federation.node:
                await federation.party("south").approve(study)

        asyncio.run(late())
        federation.node = federation.make()
        assert record(federation, digest).sub_model is None
        assert canonical.from_bytes(record(federation, digest).effective).parties == study.parties
    else:
        federation.clock.now = LATE + dt.timedelta(minutes=1)
        federation.node.scheduler._update_state(digest)
        again = record(federation, digest)
        assert (again.sub_model, again.effective) == (decided.sub_model, decided.effective)
        assert again.failure is None


def test_feature_32_a_part_that_comes_while_it_is_decided_is_not_left_out(federation) -> None:
    study = make_study()

    async def prepared() -> bytes:
        async with federation.node:
            digest = await federation.submit(study)
            for name in UNITS:
                await federation.party(name).approve(study)
            return digest

    digest = asyncio.run(prepared())
    federation.node = federation.make()
    stale = record(federation, digest)
    federation.node.catalogue.add_approval(digest, "south", next(iter(stale.approvals.values())))
    statement = next(iter(stale.approvals.values()))
    absences = federation.node.catalogue.absences
    assert not absences.decide(
        digest, version=stale.version, effective=b"{}", digest=b"e" * 32, statement=statement, at="2026-11-21T10:00:00Z"
    )
    assert record(federation, digest).sub_model is None


def test_feature_32_what_is_accepted_while_the_deadline_passes_is_not_missing(federation, monkeypatch) -> None:
    """The clock is asked before the record is read: an approval that was accepted before it answers is in the record."""
    study = dataclasses.replace(service.make_study(), quorum=QuorumRule(deadline_seconds=3600))

    async def prepared() -> bytes:
        async with federation.node:
            digest = await federation.submit(study)
            for party in federation.parties:
                if party.name != "south":
                    await party.approve(study)
            return digest

    digest = asyncio.run(prepared())
    federation.node = federation.make()
    session, catalogue = federation.node.scheduler._session, federation.node.catalogue
    statement = next(iter(record(federation, digest).approvals.values()))

    def accepted_meanwhile() -> dt.datetime:
        catalogue.add_approval(digest, "south", statement)
        return LATE

    monkeypatch.setattr(session, "clock", accepted_meanwhile)
    assert not at_deadline(session, session.record(digest))
    found = record(federation, digest)
    assert (found.failure, found.sub_model, "south" in found.approvals) == (None, None, True)


def test_feature_32_countersignatures_fit_into_the_smallest_sub_model() -> None:
    canonical.from_bytes(canonical.to_bytes(make_study(publish=PublishRule(quorum=2))))
    with pytest.raises(VerticilError, match=r"publish\.quorum"):
        canonical.from_bytes(canonical.to_bytes(make_study(publish=PublishRule(quorum=3))))

"""What a site records, and what it can take back: parties and miner in one process, on their real folders and databases.

Features 2, 5, 6, 19, 24 and 36 of the list of features, each in the test that bears its number. Messages go through the in-memory
transport; learning idles, and where a study is to be published that fact is written into the miner's catalogue.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.daemons import IdleLearning
from verticil.cli.main import main
from verticil.miner.config import load_miner
from verticil.miner.scheduler.retention import purge
from verticil.miner.service.node import MinerNode
from verticil.miner.storage.catalogue import Catalogue
from verticil.party.config import PartyConfig, load_party
from verticil.party.daemon import run_party
from verticil.party.operator import commands, reports
from verticil.party.protocol.context import StudyContext
from verticil.party.site import Site
from verticil.shared.core.errors import DataFault, PeerFault, Refusal
from verticil.shared.documents.record import encode
from verticil.shared.documents.view_models import document
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import load_credentials, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.release.formats.deletion import parse_deletion
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.simulation.provision import DEMO_LIMITS, Provisioned, csv_site, provision
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

PEOPLE = 600
STUDY = """schema = 1
id = "trial"
title = "A trial"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "north"
[[party]]
name = "south"
[linkage]
minimum_common_records = 100
[[variable]]
party = "north"
name = "sex"
categories = ["f", "m"]
[[variable]]
party = "north"
name = "smoker"
categories = ["no", "yes"]
[[variable]]
party = "south"
name = "region"
categories = ["a", "b", "c"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[structure]
method = "genetic"
seed = 1
"""


class Line(InMemoryCoordinator):
    """A party's connection; `hold` lets an upload stand still after its first chunk, as a line does that is too slow."""

    hold = False
    waiting = asyncio.Event()
    ended = asyncio.Event()

    async def put_chunks(self, chunks: Any) -> common_pb2.ChunkAck:
        if not type(self).hold:
            return await super().put_chunks(chunks)

        async def stuck() -> AsyncIterator[common_pb2.Chunk]:
            try:
                for chunk in chunks:
                    yield chunk
                    if self._identity.name == "north":
                        type(self).waiting.set()
                    await asyncio.Event().wait()
            finally:
                if self._identity.name == "north":
                    type(self).ended.set()

        async with contextlib.aclosing(stuck()) as stream:
            return await super().put_chunks(stream)


class Federation:
    """Two party folders and a miner's, the daemons among them that were started, and the miner's clock."""

    def __init__(self, made: Provisioned, tables: Path) -> None:
        self.made, self.tables = made, tables
        self.line: Any = type("Line", (Line,), {"waiting": asyncio.Event(), "ended": asyncio.Event()})
        self.miner = load_miner(made.miner / "miner.toml")
        self.now: dt.datetime | None = None
        self.node: MinerNode
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def clock(self) -> dt.datetime:
        return self.now or utc_now()

    def write(self, people: range) -> None:
        rows = {
            "north": "id,sex,smoker\n"
            + "".join(f"person-{n},{'fm'[n % 2]},{('no', 'yes')[n % 3 // 2]}\n" for n in people),
            "south": "id,region\n" + "".join(f"person-{n},{'abc'[n % 3]}\n" for n in people),
        }
        for name, text in rows.items():
            (self.tables / f"{name}.csv").write_text(text)

    def config(self, name: str, **policy: str) -> PartyConfig:
        path = self.made.parties[name] / "party.toml"
        for key, value in policy.items():
            lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key} = ")]
            lines.insert(lines.index("[policy]") + 1, f"{key} = {value}")
            path.write_text("\n".join(lines) + "\n")
        return load_party(path)

    async def start_miner(self, *, accept_older: bool = False) -> None:
        credentials = load_credentials(self.miner.certificate, self.miner.key, self.miner.federation)
        self.node = MinerNode(
            self.miner.state_directory,
            identity=credentials.identity,
            authority=credentials.ca_pem,
            signer=SigningKey.load(self.miner.signing_key, self.miner.certificate),
            executor=IdleLearning(),
            limits=self.miner.limits,
            randomized_days=self.miner.randomized_days,
            clock=self.clock,
            accept_older=accept_older,
        )
        await self.node.__aenter__()

    def start(self) -> None:
        self._stop = asyncio.Event()
        for name in self.made.parties:
            identity = Identity(federation="trial", role=Role.PARTY, name=name)

            def dial(identity: Identity = identity) -> InMemoryCoordinator:
                return self.line(self.node.coordinator, identity)

            self._tasks.append(asyncio.create_task(run_party(self.config(name), dial, stop=self._stop)))

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)
        self._tasks = []

    async def close(self) -> None:
        await self.stop()
        await self.node.__aexit__(None, None, None)

    def control(self) -> InMemoryControl:
        return InMemoryControl(self.node.control, Identity(federation="trial", role=Role.ANALYST, name="lee"))

    async def submit(self, study_id: str = "trial", text: str = STUDY) -> bytes:
        path = self.made.analyst / "study.toml"
        path.write_text(text.replace('"trial"', f'"{study_id}"'))
        request = control_pb2.SubmitStudyRequest(proposal=to_bytes(read_study(path)))
        return (await self.control().submit_study(request)).study_digest

    async def until(self, digest: bytes, done: Callable[[control_pb2.StudySummary], bool]) -> control_pb2.StudySummary:
        version = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                request = control_pb2.GetStudyRequest(study_digest=digest, known_version=version, wait_seconds=5)
                study = (await self.control().get_study(request)).study
                if done(study):
                    return study
                version = study.version

    async def in_state(self, digest: bytes, state: State) -> control_pb2.StudySummary:
        return await self.until(digest, lambda study: study.state == state)

    async def noticed(self, name: str, holds: Callable[[Site], bool]) -> None:
        """Wait until a party's database says so."""
        with Site.open(self.config(name)) as site:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await asyncio.to_thread(holds, site):
                    await asyncio.sleep(0.01)

    def columns(self, digest: bytes) -> list[str]:
        folder = self.node.store.study(digest).root / "columns"
        return sorted(path.name for path in folder.glob("*"))


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    tables = tmp_path / "tables"
    tables.mkdir()
    made = provision(
        tmp_path / "nodes",
        federation="trial",
        sites=[csv_site(name, tables / f"{name}.csv") for name in ("north", "south")],
        limits=DEMO_LIMITS,
        endpoint="localhost:1",
        listen="127.0.0.1:0",
        hosts=("localhost",),
    )
    found = Federation(made, tables)
    found.write(range(PEOPLE))
    await found.start_miner()
    yield found
    await found.close()


async def finish(federation: Federation, digest: bytes) -> None:
    """Let the study come to its last receipt."""
    await federation.in_state(digest, State.ESTIMATING)
    for name in federation.made.parties:
        await federation.noticed(name, lambda site: _receipted(site, digest))


def _receipted(site: Site, digest: bytes) -> bool:
    record = site.state.study(digest)
    items = site.state.artifacts(digest, record.task.effective_digest)
    return bool(items) and all(item.receipt is not None for item in items.values())


def entries(federation: Federation, name: str, what: str) -> list[Any]:
    lines = reports.audit_entries(federation.config(name)).entries
    return [dict(line.said) for line in lines if line.text("event") == what]


async def test_features_2_5_6_and_19_the_ledger_and_the_log_of_a_study(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    first = await federation.submit()
    federation.start()
    await finish(federation, first)
    again = await federation.submit("again")
    await finish(federation, again)
    await federation.stop()
    config = federation.config("north")
    facts = reports.ledger(config)
    rows: Any = facts.rows

    # 5: a second study with the same columns and matrices sends the same bytes, and 6: they are charged once.
    assert [(row.study, row.columns, row.charged) for row in rows] == [
        ("trial", ("sex",), pytest.approx(2.0)),
        ("trial", ("smoker",), pytest.approx(2.0)),
        ("again", ("sex",), 0.0),
        ("again", ("smoker",), 0.0),
    ]
    (people,) = facts.datasets
    assert (people.epsilon_spent, people.epsilon_remaining) == (pytest.approx(4.0), pytest.approx(36.0))
    # In another study the people stand in another order, so the same values are other bytes: compared by person.
    assert released(federation, first, "north") == released(federation, again, "north")

    # 19: who did what, to whom, with the digest of what the miner signed.
    log = [line.said for line in reports.audit_entries(config).entries]
    kinds = [entry["event"] for entry in log if entry.get("study_id") == "trial"]
    order = ["study-seen", "vote", "approval", "alignment", "randomized", "randomized"]
    assert kinds == [*order, "send", "receipt", "send", "receipt"]
    for sent, receipt in zip(
        entries(federation, "north", "send"), entries(federation, "north", "receipt"), strict=True
    ):
        assert sent["sha256"] == receipt["sha256"]
        assert sent["recipient"] == "miner"
        record = federation.node.catalogue.study(bytes.fromhex(sent["study"]))
        assert record is not None
        stored = record.columns[0 if sent["columns"] == ["sex"] else 1]
        assert stored.artifact_sha256.hex() == sent["sha256"]
        assert receipt["peer_event"] == _sha256(stored.receipt.body)

    # 2: no value of the table, no id, in any of it.
    written = (config.state_directory / "audit.jsonl").read_text()
    assert "person-" not in written
    assert json.dumps(document(facts)).count("person-") == 0

    # The commands say the same.
    party_toml = str(config.path)
    assert main(["party", "ledger", "--config", party_toml, "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 4
    assert main(["party", "audit", "verify", "--config", party_toml, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["lines"] == len(log)
    path = config.state_directory / "audit.jsonl"
    lines = path.read_bytes().split(b"\n")
    number = entries(federation, "north", "send")[0]["n"]
    lines[number - 1] = lines[number - 1].replace(b'"send"', b'"sent"')
    path.write_bytes(b"\n".join(lines))
    assert main(["party", "audit", "verify", "--config", party_toml, "--format", "json"]) == 6
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "AUDIT_BROKEN"
    assert f"line {number}: it was changed" in error["message"]


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def released(federation: Federation, digest: bytes, name: str) -> dict[str, list[int]]:
    """What the miner has of each of a party's variables, by person: the randomized codes in the order of the site's tags."""
    import numpy as np

    from verticil.party.dataset.pseudonyms import common_from_bitmap
    from verticil.shared.storage.sorting import ascending

    with Site.open(federation.config(name)) as site:
        record = site.state.study(digest)
        holding = site.read(record)
    everyone = np.full((len(holding.pseudonyms) + 7) // 8, 255, dtype=np.uint8).tobytes()
    assert record.common_sha256 is not None
    rows = common_from_bitmap(
        holding.pseudonyms,
        everyone,
        expected_sha256=record.common_sha256,
        n_common=PEOPLE,
        minimum=1,
    )
    found = {}
    for unit, variable in enumerate(("sex", "smoker")):
        codes = np.fromfile(federation.node.store.study(digest).column(unit, 1), dtype=np.uint8)
        found[variable] = codes[ascending(holding.tags[rows], 14)].tolist()
    return found


async def test_feature_6_over_budget_is_refused_before_randomizing(federation: Federation) -> None:
    """The budget shrinks after the approval: nothing is drawn, nothing sent, and the ledger stays empty."""
    federation.config("north", max_epsilon_lifetime="3.0")
    digest = await federation.submit()
    federation.start()
    study = await federation.in_state(digest, State.FAILED)
    await federation.stop()
    assert study.failure.code == "BUDGET_EXCEEDED"
    assert "data set 'people': epsilon 4 on top of what was charged before, expected at most 3" in study.failure.message
    assert reports.ledger(federation.config("north")).rows == ()
    kinds = [line.text("event") for line in reports.audit_entries(federation.config("north")).entries]
    assert "randomized" not in kinds
    assert [entry["detail"] for entry in entries(federation, "north", "failure")] == ["BUDGET_EXCEEDED"]
    assert not any((federation.made.parties["north"] / "state" / "spool").iterdir())


async def test_feature_6_what_has_no_bound_is_named(federation: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    federation.config("north", allow_infinite='["smoker"]')
    digest = await federation.submit(text=STUDY + '[[randomization]]\nvariables = ["smoker"]\nscheme = "none"\n')
    federation.start()
    await finish(federation, digest)
    (people,) = reports.ledger(federation.config("north")).datasets
    assert (people.epsilon_spent, people.infinite) == (pytest.approx(2.0), ("smoker",))
    assert main(["party", "ledger", "--config", str(federation.config("north").path)]) == 0
    shown = capsys.readouterr().out
    assert "besides, without any bound: smoker" in shown
    assert "∞" in shown


async def test_feature_24_a_revocation_stops_the_transfer_and_the_miner_signs_the_deletion(
    federation: Federation,
) -> None:
    federation.line.hold = True
    digest = await federation.submit()
    federation.start()
    await asyncio.wait_for(federation.line.waiting.wait(), PATIENCE_SECONDS)
    config = federation.config("north")
    assert not federation.line.ended.is_set()  # it stands still until it is stopped
    # Another process would do this: it opens the site's database on its own.
    said = await asyncio.to_thread(reports.revoke, config, "trial", "demo@north", "consent withdrawn")
    assert (said.revoked, said.told, said.deletion) == (True, False, None)
    study = await federation.in_state(digest, State.WITHDRAWN)
    assert study.failure.code == "STUDY_WITHDRAWN"
    assert study.failure.message == "revoked by party 'north': consent withdrawn"
    (north, south) = study.parties
    assert (north.revocation_reason, bool(north.revoked_at), south.revoked_at) == ("consent withdrawn", True, "")

    await federation.noticed("north", lambda site: site.revocations.deletion(digest) is not None)
    assert federation.line.ended.is_set()
    root = federation.node.store.study(digest).root
    assert not [path for path in root.rglob("*") if path.is_file()]
    again = reports.revoke(config, "trial", "demo@north", "another reason")
    assert (again.reason, again.told, again.columns_sent) == ("consent withdrawn", True, 1)
    assert again.deletion.why == "revoked"
    await federation.noticed("south", lambda site: site.state.study(digest).task.state == State.WITHDRAWN)
    assert not any((config.state_directory / "spool").iterdir())
    with pytest.raises(Refusal, match="revoked here"):
        commands.approve(config, "trial", "demo@north")
    kinds = [line.text("event") for line in reports.audit_entries(config).entries][-3:]
    assert kinds == ["revocation", "transfer-stopped", "deletion"]


async def test_feature_24_a_published_study_is_flagged_and_its_columns_are_deleted(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = await federation.submit()
    federation.start()
    await finish(federation, digest)
    federation.node.catalogue.publish(digest, [], at="2026-11-21T10:00:00Z")
    federation.node.changes.notify()
    for name in federation.made.parties:
        await federation.noticed(name, lambda site: site.state.study(digest).task.state == State.PUBLISHED)
    assert federation.columns(digest) == ["000.u8", "001.u8", "002.u8"]
    config = federation.config("south")
    # Killed right after the decision: the daemon that starts next tells it.
    await federation.stop()
    arguments = ["party", "revoke", "trial", "--reason", "too late", "--as", "demo@south", "--config", str(config.path)]
    assert main(arguments) == 0
    assert "copies of it cannot be recalled" in capsys.readouterr().out
    federation.start()
    study = await federation.until(digest, lambda found: found.parties[1].revoked_at != "")
    assert study.state == State.PUBLISHED
    for name, n_columns in (("south", 1), ("north", 2)):
        await federation.noticed(name, lambda site: site.revocations.deletion(digest) is not None)
        with Site.open(federation.config(name)) as site:
            said = site.revocations.deletion(digest)
            held = {row.sha256 for row in reports.ledger(federation.config(name)).rows}
        assert said is not None
        assert {sha256.hex() for sha256 in said.artifacts.values()} == held
        assert (len(said.artifacts), said.why, said.party) == (n_columns, "revoked", name)
    assert federation.columns(digest) == []
    from verticil.shared.pages.study_status import revocations

    (line,) = revocations(study)
    assert line.endswith("too late; what was published cannot be recalled")
    assert line.startswith("revoked by south on 20")
    assert main(arguments) == 0
    assert "signed that it deleted 1 columns" in capsys.readouterr().out


async def test_a_statement_of_a_deletion_that_does_not_hold_is_refused_and_written_down(federation: Federation) -> None:
    digest = await federation.submit()
    federation.start()
    await finish(federation, digest)
    await federation.stop()
    federation.node.catalogue.withdraw(digest)
    federation.node.changes.notify()
    await federation.until(digest, lambda _: "south" in federation.node.session.record(digest).deletions)
    assert not federation.columns(digest)
    record = federation.node.session.record(digest)
    (body,) = [item.body for name, item in record.deletions.items() if name == "south"]
    said = parse_deletion(body)
    assert said.why == "ended"
    config = federation.config("south")
    miner = SigningKey.load(federation.miner.signing_key, federation.miner.certificate)
    north = SigningKey.load(federation.config("north").signing_key, federation.config("north").certificate)
    authority = (federation.made.ca_certificate).read_bytes()
    import dataclasses

    with Site.open(config) as site:
        for signed in (
            north.sign(body),
            miner.sign(encode(dataclasses.replace(said, party="north"))),
            miner.sign(encode(dataclasses.replace(said, artifacts={}))),
            miner.sign(encode(dataclasses.replace(said, artifacts=dict.fromkeys(said.artifacts, bytes(32))))),
            miner.sign(b"{}"),
            common_pb2.Signed(body=body, signature=b"x" * 64, certificate=miner.certificate),
        ):
            site.revocations.take_deletion(digest, "trial", signed, authority=authority, at=utc_now())
            assert site.revocations.deletion(digest) is None
        details = [entry["detail"] for entry in entries(federation, "south", "refused")]
        codes = ["IDENTITY_REFUSED", "STUDY_MISMATCH", "MESSAGE_INVALID"]  # each once a day
        assert details == [f"deletion: {code}" for code in codes]
        site.revocations.take_deletion(digest, "trial", miner.sign(body), authority=authority, at=utc_now())
        assert site.revocations.deletion(digest) == said


async def test_what_was_not_approved_cannot_be_revoked(federation: Federation) -> None:
    with pytest.raises(Refusal, match="has not approved it, so there is nothing to take back"):
        await _loaded(federation)


async def _loaded(federation: Federation) -> None:
    config = federation.config("north")
    digest = await federation.submit()
    (task,) = (
        await InMemoryCoordinator(
            federation.node.coordinator, Identity(federation="trial", role=Role.PARTY, name="north")
        ).poll(coordinator_pb2.PollRequest())
    ).tasks
    assert task.study_digest == digest
    from verticil.party.storage.studies import Task

    with Site.open(config) as site:
        told = Task(
            digest=digest,
            version=1,
            state=task.state,
            proposal=task.proposal,
            effective=b"",
            effective_digest=b"",
            approved=False,
            pseudonyms_complete=False,
            alignment_confirmed=False,
            units_received=(),
            failure="",
        )
        site.state.remember(told, "trial", utc_now())
    reports.revoke(config, "trial", "demo@north", "no")


async def test_feature_36_randomized_columns_go_after_the_days_of_retention(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = await federation.submit()
    federation.start()
    await finish(federation, digest)
    published = federation.clock().replace(microsecond=0)
    federation.node.catalogue.publish(digest, [], at=f"{published:%Y-%m-%dT%H:%M:%SZ}")
    config = str(federation.made.miner / "miner.toml")
    due = published + dt.timedelta(days=30)

    federation.now = due - dt.timedelta(seconds=1)
    await federation.node.scheduler.advance(digest)
    assert len(federation.columns(digest)) == 3
    assert main(["miner", "purge", "--dry-run", "--config", config, "--format", "json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert (item["what"], item["bytes"], item["is_due"], item["due"]) == ("columns", 3 * PEOPLE, False, due.isoformat())
    (listed,) = purge(federation.miner, dry_run=True, clock=lambda: due)
    assert listed.is_due
    assert main(["miner", "purge", "--config", config, "--format", "json"]) == 1  # the miner runs
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "STATE_LOCKED"

    federation.now = due
    federation.node.changes.notify()
    await federation.until(digest, lambda _: not federation.columns(digest))
    await federation.noticed("north", lambda site: site.revocations.deletion(digest) is not None)
    (line,) = entries(federation, "north", "deletion")
    assert line["detail"] == "2 columns deleted: retention"
    assert purge(federation.miner, dry_run=True) == ()


async def test_feature_36_a_stopped_miner_can_be_purged(federation: Federation) -> None:
    digest = await federation.submit()
    federation.start()
    await finish(federation, digest)
    federation.node.catalogue.publish(digest, [], at="2026-11-21T10:00:00Z")
    await federation.close()
    stranger = federation.miner.state_directory / "studies" / ("ab" * 32)
    stranger.mkdir()
    (stranger / "left").write_bytes(b"12345")
    later = dt.datetime(2026, 12, 22, tzinfo=dt.UTC)
    with pytest.raises(DataFault, match="does not know 1 studies that have a folder") as caught:
        purge(federation.miner, dry_run=False, clock=lambda: later)
    assert caught.value.code == "CATALOGUE_OLDER"
    await federation.start_miner(accept_older=True)  # it is the operator's word that ends what was forgotten
    await federation.close()
    gone = purge(federation.miner, dry_run=False, clock=lambda: later)
    assert {(item.what, item.size) for item in gone} >= {("columns", 3 * PEOPLE), ("folder", 5)}
    assert not stranger.exists()
    assert federation.columns(digest) == []
    assert purge(federation.miner, dry_run=False, clock=lambda: later) == ()
    await federation.start_miner()
    assert set(federation.node.session.record(digest).deletions) == {"north", "south"}


async def test_feature_36_no_room_is_said_up_front(federation: Federation) -> None:
    """The quota is checked against what was promised, before the first byte."""
    federation.node.store._quota = 3 * 16 * PEOPLE  # lists and columns of two parties need more than this
    digest = await federation.submit()
    federation.start()
    identity = Identity(federation="trial", role=Role.PARTY, name="north")
    await federation.in_state(digest, State.PREPARING)
    await federation.stop()
    federation.node.store._quota = 2 * 16 * PEOPLE
    record = federation.node.session.record(digest)
    line = InMemoryCoordinator(federation.node.coordinator, identity)
    request = coordinator_pb2.BeginUploadRequest(
        effective_digest=record.effective_digest, unit=0, size=16 + PEOPLE // 8, sha256=bytes(32)
    )
    with pytest.raises(PeerFault, match=r"limits\.max_bytes_per_study") as caught:
        await line.begin_upload(request)
    assert caught.value.code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("rule", ["warn", "refuse"])
async def test_a_study_about_nearly_the_same_people_is_noticed(federation: Federation, rule: str) -> None:
    federation.config("north", on_small_difference=f'"{rule}"', on_data_change='"sticky"')
    federation.config("south", on_data_change='"sticky"', minimum_difference="0")
    first = await federation.submit()
    federation.start()
    await finish(federation, first)
    federation.write(range(7, PEOPLE))
    second = await federation.submit("second")
    if rule == "warn":
        await finish(federation, second)
        with Site.open(
            federation.config("north")
        ) as site:  # as when an older answer of the miner crosses the confirmation
            record = site.state.study(second)
            lines = len(list(site.audit.entries()))
            holding = site.read(record)
            again = (holding, holding.everyone, record.common_sha256)
            node = SimpleNamespace(site=site, clock=utc_now)
            StudyContext(node=node, record=record, agreed=None, data=None).accept_people(*again)
            assert len(list(site.audit.entries())) == lines
    else:
        failure = (await federation.in_state(second, State.FAILED)).failure
        assert failure.code == "COMMON_SET_TOO_SIMILAR"
        assert failure.message == "party 'north': its people in this study are too nearly those of an earlier one"
        assert {row.study for row in reports.ledger(federation.config("north")).rows} == {"trial"}
    (line,) = entries(federation, "north", "similar-people")
    text = f"fewer than 100 people are in only one of this study and trial ({first.hex()[:12]})"
    assert line["detail"] == f"{rule}: {text}"
    warnings = commands.status(federation.config("north")).warnings
    assert len(warnings) == (rule == "warn")
    assert commands.status(federation.config("south")).warnings == ()


async def test_a_miner_killed_between_deleting_and_saying_so_deletes_and_says_so_again(federation: Federation) -> None:
    digest = await federation.submit()
    federation.start()
    await finish(federation, digest)
    await federation.close()
    catalogue = federation.node.store.root / "catalogue.sqlite"
    with contextlib.closing(Catalogue(catalogue)) as opened:
        for _ in range(2):  # told twice is told once
            opened.deletions.revoke(digest, "north", "consent withdrawn", "2026-11-21T10:00:00Z", ends=True)
    federation.node.store.study(digest).remove_columns()  # and then the machine went down
    await federation.start_miner()
    study = await federation.in_state(digest, State.WITHDRAWN)
    assert study.parties[0].revocation_reason == "consent withdrawn"
    federation.start()
    for name, n_columns in (("north", 2), ("south", 1)):
        await federation.noticed(name, lambda site: site.revocations.deletion(digest) is not None)
        (line,) = entries(federation, name, "deletion")
        assert line["detail"] == f"{n_columns} columns deleted: revoked"

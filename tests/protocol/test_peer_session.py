"""Model I between three parties in one event loop: a whole study, what each refuses, and what survives being stopped anywhere.

Most tests drive the parties' studies step by step, in turns, so that nothing waits; between them stands `Wire`, which keeps every
call and can break or falsify answers. The last ones run whole daemons. Waiting is on conditions, never for a time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import errno
import functools
import hashlib
import json
import math
import os
import shutil
from pathlib import Path

import pytest
from cryptography import x509

from support import PATIENCE_SECONDS, peer_session
from support.peer_session import ISSUED, LEARNED, N_COMMON, NAMES, NOW, READ, STUDY, Federation, Network, Wire
from verticil.cli.main import main
from verticil.miner.config import ServiceLimits
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.party import daemon
from verticil.party.operator import commands, peer_commands, reports
from verticil.party.operator.view_model import Confirmation
from verticil.party.policy.ledger import Ledger
from verticil.party.policy.rule_approval import ruling
from verticil.party.protocol.node.confirmations import collect_confirmations
from verticil.party.protocol.node.service import PeerService
from verticil.party.protocol.peer.study import PeerStudy
from verticil.party.protocol.with_peers import context
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.party.protocol.with_peers.publication import release_folder
from verticil.party.site import Site
from verticil.party.storage.database import Database
from verticil.party.storage.studies import PartyState
from verticil.pki.register import revoke
from verticil.shared.core.errors import Misuse, PeerFault, Refusal, VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.authority import issue, open_authority
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import read_certificates
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.revocation import DenyList
from verticil.shared.federation.transport.authorization import NOT_LET_IN
from verticil.shared.federation.transport.in_memory import InMemoryCoordinator, InMemoryPeer
from verticil.shared.numerics.model import artifact
from verticil.shared.release.formats.deletion import parse_peer_deletion
from verticil.shared.release.verification import verify_release
from verticil.shared.storage import durable
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.canonical import from_bytes
from verticil.shared.study.peer import scored_pairs
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.shared.study.structure_document import given_structure
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

exchanging, make, pki, published = peer_session.exchanging, peer_session.make, peer_session.pki, peer_session.published


async def test_all_publish_the_same_release(published, tmp_path):
    for name in NAMES:
        assert (published.record(name).task.state, published.stage(name)) == (State.PUBLISHED, "published")
        assert published.record(name).n_common == N_COMMON
    manifests = published.manifests()
    assert len(set(manifests.values())) == 1
    authority = (published.pki / "ca" / "ca.crt").read_bytes()
    for name in NAMES:
        out = tmp_path / "out" / name / "release"
        peer_commands.take_release(published.config(name), "peers", out)
        assert verify_release(out, ca_certificate=authority).common_records == N_COMMON
        assert (out.parent / "ca.crt").read_bytes() == authority
        assert len(json.loads((out / "manifest.sig").read_text())["signatures"]) == 3
        with pytest.raises(Misuse, match="exists already"):
            peer_commands.take_release(published.config(name), "peers", out)
    (study,) = commands.status(published.config("west"), at=NOW).studies
    assert (study.state, study.stage, study.failure) == ("published", "published", None)


async def test_cross_parents_reach_only_their_readers(published):
    pulled = {(unit, caller) for caller, _, rpc, unit in published.calls if rpc == "get_column"}
    assert pulled == READ
    study = read_study(published.study_file)
    for name in NAMES:
        rows = published.ledger(name)
        columns = [row for row in rows if row.recipient != "everyone"]
        expected = {(study.units[unit].variables, reader) for unit, reader in READ if study.units[unit].owner == name}
        assert {(row.variables, row.recipient) for row in columns} == expected
        assert [row.charged for row in columns] == [2.0] * len(expected)
        (shared,) = [row for row in rows if row.recipient == "everyone"]
        assert shared.epsilon == shared.charged == math.inf  # exact parameters, permitted and recorded as such
    with Database(published.root / "west" / "state") as database:
        assert database.rows("SELECT unit FROM ledger") == [(None,)]  # a local-only party sends no column


async def test_a_party_that_published_keeps_its_signature_and_nothing_else(published):
    for name, party in published.parties.items():
        assert {kind for kind, _ in party.store.items(published.digest)} == {Kind.SIGNATURE}
        assert list((published.root / name / "state" / "spool").iterdir()) == []


async def test_stopped_after_each_step_the_parties_reach_the_same_release(published, make):
    other = make("two")
    other.load()
    other.open()
    kills = 0

    def kill() -> None:
        nonlocal kills
        kills += 1
        other.reopen()

    await other.run(after_step=kill)
    assert kills > 20
    assert other.manifests() == published.manifests()


async def test_every_call_may_break_once(published, make):
    other = make("two")
    other.load()
    other.open()
    broken: set[tuple[str, str, str]] = set()

    def break_first(caller: str, name: str, rpc: str) -> None:
        if (caller, name, rpc) not in broken:
            broken.add((caller, name, rpc))
            raise PeerFault("UNREACHABLE", "the connection was lost")

    other.before = break_first
    for _ in range(len(NAMES) ** 2 * 6):
        await other.run()
    assert other.manifests() == published.manifests()


async def _until_columns_are_read(federation: Federation, broken: str) -> Path:
    """Let the parties come as far as that; a backup of south's state."""
    federation.load()
    federation.open()
    _break(federation, broken)
    await federation.run()
    federation.close()
    backup = federation.root / "backup"
    shutil.copytree(federation.root / "south" / "state", backup)
    return backup


def _break(federation: Federation, broken: str) -> None:
    def before(caller: str, name: str, rpc: str) -> None:
        if rpc == broken:
            raise PeerFault("UNREACHABLE", "broken off")

    federation.before = before


async def _restore(federation: Federation, backup: Path) -> None:
    federation.close()
    shutil.rmtree(federation.root / "south" / "state")
    shutil.copytree(backup, federation.root / "south" / "state")
    federation.now += dt.timedelta(hours=1)
    federation.before = lambda caller, name, rpc: None
    federation.open()
    await federation.run()


@pytest.mark.parametrize("broken", ["get_pseudonyms", "get_column", "get_parameters"])
async def test_a_party_restored_from_a_backup_goes_on_with_what_it_told_before(make, broken):
    federation = make()
    backup = await _until_columns_are_read(federation, broken)
    federation.open()
    _break(federation, "get_signature")
    await federation.run()
    assembled = federation.manifests()
    assert set(assembled) == set(NAMES)
    await _restore(federation, backup)
    assert [federation.stage(name) for name in NAMES] == ["published"] * len(NAMES)
    assert federation.manifests() == assembled


async def test_a_party_restored_when_the_others_have_published_is_told_so(make):
    federation = make()
    backup = await _until_columns_are_read(federation, "get_column")
    federation.open()
    federation.before = lambda caller, name, rpc: None
    await federation.run()
    await _restore(federation, backup)
    failure = federation.record("south").failure
    assert failure is not None
    assert failure.code == "STUDY_MISMATCH"
    assert "'peers' is published, and what was made for it is dropped" in failure.message
    assert "backup" in failure.hint
    assert {federation.stage(name) for name in ("north", "west")} == {"published"}


async def test_a_study_that_has_ended_is_not_loaded_again(make):
    federation = make(policy="")
    federation.load()
    federation.open()
    await federation.run()
    with pytest.raises(Misuse, match="has ended here: failed: POLICY_REFUSED") as caught:
        federation.load("north")
    assert caught.value.code == "STUDY_EXISTS"
    assert "a new id" in caught.value.hint


async def test_two_studies_with_one_id_are_refused(published):
    published.study_file.write_text(STUDY.replace('title = "Peers"', 'title = "Others"'))
    with pytest.raises(Misuse) as caught:
        published.load("north")
    assert caught.value.code == "STUDY_EXISTS"
    published.study_file.write_text(STUDY)
    assert peer_commands.load_study(published.config("north"), published.study_file).new is False


async def test_what_cannot_be_loaded(make, tmp_path):
    federation = make()
    for changed, code in (
        (STUDY.replace('model = "peer"', 'model = "central"'), "STUDY_UNSUPPORTED"),
        (STUDY.replace("2099-12-31", "2020-01-01"), "STUDY_EXPIRED"),
        (STUDY.replace('name = "west"', 'name = "east"').replace('party = "west"', 'party = "east"'), "CONFIG_INVALID"),
    ):
        federation.study_file.write_text(changed)
        with pytest.raises(VerticilError) as caught:
            federation.load("north")
        assert caught.value.code == code
    text = (federation.root / "north" / "party.toml").read_text()
    (federation.root / "north" / "party.toml").write_text(text[: text.index("[peer]")])
    federation.study_file.write_text(STUDY)
    with pytest.raises(Misuse, match=r"\[peer\]|peer: missing"):
        federation.load("north")


# ---- who is waited for


async def test_who_is_waited_for_is_named(make):
    federation = make(approval="manual")
    federation.load("north", "south")
    federation.open("north", "south")
    await federation.run()
    assert federation.stage("north") == "waiting for approval"
    commands.approve(federation.config("north"), "peers", "officer", at=NOW)
    await federation.run()
    stage = federation.stage("north")
    with pytest.raises(PeerFault, match="no release yet: waiting for 'south' to approve") as caught:
        peer_commands.take_release(federation.config("north"), "peers", federation.root / "out")
    assert caught.value.code == "NOT_READY"
    assert "waiting for 'south' to approve" in stage
    assert f"cannot reach 'west' since {NOW:%H:%M} UTC" in stage
    federation.load("west")
    federation.open("west")
    await federation.run()
    assert federation.stage("north") == "waiting for 'south' to approve; waiting for 'west' to approve"
    strict = federation.root / "south" / "party.toml"
    text = strict.read_text()
    strict.write_text(text.replace("[policy]\n", "[policy]\nmax_categories = 2\n"))
    federation.reopen()
    await federation.run()
    stage = federation.stage("north")  # at once, whoever has looked there, and nothing of the table
    assert stage.startswith("waiting for 'south' to approve; its policy does not permit it: POLICY_REFUSED: variable '")
    assert "categories, expected at most 2" in stage
    strict.write_text(text)
    federation.reopen()
    assert {rpc for _, _, rpc, _ in federation.calls} == {
        "hello",
        "get_study_digest",
    }  # nothing else before all have approved
    for name in ("south", "west"):
        commands.approve(federation.config(name), "peers", "officer", at=NOW)
    del federation.services["south"]
    await federation.parties["north"].step()
    assert "cannot reach 'south' since" in federation.stage("north")


async def test_a_peer_that_never_answers_is_named_with_what_it_is_waited_for(make):
    federation = make()
    federation.load()
    federation.open("north", "south", "west")
    silent: set[str] = set()

    def silence(caller: str, name: str, rpc: str) -> None:
        if rpc == "get_parameters" and federation.parties["north"].store.items(federation.digest).get(
            (Kind.STATEMENT, "north")
        ):
            silent.add("south")
        if name in silent:
            raise PeerFault("UNREACHABLE", "no answer")

    federation.before = silence
    await federation.run()
    unreachable = f"cannot reach 'south' since {NOW:%H:%M} UTC, waiting for the parameters (no answer)"
    assert federation.stage("north") == f"{unreachable}; waiting for the parameters from 'west'"
    assert federation.record("north").failure is None


async def test_status_tells_who_is_waited_for_why_and_since_when(make, capsys, monkeypatch):
    federation = make()
    federation.load()
    federation.open("north")

    def refuse(caller: str, name: str, rpc: str) -> None:
        if name == "south":
            raise PeerFault("TLS_REFUSED", "got west, expected south", hint="check [peers] south in federation.toml")

    federation.before = refuse
    await federation.run()
    federation.now += dt.timedelta(hours=1)
    await federation.run()
    arguments = ["party", "status", "--config", str(federation.root / "north" / "party.toml")]
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    why = "got west, expected south; check [peers] south in federation.toml"
    assert f"approved; cannot work with 'south' since {NOW:%H:%M} UTC (TLS_REFUSED: {why})" in shown
    assert f"cannot reach 'west' since {NOW:%H:%M} UTC (west: connection refused)" in shown
    assert f"(since {NOW:%Y-%m-%dT%H:%M:%SZ})" in shown
    assert "disk" not in shown
    full = shutil.disk_usage(federation.root)._replace(free=4096)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    assert main(arguments) == 0
    assert "the disk of the state directory is full (4 KiB left)" in " ".join(capsys.readouterr().out.split())
    assert main([*arguments, "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["disk_free_bytes"] == full.free
    assert facts["studies"][0]["since"] == f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    assert facts["studies"][0]["stage"] == federation.stage("north")


async def test_a_full_disk_here_is_not_taken_for_a_peers(make, monkeypatch):
    federation = make()
    federation.load()
    federation.open()
    replace = os.replace

    def full(source, target) -> None:
        if Path(target).name.startswith("column"):
            raise OSError(errno.ENOSPC, "no space left")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    await federation.run()
    failure = federation.record("south").failure  # a daemon tries again; these steps take every error for the end
    assert failure is not None
    assert failure.code == "DISK_FULL"
    assert "south" in failure.message
    assert "party 'north'" not in failure.message


async def test_other_versions_are_waited_for_with_both_shown(make):
    federation = make()
    federation.software["south"] = "verticil 9.9"
    federation.load()
    federation.open()
    await federation.run()
    assert "waiting for 'south' to run the same versions: verticil 9.9; here: verticil" in federation.stage("north")


async def test_a_study_between_peers_ends_where_its_packages_are_not_installed(make, monkeypatch):
    federation = make()
    federation.load()
    federation.open()
    monkeypatch.setattr(context, "find_spec", lambda name: None)
    await federation.run()
    failure = federation.record("north").failure
    assert failure is not None
    assert (failure.code, "pandas and scipy not installed" in failure.message) == ("CONFIG_INVALID", True)


# ---- ends


async def test_study_digests_that_disagree_are_shown_at_both(make):
    federation = make()
    right = federation.load("north", "west")
    federation.study_file.write_text(STUDY.replace("epsilon = 2.0", "epsilon = 2.5"))
    wrong = federation.load("south")
    federation.digest = right
    federation.open("north", "west")
    federation.digest = wrong
    federation.open("south")
    await federation.run()
    for name in ("north", "south"):
        failure = federation.record(name).failure
        assert failure is not None
        assert failure.code == "STUDY_MISMATCH"
        assert right.hex() in failure.message
        assert wrong.hex() in failure.message
    assert {rpc for _, _, rpc, _ in federation.calls} == {"hello", "get_study_digest"}


class Equivocator:
    """Answers as the party does, but has another approval for one of its peers."""

    def __init__(self, service: PeerService, deceived: str, signed: common_pb2.Signed) -> None:
        self._service = service
        self._deceived = deceived
        self._signed = signed

    def __getattr__(self, name):
        return getattr(self._service, name)

    async def GetStudyDigest(self, identity, request):  # noqa: N802 (the wire's name)
        reply = await self._service.GetStudyDigest(identity, request)
        if identity.name == self._deceived and reply.HasField("approval"):
            reply.approval.CopyFrom(self._signed)
        return reply


async def test_a_peer_that_approves_one_thing_here_and_another_there_is_found(make):
    other = make("other", approval="manual")
    other.load("south")
    path = other.root / "south" / "party.toml"
    stronger = '[[randomization]]\nvariables = ["region"]\nscheme = "symmetric"\nepsilon = 1.0\n'
    path.write_text(path.read_text() + stronger)
    commands.approve(other.config("south"), "peers", "officer", at=NOW)
    other.open("south")
    federation = make()
    federation.load()
    federation.open()
    key = federation.parties["south"].work.node.signing_key
    signed = key.sign(other.record("south").approval or b"")
    federation.services["south"] = Equivocator(federation.services["south"], "west", signed)
    await federation.run()
    failures = [federation.record(name).failure for name in NAMES]
    texts = [failure.message for failure in failures if failure is not None]
    assert len(texts) == len(NAMES)
    carried_out = {federation.record(name).task.effective_digest.hex() for name in ("north", "west")}
    assert len(carried_out) == 2
    assert all(digest in text for digest in carried_out for text in texts)
    assert {failure.code for failure in failures if failure is not None} >= {"STUDY_MISMATCH"}
    assert not any(federation.ledger(name) for name in NAMES)


async def test_an_approval_whose_key_was_revoked_before_the_last_one_is_asked_for_again(make, tmp_path):
    federation = make(approval="manual")
    federation.load()
    federation.open()
    for name in ("north", "west"):
        commands.approve(federation.config(name), "peers", "officer", at=NOW)
    await federation.run()
    assert federation.parties["north"].store.items(federation.digest).keys() == {(Kind.APPROVAL, "west")}
    folder = federation.root / "west" / "pki"
    for certificate in read_certificates(folder / "west.crt"):
        revoke(open_authority(federation.pki / "ca", at=NOW), f"{certificate.serial_number:x}", at=NOW)
    deny_list = federation.pki / "ca" / "revoked.crl"
    deny_list.rename(tmp_path / "revoked.crl")  # the other tests' authority has none
    federation.revocations = DenyList((federation.pki / "ca" / "ca.crt").read_bytes(), [tmp_path / "revoked.crl"])
    commands.approve(federation.config("south"), "peers", "officer", at=NOW)
    federation.reopen()
    await federation.run()
    for name in ("north", "south"):
        assert "waiting for 'west' to approve with another key" in federation.stage(name)
        assert federation.record(name).task.state == State.AWAITING_APPROVAL
    issue(federation.pki / "ca", "west", Role.PARTY, tmp_path / "anew", hosts=("localhost",), days=1, at=ISSUED)
    for path in (tmp_path / "anew").iterdir():
        path.replace(folder / path.name)
    federation.reopen()
    await federation.run()
    assert {federation.record(name).task.state for name in NAMES} == {State.PUBLISHED}


async def test_a_denial_ends_the_study_at_all(make):
    federation = make(approval="manual")
    federation.load()
    federation.open()
    for name in ("north", "west"):
        commands.approve(federation.config(name), "peers", "officer", at=NOW)
    commands.deny(federation.config("south"), "peers", "officer", "not this year", at=NOW)
    await federation.run()
    for name in ("north", "west"):
        failure = federation.record(name).failure
        assert failure is not None
        assert failure.code == "STUDY_DENIED"
        assert "'south'" in failure.message
        assert "not this year" in failure.message
        assert federation.record(name).task.state == State.DENIED
    assert federation.record("south").task.state == State.DENIED


async def test_a_denial_stops_the_next_answer(make):
    federation = make()
    federation.load()
    federation.open()

    def deny(caller: str, name: str, rpc: str) -> None:
        if rpc == "get_column" and name == "north":
            with Site.open(federation.config("north")) as site:
                site.voting.deny(site.state.find("peers"), "officer", "changed our mind", NOW)

    federation.before = deny
    await federation.run()
    assert [row for row in federation.ledger("north") if row.recipient != "everyone"] == []
    assert all(federation.record(name).task.state == State.DENIED for name in NAMES)


async def test_feature_24_a_revocation_between_peers_ends_the_study_and_all_drop_what_they_had(make):
    """North takes its approval back when a peer has its column and asks for its parameters."""
    federation = make()
    federation.load()
    federation.open()
    asked: list[str] = []
    held: dict[tuple[Kind, str], object] = {}

    def revoke(caller: str, name: str, rpc: str) -> None:
        if rpc == "get_parameters" and name == "north":
            asked.append(caller)
            if len(asked) == 1:
                held.update(federation.parties["south"].store.items(federation.digest))
                revoked = reports.revoke(federation.config("north"), "peers", "officer", "consent withdrawn", at=NOW)
                assert (revoked.deletion, revoked.after_publication) == (None, False)

    federation.before = revoke
    await federation.run()
    assert (Kind.COLUMN, "0") in held
    assert len([row for row in federation.ledger("north") if row.recipient != "everyone"]) == 1
    assert (federation.record("north").task.state, federation.stage("north")) == (State.WITHDRAWN, "withdrawn")
    for name in ("south", "west"):
        failure = federation.record(name).failure
        assert failure is not None
        assert failure.code == "STUDY_WITHDRAWN"
    told = [failure.message for name in ("south", "west") if (failure := federation.record(name).failure)]
    assert "revoked by 'north': consent withdrawn" in told
    for name in NAMES:
        party = federation.parties[name]
        assert party.store.items(federation.digest) == {}
        assert list((federation.root / name / "state" / "spool").iterdir()) == []
        assert not release_folder(party.site, federation.digest).exists()
        assert reports.verify_audit(federation.config(name)).ok
    before = reports.revoke(federation.config("north"), "peers", "officer", "again", at=NOW)
    assert [(item.peer, item.confirmed) for item in before.confirmations] == [
        ("south", False),
        ("west", False),
    ]
    del federation.services["west"]  # it is away
    assert not await collect_confirmations(federation.parties["north"].work)
    south, west = reports.revoke(federation.config("north"), "peers", "officer", "again", at=NOW).confirmations
    assert (south.confirmed, south.deletion.keeps_release, west) == (
        True,
        False,
        Confirmation(peer="west", confirmed=False),
    )
    sent = {row.sha256: row for row in reports.ledger(federation.config("north")).rows}
    assert list(south.deletion.columns) == ["0"]
    assert sent[south.deletion.columns["0"].sha256].bytes == south.deletion.columns["0"].bytes
    assert sent[south.deletion.columns["0"].sha256].deleted_at == f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    federation.reopen()  # all were killed, and west is back
    await federation.run()
    assert federation.record("north").task.state == State.WITHDRAWN
    federation.calls.clear()
    assert await collect_confirmations(federation.parties["north"].work)
    assert [name for _, name, rpc, _ in federation.calls if rpc == "get_deletion"] == ["west"]
    (study,) = commands.status(federation.config("north"), at=NOW).studies
    assert [item.confirmed for item in study.confirmations] == [True, True]
    assert reports.revoke(federation.config("north"), "peers", "officer", "again", at=NOW).told
    lines = [
        (line.text("who"), line.text("detail"))
        for line in reports.audit_entries(federation.config("north"), last=2).entries
    ]
    assert lines == [("south", "1 columns deleted: failed"), ("west", "0 columns deleted: failed")]
    for name in ("south", "west"):
        (line,) = [
            item for item in reports.audit_entries(federation.config(name)).entries if item.text("event") == "deletion"
        ]
        assert line.text("recipient") == "north"


async def test_feature_24_a_peer_that_is_killed_while_it_deletes_signs_when_everything_is_gone(make):
    """Killed between the rows and the files, a peer removes the files before it signs."""
    federation = make()
    federation.load()
    federation.open()
    request = peer_pb2.GetDeletionRequest(study_digest=federation.digest)
    north = Identity(federation="trial", role=Role.PARTY, name="north")
    died = False

    def revoke(caller: str, name: str, rpc: str) -> None:
        if rpc == "get_parameters" and name == "north":
            reports.revoke(federation.config("north"), "peers", "officer", "consent withdrawn", at=NOW)

    federation.before = revoke
    with pytest.raises(PeerFault, match="has not ended here yet"):
        await InMemoryPeer(federation.services["south"], north).get_deletion(request)
    store = federation.parties["south"].store
    folder = store.folder(federation.digest)

    def die(step: durable.DurableStep) -> None:
        nonlocal died
        if not died and (step.kind, step.moment, step.path) == ("remove", "before", folder):
            died = True
            raise KeyboardInterrupt

    with durable.watch_steps(die), pytest.raises(KeyboardInterrupt):
        await federation.run()
    assert store.items(federation.digest) == {}
    assert (folder / "column.0").exists()
    with pytest.raises(PeerFault, match="not everything is deleted"):
        await InMemoryPeer(federation.services["south"], north).get_deletion(request)
    federation.reopen()
    await federation.run()
    assert not folder.exists()
    line = InMemoryPeer(federation.services["south"], north)
    first, again = await line.get_deletion(request), await line.get_deletion(request)
    assert first.deletion.body == again.deletion.body
    ((unit, item),) = parse_peer_deletion(first.deletion.body).columns.items()
    assert (unit, item.size > 0) == (0, True)
    stranger = Identity(federation="trial", role=Role.PARTY, name="stranger")
    with pytest.raises(PeerFault, match="not one of its parties"):
        await InMemoryPeer(federation.services["south"], stranger).get_deletion(request)


async def test_feature_24_a_receipt_that_does_not_hold_is_refused(make):
    federation = make()
    federation.load()
    federation.open()
    await federation.run()
    reports.revoke(federation.config("north"), "peers", "officer", "too late", at=NOW)
    site = federation.parties["north"].site
    line = InMemoryPeer(federation.services["south"], Identity(federation="trial", role=Role.PARTY, name="north"))
    signed = (await line.get_deletion(peer_pb2.GetDeletionRequest(study_digest=federation.digest))).deletion
    true = parse_peer_deletion(signed.body)
    (awaited,) = site.revocations.list_awaited()
    pki = federation.pki
    keys = {name: SigningKey.load(pki / f"{name}.sign", pki / f"{name}.crt") for name in ("south", "west", "miner")}
    lies = [
        dataclasses.replace(true, columns={0: dataclasses.replace(true.columns[0], sha256=bytes(32))}),
        dataclasses.replace(true, columns={1: true.columns[0]}),
        dataclasses.replace(true, party="west"),
        dataclasses.replace(true, peer="west"),
        dataclasses.replace(true, study_digest=bytes(32)),
    ]
    wrong = [
        keys["west"].sign(signed.body),
        keys["miner"].sign(signed.body),
        *(keys["south"].sign(encode(said)) for said in lies),
        keys["south"].sign(b"{}"),
        common_pb2.Signed(body=signed.body, signature=bytes(64), certificate=signed.certificate),
        common_pb2.Signed(),
    ]
    authority = (pki / "ca" / "ca.crt").read_bytes()
    take = functools.partial(site.revocations.take_confirmation, awaited, "south", authority=authority, at=NOW)
    for item in wrong:
        assert not take(item)
        assert not take(item)
    refused = [
        line.said
        for line in reports.audit_entries(federation.config("north")).entries
        if line.text("event") == "refused"
    ]
    codes = {str(item["detail"]) for item in refused}
    assert len(refused) == len(codes) == 4 < len(wrong)  # of each kind one line a day
    serial = x509.load_pem_x509_certificate((pki / "south.crt").read_bytes()).serial_number
    signing = _serial(signed.certificate)
    assert not take(signed, deny_list={serial: NOW - dt.timedelta(hours=1), signing: NOW - dt.timedelta(hours=1)})
    assert take(signed)
    found = site.revocations.awaited_of(federation.digest)
    assert found is not None
    assert (found.confirmed, found.missing) == ({"south": true}, ("west",))


def _serial(certificate: bytes) -> int:
    load = x509.load_pem_x509_certificate if certificate.startswith(b"-----") else x509.load_der_x509_certificate
    return load(certificate).serial_number


async def test_feature_24_a_revocation_after_the_publication_between_peers_is_flagged(make, capsys):
    federation = make()
    federation.load()
    federation.open()
    await federation.run()
    revoked = reports.revoke(federation.config("west"), "peers", "officer", "too late", at=NOW)
    assert revoked.after_publication
    await federation.run()
    assert federation.record("west").task.state == State.PUBLISHED
    assert federation.stage("west") == "revoked after its publication"
    assert release_folder(federation.parties["west"].site, federation.digest).is_dir()
    log = [line.said for line in reports.audit_entries(federation.config("west")).entries]
    kinds = [entry["event"] for entry in log]
    assert kinds[0] == "study-seen"
    assert kinds[-1] == "revocation"
    assert kinds.count("shared") == 1
    assert [entry["who"] for entry in log if entry["event"] == "alignment"] == ["daemon"]
    assert await collect_confirmations(federation.parties["west"].work)
    told = reports.revoke(federation.config("west"), "peers", "officer", "again", at=NOW).confirmations
    assert [(item.peer, item.deletion.keeps_release) for item in told] == [("north", True), ("south", True)]
    for command in (["status"], ["revoke", "peers", "--reason", "again", "--as", "officer"]):
        assert main(["party", *command, "--config", str(federation.config("west").path)]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "'south' signed that it deleted 0 columns and the parameters" in shown
        assert "it keeps the published release, which cannot be recalled" in shown


async def test_a_caller_that_asks_for_what_is_not_its_own_is_refused_by_a_code_that_nodes_write_down(make):
    federation = make()
    federation.load()
    federation.open()
    await federation.run()
    digest = federation.record("north").task.effective_digest
    stranger = Identity(federation="trial", role=Role.PARTY, name="stranger")
    line = InMemoryPeer(federation.services["north"], stranger)
    with pytest.raises(PeerFault, match="not one of its parties") as caught:
        await line.get_signature(peer_pb2.GetSignatureRequest(effective_digest=digest))
    assert caught.value.code in NOT_LET_IN  # which is what the port's listener hears of


async def test_after_the_last_day_nothing_is_told_but_the_digest(make):
    federation = make(study=STUDY.replace("2099-12-31", f"{NOW:%Y-%m-%d}"))
    federation.load()
    federation.open()
    await federation.run()
    effective = federation.record("north").task.effective_digest
    federation.now = NOW + dt.timedelta(days=2)
    wire = Wire(federation, "south", "north")
    with pytest.raises(Refusal) as caught:
        await wire.get_signature(peer_pb2.GetSignatureRequest(effective_digest=effective))
    assert caught.value.code == "STUDY_EXPIRED"
    reply = await wire.get_study_digest(
        peer_pb2.GetStudyDigestRequest(study_id="peers", study_digest=federation.digest, software="")
    )
    assert reply.study_digest == federation.digest


def shorter(data: bytes) -> bytes:
    return artifact.pack(artifact.unpack(data, 4, N_COMMON)[:-7], 4)


async def test_a_peer_that_sends_fewer_rows_is_named(make):
    federation = make()
    federation.load()
    federation.open()
    federation.falsified["south", "get_column"] = shorter
    await federation.run()
    failure = federation.record("west").failure
    assert failure is not None
    assert failure.code == "ARTIFACT_INVALID"
    assert failure.message == (
        f"party 'south': column 'region': {N_COMMON - 7} records, expected {N_COMMON}, as in the common list"
    )
    for name in ("north", "south"):  # they learn it, and from whom
        told = federation.record(name).failure
        assert told is not None
        assert told.code == "STUDY_WITHDRAWN"
        assert "'west' cannot go on" in told.message
        assert federation.record(name).task.state == State.FAILED
        assert not release_folder(federation.parties[name].site, federation.digest).exists()


async def test_bytes_that_are_not_what_the_owner_sent_are_found_by_the_owner(make):
    """A column with another content is a valid artifact; the reader states its SHA-256, and the owner knows what it sent."""
    federation = make()
    federation.load()
    federation.open()
    federation.falsified["north", "get_column"] = lambda data: artifact.pack(1 - artifact.unpack(data, 2, N_COMMON), 2)
    await federation.run()
    failure = federation.record("north").failure
    assert failure is not None
    assert failure.code == "STUDY_MISMATCH"
    assert "party 'south'" in failure.message
    assert all(federation.record(name).task.state == State.FAILED for name in NAMES)


async def test_a_matrix_other_than_the_agreed_one_is_another_study(make):
    """Whoever carries out another effective study is asked under a digest that it does not know."""
    federation = make()
    federation.load()
    federation.open()
    await federation.run()
    request = peer_pb2.GetColumnRequest(effective_digest=hashlib.sha256(b"other").digest(), unit=0)
    with pytest.raises(PeerFault) as caught:
        async for _ in Wire(federation, "south", "north").get_column(request):
            pass
    assert caught.value.code == "NOT_READY"


async def test_a_second_common_list_is_refused(make):
    federation = make()
    federation.load()
    federation.open()

    def lost() -> None:
        party = federation.parties["north"]
        if party.record.n_common is not None and (Kind.COMMON, "") in party.store.items(federation.digest):
            party.store.forget(federation.digest, Kind.COMMON)
            federation.falsified["west", "get_pseudonyms"] = lambda data: data[16:]

    await federation.run(after_step=lost)
    failure = federation.record("north").failure
    assert failure is not None
    assert failure.code == "ALIGNMENT_MISMATCH"
    assert "another common list" in failure.message


@pytest.mark.parametrize(
    ("falsify", "problem"),
    [
        (lambda data: data[:-16] + bytes([255]) * 16, "is not a part of"),
        (lambda data: data[16:32] + data[:16] + data[32:], "not in ascending order"),
        (lambda data: data[:-1], "16 for each record"),
    ],
)
async def test_a_common_list_that_cannot_be_is_refused(make, falsify, problem):
    federation = make()
    federation.load()
    federation.open()
    federation.falsified["west", "get_pseudonyms"] = falsify
    await federation.run()
    failure = federation.record("north").failure
    assert failure is not None
    assert failure.code == "ALIGNMENT_MISMATCH"
    assert problem in failure.message
    assert [row for name in NAMES for row in federation.ledger(name) if row.recipient == "everyone"] == []


async def test_too_few_common_people(make):
    federation = make(study=STUDY.replace("minimum_common_records = 100", "minimum_common_records = 301"))
    federation.load()
    federation.open()
    await federation.run()
    failure = federation.record("south").failure
    assert failure is not None
    assert failure.code == "LINKAGE_TOO_SMALL"
    told = federation.record("north").failure
    assert told is not None
    assert "'south' cannot go on: LINKAGE_TOO_SMALL" in told.message
    assert str(N_COMMON) not in told.message  # counts stay at their owner


async def test_releases_that_disagree_are_shown_at_both(make):
    federation = make()
    federation.load()
    federation.open()
    south = federation.parties["south"]
    south.study = PeerStudy(dataclasses.replace(south.work, simulation=True), federation.digest)
    assembled: dict[str, bytes] = {}

    def keep() -> None:
        for name, party in federation.parties.items():
            path = release_folder(party.site, federation.digest) / "manifest.json"
            assembled.update({name: path.read_bytes()} if path.exists() else {})

    await federation.run(after_step=keep)
    theirs, ours = (hashlib.sha256(assembled[name]).hexdigest() for name in ("south", "north"))
    failures = {name: federation.record(name).failure for name in NAMES}
    assert all(
        failure is not None and theirs in failure.message and ours in failure.message for failure in failures.values()
    )
    assert "STUDY_MISMATCH" in {failure.code for failure in failures.values() if failure is not None}
    assert not any(release_folder(party.site, federation.digest).exists() for party in federation.parties.values())


async def test_parameters_of_somebody_else_are_refused(make):
    federation = make()
    federation.load()
    federation.open()
    key = SigningKey.load(federation.pki / "stranger.sign", federation.pki / "stranger.crt")
    federation.falsified["south", "get_parameters"] = lambda data: key.sign(
        common_pb2.Signed.FromString(data).body
    ).SerializeToString()
    await federation.run()
    failure = federation.record("north").failure
    assert failure is not None
    assert failure.code == "IDENTITY_REFUSED"
    assert "party 'south'" in failure.message


async def test_a_table_that_changes_after_approval_waits_for_a_new_approval_and_the_study_goes_on(make):
    federation = make(approval="manual")
    federation.load()
    federation.open()
    for name in NAMES:
        commands.approve(federation.config(name), "peers", "officer", at=NOW)
    path = federation.root / "south" / "people.csv"
    path.write_text(path.read_text().replace(",a\n", ",b\n", 1))
    await federation.run()
    for _ in range(2):
        south = federation.record("south")
        assert (south.failure, south.approval) == (None, None)
        assert "data set 'people' changed" in federation.stage("south")
        assert federation.stage("south").startswith("waiting for approval again: ")
        assert [federation.record(name).failure for name in NAMES] == [None] * len(NAMES)
        assert [row for name in NAMES for row in federation.ledger(name)] == []
        federation.reopen()
        await federation.run()
    commands.approve(federation.config("south"), "peers", "officer", at=NOW)
    await federation.run()
    assert {federation.record(name).task.state for name in NAMES} == {State.PUBLISHED}


async def test_exact_parameters_need_a_permit(make):
    federation = make(policy="")
    federation.load()
    federation.open()
    await federation.run()
    failure = federation.record("north").failure
    assert failure is not None
    assert "raw data" in failure.message
    assert not any(rpc == "get_pseudonyms" for _, _, rpc, _ in federation.calls)


async def test_share_noise_is_charged_once(make):
    noisy = STUDY + '[share]\nnoise = "discrete-gaussian"\nepsilon = 1.5\ndelta = 1e-6\n'
    federation = make(policy="max_share_epsilon = 1.5", study=noisy)
    federation.load()
    federation.open()
    await federation.run(after_step=federation.reopen)
    assert len(set(federation.manifests().values())) == 1
    (row,) = federation.ledger("west")
    assert (row.epsilon, row.charged, row.recipient) == (1.5, 1.5, "everyone")
    named = ["share", 1.5, 1e-6, "discrete-gaussian"]
    with Database(federation.root / "west" / "state") as database:
        ((drawn,),) = database.rows("SELECT transition_digest FROM ledger")
    assert drawn == hashlib.sha256(json.dumps(named).encode()).digest()
    (people,) = reports.ledger(federation.config("west")).datasets
    assert people.delta_spent == 1e-6  # with the epsilon, and not again after each restart


async def test_a_party_with_no_room_for_the_delta_of_a_study_sends_nothing(make):
    noisy = STUDY + '[share]\nnoise = "discrete-gaussian"\nepsilon = 1.5\ndelta = 1e-6\n'
    federation = make(policy="max_share_epsilon = 1.5\nmax_delta_lifetime = 9e-7", study=noisy)
    federation.load()
    federation.open()
    await federation.run()
    failure = federation.record("north").failure
    assert failure is not None
    assert failure.code == "BUDGET_EXCEEDED"
    assert "delta 1e-06 on top of what was charged before, expected at most 9e-07" in failure.message
    assert not any(rpc == "get_pseudonyms" for _, _, rpc, _ in federation.calls)
    assert [row for name in NAMES for row in federation.ledger(name)] == []


RULES = """max_share_epsilon = 1.5
[[policy.rule]]
name = "known"
columns = ["sex", "smoker", "income", "region", "visits"]
max_epsilon = 6.0
"""
CODEBOOK = """[codebook]
normalise = [["nfkc", "trim"]]
[[codebook.column]]
source = "sex"
categories = ["f", "m"]
[[codebook.column]]
source = "smoker"
categories = ["no", "yes", "unknown"]
missing = { category = "unknown", spellings = [""] }
[[codebook.column]]
source = "income"
bins = [0, 10, 20, 30]
[[codebook.column]]
source = "region"
categories = ["a", "b", "c", "d"]
[[codebook.column]]
source = "visits"
categories = ["few", "many"]
"""


async def test_rules_approve_between_peers_what_their_codebooks_cover_and_no_more(make):
    noisy = STUDY + '[share]\nnoise = "discrete-gaussian"\nepsilon = 1.5\ndelta = 1e-6\n'
    federation = make(approval="rules", policy=RULES + CODEBOOK, study=noisy)
    federation.load()
    federation.open()
    await federation.run()
    assert len(set(federation.manifests().values())) == 1
    assert {parse_approval(federation.record(name).approval).approver for name in NAMES} == {"by rule 1 'known'"}
    another = make(
        "another", approval="rules", policy=RULES + CODEBOOK, study=noisy.replace("10, 20, 30", "10, 21, 30")
    )
    another.load()
    another.open()
    await another.run()
    assert [another.record(name).approval is None for name in NAMES] == [False, True, False]
    (why,) = ruling(another.parties["south"].site, another.record("south"), NOW).why
    assert why.startswith("column 'income': its bins of the local column 'income' stand in no [codebook]")
    assert not any(another.ledger(name) for name in NAMES)


# ---- who may ask what


async def refused(parts) -> str:
    with pytest.raises(VerticilError) as caught:
        async for _ in parts:
            pass
    return caught.value.code


async def test_a_column_goes_to_nobody_but_its_readers(exchanging):
    north = exchanging.record("north")
    found = given_structure(from_bytes(north.task.effective), north.task.effective_digest)
    assert found is not None
    good = peer_pb2.GetColumnRequest(
        effective_digest=north.task.effective_digest,
        unit=0,
        common_sha256=north.common_sha256,
        structure_sha256=found.sha256,
    )

    def changed(**fields) -> peer_pb2.GetColumnRequest:
        request = peer_pb2.GetColumnRequest()
        request.CopyFrom(good)
        for field, value in fields.items():
            setattr(request, field, value)
        return request

    before = exchanging.ledger("north")
    south, west = Wire(exchanging, "south", "north"), Wire(exchanging, "west", "north")
    assert await refused(west.get_column(good)) == "NOT_OWNER"
    assert await refused(Wire(exchanging, "stranger", "north").get_column(good)) == "PARTY_UNKNOWN"
    assert await refused(south.get_column(changed(unit=1))) == "NOT_OWNER"  # nobody reads it
    assert await refused(south.get_column(changed(unit=3))) == "NOT_OWNER"  # it is another party's
    assert await refused(south.get_column(changed(unit=99))) == "NOT_OWNER"
    assert await refused(south.get_column(changed(common_sha256=b"x" * 32))) == "STUDY_MISMATCH"
    assert await refused(south.get_column(changed(structure_sha256=b"x" * 32))) == "STUDY_MISMATCH"
    assert await refused(south.get_column(changed(structure_sha256=b""))) == "NOT_OWNER"  # no pairs are scored here
    assert exchanging.ledger("north") == before
    lines = len(audited(exchanging, "north"))
    for _ in range(20):
        assert [part async for part in south.get_column(good)] != []
    assert exchanging.ledger("north") == before  # the same bytes to the same peer have their row
    assert attempts(exchanging, "north") == len(before) + 20  # and each send is counted
    assert len(audited(exchanging, "north")) == lines + 1  # in the audit log by one line a day


def audited(federation, name: str) -> list[str]:
    return (federation.root / name / "state" / "audit.jsonl").read_text().splitlines()


def attempts(federation, name: str) -> int:
    with Database(federation.root / name / "state") as database:
        return Ledger(database).attempts()


async def test_lists_go_to_nobody_but_those_they_are_for(exchanging):
    effective = exchanging.record("north").task.effective_digest

    def request(which) -> peer_pb2.GetPseudonymsRequest:
        return peer_pb2.GetPseudonymsRequest(effective_digest=effective, list=which)

    running, common = request(peer_pb2.PSEUDONYM_LIST_RUNNING), request(peer_pb2.PSEUDONYM_LIST_COMMON)
    assert await refused(Wire(exchanging, "west", "north").get_pseudonyms(running)) == "IDENTITY_REFUSED"
    assert await refused(Wire(exchanging, "north", "west").get_pseudonyms(running)) == "IDENTITY_REFUSED"
    assert await refused(Wire(exchanging, "stranger", "west").get_pseudonyms(common)) == "PARTY_UNKNOWN"
    assert await refused(Wire(exchanging, "south", "north").get_pseudonyms(common)) == "NOT_OWNER"
    assert await refused(Wire(exchanging, "south", "west").get_pseudonyms(request(7))) == "MESSAGE_INVALID"
    assert [part async for part in Wire(exchanging, "south", "north").get_pseudonyms(running)] != []
    assert [part async for part in Wire(exchanging, "north", "west").get_pseudonyms(common)] != []


async def test_a_lost_spool_file_is_made_again(exchanging):
    party = exchanging.parties["north"]
    (item,) = party.site.state.artifacts(exchanging.digest, party.record.task.effective_digest).values()
    path = party.work.node.spool.path(item.sha256)
    path.write_bytes(b"harmed")
    south = exchanging.parties["south"]
    south.store.forget(exchanging.digest, Kind.COLUMN, "0")
    south.store.forget(exchanging.digest, Kind.STATEMENT, "south")
    exchanging.before = lambda caller, name, rpc: None
    await exchanging.run()
    assert len(set(exchanging.manifests().values())) == 1


# ---- whole daemons


async def until_published(federation: Federation, tasks: list[asyncio.Task[None]]) -> None:
    def states() -> set[int]:
        found: set[int] = set()
        for name in NAMES:
            with Database(federation.root / name / "state") as database:
                for record in PartyState(database).studies():
                    if record.failure is not None:
                        raise record.failure
                    found.add(record.task.state)
        return found

    async with asyncio.timeout(PATIENCE_SECONDS):
        while await asyncio.to_thread(states) != {State.PUBLISHED}:
            for task in tasks:
                if task.done():
                    task.result()


def manifest(federation: Federation) -> dict[str, object]:
    """What all parties published; each looks into its own folder."""
    folders = [federation.root / name / "state" / "releases" / federation.digest.hex() for name in NAMES]
    (body,) = {(folder / "manifest.json").read_bytes() for folder in folders}
    return json.loads(body)


async def until_confirmed(federation: Federation, name: str) -> None:
    """A daemon notices the revocation by itself and gets every peer's receipt."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            (study,) = (await asyncio.to_thread(commands.status, federation.config(name))).studies
            if all(item.confirmed for item in study.confirmations):
                return


@pytest.mark.whole
async def test_feature_24_daemons_without_a_miner_publish_and_confirm_a_revocation(make, steps_of):
    federation = make(approval="manual")
    stop = asyncio.Event()
    tasks = [
        asyncio.create_task(daemon.run_party(federation.config(name), peers=Network(federation, name), stop=stop))
        for name in NAMES
    ]
    federation.load()
    for name in NAMES:
        await asyncio.to_thread(commands.approve, federation.config(name), "peers", "officer")
    await until_published(federation, tasks)
    facts = commands.status(federation.config("north"))
    assert facts.daemon.connected
    assert facts.daemon.link == "serving its peers"
    await asyncio.to_thread(reports.revoke, federation.config("north"), "peers", "officer", "too late")
    await until_confirmed(federation, "north")
    stop.set()
    await asyncio.gather(*tasks)
    told = [line for name in NAMES for line in steps_of(name)]  # who asks a peer is in its line here, in one process
    for word in ("agreeing", "alignment: ", "randomized: ", "send: ", "shared: ", "published"):
        assert any(line.startswith(word) for line in told), (word, told)
    assert manifest(federation)["n_common"] == N_COMMON


async def test_a_learned_structure_comes_from_scores_alone(make, tmp_path):
    """Each party scores its pairs; the miner, which holds no data, searches and signs the structure."""
    federation = make(study=LEARNED, miner=True)
    seen: list[coordinator_pb2.PutScoresRequest] = []

    class Recording(InMemoryCoordinator):
        async def put_scores(self, request):
            seen.append(request)
            return await super().put_scores(request)

    may_search = asyncio.Event()

    class Held(InlineLearning):
        async def run(self, job, progress):
            await may_search.wait()
            return await super().run(job, progress)

    async with MinerNode(
        tmp_path / "miner",
        identity=Identity(federation="trial", role=Role.MINER, name="miner"),
        authority=(federation.pki / "ca" / "ca.crt").read_bytes(),
        signer=SigningKey.load(federation.pki / "miner.sign", federation.pki / "miner.crt"),
        executor=Held(clock=lambda: NOW),
        limits=ServiceLimits(disk_reserve_bytes=0),
        randomized_days=30,
    ) as miner:
        federation.dial = lambda name: Recording(
            miner.coordinator, Identity(federation="trial", role=Role.PARTY, name=name)
        )
        federation.load()
        federation.open()
        await federation.run()
        assert {federation.stage(name) for name in NAMES} == {"waiting for the miner's search"}
        may_search.set()
        seen[-1].wait_seconds = 60
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await federation.dial("west").put_scores(seen[-1])).HasField("structure"):
                pass  # it answers when the search has ended, or after a minute
        await federation.run()
    study = read_study(federation.study_file)
    assert {len(request.information) for request in seen} == {len(scored_pairs(study, name)) for name in NAMES}
    (body,) = set(federation.manifests().values())
    assert json.loads(body)["search"]["method"] == "genetic"
    pulled = {(unit, caller) for caller, _, rpc, unit in federation.calls if rpc == "get_column"}
    scored = {(2, "north"), (3, "north"), (4, "north"), (4, "south")}  # by every party before the owner
    assert pulled >= scored
    for name in NAMES:
        rows = federation.ledger(name)
        columns = [row for row in rows if row.recipient in NAMES]
        assert sum(row.charged for row in columns) == pytest.approx(2.0 * len({row.variables for row in columns}))
        shared = [(row.recipient, row.charged) for row in rows if row not in columns]
        # Scores and parameters are charged once, together; west has one variable and no pair to score.
        assert shared == ([("everyone", math.inf)] if name == "west" else [("miner", math.inf), ("everyone", 0.0)])


async def test_neither_a_miner_nor_peers_is_a_mistake_in_the_configuration(make):
    federation = make()
    config = dataclasses.replace(federation.config("north"), peer=None)
    with pytest.raises(Misuse, match="has no miner") as caught:
        await daemon.run_party(config, stop=asyncio.Event())
    assert caught.value.code == "CONFIG_INVALID"


@pytest.mark.whole
async def test_a_compound_goes_whole_to_whoever_reads_one_of_its_columns(make):
    """Region and income of south in one draw of 12 combinations; west reads region, and gets the codes of the pairs."""
    jointly = '[[randomization]]\njointly = ["income", "region"]\nscheme = "symmetric"\nepsilon = 2.0\n[structure]\n'
    federation = make(study=STUDY.replace("[structure]\n", jointly, 1))
    federation.load()
    federation.open()
    await federation.run(after_step=federation.reopen)
    assert len(set(federation.manifests().values())) == 1
    rows = [row for row in federation.ledger("south") if row.recipient != "everyone"]
    assert [(row.variables, row.recipient, row.charged) for row in rows] == [(("income", "region"), "west", 2.0)]

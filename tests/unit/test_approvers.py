"""Votes signed with the approvers' own keys: who may vote, what a vote counts for, and what is no vote."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from support.documents import party_toml
from support.site_folder import task_of, write_site
from support.walk import returns, stays
from verticil.cli.main import main
from verticil.party.audit.log import Event
from verticil.party.config import load_party
from verticil.party.operator import commands
from verticil.party.operator.approvers import add_approver, remove_approver
from verticil.party.policy import approval_checks
from verticil.party.policy.approval_checks import Review
from verticil.party.policy.decision_store import ApproverKey, DecisionStore, Vote, check_vote
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import DataFault, Misuse, Refusal, VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.study.approval import Approval, parse_approval
from verticil.shared.study.document import Study

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
PARTY = party_toml("approvers_needed = {needed}\n")


@pytest.fixture
def folder(tmp_path: Path, release_study) -> Path:
    """A site with a study that waits; nobody is named yet."""
    write_site(tmp_path, PARTY.format(needed=2), people=150)
    with Site.open(load_party(tmp_path / "party.toml")) as site:
        task = task_of(release_study)
        site.state.remember(task, release_study.id, NOW)
    return tmp_path


def approve(folder: Path, who: str, **options: Any) -> Any:
    return commands.approve(load_party(folder / "party.toml"), "heart", who, at=NOW, **options)  # type: ignore[arg-type]


def refused(folder: Path, who: str, **options: Any) -> VerticilError:
    with pytest.raises(VerticilError) as caught:
        approve(folder, who, **options)
    return caught.value


def name(folder: Path, *names: str) -> None:
    for each in names:
        add_approver(folder / "party.toml", each)


def test_two_named_approvers_sign_and_the_approval_names_both(folder):
    name(folder, "officer@clinic", "it@clinic")
    first = approve(folder, "officer@clinic")
    assert (first.approved, first.approvers) == (False, ("officer@clinic",))
    second = approve(folder, "it@clinic")
    assert (second.approved, second.approvers) == (True, ("officer@clinic", "it@clinic"))
    config = load_party(folder / "party.toml")
    with Site.open(config) as site:
        record = site.state.find("heart")
        assert parse_approval(record.approval).approver == "officer@clinic, it@clinic"
        for vote in site.decisions.votes(record.digest):
            assert check_vote(vote.body("clinic", "heart"), vote.signature, config.approver_keys[vote.approver])
        site.voting.check_binding(record, NOW.date())


def test_one_approver_cannot_vote_for_the_other(folder):
    name(folder, "officer", "it")
    error = refused(folder, "it", key=folder / "approvers" / "officer.key")
    assert (error.code, error.exit_code) == ("NOT_APPROVED", 4)
    (folder / "approvers" / "it.key").unlink()
    assert refused(folder, "it").code == "NOT_APPROVED"
    assert refused(folder, "stranger").code == "POLICY_REFUSED"
    assert refused(folder, "by rule 1 'x'").code == "USAGE"


def test_where_nobody_is_named_one_word_is_enough_and_two_cannot_be_had(folder):
    error = refused(folder, "officer")
    assert error.code == "NOT_APPROVED"
    assert "party approver add" in error.hint
    (folder / "party.toml").write_text(PARTY.format(needed=1))
    facts = approve(folder, "officer")
    assert (facts.approved, facts.signed_with) == (True, "the site's key")


def test_names_of_an_older_party_toml_need_keys_before_they_can_approve(folder):
    """The way from a plain list: the error says the command, and after it the same words approve."""
    (folder / "party.toml").write_text(PARTY.format(needed=1).replace("[policy]", '[policy]\napprovers = ["officer"]'))
    error = refused(folder, "officer")
    assert error.code == "NOT_APPROVED"
    assert error.hint == "make it once: verticil party approver add officer --key FILE"
    name(folder, "officer")
    assert approve(folder, "officer").signed_with == "the approver's key"


def test_a_row_in_the_database_is_not_a_vote(folder):
    """Somebody writes votes and an approval past the command: nothing is sent on them."""
    name(folder, "officer", "it")
    approve(folder, "officer")
    with contextlib.closing(sqlite3.connect(folder / "state" / "party.sqlite")) as database, database:
        (content, at, signature) = database.execute("SELECT content, voted_at, signature FROM vote").fetchone()
        digest = database.execute("SELECT digest FROM vote").fetchone()[0]
        database.execute("INSERT INTO vote VALUES (?, 'it', ?, ?, ?)", (digest, content, at, signature))
    with Site.open(load_party(folder / "party.toml")) as site:
        record = site.state.find("heart")
        found = site.review(record, NOW)
        body = encode(dataclasses.replace(found.bound, approver="officer, it", approved_at=NOW))
        site.decisions.approve(record.digest, body, NOW)
        with pytest.raises(Refusal, match="1 of 2 approvers have signed it") as caught:
            site.voting.check_binding(site.state.find("heart"), NOW.date())
        assert caught.value.code == "APPROVAL_VOID"
    assert approve(folder, "it").approved  # the right key mends it
    with Site.open(load_party(folder / "party.toml")) as site:
        site.voting.check_binding(site.state.find("heart"), NOW.date())


def test_a_key_that_is_taken_away_takes_its_votes_along(folder):
    name(folder, "officer", "it")
    approve(folder, "officer")
    approve(folder, "it")
    config = load_party(folder / "party.toml")
    other = ApproverKey.create(folder / "new.key").public
    changed = dataclasses.replace(config, approver_keys={**config.approver_keys, "it": other})
    with Site.open(changed) as site, pytest.raises(Refusal, match="1 of 2"):
        site.voting.check_binding(site.state.find("heart"), NOW.date())


def test_whoever_is_added_or_removed_counts_or_not_at_once_in_a_site_that_is_open(folder, caplog):
    path = folder / "party.toml"
    name(folder, "officer", "it")
    approve(folder, "officer")
    approve(folder, "it")
    with Site.open(load_party(path)) as site:  # as a running daemon has it
        record, today = site.state.find("heart"), NOW.date()
        site.voting.check_binding(record, today)
        name(folder, "deputy")
        assert site.followed.approvers().names == ("officer", "it", "deputy")
        remove_approver(path, "it")
        with pytest.raises(Refusal, match="1 of 2 approvers have signed it with a present key") as caught:
            site.voting.check_binding(record, today)
        assert caught.value.code == "APPROVAL_VOID"
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])  # half saved: the former people stay in force
        assert site.followed.approvers().names == ("officer", "deputy")
        assert "the policy read before stays" in caplog.text
        path.write_bytes(whole)
        assert site.followed.approvers().names == ("officer", "deputy")


def test_removing_takes_out_one_table_and_nothing_else(folder, capsys):
    path = folder / "party.toml"
    name(folder, "officer", "it")
    add_approver(path, 'the "deputy" # of [us]', key=folder / "deputy.key")
    before = path.read_text()
    blocks = before.split("\n[[approver]]\n")
    path.write_text(before.replace("\n[[approver]]\n", "\n  [[ approver ]]  # who may say yes\n"))
    command = ["party", "approver", "remove", 'the "deputy" # of [us]', "--config", str(path), "--format", "json"]
    assert main(command) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["approvers"], said["enough"]) == (["officer", "it"], True)
    assert path.read_text() == "\n  [[ approver ]]  # who may say yes\n".join(blocks[:3]) + "\n" * 1
    assert (folder / "approvers" / "it.key").exists()
    assert main(command) == 2
    assert "has no key there" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert remove_approver(path, "officer").enough is False
    with pytest.raises(Misuse, match="'it' is the only one"):
        remove_approver(path, "it")


def test_the_files_are_the_persons_alone(folder):
    made = add_approver(folder / "party.toml", "officer")
    path = Path(made.key)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    assert refused(folder, "officer").code == "CONFIG_INVALID"
    other = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    wrong = folder / "wrong.key"
    too_short = other.replace(b"K2Vu", b"K2Vv")  # called an X448 key: OpenSSL says that this is an internal error
    assert too_short != other
    for content in (other, too_short):
        wrong.write_bytes(content)
        wrong.chmod(0o600)
        with pytest.raises(Misuse, match="expected an Ed25519 key"):
            ApproverKey.load(wrong)
    with pytest.raises(DataFault, match="cannot be read"):
        ApproverKey.load(folder / "absent.key")


def test_adding_changes_nothing_else_and_leaves_a_broken_file_alone(folder):
    before = (folder / "party.toml").read_text()
    add_approver(folder / "party.toml", "officer")
    after = (folder / "party.toml").read_text()
    assert after.startswith(before)
    with pytest.raises(Misuse, match="has a key already"):
        add_approver(folder / "party.toml", "officer")
    with pytest.raises(Misuse, match="another approver"):
        add_approver(folder / "party.toml", "it", key=folder / "approvers" / "officer.key")
    (folder / "party.toml").write_text(
        after.replace("approvers_needed = 2", 'approvers_needed = 1\napprovers = ["officer"]')
    )
    with pytest.raises(Misuse, match="has a key in"):
        add_approver(folder / "party.toml", "it")
    assert not (folder / "approvers" / "it.key").exists()
    assert [path.name for path in folder.glob(".party*")] == []


def test_a_key_made_elsewhere_is_added_by_its_public_line(folder, capsys):
    assert main(["party", "approver", "keygen", "--key", str(folder / "mine.key"), "--format", "json"]) == 0
    public = json.loads(capsys.readouterr().out)["public_key"]
    config = ["--config", str(folder / "party.toml")]
    assert main(["party", "approver", "add", "Dr. Who", "--public-key", public, *config]) == 0
    assert main(["party", "approver", "add", "x", "--public-key", "AAAA", *config]) == 2
    capsys.readouterr()
    assert main(["party", "approver", "list", *config, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["approvers"] == [{"name": "Dr. Who", "public_key": public}]
    assert approve(folder, "Dr. Who", key=folder / "mine.key").approvers == ("Dr. Who",)


def way(folder: Path) -> tuple[str, ...]:
    """The rooms through which an approval goes, from the command to the row that keeps it."""
    config = load_party(folder / "party.toml")
    with Site.open(config) as site:
        digest = site.state.find("heart").digest

    def follows(value: Any) -> bool:
        followed = (StudyRecord, Study, Review, Approval, Vote, Event)
        return isinstance(value, followed) or (isinstance(value, bytes) and value == digest)

    return stays(lambda: commands.approve(config, "heart", "it@clinic", at=NOW), follows, end=DecisionStore.approve)


def test_an_approval_goes_straight_from_the_command_to_the_row_that_keeps_it(folder):
    name(folder, "officer@clinic", "it@clinic")
    assert not approve(folder, "officer@clinic").approved
    found = way(folder)
    assert found == (
        "operator.commands", "policy.voting", "policy.approval_checks", "local_dataset", "limits.limits", "local_dataset",
        "policy.planned_statistics", "policy.ledger", "policy.ledger_sums", "storage.studies", "policy.decision_store",
    )  # fmt: skip
    assert returns(found) == 1  # the policy judges the study before the table is read


def test_a_detour_of_an_approval_shows(folder, monkeypatch, release_study):
    name(folder, "officer@clinic", "it@clinic")
    approve(folder, "officer@clinic")
    whole = DecisionStore.vote

    def detour(store, digest, *rest):
        approval_checks.check_expiry(release_study, NOW.date())
        return whole(store, digest, *rest)

    monkeypatch.setattr(DecisionStore, "vote", detour)
    assert returns(way(folder)) == 3  # back to the review, and to the votes again


# ---- an account without a name, a process without a terminal


@pytest.mark.parametrize("problem", [KeyError, OSError])
def test_an_account_without_a_name_gives_one_only_where_a_person_decides(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], problem: type[Exception]
) -> None:
    def no_name() -> str:
        raise problem

    monkeypatch.setattr("getpass.getuser", no_name)
    config = ["--config", str(folder / "party.toml")]
    for words in (["approve", "heart"], ["deny", "heart", "--reason", "no"], ["countersign", "heart"]):
        assert main(["party", *words, *config]) == 2
        assert "give --as NAME" in capsys.readouterr().err
    assert main(["party", "countersign", "heart", "--look", *config]) == 5
    assert "--as" not in capsys.readouterr().err
    assert main(["party", "deny", "heart", "--reason", "no", "--as", "officer", *config]) == 0


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("backup --out b --config party.toml", "give --passphrase-file FILE"),
        ("approver keygen --key lena.key --encrypt", "run the command in a terminal"),
    ],
)
def test_a_passphrase_is_not_asked_without_a_terminal(folder: Path, command: str, hint: str) -> None:
    words = [sys.executable, "-m", "verticil.cli", "party", *command.split()]
    done = subprocess.run(
        words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, start_new_session=True
    )
    assert done.returncode == 2
    assert "GetPassWarning" not in done.stderr
    assert done.stderr.splitlines()[0] == "error USAGE: passphrase: no terminal to ask for it"
    assert done.stderr.splitlines()[1] == f"hint: {hint}"


def test_a_terminal_that_ends_is_no_interruption(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object, **__: object) -> str:
        raise EOFError

    monkeypatch.setattr("verticil.cli.party_site._has_terminal", lambda: True)
    monkeypatch.setattr("getpass.getpass", ended)
    assert main(["party", "approver", "keygen", "--key", str(folder / "new.key"), "--encrypt"]) == 2

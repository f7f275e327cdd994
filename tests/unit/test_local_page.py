"""The page of ``verticil party ui``: what it says in every state of a study, whom it refuses, and that it only reads."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from support.pages import Visitor, served
from support.site_folder import CANARY_ID, CANARY_VALUE, NOW, PARTY, make_site, offer, opened
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.operator import check
from verticil.party.operator.page.pages import site_server
from verticil.party.operator.pending_studies import show
from verticil.party.site import Site
from verticil.party.storage.database import FILE_NAME, SCHEMA_VERSION, Database
from verticil.party.storage.studies import Artifact, Heartbeat, stamp
from verticil.shared.core.errors import DataFault, Misuse, PeerFault
from verticil.shared.numerics.knowledge.rules import Condition, Knowledge, Rule
from verticil.shared.numerics.knowledge.words import EXPLAINED, HEADING, describe_knowledge
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.study.document import Study
from verticil.shared.study.states import State

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)> & \"q\" 'q' {{ 7 * 7 }}"
PLACES = r"#\w+|data:,|(\./|(\.\./)*)?((study/[0-9a-f]{64}/|ledger|audit|health|events|assets/[\w./-]+)(#\w+)?)?"
STATED = Knowledge(
    rules=(
        Rule(
            name="children",
            when=(Condition(variable="age", values=("[0,18)",)),),
            then=(Condition(variable="smoker", values=("no",)),),
        ),
    )
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_site(tmp_path)


def send(site: Site, study: Study) -> bytes:
    """Approve a study and send its first column, of which the receipt comes."""
    digest = offer(site, study)
    record = site.state.study(digest)
    verdict = site.voting.approve(record, "officer", NOW)
    release = verdict.review.column_draws[0]
    tag = verdict.review.assessments[0].version_tag
    sha256 = hashlib.sha256(b"column").digest()
    facts = release.to_json()
    artifact = Artifact(unit=0, effective_digest=digest, sha256=sha256, size=12_345, facts=facts, version_tag=tag)
    site.state.store_artifacts(digest, [artifact])
    site.ledger.record(
        release, version_tag=tag, policy=site.config.policy, study_digest=digest, study_id=study.id, unit=0, recipient="miner",
        artifact_sha256=sha256, size=12_345, at=NOW,
    )  # fmt: skip
    site.state.mark_receipted(digest, 0, b"receipt")
    return digest


def named(study: Study, name: str, **change: object) -> Study:
    return dataclasses.replace(study, id=name, title=f"Title of {name}", **change)  # type: ignore[arg-type]


@pytest.fixture
def visitor(folder: Path) -> Iterator[Visitor]:
    with served(site_server(folder / "party.toml", ("127.0.0.1", 0), clock=lambda: NOW)) as server:
        yield Visitor(server)


# ---- what it says


def test_feature_39_nothing_pending_says_so_and_what_blocks(folder: Path, visitor: Visitor) -> None:
    page = visitor.page()
    assert "Nothing waits for a decision here." in page.text
    assert "No study was ever asked of this site." in page.text
    assert "ε 0.00 spent, 8.00 left" in page.text
    assert "The daemon does not run (it never ran)" in page.text
    assert f"verticil party run --config {folder / 'party.toml'}" in page.text
    with opened(folder) as site:
        site.state.beat(Heartbeat(pid=1, at=stamp(NOW), connected=True, problem=""))
    assert "running, connected to the miner" in visitor.page().text
    with opened(folder) as site:
        site.state.beat(Heartbeat(pid=1, at=stamp(NOW + dt.timedelta(hours=1)), connected=True, problem=""))
    assert "The daemon does not run" in visitor.page().text, "a clock that was set back makes nothing alive"
    with opened(folder) as site:
        site.state.beat(Heartbeat(pid=1, at=stamp(NOW), connected=True, problem=""))
        killed = "verticil-health 1 another-boot 1 1 0 OK\nconnected\n\n"
        (site.config.state_directory / "health").write_text(killed)
    assert "The daemon does not run" in visitor.page().text, "a process that is gone is dead at once"


def test_feature_39_a_pending_study_is_said_in_the_words_of_show(
    folder: Path, visitor: Visitor, release_study: Study
) -> None:
    limited = PARTY.replace("max_epsilon_per_study = 6.0", "max_epsilon_per_study = 3.0")
    (folder / "party.toml").write_text(limited)
    with opened(folder) as site:
        digest = offer(site, release_study)
    facts = show(load_party(folder / "party.toml"), digest.hex(), at=NOW)
    overview, page = visitor.page(), visitor.page(f"study/{digest.hex()}/")
    assert "Hearts and incomes" in overview.text
    assert "ε 4.02 for each person" in overview.text  # 2 + ln 7.5, rounded up
    assert "Approvals given: 0 of 1" in overview.text
    text = page.text.replace("\N{NO-BREAK SPACE}", " ").lower()
    for column in facts.columns:
        assert len(column.words) >= 1
        for sentence in column.words:
            assert sentence.lower() in text
    assert facts.total_words.lower() in text
    for asked in facts.questions.asked:
        assert len(asked.words) >= 2
        for sentence in asked.words:
            assert sentence.lower() in text
    assert facts.questions.normalise_words.lower() in text
    assert facts.counts_tell.lower() in text
    (objection,) = facts.objections
    for shown in (overview, page):
        assert f"Against it: {objection}" in shown.text
    assert f"verticil party approve {digest.hex()[:16]} --config {folder / 'party.toml'}" in page.text
    assert "What is published cannot be recalled" in page.text
    assert "Nobody has decided here yet." in page.text


def test_what_a_study_states_is_told_on_the_page_and_by_every_command_that_says_what_is_approved(
    folder: Path, visitor: Visitor, release_study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    study = dataclasses.replace(release_study, knowledge=STATED)
    (sentence,) = describe_knowledge(STATED, study.schema)
    with opened(folder) as site:
        digest = offer(site, study)
    assert f"{HEADING} {EXPLAINED} {sentence}" in visitor.page(f"study/{digest.hex()}/").text
    with opened(folder) as site:
        assert check._cost(site.config, site, study, NOW).stated == (sentence,)
    for command in (["show"], ["approve", "--as", "officer"]):
        shown = [*command[:1], digest.hex(), *command[1:], "--config", str(folder / "party.toml")]
        assert main(["party", *shown]) == 0
        assert sentence in capsys.readouterr().out
        assert main(["party", *shown, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["stated"] == [sentence]


def test_feature_39_every_state_of_a_study_is_told(folder: Path, visitor: Visitor, release_study: Study) -> None:
    with opened(folder) as site:
        sent = send(site, named(release_study, "running"))
        offer(site, named(release_study, "running"), State.UPLOADING)
        site.state.show(sent, "uploading", 63, at=NOW)
        denied = offer(site, named(release_study, "denied"))
        site.voting.deny(site.state.study(denied), "officer", "too much", NOW)
        failed = offer(site, named(release_study, "failed"), State.ALIGNING)
        site.state.fail(failed, PeerFault("ALIGNMENT_MISMATCH", "the lists differ", hint="ask the others"), NOW)
        published = offer(site, named(release_study, "published"), State.PUBLISHED)
    page = visitor.page()
    for words in (
        "uploading 63 % 63 %",
        "denied here",
        "ALIGNMENT_MISMATCH: the lists differ",
        "failed here",
        "published",
    ):
        assert words in page.text
    page = visitor.page(f"study/{sent.hex()}/")
    assert "age miner 12.1 KiB 2.00 2.00 2026-11-21 10:00:00 1 receipt signed" in page.text
    assert "approved officer 2026-11-21 10:00:00 valid until 2099-12-31" in page.text
    assert f"verticil party revoke {sent.hex()[:16]} --reason WHY" in page.text
    assert "denied officer 2026-11-21 10:00:00 too much" in visitor.page(f"study/{denied.hex()}/").text
    assert "Ask the others." in visitor.page(f"study/{failed.hex()}/").text
    assert "Decide, in a terminal" not in visitor.page(f"study/{published.hex()}/").text
    assert "running age miner 2.00 2.00 12.1 KiB 1" in visitor.page("ledger").text
    assert "ε 2.00 spent, 6.00 left" in visitor.page("ledger").text
    with opened(folder) as site:
        site.voting.revoke(site.state.study(sent), "officer", "consent withdrawn", NOW)
    page = visitor.page(f"study/{sent.hex()}/")
    assert "revoked officer 2026-11-21 10:00:00 consent withdrawn" in page.text
    assert "verticil party revoke" not in page.text


def test_feature_39_the_audit_log_is_verified_and_its_first_bad_line_named(
    folder: Path, visitor: Visitor, release_study: Study
) -> None:
    with opened(folder) as site:
        send(site, release_study)
        denied = offer(site, named(release_study, "denied"))
        site.voting.deny(site.state.study(denied), "officer", "too much", NOW)
    page = visitor.page("audit")
    n_lines = int(re.findall(r"The log holds\. (\d+) lines", page.text)[0])
    assert n_lines >= 2
    assert "denial officer denied too much" in page.text
    log = folder / "state" / "audit.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*lines[:1], lines[1].replace('"officer"', '["<b>", {"columns": 7}]'), *lines[2:]]))
    for shown in (visitor.page("audit"), visitor.page()):
        assert "audit.jsonl: line 2: it was changed" in shown.text
        assert "b" not in shown.tags
    assert "does not hold" in visitor.page().text


def test_feature_39_what_cannot_be_shown_is_an_error_with_a_hint(folder: Path, visitor: Visitor) -> None:
    assert "STUDY_UNKNOWN" in visitor.page("study/" + "0" * 64 + "/", status=404).text
    assert "no such page" in visitor.page("study/../../etc/passwd", status=404).text
    (folder / "party.toml").write_text(PARTY.replace("[policy]", "[polisy]"))
    assert "CONFIG_INVALID" in visitor.page(status=503).text
    (folder / "party.toml").write_text(PARTY)
    (folder / "state" / FILE_NAME).unlink()
    assert "STATE_CORRUPT" in visitor.page(status=503).text


# ---- what it never says


def test_feature_39_markup_in_any_text_stays_text(folder: Path, visitor: Visitor, release_study: Study) -> None:
    variables = tuple(
        dataclasses.replace(variable, labels=(MARKUP, "yes")) if variable.name == "smoker" else variable
        for variable in release_study.schema.variables
    )
    study = dataclasses.replace(release_study, title=MARKUP, purpose=MARKUP, schema=Schema(variables=variables))
    with opened(folder) as site:
        digest = offer(site, study)
        pages = [visitor.page(), visitor.page(f"study/{digest.hex()}/")]
        site.voting.deny(site.state.study(digest), MARKUP, MARKUP, NOW)
        failed = offer(site, dataclasses.replace(study, id="failed"))
        site.state.fail(failed, DataFault("DATA_UNREADABLE", MARKUP, hint=MARKUP), NOW)
    pages += [
        visitor.page(path) for path in ("", f"study/{digest.hex()}/", f"study/{failed.hex()}/", "ledger", "audit")
    ]
    assert sum(MARKUP in page.text for page in pages) >= 6  # whole, as text
    for page in pages:
        assert not page.tags & {"img", "iframe", "object", "embed", "base", "svg"}
        assert page.handlers == []
        assert all(
            re.fullmatch(
                PLACES,
                link,
            )
            for link in page.links
        )
        assert "http" not in page.html


def test_feature_39_no_data_value_no_record_id_no_secret(folder: Path, visitor: Visitor, release_study: Study) -> None:
    with opened(folder) as site:
        digest = send(site, release_study)
        secrets_of_the_site = (site.site_secret, site.linkage_key)
    (folder / "people.csv").unlink()  # it is not even read
    html = "".join(visitor.page(path).html for path in ("", f"study/{digest.hex()}/", "ledger", "audit"))
    for canary in (CANARY_ID, CANARY_VALUE, "p17", *(secret.hex() for secret in secrets_of_the_site)):
        assert canary not in html
    assert "Hearts and incomes" in html


# ---- whom it refuses


def test_feature_39_only_the_whole_address_opens_it(visitor: Visitor) -> None:
    token = visitor.root.strip("/")
    assert len(token) >= 43  # 256 bits
    for path in (
        "/",
        "/ledger",
        f"/{token}",
        f"/{token[:-1]}/",
        f"/{token}x/",
        f"/?{token}/",
        f"//{token[1:]}/",
        "/%00/",
    ):
        status, _, text = visitor.ask(path)
        assert (status, token in text) == (403, False), path
    assert visitor.ask(visitor.root)[0] == 200


def test_feature_39_another_host_name_is_refused(visitor: Visitor) -> None:
    """A name on the Internet that was made to mean 127.0.0.1, even with the token."""
    port = visitor.server.port
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1:{port}.evil.example",
        "",
    ):
        assert visitor.ask(visitor.root, Host=host)[0] == 421, host
    assert visitor.ask(visitor.root, Host=f"localhost:{port}")[0] == 200


def test_feature_39_nothing_but_reading_is_answered(visitor: Visitor) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"):
        status, headers, text = visitor.ask(visitor.root, method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD"), method
        assert "only be read" in text


def test_feature_39_every_answer_tells_the_browser_to_keep_and_load_nothing(visitor: Visitor) -> None:
    answers = [visitor.ask(path) for path in (visitor.root, visitor.root + "nowhere", "/")]
    answers += [visitor.ask(visitor.root, "HEAD"), visitor.ask(visitor.root, Host="evil.example")]
    for _, headers, _ in answers:
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Set-Cookie" not in headers
        assert headers["Server"].strip() == "verticil"
    assert answers[3][0] == 200
    assert answers[3][2] == ""  # HEAD


@pytest.mark.parametrize("listen", ["0.0.0.0:8899", "192.0.2.7:8899", "[::]:8899", "localhost:8899", "example.org:80"])
def test_feature_39_any_address_but_loopback_is_refused(
    folder: Path, listen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["party", "ui", "--listen", listen, "--config", str(folder / "party.toml"), "--format", "json"]) == 2
    assert "loopback" in json.loads(capsys.readouterr().out)["error"]["message"]
    (folder / "party.toml").write_text(PARTY + f'[ui]\nlisten = "{listen}"\n')
    with pytest.raises(Misuse, match=r"ui\.listen.*loopback"):
        load_party(folder / "party.toml")


def test_feature_39_party_toml_says_where_it_listens(folder: Path, visitor: Visitor) -> None:
    assert load_party(folder / "party.toml").page == ("127.0.0.1", 8899)
    (folder / "party.toml").write_text(PARTY + '[ui]\nlisten = "[::1]:0"\n')
    assert load_party(folder / "party.toml").page == ("::1", 0)
    with pytest.raises(Misuse, match="cannot listen"):
        site_server(folder / "party.toml", ("127.0.0.1", visitor.server.port))


# ---- that it only reads


def test_feature_39_looking_changes_no_byte_of_the_state(folder: Path, visitor: Visitor, release_study: Study) -> None:
    with opened(folder) as site:
        digest = send(site, release_study)

    def state() -> dict[str, bytes]:
        side_files = {FILE_NAME + "-wal", FILE_NAME + "-shm"}  # SQLite's own; without a writer they are empty of data
        files = (path for path in folder.rglob("*") if path.is_file() and path.name not in side_files)
        return {str(path): path.read_bytes() for path in files}

    before = state()
    for path in ("", f"study/{digest.hex()}/", "ledger", "audit"):
        visitor.page(path)
    assert state() == before
    wal = folder / "state" / (FILE_NAME + "-wal")
    assert not wal.exists() or wal.stat().st_size == 0
    with Site.look(load_party(folder / "party.toml")) as site:
        assert (site.site_secret, site.linkage_key) == (b"", b"")
        with pytest.raises(DataFault, match="READONLY"):
            site.state.show(digest, "x", at=NOW)
    assert state() == before


def test_feature_39_it_shows_what_a_running_daemon_has_just_written(
    folder: Path, visitor: Visitor, release_study: Study
) -> None:
    with opened(folder) as site:  # open all the while, as the daemon's is
        digest = send(site, release_study)
        site.state.show(digest, "uploading", 12, at=NOW)
        offer(site, release_study, State.UPLOADING)
        assert "12 %" in visitor.page().text
        with site.database.transaction():  # a write transaction keeps no reader waiting, and is not seen before its end
            site.state.show(digest, "uploading", 77, at=NOW)
            assert "77 %" not in visitor.page().text
        assert "77 %" in visitor.page().text


def test_feature_39_an_older_state_is_not_upgraded_by_looking(folder: Path, visitor: Visitor) -> None:
    with Database(folder / "state") as database:
        database.write("PRAGMA user_version = 3")
    assert f"schema version 3, expected {SCHEMA_VERSION}" in visitor.page(status=503).text


@pytest.mark.whole
def test_feature_39_the_command_serves_until_it_is_ended(folder: Path) -> None:
    arguments = ["party", "ui", "--listen", "127.0.0.1:0", "--config", str(folder / "party.toml"), "--format", "json"]
    command = [sys.executable, "-m", "verticil.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            assert "Nothing waits for a decision here." in answer.read().decode()
        process.terminate()
        rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, json.loads(rest), errors) == (0, {"party": "clinic", "stopped": True}, "")

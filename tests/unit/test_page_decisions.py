"""Decisions in the page of ``verticil party ui --decide``: the same as typed ones, once, and only from its own forms."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import FORM, Visitor, served
from support.site_folder import (
    CANARY_ID,
    CANARY_VALUE,
    NOW,
    OFFICERS_PARTY,
    deciding,
    make_site,
    offer,
    opened,
    site_of,
)
from verticil.cli.main import main
from verticil.party.operator.approvers import add_approver
from verticil.party.operator.page.pages import Officer, SitePages, site_server
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.storage.database import FILE_NAME
from verticil.shared.core.errors import Misuse
from verticil.shared.pages.server import FORM_HOURS, PageServer
from verticil.shared.study.document import Study
from verticil.shared.study.states import State


@pytest.fixture(autouse=True)
def at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("commands", "reports", "preview", "pending_studies"):
        monkeypatch.setattr(f"verticil.party.operator.{module}.utc_now", lambda: NOW)


def content(folder: Path) -> dict[str, object]:
    """Everything that a site has written down: each table of its database, and its audit log."""
    with sqlite3.connect(folder / "state" / FILE_NAME) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: sorted(map(repr, database.execute(f'SELECT * FROM "{name}"'))) for name in tables}
    database.close()
    assert {"vote", "approval", "denial", "revocation", "reserved"} <= set(rows)
    log = folder / "state" / "audit.jsonl"
    return {**rows, "audit": log.read_text() if log.exists() else ""}


ACTS: dict[str, tuple[list[tuple[str, dict[str, str]]], list[list[str]]]] = {
    "approve": ([("approve", {})], [["approve"]]),
    "deny": ([("deny", {"reason": "too much at once"})], [["deny", "--reason", "too much at once"]]),
    "revoke": (
        [("approve", {}), ("revoke", {"reason": "consent withdrawn", "typed": "hearts"})],
        [["approve"], ["revoke", "--reason", "consent withdrawn"]],
    ),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_decision_in_the_page_writes_what_the_same_decision_typed_writes(
    tmp_path: Path, release_study: Study, act: str
) -> None:
    """The daemon sends what the database says, byte for byte: what is equal there is equal on the wire."""
    folder = tmp_path / "site"  # the same path both times: the audit log names the digest of party.toml
    digest = site_of(tmp_path / "original", dataclasses.replace(release_study, id="hearts")).hex()
    in_page, typed = ACTS[act]
    found: list[dict[str, object]] = []
    for way in ("nothing", "typed", "page"):
        shutil.copytree(tmp_path / "original", folder)
        if way == "typed":
            for words in typed:
                command = ["party", words[0], digest, *words[1:], "--as", "lena"]
                assert main([*command, "--config", str(folder / "party.toml")]) == 0
        elif way == "page":
            with deciding(folder) as visitor:
                for name, fields in in_page:
                    status, page = visitor.decide(digest, name, **fields)
                    assert status == 303, page.text
        found.append(content(folder))
        shutil.rmtree(folder)
    nothing, by_typing, by_page = found
    assert by_page == by_typing
    assert by_page != nothing


def content_of_database(folder: Path) -> bytes:
    with sqlite3.connect(folder / "state" / FILE_NAME) as database:
        dump = "\n".join(database.iterdump())
    database.close()
    return hashlib.sha256(dump.encode()).digest()


def test_two_approvers_decide_in_two_pages(tmp_path: Path, release_study: Study) -> None:
    digest = site_of(tmp_path / "site", release_study, needed=2).hex()
    with deciding(tmp_path / "site", "lena") as lena, deciding(tmp_path / "site", "noor") as noor:
        noor_saw = noor.page(f"study/{digest}/")
        status, page = lena.decide(digest, "approve")
        assert (status, "pprovals given here: 1 of 2" in page.text) == (303, True)
        status, page = noor.decide(digest, "approve", noor_saw)  # what she saw had no vote of lena's yet
        assert (status, "yes by lena" in page.text) == (409, True)
        status, page = noor.decide(digest, "approve")
        assert (status, "Take the approval back" in page.text) == (303, True)
    with opened(tmp_path / "site") as site:
        assert site.state.study(bytes.fromhex(digest)).approval is not None


def test_a_second_tab_decides_nothing_that_it_did_not_see(tmp_path: Path, release_study: Study) -> None:
    digest = site_of(tmp_path / "site", release_study).hex()
    with deciding(tmp_path / "site") as visitor:
        one, other = (visitor.page(f"study/{digest}/") for _ in range(2))
        assert visitor.decide(digest, "deny", one, reason="no")[0] == 303
        before = content_of_database(tmp_path / "site")
        for act in ("approve", "deny", "revoke"):
            status, page = visitor.decide(digest, act, other, reason="yes", typed=release_study.id)
            assert (status, "Nothing was decided: the study has changed" in page.text) == (409, True), act
            assert "denied by lena" in page.text
        assert content_of_database(tmp_path / "site") == before
        assert "Approve" not in visitor.page(f"study/{digest}/").text.split("Decide as")[-1]


def test_what_is_refused_decides_nothing_and_says_so(tmp_path: Path, release_study: Study) -> None:
    study = dataclasses.replace(release_study, id="hearts")
    digest = site_of(tmp_path / "site", study).hex()
    with deciding(tmp_path / "site") as visitor:
        status, page = visitor.decide(digest, "deny", reason="  ")
        assert (status, "Nothing was decided" in page.text, "USAGE" in page.text) == (422, True, True)
        assert visitor.decide(digest, "approve")[0] == 303
        before = content_of_database(tmp_path / "site")
        status, page = visitor.decide(digest, "revoke", reason="no", typed="heart")
        assert (status, "expected 'hearts'" in page.text) == (422, True)
        status, page = visitor.decide("0" * 64, "approve", visitor.page(f"study/{digest}/"))
        assert (status, "STUDY_UNKNOWN" in page.text) == (422, True)
        status, page = visitor.decide(digest, "destroy")
        assert (status, "expected approve, deny, countersign or revoke" in page.text) == (422, True)
        assert content_of_database(tmp_path / "site") == before
    (tmp_path / "site" / "party.toml").write_text(
        (tmp_path / "site" / "party.toml").read_text().replace("per_column = 3.0", "per_column = 0.5")
    )
    with opened(tmp_path / "site") as site:
        late = offer(site, dataclasses.replace(study, id="late")).hex()
    with deciding(tmp_path / "site") as visitor:
        status, page = visitor.decide(late, "approve")
        assert (status, "BUDGET_EXCEEDED" in page.text) == (422, True), page.text


def test_no_form_of_another_page_is_taken(tmp_path: Path, release_study: Study) -> None:
    digest = site_of(tmp_path / "site", release_study).hex()
    with deciding(tmp_path / "site") as visitor:
        fields = visitor.page(f"study/{digest}/").fields
        before = content_of_database(tmp_path / "site")
        place = f"study/{digest}/approve"
        forged = {**fields, "form_token": fields["form_token"].replace(".", "0.", 1)}
        for sent, headers, status, words in (
            (forged, {}, 403, "does not come from this page"),
            ({"seen": fields["seen"]}, {}, 403, "does not come from this page"),
            (fields, {"Origin": "https://evil.example"}, 403, "another web page"),
            (fields, {"Sec_Fetch_Site": "cross-site"}, 403, "another web page"),
            (fields, {"Content_Type": "text/plain"}, 415, "expected a form"),
            (fields, {"Host": "evil.example"}, 421, "not known under that name"),
            ({**fields, "reason": "x" * 70_000}, {}, 413, "65,536 bytes"),
        ):
            found, page = visitor.send(place, sent, **headers)
            assert (found, words in page.text) == (status, True), (found, page.text)
            assert status == 421 or "nothing was decided" in page.text
        assert visitor.ask(visitor.root + place, "POST", "form_token=%ff", Content_Type=FORM)[0] in (400, 403)
        assert content_of_database(tmp_path / "site") == before
        own = f"http://{visitor.server.place}"
        assert visitor.send(place, fields, Origin=own, Sec_Fetch_Site="same-origin")[0] == 303


def test_an_old_form_is_refused_in_clear_words(tmp_path: Path, release_study: Study) -> None:
    digest = site_of(tmp_path / "site", release_study).hex()
    now = [0.0]
    pages = SitePages(tmp_path / "site" / "party.toml", officer=Officer(name="lena", key=None), clock=lambda: NOW)
    server = PageServer(
        pages.routes, ("127.0.0.1", 0), fingerprint=pages.fingerprint, decides=True, seconds=lambda: now[0]
    )
    with served(server) as running:
        visitor = Visitor(running)
        shown = visitor.page(f"study/{digest}/")
        now[0] = FORM_HOURS * 3600 + 1.0
        status, page = visitor.decide(digest, "deny", shown, reason="late")
        assert (status, f"older than {FORM_HOURS} hours" in page.text) == (403, True)
        assert visitor.decide(digest, "deny", reason="read anew")[0] == 303


def test_a_page_that_reads_takes_no_form_and_opens_no_table(tmp_path: Path, release_study: Study) -> None:
    digest = site_of(tmp_path / "site", release_study).hex()
    with served(site_server(tmp_path / "site" / "party.toml", ("127.0.0.1", 0), clock=lambda: NOW)) as server:
        visitor = Visitor(server)
        shown = visitor.page(f"study/{digest}/")
        assert (shown.fields, "--decide --as NAME" in shown.text) == ({}, True)
        assert visitor.send(f"study/{digest}/approve", {})[0] == 405
        assert visitor.ask(f"{visitor.root}study/{digest}/preview")[0] == 404


def test_the_seven_questions_and_the_shares_that_would_leave(tmp_path: Path, release_study: Study) -> None:
    digest = site_of(tmp_path / "site", release_study).hex()
    with deciding(tmp_path / "site") as visitor:
        page = visitor.page(f"study/{digest}/")
        asked = (
            "1. Who asks?", "2. Which columns?", "3. What leaves?", "4. What does it cost, and what does that mean?",
            "5. What differs from the last approval?", "6. What do this site's limits say?", "7. What follows if you say no?",
        )  # fmt: skip
        places = [page.text.index(question) for question in asked]
        assert places == sorted(places)
        assert "× 55.5" in page.text  # e^4.0149, of 2 + ln 7.5
        assert "all of it is new" in page.text
        before = content(tmp_path / "site")
        shares = visitor.page(f"study/{digest}/preview")
        for secret in (CANARY_ID, CANARY_VALUE, "p17"):
            assert secret not in page.html + shares.html
        # 81 of 121 rows smoke: every one but those whose number is divisible by 3, of 120, and the canary does not
        assert "yes 66.1 %" in shares.text
        after = content(tmp_path / "site")
        assert [name for name in after if after[name] != before[name]] == ["people_sketch"]  # as after `party preview`


def test_what_cannot_be_verified_is_not_countersigned(tmp_path: Path, release_study: Study) -> None:
    digest = site_of(tmp_path / "site", release_study).hex()
    with deciding(tmp_path / "site") as visitor:
        assert visitor.decide(digest, "approve")[0] == 303
        with opened(tmp_path / "site") as site:
            offer(site, release_study, State.REVIEW)
            site.decisions.ask_for_review(bytes.fromhex(digest), b"m" * 32)
        status, page = visitor.decide(digest, "countersign", typed=release_study.id)
        assert (status, "Nothing was decided" in page.text) == (422, True)
        status, page = visitor.decide(digest, "countersign", typed="another")
        assert (status, "typed otherwise" in page.text) == (422, True)


# ---- the key


def test_an_encrypted_key_is_opened_once_in_the_terminal(
    tmp_path: Path, release_study: Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def answer(text: str, **_: object) -> str:
        asked.append(text)
        return "four plain words"

    monkeypatch.setattr("typer.prompt", answer)
    monkeypatch.setattr("verticil.cli.party_site._has_terminal", lambda: True)
    key = tmp_path / "lena.key"
    assert main(["party", "approver", "keygen", "--key", str(key), "--encrypt", "--format", "json"]) == 0
    public = json.loads(capsys.readouterr().out)["public_key"]
    assert b"ENCRYPTED" in key.read_bytes()
    make_site(tmp_path / "site", OFFICERS_PARTY.format(needed=1))
    add_approver(tmp_path / "site" / "party.toml", "lena", public_key=public)
    with opened(tmp_path / "site") as site:
        digest = offer(site, release_study).hex()
    asked.clear()
    served_by: list[PageServer] = []
    monkeypatch.setattr("verticil.cli.pages._serve", lambda server, *_, **__: served_by.append(server))
    ui = ["party", "ui", "--decide", "--as", "lena", "--key", str(key), "--listen", "127.0.0.1:0"]
    assert main([*ui, "--config", str(tmp_path / "site" / "party.toml")]) == 0
    assert (len(asked), len(served_by)) == (1, 1)
    command = ["party", "approve", digest, "--as", "lena", "--key", str(key)]
    assert main([*command, "--config", str(tmp_path / "site" / "party.toml")]) == 0
    assert len(asked) == 2
    with pytest.raises(Misuse, match="not its passphrase"):
        ApproverKey.load(key, passphrase=lambda _: "other words")
    with pytest.raises(Misuse, match="without a passphrase"):
        ApproverKey.load(key)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--as", "lena"], 2),  # without --decide
        (["--decide", "--as", "nobody"], 4),
        (["--decide", "--as", "lena", "--key", "noor.key"], 4),
        (["--decide", "--as", "lena", "--key", "nowhere.key"], 1),
    ],
)
def test_who_cannot_decide_is_told_before_a_page_is_served(
    tmp_path: Path, release_study: Study, words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    site_of(tmp_path / "site", release_study)
    folder = tmp_path / "site"
    given = [str(folder / "approvers" / word) if word.endswith(".key") else word for word in words]
    ui = ["party", "ui", *given, "--listen", "127.0.0.1:0", "--config", str(folder / "party.toml"), "--format", "json"]
    assert main(ui) == code
    assert json.loads(capsys.readouterr().out)["error"]["hint"]


def test_no_page_holds_the_key(tmp_path: Path, release_study: Study) -> None:
    digest = site_of(tmp_path / "site", release_study).hex()
    text = (tmp_path / "site" / "approvers" / "lena.key").read_text()
    with deciding(tmp_path / "site") as visitor:
        html = "".join(visitor.page(path).html for path in ("", f"study/{digest}/", "ledger", "audit", "health"))
    assert all(line not in html for line in text.splitlines() if line)
    assert "lena" in html
    assert "key" not in repr(Officer(name="lena", key=ApproverKey.load(tmp_path / "site" / "approvers" / "lena.key")))


@pytest.mark.whole
def test_the_packages_of_pages_are_imported_only_where_a_page_is_served() -> None:
    code = (
        "import sys; import verticil.party.daemon, verticil.cli.main, verticil.cli.party, verticil.cli.miner;"
        " print([name for name in ('starlette', 'uvicorn', 'jinja2', 'h11') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"

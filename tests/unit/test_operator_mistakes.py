"""Mistyped names and numbers in commands: each is named, and nothing is done in place of what was meant."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from support.documents import party_toml, study_toml
from support.pages import Visitor, served
from support.site_folder import opened, task_of, write_site
from verticil.analyst import miner_line
from verticil.analyst.federation import Connection
from verticil.cli import study as study_commands
from verticil.cli.main import main
from verticil.miner.page.pages import miner_server
from verticil.shared.core.errors import Misuse, PeerFault, VerticilError
from verticil.shared.documents.config import Federation
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.federation.transport.interface import Control
from verticil.shared.study.document import Study
from verticil.shared.study.names import Named, choose
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.wire.v1 import control_pb2
from verticil.wire.v1.control_pb2 import GetStudyReply, StudySummary, SubmitStudyReply


@pytest.fixture
def config(tmp_path: Path, release_study: Study) -> str:
    """The party.toml of a site that knows one study."""
    write_site(tmp_path, party_toml(), people=10)
    with opened(tmp_path) as site:
        site.state.remember(task_of(release_study), release_study.id, utc_now())
    return str(tmp_path / "party.toml")


def test_the_audit_log_of_a_study_that_nobody_knows_is_an_error(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["party", "audit", "show", "--study", "nope", "--config", config]) == 2
    assert "error STUDY_UNKNOWN: study 'nope'" in capsys.readouterr().err
    assert main(["party", "audit", "show", "--study", "heart", "--config", config]) == 0
    assert "nothing is written there" in capsys.readouterr().out


@pytest.mark.parametrize(("days", "code"), [("36500", 0), ("999999", 2)])
def test_an_age_in_days_has_a_bound(config: str, days: str, code: int) -> None:
    assert main(["party", "purge", "--older-than", days, "--config", config]) == code


@pytest.mark.parametrize(
    ("submitters", "ways"),
    [(("lee", "mia"), "give ANALYST/ID or the digest of"), (("lee", "lee"), "give the digest of")],
)
def test_a_hint_says_what_tells_studies_apart(submitters: tuple[str, str], ways: str) -> None:
    digests = [bytes.fromhex("ab" * 4 + f"{index:02x}" * 28) for index in range(2)]
    studies = [
        Named(digest=one, study_id="hearts", submitter=who) for one, who in zip(digests, submitters, strict=True)
    ]
    with pytest.raises(Misuse, match="2 studies have this name") as caught:
        choose("abababab", studies)
    assert caught.value.hint.startswith(ways)


class SubmittingAgain:
    """Lee's command line, and a miner that knows the study already."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.study = folder / "study.toml"
        self.study.write_text(study_toml("clinic.smoker: yes no", "insurer.sum: low high", minimum=1000, epsilon=2.0))
        self.answers: list[StudySummary | VerticilError] = []
        self.state = State.AWAITING_APPROVAL
        monkeypatch.setattr(study_commands, "open_connection", self.connected)

    @asynccontextmanager
    async def connected(self, *_: object) -> AsyncGenerator[Connection]:
        identity = Identity(federation="trial", role=Role.ANALYST, name="lee")
        yield Connection(identity=identity, control=cast("Control", self), coordinator=None)

    async def submit_study(self, _: object) -> SubmitStudyReply:
        return SubmitStudyReply(study_digest=b"d" * 32, state=self.state.value)

    async def get_study(self, _: object) -> GetStudyReply:
        answer = self.answers.pop(0)
        if isinstance(answer, VerticilError):
            raise answer
        return GetStudyReply(study=answer)

    def submit(self, state: State, submitter: str = "lee") -> int:
        self.state, self.answers = state, [StudySummary(submitter=submitter)]
        return main(["study", "submit", str(self.study)])


@pytest.fixture
def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SubmittingAgain:
    return SubmittingAgain(tmp_path, monkeypatch)


@pytest.mark.parametrize("state", [State.AWAITING_APPROVAL, State.PUBLISHED])
def test_officers_see_a_study_only_while_it_waits_for_them(
    again: SubmittingAgain, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    assert again.submit(state) == 0
    assert ("party inbox" in capsys.readouterr().out) == (state is State.AWAITING_APPROVAL)


@pytest.mark.parametrize("state", [State.WITHDRAWN, State.FAILED])
def test_a_study_that_ended_before_is_not_called_submitted(
    again: SubmittingAgain, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    assert again.submit(state) == 2
    shown = capsys.readouterr()
    assert (shown.out, "STUDY_OVER" in shown.err) == ("", True)
    assert f"it ended before ({state.words}), and nothing was submitted" in shown.err


def test_a_study_of_another_analyst_is_there_already(
    again: SubmittingAgain, capsys: pytest.CaptureFixture[str]
) -> None:
    assert again.submit(State.AWAITING_APPROVAL, submitter="mia") == 0
    shown = capsys.readouterr().out
    assert "/".join(("mia", read_study(again.study).id)) + " is there already, submitted by mia" in shown
    assert not shown.startswith("submitted")


def test_watching_a_study_outlasts_a_miner_that_is_away(
    again: SubmittingAgain, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study_commands, "_LOOK_SECONDS", 0)
    away = PeerFault("UNREACHABLE", "miner")
    summaries = [StudySummary(study_id="hearts", state=state) for state in (State.LEARNING, State.PUBLISHED)]
    again.answers = [summaries[0], away, away, summaries[1]]
    assert main(["study", "status", "hearts", "--watch"]) == 0
    assert capsys.readouterr().err.count("waiting for the miner: UNREACHABLE") == 1
    again.answers = [away]
    assert main(["study", "status", "hearts", "--watch"]) == 5


def test_a_run_that_nothing_came_of_leaves_no_empty_folder(
    again: SubmittingAgain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again.state, again.answers = State.FAILED, [StudySummary()]
    monkeypatch.setattr(Federation, "authority", lambda _: b"")
    monkeypatch.setattr("verticil.shared.documents.config.load_federation", lambda _: Federation.__new__(Federation))
    assert main(["study", "run", str(again.study), "--on", "prod", "--out", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


def test_a_page_of_studies_says_what_the_certificate_may_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_days_ago = utc_now() - dt.timedelta(days=2)
    create_authority(tmp_path, "trial", at=two_days_ago)
    for role in (Role.PARTY, Role.CONSUMER, Role.ANALYST):
        issue(tmp_path, role, role, tmp_path)
    served: list[object] = []
    monkeypatch.setattr("verticil.cli.pages._serve", lambda _, node, may, **__: served.extend((node, may)))

    def page(role: Role) -> int:
        return main(["miner", "ui", "--certificate", str(tmp_path / f"{role}.crt"), "--listen", "127.0.0.1:0"])

    assert [page(role) for role in (Role.PARTY, Role.CONSUMER, Role.ANALYST)] == [2, 0, 0]
    assert served == [
        {"consumer": "consumer"},
        "read the page",
        {"analyst": "analyst"},
        "read the page, and submit and withdraw as analyst",
    ]
    issue(tmp_path, "old", Role.ANALYST, tmp_path, days=1, at=two_days_ago)
    served.clear()
    assert main(["miner", "ui", "--certificate", str(tmp_path / "old.crt"), "--listen", "127.0.0.1:0"]) == 5
    assert "CERTIFICATE_INVALID" in capsys.readouterr().err
    assert not served


@pytest.mark.parametrize("role", [Role.ANALYST, Role.CONSUMER])
def test_only_an_analyst_is_offered_to_submit_a_study(
    tmp_path: Path, role: Role, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Control:
        async def list_studies(self, _: object) -> control_pb2.ListStudiesReply:
            return control_pb2.ListStudiesReply()

    @asynccontextmanager
    async def connected(*_: object) -> AsyncGenerator[Connection]:
        identity = Identity(federation="trial", role=role, name="lee")
        yield Connection(identity=identity, control=Control(), coordinator=None)  # type: ignore[arg-type]

    monkeypatch.setattr(study_commands, "open_connection", connected)
    monkeypatch.setattr(miner_line, "open_connection", connected)
    create_authority(tmp_path, "trial")
    issue(tmp_path, "lee", role, tmp_path)
    may_submit = role is Role.ANALYST
    source = miner_line.LineSource(tmp_path / "federation.toml", tmp_path / "lee.crt")
    with served(miner_server(source, ("127.0.0.1", 0))) as server:
        lee = Visitor(server)
        page = lee.page()
        assert ("submit" in page.html.lower()) is may_submit
        assert ("who may read studies here" in page.text) is not may_submit
        lee.page("submit", 200 if may_submit else 404)
        lee.page("log", 404)
    assert main(["study", "list"]) == 0
    shown = capsys.readouterr().out
    assert ("submit one with" if may_submit else "no published studies yet\n") in shown
    assert ("submit" in shown) is may_submit

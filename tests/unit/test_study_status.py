"""Feature 22: what ``study status`` says of who holds a study up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verticil.cli import study_status
from verticil.miner.storage.worth import published_worth
from verticil.shared.documents.view_models import jsonable
from verticil.shared.numerics.joint.worth import Worth
from verticil.shared.pages.study_status import changes, reasons, summary_payload, why
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2, control_pb2


def party(name: str = "city", **facts: Any) -> control_pb2.PartyStatus:
    usual: dict[str, Any] = {"online": True, "seen": True, "units_expected": 2}
    return control_pb2.PartyStatus(party=name, **(usual | facts))  # type: ignore[arg-type]


def study(*parties: control_pb2.PartyStatus, state: State = State.UPLOADING) -> control_pb2.StudySummary:
    return control_pb2.StudySummary(
        study_id="readmission", study_digest=b"\x7c" * 32, state=state, parties=parties, deadline="2026-11-24T10:00:00Z"
    )


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"waiting_for": "approval"}, "waiting for approval"),
        ({"waiting_for": "approval", "approvers": 1, "approvers_needed": 2}, "waiting for approval (1 of 2)"),
        ({"waiting_for": "linkage", "stage": "reading"}, "reading"),
        ({"waiting_for": "linkage", "stage": "linking", "percent": 40}, "linking, 40 %"),
        ({"waiting_for": "linkage"}, "waiting for its pseudonyms"),
        ({"waiting_for": "confirmation"}, "waiting for it to confirm the common list"),
        ({"waiting_for": "columns", "stage": "randomizing"}, "randomizing"),
        ({"waiting_for": "columns", "stage": "uploading", "percent": 63}, "uploading, 63 %"),
        ({"waiting_for": "columns", "stage": "linking", "percent": 100}, "waiting for its columns"),
        ({"stage": "uploading", "percent": 100}, ""),
        ({"online": False}, ""),
        (
            {"waiting_for": "columns", "online": False, "lease_age_seconds": 200},
            "waiting for its columns; offline, last heard of 3 min ago",
        ),
        (
            {"waiting_for": "approval", "online": False, "seen": False},
            "waiting for approval; offline, not heard of since the miner started",
        ),
        (
            {"waiting_for": "approval", "standing": "revoked", "standing_since": "2026-11-20T10:00:00Z"},
            "revoked on 2026-11-20; missing until it joins anew with new keys: its approval",
        ),
        (
            {
                "waiting_for": "columns",
                "standing": "expired",
                "standing_since": "2026-11-20T10:00:00Z",
                "stage": "uploading",
            },
            "expired on 2026-11-20; missing until it renews its certificate: its columns",
        ),
        ({"standing": "revoked", "standing_since": "2026-11-20T10:00:00Z"}, "revoked on 2026-11-20"),
        (
            {
                "waiting_for": "linkage",
                "standing": "carried",
                "standing_since": "2026-11-20T10:00:00Z",
                "online": False,
            },
            "comes with its next file: its pseudonyms; the last one came on 2026-11-20",
        ),
        (
            {"waiting_for": "approval", "approval_void": "2026-11-20T10:00:00Z"},
            "waiting for approval; it had approved with a certificate that was revoked on 2026-11-20, and approves anew",
        ),
        (
            {"failure": common_pb2.ErrorDetail(code="BUDGET_EXCEEDED", hint="declare stronger noise")},
            "failed: BUDGET_EXCEEDED (declare stronger noise)",
        ),
    ],
)
def test_feature_22_why_a_study_waits(facts: dict[str, Any], words: str) -> None:
    assert why(party(**facts)) == words


def test_nobody_is_waited_for_once_a_study_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    waits = party("city", waiting_for="approval")
    denied = party("insurer", failure=common_pb2.ErrorDetail(code="STUDY_DENIED"))
    assert reasons(study(waits, denied, state=State.AWAITING_APPROVAL))["city"] == "waiting for approval"
    ended = study(waits, denied, state=State.DENIED)
    assert reasons(ended) == {"city": "", "insurer": "failed: STUDY_DENIED"}
    assert [item["why"] for item in summary_payload(ended)["parties"]] == ["", "failed: STUDY_DENIED"]
    study_status.print_summary(ended)
    assert "waiting" not in capsys.readouterr().out


@pytest.mark.parametrize("standing", ["revoked", "expired", "carried"])
def test_who_cannot_be_reached_is_shown_as_that_and_never_as_online_or_waiting(
    standing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {
        "waiting_for": "approval",
        "online": False,
        "lease_age_seconds": 3,
        "standing_since": "2026-11-20T10:00:00Z",
    }
    found = study(party("city", standing=standing, **facts), state=State.AWAITING_APPROVAL)
    study_status.print_summary(found)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("city")]
    assert line.split()[1] == standing
    assert "waiting" not in line
    (city,) = json.loads(json.dumps(jsonable(summary_payload(found))))["parties"]
    assert (city["standing"], city["online"], city["missing"]) == (standing, False, "approval")
    assert "waiting" not in city["why"]
    assert (city["waiting_for"] is None) is (standing != "carried")


def test_feature_22_one_table_of_parties_and_stages(capsys: pytest.CaptureFixture[str]) -> None:
    done = {"approved": True, "pseudonyms_complete": True, "alignment_confirmed": True}
    study_status.print_summary(
        study(
            party("st-anna", **done, units_received=2),
            party(
                "city", approvers=1, approvers_needed=2, waiting_for="approval", online=False, lease_age_seconds=7200
            ),
            party("insurer", **done, units_received=1, stage="uploading", percent=63, waiting_for="columns"),
        )
    )
    lines = capsys.readouterr().out.splitlines()
    cells = {line.split()[0]: line.split() for line in lines}
    assert cells["party"] == ["party", "online", "approve", "link", "confirm", "send", "now"]
    assert cells["st-anna"] == ["st-anna", "yes", "(0", "s)", "ok", "ok", "ok", "ok"]
    assert cells["city"][1:7] == ["no", "(2", "h)", "1", "of", "2"]
    assert cells["insurer"][4:] == ["ok", "ok", "ok", "63", "%", "uploading,", "63", "%"]
    assert any("2026-11-24T10:00:00Z" in line for line in lines)


def test_feature_22_a_watch_that_is_no_terminal_prints_a_line_for_each_change() -> None:
    said: dict[str, str] = {}
    first = study(party("city", waiting_for="approval"), state=State.AWAITING_APPROVAL)
    assert list(changes(first, said)) == ["readmission: awaiting approval", "city: waiting for approval"]
    assert list(changes(first, said)) == []
    sending = study(party("city", waiting_for="columns", stage="uploading", percent=5))
    assert list(changes(sending, said)) == ["readmission: uploading", "city: uploading, 5 %"]
    done = study(party("city"))
    assert list(changes(done, said)) == ["city: nothing is waited for"]


def test_feature_22_json_says_the_same() -> None:
    payload = summary_payload(study(party("city", waiting_for="columns", lease_age_seconds=3)))
    shown = json.loads(json.dumps(jsonable(payload)))
    assert shown["deadline"] == "2026-11-24T10:00:00Z"
    (city,) = shown["parties"]
    assert (city["waiting_for"], city["why"], city["lease_age_seconds"]) == ("columns", "waiting for its columns", 3)
    assert city["failure"] is None


def test_a_published_study_ends_in_the_sentence_of_its_release(capsys: pytest.CaptureFixture[str]) -> None:
    published = study(party(), state=State.PUBLISHED)
    assert "worth" not in summary_payload(published)
    published.worth.CopyFrom(control_pb2.Worth(two_way=0.02, independent=0.05, one_way=0.004, drowned=["ward"]))
    study_status.print_summary(published)
    assert "nearer to the people than independent columns by 60 %" in " ".join(capsys.readouterr().out.split())
    payload = json.loads(json.dumps(jsonable(summary_payload(published))))
    assert (payload["worth"]["useless"], payload["worth"]["drowned"]) == (False, ["ward"])


@pytest.mark.parametrize("document", ["{}", "[]", '{"worth": {"two_way": 1}}'])
def test_a_release_that_says_nothing_of_its_worth_has_none(tmp_path: Path, document: str) -> None:
    assert published_worth(tmp_path) is None
    (tmp_path / "of").mkdir()
    (tmp_path / "of" / "model.json").write_text(document)
    assert published_worth(tmp_path / "of") is None


def test_a_release_has_the_worth_that_its_model_says(tmp_path: Path) -> None:
    worth = Worth(two_way=0.02, independent=0.05, one_way=0.004, drowned=("ward",))
    (tmp_path / "model.json").write_text(json.dumps({"worth": worth.document()}))
    assert published_worth(tmp_path) == worth

"""``party limits --publish`` and ``study check --limits``: what a party would refuse is named before anybody is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.documents import study_toml
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision

STUDY = study_toml("clinic.ward: a b c d", "insurer.plan: basic gold", name="asked", minimum=200, epsilon=2.5)
SECRET = "never_to_be_named"


@pytest.fixture
def made(tmp_path: Path) -> Provisioned:
    for name, column in (("clinic", "ward"), ("insurer", "plan")):
        (tmp_path / f"{name}.csv").write_text(f"id,{column}\n1,a\n")
    sites = [csv_site(name, tmp_path / f"{name}.csv") for name in ("clinic", "insurer")]
    made = provision(
        tmp_path / "trial",
        federation="trial",
        sites=sites,
        limits=OPEN_LIMITS,
        endpoint="127.0.0.1:1",
        listen="127.0.0.1:0",
        hosts=("127.0.0.1",),
    )
    path = made.parties["clinic"] / "party.toml"
    kept = [
        line
        for line in path.read_text().splitlines()
        if not line.startswith(("max_epsilon_per_column", "max_categories"))
    ]
    strict = f'[policy]\nmax_epsilon_per_column = 2.0\nmax_categories = 3\nmax_days = 30\ndeny_columns = ["{SECRET}"]'
    path.write_text("\n".join(line for line in kept if "deny_columns" not in line).replace("[policy]", strict))
    assert load_party(path).policy.max_categories == 3
    (tmp_path / "study.toml").write_text(STUDY)
    return made


def published(made: Provisioned, party: str, folder: Path) -> Path:
    out = folder / f"{party}.json"
    assert main(["party", "limits", "--publish", str(out), "--config", str(made.parties[party] / "party.toml")]) == 0
    return out


def checked(made: Provisioned, folder: Path, *files: Path, n: int | None = None) -> list[str]:
    words = ["study", "check", str(folder / "study.toml"), "--federation", str(made.analyst / "federation.toml")]
    words += [word for path in files for word in ("--limits", str(path))] + ([] if n is None else ["--n", str(n)])
    return [*words, "--format", "json"]


def test_a_study_that_breaks_published_limits_is_told_each_of_them_before_anybody_is_asked(
    made: Provisioned, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [published(made, party, tmp_path) for party in made.parties]
    capsys.readouterr()
    assert main(checked(made, tmp_path, *files)) == 6
    facts = json.loads(capsys.readouterr().out)
    found = [
        (item["where"], item["code"], item["severity"])
        for item in facts["findings"]
        if item["where"].startswith("party")
    ]
    clinic = "party 'clinic'"
    assert facts["ok"] is False
    assert [item for item in found if item[0] == clinic] == [
        (clinic, "POLICY_REFUSED", "error"),  # days
        (clinic, "POLICY_REFUSED", "error"),  # categories
        (clinic, "BUDGET_EXCEEDED", "error"),
    ]
    assert not [item for item in found if item[0] == "party 'insurer'" and item[2] == "error"]
    assert SECRET not in files[0].read_text()
    assert main(checked(made, tmp_path)) == 0  # without the documents the study looks well


def test_a_changed_or_foreign_document_of_limits_is_refused(
    made: Provisioned, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = published(made, "clinic", tmp_path)
    document = json.loads(path.read_text())
    said = document["statement"]
    for change, code in (
        ({"statement": said | {"party": "insurer"}}, "IDENTITY_REFUSED"),
        ({"statement": said | {"limits": said["limits"] | {"max_categories": 50}}}, "MESSAGE_INVALID"),
        ({"signature": "00" * 64}, "MESSAGE_INVALID"),
        ({"statement": {"kind": "verticil/limits/v1"}}, "CONFIG_INVALID"),
        ({"certificate": 3}, "CONFIG_INVALID"),
    ):  # fmt: skip
        path.write_text(json.dumps(document | change))
        capsys.readouterr()
        assert main(checked(made, tmp_path, path)) != 0
        assert code in "".join(capsys.readouterr())
    assert main(checked(made, tmp_path, tmp_path / "absent.json")) != 0

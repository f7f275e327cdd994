"""Slips of the pen in a site's policy that `party check` names: approvers who are too few, names that nothing has."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.documents import FEDERATION, PEOPLE, party_toml, study_toml
from support.site_folder import write_site
from verticil.party.config import load_party
from verticil.party.operator.approvers import add_approver, remove_approver
from verticil.party.operator.check import Readiness, check
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.study.reading import read_study

PEERS = FEDERATION + '[peers]\nclinic = "clinic.example.org:1"\ninsurer = "insurer.example.org:1"\n'
STUDY = study_toml("clinic.smoker: yes no", "insurer.sum: low high", minimum=50, epsilon=1.0)


def warnings(view: Readiness) -> list[tuple[str, str]]:
    return [(item.message, item.hint) for item in view.warnings if item.code == "CONFIG_INVALID"]


def faults(view: Readiness) -> list[str]:
    return [fault.message for fault in view.faults if "approvers_needed" in fault.message]


def readiness(folder: Path, policy: str, *, asked: bool = False, **options: object) -> Readiness:
    write_site(folder, party_toml(policy, **options), people=60, federation=PEERS)  # type: ignore[arg-type]
    (folder / "study.toml").write_text(STUDY)
    return check(load_party(folder / "party.toml"), read_study(folder / "study.toml") if asked else None)


def test_more_approvals_than_approvers_is_a_fault_and_the_file_can_still_be_read(tmp_path: Path) -> None:
    words = "party.toml: policy.approvers_needed: got 2, expected at most 1: {} approvers are named"
    assert faults(readiness(tmp_path, "approvers_needed = 2\n")) == [words.format(0)]
    path = tmp_path / "party.toml"
    add_approver(path, "officer")
    assert faults(check(load_party(path))) == [words.format(1)]
    add_approver(path, "it")
    assert faults(check(load_party(path))) == []
    remove_approver(path, "it")  # as a running daemon reads it again
    assert faults(check(load_party(path))) == [words.format(1)]


@pytest.mark.parametrize("asked", [False, True])
def test_a_denied_column_that_no_table_has_is_a_warning(tmp_path: Path, asked: bool) -> None:
    renamed = PEOPLE + '[dataset.people.columns.wheezes]\nsource = "smoker"\n'
    view = readiness(tmp_path, 'deny_columns = ["Smoker", "age", "wheezes", "xyzzy"]\n', asked=asked, datasets=renamed)
    where = "is no column of this party's tables"
    later = "correct it in party.toml if it is not meant for a later table"
    assert warnings(view) == [
        (f"deny_columns: 'Smoker' {where}", "did you mean 'smoker'?"),
        (f"deny_columns: 'xyzzy' {where}", later),
    ]


def test_nothing_is_said_of_columns_where_a_table_cannot_be_read(tmp_path: Path) -> None:
    readiness(tmp_path, 'deny_columns = ["Smoker"]\n')
    (tmp_path / "people.csv").unlink()
    assert warnings(check(load_party(tmp_path / "party.toml"))) == []


def test_a_recipient_whom_nobody_knows_is_a_warning(tmp_path: Path) -> None:
    view = readiness(tmp_path, "", recipients=("minr", "insurer", "miner"))
    assert warnings(view) == [
        ("recipients: 'minr' is neither the miner nor a party in federation.toml", "did you mean 'miner'?")
    ]


def test_a_table_below_the_site_s_own_minimum_is_a_warning(tmp_path: Path) -> None:
    words = "data set 'people': fewer rows than minimum_rows = 61, so no study can have this table"
    assert [message for message, _ in warnings(readiness(tmp_path, "minimum_rows = 61\n", asked=True))] == [words]
    assert warnings(readiness(tmp_path, "minimum_rows = 60\n", asked=True)) == []


def test_a_near_name_is_found_whatever_its_letters() -> None:
    assert near_hint("SMOKER", ["age", "smoker"]) == "did you mean 'smoker'?"
    assert near_hint("xyzzy", ["age", "smoker"]) == ""

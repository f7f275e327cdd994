"""Rules by which a party approves by itself: each condition, what no rule may approve, and what stays for people."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

import pytest

from verticil.party.config import load_party
from verticil.party.control.site import Site, init_state
from verticil.party.control.state import Task
from verticil.party.decision.rules import Rule, against
from verticil.shared.channels.transition import identity, quantize
from verticil.shared.errors import Misuse, Refusal
from verticil.shared.study import canonical
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.document import ShareRule
from verticil.shared.study.states import State

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
SOURCES = {"age": "AGE", "smoker": "smoker"}
RULE = Rule(
    name="usual", columns=("AGE", "smoker"), max_epsilon=5.0, parties=("registry",), recipients=("miner",), max_days=40_000
)  # fmt: skip
PARTY = """
schema = 1
name = "clinic"
federation = "federation.toml"
state_directory = "state"
[identity]
certificate = "clinic.crt"
key = "clinic.key"
[linkage]
key = "linkage.key"
[dataset.people]
path = "people.csv"
id = "id"
[policy]
approval = "rules"
max_epsilon_per_column = 3.0
max_epsilon_per_study = 6.0
max_epsilon_lifetime = 8.0
minimum_common_records = 50
recipients = ["miner"]
"""
REPEATS = '[[policy.rule]]\nname = "repeats"\ncolumns = ["age", "smoker"]\nmax_epsilon = 5.0\nonly_repeats = true\n'
USUAL = '[[policy.rule]]\nname = "usual"\ncolumns = ["age", "smoker"]\nmax_epsilon = 5.0\n'


def judged(rule: Rule, study, charges: dict[int, float] | None = None) -> tuple[str, ...]:
    return against(rule, study, "clinic", sources=SOURCES, charges=charges, today=NOW.date())


def test_a_rule_approves_when_every_condition_holds(release_study):
    assert judged(RULE, release_study) == ()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"columns": ("AGE",)}, "local column 'smoker' is not in columns"),
        ({"columns": ("smoker",)}, "local column 'AGE' is not in columns"),
        ({"max_epsilon": 4.0}, "epsilon 4.015, expected at most 4"),
        ({"parties": ("insurer",)}, "party 'registry' is not in parties"),
        ({"recipients": ("registry",)}, "'miner' gets columns and is not in recipients"),
        ({"max_days": 365}, "more days, expected at most 365"),
        ({"only_repeats": True}, "it sends what was not sent before"),
    ],
)
def test_each_condition_is_named_when_it_does_not_hold(release_study, change, named):
    (found,) = judged(dataclasses.replace(RULE, **change), release_study, {0: 0.0, 1: 2.0})[-1:]
    assert named in found


def test_what_has_no_finite_epsilon_is_for_people(release_study, peer_study):
    as_it_is = dataclasses.replace(release_study.units[1], transition=quantize(identity(2)), scheme="none")
    study = dataclasses.replace(release_study, units=(release_study.units[0], as_it_is, *release_study.units[2:]))
    assert "epsilon is infinite, which only a person may approve" in judged(RULE, study)
    peers = dataclasses.replace(RULE, parties=(), recipients=(), max_epsilon=1e9)
    assert "epsilon is infinite, which only a person may approve" in judged(peers, peer_study())
    noisy = peer_study(share=ShareRule(epsilon=1.0, delta=1e-9))
    assert judged(peers, noisy) == ()
    assert judged(dataclasses.replace(peers, only_repeats=True), noisy) != ()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "federation.toml").write_text(
        f'schema = 1\nname = "trial"\nca_certificate = "ca.crt"\nca_sha256 = "{"0" * 64}"\n[miner]\nendpoint = "localhost:1"\n'
    )
    (tmp_path / "linkage.key").write_text("ab" * 32 + "\n")
    (tmp_path / "linkage.key").chmod(0o600)
    rows = [f"p{i},{i % 100},{'yes' if i % 3 else 'no'}" for i in range(150)]
    (tmp_path / "people.csv").write_text("\n".join(["id,age,smoker", *rows]) + "\n")
    init_state(tmp_path / "state", site_secret=b"s" * 32)
    return tmp_path


def offered(folder: Path, rules: str, study) -> Site:
    (folder / "party.toml").write_text(PARTY + rules)
    site = Site.open(load_party(folder / "party.toml"))
    task = Task(
        digest=canonical.digest(study), version=1, state=int(State.AWAITING_APPROVAL), proposal=canonical.to_bytes(study),
        effective=b"", effective_digest=b"", approved=False, pseudonyms_complete=False, alignment_confirmed=False,
        units_received=(), failure="",
    )  # fmt: skip
    site.state.remember(task, study.id, NOW)
    return site


def test_without_a_rule_that_holds_nothing_is_approved(folder, release_study):
    for rules in ("", REPEATS, USUAL.replace("5.0", "1.0"), USUAL.replace('"age", ', "")):
        with offered(folder, rules, release_study) as site:
            assert site.approve_by_rule(site.state.find("heart"), NOW) is None
            assert site.state.find("heart").approval is None


def test_the_approval_names_its_rule_and_ends_with_it(folder, release_study, caplog):
    with offered(folder, REPEATS + USUAL, release_study) as site:
        rule = site.approve_by_rule(site.state.find("heart"), NOW)
        assert rule is not None
        record = site.state.find("heart")
        assert parse_approval(record.approval).approver == "by rule 2 'usual'"
        site.check_binding(record, NOW.date())
    assert "study 'heart' was approved by rule 2 'usual'" in caplog.text
    with (
        offered(folder, REPEATS, release_study) as site,
        pytest.raises(Refusal, match="not a rule of the policy any more"),
    ):
        site.check_binding(site.state.find("heart"), NOW.date())


def test_only_repeats_approves_what_was_sent_before_and_not_changed_data(folder, release_study):
    with offered(folder, REPEATS, release_study) as site:
        found = site.review(site.state.find("heart"), NOW)
        for index, release in found.releases.items():
            site.ledger.record(
                release, version_tag=b"", policy=site.config.policy, study_digest=b"e" * 32, study_id="earlier", unit=index,
                recipient="miner", artifact_sha256=b"a" * 32, size=1, at=NOW,
            )  # fmt: skip
        record = site.state.find("heart")
        (folder / "people.csv").write_text((folder / "people.csv").read_text().replace("p7,7,yes", "p7,7,no"))
        assert site.approve_by_rule(record, NOW) is None
        (folder / "people.csv").write_text((folder / "people.csv").read_text().replace("p7,7,no", "p7,7,yes"))
        assert site.approve_by_rule(record, NOW) is not None


def test_a_broken_table_waits_for_people_and_a_person_cannot_pose_as_a_rule(folder, release_study):
    with offered(folder, USUAL, release_study) as site:
        (folder / "people.csv").unlink()
        assert site.approve_by_rule(site.state.find("heart"), NOW) is None
        with pytest.raises(Misuse, match="reserved"):
            site.approve(site.state.find("heart"), "by rule 1 'usual'", NOW)

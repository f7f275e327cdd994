"""What an approval binds to, and several data sets at one party."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

import pytest

from support.documents import party_toml
from support.site_folder import write_site
from verticil.party import local_dataset
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.column_draws import ColumnDraw, seals
from verticil.party.local_dataset import origins
from verticil.party.policy import approval_checks
from verticil.party.policy.approval_checks import AUTOMATIC
from verticil.party.policy.voting import FollowedConfig
from verticil.party.site import Site
from verticil.party.storage.studies import Task
from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.privacy.events import RandomizedColumn
from verticil.shared.study import canonical
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.states import State

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
PARTY = party_toml()
N = 150


def people() -> str:
    rows = [f"p{i},{i % 100},{'yes' if i % 3 else 'no'}" for i in range(N)]
    return "\n".join(["id,age,smoker", *rows]) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, PARTY)
    (tmp_path / "people.csv").write_text(people())
    return tmp_path


def config_of(folder: Path, **policy) -> PartyConfig:
    config = load_party(folder / "party.toml")
    return dataclasses.replace(config, policy=dataclasses.replace(config.policy, **policy))


def told(study, state=State.AWAITING_APPROVAL, **change) -> Task:
    proposal = canonical.to_bytes(study)
    facts = {
        "digest": canonical.digest(study),
        "version": 1,
        "state": int(state),
        "proposal": proposal,
        "effective": b"",
        "effective_digest": b"",
        "approved": False,
        "pseudonyms_complete": False,
        "alignment_confirmed": False,
        "units_received": (),
        "failure": "",
    }
    return Task(**(facts | change))


@pytest.fixture
def site(folder, release_study):
    with Site.open(config_of(folder)) as opened:
        opened.state.remember(told(release_study), release_study.id, NOW)
        yield opened


def test_the_body_says_what_was_approved(site, release_study):
    record = site.state.find("heart")
    verdict = site.voting.approve(record, "officer", NOW)
    assert verdict.complete
    body = site.state.find("heart").approval
    given = parse_approval(body)
    assert given.proposal_digest == canonical.digest(release_study)
    assert given.party == "clinic"
    assert [unit.index for unit in given.units] == [0, 1]
    assert given.minimum_common_records == 100  # the study's; the policy's is 50
    assert (given.approver, given.approved_at) == ("officer", NOW)
    approved = approval_checks.check_binding(site.config, release_study, given, record.digest, NOW.date())
    assert approved == release_study
    site.voting.check_data(record, given, release_study, verdict.review.holding)


def counting(name, plain, steps):
    def counted(*given, **rest):
        steps.append(name)
        return plain(*given, **rest)

    return counted


def test_an_approval_parses_and_checks_its_study_once(site, monkeypatch):
    """Every step takes the checked value from the record."""
    canonical.parse_canonical.cache_clear()
    steps: list[str] = []
    for module, name in ((canonical, "parse"), (canonical.rules, "check")):
        plain = getattr(module, name)
        monkeypatch.setattr(module, name, counting(name, plain, steps))
    verdict = site.voting.approve(site.state.find("heart"), "officer", NOW)
    record = site.state.find("heart")
    given = parse_approval(record.approval)
    approved = approval_checks.check_binding(site.config, record.task.latest, given, record.digest, NOW.date())
    site.voting.check_data(record, given, approved, verdict.review.holding)
    assert steps == ["parse", "check"]


def test_approving_twice_is_approving_once(site):
    record = site.state.find("heart")
    site.voting.approve(record, "officer", NOW)
    body = site.state.find("heart").approval
    site.voting.approve(site.state.find("heart"), "officer", NOW + dt.timedelta(hours=1))
    assert site.state.find("heart").approval == body


def test_an_approval_that_was_sent_can_be_given_for_other_data_but_for_no_other_declaration(
    site, folder, release_study
):
    record = site.state.find("heart")
    site.voting.approve(record, "officer", NOW)
    (folder / "people.csv").write_text(people().replace("yes", "no", 1))
    site.voting.approve(site.state.find("heart"), "officer", NOW)  # not sent yet: it takes the earlier one's place
    site.state.remember(told(release_study, approved=True), release_study.id, NOW)
    site.voting.approve(site.state.find("heart"), "officer", NOW)
    (folder / "people.csv").write_text(people())
    site.voting.approve(
        site.state.find("heart"), "officer", NOW
    )  # of the data others know nothing: it takes the earlier one's place
    held = site.state.find("heart").approval
    toml = folder / "party.toml"
    more = '[[randomization]]\nvariables = ["smoker"]\nscheme = "symmetric"\nepsilon = 1.0\n'
    toml.write_text(toml.read_text() + more)
    site = dataclasses.replace(site, followed=FollowedConfig(config_of(folder)))
    with pytest.raises(Refusal, match="others have the approval") as caught:
        site.voting.approve(site.state.find("heart"), "officer", NOW)
    assert (caught.value.code, caught.value.exit_code) == ("APPROVAL_VOID", 4)
    assert site.state.find("heart").approval == held


def given_by(site):
    site.voting.approve(site.state.find("heart"), "officer", NOW)
    return parse_approval(site.state.find("heart").approval)


@pytest.mark.parametrize(
    "change",
    [
        lambda study: dataclasses.replace(study, title="another"),
        lambda study: dataclasses.replace(study, expires=dt.date(2098, 1, 1)),
        lambda study: dataclasses.replace(study, parties=("registry", "clinic")),
        lambda study: dataclasses.replace(study, linkage=dataclasses.replace(study.linkage, normalise=("trim",))),
        lambda study: study.with_declaration(
            {4: dataclasses.replace(study.units[4], scheme="symmetric", transition=quantize(symmetric(2, epsilon=1)))}
        ),
    ],
)
def test_feature_4_any_change_of_the_study_voids(site, release_study, change):
    given = given_by(site)
    other = change(release_study)
    with pytest.raises(Refusal) as caught:
        approval_checks.check_binding(site.config, other, given, canonical.digest(other), NOW.date())
    assert caught.value.code == "APPROVAL_VOID"


def test_the_last_day_counts_and_the_next_does_not(site, release_study):
    given, digest = given_by(site), canonical.digest(release_study)
    approval_checks.check_binding(site.config, release_study, given, digest, dt.date(2099, 12, 31))
    with pytest.raises(Refusal) as caught:
        approval_checks.check_binding(site.config, release_study, given, digest, dt.date(2100, 1, 1))
    assert (caught.value.code, caught.value.exit_code) == ("STUDY_EXPIRED", 4)
    with pytest.raises(Refusal):
        site.review(site.state.find("heart"), dt.datetime(2100, 1, 1, tzinfo=dt.UTC))


def test_a_stricter_policy_after_the_approval_counts(site, release_study):
    given, digest = given_by(site), canonical.digest(release_study)
    for change in ({"max_epsilon_per_column": 1.0}, {"deny_columns": ("smoker",)}, {"recipients": ()}):
        policy = dataclasses.replace(site.config.policy, **change)
        config = dataclasses.replace(site.config, policy=policy)
        with pytest.raises(Refusal) as caught:
            approval_checks.check_binding(config, release_study, given, digest, NOW.date())
        assert caught.value.exit_code == 3


def test_changed_or_absent_data_void(site, release_study):
    given = given_by(site)
    with pytest.raises(Refusal, match="the data of column 'age', or where they come from, changed"):
        approval_checks.check_data(release_study, given, {0: b"x" * 32, 1: bytes.fromhex(given.units[1].fingerprint)})
    with pytest.raises(Refusal):
        approval_checks.check_data(release_study, given, {})


def test_row_order_and_blanks_around_ids_are_not_data(site, folder, release_study):
    given = given_by(site)
    header, *rows = people().splitlines()
    (folder / "people.csv").write_text("\n".join([header, *(f" {row}" for row in reversed(rows))]) + "\n")
    record = site.state.find("heart")
    site.voting.check_data(record, given, release_study, site.read(record))


def test_a_told_digest_is_not_believed(site, release_study):
    effective = canonical.to_bytes(release_study)
    with pytest.raises(PeerFault) as caught:
        approval_checks.check_effective(release_study, effective, b"x" * 32, "clinic")
    assert caught.value.code == "STUDY_MISMATCH"
    assert (
        approval_checks.check_effective(release_study, effective, canonical.digest(release_study), "clinic")
        == release_study
    )


def test_a_denied_failed_or_ended_study_is_not_approved(site, release_study):
    record = site.state.find("heart")
    with pytest.raises(Misuse, match="reason"):
        site.voting.deny(record, "officer", "  ", NOW)
    site.voting.deny(record, "officer", "too much", NOW)
    with pytest.raises(Refusal, match="denied"):
        site.voting.approve(site.state.find("heart"), "officer", NOW)
    other = dataclasses.replace(release_study, id="ended")
    site.state.remember(told(other, State.WITHDRAWN), other.id, NOW)
    with pytest.raises(Refusal) as caught:
        site.voting.approve(site.state.find("ended"), "officer", NOW)
    assert (caught.value.code, caught.value.exit_code) == ("STUDY_WITHDRAWN", 4)
    with pytest.raises(Misuse) as caught:
        site.state.find("unknown")
    assert caught.value.code == "STUDY_UNKNOWN"


def test_nobody_can_pose_as_the_automatic_approver(site):
    with pytest.raises(Misuse, match="reserved"):
        site.voting.approve(site.state.find("heart"), AUTOMATIC, NOW)


@pytest.mark.parametrize("memory_rows", [1000, 20])
def test_two_data_sets_are_joined_by_id_and_charged_apart(folder, release_study, monkeypatch, memory_rows):
    monkeypatch.setattr(local_dataset, "MEMORY_ROWS", memory_rows)
    rows = people().splitlines()[1:]
    cells = [row.split(",") for row in rows]
    (folder / "people.csv").write_text("\n".join(["id,age", *(f"{c[0]},{c[1]}" for c in cells)]) + "\n")
    (folder / "habits.csv").write_text(
        "\n".join(["id,smoker", *(f"{c[0]},{c[2]}" for c in reversed(cells[10:]))]) + "\n"
    )
    path = folder / "party.toml"
    path.write_text(path.read_text().replace("[policy]", '[dataset.habits]\npath = "habits.csv"\nid = "id"\n[policy]'))
    with Site.open(config_of(folder)) as site:
        site.state.remember(told(release_study), release_study.id, NOW)
        with pytest.raises(Refusal, match=r"SAME_PEOPLE.*'habits' and data set 'people'"):
            site.review(site.state.find("heart"), NOW)
    path.write_text(path.read_text().replace("[policy]", '[policy]\nsame_people = { habits = "apart" }'))
    config = config_of(folder)
    assert {name: origin.dataset for name, origin in origins(config, release_study).items()} == {
        "age": "people",
        "smoker": "habits",
    }
    with Site.open(config) as site:
        site.state.remember(told(release_study), release_study.id, NOW)
        review = site.review(site.state.find("heart"), NOW)
        holding = review.holding
        assert holding.n_records == N - 10
        assert [release.dataset for release in review.column_draws.values()] == ["people", "habits"]
        pairs = sorted(zip(holding.codes["age"].tolist(), holding.codes["smoker"].tolist(), strict=True))
        bins = [0 if int(c[1]) < 18 else 1 if int(c[1]) < 65 else 2 for c in cells[10:]]
        assert pairs == sorted((b, int(c[2] == "yes")) for b, c in zip(bins, cells[10:], strict=True))
    (folder / "habits.csv").write_text("id,age\np1,3\n")
    with pytest.raises(Misuse, match="variable 'age': expected one of 2 data sets, people, habits have it"):
        origins(config, release_study)


def test_another_partys_approval_binds_nobody_here(site, release_study):
    given, digest = given_by(site), canonical.digest(release_study)
    config = dataclasses.replace(site.config, name="registry")
    with pytest.raises(Refusal, match="it is for another study or party"):
        approval_checks.check_binding(config, release_study, given, digest, NOW.date())


def test_an_effective_study_with_its_own_digest_is_still_compared_with_what_was_approved(release_study):
    told = dataclasses.replace(release_study, title="another")
    with pytest.raises(PeerFault, match=r"STUDY_MISMATCH.*its 'title' is not what was approved"):
        approval_checks.check_effective(release_study, canonical.to_bytes(told), canonical.digest(told), "clinic")


def test_the_same_data_under_two_units_have_two_seals():
    release = ColumnDraw(
        variables=("age",), dataset="people", sources=("age",), codebook_digest=b"c" * 32, transition_digest=b"t" * 32,
        secret_id=b"s" * 16, fingerprint=b"f" * 32, event=RandomizedColumn(epsilon=1.0),
    )  # fmt: skip
    found = seals({0: release, 1: release}, b"d" * 32, site_secret=b"k" * 32)
    assert found[0] != found[1]
    assert found == seals({0: release, 1: release}, b"d" * 32, site_secret=b"k" * 32)

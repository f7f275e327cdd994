"""Rules by which a party approves by itself: each condition, what no rule may approve, and what stays for people."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from pathlib import Path

import pytest

from support.documents import party_toml
from support.site_folder import task_of, write_site
from verticil.party.config import load_party
from verticil.party.limits.rules import Rule, against
from verticil.party.operator.purging import purge
from verticil.party.policy import approval_checks
from verticil.party.policy.rule_approval import approve_by_rule, ruling
from verticil.party.site import Site
from verticil.shared.core.errors import Misuse, Refusal
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.model.schema import Missing, Schema
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.document import ShareRule
from verticil.shared.study.states import State
from verticil.shared.study.unit import Unit

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
SOURCES = {"age": "AGE", "smoker": "smoker"}
RULE = Rule(
    name="usual", columns=("AGE", "smoker"), max_epsilon=5.0, parties=("registry",), recipients=("miner",), max_days=40_000
)  # fmt: skip
PARTY = party_toml('approval = "rules"\n')
CODEBOOK = """
[codebook]
normalise = [["nfkc", "trim"]]
[[codebook.column]]
source = "age"
bins = [0, 18, 65, 120]
integer = true
[[codebook.column]]
source = "smoker"
categories = ["no", "yes"]
"""
REPEATS = '[[policy.rule]]\nname = "repeats"\ncolumns = ["age", "smoker"]\nmax_epsilon = 5.0\nonly_repeats = true\n'
USUAL = '[[policy.rule]]\nname = "usual"\ncolumns = ["age", "smoker"]\nmax_epsilon = 5.0\n'


def judged(rule: Rule, study, *, repeats: bool | None = None) -> tuple[str, ...]:
    return against(rule, study, "clinic", sources=SOURCES, repeats=repeats, today=NOW.date())


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
    (found,) = judged(dataclasses.replace(RULE, **change), release_study, repeats=False)[-1:]
    assert named in found


def test_what_has_no_finite_epsilon_is_for_people(release_study, peer_study):
    as_it_is = dataclasses.replace(release_study.units[1], transition=quantize(identity(2)), scheme="none")
    study = dataclasses.replace(release_study, units=(release_study.units[0], as_it_is, *release_study.units[2:]))
    assert "epsilon is infinite, which only a person may approve" in judged(RULE, study)
    peers = dataclasses.replace(RULE, parties=(), recipients=(), max_epsilon=1e9)
    assert "epsilon is infinite, which only a person may approve" in judged(peers, peer_study())
    noisy = peer_study(share=ShareRule(epsilon=1.0, delta=1e-9, noise="discrete-gaussian"))
    assert judged(peers, noisy) == ()
    assert judged(dataclasses.replace(peers, only_repeats=True), noisy) != ()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, people=150)
    return tmp_path


def offered(folder: Path, rules: str, study, *, codebook: str = CODEBOOK, party: str = PARTY) -> Site:
    (folder / "party.toml").write_text(party + rules + codebook)
    site = Site.open(load_party(folder / "party.toml"))
    task = task_of(study)
    site.state.remember(task, study.id, NOW)
    return site


def test_without_a_rule_that_holds_nothing_is_approved(folder, release_study):
    for rules in ("", REPEATS, USUAL.replace("5.0", "1.0"), USUAL.replace('"age", ', "")):
        with offered(folder, rules, release_study) as site:
            assert approve_by_rule(site.voting, site.state.find("heart"), NOW) is None
            assert site.state.find("heart").approval is None


def test_the_approval_names_its_rule_and_ends_with_it(folder, release_study, caplog):
    with offered(folder, REPEATS + USUAL, release_study) as site:
        rule = approve_by_rule(site.voting, site.state.find("heart"), NOW)
        assert rule is not None
        record = site.state.find("heart")
        assert parse_approval(record.approval).approver == "by rule 2 'usual'"
        site.voting.check_binding(record, NOW.date())
    assert "study 'heart' was approved by rule 2 'usual'" in caplog.text
    with (
        offered(folder, REPEATS, release_study) as site,
        pytest.raises(Refusal, match="not a rule of the policy any more"),
    ):
        site.voting.check_binding(site.state.find("heart"), NOW.date())


def sent(site: Site, record, *, name: str = "earlier") -> None:
    """The columns of a study were sent in an earlier one."""
    for index, release in site.review(record, NOW).column_draws.items():
        site.ledger.record(
            release, version_tag=b"", policy=site.config.policy, study_digest=b"e" * 32, study_id=name, unit=index,
            recipient="miner", artifact_sha256=b"a" * 32, size=1, at=NOW,
        )  # fmt: skip


def test_only_repeats_approves_the_same_draw_whatever_the_table_says_now(folder, release_study):
    """A charge depends on the values; that the same columns, codebook and matrix were sent before does not."""
    roomy = PARTY.replace("max_epsilon_lifetime = 8.0", "max_epsilon_lifetime = 9.0")
    with offered(folder, 'on_data_change = "sticky"\n' + REPEATS, release_study, party=roomy) as site:
        record = site.state.find("heart")
        assert ruling(site.voting, record, NOW).why == ("rule 'repeats': it sends what was not sent before",)
        sent(site, record)
        people = (folder / "people.csv").read_text()
        for text in (people, people.replace("p7,7,yes", "p7,7,no")):
            (folder / "people.csv").write_text(text)
            assert ruling(site.voting, record, NOW).rule is not None
        assert approve_by_rule(site.voting, record, NOW) is not None


def test_room_in_the_budget_is_reckoned_without_the_table(folder, release_study):
    """Changed values would be charged again: where the policy accepts them, there must be room whether they changed or not."""
    for policy, room in (('on_data_change = "refuse"\n', True), ('on_data_change = "fresh"\n', False)):
        with offered(folder, policy + USUAL, release_study) as site:
            if policy.endswith('"refuse"\n'):
                sent(site, site.state.find("heart"))  # 4.01 of 8.00
            found = ruling(site.voting, site.state.find("heart"), NOW)
            assert (found.rule is not None) is room
            assert room or "BUDGET_EXCEEDED" in found.why[0]


def test_a_broken_table_waits_for_people_and_a_person_cannot_pose_as_a_rule(folder, release_study):
    with offered(folder, USUAL, release_study) as site:
        (folder / "people.csv").unlink()
        assert approve_by_rule(site.voting, site.state.find("heart"), NOW) is None
        with pytest.raises(Misuse, match="reserved"):
            site.voting.approve(site.state.find("heart"), "by rule 1 'usual'", NOW)


# ---- codebooks


def with_variable(study, **changes):
    variables = tuple(dataclasses.replace(v, **changes) if v.name == "smoker" else v for v in study.schema.variables)
    return dataclasses.replace(study, schema=Schema(variables=variables))


def with_age(study, edges):
    labels = tuple(f"[{low},{high})" for low, high in itertools.pairwise(edges))
    variables = tuple(
        dataclasses.replace(v, bins=edges, labels=labels) if v.name == "age" else v for v in study.schema.variables
    )
    return dataclasses.replace(study, schema=Schema(variables=variables))


def with_normalise(study, *steps):
    return dataclasses.replace(study, linkage=dataclasses.replace(study.linkage, normalise=steps))


ASKED = {
    "a bin edge": (lambda study: with_age(study, (0, 18, 66, 120)), "column 'age': its bins of the local column 'age'"),
    "labels": (lambda study: with_variable(study, labels=("no", "Yes")), "column 'smoker': its categories"),
    "their order": (lambda study: with_variable(study, labels=("yes", "no")), "column 'smoker': its categories"),
    "other": (lambda study: with_variable(study, other="no"), "column 'smoker': its categories"),
    "missing": (
        lambda study: with_variable(study, missing=Missing(category="no", spellings=("",))), "column 'smoker': its categories"
    ),
    "normalise": (lambda study: with_normalise(study, "nfkc", "trim", "casefold"), "linkage.normalise (nfkc, trim, casefold)"),
    "no normalise": (lambda study: with_normalise(study), "linkage.normalise (nothing)"),
}  # fmt: skip


@pytest.mark.parametrize("what", ASKED)
def test_a_rule_approves_no_codebook_that_the_site_did_not_write_down(folder, release_study, what):
    change, named = ASKED[what]
    with offered(folder, USUAL, change(release_study)) as site:
        record = site.state.find("heart")
        assert approve_by_rule(site.voting, record, NOW) is None
        assert site.state.find("heart").approval is None
        (why,) = ruling(site.voting, record, NOW).why
        assert why.startswith(named)
        assert "in no [codebook] of party.toml and in no study that a person approved here" in why


def test_a_codebook_is_of_a_local_column_and_not_of_a_name(folder, release_study):
    """The analyst names variables; party.toml says which local column that is."""
    moved = '[dataset.people.columns.smoker]\nsource = "SMOKES"\n'
    rule = USUAL.replace('"smoker"', '"smoker", "SMOKES"')
    with offered(folder, rule, release_study, codebook=CODEBOOK + moved) as site:
        (why,) = ruling(site.voting, site.state.find("heart"), NOW).why
        assert "column 'smoker': its categories of the local column 'SMOKES'" in why


def test_a_rule_approves_the_impossible_combinations_that_the_site_wrote_down_and_no_others(folder, release_study):
    listed = '[[codebook.jointly]]\nsources = ["smoker", "age"]\nimpossible = [["yes", "[0,18)"]]\n'
    for impossible, codebook, covered in (
        ((), CODEBOOK, True),
        (((0, 1),), CODEBOOK, False),
        (((0, 1),), CODEBOOK + listed, True),  # in whatever order the columns are named
        (((0, 0),), CODEBOOK + listed, False),
        (((0, 0), (0, 1)), CODEBOOK + listed, False),
    ):
        pair = Unit(
            variables=("age", "smoker"), owner="clinic", scheme="symmetric", impossible=impossible,
            transition=quantize(symmetric(6 - len(impossible), epsilon=2.0)),
        )  # fmt: skip
        study = dataclasses.replace(release_study, units=(pair, *release_study.units[2:]))
        with offered(folder, USUAL, study) as site:
            pass
        with offered(folder, USUAL, study, codebook=codebook) as site:
            found = ruling(site.voting, site.state.studies()[-1], NOW)
        assert (found.rule is not None) is covered, impossible
        assert covered or found.why[0].startswith(
            "columns 'age, smoker': the list of their impossible combinations stands"
        )


def renamed(study, name: str):
    return dataclasses.replace(study, id=name)


def test_a_rule_approves_what_a_person_approved_here_before_also_after_purge(folder, release_study):
    """Codebook and normalise of one study; not what a rule approved, and not what was taken back."""
    asking = with_normalise(with_variable(release_study, other="no"), "nfkc", "trim", "casefold")
    with offered(folder, USUAL, renamed(asking, "first"), codebook="") as site:
        first = site.state.find("first")
        assert len(ruling(site.voting, first, NOW).why) == 3  # both columns and normalise
        site.voting.approve(first, "officer", NOW)
        site.state.move(first.digest, State.PUBLISHED)
    purge(load_party(folder / "party.toml"), "first", older_than_days=None, at=NOW)
    with offered(folder, USUAL, renamed(asking, "second"), codebook="") as site:
        assert approve_by_rule(site.voting, site.state.find("second"), NOW) is not None
    with offered(folder, USUAL, renamed(with_age(asking, (0, 19, 65, 120)), "third"), codebook="") as site:
        assert [why[:12] for why in ruling(site.voting, site.state.find("third"), NOW).why] == ["column 'age'"]
    moved = '[dataset.people.columns.smoker]\nsource = "SMOKES"\n'
    with offered(folder, USUAL.replace("smoker", "SMOKES"), renamed(asking, "fourth"), codebook=moved) as site:
        assert len(ruling(site.voting, site.state.find("fourth"), NOW).why) == 1  # approved of another local column
    with offered(folder, USUAL, renamed(asking, "fifth"), codebook="") as site:
        site.voting.revoke(site.state.find("first"), "officer", "a mistake", NOW)
        assert len(ruling(site.voting, site.state.find("fifth"), NOW).why) == 3  # the second was approved by a rule


# ---- what is written down, and how often


def reviews(site: Site) -> list[tuple[object, object]]:
    return [(line["study_id"], line["detail"]) for line in site.audit.entries() if line["event"] == "rule-review"]


def test_each_review_by_rule_is_a_line_of_the_audit_log(folder, release_study):
    asking = renamed(with_normalise(release_study, "nfkc", "trim", "casefold"), "asking")
    with offered(folder, USUAL, release_study) as site:
        approve_by_rule(site.voting, site.state.find("heart"), NOW)
        approve_by_rule(site.voting, site.state.find("heart"), NOW)  # it is approved: no review
    with offered(folder, USUAL, asking) as site:
        approve_by_rule(site.voting, site.state.find("asking"), NOW)
        (first, second) = reviews(site)
        assert first == ("heart", "by rule 1 'usual'")
        assert second[0] == "asking"
        assert second[1].startswith("none: linkage.normalise (nfkc, trim, casefold) stands in no [codebook]")
        site.audit.verify()


def test_a_person_who_denies_while_the_rules_decide_is_heard(folder, release_study, monkeypatch):
    with offered(folder, USUAL, release_study) as site:
        whole = approval_checks.review

        def review(*given, **rest):
            found = whole(*given, **rest)
            site.voting.deny(site.state.find("heart"), "officer", "not this one", NOW)
            return found

        monkeypatch.setattr(approval_checks, "review", review)
        assert approve_by_rule(site.voting, site.state.find("heart"), NOW) is None
        record = site.state.find("heart")
        assert (record.approval, record.denial_sent, record.failure) == (None, False, None)
        assert reviews(site) == [("heart", "none: STUDY_DENIED")]
        site.audit.verify()


def test_rules_approve_so_many_studies_a_day_also_over_restarts(folder, release_study):
    limit = "max_rule_approvals_per_day = 2\n"
    later = NOW + dt.timedelta(hours=23)
    for number, (at, approved) in enumerate(
        [(NOW, True), (NOW, True), (later, False), (NOW + dt.timedelta(hours=25), True)], 1
    ):
        with offered(folder, limit + USUAL, renamed(release_study, f"study-{number}")) as site:
            sent_before = site.ledger.rows()
            assert sent_before == ()
            assert (approve_by_rule(site.voting, site.state.find(f"study-{number}"), at) is not None) is approved
            if not approved:
                assert "the most of policy.max_rule_approvals_per_day" in str(reviews(site)[-1])
                assert site.voting.approve(
                    site.state.find(f"study-{number}"), "officer", at
                ).complete  # people still may


def test_the_review_by_rule_reads_the_table_only_for_what_it_approves(folder, release_study):
    """So nothing in it, and not how long it takes to read, has a part in the answer."""
    (folder / "people.csv").unlink()
    with offered(folder, USUAL, release_study) as site:
        assert ruling(site.voting, site.state.find("heart"), NOW).rule is not None
        assert approve_by_rule(site.voting, site.state.find("heart"), NOW) is None  # nothing to seal an approval with
    with offered(folder, USUAL, renamed(with_age(release_study, (0, 19, 65, 120)), "asking")) as site:
        approve_by_rule(site.voting, site.state.find("asking"), NOW)
        assert [said.split(":")[1].strip().split(" ")[0] for _, said in reviews(site)] == [
            "DATA_FILE_MISSING",
            "column",
        ]

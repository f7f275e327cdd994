"""The breach rule: as a number, in a study, and in a party's policy, where it refuses before anything leaves."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
import rfc8785

from support.documents import party_toml, study_toml
from support.site_folder import task_of, write_site
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import Column
from verticil.party.limits.limits import find_objections
from verticil.party.operator import commands
from verticil.party.policy import approval_checks
from verticil.party.site import Site
from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.mechanisms.privacy import Breach, gamma
from verticil.shared.mechanisms.transition import blocks, quantize, symmetric, two_level
from verticil.shared.study import canonical
from verticil.shared.study.approval import check_own_part, parse_approval
from verticil.shared.study.reading import read_study
from verticil.shared.study.unit import TwoLevel

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
RULE = Breach(prior=0.1, posterior=0.5)

STUDY = study_toml(
    "clinic.ward: a b c",
    "insurer.claims: none some",
    minimum=1000,
    epsilon=2.0,
    keys="breach = { prior = 0.1, posterior = 0.5 }\n",
)
PARTY = party_toml(per_column=9.0, per_study=9.0, lifetime=9.0)


def read(tmp_path: Path, text: str):
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    return read_study(tmp_path / "study.toml")


# ---- the rule


@pytest.mark.parametrize(
    ("prior", "posterior", "limit"),
    [(0.1, 0.5, 9), (0.1, 0.4, 6), (0.3, 0.7, 49 / 9), (0.5, 0.9, 9), (0.01, 0.02, 99 / 49)],
)
def test_the_limit_in_closed_form(prior, posterior, limit):
    assert Breach(prior=prior, posterior=posterior).gamma_limit == pytest.approx(limit, rel=1e-15)


def test_reaching_the_limit_is_a_breach_on_either_side_of_rounding():
    assert RULE.possible(Fraction(9))
    assert RULE.possible(Fraction(9) - Fraction(1, 10**12))
    assert not RULE.possible(Fraction(899, 100))
    assert RULE.possible(None)
    for n_states in range(2, 30):
        assert RULE.possible(gamma(quantize(symmetric(n_states, gamma=9))))
        assert not RULE.possible(gamma(quantize(symmetric(n_states, gamma=8.999))))


@pytest.mark.parametrize(
    ("prior", "posterior"), [(0, 0.5), (0.5, 0.5), (0.6, 0.5), (0.1, 1), (math.nan, 0.5), (0.1, math.nan)]
)
def test_beliefs_are_in_order(prior, posterior):
    with pytest.raises(ValueError, match="expected 0 < prior < posterior < 1"):
        Breach(prior=prior, posterior=posterior)


# ---- in a study


def test_a_study_that_keeps_its_rule_is_read_and_carries_it(tmp_path):
    study = read(tmp_path, STUDY)
    assert study.breach == RULE
    data = canonical.to_bytes(study)
    assert json.loads(data)["breach"] == {"prior": 0.1, "posterior": 0.5}
    assert canonical.from_bytes(data) == study
    without = read(tmp_path, STUDY.replace("breach = { prior = 0.1, posterior = 0.5 }\n", ""))
    assert b"breach" not in canonical.to_bytes(without)
    assert dataclasses.replace(study, breach=None) == without


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "epsilon = 2.0",
            "epsilon = 3.0",
            "breach: column 'ward' has gamma 20.0855, column 'claims' has gamma 20.0855",
        ),
        ("epsilon = 2.0", "epsilon = 3.0", "expected gamma below 9, so that no belief of 0.1 becomes 0.5"),
        ("epsilon = 2.0", "gamma = 9.0", "column 'ward' has gamma 9"),
        (
            "epsilon = 2.0",
            'epsilon = 2.0\n[[randomization]]\nvariables = ["claims"]\nscheme = "none"',
            "breach: column 'claims' has gamma infinite; expected",
        ),
        ("posterior = 0.5", "posterior = 0.05", "breach: got 0.1 and 0.05, expected 0 < prior < posterior < 1"),
        ("posterior = 0.5", "posteriori = 0.5", "breach.posteriori: unknown key"),
        ("{ prior = 0.1, posterior = 0.5 }", "0.5", "breach: got a number, expected a table"),
        ("prior = 0.1, ", "", "breach.prior: missing"),
    ],
)
def test_a_study_that_does_not_is_refused_with_column_gamma_and_bound(tmp_path, old, new, words):
    assert old in STUDY
    with pytest.raises(Misuse) as caught:
        read(tmp_path, STUDY.replace(old, new))
    assert (caught.value.code, caught.value.exit_code) == ("STUDY_INVALID", 2)
    assert words in caught.value.message


def test_bytes_of_a_study_that_breaks_its_own_rule_are_refused(release_study):
    value = json.loads(canonical.to_bytes(release_study))
    value["breach"] = {"prior": 0.1, "posterior": 0.5}
    with pytest.raises(PeerFault, match="column 'income' has gamma 9, column 'region' has gamma infinite"):
        canonical.from_bytes(rfc8785.dumps(value))
    value["breach"] = {"prior": 0.1}
    with pytest.raises(PeerFault, match=r"breach.posterior: missing"):
        canonical.from_bytes(rfc8785.dumps(value))


def test_the_miner_cannot_drop_the_rule(tmp_path):
    study = read(tmp_path, STUDY)
    with pytest.raises(PeerFault, match="its 'breach' is not what was approved"):
        check_own_part(study, dataclasses.replace(study, breach=None), "clinic")


def test_study_check_shows_the_rule_and_both_levels(tmp_path, capsys):
    text = STUDY + (
        '[[randomization]]\nvariables = ["ward"]\nscheme = "two-level"\ngroups = [["a", "b"], ["c"]]\n'
        "epsilon_group = 1.0\nepsilon_within = 0.5\n"
    )
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    assert main(["study", "check", str(tmp_path / "study.toml"), "--n", "100000"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "ward: two-level, epsilon 1 for the group (2 groups), 0.5 within it;" in shown
    assert "The group is randomized too: nothing is released exactly" in shown
    assert "no belief of 0.1 becomes 0.5 (odds x below 9)" in shown
    assert main(["study", "check", str(tmp_path / "study.toml"), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["breach"] == {"prior": 0.1, "posterior": 0.5}
    levels = {"groups": [[0, 1], [2]], "epsilon_group": 1.0, "epsilon_within": 0.5}
    assert [row["two_level"] for row in facts["columns"]] == [levels, None]


# ---- in a policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, PARTY, people=150)
    return tmp_path


def with_rule(folder: Path, rule: str, *, more: str = ""):
    (folder / "party.toml").write_text(PARTY + f"breach = {rule}\n" + more)
    return load_party(folder / "party.toml")


def remember(site: Site, study) -> None:
    task = task_of(study)
    site.state.remember(task, study.id, NOW)


def test_the_policy_is_read_strictly(folder):
    assert load_party(folder / "party.toml").policy.breach is None
    assert with_rule(folder, "{ prior = 0.1, posterior = 0.5 }").policy.breach == RULE
    for rule, words in (
        ("{ prior = 0.5, posterior = 0.1 }", "policy.breach: got 0.5 and 0.1, expected 0 < prior"),
        ("{ prior = 0.5 }", "policy.breach.posterior: missing"),
        ("{ prior = 0.1, posterior = 0.5, gamma = 9 }", "policy.breach.gamma: unknown key"),
        ("true", "policy.breach: got true/false, expected a table"),
    ):
        with pytest.raises(Misuse) as caught:
            with_rule(folder, rule)
        assert caught.value.code == "CONFIG_INVALID"
        assert words in caught.value.message


def test_a_policy_refuses_to_approve_what_allows_a_breach(folder, release_study):
    """gamma of age e^2 = 7.39, of smoker 7.5 (p1 = .1, p2 = .25); the limit of (.1, .4) is 6, that of (.1, .5) is 9."""
    config = with_rule(folder, "{ prior = 0.1, posterior = 0.4 }")
    with Site.open(config) as site:
        remember(site, release_study)
        with pytest.raises(Refusal) as caught:
            site.voting.approve(site.state.find("heart"), "officer", NOW)
        assert (caught.value.code, caught.value.exit_code) == ("POLICY_REFUSED", 3)
        assert "column 'age': gamma 7.38906, expected below 6" in caught.value.message
        assert "column 'smoker': gamma 7.5, expected below 6" in caught.value.message
        assert "so that no belief of 0.1 becomes 0.4" in caught.value.message
        assert site.state.find("heart").approval is None
        assert site.ledger.rows() == ()  # nothing was charged
    (facts,) = commands.status(config, at=NOW).studies
    assert len(facts.objections) == 2
    with Site.open(with_rule(folder, "{ prior = 0.1, posterior = 0.5 }")) as site:
        assert site.voting.approve(site.state.find("heart"), "officer", NOW).complete


def test_a_policy_that_became_stricter_refuses_what_was_approved(folder, release_study):
    """The check before pseudonyms or columns are made: the policy of that moment counts."""
    with Site.open(load_party(folder / "party.toml")) as site:
        remember(site, release_study)
        site.voting.approve(site.state.find("heart"), "officer", NOW)
        given = parse_approval(site.state.find("heart").approval)
    config = with_rule(folder, "{ prior = 0.1, posterior = 0.4 }")
    with pytest.raises(Refusal) as caught:
        approval_checks.check_binding(config, release_study, given, canonical.digest(release_study), NOW.date())
    assert caught.value.code == "POLICY_REFUSED"


def test_a_stronger_declaration_of_its_own_satisfies_the_policy(folder, release_study):
    own = '[[randomization]]\nvariables = ["age", "smoker"]\nscheme = "symmetric"\nepsilon = 1.5\n'
    with Site.open(with_rule(folder, "{ prior = 0.1, posterior = 0.4 }", more=own)) as site:
        remember(site, release_study)
        assert site.voting.approve(site.state.find("heart"), "officer", NOW).complete


def found(folder: Path, study, columns=("age", "smoker"), sources=("age", "smoker"), **change) -> list[str]:
    policy = dataclasses.replace(load_party(folder / "party.toml").policy, breach=RULE, **change)
    places = {name: Column(dataset="people", source=source) for name, source in zip(columns, sources, strict=True)}
    return [o.message for o in find_objections(policy, study, "clinic", places) if o.code == "POLICY_REFUSED"]


def test_a_permit_for_infinite_epsilon_is_no_exception(folder, release_study):
    grouped = dataclasses.replace(
        release_study.units[0], scheme="blocks", transition=quantize(blocks([(0, 1), (2,)], 3, keep=0.6))
    )
    (message,) = found(folder, release_study.with_declaration({0: grouped}), allow_infinite=("age",))
    assert "column 'age': gamma infinite, expected below 9" in message


def test_one_local_column_under_two_names_counts_as_one(folder, release_study):
    """Two independent releases of one value: their gammas multiply, e^2 x 7.5 = 55.4."""
    assert found(folder, release_study) == []
    (message,) = found(folder, release_study, sources=("age", "age"))
    assert "local column 'age' stands behind 2 variables: gamma multiplies to 55.4179, expected below 9" in message


def test_party_status_shows_both_levels(folder, release_study, capsys):
    levels = TwoLevel(groups=((0, 1), (2,)), epsilon_group=1.0, epsilon_within=0.5)
    matrix = two_level(levels.groups, 3, epsilon_group=1.0, epsilon_within=0.5)
    unit = dataclasses.replace(
        release_study.units[0], scheme="two-level", transition=quantize(matrix), two_level=levels
    )
    with Site.open(load_party(folder / "party.toml")) as site:
        remember(site, release_study.with_declaration({0: unit}))
    config = str(folder / "party.toml")
    assert main(["party", "status", "--config", config, "--format", "json"]) == 0
    (study,) = json.loads(capsys.readouterr().out)["studies"]
    age, smoker = study["columns"]
    assert age["two_level"] == "epsilon 1 for the group (2 groups), 0.5 within it"
    assert age["epsilon"] == pytest.approx(math.log(max(matrix.max(axis=0) / matrix.min(axis=0))))
    assert "two_level" not in smoker
    assert main(["party", "status", "--config", config]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "two-level: epsilon 1" in shown
    assert "the group is randomized too, nothing leaves exactly" in shown


def test_a_gamma_that_reaches_the_limit_but_for_rounding_is_a_breach():
    assert RULE.possible(Fraction(9) * (1 - Fraction(1, 10**12)))
    assert not RULE.possible(Fraction(9) * (1 - Fraction(1, 10**6)))

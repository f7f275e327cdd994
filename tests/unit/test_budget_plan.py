"""The plan of the budget: the accountant's figures for each party and reader, predicted errors, and limits that would refuse."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from support.documents import study_toml
from verticil.cli.budget_text import cost_text
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.operator.limits import limits_of as published_of
from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma
from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import add_or_remove, cost_of, together
from verticil.shared.privacy.accounts import PUBLIC, READERS, Cost, Reader, ReaderLimits
from verticil.shared.privacy.events import (
    DiscreteGaussianCounts,
    EventKind,
    PlannedEvent,
    PureMechanism,
    kind_of,
    plan_events,
    register,
)
from verticil.shared.privacy.plan import PlannedAccount, budget_plan, half_width_of_noise
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.privacy.study_table import study_table
from verticil.shared.study.document import ShareRule, Study
from verticil.simulation.provision import OPEN_LIMITS, csv_site, provision

NOISE = ShareRule(epsilon=0.5, delta=1e-6, noise="discrete-gaussian")
TABLES = DiscreteGaussianCounts(sigma=20.0, tables=3, delta=1e-6, sensitivity=math.sqrt(6), reader="public")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Published(DiscreteGaussianCounts):
    """Tables that a test publishes."""


def publishing(event: Published, *, joint: bool = False) -> EventKind[Published]:
    def of_study(study: Study, party: str) -> Iterable[PlannedEvent]:
        names = tuple(study.schema[v].name for v in study.schema.owned_by(party))
        yield PlannedEvent(event=event, variables=names, readers=("everybody",), joint=joint)

    return dataclasses.replace(kind_of(TABLES), name="published-tables", event=Published, of_study=of_study)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Published:
    """Both parties of a study publish tables with noise, while the test runs."""
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))
    event = Published(**{field.name: getattr(TABLES, field.name) for field in dataclasses.fields(TABLES)})
    register(publishing(event, joint=True))
    return event


def costs(accounts: Iterable[PlannedAccount]) -> dict[str, Cost]:
    return {item.account: Cost(epsilon=item.epsilon, delta=item.delta) for item in accounts}


@pytest.mark.parametrize("share", [ShareRule(), NOISE], ids=["exact", "noise"])
def test_the_plan_says_what_the_accountant_charges_each_party_and_a_person_at_all(
    peer_study: Callable[..., Study], share: ShareRule
) -> None:
    study = peer_study(share=share)
    plan = budget_plan(study)
    assert (plan.n, plan.relation) == (study.linkage.minimum_common_records, "replace one person")
    assert [party.party for party in plan.parties] == list(study.parties)
    for party in plan.parties:
        drawn = [item.event for item in plan_events(study, party.party)]
        assert costs(party.accounts) == {"columns": together(drawn), "public": together(drawn)}
        beside = add_or_remove(drawn)
        found = {(item.epsilon_add_or_remove, item.delta_add_or_remove) for item in party.accounts}
        assert found == {(None, None) if beside is None else (beside.epsilon, beside.delta)}
        assert {name for draw in party.draws for name in draw.columns} == {
            name for item in plan_events(study, party.party) for name in item.variables
        }
        assert math.fsum(draw.epsilon for draw in party.draws) == pytest.approx(party.accounts[0].epsilon)
    assert costs(plan.person) == {item.reader.name: item.cost for item in privacy_statement(study).accounts}
    assert math.isinf(plan.person[0].epsilon) == (share.epsilon is None)


def test_what_is_published_stands_in_the_account_of_everybody_and_a_joint_draw_counts_once(
    release_study: Study, tables: Published
) -> None:
    plan = budget_plan(release_study)
    once = cost_of(tables)
    for party in plan.parties:
        drawn = [item.event for item in plan_events(release_study, party.party)]
        assert costs(party.accounts)["public"] == together(drawn)
        (draw,) = [draw for draw in party.draws if draw.event == "published-tables"]
        assert (draw.account, draw.epsilon, draw.delta, draw.sigma) == ("public", once.epsilon, once.delta, 20.0)
        assert "standard deviation 20" in draw.words
        assert draw.half_width_least == draw.half_width_most == half_width_of_noise(20.0, plan.n)
    assert plan.person[1].delta == once.delta


def test_a_dealer_has_an_account_where_something_is_drawn_for_it(
    release_study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {item.account for item in budget_plan(release_study).person} == {"columns", "public"}
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))
    secret = PureMechanism(epsilon=0.5, mechanism="a floor", reader="dealer")
    first = release_study.parties[0]
    events._KINDS["pure-mechanism"] = dataclasses.replace(
        kind_of(secret),
        of_study=lambda study, party: (
            [PlannedEvent(event=secret, variables=study.schema.names[:1], readers=("dealer",))]
            if party == first
            else []
        ),
    )
    plan = budget_plan(release_study)
    accounts = {party.party: {item.account for item in party.accounts} for party in plan.parties}
    assert accounts.pop(first) == {reader.name for reader in READERS}
    assert set(map(frozenset, accounts.values())) == {frozenset({"columns", "public"})}
    assert plan.person[-1].epsilon >= plan.person[0].epsilon + 0.5


def test_errors_are_those_of_the_columns_and_of_the_noise(peer_study: Callable[..., Study]) -> None:
    study = peer_study(share=NOISE)
    plan = budget_plan(study, 2000)
    widths = {row.variable: row.half_width for row in study_table(study, 2000).rows}
    for party in plan.parties:
        for draw in party.draws:
            if draw.sigma is None:
                own = [widths[name] for name in draw.columns]
                assert (draw.half_width_least, draw.half_width_most) == (min(own), max(own))
                continue
            assert draw.sigma == discrete_sigma(0.5, 1e-6, len(study.schema.owned_by(party.party)))
            assert draw.half_width_most == pytest.approx(1.959964 * draw.sigma / 2000, rel=1e-6)
    assert budget_plan(study, 4000).parties[0].accounts == plan.parties[0].accounts


def test_columns_for_one_reader_stand_together_with_their_least_and_largest_error(
    release_study: Study, peer_study: Callable[..., Study]
) -> None:
    mixed = peer_study(model="central", share=None)
    for study in (release_study, mixed, dataclasses.replace(mixed, units=mixed.units[::-1])):
        widths = {row.variable: row.half_width for row in study_table(study, 900).rows}
        for party in budget_plan(study, 900).parties:
            for draw in party.draws:
                own = [widths[name] for name in draw.columns]
                assert (draw.half_width_least, draw.half_width_most) == (min(own), max(own))
            assert sum(len(draw.columns) for draw in party.draws) == len(study.units_of(party.party))


def test_the_predicted_error_of_noise_holds_95_of_100_shares() -> None:
    """The half width is that of the drawn noise; false alarm below 1e-6 (binomial, 5 standard deviations)."""
    generator = np.random.default_rng(20261123)
    draws = 100_000
    noise = generator.normal(0.0, 17.7, draws) / 500
    spread = 5 * math.sqrt(0.95 * 0.05 / draws)
    for sigma, holds in ((17.7, True), (0.95 * 17.7, False)):
        inside = float(np.mean(np.abs(noise) <= half_width_of_noise(sigma, 500)))
        assert (abs(inside - 0.95) <= spread) == holds
    assert half_width_of_noise(1.0, 1) == pytest.approx(NormalDist().inv_cdf(0.975))


def test_exact_statistics_and_certain_columns_have_no_bound(peer_study: Callable[..., Study]) -> None:
    plan = budget_plan(peer_study())
    exact = [draw for party in plan.parties for draw in party.draws if draw.event == "exact-statistics"]
    assert len(exact) == 3
    assert all(math.isinf(draw.epsilon) and draw.half_width_least is None for draw in exact)
    assert cost_text(plan.person[0].epsilon, 0.0) == "no bound"


def test_a_number_of_people_that_is_none_is_refused(release_study: Study) -> None:
    with pytest.raises(ValueError, match="n = 0"):
        budget_plan(release_study, 0)


def stated(public: ReaderLimits | None) -> Callable[[Reader], ReaderLimits | None]:
    wide = ReaderLimits(study=Cost(epsilon=100.0, delta=1.0), lifetime=Cost(epsilon=100.0, delta=1.0))
    return lambda reader: public if reader is PUBLIC else wide


@pytest.mark.parametrize(
    ("epsilon", "delta", "over", "most"),
    [
        (20.0, 1e-6, None, None),
        (2.0, 1e-6, "max_public_epsilon", 2.0),
        (20.0, 1e-7, "max_public_delta", 1e-7),
    ],
)
def test_the_limit_that_would_refuse_is_named(
    release_study: Study, tables: Published, epsilon: float, delta: float, over: str | None, most: float | None
) -> None:
    limit = ReaderLimits(study=Cost(epsilon=epsilon, delta=delta), lifetime=Cost(epsilon=100.0, delta=1.0))
    first, second = budget_plan(release_study, limits={release_study.parties[0]: stated(limit)}).parties
    account = {item.account: item for item in first.accounts}
    assert (account["public"].over, account["public"].over_limit) == (over, most)
    assert (account["public"].epsilon_limit, account["public"].delta_limit) == (epsilon, delta)
    assert account["columns"].over is None
    assert all(item.over is None and item.epsilon_limit is None for item in second.accounts)


def test_what_is_drawn_for_a_reader_without_limits_would_be_refused(release_study: Study, tables: Published) -> None:
    (party, *_) = release_study.parties
    (account,) = [
        item
        for item in budget_plan(release_study, limits={party: stated(None)}).parties[0].accounts
        if item.account == "public"
    ]
    assert (account.over, account.over_limit) == ("max_public_epsilon", None)


def test_published_limits_of_everybody_are_read_and_refuse_in_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, column in (("clinic", "ward"), ("insurer", "plan")):
        (tmp_path / f"{name}.csv").write_text(f"id,{column}\n1,a\n")
    sites = [csv_site(name, tmp_path / f"{name}.csv") for name in ("clinic", "insurer")]
    made = provision(
        tmp_path / "trial", federation="trial", sites=sites,
        limits=dataclasses.replace(OPEN_LIMITS, public=None), endpoint="127.0.0.1:1", listen="127.0.0.1:0", hosts=("127.0.0.1",),
    )  # fmt: skip
    path = made.parties["clinic"] / "party.toml"
    assert published_of(load_party(path)).limits["accounts"] == {}
    limits = "[policy]\nmax_public_epsilon = 2.0\nmax_public_epsilon_lifetime = 9.0"
    path.write_text(path.read_text().replace("[policy]", limits))
    assert published_of(load_party(path)).limits["accounts"] == {"public": {"epsilon": 2.0, "delta": 0.0}}
    (tmp_path / "study.toml").write_text(
        study_toml("clinic.ward: a b c d", "insurer.plan: basic gold", name="asked", minimum=200, epsilon=2.5)
    )
    assert main(["party", "limits", "--publish", str(tmp_path / "clinic.json"), "--config", str(path)]) == 0
    assert "public: epsilon 2.0, delta 0.0" in capsys.readouterr().out
    words = ["study", "check", str(tmp_path / "study.toml"), "--limits", str(tmp_path / "clinic.json")]
    words += ["--federation", str(made.analyst / "federation.toml")]
    assert main([*words, "--format", "json"]) == 6
    facts = json.loads(capsys.readouterr().out)
    clinic, insurer = facts["budget"]["parties"]
    (account,) = [item for item in clinic["accounts"] if item["account"] == "public"]
    assert (account["over"], account["over_limit"], account["epsilon_limit"]) == ("max_public_epsilon", 2.0, 2.0)
    assert all(item["over"] is None for item in insurer["accounts"])
    (finding,) = [item for item in facts["findings"] if item["code"] == "BUDGET_EXCEEDED"]
    assert finding["where"] == "party 'clinic'"
    assert "for everybody, by what is published" in finding["message"]
    assert "policy.max_public_epsilon" in finding["hint"]
    assert main(words) == 6
    shown = capsys.readouterr().out
    assert "account columns, public: epsilon 2.50" in shown
    assert "'clinic' would refuse this: account public, policy.max_public_epsilon: expected at most 2" in shown


def test_the_text_of_a_check_says_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = study_toml(
        "clinic.ward: a b c d", "insurer.plan: basic gold", minimum=200, epsilon=2.5, keys='model = "peer"\n'
    )
    text += '[structure]\nmethod = "given"\n[structure.parents]\nplan = ["ward"]\n'
    text += '[share]\nnoise = "discrete-gaussian"\nepsilon = 2.0\ndelta = 1e-9\n'
    (tmp_path / "study.toml").write_text(text)
    assert main(["study", "check", str(tmp_path / "study.toml"), "--n", "2000"]) == 0
    shown = capsys.readouterr().out
    sigma = discrete_sigma(2.0, 1e-9, 1)
    for line in (
        "clinic                    account columns, public: epsilon 4.50, delta 1e-09 (a person added or removed",
        "1 column randomized: epsilon 2.5, of ward; for insurer; ± share",
        f"± share {196 * sigma / 2000:.2f}pp (1.96 x {sigma:.4g} / 2,000)",
        "one person at all parties  account columns, public: epsilon 5.33, delta 2e-09",  # composed: less than 2.5 + 2 + 2
    ):
        assert line in shown, line
    assert main(["study", "check", str(tmp_path / "study.toml"), "--n", "2000", "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)["budget"]
    assert (plan["n"], plan["level"]) == (2000, 0.95)
    assert [list(item) for item in plan["person"]] == 2 * [[field.name for field in dataclasses.fields(PlannedAccount)]]

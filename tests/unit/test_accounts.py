"""Accounts by reader: what counts in which, their limits, sums over a study and over studies, and ledgers that do not add up."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from support.documents import FEDERATION, party_toml
from support.site_folder import write_site
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import Column, ColumnDraw
from verticil.party.limits.limits import Policy, find_objections
from verticil.party.operator.reports import ledger as listing
from verticil.party.policy.ledger import Ledger
from verticil.party.site import Site
from verticil.party.storage.database import FILE_NAME, Database
from verticil.shared.core.errors import DataFault, GateFailed, Misuse, Refusal
from verticil.shared.documents.json_document import JsonNode
from verticil.shared.mechanisms.loss import epsilon_at
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import add_or_remove, cost_of, numerically, together
from verticil.shared.privacy.accounts import COLUMNS, DEALER, PUBLIC, READERS, Cost, Reader, ReaderLimits
from verticil.shared.privacy.events import (
    DiscreteGaussianCounts,
    EventKind,
    GaussianCounts,
    PlannedEvent,
    PrivacyEvent,
    PureMechanism,
    RandomizedColumn,
    kind_of,
    register,
)
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.release import verification
from verticil.shared.study.document import ShareRule, Study

NOW = dt.datetime(2026, 11, 23, 10, 0, tzinfo=dt.UTC)
TABLES = DiscreteGaussianCounts(sigma=20.0, tables=3, delta=1e-6, sensitivity=math.sqrt(6), reader="public")
SCORES = dataclasses.replace(TABLES, tables=1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scores(DiscreteGaussianCounts):
    """Another release with noise in the same study."""


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Database(tmp_path, create=True) as database:
        yield Ledger(database)


def policy_of(folder: Path, lines: str = "", **changes: object) -> Policy:
    (folder / "federation.toml").write_text(FEDERATION)
    (folder / "party.toml").write_text(party_toml(lines))
    return dataclasses.replace(load_party(folder / "party.toml").policy, **changes)  # type: ignore[arg-type]


def limits(epsilon: float, delta: float = 1e-5) -> ReaderLimits:
    return ReaderLimits(study=Cost(epsilon=epsilon, delta=delta), lifetime=Cost(epsilon=epsilon, delta=delta))


def charge(
    ledger: Ledger, policy: Policy, event: PrivacyEvent, *, study: bytes = b"d" * 32, draw: bytes = b"c" * 32
) -> Cost:
    release = ColumnDraw(
        variables=("age",), dataset="people", sources=("age",), codebook_digest=draw, transition_digest=b"n" * 32,
        secret_id=b"s", fingerprint=b"f" * 32, event=event,
    )  # fmt: skip
    return ledger.record_shared(
        release, policy=policy, study_digest=study, study_id="study", recipient="miner", artifact_sha256=b"a" * 32, size=8,
        at=NOW,
    )  # fmt: skip


def test_readers_are_nested_and_what_everybody_sees_counts_for_all() -> None:
    assert all(reader.name in reader.counts and "public" in reader.counts for reader in READERS)
    names = {reader.name for reader in READERS}
    assert PUBLIC.counts & names == COLUMNS.counts & names < DEALER.counts
    assert all(reader.sees("nobody") for reader in READERS)  # of a newer version: counted everywhere
    for change, problem in (
        (('"public"', '"nobody"'), "its account 'nobody' is not known here"),
        (('"tables"', '"also": 1, "tables"'), "its parameter 'also' is not known here"),
    ):
        with pytest.raises(Refusal, match=problem) as caught:
            events.from_json(events.to_json(TABLES).replace(*change))
        assert "use that version" in (caught.value.hint or "")
    assert events.from_json(events.to_json(TABLES)) == TABLES


def test_an_event_is_charged_to_every_account_that_can_come_to_know_of_it(ledger: Ledger, tmp_path: Path) -> None:
    policy = policy_of(tmp_path, public=limits(5.0), dealer=limits(60.0))
    column = dataclasses.replace(TABLES, reader="columns", delta=1e-7)
    secret = PureMechanism(epsilon=50.0, mechanism="a floor", reader="dealer")  # far above the limits of the others
    cost = {event: cost_of(event) for event in (TABLES, column, secret)}
    for number, event in enumerate(cost):
        assert charge(ledger, policy, event, study=bytes([number]) * 32, draw=bytes([number]) * 32) == cost[event]
    assert ledger.sum_charges("people", PUBLIC) == ledger.sum_charges("people") == cost[TABLES] + cost[column]
    assert ledger.sum_charges("people", DEALER).epsilon == pytest.approx(ledger.sum_charges("people").epsilon + 50)


def test_noise_of_one_study_is_composed_and_studies_are_added(ledger: Ledger, tmp_path: Path, kinds: None) -> None:
    register(dataclasses.replace(kind_of(TABLES), name="scores", event=Scores, of_study=lambda *_: ()))
    policy = policy_of(tmp_path)
    tables = dataclasses.replace(TABLES, reader="columns")
    scores = Scores(**{field.name: getattr(tables, field.name) for field in dataclasses.fields(tables)})
    one, column = cost_of(tables), RandomizedColumn(epsilon=1.0)
    both = together([tables, scores])
    assert one.epsilon < both.epsilon < 0.8 * (2 * one.epsilon)
    assert both.delta == 2e-6
    twelve = dataclasses.replace(tables, tables=6, delta=2e-6)  # the same twelve counts in one release
    assert both.epsilon == pytest.approx(cost_of(twelve).epsilon, rel=1e-6)
    assert together([column, scores, tables]) == together([tables, column, scores])
    assert together([column, scores, tables]).epsilon == both.epsilon + 1.0  # a pure epsilon stays one
    assert charge(ledger, policy, tables) == one
    assert charge(ledger, policy, scores, draw=b"e" * 32) == one
    assert ledger.sum_charges("people").epsilon == pytest.approx(both.epsilon, rel=1e-12)
    assert ledger.sum_charges("people").delta == 2e-6
    assert charge(ledger, policy, tables, study=b"e" * 32, draw=b"f" * 32) == one
    assert ledger.sum_charges("people").epsilon == pytest.approx(both.epsilon + one.epsilon, rel=1e-12)
    drawn = ledger.events("people", COLUMNS)
    assert drawn == (tables, scores, tables)
    assert numerically(drawn, 3e-6) < ledger.sum_charges("people").epsilon  # it stands beside, and decides nothing
    assert numerically(drawn, 0.0) == pytest.approx(3 * one.epsilon)


def test_room_is_judged_by_what_a_study_costs_together(ledger: Ledger, tmp_path: Path, kinds: None) -> None:
    register(dataclasses.replace(kind_of(TABLES), name="scores", event=Scores, of_study=lambda *_: ()))
    tables = dataclasses.replace(TABLES, reader="columns")
    scores = Scores(**{field.name: getattr(tables, field.name) for field in dataclasses.fields(tables)})
    both, one = together([tables, scores]).epsilon, cost_of(tables).epsilon
    for limit, fits in ((both * 1.001, True), (both * 0.999, False)):
        policy = policy_of(tmp_path, max_epsilon_lifetime=limit, max_share_epsilon=1.0)
        if fits:
            ledger.check_room("people", [tables, scores], policy)
        else:
            with pytest.raises(
                Refusal, match=rf"epsilon {both:.4g} on top of what was charged before, expected at most"
            ):
                ledger.check_room("people", [tables, scores], policy)
    policy = policy_of(tmp_path, max_epsilon_lifetime=both * 1.001)
    charge(ledger, policy, tables)
    assert charge(ledger, policy, scores, draw=b"e" * 32).epsilon == one  # of the same study, and there is room
    with pytest.raises(Refusal, match="on top of what was charged before"):
        charge(ledger, policy, tables, study=b"e" * 32, draw=b"f" * 32)
    assert len(ledger.rows()) == 2


def planned_for(reader: str, event: PrivacyEvent) -> EventKind[Scores]:
    """A kind whose event every party of a study causes for one reader."""
    drawn = Scores(**{field.name: getattr(event, field.name) for field in dataclasses.fields(event)})
    item = PlannedEvent(
        event=dataclasses.replace(drawn, reader=reader), variables=("age",), readers=("miner",), joint=True
    )
    return dataclasses.replace(
        kind_of(event), name="scores", event=Scores, of_study=lambda *_: (item,), has_own_words=False
    )


@pytest.mark.parametrize("reader", [PUBLIC, DEALER], ids=lambda reader: reader.name)
def test_a_limit_that_is_missing_is_refused_and_one_that_is_stated_is_held(
    reader: Reader, release_study: Study, tmp_path: Path, kinds: None
) -> None:
    name = reader.name
    register(planned_for(name, TABLES))
    columns = {name: Column(dataset="people", source=name) for name in ("age", "smoker")}

    def said(policy: Policy) -> list[str]:
        return [
            f"{item.message} ({item.hint})"
            for item in find_objections(policy, release_study, "clinic", columns)
            if "account" in item.message or "for everybody" in item.message or "dealer" in item.message
        ]

    generous = dict.fromkeys(("max_epsilon_per_column", "max_epsilon_per_study"), 50.0) | {"max_share_epsilon": 0.001}
    (missing,) = said(policy_of(tmp_path, **generous))
    assert "party.toml states no limit for this account" in missing
    assert ", ".join(f"policy.{key}" for key in reader.keys) in missing
    drawn = [item.event for item in events.plan_events(release_study, "clinic")]
    cost = together(event for event in drawn if math.isfinite(cost_of(event).epsilon))
    assert said(policy_of(tmp_path, **generous, **{name: limits(cost.epsilon)})) == []
    (short,) = said(policy_of(tmp_path, **generous, **{name: limits(cost.epsilon * 0.99)}))
    assert f"epsilon {cost.epsilon:.4g} of this party's people" in short
    assert f"policy.{reader.keys[0]}" in short
    (without,) = said(policy_of(tmp_path, **generous, **{name: limits(cost.epsilon, 0.0)}))
    assert "delta 1e-06 of this party's people" in without
    assert f"policy.{reader.keys[1]}" in without


def test_the_limits_of_everybody_hold_over_a_lifetime(ledger: Ledger, tmp_path: Path) -> None:
    cost = cost_of(TABLES)
    policy = policy_of(tmp_path, public=limits(1.5 * cost.epsilon))
    charge(ledger, policy, TABLES)
    with pytest.raises(
        Refusal, match=r"account of everybody, by what is published: epsilon .* on top of what was"
    ) as caught:
        charge(ledger, policy, TABLES, study=b"e" * 32, draw=b"f" * 32)
    assert "policy.max_public_epsilon_lifetime" in (caught.value.hint or "")
    assert len(ledger.rows()) == 1


@pytest.mark.parametrize("reader", [PUBLIC, DEALER], ids=lambda reader: reader.name)
def test_nothing_is_charged_for_a_reader_whose_limits_are_gone_since(
    ledger: Ledger, tmp_path: Path, reader: Reader
) -> None:
    event = dataclasses.replace(TABLES, reader=reader.name)
    with pytest.raises(Refusal, match=r"party\.toml states no limit for this account") as caught:
        charge(ledger, policy_of(tmp_path), event)
    assert caught.value.code == "BUDGET_EXCEEDED"
    assert reader.keys[0] in (caught.value.hint or "")
    assert ledger.rows() == ()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "max_public_epsilon = 1.0\n",
            "max_public_epsilon_lifetime: missing, expected a number beside max_public_epsilon",
        ),
        ("max_public_delta = 1e-6\n", "max_public_delta_lifetime: missing, expected a number beside max_public_delta"),
        (
            "max_floor_delta_per_study = 1e-6\nmax_floor_delta_lifetime = 1e-6\n",
            "max_floor_epsilon_per_study: missing, expected a number beside max_floor_delta_per_study",
        ),
        ("max_public_epsilon = -1.0\nmax_public_epsilon_lifetime = 1.0\n", "max_public_epsilon: got -1"),
        ("max_nobody_epsilon = 1.0\n", "max_nobody_epsilon"),
    ],
)
def test_limits_that_do_not_go_together_are_refused(lines: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=problem):
        policy_of(tmp_path, lines)


def test_limits_are_read_and_a_delta_that_is_not_stated_is_none(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "max_public_epsilon = 1.0\nmax_public_epsilon_lifetime = 3.0\n")
    assert policy.public == ReaderLimits(study=Cost(epsilon=1.0), lifetime=Cost(epsilon=3.0))
    assert policy.dealer is None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("charged = 0.25", "its sums are not those of its event"),
        ("epsilon = 0.25, charged = 0.25", "its sums are not those of its event"),
        ("charged_delta = 1e-12", "its sums are not those of its event"),
        ("event = json_remove(event, '$.tables')", "expected"),
    ],
)
def test_a_row_that_is_not_what_its_event_costs_is_found_before_anything_is_charged(
    change: str, what: str, tmp_path: Path
) -> None:
    write_site(tmp_path, party_toml())
    config = load_party(tmp_path / "party.toml")
    with Site.open(config) as site:
        charge(site.ledger, config.policy, dataclasses.replace(TABLES, reader="columns"))
        site.ledger.check_rows()
    assert listing(config).datasets[0].accounts[1].account == "public"
    with closing(sqlite3.connect(tmp_path / "state" / FILE_NAME)) as opened:
        opened.executescript(f"DROP TRIGGER ledger_keeps; UPDATE ledger SET {change};")
    with pytest.raises(DataFault, match=f"row 1 of the ledger: .*{what}") as caught:
        listing(config)
    assert caught.value.code == "STATE_CORRUPT"
    with Site.open(config) as site, pytest.raises(DataFault, match="row 1 of the ledger"):
        site.ledger.reserve(
            b"e" * 32, {}, config.policy, shared={"people": [dataclasses.replace(TABLES, reader="columns")]}
        )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sigma": 0.0}, "sigma 0"),
        ({"sigma": math.inf}, "finite sigma > 0"),
        ({"delta": 0.0}, "at delta 0"),
        ({"delta": 1.0}, "0 < delta < 1"),
        ({"tables": 0}, "0 tables"),
        ({"contributors": 26, "sigma": 100.0}, "26 contributors of noise, expected 1 to 25"),
        ({"contributors": 4, "sigma": 5.9}, "noise of sigma 2.95 of each of 4 contributors, expected at least 3"),
    ],
)
def test_noise_that_nothing_is_proved_of_is_no_event(change: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        dataclasses.replace(TABLES, **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a finite number > 0"):
        PureMechanism(epsilon=0.0, mechanism="nothing")


def test_a_calibrated_epsilon_is_the_cost_only_where_it_is_proved() -> None:
    least = cost_of(TABLES).epsilon
    for claim, cost in ((least * 1.01, least * 1.01), (least * 0.99, least)):
        assert cost_of(dataclasses.replace(TABLES, epsilon=claim)) == Cost(epsilon=cost, delta=TABLES.delta)
    with pytest.raises(ValueError, match="epsilon -1"):
        dataclasses.replace(TABLES, epsilon=-1.0)


def test_a_sum_of_contributors_costs_what_one_draw_does() -> None:
    summed = dataclasses.replace(TABLES, contributors=25)
    assert cost_of(summed).epsilon == pytest.approx(cost_of(TABLES).epsilon, rel=1e-9)
    assert "25 contributed" in events.words(summed)


def test_add_or_remove_stands_beside_and_is_less() -> None:
    beside = add_or_remove([TABLES, RandomizedColumn(epsilon=3.0)])
    assert beside is not None
    assert beside.epsilon == epsilon_at(events._discrete_losses(TABLES, 3), 1e-6)
    assert beside.epsilon < cost_of(TABLES).epsilon
    rounded = add_or_remove([GaussianCounts(epsilon=1.0, delta=1e-6, tables=3)])
    assert rounded is not None
    assert rounded.epsilon < 1.0
    assert add_or_remove([RandomizedColumn(epsilon=3.0)]) is None


def test_a_release_states_what_each_reader_is_told_and_counts_a_joint_draw_once(
    release_study: Study, kinds: None
) -> None:
    before = {item.reader.name: item.cost for item in privacy_statement(release_study).accounts}
    assert before["public"] == before["columns"] == Cost(epsilon=privacy_statement(release_study).epsilon_per_person)
    register(planned_for("public", TABLES))
    after = {item.reader.name: item.cost for item in privacy_statement(release_study).accounts}
    assert after["public"].delta == TABLES.delta  # two parties record it
    assert after["public"].epsilon == pytest.approx(before["public"].epsilon + cost_of(TABLES).epsilon)


def test_what_a_newer_version_charged_counts_in_every_account(tmp_path: Path) -> None:
    with Database(tmp_path, create=True) as database:
        ledger = Ledger(database)
        charge(ledger, policy_of(tmp_path), dataclasses.replace(TABLES, reader="columns"))
        database.write("DROP TRIGGER ledger_keeps")
        database.write("UPDATE ledger SET event = json_set(event, '$.reader', 'nobody')")
        assert {ledger.sum_charges("people", reader) for reader in READERS} == {cost_of(TABLES)}
        assert ledger.events("people", PUBLIC) is None
        ledger.check_rows()


def test_a_release_with_noise_on_tables_states_its_accounts_and_no_smaller_ones(release_study: Study) -> None:
    share = ShareRule(epsilon=0.5, delta=3e-7, noise="discrete-gaussian")
    units = tuple(
        dataclasses.replace(
            unit, scheme="symmetric", transition=quantize(symmetric(unit.transition.n_states, epsilon=1.0))
        )
        for unit in release_study.units
    )
    study = dataclasses.replace(release_study, model="peer", share=share, units=units)
    dag = Dag(parents=((),) * len(study.schema.variables))
    document = cast("dict[str, Any]", privacy_statement(study, dag).document())
    node = JsonNode(document, where="privacy")
    verification._check_privacy(node, study, dag)
    (columns, _) = document["accounts"]["list"]
    for key, factor in (("epsilon", 1 - 1e-5), ("delta", 0.5)):
        honest = columns[key]
        columns[key] = honest * factor
        with pytest.raises(GateFailed, match="accounts: what it says that the study costs each person is not what"):
            verification._check_privacy(node, study, dag)
        columns[key] = honest
    accounts = document.pop("accounts")
    with pytest.raises(GateFailed, match="'accounts' is missing"):
        verification._check_privacy(node, study, dag)
    assert accounts["list"]

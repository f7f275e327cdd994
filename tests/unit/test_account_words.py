"""The accounts by reader as a party's people are shown them: approval, check, ledger, status, page, metrics, published limits."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.documents import FEDERATION, party_toml
from support.site_folder import task_of, write_site
from verticil.cli.main import main
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.column_draws import Column, ColumnDraw
from verticil.party.limits.limits import Policy, find_objections
from verticil.party.operator import limits
from verticil.party.operator.check import check
from verticil.party.operator.commands import init_party, status
from verticil.party.operator.metrics import _accounts
from verticil.party.operator.page import page_model as view
from verticil.party.operator.page.pages import TEMPLATES
from verticil.party.operator.pending_studies import show
from verticil.party.operator.reports import ledger
from verticil.party.site import Site
from verticil.party.storage.database import FILE_NAME
from verticil.shared.core.errors import Refusal
from verticil.shared.documents.toml_table import Table
from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import add_or_remove, cost_of, numerically, together
from verticil.shared.privacy.accounts import PUBLIC, Cost
from verticil.shared.privacy.events import DiscreteGaussianCounts, PlannedEvent, PrivacyEvent, RandomizedColumn, kind_of
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

NOW = dt.datetime(2026, 11, 23, 10, 0, tzinfo=dt.UTC)
SAME = (
    "the same figures hold for everybody, by what is published; this site has set no limit for noisy tables that only this "
    "reader gets, so it refuses them; to allow them, set max_public_epsilon and max_public_epsilon_lifetime in [policy] of "
    "party.toml"
)
STATED = """max_public_epsilon = 5.0
max_public_epsilon_lifetime = 7.5
max_public_delta = 1e-6
max_public_delta_lifetime = 1e-5
"""
TABLES = DiscreteGaussianCounts(sigma=20.0, tables=3, delta=1e-6, sensitivity=math.sqrt(6), reader="public")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Published(DiscreteGaussianCounts):
    """A table with noise that everybody gets."""


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Published:
    """What each study of this test draws for everybody besides its columns."""
    event = Published(**{field.name: getattr(TABLES, field.name) for field in dataclasses.fields(TABLES)})
    item = PlannedEvent(event=event, variables=("age",), readers=("miner",))
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))
    events.register(
        dataclasses.replace(
            kind_of(TABLES), name="published", event=Published, of_study=lambda *_: (item,), has_own_words=False
        )
    )
    return event


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, people=120)
    configured(tmp_path)
    return tmp_path


def configured(folder: Path, lines: str = "", **limits: float) -> PartyConfig:
    (folder / "party.toml").write_text(party_toml(lines, **limits))  # type: ignore[arg-type]
    return load_party(folder / "party.toml")


def offer(folder: Path, study: Study) -> str:
    digest = canonical.digest(study)
    task = task_of(study)
    with Site.open(load_party(folder / "party.toml")) as site:
        site.state.remember(task, study.id, NOW)
    return digest.hex()


def charge(folder: Path, event: PrivacyEvent, *, number: int = 0, study: bytes | None = None) -> None:
    policy = dataclasses.replace(load_party(folder / "party.toml").policy, max_share_epsilon=50.0)
    release = ColumnDraw(
        variables=("age",), dataset="people", sources=("age",), codebook_digest=bytes([number]) * 32,
        transition_digest=b"n" * 32, secret_id=b"", fingerprint=b"f" * 32, event=event,
    )  # fmt: skip
    with Site.open(load_party(folder / "party.toml")) as site:
        site.ledger.record_shared(
            release, policy=policy, study_digest=study or bytes([number]) * 32, study_id=f"study-{number}", recipient="miner",
            artifact_sha256=b"a" * 32, size=8, at=NOW,
        )  # fmt: skip


def said(folder: Path, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["party", *words, "--config", str(folder / "party.toml")]) == code
    found = capsys.readouterr()
    return " ".join((found.out + found.err).split())


def page(folder: Path, name: str, shown: object) -> str:
    html = TEMPLATES.render(name, shown, root="", shown_at="now")  # type: ignore[arg-type]
    return " ".join(html.replace("\N{NO-BREAK SPACE}", " ").split())


def test_where_everybody_learns_the_same_one_line_says_so(
    folder: Path, release_study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = offer(folder, release_study)
    shown = said(folder, capsys, "show", digest)
    assert (
        "data set people: epsilon 4.02 for each person; lifetime sum 0.00 now, at most 4.02 after it, of 8.00"
        f" data set people: {SAME}" in shown
    )
    assert "account '" not in shown
    for command in ("status", "ledger", "inbox"):
        assert said(folder, capsys, command).count(SAME) == 1
    with Site.look(load_party(folder / "party.toml")) as site:
        study = view.study(site, site.state.find(digest), NOW)
        for name, found in (
            ("overview", view.overview(site, NOW)),
            ("ledger", view.ledger(site)),
            ("study", study),
        ):
            html = page(folder, name, found)
            assert SAME[1:] in html
            assert "by numerical composition" not in html


def test_what_was_charged_is_no_longer_said_to_be_ahead(
    folder: Path, release_study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = offer(folder, release_study)

    def words() -> tuple[str, str]:
        with Site.look(load_party(folder / "party.toml")) as site:
            return said(folder, capsys, "show", digest), page(
                folder, "study", view.study(site, site.state.find(digest), NOW)
            )

    assert all("at most" in text and "after it" in text for text in words())
    charge(folder, RandomizedColumn(epsilon=1.0), number=1)  # another study's
    assert all("after it" in text for text in words())
    charge(folder, RandomizedColumn(epsilon=4.0), number=2, study=bytes.fromhex(digest))
    assert not any("after it" in text for text in words())


MASKED = "allow_masked = true\nmax_masked_epsilon = 1.5\nmax_masked_delta = 1e-9\n"
OF_MASKED = "tables of masked studies, at most epsilon 1.50, delta 1e-09 in one study"


def test_where_masked_studies_are_permitted_their_limits_are_named_on_the_account_that_counts_them(
    folder: Path, release_study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = offer(folder, release_study)
    configured(folder, MASKED)
    alone = (
        f"this site has set no limit for this reader: it permits {OF_MASKED}, and refuses everything else; to allow them, set"
        " max_public_epsilon and max_public_epsilon_lifetime in [policy] of party.toml"
    )
    for command in (("show", digest), ("status",), ("ledger",), ("inbox",)):
        shown = said(folder, capsys, *command)
        assert shown.count(alone) == 1
        assert SAME not in shown
    charge(folder, DiscreteGaussianCounts(sigma=20.0, tables=3, delta=1e-6, sensitivity=math.sqrt(6), reader="miner"))
    with Site.look(load_party(folder / "party.toml")) as site:
        for name, found in (("study", view.study(site, site.state.find(digest), NOW)), ("ledger", view.ledger(site))):
            letters = re.sub(r"\bdelta\b", "δ", re.sub(r"\bepsilon\b", "ε", alone))
            assert letters in page(folder, name, found)
    configured(folder, MASKED.replace("true", "false"))
    assert "masked studies" not in said(folder, capsys, "status")
    configured(folder, MASKED + STATED)
    assert f"delta 1e-05 for a lifetime; of {OF_MASKED}" in said(folder, capsys, "show", digest)


def test_limits_of_everybody_give_each_account_a_line(
    folder: Path, release_study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(folder, STATED)
    digest = offer(folder, release_study)
    charge(folder, RandomizedColumn(epsilon=1.0))
    lines = (
        "data set people: account 'columns' (whoever reads columns: the miner, or the peers): epsilon 4.02 for each person;"
        " lifetime sum epsilon 1.00 now, at most epsilon 5.02 after it; limits: epsilon 6.00 in one study, epsilon 8.00, delta"
        " 1e-05 for a lifetime",
        "data set people: account 'public' (everybody, by what is published): epsilon 4.02 for each person; lifetime sum"
        " epsilon 1.00 now, at most epsilon 5.02 after it; limits: epsilon 5.00, delta 1e-06 in one study, epsilon 7.50, delta"
        " 1e-05 for a lifetime",
    )
    for command in (("show", digest), ("inbox",)):
        shown = said(folder, capsys, *command)
        assert all(line in shown for line in lines)
        assert "lifetime sum 1.00 now" not in shown
    spent = (
        "account 'columns' (whoever reads columns: the miner, or the peers): epsilon 1.00 per person spent of epsilon 8.00, delta"
        " 1e-05, epsilon 7.00, delta 1e-05 left",
        "account 'public' (everybody, by what is published): epsilon 1.00 per person spent of epsilon 7.50, delta 1e-05,"
        " epsilon 6.50, delta 1e-05 left",
    )
    for listing in ("status", "ledger"):
        assert all(f"data set people: {line}" in said(folder, capsys, listing) for line in spent)
    with Site.look(load_party(folder / "party.toml")) as site:
        html = page(folder, "study", view.study(site, site.state.find(digest), NOW))
        assert 'data-label="limit of a study">5.00, δ 1e-06</td>' in html
        assert 'data-label="limit for a lifetime">7.50, δ 1e-05</td>' in html
        for name, found in (("overview", view.overview(site, NOW)), ("ledger", view.ledger(site))):
            html = page(folder, name, found)
            assert "Data set people, everybody, by what is published" in html
            assert "ε 1.00 spent, 6.50 left" in html
        assert "of what everybody can learn ε 5.00, δ 1e-06 for a study, 7.50, δ 1e-05 for a lifetime" in page(
            folder, "overview", view.overview(site, NOW)
        )


def test_what_is_drawn_for_everybody_is_refused_without_a_limit_and_above_it_wherever_it_is_decided(
    folder: Path,
    release_study: Study,
    drawn: Published,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate = SimpleNamespace(not_after=NOW)
    monkeypatch.setattr("verticil.party.operator.check.load_credentials", lambda *_, **__: certificate)
    wide = {"per_column": 30.0, "per_study": 30.0, "lifetime": 40.0}
    configured(folder, **wide)
    digest = offer(folder, release_study)
    missing = (
        "the study draws something for everybody, by what is published, and party.toml states no limit for this account"
    )
    cost = together([RandomizedColumn(epsilon=2.0), RandomizedColumn(epsilon=math.log(7.5)), drawn])
    beyond = (
        f"epsilon {cost.epsilon:.4g} of this party's people for everybody, by what is published, expected at most 4.25"
    )
    for lines, why, hint in (
        ("", missing, "set policy.max_public_epsilon, policy.max_public_delta, policy.max_public_epsilon_lifetime"),
        (STATED.replace("5.0", "4.25").replace("7.5", "40"), beyond, "the limit is policy.max_public_epsilon"),
        (
            STATED.replace("5.0", "30").replace("7.5", "4.25"),
            f"data set 'people', account of everybody, by what is published: epsilon {cost.epsilon:.4g} on top of what was"
            " charged before, expected at most 4.25",
            "the limit is policy.max_public_epsilon_lifetime",
        ),
    ):
        config = configured(folder, lines, **wide)
        if "on top of" not in why:  # what is left is looked at when the study is approved
            assert why in said(folder, capsys, "show", digest)
            assert why in " ".join(show(config, digest, at=NOW).objections)
        refused = said(folder, capsys, "approve", digest, code=3)
        assert "BUDGET_EXCEEDED" in refused
        assert why in refused
        assert hint in refused
        found = check(config, release_study, counts=False)
        assert [(fault.code, fault.exit_code) for fault in found.faults] == [("BUDGET_EXCEEDED", 3)]
        assert why in found.faults[0].message
        assert hint in found.faults[0].hint
        assert ledger(config).rows == ()
    configured(folder, STATED.replace("5.0", "30").replace("7.5", "40"), **wide)
    shown = said(folder, capsys, "show", digest)
    assert "against it" not in shown
    beside = add_or_remove([drawn])
    assert beside is not None
    words = f"epsilon {math.ceil(100 * beside.epsilon) / 100:.2f}, delta 1e-06 if a person is added or removed"
    assert f"data set people: for comparison with the literature: the noise on tables has {words}" in shown
    said(folder, capsys, "approve", digest)


def test_the_ledger_says_what_numerical_composition_would_give(
    folder: Path, drawn: Published, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(folder, STATED.replace("7.5", "40"), lifetime=40.0)
    for number in range(2):
        charge(folder, drawn, number=number)
    one = cost_of(drawn)
    numerical = numerically([drawn, drawn], 2e-6)
    assert numerical < 2 * one.epsilon
    shown = said(folder, capsys, "ledger")
    rounded = f"{math.ceil(100 * numerical) / 100:.2f}"
    words = f"by numerical composition of everything: epsilon {rounded}, delta 2e-06; decides nothing"
    assert shown.count(words) == 1  # the same on both accounts
    assert f"epsilon {math.ceil(200 * one.epsilon) / 100:.2f}, delta 2e-06 per person spent of epsilon 40.00" in shown
    with Site.look(config) as site:
        assert words.replace("epsilon ", "ε ").replace("delta ", "δ ") in page(folder, "ledger", view.ledger(site))


def test_the_monitoring_sees_each_account(folder: Path) -> None:
    charge(folder, RandomizedColumn(epsilon=1.0))
    for lines, limit in (("", {}), (STATED, {("people", "public"): 7.5})):
        with Site.look(configured(folder, lines)) as site:
            found = {gauge.name: dict(gauge.values) for gauge in _accounts(site)}
        assert found["account_epsilon_lifetime"] == {("people", "columns"): 1.0, ("people", "public"): 1.0}
        assert found["account_epsilon_lifetime_limit"] == {("people", "columns"): 8.0, **limit}
        assert found["account_delta_lifetime"] == {("people", "columns"): 0.0, ("people", "public"): 0.0}
    assert status(load_party(folder / "party.toml")).ledger[0].accounts[1].limits_stated


def test_limits_of_everybody_are_published_and_held_against_a_study(
    folder: Path, release_study: Study, drawn: Published, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one study; a limit that is not stated is no key."""

    def published(lines: str) -> tuple[dict[str, object], Policy]:
        wide = configured(folder, lines, per_column=30.0, per_study=30.0)
        document = json.loads(json.dumps(dataclasses.asdict(limits.limits_of(wide)) | {"published_at": "now"}))
        return document["limits"], limits._read(Table(document, source="limits.json")).policy

    said_of, policy = published("")
    assert said_of["accounts"] == {}
    assert policy.public is None
    columns = {name: Column(dataset="people", source=name) for name in ("age", "smoker")}
    found = [item.message for item in find_objections(policy, release_study, "clinic", columns)]
    assert any("party.toml states no limit for this account" in text for text in found)
    assert "accounts no limit is set, so that what is drawn for everybody is refused" in said(folder, capsys, "limits")
    said_of, policy = published(STATED.replace("5.0", "4.25"))
    assert said_of["accounts"] == {"public": {"epsilon": 4.25, "delta": 1e-6}}
    assert not [name for name in said_of if "lifetime" in name]
    assert policy.public is not None
    assert policy.public.study == Cost(epsilon=4.25, delta=1e-6)
    found = [item.message for item in find_objections(policy, release_study, "clinic", columns)]
    assert any("for everybody, by what is published, expected at most 4.25" in text for text in found)


def test_the_party_toml_that_is_made_names_the_limits_of_everybody_and_loads_with_them(tmp_path: Path) -> None:
    path = init_party(tmp_path / "clinic", name="clinic")
    (tmp_path / "clinic" / "federation.toml").write_text(FEDERATION)
    text = path.read_text()
    assert "max_dealer" not in text
    assert load_party(path).policy.public is None
    path.write_text(text.replace("# max_public", "max_public"))
    stated = load_party(path).policy.limits_of(PUBLIC)
    assert stated is not None
    assert stated.study == Cost(epsilon=20.0, delta=1e-6)
    assert stated.lifetime == Cost(epsilon=40.0, delta=1e-5)


def test_a_ledger_whose_sums_disagree_is_named_by_check_and_by_doctor(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    charge(folder, RandomizedColumn(epsilon=1.0))
    config = load_party(folder / "party.toml")
    assert not [fault for fault in check(config).faults if fault.code == "STATE_CORRUPT"]
    with closing(sqlite3.connect(folder / "state" / FILE_NAME)) as opened:
        ((trigger,),) = opened.execute("SELECT sql FROM sqlite_master WHERE name = 'ledger_keeps'")
        opened.executescript(f"DROP TRIGGER ledger_keeps; UPDATE ledger SET charged = 0.5; {trigger};")
    why = "row 1 of the ledger: its sums are not those of its event, which costs epsilon 1, delta 0"
    assert [fault.message for fault in check(config).faults if fault.code == "STATE_CORRUPT"] == [why]
    assert main(["doctor", str(folder / "party.toml"), "--format", "json"]) != 0
    findings = json.loads(capsys.readouterr().out)["checks"]
    assert [item["check"] for item in findings if why in json.dumps(item)] == ["ledger"]


def test_a_refusal_that_leaves_names_no_sum(folder: Path, drawn: Published) -> None:
    config = configured(folder, STATED.replace("7.5", "3.25"), lifetime=40.0)
    charge(folder, RandomizedColumn(epsilon=2.125))
    with Site.open(config) as site, pytest.raises(Refusal, match="account of everybody") as caught:
        site.ledger.check_room("people", [RandomizedColumn(epsilon=1.5)], config.policy)
    assert "2.125" not in caught.value.message
    assert "1.125" not in caught.value.message  # what is left
    assert "epsilon 1.5 on top of what was charged before, expected at most 3.25" in caught.value.message

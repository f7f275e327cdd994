"""Noise on tables at a party: two totals, charged before the first column leaves; columns that more readers are told of later."""

from __future__ import annotations

import dataclasses
import datetime as dt
import html
import json
from pathlib import Path

import numpy as np
import pytest

from support.documents import party_toml
from support.site_folder import task_of, write_site
from verticil.cli.main import main
from verticil.party.config import PartyConfig, load_party
from verticil.party.operator.page import page_model as view
from verticil.party.operator.page.pages import TEMPLATES
from verticil.party.operator.reports import ledger as listing
from verticil.party.operator.view_model import told_peers
from verticil.party.protocol.randomization import Spool, enter_in_ledger, fill_spool
from verticil.party.protocol.reconciliation.columns import forgotten_columns
from verticil.party.protocol.reconciliation.forgotten import settle
from verticil.party.site import Site
from verticil.shared.core.errors import Refusal
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.pages.words import greek
from verticil.shared.privacy import events
from verticil.shared.privacy.accounts import COLUMNS, COLUMNS_AFTER_DEALER, MASKED, OTHERS, PUBLIC, Cost
from verticil.shared.study import canonical
from verticil.shared.study.document import Study, TablesRule
from verticil.wire.v1 import coordinator_pb2

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
N = 150
RULE = TablesRule(epsilon=0.5, delta=1e-9)
PUBLIC_LIMITS = """
max_public_epsilon = 4.0
max_public_delta = 1e-8
max_public_epsilon_lifetime = 4.6
max_public_delta_lifetime = 1e-8
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, party_toml(PUBLIC_LIMITS, per_study=4.0, lifetime=8.0), people=N)
    return tmp_path


@pytest.fixture
def config(folder: Path) -> PartyConfig:
    return load_party(folder / "party.toml")


@pytest.fixture
def noisy(release_study: Study) -> Study:
    """Two columns of epsilon 2 each at the clinic, and noise on the tables."""
    units = tuple(
        dataclasses.replace(
            unit, scheme="symmetric", transition=quantize(symmetric(unit.transition.n_states, epsilon=2.0))
        )
        for unit in release_study.units
    )
    return dataclasses.replace(release_study, id="noisy", units=units, tables=RULE)


def sent(site: Site, study: Study, *, units: int = 2) -> bytes:
    """Approve the study, randomize, and send so many of its columns."""
    task = task_of(study, effective=True)
    site.state.remember(task, study.id, NOW)
    assert site.voting.approve(site.state.study(task.digest), "officer", NOW).complete
    record = site.state.study(task.digest)
    fill_spool(
        site, Spool(site.config.state_directory / "spool"), record, effective=study, holding=site.read(record),
        rows=np.arange(N), units=study.units_of("clinic"), at=NOW,
    )  # fmt: skip
    for _, item in sorted(site.state.artifacts(task.digest, task.digest).items())[:units]:
        enter_in_ledger(site, record, item, "miner", NOW)
    return task.digest


def test_the_tables_are_charged_whole_before_the_first_column_and_once(config: PartyConfig, noisy: Study) -> None:
    with Site.open(config) as site:
        sent(site, noisy, units=1)
        rows = [(row.unit, row.recipient, row.charged, row.charged_delta) for row in site.ledger.rows()]
        assert rows == [(None, "everyone", 0.5, 1e-9), (0, "miner", pytest.approx(2.0), 0.0)]
        kept = {reader: site.ledger.sum_reserved(reader=reader).get("people") for reader in (COLUMNS, PUBLIC)}
        assert kept == {
            COLUMNS: Cost(epsilon=pytest.approx(2.0)),
            PUBLIC: None,
        }  # the other column, for the miner alone
        for item in site.state.artifacts(canonical.digest(noisy), canonical.digest(noisy)).values():
            for _ in range(2):
                enter_in_ledger(site, site.state.study(canonical.digest(noisy)), item, "miner", NOW)
        assert len(site.ledger.rows()) == 3
        assert site.ledger.sum_charges("people") == Cost(epsilon=pytest.approx(4.0))
        assert site.ledger.sum_charges("people", PUBLIC) == Cost(epsilon=0.5, delta=1e-9)
        site.ledger.check_rows()


def test_what_was_sent_to_the_miner_alone_is_charged_to_everybody_when_it_is_published(
    config: PartyConfig, noisy: Study
) -> None:
    """The same values in a study without noise on tables: the miner has them, everybody is told a function now."""
    plain = dataclasses.replace(noisy, id="plain", tables=None)
    with Site.open(config) as site:
        sent(site, noisy)
        sent(site, plain)
        sent(site, dataclasses.replace(plain, id="more"))
        assert site.ledger.sum_charges("people") == Cost(epsilon=pytest.approx(4.0))
        assert site.ledger.sum_charges("people", PUBLIC) == Cost(epsilon=pytest.approx(4.5), delta=1e-9)
        assert [row.charged for row in site.ledger.rows()] == pytest.approx([0.5, 2, 2, 2, 2, 0, 0])
        lines = [json.loads(line) for line in (config.state_directory / "audit.jsonl").read_text().splitlines()]
        entered = [line["ledger"]["event"].get("reader", "columns") for line in lines if "ledger" in line]
        readers = ["others", "miner", "miner", "others-columns", "others-columns", "columns", "columns"]
        assert entered == [events.document(row.event).get("reader", "columns") for row in site.ledger.rows()] == readers
        site.ledger.check_rows()
        with pytest.raises(
            Refusal, match=r"account of everybody, by what is published: epsilon 0\.5 on top of what was"
        ):
            sent(site, dataclasses.replace(noisy, id="again"))
        assert len(site.ledger.rows()) == 7


def test_columns_that_everybody_is_told_of_cost_nothing_again_for_the_miner_alone(
    config: PartyConfig, noisy: Study
) -> None:
    with Site.open(config) as site:
        sent(site, dataclasses.replace(noisy, id="plain", tables=None))
        sent(site, noisy)
        assert [row.charged for row in site.ledger.rows()] == pytest.approx([2, 2, 0.5, 0, 0])
        assert site.ledger.sum_charges("people") == Cost(epsilon=pytest.approx(4.0))
        assert site.ledger.sum_charges("people", PUBLIC) == Cost(epsilon=pytest.approx(4.5), delta=1e-9)


def test_what_a_peer_knows_that_reads_columns_and_published_tables_is_said(
    config: PartyConfig, noisy: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    """Account 'columns' is the miner's where tables are published in place of columns: at a peer it understates the tables.

    Everybody's account counts whatever a peer sees that is neither the miner nor a dealer.
    """
    seen_by_a_peer = {"columns", "public", OTHERS, MASKED, COLUMNS_AFTER_DEALER}
    assert seen_by_a_peer - COLUMNS.counts == {OTHERS}
    assert seen_by_a_peer <= PUBLIC.counts
    line = "a peer that reads columns, and published tables as well: at most what account 'public' says, epsilon {}"

    def screens() -> list[str]:
        found = []
        for words in (("party", "ledger"), ("party", "status"), ("party", "show", "more")):
            assert main([*words, "--config", str(config.path)]) == 0
            found.append(" ".join(capsys.readouterr().out.split()))
        with Site.open(config) as site:
            record = site.state.study(canonical.digest(dataclasses.replace(noisy, id="more")))
            found.append(TEMPLATES.render("study", view.study(site, record, NOW), root="./", shown_at=""))
        return [" ".join(html.unescape(text).split()) for text in found]

    with Site.open(config) as site:
        sent(site, dataclasses.replace(noisy, id="plain", tables=None))
        assert told_peers(site.ledger, "people") is None  # what is published is a function of the columns
        site.state.remember(task_of(dataclasses.replace(noisy, id="more")), "more", NOW)
    ledger, status, approval, page = screens()
    assert line.format("4.00") not in ledger + status
    assert line.format("4.50, delta 1e-09") in approval  # what it would be after this study
    assert greek(line.format("4.50, delta 1e-09")) in page
    with Site.open(config) as site:
        sent(site, noisy)
        assert site.ledger.sum_charges("people") == Cost(
            epsilon=pytest.approx(4.0)
        )  # as before: no account has another sum
    ledger, status, *_ = screens()
    assert line.format("4.50, delta 1e-09") in ledger
    assert line.format("4.50, delta 1e-09") in status


def test_limits_are_held_before_the_first_byte_and_missing_ones_refuse(config: PartyConfig, noisy: Study) -> None:
    def limited(epsilon: float | None) -> PartyConfig:
        public = config.policy.public
        assert public is not None
        changed = None if epsilon is None else dataclasses.replace(public, lifetime=Cost(epsilon=epsilon, delta=1e-8))
        return dataclasses.replace(config, policy=dataclasses.replace(config.policy, public=changed))

    with Site.open(limited(None)) as site, pytest.raises(Refusal, match="states no limit for this account"):
        sent(site, noisy)
    with Site.open(config) as site:
        sent(site, noisy, units=0)
    for short in (limited(0.4), limited(None)):
        with Site.open(short) as site:
            record = site.state.study(canonical.digest(noisy))
            (item, *_) = site.state.artifacts(record.digest, record.task.effective_digest).values()
            with pytest.raises(Refusal, match="account"):
                enter_in_ledger(site, record, item, "miner", NOW)
            assert site.ledger.rows() == ()


def test_a_ledger_that_is_older_than_what_was_sent_is_charged_the_tables_too(config: PartyConfig, noisy: Study) -> None:
    with Site.open(config) as site:
        digest, proposal = canonical.digest(noisy), canonical.to_bytes(noisy)
        told = coordinator_pb2.StudyTask(study_digest=digest, proposal=proposal, units_received=[0])
        forgotten = forgotten_columns(site, told, deleted_units=(), proved_units=(0,))
        assert forgotten is not None
        settle(site, forgotten, accept_older=True, at=NOW)
        assert site.ledger.sum_charges("people") == Cost(epsilon=pytest.approx(2.0))
        assert site.ledger.sum_charges("people", PUBLIC) == Cost(epsilon=0.5, delta=1e-9)


def test_both_totals_and_whose_word_it_is_are_said_to_who_approves(
    config: PartyConfig, noisy: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    with Site.open(config) as site:
        task = task_of(noisy, effective=True)
        site.state.remember(task, noisy.id, NOW)
        page = " ".join(
            TEMPLATES.render(
                "study", view.study(site, site.state.study(task.digest), NOW), root="./", shown_at=""
            ).split()
        )
        assert (
            "This rests on the miner&#39;s word: it has the columns, draws the noise, and could publish without" in page
        )
    assert main(["party", "show", "noisy", "--config", str(config.path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "epsilon 0.5, delta 1e-09 for everybody but the miner. This rests on the miner's word" in shown
    assert "account 'columns' (whoever reads columns: the miner, or the peers): epsilon 4.00 for each person" in shown
    assert "account 'public' (everybody, by what is published): epsilon 0.50, delta 1e-09 for each person" in shown
    with Site.open(config) as site:
        sent(site, noisy)
    first, *_ = listing(config).rows
    assert first.noise is not None
    assert "rests on the miner's word" in first.noise.words

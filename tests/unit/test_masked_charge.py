"""A round of masked tables in the ledger: charged whole before anything is masked, once, whatever happens then."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from pathlib import Path

import numpy as np
import pytest

from support.documents import FEDERATION, party_toml
from support.site_folder import write_site
from verticil.cli.main import main
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.column_draws import Column
from verticil.party.limits.rules import Rule, questions_of
from verticil.party.operator.check import _cost
from verticil.party.operator.page import page_model as view
from verticil.party.operator.page.pages import TEMPLATES
from verticil.party.operator.reports import audit_lines, ledger_of
from verticil.party.operator.reports import ledger as listing
from verticil.party.policy.rule_approval import ruling
from verticil.party.protocol.context import agreement
from verticil.party.protocol.masked import round_charge
from verticil.party.protocol.masked.round_charge import ROWS, charge_linkage, charge_round
from verticil.party.protocol.planning import StoppedError
from verticil.party.protocol.randomization import Spool, enter_in_ledger, fill_spool, reserve
from verticil.party.protocol.statistics import DEALER_TABLES as TABLES
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord, Task
from verticil.shared.core.errors import DataFault, Refusal
from verticil.shared.federation.identity.key_words import key_words
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.privacy.accounts import COLUMNS, DEALER, PUBLIC, Cost
from verticil.shared.privacy.events import Linkage
from verticil.shared.privacy.masked import MaskedTables
from verticil.shared.study import canonical
from verticil.shared.study.document import Study, TablesRule
from verticil.shared.study.states import State

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
N = 150
T1 = b"t" * 32
FLOOR = 4.0
LIMITS = """
allow_masked = true
max_masked_epsilon = 1.0
max_masked_delta = 1e-9
max_floor_epsilon_per_study = 9.0
max_floor_delta_per_study = 1e-9
max_floor_epsilon_lifetime = 18.0
max_floor_delta_lifetime = 1e-8
"""


@pytest.fixture
def masked(release_study: Study) -> Study:
    """Two columns of a floor of 4 each at the clinic; the miner deals, and draws no noise."""
    units = tuple(
        dataclasses.replace(
            unit, scheme="symmetric", transition=quantize(symmetric(unit.transition.n_states, epsilon=FLOOR))
        )
        for unit in release_study.units
    )
    rule = TablesRule(epsilon=1.0, delta=1e-9)
    return dataclasses.replace(release_study, id="masked", model="masked", units=units, tables=rule)


@pytest.fixture
def config(tmp_path: Path, masked: Study) -> PartyConfig:
    pinned = {name: bytes([place]) * 32 for place, name in enumerate((*masked.parties, "miner"), start=1)}
    words = ", ".join(f'{name} = "{key_words(name, key)}"' for name, key in pinned.items())
    sealing = "".join(f'{name} = "{key.hex()}"\n' for name, key in pinned.items() if name != "miner")
    miner = f'sealing_key = "{pinned["miner"].hex()}"\n[sealing]\n'
    lines = f"{LIMITS}confirmed_keys = {{ {words} }}\n"
    party = party_toml(lines, per_column=3.0, per_study=6.0, lifetime=40.0)
    write_site(tmp_path, party, people=N, federation=FEDERATION + miner + sealing)
    return load_party(tmp_path / "party.toml")


def task_of(digest: bytes, proposal: bytes) -> Task:
    return Task(
        digest=digest, version=1, state=int(State.AWAITING_APPROVAL), proposal=proposal, effective=proposal,
        effective_digest=digest, approved=False, pseudonyms_complete=False, alignment_confirmed=False,
        units_received=(), failure="",
    )  # fmt: skip


def randomized(site: Site, study: Study) -> StudyRecord:
    """Approve the study and randomize this party's columns."""
    digest = canonical.digest(study)
    site.state.remember(task_of(digest, canonical.to_bytes(study)), study.id, NOW)
    assert site.voting.approve(site.state.study(digest), "officer", NOW).complete
    record = site.state.study(digest)
    fill_spool(
        site, Spool(site.config.state_directory / "spool"), record, effective=study, holding=site.read(record),
        rows=np.arange(N), units=study.units_of("clinic"), at=NOW,
    )  # fmt: skip
    return record


def totals(site: Site) -> tuple[Cost, Cost, Cost]:
    columns, public, dealer = (site.ledger.sum_charges("people", reader) for reader in (COLUMNS, PUBLIC, DEALER))
    return columns, public, dealer


TABLES_ALONE = Cost(epsilon=1.0, delta=1e-9)
WITH_ROWS = Cost(epsilon=pytest.approx(2 * FLOOR + 1.0), delta=1e-9)
NOTHING_YET = Cost(epsilon=0.0)


def test_a_round_is_charged_to_each_reader_at_once_and_only_once(config: PartyConfig, masked: Study) -> None:
    with Site.open(config) as site:
        record = randomized(site, masked)
        kept = [site.ledger.sum_reserved(reader=reader).get("people") for reader in (COLUMNS, PUBLIC, DEALER)]
        assert kept == [TABLES_ALONE, TABLES_ALONE, WITH_ROWS]  # from the approval on
        assert totals(site) == (NOTHING_YET, NOTHING_YET, NOTHING_YET)
        for _ in range(3):
            charge_round(site, record, T1, NOW)
            rows = [(row.unit, row.recipient, row.charged, row.artifact_sha256) for row in site.ledger.rows()]
            assert rows == [
                (None, "everyone", 1.0, T1.hex()),
                (None, TABLES, 1.0, T1.hex()),
                (0, ROWS, pytest.approx(FLOOR), T1.hex()),
                (1, ROWS, pytest.approx(FLOOR), T1.hex()),
            ]
            assert totals(site) == (TABLES_ALONE, TABLES_ALONE, WITH_ROWS)
        assert [site.ledger.sum_reserved(reader=reader) for reader in (COLUMNS, PUBLIC, DEALER)] == [{}, {}, {}]
        assert site.ledger.attempts() == 4
        assert site.ledger.rounds(record.digest, MaskedTables) == {T1}
        site.ledger.check_rows()
        with pytest.raises(Refusal, match="another round of it was charged") as other:
            charge_round(site, record, b"u" * 32, NOW)
        assert other.value.code == "APPROVAL_VOID"
        assert len(site.ledger.rows()) == 4


def test_no_line_of_the_log_has_a_digest_of_a_column(config: PartyConfig, masked: Study) -> None:
    with Site.open(config) as site:
        record = randomized(site, masked)
        charge_round(site, record, T1, NOW)
        lines = [line.said for line in audit_lines(site) if line.said["event"] in {"randomized", "shared"}]
        digests = {item.sha256.hex() for item in site.state.artifacts(record.digest, record.digest).values()}
    assert [line["event"] for line in lines] == ["randomized"] * 2 + ["shared"] * 4
    assert {line.get("sha256", "") for line in lines} <= {"", T1.hex()}
    assert not any(digest in str(lines) for digest in digests)


def test_nothing_is_charged_where_something_is_over_or_the_study_was_stopped(
    config: PartyConfig, masked: Study
) -> None:
    with Site.open(config) as site:
        record = randomized(site, masked)
    dealer = config.policy.dealer
    assert dealer is not None
    small = dataclasses.replace(dealer, lifetime=Cost(epsilon=8.5, delta=1e-8))
    with Site.open(dataclasses.replace(config, policy=dataclasses.replace(config.policy, dealer=small))) as site:
        with pytest.raises(Refusal, match=r"a dealer of masks together with the partner: epsilon 9 on top of what"):
            charge_round(site, record, T1, NOW)
        assert site.ledger.rows() == ()
    with Site.open(config) as site:
        site.voting.revoke(record, "officer", "changed my mind", NOW)
        with pytest.raises(StoppedError):
            charge_round(site, record, T1, NOW)
        with pytest.raises(StoppedError):
            charge_linkage(site, record, NOW)
        assert site.ledger.rows() == ()


@pytest.mark.parametrize("lines", [1, 2, 3, 4])
def test_a_round_that_was_killed_between_its_lines_is_charged_whole_the_next_time(
    config: PartyConfig, masked: Study, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """The lines are in the log before the transaction ends: a process that is killed then leaves them without the rows."""
    with Site.open(config) as site:
        record = randomized(site, masked)
    left, tell = [lines], round_charge._tell

    def killed(*args: object, **named: object) -> None:
        tell(*args, **named)  # type: ignore[arg-type]
        left[0] -= 1
        if not left[0]:
            os._exit(9)

    monkeypatch.setattr(round_charge, "_tell", killed)
    if (child := os.fork()) == 0:
        with Site.open(config) as site:
            charge_round(site, record, T1, NOW)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    monkeypatch.undo()
    with Site.open(config) as site:  # not LEDGER_OLDER: nothing had left
        assert len(site.ledger.rows()) == lines
        charge_round(site, record, T1, NOW)
        assert len(site.ledger.rows()) == 4
        assert totals(site) == (TABLES_ALONE, TABLES_ALONE, WITH_ROWS)
        site.ledger.check_rows()


def test_a_column_is_one_draw_whoever_could_read_it_first(config: PartyConfig, masked: Study) -> None:
    """The same matrices: in a study of Model II, whose columns the miner gets, and under masks."""
    plain = dataclasses.replace(masked, id="plain", model="central", tables=None)
    loose = dataclasses.replace(
        config, policy=dataclasses.replace(config.policy, max_epsilon_per_column=FLOOR, max_epsilon_per_study=9.0)
    )
    with Site.open(loose) as site:
        charge_round(site, randomized(site, masked), T1, NOW)
        record = randomized(site, plain)
        for item in site.state.artifacts(record.digest, record.digest).values():
            enter_in_ledger(site, record, item, "miner", NOW)
        both = Cost(epsilon=pytest.approx(2 * FLOOR + 1.0), delta=1e-9)
        assert totals(site) == (both, both, WITH_ROWS)
        found = ledger_of(site).four_figures
        assert found is not None
        ((_, before, *_),) = found.values()
        assert before == "the miner: the same, and what it was sent of these columns before, which it keeps: epsilon 8"


def test_no_rule_approves_a_masked_study(config: PartyConfig, masked: Study) -> None:
    rule = Rule(name="all", columns=("age", "smoker"), max_epsilon=100.0)
    known = questions_of(masked, "clinic", {name: Column(dataset="people", source=name) for name in ("age", "smoker")})
    policy = dataclasses.replace(config.policy, approval="rules", rules=(rule,))
    with Site.open(dataclasses.replace(config, policy=policy, codebook=known)) as site:
        digest, proposal = canonical.digest(masked), canonical.to_bytes(masked)
        site.state.remember(task_of(digest, proposal), masked.id, NOW)
        found = ruling(site.voting, site.state.study(digest), NOW)
    assert found.rule is None
    assert found.why == (
        "the protection of its columns depends on the dealers of masks and on who draws noise, so a person decides",
    )


def test_each_linkage_is_a_row_and_there_are_so_many(config: PartyConfig, masked: Study) -> None:
    with Site.open(config) as site:
        record = randomized(site, masked)
        for _ in range(2):
            charge_linkage(site, record, NOW)
        (row,) = site.ledger.rows()
        assert (row.charged, row.epsilon, row.unit) == (0.0, 0.0, None)
        charge_round(site, record, T1, NOW)  # room is still asked for all of it
        assert len(site.ledger.rows()) == 5
    policy = dataclasses.replace(config.policy, masked=dataclasses.replace(config.policy.masked, linkages=1))
    with Site.open(dataclasses.replace(config, policy=policy)) as site:
        with pytest.raises(Refusal, match="linked in one more masked study, expected at most 1"):
            randomized(site, dataclasses.replace(masked, id="again"))
        charge_linkage(site, record, NOW)


def test_a_place_among_linkages_is_kept_with_the_approval(config: PartyConfig, masked: Study) -> None:
    """Three proposals at once, places for two: the third had been approved here, and refused when others had been charged."""
    policy = dataclasses.replace(config.policy, masked=dataclasses.replace(config.policy.masked, linkages=2))
    with Site.open(dataclasses.replace(config, policy=policy)) as site:
        for number in range(3):
            study = dataclasses.replace(masked, id=f"study-{number}")
            site.state.remember(task_of(canonical.digest(study), canonical.to_bytes(study)), study.id, NOW)
        first, second, third = site.state.studies()
        for record in (first, second):
            assert site.voting.approve(record, "officer", NOW).complete
            assert not site.ledger.has_drawn(record.digest)
        refused = pytest.raises(Refusal, match="linked in one more masked study, expected at most 2")
        with refused:
            site.voting.approve(third, "officer", NOW)
        with refused:  # and where two are approved in the same moment
            linkages = {"people": Linkage(mode="keyed-hash")}
            site.ledger.reserve(third.digest, {}, policy, shared={}, linkages=linkages, begins_drawing=False)
        for record in (first, second):
            charge_linkage(site, record, NOW)
        with refused:
            site.voting.approve(third, "officer", NOW)


def test_a_linkage_does_not_keep_lower_limits_from_counting(config: PartyConfig, masked: Study) -> None:
    with Site.open(config) as site:
        record = randomized(site, masked)
        charge_linkage(site, record, NOW)
    policy = dataclasses.replace(config.policy, max_epsilon_lifetime=0.5)
    with Site.open(dataclasses.replace(config, policy=policy)) as site:
        with pytest.raises(Refusal, match="epsilon 1 on top of what was charged before"):
            charge_round(site, record, T1, NOW)
        assert len(site.ledger.rows()) == 1


def test_room_that_is_kept_is_held_against_lower_limits_at_every_act(config: PartyConfig, masked: Study) -> None:
    with Site.open(config) as site:
        record = randomized(site, masked)
        charge_linkage(site, record, NOW)  # costs nothing, and keeps nothing from being asked
        agreement(site, record, NOW.date())
    policy = dataclasses.replace(config.policy, max_epsilon_lifetime=0.5)
    with Site.open(dataclasses.replace(config, policy=policy)) as site:
        for ask in (
            lambda: site.ledger.check_reserved(record.digest, policy),
            lambda: reserve(site, record, masked, {}),
            lambda: agreement(site, record, NOW.date()),
        ):
            with pytest.raises(Refusal, match="epsilon 1 on top of what was charged before"):
                ask()


def test_a_damaged_row_is_seen_before_a_round_or_a_column_is_charged(config: PartyConfig, masked: Study) -> None:
    with Site.open(config) as site:
        record = randomized(site, masked)
        charge_round(site, record, T1, NOW)
        rows = site.ledger.rows()
        other = dataclasses.replace(record, task=dataclasses.replace(record.task, digest=b"o" * 32))
        site.state.remember(dataclasses.replace(record.task, digest=b"o" * 32), "other", NOW)
        items = site.state.artifacts(record.digest, record.task.effective_digest)
        site.state.store_artifacts(b"o" * 32, list(items.values()))
        site.database.write("DROP TRIGGER ledger_keeps")
        site.database.write("UPDATE ledger SET charged = 0.25, epsilon = 0.25 WHERE number = 1")
        for charged in (
            lambda: charge_round(site, other, b"u" * 32, NOW),
            lambda: enter_in_ledger(site, other, items[0], "miner", NOW),
        ):
            with pytest.raises(DataFault, match="row 1 of the ledger"):
                charged()
        assert len(site.ledger.rows()) == len(rows)


def test_the_four_figures_stand_first_wherever_people_look(
    config: PartyConfig, masked: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    with Site.open(config) as site:
        record = randomized(site, masked)
        charge_round(site, record, T1, NOW)
        page = TEMPLATES.render("study", view.study(site, record, NOW), root="./", shown_at="")
        assert page.index("the floor: a dealer of masks".capitalize()) < page.index(
            "Read by nobody, unless they work together:"
        )
    assert main(["party", "show", "masked", "--config", str(config.path)]) == 0
    assert "people are linked by 'id' of data set 'people'" in " ".join(capsys.readouterr().out.split())
    assert main(["party", "limits", "--config", str(config.path)]) == 0
    assert "allow: True; epsilon: 1.0; delta: 1e-09" in " ".join(capsys.readouterr().out.split())
    for command in (["show", "masked"], ["ledger"]):
        assert main(["party", *command, "--config", str(config.path)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "1. everybody: epsilon 1, delta 1e-09 for each person" in said
        assert "2. the miner: the same; it was sent nothing of these columns before" in said
        assert "3. the floor:" in said
        assert "(columns of clinic: epsilon 8 over 2)" in said
        assert "4. checked: the rows of every party" in said
    found = listing(config)
    first = found.rows[0]
    assert first.noise is not None
    assert first.noise.event == "masked-tables"


def test_who_checks_or_approves_a_masked_study_reads_the_figures_first(
    config: PartyConfig, masked: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = canonical.digest(masked)
    with Site.open(config) as site:
        site.state.remember(task_of(digest, canonical.to_bytes(masked)), masked.id, NOW)
        found = _cost(config, site, masked, NOW).four_figures
    assert found is not None
    assert [words.partition(":")[0] for words in found] == ["everybody", "the miner", "the floor", "checked"]
    assert main(["party", "approve", "masked", "--as", "officer", "--config", str(config.path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1. everybody: epsilon 1")
    assert "the floor per person 8.00, of which 8.00 is charged now" in said


def test_a_ledger_from_before_the_round_is_found_and_reads_its_charges_back(config: PartyConfig, masked: Study) -> None:
    state = config.state_directory
    with Site.open(config) as site:
        record = randomized(site, masked)
    before = {path.name: path.read_bytes() for path in state.iterdir() if path.name.startswith("party.sqlite")}
    with Site.open(config) as site:
        charge_linkage(site, record, NOW)
        charge_round(site, record, T1, NOW)
        rows, spent = site.ledger.rows(), totals(site)
    for path in state.iterdir():
        if path.name.startswith("party.sqlite"):
            path.unlink()
    for name, data in before.items():
        (state / name).write_bytes(data)
    with pytest.raises(Refusal, match="5 charges in the log, epsilon 10 in all, are not in the ledger") as older:
        Site.open(config)
    assert older.value.code == "LEDGER_OLDER"
    with Site.open(config, accept_older=True) as site:
        assert site.ledger.rows() == rows
        assert totals(site) == spent == (TABLES_ALONE, TABLES_ALONE, WITH_ROWS)
        with pytest.raises(Refusal, match="another round of it was charged"):
            charge_round(site, record, b"u" * 32, NOW)
        charge_round(site, record, T1, NOW)
        assert site.ledger.rows() == rows

"""People have one account, whatever their data sets are called: what a site remembers of them, refuses, and joins."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import logging
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.documents import PEOPLE, party_toml
from support.site_folder import task_of, write_site
from verticil.party.audit.log import What
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.dataset.local_person_keys import PeopleOfTable
from verticil.party.limits.same_people import SamePeople
from verticil.party.operator.check import check
from verticil.party.operator.reports import ledger_of
from verticil.party.operator.same_people import look_at_people, problems
from verticil.party.people.reading import read_everybody
from verticil.party.protocol.outgoing_errors import redact_error
from verticil.party.protocol.randomization import randomize
from verticil.party.site import Site
from verticil.shared.core.arrays import key_numbers
from verticil.shared.core.errors import Misuse, Refusal
from verticil.shared.privacy.accounts import COLUMNS, NOTHING
from verticil.shared.privacy.events import GaussianCounts, Linkage, RandomizedColumn
from verticil.shared.study import canonical
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.document import Study

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
SECRET = b"s" * 32
N = 150
CLINICDB = PEOPLE.replace("people]", "clinicdb]")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path)
    write_table(tmp_path, range(N))
    return tmp_path


def write_table(folder: Path, people: Iterator[int] | range, *, name: str = "people.csv", spelled: str = "p{}") -> None:
    """A table of the study's columns; the smoker of every tenth person is in no category, and one is drawn for it."""
    smoker = ["maybe", *["yes", "no", "yes"] * 3]
    rows = [f"{spelled.format(i)},{i % 90},{smoker[i % 10]}" for i in people]
    (folder / name).write_text("\n".join(["id,age,smoker", *rows]) + "\n")


def configured(folder: Path, datasets: str = PEOPLE, **same_people: str) -> PartyConfig:
    said = "".join(f'same_people.{name} = "{other}"\n' for name, other in same_people.items())
    (folder / "party.toml").write_text(party_toml(said, per_study=60.0, lifetime=200.0, datasets=datasets))
    return load_party(folder / "party.toml")


def offer(site: Site, study: Study) -> bytes:
    digest = canonical.digest(study)
    task = task_of(study)
    site.state.remember(task, study.id, NOW)
    return digest


def send(site: Site, study: Study) -> tuple[float, dict[int, bytes]]:
    """Approve a study and charge every column of it; what was charged, and the randomized columns."""
    digest = offer(site, study)
    review = site.voting.approve(site.state.study(digest), "officer", NOW).review
    site.sketches.take(review.holding.tables, for_study=True)
    charged, columns = 0.0, dict[int, bytes]()
    for unit, release in site.column_draws(review.study, review.holding).items():
        charged += site.ledger.record(
            release, version_tag=b"", policy=site.config.policy, study_digest=digest, study_id=study.id, unit=unit,
            recipient="miner", artifact_sha256=bytes([unit]) * 32, size=1, at=NOW,
        ).epsilon  # fmt: skip
        everyone = np.argsort(key_numbers(review.holding.keys[:, :8]))  # in an order that no study chooses
        columns[unit] = randomize(
            review.holding, everyone, review.study, unit, column_draw=release, version_tag=b"", site_secret=SECRET
        ).tobytes()
    return charged, columns


def named(study: Study, name: str) -> Study:
    return dataclasses.replace(study, id=name)


# ---- a data set that is called otherwise


def test_a_renamed_data_set_has_no_second_budget(folder: Path, release_study: Study) -> None:
    """18 of 200 spent became 0 of 200, `party check` said ready, and all noise was fresh."""
    with Site.open(configured(folder)) as site:
        spent, drawn = send(site, release_study)
        assert spent > 2
    with Site.open(configured(folder, CLINICDB)) as site:
        digest = offer(site, named(release_study, "again"))
        with pytest.raises(Refusal, match=r"SAME_PEOPLE: data set 'people': something was charged to it"):
            site.voting.approve(site.state.study(digest), "officer", NOW)
    found = check(site.config)
    assert not found.ok
    words = [fault.message for fault in found.faults if fault.code == "SAME_PEOPLE"]
    assert words == [
        "data set 'people': something was charged to it, and party.toml has no such data set any more",
        "data set 'clinicdb' and data set 'people' are about the same people: 1.0 of the smaller one's are in the other, and each"
        " has an account of its own",
    ]

    with Site.open(configured(folder, CLINICDB, people="gone")) as site:  # and still its people are here
        with pytest.raises(Refusal, match=r"'clinicdb' and data set 'people' are about the same people: 1\.0 of"):
            site.voting.approve(site.state.study(digest), "officer", NOW)
        assert site.ledger.sum_charges("people").epsilon == spent

    with Site.open(configured(folder, CLINICDB, clinicdb="people")) as site:
        assert site.ledger.sum_charges("clinicdb") == site.ledger.sum_charges("people")
        again, columns = send(site, named(release_study, "again"))
        assert again == 0
        assert columns == drawn
        assert site.ledger.sum_charges("clinicdb").epsilon == spent
        (budget,) = ledger_of(site).datasets
        assert (budget.dataset, budget.epsilon_spent) == ("people", spent)
        assert budget.people == ("one account for the same people: data sets 'people' and 'clinicdb'",)
    assert not any(fault.code == "SAME_PEOPLE" for fault in check(site.config).faults)


def test_what_was_drawn_under_either_name_is_in_the_sum_and_used_again(folder: Path, release_study: Study) -> None:
    with Site.open(configured(folder)) as site:
        spent, drawn = send(site, release_study)
    with Site.open(configured(folder, CLINICDB, clinicdb="apart", people="gone")) as site:
        fresh, redrawn = send(site, named(release_study, "apart"))
        assert fresh == spent
        assert redrawn != drawn
        assert site.ledger.sum_charges("people").epsilon == site.ledger.sum_charges("clinicdb").epsilon == spent
    for said in ({"clinicdb": "people"}, {"people": "clinicdb"}):
        with Site.open(configured(folder, CLINICDB, **said)) as site:
            again, columns = send(site, named(release_study, f"joined-{next(iter(said))}"))
            assert (again, columns) == (0, redrawn)
            assert site.ledger.sum_charges("people").epsilon == site.ledger.sum_charges("clinicdb").epsilon == 2 * spent


def test_a_data_set_that_was_renamed_twice_has_the_account_of_its_first_name(
    folder: Path, release_study: Study
) -> None:
    register = PEOPLE.replace("people]", "register]")
    with Site.open(configured(folder)) as site:
        spent, drawn = send(site, release_study)
    with Site.open(configured(folder, CLINICDB, clinicdb="people")) as site:
        send(site, named(release_study, "second"))
    for said in ({"register": "clinicdb", "clinicdb": "people"}, {"people": "clinicdb", "clinicdb": "register"}):
        with Site.open(configured(folder, register, **said)) as site:
            assert send(site, named(release_study, f"third-{next(iter(said))}")) == (0, drawn)
            assert site.ledger.sum_charges("register").epsilon == spent
    with Site.open(configured(folder, register, register="clinicdb")) as site:
        digest = offer(site, named(release_study, "fourth"))
        with pytest.raises(Misuse, match=r"CONFIG_INVALID: party.toml: policy.same_people.register: .*\(people\)"):
            site.voting.approve(site.state.study(digest), "officer", NOW)


def test_ids_that_changed_their_spelling_are_the_same_people(folder: Path, release_study: Study) -> None:
    with Site.open(configured(folder)) as site:
        send(site, release_study)
    for number, spelled in enumerate(("P{}", " p{} ", "PAT-{}", "{}")):
        write_table(folder, range(N), spelled=spelled)
        with Site.open(configured(folder, CLINICDB, people="gone")) as site:
            digest = offer(site, named(release_study, f"spelled-{number}"))
            with pytest.raises(Refusal, match=r"SAME_PEOPLE.*1\.0 of the smaller"):
                site.voting.approve(site.state.study(digest), "officer", NOW)


def test_growth_removal_and_reordering_keep_the_account(folder: Path, release_study: Study) -> None:
    with Site.open(configured(folder)) as site:
        spent, _ = send(site, release_study)
    for people in (range(N + 40), range(40, N + 40), range(N - 1, -1, -1), range(3)):
        write_table(folder, people)
        with Site.open(configured(folder)) as site:
            look_at_people(site, NOW)
            assert problems(site) == ([], [])
            assert site.ledger.sum_charges("people").epsilon == spent


def test_people_who_left_the_table_are_not_forgotten(folder: Path, release_study: Study) -> None:
    """An archive of them under another name would have a whole budget."""
    with Site.open(configured(folder)) as site:
        send(site, release_study)
        write_table(folder, range(N, 3 * N))
        look_at_people(site, NOW)
        site.sketches.take({"people": everybody(site, "people")})
    write_table(folder, range(40), name="archive.csv")
    archive = (
        PEOPLE + '[dataset.archive]\npath = "archive.csv"\nid = "id"\n[dataset.archive.columns.age]\nsource = "age"\n'
    )
    with Site.open(configured(folder, archive + '[dataset.archive.columns.smoker]\nsource = "smoker"\n')) as site:
        digest = offer(site, named(release_study, "archive"))
        with pytest.raises(Refusal, match=r"'archive' and data set 'people' are about the same people: 1\.0"):
            site.voting.approve(site.state.study(digest), "officer", NOW)


def everybody(site: Site, dataset: str) -> PeopleOfTable:
    rule, folder = site.config.datasets[dataset], site.config.state_directory
    return read_everybody(rule, site_secret=SECRET, folder=folder)


@pytest.mark.parametrize(("people", "is_refused"), [(3, True), (2, True), (1, False), (0, False)])
def test_three_people_are_the_same_if_two_of_them_are(
    folder: Path, release_study: Study, people: int, is_refused: bool
) -> None:
    with Site.open(configured(folder)) as site:
        send(site, release_study)
    write_table(folder, range(N - people, N - people + 3))
    with Site.open(configured(folder, CLINICDB, people="gone")) as site:
        look_at_people(site, NOW)
        faults, _ = problems(site)
        assert [fault.code for fault in faults] == ["SAME_PEOPLE"] * is_refused


# ---- two data sets


def two_tables(folder: Path) -> str:
    rows = (folder / "people.csv").read_text().splitlines()[1:]
    cells = [row.split(",") for row in rows]
    (folder / "people.csv").write_text("\n".join(["id,age", *(f"{c[0]},{c[1]}" for c in cells)]) + "\n")
    (folder / "habits.csv").write_text("\n".join(["id,smoker", *(f"{c[0]},{c[2]}" for c in cells[10:])]) + "\n")
    return PEOPLE + '[dataset.habits]\npath = "habits.csv"\nid = "id"\n'


def test_two_data_sets_of_the_same_people_count_in_one_account(folder: Path, release_study: Study) -> None:
    datasets = two_tables(folder)
    with Site.open(configured(folder, datasets)) as site:
        digest = offer(site, release_study)
        with pytest.raises(Refusal, match=r"SAME_PEOPLE.*'habits' and data set 'people'.*1\.0"):
            site.voting.approve(site.state.study(digest), "officer", NOW)
        _, pairs = problems(site)
        assert [(pair.one, pair.other, pair.is_charged) for pair in pairs] == [("people", "habits", False)]
    assert "SAME_PEOPLE" in {warning.code for warning in check(site.config).warnings}
    with Site.open(configured(folder, datasets, habits="people")) as site:
        charged, _ = send(site, release_study)
        assert site.ledger.sum_charges("people") == site.ledger.sum_charges("habits")
        assert site.ledger.sum_charges("people").epsilon == pytest.approx(charged)
        assert len({row.dataset for row in site.ledger.rows()}) == 1
        assert site.ledger.told_of("habits", ["age", "smoker"]) == pytest.approx(charged)


def test_data_sets_counted_apart_are_named_in_every_approval_and_account(folder: Path, release_study: Study) -> None:
    datasets = two_tables(folder)
    with Site.open(configured(folder, datasets, habits="apart")) as site:
        send(site, release_study)
        assert site.ledger.sum_charges("people").epsilon != site.ledger.sum_charges("habits").epsilon > 0
        body = site.state.study(canonical.digest(release_study)).approval or b""
        assert parse_approval(body).people_counted_apart
        assert json.loads(body)["people_counted_apart"] is True
        words = {item.dataset: item.people for item in ledger_of(site).datasets}
        assert words["people"] is None
        assert words["habits"] is not None
        assert words["habits"][0].startswith("counted apart")
        record = site.state.study(canonical.digest(release_study))
    changed, void = configured(folder, datasets, habits="people"), r"APPROVAL_VOID.*policy.same_people"
    with Site.open(changed) as site, pytest.raises(Refusal, match=void):
        site.voting.check_binding(record, NOW.date())


def test_an_approval_says_nothing_of_people_where_none_are_counted_apart(folder: Path, release_study: Study) -> None:
    with Site.open(configured(folder)) as site:
        send(site, release_study)
        assert b"apart" not in (site.state.study(canonical.digest(release_study)).approval or b"")


def test_a_data_set_that_was_charged_before_sketches_were_made_is_read_before_another_is_charged(
    folder: Path, release_study: Study
) -> None:
    with Site.open(configured(folder)) as site:
        send(site, release_study)
        with site.database.transaction():  # as a state of the version before has it
            site.database.write("DELETE FROM people_sketch")
    write_table(folder, range(40), name="archive.csv")
    columns = "".join(f'[dataset.archive.columns.{name}]\nsource = "{name}"\n' for name in ("age", "smoker"))
    with Site.open(
        configured(folder, PEOPLE + '[dataset.archive]\npath = "archive.csv"\nid = "id"\n' + columns)
    ) as site:
        digest = offer(site, named(release_study, "again"))
        with pytest.raises(Refusal, match="SAME_PEOPLE"):
            site.voting.approve(site.state.study(digest), "officer", NOW)
        assert site.sketches.datasets() == {"people", "archive"}


def test_rows_name_the_people_that_they_were_charged_for(folder: Path, release_study: Study) -> None:
    with Site.open(configured(folder)) as site:
        send(site, release_study)
        digests = set(site.database.read(bytes, "SELECT people FROM ledger"))
        assert digests == {site.ledger.people.digest("people")}
        (file,) = {path.name for path in (folder / "state" / "people").glob("*")} & {digest.hex() for digest in digests}
        assert stat.S_IMODE((folder / "state" / "people" / file).stat().st_mode) == 0o600
        write_table(folder, range(N + 1))
        site.sketches.take({"people": everybody(site, "people")})
        assert site.ledger.people.digest("people") not in digests


# ---- what others read, and what the site's people read


def test_others_read_no_more_than_that_the_policy_refuses() -> None:
    message = "data set 'a' and data set 'b' are about the same people: 0.4 of the smaller one's"
    found = redact_error(Refusal("SAME_PEOPLE", message, hint="join them"))
    other = redact_error(
        Refusal("SAME_PEOPLE", "data set 'c': something was charged to it", hint="say what became of it")
    )
    assert (found.code, found.message, found.hint) == (other.code, other.message, other.hint)
    assert found.code == "POLICY_REFUSED"
    assert "people" not in found.message


def test_the_daemon_says_whose_accounts_are_two_and_the_audit_log_what_was_joined(
    folder: Path, release_study: Study, caplog: pytest.LogCaptureFixture
) -> None:
    with Site.open(configured(folder)) as site:
        send(site, release_study)
        look_at_people(site, NOW)
        assert lines(site) == []
    with Site.open(configured(folder, CLINICDB)) as site, caplog.at_level(logging.ERROR):
        look_at_people(site, NOW)
    assert "'clinicdb' and data set 'people' are about the same people: 1.0" in caplog.text
    with Site.open(configured(folder, CLINICDB, clinicdb="people")) as site:
        look_at_people(site, NOW)
        look_at_people(site, NOW)
        assert lines(site) == ["'clinicdb' counts with 'people'"]
    with Site.open(configured(folder, CLINICDB, clinicdb="apart", people="gone")) as site:
        look_at_people(site, NOW)
        assert lines(site)[1:] == ["'clinicdb' is counted apart; the table of 'people' is gone"]
    misspelled, wrong = (
        configured(folder, CLINICDB, clincdb="apart"),
        "CONFIG_INVALID: party.toml: policy.same_people.clincdb",
    )
    with Site.open(misspelled) as site, pytest.raises(Misuse, match=wrong):
        look_at_people(site, NOW)


def lines(site: Site) -> list[object]:
    return [entry.get("detail") for entry in site.audit.entries() if entry.get("event") == str(What.SAME_PEOPLE)]


# ---- what party.toml may say


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"clinicdb": "clinicdb"}, "policy.same_people.clinicdb: names itself"),
        (
            {"clinicdb": "people", "people": "clinicdb"},
            "policy.same_people.clinicdb: 'people' leads back to 'clinicdb'",
        ),
        ({"a": "b", "b": "c", "c": "b", "clinicdb": "a"}, "policy.same_people.a: 'b' leads back to 'a'"),
        ({"clinicdb": "gone"}, r"policy.same_people.clinicdb: got 'gone', and \[dataset.clinicdb\] stands"),
        (
            {"clincdb": "people"},
            "policy.same_people.clincdb: got 'people', and neither is a data set of this file: clinicdb",
        ),
        ({"clinicdb": "no name"}, "policy.same_people.clinicdb: got 'no name', expected the name of a data set"),
    ],
)
def test_names_that_lead_nowhere_are_refused_with_their_place(folder: Path, said: dict[str, str], problem: str) -> None:
    with pytest.raises(Misuse, match=problem):
        configured(folder, CLINICDB, **said)


def test_a_data_set_called_as_one_of_the_words_is_read_as_neither(folder: Path) -> None:
    datasets = CLINICDB + '[dataset.apart]\npath = "other.csv"\nid = "id"\n'
    configured(folder, datasets)
    with pytest.raises(Misuse, match=r"policy.same_people.clinicdb: got 'apart', which is a data set, too"):
        configured(folder, datasets, clinicdb="apart")


def test_an_account_is_that_of_all_names_of_a_tree() -> None:
    same = SamePeople(datasets=frozenset("ad"), joined={"a": "b", "b": "c", "d": "c"}, apart=frozenset({"x"}))
    assert {name: same.account(name) for name in "abcde"} == {"a": "c", "b": "c", "c": "c", "d": "c", "e": "e"}
    assert same.names("a") == same.names("d") == ("c", "a", "b", "d")
    assert [same.is_explained(name) for name in "abcdex"] == [True] * 4 + [False, True]


def test_one_draw_of_two_versions_of_the_data_in_one_study_is_refused_before_anything_is_charged(
    folder: Path, release_study: Study
) -> None:
    """Two tables of the same people with the same column: the noise is the same, so a second one shows which values differ."""
    with Site.open(configured(folder)) as site:
        review = site.review(site.state.study(offer(site, release_study)), NOW)
        release: ColumnDraw = next(iter(review.column_draws.values()))
        other = dataclasses.replace(release, fingerprint=b"o" * 32)
        with pytest.raises(Refusal, match="DATA_CHANGED"):
            site.ledger.assess([release, other], site.config.policy)
        assert site.ledger.sum_charges("people", COLUMNS).epsilon == 0
        site.ledger.assess([release, release], site.config.policy)
        assert np.isfinite(release.epsilon)


def test_statistics_and_linkage_ask_whose_people_they_are(folder: Path, release_study: Study) -> None:
    noise = GaussianCounts(epsilon=0.5, delta=1e-7, tables=3)
    with Site.open(configured(folder)) as site:
        send(site, release_study)
        review = site.review(site.state.study(canonical.digest(release_study)), NOW)
        first = next(iter(review.column_draws.values()))
        statistics = dataclasses.replace(first, event=noise, codebook_digest=b"s" * 32)
        about = {"study_id": "s", "recipient": "everyone", "artifact_sha256": b"", "size": 0, "at": NOW}
        link = dataclasses.replace(statistics, event=Linkage(mode="keyed-hash"))
        site.ledger.write_row(
            link, version_tag=b"", charge=NOTHING, unit=None, study_digest=b"l" * 32, **about  # type: ignore[arg-type]
        )  # fmt: skip
    renamed = dataclasses.replace(statistics, dataset="clinicdb")
    with Site.open(configured(folder, CLINICDB)) as site:
        with pytest.raises(Refusal, match="SAME_PEOPLE"):
            site.ledger.record_shared(
                renamed, policy=site.config.policy, study_digest=b"n" * 32, **about  # type: ignore[arg-type]
            )  # fmt: skip
        with pytest.raises(Refusal, match="SAME_PEOPLE"):
            site.ledger.check_linkages("clinicdb", site.config.policy, study_digest=b"n" * 32)
    config = configured(folder, CLINICDB, clinicdb="people")
    with Site.open(config) as site:
        masked = dataclasses.replace(config.policy.masked, linkages=1)
        with pytest.raises(Refusal, match=r"BUDGET_EXCEEDED.*linked in one more masked study"):
            site.ledger.check_linkages(
                "clinicdb", dataclasses.replace(config.policy, masked=masked), study_digest=b"n" * 32
            )


def test_room_that_is_kept_under_one_name_is_kept_for_all_names_of_the_people(
    folder: Path, release_study: Study
) -> None:
    with Site.open(configured(folder)) as site:
        digest = offer(site, release_study)
        review = site.review(site.state.study(digest), NOW)
        site.ledger.reserve(digest, review.column_draws, site.config.policy, shared={})
        kept = site.ledger.sum_reserved()
        assert kept["people"].epsilon > 2
    with Site.open(configured(folder, CLINICDB, people="clinicdb")) as site:
        assert site.ledger.sum_reserved() == {"clinicdb": kept["people"]}
        tight = dataclasses.replace(site.config.policy, max_epsilon_lifetime=kept["people"].epsilon + 0.1)
        with pytest.raises(Refusal, match=r"BUDGET_EXCEEDED.*kept for studies under way"):
            site.ledger.check_room("clinicdb", [RandomizedColumn(epsilon=0.5)], tight)


def test_a_table_that_moved_into_a_database_keeps_account_and_draws(folder: Path, release_study: Study) -> None:
    with Site.open(configured(folder)) as site:
        spent, drawn = send(site, release_study)
    rows = [line.split(",") for line in (folder / "people.csv").read_text().splitlines()]
    with contextlib.closing(sqlite3.connect(folder / "people.sqlite")) as made:
        made.execute("CREATE TABLE people (id TEXT, age INTEGER, smoker TEXT)")
        made.executemany("INSERT INTO people VALUES (?, ?, ?)", reversed(rows[1:]))
        made.commit()
    moved = '[dataset.people]\npath = "people.sqlite"\ntable = "people"\nid = "id"\n'
    with Site.open(configured(folder, moved)) as site:
        assert send(site, named(release_study, "moved")) == (0, drawn)
        assert site.ledger.sum_charges("people").epsilon == spent

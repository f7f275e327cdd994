"""What may still be spent: deltas in their sum, and room for all of a study before its first column leaves."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from support.documents import PEOPLE, party_toml
from support.site_folder import task_of, write_site
from verticil.cli.main import main
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.operator.page import page_model as view
from verticil.party.operator.page.pages import TEMPLATES
from verticil.party.operator.pending_studies import show
from verticil.party.operator.reports import ledger as ledger_facts
from verticil.party.policy.ledger import Ledger
from verticil.party.protocol.randomization import Spool, enter_in_ledger, fill_spool
from verticil.party.site import Site
from verticil.party.storage.database import FILE_NAME, Database
from verticil.shared.core.errors import Refusal
from verticil.shared.documents.view_models import jsonable
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import GaussianCounts, RandomizedColumn
from verticil.shared.study import canonical
from verticil.shared.study.document import ShareRule, Study
from verticil.shared.study.states import State

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
N = 150
PARTY = party_toml(
    'same_people = { habits = "apart" }\n',
    lifetime=3.0,
    datasets=PEOPLE + PEOPLE.replace("people", "habits"),
    recipients=("miner", "registry"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, PARTY)
    (tmp_path / "people.csv").write_text("\n".join(["id,age", *(f"p{i},{i % 100}" for i in range(N))]) + "\n")
    habits = (f"p{i},{'yes' if i % 3 else 'no'}" for i in range(N))
    (tmp_path / "habits.csv").write_text("\n".join(["id,smoker", *habits]) + "\n")
    return tmp_path


def config_of(folder: Path, **policy: float) -> PartyConfig:
    config = load_party(folder / "party.toml")
    return dataclasses.replace(config, policy=dataclasses.replace(config.policy, **policy))  # type: ignore[arg-type]


def with_noise(study: Study, study_id: str, epsilon: float) -> Study:
    """Age (data set people) and smoker (data set habits), each with this epsilon."""
    units = tuple(
        dataclasses.replace(
            unit,
            scheme="symmetric",
            transition=quantize(symmetric(unit.transition.n_states, epsilon=epsilon)),
        )
        if unit.owner == "clinic"
        else unit
        for unit in study.units
    )
    return dataclasses.replace(study, id=study_id, units=units)


def only_smoker(study: Study) -> Study:
    age = study.schema.index("age")
    variables = tuple(variable for position, variable in enumerate(study.schema.variables) if position != age)
    units = tuple(unit for unit in study.units if "age" not in unit.variables)
    return dataclasses.replace(study, schema=dataclasses.replace(study.schema, variables=variables), units=units)


def approved(site: Site, study: Study) -> bytes:
    """Every party has approved the study, this one among them, and what is carried out is what was proposed."""
    digest = canonical.digest(study)
    task = task_of(study, effective=True)
    site.state.remember(task, study.id, NOW)
    assert site.voting.approve(site.state.study(digest), "officer", NOW).complete
    return digest


def approved_by_schema_7(site: Site, study: Study) -> bytes:
    """As `approved`, by the program that kept no room with an approval."""
    digest = approved(site, study)
    site.database.write("DELETE FROM reserved WHERE study_digest = ?", (digest,))
    return digest


@pytest.mark.parametrize("on_data_change", ["refuse", "sticky", "fresh"])
def test_a_burst_of_proposals_is_refused_at_the_approval_and_what_was_approved_is_drawn(
    folder: Path, release_study: Study, on_data_change: str
) -> None:
    """Fourteen at once, room for five: an approval that another party waits for had been refused later, at the draw."""
    with Site.open(config_of(folder, on_data_change=on_data_change)) as site:
        studies = [with_noise(release_study, f"study-{number}", 0.55 + number / 1000) for number in range(14)]
        names = [approved(site, study) for study in studies[:5]]
        for study in studies[5:]:
            with pytest.raises(Refusal, match=r"BUDGET_EXCEEDED: .* is kept for studies under way"):
                approved(site, study)
        waiting = [record.study_id for record in site.state.studies() if record.approval is None]
        assert len(waiting) == 9  # nothing of a refused vote was written
        assert not any(site.ledger.has_drawn(name) for name in names)
        for name in names:
            randomize(site, name)
            assert site.ledger.has_drawn(name)
            send(site, name, "smoker")
        assert site.ledger.sum_charges("habits").epsilon == pytest.approx(5 * 0.55 + 0.01)


@pytest.mark.parametrize("end", ["denied", "void", "ended", "failed", "voted again"])
def test_room_that_an_approval_keeps_is_free_when_the_study_ends_here(
    folder: Path, release_study: Study, end: str
) -> None:
    with Site.open(config_of(folder)) as site:
        first = approved(site, with_noise(release_study, "first", 2.0))
        assert site.ledger.sum_reserved()["habits"].epsilon == pytest.approx(2.0)
        record = site.state.study(first)
        if end == "denied":
            site.voting.deny(record, "officer", "no longer wanted", NOW)
        elif end == "void":
            site.decisions.disapprove(first, votes=True)
        elif end == "ended":
            site.state.remember(dataclasses.replace(record.task, version=2, state=int(State.WITHDRAWN)), "first", NOW)
        elif end == "failed":
            site.state.fail(first, Refusal("APPROVAL_VOID", "it is over"), NOW)
        else:
            site.decisions.disapprove(first)
            approved(site, with_noise(release_study, "first", 2.0))
            assert site.ledger.sum_reserved()["habits"].epsilon == pytest.approx(2.0)
            return
        assert site.ledger.sum_reserved() == {}
        approved(site, with_noise(release_study, "second", 2.5))


def test_room_kept_with_an_approval_does_not_tell_whether_data_changed(folder: Path, release_study: Study) -> None:
    """Where changed data are accepted they are charged; until something leaves, the same room is kept for the same data."""
    kept: list[float] = []
    for changed in (False, True):
        other = folder / f"{changed}"
        shutil.copytree(folder, other, ignore=shutil.ignore_patterns("True", "False"))
        with Site.open(config_of(other, on_data_change="sticky")) as site:
            first = approved(site, with_noise(release_study, "first", 0.5))
            randomize(site, first)
            for variable in ("age", "smoker"):
                send(site, first, variable)
            if changed:
                table = other / "habits.csv"
                table.write_text(table.read_text().replace("p1,yes", "p1,no"))
            approved(site, with_noise(release_study, "again", 0.5))
            kept.append(site.ledger.sum_reserved()["habits"].epsilon)
    assert kept[0] == kept[1] == pytest.approx(0.5)


def randomize(site: Site, digest: bytes) -> None:
    record = site.state.study(digest)
    fill_spool(
        site, Spool(site.config.state_directory / "spool"), record, effective=canonical.from_bytes(record.task.effective),
        holding=site.read(record), rows=np.arange(N), units=site_units(record.task.effective), at=NOW,
    )  # fmt: skip


def site_units(effective: bytes) -> tuple[int, ...]:
    return canonical.from_bytes(effective).units_of("clinic")


def send(site: Site, digest: bytes, variable: str) -> None:
    """The ledger's row is written, and the column may leave."""
    record = site.state.study(digest)
    study = canonical.from_bytes(record.task.effective)
    (unit,) = (index for index, unit in enumerate(study.units) if unit.variables == (variable,))
    item = site.state.artifacts(digest, record.task.effective_digest)[unit]
    enter_in_ledger(site, record, item, "miner", NOW)


@pytest.mark.parametrize("reserved", [True, False])
def test_no_column_leaves_of_a_study_that_another_one_leaves_no_room_for(
    folder: Path, release_study: Study, reserved: bool
) -> None:
    """Two studies fit one by one and not together, in one of two data sets: one goes out whole, and nothing of the other."""
    both = with_noise(release_study, "both", 2.0)
    one = only_smoker(with_noise(release_study, "one", 1.5))
    with Site.open(config_of(folder)) as site:
        names = {"both": approved_by_schema_7(site, both), "one": approved_by_schema_7(site, one)}
        left: dict[str, list[str]] = {"both": [], "one": []}
        refused: dict[str, str] = {}

        def attempt(study: str, variable: str | None = None) -> None:
            if study in refused:  # it has failed here
                return
            try:
                if variable is None:
                    randomize(site, names[study])
                else:
                    send(site, names[study], variable)
                    left[study].append(variable)
            except Refusal as error:
                refused[study] = f"{error.code}: {error.message}"

        attempt("both")
        if not reserved and "reserved" in tables(folder):  # randomized by a version that kept no room
            site.database.write("DELETE FROM reserved")
        attempt("one")
        if not reserved and "reserved" in tables(folder):
            site.database.write("DELETE FROM reserved")
        for step in (("one", "smoker"), ("both", "age"), ("both", "smoker")):
            attempt(*step)
        if reserved:
            assert left == {"both": ["age", "smoker"], "one": []}
            assert (
                "BUDGET_EXCEEDED: data set 'habits': epsilon 1.5 on top of what was charged before and is kept"
                in refused["one"]
            )
        else:
            assert left == {"both": [], "one": ["smoker"]}
            assert "BUDGET_EXCEEDED: data set 'habits': epsilon 2 on top of what was charged before" in refused["both"]


def tables(folder: Path) -> set[str]:
    with closing(sqlite3.connect(folder / "state" / FILE_NAME)) as opened:
        return {name for (name,) in opened.execute("SELECT name FROM sqlite_master")}


def test_room_is_kept_until_a_study_ends_and_what_two_studies_send_alike_needs_it_once(
    folder: Path, release_study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    with Site.open(config_of(folder)) as site:
        first = approved(site, with_noise(release_study, "first", 2.0))
        randomize(site, first)
        alike = approved(site, dataclasses.replace(with_noise(release_study, "alike", 2.0), title="again"))
        randomize(site, alike)  # the very same values: whoever sends them first is charged
        for digest, variable in ((first, "age"), (alike, "age"), (alike, "smoker"), (first, "smoker")):
            send(site, digest, variable)
        assert [row.charged for row in site.ledger.rows()] == [2.0, 0.0, 2.0, 0.0]
    (folder / "state" / FILE_NAME).rename(folder / "state" / "old.sqlite")
    for side in ("-wal", "-shm"):
        (folder / "state" / f"{FILE_NAME}{side}").unlink(missing_ok=True)
    (folder / "state" / "audit.jsonl").rename(folder / "state" / "old.jsonl")
    with Database(folder / "state", create=True):
        pass
    with Site.open(config_of(folder)) as site:
        first = approved(site, with_noise(release_study, "first", 2.0))
        randomize(site, first)
        with pytest.raises(Refusal, match="kept for studies under way") as caught:
            approved(site, with_noise(release_study, "other", 1.5))
        assert "free again when those have ended" in caught.value.hint
        assert main(["party", "ledger", "--config", str(folder / "party.toml")]) == 0
        assert "data set people: epsilon 2.00 of that is kept for studies under way" in capsys.readouterr().out
        site.decisions.deny(first, "officer", "no", NOW)
        approved(site, with_noise(release_study, "another", 1.5))


# ---- delta


def shared(
    study: str, delta: float, *, basis: bytes = b"b" * 32, epsilon: float = 0.1
) -> tuple[ColumnDraw, dict[str, object]]:
    release = ColumnDraw(
        variables=("age",), dataset="people", sources=("age",), codebook_digest=basis, transition_digest=b"t" * 32,
        secret_id=b"s" * 16, fingerprint=b"f" * 32, event=GaussianCounts(epsilon=epsilon, delta=delta),
    )  # fmt: skip
    digest = study.encode().ljust(32, b"-")
    about: dict[str, object] = {
        "study_digest": digest, "study_id": study, "recipient": "everyone", "artifact_sha256": b"a" * 32,
        "size": 9, "at": NOW,
    }  # fmt: skip
    return dataclasses.replace(release, codebook_digest=digest + basis), about


def test_deltas_are_summed_over_studies_once_each_and_what_is_beyond_the_limit_is_not_shared(folder: Path) -> None:
    policy = config_of(folder, max_delta_lifetime=2e-6).policy
    with Database(folder / "state") as database:
        ledger = Ledger(database)
        for study in ("one", "two"):
            for recipient in ("miner", "everyone"):  # scores and parameters rest on one draw of noise
                release, about = shared(study, 1e-6)
                ledger.record_shared(release, policy=policy, **(about | {"recipient": recipient}))  # type: ignore[arg-type]
        assert ledger.sum_charges("people").delta == 2e-6
        assert ledger.sum_charges("habits").delta == 0.0
        release, about = shared("three", 1e-9)
        message = "data set 'people': delta 1e-09 on top of what was charged before, expected at most 2e-06"
        with pytest.raises(Refusal, match=message) as caught:
            ledger.record_shared(release, policy=policy, **about)  # type: ignore[arg-type]
        assert caught.value.code == "BUDGET_EXCEEDED"
        assert "max_delta_lifetime" in caught.value.hint
        assert len(ledger.rows()) == 4  # nothing was written of the third
        for statement in ("UPDATE ledger SET charged_delta = 0", "DELETE FROM ledger"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                database.write(statement)
    with Database(folder / "state") as database:  # and over a restart
        assert Ledger(database).sum_charges("people").delta == 2e-6


def test_a_party_toml_without_a_limit_of_delta_has_room_for_ten_studies_at_its_limit(folder: Path) -> None:
    path = folder / "party.toml"
    assert load_party(path).policy.max_delta_lifetime == pytest.approx(1e-5)
    path.write_text(path.read_text().replace("[policy]\n", "[policy]\nmax_share_delta = 1e-4\n"))
    assert load_party(path).policy.max_delta_lifetime == pytest.approx(1e-3)
    path.write_text(path.read_text().replace("[policy]\n", "[policy]\nmax_delta_lifetime = 5e-6\n"))
    assert load_party(path).policy.max_delta_lifetime == 5e-6


def between_peers(study: Study, *, epsilon: float, delta: float) -> Study:
    """`study` between the parties, with a given structure in which the other one reads every own column."""
    own, other = (study.schema.owned_by(name) for name in study.parties[:2])
    names = study.schema.names
    edges = {names[other[0]]: tuple(names[position] for position in own)}
    structure = dataclasses.replace(
        study.structure,
        method="given",
        max_parents=3,
        parents=tuple((name, edges.get(name, ())) for name in names),
    )
    return dataclasses.replace(
        study,
        id="peers",
        model="peer",
        structure=structure,
        share=ShareRule(epsilon=epsilon, delta=delta, noise="discrete-gaussian"),
    )


@pytest.mark.parametrize(
    ("epsilon", "policy", "message"),
    [
        (1.5, {}, "epsilon 3.5 on top of what was charged before, expected at most 3"),
        (
            0.5,
            {"max_delta_lifetime": 1.4e-6},
            "delta 1e-06 on top of what was charged before, expected at most 1.4e-06",
        ),
        (0.5, {}, ""),
    ],
)
def test_an_approval_looks_at_columns_and_at_what_is_shared_together_with_its_delta(
    folder: Path, release_study: Study, epsilon: float, policy: dict[str, float], message: str
) -> None:
    study = between_peers(with_noise(release_study, "peers", 2.0), epsilon=epsilon, delta=1e-6)
    with Site.open(config_of(folder, max_epsilon_per_column=3.0, **policy)) as site:
        earlier, about = shared("earlier", 5e-7)
        free = Cost(epsilon=0.0, delta=5e-7)
        site.ledger.write_row(earlier, charge=free, unit=None, version_tag=b"", **about)  # type: ignore[arg-type]
        if message:
            with pytest.raises(Refusal, match=message) as caught:
                approved(site, study)
            assert caught.value.code == "BUDGET_EXCEEDED"
        else:
            approved(site, study)
            digest = canonical.digest(study)
            page = TEMPLATES.render("study", view.study(site, site.state.study(digest), NOW), root="./", shown_at="")
            assert "δ 1e-06; spent 5e-07 now, 1.5e-06 after it, of 1e-05" in page
    config = config_of(folder, **policy)
    if not message:
        (people,) = (row for row in show(config, "peers", at=NOW).cost if row.dataset == "people")
        assert [people.delta, people.delta_before, people.delta_after_at_most] == [1e-6, 5e-7, 1.5e-6]
        rows = {row.dataset: row for row in ledger_facts(config).datasets}
        assert (rows["people"].delta_spent, rows["habits"].delta_spent) == (5e-7, 0.0)
        assert rows["people"].delta_remaining == pytest.approx(9.5e-6)
        json.dumps(jsonable(rows))


def test_what_a_study_shares_is_held_against_the_rest_of_the_budget_before_its_first_column_is_drawn(
    folder: Path, release_study: Study
) -> None:
    study = between_peers(with_noise(release_study, "peers", 2.0), epsilon=0.5, delta=1e-6)
    spent = only_smoker(with_noise(release_study, "spent", 0.6))
    with Site.open(config_of(folder)) as site:
        peers, earlier = approved_by_schema_7(site, study), approved_by_schema_7(site, spent)
        randomize(site, earlier)
        send(site, earlier, "smoker")
        with pytest.raises(
            Refusal, match=r"data set 'habits': epsilon 2\.5 on top of what was charged before"
        ) as caught:
            randomize(site, peers)  # the columns alone would fit
        assert caught.value.code == "BUDGET_EXCEEDED"
        assert site.state.artifacts(peers, peers) == {}


def test_a_study_keeps_room_for_its_shares_from_others_and_not_from_itself(folder: Path, release_study: Study) -> None:
    """Epsilon and delta of the noise on what is shared; a column with infinite epsilon, which has no bound, keeps none."""
    config = config_of(folder, max_epsilon_lifetime=3.0, max_delta_lifetime=1e-6)
    endless = ColumnDraw(
        variables=("smoker",), dataset="habits", sources=("smoker",), codebook_digest=b"c" * 32,
        transition_digest=b"t" * 32, secret_id=b"s" * 16, fingerprint=b"f" * 32, event=RandomizedColumn(epsilon=math.inf),
    )  # fmt: skip
    policy = dataclasses.replace(config.policy, allow_infinite=("smoker",))
    with Site.open(config) as site:
        first, second = (approved(site, with_noise(release_study, name, 0.1)) for name in ("first", "second"))
        shared = {"people": (GaussianCounts(epsilon=1.0, delta=6e-7),)}
        site.ledger.reserve(first, {0: endless}, policy, shared=shared)
        site.ledger.assess(
            [], policy, study_digest=first, shared={"people": (GaussianCounts(epsilon=2.5, delta=1e-6),)}
        )
        with pytest.raises(Refusal, match=r"data set 'people': epsilon 2\.5 on top .* kept for studies under way"):
            site.ledger.assess(
                [], policy, study_digest=second, shared={"people": (GaussianCounts(epsilon=2.5, delta=1e-7),)}
            )
        with pytest.raises(Refusal, match=r"data set 'people': delta 6e-07 on top .* kept for studies under way"):
            site.ledger.assess([], policy, study_digest=second, shared=shared)
        site.ledger.assess(
            [], policy, study_digest=second, shared={"habits": (GaussianCounts(epsilon=3.0, delta=1e-6),)}
        )

"""One owner of a whole table: what is charged, what is published, and what is refused before anything is spent."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from verticil.cli.main import app
from verticil.curator import Synthesized, learning, synthesize
from verticil.curator.measuring import measure_tables, measurement
from verticil.curator.reading import Table, read_table
from verticil.curator.study import owners_study
from verticil.miner.learning.learn import LearnResult
from verticil.party.site import init_state
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.errors import DataFault, GateFailed, Misuse, Refusal
from verticil.shared.documents import record
from verticil.shared.privacy import events
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import DiscreteGaussianCounts
from verticil.shared.release.curator import drawn_event
from verticil.shared.release.verification import verify_release
from verticil.shared.storage import durable
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.tables import coarse_pairs, tables_of, tables_sigma

N = 2000
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
SECRET = SiteSecret(value=bytes(range(32)))

STUDY = """
schema = 1
id = "alone"
purpose = "A clinic's own table"
expires = 2099-01-01
[[party]]
name = "clinic"
[[variable]]
party = "clinic"
name = "a"
categories = ["x", "y", "z"]
from = "public"
[[variable]]
party = "clinic"
name = "b"
categories = ["x", "y", "z"]
from = "public"
[[variable]]
party = "clinic"
name = "c"
categories = ["no", "yes"]
from = "public"
[randomization_default]
scheme = "symmetric"
epsilon = 3.0
[structure]
method = "greedy"
max_parents = 1
seed = 1
[release]
synthetic_records = 300
seed = 1
"""


def people(n: int = N, seed: int = 1) -> pd.DataFrame:
    """A decides B but for noise; C is a coin."""
    draw = np.random.default_rng(seed)
    a = draw.integers(0, 3, n)
    b = np.where(draw.random(n) < 0.2, draw.integers(0, 3, n), a)
    of = np.array(["x", "y", "z"])
    return pd.DataFrame({"a": of[a], "b": of[b], "c": np.array(["no", "yes"])[draw.integers(0, 2, n)]})


def keep_secret(folder: Path) -> None:
    """Make the state of an owner with this module's secret, so that the noise is the same in every run of the tests."""
    folder.mkdir(mode=0o700)
    init_state(folder / "state", site_secret=SECRET.value)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Synthesized, LearnResult]:
    """The first run, with the product's own learning: its folder, result and what was learned."""
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "study.toml").write_text(STUDY)
    people().to_csv(folder / "people.csv", index=False)
    keep_secret(folder / "verticil-curator")
    kept: list[LearnResult] = []

    def keep(*arguments: Any, **named: Any) -> LearnResult:
        kept.append(learned(*arguments, **named))
        return kept[-1]

    learned, learning.learn_study = learning.learn_study, keep
    try:
        found = synthesize(folder / "people.csv", folder / "study.toml", out=folder / "first", clock=lambda: NOON)
    finally:
        learning.learn_study = learned
    return folder, found, kept[0]


@pytest.fixture
def clinic(tmp_path: Path, made: tuple[Path, Synthesized, LearnResult]) -> Path:
    """A copy of the folder after the first run."""
    return Path(shutil.copytree(made[0], tmp_path / "clinic"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, made: tuple[Path, Synthesized, LearnResult]) -> None:
    """Learning is not what is tested: what the first run learned."""
    real = learning.learn_study

    def remembered(study: Study, *arguments: Any, **named: Any) -> LearnResult:
        return real(study, *arguments, **named) if study.structure.method == "privbayes" else made[2]

    monkeypatch.setattr(learning, "learn_study", remembered)


def again(folder: Path, out: str | None = None, **how: Any) -> Synthesized:
    """Another run, a day later."""
    later = NOON + dt.timedelta(days=1)
    target = None if out is None else folder / out
    return synthesize(folder / "people.csv", folder / "study.toml", out=target, clock=lambda: later, **how)


def study_again(folder: Path, text: str) -> None:
    """Write the study of the folder anew."""
    (folder / "study.toml").write_text(text)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# ---- what is published


def test_the_release_is_verified_and_states_the_cost(made: tuple[Path, Synthesized, LearnResult]) -> None:
    folder, found, _ = made
    verified = verify_release(folder / "first" / "release", ca_certificate=(folder / "first" / "ca.crt").read_bytes())
    assert (verified.common_records, verified.synthetic_records, verified.statements) == (N, 300, 1)
    public = next(account for account in verified.accounts if account.reader.name == "public")
    assert (public.cost.epsilon, public.cost.delta) == (1.0, 1e-9)
    assert verified.exact_parameters is False
    assert found.study.structure.method == "greedy"
    assert '[release] sample_from = "joint"' in found.changes
    page = (folder / "first" / "release" / "report.html").read_text(encoding="utf-8")
    assert "for everybody" in page
    assert "organisations" not in page
    assert "rests on the organisation's word" in page


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "change",
    [
        {"n_records": N - 1},
        {"event": events.to_json(DiscreteGaussianCounts(sigma=99.0, tables=3, delta=1e-9, reader="public"))},
        {"effective_sha256": bytes(32)},
        {"charged_at": NOON + dt.timedelta(seconds=1)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_release_whose_statement_is_of_something_else_does_not_verify_and_does_not_appear(
    clinic: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    encode = record.encode
    monkeypatch.setattr(record, "encode", lambda stated: encode(dataclasses.replace(stated, **change)))
    with pytest.raises(GateFailed, match=r"RELEASE_INVALID.*measurement: not of this study"):
        again(clinic, "second")
    assert not (clinic / "second").exists()


def test_the_same_again_is_the_same_bytes_and_spends_nothing(clinic: Path) -> None:
    """With the product's own learning, from the start."""
    found = again(clinic, "second")
    assert digests(clinic / "second") == digests(clinic / "first")
    assert found.spending.again
    assert found.spending.total == Cost(epsilon=1.0, delta=1e-9)
    assert found.warnings == ()


@pytest.mark.usefixtures("quick")
def test_another_method_draws_from_the_same_noisy_tables(clinic: Path) -> None:
    assert again(clinic, method="network").spending.again


def test_privbayes_measures_anew_and_is_charged(clinic: Path) -> None:
    found = again(clinic, "by-privbayes", method="privbayes")
    assert not found.spending.again
    assert found.spending.total == Cost(epsilon=2.0, delta=2e-9)
    assert '[structure] method = "privbayes"' in found.changes
    place = clinic / "by-privbayes"
    verified = verify_release(place / "release", ca_certificate=(place / "ca.crt").read_bytes())
    public = next(account for account in verified.accounts if account.reader.name == "public")
    assert (public.cost.epsilon, public.cost.delta) == (1.0, 1e-9)
    assert ("a", "b") in {
        tuple(sorted(found.network.schema.names[v] for v in edge)) for edge in found.network.dag.edges()
    }
    assert again(clinic, method="privbayes").spending.again


def test_privbayes_under_other_rules_is_another_measurement(clinic: Path) -> None:
    """It would measure other tables, beyond those that were charged."""
    again(clinic, method="privbayes")
    (clinic / "study.toml").write_text(STUDY.replace("[release]", 'forbidden = [["a", "b"], ["b", "a"]]\n[release]'))
    assert again(clinic, method="privbayes").spending.total.epsilon == 3.0


def test_privbayes_by_rules_has_nothing_where_nothing_can_be(clinic: Path) -> None:
    """A decides B but for noise: by the rule, where A is x, B is never z; of the people in the table 7 % break it."""
    rule = '[[knowledge.rule]]\nkind = "implication"\nif = { a = "x" }\nthen = { b = ["x", "y"] }\n'
    (clinic / "study.toml").write_text(STUDY + rule)
    found = again(clinic, "by-rules", method="privbayes")
    (family,) = [f for f in found.network.families if f.child < 2 and set(f.parents) == {1 - f.child}]
    cell = (0, 2) if family.child == 1 else (2, 0)
    assert family.probability[cell] == 0
    assert family.probability.sum() == pytest.approx(3)
    table = pd.read_csv(clinic / "by-rules" / "release" / "synthetic.csv")
    assert not ((table["a"] == "x") & (table["b"] == "z")).any()
    assert verify_release(clinic / "by-rules" / "release", ca_certificate=(clinic / "by-rules" / "ca.crt").read_bytes())


def test_privbayes_is_refused_where_nobody_has_the_whole_table(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace('method = "greedy"', 'method = "privbayes"'))
    with pytest.raises(Misuse, match=r"structure.method: 'privbayes' chooses what is measured of a whole table"):
        read_study(tmp_path / "study.toml")
    text = STUDY.replace('method = "greedy"', 'method = "privbayes"') + "\n[tables]\nepsilon = 1.0\ndelta = 1e-9\n"
    (tmp_path / "study.toml").write_text(text)
    study = read_study(tmp_path / "study.toml")  # of a miner that has noisy tables
    planned = {type(item.event).__name__ for item in events.plan_events(study, study.parties[0])}
    assert planned & {"NoisyTables", "PrivBayesRun"} == {"NoisyTables"}


COUNTED = '[privbayes]\nneighbours = "add-remove"\n'


def test_who_is_added_or_removed_is_told_no_number_of_people(clinic: Path) -> None:
    """Before, epsilon was about a person who is replaced, and every release published the exact number of people."""
    study_again(clinic, STUDY.replace("synthetic_records = 300\n", "") + COUNTED)
    found = again(clinic, "counted", method="privbayes")
    manifest = json.loads((clinic / "counted" / "release" / "manifest.json").read_bytes())
    assert manifest["n_common"] != N
    assert abs(manifest["n_common"] - N) < 200
    assert len(found.records) == manifest["n_common"]
    published = [
        path for path in (clinic / "counted" / "release").iterdir() if path.suffix in {".json", ".html", ".bif"}
    ]
    for path in published:
        assert f"{N:,} people" not in path.read_text(encoding="utf-8")
    verify_release(clinic / "counted" / "release", ca_certificate=(clinic / "counted" / "ca.crt").read_bytes())
    privacy = manifest["privacy"]
    assert manifest["curator"]["relation"] == "add or remove one person; the number of people is counted with noise"
    assert "counted with noise" in privacy["accounts"]["statement"]
    account = next(row for row in privacy["accounts"]["list"] if row["account"] == "public")
    assert 0.99 < account["tables_add_or_remove"]["epsilon"] <= 1.0
    assert 1.4 < account["epsilon"] < 1.5
    assert any("epsilon 1 is about a person who is added or removed" in line for line in found.changes)
    # The ledger's sum is over people who are replaced, as that of every other run on the table.
    assert found.spending.cost.epsilon == account["epsilon"]
    assert found.spending.total.epsilon == pytest.approx(1.0 + account["epsilon"])
    shown = (
        CliRunner()
        .invoke(
            app, ["release", "verify", str(clinic / "counted" / "release"), "--ca", str(clinic / "counted" / "ca.crt")]
        )
        .output
    )
    both = r"by what is published: epsilon 1\.4\d, delta 1e-09 if the person is replaced; epsilon 1\.00, delta 1e-09 if the"
    assert re.search(both + " person is added or removed", " ".join(shown.split())), shown
    report = (clinic / "counted" / "release" / "report.html").read_text(encoding="utf-8")
    assert "The number of people is counted with noise" in report
    assert "The number of people is public" not in report


def test_so_few_people_are_known_by_the_noisy_count_alone(clinic: Path) -> None:
    """A refusal by the exact number would tell of one person; the count is charged first."""
    few = people(30)
    study_again(clinic, STUDY + COUNTED)
    keep_secret(clinic / "s")
    with pytest.raises(DataFault, match="DATA_EMPTY"):
        synthesize(
            few, clinic / "study.toml", out=clinic / "few", state=clinic / "s", method="joint", clock=lambda: NOON
        )
    with pytest.raises(DataFault, match=r"LEARNING_FAILED.*counted with noise, is below 50"):
        synthesize(
            few, clinic / "study.toml", out=clinic / "few", state=clinic / "s", method="privbayes", epsilon=8.0,
            clock=lambda: NOON,
        )  # fmt: skip
    assert not (clinic / "few").exists()
    with contextlib.closing(sqlite3.connect(clinic / "s" / "state" / "party.sqlite")) as ledger:
        assert ledger.execute("SELECT count(*) FROM ledger").fetchone() == (1,)


def test_what_chooses_tables_is_another_measurement_and_what_follows_from_them_is_not(clinic: Path) -> None:
    again(clinic, method="privbayes")
    study_again(clinic, STUDY + '[privbayes]\nnegative = "clip"\nconsistent = false\n')
    assert again(clinic, method="privbayes").spending.again
    study_again(clinic, STUDY + "[privbayes]\ntau = 4\n")
    small = again(clinic, method="privbayes")
    assert not small.spending.again
    assert all(len(family.parents) == 0 for family in small.network.families)  # 3 x 3 and 3 x 2 cells are more than 4


def test_the_papers_naive_way_draws_other_records_from_the_same_measurement(clinic: Path) -> None:
    consistent = again(clinic, method="privbayes")
    naive = STUDY.replace("[release]", '[release]\nsampling = "independent"')
    study_again(clinic, naive + '[privbayes]\nnegative = "clip"\nconsistent = false\n')
    found = again(clinic, method="privbayes")
    assert found.spending.again
    assert not found.records.equals(consistent.records)


@pytest.mark.usefixtures("quick")
def test_another_seed_is_charged_and_the_sum_is_said(clinic: Path) -> None:
    found = again(clinic, seed=2)
    assert not found.spending.again
    assert found.spending.total == Cost(epsilon=2.0, delta=2e-9)
    (warning,) = found.warnings
    assert "epsilon 2, delta 2e-09 in all" in warning
    assert "study 'alone' on 2026-03-01" in warning


@pytest.mark.usefixtures("quick")
def test_a_folder_that_is_older_than_a_release_beside_it_measures_nothing(clinic: Path) -> None:
    state, older = clinic / "verticil-curator", clinic.with_name("older")
    shutil.copytree(state, older)
    again(clinic, "second", seed=2)
    shutil.rmtree(state)
    shutil.copytree(older, state)
    with pytest.raises(
        Refusal, match=r"does not know the charge of study 'alone', whose release lies in .*second"
    ) as refused:
        again(clinic, seed=3)
    assert refused.value.code == "LEDGER_OLDER"
    shutil.rmtree(clinic / "second")
    assert not again(clinic, seed=3).spending.again


@pytest.mark.usefixtures("quick")
def test_a_release_of_the_same_measurement_under_another_name_is_known(clinic: Path) -> None:
    text = (clinic / "study.toml").read_text()
    (clinic / "other.toml").write_text(text.replace('id = "alone"', 'id = "renamed"'))
    assert synthesize(clinic / "people.csv", clinic / "other.toml", out=clinic / "renamed").spending.again
    assert again(clinic, "third").spending.again, "nothing is older than the release that cost nothing"


@pytest.mark.usefixtures("quick")
def test_a_changed_table_is_charged_to_the_same_data_set(clinic: Path) -> None:
    people(seed=2).to_csv(clinic / "people.csv", index=False)
    assert again(clinic).spending.total == Cost(epsilon=2.0, delta=2e-9)


@pytest.mark.usefixtures("quick")
def test_the_same_people_under_another_name_are_the_same_data_set(clinic: Path) -> None:
    (clinic / "people.csv").rename(clinic / "others.csv")
    found = synthesize(clinic / "others.csv", clinic / "study.toml", seed=2)
    assert found.spending.total == Cost(epsilon=2.0, delta=2e-9)


@pytest.mark.usefixtures("quick")
def test_a_frame_and_parquet_are_the_same_table(clinic: Path) -> None:
    people().to_parquet(clinic / "people.parquet")
    state = clinic / "verticil-curator"
    assert synthesize(clinic / "people.parquet", clinic / "study.toml").spending.again
    assert synthesize(people(), clinic / "study.toml", state=state, dataset="people").spending.again
    with pytest.raises(DataFault, match="the table: no column 'c'"):
        synthesize(people().drop(columns="c"), clinic / "study.toml", state=state, dataset="people")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["records.csv", "records.CSV", "records.parquet"])
def test_records_alone(clinic: Path, name: str) -> None:
    found = again(clinic, name)
    written = pd.read_csv(clinic / name) if name.lower().endswith("csv") else pd.read_parquet(clinic / name)
    assert written.astype(str).equals(found.records.astype(str))
    assert len(written) == 300


# ---- noise


def table_of(frame: pd.DataFrame, study: Study, folder: Path) -> Table:
    frame.to_csv(folder / "people.csv", index=False)
    return read_table(folder / "people.csv", study, dataset="people", id_column=None, secret=SECRET)


def owned(tmp_path: Path, **how: Any) -> Study:
    (tmp_path / "study.toml").write_text(STUDY)
    return owners_study(read_study(tmp_path / "study.toml"), method="joint", **how)


def test_the_noise_is_what_the_event_says_and_never_twice_the_same(tmp_path: Path) -> None:
    """240 cells of ten draws with standard deviation sigma: their mean square is in .64 to 1.36 sigma^2 but for 1 run in 10^4."""
    study = owned(tmp_path)
    frame = people()
    table = table_of(frame, study, tmp_path)
    event = drawn_event(study)
    assert isinstance(event, DiscreteGaussianCounts)
    assert (event.sigma, event.tables, event.reader) == (tables_sigma(study), 3, "public")

    def noise(of: Study, with_table: Table) -> np.ndarray[Any, Any]:
        release = measurement(of, with_table, dataset="people", secret=SECRET)
        tables = measure_tables(of, with_table, release, SECRET)
        exact = [pd.crosstab(with_table.codes[a], with_table.codes[b]).to_numpy() for a, b in tables_of(of) if a != b]
        return np.concatenate([(t.counts - e).ravel() for t, e in zip(tables.tables, exact, strict=True)])

    first = noise(study, table)
    assert np.array_equal(first, noise(study, table))
    squares = np.concatenate([noise(owned(tmp_path, seed=seed), table) ** 2 for seed in range(10, 20)])
    assert 0.64 < squares.mean() / event.sigma**2 < 1.36
    other = frame.copy()
    other.loc[0, "c"] = "yes" if frame.loc[0, "c"] == "no" else "no"
    one_changed = table_of(other, study, tmp_path)
    for drawn in (
        noise(owned(tmp_path, seed=2), table),
        noise(study, one_changed),
        noise(owned(tmp_path, epsilon=2.0), table),
    ):
        assert abs(np.corrcoef(first, drawn)[0, 1]) < 0.75  # of 21 pairs by chance more than that: 1 in 10^4


# ---- what is refused, and that nothing is spent then


def spent(folder: Path) -> Cost:
    from verticil.curator.state import open_state
    from verticil.shared.privacy.accounts import PUBLIC

    with open_state(folder / "verticil-curator", "clinic", now=NOON) as state:
        return state.ledger.sum_charges("people", PUBLIC)


def test_the_same_codes_under_another_name_are_the_data_set_that_was_charged(clinic: Path) -> None:
    from verticil.curator.spending import dataset_of
    from verticil.curator.state import open_state

    with open_state(clinic / "verticil-curator", "clinic", now=NOON) as state:
        measured = state.database.first(bytes, "SELECT fingerprint FROM ledger ORDER BY number LIMIT 1", ())
        assert measured is not None
        assert dataset_of(state, "another", measured) == "people"
        assert dataset_of(state, "another", bytes(len(measured))) == "another"


@pytest.mark.usefixtures("quick")
def test_a_spent_budget_names_who_spent_it(clinic: Path) -> None:
    with pytest.raises(Refusal, match=r"BUDGET_EXCEEDED.*study 'alone' on 2026-03-01: epsilon 1, delta 1e-09"):
        again(clinic, seed=2, budget=Cost(epsilon=1.5, delta=1.0))
    assert again(clinic, budget=Cost(epsilon=1.0, delta=1.0)).spending.again  # what was charged is not asked for again
    assert spent(clinic) == Cost(epsilon=1.0, delta=1e-9)


def test_nothing_is_measured_that_there_is_no_budget_for_or_that_a_damaged_ledger_cannot_hold(clinic: Path) -> None:
    told: list[str] = []
    with pytest.raises(Refusal, match="BUDGET_EXCEEDED"):
        again(clinic, seed=2, budget=Cost(epsilon=1.5, delta=1.0), step=told.append)
    assert told == ["reading the table"]
    for amount in (float("nan"), -1.0, "9"):
        with pytest.raises(Misuse, match=f"USAGE: budget: got {amount}, expected a number of 0 or more"):
            again(clinic, seed=2, budget=Cost(epsilon=amount, delta=1.0))  # type: ignore[arg-type]  # as programs may
    database = clinic / "verticil-curator" / "state" / "party.sqlite"
    with contextlib.closing(sqlite3.connect(database)) as opened:
        opened.executescript("DROP TRIGGER ledger_keeps; UPDATE ledger SET epsilon = 0.1, charged = 0.1;")
    for seed in (None, 2):
        told.clear()
        with pytest.raises(DataFault, match="row 1 of the ledger"):
            again(clinic, seed=seed, step=told.append)
        assert told == ["reading the table"]


def few(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.head(49)


def twice(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(who=["same", "same", *map(str, range(len(frame) - 2))])


@pytest.mark.parametrize(
    ("change", "options", "error", "says"),
    [
        (few, {}, DataFault, "DATA_EMPTY: people.csv: 49 rows, expected at least 50"),
        (twice, {"id_column": "who"}, DataFault, "DATA_ID_DUPLICATE: people.csv: column 'who': 2 of 2000 rows"),
        (
            lambda frame: frame.drop(columns="c"),
            {},
            DataFault,
            r"DATA_COLUMN_MISSING.*\[draft.table.*\.columns\.VARIABLE\]",
        ),
        (people, {"epsilon": -1.0}, Misuse, "STUDY_INVALID.*epsilon"),
        (people, {"delta": 0.5}, Misuse, "STUDY_INVALID.*delta"),
        (people, {"epsilon": 1e-6}, Misuse, "STUDY_INVALID.*noise of"),
        (people, {"epsilon": 0.0015, "method": "privbayes"}, Misuse, "STUDY_INVALID.*tables: noise of"),
        (people, {"out": "people.csv"}, Misuse, "FILE_EXISTS"),
        (people, {"out": "no/such/folder"}, Misuse, "FILE_MISSING"),
        (people, {"out": "/proc/records.csv"}, Misuse, "FILE_MISSING: /proc/records.csv: cannot be written"),
        (
            people,
            {"out": "records.XLSX"},
            Misuse,
            "USAGE.*expected a folder, or a name that ends with .csv or .parquet",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(
    clinic: Path, change: Callable[[pd.DataFrame], pd.DataFrame], options: dict[str, Any], error: type, says: str
) -> None:
    change(people() if change is not people else N).to_csv(clinic / "people.csv", index=False)
    with pytest.raises(error, match=says):
        again(clinic, **{"seed": 9, **options})
    assert spent(clinic) == Cost(epsilon=1.0, delta=1e-9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('target = "a"\nsensitive = ["b"]\n', "sample_from.*custom network"),
        ('forbidden = [["a", "b"]]\n', "sample_from.*forbidden edges"),
    ],
)
def test_what_a_joint_model_does_not_keep_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    head, tail = STUDY.split("[release]")
    (tmp_path / "study.toml").write_text(f"{head}{text}[release]{tail}")
    with pytest.raises(Misuse, match=says):
        owners_study(read_study(tmp_path / "study.toml"), method="joint")


IMPOSSIBLE = STUDY.replace(
    "[structure]",
    """[[randomization]]
jointly = ["c", "a"]
scheme = "symmetric"
epsilon = 3.0
impossible = [["yes", "x"], ["no", "z"]]
[structure]""",
)


def test_combinations_declared_impossible_are_so_in_records_and_model(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(IMPOSSIBLE)
    frame = people()
    frame["c"] = np.where(frame["a"] == "x", "no", np.where(frame["a"] == "z", "yes", frame["c"]))
    frame.loc[:4, ["a", "c"]] = ["x", "yes"]  # five rows that cannot be
    frame.to_csv(tmp_path / "people.csv", index=False)
    found = synthesize(tmp_path / "people.csv", tmp_path / "study.toml", out=tmp_path / "out", epsilon=2.0)
    assert any("5 of 2000 rows have a combination" in warning for warning in found.warnings)
    verify_release(tmp_path / "out" / "release", ca_certificate=(tmp_path / "out" / "ca.crt").read_bytes())
    pairs = pd.crosstab(found.records["a"], found.records["c"])
    assert (pairs.loc["x", "yes"], pairs.loc["z", "no"]) == (0, 0)
    assert pairs.loc["x", "no"] > 50
    assert synthesize(tmp_path / "people.csv", tmp_path / "study.toml", epsilon=2.0).spending.again
    named = set[str]()
    for text in (STUDY, IMPOSSIBLE, IMPOSSIBLE.replace(', ["no", "z"]', "")):  # other cells: another measurement
        (tmp_path / "study.toml").write_text(text)
        study = owners_study(read_study(tmp_path / "study.toml"), method="joint")
        table = table_of(frame[5:], study, tmp_path)  # as it is in all three
        named.add(measurement(study, table, dataset="people", secret=SECRET).to_json())
    assert len(named) == 3


def test_columns_without_their_order_are_another_measurement(tmp_path: Path) -> None:
    """Runs follow from the order: under one key the difference of two tables of one shape would have no noise."""
    draw = np.random.default_rng(3)
    frame = pd.DataFrame({name: draw.integers(0, 16, 2_000) for name in "abc"})
    column = (
        f'[[variable]]\nparty = "clinic"\nname = "NAME"\ntype = "integer"\nbins = {list(range(17))}\nfrom = "public"\n'
    )
    head, rest = STUDY[: STUDY.index("[[variable]]")], STUDY[STUDY.index("[randomization_default]") :]
    named, events = set[str](), set[object]()
    for unordered in ("", "a", "b"):  # each pair has an ordered column all the same
        columns = [column.replace("NAME", name) + "ordered = false\n" * (name == unordered) for name in "abc"]
        (tmp_path / "study.toml").write_text(head + "".join(columns) + rest)
        study = owners_study(read_study(tmp_path / "study.toml"), method="joint")
        assert len(coarse_pairs(study)) == 3
        drawn = measurement(study, table_of(frame, study, tmp_path), dataset="people", secret=SECRET)
        named.add(drawn.to_json())
        events.add(drawn.event)
    assert (len(named), len(events)) == (3, 1)


def test_impossible_combinations_are_kept_by_the_joint_model_alone(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(IMPOSSIBLE)
    for method in ("network", "privbayes"):
        with pytest.raises(Misuse, match=f"impossible, which the method '{method}' does not keep"):
            owners_study(read_study(tmp_path / "study.toml"), method=method)


@pytest.mark.usefixtures("quick")
def test_a_constant_column_and_noise_above_the_counts_are_said(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    people(60).assign(c="no").to_csv(tmp_path / "people.csv", index=False)
    for method in ("joint", "network"):  # the noise is that of the same tables
        with pytest.raises(GateFailed, match="USELESS"):
            synthesize(tmp_path / "people.csv", tmp_path / "study.toml", method=method)
    found = synthesize(tmp_path / "people.csv", tmp_path / "study.toml", accept_noise=True)
    assert any("one and the same category in c" in warning for warning in found.warnings)
    assert any("average count of 3 of 3 tables, as of a x b" in warning for warning in found.warnings)


def test_a_study_of_several_organisations_becomes_the_owners(tmp_path: Path) -> None:
    two = STUDY.replace('[[variable]]\nparty = "clinic"\nname = "c"', '[[variable]]\nparty = "lab"\nname = "c"')
    (tmp_path / "study.toml").write_text(
        two.replace('name = "clinic"\n', 'name = "clinic"\n[[party]]\nname = "lab"\n', 1)
    )
    study = owners_study(read_study(tmp_path / "study.toml"), method="network", epsilon=2.0)
    assert (study.model, study.parties, study.schema[2].owner) == ("curator", ("owner",), "owner")
    assert study.tables is not None
    assert (study.tables.epsilon, study.tables.delta, study.release.sample_from) == (2.0, 1e-9, "network")


# ---- killed at any moment


def essence(folder: Path) -> str:
    """What lies in a folder, but for how far a release has come that is being made."""
    found = digests(folder)
    whole = {name: digest for name, digest in found.items() if ".partial/" not in name}
    return json.dumps([whole, len(whole) < len(found)])


@pytest.mark.whole
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_killed_at_any_durable_step_it_ends_as_if_nothing_had_been(tmp_path: Path, every: bool) -> None:
    """What a process that is killed leaves is what lies on the disk at that step: it is copied, and gone on from."""
    first = tmp_path / "first"
    first.mkdir()
    (first / "study.toml").write_text(STUDY)
    people(200).to_csv(first / "people.csv", index=False)
    left: dict[str, tuple[str, Path]] = {}

    def copy(step: durable.DurableStep) -> None:
        site = f"{step.moment} {step.kind} {step.path.relative_to(first)}"
        if (key := site if every else essence(first)) not in left:
            left[key] = site, Path(shutil.copytree(first, tmp_path / f"left-{len(left)}"))

    with durable.watch_steps(copy):
        again(first, "out")
    expected = digests(first / "out")
    print(*(site for site, _ in left.values()), sep="\n")
    assert len(left) >= (80 if every else 8)
    for where, folder in left.values():
        if (folder / "out").exists():
            assert digests(folder / "out") == expected, where  # whole or not at all
            continue
        found = again(folder, "out")
        assert found.spending.total == Cost(epsilon=1.0, delta=1e-9), where
        assert digests(folder / "out").keys() == expected.keys(), where
        if found.spending.again:
            assert digests(folder / "out") == expected, where
        assert not [path for path in folder.iterdir() if path.name.startswith(".")], where


# ---- the command


@pytest.mark.whole
@pytest.mark.usefixtures("quick")
def test_the_command(clinic: Path) -> None:
    def run(*options: object) -> Any:
        arguments = ["synthesize", clinic / "people.csv", "--study", clinic / "study.toml", *options]
        return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)

    done = run("--out", clinic / "third", "--compare", "--format", "json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["study"] == {"structure": {"method": "greedy"}, "release": {"sample_from": "joint"}}
    assert (said["people"], said["records"], said["charged"]) == (N, 300, False)
    assert [row["method"] for row in said["comparison_without_noise"]] == [
        "joint",
        "network",
        "privbayes",
        "independent columns of the table",
    ]
    text = run("--out", clinic / "fourth", "--seed", 2, "--compare")
    assert "for your eyes only" in text.stdout
    assert "charged now" in text.stdout
    assert "in all: epsilon 2.00" in text.stdout
    told = b"".join(path.read_bytes() for path in (clinic / "fourth").rglob("*") if path.is_file())
    assert b"independent columns of the table" not in told

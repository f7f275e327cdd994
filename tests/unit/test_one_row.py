"""One row a person of a table with several, and columns that sum up rows, in files and in databases: the same rows everywhere."""

from __future__ import annotations

import sqlite3
import tomllib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from support.documents import FEDERATION, party_toml
from support.postgresql import PostgreSQL
from verticil.party.config import columns_toml, dataset_rule, load_party, place_toml
from verticil.party.dataset.people_rows import header, read_parts
from verticil.party.dataset.source import check_records, read_records
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.party.local_dataset import origins, read_people
from verticil.party.operator.check import TableFit, check
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.toml_table import Table
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.reading import read_study_text

PEOPLE = pd.DataFrame({"pid": [f"p{k}" for k in range(6)], "sex": list("fmfmfm")})
VISITS = pd.DataFrame(
    [
        ("p0", "2020-03-01", "A", 9.0),
        ("p0", "2020-01-01", "B", 10.0),
        ("p0", "2020-02-01", "A", 2.5),
        ("p1", None, "C", None),
        ("p1", "2021-01-01", "A", 1.0),
        ("p2", "2020-06-01", "B", 4.0),
        ("p3", "2020-06-01", None, 7.0),
        ("nobody", "2020-06-01", "A", 1.0),
    ],
    columns=["pid", "seen", "ward", "cost"],
)
KINDS = ("csv", "parquet", "duckdb", "sqlite", "sqlalchemy")
SUMMARIES = {
    "n": {"summary": "count"},
    "n_a": {"summary": "count", "where": "ward = 'A'"},
    "cheap": {"summary": "count", "where": "not cost > 5"},
    "dear": {"summary": "any", "where": "cost >= 9 and not ward = 'C'"},
    "total": {"summary": "sum", "source": "cost"},
    "least": {"summary": "min", "source": "cost"},
    "most": {"summary": "max", "source": "cost"},
    "first": {"summary": "first", "source": "ward"},
    "last": {"summary": "last", "source": "ward"},
}
EXPECTED = {
    "n": ["3", "2", "1", "1", "0", "0"],
    "n_a": ["2", "1", "0", "0", "0", "0"],
    "cheap": ["1", "1", "1", "0", "0", "0"],
    "dear": ["yes", "no", "no", "no", "no", "no"],
    "total": [21.5, 1.0, 4.0, 7.0, 0.0, 0.0],
    "least": [2.5, 1.0, 4.0, 7.0, None, None],
    "most": [10.0, 1.0, 4.0, 7.0, None, None],
    "first": ["B", "A", "B", "", "", ""],
    "last": ["A", "A", "B", "", "", ""],
}
"""What a reader of the tables above counts by hand; rows without a date come last, so a last row has a date where one has."""


def place_of(kind: str, folder: Path, name: str, frame: pd.DataFrame) -> dict[str, object]:
    """Write a table as a kind of source; return its keys in party.toml."""
    if kind == "csv":
        frame.to_csv(folder / f"{name}.csv", index=False)
        return {"path": f"{name}.csv"}
    if kind == "parquet":
        frame.to_parquet(folder / f"{name}.parquet", index=False)
        return {"path": f"{name}.parquet"}
    path = folder / f"{name}.{'duckdb' if kind == 'duckdb' else 'sqlite'}"
    if kind == "duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM frame")
    else:
        with closing(sqlite3.connect(path)) as connection:
            frame.to_sql(name, connection, index=False)
    where: dict[str, object] = {"url": f"sqlite+pysqlite:///{path}"} if kind == "sqlalchemy" else {"path": path.name}
    return where | {"table": name}


def rule_of(kind: str, folder: Path, **more: object) -> DatasetRule:
    """Return the rule of people and their visits, with summaries."""
    visits = place_of(kind, folder, "visits", VISITS) | {"order": "seen"}
    columns = {name: {"table": "visits", **keys} for name, keys in SUMMARIES.items()}
    people = place_of("csv", folder, "people", PEOPLE)
    return dataset_rule(
        Table({**people, "id": "pid", "tables": {"visits": visits}, "columns": columns, **more}, source="party.toml"),
        folder,
    )


def texts(rule: DatasetRule, names: list[str]) -> pd.DataFrame:
    parts = [{name: part.columns[name].texts() for name in names} for part in read_parts(rule, names) if part.n_rows]
    return pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True)


@pytest.mark.parametrize("kind", KINDS)
def test_summaries_are_what_a_reader_counts(kind: str, tmp_path: Path) -> None:
    rule = rule_of(kind, tmp_path)
    sources = {name: rule.column(name).source for name in SUMMARIES}
    assert set(sources.values()) <= set(header(rule))
    frame = texts(rule, ["pid", *sources.values()])
    for name, expected in EXPECTED.items():
        own = frame[sources[name]].tolist()
        if name in ("total", "least", "most"):
            assert [float(text) if text else None for text in own] == expected, name
        else:
            assert own == expected, name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("which", "wards"), [("first", {"p0": "B", "p1": "A", "p2": "B"}), ("last", {"p0": "A", "p1": "A", "p2": "B"})]
)
def test_one_row_is_the_first_or_the_last_by_the_order(
    kind: str, which: str, wards: dict[str, str], tmp_path: Path
) -> None:
    keys = {**place_of(kind, tmp_path, "visits", VISITS), "id": "pid", "one_row": which, "order": "seen"}
    rule = dataset_rule(Table(keys, source="party.toml"), tmp_path)
    frame = texts(rule, ["pid", "ward"]).set_index("pid")["ward"]
    assert sorted(frame.index) == ["nobody", "p0", "p1", "p2", "p3"]
    assert frame[list(wards)].to_dict() == wards


@pytest.mark.parametrize("kind", KINDS)
def test_any_row_is_the_same_in_a_repeat_and_follows_the_secret(kind: str, tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {
            "pid": np.repeat([f"p{k}" for k in range(60)], 4),
            "seen": [f"2020-01-{1 + k % 4:02}" for k in range(240)],
            "x": range(240),
        }
    )
    keys = {**place_of(kind, tmp_path, "rows", rows), "id": "pid", "one_row": "any", "order": ["seen"]}
    rule = replace(dataset_rule(Table(keys, source="party.toml"), tmp_path), lots=b"k" * 32)
    one, again = texts(rule, ["pid", "x"]), texts(rule, ["pid", "x", "seen"])
    assert one.sort_values("pid")["x"].tolist() == again.sort_values("pid")["x"].tolist()
    assert one["pid"].is_unique
    assert len(one) == 60
    other = texts(replace(rule, lots=b"o" * 32), ["pid", "x"])
    same = (one.set_index("pid")["x"] == other.set_index("pid")["x"]).mean()
    assert same < 0.6  # a quarter is expected; 1e-8 of secrets reach this by chance (binomial, 60 of 1/4)
    chosen = pd.Series(one["x"].astype(int) % 4).value_counts()
    assert len(chosen) == 4  # 60 people leave one of four rows out with a chance of 1e-7


def test_ids_in_files_are_compared_after_the_steps_of_the_study(tmp_path: Path) -> None:
    pd.DataFrame(
        {"pid": ["P1", " p1 ", "p2"], "seen": ["2020-01-02", "2020-01-01", "2020-01-01"], "x": ["b", "a", "c"]}
    ).to_csv(tmp_path / "rows.csv", index=False)
    table = Table({"path": "rows.csv", "id": "pid", "one_row": "first", "order": "seen"}, source="party.toml")
    rule = replace(dataset_rule(table, tmp_path), normalise=("trim", "casefold"))
    variable = Variable(name="x", owner="a", labels=("a", "b", "c"))
    records = read_records(rule, [variable], ("trim", "casefold"))
    assert dict(zip(records.ids, records.codes["x"].tolist(), strict=True)) == {"p1": 0, "p2": 2}
    assert check_records(rule, [variable], ("trim", "casefold")).n_repeated_ids == 0
    people = {
        "path": "people.csv",
        "id": "pid",
        "tables": {"rows": {"path": "rows.csv"}},
        "columns": {"n": {"table": "rows", "summary": "count"}},
    }
    (tmp_path / "people.csv").write_text("pid\np1\nP2\n")
    summed = replace(dataset_rule(Table(people, source="party.toml"), tmp_path), normalise=("trim", "casefold"))
    assert texts(summed, ["count of rows"])["count of rows"].tolist() == ["2", "1"]
    apart = replace(rule, one_row="")
    assert check_records(apart, [variable], ("trim", "casefold")).n_repeated_ids == 2


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
def test_an_order_of_texts_is_that_of_their_letters(kind: str, tmp_path: Path) -> None:
    rows = pd.DataFrame(
        [("p0", "b", "B"), ("p0", "a", "A"), ("p0", "c", "C"), ("p0", None, "D")], columns=["pid", "part", "ward"]
    )
    visits = {**place_of(kind, tmp_path, "rows", rows), "order": "part"}
    columns = {name: {"table": "visits", "summary": name, "source": "ward"} for name in ("first", "last")}
    people = {
        **place_of("csv", tmp_path, "people", PEOPLE[:1]),
        "id": "pid",
        "tables": {"visits": visits},
        "columns": columns,
    }
    rule = dataset_rule(Table(people, source="party.toml"), tmp_path)
    assert texts(rule, [rule.column("first").source, rule.column("last").source]).iloc[0].tolist() == ["A", "C"]
    one = {**place_of(kind, tmp_path, "more", rows), "id": "pid", "one_row": "last", "order": "part"}
    assert texts(dataset_rule(Table(one, source="party.toml"), tmp_path), ["ward"])["ward"].tolist() == ["C"]
    two = {**people, "tables": {"visits": {**visits, "order": ["part", "ward"]}}}
    with pytest.raises(Misuse, match="goes by one column"):
        dataset_rule(Table(two, source="party.toml"), tmp_path)


def test_dates_and_numbers_are_read_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("pid\np\n")
    (tmp_path / "visits.csv").write_text('pid,seen,cost\np,02.01.2020,"10,5"\np,31.12.2019,"9,25"\n')
    columns = {
        "last_cost": {"table": "visits", "summary": "last", "source": "cost", "written": "1234,5"},
        "most": {"table": "visits", "summary": "max", "source": "cost", "written": "1234,5"},
        "all": {"table": "visits", "summary": "sum", "source": "cost", "written": "1234,5"},
        "late": {"table": "visits", "summary": "count", "where": "seen >= '2020-01-01'"},
        "dear": {"table": "visits", "summary": "count", "where": "cost > 9.5"},
    }
    own = {"seen": {"written": "DD.MM.YYYY"}, "cost": {"written": "1234,5"}}
    visits = {"path": "visits.csv", "order": "seen", "columns": own}
    table = Table(
        {"path": "people.csv", "id": "pid", "tables": {"visits": visits}, "columns": columns}, source="party.toml"
    )
    rule = dataset_rule(table, tmp_path)
    frame = texts(rule, [rule.column(name).source for name in columns])
    assert frame.iloc[0].tolist() == ["10,5", "10,5", "19.75", "1", "1"]
    assert (rule.column("most").written, rule.column("all").written) == ("1234,5", "plain")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"one_row": "first"}, r"party\.toml: order: missing beside one_row = \"first\""),
        ({"one_row": "middle"}, "got 'middle', expected one of first, last, any"),
        ({"columns": {"n": {"table": "vists", "summary": "count"}}}, "table 'vists' is no related table"),
        ({"columns": {"n": {"table": "visits", "summary": "mean"}}}, "got 'mean', expected one of count"),
        (
            {"columns": {"n": {"table": "visits", "summary": "count", "source": "ward"}}},
            "which is of rows and of no column",
        ),
        ({"columns": {"n": {"table": "visits", "summary": "first", "source": "ward"}}}, "needs an order of the rows"),
        (
            {"columns": {"n": {"table": "visits", "summary": "min", "source": "pid"}}},
            "looks at 'pid', which names the person",
        ),
        ({"columns": {"n": {"table": "visits", "summary": "any", "where": "pid = 'p1'"}}}, "looks at 'pid'"),
        (
            {"columns": {"n": {"table": "visits", "summary": "any", "where": "ward = 'A'; drop table x"}}},
            "letter 11 begins nothing",
        ),
        ({"columns": {"n": {"table": "visits", "summary": "any", "where": "exists (select 1)"}}}, "calls a function"),
        (
            {"columns": {"n": {"table": "visits", "summary": "any", "where": "ward = (select 1)"}}},
            r"got '\(', expected a number or a text",
        ),
        ({"columns": {"n": {"table": "visits", "summary": "any", "where": "ward = 'a\\'"}}}, "has a backslash"),
        (
            {"columns": {"n": {"table": "visits", "summary": "any", "where": "ward = 'a' or"}}},
            "expected the name of a column",
        ),
        (
            {"columns": {"n": {"table": "visits", "summary": "any", "where": "(" * 30 + "a = 1" + ")" * 30}}},
            "more than 20 deep",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(keys: dict[str, object], message: str, tmp_path: Path) -> None:
    place_of("csv", tmp_path, "people", PEOPLE)
    base = {"path": "people.csv", "id": "pid", "tables": {"visits": place_of("csv", tmp_path, "visits", VISITS)}}
    with pytest.raises(Misuse, match=message):
        dataset_rule(Table({**base, **keys}, source="party.toml"), tmp_path)


@pytest.mark.parametrize("kind", ["csv", "duckdb", "sqlalchemy"])
def test_a_column_that_is_not_there_is_named(kind: str, tmp_path: Path) -> None:
    rule = rule_of(kind, tmp_path, columns={"n": {"table": "visits", "summary": "count", "where": "wrd = 'A'"}})
    with pytest.raises(DataFault, match="no column 'wrd'"):
        header(rule)


def test_a_rule_is_written_as_it_is_read(tmp_path: Path) -> None:
    rule = rule_of("csv", tmp_path, one_row="last", order="sex")
    text = (
        place_toml(rule, tmp_path)
        + 'id = "pid"\n[tables.visits]\norder = "seen"\n'
        + place_toml(replace(rule.tables["visits"], order=()), tmp_path)
    )
    text += columns_toml(rule).replace("[dataset.people.", "[")
    assert dataset_rule(Table(tomllib.loads(text), source="party.toml"), tmp_path) == rule


def test_a_server_gets_what_was_read_and_no_text_of_the_file() -> None:
    from verticil.party.dataset.sources.row_queries import summarised
    from verticil.party.dataset.sources.source_table import Summary

    rule = DatasetRule(
        format="server", server=Server(url="postgresql://db/x"), id="pid", table="clinic.visits", order=("seen",)
    )
    summary = Summary(table="visits", kind="sum", column="cost", where="ward='a''b' AND NOT cost between 1 and 2.5")
    assert summarised(rule, ["pid", "seen", "ward", "cost"], summary).query == (
        'SELECT "pid" AS verticil_person, sum("cost") AS verticil_value FROM "clinic"."visits" verticil_rows '
        """WHERE (("ward" = 'a''b') AND (NOT (("cost" >= 1) AND ("cost" <= 2.5)))) GROUP BY "pid\""""
    )


@pytest.mark.whole
@pytest.mark.machine
def test_a_postgresql_server_sums_up_and_chooses_rows_itself(
    postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def literal(value: object) -> str:
        return "NULL" if pd.isna(value) else repr(value)

    values = ", ".join(f"({', '.join(map(literal, row))})" for row in VISITS.itertuples(index=False))
    postgresql.run(
        "CREATE SCHEMA rows",
        "CREATE TABLE rows.visits (pid text, seen date, ward text, cost numeric)",
        f"INSERT INTO rows.visits VALUES {values}",
    )
    monkeypatch.setenv("ROWS_WORD", postgresql.password)
    server = {"url": postgresql.url(password=""), "password_env": "ROWS_WORD", "table": "rows.visits"}
    people = place_of("csv", tmp_path, "people", PEOPLE)
    columns = {name: {"table": "visits", **keys} for name, keys in SUMMARIES.items()}
    table = {**people, "id": "pid", "tables": {"visits": {**server, "order": "seen"}}, "columns": columns}
    rule = dataset_rule(Table(table, source="party.toml"), tmp_path)
    sources = {name: rule.column(name).source for name in SUMMARIES}
    assert set(sources.values()) <= set(header(rule))
    frame = texts(rule, list(sources.values()))
    assert {name: frame[sources[name]].tolist() for name in ("n", "n_a", "cheap", "dear", "first", "last")} == {
        name: EXPECTED[name] for name in ("n", "n_a", "cheap", "dear", "first", "last")
    }
    assert [float(text) if text else None for text in frame[sources["total"]]] == EXPECTED["total"]
    for which, wards in (("first", ["B", "A", "B"]), ("last", ["A", "A", "B"])):
        one = dataset_rule(
            Table({**server, "id": "pid", "one_row": which, "order": "seen"}, source="party.toml"), tmp_path
        )
        assert header(one) == ("pid", "seen", "ward", "cost")
        assert texts(one, ["pid", "ward"]).set_index("pid")["ward"][["p0", "p1", "p2"]].tolist() == wards

    summary = {"n": {"table": "visits", "summary": "sum", "source": "ward"}}
    table = {**table, "columns": summary}
    with pytest.raises(DataFault, match="the database does not understand the query"):
        header(dataset_rule(Table(table, source="party.toml"), tmp_path))


STUDY = """
schema = 1
id = "summaries"
purpose = "Visits as one column"
expires = 2099-01-01
[[party]]
name = "clinic"
[[party]]
name = "registry"
[[variable]]
party = "clinic"
name = "n_visits"
type = "integer"
bins = [0, 1, 2, 9]
[[variable]]
party = "clinic"
name = "last_ward"
categories = ["A", "B", "C", "none"]
missing = { category = "none", spellings = [""] }
[[variable]]
party = "registry"
name = "dead"
categories = ["no", "yes"]
[randomization_default]
scheme = "symmetric"
epsilon = 1.0
"""
AT_THE_NODE = """
[dataset.people.tables.visits]
path = "visits.csv"
id = "pid"
order = "seen"
[dataset.people.columns.n_visits]
table = "visits"
summary = "count"
where = "cost > 2"
[dataset.people.columns.last_ward]
table = "visits"
summary = "last"
source = "ward"
"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node with people of one row and visits of several."""
    (tmp_path / "federation.toml").write_text(FEDERATION)
    (tmp_path / "party.toml").write_text(party_toml() + AT_THE_NODE)
    PEOPLE.rename(columns={"pid": "id"}).to_csv(tmp_path / "people.csv", index=False)
    VISITS.to_csv(tmp_path / "visits.csv", index=False)
    return tmp_path / "party.toml"


def test_a_node_answers_a_study_with_summaries(node: Path) -> None:
    config, study = load_party(node), read_study_text(STUDY, node.parent)
    people = read_people(config, study, site_secret=SiteSecret(value=b"s" * 32, format=1), linked_by=None)
    codes = {
        name: dict(zip(people.names(), people.codes[name].tolist(), strict=True)) for name in ("n_visits", "last_ward")
    }
    assert codes["n_visits"] == {"p0": 2, "p1": 0, "p2": 1, "p3": 1, "p4": 0, "p5": 0}
    assert codes["last_ward"] == {"p0": 0, "p1": 0, "p2": 1, "p3": 3, "p4": 3, "p5": 3}
    places = origins(config, study)
    assert places["n_visits"].source == "count of visits where cost > 2"
    assert places["last_ward"].written == "plain, by seen"
    (table,) = check(config, study).tables
    assert isinstance(table, TableFit)
    assert (table.counts.records, table.missing_columns) == (6, ())  # type: ignore[union-attr]  # counts were asked for


def test_another_row_of_a_person_is_another_column(node: Path) -> None:
    text = node.read_text().replace('id = "id"', 'id = "id"\none_row = "first"\norder = "sex"', 1)
    node.write_text(text)
    study = read_study_text(STUDY, node.parent)
    first = origins(load_party(node), study)["n_visits"].written
    node.write_text(text.replace('one_row = "first"', 'one_row = "last"'))
    assert origins(load_party(node), study)["n_visits"].written != first


@pytest.mark.parametrize("denied", ["cost", "ward"])
def test_a_summary_of_a_column_that_never_leaves_is_refused(node: Path, denied: str) -> None:
    node.write_text(node.read_text().replace("[policy]\n", f'[policy]\ndeny_columns = ["{denied}"]\n', 1))
    with pytest.raises(Misuse, match=rf"looks at column '{denied}', which is in policy\.deny_columns"):
        load_party(node)

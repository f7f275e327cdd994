"""Related tables of two parties, by the code of the nodes: Model II and Model III, and what a site's rules say of slots."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.related import people_with_visits
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import Column
from verticil.party.limits.limits import Policy
from verticil.party.local_dataset import origins
from verticil.party.related_people import slot_columns
from verticil.shared.core.errors import Misuse, VerticilError
from verticil.shared.related.structure import records_fault
from verticil.shared.release.verification import verify_release
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import origin_words
from verticil.shared.study.reading import read_study_text
from verticil.shared.synthesis.record_checks import read_records
from verticil.simulation import simulate

N = 1500

STUDY = """
schema = 1
id = "two"
purpose = "Visits and claims"
expires = 2099-01-01
MODEL
[[party]]
name = "clinic"
[[party]]
name = "insurer"
[[table]]
name = "visits"
party = "clinic"
max_rows = 3
order = "admitted"
[[table]]
name = "claims"
party = "insurer"
max_rows = 2
keep = "random"
[[variable]]
party = "clinic"
name = "sex"
categories = ["f", "m"]
[[variable]]
party = "insurer"
name = "plan"
categories = ["basic", "full"]
[[variable]]
party = "clinic"
table = "visits"
name = "admitted"
type = "date"
bins = [2020-01-01, 2020-07-01, 2021-01-01]
[[variable]]
party = "clinic"
table = "visits"
name = "ward"
categories = ["A", "B", "C"]
[[variable]]
party = "insurer"
table = "claims"
name = "amount"
type = "number"
bins = [0, 100, 1000]
TABLES
[randomization_default]
scheme = "symmetric"
epsilon = 3.0
[structure]
seed = 1
[release]
seed = 1
[linkage]
minimum_common_records = 100
"""
TABLES = "[tables]\nepsilon = 20.0\ndelta = 1e-9\n"


def study(model: str, tables: str = "") -> Study:
    return read_study_text(STUDY.replace("MODEL", f'model = "{model}"').replace("TABLES", tables), Path())


@pytest.fixture(scope="module")
def data() -> dict[str, pd.DataFrame]:
    people, visits = people_with_visits(N)
    draw = np.random.default_rng(2)
    counts = draw.integers(0, 4, N)
    whose = np.repeat(np.arange(N), counts)
    claims = pd.DataFrame(
        {"pid": people["pid"].to_numpy()[whose], "amount": np.round(draw.exponential(80, len(whose)), 2)}
    )
    insured = pd.DataFrame({"pid": people["pid"], "plan": draw.choice(["basic", "full"], N)})
    return {
        "clinic": people[["pid", "sex"]],
        "clinic.visits": visits,
        "insurer": insured.sample(frac=1, random_state=3),
        "insurer.claims": claims,
    }


@pytest.mark.whole
@pytest.mark.parametrize(("model", "tables"), [("central", ""), ("central", TABLES), ("masked", TABLES)])
def test_parties_with_rows_of_their_own_publish_people_and_rows(
    data: dict[str, pd.DataFrame], tmp_path: Path, model: str, tables: str
) -> None:
    agreed = study(model, tables)
    simulate(agreed, data, out=tmp_path / "made", id_column="pid", seed=1)
    release = next(path.parent for path in (tmp_path / "made").rglob("manifest.json"))
    verified = verify_release(release, ca_certificate=next(tmp_path.rglob("ca.crt")).read_bytes())
    assert verified.common_records == N
    codes = read_records(release / "synthetic.parquet", agreed.schema, N)
    assert records_fault(agreed.related, agreed.schema, codes) == ""
    rows = {name: pd.read_csv(release / f"{name}.csv") for name in ("people", "visits", "claims")}
    real = {"visits": data["clinic.visits"], "claims": data["insurer.claims"]}
    for name, most in (("visits", 3), ("claims", 2)):
        expected = real[name].groupby("pid").size().clip(upper=most).sum() / N
        assert abs(len(rows[name]) / N - expected) < 0.15, (len(rows[name]) / N, expected)
        assert set(rows[name]["person"]) <= set(rows["people"]["person"])


def test_a_simulation_without_a_related_table_says_which(data: dict[str, pd.DataFrame]) -> None:
    some = {name: table for name, table in data.items() if name != "insurer.claims"}
    with pytest.raises(Misuse, match=r"no table for insurer\.claims"):
        simulate(study("central"), some, id_column="pid")
    with pytest.raises(Misuse, match="one for each party and related table"):
        simulate(study("central"), data["clinic"], id_column="pid")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, data: dict[str, pd.DataFrame]) -> Path:
    from verticil.simulation.in_process import _provision

    folder = tmp_path_factory.mktemp("nodes")
    return _provision(folder, study("central"), data, id_column="pid", seed=1).parties["clinic"] / "party.toml"


def test_a_slots_source_names_table_slot_and_column(node: Path) -> None:
    config = load_party(node)
    assert set(config.datasets["people"].tables) == {"visits"}
    found = origins(config, study("central"))
    assert found["visits[2].ward"].source == "visits[2].ward"
    assert found["visits[2].ward"].flag
    assert found["visits.rows"].source == "rows of visits"
    sources = [place.source for name, place in found.items() if "[" in name]
    assert len(sources) == len(set(sources)) == 6
    other = study("central")
    last = read_study_text(
        STUDY.replace("MODEL", "")
        .replace("TABLES", "")
        .replace('order = "admitted"', 'order = "admitted"\nkeep = "last"'),
        Path(),
    )
    assert origins(config, last)["visits[1].ward"].written != origins(config, other)["visits[1].ward"].written


@pytest.mark.parametrize(
    "other",
    [
        ('[[variable]]\nparty = "clinic"\ntable = "visits"\nname = "ward"\ncategories = ["A", "B", "C"]\n', ""),
        ('categories = ["A", "B", "C"]', 'categories = ["B", "A", "C"]'),
        ("2021-01-01]\n", '2021-01-01]\nmissing = { category = "none", spellings = ["2020-03-01"] }\n'),
        ("2020-07-01, 2021-01-01]\n", "2020-07-01]\nother = 'later'\n"),
    ],
)
def test_rows_in_another_order_are_drawn_anew(node: Path, other: tuple[str, str]) -> None:
    """Else a study that asks for another order, which one person's rows decide, was refused as if the table had changed."""
    text = STUDY.replace("MODEL", "").replace("TABLES", "")
    assert other[0] in text
    changed = origins(load_party(node), read_study_text(text.replace(*other), Path()))
    usual = origins(load_party(node), study("central"))
    columns = [name for name in usual if name.startswith("visits[") and name in changed]
    assert columns
    assert all(changed[name].written != usual[name].written for name in columns)
    assert changed["visits.rows"].written == usual["visits.rows"].written  # a number of rows has no order


def test_a_party_without_the_table_is_told_what_to_write(node: Path) -> None:
    config = load_party(node)
    bare = {"people": dataclasses.replace(config.datasets["people"], tables={})}
    with pytest.raises(Misuse, match=r"related table 'visits'.*none has.*dataset\.people\.tables"):
        slot_columns(study("central").related, study("central").schema, bare, "clinic", where="party.toml")
    text = node.read_text()
    inside = re.sub(
        r"(\[dataset\.people\.tables\.visits\]\n)", r'\1tables = { more = { path = "x.csv", id = "a" } }\n', text
    )
    (node.parent / "nested.toml").write_text(inside)
    with pytest.raises(VerticilError, match="stands in a related table"):
        load_party(node.parent / "nested.toml")


@pytest.mark.parametrize("denied", ["ward", "visits[2].ward"])
def test_a_column_that_never_leaves_does_not_leave_in_slots(node: Path, denied: str) -> None:
    from verticil.party.limits.limits import _object_to_variables

    config, agreed = load_party(node), study("central")
    places = {
        name: Column(dataset=place.dataset, source=place.source) for name, place in origins(config, agreed).items()
    }
    policy = config.policy
    assert isinstance(policy, Policy)
    rule = dataclasses.replace(policy, deny_columns=frozenset({denied}))
    found = _object_to_variables(rule, agreed, "clinic", places)
    assert len(found) == (3 if denied == "ward" else 1)
    assert _object_to_variables(policy, agreed, "clinic", places) == []


def test_the_plan_says_what_slots_cost_and_when_model_two_is_hopeless() -> None:
    """In Model II the seven columns of visits have epsilon 1 each, which hides the transitions of 1,500 people. The masked tables
    of the same study, with epsilon 20 for everything, do not.
    """
    from verticil.analyst.lint import lint

    weak = STUDY.replace("epsilon = 3.0", "epsilon = 1.0").replace("TABLES", "").replace("MODEL", "")
    central, masked = (
        {(item.code, item.where): item for item in lint(read, n=N)}
        for read in (read_study_text(weak, Path()), study("masked", TABLES))
    )
    assert "epsilon 7 in all" in central["rows-cost", "table 'visits'"].message
    assert "masked" in central["rows-cost", "table 'visits'"].hint
    assert ("rows-drown", "table 'visits'") in central
    assert ("rows-drown", "table 'visits'") not in masked
    assert not any(code == "rows-cost" for code, _ in masked)
    size = masked["rows-in-slots", "table 'visits'"].message
    assert "3 slots of 2 columns are 7 columns" in size
    pairs = 12 * 11 // 2
    assert (
        f"of {pairs} pairs of columns {pairs - 4 - 12} are measured" in size
    )  # slots 1 and 3, and 6 x 2 of both tables


def test_a_sites_people_hear_of_rows_that_are_not_used(node: Path, data: dict[str, pd.DataFrame]) -> None:
    """`party check` counts rows beyond the slots, rows of unknown people and people without rows; no value is in its words."""
    from verticil.party.operator.check import check

    config = load_party(node)
    found = check(config, study("central"))
    words = [item.message for item in found.warnings if item.code == "DATA_ROWS_UNUSED"]
    visits, people = data["clinic.visits"], set(data["clinic"]["pid"])
    rows = visits[visits["pid"].isin(people)].groupby("pid").size()
    beyond = rows[rows > 3]
    assert f"{int((beyond - 3).sum()):,} rows of {len(beyond):,} people are beyond max_rows = 3" in " ".join(words)
    assert f"{len(people) - len(rows):,} of {len(people):,} people have no row" in " ".join(words)
    assert not any(text in word for word in words for text in ("p1", "2020", "2021"))
    assert not any(item.code == "DATA_ROWS_UNUSED" for item in check(config, study("central"), counts=False).warnings)


def test_a_related_table_that_cannot_be_read_is_told_by_check_and_doctor(node: Path) -> None:
    from verticil.cli.doctor_checks import _tables
    from verticil.party.operator.check import check

    config = load_party(node)
    assert [finding.check for finding in _tables(config)] == ["data set 'people'", "data set 'people', table 'visits'"]
    rule = config.datasets["people"]
    gone = dataclasses.replace(rule.tables["visits"], path=node.parent / "gone.csv")
    other = dataclasses.replace(rule.tables["visits"], id="other")
    for table, words in ((gone, "gone.csv: no such file"), (other, "no column 'other'")):
        datasets = {"people": dataclasses.replace(rule, tables={"visits": table})}
        broken = dataclasses.replace(config, datasets=datasets)
        assert any(words in finding.detail for finding in _tables(broken)), words
        assert any(words in fault.message for fault in check(broken, study("central")).faults), words


def test_the_plan_says_how_far_what_comes_next_will_be_off() -> None:
    """Four times the people, or the rows, and less noise: less error. The bench holds the numbers against measured ones."""
    from verticil.analyst.lint import lint
    from verticil.analyst.related import row_errors

    masked = study("masked", TABLES)
    visits, claims = masked.related
    few, many = row_errors(masked, visits, 1_500, 1.0), row_errors(masked, visits, 6_000, 1.0)
    assert few.gaps is not None
    assert many.gaps is not None
    for one, other in ((few.transitions, many.transitions), (few.gaps, many.gaps)):
        assert (
            one / 4 <= other <= one / 2
        )  # noise on tables falls with n, the scatter of randomized columns with its root
    assert row_errors(masked, visits, 1_500, 2.0).transitions < few.transitions
    assert row_errors(masked, claims, 1_500, 1.0).gaps is None
    assert masked.tables is not None
    tighter = dataclasses.replace(masked, tables=dataclasses.replace(masked.tables, epsilon=masked.tables.epsilon / 4))
    assert row_errors(tighter, visits, 6_000, 1.0).transitions > 1.2 * many.transitions
    words = [item.message for item in lint(masked, n=N) if item.code == "rows-error" and "visits" in item.where]
    assert re.search(r"if people have 1 / 2 rows in the mean, .* off by about [0-9.]+, [0-9.]+ points", words[0])


def test_the_plan_of_as_many_slots_as_there_can_be_is_made() -> None:
    """Factorials of such numbers of rows are no floating-point numbers. All lists of columns name them without slots."""
    from verticil.analyst.related import row_errors

    text = (
        STUDY.replace("MODEL", 'model = "masked"').replace("TABLES", TABLES).replace("max_rows = 2", "max_rows = 200")
    )
    read = read_study_text(text.replace('table = "claims"', 'table = "claims"\nfrom = "public"'), Path())
    claims = read.related[1]
    few, many = (row_errors(read, claims, 6_000, rows).transitions for rows in (2.0, 150.0))
    assert 0 < many < few <= 1
    (sentence,) = (words for words in origin_words(read) if "claims.amount" in words)
    assert "[" not in sentence

"""Drafts: readable at once, not reviewed, nothing identifying and nothing rare proposed, ends of bins rounded outward."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.analyst.draft import NOTE, REVIEW, Wording, draft, draft_study
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import Column
from verticil.party.dataset.source import check_records, read_records
from verticil.party.dataset.sources.source_table import ColumnRule, DatasetRule
from verticil.party.limits.limits import find_objections
from verticil.party.operator.commands import init_party
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.written_values.reading import value_reader
from verticil.shared.mechanisms import privacy
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study, read_study_text
from verticil.tables.ranges import FEWEST_ROWS
from verticil.tables.texts import texts_of

TODAY = dt.date(2026, 11, 21)
N = 60
FEDERATION = f"""
schema = 1
name = "trial"
ca_certificate = "ca.crt"
ca_sha256 = "{"0" * 64}"
[miner]
endpoint = "miner.example.org:8443"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    clinic = pd.DataFrame(
        {
            "id": [f"p{i:03d}" for i in range(N)],
            "age": [str(20 + i) for i in range(N)],
            "sex": ["f" if i % 2 else "m" for i in range(N)],
            "name": [f"Person {i}" for i in range(N)],
            "grade": [str(i % 3) for i in range(N)],
            "country": ["x"] * N,
        }
    )
    clinic.to_csv(tmp_path / "clinic.csv", index=False)
    insurer = pd.DataFrame(
        {
            "id": [f"p{i:03d}" for i in reversed(range(N))],
            "claims": [0] * (N // 2) + list(range(1, N // 2 + 1)),
            "plan": [("?", "gold", "basic", 'say "no"')[i % 4] for i in range(N)],
            "sex": [("F", "M")[i % 2] for i in range(N)],
            "rate": [i / 8 for i in range(N)],
        }
    )
    insurer.to_parquet(tmp_path / "insurer.parquet")
    return tmp_path


def drafted(folder: Path, *, wording: Wording | None = None, **tables: str) -> tuple[str, Study]:
    own = wording or Wording(bins=True)
    text = draft({party: folder / name for party, name in tables.items()}, wording=own, today=TODAY)
    path = folder / "draft.toml"
    path.write_text(text, encoding="utf-8")
    return text, read_study(path)


def test_a_draft_can_be_read_and_is_marked(folder: Path):
    text, study = drafted(folder, clinic="clinic.csv", insurer="insurer.parquet")
    assert study.parties == ("clinic", "insurer")
    assert study.expires == dt.date(2027, 11, 21)
    assert study.linkage.minimum_common_records == 30
    assert set(study.schema.names) == {"age", "clinic sex", "insurer sex", "grade", "claims", "plan", "rate"}
    assert text.count(REVIEW) == len(study.schema)
    assert not study.reviewed
    assert {variable.origin for variable in study.schema.variables} == {"table"}


def test_what_is_proposed(folder: Path):
    text, study = drafted(folder, clinic="clinic.csv", insurer="insurer.parquet")
    by_name = dict(zip(study.schema.names, study.schema.variables, strict=True))
    assert by_name["clinic sex"].labels == ("f", "m")
    assert by_name["grade"].labels == ("0", "1", "2")
    age = by_name["age"].bins
    assert age is not None
    assert age[0] <= 20
    assert age[-1] > 79
    assert by_name["age"].integer
    assert not by_name["rate"].integer
    claims = by_name["claims"].bins
    assert claims is not None
    assert by_name["claims"].points == (0.0,)  # half of the rows have 0: a point
    assert claims[0] == 1
    assert claims[-1] > N // 2
    plan = by_name["plan"]
    assert plan.labels == ("basic", "gold", 'say "no"', "unknown")
    assert plan.missing is not None
    assert plan.missing.spellings == ("?",)
    assert 'source = "sex"' in text


def test_a_drafted_study_of_twenty_columns_of_one_party_passes_the_policy_that_party_init_writes(tmp_path: Path):
    columns = {f"c{number:02d}": [("a", "b", "c")[(i + number) % 3] for i in range(N)] for number in range(20)}
    for party, part in (("clinic", columns), ("insurer", dict(list(columns.items())[:6]))):
        frame = pd.DataFrame({"id": [f"p{i:03d}" for i in range(N)], **part})
        frame.to_csv(tmp_path / f"{party}.csv", index=False)
    (tmp_path / "federation.toml").write_text(FEDERATION)
    for party, tables, epsilon in (
        ("clinic", {"clinic": "clinic.csv", "insurer": "insurer.csv"}, 1.0),
        ("insurer", {"insurer": "insurer.csv", "other": "insurer.csv"}, 3.0),  # up to six columns at the column's limit
    ):
        _, study = drafted(tmp_path, **tables)
        policy = load_party(init_party(tmp_path / party, name=party, federation="../federation.toml")).policy
        own = study.schema.owned_by(party)
        local = {study.schema[i].name: Column(dataset="people", source=study.schema[i].name) for i in own}
        assert len(own) == {"clinic": 20, "insurer": 6}[party]
        assert find_objections(policy, study, party, local, today=TODAY) == ()
        assert privacy.epsilon(study.units[0].transition) == pytest.approx(epsilon, abs=1e-9)


def test_identifying_and_constant_columns_are_left_out(folder: Path):
    text, _ = drafted(folder, clinic="clinic.csv", insurer="insurer.parquet")
    assert "Person" not in text
    assert "p001" not in text
    assert '"name" of clinic is left out: 60 distinct texts in 60 rows look identifying' in text
    assert '"country" of clinic is left out: it has 1 distinct value' in text


def test_many_categories_get_an_other(tmp_path: Path):
    rows = [f"v{i % 20:02d}" for i in range(200)] + ["v00"] * 10
    pd.DataFrame({"id": range(210), "town": rows, "other": ["other", "unknown"] * 105}).to_csv(
        tmp_path / "t.csv", index=False, sep=";"
    )
    _, study = drafted(tmp_path, registry="t.csv")
    town = study.schema[0]
    assert (town.n_states, town.other) == (20, None)  # each has ten rows
    assert study.schema[1].labels == ("other", "unknown")


def test_odd_texts_still_give_a_readable_draft(tmp_path: Path):
    odd = ["", " lead", "tab\tin", 'quo"te', "back\\slash", "a\u202eb", "é", "NA", "ok"]
    frame = pd.DataFrame({"id": range(90), "odd": odd * 10, 'na"me': ["x", "y"] * 45, "bad\nname": ["x", "y"] * 45})
    frame.to_csv(tmp_path / "t.csv", index=False)
    _, study = drafted(tmp_path, registry="t.csv")
    assert study.schema[0].labels == ("back\\slash", "lead", "ok", 'quo"te', "é", "other", "unknown")
    assert study.schema[0].other == "other"
    assert study.schema.names == ("odd", 'na"me')


def test_a_single_table_needs_no_id(tmp_path: Path):
    pd.DataFrame({"a": ["x", "y"] * 10, "b": ["1", "2"] * 10}).to_csv(tmp_path / "t.csv", index=False)
    _, study = drafted(tmp_path, only="t.csv")
    assert study.schema.names == ("a", "b")


def test_the_column_that_was_taken_for_the_id_is_named(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({"id": range(20), "a": ["x", "y"] * 10, "b": ["1", "2"] * 10}).to_csv(path, index=False)
    said = (
        '"id" is taken for the column that names the person, since no value of it repeats: it stays out of the records'
    )
    [note] = [note for note in draft_study({"only": path}).notes if "names the person" in note]
    assert note.startswith(said)
    asked = draft_study({"only": path}, wording=Wording(id_column="id"))
    assert not any("names the person" in note for note in asked.notes)
    both = draft_study({"clinic": folder / "clinic.csv", "insurer": folder / "insurer.parquet"}).notes
    assert both[0].startswith('"id" is taken for the column that names the person in every table, since')


def test_bad_tables_are_refused(tmp_path: Path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("id,a\n")
    (tmp_path / "ragged.csv").write_text("id,a\n1,2\n3,4,secret\n")
    (tmp_path / "twice.csv").write_text("id,a,a\n1,2,3\n3,4,5\n")
    (tmp_path / "one.csv").write_text("id,a\n1,x\n1,y\n")
    (tmp_path / "two.csv").write_text("id,b\n1,x\n2,y\n")
    (tmp_path / "else.csv").write_text("key,c\n1,x\n2,y\n")
    (tmp_path / "nothing.csv").write_text("id,a\n1,x\n2,x\n")
    (tmp_path / "not.parquet").write_text("secret")
    cases = [
        (["absent.csv"], "DATA_FILE_MISSING"),
        (["empty.csv"], "DATA_EMPTY"),
        (["header.csv"], "DATA_EMPTY"),
        (["ragged.csv"], "DATA_EMPTY"),
        (["twice.csv"], "DATA_UNREADABLE"),
        (["not.parquet"], "DATA_UNREADABLE"),
        (["one.csv", "two.csv"], "DATA_ID_DUPLICATE"),
        (["two.csv", "else.csv"], "DATA_ID_MISSING"),
        (["nothing.csv"], "DATA_EMPTY"),
    ]
    for names, code in cases:
        with pytest.raises(DataFault) as caught:
            draft({f"p{i}": tmp_path / name for i, name in enumerate(names)}, today=TODAY)
        assert caught.value.code == code
        assert "secret" not in str(caught.value)
    with pytest.raises(DataFault, match=r"one\.csv: column 'id' repeats in 1 of 2 rows"):
        draft({"p": tmp_path / "one.csv"}, wording=Wording(id_column="id"), today=TODAY)


def test_usage_errors(tmp_path: Path):
    with pytest.raises(Misuse, match="no table given"):
        draft({})
    with pytest.raises(Misuse, match="party name"):
        draft({"a b": tmp_path / "t.csv"})


def test_names_that_no_table_has_are_refused(folder: Path) -> None:
    with pytest.raises(DataFault, match=r"--public-column: no column 'sxe'.*'sex'"):
        drafted(folder, clinic="clinic.csv", wording=Wording(public_columns=("age", "sxe")))
    with pytest.raises(Misuse, match="--sheet: got 'S', and no table is a workbook"):
        drafted(folder, clinic="clinic.csv", wording=Wording(sheet="S"))
    assert main(["table", str(folder / "clinic.csv"), "--sheet", "S"]) == 2


CODED = [str(20 + i * 13 % 60) for i in range(90)]


def column(
    tmp_path: Path, texts: list[str], *, encoding: str = "utf-8", delimiter: str = ",", wording: Wording | None = None
) -> tuple[str, Study]:
    lines = [delimiter.join(("id", "Größe", "sex"))]
    lines += [delimiter.join((str(i), text, "fm"[i * i % 2])) for i, text in enumerate(texts)]
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode(encoding))
    return drafted(tmp_path, clinic="t.csv", wording=wording)


@pytest.mark.parametrize(
    ("texts", "spellings"),
    [
        ([*CODED, *["N"] * 30], ("N",)),
        ([*CODED, *["?"] * 10], ("?",)),
        ([*CODED, *["NA", ""] * 5], ("", "NA")),
        ([*CODED, *["inf"] * 10], ("inf",)),
        ([*CODED, *["-Infinity", "1e999"] * 5], ()),
        ([*CODED, *["unclear", "not asked"] * 9], ()),
    ],
)
def test_numbers_with_a_code_or_an_infinite_one_are_still_numbers(
    tmp_path: Path, texts: list[str], spellings: tuple[str, ...]
):
    text, study = column(tmp_path, texts)
    variable = study.schema[study.schema.index("Größe")]
    assert variable.bins is not None
    assert (variable.bins[0], variable.bins[-1]) == (20, 80)
    assert variable.integer
    assert variable.other == "unknown"
    assert (variable.missing.spellings if variable.missing else ()) == spellings
    assert "unclear" not in text
    assert ("hold no number" in text) is not (set(spellings) & {"?", "NA"} != set())
    assert f'{NOTE}an outer end of "Größe" is that of the table' in text  # of whole numbers from 20 to 79


@pytest.mark.parametrize("few", [["?"] * 9, ["", "NA"], ["unclear"] * 9])
def test_fewer_than_ten_rows_without_a_number_are_no_category(tmp_path: Path, few: list[str]) -> None:
    text, study = column(tmp_path, [*CODED, *few])
    variable = study.schema[study.schema.index("Größe")]
    assert (variable.other, variable.missing, variable.n_states) == (None, None, variable.n_bins)
    assert (
        f'{NOTE}"Größe" of clinic: {len(few)} row{"s have" if len(few) != 1 else " has"} no value, fewer than 10'
        in text
    )
    assert "unclear" not in text


@pytest.mark.parametrize(
    ("written", "texts", "edges"),
    [
        ("decimal-comma", [f"{i},5" for i in range(60)], (0, 60)),
        ("YYYY-MM-DD", [f"{1950 + i}-03-{1 + i % 28:02d}" for i in range(50)], ("1950-01-01", "2000-01-01")),
        ("DD.MM.YYYY", [f"{1 + i % 28}.12.{1950 + i}" for i in range(50)], ("1950-01-01", "2000-01-01")),
        ("MM/DD/YYYY", [f"12/{1 + i % 28}/{1950 + i}" for i in range(50)], ("1950-01-01", "2000-01-01")),
    ],
)
def test_decimal_commas_and_dates_are_numbers_and_the_node_reads_them(
    tmp_path: Path, written: str, texts: list[str], edges: tuple[object, object]
):
    text, study = column(tmp_path, texts, delimiter=";")
    if written != "YYYY-MM-DD":  # which is read where nothing is said
        assert f'in party.toml: written = "{written}"' in text
        assert study.drafted["clinic"]["columns"] == {"Größe": {"written": written}}
    variable = study.schema[study.schema.index("Größe")]
    assert variable.bins is not None
    days = [value_reader("date")(str(end)) for end in edges] if variable.kind == "date" else edges
    assert [variable.bins[0], variable.bins[-1]] == list(days)
    rule = DatasetRule(
        path=tmp_path / "t.csv", format="csv", id="id", delimiter=";",
        columns={"Größe": ColumnRule(source="Größe", written=written)},
    )  # fmt: skip
    report = check_records(rule, [variable], ())
    assert report.remarks == ()
    codes = read_records(rule, [variable], ()).codes["Größe"]
    assert (codes[0], codes[-1]) == (0, variable.n_bins - 1)


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("latin-1", "cp1252"), ("cp1252", "cp1252"), ("utf-16", "utf-16"), ("utf-16-le", "utf-16-le")],
)
def test_a_file_in_another_encoding_is_drafted_and_the_encoding_named(tmp_path: Path, encoding: str, said: str):
    towns = ["Köln", "Málaga" if encoding != "cp1252" else "Preis in €"] * 30
    text, study = column(tmp_path, towns, encoding=encoding)
    assert (f"encoding was taken for {said}" in text) is (encoding in {"latin-1", "cp1252"})
    assert study.schema[study.schema.index("Größe")].labels == tuple(sorted(set(towns)))


def test_ragged_rows_and_functions_are_named(tmp_path: Path):
    rows = [f"{i},{i % 6},{i % 6 // 2},{i % 2},same" for i in range(60)]
    rows[10] += ",more"
    (tmp_path / "t.csv").write_text("\n".join(["id,district,region,sex,year", *rows]))
    text, study = drafted(tmp_path, only="t.csv")
    assert f"{NOTE}1 row has too many or too few fields and is left out (2% of all), the first is row 12" in text
    assert f'{NOTE}"region" is a function of "district" in all rows' in text
    assert f'{NOTE}"district" is a function of' not in text
    assert f'{NOTE}"year" of only is left out: it has 1 distinct value, expected at least 2' in text
    assert study.schema.names == ("district", "region", "sex")


def test_the_mean_of_a_bin_is_declared_where_it_is_asked_for_and_that_of_few_rows_is_not_told(tmp_path: Path):
    texts = [str(10 * i) for i in range(100)] * 6 + ["987654"]
    text, study = column(tmp_path, texts)
    assert "means = [" not in text
    assert study.schema[study.schema.index("Größe")].means is None
    text, study = column(tmp_path, texts, wording=Wording(means=True))
    variable = study.schema[study.schema.index("Größe")]
    assert variable.bins is not None
    assert variable.means is not None
    assert text.count("which tells something about these rows") == 1
    for low, high, mean in zip(variable.bins[:-2], variable.bins[1:-1], variable.means[:-1], strict=True):
        rows = [int(value) for value in texts if low <= int(value) < high]
        expected = sum(rows) / len(rows) if len(rows) >= 20 else (low + high - 1) / 2
        assert mean == pytest.approx(expected, abs=(high - low) / 20)
    assert f"{variable.labels[variable.n_bins - 1]} is much wider than the bins beside" in text
    few, _ = column(tmp_path, [*map(str, range(0, 78, 2)), "500000"], wording=Wording(means=True))
    assert "means = [" in few
    assert "500000" not in few.partition("means")[2]


def rows_of(variable: Variable, values: list[float]) -> list[int]:
    """How many of the numbers each bin has, those beyond the ends in the nearest one."""
    bins = variable.bins
    assert bins is not None
    inside = [min(max(value, bins[0]), bins[-1] - 1e-9) for value in values]
    return [sum(low <= value < high for value in inside) for low, high in itertools.pairwise(bins)]


@pytest.mark.parametrize("n", [20, 41, 500])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_bin_has_fewer_than_ten_rows_and_no_outer_end_is_finer_than_two_digits_of_the_range(
    tmp_path: Path, n: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    for values in (
        generator.lognormal(10, 1.5, n).round(2),
        generator.normal(310, 0.4, n).round(3),
        generator.poisson(4, n) ** 2.0,
        generator.uniform(-3e-4, 7e-4, n),
        np.round(generator.exponential(5e6, n)),
    ):
        frame = pd.DataFrame({"x": values.tolist(), "y": [i % 2 for i in range(n)]})
        frame.to_csv(tmp_path / f"{seed}.csv", index=False)
        text, study = drafted(tmp_path, only=f"{seed}.csv")
        if len(set(values)) <= 12 or "x" not in study.schema.names:
            continue
        bins = study.schema[study.schema.index("x")].bins
        assert bins is not None, text
        assert min(rows_of(study.schema[study.schema.index("x")], values.tolist())) >= FEWEST_ROWS
        step = 10 ** (math.floor(math.log10(values.max() - values.min())) - 1)
        step = max(step, 1) if study.schema[study.schema.index("x")].integer else step
        assert bins[0] <= values.min()
        assert bins[-1] >= values.max()
        assert values.min() - bins[0] < step * (1 + 1e-9)
        assert bins[-1] - values.max() <= step * (1 + 1e-9)
        for end in (bins[0], bins[-1]):
            assert end / step == pytest.approx(round(end / step), abs=1e-6)


def test_degrees_stay_degrees_and_dates_end_with_months(tmp_path: Path) -> None:
    kelvin = [309.02 + 1.95 * i / 199 for i in range(200)]
    days = [(dt.date(2019, 3, 14) + dt.timedelta(days=3 * i)).isoformat() for i in range(199)] + ["2020-11-01"]
    paid = [(dt.date(9999, 1, 5) + dt.timedelta(days=i)).isoformat() for i in range(199)] + ["9999-12-31"]
    pd.DataFrame({"kelvin": kelvin, "seen": days, "paid": paid}).to_csv(tmp_path / "t.csv", index=False)
    text, study = drafted(tmp_path, only="t.csv")
    bins = {variable.name: variable.bins for variable in study.schema.variables}
    assert bins["kelvin"] is not None
    assert (bins["kelvin"][0], bins["kelvin"][-1]) == (309.0, 311.0)
    assert "an outer end is that of the table" not in text.partition("seen")[0]
    assert bins["seen"] is not None
    read = value_reader("date")
    assert [bins["seen"][0], bins["seen"][-1]] == [read("2019-03-01"), read("2020-12-01")]
    assert bins["paid"] is not None
    assert [bins["paid"][0], bins["paid"][-1]] == [read("9999-01-01"), read("9999-12-31")]  # the calendar's last day


def test_a_category_of_fewer_than_ten_rows_is_nobodys(tmp_path: Path) -> None:
    rows = ["flu"] * 200 + ["cold"] * 190 + ["gout"] * 10 + ["rabies"] * 9 + ["plague"]
    site = ["left"] * 204 + ["right"] * 202 + ["middle"] * 4
    few = ["yes"] * 401 + ["no"] * 9
    gaps = ["a"] * 200 + ["b"] * 205 + [""] * 5
    both = ["a"] * 200 + ["b"] * 199 + ["c"] * 6 + [""] * 5
    frame = pd.DataFrame({"diagnosis": rows, "site": site, "few": few, "gaps": gaps, "both": both})
    frame.sample(frac=1, random_state=1).to_csv(tmp_path / "t.csv", index=False)
    text, study = drafted(tmp_path, only="t.csv")
    by_name = {variable.name: variable for variable in study.schema.variables}
    assert by_name["diagnosis"].labels == ("cold", "flu", "gout", "other")
    assert by_name["diagnosis"].other == "other"
    assert "stands for 2 further values" in text
    assert by_name["site"].labels == ("left", "right")
    assert by_name["site"].other is None
    assert f'{NOTE}"site" of only: 4 rows with a value that fewer than 10 rows have' in text
    assert f'{NOTE}"few" of only is left out: fewer than 2 categories have 10 rows' in text
    assert by_name["gaps"].labels == ("a", "b")
    assert by_name["gaps"].missing is None
    assert (by_name["both"].labels, by_name["both"].missing) == (("a", "b", "other"), None)  # eleven rows together
    for secret in ('"rabies"', '"plague"', '"middle"', '"c"', '"no"'):
        assert secret not in text


def test_a_draft_of_public_tables_needs_no_review_and_says_so(folder: Path) -> None:
    text, study = drafted(folder, clinic="clinic.csv", wording=Wording(public=True, title="Ages", purpose="A trial"))
    assert study.reviewed
    assert {variable.origin for variable in study.schema.variables} == {"public"}
    assert "declared public (--public): categories and bins need no review" in text
    assert REVIEW not in text
    assert (study.title, study.purpose) == ("Ages", "A trial")


def test_a_table_whose_texts_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is short enough, and a packed file can have many."""
    path = tmp_path / "people.csv"
    path.write_text("id,note\n" + "".join(f"{i},{'x' * 9000}{i}\n" for i in range(2000)))
    monkeypatch.setattr("verticil.tables.texts.TEXTS_BYTES", 17 << 20)
    with pytest.raises(DataFault, match="distinct texts have more than 17 MiB together") as caught:
        texts_of("owner", path)
    assert caught.value.code == "DATA_UNREADABLE"


def test_a_draft_of_one_table_names_its_pairs_and_one_of_several_or_of_too_many_cells_does_not(tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    columns = {name: draw.choice(list("abc"), 400) for name in ("one", "two", "three")}
    pd.DataFrame({"id": range(400), **columns}).to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame({"id": range(400), "four": draw.choice(list("xy"), 400)}).to_csv(tmp_path / "b.csv", index=False)
    alone = read_study_text(draft({"a": tmp_path / "a.csv"}), tmp_path, by_owner=True)
    assert alone.release.pairs == (("one", "two"), ("one", "three"), ("two", "three"))
    assert read_study_text(draft({"a": tmp_path / "a.csv", "b": tmp_path / "b.csv"}), tmp_path).release.pairs == ()
    many = {f"c{place}": [f"code {code}" for code in draw.integers(100, 190, 2_000)] for place in range(9)}
    pd.DataFrame(many).to_csv(tmp_path / "many.csv", index=False)
    text = draft({"a": tmp_path / "many.csv"})
    assert "# pairs = " in text

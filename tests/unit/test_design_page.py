"""The design page: what it changes in a study.toml and what it leaves, and that its plan is that of ``verticil study check``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pages import Visitor, served
from verticil.analyst.check import check
from verticil.analyst.draft import Wording, draft_study
from verticil.cli.main import main
from verticil.design.edits import design_of, edited
from verticil.design.pages import design_server, plan_page
from verticil.shared.core.errors import Misuse
from verticil.shared.study.reading import read_study_text

TODAY = dt.date(2026, 11, 21)
STUDY = """# why this study is made
schema = 1
id = "hearts"
title = "Hearts"
purpose = "Find out"
expires = 2099-12-31

[[party]]
name = "clinic"
[[party]]
name = "insurer"  # since March

[linkage]
minimum_common_records = 30_000

[[variable]]
party = "clinic"
name = "age"
bins = [0, 18, 65, 120]  # as the ministry has them
[[variable]]
party = "clinic"
name = "smoker"
categories = ["no", "yes"]
[[variable]]
party = "insurer"
name = "claims"
categories = ["0", "1", "2", "3-5", "6-10", ">10"]

[randomization_default]
scheme = "symmetric"
epsilon = 2.0   # the default

[[randomization]]
variables = ["claims"]
scheme = "symmetric"
epsilon = 1.0   # weak on purpose
"""


def form_of(text: str, **changes: str | None) -> dict[str, str]:
    """What the form of a study holds, with some fields changed; None: a box that is not ticked."""
    design = design_of(text)
    fields: dict[str, str | None] = {"boxes": "yes", "id": design.id, "title": design.title, "purpose": design.purpose}
    fields["epsilon"] = "" if design.default_epsilon is None else str(design.default_epsilon)
    for place, column in enumerate(design.columns):
        fields |= {f"in-{place}": "yes", f"bins-{place}": column.bins}
        fields[f"epsilon-{place}"] = "" if column.epsilon is None else str(column.epsilon)
        fields[f"public-{place}"] = None if column.from_table else "yes"
    fields["reviewed"] = "on" if design.reviewed else None
    fields |= {key.replace("_", "-") if key[-1].isdigit() else key: value for key, value in changes.items()}
    return {key: value for key, value in fields.items() if value is not None}


def test_a_form_that_changes_nothing_changes_no_byte() -> None:
    assert edited(STUDY, form_of(STUDY)) == STUDY


@pytest.mark.parametrize(
    ("changes", "was", "becomes"),
    [
        ({"epsilon": "1.5"}, "epsilon = 2.0   # the default", "epsilon = 1.5   # the default"),
        ({"epsilon_2": "0.5"}, "epsilon = 1.0   # weak on purpose", "epsilon = 0.5   # weak on purpose"),
        ({"bins_0": "0, 40, 120"}, "[0, 18, 65, 120]  # as", "[0, 40, 120]  # as"),
        ({"title": "Lungs"}, 'title = "Hearts"', 'title = "Lungs"'),
    ],
)
def test_what_is_edited_changes_and_every_comment_stays(changes: dict[str, str], was: str, becomes: str) -> None:
    assert edited(STUDY, form_of(STUDY, **changes)) == STUDY.replace(was, becomes)


def test_a_column_gets_an_epsilon_of_its_own_or_is_left_out() -> None:
    study = read_study_text(edited(STUDY, form_of(STUDY, epsilon_1="0.7")), Path())
    assert [unit.two_level for unit in study.units] == [None] * 3
    rows = {row.variable: row.epsilon for row in check(study, n=30_000).table.rows}
    assert rows == pytest.approx({"age": 2.0, "smoker": 0.7, "claims": 1.0})
    left = edited(STUDY, form_of(STUDY, in_2=None))
    assert ("claims" in left, "# since March" in left, "randomization]]" in left) == (False, True, False)


def test_one_total_is_spread_over_the_columns_of_the_party_with_the_most() -> None:
    study = read_study_text(edited(STUDY, form_of(STUDY, total="3")), Path())
    totals = dict(check(study, n=30_000).table.party_totals)
    assert totals == pytest.approx({"clinic": 3.0, "insurer": 1.5})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": "zero"}, "expected above 0"),
        ({"epsilon_1": "-1"}, "column|smoker: epsilon"),
        ({"total": "0.01"}, "less than 0.01 for each column"),
        ({"bins_0": "0, inf"}, "'inf', expected numbers"),
        ({"bins_0": "0, young"}, "column 'age': bins: got 'young'"),
        ({"bins_0": "0, true"}, "got 'true'"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, str], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        edited(STUDY, form_of(STUDY, **changes))


def test_the_review_marks_of_a_draft_are_a_checklist(tmp_path: Path) -> None:
    rows = [f"p{i},{20 + i % 60},{'yes' if i % 3 else 'no'}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["id,age,smoker", *rows]) + "\n")
    text = draft_study({"clinic": tmp_path / "t.csv"}, wording=Wording()).text
    design = design_of(text)
    assert design.to_review == ("title", "purpose", "age", "smoker")
    done = edited(
        text,
        form_of(text, title="Hearts", purpose="Find out", public_0="on", public_1="on", reviewed="on", id="hearts"),
    )
    assert design_of(done).to_review == ()
    assert read_study_text(done, tmp_path, by_owner=True).reviewed
    assert text.count("#") == done.count("#")  # every comment


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "broken.toml").write_text("schema =")
    files = [tmp_path / "study.toml", tmp_path / "broken.toml", tmp_path / "missing.toml"]
    with served(design_server(files, ("127.0.0.1", 0))) as server:
        yield Visitor(server)


def test_the_plan_is_that_of_check_and_follows_the_form(visitor: Visitor) -> None:
    fields = visitor.page("0/").fields
    result = check(read_study_text(STUDY, Path()), n=50_000)
    status, page = visitor.send("0/plan", {**fields, **form_of(STUDY), "n": "50000"})
    assert status == 200
    assert f"{result.prediction.two_way:.2g} in tables of two columns" in page.text
    assert f"independent columns: {result.prediction.independent:.2g}" in page.text
    for row in result.table.rows:
        assert f"{row.effective_records:,.0f}" in page.text
    for model in ("central", "peer", "masked"):
        assert model in page.text
    weaker = visitor.send("0/plan", {**fields, **form_of(STUDY, epsilon="0.2"), "n": "50000"})[1]
    assert "too few" in weaker.text
    assert "Relations that drown" in weaker.text
    wrong = visitor.send("0/plan", {**fields, **form_of(STUDY, bins_0="5, 3"), "n": "50000"})[1]
    assert "STUDY_INVALID" in wrong.text
    assert "expected a whole number" in visitor.send("0/plan", {**fields, **form_of(STUDY), "n": "many"})[1].text


def test_texts_of_a_study_stay_texts(tmp_path: Path) -> None:
    markup = "<script>alert(1)</script> & {{ 7 * 7 }}"
    text = STUDY.replace('"Hearts"', f"'{markup}'").replace(
        'categories = ["no", "yes"]', f"categories = ['{markup}', 'yes']"
    )
    (tmp_path / "study.toml").write_text(text)
    with served(design_server([tmp_path / "study.toml"], ("127.0.0.1", 0))) as server:
        visitor = Visitor(server)
        pages = [visitor.page(), visitor.page("0/")]
        pages.append(visitor.send("0/plan", {**pages[1].fields, **form_of(text, bins_0=markup)})[1])
    assert all(markup in page.text for page in pages[:2])
    assert "STUDY_INVALID" in pages[2].text
    assert all("<script>alert" not in page.html and page.handlers == [] for page in pages)


@pytest.mark.whole
def test_three_hundred_columns_have_their_plan(tmp_path: Path) -> None:
    variable = '[[variable]]\nparty = "clinic"\nname = "c{}"\ncategories = ["a", "b", "c", "d", "e"]\n'
    text = STUDY.replace(
        "[randomization_default]", "".join(map(variable.format, range(300))) + "[randomization_default]"
    )
    (tmp_path / "study.toml").write_text(text)
    with served(design_server([tmp_path / "study.toml"], ("127.0.0.1", 0))) as server:
        visitor = Visitor(server)
        page = visitor.page("0/")
        assert page.html.count("data-column") == 303
        form = {**page.fields, **form_of(text, total="30")}  # more than a thousand fields
        plan = visitor.send("0/plan", form)[1]
        assert "What follows" in plan.text
        assert visitor.send("0/save", form)[0] == 303


def test_saving_writes_the_file_whole_and_never_over_what_changed_elsewhere(visitor: Visitor, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    fields = visitor.page("0/").fields
    status, page = visitor.send("0/save", {**fields, **form_of(STUDY, epsilon="1.5")})
    assert (status, "Saved study.toml" in page.text) == (303, True)
    saved = STUDY.replace("epsilon = 2.0   #", "epsilon = 1.5   #")
    assert path.read_text() == saved
    status, page = visitor.send("0/save", {**fields, **form_of(STUDY, epsilon="1.0")})
    assert (status, "has changed since the page was loaded" in page.text) == (422, True)
    seen = visitor.page("0/").fields
    wrong = {**seen, **form_of(saved, bins_0="9, 1")}
    status, page = visitor.send("0/save", wrong)
    assert (status, "Nothing was saved" in page.text) == (422, True)
    status, page = visitor.send("0/save", wrong, HX_Request="true")
    assert (status, page.text.startswith("Nothing was saved; your edits are still here")) == (422, True)
    assert "main" not in page.tags  # a part that stands beside the form, which stays
    assert path.read_text() == saved


def test_bins_of_dates_are_edited_as_they_are_typed() -> None:
    dates = STUDY.replace("bins = [0, 18, 65, 120]", "bins = [1930-01-01, 1960-01-01, 2000-01-01]").replace(
        'name = "age"', 'name = "age"\ntype = "date"'
    )
    assert edited(dates, form_of(dates)) == dates
    new = edited(dates, form_of(dates, bins_0="1930-01-01, 1950-06-30, 2000-01-01"))
    assert "bins = [1930-01-01, 1950-06-30, 2000-01-01]  # as the ministry has them" in new
    assert next(iter(read_study_text(new, Path()).schema)).name == "age"


def test_a_file_that_cannot_be_read_is_named(visitor: Visitor) -> None:
    page = visitor.page("")
    assert "broken.toml STUDY_INVALID: not TOML: line 1" in page.text
    assert "missing.toml" in page.text
    assert "FILE_MISSING" in page.text
    assert "STUDY_INVALID" in visitor.page("1/", 404).text
    assert "names no file" in visitor.page("7/", 404).text


def test_a_study_of_one_owner_has_the_owner_s_plan(tmp_path: Path) -> None:
    one = STUDY.replace('[[party]]\nname = "insurer"  # since March\n', "").replace(
        'party = "insurer"', 'party = "clinic"'
    )
    page = plan_page(one, tmp_path, n=20_000, today=TODAY)
    assert (page.problem, page.owner is not None) == ("", True), page
    assert page.n_relations == 3
    assert "nearer" in page.nearer


def test_the_command_names_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "ui", str(tmp_path / "no.toml"), "--listen", "127.0.0.1:0"]) == 2
    assert "FILE_MISSING" in capsys.readouterr().err


def test_bins_that_are_measured_are_said_and_no_edit_touches_them() -> None:
    text = """id = "a"
[[party]]
name = "owner"
[[variable]]
party = "owner"
name = "age"
type = "integer"
bins = "private"  # measured
bounds = [0, 120]
"""
    (column,) = design_of(text).columns
    assert (column.bins, column.bounds) == ("", "0 and 120")
    assert 'bins = "private"  # measured' in edited(text, {"in-0": "yes"})

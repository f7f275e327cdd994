"""A draft is no release: a study that its author has not reviewed is refused wherever it would be acted on, by column."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import verticil.api as vt
from support.documents import party_toml
from support.site_folder import task_of, write_site
from verticil.analyst.check import check
from verticil.analyst.lint import refuse_hopeless
from verticil.cli.main import main
from verticil.curator import synthesize
from verticil.gan.generate import generate
from verticil.party.config import load_party
from verticil.party.dataset.perturb import codebook_digest
from verticil.party.operator import commands
from verticil.party.operator.peer_commands import load_study
from verticil.party.operator.pending_studies import show
from verticil.party.site import Site
from verticil.shared.core.errors import Misuse
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import origin_words
from verticil.shared.study.reading import read_study, read_study_text
from verticil.simulation import simulate
from verticil.simulation.analyst import carry_out
from verticil.simulation.containers import lay_out_containers

N = 4000
MARKS = {
    "unreviewed": ("draft.reviewed", "not reviewed: the categories of 2 columns (smoker, age) are those of a draft"),
    "title": ("title", "still reads 'Draft'"),
    "purpose": ("purpose", "still reads 'To be written'"),
}


def people() -> pd.DataFrame:
    draw = np.random.default_rng(5)
    return pd.DataFrame(
        {"smoker": np.array(["no", "yes"])[draw.integers(0, 2, N)], "age": 18 + (draw.random(N) * 72).astype(int)}
    )


def text_of(*open_marks: str) -> str:
    """A drafted study, finished but for these marks."""
    drafted = vt.study.draft({"clinic": people()}, bins=True)
    if "title" not in open_marks:
        drafted = drafted.replace(title="Smoking and age")
    if "purpose" not in open_marks:
        drafted = drafted.replace(purpose="How smoking goes with age")
    if "unreviewed" not in open_marks:
        drafted = drafted.mark_reviewed()
    return drafted.to_toml()


@pytest.fixture(params=MARKS)
def mark(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def draft(tmp_path: Path, mark: str) -> Path:
    """A study's file with one mark open, beside its table."""
    people().to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "study.toml").write_text(text_of(mark), encoding="utf-8")
    return tmp_path / "study.toml"


def site(folder: Path) -> Path:
    write_site(folder, party_toml())
    return folder / "party.toml"


def analyst(folder: Path, study: Path) -> Path:
    (folder / "study.toml").write_text(study.read_text())
    return folder


ACTS: dict[str, Callable[[Path, Study, Path], object]] = {
    "submit": lambda _, study, __: refuse_hopeless(study),
    "submit by a simulated analyst": lambda path, _, place: asyncio.run(
        carry_out(analyst(place, path), place / "release", step=lambda _line: None)
    ),
    "load": lambda path, _, place: load_study(load_party(site(place)), path),
    "load a value": lambda _, study, place: load_study(load_party(site(place)), study),
    "simulate": lambda path, _, __: simulate(path, path.with_name("clinic.csv")),
    "simulate a value": lambda path, study, __: simulate(study, path.with_name("clinic.csv")),
    "simulate in Python": lambda path, _, __: vt.simulate(path, path.with_name("clinic.csv")),
    "simulate a value in Python": lambda path, _, __: vt.simulate(
        vt.study.read(path).resolved, path.with_name("clinic.csv")
    ),
    "lay out containers": lambda path, study, place: lay_out_containers(
        place, path, study, path.with_name("clinic.csv"), id_column="id", seed=1
    ),
    "synthesize": lambda path, _, __: synthesize(path.with_name("clinic.csv"), path),
    "synthesize and compare": lambda path, _, __: synthesize(path.with_name("clinic.csv"), path, compare=True),
    "train a generator": lambda path, _, __: generate(path.with_name("clinic.csv"), path),
    "synthesize a value in Python": lambda path, _, __: vt.synthesize(
        path.with_name("clinic.csv"), vt.study.read(path)
    ),
}


@pytest.mark.parametrize("act", ACTS)
def test_no_act_takes_a_draft_and_each_names_what_is_open(act: str, draft: Path, mark: str, tmp_path: Path) -> None:
    (place := tmp_path / "place").mkdir()
    with pytest.raises(Misuse) as caught:
        ACTS[act](draft, read_study(draft), place)
    where, message = MARKS[mark]
    assert (caught.value.code, caught.value.exit_code) == ("UNREVIEWED", 2)
    assert f"{where}: {message}" in caught.value.message
    assert sum(text in caught.value.message for _, text in MARKS.values()) == 1
    assert not (tmp_path / "verticil-curator").exists()  # nothing was opened, charged or written


@pytest.mark.parametrize(
    "words",
    [
        "study submit {study}",
        "study run {study} --on local --table {table} --out {out}",
        "study run {study} --on compose --prepare --table {table} --out {out}",
        "study run {study} --on prod --out {out}",
        "simulate {study} --table {table} --out {out}",
        "synthesize {table} --study {study} --epsilon 1 --out {out}",
        "synthesize {table} --study {study} --epsilon 1 --out {out} --compare",
        "party load {study} --config {party}",
    ],
)
def test_no_command_takes_a_draft(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people().to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "study.toml").write_text(text_of("unreviewed"), encoding="utf-8")
    places = {
        "study": tmp_path / "study.toml",
        "table": tmp_path / "clinic.csv",
        "out": tmp_path / "out",
        "party": site(tmp_path),
    }
    assert main([*words.format(**places).split(), "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "UNREVIEWED"
    assert "smoker, age" in error["message"]
    assert "reviewed = true" in error["hint"]
    assert not (tmp_path / "out").exists()


@pytest.mark.whole
def test_simulate_alone_runs_a_draft_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for party, column in (("clinic", "smoker"), ("insurer", "age")):
        people()[[column]].rename_axis("id").reset_index().to_csv(tmp_path / f"{party}.csv", index=False)
    tables = {party: tmp_path / f"{party}.csv" for party in ("clinic", "insurer")}
    drafted, given = vt.study.draft(tables), {"method": "given", "max_parents": None, "seed": None}
    data = [word for party, path in tables.items() for word in ("--data", f"{party}={path}")]
    for model in ("central", "peer"):
        study = drafted.replace(model=model, structure={**given, "parents": {"age": ["smoker"]}})
        path = study.save(tmp_path / f"{model}.toml")
        words = ["simulate", str(path), *data, "--seed", "1", "--out", str(tmp_path / f"of-{model}")]
        assert main(words) == 2
        assert main([*words, "--unreviewed"]) == 0
        capsys.readouterr()
    assert vt.simulate(study, tables, seed=1, unreviewed=True).n_common == N


@pytest.mark.parametrize("mark_left", MARKS)
def test_check_says_first_that_a_study_is_a_draft(
    mark_left: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.toml").write_text(text_of(mark_left), encoding="utf-8")
    where, message = MARKS[mark_left]
    assert main(["study", "check", str(tmp_path / "study.toml"), "--n", str(N)]) == 6
    assert capsys.readouterr().out.startswith(f"error unreviewed {where}: {message}")
    findings = check(read_study(tmp_path / "study.toml"), n=N).findings
    assert (findings[0].code, findings[0].where) == ("unreviewed", where)
    assert sum(finding.code == "unreviewed" for finding in findings) == 1


def test_the_mark_is_no_part_of_the_study_and_where_categories_come_from_is() -> None:
    draft = vt.study.Study(text=text_of("unreviewed"))
    reviewed = draft.mark_reviewed()
    assert (draft.is_reviewed, reviewed.is_reviewed) == (False, True)
    assert draft.digest == reviewed.digest
    assert b'"draft"' not in canonical.to_bytes(draft.resolved).replace(b'"id":"draft"', b"")
    carried = canonical.from_bytes(canonical.to_bytes(reviewed.resolved))
    assert [variable.origin for variable in carried.schema.variables] == ["table", "table"]
    public = reviewed.with_variable("age", from_="public")
    assert public.digest != reviewed.digest
    silent = public.with_variable("age", from_=None).with_variable("smoker", from_=None)
    assert b'"from"' not in canonical.to_bytes(silent.resolved)
    assert dict(public.variables["from"]) == {"smoker": "table", "age": "public"}


def test_a_study_that_loses_its_mark_is_a_draft_as_long_as_a_column_is_of_a_table() -> None:
    draft = vt.study.Study(text=text_of("unreviewed")).replace(draft=None)
    assert not draft.is_reviewed
    assert draft.with_variable("age", from_="public").with_variable("smoker", from_="public").is_reviewed


def test_the_reviewed_study_is_taken_by_whatever_refused_the_draft(tmp_path: Path) -> None:
    people().to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "study.toml").write_text(text_of(), encoding="utf-8")
    study = read_study(tmp_path / "study.toml")
    refuse_hopeless(study)
    found = synthesize(tmp_path / "clinic.csv", tmp_path / "study.toml", out=tmp_path / "out")
    assert found.n_records == N
    report = (tmp_path / "out" / "release" / "report.html").read_text(encoding="utf-8")
    assert (
        "The categories of 2 columns (smoker, age) were taken from the data themselves: no noise covers them." in report
    )
    published = json.loads((tmp_path / "out" / "release" / "study.json").read_text())
    assert [variable["from"] for variable in published["variables"]] == ["table", "table"]


def test_a_report_says_of_each_column_where_its_categories_come_from_or_nothing_at_all() -> None:
    study = vt.study.Study(text=text_of())
    mixed = study.with_variable("smoker", from_="public").with_variable("age", from_=None)
    assert origin_words(mixed.resolved) == (
        "The categories of 1 column (smoker) are public knowledge, as the study's author states.",
        "The categories of 1 column (age) come from a source that the study does not state.",
    )
    assert origin_words(mixed.with_variable("smoker", from_=None).resolved) == ()


def test_to_say_where_categories_come_from_draws_nothing_anew(tmp_path: Path) -> None:
    """Else the noise of a column could be averaged away by saying it in another way."""
    study = vt.study.Study(text=text_of())
    other = study.with_variable("age", from_="public").with_variable("smoker", from_=None)
    assert study.digest != other.digest
    for one, same in zip(study.resolved.schema.variables, other.resolved.schema.variables, strict=True):
        assert one != same
        assert codebook_digest(one, {}) == codebook_digest(same, {})
    first = synthesize(people(), study.resolved, state=tmp_path / "keys")
    again = synthesize(people(), other.resolved, state=tmp_path / "keys")
    assert (first.spending.again, again.spending.again) == (False, True)
    assert again.spending.total == first.spending.total


@pytest.mark.parametrize("key", ["title", "purpose"])
def test_an_officer_cannot_approve_what_reads_like_a_draft(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study that came as bytes was asked for its review where it was a file; its texts are asked again."""
    study = dataclasses.replace(read_study_text(text_of(key), tmp_path), reviewed=True)
    config = site(tmp_path)
    with Site.open(load_party(config)) as opened:
        task = task_of(study)
        opened.state.remember(task, study.id, utc_now())
    with pytest.raises(Misuse, match=MARKS[key][1]) as caught:
        commands.approve(load_party(config), "draft", "officer")
    assert caught.value.code == "UNREVIEWED"
    assert main(["party", "show", "draft", "--config", str(config)]) == 0
    assert "The categories of 2 columns (smoker, age) were taken from the data themselves" in capsys.readouterr().out
    assert show(load_party(config), "draft").origins == origin_words(study)


@pytest.mark.parametrize(
    ("marks", "problem"),
    [
        ("[draft]\nreviewed = true\n", "schema: missing"),
        ("[draft]\n", "schema: missing"),
        (None, r"draft\.reviewed: missing"),
        ("[draft]\nreviewed = 1\n", r"draft\.reviewed: "),
        ("[draft]\nrevewed = true\n", r"draft\.revewed: "),
        ('draft = "no"\n', "draft: "),
    ],
)
def test_a_study_of_draft_marks_alone_or_with_wrong_ones_is_one_clean_error(
    marks: str | None, problem: str, tmp_path: Path
) -> None:
    whole = text_of("unreviewed")
    text = whole.replace("reviewed = false", "# nothing") if marks is None else marks
    if marks is not None and "schema" not in problem:
        text = f"{marks if marks.startswith('draft') else ''}{whole.partition('[draft]')[0]}" + (
            marks if marks.startswith("[") else ""
        )
        text += "[[party]]" + whole.partition("[[party]]")[2]
    with pytest.raises(Misuse, match=problem) as caught:
        read_study_text(text, tmp_path)
    assert caught.value.code == "STUDY_INVALID"


def test_where_from_is_one_of_two_words(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"from: got 'tabel', expected one of table, public"):
        read_study_text(text_of().replace('from = "table"', 'from = "tabel"', 1), tmp_path)


# ---- synthesize, which has the table


def warned(folder: Path, study: vt.Study, **how: float) -> list[str]:
    study.save(folder / "own.toml")
    people().to_csv(folder / "people.csv", index=False)
    return list(synthesize(folder / "people.csv", folder / "own.toml", **how).warnings)  # type: ignore[arg-type]


def test_categories_and_ends_that_are_exactly_the_tables_are_said_by_column_and_never_by_value(tmp_path: Path) -> None:
    ages = people()["age"]
    own = vt.study.Study(text=text_of()).with_variable("age", bins=[int(ages.min()), 40, 95])
    (warning,) = [words for words in warned(tmp_path, own) if "exactly those of the table" in words]
    assert warning.startswith("the categories of smoker and the outer ends of age are exactly those of the table")
    assert not {"'no'", "'yes'", str(ages.min()), "40", "95"} & set(warning.replace(",", " ").split())


@pytest.mark.parametrize(
    ("bins", "is_said"), [([17, 40, 95], False), ([17, 40, 89], True), ([17, 40, 90], True), ([18, 40, 95], True)]
)
def test_an_outer_end_is_the_tables_when_it_is_its_least_or_largest_number(
    bins: list[int], is_said: bool, tmp_path: Path
) -> None:
    assert (people()["age"].min(), people()["age"].max()) == (18, 89)
    own = vt.study.Study(text=text_of()).with_variable("smoker", from_="public").with_variable("age", bins=bins)
    assert any("the outer ends of age are exactly" in words for words in warned(tmp_path, own)) is is_said


@pytest.mark.parametrize(
    ("labels", "more", "is_said"),
    [
        (["no", "yes"], {}, True),
        (["no", "yes", "never asked"], {}, False),
        (["no", "yes", "unknown"], {"missing": {"category": "unknown", "spellings": [""]}}, True),
        (["no", "other"], {"other": "other"}, False),
        (["no", "maybe"], {}, False),
        (["no", "yes"], {"from_": "public"}, False),
    ],
)
def test_categories_are_the_tables_when_it_has_all_of_them_and_no_other(
    labels: list[str], more: dict[str, object], is_said: bool, tmp_path: Path
) -> None:
    own = vt.study.Study(text=text_of()).with_variable("age", from_="public")
    own = own.with_variable("smoker", categories=labels, **more)
    assert any("the categories of smoker are exactly" in words for words in warned(tmp_path, own)) is is_said


def test_categories_are_not_the_tables_when_it_has_a_value_that_none_is_for(tmp_path: Path) -> None:
    own = vt.study.Study(text=text_of()).with_variable("age", from_="public")
    frame = people()
    frame.loc[7, "smoker"] = "sometimes"
    found = synthesize(frame, own.resolved, state=tmp_path / "keys")
    assert not any("exactly those of the table" in words for words in found.warnings)
    assert any("'smoker' 1" in words for words in found.warnings)


@pytest.mark.whole
def test_a_delta_of_more_than_a_hundredth_of_one_in_the_number_of_people_is_said(tmp_path: Path) -> None:
    own = vt.study.Study(text=text_of()).with_variable("age", from_="public").with_variable("smoker", from_="public")
    for place, delta, is_said in (("a", 0.01 / N, False), ("b", 0.0101 / N, True)):
        (tmp_path / place).mkdir()
        words = warned(tmp_path / place, own, epsilon=1.0, delta=delta)
        assert any("publishing somebody's record as it is with a chance of 1.01 %" in item for item in words) is is_said

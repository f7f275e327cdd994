"""Arguments of the Python API: what does not fit is one of the commands' errors, before anything is done, and tells no value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verticil.api as vt
from verticil.shared.core.errors import DataFault, Misuse

FRAME = pd.DataFrame({"id": range(60), "smoker": ["yes", "no", "no"] * 20, "age": [20 + place for place in range(60)]})
RELEASE: Any = object.__new__(vt.Release)
"""A release without anything: whatever reads of it fails otherwise."""


@pytest.fixture(scope="module")
def study() -> vt.Study:
    return vt.study.draft({"clinic": FRAME}, title="Hearts", purpose="A trial", bins=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: vt.load(None), "path: got None, expected a path"),
        (lambda _: vt.load("made", fingerprint=5), "fingerprint: got an int, expected text"),
        (lambda _: RELEASE.query("age", given=["x"]), "given: got a list, expected a mapping such as {'name': value}"),
        (lambda _: RELEASE.query("age", given={1: "x"}), "given, a key: got an int, expected text"),
        (lambda _: RELEASE.query("age", source=5), "source: got an int, expected joint or network"),
        (lambda _: RELEASE.regress(5), "formula: got an int, expected text"),
        (lambda _: RELEASE.regress("age ~ smoker", level="x"), "level: got text, expected a number"),
        (lambda _: RELEASE.tabulate(["age", "smoker"]), "columns: got a list, expected text"),
        (lambda _: RELEASE.sample(1.5), "n: got a float, expected a whole number"),
        (lambda _: RELEASE.sample(True), "n: got a bool, expected a whole number"),
        (lambda _: RELEASE.sample(5, seed=None), "seed: got None, expected a whole number"),
        (lambda _: RELEASE.sample(10**12), "n: got 1,000,000,000,000, expected at most 100,000,000"),
        (lambda study: study.check(n="a"), "n: got text, expected a whole number"),
        (lambda study: vt.synthesize(FRAME, study, seed=1.0), "seed: got a float, expected a whole number"),
        (lambda study: vt.synthesize(FRAME, study, dataset=5), "dataset: got an int, expected text"),
        (lambda study: vt.synthesize(FRAME, study, method="joit"), "method: got 'joit', expected joint, network, "),
        (lambda study: vt.synthesize(FRAME, study, budget=float("nan")), "budget: got nan, expected a number"),
        (lambda study: vt.synthesize(FRAME, study, tables=FRAME), "tables: got a DataFrame, expected a mapping from names of "),
        (lambda _: vt.synthesize(FRAME, None), "study: got None, expected a Study or a path"),
        (lambda _: vt.evaluate(FRAME, {1: FRAME}), "synthetic, a key: got an int, expected text"),
        (lambda _: vt.evaluate(FRAME, FRAME, seed=-1), "seed: got -1, expected 0 or more"),
        (lambda _: vt.evaluate(FRAME, FRAME, only="distancs"), "unknown metric 'distancs'"),
        (lambda study: vt.simulate(study, [FRAME]), "tables: got a list, expected a mapping such as {'name': value}, a file "),
        (lambda study: vt.simulate(study, FRAME, progress=3), "progress: got an int, expected a function"),
        (lambda _: vt.study.draft(FRAME), "tables: got a DataFrame, expected a mapping from party to table, such as {'owner': "),
        (lambda _: vt.study.draft({"clinic": FRAME}, public="no"), "public: got text, expected True or False"),
    ],
)  # fmt: skip
def test_an_argument_that_does_not_fit_is_named_with_what_is_expected(
    study: vt.Study, call: Callable[[vt.Study], object], message: str
) -> None:
    with pytest.raises(Misuse) as caught:
        call(study)
    assert caught.value.code == "USAGE"
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_numbers_of_numpy_are_numbers_and_python_speaks_of_what_is_missing(study: vt.Study) -> None:
    assert study.check(n=np.int64(500)).to_dict() == study.check(n=500).to_dict()
    with pytest.raises(TypeError, match=r"sample\(\) missing 1 required positional argument: 'n'"):
        RELEASE.sample()


def functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Functions and methods of the API that take an argument, but for values that other code makes."""
    yield from (("study.draft", vt.study.draft), ("study.read", vt.study.read))
    for name in vt.__all__:
        member = getattr(vt, name)
        if inspect.isfunction(member):
            yield name, member
        elif inspect.isclass(member) and member.__module__.startswith("verticil.api"):
            yield from (
                (f"{name}.{key}", each)
                for key, each in vars(member).items()
                if inspect.isfunction(each) and not key.startswith("_")
            )


def test_every_function_of_the_api_checks_its_arguments() -> None:
    takes = {
        name: function
        for name, function in functions()
        if any(
            parameter.annotation is not parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
            for parameter in inspect.signature(function).parameters.values()
        )
    }
    assert len(takes) > 25
    assert [name for name, function in takes.items() if not hasattr(function, "__wrapped__")] == []


def test_a_related_table_is_drafted_by_the_id_that_is_named() -> None:
    people = pd.DataFrame(
        {"who": range(60), "smoker": ["yes", "no", "no"] * 20, "age": [20 + place for place in range(60)]}
    )
    visits = pd.DataFrame({"who": [place // 2 for place in range(120)], "ward": ["east", "west", "east"] * 40})
    tables = {"clinic": people, "clinic.visits": visits}
    with pytest.raises(DataFault) as caught:
        vt.study.draft(tables)
    assert "in Python id_column=" in caught.value.hint
    drafted = vt.study.draft(tables, id_column="who", public_columns="smoker")
    assert [table.name for table in drafted.resolved.related] == ["visits"]
    assert dict(drafted.variables["from"].dropna())["smoker"] == "public"
    assert list(vt.study.draft({"clinic": people}, columns=people.columns[1:2]).variables.index) == ["smoker"]
    for name in ("a/b", "../b", "x" * 300):
        with pytest.raises(Misuse, match="got the party name"):
            vt.study.draft({name: people})


def test_values_of_numpy_and_pandas_are_written_and_others_are_refused_by_key(study: vt.Study) -> None:
    plain = study.with_variable("age", bins=[20, 40, 100]).to_toml()
    for bins in (np.arange(20, 120, 20)[[0, 1, 4]], [np.int64(20), 40, 100], pd.Series([20, 40, 100]), {100, 20, 40}):
        assert study.with_variable("age", bins=bins).resolved.schema[1].bins == (20.0, 40.0, 100.0)
    assert study.with_variable("age", bins=np.array([20, 40, 100])).to_toml() == plain
    assert study.replace(structure={"max_parents": np.int64(1)}).resolved.structure.max_parents == 1
    assert study.replace(release={"pairs": None}).with_variable("age", name="years").resolved.schema.names == (
        "smoker",
        "years",
    )
    for call, key in (
        (lambda: study.replace(title=object()), "title"),
        (lambda: study.replace(structure={"max_parents": object()}), "max_parents"),
        (lambda: study.with_variable("age", bins=[20, pd.NA]), "bins"),
        (lambda: study.with_randomization("age", epsilon=object()), "epsilon"),
    ):
        with pytest.raises(Misuse, match=f"^STUDY_INVALID: {key}: a "):
            call()


def test_a_file_that_is_no_study_is_named(study: vt.Study, tmp_path: Path) -> None:
    (tmp_path / "codes.csv").write_text("code,label\n1,yes\n")
    with pytest.raises(Misuse, match=r"codes\.csv: not TOML"):
        vt.study.read(tmp_path / "codes.csv")
    (tmp_path / "hearts.toml").write_text(study.to_toml() + "\n[structre]\n")
    with pytest.raises(Misuse, match=r"hearts\.toml: structre"):
        vt.study.read(tmp_path / "hearts.toml")

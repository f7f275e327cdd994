"""``import verticil.api as vt``: what it shows is what the commands print, of one real release, by every way that it has."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verticil.api as vt
from verticil.api import optional
from verticil.api.federation import run_coroutine
from verticil.api.frames import type_columns
from verticil.cli.main import main
from verticil.shared.core.errors import DataFault, GateFailed, Misuse
from verticil.shared.core.installation import install_package
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.synthesis.synthesis import decode

Run = Callable[..., Any]
SEED = 3


def people(n: int = 1500) -> dict[str, pd.DataFrame]:
    """Two parties' tables of the same made-up people; a smoker is heavier, and who is heavy earns less."""
    generator = np.random.default_rng(11)
    smoker = generator.random(n) < 0.3
    age = generator.integers(18, 90, n)
    weight = np.round(60 + 25 * smoker + 8 * generator.standard_normal(n), 1)
    weight[generator.random(n) < 0.1] = np.nan
    rich = generator.random(n) < np.where(np.nan_to_num(weight, nan=70) > 75, 0.15, 0.6)
    clinic = pd.DataFrame({"id": range(n), "smoker": np.where(smoker, "yes", "no"), "age": age})
    clinic.loc[generator.random(n) < 0.05, "smoker"] = "?"
    insurer = pd.DataFrame({"id": range(n), "weight": weight, "income": np.where(rich, ">50K", "<=50K")})
    return {"clinic": clinic, "insurer": insurer}


@dataclass(frozen=True, kw_only=True)
class Made:
    folder: Path
    tables: dict[str, Path]
    study: Path
    said: dict[str, Any]
    release: vt.Release


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A release that the command made: a study that was drafted, edited and written by the library."""
    folder = tmp_path_factory.mktemp("api")
    frames, tables = people(), {}
    for name, frame in frames.items():
        tables[name] = folder / f"{name}.csv"
        frame.to_csv(tables[name], index=False)
    study = vt.study.draft(tables, title="Hearts", purpose="A trial", means=True)
    study = study.replace(id="hearts", structure={"method": "tree", "max_parents": 1}).mark_reviewed()
    study.save(folder / "study.toml")
    arguments = [f"{name}={path}" for name, path in tables.items()]
    out = folder / "trial"
    command = ["simulate", str(folder / "study.toml"), "--out", str(out), "--seed", str(SEED), "--format", "json"]
    answer = said([*command, *(word for item in arguments for word in ("--data", item))])
    return Made(
        folder=folder, tables=tables, study=folder / "study.toml", said=answer,
        release=vt.load(out / "release", ca=out / "ca.crt"),
    )  # fmt: skip


def said(arguments: list[str], code: int = 0) -> Any:
    """What a command prints as JSON."""
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        assert main(arguments) == code, stream.getvalue()
    return json.loads(stream.getvalue())


# ---- the same as the commands


@pytest.mark.whole
def test_a_simulation_is_the_commands_release(made: Made) -> None:
    steps: list[tuple[str, float | None]] = []
    release = vt.simulate(
        vt.study.read(made.study), people(), seed=SEED, progress=lambda what, part: steps.append((what, part))
    )
    assert release.document == made.release.document
    assert (release.path / "synthetic.csv").read_bytes() == (made.release.path / "synthetic.csv").read_bytes()
    assert type(release) is type(made.release)
    assert [list(edge) for edge in release.network.edges] == made.said["edges"]
    assert release.n_common == made.said["common_records"]
    assert release.epsilon_per_person == made.said["epsilon_per_person"]
    assert len(release.table()) == made.said["synthetic_records"]
    assert steps[-1] == ("published", None)
    assert release.run is not None
    assert made.release.run is None
    path = release.path
    assert path.is_dir()
    del release
    gc.collect()
    assert not path.exists()


@pytest.mark.whole
def test_verification_is_the_commands(made: Made) -> None:
    folder, ca = str(made.release.path), str(made.release.path.parent / "ca.crt")
    assert made.release.verify() == said(["release", "verify", folder, "--ca", ca, "--format", "json"])
    fingerprint = made.release.verify()["authority_sha256"]
    assert made.release.verify(fingerprint=fingerprint) == said(
        ["release", "verify", folder, "--fingerprint", fingerprint, "--format", "json"]
    )


def test_estimates_come_as_frames_with_what_they_rest_on(made: Made) -> None:
    parent, child = made.release.network.edges[0]
    table = made.release.tabulate(parent, child)
    assert list(table.columns) == ["estimate", "standard_error", "low", "high"]
    assert table.index.names == [parent, child]
    assert table.attrs["people"] == made.release.n_common
    shares = made.release.joint(parent, child)["estimate"]
    assert (table["estimate"] - shares).abs().max() < 0.05
    assert table["estimate"].sum() == pytest.approx(1.0)
    category = made.release.variables.loc[child, "categories"][0]
    frame = made.release.regress(f"`{child}` == '{category}' ~ C(`{parent}`)", level=0.9)
    assert frame.index[0] == "Intercept"
    assert (frame["low"] < frame["high"]).all()
    assert frame.attrs["reference"].keys() == {parent}
    with pytest.raises(Misuse, match="did you mean 'smoker'"):
        made.release.tabulate("smokre")


@pytest.mark.parametrize(
    "given",
    [{}, {"income": ">50K"}, {"smoker": "yes", "age": 40}, {"weight": "80.5", "income": "<=50K"}],
    ids=["everybody", "one", "two", "bins"],
)
def test_an_answer_is_the_commands(made: Made, given: dict[str, object]) -> None:
    target = "smoker" if "smoker" not in given else "weight"
    words = [word for name, value in given.items() for word in ("--given", f"{name}={value}")]
    answer = said(["release", "query", str(made.release.path), target, *words, "--format", "json"])
    frame = made.release.query(target, given=given)
    shares = answer.pop("shares")
    assert frame.attrs == answer
    assert list(frame.index) == [share["category"] for share in shares]
    assert list(frame["probability"]) == [share["probability"] for share in shares]
    assert list(frame["network"]) == [share["network"] for share in shares]
    ends = [share["interval"] or [np.nan, np.nan] for share in shares]
    np.testing.assert_array_equal(frame[["low", "high"]].to_numpy(), np.array(ends))
    assert abs(frame["probability"].sum() - 1) < 1e-12


def test_more_records_are_the_commands(made: Made) -> None:
    out = made.folder / "more.parquet"
    words = ["--given", "income=>50K", "--seed", "5", "--out", str(out), "--format", "json"]
    said(["release", "sample", str(made.release.path), "-n", "300", *words])
    written = pd.read_parquet(out)
    drawn = made.release.sample(300, given={"income": ">50K"}, seed=5)
    assert list(drawn["smoker"].fillna("unknown")) == list(written["smoker"].astype("string").fillna("unknown"))
    assert list(drawn["income"].astype("str")) == [">50K"] * 300
    for name in ("age", "weight"):
        np.testing.assert_array_equal(
            drawn[name].to_numpy(float, na_value=np.nan), written[name].to_numpy(float, na_value=np.nan)
        )
    assert not drawn.equals(made.release.sample(300, given={"income": ">50K"}, seed=6))
    assert len(made.release.sample(0)) == 0


def test_shares_are_those_of_the_document_and_of_the_records(made: Made) -> None:
    document, marginals, table = made.release.document, made.release.marginals(), made.release.table(binned=True)
    for item in document["marginals"]:
        own = marginals.loc[item["variable"]]
        for column, key in (("estimate", "estimate"), ("standard_error", "standard_error"), ("network", "model")):
            assert list(own[column]) == item[key]
        assert own[["low", "high"]].to_numpy().tolist() == item["interval"]
        variable = made.release.network.variable(item["variable"])
        values = table[item["variable"]]
        counted = values.astype("str").where(values.notna(), "unknown").value_counts(normalize=True)
        expected = [counted.get(label, 0.0) for label in variable.labels]
        assert list(own["synthetic"]) == pytest.approx(expected, abs=1e-12)
    for item in document["pairs"]["tables"]:
        first, second = item["variables"]
        pair, turned = made.release.joint(first, second), made.release.joint(second, first)
        for column in ("estimate", "network", "synthetic"):
            table_of_pair = np.array(item[column])
            np.testing.assert_allclose(pair[column].to_numpy(), table_of_pair.ravel(), rtol=0, atol=1e-12)
            np.testing.assert_allclose(turned[column].to_numpy(), table_of_pair.T.ravel(), rtol=0, atol=1e-12)
        ends = np.array(item["interval"], dtype=float).reshape(-1, 2)
        np.testing.assert_array_equal(pair[["low", "high"]].to_numpy(), ends)
        assert pair.attrs["verdict"] == turned.attrs["verdict"] == item["verdict"]
    unknown = made.release.joint("age", "income")
    assert unknown["estimate"].isna().all()
    assert unknown["network"].sum() == pytest.approx(1)
    assert unknown.attrs["verdict"] == ""


def test_the_network_goes_by_names(made: Made) -> None:
    document, network = made.release.document, made.release.network
    assert [list(edge) for edge in network.edges] == document["structure"]["edges"]
    assert len(network.edges) == 2
    child = network.edges[0][1]
    assert network.parents(child) == (network.edges[0][0],)
    strengths = {
        (parent, child): share for parent, child, share in document["structure"]["search"].get("edge_strength", [])
    }
    assert dict(network.strength) == strengths
    assert list(network.edge_table()["child"]) == [child for _, child in network.edges]
    family = next(item for item in document["families"] if item["child"] == child)
    table = network.table(child)
    assert table.index.names == [*family["parents"], child]
    assert table["probability"].tolist() == [value for row in family["probability"] for value in row]
    svg = network.plot().svg
    assert svg.count("<path d='") == len(network.edges) + 1  # the tip of the arrows, too
    assert all(f">{name}</text>" in svg for name in network.nodes)


def test_a_check_is_the_commands(made: Made) -> None:
    found = vt.study.read(made.study).check(n=1500)
    for strict in (False, True):
        command = ["study", "check", str(made.study), "--n", "1500", "--format", "json", *["--strict"] * strict]
        code = 0 if (found.spotless if strict else found.ok) else 6
        assert found.to_dict(strict=strict) == said(command, code)
    with pytest.raises(Misuse, match="n: got 0"):
        vt.study.read(made.study).check(n=0)


@pytest.mark.whole
def test_one_owner_of_the_whole_table_gets_the_commands_release_and_pays_once(made: Made, tmp_path: Path) -> None:
    whole = people(600)["clinic"].merge(people(600)["insurer"], on="id").drop(columns="id")
    whole.to_csv(tmp_path / "whole.csv", index=False)
    out = tmp_path / "made"
    command = [
        "synthesize",
        str(tmp_path / "whole.csv"),
        "--study",
        str(made.study),
        "--epsilon",
        "2",
        "--method",
        "network",
    ]
    told = said([*command, "--out", str(out), "--format", "json"])
    release = vt.synthesize(
        tmp_path / "whole.csv", made.study, epsilon=2, method="network", state=tmp_path / "verticil-curator"
    )
    assert release.document == vt.load(out / "release", ca=out / "ca.crt").document
    assert release.run is not None
    assert (told["charged"], release.run.spending.again) == (True, True)
    assert release.run.spending.total.epsilon == told["in_all"]["epsilon"] == told["cost"]["epsilon"]
    assert type(release) is type(made.release)
    with pytest.raises(Misuse, match=r"out: got 'records\.csv', expected a folder"):
        vt.synthesize(tmp_path / "whole.csv", made.study, out="records.csv")


def test_an_evaluation_is_the_commands(made: Made, tmp_path: Path) -> None:
    frames = people()
    real = tmp_path / "real.csv"
    frames["clinic"].merge(frames["insurer"], on="id").drop(columns="id").to_csv(real, index=False)
    told: list[float] = []
    found = vt.evaluate(real, made.release, only=["distances"], progress=lambda _what, part: told.append(part or 0.0))
    synthetic = tmp_path / "hearts.parquet"
    synthetic.write_bytes((made.release.path / "synthetic.parquet").read_bytes())
    command = ["evaluate", "--real", real, "--synthetic", synthetic, "--study", made.study, "--only", "distances"]
    answer = said([*map(str, command), "--format", "json", "--out", str(tmp_path / "page")])
    told_besides = {"out", "exceeded"}
    assert found.to_dict() == {key: value for key, value in answer.items() if key not in told_besides}
    assert told[-1] == 1.0


# ---- types


def test_types_survive(made: Made) -> None:
    for frame in (made.release.table(), made.release.sample(500, seed=1)):
        assert str(frame["age"].dtype) == "Int64"
        assert str(frame["weight"].dtype) == "Float64"
        assert 0.02 < frame["weight"].isna().mean() < 0.3
        assert str(frame["smoker"].dtype) == "string"
        assert set(frame["smoker"].dropna()) == {"no", "yes"}
        assert frame["smoker"].isna().any()
    binned = made.release.table(binned=True)
    assert binned["age"].cat.ordered
    assert list(binned["age"].cat.categories) == list(made.release.network.variable("age").labels)
    assert (binned["weight"].isna() == made.release.table()["weight"].isna()).all()
    row = made.release.variables.loc["smoker"]
    assert (row["party"], row["kind"], row["missing"]) == ("clinic", "category", "unknown")


def test_numbers_among_words_are_numbers(made: Made) -> None:
    """A column of numbers with labels beside them, as where parties countersign: text in the files."""
    models = made.release.models
    generator = np.random.default_rng(1)
    codes = [generator.integers(0, k, 200).astype(np.uint8) for k in models.schema.n_states]
    variables = [replace(item, kind=None, decimals=None) for item in models.schema.variables]
    models = replace(models, study=None, network=replace(models.network, schema=Schema(variables=tuple(variables))))
    frame = decode(models.schema, codes, generator, with_labels=True)
    assert frame["weight"].dtype == pd.Series(["text"]).dtype  # "str" from pandas 3 on
    found = type_columns(frame, models)
    missing = codes[models.schema.index("weight")] == models.schema[models.schema.index("weight")].n_bins
    assert str(found["weight"].dtype) == "Float64"
    np.testing.assert_array_equal(found["weight"].isna().to_numpy(), missing)


# ---- shown


def test_a_release_is_shown_in_three_lines(made: Made) -> None:
    lines = repr(made.release).splitlines()
    assert lines[0] == "Release 'hearts': 4 variables of 2 parties, 2 edges, 1,500 people"
    assert lines[1].startswith("verified: signed by verticil://simulation/miner/miner, 20")
    assert lines[2] == "each person: epsilon 12 for whoever reads columns; epsilon 12 for everybody; simulated"
    assert len(lines) == 3
    for shown in (made.release.network, vt.study.read(made.study)):
        assert len(repr(shown).splitlines()) == 3
    html = made.release._repr_html_()
    assert "verified: signed by" in html
    assert "<svg" in html
    assert "<script" not in html


def test_a_drawing_is_written_once(made: Made, tmp_path: Path) -> None:
    plot = made.release.plot()
    assert plot.save(tmp_path / "network.svg").read_text(encoding="utf-8") == plot.svg
    assert plot.save(tmp_path / "new" / "folder" / "network.svg").is_file()
    with pytest.raises(Misuse, match="FILE_MISSING"):
        plot.save(tmp_path / "network.svg" / "network.svg")
    with pytest.raises(Misuse, match="exists already") as caught:
        plot.save(tmp_path / "network.svg")
    assert caught.value.code == "FILE_EXISTS"


# ---- bad input


def copied(made: Made, folder: Path) -> Path:
    return Path(shutil.copytree(made.release.path, folder / "release"))


def test_a_release_that_does_not_verify_is_never_opened_in_silence(made: Made, tmp_path: Path) -> None:
    ca = made.release.path.parent / "ca.crt"
    with pytest.raises(GateFailed, match="nothing was given to check") as caught:
        vt.load(made.release.path)
    assert caught.value.code == "RELEASE_UNTRUSTED"
    spoilt = copied(made, tmp_path)
    (spoilt / "synthetic.csv").write_bytes((spoilt / "synthetic.csv").read_bytes()[:-9])
    with pytest.raises(GateFailed, match=r"synthetic\.csv") as caught:
        vt.load(spoilt, ca=ca)
    assert caught.value.code == "RELEASE_INVALID"
    for path, anchor, code in ((spoilt, ca, "RELEASE_INVALID"), (made.release.path, None, "RELEASE_UNTRUSTED")):
        release = vt.load(path, ca=anchor, allow_unverified=True)
        assert release.verified is None
        assert release.warning.startswith(code)
        assert f"NOT VERIFIED: {code}: " in repr(release)
        assert f"NOT VERIFIED: {code}: " in release._repr_html_()
        assert len(release.sample(3)) == 3
        with pytest.raises(GateFailed):
            release.verify()
    (spoilt / "synthetic.parquet").write_bytes(b"nothing of that kind")
    with pytest.raises(GateFailed, match=r"synthetic\.parquet: is not the table of this release"):
        vt.load(spoilt, ca=ca, allow_unverified=True).table()
    document = json.loads((spoilt / "model.json").read_bytes())
    del document["privacy"]
    (spoilt / "model.json").write_text(json.dumps(document))
    with pytest.raises(GateFailed, match=r"model\.json: is not that of a release"):
        vt.load(spoilt, ca=ca, allow_unverified=True)
    for path in (tmp_path / "none", made.study):
        with pytest.raises(Misuse) as missing:
            vt.load(path, ca=ca, allow_unverified=True)
        assert missing.value.code == "FILE_MISSING"


def test_files_that_change_under_an_open_release_are_found(made: Made, tmp_path: Path) -> None:
    release = vt.load(copied(made, tmp_path), ca=made.release.path.parent / "ca.crt")
    (release.path / "synthetic.parquet").write_bytes(b"another")
    for call in (release.table, release.marginals):
        with pytest.raises(GateFailed, match="changed since it was opened") as caught:
            call()
        assert caught.value.code == "RELEASE_INVALID"
    (release.path / "added.csv").write_text("later")
    (release.path / "manifest.json").write_bytes((release.path / "manifest.json").read_bytes() + b"\n")
    for name in ("added.csv", "../ca.crt", "/etc/passwd", "", "manifest.json"):
        with pytest.raises(GateFailed, match=r"none of the files that were verified|changed since it was") as caught:
            release.file(name)
        assert caught.value.code == "RELEASE_INVALID"
    assert release.file("report.html").is_file()


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda release: release.query("incom"), "target: 'incom'", "did you mean 'income'?"),
        (lambda release: release.query("income", given={"smokr": "yes"}), "given: 'smokr'", "did you mean 'smoker'?"),
        (lambda release: release.query("income", given={"smoker": "ye"}), "given: 'ye' is not", "did you mean 'yes'?"),
        (lambda release: release.query("income", given={"age": 3}), "given: '3' is not a category of 'age'", "or a number from"),
        (lambda release: release.sample(-1), "n: got -1, expected 0 or more", ""),
        (lambda release: release.sample(3, seed=-2), "seed: got -2, expected 0 or more", ""),
        (lambda release: release.sample(3, given={"x": 1}), "given: 'x': no such variable", "its variables are"),
        (lambda release: release.sample(3, source="posterior"), "source posterior: ", "the network is there"),
        (lambda release: release.sample(3, source="Network"), "source: got 'Network', expected joint, network or ", "'network'?"),
        (lambda release: release.sample(3, sampling="independant"), "sampling: got 'independant', expected", "'independent'?"),
        (lambda release: release.query("age", source="jiont"), "source: got 'jiont', expected joint", "mean 'joint'?"),
        (lambda release: release.joint("age", "ages"), "b: 'ages': no such variable", "did you mean 'age'?"),
        (lambda release: release.joint("age", "age"), "b: 'age' is a, too", "marginals()"),
        (lambda release: release.network.table("wait"), "variable: 'wait': no such variable", "did you mean 'weight'?"),
    ],
)  # fmt: skip
def test_a_wrong_question_names_what_is_near(made: Made, call: Run, message: str, hint: str) -> None:
    with pytest.raises(Misuse) as caught:
        call(made.release)
    assert caught.value.code == "USAGE"
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_frames_that_no_table_can_hold_are_refused(made: Made) -> None:
    frames = people(60)
    with pytest.raises(
        DataFault, match="the table of 'clinic': column 'smoker' has values of different types"
    ) as caught:
        vt.simulate(made.study, frames | {"clinic": frames["clinic"].assign(smoker=[1, "a"] * 30)})
    assert caught.value.code == "DATA_UNREADABLE"
    with pytest.raises(DataFault, match="a column's name is no text"):
        vt.study.draft({"clinic": frames["clinic"].rename(columns={"age": 3})})
    with pytest.raises(Misuse, match="no such party"):
        vt.simulate(made.study, frames | {"bank": frames["clinic"]})
    clinic = frames["clinic"]
    with pytest.raises(DataFault, match="column 'age' has values of different types, or of one that no Parquet file"):
        vt.simulate(made.study, frames | {"clinic": clinic.assign(age=2**70)})
    ages = clinic["age"].astype(float)
    for column, kind, instead in (
        (pd.to_timedelta(ages, unit="D"), "timedelta64", ".dt.total_seconds()"),
        (pd.PeriodIndex([f"{1900 + place}" for place in range(60)], freq="Y"), "period", ".dt.to_timestamp()"),
    ):
        with pytest.raises(DataFault, match=f"column 'age' has the type {kind}.*, expected texts") as caught:
            vt.simulate(made.study, frames | {"clinic": clinic.assign(age=column)})
        assert caught.value.hint == f"frame['age'] = frame['age']{instead}"
    drafts = {
        name: vt.study.draft({"clinic": clinic.assign(age=column)}).to_toml()
        for name, column in {
            "dense": ages,
            "sparse": pd.arrays.SparseArray(ages),
            "cut": pd.cut(ages, [0, 40, 200]),
            "texts": pd.cut(ages, [0, 40, 200]).astype(str),
        }.items()
    }
    assert drafts["sparse"] == drafts["dense"]
    assert vt.study.draft({"clinic": clinic.assign(age=ages).set_index("id")}).to_toml() == drafts["dense"]
    assert 'categories = ["(0, 40]", "(40, 200]"]' in drafts["texts"]
    assert 'type = "ordered"\ncategories = ["(0, 40]", "(40, 200]"]' in drafts["cut"]
    polars = SimpleNamespace(to_pandas=lambda: clinic)
    for table, hint in ((None, "give a path"), ({"age": [1]}, "give a path"), (polars, "give table.to_pandas()")):
        for call in (vt.synthesize, vt.evaluate):
            with pytest.raises(Misuse, match="expected a file or a data frame") as misuse:
                call(table, made.study if call is vt.synthesize else clinic)  # type: ignore[operator]
            assert misuse.value.hint.startswith(hint)
    with pytest.raises(DataFault, match="column 'age' occurs 2 times, expected once"):
        vt.simulate(made.study, frames | {"clinic": pd.concat([clinic, clinic[["age"]]], axis=1)})


# ---- other packages


def test_pgmpy_and_pyagrum_answer_as_the_network_does(made: Made) -> None:
    """Variable elimination of pgmpy 1.1 and lazy propagation of pyAgrum 3.3."""
    elimination = optional.import_optional("pgmpy.inference").VariableElimination
    given = {"income": ">50K", "age": made.release.network.variable("age").labels[2]}
    expected = made.release.query("smoker", given=given, source="network")["probability"]
    pgmpy_found = elimination(made.release.to_pgmpy()).query(["smoker"], evidence=given, show_progress=False)
    states = pgmpy_found.state_names["smoker"]
    assert dict(zip(states, pgmpy_found.values.tolist(), strict=True)) == pytest.approx(dict(expected), abs=1e-9)
    network = made.release.to_pyagrum()
    import pyagrum  # loaded by then

    engine = pyagrum.LazyPropagation(network)
    engine.setEvidence(given)
    engine.makeInference()
    values = dict(zip(network.variable("smoker").labels(), engine.posterior("smoker").tolist(), strict=True))
    assert values == pytest.approx(dict(expected), abs=1e-9)


def test_networkx_has_the_edges_and_what_is_known_of_them(made: Made) -> None:
    graph = made.release.to_networkx()
    assert list(graph.nodes) == list(made.release.network.nodes)
    assert list(graph.edges) == sorted(
        made.release.network.edges, key=lambda edge: made.release.network.nodes.index(edge[0])
    )
    assert graph.nodes["income"]["party"] == "insurer"
    for parent, child, told in graph.edges(data=True):
        assert told["strength"] == made.release.network.strength[parent, child]


def test_a_package_that_is_missing_is_named(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for package, call in (
        ("networkx", made.release.to_networkx), ("pgmpy", made.release.to_pgmpy), ("pyagrum", made.release.to_pyagrum),
    ):  # fmt: skip
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(Misuse, match=f"this needs {package}.*, which is not installed") as caught:
            call()
        assert caught.value.code == "USAGE"
        assert caught.value.hint.startswith(install_package(package))
    with pytest.raises(Misuse, match="this needs no_such_package"):
        optional.import_optional("no_such_package")


# ---- studies


def test_a_study_is_edited_as_a_value_and_keeps_its_comments(made: Made, tmp_path: Path) -> None:
    drafted = vt.study.draft(people(), means=True)
    assert drafted.to_review
    edited = drafted.replace(id="other", structure={"max_parents": 1}, linkage={"minimum_common_records": 50})
    assert (drafted.id, edited.id) == ("draft", "other")
    assert (edited.resolved.structure.max_parents, edited.resolved.linkage.minimum_common_records) == (1, 50)
    assert edited.resolved.linkage.mode == drafted.resolved.linkage.mode
    assert len(edited.to_review) >= len(drafted.to_review) - 1  # but for the line that was replaced
    fewer = edited.without_variable("weight")
    assert fewer.resolved.schema.names == ("smoker", "age", "income")
    noisier = fewer.with_randomization("smoker", "income", epsilon=0.5).with_randomization("income", epsilon=0.25)
    assert dict(noisier.variables["epsilon"].round(6)) == {"smoker": 0.5, "age": 3.0, "income": 0.25}
    bins = noisier.with_variable("age", bins=[18, 40, 90], means=None)
    assert bins.resolved.schema[1].labels == ("[18,40)", "[40,90)")
    back = vt.study.read(bins.save(tmp_path / "study.toml"))
    assert (back.digest, back.to_toml()) == (bins.digest, bins.to_toml())
    with pytest.raises(Misuse, match="exists already"):
        bins.save(tmp_path / "study.toml")
    command = said(["study", "check", str(tmp_path / "study.toml"), "--format", "json"], 6)
    assert command["digest"] == bins.digest
    for call in (
        lambda: drafted.with_variable("smokr", other="no"),
        lambda: drafted.without_variable("smokr"),
        lambda: drafted.with_randomization("smokr", epsilon=1.0),
    ):
        with pytest.raises(Misuse, match="'smokr': no such variable") as caught:
            call()
        assert "smoker" in caught.value.hint
    with pytest.raises(Misuse, match=r"study\.toml: structre: ") as caught:
        drafted.replace(structre={"max_parents": 1})
    assert (caught.value.code, "structure" in caught.value.hint) == ("STUDY_INVALID", True)


def test_a_study_of_one_party_keeps_what_its_variables_need_and_is_simulated_by_nobody() -> None:
    drafted = vt.study.draft({"clinic": people()["clinic"]}, public=True).replace(structure={"max_parents": 0})
    assert drafted.resolved.release.pairs
    assert drafted.without_variable("age").resolved.release.pairs == ()
    with pytest.raises(Misuse, match=r"variable: there is none, expected at least one"):
        drafted.without_variable("age", "smoker")
    with pytest.raises(Misuse, match=r"one party, 'clinic', expected at least two .*verticil synthesize"):
        vt.simulate(drafted, {"clinic": people()["clinic"]}, unreviewed=True)


def test_a_study_of_the_library_is_the_commands_draft(made: Made) -> None:
    words = [f"{name}={path}" for name, path in made.tables.items()]
    assert vt.study.draft(made.tables).to_toml() == said(["study", "draft", *words, "--format", "json"])["study"]


# ---- imports


def test_importing_loads_nothing_slow_and_verticil_stays_a_namespace() -> None:
    code = "import sys, verticil, verticil.api as vt; print(verticil.__file__, vt.__version__.count('.'), *sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found[:2] == ["None", "2"]
    slow = {
        "numpy",
        "pandas",
        "pyarrow",
        "scipy",
        "numba",
        "grpc",
        "cryptography",
        "typer",
        "rich",
        "tomlkit",
        "sklearn",
    }
    assert not slow & set(found)


def test_what_waits_is_done_where_a_loop_runs_already() -> None:
    """As in a notebook, and without one."""

    async def answer() -> int:
        await asyncio.sleep(0)
        return 7

    async def notebook() -> int:
        return run_coroutine(answer)

    assert run_coroutine(answer) == asyncio.run(notebook()) == 7


def test_an_interrupt_in_a_notebook_ends_the_waiting() -> None:
    waits, ended = threading.Event(), []

    async def waiting() -> None:
        waits.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    async def cell() -> None:
        run_coroutine(waiting)

    waiting_thread = threading.main_thread().ident or 0

    def main_waits() -> bool:
        frame = sys._current_frames()[waiting_thread]
        while frame is not None and frame.f_code is not Future.result.__code__:
            frame = frame.f_back
        return frame is not None

    def interrupt() -> None:
        waits.wait()
        while not main_waits():
            time.sleep(0.01)
        time.sleep(0.2)  # a signal between the call of a wait and its beginning does not end it
        signal.pthread_kill(waiting_thread, signal.SIGINT)

    loop = asyncio.new_event_loop()
    person = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    try:
        person.start()
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        signal.signal(signal.SIGINT, before)
    person.join()
    loop.close()
    assert ended == [True]

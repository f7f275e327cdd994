"""An owner's graphs: sampled from the records as they are, without any bound and saying so, or from noisy tables."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from verticil.cli.main import app
from verticil.curator import Synthesized, synthesize
from verticil.curator.study import owners_study
from verticil.miner.learning.publication import published_posterior
from verticil.shared.core.errors import Misuse, Refusal
from verticil.shared.privacy.accounts import Cost
from verticil.shared.release import wording
from verticil.shared.release.formats.posterior import read_networks
from verticil.shared.release.posterior import posterior_fault, sets_fault
from verticil.shared.release.verification import verify_release
from verticil.shared.study.document import PosteriorRule
from verticil.shared.study.reading import read_study

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
[[variable]]
party = "clinic"
name = "b"
categories = ["x", "y", "z"]
[[variable]]
party = "clinic"
name = "c"
categories = ["no", "yes"]
[randomization_default]
scheme = "none"
[structure]
method = "hill-climb"
seed = 1
[release]
synthetic_records = 300
seed = 1
"""
SHORT = "[posterior]\nsteps = 200\n"
ASKED = '[posterior]\nsteps = 20000\ndata_sets = 3\nstatistics = [["chi-square", "a", "c"], ["overlap", "c", "yes", "a", "x"]]\n'


def clinic(folder: Path, posterior: str = "") -> tuple[Path, Path]:
    """A decides B but for noise; C is a coin."""
    study = STUDY.replace('"hill-climb"', '"posterior"') + posterior if posterior else STUDY
    (folder / "study.toml").write_text(study)
    draw = np.random.default_rng(1)
    a = draw.integers(0, 3, 2000)
    b = np.where(draw.random(2000) < 0.2, draw.integers(0, 3, 2000), a)
    of = np.array(["x", "y", "z"])
    frame = pd.DataFrame({"a": of[a], "b": of[b], "c": np.array(["no", "yes"])[draw.integers(0, 2, 2000)]})
    frame.to_csv(folder / "people.csv", index=False)
    return folder / "people.csv", folder / "study.toml"


def test_a_drafted_study_asks_for_overlaps_of_the_owners_own_records(tmp_path: Path) -> None:
    """A draft randomizes columns for a federation: it was refused before anybody could say that its owner carries it out."""
    table, study = clinic(tmp_path, SHORT + 'statistics = [["overlap", "c", "yes", "a", "x"]]\n')
    study.write_text(study.read_text().replace('scheme = "none"', 'scheme = "symmetric"\nepsilon = 3.0'))
    with pytest.raises(Misuse, match="'overlap' compares with the interval of the original records"):
        read_study(study)
    found = synthesize(table, study, method="posterior", epsilon=math.inf, state=tmp_path / "state")
    assert found.posterior is not None
    assert 0 < np.nanmean(found.posterior.predictive[0].draws) <= 1
    with pytest.raises(Misuse, match="nobody who learns has them as they are"):
        synthesize(table, study, method="posterior", epsilon=1.0, state=tmp_path / "state")


def test_burn_in_and_thinning_are_what_the_chains_do(tmp_path: Path) -> None:
    table, study = clinic(tmp_path, "[posterior]\nsteps = 500\nburn_in = 260\nthinning = 6\n")
    found = synthesize(table, study, method="posterior", epsilon=math.inf, state=tmp_path / "state")
    assert found.posterior is not None
    sample = found.posterior.sample
    assert (sample.steps, sample.burn_in, sample.every, sample.n_draws) == (500, 260, 6, 4 * 40)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Synthesized]:
    folder = tmp_path_factory.mktemp("clinic")
    table, study = clinic(folder, ASKED)
    return folder, synthesize(table, study, method="posterior", out=folder / "out")


def test_records_as_they_are_have_no_bound_and_it_is_said(exact: tuple[Path, Synthesized]) -> None:
    """In the account, the manifest, the report, what is printed, and by verification."""
    folder, found = exact
    release = folder / "out" / "release"
    verified = verify_release(release, ca_certificate=(folder / "out" / "ca.crt").read_bytes())
    assert verified.exact_parameters is True
    assert verified.chains_agree is True
    public = next(account for account in verified.accounts if account.reader.name == "public")
    assert math.isinf(public.cost.epsilon)
    assert math.isinf(found.spending.cost.epsilon)
    assert math.isinf(found.spending.total.epsilon)
    assert any("no differential privacy" in warning for warning in found.warnings)
    assert "no noise is added: nothing that is published has a bound" in found.changes
    page = (release / "report.html").read_text(encoding="utf-8")
    assert "<strong>No differential privacy.</strong>" in page
    assert "added noise to every count" not in page
    assert (
        "No differential privacy protects anybody"
        in json.loads((release / "manifest.json").read_text())["curator"]["statement"]
    )
    package = (release / "datapackage.json").read_text()
    assert "the records of one table, as they are" in package
    assert "no bound covers them" in package


def test_where_no_bound_holds_no_record_is_said_to_be_nobody_s_and_copies_are_counted(
    exact: tuple[Path, Synthesized],
) -> None:
    release = exact[0] / "out" / "release"
    words = " ".join((release / "report.html").read_text(encoding="utf-8").split())
    assert "none is a real person" not in words
    assert "a table of real people" not in words
    people = pd.read_csv(exact[0] / "people.csv", dtype=str)
    single = ~people.duplicated(keep=False)
    copies = pd.read_csv(release / "synthetic.csv", dtype=str).merge(people[single], how="inner")
    told = wording.count(len(copies), "synthetic record equals", "synthetic records equal")
    assert f"{told} the row of a person whom no other one in the table equals" in words


def test_records_as_they_are_are_asked_for_by_name(tmp_path: Path) -> None:
    table, study = clinic(tmp_path, SHORT)
    run = CliRunner().invoke(app, ["synthesize", str(table), "--study", str(study), "--method", "posterior"])
    assert isinstance(run.exception, Misuse)
    assert "--epsilon inf" in run.exception.hint


def test_the_posterior_is_that_of_the_records(exact: tuple[Path, Synthesized]) -> None:
    """A and B are linked, in either direction alike (BDeu); C with neither."""
    folder, found = exact
    assert found.posterior is not None
    probability = found.posterior.sample.edge_probability
    assert probability[0, 1] + probability[1, 0] > 0.999
    assert probability[0, 1] == pytest.approx(0.5, abs=0.05)
    assert max(probability[2, 0], probability[0, 2], probability[1, 2], probability[2, 1]) < 0.05
    networks = read_networks(folder / "out" / "release")
    assert len(networks) == 3
    document = json.loads((folder / "out" / "release" / "posterior.json").read_bytes())
    chi_square, overlap = document["predictive"]
    assert len(chi_square["draws"]) >= 500
    assert chi_square["interval"][1] - chi_square["interval"][0] > 0.9  # of a p-value where nothing depends
    assert 0 < overlap["mean"] <= 1


def test_with_an_epsilon_it_is_noisy_tables(tmp_path: Path) -> None:
    table, study = clinic(tmp_path, SHORT)
    found = synthesize(table, study, method="posterior", epsilon=1.0, out=tmp_path / "out")
    assert (found.spending.cost.epsilon, found.study.records_from) == (1.0, "posterior")
    assert found.posterior is not None
    assert found.posterior.source == "noisy-tables"
    verified = verify_release(tmp_path / "out" / "release", ca_certificate=(tmp_path / "out" / "ca.crt").read_bytes())
    assert verified.exact_parameters is False
    assert "No differential privacy" not in (tmp_path / "out" / "release" / "report.html").read_text(encoding="utf-8")


def ten_columns(folder: Path) -> tuple[Path, Path]:
    """Each column like the one before it, a little: many graphs are possible."""
    draw = np.random.default_rng(3)
    codes = [draw.integers(0, 2, 300)]
    for _ in range(9):
        codes.append(np.where(draw.random(300) < 0.75, draw.integers(0, 2, 300), codes[-1]))
    names = [f"v{place}" for place in range(10)]
    of = np.array(["no", "yes"])
    pd.DataFrame({name: of[code] for name, code in zip(names, codes, strict=True)}).to_csv(
        folder / "people.csv", index=False
    )
    head, _, tail = STUDY.partition("[[variable]]")
    variables = "".join(
        f'[[variable]]\nparty = "clinic"\nname = "{name}"\ncategories = ["no", "yes"]\n' for name in names
    )
    rest = tail[tail.index("[randomization_default]") :].replace("hill-climb", "posterior")
    (folder / "study.toml").write_text(head + variables + rest + SHORT)
    return folder / "people.csv", folder / "study.toml"


@pytest.mark.whole
def test_chains_cut_to_200_steps_are_marked_and_exit_6_where_it_is_asked_for(tmp_path: Path) -> None:
    table, study = ten_columns(tmp_path)
    out = tmp_path / "out"
    command = [
        "synthesize",
        str(table),
        "--study",
        str(study),
        "--method",
        "posterior",
        "--epsilon",
        "inf",
        "--out",
        str(out),
    ]
    run = CliRunner().invoke(app, [*command, "--strict"])
    assert run.exit_code == 6, run.output
    assert "the chains that sampled graphs do not agree" in " ".join(run.output.split())
    page = (out / "release" / "report.html").read_text(encoding="utf-8")
    assert page.index("The chains do not agree.") < page.index('<dl class="figures">')
    verify = ["release", "verify", str(out / "release"), "--ca", str(out / "ca.crt")]
    said = CliRunner().invoke(app, verify)
    assert said.exit_code == 0
    assert "do not agree" in " ".join(said.output.split())
    assert CliRunner().invoke(app, [*verify, "--strict"]).exit_code == 6
    told = json.loads(CliRunner().invoke(app, [*verify, "--format", "json"]).output)
    assert told["chains_agree"] is False


def test_a_budget_has_no_room_for_what_has_no_bound(tmp_path: Path) -> None:
    """Neither for it, nor for anything after it."""
    table, study = clinic(tmp_path, SHORT)
    budget = Cost(epsilon=10.0, delta=1e-6)
    with pytest.raises(Refusal, match="no bound holds") as caught:
        synthesize(table, study, method="posterior", budget=budget)
    assert caught.value.code == "BUDGET_EXCEEDED"
    synthesize(table, study, method="posterior")
    with pytest.raises(Refusal, match="no bound holds"):
        synthesize(table, study, method="posterior", epsilon=1.0, budget=budget)
    with pytest.raises(Refusal, match="before"):
        synthesize(table, study, method="network", epsilon=1.0, budget=budget)


def test_what_becomes_of_a_study(tmp_path: Path) -> None:
    """The search of another method goes; the study's own noise stays unless an infinite epsilon is asked for."""
    _, path = clinic(tmp_path)
    plain = read_study(path)
    owned = owners_study(plain, method="posterior")
    assert (owned.structure.method, owned.structure.score, owned.tables) == ("posterior", "bdeu", None)
    (tmp_path / "tables.toml").write_text(STUDY + "[tables]\nepsilon = 2.0\ndelta = 1e-9\n")
    tables = read_study(tmp_path / "tables.toml")
    kept = owners_study(tables, method="posterior")
    assert kept.tables is not None
    assert kept.tables.epsilon == 2.0
    assert owners_study(tables, method="posterior", epsilon=math.inf).tables is None
    with pytest.raises(Misuse, match="a delta goes with an epsilon"):
        owners_study(plain, method="posterior", delta=1e-9)
    _, sampled = clinic(tmp_path, ASKED.replace(', ["overlap", "c", "yes", "a", "x"]', ""))
    other = owners_study(read_study(sampled), method="privbayes")
    assert (other.structure.method, other.posterior) == ("privbayes", PosteriorRule())
    assert owners_study(read_study(sampled), method="joint").posterior.data_sets == 3


def test_missing_values_are_unknowns_and_no_record_has_one(tmp_path: Path) -> None:
    """In the records and every set, in the report's words, in posterior.json; and a network that has one does not verify."""
    table, _ = clinic(tmp_path)
    said = STUDY.replace('"hill-climb"', '"posterior"').replace(
        'categories = ["x", "y", "z"]',
        'categories = ["x", "y", "z", "?"]\nmissing = { category = "?", spellings = [""] }',
        1,
    )
    (tmp_path / "study.toml").write_text(said + '[posterior]\nsteps = 2000\ndata_sets = 2\nmissing = "augment"\n')
    frame = pd.read_csv(table)
    lost = np.random.default_rng(4).random(len(frame)) < 0.25
    frame.loc[lost, "a"] = None
    frame.to_csv(table, index=False)
    found = synthesize(table, tmp_path / "study.toml", method="posterior", out=tmp_path / "out")
    release = tmp_path / "out" / "release"
    for name in ("synthetic.csv", "set-1.csv", "set-2.csv"):
        assert set(pd.read_csv(release / name, keep_default_na=False)["a"]) == {"x", "y", "z"}
    assert json.loads((release / "posterior.json").read_bytes())["missing"] == [
        {"variable": "a", "records": int(lost.sum())}
    ]
    report = (release / "report.html").read_text()
    assert f"<bdi>a</bdi> ({lost.sum()} records)" in report
    assert "No synthetic record has a missing value" in report
    assert found.posterior is not None
    posterior = published_posterior(found.posterior, found.study)
    assert posterior is not None
    assert posterior_fault(found.study, posterior, found.network.dag) == ""
    network = posterior.networks[0]
    table_of = np.full_like(network.families[0].probability, 0.25)
    families = (dataclasses.replace(network.families[0], probability=table_of), *network.families[1:])
    planted = dataclasses.replace(
        posterior, networks=(dataclasses.replace(network, families=families), posterior.networks[1])
    )
    assert "network 1 has missing values of 'a'" in posterior_fault(found.study, planted, found.network.dag)
    assert "were drawn" in posterior_fault(found.study, dataclasses.replace(posterior, missing=None), found.network.dag)


def test_numbers_lie_in_bins_by_each_network_s_shares(tmp_path: Path) -> None:
    """In the sets, what is verified of them, the report's words, and what is drawn from the release afterwards."""
    table, _ = clinic(tmp_path)
    binned = STUDY.replace('"hill-climb"', '"posterior"').replace(
        'name = "c"\ncategories = ["no", "yes"]', 'name = "age"\nbins = [0, 20, 40, 60]'
    )
    (tmp_path / "study.toml").write_text(
        binned.replace("= 300", "= 4000") + '[posterior]\nsteps = 200\ndata_sets = 2\nwithin_bins = "estimated"\n'
    )
    frame = pd.read_csv(table)
    frame["age"] = 60 * (1 - np.sqrt(np.random.default_rng(5).random(len(frame))))  # a straight line that falls to 0
    frame.drop(columns="c").to_csv(table, index=False)
    found = synthesize(table, tmp_path / "study.toml", method="posterior", out=tmp_path / "out")
    release = tmp_path / "out" / "release"
    report = (release / "report.html").read_text()
    assert "Of <bdi>age</bdi> the shape inside each bin is estimated" in report
    assert found.posterior is not None
    posterior = published_posterior(found.posterior, found.study)
    assert posterior is not None
    assert sets_fault(release, found.study, posterior, 4000) == ""

    def first_bin(path: Path) -> float:
        """The mean in the first bin, 9.33 by the line and 10 evenly; the standard error is about .1."""
        age = pd.read_csv(path)["age"]
        return float(age[age < 20].mean())

    drawn = CliRunner().invoke(
        app, ["release", "sample", str(release), "-n", "4000", "--out", str(tmp_path / "more.csv")]
    )
    assert drawn.exit_code == 0, drawn.output
    for path in (release / "set-1.csv", release / "synthetic.csv", tmp_path / "more.csv"):
        assert first_bin(path) < 9.7
    planted = pd.read_csv(release / "set-2.csv")
    planted["age"] = (planted["age"] // 20) * 20 + 20 * np.random.default_rng(1).random(4000).round(4).clip(0, 0.9999)
    planted.round(4).to_csv(release / "set-2.csv", index=False)
    assert "set-2.csv: column 'age': numbers do not lie in their bins" in sets_fault(
        release, found.study, posterior, 4000
    )

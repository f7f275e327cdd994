"""`synthesize --method kipps`: without torch an error; with it (``pytest -m gan``) records and a statement."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from verticil.cli.main import app, main
from verticil.gan import generate as generating
from verticil.gan.generate import generate
from verticil.gan.method import GeneratorChoice, RuleLossChoice, settings_of
from verticil.gan.settings import GENERATORS, AutoencoderSettings, Settings, generator_name, settings_text
from verticil.shared.core.errors import Misuse, Refusal
from verticil.shared.core.installation import install_experiments
from verticil.shared.privacy.accounts import Cost
from verticil.shared.study.reading import read_study

N = 2000
QUICK = Settings(steps=60, batch=100, generator=(32,), critic=(16,))
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
name = "kind"
categories = ["end", "other"]
[[variable]]
party = "clinic"
name = "b"
categories = ["x", "y", "z"]
[randomization_default]
scheme = "symmetric"
epsilon = 3.0
[structure]
method = "greedy"
max_parents = 1
seed = 1
[[knowledge.rule]]
name = "x with x"
kind = "implication"
if = { a = "x" }
then = { b = "x" }
[[knowledge.rule]]
name = "kind of a"
kind = "function"
column = "kind"
of = ["a"]
values = [["z", "end"]]
otherwise = "other"
[release]
synthetic_records = 3000
seed = 1
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    draw = np.random.default_rng(1)
    a = draw.integers(0, 3, N)
    b = np.where(a == 0, 0, draw.integers(0, 3, N))
    of = np.array(["x", "y", "z"])
    people = pd.DataFrame({"a": of[a], "kind": np.where(a == 2, "end", "other"), "b": of[b]})
    people.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_without_torch_nothing_is_read_or_charged(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        generating, "find_spec", lambda name: None if name == "torch" else importlib.util.find_spec(name)
    )
    with pytest.raises(Misuse, match="needs torch, which is not installed") as caught:
        generate(clinic / "people.csv", clinic / "study.toml")
    assert caught.value.hint == install_experiments("gan")
    assert not (clinic / "verticil-curator").exists()


OF_OTHER_METHODS = '[privbayes]\nneighbours = "add-remove"\n[posterior]\nsteps = 500\n'


@pytest.mark.parametrize("parties", [1, 2])
def test_what_a_study_says_of_other_methods_is_read_here_too(
    clinic: Path, parties: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, `synthesize` read such a study with every method but this one."""
    text = STUDY.replace("[[variable]]", "[[party]]\nname = 'insurer'\n[[variable]]", 1)
    text = text.replace('party = "clinic"\nname = "b"', 'party = "insurer"\nname = "b"')
    (clinic / "study.toml").write_text((text if parties == 2 else STUDY) + OF_OTHER_METHODS)
    monkeypatch.setattr(generating, "find_spec", lambda _name: None)
    with pytest.raises(Misuse, match="needs torch"):
        generate(clinic / "people.csv", clinic / "study.toml", out=clinic / "out")


@pytest.mark.parametrize("option", ["--compare", "--strict"])
def test_what_needs_a_network_does_not_go_with_a_generator(
    clinic: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    called = [str(clinic / "people.csv"), "--study", str(clinic / "study.toml"), "--method", "kipps", option]
    assert main(["synthesize", *called]) == 2
    assert f"{option} does not go with --method kipps" in " ".join(capsys.readouterr().err.split())
    assert not (clinic / "verticil-curator").exists()


@pytest.mark.parametrize(
    "option", [["--generator", "vae"], ["--steps", "10"], ["--rule-weight", "0"], ["--rule-loss", "holds"]]
)
def test_options_of_the_generator_go_with_no_other_method(
    clinic: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    called = [str(clinic / "people.csv"), "--study", str(clinic / "study.toml"), "--method", "joint", *option]
    assert main(["synthesize", *called]) == 2
    assert f"{option[0]} goes with --method kipps, and the method is joint" in " ".join(capsys.readouterr().err.split())
    assert not (clinic / "verticil-curator").exists()


def test_options_change_the_usual_settings_of_their_generator_and_nothing_else() -> None:
    """Whoever names none trains as before: the settings are part of what tells measurements apart."""
    assert set(GENERATORS) == set(GeneratorChoice)
    assert settings_of(GeneratorChoice.gan, None, None) == Settings()
    assert repr(Settings()) == (
        "Settings(steps=1500, batch=500, noise=64, generator=(128, 128), critic=(64, 64), clip=1.0, penalty=10.0, "
        "temperature=0.5, rule_weight=1.0, rates=(0.001, 0.0002))"
    )
    assert settings_text(Settings()) == repr(Settings())
    other = settings_of(GeneratorChoice.gan, None, None, RuleLossChoice.holds)
    assert settings_text(other) == repr(Settings()) + " rule_loss=holds"
    with pytest.raises(Misuse, match="--rule-loss goes with --generator gan, and the generator is vae"):
        settings_of(GeneratorChoice.vae, None, None, RuleLossChoice.holds)
    vae = settings_of(GeneratorChoice.vae, 7, 0.0)
    assert vae == AutoencoderSettings(steps=7, rule_weight=0.0)
    assert generator_name(vae) == "vae"


def test_no_study_of_several_has_the_generator(clinic: Path) -> None:
    (clinic / "study.toml").write_text(STUDY.replace('method = "greedy"', 'method = "kipps"'))
    with pytest.raises(
        Misuse, match=r"method: got 'kipps', a generator that needs the raw rows.*verticil synthesize TABLE"
    ):
        read_study(clinic / "study.toml")


@pytest.mark.gan
@pytest.mark.parametrize("generator", GENERATORS)
def test_records_and_statement(clinic: Path, generator: str) -> None:
    called = [str(clinic / "people.csv"), "--study", str(clinic / "study.toml"), "--method", "kipps", "--epsilon", "5"]
    called += ["--generator", generator, "--steps", "60"]
    result = CliRunner().invoke(app, ["synthesize", *called, "--out", str(clinic / "out"), "--format", "json"])
    assert result.exit_code == 0, result.output
    said, out = json.loads(result.stdout), clinic / "out"
    assert (said["records"], said["people"], said["cost"]["epsilon"], said["charged"]) == (3000, N, 5.0, True)
    statement = json.loads((out / "statement.json").read_text())
    assert set(statement["sha256"]) == {"synthetic.csv", "synthetic.parquet", "study.json"}
    for name, digest in statement["sha256"].items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert (statement["epsilon"], statement["event"]["kind"], statement["event"]["steps"]) == (
        5.0,
        "generator-training",
        60,
    )
    assert statement["relation"] == "replace one person"
    assert (said["generator"], statement["generator"]) == (generator, generator)
    assert statement["rules"]["broken"]["x with x"] == statement["rules"]["left_out"] > 0
    records = pd.read_csv(out / "synthetic.csv")
    assert list(records.columns) == ["a", "kind", "b"]
    assert (records.b[records.a == "x"] == "x").all()
    assert ((records.kind == "end") == (records.a == "z")).all()


@pytest.mark.gan
def test_the_same_again_costs_nothing_and_is_the_same(clinic: Path) -> None:
    def made(name: str, **asked):
        return generate(
            clinic / "people.csv", clinic / "study.toml", epsilon=5.0, settings=QUICK, out=clinic / name, **asked
        )

    first, again = made("one.csv"), made("two.csv")
    assert (first.spending.again, again.spending.again) == (False, True)
    assert (clinic / "one.csv").read_bytes() == (clinic / "two.csv").read_bytes()
    assert first.spending.total.epsilon == 5.0
    other = made("three.csv", seed=2)
    assert other.spending.total.epsilon == 10.0
    assert not first.records.equals(other.records)
    with pytest.raises(Refusal, match="BUDGET_EXCEEDED"):
        made("four.csv", seed=3, budget=Cost(epsilon=12.0, delta=1.0))
    assert not (clinic / "four.csv").exists()
    with pytest.raises(Misuse, match="FILE_EXISTS"):
        made("one.csv")


@pytest.mark.gan
def test_an_epsilon_for_which_no_noise_is_enough_is_refused_before_it_is_charged(clinic: Path) -> None:
    with pytest.raises(Misuse, match=r"STUDY_INVALID.*tables"):
        generate(clinic / "people.csv", clinic / "study.toml", epsilon=1e-6, settings=QUICK)
    assert (
        generate(clinic / "people.csv", clinic / "study.toml", epsilon=5.0, settings=QUICK).spending.total.epsilon
        == 5.0
    )

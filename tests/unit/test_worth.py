"""What records are worth: figures against a known truth, a sentence that says it, and a release that has both."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.documents import study_toml
from support.noisy_tables import N_STATES, PEOPLE, SIGMA, empty, study, truth
from verticil.cli.main import main
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.worth import estimate_worth, moved_by_noise
from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.replicates import recounted, with_noise_of
from verticil.shared.numerics.joint.worth import Worth, measured, read_worth, sentence
from verticil.shared.numerics.model.joint import JointModel, Mixture
from verticil.shared.release.worth import worth_document

PAIRS = list(itertools.combinations(range(len(N_STATES)), 2))
NAMES = tuple(f"v{place}" for place in range(len(N_STATES)))
UNMOVED = np.zeros((len(PAIRS), 2))
"""Of a replicate that noise does not move."""


def distance(one: Floats, other: Floats) -> float:
    return float(np.abs(one - other).sum()) / 2


def independent(model: JointModel) -> Mixture:
    """Columns with the shares of a model that have nothing to do with each other."""
    return Mixture(weights=np.ones(1), probability=tuple(model.shares((v,))[None] for v in range(len(N_STATES))))


def of_independent(model: JointModel) -> float:
    apart = independent(model)
    return float(np.mean([distance(model.shares(pair), apart.shares(pair)) for pair in PAIRS]))


def noise_on(model: JointModel, seed: int, sigma: float = SIGMA) -> NoisyTables:
    """Return tables of the model's expected counts, with noise."""
    none = empty(study(), sigma)
    r = np.random.default_rng(seed)
    tables = [
        dataclasses.replace(table, counts=PEOPLE * model.shares(table.units) + r.normal(0, sigma, table.counts.shape))
        for table in none.tables
    ]
    return dataclasses.replace(none, tables=tuple(tables))


@pytest.mark.parametrize("sigma", [SIGMA / 4, SIGMA, 4 * SIGMA])
def test_both_distances_are_near_those_of_the_people(sigma: float) -> None:
    """People and noise are fixed. The people are drawn, so they are not as the distribution that they come from."""
    people = recounted(empty(study(), sigma), truth(), np.random.default_rng(3))
    tables = with_noise_of(empty(study(), sigma), people, np.random.default_rng(4))
    result = learn_from_tables(tables, study())
    assert result.worth is not None
    assert result.joint is not None
    model, shares = result.joint.model, {table.units: table.counts / PEOPLE for table in people.tables}
    real = np.mean([distance(model.shares(pair), shares[pair]) for pair in PAIRS])
    alone = [np.outer(shares[pair].sum(axis=1), shares[pair].sum(axis=0)) for pair in PAIRS]
    independent_ones = np.mean([distance(table, shares[pair]) for table, pair in zip(alone, PAIRS, strict=True)])
    assert 0.7 < result.worth.two_way / real < 1.3
    assert 0.7 < result.worth.independent / independent_ones < 1.3


def test_noise_moves_a_replicate_from_its_own_people() -> None:
    people = noise_on(truth(), 1, 0.0)
    assert moved_by_noise(truth(), people) == pytest.approx(UNMOVED, abs=1e-9)
    apart = moved_by_noise(independent(truth()), people)
    assert apart[:, 0].mean() == pytest.approx(of_independent(truth()))
    assert apart[:, 1] == pytest.approx(UNMOVED[:, 1], abs=1e-9)


def test_noise_is_no_dependence_of_the_people() -> None:
    """People whose columns are independent: what the noise alone shows as dependence is taken off, up to its own chance.

    Seeds are fixed. The mean of the 20 estimates is .05 of a real dependence, and .21 where the variance of the noise stays in.
    """
    model = independent(truth())
    worths = [estimate_worth(noise_on(model, seed, 4 * SIGMA), truth(), [UNMOVED], NAMES) for seed in range(20)]
    assert np.mean([worth.independent for worth in worths if worth is not None]) < 0.1 * of_independent(truth())


def test_a_model_that_lacks_the_dependence_is_as_far_as_independent_columns() -> None:
    apart = independent(truth())
    worth = estimate_worth(noise_on(truth(), 1), apart, [UNMOVED], NAMES)
    assert worth is not None
    assert worth.is_useless
    assert worth.drowned == NAMES
    weak = Mixture(
        weights=np.concatenate([0.9 * apart.weights, 0.1 * truth().weights]),
        probability=tuple(
            np.concatenate([one, other]) for one, other in zip(apart.probability, truth().probability, strict=True)
        ),
    )
    worth = estimate_worth(noise_on(truth(), 1), weak, [UNMOVED], NAMES)
    assert worth is not None
    assert 0.8 < worth.independent / of_independent(truth()) < 1.2
    assert 0.8 < worth.two_way / (0.9 * of_independent(truth())) < 1.2
    assert set(worth.weakened) == set(NAMES)
    whole = estimate_worth(noise_on(truth(), 1), truth(), [UNMOVED], NAMES)
    assert whole is not None
    assert whole.weakened == ()


@pytest.mark.parametrize(
    ("worth", "words"),
    [
        (Worth(two_way=0.02, independent=0.05, one_way=0.004), ["by 60 %", "0.4 points off"]),
        (Worth(two_way=0.05, independent=0.05, one_way=0.01), ["do not use the records for relations", "1 points off"]),
        (Worth(two_way=0.02, independent=0.0, one_way=0.01), ["do not use the records for relations"]),
        (
            Worth(two_way=0.02, independent=0.05, one_way=0.004, drowned=("a", "b"), weakened=("b", "c")),
            ["relations of these 2 columns drown in the noise: a, b", "not for regression coefficients of c,"],
        ),
        (measured(0.01, 0.02, 0.05), ["measured on the table"]),
        (Worth(two_way=0.02, independent=0.05, one_way=0.004, source="predicted"), ["predicted from the study"]),
    ],
)
def test_one_sentence_says_it(worth: Worth, words: list[str]) -> None:
    for part in words:
        assert part in sentence(worth)


def test_a_document_comes_back_and_a_strange_one_is_nothing() -> None:
    worth = Worth(two_way=0.02, independent=0.05, one_way=0.004, drowned=("a",), weakened=("b",))
    assert read_worth({"worth": worth.document()}) == worth
    for strange in ({}, {"worth": 1}, {"worth": {"two_way": "x"}}, {"worth": {**worth.document(), "drowned": 3}}):
        assert read_worth(strange) is None


@pytest.mark.whole
def test_the_sentence_ends_a_run_and_stands_on_the_first_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    r = np.random.default_rng(1)
    a = r.integers(0, 3, 4000)
    b = np.where(r.random(4000) < 0.7, a, r.integers(0, 3, 4000))
    c = np.where(r.random(4000) < 0.5, b, r.integers(0, 3, 4000))
    pd.DataFrame({"a": a, "b": b, "c": c}).to_csv(tmp_path / "t.csv", index=False)
    text = study_toml(*(f"owner.{name}: 0 1 2" for name in "abc"), keys='title = "A"\n')
    (path := tmp_path / "study.toml").write_text(text + '[randomization_default]\nscheme = "none"\n')

    def synthesize(*more: str) -> int:
        return main(
            ["synthesize", str(tmp_path / "t.csv"), "--study", str(path), "--state", str(tmp_path / "s"), *more]
        )

    assert synthesize("--epsilon", "2", "--out", str(tmp_path / "near"), "--fail-useless") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "records are nearer to the people than independent columns by" in shown
    release = tmp_path / "near" / "release"
    document = json.loads((release / "model.json").read_text())
    worth = read_worth(document)
    assert worth is not None
    assert worth.nearer > 0.5
    words = sentence(worth)
    assert words[0].upper() + words[1:] in (release / "report.html").read_text()
    anchor = str(tmp_path / "near" / "ca.crt")
    assert main(["release", "verify", str(release), "--ca", anchor]) == 0
    assert words in " ".join(capsys.readouterr().out.split())
    assert main(["release", "verify", str(release), "--ca", anchor, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["worth"] == worth_document(worth)
    assert synthesize("--epsilon", "0.002", "--out", str(tmp_path / "no")) == 6
    assert "USELESS" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    for method in ("network", "privbayes"):  # nothing estimates what their records are worth
        assert synthesize("--epsilon", "2", "--method", method, "--fail-useless", "--out", str(tmp_path / "no")) == 2
        assert "is not estimated" in capsys.readouterr().err
    far = ("--epsilon", "0.001", "--accept-noise", "--fail-useless", "--out", str(tmp_path / "far"))
    assert synthesize(*far, "--compare") == 6
    shown = capsys.readouterr().out
    assert "independent columns of the table" in shown
    assert "\nprivbayes" not in shown  # its noise would be more than can be drawn
    assert "These records do not show how columns go together." in (tmp_path / "far/release/report.html").read_text()

"""What evaluation says of tables of Adult whose worth is known, and that it says it twice, byte for byte (a few CPU minutes)."""

from __future__ import annotations

import gzip
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.curator import synthesize
from verticil.evaluate import evaluate
from verticil.evaluate.figures import Summary
from verticil.experiments.hittmeir import datasets
from verticil.simulation import simulate

FEDERATION = files("verticil.simulation") / "federations" / "adult"
PARTIES = ("census_bureau", "employer", "tax_office")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_copy_discloses_independent_columns_are_useless_and_what_is_made_with_care_lies_between(
    tmp_path: Path,
) -> None:
    """The holdout is the data set's own test part, of people whom no table here was made from."""
    tables = {}
    for party in PARTIES:
        tables[party] = tmp_path / f"{party}.csv"
        tables[party].write_bytes(gzip.decompress((FEDERATION / f"{party}.csv.gz").read_bytes()))
    real = pd.read_csv(tables[PARTIES[0]], dtype=str)
    for party in PARTIES[1:]:
        real = real.merge(pd.read_csv(tables[party], dtype=str), on="id")
    real = real.sort_values("id").drop(columns="id").reset_index(drop=True)
    people, study = tmp_path / "people.csv", tmp_path / "study.toml"
    real.to_csv(people, index=False)
    shutil.copyfile(str(FEDERATION / "study.toml"), study)
    generator = np.random.default_rng(0)
    made = {
        "copy": real,
        "independent": pd.DataFrame({name: real[name].to_numpy()[generator.permutation(len(real))] for name in real}),
        "demonstration": simulate(study, tables, seed=1).synthetic,
        "noisy tables": synthesize(people, study=study, epsilon=1.0, seed=3, out=tmp_path / "noisy.csv").records,
    }
    adult = datasets.adult()
    assert adult.test is not None
    holdout = pd.DataFrame({name: list(column) for name, column in adult.test.items()})
    found = evaluate(real, made, holdout=holdout, target="income")
    found.write(tmp_path / "four")
    by: dict[str, Summary] = {item.candidate: item for item in found.summaries}
    assert by["copy"].flags == ("disclosive",)
    assert by["independent"].flags == ("useless",)
    for name in ("demonstration", "noisy tables"):
        assert by[name].flags == ()
        assert by["copy"].distance < by[name].distance < by["independent"].distance
    verdicts = {(item.asked.key, item.candidate): item.verdict for item in found.figures}
    for key in ("distance_2", "distance_3", "propensity"):
        assert [verdicts[key, name] for name in made] == ["floor", "baseline", "between", "between"]
    few = real.iloc[:2000]
    first, again = (
        evaluate(few, made["noisy tables"], holdout=holdout, target="income").write(tmp_path / name) for name in "ab"
    )
    for path in first.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()

"""A whole study with a compound, impossible combinations removed, and a subset column, on 3,000 of the shipped tables' people."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.operator.check import check as check_party
from verticil.party.site import Site
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.release.formats import model_json
from verticil.shared.study.canonical import from_bytes, to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.simulation import Simulated, simulate
from verticil.simulation.federations import adult
from verticil.simulation.provision import OPEN_LIMITS, provision
from verticil.simulation.table_layout import lay_out

PAIR = ("marital-status", "relationship")
# Only who is married can be a husband or a wife: 5 x 2 of the 7 x 6 combinations; none of them is in the data.
WITHOUT_SPOUSE = ("Never-married", "Married-spouse-absent", "Separated", "Divorced", "Widowed")
IMPOSSIBLE = tuple(itertools.product(WITHOUT_SPOUSE, ("Husband", "Wife")))
COMPOUND = f"""
[[randomization]]
jointly = {json.dumps(PAIR)}
impossible = {json.dumps(IMPOSSIBLE)}
scheme = "symmetric"
epsilon = 4.0

[[randomization]]
variables = ["occupation"]
scheme = "subset"
epsilon = 1.0

[structure]
"""


def study_text(compound: str = COMPOUND) -> str:
    text = adult.study_text().replace("\n[structure]\n", compound, 1)
    assert compound in text
    return text.replace("generations = 400", "generations = 60")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return adult.write_tables(tmp_path_factory.mktemp("tables"), rows=3000)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    (path := tmp_path_factory.mktemp("study") / "study.toml").write_text(study_text(), encoding="utf-8")
    return read_study(path)


@pytest.fixture(scope="module")
def finished(tables: dict[str, Path], study: Study, tmp_path_factory: pytest.TempPathFactory) -> tuple[Simulated, Path]:
    out = tmp_path_factory.mktemp("out")
    return simulate(study, tables, seed=5, out=out / "release"), out


def test_the_study_is_what_is_meant(study: Study) -> None:
    index = study.unit_of("relationship")
    assert study.units[index].variables == PAIR
    assert len(study.units[index].impossible) == 10
    assert study.units[index].transition.n_states == len(study.domain_of(index)) == 32
    assert study.units[study.unit_of("occupation")].transition == Subset(
        n_states=15, size=4, weight=study.units[study.unit_of("occupation")].transition.weight
    )
    assert from_bytes(to_bytes(study)) == study


@pytest.mark.whole
def test_the_release_holds_and_is_whole(finished: tuple[Simulated, Path]) -> None:
    result, out = finished
    assert main(["release", "verify", str(out / "release"), "--ca", str(out / "ca.crt"), "--format", "json"]) == 0
    network = model_json.read((out / "release" / "model.json").read_bytes())
    assert network.schema.names == result.network.schema.names
    assert len(network.families) == 13
    assert result.n_common == 3000
    assert len(result.synthetic) == 3000
    # The shipped study's 36.8904 with one compound of 4 in place of two columns of 3, and a subset of 1 for a column of 3.
    assert result.epsilon_per_person == pytest.approx(36.8904 - 2 * 3 + 4 - 3 + 1, abs=1e-4)
    manifest = json.loads((out / "release" / "manifest.json").read_text())
    bounds = {tuple(column["variables"]): column["epsilon"] for column in manifest["privacy"]["columns"]}
    assert len(bounds) == 12
    assert (bounds[PAIR], bounds[("occupation",)]) == (pytest.approx(4.0), pytest.approx(1.0))
    bodies = {tuple(body["variables"]): body for body in (json.loads(r["body"]) for r in manifest["receipts"])}
    assert bodies.keys() == bounds.keys()
    assert {body["n_records"] for body in bodies.values()} == {3000}
    # 32 combinations take 5 bits; sets of 4 out of 15 take 4 times 4.
    assert (bodies[PAIR]["size"], bodies[("occupation",)]["size"]) == (16 + 3000 * 5 // 8, 16 + 3000 * 16 // 8)


@pytest.mark.whole
def test_impossible_combinations_have_probability_zero(finished: tuple[Simulated, Path]) -> None:
    result, _ = finished
    schema = result.network.schema
    one, other = (schema.index(name) for name in PAIR)
    families = [f for f in result.network.families if {one, other} <= {f.child, *f.parents} and f.child in {one, other}]
    assert families  # an edge between the two was found
    for family in families:
        axes = (*family.parents, family.child)
        cells = family.probability.reshape([schema[axis].n_states for axis in axes])
        for position, labels in ((one, WITHOUT_SPOUSE), (other, ("Husband", "Wife"))):
            cells = cells.take([schema[position].labels.index(label) for label in labels], axis=axes.index(position))
        assert cells.size >= 10
        assert (cells == 0.0).all()
    drawn = set(zip(*(result.synthetic[name] for name in PAIR), strict=True))
    assert len(drawn) > 10
    assert not set(IMPOSSIBLE) & drawn


@pytest.mark.whole
def test_the_compound_and_the_subset_are_learned_from(
    finished: tuple[Simulated, Path], tables: dict[str, Path]
) -> None:
    """What is in one draw is learned together; shares of the set column are within six standard errors (15 at 2e-9)."""
    result, out = finished
    frames = [pd.read_csv(path, dtype=str, keep_default_na=False, index_col="id") for path in tables.values()]
    people = frames[0].join(frames[1:], how="inner")
    assert len(people) == 3000

    def joint(frame: pd.DataFrame) -> pd.Series:
        return frame.groupby([frame[name].astype(str) for name in PAIR]).size() / len(frame)

    distance = joint(people).sub(joint(result.synthetic), fill_value=0).abs().sum() / 2
    alone = [people[name].value_counts(normalize=True) for name in PAIR]
    independent = pd.Series({(a, b): x * y for a, x in alone[0].items() for b, y in alone[1].items()})
    independent.index.names = list(PAIR)
    assert distance < 0.25 * joint(people).sub(independent, fill_value=0).abs().sum() / 2

    model = json.loads((out / "release" / "model.json").read_text())
    position = result.network.schema.index("occupation")
    (found,) = [m for m in model["marginals"] if m["variable"] in ("occupation", position)]
    labels = list(result.network.schema[position].labels)
    known = people["occupation"].replace({"?": "unknown", "": "unknown"}).value_counts(normalize=True)
    truth = known.reindex(labels, fill_value=0).to_numpy()
    z = (np.array(found["estimate"]) - truth) / np.array(found["standard_error"])
    assert np.abs(z).max() < 6
    assert np.array(found["standard_error"]).max() < 0.05


def of_network(study: Study) -> Study:
    """The study without a joint model, whose estimate takes longer than all the rest."""
    return dataclasses.replace(study, release=dataclasses.replace(study.release, sample_from="network"))


@pytest.mark.slow
def test_the_same_secrets_give_the_same_release_under_any_row_order(
    study: Study, tables: dict[str, Path], tmp_path: Path
) -> None:
    turned: dict[str, Path] = {}
    for party, path in tables.items():
        head, *rows = path.read_text(encoding="utf-8").splitlines()
        turned[party] = tmp_path / f"{party}.csv"
        turned[party].write_text("\n".join([head, *rows[::-1]]) + "\n", encoding="utf-8")
    for place, given in (("one", tables), ("other", turned)):
        (tmp_path / place).mkdir()
        simulate(of_network(study), given, seed=5, out=tmp_path / place / "release")
    for name in ("model.json", "synthetic.csv"):
        one, other = (tmp_path / place / "release" / name for place in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()


def spoilt(tables: dict[str, Path], folder: Path, n: int) -> dict[str, Path]:
    """The tables with `n` never-married husbands."""
    made = {party: Path(shutil.copy(path, folder / f"{party}.csv")) for party, path in tables.items()}
    text = made["census_bureau"].read_text(encoding="utf-8")
    assert text.count("Married-civ-spouse,Husband") > n
    made["census_bureau"].write_text(text.replace("Married-civ-spouse,Husband", "Never-married,Husband", n))
    return made


@pytest.mark.whole
def test_a_removed_combination_that_occurs_is_replaced_and_the_study_goes_on(
    study: Study, tables: dict[str, Path], tmp_path: Path
) -> None:
    simulated = simulate(of_network(study), spoilt(tables, tmp_path, 7), seed=5, out=tmp_path / "out" / "release")
    assert simulated.release is not None
    synthetic = (simulated.release / "synthetic.csv").read_text(encoding="utf-8")
    assert "Never-married,Husband" not in synthetic


def test_the_check_of_a_party_finds_it_before_anything_is_submitted(
    study: Study, tables: dict[str, Path], tmp_path: Path
) -> None:
    sites = lay_out(tmp_path / "tables", study, spoilt(tables, tmp_path, 7), id_column="id")
    made = provision(
        tmp_path / "federation", federation="trial", sites=sites, limits=OPEN_LIMITS, endpoint="localhost:1",
        listen="127.0.0.1:0", hosts=("localhost",), seed=1,
    )  # fmt: skip
    config = load_party(made.parties["census_bureau"] / "party.toml")
    facts = check_party(config, study)
    assert facts.ok
    assert "7 of 3122 rows have a combination" in str(facts.warnings)
    with Site.open(config) as site:
        assert site.ledger.rows() == ()

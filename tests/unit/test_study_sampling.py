"""`representatives` of bins and `release.sampling`: read, refused, kept by every document, and obeyed by the records."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from verticil.party.dataset.perturb import codebook_digest
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.numerics.model import elimination
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.release.formats import model_json
from verticil.shared.release.records import draw_release_records
from verticil.shared.study import canonical
from verticil.shared.study.document import CustomRule, ReleaseRule
from verticil.shared.study.reading import read_study
from verticil.shared.study.rules import check
from verticil.shared.synthesis.synthesis import decode

EXAMPLE = (Path(__file__).parents[1] / "vectors" / "study_example.toml").read_text(encoding="utf-8")
BINS = next(line for line in EXAMPLE.splitlines() if line.startswith("bins"))
N_BINS = BINS.partition("#")[0].count(",")
EDGES = [float(edge) for edge in BINS.partition("[")[2].partition("]")[0].split(",")]


def read(tmp_path: Path, *changes: tuple[str, str]):
    text = EXAMPLE
    for old, new in changes:
        assert text.count(old) >= 1
        text = text.replace(old, new, 1)
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    return read_study(tmp_path / "study.toml")


def with_representatives(numbers: list[float]) -> tuple[str, str]:
    return BINS, f"{BINS}\nrepresentatives = {numbers}"


def test_they_are_read_and_kept_in_the_canonical_study(tmp_path):
    study = read(tmp_path, with_representatives(EDGES[:-1]), ('sampling = "systematic"', 'sampling = "independent"'))
    (variable,) = [v for v in study.schema.variables if v.representatives is not None]
    assert variable.representatives == tuple(EDGES[:-1])
    assert study.release.sampling == "independent"
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_a_study_without_them_has_the_bytes_that_it_had(tmp_path):
    plain = canonical.to_bytes(read(tmp_path))
    assert b"representatives" not in plain
    assert b"sampling" not in plain
    assert canonical.to_bytes(read(tmp_path, ('sampling = "systematic"', ""))) == plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_representatives(EDGES), f"{N_BINS + 1} numbers, expected one for each of the {N_BINS} bins"),
        (with_representatives([EDGES[1], *EDGES[1:-1]]), "number 1 is 25, expected one from 17 to below 25, its bin"),
        (with_representatives([EDGES[0] + 0.5, *EDGES[1:-1]]), "expected a whole number with integer = true"),
        (('sampling = "systematic"', 'sampling = "sistematic"'), "got 'sistematic', expected one of systematic"),
        (
            ('sampling = "systematic"', 'sample_from = "table"'),
            "sample_from: got 'table', expected one of joint, network",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, change, message):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, change)
    assert caught.value.code == "STUDY_INVALID"
    assert message in caught.value.message


def test_a_joint_model_undoes_no_unlinking(tmp_path, peer_study):
    """It is refused beside a custom network and forbidden edges, by name, and where no node has the tables of all pairs."""
    plain = canonical.to_bytes(read(tmp_path))
    study = read(tmp_path, ('sampling = "systematic"', 'sample_from = "joint"'))
    assert study.release.sample_from == "joint"
    assert canonical.from_bytes(canonical.to_bytes(study)) == study
    assert canonical.to_bytes(study) != plain
    assert b"sample_from" not in plain
    first, second, *_ = study.schema.names
    structures = {
        "a custom network": {"custom": CustomRule(target=first, sensitive=(second,))},
        "forbidden edges": {"forbidden": ((first, second),)},
    }
    for name, kept in structures.items():
        apart = dataclasses.replace(study, structure=dataclasses.replace(study.structure, **kept))
        with pytest.raises(Misuse, match=f"release.sample_from: got 'joint' beside {name}") as caught:
            check(apart, source="study.toml")
        assert caught.value.hint == 'use "network"'
        check(dataclasses.replace(apart, release=ReleaseRule(sample_from="network")), source="study.toml")
    peers = peer_study()
    with pytest.raises(Misuse, match="'joint' with the model 'peer': no party has the tables of all pairs"):
        check(dataclasses.replace(peers, release=ReleaseRule(sample_from="joint")), source="study.toml")


def test_categories_have_no_representatives(tmp_path):
    line = next(line for line in EXAMPLE.splitlines() if line.startswith("categories"))
    with pytest.raises(Misuse, match="this key goes with bins"):
        read(tmp_path, (line, f"{line}\nrepresentatives = [1]"))
    with pytest.raises(ValueError, match="2 representatives of 0 bins"):
        Variable(name="x", owner="a", labels=("a", "b"), representatives=(1, 2))


def test_they_do_not_touch_the_codebook_that_noise_depends_on():
    """Another representative is no other release of the data."""
    bare = Variable(name="x", owner="a", labels=("[0,2)", "[2,4)"), bins=(0, 2, 4))
    assert codebook_digest(dataclasses.replace(bare, representatives=(1, 3)), {}) == codebook_digest(bare, {})


@pytest.mark.parametrize(
    ("integer", "expected"), [(True, ["17", "30", "more", "unknown"]), (False, ["17.50", "30.25", "more", "unknown"])]
)
def test_every_record_of_a_bin_gets_its_number_and_the_rest_their_labels(integer, expected):
    numbers = (17, 30) if integer else (17.5, 30.25)
    labels = ("[17,25)", "[25,91)")
    plain = Variable(name="p", owner="a", labels=labels, bins=(17, 25, 91), integer=integer, representatives=numbers)
    more = Variable(
        name="m", owner="a", labels=(*labels, "more", "unknown"), bins=(17, 25, 91), integer=integer,
        representatives=numbers, other="more", missing=Missing(category="unknown", spellings=("?",)),
    )  # fmt: skip
    codes = [np.array([0, 1, 1, 0], np.uint8), np.array([0, 1, 2, 3], np.uint8)]
    table = decode(Schema(variables=(plain, more)), codes, np.random.default_rng(1))
    assert table["p"].tolist() == [numbers[0], numbers[1], numbers[1], numbers[0]]
    assert table["p"].dtype == (np.int64 if integer else np.float64)
    assert table["m"].tolist() == expected


def test_the_model_file_keeps_them(release_content):
    first, *rest = release_content.network.schema.variables
    age = next(v for v in (first, *rest) if v.bins is not None)
    declared = dataclasses.replace(age, representatives=tuple(age.bins[:-1]))
    schema = Schema(variables=tuple(declared if v is age else v for v in (first, *rest)))
    network = dataclasses.replace(release_content.network, schema=schema)
    context = model_json.ModelContext(
        study=dataclasses.replace(release_content.study, schema=schema), study_digest="ab" * 32,
        effective_digest=release_content.effective_digest, n_common=9, search=release_content.search, simulation=True,
    )  # fmt: skip
    assert model_json.read(model_json.write(network, (), context)).schema == schema


@pytest.mark.parametrize("sampling", ["systematic", "independent", "without-replacement"])
def test_the_release_is_drawn_as_the_study_says(release_content, sampling, monkeypatch):
    network, study = release_content.network, release_content.study
    study = dataclasses.replace(study, release=dataclasses.replace(study.release, sampling=sampling))
    codes, table = draw_release_records(network, study, 5000)
    assert len(table) == 5000
    counts = np.bincount(codes[0], minlength=network.schema.n_states[0])
    rounded = np.abs(counts - 5000 * network.families[0].probability[0]).max() < 1
    assert rounded is np.bool_(sampling != "independent")
    monkeypatch.setattr(elimination, "MAX_CLIQUE_CELLS", 3)
    if sampling == "without-replacement":
        with pytest.raises(DataFault, match=r"release\.sampling = 'without-replacement'") as caught:
            draw_release_records(network, study, 5000)
        assert "systematic" in caught.value.hint
    else:
        assert draw_release_records(network, study, 5000)[1].equals(table)
